// Chooses the SIMD level once, by what the processor can do and SPLINECNN_SIMD allows.
#include "dispatch.h"

#include <torch/csrc/stable/library.h>

#include <cstdlib>
#include <string>

#include "../checks.h"

namespace splinecnn::cpu {

namespace portable {
extern const Level LEVEL;
}
#ifdef SPLINECNN_X86
namespace avx2 {
extern const Level LEVEL;
}
namespace avx512 {
extern const Level LEVEL;
}
#endif

namespace {

const Level& choose() {
  const char* wish = std::getenv("SPLINECNN_SIMD");
  const std::string most = wish && *wish ? wish : "avx512";
  SPLINECNN_REQUIRE(most == "baseline" || most == "avx2" || most == "avx512",
                    "SPLINECNN_SIMD must be baseline, avx2 or avx512, got ", most);
#ifdef SPLINECNN_X86
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  if (most == "avx512" && has_avx512 && has_avx2) return avx512::LEVEL;
  if (most != "baseline" && has_avx2) return avx2::LEVEL;
#endif
  return portable::LEVEL;
}

std::string simd_level() { return level().name; }

}  // namespace

const Level& level() {
  static const Level& chosen = choose();
  return chosen;
}

}  // namespace splinecnn::cpu

STABLE_TORCH_LIBRARY_IMPL(splinecnn, CompositeExplicitAutograd, library) {
  library.impl("simd_level", TORCH_BOX(&splinecnn::cpu::simd_level));
}
