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

from dcpred_tasks.engine.layout import AT_ONCE, LANES, UNROLLED
from dcpred_tasks.engine_source.centre_lanes import add_feature
from dcpred_tasks.engine_source.kernel_lanes import Vectors, for_form, kernel_input
from dcpred_tasks.engine_source.llvm import (
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
    """The 16 lanes, rows, of one landmark, feature or output."""
    return load(b, where, b.mul(number, integer(LANES)))


def every(b: Any, where: Any, index: Any) -> Any:
    """The number where[index] in every lane."""
    return splat(b, b.load(b.gep(where, [index])))


# -- rows into columns ---------------------------------------------------------------------------------------


def _transpose(b: Any, vectors: list[Any]) -> list[Any]:
    """The transpose of 16 vectors of 16 lanes, by exchanges of squares of 8, 4, 2 and 1."""
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


def transpose_square(b: Any, rows: Any, stride: Any, square: Any, out: Any) -> None:
    """out[16 j + r] = rows[stride r + j], r < 16, 16 square ≤ j < 16 square + 16."""
    column = b.mul(square, integer(LANES))
    vectors = [load(b, rows, b.add(column, b.mul(stride, integer(r)))) for r in range(LANES)]
    for j, vector in enumerate(_transpose(b, vectors)):
        store(b, vector, out, b.add(b.mul(square, integer(LANES * LANES)), integer(LANES * j)))


@intrinsic
def transpose_rows(_, rows, at, stride, squares, out):
    """out[16 j + r] = rows[at + stride r + j], r < 16, j < 16 squares."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        rows, at, stride, squares, out = operands(context, b, signature, args)
        with Loop(b, squares, []) as (square, _, _):
            transpose_square(b, b.gep(rows, [at]), stride, square, out)
        return context.get_dummy_value()

    return takes(types.void, rows, at, stride, squares, out), generate


# -- kernel values -------------------------------------------------------------------------------------------


@intrinsic
def column_values(_, x, d, groups, first, last, form, wide, norm, at, constants, n_constants, out):
    """Columns of kernel values, as kernel_lanes.kernel_values gives them, for the landmarks of groups first
    to last and 16 rows of few features.

    x     columns of features, 16 · d
    norm  ‖x‖² of the rows, from `at` on

    The loop that is generated:

        for eight landmarks t of a group:                 # as many sums as keep two units busy
            for j in range(d):
                for t in eight: total[t] += x[j] * groups[16 j + t]      # or squared or absolute differences
            for t in eight: out[t] = e(total[t], norm, constants of t)   # see kernel_families

    Landmarks are the outer loop, so that their sums stay in registers; x is at most 2 KiB and is read from
    first-level cache again for each eight.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        x, d, groups, first, last, form, wide, norm, at, constants, n_constants, out = operands(
            context, b, signature, args
        )
        lengths = load(b, norm, at)
        size, known = (b.mul(n, integer(LANES)) for n in (d, n_constants))

        def all_landmarks(family: Family, wide: bool) -> None:
            kind = Sum.PRODUCTS if family.sum == Sum.SQUARES and not wide else family.sum
            stop = b.mul(last, integer(LANES))
            with Loop(b, stop, [out], step=AT_ONCE, first=b.mul(first, integer(LANES))) as (
                landmark,
                (target,),
                following,
            ):
                number, lane = b.lshr(landmark, integer(4)), b.and_(landmark, integer(LANES - 1))
                group = b.gep(b.gep(groups, [b.mul(number, size)]), [lane])
                own = b.gep(b.gep(constants, [b.mul(number, known)]), [lane])
                for t, total in enumerate(against(b, x, group, d, kind)):
                    k = [every(b, own, integer(LANES * k + t)) for k in range(family.n_constants)]
                    value = kernel_input(b, family, total, lengths, k[0], wide)
                    store(b, family.in_lanes(Vectors(b), value, k), target, integer(LANES * t))
                following.append(b.gep(target, [integer(LANES * AT_ONCE)]))

        def values(family: Family) -> None:
            if family.sum != Sum.SQUARES:
                all_landmarks(family, False)
                return
            with b.if_else(wide) as (then, otherwise):
                with then:
                    all_landmarks(family, True)
                with otherwise:
                    all_landmarks(family, False)

        for_form(b, form, values)
        return context.get_dummy_value()

    kinds = (x, d, groups, first, last, form, wide, norm, at, constants, n_constants, out)
    return takes(types.void, *kinds), generate


def against(b: Any, x: Any, group: Any, d: Any, kind: Sum) -> list[Any]:
    """Sums over features of the 16 rows with columns x and each of 8 centres or landmarks."""
    loop = Loop(b, d, [constant(0.0)] * AT_ONCE)
    with loop as (j, sums, following):
        value = _column(b, x, j)
        for t, total in enumerate(sums):
            w = every(b, group, b.add(b.mul(j, integer(LANES)), integer(t)))
            following.append(add_feature(b, kind, value, w, total))
    return list(loop.values)


# -- decision values -----------------------------------------------------------------------------------------


@intrinsic
def column_sum(_, e, m, left, right, first, last, weights, at, out):
    """The sums of one output, out = Σ_j e_j · weights[at + j] + Σ_q e[left[q]] · e[right[q]] · weights[at + m
    + q − first] over landmarks j < m and products first ≤ q < last; the numbers of both are multiples of 4.

        for four terms: total[u] += e[j + u] * weights[at + j + u]       # 4 chains, for one would wait
        out = (total[0] + total[1]) + (total[2] + total[3])
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
    """The same for the outputs k < n, n rounded up to a multiple of 8: column k of `out`, with the weights
    [at + stride · term + k]. The loop that is generated:

        for eight outputs k:                               # as many sums as keep two units busy
            for j in range(m):
                for k in eight: total[k] += e[j] * weights[at + stride j + k]
            for q in range(first, last):
                product = e[left[q]] * e[right[q]]
                for k in eight: total[k] += product * weights[at + stride (m + q − first) + k]
            out[k] = total[k]

    Outputs are the outer loop, so that their sums stay in registers; a kernel value or a product is loaded
    once for eight outputs, and a weight is one number for 16 rows.
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
    """Which lanes are finite: only those differ from themselves by 0."""
    return b.fcmp_ordered("==", b.fsub(values, values), ir.Constant(values.type, [0.0] * LANES))


@intrinsic
def column_results(_, sums, n_outputs, present, first, last, constants, at, out):
    """Columns of results: constants[at + k] for every output k, plus the columns of `sums` for the outputs
    present[first:last], added in double precision. Returns the rows whose results are all finite, as bits.
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
        with loop as (k, (finite,), following):
            following.append(b.and_(finite, _finite(b, _column(b, out, k))))
        return b.zext(b.bitcast(loop.values[0], ir.IntType(LANES)), _I64)

    return takes(types.int64, sums, n_outputs, present, first, last, constants, at, out), generate


@intrinsic
def column_bounded(_, sums, value, low, high, out):
    """One column of results in double precision: sums + value, clipped to low ≤ result ≤ high. Returns the
    rows whose sums are finite, as bits.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        sums, value, low, high, out = operands(context, b, signature, args)
        values = b.fadd(b.fpext(load(b, sums, integer(0)), _DOUBLES), splat(b, value))
        finite = b.zext(b.bitcast(_finite(b, values), ir.IntType(LANES)), _I64)
        values = call(b, "llvm.maxnum.v16f64", _DOUBLES, values, splat(b, low))
        store(b, call(b, "llvm.minnum.v16f64", _DOUBLES, values, splat(b, high)), out, integer(0))
        return finite

    return takes(types.int64, sums, value, low, high, out), generate


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
