"""Exported models score rows as the engine does."""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import dcpred
from dcpred import ServedModel
from dcpred.cli import main
from dcpred.model_export.export import _writer
from dcpred.model_export.flat_model import FlatModel, compact
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.compact_model import LeafModels, Model, summed_sizes
from dcpred_tasks.model.exact import Exact
from dcpred_tasks.model.kernels import KERNELS
from dcpred_tasks.model.leaf_model import EXACT, stored
from dcpred_tasks.model.predictive_outputs import probabilities
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.target_encoding import TargetEncoding
from dcpred_tasks.model.target_transform import LOG, ROOT, TargetTransform
from dcpred_tasks.scoring.scorer import score_rows
from support import exported
from support.models import SCALINGS, random_model, random_rows
from support.sureness import sure
from support.terms import random_linear
from support.trees import random_trees

NO_ONNX = find_spec("onnx") is None or find_spec("onnxruntime") is None
NO_C = not exported.compilers()
FORMATS = (
    pytest.param("onnx", marks=pytest.mark.skipif(NO_ONNX, reason="onnx or onnxruntime is not installed")),
    pytest.param("c", marks=pytest.mark.skipif(NO_C, reason="there is neither gcc nor ziglang")),
)
OF_TERMS = [
    ("none", "classification", 1, 0, False),
    ("gaps", "classification", 3, 2, False),
    ("standard", "regression", 1, 2, False),
    ("none", "regression", 1, 1, True),
    ("coded gaps", "classification", 1, 1, False),
]
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror")
STATED = 1e-6  # error of the engine, relative to the size of the sums


@cache
def served(kind: str) -> ServedModel:
    return exported.make_served(kind)


def run(path: Path, *flags: str) -> exported.Predict:
    return exported.run_onnx(path) if path.suffix == ".onnx" else exported.run_c(path, "", *flags)


def check(model: Model, X: NDArray[Any], found: dict[str, NDArray[Any]], labels: NDArray[Any]) -> None:
    """Scores of rows are those of the definition, and labels those of their decision values.

    labels  of each class, and then of a row without a score
    """
    decision, status = compact_model.score_rows(model, X)
    terms, intercept = summed_sizes(model, X)
    ok = status == Status.OK
    assert np.isnan(found["decision"].reshape(decision.shape)[~ok]).all()
    off = exported.off(model, found["decision"], decision)
    assert (off <= STATED * (1 + terms + intercept))[ok].all()
    if model.classes:
        number = compact_model.class_numbers(found["decision"].reshape(decision.shape))
        assert (found["label"] == labels[np.where(ok, number, -1)]).all()
        wanted = probabilities(model, found["decision"].reshape(decision.shape))
        assert np.allclose(found["probability"], wanted, rtol=1e-6, atol=1e-9, equal_nan=True)


def check_labels(kind: str, path: Path, n_rows: int) -> None:
    """An exported model labels rows as the engine does, and its decision values differ by rounding."""
    one = served(kind)
    made = dcpred.export_model(one, path)
    assert made.n_bytes == path.stat().st_size
    assert len(made.features) == one.model.n_features
    predict = run(path)
    for seed in range(-(-n_rows // exported.BATCH)):
        X = exported.encoded_rows(kind, min(n_rows, exported.BATCH), seed)
        found, right = predict(X), score_rows(one.model, X)[0]
        terms, intercept = summed_sizes(one.model, X)
        off = exported.off(one.model, found["decision"], right)
        assert (off <= 2 * STATED * (1 + terms + intercept)).all()
        if len(one.classes_):
            labels = found["label"] if path.suffix == ".onnx" else one.classes_[found["label"]]
            other = labels != one.predict(X)
            two = np.sort(np.column_stack([right, np.zeros_like(right)] if right.shape[1] == 1 else [right]))
            tied = two[:, -1] - two[:, -2] <= 2 * off  # Rounding decides between two classes.
            assert not (other & ~tied).any()
            assert other.mean() <= 1e-4
            assert np.allclose(found["probability"], one.predict_proba(X), atol=1e-5)


def in_turn(name: str, values: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrize by `values` and the formats: an ordinary run takes the formats in turn."""
    cases = [
        pytest.param(value, *form.values, marks=[*form.marks, *[pytest.mark.long] * ((i + j) % 2)])
        for i, value in enumerate(values)
        for j, form in enumerate(FORMATS)
    ]
    return pytest.mark.parametrize((name, "ending"), cases)


@in_turn("kind", exported.KINDS)
def test_labels_are_those_of_the_engine(kind: str, ending: str, tmp_path: Path) -> None:
    check_labels(kind, tmp_path / f"model.{ending}", 4_000)


@pytest.mark.long
@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("kind", exported.KINDS)
def test_labels_of_a_million_rows_are_those_of_the_engine(kind: str, ending: str, tmp_path: Path) -> None:
    check_labels(kind, tmp_path / f"model.{ending}", 10**6)


def cases() -> list[tuple[str, str, int, str | None, str]]:
    """Kernels, scalings, outputs, triangle bounds and tasks, in a part of their combinations."""
    every = product(KERNELS, SCALINGS, (1, 3), (None, "lower", "upper"), ("classification", "regression"))
    sensible = [
        one
        for one in every
        if not ((one[4] == "regression" and one[2] > 1) or (one[3] and one[0] == "polynomial"))
    ]
    return sensible[::17]


@in_turn("given", list(enumerate(cases())))
def test_every_part_of_a_model_is_exported(
    given: tuple[int, tuple[str, str, int, str | None, str]], ending: str, tmp_path: Path
) -> None:
    seed, (kernel, scaling, n_outputs, triangle, task) = given
    shape: dict[str, Any] = {"d": 1 + seed % 20, "depth": seed % 4, "leaf_scaling": seed % 2 == 0}
    model = random_model(
        seed, kernel, n_outputs=n_outputs, task=task, scaling=scaling, triangle=triangle, **shape
    )
    weight = np.arange(1.0, 1 + len(model.classes)) if seed % 3 == 0 else np.empty(0)
    model = sure(model, seed, weight)
    if task == "regression" and seed % 3:
        name = (LOG, ROOT)[seed % 2]
        target = TargetTransform(name, 0.1)
        model = replace(model, target=target, intercept=model.intercept - 1e6, bounds=model.bounds - 1e6)
    X = random_rows(model, 200, seed, bad=0.1)
    check(
        model, X, export_flat(model, tmp_path / f"model.{ending}", X), np.append(np.arange(n_outputs + 1), -1)
    )


def export_flat(
    model: Model, path: Path, X: NDArray[Any], flags: tuple[str, ...] = ()
) -> dict[str, NDArray[Any]]:
    """Scores of rows of double precision by an exported model that was never stored."""
    names = tuple(f"feature {number}" for number in range(model.n_features))
    path.write_bytes(_writer(path, "float64")(FlatModel(model, names, {}, "float64")))
    return run(path, "-O0", *flags)(X)  # The source is what is new in each case.


def labels_of(model: Model) -> NDArray[Any]:
    return np.append(np.arange(max(len(model.classes), 1)), -1)


@pytest.mark.parametrize("ending", FORMATS)
def test_target_encoding_is_exported(ending: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    targets = TargetEncoding(3, np.array([0, 2]), np.array([0, 5, 12]), rng.normal(size=(12, 2)))
    model = sure(random_model(4, d=5, n_outputs=3, scaling="none"))
    model = replace(model, scaling=Scaling(np.zeros(5), np.ones(5), targets=targets))
    X = np.column_stack([rng.choice([0, 1, 4, 5, -1, 2.5, np.nan, 1e30], 300), rng.normal(size=300)])
    X = np.column_stack([X, rng.integers(-1, 9, 300)])
    check(model, X, export_flat(model, tmp_path / f"model.{ending}", X), labels_of(model))


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize(("scaling", "task", "n_outputs", "depth", "encodes"), OF_TERMS)
def test_terms_are_exported(
    scaling: str, task: str, n_outputs: int, depth: int, encodes: bool, ending: str, tmp_path: Path
) -> None:
    """Within the bounds of a leaf, also of a constant one; of encoded rows, whose missing values they see."""
    shape: dict[str, Any] = {"d": 4, "depth": depth, "n_outputs": n_outputs, "task": task}
    plain = sure(random_model(5, scaling=scaling, **shape))
    X = random_rows(plain, 300, 0, bad=0.1).astype(np.float64)
    if encodes:
        table = np.random.default_rng(1).normal(size=(9, 2))
        targets = TargetEncoding(3, np.array([1]), np.array([0, 9]), table)
        plain, X = replace(plain, scaling=replace(plain.scaling, targets=targets)), X[:, :3]
        X[:, 1] = np.arange(300) % 11
    size = float(np.nanmedian(np.abs(X))) or 1.0
    n_encoded = plain.scaling.n_encoded
    trees = random_trees(0, n_encoded, n_outputs)
    trees.bin[0, :2] = 0
    model = replace(plain, terms=(random_linear(0, n_encoded, n_outputs, 1 / size), trees))
    found = export_flat(compact(model), tmp_path / f"model.{ending}", X, STRICT)
    check(model, X, found, labels_of(model))
    scored = compact_model.score_rows(plain, X)[1] == Status.OK
    before = compact_model.score_rows(plain, X)[0].reshape(found["decision"].shape)
    assert np.nanmax(np.abs(found["decision"] - before)[scored]) > 0.1


@pytest.mark.parametrize("ending", FORMATS)
def test_exact_leaves_are_exported_and_baselines_refused(ending: str, tmp_path: Path) -> None:
    model = sure(random_model(1, d=4, depth=1, sizes=(0,)))
    rng = np.random.default_rng(0)
    X = random_rows(model, 100, 0)
    rows = model.scaling(X)
    leaves = [
        stored(Exact(model.kernel, rows[:9], rng.normal(size=(9, 1)).astype(np.float32), np.ones(1)), rows)
        for _ in range(model.n_leaves - 1)
    ]
    at = np.cumsum([0, *map(len, leaves), 0])
    model = replace(model, leaf_models=LeafModels(EXACT, at, np.concatenate(leaves)))
    found = export_flat(compact(model), tmp_path / f"model.{ending}", X)
    check(model, X, found, labels_of(model))
    with pytest.raises(DataError, match="Cannot export the model: its leaves hold models of fourier"):
        compact(replace(model, leaf_models=LeafModels("fourier", at, np.concatenate(leaves))))


@pytest.mark.skipif(NO_C, reason="there is neither gcc nor ziglang")
@pytest.mark.parametrize(("kind", "name"), list(zip(exported.KINDS[1:4], cycle(exported.compilers()))))
def test_each_compiler_accepts_the_source_without_warnings(kind: str, name: str, tmp_path: Path) -> None:
    dcpred.export_model(served(kind), tmp_path / "model.c")
    X = exported.encoded_rows(kind, 300, 9)
    X[7, 2] = np.inf
    predict = exported.run_c(tmp_path / "model.c", name, *STRICT)
    found = predict(X)
    right = score_rows(served(kind).model, X)[0]
    assert np.isnan(found["decision"][7]).all()
    assert np.allclose(found["decision"].reshape(right.shape), right, atol=1e-3, equal_nan=True)
    alone = [predict(X[i : i + 1])["decision"][0] for i in range(20)]
    assert np.array_equal(np.array(alone), found["decision"][:20], equal_nan=True)


@pytest.mark.skipif(NO_ONNX, reason="onnx or onnxruntime is not installed")
def test_onnx_has_plain_operators_and_names_features(tmp_path: Path) -> None:
    import onnx

    dcpred.export_model(served("missing values and codes"), tmp_path / "model.onnx")
    made = onnx.load(tmp_path / "model.onnx")
    assert {node.domain for node in made.graph.node} == {""}
    assert [one.domain for one in made.opset_import] == [""]
    facts = {one.key: one.value for one in made.metadata_props}
    assert json.loads(facts["features"])[-1].startswith("colour (0 = blue, 1 = green")
    assert json.loads(facts["classes"]) == ["no", "yes"]


def test_command_writes_a_new_file_or_nothing(tmp_path: Path) -> None:
    model = dcpred.DCPredClassifier(n_leaves=1, landmarks=4, settings=exported.QUICK, random_state=0)
    X = exported.random_rows(60, 0)
    model.fit(X, (X[:, 0] > 0).astype(int)).save(tmp_path / "model")
    out = tmp_path / "model.c"
    done = CliRunner().invoke(main, ["export-model", str(tmp_path / "model"), str(out), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["n_bytes"] == out.stat().st_size
    done = CliRunner().invoke(main, ["export-model", str(tmp_path / "model"), str(out)])
    assert done.exit_code == 3
    assert f"Cannot export to {out}: it already exists." in " ".join(done.stderr.split())
    for name, dtype in (("model.txt", "float32"), ("other.c", "float16")):
        with pytest.raises(SettingsError):
            dcpred.export_model(tmp_path / "model", tmp_path / name, dtype=dtype)
    with pytest.raises(DataError, match="its folder does not exist"):
        dcpred.export_model(tmp_path / "model", tmp_path / "absent" / "model.c")
