// The engine's second pass: rows in the order of their leaves, from kernel values to decision values.
//
// Products with landmarks are computed for a strip of 64 sorted rows, as on the walk, or where features are few for 16 rows of one leaf.
// Decision values are always computed for 16 rows of one leaf, lanes being rows: a landmark, an output weight or a constant is one number
// for all lanes, so that nothing is summed across lanes and nothing is padded to them. Every lane is one chain of operations that depends
// on its row alone, and lanes past the last row of a leaf compute unused values.
#pragma once
#include "digits.h"

struct LeafTile {  // rows room.tile_sorted[:count] of the tile that begins with row `start`
    const Packed &p;
    const Source &source;
    int64_t start, count;
    const Out &out;
    const Room &room;
    int64_t n_redo;  // rows tile_sorted[:n_redo] go on in double precision
};
struct Strip {  // rows tile_sorted[at : at + n]
    int64_t at, n;
    bool wide, by_digits;
};

// -- kernel values ----------------------------------------------------------------------------------------------------------

// Columns of kernel values for the landmarks of groups first to last and 16 rows of few features, with the columns x of d features.
// Landmarks are the outer loop: their sums stay in registers; x is at most 2 KiB, in first-level cache.
template <class Form, bool wide>
INLINE void column_values(const Packed &p, const float *x, int64_t first, int64_t last, Floats norm, float *out) {
    constexpr Sum sum = Form::sum == SQUARES && !wide ? PRODUCTS : Form::sum;
    const int64_t d = p.group_features, size = d * LANES, known = Form::n_constants * LANES;
    const float *group = p.groups.at(first * size, (last - first) * size), *own = p.constants.at(first * known, (last - first) * known);
    for (; first < last; first++, group += size, own += known)
        for (int64_t lane = 0; lane < LANES; lane += AT_ONCE, out += AT_ONCE * LANES) {
            Floats total[AT_ONCE];
            against<sum>(total, x, group + lane, d);
            UNROLL
            for (int t = 0; t < AT_ONCE; t++) {
                Floats constants[Form::n_constants];
                UNROLL
                for (int k = 0; k < Form::n_constants; k++) constants[k] = every(own[k * LANES + lane + t]);
                store_as(out + t * LANES, Form::in_lanes(kernel_input<Form, wide>(total[t], norm, constants[0]), constants));
            }
        }
}

// The kernel values of n rows at group g of their leaves, from products of rows `first` on; n_bytes of each raw row to come are
// prefetched.
template <class Form, bool wide>
INLINE void group_values(const Packed &p, const Room &room, int64_t n, int64_t g, int64_t first, int64_t n_bytes) {
    constexpr int64_t known = Form::n_constants * LANES;
    for (int64_t r = 0; r < n; r++) {
        const int64_t leaf = room.node[r], group = p.group_at[leaf] + g;
        if (group >= p.group_at[leaf + 1]) continue;
        if (n_bytes > 0) prefetch(room.upcoming[r], 0, n_bytes);
        Floats constants[Form::n_constants];
        load_constants<Form>(constants, p.constants.at(group * known, known));
        Floats total = load(room.products.at((first + r) * LANES, LANES));
        Floats x = kernel_input<Form, wide>(total, every(room.norm[r]), constants[0]);
        store_as(room.e.at(r * p.row_values + g * LANES, LANES), Form::in_lanes(x, constants));
    }
}

// room.e[r · p.row_values : …]: the kernel values e of n rows at the landmarks of their leaves, which have from `fewest` to `largest`
// groups of 16.
INLINE void strip_values(const LeafTile &tile, const Strip &strip, int64_t n_upcoming, int64_t within, int64_t fewest, int64_t largest) {
    const Packed &p = tile.p;
    const Room &room = tile.room;
    const int64_t size = p.group_features * LANES, n = strip.n;
    const Amounts amounts = prefetch_amounts(p, tile.source);
    const Sum sum = p.absolute ? ABSOLUTE : strip.wide ? SQUARES : PRODUCTS;
    const int64_t pairs = sum == PRODUCTS && has_wide_vectors() ? fewest - fewest % 2 : 0;
    for (int64_t g = 0; g < largest;) {
        for (int64_t r = 0; r < n; r++) {
            const int64_t leaf = room.node[r];
            room.row_at[r] = r * p.width;
            room.centre_at[r] = least(p.group_at[leaf] + g, p.group_at[leaf + 1] - 1) * size;
        }
        const bool two = g < pairs;
        project<1>(p, room, p.groups, n, sum, two, {n_upcoming, g == 0 ? amounts.by_products : 0, within, 0});
        for_kernel(p, strip.wide, [&]<class Form, bool wide>() {
            group_values<Form, wide>(p, room, n, g, 0, g == 0 ? amounts.at_once : 0);
            if (two) group_values<Form, wide>(p, room, n, g + 1, room.products.size / 2 / LANES, 0);
        });
        g += two ? 2 : 1;
    }
}

// -- decision values --------------------------------------------------------------------------------------------------------

struct LeafTerms {
    int64_t m, first, last;  // landmarks, and products first to last; the numbers of both are multiples of 4
    const int64_t *left, *right;
    const float *weights;
};

// The sums of one output over landmarks and products, in four chains, for one would wait.
INLINE void column_sum(const LeafTerms &of, const float *e, float *out) {
    Floats total[UNROLLED] = {};
    for (int64_t j = 0; j < of.m; j += UNROLLED)
        UNROLL
        for (int u = 0; u < UNROLLED; u++) total[u] = fma(load(e + (j + u) * LANES), every(of.weights[j + u]), total[u]);
    const float *own = of.weights + of.m - of.first;
    for (int64_t q = of.first; q < of.last; q += UNROLLED)
        UNROLL
        for (int u = 0; u < UNROLLED; u++) {
            Floats product = load(e + of.left[q + u] * LANES) * load(e + of.right[q + u] * LANES);
            total[u] = fma(product, every(own[q + u]), total[u]);
        }
    store_as(out, (total[0] + total[1]) + (total[2] + total[3]));
}

template <int n> INLINE void column_sums_of(const LeafTerms &of, const float *e, int64_t stride, int64_t k, float *out) {
    Floats total[n] = {};
    const float *own = of.weights + k;
    auto add = [&](Floats value) __attribute__((always_inline)) {
        UNROLL
        for (int u = 0; u < n; u++) total[u] = fma(value, every(own[u]), total[u]);
        own += stride;
    };
    for (int64_t j = 0; j < of.m; j++) add(load(e + j * LANES));
    for (int64_t q = of.first; q < of.last; q++) add(load(e + of.left[q] * LANES) * load(e + of.right[q] * LANES));
    UNROLL
    for (int u = 0; u < n; u++) store_as(out + (k + u) * LANES, total[u]);
}
// The same for n outputs, rounded up to a multiple of 8: column k of `out`, `stride` weights to a term. Outputs are the outer loop: their
// sums stay in registers, and a kernel value or a product is loaded once for eight outputs.
INLINE void column_sums(const LeafTerms &of, const float *e, int64_t stride, int64_t n, float *out) {
    for (int64_t k = 0; k < n; k += AT_ONCE) {
        if (has_wide_vectors()) {
            column_sums_of<AT_ONCE>(of, e, stride, k, out);
        } else {
            column_sums_of<AT_ONCE / 2>(of, e, stride, k, out);
            column_sums_of<AT_ONCE / 2>(of, e, stride, k + AT_ONCE / 2, out);
        }
    }
}

// The sums of the terms for output k of the rows tile_sorted[at : at + n]; 0 for further lanes.
INLINE Doubles offsets(const LeafTile &tile, int64_t at, int64_t n, int64_t k) {
    double values[LANES] = {};
    for (int64_t r = 0; r < n; r++) values[r] = tile.out.offset[(tile.start + tile.room.tile_sorted[at + r]) * tile.p.n_outputs + k];
    return load(values);
}

INLINE Ints finite_lanes(Floats values) { return values - values == 0.0f; }

// Columns of results of the rows tile_sorted[at : at + n]: the constant of every output and its terms, plus the columns of room.sums for
// the outputs that the leaf has weights for, added in double precision. Returns the rows whose results are all finite, as bits.
INLINE uint32_t class_results(const LeafTile &tile, int64_t leaf, int64_t at, int64_t n, int64_t first, int64_t last) {
    const Packed &p = tile.p;
    const Room &room = tile.room;
    const int64_t k_outputs = p.n_outputs;
    const double *constants = p.constant.at(leaf * k_outputs, k_outputs);
    const float *sums = room.sums.at(0, (last - first) * LANES);
    const int64_t *present = p.present.at(first, last - first);
    float *out = room.results.at(0, k_outputs * LANES);
    const bool has_terms = tile.out.offset.size > 0;
    auto constant = [&](int64_t k) __attribute__((always_inline)) {
        return has_terms ? every(constants[k]) + offsets(tile, at, n, k) : every(constants[k]);
    };
    for (int64_t k = 0; k < k_outputs; k++) store_as(out + k * LANES, narrowed(constant(k)));
    for (int64_t k = 0; k < last - first; k++) {
        const int64_t output = present[k];
        CHECK(output >= 0 && output < k_outputs);
        store_as(out + output * LANES, narrowed(widened(load(sums + k * LANES)) + constant(output)));
    }
    Ints finite = every((int32_t)-1);
    for (int64_t k = 0; k < k_outputs; k++) finite &= finite_lanes(load(out + k * LANES));
    return bits_of(finite);
}

// The same of a regression, within the bounds of its leaf, in double precision.
INLINE uint32_t regression_results(const LeafTile &tile, int64_t leaf, int64_t at, int64_t n) {
    const Packed &p = tile.p;
    const double infinity = __builtin_inf(), low = p.bounded[leaf] ? p.bounds[2 * leaf] : -infinity;
    const double high = p.bounded[leaf] ? p.bounds[2 * leaf + 1] : infinity;
    Doubles values = widened(load(tile.room.sums.at(0, LANES))) + every(p.constant[leaf]);
    if (tile.out.offset.size > 0) values += offsets(tile, at, n, 0);
    const uint32_t finite = bits_of(__builtin_convertvector(values - values == 0.0, Ints));
    values = values > low ? values : every(low);
    store_as(tile.room.double_results.at(0, LANES), values < high ? values : every(high));
    return finite;
}

// out[start + numbers[r], k] = results[16 k + r] for r < n and every output k.
template <class T>
INLINE void write_columns(const LeafTile &tile, const Array<T> &results, int64_t at, int64_t n, const Array<T> &out) {
    const int64_t k_outputs = tile.p.n_outputs;
    for (int64_t r = 0; r < n; r++) {
        T *target = out.at((tile.start + tile.room.tile_sorted[at + r]) * k_outputs, k_outputs);
        const T *source = results.data + r;
        for (int64_t k = 0; k < k_outputs; k++) target[k] = source[k * LANES];
    }
}

// Decision values of at most 16 rows of one leaf: tile_sorted[at : at + n], in the buffers from `row` on. Rows whose results are not
// finite, or whose squares overflow, are done again in double precision: they are added to tile_sorted[:n_redo], over rows that are done.
INLINE void score_rows_of_leaf(LeafTile &tile, int64_t at, int64_t row, int64_t n, bool wide) {
    const Packed &p = tile.p;
    const Room &room = tile.room;
    const int64_t leaf = room.node[row], first = p.group_at[leaf], last = p.group_at[leaf + 1];
    const int64_t first_output = p.present_at[leaf], last_output = p.present_at[leaf + 1];
    LeafTerms terms = {p.n_landmarks[leaf], p.pair_at[leaf], p.pair_at[leaf + 1], p.left.data, p.right.data, nullptr};
    CHECK(terms.m >= 0 && terms.m <= (last - first) * LANES && terms.m % UNROLLED == 0);
    CHECK((terms.last - terms.first) % UNROLLED == 0 && last_output - first_output <= p.term_weights);
    for (int64_t q = terms.first; DCPRED_CHECKS && q < terms.last; q++)
        CHECK(least(p.left[q], p.right[q]) >= 0 && most(p.left[q], p.right[q]) < (last - first) * LANES);
    const int64_t n_weights = p.n_outputs == 1 ? 1 : (last_output - first_output + AT_ONCE - 1) / AT_ONCE * AT_ONCE;
    terms.weights = p.weights.at(p.weight_at[leaf], (terms.m + terms.last - terms.first) * n_weights);
    float *e = room.value_columns.at(0, (last - first) * LANES * LANES), *sums = room.sums.at(0, p.term_weights * LANES);
    const float *norm = room.norm.at(row, LANES);
    if (p.group_features <= FEW_FEATURES) {
        float *x = room.feature_columns.at(0, p.width * LANES);
        transpose_rows(room.rows.at(row * p.width, LANES * p.width), p.width, p.width / LANES, x);
        for_kernel(p, wide, [&]<class Form, bool wide_leaf>() { column_values<Form, wide_leaf>(p, x, first, last, load(norm), e); });
    } else {
        transpose_rows(room.e.at(row * p.row_values, LANES * p.row_values), p.row_values, last - first, e);
    }
    if (p.n_outputs == 1) column_sum(terms, e, sums);
    else column_sums(terms, e, n_weights, last_output - first_output, sums);
    uint32_t finite;
    if (p.regression) {
        finite = regression_results(tile, leaf, at, n);
        write_columns(tile, room.double_results, at, n, tile.out.doubles);
    } else {
        finite = class_results(tile, leaf, at, n, first_output, last_output);
        write_columns(tile, room.results, at, n, tile.out.singles);
    }
    finite &= bits_of(load(norm) < (float)HUGE);
    const uint32_t all = (1u << n) - 1;
    if ((finite & all) == all) return;
    for (int64_t r = 0; r < n; r++)
        if (!(finite >> r & 1)) room.tile_sorted[tile.n_redo++] = room.tile_sorted[at + r];
}

// -- strips -----------------------------------------------------------------------------------------------------------------

struct Upcoming {
    int64_t fewest, largest, count;
};
// The fewest and the most groups of landmarks that a leaf of these rows has, and the length of the list room.upcoming: what will be read a
// strip later. That is the raw rows, and the first group of landmarks of each leaf that is new there, in pieces as long as a raw row of
// products.
INLINE Upcoming look_ahead(const LeafTile &tile, const Strip &strip, int64_t within) {
    const Packed &p = tile.p;
    const Room &room = tile.room;
    const int64_t size = p.group_features * LANES * (int64_t)sizeof(float);
    const int64_t piece = most(tile.source.itemsize * p.group_features, LINE), end = tile.count - 1;
    Upcoming found = {p.groups.size, 0, strip.n};
    uint32_t known = room.node[strip.n - 1];
    for (int64_t r = 0; r < strip.n; r++) {
        const int64_t leaf = room.node[r], groups = p.group_at[leaf + 1] - p.group_at[leaf];
        found.fewest = least(found.fewest, groups), found.largest = most(found.largest, groups);
        const int64_t following = room.tile_sorted[least(strip.at + r + STRIP_ROWS, end)];
        const int64_t row = tile.source.address + (tile.start + following) * tile.source.stride;
        room.upcoming[r] = row - (row & within);
        if (room.leaf[following] == known) continue;
        known = room.leaf[following];
        const int64_t first = (int64_t)p.groups.data + p.group_at[known] * size;
        for (int64_t byte = 0; byte < size && found.count < 2 * STRIP_ROWS; byte += piece) room.upcoming[found.count++] = first + byte;
    }
    return found;
}

// Where the rows of a strip lie, and what they are centred on. Prefetches n_bytes of each of the rows that come a strip later; with within
// = LINE − 1 up to their last line, wherever in a line they begin.
INLINE void place_rows(const LeafTile &tile, const Strip &strip, int64_t n_bytes, int64_t within) {
    const Room &room = tile.room;
    const int64_t n = strip.n, stride = tile.source.stride, address = tile.source.address + tile.start * stride, length = tile.p.n_converted;
    const uint32_t *numbers = room.tile_sorted.at(strip.at, n), *later = room.tile_sorted.at(least(strip.at + STRIP_ROWS, tile.count - n), n);
    const uint32_t *leaves = room.leaf.data;
    uint32_t *own_leaf = room.node.at(0, n);
    int64_t *addresses = room.address.at(0, n), *centre_at = room.centre_at.at(0, n);
    for (int64_t r = 0; r < n; r++) {
        const int64_t i = numbers[r];
        const uint32_t leaf = leaves[i];
        own_leaf[r] = leaf, addresses[r] = address + i * stride, centre_at[r] = leaf * length;
        const int64_t following = address + later[r] * stride, before = following & within;
        prefetch(following - before, 0, before + n_bytes);
    }
}

INLINE void score_strip(LeafTile &tile, const Strip &strip) {
    const Packed &p = tile.p;
    const Room &room = tile.room;
    const bool few = p.group_features <= FEW_FEATURES;
    const int64_t row_bytes = tile.source.itemsize * p.n_features;
    // Rows of several leaves lie apart: the last line of one is not the first of the next.
    const int64_t within = p.radius.size > 0 ? LINE - 1 : 0;
    place_rows(tile, strip, few ? row_bytes : 0, few ? within : 0);
    Upcoming ahead = {0, 0, 0};
    if (!few) ahead = look_ahead(tile, strip, within);
    const Centres means = {p.leaf_factors.single, p.leaf_factors.double_, p.leaf_factors.step, p.means_high, p.means_low, p.means_centre};
    load_rows(p, tile.source, strip.n, means, room.centre_at, p.radius.size == 0 ? p.n_columns : 0, room.address, room.norm, room.rows, room);
    if (strip.by_digits) kernel_values_by_digits(p, strip.n, row_bytes, room);
    else if (ahead.largest > 0) strip_values(tile, strip, ahead.count, within, ahead.fewest, ahead.largest);
    int64_t first = 0;
    for (int64_t r = 1; r <= strip.n; r++)
        if (r == strip.n || r - first == LANES || room.node[r] != room.node[first]) {
            score_rows_of_leaf(tile, strip.at + first, first, r - first, strip.wide);
            first = r;
        }
}

// How many of the n sorted rows from `at` on to take: where the leaf of the last ones goes on behind them, it takes part with a multiple
// of 16 rows.
INLINE int64_t whole_groups(const Room &room, int64_t at, int64_t n) {
    const uint32_t leaf = room.leaf[room.tile_sorted[at + n]];
    int64_t own = 0;
    while (own < n && room.leaf[room.tile_sorted[at + n - 1 - own]] == leaf) own++;
    return own % LANES < n ? n - own % LANES : n;
}

// Score the rows of a tile: the first `by_digits` of them by int8 limbs, those up to `by_products` by products, the others, of wide leaves, by
// differences. Returns the new n_redo.
NOINLINE int64_t score_leaves(LeafTile tile, int64_t by_digits, int64_t by_products) {
    for (int64_t at = 0; at < tile.count;) {
        const bool wide = at >= by_products, digits = at < by_digits;
        const int64_t stop = digits ? by_digits : wide ? tile.count : by_products;
        int64_t rows = least(STRIP_ROWS, stop - at);
        if (rows == STRIP_ROWS && at + rows < tile.count) rows = whole_groups(tile.room, at, rows);
        score_strip(tile, {at, rows, wide, digits});
        at += rows;
    }
    return tile.n_redo;
}
