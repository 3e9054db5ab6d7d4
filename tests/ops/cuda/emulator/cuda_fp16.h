// Stands in for CUDA's header of this name: IEEE half precision, rounded to nearest even.
#pragma once

#include "cuda_runtime.h"

struct __half {
  uint16_t bits;
};

inline float __half2float(__half h) {
  const uint32_t sign = uint32_t(h.bits & 0x8000) << 16;
  const uint32_t exponent = h.bits >> 10 & 31, fraction = h.bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float tiny = std::ldexp(float(fraction), -24);
  return sign ? -tiny : tiny;
}

inline __half __float2half(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f), size = bits & 0x7fffffff;
  const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
  if (size > 0x7f800000) return {0x7fff};
  if (size >= 0x477ff000) return {uint16_t(sign | 0x7c00)};  // rounds to infinity
  if (size < 0x38800000)                                     // below the normal numbers
    return {uint16_t(sign | uint16_t(std::nearbyint(std::ldexp(std::bit_cast<float>(size), 24))))};
  uint32_t scaled = size - 0x38000000;
  scaled += 0xfff + (scaled >> 13 & 1);
  return {uint16_t(sign | scaled >> 13)};
}
