// Graclus-style clustering, number for number what ops/pooling.py does in plain torch.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "../checks.h"

namespace splinecnn::cpu {
namespace {

constexpr int WEIGHT_BITS = 17, INDEX_BITS = 22;
constexpr uint64_t PAIR_MASK = (uint64_t(1) << 2 * INDEX_BITS) - 1;
constexpr uint64_t MULTIPLIER = 0x9E3779B97F5;

using Numbers = std::vector<int64_t>;

struct Edge {
  int64_t source, target, count;  // how many edges of the first graph it stands for
};

struct Candidate {
  int64_t source, target, key;
};

// The edges with their rank: the normalised cut first, then a hash of the two nodes' numbers.
std::vector<Candidate> rank(const std::vector<Edge>& edges, const Numbers& ptr, int64_t seed) {
  const int64_t N = ptr.back();
  std::vector<double> degree(N, 0.0);
  Numbers start(N);
  for (size_t g = 0; g + 1 < ptr.size(); ++g)
    std::fill(start.begin() + ptr[g], start.begin() + ptr[g + 1], ptr[g]);
  for (const Edge& edge : edges) {
    degree[edge.source] += double(edge.count);
    degree[edge.target] += double(edge.count);
  }
  const uint64_t multiplier = (MULTIPLIER * (2 * uint64_t(seed) + 1)) & PAIR_MASK;
  std::vector<Candidate> ranked;
  ranked.reserve(edges.size());
  for (const Edge& edge : edges) {
    const double weight = double(edge.count);
    const double cut = weight / degree[edge.source] + weight / degree[edge.target];
    const int64_t step =
        std::min(int64_t(std::floor(cut * (1 << WEIGHT_BITS))), int64_t(2) << WEIGHT_BITS);
    const int64_t a = edge.source - start[edge.source], b = edge.target - start[edge.target];
    const uint64_t pair = (uint64_t(std::min(a, b)) << INDEX_BITS) + uint64_t(std::max(a, b));
    const int64_t key = (step << 2 * INDEX_BITS) + int64_t((pair * multiplier) & PAIR_MASK);
    ranked.push_back({edge.source, edge.target, key});
  }
  return ranked;
}

// The partner of every node, or itself: in each round the edges that are best at both ends.
Numbers match(std::vector<Candidate> edges, int64_t N, int64_t rounds) {
  Numbers partner(N), best(N);
  for (int64_t n = 0; n < N; ++n) partner[n] = n;
  for (int64_t round = 0; round < rounds && !edges.empty(); ++round) {
    std::fill(best.begin(), best.end(), int64_t(-1));
    for (const Candidate& edge : edges) {
      best[edge.source] = std::max(best[edge.source], edge.key);
      best[edge.target] = std::max(best[edge.target], edge.key);
    }
    for (const Candidate& edge : edges)
      if (edge.key == best[edge.source] && edge.key == best[edge.target]) {
        partner[edge.source] = edge.target;
        partner[edge.target] = edge.source;
      }
    const auto taken = [&](const Candidate& edge) {
      return partner[edge.source] != edge.source || partner[edge.target] != edge.target;
    };
    edges.erase(std::remove_if(edges.begin(), edges.end(), taken), edges.end());
  }
  return partner;
}

// By one end, keeping the order of those that share it: two turns of this sort edges by both ends,
// in time that does not depend on how many graphs lie side by side.
void order(const std::vector<Edge>& edges, int64_t Edge::* end, Numbers& place,
           std::vector<Edge>& out) {
  std::fill(place.begin(), place.end(), int64_t(0));
  for (const Edge& edge : edges) ++place[edge.*end + 1];
  for (size_t n = 1; n < place.size(); ++n) place[n] += place[n - 1];
  out.resize(edges.size());
  for (const Edge& edge : edges) out[place[edge.*end]++] = edge;
}

// Edges between different clusters, each once with its count, sorted by target and source.
std::vector<Edge> coalesce(std::vector<Edge> edges, const Numbers& cluster) {
  size_t kept = 0;
  for (const Edge& edge : edges) {
    const int64_t source = cluster[edge.source], target = cluster[edge.target];
    if (source != target) edges[kept++] = {source, target, edge.count};
  }
  edges.resize(kept);
  Numbers place(cluster.size() + 2);
  std::vector<Edge> by_source;
  order(edges, &Edge::source, place, by_source);
  order(by_source, &Edge::target, place, edges);
  size_t last = 0;
  for (size_t e = 1; e < edges.size(); ++e)
    if (edges[e].source == edges[last].source && edges[e].target == edges[last].target)
      edges[last].count += edges[e].count;
    else
      edges[++last] = edges[e];
  if (!edges.empty()) edges.resize(last + 1);
  return edges;
}

Numbers read_ptr(const Tensor& ptr) {
  const int64_t* data = ptr.const_data_ptr<int64_t>();
  Numbers out(data, data + ptr.size(0));
  SPLINECNN_REQUIRE(!out.empty() && out[0] == 0, "ptr must start with 0");
  for (size_t g = 1; g < out.size(); ++g)
    SPLINECNN_REQUIRE(out[g] >= out[g - 1] && out[g] - out[g - 1] <= int64_t(1) << INDEX_BITS,
                      "ptr must rise by at most 2^22, got ", out[g - 1], " and ", out[g], " at ",
                      g);
  return out;
}

std::vector<Edge> read_edges(const Tensor& edge_index, int64_t N) {
  const Tensor contiguous_edges = torch::stable::contiguous(edge_index);
  const int64_t* data = contiguous_edges.const_data_ptr<int64_t>();
  const int64_t E = edge_index.size(1);
  std::vector<Edge> edges;
  edges.reserve(E);
  for (int64_t e = 0; e < E; ++e) {
    for (int row : {0, 1})
      if (data[row * E + e] < 0 || data[row * E + e] >= N) fail_edge(data[row * E + e], N, row, e);
    if (data[e] != data[E + e]) edges.push_back({data[e], data[E + e], 1});
  }
  return edges;
}

std::tuple<Tensor, Tensor, Tensor> pool(const Tensor& edge_index, const Tensor& graph_ptr,
                                        int64_t matchings, int64_t rounds, int64_t seed) {
  check_dtype(edge_index, "edge_index", ScalarType::Long);
  SPLINECNN_REQUIRE(edge_index.dim() == 2 && edge_index.size(0) == 2,
                    "edge_index must be [2, E], got ", shape_of(edge_index));
  check_ints(graph_ptr, "ptr", edge_index, ScalarType::Long);
  SPLINECNN_REQUIRE(1 <= matchings && matchings <= 8, "matchings must lie in [1, 8], got ",
                    matchings);
  Numbers ptr = read_ptr(graph_ptr);
  std::vector<Edge> edges = read_edges(edge_index, ptr.back());
  Numbers members(ptr.back());
  for (int64_t n = 0; n < ptr.back(); ++n) members[n] = n;
  for (int64_t width = 1; width < int64_t(1) << matchings; width *= 2) {
    const int64_t N = ptr.back();
    const Numbers partner = match(rank(edges, ptr, seed), N, rounds);
    Numbers cluster(N), joined, starts(N + 1);
    joined.reserve(2 * members.size());
    for (int64_t n = 0, clusters = 0; n < N; ++n) {
      starts[n] = clusters;
      cluster[n] = partner[n] >= n ? clusters++ : cluster[partner[n]];
      starts[n + 1] = clusters;
      if (partner[n] < n) continue;
      for (int64_t m : {n, partner[n]})
        joined.insert(joined.end(), members.begin() + m * width, members.begin() + (m + 1) * width);
    }
    for (int64_t& start : ptr) start = starts[start];
    members = std::move(joined);
    edges = coalesce(std::move(edges), cluster);
  }
  const int64_t width = int64_t(1) << matchings, E = int64_t(edges.size());
  Tensor out_members = torch::stable::new_empty(edge_index, {ptr.back(), width});
  Tensor out_edges = torch::stable::new_empty(edge_index, {2, E});
  Tensor out_ptr = torch::stable::new_empty(edge_index, {int64_t(ptr.size())});
  std::copy(members.begin(), members.end(), out_members.mutable_data_ptr<int64_t>());
  std::copy(ptr.begin(), ptr.end(), out_ptr.mutable_data_ptr<int64_t>());
  int64_t* out = out_edges.mutable_data_ptr<int64_t>();
  for (int64_t e = 0; e < E; ++e) {
    out[e] = edges[e].source;
    out[E + e] = edges[e].target;
  }
  return {out_members, out_edges, out_ptr};
}

}  // namespace
}  // namespace splinecnn::cpu

STABLE_TORCH_LIBRARY_IMPL(splinecnn, CPU, library) {
  library.impl("pool", TORCH_BOX(&splinecnn::cpu::pool));
}
