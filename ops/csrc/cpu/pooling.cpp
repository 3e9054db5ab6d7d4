// Graclus-style clustering, number for number what ops/pooling.py does in plain torch.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <vector>

#include "tensors.h"

namespace splinecnn::cpu {
namespace {

constexpr int WEIGHT_BITS = 17, INDEX_BITS = 22;
constexpr uint64_t PAIR_MASK = (uint64_t(1) << 2 * INDEX_BITS) - 1;
constexpr uint64_t MULTIPLIER = 0x9E3779B97F5;
constexpr int64_t LEAST_EDGES = 1 << 11;  // worth a thread

using Numbers = std::vector<int64_t>;

struct Edge {
  int32_t source, target;
  int64_t count;  // how many edges of the first graph it stands for
};

struct Candidate {
  int32_t source, target;
  int64_t key;
};

// Some graphs of the batch that follow each other, nodes numbered from the first one's; what they
// become replaces them. Blocks are worked on one by one, so that a small graph stays in the cache.
class Block {
 public:
  // The graphs of ptr [graphs + 1] and their edges, loops left out.
  void take(const int64_t* ptr, size_t graphs, const int64_t* source, const int64_t* target,
            int64_t count) {
    const int64_t first = ptr[0];
    ptr_.resize(graphs + 1);
    for (size_t g = 0; g <= graphs; ++g) ptr_[g] = ptr[g] - first;
    edges_.resize(size_t(count) + 1);
    size_t kept = 0;
    for (int64_t e = 0; e < count; ++e) {
      edges_[kept] = {int32_t(source[e] - first), int32_t(target[e] - first), 1};
      kept += source[e] != target[e];
    }
    edges_.resize(kept);
    members_.resize(size_t(nodes()));
    std::iota(members_.begin(), members_.end(), 0);
  }

  void pool(int64_t matchings, int64_t rounds, int64_t seed) {
    halve();
    for (int64_t width = 1; width < int64_t(1) << matchings; width *= 2) {
      rank(seed);
      match(rounds);
      join(width);
      coalesce();
    }
    if (halved_) double_again();
  }

  int64_t nodes() const { return ptr_.back(); }
  const Numbers& ptr() const { return ptr_; }
  const std::vector<Edge>& edges() const { return edges_; }
  const std::vector<int32_t>& members() const { return members_; }

 private:
  // Both directions of an edge have the same rank: where all edges have both, one will do. Such
  // edges, sorted by target and source, are met in the order of their reverses.
  void halve() {
    place_.assign(size_t(nodes()) + 1, 0);
    for (const Edge& edge : edges_) ++place_[edge.target + 1];
    for (size_t n = 1; n < place_.size(); ++n) place_[n] += place_[n - 1];
    halved_ = true;
    for (const Edge& edge : edges_) {
      const size_t at = size_t(place_[edge.source]++);
      halved_ = at < edges_.size() && edges_[at].source == edge.target &&
                edges_[at].target == edge.source;
      if (!halved_) return;
    }
    size_t kept = 0;
    for (const Edge edge : edges_) {
      edges_[kept] = edge;
      kept += edge.source < edge.target;
    }
    edges_.resize(kept);
  }

  void double_again() {
    const size_t count = edges_.size();
    edges_.resize(2 * count);
    for (size_t e = 0; e < count; ++e)
      edges_[count + e] = {edges_[e].target, edges_[e].source, edges_[e].count};
    order(edges_, &Edge::source, by_source_);
    order(by_source_, &Edge::target, edges_);
  }

  // The edges with their rank: the normalised cut first, then a hash of the two nodes' numbers.
  void rank(int64_t seed) {
    degree_.assign(size_t(nodes()), 0.0);
    start_.resize(size_t(nodes()));
    for (size_t g = 0; g + 1 < ptr_.size(); ++g)
      std::fill(start_.begin() + ptr_[g], start_.begin() + ptr_[g + 1], int32_t(ptr_[g]));
    const double ways = halved_ ? 2 : 1;
    for (const Edge& edge : edges_) {
      degree_[edge.source] += ways * double(edge.count);
      degree_[edge.target] += ways * double(edge.count);
    }
    const uint64_t multiplier = (MULTIPLIER * (2 * uint64_t(seed) + 1)) & PAIR_MASK;
    candidates_.resize(edges_.size());
    for (size_t e = 0; e < edges_.size(); ++e) {
      const Edge edge = edges_[e];
      const double weight = double(edge.count);
      const double cut = weight / degree_[edge.source] + weight / degree_[edge.target];
      const int64_t step =  // nothing is negative, so that cutting off is rounding down
          std::min(int64_t(cut * (1 << WEIGHT_BITS)), int64_t(2) << WEIGHT_BITS);
      const int32_t a = edge.source - start_[edge.source], b = edge.target - start_[edge.target];
      const uint64_t pair = (uint64_t(std::min(a, b)) << INDEX_BITS) + uint64_t(std::max(a, b));
      const int64_t key = (step << 2 * INDEX_BITS) + int64_t((pair * multiplier) & PAIR_MASK);
      candidates_[e] = {edge.source, edge.target, key};
    }
  }

  // The partner of every node, or itself: in each round the edges that are best at both ends.
  void match(int64_t rounds) {
    partner_.resize(size_t(nodes()));
    std::iota(partner_.begin(), partner_.end(), 0);
    for (int64_t round = 0; round < rounds && !candidates_.empty(); ++round) {
      best_.assign(size_t(nodes()), -1);
      for (const Candidate& edge : candidates_) {
        best_[edge.source] = std::max(best_[edge.source], edge.key);
        best_[edge.target] = std::max(best_[edge.target], edge.key);
      }
      for (const Candidate& edge : candidates_)
        if (edge.key == best_[edge.source] && edge.key == best_[edge.target]) {
          partner_[edge.source] = edge.target;
          partner_[edge.target] = edge.source;
        }
      size_t kept = 0;
      for (const Candidate edge : candidates_) {
        candidates_[kept] = edge;  // written in any case: which are free cannot be guessed
        kept +=
            int(partner_[edge.source] == edge.source) & int(partner_[edge.target] == edge.target);
      }
      candidates_.resize(kept);
    }
  }

  // Partners become one node, named by the first of them.
  void join(int64_t width) {
    const int64_t N = nodes();
    cluster_.resize(size_t(N));
    place_.resize(size_t(N) + 1);
    std::vector<int32_t> joined;
    joined.reserve(2 * members_.size());
    int32_t clusters = 0;
    for (int64_t n = 0; n < N; ++n) {
      place_[n] = clusters;
      const int32_t partner = partner_[n];
      if (partner < n) {
        cluster_[n] = cluster_[partner];
        continue;
      }
      cluster_[n] = clusters++;
      for (int64_t m : {n, int64_t(partner)})
        joined.insert(joined.end(), members_.begin() + m * width,
                      members_.begin() + (m + 1) * width);
    }
    place_[N] = clusters;
    for (int64_t& start : ptr_) start = place_[start];
    members_.swap(joined);
  }

  // Edges between different clusters, each once with its count, sorted by target and source.
  void coalesce() {
    size_t kept = 0;
    for (const Edge edge : edges_) {
      const int32_t source = cluster_[edge.source], target = cluster_[edge.target];
      edges_[kept] = {source, target, edge.count};
      if (halved_ && source > target) std::swap(edges_[kept].source, edges_[kept].target);
      kept += edges_[kept].source != edges_[kept].target;
    }
    edges_.resize(kept);
    order(edges_, &Edge::source, by_source_);
    order(by_source_, &Edge::target, edges_);
    size_t last = 0;
    for (size_t e = 1; e < edges_.size(); ++e)
      if (edges_[e].source == edges_[last].source && edges_[e].target == edges_[last].target)
        edges_[last].count += edges_[e].count;
      else
        edges_[++last] = edges_[e];
    if (!edges_.empty()) edges_.resize(last + 1);
  }

  // By one end, keeping the order of those that share it: two turns of this sort by both ends.
  void order(const std::vector<Edge>& edges, int32_t Edge::* end, std::vector<Edge>& out) {
    place_.assign(size_t(nodes()) + 1, 0);
    for (const Edge& edge : edges) ++place_[edge.*end + 1];
    for (size_t n = 1; n < place_.size(); ++n) place_[n] += place_[n - 1];
    out.resize(edges.size());
    for (const Edge& edge : edges) out[place_[edge.*end]++] = edge;
  }

  Numbers ptr_;
  std::vector<Edge> edges_, by_source_;
  std::vector<int32_t> members_, start_, partner_, cluster_, place_;
  std::vector<Candidate> candidates_;
  std::vector<double> degree_;
  Numbers best_;
  bool halved_ = false;  // edges_ holds one direction of each, from the lower node
};

Numbers read_ptr(const Tensor& ptr) {
  const int64_t* data = ptr.const_data_ptr<int64_t>();
  Numbers out(data, data + ptr.size(0));
  SPLINECNN_REQUIRE(!out.empty() && out[0] == 0, "ptr must start with 0");
  for (size_t g = 1; g < out.size(); ++g)
    SPLINECNN_REQUIRE(out[g] >= out[g - 1] && out[g] - out[g - 1] <= int64_t(1) << INDEX_BITS,
                      "ptr must rise by at most 2^22, got ", out[g - 1], " and ", out[g], " at ",
                      g);
  SPLINECNN_REQUIRE(out.back() <= INT32_MAX, "ptr must end below 2^31, got ", out.back());
  return out;
}

// Where the edges of each graph begin, closed by their number; empty if graphs are mixed, or if an
// edge belongs to none.
Numbers edge_starts(const int64_t* source, const int64_t* target, int64_t E, const Numbers& ptr) {
  Numbers starts(ptr.size(), E);
  int64_t e = 0;
  for (size_t g = 0; g + 1 < ptr.size(); ++g) {
    starts[g] = e;
    const uint64_t first = uint64_t(ptr[g]), size = uint64_t(ptr[g + 1]) - first;
    bool mixed = false;
    for (; e < E && uint64_t(target[e]) - first < size; ++e)
      mixed |= uint64_t(source[e]) - first >= size;
    if (mixed) return {};
  }
  return e == E ? starts : Numbers{};
}

// What some graphs that follow each other become, clusters numbered from the first one's.
struct Pooled {
  Numbers members, sources, targets, starts{0};

  // The clusters of a block whose first node is `node`.
  void add(const Block& block, int64_t node) {
    const int64_t clusters = starts.back();
    for (const int32_t member : block.members()) members.push_back(node + member);
    for (const Edge& edge : block.edges()) {
      sources.push_back(clusters + edge.source);
      targets.push_back(clusters + edge.target);
    }
    for (size_t g = 1; g < block.ptr().size(); ++g) starts.push_back(clusters + block.ptr()[g]);
  }
};

// The members [C, width], edges [2, E] and starts [graphs + 1] of all parts, one after the other.
std::tuple<Tensor, Tensor, Tensor> put_together(const std::vector<Pooled>& parts, int64_t width) {
  int64_t clusters = 0, kept = 0, graphs = 0;
  for (const Pooled& part : parts) {
    clusters += part.starts.back();
    kept += int64_t(part.sources.size());
    graphs += int64_t(part.starts.size()) - 1;
  }
  const Tensor members = make<int64_t>({clusters, width}), edges = make<int64_t>({2, kept}),
               starts = make<int64_t>({graphs + 1});
  int64_t *member = writable<int64_t>(members), *start = writable<int64_t>(starts);
  int64_t *source = writable<int64_t>(edges), *target = source + kept;
  int64_t before = 0;
  const auto shift = [&](int64_t cluster) { return before + cluster; };
  *start++ = 0;
  for (const Pooled& part : parts) {
    member = std::copy(part.members.begin(), part.members.end(), member);
    source = std::transform(part.sources.begin(), part.sources.end(), source, shift);
    target = std::transform(part.targets.begin(), part.targets.end(), target, shift);
    start = std::transform(part.starts.begin() + 1, part.starts.end(), start, shift);
    before += part.starts.back();
  }
  return {members, edges, starts};
}

std::tuple<Tensor, Tensor, Tensor> pool(const Tensor& edge_index, const Tensor& graph_ptr,
                                        int64_t matchings, int64_t rounds, int64_t seed) {
  check_dtype(edge_index, "edge_index", ScalarType::Long);
  SPLINECNN_REQUIRE(edge_index.dim() == 2 && edge_index.size(0) == 2,
                    "edge_index must be [2, E], got ", shape_of(edge_index));
  check_ints(graph_ptr, "ptr", edge_index, ScalarType::Long);
  SPLINECNN_REQUIRE(1 <= matchings && matchings <= 8, "matchings must lie in [1, 8], got ",
                    matchings);
  const Numbers ptr = read_ptr(graph_ptr);
  const Tensor flat_edges = flat(edge_index);
  const int64_t E = edge_index.size(1), N = ptr.back();
  const int64_t *source = flat_edges.const_data_ptr<int64_t>(), *target = source + E;
  const size_t graphs = ptr.size() - 1;
  const Numbers edge_ptr = edge_starts(source, target, E, ptr);
  if (edge_ptr.empty())
    for (int row : {0, 1})
      for (int64_t e = 0; e < E; ++e)
        if (uint64_t(source[row * E + e]) >= uint64_t(N)) fail_edge(source[row * E + e], N, row, e);

  // graphs are shared among the threads in parts of about as many edges
  const int64_t most = std::min<int64_t>(torch::stable::get_num_threads(), 1 + E / LEAST_EDGES);
  const int64_t count = edge_ptr.empty() ? 1 : std::max<int64_t>(1, most);
  const auto first_graph = [&](int64_t part) {
    const auto at = std::lower_bound(edge_ptr.begin(), edge_ptr.end() - 1, E * part / count);
    return part == count ? graphs : size_t(part ? at - edge_ptr.begin() : 0);
  };
  std::vector<Pooled> parts(static_cast<size_t>(count));
  for_each(count, [&](int64_t part) {
    Block block;
    const auto pool_block = [&](size_t g, size_t graphs, int64_t from, int64_t to) {
      block.take(ptr.data() + g, graphs, source + from, target + from, to - from);
      block.pool(matchings, rounds, seed);
      parts[size_t(part)].add(block, ptr[g]);
    };
    if (edge_ptr.empty()) return pool_block(0, graphs, 0, E);
    const size_t last = first_graph(part + 1);
    for (size_t g = first_graph(part); g < last; ++g)
      pool_block(g, 1, edge_ptr[g], edge_ptr[g + 1]);
  });
  return put_together(parts, int64_t(1) << matchings);
}

}  // namespace
}  // namespace splinecnn::cpu

STABLE_TORCH_LIBRARY_IMPL(splinecnn, CPU, library) {
  library.impl("pool", TORCH_BOX(&splinecnn::cpu::pool));
}
