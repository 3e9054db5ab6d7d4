// Small helpers between torch tensors and the kernels' raw pointers.
#pragma once

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "../checks.h"
#include "kernels.h"
#include "parallel.h"

namespace splinecnn::cpu {

template <typename T>
constexpr ScalarType dtype() {
  if constexpr (std::is_same_v<T, float>) return ScalarType::Float;
  if constexpr (std::is_same_v<T, double>) return ScalarType::Double;
  if constexpr (std::is_same_v<T, int32_t>) return ScalarType::Int;
  return ScalarType::Long;
}

constexpr uintptr_t LARGE = uintptr_t(1) << 21;  // bytes of a large page

// Memory that is about to be written for the first time comes in large pages where Linux has them:
// at a million edges getting it in those of 4 kB takes a seventh of the whole convolution.
inline void ask_for_large_pages([[maybe_unused]] void* begin, [[maybe_unused]] int64_t bytes) {
#ifdef MADV_HUGEPAGE
  const uintptr_t at = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t from = (at + LARGE - 1) / LARGE * LARGE, to = (at + bytes) / LARGE * LARGE;
  madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);  // a wish, no more
#endif
}

// An uninitialised tensor, without the detour through the dispatcher that torch::stable::empty
// makes: a small graph's plan has eight of them.
template <typename T>
Tensor make(std::initializer_list<int64_t> sizes) {
  constexpr size_t MOST = 4;
  int64_t strides[MOST], stride = 1;
  for (size_t d = sizes.size(); d-- > 0; stride *= sizes.begin()[d]) strides[d] = stride;
  AtenTensorHandle made;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(int64_t(sizes.size()), sizes.begin(),
                                                         strides, int32_t(dtype<T>()),
                                                         aoti_torch_device_type_cpu(), 0, &made));
  const Tensor t(made);
  const int64_t bytes = stride * int64_t(sizeof(T));
  if (bytes >= int64_t(8 * LARGE)) ask_for_large_pages(t.mutable_data_ptr(), bytes);
  return t;
}

inline Tensor flat(const Tensor& t) { return t.is_contiguous() ? t : torch::stable::contiguous(t); }

inline std::optional<Tensor> flat(const std::optional<Tensor>& t) {
  return t ? std::optional<Tensor>(flat(*t)) : std::nullopt;
}

template <typename T>
const T* data(const Tensor& t) {
  return static_cast<const T*>(t.const_data_ptr());
}

template <typename T>
const T* data(const std::optional<Tensor>& t) {
  return t ? data<T>(*t) : nullptr;
}

template <typename T>
T* writable(const Tensor& t) {
  return static_cast<T*>(t.mutable_data_ptr());
}

// Calls f(T{}) for the floating dtype of a checked tensor.
template <typename F>
auto with_dtype(const Tensor& t, const F& f) {
  return t.scalar_type() == ScalarType::Double ? f(double{}) : f(float{});
}

inline int64_t tile_size(int64_t nodes, int64_t tiles) {
  return tiles ? (nodes + tiles - 1) / tiles : 0;
}

// The plan's numbers, after every index in it was found to be in range: a plan may come from
// anywhere, and a bad one must raise and not crash.
template <typename T>
PlanView<T> view(const PlanTensors& plan, int64_t nodes, int64_t sources, int64_t num_weights) {
  PlanView<T> v{data<T>(plan.coef),
                data<int32_t>(plan.src),
                data<int32_t>(plan.row_ptr),
                data<int32_t>(plan.row_node),
                data<int32_t>(plan.group_ptr),
                data<int32_t>(plan.group_weight),
                data<int32_t>(plan.tile_ptr),
                plan.tiles(),
                nodes,
                tile_size(nodes, plan.tiles())};
  const int64_t Q = plan.Q(), R = plan.R(), G = plan.G();
  SPLINECNN_REQUIRE(v.tiles > 0 || nodes == 0, "tile_ptr must have at least one tile, got none");
  SPLINECNN_REQUIRE(v.row_ptr[0] == 0 && v.row_ptr[R] == Q, "row_ptr must run from 0 to ", Q,
                    ", got ", v.row_ptr[0], " to ", v.row_ptr[R]);
  SPLINECNN_REQUIRE(v.group_ptr[0] == 0 && v.group_ptr[G] == R, "group_ptr must run from 0 to ", R,
                    ", got ", v.group_ptr[0], " to ", v.group_ptr[G]);
  SPLINECNN_REQUIRE(v.tile_ptr[0] == 0 && v.tile_ptr[v.tiles] == G, "tile_ptr must run from 0 to ",
                    G, ", got ", v.tile_ptr[0], " to ", v.tile_ptr[v.tiles]);

  const auto out_of_order = [](const int32_t* ptr, int64_t from, int64_t to) {
    bool bad = false;
    for (int64_t i = from; i < to; ++i) bad |= ptr[i] > ptr[i + 1];
    return bad;
  };
  const auto out_of_range = [](const int32_t* index, int64_t from, int64_t to, int64_t bound) {
    const auto limit = uint32_t(bound);
    bool bad = false;
    for (int64_t i = from; i < to; ++i) bad |= uint32_t(index[i]) >= limit;
    return bad;
  };
  SPLINECNN_REQUIRE(!out_of_order(v.tile_ptr, 0, v.tiles), "tile_ptr must not decrease");
  SPLINECNN_REQUIRE(!out_of_order(v.group_ptr, 0, G), "group_ptr must not decrease");
  if (out_of_range(v.group_weight, 0, G, num_weights)) {
    const auto [least, largest] = std::minmax_element(v.group_weight, v.group_weight + G);
    SPLINECNN_REQUIRE(*least >= 0, "group_weight must lie in [0, ", num_weights, ")");
    fail_weights(*largest, num_weights);
  }
  FirstPlace row_ptr, row_node, src;
  for_each(v.tiles, [&](int64_t t) {
    const int64_t first = v.tile_ptr[t], last = v.tile_ptr[t + 1];
    const int64_t r0 = v.group_ptr[first], r1 = v.group_ptr[last];
    if (out_of_order(v.row_ptr, r0, r1)) return row_ptr.note(t);
    // rows of a group must be distinct nodes of its own tile, or threads would disturb each other
    const int64_t begin = t * v.tile_nodes, end = std::min(begin + v.tile_nodes, nodes);
    bool bad = false;
    for (int64_t g = first; g < last; ++g) {
      const int64_t a = v.group_ptr[g], b = v.group_ptr[g + 1];
      for (int64_t r = a + 1; r < b; ++r) bad |= v.row_node[r - 1] >= v.row_node[r];
      if (a < b) bad |= v.row_node[a] < begin || v.row_node[b - 1] >= end;
    }
    if (bad) return row_node.note(t);
    const int64_t q0 = v.row_ptr[r0], q1 = v.row_ptr[r1];
    if (q0 < 0 || q1 > Q) return row_ptr.note(t);
    if (out_of_range(v.src, q0, q1, sources)) src.note(t);
  });
  SPLINECNN_REQUIRE(!row_ptr.any(), "row_ptr must not decrease, but does in tile ", row_ptr.at());
  SPLINECNN_REQUIRE(!row_node.any(), "row_node must ascend in each group within its tile of ",
                    v.tile_nodes, " nodes, but does not in tile ", row_node.at());
  if (src.any())
    for (int64_t q = 0; q < Q; ++q)
      if (uint32_t(v.src[q]) >= uint32_t(sources)) fail_index("src", v.src[q], sources, q);
  return v;
}

}  // namespace splinecnn::cpu
