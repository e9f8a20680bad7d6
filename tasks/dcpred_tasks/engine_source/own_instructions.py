"""What some processors have of their own, in code for all of them.

The bitcode holds a plain version of each function here; machine code gets the processor's own where there is
one (dcpred_tasks.engine.instructions), before anything is inlined.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.instructions import (
    DIGIT_SUMS,
    HAS_DIGIT_SUMS,
    HAS_PAIR_PRODUCTS,
    HAS_WIDE_VECTORS,
    PAIR_PRODUCTS,
)
from dcpred_tasks.engine.layout import LANES
from dcpred_tasks.engine_source.llvm import operands, takes

_BIT, _INTS = ir.IntType(1), ir.VectorType(ir.IntType(32), LANES)


def _plain(b: Any, name: str, returned: Any, kinds: list[Any]) -> tuple[Any, Any]:
    """A function of the module, and a builder for its body; None where it has one."""
    if name in b.module.globals:
        return b.module.globals[name], None
    function = ir.Function(b.module, ir.FunctionType(returned, kinds), name=name)
    function.linkage = "weak"  # A definition that is linked in takes its place.
    return function, ir.IRBuilder(function.append_basic_block("entry"))


def pair_products(b: Any, total: Any, x: Any, c: Any) -> Any:
    """total + x₀c₀ + x₁c₁ in 16 lanes of 32 bits, where x and c hold two whole numbers of 16 bits in each."""
    function, body = _plain(b, PAIR_PRODUCTS, _INTS, [_INTS] * 3)
    if body:
        half = ir.Constant(_INTS, [16] * LANES)
        before, *pairs = function.args
        first = body.mul(*(body.ashr(body.shl(pair, half), half) for pair in pairs))
        second = body.mul(*(body.ashr(pair, half) for pair in pairs))
        body.ret(body.add(body.add(before, first), second))
    return b.call(function, [total, x, c])


def _is_true(name: str) -> Any:
    """An intrinsic's type and code: a function that says no, where the processor's own does not say yes."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        function, body = _plain(b, name, _BIT, [])
        if body:
            body.ret(ir.Constant(_BIT, 0))
        return b.call(function, [])

    return types.boolean(), generate


@intrinsic
def has_pair_products(_):
    """Whether the processor does `pair_products` by one instruction."""
    return _is_true(HAS_PAIR_PRODUCTS)


@intrinsic
def has_wide_vectors(_):
    """Whether 16 lanes of single precision are one register of 32."""
    return _is_true(HAS_WIDE_VECTORS)


@intrinsic
def digit_sums(_, rows, stride, blocks, numbers, groups, steps, out):
    """Sums of products of digits (dcpred_tasks.engine.digits) of `blocks` times 16 rows and `groups` times 16
    landmarks; where has_digit_sums() alone, for the plain version does nothing.

    rows     digits of rows, each `stride` bytes after the other: three digits of 64 features, and so on
    numbers  digits of landmarks, as Digits.numbers
    out      int32: for every group and block four times 16 rows of 16 landmarks: Σ Z₀W₀, Σ (Z₀W₁ + Z₁W₀),
             Σ (Z₀W₂ + Z₂W₀) and Σ Z₁W₁
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        given = operands(context, b, signature, args)
        function, body = _plain(b, DIGIT_SUMS, ir.VoidType(), [value.type for value in given])
        if body:
            body.ret_void()
        b.call(function, given)
        return context.get_dummy_value()

    return takes(types.void, rows, stride, blocks, numbers, groups, steps, out), generate


@intrinsic
def has_digit_sums(_):
    """Whether there is a `digit_sums` for the processor, where the process may use it."""
    return _is_true(HAS_DIGIT_SUMS)
