"""Functions of the bitcode that some processors have instructions for.

The bitcode holds a plain version of each (native/native_ops.h), which any processor can run and which reports
that the instruction is absent. `link_native` replaces it by the processor's own function. Results do not
depend on it: integer sums are exact.
"""

from typing import Any

import llvmlite.binding as llvm

from dcpred_tasks.engine import tiles

PAIR_PRODUCTS, HAS_PAIR_PRODUCTS = "pair_products", "has_pair_products"
HAS_WIDE_VECTORS = "has_wide_vectors"
DIGIT_SUMS, HAS_DIGIT_SUMS = "digit_sums", "has_digit_sums"
NAMES = (PAIR_PRODUCTS, HAS_PAIR_PRODUCTS, HAS_WIDE_VECTORS, DIGIT_SUMS, HAS_DIGIT_SUMS)

# By the required extensions, in LLVM's words.
OWN = {
    # Any x86 processor: only a model packed for tiles (tiles.py) calls it.
    ("avx2",): tiles.digit_sums(DIGIT_SUMS) + f"define i1 @{HAS_DIGIT_SUMS}() alwaysinline {{ ret i1 true }}",
    ("avx512f",): f"define i1 @{HAS_WIDE_VECTORS}() alwaysinline {{ ret i1 true }}",
    ("avx512f", "avx512bw", "avx512vnni"): f"""
declare <16 x i32> @llvm.x86.avx512.vpdpwssd.512(<16 x i32>, <16 x i32>, <16 x i32>)
define <16 x i32> @{PAIR_PRODUCTS}(<16 x i32> %total, <16 x i32> %x, <16 x i32> %c) alwaysinline {{
  %sum = call <16 x i32> @llvm.x86.avx512.vpdpwssd.512(<16 x i32> %total, <16 x i32> %x, <16 x i32> %c)
  ret <16 x i32> %sum
}}
define i1 @{HAS_PAIR_PRODUCTS}() alwaysinline {{ ret i1 true }}
""",
}


def link_native(module: Any, has: set[str]) -> None:
    """Link the functions of a processor with these extensions into a module of the bitcode."""
    for needed, text in OWN.items():
        if set(needed) <= has:
            module.link_in(llvm.parse_assembly(text))
    for function in module.functions:
        if function.name in NAMES:
            function.linkage = "internal"
