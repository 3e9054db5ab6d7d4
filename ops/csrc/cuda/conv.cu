// The spline convolution: rows are summed into shared memory and multiplied there, tile by tile.
#include "product.h"

namespace splinecnn::cuda {
namespace {

template <typename T>
struct Conv {
  const T *x, *weight, *root, *bias, *coef;
  T* out;
};

// sum of coef * x[src] over a row's entries, column m (paper, eq. 2, inner sum).
template <typename T>
__device__ Acc<T> row_sum(const PlanView& plan, const ConvSizes& size, const T* coef, const T* x,
                          int row, int m) {
  Acc<T> sum = 0;
  const int end = plan.row_ptr[row + 1];
#pragma unroll 4
  for (int q = plan.row_ptr[row]; q < end; ++q) {
    const int j = plan.src[q];
    const Acc<T> value =
        within(j, size.num_sources) ? widen(x[int64_t(j) * size.in + m]) : not_a_number<Acc<T>>();
    sum += widen(coef[q]) * value;
  }
  return sum;
}

// The gradient at a row's target node, column o.
template <typename T>
__device__ Acc<T> grad_of(const PlanView& plan, const ConvSizes& size, const T* grad, int row,
                          int o) {
  const int node = plan.row_node[row];
  return within(node, size.num_nodes) ? widen(grad[int64_t(node) * size.out + o])
                                      : not_a_number<Acc<T>>();
}

// How wide a step over a dimension of n is: threads beyond n would only wait.
template <typename T>
__device__ int step_width(int n) {
  return power_of_two(n, GRAIN<T>, DEPTH);
}

// b[c][m] = matrix[m0 + m][c0 + c], zero outside; reads run along c, writes along m.
template <typename T, int COLS>
__device__ void stage_columns(Line<Staged<T>>* b, const T* matrix, int height, int width, int m0,
                              int c0, int depth) {
  using V = Vector<Staged<T>>;
  for (int i = threadIdx.x; i < depth / V::SIZE * COLS; i += THREADS) {
    const int c = i % COLS, m = i / COLS * V::SIZE;
    V v;
#pragma unroll
    for (int n = 0; n < V::SIZE; ++n) {
      const bool inside = m0 + m + n < height && c0 + c < width;
      v.of[n] = stage<T>(inside ? widen(matrix[int64_t(m0 + m + n) * width + c0 + c]) : Acc<T>(0));
    }
    *reinterpret_cast<V*>(b[c].of + m) = v;
  }
}

template <typename T, int COLS>
struct ConvShared {
  Line<Staged<T>> a[TILE], b[COLS];
  Acc<T> sum[TILE][COLS];
};

// One block per tile of target nodes and COLS output columns.
template <typename T, int COLS>
__global__ void __launch_bounds__(THREADS, 2)
    conv_kernel(const __grid_constant__ PlanView plan, const __grid_constant__ ConvSizes size,
                const Conv<T> in) {
  using Shared = ConvShared<T, COLS>;
  SPLINECNN_SHARED(Shared, shared);
  const int tile = blockIdx.x, c0 = blockIdx.y * COLS;
  const int first_node = tile * plan.tile_size;
  const int nodes = min(plan.tile_size, size.num_nodes - first_node);
  if (nodes <= 0) return;  // the whole block: the last tiles may be empty
  for (int i = threadIdx.x; i < TILE * COLS; i += THREADS) shared.sum[i / COLS][i % COLS] = 0;

  const int depth = step_width<T>(size.in);
  const int groups_end = plan.tile_ptr[tile + 1];
  // after the groups one more round: the nodes' own features, multiplied by root
  for (int g = plan.tile_ptr[tile]; g < groups_end + (in.root != nullptr); ++g) {
    const bool own = g == groups_end;
    const int first_row = own ? first_node : plan.group_ptr[g];
    const int rows = min(TILE, own ? nodes : plan.group_ptr[g + 1] - first_row);
    const int p = own ? 0 : plan.group_weight[g];
    const bool known = own || within(p, size.num_weights);
    const T* matrix = own ? in.root : in.weight + int64_t(p) * size.in * size.out;
    Product<T, TILE, COLS> product;
    product.clear();
    for (int m0 = 0; m0 < size.in; m0 += depth) {
      __syncthreads();  // the last product has been read
      for (int i = threadIdx.x; i < rows * depth; i += THREADS) {
        const int r = i / depth, m = i % depth;
        Acc<T> value = 0;
        if (!known)
          value = not_a_number<Acc<T>>();
        else if (m0 + m < size.in)
          value = own ? widen(in.x[int64_t(first_row + r) * size.in + m0 + m])
                      : row_sum(plan, size, in.coef, in.x, first_row + r, m0 + m);
        shared.a[r].of[m] = stage<T>(value);
      }
      stage_columns<T, COLS>(shared.b, matrix, known ? size.in : 0, size.out, m0, c0, depth);
      __syncthreads();
      product.add(shared.a, shared.b, rows, depth);
    }
    // rows of a group have different nodes: no two threads meet in one sum
    product.each(rows, [&](int r, int c, Acc<T> value) {
      const int node = own ? r : plan.row_node[first_row + r] - first_node;
      if (within(node, nodes)) shared.sum[node][c] += value;
    });
    __syncthreads();
  }
  __syncthreads();
  for (int i = threadIdx.x; i < nodes * COLS; i += THREADS) {
    const int n = i / COLS, c = i % COLS;
    if (c0 + c >= size.out) continue;
    const Acc<T> bias = in.bias ? widen(in.bias[c0 + c]) : Acc<T>(0);
    in.out[int64_t(first_node + n) * size.out + c0 + c] = narrow<T>(shared.sum[n][c] + bias);
  }
}

// The group of weight p in a tile, -1 if it has none.
__device__ inline int find_group(const PlanView& plan, int tile, int p) {
  const int first = plan.tile_ptr[tile], count = plan.tile_ptr[tile + 1] - first;
  const int g = first + int(lower_bound(plan.group_weight + first, count, int32_t(p)));
  return g < first + count && plan.group_weight[g] == p ? g : -1;
}

constexpr int SIDE = 64;  // of the square of a weight's gradient that one block sums

template <typename T>
struct WeightGradShared {
  Line<Staged<T>> a[SIDE], b[SIDE];
};

// partial[slice][p][m][o] = sum over the rows of p in a slice of the tiles of A[row][m] * grad[o].
template <typename T>
__global__ void __launch_bounds__(THREADS, 2)
    weight_grad_kernel(const __grid_constant__ PlanView plan,
                       const __grid_constant__ ConvSizes size, const T* coef, const T* x,
                       const T* grad, int slices, Acc<T>* partial) {
  SPLINECNN_SHARED(WeightGradShared<T>, shared);
  const int p = blockIdx.x;
  const int columns = (size.out + SIDE - 1) / SIDE;
  const int m0 = blockIdx.y / columns * SIDE, o0 = blockIdx.y % columns * SIDE;
  const int slice = blockIdx.z;
  const int first_tile = int(int64_t(plan.tiles) * slice / slices);
  const int last_tile = int(int64_t(plan.tiles) * (slice + 1) / slices);
  Product<T, SIDE, SIDE> product;
  product.clear();
  for (int tile = first_tile; tile < last_tile; ++tile) {
    const int g = find_group(plan, tile, p);
    if (g < 0) continue;  // the same for the whole block
    const int first_row = plan.group_ptr[g], rows = min(TILE, plan.group_ptr[g + 1] - first_row);
    const int depth = step_width<T>(rows);
    __syncthreads();
    for (int i = threadIdx.x; i < depth * SIDE; i += THREADS) {
      const int r = i / SIDE, c = i % SIDE;
      Acc<T> left = 0, right = 0;
      if (r < rows && m0 + c < size.in) left = row_sum(plan, size, coef, x, first_row + r, m0 + c);
      if (r < rows && o0 + c < size.out) right = grad_of(plan, size, grad, first_row + r, o0 + c);
      shared.a[c].of[r] = stage<T>(left);
      shared.b[c].of[r] = stage<T>(right);
    }
    __syncthreads();
    product.add(shared.a, shared.b, SIDE, depth);
  }
  Acc<T>* out = partial + (int64_t(slice) * size.num_weights + p) * size.in * size.out;
  product.each(SIDE, [&](int m, int o, Acc<T> value) {
    if (m0 + m < size.in && o0 + o < size.out) out[int64_t(m0 + m) * size.out + o0 + o] = value;
  });
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    add_slices(const Acc<T>* partial, int slices, int64_t n, T* out) {
  const int64_t i = global_thread();
  if (i >= n) return;
  Acc<T> sum = 0;
  for (int slice = 0; slice < slices; ++slice) sum += partial[slice * n + i];
  out[i] = narrow<T>(sum);
}

template <typename T>
struct CoefGradShared {
  Line<Staged<T>> a[TILE], b[SIDE];
  Acc<T> row[TILE][SIDE];
};

// Gradient of each entry's coefficient: x[src] . (weight[p] grad[node]), a product per group first.
template <typename T>
__global__ void __launch_bounds__(THREADS, 2)
    coef_grad_kernel(const __grid_constant__ PlanView plan, const __grid_constant__ ConvSizes size,
                     const T* grad, const T* x, const T* weight, Acc<T>* out) {
  SPLINECNN_SHARED(CoefGradShared<T>, shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int g = blockIdx.x;
  const int first_row = plan.group_ptr[g], rows = min(TILE, plan.group_ptr[g + 1] - first_row);
  const int first_entry = plan.row_ptr[first_row], last_entry = plan.row_ptr[first_row + rows];
  const int p = plan.group_weight[g];
  const T* matrix = weight + int64_t(p) * size.in * size.out;
  const int depth = step_width<T>(size.out);
  for (int m0 = 0; m0 < size.in; m0 += SIDE) {
    Product<T, TILE, SIDE> product;
    product.clear();
    for (int o0 = 0; o0 < size.out; o0 += depth) {
      __syncthreads();
      for (int i = threadIdx.x; i < rows * depth; i += THREADS) {
        const int r = i / depth, o = i % depth;
        shared.a[r].of[o] = stage<T>(
            o0 + o < size.out ? grad_of(plan, size, grad, first_row + r, o0 + o) : Acc<T>(0));
      }
      for (int i = threadIdx.x; i < SIDE * depth; i += THREADS) {
        const int m = i / depth, o = i % depth;
        Acc<T> value = within(p, size.num_weights) ? Acc<T>(0) : not_a_number<Acc<T>>();
        if (m0 + m < size.in && o0 + o < size.out && within(p, size.num_weights))
          value = widen(matrix[int64_t(m0 + m) * size.out + o0 + o]);
        shared.b[m].of[o] = stage<T>(value);
      }
      __syncthreads();
      product.add(shared.a, shared.b, rows, depth);
    }
    __syncthreads();  // the rows of the columns before have been read
    product.each(rows, [&](int r, int m, Acc<T> value) { shared.row[r][m] = value; });
    __syncthreads();
    for (int q = first_entry + warp; q < last_entry; q += WARPS) {
      const int r = int(segment_of(plan.row_ptr + first_row, rows, q));
      const int j = plan.src[q];
      Acc<T> sum = 0;
      for (int m = lane; m < SIDE && m0 + m < size.in; m += 32) {
        const Acc<T> value = within(j, size.num_sources) ? widen(x[int64_t(j) * size.in + m0 + m])
                                                         : not_a_number<Acc<T>>();
        sum += shared.row[r][m] * value;
      }
      sum = warp_sum(sum);
      if (lane == 0) out[q] = m0 ? out[q] + sum : sum;
    }
  }
}

// As many slices of the tiles as keep a device busy, as long as the partial sums stay small.
int weight_grad_slices(const PlanView& plan, const ConvSizes& size) {
  const int64_t numbers = int64_t(size.num_weights) * size.in * size.out;
  int64_t slices = ceil_div(plan.tiles, 16);
  if (slices > 16) slices = 16;
  while (slices > 1 && slices * numbers > (int64_t(1) << 24)) --slices;
  return slices < 1 ? 1 : int(slices);
}

}  // namespace

int conv(Dtype dtype, const PlanView& plan, const ConvSizes& size, const void* x,
         const void* weight, const void* root, const void* bias, void* out, void* stream) {
  if (plan.tiles == 0 || size.out == 0) return 0;
  return dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    const Conv<T> in{static_cast<const T*>(x),         static_cast<const T*>(weight),
                     static_cast<const T*>(root),      static_cast<const T*>(bias),
                     static_cast<const T*>(plan.coef), static_cast<T*>(out)};
    if (size.out <= 32) return launch(conv_kernel<T, 32>, dim3(plan.tiles), stream, plan, size, in);
    const unsigned columns = unsigned(ceil_div(size.out, 64));
    return launch(conv_kernel<T, 64>, dim3(plan.tiles, columns), stream, plan, size, in);
  });
}

int64_t conv_weight_grad_workspace(Dtype dtype, const PlanView& plan, const ConvSizes& size) {
  const int64_t numbers = int64_t(size.num_weights) * size.in * size.out;
  const int64_t width = dtype == Dtype::float64 ? 8 : 4;
  return weight_grad_slices(plan, size) * numbers * width;
}

int conv_weight_grad(Dtype dtype, const PlanView& plan, const ConvSizes& size, const void* grad,
                     const void* x, void* out, void* workspace, void* stream) {
  const int64_t numbers = int64_t(size.num_weights) * size.in * size.out;
  if (numbers == 0) return 0;
  const int slices = weight_grad_slices(plan, size);
  const unsigned squares = unsigned(ceil_div(size.in, SIDE) * ceil_div(size.out, SIDE));
  return dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    Acc<T>* partial = static_cast<Acc<T>*>(workspace);
    SPLINECNN_TRY(launch(weight_grad_kernel<T>, dim3(size.num_weights, squares, slices), stream,
                         plan, size, static_cast<const T*>(plan.coef), static_cast<const T*>(x),
                         static_cast<const T*>(grad), slices, partial));
    return launch(add_slices<T>, dim3(blocks_for(numbers)), stream, partial, slices, numbers,
                  static_cast<T*>(out));
  });
}

int conv_coef_grad(Dtype dtype, const PlanView& plan, const ConvSizes& size, const void* grad,
                   const void* x, const void* weight, void* out, void* stream) {
  if (plan.entries == 0) return 0;
  return dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    return launch(coef_grad_kernel<T>, dim3(plan.groups), stream, plan, size,
                  static_cast<const T*>(grad), static_cast<const T*>(x),
                  static_cast<const T*>(weight), static_cast<Acc<T>*>(out));
  });
}

}  // namespace splinecnn::cuda
