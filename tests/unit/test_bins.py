"""Bins of features and scores, drift by them, and remarks on training rows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from dcpred.datasets import writing
from dcpred.datasets.importing import import_data
from dcpred.datasets.splitting import split
from dcpred.datasets.writing import Repeats, hashes_of_values
from dcpred.refreshing.limits import Limits
from dcpred_tasks.artifacts.model_checks import check_model
from dcpred_tasks.model.bins import Bins, fit_bins
from dcpred_tasks.model.compact_model import Reference, score_rows
from dcpred_tasks.result_fields import document_of
from dcpred_tasks.schema.column import Boolean, Codes, Date, Number
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.scoring.drift import binned, drift
from dcpred_tasks.scoring.drift_words import MISSING, NEVER_SEEN, bin_labels
from dcpred_tasks.scoring.labels import score_with_leaves
from dcpred_tasks.scoring.statistics import ScoredRows, Statistics
from dcpred_tasks.training.survey import survey_rows
from dcpred_tasks.training.training_remarks import training_remarks
from support.models import random_model

NO_SCORES = np.zeros((0, 1))
SCHEMA = Schema((Codes("channel", ("web", "shop", "phone")), Date("sold_on", ("day",)), Number("amount")))


def bins_of(X: Any, codes: dict[int, int] | None = None) -> Bins:
    return fit_bins(X, np.nanmin(X, axis=0), np.nanmax(X, axis=0), NO_SCORES, codes or {})


def plain_counts(bins: Bins, column: int, values: Any) -> np.ndarray:
    edges = bins.edges[column][:-1]
    found = np.zeros(len(edges) + 2, int)
    for value in values:
        found[-1 if np.isnan(value) else sum(edge <= value for edge in edges)] += 1
    return found


def test_counts_are_those_of_a_plain_count() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.lognormal(0, 2, 500), rng.integers(0, 3, 500), np.full(500, 0.1)])
    X[::7, 0] = np.nan
    bins = bins_of(X)
    new = np.vstack([X, [[1e9, 7, 0.2], [-1, -1, 0.0], [np.nan, 1.5, 0.1]]])
    found = bins.counts(new, NO_SCORES)
    for column, own in enumerate(bins.slots[:3]):
        assert_array_equal(found[own], plain_counts(bins, column, new[:, column]))
    shares = bins.rows[bins.slots[0]]
    assert len(shares) - 3 == 20
    assert shares[1:-2].min() > 15  # about equally many rows
    assert shares[-1] == np.isnan(X[:, 0]).sum()
    assert shares[0] == shares[-2] == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_that_went_through_single_precision_are_the_same(dtype: Any) -> None:
    X = np.full((200, 1), 0.1).astype(np.float32 if dtype == np.float64 else np.float64)
    bins = bins_of(X)
    assert_array_equal(bins.counts(X.astype(dtype), NO_SCORES), bins.rows)


def test_values_apart_keep_their_bins_beside_huge_ones() -> None:
    """Leaves without a class give −1e30."""
    values = np.append(np.linspace(0, 1, 500), np.full(500, -1e30))[:, None]
    bins = bins_of(values)
    assert (bins.rows > 0).sum() > 8


def test_frequent_values_have_a_bin_of_their_own() -> None:
    values = np.append(np.zeros(900), np.linspace(1, 100, 300))[:, None]
    bins = bins_of(values)
    assert 900 in bins.rows
    moved = np.where(values == 0, 0.5, values)
    assert binned(bins, bins.counts(moved, NO_SCORES))[0].psi > 1


def test_the_rarest_of_many_categories_share_bins() -> None:
    rng = np.random.default_rng(0)
    codes = np.minimum(rng.geometric(0.02, 5_000) - 1, 999).astype(float)[:, None]
    bins = bins_of(codes, {0: 1_002})
    assert len(bins.edges[0]) < 600
    new = np.vstack([codes, np.full((5, 1), 1_000.0), np.full((3, 1), 1_001.0)])
    assert bins.counts(new, NO_SCORES)[bins.slots[0]][-4:].tolist() == [5, 3, 0, 0]


def told(bins: Bins, X: Any, ignored: tuple[int, ...] = (), n_training: int = 4_000) -> dict[str, Any]:
    n = X.shape[1]
    reference = Reference(np.zeros(n), np.ones(n))
    rows = bins.counts(X, NO_SCORES)
    leaves = np.array([n_training]), np.array([len(X)])
    document: dict[str, Any] = document_of(drift(reference, reference, *leaves, bins, rows, ignored))
    return document


def test_one_leaf_is_enough_to_find_what_changed() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.lognormal(3, 1.3, 4_000), rng.integers(0, 3, 4_000), rng.normal(size=4_000)])
    bins = bins_of(X, {1: 5})
    new = np.column_stack([rng.lognormal(3, 1.3, 2_000), rng.integers(0, 3, 2_000), rng.normal(size=2_000)])
    same = told(bins, new)
    assert (same["large"], same["features"]["n_large"]) == (False, 0)
    changes: list[tuple[int, Any]] = [
        (0, lambda x: 20 * x),
        (0, lambda x: np.full_like(x, 20.0)),
        (1, lambda x: np.where(rng.random(len(x)) < 0.25, 3, x)),
        (2, lambda x: np.where(rng.random(len(x)) < 0.3, np.nan, x)),
    ]
    for feature, change in changes:
        other = new.copy()
        other[:, feature] = change(other[:, feature])
        found = told(bins, other)
        assert (found["large"], found["features"]["n_large"]) == (True, 1)
        assert found["features"]["top"][0]["feature"] == feature
        assert found["psi"] > 0.25
    few = new[:90] * [20, 1, 1]
    assert told(bins, few)["large"] is False  # too few to judge


def test_missing_values_that_a_model_refuses_are_drift() -> None:
    X = np.random.default_rng(0).normal(size=(900, 3))
    model = random_model(1, d=3)
    model = replace(model, bins=fit_bins(X, X.min(axis=0), X.max(axis=0), X[:, : model.n_outputs], {}))
    new = X.astype(np.float32)
    new[::2, 1] = np.nan
    found, rows = Statistics(model), score_with_leaves(model, new, score=score_rows)
    found.observe(ScoredRows(new, rows.decision, rows.status, rows.leaf, {}), np.arange(len(new)))
    by_column = [found.bin_rows[own] for own in model.bins.slots]
    assert [int(own[-1]) for own in by_column[:3]] == [0, 450, 0]
    assert [int(own.sum()) for own in by_column[:4]] == [900, 900, 900, 450]


def test_rows_beyond_training_are_counted_and_a_few_are_chance() -> None:
    X = np.linspace(0, 1, 4_000)[:, None]
    bins = bins_of(X)
    new = np.append(np.full(990, 0.5), np.full(10, 2.0))[:, None]
    (one,) = told(bins, new)["beyond"]
    assert (one["below"], one["above"], one["rows"], one["by_chance"]) == (0, 10, 1_000, False)
    (one,) = told(bins, np.append(np.full(999, 0.5), -1.0)[:, None])["beyond"]
    assert (one["below"], one["by_chance"]) == (1, True)
    assert told(bins, X)["beyond"] == []


def test_bins_are_told_in_the_words_of_the_table() -> None:
    assert bin_labels([-0.5, 0.5, 1.5, 2.5, 3.5, 4.5], SCHEMA, 0) == [
        *(NEVER_SEEN, "'web'", "'shop'", "'phone'"),
        *(NEVER_SEEN, MISSING, NEVER_SEEN, MISSING),
    ]
    assert bin_labels([18_000 - 0.02, 18_500, 19_000.02], SCHEMA, 1) == [
        *("below 2019-04-14", "2019-04-14 to 2020-08-26"),
        *("2020-08-26 to 2022-01-08", "above 2022-01-08", MISSING),
    ]
    assert bin_labels([1.0, 1.000001, 2.5], SCHEMA, 2)[1] == "1"


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([0.0, 21.0, 200.0], ["0", "21", "200"]),
        ([1.0, 2.5, 1_240.56], ["1", "2.5", "1240.56"]),
        ([-7.0, -1e-12, 365.0], ["-7", "-1e-12", "365"]),
        ([123_456.0, 1_234_567.0], ["123456", "1.23457e+06"]),
    ],
)
def test_bins_show_the_values_that_edges_lie_beside(values: list[float], wanted: list[str]) -> None:
    """A few values have a bin each. Of many the limits are those of training."""
    few = np.repeat(values, 3)[:, None]
    edges = bins_of(few).edges[0][:-1].tolist()
    assert bin_labels(edges, None, 0)[1:-2:2] == wanted
    many = np.append(np.linspace(values[0], values[-1], 4_000), values[-1])[:, None]
    edges = bins_of(many).edges[0][:-1].tolist()
    labels = bin_labels(edges, None, 0)
    assert labels[0] == f"below {wanted[0]}"
    assert labels[1].startswith(f"{wanted[0]} to ")
    assert labels[-2] == f"above {wanted[-1]}"


def test_bins_of_true_and_false_have_these_words() -> None:
    schema = Schema((Boolean("express"), Number("age")))
    edges = bins_of(np.array([[0.0], [1.0]] * 5)).edges[0][:-1].tolist()
    assert bin_labels(edges, schema, 0)[1::2] == ["false", "true", MISSING]
    assert bin_labels(edges, schema, 1)[1::2] == ["0", "1", MISSING]


def remarked(X: Any, y: Any, task: str = "classification", names: Any = None) -> list[str]:
    survey = survey_rows(X, y, None, 0, task)
    given = np.arange(len(X)), survey, names, None, tuple(survey.classes.tolist())
    return [f"{each.what}; {each.do}" for each in training_remarks(X, y, *given)]


def test_remarks_name_what_is_odd_and_nothing_that_is_sound() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_000, 4))
    y = (X[:, 0] + rng.normal(0, 0.7, 1_000) > 0).astype(int)
    assert remarked(X, y) == []
    assert remarked(X, X[:, 0] + rng.normal(0, 0.5, 1_000), "regression") == []
    assert remarked(X, np.sort(X[:, 0] + rng.normal(size=1_000)), "regression") == []  # rows in order
    odd = X.copy()
    odd[:, 1], odd[:, 2], odd[:, 3] = 7, np.arange(1_000) + 50, y
    classes = y.copy()
    classes[:4] = 2
    said = remarked(odd, classes, names=["amount", "site", "order", "chargeback"])
    for line, words in zip(
        said, ("'site' has the same", "'order' has ascending", "'chargeback' predicts"), strict=False
    ):
        assert words in line
    assert len(said) == 4
    assert "2 (4)" in said[3]
    assert "predicts" in remarked(X, np.exp(X[:, 2]), "regression")[0]
    rare = rng.random(1_000) < 0.3
    alike = np.column_stack([X[:, 0], rare ^ (np.arange(1_000) % 100 == 3)])
    assert "feature 1 predicts" in remarked(alike, rare.astype(int))[0], "99 % of rows agree"
    alike[:, 1] = rare ^ (np.arange(1_000) % 20 == 3)
    assert remarked(alike, rare.astype(int)) == []
    missing = X.copy()
    missing[y == 1, 1] = np.nan
    assert "feature 1 predicts" in remarked(missing, y)[0]


def test_repeats_are_counted_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.append(np.arange(20_000), np.arange(4_000))

    def counted() -> Repeats:
        found = Repeats()
        for part in np.array_split(values, 50):
            found.add(hashes_of_values(part))
        return found

    assert counted().repeated() == 4_000
    other = Repeats()
    other.add(hashes_of_values(np.arange(19_990, 30_000)))
    assert counted().rows_also_in(other) == 10
    monkeypatch.setattr(writing, "MOST_HASHES", 2_000)
    monkeypatch.setattr(writing, "WAITING", 1_000)
    found = counted()
    assert found.repeated() == pytest.approx(4_000, rel=0.15)
    assert len(found.hashes) == 2_000
    assert Repeats().repeated() == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: {"at": b.at + 1}, "bin_at does not ascend"),
        (lambda b: {"at": b.at[:-1]}, "bin_at does not ascend"),
        (lambda b: {"rows": -b.rows}, "bin_rows does not hold one number"),
        (lambda b: {"rows": b.rows[1:]}, "bin_rows does not hold one number"),
        (lambda b: {"edge": -b.edge}, "bin_edge does not ascend"),
        (lambda b: {"edge": b.edge * np.nan}, "bin_edge does not ascend"),
    ],
)
def test_bins_that_are_none_are_damage(change: Any, words: str) -> None:
    model = random_model(1, d=3)
    X = np.random.default_rng(0).normal(size=(300, 3))
    bins = fit_bins(X, X.min(axis=0), X.max(axis=0), X[:, : model.n_outputs], {})
    check_model(replace(model, bins=bins))
    with pytest.raises(ValueError, match=words):
        check_model(replace(model, bins=replace(bins, **change(bins))))


def test_a_limit_of_drift_holds_for_features_too() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4_000, 2))
    found = told(bins_of(X), X[:2_000] * [3, 1])
    manifest = {"status": {"1": 2_000}, "n_rows": 2_000, "drift": found}
    assert Limits().exceeded("r", manifest, {}) == []
    (said,) = Limits(max_drift=0.25).exceeded("r", manifest, {})
    assert "the stability index of feature 0 is" in said
    assert Limits(max_drift=9).exceeded("r", manifest, {}) == []
    (said,) = Limits(max_drift=9, max_shift=0.5).exceeded("r", manifest | {"drift": shifted(found)}, {})
    assert said.startswith("the shift of feature 1 is -0.70")


def test_a_feature_that_is_ignored_holds_no_run_back() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4_000, 2))
    later, limits = X[:2_000] + np.array([9, 0]), Limits(max_drift=0.25, max_shift=0.8, ignored=(0,))
    manifest = {"status": {"1": 2_000}, "n_rows": 2_000, "drift": told(bins_of(X), later)}
    assert Limits(max_drift=0.25).exceeded("r", manifest, {}) != []
    ignoring = manifest | {"drift": told(bins_of(X), later, (0,))}
    assert ignoring["drift"]["ignored_psi"] > 1
    assert [one["feature"] for one in ignoring["drift"]["features"]["top"]] == [1]
    moved = [one | {"name": "score", "psi": 2.0, "differs": True} for one in ignoring["drift"]["scores"]]
    ignoring["drift"]["scores"] = moved  # as a score does that depends on feature 0
    assert limits.exceeded("r", ignoring, {}) == []
    still = manifest | {"drift": told(bins_of(X), X[:2_000], (0,)) | {"scores": moved}}
    assert len(limits.exceeded("r", still, {})) == 1, "another reason than the ignored feature"
    far = manifest | {"drift": told(bins_of(X), later * [1, 20], (0,))}
    said = limits.exceeded("r", far, {})
    assert [one for one in said if "feature 1" in one] == said != []


def shifted(found: dict[str, Any]) -> dict[str, Any]:
    """The same, where the second of the features that are listed moved most by its mean."""
    first, second = found["features"]["top"]
    return found | {"features": {"n_large": 1, "top": [first, second | {"shift": -0.7}]}}


def test_ids_that_repeat_and_rows_in_both_parts_are_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"order": np.arange(400), "site": rng.integers(0, 9, 400), "a": rng.normal(size=400)}
    )
    frame["y"] = rng.integers(0, 2, 400)
    sound = import_data(frame, tmp_path / "sound.zarr", target="y", id=["order", "site"])
    assert sound.repeated_ids == {"order": 0, "site": 391}
    assert not sound.remarks
    assert split(str(tmp_path / "sound.zarr")).shared_rows == 0
    twice = pd.concat([frame, frame.head(60)])
    broken = import_data(twice, tmp_path / "broken.zarr", target="y", id="order")
    (repeated,) = broken.remarks
    assert "60 rows have a value of 'order' that an earlier row has" in repeated.what
    assert 5 < split(str(tmp_path / "broken.zarr")).shared_rows < 40
