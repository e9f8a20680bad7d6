// k-means of rows with weights, as dcpred_tasks.training.clusters.definition: Lloyd's steps, from rows drawn
// by weight or by k-means++.
//
// Strips of 16 rows lie as in objective.h, about the mean of the rows. A distance is |c|² − 2 x·c: |x|² orders nothing.
#pragma once
#include "neighbours.h"

struct Clusters {
    const Clustering &p;

    const float *row(int64_t i) const { return p.rows.at(i * p.width, p.width); }
    int64_t n_strips() const { return (p.weight.size + LANES - 1) / LANES; }
    const float *strip(int64_t s) const { return p.strips.at(s * p.n_features * LANES, p.n_features * LANES); }

    // The mean of the rows, and strips about it. The mean variance of a feature.
    __attribute__((noinline)) double place() const {
        const int64_t n = p.weight.size, d = p.n_features;
        double total = 0.0, variance = 0.0;
        for (int64_t f = 0; f < p.width; f++) p.middle[f] = 0.0;
        for (int64_t i = 0; i < n; i++) {
            total += p.weight[i];
            for (int64_t f = 0; f < p.width; f += LANES) {
                double *sums = p.middle.at(f, LANES);
                store_as(sums, fma(every(p.weight[i]), widened(load(row(i) + f)), load(sums)));
            }
        }
        for (int64_t f = 0; f < p.width; f++) p.middle[f] /= total;
        for (int64_t s = 0; s < n_strips(); s++)
            for (int64_t f = 0; f < p.width; f += LANES) {
                Floats columns[LANES] = {};
                const Doubles middle = load(p.middle.at(f, LANES));
                for (int64_t lane = 0; lane < LANES && s * LANES + lane < n; lane++) {
                    const Doubles off = widened(load(row(s * LANES + lane) + f)) - middle;
                    variance += p.weight[s * LANES + lane] * lane_sum(off * off);
                    columns[lane] = narrowed(off);
                }
                transpose(columns);
                for (int64_t lane = 0; lane < LANES && f + lane < d; lane++)
                    store_as(p.strips.at((s * d + f + lane) * LANES, LANES), columns[lane]);
            }
        return variance / total / (double)d;
    }

    // The squared distances of all rows from one of them.
    __attribute__((noinline)) void set_distances(int64_t from) const {
        const float *own = strip(from / LANES) + from % LANES;
        for (int64_t s = 0; s < n_strips(); s++) {
            const float *x = strip(s);
            Floats total = {};
            for (int64_t f = 0; f < p.n_features; f++) {
                const Floats off = load(x + f * LANES) - every(own[f * LANES]);
                total = fma(off, off, total);
            }
            store_as(p.distance.at(s * LANES, LANES), total);
        }
    }
    float nearer(int64_t i) const { return p.distance[i] < p.closest[i] ? p.distance[i] : p.closest[i]; }
    double potential() const {
        double total = 0.0;
        for (int64_t i = 0; i < p.weight.size; i++) total += p.weight[i] * (double)nearer(i);
        return total;
    }
    // The first row up to which the sum of weights times `closest` has this share of all.
    int64_t drawn(double share, double all) const {
        double sum = 0.0;
        for (int64_t i = 0; i < p.weight.size; i++)
            if ((sum += p.weight[i] * (double)p.closest[i]) >= share * all) return i;
        return p.weight.size - 1;
    }
    // Rows drawn by weight: the k least of exponential variables with these rates (Efraimidis and Spirakis 2006).
    __attribute__((noinline)) void draw() const {
        const int64_t n = p.weight.size;
        for (int64_t i = 0; i < n; i++) p.closest[i] = (float)(p.draws[i] / p.weight[i]), p.label[i] = (int32_t)i;
        Candidates{p.closest.at(0, n), p.label.at(0, n)}.select(n, p.k);
        for (int64_t j = 0; j < p.k; j++) p.first[j] = p.label[j];
    }
    // Greedy k-means++: of some rows that are drawn, each centre is the one that leaves the least squares.
    __attribute__((noinline)) void start() const {
        const int64_t n = p.weight.size;
        double all = 0.0;
        for (int64_t i = 0; i < n; i++) p.closest[i] = 1.0f, all += p.weight[i];
        p.first[0] = drawn(p.draws[0], all);
        for (int64_t i = 0; i < n; i++) p.closest[i] = FAR_AWAY;
        for (int64_t j = 0; j < p.k; j++) {
            double least = -1.0;
            for (int64_t t = 0; j > 0 && t < p.trials; t++) {
                const int64_t candidate = drawn(p.draws[j * p.trials + t], all);
                set_distances(candidate);
                const double left = potential();
                if (t == 0 || left < least) least = left, p.first[j] = candidate;
            }
            set_distances(p.first[j]);
            all = potential();
            for (int64_t i = 0; i < n; i++) p.closest[i] = nearer(i);
        }
    }

    // −2 times the centres about the mean of the rows, and their squares, eight side by side.
    void set_factors() const {
        const int64_t d = p.n_features, size = (d + 1) * AT_ONCE;
        for (int64_t j = 0; j < p.factors.size / (d + 1); j++) {
            float *out = p.factors.at(j / AT_ONCE * size, size) + j % AT_ONCE;
            double square = j < p.k ? 0.0 : (double)FAR_AWAY;
            for (int64_t f = 0; f < d; f++) {
                const double c = j < p.k ? p.centres[j * p.width + f] - p.middle[f] : 0.0;
                out[f * AT_ONCE] = (float)(-2.0 * c);
                square += c * c;
            }
            out[d * AT_ONCE] = (float)square;
        }
    }
    // The nearest centre of each row, the first of equals. Whether it is another one for some row.
    __attribute__((noinline)) bool assign() const {
        const int64_t d = p.n_features, size = (d + 1) * AT_ONCE;
        const float *factors = p.factors.at(0, p.factors.size);
        Ints moved = {};
        for (int64_t s = 0; s < n_strips(); s++) {
            const float *x = strip(s);
            Floats best = every(FAR_AWAY);
            Ints number = {};
            for (int64_t j = 0; j < p.k; j += AT_ONCE) {
                const float *own = factors + j / AT_ONCE * size;
                Floats total[AT_ONCE];
UNROLL
                for (int t = 0; t < AT_ONCE; t++) total[t] = every(own[d * AT_ONCE + t]);
                for (int64_t f = 0; f < d; f++) {
                    const Floats value = load(x + f * LANES);
UNROLL
                    for (int t = 0; t < AT_ONCE; t++) total[t] = fma(every(own[f * AT_ONCE + t]), value, total[t]);
                }
UNROLL
                for (int t = 0; t < AT_ONCE; t++) {
                    const Ints less = total[t] < best;
                    best = less ? total[t] : best;
                    number = less ? every((int32_t)(j + t)) : number;
                }
            }
            int32_t *out = p.label.at(s * LANES, LANES);
            moved |= number != load(out);
            store_as(out, number);
        }
        return bits_of(moved != 0) != 0;
    }
    // Centres become the means of their rows; without any they stay. The sum of squares of their ways.
    __attribute__((noinline)) double move() const {
        for (int64_t i = 0; i < p.sums.size; i++) p.sums[i] = 0.0;
        for (int64_t j = 0; j < p.k; j++) p.totals[j] = 0.0;
        for (int64_t i = 0; i < p.weight.size; i++) {
            const int64_t j = p.label[i];
            const float *own = row(i);
            double *sums = p.sums.at(j * p.width, p.width);
            p.totals[j] += p.weight[i];
            for (int64_t f = 0; f < p.width; f += LANES)
                store_as(sums + f, fma(every(p.weight[i]), widened(load(own + f)), load(sums + f)));
        }
        double way = 0.0;
        for (int64_t j = 0; j < p.k; j++)
            for (int64_t f = 0; p.totals[j] > 0.0 && f < p.width; f++) {
                double &centre = p.centres[j * p.width + f];
                const double mean = p.sums[j * p.width + f] / p.totals[j];
                way += (mean - centre) * (mean - centre);
                centre = mean;
            }
        return way;
    }

    void run() const {
        CHECK(p.width % LANES == 0 && p.n_features <= p.width);
        const double variance = place();
        if (p.trials > 0) start();
        else draw();
        for (int64_t j = 0; j < p.k; j++)
            for (int64_t f = 0; f < p.width; f++) p.centres[j * p.width + f] = (double)row(p.first[j])[f];
        for (int64_t i = 0; i < p.label.size; i++) p.label[i] = -1;
        for (int64_t step = 0; step < p.steps; step++) {
            set_factors();
            if (!assign() || move() <= p.tolerance * variance) break;
        }
    }
};
