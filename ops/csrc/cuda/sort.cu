// Stable radix sort and prefix sums: one pass per eight bits, no order left to chance.
#include "sort.h"

namespace splinecnn::cuda {
namespace {

constexpr int ITEMS = 8;  // per thread
constexpr int BLOCK_ITEMS = THREADS * ITEMS;
constexpr int DIGITS = 256;
static_assert(DIGITS == THREADS, "one thread per digit");

__device__ inline int digit_of(uint64_t key, int shift) { return int(key >> shift) & (DIGITS - 1); }

struct DigitCounts {
  uint32_t of[DIGITS];
};

// counts[digit][block]: digit-major, so that one scan gives every block its places.
__global__ void __launch_bounds__(THREADS)
    count_digits(const uint64_t* keys, int64_t n, int shift, uint32_t* counts) {
  SPLINECNN_SHARED(DigitCounts, count);
  count.of[threadIdx.x] = 0;
  __syncthreads();
  const int64_t start = int64_t(blockIdx.x) * BLOCK_ITEMS;
  for (int item = 0; item < ITEMS; ++item) {
    const int64_t i = start + item * THREADS + threadIdx.x;
    if (i < n) atomicAdd(&count.of[digit_of(keys[i], shift)], 1u);
  }
  __syncthreads();
  counts[int64_t(threadIdx.x) * gridDim.x + blockIdx.x] = count.of[threadIdx.x];
}

struct WarpCounts {
  uint32_t of[WARPS][DIGITS];
};

// Each warp takes a run of 32 * ITEMS keys in order, so a key's rank is the count before it.
__global__ void __launch_bounds__(THREADS)
    scatter(const uint64_t* keys, const int32_t* payload, int64_t n, int shift,
            const uint32_t* places, uint64_t* keys_out, int32_t* payload_out) {
  SPLINECNN_SHARED(WarpCounts, count);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int w = 0; w < WARPS; ++w) count.of[w][threadIdx.x] = 0;
  __syncthreads();

  const int64_t start = int64_t(blockIdx.x) * BLOCK_ITEMS + warp * 32 * ITEMS + lane;
  uint64_t key[ITEMS];
  uint32_t rank[ITEMS];
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    const int64_t i = start + item * 32;
    const bool valid = i < n;
    key[item] = valid ? keys[i] : 0;
    const int digit = digit_of(key[item], shift);
    const unsigned peers = __match_any_sync(ALL_LANES, valid ? digit : DIGITS);
    const unsigned below = peers & ((1u << lane) - 1);
    const uint32_t before = count.of[warp][digit];
    rank[item] = before + __popc(below);
    __syncwarp();  // all have read before the first of them adds
    if (valid && below == 0) count.of[warp][digit] = before + __popc(peers);
    __syncwarp();
  }
  __syncthreads();

  uint32_t place = places[int64_t(threadIdx.x) * gridDim.x + blockIdx.x];
  for (int w = 0; w < WARPS; ++w) {
    const uint32_t here = count.of[w][threadIdx.x];
    count.of[w][threadIdx.x] = place;
    place += here;
  }
  __syncthreads();

#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    const int64_t i = start + item * 32;
    if (i >= n) continue;
    const uint32_t at = count.of[warp][digit_of(key[item], shift)] + rank[item];
    keys_out[at] = key[item];
    payload_out[at] = payload[i];
  }
}

template <typename V>
struct WarpTotals {
  V of[WARPS];
  V all;
};

// Sum of the values of all threads before this one; `totals.all` becomes the sum of all.
template <typename V>
__device__ V exclusive_in_block(V value, WarpTotals<V>& totals) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  V sum = value;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const V other = __shfl_up_sync(ALL_LANES, sum, offset);
    if (lane >= offset) sum += other;
  }
  __syncthreads();  // the totals of an earlier call have been read
  if (lane == 31) totals.of[warp] = sum;
  __syncthreads();
  V before = 0, all = 0;
  for (int w = 0; w < WARPS; ++w) {
    if (w < warp) before += totals.of[w];
    all += totals.of[w];
  }
  if (threadIdx.x == 0) totals.all = all;
  __syncthreads();
  return before + sum - value;
}

template <typename V>
__device__ V thread_sum(const V* values, int64_t n, int64_t first) {
  V sum = 0;
  for (int64_t i = first; i < first + ITEMS && i < n; ++i) sum += values[i];
  return sum;
}

template <typename V>
__global__ void __launch_bounds__(THREADS) sum_blocks(const V* values, int64_t n, V* sums) {
  SPLINECNN_SHARED(WarpTotals<V>, totals);
  exclusive_in_block(thread_sum(values, n, global_thread() * ITEMS), totals);
  if (threadIdx.x == 0) sums[blockIdx.x] = totals.all;
}

// One block turns the sums of all blocks into what comes before each.
template <typename V>
__global__ void __launch_bounds__(THREADS) scan_sums(V* sums, int64_t blocks) {
  SPLINECNN_SHARED(WarpTotals<V>, totals);
  V before = 0;
  for (int64_t start = 0; start < blocks; start += THREADS) {
    const int64_t i = start + threadIdx.x;
    const V place = before + exclusive_in_block(i < blocks ? sums[i] : V(0), totals);
    if (i < blocks) sums[i] = place;
    before += totals.all;
  }
}

template <typename V>
__global__ void __launch_bounds__(THREADS)
    apply_sums(V* values, int64_t n, const V* sums, bool inclusive) {
  SPLINECNN_SHARED(WarpTotals<V>, totals);
  const int64_t first = global_thread() * ITEMS;
  V running = sums[blockIdx.x] + exclusive_in_block(thread_sum(values, n, first), totals);
  for (int64_t i = first; i < first + ITEMS && i < n; ++i) {
    const V value = values[i];
    values[i] = inclusive ? running + value : running;
    running += value;
  }
}

template <typename V>
int scan(V* values, int64_t n, V* sums, bool inclusive, void* stream) {
  if (n == 0) return 0;
  const int64_t blocks = scan_blocks(n);
  SPLINECNN_TRY(launch(sum_blocks<V>, dim3(unsigned(blocks)), stream, values, n, sums));
  SPLINECNN_TRY(launch(scan_sums<V>, dim3(1), stream, sums, blocks));
  return launch(apply_sums<V>, dim3(unsigned(blocks)), stream, values, n, sums, inclusive);
}

}  // namespace

int64_t scan_blocks(int64_t n) { return ceil_div(n, BLOCK_ITEMS); }

int inclusive_scan(uint64_t* values, int64_t n, uint64_t* sums, void* stream) {
  return scan(values, n, sums, true, stream);
}

SortBuffers carve_sort(Carver& carver, int64_t n) {
  const int64_t counts = DIGITS * ceil_div(n, BLOCK_ITEMS);
  SortBuffers buffers{};
  for (int b = 0; b < 2; ++b) {
    buffers.keys[b] = carver.take<uint64_t>(n);
    buffers.payload[b] = carver.take<int32_t>(n);
  }
  buffers.counts = carver.take<uint32_t>(counts);
  buffers.sums = carver.take<uint64_t>(scan_blocks(counts > n ? counts : n));
  return buffers;
}

int sort_pairs(SortBuffers& buffers, int64_t n, int bits, void* stream) {
  if (n == 0) return 0;
  const unsigned blocks = unsigned(ceil_div(n, BLOCK_ITEMS));
  for (int shift = 0; shift < bits; shift += 8) {
    const int from = buffers.current, to = 1 - from;
    SPLINECNN_TRY(
        launch(count_digits, dim3(blocks), stream, buffers.keys[from], n, shift, buffers.counts));
    SPLINECNN_TRY(scan(buffers.counts, int64_t(DIGITS) * blocks,
                       reinterpret_cast<uint32_t*>(buffers.sums), false, stream));
    SPLINECNN_TRY(launch(scatter, dim3(blocks), stream, buffers.keys[from], buffers.payload[from],
                         n, shift, buffers.counts, buffers.keys[to], buffers.payload[to]));
    buffers.current = to;
  }
  return 0;
}

}  // namespace splinecnn::cuda
