"""xarray opens what dcpred writes, called as a user calls it: `xr.open_zarr(path)`, without options
and loss.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

from dcpred.datasets.importing import import_data
from dcpred.scoring.repair import repair
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred.verification.verify import verify
from dcpred_tasks.artifacts.block_files import Kind
from dcpred_tasks.storage.atomic_files import create_bytes
from dcpred_tasks.storage.place import Folder
from dcpred_tasks.storage.zarr_arrays import find_array
from dcpred_tasks.task_bodies import score_block as task
from support.data import make_blobs

N_ROWS = 400
SETTINGS: dict[str, dict[str, Any]] = {
    "three classes": {"keep_support_vectors": True},
    "two classes": {"refine": False, "triangle": 3},
    "regression": {"task": "regression"},
    "one leaf": {"n_leaves": 1},
}


def made(folder: Path, variant: str) -> Path:
    """A folder with data.zarr, imported from CSV with names, a model and a finished output `out`; some rows
    are not finite.
    """
    blobs = make_blobs(N_ROWS, n_features=3, n_classes=2 if variant == "two classes" else 3, seed=0)
    target = blobs.X[:, 0] if variant == "regression" else np.array(["ash", "oak", "yew"])[blobs.y]
    for name, bad in (("known", []), ("data", [0, 17, N_ROWS - 1])):
        rows = [
            f"{'nan' if i in bad else x[0]},{x[1]},{x[2]},{t}"
            for i, (x, t) in enumerate(zip(blobs.X, target, strict=True))
        ]
        (folder / f"{name}.csv").write_text("\n".join(["height,age,girth,kind", *rows]) + "\n")
        import_data(f"{folder}/{name}.csv", f"{folder}/{name}.zarr", target="kind", chunk_rows=150)
    settings = {"n_leaves": 2, "landmarks": 4, "products": 3} | SETTINGS[variant]
    train(f"{folder}/known.zarr", folder / "model", settings=settings)
    score(folder / "model", f"{folder}/data.zarr/X", folder / "out")
    return folder


def opened(path: Path) -> xr.Dataset:
    """A data set, of which xarray warns that it holds no copy of the metadata of its arrays."""
    with pytest.warns(RuntimeWarning, match="consolidated"):
        return xr.open_zarr(path)


def check_equal(seen: xr.Dataset, path: Path, dimensions: dict[str, tuple[str, ...]]) -> None:
    """xarray sees these arrays with the names of their dimensions, and every value and attribute."""
    stored = dict(zarr.open_group(path, mode="r", use_consolidated=False).arrays())
    assert {str(name): seen[name].dims for name in seen.variables} == dimensions
    assert stored.keys() == dimensions.keys()
    for name, array in stored.items():
        assert seen[name].dtype == array.dtype
        np.testing.assert_array_equal(seen[name].values, array[...])
        assert seen[name].attrs == dict(array.attrs)


@pytest.mark.parametrize("variant", SETTINGS)
def test_data_scores_and_models(tmp_path: Path, variant: str) -> None:
    folder = made(tmp_path, variant)
    data = opened(folder / "data.zarr")
    check_equal(data, folder / "data.zarr", {"X": ("sample", "feature"), "y": ("sample",)})
    assert data.X.attrs["feature_names"] == ["height", "age", "girth"]
    scores = {"decision": ("sample",), "status": ("sample",)}
    if variant != "regression":
        scores |= {"label": ("sample",)}
    if variant in ("three classes", "one leaf"):
        scores |= {"decision": ("sample", "output")}
    seen = xr.open_zarr(folder / "out" / "scores.zarr")
    check_equal(seen, folder / "out" / "scores.zarr", scores)
    bad = seen.status.values != 1
    assert list(np.flatnonzero(bad)) == [0, 17, N_ROWS - 1]
    assert np.isnan(seen.decision.values[bad]).all()
    model = xr.open_zarr(folder / "model" / "arrays.zarr").load()
    assert model.sizes["feature"] == 3
    for name, array in zarr.open_group(folder / "model" / "arrays.zarr", mode="r").arrays():
        np.testing.assert_array_equal(model[name].values, array[...])


def test_an_unfinished_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path, "two classes")

    def fail(*_: object, **__: object) -> None:
        raise OSError("cut off")

    monkeypatch.setattr(task, "score_with_leaves", fail)
    with pytest.raises(Exception, match="cut off"):
        score(folder / "model", f"{folder}/known.zarr/X", folder / "cut")
    seen = xr.open_zarr(folder / "cut" / "scores.zarr")
    assert not seen.status.any()
    assert np.isnan(seen.decision.values).all()


def test_a_driver_that_died_before_the_group_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path, "two classes")

    def cut_off_at_the_group(place: Folder, name: str, data: bytes) -> bool:
        if name == "scores.zarr/zarr.json":
            raise KeyboardInterrupt
        return create_bytes(place.path / name, data)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "create", cut_off_at_the_group)
        with pytest.raises(KeyboardInterrupt):
            score(folder / "model", f"{folder}/known.zarr/X", folder / "cut")
    score(folder / "model", f"{folder}/known.zarr/X", folder / "cut")
    assert verify(folder / "cut", "full").ok
    path = folder / "cut" / "scores.zarr"
    check_equal(xr.open_zarr(path), path, dict.fromkeys(("decision", "label", "status"), ("sample",)))


def altered(value: Any, how: str) -> Any:
    if how == "names of dimensions":
        return value | {"dimension_names": ["sample", "feature"]}
    copies = value["consolidated_metadata"]["metadata"]
    if how == "dtype in the copy":
        copies["status"]["data_type"] = "int8"
    elif how == "chunks in the copy":
        copies["label"]["chunk_grid"]["configuration"]["chunk_shape"] = [7]
    else:
        del copies["label"]
    return value


@pytest.mark.parametrize(
    "how", ["names of dimensions", "dtype in the copy", "chunks in the copy", "array in the copy"]
)
def test_altered_metadata_are_found_and_repaired(tmp_path: Path, how: str) -> None:
    """Without a manifest, so that the plan alone tells."""
    folder = made(tmp_path, "three classes")
    name = "decision/zarr.json" if how == "names of dimensions" else "zarr.json"
    path = folder / "out" / "scores.zarr" / name
    before = path.read_bytes()
    path.write_text(json.dumps(altered(json.loads(before), how)))
    (folder / "out" / "manifest.json").unlink()
    found = verify(folder / "out", "full").findings
    assert [(finding.kind, finding.file) for finding in found] == [(Kind.METADATA, f"scores.zarr/{name}")]
    repair(folder / "model", f"{folder}/data.zarr/X", folder / "out")
    assert path.read_bytes() == before
    assert verify(folder / "out", "full").ok


def test_a_data_set_may_grow(tmp_path: Path) -> None:
    """Zarr and xarray believe a copy of metadata in a group: rows that were appended would be overwritten by
    the next ones.
    """
    folder = made(tmp_path, "two classes")
    for value in (1.0, 2.0):
        group = zarr.open_group(folder / "data.zarr", mode="r+")
        group["X"].append(np.full((5, 3), value))
    group.create_array("weight", shape=(N_ROWS,), dtype="f4", dimension_names=("sample",))[...] = 1
    appended = zarr.open_group(folder / "data.zarr")["X"][N_ROWS:]
    np.testing.assert_array_equal(appended, np.repeat([1.0, 2.0], 5)[:, None] * np.ones(3))
    assert find_array(folder / "data.zarr", "weight").endswith("data.zarr/weight")
