// The kernels with vectors of 32 bytes.
#define SPLINECNN_LEVEL avx2
#define SPLINECNN_NAME "avx2"
#define SPLINECNN_BYTES 32
#include "kernels.inc"
