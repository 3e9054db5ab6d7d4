// One block's matrix product out of shared memory: tensor cores for half types, else plain FMA.
#pragma once

#include "common.h"

namespace splinecnn::cuda {

// Tensor cores take both half types from sm_80 on.
#ifdef SPLINECNN_EMULATE
#ifdef SPLINECNN_NO_TENSOR_CORES
constexpr bool TENSOR_CORES = false;
#else
constexpr bool TENSOR_CORES = true;
#endif
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool TENSOR_CORES = false;
#else
constexpr bool TENSOR_CORES = true;
#endif

template <typename T>
constexpr bool IS_HALF = sizeof(T) == 2;
template <typename T>
constexpr bool ON_TENSOR_CORES = TENSOR_CORES && IS_HALF<T>;

template <bool first, typename A, typename B>
struct Choose {
  using type = A;
};
template <typename A, typename B>
struct Choose<false, A, B> {
  using type = B;
};

// The type in which factors wait in shared memory.
template <typename T>
using Staged = typename Choose<ON_TENSOR_CORES<T>, T, Acc<T>>::type;

template <typename T>
__device__ inline Staged<T> stage(Acc<T> v) {
  if constexpr (ON_TENSOR_CORES<T>)
    return narrow<T>(v);
  else
    return v;
}

// Sixteen bytes, the widest access there is.
template <typename S>
struct alignas(16) Vector {
  static constexpr int SIZE = 16 / int(sizeof(S));
  S of[SIZE];
};

constexpr int DEPTH = 32;  // of a product staged at once

// Both factors lie with their common dimension innermost; 16 bytes of padding spread the banks.
template <typename S>
struct alignas(16) Line {
  S of[DEPTH + Vector<S>::SIZE];
};

// The depth of a staged product is a multiple of this.
template <typename T>
constexpr int GRAIN = ON_TENSOR_CORES<T> ? 16 : Vector<Acc<T>>::SIZE;

// D (16x8) += A (16x16, row by row) * B (16x8, column by column), spread over the lanes of a warp.
template <typename T>
__device__ inline void tensor_product(float (&d)[4], const uint32_t (&a)[4],
                                      const uint32_t (&b)[2]) {
#ifdef SPLINECNN_EMULATE
  emulator::tensor_product<T>(d, a, b);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (sizeof(T) == 2 && !__is_same(T, __half)) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
}

// sum[r][c] += a[r] . b[c] for a block of THREADS threads; each thread holds its share of the sum.
template <typename T, int ROWS, int COLS, bool = ON_TENSOR_CORES<T>>
class Product {
 public:
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < ROWS / 16; ++i)
#pragma unroll
      for (int j = 0; j < COLS / 16; ++j) sum_[i][j] = 0;
  }

  // Rows from `rows` on are left out; `depth` is a multiple of GRAIN.
  __device__ void add(const Line<Acc<T>>* a, const Line<Acc<T>>* b, int rows, int depth) {
    using V = Vector<Acc<T>>;
    for (int k = 0; k < depth; k += V::SIZE) {
      V right[COLS / 16];
#pragma unroll
      for (int j = 0; j < COLS / 16; ++j) right[j] = *reinterpret_cast<const V*>(b[col(j)].of + k);
#pragma unroll
      for (int i = 0; i < ROWS / 16; ++i) {
        if (row(i) >= rows) continue;
        const V left = *reinterpret_cast<const V*>(a[row(i)].of + k);
#pragma unroll
        for (int j = 0; j < COLS / 16; ++j)
#pragma unroll
          for (int v = 0; v < V::SIZE; ++v) sum_[i][j] += left.of[v] * right[j].of[v];
      }
    }
  }

  // f(row, column, sum) for each element this thread holds.
  template <typename F>
  __device__ void each(int rows, F f) const {
#pragma unroll
    for (int i = 0; i < ROWS / 16; ++i)
#pragma unroll
      for (int j = 0; j < COLS / 16; ++j)
        if (row(i) < rows) f(row(i), col(j), sum_[i][j]);
  }

 private:
  __device__ static int row(int i) { return threadIdx.x / 16 + 16 * i; }
  __device__ static int col(int j) { return threadIdx.x % 16 + 16 * j; }
  Acc<T> sum_[ROWS / 16][COLS / 16];
};

template <typename T, int ROWS, int COLS>
class Product<T, ROWS, COLS, true> {
 public:
  __device__ void clear() {
#pragma unroll
    for (int u = 0; u < SHARE; ++u)
#pragma unroll
      for (int v = 0; v < 4; ++v) sum_[u][v] = 0;
  }

  __device__ void add(const Line<T>* a, const Line<T>* b, int rows, int depth) {
    const int group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
    for (int k = pair; k < depth; k += 16) {
#pragma unroll
      for (int u = 0; u < SHARE; ++u) {
        if (first_row(u) >= rows) continue;  // the same for the whole warp
        const T *upper = a[first_row(u) + group].of + k,
                *lower = a[first_row(u) + group + 8].of + k;
        const T* right = b[first_col(u) + group].of + k;
        const uint32_t left[4] = {two(upper), two(lower), two(upper + 8), two(lower + 8)};
        const uint32_t both[2] = {two(right), two(right + 8)};
        tensor_product<T>(sum_[u], left, both);
      }
    }
  }

  template <typename F>
  __device__ void each(int rows, F f) const {
    const int group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
#pragma unroll
    for (int u = 0; u < SHARE; ++u)
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int row = first_row(u) + group + v / 2 * 8;
        if (row < rows) f(row, first_col(u) + pair + v % 2, sum_[u][v]);
      }
  }

 private:
  static constexpr int SHARE = ROWS / 16 * (COLS / 8) / WARPS;  // 16x8 pieces of a warp
  static_assert(SHARE * WARPS == ROWS / 16 * (COLS / 8), "pieces must divide evenly");
  __device__ static int piece(int u) { return int(threadIdx.x) / 32 + WARPS * u; }
  __device__ static int first_row(int u) { return piece(u) / (COLS / 8) * 16; }
  __device__ static int first_col(int u) { return piece(u) % (COLS / 8) * 8; }
  __device__ static uint32_t two(const T* p) { return *reinterpret_cast<const uint32_t*>(p); }
  float sum_[SHARE][4];
};

}  // namespace splinecnn::cuda
