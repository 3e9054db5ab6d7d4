// The kernels with vectors of 64 bytes.
#define SPLINECNN_LEVEL avx512
#define SPLINECNN_NAME "avx512"
#define SPLINECNN_BYTES 64
#include "kernels.inc"
