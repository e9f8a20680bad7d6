"""Relations of features: columns that changed places, another sign, and values of other rows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr

import dcpred
from dcpred_tasks.artifacts.model_checks import check_model
from dcpred_tasks.model.bins import Bins, fit_bins
from dcpred_tasks.model.relations import (
    MOST_FEATURES,
    Relations,
    fit_relations,
    pairs_once,
    pairs_twice,
    rank_map,
)
from dcpred_tasks.scoring.drift_fields import RelationDrift
from dcpred_tasks.scoring.relation_changes import changed_relations
from support.models import random_model

NAMES = "t_in", "t_out", "p1", "p2", "load"


def sensors(n: int, seed: int) -> np.ndarray:
    """Two temperatures of one distribution, a load that follows one of them, and two pressures that agree."""
    x = np.random.default_rng(seed).normal(size=(n, 5))
    x[:, 3] = 0.9 * x[:, 2] + 0.44 * x[:, 3]
    x[:, 4] = 0.7 * x[:, 0] + 0.7 * x[:, 4]
    return x


def fitted(X: np.ndarray) -> tuple[Bins, Relations]:
    bins = fit_bins(X, np.nanmin(X, axis=0), np.nanmax(X, axis=0), np.zeros((0, 1)), {})
    relations = fit_relations(bins, X)
    assert relations is not None
    return bins, relations


def changed(known: np.ndarray, new: np.ndarray, without: Any = ()) -> RelationDrift | None:
    bins, relations = fitted(known)
    positions, ranks = bins.positions(new), rank_map(bins, relations)
    assert ranks is not None
    names = [*NAMES, *map(str, range(len(NAMES), known.shape[1]))]
    counts = bins.counted(positions), ranks.sums(positions)
    return changed_relations(bins, relations, *counts, names, without)


def places(X: np.ndarray) -> np.ndarray:
    return X[:, [1, 0, 2, 3, 4]]


def sign(X: np.ndarray) -> np.ndarray:
    return X * [1, 1, -1, 1, 1]


def other_rows(X: np.ndarray) -> np.ndarray:
    return np.column_stack([*X[:, :4].T, np.roll(X[:, 4], 1)])


@pytest.mark.parametrize(
    ("disaster", "cause", "features"),
    [
        (places, "places", {"t_in", "t_out"}),
        (sign, "sign", {"p1", "p2"}),
        (other_rows, "other rows", {"t_in", "load"}),
    ],
)
def test_what_keeps_distributions_is_found_by_its_cause(
    disaster: Any, cause: str, features: set[str]
) -> None:
    result = changed(sensors(1_500, 0), disaster(sensors(1_000, 1)))
    assert result is not None
    assert (result.cause, {*result.features}) == (cause, features)
    assert abs(result.top[0].training_correlation - result.top[0].correlation) > 0.5


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_a_part_of_the_rows_is_enough_where_columns_go_together_closely(share: float) -> None:
    known, new = sensors(4_000, 2), sensors(2_000, 3)
    for X in (known, new):
        X[:, 3] = X[:, 2] + 0.1 * X[:, 1]
    part = slice(int(share * len(new)))
    new[part, 3] = np.random.default_rng(4).permutation(new[:, 3])[part]
    result = changed(known, new)
    assert result is not None
    assert {"p1", "p2"} == {*result.top[0].features}


def test_rows_of_the_same_kind_do_not_differ() -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(60, 1_500)), int(rng.integers(2, 12))
        mixed = rng.normal(size=(d, d)) @ np.diag(rng.random(d))
        X = rng.normal(size=(2 * n, d)) @ mixed
        X[:, 0] = np.round(X[:, 0])
        X[:, -1] = np.where(rng.random(2 * n) < 0.8, 0, np.exp(3 * X[:, -1]))
        X[rng.random(2 * n) < 0.1, d // 2] = np.nan
        bins = fit_bins(X[:n], np.nanmin(X, axis=0), np.nanmax(X, axis=0), np.zeros((0, 1)), {})
        if fit_relations(bins, X[:n]) is not None:
            assert changed(X[:n], X[n:]) is None


def test_rows_whose_relations_wander_are_compared_with_quarters_of_the_training_rows() -> None:
    rng = np.random.default_rng(0)
    walks = np.cumsum(rng.normal(size=(4_000, 2)), axis=0)
    known = walks % 10
    known[:, 1] = np.where(np.arange(4_000) // 1_000 % 2, known[:, 0], -known[:, 0]) + rng.normal(size=4_000)
    assert changed(known, known[:500]) is None
    assert fitted(known)[1].span[0, 1] > 1


def test_missing_values_take_no_part() -> None:
    known, new = sensors(2_000, 5), sensors(2_000, 6)
    new[np.random.default_rng(7).random(new.shape) < 0.4] = np.nan
    assert changed(known, new) is None


def test_features_that_drift_are_left_out() -> None:
    assert changed(sensors(1_500, 0), sign(sensors(1_000, 1)), without={2}) is None


def test_correlations_are_those_of_ranks() -> None:
    X = sensors(3_000, 8)
    X[:, 1] = np.exp(X[:, 1])
    assert_allclose(fitted(X)[1].correlation + np.eye(5), spearmanr(X).statistic, atol=0.03)


def test_blocks_add_up() -> None:
    X = sensors(1_000, 9)
    bins, relations = fitted(X)
    ranks = rank_map(bins, relations)
    assert ranks is not None
    sums = ranks.sums(bins.positions(X))
    assert_array_equal(sum(ranks.sums(bins.positions(part)) for part in (X[:1], X[1:400], X[400:])), sums)
    assert_array_equal(pairs_twice(pairs_once(sums).ravel(), 5), sums)


def test_wide_rows_keep_the_features_that_relate_most() -> None:
    X = np.random.default_rng(0).normal(size=(400, 200))
    X[:, 150] = X[:, 50] + 0.1 * X[:, 150]
    features = fitted(X)[1].feature
    assert len(features) == MOST_FEATURES
    assert {50, 150} <= {*features.tolist()}


def test_too_few_rows_or_features_have_no_relations() -> None:
    for X in (sensors(99, 0), sensors(500, 0)[:, :1], np.zeros((500, 3))):
        bins = fit_bins(X, X.min(axis=0), X.max(axis=0), np.zeros((0, 1)), {})
        assert fit_relations(bins, X) is None


@pytest.mark.parametrize("feature", [[-1, 1], [0, 99], [1, 0]])
def test_damaged_relations_are_refused(feature: list[int]) -> None:
    model = random_model(0)
    X = np.random.default_rng(0).normal(size=(200, 2))
    relations = replace(fitted(X)[1], feature=np.array(feature))
    with pytest.raises(ValueError, match="relation_feature"):
        check_model(replace(model, relations=relations))


def test_score_and_evaluate_remark_on_columns_that_changed_places(tmp_path: Path) -> None:
    known, new = (pd.DataFrame(sensors(n, seed), columns=NAMES) for n, seed in ((1_500, 0), (1_000, 1)))
    for frame in (known, new):
        frame["price"] = 3 * frame.t_in + frame.p1 + 0.1 * frame.load
    swapped = new.rename(columns={"t_in": "t_out", "t_out": "t_in"})
    settings = {"n_leaves": 1, "landmarks": 8}
    dcpred.import_data(known, tmp_path / "known.zarr", target="price")
    dcpred.train(tmp_path / "known.zarr", tmp_path / "model", task="regression", settings=settings)
    for name, frame, is_heard in (("new", new, False), ("swapped", swapped, True)):
        dcpred.import_data(frame, tmp_path / f"{name}.zarr", like=str(tmp_path / "model"))
        score = dcpred.score(
            str(tmp_path / "model"), str(tmp_path / f"{name}.zarr"), tmp_path / f"{name}-out"
        )
        evaluation = dcpred.evaluate(tmp_path / "model", tmp_path / f"{name}.zarr", cost=False)
        for result in (score, evaluation):
            remarks = [each for each in result.remarks if each.code == "relations"]
            assert len(remarks) == is_heard
            assert all({"t_in", "t_out"} == {*each.columns} for each in remarks)
        assert ("relations" in score.manifest["drift"]) == is_heard
