// Where nodes lie, number for number what ops/positions.py does in plain torch.
#include <torch/csrc/stable/library.h>

#include <cmath>
#include <mutex>
#include <type_traits>
#include <vector>

#include "tensors.h"

namespace splinecnn::cpu {
namespace {

constexpr int64_t GRAIN = 1 << 14;  // edges worth a thread

std::vector<int32_t> graph_of_nodes(const Tensor& ptr, int64_t N) {
  const int64_t* const at = data<int64_t>(ptr);
  const int64_t B = ptr.size(0) - 1;
  SPLINECNN_REQUIRE(B >= 0 && at[0] == 0 && at[B] == N, "ptr must run from 0 to ", N);
  std::vector<int32_t> graph(N);
  for (int64_t g = 0; g < B; ++g) {
    SPLINECNN_REQUIRE(at[g] <= at[g + 1] && at[g + 1] <= N, "ptr must not decrease, got ", at[g],
                      " and ", at[g + 1], " at ", g + 1);
    std::fill(graph.begin() + at[g], graph.begin() + at[g + 1], int32_t(g));
  }
  return graph;
}

void check_positions(const Tensor& positions, const Tensor& numbers, const char* name,
                     const char* shape) {
  check_floating(positions, "positions");
  check_dims(positions, "positions", 2, "[N, D]");
  check_same_device(numbers, name, positions);
  check_dtype(numbers, name, ScalarType::Long);
  check_dims(numbers, name, 2, shape);
}

// The positions of the two ends of each edge, as numbers of D coordinates.
template <typename T>
struct Ends {
  const T* at;
  const int64_t *source, *target;
  const int32_t* graph;  // of each node
  int64_t N;
};

// Offsets of the edges [begin, end), and the largest coordinate of each graph among them.
template <typename T, typename Dims>
void take_offsets(const Ends<T>& ends, Dims D, int64_t begin, int64_t end, T* offset,
                  std::vector<T>& largest, FirstPlace& outside) {
  int32_t now = 0;  // edges of a graph mostly follow each other: its largest stays in a register
  T most = largest.empty() ? T(0) : largest[0];
  for (int64_t e = begin; e < end; ++e) {
    const int64_t source = ends.source[e], target = ends.target[e];
    if (uint64_t(source) >= uint64_t(ends.N) || uint64_t(target) >= uint64_t(ends.N))
      return outside.note(e);
    if (const int32_t graph = ends.graph[target]; graph != now) {
      largest[now] = most;
      now = graph;
      most = largest[now];
    }
    for (int64_t d = 0; d < D; ++d) {
      const T c = ends.at[source * D + d] - ends.at[target * D + d];
      offset[e * D + d] = c;
      most = std::max(most, std::abs(c));
    }
  }
  if (!largest.empty()) largest[now] = most;
}

// Offsets of the edges [begin, end) from [-largest, largest] of their graph into [0, 1].
template <typename T, typename Dims>
void scale_offsets(const Ends<T>& ends, Dims D, int64_t begin, int64_t end, T* offset,
                   const std::vector<T>& largest) {
  while (begin < end) {
    const int32_t graph = ends.graph[ends.target[begin]];
    int64_t last = begin + 1;
    while (last < end && ends.graph[ends.target[last]] == graph) ++last;
    const T most = 2 * largest[graph];
    for (int64_t i = begin * D; i < last * D; ++i)
      offset[i] = (most > 0 ? offset[i] / most : T(0)) + T(0.5);
    begin = last;
  }
}

// Calls f(D), as a constant where it pays.
template <typename F>
void with_dims(int64_t D, const F& f) {
  if (D == 2) return f(std::integral_constant<int64_t, 2>());
  if (D == 3) return f(std::integral_constant<int64_t, 3>());
  f(D);
}

Tensor cartesian(const Tensor& positions, const Tensor& edge_index, const Tensor& ptr) {
  check_positions(positions, edge_index, "edge_index", "[2, E]");
  check_size(edge_index, "edge_index", 0, 2);
  check_ints(ptr, "ptr", positions, ScalarType::Long);
  const Tensor x = flat(positions), edges = flat(edge_index);
  const int64_t E = edge_index.size(1), N = x.size(0), D = x.size(1);
  const int64_t *const source = data<int64_t>(edges), *const target = source + E;
  const std::vector<int32_t> graph = graph_of_nodes(ptr, N);
  return with_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    const Tensor out = make<T>({E, D});
    const Ends<T> ends{data<T>(x), source, target, graph.data(), N};
    T* const offset = writable<T>(out);
    std::vector<T> largest(ptr.size(0) - 1);
    std::mutex merging;
    FirstPlace outside;
    in_ranges(E, GRAIN, [&](int64_t begin, int64_t end) {
      std::vector<T> most(largest.size());
      with_dims(D, [&](auto dims) { take_offsets(ends, dims, begin, end, offset, most, outside); });
      const std::lock_guard<std::mutex> alone(merging);
      for (size_t g = 0; g < most.size(); ++g) largest[g] = std::max(largest[g], most[g]);
    });
    if (outside.any()) {
      const int64_t e = outside.at(), row = uint64_t(source[e]) < uint64_t(N);
      fail_edge(source[row * E + e], N, row, e);
    }
    in_ranges(E, GRAIN, [&](int64_t begin, int64_t end) {
      with_dims(D, [&](auto dims) { scale_offsets(ends, dims, begin, end, offset, largest); });
    });
    return out;
  });
}

Tensor cluster_mean(const Tensor& positions, const Tensor& members) {
  check_positions(positions, members, "members", "[C, M]");
  const Tensor x = flat(positions), flat_members = flat(members);
  const int64_t C = members.size(0), M = members.size(1), N = x.size(0), D = x.size(1);
  const int64_t* const member = data<int64_t>(flat_members);
  for (int64_t i = 0; i < C * M; ++i)
    if (uint64_t(member[i]) >= uint64_t(N)) fail_index("members", member[i], N, i);
  return with_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    const Tensor out = make<T>({C, D});
    const T* const at = data<T>(x);
    T* const mean = writable<T>(out);
    for (int64_t c = 0; c < C; ++c) {
      const int64_t* const own = member + c * M;
      std::fill_n(mean + c * D, D, T(0));
      T count = 0;
      for (int64_t m = 0; m < M; ++m) {
        if (std::find(own, own + m, own[m]) != own + m) continue;  // named before
        for (int64_t d = 0; d < D; ++d) mean[c * D + d] += at[own[m] * D + d];
        ++count;
      }
      for (int64_t d = 0; d < D; ++d) mean[c * D + d] /= count;
    }
    return out;
  });
}

}  // namespace
}  // namespace splinecnn::cpu

STABLE_TORCH_LIBRARY_IMPL(splinecnn, CPU, library) {
  library.impl("cartesian", TORCH_BOX(&splinecnn::cpu::cartesian));
  library.impl("cluster_mean", TORCH_BOX(&splinecnn::cpu::cluster_mean));
}
