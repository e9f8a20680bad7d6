"""Terms of a model beside its kernels, by the example of a linear one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcpred import DCPredClassifier, DCPredRegressor, load_model
from dcpred.evaluation.explanation import explain_rows
from dcpred.model_export.flat_model import compact
from dcpred.serving.cost import predict_cost
from dcpred_tasks.artifacts.model_artifact import VERSION, open_artifact, read_model, write_model
from dcpred_tasks.artifacts.model_checks import check_body, check_model
from dcpred_tasks.engine.engine import Engine
from dcpred_tasks.errors import DataError, ModelFormatError, SettingsError
from dcpred_tasks.model import compact_model, contributions, terms
from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.leaf_arrays import Parts
from dcpred_tasks.model.target_encoding import TargetEncoding
from dcpred_tasks.model.term import Term
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.scoring.self_test import check_self_test
from dcpred_tasks.training import leaf as leaf_module
from dcpred_tasks.training import term_fits
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.leaf import Kernels, fit_leaf
from dcpred_tasks.training.settings import make_settings
from dcpred_tasks.training.survey import survey_rows
from support.models import SCALINGS, differences, random_model, random_rows
from support.terms import Linear, check_term, random_linear, register


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)


def with_term(model: Model, seed: int = 0, scale: float = 1.0) -> Model:
    term = random_linear(seed, model.scaling.n_encoded, model.n_outputs, scale)
    return replace(model, terms=(term,))


def rows_of(model: Model, n: int, seed: int = 0) -> np.ndarray:
    return np.asarray(random_rows(model, n, seed), np.float64)


def test_a_linear_term_is_a_term() -> None:
    X = np.random.default_rng(0).normal(size=(40, 5))
    X[::7, 2] = np.nan
    for n_outputs in (1, 3):
        check_term(random_linear(1, 5, n_outputs), X, n_outputs)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize(
    ("task", "n_outputs"), [("classification", 1), ("classification", 5), ("regression", 1)]
)
@pytest.mark.parametrize(("depth", "d"), [(0, 3), (2, 3), (2, 40)])
def test_the_engine_adds_a_term_as_the_definition_does(
    scaling: str, task: str, n_outputs: int, depth: int, d: int
) -> None:
    model = random_model(3, d=d, n_outputs=n_outputs, task=task, depth=depth, scaling=scaling)
    X = rows_of(model, 300)
    X[5, 0], X[7, -1] = np.inf, 1e300
    model = with_term(model, scale=1.0 / (np.nanmedian(np.abs(X)) or 1.0))
    plain = replace(model, terms=())
    decision, status = compact_model.score_rows(model, X)
    assert ((status == 2) == (compact_model.score_rows(plain, X)[1] == 2)).all()
    assert not list(differences(model, X, Engine(model).score(X), (decision, status)))
    scored = status == 1
    if task == "classification":
        assert (decision != compact_model.score_rows(plain, X)[0])[scored].any() or not scored.any()
    np.testing.assert_array_equal(Engine(model).score(X[9:77:3])[0], Engine(model).score(X)[0][9:77:3])
    if task == "regression":
        leaf = model.tree.descend(model.scaling.exact(X[scored]))
        low, high = model.bounds[leaf].T
        for values in (decision, Engine(model).score(X)[0]):
            assert ((low <= values[scored, 0]) & (values[scored, 0] <= high)).all()


def test_bounds_hold_for_the_sum_and_in_constant_leaves() -> None:
    model = random_model(0, d=2, depth=0, sizes=(0,), task="regression")
    intercept = float(model.intercept[0, 0])
    model = replace(model, bounds=np.array([[intercept - 1, intercept + 2]]))
    model = replace(model, terms=(Linear(np.array([[1.0], [0.0]]), np.zeros(2)),))
    X = np.array([[0.5, 0.0], [-9.0, 0.0], [9.0, 0.0]])
    for score in (compact_model.score_rows, lambda model, X: Engine(model).score(X)):
        np.testing.assert_allclose(score(model, X)[0][:, 0], intercept + np.array([0.5, -1.0, 2.0]))


class Defined(Linear):
    engine = property(lambda self: self.values)  # type: ignore[assignment]  # the same last bits


def test_a_term_that_is_not_finite_gives_a_status() -> None:
    for task in ("classification", "regression"):
        model = random_model(0, d=2, depth=0, sizes=(5,), task=task)
        model = replace(model, terms=(Defined(np.array([[1e300], [-1e300]]), np.zeros(2)),))
        X = np.array([[1e10, 1e10], [1.0, 2.0], [2.0, 1.0], [1e10, 0.0]])
        decision, status = compact_model.score_rows(model, X)
        mine = Engine(model).score(X)
        np.testing.assert_array_equal(mine[1], status)
        np.testing.assert_allclose(mine[0], decision)
        assert status.tolist() == ([4, 1, 1, 1] if task == "regression" else [4, 4, 4, 4]), (
            "infinity is bounded"
        )


def target_encoded(model: Model) -> Model:
    """Its first feature as a category of four values."""
    table = np.array([-1.0, 0.5, 2.0, 0.0])[:, None]
    encoding = TargetEncoding(model.n_features, np.array([0]), np.array([0, 4]), table)
    return replace(model, scaling=replace(model.scaling, targets=encoding))


def test_terms_see_means_in_place_of_categories() -> None:
    plain = with_term(random_model(1, d=3))
    model, X = target_encoded(plain), rows_of(plain, 100)
    X[:, 0] = np.arange(100) % 4
    encoded = X.copy()
    encoded[:, 0] = model.scaling.targets.table[X[:, 0].astype(int), 0]  # type: ignore[union-attr]
    np.testing.assert_array_equal(
        compact_model.score_rows(model, X)[0], compact_model.score_rows(plain, encoded)[0]
    )
    np.testing.assert_array_equal(score_rows(model, X)[0], score_rows(plain, encoded)[0])


@pytest.mark.parametrize("scaling", ["standard", "gaps", "coded gaps"])
@pytest.mark.parametrize(("task", "n_outputs"), [("classification", 3), ("regression", 1)])
def test_a_stored_model_has_its_terms(tmp_path: Path, scaling: str, task: str, n_outputs: int) -> None:
    plain = random_model(4, d=3, n_outputs=n_outputs, task=task, scaling=scaling)
    plain = replace(plain, bounds=np.tile([-1e15, 1e15], (plain.n_leaves, 1))[:, : plain.bounds.shape[1]])
    model, X = with_term(plain), rows_of(plain, 100)
    model_hash = write_model(tmp_path / "m", model, {}, {})
    assert model_hash != write_model(tmp_path / "plain", plain, {}, {})
    artifact = open_artifact(tmp_path / "m")
    stored = artifact.model()
    assert write_model(tmp_path / "again", stored, {}, {}) == model_hash
    np.testing.assert_array_equal(score_rows(stored, X)[0], score_rows(model, X)[0])
    test = artifact.self_test()
    assert test is not None
    assert len(test.rows)
    for plainly in (False, True):
        check_self_test(stored, test, "m", plain=plainly)
        with pytest.raises(ModelFormatError, match="computes other decision values"):
            check_self_test(replace(stored, terms=()), test, "m", plain=plainly)
    assert stored.nbytes > plain.nbytes


def test_a_model_whose_term_is_damaged_or_unknown_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = with_term(random_model(0, d=3))
    write_model(tmp_path / "m", model, {}, {})
    body = json.loads((tmp_path / "m" / "model.json").read_text())["model"]
    assert body["terms"] == ["linear"]
    check_body(body)
    for wrong in ("linear", ["linear", "linear"], ["other"], [1], [["linear"]]):
        with pytest.raises(ValueError, match=r"terms|a term twice"):
            check_body({**body, "terms": wrong})
    with pytest.raises(ValueError, match="beside leaf models"):
        check_body({**body, "machine": "exact"})
    check_model(model)
    with pytest.raises(ValueError, match="other shapes"):
        check_model(replace(model, terms=(random_linear(0, 2, 1),)))
    monkeypatch.setattr(terms, "TERMS", ())
    with pytest.raises(ModelFormatError, match="names that this dcpred knows"):
        read_model(tmp_path / "m")


@pytest.mark.parametrize("kernel", ["rbf", "polynomial"])
@pytest.mark.parametrize("encodes", [False, True])
@pytest.mark.parametrize(
    ("task", "n_outputs"), [("classification", 1), ("classification", 3), ("regression", 1)]
)
def test_contributions_sum_up(kernel: str, encodes: bool, task: str, n_outputs: int) -> None:
    plain = random_model(5, kernel, d=3, n_outputs=n_outputs, task=task)
    model = with_term(plain)
    X = rows_of(plain, 40)
    if encodes:
        plain, model = target_encoded(plain), target_encoded(model)
        X[:, 0] = np.arange(40) % 4
    leaf = np.empty(len(X), np.int32)
    decision, _ = compact_model.score_rows(model, X, leaves=leaf)
    output = np.zeros(len(X), np.int64)
    phi = contributions.contributions(model, X, decision, leaf, output=output)
    np.testing.assert_allclose(phi.sum(axis=1), decision[:, 0], rtol=1e-6)
    before = contributions.contributions(plain, X, decision, leaf, output=output)
    term = model.terms[0]
    assert isinstance(term, Linear)
    encoded = X if model.scaling.targets is None else model.scaling.targets(X)
    for number in np.unique(leaf):
        own = leaf == number
        change = (phi - before)[own, :-2] - encoded[own] * term.weight[:, 0]
        np.testing.assert_allclose(change - change[0], 0.0, atol=1e-8)
    shares = contributions.mean_contributions(model, Parts.of_features(None, 3))
    assert (shares != contributions.mean_contributions(plain, Parts.of_features(None, 3))).all()


def test_an_explanation_sums_up() -> None:
    model = with_term(random_model(5, d=3, depth=1, sizes=(20,)))
    X = rows_of(model, 1)
    (one,) = explain_rows(model, X, [0], None, landmarks=True)
    parts = [part.part for part in one.landmarks] + [one.other_landmarks, one.pseudo_landmarks, one.intercept]
    assert sum(parts) + one.clipped == pytest.approx(one.decision)
    assert one.decision == pytest.approx(float(compact_model.score_rows(model, X)[0][0, 0]))


def test_the_cost_counts_terms() -> None:
    plain = random_model(0, d=3)
    assert predict_cost(with_term(plain)).ns_per_row - predict_cost(plain).ns_per_row == pytest.approx(0.3)


class Unexported(Term):
    """A term that exported models cannot hold."""

    name, since = "unexported", 11
    values, sizes, cost = Linear.values, Linear.sizes, Linear.cost  # type: ignore[assignment]
    contributions, check = Linear.contributions, Linear.check  # type: ignore[assignment]


def test_a_term_without_a_form_in_files_is_not_exported() -> None:
    model = replace(random_model(0, d=3), terms=(Unexported(),))
    with pytest.raises(DataError, match=r"no exported file can hold unexported, .* Train one without it"):
        compact(model)


def test_a_model_with_a_term_has_at_least_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = random_model(0, d=3)
    for since in (VERSION, VERSION + 1):
        monkeypatch.setattr(Linear, "since", since)
        write_model(tmp_path / str(since), with_term(plain), {}, {})
        assert json.loads((tmp_path / str(since) / "model.json").read_text())["version"] == since
    with pytest.raises(ModelFormatError, match=f"format version {VERSION + 1}"):
        open_artifact(tmp_path / str(VERSION + 1))


# -- training ------------------------------------------------------------------------------------------------

KERNELS = Kernels(*[Kernel("rbf", 0.5)] * 2)


def of_leaf(
    X: np.ndarray, target: np.ndarray, offset: np.ndarray | None, n_outputs: int, **values: Any
) -> Any:
    task = "regression" if target.dtype.kind == "f" else "classification"
    settings = make_settings({"task": task, "landmarks": 12, **values})
    return fit_leaf(X, target, np.ones(len(X)), n_outputs, KERNELS, settings, 0, None, offset)


def values_of(leaf: Any, X: np.ndarray, offset: np.ndarray) -> np.ndarray:
    basis = LeafBasis(KERNELS.head, "lower", leaf.landmarks, leaf.gamma, leaf.pairs, leaf.triangle)
    return np.asarray(basis(X) @ leaf.beta + leaf.intercept + offset)


@pytest.mark.parametrize("loss", ["hinge", "huber", "quantile"])
def test_a_leaf_of_numbers_learns_the_residual_within_bounds_of_the_sum(loss: str) -> None:
    rng = np.random.default_rng(0)
    X, offset = rng.normal(size=(300, 2)).astype(np.float32), rng.normal(size=(300, 1))
    y = np.sin(3 * X[:, 0]).astype(float) + offset[:, 0]
    mine, residual = of_leaf(X, y, offset, 1, loss=loss), of_leaf(X, y - offset[:, 0], None, 1, loss=loss)
    for name in ("landmarks", "beta", "intercept", "gamma"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(residual, name))
    assert mine.bounds.tolist() == [y.min(), y.max()]
    constant = of_leaf(X, np.full(300, 2.0), offset, 1)
    assert len(constant.landmarks) == 0
    assert constant.intercept.tolist() == [2.0]
    assert constant.bounds.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("epochs", [0, 8])
def test_a_leaf_of_classes_learns_what_the_offset_leaves(loss: str, n_outputs: int, epochs: int) -> None:
    """A misleading offset is corrected, and one that knows all leaves nothing to learn."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2)).astype(np.float32)
    target = np.digitize(X[:, 0] * X[:, 1], [0.0] if n_outputs == 1 else [-0.3, 0.3])
    right = 2.0 * (target[:, None] == (1 if n_outputs == 1 else np.arange(3))) - 1.0
    settings = {"loss": loss, "refine_epochs": epochs}

    def accuracy(offset: np.ndarray | None, added: np.ndarray) -> float:
        f = values_of(of_leaf(X, target, offset, n_outputs, **settings), X, added)
        chosen = (f[:, 0] > 0) if n_outputs == 1 else f.argmax(axis=1)
        return float((chosen == target).mean())

    side = 2.0 * np.sign(X[:, :1])  # against half of the rows
    misleading = side * np.array([1.0, -1.0, 0.5])[:n_outputs]
    plain = accuracy(None, 0 * misleading)
    assert accuracy(misleading, misleading) > plain - 0.1
    assert accuracy(None, misleading) < plain - 0.05
    knows = of_leaf(X, target, 4.0 * right, n_outputs, **settings)
    assert (np.abs(values_of(knows, X, 0 * right)) < (0.1 if loss == "hinge" else 0.5)).all()


def test_a_leaf_of_one_class_is_right_beside_any_offset() -> None:
    X, offset = np.zeros((20, 1), np.float32), np.linspace(-4, 4, 20)[:, None]
    for target, sign in ((np.ones(20, int), 1), (np.zeros(20, int), -1)):
        leaf = of_leaf(X, target, offset, 1)
        assert (sign * (leaf.intercept + offset)).min() == pytest.approx(1.0)


def test_rows_with_other_offsets_are_not_one_row() -> None:
    X, target = np.zeros((60, 1), np.float32), np.arange(60) // 2 % 2
    X[:, 0] = np.arange(60) // 4
    for offset, n_rows in ((np.zeros((60, 1)), 30), (np.arange(60.0)[:, None], 60)):
        kept, weight = leaf_module._merged_rows(X, target, np.ones(60), np.zeros(60, bool), offset)
        assert len(weight) == n_rows
        assert weight.sum() == 60
        assert len(X[kept]) == n_rows


def curved(n: int, seed: int, task: str) -> tuple[np.ndarray, np.ndarray]:
    """A steep line, and a wave that no line follows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    value = 4.0 * (X[:, 1] - X[:, 2]) + 2.0 * np.sin(4.0 * X[:, 0]) + 0.3 * rng.normal(size=n)
    return X, value if task == "regression" else np.digitize(value, [0.0] if task == "two" else [-2.0, 2.0])


@pytest.mark.parametrize("n_leaves", [1, 4])
@pytest.mark.parametrize("task", ["regression", "two", "three"])
def test_a_model_with_a_term_has_the_strengths_of_both(
    task: str, n_leaves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator = DCPredRegressor if task == "regression" else DCPredClassifier
    (X, y), (new, truth) = curved(1_500, 0, task), curved(4_000, 1, task)
    settings: Any = {"n_leaves": n_leaves, "landmarks": 32, "random_state": 0}
    mine = estimator(**settings).fit(X, y)
    (term,) = mine.model_.terms
    monkeypatch.setattr(term_fits, "FITS", ())
    plain = estimator(**settings).fit(X, y)
    assert not plain.model_.terms
    linear = term.values(new)
    if task == "regression":
        errors = [((truth - f) ** 2).mean() for f in (mine.predict(new), plain.predict(new), linear[:, 0])]
        assert errors[0] < 0.85 * min(errors[1:])
        low, high = mine.predict_interval(new, alpha=0.1).T
        assert 0.87 < ((low <= truth) & (truth <= high)).mean() < 0.95
    else:
        by_line = (linear[:, 0] > 0) if task == "two" else linear.argmax(axis=1)
        right = [(f == truth).mean() for f in (mine.predict(new), plain.predict(new), by_line)]
        assert right[0] > right[1] - 0.01
        assert right[0] > right[2] + 0.005
        p = mine.predict_proba(new)
        assert abs(p.max(axis=1).mean() - right[0]) < 0.04
    mine.save(tmp_path / "m")
    served = load_model(tmp_path / "m")
    np.testing.assert_array_equal(served.predict(new), mine.predict(new))
    decision, _ = compact_model.score_rows(served.model, new)
    assert not list(
        differences(served.model, new, score_rows(served.model, new), (decision, np.ones(4_000, np.uint8)))
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"refine": False},
        {"loss": "distance", "products": 0},
        {"keep_support_vectors": True},
        {"distill_weight": 0.5},
        {"leaf_model": "exact"},
    ],
)
def test_leaves_that_need_the_local_svm_take_no_terms(settings: dict[str, Any]) -> None:
    X, y = curved(300, 0, "two")
    survey, own = survey_rows(X, y, None, 0, "classification"), make_settings({"n_leaves": 1, **settings})
    wrong = next(iter(settings))
    with pytest.raises(SettingsError, match=rf"linear beside {wrong}=[^,]*: local SVMs do not take linear"):
        train_rows(X, y, np.ones(300), np.empty(0), survey, own, (0, 1))
