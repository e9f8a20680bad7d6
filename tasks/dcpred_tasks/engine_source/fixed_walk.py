"""The walk down the tree in whole numbers of 16 bits (fixed_point.py): rows become whole numbers, and are
multiplied with the centres of a node, two features at a time, by an instruction that twice as many products
go through at once.

Sums are exact, so that nothing depends on their order. What a row's numbers cannot decide is left to single
precision.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.layout import FIXED_NORM, LANES, UNIT
from dcpred_tasks.engine_source.llvm import (
    VECTOR,
    Loop,
    call,
    constant,
    fma,
    integer,
    load,
    members,
    number_at,
    operands,
    prefetch_line,
    splat,
    store,
    takes,
)
from dcpred_tasks.engine_source.own_instructions import pair_products

_F32, _I16, _I32, _I64 = ir.FloatType(), *(ir.IntType(bits) for bits in (16, 32, 64))
_INTS, _SHORTS = ir.VectorType(_I32, LANES), ir.VectorType(_I16, LANES)
MAGIC = 1.5 * 2**23  # A single near it ends in the bits of a whole number, rounded to the nearest.
ROWS = 8  # rows that go down at once
# Units of (‖x‖ + ‖c‖)² that two scores may be off by beside their products: 4 as in nearest_child of
# centre_lanes.py, and 30 each for the bits that hold the number of a lane.
ROUNDING = 64


# -- rows ----------------------------------------------------------------------------------------------------


@intrinsic
def to_fixed(_, rows, n, width, norms, numbers, at):
    """numbers[width (at + r) : …] = x · FIXED_NORM / ‖x‖, rounded, for n rows x of `width` features, a
    multiple of 16, whose ‖x‖² are norms[at + r]. Without meaning where ‖x‖ is not below ROOT_OF_HUGE, or not
    above its inverse.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        rows, n, width, norms, numbers, at = operands(context, b, signature, args)
        with Loop(b, n, []) as (r, _, _):
            row, number = b.mul(r, width), b.add(at, r)
            norm = call(b, "llvm.sqrt.f32", _F32, b.load(b.gep(norms, [number])))
            scale = splat(b, b.fdiv(ir.Constant(_F32, FIXED_NORM), norm))
            x, target = b.gep(rows, [row]), b.gep(numbers, [b.mul(number, width)])
            whole = b.and_(width, integer(-2 * LANES))
            with Loop(b, whole, [], step=2 * LANES) as (j, _, _):
                two = [_bits(b, x, b.add(j, integer(k)), scale) for k in (0, LANES)]
                order = ir.Constant(ir.VectorType(_I32, 2 * LANES), list(range(0, 4 * LANES, 2)))
                halves = [b.bitcast(bits, ir.VectorType(_I16, 2 * LANES)) for bits in two]
                _store_shorts(b, b.shuffle_vector(*halves, order), target, j)
            with Loop(b, width, [], step=LANES, first=whole) as (j, _, _):
                _store_shorts(b, b.trunc(_bits(b, x, j, scale), _SHORTS), target, j)
        return context.get_dummy_value()

    return takes(types.void, rows, n, width, norms, numbers, at), generate


def _bits(b: Any, x: Any, j: Any, scale: Any) -> Any:
    """16 numbers whose last 16 bits are those of x · scale, rounded."""
    return b.bitcast(fma(b, load(b, x, j), scale, constant(MAGIC)), _INTS)


def _store_shorts(b: Any, value: Any, where: Any, index: Any) -> None:
    b.store(value, b.bitcast(b.gep(where, [index]), value.type.as_pointer()), align=2)


# -- rows × centres ------------------------------------------------------------------------------------------


def _sums(b: Any, rows: list[Any], groups: list[Any], d: Any, ahead: Any = None) -> list[Any]:
    """Σ_j X_j C_tj in 16 lanes t for every row, over an even number d of features; one group for all rows, or
    one for each. With ahead = (address, bytes), a line is prefetched in every turn, so many bytes apart.
    """
    begun = [ir.Constant(_INTS, [0] * LANES)] * len(rows)
    loop = Loop(b, b.lshr(d, integer(1)), [*begun, *([ahead[0]] if ahead else [])])
    with loop as (pair, values, following):
        at = b.mul(pair, integer(LANES))
        centres = [b.load(b.bitcast(b.gep(g, [at]), _INTS.as_pointer()), align=4) for g in groups]
        centres *= len(rows) // len(groups)
        for row, c, total in zip(rows, centres, values[: len(rows)], strict=True):
            x = splat(b, b.load(b.gep(row, [pair]), align=2))
            following.append(pair_products(b, total, x, c))
        if ahead:
            prefetch_line(b, b.inttoptr(values[-1], ir.IntType(8).as_pointer()))
            following.append(b.add(values[-1], ahead[1]))
    return list(loop.values[: len(rows)])


def _two_largest(b: Any, scores: list[Any]) -> tuple[Any, Any]:
    """The largest and the second of 16 numbers in each of eight vectors, in lane 2 r and 2 r + 1 of vector r.

    Halves of two vectors are exchanged, so that one comparison serves both, and so on: vectors become half as
    many, and what they hold of a vector half as long.
    """
    firsts, width = scores, LANES
    seconds: list[Any] = []
    while width > 2:
        width //= 2
        firsts, seconds = _halved(b, firsts, seconds, width)
    ((first,), (second,)) = firsts, seconds
    order = ir.Constant(_INTS, [i ^ 1 for i in range(LANES)])
    other = [b.shuffle_vector(v, ir.Constant(v.type, ir.Undefined), order) for v in (first, second)]
    return _best(b, (first, second), other)


def _halved(b: Any, firsts: list[Any], seconds: list[Any], width: int) -> tuple[list[Any], list[Any]]:
    low = [i for i in range(2 * LANES) if i % (2 * width) < width]
    high = [i + width for i in low]
    orders = [ir.Constant(_INTS, lanes) for lanes in (low, high)]
    found: tuple[list[Any], list[Any]] = ([], [])
    for k in range(0, len(firsts), 2):
        parts = [
            [b.shuffle_vector(*values[k : k + 2], order) for order in orders]
            for values in (firsts, seconds)
            if values
        ]
        pair = _best(b, *([side[part] for side in parts] for part in range(2)))
        for values, value in zip(found, pair, strict=True):
            values.append(value)
    return found


def _best(b: Any, one: Any, other: Any) -> tuple[Any, Any]:
    """The largest and the second of what two (largest, second), or two numbers, hold in each lane."""
    above = b.fcmp_ordered(">", one[0], other[0])
    first, second = b.select(above, one[0], other[0]), b.select(above, other[0], one[0])
    for value in (one[1:], other[1:]):
        for v in value:
            second = b.select(b.fcmp_ordered(">", v, second), v, second)
    return first, second


class _Level:
    """The code of one level down, for ROWS rows at a time: see walk_shared and walk_own."""

    def __init__(self, context: Any, b: Any, signature: Any, args: Any, shared: bool) -> None:
        self.b, self.shared = b, shared
        p, room = zip(signature.args[:2], args[:2], strict=True)
        self.index, self.stop, self.n, self.order, self.next_order, self.leaf, *self.ahead = operands(
            context, b, signature.replace(args=signature.args[2:]), args[2:]
        )
        self.width, self.d, self.half_norms, self.radius, self.children, numbers, self.unit, self.error = (
            members(context, b, *p, "width", "group_features", "half_norms", "radius", "children")
            + members(context, b, *p, "fixed.numbers", "fixed.unit", "fixed.error")
        )
        self.node, self.norm, self.undecided, self.counts, rows = members(
            context, b, *room, "node", "norm", "undecided", "state", "numbers"
        )
        self.rows, self.numbers = (b.bitcast(values, _I32.as_pointer()) for values in (rows, numbers))
        with b.goto_entry_block():
            self.best = [b.alloca(_F32, size=LANES) for _ in range(2)]

    def generate(self) -> None:
        b = self.b
        turn = [b.mul(self.ahead[1], b.lshr(self.d, integer(1)))] if self.ahead else []
        begun = [b.load(b.gep(self.counts, [integer(k)])) for k in range(2)]
        loop = Loop(b, self.stop, begun + self.ahead[:1], step=1 if self.shared else ROWS)
        with loop as (k, (going, left, *line), following):
            places = self._places(k)
            own = [number_at(b, self.order, place) for place in places]
            at = [number_at(b, self.node, i) for i in (own[:1] if self.shared else own)]
            lengths = [b.load(b.gep(self.norm, [i])) for i in own]
            nodes = [_of_node(b, node, self.unit, self.error, self.half_norms, self.radius) for node in at]
            at, nodes = at * (ROWS // len(at)), nodes * (ROWS // len(nodes))
            keys = [
                self._key(total, length, node)
                for total, length, node in zip(self._totals(own, at, line), lengths, nodes, strict=True)
            ]
            for where, value in zip(self.best, _two_largest(b, keys), strict=True):
                store(b, value, where, integer(0))
            for r, row in enumerate(zip(places, own, at, lengths, nodes, strict=True)):
                on, lost = self._step(r, *row, going, left)
                going, left = b.add(going, b.zext(on, _I64)), b.add(left, b.zext(lost, _I64))
            following.extend([going, left, *(b.add(*pair) for pair in zip(line, turn, strict=True))])
        for k, value in enumerate(loop.values[:2]):
            b.store(value, b.gep(self.counts, [integer(k)]))

    def _places(self, k: Any) -> list[Any]:
        b = self.b
        if self.shared:
            first = b.load(b.gep(self.index, [k]))
            return [b.add(first, integer(u)) for u in range(ROWS)]
        return [b.load(b.gep(self.index, [b.add(k, integer(u))])) for u in range(ROWS)]

    def _totals(self, own: list[Any], at: list[Any], line: list[Any]) -> list[Any]:
        """Sums of products of the rows and the centres of their nodes."""
        b, size = self.b, self.b.mul(self.b.lshr(self.d, integer(1)), integer(LANES))
        xs = [b.gep(self.rows, [b.mul(i, b.lshr(self.width, integer(1)))]) for i in own]
        groups = [b.gep(self.numbers, [b.mul(node, size)]) for node in (at[:1] if self.shared else at)]
        if self.shared:
            return _sums(b, xs, groups, self.d, line + self.ahead[1:])
        half = ROWS // 2  # A group for each of more rows would need more registers for addresses.
        return _sums(b, xs[:half], groups[:half], self.d) + _sums(b, xs[half:], groups[half:], self.d)

    def _key(self, total: Any, length: Any, node: tuple[Any, ...]) -> Any:
        """Scores whose last four bits are the number of their lane."""
        b, (unit, _, half_norms, _) = self.b, node
        products = b.fmul(b.sitofp(total, VECTOR), splat(b, b.fmul(length, unit)))
        bits = b.bitcast(b.fsub(products, half_norms), _INTS)
        bits = b.and_(bits, ir.Constant(_INTS, [-LANES] * LANES))
        return b.bitcast(b.or_(bits, ir.Constant(_INTS, list(range(LANES)))), VECTOR)

    def _step(
        self, r: int, place: Any, i: Any, at: Any, length: Any, node: Any, going: Any, left: Any
    ) -> Any:
        """Row number r of ROWS enters its child, or is left undecided: (whether it goes on, whether it is
        left).
        """
        b, (_, error, _, radius) = self.b, node
        first, second = (b.load(b.gep(where, [integer(2 * r)])) for where in self.best)
        both = b.fadd(length, radius)
        rounding = b.fmul(ir.Constant(_F32, ROUNDING * UNIT), b.fmul(both, both))
        alone = b.fcmp_ordered(">", b.fsub(first, second), b.fadd(b.fmul(length, error), rounding))
        lane = b.and_(b.zext(b.bitcast(first, _I32), _I64), integer(LANES - 1))
        child = b.load(b.gep(self.children, [b.add(b.mul(at, integer(LANES)), lane)]))
        b.store(b.select(alone, child, b.trunc(at, _I32)), b.gep(self.node, [i]))
        b.store(b.not_(child), b.gep(self.leaf, [i]))
        for where, end in ((self.next_order, going), (self.undecided, left)):
            b.store(b.trunc(i, _I32), b.gep(where, [end]))
        on, lost = b.and_(alone, b.icmp_signed(">=", child, ir.Constant(_I32, 0))), b.not_(alone)
        if self.shared:
            return on, lost
        real = b.icmp_signed("<", place, self.n)
        return b.and_(on, real), b.and_(lost, real)


def _of_node(b: Any, at: Any, unit: Any, error: Any, half_norms: Any, radius: Any) -> tuple[Any, ...]:
    """(unit, error · radius, half norms, radius) of a node."""
    c = b.load(b.gep(radius, [at]))
    off = b.fmul(c, b.load(b.gep(error, [at])))
    return b.load(b.gep(unit, [at])), off, load(b, half_norms, b.mul(at, integer(LANES))), c


def _level(shared: bool, *kinds: Any) -> Any:
    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        _Level(context, b, signature, args, shared).generate()
        return context.get_dummy_value()

    return takes(types.void, *kinds), generate


@intrinsic
def walk_shared(_, p, room, index, stop, n, order, next_order, leaf):
    """One level down for the rows order[index[k]] to order[index[k] + 7], which share a node, k < stop.

    room.node[i] becomes the child of row i, and leaf[i] its leaf if it is one. Numbers of rows that go on are
    added to next_order, and counted in room.state[0]; those of rows that cannot be decided to room.undecided
    and room.state[1]. Places from n on in `order` are none of a row, and are not counted. The code:

        for eight rows:
            for two features at once: total[r] += pairs of row r · pairs of 16 centres     # exact
            key[r] = total[r] · ‖x‖ · unit − half norms, the number of the lane in its last bits
            (first[r], second[r]) = two_largest(key[r])            # eight rows at once
            for r in eight: row r enters the child of first[r], if first[r] − second[r] > margin
    """
    return _level(True, p, room, index, stop, n, order, next_order, leaf)


@intrinsic
def walk_root(_, p, room, index, stop, n, order, next_order, leaf, ahead, step):
    """As walk_shared. Meanwhile memory from address `ahead` on is prefetched, a line every `step` bytes."""
    return _level(True, p, room, index, stop, n, order, next_order, leaf, ahead, step)


@intrinsic
def walk_own(_, p, room, index, stop, n, order, next_order, leaf):
    """As walk_shared, for rows order[index[k]], each with a node of its own, eight k at a time."""
    return _level(False, p, room, index, stop, n, order, next_order, leaf)
