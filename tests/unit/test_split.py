"""Data sets divided into one to train on and one to test on: rows stay whole and in order, whatever the
chunks, and each rule is what its plain definition says.
"""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcpred.cli import main
from dcpred.datasets import split_rules, splitting
from dcpred.datasets.split_rules import Drawn, latest, whole_groups
from dcpred.datasets.splitting import Split, split
from dcpred_tasks.errors import DataError, PlanConflictError, SettingsError
from dcpred_tasks.storage import zarr_arrays

N = 115


def data_set(path: Path, chunk_rows: int = 40) -> str:
    """Rows with an array of every kind beside them; `day` and `place` tell no order of rows."""
    rng = np.random.default_rng(0)
    group = zarr_arrays.create_group(path, {"dcpred_schema": {"version": 1}, "dcpred_ids": ["id"]})
    arrays: dict[str, NDArray[Any]] = {
        "X": np.column_stack([np.arange(N), rng.integers(0, 9, N)]).astype(np.float32),
        "y": np.repeat([0, 1, 2], [10, 90, 15])[rng.permutation(N)].astype(np.uint8),
        "weight": rng.random(N),
        "id": np.array([f"row {i}" for i in range(N)], object),
        "day": np.array(
            [f"2026-{1 + d // 28:02d}-{1 + d % 28:02d}" for d in rng.integers(0, 300, N)], object
        ),
        "place": np.array([f"ort {i}" for i in rng.integers(0, 12, N)], object),
        "spectrum": rng.random((N, 3)),
        "classes": np.arange(3),
    }
    for name, values in arrays.items():
        like = str if values.dtype == object else values.dtype
        more = {"feature_names": ["number", "ward"]} if name == "X" else {"unit": name}
        fill = "" if like is str else 0
        array = zarr_arrays.create_array(
            group, name, values.shape, like, min(chunk_rows, len(values)), fill_value=fill, attributes=more
        )
        array[...] = values
    return str(path)


def read(path: str) -> dict[str, NDArray[Any]]:
    return {name: np.asarray(array[...]) for name, array in zarr.open_group(path, mode="r").arrays()}


def sides(found: Split) -> NDArray[np.bool_]:
    """Which rows are to test on, by their numbers, which are a feature. Rows of both parts are whole."""
    whole, parts = read(found.data), (read(found.train), read(found.test))
    rows = [part["X"][:, 0].astype(int) for part in parts]
    assert sorted(np.concatenate(rows).tolist()) == list(range(N))
    for part, own in zip(parts, rows, strict=True):
        assert (np.diff(own) > 0).all(), "rows keep their order"
        assert set(part) == set(whole) - {"classes"}
        for name, values in part.items():
            np.testing.assert_array_equal(values, whole[name][own])
    return np.isin(np.arange(N), rows[1])


@pytest.fixture
def data(tmp_path: Path) -> str:
    return data_set(tmp_path / "all.zarr")


@pytest.mark.parametrize("share", [0.2, 1 / 3])
def test_each_class_has_its_share(data: str, share: float) -> None:
    found = split(data, test=share)
    is_test, y = sides(found), read(data)["y"]
    for one in range(3):
        assert abs(is_test[y == one].sum() - share * (y == one).sum()) < 1
    assert (found.by, found.n_classes, found.left_out) == ("classes", 3, ["classes"])
    assert found.test.endswith("all-test.zarr")


def test_attributes_go_along(data: str) -> None:
    found = split(data, y="none")
    assert (found.by, found.n_classes) == ("rows", None)
    for part in (found.train, found.test):
        group = zarr.open_group(part, mode="r")
        assert {name: group.attrs[name] for name in ("dcpred_schema", "dcpred_ids")} == {
            "dcpred_schema": {"version": 1},
            "dcpred_ids": ["id"],
        }
        assert group["X"].attrs["feature_names"] == ["number", "ward"]
        assert group["weight"].attrs["unit"] == "weight"


@pytest.mark.parametrize("how", [{}, {"by_time": "day"}, {"by_group": "place"}])
def test_chunks_do_not_matter(tmp_path: Path, how: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"seed": 3} if "by_time" not in how else {}
    one = sides(split(data_set(tmp_path / "a.zarr", 40), **how, **asked))
    monkeypatch.setattr(split_rules, "HELD_BYTES", 1)
    other = sides(split(data_set(tmp_path / "b.zarr", 25), **how, **asked))
    np.testing.assert_array_equal(one, other)
    if asked:
        again = sides(split(data_set(tmp_path / "c.zarr"), **how, seed=4))
        assert (again != one).any(), "another seed draws others"


def test_the_last_rows_by_time(data: str) -> None:
    days, whole = read(data)["day"], sides(split(data, by_time="day", test=0.3))
    assert days[whole].min() > days[~whole].max(), "rows of one day go to one side"
    assert abs(whole.sum() - 0.3 * N) <= max(np.unique(days, return_counts=True)[1])


def test_the_last_rows_as_they_are(data: str) -> None:
    np.testing.assert_array_equal(sides(split(data, by_time="")), np.arange(N) >= 0.8 * N)


@pytest.mark.parametrize("name", ["place", "ward"])
def test_groups_stay_whole(data: str, name: str) -> None:
    """Of an array, and of a feature."""
    is_test = sides(split(data, by_group=name, test=0.3))
    groups = read(data)["place"] if name == "place" else read(data)["X"][:, 1]
    assert not set(groups[is_test]) & set(groups[~is_test])
    assert abs(is_test.sum() - 0.3 * N) <= max(np.unique(groups, return_counts=True)[1])


def test_the_same_again_writes_what_is_not_there(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a crash between the two; and nothing else that is there is touched."""
    first = split(data)
    before = sides(first)
    for path in Path(first.test).rglob("*"):
        if path.is_file():
            path.unlink()
    for path in sorted(Path(first.test).rglob("*"), reverse=True):
        path.rmdir()
    Path(first.test).rmdir()
    again = split(data)
    assert not again.already_split
    np.testing.assert_array_equal(sides(again), before)
    monkeypatch.setattr(splitting, "_write", lambda *a: pytest.fail("both are there"))
    assert split(data).already_split
    for other in ({"test": 0.3}, {"seed": 1}, {"by_time": ""}):
        with pytest.raises(PlanConflictError, match="it holds something else"):
            split(data, **other)


def test_a_part_appears_whole_or_not_at_all(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(splitting._Writer, "close", full)
        with pytest.raises(OSError, match="full"):
            split(data)
    left = [path.name for path in Path(data).parent.iterdir() if path.name.endswith(".zarr")]
    assert left == ["all.zarr"]
    sides(split(data))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"test": 0.0}, "more than 0 and less than 1"),
        ({"test": float("nan")}, "more than 0 and less than 1"),
        ({"by_time": "", "by_group": "place"}, "at once"),
        ({"by_time": "day", "seed": 1}, "that split is not random"),
        ({"by_group": "nowhere"}, "Name one of .*day.*number, ward"),
        ({"by_group": "spectrum"}, "several values a row"),
        ({"by_time": "place"}, "text that is not a date"),
        ({"into": ("{}", "other.zarr")}, "same as another"),
        ({"into": ("a.zarr", "a.zarr/b.zarr")}, "lies in it"),
        ({"seed": 2**31}, "Use another"),
    ],
)
def test_refusals(data: str, asked: dict[str, Any], message: str) -> None:
    if "into" in asked:
        asked = {"into": tuple(name.format(data) for name in asked["into"])}
    with pytest.raises((DataError, SettingsError), match=message):
        split(data, **asked)
    assert [path.name for path in Path(data).parent.iterdir()] == ["all.zarr"]


def test_the_command(data: str) -> None:
    told = CliRunner().invoke(main, ["split", data, "--by-group", "place", "--seed", "2"])
    assert told.exit_code == 0, told.output
    assert "groups of place, each on one side; seed 2" in told.stdout
    assert "classes: not as many rows as X" in told.stdout
    again = CliRunner().invoke(main, ["split", data, "--by-group", "place", "--seed", "2", "-q"])
    assert "nothing was written" in again.stdout
    assert again.stderr == ""


# -- rules, beside plain ones --------------------------------------------------------------------------------

VALUES = st.lists(st.floats(-1e300, 1e300) | st.integers(-5, 5).map(float), min_size=2, max_size=60)


@given(VALUES, st.floats(0.01, 0.99), st.integers(1, 60))
def test_the_latest_are_found_by_a_sample(values: list[float], share: float, part: int) -> None:
    """As by sorting all of them: no other limit between values gives as near a number of rows."""
    x = np.array(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_rules, "MOST_SAMPLED", 3)

        def parts() -> Any:
            return iter(np.array_split(x, max(len(x) // part, 1)))

        if len(np.unique(x)) == 1:
            with pytest.raises(ValueError, match="same value"):
                latest(parts, share)
            return
        found = np.concatenate(list(latest(parts, share).sides()))
    wanted = min(max(round(share * len(x)), 1), len(x) - 1)
    possible = [int((x >= limit).sum()) for limit in np.unique(x)[1:]]
    assert found.sum() in possible
    assert abs(found.sum() - wanted) == min(abs(n - wanted) for n in possible)
    assert x[found].min() > x[~found].max()


@pytest.mark.parametrize("ties", [False, True])
def test_a_sample_bounds_the_value_at_a_position(ties: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_rules, "MOST_SAMPLED", 2_000)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, 20_000).astype(float) if ties else rng.normal(size=20_000)
    for n in (0, 1, 4_000, 10_000, 19_998, 19_999):
        assert split_rules._nth(lambda: iter(np.array_split(x, 7)), n) == np.sort(x)[n]


@given(st.lists(st.integers(0, 9), min_size=2, max_size=80), st.floats(0.05, 0.95), st.integers(0, 5))
def test_groups_are_as_near_the_share_as_possible(groups: list[int], share: float, seed: int) -> None:
    keys = np.array(groups, np.uint64)
    if len(set(groups)) == 1:
        with pytest.raises(ValueError, match="one group"):
            whole_groups(lambda: iter([keys]), share, seed)
        return
    found = np.concatenate(list(whole_groups(lambda: iter(np.array_split(keys, 2)), share, seed).sides()))
    assert not set(keys[found]) & set(keys[~found])
    assert 0 < found.sum() < len(keys)
    sizes = np.unique(keys, return_counts=True)[1].tolist()
    sums = {sum(some) for n in range(1, len(sizes)) for some in combinations(sizes, n)}
    wanted = share * len(keys)
    assert abs(found.sum() - wanted) <= min(abs(one - wanted) for one in sums) + 1


@pytest.mark.parametrize("seed", range(10))
def test_a_group_of_most_rows_does_not_decide_the_share(seed: int, tmp_path: Path) -> None:
    """Many groups, also more than are compared, and other groups by another seed."""
    rng = np.random.default_rng(seed)
    n_groups = (3, 40, 500)[seed % 3]
    keys = np.concatenate([np.zeros(70_000), rng.integers(1, n_groups, 30_000)]).astype(np.uint64)
    rng.shuffle(keys)
    found = np.concatenate(list(whole_groups(lambda: iter([keys]), 0.2, seed).sides()))
    other = np.concatenate(list(whole_groups(lambda: iter([keys]), 0.2, seed + 100).sides()))
    if n_groups > 3:
        assert abs(found.mean() - 0.2) < 0.005
        assert (found != other).any()
    else:
        assert abs(found.mean() - 0.15) < 0.005


def test_a_missed_share_is_reported(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "t.zarr")
    group.create_array("X", data=np.random.default_rng(0).normal(size=(100, 2)))
    group.create_array("g", data=np.arange(100) // 50, config={"write_empty_chunks": True})
    done = CliRunner().invoke(main, ["split", str(tmp_path / "t.zarr"), "--by-group", "g"])
    assert "20.0 % was requested; the groups are too large for it" in done.output
    with pytest.raises(SettingsError, match="it names no column"):
        split(str(tmp_path / "t.zarr"), by_group="")


def test_too_many_groups_to_count_fall_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_rules, "MOST_GROUPS", 100)
    keys = np.repeat(np.arange(20_000, dtype=np.uint64), 2)
    found = np.concatenate(list(whole_groups(lambda: iter([keys]), 0.25, 0).sides()))
    np.testing.assert_array_equal(found[::2], found[1::2])
    assert abs(found.mean() - 0.25) < 0.02


@given(st.integers(2, 400), st.floats(0.01, 0.99), st.integers(0, 3))
def test_one_row_of_each_set_is_drawn(n: int, share: float, seed: int) -> None:
    drawn = np.concatenate(list(Drawn(lambda: iter([np.zeros(n, np.int64)]), share, seed).sides()))
    sets = np.floor(np.arange(n) * share * (1 + 1e-12)).astype(int)
    assert abs(drawn.sum() - share * n) <= 1
    assert np.bincount(sets, drawn).max() <= 2, "neighbours are not drawn together"
