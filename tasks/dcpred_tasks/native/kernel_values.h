// Kernel values in vectors of 16 lanes, lanes being landmarks or rows, for every family of kernels.
#pragma once
#include "engine_layout.h"
#include "kernels.h"

// The x of Family.in_lanes, from P = `total` and ‖z‖² = `norm`; in a wide leaf P is a sum of squared differences and not of products.
template <class Form, bool wide> INLINE Floats kernel_input(Floats total, Floats norm, Floats scale) {
    if (Form::sum == PRODUCTS) return total;
    if (Form::sum == SQUARES && !wide) return fma(-norm, scale, total);
    return -total * scale;
}

// `use` with a form, and with whether the leaf is wide where that makes a difference.
template <class Use> INLINE void for_kernel(const Packed &p, bool wide, Use use) {
    for_form(p.kernel, [&](auto form) {
        if constexpr (decltype(form)::sum == SQUARES)
            if (wide) return use.template operator()<decltype(form), true>();
        use.template operator()<decltype(form), false>();
    });
}

template <class Form> INLINE void load_constants(Floats (&constants)[Form::n_constants], const float *own) {
    UNROLL
    for (int k = 0; k < Form::n_constants; k++) constants[k] = load(own + k * LANES);
}
