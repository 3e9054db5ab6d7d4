// basis, basis_grad, plan and transpose for CUDA tensors.
#include <tuple>

#include "binding.h"

namespace splinecnn::cuda::ops {
namespace {

using Plan = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

[[noreturn]] void report_pseudo(const Device& device, const Tensor& pseudo, uint64_t at) {
  const int64_t D = pseudo.size(1);
  fail_pseudo(value_at(device, pseudo, int64_t(at)), int64_t(at) / D, int64_t(at) % D);
}

std::tuple<Tensor, Tensor> basis(const Tensor& pseudo, const Sizes& kernel_size,
                                 const Sizes& is_open, int64_t degree) {
  const Spline spline = check_spline(pseudo, kernel_size, is_open, degree);
  const Device device(pseudo);
  const Tensor u = flat(pseudo);
  const int64_t E = u.size(0), S = spline.S;
  const Tensor value = make(u, {E, S}), index = make(u, {E, S}, ScalarType::Long);
  const Tensor record = bytes(u, sizeof(uint64_t));
  auto* first_bad = static_cast<uint64_t*>(record.mutable_data_ptr());
  device.check(cuda::basis(dtype_of(u), spline, u.const_data_ptr(), E, value.mutable_data_ptr(),
                           index.mutable_data_ptr<int64_t>(), first_bad, device.stream()));
  const auto bad = device.read<uint64_t>(first_bad);
  if (bad != NOTHING_BAD) report_pseudo(device, u, bad);
  return {value, index};
}

// Coordinates were checked when the basis was made: gradients do not wait for the device again.
Tensor basis_grad(const Tensor& grad, const Tensor& pseudo, const Sizes& kernel_size,
                  const Sizes& is_open, int64_t degree) {
  const Spline spline = check_spline(pseudo, kernel_size, is_open, degree);
  check_like(grad, "grad", pseudo, 2, "[E, S]");
  check_size(grad, "grad", 0, pseudo.size(0));
  check_size(grad, "grad", 1, spline.S);
  const Device device(pseudo);
  const Tensor u = flat(pseudo), g = flat(grad), out = make(u, {u.size(0), u.size(1)});
  device.check(cuda::basis_grad(dtype_of(u), spline, g.const_data_ptr(), u.const_data_ptr(),
                                u.size(0), out.mutable_data_ptr(), device.stream()));
  return out;
}

// The eight tensors of a plan whose sizes the record tells, and where the kernels write them.
struct NewPlan {
  Tensor coef, src, pair, row_ptr, row_node, group_ptr, group_weight, tile_ptr;

  NewPlan(const Tensor& like, const PlanRecord& size, int64_t tiles)
      : coef(make(like, {size.entries})),
        src(make(like, {size.entries}, ScalarType::Int)),
        pair(make(like, {size.entries}, ScalarType::Int)),
        row_ptr(make(like, {size.rows + 1}, ScalarType::Int)),
        row_node(make(like, {size.rows}, ScalarType::Int)),
        group_ptr(make(like, {size.groups + 1}, ScalarType::Int)),
        group_weight(make(like, {size.groups}, ScalarType::Int)),
        tile_ptr(make(like, {tiles + 1}, ScalarType::Int)) {}

  PlanOutput output() const {
    const auto ints = [](const Tensor& t) { return t.mutable_data_ptr<int32_t>(); };
    return {coef.mutable_data_ptr(), ints(src),       ints(pair),         ints(row_ptr),
            ints(row_node),          ints(group_ptr), ints(group_weight), ints(tile_ptr)};
  }
  Plan tuple() const {
    return {coef, src, pair, row_ptr, row_node, group_ptr, group_weight, tile_ptr};
  }
};

void report_edges(const Device& device, const PlanInput& in, const PlanRecord& record,
                  const Tensor& pseudo) {
  const uint64_t source = record.bad_source, target = record.bad_target;
  if (source != NOTHING_BAD && source <= target)
    fail_edge(device.read<int64_t>(in.edge_index + source), in.num_sources, 0, int64_t(source));
  if (target != NOTHING_BAD)
    fail_edge(device.read<int64_t>(in.edge_index + in.edges + target), in.num_nodes, 1,
              int64_t(target));
  if (record.bad_pseudo != NOTHING_BAD) report_pseudo(device, pseudo, record.bad_pseudo);
}

Plan plan(const Tensor& edge_index, const Tensor& pseudo, const Sizes& kernel_size,
          const Sizes& is_open, int64_t degree, int64_t num_nodes, int64_t num_sources, bool mean,
          bool keep_zeros) {
  PlanInput in{};
  in.spline = check_spline(pseudo, kernel_size, is_open, degree);
  check_edges(edge_index, pseudo, num_nodes, num_sources);
  const Device device(pseudo);
  const Tensor edges = flat(edge_index), u = flat(pseudo);
  in.dtype = dtype_of(u);
  in.edge_index = edges.const_data_ptr<int64_t>();
  in.pseudo = u.const_data_ptr();
  in.edges = u.size(0);
  in.num_nodes = int32_t(num_nodes);
  in.num_sources = int32_t(num_sources);
  in.tiles = int32_t(tile_count(num_nodes));
  in.tile_size = int32_t(tile_size(num_nodes, in.tiles));
  in.mean = mean;
  in.keep_zeros = keep_zeros;

  const Tensor workspace = bytes(u, plan_workspace(in));
  PlanRecord record;
  device.check(plan_sort(in, workspace.mutable_data_ptr(), &record, device.stream()));
  report_edges(device, in, record, u);
  const NewPlan made(u, record, in.tiles);
  device.check(
      plan_write(in, workspace.mutable_data_ptr(), record, made.output(), device.stream()));
  return made.tuple();
}

Plan transpose(const Tensor& coef, const Tensor& src, const Tensor& row_ptr, const Tensor& row_node,
               const Tensor& group_ptr, const Tensor& group_weight, const Tensor& tile_ptr,
               int64_t num_nodes, int64_t num_sources) {
  const PlanTensors given{coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr};
  check_floating(coef, "coef");
  check_plan(given, coef);
  SPLINECNN_REQUIRE(num_sources >= 0, "num_sources must not be negative, got ", num_sources);
  const Device device(coef);
  TransposeInput in{};
  in.dtype = dtype_of(coef);
  in.plan = view(given, num_nodes);
  in.num_sources = int32_t(num_sources);
  in.tiles = int32_t(tile_count(num_sources));
  in.tile_size = int32_t(tile_size(num_sources, in.tiles));
  const Tensor largest = make(coef, {1}, ScalarType::Int);
  device.check(largest_weight(in.plan, largest.mutable_data_ptr<int32_t>(), device.stream()));
  in.num_weights = device.read<int32_t>(largest.const_data_ptr()) + 1;

  const Tensor workspace = bytes(coef, transpose_workspace(in));
  PlanRecord record;
  device.check(transpose_sort(in, workspace.mutable_data_ptr(), &record, device.stream()));
  if (record.bad_source != NOTHING_BAD)
    fail_index("src", device.read<int32_t>(in.plan.src + record.bad_source), num_sources,
               int64_t(record.bad_source));
  const NewPlan made(coef, record, in.tiles);
  device.check(
      transpose_write(in, workspace.mutable_data_ptr(), record, made.output(), device.stream()));
  return made.tuple();
}

}  // namespace
}  // namespace splinecnn::cuda::ops

SPLINECNN_CUDA_LIBRARY(library) {
  library.impl("basis", TORCH_BOX(&splinecnn::cuda::ops::basis));
  library.impl("basis_grad", TORCH_BOX(&splinecnn::cuda::ops::basis_grad));
  library.impl("plan", TORCH_BOX(&splinecnn::cuda::ops::plan));
  library.impl("transpose", TORCH_BOX(&splinecnn::cuda::ops::transpose));
}
