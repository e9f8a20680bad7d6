"""Scores of models without compact leaves: single precision, held to the definition in double precision."""

import gc
import os
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dcpred_tasks.artifacts.model_artifact import write_model
from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.compact_model import LeafModels, Model
from dcpred_tasks.model.exact import Exact
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.leaf_model import needs_double, read_leaf_model, stored
from dcpred_tasks.model.packed_arrays import packed
from dcpred_tasks.scoring import leaf_model_scorer, scorer
from dcpred_tasks.scoring.leaf_model_scorer import LeafModelScorer
from dcpred_tasks.task_bodies.verify_block import tolerance
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.settings import make_settings, settings_dict
from dcpred_tasks.training.survey import survey_rows
from support.leaf_models import EVERY, SIZES, with_baseline

DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int16", "int64", "bool")


def raw_rows(n: int, dtype: str = "float32", d: int = 5, seed: int = 0) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random((n, d)) < 0.5
    X = 20 * rng.normal(size=(n, d)) + 40
    return X.clip(0, 120).astype(dtype)


def model_of(dtype: str = "float32", X: NDArray[Any] | None = None, **given: object) -> Model:
    values: dict[str, object] = {"n_leaves": 2, "min_leaf_rows": 20, "categorical": "none", **given}
    settings = make_settings(values)
    X = raw_rows(300, dtype) if X is None else X
    value = X[:, 0].astype(float) + X[:, 1]
    regression = settings.task == "regression"
    y = np.sin(value / 30) if regression else (value > np.median(value)).astype(int)
    weight = np.ones(len(X))
    survey = survey_rows(X, y, weight, 0, settings.task)
    return train_rows(
        X, y, weight, np.ones(0 if regression else 2), survey, settings, () if regression else (0, 1)
    )


def check_scores(model: Model, X: NDArray[Any]) -> None:
    """The scorer gives status and leaf of the definition, and its values within a tenth of the tolerance."""
    leaves, own_leaves = np.empty(len(X), np.int32), np.empty(len(X), np.int32)
    found, status = scorer.score_rows(model, X, leaves=leaves)
    true, true_status = compact_model.score_rows(model, X, leaves=own_leaves)
    np.testing.assert_array_equal(status, true_status)
    np.testing.assert_array_equal(leaves, own_leaves)
    good = true_status == 1
    assert found.dtype == true.dtype
    off = np.abs(found[good].astype(float) - true[good])
    allowed = tolerance(model, X[good])[:, None] / 10 + np.spacing(np.abs(true[good]))
    assert (off <= allowed).all(), (off / allowed).max()
    assert np.isnan(found[~good]).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_leaves", [1, 4])
def test_rows_of_every_dtype(dtype: str, n_leaves: int) -> None:
    model = model_of(dtype, leaf_model="exact", n_leaves=n_leaves)
    assert model.n_leaves == n_leaves or dtype == "bool"
    for rows in (raw_rows(700, dtype, seed=1), raw_rows(3, dtype, seed=2), raw_rows(0, dtype)):
        check_scores(model, rows)
        check_scores(model, np.asfortranarray(rows))


def baseline_model(name: str, **given: object) -> Model:
    """Two leaves of a baseline, as version 0.1.0 trained them."""
    X = raw_rows(300)
    value = X[:, 0].astype(float) + X[:, 1]
    target = (value > np.median(value)).astype(int)
    model = model_of(leaf_model="exact", calibrate=False, **given)
    return with_baseline(model, name, X, target, size=8 if name in SIZES else 0)


@pytest.mark.parametrize("name", EVERY)
def test_every_leaf_model_in_its_leaves(name: str) -> None:
    """And scores that are computed twice have the same bits."""
    model = baseline_model(name)
    X = raw_rows(2_000, seed=1)
    check_scores(model, X)
    first, _ = scorer.score_rows(model, X)
    second, _ = scorer.score_rows(model, X.copy())
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("n_leaves", [1, 4])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_rows_that_are_not_finite_or_huge(n_leaves: int, task: str) -> None:
    model = model_of(leaf_model="exact", n_leaves=n_leaves, task=task)
    X = raw_rows(64, seed=3)
    X[3, 1], X[9, 0], X[11, 4], X[20] = np.nan, np.inf, -np.inf, 3e38
    X[21], X[22, 2], X[23] = -3e38, 1e30, 1e20
    check_scores(model, X)
    check_scores(model, np.where(np.isfinite(X), X.astype(np.float64), np.nan) * 1e200)


def test_features_far_from_zero_keep_their_digits() -> None:
    """Seconds since 1970, to the second: single precision by itself has steps of 128."""
    rng = np.random.default_rng(0)
    X = 1.7e9 + rng.integers(0, 4_000, size=(300, 3)).astype(np.float64)
    check_scores(model_of(X=X, leaf_model="exact", n_leaves=1), X)
    near = (1.6e7 + rng.integers(0, 400, size=(300, 3))).astype(np.float32)
    check_scores(model_of(X=near, leaf_model="exact", n_leaves=1), near)


def test_features_of_any_magnitude() -> None:
    """Factors that single precision does not hold."""
    scale = np.array([1e-300, 1e-40, 1.0, 1e35, 1e200])
    X = raw_rows(300).astype(np.float64) * scale
    check_scores(model_of(X=X, leaf_model="exact", n_leaves=1), X)


def test_coded_features() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=300), rng.normal(size=300), rng.integers(0, 6, size=300)])
    X = X.astype(np.float32)
    model = model_of(X=X, leaf_model="exact", categorical="2", scaling="standard", n_leaves=1)
    assert model.scaling.coding is not None
    check_scores(model, X)


@pytest.mark.parametrize("missing", ["impute", "indicate"])
def test_gaps(missing: str) -> None:
    """A gap is a value of its feature; infinity is none."""
    X = raw_rows(300)
    X[::4, 2] = np.nan
    model = model_of(X=X, leaf_model="exact", missing=missing, scaling="standard", n_leaves=1)
    assert model.scaling.knows_gaps
    assert model.leaf_model(0) is not None
    others = X.copy()
    others[::7, 0] = np.inf
    check_scores(model, others)


def test_values_of_a_regression_are_kept_within_bounds() -> None:
    model = model_of(leaf_model="exact", task="regression")
    found, _ = scorer.score_rows(model, raw_rows(500, seed=4) * 3)
    low, high = model.bounds[:, 0].min(), model.bounds[:, 1].max()
    assert found.min() >= low
    assert found.max() <= high


def test_tiles_do_not_change_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond rounding: rows do not see each other."""
    model, X = baseline_model("fourier"), raw_rows(900, seed=5)
    whole, _ = scorer.score_rows(model, X)
    monkeypatch.setattr(leaf_model_scorer, "FEWEST_ROWS", 16)
    monkeypatch.setattr(leaf_model_scorer, "TILE_VALUES", 80)
    monkeypatch.setattr(leaf_model_scorer, "ROWS_OF_A_LEAF", 1)
    small = LeafModelScorer(model)
    assert small.step == 16
    np.testing.assert_allclose(small.score(X)[0], whole, rtol=1e-5, atol=1e-5)


def test_a_machine_whose_terms_cancel_is_scored_in_double_precision() -> None:
    """Two support vectors that are very near to each other, with large weights of opposite sign."""
    X = np.random.default_rng(0).normal(size=(240, 3)).astype(np.float32)
    support = np.array([[1.0, 0.0, 0.0], [1.0 + 1e-5, 0.0, 0.0]], np.float32)
    for weight, double in ((1e7, True), (1.0, False)):
        dual = np.array([[weight], [-weight]], np.float32) if double else np.ones((2, 1), np.float32)
        machine = Exact(Kernel("rbf", 0.3), support, dual, np.zeros(1))
        assert needs_double(stored(machine, X)) == double
        again = read_leaf_model("exact", stored(machine, X), (3, 1))
        np.testing.assert_array_equal(again.predict(X), machine.predict(X))
    model = model_of(leaf_model="exact", n_leaves=1)
    assert model.leaf_models is not None
    weights = np.array([[1e7], [-1e7]], np.float32)
    cancelling = Exact(Kernel("rbf", 0.3), np.zeros((2, 5), np.float32), weights, np.zeros(1))
    data = packed(cancelling.arrays())
    machines = LeafModels("exact", np.array([0, len(data)]), data)
    other = replace(model, leaf_models=machines)
    assert LeafModelScorer(other).dtypes == [ACC_DTYPE]
    np.testing.assert_allclose(scorer.score_rows(other, raw_rows(50))[0], 0.0, atol=1e-8)


def test_each_leaf_has_its_precision() -> None:
    model = model_of(leaf_model="exact", n_leaves=4)
    assert model.leaf_models is not None
    assert {model.leaf_models.dtype(leaf) for leaf in range(model.n_leaves)} <= {MODEL_DTYPE, ACC_DTYPE}
    assert MODEL_DTYPE in LeafModelScorer(model).dtypes


def test_a_model_and_its_scorer_end_together() -> None:
    model = model_of(leaf_model="exact")
    scorer.score_rows(model, raw_rows(5))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


BLOCKED = """
import sys


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("scipy", "sklearn", "dask", "distributed"):
            raise ModuleNotFoundError(f"{name} is blocked")


sys.meta_path.insert(0, Blocked())
"""


def run(code: str, *words: object) -> str:
    command = [sys.executable, "-c", BLOCKED + code, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_leaf_model_is_served_by_numpy_alone(tmp_path: Path) -> None:
    """Neither SciPy nor scikit-learn is needed to predict."""
    names = []
    for name in EVERY:
        write_model(tmp_path / name, baseline_model(name, n_leaves=1), {"leaf_model": name}, {})
        names.append(tmp_path / name)
    code = """
import numpy as np
from dcpred import load_model

X = np.linspace(0, 100, 15, dtype=np.float32).reshape(3, 5)
print(sum(len(load_model(path).predict(X)) for path in sys.argv[1:]))
"""
    assert run(code, *names) == str(3 * len(names))


def test_a_compact_model_imports_no_baseline(tmp_path: Path) -> None:
    """What scores it is the engine as before: no baseline is loaded."""
    model = model_of(landmarks=4, products=0)
    assert model.leaf_models is None
    write_model(tmp_path / "model", model, settings_dict(make_settings({})), {})
    code = """
import numpy as np
from dcpred import load_model
from dcpred_tasks.scoring import scorer

served = load_model(sys.argv[1])
served.predict(np.zeros((3, 5), np.float32))
assert type(scorer._engine(served.model)).__module__ == "dcpred_tasks.engine.engine"
print(sorted(name for name in sys.modules if "dcpred_compare" in name))
"""
    assert run(code, tmp_path / "model") == "[]"
