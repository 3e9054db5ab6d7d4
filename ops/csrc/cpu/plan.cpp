// Basis values, and the plan: every (edge, active weight) sorted by (tile, weight, node).
#include <torch/csrc/stable/library.h>

#include <memory>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "tensors.h"

namespace splinecnn::cpu {
namespace {

using Sizes = std::vector<int64_t>;
using Plan = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// All basis products and weight indices of one edge; D and DEGREE are constants where it pays.
template <typename T>
inline void expand_as(const Spline& spline, int D, int degree, const T* pseudo, T* value,
                      int32_t* index) {
  Position<T> at;
  place(spline, D, degree, pseudo, &at);
  value[0] = T(1);
  index[0] = 0;
  for (int d = 0, size = 1; d < D; ++d, size *= degree + 1)
    for (int i = degree; i >= 0; --i)
      for (int s = 0; s < size; ++s) {
        value[i * size + s] = at.value[d][i] * value[s];
        index[i * size + s] = at.index[d][i] + index[s];
      }
}

template <typename T>
void expand(const Spline& spline, const T* pseudo, T* value, int32_t* index) {
  if (spline.degree == 1 && spline.D == 2) return expand_as(spline, 2, 1, pseudo, value, index);
  if (spline.degree == 1 && spline.D == 3) return expand_as(spline, 3, 1, pseudo, value, index);
  expand_as(spline, spline.D, spline.degree, pseudo, value, index);
}

// The first coordinate outside [0, 1] of some edges, noted as e * D + d.
template <typename T>
bool inside(const T* pseudo, int64_t edge, int D, FirstPlace* outside) {
  for (int d = 0; d < D; ++d)
    if (!(pseudo[edge * D + d] >= T(0) && pseudo[edge * D + d] <= T(1))) {
      outside->note(edge * D + d);
      return false;
    }
  return true;
}

template <typename T>
void report(const FirstPlace& outside, const T* pseudo, int D) {
  if (outside.any()) fail_pseudo(pseudo[outside.at()], outside.at() / D, outside.at() % D);
}

constexpr int64_t EDGES_AT_ONCE = 1024;

std::tuple<Tensor, Tensor> basis(const Tensor& pseudo, const Sizes& kernel_size,
                                 const Sizes& is_open, int64_t degree) {
  const Spline spline = check_spline(pseudo, kernel_size, is_open, degree);
  const Tensor u = flat(pseudo);
  const int64_t E = u.size(0), S = spline.S;
  return with_dtype(u, [&](auto zero) {
    using T = decltype(zero);
    const Tensor value = make<T>({E, S}), index = make<int64_t>({E, S});
    FirstPlace outside;
    for_each((E + EDGES_AT_ONCE - 1) / EDGES_AT_ONCE, [&](int64_t part) {
      std::vector<int32_t> narrow(S);
      for (int64_t e = part * EDGES_AT_ONCE; e < std::min(E, (part + 1) * EDGES_AT_ONCE); ++e) {
        if (!inside(data<T>(u), e, spline.D, &outside)) return;
        expand(spline, data<T>(u) + e * spline.D, writable<T>(value) + e * S, narrow.data());
        std::copy(narrow.begin(), narrow.end(), writable<int64_t>(index) + e * S);
      }
    });
    report(outside, data<T>(u), spline.D);
    return std::make_tuple(value, index);
  });
}

Tensor basis_grad(const Tensor& grad, const Tensor& pseudo, const Sizes& kernel_size,
                  const Sizes& is_open, int64_t degree) {
  const Spline spline = check_spline(pseudo, kernel_size, is_open, degree);
  check_like(grad, "grad", pseudo, 2, "[E, S]");
  check_size(grad, "grad", 0, pseudo.size(0));
  check_size(grad, "grad", 1, spline.S);
  const Tensor u = flat(pseudo), g = flat(grad);
  const int64_t E = u.size(0), S = spline.S, D = spline.D;
  return with_dtype(u, [&](auto zero) {
    using T = decltype(zero);
    const Tensor out = make<T>({E, D});
    FirstPlace outside;
    for_each((E + EDGES_AT_ONCE - 1) / EDGES_AT_ONCE, [&](int64_t part) {
      for (int64_t e = part * EDGES_AT_ONCE; e < std::min(E, (part + 1) * EDGES_AT_ONCE); ++e) {
        if (!inside(data<T>(u), e, spline.D, &outside)) return;
        Position<T> at;
        place(spline, data<T>(u) + e * D, &at);
        for (int d = 0; d < D; ++d) {
          // the product rule: dimension d by its derivative, the others as they are
          T v, slope[MAX_DEGREE + 1], kept[MAX_DEGREE + 1];
          locate(spline, d, data<T>(u)[e * D + d], &v);
          bspline_grad(v, spline.degree, slope);
          for (int i = 0; i <= spline.degree; ++i) {
            kept[i] = at.value[d][i];
            at.value[d][i] = slope[i] * T(spline.intervals[d]);
          }
          T sum = T(0);
          int index;
          for (int s = 0; s < S; ++s) sum += data<T>(g)[e * S + s] * product(spline, at, s, &index);
          for (int i = 0; i <= spline.degree; ++i) at.value[d][i] = kept[i];
          writable<T>(out)[e * D + d] = sum;
        }
      }
    });
    report(outside, data<T>(u), spline.D);
    return out;
  });
}

// Tiles are as large as the cache likes, but at least a few for every thread.
int64_t tile_count(int64_t nodes, int64_t K) {
  constexpr int64_t LEAST = 256, MOST = 1024;
  const int64_t threads = torch::stable::get_num_threads();
  const int64_t size = std::clamp((nodes + 4 * threads - 1) / (4 * threads), LEAST, MOST);
  // every tile counts every weight, so huge kernels get fewer tiles
  return std::min((nodes + size - 1) / size, std::max<int64_t>(1, (int64_t(1) << 22) / K));
}

// Units (edges, or entries of another plan) by node: a counting sort, stable.
struct ByNode {
  std::vector<int32_t> ptr, unit;  // [nodes + 1], [units]

  template <typename NodeOf>
  ByNode(int64_t nodes, int64_t units, const NodeOf& node_of) : ptr(nodes + 2), unit(units) {
    for (int64_t u = 0; u < units; ++u) ++ptr[node_of(u) + 2];
    std::partial_sum(ptr.begin(), ptr.end(), ptr.begin());
    for (int64_t u = 0; u < units; ++u) unit[ptr[node_of(u) + 1]++] = int32_t(u);
  }
};

// What units add to their nodes: S entries of a weight and a coefficient each.
template <typename T>
struct Entries {
  std::unique_ptr<T[]> coef;
  std::unique_ptr<int32_t[]> weight;
  explicit Entries(int64_t count) : coef(new T[count]), weight(new int32_t[count]) {}
};

// Sorts entries that lie by node into (tile, weight, node) order, in two passes over each tile:
// one that counts, one that writes. `fill(j, node, coef, weight)` makes the S entries of the j-th
// unit by node; a small graph keeps them between the passes, a large one saves the memory.
template <typename T, typename Fill, typename SourceOf, typename Prefetch>
Plan arrange(int64_t nodes, int64_t S, int64_t K, bool keep_zeros, const ByNode& by_node,
             const Fill& fill, const SourceOf& source_of, const Prefetch& prefetch) {
  constexpr int64_t SMALL = int64_t(1) << 23, AHEAD = 16;
  const int64_t tiles = tile_count(nodes, K), size = tile_size(nodes, tiles);
  const int64_t total = int64_t(by_node.unit.size()) * S;
  const bool small = total <= SMALL;
  const Entries<T> all(small ? total : 0);
  struct Counts {
    int64_t entries = 0, rows = 0, groups = 0;
  };
  std::vector<Counts> start(tiles + 1);
  const auto each_entry = [&](int64_t tile, bool first, const auto& f) {
    const int64_t begin = tile * size, end = std::min(nodes, begin + size);
    if (begin >= end) return;
    const int64_t from = by_node.ptr[begin], to = by_node.ptr[end];
    const Entries<T> own(small ? 0 : (to - from) * S);
    T* const coef = small ? all.coef.get() + from * S : own.coef.get();
    int32_t* const weight = small ? all.weight.get() + from * S : own.weight.get();
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = by_node.ptr[i]; j < by_node.ptr[i + 1]; ++j) {
        const int64_t at = (j - from) * S;
        if (j + AHEAD < to) prefetch(by_node.unit[j + AHEAD]);
        if (first || !small) fill(j, i, coef + at, weight + at);
        for (int64_t s = 0; s < S; ++s)
          if (keep_zeros || coef[at + s] != T(0)) f(i, j, s, weight[at + s], coef[at + s]);
      }
  };
  // per weight of a tile: entries, rows, and the last node seen (nodes come in order)
  struct Weight {
    int32_t entries = 0, rows = 0, node = -1;
  };
  std::vector<std::vector<Weight>> weights(tiles);
  for_each(tiles, [&](int64_t t) {
    weights[t].resize(K);
    Weight* const of = weights[t].data();
    each_entry(t, true, [&](int64_t i, int64_t, int64_t, int32_t p, T) {
      Weight& w = of[p];
      ++w.entries;
      w.rows += w.node != i;
      w.node = int32_t(i);
    });
    for (const Weight& w : weights[t]) {
      start[t + 1].entries += w.entries;
      start[t + 1].rows += w.rows;
      start[t + 1].groups += w.rows > 0;
    }
  });
  for (int64_t t = 0; t < tiles; ++t) {
    start[t + 1].entries += start[t].entries;
    start[t + 1].rows += start[t].rows;
    start[t + 1].groups += start[t].groups;
  }

  const int64_t Q = start[tiles].entries, R = start[tiles].rows, G = start[tiles].groups;
  const Tensor coef = make<T>({Q}), src = make<int32_t>({Q}), pair = make<int32_t>({Q}),
               row_ptr = make<int32_t>({R + 1}), row_node = make<int32_t>({R}),
               group_ptr = make<int32_t>({G + 1}), group_weight = make<int32_t>({G}),
               tile_ptr = make<int32_t>({tiles + 1});
  T* const coef_at = writable<T>(coef);
  int32_t* const src_at = writable<int32_t>(src);
  int32_t* const pair_at = writable<int32_t>(pair);
  int32_t* const row_ptr_at = writable<int32_t>(row_ptr);
  int32_t* const row_node_at = writable<int32_t>(row_node);
  int32_t* const group_ptr_at = writable<int32_t>(group_ptr);
  int32_t* const group_weight_at = writable<int32_t>(group_weight);
  for_each(tiles, [&](int64_t t) {
    Weight* const of = weights[t].data();
    auto [q, r, g] = start[t];
    for (int64_t p = 0; p < K; ++p) {  // from sizes to places
      Weight& w = of[p];
      if (w.rows > 0) {
        group_ptr_at[g] = int32_t(r);
        group_weight_at[g++] = int32_t(p);
      }
      q += std::exchange(w.entries, int32_t(q));
      r += std::exchange(w.rows, int32_t(r));
      w.node = -1;
    }
    each_entry(t, false, [&](int64_t i, int64_t j, int64_t s, int32_t p, T value) {
      Weight& w = of[p];
      if (w.node != i) {
        w.node = int32_t(i);
        row_ptr_at[w.rows] = w.entries;
        row_node_at[w.rows++] = int32_t(i);
      }
      const int64_t unit = by_node.unit[j];
      coef_at[w.entries] = value;
      src_at[w.entries] = int32_t(source_of(unit));
      pair_at[w.entries++] = int32_t(unit * S + s);
    });
  });
  row_ptr_at[R] = int32_t(Q);
  group_ptr_at[G] = int32_t(R);
  for (int64_t t = 0; t <= tiles; ++t) writable<int32_t>(tile_ptr)[t] = int32_t(start[t].groups);
  return {coef, src, pair, row_ptr, row_node, group_ptr, group_weight, tile_ptr};
}

void check_nodes(const int64_t* node, int64_t E, int64_t bound, int64_t row) {
  bool bad = false;
  for (int64_t e = 0; e < E; ++e) bad |= uint64_t(node[e]) >= uint64_t(bound);
  if (!bad) return;
  for (int64_t e = 0; e < E; ++e)
    if (uint64_t(node[e]) >= uint64_t(bound)) fail_edge(node[e], bound, row, e);
}

Plan plan(const Tensor& edge_index, const Tensor& pseudo, const Sizes& kernel_size,
          const Sizes& is_open, int64_t degree, int64_t num_nodes, int64_t num_sources, bool mean,
          bool keep_zeros) {
  const Spline spline = check_spline(pseudo, kernel_size, is_open, degree);
  check_edges(edge_index, pseudo, num_nodes, num_sources);
  const Tensor edges = flat(edge_index), u = flat(pseudo);
  const int64_t E = u.size(0), S = spline.S;
  const int64_t *source = data<int64_t>(edges), *target = source + E;
  check_nodes(source, E, num_sources, 0);
  check_nodes(target, E, num_nodes, 1);
  return with_dtype(u, [&](auto zero) {
    using T = decltype(zero);
    const ByNode by_node(num_nodes, E, [&](int64_t e) { return target[e]; });
    const T* const coordinates = data<T>(u);
    FirstPlace outside;
    const auto fill = [&](int64_t j, int64_t node, T* value, int32_t* index) {
      const int64_t e = by_node.unit[j];
      if (!inside(coordinates, e, spline.D, &outside)) {
        std::fill_n(value, S, T(0));
        std::fill_n(index, S, 0);
        return;
      }
      expand(spline, coordinates + e * spline.D, value, index);
      if (mean) {
        const T count = T(by_node.ptr[node + 1] - by_node.ptr[node]);
        for (int64_t s = 0; s < S; ++s) value[s] /= count;
      }
    };
    Plan made = arrange<T>(
        num_nodes, S, spline.K, keep_zeros, by_node, fill, [&](int64_t e) { return source[e]; },
        [&](int64_t e) {
          __builtin_prefetch(coordinates + e * spline.D);
          __builtin_prefetch(source + e);
        });
    report(outside, data<T>(u), spline.D);
    return made;
  });
}

Plan transpose(const Tensor& coef, const Tensor& src, const Tensor& row_ptr, const Tensor& row_node,
               const Tensor& group_ptr, const Tensor& group_weight, const Tensor& tile_ptr,
               int64_t num_nodes, int64_t num_sources) {
  const PlanTensors given{coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr};
  check_floating(coef, "coef");
  check_plan(given, coef);
  return with_dtype(coef, [&](auto zero) {
    using T = decltype(zero);
    const PlanView<T> old = view<T>(given, num_nodes, num_sources, INT32_MAX);
    const int64_t Q = given.Q(), G = given.G();
    int64_t K = 1;
    std::vector<int32_t> target(Q), weight(Q);
    for (int64_t g = 0; g < G; ++g) K = std::max<int64_t>(K, int64_t(old.group_weight[g]) + 1);
    for_each(old.tiles, [&](int64_t t) {
      for (int64_t g = old.tile_ptr[t]; g < old.tile_ptr[t + 1]; ++g)
        for (int64_t r = old.group_ptr[g]; r < old.group_ptr[g + 1]; ++r)
          for (int64_t q = old.row_ptr[r]; q < old.row_ptr[r + 1]; ++q) {
            target[q] = old.row_node[r];
            weight[q] = old.group_weight[g];
          }
    });
    const ByNode by_node(num_sources, Q, [&](int64_t q) { return old.src[q]; });
    const auto fill = [&](int64_t j, int64_t, T* value, int32_t* index) {
      *value = old.coef[by_node.unit[j]];
      *index = weight[by_node.unit[j]];
    };
    return arrange<T>(
        num_sources, 1, K, true, by_node, fill, [&](int64_t q) { return target[q]; },
        [&](int64_t q) {
          __builtin_prefetch(old.coef + q);
          __builtin_prefetch(weight.data() + q);
          __builtin_prefetch(target.data() + q);
        });
  });
}

}  // namespace
}  // namespace splinecnn::cpu

STABLE_TORCH_LIBRARY_IMPL(splinecnn, CPU, library) {
  library.impl("basis", TORCH_BOX(&splinecnn::cpu::basis));
  library.impl("basis_grad", TORCH_BOX(&splinecnn::cpu::basis_grad));
  library.impl("plan", TORCH_BOX(&splinecnn::cpu::plan));
  library.impl("transpose", TORCH_BOX(&splinecnn::cpu::transpose));
}
