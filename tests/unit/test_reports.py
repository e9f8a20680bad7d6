"""Reports of models, evaluations and runs hold what these hold, are whole pages, and refuse what is none."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import zarr
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

import dcpred
from dcpred import DCPredClassifier
from dcpred.cli import main
from dcpred.evaluation import evaluate as evaluating
from dcpred.evaluation.evaluate import evaluate
from dcpred.pages import charts
from dcpred.pages.page import render
from dcpred.reports import run_page
from dcpred.reports.evaluation_page import evaluation_page, last_name, without_places
from dcpred.reports.report import report
from dcpred.reports.run_page import bin_quantiles
from dcpred.runs.ledger import open_ledger
from dcpred.scoring.score import score
from dcpred.serving.cost import Cost, predict_cost
from dcpred_tasks.artifacts.model_artifact import open_artifact, read_model, write_model
from dcpred_tasks.artifacts.trained_rows import TrainedRows
from dcpred_tasks.errors import DataError
from dcpred_tasks.evaluation import measures
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.compact_model import Model, Reference, class_numbers
from dcpred_tasks.model.contributions import known_importances
from dcpred_tasks.storage.addressed_arrays import open_array
from support.data import make_group
from support.html_pages import Seen, check_page, seen, shown
from support.models import random_model, random_rows

pytest.importorskip("matplotlib", reason="matplotlib draws the pictures of reports")
pytest.importorskip("jinja2", reason="jinja2 makes the pages of reports")

N_ROWS, CHUNK_ROWS = 600, 20
HOSTILE = ('<b onclick="x()">&', "</title><script>alert(1)</script>", "{{ 7 * 7 }}", "long " * 30)
KINDS = {"two classes": 1, "many classes": 14, "numbers": 1}


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Many blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", CHUNK_ROWS)
        patch.setattr("dcpred_tasks.scoring.statistics.SAMPLE_ROWS", N_ROWS)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, small: None) -> Callable[[str], Path]:
    """By its kind the folder of a model, data.zarr with answers, and an output `out`."""
    found: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in found:
            found[kind] = tmp_path_factory.mktemp("report")
            _make(found[kind], kind)
        return found[kind]

    return get


def _make(folder: Path, kind: str) -> None:
    task = "regression" if kind == "numbers" else "classification"
    model = random_model(7, task=task, n_outputs=KINDS[kind], d=4)
    rng = np.random.default_rng(0)
    names = () if kind == "numbers" else tuple([*HOSTILE, *map(str, range(99))][: max(KINDS[kind], 2)])
    model = replace(
        model,
        classes=names,
        leaf_rows=rng.integers(10, 900, model.n_leaves),
        reference=Reference(rng.normal(size=4), rng.uniform(1, 2, 4)),
    )
    provenance = {
        "feature_names": [*HOSTILE],
        "versions": {"python": "3", HOSTILE[0]: HOSTILE[1]},
        "report": {"seconds": {"survey": 1.0, HOSTILE[1]: 2.0}},
    }
    write_model(folder / "model", model, _settings(task), provenance)
    X = random_rows(model, N_ROWS, seed=1).astype(np.float64)
    X[[3, 77], 1] = np.nan
    decision, _ = compact_model.score_rows(model, np.nan_to_num(X))
    if task == "regression":
        y: Any = decision[:, 0] + rng.normal(size=N_ROWS)
    else:
        y = class_numbers(decision)
        y[::4] = rng.integers(0, len(names), len(y[::4]))
    labels = list(names) or None
    make_group(folder / "data.zarr", X, y, chunk_rows=CHUNK_ROWS, labels=labels)
    score(folder / "model", f"{folder}/data.zarr/X", folder / "out")


def _settings(task: str) -> dict[str, Any]:
    return {"task": task, "n_leaves": 4096, "landmarks": 16, "scaling": "learned", HOSTILE[2]: HOSTILE[0]}


def checked(page: str) -> Seen:
    """A page of ours, in which hostile names are but names."""
    found = check_page(page)
    assert "49" not in [text.strip() for texts in found.texts.values() for text in texts if "7 *" in text]
    for name in ("b", "script"):
        assert not found.named(name)
    return found


def titles(found: Seen) -> list[str]:
    return found.texts["h2"]


# -- models --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_model(made: Callable[[str], Path], kind: str) -> None:
    folder = made(kind)
    page = report(folder / "model").html
    found, told = checked(page), shown(page)
    assert titles(found) == ["Composition", "Settings", "History"]
    pictures = ["Sizes of leaves", "Importance of columns", "Composition of distances", "Cost of a row"]
    assert found.texts["h3"][:4] == pictures
    model = open_artifact(folder / "model")
    assert model.hash in told
    assert f"{int(model.model().leaf_rows.max()):,}" in told
    assert str(folder) not in page
    for name in HOSTILE[:2]:
        assert name in told


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_and_data(made: Callable[[str], Path], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Cost(0.5, 0.1, 7.5, 0.4, 0.1, 4.0)
    monkeypatch.setattr(evaluating, "measure_cost", lambda *_: measured)
    monkeypatch.setattr(TrainedRows, "known_share", lambda _: 0.4)
    monkeypatch.setattr(TrainedRows, "of", lambda _: TrainedRows(np.arange(3, dtype=np.uint64), 1.0))
    folder = made(kind)
    page = report(folder / "model", data=folder / "data.zarr").html
    found, told = checked(page), shown(page)
    numbers = evaluate(folder / "model", folder / "data.zarr", cost=False).as_dict()
    assert "Errors by region" in titles(found)
    cost = predict_cost(read_model(folder / "model")).cost_ratio
    facts = zip(found.texts["dt"], found.texts["dd"], strict=True)
    assert {value for name, value in facts if "cost" in name} == {f"{cost:.3g}"}, "a page shows one cost"
    if kind == "numbers":
        assert "Residuals" in titles(found)
        assert f"{numbers['rmse']:.4g}" in found.texts["dd"]
    else:
        assert {"Classes", "Ranking"} < set(titles(found))
        assert f"{100 * numbers['accuracy']:.2f} %" in found.texts["dd"]
        assert ("Confusion matrix" in found.texts["h3"]) == (kind == "two classes")
        assert ("Confusions" in found.texts["h3"]) == (kind == "many classes")
        for one in numbers["classes"]:
            assert f"{100 * one['recall']:.2f} %" in told
    assert "without 2 that are not finite" in told
    assert "About 40 % of the rows of data.zarr are equal to rows that the model was trained on" in told


def test_shares_of_features_are_those_of_squared_distances() -> None:
    """In the mean over pairs of rows, leaf by leaf."""
    model = random_model(3, d=4, leaf_scaling=True)
    rng = np.random.default_rng(0)
    sd = rng.uniform(0.1, 3, 4)
    model = replace(
        model, reference=Reference(np.zeros(4), sd), leaf_rows=rng.integers(1, 50, model.n_leaves)
    )
    rows = rng.normal(size=(200_000, 4)) * sd
    plain = np.zeros(4)
    for leaf in range(model.n_leaves):
        scaled = rows * model.scaling.factor * model.leaf_factor[leaf]
        plain += model.leaf_rows[leaf] * ((scaled[::2] - scaled[1::2]) ** 2).mean(axis=0)
    np.testing.assert_allclose(known_importances(model), plain / plain.sum(), atol=0.01)
    assert not known_importances(replace(model, reference=None)).any()
    coded = random_model(5, d=6, scaling="coded")
    coded = replace(coded, reference=Reference(np.zeros(coded.n_features), np.ones(coded.n_features)))
    assert coded.scaling.coding is not None
    assert not known_importances(coded)[coded.scaling.coding.is_coded].any()


def test_a_model_of_one_leaf_without_names(tmp_path: Path) -> None:
    """And without anything that is not needed, or with provenance of another kind."""
    model = random_model(0, depth=0)
    for number, provenance in enumerate(
        ({}, {"versions": [1], "report": "x"}, {"report": {"seconds": {"a": "b"}}})
    ):
        write_model(tmp_path / f"m{number}", model, _settings("classification"), provenance)
        page = report(tmp_path / f"m{number}").html
        assert titles(checked(page)) == ["Composition", "Settings", "History"]
        assert "All rows are in one leaf" in shown(page)


# -- evaluations ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluation(made: Callable[[str], Path], tmp_path: Path, kind: str) -> None:
    folder = made(kind)
    words = ["evaluate", str(folder / "model"), str(folder / "data.zarr"), "--no-cost", "--json"]
    (tmp_path / "e.json").write_text(CliRunner().invoke(main, words).stdout)
    page = report(tmp_path / "e.json").html
    found = checked(page)
    assert found.texts["h1"] == ["model on data.zarr"]
    assert str(folder) not in page
    assert "Errors by region" in titles(found)
    assert len(found.named("svg")) >= 3


def test_an_evaluation_of_probabilities(made: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def logistic(_: Model, decision: Any) -> Any:
        second = 1 / (1 + np.exp(-np.clip(decision[:, 0].astype(float), -30, 30)))
        return np.stack([1 - second, second], axis=1)

    monkeypatch.setattr(measures, "class_probabilities", logistic)
    folder = made("two classes")
    told = evaluate(folder / "model", folder / "data.zarr", cost=False).as_dict()
    found = checked(render(evaluation_page(told)).html)
    assert "Probabilities" in titles(found)
    assert "Reliability" in found.texts["h3"]
    assert f"{told['log_loss']:.4g}" in found.texts["dd"]


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("model", "dcpred.reports.report.settings_section"),
        ("out", "dcpred.reports.run_page.labels"),
    ],
)
@pytest.mark.parametrize("error", [TypeError, KeyError, ZeroDivisionError])
def test_a_bug_of_ours_is_not_blamed_on_the_data(
    made: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    name: str,
    error: type[Exception],
) -> None:
    monkeypatch.setattr(name, Mock(side_effect=error("a bug")))
    with pytest.raises(error, match="a bug"):
        report(made("two classes") / place)


def spoiled(told: Any, path: list[int], value: Any) -> Any:
    """The same document with another value somewhere, or without one."""
    if not path or not isinstance(told, dict | list) or not told:
        return value
    copied = dict(told) if isinstance(told, dict) else list(told)
    at = sorted(copied)[path[0] % len(copied)] if isinstance(copied, dict) else path[0] % len(copied)
    if len(path) == 1 and value == "none":
        del copied[at]
    else:
        copied[at] = spoiled(copied[at], path[1:], value)
    return copied


EVALUATED: dict[str, Any] = {}
SECTIONS: dict[str, set[str]] = {}


@pytest.fixture(scope="module", autouse=True)
def evaluated(made: Callable[[str], Path]) -> None:
    for kind in KINDS:
        folder = made(kind)
        EVALUATED[kind] = evaluate(folder / "model", folder / "data.zarr", cost=False).as_dict()
        (folder / "whole.json").write_text(json.dumps(EVALUATED[kind]))
        SECTIONS[kind] = set(titles(seen(report(folder / "whole.json").html)))


@settings(max_examples=10)
@given(
    st.sampled_from(sorted(KINDS)),
    st.lists(st.integers(0, 50), min_size=1, max_size=4),
    st.sampled_from(["none", None, -1, 0, 1e300, "<b>", [], {}, True, ["<b>"] * 3]),
)
def test_a_damaged_evaluation_is_a_page_or_a_sentence(kind: str, path: list[int], value: Any) -> None:
    """A page with the title and sections of an evaluation, or a sentence that names the file and what to do.
    All is drawn, and not laid out, which takes most of the time.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "svg_of", lambda *_: "")
        file = Path(folder) / "a.json"
        file.write_text(json.dumps(spoiled(EVALUATED[kind], path, value)))
        found, sentence = None, ""
        try:
            found = seen(report(file).html)
        except DataError as error:
            sentence = str(error)
        if found is None:
            assert re.fullmatch(rf"Cannot [^\n]*{re.escape(str(file))}[^\n]*\. [A-Z][^\n]*\.", sentence)
        else:
            assert len(found.texts["h1"]) == 1
            assert titles(found)
            assert set(titles(found)) <= SECTIONS[kind]


# -- runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_run(made: Callable[[str], Path], kind: str) -> None:
    folder = made(kind)
    page = report(folder / "out").html
    found, told = checked(page), shown(page)
    assert found.texts["h1"] == ["Scores of data.zarr"]
    middle = {
        "two classes": ["Labels", "Decision values"],
        "many classes": ["Labels"],
        "numbers": ["Predictions"],
    }
    assert titles(found) == ["Rows", *middle[kind], "Drift", "Workers", "Failures", "How it was made"]
    run = open_ledger(folder / "out").run
    assert {run.run, run.model_hash} <= set(found.texts["td"])
    assert "non finite feature" in told
    assert [text for text in found.texts["th"] if text in ("3", "77")][:2] == ["3", "77"]
    assert HOSTILE[1] in told, "the feature that is to blame"
    for private in (str(folder), os.uname().nodename + ":"):
        assert private not in page


def test_a_run_with_contributions_and_drift(tmp_path: Path) -> None:
    """Bars and points by column, and the outlines of what drifted; a hostile name is but a name."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(1_500, 2)), columns=[HOSTILE[0], "still"])
    DCPredClassifier(n_leaves=2, random_state=0).fit(X, X[HOSTILE[0]] > 0).save(tmp_path / "model")
    new = X.to_numpy() * [1.0, 0.0] + [3.0, 0.0]
    make_group(tmp_path / "new.zarr", new, np.zeros(len(new), np.int64), chunk_rows=CHUNK_ROWS)
    outputs = ("label", "contributions")
    score(tmp_path / "model", f"{tmp_path}/new.zarr/X", tmp_path / "out", outputs=outputs)
    page = report(tmp_path / "out").html
    found = checked(page)
    assert "Contributions" in titles(found)
    assert {"Which columns matter", "Contributions by row"} <= set(found.texts["h3"])
    assert "still now and in training" in found.texts["h3"]
    for table in ("Drift by feature", "Beyond the range of training"):
        assert re.search(rf'<div class="whole">\s*<h3>{table}', page), "its last columns are to be seen"
    assert page.count("<svg") > 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_and_answers(made: Callable[[str], Path], kind: str) -> None:
    """Scores are not made anew: it says what evaluation of the model says."""
    folder = made(kind)
    page = report(folder / "out", data=folder / "data.zarr").html
    found, told = checked(page), EVALUATED[kind]
    name, value = (
        ("RMSE", f"{told['rmse']:.4g}")
        if kind == "numbers"
        else ("accuracy", f"{100 * told['accuracy']:.2f} %")
    )
    assert found.texts["dd"][found.texts["dt"].index(name)] == value
    assert "Errors by region" not in titles(found), "leaves are not stored"


def linked(folder: Path, to: Path) -> Path:
    for path in folder.rglob("*"):
        if path.is_file():
            (to / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            os.link(path, to / path.relative_to(folder))
    return to


def test_an_unfinished_run_with_failures(made: Callable[[str], Path], tmp_path: Path) -> None:
    out = linked(made("many classes") / "out", tmp_path / "out")
    (out / "manifest.json").unlink()
    for block in (3, 4):
        (out / f"blocks/{block:06d}.json").unlink()
    ledger = open_ledger(out)
    ledger.place.make_folder("failures")
    ledger.note_failure(3, f"<b>it</b> failed at {ledger.run.x}/c/3", 2)
    page = report(out).html
    found, told = checked(page), shown(page)
    assert "is not finished; run the same command again: 2 blocks are left." in told
    assert "<b>it</b> failed at data.zarr/c/3" in told
    assert "not scored yet" in told
    assert "Blocks that failed" in found.texts["h3"]
    assert str(made("many classes")) not in page


def test_a_run_whose_model_is_gone(made: Callable[[str], Path]) -> None:
    folder = made("two classes")
    (folder / "model").rename(folder / "elsewhere")
    try:
        told = shown(report(folder / "out").html)
        assert "The model is missing" in told
        with pytest.raises(DataError, match="its model was removed"):
            report(folder / "out", data=folder / "data.zarr")
    finally:
        (folder / "elsewhere").rename(folder / "model")


def test_answers_of_other_rows_are_refused(made: Callable[[str], Path], tmp_path: Path) -> None:
    other = make_group(tmp_path / "other.zarr", np.zeros((5, 4)), np.zeros(5))
    with pytest.raises(DataError, match=r"it has shape \(5,\) and the run 600 rows"):
        report(made("numbers") / "out", data=other)


def test_what_moved_most_of_a_feature_may_be_its_gaps() -> None:
    top = [
        {"feature": 0, "shift": 0.0, "mean": 1.0, "training_mean": 1.0, **gaps}
        for gaps in (
            {"gap_shift": None, "gaps": 1.0, "training_gaps": 0.0},
            {"gap_shift": -2.5, "gaps": 0.0, "training_gaps": 0.5},
        )
    ]
    table = run_page._moved({"top": top, "n_large": 2}, ("income",))
    assert [line[1] for line in table.lines] == ["all missing", "−2.50"]
    assert [line[-1] for line in table.lines] == ["100.0 % (0.0 %)", "0.0 % (50.0 %)"]


def test_answers_of_as_many_rows_in_another_order_are_refused(
    made: Callable[[str], Path], tmp_path: Path
) -> None:
    """A copy of the rows that were scored will do."""
    folder = made("numbers")
    X, y = (open_array(f"{folder}/data.zarr/{name}")[:] for name in "Xy")
    copy = make_group(tmp_path / "copy.zarr", X, y, chunk_rows=CHUNK_ROWS)
    assert "RMSE" in report(folder / "out", data=copy).html
    other = make_group(tmp_path / "other.zarr", X[::-1], y[::-1], chunk_rows=CHUNK_ROWS)
    with pytest.raises(DataError, match=r"its rows from 0 on are not the scored ones"):
        report(folder / "out", data=other)


def test_answers_of_data_that_were_written_again_are_refused(
    made: Callable[[str], Path], tmp_path: Path
) -> None:
    """At the address that was scored, also where the first rows are the same."""
    shutil.copytree(made("numbers"), tmp_path / "own")
    data = tmp_path / "own" / "data.zarr"
    score(tmp_path / "own" / "model", data, tmp_path / "scored")
    assert "RMSE" in report(tmp_path / "scored", data=data).html
    X = zarr.open_array(f"{data}/X", mode="r+")
    X[CHUNK_ROWS:] = X[CHUNK_ROWS:][::-1].copy()
    with pytest.raises(DataError, match=r"X changed since its rows were scored"):
        report(tmp_path / "scored", data=data)


@given(st.lists(st.integers(0, 50), min_size=3, max_size=3).filter(any))
def test_quantiles_of_a_histogram(counts: list[int]) -> None:
    """Rows of an open bin are at its edge; within the closed one they lie evenly."""
    found = bin_quantiles(np.array([-1.0, 3.0]), np.array(counts), np.array([0.05, 0.5, 0.95]))
    rows = (
        [-1.0] * counts[0]
        + list(-1 + 4 * (np.arange(counts[1]) + 0.5) / max(counts[1], 1))
        + [3.0] * counts[2]
    )
    plain = np.quantile(rows, [0.05, 0.5, 0.95], method="inverted_cdf")
    assert (np.abs(found - plain) <= 4 / max(counts[1], 1)).all()
    assert (np.diff(found) >= 0).all()


# -- what is refused, and the command ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "it is not readable"),
        ("[]", "it is not readable"),
        ('{"n_samples": NaN}', "it is not readable"),
        ("{}", "neither an output of `dcpred evaluate --json` nor of a search"),
        ('{"n_samples": 3}', r"Cannot draw the evaluation in .* \(KeyError: 'n_bad'\). Make it again"),
        ('{"found": 3}', "it is not an output of a search"),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=sentence):
        report(tmp_path / "a.json")


def test_places_that_are_none(made: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"it does not exist\. Name a model"):
        report(tmp_path / "none")
    with pytest.raises(DataError, match=r"it is no source of a report\. Name a model"):
        report(made("numbers") / "data.zarr")
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(DataError, match="Omit the data"):
        report(tmp_path / "a.json", data="data.zarr")


def command(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["report", *map(str, words)], prog_name="dcpred")
    assert result.exit_code == code, result.output
    return result


def test_the_command(made: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = made("two classes")
    said = command(folder / "model").stdout.splitlines()
    assert said[0].startswith("report  report.html  (")
    assert said[1] == "title   Model model"
    told = json.loads(command(folder / "out", "--out", "run.html", "--json").stdout)
    assert told == {
        "report": "run.html",
        "title": "Scores of data.zarr",
        "bytes": (tmp_path / "run.html").stat().st_size,
    }
    assert told["bytes"] < 300_000
    command(folder / "model")  # one of ours is replaced
    (tmp_path / "mine.html").write_text("mine")
    assert "it is another file" in command(folder / "model", "--out", "mine.html", code=3).stderr
    assert "does not exist" in command(tmp_path / "none", code=3).stderr


def test_a_notebook_shows_a_report(made: Callable[[str], Path]) -> None:
    found = dcpred.report(made("numbers") / "model")
    frame = seen(found._repr_html_())
    assert frame.named("iframe")[0]["srcdoc"] == found.html


def test_a_notebook_shows_an_estimator() -> None:
    """By scikit-learn's own way."""
    page = dcpred.DCPredClassifier(n_leaves=4, landmarks=8)._repr_html_()
    assert "DCPredClassifier" in page
    assert "landmarks" in page


# -- names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("/home/somebody/data.zarr/X", "data.zarr"),
        ("s3://bucket/a/model/", "model"),
        ("X", "X"),
        ("/a/scores.zarr", "a"),
        ("/a/b\n.zarr", "b�.zarr"),
    ],
)
def test_names_are_the_last_parts_of_addresses(address: str, name: str) -> None:
    assert last_name(address) == name


def test_texts_lose_the_places_in_them() -> None:
    text = without_places(
        "chunk /home/me/data.zarr/X/c/0 of /home/me/data.zarr", "/home/me/data.zarr", "/home/me/data.zarr/X"
    )
    assert text == "chunk data.zarr/c/0 of data.zarr"


def test_importances_are_of_what_moves_predictions(tmp_path: Path) -> None:
    """Not of how much of a distance a feature is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    dcpred.train(
        X, tmp_path / "m", y=4 * X[:, 1], task="regression", settings={"n_leaves": 1, "landmarks": 16}
    )
    told = shown(dcpred.report(tmp_path / "m").html)
    section = told[told.index("Importance of columns") :]
    assert "in the target's unit" in section
    assert "feature 1 moves predictions most" in section
