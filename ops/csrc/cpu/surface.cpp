// Welding, normalising, dividing and joining of meshes; ops/geodesic.py does the same in Python.
#include "surface.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <tuple>
#include <unordered_map>

namespace splinecnn::cpu {
namespace {

constexpr int ROUNDS = 8;               // an edge is halved at most so often
constexpr size_t MOST_POINTS = 30'000;  // beyond this, nothing is divided any more
constexpr int LEAF = 12;                // points in a leaf of the search tree

Point cross(const Point& a, const Point& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}

// Twice the face's area, along its normal.
Point doubled_area(const std::vector<Point>& p, const Face& f) {
  return cross(p[f[1]] - p[f[0]], p[f[2]] - p[f[0]]);
}

struct Bits {
  std::array<uint32_t, 3> of;
  bool operator==(const Bits& other) const { return of == other.of; }
};
struct HashBits {
  size_t operator()(const Bits& b) const {
    uint64_t hash = b.of[0];
    for (int d : {1, 2}) hash = (hash ^ (hash >> 29)) * 0x9E3779B97F4A7C15u + b.of[d];
    return size_t(hash ^ (hash >> 32));
  }
};

// Vertices at the same place become one: many file formats repeat them along seams.
void weld(const float* vertices, int64_t V, Surface& s) {
  std::unordered_map<Bits, int32_t, HashBits> seen;
  seen.reserve(size_t(V) * 2);
  s.welded.resize(V);
  for (int64_t v = 0; v < V; ++v) {
    Bits bits;
    Point p;
    for (int d = 0; d < 3; ++d) {
      const float x = vertices[3 * v + d] + 0.0f;  // -0 and 0 are one place
      std::memcpy(&bits.of[d], &x, sizeof x);
      p[d] = double(x);
    }
    const auto [at, is_new] = seen.try_emplace(bits, int32_t(s.point.size()));
    if (is_new) s.point.push_back(p);
    s.welded[v] = at->second;
  }
}

void normalise(Surface& s, const std::vector<Face>& faces) {
  double total = 0;
  Point centre{};
  for (const Face& f : faces) {
    const Point n = doubled_area(s.point, f);
    const double area = std::sqrt(dot(n, n)) / 2;
    total += area;
    centre = centre + (s.point[f[0]] + s.point[f[1]] + s.point[f[2]]) * (area / 3);
  }
  if (total > 0) {
    centre = centre * (1 / total);
  } else {
    centre = {};
    for (const Point& p : s.point) centre = centre + p * (1.0 / double(s.point.size()));
  }
  double scale = std::sqrt(total);
  if (!(scale > 0)) {  // a line or a point has an extent at most
    for (const Point& p : s.point) scale = std::max(scale, std::sqrt(dot(p - centre, p - centre)));
    if (!(scale > 0)) scale = 1;
  }
  for (Point& p : s.point) p = (p - centre) * (1 / scale);
}

uint64_t edge_key(int32_t a, int32_t b) {
  return (uint64_t(std::min(a, b)) << 32) | uint32_t(std::max(a, b));
}

// Halve every edge longer than `longest`, in all faces around it alike, until none is left.
void divide(Surface& s, std::vector<Face>& faces, double longest) {
  for (int round = 0; round < ROUNDS && s.point.size() < MOST_POINTS; ++round) {
    std::unordered_map<uint64_t, int32_t> middles;
    const auto middle = [&](int32_t a, int32_t b) -> int32_t {
      const Point side = s.point[a] - s.point[b];
      if (dot(side, side) <= longest * longest) return -1;
      const auto [at, is_new] = middles.try_emplace(edge_key(a, b), int32_t(s.point.size()));
      if (is_new) s.point.push_back((s.point[a] + s.point[b]) * 0.5);
      return at->second;
    };
    std::vector<Face> divided;
    divided.reserve(faces.size() * 2);
    for (const Face& f : faces) {
      std::array<int32_t, 3> m;  // m[i] halves the side from corner i to the next
      for (int i = 0; i < 3; ++i) m[i] = middle(f[i], f[(i + 1) % 3]);
      const int count = (m[0] >= 0) + (m[1] >= 0) + (m[2] >= 0);
      if (count == 0) {
        divided.push_back(f);
        continue;
      }
      if (count == 3) {
        for (int i = 0; i < 3; ++i) divided.push_back({f[i], m[i], m[(i + 2) % 3]});
        divided.push_back({m[0], m[1], m[2]});
        continue;
      }
      // turn the face until its first side is halved and, of two halved sides, the last is not
      int i = 0;
      while (!(m[i] >= 0 && m[(i + 2) % 3] < 0)) ++i;
      const int32_t a = f[i], b = f[(i + 1) % 3], c = f[(i + 2) % 3];
      const int32_t ab = m[i], bc = m[(i + 1) % 3];
      if (count == 1) {
        divided.push_back({a, ab, c});
        divided.push_back({ab, b, c});
        continue;
      }
      divided.push_back({ab, b, bc});
      const Point first = s.point[a] - s.point[bc], second = s.point[ab] - s.point[c];
      if (dot(first, first) <= dot(second, second)) {
        divided.push_back({a, ab, bc});
        divided.push_back({a, bc, c});
      } else {
        divided.push_back({a, ab, c});
        divided.push_back({ab, bc, c});
      }
    }
    faces = std::move(divided);
    if (middles.empty()) break;
  }
}

void measure(Surface& s, const std::vector<Face>& faces) {
  s.normal.assign(s.point.size(), Point{});
  s.area.assign(s.point.size(), 0.0);
  double volume = 0;
  for (const Face& f : faces) {
    const Point n = doubled_area(s.point, f);
    const double third = std::sqrt(dot(n, n)) / 6;
    volume += dot(s.point[f[0]], n);
    for (int32_t v : f) {
      s.area[v] += third;
      s.normal[v] = s.normal[v] + n;
    }
  }
  const double sign = volume < 0 ? -1 : 1;  // a mesh turned inside out is turned back
  for (Point& n : s.normal) {
    const double size = std::sqrt(dot(n, n));
    n = size > 0 ? n * (sign / size) : Point{};
  }
}

using Pair = std::pair<int32_t, int32_t>;

std::vector<Pair> sides(const std::vector<Face>& faces) {
  std::vector<uint64_t> keys;
  keys.reserve(faces.size() * 3);
  for (const Face& f : faces)
    for (int i = 0; i < 3; ++i) keys.push_back(edge_key(f[i], f[(i + 1) % 3]));
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  std::vector<Pair> edges;
  edges.reserve(keys.size());
  for (uint64_t key : keys) edges.emplace_back(int32_t(key >> 32), int32_t(key & 0xffffffffu));
  return edges;
}

class Pieces {
 public:
  explicit Pieces(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  int32_t find(int32_t v) {
    while (parent_[v] != v) v = parent_[v] = parent_[parent_[v]];
    return v;
  }
  bool join(int32_t a, int32_t b) {
    a = find(a), b = find(b);
    if (a == b) return false;
    parent_[std::max(a, b)] = std::min(a, b);
    return true;
  }

 private:
  std::vector<int32_t> parent_;
};

struct Bridge {
  double squared = INFINITY;
  int32_t from = -1, to = -1;
  bool operator<(const Bridge& b) const {
    return std::tie(squared, from, to) < std::tie(b.squared, b.from, b.to);
  }
};

// Boxes of points halved again and again; finds the nearest point of another piece.
class Tree {
 public:
  Tree(const std::vector<Point>& points, const std::vector<int32_t>& piece)
      : points_(points), piece_(piece), order_(points.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    build(0, int32_t(order_.size()));
  }
  void nearest(int32_t from, Bridge& best) const { search(0, from, best); }

 private:
  struct Node {
    Point low, high;
    int32_t begin, end, second = -1, piece;  // the piece all its points belong to, or -1
  };

  int32_t build(int32_t begin, int32_t end) {
    Node node{points_[order_[begin]], points_[order_[begin]], begin, end, -1,
              piece_[order_[begin]]};
    for (int32_t i = begin; i < end; ++i) {
      const Point& p = points_[order_[i]];
      for (int d = 0; d < 3; ++d) {
        node.low[d] = std::min(node.low[d], p[d]);
        node.high[d] = std::max(node.high[d], p[d]);
      }
      if (piece_[order_[i]] != node.piece) node.piece = -1;
    }
    const auto at = int32_t(nodes_.size());
    nodes_.push_back(node);
    if (end - begin > LEAF) {
      const Point size = node.high - node.low;
      const int d = int(std::max_element(size.begin(), size.end()) - size.begin());
      const int32_t middle = (begin + end) / 2;
      std::nth_element(order_.begin() + begin, order_.begin() + middle, order_.begin() + end,
                       [&](int32_t a, int32_t b) {
                         return std::tie(points_[a][d], a) < std::tie(points_[b][d], b);
                       });
      build(begin, middle);
      const int32_t second = build(middle, end);
      nodes_[at].second = second;
    }
    return at;
  }

  double squared_distance(const Node& node, const Point& p) const {
    double sum = 0;
    for (int d = 0; d < 3; ++d) {
      const double gap = std::max({node.low[d] - p[d], 0.0, p[d] - node.high[d]});
      sum += gap * gap;
    }
    return sum;
  }

  void search(int32_t at, int32_t from, Bridge& best) const {
    const Node& node = nodes_[at];
    if (node.piece == piece_[from]) return;
    if (squared_distance(node, points_[from]) > best.squared) return;
    if (node.second < 0) {
      for (int32_t i = node.begin; i < node.end; ++i) {
        const int32_t to = order_[i];
        if (piece_[to] == piece_[from]) continue;
        const Point gap = points_[to] - points_[from];
        best = std::min(best, Bridge{dot(gap, gap), from, to});
      }
      return;
    }
    const Node &one = nodes_[at + 1], &two = nodes_[node.second];
    const bool swap = squared_distance(two, points_[from]) < squared_distance(one, points_[from]);
    search(swap ? node.second : at + 1, from, best);
    search(swap ? at + 1 : node.second, from, best);
  }

  const std::vector<Point>& points_;
  const std::vector<int32_t>& piece_;
  std::vector<int32_t> order_;
  std::vector<Node> nodes_;
};

// Every piece but the largest is tied to the nearest point outside it, until all hang together.
void bridge(const Surface& s, std::vector<Pair>& edges) {
  const auto N = int32_t(s.point.size());
  Pieces pieces(N);
  for (const Pair& edge : edges) pieces.join(edge.first, edge.second);
  for (;;) {
    std::vector<int32_t> piece(N), size(N, 0);
    for (int32_t v = 0; v < N; ++v) ++size[piece[v] = pieces.find(v)];
    const auto largest = int32_t(std::max_element(size.begin(), size.end()) - size.begin());
    if (size[largest] == N) return;
    const Tree tree(s.point, piece);
    std::vector<Bridge> best(N);
    for (int32_t v = 0; v < N; ++v)
      if (piece[v] != largest) tree.nearest(v, best[piece[v]]);
    for (const Bridge& b : best)
      if (b.from >= 0 && pieces.join(b.from, b.to)) edges.emplace_back(b.from, b.to);
  }
}

void link(Surface& s, const std::vector<Pair>& edges) {
  s.ptr.assign(s.point.size() + 1, 0);
  for (const auto& [a, b] : edges) ++s.ptr[a + 1], ++s.ptr[b + 1];
  std::partial_sum(s.ptr.begin(), s.ptr.end(), s.ptr.begin());
  s.neighbour.resize(edges.size() * 2);
  s.length.resize(edges.size() * 2);
  std::vector<int32_t> next(s.ptr.begin(), s.ptr.end() - 1);
  for (const auto& [a, b] : edges) {
    const Point side = s.point[a] - s.point[b];
    const double length = std::sqrt(dot(side, side));
    s.neighbour[next[a]] = b, s.length[next[a]++] = length;
    s.neighbour[next[b]] = a, s.length[next[b]++] = length;
  }
}

}  // namespace

Surface make_surface(const float* vertices, int64_t V, const int64_t* faces, int64_t F,
                     int64_t first, double longest) {
  Surface s;
  weld(vertices, V, s);
  std::vector<Face> kept;
  kept.reserve(F);
  for (int64_t f = 0; f < F; ++f) {
    Face face;
    for (int i = 0; i < 3; ++i) face[i] = s.welded[faces[3 * f + i] - first];
    if (face[0] != face[1] && face[1] != face[2] && face[2] != face[0]) kept.push_back(face);
  }
  normalise(s, kept);
  divide(s, kept, longest);
  measure(s, kept);
  std::vector<Pair> edges = sides(kept);
  bridge(s, edges);
  link(s, edges);
  return s;
}

}  // namespace splinecnn::cpu
