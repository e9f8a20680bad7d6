// Operations that some processors have natively, in code for all of them. Machine code links the processor's own function where it
// exists (dcpred_tasks.engine.machine_code), before anything is inlined; these definitions serve all others.
#pragma once
#include "engine_layout.h"

#define REPLACED extern "C" __attribute__((weak, noinline))

// Whether the processor does `pair_products` by one instruction.
REPLACED bool has_pair_products() { return false; }
// Whether 16 lanes of single precision are one register of 32.
REPLACED bool has_wide_vectors() { return false; }
// Whether there is a `digit_sums` for the processor, where the process may use it.
REPLACED bool has_digit_sums() { return false; }

// total + x₀c₀ + x₁c₁ in 16 lanes of 32 bits, where x and c hold two int16 in each. Sums of lanes that hold no row wrap around, as
// those of the instruction do.
REPLACED Ints pair_products(Ints total, Ints x, Ints c) {
    typedef Lanes<uint32_t, LANE_COUNT> Wrapping;
    Ints low = ((x << 16) >> 16) * ((c << 16) >> 16), high = (x >> 16) * (c >> 16);
    return bits_as<Ints>(bits_as<Wrapping>(total) + bits_as<Wrapping>(low) + bits_as<Wrapping>(high));
}

// Sums of products of int8 limbs (dcpred_tasks.engine.packing) of `blocks` times 16 rows and `groups` times 16 landmarks: a slow
// reference.
//
// rows     limbs of rows, each `stride` bytes after the other: three limbs of 64 features, and so on
// numbers  limbs of landmarks, as Digits.numbers
// out      for every group and block four times 16 rows of 16 landmarks: Σ Z₀W₀, Σ (Z₀W₁ + Z₁W₀), Σ (Z₀W₂ + Z₂W₀) and Σ Z₁W₁
REPLACED void digit_sums(const int8_t *rows, int64_t stride, int64_t blocks, const int8_t *numbers, int64_t groups, int64_t steps,
                         int32_t *out) {
    const int64_t square = LANES * LANES, row_step = PARTS * STEP, tile = LANES * STEP;
    for (int64_t i = 0; i < groups * blocks * PART_SUMS * square; i++) out[i] = 0;
    for (int64_t g = 0; g < groups; g++)
        for (int64_t r = 0; r < blocks * LANES; r++) {
            int32_t *place = out + (g * blocks + r / LANES) * PART_SUMS * square + r % LANES * LANES;
            for (int64_t s = 0; s < steps; s++)
                for (int64_t byte = 0; byte < STEP; byte++) {
                    const int8_t *z = rows + r * stride + s * row_step + byte;
                    const int8_t *w = numbers + (g * steps + s) * PARTS * tile + byte / 4 * STEP + byte % 4;
                    for (int64_t t = 0; t < LANES; t++)
                        for (int i = 0; i < PARTS; i++)
                            for (int j = 0; j < PARTS - i; j++)
                                place[(i == 1 && j == 1 ? 3 : i + j) * square + t] += z[i * STEP] * w[j * tile + 4 * t];
                }
        }
}
