// The plan of a graph and of its reverse: entries sorted by (tile, weight, node), all on the
// device.
#include "basis_device.h"
#include "sort.h"

namespace splinecnn::cuda {
namespace {

// An entry's place as one number, and back. Dropped entries get `end`, which sorts last.
struct KeySpace {
  uint64_t num_weights, tile_size, end;

  __device__ uint64_t key(int node, int weight) const {
    return (node / tile_size * num_weights + weight) * tile_size + node % tile_size;
  }
  __device__ uint64_t group(uint64_t key) const { return key / tile_size; }
  __device__ int weight(uint64_t key) const { return int(group(key) % num_weights); }
  __device__ int node(uint64_t key) const {
    return int(group(key) / num_weights * tile_size + key % tile_size);
  }
};

KeySpace key_space(int64_t num_weights, int64_t tiles, int64_t tile_size) {
  return {uint64_t(num_weights), uint64_t(tile_size), uint64_t(tiles * num_weights * tile_size)};
}

// Row and group numbers of an entry, counted together in one scan.
__device__ inline uint64_t count_of(bool row, bool group) {
  return uint64_t(row) | uint64_t(group) << 32;
}
__device__ inline int row_of(uint64_t counted) { return int(counted & 0xffffffffu) - 1; }
__device__ inline int group_of(uint64_t counted) { return int(counted >> 32) - 1; }

__device__ inline bool outside(int64_t index, int bound) { return index < 0 || index >= bound; }

using Position = unsigned long long;

template <typename T>
__global__ void __launch_bounds__(THREADS)
    check_edges_kernel(const __grid_constant__ PlanInput in, int32_t* degree, PlanRecord* record) {
  const int64_t e = global_thread();
  if (e >= in.edges) return;
  const int64_t source = in.edge_index[e], target = in.edge_index[in.edges + e];
  const int d = first_outside(in.spline, static_cast<const T*>(in.pseudo) + e * in.spline.D);
  if (d >= 0)
    atomicMin(reinterpret_cast<Position*>(&record->bad_pseudo), Position(e * in.spline.D + d));
  if (outside(source, in.num_sources))
    atomicMin(reinterpret_cast<Position*>(&record->bad_source), Position(e));
  if (outside(target, in.num_nodes))
    atomicMin(reinterpret_cast<Position*>(&record->bad_target), Position(e));
  else if (in.mean)
    atomicAdd(&degree[target], 1);  // whole numbers: the order does not matter
}

// One thread per (edge, active function).
template <typename T>
__global__ void __launch_bounds__(THREADS)
    make_pairs(const __grid_constant__ PlanInput in, KeySpace space, const int32_t* degree, T* coef,
               uint64_t* keys, int32_t* payload) {
  const int64_t i = global_thread();
  if (i >= in.edges * in.spline.S) return;
  const int64_t e = i / in.spline.S, target = in.edge_index[in.edges + e];
  const T* pseudo = static_cast<const T*>(in.pseudo) + e * in.spline.D;
  payload[i] = int32_t(i);
  keys[i] = space.end;
  if (outside(target, in.num_nodes) || first_outside(in.spline, pseudo) >= 0) return;
  int p;
  Acc<T> value = basis_product(in.spline, pseudo, int(i % in.spline.S), &p);
  if (in.mean) value /= Acc<T>(degree[target]);
  coef[i] = narrow<T>(value);
  if (in.keep_zeros || widen(coef[i]) != 0) keys[i] = space.key(int(target), p);
}

__global__ void __launch_bounds__(THREADS)
    mark_starts(const uint64_t* keys, int64_t n, KeySpace space, uint64_t* counted) {
  const int64_t i = global_thread();
  if (i >= n) return;
  const uint64_t key = keys[i];
  const bool row = key < space.end && (i == 0 || keys[i - 1] != key);
  const bool group = row && (i == 0 || space.group(keys[i - 1]) != space.group(key));
  counted[i] = count_of(row, group);
}

__global__ void __launch_bounds__(THREADS)
    write_sizes(const uint64_t* keys, const uint64_t* counted, int64_t n, KeySpace space,
                PlanRecord* record) {
  if (threadIdx.x != 0) return;
  record->entries = lower_bound(keys, n, space.end);
  record->rows = n ? row_of(counted[n - 1]) + 1 : 0;
  record->groups = n ? group_of(counted[n - 1]) + 1 : 0;
}

// `source` is indexed by an entry's origin divided by `per_source`.
template <typename T, typename Index>
__global__ void __launch_bounds__(THREADS)
    write_entries(const uint64_t* keys, const int32_t* payload, const uint64_t* counted,
                  KeySpace space, PlanRecord size, const T* coef, const Index* source,
                  int per_source, PlanOutput out) {
  const int64_t i = global_thread();
  if (i == 0) {
    out.row_ptr[size.rows] = int32_t(size.entries);
    out.group_ptr[size.groups] = int32_t(size.rows);
  }
  if (i >= size.entries) return;
  const int32_t origin = payload[i];
  static_cast<T*>(out.coef)[i] = coef[origin];
  out.src[i] = int32_t(source[origin / per_source]);
  out.pair[i] = origin;
  const uint64_t before = i ? counted[i - 1] : 0, here = counted[i];
  if (row_of(before) != row_of(here)) {
    out.row_ptr[row_of(here)] = int32_t(i);
    out.row_node[row_of(here)] = space.node(keys[i]);
  }
  if (group_of(before) != group_of(here)) {
    out.group_ptr[group_of(here)] = row_of(here);
    out.group_weight[group_of(here)] = space.weight(keys[i]);
  }
}

__global__ void __launch_bounds__(THREADS)
    write_tiles(const uint64_t* keys, const uint64_t* counted, KeySpace space, PlanRecord size,
                int tiles, int32_t* tile_ptr) {
  const int64_t t = global_thread();
  if (t > tiles) return;
  const uint64_t first = uint64_t(t) * space.num_weights * space.tile_size;
  const int64_t i = lower_bound(keys, size.entries, first);
  tile_ptr[t] = i < size.entries ? group_of(counted[i]) : int32_t(size.groups);
}

// Target node and key of every entry of a plan, for its reverse.
__global__ void __launch_bounds__(THREADS)
    reverse_entries(const __grid_constant__ TransposeInput in, KeySpace space, int32_t* target,
                    uint64_t* keys, int32_t* payload, PlanRecord* record) {
  const int64_t i = global_thread();
  if (i >= in.plan.entries) return;
  const int row = int(segment_of(in.plan.row_ptr, in.plan.rows, int32_t(i)));
  const int group = int(segment_of(in.plan.group_ptr, in.plan.groups, int32_t(row)));
  const int source = in.plan.src[i];
  target[i] = in.plan.row_node[row];
  payload[i] = int32_t(i);
  keys[i] = space.end;
  if (outside(source, in.num_sources))
    atomicMin(reinterpret_cast<Position*>(&record->bad_source), Position(i));
  else
    keys[i] = space.key(source, in.plan.group_weight[group]);
}

__global__ void __launch_bounds__(THREADS)
    largest_kernel(const int32_t* values, int64_t n, int32_t* largest) {
  const int64_t i = global_thread();
  if (i < n) atomicMax(largest, values[i]);
}

// What plan and transpose keep between sorting and writing.
struct Arranged {
  SortBuffers sort;
  uint64_t* counted;
  PlanRecord* record;
};

Arranged carve_arranged(Carver& carver, int64_t n) {
  Arranged a{};
  a.sort = carve_sort(carver, n);
  a.counted = carver.take<uint64_t>(n);
  a.record = carver.take<PlanRecord>(1);
  return a;
}

int clear_record(Arranged& a, void* stream) {
  return int(cudaMemsetAsync(a.record, 0xff, sizeof(PlanRecord), cudaStream_t(stream)));
}

int arrange(Arranged& a, int64_t n, const KeySpace& space, PlanRecord* record, void* stream) {
  SPLINECNN_TRY(sort_pairs(a.sort, n, bits_of(space.end), stream));
  const uint64_t* keys = a.sort.keys[a.sort.current];
  if (n) {
    SPLINECNN_TRY(launch(mark_starts, dim3(blocks_for(n)), stream, keys, n, space, a.counted));
    SPLINECNN_TRY(inclusive_scan(a.counted, n, a.sort.sums, stream));
  }
  SPLINECNN_TRY(launch(write_sizes, dim3(1), stream, keys, a.counted, n, space, a.record));
  return read_back(record, a.record, sizeof(PlanRecord), stream);
}

// Which of the two buffers the sort ended in, known from the number of its passes.
void find_sorted(Arranged& a, int64_t n, const KeySpace& space) {
  if (n) a.sort.current = int(ceil_div(bits_of(space.end), 8) % 2);
}

template <typename T, typename Index>
int write(const Arranged& a, const KeySpace& space, const PlanRecord& size, int tiles,
          const T* coef, const Index* source, int per_source, const PlanOutput& out, void* stream) {
  const uint64_t* keys = a.sort.keys[a.sort.current];
  const int64_t threads = size.entries ? size.entries : 1;
  SPLINECNN_TRY(launch(write_entries<T, Index>, dim3(blocks_for(threads)), stream, keys,
                       a.sort.payload[a.sort.current], a.counted, space, size, coef, source,
                       per_source, out));
  return launch(write_tiles, dim3(blocks_for(int64_t(tiles) + 1)), stream, keys, a.counted, space,
                size, tiles, out.tile_ptr);
}

struct PlanMemory {
  Arranged arranged;
  int32_t* degree;
  void* coef;
  int64_t used;
};

PlanMemory carve_plan(const PlanInput& in, void* workspace) {
  const int64_t pairs = in.edges * in.spline.S;
  Carver carver(workspace);
  PlanMemory memory{};
  memory.arranged = carve_arranged(carver, pairs);
  memory.degree = carver.take<int32_t>(in.num_nodes);
  memory.coef = carver.take<double>(pairs);
  memory.used = carver.used();
  return memory;
}

struct TransposeMemory {
  Arranged arranged;
  int32_t* target;
  int64_t used;
};

TransposeMemory carve_transpose(const TransposeInput& in, void* workspace) {
  Carver carver(workspace);
  TransposeMemory memory{};
  memory.arranged = carve_arranged(carver, in.plan.entries);
  memory.target = carver.take<int32_t>(in.plan.entries);
  memory.used = carver.used();
  return memory;
}

}  // namespace

int64_t plan_workspace(const PlanInput& in) { return carve_plan(in, nullptr).used; }

int plan_sort(const PlanInput& in, void* workspace, PlanRecord* record, void* stream) {
  PlanMemory memory = carve_plan(in, workspace);
  const KeySpace space = key_space(in.spline.K, in.tiles, in.tile_size);
  const int64_t pairs = in.edges * in.spline.S;
  SPLINECNN_TRY(clear_record(memory.arranged, stream));
  SPLINECNN_TRY(int(cudaMemsetAsync(memory.degree, 0, sizeof(int32_t) * size_t(in.num_nodes),
                                    cudaStream_t(stream))));
  if (pairs) {
    SPLINECNN_TRY(dispatch(in.dtype, [&](auto zero) {
      using T = decltype(zero);
      SPLINECNN_TRY(launch(check_edges_kernel<T>, dim3(blocks_for(in.edges)), stream, in,
                           memory.degree, memory.arranged.record));
      return launch(make_pairs<T>, dim3(blocks_for(pairs)), stream, in, space, memory.degree,
                    static_cast<T*>(memory.coef), memory.arranged.sort.keys[0],
                    memory.arranged.sort.payload[0]);
    }));
  }
  return arrange(memory.arranged, pairs, space, record, stream);
}

int plan_write(const PlanInput& in, void* workspace, const PlanRecord& size, const PlanOutput& out,
               void* stream) {
  PlanMemory memory = carve_plan(in, workspace);
  const KeySpace space = key_space(in.spline.K, in.tiles, in.tile_size);
  find_sorted(memory.arranged, in.edges * in.spline.S, space);
  return dispatch(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    return write(memory.arranged, space, size, in.tiles, static_cast<const T*>(memory.coef),
                 in.edge_index, in.spline.S, out, stream);
  });
}

int largest_weight(const PlanView& plan, int32_t* largest, void* stream) {
  SPLINECNN_TRY(int(cudaMemsetAsync(largest, 0, sizeof(int32_t), cudaStream_t(stream))));
  if (plan.groups == 0) return 0;
  return launch(largest_kernel, dim3(blocks_for(plan.groups)), stream, plan.group_weight,
                int64_t(plan.groups), largest);
}

int64_t transpose_workspace(const TransposeInput& in) { return carve_transpose(in, nullptr).used; }

int transpose_sort(const TransposeInput& in, void* workspace, PlanRecord* record, void* stream) {
  TransposeMemory memory = carve_transpose(in, workspace);
  const KeySpace space = key_space(in.num_weights, in.tiles, in.tile_size);
  SPLINECNN_TRY(clear_record(memory.arranged, stream));
  if (in.plan.entries) {
    SPLINECNN_TRY(launch(reverse_entries, dim3(blocks_for(in.plan.entries)), stream, in, space,
                         memory.target, memory.arranged.sort.keys[0],
                         memory.arranged.sort.payload[0], memory.arranged.record));
  }
  return arrange(memory.arranged, in.plan.entries, space, record, stream);
}

int transpose_write(const TransposeInput& in, void* workspace, const PlanRecord& size,
                    const PlanOutput& out, void* stream) {
  TransposeMemory memory = carve_transpose(in, workspace);
  const KeySpace space = key_space(in.num_weights, in.tiles, in.tile_size);
  find_sorted(memory.arranged, in.plan.entries, space);
  return dispatch(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    return write(memory.arranged, space, size, in.tiles, static_cast<const T*>(in.plan.coef),
                 memory.target, 1, out, stream);
  });
}

}  // namespace splinecnn::cuda
