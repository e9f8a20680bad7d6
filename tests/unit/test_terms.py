"""Terms of a model beside its kernels, by the example of a linear one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dcpred.cost import predict_cost
from dcpred.explanation import explain_rows
from dcpred.model_export.export import compact
from dcpred_tasks.artifacts.model_artifact import open_artifact, read_model, write_model
from dcpred_tasks.artifacts.model_layout import check_body, check_model
from dcpred_tasks.engine.engine import Engine
from dcpred_tasks.errors import DataError, ModelFormatError
from dcpred_tasks.model import compact_model, contributions, terms
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.leaf_arrays import Parts
from dcpred_tasks.model.target_encoding import TargetEncoding
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.scoring.self_test import check_self_test
from support.models import SCALINGS, differences, random_model, random_rows
from support.terms import Linear, check_term, random_linear


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "TERMS", (Linear,))


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


def test_the_cost_counts_terms_and_files_hold_none() -> None:
    plain = random_model(0, d=3)
    model = with_term(plain)
    assert predict_cost(model).ns_per_row - predict_cost(plain).ns_per_row == pytest.approx(0.3)
    with pytest.raises(DataError, match="other terms than kernels \\(linear\\)"):
        compact(model)
