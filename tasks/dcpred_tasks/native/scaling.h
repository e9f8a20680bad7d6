// Factors of features from nearest neighbours: the steps of dcpred_tasks.training.learned_scaling.learn, and what the neighbours of rows
// predict, as its `soft_weights`.
#pragma once
#include "neighbours.h"

// The soft weights of the neighbours of a row, of two vectors of squared distances, the first k of which count, and of the weights of
// these rows, which are 0 beyond; the sum of all.
INLINE double soft_weights(Floats (&P)[2], const Floats (&squares)[2], const float *weight, int64_t k) {
    CHECK(k > 0 && k <= MOST_NEAR);
    float least = FAR_AWAY;
    for (int64_t j = 0; j < k; j++) least = squares[j / LANES][j % LANES] < least ? squares[j / LANES][j % LANES] : least;
    Floats total = {};
UNROLL
    for (int i = 0; i < 2; i++) {
        Floats farther = squares[i] - least;
        farther = farther < FAR_AWAY ? farther : every(FAR_AWAY);
        P[i] = exp2_below_0(farther * (float)-LOG2_E) * load(weight + i * LANES);
        total += P[i];
    }
    return lane_sum(widened(total));
}
// Σ P t.
INLINE double weighted_sum(const Floats (&P)[2], const double *t) {
    return lane_sum(fma(widened(P[0]), load(t), widened(P[1]) * load(t + LANES)));
}

// What neighbours predict for each row and width.
INLINE void predict_rows(const Predictions &p) {
    const int64_t n = p.squares.size / p.k;
    for (int64_t row = 0; row < n; row++) {
        float square[MOST_NEAR] = {}, weight[MOST_NEAR] = {};
        double t[MOST_NEAR] = {};
        for (int64_t j = 0; j < p.k; j++) {
            square[j] = p.squares[row * p.k + j], weight[j] = p.weight[row * p.k + j], t[j] = p.target[row * p.k + j];
        }
        for (int64_t i = 0; i < p.widths.size; i++) {
            const float width = (float)p.widths[i];
            const Floats far[2] = {load(square) * width, load(square + LANES) * width};
            Floats near[2], P[2];
            for (int v = 0; v < 2; v++) near[v] = far[v] < FAR_AWAY ? far[v] : every(FAR_AWAY);
            const double sum = soft_weights(P, near, weight, p.k);
            p.predicted[i * n + row] = weighted_sum(P, t) / sum;
        }
    }
}

// Lanes are neighbours of an anchor: `squares` holds the squared differences in one feature after the other.
struct Learner {
    const Learning &p;
    const Search &s;

    // The anchors of a round, and what steps need of their neighbours.
    __attribute__((noinline)) void find(int64_t round) const {
        for (int64_t f = 0; f < s.columns; f++) s.root[f] = (float)__builtin_sqrt(__builtin_exp(p.log_w[f]));
        for (int64_t row = 0; row < s.held.size; row++) {
            const int64_t own = row < p.n_anchors ? p.anchors[round * p.n_anchors + row] : -1;
            s.pool_row[row] = own;
            for (int64_t f = 0; f < s.columns; f++) s.given[row * s.columns + f] = s.source[(own < 0 ? 0 : own) * s.columns + f];
        }
        Scan{s}.run();
        for (int64_t row = 0; row < p.n_anchors; row++)
            for (int64_t j = 0; j < s.k; j++) {
                const int64_t near = s.number[row * s.room + j], at = row * MOST_NEAR + j;
                const double target = p.target[near];
                p.near_weight[at] = (float)p.weight[near];
                p.near_target[at] = p.classes ? (double)(target == p.target[s.pool_row[row]]) : target;
                const float *here = s.given.at(row * s.columns, s.columns), *there = s.source.at(near * s.columns, s.columns);
                float *squares = p.squares.at(row * s.columns * MOST_NEAR, s.columns * MOST_NEAR) + j;
                for (int64_t f = 0; f < s.columns; f++) squares[f * MOST_NEAR] = (here[f] - there[f]) * (here[f] - there[f]);
            }
    }

    // Add the derivatives of the loss of an anchor by w, with its share in the loss.
    INLINE_MEMBER void add(int64_t row, double share) const {
        const float *squares = p.squares.at(row * s.columns * MOST_NEAR, s.columns * MOST_NEAR);
        const double *t = p.near_target.at(row * MOST_NEAR, MOST_NEAR), y = p.target[s.pool_row[row]];
        Floats D[2] = {}, P[2], by_square[2];
        for (int64_t f = 0; f < s.columns; f++) {
            const Floats w = every(s.root[f]);
            for (int i = 0; i < 2; i++) D[i] = fma(load(squares + f * MOST_NEAR + i * LANES), w, D[i]);
        }
        const double sum = soft_weights(P, D, p.near_weight.at(row * MOST_NEAR, MOST_NEAR), s.k);
        const double predicted = weighted_sum(P, t) / sum;
        const double slope =
            p.classes ? -(1.0 - p.floor) / (p.floor + (1.0 - p.floor) * predicted) : 2.0 * (predicted - y);
        for (int i = 0; i < 2; i++)
            by_square[i] = narrowed(widened(P[i]) * (predicted - load(t + i * LANES)) * (share * slope / sum));
        for (int64_t f = 0; f < s.columns; f++) {
            float *sums = p.sums.at(f * LANES, LANES);
            const float *square = squares + f * MOST_NEAR;
            store_as(sums, fma(by_square[1], load(square + LANES), fma(by_square[0], load(square), load(sums))));
        }
    }

    // A step of Adam in log w.
    void step(int64_t number, int64_t n_steps, double &slope_left, double &square_left) const {
        const int64_t n_mean = 2 * n_steps / 5;
        const double falling = 2.0 - 2.0 * (double)(number - 1) / (double)n_steps, rate = p.pace * (falling < 1.0 ? falling : 1.0);
        slope_left *= SLOPE_DECAY, square_left *= SQUARE_LEFT;
        for (int64_t f = 0; f < s.columns; f++) {
            const double by_w = lane_sum(widened(load(p.sums.at(f * LANES, LANES))));
            const double gradient = by_w * __builtin_exp(p.log_w[f]) + p.pull * (p.log_w[f] - p.first[f]);
            p.slope[f] = SLOPE_DECAY * p.slope[f] + (1.0 - SLOPE_DECAY) * gradient;
            p.square[f] = SQUARE_LEFT * p.square[f] + (1.0 - SQUARE_LEFT) * gradient * gradient;
            const double size = __builtin_sqrt(p.square[f] / (1.0 - square_left)) + TINY;
            p.log_w[f] -= rate * (p.slope[f] / (1.0 - slope_left)) / size;
            if (number > n_steps - n_mean) p.mean[f] += p.log_w[f] / (double)n_mean;
        }
    }

    void run() const {
        const int64_t n_steps = p.rounds * p.steps, m = p.n_anchors;
        double slope_left = 1.0, square_left = 1.0;
        for (int64_t round = 0, number = 0; round < p.rounds; round++) {
            find(round);
            for (int64_t part = 0; part < p.steps; part++) {
                const int64_t first = part * p.batch;
                double weight = 0.0;
                for (int64_t i = 0; i < p.batch; i++) weight += p.weight[s.pool_row[(first + i) % m]];
                for (int64_t i = 0; i < p.sums.size; i++) p.sums[i] = 0.0f;
                for (int64_t f = 0; f < s.columns; f++) s.root[f] = (float)__builtin_exp(p.log_w[f]);
                for (int64_t i = 0; i < p.batch; i++) add((first + i) % m, p.weight[s.pool_row[(first + i) % m]] / weight);
                step(++number, n_steps, slope_left, square_left);
            }
        }
    }
};
