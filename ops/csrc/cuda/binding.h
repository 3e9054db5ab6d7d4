// Between torch tensors and the kernels' raw pointers: device, stream, memory, errors.
#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>

#include <optional>
#include <vector>

#include "../checks.h"
#include "kernels.h"

// The emulator registers the same operators for CPU tensors, under a name of its own.
#ifdef SPLINECNN_EMULATE
#define SPLINECNN_CUDA_LIBRARY(library) \
  STABLE_TORCH_LIBRARY_IMPL(SPLINECNN_EMULATE_AS, CPU, library)
#else
#define SPLINECNN_CUDA_LIBRARY(library) STABLE_TORCH_LIBRARY_IMPL(splinecnn, CUDA, library)
#endif

namespace splinecnn::cuda {

using Sizes = std::vector<int64_t>;

// Makes a tensor's device current for as long as it lives, and knows the caller's stream on it.
class Device {
 public:
  explicit Device(const Tensor& like);
  void* stream() const { return stream_; }

  // Throws what a launcher's error code means.
  void check(int error) const;

  // A copy of one number or record in device memory; waits for the stream.
  template <typename V>
  V read(const void* device) const {
    V host;
    check(read_back(&host, device, sizeof(V), stream_));
    return host;
  }

 private:
#ifndef SPLINECNN_EMULATE
  torch::stable::accelerator::DeviceGuard guard_;
#endif
  void* stream_ = nullptr;
};

inline Tensor flat(const Tensor& t) { return t.is_contiguous() ? t : torch::stable::contiguous(t); }

inline std::optional<Tensor> flat(const std::optional<Tensor>& t) {
  return t ? std::optional<Tensor>(flat(*t)) : std::nullopt;
}

inline const void* data(const std::optional<Tensor>& t) {
  return t ? t->const_data_ptr() : nullptr;
}

inline Tensor make(const Tensor& like, std::initializer_list<int64_t> sizes,
                   std::optional<ScalarType> type = std::nullopt) {
  return torch::stable::new_empty(like, {sizes.begin(), sizes.size()}, type);
}

inline Tensor bytes(const Tensor& like, int64_t count) {
  return make(like, {count}, ScalarType::Byte);
}

Dtype dtype_of(const Tensor& t);

// One number of a floating tensor, for an error message.
double value_at(const Device& device, const Tensor& t, int64_t at);

// The plan's pointers; its tiles must be those of this device.
PlanView view(const PlanTensors& plan, int64_t num_nodes);

inline int64_t tile_count(int64_t nodes) { return (nodes + TILE - 1) / TILE; }
inline int64_t tile_size(int64_t nodes, int64_t tiles) {
  return tiles ? (nodes + tiles - 1) / tiles : 1;
}

}  // namespace splinecnn::cuda
