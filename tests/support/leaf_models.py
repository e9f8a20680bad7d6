"""What every leaf model and every drawn basis keeps."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_compare.baselines import LEAF_MODELS
from dcpred_compare.baselines.linear import basis_from_arrays, fit_basis
from dcpred_tasks.model.compact_model import LeafModels, Model
from dcpred_tasks.model.kernels import KERNELS, Kernel
from dcpred_tasks.model.leaf_model import EXACT, LeafModel, read_leaf_model, stored
from dcpred_tasks.model.packed_arrays import packed
from dcpred_tasks.training.settings import make_settings
from dcpred_tasks.training.solvers import LeafRows, fit_exact
from support.hostile import spoil_array

EVERY = (*LEAF_MODELS, EXACT)
BASES = {name: kind for name, kind in LEAF_MODELS.items() if kind.fit_basis}
# sizes that suit rows_of
SIZES = dict.fromkeys(("nystrom", "kmeans_nystrom", "adapt_svm", "group_svm", "ldkl"), 64)
SIZES |= dict.fromkeys(("reduced_set", "ball_tree", "support_tree"), 32)
SIZES |= {"aesvm": 50, "fourier": 256, "fastfood": 1024}
SIZES |= dict.fromkeys(("tensor_sketch", "maclaurin", "maclaurin_h01"), 512)
MUTATIONS = 150
TENTH_OF_TOLERANCE = 1e-6  # of verify_block, as the engine is tested


def rows_of(task: str, n_classes: int = 2, n: int = 240, d: int = 5, seed: int = 0) -> LeafRows:
    """Rows of a leaf whose target is a smooth function of two features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    value = np.sin(2 * X[:, 0].astype(float)) + X[:, 1]
    if task == "regression":
        return LeafRows(X, value, np.ones(n), np.zeros(n, bool), 1, task)
    classes = np.searchsorted(np.quantile(value, np.linspace(0, 1, n_classes + 1)[1:-1]), value)
    return LeafRows(X, classes, np.ones(n), np.zeros(n, bool), 1 if n_classes == 2 else n_classes, task)


def kernels_of(name: str) -> tuple[str, ...]:
    """The kernels that a leaf model stands for."""
    return KERNELS if name == EXACT else (LEAF_MODELS[name].kernel,)


def tasks_of(name: str) -> tuple[str, ...]:
    return LEAF_MODELS[name].tasks if name in LEAF_MODELS else ("classification", "regression")


def fit_model(
    name: str, rows: LeafRows, kernel: Kernel, *, size: int = 0, tolerance: float = 0.0, **values: object
) -> Any:
    """A leaf model of these rows; its size, its tolerance, and values of settings."""
    settings = make_settings({"task": rows.task, **values})
    if name == EXACT:
        return fit_exact(rows, kernel, settings)
    kind = LEAF_MODELS[name]
    size, tolerance = size or SIZES.get(name, 0), tolerance or kind.tolerances[0]
    sized = replace(kind, size=size, tolerance=tolerance)
    return sized.fit(sized, rows, kernel, settings, 0)


def fitted(name: str, task: str, kernel: str, n_classes: int = 2, **more: Any) -> tuple[LeafModel, LeafRows]:
    rows = rows_of(task, n_classes)
    return fit_model(name, rows, Kernel(kernel, 0.3, 2, 1.0), **more), rows


def with_baseline(model: Model, name: str, X: NDArray[Any], target: NDArray[Any], **more: Any) -> Model:
    """A model whose exact leaf models are replaced by baselines, fitted to the rows of each leaf, as version
    0.1.0 trained them.
    """
    scaled = model.scaling(X)
    leaf, parts = model.tree.descend(scaled), []
    kernel = Kernel(kernels_of(name)[0], model.local_kernel.gamma, 2, 1.0)
    for number in range(model.n_leaves):
        own = leaf == number
        parts.append(np.empty(0, np.uint8))
        if model.leaf_model(number) is not None:
            none = np.zeros(int(own.sum()), bool)
            rows = LeafRows(scaled[own], target[own], np.ones(len(none)), none, model.n_outputs, model.task)
            parts[-1] = stored(fit_model(name, rows, kernel, **more), rows.X)
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    return replace(model, leaf_models=LeafModels(name, ends, np.concatenate(parts)))


def share_explained(model: LeafModel, rows: LeafRows) -> float:
    """Of its training rows: R², or the share of classes that are right beyond what guessing gives."""
    decision = model.predict(rows.X.astype(np.float64))
    if rows.task == "regression":
        off = ((decision[:, 0] - rows.target) ** 2).mean()
        return float(1 - off / np.var(rows.target))
    found = decision[:, 0] > 0 if rows.n_outputs == 1 else decision.argmax(axis=1)
    guess = 1 / max(rows.n_outputs, 2)
    return float(((found == rows.target).mean() - guess) / (1 - guess))


def check_leaf_model(name: str, task: str, kernel: str, n_classes: int = 2, **more: Any) -> None:
    """A model learns; its decision has shape and dtype, and is that of each row alone; single precision
    gives it, too; it says what a row costs; and what it stores is the model, or is refused.
    """
    assert task in tasks_of(name)
    model, rows = fitted(name, task, kernel, n_classes, **more)
    X = rows.X.astype(np.float64)
    before = X.copy()
    decision = model.predict(X)
    np.testing.assert_array_equal(X, before)
    assert decision.shape == (len(X), rows.n_outputs)
    assert decision.dtype == np.float64
    assert np.isfinite(decision).all()
    assert share_explained(model, rows) > 0.5
    near = {"rtol": 1e-6, "atol": 1e-6 * max(float(np.abs(decision).max()), 1.0)}
    np.testing.assert_allclose(model.predict(X[::-1])[::-1], decision, **near)
    np.testing.assert_allclose(model.predict(X[7:8]), decision[7:8], **near)
    check_single_precision(model, rows.X)
    assert model.cost > 0
    assert model.shape == (X.shape[1], rows.n_outputs)
    again, _ = fitted(name, task, kernel, n_classes, **more)
    np.testing.assert_array_equal(again.predict(X), decision)
    arrays = model.arrays()
    stored = read_leaf_model(name, packed(arrays), model.shape)
    for dtype in (np.float64, np.float32):
        np.testing.assert_array_equal(stored.predict(X.astype(dtype)), model.predict(X.astype(dtype)))
    _check_refuses(name, arrays, rows.X[:20], rows.n_outputs)


def check_single_precision(model: LeafModel, X: NDArray[np.float32]) -> None:
    """Decision values of rows of single precision are those of double precision within a tenth of what
    verification allows, whatever the batch, or NaN for a few rows, which are asked for again; the same rows
    give the same bits.
    """
    far = 20 * X[:50]
    before = X.copy()
    for rows, others in ((X, X[::-1]), (far, far[:7])):
        found, true = model.predict(rows), model.predict(rows.astype(np.float64))
        assert found.dtype == np.float64
        known_rows = np.isfinite(found).all(axis=1)
        assert known_rows.mean() > 0.95
        off, size = np.abs(found - true)[known_rows], model.sizes(rows)[known_rows]
        size += np.abs(true[known_rows]).max(axis=1)
        assert (off <= TENTH_OF_TOLERANCE * size[:, None]).all(), (off / size[:, None]).max()
        np.testing.assert_array_equal(model.predict(rows), found)
        again = model.predict(others)
        both = np.isfinite(again).all(axis=1)
        other_true = model.predict(others.astype(np.float64))[both]
        other_size = model.sizes(others)[both] + np.abs(other_true).max(axis=1)
        assert (np.abs(again[both] - other_true) <= TENTH_OF_TOLERANCE * other_size[:, None]).all()
    np.testing.assert_array_equal(X, before)
    for dtype in (np.float32, np.float64):
        assert model.predict(X[:0].astype(dtype)).shape == (0, model.shape[1])
    assert model.sizes(X[:0]).shape == (0,)


def _check_refuses(name: str, arrays: dict[str, NDArray[Any]], X: NDArray[np.float32], k: int) -> None:
    """Arrays that are missing, of other shape, or of other values are refused by ValueError, or harmless."""
    for missing in arrays:
        _made(name, {key: value for key, value in arrays.items() if key != missing}, X, k)
    rng = random.Random(0)
    for _ in range(MUTATIONS):
        key = rng.choice([key for key, value in sorted(arrays.items()) if value.dtype != np.uint8])
        _made(name, arrays | {key: spoil_array(arrays[key], rng)}, X, k)


def _made(name: str, arrays: dict[str, NDArray[Any]], X: NDArray[np.float32], k: int) -> None:
    try:
        model = read_leaf_model(name, packed(arrays), (X.shape[1], k))
    except ValueError:
        return
    with np.errstate(all="ignore"):
        assert len(model.predict(X)) == len(X)


def check_drawn_basis(name: str, kernel: Kernel, size: int) -> None:
    """Its shape and dtype; rows do not see each other, and are not written; and it is stored whole."""
    rows = rows_of("regression").X
    basis = fit_basis(name, rows, kernel, size, np.random.default_rng(0))
    X = rows.astype(np.float64)
    values = basis(X)
    assert values.shape == (len(X), basis.size)
    assert values.dtype == np.float64
    assert np.isfinite(values).all()
    np.testing.assert_array_equal(X, rows)
    assert basis(X[:0]).shape == (0, basis.size)
    np.testing.assert_allclose(basis(X[::-1])[::-1], values, rtol=1e-9, atol=1e-12)
    assert basis.cost > 0
    assert basis.n_features == rows.shape[1]
    stored = basis_from_arrays(name, basis.arrays())
    np.testing.assert_array_equal(stored(X), basis(X))
    beta = np.random.default_rng(1).normal(size=(basis.size, 2))
    sums = basis.sums(beta)
    np.testing.assert_allclose(sums(X), basis(X) @ beta, rtol=1e-9, atol=1e-9)
    off = np.abs(sums(rows) - sums(X)).max(axis=1)
    assert (off <= TENTH_OF_TOLERANCE * sums.sizes(rows)).all()


def kernel_error(name: str, kernel: Kernel, size: int, X: NDArray[np.float32], seed: int = 0) -> float:
    """‖Z Zᵀ − K‖ / ‖K‖ (Frobenius) of the functions of a basis."""
    basis = fit_basis(name, X, kernel, size, np.random.default_rng(seed))
    Z, K = basis(X.astype(np.float64)), kernel(X, X)
    return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))
