"""Remarks: one registry, one door, and the same remarks in Python, on a terminal, in JSON and on pages."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import dcpred
from dcpred.cli import main
from dcpred.cli.observation import Metrics
from dcpred.execution.events import heard_by
from dcpred.public.remarks import add_remarks, collecting
from dcpred_tasks.errors import RemarkError, SettingsError
from dcpred_tasks.remarks import KINDS, Severity, remark, remarks_of
from support.remark_words import PAGE, remark_page

SETTINGS = {"n_leaves": 1, "landmarks": 8}
SET = ["--set", "n_leaves=1", "--set", "landmarks=8"]


def table(n: int = 400, leak: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    answer = rows.a + rng.normal(size=n) > 0
    if leak:
        rows["closed"] = answer + rng.normal(0, 0.001, n)
    return rows.assign(answer=np.where(answer, "yes", "no"))


@pytest.fixture
def leaky(tmp_path: Path) -> str:
    dcpred.import_data(table(), tmp_path / "known.zarr", target="answer")
    return str(tmp_path / "known.zarr")


def run(*args: Any) -> Any:
    return CliRunner().invoke(main, list(map(str, args)))


def test_the_page_states_every_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == remark_page()


def test_python_and_the_terminal_get_a_remark_once(leaky: str, tmp_path: Path) -> None:
    with pytest.warns(dcpred.DataWarning, match="leak: feature 'closed' predicts") as heard:
        report = dcpred.train(leaky, tmp_path / "m", settings=SETTINGS)
    assert heard[0].filename == __file__
    (found,) = report.remarks
    assert (found.code, found.severity, found.columns) == ("leak", "alarm", ("closed",))
    assert str(found) in str(report)
    assert found.text.replace("'", "&#x27;") in report._repr_html_()
    again = dcpred.train(leaky, tmp_path / "m", settings=SETTINGS)
    assert again.already_trained
    assert again.remarks == report.remarks, "the model stores them"
    told = run("train", leaky, tmp_path / "cli", *SET, "--workers", 1)
    assert (told.exit_code, told.output.count("'closed' predicts")) == (0, 1)
    printed = run("train", leaky, tmp_path / "json", *SET, "--workers", 1, "--json")
    (document,) = json.loads(printed.stdout)["remarks"]
    assert remarks_of([document]) == [found]
    page = dcpred.report(tmp_path / "m").html
    assert page.index("What needs your attention") < page.index("closed&#39; predicts") < page.index("<main>")
    harmless = tmp_path / "harmless.zarr"
    dcpred.import_data(table(leak=False), harmless, target="answer")
    assert not dcpred.train(harmless, tmp_path / "h", settings=SETTINGS).remarks
    assert "needs your attention" not in dcpred.report(tmp_path / "h").html


def test_estimators_warn() -> None:
    rows = table()
    X, y = rows.drop(columns="answer"), rows.answer
    with pytest.warns(dcpred.DataWarning, match="leak: feature 'closed'") as heard:
        model = dcpred.DCPredClassifier(**SETTINGS).fit(X, y)
    assert heard[0].filename == __file__
    assert [each.code for each in model.remarks_] == ["leak"]


def test_an_alarm_fails_before_a_model_is_written(leaky: str, tmp_path: Path) -> None:
    with pytest.raises(RemarkError, match=r"'closed' predicts.*--accept leak"):
        dcpred.train(leaky, tmp_path / "m", settings=SETTINGS, on_alarm="raise")
    failed = run("train", leaky, tmp_path / "m", *SET, "--workers", 1, "--fail-on", "alarm")
    assert (failed.exit_code, failed.output.count("'closed' predicts")) == (7, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["known.zarr"]
    with pytest.raises(SettingsError, match="Did you mean 'leak'"):
        dcpred.train(leaky, tmp_path / "m", settings=SETTINGS, accept=["leek"])
    accepted = run(
        "train", leaky, tmp_path / "m", *SET, "--workers", 1, "--fail-on", "alarm", "--accept", "leak"
    )
    assert (accepted.exit_code, "closed" in accepted.output) == (0, False)


def test_a_warning_is_not_published(leaky: str, tmp_path: Path) -> None:
    """A run with drift is no latest run, its result is printed, and status and monitoring know its codes."""
    plain, scored = tmp_path / "plain.zarr", tmp_path / "scored.zarr"
    dcpred.import_data(table(2_000, leak=False), plain, target="answer")
    dcpred.train(plain, tmp_path / "m", settings=SETTINGS)
    far = table(500, leak=False).drop(columns="answer")
    dcpred.import_data(far.assign(b=far.b * 1_000), scored, like=str(tmp_path / "m"))
    given = tmp_path / "m", scored, tmp_path / "root", "--workers", 1, "--json"
    failed = run("refresh", *given, "--fail-on", "warning")
    document = json.loads(failed.stdout)
    assert (failed.exit_code, document["exit_code"], document["state"]) == (7, 7, "kept")
    assert {"drift", "beyond-training"} == {each["code"] for each in document["remarks"]}
    metrics = Metrics("job", "refresh", "0", 0.0)
    with heard_by(metrics):
        published = run("refresh", *given)
    assert (published.exit_code, json.loads(published.stdout)["state"]) == (0, "published")
    assert 'code="drift",severity="warning"} 1.0' in metrics.text(1.0)
    root = dcpred.status(tmp_path / "root")
    assert isinstance(root.runs[0].remarks, tuple)
    assert {"drift", "beyond-training"} == {*root.runs[0].remarks}
    latest = dcpred.status(tmp_path / "root" / "latest")
    assert {"drift", "beyond-training"} == {each.code for each in latest.remarks}


def test_remarks_of_inner_functions_reach_outer_ones_once() -> None:
    first = remark("leak", "x predicts")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with collecting() as outer:
            for _ in range(2):
                with collecting() as inner:
                    add_remarks(first)
                assert inner.remarks == [first]
        assert outer.remarks == [first]
        with collecting(["leak"], Severity.ALARM) as accepting, collecting():
            add_remarks(first)
        assert not accepting.remarks
    assert len(heard) == 1


def test_sentences_of_earlier_models_are_remarks() -> None:
    (old,) = remarks_of(["The model has 2 leaves instead of n_leaves=1."])
    assert (old.code, old.severity) == ("changed-settings", "note")
    assert all(kind.why and kind.do and kind.cause and kind.example for kind in KINDS.values())
