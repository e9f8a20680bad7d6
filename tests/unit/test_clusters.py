"""k-means: machine code does what its definition does, and what k-means must do whoever computes it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from dcpred_tasks.engine.compiler import SWITCH, forget_failures
from dcpred_tasks.training import clusters
from dcpred_tasks.training.clusters import Start, definition, k_means
from dcpred_tasks.training.refinement import machine_code

Singles = NDArray[np.float32]
Doubles = NDArray[np.float64]
STARTS: tuple[Start, ...] = ("random", "k-means++")


def problem(n: int, d: int, k: int, start: Start, seed: int, shift: float = 0.0) -> tuple[Any, ...]:
    """The arguments of `definition` for rows around a few places, some of which weigh nearly nothing."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) + 3.0 * rng.integers(0, 3, (n, 1)) + shift).astype(np.float32)
    weight = np.maximum(rng.uniform(-0.2, 1.0, n), clusters.LEAST_WEIGHT)
    return X, weight, min(k, n), clusters._draws(n, min(k, n), seed, start)


def in_order(centres: Doubles) -> Doubles:
    """Sorted by their sums, far enough apart for rounding to keep the order."""
    return centres[np.argsort(centres.sum(axis=1))]


@given(st.data())
def test_machine_code_finds_the_centres_of_the_definition(data: st.DataObject) -> None:
    n, d, k = (data.draw(st.integers(1, most)) for most in (200, 40, 40))
    rows = problem(n, d, k, data.draw(st.sampled_from(STARTS)), data.draw(st.integers(0, 9)))
    steps = data.draw(st.sampled_from([0, 1, 3]))
    ours, expected = machine_code().clusters(*rows, steps, 0.0), definition(*rows, steps, 0.0)
    assert_allclose(in_order(ours), in_order(expected), rtol=0, atol=1e-4)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_steps_end_where_those_of_the_definition_end(start: Start, shift: float) -> None:
    for seed in range(5):
        rows = problem(700, 6, 12, start, seed, shift)
        ours, expected = (found(*rows, 50, 1e-4) for found in (machine_code().clusters, definition))
        assert_allclose(in_order(ours), in_order(expected), rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("start", STARTS)
def test_each_centre_is_the_mean_of_its_rows(start: Start) -> None:
    X, weight, k, draws = problem(500, 4, 9, start, 0)
    centres = machine_code().clusters(X, weight, k, draws, 500, 0.0)
    nearest = ((X[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    for number, centre in enumerate(centres):
        own = nearest == number
        assert_allclose(centre, np.average(X[own], axis=0, weights=weight[own]), atol=1e-5)


def test_every_thread_finds_the_same_bits() -> None:
    rows = [problem(300, 7, 20, start, seed) for seed in range(8) for start in STARTS]
    compute: Callable[[Any], Doubles] = lambda given: machine_code().clusters(*given, 50, 1e-4)  # noqa: E731
    with ThreadPoolExecutor(4) as pool:
        for alone, together in zip(map(compute, rows), pool.map(compute, rows), strict=True):
            assert_array_equal(alone, together)


@pytest.mark.filterwarnings("ignore:clusters of rows are searched by NumPy")
def test_without_a_compiler_the_definition_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    X, weight = problem(200, 3, 8, "random", 1)[:2]
    expected = k_means(X, 8, 0, weight)
    monkeypatch.setenv(SWITCH, "1")
    forget_failures()
    try:
        assert_allclose(k_means(X, 8, 0, weight), expected, atol=1e-5)
    finally:
        monkeypatch.delenv(SWITCH)
        forget_failures()


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_centres_are_at_most_the_distinct_rows(start: Start, k: int) -> None:
    X = np.repeat(np.random.default_rng(0).normal(size=(5, 2)), 10, axis=0).astype(np.float32)
    centres = k_means(X, k, 0, start=start)
    assert centres.dtype == np.float32
    assert len(centres) == min(k, 5)
    if k >= 5:
        assert_array_equal(centres, np.unique(X, axis=0))
    assert_array_equal(k_means(X[:1], k, 0, start=start), X[:1])
    assert_array_equal(k_means(np.zeros((9, 2), np.float32), k, 0, start=start), np.zeros((1, 2)))


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("scale", [1e-300, 1e-50, 1e39, 1e300])
def test_the_scale_of_weights_does_not_count(rng: np.random.Generator, scale: float, start: Start) -> None:
    X, weight = rng.normal(size=(200, 3)), rng.uniform(1, 2, 200)
    expected = k_means(X, 5, 0, weight, start)
    assert_allclose(k_means(X, 5, 0, scale * weight, start), expected, rtol=1e-4, atol=1e-5)


def test_weights_count_as_repeated_rows() -> None:
    X = np.array([[0.0], [1.0], [8.0], [9.0]])
    assert k_means(X, 2, 0, np.array([1.0, 3.0, 1.0, 1.0]))[:, 0].tolist() == [0.75, 8.5]


def test_rows_of_no_weight_move_no_centre(rng: np.random.Generator) -> None:
    X = np.concatenate([rng.normal(size=(90, 3)), 50 + rng.normal(size=(10, 3))])
    weight = np.where(np.arange(100) < 90, 1.0, 0.0)
    for start in STARTS:
        assert np.abs(k_means(X, 6, 0, weight, start)).max() < 5
