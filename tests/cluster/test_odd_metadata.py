"""Metadata of inputs that Zarr takes, and that JSON, a grid of chunks or a codec cannot mean."""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from dcpred.cli import main
from dcpred.refreshing.refresh import refresh
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred.verification.verify import verify
from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.atomic_files import read_json
from dcpred_tasks.storage.stored_chunks import check_complete
from support.data import make_blobs

NO_JSON = {"missing_value": float("nan"), "valid_range": [float("-inf"), float("inf")]}


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_attributes_that_are_no_numbers_of_json(tmp_path: Path, zarr_format: Literal[2, 3]) -> None:
    """As climate data have them: Zarr writes NaN for a missing value. A run ended in a traceback when all its
    blocks were done.
    """
    blobs = make_blobs(300, n_features=4, n_classes=2, seed=0)
    group = zarr.open_group(tmp_path / "data.zarr", mode="w", zarr_format=zarr_format)
    for name, values in {"X": blobs.X, "y": blobs.y}.items():
        group.create_array(name, data=values, chunks=(100, *values.shape[1:])).attrs.update(NO_JSON)
    data, model = tmp_path / "data.zarr", tmp_path / "model"
    train(data, model, settings={"n_leaves": 2, "landmarks": 4})
    score(model, data, tmp_path / "out")
    assert verify(tmp_path / "out", "full").ok
    assert refresh(model, data, tmp_path / "root").scored_blocks
    assert refresh(model, data, tmp_path / "root").state == "unchanged"
    inspected = CliRunner().invoke(main, ["inspect", f"{tmp_path}/data.zarr", "--json"])
    told = json.loads(inspected.stdout, parse_constant=pytest.fail)
    assert told["arrays"]["X"]["attributes"] == {"missing_value": None, "valid_range": [None, None]}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("chunks", [0, 4]),
        ("chunks", [50, 0]),
        ("compressor", {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": "x", "blocksize": 0}),
    ],
)
def test_metadata_of_zarr_2_that_say_nothing(tmp_path: Path, field: str, value: Any) -> None:
    zarr.create_array(tmp_path / "X", data=np.ones((100, 4)), chunks=(50, 4), zarr_format=2)
    metadata = read_json(tmp_path / "X/.zarray")
    (tmp_path / "X/.zarray").write_text(json.dumps(metadata | {field: value}))
    with pytest.raises(DataError, match="cannot interpret its metadata"):
        open_array(tmp_path / "X")


def test_an_array_of_more_rows_than_a_float_can_count(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "X", data=np.ones((100, 4)), chunks=(50, 4), zarr_format=2)
    metadata = read_json(tmp_path / "X/.zarray")
    (tmp_path / "X/.zarray").write_text(json.dumps(metadata | {"shape": [10**400, 4]}))
    with pytest.raises(DataError, match=r"X: chunk 2\.0 is missing"):
        check_complete("X", open_array(tmp_path / "X"))
