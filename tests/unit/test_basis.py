"""Every member of the protocol Basis keeps its contract, with every kernel."""

import numpy as np
import pytest

from dcpred_tasks.model.basis import (
    Basis,
    Landmarks,
    LeafBasis,
    Prices,
    Products,
    TrianglePoints,
    sample_pairs,
    triangle_distances,
)
from dcpred_tasks.model.kernels import KERNELS, STATIONARY, Kernel
from support.bases import check_basis, check_weighted

RNG = np.random.default_rng(0)
X, U, V = (RNG.normal(size=(n, 3)).astype(np.float32) for n in (20, 5, 4))
GAMMA = np.geomspace(0.2, 0.8, 5).astype(np.float32)
PAIRS = sample_pairs(5, 7, RNG)


def members(name: str) -> dict[str, Basis]:
    kernel = Kernel(name, 0.4, 3, 0.5)
    landmarks = Landmarks(kernel, U, GAMMA)
    none = np.empty((0, 5), np.float32)
    s = triangle_distances(kernel, V, U) if name in STATIONARY else none
    found: dict[str, Basis] = {
        "landmarks": landmarks,
        "products": Products(landmarks, PAIRS),
        "leaf": LeafBasis(kernel, "lower", U, GAMMA, PAIRS, none),
        "leaf without products": LeafBasis(kernel, "lower", U, GAMMA, PAIRS[:0], none),
    }
    if name in STATIONARY:
        found["triangle"] = TrianglePoints(landmarks, "upper", s)
        found["leaf with triangle"] = LeafBasis(kernel, "lower", U, GAMMA, PAIRS, s)
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_contract(name: str) -> None:
    for basis in members(name).values():
        check_basis(basis, X)


@pytest.mark.parametrize("name", KERNELS)
def test_derivatives(name: str) -> None:
    """Of the definition of refinement."""
    for member in ("leaf", "leaf without products"):
        basis = members(name)[member]
        assert isinstance(basis, LeafBasis)
        for k in (1, 2):
            check_weighted(basis, X, U, GAMMA, k)


@pytest.mark.parametrize("name", STATIONARY)
def test_a_leaf_is_its_members_side_by_side(name: str) -> None:
    leaf = members(name)["leaf with triangle"]
    assert isinstance(leaf, LeafBasis)
    np.testing.assert_allclose(leaf(X), np.hstack([member(X) for member in leaf.members]), rtol=1e-6)


def test_prices_are_of_groups_of_lanes() -> None:
    """Seventeen landmarks are computed as thirty-two, and summed as seventeen where outputs are several."""
    several, one = Prices(16, 10.0, 0.0, 0.5, 0.1, 0.0, 0.0), Prices(16, 10.0, 0.25, 0.0, 0.1, 0.0, 0.0)
    m = np.array([0, 16, 17])
    np.testing.assert_allclose(several.landmarks(m), [0.0, 18.0, 28.5])
    np.testing.assert_allclose(one.landmarks(m), [0.0, 14.0, 28.0])
