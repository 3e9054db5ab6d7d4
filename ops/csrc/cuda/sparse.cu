// Compressed sparse rows times a dense matrix, and their transpose times one.
#include "sort.h"

namespace splinecnn::cuda {
namespace {

template <typename Index>
struct Rows {
  const Index *ptr, *index;
  int64_t rows, nonzeros, columns;
};

using Place = unsigned long long;

template <typename Index>
__global__ void __launch_bounds__(THREADS) check_kernel(Rows<Index> in, SparseRecord* record) {
  const int64_t i = global_thread();
  if (i <= in.rows) {
    const int64_t here = in.ptr[i], before = i ? int64_t(in.ptr[i - 1]) : 0;
    const bool ends = (i > 0 || here == 0) && (i < in.rows || here == in.nonzeros);
    if (here < before || !ends) atomicMin(reinterpret_cast<Place*>(&record->bad_ptr), Place(i));
  }
  if (i < in.nonzeros && (in.index[i] < 0 || in.index[i] >= in.columns))
    atomicMin(reinterpret_cast<Place*>(&record->bad_index), Place(i));
}

// One thread per element of the result, neighbours along its row.
template <typename T, typename Index>
__global__ void __launch_bounds__(THREADS)
    spmm_kernel(Rows<Index> in, const T* value, const T* dense, int64_t width, T* out) {
  const int64_t i = global_thread();
  if (i >= in.rows * width) return;
  const int64_t row = i / width, c = i % width;
  Acc<T> sum = 0;
  for (int64_t q = in.ptr[row]; q < in.ptr[row + 1]; ++q) {
    const Acc<T> one = widen(dense[int64_t(in.index[q]) * width + c]);
    sum += value ? widen(value[q]) * one : one;
  }
  out[i] = narrow<T>(sum);
}

template <typename Index>
__global__ void __launch_bounds__(THREADS)
    column_keys(Rows<Index> in, uint64_t* keys, int32_t* payload, int32_t* row) {
  const int64_t i = global_thread();
  if (i >= in.nonzeros) return;
  keys[i] = uint64_t(in.index[i]);
  payload[i] = int32_t(i);
  row[i] = int32_t(segment_of(in.ptr, in.rows, Index(i)));
}

__global__ void __launch_bounds__(THREADS)
    column_starts(const uint64_t* keys, int64_t n, int64_t columns, int64_t* starts) {
  const int64_t c = global_thread();
  if (c <= columns) starts[c] = lower_bound(keys, n, uint64_t(c));
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    spmm_t_kernel(const int64_t* starts, const int32_t* payload, const int32_t* row, const T* value,
                  const T* dense, int64_t columns, int64_t width, T* out) {
  const int64_t i = global_thread();
  if (i >= columns * width) return;
  const int64_t column = i / width, c = i % width;
  Acc<T> sum = 0;
  for (int64_t n = starts[column]; n < starts[column + 1]; ++n) {
    const int32_t q = payload[n];
    const Acc<T> one = widen(dense[int64_t(row[q]) * width + c]);
    sum += value ? widen(value[q]) * one : one;
  }
  out[i] = narrow<T>(sum);
}

template <typename F>
int dispatch_index(const SparseInput& in, F f) {
  if (in.wide)
    return f(Rows<int64_t>{static_cast<const int64_t*>(in.ptr),
                           static_cast<const int64_t*>(in.index), in.rows, in.nonzeros,
                           in.columns});
  return f(Rows<int32_t>{static_cast<const int32_t*>(in.ptr), static_cast<const int32_t*>(in.index),
                         in.rows, in.nonzeros, in.columns});
}

struct SparseMemory {
  SortBuffers sort;
  int32_t* row;
  int64_t* starts;
  int64_t used;
};

SparseMemory carve_sparse(const SparseInput& in, void* workspace) {
  Carver carver(workspace);
  SparseMemory memory{};
  memory.sort = carve_sort(carver, in.nonzeros);
  memory.row = carver.take<int32_t>(in.nonzeros);
  memory.starts = carver.take<int64_t>(in.columns + 1);
  memory.used = carver.used();
  return memory;
}

}  // namespace

int check_rows(const SparseInput& in, SparseRecord* record, void* stream) {
  SPLINECNN_TRY(int(cudaMemsetAsync(record, 0xff, sizeof(SparseRecord), cudaStream_t(stream))));
  const int64_t threads = in.nonzeros > in.rows ? in.nonzeros : in.rows + 1;
  return dispatch_index(in, [&](auto rows) {
    using Index = std::remove_cv_t<std::remove_pointer_t<decltype(rows.ptr)>>;
    return launch(check_kernel<Index>, dim3(blocks_for(threads)), stream, rows, record);
  });
}

int spmm(const SparseInput& in, void* out, void* stream) {
  if (in.rows * in.width == 0) return 0;
  return dispatch(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    return dispatch_index(in, [&](auto rows) {
      using Index = std::remove_cv_t<std::remove_pointer_t<decltype(rows.ptr)>>;
      return launch(spmm_kernel<T, Index>, dim3(blocks_for(in.rows * in.width)), stream, rows,
                    static_cast<const T*>(in.value), static_cast<const T*>(in.dense), in.width,
                    static_cast<T*>(out));
    });
  });
}

int64_t spmm_t_workspace(const SparseInput& in) { return carve_sparse(in, nullptr).used; }

int spmm_t(const SparseInput& in, void* out, void* workspace, void* stream) {
  if (in.columns * in.width == 0) return 0;
  SparseMemory memory = carve_sparse(in, workspace);
  SortBuffers& sort = memory.sort;
  if (in.nonzeros) {
    SPLINECNN_TRY(dispatch_index(in, [&](auto rows) {
      using Index = std::remove_cv_t<std::remove_pointer_t<decltype(rows.ptr)>>;
      return launch(column_keys<Index>, dim3(blocks_for(in.nonzeros)), stream, rows, sort.keys[0],
                    sort.payload[0], memory.row);
    }));
    SPLINECNN_TRY(sort_pairs(sort, in.nonzeros, bits_of(uint64_t(in.columns)), stream));
  }
  SPLINECNN_TRY(launch(column_starts, dim3(blocks_for(in.columns + 1)), stream,
                       sort.keys[sort.current], in.nonzeros, in.columns, memory.starts));
  return dispatch(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    return launch(spmm_t_kernel<T>, dim3(blocks_for(in.columns * in.width)), stream, memory.starts,
                  sort.payload[sort.current], memory.row, static_cast<const T*>(in.value),
                  static_cast<const T*>(in.dense), in.columns, in.width, static_cast<T*>(out));
  });
}

}  // namespace splinecnn::cuda
