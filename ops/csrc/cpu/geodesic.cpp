// Cells of a mesh by distance along its surface, coarser and coarser, whatever its triangulation.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>
#include <vector>

#include "surface.h"
#include "tensors.h"

namespace splinecnn::cpu {
namespace {

constexpr size_t MOST_NEIGHBOURS = 32;  // of a cell in the 2-ring
constexpr size_t MOST_CELLS = 12;       // whose features one vertex hears
// A halved edge is equally far from both its ends, and so are the two sides of a symmetric body:
// what differs by less than the rounding of float32 coordinates is equal, and the first one counts.
constexpr double EQUAL = 1e-6;

using Indices = std::vector<int32_t>;

// Farthest points one after the other, and for every point of the surface the nearest of them.
class Farthest {
 public:
  Farthest(const Surface& s, int32_t start)
      : s_(s), distance_(s.point.size(), INFINITY), owner_(s.point.size(), 0) {
    add(start);
    far_.reserve(distance_.size());
    for (size_t v = 0; v < distance_.size(); ++v) far_.emplace_back(distance_[v], int32_t(v));
    std::make_heap(far_.begin(), far_.end());
  }
  const Indices& seeds() const { return seeds_; }
  const Indices& owner() const { return owner_; }

  // False when every point is a seed already.
  bool grow() {
    const double most = refresh();
    if (most <= EQUAL) return false;
    int32_t seed = far_.front().second;
    std::vector<Reached> equal;
    while (!far_.empty() && refresh() >= most - EQUAL) {
      seed = std::min(seed, far_.front().second);
      equal.push_back(far_.front());
      std::pop_heap(far_.begin(), far_.end());
      far_.pop_back();
    }
    for (const Reached& one : equal) {
      far_.push_back(one);
      std::push_heap(far_.begin(), far_.end());
    }
    add(seed);
    return true;
  }

 private:
  using Reached = std::pair<double, int32_t>;

  // The farthest point's distance: they only shrink, so what is on top is it, once up to date.
  double refresh() {
    while (far_.front().first != distance_[far_.front().second]) {
      std::pop_heap(far_.begin(), far_.end());
      far_.back().first = distance_[far_.back().second];
      std::push_heap(far_.begin(), far_.end());
    }
    return far_.front().first;
  }

  void add(int32_t seed) {
    const auto cell = int32_t(seeds_.size());
    seeds_.push_back(seed);
    distance_[seed] = 0;
    owner_[seed] = cell;
    queue_.assign(1, {0.0, seed});
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
      const auto [reached, v] = queue_.back();
      queue_.pop_back();
      if (reached > distance_[v]) continue;
      for (int32_t e = s_.ptr[v]; e < s_.ptr[v + 1]; ++e) {
        const double further = reached + s_.length[e];
        const int32_t u = s_.neighbour[e];
        if (further < distance_[u] - EQUAL) {
          distance_[u] = further;
          owner_[u] = cell;
          queue_.emplace_back(further, u);
          std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
        }
      }
    }
  }

  const Surface& s_;
  std::vector<double> distance_;
  Indices owner_, seeds_;
  std::vector<Reached> queue_;
  std::vector<Reached> far_;  // a heap of all points, the farthest on top
};

// The point farthest from the middle; of another variant, a point far from those before it.
int32_t first_seed(const Surface& s, int64_t variant) {
  int32_t start = 0;
  double most = -1;
  for (size_t v = 0; v < s.point.size(); ++v)
    if (s.area[v] > 0 && dot(s.point[v], s.point[v]) > most + EQUAL) {
      most = dot(s.point[v], s.point[v]);
      start = int32_t(v);
    }
  if (variant == 0) return start;
  Farthest farthest(s, start);
  for (int64_t i = 0; i < variant && farthest.grow(); ++i) {
  }
  return farthest.seeds().back();
}

struct Level {
  std::vector<Point> point, normal;
  std::vector<double> area;
  Indices parent;                   // the cell of the next level that holds this cell's seed
  std::vector<Indices> near, wide;  // cells that touch, and those that touch them, ascending
};

void average(const Surface& s, const Indices& seeds, size_t count, const Indices& owner, Level& l) {
  l.point.assign(count, Point{});
  l.normal.assign(count, Point{});
  l.area.assign(count, 0.0);
  for (size_t v = 0; v < s.point.size(); ++v) {
    l.point[owner[v]] = l.point[owner[v]] + s.point[v] * s.area[v];
    l.normal[owner[v]] = l.normal[owner[v]] + s.normal[v] * s.area[v];
    l.area[owner[v]] += s.area[v];
  }
  for (size_t c = 0; c < count; ++c) {
    if (l.area[c] > 0) {
      l.point[c] = l.point[c] * (1 / l.area[c]);
      l.normal[c] = l.normal[c] * (1 / l.area[c]);
    } else {
      l.point[c] = s.point[seeds[c]];
    }
  }
}

// The nearest few of some cells, in ascending order.
void keep_nearest(const std::vector<Point>& point, const Point& to, size_t most, Indices& cells) {
  if (cells.size() > most) {
    const auto closer = [&](int32_t a, int32_t b) {
      const Point u = point[a] - to, v = point[b] - to;
      return std::make_pair(dot(u, u), a) < std::make_pair(dot(v, v), b);
    };
    std::partial_sort(cells.begin(), cells.begin() + most, cells.end(), closer);
    cells.resize(most);
  }
  std::sort(cells.begin(), cells.end());
}

void surround(const Surface& s, const Indices& owner, Level& l) {
  const size_t C = l.point.size();
  l.near.assign(C, {});
  l.wide.assign(C, {});
  for (size_t v = 0; v < s.point.size(); ++v)
    for (int32_t e = s.ptr[v]; e < s.ptr[v + 1]; ++e)
      if (owner[v] != owner[s.neighbour[e]]) l.near[owner[v]].push_back(owner[s.neighbour[e]]);
  for (size_t c = 0; c < C; ++c) {
    Indices& cells = l.near[c];
    std::sort(cells.begin(), cells.end());
    cells.erase(std::unique(cells.begin(), cells.end()), cells.end());
    keep_nearest(l.point, l.point[c], MOST_NEIGHBOURS, cells);
  }
  for (size_t c = 0; c < C; ++c) {
    Indices& cells = l.wide[c];
    cells = l.near[c];
    for (int32_t a : l.near[c]) cells.insert(cells.end(), l.near[a].begin(), l.near[a].end());
    std::sort(cells.begin(), cells.end());
    cells.erase(std::unique(cells.begin(), cells.end()), cells.end());
    cells.erase(std::remove(cells.begin(), cells.end(), int32_t(c)), cells.end());
    keep_nearest(l.point, l.point[c], MOST_NEIGHBOURS, cells);
  }
}

struct Hierarchy {
  Surface surface;
  Indices owner;  // of the finest level
  std::vector<Level> levels;
  std::vector<Indices> heard;  // [given vertices] the cell it lies in and those around
};

Hierarchy build(const float* vertices, int64_t V, const int64_t* faces, int64_t F, int64_t first,
                const std::vector<int64_t>& sizes, int64_t variant, double longest) {
  Hierarchy h;
  h.surface = make_surface(vertices, V, faces, F, first, longest);
  Farthest farthest(h.surface, first_seed(h.surface, variant));
  h.levels.resize(sizes.size());
  Indices coarser;
  for (size_t l = sizes.size(); l-- > 0;) {
    while (int64_t(farthest.seeds().size()) < sizes[l] && farthest.grow()) {
    }
    Level& level = h.levels[l];
    average(h.surface, farthest.seeds(), farthest.seeds().size(), farthest.owner(), level);
    surround(h.surface, farthest.owner(), level);
    if (l + 1 < sizes.size())
      for (int32_t seed : farthest.seeds()) level.parent.push_back(coarser[seed]);
    coarser = farthest.owner();
  }
  h.owner = std::move(coarser);
  h.heard.resize(V);
  const Level& finest = h.levels[0];
  for (int64_t v = 0; v < V; ++v) {
    const int32_t at = h.surface.welded[v], cell = h.owner[at];
    h.heard[v] = finest.near[cell];
    h.heard[v].push_back(cell);
    keep_nearest(finest.point, h.surface.point[at], MOST_CELLS, h.heard[v]);
  }
  return h;
}

float* write(const Point& p, float* out) {
  for (double x : p) *out++ = float(x);
  return out;
}

using Tensors = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

Tensors collect(const std::vector<Hierarchy>& meshes, int64_t V, size_t L) {
  const size_t B = meshes.size();
  Tensor point = make<float>({V, 3}), normal = make<float>({V, 3});
  Tensor cell_ptr = make<int64_t>({int64_t(L), int64_t(B) + 1});
  Tensor edge_ptr = make<int64_t>({int64_t(L) + 1});
  int64_t C = 0, P = 0, E = 0, H = 0;
  int64_t *cells = writable<int64_t>(cell_ptr), *edges = writable<int64_t>(edge_ptr);
  edges[0] = 0;
  for (size_t l = 0; l < L; ++l) {
    int64_t* starts = cells + l * (B + 1);
    starts[0] = 0;
    for (size_t b = 0; b < B; ++b) {
      const Level& level = meshes[b].levels[l];
      starts[b + 1] = starts[b] + int64_t(level.point.size());
      for (const Indices& wide : level.wide) E += int64_t(wide.size());
    }
    C += starts[B];
    if (l + 1 < L) P += starts[B];
    edges[l + 1] = E;
  }
  for (const Hierarchy& mesh : meshes)
    for (const Indices& heard : mesh.heard) H += int64_t(heard.size());

  Tensor cell = make<float>({C, 7}), parent = make<int64_t>({P});
  Tensor edge_index = make<int64_t>({2, E}), heard_index = make<int64_t>({2, H});
  float *to_cell = writable<float>(cell), *to_point = writable<float>(point),
        *to_normal = writable<float>(normal);
  int64_t *to_parent = writable<int64_t>(parent), *to_edge = writable<int64_t>(edge_index),
          *to_heard = writable<int64_t>(heard_index);
  for (size_t l = 0; l < L; ++l)
    for (size_t b = 0; b < B; ++b) {
      const Level& level = meshes[b].levels[l];
      const int64_t first = cells[l * (B + 1) + b];
      for (size_t c = 0; c < level.point.size(); ++c) {
        to_cell = write(level.normal[c], write(level.point[c], to_cell));
        *to_cell++ = float(level.area[c]);
        if (l + 1 < L) *to_parent++ = cells[(l + 1) * (B + 1) + b] + level.parent[c];
        for (int32_t source : level.wide[c]) {
          to_edge[E] = first + int64_t(c);
          *to_edge++ = first + source;
        }
      }
    }
  int64_t vertex = 0;
  for (size_t b = 0; b < B; ++b) {
    const Hierarchy& mesh = meshes[b];
    for (size_t v = 0; v < mesh.heard.size(); ++v, ++vertex) {
      to_point = write(mesh.surface.point[mesh.surface.welded[v]], to_point);
      to_normal = write(mesh.surface.normal[mesh.surface.welded[v]], to_normal);
      for (int32_t source : mesh.heard[v]) {
        to_heard[H] = vertex;
        *to_heard++ = cells[b] + source;
      }
    }
  }
  return {point, normal, cell, cell_ptr, parent, edge_index, edge_ptr, heard_index};
}

void check_sizes(const std::vector<int64_t>& sizes) {
  SPLINECNN_REQUIRE(!sizes.empty(), "sizes must name at least one level");
  for (size_t l = 0; l < sizes.size(); ++l)
    SPLINECNN_REQUIRE(sizes[l] >= 1 && (l == 0 || sizes[l] <= sizes[l - 1]),
                      "sizes must be positive and descend, got ", sizes[l], " at ", l);
}

Tensors hierarchy(const Tensor& vertices, const Tensor& faces, const Tensor& ptr,
                  std::vector<int64_t> sizes, int64_t variant, double longest) {
  check_dtype(vertices, "vertices", ScalarType::Float);
  SPLINECNN_REQUIRE(vertices.dim() == 2 && vertices.size(1) == 3, "vertices must be [V, 3], got ",
                    shape_of(vertices));
  check_dtype(faces, "faces", ScalarType::Long);
  SPLINECNN_REQUIRE(faces.dim() == 2 && faces.size(1) == 3, "faces must be [F, 3], got ",
                    shape_of(faces));
  check_ints(ptr, "ptr", vertices, ScalarType::Long);
  check_sizes(sizes);
  SPLINECNN_REQUIRE(0 <= variant && variant < 1024, "variant must lie in [0, 1024), got ", variant);
  SPLINECNN_REQUIRE(longest > 0, "longest must be positive, got ", longest);
  const int64_t V = vertices.size(0), F = faces.size(0), B = ptr.size(0) - 1;
  SPLINECNN_REQUIRE(V < int64_t(1) << 28, "vertices must be fewer than 2^28, got ", V);
  SPLINECNN_REQUIRE(F < int64_t(1) << 28, "faces must be fewer than 2^28, got ", F);
  const Tensor flat_vertices = flat(vertices), flat_faces = flat(faces);
  const auto* xyz = data<float>(flat_vertices);
  const auto *corner = data<int64_t>(flat_faces), *start = data<int64_t>(ptr);
  SPLINECNN_REQUIRE(B >= 0 && start[0] == 0 && start[B] == V, "ptr must run from 0 to ", V);
  for (int64_t b = 0; b < B; ++b)
    SPLINECNN_REQUIRE(start[b] < start[b + 1], "ptr must rise, but does not at ", b);
  for (int64_t v = 0; v < 3 * V; ++v)
    SPLINECNN_REQUIRE(std::isfinite(xyz[v]), "vertices must be finite, got ", xyz[v], " at [",
                      v / 3, ", ", v % 3, "]");

  // faces of one mesh after the other: where a mesh's faces end
  std::vector<int64_t> face_end(B, 0);
  for (int64_t f = 0, b = 0; f < F; ++f) {
    const int64_t* face = corner + 3 * f;
    for (int i = 0; i < 3; ++i)
      if (face[i] < 0 || face[i] >= V) fail_index("faces", face[i], V, f);
    while (face[0] >= start[b + 1]) face_end[b++] = f;
    for (int i = 0; i < 3; ++i)
      SPLINECNN_REQUIRE(face[i] >= start[b] && face[i] < start[b + 1],
                        "faces must stay within one mesh and come in the order of meshes, but [", f,
                        "] does not");
    if (f + 1 == F) std::fill(face_end.begin() + b, face_end.end(), F);
  }
  std::vector<Hierarchy> meshes(B);
  for_each(B, [&](int64_t b) {
    const int64_t from = b ? face_end[b - 1] : 0;
    meshes[b] = build(xyz + 3 * start[b], start[b + 1] - start[b], corner + 3 * from,
                      face_end[b] - from, start[b], sizes, variant, longest);
  });
  return collect(meshes, V, sizes.size());
}

}  // namespace
}  // namespace splinecnn::cpu

STABLE_TORCH_LIBRARY_IMPL(splinecnn, CPU, library) {
  library.impl("hierarchy", TORCH_BOX(&splinecnn::cpu::hierarchy));
}
