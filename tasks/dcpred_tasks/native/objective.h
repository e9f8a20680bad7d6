// Value and gradient of dcpred_tasks.training.refinement.Objective, for every kernel and loss.
//
// A strip is 16 rows, lanes being rows. A matrix of rows lies strip by strip, and in a strip column by column: the value of
// row 16 s + r in column j is element 16 (s · stride + j) + r. Landmarks are padded to a multiple of AT_ONCE with output
// weights of 0, rows to one of 16 with weights of 0. Sums over a tile of strips are in single precision, over tiles in double.
#pragma once
#include "kernels.h"
#include "losses.h"
#include "refinement_layout.h"

constexpr int ACROSS = LANES / AT_ONCE;  // columns that eight landmarks are summed with in one loop

struct Tile {  // some strips of rows
    int64_t first, strips;
};

INLINE double clamped(double x, double limit) { return x < -limit ? -limit : x > limit ? limit : x; }

// -- from θ to decision values ----------------------------------------------------------------------------------------------

// What columns are multiplied with, output weights and intercepts, in the order in which columns are computed.
template <class Kernel> INLINE void place_parts(const Problem &p, const Room &room, const double *theta) {
    const int64_t m = p.n_landmarks, d = p.n_features, terms = d + 1, k = p.n_outputs;
    const double power = Kernel::sum == ABSOLUTE ? 1.0 : 2.0;
    for (int64_t f = 0; f < d; f++) {
        double log_factor = p.own_factors ? theta[p.factor_at + f] : 0.0;
        room.squares[f] = (float)__builtin_exp(power * clamped(log_factor, p.log_factor));
    }
    for (int64_t j = 0; j < m; j++) {
        double gamma = p.gamma[j] * __builtin_exp(clamped(theta[p.gamma_at + j], p.log_gamma));
        room.gamma[j] = gamma;
        float *own = room.factors.at((j / AT_ONCE) * (terms + 1) * AT_ONCE, (terms + 1) * AT_ONCE) + j % AT_ONCE;
        double square = 0.0, at_middle = 0.0;
        for (int64_t f = 0; f < d; f++) {
            double u = theta[j * d + f], v = u - p.middle[f], scaled = room.squares[f] * v;
            if (Kernel::sum == SQUARES) {
                square += scaled * v;
                own[f * AT_ONCE] = (float)(2.0 * Kernel::unit * gamma * scaled);
            } else if (Kernel::sum == PRODUCTS) {
                own[f * AT_ONCE] = (float)(gamma * room.squares[f] * u);
                at_middle += room.squares[f] * u * p.middle[f];
            } else {
                own[f * AT_ONCE] = (float)v;
            }
        }
        room.square[j] = square;
        own[d * AT_ONCE] = Kernel::sum == PRODUCTS ? 0.0f : (float)(-Kernel::unit * gamma);
        own[terms * AT_ONCE] = Kernel::sum == PRODUCTS ? (float)(gamma * at_middle) : (float)(-Kernel::unit * gamma * square);
    }
    for (int64_t output = 0; output < k; output++) {
        float *beta = room.beta.at(output * p.terms, p.terms);
        for (int64_t j = 0; j < m; j++) beta[j] = (float)(p.scale * theta[p.beta_at + j * k + output]);
        for (int64_t q = 0; q < p.n_pairs; q++)
            beta[p.padded + q] = (float)(p.scale * theta[p.beta_at + (m + q) * k + output]);
        room.intercept[output] = (float)theta[p.intercept_at + output];
    }
}

INLINE const float *row_of(const Problem &p, const Tile &tile, int64_t s) {
    return p.x.at((tile.first + s) * p.width * LANES, p.width * LANES);
}

// What `Kernel::refined` takes, of a strip and eight landmarks.
template <Sum sum> INLINE void linear(Floats (&total)[AT_ONCE], const float *row, const float *own, int64_t d, const float *scale) {
    const int64_t terms = d + 1;
    UNROLL
    for (int t = 0; t < AT_ONCE; t++) total[t] = sum == ABSOLUTE ? Floats{} : every(own[terms * AT_ONCE + t]);
    for (int64_t f = 0; f < (sum == SQUARES ? terms : d); f++) {
        Floats value = load(row + f * LANES);
UNROLL
        for (int t = 0; t < AT_ONCE; t++) {
            Floats factor = every(own[f * AT_ONCE + t]);
            total[t] = sum == ABSOLUTE ? fma(magnitude(value - factor), every(scale[f]), total[t]) : fma(factor, value, total[t]);
        }
    }
    if (sum == ABSOLUTE)
        UNROLL
        for (int t = 0; t < AT_ONCE; t++) total[t] *= every(own[d * AT_ONCE + t]);
}

// Kernel values, and what they fall by, of a tile.
template <class Kernel> NOINLINE void kernel_columns(const Problem &p, const Room &room, const Tile &tile) {
    const int64_t d = p.n_features, terms = d + 1, size = (terms + 1) * AT_ONCE;
    const float *factors = room.factors.at(0, p.padded * (terms + 1)), *scale = room.squares.at(0, d);
    const Shape shape(p.shape);
    for (int64_t s = 0; s < tile.strips; s++) {
        const float *row = row_of(p, tile, s);
        float *out = room.K.at(s * p.k_stride * LANES, p.k_stride * LANES);
        float *falls = Kernel::fall_by_value ? out : room.falls.at(s * p.k_stride * LANES, p.k_stride * LANES);
        for (int64_t j = 0; j < p.padded; j += AT_ONCE) {
            Floats total[AT_ONCE];
            linear<Kernel::sum>(total, row, factors + j / AT_ONCE * size, d, scale);
UNROLL
            for (int t = 0; t < AT_ONCE; t++) {
                Value value = Kernel::refined(total[t], shape);
                store_as(out + (j + t) * LANES, value.K);
                if (!Kernel::fall_by_value) store_as(falls + (j + t) * LANES, value.fall);
            }
        }
    }
}

// Column `n_features` of x becomes Σ_f squares[f] x_f², in leaves with ARD scales of their own.
NOINLINE void square_columns(const Problem &p, const Room &room, const Tile &tile) {
    for (int64_t s = 0; s < tile.strips; s++) {
        float *row = p.x.at((tile.first + s) * p.width * LANES, p.width * LANES);
        Floats total = {};
        for (int64_t f = 0; f < p.n_features; f++) {
            Floats value = load(row + f * LANES);
            total = fma(value * every(room.squares[f]), value, total);
        }
        store_as(row + p.n_features * LANES, total);
    }
}

constexpr int TOGETHER = 4;  // outputs whose sums over kernel values share their loads

// Decision values of some outputs from k on, of a strip.
template <int outputs>
INLINE void decision_values(const Problem &p, const Room &room, const Tile &tile, int64_t s, int64_t k) {
    const float *own = room.K.at(s * p.k_stride * LANES, p.terms * LANES), *weights = room.beta.at(k * p.terms, outputs * p.terms);
    Floats total[outputs][UNROLLED];
UNROLL
    for (int o = 0; o < outputs; o++) {
UNROLL
        for (int t = 0; t < UNROLLED; t++) total[o][t] = Floats{};
        total[o][0] = every(room.intercept[k + o]);
        if (p.offset.size > 0) total[o][0] += load(p.offset.at(((tile.first + s) * p.n_outputs + k + o) * LANES, LANES));
    }
    for (int64_t j = 0; j < p.terms; j += UNROLLED)
UNROLL
        for (int t = 0; t < UNROLLED; t++) {
            Floats value = load(own + (j + t) * LANES);
UNROLL
            for (int o = 0; o < outputs; o++) total[o][t] = fma(every(weights[o * p.terms + j + t]), value, total[o][t]);
        }
UNROLL
    for (int o = 0; o < outputs; o++) {
        Floats sum = total[o][0];
UNROLL
        for (int t = 1; t < UNROLLED; t++) sum = sum + total[o][t];
        store_as(room.f.at((s * p.f_stride + k + o) * LANES, LANES), sum);
    }
}

// Products of kernel values behind them, and decision values.
NOINLINE void decision_columns(const Problem &p, const Room &room, const Tile &tile) {
    for (int64_t s = 0; s < tile.strips; s++) {
        float *own = room.K.at(s * p.k_stride * LANES, p.k_stride * LANES), *products = own + p.padded * LANES;
        for (int64_t q = 0; q < p.n_pairs; q++) {
            CHECK(p.left[q] < p.padded && p.right[q] < p.padded);
            store_as(products + q * LANES, load(own + p.left[q] * LANES) * load(own + p.right[q] * LANES));
        }
        int64_t k = 0;
        for (; k + TOGETHER <= p.n_outputs; k += TOGETHER) decision_values<TOGETHER>(p, room, tile, s, k);
        for (; k < p.n_outputs; k++) decision_values<1>(p, room, tile, s, k);
    }
}

// -- from ∂L/∂f to the gradient ---------------------------------------------------------------------------------------------

// `sums` (a_columns / 8, b_columns / 2, 2, 8) gets Σ_rows A[i] B[j] of a tile; strips of A and B begin at 0.
NOINLINE void outer_sums(const Array<float> &A, int64_t a_stride, int64_t a_columns, const Array<float> &B, int64_t b_at,
                         int64_t b_stride, int64_t b_columns, int64_t strips, const Array<double> &sums) {
    const float *ours = A.at(0, strips * a_stride * LANES), *theirs = B.at(b_at, strips * b_stride * LANES);
    for (int64_t i = 0; i < a_columns; i += AT_ONCE)
        for (int64_t j = 0; j < b_columns; j += ACROSS) {
            Floats total[LANES] = {};
            for (int64_t s = 0; s < strips; s++) {
                const float *a = ours + (s * a_stride + i) * LANES, *b = theirs + (s * b_stride + j) * LANES;
                Floats x[AT_ONCE], y[ACROSS];
UNROLL
                for (int t = 0; t < AT_ONCE; t++) x[t] = load(a + t * LANES);
UNROLL
                for (int t = 0; t < ACROSS; t++) y[t] = load(b + t * LANES);
UNROLL
                for (int n = 0; n < LANES; n++) total[n] = fma(x[n % AT_ONCE], y[n / AT_ONCE], total[n]);
            }
            double *place = sums.at(i * b_columns + j * AT_ONCE, LANES);
            store_as(place, load(place) + widened(sums_of_all(total)));
        }
}

// `sums` (padded / 8, n_features, 2, 8) gets Σ_rows A[j] sign(x_f − u_jf), and Σ_rows A[j] |x_f − u_jf|.
NOINLINE void sign_sums(const Problem &p, const Room &room, const Tile &tile, const Array<float> &A) {
    const int64_t d = p.n_features, size = (d + 2) * AT_ONCE;
    for (int64_t j = 0; j < p.padded; j += AT_ONCE) {
        const float *own = room.factors.at(j / AT_ONCE * size, size);
        for (int64_t f = 0; f < d; f++) {
            Floats total[LANES] = {};
            for (int64_t s = 0; s < tile.strips; s++) {
                Floats x = load(row_of(p, tile, s) + f * LANES);
                const float *a = A.at((s * p.k_stride + j) * LANES, AT_ONCE * LANES);
UNROLL
                for (int t = 0; t < AT_ONCE; t++) {
                    Floats weight = load(a + t * LANES), off = x - every(own[f * AT_ONCE + t]);
                    total[t] += off > 0.0f ? weight : off < 0.0f ? -weight : off;
                    total[AT_ONCE + t] = fma(weight, magnitude(off), total[AT_ONCE + t]);
                }
            }
            double *place = room.sums.at((j * d + f * AT_ONCE) * 2, LANES);
            store_as(place, load(place) + widened(sums_of_all(total)));
        }
    }
}

// sums[f] gets Σ_rows x_f² Σ_j coefficients[j] A[j] of a tile.
NOINLINE void square_sums(const Problem &p, const Room &room, const Tile &tile, const Array<float> &A) {
    const float *coefficients = room.coefficients.at(0, p.padded);
    for (int64_t s = 0; s < tile.strips; s++) {
        const float *own = A.at(s * p.k_stride * LANES, p.padded * LANES);
        Floats total[AT_ONCE] = {};
        for (int64_t j = 0; j < p.padded; j += AT_ONCE)
UNROLL
            for (int t = 0; t < AT_ONCE; t++) total[t] = fma(every(coefficients[j + t]), load(own + (j + t) * LANES), total[t]);
        Floats sum = total[0];
        UNROLL
        for (int t = 1; t < AT_ONCE; t++) sum = sum + total[t];
        store_as(room.by_row.at(s * LANES, LANES), sum);
    }
    for (int64_t f = 0; f < p.n_features; f++) {
        Floats total = {};
        for (int64_t s = 0; s < tile.strips; s++) {
            Floats value = load(row_of(p, tile, s) + f * LANES);
            total = fma(value * value, load(room.by_row.data + s * LANES), total);
        }
        room.square_sums[f] += lane_sum(widened(total));
    }
}

// A[j] · ∂L/∂f in the place of A[j], for one output without products: β is left to the end.
NOINLINE void scale_columns(const Problem &p, const Room &room, const Tile &tile, const Array<float> &A) {
    for (int64_t s = 0; s < tile.strips; s++) {
        float *own = A.at(s * p.k_stride * LANES, p.padded * LANES);
        Floats slope = load(room.f.at(s * p.f_stride * LANES, LANES));
        for (int64_t j = 0; j < p.padded; j++) store_as(own + j * LANES, load(own + j * LANES) * slope);
    }
}

// A[j] · ∂L/∂c_j in the place of A[j], j < padded.
NOINLINE void pull_columns(const Problem &p, const Room &room, const Tile &tile, const Array<float> &A) {
    float *G = room.pulled.at(0, p.terms * LANES);
    for (int64_t s = 0; s < tile.strips; s++) {
        float *own = A.at(s * p.k_stride * LANES, p.padded * LANES);
        const float *K = room.K.at(s * p.k_stride * LANES, p.padded * LANES);
        const float *slopes = room.f.at(s * p.f_stride * LANES, p.n_outputs * LANES);
        for (int64_t j = 0; j < p.terms; j += UNROLLED) {
            Floats total[UNROLLED] = {};
            for (int64_t k = 0; k < p.n_outputs; k++) {
                const float *beta = room.beta.at(k * p.terms + j, UNROLLED);
UNROLL
                for (int t = 0; t < UNROLLED; t++) total[t] = fma(every(beta[t]), load(slopes + k * LANES), total[t]);
            }
            UNROLL
            for (int t = 0; t < UNROLLED; t++) store_as(G + (j + t) * LANES, total[t]);
        }
        for (int64_t q = 0; q < p.n_pairs; q++) {
            const int64_t i = p.left[q] * LANES, j = p.right[q] * LANES;
            Floats slope = load(G + (p.padded + q) * LANES);
            store_as(G + i, fma(slope, load(K + j), load(G + i)));
            store_as(G + j, fma(slope, load(K + i), load(G + j)));
        }
        for (int64_t j = 0; j < p.padded; j++) store_as(own + j * LANES, load(own + j * LANES) * load(G + j * LANES));
    }
}

// The loss of a tile. Its derivatives are added to room.slopes, sums and beta_sums.
template <class Kernel, bool alone> INLINE double add_tile(const Problem &p, const Room &room, const Tile &tile) {
    const Array<float> &A = Kernel::fall_by_value ? room.K : room.falls;
    if (p.own_factors && Kernel::sum == SQUARES) square_columns(p, room, tile);
    kernel_columns<Kernel>(p, room, tile);
    decision_columns(p, room, tile);
    double value = 0.0;
    for_loss(p.loss, [&]<class Loss>() { value = Loss::columns(p, room, tile.first, tile.strips); });
    if (alone) {
        scale_columns(p, room, tile, A);
    } else {
        outer_sums(room.K, p.k_stride, p.terms, room.f, 0, p.f_stride, p.f_stride, tile.strips, room.beta_sums);
        pull_columns(p, room, tile, A);
    }
    if (Kernel::sum == ABSOLUTE) {
        sign_sums(p, room, tile, A);
        return value;
    }
    outer_sums(A, p.k_stride, p.padded, p.x, tile.first * p.width * LANES, p.width, p.columns, tile.strips, room.sums);
    if (p.own_factors && Kernel::sum == SQUARES) square_sums(p, room, tile, A);
    return value;
}

// The element (i, j) of what outer_sums wrote.
INLINE double summed(const Array<double> &sums, int64_t columns, int64_t i, int64_t j) {
    return sums[i / AT_ONCE * AT_ONCE * columns + j * AT_ONCE + i % AT_ONCE];
}

// The gradient by landmarks, log γ and log factors, of landmark j whose sums are to be multiplied with `factor`.
template <class Kernel> INLINE void add_landmark(const Problem &p, const Room &room, int64_t j, double factor, const double *theta,
                                                 double *gradient) {
    const int64_t d = p.n_features, columns = p.columns;
    const double gamma = room.gamma[j];
    double by_log_gamma = 0.0, D = Kernel::sum == ABSOLUTE ? 0.0 : factor * summed(room.sums, columns, j, d + 1);
    for (int64_t f = 0; f < d; f++) {
        const double u = theta[j * d + f], s = room.squares[f];
        double &out = gradient[j * d + f];
        if (Kernel::sum == SQUARES) {
            double v = u - p.middle[f], D_x = factor * summed(room.sums, columns, j, f);
            by_log_gamma += s * v * D_x;
            out += 2.0 * gamma * s * (D_x - v * D);
            room.square_sums[f] -= gamma * v * (2.0 * D_x - v * D);
        } else if (Kernel::sum == PRODUCTS) {
            double D_x = gamma * s * (summed(room.sums, columns, j, f) + p.middle[f] * D);
            by_log_gamma -= u * D_x;
            out -= D_x;
            room.square_sums[f] += u * D_x;
        } else {
            double signs = summed(room.sums, 2 * d, j, 2 * f), away = gamma * s * summed(room.sums, 2 * d, j, 2 * f + 1);
            by_log_gamma -= away;
            out += gamma * s * signs;
            room.square_sums[f] += away;
        }
    }
    if (!(__builtin_fabs(theta[p.gamma_at + j]) < p.log_gamma) || p.nearness > 0.0) return;
    if (Kernel::sum == SQUARES) {
        double D_x2 = factor * summed(room.sums, columns, j, d);
        by_log_gamma = gamma * (2.0 * by_log_gamma - D_x2 - room.square[j] * D);
    }
    gradient[p.gamma_at + j] += by_log_gamma;
}

// -- the distance to the local SVM --------------------------------------------------------------------------------------

// β_jk, from θ.
INLINE double weight_of(const Problem &p, const double *theta, int64_t j, int64_t k) {
    return p.scale * theta[p.beta_at + j * p.n_outputs + k];
}

// What landmark j and the points of the local SVM add to E of training/refinement.py and to its derivatives.
NOINLINE double points_pull(const Problem &p, const double *theta, int64_t j, double *gradient) {
    constexpr int64_t block = 16;  // strips whose sums over features are taken together
    const int64_t d = p.n_features, outputs = p.n_outputs, strips = p.points.size / (d * LANES);
    const Floats steep = every((float)(-LOG2_E * p.machine_gamma));
    const double scale = 4.0 * p.nearness * p.machine_gamma;
    CHECK(p.points.size == strips * d * LANES);
    double value = 0.0, D = 0.0;
    for (int64_t first = 0; first < strips; first += block) {
        const int64_t count = strips - first < block ? strips - first : block;
        const float *points = p.points.at(first * d * LANES, count * d * LANES);
        const float *weights = p.point_weights.at(first * outputs * LANES, count * outputs * LANES);
        Floats K[block], pulled[block] = {}, sum = {};
        for (int64_t s = 0; s < count; s++) {
            Floats square = {};
            for (int64_t f = 0; f < d; f++) {
                Floats off = load(points + (s * d + f) * LANES) - every((float)(theta[j * d + f] - p.middle[f]));
                square = fma(off, off, square);
            }
            K[s] = exp2_below_0(square * steep);
        }
        for (int64_t k = 0; k < outputs; k++) {
            const double beta = weight_of(p, theta, j, k);
            Floats right = {};
            for (int64_t s = 0; s < count; s++) {
                Floats weighted = K[s] * load(weights + (s * outputs + k) * LANES);
                right += weighted, pulled[s] = fma(weighted, every((float)beta), pulled[s]);
            }
            const double total = lane_sum(widened(right));
            value -= 2.0 * beta * total;
            gradient[p.beta_at + j * outputs + k] -= 2.0 * p.nearness * p.scale * total;
        }
        for (int64_t s = 0; s < count; s++) sum += pulled[s];
        D += lane_sum(widened(sum));
        for (int64_t f = 0; f < d; f++) {
            Floats total = {};
            for (int64_t s = 0; s < count; s++) total = fma(pulled[s], load(points + (s * d + f) * LANES), total);
            gradient[j * d + f] -= scale * lane_sum(widened(total));
        }
    }
    for (int64_t f = 0; f < d; f++) gradient[j * d + f] += scale * D * (theta[j * d + f] - p.middle[f]);
    return value;
}

// What landmarks i ≤ j add to it.
INLINE double landmarks_pull(const Problem &p, const double *theta, int64_t i, int64_t j, double *gradient) {
    const int64_t d = p.n_features, outputs = p.n_outputs;
    double square = 0.0, both = 0.0;
    for (int64_t f = 0; f < d; f++) {
        double off = theta[i * d + f] - theta[j * d + f];
        square += off * off;
    }
    const double K = __builtin_exp(-p.machine_gamma * square), times = i == j ? 1.0 : 2.0;
    for (int64_t k = 0; k < outputs; k++) {
        const double ours = weight_of(p, theta, i, k), theirs = weight_of(p, theta, j, k);
        both += ours * theirs;
        gradient[p.beta_at + i * outputs + k] += times * p.nearness * p.scale * K * theirs;
        gradient[p.beta_at + j * outputs + k] += times * p.nearness * p.scale * K * ours;
    }
    for (int64_t f = 0; i != j && f < d; f++) {
        double along = 4.0 * p.nearness * p.machine_gamma * K * both * (theta[i * d + f] - theta[j * d + f]);
        gradient[i * d + f] -= along;
        gradient[j * d + f] += along;
    }
    return times * K * both;
}

// NEARNESS E(U, β) / ‖w‖², whose derivatives are added to the gradient.
NOINLINE double distance_to_machine(const Problem &p, const double *theta, double *gradient) {
    double off = 0.0;
    for (int64_t j = 0; j < p.n_landmarks; j++) {
        off += points_pull(p, theta, j, gradient);
        for (int64_t i = 0; i <= j; i++) off += landmarks_pull(p, theta, i, j, gradient);
    }
    return p.nearness * off + NEARNESS;
}

// -- all of it --------------------------------------------------------------------------------------------------------------

INLINE void clear(const Array<double> &sums) {
    for (int64_t i = 0; i < sums.size; i++) sums.data[i] = 0.0;
}

// The value; writes the gradient, both as Objective.__call__.
template <class Kernel, bool alone>
INLINE double value_and_gradient_of(const Problem &p, const Room &room, const double *theta, double *gradient) {
    const int64_t m = p.n_landmarks, d = p.n_features, k = p.n_outputs;
    place_parts<Kernel>(p, room, theta);
    for (int64_t j = 0; j < m; j++) room.coefficients[j] = (float)(room.gamma[j] * (alone ? (double)room.beta[j] : 1.0));
    clear(room.sums), clear(room.beta_sums), clear(room.slopes), clear(room.square_sums);
    double value = 0.0;
    for (int64_t first = 0; first < p.n_strips; first += p.tile_strips) {
        int64_t left = p.n_strips - first;
        value += add_tile<Kernel, alone>(p, room, {first, left < p.tile_strips ? left : p.tile_strips});
    }
    for (int64_t i = 0; i < p.n_unknowns; i++) {
        double off = theta[i] - p.rest_point[i], pulled = p.stiff[i] * off;
        value += pulled * off;
        gradient[i] = 2.0 * pulled;
    }
    for (int64_t j = 0; j < m; j++) add_landmark<Kernel>(p, room, j, alone ? (double)room.beta[j] : 1.0, theta, gradient);
    if (p.own_factors)
        for (int64_t f = 0; f < d; f++)
            if (__builtin_fabs(theta[p.factor_at + f]) < p.log_factor) {
                double scale = Kernel::sum == SQUARES ? 2.0 * room.squares[f] : Kernel::sum == PRODUCTS ? 2.0 : 1.0;
                gradient[p.factor_at + f] -= scale * room.square_sums[f];
            }
    for (int64_t j = 0; j < (alone ? m : m + p.n_pairs); j++)
        for (int64_t output = 0; output < k; output++)
            gradient[p.beta_at + j * k + output] +=
                p.scale * (alone ? summed(room.sums, p.columns, j, d + 1)
                                 : summed(room.beta_sums, p.f_stride, j < m ? j : p.padded + j - m, output));
    for (int64_t output = 0; output < k; output++) gradient[p.intercept_at + output] += room.slopes[output];
    return value;
}

NOINLINE double value_and_gradient(const Problem &p, const Room &room, const double *theta, double *gradient) {
    double value = 0.0;
    for_family(p.kernel, [&](auto kernel) {
        typedef decltype(kernel) Kernel;
        if constexpr (Kernel::sum == SQUARES && Kernel::fall_by_value)
            if (p.n_outputs == 1 && p.n_pairs == 0) {
                value = value_and_gradient_of<Kernel, true>(p, room, theta, gradient);
                return;
            }
        value = value_and_gradient_of<Kernel, false>(p, room, theta, gradient);
    });
    if (p.nearness > 0.0) value += distance_to_machine(p, theta, gradient);
    return value;
}
