// Which SIMD level this processor runs.
#pragma once

#include "kernels.h"

namespace splinecnn::cpu {

const Level& level();  // the best this processor has, or SPLINECNN_SIMD if that is lower

template <typename T>
const Kernels<T>& kernels();
template <>
inline const Kernels<float>& kernels() {
  return level().float32;
}
template <>
inline const Kernels<double>& kernels() {
  return level().float64;
}

}  // namespace splinecnn::cpu
