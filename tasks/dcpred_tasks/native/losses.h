// Losses of decision values, 16 rows at a time: the value of a tile; `room.f` becomes its derivative by f, whose sums over rows
// are added to `room.slopes`. A loss is a struct with `columns` and a place in `for_loss`, which is `native` of its class in
// dcpred_tasks.training.losses, where the formulas are; `p.loss_numbers` are its numbers.
#pragma once
#include "kernels.h"
#include "refinement_layout.h"

constexpr double LN_2 = 0.6931471805599453;

// f − its nearest value in [low, high]; NaN where one of the three is.
INLINE Floats off_interval(Floats f, Floats low, Floats high) {
    Floats near = f > low ? f : low;
    return f - (near < high ? near : high);
}

struct Goals {  // of a strip and an output: the interval of the target, and that of the distillation target
    const float *at;
    INLINE_MEMBER Floats low() const { return load(at); }
    INLINE_MEMBER Floats high() const { return load(at + LANES); }
    INLINE_MEMBER Floats low_guide() const { return load(at + 2 * LANES); }
    INLINE_MEMBER Floats high_guide() const { return load(at + 3 * LANES); }
};
INLINE Goals goals_of(const Problem &p, int64_t row, int64_t k) {
    return {p.goals.at((row * p.n_outputs + k) * 4 * LANES, 4 * LANES)};
}

struct Point {  // of a row and an output
    Floats value, slope;
};

// A loss of each output by itself: Loss::of gives its value and derivative before they are weighted.
template <class Loss> NOINLINE double output_columns(const Problem &p, const Room &room, int64_t first, int64_t strips) {
    const Loss loss(p);
    Doubles total = {};
    for (int64_t k = 0; k < p.n_outputs; k++) {
        Doubles slope = {};
        for (int64_t s = 0; s < strips; s++) {
            float *place = room.f.at((s * p.f_stride + k) * LANES, LANES);
            Floats w = load(p.weight.at((first + s) * LANES, LANES));
            Point point = loss.of(load(place), goals_of(p, first + s, k));
            Floats fall = w * point.slope;
            store_as(place, fall);
            total += widened(w * point.value);
            slope += widened(fall);
        }
        room.slopes[k] += lane_sum(slope);
    }
    return lane_sum(total);
}

// (1 − share) off² + share off_guide², `off` being the distance to an interval: the squared hinge, the squared error.
struct Interval {
    Floats share, rest;
    INLINE_MEMBER explicit Interval(const Problem &p) : share(every((float)p.share)), rest(1.0f - share) {}
    INLINE_MEMBER Point of(Floats f, Goals goal) const {
        Floats off = off_interval(f, goal.low(), goal.high()), off_guide = off_interval(f, goal.low_guide(), goal.high_guide());
        Floats near = rest * off, far = share * off_guide, half = near + far;
        return {fma(near, off, far * off_guide), half + half};
    }
    static double columns(const Problem &p, const Room &room, int64_t first, int64_t strips) {
        return output_columns<Interval>(p, room, first, strips);
    }
};

// steep (tilt r + h(r)), Huber's loss and that of a quantile.
struct Huber {
    Floats width, steep, tilt, half, inverse;
    INLINE_MEMBER explicit Huber(const Problem &p)
        : width(every((float)p.loss_numbers[0])), steep(every((float)p.loss_numbers[1])), tilt(every((float)p.loss_numbers[2])),
          half(width * 0.5f), inverse(every((float)(1.0 / p.loss_numbers[0]))) {}
    INLINE_MEMBER Point of(Floats f, Goals goal) const {
        Floats r = goal.low() - f, size = magnitude(r), share = r * inverse;
        Floats h = size > width ? size - half : r * share * 0.5f;
        share = share > 1.0f ? every(1.0f) : share < -1.0f ? every(-1.0f) : share;
        return {steep * fma(tilt, r, h), -steep * (tilt + share)};
    }
    static double columns(const Problem &p, const Room &room, int64_t first, int64_t strips) {
        return output_columns<Huber>(p, room, first, strips);
    }
};

// −(1 − share) log p + share Σ_outputs off_guide², p being the share of the right class in exp(sharpness · f) over all outputs,
// over f and −f where there is one. The right class is the output whose interval lies above 0.
template <bool guided> struct LogisticOfTwo {
    Floats share, rest, steep, pulls;
    INLINE_MEMBER explicit LogisticOfTwo(const Problem &p)
        : share(every((float)p.share)), rest(1.0f - share), steep(every((float)p.loss_numbers[0]) * (float)(1.0 / LN_2)),
          pulls(rest * (every((float)p.loss_numbers[0]) * 2.0f)) {}
    INLINE_MEMBER Point of(Floats f, Goals goal) const {
        Floats size = magnitude(f), behind = (-size - size) * steep, less = exp2_below_0(behind), sum = less + 1.0f;
        Ints positive = f >= 0.0f, right = goal.low() > 0.0f;
        Floats power = positive ? every(1.0f) : less, reached = positive == right ? Floats{} : behind;
        Floats loss = rest * ((float)LN_2 * (log2_above_1(sum) - reached));
        Floats high = power * (1.0f / sum) - (right ? every(1.0f) : Floats{});
        if (!guided) return {loss, pulls * high};
        Floats off = off_interval(f, goal.low_guide(), goal.high_guide()), far = share * off;
        return {fma(far, off, loss), fma(pulls, high, far + far)};
    }
};

template <bool guided> NOINLINE double logistic_columns(const Problem &p, const Room &room, int64_t first, int64_t strips) {
    const int64_t outputs = p.n_outputs;
    const Floats share = every((float)p.share), rest = 1.0f - share, sharpness = every((float)p.loss_numbers[0]);
    const Floats steep = sharpness * (float)(1.0 / LN_2), pulls = rest * sharpness;
    float *powers = room.powers.at(0, outputs * LANES);
    Doubles total = {};
    for (int64_t s = 0; s < strips; s++) {
        const int64_t row = first + s;
        float *own = room.f.at(s * p.f_stride * LANES, outputs * LANES);
        Floats most = load(own), sum = {}, reached = {};
        for (int64_t k = 1; k < outputs; k++) {
            Floats here = load(own + k * LANES);
            most = here > most ? here : most;
        }
        for (int64_t k = 0; k < outputs; k++) {
            Floats ahead = (load(own + k * LANES) - most) * steep, power = exp2_below_0(ahead);
            store_as(powers + k * LANES, power);
            sum = sum + power;
            reached = reached + (goals_of(p, row, k).low() > 0.0f ? ahead : Floats{});
        }
        Floats w = load(p.weight.at(row * LANES, LANES)), part = 1.0f / sum;
        Floats loss = rest * ((float)LN_2 * (log2_above_1(sum) - reached));
        for (int64_t k = 0; k < outputs; k++) {
            Goals goal = goals_of(p, row, k);
            Floats high = load(powers + k * LANES) * part - (goal.low() > 0.0f ? every(1.0f) : Floats{});
            Floats fall = pulls * high;
            if (guided) {
                Floats off = off_interval(load(own + k * LANES), goal.low_guide(), goal.high_guide()), far = share * off;
                fall = fma(pulls, high, far + far);
                loss = fma(far, off, loss);
            }
            store_as(own + k * LANES, w * fall);
        }
        total += widened(w * loss);
    }
    for (int64_t k = 0; k < outputs; k++) {
        Doubles slope = {};
        for (int64_t s = 0; s < strips; s++) slope += widened(load(room.f.at((s * p.f_stride + k) * LANES, LANES)));
        room.slopes[k] += lane_sum(slope);
    }
    return lane_sum(total);
}

struct Logistic {
    static double columns(const Problem &p, const Room &room, int64_t first, int64_t strips) {
        if (p.n_outputs == 1)
            return p.share > 0.0 ? output_columns<LogisticOfTwo<true>>(p, room, first, strips)
                                 : output_columns<LogisticOfTwo<false>>(p, room, first, strips);
        return p.share > 0.0 ? logistic_columns<true>(p, room, first, strips) : logistic_columns<false>(p, room, first, strips);
    }
};

template <class Use> INLINE void for_loss(int64_t number, Use use) {
    switch (number) {
    case 0: return use.template operator()<Interval>();
    case 1: return use.template operator()<Logistic>();
    default: return use.template operator()<Huber>();
    }
}
