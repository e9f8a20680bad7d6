// Raw rows with one-hot encoded features or missing indicators as rows of columns (model/one_hot.py), before they are
// converted like any others: in single precision where that holds the raw numbers exactly, else in double.
//
// A row is set to 0, then the columns of its categories to 1. The columns of 16 features are computed at once, without branches:
// the category of a row cannot be predicted, and one wrong guess takes as long as 16 features.
//
// In a model with missing values and without one-hot encoding a row is copied. A missing value of a feature that is not encoded
// stays NaN until the row is converted; indicators, which come last, are set in rows that have missing values.
#pragma once
#include "elements.h"
#include "engine_layout.h"

constexpr int64_t FEW_INDICATORS = 4;

template <class F> INLINE F *zero_row(const Packed &p, const Room &room, int64_t r, int64_t first) {
    F *row = (F *)room.columns.data + r * p.columns.stride;
    CHECK((char *)(row + p.columns.stride) <= (char *)(room.columns.data + room.columns.size));
    room.columns_at[r] = (int64_t)row;
    for (int64_t j = first; j < p.columns.stride; j += LANES) store_as(row + j, Lanes<F, LANE_COUNT>{});
    return row;
}

// Set what n features from f on set: their own column to their value, or that of their category to 1.
template <class T, int n> INLINE void set_columns(const Columns &columns, const Raw<T> *source, int64_t f, Held<T> *row) {
    typedef Held<T> F;
    typedef Lanes<int32_t, n> Whole;
    typedef Lanes<uint32_t, n> Unsigned;
    constexpr bool single = sizeof(F) == 4;
    Lanes<F, n> x = part<T, n>(source, f);
    Whole lowest = of<n>(columns.lowest.data, f), extent = of<n>(columns.extent.data, f), at = of<n>(columns.place_at.data, f);
    // A number that is too large for 32 bits, or not a number, becomes 0, and then counts as not whole.
    Whole number;
    if constexpr (single) {
        Unsigned bits = bits_as<Unsigned>(x);
        bits = bits << 1 < 0x4E800000u << 1 ? bits : Unsigned{};
        number = __builtin_convertvector(bits_as<Lanes<F, n>>(bits), Whole);
    } else {
        Lanes<uint64_t, n> bits = bits_as<Lanes<uint64_t, n>>(x);
        bits = bits << 1 < 0x41Dull << 53 ? bits : Lanes<uint64_t, n>{};
        number = __builtin_convertvector(bits_as<Lanes<F, n>>(bits), Whole);
    }
    Whole same = mask_of<n>(__builtin_convertvector(number, Lanes<F, n>) == x);
    // Unsigned, a number below the least category is above all of them.
    Unsigned above = bits_as<Unsigned>(number - lowest) | bits_as<Unsigned>(~same), most = bits_as<Unsigned>(extent);
    Whole index = at + bits_as<Whole>(above < most ? above : most);
    Lanes<F, n> value;
    if constexpr (single) value = extent == 0 ? x : every<Lanes<F, n>>((F)1);
    else value = __builtin_convertvector(extent, Lanes<int64_t, n>) == 0 ? x : every<Lanes<F, n>>((F)1);
    int32_t places[n];
    F values[n];
    store_as(places, index), store_as(values, value);
    UNROLL
    for (int lane = 0; lane < n; lane++) {
        int32_t column = columns.place[places[lane]];
        CHECK(column >= 0 && column < columns.stride);
        row[column] = values[lane];
    }
}

// Set the indicators of a row: sixteen at once where their features lie side by side, else one by one. Which way is the same for
// every row, and predicted; whether a feature is missing is not, and there is no branch on that.
template <class T> INLINE void set_indicators(const Columns &columns, const Raw<T> *source, Held<T> *row) {
    typedef Held<T> F;
    const int64_t n = columns.indicated.size;
    const int32_t *indicated = columns.indicated.data;
    for (int64_t k = 0; DCPRED_CHECKS && k < n; k++) CHECK(indicated[k] >= 0 && indicated[k] < columns.first.size);
    auto one = [&](int64_t k) {
        auto x = part<T, 1>(source, indicated[k]);
        row[k] = x[0] != x[0] ? (F)1 : (F)0;
    };
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES) {
        if (indicated[k + LANES - 1] - indicated[k] == LANES - 1) {
            auto x = part<T, LANE_COUNT>(source, indicated[k]);
            store_as(row + k, x != x ? every<Lanes<F, LANE_COUNT>>((F)1) : Lanes<F, LANE_COUNT>{});
        } else {
            for (int64_t own = k; own < k + LANES; own++) one(own);
        }
    }
    for (; k < n; k++) one(k);
}

// The columns of a row without encoded features: column d + k is the indicator of feature indicated[k].
template <class T> INLINE void copy_row(const Packed &p, const Room &room, const Raw<T> *source, int64_t r) {
    typedef Held<T> F;
    const int64_t d = p.n_features;
    // What is set to 0 begins with a whole vector; the row is copied over that.
    F *row = zero_row<F>(p, room, r, d & -LANES);
    bool missing = false;
    in_vectors(d, [&]<int n>(Count<n>) {
        Lanes<int32_t, n> seen = {};
        in_steps<n>(d, [&](int64_t f) {
            Lanes<F, n> x = part<T, n>(source, f);
            seen |= mask_of<n>(x != x);
            store_as(row + f, x);
        });
        missing = any<n>(seen);
    });
    // Few are set in any row: a wrong guess whether it has a missing value would take longer.
    if (missing || p.columns.indicated.size <= FEW_INDICATORS) set_indicators<T>(p.columns, source, row + d);
}

// The columns of a row with encoded features. Where a feature is not finite, or nearly too large for double precision, its first
// column is: NaN, or with missing values infinite.
template <class T, bool gaps> INLINE void encode_row(const Packed &p, const Room &room, const Raw<T> *source, int64_t r) {
    typedef Held<T> F;
    const int64_t d = p.n_features;
    const Columns &columns = p.columns;
    F *row = zero_row<F>(p, room, r, 0);
    in_vectors(d, [&]<int n>(Count<n>) { in_steps<n>(d, [&](int64_t f) { set_columns<T, n>(columns, source, f, row); }); });
    if constexpr (Element<T>::is_float) {
        if (!not_finite<T, false>(source, d)) return;
        if (!gaps) {
            row[0] = (F)__builtin_nan("");
            return;
        }
        F x = part<T, 1>(source, 0)[0], is_code = x == (F)columns.lowest[0] ? (F)1 : (F)0;
        row[0] = not_finite<T, true>(source, d) ? (F)__builtin_inf() : columns.extent[0] == 0 ? x : is_code;
        set_indicators<T>(columns, source, row + p.n_columns - columns.indicated.size);
    }
}

// The columns of at most a strip of rows into room.columns, and their addresses into room.columns_at.
NOINLINE void load_columns(const Packed &p, int64_t code, const int64_t *address, int64_t n, const Room &room) {
    if (p.gaps.double_.size > 0 && code < N_FLOATS) {
        for_float(code, [&](auto dtype) {
            typedef decltype(dtype) T;
            for (int64_t r = 0; r < n; r++) {
                const Raw<T> *source = (const Raw<T> *)address[r];
                if (p.columns.coded) encode_row<T, true>(p, room, source, r);
                else copy_row<T>(p, room, source, r);
            }
        });
        return;
    }
    for_dtype(code, [&](auto dtype) {
        typedef decltype(dtype) T;
        for (int64_t r = 0; r < n; r++) encode_row<T, false>(p, room, (const Raw<T> *)address[r], r);
    });
}
