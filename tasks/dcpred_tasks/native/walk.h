// The walk down the tree in single precision: the nearest child of a row, level by level.
#pragma once
#include "exact.h"
#include "products.h"

constexpr int64_t UNDECIDED = 1ll << 40;    // the child of a row that must walk in double precision
constexpr int64_t PREFETCHED_LEVELS = 2;    // levels on which rows to come are prefetched

// How far rounding may move two scores apart, for one row or for 16 in lanes: both products are off by at most `error` · ‖x‖‖c‖ / 2,
// both half norms by 3/2 units of ‖c‖², and distances that round to the same single count as a tie (exact.h).
template <class W> INLINE W margin(W norm, W radius, W error) {
    W both = norm + radius;
    return error * (norm * radius) + (float)(4 * UNIT) * (both * both);
}

INLINE float largest_lane(Floats v) {
    Floats other = rotated<8>(v);
    v = v > other ? v : other, other = rotated<4>(v);
    v = v > other ? v : other, other = rotated<2>(v);
    v = v > other ? v : other, other = rotated<1>(v);
    v = v > other ? v : other;
    return v[0];
}

// The child whose score alone is not below the floor; UNDECIDED where there are several, or none (a NaN).
INLINE int64_t child_above(Floats scores, float floor, const int32_t *children) {
    const uint32_t bits = bits_of(scores >= every(floor));
    const int lane = __builtin_ctz(bits | 1u << LANES) & (LANES - 1);
    const bool alone = (bits & (bits - 1)) == 0 && bits != 0;
    return alone ? (int64_t)children[lane] : UNDECIDED;
}

// The child of `node` with the largest product less half norm.
INLINE int64_t nearest_child(const Packed &p, Floats products, int64_t node, float norm) {
    Floats scores = products - load(p.half_norms.at(node * LANES, LANES));
    const float floor = largest_lane(scores) - margin(norm, p.radius[node], (float)p.error);
    return child_above(scores, floor, p.children.at(node * LANES, LANES));
}

// The child with the smallest squared distance, to which half_norms is added; centres are exact in single precision. x is off by at
// most 4 units of itself, √D by as much, and D by `error` / 2 of itself besides; what is added keeps clear of squares that underflow.
INLINE int64_t nearest_by_distance(const Packed &p, Floats squares, int64_t node, float norm) {
    Floats scores = -squares - load(p.half_norms.at(node * LANES, LANES));
    const float nearest = -largest_lane(scores), off = norm * (float)(10 * UNIT) + 1e-15f, more = 1.0f + (float)p.error;
    const float limit = __builtin_sqrtf(nearest) * more + off;
    return child_above(scores, -(limit * limit * more), p.children.at(node * LANES, LANES));
}

// The leaf of row i, which stands at a node, in double precision, or NOWHERE and its status.
NOINLINE uint32_t walk_in_double(const Exact &q, const Source &source, int64_t i, int64_t node, const Array<uint8_t> &status,
                                 const Room &room) {
    read_columns(q, source, i, room);
    if (exact_row(q, room.x)) return (uint32_t)exact_leaf(q, room.x, node);
    status[i] = NON_FINITE_FEATURE;
    return (uint32_t)NOWHERE;
}

// out[:n] = order[:n] sorted by keys[order], low ≤ key ≤ high; rows of equal keys keep their order.
INLINE void sort_by_key(const uint32_t *keys, const uint32_t *order, int64_t n, const Array<int64_t> &counted, int64_t low, int64_t high,
                        uint32_t *out) {
    int64_t *counts = counted.at(0, high - low + 2);
    for (int64_t k = 0; k < high - low + 2; k++) counts[k] = 0;
    for (int64_t i = 0; i < n; i++) counts[keys[order[i]] - low + 1]++;
    for (int64_t k = 0; k < high - low + 1; k++) counts[k + 1] += counts[k];
    for (int64_t i = 0; i < n; i++) out[counts[keys[order[i]] - low]++] = order[i];
}

struct Descent {  // n rows from `start` on
    const Packed &p;
    const Exact &q;
    const Source &source;
    int64_t start, n;
    const Array<uint32_t> &leaf;
    const Array<uint8_t> &status;
    const Room &room;
};

// The rows at n addresses in single precision, less the tree's origin, and ‖z‖² of each in norm.
INLINE void load_centred(const Packed &p, const Source &source, int64_t n, const Array<int64_t> &address, const Array<float> &norm,
                         const Array<float> &rows, const Room &room) {
    const Centres origin = {p.factor, p.double_factor, 0, p.origin_high, p.origin_low, p.origin_centre};
    load_rows(p, source, n, origin, room.zeros, p.n_columns, address, norm, rows, room);
}

// Walk rows room.order[:active] down from where they stand, lanes being centres. Rows to come are prefetched on the first levels,
// this one being number `level`.
INLINE void descend_wide(const Descent &of, int64_t active, int64_t level) {
    const Packed &p = of.p;
    const Room &room = of.room;
    uint32_t *order = room.order.at(0, of.n), *next_order = room.next_order.at(0, of.n);
    const int64_t n_nodes = p.radius.size, size = p.group_features * LANES;
    int64_t low = 0, high = level > 0 ? n_nodes - 1 : 0;
    const Amounts amounts = prefetch_amounts(p, of.source);
    const int64_t by_products = of.source.itemsize * p.n_features <= LONG_ROW_BYTES ? amounts.by_products : 0;
    const int64_t half_row = rounded_up(amounts.at_once / PREFETCHED_LEVELS, LINE);
    for (; active > 0; level++) {
        if (high > low && p.group_features > FEW_FEATURES) {
            sort_by_key(room.node.data, order, active, room.counts, low, high, next_order);
            uint32_t *sorted = next_order;
            next_order = order, order = sorted;
        }
        for (int64_t r = 0; r < active; r++) {
            room.row_at[r] = order[r] * p.width;
            room.centre_at[r] = room.node[order[r]] * size;
        }
        const bool ahead = level < PREFETCHED_LEVELS;
        project<PREFETCHED_LEVELS>(p, room, p.nodes, active, p.by_distances ? SQUARES : PRODUCTS, false,
                {active, ahead ? by_products : 0, 0, level});
        int64_t remaining = 0;
        low = n_nodes, high = 0;
        for (int64_t r = 0; r < active; r++) {
            const int64_t i = order[r], node = room.node[i];
            if (ahead) prefetch(room.upcoming[i], level * half_row, least((level + 1) * half_row, amounts.at_once));
            Floats sums = load(room.products.at(r * LANES, LANES));
            const int64_t child = p.by_distances ? nearest_by_distance(p, sums, node, room.norm[i]) : nearest_child(p, sums, node, room.norm[i]);
            if (child < 0) {
                of.leaf[i] = (uint32_t)~child;
            } else if (child == UNDECIDED) {
                of.leaf[i] = walk_in_double(of.q, of.source, of.start + i, node, of.status, room);
            } else {
                room.node[i] = (uint32_t)child;
                low = least(low, child), high = most(high, child);
                order[remaining++] = (uint32_t)i;
            }
        }
        active = remaining;
    }
}

// The first level of walk_rows for rows 0 to n, sixteen at a time, lanes being rows; returns how many go on. All rows begin at the
// root: a centre is one number for 16 rows, and the largest of 16 scores is found without a step across lanes. Up to 15 rows after
// the last one are read, and their `node` and `leaf` written.
NOINLINE int64_t walk_from_root(const Descent of) {
    const Packed &p = of.p;
    const Room &room = of.room;
    const int64_t n = of.n, d = p.group_features, width = p.width, padded = rounded_up(n, LANES);
    const float *rows = room.rows.at(0, padded * width), *nodes = p.nodes.at(0, d * LANES), *half_norms = p.half_norms.at(0, LANES);
    const float *norm = room.norm.at(0, padded);
    const int32_t *children = p.children.at(0, LANES);
    uint32_t *order = room.order.at(0, padded), *node = room.node.at(0, padded), *leaf = of.leaf.at(0, padded);
    float *x = room.feature_columns.at(0, width * LANES);
    const Floats radius = every(p.radius[0]), error = every((float)p.error);
    int64_t remaining = 0;
    for (int64_t r = 0; r < n; r += LANES) {
        transpose_rows(rows + r * width, width, width / LANES, x);
        Floats scores[LANE_COUNT];
        UNROLL
        for (int half = 0; half < LANE_COUNT; half += AT_ONCE) {
            Floats products[AT_ONCE];
            against<PRODUCTS>(products, x, nodes + half, d);
            UNROLL
            for (int t = 0; t < AT_ONCE; t++) scores[half + t] = products[t] - every(half_norms[half + t]);
        }
        Floats largest = scores[0];
        UNROLL
        for (int t = 1; t < LANE_COUNT; t++) largest = scores[t] > largest ? scores[t] : largest;
        const Floats floor = largest - margin(load(norm + r), radius, error);
        Ints child = {}, one = {}, more = {};
        UNROLL
        for (int t = 0; t < LANE_COUNT; t++) {
            Ints near = scores[t] >= floor;
            child = near ? every(children[t]) : child;
            more |= one & near, one |= near;
        }
        Ints placed = one & ~more;
        child = placed ? child : Ints{};
        store_as(node + r, child), store_as(leaf + r, ~child);  // ~0 is NOWHERE: no child is node 0
        const uint32_t further = bits_of(placed & (child >= 0));
        UNROLL
        for (int lane = 0; lane < LANE_COUNT; lane++) {
            order[remaining] = (uint32_t)(r + lane);
            remaining += r + lane < n ? further >> lane & 1 : 0;
        }
    }
    return remaining;
}

// Walk the rows order[:active] down by one level, row i from node[i] on. node[i] becomes the child, and leaf[i] its leaf if it is one;
// NOWHERE for a row that single precision cannot place. Rows that go on come first in `order`; returns how many they are.
NOINLINE int64_t walk_rows(const Descent of, int64_t active) {
    const Packed &p = of.p;
    const Room &room = of.room;
    const int64_t d = p.group_features, width = p.width;
    uint32_t *order = room.order.data, *node = room.node.data, *leaf = of.leaf.data;
    const float *rows = room.rows.data, *nodes = p.nodes.data, *norm = room.norm.data;
    int64_t remaining = 0;
    for (int64_t r = 0; r < active; r++) {
        const int64_t i = order[r], at = node[i];
        const float *row = rows + i * width, *group = nodes + at * d * LANES;
        Floats sums[2] = {};
        for (int64_t j = 0; j < d; j += 2)
            UNROLL
            for (int u = 0; u < 2; u++) sums[u] = fma(every(row[j + u]), load(group + (j + u) * LANES), sums[u]);
        const int64_t child = nearest_child(p, sums[0] + sums[1], at, norm[i]);
        node[i] = (uint32_t)child, leaf[i] = (uint32_t)~child;
        order[remaining] = (uint32_t)i;
        remaining += (uint64_t)child < (uint64_t)UNDECIDED;
    }
    return remaining;
}

// Walk rows of few features down: at the root lanes are rows, on the other levels centres.
INLINE void descend_few(const Descent &of, int64_t active) {
    if (active == of.n) active = walk_from_root(of);
    while (active > 0) active = walk_rows(of, active);
    for (int64_t i = 0; i < of.n; i++)
        if (of.leaf[i] == NOWHERE) of.leaf[i] = walk_in_double(of.q, of.source, of.start + i, 0, of.status, of.room);
}
