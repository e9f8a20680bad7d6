// Raw rows of any real dtype, converted, scaled and centred into a buffer of single precision.
//
//     z = (x − a) ∘ s,   a = μ + centre / s,   which is x' − centre without rounding x' first
//
// A dtype that single precision holds exactly is converted there, with a in two parts: (x − a_high) − a_low loses nothing that
// matters, however far from 0 the feature lies, and takes a third of the time of double precision. For the others it is
// (x − μ) ∘ s − centre in double precision, rounded once.
//
// A missing value is replaced while a row is converted, in the vector at hand, if the model has a marker for it. The value in
// its place is given in double precision, and as the sum of two single numbers: (g_high − a_high) − (a_low − g_low).
//
// A scaling may give features the factor 0: they add nothing, but for a NaN or an infinity, which spoils the row. Where they are
// many, the others are picked one by one into whole vectors; the whole row is looked at once. A row is read where it lies.
#pragma once
#include "elements.h"
#include "engine_layout.h"

struct Centres {  // the points that rows are centred on, and the factors of rows
    const Array<float> &factor;
    const Array<double> &double_factor;
    int64_t step;  // factors of a row begin at step · (where its centre begins)
    const Array<float> &high, &low, &middle;
};

struct RowFrame {  // what the features of one row are converted with
    const float *factor, *high, *low, *middle;
    const double *shift, *double_factor;
    const double *gap;
    const float *gap_high, *gap_low;
    float *target;
};

// z of n elements from element j on, stored and returned.
template <class T, bool gaps, int n> INLINE Lanes<float, n> converted(Lanes<Raw<T>, n> raw, const RowFrame &of_row, int64_t j) {
    Lanes<Held<T>, n> x = held<T, n>(raw);
    Lanes<float, n> z;
    if constexpr (Element<T>::in_single) {
        Lanes<float, n> rest = of<n>(of_row.low, j);
        if constexpr (gaps) {
            Lanes<int32_t, n> missing = x != x;
            rest = missing ? rest - of<n>(of_row.gap_low, j) : rest;
            x = missing ? of<n>(of_row.gap_high, j) : x;
        }
        z = ((x - of<n>(of_row.high, j)) - rest) * of<n>(of_row.factor, j);
    } else {
        typedef Lanes<double, n> D;
        D values = x;
        if constexpr (gaps) values = values != values ? of<n>(of_row.gap, j) : values;
        D scaled = (values - of<n>(of_row.shift, j)) * of<n>(of_row.double_factor, j);
        D middle = __builtin_convertvector(of<n>(of_row.middle, j), D);
        z = __builtin_convertvector(scaled - middle, decltype(z));
    }
    store_as(of_row.target + j, z);
    return z;
}

// ‖z‖² of a row of d features, which it converts n at a time. Nothing is read past its end: the last vector reads some features
// once more.
template <class T, bool gaps, int n> INLINE float convert_row(const Raw<T> *source, int64_t d, const RowFrame &of_row) {
    const int64_t stop = d & -n, tail = d - n;
    Lanes<float, n> squares = {};
    for (int64_t j = 0; j < stop; j += n) {
        Lanes<float, n> z = converted<T, gaps, n>(raw_part<T, n>(source, j), of_row, j);
        if constexpr (n == 1) squares = z * z + squares;
        else squares = fma(z, z, squares);
    }
    if constexpr (n > 1)
        if (stop != d) {
            Lanes<float, n> z = converted<T, gaps, n>(raw_part<T, n>(source, tail), of_row, tail);
            Lanes<int32_t, n> numbers;
            UNROLL
            for (int i = 0; i < n; i++) numbers[i] = i;
            z = numbers >= (int32_t)(stop - tail) ? z : Lanes<float, n>{};  // those that were not summed before
            squares = fma(z, z, squares);
        }
    return lane_sum(squares);
}

// The same of features picks[:length] of a row, loaded one by one: as fast as a gather instruction, where there is one, and
// faster where microcode against side channels makes that slow.
template <class T, bool gaps>
INLINE float convert_picked(const Raw<T> *source, const int32_t *picks, int64_t length, const RowFrame &of_row) {
    Floats squares = {};
    for (int64_t j = 0; j < length; j += LANES) {
        Lanes<Raw<T>, LANE_COUNT> raw = {};
        UNROLL
        for (int lane = 0; lane < LANE_COUNT; lane++) raw[lane] = raw_part<T, 1>(source, picks[j + lane])[0];
        Floats z = converted<T, gaps, LANE_COUNT>(raw, of_row, j);
        squares = fma(z, z, squares);
    }
    return lane_sum(squares);
}

template <class T, bool gaps>
INLINE void convert_rows(const Packed &p, int64_t n, const Centres &centres, const int64_t *at, int64_t look, const int64_t *address,
                         float *norm, float *rows) {
    const int64_t length = p.n_converted, width = p.width, d = p.n_columns;
    const int32_t *picks = p.picks.size > 0 ? p.picks.at(0, length) : nullptr;
    for (int64_t k = 0; DCPRED_CHECKS && k < p.picks.size; k++) CHECK(picks[k] >= 0 && picks[k] < d);
    RowFrame of_row;
    of_row.shift = p.shift.at(0, length);
    if (gaps) {
        of_row.gap = p.gaps.double_.at(0, length);
        of_row.gap_high = p.gaps.high.at(0, length), of_row.gap_low = p.gaps.low.at(0, length);
    }
    // Stores of vectors may change anything that lies in memory: pointers stay in registers only as variables.
    const float *factor = centres.factor.data, *high = centres.high.data, *low = centres.low.data, *middle = centres.middle.data;
    const double *double_factor = centres.double_factor.data;
    const int64_t step = centres.step;
    auto place = [&](int64_t r) {
        const int64_t centre = at[r], own = step * centre;
        CHECK(own + length <= centres.factor.size && own + length <= centres.double_factor.size);
        CHECK(centre + length <= centres.high.size && centre + length <= centres.low.size && centre + length <= centres.middle.size);
        of_row.factor = factor + own, of_row.double_factor = double_factor + own;
        of_row.high = high + centre, of_row.low = low + centre, of_row.middle = middle + centre;
        of_row.target = rows + r * width;
        return (const Raw<T> *)address[r];
    };
    if (picks) {
        for (int64_t r = 0; r < n; r++) {
            const Raw<T> *source = place(r);
            bool spoilt = false;
            if constexpr (Element<T>::is_float)
                if (look > 0) spoilt = not_finite<T, gaps>(source, look);
            float square = convert_picked<T, gaps>(source, picks, length, of_row);
            norm[r] = spoilt ? __builtin_nanf("") : square;
        }
        return;
    }
    auto all_by = [&]<int lanes>(Count<lanes>) {
        for (int64_t r = 0; r < n; r++) {
            const Raw<T> *source = place(r);
            norm[r] = convert_row<T, gaps, lanes>(source, d, of_row);
        }
    };
    if (d >= 16) all_by(Count<16>());
    else if (d >= 8) all_by(Count<8>());
    else if (d >= 4) all_by(Count<4>());
    else all_by(Count<1>());
}
