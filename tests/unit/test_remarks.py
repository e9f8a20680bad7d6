"""Remarks: one registry, one door, and the same remarks in Python, on a terminal, in JSON and on pages."""

import json
import re
import warnings
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from sklearn.base import clone

import dcpred
from dcpred.cli import main
from dcpred.cli.observation import Metrics
from dcpred.evaluation.evaluate import _perfect
from dcpred.execution.events import heard_by
from dcpred.public.remarks import add_remarks, collecting
from dcpred.training.choice import tell_if_dearer
from dcpred_tasks.artifacts.repeats import FACTOR, LONGEST, SAMPLED, HashSample, hashes_of_ids
from dcpred_tasks.artifacts.trained_rows import mixed
from dcpred_tasks.errors import RemarkError, SettingsError
from dcpred_tasks.remarks import KINDS, Severity, remark, remarks_of
from dcpred_tasks.tables.block_tables import id_values
from dcpred_tasks.training.training_remarks import apart, is_key
from support.remark_words import PAGE, remark_page
from support.searches import few_candidates

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
    (printed_one,) = remarks_of([document])
    assert replace(printed_one, do=found.do) == found
    assert (printed_one.do.count("--drop"), found.do.count("drop=")) == (1, 1)
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


@pytest.mark.parametrize("kind", [dcpred.DCPredClassifier, dcpred.DCPredRegressor])
def test_estimators_accept_remarks_and_raise_alarms_as_functions_do(kind: Any) -> None:
    X = table(leak=False).drop(columns="answer")
    y = X.a if kind is dcpred.DCPredRegressor else (X.a > 0).astype(int)
    X = X.drop(columns="a").assign(closed=y + 0.001 * X.b)
    estimator = kind(**SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", dcpred.DataWarning)
        clone(estimator).set_params(accept=["leak"], on_alarm="raise").fit(X, y)
    with pytest.warns(dcpred.DataWarning, match="leak"):
        estimator.fit(X, y)
    model = estimator.model_
    with pytest.raises(RemarkError, match=r"accept=\['leak'\]") as refused:
        estimator.set_params(on_alarm="raise").fit(X, y)
    assert [each.code for each in refused.value.remarks] == ["leak"]
    assert estimator.model_ is model
    for wrong, match in (({"on_alarm": "stop"}, "on_alarm='stop'"), ({"accept": ["lead"]}, "'leak'")):
        with pytest.raises(ValueError, match=match):
            clone(estimator).set_params(**wrong).fit(X, y)


def test_an_alarm_fails_before_a_model_is_written(leaky: str, tmp_path: Path) -> None:
    with pytest.raises(RemarkError, match=r"'closed' predicts.*accept=\['leak'\]"):
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


def codes(call: Any) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [remark.code for remark in call().remarks]


# -- What a training says of its rows ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "share"), [(-999.0, 0.05), (0.0, 0.05), (1e30, 0.02), (9_999.0, 0.02), (-1.0, 0.02)]
)
def test_a_code_for_missing_values_stands_apart(value: float, share: float) -> None:
    rng = np.random.default_rng(1)
    weights = rng.normal(75, 12, 2_000).round(1)
    assert apart(weights) == []
    weights[: int(share * 2_000)] = value
    assert apart(weights) == [value]


def test_harmless_repeats_do_not_stand_apart() -> None:
    rng = np.random.default_rng(2)
    amounts = np.where(rng.random(2_000) < 0.7, 0, np.exp(rng.normal(3, 1, 2_000)).round(2))
    capped = np.minimum(rng.normal(600, 150, 2_000).round(), 850)
    flags, grades = rng.choice([0.0, 1.0], 2_000, p=[0.99, 0.01]), rng.integers(1, 6, 2_000).astype(float)
    months = np.append(rng.integers(12, 25, 1_930), np.repeat([36, 48, 60], [50, 15, 5])).astype(float)
    for column in (amounts, capped, flags, grades, months, rng.poisson(0.3, 2_000).astype(float)):
        assert apart(column) == []


def test_a_key_is_known_in_any_order_and_cents_are_none() -> None:
    rng = np.random.default_rng(3)
    ids = rng.permutation(np.arange(700_000, 703_000)).astype(float)
    cents = rng.choice(10**7, 3_000, replace=False).astype(float)
    assert is_key(ids, ids[:500])
    assert not is_key(cents, cents[:500])
    assert not is_key(np.append(ids, ids[:1]), ids[:500])


def test_rows_sorted_by_their_target(tmp_path: Path) -> None:
    rows = table(1_000, leak=False)
    given = {"settings": SETTINGS, "by_time": ""}
    for name, data in (("sorted", rows.sort_values("answer", kind="stable")), ("shuffled", rows)):
        dcpred.import_data(data, tmp_path / f"{name}.zarr", target="answer")
        train = partial(dcpred.train, tmp_path / f"{name}.zarr", tmp_path / name, **given)
        split = partial(dcpred.split, tmp_path / f"{name}.zarr", by_time="")
        assert ("sorted-by-target" in codes(train)) == (name == "sorted")
        assert ("sorted-by-target" in codes(split)) == (name == "sorted")


# -- Rows that belong together -------------------------------------------------------------------------------


def test_groups_and_times_are_tried_as_folds(tmp_path: Path) -> None:
    """Ten rows of a patient are alike; a rule moves with the date. Random groups and dates are harmless."""
    rng = np.random.default_rng(4)
    patient = rng.integers(0, 150, 1_500)
    base, label = rng.normal(size=(150, 4)), rng.random(150) < 0.5
    alike = pd.DataFrame((base[patient] + 0.05 * rng.normal(size=(1_500, 4))).round(3), columns=list("abcd"))
    alike = alike.assign(patient=patient, answer=np.where(label[patient], "yes", "no"))
    time = np.sort(rng.random(3_000))
    x = rng.normal(size=(3_000, 4))
    moving = x[:, 0] * np.cos(3 * time) + x[:, 1] * np.sin(3 * time) + 0.3 * rng.normal(size=3_000) > 0
    dated = pd.DataFrame(x, columns=list("abcd")).assign(
        when=pd.Timestamp("2023-01-01") + pd.to_timedelta((365 * time).round(), unit="D"),
        answer=np.where(moving, "yes", "no"),
    )
    for name, rows, column in (("alike", alike, "patient"), ("dated", dated, "when")):
        harmless = rows.assign(**{column: rows[column].sample(frac=1, random_state=0).to_numpy()})
        for kind, data in (("bad", rows), ("good", harmless)):
            path = tmp_path / f"{name}-{kind}.zarr"
            dcpred.import_data(data, path, target="answer", id=["patient"] if column == "patient" else ())
            assert ("random-holdout" in codes(partial(dcpred.split, path))) == (kind == "bad"), (name, kind)
    with pytest.warns(dcpred.DataWarning, match="random-holdout: .*with by_group='patient', in"):
        dcpred.train(tmp_path / "alike-bad.zarr", tmp_path / "m", settings=SETTINGS)


def test_a_model_that_costs_more_than_was_foreseen_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """After `fit`, and after a search of files: a part of the rows may hide what all of them cost."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(300, 3)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    with few_candidates():
        model = dcpred.DCPredClassifier(random_state=0).fit(X, y)
        assert "dearer-model" not in [each.code for each in model.remarks_]
        cost = model.tuned_["chosen"]["cost_ratio"]
        monkeypatch.setattr(
            "dcpred.estimators.base.predict_cost", lambda model: SimpleNamespace(cost_ratio=1.2 * cost)
        )
        model = dcpred.DCPredClassifier(random_state=0).fit(X, y)
    (found,) = (each for each in model.remarks_ if each.code == "dearer-model")
    assert f"costs {1.2 * cost:.1f} linear predictions, {cost:.1f} were foreseen" in found.what
    with collecting() as collected:
        tell_if_dearer({"cost_ratio": 10.0}, 11.4)
        assert not collected.remarks
        tell_if_dearer({"cost_ratio": 10.0}, 11.6)
    assert [each.code for each in collected.remarks] == ["dearer-model"]


def test_a_perfect_order_is_told_as_perfect_labels_are() -> None:
    """Two columns that together are the target may leave a few labels wrong, but no pair of rows."""
    for figures, words in (
        ({"accuracy": 0.99, "auc": 1.0}, "are on the right side of some threshold"),
        ({"accuracy": 1.0, "auc": 1.0}, "have the right label"),
        ({"accuracy": 0.9999, "auc": 0.9999}, None),
        ({"r2": 0.99999}, "have nearly their value"),
        ({"r2": 0.9999}, None),
    ):
        found = _perfect({"n_samples": 600, "n_bad": 0} | figures)
        assert (found is None) == (words is None)
        assert words is None or f"all 600 rows {words}" in str(found)


@pytest.mark.parametrize("is_fit", [False, True])
def test_no_advice_in_python_names_an_option(is_fit: bool) -> None:
    """Functions have arguments in its place, and estimators what a caller of `fit` can do."""
    with collecting() as function, collecting(is_fit=is_fit) as collected:
        for code, kind in KINDS.items():
            there = collected.in_its_words(remark(code, kind.cause, f"{kind.do}, or --by-group 'no one'"))
            assert "--" not in re.sub("`[^`]*`", "", there.text), there.text
    assert function.in_its_words(remark("leak", "a", "omit --drop or --by-time 't 1'")).do == (
        "omit drop= or by_time='t 1'"
    )
    assert function.in_its_words(remark("leak", "a", "run `dcpred tune --budget 4x`")).do == (
        "run `dcpred tune --budget 4x`"
    )
    with collecting(is_command=True) as command:
        assert command.in_its_words(remark("leak", "a", "use --drop")).do == "use --drop"


# -- Targets -------------------------------------------------------------------------------------------------


def test_targets_of_other_rows(tmp_path: Path) -> None:
    """Labels and numbers that are shifted, swapped, in another unit or of the other sign; honest ones."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3_000, 3))
    price = 100 + 10 * X @ [3.0, -2.0, 1.0] + rng.normal(0, 5, 3_000)
    answer = (X[:, 0] + 0.3 * rng.normal(size=3_000) > 0).astype(int)
    dcpred.train(X[:2_000], tmp_path / "numbers", y=price[:2_000], task="regression", settings=SETTINGS)
    dcpred.train(X[:2_000], tmp_path / "classes", y=answer[:2_000], settings=SETTINGS)
    test, honest, labels = X[2_000:], price[2_000:], answer[2_000:]
    for model, y, cause in (
        ("numbers", honest, None),
        ("numbers", 100 * honest, "times the predictions"),
        ("numbers", np.roll(honest, 1), "shifted by one row"),
        ("numbers", -honest, "other sign"),
        ("classes", labels, None),
        ("classes", 1 - labels, "swapped"),
        ("classes", np.roll(labels, -1), "shifted by one row"),
        ("classes", rng.permutation(labels), "no better than the most frequent class"),
    ):
        result = dcpred.evaluate(tmp_path / model, test, y=y, cost=False)
        wrong = [remark.what for remark in result.remarks if remark.code == "wrong-targets"]
        assert len(wrong) == (cause is not None), (model, cause, wrong)
        assert cause is None or cause in wrong[0]


# -- Files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["part-2.parquet.tmp", "_temporary-part-2.parquet", ".part-2.parquet"])
def test_files_that_are_passed_over(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "days"
    folder.mkdir()
    for number in range(2):
        table(50, leak=False).to_parquet(folder / f"part-{number}.parquet", index=False)
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.parquet.crc").touch()
    assert codes(partial(dcpred.import_data, folder, tmp_path / "a.zarr", target="answer")) == []
    (folder / name).write_bytes((folder / "part-1.parquet").read_bytes())
    found = dcpred.import_data(folder, tmp_path / "b.zarr", target="answer").remarks
    assert [(remark.code, name in remark.what) for remark in found] == [("passed-over-files", True)]


def test_unknown_categories_are_named(tmp_path: Path) -> None:
    """A table in place, an import, and predictions; one new town of a hundred is harmless."""
    rng = np.random.default_rng(6)
    rows = table(1_000, leak=False).assign(town=rng.choice(["Köln", "Bad Ems", "Ulm"], 1_000))
    dcpred.import_data(rows, tmp_path / "known.zarr", target="answer")
    dcpred.train(tmp_path / "known.zarr", tmp_path / "m", settings=SETTINGS)
    model, new = dcpred.load_model(str(tmp_path / "m")), rows.drop(columns="answer")
    for name, old, share, is_told in (
        ("kÖLN", "Köln", 1.0, True),
        ("Ｂａｄ\u00a0 Ems", "Bad Ems", 0.05, True),
        ("Bonn", "Ulm", 0.5, True),
        ("Bonn", "Ulm", 0.03, False),
    ):
        changed = (new.town == old) & (rng.random(1_000) < share)
        data = new.assign(town=new.town.mask(changed, name))
        file = tmp_path / f"{name}-{share}.parquet"
        data.to_parquet(file, row_group_size=300)
        resembles = f"(known is {old!r})" if name != "Bonn" else ""
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            model.predict(data)
        imported = dcpred.import_data(file, tmp_path / f"{name}-{share}.zarr", like=str(tmp_path / "m"))
        scored = dcpred.score(str(tmp_path / "m"), file, tmp_path / f"{name}-{share}")
        for texts, says in (
            ([str(each.message) for each in heard], is_told),
            (["", *(each.what for each in imported.remarks)], True),
            ([each.what for each in scored.remarks if each.code == "unknown-categories"], is_told),
        ):
            assert any(repr(name) in text and resembles in text for text in texts) == says, (name, texts)


# -- Rows that come twice ------------------------------------------------------------------------------------


def test_rows_and_ids_that_come_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over blocks; not where rows have few different values, nor where ids occur once."""
    monkeypatch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
    rng = np.random.default_rng(7)
    few = pd.DataFrame(rng.integers(0, 4, (1_200, 3)), columns=list("abc"))
    few["answer"] = np.where(few.a + rng.normal(size=1_200) > 1.5, "yes", "no")
    for name, rows in (("many", table(1_200, leak=False)), ("few", few)):
        dcpred.import_data(rows[:600], tmp_path / f"{name}.zarr", target="answer")
        dcpred.train(tmp_path / f"{name}.zarr", tmp_path / name, settings=SETTINGS)
        new = rows[600:].drop(columns="answer").assign(order=[f"order {i}" for i in range(600)])
        twice = pd.concat([new, new[:60]])
        same_id = new.assign(order=[*new.order[:-1], "order 0"])
        for kind, data in (("once", new), ("twice", twice), ("id", same_id)):
            file = tmp_path / f"{name}-{kind}.parquet"
            data.to_parquet(file, index=False, row_group_size=100)
            out = tmp_path / f"{name}-{kind}"
            score = partial(dcpred.score, str(tmp_path / name), file, out, parquet=True, id=["order"])
            heard = {code for code in codes(score) if code.startswith("repeated")}
            expected = {"once": set(), "twice": {"repeated-ids", "repeated-rows"}, "id": {"repeated-ids"}}[
                kind
            ]
            assert heard == expected - ({"repeated-rows"} if name == "few" else set()), (name, kind)


def test_a_sample_of_hashes_is_of_all_copies() -> None:
    """Its size is bounded, and its estimate holds for every division into blocks."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(60_000, 2)).astype(np.float32)
    X[50_000:] = X[:10_000]
    ids = pa.array([f"{i % 50_000}" for i in range(60_000)])
    estimates = []
    for size in (60_000, 7_000):
        rows, keys = HashSample(60_000), HashSample(60_000)
        for start in range(0, 60_000, size):
            part = slice(start, start + size)
            one, other = HashSample(60_000), HashSample(60_000)
            one.add_rows(X[part], X[part, 0].copy())
            texts, there = id_values(ids[part])
            other.add_hashes(hashes_of_ids([(texts, there), (np.zeros(len(there)), there)]))
            rows.add_packed(one.packed())
            keys.add_packed(other.packed())
        assert rows.repeats()[1] < 2 * SAMPLED
        assert rows.beyond(0.0) == rows.estimate()
        assert (rows.beyond(0.5), rows.beyond(None)) == (0, 0)
        estimates.append((rows.estimate(), keys.estimate()))
    assert estimates[0] == estimates[1]
    assert estimates[0] == pytest.approx((10_000, 10_000), rel=0.2)


def plain_hash(text: bytes) -> int:
    """Σ word · factor over words of eight bytes, then SplitMix64 and a short mixing."""
    if len(text) > LONGEST:
        text = blake2b(text).digest()
    factors = (mixed(np.arange(LONGEST // 8, dtype=np.uint64)) | np.uint64(1)).tolist()
    words = [int.from_bytes(text[at : at + 8], "little") for at in range(0, len(text), 8)]
    total = sum(word * factor for word, factor in zip(words, factors, strict=False)) % 2**64
    total = int(mixed(np.array([total], np.uint64))[0])
    return (total ^ total >> 32) * int(FACTOR) % 2**64


def test_hashes_of_texts_are_those_of_a_plain_loop() -> None:
    """Also of parts of an array, of long, empty and missing texts, and of texts beyond ASCII."""
    texts = [*("x" * n for n in range(LONGEST + 3)), "", None, "ü€", "a\x00b", *map(str, range(5_000))]
    ids = pa.array(texts)
    for part in (ids, ids.slice(3, 40), ids.slice(len(ids) - 20), ids.slice(0, 0), pa.array([None, "x"])):
        expected = [plain_hash(text.encode()) for text in part.to_pylist() if text is not None]
        assert hashes_of_ids([id_values(part)]).tolist() == expected


def test_rows_that_are_equal_by_chance_were_not_trained_on(tmp_path: Path) -> None:
    """Four columns have 1,440 different rows, which new ones share; half of them being old is a leak."""
    rng = np.random.default_rng(9)

    def rows(n: int) -> Any:
        X = np.column_stack([rng.integers(*span, n) for span in ((18, 54), (1, 6), (0, 2), (0, 4))]).astype(
            float
        )
        return X, np.where(X[:, 0] + rng.normal(0, 10, n) > 35, "yes", "no")

    X, y = rows(1_000)
    dcpred.train(X, tmp_path / "m", y=y, settings=SETTINGS)
    new, labels = rows(1_000)
    for old, share in ((0, 0.0), (500, 0.5), (1_000, 1.0)):
        given = np.vstack([X[:old], new[old:]]), [*y[:old], *labels[old:]]
        result = dcpred.evaluate(tmp_path / "m", given[0], y=np.array(given[1]), cost=False)
        assert result["trained_share"] == pytest.approx(share, abs=0.2)
        assert ("trained-rows" in {each.code for each in result.remarks}) == (share > 0)
