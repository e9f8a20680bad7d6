"""Rows of few features, in loops of their own: products with a group of centres and what comes of them at
once, no buffer between. Compiled from numba's loops, which take pointers from the stack and look for indices
below 0, they took twice as long.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.centre_lanes import margin, nearest_lane
from dcpred_tasks.engine.layout import AT_ONCE, LANES
from dcpred_tasks.engine.llvm import (
    Loop,
    constant,
    fma,
    integer,
    load,
    number_at,
    operands,
    splat,
    store,
    takes,
)
from dcpred_tasks.engine.row_lanes import against, every, turn_block
from dcpred_tasks.model.kernel_families import Sum

FAR = 1 << 40  # no child: the row is walked down in double precision
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_INTS = ir.VectorType(_I32, LANES)
_ZEROS, _NONE = ir.Constant(_INTS, [0] * LANES), ir.Constant(ir.VectorType(ir.IntType(1), LANES), [0] * LANES)


def _products(b: Any, row: Any, group: Any, n: Any) -> Any:
    """Of a row with 16 centres over an even number n of features, in two chains."""
    loop = Loop(b, n, [constant(0.0)] * 2, step=2)
    with loop as (j, sums, following):
        for u, total in enumerate(sums):
            feature = b.add(j, integer(u))
            x, c = splat(b, b.load(b.gep(row, [feature]))), load(b, group, b.mul(feature, integer(LANES)))
            following.append(fma(b, x, c, total))
    return b.fadd(*loop.values)


@intrinsic
def walk_from_root(
    _, order, n, rows, width, even, nodes, half_norms, reach, children, node, norm, error, leaf, x
):
    """The first level of walk_rows for rows 0 to n, sixteen at a time, lanes being rows; x is room for their
    columns. What follows the last row is read, and its leaf written.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        order, n, rows, width, even, nodes, half_norms, reach, children, node, norm, error, leaf, x = (
            operands(context, b, signature, args)
        )
        loop = Loop(b, n, [integer(0)], step=LANES)
        with loop as (r, (left,), following):
            with Loop(b, b.lshr(width, integer(4)), []) as (block, _, _):
                turn_block(b, b.gep(rows, [b.mul(r, width)]), width, block, x)
            scores = []
            for half in range(0, LANES, AT_ONCE):
                products = against(b, x, b.gep(nodes, [integer(half)]), even, Sum.PRODUCTS)
                scores += [b.fsub(p, every(b, half_norms, integer(half + t))) for t, p in enumerate(products)]
            lengths = load(b, norm, r)
            largest = scores[0]
            for score in scores[1:]:
                largest = b.select(b.fcmp_ordered(">", score, largest), score, largest)
            floor = b.fsub(largest, margin(b, lengths, every(b, reach, integer(0)), splat(b, error)))
            child, one, more = _ZEROS, _NONE, _NONE
            for t, score in enumerate(scores):
                near = b.fcmp_ordered(">=", score, floor)
                child = b.select(near, every(b, children, integer(t)), child)
                one, more = b.or_(one, near), b.or_(more, b.and_(one, near))
            placed = b.and_(one, b.not_(more))
            child = b.select(placed, child, _ZEROS)
            store(b, child, node, r)
            store(b, b.not_(child), leaf, r)
            further = b.and_(placed, b.icmp_signed(">=", child, _ZEROS))
            bits = b.zext(b.bitcast(further, ir.IntType(LANES)), _I64)
            for lane in range(LANES):
                number = b.add(r, integer(lane))
                b.store(b.trunc(number, _I32), b.gep(order, [left]))
                bit = b.and_(b.lshr(bits, integer(lane)), integer(1))
                left = b.add(left, b.select(b.icmp_signed("<", number, n), bit, integer(0)))
            following.append(left)
        return loop.values[0]

    kinds = (order, n, rows, width, even, nodes, half_norms, reach, children, node, norm, error, leaf, x)
    return takes(types.int64, *kinds), generate


@intrinsic
def walk_rows(_, order, n, rows, width, even, nodes, half_norms, reach, children, node, norm, error, leaf):
    """Walk rows order[:n] down by one level, from node[i] on, with the products rows[width i : …] have with
    its centres.

    node[i] becomes the child, and leaf[i] its leaf if it is one; 2³² − 1 for a row that single precision
    cannot place. Rows that are to go on come first in `order`; returns how many they are.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        order, n, rows, width, even, nodes, half_norms, reach, children, node, norm, error, leaf = operands(
            context, b, signature, args
        )
        size = b.mul(even, integer(LANES))
        loop = Loop(b, n, [integer(0)])
        with loop as (r, (left,), following):
            number = b.load(b.gep(order, [r]))
            i = b.zext(number, _I64)
            at = number_at(b, node, i)
            products = _products(b, b.gep(rows, [b.mul(i, width)]), b.gep(nodes, [b.mul(at, size)]), even)
            length = b.load(b.gep(norm, [i]))
            child = nearest_lane(b, products, half_norms, reach, children, at, length, error, integer(FAR))
            b.store(b.trunc(child, _I32), b.gep(node, [i]))
            b.store(b.trunc(b.not_(child), _I32), b.gep(leaf, [i]))
            b.store(number, b.gep(order, [left]))
            following.append(b.add(left, b.zext(b.icmp_unsigned("<", child, integer(FAR)), _I64)))
        return loop.values[0]

    kinds = (order, n, rows, width, even, nodes, half_norms, reach, children, node, norm, error, leaf)
    return takes(types.int64, *kinds), generate
