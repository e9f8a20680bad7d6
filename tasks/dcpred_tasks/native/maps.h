// Raw rows whose heavy-tailed features are mapped (model/feature_map.py), a tile at a time, by the operations of the definition.
// Later steps take the mapped rows, which are in single precision, for the raw ones.
//
// The unit of a feature is taken off in double precision; what follows is done in single precision, 16 features at a time. By
// quantiles, six comparisons find the knots that a number is between: those of the first knots are the same for all rows, and
// later ones are chosen by the results of earlier ones, in registers. So they take no load of an address that has to be computed
// first, as a gather does. The line between two knots is then looked up for one feature after the other.
#pragma once
#include "elements.h"
#include "engine_layout.h"

constexpr int STEPS = 6, PIECES = MOST_KNOTS + 1;  // comparisons that find one of 64 pieces
constexpr int PIECE = 3;                           // numbers of a piece: knot, slope, value
constexpr float NO_CODE = 0.5f;  // replaces a number that single precision does not hold, and that is not a category
constexpr int32_t INFINITY_BITS = 0x7F800000;

// One raw row in units: (x − centre) · rate where the rate is not 0, else x.
template <class T> INLINE void to_units(const Maps &maps, const Raw<T> *source, int64_t d, float *row) {
    in_vectors(d, [&]<int n>(Count<n>) {
        in_steps<n>(d, [&](int64_t f) {
            typedef Lanes<double, n> D;
            typedef Lanes<float, n> F;
            Lanes<Held<T>, n> x = part<T, n>(source, f);
            D values = __builtin_convertvector(x, D), rate = of<n>(maps.rate.data, f);
            F kept = __builtin_convertvector(x, F);
            if constexpr (!Element<T>::in_single) {
                D back = __builtin_convertvector(kept, D);
                kept = mask_of<n>((back == values) | (values != values)) ? kept : every<F>(NO_CODE);
            }
            F moved = __builtin_convertvector((values - of<n>(maps.centre.data, f)) * rate, F);
            store_as(row + f, mask_of<n>(rate == 0.0) ? kept : moved);
        });
    });
}

INLINE Ints size_of(Floats u) { return bits_as<Ints>(u) & 0x7FFFFFFF; }

// u / √(1 + (u/3)²); a number that is not finite stays as it is.
INLINE Floats clipped(Floats given) {
    Floats u = given < (float)FAR ? given : every((float)FAR);
    u = u > -(float)FAR ? u : every(-(float)FAR);
    Floats part = u * (float)THIRD;
    return size_of(given) < INFINITY_BITS ? u / root(1.0f + part * part) : given;
}

// How many of the 63 knots of each of 16 features are not above u, by bisection. `known` says, step by step, on which side.
template <int step> INLINE Ints pieces_below(Floats u, const float *knots, const Ints *known) {
    if constexpr (step == STEPS) {
        return Ints{};
    } else {
        constexpr int count = 1 << step, width = PIECES >> (step + 1);
        Floats candidates[count];
        UNROLL
        for (int k = 0; k < count; k++) candidates[k] = load(knots + (width * (2 * k + 1) - 1) * LANES);
        UNROLL
        for (int s = 0; s < step; s++) {
            const int half = count >> (s + 1);
            UNROLL
            for (int k = 0; k < half; k++) candidates[k] = known[s] ? candidates[half + k] : candidates[k];
        }
        Ints results[STEPS];
        UNROLL
        for (int s = 0; s < step; s++) results[s] = known[s];
        results[step] = u >= candidates[0];
        return (results[step] ? every((int32_t)width) : Ints{}) + pieces_below<step + 1>(u, knots, results);
    }
}

NOINLINE void clip_rows(const Packed &p, int64_t n, float *out) {
    const int64_t width = p.maps.stride;
    const double *rate = p.maps.rate.at(0, width);
    for (int64_t r = 0; r < n; r++)
        for (int64_t f = 0; f < width; f += LANES) {
            float *row = out + r * width + f;
            Floats u = load(row);
            store_as(row, mask_of<LANE_COUNT>(load(rate + f) == 0.0) ? u : clipped(u));
        }
}

// Each number on the line of its piece: one beyond the knots has the value of the nearest, and an infinite one stays as it is.
NOINLINE void quantile_rows(const Packed &p, int64_t n, float *out) {
    const int64_t width = p.maps.stride;
    for (int64_t f = 0; f < width; f += LANES) {
        const float *knots = p.maps.knots.at(f * MOST_KNOTS, LANES * MOST_KNOTS);
        const float *lines = p.maps.pieces.at(f * PIECES * PIECE, LANES * PIECES * PIECE);
        for (int64_t r = 0; r < n; r++) {
            float *row = out + r * width + f;
            Floats u = load(row);
            int32_t place[LANE_COUNT];
            store_as(place, pieces_below<0>(u, knots, nullptr) * PIECE);
            UNROLL
            for (int lane = 0; lane < LANE_COUNT; lane++) {
                const float *line = lines + lane * PIECES * PIECE + place[lane];
                row[lane] = (row[lane] - line[0]) * line[1] + line[2];
            }
            Ints infinite = size_of(u) == INFINITY_BITS;
            if (__builtin_expect(any<LANE_COUNT>(infinite), 0)) store_as(row, infinite ? u : load(row));
        }
    }
}

// The n rows of a tile that begins with row `start` into room.mapped; returns where they lie.
NOINLINE Source map_rows(const Packed &p, const Source &source, int64_t start, int64_t n, const Room &room) {
    const int64_t width = p.maps.stride;
    for (int64_t first = 0; first < n; first += STRIP_ROWS) {
        const int64_t count = n - first < STRIP_ROWS ? n - first : STRIP_ROWS;
        float *own = room.mapped.at(first * width, count * width);
        for_dtype(source.code, [&](auto dtype) {
            typedef decltype(dtype) T;
            for (int64_t r = 0; r < count; r++) {
                const int64_t address = source.address + (start + first + r) * source.stride;
                to_units<T>(p.maps, (const Raw<T> *)address, p.n_features, own + r * width);
            }
        });
        if (p.maps.knots.size > 0) quantile_rows(p, count, own);
        else clip_rows(p, count, own);
    }
    const int64_t stride = sizeof(float) * width;
    return {SINGLE_CODE, sizeof(float), (int64_t)room.mapped.data - start * stride, stride};
}
