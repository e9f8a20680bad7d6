"""The walk down the tree for rows of few features: the products with a node's centres and the choice of a
child in one loop, without a buffer between them. As loops compiled by numba, which load pointers from the
stack and check for indices below 0, they took twice as long.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.layout import AT_ONCE, LANES
from dcpred_tasks.engine_source.centre_lanes import margin, nearest_lane
from dcpred_tasks.engine_source.llvm import (
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
from dcpred_tasks.engine_source.row_lanes import against, every, transpose_square
from dcpred_tasks.model.kernel_families import Sum

UNDECIDED = 1 << 40  # the child of a row that has to be walked down in double precision
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_INTS = ir.VectorType(_I32, LANES)
_ZEROS, _NONE = ir.Constant(_INTS, [0] * LANES), ir.Constant(ir.VectorType(ir.IntType(1), LANES), [0] * LANES)


def _products(b: Any, row: Any, group: Any, n: Any) -> Any:
    """Products of a row with 16 centres over an even number n of features, in two chains of sums."""
    loop = Loop(b, n, [constant(0.0)] * 2, step=2)
    with loop as (j, sums, following):
        for u, total in enumerate(sums):
            feature = b.add(j, integer(u))
            x, c = splat(b, b.load(b.gep(row, [feature]))), load(b, group, b.mul(feature, integer(LANES)))
            following.append(fma(b, x, c, total))
    return b.fadd(*loop.values)


@intrinsic
def walk_from_root(
    _, order, n, rows, width, d, nodes, half_norms, radius, children, node, norm, error, leaf, x
):
    """The first level of walk_rows for rows 0 to n, sixteen at a time, lanes being rows. x is a buffer for
    their transposed features, d the number of features. Up to 15 rows after the last one are read, and their
    `node` and `leaf` written. The loop that is generated:

        for r in range(0, n, 16):
            x[j] = feature j of the rows r to r + 15               # 16 × 16 transposed
            for half in (0, 8):                                    # as many sums as keep two units busy
                for j in range(d):
                    for t in range(half, half + 8):
                        score[t] += x[j] * nodes[16 j + t]         # one number for all lanes
            score[t] -= half_norms[t]
            near[t] = score[t] >= max(score) − margin(norm, radius)
            child = children[t] where exactly one t is near, else 0
            node[r : r + 16], leaf[r : r + 16] = child, ~child     # ~0 is NOWHERE: no child is node 0
            order gets the numbers of rows whose child is a node

    All rows begin at the root, so that a centre is one number for 16 rows: lanes can be rows, and the largest
    of 16 scores is found without a step across lanes.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        (order, n, rows, width, d, nodes, half_norms, radius, children, node, norm, error, leaf, x) = (
            operands(context, b, signature, args)
        )
        loop = Loop(b, n, [integer(0)], step=LANES)
        with loop as (r, (remaining,), following):
            with Loop(b, b.lshr(width, integer(4)), []) as (square, _, _):
                transpose_square(b, b.gep(rows, [b.mul(r, width)]), width, square, x)
            scores = []
            for half in range(0, LANES, AT_ONCE):
                products = against(b, x, b.gep(nodes, [integer(half)]), d, Sum.PRODUCTS)
                scores += [b.fsub(p, every(b, half_norms, integer(half + t))) for t, p in enumerate(products)]
            lengths = load(b, norm, r)
            largest = scores[0]
            for score in scores[1:]:
                largest = b.select(b.fcmp_ordered(">", score, largest), score, largest)
            floor = b.fsub(largest, margin(b, lengths, every(b, radius, integer(0)), splat(b, error)))
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
                b.store(b.trunc(number, _I32), b.gep(order, [remaining]))
                bit = b.and_(b.lshr(bits, integer(lane)), integer(1))
                remaining = b.add(remaining, b.select(b.icmp_signed("<", number, n), bit, integer(0)))
            following.append(remaining)
        return loop.values[0]

    kinds = (order, n, rows, width, d, nodes, half_norms, radius, children, node, norm, error, leaf, x)
    return takes(types.int64, *kinds), generate


@intrinsic
def walk_rows(_, order, n, rows, width, d, nodes, half_norms, radius, children, node, norm, error, leaf):
    """Walk the rows order[:n], of d features, down by one level, row i from node[i] on.

    node[i] becomes the child, and leaf[i] its leaf if it is one; NOWHERE for a row that single precision
    cannot place. Rows that go on come first in `order`; returns how many they are.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        (order, n, rows, width, d, nodes, half_norms, radius, children, node, norm, error, leaf) = operands(
            context, b, signature, args
        )
        size = b.mul(d, integer(LANES))
        loop = Loop(b, n, [integer(0)])
        with loop as (r, (remaining,), following):
            number = b.load(b.gep(order, [r]))
            i = b.zext(number, _I64)
            at = number_at(b, node, i)
            products = _products(b, b.gep(rows, [b.mul(i, width)]), b.gep(nodes, [b.mul(at, size)]), d)
            length = b.load(b.gep(norm, [i]))
            child = nearest_lane(
                b, products, half_norms, radius, children, at, length, error, integer(UNDECIDED)
            )
            b.store(b.trunc(child, _I32), b.gep(node, [i]))
            b.store(b.trunc(b.not_(child), _I32), b.gep(leaf, [i]))
            b.store(number, b.gep(order, [remaining]))
            following.append(b.add(remaining, b.zext(b.icmp_unsigned("<", child, integer(UNDECIDED)), _I64)))
        return loop.values[0]

    kinds = (order, n, rows, width, d, nodes, half_norms, radius, children, node, norm, error, leaf)
    return takes(types.int64, *kinds), generate
