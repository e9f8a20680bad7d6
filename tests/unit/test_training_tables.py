"""Training on tables: the models of an import, from one command, and no import left behind."""

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.feather as pf
import pytest
import zarr
from click.testing import CliRunner

import dcpred
from dcpred.cli.main import main
from dcpred.datasets import importing
from dcpred.training import scratch, steps
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.errors import DataError, PlanConflictError, ResourceError, RunHeldError, SettingsError
from dcpred_tasks.storage.place import open_place
from support.comparisons import small_comparisons
from support.pools import inline
from support.searches import few_candidates
from support.tables import table

FRAME = table(400)
SETTINGS = {"n_leaves": 2, "landmarks": 8, "calibrate": False}
NAMED: dict[str, Any] = {"y": "label", "id": ["id"], "settings": SETTINGS}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    FRAME.to_parquet(tmp_path / "t.parquet", index=False)
    return tmp_path / "t.parquet"


def test_a_model_is_that_of_an_import(data: Path, tmp_path: Path) -> None:
    dcpred.import_data(data, tmp_path / "t.zarr", target="label", id=["id"])
    expected = dcpred.train(tmp_path / "t.zarr", tmp_path / "imported", settings=SETTINGS).hash
    before = {path.name for path in tmp_path.iterdir()}
    found = dcpred.train(data, tmp_path / "model", **NAMED)
    assert found.hash == expected
    assert {path.name for path in tmp_path.iterdir()} - before == {"model"}
    schema = open_artifact(tmp_path / "model").schema
    assert schema is not None
    assert (schema.target, list(schema.ids)) == ("label", ["id"])
    again = dcpred.train(data, tmp_path / "model", **NAMED)
    assert again.already_trained
    dcpred.score(tmp_path / "model", data, tmp_path / "scores")
    dcpred.export(tmp_path / "scores", tmp_path / "scores.parquet")
    assert pd.read_parquet(tmp_path / "scores.parquet")["id"].tolist() == FRAME["id"].tolist()


def test_tables_of_every_kind_and_the_command(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcpred.execution.pools.connect", lambda *_: inline())
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    pf.write_feather(FRAME, tmp_path / "t.arrow")
    pytest.importorskip("deltalake").write_deltalake(str(tmp_path / "delta"), FRAME[:300])
    pytest.importorskip("deltalake").write_deltalake(str(tmp_path / "delta"), FRAME, mode="overwrite")
    hashes = set()
    for name in ("t.parquet", "t.csv", "t.arrow", "delta"):
        words = ["--set", "n_leaves=2", "--set", "landmarks=8", "--set", "calibrate=false"]
        words += ["--y", "label", "--id", "id", "--drop", "day,seen"]
        model = tmp_path / f"model-{name}"
        done = CliRunner().invoke(main, ["train", str(tmp_path / name), str(model), *words])
        assert done.exit_code == 0, done.output
        hashes.add(open_artifact(model).hash)
    assert len(hashes) == 1


def test_a_finished_training_needs_no_import(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the table, its named columns or the settings are others."""
    dcpred.train(data, tmp_path / "model", **NAMED)
    searched = {"y": "label", "id": ["id"]}
    few = tmp_path / "few.parquet"
    FRAME[["id", "age", "amount", "label"]][:120].to_parquet(few, index=False)
    with few_candidates():
        found = dcpred.train(few, tmp_path / "searched", **searched)
    scratched = {**NAMED, "scratch": tmp_path / "scratch"}
    dcpred.train(data, tmp_path / "copied", **scratched)

    def imported(*given: Any, **more: Any) -> None:
        raise RuntimeError("imported")

    monkeypatch.setattr(importing, "import_data", imported)
    again = dcpred.train(data, tmp_path / "model", **NAMED)
    assert again.already_trained
    assert again.model == str(tmp_path / "model")
    assert dcpred.train(data, tmp_path / "copied", **scratched).already_trained
    once_more = dcpred.train(few, tmp_path / "searched", **searched)
    assert isinstance(once_more, dcpred.TuneReport)
    assert once_more.trained["already_trained"]
    assert once_more.settings == found.settings  # type: ignore[union-attr]
    for other in ({"drop": ["day"]}, {"settings": {**SETTINGS, "landmarks": 9}}, {"folds": 3}):
        with pytest.raises(RuntimeError, match="imported"):
            dcpred.train(data, tmp_path / "model", **{**NAMED, **other})
    FRAME[:300].to_parquet(data, index=False)
    with pytest.raises(RuntimeError, match="imported"):
        dcpred.train(data, tmp_path / "model", **NAMED)


def test_a_pattern_is_trained_on_as_it_is_scored(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "days").mkdir(exist_ok=True)
        FRAME[number * 100 : number * 100 + 100].to_parquet(tmp_path / f"days/{number}.parquet", index=False)
    pattern = f"{tmp_path}/days/[01].parquet"
    assert dcpred.train(pattern, tmp_path / "model", **NAMED).n_rows == 200
    assert dcpred.score(tmp_path / "model", pattern, tmp_path / "out").n_rows == 200


def test_no_folds_are_refused(data: Path) -> None:
    for folds in (0, 1):
        with pytest.raises(SettingsError, match=f"{folds}"):
            dcpred.validate(data, **NAMED, folds=folds)


def test_an_interrupted_training_uses_its_import_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(steps.Training, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            dcpred.train(data, tmp_path / "model", **NAMED)
    assert (tmp_path / "model.import" / "data.zarr").exists()
    with monkeypatch.context() as patched:
        patched.setattr(importing, "import_data", interrupted)
        assert dcpred.train(data, tmp_path / "model", **NAMED).hash
    assert {path.name for path in tmp_path.iterdir()} == {"t.parquet", "model"}


def test_an_import_that_was_interrupted_between_its_steps_is_made_anew(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = np.where(FRAME["label"] == "yes", 3.0, 1.0)
    FRAME.assign(w=weight).to_parquet(data, index=False)
    weighted = {**NAMED, "sample_weight": "w"}
    expected = dcpred.train(data, tmp_path / "whole", **weighted).hash

    def interrupted(rows: Path, name: str, *given: Any) -> None:
        del zarr.open_group(rows, mode="r+")[name]  # as it does before it writes the numbers
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(scratch, "_write_weights", interrupted)
        with pytest.raises(KeyboardInterrupt):
            dcpred.train(data, tmp_path / "model", **weighted)
    assert (tmp_path / "model.import" / "data.zarr").exists()
    assert dcpred.train(data, tmp_path / "model", **weighted).hash == expected


def test_the_import_of_another_table_is_not_used(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model.import"
    folder.mkdir()
    (folder / "source.json").write_text('{"identity": "of another table", "source": "/other"}')
    dcpred.import_data(FRAME[:50], folder / "data.zarr", target="label", id=["id"])
    assert dcpred.train(data, tmp_path / "model", **NAMED).n_rows == len(FRAME)


@pytest.mark.parametrize("another", [False, True])
def test_an_import_that_could_not_be_removed_is_not_used(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, another: bool
) -> None:
    """Neither at once nor later, though its mark said that it is complete: parts of it are gone."""
    folder = tmp_path / "model.import"
    columns = scratch.NamedColumns("label", ("id",))
    with scratch.imported(data, columns, None) as first:
        shutil.copytree(first, folder / "data.zarr")
    identity = scratch._identity(data, columns)
    stated = {"identity": "of another" if another else identity, "source": "", "complete": another}
    (folder / "source.json").write_text(json.dumps(stated))

    def denied(rows: Path, ignore_errors: bool = False) -> None:
        (rows / "X" / "c" / "0" / "0").unlink(missing_ok=True)
        if not ignore_errors:
            raise PermissionError(errno.EACCES, "Permission denied", str(rows))

    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(shutil, "rmtree", denied)
            with (
                pytest.raises(ResourceError, match=r"data\.zarr"),
                scratch.imported(data, columns, folder),
            ):
                pass
    with scratch.imported(data, columns, folder) as again:
        assert zarr.open_group(again)["X"].shape[0] == len(FRAME)
        assert (Path(again) / "X" / "c" / "0" / "0").exists()


def test_refused_trainings_leave_nothing(data: Path, tmp_path: Path) -> None:
    bad: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (
            DataError,
            r"column 'y' as target: t\.parquet has no such column\. Pass one of .* named by y\.",
            {"id": ["id"]},
        ),
        (DataError, r"Cannot drop column 'zz'", {**NAMED, "drop": ["zz"]}),
        (DataError, r"'colour' of t\.parquet as weights of rows", {**NAMED, "sample_weight": "colour"}),
        (
            DataError,
            r"numbers as text.* --categorical id: a training takes --y, --id and --drop; for other options"
            " run `dcpred import`",
            {"y": "label"},
        ),
        (SettingsError, r"wrong", {**NAMED, "settings": {"wrong": 1}}),
        (DataError, r"nope", {**NAMED, "by_time": "nope"}),
        (DataError, r"Cannot use a value of type ndarray as y", {"y": np.zeros(400)}),
    ]
    for kind, sentence, given in bad:
        with pytest.raises(kind, match=sentence):
            dcpred.train(data, tmp_path / "model", **given)
        assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]
    with pytest.raises(SettingsError, match=r"Cannot use id=\['a'\]: the data is no table"):
        dcpred.train(np.zeros((9, 2)), tmp_path / "model", y=np.arange(9) % 2, id=["a"])
    (tmp_path / "model.import").mkdir()
    (tmp_path / "model.import" / "mine.txt").write_text("")
    with pytest.raises(PlanConflictError, match=r"model\.import for the import of a table: it holds other"):
        dcpred.train(data, tmp_path / "model", **NAMED)
    assert (tmp_path / "model.import" / "mine.txt").exists()


def test_two_trainings_do_not_share_an_import(data: Path, tmp_path: Path) -> None:
    from dcpred.execution.lease import acquire_lock

    (tmp_path / "model.import").mkdir()
    with acquire_lock(open_place(tmp_path / "model.import")), pytest.raises(RunHeldError):
        dcpred.train(data, tmp_path / "model", **NAMED)


def test_weights_of_a_table(data: Path, tmp_path: Path) -> None:
    weight = np.where(FRAME["label"] == "yes", 3.0, 1.0)
    FRAME.assign(w=weight).to_parquet(data, index=False)
    found = dcpred.train(data, tmp_path / "model", **NAMED, sample_weight="w")
    plain = dcpred.train(data, tmp_path / "plain", **{**NAMED, "id": ["id", "w"]})
    assert found.hash != plain.hash
    assert open_artifact(tmp_path / "model").feature_names == open_artifact(tmp_path / "plain").feature_names


def test_searches_and_comparisons_take_tables(data: Path, tmp_path: Path) -> None:
    found = dcpred.validate(data, **NAMED, folds=2)
    assert 0.4 < found.mean <= 1.0
    scratch = tmp_path / "scratch"
    assert dcpred.validate(data, **NAMED, folds=2, scratch=scratch).mean == found.mean
    assert not list(scratch.glob("*.import"))
    FRAME[:100].to_parquet(tmp_path / "test.parquet", index=False)
    test = str(tmp_path / "test.parquet")
    with small_comparisons():
        report = dcpred.compare(
            data, tmp_path / "compared", y="label", id=["id"], systems="nystrom", test=test
        )
    assert report.results
    assert not list(tmp_path.glob("*.import"))
