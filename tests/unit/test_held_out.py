"""Rows that are held out of a second fit, and where the rows of a leaf lie: beside their definitions."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcpred_tasks.model import predictive_outputs
from dcpred_tasks.model.compact_model import Model, score_rows
from dcpred_tasks.model.contributions import importances, known_importances
from dcpred_tasks.model.leaf_arrays import model_arrays
from dcpred_tasks.model.uncertainty import DEFAULT_ALPHA, FEWEST_ROWS, LEVELS
from dcpred_tasks.scoring.labels import score_with_leaves
from dcpred_tasks.training import held_out
from dcpred_tasks.training.held_out import (
    FOLDS,
    PRIOR_NEIGHBOURS,
    at_rates,
    folds_of_leaves,
    nearness_of,
    own_place,
)
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.settings import Settings, make_settings
from dcpred_tasks.training.survey import survey_rows
from support.data import make_blobs

EVEN, RARE = np.array([50.0, 50.0]), np.array([99.0, 1.0])
SETTINGS = make_settings({"n_leaves": 8, "landmarks": 6, "products": 4, "refine_steps": 20, "overlap": 2})
NUMBERS = replace(SETTINGS, task="regression")


def trained(X: np.ndarray, y: np.ndarray, settings: Settings, weight: np.ndarray | None = None) -> Model:
    weight = np.ones(len(X)) if weight is None else weight
    survey = survey_rows(X, y, None, 0, settings.task)
    classes = () if settings.task == "regression" else tuple(survey.classes.tolist())
    return train_rows(X, y, weight, np.empty(0), survey, settings, classes)


def noisy(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers whose noise grows along a feature."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2)).astype(np.float32)
    return X, np.sin(2 * X[:, 0]) + (0.05 + 0.5 * (X[:, 1] > 0)) * rng.normal(size=n)


# -- which rows ----------------------------------------------------------------------------------------------


def test_of_few_rows_all_leaves_are_judged_and_of_many_a_draw_of_them() -> None:
    few = folds_of_leaves(np.full(4, 100), 1, SETTINGS, EVEN)
    assert (few == FOLDS).all()
    medium = folds_of_leaves(np.full(10, 1_000), 1, SETTINGS, EVEN)
    assert (medium == 1).all()
    many = folds_of_leaves(np.full(1_000, 1_000), 1, SETTINGS, EVEN)
    assert set(many.tolist()) == {0, 1}
    assert many.sum() == 20  # 5,000 rows that are a quarter of these leaves'
    assert not np.array_equal(many, np.sort(many)[::-1]), "they are drawn"
    assert not np.array_equal(
        many, folds_of_leaves(np.full(1_000, 1_000), 1, replace(SETTINGS, seed=1), EVEN)
    )


def test_of_a_rare_class_more_rows_are_held_out() -> None:
    """Of a class of 1 % a quarter of 4,000 rows has ten, and 5,000 rows of many have fifty."""
    assert (folds_of_leaves(np.full(4, 1_000), 1, SETTINGS, EVEN) == 1).all()
    assert (folds_of_leaves(np.full(4, 1_000), 1, SETTINGS, RARE) == FOLDS).all()
    many = np.full(1_000, 1_000)
    assert (
        folds_of_leaves(many, 1, SETTINGS, RARE).sum() == 10 * folds_of_leaves(many, 1, SETTINGS, EVEN).sum()
    )


def test_rare_classes_are_held_out_at_their_rates() -> None:
    weight, target = np.array([1.0, 2.0, 1.0, 1.0]), np.array([0, 0, 0, 1])
    found = at_rates(weight, target, np.array([95.0, 5.0]))
    np.testing.assert_allclose(np.bincount(target, found), [4.75, 0.25])
    np.testing.assert_allclose(found[1] / found[0], 2.0)
    assert at_rates(weight, target, np.array([80.0, 20.0])) is weight
    assert np.isfinite(at_rates(weight[:3], target[:3], np.array([95.0, 5.0]))).all()


def test_of_hardly_any_row_none_is_held_out_and_without_calibration_none_at_all() -> None:
    assert not folds_of_leaves(np.array([FEWEST_ROWS - 1]), 1, SETTINGS, EVEN).any()
    assert folds_of_leaves(np.array([FEWEST_ROWS]), 1, SETTINGS, EVEN).any()
    assert not folds_of_leaves(np.full(10, 1_000), 1, replace(SETTINGS, calibrate=False), EVEN).any()


def test_more_rows_are_held_out_for_a_rare_class_of_several() -> None:
    """As of two classes; and not of ever more leaves, however rare it is."""
    one = np.array([3_000])
    assert folds_of_leaves(one, 3, SETTINGS, np.array([1_500.0, 1_000, 500])).tolist() == [1]
    for rare in (30.0, 3.0):
        assert folds_of_leaves(one, 3, SETTINGS, np.array([2_700 - rare, 300, rare])).tolist() == [FOLDS]
    leaves, many = np.full(1_000, 1_000), np.array([9e5, 1e5])
    fitted = [
        np.count_nonzero(folds_of_leaves(leaves, 3, SETTINGS, np.append(many, rare))) for rare in (1e4, 10)
    ]
    assert fitted[0] == fitted[1] <= 200


def test_of_very_many_classes_fewer_rows_are_held_out() -> None:
    leaves = np.full(1_000, 1_000)
    assert (
        folds_of_leaves(leaves, 5_000, SETTINGS, EVEN).sum()
        < folds_of_leaves(leaves, 100, SETTINGS, EVEN).sum()
    )


# -- what it does not change ---------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [SETTINGS, NUMBERS], ids=["classes", "numbers"])
def test_the_model_itself_is_the_same_without(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """And without, no leaf is fitted twice."""
    data = make_blobs(600, n_features=4, n_classes=2, seed=0)
    y = data.X[:, 0].astype(float) if settings is NUMBERS else data.y
    sure = trained(data.X, y, settings)
    fits: list[int] = []
    real = held_out.fit_leaf

    def counted(*args: object) -> object:
        fits.append(1)
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(held_out, "fit_leaf", counted)
    monkeypatch.setattr(held_out, "own_place", None)
    plain = trained(data.X, y, replace(settings, calibrate=False))
    assert plain.uncertainty is None
    assert len(fits) == plain.n_leaves
    assert sure.uncertainty is not None
    for name in {*model_arrays(Model), "leaf_rows"} - {"intercept"}:
        np.testing.assert_array_equal(getattr(sure, name), getattr(plain, name))
    moved = (sure.intercept - plain.intercept).astype(np.float64)
    np.testing.assert_allclose(moved, np.full_like(moved, moved[0]), atol=1e-6)  # of every leaf alike
    assert settings is not NUMBERS or not moved.any()


# -- what it promises ----------------------------------------------------------------------------------------


def test_probabilities_of_test_rows_are_near_what_is_so() -> None:
    """Classes overlap, so that most rows are unsure."""
    data = make_blobs(4_000, n_features=3, n_classes=2, seed=1)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(4_000) < 0.2, 1 - data.y, data.y)
    model = trained(data.X[:2_000], y[:2_000], SETTINGS)
    decision, _ = score_rows(model, data.X[2_000:])
    p = predictive_outputs.probabilities(model, decision)[:, 1]
    for low, high in ((0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1)):
        inside = (p >= low) & (p < high)
        if inside.sum() > 100:
            assert y[2_000:][inside].mean() == pytest.approx(p[inside].mean(), abs=0.1)
    assert 0.1 < p.min() < 0.3
    assert 0.7 < p.max() < 0.9


def test_intervals_of_test_rows_hold_what_they_say_and_are_wide_where_noise_is() -> None:
    X, y = noisy(4_000, 0)
    model = trained(X[:2_500], y[:2_500], NUMBERS)
    rows = score_with_leaves(model, X[2_500:], scale=True)
    for alpha, off in ((DEFAULT_ALPHA, 0.03), (0.5, 0.05)):
        bounds = predictive_outputs.intervals(model, rows.decision[:, 0], rows.leaf, rows.log_scale, alpha)
        inside = (bounds[:, 0] <= y[2_500:]) & (y[2_500:] <= bounds[:, 1])
        assert inside.mean() == pytest.approx(1 - alpha, abs=off)
    width, loud = bounds[:, 1] - bounds[:, 0], X[2_500:, 1] > 0
    assert width[loud].mean() > 2 * width[~loud].mean()


def test_novelty_of_test_rows_is_even_and_of_others_near_one() -> None:
    data = make_blobs(4_000, n_features=4, n_classes=3, seed=0)
    model = trained(data.X[:2_000], data.y[:2_000], SETTINGS)

    def novelty(X: np.ndarray) -> np.ndarray:
        leaves = np.empty(len(X), np.int32)
        near, _ = score_rows(predictive_outputs.typicality_model(model), X, leaves=leaves)
        return predictive_outputs.novelty(model, near[:, 0], leaves)

    known = novelty(data.X[2_000:])
    for share in (0.1, 0.5, 0.9, 0.95):
        assert (known <= share).mean() == pytest.approx(share, abs=0.04)
    assert novelty(data.X[2_000:] + 50).min() == 1
    box = np.random.default_rng(0).uniform(data.X.min(axis=0), data.X.max(axis=0), (500, 4))
    assert np.median(novelty(box.astype(np.float32))) > 0.9


def test_a_row_counts_as_its_weight_says() -> None:
    """Half of all rows say the opposite, at a hundredth of the weight."""
    data = make_blobs(1_000, n_features=2, n_classes=2, seed=3)
    y = np.where(np.arange(1_000) % 2, data.y, 1 - data.y)
    model = trained(data.X, y, SETTINGS, np.where(np.arange(1_000) % 2, 1.0, 0.01))
    decision, _ = score_rows(model, data.X)
    p = predictive_outputs.probabilities(model, decision)
    assert p[np.arange(1_000), data.y].mean() > 0.8


# -- where the rows of a leaf lie ----------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(2, 40))
def test_the_place_of_a_leaf_is_that_of_its_rows_each_seen_from_the_others(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, 3)) * [1, 5, 0 if seed % 2 else 0.1] + 2).astype(np.float32)
    place = own_place(X)
    r = []
    for i in range(n):
        others = np.delete(X.astype(float), i, axis=0)
        mean, squares = others.mean(axis=0), ((others - others.mean(axis=0)) ** 2).sum(axis=0)
        least = 1e-3 * ((X - X.mean(axis=0, dtype=float)) ** 2).sum(axis=0).mean() / n
        prior = max(squares.mean() / (n - 1), least)
        r.append(
            np.sqrt(
                (
                    ((X[i] - mean) ** 2) / ((squares + PRIOR_NEIGHBOURS * prior) / (n - 1 + PRIOR_NEIGHBOURS))
                ).sum()
            )
        )
    scale = np.median(place.factor[0] * np.sqrt(_variance(X)[0]))
    near = np.sort(nearness_of(scale * np.array(r)))[::-1]
    edge = np.interp(LEVELS, np.arange(1, n + 1) / (n + 1), near)
    np.testing.assert_allclose(place.edge, edge, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(place.factor, scale / np.sqrt(_variance(X)), rtol=1e-4)
    np.testing.assert_allclose(place.point, X.mean(axis=0, dtype=float) * place.factor, rtol=1e-4, atol=1e-4)


def _variance(X: np.ndarray) -> np.ndarray:
    squares = ((X - X.mean(axis=0, dtype=float)) ** 2).sum(axis=0)
    found = (squares + PRIOR_NEIGHBOURS * squares.mean() / len(X)) / (len(X) + PRIOR_NEIGHBOURS)
    return np.where(found > 0, found, 1.0)


@pytest.mark.parametrize(
    "X", [np.zeros((1, 3)), np.zeros((5, 3)), np.full((3, 2), 1e18), np.eye(3) * 1e-15], ids=str
)
def test_rows_of_which_little_can_be_said_have_a_place(X: np.ndarray) -> None:
    place = own_place(X.astype(np.float32))
    assert (place.factor > 0).all()
    assert all(np.isfinite(a).all() for a in vars(place).values())
    assert (np.diff(place.edge) <= 0).all()


# -- importances ---------------------------------------------------------------------------------------------


def test_importances_are_the_shares_of_squared_distances_between_training_rows() -> None:
    """With coded features, whose columns count together."""
    rng = np.random.default_rng(0)
    codes = rng.choice([1, 4, 7], 2_000, p=[0.6, 0.3, 0.1])
    X = np.column_stack([rng.normal(size=2_000) * 3, codes, rng.uniform(size=2_000)]).astype(np.float32)
    y = ((X[:, 0] > 0) ^ (codes == 4)).astype(int)
    settings = replace(SETTINGS, scaling="standard", categorical="1", n_leaves=1)
    model = trained(X, y, settings)
    assert model.scaling.coding is not None
    one, other = (model.scaling.exact(X[rng.permutation(2_000)]) for _ in range(2))
    squares = ((one - other) ** 2).mean(axis=0)
    plain = np.bincount(model.scaling.source, squares, 3)
    np.testing.assert_allclose(importances(model), plain / plain.sum(), atol=0.02)
    np.testing.assert_array_equal(known_importances(model), importances(model))
    unsure = replace(model, uncertainty=None)
    with pytest.raises(AttributeError, match=r"lacks the frequencies of categories\. Train it again"):
        importances(unsure)
    assert known_importances(unsure)[1] == 0
    assert known_importances(unsure).sum() == pytest.approx(1)
