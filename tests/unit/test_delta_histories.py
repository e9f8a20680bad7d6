"""`verify` says that a Delta table holds a run exactly where another library reads its rows there, once."""

import random
from pathlib import Path

import polars as pl
import pytest

from support.delta_histories import History, make_outputs, small_blocks

STEPS = 10


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outputs of three blocks."""
    folder = tmp_path_factory.mktemp("outputs")
    with small_blocks():
        make_outputs(folder)
    return folder


def live(made: Path, folder: Path, seed: int) -> None:
    history = History(made, folder, random.Random(seed))
    for _ in range(STEPS):
        history.step()
        history.check()
    history.settle()
    assert history.harm == []
    if history.exists:
        rows = history.delta.to_pyarrow_table().sort_by("id").select(["id", "status"])
        assert pl.read_delta(str(history.table)).sort("id").select("id", "status").to_arrow() == rows


@pytest.mark.parametrize("seed", range(2))
def test_a_run_is_in_the_table_where_its_rows_are(made: Path, tmp_path: Path, seed: int) -> None:
    live(made, tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 106))
def test_a_run_is_in_the_table_where_its_rows_are_in_many_histories(
    made: Path, tmp_path: Path, seed: int
) -> None:
    live(made, tmp_path, seed)
