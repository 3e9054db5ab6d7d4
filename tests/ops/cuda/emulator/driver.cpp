// Runs every kernel once on a small random graph, for the sanitizers to watch; takes dtype names.
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "common.h"

using namespace splinecnn;
using namespace splinecnn::cuda;

namespace {

std::mt19937 generator(7);

// Exactly as long as it should be, so that one step further is seen.
template <typename V>
struct Array {
  int64_t size;
  std::unique_ptr<V[]> data;
  explicit Array(int64_t n) : size(n), data(new V[size_t(n)]) {}
  V* at() const { return data.get(); }
};

template <typename T>
Array<T> randoms(int64_t n, float low = -1, float high = 1) {
  Array<T> out(n);
  std::uniform_real_distribution<float> draw(low, high);
  for (int64_t i = 0; i < n; ++i) out.data[i] = narrow<T>(draw(generator));
  return out;
}

void expect(int error, const char* what) {
  if (error == 0) return;
  std::printf("%s: %s\n", what, error_text(error));
  std::exit(1);
}

constexpr int N = 40, E = 50, D = 2, IN = 33, OUT = 65;

template <typename T>
struct Made {
  Array<T> coef;
  Array<int32_t> src, pair, row_ptr, row_node, group_ptr, group_weight, tile_ptr;
  PlanRecord size;

  Made(const PlanRecord& size, int tiles)
      : coef(size.entries),
        src(size.entries),
        pair(size.entries),
        row_ptr(size.rows + 1),
        row_node(size.rows),
        group_ptr(size.groups + 1),
        group_weight(size.groups),
        tile_ptr(tiles + 1),
        size(size) {}
  PlanOutput output() const {
    return {coef.at(),     src.at(),       pair.at(),         row_ptr.at(),
            row_node.at(), group_ptr.at(), group_weight.at(), tile_ptr.at()};
  }
  PlanView view(int tiles, int tile_size) const {
    return {coef.at(),      src.at(),          row_ptr.at(),  row_node.at(),
            group_ptr.at(), group_weight.at(), tile_ptr.at(), size.entries,
            int(size.rows), int(size.groups),  tiles,         tile_size};
  }
};

template <typename T>
void run(Dtype dtype) {
  const Spline spline{D, 1, 4, 6, {2, 3}, {1, 3}};
  const int tiles = (N + TILE - 1) / TILE, tile_size = (N + tiles - 1) / tiles;
  const Array<T> pseudo = randoms<T>(E * D, 0, 1);
  Array<int64_t> edges(2 * E);
  for (int64_t e = 0; e < 2 * E; ++e) edges.data[e] = int64_t(generator() % N);

  const Array<T> value(E * spline.S);
  const Array<int64_t> index(E * spline.S);
  const Array<uint64_t> bad(1);
  expect(basis(dtype, spline, pseudo.at(), E, value.at(), index.at(), bad.at(), nullptr), "basis");
  const Array<T> pseudo_grad(E * D);
  expect(basis_grad(dtype, spline, value.at(), pseudo.at(), E, pseudo_grad.at(), nullptr),
         "basis_grad");

  const PlanInput in{dtype, spline, edges.at(), pseudo.at(), E,    N,
                     N,     tiles,  tile_size,  true,        false};
  const Array<char> plan_memory(plan_workspace(in));
  PlanRecord record;
  expect(plan_sort(in, plan_memory.at(), &record, nullptr), "plan_sort");
  const Made<T> made(record, tiles);
  expect(plan_write(in, plan_memory.at(), record, made.output(), nullptr), "plan_write");
  const PlanView plan = made.view(tiles, tile_size);

  const Array<int32_t> largest(1);
  expect(largest_weight(plan, largest.at(), nullptr), "largest_weight");
  const TransposeInput turn{dtype, plan, largest.data[0] + 1, N, tiles, tile_size};
  const Array<char> turn_memory(transpose_workspace(turn));
  expect(transpose_sort(turn, turn_memory.at(), &record, nullptr), "transpose_sort");
  const Made<T> turned(record, tiles);
  expect(transpose_write(turn, turn_memory.at(), record, turned.output(), nullptr),
         "transpose_write");
  const PlanView back = turned.view(tiles, tile_size);

  const ConvSizes size{N, N, spline.K, IN, OUT};
  const Array<T> x = randoms<T>(N * IN), weight = randoms<T>(spline.K * IN * OUT),
                 root = randoms<T>(IN * OUT), bias = randoms<T>(OUT), out(N * OUT),
                 weight_grad(spline.K * IN * OUT);
  expect(conv(dtype, plan, size, x.at(), weight.at(), root.at(), bias.at(), out.at(), nullptr),
         "conv");
  const Array<char> grad_memory(conv_weight_grad_workspace(dtype, plan, size));
  expect(conv_weight_grad(dtype, plan, size, out.at(), x.at(), weight_grad.at(), grad_memory.at(),
                          nullptr),
         "conv_weight_grad");
  const Array<Acc<T>> coef_grad(made.size.entries);
  expect(conv_coef_grad(dtype, plan, size, out.at(), x.at(), weight.at(), coef_grad.at(), nullptr),
         "conv_coef_grad");

  const Array<T> y = randoms<T>(N * spline.K * OUT), y_grad(N * spline.K * OUT),
                 narrow_grad(made.size.entries);
  expect(gather(dtype, plan, size, y.at(), bias.at(), out.at(), nullptr), "gather");
  expect(gather_grad(dtype, back, size, out.at(), y_grad.at(), nullptr), "gather_grad");
  expect(gather_coef_grad(dtype, plan, size, out.at(), y.at(), narrow_grad.at(), nullptr),
         "gather_coef_grad");

  constexpr int ROWS = 30, COLUMNS = 50, PER_ROW = 3;
  Array<int32_t> ptr(ROWS + 1), column(ROWS * PER_ROW);
  for (int i = 0; i <= ROWS; ++i) ptr.data[i] = i * PER_ROW;
  for (int i = 0; i < ROWS * PER_ROW; ++i) column.data[i] = int32_t(generator() % COLUMNS);
  const Array<T> number = randoms<T>(ROWS * PER_ROW), dense = randoms<T>(COLUMNS * 7),
                 product(ROWS * 7), turned_product(COLUMNS * 7);
  SparseInput sparse{dtype, false,          ptr.at(), column.at(), number.at(),
                     ROWS,  ROWS * PER_ROW, COLUMNS,  dense.at(),  7};
  const Array<SparseRecord> sparse_record(1);
  expect(check_rows(sparse, sparse_record.at(), nullptr), "check_rows");
  expect(spmm(sparse, product.at(), nullptr), "spmm");
  sparse.dense = product.at();
  const Array<char> sparse_memory(spmm_t_workspace(sparse));
  expect(spmm_t(sparse, turned_product.at(), sparse_memory.at(), nullptr), "spmm_t");

  constexpr int CLASSES = 70, BEST = 5;
  const Array<T> classes = randoms<T>(CLASSES * IN), class_bias = randoms<T>(CLASSES),
                 best(N * BEST), logsumexp(N);
  const Array<int64_t> best_index(N * BEST);
  const Array<char> head_memory(head_workspace(dtype, N, CLASSES, BEST));
  expect(head(dtype, x.at(), classes.at(), class_bias.at(), N, IN, CLASSES, BEST, best.at(),
              best_index.at(), logsumexp.at(), head_memory.at(), nullptr),
         "head");
}

}  // namespace

int main(int count, char** names) {
  for (int i = 1; i < count; ++i) {
    if (!std::strcmp(names[i], "float32")) run<float>(Dtype::float32);
    if (!std::strcmp(names[i], "float64")) run<double>(Dtype::float64);
    if (!std::strcmp(names[i], "float16")) run<__half>(Dtype::float16);
    if (!std::strcmp(names[i], "bfloat16")) run<__nv_bfloat16>(Dtype::bfloat16);
  }
  std::printf("clean\n");
}
