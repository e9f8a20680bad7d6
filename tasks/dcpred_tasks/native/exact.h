// One row at a time in double precision: the rows that single precision cannot decide.
//
// These are rows so near to a border of the tree that single precision cannot decide their side; rows so far out that their
// squares overflow; and rows of leaves whose terms are too large for single precision. The operations are those of
// model/compact_model.py, one by one.
#pragma once
#include "columns.h"
#include "kernels.h"

INLINE bool is_finite(double x) { return x - x == 0.0; }

// The columns of raw row i into room.x: the raw features themselves, without encoded features and missing indicators.
NOINLINE void read_columns(const Exact &q, const Source &source, int64_t i, const Room &room) {
    const int64_t n = q.columns.first.size, last_own = room.x.size - q.columns.indicated.size;
    const Array<double> &raw = n > 0 ? room.raw : room.x;
    const int64_t address = source.address + i * source.stride;
    for_dtype(source.code, [&](auto dtype) {
        typedef decltype(dtype) T;
        const Raw<T> *row = (const Raw<T> *)address;
        for (int64_t j = 0; j < raw.size; j++) raw.data[j] = part<T, 1>(row, j)[0];
    });
    for (int64_t k = 0; k < q.columns.indicated.size; k++) {
        double value = raw[q.columns.indicated[k]];
        room.x[last_own + k] = value != value ? 1.0 : 0.0;
    }
    for (int64_t f = 0; f < q.gap.size; f++)
        if (raw[f] != raw[f]) raw[f] = q.gap[f];
    for (int64_t f = 0; f < n; f++) {
        const double value = room.raw[f];
        const int64_t first = q.columns.first[f], extent = q.columns.extent[f];
        if (extent == 0) {
            room.x[first] = value;
            continue;
        }
        const int64_t last = f + 1 < n ? q.columns.first[f + 1] : last_own;
        for (int64_t j = first; j < last; j++) room.x[j] = is_finite(value) ? 0.0 : __builtin_nan("");
        const double above = value - q.columns.lowest[f];
        if (!(above >= 0 && above < (double)extent) || value != (double)(q.columns.lowest[f] + (int64_t)above)) continue;
        const int64_t column = q.columns.place[q.columns.place_at[f] + (int64_t)above];
        if (column < room.x.size) room.x[column] = 1.0;  // A row lacks the spare column.
    }
}

// Scale a row in double precision, in place. Returns whether it can be scored: every feature is finite, also in single precision.
NOINLINE bool exact_row(const Exact &q, const Array<double> &x) {
    bool finite = true;
    for (int64_t j = 0; j < q.shift.size; j++) {
        x[j] = (x[j] - q.shift[j]) * q.factor[j];
        // From half a unit above the largest single on, a number rounds to infinity.
        finite = finite && __builtin_fabs(x[j]) < 3.4028235677973366e38;
    }
    return finite;
}

// ‖x − c‖² in four chains of sums, because one would wait for itself.
INLINE double squared_distance(const double *x, const float *c, int64_t d) {
    double total[4] = {};
    const int64_t whole = d & -4;
    for (int64_t j = 0; j < whole; j += 4)
        UNROLL
        for (int u = 0; u < 4; u++) {
            double off = x[j + u] - (double)c[j + u];
            total[u] += off * off;
        }
    for (int64_t j = whole; j < d; j++) {
        double off = x[j] - (double)c[j];
        total[0] += off * off;
    }
    return (total[0] + total[1]) + (total[2] + total[3]);
}

// The leaf of a scaled row at a node: the least squared distance, compared in single precision; the first centre of
// several at the same distance.
NOINLINE int64_t exact_leaf(const Exact &q, const Array<double> &x, int64_t node) {
    const int64_t d = q.shift.size;
    while (q.starts.size > 1 && node >= 0) {
        float best = __builtin_inff();
        int64_t child = q.children[q.starts[node]];
        for (int64_t t = q.starts[node]; t < q.starts[node + 1]; t++) {
            float half = (float)(squared_distance(x.at(0, d), q.centres.at(t * d, d), d) / 2);
            if (half < best) best = half, child = q.children[t];
        }
        node = child;
    }
    return node < 0 ? ~node : 0;
}

INLINE double kernel_value(const Exact &q, double t) {
    double value = 0.0;
    const Shape shape(q.shape);
    for_family(q.kernel, [&](auto kernel) { value = decltype(kernel)::scalar(t, shape); });
    return value;
}

// c[i] = K(x, u_i) for the m landmarks of the leaf.
NOINLINE void kernel_row(const Exact &q, int64_t leaf, int64_t m, const Array<double> &x, double *c) {
    const int64_t d = x.size, first = q.landmark_at[leaf];
    const float *landmarks = q.landmarks.at(first * d, d * m);
    for (int64_t i = 0; i < m; i++) c[i] = 0.0;
    for (int64_t j = 0; j < d; j++) {
        double xj = x[j];
        if (q.leaf_factor.size > 0) xj *= (double)q.leaf_factor[leaf * d + j];
        const float *u = landmarks + j * m;
        if (q.sum == SQUARES)
            for (int64_t i = 0; i < m; i++) {
                double off = xj - (double)u[i];
                c[i] += off * off;
            }
        else if (q.sum == ABSOLUTE)
            for (int64_t i = 0; i < m; i++) c[i] += __builtin_fabs(xj - (double)u[i]);
        else
            for (int64_t i = 0; i < m; i++) c[i] += xj * (double)u[i];
    }
    for (int64_t i = 0; i < m; i++) c[i] = kernel_value(q, q.gamma[first + i] * c[i]);
}

// Decision values of a scaled row in its leaf into room.outputs, without the bounds of a regression.
NOINLINE void exact_values(const Exact &q, int64_t leaf, int64_t n_outputs, const Room &room) {
    double *out = room.outputs.at(0, n_outputs);
    for (int64_t k = 0; k < n_outputs; k++) out[k] = q.intercept[leaf * n_outputs + k];
    const int64_t n_terms = q.beta_at[leaf + 1] - q.beta_at[leaf];
    if (n_terms == 0) return;
    const int64_t n_present = q.present_at[leaf + 1] - q.present_at[leaf];
    const int32_t *present = q.present.at(q.present_at[leaf], n_present);
    const float *weights = q.weights.at(q.weight_at[leaf], n_terms * n_present);
    for (int64_t k = 0; k < n_present; k++) CHECK(present[k] >= 0 && present[k] < n_outputs);
    const int64_t m = q.landmark_at[leaf + 1] - q.landmark_at[leaf];
    double *c = room.c.at(0, m);
    auto add = [&](double value) {
        for (int64_t k = 0; k < n_present; k++) out[present[k]] += value * (double)weights[k];
        weights += n_present;
    };
    kernel_row(q, leaf, m, room.x, c);
    for (int64_t i = 0; i < m; i++) add(c[i]);
    for (int64_t pair = q.pair_at[leaf]; pair < q.pair_at[leaf + 1]; pair++) add(room.c[q.pairs[2 * pair]] * room.c[q.pairs[2 * pair + 1]]);
}

INLINE void write(const Packed &p, const Out &out, int64_t i, int64_t k, double value) {
    if (p.regression) out.doubles[i * p.n_outputs + k] = value;
    else out.singles[i * p.n_outputs + k] = (float)value;
}

// A decision value of row i from that of its leaf: with the terms, and within the bounds of a regression.
INLINE double summed(const Packed &p, const Out &out, int64_t leaf, int64_t i, int64_t k, double value) {
    if (out.offset.size > 0) value += out.offset[i * p.n_outputs + k];
    if (!p.regression || !p.bounded[leaf]) return value;
    const double low = p.bounds[2 * leaf], high = p.bounds[2 * leaf + 1];
    value = low > value ? low : value;
    return high < value ? high : value;
}

// NaN for row i, and its status.
INLINE void spoil(const Packed &p, const Out &out, int64_t i, int64_t status) {
    out.status[i] = (uint8_t)status;
    for (int64_t k = 0; k < p.n_outputs; k++) write(p, out, i, k, __builtin_nan(""));
}

// Write the constant of a row's leaf; false where the leaf is not constant, or not finite.
INLINE bool finish_constant(const Packed &p, const Exact &q, uint32_t leaf, int64_t i, const Out &out) {
    if (leaf == NOWHERE || q.beta_at[leaf] < q.beta_at[leaf + 1]) return false;
    bool finite = true;
    for (int64_t k = 0; k < p.n_outputs; k++) {
        const double value = summed(p, out, leaf, i, k, q.intercept[leaf * p.n_outputs + k]);
        write(p, out, i, k, value);
        finite &= is_finite(p.regression ? value : (double)(float)value);
    }
    return finite;
}

// Write row i in double precision: NaN where its leaf is NOWHERE, else the value of a constant leaf, or of all terms of the leaf.
NOINLINE void finish_plain(const Packed &p, const Exact &q, const Source &source, uint32_t leaf, int64_t i, const Out &out,
                           const Room &room) {
    if (leaf == NOWHERE) return spoil(p, out, i, out.status[i]);
    if (q.beta_at[leaf] < q.beta_at[leaf + 1]) {
        read_columns(q, source, i, room);
        // Only where there is no tree: a walk finds such rows.
        if (!exact_row(q, room.x)) return spoil(p, out, i, NON_FINITE_FEATURE);
    }
    exact_values(q, leaf, p.n_outputs, room);
    bool finite = true;
    for (int64_t k = 0; k < p.n_outputs; k++) {
        const double value = summed(p, out, leaf, i, k, room.outputs[k]);
        write(p, out, i, k, value);
        finite = finite && is_finite(p.regression ? value : (double)(float)value);
    }
    if (!finite) spoil(p, out, i, NON_FINITE_RESULT);
}
