// Boosting of oblivious trees: gradients of a loss, the questions of a tree, its leaf values, and the loss of rows that are held out.
// training/tree_boosting.py explains the arrays; the formulas of losses are those of training/losses.py, 16 rows at a time.
#pragma once
#include "growth.h"
#include "kernels.h"

typedef Lanes<uint8_t, STRIP_ROWS> Bytes;
typedef Lanes<double, 2> Both;  // A slope and a curvature.

struct Parabola {
    Floats slope, curvature;
};

// The square of an error.
struct SquaredError {
    INLINE_MEMBER explicit SquaredError(const Boosting &, double) {}
    INLINE_MEMBER Parabola at(Floats f, Floats goal) const { return {(f - goal) * 2.0f, every(2.0f)}; }
    INLINE_MEMBER Floats judged(Floats f, Floats goal) const { return (f - goal) * (f - goal); }
};

// Twice Huber's loss, or that of a quantile, for residuals of some size; judged without its width, which changes.
struct RobustError {
    Floats width, steep, tilt;
    INLINE_MEMBER RobustError(const Boosting &p, double size)
        : width(every((float)(p.loss_numbers[0] * size))), steep(every((float)(p.loss_numbers[1] * size))),
          tilt(every((float)p.loss_numbers[2])) {}
    INLINE_MEMBER Parabola at(Floats f, Floats goal) const {
        const Floats r = goal - f, size = magnitude(r);
        Floats share = r / width;
        share = share > 1.0f ? every(1.0f) : share < -1.0f ? every(-1.0f) : share;
        return {-steep * (tilt + share), steep / (size > width ? size : width)};
    }
    INLINE_MEMBER Floats judged(Floats f, Floats goal) const { return tilt * (goal - f) + magnitude(goal - f); }
};

// −log p of two classes.
struct LossOfTwo {
    struct Shares {
        Floats less, sum;
        Ints positive;
    };
    INLINE_MEMBER explicit LossOfTwo(const Boosting &, double) {}
    INLINE_MEMBER static Floats exponent(Floats f) { return magnitude(f) * (float)(-2.0 * SHARPNESS * LOG2_E); }
    INLINE_MEMBER Parabola at(Floats f, Floats goal) const {
        const Floats less = exp2_below_0(exponent(f)), high = 1.0f / (less + 1.0f), low = less * high;
        const Ints right = goal > 0.0f, positive = f >= 0.0f;
        const Floats p = positive ? high : low, rest = positive ? low : high;
        return {(right ? -rest : p) * (float)(2.0 * SHARPNESS), p * rest * (float)(4.0 * SHARPNESS * SHARPNESS)};
    }
    INLINE_MEMBER Floats judged(Floats f, Floats goal) const {
        const Floats behind = exponent(f);
        const Ints right = goal > 0.0f, positive = f >= 0.0f;
        return (float)(1.0 / LOG2_E) * (log2_above_1(exp2_below_0(behind) + 1.0f) - (positive == right ? Floats{} : behind));
    }
};

template <class Loss> struct OneOutput {
    const Boosting &p;
    const Loss loss;
    INLINE_MEMBER OneOutput(const Boosting &p, double size) : p(p), loss(p, size) {}

    // Slopes and curvatures of 16 rows.
    INLINE_MEMBER void differentiate(const float *f, int64_t row, float *slope, float *curvature) const {
        const Parabola here = loss.at(load(f + row), load(p.goal.at(row, LANE_COUNT)));
        const Floats weight = load(p.weight.at(row, LANE_COUNT));
        store_as(slope + row, here.slope * weight), store_as(curvature + row, here.curvature * weight);
    }
    INLINE_MEMBER Floats judged(const float *f, int64_t row) const { return loss.judged(load(f + row), load(p.goal.at(row, LANE_COUNT))); }
};

// −log p of several classes.
struct SeveralClasses {
    const Boosting &p;
    INLINE_MEMBER SeveralClasses(const Boosting &p, double) : p(p) {}

    INLINE_MEMBER Floats largest(const float *f) const {
        Floats most = load(f);
        for (int64_t k = 1; k < p.n_outputs; k++) {
            const Floats here = load(f + k * p.n_rows);
            most = here > most ? here : most;
        }
        return most;
    }
    INLINE_MEMBER static Floats exponent(const float *f, Floats most) { return (load(f) - most) * (float)(SHARPNESS * LOG2_E); }

    INLINE_MEMBER void differentiate(const float *f, int64_t row, float *slope, float *curvature) const {
        const Floats most = largest(f + row), weight = load(p.weight.at(row, LANE_COUNT));
        Floats sum = {};
        for (int64_t k = 0; k < p.n_outputs; k++) {
            const Floats power = exp2_below_0(exponent(f + k * p.n_rows + row, most));
            store_as(slope + k * p.n_rows + row, power);
            sum += power;
        }
        const Floats part = 1.0f / sum;
        for (int64_t k = 0; k < p.n_outputs; k++) {
            const int64_t at = k * p.n_rows + row;
            const Floats power = load(slope + at), share = power * part, rest = (sum - power) * part;
            const Ints right = load(p.goal.at(at, LANE_COUNT)) > 0.0f;
            store_as(slope + at, (right ? -rest : share) * (float)SHARPNESS * weight);
            store_as(curvature + at, share * rest * (float)(SHARPNESS * SHARPNESS) * weight);
        }
    }
    INLINE_MEMBER Floats judged(const float *f, int64_t row) const {
        const Floats most = largest(f + row);
        Floats sum = {}, reached = {};
        for (int64_t k = 0; k < p.n_outputs; k++) {
            const int64_t at = k * p.n_rows + row;
            const Floats ahead = exponent(f + at, most);
            sum += exp2_below_0(ahead);
            reached = load(p.goal.at(at, LANE_COUNT)) > 0.0f ? ahead : reached;
        }
        return (float)(1.0 / LOG2_E) * (log2_above_1(sum) - reached);
    }
};

struct Booster {
    const Boosting &p;
    const BoostingRoom &room;
    const Grown &grown;

    // -- losses

    template <class Use> INLINE_MEMBER void with_loss(Use use) const {
        if (p.n_outputs > 1) return use(SeveralClasses(p, 0.0));
        switch (p.loss) {
        case 0: return use(OneOutput<SquaredError>(p, 0.0));
        case 1: return use(OneOutput<LossOfTwo>(p, 0.0));
        default: return use(OneOutput<RobustError>(p, room.reached[1]));
        }
    }
    void differentiate(const float *f) const {
        float *slope = room.slope.at(0, p.n_outputs * p.n_rows), *curvature = room.curvature.at(0, p.n_outputs * p.n_rows);
        with_loss([&](const auto &loss) {
            for (int64_t row = 0; row < p.n_learning; row += LANE_COUNT) loss.differentiate(f, row, slope, curvature);
        });
    }
    // The loss of rows that are held out.
    double judged() const {
        const float *f = room.f.at(0, p.n_outputs * p.n_rows);
        Doubles total = {};
        with_loss([&](const auto &loss) {
            for (int64_t row = p.n_rows - p.n_held; row < p.n_rows; row += LANE_COUNT)
                total += widened(loss.judged(f, row) * load(p.weight.at(row, LANE_COUNT)));
        });
        return lane_sum(total);
    }
    // losses.residual_size: the median, digit by digit of the bits of positive numbers, whose order is that of the numbers.
    void settle() const {
        uint32_t known = 0, mask = 0;
        double below = 0.0, half = 0.0, mean = 0.0;
        for (int64_t row = 0; row < p.n_learning; row++) {
            const float size = __builtin_fabsf(p.goal[row] - room.f[row]);
            half += (double)p.weight[row], mean += (double)p.weight[row] * (double)size;
        }
        mean /= half, half /= 2.0;
        for (int shift = 24; shift >= 0; shift -= 8) {
            double sums[256] = {};
            for (int64_t row = 0; row < p.n_learning; row++) {
                const uint32_t bits = __builtin_bit_cast(uint32_t, __builtin_fabsf(p.goal[row] - room.f[row]));
                if ((bits & mask) == known) sums[bits >> shift & 255] += (double)p.weight[row];
            }
            uint32_t digit = 0;
            for (uint32_t i = 0; i < 256; i++)
                if (sums[i] > 0.0) {
                    digit = i;
                    if (below + sums[i] >= half) break;
                    below += sums[i];
                }
            known |= digit << shift, mask |= 255u << shift;
        }
        const double median = (double)__builtin_bit_cast(float, known);
        room.reached[1] = median > 0.0 ? NORMAL * median : mean > 0.0 ? mean : 1.0;
    }

    // -- what questions follow

    INLINE_MEMBER Parabola parts_of(int64_t output, int64_t row) const {
        const int64_t at = output * p.n_rows + row;
        return {load(room.slope.at(at, LANE_COUNT)), load(room.curvature.at(at, LANE_COUNT))};
    }
    // Slopes and curvatures of 16 rows: of an output, or random sums of many.
    template <int width> INLINE_MEMBER Parabola followed(int64_t row, int k) const {
        if (p.n_outputs <= width) {
            if (k >= p.n_outputs) return {Floats{}, Floats{}};
            return parts_of(k, row);
        }
        Floats slope = {}, curvature = {};
        for (int64_t output = 0; output < p.n_outputs; output++) {
            const Parabola own = parts_of(output, row);
            slope += room.signs[output * width + k] ? own.slope : -own.slope, curvature += own.curvature;
        }
        return {slope * (float)p.of_sums[0], curvature * (float)p.of_sums[1]};
    }
    // Whole numbers whose sums stay below 2^WHOLE_BITS, and rows; returns the factor.
    template <int width> double make_whole(int64_t number) const {
        const int64_t n = p.n_learning;
        for (int64_t i = 0; i < room.signs.size; i++) room.signs[i] = hashed((uint64_t)i, p.seed + 17 + number) & 1;
        double largest = p.ridge;
        for (int k = 0; k < width; k++) {
            Doubles slopes = {}, curvatures = {};
            for (int64_t row = 0; row < n; row += LANE_COUNT) {
                const Parabola here = followed<width>(row, k);
                slopes += widened(magnitude(here.slope)), curvatures += widened(here.curvature);
            }
            const double slope = lane_sum(slopes), curvature = lane_sum(curvatures);
            largest = slope > largest ? slope : largest, largest = curvature > largest ? curvature : largest;
        }
        const uint64_t exponent = __builtin_bit_cast(uint64_t, largest) >> 52;  // 2^(exponent − 1023) ≤ largest
        const double unit = __builtin_bit_cast(double, (uint64_t)(WHOLE_BITS - 1 + 2 * 1023 - (int64_t)exponent) << 52);
        const Floats factor = every((float)unit);
        int64_t *whole = room.whole.at(0, (n + LANE_COUNT - 1) / LANE_COUNT * LANE_COUNT * width);
        for (int64_t row = 0; row < n; row += LANE_COUNT) {
            Lanes<int64_t, LANE_COUNT> cells[width];
            for (int k = 0; k < width; k++) {
                const Parabola here = followed<width>(row, k);
                const Ints slope = __builtin_convertvector(nearest(here.slope * factor), Ints);
                const Ints curvature = __builtin_convertvector(nearest(here.curvature * factor), Ints);
                typedef Lanes<int64_t, LANE_COUNT> Wide;
                cells[k] = __builtin_convertvector(slope, Wide) * ((int64_t)1 << 32) + __builtin_convertvector(curvature, Wide);
            }
            if (width == 1) store_as(whole + row, cells[0]);
            for (int r = 0; width > 1 && r < LANE_COUNT; r++)
                for (int k = 0; k < width; k++) whole[(row + r) * width + k] = cells[k][r];
        }
        return unit;
    }

    // Rows that choose the questions of a tree: returns their number.
    int64_t draw_rows(int64_t number) const {
        int64_t n = 0;
        int32_t *rows = room.rows.at(0, p.n_learning);
        for (int64_t row = 0; row < p.n_learning; row++) {
            rows[n] = (int32_t)row;
            n += (double)(hashed((uint64_t)row, p.seed + 13 + number) >> 11) < ROW_SHARE * 0x1p53;
        }
        if (n == 0)
            for (; n < p.n_learning; n++) rows[n] = (int32_t)n;
        return n;
    }
    // The columns that a tree may ask for, and where their cells begin: returns the number of cells, which the last column fills up.
    int64_t draw_columns(int64_t number, int width) const {
        const int64_t d = p.n_features, n = room.cell_at.size;
        int64_t cells = 0;
        for (int64_t i = 0; i < n; i++) {
            if (n < d) {
                const int64_t other = i + (int64_t)(hashed((uint64_t)i, p.seed + 19 + number) % (uint64_t)(d - i)), column = room.columns[i];
                room.columns[i] = room.columns[other], room.columns[other] = column;
            }
            room.cell_at[i] = cells;
            cells += p.n_bins[room.columns[i]] * width;
        }
        return (cells + LANE_COUNT * width - 1) / (LANE_COUNT * width) * (LANE_COUNT * width);
    }

    template <int width> void grow(int64_t number, int32_t *feature, uint8_t *least) const {
        const double unit = make_whole<width>(number);
        const int64_t n_rows = draw_rows(number), n_cells = draw_columns(number, width);
        Growing<width>{p, room, room.cell_at.size, n_cells, (float)(p.ridge * unit), {}, {}, {}}.run(n_rows, feature, least);
    }

    // -- leaves

    void find_leaves(const int32_t *feature, const uint8_t *least) const {
        for (int64_t row = 0; row < p.n_rows; row += STRIP_ROWS) {
            Bytes leaf = {};
            for (int64_t level = 0; level < p.depth; level++) {
                const Bytes bin = load_as<Bytes>(p.columns.at(feature[level] * p.n_rows + row, STRIP_ROWS));
                const uint8_t bit = (uint8_t)(1 << level);
                leaf = bin >= least[level] ? leaf + bit : leaf;
            }
            store_as(room.leaf.at(row, STRIP_ROWS), leaf);
        }
    }
    // Steps of Newton's method, times the rate.
    void find_values(double *values) const {
        const int64_t n_leaves = (int64_t)1 << p.depth;
        const uint8_t *leaf = room.leaf.at(0, p.n_rows);
        for (int64_t i = 0; i < p.n_outputs * n_leaves; i++) values[i] = 0.0;
        for (int step = 0; step < (p.loss == ROBUST ? ROBUST_STEPS : 1); step++) {
            if (step) {
                for (int64_t row = 0; row < p.n_learning; row++) room.moved[row] = room.f[row] + (float)values[leaf[row]];
                differentiate(room.moved.data);
            }
            for (int64_t k = 0; k < p.n_outputs; k++) {
                const float *slope = room.slope.at(k * p.n_rows, p.n_rows), *curvature = room.curvature.at(k * p.n_rows, p.n_rows);
                Both sums[1 << MOST_DEPTH] = {};
                for (int64_t row = 0; row < p.n_learning; row++) sums[leaf[row]] += Both{(double)slope[row], (double)curvature[row]};
                for (int64_t i = 0; i < n_leaves; i++) values[k * n_leaves + i] -= sums[i][0] / (sums[i][1] + p.ridge);
            }
        }
        for (int64_t i = 0; i < p.n_outputs * n_leaves; i++) values[i] *= p.rate;
    }
    void add_values(const double *values) const {
        const int64_t n_leaves = (int64_t)1 << p.depth;
        const uint8_t *leaf = room.leaf.at(0, p.n_rows);
        for (int64_t k = 0; k < p.n_outputs; k++) {
            float single[1 << MOST_DEPTH], *f = room.f.at(k * p.n_rows, p.n_rows);
            for (int64_t i = 0; i < n_leaves; i++) single[i] = (float)values[k * n_leaves + i];
            for (int64_t row = 0; row < p.n_rows; row++) f[row] += single[leaf[row]];
        }
    }

    // Grow trees until there are as many as wanted, the arrays of results are full, or held-out rows no longer gain.
    void run() const {
        CHECK(p.depth >= 1 && p.depth <= MOST_DEPTH && p.n_rows % STRIP_ROWS == 0 && p.n_held % STRIP_ROWS == 0);
        const int64_t n_values = p.n_outputs << p.depth, at_once = grown.leaf.size / n_values;
        int64_t &number = grown.counts[0], &best = grown.counts[1], tree = 0;
        for (; tree < at_once && number < p.most && number - best < PATIENCE; tree++) {
            if (p.loss == ROBUST && number % SETTLED_TREES == 0) settle();
            differentiate(room.f.at(0, p.n_outputs * p.n_rows));
            int32_t *feature = grown.feature.at(tree * p.depth, p.depth);
            uint8_t *least = grown.bin.at(tree * p.depth, p.depth);
            double *values = grown.leaf.at(tree * n_values, n_values);
            if (p.n_outputs == 1) grow<1>(number, feature, least);
            else if (p.n_outputs == 2) grow<2>(number, feature, least);
            else grow<MOST_SKETCHED>(number, feature, least);
            find_leaves(feature, least), find_values(values), add_values(values);
            number++;
            if (p.n_held == 0) best = number;
            else if (const double loss = judged(); loss < room.reached[0]) best = number, room.reached[0] = loss;
        }
    }
};
