// Refinement of a leaf: L-BFGS around the objective, step by step as dcpred_tasks.training.lbfgs.minimise, or Adam over batches
// of rows as dcpred_tasks.training.refinement.stochastic.
#include "calibration.h"
#include "ridge.h"
#include "scaling.h"

constexpr int PLACES = MEMORY + 1;  // for the remembered pairs, and a candidate

// Σ x_i y_i of padded vectors, in two chains of sums, always in the same order.
INLINE double dot(const double *x, const double *y, int64_t n) {
    Doubles total[2] = {};
    for (int64_t i = 0; i < n; i += 2 * LANES)
UNROLL
        for (int t = 0; t < 2; t++) total[t] = fma(load(x + i + t * LANES), load(y + i + t * LANES), total[t]);
    return lane_sum(total[0] + total[1]);
}
INLINE void add_scaled(double *x, double factor, const double *y, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) store_as(x + i, fma(every(factor), load(y + i), load(x + i)));
}

struct Descent {
    const Problem &p;
    const Room &room;
    int64_t n;
    double *x, *gradient, *trial, *at_trial, *direction, *moves, *changes;

    // direction = −H g by the two-loop recursion, with the last n_pairs pairs.
    void set_direction(int64_t n_pairs, int64_t newest) {
        double factor = -1.0;
        if (n_pairs == 0) {
            double norm = __builtin_sqrt(dot(gradient, gradient, n));
            factor = norm > 0.0 ? -FIRST_STEP / norm : -1.0;
        }
        for (int64_t i = 0; i < n; i++) direction[i] = factor * gradient[i];
        if (n_pairs == 0) return;
        for (int64_t back = 0; back < n_pairs; back++) {
            int64_t pair = (newest - back + PLACES) % PLACES;
            double a = room.inverse[pair] * dot(moves + pair * n, direction, n);
            add_scaled(direction, -a, changes + pair * n, n);
            room.along[pair] = a;
        }
        factor = 1.0 / (room.inverse[newest] * dot(changes + newest * n, changes + newest * n, n));
        for (int64_t i = 0; i < n; i++) direction[i] *= factor;
        for (int64_t back = n_pairs - 1; back >= 0; back--) {
            int64_t pair = (newest - back + PLACES) % PLACES;
            double b = room.inverse[pair] * dot(changes + pair * n, direction, n);
            add_scaled(direction, room.along[pair] - b, moves + pair * n, n);
        }
    }

    // Make the trial the point. Whether the step is curved: then it is the pair with this number.
    bool step_to_trial(int64_t pair) {
        double *move = moves + pair * n, *change = changes + pair * n;
        for (int64_t i = 0; i < n; i++) {
            move[i] = trial[i] - x[i];
            change[i] = at_trial[i] - gradient[i];
            x[i] = trial[i];
            gradient[i] = at_trial[i];
        }
        double curvature = dot(move, change, n);
        if (!(curvature > CURVED * dot(change, change, n))) return false;
        room.inverse[pair] = 1.0 / curvature;
        return true;
    }

    bool all_finite(const double *vector) {
        double off = 0.0;
        for (int64_t i = 0; i < n; i++) off += vector[i] - vector[i];  // NaN where one is not finite
        return off == 0.0;
    }

    void search() {
        int64_t n_pairs = 0, newest = MEMORY;
        double value = value_and_gradient(p, room, x, gradient);
        room.value[0] = value;
        for (int64_t step = 0; step < p.steps; step++) {
            set_direction(n_pairs, newest);
            double slope = dot(gradient, direction, n), length = 1.0, lower = value;
            if (!(slope < 0.0)) return;
            bool fell = false;
            for (int attempt = 0; attempt < TRIES && !fell; attempt++, length *= SHORTER) {
                for (int64_t i = 0; i < n; i++) trial[i] = x[i] + length * direction[i];
                lower = value_and_gradient(p, room, trial, at_trial);
                fell = lower <= value + DECREASE * length * slope;  // This is false for NaN.
            }
            if (!fell || !all_finite(at_trial)) return;
            int64_t following = (newest + 1) % PLACES;
            if (step_to_trial(following)) {
                newest = following;
                n_pairs = n_pairs < MEMORY ? n_pairs + 1 : n_pairs;
            }
            double gain = value - lower, size = __builtin_fabs(lower);
            room.value[0] = value = lower;
            if (gain < p.tolerance * (size > 1e-300 ? size : 1e-300)) return;
        }
    }
};

// One pass over the rows in the order of room.order, in p.n_batches batches.
struct Pass {
    const Problem &p;
    const Room &room;
    int64_t n;
    double *x, *gradient, *mean, *square;

    // Columns of rows that lie one after the other, as strips of the rows of a batch; zeros beyond `count`.
    void copy_rows(const Array<float> &rows, const Array<float> &out, int64_t columns, int64_t first, int64_t count) {
        const int64_t stride = (columns + LANES - 1) / LANES * LANES;
        for (int64_t s = 0; s * LANES < count; s++)
            for (int64_t column = 0; column < columns; column += LANES) {
                Floats block[LANES];
UNROLL
                for (int row = 0; row < LANES; row++) {
                    const int64_t place = s * LANES + row;
                    block[row] = place < count ? load(rows.at(room.order[first + place] * stride + column, LANES)) : Floats{};
                }
                transpose(block);
                const int64_t left = columns - column < LANES ? columns - column : LANES;
                float *to = out.at((s * columns + column) * LANES, left * LANES);
UNROLL
                for (int j = 0; j < LANES; j++)
                    if (j < left) store_as(to + j * LANES, block[j]);
            }
    }

    // The gradient at x by some rows, whose weights represent all.
    void estimate(const Problem &batch, int64_t first, int64_t count) {
        copy_rows(p.x, batch.x, p.width, first, count);
        copy_rows(p.goals, batch.goals, 4 * p.n_outputs, first, count);
        if (p.offset.size > 0) copy_rows(p.offset, batch.offset, p.n_outputs, first, count);
        for (int64_t to = 0; to < batch.n_strips * LANES; to++)
            room.batch_weight[to] = to < count ? p.weight[room.order[first + to]] * (float)((double)room.order.size / (double)count) : 0.0f;
        value_and_gradient(batch, room, x, gradient);
    }

    void step() {
        double &number = room.adam[0], &mean_left = room.adam[1], &square_left = room.adam[2];
        number += 1.0, mean_left *= MEAN_DECAY, square_left *= SQUARE_DECAY;
        const double falling = 2.0 * (1.0 - number / (double)p.steps);
        const double rate = (falling < 1.0 ? falling : 1.0) / (1.0 - mean_left);
        for (int64_t i = 0; i < n; i++) {
            mean[i] += (1.0 - MEAN_DECAY) * (gradient[i] - mean[i]);
            square[i] += (1.0 - SQUARE_DECAY) * (gradient[i] * gradient[i] - square[i]);
            x[i] -= rate * p.rates[i] * mean[i] / (__builtin_sqrt(square[i] / (1.0 - square_left)) + TINY);
        }
    }

    void run() {
        Problem batch = p;
        batch.x = room.batch_x, batch.goals = room.batch_goals, batch.weight = room.batch_weight;
        batch.offset = room.batch_offset;
        const int64_t rows = room.order.size, count = rows / p.n_batches, longer = rows % p.n_batches;
        for (int64_t number = 0, first = 0; number < p.n_batches; number++) {
            const int64_t own = count + (number < longer);
            batch.n_strips = (own + LANES - 1) / LANES;
            estimate(batch, first, own);
            step();
            first += own;
        }
    }
};

// Sets room.x to the lowest point within at most p.steps steps; or, where there are batches, goes on from it for one pass.
extern "C" ENTRY int32_t refine(const Arguments *arguments) {
    const Problem &p = arguments->p;
    const Room &room = arguments->room;
    GUARDED({
        const int64_t n = (p.n_unknowns + 2 * LANES - 1) / (2 * LANES) * (2 * LANES);
        double *x = room.x.at(0, n), *gradient = room.gradient.at(0, n), *trial = room.trial.at(0, n);
        double *direction = room.direction.at(0, n);
        if (p.n_batches > 0) {
            CHECK(p.rates.size == p.n_unknowns);
            Pass{p, room, p.n_unknowns, x, gradient, trial, direction}.run();
        } else {
            double *at_trial = room.at_trial.at(0, n), *moves = room.moves.at(0, PLACES * n), *changes = room.changes.at(0, PLACES * n);
            Descent{p, room, n, x, gradient, trial, at_trial, direction, moves, changes}.search();
        }
    });
}

// The k nearest rows of the pool come first in `number` of each row.
extern "C" ENTRY int32_t nearest(const SearchArguments *arguments) { GUARDED(Scan{arguments->search}.run();); }

// The factors that `dcpred_tasks.training.learned_scaling.learn` finds: `mean` of their logarithms.
extern "C" ENTRY int32_t learn(const LearningArguments *arguments) {
    GUARDED(Learner({arguments->learning, arguments->learning.search}).run(););
}

// What neighbours predict.
extern "C" ENTRY int32_t predict(const PredictionArguments *arguments) { GUARDED(predict_rows(arguments->predictions);); }

// Centres of rows.
extern "C" ENTRY int32_t cluster(const ClusteringArguments *arguments) { GUARDED(Clusters{arguments->clustering}.run();); }

// Output weights and intercepts by ridge regression.
extern "C" ENTRY int32_t fit_ridge(const RidgeArguments *of) { GUARDED((Fit{of->p, of->room, of->ridge}).run();); }

// Landmarks to start from.
extern "C" ENTRY int32_t place_landmarks(const BeginningArguments *of) {
    GUARDED((Beginning{{of->p, of->room, of->ridge}, of->clustering}).run(););
}

// The loss of a calibration.
extern "C" ENTRY int32_t calibrate(const CalibratingArguments *of) { GUARDED(Calibrator{of->calibrating}.run();); }
