"""Contributions of features to decision values: against the sum over all subsets of features, and along the
path of integrated gradients; what a model keeps for them, and what each door shows.
"""

import copy
import itertools
import math
import pickle
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dcpred import DCPredClassifier, DCPredRegressor, Settings, contributions, explain, load_model
from dcpred.cli.explain_command import WIDTH, explained
from dcpred.evaluation.explanation import explain_rows
from dcpred_tasks.artifacts.model_artifact import open_artifact, read_model, write_model
from dcpred_tasks.errors import DataError, ModelFormatError
from dcpred_tasks.model.compact_model import Model, class_numbers, leaf_values
from dcpred_tasks.model.contributions import average, is_exact, mean_contributions, part_names, parts_of
from dcpred_tasks.model.contributions import contributions as contributions_of
from dcpred_tasks.model.leaf_arrays import Background, Parts
from dcpred_tasks.model.target_encoding import TargetEncoding
from dcpred_tasks.scoring.labels import score_with_leaves
from support.models import random_model, random_rows

N_ROWS, N_BACKGROUND = 6, 3


def with_background(model: Model, seed: int = 0) -> Model:
    """The model with a few rows of its own in each leaf."""
    rows = model.scaling(random_rows(model, N_BACKGROUND * model.n_leaves, seed))
    rows[~np.isfinite(rows)] = 0.0
    return replace(model, background=Background(np.arange(model.n_leaves + 1) * N_BACKGROUND, rows))


def encoded(model: Model) -> Model:
    """The model with a first feature whose codes become three means of the target."""
    table = np.random.default_rng(0).normal(size=(6, 3))
    n = model.scaling.n_features - 2
    targets = TargetEncoding(n, np.array([0]), np.array([0, 6]), table)
    return replace(model, scaling=replace(model.scaling, targets=targets))


# kernel, scaling, further arguments: ten models of up to 12 features
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "products": ("rbf", "standard", {"d": 12}),
    "laplacian": ("laplacian", "standard", {"d": 8}),
    "leaves of their own scales": ("rbf", "standard", {"d": 7, "leaf_scaling": True}),
    "some features left out": ("rbf", "few", {"d": 9}),
    "codes": ("rbf", "coded", {"d": 12}),
    "missing": ("laplacian", "gaps", {"d": 10}),
    "codes and missing": ("rbf", "coded gaps", {"d": 12}),
    "quantiles": ("rbf", "quantile coded gaps", {"d": 9}),
    "clipped": ("laplacian", "clip gaps", {"d": 9}),
    "means of the target": ("rbf", "standard", {"d": 8}),
}


def made(name: str, n_outputs: int = 1) -> Model:
    kernel, scaling, more = CASES[name]
    model = random_model(3, kernel, scaling=scaling, n_outputs=n_outputs, depth=1, sizes=(0, 7, 17), **more)
    model = with_background(model)
    return encoded(model) if "target" in name else model


def rows_of(model: Model) -> tuple[np.ndarray, Any]:
    if model.scaling.targets is None:
        X = random_rows(model, N_ROWS, 5)
    else:
        X = random_rows(replace(model, scaling=model.scaling.of_encoded), N_ROWS, 5)[:, : model.n_features]
        X[:, 0] = [0, 1, 2, 3, 77, 5]
    return X, score_with_leaves(model, X)


def inside_out(model: Model, leaf: int, rows: np.ndarray) -> np.ndarray:
    """Decision values of scaled rows in a leaf, without its bounds."""
    return leaf_values(replace(model, bounds=np.empty((model.n_leaves, 0))), leaf, rows)


def brute_force(model: Model, parts: Parts, leaf: int, row: np.ndarray, output: int) -> np.ndarray:
    """Shapley values by the sum over all subsets of parts."""
    assert model.background is not None
    column, d = parts.of_feature[model.scaling.source], len(parts.names)
    background = model.background.of(leaf).astype(float)
    subsets = list(itertools.product([False, True], repeat=d))
    of_row = np.array(subsets)[:, column]
    mixed = np.where(of_row[:, None], row, background[None]).reshape(-1, len(row))
    values = inside_out(model, leaf, mixed)[:, output].reshape(len(subsets), -1).mean(axis=1)
    place = {subset: i for i, subset in enumerate(subsets)}
    phi = np.zeros(d)
    for subset, value in zip(subsets, values, strict=True):
        size = sum(subset)
        for i in range(d):
            if not subset[i]:
                share = math.factorial(size) * math.factorial(d - 1 - size) / math.factorial(d)
                phi[i] += share * (values[place[(*subset[:i], True, *subset[i + 1 :])]] - value)
    return phi


@pytest.mark.parametrize("name", CASES)
def test_they_are_the_sum_over_all_subsets(name: str) -> None:
    model = made(name, n_outputs=3 if name == "products" else 1)
    parts = parts_of(model)
    X, rows = rows_of(model)
    found = contributions_of(model, X, rows.decision, rows.leaf)
    compared = [i for i in np.flatnonzero(rows.status == 1) if np.diff(model.landmark_at)[rows.leaf[i]]]
    assert len(compared) >= 2
    for i in compared[:2]:
        leaf, output = int(rows.leaf[i]), int(class_numbers(rows.decision)[i]) if model.n_outputs > 1 else 0
        right = brute_force(model, parts, leaf, model.scaling.exact(X[i : i + 1])[0], output)
        np.testing.assert_allclose(found[i, :-2], right, atol=1e-9 * (1 + np.abs(right).sum()))
        assert np.abs(right).max() > 0


@pytest.mark.parametrize("name", CASES)
def test_they_sum_to_the_decision_and_the_leaf_is_the_rest(name: str) -> None:
    model = made(name)
    X, rows = rows_of(model)
    X[0] = np.inf
    rows = score_with_leaves(model, X, reasons=True)
    assert np.isnan(rows.contributions[0]).all()
    sums = rows.contributions.sum(axis=1)
    good = rows.status == 1
    np.testing.assert_allclose(sums[good], rows.decision[good, 0], rtol=1e-6, atol=1e-6)
    assert model.background is not None
    for i in np.flatnonzero(good):
        mean = inside_out(model, rows.leaf[i], model.background.of(rows.leaf[i])).mean()
        np.testing.assert_allclose(rows.contributions[i, -2], mean - average(model)[0], atol=1e-4)


def test_the_average_is_that_of_leaves_by_their_rows_and_bounds_are_the_leafs_part() -> None:
    model = with_background(random_model(1, task="regression", sizes=(7,), depth=1))
    model = replace(model, leaf_rows=np.arange(1, model.n_leaves + 1))
    assert model.background is not None
    means = [leaf_values(model, k, model.background.of(k)).mean() for k in range(model.n_leaves)]
    assert average(model)[0] == pytest.approx(np.average(means, weights=model.leaf_rows))
    free = replace(model, bounds=np.tile([-1e9, 1e9], (model.n_leaves, 1)))
    X = random_rows(model, 40, 0)
    bound, unbound = (score_with_leaves(one, X, reasons=True) for one in (model, free))
    taken = bound.decision[:, 0] - unbound.decision[:, 0]
    assert np.abs(taken).max() > 0
    np.testing.assert_allclose(bound.contributions[:, :-2], unbound.contributions[:, :-2], atol=1e-9)
    other = bound.contributions[:, -2] - unbound.contributions[:, -2] - taken
    np.testing.assert_allclose(other, (average(free) - average(model))[0], rtol=1e-6)


def test_many_features_take_as_many_nodes_as_they_need() -> None:
    """Half of 40 features have factors near (1, 0), which few nodes integrate badly."""
    model = with_background(random_model(2, d=40, depth=0, sizes=(7,), scaling="none"))
    model = replace(model, gamma=np.full(7, 1.0, np.float32), pairs=model.pairs[:0], pair_at=np.zeros(2, int))
    model = replace(model, beta=np.asarray(model.beta)[:7], beta_at=np.array([0, 7]))
    X = model.landmarks[:2] + np.where(np.arange(40) % 2, 0.01, 0.3)
    rows = score_with_leaves(model, X, reasons=True)
    order = np.random.default_rng(0).permutation(40)
    shuffled = replace(
        model,
        landmarks=model.landmarks[:, order],
        background=Background(model.background.at, model.background.rows[:, order]),  # type: ignore[union-attr]
    )
    again = score_with_leaves(shuffled, X[:, order], reasons=True)
    np.testing.assert_allclose(again.contributions[:, :-2], rows.contributions[:, order], atol=1e-9)
    # Owen's integral by 200 nodes, one factor after the other.
    t, share = np.polynomial.legendre.leggauss(200)
    a, c = (
        np.exp(-((one[:, None] - model.landmarks.astype(float)) ** 2)) for one in (X, shuffledless(model))
    )
    right = np.zeros(40)
    for at, weight in zip((t + 1) / 2, share / 2, strict=True):
        mixed = at * a[0] + (1 - at) * c
        others = mixed.prod(axis=-1, keepdims=True) / mixed
        right += (
            weight
            * np.einsum("bjd,j->d", (a[0] - c) * others, np.asarray(model.beta)[:, 0].astype(float))
            / len(c)
        )
    np.testing.assert_allclose(rows.contributions[0, :-2], right, atol=1e-10)


def shuffledless(model: Model) -> np.ndarray:
    assert model.background is not None
    return model.background.rows.astype(float)


@pytest.mark.parametrize(
    ("kernel", "triangle"),
    [("polynomial", None), ("matern32", None), ("matern52", None), ("rbf", "lower"), ("laplacian", "upper")],
)
def test_other_kernels_have_integrated_gradients(kernel: str, triangle: str | None) -> None:
    """By differences along a path of many steps."""
    model = with_background(random_model(4, kernel, d=4, depth=1, sizes=(7,), triangle=triangle))
    assert not is_exact(model)
    X = random_rows(model, 4, 9)
    rows = score_with_leaves(model, X, reasons=True)
    assert model.background is not None
    np.testing.assert_allclose(rows.contributions.sum(axis=1), rows.decision[:, 0], rtol=1e-6, atol=1e-6)
    at, step = (np.arange(500) + 0.5) / 500, 1e-5
    for i, row in enumerate(model.scaling.exact(X)):
        leaf, right = int(rows.leaf[i]), np.zeros(4)
        for start in model.background.of(leaf).astype(float):
            path = start + at[:, None] * (row - start)
            for j in range(4):
                off = np.eye(4)[j] * step
                rise = inside_out(model, leaf, path + off) - inside_out(model, leaf, path - off)
                right[j] += (row - start)[j] * rise.mean() / (2 * step) / N_BACKGROUND
        loose = 0.05 if triangle else 1e-3  # Triangle points have kinks.
        np.testing.assert_allclose(rows.contributions[i, :4], right, atol=loose * (1 + np.abs(right).sum()))


def test_parts_join_features_of_one_column() -> None:
    model = made("products")
    parts = Parts(("a", "b", "c"), tuple(int(i) for i in np.arange(12) % 3))
    X, rows = rows_of(model)
    found = contributions_of(model, X, rows.decision, rows.leaf, parts=parts)
    i = next(i for i in range(N_ROWS) if np.diff(model.landmark_at)[rows.leaf[i]])
    right = brute_force(model, parts, int(rows.leaf[i]), model.scaling.exact(X[i : i + 1])[0], 0)
    np.testing.assert_allclose(found[i, :3], right, atol=1e-9 * (1 + np.abs(right).sum()))
    assert part_names(replace(model, parts=Parts(("leaf", "b", "c"), parts.numbers)))[-2:] == (
        "leaf of the model",
        "average",
    )


# -- what a model keeps --------------------------------------------------------------------------------------


def test_background_is_written_read_checked_and_hashed(tmp_path: Path) -> None:
    model = made("codes")
    assert model.background is not None
    hashes = {
        write_model(tmp_path / "m", model, {}, {}),
        write_model(tmp_path / "w", replace(model, background=None), {}, {}),
    }
    back = read_model(tmp_path / "m").background
    assert back is not None
    np.testing.assert_array_equal(back.rows, model.background.rows)
    np.testing.assert_array_equal(back.at, model.background.at)
    assert read_model(tmp_path / "w").background is None
    other = replace(model, background=Background(back.at, back.rows + np.float32(1)))
    assert len({*hashes, write_model(tmp_path / "o", other, {}, {})}) == 3
    odd = replace(model, background=Background(back.at, np.full_like(back.rows, np.inf)))
    write_model(tmp_path / "odd", odd, {}, {})
    with pytest.raises(ModelFormatError, match="background_rows"):
        read_model(tmp_path / "odd")


def test_a_model_without_background_compares_with_its_landmarks() -> None:
    model = made("laplacian")
    X, rows = rows_of(model)
    without = replace(model, background=None)
    of_landmarks = replace(model, background=Background(model.landmark_at, model.landmarks))
    found, right = (contributions_of(one, X, rows.decision, rows.leaf) for one in (without, of_landmarks))
    np.testing.assert_allclose(found, right, atol=1e-9)
    sizes = (mean_contributions(one, parts_of(one)) for one in (without, of_landmarks))
    np.testing.assert_allclose(*sizes)


# -- doors ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng, n = np.random.default_rng(0), 400
    return pd.DataFrame(
        {
            "amount": np.exp(rng.normal(6, 1, n)).round(2),
            "merchant": rng.choice(["M1", "M17", None], n),
            "when": pd.date_range("2024-01-01", periods=n, freq="7h"),
            "vip": rng.random(n) < 0.5,
            "noise": rng.normal(size=n),
        }
    )


@pytest.fixture(scope="module")
def fitted(table: pd.DataFrame) -> DCPredClassifier:
    y = np.where((np.log(table["amount"]) > 6) ^ (table["merchant"] == "M17"), "fraud", "fine")
    return DCPredClassifier(n_leaves=2, landmarks=16, random_state=1, missing="indicate").fit(table, y)


def test_a_row_is_explained_in_the_words_of_the_table(fitted: DCPredClassifier, table: pd.DataFrame) -> None:
    found = explain(fitted, table, range(40))
    for i, one in enumerate(found):
        assert [part.part for part in one.contributions] == sorted(
            (part.part for part in one.contributions), key=lambda part: -abs(part)
        )
        told = {part.name: part.value for part in one.contributions}
        assert told.keys() == {*table.columns}
        assert told["amount"] == table["amount"][i]
        assert told["merchant"] == (None if pd.isna(table["merchant"][i]) else table["merchant"][i])
        assert told["when"] == str(table["when"][i]).removesuffix(" 00:00:00")
        assert told["vip"] == str(table["vip"][i]).lower()
        assert one.average is not None
        assert one.leaf_part is not None
        total = one.average + one.leaf_part + sum(part.part for part in one.contributions)
        assert total == pytest.approx(one.decision, abs=1e-6)
        assert (one.direction, one.method, one.landmarks) == ("fraud", "Shapley values", [])
    missing = next(i for i in range(40) if pd.isna(table["merchant"][i]))
    assert "merchant missing → " in str(found[missing])
    text = explained(found)
    assert "missing" in text
    assert "decision value for fraud" in text
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert repr(found).count("\n") == 39
    assert found._repr_html_().count("<table>") == 40
    assert "M17" in found._repr_html_()


def test_models_are_explained_alike_in_memory_and_stored(
    fitted: DCPredClassifier, table: pd.DataFrame, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "m")
    one, other = contributions(fitted, table[:20]), contributions(load_model(tmp_path / "m"), table[:20])
    np.testing.assert_array_equal(one.values, other.values)
    assert one.feature_names == other.feature_names == [*table.columns, "leaf"]
    np.testing.assert_allclose(
        one.values.sum(axis=1) + one.base_values, fitted.decision_function(table[:20]), atol=1e-6
    )
    assert part_names(open_artifact(tmp_path / "m").model()) == (*table.columns, "leaf", "average")
    assert "Shapley values" in repr(one)
    assert one.display_data[0, 1] == table["merchant"][0] == "M17"


def test_shap_takes_them(
    fitted: DCPredClassifier, table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plots of shap ask for an instance of its class, and index it in ways that it knows."""
    one = contributions(fitted, table[:20])
    with pytest.raises(TypeError, match="indexed by rows"):
        one[..., 0]

    class Explanation:
        def __init__(self, *given: Any, **more: Any) -> None:
            self.given, self.more = given, more

        def __getitem__(self, index: Any) -> tuple[Any, ...]:
            return ("of shap", index, self.given[0].shape, self.more["feature_names"])

    package = ModuleType("shap")
    package.Explanation = Explanation  # type: ignore[attr-defined]
    assert not isinstance(one, Explanation)
    monkeypatch.setitem(sys.modules, "shap", package)
    assert isinstance(one, Explanation)
    assert isinstance(one[3], Explanation)
    assert (one[3].shape, one[:4].shape, len(one)) == ((6,), (4, 6), 20)
    assert one[..., 0] == ("of shap", (..., 0), (20, 6), one.feature_names)
    assert one.given[1] is one.base_values
    with pytest.raises(AttributeError):
        one.nothing  # noqa: B018
    for again in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
        np.testing.assert_array_equal(again.values, one.values)
        assert (type(again), again.feature_names, again.method) == (type(one), one.feature_names, one.method)


def test_a_category_that_training_did_not_know_is_no_category(
    fitted: DCPredClassifier, table: pd.DataFrame
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # All of these are new.
        [one] = explain(fitted, table[:1].assign(merchant="others"))
        found = contributions(fitted, table[:1].assign(merchant="others"))
    assert "merchant never seen in training → " in str(one)
    assert found.display_data[0, found.feature_names.index("merchant")] == "never seen in training"


def test_of_several_classes_one_may_be_named() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    model = DCPredClassifier(n_leaves=1, landmarks=8, random_state=0).fit(
        X, X[:, :2].argmax(axis=1) + (X[:, 2] > 1)
    )
    decision = model.decision_function(X[:9])
    for k, label in enumerate(model.classes_):
        one = contributions(model, X[:9], label=label)
        np.testing.assert_allclose(one.values.sum(axis=1) + one.base_values, decision[:, k], atol=1e-6)
    own = contributions(model, X[:9])
    np.testing.assert_allclose(own.values.sum(axis=1) + own.base_values, decision.max(axis=1), atol=1e-6)
    with pytest.raises(DataError, match="Cannot explain label 'oak'"):
        contributions(model, X[:9], label="oak")


def test_importances_are_mean_sizes_over_training_rows(fitted: DCPredClassifier, table: pd.DataFrame) -> None:
    found = fitted.feature_importances_
    assert found.shape == (5,)
    sizes = np.abs(contributions(fitted, table).values[:, :-1]).mean(axis=0)
    np.testing.assert_allclose(found, sizes, rtol=0.25, atol=0.02)
    assert found[4] < min(found[0], found[1]) / 4  # noise
    assert fitted.distance_shares_.sum() == pytest.approx(1)
    plain = DCPredRegressor(n_leaves=1, landmarks=4, random_state=0, settings=Settings(calibrate=False))
    X = np.random.default_rng(0).normal(size=(60, 2))
    plain.fit(X, X[:, 0])
    assert plain.feature_importances_[0] > 3 * plain.feature_importances_[1]
    assert "landmarks of its leaf" in " ".join(explain(plain, X, [0])[0].remarks)
    assert ", compared with landmarks: " in str(explain(plain, X, [0]))
    assert ", compared with landmarks</caption>" in explain(plain, X, [0])._repr_html_()
    assert "(Shapley values, compared with landmarks; mean" in repr(contributions(plain, X))
    assert "compared with training rows" in repr(contributions(fitted, table[:3]))
    assert "compared with" not in str(explain(fitted, table, [0]))
    other = DCPredRegressor(n_leaves=1, random_state=0, settings=Settings(leaf_model="exact")).fit(X, X[:, 0])
    with pytest.raises(DataError, match="hold exact models"):
        contributions(other, X)
    assert explain(other, X, [0])[0].contributions == []
    assert not hasattr(other, "feature_importances_")


@pytest.mark.parametrize("most", range(3))
def test_the_most_frequent_category_counts_beside_trees_as_it_does_without(most: int) -> None:
    """It has no column: background rows of trees took it for the first category that has one."""
    rng = np.random.default_rng(most)
    c = rng.choice(list("xyz"), 900, p=np.roll([0.5, 0.25, 0.25], most))
    X = pd.DataFrame({"c": c, "a": 0.1 * rng.normal(size=900)})
    y = 4.0 * (c == "x") + X.a
    bases = []
    for given in ({"settings": Settings(trees=60)}, {"landmarks": 0, "settings": Settings(trees=60)}, {}):
        model = DCPredRegressor(**{"n_leaves": 1, "landmarks": 16, "random_state": 0} | given).fit(X, y)
        assert model.feature_importances_[0] > 1.2
        bases.append(float(np.ravel(contributions(model, X[:1]).base_values)[0]))
    np.testing.assert_allclose(bases, bases[2], atol=0.02)


def test_a_leaf_without_landmarks_is_no_constant_beside_trees() -> None:
    X, y = np.random.default_rng(0).normal(size=(300, 2)), np.arange(300) % 2
    model = DCPredClassifier(landmarks=0, n_leaves=1, random_state=0, settings=Settings(trees=5)).fit(X, y)
    [one] = explain_rows(model.model_, X, [0], None)
    assert "its leaf has no landmarks: trees alone give its value" in one.remarks
