"""What every machine and every drawn basis of dcpred_tasks.machines keeps."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.machine_training.linear import fit_basis
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.machine import (
    BASES,
    Machine,
    basis_module,
    known,
    machine_of,
    packed,
    training_of,
)
from dcpred_tasks.training.local_machine import LeafRows
from dcpred_tasks.training.settings import Settings, make_settings
from support.bases import check_basis
from support.hostile import spoil_array

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


def settings_of(name: str, task: str, kernel: str, **more: object) -> Settings:
    which = "basis" if name in BASES else "machine"
    return make_settings({which: name, "task": task, "kernel": kernel, "gamma": 0.3, **more})


def fitted(name: str, task: str, kernel: str, n_classes: int = 2, **more: object) -> tuple[Machine, LeafRows]:
    rows = rows_of(task, n_classes)
    settings = settings_of(name, task, kernel, **more)
    own = replace(Kernel.from_settings(settings, 0.3), name=kernel)
    machine: Machine = training_of(name).fit(rows, own, settings, 0)
    return machine, rows


def share_explained(machine: Machine, rows: LeafRows) -> float:
    """Of its training rows: R², or the share of classes that are right beyond what guessing gives."""
    decision = machine.decision(rows.X.astype(np.float64))
    if rows.task == "regression":
        off = ((decision[:, 0] - rows.target) ** 2).mean()
        return float(1 - off / np.var(rows.target))
    found = decision[:, 0] > 0 if rows.n_outputs == 1 else decision.argmax(axis=1)
    guess = 1 / max(rows.n_outputs, 2)
    return float(((found == rows.target).mean() - guess) / (1 - guess))


def check_machine(name: str, task: str, kernel: str, n_classes: int = 2, **more: object) -> None:
    """A machine learns; its decision has shape and dtype, and is that of each row alone; single precision
    gives it, too; it says what a row costs; and what it stores is the machine, or is refused.
    """
    assert task in known(name).tasks
    machine, rows = fitted(name, task, kernel, n_classes, **more)
    X = rows.X.astype(np.float64)
    before = X.copy()
    decision = machine.decision(X)
    np.testing.assert_array_equal(X, before)
    assert decision.shape == (len(X), rows.n_outputs)
    assert decision.dtype == np.float64
    assert np.isfinite(decision).all()
    assert share_explained(machine, rows) > 0.5
    near = {"rtol": 1e-6, "atol": 1e-6 * max(float(np.abs(decision).max()), 1.0)}
    np.testing.assert_allclose(machine.decision(X[::-1])[::-1], decision, **near)
    np.testing.assert_allclose(machine.decision(X[7:8]), decision[7:8], **near)
    check_single_precision(machine, rows.X)
    assert machine.multiplications > 0
    assert machine.shape == (X.shape[1], rows.n_outputs)
    again, _ = fitted(name, task, kernel, n_classes, **more)
    np.testing.assert_array_equal(again.decision(X), decision)
    arrays = machine.arrays()
    stored = machine_of(name, packed(arrays), machine.shape)
    for dtype in (np.float64, np.float32):
        np.testing.assert_array_equal(stored.decision(X.astype(dtype)), machine.decision(X.astype(dtype)))
    _check_refuses(name, arrays, rows.X[:20], rows.n_outputs)


def check_single_precision(machine: Machine, X: NDArray[np.float32]) -> None:
    """Decision values of rows of single precision are those of double precision within a tenth of what
    verification allows, whatever the batch, or NaN for a few rows, which are asked for again; the same rows
    give the same bits.
    """
    far = 20 * X[:50]
    before = X.copy()
    for rows, others in ((X, X[::-1]), (far, far[:7])):
        found, true = machine.decision(rows), machine.decision(rows.astype(np.float64))
        assert found.dtype == np.float64
        known_rows = np.isfinite(found).all(axis=1)
        assert known_rows.mean() > 0.95
        off, size = np.abs(found - true)[known_rows], machine.sizes(rows)[known_rows]
        size += np.abs(true[known_rows]).max(axis=1)
        assert (off <= TENTH_OF_TOLERANCE * size[:, None]).all(), (off / size[:, None]).max()
        np.testing.assert_array_equal(machine.decision(rows), found)
        again = machine.decision(others)
        both = np.isfinite(again).all(axis=1)
        other_true = machine.decision(others.astype(np.float64))[both]
        other_size = machine.sizes(others)[both] + np.abs(other_true).max(axis=1)
        assert (np.abs(again[both] - other_true) <= TENTH_OF_TOLERANCE * other_size[:, None]).all()
    np.testing.assert_array_equal(X, before)
    for dtype in (np.float32, np.float64):
        assert machine.decision(X[:0].astype(dtype)).shape == (0, machine.shape[1])
    assert machine.sizes(X[:0]).shape == (0,)


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
        machine = machine_of(name, packed(arrays), (X.shape[1], k))
    except ValueError:
        return
    with np.errstate(all="ignore"):
        assert len(machine.decision(X)) == len(X)


def check_drawn_basis(name: str, kernel: Kernel, size: int) -> None:
    """As check_basis, and that it is stored whole."""
    rows = rows_of("regression").X
    basis = fit_basis(name, rows, kernel, size, np.random.default_rng(0))
    X = rows.astype(np.float64)
    check_basis(basis, X)
    assert basis.multiplications > 0
    assert basis.n_features == rows.shape[1]
    stored = basis_module(name).basis_of_arrays(basis.arrays())
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
