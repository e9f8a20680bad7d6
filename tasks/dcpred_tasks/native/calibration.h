// The loss of a calibration by held-out rows and its gradient, as dcpred_tasks.training.calibration._Problem, without penalties.
// Lanes are 16 rows. Everything is in double precision, for a search that ends where gains are a billionth of the loss.
#pragma once
#include "kernels.h"
#include "refinement_layout.h"

typedef Lanes<int64_t, LANE_COUNT> Longs;
constexpr double WHOLE = 6755399441055744.0;  // 1.5 · 2⁵²: added to a number, it leaves the nearest integer in the last bits
constexpr double LEAST = -1000.0;             // exponents below count as this one

// e^x for x ≤ 0. 2^r = Σ (r log 2)^i / i! on [−1/2, 1/2], to a relative error of 1e-14.
INLINE Doubles exp_below_0(Doubles x) {
    constexpr double terms[] = {4.44553827187081e-10,   7.054911620801121e-09, 1.0178086009239696e-07, 1.3215486790144305e-06,
                                1.5252733804059838e-05, 1.5403530393381606e-4, 0.0013333558146428441,  0.009618129107628477,
                                0.055504108664821576,   0.2402265069591007,    0.6931471805599453,     1.0};
    Doubles t = x * LOG2_E;
    t = t > LEAST ? t : every(LEAST);
    Doubles shifted = t + WHOLE, rest = t - (shifted - WHOLE), series = every(terms[0]);
UNROLL
    for (int i = 1; i < 12; i++) series = fma(series, rest, every(terms[i]));
    return bits_as<Doubles>(bits_as<Longs>(series) + (bits_as<Longs>(shifted) << 52));
}

struct Calibrator {
    const Calibrating &p;

    int64_t others() const { return p.n_classes - p.n_outputs; }  // 1 of two classes: the score of the first is 0
    Doubles q(int64_t c) const { return load(p.q.at(c * LANES, LANES)); }
    Doubles decision(int64_t strip, int64_t k) const {
        return load(p.decision.at((strip * p.n_outputs + k) * LANES, LANES)) + p.moved[k];
    }
    // How far a decision value has come along piece j of g.
    Doubles along(Doubles f, int64_t j) const {
        Doubles way = f - p.knot[j], width = every(p.knot[j + 1] - p.knot[j]);
        way = way > 0.0 ? way : Doubles{};
        return way < width ? way : width;
    }
    // The slope of g, 0 beyond all knots.
    Doubles slope_at(Doubles f) const {
        Doubles slope = {};
        for (int64_t j = 0; j < p.slope.size; j++) slope = f >= p.knot[j] ? every(p.slope[j]) : slope;
        return f > p.knot[0] ? f < p.knot[p.slope.size] ? slope : Doubles{} : Doubles{};
    }
    static void add(const Array<double> &sums, int64_t i, Doubles value) {
        double *place = sums.at(i * LANES, LANES);
        store_as(place, load(place) + value);
    }

    // The shares of classes in exp(g).
    void set_shares(int64_t strip) const {
        Doubles most = {}, sum = {};
        for (int64_t k = 0; k < p.n_outputs; k++) {
            Doubles f = decision(strip, k), score = every(p.numbers[0]);
            for (int64_t j = 0; j < p.slope.size; j++) score = fma(every(p.slope[j]), along(f, j), score);
            store_as(p.q.at((others() + k) * LANES, LANES), score);
            most = (k == 0 && others() == 0) || score > most ? score : most;
        }
        if (others() > 0) store_as(p.q.at(0, LANES), Doubles{});
        for (int64_t c = 0; c < p.n_classes; c++) {
            Doubles power = exp_below_0(q(c) - most);
            store_as(p.q.at(c * LANES, LANES), power);
            sum += power;
        }
        for (int64_t c = 0; c < p.n_classes; c++) store_as(p.q.at(c * LANES, LANES), q(c) / sum);
    }
    void add_strip(int64_t strip) const {
        const Doubles own = load(p.target.at(strip * LANES, LANES)), weight = load(p.weight.at(strip * LANES, LANES));
        const double share = p.numbers[1], rest = 1.0 - share;
        set_shares(strip);
        Doubles reached = {}, prior = {}, total = {}, mean = {}, by_share = {};
        for (int64_t c = 0; c < p.n_classes; c++) {
            reached = own == (double)c ? q(c) : reached;
            prior = own == (double)c ? every(p.prior[c]) : prior;
        }
        const Doubles right = rest * reached + share * prior, part = weight * rest * reached / right;
        store_as(p.right.at(strip * LANES, LANES), right);
        by_share = weight * (reached - prior) / right;
        if (p.factors.size > 0) {
            for (int64_t c = 0; c < p.n_classes; c++) total += (rest * q(c) + share * p.prior[c]) / p.factors[c];
            store_as(p.total.at(strip * LANES, LANES), total);
            total = weight / total;
            for (int64_t c = 0; c < p.n_classes; c++) {
                mean += q(c) * total / p.factors[c];
                by_share += total / p.factors[c] * (p.prior[c] - q(c));
            }
        }
        add(p.by_share, 0, by_share * (share * rest));
        for (int64_t k = 0; k < p.n_outputs; k++) {
            const int64_t c = others() + k;
            const Doubles f = decision(strip, k);
            Doubles by_score = part * q(c) - (own == (double)c ? part : Doubles{});
            if (p.factors.size > 0) by_score += rest * q(c) * (total / p.factors[c] - mean);
            add(p.by_slope, p.slope.size, by_score);
            for (int64_t j = 0; j < p.slope.size; j++) add(p.by_slope, j, by_score * along(f, j));
            add(p.by_moved, k, by_score * slope_at(f));
        }
    }
    static void clear(const Array<double> &sums) {
        for (int64_t i = 0; i < sums.size; i++) sums[i] = 0.0;
    }
    void run() const {
        clear(p.by_slope), clear(p.by_share), clear(p.by_moved);
        for (int64_t strip = 0; strip * LANES < p.target.size; strip++) add_strip(strip);
    }
};
