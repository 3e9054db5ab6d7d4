// Stands in for CUDA's header of this name, with the tensor-core product of both half types.
#pragma once

#include "cuda_fp16.h"

struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 b) {
  return std::bit_cast<float>(uint32_t(b.bits) << 16);
}

inline __nv_bfloat16 __float2bfloat16(float f) {
  uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return {0x7fff};
  bits += 0x7fff + (bits >> 16 & 1);
  return {uint16_t(bits >> 16)};
}

namespace emulator {

inline float as_float(uint32_t both, int half, __half) {
  return __half2float({uint16_t(half ? both >> 16 : both)});
}
inline float as_float(uint32_t both, int half, __nv_bfloat16) {
  return __bfloat162float({uint16_t(half ? both >> 16 : both)});
}

// PTX mma.sync.m16n8k16: lane 4g + t holds rows g and g + 8 of A, column g of B, and of D rows g
// and g + 8 in columns 2t and 2t + 1.
template <typename T>
void tensor_product(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  struct Fragments {
    uint32_t a[4], b[2];
  };
  Quiet quiet;
  put(Fragments{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}});
  block->wait_in_warp(0xffffffffu, as_place(tensor), false);
  const unsigned group = block->own_lane() / 4, pair = block->own_lane() % 4;
  for (unsigned k = 0; k < 16; ++k) {
    const unsigned holder = k % 8 / 2;
    const Fragments left = take<Fragments>(group * 4 + holder);
    for (unsigned i = 0; i < 4; ++i) {
      const Fragments right = take<Fragments>((pair * 2 + i % 2) * 4 + holder);
      d[i] +=
          as_float(left.a[i / 2 + k / 8 * 2], k % 2, T{}) * as_float(right.b[k / 8], k % 2, T{});
    }
  }
}

}  // namespace emulator
