"""LLVM vectors of 16 single-precision lanes: the vocabulary that the engine's inner loops are generated with.

LLVM splits 16 lanes into what the processor has (one register of AVX-512, two of AVX2, four of NEON), so that
nothing here names an instruction set.

Intrinsics read and write memory without a look at array bounds; where bounds checks are on, their callers
touch what they will reach.
"""

from collections.abc import Callable, Mapping
from typing import Any

from llvmlite import ir
from numba import types

from dcpred_tasks.engine.layout import LANES

LINE = 64  # bytes of a cache line: what comes from memory at once

_F32, _F64, _I8, _I16, _I32, _I64 = (
    ir.FloatType(),
    ir.DoubleType(),
    *(ir.IntType(bits) for bits in (8, 16, 32, 64)),
)
VECTOR = ir.VectorType(_F32, LANES)
_INTS = ir.VectorType(_I32, LANES)


def integer(value: int) -> ir.Constant:
    return ir.Constant(_I64, value)


def constant(value: float) -> ir.Constant:
    return ir.Constant(VECTOR, [value] * LANES)


def splat(b: Any, scalar: Any, lanes: int = LANES) -> Any:
    """A vector whose lanes all hold the scalar."""
    vector = ir.VectorType(scalar.type, lanes)
    one = b.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(_I32, 0))
    return b.shuffle_vector(
        one, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes)
    )


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


def rotated(b: Any, vector: Any, by: int) -> Any:
    """The vector with lane i + by in lane i, around its end."""
    n = vector.type.count
    order = ir.Constant(ir.VectorType(_I32, n), [(i + by) % n for i in range(n)])
    return b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), order)


def lane_sum(b: Any, vector: Any) -> Any:
    """The sum of all lanes, always in the same order."""
    width = vector.type.count // 2
    while width:
        vector = b.fadd(vector, rotated(b, vector, width))
        width //= 2
    return b.extract_element(vector, ir.Constant(_I32, 0))


def pointer(context: Any, b: Any, kind: Any, value: Any) -> Any:
    """Where the elements of a numba array lie."""
    return context.make_array(kind)(context, b, value).data


def takes(returned: Any, *kinds: Any) -> Any:
    """The signature of an intrinsic; any integer is taken as one of 64 bits."""
    return returned(*(types.int64 if isinstance(kind, types.Integer) else kind for kind in kinds))


def prefetch_line(b: Any, where: Any) -> None:
    """Ask for the cache line at an address, without waiting for it."""
    read, near, data = (ir.Constant(_I32, v) for v in (0, 2, 1))
    call(b, "llvm.prefetch.p0", ir.VoidType(), where, read, near, data)


def operands(context: Any, b: Any, signature: Any, args: Any) -> list[Any]:
    """Arguments as scalars and pointers."""
    pairs = zip(signature.args, args, strict=True)
    return [
        pointer(context, b, kind, value) if isinstance(kind, types.Array) else value for kind, value in pairs
    ]


def members(context: Any, b: Any, kind: Any, value: Any, *names: str) -> list[Any]:
    """Fields of a named tuple as scalars and pointers; "a.b" is field b of field a."""
    found = []
    for name in names:
        own, member = kind, value
        for field in name.split("."):
            place = own.fields.index(field)
            own, member = own.types[place], b.extract_value(member, place)
        found.append(pointer(context, b, own, member) if isinstance(own, types.Array) else member)
    return found


class Loop:
    """A counted loop in LLVM code: `with Loop(b, stop, start) as (i, values, following)` generates the body
    of

        values = start
        for i in range(first, stop, step): values = following

    where the body appends to `following` what each value becomes; after the loop `.values` are the last ones.
    """

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


def number_at(b: Any, where: Any, index: Any) -> Any:
    """where[index], an unsigned number of 32 bits, as one of 64."""
    return b.zext(b.load(b.gep(where, [index])), _I64)


def switch(b: Any, number: Any, cases: Mapping[str, Callable[[], None]]) -> None:
    """Code that does the one of the cases with this number, by their order; their names are for whoever reads
    the code. None of them where there is no such number.
    """
    after = b.append_basic_block("after")
    choice = b.switch(number, after)
    for i, (name, generate) in enumerate(cases.items()):
        case = b.append_basic_block(name)
        choice.add_case(integer(i), case)
        b.position_at_end(case)
        generate()
        b.branch(after)
    b.position_at_end(after)
