"""The arrays of a leaf, the leaves of a model in parts, and output weights without those of classes that a
leaf has no row of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Annotated, Any, TypeVar, get_type_hints

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dcpred_tasks.dtypes import (
    ACC_DTYPE,
    INDEX_DTYPE,
    LEAF_DTYPE,
    MODEL_DTYPE,
    FloatArray,
    IntArray,
    SingleArray,
)

T = TypeVar("T")
LEAF, EDGE = "leaf", "leaf_edge"  # an edge is where the rows of a leaf begin or end


def are_offsets(at: IntArray, n_parts: int) -> bool:
    """Whether offsets of so many parts begin with 0 and do not descend. They are compared, because a
    difference may overflow.
    """
    return at.shape == (n_parts + 1,) and at[0] == 0 and bool((at[1:] >= at[:-1]).all())


SIZES = {"of_product": 2, "share": 1}  # dimensions that have one size in every model
ORDERS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


@dataclass(frozen=True)
class ModelArray:
    """An array of a model on disk. `offsets` is the array with the offsets of each leaf, empty without one;
    `since` the first version of the format that has it.
    """

    dtype: type[np.generic]
    dimensions: tuple[str, ...]
    offsets: str = ""
    since: int = 1


@dataclass(frozen=True)
class Line:
    """The line of the table for an array of a leaf."""

    dtype: type[np.generic]
    dimensions: tuple[str, ...]
    """Names of the dimensions in one leaf; "leaf" is one row for each leaf."""
    offsets: str = ""
    """Name of the offsets of its rows, which several arrays may share; empty for one row for each leaf."""
    flat: str = ""
    """In a model it has one dimension, of this name; empty where it has as many as in a leaf."""
    in_leaf: str = ""
    """Name of the field of a fitted leaf, where that has another name."""
    since: int = 1
    """First version of the model format that has it."""
    values: str = ""
    """The interval of its values, "[0, 1]" or "(0, inf)"; empty for all numbers."""
    order: str = ""
    """How a value compares with the next one on the last axis, a key of ORDERS."""
    optional: bool = False
    """Whether it may be without values."""

    def joined(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """The array of a model from those of its leaves, in their order."""
        if self.offsets:
            return np.concatenate([part.ravel() if self.flat else part for part in parts])
        n_axes = len(self.dimensions) - 1
        return np.stack([part.reshape(part.shape[part.ndim - n_axes :]) for part in parts])

    def no_rows(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of an absent array, by the sizes of other dimensions; 0 for an unnamed one."""
        return (0, *((SIZES | dict(sizes)).get(name, 0) for name in self.dimensions[1:]))


BETA = Line(MODEL_DTYPE, ("basis", "output"), offsets="beta_at")


@dataclass(frozen=True, eq=False)
class LeafArrays:
    """The arrays of a compact leaf, or of all leaves of a model (see the module)."""

    landmarks: Annotated[SingleArray, Line(MODEL_DTYPE, ("landmark", "feature"), offsets="landmark_at")]
    """In scaled features, times `leaf_factor`."""
    gamma: Annotated[
        SingleArray, Line(MODEL_DTYPE, ("landmark",), offsets="landmark_at", since=2, values="[0, inf)")
    ]
    """γ of each landmark."""
    pairs: Annotated[NDArray[np.int32], Line(np.int32, ("product", "of_product"), offsets="pair_at")]
    """Numbers of two landmarks of the leaf, of each product."""
    triangle: Annotated[
        SingleArray, Line(MODEL_DTYPE, ("triangle_point", "landmark"), offsets="triangle_at", flat="distance")
    ]
    """Distances of each point of the triangle inequality to each landmark of the leaf."""
    beta: Annotated[SingleArray, BETA]
    """Output weights of landmarks, products and triangle values, in this order."""
    intercept: Annotated[FloatArray, Line(ACC_DTYPE, (LEAF, "output"))]
    bounds: Annotated[FloatArray, Line(ACC_DTYPE, (LEAF, "bound"))]
    """The least and the largest target, which predictions stay within; without values for classification."""
    leaf_factor: Annotated[SingleArray, Line(MODEL_DTYPE, (LEAF, "feature"), since=3, optional=True)]
    """Factor of each scaled feature in the leaf, where landmarks lie in features times it; without values
    where leaves have no factors of their own.
    """


@cache
def table(holder: type) -> Mapping[str, Line]:
    """The lines that a class declares or inherits, by the name of the field."""
    lines: dict[str, Line] = {}
    for name, hint in get_type_hints(holder, include_extras=True).items():
        for line in getattr(hint, "__metadata__", ()):
            if isinstance(line, Line):
                lines[name] = line if line.in_leaf else replace(line, in_leaf=name)
    return lines


def check_arrays(prefix: str, holder: Any, sizes: Mapping[str, int]) -> None:
    """Check the shapes of the arrays of a part, also of those without values, whose dimensions on disk state
    nothing; and that its numbers are finite, and as declared. A dimension without a size has that in its
    first array; an array without any of it may have any other stated size. Raises ValueError.
    """
    stated = SIZES | dict(sizes)
    known = dict(stated)
    for name, line in table(holder.__class__).items():
        array = getattr(holder, name)
        if not isinstance(array, np.ndarray) or (line.optional and not array.size):
            continue
        given = dict(zip((line.flat,) if line.flat else line.dimensions, array.shape, strict=True))
        is_void = any(n == 0 and dimension not in stated for dimension, n in given.items())
        shape = [
            n if is_void and dimension in stated else known.setdefault(dimension, n)
            for dimension, n in given.items()
        ]
        if [*array.shape] != shape:
            raise ValueError(f"array {prefix}{name} has shape {[*array.shape]}, not {shape}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"array {prefix}{name} holds a value that is not finite")
        if line.values and not _is_within(array, line.values):
            raise ValueError(f"array {prefix}{name} holds a value outside {line.values}")
        if line.order and not ORDERS[line.order](array[..., :-1], array[..., 1:]).all():
            raise ValueError(f"array {prefix}{name} holds a value that is not {line.order} the next one")


def _is_within(array: NDArray[Any], interval: str) -> bool:
    low, high = map(float, interval[1:-1].split(","))
    above = array > low if interval[0] == "(" else array >= low
    below = array < high if interval[-1] == ")" else array <= high
    return bool((above & below).all())


def join_leaves(holder: type, leaves: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """The fields of a holder, offsets among them, from leaves in the order of their numbers."""
    joined: dict[str, NDArray[Any]] = {}
    for name, line in table(holder).items():
        parts = [getattr(leaf, line.in_leaf) for leaf in leaves]
        joined[name] = line.joined(parts)
        if line.offsets:
            sizes = [part.size if line.flat else len(part) for part in parts]
            joined[line.offsets] = np.cumsum([0, *sizes]).astype(INDEX_DTYPE)
    return joined


def rowless_leaf(holder: type, sizes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    """The fields of a leaf without landmarks, except those with one row for each leaf."""
    lines = [line for line in table(holder).values() if line.offsets]
    return {line.in_leaf: np.empty(line.no_rows(sizes), line.dtype) for line in lines}


def outlined(
    holder: type, n_leaves: int, rows: Mapping[str, int], sizes: Mapping[str, int]
) -> dict[str, NDArray[Any]]:
    """The fields of a holder whose leaves have as many `rows` of a dimension: offsets, and no numbers."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, line in table(holder).items():
        shape = line.no_rows(sizes)
        if line.offsets:
            arrays[line.offsets] = np.arange(n_leaves + 1, dtype=INDEX_DTYPE) * rows.get(
                line.dimensions[0], 0
            )
        else:
            shape = (n_leaves, *shape[1:])
        arrays[name] = np.zeros(0 if line.flat else shape, line.dtype)
    return arrays


def model_arrays(holder: type, prefix: str = "") -> dict[str, ModelArray]:
    """The arrays of a holder on disk, with a prefix of names; offsets come before what they are of."""
    arrays: dict[str, ModelArray] = {}
    for name, line in table(holder).items():
        if line.offsets and line.offsets not in table(holder):
            arrays[prefix + line.offsets] = ModelArray(INDEX_DTYPE, (EDGE,))
        dimensions = (line.flat,) if line.flat else line.dimensions
        offsets = prefix + line.offsets if line.offsets else ""
        arrays[prefix + name] = ModelArray(line.dtype, dimensions, offsets, line.since)
    return arrays


def held_arrays(holder: object, prefix: str = "") -> dict[str, NDArray[Any]]:
    """The arrays of a holder by their names on disk, without those that are None."""
    named = {name: getattr(holder, name.removeprefix(prefix)) for name in model_arrays(type(holder), prefix)}
    return {name: array for name, array in named.items() if array is not None}


def from_held(holder: type[T], arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> T:
    """The inverse of `held_arrays`, among others. Raises KeyError without one of them."""
    names = [name for name in model_arrays(holder, prefix) if name in arrays]
    try:
        return holder(**{name.removeprefix(prefix): arrays[name] for name in names})
    except TypeError:
        raise KeyError(f"arrays of {prefix or holder.__name__} are missing") from None


KEPT_ROWS = 256  # most stored training rows of a leaf
MODEL_ROWS, MODEL_NUMBERS = 2_048, 2**18  # stored rows of all leaves, about, and numbers in them
FEWEST_ROWS = 8  # least stored rows of each leaf, if it has so many


@dataclass(frozen=True)
class Background:
    """Training rows of each leaf, drawn at random, in scaled columns: what contributions compare with."""

    at: IntArray
    rows: Annotated[
        SingleArray, Line(MODEL_DTYPE, ("background_row", "feature"), offsets="at", in_leaf="own_rows")
    ]

    def of(self, leaf: int) -> SingleArray:
        """The rows of one leaf."""
        return self.rows[int(self.at[leaf]) : int(self.at[leaf + 1])]


def kept_rows(n_leaves: int, n_columns: int) -> int:
    """The number of stored rows of each leaf of a model."""
    most = min(MODEL_ROWS // n_leaves, MODEL_NUMBERS // max(n_leaves * n_columns, 1), KEPT_ROWS)
    return max(most, FEWEST_ROWS)


@dataclass(frozen=True)
class Parts:
    """Names of parts, and the part that each raw feature belongs to."""

    names: tuple[str, ...]
    numbers: tuple[int, ...]

    @property
    def of_feature(self) -> IntArray:
        """int64 (n_features,)."""
        return np.array(self.numbers, INDEX_DTYPE)

    @staticmethod
    def of_features(names: Sequence[str] | None, n_features: int) -> "Parts":
        """A part for each raw feature."""
        called = [f"feature {j}" for j in range(n_features)] if names is None else [str(n) for n in names]
        return Parts(tuple(called), tuple(range(n_features)))


@dataclass(frozen=True, eq=False)
class OutputWeights:
    """Weights (basis, output) of each leaf; NumPy sees one array (n_basis, n_outputs) of all of them."""

    n_outputs: int
    at: IntArray
    """int64 (n_leaves + 1,), offsets of basis functions."""
    output_at: Annotated[IntArray, Line(INDEX_DTYPE, (EDGE,), since=7)]
    """int64 (n_leaves + 1,), offsets into `outputs`."""
    outputs: Annotated[NDArray[np.int32], Line(LEAF_DTYPE, ("present_output",), offsets="output_at", since=7)]
    """The outputs that a leaf has weights for, ascending."""
    weights: Annotated[SingleArray, Line(MODEL_DTYPE, ("weight",), since=7)]
    """For each leaf the weights of its basis functions for its outputs, row by row."""

    @classmethod
    def from_dense(cls, beta: SingleArray, at: IntArray) -> "OutputWeights":
        """Weights (n_basis, n_outputs), of which those are left out that are 0 in a whole leaf. An outline of
        a model has rows in `at` and none in `beta`: each of its leaves then counts all outputs.
        """
        n_outputs = beta.shape[1]
        outputs, weights = [np.empty(0, LEAF_DTYPE)], [np.empty(0, MODEL_DTYPE)]
        if len(beta) < at[-1]:
            return cls(
                n_outputs, at, np.arange(len(at), dtype=INDEX_DTYPE) * n_outputs, outputs[0], weights[0]
            )
        for first, last in pairwise(at.tolist()):
            rows = np.ascontiguousarray(beta[first:last], MODEL_DTYPE)
            used = np.flatnonzero(rows.view(np.uint32).any(axis=0))  # keeps −0
            outputs.append(used.astype(LEAF_DTYPE))
            weights.append(rows[:, used].ravel())
        output_at = np.cumsum([0, *map(len, outputs[1:])]).astype(INDEX_DTYPE)
        return cls(n_outputs, at, output_at, np.concatenate(outputs), np.concatenate(weights))

    @cached_property
    def weight_at(self) -> IntArray:
        """int64 (n_leaves + 1,), offsets into `weights`."""
        return np.cumsum([0, *(np.diff(self.at) * self.n_present)]).astype(INDEX_DTYPE)

    @property
    def n_present(self) -> IntArray:
        """The number of outputs with weights of each leaf."""
        return np.diff(self.output_at)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.at[-1]), self.n_outputs

    @property
    def nbytes(self) -> int:
        return self.output_at.nbytes + self.outputs.nbytes + self.weights.nbytes

    def __len__(self) -> int:
        return self.shape[0]

    def of(self, leaf: int) -> SingleArray:
        """The weights (basis, n_outputs) of a leaf, with those that are 0."""
        outputs, weights = self.present(leaf)
        beta = np.zeros((len(weights), self.n_outputs), MODEL_DTYPE)
        beta[:, outputs] = weights
        return beta

    def present(self, leaf: int) -> tuple[NDArray[np.int32], SingleArray]:
        """The outputs that a leaf has weights for, and these weights (basis, outputs)."""
        outputs = self.outputs[self.output_at[leaf] : self.output_at[leaf + 1]]
        weights = self.weights[self.weight_at[leaf] : self.weight_at[leaf + 1]]
        return outputs, weights.reshape(int(self.at[leaf + 1] - self.at[leaf]), len(outputs))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        parts = [np.empty((0, self.n_outputs), MODEL_DTYPE), *map(self.of, range(len(self.at) - 1))]
        return np.concatenate(parts).astype(dtype or MODEL_DTYPE, copy=False)

    def check(self, n_leaves: int) -> None:
        """Raise ValueError where the arrays do not fit together."""
        for name, at in (("beta_at", self.at), ("output_at", self.output_at)):
            if not are_offsets(at, n_leaves):
                raise ValueError(f"array {name} does not ascend from 0 with an edge for each leaf")
        outputs = self.outputs
        same_leaf = np.diff(np.searchsorted(self.output_at, np.arange(len(outputs)), side="right")) == 0
        if ((outputs < 0) | (outputs >= self.n_outputs)).any() or (np.diff(outputs)[same_leaf] <= 0).any():
            raise ValueError(
                f"array outputs does not name ascending outputs of {self.n_outputs} in each leaf"
            )
        # As floats: integers of damaged offsets may overflow.
        if float((np.diff(self.at).astype(float) * self.n_present).sum()) != len(self.weights):
            raise ValueError("array weights does not have one for each basis function and output of a leaf")
