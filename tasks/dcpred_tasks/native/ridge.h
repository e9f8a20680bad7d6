// The ridge regression that refinement starts from, and the landmarks it starts with: k-means by the slack that a fit to landmarks of
// k-means leaves.
#pragma once
#include "clusters.h"
#include "objective.h"

constexpr double DEPENDENT = 1e-6;  // share of a diagonal element below which rounding left it

struct Fit {
    const Problem &p;
    const Room &room;
    const Ridge &r;

    int64_t size() const { return p.n_landmarks + p.n_pairs + 1; }  // of a solution: output weights and intercepts
    int64_t column(int64_t i) const { return i < p.n_landmarks ? i : p.padded + i - p.n_landmarks; }
    double *theta() const { return room.x.at(0, p.n_unknowns); }
    // Where the weight of term i for an output lies in θ.
    int64_t place(int64_t i, int64_t output) const {
        return i < size() - 1 ? p.beta_at + i * p.n_outputs + output : p.intercept_at + output;
    }

    template <class Use> void each_tile(Use use) const {
        for_family(p.kernel, [&](auto kernel) {
            typedef decltype(kernel) Kernel;
            place_parts<Kernel>(p, room, theta());
            for (int64_t first = 0; first < p.n_strips; first += p.tile_strips) {
                const int64_t left = p.n_strips - first;
                const Tile tile{first, left < p.tile_strips ? left : p.tile_strips};
                kernel_columns<Kernel>(p, room, tile);
                decision_columns(p, room, tile);
                use(tile);
            }
        });
    }

    // Kernel values times weights of rows, and 1 and targets times these.
    void set_weighted(const Tile &tile) const {
        for (int64_t s = 0; s < tile.strips; s++) {
            const Floats weight = load(r.weight.at((tile.first + s) * LANES, LANES));
            const float *K = room.K.at(s * p.k_stride * LANES, p.terms * LANES);
            float *out = r.weighted.at(s * r.stride * LANES, r.stride * LANES);
            for (int64_t j = 0; j < p.terms; j++) store_as(out + j * LANES, load(K + j * LANES) * weight);
            out += p.terms * LANES;
            store_as(out, weight);
            for (int64_t k = 0; k < p.n_outputs; k++)
                store_as(out + (k + 1) * LANES, load(r.target.at(((tile.first + s) * p.n_outputs + k) * LANES, LANES)) * weight);
        }
    }

    // Σ_t L_it L_jt of the columns before j: those from there on are still 0.
    double product(int64_t i, int64_t j) const {
        const int64_t columns = (size() + LANES - 1) / LANES * LANES;
        const double *ours = r.factor.at(i * columns, columns), *theirs = r.factor.at(j * columns, columns);
        Doubles total = {};
        for (int64_t t = 0; t < j; t += LANES) total = fma(load(ours + t), load(theirs + t), total);
        return lane_sum(total);
    }
    // By Cholesky. A term that others span to rounding gets the weight 0.
    __attribute__((noinline)) void solve_system() const {
        const int64_t n = size(), k = p.n_outputs, columns = (n + LANES - 1) / LANES * LANES;
        double *L = r.factor.at(0, n * columns), *R = r.right.at(0, n * k);
        for (int64_t i = 0; i < n * columns; i++) L[i] = 0.0;
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < i; j++)
                if (L[j * columns + j] > 0.0) L[i * columns + j] = (r.system[i * n + j] - product(i, j)) / L[j * columns + j];
            const double all = r.system[i * n + i], left = all - product(i, i);
            L[i * columns + i] = left > DEPENDENT * all ? __builtin_sqrt(left) : 0.0;
        }
        for (int64_t output = 0; output < k; output++) {
            for (int64_t i = 0; i < n; i++) {
                double sum = R[i * k + output];
                for (int64_t t = 0; t < i; t++) sum -= L[i * columns + t] * R[t * k + output];
                R[i * k + output] = L[i * columns + i] > 0.0 ? sum / L[i * columns + i] : 0.0;
            }
            for (int64_t i = n - 1; i >= 0; i--) {
                double sum = R[i * k + output];
                for (int64_t t = i + 1; t < n; t++) sum -= L[t * columns + i] * R[t * k + output];
                R[i * k + output] = L[i * columns + i] > 0.0 ? sum / L[i * columns + i] : 0.0;
                theta()[place(i, output)] = i < n - 1 ? R[i * k + output] / p.scale : R[i * k + output];
            }
        }
    }

    // Sets output weights and intercepts in θ, and the values of the fit.
    void run() const {
        const int64_t n = size(), columns = r.stride - p.terms;
        double weight = 0.0;
        for (int64_t i = 0; i < r.sums.size; i++) r.sums[i] = 0.0;
        for (int64_t i = 0; i < n * p.n_outputs; i++) r.right[i] = 0.0;
        each_tile([&](const Tile &tile) {
            set_weighted(tile);
            outer_sums(room.K, p.k_stride, p.terms, r.weighted, 0, r.stride, r.stride, tile.strips, r.sums);
            for (int64_t s = 0; s < tile.strips; s++) {
                const float *own = r.weighted.at((s * r.stride + p.terms) * LANES, columns * LANES);
                weight += lane_sum(widened(load(own)));
                for (int64_t k = 0; k < p.n_outputs; k++)
                    r.right[(n - 1) * p.n_outputs + k] += lane_sum(widened(load(own + (k + 1) * LANES)));
            }
        });
        for (int64_t i = 0; i < n - 1; i++) {
            for (int64_t j = 0; j <= i; j++) r.system[i * n + j] = summed(r.sums, r.stride, column(i), column(j));
            r.system[i * n + i] += r.ridge;
            r.system[(n - 1) * n + i] = summed(r.sums, r.stride, column(i), p.terms);
            for (int64_t k = 0; k < p.n_outputs; k++) r.right[i * p.n_outputs + k] = summed(r.sums, r.stride, column(i), p.terms + 1 + k);
        }
        r.system[n * n - 1] = weight;
        solve_system();
        each_tile([&](const Tile &tile) {
            for (int64_t s = 0; s < tile.strips; s++)
                for (int64_t k = 0; k < p.n_outputs; k++)
                    store_as(r.values.at(((tile.first + s) * p.n_outputs + k) * LANES, LANES), load(room.f.at((s * p.f_stride + k) * LANES, LANES)));
        });
    }
};

struct Beginning {
    const Fit fit;
    const Clustering &c;

    // Landmarks at the centres; weights and intercepts of 0.
    void find() const {
        const Problem &p = fit.p;
        Clusters{c}.run();
        for (int64_t j = 0; j < p.n_landmarks; j++)
            for (int64_t f = 0; f < p.n_features; f++) fit.theta()[j * p.n_features + f] = (double)(float)c.centres[j * c.width + f];
    }
    // Weights of rows become those of k-means with a share of squared slack, in machines of squared losses that of α².
    void weigh() const {
        const Ridge &r = fit.r;
        const int64_t n = c.weight.size, k = fit.p.n_outputs;
        double total = 0.0, mean = 0.0;
        for (int64_t i = 0; i < n; i++) {
            double squares = 0.0;
            for (int64_t output = 0; output < k; output++) {
                const int64_t at = (i / LANES * k + output) * LANES + i % LANES;
                const double left = (double)r.target[at] - (double)r.values[at];
                const double slack = r.sign.size == 0 || r.sign[at] * left > 0.0 ? left : 0.0;
                squares += slack * slack;
            }
            r.squares[i] = squares;
            mean += c.weight[i] * squares, total += c.weight[i];
        }
        if (!(mean > 0.0) || mean - mean != 0.0) return;
        for (int64_t i = 0; i < n; i++) c.weight[i] *= (1.0 - r.floor) * r.squares[i] / (mean / total) + r.floor;
    }
    void run() const {
        find();
        fit.run();
        weigh();
        find();
    }
};
