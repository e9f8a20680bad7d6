"""Sixteen rows of one leaf at a time, lanes being rows: kernel values (of few features also the products) and
decision values.

A landmark, an output weight or a constant is one number for all lanes, so that nothing is summed across lanes
and nothing is padded to them: 10 outputs cost 10, not 16. Every lane is one chain of operations that depends
on its row alone: a row gets the same bits alone and among others, and lanes past the last row of a leaf
compute what nobody reads.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.centre_lanes import add_feature
from dcpred_tasks.engine.kernel_lanes import Vectors, for_form, kernel_input
from dcpred_tasks.engine.layout import AT_ONCE, LANES, UNROLLED
from dcpred_tasks.engine.llvm import (
    VECTOR,
    Loop,
    call,
    constant,
    fma,
    integer,
    load,
    operands,
    splat,
    store,
    takes,
)
from dcpred_tasks.model.kernel_families import Family, Sum

_F32, _F64, _I32, _I64 = ir.FloatType(), ir.DoubleType(), ir.IntType(32), ir.IntType(64)
_DOUBLES = ir.VectorType(_F64, LANES)


def _column(b: Any, where: Any, number: Any) -> Any:
    """16 numbers of one landmark, feature or output."""
    return load(b, where, b.mul(number, integer(LANES)))


def every(b: Any, where: Any, index: Any) -> Any:
    return splat(b, b.load(b.gep(where, [index])))


# -- rows into columns ---------------------------------------------------------------------------------------


def _turn(b: Any, vectors: list[Any]) -> list[Any]:
    """The transpose of 16 vectors: blocks of 8, 4, 2 and 1 change places."""
    for step in (8, 4, 2, 1):
        first = ir.Constant(
            ir.VectorType(_I32, LANES), [i if not i & step else LANES + i - step for i in range(LANES)]
        )
        second = ir.Constant(
            ir.VectorType(_I32, LANES), [i + step if not i & step else LANES + i for i in range(LANES)]
        )
        for i in (i for i in range(LANES) if not i & step):
            pair = vectors[i], vectors[i + step]
            vectors[i], vectors[i + step] = b.shuffle_vector(*pair, first), b.shuffle_vector(*pair, second)
    return vectors


def turn_block(b: Any, rows: Any, stride: Any, block: Any, out: Any) -> None:
    """out[16 j + r] = rows[stride r + j], r < 16, 16 block ≤ j < 16 block + 16."""
    column = b.mul(block, integer(LANES))
    vectors = [load(b, rows, b.add(column, b.mul(stride, integer(r)))) for r in range(LANES)]
    for j, vector in enumerate(_turn(b, vectors)):
        store(b, vector, out, b.add(b.mul(block, integer(LANES * LANES)), integer(LANES * j)))


@intrinsic
def turn_rows(_, rows, at, stride, blocks, out):
    """out[16 j + r] = rows[at + stride r + j], r < 16, j < 16 blocks."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        rows, at, stride, blocks, out = operands(context, b, signature, args)
        with Loop(b, blocks, []) as (block, _, _):
            turn_block(b, b.gep(rows, [at]), stride, block, out)
        return context.get_dummy_value()

    return takes(types.void, rows, at, stride, blocks, out), generate


# -- kernel values -------------------------------------------------------------------------------------------


@intrinsic
def column_values(_, x, even, groups, first, last, form, apart, norm, at, constants, n_constants, out):
    """Columns of kernel values, as kernel_lanes.kernel_values has them, of landmarks in groups first to last.

    x       columns of features; `even` of them
    norm    ‖x‖² of the rows, from `at` on"""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        x, even, groups, first, last, form, apart, norm, at, constants, n_constants, out = operands(
            context, b, signature, args
        )
        lengths = load(b, norm, at)
        size, known = (b.mul(n, integer(LANES)) for n in (even, n_constants))

        def all_landmarks(family: Family, apart: bool) -> None:
            kind = Sum.PRODUCTS if family.sum == Sum.SQUARES and not apart else family.sum
            stop = b.mul(last, integer(LANES))
            with Loop(b, stop, [out], step=AT_ONCE, first=b.mul(first, integer(LANES))) as (
                landmark,
                (target,),
                following,
            ):
                number, lane = b.lshr(landmark, integer(4)), b.and_(landmark, integer(LANES - 1))
                group = b.gep(b.gep(groups, [b.mul(number, size)]), [lane])
                own = b.gep(b.gep(constants, [b.mul(number, known)]), [lane])
                for t, total in enumerate(against(b, x, group, even, kind)):
                    k = [every(b, own, integer(LANES * k + t)) for k in range(family.n_constants)]
                    value = kernel_input(b, family, total, lengths, k[0], apart)
                    store(b, family.in_lanes(Vectors(b), value, k), target, integer(LANES * t))
                following.append(b.gep(target, [integer(LANES * AT_ONCE)]))

        def values(family: Family) -> None:
            if family.sum != Sum.SQUARES:
                all_landmarks(family, False)
                return
            with b.if_else(apart) as (then, otherwise):
                with then:
                    all_landmarks(family, True)
                with otherwise:
                    all_landmarks(family, False)

        for_form(b, form, values)
        return context.get_dummy_value()

    kinds = (x, even, groups, first, last, form, apart, norm, at, constants, n_constants, out)
    return takes(types.void, *kinds), generate


def against(b: Any, x: Any, group: Any, even: Any, kind: Sum) -> list[Any]:
    """Sums over features of columns x and 8 landmarks."""
    loop = Loop(b, even, [constant(0.0)] * AT_ONCE)
    with loop as (j, sums, following):
        value = _column(b, x, j)
        for t, total in enumerate(sums):
            w = every(b, group, b.add(b.mul(j, integer(LANES)), integer(t)))
            following.append(add_feature(b, kind, value, w, total))
    return list(loop.values)


# -- decision values -----------------------------------------------------------------------------------------


@intrinsic
def column_sum(_, e, m, left, right, first, last, weights, at, out):
    """out = Σ_j e_j · weights[at + j] + Σ_q e[left[q]] · e[right[q]] · weights[at + m + q − first], j < m,
    first ≤ q < last; the numbers of both are multiples of 4.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        e, m, left, right, first, last, weights, at, out = operands(context, b, signature, args)
        own = b.gep(weights, [at])
        landmarks = Loop(b, m, [constant(0.0)] * UNROLLED, step=UNROLLED)
        with landmarks as (j, sums, following):
            for u, total in enumerate(sums):
                number = b.add(j, integer(u))
                following.append(fma(b, _column(b, e, number), every(b, own, number), total))
        own = b.gep(own, [b.sub(m, first)])
        products = Loop(b, last, list(landmarks.values), step=UNROLLED, first=first)
        with products as (q, sums, following):
            for u, total in enumerate(sums):
                number = b.add(q, integer(u))
                product = b.fmul(*(_column(b, e, b.load(b.gep(which, [number]))) for which in (left, right)))
                following.append(fma(b, product, every(b, own, number), total))
        s = products.values
        store(b, b.fadd(b.fadd(s[0], s[1]), b.fadd(s[2], s[3])), out, integer(0))
        return context.get_dummy_value()

    return takes(types.void, e, m, left, right, first, last, weights, at, out), generate


@intrinsic
def column_sums(_, e, m, left, right, first, last, weights, at, stride, n, out):
    """The same for outputs k < n rounded up to a multiple of 8: column k of `out`, with weights[at + stride …
    + k].
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        e, m, left, right, first, last, weights, at, stride, n, out = operands(context, b, signature, args)
        with Loop(b, n, [], step=AT_ONCE) as (k, _, _):
            own = b.gep(weights, [b.add(at, k)])

            def added(own: Any, number: Any, value: Any, sums: list[Any]) -> list[Any]:
                row = b.gep(own, [b.mul(number, stride)])
                return [fma(b, value, every(b, row, integer(u)), total) for u, total in enumerate(sums)]

            landmarks = Loop(b, m, [constant(0.0)] * AT_ONCE)
            with landmarks as (j, sums, following):
                following.extend(added(own, j, _column(b, e, j), sums))
            products = Loop(b, last, list(landmarks.values), first=first)
            with products as (q, sums, following):
                product = b.fmul(*(_column(b, e, b.load(b.gep(which, [q]))) for which in (left, right)))
                following.extend(added(own, b.add(m, b.sub(q, first)), product, sums))
            for u, total in enumerate(products.values):
                store(b, total, out, b.mul(b.add(k, integer(u)), integer(LANES)))
        return context.get_dummy_value()

    return takes(types.void, e, m, left, right, first, last, weights, at, stride, n, out), generate


def _finite(b: Any, values: Any) -> Any:
    """Which lanes are finite: no difference from itself but 0."""
    return b.fcmp_ordered("==", b.fsub(values, values), ir.Constant(values.type, [0.0] * LANES))


@intrinsic
def column_results(_, sums, n_outputs, present, first, last, constants, at, out):
    """Columns of results: constants[at + k], and to those of present[first:last] the columns of `sums`, added
    in double precision. The lanes that are finite, as bits.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        sums, n_outputs, present, first, last, constants, at, out = operands(context, b, signature, args)
        own = b.gep(constants, [at])
        with Loop(b, n_outputs, []) as (k, _, _):
            store(b, b.fptrunc(every(b, own, k), VECTOR), out, b.mul(k, integer(LANES)))
        with Loop(b, b.sub(last, first), []) as (k, _, _):
            output = b.load(b.gep(present, [b.add(first, k)]))
            value = b.fptrunc(b.fadd(b.fpext(_column(b, sums, k), _DOUBLES), every(b, own, output)), VECTOR)
            store(b, value, out, b.mul(output, integer(LANES)))
        loop = Loop(b, n_outputs, [ir.Constant(ir.VectorType(ir.IntType(1), LANES), [1] * LANES)])
        with loop as (k, (fine,), following):
            following.append(b.and_(fine, _finite(b, _column(b, out, k))))
        return b.zext(b.bitcast(loop.values[0], ir.IntType(LANES)), _I64)

    return takes(types.int64, sums, n_outputs, present, first, last, constants, at, out), generate


@intrinsic
def column_bounded(_, sums, value, least, most, out):
    """One column of results in double precision: sums + value, from `least` to `most`. The lanes that are
    finite, as bits.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        sums, value, least, most, out = operands(context, b, signature, args)
        values = b.fadd(b.fpext(load(b, sums, integer(0)), _DOUBLES), splat(b, value))
        fine = b.zext(b.bitcast(_finite(b, values), ir.IntType(LANES)), _I64)
        values = call(b, "llvm.maxnum.v16f64", _DOUBLES, values, splat(b, least))
        store(b, call(b, "llvm.minnum.v16f64", _DOUBLES, values, splat(b, most)), out, integer(0))
        return fine

    return takes(types.int64, sums, value, least, most, out), generate


@intrinsic
def bounded_lanes(_, values, at, limit):
    """The lanes of values[at : at + 16] that are below a limit, as bits."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        values, at, limit = operands(context, b, signature, args)
        below = b.fcmp_ordered("<", load(b, values, at), splat(b, b.fptrunc(limit, _F32)))
        return b.zext(b.bitcast(below, ir.IntType(LANES)), _I64)

    return takes(types.int64, values, at, limit), generate


@intrinsic
def write_columns(_, results, n_outputs, numbers, at, n, start, out):
    """out[start + numbers[at + r], k] = results[16 k + r] for r < n and every output k."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        results, n_outputs, numbers, at, n, start, out = operands(context, b, signature, args)
        with Loop(b, n, []) as (r, _, _):
            row = b.add(start, b.zext(b.load(b.gep(numbers, [b.add(at, r)])), _I64))
            target, source = b.gep(out, [b.mul(row, n_outputs)]), b.gep(results, [r])
            with Loop(b, n_outputs, []) as (k, _, _):
                b.store(b.load(b.gep(source, [b.mul(k, integer(LANES))])), b.gep(target, [k]))
        return context.get_dummy_value()

    return takes(types.void, results, n_outputs, numbers, at, n, start, out), generate
