// The work that both passes of the engine share: raw rows are converted, and multiplied with groups of 16 centres or landmarks.
//
// Lanes are centres. A row is broadcast against 16 of them, so that a product needs no sum across lanes. Every lane is one chain of
// fused multiply-adds in the order of the features: a row gets the same bits alone and among others.
#pragma once
#include "columns.h"
#include "conversion.h"
#include "kernels.h"
#include "native_ops.h"

constexpr int64_t LONG_ROW_BYTES = 1024;  // longest row that is prefetched here: beyond it the processor does it better by itself
constexpr int SHARED_ROWS = 8;            // rows that share one load of a group: 4 leave half of an AVX-512 unit idle
constexpr int OWN_ROWS = 4;               // rows with a group each: as many loads as products, and a register for every address

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// -- rows -------------------------------------------------------------------------------------------------------------------

NOINLINE void load_held(const Packed &p, int64_t code, int64_t n, const Centres &centres, const int64_t *at, int64_t look,
                        const int64_t *address, float *norm, float *rows) {
    if (p.gaps.double_.size > 0 && code < N_FLOATS) {
        for_float(code, [&](auto dtype) { convert_rows<decltype(dtype), true>(p, n, centres, at, look, address, norm, rows); });
        return;
    }
    for_dtype(code, [&](auto dtype) { convert_rows<decltype(dtype), false>(p, n, centres, at, look, address, norm, rows); });
}

// Convert the rows at n addresses into `rows`, row r less the centre that begins at element at[r]. Where features are skipped, the
// first `look` of each raw row, or of its columns, are searched for infinity, and for NaN unless it is a missing value. Rows with
// columns of encoded features and indicators are made a strip at a time.
INLINE void load_rows(const Packed &p, const Source &source, int64_t n, const Centres &centres, const Array<int64_t> &at, int64_t look,
                      const Array<int64_t> &address, const Array<float> &norm, const Array<float> &rows, const Room &room) {
    const bool through_columns = p.columns.first.size > 0;
    const int64_t code = through_columns ? (single_holds(source.code) ? SINGLE_CODE : DOUBLE_CODE) : source.code;
    const int64_t strip = through_columns ? STRIP_ROWS : most(n, 1);
    for (int64_t first = 0; first < n; first += strip) {
        const int64_t count = least(strip, n - first);
        const int64_t *where = address.at(first, count);
        if (through_columns) {
            load_columns(p, source.code, where, count, room);
            where = room.columns_at.at(0, count);
        }
        load_held(p, code, count, centres, at.at(first, count), look, where, norm.at(first, count),
                  rows.at(first * p.width, count * p.width));
    }
}

// -- products ---------------------------------------------------------------------------------------------------------------

// What is prefetched during products, for waiting for it later takes longer than the work here: the rows at the first `count` of
// the addresses room.upcoming, `bytes` for every feature, `more` at the end; and of several phases this one: every phases-th line.
struct Ahead {
    int64_t count, bytes, more, phase;
};

// Prefetching in every turn of a loop, row by row: every second line from byte `low` to `high`, and with one phase the line after it,
// too. More lines in a turn would wait for each other, and fewer would come too late.
template <int phases> struct Prefetch {
    const int64_t *upcoming;
    int64_t low, high, offset;

    INLINE_MEMBER void operator()() {
        const int64_t where = *upcoming + offset;
        prefetch_line(where), prefetch_line(where + (2 - phases) * LINE);
        const int64_t following = offset + 2 * LINE;
        const bool over = following >= high;
        upcoming += over;
        offset = over ? low : following;
    }
};
struct NoPrefetch {
    INLINE_MEMBER void operator()() {}
};

template <Sum sum> INLINE Floats with_feature(Floats x, Floats centre, Floats total) {
    if (sum == PRODUCTS) return fma(x, centre, total);
    Floats difference = x - centre;
    return sum == SQUARES ? fma(difference, difference, total) : total + magnitude(difference);
}

// Sums over features first ≤ j < last of n rows and groups of 16 centres, added to out[r] where `first` is not 0. With n_groups
// = 2, feature by feature for the group that begins `apart` elements later, too, into what lies out_apart later. Rows share
// `centres[0]`, or have one each. Features are the outer loop: sums stay in registers, and a line of a shared group is read once.
template <Sum sum, int n, int n_groups, bool shared, class Between>
INLINE void add_features(const float *const (&x)[n], const float *const (&centres)[n], float *const (&out)[n], int64_t first, int64_t last,
                         int64_t apart, int64_t out_apart, Between &between) {
    Floats total[n_groups][n];
    UNROLL
    for (int g = 0; g < n_groups; g++)
        UNROLL
        for (int r = 0; r < n; r++) total[g][r] = first ? load(out[r] + g * out_apart) : Floats{};
    for (int64_t j = first; j < last; j += 2) {
        UNROLL
        for (int u = 0; u < 2; u++)
            UNROLL
            for (int g = 0; g < n_groups; g++)
                UNROLL
                for (int r = 0; r < n; r++) {
                    Floats centre = load(centres[shared ? 0 : r] + g * apart + (j + u) * LANES);
                    total[g][r] = with_feature<sum>(every(x[r][j + u]), centre, total[g][r]);
                }
        between();
    }
    UNROLL
    for (int g = 0; g < n_groups; g++)
        UNROLL
        for (int r = 0; r < n; r++) store_as(out[r] + g * out_apart, total[g][r]);
}

struct Projection {  // what products are computed of
    const float *rows, *centres;
    const int64_t *row_at, *centre_at;
    float *products;
    int64_t first, last;

    template <Sum sum, int n, int n_groups, bool shared, class Number, class Between>
    INLINE_MEMBER void sums(Number number, int64_t apart, int64_t out_apart, Between &between) const {
        const float *x[n], *c[n];
        float *out[n];
        UNROLL
        for (int r = 0; r < n; r++) {
            const int64_t i = number(r);
            x[r] = rows + row_at[i], c[r] = centres + centre_at[i], out[r] = products + i * LANES;
        }
        add_features<sum, n, n_groups, shared>(x, c, out, first, last, apart, out_apart, between);
    }
    // Rows at, at + 1, … with the group of row `at`: four and four where eight sums of 16 lanes take all registers.
    template <Sum sum, int n_groups, class Between>
    INLINE_MEMBER void shared(int64_t at, int64_t apart, int64_t out_apart, Between &between) const {
        NoPrefetch none;
        if (has_wide_vectors()) {
            sums<sum, SHARED_ROWS, n_groups, true>([&](int r) { return at + r; }, apart, out_apart, between);
        } else {
            sums<sum, SHARED_ROWS / 2, n_groups, true>([&](int r) { return at + r; }, apart, out_apart, between);
            sums<sum, SHARED_ROWS / 2, n_groups, true>([&](int r) { return at + SHARED_ROWS / 2 + r; }, apart, out_apart, none);
        }
    }
    // The same sums, to the same bits, of eight rows index[0], …, each with a group of its own.
    template <Sum sum> INLINE_MEMBER void alone(const int64_t *index) const {
        NoPrefetch none;
        UNROLL
        for (int start = 0; start < SHARED_ROWS; start += OWN_ROWS)
            sums<sum, OWN_ROWS, 1, false>([&](int r) { return index[start + r]; }, 0, 0, none);
    }
};

struct Lists {
    int64_t n_shared, n_alone;
};

// List where eight rows of one group begin, in room.shared, and the rows left over, in room.alone.
INLINE Lists shared_and_own(const Room &room, int64_t n) {
    int64_t n_shared = 0, n_alone = 0, first = 0;
    for (int64_t r = 1; r <= n; r++) {
        if (r < n && room.centre_at[r] == room.centre_at[first]) continue;
        for (; r - first >= SHARED_ROWS; first += SHARED_ROWS) room.shared[n_shared++] = first;
        for (; first < r; first++) room.alone[n_alone++] = first;
    }
    room.row_at[n] = room.row_at[n - 1], room.centre_at[n] = room.centre_at[n - 1];
    // Slot n is never read. A real row, repeated, would get its products twice in the next slab.
    for (int64_t i = n_alone; i < rounded_up(n_alone, SHARED_ROWS); i++) room.alone[i] = n;
    return {n_shared, n_alone};
}

template <Sum sum> INLINE void distances(const Projection &of, const Room &room, const Lists &lists) {
    NoPrefetch none;
    for (int64_t i = 0; i < lists.n_shared; i++) of.shared<sum, 1>(room.shared[i], 0, 0, none);
    for (int64_t i = 0; i < lists.n_alone; i += SHARED_ROWS) of.alone<sum>(room.alone.at(i, SHARED_ROWS));
}

// room.products[16 r : 16 r + 16] of the row at row_at[r] with the group at centre_at[r], for r < n: what `sum` says. Rows of one
// group are side by side.
//
//     for slab of 256 features:
//         for eight rows of one group: Projection.shared over the slab
//         for eight of the other rows: Projection.alone over the slab
//
// Slabs are the outer loop: a group is read from first-level cache by all its rows. With `two` the same is done with the groups that
// follow, into the second half of room.products: a feature of a row is loaded once for both. For products alone, and where registers
// are many.
template <int phases>
NOINLINE void project(const Packed &p, const Room &room, const Array<float> &centres, int64_t n, Sum sum, bool two, const Ahead &ahead) {
    const Lists lists = shared_and_own(room, n);
    const int64_t d = p.group_features, size = d * LANES, half = room.products.size / 2, length = two ? SLAB / 2 : SLAB;
#ifdef DCPRED_CHECKED
    for (int64_t r = 0; r <= n; r++) {
        room.rows.at(room.row_at[r], d), centres.at(room.centre_at[r], two ? 2 * size : size);
        room.products.at(r * LANES, LANES), room.products.at((two ? half : 0) + r * LANES, LANES);
    }
#endif
    Projection of = {room.rows.data, centres.data, room.row_at.data, room.centre_at.data, room.products.data, 0, 0};
    for (int64_t slab = 0; slab < d; slab += length) {
        of.first = slab, of.last = least(slab + length, d);
        if (sum != PRODUCTS) {
            sum == SQUARES ? distances<SQUARES>(of, room, lists) : distances<ABSOLUTE>(of, room, lists);
            continue;
        }
        const int64_t low = slab * ahead.bytes + ahead.phase * LINE, high = of.last * ahead.bytes + ahead.more * (of.last == d);
        for (int64_t i = 0; i < lists.n_shared; i++) {
            const int64_t *upcoming = room.upcoming.at(i * ahead.count / lists.n_shared, 1);
            Prefetch<phases> prefetch = {upcoming, low, high, low};
            if (two) of.shared<PRODUCTS, 2>(room.shared[i], size, half, prefetch);
            else of.shared<PRODUCTS, 1>(room.shared[i], 0, 0, prefetch);
        }
        Projection second = of;
        second.centres += size, second.products += half;
        for (int64_t i = 0; i < lists.n_alone; i += SHARED_ROWS) {
            of.alone<PRODUCTS>(room.alone.at(i, SHARED_ROWS));
            if (two) second.alone<PRODUCTS>(room.alone.at(i, SHARED_ROWS));
        }
    }
}

struct Amounts {
    int64_t by_products, at_once;
};
// How raw rows are prefetched: bytes for every feature during products, or bytes at once for every row; one of the two is 0. All at
// once where features are skipped and the raw row is short: its products are few, and leave no time for prefetching between them.
// The same where features are encoded.
INLINE Amounts prefetch_amounts(const Packed &p, const Source &source) {
    if (p.picks.size == 0 && p.columns.first.size == 0) return {source.itemsize, 0};
    const int64_t row = source.itemsize * p.n_features;
    if (row <= LONG_ROW_BYTES) return {0, row};
    return {(row + p.group_features - 1) / p.group_features, 0};
}

// What 16 rows and each of eight centres or landmarks sum to, over d features. Lanes are rows: x[16 j : 16 j + 16] is feature j.
template <Sum sum> INLINE void against(Floats (&total)[AT_ONCE], const float *x, const float *group, int64_t d) {
    UNROLL
    for (int t = 0; t < AT_ONCE; t++) total[t] = Floats{};
    for (int64_t j = 0; j < d; j++) {
        Floats value = load(x + j * LANES);
        UNROLL
        for (int t = 0; t < AT_ONCE; t++) total[t] = with_feature<sum>(value, every(group[j * LANES + t]), total[t]);
    }
}

// out[16 j + r] = rows[stride r + j], r < 16, j < 16 squares.
INLINE void transpose_rows(const float *rows, int64_t stride, int64_t squares, float *out) {
    for (int64_t square = 0; square < squares; square++) {
        Floats v[LANE_COUNT];
        UNROLL
        for (int r = 0; r < LANE_COUNT; r++) v[r] = load(rows + square * LANES + stride * r);
        transpose(v);
        UNROLL
        for (int j = 0; j < LANE_COUNT; j++) store_as(out + (square * LANES + j) * LANES, v[j]);
    }
}
