"""Accuracy on real data: what the method is for. Limits are a few standard deviations under the figures."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import MinMaxScaler

from dcpred import DCPredClassifier, DCPredRegressor, Settings
from support.setting_words import classifier_with

LETTER = {
    "scaling": "minmax",
    "n_leaves": 128,
    "landmarks": 24,
    "gamma": 4.0,
    "C": 4.0,
    "compact_gamma": 3.0,
    "nystrom_C": 32.0,
}
NYSTROM = {"landmark_floor": 0.1, "refine": False}


@pytest.fixture(scope="module")
def letter(real_data: Path) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    with np.load(real_data / "letter.npz") as data:
        return data["X"], data["y"] < 13


def test_letter(letter: tuple[NDArray[np.uint8], NDArray[np.bool_]]) -> None:
    X, y = letter
    accuracy = {}
    for products in (0, 300):
        model = classifier_with(
            **LETTER, **NYSTROM, products=products, keep_support_vectors=True, random_state=0
        )
        model.fit(X[:15_000], y[:15_000])
        accuracy[products] = model.score(X[15_000:], y[15_000:])
    assert model.n_leaves_ <= 128
    assert accuracy[300] > 0.947
    assert accuracy[300] > accuracy[0] + 0.008  # products are worth two points
    assert (model.predict_early(X[15_000:]) == y[15_000:]).mean() > 0.945


def test_letter_refined(letter: tuple[NDArray[np.uint8], NDArray[np.bool_]]) -> None:
    """Fewer landmarks and leaves, and better. What overlap and a learned scaling add is measured in the
    benchmarks.
    """
    X, y = letter
    model = DCPredClassifier(scaling="minmax", n_leaves=64, landmarks=16, gamma=4.0, C=4.0, random_state=0)
    model.fit(X[:15_000], y[:15_000])
    assert model.score(X[15_000:], y[15_000:]) > 0.95


def test_letter_with_all_classes(real_data: Path) -> None:
    with np.load(real_data / "letter.npz") as data:
        X, y = data["X"], np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))[data["y"]]
    model = DCPredClassifier(
        n_leaves=16, landmarks=32, random_state=0, settings=Settings(keep_support_vectors=True)
    ).fit(X[:15_000], y[:15_000])
    assert model.score(X[15_000:], y[15_000:]) > 0.88
    assert (model.predict_early(X[15_000:]) == y[15_000:]).mean() > 0.94


def test_cpusmall_beside_exact_kernel_ridge(real_data: Path) -> None:
    with np.load(real_data / "cpusmall.npz") as data:
        X, y = data["X"].astype(float), data["y"].astype(float)
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:4_000], order[4_000:]
    scaler = MinMaxScaler().fit(X[train])
    exact = KernelRidge(alpha=0.01, kernel="rbf", gamma=2.0).fit(
        scaler.transform(X[train]), y[train] - y[train].mean()
    )
    model = DCPredRegressor(
        scaling="minmax",
        gamma=1.0,
        ridge=0.01,
        n_leaves=8,
        landmarks=32,
        random_state=0,
        settings=Settings(products=300),
    )
    predicted = model.fit(X[train], y[train]).predict(X[test])
    reference = exact.predict(scaler.transform(X[test])) + y[train].mean()
    assert np.std(predicted - y[test]) < 1.1 * np.std(reference - y[test])
