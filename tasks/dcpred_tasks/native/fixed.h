// The int16 quantised walk down the tree (engine/packing.py): rows become int16, and are multiplied with the centres of a node,
// two features at a time, by an instruction with twice the throughput.
//
// Sums are exact and do not depend on their order. Rows that it cannot decide go on in single precision.
#pragma once
#include "walk.h"

constexpr float MAGIC = 12582912.0f;      // 1.5 · 2²³: a float near it ends in the bits of the nearest integer
constexpr int ROWS = 8;                   // rows that walk together
constexpr int64_t FIXED_STRIP = 1 << 12;  // features of rows quantised while they are in first-level cache
// Units of (‖x‖ + ‖c‖)² that two scores may be off by beside their products: 4 as in `margin`, and 30 each for the bits that hold the
// number of a lane.
constexpr double ROUNDING = 64;

// -- rows -------------------------------------------------------------------------------------------------------------------

INLINE Ints rounded_bits(const float *x, Floats scale) { return bits_as<Ints>(fma(load(x), scale, every(MAGIC))); }

// numbers[width (at + r) : …] = x · FIXED_NORM / ‖x‖, rounded, for n rows x of `width` features. Undefined where ‖x‖ is not below
// ROOT_OF_HUGE, or not above its inverse.
INLINE void to_fixed(const float *rows, int64_t n, int64_t width, const float *norms, int16_t *numbers) {
    typedef Lanes<int16_t, 2 * LANE_COUNT> Shorts;
    for (int64_t r = 0; r < n; r++) {
        const Floats scale = every((float)FIXED_NORM / __builtin_sqrtf(norms[r]));
        const float *x = rows + r * width;
        int16_t *target = numbers + r * width;
        int64_t j = 0;
        for (; j + 2 * LANES <= width; j += 2 * LANES) {
            Shorts first = bits_as<Shorts>(rounded_bits(x + j, scale)), second = bits_as<Shorts>(rounded_bits(x + j + LANES, scale));
            store_as(target + j, (Shorts)__builtin_shufflevector(first, second, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                                                 32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62));
        }
        for (; j < width; j += LANES)
            store_as(target + j, __builtin_convertvector(rounded_bits(x + j, scale), Lanes<int16_t, LANE_COUNT>));
    }
}

// The rows at room.address, quantised in room.numbers, and ‖z‖² in room.norm.
INLINE void load_fixed(const Packed &p, const Source &source, int64_t n, const Room &room) {
    const int64_t at_once = most(FIXED_STRIP / p.width, 1);
    for (int64_t first = 0; first < n; first += at_once) {
        const int64_t rows = least(at_once, n - first);
        load_centred(p, source, rows, room.address.from(first), room.norm.from(first), room.rows, room);
        to_fixed(room.rows.data, rows, p.width, room.norm.at(first, rows), room.numbers.at(first * p.width, rows * p.width));
    }
}

// -- rows × centres ---------------------------------------------------------------------------------------------------------

struct Best {
    Floats first, second;
};
// The largest and the second of what two of them hold in each lane.
INLINE Best best_of(Best one, Best other) {
    Ints above = one.first > other.first;
    Floats first = above ? one.first : other.first, second = above ? other.first : one.first;
    second = one.second > second ? one.second : second;
    return {first, other.second > second ? other.second : second};
}
INLINE Best best_of(Floats one, Floats other) {
    Ints above = one > other;
    return {above ? one : other, above ? other : one};
}
// Lanes whose number i has i % (2 · width) < width of two vectors, and the others.
template <int width> constexpr int low_lane(int i) { return i / width * 2 * width + i % width; }
template <int width> constexpr int high_lane(int i) { return low_lane<width>(i) + width; }
template <int width> INLINE Floats low_lanes(Floats a, Floats b) { return __builtin_shufflevector(a, b, ORDER(low_lane<width>)); }
template <int width> INLINE Floats high_lanes(Floats a, Floats b) { return __builtin_shufflevector(a, b, ORDER(high_lane<width>)); }
template <int width> INLINE Best halved(Best a, Best b) {
    return best_of(Best{low_lanes<width>(a.first, b.first), low_lanes<width>(a.second, b.second)},
                   Best{high_lanes<width>(a.first, b.first), high_lanes<width>(a.second, b.second)});
}
template <int by> constexpr int beside(int i) { return i ^ by; }

// The largest and the second of 16 numbers in each of eight vectors, in lane 2 r and 2 r + 1 of vector r. Halves of two vectors are
// exchanged, so that one comparison serves both, and so on: vectors become half as many, and what they hold of a vector half as long.
INLINE Best two_largest(const Floats (&scores)[ROWS]) {
    Best found[ROWS / 2];
    UNROLL
    for (int k = 0; k < ROWS / 2; k++)
        found[k] = best_of(low_lanes<8>(scores[2 * k], scores[2 * k + 1]), high_lanes<8>(scores[2 * k], scores[2 * k + 1]));
    Best both = halved<2>(halved<4>(found[0], found[1]), halved<4>(found[2], found[3]));
    Floats first = __builtin_shufflevector(both.first, both.first, ORDER(beside<1>));
    Floats second = __builtin_shufflevector(both.second, both.second, ORDER(beside<1>));
    return best_of(both, Best{first, second});
}

// Σ_j X_j C_tj in 16 lanes t for n rows, over an even number d of features; one group for all rows, or one for each. A line is
// prefetched in every turn, `step` bytes apart, where that is not 0.
template <int n, bool shared, bool ahead>
INLINE void whole_sums(Ints *total, const int32_t *const *x, const int32_t *const *groups, int64_t d, int64_t line, int64_t step) {
    Ints sums[n] = {};
    for (int64_t pair = 0; pair < d / 2; pair++) {
        UNROLL
        for (int r = 0; r < n; r++) {
            int32_t features;
            __builtin_memcpy(&features, x[r] + pair, sizeof features);
            sums[r] = pair_products(sums[r], every(features), load(groups[shared ? 0 : r] + pair * LANES));
        }
        if (ahead) {
            prefetch_line(line);
            line += step;
        }
    }
    UNROLL
    for (int r = 0; r < n; r++) total[r] = sums[r];
}

struct Level {  // one level down
    const Descent &of;
    const uint32_t *order;
    uint32_t *next_order;
    int64_t going, n_going, n_lost;  // rows in `order`, rows that went on, rows that cannot be decided

    // Rows `order[place(0)]` to `order[place(7)]`, which share a node or have one each.
    template <bool shared, bool ahead, class Place> INLINE_MEMBER void step(Place place, int64_t line, int64_t step) {
        const Packed &p = of.p;
        const Room &room = of.room;
        const int64_t size = p.group_features / 2 * LANES, width = p.width / 2;
        const int32_t *rows = (const int32_t *)room.numbers.data, *numbers = (const int32_t *)p.fixed.numbers.data, *x[ROWS], *groups[ROWS];
        int64_t number[ROWS], node[ROWS];
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            number[r] = order[place(r)], node[r] = shared && r ? node[0] : room.node.data[number[r]];
            CHECK(number[r] < of.n || !shared);
            x[r] = rows + number[r] * width, groups[r] = numbers + node[r] * size;
        }
        Ints total[ROWS];
        if (shared) {
            whole_sums<ROWS, true, ahead>(total, x, groups, p.group_features, line, step);
        } else {  // A group for each of more rows would need more registers for addresses.
            whole_sums<ROWS / 2, false, false>(total, x, groups, p.group_features, 0, 0);
            whole_sums<ROWS / 2, false, false>(total + ROWS / 2, x + ROWS / 2, groups + ROWS / 2, p.group_features, 0, 0);
        }
        Floats keys[ROWS];  // scores whose last four bits are the number of their lane
        const Ints lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        float norm[ROWS];
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            norm[r] = room.norm.data[number[r]];
            Floats products = __builtin_convertvector(total[r], Floats) * every(norm[r] * p.fixed.unit.data[node[r]]);
            Ints bits = bits_as<Ints>(products - load(p.half_norms.data + node[r] * LANES));
            keys[r] = bits_as<Floats>((bits & -LANE_COUNT) | lanes);
        }
        const Best best = two_largest(keys);
        float first[LANE_COUNT], second[LANE_COUNT];
        store_as(first, best.first), store_as(second, best.second);
        UNROLL
        for (int r = 0; r < ROWS; r++) enter(number[r], node[r], norm[r], first[2 * r], second[2 * r], shared || place(r) < going);
    }

    // Row i enters the child of the lane in `first`, or stays undecided.
    INLINE_MEMBER void enter(int64_t i, int64_t node, float norm, float first, float second, bool real) {
        const Packed &p = of.p;
        const float radius = p.radius.data[node], both = norm + radius, rounding = (float)(ROUNDING * UNIT) * (both * both);
        const bool alone = first - second > norm * (radius * p.fixed.error.data[node]) + rounding;
        const int64_t lane = __builtin_bit_cast(uint32_t, first) & (LANES - 1);
        const int32_t child = p.children.data[node * LANES + lane];
        of.room.node.data[i] = alone ? (uint32_t)child : (uint32_t)node;
        of.leaf.data[i] = (uint32_t)~child;
        next_order[n_going] = (uint32_t)i, of.room.undecided.data[n_lost] = (uint32_t)i;
        n_going += real && alone && child >= 0, n_lost += real && !alone;
    }
};

// Sort order[:n] by node into out, low ≤ node < high, and list where eight rows of one node begin, in room.shared, and the rows left
// over, in room.alone. A node of another level, which no tree has (Tree.check), counts as the last one: nothing is written elsewhere.
INLINE Lists by_node(const Room &room, const uint32_t *order, int64_t n, int64_t low, int64_t high, uint32_t *out) {
    int64_t *counts = room.counts.at(0, high - low + 1), n_shared = 0, n_alone = 0, first = 0;
    for (int64_t k = 0; k < high - low + 1; k++) counts[k] = 0;
    auto place = [&](int64_t r) {
        const uint64_t at = (uint64_t)(room.node[order[r]] - low), last = (uint64_t)(high - low - 1);
        CHECK(at <= last);
        return (int64_t)(at < last ? at : last);
    };
    for (int64_t r = 0; r < n; r++) counts[place(r) + 1]++;
    for (int64_t k = 1; k < high - low + 1; k++) {
        const int64_t stop = first + counts[k];
        for (; stop - first >= ROWS; first += ROWS) room.shared[n_shared++] = first;
        for (; first < stop; first++) room.alone[n_alone++] = first;
        counts[k] = stop;
    }
    for (int64_t r = 0; r < n; r++) out[counts[place(r)]++] = order[r];
    return {n_shared, n_alone};
}

// Walk rows room.order[:active] of a tile down from the root; returns how many go on in single precision: room.order[:…], each
// at its node in room.node.
NOINLINE int64_t walk_fixed(const Descent of, int64_t active) {
    const Packed &p = of.p;
    const Room &room = of.room;
    const int64_t n = of.n, row = of.source.itemsize * p.n_features;
    uint32_t *order = room.order.at(0, n + 1), *next_order = room.next_order.at(0, n + 1);
#ifdef DCPRED_CHECKED
    p.fixed.numbers.at(0, p.radius.size * p.group_features * LANES), p.half_norms.at(0, p.radius.size * LANES);
    p.children.at(0, p.radius.size * LANES), p.fixed.unit.at(0, p.radius.size), p.fixed.error.at(0, p.radius.size);
    room.numbers.at(0, (n + 1) * p.width), room.node.at(0, n + 1), room.norm.at(0, n + 1), room.undecided.at(0, n + 1);
    of.leaf.at(0, n + 1);
#endif
    const int64_t ahead = of.source.address + (of.start + n) * of.source.stride;
    const int64_t step = row <= LONG_ROW_BYTES ? row * ROWS / (p.group_features / 2) : 0;
    int64_t going = 0, n_lost = 0;
    for (int64_t r = 0; r < active; r++) {
        const uint32_t i = order[r];
        if (room.norm[i] > (float)(1 / ROOT_OF_HUGE)) order[going++] = i;
        else room.undecided[n_lost++] = i;
    }
    for (int64_t level = 0; going > 0; level++) {
        const Lists lists = by_node(room, order, going, p.fixed.span[2 * level], p.fixed.span[2 * level + 1], next_order);
        // Places from `going` on hold no row, and are not counted.
        next_order[going] = (uint32_t)n, room.node[n] = 0;
        for (int64_t k = lists.n_alone; k < rounded_up(lists.n_alone, ROWS); k++) room.alone[k] = going;
        Level down = {of, next_order, order, going, 0, n_lost};
        const bool prefetching = step > level * LINE;  // A line of each step on every level.
        int64_t line = ahead + level * LINE;
        for (int64_t k = 0; k < lists.n_shared; k++) {
            const int64_t first = room.shared[k];
            auto place = [&](int r) { return first + r; };
            if (prefetching) down.step<true, true>(place, line, step);
            else down.step<true, false>(place, 0, 0);
            line += step * (p.group_features / 2);
        }
        for (int64_t k = 0; k < lists.n_alone; k += ROWS) {
            const int64_t *alone = room.alone.at(k, ROWS);
            down.step<false, false>([&](int r) { return alone[r]; }, 0, 0);
        }
        going = down.n_going, n_lost = down.n_lost;
    }
    room.state[0] = going, room.state[1] = n_lost;
    for (int64_t k = 0; k < n_lost; k++) room.order[k] = room.undecided[k];
    return n_lost;
}
