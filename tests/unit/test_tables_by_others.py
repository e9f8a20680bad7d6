"""Tables as other programs write them: read right by every reader, or refused by name, without an abort."""

import base64
import datetime as dt
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dcpred
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.tables.footers import local_file
from dcpred_tasks.tables.parquet_chunks import read_chunks
from dcpred_tasks.tables.parquet_files import parquet_footer
from support.setting_words import classifier_with
from support.stores import StoreServer, used

N = 300
rng = np.random.default_rng(0)
OPEN = rng.random(N) < 0.3
UNTIL = [
    dt.datetime(9999, 12, 31) if one else dt.datetime(1600, 1, 1) + dt.timedelta(days=400 * int(day), hours=1)
    for one, day in zip(OPEN, rng.integers(0, 700, N), strict=True)
]
USE = rng.normal(size=N)
TABLE = pa.table({"use": USE, "until": pa.array(UNTIL, pa.timestamp("us")), "number": np.arange(N)})
FRAME = TABLE.select(["use", "until"]).to_pandas()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "model"
    few = classifier_with(n_leaves=1, landmarks=8, products=0, random_state=0)
    few.fit(FRAME, OPEN ^ (USE > 1)).save(folder)
    return str(folder)


def rows(address: str | Path, model: str, name: str = "X") -> Any:
    return open_array(find_rows(address, name, model))[...]


# -- INT96 ---------------------------------------------------------------------------------------------------


def test_years_beyond_2262_in_int96_are_those_that_were_written(model: str, tmp_path: Path) -> None:
    """pyarrow reads them as nanoseconds by default, and they wrap: 9999-12-31 becomes 1816-03-29."""
    pq.write_table(TABLE, tmp_path / "micro.parquet")
    os.mkdir(tmp_path / "int96")
    pq.write_table(TABLE, tmp_path / "int96" / "a.parquet", use_deprecated_int96_timestamps=True)
    expected = rows(tmp_path / "micro.parquet", model)
    np.testing.assert_array_equal(rows(tmp_path / "int96", model), expected)
    dcpred.import_data(tmp_path / "int96", tmp_path / "i.zarr", like=model)
    np.testing.assert_array_equal(rows(tmp_path / "i.zarr", model), expected)
    assert expected[:, 1].max() == (dt.datetime(9999, 12, 31) - dt.datetime(1970, 1, 1)).days
    served = dcpred.load_model(model)
    scores = dcpred.score(model, tmp_path / "int96", tmp_path / "scores").output
    np.testing.assert_array_equal(dcpred.open_scores(scores)["decision"][:], served.decision_function(FRAME))


def test_int96_within_a_delta_table(model: str, tmp_path: Path) -> None:
    """The log states microseconds."""
    delta = pytest.importorskip("deltalake")
    delta.write_deltalake(tmp_path / "t", TABLE)
    for file in (tmp_path / "t").glob("*.parquet"):
        held = pq.read_table(file)
        pq.write_table(held, file, use_deprecated_int96_timestamps=True)
    pq.write_table(TABLE, tmp_path / "t.parquet")
    np.testing.assert_array_equal(rows(tmp_path / "t", model), rows(tmp_path / "t.parquet", model))


# -- Encryption and damage -----------------------------------------------------------------------------------


def encrypted(path: Path, **how: Any) -> None:
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Keys(encryption.KmsClient):  # type: ignore[name-defined, misc]
        def __init__(self, _: object) -> None:
            encryption.KmsClient.__init__(self)

        def wrap_key(self, key: bytes, _: str) -> bytes:
            return base64.b64encode(key)

    factory = encryption.CryptoFactory(Keys)
    settings = encryption.EncryptionConfiguration(footer_key="f", **how)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), settings)
    with pq.ParquetWriter(path, TABLE.schema, encryption_properties=properties) as writer:
        writer.write_table(TABLE)


@pytest.mark.parametrize(
    "how",
    [
        {"column_keys": {"c": ["number"]}, "plaintext_footer": True},
        {"column_keys": {"c": ["use"]}, "plaintext_footer": True},
        {"column_keys": {"c": ["use"]}},
        {"uniform_encryption": True},
    ],
    ids=["another column", "column", "footer", "all"],
)
def test_an_encrypted_file_is_refused_as_one(how: dict[str, Any], model: str, tmp_path: Path) -> None:
    """pyarrow ends the process where it is asked for the metadata of an encrypted column."""
    folder = tmp_path / "folder"
    folder.mkdir()
    encrypted(folder / "a.parquet", **how)
    for data in (folder, folder / "a.parquet"):
        doors: list[Callable[[], Any]] = [
            lambda data=data: find_rows(data, "X", model),  # type: ignore[misc]
            lambda data=data: dcpred.import_data(data, tmp_path / "i.zarr"),  # type: ignore[misc]
        ]
        for door in doors:
            with pytest.raises(DataError, match="it is encrypted, and dcpred takes no keys"):
                door()


READ_ALL = """
import sys
from pathlib import Path
from dcpred_tasks.errors import DcpredError
from dcpred_tasks.tables.parquet_files import parquet_footer
from dcpred_tasks.tables.footers import local_file

for path in sorted(Path(sys.argv[1]).glob("*.parquet")):
    try:
        footer = parquet_footer(local_file(path.name, str(path)), ())
        for group in range(len(footer.group_rows)):
            footer.group_bytes(group, footer.schema.names)
            footer.read(group, [name for name in footer.schema.names if name != "nested"])
        for name in footer.schema.names:
            footer.nulls(name)
    except DcpredError:
        continue
"""


def test_no_small_change_of_a_footer_ends_the_process(tmp_path: Path) -> None:
    """In a process of its own: these files end one whose reader asks pyarrow for column chunks."""
    kinds = TABLE.append_column("text", pa.array([f"x{i % 7}" for i in range(N)]))
    kinds = kinds.append_column("nested", pa.array([{"u": i, "v": [i]} for i in range(N)]))
    pq.write_table(kinds, tmp_path / "sound.parquet", row_group_size=100)
    sound = (tmp_path / "sound.parquet").read_bytes()
    length = int.from_bytes(sound[-8:-4], "little")
    chance = random.Random(0)
    for number in range(400):
        changed = bytearray(sound)
        for _ in range(chance.choice([1, 1, 2])):
            changed[len(sound) - 8 - length + chance.randrange(length)] = chance.randrange(256)
        (tmp_path / f"{number}.parquet").write_bytes(changed)
    command = [sys.executable, "-c", READ_ALL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_column_chunks_are_those_of_pyarrow(tmp_path: Path) -> None:
    holes = pa.array([None if i % 3 == 0 else i for i in range(N)])
    table = TABLE.append_column("nested", pa.array([{"u": i, "v": [i]} for i in range(N)]))
    pq.write_table(table.append_column("holes", holes), tmp_path / "t.parquet", row_group_size=70)
    stored = (tmp_path / "t.parquet").read_bytes()
    chunks = read_chunks(stored[-8 - int.from_bytes(stored[-8:-4], "little") : -8])
    metadata = pq.ParquetFile(tmp_path / "t.parquet").metadata
    for group, found in enumerate(chunks):
        expected = [metadata.row_group(group).column(i) for i in range(metadata.num_columns)]
        assert [(".".join(c.path), c.size, c.nulls) for c in found] == [
            (c.path_in_schema, c.total_uncompressed_size, c.statistics and c.statistics.null_count)
            for c in expected
        ]
    footer = parquet_footer(local_file("t.parquet", str(tmp_path / "t.parquet")), ())
    assert footer.nulls("holes") == holes.null_count
    assert footer.nulls("use") == 0
    assert footer.nulls("nested") is None  # as stated for its fields alone


# -- Tables with a log ---------------------------------------------------------------------------------------


def delta_table(path: Path, **options: Any) -> None:
    """100 of 300 rows are deleted: their file stays. The log is a checkpoint alone."""
    delta = pytest.importorskip("deltalake")
    delta.write_deltalake(path, TABLE.slice(0, 200), **options)
    delta.DeltaTable(path).delete("number < 100")
    delta.write_deltalake(path, TABLE.slice(200), mode="append")
    delta.DeltaTable(path).create_checkpoint()
    for file in (path / "_delta_log").glob("*.json"):
        file.unlink()


def test_a_delta_log_of_a_checkpoint_alone_states_the_rows(model: str, tmp_path: Path) -> None:
    delta_table(tmp_path / "t")
    assert sorted(rows(tmp_path / "t", model, "number")) == list(range(100, 300))
    assert dcpred.import_data(tmp_path / "t", tmp_path / "i.zarr", like=model).n_samples == 200


def logged(folder: Path, name: str) -> Path:
    """A table of another format, of 300 rows with a sign of the format."""
    sign, below = {
        "Hudi": (".hoodie/hoodie.properties", ""),
        "Iceberg": ("metadata/00001-a.metadata.json", "data"),
        "Iceberg by its snapshots": ("metadata/snap-1.avro", "data/number=1"),
        "Delta without a commit": ("_delta_log/_last_checkpoint", ""),
    }[name]
    (folder / sign).parent.mkdir(parents=True)
    (folder / sign).write_text("{}")
    (folder / below).mkdir(parents=True, exist_ok=True)
    pq.write_table(TABLE, folder / below / "a.parquet")
    return folder / below


@pytest.mark.parametrize("name", ["Hudi", "Iceberg", "Iceberg by its snapshots", "Delta without a commit"])
def test_tables_with_a_log_are_no_plain_folders(name: str, model: str, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    within = logged(outer / "t", name)
    for data in (outer / "t", within, outer, f"{within}/*.parquet"):
        with pytest.raises(DataError, match=name.split()[0]):
            find_rows(data, "X", model)
        if isinstance(data, Path):
            with pytest.raises(DataError, match=name.split()[0]):
                dcpred.import_data(data, tmp_path / "i.zarr", like=model)
    assert len(rows(within / "a.parquet", model)) == N  # a file that is named itself


def test_other_folders_called_metadata_are_no_sign(model: str, tmp_path: Path) -> None:
    (tmp_path / "t" / "metadata").mkdir(parents=True)
    (tmp_path / "t" / "metadata" / "notes.txt").write_text("")
    pq.write_table(TABLE, tmp_path / "t" / "a.parquet")
    assert len(rows(tmp_path / "t", model)) == N


def test_a_partition_of_a_delta_table_is_no_plain_folder(model: str, tmp_path: Path) -> None:
    part = pa.array(["a", "b"] * 150)
    delta = pytest.importorskip("deltalake")
    delta.write_deltalake(tmp_path / "t", TABLE.append_column("part", part), partition_by=["part"])
    assert len(rows(tmp_path / "t", model)) == N
    for data in (tmp_path / "t" / "part=a", f"{tmp_path}/t/part=*/*.parquet", tmp_path):
        with pytest.raises(DataError, match=r"t as rows: it is a table of Delta.*Name that folder"):
            find_rows(data, "X", model)


def test_tables_with_a_log_on_a_store(model: str, tmp_path: Path, s3: StoreServer) -> None:
    with used(s3):
        for number, name in enumerate(("Hudi", "Iceberg", "Delta without a commit")):
            within = logged(tmp_path / str(number), name)
            folder = s3.address("logged", str(number))
            for file in filter(Path.is_file, (tmp_path / str(number)).rglob("*")):
                relative = file.relative_to(tmp_path / str(number)).as_posix()
                open_place(folder).write(relative, file.read_bytes())
            below = within.relative_to(tmp_path / str(number)).as_posix()
            for data in (f"{folder}/**/*.parquet", f"{folder}/{below}/*.parquet".replace("/./", "/")):
                with pytest.raises(DataError, match=name.split()[0]):
                    find_rows(data, "X", model)


def test_a_panic_of_the_library_is_a_refusal(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A panic of Rust is no Exception of Python."""
    delta = pytest.importorskip("deltalake")

    class PanicException(BaseException):
        pass

    def panic(*_: Any, **__: Any) -> None:
        raise PanicException("not yet implemented")

    delta_table(tmp_path / "t")
    monkeypatch.setattr(delta, "DeltaTable", panic)
    with pytest.raises(DataError, match=r"Cannot read the Delta table .*not yet implemented"):
        find_rows(tmp_path / "t", "X", model)
