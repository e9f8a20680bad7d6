// The kernel families of dcpred_tasks.model.kernels, whose docstrings have the formulas. A family is a struct with
//
//     sum        what it is a function of: products, squared or absolute differences, over features
//     scalar     κ(t) in double precision
//     in_lanes   e of 16 landmarks or rows, in the engine
//     refined    κ(t) and −κ'(t) of 16 rows, in refinement, from `unit` · −t (products: from `unit` · t)
//
// and a place in `Kernels`, which is its place in FAMILIES. Families that share a sum and `in_lanes` share code by `Form`.
#pragma once
#include "vectors.h"

enum Sum { PRODUCTS, SQUARES, ABSOLUTE };

constexpr double LOG2_E = 1.4426950408889634;
constexpr float LARGEST_IN_LANES = 1e4f;  // limit of a² of a Matérn kernel: its value is 0 there
constexpr float SMALLEST = 1e-30f;        // keeps 0 / 0 away
constexpr double LARGEST = 1e6;           // the limit of a² in double precision

struct Power {
    Floats whole, rest;
};
// 2^t = whole + rest for t between −126 and 126: a power of two, and a rest that is 0 at t = 0. By 2^r − 1 = r Σ c_i r^i on
// [−1/2, 1/2], to a relative error of 4e-9.
INLINE Power exp2_parts(Floats t) {
    t = t > -126.0f ? t : every(-126.0f);
    t = t < 126.0f ? t : every(126.0f);
    Floats whole = nearest(t), rest = t - whole;
    Floats series = polynomial(rest, {0.00015461448f, 0.0013390867f, 0.009618057f, 0.05550357f, 0.2402265f, 0.6931472f});
    Floats power = bits_as<Floats>((__builtin_convertvector(whole, Ints) + 127) << 23);
    return {power, power * (series * rest)};
}

constexpr float ROUND = 12582912.0f;       // 1.5 · 2²³: added to a number below 2²², it leaves the nearest integer in the last bits
constexpr float LEAST_EXPONENT = -60.0f;   // Smaller values count as 0: their products would be denormal.
// 2^min(t, 0) for refinement; NaN where t is NaN. By 2^r = Σ c_i r^i on [−1/2, 1/2], to a relative error of 3e-9.
INLINE Floats exp2_below_0(Floats t) {
    t = t > 0.0f ? Floats{} : t;
    Ints small = t < LEAST_EXPONENT;
    t = small ? every(LEAST_EXPONENT) : t;
    Floats shifted = t + ROUND, rest = t - (shifted - ROUND);
    Floats series =
        polynomial(rest, {0.00015469732f, 0.0013400433f, 0.009618025f, 0.05550327f, 0.2402265f, 0.6931472f, 1.0f});
    Floats power = bits_as<Floats>(bits_as<Ints>(series) + (bits_as<Ints>(shifted) << 23));
    return small ? Floats{} : power;
}

// log2 x for x ≥ 1; NaN where x is NaN. By log2(1.5 + r) = Σ c_i r^i on [−1/2, 1/2], to an error of 1e-8.
INLINE Floats log2_above_1(Floats x) {
    Ints bits = bits_as<Ints>(x), exponent = (bits >> 23) - 127;
    Floats rest = bits_as<Floats>((bits & 0x7FFFFF) | 0x3F800000) - 1.5f;
    Floats series = polynomial(rest, {0.005413892f, -0.008874697f, 0.011733406f, -0.020685855f, 0.038033932f, -0.07128301f,
                                      0.14248672f, -0.32059768f, 0.9617967f, 0.5849625f});
    return x != x ? x : series + __builtin_convertvector(exponent, Floats);
}

// The numbers of a kernel beside γ: KernelNumbers.shape.
struct Shape {
    int64_t degree;
    double coef0;
    INLINE_MEMBER explicit Shape(const Array<double> &numbers) : degree((int64_t)numbers[0]), coef0(numbers[1]) {}
};

struct Value {
    Floats K, fall;
};

struct Rbf {
    static constexpr Sum sum = SQUARES;
    static constexpr int n_constants = 3;
    static constexpr double unit = LOG2_E;
    static constexpr bool fall_by_value = true;  // −κ' = κ

    INLINE_MEMBER static double scalar(double t, const Shape &) { return __builtin_exp(-t); }
    INLINE_MEMBER static Floats in_lanes(Floats x, const Floats *constants) {
        Floats offset = constants[1], near = constants[2];
        Power p = exp2_parts(x - offset);
        return p.rest + (p.whole - near);
    }
    INLINE_MEMBER static Value refined(Floats t, const Shape &) {
        Floats K = exp2_below_0(t);
        return {K, K};
    }
};

struct Laplacian : Rbf {
    static constexpr Sum sum = ABSOLUTE;
};

struct Polynomial {
    static constexpr Sum sum = PRODUCTS;
    static constexpr int n_constants = 2;
    static constexpr double unit = 1.0;
    static constexpr bool fall_by_value = false;

    INLINE_MEMBER static double scalar(double t, const Shape &shape) {
        return __builtin_pow(t + shape.coef0, (double)shape.degree);
    }
    INLINE_MEMBER static Floats in_lanes(Floats x, const Floats *constants) {
        Floats at_mean = constants[0], base = x + at_mean, total = every(1.0f), power = at_mean;
        int64_t degree = (int64_t)constants[1][0];
        for (int64_t i = 1; i < degree; i++) {
            total = fma(total, base, power);
            power = power * at_mean;
        }
        return x * total;
    }
    INLINE_MEMBER static Value refined(Floats t, const Shape &shape) {
        Floats base = t + (float)shape.coef0, power = every(1.0f);
        for (int64_t i = 1; i < shape.degree; i++) power *= base;
        return {power * base, every(-(float)shape.degree) * power};
    }
};

template <int a2_of_t, int k_of_3> struct Matern {  // (1 + a + k a²) e^−a, a² = a2_of_t · t, k in thirds
    static constexpr Sum sum = SQUARES;
    static constexpr int n_constants = 7;
    static constexpr double unit = a2_of_t;
    static constexpr bool fall_by_value = false;

    INLINE_MEMBER static double scalar(double t, const Shape &) {
        double a2 = a2_of_t * t, a = __builtin_sqrt(a2 < LARGEST ? a2 : LARGEST);
        return k_of_3 ? (1.0 + a + a * a / 3.0) * __builtin_exp(-a) : (1.0 + a) * __builtin_exp(-a);
    }
    INLINE_MEMBER static Floats in_lanes(Floats x, const Floats *constants) {
        Floats offset = constants[1], near = constants[2], square = constants[3], A = constants[4], P = constants[5],
               k = constants[6];
        Floats q = offset - x;  // a² − A²
        q = q < LARGEST_IN_LANES ? q : every(LARGEST_IN_LANES);
        Floats a2 = q + square;
        a2 = a2 > 0.0f ? a2 : Floats{};
        Floats a = root(a2), numerator = 0.0f < near ? q : a2;
        Floats delta = numerator / ((a + A) + SMALLEST);
        Power p = exp2_parts(delta * (float)-LOG2_E);
        Floats in_a = fma(k, a2, a + 1.0f), less = p.rest + (p.whole - 1.0f);
        Floats small = fma(in_a, less, fma(k, q, delta));
        Floats large = fma(in_a, p.whole + p.rest, 0.0f - P);
        return delta < near ? small : large;
    }
    INLINE_MEMBER static Value refined(Floats t, const Shape &) {
        Floats a2 = t > 0.0f ? Floats{} : -t;
        a2 = a2 > LARGEST_IN_LANES ? every(LARGEST_IN_LANES) : a2;
        Floats a = root(a2), power = exp2_below_0(a * (float)-LOG2_E), linear = a + 1.0f;
        if (k_of_3) return {fma(a2, every(k_of_3 / 3.0f), linear) * power, linear * power * (5.0f / 3.0f)};
        return {linear * power, power * 3.0f};
    }
};
typedef Matern<6, 0> Matern32;
typedef Matern<10, 1> Matern52;

template <class Family> struct Form { typedef Family type; };
template <> struct Form<Matern52> { typedef Matern32 type; };
template <class A, class B> constexpr bool is_same = false;
template <class A> constexpr bool is_same<A, A> = true;

template <class... Family> struct Families {
    template <class Use> INLINE_MEMBER static void with(int64_t number, Use use) {
        int64_t place = 0;
        (void)((number == place++ && (use(Family()), true)) || ...);
    }
    template <class Shared> INLINE_MEMBER static bool has_form(int64_t number) {
        int64_t place = 0;
        return ((number == place++ && is_same<Shared, typename Form<Family>::type>) || ...);
    }
    template <class One, class Use> INLINE_MEMBER static bool with_own(int64_t number, Use use) {
        if constexpr (is_same<One, typename Form<One>::type>)
            if (has_form<One>(number)) return use(One()), true;
        return false;
    }
    template <class Use> INLINE_MEMBER static void with_form(int64_t number, Use use) { (void)(with_own<Family>(number, use) || ...); }
};
typedef Families<Rbf, Laplacian, Polynomial, Matern32, Matern52> Kernels;  // each at its place in FAMILIES

// `use` with the family of this place in FAMILIES.
template <class Use> INLINE void for_family(int64_t number, Use use) { Kernels::with(number, use); }
// The same with the family whose `in_lanes` it shares.
template <class Use> INLINE void for_form(int64_t number, Use use) { Kernels::with_form(number, use); }
