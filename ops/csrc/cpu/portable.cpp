// The kernels with vectors of 16 bytes.
#define SPLINECNN_LEVEL portable
#define SPLINECNN_NAME "baseline"
#define SPLINECNN_BYTES 16
#include "kernels.inc"
