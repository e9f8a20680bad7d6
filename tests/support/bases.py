"""What every member of the protocol dcpred_tasks.model.basis.Basis keeps."""

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.model.basis import Basis, LeafBasis
from support.refinement_definition import weighted_sums


def check_basis(basis: Basis, X: NDArray[np.float32]) -> None:
    """A basis of scaled rows (n, n_features): its shape and dtype; rows do not see each other, and are not
    written.
    """
    before = X.copy()
    values = basis(X)
    assert values.shape == (len(X), basis.size)
    assert values.dtype == np.float64
    assert np.isfinite(values).all()
    np.testing.assert_array_equal(X, before)
    assert basis(X[:0]).shape == (0, basis.size)
    np.testing.assert_allclose(basis(X[::-1])[::-1], values, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(basis(X.astype(np.float64)), values, rtol=1e-9, atol=1e-12)


def check_weighted(
    basis: LeafBasis,
    X: NDArray[np.float32],
    landmarks: NDArray[np.float32],
    gamma: NDArray[np.float32],
    k: int = 2,
) -> None:
    """Σ_q β_q c̄_q and its derivatives by landmarks, log γ and β, against central differences."""
    rows, U, g = X.astype(np.float64), landmarks.astype(np.float64), gamma.astype(np.float64)
    weighted = weighted_sums(basis.kernel, rows, basis.pairs)
    rng = np.random.default_rng(0)
    beta, along = rng.normal(size=(basis.size, k)), rng.normal(size=(len(X), k))
    f, pull = weighted(U, g, beta)
    np.testing.assert_allclose(f, basis(X) @ beta, rtol=1e-6, atol=1e-6)
    dU, d_log_gamma, by_factors, d_beta = pull(along)
    found = dU, d_log_gamma, d_beta

    def value(dU: float, d_log: float, d_beta: float) -> float:
        moved = weighted(U + dU * ways[0], g * np.exp(d_log * ways[1]), beta + d_beta * ways[2])[0]
        return float((moved * along).sum())

    ways = [rng.normal(size=part.shape) for part in (U, g, beta)]
    h = 1e-5
    for which, (slope, way) in enumerate(zip(found, ways, strict=True)):
        step = [h if i == which else 0.0 for i in range(3)]
        expected = (value(*step) - value(*[-s for s in step])) / (2 * h)
        assert np.isclose(float((slope * way).sum()), expected, rtol=2e-4, atol=1e-6), which
    way = rng.normal(size=X.shape[1])

    def stretched(step: float) -> float:
        factor = np.exp(step * way)
        weighted = weighted_sums(basis.kernel, X * factor, basis.pairs)
        return float((weighted(U * factor, g, beta)[0] * along).sum())

    expected = (stretched(h) - stretched(-h)) / (2 * h)
    assert np.isclose(float(by_factors() @ way), expected, rtol=2e-4, atol=1e-6)
