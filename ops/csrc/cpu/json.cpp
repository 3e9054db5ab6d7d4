// Arrays of numbers in JSON text: where they are, and their numbers straight into memory.
//
// Read by ops/jsontext.py. Whatever is not plainly an array of numbers is left to a full parser,
// which can also say what is wrong with it: nothing here explains, it only says no.
#include "json.h"

#include <cstring>

using namespace splinecnn::json;

namespace {

struct Cut {
  int64_t start, end, rows, numbers;  // text[start, end) is the array; rows is -1 without any
};

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
