// Stands in for CUDA's header of this name: the same kernels, compiled by g++, run on the CPU.
//
// One block at a time; its threads are fibers that take turns in forward, reverse or random order
// (EMULATOR_ORDER). Not emulated: speed, weak memory order, clusters, TMA, wgmma.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "launch.h"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__

#define __syncthreads() emulator::block->wait_at_barrier(EMULATOR_PLACE)

namespace emulator {

// Each kind of collective is a place of its own: a shuffle does not pair with a ballot.
enum Collective : uintptr_t { sync_warp = 1, shuffle, vote, match, tensor };
inline const void* as_place(Collective kind) { return reinterpret_cast<const void*>(kind); }

template <typename V>
void put(const V& value) {
  static_assert(sizeof(V) <= 64 && std::is_trivially_copyable_v<V>);
  Thread& me = block->self();
  std::memcpy(me.deposit[me.writing], &value, sizeof(V));
}
template <typename V>
V take(unsigned lane) {
  const Thread& other = block->lane(lane);
  V value;
  std::memcpy(&value, other.deposit[other.reading], sizeof(V));
  return value;
}

template <typename V>
V exchange(unsigned mask, V value, unsigned from) {
  Quiet quiet;
  put(value);
  block->wait_in_warp(mask, as_place(shuffle), false);
  return mask >> from & 1 ? take<V>(from) : value;
}

}  // namespace emulator

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  emulator::Quiet quiet;
  emulator::block->wait_in_warp(mask, emulator::as_place(emulator::sync_warp), true);
}
template <typename V>
V __shfl_xor_sync(unsigned mask, V value, int with) {
  return emulator::exchange(mask, value, (emulator::block->own_lane() ^ unsigned(with)) & 31);
}
template <typename V>
V __shfl_up_sync(unsigned mask, V value, unsigned by) {
  const unsigned lane = emulator::block->own_lane();
  return emulator::exchange(mask, value, lane >= by ? lane - by : lane);
}
inline unsigned __match_any_sync(unsigned mask, int value) {
  emulator::Quiet quiet;
  emulator::put(value);
  emulator::block->wait_in_warp(mask, emulator::as_place(emulator::match), false);
  unsigned peers = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1 && emulator::take<int>(lane) == value) peers |= 1u << lane;
  return peers;
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  emulator::Quiet quiet;
  emulator::put(predicate);
  emulator::block->wait_in_warp(mask, emulator::as_place(emulator::vote), false);
  unsigned set = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1 && emulator::take<int>(lane)) set |= 1u << lane;
  return set;
}

namespace emulator {

template <typename V, typename F>
V read_modify_write(V* at, F change) {
  std::atomic_ref<V> cell(*at);
  V old = cell.load(std::memory_order_relaxed);
  while (!cell.compare_exchange_weak(old, change(old), std::memory_order_relaxed)) {
  }
  return old;
}

}  // namespace emulator

template <typename V>
V atomicAdd(V* at, std::type_identity_t<V> value) {
  return emulator::read_modify_write(at, [=](V old) { return V(old + value); });
}
template <typename V>
V atomicMin(V* at, std::type_identity_t<V> value) {
  return emulator::read_modify_write(at, [=](V old) { return old < value ? old : value; });
}
template <typename V>
V atomicMax(V* at, std::type_identity_t<V> value) {
  return emulator::read_modify_write(at, [=](V old) { return old > value ? old : value; });
}

inline int __popc(unsigned bits) { return std::popcount(bits); }
using std::max;
using std::min;
