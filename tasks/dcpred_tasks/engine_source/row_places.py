"""Where the rows of a strip lie, and what they are centred on, by a numba intrinsic."""

from typing import Any

from numba import types
from numba.extending import intrinsic

from dcpred_tasks.engine_source.elements import I8, I64
from dcpred_tasks.engine_source.llvm import LINE, Loop, number_at, operands, prefetch_line, takes


@intrinsic
def place_rows(
    _,
    numbers,
    at,
    n,
    upcoming,
    leaf,
    address,
    stride,
    n_bytes,
    within,
    length,
    own_leaf,
    addresses,
    centre_at,
):
    """For the n rows numbers[at : at + n]: their leaves into own_leaf, their addresses in memory, and the
    offsets of what their leaf is centred on into centre_at, `length` numbers to a leaf. Prefetches n_bytes of
    each of the rows numbers[upcoming : upcoming + n]; with within = LINE − 1 up to their last line, wherever
    in a line they begin.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        numbers, at, n, upcoming, leaf, address, stride, n_bytes, within, length, *places = operands(
            context, b, signature, args
        )
        own_leaf, addresses, centre_at = places
        with Loop(b, n, []) as (r, _, _):
            i = number_at(b, numbers, b.add(at, r))
            number = b.load(b.gep(leaf, [i]))
            b.store(number, b.gep(own_leaf, [r]))
            b.store(b.add(address, b.mul(i, stride)), b.gep(addresses, [r]))
            b.store(b.mul(b.zext(number, I64), length), b.gep(centre_at, [r]))
            following = b.add(address, b.mul(number_at(b, numbers, b.add(upcoming, r)), stride))
            before = b.and_(following, within)
            with Loop(b, b.add(before, n_bytes), [], step=LINE) as (byte, _, _):
                line = b.sub(b.add(following, byte), before)
                prefetch_line(b, b.inttoptr(line, I8.as_pointer()))
        return context.get_dummy_value()

    kinds = (numbers, at, n, upcoming, leaf, address, stride, n_bytes, within, length)
    return takes(types.void, *kinds, own_leaf, addresses, centre_at), generate
