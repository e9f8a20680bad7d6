"""Tuning end to end: settings are found, kept, trained with, and the model is as good as it was judged
to be.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from sklearn.base import clone

from dcpred import load_model
from dcpred.cli import rendering
from dcpred.estimators import DCPredClassifier, DCPredRegressor
from dcpred.execution.lease import acquire_lock
from dcpred.execution.progress import reporting
from dcpred.execution.workers import Pool, Workers
from dcpred.public.remarks import collecting
from dcpred.reports.report import report as report_of
from dcpred.serving.cost import predict_cost
from dcpred.training import choice as tuning
from dcpred.training.choice import choose_settings, decision_in_words
from dcpred.training.fit import fit_model, training_hashes
from dcpred.training.policy import CLASSES, DEFAULT, Budget, Deadline, parse_budget, rounded_up
from dcpred.training.reports import TuneReport
from dcpred.training.train import train
from dcpred.training.tune import tune
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import (
    DataError,
    InterruptedRunError,
    PlanConflictError,
    RunHeldError,
    SchedulerError,
    SettingsError,
)
from dcpred_tasks.model.compact_model import class_numbers
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.scratch import TrainJob
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.task_bodies.train_model import Receipt, survey_block, try_settings
from dcpred_tasks.training.settings import Settings, make_settings, settings_dict
from support.data import make_blobs, make_group
from support.html_pages import check_page
from support.pools import inline
from support.reporters import Recorder
from support.searches import SHIPPED, SMALL, few_candidates, small_search
from support.setting_words import classifier_with

ROUNDS = "dcpred_tasks.training.learned_scaling.ROUNDS"
REFERENCES = replace(SMALL, references=True)


@pytest.fixture(scope="module", autouse=True)
def candidates() -> Iterator[None]:
    with few_candidates():
        yield


def rings(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes by radius in 2 of 6 features of very different units; the others are noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    y = (np.floor(2.0 * np.hypot(X[:, 0], X[:, 1])).astype(int)) % 2
    return (X * [1e3, 1, 1, 50, 1e-3, 1]).astype(np.float32), y


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, y = rings(1_600, 0)
    return make_group(tmp_path_factory.mktemp("tuning") / "rings.zarr", X, y, chunk_rows=400)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many rows as a search needs that is not asked for a good model."""
    X, y = rings(300, 0)
    return make_group(tmp_path_factory.mktemp("few") / "rings.zarr", X, y, chunk_rows=75)


@dataclass(frozen=True)
class Whole:
    """A search of few rows that nothing cut off: its report, and how many tasks and blocks it took."""

    report: TuneReport
    n_tasks: int
    n_blocks: int


@pytest.fixture(scope="module")
def whole(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    tasks: list[Any] = []
    blocks: list[Any] = []

    def trying(*task: Any) -> Any:
        tasks.append(task)
        return try_settings(*task)

    def surveying(*task: Any) -> Receipt:
        blocks.append(task)
        return survey_block(*task)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.training.trials.try_settings", trying)
        patch.setattr("dcpred.training.steps.survey_block", surveying)
        report = small_search(few, tmp_path_factory.mktemp("whole") / "m")
    return Whole(report, len(tasks), len(blocks))


@pytest.fixture(scope="module")
def half_done(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the same search left in m.tune when it was cut off before its mutations."""
    folder = tmp_path_factory.mktemp("half")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.training.choice.Search.mutate", cut_off)
        with pytest.raises(KeyboardInterrupt):
            small_search(few, folder / "m")
    return folder / "m.tune"


@dataclass(frozen=True)
class Tuned:
    """A folder with a model of the rings, `m`, and nothing else that a search leaves, made by two calls: the
    first was cut off in training, after it had written down what it chose; the second was not to search.
    """

    folder: Path
    chosen: bytes  # what the first call wrote down
    report: TuneReport  # that of the second call


def cut_off(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def tuned(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    folder = tmp_path_factory.mktemp("tuned")

    def call() -> TuneReport:
        return small_search(data, folder / "m", policy=REFERENCES)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ROUNDS, SHIPPED["ROUNDS"])  # a good model takes all of them
        patch.setattr("dcpred.training.choice.fit_model", cut_off)
        with pytest.raises(KeyboardInterrupt):
            call()
    chosen = (folder / "m.tuned.json").read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ROUNDS, SHIPPED["ROUNDS"])
        patch.setattr("dcpred.training.choice.Search.run", cut_off)
        return Tuned(folder, chosen, call())


def test_a_search_has_a_report(tuned: Tuned) -> None:
    """And the report of its model says the same of it."""
    pytest.importorskip("matplotlib", reason="matplotlib draws the pictures of reports")
    chosen, folder = tuned.report.chosen, tuned.folder
    own = check_page(report_of(folder / "m.tuned.json").html)
    assert own.texts["h1"] == ["Search for m"]
    assert f"{100 * chosen['accuracy']:.2f} %" in own.texts["dd"]
    lines = [text for text in own.texts["th"] if "(chosen)" in text]
    assert len(lines) == 1
    found = check_page(report_of(folder / "m").html)
    assert found.texts["h2"] == [*("Composition", "Search", "References", "Decisions", "Settings", "History")]
    assert lines[0] in found.texts["th"]


def test_a_report_leaves_out_the_search_for_another_model(tuned: Tuned, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the pictures of reports")
    shutil.copytree(tuned.folder / "m", tmp_path / "m")
    told = json.loads((tuned.folder / "m.tuned.json").read_text())
    for seed, there in ((told["found"]["settings"]["seed"], True), (7, False)):
        told["found"]["settings"]["seed"] = seed
        (tmp_path / "m.tuned.json").write_text(json.dumps(told))
        assert ("Search" in check_page(report_of(tmp_path / "m").html).texts["h2"]) == there


def test_a_tuned_model_is_good_and_what_was_judged_holds(tuned: Tuned) -> None:
    folder, report = tuned.folder, tuned.report
    X, y = rings(2_000, 1)
    model = read_model(folder / "m")
    assert predict_cost(model).cost_ratio == pytest.approx(report.chosen["cost_ratio"], rel=0.25), (
        "leaves were merged since"
    )
    decision, _ = score_rows(model, X)
    accuracy = float((class_numbers(decision) == y).mean())
    assert accuracy > 0.85
    assert report.chosen["accuracy"] > 0.8
    assert 0.005 < report.chosen["standard_error"] < 0.03
    assert report.settings["scaling"] == "learned"
    costs = [p["cost_ratio"] for p in report.frontier]
    assert costs == sorted(costs)
    assert sorted(p.name for p in folder.iterdir()) == ["m", "m.tuned.json"]


def test_what_was_foretold_holds(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(3_000, 3)).astype(np.float32)
    y = ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(int)
    data = make_group(tmp_path / "d.zarr", X[:1_000], y[:1_000])
    report = small_search(data, tmp_path / "m")
    decision, _ = score_rows(read_model(tmp_path / "m"), X[1_000:])
    found, error = float((class_numbers(decision) == y[1_000:]).mean()), report.chosen["standard_error"]
    assert 0.003 < error < 0.02
    assert abs(found - report.chosen["accuracy"]) < 3 * error


def test_a_budget_holds_and_costs_accuracy(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "measured_linear_ns", lambda n_features: 5.0)
    cheap = small_search(few, tmp_path / "cheap", budget=Budget(ratio=12.0))
    assert cheap.chosen["cost_ratio"] <= 12.0
    with pytest.raises(
        SettingsError, match="Cannot find a model within a budget of 1ns: the cheapest one"
    ) as refused:
        small_search(few, tmp_path / "none", budget=Budget(ns=1.0))
    least = re.search(r"takes ([\d.]+x)", str(refused.value))
    assert least is not None
    small_search(few, tmp_path / "least", budget=parse_budget(least[1]))
    assert not (tmp_path / "none").exists()
    assert not (tmp_path / "none.tune").exists()


def test_another_point_of_a_search_is_trained_without_a_search(
    few: Path, tuned: Tuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best one within a budget, also of other rows; a budget that no point keeps to is refused."""
    cheap, *_, dear = tuned.report.frontier
    monkeypatch.setattr("dcpred.training.choice.Search.run", cut_off)
    earlier = {"search": tuned.folder / "m", "workers": 1}
    for point, budget in ((cheap, f"{cheap['cost_ratio']:.6f}1x"), (dear, "1000x")):
        model = tmp_path / f"at {point['cost_ratio']:.0f}"
        report = tune(few, model, budget=budget, **earlier)
        assert report.settings == point["settings"]
        assert report.chosen["cost_ratio"] == point["cost_ratio"]
        assert load_model(model).model.n_features == 6
    assert tune(few, tmp_path / "choice", **earlier).settings == tuned.report.settings
    least = rounded_up(cheap["cost_ratio"])
    words = (
        f"no point of its Pareto front is within the budget of 0.1x; the cheapest one takes {least}. Allow"
    )
    with pytest.raises(SettingsError, match=words):
        tune(few, tmp_path / "none", budget="0.1x", **earlier)
    alone = {"seconds": 5.0, "metric": "accuracy", "references": True, "short": True}
    for name, value in alone.items():
        with pytest.raises(SettingsError, match=f"Cannot combine {name} with search: it is for a new search"):
            tune(few, tmp_path / "none", **earlier, **{name: value})
    with pytest.raises(SettingsError, match=r"there is no .*other\.tuned\.json\. Search without it\."):
        tune(few, tmp_path / "none", search=tmp_path / "other")
    assert not (tmp_path / "none").exists()


def test_a_search_shows_nothing_of_other_rows(
    few: Path, data: Path, tuned: Tuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its quality is that of its own rows, and so is the time that it took."""
    monkeypatch.setattr("dcpred.training.choice.Search.run", cut_off)
    point = tuned.report.frontier[0]
    budget = f"{point['cost_ratio']:.6f}1x"
    same, other = (
        tune(one, tmp_path / one.parent.name, search=tuned.folder / "m", budget=budget, workers=1)
        for one in (data, few)
    )
    assert same.chosen["accuracy"] == point["accuracy"]
    assert same.seconds.keys() == other.seconds.keys() == {"train"}
    assert {one["accuracy"] for one in (other.chosen, *other.frontier)} == {None}
    assert other.trace == []
    shown = rendering.shown(TuneReport, asdict(other))
    assert "held out  not evaluated" in shown
    remarks = " ".join(map(str, other.remarks))
    assert "a search on other rows, which does not show the quality on these" in remarks
    assert "too few rows" not in shown
    again = tune(few, tmp_path / "again", search=other.model, workers=1)
    assert again.settings == point["settings"]


def test_a_search_of_other_data_is_refused(tuned: Tuned, tmp_path: Path) -> None:
    X, y = rings(60, 0)
    three = np.arange(60) % 3
    others = {
        "the number of features: 6 against 5": make_group(tmp_path / "5.zarr", X[:, 1:], y),
        "the number of classes: 2 against 3": make_group(tmp_path / "classes.zarr", X, three),
    }
    for words, other in others.items():
        with pytest.raises(SettingsError, match=rf"m: it is of other data \({words}\)\. Search without it"):
            tune(other, tmp_path / "none", search=tuned.folder / "m")
    same = make_group(tmp_path / "task.zarr", X, y)
    with pytest.raises(SettingsError, match=r"\(the task: classification against regression\)"):
        tune(same, tmp_path / "none", search=tuned.folder / "m", task="regression")
    zarr.open_group(same)["X"].attrs["feature_names"] = list("abcdef")
    with pytest.raises(SettingsError, match=r"\(the names of features\)"):
        tune(same, tmp_path / "none", search=tuned.folder / "m")
    assert not (tmp_path / "none").exists()


def test_a_time_that_is_over_leaves_the_default_settings(few: Path, tmp_path: Path) -> None:
    """And a valid model, with what its trial showed."""
    policy = replace(SMALL, deadline=Deadline(1e-9))
    report = small_search(few, tmp_path / "m", policy=policy)
    assert report.trace == []
    assert report.settings["landmarks"] == Settings().landmarks
    assert 0 < report.chosen["n_judged"] < 300
    assert not report.chosen["extrapolated"]
    assert [one["settings"] for one in report.frontier] == [report.settings]
    assert load_model(tmp_path / "m").model.n_features == 6


def test_a_search_without_a_budget_always_finds_a_model(tmp_path: Path) -> None:
    """30 classes of rows of 2 features: the cheapest model takes more than the 20 linear predictions that
    nobody asked for.
    """
    rng = np.random.default_rng(0)
    y = np.arange(120) % 30
    X = (y[:, None] // [1, 5] + 0.3 * rng.normal(size=(120, 2))).astype(np.float32)
    data = make_group(tmp_path / "many.zarr", X, y)
    with pytest.raises(SettingsError, match="Cannot find a model within a budget of 20x"):
        small_search(data, tmp_path / "named", budget=Budget(ratio=20.0))
    report = small_search(data, tmp_path / "m", policy=replace(SMALL, ns=1.0))
    assert report.chosen["cost_ratio"] > 20.0
    assert report.trained["n_rows"] == 120


def test_wide_rows_are_tried_as_one_leaf_too(tmp_path: Path) -> None:
    """Two directions of 64 decide, turned so that no scaling of features finds them."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(64, 64)))[0]

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.normal(size=(n, 64)) * np.where(np.arange(64) < 2, 4.0, 0.5)
        return (X @ turn).astype(np.float32), (X[:, 0] * X[:, 1] > 0).astype(int)

    X, y = draw(1_800)
    data = make_group(tmp_path / "wide.zarr", X, y, chunk_rows=700)
    with few_candidates((DEFAULT, "near the machine"), ()):
        report = small_search(data, tmp_path / "m", budget=Budget(ratio=7.0))
    assert 1 in {p["n_leaves"] for p in report.frontier}
    X, y = draw(2_000)
    decision, _ = score_rows(read_model(tmp_path / "m"), X)
    assert (class_numbers(decision) == y).mean() > 0.9


@pytest.fixture
def surveyed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The scratch directories in which a block is looked at, block by block."""
    places: list[str] = []

    def noting(job: TrainJob, *args: Any) -> Receipt:
        places.append(Path(job.scratch).suffix)
        return survey_block(job, *args)

    monkeypatch.setattr("dcpred.training.steps.survey_block", noting)
    return places


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_are_looked_at_once(few: Path, tmp_path: Path, surveyed: list[str], weighted: bool) -> None:
    """The search hands on what it found, and training makes of it the model that it would make without."""
    X, y = rings(300, 0)
    weight = (np.arange(300) % 3 == 0).astype(float)  # so few rows count that more are sampled
    data = make_group(tmp_path / "weighted.zarr", X, y, chunk_rows=75, weight=weight) if weighted else few
    report = small_search(data, tmp_path / "tuned", weight=f"{data}/weight" if weighted else None)
    blocks = len(surveyed)
    assert set(surveyed) == {".tune"}
    weights = "weight" if weighted else None
    alone = train(data, tmp_path / "alone", settings=report.settings, sample_weight=weights)
    assert surveyed[blocks:] == [".scratch"] * blocks
    assert report.trained["hash"] == alone.hash


def test_a_search_and_its_training_have_the_same_workers(tmp_path: Path) -> None:
    """They are asked for once, and not before there is work."""
    blobs = make_blobs(40, n_features=3, n_classes=3, seed=0)
    data = make_group(tmp_path / "d.zarr", blobs.X, blobs.y)
    told: list[str] = []

    @contextmanager
    def pool() -> Iterator[Workers]:
        told.append("start")
        with inline() as workers:
            yield workers
        told.append("end")

    model = tmp_path / "m"
    assert not small_search(data, model, pool=pool).trained["already_trained"]
    assert told == ["start", "end"]
    assert small_search(data, model, pool=pool).trained["already_trained"]
    assert told == ["start", "end"]


def test_data_that_changed_in_a_search_are_looked_at_again(
    tmp_path: Path, surveyed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = rings(300, 0)
    data = make_group(tmp_path / "d.zarr", X, y, chunk_rows=75)

    def changing(*args: Any) -> Any:
        zarr.open_array(f"{data}/X", mode="r+")[0] = X[1]
        return fit_model(*args)

    monkeypatch.setattr("dcpred.training.choice.fit_model", changing)
    report = small_search(data, tmp_path / "tuned")
    assert surveyed == [".tune"] * (len(surveyed) // 2) + [".scratch"] * (len(surveyed) // 2)
    alone = train(data, tmp_path / "alone", settings=report.settings)
    assert report.trained["hash"] == alone.hash


def test_every_decision_is_kept_and_shown(tuned: Tuned) -> None:
    """In MODEL.tuned.json and on the pages of the search and of its model."""
    pytest.importorskip("matplotlib", reason="matplotlib draws the pictures of reports")
    report, folder = tuned.report, tuned.folder
    assert {line["candidate"] for line in report.trace} >= {"learned", "wider", "more landmarks"}
    assert json.loads(tuned.chosen)["found"]["trace"] == report.trace
    for line in report.trace:
        assert line["gain"] == pytest.approx(line["incumbent_loss"] - line["loss"])
        assert line["rows"] == 1_600 or line["step"].endswith("first look")
    for path in (folder / "m.tuned.json", folder / "m"):
        page = check_page(report_of(path).html)
        shown = [text for texts in page.texts.values() for text in texts]
        for line in report.trace:
            assert {line["candidate"], line["verdict"], line["incumbent"]} <= set(shown)
            assert f"{line['gain']:.2g} ± {line['standard_error']:.2g}" in shown


def test_a_verbose_search_says_every_decision(few: Path, tmp_path: Path) -> None:
    class Detailed(Recorder):
        def detail(self, text: str) -> None:
            self.told.append(text)

    said, quiet = Detailed(), Recorder()
    with reporting(said):
        report = small_search(few, tmp_path / "m")
    told = [decision_in_words(line) for line in report.trace]
    assert told
    assert [text for text in said.told if text in told] == told
    with reporting(quiet):
        small_search(few, tmp_path / "quiet")
    assert not set(told) & set(quiet.told)


def test_references_are_there_when_asked_for(tuned: Tuned) -> None:
    """In the report, on its page and on the terminal, beside the choice on the same rows."""
    pytest.importorskip("matplotlib", reason="matplotlib draws the pictures of reports")
    report = tuned.report
    names = [one["name"] for one in report.references]
    assert names[-2:] == ["HistGradientBoosting", "SVM pipeline"]
    assert (names[0] == "default settings") == (report.trace[0]["verdict"] == "replaces")
    shown = check_page(report_of(tuned.folder / "m.tuned.json").html)
    words = rendering.shown(TuneReport, asdict(report)).replace("\n", " ")
    for one in report.references:
        assert one["n_judged"] > 0
        assert one["better"] == (one["gain"] > one["gain_error"])
        assert one["name"] in [text for texts in shown.texts.values() for text in texts]
        assert f"{one['name']} accuracy {100 * one['accuracy']:.2f} %" in words


def test_a_better_reference_is_told_in_a_sentence(tmp_path: Path) -> None:
    """Steps along the axes, of which gradient boosting is made, and models that are nearly constant."""
    pytest.importorskip("matplotlib", reason="matplotlib draws the pictures of reports")
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 4)).astype(np.float32)
    data = make_group(tmp_path / "d.zarr", X, ((X[:, 0] > 0.5) ^ (X[:, 1] > 0.5)).astype(int))
    said = Recorder()
    with (
        few_candidates(
            portfolio={DEFAULT: {"landmarks": 4, "products": 0, "width": 1e-6, "refine_steps": 1}}
        ),
        reporting(said),
    ):
        report = small_search(data, tmp_path / "m", policy=REFERENCES)
    best = max(report.references, key=lambda one: one["gain"])
    assert best["better"]
    assert report.words.startswith(
        f"{best['name']} with default settings is better on the same held-out rows"
    )
    assert f"accuracy {100 * best['accuracy']:.2f} %" in report.words
    assert "dcpred tune" in report.words
    assert sum(report.words[1:] in line for line in said.told) == 1
    text = " ".join(
        text for texts in check_page(report_of(tmp_path / "m").html).texts.values() for text in texts
    )
    assert report.words in text


def test_workers_threads_and_memory_come_to_the_same(
    few: Path, whole: Whole, tmp_path: Path, two_workers: Pool
) -> None:
    X, y = rings(300, 0)
    found = [whole.report, small_search(few, tmp_path / "two", pool=two_workers)]
    assert found[0].trained["hash"] == found[1].trained["hash"]
    traces = [one.trace for one in found]
    settings, more = choose_settings(X, y, np.ones(300), Settings(), policy=SMALL, threads=2)
    assert settings_dict(settings) == found[0].settings
    traces.append(more["trace"])
    assert all(trace == traces[0] for trace in traces)


def test_an_estimator_chooses_as_the_command_does(tmp_path: Path) -> None:
    """The same settings, and the same model, by the same rows and seed. Their seeds differed: `random_state`
    was a seed of seeds.
    """
    X, y = rings(500, 0)
    data = make_group(tmp_path / "data.zarr", X, y)
    start = make_settings({"seed": 5})
    found = small_search(data, tmp_path / "model", settings=start)
    model = DCPredClassifier(random_state=5).fit(X, y)
    assert model.settings_ == found.settings
    command = load_model(tmp_path / "model", estimator=True)
    np.testing.assert_array_equal(command.decision_function(X), model.decision_function(X))
    assert command.get_params()["random_state"] == 5


def test_what_was_chosen_is_kept(data: Path, tuned: Tuned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the call after one that was cut off in training nor one that finds the model searches again.
    Another call on the same model is refused.
    """
    monkeypatch.setattr("dcpred.training.choice.Search.run", cut_off)
    model = tuned.folder / "m"
    again = small_search(data, model, policy=REFERENCES)
    assert (tuned.folder / "m.tuned.json").read_bytes() == tuned.chosen
    assert not tuned.report.trained["already_trained"]
    assert again.trained["already_trained"]
    with pytest.raises(
        PlanConflictError, match=r"is there already.*: it was asked for another budget\. Remove"
    ):
        small_search(data, model, policy=REFERENCES, budget=Budget(ratio=50.0))
    with pytest.raises(PlanConflictError, match=r"another choice of reference models and another time limit"):
        small_search(data, model, policy=replace(SMALL, deadline=Deadline(5.0)))


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("name", "left"),
    [
        *(("survey/000000-100000.npz", 0.0), ("trial-0.npz", 0.6)),
        *(("scaling-0-*.npz", 0.0), ("tried-0-*.npz", 0.6)),
    ],
)
def test_a_damaged_file_of_a_search_that_was_cut_off_is_made_anew(
    few: Path, whole: Whole, half_done: Path, tmp_path: Path, surveyed: list[str], name: str, left: float
) -> None:
    shutil.copytree(half_done, tmp_path / "m.tune")
    file = next((tmp_path / "m.tune").glob(name))
    content = file.read_bytes()
    file.write_bytes(content[: int(left * len(content))])
    report = small_search(few, tmp_path / "m")
    assert len(surveyed) == name.startswith("survey")
    assert report.trained["hash"] == whole.report.trained["hash"]


@pytest.mark.cases(2)
@pytest.mark.parametrize("damage", ["torn", "", "garbage"])
def test_a_search_that_was_cut_off_goes_on(
    few: Path,
    whole: Whole,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    surveyed: list[str],
    damage: str,
) -> None:
    """Nothing is looked at twice, but for what was being written down when the machine lost power."""
    asked = []
    limit = whole.n_tasks // 2

    def counting(*task: Any) -> Any:
        if limit and len(asked) == limit:
            raise InterruptedRunError("stopped")
        asked.append(task[1:3])
        return try_settings(*task)

    monkeypatch.setattr("dcpred.training.trials.try_settings", counting)
    with pytest.raises(InterruptedRunError, match="run the same command again to resume"):
        small_search(few, tmp_path / "m")
    tried = sorted((tmp_path / "m.tune").glob("tried-*.npz"))[0]
    if damage == "torn":
        tried.write_bytes(tried.read_bytes()[:-7])
    elif damage == "garbage":
        tried.write_bytes(b"of other data")
    limit = 0
    again = small_search(few, tmp_path / "m")
    assert len(asked) == whole.n_tasks + bool(damage)
    assert len(surveyed) == whole.n_blocks
    for name in ("settings", "frontier", "trace", "references", "words"):
        assert getattr(again, name) == getattr(whole.report, name)
    assert again.trained["hash"] == whole.report.trained["hash"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "m.tuned.json"]


def test_a_search_with_another_limit_goes_on(
    few: Path, whole: Whole, half_done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit changes no trial."""
    asked = []

    def counting(*task: Any) -> Any:
        asked.append(task)
        return try_settings(*task)

    monkeypatch.setattr("dcpred.training.trials.try_settings", counting)
    shutil.copytree(half_done, tmp_path / "m.tune")
    n_tried = len(list(half_done.glob("tried-*.npz")))
    report = small_search(few, tmp_path / "m", policy=replace(SMALL, deadline=Deadline(1e6, lambda: 0.0)))
    assert len(asked) == whole.n_tasks - n_tried
    assert report.settings == whole.report.settings


def test_another_search_does_not_go_on_from_one_that_was_cut_off(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("dcpred.training.choice.Search.run", cut_off)
        with pytest.raises(KeyboardInterrupt):
            small_search(few, tmp_path / "m")
    (tmp_path / "m.tune" / "trial-0.npz").write_bytes(b"of other data")
    small_search(few, tmp_path / "m", budget=Budget(ratio=30.0))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "m.tuned.json"]


def test_a_search_that_is_refused_late_keeps_what_it_judged(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that went away comes back; a search that is refused at once leaves nothing."""

    def gone(*_: object) -> None:
        raise SchedulerError("the scheduler is gone")

    with monkeypatch.context() as patch:
        patch.setattr("dcpred.training.choice.Search.mutate", gone)
        with pytest.raises(SchedulerError):
            small_search(few, tmp_path / "m")
    assert list((tmp_path / "m.tune").glob("tried-*.npz"))
    with monkeypatch.context() as patch:
        patch.setattr("dcpred.training.choice.Search.run", gone)
        with pytest.raises(SchedulerError):
            small_search(few, tmp_path / "other")
    assert not (tmp_path / "other.tune").exists()


def test_what_was_chosen_before_leaves_another_search_alone(data: Path, tuned: Tuned) -> None:
    """Settings that are read from MODEL.tuned.json remove the directory of their own search only."""
    scratch = tuned.folder / "m.tune"
    for run, stays in (("of another budget", True), (json.loads(tuned.chosen)["run"], False)):
        scratch.mkdir(exist_ok=True)
        (scratch / "tune.json").write_text(json.dumps({"run": run}))
        small_search(data, tuned.folder / "m", policy=REFERENCES)
        assert scratch.exists() is stays
        assert (tuned.folder / "m").exists()


def test_a_search_of_an_earlier_version_is_not_repeated(
    data: Path, tuned: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run has a name that this version does not give any more."""

    def renamed(*of: Any, **more: Any) -> tuple[str, ...]:
        return "of this version", *training_hashes(*of, **more)

    monkeypatch.setattr("dcpred.training.choice.training_hashes", renamed)
    monkeypatch.setattr("dcpred.training.choice.Search", None)  # would fail if it were called
    report = small_search(data, tuned.folder / "m", policy=REFERENCES)
    assert report.settings == tuned.report.settings


def test_neither_chunks_nor_leftovers_of_a_killed_search_change_the_choice(
    few: Path, whole: Whole, tmp_path: Path
) -> None:
    first = whole.report
    (tmp_path / "m.tune" / "survey").mkdir(parents=True)
    (tmp_path / "m.tune" / "tune.json").write_text("{}")
    (tmp_path / "m.tune" / "survey" / "000000-100000.npz").write_bytes(b"of other data")
    (tmp_path / "m.tune" / "trial-0.npz").write_bytes(b"of other data")
    group = zarr.open_group(few, mode="r")
    other = make_group(tmp_path / "other.zarr", group["X"][...], group["y"][...], chunk_rows=130)
    report = small_search(other, tmp_path / "m")
    assert json.dumps(report.settings) == json.dumps(first.settings)
    assert report.trained["hash"] == first.trained["hash"]
    assert not (tmp_path / "m.tune").exists()


def test_a_directory_of_somebody_else_is_left_alone(data: Path, tmp_path: Path) -> None:
    (tmp_path / "m.tune").mkdir()
    (tmp_path / "m.tune" / "notes.txt").write_text("precious")
    with pytest.raises(PlanConflictError, match="holds other files"):
        small_search(data, tmp_path / "m")
    assert (tmp_path / "m.tune" / "notes.txt").read_text() == "precious"


def test_a_second_search_leaves_the_first_alone(data: Path, tmp_path: Path) -> None:
    (tmp_path / "m.tune").mkdir()
    with acquire_lock(open_place(tmp_path / "m.tune")):
        (tmp_path / "m.tune" / "tune.json").write_text("{}")
        with pytest.raises(RunHeldError, match="in use by"):
            small_search(data, tmp_path / "m")
        assert (tmp_path / "m.tune" / "tune.json").exists()


def test_a_training_is_refused_at_once_where_a_search_is_running(
    data: Path, tmp_path: Path, surveyed: list[str]
) -> None:
    (tmp_path / "m.tune").mkdir()
    with (
        acquire_lock(open_place(tmp_path / "m.tune")),
        pytest.raises(RunHeldError, match=r"m\.tune: it is in use by process"),
    ):
        train(data, tmp_path / "m", settings={"n_leaves": 2})
    assert not surveyed
    assert [p.name for p in tmp_path.iterdir()] == ["m.tune"]
    assert train(data, tmp_path / "m", settings={"n_leaves": 2}).n_rows == 1_600


def test_a_search_is_refused_where_a_training_is_running(data: Path, tmp_path: Path) -> None:
    """It is told to wait, and not to remove what the other one is at work on."""
    (tmp_path / "m.scratch").mkdir()
    with (
        acquire_lock(open_place(tmp_path / "m.scratch")),
        pytest.raises(RunHeldError, match=r"m\.scratch: it is in use by process"),
    ):
        small_search(data, tmp_path / "m")


FOUND: dict[str, Callable[[dict[str, Any]], object]] = {
    "nothing": lambda kept: kept.pop("found"),
    "no settings": lambda kept: kept["found"].pop("settings"),
    "a setting that there is not": lambda kept: kept["found"]["settings"].update(leaves=4),
    "nothing chosen": lambda kept: kept["found"].pop("chosen"),
    "no cost": lambda kept: kept["found"]["chosen"].pop("cost_ratio"),
    "a cost that is no number": lambda kept: kept["found"]["chosen"].update(cost_ratio={}),
    "a point that is none": lambda kept: kept["found"]["frontier"].append(7),
    "leaves in halves": lambda kept: kept["found"]["frontier"][0].update(n_leaves=2.5),
    "no accuracy": lambda kept: kept["found"]["frontier"][0].update(accuracy=None),
    "an accuracy without end": lambda kept: kept["found"]["chosen"].update(accuracy=1e308),
    "time that is none": lambda kept: kept["found"]["seconds"].update(search=["long"]),
    "a sentence that is none": lambda kept: kept["found"].update(words=7),
    "a decision without a verdict": lambda kept: kept["found"]["trace"][0].pop("verdict"),
    "a gain that is no number": lambda kept: kept["found"]["trace"][0].update(gain="large"),
    "a trace that is none": lambda kept: kept["found"].update(trace={}),
    "a reference without a name": lambda kept: kept["found"]["references"][0].update(name=None),
    "a reference that is none": lambda kept: kept["found"]["references"].append("boosting"),
    "a reference without an accuracy": lambda kept: kept["found"]["references"][0].pop("accuracy"),
}


@pytest.mark.parametrize("what", FOUND)
def test_a_choice_that_is_not_whole_is_refused(data: Path, tuned: Tuned, tmp_path: Path, what: str) -> None:
    kept = json.loads(tuned.chosen)
    FOUND[what](kept)
    (tmp_path / "m.tuned.json").write_text(json.dumps(kept))
    with pytest.raises(
        PlanConflictError, match=r"m\.tuned\.json: it is not the result of a search\. Remove it to search"
    ):
        small_search(data, tmp_path / "m", policy=REFERENCES)


def test_a_handful_of_rows_cannot_be_judged_and_that_is_said(tmp_path: Path) -> None:
    """The model has fewer landmarks than were chosen, and that is said, too."""
    X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    data = make_group(tmp_path / "d.zarr", X, np.arange(5) % 2)
    with collecting() as collected:
        report = small_search(data, tmp_path / "m")
    assert report.chosen["n_judged"] == 0
    assert sum("nothing was evaluated" in each.what for each in collected.remarks) == 1
    shown = rendering.shown(TuneReport, asdict(report))
    assert "nothing was evaluated" in shown
    made = report.made
    assert made["cost_ratio"] == predict_cost(read_model(tmp_path / "m")).cost_ratio
    assert made["most_landmarks"] == report.trained["n_landmarks"] < report.chosen["landmarks"]
    assert f"1 leaf of {made['most_landmarks']} landmarks, at a predicted cost of" in shown


def test_rows_that_are_all_alike_and_huge_features(tmp_path: Path) -> None:
    """Where nothing distinguishes the classes all rows have one score; and a feature that single precision
    cannot hold unscaled decides.
    """
    alike = make_group(tmp_path / "alike.zarr", np.ones((60, 3)), np.arange(60) % 2)
    report = small_search(alike, tmp_path / "alike")
    assert report.chosen["accuracy"] == pytest.approx(0.5, abs=0.05)
    decision, status = score_rows(read_model(tmp_path / "alike"), np.ones((9, 3)))
    assert np.isfinite(decision).all()
    assert np.ptp(decision) == 0
    assert (status == Status.OK).all()
    X = np.random.default_rng(0).normal(size=(600, 3))
    y = (X[:, 0] > 0).astype(int)
    huge = make_group(tmp_path / "huge.zarr", X[:300] * [1e100, 1, 1], y[:300])
    small_search(huge, tmp_path / "huge")
    decision, status = score_rows(read_model(tmp_path / "huge"), X[300:] * [1e100, 1, 1])
    assert (status == Status.OK).all()
    assert np.mean((decision[:, 0] > 0) == y[300:]) > 0.9


def test_weights_count_between_leaves_too(tmp_path: Path) -> None:
    """Half of the space has labels without a pattern and all of the weight: no settings are right there."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 2)).astype(np.float32)
    left = X[:, 0] < 0
    y = np.where(left, rng.integers(0, 2, 400), (X[:, 1] > 0).astype(int))
    data = make_group(tmp_path / "d.zarr", X, y, weight=np.where(left, 100.0, 1.0))
    report = small_search(data, tmp_path / "m", weight=f"{data}/weight")
    assert report.chosen["accuracy"] < 0.7


def test_what_cannot_be_trained_is_refused_before_anything_is_written(data: Path, tmp_path: Path) -> None:
    X, _ = rings(100, 0)
    one = make_group(tmp_path / "one.zarr", X, np.zeros(100, int))
    with pytest.raises(DataError, match="only one class"):
        small_search(one, tmp_path / "m")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.zarr"]


@pytest.mark.cases(2)
@pytest.mark.parametrize("n", [8, 40, 200])
def test_little_data_is_enough(n: int, tmp_path: Path) -> None:
    blobs = make_blobs(n, n_features=3, n_classes=3, seed=0)
    data = make_group(tmp_path / "d.zarr", blobs.X, blobs.y)
    report = small_search(data, tmp_path / "m")
    assert report.trained["n_rows"] == n


def test_regression_with_weights_of_zero(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 2)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    weight = (rng.random(400) < 0.8).astype(float)
    y[weight == 0] = 1e6
    data = make_group(tmp_path / "d.zarr", X, y, weight=weight)
    report = small_search(data, tmp_path / "m", settings=Settings(task="regression"), weight=f"{data}/weight")
    assert report.chosen["rmse"] < 0.15
    decision, _ = score_rows(read_model(tmp_path / "m"), X)
    assert np.sqrt(np.mean((decision[:, 0] - y)[weight > 0] ** 2)) < 0.1


@pytest.mark.parametrize(
    "named", [{"n_leaves": 8}, {"kernel": "laplacian"}, {"gamma": 2.0}, {"refine": False}], ids=str
)
def test_what_a_search_chooses_cannot_be_given_as_well(named: dict[str, object]) -> None:
    X, y = rings(100, 0)
    with pytest.raises(SettingsError, match=f"Cannot use {next(iter(named))} together with budget='10x'"):
        classifier_with(budget="10x", **named).fit(X, y)


def test_estimators_search_within_a_budget() -> None:
    """In memory, with string labels, class weights and a class whose rows have no weight; and for values."""
    blobs = make_blobs(400, n_features=3, n_classes=2, seed=0)
    names = np.array(["in", "out", "never"])[np.append(blobs.y, 2)]
    X = np.vstack([blobs.X, blobs.X[:1]])
    weight = np.append(np.ones(400), 0.0)
    model = DCPredClassifier(budget="30x", class_weight={"in": 2.0, "out": 1.0, "never": 1.0}, random_state=0)
    model.fit(X, names, sample_weight=weight)
    assert model.classes_.tolist() == ["in", "out"]
    assert model.score(X[:400], names[:400]) > 0.85
    assert model.settings_["C"] == pytest.approx(CLASSES["C"]), "whatever the unit of weights"
    with pytest.raises(SettingsError, match="Write 8x"):
        clone(model).set_params(budget="cheap").fit(X, names)
    X, _ = rings(200, 0)
    value = np.hypot(X[:, 0] / 1e3, X[:, 1])
    assert DCPredRegressor(budget="40x", random_state=0).fit(X, value).score(X, value) > 0.9
