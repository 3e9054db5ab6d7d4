// Numbers as JSON writes them, straight into memory: what is not plainly one is refused.
#pragma once

#include <charconv>
#include <cstdint>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace splinecnn::json {

inline bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

inline const char* skip(const char* at, const char* end) {
  if (at < end && *at > ' ') return at;  // as nearly always: one comparison, not four
  while (at < end && is_space(*at)) ++at;
  return at;
}

constexpr double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                             1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

// One number as JSON writes it, rounded correctly; where it ends, or null.
inline const char* read(const char* at, const char* end, double& value) {
  const char* start = at;
  const bool negative = at < end && *at == '-';
  at += negative;
  if (at == end || !is_digit(*at)) return nullptr;
  uint64_t digits = 0;
  const char* first = at;
  while (at < end && is_digit(*at)) digits = 10 * digits + uint64_t(*at++ - '0');
  if (*first == '0' && at - first > 1) return nullptr;
  int64_t length = at - first, exponent = 0;
  if (at < end && *at == '.') {
    first = ++at;
    while (at < end && is_digit(*at)) digits = 10 * digits + uint64_t(*at++ - '0');
    if (at == first) return nullptr;
    exponent = first - at;
    length += at - first;
  }
  if (at < end && (*at == 'e' || *at == 'E')) {
    ++at;
    const bool down = at < end && *at == '-';
    at += at < end && (*at == '-' || *at == '+');
    first = at;
    uint64_t given = 0;
    while (at < end && is_digit(*at)) given = 10 * given + uint64_t(*at++ - '0');
    if (at == first || at - first > 6) return nullptr;
    exponent += down ? -int64_t(given) : int64_t(given);
  }
  // both factors are exact then, so one rounding is all there is
  if (length <= 19 && digits <= uint64_t(1) << 53 && exponent >= -22 && exponent <= 22) {
    value = exponent < 0 ? double(digits) / POWERS[-exponent] : double(digits) * POWERS[exponent];
    if (negative) value = -value;
    return at;
  }
#if defined(__cpp_lib_to_chars) && __cpp_lib_to_chars >= 201611L
  const auto [stopped, error] = std::from_chars(start, at, value);
  return error == std::errc() && stopped == at ? at : nullptr;
#else
  static_cast<void>(start);
  return nullptr;
#endif
}

inline const char* read(const char* at, const char* end, int64_t& value) {
  const bool negative = at < end && *at == '-';
  at += negative;
  const char* first = at;
  uint64_t digits = 0;
  while (at < end && is_digit(*at)) digits = 10 * digits + uint64_t(*at++ - '0');
  if (at == first || at - first > 18 || (*first == '0' && at - first > 1)) return nullptr;
  if (at < end && (*at == '.' || *at == 'e' || *at == 'E')) return nullptr;
  value = negative ? -int64_t(digits) : int64_t(digits);
  return at;
}

constexpr double LARGEST = 1e30;  // larger ones are refused, by those who can say why

inline const char* read(const char* at, const char* end, float& value) {
  double wide;
  at = read(at, end, wide);
  if (!at || !(wide <= LARGEST && wide >= -LARGEST)) return nullptr;
  value = float(wide);
  return at;
}

// `[n, n, …]` with any count up to room; what is behind it, or null.
template <typename T>
const char* read_row(const char* at, const char* end, T* out, int64_t room, int64_t& got) {
  got = 0;
  if (at == end || *at != '[') return nullptr;
  at = skip(at + 1, end);
  if (at < end && *at == ']') return at + 1;
  while (true) {
    if (got == room) return nullptr;
    at = read(at, end, out[got]);
    if (!at) return nullptr;
    ++got;
    at = skip(at, end);
    if (at == end) return nullptr;
    if (*at == ']') return at + 1;
    if (*at != ',') return nullptr;
    at = skip(at + 1, end);
  }
}

}  // namespace splinecnn::json
