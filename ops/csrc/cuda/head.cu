// The last layer: a tiled product whose logits are only ever seen, never stored.
#include "product.h"

namespace splinecnn::cuda {
namespace {

constexpr int SIDE = 64;                 // rows and classes of one product
constexpr int READERS = THREADS / SIDE;  // threads that share a row of finished logits
constexpr int64_t SPLIT = 1024;          // classes of one block: independent of the number of rows

// Torch's order: no number above all, then the larger, then the lower class.
template <typename A>
__device__ bool above(A a, int64_t a_class, A b, int64_t b_class) {
  const bool a_nan = a != a, b_nan = b != b;
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a != b) return a > b;
  return a_class < b_class;
}

// The k best so far, best first, in global memory; changes are rare.
template <typename A, typename Class>
struct Best {
  A* value;
  Class* index;
  int64_t k, filled;

  __device__ bool offer(A v, Class c) {
    if (filled == k && !above(v, int64_t(c), value[k - 1], int64_t(index[k - 1]))) return false;
    int64_t at = filled < k ? filled++ : k - 1;
    for (; at > 0 && above(v, int64_t(c), value[at - 1], int64_t(index[at - 1])); --at) {
      value[at] = value[at - 1];
      index[at] = index[at - 1];
    }
    value[at] = v;
    index[at] = c;
    return true;
  }
};

// log of a sum of exponentials, as its largest term and the sum relative to that.
template <typename A>
struct LogSum {
  A largest, sum;

  __device__ void add(A v, A count) {
    if (v == -A(INFINITY) && count == count) return;  // nothing, unless it holds a NaN
    if (v == largest) {
      sum += count;
    } else if (v > largest) {
      sum = sum * exp(largest - v) + count;
      largest = v;
    } else {
      sum += count * exp(v - largest);
    }
  }
  __device__ A result() const { return largest + log(sum); }
};

// What each reader of each split leaves for the merge: its `keep` best and its log-sum.
template <typename A>
struct Partial {
  A* value;        // [lists, rows, keep]
  int32_t* index;  // [lists, rows, keep]
  A* log_sum;      // [lists, rows, 2]
  int64_t lists, keep;
};

template <typename T>
union HeadShared {
  struct {
    Line<Staged<T>> a[SIDE], b[SIDE];
  } staged;
  Acc<T> logit[SIDE][SIDE + 1];
};

// line[r][f] = matrix[first + r][f0 + f], zero outside.
template <typename T>
__device__ void stage_rows(Line<Staged<T>>* lines, const T* matrix, int64_t first, int64_t rows,
                           int64_t f0, int64_t features) {
  for (int i = threadIdx.x; i < SIDE * DEPTH; i += THREADS) {
    const int r = i / DEPTH, f = i % DEPTH;
    const bool inside = first + r < rows && f0 + f < features;
    lines[r].of[f] = stage<T>(inside ? widen(matrix[(first + r) * features + f0 + f]) : Acc<T>(0));
  }
}

// One block per SIDE rows and SPLIT classes.
template <typename T>
__global__ void __launch_bounds__(THREADS, 2)
    head_kernel(const T* x, const T* weight, const T* bias, int64_t rows, int64_t features,
                int64_t classes, Partial<Acc<T>> partial) {
  using A = Acc<T>;
  const int64_t k = partial.keep;
  SPLINECNN_SHARED(HeadShared<T>, shared);
  const int64_t first_row = int64_t(blockIdx.x) * SIDE;
  const int64_t first_class = blockIdx.y * SPLIT;
  const int64_t last_class = min(classes, first_class + SPLIT);
  const int own_row = threadIdx.x / READERS, reader = threadIdx.x % READERS;
  const bool active = first_row + own_row < rows;
  const int64_t list = (int64_t(blockIdx.y) * READERS + reader) * rows + first_row + own_row;
  Best<A, int32_t> best{partial.value + list * k, partial.index + list * k, k, 0};
  LogSum<A> log_sum{-A(INFINITY), 0};
  A least = 0;  // the last of a full list

  for (int64_t c0 = first_class; c0 < last_class; c0 += SIDE) {
    Product<T, SIDE, SIDE> product;
    product.clear();
    for (int64_t f0 = 0; f0 < features; f0 += DEPTH) {
      __syncthreads();
      stage_rows<T>(shared.staged.a, x, first_row, rows, f0, features);
      stage_rows<T>(shared.staged.b, weight, c0, classes, f0, features);
      __syncthreads();
      product.add(shared.staged.a, shared.staged.b, SIDE, DEPTH);
    }
    __syncthreads();
    product.each(SIDE, [&](int r, int c, A value) { shared.logit[r][c] = value; });
    __syncthreads();
    for (int c = reader; active && c < SIDE && c0 + c < last_class; c += READERS) {
      const A add = bias ? widen(bias[c0 + c]) : A(0);
      const A logit = widen(narrow<T>(shared.logit[own_row][c] + add));
      log_sum.add(logit, 1);
      if (best.filled < k || !(logit <= least))
        if (best.offer(logit, int32_t(c0 + c))) least = best.value[k - 1 < best.filled ? k - 1 : 0];
    }
  }
  if (!active) return;
  for (; best.filled < k; ++best.filled) {  // a short list is closed by impossible classes
    best.value[best.filled] = -A(INFINITY);
    best.index[best.filled] = INT32_MAX;
  }
  partial.log_sum[list * 2] = log_sum.largest;
  partial.log_sum[list * 2 + 1] = log_sum.sum;
}

// One thread per row joins the lists of all splits and readers, in their order.
template <typename T>
__global__ void __launch_bounds__(THREADS)
    merge_kernel(Partial<Acc<T>> partial, int64_t rows, int64_t k, Acc<T>* scratch, T* value,
                 int64_t* index, T* logsumexp) {
  using A = Acc<T>;
  const int64_t row = global_thread();
  if (row >= rows) return;
  Best<A, int64_t> best{scratch + row * k, index + row * k, k, 0};
  LogSum<A> total{-A(INFINITY), 0};
  for (int64_t l = 0; l < partial.lists; ++l) {
    const int64_t list = l * rows + row;
    total.add(partial.log_sum[list * 2], partial.log_sum[list * 2 + 1]);
    for (int64_t i = list * partial.keep; i < (list + 1) * partial.keep; ++i)
      if (!best.offer(partial.value[i], partial.index[i])) break;
  }
  for (int64_t i = 0; i < k; ++i) value[row * k + i] = narrow<T>(best.value[i]);
  logsumexp[row] = narrow<T>(total.result());
}

template <typename A>
struct HeadMemory {
  Partial<A> partial;
  A* scratch;
  int64_t used;
};

template <typename A>
HeadMemory<A> carve_head(int64_t rows, int64_t classes, int64_t k, void* workspace) {
  constexpr int64_t SEEN = SPLIT / READERS;  // classes that one reader of one split meets
  const int64_t lists = ceil_div(classes, SPLIT) * READERS, keep = k < SEEN ? k : SEEN;
  Carver carver(workspace);
  HeadMemory<A> memory{};
  memory.partial.lists = lists;
  memory.partial.keep = keep;
  memory.partial.value = carver.take<A>(lists * rows * keep);
  memory.partial.index = carver.take<int32_t>(lists * rows * keep);
  memory.partial.log_sum = carver.take<A>(lists * rows * 2);
  memory.scratch = carver.take<A>(rows * k);
  memory.used = carver.used();
  return memory;
}

}  // namespace

int64_t head_workspace(Dtype dtype, int64_t rows, int64_t classes, int64_t k) {
  if (dtype == Dtype::float64) return carve_head<double>(rows, classes, k, nullptr).used;
  return carve_head<float>(rows, classes, k, nullptr).used;
}

int head(Dtype dtype, const void* x, const void* weight, const void* bias, int64_t rows,
         int64_t features, int64_t classes, int64_t k, void* value, int64_t* index, void* logsumexp,
         void* workspace, void* stream) {
  if (rows == 0) return 0;
  return dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    HeadMemory<Acc<T>> memory = carve_head<Acc<T>>(rows, classes, k, workspace);
    const dim3 grid(unsigned(ceil_div(rows, SIDE)), unsigned(ceil_div(classes, SPLIT)));
    SPLINECNN_TRY(launch(head_kernel<T>, grid, stream, static_cast<const T*>(x),
                         static_cast<const T*>(weight), static_cast<const T*>(bias), rows, features,
                         classes, memory.partial));
    return launch(merge_kernel<T>, dim3(blocks_for(rows)), stream, memory.partial, rows, k,
                  memory.scratch, static_cast<T*>(value), index, static_cast<T*>(logsumexp));
  });
}

}  // namespace splinecnn::cuda
