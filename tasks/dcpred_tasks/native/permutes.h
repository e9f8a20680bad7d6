// Look-ups in registers, native where a processor has them, as native_ops.h explains; elsewhere memory is read, lane by lane.
#pragma once
#include "vectors.h"

#define REPLACED extern "C" __attribute__((weak, noinline))

typedef Lanes<int16_t, 32> Shorts;

// Whether the processor has both look-ups.
REPLACED bool has_permutes() { return false; }
// Lane i is number index[i] % 32 of the 32 in two vectors.
REPLACED Floats permuted(Floats first, Floats second, Ints index) {
    Floats found;
    for (int i = 0; i < LANE_COUNT; i++) found[i] = index[i] & 16 ? second[index[i] & 15] : first[index[i] & 15];
    return found;
}
// Lane i is number index[i] % 64 of the 64 in two vectors.
REPLACED Shorts permuted_shorts(Shorts first, Shorts second, Shorts index) {
    Shorts found;
    for (int i = 0; i < 32; i++) found[i] = index[i] & 32 ? second[index[i] & 31] : first[index[i] & 31];
    return found;
}
