// From probabilities over landmarks to the points of the reference that explain them best.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "tensors.h"

namespace splinecnn::cpu {
namespace {

constexpr int64_t ROWS = 256;  // per piece of work

void check_indices(const Tensor& t, const char* name, int64_t bound) {
  const int64_t* index = data<int64_t>(t);
  for (int64_t i = 0; i < t.numel(); ++i)
    if (index[i] < 0 || index[i] >= bound) fail_index(name, index[i], bound, i);
}

// score [N, M]; the candidates of each landmark as compressed rows; landmark and value [R, S].
std::tuple<Tensor, Tensor> match(const Tensor& score, const Tensor& candidate_ptr,
                                 const Tensor& candidate, const Tensor& landmark,
                                 const Tensor& value, int64_t k) {
  check_dtype(score, "score", ScalarType::Float);
  check_dims(score, "score", 2, "[N, M]");
  check_ints(candidate_ptr, "candidate_ptr", score, ScalarType::Long);
  check_ints(candidate, "candidate", score, ScalarType::Long);
  check_dtype(landmark, "landmark", ScalarType::Long);
  check_dims(landmark, "landmark", 2, "[R, S]");
  check_like(value, "value", score, 2, "[R, S]");
  const int64_t N = score.size(0), M = score.size(1), R = landmark.size(0), S = landmark.size(1);
  check_size(candidate_ptr, "candidate_ptr", 0, M + 1);
  check_size(value, "value", 0, R);
  check_size(value, "value", 1, S);
  const Tensor flat_score = flat(score), flat_landmark = flat(landmark), flat_value = flat(value);
  const int64_t *ptr = data<int64_t>(candidate_ptr), *candidates = data<int64_t>(candidate);
  check_indices(candidate, "candidate", R);
  check_indices(flat_landmark, "landmark", M);
  SPLINECNN_REQUIRE(k >= 1, "k must be at least 1, got ", k);
  SPLINECNN_REQUIRE(ptr[0] == 0 && ptr[M] == candidate.size(0), "candidate_ptr must run from 0 to ",
                    candidate.size(0));
  for (int64_t m = 0; m < M; ++m)
    SPLINECNN_REQUIRE(ptr[m + 1] - ptr[m] >= k, "every landmark needs at least k = ", k,
                      " candidates, got ", ptr[m + 1] - ptr[m], " at ", m);

  Tensor out_index = make<int64_t>({N, k}), out_value = make<float>({N, k});
  const float *scores = data<float>(flat_score), *values = data<float>(flat_value);
  const int64_t* landmarks = data<int64_t>(flat_landmark);
  auto* index = writable<int64_t>(out_index);
  auto* best = writable<float>(out_value);
  for_each((N + ROWS - 1) / ROWS, [&](int64_t piece) {
    std::vector<std::pair<float, int64_t>> found;  // minus the match, so that sorting puts it first
    for (int64_t n = piece * ROWS; n < std::min(N, (piece + 1) * ROWS); ++n) {
      const float* row = scores + n * M;
      const int64_t top = std::max_element(row, row + M) - row;
      found.clear();
      for (int64_t c = ptr[top]; c < ptr[top + 1]; ++c) {
        const int64_t r = candidates[c];
        float sum = 0;
        for (int64_t s = r * S; s < (r + 1) * S; ++s) sum += row[landmarks[s]] * values[s];
        found.emplace_back(-sum, r);
      }
      std::partial_sort(found.begin(), found.begin() + k, found.end());
      for (int64_t i = 0; i < k; ++i) {
        index[n * k + i] = found[i].second;
        best[n * k + i] = -found[i].first;
      }
    }
  });
  return {out_index, out_value};
}

}  // namespace
}  // namespace splinecnn::cpu

STABLE_TORCH_LIBRARY_IMPL(splinecnn, CPU, library) {
  library.impl("match", TORCH_BOX(&splinecnn::cpu::match));
}
