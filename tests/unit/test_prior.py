"""Leaves of rare classes go by a model of all of space as far as they have few rows of these."""

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dcpred import DCPredClassifier
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training import prior as module
from dcpred_tasks.training.leaf import Kernels
from dcpred_tasks.training.prior import STRENGTH, Prior

RBF = Kernels(Kernel("rbf", 0.5), Kernel("rbf", 0.5))


def made(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A class of 4 %, four of six features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    z = -4.6 + X[:, 0] + 0.8 * X[:, 1] * X[:, 2] + 0.8 * np.abs(X[:, 3])
    return X, (rng.random(n) < 1 / (1 + np.exp(-z))).astype(int)


def random_prior(factors: np.ndarray) -> Prior:
    rng = np.random.default_rng(0)
    landmarks, beta = rng.normal(size=(3, 2)).astype(np.float32), rng.normal(size=(4, 1)).astype(np.float32)
    gamma, pairs = np.full(3, 0.5, np.float32), np.array([[0, 2]], np.int32)
    return Prior(landmarks, gamma, pairs, beta, np.array([-1.0]), np.array([1]), factors)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_leaves_that_see_few_rare_rows_rank_as_one_leaf_does(loss: str) -> None:
    """Of 32 leaves with eight rare rows each, rows were ranked at an AUC of 0.69, and leaves without any tied
    hundreds of rows.
    """
    X, y = made(6_000, 0)
    new, true = made(20_000, 1)
    given: dict[str, Any] = {"landmarks": 8, "loss": loss, "random_state": 0}
    model = DCPredClassifier(n_leaves=32, **given).fit(X, y)
    p = model.predict_proba(new)[:, 1]
    one = DCPredClassifier(n_leaves=1, max_leaf_rows=10_000, **given).fit(X, y).predict_proba(new)[:, 1]
    assert roc_auc_score(true, p) > roc_auc_score(true, one) - 0.02
    assert np.unique(p, return_counts=True)[1].max() < 0.005 * len(new)
    assert np.unique(one, return_counts=True)[1].max() < 0.005 * len(new)


@pytest.mark.parametrize("factors", [np.empty(0), np.array([0.5, 12.0])])
def test_rows_count_in_part_as_what_the_prior_expects(
    factors: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = random_prior(factors)
    X = np.random.default_rng(1).normal(size=(300, 2)).astype(np.float32)
    target = (np.arange(300) % 30 == 0).astype(int)
    own = factors if len(factors) else np.ones(2)
    weight = np.where(np.arange(300) % 2, 1.0, 3.0)
    p = found.expected(X, RBF)
    share = STRENGTH / (STRENGTH + 10)
    q = (1 - share) * target + share * p
    for most in (300, 50):
        monkeypatch.setattr(module, "EXPECTED_ROWS", most)
        number, targets, weights = found.rows(X, target, weight * own[target], RBF)
        assert len(number) <= 300 + most
        of_class = np.bincount(targets, weights)
        np.testing.assert_allclose(
            of_class, own * [weight @ (1 - q), weight @ q], rtol=0.02 if most < 300 else 1e-9
        )
        np.testing.assert_array_equal(number[:300], np.arange(300))
        np.testing.assert_array_equal(targets[300:], 1 - target[number[300:]])


def test_the_prior_is_its_definition_and_comes_back_from_arrays() -> None:
    first = random_prior(np.empty(0))
    found = Prior.among({**first.arrays(), "kernels": np.zeros(1)})
    assert found is not None
    X = np.random.default_rng(1).normal(size=(7, 2)).astype(np.float32)
    c = np.exp(-0.5 * ((X[:, None] - first.landmarks[None]) ** 2).sum(axis=2))
    f = np.column_stack([c, c[:, 0] * c[:, 2]]) @ first.beta[:, 0] - 1
    np.testing.assert_allclose(found.expected(X, RBF), 1 / (1 + np.exp(-2 * f)), rtol=1e-4)
    assert Prior.among({"kernels": np.zeros(1)}) is None


def test_leaves_of_even_classes_and_a_single_leaf_have_no_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[Prior] = []
    rows = Prior.rows
    monkeypatch.setattr(Prior, "rows", lambda self, *given: fitted.append(self) or rows(self, *given))
    X, y = made(800, 0)
    given: dict[str, Any] = {"landmarks": 4, "random_state": 0, "refine_steps": 5, "calibrate": False}
    DCPredClassifier(n_leaves=4, **given).fit(X, X[:, 0] > 1)
    DCPredClassifier(n_leaves=1, **given).fit(X, y)
    assert not fitted
    DCPredClassifier(n_leaves=4, **given).fit(X, y)
    assert fitted
