"""Leaf models: they give the decision values of a leaf in place of the compact model of the paper.

The default, `compact`, is the leaf arrays of a model. Others are files of dcpred_tasks.machines, and of
dcpred_tasks.machine_training, imported when a model or a setting names them. A basis is one, too, with a
linear model on its functions.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, RealArray
from dcpred_tasks.model.basis import Basis
from dcpred_tasks.model.kernel_families import KERNELS, SHAPE, STORED
from dcpred_tasks.model.kernels import Kernel, RowArray

LOCAL = 10**9  # rows of a leaf model that only local_rows limits
BOTH, CLASSES = ("classification", "regression"), ("classification",)
COMPACT, LANDMARKS = "compact", "landmarks"  # the default leaf model, and the default basis
HEADER_BYTES = 8
LONGEST_HEADER = 2**20
DTYPES = ("float64", "float32", "int64", "int32", "uint8", "bool")
SINGLE = "single_precision"  # an array without numbers, where single precision is enough
SINGLE_ROWS = 500  # most training rows for the check of single precision
# Largest negligible error: in standard deviations of decision values, of single decision values, and the
# share of rows that are computed again.
SINGLE_ERROR, SINGLE_RELATIVE, SINGLE_AGAIN = 1e-3, 1e-5, 0.05


class Machine(Protocol):
    """A fitted predictor of the rows of one leaf, or of all rows. Tests: tests/support/machines.py,
    `check_machine`.

    Its module in machines has the function `of_arrays`, which rebuilds it from its `arrays` and raises
    ValueError for inconsistent ones; that in machine_training has `fit(rows, kernel, settings, seed)`, where
    settings.other_machine is the name and settings.machine_size the `size`.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """(n_features, n_outputs)."""

    def decision(self, X: RowArray) -> FloatArray:
        """Decision values of scaled rows (n, n_features), read-only: float64 (n, n_outputs). Rows are
        independent.

        Rows in double precision are computed in it, by the definition. Rows in single precision are computed
        in that; a row whose value rounding would decide, at a border of the leaf model, gets NaN, and must be
        computed again in double precision.
        """

    def sizes(self, X: RowArray) -> FloatArray:
        """The size of the sums for scaled rows, (n,), which errors of single precision are relative to."""

    @property
    def multiplications(self) -> float:
        """Multiplications for a row, in the mean over its training rows; a linear model has
        n_features · n_outputs. A transcendental function counts as 10.
        """

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that `of_arrays` needs, of the dtypes of DTYPES."""


class SumsOfRows(Protocol):
    """Sums over functions of scaled rows, from RowSums of dcpred_tasks.machines."""

    def __call__(self, X: RowArray) -> FloatArray: ...
    def sizes(self, X: RowArray) -> FloatArray: ...


class DrawnBasis(Basis, Protocol):
    """A basis drawn at random for a kernel, or built from rows. Its module has the function
    `basis_of_arrays`, and `fit_basis(name, X, kernel, size, rng)` where it is drawn at random.
    """

    @property
    def n_features(self) -> int:
        """Features of a scaled row."""

    def __call__(self, X: RowArray) -> RealArray:
        """c̄ of scaled rows (n, n_features), in their dtype: (n, size)."""

    def sums(self, beta: FloatArray) -> SumsOfRows:
        """β · c̄(x) for β (size, n_outputs), as rows are predicted with."""

    @property
    def multiplications(self) -> float:
        """Multiplications for the functions of a row; a transcendental function counts as 10."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that `basis_of_arrays` needs."""


@dataclass(frozen=True)
class Known:
    """A leaf model or basis that settings and models may name; its file in dcpred_tasks.machines has this
    name, or that of `module`.

    meaning  a sentence with its source
    counted  what the setting `size` counts; empty without size
    size     default of `size`
    kernels  supported kernels
    tasks    supported tasks
    tolerance    default of `tolerance`; 0 without
    tolerated    the meaning of `tolerance`, in a word
    most_rows    most training rows, beside local_rows: LOCAL for no other limit; 0: all rows
    predicts_as  the leaf model that it is stored as, if another
    second_hand  whether it was written from descriptions by others, without the paper
    """

    meaning: str
    counted: str = ""
    size: int = 0
    kernels: tuple[str, ...] = ("rbf",)
    tasks: tuple[str, ...] = BOTH
    module: str = ""
    predicts_as: str = ""
    most_rows: int = 0
    tolerance: float = 0.0
    tolerated: str = ""
    second_hand: bool = False

    @property
    def words(self) -> str:
        """The meaning, with a remark on its citation."""
        return self.meaning + (
            " Written from descriptions by others, not from the paper." if self.second_hand else ""
        )

    def most_trained_on(self, n_rows: int, local_rows: int) -> int:
        """How many of the rows of a leaf it is trained on."""
        return min(n_rows, local_rows, self.most_rows) if self.most_rows else n_rows


BASES = {
    "nystrom": Known(
        "Kernel values of rows drawn at random, whitened (Williams and Seeger 2001).",
        "landmarks",
        64,
        KERNELS,
    ),
    "kmeans_nystrom": Known(
        "Kernel values of k-means centres, whitened (Zhang, Tsang and Kwok 2008).",
        "landmarks",
        64,
        KERNELS,
        module="nystrom",
    ),
    "fourier": Known(
        "Random Fourier features (Rahimi and Recht 2007).", "features", 256, ("rbf", "laplacian")
    ),
    "fastfood": Known(
        "Fourier features of products with S H G Π H B (Le, Sarlós and Smola 2013).", "features", 1024
    ),
    "tensor_sketch": Known(
        "Count sketches of the tensor product, by Fourier transforms (Pham and Pagh 2013).",
        "features",
        512,
        ("polynomial",),
    ),
    "maclaurin": Known("Random products of signs (Kar and Karnick 2012).", "features", 512, ("polynomial",)),
    "maclaurin_h01": Known(
        "The same with constant and linear part as they are, H0/1.",
        "random features beside those parts",
        512,
        ("polynomial",),
        module="maclaurin",
    ),
}
MACHINES = {
    "exact": Known(
        "The exact kernel SVM or ridge regression; in several leaves DC-SVM's early prediction (Hsieh 2014).",
        kernels=KERNELS,
        most_rows=LOCAL,
    ),
    "adapt_svm": Known(
        "Support vectors in groups, exactly where their variances ask for it (Cossalter et al. 2011).",
        "groups",
        64,
        tasks=CLASSES,
        most_rows=LOCAL,
        tolerance=0.001,
        tolerated="τ",
    ),
    "group_svm": Known(
        "Support vectors in groups, by their means alone (Cossalter et al. 2011).",
        "groups",
        64,
        tasks=CLASSES,
        module="adapt_svm",
        predicts_as="exact",
        most_rows=LOCAL,
    ),
    "reduced_set": Known(
        "Vectors found one by one that stand for all support vectors (Schölkopf et al. 1998).",
        "vectors",
        32,
        predicts_as="exact",
        most_rows=LOCAL,
        second_hand=True,
    ),
    "aesvm": Known(
        "An SVM of the extreme points of subsets, with weights (Nandan, Khargonekar and Talathi 2014).",
        "extreme points of 100 rows",
        50,
        tasks=CLASSES,
        predicts_as="exact",
        second_hand=True,
    ),
    "ldkl": Known(
        "Local deep kernels: linear machines at the nodes of a learned tree (Jose et al. 2013).",
        "leaves of its tree",
        64,
        tasks=CLASSES,
        second_hand=True,
    ),
    "lmkl": Known(
        "Localised multiple kernels: kernels weighted by a gate that sees the row (Gönen and Alpaydın 2008);"
        " trained on 2,000 rows of a leaf at most.",
        tasks=CLASSES,
        most_rows=2_000,
        second_hand=True,
    ),
    "ball_tree": Known(
        "The exact machine by the cells of a ball tree, as far as the class is not sure (Liu, Moore and Gray"
        " 2003).",
        "support vectors of a cell",
        32,
        tasks=CLASSES,
        most_rows=LOCAL,
        second_hand=True,
    ),
    "support_tree": Known(
        "The exact machine by cells of its support vectors, as far as a bound on the error asks (cf. Ukkonen"
        " 2010).",
        "support vectors of a cell",
        32,
        most_rows=LOCAL,
        tolerance=0.02,
        tolerated="error",
        second_hand=True,
    ),
}


def known(name: str) -> Known:
    """The line of the table for a leaf model or basis. Raises ValueError for an unknown name."""
    found = (BASES | MACHINES).get(name)
    if found is None:
        raise ValueError(f"there is no machine {name[:40]!r}")
    return found


def module_of(name: str) -> Any:
    """The module of a leaf model, or that of linear models for a basis."""
    return import_module(f"dcpred_tasks.machines.{known(name).predicts_as or _file_of(name)}")


def training_of(name: str) -> Any:
    """The module that trains it."""
    return import_module(f"dcpred_tasks.machine_training.{_file_of(name)}")


def _file_of(name: str) -> str:
    return "linear" if name in BASES else known(name).module or name


def basis_module(name: str) -> Any:
    return import_module(f"dcpred_tasks.machines.{BASES[name].module or name}")


def machine_of(name: str, packed: NDArray[np.uint8], shape: tuple[int, int]) -> Machine:
    """The leaf model of packed arrays, of (n_features, n_outputs). Raises ValueError for invalid ones."""
    machine: Machine = module_of(name).of_arrays(unpacked(packed))
    if machine.shape != shape:
        raise ValueError(f"a machine has {machine.shape} features and outputs, where its model has {shape}")
    return machine


def stored(machine: Machine, X: RowArray) -> NDArray[np.uint8]:
    """The packed arrays of a leaf model that was trained on scaled rows X, with a flag whether single
    precision is enough.
    """
    arrays = machine.arrays()
    some = X[:: max(-(-len(X) // SINGLE_ROWS), 1)]
    true, found = machine.decision(some.astype(ACC_DTYPE)), machine.decision(some.astype(MODEL_DTYPE))
    again = ~np.isfinite(found).all(axis=1)
    off = np.abs(found - true)[~again]
    near = off <= SINGLE_ERROR * true.std(axis=0) + SINGLE_RELATIVE * np.abs(true[~again])
    enough = near.all() and again.mean() <= SINGLE_AGAIN
    return packed(arrays | {SINGLE: np.empty(0, np.uint8)} if enough else arrays)


def needs_double(data: NDArray[np.uint8]) -> bool:
    """Whether packed arrays lack the flag that single precision is enough."""
    return SINGLE not in unpacked(data)


# -- arrays as bytes -----------------------------------------------------------------------------------------


def packed(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """Named arrays in one array of bytes: the length of a header, a header in JSON with name, dtype and shape
    of each, and their little-endian C-ordered bytes. The idea is that of safetensors.
    """
    told = [[name, a.dtype.name, list(a.shape)] for name, a in arrays.items()]
    header = json.dumps(told, separators=(",", ":")).encode()
    parts = [len(header).to_bytes(HEADER_BYTES, "little"), header]
    parts += [np.ascontiguousarray(a, a.dtype.newbyteorder("<")).tobytes() for a in arrays.values()]
    return np.frombuffer(b"".join(parts), np.uint8)


def unpacked(data: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """The inverse of `packed`, as views. Raises ValueError for anything else."""
    raw = np.ascontiguousarray(data).tobytes()
    length = int.from_bytes(raw[:HEADER_BYTES], "little")
    if length > min(LONGEST_HEADER, len(raw)):
        raise ValueError("packed arrays have no header")
    try:
        told = json.loads(raw[HEADER_BYTES : HEADER_BYTES + length])
    except RecursionError:
        raise ValueError("packed arrays have a header that is nested too deep") from None
    arrays: dict[str, NDArray[Any]] = {}
    at = HEADER_BYTES + length
    try:
        for name, dtype, shape in told:
            if dtype not in DTYPES or not all(isinstance(n, int) and 0 <= n <= len(raw) for n in shape):
                raise ValueError("packed arrays have a header that is none")
            count = int(np.prod(shape, dtype=object))
            arrays[str(name)] = np.frombuffer(raw, np.dtype(dtype).newbyteorder("<"), count, at).reshape(
                shape
            )
            at += arrays[str(name)].nbytes
    except (TypeError, OverflowError):
        raise ValueError("packed arrays have a header that is none") from None
    if at != len(raw):
        raise ValueError("packed arrays have bytes left over")
    return arrays


def taken(arrays: Mapping[str, NDArray[Any]], **wanted: tuple[str, int]) -> list[NDArray[Any]]:
    """Arrays by name, each of (dtype, number of dimensions), in this order. Raises ValueError where one is
    missing, has another form, or holds a value that is not finite.
    """
    found = []
    for name, (dtype, ndim) in wanted.items():
        value = arrays.get(name)
        if value is None or value.dtype.name != dtype or value.ndim != ndim:
            raise ValueError(f"array {name} of a machine is not {dtype} of {ndim} dimensions")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise ValueError(f"array {name} of a machine is not finite")
        found.append(value)
    return found


def kernel_arrays(kernel: Kernel) -> dict[str, NDArray[Any]]:
    """A kernel as arrays: its name, and its numbers."""
    return {"kernel": text_array(kernel.name), "kernel_numbers": stored_numbers([kernel])[0]}


def kernel_of(arrays: Mapping[str, NDArray[Any]]) -> Kernel:
    """The kernel of kernel_arrays. Raises ValueError."""
    raw, numbers = taken(arrays, kernel=("uint8", 1), kernel_numbers=("float64", 1))
    name = text_of(raw)
    if name not in KERNELS:
        raise ValueError("the kernel of a machine is none")
    return kernel_from_numbers(name, numbers)


def stored_numbers(kernels: Sequence[Kernel]) -> FloatArray:
    """γ and the further numbers of kernels, float64 (n_kernels, 3 or more), without trailing defaults."""
    n_stored = max(1 + SHAPE.index(name) for kernel in kernels for name in kernel.as_dict() if name in SHAPE)
    return np.array([[kernel.gamma, *kernel.shape[:n_stored]] for kernel in kernels], np.float64)


def kernel_from_numbers(name: str, numbers: FloatArray) -> Kernel:
    """The kernel of a row of stored_numbers. Raises ValueError."""
    if not len(STORED) - 1 <= len(numbers) <= 1 + len(SHAPE) or numbers[0] <= 0 or not 1 <= numbers[1] <= 10:
        raise ValueError("the numbers of a kernel of a machine are none")
    return Kernel.from_numbers(name, numbers.tolist())


def text_array(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)


def text_of(array: NDArray[np.uint8]) -> str:
    return array.tobytes().decode(errors="replace")
