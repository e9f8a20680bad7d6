"""Feature scaling: what it makes of columns, and columns that have no spread."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcpred_tasks.model import scaling as scaling_module
from dcpred_tasks.model.one_hot import coded_columns
from dcpred_tasks.model.scaling import BASES, Scaling, fit_scaling


def fit(name: str, X: NDArray[np.generic], weight: NDArray[np.float64] | None = None) -> Scaling:
    weight = np.ones(len(X)) if weight is None else weight
    return fit_scaling(name, X, weight, X.min(axis=0).astype(float), X.max(axis=0).astype(float))


@pytest.fixture(name="X")
def four_columns(rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.normal(size=(200, 4)) * [1, 10, 1e-3, 1e5] + [0, -5, 3, 1e6]


def test_none_changes_nothing(X: NDArray[np.float64]) -> None:
    np.testing.assert_array_equal(fit("none", X)(X), X.astype(np.float32))


def test_standard_gives_mean_0_and_variance_1(X: NDArray[np.float64]) -> None:
    scaled = fit("standard", X)(X).astype(float)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.std(axis=0), 1, rtol=1e-6)


def test_standard_counts_weights_as_repeated_rows(X: NDArray[np.float64], rng: np.random.Generator) -> None:
    times = rng.integers(1, 5, len(X))
    weighted, repeated = fit("standard", X, times.astype(float)), fit("standard", np.repeat(X, times, axis=0))
    np.testing.assert_allclose(weighted.shift, repeated.shift, rtol=1e-10)
    np.testing.assert_allclose(weighted.factor, repeated.factor, rtol=1e-10)


def test_minmax_uses_the_limits_of_all_rows_and_not_of_the_sample(X: NDArray[np.float64]) -> None:
    scaling = fit_scaling("minmax", X[:5], np.ones(5), X.min(axis=0), X.max(axis=0))
    scaled = scaling(X)
    np.testing.assert_allclose(scaled.min(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.max(axis=0), 1, atol=1e-6)


@pytest.mark.parametrize("name", ["standard", "minmax"])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 100, 1000, 12_345])
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -7.3, 1e9 + 0.1, np.float32(0.1)])
def test_a_constant_column_keeps_factor_1(name: str, n: int, value: float) -> None:
    """A mean is rounded: the deviation of a constant 0.1 from it is 1e-17 and not 0; its inverse is no
    factor.
    """
    X = np.full((n, 1), value)
    for weight in (np.ones(n), np.random.default_rng(n).uniform(0.1, 3, n)):
        scaling = fit(name, X, weight)
        assert scaling.factor[0] == 1.0
        np.testing.assert_allclose(scaling(X), 0, atol=1e-6)


def test_a_small_spread_far_from_zero_is_still_a_spread() -> None:
    """Seconds within an hour, as a timestamp: the difference is taken before anything is rounded to
    float32.
    """
    X = 1.7e9 + np.arange(3600.0)[:, None]
    for name in ("standard", "minmax"):
        scaled = fit(name, X)(X)
        assert len(np.unique(scaled)) == 3600, name
        assert (np.diff(scaled[:, 0]) > 0).all(), name


def test_standard_survives_values_whose_squares_do_not() -> None:
    X = np.array([[-1e200], [1e200], [-1e200], [1e200]])
    scaled = fit("standard", X)(X)
    np.testing.assert_allclose(scaled[:, 0], [-1, 1, -1, 1], rtol=1e-6)


@given(
    name=st.sampled_from(BASES),
    dtype=st.sampled_from([np.float64, np.float32, np.float16, np.int8, np.int64, np.uint8, np.bool_]),
    order=st.sampled_from(["C", "F", "strided"]),
    n=st.integers(1, 20),
    seed=st.integers(0, 100),
)
def test_any_real_dtype_and_memory_order(name: str, dtype: type, order: str, n: int, seed: int) -> None:
    X = np.random.default_rng(seed).integers(0, 2 if dtype is np.bool_ else 100, (2 * n, 3)).astype(dtype)
    X = X[::2] if order == "strided" else np.array(X[:n], order=order)  # type: ignore[call-overload]
    X.flags.writeable = False
    scaling = fit(name, X)
    scaled = scaling(X)
    assert scaled.dtype == np.float32
    assert scaled.flags.c_contiguous
    assert scaled.flags.owndata
    expected = [
        [(float(v) - m) * s for v, m, s in zip(x, scaling.shift, scaling.factor, strict=True)] for x in X
    ]
    np.testing.assert_array_equal(scaled, np.array(expected).astype(np.float32))


def peak(function: Callable[[], object]) -> int:
    """Most bytes that NumPy holds at once, beside what there was."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("n_columns", [1, 2, 5, 40])
def test_strips_change_no_bit(n_columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(3_000, n_columns)) * 10.0 ** rng.integers(-3, 3, n_columns)).astype(np.float32)
    weight = rng.random(3_000)
    origin = X[0].astype(float)
    moved = X.astype(float) - origin
    largest = 1.0 / (1.0 / np.abs(moved).max(axis=0))
    mean = np.average(moved / largest, axis=0, weights=weight)
    spread = np.sqrt(np.average((moved / largest - mean) ** 2, axis=0, weights=weight))
    monkeypatch.setattr(scaling_module, "STRIP_NUMBERS", 1_000)
    found = fit("standard", X, weight)
    np.testing.assert_array_equal(found.shift, origin + largest * mean)
    np.testing.assert_allclose(found.factor, 1 / (largest * spread), rtol=1e-15)
    np.testing.assert_array_equal(found(X), ((X - found.shift) * found.factor).astype(np.float32))


def test_a_scaling_takes_no_copies_of_all_rows_in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling_module, "STRIP_NUMBERS", 2**14)
    X, weight = np.random.default_rng(0).normal(size=(20_000, 50)).astype(np.float32), np.ones(20_000)
    assert peak(lambda: fit("standard", X, weight)) < 0.5 * X.nbytes
    scaling = fit("standard", X, weight)
    assert peak(lambda: scaling(X)) < 1.5 * X.nbytes
    coding = coded_columns(50, {3: np.arange(5)})
    limits = X.min(axis=0).astype(float), X.max(axis=0).astype(float)
    assert peak(lambda: fit_scaling("standard", X, weight, *limits, coding)) < 0.5 * X.nbytes
