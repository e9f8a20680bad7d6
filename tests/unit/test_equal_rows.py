"""Copies of rows are held out together; rows that are equal by chance are not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

import dcpred
from dcpred import DCPredClassifier, DCPredRegressor
from dcpred.datasets.equal_rows import Copies, copied_share
from dcpred.datasets.split_rules import folds_of_data, with_equal_rows
from dcpred_tasks.training.folds import Folds

Rows = tuple[NDArray[Any], NDArray[Any]]


def noisy(n: int, seed: int, columns: int = 3) -> Rows:
    """Rows of which the first column has a weak signal."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, columns))
    return X, (X[:, 0] + 2 * rng.normal(size=n) > 0).astype(np.int64)


def copied(rows: Rows, times: Any, seed: int = 0) -> Rows:
    X, y = (np.repeat(each, times, axis=0) for each in rows)
    order = np.random.default_rng(seed).permutation(len(y))
    return X[order], y[order]


def few_values(n: int, seed: int, noise: float) -> Rows:
    """Rows that are equal by chance: three columns of integers; the second follows the first."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 30, n)
    X = np.stack([a, a // 3 + rng.integers(0, 4, n), rng.integers(0, 2, n)], axis=1).astype(float)
    return X, (X.sum(axis=1) + rng.normal(0, noise, n) > 22).astype(np.int64)


@pytest.mark.parametrize("seed", range(3))
def test_copies_are_found(seed: int) -> None:
    X, y = copied(noisy(300, seed), 10)
    assert copied_share([(X, y)], 1.0) == 1.0
    assert copied_share([(X[:500], y[:500]), (X[500:], y[500:])], 1.0) == 1.0
    rng = np.random.default_rng(seed)
    amount = X[:, 0] + np.repeat(rng.normal(size=300), 10)[np.argsort(np.argsort(X[:, 0]))]
    assert copied_share([(X, amount)], 1.0) == 1.0
    rare = np.where(np.arange(1_000) < 20, 30, 1)  # A rare class was copied to balance classes.
    X, _ = noisy(1_000, seed)
    assert copied_share([copied((X, (np.arange(1_000) < 20).astype(np.int64)), rare)], 1.0) == 1.0
    cities = rng.integers(0, 6, (400, 8)).astype(float)
    assert copied_share([copied((cities, rng.integers(0, 2, 400)), 3)], 1.0) == 1.0
    some = np.where(rng.random(300) < 0.3, 4, 1)
    assert 0.4 < copied_share([copied(noisy(300, seed), some)], 1.0) < 0.8


def test_copies_are_found_in_a_sample() -> None:
    X, y = copied(noisy(20_000, 0), 10)
    found = Copies()
    found.add(X[:20_000], y[:20_000])  # A tenth of the rows.
    assert found.share(0.1) == 1.0
    X, y = noisy(20_000, 0)
    assert copied_share([(X, y)], 0.1) == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_chance_makes_equal_are_no_copies(seed: int) -> None:
    grid = np.stack(np.meshgrid(*[np.arange(4.0)] * 5), axis=-1).reshape(-1, 5)
    rng = np.random.default_rng(seed)
    for rows in (
        noisy(2_000, seed),
        few_values(2_000, seed, noise=6.0),
        few_values(2_000, seed, noise=0.0),
        (grid, (grid.sum(axis=1) > 7).astype(np.int64)),
        (grid[rng.integers(0, len(grid), 3_000)], rng.integers(0, 2, 3_000)),
        (np.ones((100, 2)), np.ones(100, np.int64)),
        (rng.integers(0, 9, (500, 1)).astype(float), rng.integers(0, 2, 500)),
        (np.empty((0, 2)), np.empty(0, np.int64)),
    ):
        assert copied_share([rows], 1.0) == 0.0


def stored(rows: Rows, path: Path) -> str:
    group = zarr.create_group(path)
    group.create_array("X", data=rows[0], chunks=(100, rows[0].shape[1]))
    group.create_array("y", data=rows[1], chunks=(100,))
    return str(path)


def test_equal_rows_share_a_fold_of_stored_rows_and_of_rows_in_memory(tmp_path: Path) -> None:
    X, y = copied(noisy(150, 1), 4)
    data = stored((X, y), tmp_path / "d.zarr")
    given = f"{data}/X", None, None, 5, 0
    used = np.arange(len(y)) % 3 > 0
    found = [folds_of_data(*given, y=f"{data}/y"), with_equal_rows(X, y, Folds(0, 5), 0)]
    found.append(folds_of_data(*given, used, f"{data}/y"))
    for folds, rows in zip(found, (np.ones(600, bool), np.ones(600, bool), used), strict=True):
        assert folds is not None
        assert folds.by_units
        assert "equal rows" in folds.words
        number = np.flatnonzero(rows)
        fold, group = folds.of(number), np.unique(X[number], axis=0, return_inverse=True)[1]
        assert len(set(zip(group.tolist(), fold.tolist(), strict=True))) == group.max() + 1
        assert np.bincount(fold, minlength=5).min() > 0.1 * len(fold)
    assert found[0].identity() == found[1].identity()  # type: ignore[union-attr]
    plain = folds_of_data(f"{data}/X", None, None, None, 0)
    assert plain is None


def test_few_copies_are_held_out_one_by_one_and_reported(tmp_path: Path) -> None:
    """As in a table that nobody copied: new rows have copies as well."""
    rows = copied(noisy(900, 1), np.where(np.arange(900) % 5 == 0, 2, 1))
    assert 0.3 < copied_share([rows], 1.0) < 0.4
    data = stored(rows, tmp_path / "d.zarr")
    folds = folds_of_data(f"{data}/X", None, None, None, 0, y=f"{data}/y")
    assert folds is not None
    assert not folds.by_units
    assert "% of the rows" in folds.words
    assert "equal rows" in folds.words
    assert with_equal_rows(*rows, None, 0) is None


def test_folds_of_the_user_stay() -> None:
    X, y = copied(noisy(100, 1), 4)
    own = Folds(0, 2, np.full(len(y), 300, np.uint16))
    assert with_equal_rows(X, y, own, 0) is own
    distinct = noisy(400, 1)
    assert with_equal_rows(*distinct, None, 0) is None


def test_a_validation_of_copies_is_that_of_other_rows(tmp_path: Path) -> None:
    data = stored(copied(noisy(200, 0), 10), tmp_path / "d.zarr")
    settings = {"n_leaves": 1, "landmarks": 8, "gamma": 1}
    report = dcpred.validate(data, settings=settings)
    assert "equal rows" in report.held_out
    X, y = noisy(4_000, 1)
    model = dcpred.train(data, tmp_path / "m", settings=settings).model
    assert report.mean - (dcpred.load_model(model).predict(X) == y).mean() < 0.06


def test_probabilities_and_intervals_of_copies_hold_for_other_rows() -> None:
    X, y = copied(noisy(300, 0), 10)
    other, truth = noisy(4_000, 1)
    model = DCPredClassifier(n_leaves=1, landmarks=8, gamma=1.0).fit(X, y)
    p = model.predict_proba(other)
    assert p.max(axis=1).mean() - (p.argmax(axis=1) == truth).mean() < 0.06
    rng = np.random.default_rng(2)
    noise = np.repeat(rng.normal(size=300), 10)
    X = np.repeat(noisy(300, 0)[0], 10, axis=0)
    order = rng.permutation(3_000)
    regressor = DCPredRegressor(n_leaves=1, landmarks=8, gamma=1.0)
    regressor.fit(X[order], (X[:, 0] + 2 * noise)[order])
    low, high = regressor.predict_interval(other, alpha=0.1).T
    amount = other[:, 0] + 2 * rng.normal(size=len(other))
    assert 0.8 < ((low <= amount) & (amount <= high)).mean() < 0.97
