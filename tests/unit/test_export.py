"""Tables of scores hold what the arrays of a run hold, in every format, or nothing is written."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import zarr
from click.testing import CliRunner, Result

import dcpred
from dcpred.cli import main
from dcpred.datasets.importing import import_data
from dcpred.execution.progress import reporting
from dcpred.results import stored_scores
from dcpred.results import stored_scores as opening
from dcpred.results.export import Exported, export
from dcpred.results.stored_scores import NamedLabels
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.errors import DataError, IncompleteError, PlanConflictError, RefusedError, SettingsError
from dcpred_tasks.schema.column import Codes, Date, Number, TargetCodes
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.storage import stored_chunks
from dcpred_tasks.tables import score_columns
from dcpred_tasks.task_bodies import score_block as task
from support.data import make_blobs
from support.reporters import Recorder

N_ROWS, CHUNK_ROWS = 460, 50
BAD = (0, 17, N_ROWS - 1)
NAMES = ("ash, tree", "oak", 'the "yew"')
SETTINGS = {"n_leaves": 2, "landmarks": 4, "products": 3}
RUNS: dict[str, dict[str, Any]] = {
    "names": {},
    "numbers of classes": {},
    "two classes": {},
    "values": {"task": "regression"},
}
ENDINGS = ("csv", "parquet", "feather", "arrow")


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Several blocks of several chunks, read in pieces of several chunks; groups of rows that cut across."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", CHUNK_ROWS)
        patch.setattr("dcpred.execution.block_plan.BLOCKS", 3)
        patch.setattr(stored_scores, "PIECE_ROWS", 2 * CHUNK_ROWS)
        patch.setattr(score_columns, "GROUP_ROWS", 120)
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, small: None) -> Callable[[str], Path]:
    """By its name the folder of new.zarr, with further arrays, and its output `out`."""
    made: dict[str, Path] = {}

    def run(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("export")
            _make(made[name], name)
        return made[name]

    return run


def _make(folder: Path, name: str) -> None:
    blobs = make_blobs(N_ROWS, n_features=3, n_classes=2 if name == "two classes" else 3, seed=0)
    target = {"values": blobs.X[:, 0], "numbers of classes": blobs.y - 1}.get(name, np.array(NAMES)[blobs.y])
    quoted = ['"' + str(one).replace('"', '""') + '"' if name != "values" else one for one in target]
    if name == "numbers of classes":
        quoted = list(target)
    for file, bad in (("known", ()), ("new", BAD)):
        rows = [
            f"{'nan' if i in bad else x[0]},{x[1]},{x[2]},{t}"
            for i, (x, t) in enumerate(zip(blobs.X, quoted, strict=True))
        ]
        (folder / f"{file}.csv").write_text("\n".join(["height,age,girth,kind", *rows]) + "\n")
        import_data(
            str(folder / f"{file}.csv"), str(folder / f"{file}.zarr"), target="kind", chunk_rows=CHUNK_ROWS
        )
    group = zarr.open_group(folder / "new.zarr", mode="r+")
    further: dict[str, Any] = {
        "id": np.array([f"row {i}, é" for i in range(N_ROWS)], dtype=np.dtypes.StringDType()),
        "number": np.arange(N_ROWS, dtype=np.uint64) + 2**63,
        "half": np.linspace(0, 1, N_ROWS, dtype=np.float16),
        "day": np.datetime64("2026-03-01") + np.arange(N_ROWS),
        "hour": np.append(np.arange(N_ROWS - 1).astype("datetime64[h]"), [np.datetime64("NaT")]),
    }
    for key, value in further.items():
        group.create_array(key, data=value, chunks=(70,))
    group.create_array("two", data=np.zeros((N_ROWS, 2)))
    settings = SETTINGS | RUNS[name]
    train(f"{folder}/known.zarr", folder / "model", settings=settings)
    score(folder / "model", f"{folder}/new.zarr/X", folder / "out")


def arrays(folder: Path) -> dict[str, Any]:
    """What the run holds, told by Zarr alone."""
    return {
        name: array[...] for name, array in zarr.open_group(folder / "out/scores.zarr", mode="r").arrays()
    }


def table(path: Path) -> pa.Table:
    """The table of a file, read by other people's readers."""
    if path.suffix == ".csv":
        return pa_csv.read_csv(path, convert_options=pa_csv.ConvertOptions(strings_can_be_null=True))
    if path.suffix == ".parquet":
        return pq.read_table(path)
    return feather.read_table(path)


def done(folder: Path, out: Path, **options: Any) -> Exported:
    return export(folder / "out", out, **options)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("run", RUNS)
def test_it_holds_what_was_scored(runs: Callable[[str], Path], tmp_path: Path, run: str, ending: str) -> None:
    folder = runs(run)
    stored, out = arrays(folder), tmp_path / f"table.{ending}"
    report = done(folder, out)
    found = table(out)
    good = stored["status"] == 1
    assert list(np.flatnonzero(~good)) == list(BAD)
    assert (report.n_rows, report.n_written, len(found)) == (N_ROWS, N_ROWS, N_ROWS)
    assert set(found.column_names) == set(report.columns)
    assert report.columns[0] == "row"
    np.testing.assert_array_equal(found["row"].to_numpy(), np.arange(N_ROWS))
    np.testing.assert_array_equal(found["status"].to_numpy(), stored["status"])
    decision = stored["decision"].reshape(N_ROWS, -1)
    names = [name for name in report.columns if name.startswith("decision")]
    if run == "names":
        assert names == [f"decision_{name}" for name in NAMES]
    assert len(names) == decision.shape[1]
    for number, name in enumerate(names):
        own = found[name].to_numpy().astype(decision.dtype)
        np.testing.assert_array_equal(own, decision[:, number])
        assert found[name].null_count == len(BAD)
    if run == "values":
        assert "label" not in found.column_names
        return
    label = found["label"].to_pylist()
    expected = [NAMES[i] if run in ("names", "two classes") else int(i) for i in stored["label"]]
    assert label == [e if g else None for e, g in zip(expected, good, strict=True)]


def test_several_groups_of_rows(runs: Callable[[str], Path], tmp_path: Path) -> None:
    """Few rows at a time; and not one by one, where few are chosen."""
    done(runs("names"), tmp_path / "all.parquet")
    done(runs("names"), tmp_path / "some.parquet", status=["non_finite_feature"])
    assert pq.ParquetFile(tmp_path / "all.parquet").num_row_groups == 3
    assert pq.ParquetFile(tmp_path / "some.parquet").num_row_groups == 1


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_chosen_is_an_empty_table(runs: Callable[[str], Path], tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"none.{ending}"
    assert done(runs("names"), out, status=["quarantined"]).n_written == 0
    found = table(out)
    assert len(found) == 0
    assert set(found.column_names) == {"row", "label", *(f"decision_{name}" for name in NAMES), "status"}


def test_columns_of_data_stand_before(runs: Callable[[str], Path], tmp_path: Path) -> None:
    folder = runs("names")
    data = zarr.open_group(folder / "new.zarr", mode="r")
    report = done(
        folder, tmp_path / "a.parquet", beside=["girth,id", f"{folder}/known.zarr:height", "half,number"]
    )
    assert report.columns[:5] == ["girth", "id", "height", "half", "number"]
    assert report.columns[5:] == ["label", *(f"decision_{name}" for name in NAMES), "status"]
    found = table(tmp_path / "a.parquet")
    assert found["id"].to_pylist() == list(data["id"][...])
    np.testing.assert_array_equal(found["girth"].to_numpy(), data["X"][:, 2])
    np.testing.assert_array_equal(found["number"].to_numpy(), data["number"][...])
    np.testing.assert_array_equal(found["half"].to_numpy(), data["half"][...].astype("f4"))
    known = zarr.open_group(folder / "known.zarr", mode="r")
    np.testing.assert_array_equal(found["height"].to_numpy(), known["X"][:, 0])


@pytest.mark.parametrize("ending", ENDINGS)
def test_dates_stand_beside_scores(runs: Callable[[str], Path], tmp_path: Path, ending: str) -> None:
    folder, out = runs("names"), tmp_path / f"a.{ending}"
    data = zarr.open_group(folder / "new.zarr", mode="r")
    assert done(folder, out, beside=["day,hour"]).n_written == N_ROWS
    found = table(out)
    for name in ("day", "hour"):
        own = found[name].to_numpy().astype(data[name].dtype)
        np.testing.assert_array_equal(own, data[name][...])


def test_categories_and_dates_stand_beside_scores_by_their_names(
    runs: Callable[[str], Path], tmp_path: Path
) -> None:
    """X holds the codes of categories and the days of dates; the table holds what was imported."""
    towns = TargetCodes("town", ("Bonn", "Ulm"))
    schema = Schema((Number("age"), towns, Date("born", ("day", "weekday")), Codes("size", (1, 2))))
    X = np.zeros((N_ROWS, len(schema.features)))
    X[:, 1] = np.array([0, 1, 3])[np.arange(N_ROWS) % 3]  # Bonn, Ulm, missing
    X[:, 2:4] = 18_000, 3
    X[0, 2], X[1, 4] = np.nan, 1
    group = zarr.create_group(tmp_path / "rows.zarr", attributes={"dcpred_schema": schema.document()})
    group.create_array("X", data=X).attrs["feature_names"] = list(schema.features)
    beside = [f"{tmp_path}/rows.zarr:town,born,born.weekday,size"]
    for ending in ENDINGS:
        done(runs("names"), tmp_path / f"a.{ending}", beside=beside)
    found = table(tmp_path / "a.parquet")
    assert found["town"].to_pylist()[:5] == ["Bonn", "Ulm", None, "Bonn", "Ulm"]
    assert found["born"].to_pylist()[:2] == [None, date(2019, 4, 14)]
    assert found["born.weekday"].to_pylist()[0] == 3
    assert found["size"].to_pylist()[:3] == ["1", "2", "1"]


def test_chosen_columns_and_rows(runs: Callable[[str], Path], tmp_path: Path) -> None:
    """Rows are chosen by a status that is not written."""
    folder = runs("names")
    beside = ['"id"', "height,number"]
    report = done(
        folder,
        tmp_path / "a.csv",
        columns=["row", "status_name"],
        beside=beside,
        status=["ok", "quarantined"],
    )
    assert report.columns == ["id", "height", "number", "row", "status_name"]
    found = table(tmp_path / "a.csv")
    assert found["row"].to_pylist() == list(np.delete(np.arange(N_ROWS), BAD))
    assert set(found["status_name"].to_pylist()) == {"ok"}
    done(folder, tmp_path / "b.csv", columns=["row"], status=["non_finite_feature"])
    assert table(tmp_path / "b.csv").to_pydict() == {"row": list(BAD)}
    assert done(folder, tmp_path / "c.csv", columns=["decision"]).columns == [f"decision_{n}" for n in NAMES]


def test_ids_that_import_kept(runs: Callable[[str], Path], tmp_path: Path) -> None:
    """They stand beside the scores as long as they are there."""
    folder = runs("two classes")
    group = zarr.open_group(folder / "new.zarr", mode="r+")
    group.attrs["dcpred_ids"] = ["id", "number"]
    assert done(folder, tmp_path / "a.csv").columns == ["id", "number", "label", "decision", "status"]
    assert done(folder, tmp_path / "b.csv", columns=["label"]).columns == ["label"]
    assert done(folder, tmp_path / "c.csv", beside=["height"]).columns[:2] == ["height", "label"]
    for odd in (["id", "none"], ["id", 3], "id", []):
        group.attrs["dcpred_ids"] = odd
        (tmp_path / "d.csv").unlink(missing_ok=True)
        assert done(folder, tmp_path / "d.csv").columns[0] == "row"
    del group.attrs["dcpred_ids"]


@pytest.fixture
def scored(runs: Callable[[str], Path], tmp_path: Path) -> Path:
    """A run of its own, whose data set keeps ids; not among those that other tests read."""
    folder = tmp_path / "own"
    for name in ("model", "known.zarr", "new.zarr"):
        shutil.copytree(runs("names") / name, folder / name)
    zarr.open_group(folder / "new.zarr", mode="r+").attrs["dcpred_ids"] = ["id"]
    score(folder / "model", f"{folder}/new.zarr/X", folder / "out")
    return folder


def written_again(folder: Path, name: str, values: Callable[[Any], Any]) -> None:
    array = zarr.open_group(folder / "new.zarr", mode="r+")[name]
    array[...] = values(array[...])


def reversed_rows(values: Any) -> Any:
    return values[::-1].copy()


def touched(folder: Path) -> None:
    for file in folder.rglob("*"):
        os.utime(file, (1e9, 1e9))


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", ["X", "id"])
def test_columns_of_other_rows_do_not_stand_beside_scores(
    scored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, large: bool
) -> None:
    """Whether the rows were replaced or their ids; and of large arrays, whose values are not compared."""
    if large:
        monkeypatch.setattr(stored_chunks, "CONTENT_BYTES", 0)
        shutil.rmtree(scored / "out")
        score(scored / "model", f"{scored}/new.zarr/X", scored / "out")
    assert done(scored, tmp_path / "before.csv").columns[0] == "id"
    written_again(scored, name, reversed_rows)
    data = f"{scored}/new.zarr"
    for number, beside in enumerate(([], ["id"], [f"{data}:id"], ["number", "id"])):
        with pytest.raises(DataError, match=rf"Cannot add columns .* {name} changed since the rows"):
            done(scored, tmp_path / f"{number}.csv", beside=beside)
    assert done(scored, tmp_path / "alone.csv", columns=["row", "status"]).n_written == N_ROWS


def test_data_that_were_only_touched_are_the_same(scored: Path, tmp_path: Path) -> None:
    touched(scored / "new.zarr")
    assert done(scored, tmp_path / "a.csv").columns[0] == "id"


@pytest.mark.parametrize("large", [False, True])
def test_rows_before_those_that_came_later_are_the_same(
    runs: Callable[[str], Path], scored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    """Chunks that hold only rows that were scored are compared, and the values of the rows behind them."""
    if large:
        monkeypatch.setattr(stored_chunks, "CONTENT_BYTES", 0)
        shutil.rmtree(scored / "out")
        score(scored / "model", f"{scored}/new.zarr/X", scored / "out")
    group = zarr.open_group(scored / "new.zarr", mode="r+")
    for name in ("X", "id"):
        group[name].append(group[name][:7])
    assert done(scored, tmp_path / "a.csv").columns[0] == "id"
    group["id"][N_ROWS - 1] = "another"
    with pytest.raises(DataError, match="id changed since the rows"):
        done(scored, tmp_path / "b.csv")


def test_an_output_of_an_earlier_version_keeps_its_ids(scored: Path, tmp_path: Path) -> None:
    """Its plan says nothing of ids; X is the same."""
    plan = scored / "out" / "plan.json"
    value = json.loads(plan.read_text())
    del value["input"]
    plan.write_text(json.dumps(value, indent=1))
    assert done(scored, tmp_path / "a.csv").columns[0] == "id"
    written_again(scored, "X", reversed_rows)
    with pytest.raises(DataError, match="X changed since the rows"):
        done(scored, tmp_path / "b.csv")


def test_data_may_have_gone_or_grown(runs: Callable[[str], Path], tmp_path: Path) -> None:
    folder = runs("values")
    group = zarr.open_group(folder / "new.zarr", mode="r+")
    grown = zarr.open_group(folder / "new.zarr", mode="r+")
    grown["number"].append(np.zeros(5, np.uint64))
    assert done(folder, tmp_path / "a.csv", beside=["number"]).n_written == N_ROWS
    assert done(folder, tmp_path / "b.csv", beside=[f"{folder}/new.zarr:number"]).n_written == N_ROWS
    zarr.create_group(tmp_path / "other.zarr").create_array("number", data=np.zeros(N_ROWS + 5))
    with pytest.raises(DataError, match="to 460 scores: it has 465 rows"):
        done(folder, tmp_path / "c.csv", beside=[f"{tmp_path}/other.zarr:number"])
    group["number"].resize((N_ROWS,))
    (folder / "new.zarr").rename(folder / "gone.zarr")
    assert done(folder, tmp_path / "d.csv").columns[0] == "row"
    with pytest.raises(DataError, match="does not exist"):
        done(folder, tmp_path / "e.csv", beside=["number"])
    (folder / "gone.zarr").rename(folder / "new.zarr")


def test_one_array_is_a_data_set_too(runs: Callable[[str], Path], tmp_path: Path) -> None:
    folder = runs("names")
    report = done(folder, tmp_path / "a.csv", beside=[f"{folder}/new.zarr/X:age"])
    assert report.columns[0] == "age"


Refused = tuple[dict[str, Any], type[RefusedError], str]
REFUSED: dict[str, Refused] = {
    "no such column": (
        {"columns": ["lable"]},
        SettingsError,
        "Cannot export column 'lable': .* has row, label",
    ),
    "no such array": ({"beside": ["nmber"]}, DataError, "Did you mean 'number'"),
    "two-dimensional": ({"beside": ["two"]}, DataError, "no one-dimensional array and no feature"),
    "data without names": ({"beside": ["some/new.zarr"]}, DataError, "Write some/new.zarr:NAME"),
    "no names": ({"beside": ["x.zarr:"]}, SettingsError, "it names none. Write DATA:NAME"),
    "empty names": ({"beside": ["id,,age"]}, SettingsError, "it names none. Write DATA:NAME"),
    "no data": ({"beside": ["nowhere.zarr:id"]}, DataError, "nowhere.zarr: it does not exist"),
    "a name twice": ({"beside": ["id,age,id"]}, SettingsError, "two columns called id"),
    "that of a column": ({"beside": ["status"]}, DataError, "no one-dimensional array"),
    "no status": ({"status": ["fine"]}, SettingsError, "no such status. Name some of not_scored, ok"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(runs: Callable[[str], Path], tmp_path: Path, what: str) -> None:
    options, error, sentence = REFUSED[what]
    with pytest.raises(error, match=sentence):
        done(runs("names"), tmp_path / "a.csv", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        ("there.csv", "there.csv: it already exists. Remove it"),
        ("table.xlsx", "its name has no known ending. End it with .parquet, .csv"),
        ("nowhere/table.csv", "its folder does not exist"),
        ("https://host/table.csv", "only reads from servers of files"),
    ],
)
def test_places_that_are_refused(
    runs: Callable[[str], Path], tmp_path: Path, out: str, sentence: str
) -> None:
    (tmp_path / "there.csv").write_text("mine")
    with pytest.raises(DataError, match=sentence):
        export(runs("names") / "out", out if "//" in out else tmp_path / out)
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]
    assert (tmp_path / "there.csv").read_text() == "mine"


def test_a_table_that_came_meanwhile_is_left(
    runs: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*_: object) -> None:
        (tmp_path / "a.parquet").write_text("mine")

    monkeypatch.setattr(pq.ParquetWriter, "close", meanwhile)
    with pytest.raises(DataError, match="another process created it meanwhile"):
        done(runs("names"), tmp_path / "a.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
    assert (tmp_path / "a.parquet").read_text() == "mine"


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_half_written_stays(
    runs: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    calls = iter(range(3))

    def cut_off(*args: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return read(*args)

    read = stored_scores.StoredScores.read
    monkeypatch.setattr(stored_scores.StoredScores, "read", cut_off)
    with pytest.raises(KeyboardInterrupt):
        done(runs("names"), tmp_path / f"a.{ending}")
    assert not list(tmp_path.iterdir())


def copied(folder: Path, to: Path) -> Path:
    """A run that a test may damage."""
    for path in folder.rglob("*"):
        if path.is_file():
            (to / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            os.link(path, to / path.relative_to(folder))
    return to


@pytest.mark.parametrize("name", ["label/c/3", "decision/c/3/0", "status/c/3"])
def test_a_missing_chunk_is_no_score(runs: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    """Zarr reads fill values there."""
    out = copied(runs("names") / "out", tmp_path / "out")
    (out / "scores.zarr" / name).unlink()
    with pytest.raises(DataError, match=r"row 150 has .*`dcpred verify` shows what is damaged"):
        export(out, tmp_path / "a.parquet")
    (out / "scores.zarr" / name).write_bytes(b"rubbish")
    with pytest.raises(DataError, match=r"rows 150 to 200 .* their chunk is damaged"):
        export(out, tmp_path / "a.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_arrays_of_another_shape_are_damage(runs: Callable[[str], Path], tmp_path: Path) -> None:
    out = copied(runs("names") / "out", tmp_path / "out")
    file = out / "scores.zarr/status/zarr.json"
    text = file.read_text()
    file.unlink()
    file.write_text(text.replace("460", "461", 1))
    with pytest.raises(DataError, match=r"array status is uint8 of shape \(461,\)"):
        export(out, tmp_path / "a.csv")


@pytest.fixture
def unfinished(runs: Callable[[str], Path], tmp_path: Path) -> Path:
    """The first of its blocks is not done, though its rows are written."""
    out = copied(runs("names") / "out", tmp_path / "out")
    (out / "manifest.json").unlink()
    (out / "blocks/000000.json").unlink()
    return out


def test_an_unfinished_run(unfinished: Path, runs: Callable[[str], Path], tmp_path: Path) -> None:
    """Rows that are not done have no scores, whatever is written there already."""
    with pytest.raises(
        DataError, match=r"the run is not finished\. Run `dcpred score` again, or read the finished rows"
    ):
        export(unfinished, tmp_path / "a.parquet")
    report = export(unfinished, tmp_path / "a.parquet", partial=True)
    assert (report.finished, report.n_written) == (False, N_ROWS)
    found, stored = table(tmp_path / "a.parquet"), arrays(runs("names"))
    n = next(iter(np.flatnonzero(found["status"].to_numpy())))
    assert n == 200
    assert found["label"].null_count == n + 1
    np.testing.assert_array_equal(found["decision_oak"].to_numpy()[n:], stored["decision"][n:, 1])
    np.testing.assert_array_equal(found["status"].to_numpy()[n:], stored["status"][n:])


def test_a_run_of_which_nothing_is_done(
    runs: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("cut off")

    folder = runs("names")
    monkeypatch.setattr(task, "score_with_leaves", fail)
    with pytest.raises(IncompleteError):
        score(folder / "model", f"{folder}/known.zarr/X", tmp_path / "cut")
    with pytest.raises(DataError, match="no block of it is done yet"):
        export(tmp_path / "cut", tmp_path / "a.csv", partial=True)
    with pytest.raises(PlanConflictError, match=r"holds no plan\.json"):
        export(tmp_path, tmp_path / "a.csv")


# -- the command ---------------------------------------------------------------------------------------------


def command(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["export", *map(str, words)], prog_name="dcpred")
    assert result.exit_code == code, result.output
    return result


def test_the_command(runs: Callable[[str], Path], tmp_path: Path) -> None:
    out, words = (
        runs("names") / "out",
        ("--with", "id", "--status", "non_finite_feature", "--columns", "row, status"),
    )
    said = command(out, tmp_path / "a.csv", *words).stdout
    assert said.splitlines() == [
        f"table    {tmp_path}/a.csv",
        "rows     3 of 460",
        "columns  id, row, status",
    ]
    rows = [f'"row {i}, é",{i},2' for i in BAD]
    assert (tmp_path / "a.csv").read_text() == "\n".join(['"id","row","status"', *rows]) + "\n"
    command(out, tmp_path / "answers.parquet", "--with", "y", "--columns", "label")
    answers = table(tmp_path / "answers.parquet")["y"].to_pylist()
    numbers = zarr.open_group(runs("names") / "new.zarr", mode="r")["y"][...]
    assert answers == [NAMES[number] for number in numbers], "class numbers have names here, too"
    many = command(out, tmp_path / "many.csv", "--with", "id,number,half,day,hour,height,age").stdout
    assert many.splitlines()[2].startswith("columns  id, number, half, day, hour, height, age, label")
    assert many.splitlines()[2].endswith(" more")
    assert max(map(len, many.splitlines()[1:])) <= 80
    assert '"n_written": 3' in command(out, tmp_path / "b.csv", *words, "--json").stdout
    assert "a.csv: it already exists" in command(out, tmp_path / "a.csv", code=3).stderr
    assert "no plan.json" in command(tmp_path, tmp_path / "c.csv", code=3).stderr


def test_an_unfinished_run_by_the_command(unfinished: Path, tmp_path: Path) -> None:
    assert "--partial" in command(unfinished, tmp_path / "a.csv", code=3).stderr
    assert "460; the run is not finished" in command(unfinished, tmp_path / "a.csv", "--partial").stdout


# -- open_scores ---------------------------------------------------------------------------------------------


def test_scores_as_an_xarray_dataset(runs: Callable[[str], Path]) -> None:
    folder = runs("names")
    stored = arrays(folder)
    data = dcpred.open_scores(folder / "out")
    assert {name: data[name].chunks is not None for name in data.data_vars} == dict.fromkeys(stored, True)
    for name in stored:
        np.testing.assert_array_equal(data[name].values, stored[name])
    assert (data.attrs["finished"], data.label.attrs["labels"]) == (True, list(NAMES))
    np.testing.assert_array_equal(data.decision.sel(output="oak").values, stored["decision"][:, 1])
    labels = dcpred.open_scores(folder / "out", names=True).label
    assert labels.chunks is not None
    good = stored["status"] == 1
    assert labels.values.tolist() == [
        NAMES[i] if g else None for i, g in zip(stored["label"], good, strict=True)
    ]
    assert "output" not in dcpred.open_scores(runs("two classes") / "out").coords


def test_scores_without_xarray(runs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda _: None)
    folder = runs("names")
    stored = arrays(folder)
    found = dcpred.open_scores(folder / "out")
    assert {*found} == {*stored}
    np.testing.assert_array_equal(found["label"][10:20], stored["label"][10:20])
    label = dcpred.open_scores(folder / "out", names=True)["label"]
    assert isinstance(label, NamedLabels)
    assert (len(label), label.shape, label.ndim) == (N_ROWS, (N_ROWS,), 1)
    assert label[16:19].tolist() == [NAMES[stored["label"][16]], None, NAMES[stored["label"][18]]]
    assert np.asarray(label).tolist().count(None) == len(BAD)
    numbers = dcpred.open_scores(runs("numbers of classes") / "out", names=True)["label"]
    assert numbers[17] == arrays(runs("numbers of classes"))["label"][17]


def test_scores_of_an_unfinished_run(unfinished: Path) -> None:
    with pytest.raises(DataError, match="in Python partial=True"):
        dcpred.open_scores(unfinished)
    assert dcpred.open_scores(unfinished, partial=True).attrs["finished"] is False


def test_a_table_that_came_meanwhile_is_not_written_over(
    runs: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes between the last look and the name."""
    out = tmp_path / "table.csv"

    def after_the_look(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(source: Any, target: Any, **more: Any) -> Any:
            if Path(target) == out:
                out.write_text("theirs")
            return real(source, target, **more)

        return call

    for name in ("link", "rename", "replace"):
        monkeypatch.setattr(os, name, after_the_look(getattr(os, name)))
    with pytest.raises(DataError, match="another process created it meanwhile"):
        export(runs("names") / "out", out)
    assert out.read_text() == "theirs"
    assert [file.name for file in tmp_path.iterdir()] == ["table.csv"]


def test_ids_that_are_no_longer_there_are_reported(scored: Path) -> None:
    """The table has numbers of rows then, and the remedy gives it the ids."""
    data, moved = scored / "new.zarr", scored / "moved.zarr"
    data.rename(moved)
    for number in range(2):
        exported = export(scored / "out", scored / f"{number}.csv")
        assert exported.columns[0] == "row"
        (lost,) = exported.remarks
        assert lost.what.startswith("the table has no ids")
        assert "id" in lost.columns
        assert lost.do.endswith(", add beside='DATA:day'")
        shutil.copytree(scored / "known.zarr", data, dirs_exist_ok=True)
    say = Recorder()
    with reporting(say):
        export(scored / "out", scored / "c.csv", beside=[f"{moved}:id"])
    assert say.told == ["exporting"]
