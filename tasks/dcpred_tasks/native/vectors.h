// Vectors of 16 numbers and arrays of Python: shared by the engine and refinement.
//
// The compiler splits 16 lanes into the registers of the processor (one register of AVX-512, two of AVX2, four of NEON), so nothing
// here names an instruction set. A product that is added is written as `fma`: the compiler fuses nothing else, and every
// processor computes the same bits.
#pragma once
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#define INLINE_MEMBER inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#ifdef DCPRED_CHECKED
struct OutOfBounds {};
#define CHECK(condition) do { if (!(condition)) throw OutOfBounds(); } while (0)
// The body of a function that Python calls: the status is 1 where an index leaves its array.
#define DCPRED_CHECKS true
#define GUARDED(...) try { __VA_ARGS__ return 0; } catch (OutOfBounds) { return 1; }
#else
#define DCPRED_CHECKS false
#define CHECK(condition) ((void)0)
#define GUARDED(...) { __VA_ARGS__ return 0; }
#endif
#define ENTRY __attribute__((visibility("default")))

constexpr int LINE = 64;  // bytes of a cache line

// A flat array of NumPy. With DCPRED_CHECKED every index is checked before use.
template <class T> struct Array {
    T *data;
    int64_t size;

    INLINE_MEMBER T &operator[](int64_t i) const {
        CHECK(i >= 0 && i < size);
        return data[i];
    }
    // Where n elements from i on lie.
    INLINE_MEMBER T *at(int64_t i, [[maybe_unused]] int64_t n) const {
        CHECK(i >= 0 && n >= 0 && i + n <= size);
        return data + i;
    }
    INLINE_MEMBER Array from(int64_t i) const {
        CHECK(i >= 0 && i <= size);
        return {data + i, size - i};
    }
};

template <class T, int n> struct Vector {
    typedef T type __attribute__((vector_size(n * sizeof(T))));
};
template <class T> struct Vector<T, 1> {
    typedef T type __attribute__((vector_size(sizeof(T))));
};
template <class T, int n> using Lanes = typename Vector<T, n>::type;

constexpr int LANE_COUNT = 16;  // layout.LANES
typedef Lanes<float, LANE_COUNT> Floats;
typedef Lanes<double, LANE_COUNT> Doubles;
typedef Lanes<int32_t, LANE_COUNT> Ints;

template <class W, class T> INLINE W load_as(const T *where) {
    W found;
    __builtin_memcpy(&found, where, sizeof found);
    return found;
}
template <class W, class T> INLINE void store_as(T *where, W value) { __builtin_memcpy(where, &value, sizeof value); }
INLINE Floats load(const float *where) { return load_as<Floats>(where); }
INLINE Doubles load(const double *where) { return load_as<Doubles>(where); }
INLINE Ints load(const int32_t *where) { return load_as<Ints>(where); }

// A vector whose lanes all hold x.
template <class W, class T> INLINE W every(T x) { return x - W{}; }
INLINE Floats every(float x) { return x - Floats{}; }
INLINE Doubles every(double x) { return x - Doubles{}; }
INLINE Ints every(int32_t x) { return x - Ints{}; }

template <class To, class W> INLINE To bits_as(W value) { return __builtin_bit_cast(To, value); }
INLINE Doubles widened(Floats x) { return __builtin_convertvector(x, Doubles); }
INLINE Floats narrowed(Doubles x) { return __builtin_convertvector(x, Floats); }
template <class M, class W> INLINE W select(M mask, W then, W otherwise) { return mask ? then : otherwise; }

#ifdef __clang__
template <class W> INLINE W fma(W x, W y, W z) { return __builtin_elementwise_fma(x, y, z); }
template <class W> INLINE W root(W x) { return __builtin_elementwise_sqrt(x); }
template <class W> INLINE W nearest(W x) { return __builtin_elementwise_rint(x); }
template <class W> INLINE W magnitude(W x) { return __builtin_elementwise_abs(x); }
// One bit for each lane of a comparison.
INLINE uint32_t bits_of(Ints mask) {
    typedef bool Bits __attribute__((ext_vector_type(LANE_COUNT)));
    return __builtin_bit_cast(uint16_t, __builtin_convertvector(mask, Bits));
}
#else  // GCC, for sanitizers: lane by lane
template <class W, class F> INLINE W each(W x, F f) {
    for (unsigned i = 0; i < sizeof(W) / sizeof x[0]; i++) x[i] = f(x[i]);
    return x;
}
INLINE float fused(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
INLINE double fused(double x, double y, double z) { return __builtin_fma(x, y, z); }
template <class W> INLINE W fma(W x, W y, W z) {
    for (unsigned i = 0; i < sizeof(W) / sizeof x[0]; i++) z[i] = fused(x[i], y[i], z[i]);
    return z;
}
INLINE Floats root(Floats x) { return each(x, __builtin_sqrtf); }
INLINE Floats nearest(Floats x) { return each(x, __builtin_rintf); }
INLINE Floats magnitude(Floats x) { return each(x, __builtin_fabsf); }
INLINE uint32_t bits_of(Ints mask) {
    uint32_t bits = 0;
    for (int i = 0; i < LANE_COUNT; i++) bits |= (mask[i] != 0) << i;
    return bits;
}
#endif

// Σ_i c_i x^i, the largest power first.
template <int n> INLINE Floats polynomial(Floats x, const float (&c)[n]) {
    Floats total = every(c[0]);
    UNROLL
    for (int i = 1; i < n; i++) total = fma(total, x, every(c[i]));
    return total;
}

// -- across lanes -----------------------------------------------------------------------------------------------------------

template <int by, class W> INLINE W rotated(W v) {  // 16 lanes, lane i + by in lane i
    return __builtin_shufflevector(v, v, (0 + by) % 16, (1 + by) % 16, (2 + by) % 16, (3 + by) % 16, (4 + by) % 16, (5 + by) % 16,
                                   (6 + by) % 16, (7 + by) % 16, (8 + by) % 16, (9 + by) % 16, (10 + by) % 16, (11 + by) % 16,
                                   (12 + by) % 16, (13 + by) % 16, (14 + by) % 16, (15 + by) % 16);
}
// The sum of all lanes, always in the same order: halves of the vector are added.
template <class T> INLINE T lane_sum(Lanes<T, 1> v) { return v[0]; }
template <class W> INLINE auto sum_of_4(W v) {
    return (v[0] + v[2]) + (v[1] + v[3]);
}
template <class W> INLINE auto sum_of_8(W v) {
    return sum_of_4(__builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7));
}
template <class W> INLINE auto sum_of_16(W v) {
    return sum_of_8(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) + __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
}
template <class W> INLINE auto lane_sum(W v) {
    constexpr int n = sizeof(W) / sizeof v[0];
    if constexpr (n == 16) return sum_of_16(v);
    else if constexpr (n == 8) return sum_of_8(v);
    else if constexpr (n == 4) return sum_of_4(v);
    else return v[0];
}

// Lane i of the first vector where bit `step` of i is 0, else lane i − step of the second; and the other half of both.
template <int step> constexpr int low_half(int i) { return i & step ? 16 + i - step : i; }
template <int step> constexpr int high_half(int i) { return i & step ? 16 + i : i + step; }
#define ORDER(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)
template <int step, class W> INLINE W low_halves(W a, W b) { return __builtin_shufflevector(a, b, ORDER(low_half<step>)); }
template <int step, class W> INLINE W high_halves(W a, W b) { return __builtin_shufflevector(a, b, ORDER(high_half<step>)); }

template <int step> INLINE void exchange(Floats (&v)[16]) {
UNROLL
    for (int i = 0; i < 16; i++)
        if (!(i & step)) {
            Floats a = v[i], b = v[i + step];
            v[i] = low_halves<step>(a, b), v[i + step] = high_halves<step>(a, b);
        }
}
// Transpose 16 vectors of 16 lanes, by exchanges of squares of 8, 4, 2 and 1.
INLINE void transpose(Floats (&v)[16]) { exchange<8>(v), exchange<4>(v), exchange<2>(v), exchange<1>(v); }

template <int step> INLINE void add_halves(Floats (&v)[16]) {
UNROLL
    for (int i = 0; i < step; i++) v[i] = low_halves<step>(v[i], v[i + step]) + high_halves<step>(v[i], v[i + step]);
}
// Lane l is the sum of vector l.
INLINE Floats sums_of_all(Floats (&v)[16]) {
    add_halves<8>(v), add_halves<4>(v), add_halves<2>(v), add_halves<1>(v);
    return v[0];
}

// -- memory -----------------------------------------------------------------------------------------------------------------

// Prefetch the cache line at an address.
INLINE void prefetch_line(int64_t address) { __builtin_prefetch((const void *)address, 0, 2); }
INLINE void prefetch(int64_t address, int64_t first, int64_t last) {
    for (int64_t byte = first; byte < last; byte += LINE) prefetch_line(address + byte);
}
