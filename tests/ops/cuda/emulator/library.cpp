// The operators of the emulated kernels, from the one list of schemas.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(SPLINECNN_EMULATE_AS, library) {
  const char* const schemas[] = {
#include "schemas.inc"
  };
  for (const char* schema : schemas) library.def(schema);
}
