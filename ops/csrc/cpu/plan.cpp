// The plan: every (edge, active weight) sorted by (tile, weight, node), and the same reversed.
#include <torch/csrc/stable/library.h>

#include <memory>
#include <numeric>
#include <tuple>
#include <vector>

#include "expand.h"

namespace splinecnn::cpu {
namespace {

using Plan = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// Tiles are as large as the cache likes, but at least a few for every thread.
int64_t tile_count(int64_t nodes, int64_t K) {
  constexpr int64_t LEAST = 256, MOST = 1024;
  const int64_t threads = torch::stable::get_num_threads();
  const int64_t size = std::clamp((nodes + 4 * threads - 1) / (4 * threads), LEAST, MOST);
  // every tile counts every weight, so huge kernels get fewer tiles
  return std::min((nodes + size - 1) / size, std::max<int64_t>(1, (int64_t(1) << 22) / K));
}

// Units by node: a counting sort, stable. Units that come by node already stay as they are.
class ByNode {
 public:
  template <typename NodeOf>
  ByNode(int64_t nodes, int64_t units, const NodeOf& node_of) : ptr_(nodes + 2) {
    int64_t steps = 0;  // negative once a step goes down
    for (int64_t u = 1; u < units; ++u) steps |= int64_t(node_of(u)) - int64_t(node_of(u - 1));
    if (steps >= 0) {
      for (int64_t u = 0; u < units; ++u) ptr_[node_of(u) + 1] = int32_t(u + 1);
      for (int64_t i = 0; i < nodes; ++i) ptr_[i + 1] = std::max(ptr_[i], ptr_[i + 1]);
      return;
    }
    unit_.reset(new int32_t[units]);
    for (int64_t u = 0; u < units; ++u) ++ptr_[node_of(u) + 2];
    std::partial_sum(ptr_.begin(), ptr_.end(), ptr_.begin());
    for (int64_t u = 0; u < units; ++u) unit_[ptr_[node_of(u) + 1]++] = int32_t(u);
  }

  const int32_t* ptr() const { return ptr_.data(); }   // [nodes + 1]
  const int32_t* unit() const { return unit_.get(); }  // null: the units themselves

 private:
  std::vector<int32_t> ptr_;
  std::unique_ptr<int32_t[]> unit_;
};

// Calls f with the number of entries per unit, as a constant where it pays.
template <typename F>
void with_entries(int64_t S, const F& f) {
  if (S == 1) return f(std::integral_constant<int64_t, 1>());
  if (S == 4) return f(std::integral_constant<int64_t, 4>());
  if (S == 8) return f(std::integral_constant<int64_t, 8>());
  f(S);
}

// Calls f(b, s, weight) for every entry of a block that is not dropped.
template <typename T, typename Size, typename F>
inline void each_entry(const Block<T>& block, Size S, const F& f) {
  const int32_t* const weight = block.weight.get();
  const int64_t lanes = block.lanes;
  if (block.dropped) {
    for (int64_t b = 0; b < block.count; ++b)
      for (int64_t s = 0; s < S; ++s)
        if (weight[s * lanes + b] >= 0) f(b, s, weight[s * lanes + b]);
  } else {
    for (int64_t b = 0; b < block.count; ++b)
      for (int64_t s = 0; s < S; ++s) f(b, s, weight[s * lanes + b]);
  }
}

// What a thread needs for one tile, kept for its next one: a tile's entries fit into its cache.
template <typename T>
struct Scratch {
  struct Entry {
    T coef;
    int32_t place;  // unit in the tile * S + s
  };
  std::vector<int32_t> node, src;  // of the tile's units
  std::vector<int32_t> next;       // where a weight's next entry goes
  std::vector<Entry> entry;        // by weight, then node

  static Scratch& of(int64_t units, int64_t weights, int64_t entries) {
    thread_local Scratch scratch;
    if (int64_t(scratch.entry.size()) > LARGE) scratch = {};
    if (int64_t(scratch.node.size()) < units) scratch.node.resize(units);
    if (int64_t(scratch.src.size()) < units) scratch.src.resize(units);
    if (int64_t(scratch.next.size()) < weights) scratch.next.resize(weights);
    if (int64_t(scratch.entry.size()) < entries) scratch.entry.resize(entries);
    return scratch;
  }

 private:
  static constexpr int64_t LARGE = int64_t(1) << 18;
};

// Sorts the entries of units into (tile, weight, node) order, in two passes over each tile: one
// that counts, one that writes. `fill(block)` makes the nodes, sources and entries of its units:
// making them twice is faster than keeping them. `prefetch(unit)` says what it will read.
template <typename T, typename Fill, typename Prefetch>
Plan arrange(int64_t nodes, int64_t S, int64_t K, const ByNode& by_node, const Fill& fill,
             const Prefetch& prefetch) {
  const int64_t tiles = tile_count(nodes, K), size = tile_size(nodes, tiles);
  const int32_t *const ptr = by_node.ptr(), *const unit = by_node.unit();
  const auto first_unit = [&](int64_t tile) { return ptr[std::min(nodes, tile * size)]; };
  const auto each_block = [&](int64_t tile, const auto& f) {
    const int64_t from = first_unit(tile), to = first_unit(tile + 1);
    Block<T> block(S);
    for (int64_t j = from; j < to; j += block.count) {
      block.count = std::min(to - j, block.lanes);
      for (int64_t b = 0; b < block.count; ++b) block.unit[b] = unit ? unit[j + b] : int32_t(j + b);
      if (unit)
        for (int64_t b = j + block.count; b < std::min(to, j + 2 * block.lanes); ++b)
          prefetch(unit[b]);
      fill(&block);
      f(block, j - from);
    }
  };
  // per weight of a tile: how many entries, and the last node seen (nodes come in order)
  struct Weight {
    int32_t entries = 0, node = -1;
  };
  struct Counts {
    int64_t entries = 0, rows = 0, groups = 0;
  };
  std::vector<Weight> weights(tiles * K);
  std::vector<Counts> start(tiles + 1);
  for_each(tiles, [&](int64_t t) {
    Weight* const of = weights.data() + t * K;
    Counts here;
    each_block(t, [&](const Block<T>& block, int64_t) {
      with_entries(S, [&](auto entries) {
        int64_t rows = 0;
        each_entry(block, entries, [&](int64_t b, int64_t, int32_t p) {
          const Weight seen = of[p];
          rows += seen.node != block.node[b];
          of[p] = {seen.entries + 1, block.node[b]};
        });
        here.rows += rows;
      });
    });
    for (int64_t p = 0; p < K; ++p) {
      here.entries += of[p].entries;
      here.groups += of[p].entries > 0;
    }
    start[t + 1] = here;
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
  const auto write = [&](int64_t t, auto entries) {
    const Weight* const of = weights.data() + t * K;
    const auto [first, first_row, first_group] = start[t];
    const int64_t from = first_unit(t);
    Scratch<T>& scratch = Scratch<T>::of(first_unit(t + 1) - from, K, start[t + 1].entries - first);
    int32_t *const node = scratch.node.data(), *const source = scratch.src.data();
    int32_t* const next = scratch.next.data();
    auto* const sorted = scratch.entry.data();
    for (int64_t p = 0, q = 0; p < K; q += of[p++].entries) next[p] = int32_t(q);
    each_block(t, [&](const Block<T>& block, int64_t at) {
      std::copy_n(block.node, block.count, node + at);
      std::copy_n(block.src, block.count, source + at);
      each_entry(block, entries, [&](int64_t b, int64_t s, int32_t p) {
        sorted[next[p]++] = {block.value[s * block.lanes + b], int32_t((at + b) * entries + s)};
      });
    });
    int64_t q = 0, r = first_row, g = first_group;
    for (int64_t p = 0; p < K; ++p) {
      const int64_t last = q + of[p].entries;
      if (q == last) continue;
      group_ptr_at[g] = int32_t(r);
      group_weight_at[g++] = int32_t(p);
      for (int32_t before = node[sorted[q].place / entries]; q < last; ++q) {
        const int64_t b = sorted[q].place / entries, s = sorted[q].place % entries;
        coef_at[first + q] = sorted[q].coef;
        src_at[first + q] = source[b];
        pair_at[first + q] = int32_t((unit ? unit[from + b] : from + b) * entries + s);
        // a row ends where the node changes; written every time, there is nothing to guess
        r += node[b] != before;
        before = node[b];
        row_node_at[r] = before;
        row_ptr_at[r + 1] = int32_t(first + q + 1);
      }
      ++r;
    }
  };
  for_each(tiles, [&](int64_t t) { with_entries(S, [&](auto entries) { write(t, entries); }); });
  row_ptr_at[0] = 0;
  group_ptr_at[G] = int32_t(R);
  for (int64_t t = 0; t <= tiles; ++t) writable<int32_t>(tile_ptr)[t] = int32_t(start[t].groups);
  return {coef, src, pair, row_ptr, row_node, group_ptr, group_weight, tile_ptr};
}

void check_nodes(const int64_t* node, int64_t E, int64_t bound, int64_t row) {
  constexpr int64_t GRAIN = 1 << 16;
  FirstPlace bad;
  in_ranges(E, GRAIN, [&](int64_t begin, int64_t end) {
    uint64_t signs = 0;  // the highest bit is set by a node below 0 or not below the bound
    for (int64_t e = begin; e < end; ++e)
      signs |= uint64_t(node[e]) | (uint64_t(bound) - 1 - uint64_t(node[e]));
    if (!(signs >> 63)) return;
    for (int64_t e = begin; e < end; ++e)
      if (uint64_t(node[e]) >= uint64_t(bound)) return bad.note(e);
  });
  if (bad.any()) fail_edge(node[bad.at()], bound, row, bad.at());
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
    const auto fill = [&](Block<T>* block) {
      for (int64_t b = 0; b < block->count; ++b) {
        const int64_t e = block->unit[b], node = target[e];
        block->node[b] = int32_t(node);
        block->src[b] = int32_t(source[e]);
        block->divisor[b] = T(by_node.ptr()[node + 1] - by_node.ptr()[node]);
      }
      expand(spline, coordinates, keep_zeros, mean, block, &outside);
    };
    Plan made = arrange<T>(num_nodes, S, spline.K, by_node, fill, [&](int64_t e) {
      __builtin_prefetch(coordinates + e * spline.D);
      __builtin_prefetch(source + e);
      __builtin_prefetch(target + e);
    });
    report(outside, coordinates, spline.D);
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
    const auto fill = [&](Block<T>* block) {
      for (int64_t b = 0; b < block->count; ++b) {
        const int64_t q = block->unit[b];
        block->node[b] = old.src[q];
        block->src[b] = target[q];
        block->value[b] = old.coef[q];
        block->weight[b] = weight[q];
      }
    };
    return arrange<T>(num_sources, 1, K, by_node, fill, [&](int64_t q) {
      __builtin_prefetch(old.src + q);
      __builtin_prefetch(old.coef + q);
      __builtin_prefetch(weight.data() + q);
      __builtin_prefetch(target.data() + q);
    });
  });
}

}  // namespace
}  // namespace splinecnn::cpu

STABLE_TORCH_LIBRARY_IMPL(splinecnn, CPU, library) {
  library.impl("plan", TORCH_BOX(&splinecnn::cpu::plan));
  library.impl("transpose", TORCH_BOX(&splinecnn::cpu::transpose));
}
