// Kernel launches and the few calls of the CUDA runtime that the launchers use.
#pragma once

#include <numeric>
#include <tuple>
#include <utility>

#include "block.h"

using cudaStream_t = struct CUstream_st*;
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorLaunchFailure = 719,
};
enum cudaMemcpyKind { cudaMemcpyDeviceToHost = 2 };
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

namespace emulator {

inline std::string last_error;

struct Launch {
  const cudaLaunchConfig_t& config;
  void (*kernel)(void*);
  void* arguments;
  Order order = Order::from_environment();
  bool failed = false;

  uint64_t blocks() const {
    return uint64_t(config.gridDim.x) * config.gridDim.y * config.gridDim.z;
  }

  // A stride without common factor visits every block once, far from the natural order.
  uint64_t turn(uint64_t i) const {
    if (order.kind == Order::forward) return i;
    if (order.kind == Order::reverse) return blocks() - 1 - i;
    uint64_t stride = uint64_t(0.6180339887 * double(blocks())) | 1;
    while (std::gcd(stride, blocks()) != 1) stride += 2;
    return (i * stride + order.seed) % blocks();
  }

  void run(Block& on, uint64_t i) {
    const dim3& grid = config.gridDim;
    const uint64_t b = turn(i);
    uint3 index;
    index.x = unsigned(b % grid.x);
    index.y = unsigned(b / grid.x % grid.y);
    index.z = unsigned(b / grid.x / grid.y);
    if (on.run(grid, config.blockDim, index, kernel, arguments, order)) return;
    failed = true;
    last_error = on.error;
  }

  cudaError_t run_all() {
    const unsigned threads = config.blockDim.x * config.blockDim.y * config.blockDim.z;
    if (!blocks() || !threads || threads > 1024 || config.gridDim.y > 65535 ||
        config.gridDim.z > 65535) {
      last_error = "invalid configuration argument";
      return cudaErrorInvalidConfiguration;
    }
    // Two sets of fibers in turn: the race detector sees neighbouring blocks as unordered, too.
    static thread_local Block pair[2];
    release(&launched);
    for (uint64_t i = 0; i < blocks() && !failed; ++i) run(pair[i % 2], i);
    acquire(&completed);
    return failed ? cudaErrorLaunchFailure : cudaSuccess;
  }
};

}  // namespace emulator

template <typename... Params, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  struct Call {
    void (*kernel)(Params...);
    std::tuple<Params...> arguments;
  } call{kernel, std::tuple<Params...>(std::forward<Args>(args)...)};
  const auto enter = [](void* raw) {
    Call& all = *static_cast<Call*>(raw);
    std::apply(all.kernel, all.arguments);
  };
  emulator::Launch launch{*config, enter, &call};
  return launch.run_all();
}

inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : emulator::last_error.c_str();
}
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                   cudaStream_t) {
  if (bytes) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* at, int byte, size_t bytes, cudaStream_t) {
  if (bytes) std::memset(at, byte, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
