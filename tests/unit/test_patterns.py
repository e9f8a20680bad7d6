"""Which files a table has: the same for every command, on disks and stores."""

import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest
import zarr

import dcpred
from dcpred.refreshing.parts import find_parts
from dcpred.training import scratch
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.patterns import is_pattern, match_pattern
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.tables.table_files import list_files
from support.stores import StoreServer, used

SETTINGS = {"n_leaves": 1, "landmarks": 4, "calibrate": False}
PATTERNS = (
    "*",
    "**/*",
    "*/*",
    "**/*.parquet",
    "*/*.parquet",
    "*.parquet",
    "[!b]*",
    "**/a*/*",
    "a*/**",
    "?/*.pq",
)
FOLDERS = ("a", "b", "a2", "_tmp", ".h", "x.parquet", "lost+found", "c.partial-0123456789ab")
FILES = ("p.parquet", "q.pq", "_r.parquet", ".s.parquet", "t.txt", "p.parquet.crc", "u.PARQUET")


def rows(start: int, n: int = 3) -> pa.Table:
    number = np.arange(start, start + n)
    return pa.table({"a": number.astype(float), "b": np.sin(number), "kind": np.where(number % 2, "p", "q")})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    pq.write_table(rows(0, 60), folder / "known.parquet")
    dcpred.train(folder / "known.parquet", folder / "model", y="kind", settings=SETTINGS)
    return str(folder / "model")


def grow(draw: random.Random, top: Path, linked: bool = True) -> None:
    """A tree of folders with files of rows, hidden and unfinished ones, others, and links."""
    top.mkdir(parents=True)
    folders = [top]
    for _ in range(draw.randrange(1, 6)):
        folder = draw.choice(folders) / draw.choice(FOLDERS)
        folder.mkdir(exist_ok=True)
        folders.append(folder)
    for number in range(draw.randrange(1, 8)):
        path = draw.choice(folders) / draw.choice(FILES)
        if path.suffix in (".parquet", ".pq", ".PARQUET"):
            pq.write_table(rows(100 + 10 * number), path)
        else:
            path.write_text("no rows")
    outside = top.parent / f"{top.name}-outside"
    outside.mkdir()
    pq.write_table(rows(1000), outside / "o.parquet")
    for number in range(draw.randrange(4) if linked else 0):
        link = draw.choice(folders) / f"{draw.choice('ab_')}{number}{draw.choice(('', '.parquet'))}"
        files = [path for folder in folders for path in folder.iterdir() if path.is_file()]
        files = [path for path in files if path.suffix != ".txt" and path.suffix != ".crc"]
        link.symlink_to(draw.choice([*folders, *files, outside, top.parent]))


def values(X: Any) -> list[float]:
    return sorted(np.asarray(X)[:, 0].tolist())


def plain_rows(top: Path) -> list[float]:
    """The rows of a folder by the rule, and nothing else: every real file once that is reached by visible
    names without going around in a circle.
    """
    found: dict[str, list[float]] = {}

    def visit(folder: str, above: tuple[str, ...]) -> None:
        for name in os.listdir(folder):
            path, real = os.path.join(folder, name), os.path.realpath(os.path.join(folder, name))
            hidden = name[0] in "._" or name == "lost+found" or ".partial-" in name
            around = os.path.islink(path) and any(f"{here}/".startswith(f"{real}/") for here in above)
            if hidden or around or real in above:
                continue
            if os.path.isdir(path):
                visit(path, (*above, real))
            elif name.lower().endswith((".parquet", ".pq")) and os.path.exists(real):
                found[real] = pq.ParquetFile(real).read()["a"].to_pylist()

    visit(str(top), (os.path.realpath(top),))
    return sorted(value for held in found.values() for value in held)


def read_by(way: str, data: str, model: str, folder: Path) -> list[float] | str:
    """The values of the first column of the rows that a command reads; its refusal in their place."""
    try:
        if way == "in place":
            return values(open_array(find_rows(data, "X", model))[...])
        if way == "refresh":
            parts = find_parts(data, "X", model) if is_pattern(data) else []
            return sorted(value for part in parts for value in values(open_array(part.x)[...]))
        shutil.rmtree(folder, ignore_errors=True)
        if way == "import":
            dcpred.import_data(data, folder / "i.zarr", like=model)
            return values(zarr.open_array(folder / "i.zarr/X")[...])
        columns = scratch.NamedColumns("kind")
        with scratch.imported(data, columns, folder) as made:
            return values(zarr.open_array(f"{made}/X")[...])
    except DataError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(24))
def test_every_command_reads_the_same_rows(seed: int, model: str, tmp_path: Path) -> None:
    draw = random.Random(seed)
    grow(draw, tmp_path / "t")
    found = {
        way: read_by(way, str(tmp_path / "t"), model, tmp_path / "i")
        for way in ("in place", "import", "train")
    }
    expected = plain_rows(tmp_path / "t")
    assert all(one == expected if expected else isinstance(one, str) for one in found.values()), found
    for pattern in draw.sample(PATTERNS, 3):
        data = f"{tmp_path}/t/{pattern}"
        ways = ("in place", "import", "train", "refresh")
        by_way = {way: read_by(way, data, model, tmp_path / "i") for way in ways}
        refused = [isinstance(one, str) for one in by_way.values()]
        if any(refused):
            assert all(refused) or "a link leads to" in str(by_way["refresh"]), (pattern, by_way)
            continue
        assert len({str(one) for one in by_way.values()}) == 1, (pattern, by_way)
        assert len(set(by_way["in place"])) == len(by_way["in place"])
        assert set(by_way["in place"]) <= {*expected}


@pytest.mark.parametrize("seed", range(8))
def test_a_store_has_the_files_of_a_disk(seed: int, model: str, tmp_path: Path, s3: StoreServer) -> None:
    draw = random.Random(1000 + seed)
    grow(draw, tmp_path / "t", linked=False)
    with used(s3):
        top = s3.address(f"patterns-{seed}", "t")
        for path in (tmp_path / "t").rglob("*"):
            if path.is_file():
                open_place(top).write(path.relative_to(tmp_path / "t").as_posix(), path.read_bytes())
        for pattern in (one for one in ("", *PATTERNS) if "?" not in one):
            found = []
            for base in (str(tmp_path / "t"), top):
                try:
                    found.append([file.name for file in list_files(f"{base}/{pattern}")])
                except DataError:
                    found.append([])
            assert found[0] == found[1], pattern
        if plain_rows(tmp_path / "t"):
            assert read_by("import", top, model, tmp_path / "i") == plain_rows(tmp_path / "t")
            assert read_by("in place", top, model, tmp_path / "i") == plain_rows(tmp_path / "t")


def test_names_of_matches_and_what_is_no_pattern(tmp_path: Path) -> None:
    for name in (
        "day=1/x.parquet",
        "day=2/x.parquet",
        "[old]/x.parquet",
        "_day=3/x.parquet",
        "_log/x.parquet",
    ):
        (tmp_path / name).parent.mkdir()
        pq.write_table(rows(0), tmp_path / name)
    (tmp_path / "latest").symlink_to("day=2")

    def matched(pattern: str) -> list[str]:
        return [match.name for match in match_pattern(f"{tmp_path}/{pattern}")[1]]

    assert matched("*") == ["[old]", "_day=3", "day=1", "day=2"]
    assert matched("l*") == ["latest"]
    assert matched("day=[^1]/*") == matched("day=[!1]/*") == ["day=2/x.parquet"]
    assert matched("*/_nothing") == []
    assert matched("**/x.parquet")[0] == "[old]/x.parquet"
    assert not is_pattern(tmp_path / "[old]")
    assert list_files(f"{tmp_path}/[old]")[0].name == "x.parquet"
    assert match_pattern(f"{tmp_path}/[old]/*")[0] == f"{tmp_path}/[old]"
    with pytest.raises(DataError, match=r"alone between two slashes. Write \*\*/\*\.parquet"):
        list_files(f"{tmp_path}/day**")


def test_a_match_without_rows_is_no_input(model: str, tmp_path: Path) -> None:
    """No message advises to remove data."""
    (tmp_path / "in/day=1").mkdir(parents=True)
    (tmp_path / "in/empty").mkdir()
    pq.write_table(rows(0), tmp_path / "in/top.parquet")
    pq.write_table(rows(0), tmp_path / "in/day=1/x.parquet")
    (tmp_path / "in/read.me").write_text("")
    assert [part.name for part in find_parts(f"{tmp_path}/in/*/*.parquet", "X", model)] == ["day=1-x.parquet"]
    assert [part.name for part in find_parts(f"{tmp_path}/in/*", "X", model)] == ["day=1", "top.parquet"]
    with pytest.raises(DataError, match="none of the 1 matches is a Zarr group or a table"):
        find_parts(f"{tmp_path}/in/*.me", "X", model)


def test_files_of_a_delta_table_are_not_rows(model: str, tmp_path: Path) -> None:
    write = pytest.importorskip("deltalake").write_deltalake
    (tmp_path / "lake").mkdir()
    write(str(tmp_path / "lake/one"), rows(0))
    write(str(tmp_path / "lake/one"), rows(50), mode="overwrite")
    for data in (tmp_path / "lake", tmp_path / "lake/*", tmp_path / "lake/one/*.parquet"):
        with pytest.raises(DataError, match="as rows: it is a table of Delta"):
            find_rows(data, "X", model)
    assert [part.name for part in find_parts(f"{tmp_path}/lake/*", "X", model)] == ["one"]


def test_a_folder_of_arrow_is_imported(model: str, tmp_path: Path) -> None:
    (tmp_path / "t/k=1").mkdir(parents=True)
    pf.write_feather(rows(0), tmp_path / "t/k=1/a.arrow")
    pf.write_feather(rows(5), tmp_path / "t/k=1/b.arrow")
    assert read_by("import", str(tmp_path / "t"), model, tmp_path / "i") == [0, 1, 2, 5, 6, 7]
