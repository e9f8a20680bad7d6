"""Messages and outputs for tables that are scored where they lie: paths as the user wrote them, one sentence
with what to do, and nothing left behind.
"""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import dcpred
from dcpred.cli.main import main
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.errors import DataError, DcpredError, ModelFormatError, SettingsError
from support.setting_words import classifier_with
from support.tables import table

FRAME = table(300)
FEATURES = ["age", "colour", "city", "amount"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with ids, a model of its columns, and one of numbers without names."""
    folder = tmp_path_factory.mktemp("tables")
    few = {"n_leaves": 2, "landmarks": 8, "products": 0, "random_state": 0}
    pq.write_table(pa.Table.from_pandas(FRAME, preserve_index=False), folder / "t.parquet")
    known = FRAME[["id", *FEATURES, "label"]]
    dcpred.import_data(known, folder / "known.zarr", target="label", ids=["id"])
    dcpred.train(folder / "known.zarr", folder / "model", settings={"n_leaves": 2, "landmarks": 8})
    plain = np.random.default_rng(0).normal(size=(200, 3))
    classifier_with(**few).fit(plain, plain[:, 0] > 0).save(folder / "plain")
    return folder


def run(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


def refused(*words: object, names: str) -> None:
    shown = run(*words, code=3)
    assert names in shown
    assert "dcpred-like=" not in shown
    assert len([line for line in shown.splitlines() if line.startswith("dcpred:")]) == 1


def test_errors_and_reports_show_the_path_of_the_table(folder: Path, tmp_path: Path) -> None:
    data, model = folder / "t.parquet", folder / "model"
    refused("evaluate", model, data, "--y", "id", "--no-cost", names=f"{data}/id: the model was not trained")
    address = find_rows(data, "X", model)
    for error in (DataError, SettingsError):
        assert str(error(f"Cannot read {address}: why.")) == f"Cannot read {data}: why."
    run("score", model, data, tmp_path / "out")
    run("refresh", model, data, tmp_path / "root")
    for words in (("inspect", tmp_path / "out"), ("status", tmp_path / "root"), ("status", tmp_path / "out")):
        assert "dcpred-like=" not in run(*words)
    run("report", tmp_path / "root", "--out", tmp_path / "root.html")
    assert "dcpred-like=" not in (tmp_path / "root.html").read_text()


def test_places_without_a_table(folder: Path, tmp_path: Path) -> None:
    model = folder / "model"
    (tmp_path / "empty").mkdir()
    refused("score", model, tmp_path / "empty", tmp_path / "out", names="empty: it is an empty folder. Name")
    refused("score", model, tmp_path / "*.parquet", tmp_path / "out", names="*.parquet: no .parquet file")
    refused("refresh", model, tmp_path / "*.parquet", tmp_path / "out", names="*.parquet: none match")
    assert not (tmp_path / "out").exists()


def test_a_model_without_names_needs_an_import(folder: Path, tmp_path: Path) -> None:
    for words in (("score", tmp_path / "out"), ("evaluate",), ("refresh", tmp_path / "out")):
        command, *more = words
        refused(command, folder / "plain", folder / "t.parquet", *more, names="numbers without names")
    with pytest.raises(DataError, match=r"import it with `dcpred import .*t\.parquet .*`, then pass"):
        dcpred.score(folder / "plain", folder / "t.parquet", tmp_path / "out")
    refused("score", folder / "none", folder / "t.parquet", tmp_path / "out", names="none: it does not exist")


def test_targets_of_a_table_are_the_target_or_another_column(folder: Path) -> None:
    data, model = folder / "t.parquet", folder / "model"
    by_name = dcpred.evaluate(model, data, y="label", cost=False)
    assert by_name.as_dict()["accuracy"] == dcpred.evaluate(model, data, cost=False).as_dict()["accuracy"]
    with pytest.raises(
        DataError, match=r"'city' of .*it is a feature of .*model\. Name another column: .*id"
    ):
        dcpred.evaluate(model, data, y="city", cost=False)
    with pytest.raises(DataError, match=r"it lacks a column 'nope'"):
        dcpred.evaluate(model, data, y="nope", cost=False)


def test_an_export_without_its_ids_is_refused(folder: Path, tmp_path: Path) -> None:
    data = shutil.copy(folder / "t.parquet", tmp_path / "t.parquet")
    dcpred.score(folder / "model", data, tmp_path / "out")
    dcpred.export(tmp_path / "out", tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().startswith('"id"')
    Path(data).rename(tmp_path / "moved.parquet")
    with pytest.raises(
        DataError, match=r"Cannot add id to .*t\.parquet, where the ids .*was removed\. Restore"
    ):
        dcpred.export(tmp_path / "out", tmp_path / "b.csv")
    assert not (tmp_path / "b.csv").exists()
    dcpred.export(tmp_path / "out", tmp_path / "b.csv", columns=["row", "label"])


def test_refused_arrays_leave_no_data_behind(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="X has 5 features, but the model was trained with 3"):
        dcpred.score(folder / "plain", np.zeros((9, 5)), tmp_path / "out")
    with pytest.raises(DcpredError, match="unknown"):
        dcpred.train(np.zeros((9, 5)), tmp_path / "m", y=np.arange(9) % 2, by_time="unknown")
    assert not list(tmp_path.iterdir())
    dcpred.score(folder / "plain", np.zeros((9, 3)), tmp_path / "out")
    with pytest.raises(DcpredError):
        dcpred.score(folder / "plain", np.zeros((9, 3)), tmp_path / "out", outputs=["decision"])
    assert (tmp_path / "out.data.zarr").exists()  # of the run before


def test_a_run_of_several_tables_is_verified_as_one(folder: Path, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / "in").mkdir(exist_ok=True)
        shutil.copy(folder / "t.parquet", tmp_path / "in" / f"{name}.parquet")
    found = dcpred.refresh(folder / "model", f"{tmp_path}/in/*.parquet", tmp_path / "nightly")
    checked = dcpred.verify(tmp_path / "nightly" / "latest", "full")
    assert (checked.ok, checked.n_rows, checked.verified_blocks) == (True, found.n_rows, 2)
    assert dcpred.verify(tmp_path / "nightly" / "runs" / found.run, "fast").ok
    chunk = next((tmp_path / "nightly" / "parts" / "b.parquet").rglob("label/c/0"))
    chunk.write_bytes(chunk.read_bytes()[:-1])
    shown = run("verify", tmp_path / "nightly" / "latest", code=4)
    assert "b.parquet/scores.zarr/label/c/0" in shown


def test_a_table_for_a_missing_model(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "new.parquet")
    with pytest.raises(ModelFormatError, match=r"Cannot open a model at .*nosuch: it does not exist"):
        find_rows(tmp_path / "new.parquet", "X", tmp_path / "nosuch")
