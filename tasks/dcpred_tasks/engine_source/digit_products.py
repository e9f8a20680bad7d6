"""Kernel values by digits: rows become whole numbers of three digits, as the landmarks of their leaf are
(dcpred_tasks.engine.digits), and products of digits are summed exactly.

p is Packed (packing.py), room is Room (engine.py).
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.layout import LANES, PART_SUMS, PARTS, STEP, SUMMED_GROUPS
from dcpred_tasks.engine_source.compilation import CHECKED, compiled, inlined
from dcpred_tasks.engine_source.kernel_lanes import Vectors, for_form, kernel_input
from dcpred_tasks.engine_source.llvm import (
    LINE,
    VECTOR,
    Loop,
    call,
    constant,
    fma,
    integer,
    load,
    operands,
    prefetch_line,
    rotated,
    splat,
    store,
    takes,
)
from dcpred_tasks.engine_source.own_instructions import digit_sums, has_digit_sums
from dcpred_tasks.engine_source.projection import touch
from dcpred_tasks.model.kernel_families import Family

_F32, _I8, _I32 = ir.FloatType(), ir.IntType(8), ir.IntType(32)
_INTS = ir.VectorType(_I32, LANES)
MAGIC, MAGIC_BITS = 1.5 * 2**23, 0x4B400000  # A single near it ends in the bits of a whole number, rounded.
MOST = 2.0**22  # the largest number of a row
LEAST = 2.0**-100  # the least that counts as the largest feature of a row: scales of less would overflow
ROW_STEP = PARTS * STEP  # bytes of a row's digits of a step
TILE = LANES * STEP


def _every(value: int) -> Any:
    return ir.Constant(_INTS, [value] * LANES)


@intrinsic
def to_digits(_, rows, n, width, steps, digits, units):
    """Rows as digits: those of row r from byte 192 steps r on, in steps of 64 features, of which byte 4 l + i
    of a digit is of feature 16 i + l. units[r] = 2¹⁶ / scale, a row being multiplied with its scale.

    Past `width`, features are those of what follows in memory, and meet zeros among the landmarks' digits.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        rows, n, width, steps, digits, units = operands(context, b, signature, args)
        with Loop(b, n, []) as (r, _, _):
            x = b.gep(rows, [b.mul(r, width)])
            largest = Loop(b, width, [constant(LEAST)], step=LANES)
            with largest as (j, (most,), following):
                size = call(b, "llvm.fabs.v16f32", VECTOR, load(b, x, j))
                following.append(b.select(b.fcmp_ordered(">", size, most), size, most))
            most = largest.values[0]
            for lanes in (8, 4, 2, 1):
                other = rotated(b, most, lanes)
                most = b.select(b.fcmp_ordered(">", most, other), most, other)
            most = b.extract_element(most, ir.Constant(_I32, 0))
            unit = b.fmul(most, ir.Constant(_F32, 2.0**16 / MOST))
            b.store(unit, b.gep(units, [r]))
            scale = splat(b, b.fdiv(ir.Constant(_F32, MOST), most))
            own = b.gep(digits, [b.mul(b.mul(r, steps), integer(ROW_STEP))])
            with Loop(b, steps, []) as (s, _, _):
                _step_digits(b, x, b.mul(s, integer(STEP)), scale, b.gep(own, [b.mul(s, integer(ROW_STEP))]))
        return context.get_dummy_value()

    return takes(types.void, rows, n, width, steps, digits, units), generate


def _step_digits(b: Any, x: Any, j: Any, scale: Any, out: Any) -> None:
    """The digits of 64 features from j on. With 128 added to each digit these are the bytes of a number."""
    biased = []
    for i in range(STEP // LANES):
        bits = b.bitcast(fma(b, load(b, x, b.add(j, integer(LANES * i))), scale, constant(MAGIC)), _INTS)
        biased.append(b.add(bits, _every(0x808080 - MAGIC_BITS)))
    for part in range(PARTS):
        byte, found = PARTS - 1 - part, None
        for i, bits in enumerate(biased):
            if i != byte:
                bits = (b.shl if i > byte else b.lshr)(bits, _every(8 * abs(i - byte)))
            bits = b.and_(bits, _every(0xFF << (8 * i)))
            found = bits if found is None else b.or_(found, bits)
        found = b.xor(found, _every(0x80808080))
        b.store(found, b.bitcast(b.gep(out, [integer(part * STEP)]), _INTS.as_pointer()), align=1)


@intrinsic
def digit_values(
    _,
    sums,
    n,
    row_units,
    at,
    units,
    landmark,
    form,
    norms,
    constants,
    n_constants,
    group,
    out,
    to,
    stride,
    upcoming,
    low,
    high,
):
    """out[to + stride r : … + 16] = e of row r and 16 landmarks, as kernel_lanes.kernel_values, for r < n.

    sums      of digits, as digit_sums leaves them
    at        where the first row is in row_units and norms
    landmark  where the first of 16 landmarks is in units
    upcoming  addresses of raw rows that come later: of each the bytes from low to high are prefetched
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        sums, n, row_units, at, units, landmark, form, norms, constants, n_constants, group, *others = (
            operands(context, b, signature, args)
        )
        out, to, stride, upcoming, low, high = others
        own = b.gep(constants, [b.mul(b.mul(group, n_constants), integer(LANES))])
        unit = load(b, units, landmark)

        def values(family: Family) -> None:
            known = [load(b, own, integer(LANES * k)) for k in range(family.n_constants)]
            with Loop(b, n, []) as (r, _, _):
                block, row = b.lshr(r, integer(4)), b.and_(r, integer(LANES - 1))
                place = b.add(b.mul(block, integer(PART_SUMS * LANES * LANES)), b.mul(row, integer(LANES)))
                parts = [_sums(b, sums, b.add(place, integer(LANES * LANES * k))) for k in range(PART_SUMS)]
                number = b.add(at, r)
                ahead = b.inttoptr(b.load(b.gep(upcoming, [number])), _I8.as_pointer())
                with Loop(b, high, [], step=LINE, first=low) as (byte, _, _):
                    prefetch_line(b, b.gep(ahead, [byte]))
                total = _total(b, parts, splat(b, b.load(b.gep(row_units, [number]))), unit)
                norm = splat(b, b.load(b.gep(norms, [number])))
                x = kernel_input(b, family, total, norm, known[0], False)
                store(b, family.in_lanes(Vectors(b), x, known), out, b.add(to, b.mul(stride, r)))

        for_form(b, form, values)
        return context.get_dummy_value()

    kinds = (sums, n, row_units, at, units, landmark, form, norms, constants, n_constants, group, out, to)
    return takes(types.void, *kinds, stride, upcoming, low, high), generate


def _sums(b: Any, where: Any, index: Any) -> Any:
    return b.load(b.bitcast(b.gep(where, [index]), _INTS.as_pointer()), align=4)


def _total(b: Any, parts: list[Any], row_unit: Any, unit: Any) -> Any:
    first, second = (b.sitofp(part, VECTOR) for part in parts[:2])
    third = b.sitofp(b.add(*parts[2:]), VECTOR)
    smaller = fma(b, third, constant(2.0**-8), second)
    return b.fmul(b.fmul(fma(b, smaller, constant(2.0**-8), first), row_unit), unit)


@inlined
def kernel_values_by_digits(p, n, row_bytes, room):
    """room.e[r · p.row_values : …]: the kernel values e of n rows at the landmarks of their leaves. As many
    raw rows of row_bytes, at room.upcoming, are prefetched meanwhile.
    """
    steps = p.digits.steps
    if CHECKED:
        touch(room.rows, 0, n * p.width + STEP)
        touch(room.digits, 0, n * steps * ROW_STEP)
        touch(room.row_units, 0, n)
    to_digits(room.rows, n, p.width, steps, room.digits, room.row_units)
    first = 0
    for r in range(1, n + 1):
        if r == n or room.node[r] != room.node[first]:
            _values_of_leaf(p, first, r - first, row_bytes, room)
            first = r


@compiled
def _values_of_leaf(p, first, n, row_bytes, room):
    """The kernel values of n rows of one leaf, from row `first` of the strip on."""
    steps, leaf = p.digits.steps, np.int64(room.node[first])
    group, last, own = p.group_at[leaf], p.group_at[leaf + 1], p.digits.group_at[leaf]
    stride, blocks, size = steps * ROW_STEP, -(-n // LANES), steps * PARTS * TILE
    rows = room.digits[first * stride :]
    piece = -(-row_bytes // (LINE * (last - group))) * LINE  # bytes of a raw row for each group
    for g in range(0, last - group, SUMMED_GROUPS):
        count = min(SUMMED_GROUPS, last - group - g)
        numbers = p.digits.numbers[(own + g) * size :]
        if CHECKED:
            touch(rows, 0, blocks * LANES * stride)
            touch(numbers, 0, count * size)
            touch(room.digit_sums, 0, count * blocks * PART_SUMS * LANES * LANES)
            touch(room.upcoming, first, n)
        if has_digit_sums():
            digit_sums(rows, stride, blocks, numbers, count, steps, room.digit_sums)
        else:
            plain_sums(rows, stride, blocks, numbers, count, steps, room.digit_sums)
        for k in range(count):
            if CHECKED:
                touch(p.digits.unit, (own + g + k) * LANES, LANES)
                touch(p.constants, (group + g + k) * p.n_constants * LANES, p.n_constants * LANES)
                touch(room.e, first * p.row_values + (g + k) * LANES, (n - 1) * p.row_values + LANES)
            digit_values(
                room.digit_sums[k * blocks * PART_SUMS * LANES * LANES :],
                n,
                room.row_units,
                first,
                p.digits.unit,
                (own + g + k) * LANES,
                p.form,
                room.norm,
                p.constants,
                p.n_constants,
                group + g + k,
                room.e,
                first * p.row_values + (g + k) * LANES,
                p.row_values,
                room.upcoming,
                (g + k) * piece,
                min((g + k + 1) * piece, row_bytes),
            )


@compiled
def plain_sums(rows, stride, blocks, numbers, groups, steps, out):
    """As own_instructions.digit_sums, for any processor: slow, and there to be compared with."""
    out[: groups * blocks * PART_SUMS * LANES * LANES] = 0
    for g in range(groups):
        for r in range(blocks * LANES):
            place = (g * blocks + r // LANES) * PART_SUMS * LANES * LANES + r % LANES * LANES
            for s in range(steps):
                for byte in range(STEP):
                    z = r * stride + s * ROW_STEP + byte
                    w = (g * steps + s) * PARTS * TILE + byte // 4 * STEP + byte % 4
                    for t in range(LANES):
                        for i in range(PARTS):
                            for j in range(PARTS - i):
                                k = 3 if i == j == 1 else i + j
                                product = np.int32(rows[z + i * STEP]) * np.int32(
                                    numbers[w + j * TILE + 4 * t]
                                )
                                out[place + k * LANES * LANES + t] += product
