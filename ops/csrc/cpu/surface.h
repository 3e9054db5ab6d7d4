// A triangle mesh made ready for distances on it: welded, of unit area, finely divided, in one
// piece.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace splinecnn::cpu {

using Point = std::array<double, 3>;
using Face = std::array<int32_t, 3>;

inline Point operator+(const Point& a, const Point& b) {
  return {a[0] + b[0], a[1] + b[1], a[2] + b[2]};
}
inline Point operator-(const Point& a, const Point& b) {
  return {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
}
inline Point operator*(const Point& a, double s) { return {a[0] * s, a[1] * s, a[2] * s}; }
inline double dot(const Point& a, const Point& b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

struct Surface {
  std::vector<int32_t> welded;  // [given vertices] which point each one is
  std::vector<Point> point;     // centred by area and divided by the square root of the area
  std::vector<Point> normal;    // unit length, outwards, or zero where no face is
  std::vector<double> area;     // a third of the faces around
  std::vector<int32_t> ptr;     // [points + 1] neighbours of each point
  std::vector<int32_t> neighbour;
  std::vector<double> length;
};

// `vertices` [V, 3] and `faces` [F, 3], whose indices start at `first`; all indices are in range.
// No edge stays longer than `longest`, unless the mesh would grow beyond all measure.
Surface make_surface(const float* vertices, int64_t V, const int64_t* faces, int64_t F,
                     int64_t first, double longest);

}  // namespace splinecnn::cpu
