"""Zarr arrays as others write them, where commands and estimators read them directly: text of any kind as the
target, names of classes, arrays that were opened by a relative path.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from tests.support.pools import inline

from dcpred import DCPredClassifier, import_data
from dcpred.comparison.rows import draw_rows
from dcpred.datasets.splitting import split_data
from dcpred.evaluation.evaluate import evaluate
from dcpred.training.train import check_training_data, train
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.zarr_arrays import address_of, find_array
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
    train(x, y, model, make_settings({**FEW, "task": "classification"}), inline)
    assert open_artifact(model).model().classes == ("ja", "nö")
    assert evaluate(model, x, y, cost=False)["accuracy"] > 0.9
    rows = draw_rows((x, y), None, "classification", 1000, 100, 0)
    assert (rows.n_classes, rows.n_unseen) == (2, 0)
    split = split_data(str(words))
    assert split.n_classes == 2
    import_data(words, tmp_path / "new.zarr")
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "new.zarr")["y"][:], ~POSITIVE)


def test_text_of_every_kind_is_a_target_of_estimators(words: Path) -> None:
    group = zarr.open_group(words, mode="r")
    fitted = DCPredClassifier(**FEW, random_state=0).fit(group["X"], group["y"])
    assert fitted.classes_.tolist() == ["ja", "nö"]
    assert (np.asarray(fitted.predict(X)) == WORDS).mean() > 0.9


@pytest.mark.parametrize("command", ["train", "compare", "split"])
def test_bytes_that_are_no_text(tmp_path: Path, command: str) -> None:
    path = data_set(tmp_path / "d.zarr", np.char.encode(WORDS, "latin-1"))
    x, y = str(path / "X"), str(path / "y")
    run = {
        "train": lambda: train(x, y, tmp_path / "m", make_settings(FEW), inline),
        "compare": lambda: draw_rows((x, y), None, "classification", 1000, 100, 0),
        "split": lambda: split_data(str(path)),
    }[command]
    with pytest.raises(DataError, match=r"Cannot read .*y: b'n\\xf6' is not text in UTF-8"):
        run()
    assert sorted(tmp_path.iterdir()) == [path]
    with pytest.raises(DataError, match=r"Cannot read array 'y' of d.zarr: b'n\\xf6' is not text in UTF-8"):
        import_data(path, tmp_path / "new.zarr")


def test_empty_text_is_no_class(tmp_path: Path) -> None:
    some = np.where(np.arange(len(X)) == 7, "", WORDS).astype(np.dtypes.StringDType())
    path = data_set(tmp_path / "d.zarr", some)
    with pytest.raises(DataError, match="the text of y is empty in row 7"):
        train(str(path / "X"), str(path / "y"), tmp_path / "m", make_settings(FEW), inline)


# -- Names of classes ----------------------------------------------------------------------------------------


def test_two_classes_of_one_name_are_refused_by_every_reader(tmp_path: Path) -> None:
    good = data_set(tmp_path / "good.zarr", POSITIVE.astype("u1"), labels=["oak", "elm"])
    path = data_set(tmp_path / "d.zarr", POSITIVE.astype("u1"), labels=["oak", "oak"])
    x, y = str(path / "X"), str(path / "y")
    model = tmp_path / "model"
    train(str(good / "X"), str(good / "y"), model, make_settings(FEW), inline)
    group = zarr.open_group(path, mode="r")
    fitted = DCPredClassifier(**FEW).fit(X, np.array(["oak", "elm"])[POSITIVE.astype(int)])
    readers: dict[str, Callable[[], Any]] = {
        "train": lambda: check_training_data(x, y, None, make_settings(FEW)),
        "evaluate": lambda: evaluate(model, x, y, cost=False),
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
