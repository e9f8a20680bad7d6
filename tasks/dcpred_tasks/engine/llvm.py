"""The engine's inner loops: LLVM vectors of 16 single-precision lanes, as numba intrinsics.

LLVM splits 16 lanes into what the processor has (one register of AVX-512, two of AVX2, four of NEON), so that nothing here
names an instruction set. A lane is a centre or a landmark, and a row is broadcast against 16 of them, so that a product needs
no sum across lanes; where lanes are rows, see row_lanes.py. Every lane is one chain of fused multiply-adds in the order of the
features: a row gets the same bits alone and among others.

Intrinsics read and write memory without a look at array bounds; where bounds checks are on, their callers touch what they will
reach.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine.layout import LANES

ROWS = 8  # rows that share one load of a centre: 4 leave half of an AVX-512 unit idle
LINE = 64  # bytes that come from memory at once
OWN = 4  # rows with a centre each: as many loads as products, and a register for every address

_F32, _F64, _I8, _I16, _I32, _I64 = ir.FloatType(), ir.DoubleType(), *(ir.IntType(bits) for bits in (8, 16, 32, 64))
VECTOR = ir.VectorType(_F32, LANES)
_INTS = ir.VectorType(_I32, LANES)


# --- vocabulary -----------------------------------------------------------------------------------------------------


def integer(value: int) -> ir.Constant:
    return ir.Constant(_I64, value)


def constant(value: float) -> ir.Constant:
    return ir.Constant(VECTOR, [value] * LANES)


def splat(b: Any, scalar: Any, lanes: int = LANES) -> Any:
    """As many times the same."""
    vector = ir.VectorType(scalar.type, lanes)
    one = b.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(_I32, 0))
    return b.shuffle_vector(one, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes))


def load(b: Any, where: Any, index: Any) -> Any:
    """16 floats from where[index]."""
    return b.load(b.bitcast(b.gep(where, [index]), VECTOR.as_pointer()), align=4)


def store(b: Any, value: Any, where: Any, index: Any) -> None:
    b.store(value, b.bitcast(b.gep(where, [index]), value.type.as_pointer()), align=4)


def call(b: Any, name: str, returned: Any, *arguments: Any) -> Any:
    """Call an LLVM intrinsic by its full name."""
    known = b.module.globals
    kind = ir.FunctionType(returned, [a.type for a in arguments])
    return b.call(known[name] if name in known else ir.Function(b.module, kind, name=name), arguments)


def fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    return call(b, f"llvm.fma.v{x.type.count}f32", x.type, x, y, z)


def turned(b: Any, vector: Any, by: int) -> Any:
    n = vector.type.count
    order = ir.Constant(ir.VectorType(_I32, n), [(i + by) % n for i in range(n)])
    return b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), order)


def lane_sum(b: Any, vector: Any) -> Any:
    """The sum of all lanes, always in the same order."""
    width = vector.type.count // 2
    while width:
        vector = b.fadd(vector, turned(b, vector, width))
        width //= 2
    return b.extract_element(vector, ir.Constant(_I32, 0))


def pointer(context: Any, b: Any, kind: Any, value: Any) -> Any:
    """Where the elements of a numba array lie."""
    return context.make_array(kind)(context, b, value).data


def takes(returned: Any, *kinds: Any) -> Any:
    """The signature of an intrinsic; any integer is taken as one of 64 bits."""
    return returned(*(types.int64 if isinstance(kind, types.Integer) else kind for kind in kinds))


def ask(b: Any, where: Any) -> None:
    """Prefetch one line."""
    read, near, data = (ir.Constant(_I32, v) for v in (0, 2, 1))
    call(b, "llvm.prefetch.p0", ir.VoidType(), where, read, near, data)


def operands(context: Any, b: Any, signature: Any, args: Any) -> list[Any]:
    """Arguments as scalars and pointers."""
    pairs = zip(signature.args, args, strict=True)
    return [pointer(context, b, kind, value) if isinstance(kind, types.Array) else value for kind, value in pairs]


class Loop:
    """`with Loop(b, stop, start) as (i, values, following)`: append what `values` become; `.values` are the last ones."""

    def __init__(self, b: Any, stop: Any, start: list[Any], step: int = 1, first: Any = None) -> None:
        self.b, self.stop, self.start, self.step = b, stop, start, step
        self.first = integer(0) if first is None else first

    def __enter__(self) -> tuple[Any, list[Any], list[Any]]:
        b = self.b
        before, self.head, body = b.block, b.append_basic_block("head"), b.append_basic_block("body")
        self.after = b.append_basic_block("after")
        b.branch(self.head)
        b.position_at_end(self.head)
        self.i = b.phi(_I64)
        self.i.add_incoming(self.first, before)
        self.values = [b.phi(v.type) for v in self.start]
        for phi, value in zip(self.values, self.start, strict=True):
            phi.add_incoming(value, before)
        b.cbranch(b.icmp_signed("<", self.i, self.stop), body, self.after)
        b.position_at_end(body)
        self.following: list[Any] = []
        return self.i, self.values, self.following

    def __exit__(self, *exc: object) -> None:
        b = self.b
        self.i.add_incoming(b.add(self.i, integer(self.step)), b.block)
        for phi, value in zip(self.values, self.following, strict=True):
            phi.add_incoming(value, b.block)
        b.branch(self.head)
        b.position_at_end(self.after)


# --- rows × centres -------------------------------------------------------------------------------------------------


def _project(b: Any, operands: list[Any], index: Any = None, ahead: Any = None, apart: bool = False) -> None:
    """Products of rows and centres, or squared distances where `apart`."""
    rows, row_at, centres, centre_at, at, first, last, out = operands
    shared = index is None
    width = ROWS if shared else OWN
    for start in range(0, ROWS, width):
        numbers = [b.add(at, integer(r)) for r in range(start, start + width)]
        numbers = numbers if shared else [b.load(b.gep(index, [r])) for r in numbers]
        xs = [b.gep(rows, [b.load(b.gep(row_at, [r]))]) for r in numbers]
        cs = [b.gep(centres, [b.load(b.gep(centre_at, [r]))]) for r in (numbers[:1] if shared else numbers)]
        targets = [b.gep(out, [b.mul(r, integer(LANES))]) for r in numbers]
        begun = b.icmp_signed("!=", first, integer(0))
        starts = [b.select(begun, load(b, target, integer(0)), constant(0.0)) for target in targets]
        loop = Loop(b, last, [*starts, *(ahead.start if ahead else [])], step=2, first=first)
        with loop as (j, values, following):
            sums, fetch = values[:width], values[width:]
            for feature in (j, b.add(j, integer(1))):
                group = [load(b, c, b.mul(feature, integer(LANES))) for c in cs] * (width if shared else 1)
                features = [splat(b, b.load(b.gep(x, [feature]))) for x in xs]
                factors = [(d, d) for d in map(b.fsub, features, group)] if apart else list(zip(features, group, strict=True))
                sums = [fma(b, *pair, s) for pair, s in zip(factors, sums, strict=True)]
            following.extend([*sums, *(ahead.step(*fetch) if ahead else [])])
        for target, s in zip(targets, loop.values[:width], strict=True):
            store(b, s, target, integer(0))


class _Ahead:
    """Ask for rows to come, two lines in every turn of a loop: row by row from ahead[at] on, bytes from `low` to `high` in steps
    of `stride`, and `also` bytes further. More at once would wait for each other, and later the work would wait for them."""

    def __init__(self, b: Any, ahead: Any, at: Any, low: Any, high: Any, stride: Any, also: Any) -> None:
        self.b, self.ahead, self.low, self.high, self.stride, self.also = b, ahead, low, high, stride, also
        self.start = [at, low]

    def step(self, row: Any, offset: Any) -> list[Any]:
        b = self.b
        where = b.inttoptr(b.add(b.load(b.gep(self.ahead, [row])), offset), _I8.as_pointer())
        ask(b, where)
        ask(b, b.gep(where, [self.also]))
        following = b.add(offset, self.stride)
        over = b.icmp_signed(">=", following, self.high)
        return [b.select(over, b.add(row, integer(1)), row), b.select(over, self.low, following)]


@intrinsic
def project_shared(_, rows, row_at, centres, centre_at, at, first, last, out, ahead, ahead_at, low, high, stride, also):
    """out[16 r : 16 r + 16] += Σ_j rows[row_at[r] + j] · centres[centre_at[at] + 16 j : … + 16], at ≤ r < at + ROWS, over an even
    number of features first ≤ j < last; out counts as 0 where first is 0. Meanwhile ask for bytes low, low + stride, … < high
    of the rows at the addresses ahead[ahead_at], …, and for those `also` bytes further."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        given = operands(context, b, signature, args)
        _project(b, given[:8], ahead=_Ahead(b, *given[8:]))
        return context.get_dummy_value()

    own = (rows, row_at, centres, centre_at, at, first, last, out)
    return takes(types.void, *own, ahead, ahead_at, low, high, stride, also), generate


@intrinsic
def project_own(_, rows, row_at, centres, centre_at, index, at, first, last, out):
    """The same for r = index[at], …, index[at + ROWS − 1] with a group of each row's own, centre_at[r]; the same bits."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        rows, row_at, centres, centre_at, index, *others = operands(context, b, signature, args)
        _project(b, [rows, row_at, centres, centre_at, *others], index)
        return context.get_dummy_value()

    return takes(types.void, rows, row_at, centres, centre_at, index, at, first, last, out), generate


@intrinsic
def distances_shared(_, rows, row_at, centres, centre_at, at, first, last, out):
    """As project_shared with (rows − centres)² instead of products, and without asking for rows to come."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        _project(b, operands(context, b, signature, args), apart=True)
        return context.get_dummy_value()

    return takes(types.void, rows, row_at, centres, centre_at, at, first, last, out), generate


@intrinsic
def distances_own(_, rows, row_at, centres, centre_at, index, at, first, last, out):
    """As project_own with (rows − centres)² instead of products."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        rows, row_at, centres, centre_at, index, *others = operands(context, b, signature, args)
        _project(b, [rows, row_at, centres, centre_at, *others], index, apart=True)
        return context.get_dummy_value()

    return takes(types.void, rows, row_at, centres, centre_at, index, at, first, last, out), generate
