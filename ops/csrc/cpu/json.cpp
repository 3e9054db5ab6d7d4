// Arrays of numbers in JSON text: where they are, and their numbers straight into memory.
//
// Read by ops/jsontext.py. Whatever is not plainly an array of numbers is left to a full parser,
// which can also say what is wrong with it: nothing here explains, it only says no.
#include <charconv>
#include <cstdint>
#include <cstring>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

struct Cut {
  int64_t start, end, rows, numbers;  // text[start, end) is the array; rows is -1 without any
};

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

const char* skip(const char* at, const char* end) {
  while (at < end && is_space(*at)) ++at;
  return at;
}

int64_t count(const char* at, const char* end, char wanted) {
  int64_t sum = 0;
  while (at < end) {
    // sums of bytes fit into a byte for so long, and the compiler adds 16 or more at once
    const char* stop = end - at > 255 ? at + 255 : end;
    uint8_t block = 0;
    for (; at < stop; ++at) block += *at == wanted;
    sum += block;
  }
  return sum;
}

// The first place of one of the two, or the end.
const char* find(const char* at, const char* end, char one, char other) {
  const void* found = std::memchr(at, one, end - at);
  if (found) end = static_cast<const char*>(found);
  found = std::memchr(at, other, end - at);
  return found ? static_cast<const char*>(found) : end;
}

constexpr double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                             1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

// One number as JSON writes it, rounded correctly; where it ends, or null.
const char* read(const char* at, const char* end, double& value) {
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
    int64_t given = 0;
    while (at < end && is_digit(*at)) given = 10 * given + (*at++ - '0');
    if (at == first || at - first > 6) return nullptr;
    exponent += down ? -given : given;
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

const char* read(const char* at, const char* end, int64_t& value) {
  const bool negative = at < end && *at == '-';
  at += negative;
  const char* first = at;
  value = 0;
  while (at < end && is_digit(*at) && at - first < 18) value = 10 * value + (*at++ - '0');
  if (at == first || (*first == '0' && at - first > 1)) return nullptr;
  if (at < end && (is_digit(*at) || *at == '.' || *at == 'e' || *at == 'E')) return nullptr;
  if (negative) value = -value;
  return at;
}

constexpr double LARGEST = 1e30;  // larger ones are refused, by those who can say why

const char* read(const char* at, const char* end, float& value) {
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

// Rows into out, `width` numbers each, or any number if offsets are given; all of the text or no.
template <typename T>
bool read_rows(const char* at, const char* end, T* out, int64_t rows, int64_t width,
               int64_t numbers, int64_t* offsets) {
  if (rows < 0) {
    int64_t got;
    return read_row(at, end, out, numbers, got) == end && got == numbers;
  }
  if (at == end || *at != '[') return false;
  at = skip(at + 1, end);
  int64_t total = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (row > 0) {
      if (at == end || *at != ',') return false;
      at = skip(at + 1, end);
    }
    int64_t got;
    at = read_row(at, end, out + total, offsets ? numbers - total : width, got);
    if (!at || (!offsets && got != width)) return false;
    total += got;
    if (offsets) offsets[row + 1] = total;
    at = skip(at, end);
  }
  // commas alone do not tell how many rows are empty
  return (offsets ? total <= numbers : total == numbers) && at + 1 == end && *at == ']';
}

}  // namespace

// Copies the text into `rest` with each array replaced by `[its number]`, and notes the arrays.
// Returns the length of the rest, or -1; `colons` are counted outside of strings.
EXPORTED int64_t splinecnn_json_cut(const char* text, int64_t size, char* rest, int64_t room,
                                    Cut* cuts, int64_t most, int64_t* found, int64_t* colons) {
  const char *at = text, *end = text + size;
  int64_t used = 0;
  *found = *colons = 0;
  while (at < end) {
    if (used + 24 > room) return -1;
    if (*at == '"') {
      const char* open = at++;
      while (at < end && *at != '"') at += *at == '\\' ? 2 : 1;
      if (at >= end || used + (++at - open) + 24 > room) return -1;
      std::memcpy(rest + used, open, at - open);
      used += at - open;
    } else if (*at == '[') {
      if (*found == most) return -1;
      const char* limit = find(at, end, '"', '}');
      while (limit > at && limit[-1] != ']') --limit;
      if (limit == at) return -1;
      const int64_t brackets = count(at, limit, '['), commas = count(at, limit, ',');
      const bool empty = skip(at + 1, limit) == limit - 1;
      Cut& cut = cuts[*found];
      cut = {at - text, limit - text, brackets - 1, empty ? 0 : commas + 1};
      if (brackets == 1 && !empty) cut.rows = -1;
      rest[used++] = '[';
      used = std::to_chars(rest + used, rest + room, (*found)++).ptr - rest;
      rest[used++] = ']';
      at = limit;
    } else {
      *colons += *at == ':';
      rest[used++] = *at++;
    }
  }
  return used;
}

// The numbers of text[start, end) into out; kind is 'i' for int64, 'f' for float32, 'd' for
// float64. With offsets [rows + 1] the rows may differ in length. 1, or 0 if it is anything else.
EXPORTED int32_t splinecnn_json_read(const char* text, int64_t start, int64_t end, int64_t rows,
                                     int64_t width, int64_t numbers, int32_t kind, void* out,
                                     int64_t* offsets) {
  const char *from = text + start, *to = text + end;
  if (offsets) offsets[0] = 0;
  switch (kind) {
    case 'i': return read_rows(from, to, static_cast<int64_t*>(out), rows, width, numbers, offsets);
    case 'f': return read_rows(from, to, static_cast<float*>(out), rows, width, numbers, offsets);
    case 'd': return read_rows(from, to, static_cast<double*>(out), rows, width, numbers, offsets);
    default: return 0;
  }
}
