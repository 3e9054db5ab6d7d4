// Stable radix sort and prefix sums on the device, the same bits every time.
#pragma once

#include <cstdint>

#include "common.h"

namespace splinecnn::cuda {

// Two buffers each, of which `current` holds the data; a sort leaves it in either.
struct SortBuffers {
  uint64_t* keys[2];
  int32_t* payload[2];
  uint32_t* counts;
  uint64_t* sums;
  int current;
};

SortBuffers carve_sort(Carver& carver, int64_t n);

// Sorts by the low `bits` of the keys; equal keys keep their order.
int sort_pairs(SortBuffers& buffers, int64_t n, int bits, void* stream);

// values[i] becomes the sum of values[0..i]; `sums` must hold scan_blocks(n) numbers.
int inclusive_scan(uint64_t* values, int64_t n, uint64_t* sums, void* stream);
int64_t scan_blocks(int64_t n);

inline int bits_of(uint64_t largest) {
  int bits = 1;
  while (largest >>= 1) ++bits;
  return bits;
}

}  // namespace splinecnn::cuda
