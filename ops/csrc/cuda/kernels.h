// What the binding may ask of the CUDA kernels: raw device pointers, a stream, an error code back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../basis.h"

namespace splinecnn::cuda {

enum class Dtype { float32, float64, float16, bfloat16 };

// Target nodes per tile. Rows of a group have different nodes, so a group has at most TILE rows.
constexpr int TILE = 32;

// A plan on the device (see Plan in ops/spline.py).
struct PlanView {
  const void* coef;
  const int32_t *src, *row_ptr, *row_node, *group_ptr, *group_weight, *tile_ptr;
  int64_t entries;
  int32_t rows, groups, tiles, tile_size;
};

// The arrays that `plan` and `transpose` fill.
struct PlanOutput {
  void* coef;
  int32_t *src, *pair, *row_ptr, *row_node, *group_ptr, *group_weight, *tile_ptr;
};

constexpr uint64_t NOTHING_BAD = ~uint64_t(0);

// What the host reads back once: where the first bad value is, and how long the outputs are.
struct PlanRecord {
  uint64_t bad_pseudo;  // e * D + d
  uint64_t bad_source;  // e
  uint64_t bad_target;  // e
  int64_t entries, rows, groups;
};

struct PlanInput {
  Dtype dtype;
  Spline spline;
  const int64_t* edge_index;  // [2, E]
  const void* pseudo;         // [E, D]
  int64_t edges;
  int32_t num_nodes, num_sources, tiles, tile_size;
  bool mean, keep_zeros;
};

struct TransposeInput {
  Dtype dtype;
  PlanView plan;
  int32_t num_weights, num_sources, tiles, tile_size;
};

const char* error_text(int error);
int set_device(int device);
int read_back(void* host, const void* device, size_t bytes, void* stream);  // waits for the stream

int basis(Dtype, const Spline&, const void* pseudo, int64_t edges, void* value, int64_t* index,
          uint64_t* first_bad, void* stream);
int basis_grad(Dtype, const Spline&, const void* grad, const void* pseudo, int64_t edges, void* out,
               void* stream);

// Sorting first, then the outputs: between the two the host learns their sizes from the record.
int64_t plan_workspace(const PlanInput&);
int plan_sort(const PlanInput&, void* workspace, PlanRecord* record, void* stream);
int plan_write(const PlanInput&, void* workspace, const PlanRecord&, const PlanOutput&,
               void* stream);
int largest_weight(const PlanView&, int32_t* largest, void* stream);
int64_t transpose_workspace(const TransposeInput&);
int transpose_sort(const TransposeInput&, void* workspace, PlanRecord* record, void* stream);
int transpose_write(const TransposeInput&, void* workspace, const PlanRecord&, const PlanOutput&,
                    void* stream);

struct ConvSizes {
  int32_t num_nodes, num_sources, num_weights, in, out;
};

int conv(Dtype, const PlanView&, const ConvSizes&, const void* x, const void* weight,
         const void* root, const void* bias, void* out, void* stream);
int64_t conv_weight_grad_workspace(Dtype, const PlanView&, const ConvSizes&);
int conv_weight_grad(Dtype, const PlanView&, const ConvSizes&, const void* grad, const void* x,
                     void* out, void* workspace, void* stream);
// `out` holds accumulators: float64 for float64, else float32.
int conv_coef_grad(Dtype, const PlanView&, const ConvSizes&, const void* grad, const void* x,
                   const void* weight, void* out, void* stream);

int gather(Dtype, const PlanView&, const ConvSizes&, const void* y, const void* bias, void* out,
           void* stream);
int gather_grad(Dtype, const PlanView&, const ConvSizes&, const void* grad, void* out,
                void* stream);
int gather_coef_grad(Dtype, const PlanView&, const ConvSizes&, const void* grad, const void* y,
                     void* out, void* stream);

struct SparseInput {
  Dtype dtype;
  bool wide;  // int64 indices, else int32
  const void *ptr, *index, *value;
  int64_t rows, nonzeros, columns;  // of the sparse matrix
  const void* dense;
  int64_t width;  // columns of the dense one
};

// Where ptr is not an ascending run from 0 to nonzeros, and where index lies outside.
struct SparseRecord {
  uint64_t bad_ptr, bad_index;
};

int check_rows(const SparseInput&, SparseRecord* record, void* stream);
int spmm(const SparseInput&, void* out, void* stream);
int64_t spmm_t_workspace(const SparseInput&);
int spmm_t(const SparseInput&, void* out, void* workspace, void* stream);

int64_t head_workspace(Dtype, int64_t rows, int64_t classes, int64_t k);
int head(Dtype, const void* x, const void* weight, const void* bias, int64_t rows, int64_t features,
         int64_t classes, int64_t k, void* value, int64_t* index, void* logsumexp, void* workspace,
         void* stream);

}  // namespace splinecnn::cuda
