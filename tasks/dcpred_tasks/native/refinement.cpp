// Refinement of a leaf: L-BFGS around the objective, step by step as dcpred_tasks.training.lbfgs.minimise.
#include "objective.h"

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

// Sets room.x to the lowest point within at most p.steps steps.
extern "C" ENTRY int32_t refine(const Arguments *arguments) {
    const Problem &p = arguments->p;
    const Room &room = arguments->room;
    GUARDED({
        const int64_t n = (p.n_unknowns + 2 * LANES - 1) / (2 * LANES) * (2 * LANES);
        Descent{p,
                room,
                n,
                room.x.at(0, n),
                room.gradient.at(0, n),
                room.trial.at(0, n),
                room.at_trial.at(0, n),
                room.direction.at(0, n),
                room.moves.at(0, PLACES * n),
                room.changes.at(0, PLACES * n)}
            .search();
    });
}
