"""Leaves of rare classes go by a model of all of space as far as they have few rows of these."""

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dcpred import DataWarning, DCPredClassifier
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training import prior as module
from dcpred_tasks.training.leaf import Kernels
from dcpred_tasks.training.prior import STRENGTH, Prior
from support.setting_words import classifier_with

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


@pytest.mark.cases(1)
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_leaves_that_see_few_rare_rows_rank_as_one_leaf_does(loss: str) -> None:
    """Of 32 leaves with eight rare rows each, rows were ranked at an AUC of 0.69, and leaves without any tied
    hundreds of rows.
    """
    X, y = made(6_000, 0)
    new, true = made(20_000, 1)
    given: dict[str, Any] = {"landmarks": 8, "loss": loss, "random_state": 0}
    model = classifier_with(n_leaves=32, **given).fit(X, y)
    p = model.predict_proba(new)[:, 1]
    one = classifier_with(n_leaves=1, max_leaf_rows=10_000, **given).fit(X, y).predict_proba(new)[:, 1]
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
    p = found.expected(X, RBF)[:, 1]
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
    p = 1 / (1 + np.exp(-2 * f))
    np.testing.assert_allclose(found.expected(X, RBF), np.stack([1 - p, p], axis=1), rtol=1e-4)
    assert Prior.among({"kernels": np.zeros(1)}) is None


def test_leaves_of_even_classes_and_a_single_leaf_have_no_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[Prior] = []
    rows = Prior.rows
    monkeypatch.setattr(Prior, "rows", lambda self, *given: fitted.append(self) or rows(self, *given))
    X, y = made(800, 0)
    given: dict[str, Any] = {"landmarks": 4, "random_state": 0, "refine_steps": 5, "calibrate": False}
    classifier_with(n_leaves=4, **given).fit(X, X[:, 0] > 1)
    classifier_with(n_leaves=1, **given).fit(X, y)
    assert not fitted
    classifier_with(n_leaves=4, **given).fit(X, y)
    assert fitted


def of_three_classes(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two frequent classes, and one of 2.6 %."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    rare = X[:, 3] + X[:, 4] * X[:, 5] + 0.8 * np.abs(X[:, 1]) - 4.0
    z = np.stack([X[:, 0] + 0.5 * X[:, 1], 0.5 * X[:, 2] ** 2 - X[:, 0], rare], axis=1)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    return X, (p.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1)


def test_of_several_classes_leaves_answer_with_a_rate_of_the_rare_one() -> None:
    """With weights of classes its mean probability was a tenth of its share, since leaves without a row of it
    gave it none, and its rows were ranked at an AUC of 0.58.
    """
    X, y = of_three_classes(6_000, 0)
    new, true = of_three_classes(20_000, 1)
    given: dict[str, Any] = {"n_leaves": 32, "landmarks": 8, "loss": "logistic", "random_state": 0}
    p = classifier_with(class_weight="balanced", **given).fit(X, y).predict_proba(new)
    assert 0.02 < p[:, 2].mean() < 0.035
    assert np.unique(p[:, 2], return_counts=True)[1].max() < 0.005 * len(new)
    assert roc_auc_score(true == 2, p[:, 2]) > 0.72
    other = classifier_with(**{**given, "n_leaves": 8}).fit(X, y)
    balanced = classifier_with(class_weight="balanced", **{**given, "n_leaves": 8}).fit(X, y)
    means = [one.predict_proba(new).mean(axis=0) for one in (other, balanced)]
    # Without the prior it was half of it; about 150 rows of the class in training leave as much by chance.
    np.testing.assert_allclose(means[0], means[1], rtol=0.2)


def test_of_several_classes_only_the_rare_one_is_drawn_to_the_prior() -> None:
    rng = np.random.default_rng(0)
    landmarks, beta = rng.normal(size=(3, 2)).astype(np.float32), rng.normal(size=(3, 4)).astype(np.float32)
    gamma, pairs = np.full(3, 0.5, np.float32), np.empty((0, 2), np.int32)
    found = Prior(landmarks, gamma, pairs, beta, np.zeros(4), np.array([3]), np.empty(0))
    X = rng.normal(size=(60, 2)).astype(np.float32)
    target = np.arange(60) % 3
    target[::20] = 3
    number, targets, weights = found.rows(X, target, np.ones(60), RBF)
    p, share = found.expected(X, RBF), STRENGTH / (STRENGTH + 3)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    amount = np.zeros((60, 4))
    np.add.at(amount, (number, targets), weights)
    own = target == 3
    np.testing.assert_allclose(amount[~own, 3], share * p[~own, 3])
    np.testing.assert_allclose(amount[~own, target[~own]], 1 - share * p[~own, 3])
    np.testing.assert_allclose(amount[own, :3], share * p[own, :3])
    np.testing.assert_allclose(amount.sum(axis=1), 1)


@pytest.mark.parametrize("rows", [1, 2, 9])
@pytest.mark.parametrize("n_leaves", [1, 8])
def test_a_class_of_fewer_than_ten_rows_is_remarked_on(rows: int, n_leaves: int) -> None:
    """Training works, and the class is among the answers."""
    X, y = of_three_classes(400, 0)
    y = np.where(y == 2, 0, y)
    y[:rows] = 2
    model = DCPredClassifier(verbose=1, random_state=0, n_leaves=n_leaves, landmarks=8)
    with pytest.warns(
        DataWarning, match=rf"fewer than 10 training rows: 2 \({rows}\); collect more, or join"
    ):
        model.fit(X, y)
    p = model.predict_proba(X)
    assert p.shape == (400, 3)
    assert (p[:, 2] > 0).all()
    assert p[:, 2].mean() < 0.1


def test_class_weights_keep_the_rate_of_a_rare_class_of_several_in_one_leaf() -> None:
    """Few of its rows are held out, so that more folds are, and offsets follow its rate."""
    rng = np.random.default_rng(0)
    centre = 0.9 * rng.normal(size=(3, 6))
    y, new = rng.choice(3, 3_000, p=(0.9, 0.09, 0.01)), rng.choice(3, 5_000, p=(0.9, 0.09, 0.01))
    X, X_new = (centre[one] + rng.normal(size=(len(one), 6)) for one in (y, new))
    given = {"n_leaves": 1, "landmarks": 16, "random_state": 0}
    means = [
        classifier_with(class_weight=weight, **given).fit(X, y).predict_proba(X_new).mean(axis=0)[2]
        for weight in (None, "balanced")
    ]
    assert 0.7 < means[1] / means[0] < 1.4
    assert 0.005 < min(means) <= max(means) < 0.02
