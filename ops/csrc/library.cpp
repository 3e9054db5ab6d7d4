// Every operator of the library, from the one list that C++ and Python share.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(splinecnn, library) {
  const char* const schemas[] = {
#include "../schemas.inc"
  };
  for (const char* schema : schemas) library.def(schema);
}
