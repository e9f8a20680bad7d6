"""Oblivious trees: the term of a model, its machine code, and how it is fitted."""

import itertools
import json
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import dcpred
from dcpred import DCPredClassifier, DCPredRegressor, Settings, load_model
from dcpred.cli import rendering
from dcpred.cli.main import main
from dcpred.reports.inspection import inspect
from dcpred.reports.report import _cost
from dcpred.serving.cost import cost_parts, predict_cost
from dcpred_tasks.artifacts.model_artifact import open_artifact, write_model
from dcpred_tasks.artifacts.model_checks import check_model
from dcpred_tasks.engine import machine_code, tree_engine
from dcpred_tasks.engine.engine import Engine
from dcpred_tasks.engine.machine_code import MachineCode, Target
from dcpred_tasks.engine.native_modules import TREES
from dcpred_tasks.engine.tree_engine import BLOCK_TREES, LARGEST_SUM, blocks, search_tree
from dcpred_tasks.errors import ResourceError, SettingsError
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.oblivious_trees import NEVER, ObliviousTrees, bins_of, quantised
from dcpred_tasks.result_fields import document_of
from dcpred_tasks.row_sampling import row_hash
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.training import term_fits, tree_boosting
from dcpred_tasks.training.folds import FOLDS
from dcpred_tasks.training.held_out import KERNEL_SHARES, HeldOut, shared
from dcpred_tasks.training.leaf import Kernels, fit_leaf
from dcpred_tasks.training.losses import Huber, Logistic, Loss, Quantile, Squares
from dcpred_tasks.training.settings import make_settings
from dcpred_tasks.training.survey import survey_rows
from dcpred_tasks.training.term_fits import TermFit
from dcpred_tasks.training.tree_boosting import (
    BORDERS,
    HELD_SHARE,
    PATIENCE,
    boosted,
    boosting_of,
    borders_of,
    fit_trees,
)
from support import processes
from support.arm import check_arm
from support.caches import with_cache
from support.models import differences, random_model, random_rows
from support.native import HERE, QUICK, check_made_anew, sanitized
from support.terms import check_term
from support.trees import check_boosting, random_trees

DTYPES = (np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8, np.bool_)


def rows_of(seed: int, n: int, d: int, dtype: Any = np.float64) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.normal(scale=3.0, size=(n, d))
    if np.dtype(dtype).kind == "f":
        X[rng.random(X.shape) < 0.05] = np.nan
        X[rng.random(X.shape) < 0.02] = 1e300
    with np.errstate(all="ignore"):
        return np.asarray(X.astype(dtype))


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("depth", [1, 6, 8])
def test_trees_are_a_term(n_outputs: int, depth: int) -> None:
    check_term(random_trees(1, 5, n_outputs, 9, depth), rows_of(0, 50, 5), n_outputs)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    d=st.integers(1, 40),
    n_outputs=st.sampled_from([1, 1, 2, 5]),
    depth=st.integers(1, 8),
    n_trees=st.integers(1, 70),
    borders=st.sampled_from([0, 1, 7, 40, 254]),
    n=st.integers(0, 200),
    dtype=st.sampled_from(DTYPES),
)
def test_machine_code_has_the_bits_of_the_definition(
    seed: int, d: int, n_outputs: int, depth: int, n_trees: int, borders: int, n: int, dtype: Any
) -> None:
    trees, X = random_trees(seed, d, n_outputs, n_trees, depth, borders), rows_of(seed, n, d, dtype)
    values = trees.values(X)
    np.testing.assert_array_equal(trees.engine(X), values)
    np.testing.assert_array_equal(trees.engine(X[::-3]), values[::-3])
    np.testing.assert_array_equal(trees.engine(np.asfortranarray(X)), values)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86 processors")
def test_other_processors_and_threads_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    several = [random_trees(seed, 1 + 7 * seed, 1 + seed % 2, 60, 1 + seed) for seed in range(8)]
    X = [rows_of(seed, 500, 1 + 7 * seed) for seed in range(8)]
    own = [trees.engine(rows) for trees, rows in zip(several, X, strict=True)]
    losses: list[tuple[Loss, int]] = [
        (Squares(), 1),
        (Logistic(), 1),
        (Logistic(), 2),
        (Logistic(), 6),
        (Huber(), 1),
    ]
    plans = [
        boosting_of(
            *boosting_parts(0, 300, 7, k, 90, loss),
            loss,
            make_settings({"trees": 30}),
            np.arange(50, 300),
            np.arange(50),
        )
        for loss, k in losses
    ]
    grown = [boosted(plan, np.zeros(plan.n_outputs), tree_engine.call) for plan in plans]
    with ThreadPoolExecutor(4) as pool:
        for mine, other in zip(own, pool.map(lambda i: several[i].engine(X[i]), range(8)), strict=True):
            np.testing.assert_array_equal(mine, other)
    code = MachineCode(TREES.code, Target("x86-64-v3"), entry=TREES.entry, quick=True)
    monkeypatch.setattr(machine_code, "own_code", lambda of: code)
    for trees, rows, mine in zip(several, X, own, strict=True):
        np.testing.assert_array_equal(trees.engine(rows), mine)
    for plan, known in zip(plans, grown, strict=True):
        for array, other in zip(
            boosted(plan, np.zeros(plan.n_outputs), tree_engine.call), known, strict=True
        ):
            np.testing.assert_array_equal(array, other)


def test_the_bitcode_is_of_these_sources(tmp_path: Path) -> None:
    check_made_anew(TREES, tmp_path)


@pytest.mark.tools
def test_it_compiles_for_arm() -> None:
    check_arm(TREES.code, "generic", {"memset", "memcpy", "memmove"}, 0)


CHECKED = (
    HERE
    + """
import dask.array as da
import numpy as np
from dcpred_tasks.engine import machine_code, tree_engine
from dcpred_tasks.training import tree_boosting
from dcpred_tasks.training.losses import Huber, Logistic, Squares
from dcpred_tasks.training.settings import make_settings
from dcpred_tasks.training.tree_boosting import boosted, boosting_of
from support.trees import random_trees

machine_code.own_code = lambda of: native
rng = np.random.default_rng(0)
for d, k, depth, borders, n in ((3, 1, 2, 7, 70), (20, 2, 8, 254, 9), (17, 1, 6, 30, 1)):
    trees, X = random_trees(0, d, k, 40, depth, borders), rng.normal(size=(n, d))
    assert (trees.engine(X) == trees.values(X)).all()
for loss, d, k, depth, n in (
    (Squares(), 3, 1, 2, 200), (Logistic(), 5, 1, 8, 9), (Logistic(), 4, 2, 3, 65),
    (Logistic(), 4, 6, 4, 130), (Huber(), 17, 1, 6, 100),
):
    tree_boosting.HISTOGRAM_BYTES = 2**23 if d < 17 else 2**16
    columns, goal = rng.integers(0, 30, (d, n)).astype(np.uint8), np.sign(rng.normal(size=(n, k)))
    own, rows = make_settings({"trees": 3, "tree_depth": depth}), np.arange(n)
    boosting = boosting_of(columns, goal, rng.random(n), loss, own, rows[n // 3 :], rows[: n // 3])
    boosted(boosting, np.zeros(k), tree_engine.call)
    for name in ("f", "histograms", "gains", "slope", "rows", "columns", "leaf") if n == 200 else ():
        def shortened(given):
            short = {name: getattr(given.room, name)[:-1]}
            tree_engine.call(given._replace(room=given.room._replace(**short)))
        try:
            boosted(boosting, np.zeros(k), shortened)
            print(name)
        except IndexError:
            pass
"""
)


@pytest.mark.tools
def test_no_index_leaves_its_array(tmp_path: Path) -> None:
    arguments, env = sanitized("trees", tmp_path, QUICK)
    done = processes.run(
        [sys.executable, "-W", "error", "-c", CHECKED, *arguments], env=with_cache(tmp_path, **env)
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == ""


def test_bins() -> None:
    borders = np.array([-np.inf, 0.0, 1.5], np.float32)
    assert bins_of(np.array([np.nan, -1.0, 0.0, 1.0, 1.5, 9.0]), borders).tolist() == [0, 1, 2, 2, 3, 3]
    levels, nodes = search_tree(borders)
    assert levels == 2
    assert nodes[1:4].tolist() == [0.0, -np.inf, 1.5]


@given(st.lists(st.integers(0, 2**15), min_size=1, max_size=200))
def test_sums_of_a_block_fit_16_bits(largest: list[int]) -> None:
    edges = list(blocks(np.array(largest)))
    assert edges[0] == 0
    assert edges[-1] == len(largest)
    for first, last in itertools.pairwise(edges):
        assert 0 < last - first <= BLOCK_TREES
        assert last - first == 1 or sum(largest[first:last]) <= LARGEST_SUM


def test_whole_leaf_values_are_near() -> None:
    leaf = np.random.default_rng(0).normal(size=(5, 2, 4)) * np.array([1e-9, 1e7])[:, None]
    whole, scale, _ = quantised(leaf, np.zeros(2))
    error = np.abs(whole * scale[:, None] - leaf).max(axis=(0, 2))
    assert (error <= np.abs(leaf).max(axis=(0, 2)) * 2.0**-14).all()


def with_trees(model: compact_model.Model, seed: int = 0) -> compact_model.Model:
    return replace(model, terms=(random_trees(seed, model.scaling.n_encoded, model.n_outputs),))


@pytest.mark.parametrize("scaling", ["standard", "gaps"])
@pytest.mark.parametrize(
    ("task", "n_outputs"), [("classification", 1), ("classification", 4), ("regression", 1)]
)
def test_a_stored_model_has_its_trees(tmp_path: Path, scaling: str, task: str, n_outputs: int) -> None:
    plain = random_model(4, d=3, n_outputs=n_outputs, task=task, scaling=scaling)
    plain = replace(plain, bounds=np.tile([-1e15, 1e15], (plain.n_leaves, 1))[:, : plain.bounds.shape[1]])
    model, X = with_trees(plain), np.asarray(random_rows(plain, 300, 0), np.float64)
    expected = compact_model.score_rows(model, X)
    assert not list(differences(model, X, Engine(model).score(X), expected))
    model_hash = write_model(tmp_path / "m", model, {}, {})
    document = json.loads((tmp_path / "m" / "model.json").read_text())
    assert document["version"] == 12
    stored = open_artifact(tmp_path / "m").model()
    assert write_model(tmp_path / "again", stored, {}, {}) == model_hash
    np.testing.assert_array_equal(score_rows(stored, X)[0], score_rows(model, X)[0])
    write_model(tmp_path / "plain", plain, {}, {})
    assert json.loads((tmp_path / "plain" / "model.json").read_text())["version"] < 12


def test_an_inspection_and_a_page_tell_of_trees_and_their_cost(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(400, 3))
    DCPredRegressor(n_leaves=1, landmarks=4).fit(X, X[:, 0]).save(tmp_path / "0")
    stored = open_artifact(tmp_path / "0")
    model = with_trees(stored.model())
    write_model(tmp_path / "5", model, stored.body["settings"], {"report": {}})
    cost, plain = cost_parts(model), cost_parts(stored.model())
    assert cost is not None
    assert plain is not None
    assert cost["terms"] > 0
    assert sum(cost.values()) == pytest.approx(2 * cost["cost_ratio"], abs=0.3)
    assert model.terms[0].facts == {"number": 20, "depth": 6}
    pictures = [str(_cost({"predicted_cost": parts})) for parts in (cost, plain)]
    assert ["trees beside the leaves" in picture for picture in pictures] == [True, False]
    assert "terms" not in document_of(inspect(tmp_path / "0"))
    assert document_of(inspect(tmp_path / "5"))["terms"]["trees"]["depth"] == 6


def test_the_result_of_a_training_tells_of_trees(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(400, 3))
    zarr.create_group(tmp_path / "data.zarr", attributes={}).create_array("X", data=X)
    zarr.open_group(tmp_path / "data.zarr").create_array("y", data=X[:, 0])
    settings = {"n_leaves": 1, "landmarks": 4, "trees": 5}
    report = dcpred.train(
        str(tmp_path / "data.zarr"), tmp_path / "model", settings=settings, task="regression"
    )
    assert set(report.terms) == {"trees"}
    assert "trees           number " in rendering.shown(type(report), document_of(report))
    printed = CliRunner().invoke(main, ["inspect", str(tmp_path / "model")]).output
    assert "provenance.versions" in printed
    assert "hashes" not in printed


@pytest.mark.parametrize(
    ("name", "value"),
    [("feature", 3), ("feature", -1), ("scale", 0.3), ("border", np.nan), ("border", np.inf)],
)
def test_damaged_trees_are_refused(name: str, value: float) -> None:
    trees = random_trees(0, 3)
    trees.check(3, 1)
    array = getattr(trees, name).copy()
    array.flat[array.size // 2] = value
    model = replace(random_model(0, d=3), terms=(replace(trees, **{name: array}),))
    with pytest.raises(ValueError, match="trees"):
        check_model(model)


def test_contributions_are_shapley_values() -> None:
    """By the definition: over all orders of features."""
    trees, rng = random_trees(3, 4, 2, 6, 5), np.random.default_rng(0)
    X, background = rng.normal(size=(3, 4)), rng.normal(size=(4, 4))

    def game(row: np.ndarray, features: tuple[int, ...]) -> float:
        mixed = background.copy()
        mixed[:, features] = row[list(features)]
        return float(trees.values(mixed)[:, 1].mean())

    expected = np.zeros(X.shape)
    orders = list(itertools.permutations(range(4)))
    for at, row in enumerate(X):
        for order in orders:
            for k, feature in enumerate(order):
                expected[at, feature] += game(row, order[: k + 1]) - game(row, order[:k])
    found = trees.contributions(X, background, 1)
    np.testing.assert_allclose(found, expected / len(orders), atol=1e-9)


# -- training ------------------------------------------------------------------------------------------------


def boosting_parts(
    seed: int, n: int, d: int, n_outputs: int, most: int, loss: Loss
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bins, goals and weights."""
    rng = np.random.default_rng(seed)
    goal = rng.normal(size=(n, n_outputs))
    if isinstance(loss, Logistic):
        number = rng.integers(0, max(n_outputs, 2), (n, 1))
        goal = 2.0 * (number == np.arange(max(n_outputs, 2))[-n_outputs:]) - 1.0
    return rng.integers(0, most, (d, n)).astype(np.uint8), goal, rng.uniform(0.5, 2.0, n)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    n=st.integers(1, 200),
    d=st.integers(1, 5),
    shape=st.sampled_from(
        [(Squares(), 1), *((Logistic(), k) for k in (1, 2, 3, 4, 6)), (Huber(), 1), (Quantile(tilt=0.6), 1)]
    ),
    depth=st.integers(1, 5),
    most=st.integers(1, 60),
)
def test_trees_grow_as_the_definition_says(
    seed: int, n: int, d: int, shape: tuple[Loss, int], depth: int, most: int
) -> None:
    loss, n_outputs = shape
    columns, goal, weight = boosting_parts(seed, n, d, n_outputs, most, loss)
    own = make_settings({"trees": 12, "tree_depth": depth, "tree_rate": 0.3, "seed": seed})
    boosting = boosting_of(columns, goal, weight, loss, own, np.arange(n), np.arange(0))
    trees = boosted(boosting, goal.mean(axis=0), tree_engine.call)
    assert len(trees.leaf) == 12
    check_boosting(columns, goal, weight, loss, own, trees)


@pytest.mark.parametrize("n_outputs", [1, 2, 6])
def test_held_out_rows_choose_the_number_of_trees(n_outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, goal, weight = boosting_parts(0, 400, 4, n_outputs, 40, Logistic())
    goal[columns[0] > 20] = goal[0]
    own, rows = make_settings({"trees": 300, "tree_rate": 0.3}), np.arange(400)
    boosting = boosting_of(columns, goal, weight, Logistic(), own, rows[100:], rows[:100])
    trees = boosted(boosting, np.zeros(n_outputs), tree_engine.call)
    numbers = (1 << np.arange(6)) @ (columns[trees.feature, :100] >= trees.bin[:, :, None])
    steps = np.array([values[:, leaf].T for values, leaf in zip(trees.leaf, numbers, strict=True)])
    losses = [weight[:100] @ Logistic()(f, goal[:100])[0].sum(axis=1) for f in np.cumsum(steps, axis=0)]
    assert 1 < len(trees.leaf) < 300 - PATIENCE
    assert int(np.argmin(losses)) == len(losses) - 1
    monkeypatch.setattr(tree_boosting, "WORK_AT_ONCE", 1)
    for array, other in zip(trees, boosted(boosting, np.zeros(n_outputs), tree_engine.call), strict=True):
        np.testing.assert_array_equal(array, other)
    monkeypatch.setattr(tree_boosting, "HISTOGRAM_BYTES", 3 * 48 * min(n_outputs, 4) * 2**8)
    few = boosted(boosting, np.zeros(n_outputs), tree_engine.call)
    assert max(len(np.unique(feature)) for feature in few.feature) < 4
    assert len(np.unique(few.feature)) == 4


@given(
    st.lists(
        st.sampled_from([np.nan, -1.0, 0.0, 1.0, 1.0 + 2e-7, 1e9, 1e9 + 64]) | st.floats(-1e6, 1e6),
        max_size=400,
    )
)
def test_borders_separate_values(values: list[float]) -> None:
    x = np.array(values, np.float64)
    borders, seen = borders_of(x), np.unique(x.astype(np.float32)[~np.isnan(x)])
    assert len(borders) <= BORDERS
    assert (np.diff(borders) > 0).all()
    bins = bins_of(x, borders)
    if len(seen) < BORDERS:
        assert len(np.unique(bins)) == len(seen) + bool(np.isnan(x).any())
    if np.isnan(x).any() and len(seen):
        assert (bins[~np.isnan(x)] > 0).all()


def test_slopes_and_curvatures_are_derivatives() -> None:
    rng = np.random.default_rng(0)
    for loss, k in ((Squares(), 1), (Logistic(), 1), (Logistic(), 3)):
        f, y = rng.normal(size=(6, k)), rng.normal(size=(6, k))
        if k > 1 or isinstance(loss, Logistic):
            y = 2.0 * (rng.integers(0, 2, (6, 1)) == np.arange(k)) - 1 if k > 1 else np.sign(y)
        for j in range(k):
            step = np.zeros(k)
            step[j] = 1e-5
            slopes = [loss(f + sign * step, y)[1][:, j] for sign in (1, -1)]
            np.testing.assert_allclose(
                (slopes[0] - slopes[1]) / 2e-5, loss.curvature(f, y)[:, j], rtol=1e-5, atol=1e-6
            )
    for robust in (Huber(width=0.5, steep=1.0), Quantile(width=0.5, steep=1.0, tilt=0.6)):
        f, y = rng.normal(size=(50, 1)), rng.normal(size=(50, 1))
        loss, slope = robust(f, y)
        bend = robust.curvature(f, y)
        for step in np.linspace(-3, 3, 13):  # the parabola lies above
            assert (robust(f + step, y)[0] <= loss + slope * step + bend * step**2 / 2 + 1e-12).all()


def table(n: int, seed: int, task: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps of single features, and a missing value that matters."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    X[rng.random(n) < 0.2, 3] = np.nan
    value = 2.0 * (X[:, 0] > 0.3) + (X[:, 1] > -0.5) * (X[:, 2] > 0) + 2.0 * np.isnan(X[:, 3])
    value = value + 0.3 * rng.normal(size=n)
    return X, value if task == "regression" else np.digitize(value, [1.5] if task == "two" else [1.0, 2.5])


def fitted(task: str, n: int = 2_000, **values: Any) -> ObliviousTrees:
    X, y = table(n, 0, task)
    kind = "regression" if task == "regression" else "classification"
    own = make_settings({"task": kind, "trees": 60, **values})
    return fit_trees(X, y, np.ones(n), survey_rows(X, y, None, 0, kind), own)


@pytest.mark.parametrize("task", ["regression", "two", "three"])
def test_trees_learn_steps(task: str) -> None:
    trees = fitted(task)
    X, y = table(4_000, 1, task)
    f = trees.values(X)
    trees.check(5, f.shape[1])
    if task == "regression":
        assert 1 - ((f[:, 0] - y) ** 2).mean() / y.var() > 0.9
    else:
        assert ((f[:, 0] > 0) if task == "two" else f.argmax(axis=1)).__eq__(y).mean() > 0.88
    assert (trees.bin != NEVER).any()


def test_a_quantile_has_its_level() -> None:
    X, y = table(4_000, 1, "regression")
    for level in (0.2, 0.9):
        f = fitted("regression", 4_000, loss="quantile", quantile=level).values(X)[:, 0]
        assert abs((y <= f).mean() - level) < 0.04
    f = fitted("regression", loss="huber").values(X)[:, 0]
    assert 1 - ((f - y) ** 2).mean() / y.var() > 0.88


def test_weights_count_rows() -> None:
    X, y = table(600, 0, "two")
    survey, own = survey_rows(X, y, None, 0, "classification"), make_settings({"trees": 20})
    even = fit_trees(X, y, np.ones(600), survey, own).values(X)
    np.testing.assert_array_equal(even, fit_trees(X, y, np.full(600, 7.0), survey, own).values(X))
    tilted = fit_trees(X, y, np.where(y == 1, 9.0, 1.0), survey, own).values(X)
    assert (tilted > 0).mean() > (even > 0).mean()


def test_many_classes_and_wide_tables() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 300)).astype(np.float32)
    y = (3 * (X[:, 0] > 0) + np.digitize(X[:, 1], [-0.4, 0.4])).astype(int)
    survey = survey_rows(X, y, None, 0, "classification")
    trees = fit_trees(X, y, np.ones(600), survey, make_settings({"trees": 60, "tree_depth": 4}))
    assert (trees.values(X).argmax(axis=1) == y).mean() > 0.9


def test_growing_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DCPRED_NO_COMPILER", "1")
    with pytest.raises(ResourceError, match=r"grow trees.*or set trees=0"):
        fitted("two", 100)


@pytest.mark.parametrize("task", ["regression", "two", "three"])
def test_a_trained_model_has_trees_and_leaves(task: str, tmp_path: Path) -> None:
    X, y = table(1_500, 0, task)
    new, truth = table(3_000, 1, task)
    kind = DCPredRegressor if task == "regression" else DCPredClassifier
    given: Any = {"n_leaves": 2, "landmarks": 8, "random_state": 0}
    plain = kind(**given).fit(X, y)
    mine = kind(**given, settings=Settings(trees=60)).fit(X, y)
    assert 1 - mine.score(new, truth) < 0.8 * (1 - plain.score(new, truth))
    mine.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(new), mine.predict(new))


def test_rows_that_choose_the_number_of_trees_teach_them_too() -> None:
    """Some feature is other than 0 in these rows alone, and decides their target."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2)).astype(np.float32)
    X[:, 1] = row_hash(np.arange(900), 11).astype(float) / 2.0**64 < HELD_SHARE
    y = X[:, 0] + 9.0 * X[:, 1]
    own = make_settings({"task": "regression", "trees": 40, "tree_depth": 2})
    trees = fit_trees(X, y, np.ones(900), survey_rows(X, y, None, 0, "regression"), own)
    assert 1 in trees.used
    assert len(trees.leaf) <= 40


def held_out(task: str, n: int, noise: float) -> HeldOut:
    """Rows whose terms know the target but for an error, which leaves mend where `noise` is 0."""
    rng = np.random.default_rng(0)
    target = rng.normal(size=n) if task == "regression" else rng.integers(0, 2, n).astype(float)
    goal = target[:, None] if task == "regression" else 2.0 * target[:, None] - 1
    error = 0.7 * rng.normal(size=(n, 1))
    decision = goal + (error if noise else 0.0) + noise * rng.normal(size=(n, 1))
    return HeldOut(decision, target, *np.ones((3, n)), np.ones(n), np.zeros(n), goal + error)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_held_out_rows_choose_what_leaves_add(task: str) -> None:
    X, y = table(300, 0, "regression" if task == "regression" else "two")
    values = {"task": task, "landmarks": 5, "products": 3}
    rows = np.nan_to_num(X).astype(np.float32)
    leaf = fit_leaf(rows, y, np.ones(300), 1, Kernels(*[Kernel("rbf", 0.5)] * 2), make_settings(values), 0)
    (mends,), held = shared([leaf], held_out(task, 400, 0.0), make_settings(values))
    assert len(mends.landmarks) == 5
    share = mends.beta[0, 0] / leaf.beta[0, 0]
    assert share == 1.0
    assert KERNEL_SHARES[-1] == 0.0
    np.testing.assert_allclose(mends.intercept, share * leaf.intercept)
    np.testing.assert_allclose(
        held.decision, held.offset + share * (held_out(task, 400, 0.0).decision - held.offset)
    )
    (disturbs,), held = shared([leaf], held_out(task, 400, 3.0), make_settings(values))
    assert len(disturbs.landmarks) == len(disturbs.beta) == len(disturbs.pairs) == 0
    np.testing.assert_array_equal(held.decision, held.offset)
    plain = replace(held_out(task, 400, 3.0), offset=np.zeros((400, 1)))
    assert shared([leaf], plain, make_settings(values)) == ([leaf], plain)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_trees_without_landmarks_are_fitted_once_for_each_fold(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaves that learn nothing need no values of terms that do not know the row."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3_000, 3)).astype(np.float32)
    y = np.where(X[:, 0] > 0.3, 1.0, -1.0) + 0.3 * rng.normal(size=3_000)
    y = y if task == "regression" else (y > 0).astype(int)
    fits: list[int] = []
    counted = TermFit(lambda s: s.trees > 0, lambda X, *given: fits.append(len(X)) or fit_trees(X, *given))
    monkeypatch.setattr(term_fits, "FITS", (counted,))
    kind = DCPredRegressor if task == "regression" else DCPredClassifier
    mine = kind(n_leaves=1, landmarks=0, settings=Settings(trees=80)).fit(X[:1_000], y[:1_000])
    new, truth, model = X[1_000:], y[1_000:], mine.model_
    assert not len(model.landmarks)
    assert len(fits) <= 1 + FOLDS
    [trees] = model.terms
    assert mine.score(new, truth) > 0.86  # The best R² is 0.91.
    if task == "regression":
        known = np.clip(trees.values(new)[:, 0], y[:1_000].min(), y[:1_000].max())
        np.testing.assert_allclose(mine.predict(new), known, rtol=1e-6)
        low, high = mine.predict_interval(new, alpha=0.1).T
        assert 0.85 < ((low <= truth) & (truth <= high)).mean() < 0.95


def test_trees_without_a_fold_are_as_many_as_those_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def counted(X: np.ndarray, *given: Any) -> ObliviousTrees:
        trees = fit_trees(X, *given)
        counts.append(len(trees.leaf))
        return trees

    monkeypatch.setattr(term_fits, "FITS", (TermFit(lambda s: s.trees > 0, counted),))
    X, y = table(900, 0, "two")
    mine = DCPredClassifier(n_leaves=1, landmarks=4, settings=Settings(trees=200, tree_rate=0.3)).fit(X, y)
    assert len(counts) > FOLDS
    [trees] = mine.model_.terms
    assert isinstance(trees, ObliviousTrees)
    assert {*counts} == {len(trees.leaf)} != {200}


def test_no_trees_and_no_landmarks_are_nothing() -> None:
    with pytest.raises(SettingsError, match=r"landmarks=0 without trees.*Set landmarks or trees\."):
        make_settings({"landmarks": 0})


def test_trees_alone_cost_as_much_as_they_take() -> None:
    """Leaves that only know noise are dropped."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_500, 6))
    y = np.where(X[:, 0] > 0.5, 3.0, 0.0) + (X[:, 1] > 0) + 0.3 * rng.normal(size=2_500)
    own, new = Settings(trees=80, tree_rate=0.3), slice(500, None)
    mine = DCPredRegressor(n_leaves=1, landmarks=32, random_state=0, settings=own).fit(X[:500], y[:500])
    assert len(mine.model_.landmarks) == 0
    assert mine.score(X[new], y[new]) > 0.9
    low, high = mine.predict_interval(X[new], alpha=0.1).T
    assert 0.85 < ((low <= y[new]) & (y[new] <= high)).mean() < 0.95
    assert predict_cost(mine.model_).ns_per_row < 40


@pytest.mark.parametrize("chunk_rows", [1_500, 401])
def test_chunks_on_workers_give_the_same_trees(chunk_rows: int, tmp_path: Path) -> None:
    X, y = table(1_500, 0, "two")
    own = Settings(trees=20, refine_steps=10)
    given: Any = {"n_leaves": 2, "landmarks": 8, "random_state": 0, "settings": own}
    memory = DCPredClassifier(**given).fit(X, y).model_
    arrays = da.from_array(X, chunks=(chunk_rows, 5)), da.from_array(y, chunks=chunk_rows)
    blocks_of = DCPredClassifier(**given, directory=str(tmp_path)).fit(*arrays).model_
    for name, array in memory.terms[0].arrays().items():
        np.testing.assert_array_equal(blocks_of.terms[0].arrays()[name], array)
    np.testing.assert_array_equal(np.asarray(blocks_of.beta), np.asarray(memory.beta))
