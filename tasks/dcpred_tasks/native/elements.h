// Elements of raw rows, of any dtype of engine.layout.DTYPES, as vectors of floats.
#pragma once
#include "vectors.h"

struct Half {};
struct Truth {};

// What the elements of a dtype are in memory, and whether single precision holds all of them.
template <class T> struct Element {
    typedef T Raw;
    static constexpr bool in_single = sizeof(T) <= 2, is_float = false;
};
template <> struct Element<double> {
    typedef double Raw;
    static constexpr bool in_single = false, is_float = true;
};
template <> struct Element<float> {
    typedef float Raw;
    static constexpr bool in_single = true, is_float = true;
};
template <> struct Element<Half> {
    typedef uint16_t Raw;
    static constexpr bool in_single = true, is_float = true;
};
template <> struct Element<Truth> {
    typedef uint8_t Raw;
    static constexpr bool in_single = true, is_float = false;
};
template <class T> using Raw = typename Element<T>::Raw;
template <bool single> struct Precision {
    typedef double type;
};
template <> struct Precision<true> {
    typedef float type;
};
// Single precision where that is exact, else double.
template <class T> using Held = typename Precision<Element<T>::in_single>::type;

// Half precision by integer arithmetic: shift the bits, and let a product right the exponent, of subnormals too. Not the
// compiler's own conversion, which calls a library function on processors that have no instruction for it.
template <int n> INLINE Lanes<float, n> from_half(Lanes<uint16_t, n> raw) {
    typedef Lanes<uint32_t, n> Bits;
    typedef Lanes<float, n> F;
    Bits bits = __builtin_convertvector(raw, Bits), size = bits & 0x7FFF;
    Bits righted = bits_as<Bits>(bits_as<F>(size << 13) * 0x1p112f);
    righted = size >= 0x7C00 ? righted | 0x7F800000 : righted;
    return bits_as<F>(righted | (bits & 0x8000) << 16);
}

template <class T, int n> INLINE Lanes<Held<T>, n> held(Lanes<Raw<T>, n> raw) {
    typedef Lanes<Held<T>, n> F;
    if constexpr (__is_same(T, Half)) {
        return from_half<n>(raw);
    } else if constexpr (__is_same(T, Truth)) {  // Everything but 0 is true, as in NumPy.
        Lanes<int32_t, n> numbers = __builtin_convertvector(raw, Lanes<int32_t, n>);
        return numbers != 0 ? every<F>(1.0f) : F{};
    } else {
        return __builtin_convertvector(raw, F);
    }
}

// n elements from where[j] on; features of a row lie side by side, at any address.
template <class T, int n> INLINE Lanes<Raw<T>, n> raw_part(const Raw<T> *where, int64_t j) {
    return load_as<Lanes<Raw<T>, n>>((const char *)where + j * (int64_t)sizeof(Raw<T>));
}
template <class T, int n> INLINE Lanes<Held<T>, n> part(const Raw<T> *where, int64_t j) {
    return held<T, n>(raw_part<T, n>(where, j));
}
template <int n, class T> INLINE Lanes<T, n> of(const T *where, int64_t j) { return load_as<Lanes<T, n>>(where + j); }

template <int n> INLINE bool any(Lanes<int32_t, n> mask) {
    if constexpr (n == LANE_COUNT) return bits_of(mask) != 0;
    bool found = false;
    UNROLL
    for (int i = 0; i < n; i++) found |= mask[i] != 0;
    return found;
}
template <int n> INLINE Lanes<int32_t, n> mask_of(Lanes<int32_t, n> mask) { return mask; }
template <int n> INLINE Lanes<int32_t, n> mask_of(Lanes<int64_t, n> mask) {
    return __builtin_convertvector(mask, Lanes<int32_t, n>);
}
template <int n> INLINE Lanes<int32_t, n> mask_of(Lanes<int16_t, n> mask) {
    return __builtin_convertvector(mask, Lanes<int32_t, n>);
}

// `use` with the dtype of this number in DTYPES; `use_floats` with those of FLOATS only.
template <class Use> INLINE void for_float(int64_t code, Use use) {
    switch (code) {
    case 0: return use(double());
    case 1: return use(float());
    case 2: return use(Half());
    }
}
template <class Use> INLINE void for_dtype(int64_t code, Use use) {
    switch (code) {
    case 3: return use(int8_t());
    case 4: return use(uint8_t());
    case 5: return use(int16_t());
    case 6: return use(uint16_t());
    case 7: return use(int32_t());
    case 8: return use(uint32_t());
    case 9: return use(int64_t());
    case 10: return use(uint64_t());
    case 11: return use(Truth());
    default: return for_float(code, use);
    }
}
constexpr int64_t DOUBLE_CODE = 0, SINGLE_CODE = 1, N_FLOATS = 3;
INLINE bool single_holds(int64_t code) {
    bool found = false;
    for_dtype(code, [&](auto dtype) { found = Element<decltype(dtype)>::in_single; });
    return found;
}

template <int n> struct Count {
    static constexpr int value = n;
};
// `use` with 16, 4 or 1, as d features fill so many lanes.
template <class Use> INLINE void in_vectors(int64_t d, Use use) {
    if (d >= 16) use(Count<16>());
    else if (d >= 4) use(Count<4>());
    else use(Count<1>());
}
// `body` with the first of n features, time and again: the last vector takes some features once more.
template <int n, class Body> INLINE void in_steps(int64_t d, Body body) {
    const int64_t last = d - n;
    for (int64_t f = 0; f < d; f += n) body(f < last ? f : last);
}

template <int size> struct Unsigned;
template <> struct Unsigned<2> {
    typedef uint16_t type;
    static constexpr type infinity = 0x7C00u << 1, limit = infinity;
};
template <> struct Unsigned<4> {
    typedef uint32_t type;
    static constexpr type infinity = 0x7F800000u << 1, limit = infinity;
};
template <> struct Unsigned<8> {
    typedef uint64_t type;
    static constexpr type infinity = 0x7FFull << 53, limit = 0x7FEull << 53;
};
template <class T, bool gaps, int n>
INLINE auto larger_bits(const Raw<T> *source, int64_t j, Lanes<typename Unsigned<sizeof(Raw<T>)>::type, n> largest) {
    typedef Unsigned<sizeof(Raw<T>)> Bits;
    auto size = load_as<decltype(largest)>((const char *)source + j * (int64_t)sizeof(Raw<T>)) << 1;
    if (gaps) size = size > Bits::infinity ? decltype(largest){} : size;
    return size > largest ? size : largest;
}

// Whether one of d numbers is not finite, or in double precision so large that a shift may overflow; NaN does not
// count where `gaps`. Compares the largest of their bits without sign, as integers: these have the order of the numbers, and
// NaN comes after infinity.
template <class T, bool gaps> INLINE bool not_finite(const Raw<T> *source, int64_t d) {
    typedef Unsigned<sizeof(Raw<T>)> Bits;
    constexpr int n = LANE_COUNT;
    if (d >= n) {  // The last vector reads some numbers once more.
        Lanes<typename Bits::type, n> largest = {};
        for (int64_t j = 0; j < d - n; j += n) largest = larger_bits<T, gaps, n>(source, j, largest);
        largest = larger_bits<T, gaps, n>(source, d - n, largest);
        return any<n>(mask_of<n>(largest >= Bits::limit));
    }
    Lanes<typename Bits::type, 1> largest = {};
    for (int64_t j = 0; j < d; j++) largest = larger_bits<T, gaps, 1>(source, j, largest);
    return largest[0] >= Bits::limit;
}
