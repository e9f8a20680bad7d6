"""Probabilities: what is fitted, beside its definition, and what of it never fails."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from threadpoolctl import threadpool_info, threadpool_limits

from dcpred import DCPredClassifier
from dcpred_tasks.model import uncertainty
from dcpred_tasks.model.compact_model import class_numbers
from dcpred_tasks.model.uncertainty import Calibration
from dcpred_tasks.training import calibration as module
from dcpred_tasks.training.calibration import class_shares, fit_calibration, plain_calibration
from support.setting_words import classifier_with

ABSENT = -1e30  # the decision value of a class that a leaf has no row of


def random_calibration(rng: np.random.Generator, n_classes: int) -> Calibration:
    knot = np.sort(rng.normal(size=int(rng.integers(1, 9))) * 2)
    value = np.cumsum(rng.exponential(size=len(knot))) - 2
    return Calibration(knot, value, rng.dirichlet(np.ones(n_classes)), rng.uniform(0, 1, 1) ** 4)


def plain(calibration: Calibration, decision: np.ndarray, label: int) -> list[float]:
    """The definition, of one row."""

    def g(f: float) -> float:
        at = list(zip(calibration.knot.tolist(), calibration.value.tolist(), strict=True))
        if f <= at[0][0]:
            return at[0][1]
        for (a, u), (b, v) in pairwise(at):
            if f <= b:
                return u + (f - a) / (b - a) * (v - u)
        return at[-1][1]

    scores = [0.0, g(decision[0])] if len(decision) == 1 else [g(f) for f in decision]
    total = math.fsum(math.exp(s) for s in scores)
    share = float(calibration.share[0])
    p = [
        (1 - share) * math.exp(s) / total + share * pi
        for s, pi in zip(scores, calibration.prior, strict=True)
    ]
    p = [x if k == label else min(x, p[label] * (1 - uncertainty.TIE)) for k, x in enumerate(p)]
    return [x / math.fsum(p) for x in p]


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 3, 7]))
def test_probabilities_are_as_defined(seed: int, n_outputs: int) -> None:
    """With ties, absent classes, values beyond all knots, and rows without a score."""
    rng = np.random.default_rng(seed)
    calibration = random_calibration(rng, max(n_outputs, 2))
    decision = rng.choice(
        [rng.normal(), 0.0, 1.0, -1.0, 9.0, -9.0, 1e-30, *rng.normal(size=4)], (40, n_outputs)
    )
    decision[rng.random(decision.shape) < 0.1] = ABSENT
    label = class_numbers(decision)
    found = calibration.probabilities(decision, label)
    right = [plain(calibration, row, int(k)) for row, k in zip(decision, label, strict=True)]
    np.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-300)
    for kind in (np.float64, np.float32):
        np.testing.assert_array_equal(found.astype(kind).argmax(axis=1), label)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    decision[::3] = np.nan
    again = calibration.probabilities(decision, class_numbers(decision))
    assert np.isnan(again[::3]).all()
    np.testing.assert_array_equal(again[1::3], found[1::3])


def test_rows_are_cut_into_strips_that_do_not_matter(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibration, decision = random_calibration(rng, 3), rng.normal(size=(50, 3))
    label = class_numbers(decision)
    whole = calibration.probabilities(decision, label)
    assert calibration.probabilities(decision[:0], label[:0]).shape == (0, 3)
    for numbers in (1, 12, 30):
        monkeypatch.setattr(uncertainty, "STRIP_NUMBERS", numbers)
        np.testing.assert_array_equal(calibration.probabilities(decision, label), whole)


@given(st.integers(0, 10**6))
def test_of_two_classes_a_larger_decision_value_is_never_less_likely(seed: int) -> None:
    rng = np.random.default_rng(seed)
    calibration = random_calibration(rng, 2)
    decision = np.sort(rng.normal(size=100) * 3)[:, None]
    p = calibration.probabilities(decision, class_numbers(decision))[:, 1]
    assert (np.diff(p) >= -1e-15).all()  # 1 − q is rounded
    assert ((p > 0.5) == (decision[:, 0] > 0)).all()


def held_out(seed: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decision values, classes that are drawn with known probabilities, and those."""
    rng = np.random.default_rng(seed)
    decision = rng.normal(size=(n, 1 if k == 2 else k))
    scores = 2 * decision + 0.5 * decision**3
    if k == 2:
        scores = np.concatenate([np.zeros((n, 1)), scores], axis=1)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p = 0.95 * p / p.sum(axis=1, keepdims=True) + 0.05 / k
    return decision, (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1), p


def loss(p: np.ndarray, truth: np.ndarray) -> float:
    """What −log p is in the mean, where classes are drawn with the probabilities `truth`."""
    return -float((truth * np.log(p)).sum(axis=1).mean())


@pytest.mark.parametrize("k", [2, 5])
def test_probabilities_that_are_known_are_found(k: int) -> None:
    decision, target, _ = held_out(0, 5_000, k)
    found, offset = fit_calibration(decision, target, np.ones(5_000), k)
    new, _, truth = held_out(1, 20_000, k)
    new -= offset
    p = found.probabilities(new, class_numbers(new))
    plain_p = plain_calibration(np.full(k, 1 / k)).probabilities(new, class_numbers(new))
    lost, lost_by_default = (loss(each, truth) - loss(truth, truth) for each in (p, plain_p))
    assert lost < 0.25 * lost_by_default
    assert np.abs(p - truth).mean() < 0.02
    assert found.share[0] == pytest.approx(0.05, abs=0.02)


@pytest.mark.parametrize("factors", [module.NO_FACTORS, np.array([0.5, 4.0, 1.0, 2.0])])
@pytest.mark.parametrize("k", [2, 4])
def test_the_gradient_is_that_of_the_loss(k: int, factors: np.ndarray) -> None:
    decision, target, _ = held_out(3, 60, k)
    decision[::7] = ABSENT if k > 2 else 1.0
    weight = np.random.default_rng(0).uniform(0.2, 2, 60)
    prior = class_shares(target, weight, k)
    knot = np.array([-1.5, -0.2, 0.1, 1.4])
    problem = module._Problem(decision, target, weight, prior, knot, factors[:k])
    for seed in range(3):
        at = np.random.default_rng(seed).normal(size=5 + (k if k > 2 else 0))
        right = approx_fprime(at, lambda x: problem(x)[0], 1e-7)
        np.testing.assert_allclose(problem(at)[1], right, rtol=2e-4, atol=2e-4)


@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([1, 3, 7]), st.booleans(), st.booleans())
def test_machine_code_computes_the_loss_of_the_definition(
    seed: int, n: int, k: int, weighted: bool, moves: bool
) -> None:
    """With absent classes, values at knots and beyond all."""
    rng, classes = np.random.default_rng(seed), max(k, 2)
    knot = np.unique(rng.normal(size=int(rng.integers(2, 12))))
    decision = rng.choice([rng.normal(), ABSENT, 40.0, *knot[:3], *rng.normal(size=3)], (n, k))
    factors = rng.uniform(0.1, 9, classes) if weighted else module.NO_FACTORS
    given = decision, rng.integers(0, classes, n), rng.uniform(0.1, 2, n), rng.dirichlet(np.ones(classes))
    problem = module._Problem(*given, knot, factors)
    moved = rng.normal(size=k) if moves else np.empty(0)
    at = float(rng.normal()), rng.exponential(size=len(knot) - 1), float(rng.uniform(0.001, 0.5)), moved
    assert problem.loss != problem.definition
    for ours, right in zip(problem.loss(*at), problem.definition(*at), strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-9, atol=1e-9)


def test_without_a_compiler_numpy_finds_the_same_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    decision, target, _ = held_out(0, 1_000, 3)
    given = decision, target, np.ones(1_000), 3
    compiled, offset = fit_calibration(*given)
    monkeypatch.setattr(module._Problem, "loss", property(lambda problem: problem.definition))
    plain, other = fit_calibration(*given)
    np.testing.assert_allclose(compiled.value, plain.value, atol=1e-3)
    np.testing.assert_allclose(offset, other, atol=1e-4)


def test_a_calibration_is_fitted_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of BLAS would wait for each other in sums of ten numbers."""
    decision, target, _ = held_out(0, 200, 2)
    minimize, threads = module.minimize, []

    def counted(*given: Any, **named: Any) -> Any:
        threads.extend(pool["num_threads"] for pool in threadpool_info())
        return minimize(*given, **named)

    monkeypatch.setattr(module, "minimize", counted)
    with threadpool_limits(2):
        fit_calibration(decision, target, np.ones(200), 2)
    assert set(threads) == {1}


def test_a_constant_leaf_is_as_sure_as_held_out_rows_say() -> None:
    """One row in twenty of leaves of one class is of the other; half of all rows are in such leaves."""
    rng = np.random.default_rng(0)
    decision = np.where(np.arange(4_000) % 2, rng.normal(size=4_000) * 0.3, rng.choice([-1.0, 1.0], 4_000))
    p = np.where(np.abs(decision) == 1, 0.5 + 0.45 * decision, 1 / (1 + np.exp(-3 * decision)))
    target = (rng.random(4_000) < p).astype(int)
    found, offset = fit_calibration(decision[:, None], target, np.ones(4_000), 2)
    p = found.probabilities(np.array([[-1.0], [1.0]]) - offset, np.array([0, 1]))
    np.testing.assert_allclose(p[[0, 1], [0, 1]], 0.95, atol=0.015)


def test_nothing_is_certain_and_an_absent_class_keeps_a_chance() -> None:
    """All of a hundred rows are right: what is left is the prior, of one more row of each class."""
    target = np.arange(100) % 2
    found, _ = fit_calibration(np.where(target, 1.0, -1.0)[:, None], target, np.ones(100), 2)
    p = found.probabilities(np.array([[-1e30], [1e30]]), np.array([0, 1]))
    assert 0 < p.min() < 0.05
    decision = np.full((90, 3), ABSENT)
    target = np.arange(90) % 3
    decision[np.arange(90), target] = 1.0
    found, _ = fit_calibration(decision, target, np.ones(90), 3)
    p = found.probabilities(decision[:3], np.arange(3))
    assert ((p > 0) & (p < 1)).all()
    np.testing.assert_array_equal(p.argmax(axis=1), np.arange(3))


EDGES: dict[str, tuple[Any, Any]] = {
    "no rows": (np.empty((0, 1)), []),
    "one row": ([[0.3]], [1]),
    "decision values that say nothing": ([[1.0]] * 30, [0, 1] * 15),
    "one class alone": (np.linspace(-1, 1, 30)[:, None], [1] * 30),
    "all wrong": (np.linspace(-1, 1, 40)[:, None], [1] * 20 + [0] * 20),
    "huge": (np.linspace(-1e30, 1e30, 40)[:, None], [0, 1] * 20),
    "tiny": (np.linspace(-1e-30, 1e-30, 40)[:, None], [0] * 20 + [1] * 20),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges_give_a_calibration_that_a_model_may_hold(name: str) -> None:
    decision, target = np.asarray(EDGES[name][0], float), np.asarray(EDGES[name][1], np.int64)
    k = max(decision.shape[1], 2)
    found, offset = fit_calibration(decision, target, np.ones(len(target)), k)
    assert (np.diff(found.knot) > 0).all()
    assert (np.diff(found.value) >= 0).all()
    assert found.prior.sum() == pytest.approx(1)
    assert all(np.isfinite(a).all() for a in vars(found).values())
    rows = np.concatenate([decision, np.zeros((1, decision.shape[1]))]) - offset
    p = found.probabilities(rows, class_numbers(rows))
    assert ((p > 0) & (p < 1)).all()
    free = found.free(found.scores(rows))
    likeliest = free.max(axis=1) - free[np.arange(len(rows)), class_numbers(rows)] < 1e-9
    assert likeliest[:-1].all(), "the label is the likeliest class without a push"


def test_rows_count_by_their_weight_and_not_by_its_unit() -> None:
    decision, target, _ = held_out(0, 2_000, 2)
    weight = np.random.default_rng(1).uniform(0.5, 2, 2_000)
    (once, _), (often, _) = (fit_calibration(decision, target, w, 2) for w in (weight, 1_000 * weight))
    np.testing.assert_allclose(once.value, often.value, rtol=1e-4, atol=1e-4)
    # Rows of the second class count ten times as much.
    (once, at), (heavy, at_heavy) = (
        fit_calibration(decision, target, np.where(target == 1, factor, 1.0), 2) for factor in (1.0, 10.0)
    )
    p, q = (
        c.probabilities(0.3 - offset[None, :], class_numbers(0.3 - offset[None, :]))[0, 1]
        for c, offset in ((once, at), (heavy, at_heavy))
    )
    odds = q / (1 - q) / (p / (1 - p))
    assert 5 < odds < 15


@pytest.mark.parametrize("k", [2, 3])
def test_the_label_is_the_likeliest_class_and_no_ranks_are_tied(k: int) -> None:
    """Of noisy rows decision values lie about another threshold than 0: a fifth of these rows was pressed to
    one half.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3_000, 12))
    scores = np.stack([0.5 * X[:, j] - 0.7 * j for j in range(k)], axis=1)
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.random((3_000, 1))).sum(axis=1)
    model = DCPredClassifier(n_leaves=2, landmarks=16, random_state=0).fit(X[:1_200], y[:1_200])
    found = model.predict_proba(X[1_200:])
    ahead = np.diff(np.sort(found, axis=1)[:, -2:], axis=1)
    assert (ahead < 1e-5).mean() < 0.005
    np.testing.assert_array_equal(found.argmax(axis=1), model.predict(X[1_200:]))
    decision = model.decision_function(X[1_200:])
    assert len(np.unique(found[:, 1])) > 0.97 * len(np.unique(decision, axis=0))


@pytest.mark.parametrize("weights", ["balanced", {0: 0.5, 1: 3.0}])
def test_class_weights_move_labels_and_leave_probabilities_at_the_rates_of_the_data(weights: Any) -> None:
    """They were those of rows weighed as in training: half of the rows instead of one in twenty-five."""
    X = np.random.default_rng(0).normal(size=(12_000, 6))
    y = (np.random.default_rng(1).random(12_000) < 1 / (1 + np.exp(4 - 1.5 * X[:, 0]))).astype(int)
    new, same = X[6_000:], {"n_leaves": 2, "landmarks": 8, "random_state": 0, "loss": "logistic"}
    plain, other = (
        classifier_with(**same, class_weight=w).fit(X[:6_000], y[:6_000]) for w in (None, weights)
    )
    p, q = plain.predict_proba(new)[:, 1], other.predict_proba(new)[:, 1]
    assert q.mean() == pytest.approx(p.mean(), rel=0.05)
    assert q.mean() == pytest.approx(y.mean(), rel=0.15)
    calibration = other.model_.uncertainty.calibration
    threshold = calibration.weight[0] / calibration.weight.sum()
    np.testing.assert_array_equal(other.predict(new) == 1, q > threshold)
    assert (other.predict(new) == 1).mean() > 3 * (plain.predict(new) == 1).mean()
    assert (np.abs(q - threshold) < 1e-5).mean() < 0.005


def test_class_weights_are_divided_out() -> None:
    rng = np.random.default_rng(0)
    found = random_calibration(rng, 3)
    decision = rng.normal(size=(40, 3))
    label = class_numbers(decision)
    p = found.probabilities(decision, label)
    weight = np.array([1.0, 4.0, 0.5])
    q = replace(found, weight=weight).probabilities(decision, label)
    np.testing.assert_allclose(q, p / weight / (p / weight).sum(axis=1, keepdims=True))
    np.testing.assert_array_equal((q * weight).argmax(axis=1), label)


def test_exact_leaf_models_keep_their_decision_values() -> None:
    """They add no intercept, so that none can be moved."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)), rng.integers(0, 2, 300)
    same = {"n_leaves": 1, "leaf_model": "exact", "random_state": 0}
    with_it, without = (classifier_with(**same, calibrate=value).fit(X, y) for value in (True, False))
    np.testing.assert_array_equal(with_it.decision_function(X), without.decision_function(X))
    p = with_it.predict_proba(X)
    np.testing.assert_array_equal(p.argmax(axis=1), with_it.predict(X))


def test_several_classes_without_offsets_have_a_calibration(rng: np.random.Generator) -> None:
    """As those of leaf models, whose intercepts stay."""
    target = rng.integers(0, 3, 300)
    decision = 2.0 * np.eye(3)[target] + rng.normal(size=(300, 3))
    calibration, offset = fit_calibration(decision, target, np.ones(300), 3, moves=False)
    assert (offset == 0).all()
    p = calibration.probabilities(decision, decision.argmax(axis=1))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert p[np.arange(300), target].mean() > 0.5
