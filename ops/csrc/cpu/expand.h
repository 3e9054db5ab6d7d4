// Blocks of edges with their basis values, as the plan and the basis want them.
#pragma once

#include <memory>
#include <type_traits>
#include <vector>

#include "dispatch.h"
#include "tensors.h"

namespace splinecnn::cpu {

using Sizes = std::vector<int64_t>;

// Some units (edges, or entries of another plan) that follow each other by node, and the S entries
// each of them makes: the s-th of the b-th is at [s * lanes + b].
template <typename T>
struct Block {
  explicit Block(int64_t S)
      : lanes(S <= 64 ? MAX_LANES : 16), value(new T[S * lanes]), weight(new int32_t[S * lanes]) {}
  const int64_t lanes;
  int64_t count = 0;
  bool dropped = false;  // some weights are -1: entries that are zero, and not wanted
  int32_t unit[MAX_LANES], node[MAX_LANES], src[MAX_LANES];
  T divisor[MAX_LANES];
  std::unique_ptr<T[]> value;
  std::unique_ptr<int32_t[]> weight;
};

template <typename T>
bool inside(const T* pseudo, int64_t D) {
  for (int64_t d = 0; d < D; ++d)
    if (!(pseudo[d] >= T(0) && pseudo[d] <= T(1))) return false;
  return true;
}

// The values of a block's edges, by their units. The first edge outside [0, 1] is noted.
template <typename T>
void expand(const Spline& spline, const T* pseudo, bool keep_zeros, bool divide, Block<T>* block,
            FirstPlace* outside) {
  const int64_t D = spline.D, lanes = block->lanes, count = block->count;
  T u[MAX_DIMS * MAX_LANES];
  const auto spread = [&](auto dims) {
    for (int64_t b = 0; b < count; ++b)
      for (int64_t d = 0; d < dims; ++d) u[d * lanes + b] = pseudo[block->unit[b] * dims + d];
  };
  if (D == 2)
    spread(std::integral_constant<int64_t, 2>());
  else if (D == 3)
    spread(std::integral_constant<int64_t, 3>());
  else
    spread(D);
  for (int64_t b = count; b < lanes; ++b) {  // lanes that are not wanted must do no harm
    for (int64_t d = 0; d < D; ++d) u[d * lanes + b] = u[d * lanes];
    block->divisor[b] = block->divisor[0];
  }
  const Expanded found = kernels<T>().expand({spline, lanes, u, divide ? block->divisor : nullptr,
                                              keep_zeros, block->value.get(), block->weight.get()});
  block->dropped = found.dropped;
  if (found.outside)
    for (int64_t b = 0; b < count; ++b)
      if (!inside(pseudo + block->unit[b] * D, D)) outside->note(block->unit[b]);
}

// Raises if some edge was outside.
template <typename T>
void report(const FirstPlace& outside, const T* pseudo, int64_t D) {
  if (!outside.any()) return;
  const T* const u = pseudo + outside.at() * D;
  for (int64_t d = 0; d < D; ++d)
    if (!inside(u + d, 1)) fail_pseudo(u[d], outside.at(), d);
}

}  // namespace splinecnn::cpu
