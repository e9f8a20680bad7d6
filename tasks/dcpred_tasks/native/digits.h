// Kernel values by int8 limbs: rows become integers of three limbs, like the landmarks of their leaf (engine/packing.py), and sums
// of products of limbs are exact.
#pragma once
#include "kernel_values.h"
#include "products.h"

constexpr int32_t MAGIC_BITS = 0x4B400000;     // of 1.5 · 2²³: a float near it ends in the bits of a rounded integer
constexpr float MOST_OF_A_ROW = 0x1p22f;       // the largest integer of a row
constexpr float LEAST_OF_A_ROW = 0x1p-100f;    // the least that counts as the largest feature: scales of less would overflow
constexpr int64_t ROW_STEP = PARTS * STEP;     // bytes of a row's limbs of a step

// The limbs of 64 features. With 128 added to each limb these are the bytes of an integer.
INLINE void step_digits(const float *x, Floats scale, int8_t *out) {
    Ints biased[STEP / LANES];
    UNROLL
    for (int i = 0; i < STEP / LANES; i++)
        biased[i] = bits_as<Ints>(fma(load(x + i * LANES), scale, every(12582912.0f))) + (0x808080 - MAGIC_BITS);
    UNROLL
    for (int part = 0; part < PARTS; part++) {
        const int byte = PARTS - 1 - part;
        Ints found = {};
        UNROLL
        for (int i = 0; i < STEP / LANES; i++) {
            Lanes<uint32_t, LANE_COUNT> bits = bits_as<Lanes<uint32_t, LANE_COUNT>>(biased[i]);
            bits = i > byte ? bits << 8 * (i - byte) : bits >> 8 * (byte - i);
            found |= bits_as<Ints>(bits & 0xFFu << 8 * i);
        }
        store_as(out + part * STEP, found ^ (int32_t)0x80808080);
    }
}

// Rows as limbs: those of row r from byte 192 steps r on, in steps of 64 features. Byte 4 l + i of a limb belongs to feature
// 16 i + l. units[r] = 2¹⁶ / scale, where scale multiplies the row. Past `width`, features are those of what follows in memory,
// and meet zeros among the limbs of landmarks.
INLINE void to_digits(const float *rows, int64_t n, int64_t width, int64_t steps, int8_t *digits, float *units) {
    for (int64_t r = 0; r < n; r++) {
        const float *x = rows + r * width;
        Floats largest = every(LEAST_OF_A_ROW);
        for (int64_t j = 0; j < width; j += LANES) {
            Floats size = magnitude(load(x + j));
            largest = size > largest ? size : largest;
        }
        Floats other = rotated<8>(largest);
        largest = largest > other ? largest : other, other = rotated<4>(largest);
        largest = largest > other ? largest : other, other = rotated<2>(largest);
        largest = largest > other ? largest : other, other = rotated<1>(largest);
        const float size = (largest > other ? largest : other)[0];
        units[r] = size * (0x1p16f / MOST_OF_A_ROW);
        const Floats scale = every(MOST_OF_A_ROW / size);
        for (int64_t s = 0; s < steps; s++) step_digits(x + s * STEP, scale, digits + (r * steps + s) * ROW_STEP);
    }
}

struct DigitSums {  // of `count` rows of a strip from `first` on, and a group of 16 landmarks
    const int32_t *sums;
    int64_t first, count, landmark, group, lane;  // where the group is in digits.unit, in p.groups, and in room.e
    int64_t low, high;                            // prefetched bytes of each later raw row
};

template <class Form> INLINE void digit_values(const Packed &p, const Room &room, const DigitSums &of) {
    const Floats unit = load(p.digits.unit.at(of.landmark, LANES));
    Floats constants[Form::n_constants];
    load_constants<Form>(constants, p.constants.at(of.group * Form::n_constants * LANES, Form::n_constants * LANES));
    for (int64_t r = 0; r < of.count; r++) {
        const int32_t *own = of.sums + r / LANES * (PART_SUMS * LANES * LANES) + r % LANES * LANES;
        Floats parts[3];
        UNROLL
        for (int k = 0; k < 3; k++) {
            Ints sums = load(own + k * LANES * LANES);
            if (k == 2) sums += load(own + 3 * LANES * LANES);
            parts[k] = __builtin_convertvector(sums, Floats);
        }
        const int64_t row = of.first + r;
        prefetch(room.upcoming[row], of.low, of.high);
        Floats smaller = fma(parts[2], every(0x1p-8f), parts[1]);
        Floats total = fma(smaller, every(0x1p-8f), parts[0]) * every(room.row_units[row]) * unit;
        Floats x = kernel_input<Form, false>(total, every(room.norm[row]), constants[0]);
        store_as(room.e.at(row * p.row_values + of.lane, LANES), Form::in_lanes(x, constants));
    }
}

// The kernel values of n rows of one leaf, from row `first` of the strip on.
NOINLINE void digit_values_of_leaf(const Packed &p, int64_t first, int64_t n, int64_t row_bytes, const Room &room) {
    const int64_t steps = p.digits.steps, leaf = room.node[first], group = p.group_at[leaf], groups = p.group_at[leaf + 1] - group;
    const int64_t own = p.digits.group_at[leaf], stride = steps * ROW_STEP, blocks = rounded_up(n, LANES) / LANES;
    const int64_t size = steps * ROW_STEP * LANES, square = PART_SUMS * LANES * LANES;
    const int8_t *rows = room.digits.at(first * stride, blocks * LANES * stride);
    const int64_t piece = rounded_up((row_bytes + groups - 1) / groups, LINE);  // bytes of a raw row for each group
    for (int64_t g = 0; g < groups; g += SUMMED_GROUPS) {
        const int64_t count = least(SUMMED_GROUPS, groups - g);
        const int8_t *numbers = p.digits.numbers.at((own + g) * size, count * size);
        int32_t *sums = room.digit_sums.at(0, count * blocks * square);
        digit_sums(rows, stride, blocks, numbers, count, steps, sums);
        for (int64_t k = 0; k < count; k++) {
            const int64_t at = g + k;
            DigitSums of = {sums + k * blocks * square, first, n, (own + at) * LANES, group + at, at * LANES, at * piece,
                            least((at + 1) * piece, row_bytes)};
            for_kernel(p, false, [&]<class Form, bool wide>() { digit_values<Form>(p, room, of); });
        }
    }
}

// room.e[r · p.row_values : …]: the kernel values e of n rows at the landmarks of their leaves. Meanwhile prefetches as many raw rows
// of row_bytes at room.upcoming.
INLINE void kernel_values_by_digits(const Packed &p, int64_t n, int64_t row_bytes, const Room &room) {
    const int64_t steps = p.digits.steps;
    to_digits(room.rows.at(0, n * p.width + STEP), n, p.width, steps, room.digits.at(0, n * steps * ROW_STEP), room.row_units.at(0, n));
    int64_t first = 0;
    for (int64_t r = 1; r <= n; r++)
        if (r == n || room.node[r] != room.node[first]) {
            digit_values_of_leaf(p, first, r - first, row_bytes, room);
            first = r;
        }
}
