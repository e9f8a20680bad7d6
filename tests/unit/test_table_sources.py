"""Every kind of table in `SOURCES` gives an import the same rows, and says itself whether it needs one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import zarr
from deltalake import convert_to_deltalake, write_deltalake

import dcpred
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.errors import DataError
from dcpred_tasks.tables.sources import SOURCES, is_importable, kind_of, open_source
from support.setting_words import classifier_with

N = 60
RNG = np.random.default_rng(3)
ROWS = pa.table(
    {"a": RNG.normal(size=N), "b": [("x", "y", None)[i] for i in RNG.integers(0, 3, N)], "id": np.arange(N)}
)


def write_stream(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, ROWS.schema) as writer:
        writer.write_table(ROWS, max_chunksize=7)


WRITERS: dict[str, Callable[[Path], None]] = {
    "t.csv": lambda path: pa.csv.write_csv(ROWS, path),
    "t.csv.gz": lambda path: pd.DataFrame(ROWS.to_pydict()).to_csv(path, index=False),
    "t.parquet": lambda path: pq.write_table(ROWS, path, row_group_size=13),
    "t.feather": lambda path: pa.feather.write_feather(ROWS, str(path), chunksize=9),
    "t.arrows": write_stream,
    "t": lambda path: write_deltalake(path, ROWS),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    few = classifier_with(n_leaves=1, landmarks=6, products=0, random_state=0)
    few.fit(ROWS.select(["a", "b"]).to_pandas(), ROWS["a"].to_numpy() > 0).save(folder / "m")
    return str(folder / "m")


def test_each_kind_has_a_table_here() -> None:
    assert len(SOURCES) == 4


@pytest.mark.parametrize("name", WRITERS)
def test_a_table_of_any_kind_has_the_same_rows(name: str, model: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    assert is_importable(path)
    kind = kind_of(path)
    assert kind is not None
    assert [file.size > 0 for file in open_source(str(path)).files] == [True]
    dcpred.import_data(path, tmp_path / "own.zarr", like=model, id=["id"])
    dcpred.import_data(ROWS, tmp_path / "frame.zarr", like=model, id=["id"])
    own, frame = (zarr.open_group(tmp_path / f"{one}.zarr") for one in ("own", "frame"))
    for array in ("X", "id"):
        np.testing.assert_array_equal(own[array][...], frame[array][...])
    if kind.in_place:
        assert dcpred.score(model, path, tmp_path / "out").n_rows == N
        return
    with pytest.raises(DataError, match=r"it is a table\. Import it first with `dcpred import .* --like "):
        find_rows(path, "X", model)


def test_an_index_of_pandas_is_a_column_where_a_log_states_it(tmp_path: Path) -> None:
    """In other tables an import omits it unless an option names it."""
    indexed = pd.DataFrame({"a": [1.5, 2.5, 3.5]}, index=pd.Index([7, 8, 9], name="key"))
    for folder in ("files", "logged"):
        (tmp_path / folder).mkdir()
        indexed.to_parquet(tmp_path / folder / "0.parquet")
    convert_to_deltalake(str(tmp_path / "logged"))
    for folder, features in (("files", [[1.5], [2.5], [3.5]]), ("logged", [[1.5, 7], [2.5, 8], [3.5, 9]])):
        dcpred.import_data(tmp_path / folder, tmp_path / f"{folder}.zarr")
        assert zarr.open_array(tmp_path / f"{folder}.zarr" / "X")[...].tolist() == features
