#include <math.h>
#include <stdint.h>

/* A line of the cache, so that no vector of weights lies on two. */
#if defined(__GNUC__)
#define EDGEFOLD_ALIGNED __attribute__((aligned(64)))
#else
#define EDGEFOLD_ALIGNED
#endif
