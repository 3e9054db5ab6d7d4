// What all CUDA operators do around their kernels: current stream, error texts, checked plans.
#include "binding.h"

#ifndef SPLINECNN_EMULATE
#include <dlfcn.h>
#endif

namespace splinecnn::cuda {

#ifdef SPLINECNN_EMULATE
Device::Device(const Tensor&) {}
#else
namespace {

// torch 2.10 has no stable call for a stream's handle. This symbol is in libtorch_cuda, which is
// loaded whenever there is a CUDA tensor.
void* current_stream(int32_t device) {
  using Find = int32_t (*)(int32_t, void**);
  static const Find find = [] {
    const char* const name = "aoti_torch_get_current_cuda_stream";
    void* found = dlsym(RTLD_DEFAULT, name);
    if (!found)
      if (void* torch_cuda = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD))
        found = dlsym(torch_cuda, name);
    return reinterpret_cast<Find>(found);
  }();
  void* stream = nullptr;
  SPLINECNN_REQUIRE(find && find(device, &stream) == 0, "this torch has no CUDA streams");
  return stream;
}

}  // namespace

Device::Device(const Tensor& like)
    : guard_(like.get_device_index()), stream_(current_stream(like.get_device_index())) {
  check(set_device(like.get_device_index()));  // our own copy of the CUDA runtime
}
#endif

void Device::check(int error) const {
  SPLINECNN_REQUIRE(error == 0, "splinecnn: CUDA error ", error, ": ", error_text(error));
}

Dtype dtype_of(const Tensor& t) {
  switch (t.scalar_type()) {
    case ScalarType::Double: return Dtype::float64;
    case ScalarType::Half: return Dtype::float16;
    case ScalarType::BFloat16: return Dtype::bfloat16;
    default: return Dtype::float32;
  }
}

double value_at(const Device& device, const Tensor& t, int64_t at) {
  Tensor all = torch::stable::view(t, {t.numel()});
  const Tensor one = torch::stable::to(torch::stable::narrow(all, 0, at, 1), ScalarType::Double);
  return device.read<double>(one.const_data_ptr());
}

PlanView view(const PlanTensors& plan, int64_t num_nodes) {
  const int64_t tiles = plan.tiles(), size = tile_size(num_nodes, tiles);
  SPLINECNN_REQUIRE(size <= TILE && (tiles > 0 || num_nodes == 0), "tile_ptr must cut ", num_nodes,
                    " nodes into tiles of at most ", TILE, " on CUDA, got ", tiles,
                    " tiles; make the plan on the device that uses it");
  const auto ints = [](const Tensor& t) { return t.const_data_ptr<int32_t>(); };
  PlanView v{};
  v.coef = plan.coef.const_data_ptr();
  v.src = ints(plan.src);
  v.row_ptr = ints(plan.row_ptr);
  v.row_node = ints(plan.row_node);
  v.group_ptr = ints(plan.group_ptr);
  v.group_weight = ints(plan.group_weight);
  v.tile_ptr = ints(plan.tile_ptr);
  v.entries = plan.Q();
  v.rows = int32_t(plan.R());
  v.groups = int32_t(plan.G());
  v.tiles = int32_t(tiles);
  v.tile_size = int32_t(size);
  return v;
}

}  // namespace splinecnn::cuda
