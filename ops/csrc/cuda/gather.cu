// Sums of already transformed features over the edges, and the gradients of that.
#include "common.h"

namespace splinecnn::cuda {
namespace {

constexpr int COLS = 64;

// y[j][p][c]; wrong plans read NaN instead of foreign memory.
template <typename T>
__device__ Acc<T> read_y(const T* y, const ConvSizes& size, int j, int p, int c) {
  if (!within(j, size.num_sources) || !within(p, size.num_weights)) return not_a_number<Acc<T>>();
  return widen(y[(int64_t(j) * size.num_weights + p) * size.out + c]);
}

template <typename T>
__device__ Acc<T> read_grad(const T* grad, int rows, int width, int row, int c) {
  return within(row, rows) ? widen(grad[int64_t(row) * width + c]) : not_a_number<Acc<T>>();
}

template <typename T>
struct GatherShared {
  Acc<T> sum[TILE][COLS];
};

// One block per tile and COLS columns: out[i] = bias + sum of coef * y[src][p].
template <typename T>
__global__ void __launch_bounds__(THREADS)
    gather_kernel(const __grid_constant__ PlanView plan, const __grid_constant__ ConvSizes size,
                  const T* y, const T* bias, const T* coef, T* out) {
  SPLINECNN_SHARED(GatherShared<T>, shared);
  const int tile = blockIdx.x, c0 = blockIdx.y * COLS;
  const int first_node = tile * plan.tile_size;
  const int nodes = min(plan.tile_size, size.num_nodes - first_node);
  if (nodes <= 0) return;  // the whole block: the last tiles may be empty
  for (int i = threadIdx.x; i < TILE * COLS; i += THREADS) shared.sum[i / COLS][i % COLS] = 0;
  __syncthreads();
  const int width = power_of_two(size.out - c0, 1, COLS);
  for (int g = plan.tile_ptr[tile]; g < plan.tile_ptr[tile + 1]; ++g) {
    const int first_row = plan.group_ptr[g], rows = plan.group_ptr[g + 1] - first_row;
    const int p = plan.group_weight[g];
    for (int i = threadIdx.x; i < rows * width; i += THREADS) {
      const int row = first_row + i / width, c = i % width;
      const int node = plan.row_node[row] - first_node;
      if (c0 + c >= size.out || !within(node, nodes)) continue;
      Acc<T> sum = 0;
      const int end = plan.row_ptr[row + 1];
      for (int q = plan.row_ptr[row]; q < end; ++q)
        sum += widen(coef[q]) * read_y(y, size, plan.src[q], p, c0 + c);
      shared.sum[node][c] += sum;  // rows of a group have different nodes
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < nodes * COLS; i += THREADS) {
    const int n = i / COLS, c = i % COLS;
    if (c0 + c >= size.out) continue;
    const Acc<T> add = bias ? widen(bias[c0 + c]) : Acc<T>(0);
    out[int64_t(first_node + n) * size.out + c0 + c] = narrow<T>(shared.sum[n][c] + add);
  }
}

// Over the reversed plan every row is one (source, weight): a sum of its own, nothing to share.
template <typename T>
__global__ void __launch_bounds__(THREADS)
    gather_grad_kernel(const __grid_constant__ PlanView plan,
                       const __grid_constant__ ConvSizes size, const T* grad, const T* coef,
                       T* out) {
  const int64_t i = global_thread();
  if (i >= int64_t(plan.rows) * size.out) return;
  const int row = int(i / size.out), c = int(i % size.out);
  const int node = plan.row_node[row];
  const int p = plan.group_weight[segment_of(plan.group_ptr, plan.groups, int32_t(row))];
  if (!within(node, size.num_sources) || !within(p, size.num_weights)) return;
  Acc<T> sum = 0;
  const int end = plan.row_ptr[row + 1];
  for (int q = plan.row_ptr[row]; q < end; ++q)
    sum += widen(coef[q]) * read_grad(grad, size.num_nodes, size.out, plan.src[q], c);
  out[(int64_t(node) * size.num_weights + p) * size.out + c] = narrow<T>(sum);
}

// One warp per entry: grad[node] . y[src][p].
template <typename T>
__global__ void __launch_bounds__(THREADS)
    gather_coef_grad_kernel(const __grid_constant__ PlanView plan,
                            const __grid_constant__ ConvSizes size, const T* grad, const T* y,
                            T* out) {
  const int64_t q = global_thread() / 32;
  const int lane = threadIdx.x % 32;
  if (q >= plan.entries) return;  // the whole warp
  const int row = int(segment_of(plan.row_ptr, plan.rows, int32_t(q)));
  const int p = plan.group_weight[segment_of(plan.group_ptr, plan.groups, int32_t(row))];
  Acc<T> sum = 0;
  for (int c = lane; c < size.out; c += 32)
    sum += read_grad(grad, size.num_nodes, size.out, plan.row_node[row], c) *
           read_y(y, size, plan.src[q], p, c);
  sum = warp_sum(sum);
  if (lane == 0) out[q] = narrow<T>(sum);
}

}  // namespace

int gather(Dtype dtype, const PlanView& plan, const ConvSizes& size, const void* y,
           const void* bias, void* out, void* stream) {
  if (plan.tiles == 0 || size.out == 0) return 0;
  return dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    const dim3 grid(plan.tiles, unsigned(ceil_div(size.out, COLS)));
    return launch(gather_kernel<T>, grid, stream, plan, size, static_cast<const T*>(y),
                  static_cast<const T*>(bias), static_cast<const T*>(plan.coef),
                  static_cast<T*>(out));
  });
}

int gather_grad(Dtype dtype, const PlanView& plan, const ConvSizes& size, const void* grad,
                void* out, void* stream) {
  return dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    const size_t bytes = sizeof(T) * size_t(size.num_sources) * size.num_weights * size.out;
    SPLINECNN_TRY(int(cudaMemsetAsync(out, 0, bytes, static_cast<cudaStream_t>(stream))));
    const int64_t numbers = int64_t(plan.rows) * size.out;
    if (numbers == 0) return 0;
    return launch(gather_grad_kernel<T>, dim3(blocks_for(numbers)), stream, plan, size,
                  static_cast<const T*>(grad), static_cast<const T*>(plan.coef),
                  static_cast<T*>(out));
  });
}

int gather_coef_grad(Dtype dtype, const PlanView& plan, const ConvSizes& size, const void* grad,
                     const void* y, void* out, void* stream) {
  if (plan.entries == 0) return 0;
  return dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    return launch(gather_coef_grad_kernel<T>, dim3(blocks_for(plan.entries * 32)), stream, plan,
                  size, static_cast<const T*>(grad), static_cast<const T*>(y),
                  static_cast<T*>(out));
  });
}

}  // namespace splinecnn::cuda
