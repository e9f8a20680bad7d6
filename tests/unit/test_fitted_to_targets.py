"""Held-out rows meet nothing that was fitted to their targets: neither do probabilities of noise lie far from
its rate, nor do intervals miss it.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcpred import DCPredClassifier, Settings
from dcpred.training.policy import PORTFOLIO
from dcpred.training.train import train
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.model import predictive_outputs
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.scoring.labels import score_with_leaves
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.training import held_out, in_memory, learned_scaling
from dcpred_tasks.training.categories import NOT_CODED, CodedFeatures, fit_to_rows
from dcpred_tasks.training.fitted_to_targets import FittedToTargets, Known, TargetSample
from dcpred_tasks.training.folds import UNITS, Folds
from dcpred_tasks.training.held_out import (
    HeldOut,
    LeafRowsToFit,
    as_held_out,
    cross_calibrated,
    fit_and_judge,
    fit_intervals,
)
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.leaf import FittedLeaf, Kernels
from dcpred_tasks.training.settings import in_effect, make_settings
from dcpred_tasks.training.survey import survey_rows
from support.data import make_group
from support.terms import register

N, SHOPS = 160, 8
RNG = np.random.default_rng(0)
SHOP = RNG.integers(0, SHOPS, N)
X = np.column_stack([RNG.normal(size=(N, 3)), RNG.integers(0, 4, N), SHOP]).astype(np.float32)
X[::7, 1] = np.nan
CODED = CodedFeatures((4,), (SHOPS + 2,))
NUMBERS = X[:, 0] + RNG.normal(size=N)
CLASSES, RARE = (NUMBERS > 0).astype(int), (np.argsort(np.argsort(NUMBERS)) > 0.93 * N).astype(int)
FEW: dict[str, Any] = {
    "landmarks": 6,
    "products": 4,
    "refine_steps": 5,
    "local_rows": 100,
    "min_leaf_rows": 10,
}


def fitted(X: np.ndarray, y: np.ndarray, coded: CodedFeatures = NOT_CODED, **values: Any) -> Model:
    task = "regression" if y.dtype.kind == "f" else "classification"
    settings = make_settings(in_effect({"task": task, **values}, task))
    survey = survey_rows(X, y, None, 0, task, settings.missing)
    classes = () if task == "regression" else tuple(survey.classes.tolist())
    return train_rows(X, y, np.ones(len(X)), np.empty(0), survey, settings, classes, coded=coded)


def of_entry(name: str, task: str) -> dict[str, Any]:
    """Settings like those of an entry of the portfolio, with four leaves in place of small ones."""
    values = dict(PORTFOLIO[name])
    own = {"n_leaves": 4 if values.pop("leaf_rows", 1) else 1, "gamma": values.pop("width", 1.0)}
    own["categorical"] = "3" if values.pop("codes", 0) else "none"
    near = {"products": 0, "leaf_scaling": False} if values.get("loss") == "distance" else {}
    return in_effect({**values, **own, **FEW, **near}, task)


CASES: dict[str, tuple[np.ndarray, dict[str, Any], CodedFeatures]] = {
    **{name: (CLASSES, of_entry(name, "classification"), NOT_CODED) for name in PORTFOLIO},
    **{
        f"{name}, numbers": (NUMBERS, of_entry(name, "regression"), NOT_CODED)
        for name in ("learned", "additive", "one leaf, quantiles", "one leaf, columns of codes, smooth")
    },
    "prior": (RARE, {"n_leaves": 4, "overlap": 2, **FEW}, NOT_CODED),
    "prior, learned": (RARE, {"n_leaves": 4, "scaling": "learned", **FEW}, NOT_CODED),
    "means": (CLASSES, {"n_leaves": 1, **FEW}, CODED),
    "means, leaves": (NUMBERS, {"n_leaves": 4, **FEW}, CODED),
    "overlap": (NUMBERS, {"n_leaves": 4, "overlap": 3, **FEW}, NOT_CODED),
    "imputed": (NUMBERS, {"n_leaves": 1, "missing": "impute", "feature_map": "additive", **FEW}, NOT_CODED),
    "term": (CLASSES, {"n_leaves": 4, "overlap": 2, **FEW}, NOT_CODED),
    "term, numbers": (NUMBERS, {"n_leaves": 4, **FEW}, NOT_CODED),
    "term, means": (NUMBERS, {"n_leaves": 1, "loss": "huber", **FEW}, CODED),
    "term, prior": (RARE, {"n_leaves": 4, **FEW}, NOT_CODED),
    "term, learned": (CLASSES, {"n_leaves": 4, "scaling": "learned", "loss": "logistic", **FEW}, NOT_CODED),
}


@pytest.mark.parametrize("case", CASES)
def test_held_out_rows_are_judged_by_nothing_that_knows_their_targets(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other targets of a fold change nothing that its rows are judged by."""
    y, settings, coded = CASES[case]
    if case.startswith("term"):
        register(monkeypatch)
    monkeypatch.setattr(learned_scaling, "_repetitions", lambda size: 1)
    seen: list[HeldOut] = []
    measured = in_memory.measured
    monkeypatch.setattr(in_memory, "measured", lambda *given: seen.append(given[2]) or measured(*given))
    own = np.flatnonzero(Folds(0).of(np.arange(N)) == 0)
    other = y.copy()
    other[own] = y[np.random.default_rng(1).permutation(own)]
    for target in (y, other):
        fitted(X, target, coded, **{"missing": "indicate", **settings})
    first, second = (held.take(held.part // 2 == 0) for held in seen)
    assert len(first.target) == len(own)
    for name in ("decision", "residual", "log_scale"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=1e-4, atol=1e-5)
    assert not np.array_equal(first.target, second.target)


@pytest.mark.parametrize("coded", [NOT_CODED, CODED])
@pytest.mark.parametrize("by_units", [False, True])
def test_terms_of_a_row_that_trains_know_neither_its_target_nor_those_of_the_fold(
    coded: CodedFeatures, by_units: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch)
    number, unit = np.arange(N), np.repeat(np.arange(5, dtype=np.uint16) * UNITS, N // 5)
    folds = Folds(0, unit=unit if by_units else None)
    rows, settings = np.nan_to_num(X), make_settings({"task": "regression", **FEW})
    survey = survey_rows(rows, NUMBERS, None, 0, "regression")

    def offsets(y: np.ndarray) -> list[np.ndarray]:
        weight, encoding = np.ones(N), None
        own = survey
        if coded:
            encoding = fit_to_rows(rows, y, weight, coded, survey, settings, folds=folds)
            own = encoding.survey(survey)
        sample = TargetSample(rows, y, weight, number, encoding, own, settings, np.empty(0), folds)
        fitted = sample.without_folds(sample.fit()[1], 2)
        assert len(fitted.every.terms) == 1
        again = Known.from_arrays(fitted.held[1].arrays())
        np.testing.assert_array_equal(again.crossed[0][0].weight, fitted.held[1].crossed[0][0].weight)
        return [fitted.columns_and_offset(rows, number, 1, fold)[1][:, 0] for fold in (None, 1)]

    before, group = offsets(NUMBERS), folds.groups(number)
    for changed in range(folds.n_groups):
        for offset, other in zip(before, offsets(np.where(group == changed, -NUMBERS, NUMBERS)), strict=True):
            if not coded:  # The means of other rows know it.
                np.testing.assert_array_equal(offset[group == changed], other[group == changed])
            rest = (group != changed) & (offset != other)
            if changed == folds.group_of(1) and offset is before[1]:
                assert not rest.any(), "nothing knows the fold"
            else:
                assert rest.mean() > 0.5


def probabilities(model: Model, X: np.ndarray) -> np.ndarray:
    return predictive_outputs.probabilities(model, score_with_leaves(model, X).decision)[:, 1]


NOISE: dict[str, tuple[int, int, float, dict[str, Any]]] = {
    "additive map": (
        500,
        25,
        0.3,
        {"feature_map": "additive", "scaling": "none", "n_leaves": 1, "landmarks": 32},
    ),
    "additive map, leaves": (400, 12, 0.3, {"feature_map": "additive", "scaling": "none", "n_leaves": 4}),
    "prior": (2_000, 10, 0.04, {"n_leaves": 8, "landmarks": 16}),
    "term": (300, 60, 0.3, {"n_leaves": 1, "landmarks": 16}),
    "term, leaves": (600, 60, 0.3, {"n_leaves": 4, "landmarks": 16}),
}


@pytest.mark.cases(2)
@pytest.mark.parametrize("case", NOISE)
def test_probabilities_of_noise_are_near_its_rate(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twentieth of rows with the highest was given 21 % of 4, and 62 % of 30."""
    n, d, rate, settings = NOISE[case]
    if case.startswith("term"):
        register(monkeypatch)
    over, excess = [], []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        y = (rng.random(n) < rate).astype(int)
        model = fitted(rng.normal(size=(n, d)), y, loss="logistic", **settings)
        p, share = probabilities(model, rng.normal(size=(5_000, d))).astype(float), y.mean()
        over.append(np.sort(p)[-250:].mean() / share)
        loss = -(rate * np.log(p) + (1 - rate) * np.log(1 - p)).mean()
        excess.append(loss + rate * np.log(share) + (1 - rate) * np.log(1 - share))
    assert np.mean(over) < 1.25 if rate > 0.1 else np.mean(over) < 2.0
    assert np.mean(excess) < 0.002


@pytest.mark.parametrize("map", ["none", "additive"])
def test_intervals_of_noise_hold_what_they_state(map: str) -> None:
    """They held 94.4 % without a map, and 86.5 % with one."""
    inside = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        given = {"feature_map": map, "scaling": "standard", "n_leaves": 1, "landmarks": 16, "products": 0}
        model = fitted(rng.normal(size=(400, 30)), rng.normal(size=400), **given)
        rows = score_with_leaves(model, rng.normal(size=(4_000, 30)), scale=True)
        given_rows = rows.decision[:, 0], rows.leaf, rows.log_scale, 0.1
        low, high = predictive_outputs.intervals(model, *given_rows).T
        y = rng.normal(size=4_000)
        inside.append(((low <= y) & (y <= high)).mean())
    assert 0.885 < np.mean(inside) < 0.93


def test_widths_are_those_of_the_residuals_that_were_held_out() -> None:
    """Leaves of fewer rows fit these more closely: σ of the final leaf, times t, was too wide."""
    rng = np.random.default_rng(0)
    off, n = rng.normal(size=399), 399
    held = HeldOut(np.zeros((n, 1)), off, np.ones(n), np.full(n, 0.5), np.full(n, 1e9), *np.zeros((2, n)))
    leaves, rows = [replace(some_leaf(), own_residual=np.array([0.8]))], np.array([532])
    whole = as_held_out(leaves, rows, held, None)
    found = as_held_out(leaves, rows, held, np.array([n]))
    assert whole[0].own_residual == pytest.approx(found[0].own_residual)
    intervals, _ = fit_intervals(found[0].own_residual, np.array([1e9]), held)
    assert intervals.spread[0] * intervals.at(0.1) == pytest.approx(np.sort(np.abs(off))[359])


def some_leaf() -> FittedLeaf:
    """A leaf of noise."""
    known = Known(Scaling(np.zeros(1), np.ones(1)), Kernels(*[Kernel("rbf", 1.0)] * 2), None)
    none = np.zeros(60, bool)
    rows = LeafRowsToFit(RNG.normal(size=(60, 1)), np.arange(60), RNG.normal(size=60), np.ones(60), none)
    settings = make_settings({"task": "regression", **FEW})
    return fit_and_judge(rows, 1, FittedToTargets(known, Folds(0)), settings, 0, 0)[0]


def test_a_threshold_is_chosen_by_rows_that_its_probabilities_do_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    n, part = 400, np.arange(400) % 8
    decision = rng.normal(size=(n, 1))
    y = (decision[:, 0] + rng.normal(size=n) > 0).astype(int)
    given = decision, y, np.ones(n), 2, np.empty(0), part, 30.0
    p = cross_calibrated(*given)
    other = cross_calibrated(decision, np.where(part == 3, 1 - y, y), *given[2:])
    np.testing.assert_array_equal(p[part == 3], other[part == 3])
    assert (p[part != 3] != other[part != 3]).all()
    seen: list[np.ndarray] = []
    choose = held_out.chosen_threshold
    monkeypatch.setattr(held_out, "chosen_threshold", lambda *a: seen.append(a[1]) or choose(*a))
    monkeypatch.setattr(
        held_out, "cross_calibrated", lambda *a: seen.append(cross_calibrated(*a)) or seen[-1]
    )
    fitted(X, CLASSES, n_leaves=1, missing="impute", threshold="f1", **FEW)
    assert seen[1] is seen[0]


WORKED: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
    "learned": (CLASSES, {"n_leaves": 1, "scaling": "learned"}),
    "learned, leaves": (NUMBERS, {"n_leaves": 4, "scaling": "learned"}),
    "prior": (RARE, {"n_leaves": 4}),
    "term": (CLASSES, {"n_leaves": 4, "overlap": 2}),
    "term, numbers": (NUMBERS, {"n_leaves": 1}),
}


@pytest.mark.cases(2)
@pytest.mark.parametrize("case", WORKED)
def test_leaves_in_memory_and_on_workers_are_measured_alike(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    y, settings = WORKED[case]
    if case.startswith("term"):
        register(monkeypatch)
    mine = fitted(X[:, 2:4], y, **settings, **FEW)
    task = "regression" if y.dtype.kind == "f" else "classification"
    data = make_group(tmp_path / "d.zarr", X[:, 2:4], y)
    own = in_effect({"task": task, **settings, **FEW}, task)
    train(data, tmp_path / "m", settings=own)
    stored = read_model(tmp_path / "m")
    if case.startswith("term"):
        assert [term.name for term in stored.terms] == ["linear"]
        np.testing.assert_array_equal(score_rows(stored, X[:, 2:4])[0], score_rows(mine, X[:, 2:4])[0])
    found = stored.uncertainty
    assert found is not None
    assert mine.uncertainty is not None
    if task == "regression":
        np.testing.assert_allclose(
            found.intervals.quantile, mine.uncertainty.intervals.quantile, rtol=1e-3, atol=1e-3
        )
    else:
        np.testing.assert_allclose(found.calibration.value, mine.uncertainty.calibration.value, rtol=1e-3)


def test_a_fold_that_shows_no_scaling_does_not_spoil_the_labels() -> None:
    """Rings of two of six features: whether a scaling can be learned of 1,100 rows is chance."""
    for seed, settings in ((2, {"scaling": "sharpened", "n_leaves": 4}), (2, {"scaling": "learned"})):
        X = np.random.default_rng(seed).normal(size=(4_500, 6))
        y = np.floor(2.0 * np.hypot(X[:, 0], X[:, 1])).astype(int) % 2
        model = DCPredClassifier(random_state=seed, **{"n_leaves": 1, **settings}).fit(X[:1_500], y[:1_500])
        assert model.score(X[1_500:], y[1_500:]) > 0.72, settings


@pytest.mark.parametrize("rates", [(0.4, 0.3, 0.3), (0.9, 0.07, 0.03)], ids=str)
@pytest.mark.parametrize("named", [{"n_leaves": 6}, {"n_leaves": 4, "feature_map": "additive"}], ids=str)
def test_noise_of_several_classes_has_their_shares(rates: Sequence[float], named: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(1_500, 12)), rng.choice(3, 1_500, p=rates)
    new = rng.normal(size=(4_000, 12))
    settings = Settings(**{key: named[key] for key in named if key == "feature_map"})
    model = DCPredClassifier(n_leaves=named["n_leaves"], settings=settings, random_state=0).fit(X, y)
    p = model.predict_proba(new)
    shares = np.bincount(y) / len(y)
    excess = np.log(p) @ rates - np.log(shares) @ rates  # of rows whose class is unknown
    assert -float(excess.mean()) < 0.001
    assert (model.predict(new) == p.argmax(axis=1)).all(), "the label is the likeliest class"
    assert (model.predict(new) == 0).mean() > 0.95
