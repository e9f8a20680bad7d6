"""Zarr arrays as others write them, where commands and estimators read them directly: text of any kind as the
target, names of classes, arrays that were opened by a relative path.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from obstore.store import MemoryStore
from tests.support.pools import inline
from zarr.codecs import Crc32cCodec, ZstdCodec

from dcpred import DCPredClassifier, import_data, load_model, storage_options
from dcpred.datasets.splitting import split
from dcpred.evaluation.evaluate import evaluate
from dcpred.evaluation.explanation import explain_stored
from dcpred.public.remarks import collecting
from dcpred.scoring.planning import plan_run
from dcpred.scoring.request import Request
from dcpred.scoring.score import score
from dcpred.training.fit import TrainingRequest, check_training_data, fit_model
from dcpred.training.train import train
from dcpred_compare.rows import draw_rows
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.errors import DataError, MissingChunkError, SettingsError
from dcpred_tasks.storage import bucket
from dcpred_tasks.storage.addressed_arrays import open_array, open_group
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.stored_chunks import open_input
from dcpred_tasks.storage.zarr_arrays import (
    address_of,
    create_array,
    create_group,
    find_array,
    member,
    read_rows,
)
from dcpred_tasks.training.settings import make_settings

# Zarr warns that other tools may not know text of one length.
pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
X = np.random.default_rng(0).normal(size=(120, 3))
POSITIVE = X[:, 0] > 0
WORDS = np.where(POSITIVE, "ja", "nö")
FEW: dict[str, Any] = {"n_leaves": 1, "landmarks": 4}
TEXTS: dict[str, Callable[[zarr.Group], Any]] = {
    "string": lambda group: group.create_array("y", data=WORDS.astype(np.dtypes.StringDType())),
    "fixed length": lambda group: group.create_array("y", data=WORDS),
    "bytes": lambda group: group.create_array("y", data=np.char.encode(WORDS, "utf-8")),
}


def data_set(path: Path, y: np.ndarray | None = None, **attributes: Any) -> Path:
    group = zarr.create_group(path)
    group.create_array("X", data=X, chunks=(50, 3))
    if y is not None:
        group.create_array("y", data=y, attributes=attributes)
    return path


# -- Targets that are text -----------------------------------------------------------------------------------


@pytest.fixture(params=[*TEXTS, "string of format 2"])
def words(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "d.zarr"
    if request.param in TEXTS:
        TEXTS[request.param](zarr.open_group(data_set(path)))
        return path
    group = zarr.create_group(path, zarr_format=2)
    group.create_array("X", data=X)
    group.create_array("y", shape=(len(X),), dtype=str)[...] = WORDS.astype(np.dtypes.StringDType())
    return path


def test_text_of_every_kind_is_a_target(words: Path, tmp_path: Path) -> None:
    x, y = str(words / "X"), str(words / "y")
    model = tmp_path / "model"
    fit_model(TrainingRequest(x, y, model, make_settings({**FEW, "task": "classification"}), inline))
    assert open_artifact(model).model().classes == ("ja", "nö")
    assert evaluate(model, words, cost=False)["accuracy"] > 0.9
    rows = draw_rows((x, y), None, "classification", 1000, 100, 0)
    assert (rows.n_classes, rows.n_unseen) == (2, 0)
    parts = split(str(words))
    assert parts.n_classes == 2
    import_data(words, tmp_path / "new.zarr")
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "new.zarr")["y"][:], ~POSITIVE)


def test_text_of_every_kind_is_a_target_of_estimators(words: Path) -> None:
    group = zarr.open_group(words, mode="r")
    fitted = DCPredClassifier(**FEW, random_state=0).fit(group["X"], group["y"])
    assert fitted.classes_.tolist() == ["ja", "nö"]
    assert (np.asarray(fitted.predict(X)) == WORDS).mean() > 0.9
    if group["y"].dtype.kind == "T":
        in_memory = DCPredClassifier(**FEW, random_state=0).fit(X, group["y"])
        assert in_memory.classes_.tolist() == ["ja", "nö"]
        assert in_memory.score(X, group["y"]) > 0.9
        assert fitted.score(group["X"], group["y"][:]) > 0.9


@pytest.mark.parametrize("command", ["train", "compare", "split"])
def test_bytes_that_are_no_text(tmp_path: Path, command: str) -> None:
    path = data_set(tmp_path / "d.zarr", np.char.encode(WORDS, "latin-1"))
    x, y = str(path / "X"), str(path / "y")
    run = {
        "train": lambda: fit_model(TrainingRequest(x, y, tmp_path / "m", make_settings(FEW), inline)),
        "compare": lambda: draw_rows((x, y), None, "classification", 1000, 100, 0),
        "split": lambda: split(str(path)),
    }[command]
    with pytest.raises(DataError, match=r"Cannot read .*y: b'n\\xf6' is not text in UTF-8"):
        run()
    assert sorted(tmp_path.iterdir()) == [path]
    with pytest.raises(DataError, match=r"Cannot read array 'y' of d.zarr: b'n\\xf6' is not text in UTF-8"):
        import_data(path, tmp_path / "new.zarr")


def test_empty_text_is_no_class(tmp_path: Path) -> None:
    some = np.where(np.arange(len(X)) == 7, "", WORDS).astype(np.dtypes.StringDType())
    path = data_set(tmp_path / "d.zarr", some)
    with pytest.raises(DataError, match="its text is empty in row 7"):
        train(path, tmp_path / "m", settings=FEW)


# -- Names of classes ----------------------------------------------------------------------------------------


def test_two_classes_of_one_name_are_refused_by_every_reader(tmp_path: Path) -> None:
    good = data_set(tmp_path / "good.zarr", POSITIVE.astype("u1"), labels=["oak", "elm"])
    path = data_set(tmp_path / "d.zarr", POSITIVE.astype("u1"), labels=["oak", "oak"])
    x, y = str(path / "X"), str(path / "y")
    model = tmp_path / "model"
    train(good, model, settings=FEW)
    group = zarr.open_group(path, mode="r")
    fitted = DCPredClassifier(**FEW).fit(X, np.array(["oak", "elm"])[POSITIVE.astype(int)])
    readers: dict[str, Callable[[], Any]] = {
        "train": lambda: check_training_data(x, y, None, make_settings(FEW)),
        "evaluate": lambda: evaluate(model, path, cost=False),
        "import": lambda: import_data(path, tmp_path / "new.zarr"),
        "fit": lambda: DCPredClassifier(**FEW).fit(group["X"], group["y"]),
        "fit in memory": lambda: DCPredClassifier(**FEW).fit(X, group["y"]),
        "score": lambda: fitted.score(X, group["y"]),
    }
    before = sorted(tmp_path.iterdir())
    for name, read in readers.items():
        with pytest.raises(DataError) as caught:
            read()
        assert "gives the name 'oak' to the classes 0 and 1" in str(caught.value), name
    assert sorted(tmp_path.iterdir()) == before


# -- Addresses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.zarr", "./below/x.zarr", "below/../x.zarr"])
def test_arrays_that_were_opened_by_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    data_set(tmp_path / name, POSITIVE.astype("u1"))
    group = zarr.open_group(name, mode="r")
    assert address_of(group["X"]) == str((tmp_path / name).resolve() / "X")
    alone = zarr.open(f"{name}/X", mode="r")
    due = DCPredClassifier(**FEW, random_state=0).fit(X, POSITIVE).decision_function(X)
    for rows, y in (
        (group["X"], group["y"]),
        (alone, POSITIVE.astype("u1")),
        (alone, zarr.open_array(f"{name}/y", mode="r")),
        (da.from_zarr(alone), da.from_zarr(group["y"])),
    ):
        fitted = DCPredClassifier(**FEW, random_state=0).fit(rows, y)
        for found in (fitted.decision_function(rows), fitted.decision_function(X)):
            assert ((np.asarray(found) > 0) == (due > 0)).mean() > 0.95


def test_sparse_matrices_of_anndata_are_named(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "cells.zarr")
    group.create_array("y", data=np.arange(2))
    sparse = group.create_group("X", attributes={"encoding-type": "csr_matrix", "shape": [2, 3]})
    for name, values in (("data", np.ones(2)), ("indices", np.array([0, 2])), ("indptr", np.arange(3))):
        sparse.create_array(name, data=values)
    for read in (
        lambda: import_data(tmp_path / "cells.zarr", tmp_path / "new.zarr"),
        lambda: import_data(tmp_path / "cells.zarr", tmp_path / "new.zarr", x="X"),
        lambda: find_array(tmp_path / "cells.zarr", "X"),
    ):
        with pytest.raises(DataError, match=r"X.* is a sparse matrix, .*scipy.sparse.save_npz"):
            read()


# -- Chunks that are not stored ------------------------------------------------------------------------------

SORTED = np.sort(POSITIVE).astype("u1")
BY_CLASS = X[np.argsort(X[:, 0])]


def labelled(
    path: Path, y: np.ndarray, *, chunk_rows: int = 20, rows: np.ndarray = BY_CLASS, **more: Any
) -> Path:
    group = zarr.create_group(path)
    group.create_array("X", data=rows, chunks=(chunk_rows, 3))
    group.create_array("y", data=y, chunks=(chunk_rows,), **more)
    return path


def stored(path: Path) -> int:
    return sum(file.is_file() for file in (path / "y").rglob("*")) - 1


SPARSE_CLASS = (np.arange(120) % 60 == 59).astype("u1")
CLEAN = np.repeat([0, 0, 1, 2, 3, 4], 20)


@pytest.mark.parametrize(
    "y",
    [
        SORTED,
        SORTED.astype(bool),
        SORTED.astype("f4"),
        CLEAN,
        1 - SORTED.astype("i2"),
        np.repeat(SPARSE_CLASS[:60], 2),
    ],
    ids=["sorted", "bool", "float", "one class a chunk", "descending", "a rare class"],
)
def test_labels_of_the_fill_value_need_no_chunk(tmp_path: Path, y: np.ndarray) -> None:
    path = labelled(tmp_path / "d.zarr", y)
    assert stored(path) < 6
    x, target = str(path / "X"), str(path / "y")
    model = tmp_path / "model"
    with collecting() as collected:
        fit_model(TrainingRequest(x, target, model, make_settings(FEW), inline))
    note = f"{6 - stored(path)} of 6 chunks of {target} are not stored. They are read as the fill value"
    assert any(each.what.startswith(note) for each in collected.remarks)
    assert open_artifact(model).provenance["report"]["n_rows"] == 120
    assert evaluate(model, path, cost=False)["n_samples"] == 120
    found = split(str(path))
    parts = [zarr.open_group(one, mode="r")["y"][:] for one in (found.train, found.test)]
    assert np.concatenate(parts).sum() == y.sum()


LOST: dict[str, Callable[[Path], Path]] = {
    "classes that change often": lambda p: labelled(p, np.arange(120) % 2),
    "chunks of the fill value that are stored": lambda p: labelled(
        p, SORTED, config={"write_empty_chunks": True}
    ),
    "a checksum": lambda p: labelled(p, SORTED, compressors=[ZstdCodec(), Crc32cCodec()]),
    "a fill value that is no class": lambda p: labelled(
        p, SORTED, fill_value=9, attributes={"labels": ["a", "b"]}
    ),
    "a fill value that is no number": lambda p: labelled(p, SORTED.astype("f4"), fill_value=np.nan),
}


@pytest.mark.parametrize("kind", LOST)
def test_a_lost_chunk_of_labels_is_no_class(tmp_path: Path, kind: str) -> None:
    path = LOST[kind](tmp_path / "d.zarr")
    chunks = sorted(file for file in (path / "y").rglob("*") if file.is_file() and file.name.isdigit())
    chunks[0].unlink()
    with pytest.raises(DataError, match=r"chunk .* is missing.* --storage-option missing_chunks=fill"):
        check_training_data(str(path / "X"), str(path / "y"), None, make_settings(FEW))


def test_only_labels_may_lack_chunks(tmp_path: Path) -> None:
    rows = np.where(np.arange(120)[:, None] < 20, 0.0, BY_CLASS)
    path = labelled(tmp_path / "d.zarr", SORTED, rows=rows)
    x, y = str(path / "X"), str(path / "y")
    group = zarr.open_group(path, mode="r")
    fitted = DCPredClassifier(**FEW, random_state=0).fit(rows, SORTED)
    model = tmp_path / "model"
    fitted.save(model)
    due = plan_run(Request(model, x, tmp_path / "o"), repairs=True)[0].run
    refused: dict[str, Callable[[], Any]] = {
        "train": lambda: check_training_data(x, y, None, make_settings(FEW)),
        "regression": lambda: check_training_data(x, y, None, make_settings({"task": "regression"})),
        "score": lambda: plan_run(Request(model, x, tmp_path / "o")),
        "evaluate": lambda: evaluate(model, path, cost=False),
        "explain": lambda: explain_stored(model, x, [5]),
        "compare": lambda: draw_rows((x, y), None, "classification", 1000, 100, 0),
        "fit": lambda: DCPredClassifier(**FEW).fit(group["X"], group["y"]),
        "predict": lambda: fitted.predict(group["X"]),
        "serve": lambda: load_model(model).predict(group["X"]),
        "split": lambda: split(str(path)),
        "import": lambda: import_data(path, tmp_path / "new.zarr"),
    }
    for name, read in refused.items():
        with pytest.raises(DataError) as caught:
            read()
        assert "is missing" in str(caught.value), name
        assert "--storage-option missing_chunks=fill" in str(caught.value), name
    with storage_options(missing_chunks="fill"):
        for name, read in refused.items():
            assert read() is not None, name
        assert plan_run(Request(model, x, tmp_path / "o"))[0].run != due
        report = score(model, x, tmp_path / "o")
        np.testing.assert_array_equal(np.asarray(fitted.predict(group["X"])), fitted.predict(rows))
    assert report.status == {"1": 120}
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "new.zarr")["X"][:], rows)
    with pytest.raises(DataError, match="is missing"):
        score(model, x, tmp_path / "o")


def test_an_option_of_missing_chunks_has_one_value() -> None:
    with (
        pytest.raises(SettingsError, match="missing_chunks=zero is invalid"),
        storage_options(missing_chunks="zero"),
    ):
        pass


def test_chunks_that_a_store_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bucket.IN_MEMORY, "fills", MemoryStore())
    where = "memory://fills/d.zarr"
    array = create_array(create_group(where), "X", (20, 3), np.float32, 5, fill_value=7)
    array[...] = 1
    open_place(f"{where}/X").remove("c/1/0")
    with pytest.raises(MissingChunkError, match=r"Cannot read the chunk .*c/1/0: it is missing"):
        read_rows(open_array(f"{where}/X"), 0, 20)
    now = time.time()
    states = [open_input(f"{where}/X", now)]
    with storage_options(missing_chunks="fill"):
        found = read_rows(open_array(f"{where}/X"), 0, 20)
        states.append(open_input(f"{where}/X", now))
    np.testing.assert_array_equal(found[:, 0], np.repeat([1, 7, 1, 1], 5))
    assert not states[0].unchanged(states[1], 0, 5), "what is left out means something else"


def test_an_array_of_a_local_group_is_opened_by_its_metadata_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zarr looks for each of the fifty arrays of a model in a thread of its own."""
    X = np.arange(12, dtype=np.float32).reshape(4, 3)
    made = create_group(tmp_path / "d.zarr")
    create_array(made, "X", X.shape, X.dtype, 2)[...] = X
    made.create_group("below")
    group = open_group(tmp_path / "d.zarr")
    with monkeypatch.context() as patch:
        patch.setattr(zarr.Group, "__getitem__", None)
        np.testing.assert_array_equal(member(group, "X")[...], X)
    with pytest.raises(KeyError):
        member(group, "absent")
    with pytest.raises(TypeError, match="below is not an array"):
        member(group, "below")
