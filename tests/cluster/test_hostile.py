"""Files that somebody made to do harm: no code of theirs runs, nothing waits, nothing outside is written, and
no memory is taken for what a few bytes claim.
"""

import bz2
import gzip
import json
import lzma
import os
import pickle
import random
import shutil
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from numcodecs.zstd import Zstd
from numpy.typing import NDArray

from dcpred.cli import main
from dcpred.execution.dask_workers import secured
from dcpred.execution.lease import acquire_lock
from dcpred.execution.workers import Scheduler
from dcpred.runs.bad_rows import errors
from dcpred.runs.ledger import open_ledger
from dcpred.scoring.score import score
from dcpred.training import steps
from dcpred.training.train import train
from dcpred.verification.verify import verify
from dcpred_tasks.artifacts import model_artifact, model_checks
from dcpred_tasks.artifacts.block_files import Kind
from dcpred_tasks.artifacts.commit_records import read_record
from dcpred_tasks.artifacts.model_artifact import MODEL_FILE, open_artifact, read_model
from dcpred_tasks.errors import (
    DamagedChunkError,
    DataError,
    DcpredError,
    ModelFormatError,
    PlanConflictError,
    ResourceError,
    SchedulerError,
)
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array, open_group
from dcpred_tasks.storage.atomic_files import NoDocumentError, decoded, read_json, read_plain, write_json
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.storage.place import open_place, read_own_document
from support.data import make_blobs, make_group
from support.hostile import replace_file
from support.mutations import mutated

N_FEATURES = 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and a data set, not to be changed by a test."""
    folder = tmp_path_factory.mktemp("made")
    blobs = make_blobs(300, n_features=N_FEATURES, n_classes=3, seed=1)
    data = make_group(folder / "data.zarr", blobs.X, blobs.y, chunk_rows=50)
    settings = {"landmarks": 6, "n_leaves": 8, "products": 4, "keep_support_vectors": True}
    train(data, folder / "model", settings=settings)
    return folder


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "model", tmp_path / "model"))


def forge(model: Path, body: dict[str, Any] | None = None, **arrays: NDArray[Any]) -> None:
    """Change a model as somebody does who makes the digests anew."""
    told = read_json(model / MODEL_FILE)
    group = zarr.open_group(model / "arrays.zarr", mode="r")
    held = {name: np.asarray(group[name]) for name in told["model"]["arrays"]} | arrays
    shutil.rmtree(model / "arrays.zarr")
    model_artifact._write_arrays(str(model / "arrays.zarr"), held)
    told["model"] |= {"arrays": model_artifact._declared(held), **(body or {})}
    write_json(model / MODEL_FILE, {**told, "hash": digest_json(told["model"]), "self_test": {}})


def array_of(model: Path, name: str) -> NDArray[Any]:
    return np.array(zarr.open_group(model / "arrays.zarr", mode="r")[name])


# -- models --------------------------------------------------------------------------------------------------


def placed(at: Any, value: Any) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def change(array: NDArray[Any]) -> NDArray[Any]:
        array[at] = value
        return array

    return change


LEADS_ASTRAY: dict[str, tuple[str, Callable[[NDArray[Any]], NDArray[Any]], str]] = {
    "a child is its own parent": ("tree_children", placed(0, 0), "does not come after its parent"),
    "a node that is not there": ("tree_children", placed(0, 1000), "does not come after its parent"),
    "a leaf that is not there": ("tree_children", placed(-1, -1000), "other leaves"),
    "a node without centres": ("tree_starts", placed(1, 0), "nodes with 1 to 16 centres"),
    "starts that descend": ("tree_starts", placed(1, 10**6), "nodes with 1 to 16 centres"),
    "a centre at infinity": ("tree_centres", placed((0, 0), np.inf), "not finite"),
    "a landmark that is no number": ("landmarks", placed((0, 0), np.nan), "not finite"),
    "offsets that descend": ("landmark_at", placed(1, 10**6), "does not ascend"),
    "offsets before the array": ("landmark_at", placed(1, -5), "does not ascend"),
    "weights of another leaf": (
        "beta_at",
        lambda at: np.minimum(at + 1, at[-1]) * (at > 0),
        "output weights",
    ),
    "a product of a landmark that is not there": ("pairs", placed((0, 0), 6), "names a landmark"),
    "a product before the first landmark": ("pairs", placed((0, 1), -1), "names a landmark"),
    "a leaf of minus one row": ("leaf_rows", placed(0, -1), "leaf_rows"),
    "a negative γ": ("gamma", placed(0, -1.0), "gamma"),
}


@pytest.mark.parametrize("what", LEADS_ASTRAY)
def test_numbers_that_lead_compiled_code_astray_are_refused(model: Path, what: str) -> None:
    name, change, sentence = LEADS_ASTRAY[what]
    forge(model, **{name: change(array_of(model, name))})
    with pytest.raises(ModelFormatError, match=f"damaged or was altered: .*{sentence}"):
        read_model(model)


@pytest.mark.parametrize(
    "body",
    [
        {"task": "clustering"},
        {"classes": [0, 1, 2, 3, 4]},
        {"classes": [[0], [1], [2]]},
        {"classes": {}},
        {"kernel": {"name": "rbf", "gamma": -1.0, "degree": 2, "coef0": 1.0}},
        {"kernel": {"name": "rbf", "gamma": 1.0, "degree": 10**9, "coef0": 1.0}},
        {"kernel": {"name": "__import__", "gamma": 1.0, "degree": 2, "coef0": 1.0}},
        {"local_kernel": None},
        {"triangle_bound": "middle"},
        {"settings": []},
    ],
    ids=str,
)
def test_a_body_that_no_model_has_is_refused(model: Path, body: dict[str, Any]) -> None:
    forge(model, body)
    with pytest.raises(ModelFormatError, match="damaged or was altered"):
        read_model(model, support=True)


def test_half_of_the_reference_values_are_none(model: Path) -> None:
    told = read_json(model / MODEL_FILE)
    del told["model"]["arrays"]["feature_sd"]
    write_json(model / MODEL_FILE, {**told, "hash": digest_json(told["model"])})
    with pytest.raises(ModelFormatError, match=r"damaged or was altered.*feature_sd is not declared"):
        read_model(model)


def test_a_few_bytes_that_claim_more_than_the_memory(model: Path) -> None:
    told = read_json(model / MODEL_FILE)
    told["model"]["arrays"]["landmarks"]["shape"] = [2**40, N_FEATURES]
    write_json(model / MODEL_FILE, {**told, "hash": digest_json(told["model"])})
    with pytest.raises(ModelFormatError, match="more than a quarter of this machine's memory"):
        open_artifact(model)


def test_a_chunk_that_is_larger_than_its_array(model: Path) -> None:
    path = model / "arrays.zarr/landmarks/zarr.json"
    metadata = json.loads(path.read_text())
    metadata["chunk_grid"]["configuration"]["chunk_shape"] = [2**36, N_FEATURES]
    path.write_text(json.dumps(metadata))
    with pytest.raises(ModelFormatError, match="a chunk of array landmarks has shape"):
        read_model(model)


def test_a_check_that_is_taken_out_is_missed(model: Path) -> None:
    forge(model, landmarks=placed((0, 0), np.nan)(array_of(model, "landmarks")))
    with pytest.raises(ModelFormatError, match="not finite"):
        read_model(model)
    with mutated(model_checks, "check_arrays", "not np.isfinite(array).all()", "False"):
        assert np.isnan(read_model(model).landmarks[0, 0])


# -- codecs --------------------------------------------------------------------------------------------------


class Trap:
    """What runs code where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("codec", ["pickle", "msgpack2", "json2", "categorize"])
def test_a_codec_that_runs_code_is_refused(tmp_path: Path, codec: str) -> None:
    """Zarr knows texts by the first of their codecs, and takes what comes after it."""
    folder, sprung = tmp_path / "data.zarr" / "X", tmp_path / "sprung"
    folder.mkdir(parents=True)
    (tmp_path / "data.zarr/.zgroup").write_text('{"zarr_format": 2}')
    filters = [
        {"id": "vlen-utf8"},
        {"id": codec, **({"labels": [], "dtype": "|O"} if codec == "categorize" else {})},
    ]
    metadata = {
        **{
            "zarr_format": 2,
            "shape": [4, 2],
            "chunks": [4, 2],
            "dtype": "|O",
            "fill_value": "",
            "order": "C",
        },
        **{"compressor": None, "filters": filters},
    }
    (folder / ".zarray").write_text(json.dumps(metadata))
    (folder / "0.0").write_bytes(pickle.dumps(Trap(sprung)))
    assert zarr.open_array(folder, mode="r").shape == (4, 2)
    with pytest.raises(DataError, match=f"with the codec '{codec}', which dcpred does not trust"):
        open_array(folder)
    with pytest.raises(DataError, match="does not trust"):
        zarr_arrays.arrays_of(open_group(folder.parent))
    assert not sprung.exists()


BOMB = bytes(40 * 2**20)
BOMBS: dict[str, tuple[Any, Callable[[bytes], bytes]]] = {
    "zstd": (numcodecs.Zstd(), lambda data: bytes(Zstd(level=1).encode(data))),
    "blosc": (numcodecs.Blosc(), lambda data: bytes(numcodecs.Blosc().encode(data))),
    "lz4": (numcodecs.LZ4(), lambda data: bytes(numcodecs.LZ4().encode(data))),
    "gzip": (numcodecs.GZip(), lambda data: gzip.compress(data, 1)),
    "gzip, several members": (numcodecs.GZip(), lambda data: gzip.compress(data[: 2**20], 1) * 40),
    "zlib": (numcodecs.Zlib(), lambda data: zlib.compress(data, 1)),
    "bz2": (numcodecs.BZ2(), lambda data: bz2.compress(data, 1)),
    "lzma": (numcodecs.LZMA(), lambda data: lzma.compress(data, preset=0)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_chunk_that_unpacks_to_more_is_damage(tmp_path: Path, name: str) -> None:
    """And one that does not is read, by the same codec."""
    codec, pack = BOMBS[name]
    values = np.arange(40.0).reshape(20, 2)
    array = zarr.create_array(
        tmp_path / "X", shape=(20, 2), chunks=(10, 2), dtype="f8", compressors=codec, zarr_format=2
    )
    array[...] = values
    np.testing.assert_array_equal(zarr_arrays.read_rows(open_array(tmp_path / "X"), 0, 20), values)
    (tmp_path / "X/1.0").write_bytes(pack(BOMB))
    opened = open_array(tmp_path / "X")
    np.testing.assert_array_equal(zarr_arrays.read_rows(opened, 0, 10), values[:10])
    with pytest.raises(DamagedChunkError, match=r"unpacks to (more than )?[\d,]+ bytes"):
        zarr_arrays.read_rows(opened, 10, 20)


def test_compressors_within_shards_are_bounded_too(tmp_path: Path) -> None:
    values = np.arange(40.0).reshape(20, 2)
    compressor = zarr.codecs.GzipCodec()
    zarr.create_array(tmp_path / "X", data=values, chunks=(5, 2), shards=(20, 2), compressors=compressor)
    opened = open_array(tmp_path / "X")
    np.testing.assert_array_equal(zarr_arrays.read_rows(opened, 0, 20), values)
    (sharding,) = opened.metadata.codecs
    with pytest.raises(ValueError, match="unpacks to more than"):
        sharding.codecs[-1]._gzip_codec.decode(gzip.compress(BOMB, 1))


def test_a_frame_without_its_length_is_read(tmp_path: Path) -> None:
    """As streaming writers leave it."""
    values = np.arange(20.0).reshape(10, 2)
    zarr.create_array(tmp_path / "X", data=values, chunks=(10, 2), compressors=zarr.codecs.ZstdCodec())
    raw = values.tobytes()
    magic, block = b"\x28\xb5\x2f\xfd", (len(raw) << 3 | 1).to_bytes(3, "little")
    (tmp_path / "X/c/0/0").write_bytes(magic + b"\x00\x58" + block + raw)  # a window, and one raw block
    np.testing.assert_array_equal(zarr_arrays.read_rows(open_array(tmp_path / "X"), 0, 10), values)


# -- what is no file -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pipe", "zero", "directory", "holes", "loop"])
@pytest.mark.parametrize(
    "name", ["model/model.json", "model/arrays.zarr/landmarks/zarr.json", "data.zarr/X/c/2/0"]
)
def test_something_else_in_the_place_of_a_file(made: Path, tmp_path: Path, kind: str, name: str) -> None:
    for folder in ("model", "data.zarr"):
        shutil.copytree(made / folder, tmp_path / folder)
    replace_file(tmp_path / name, kind, random.Random(0))
    with pytest.raises((DcpredError, OSError)):
        score(tmp_path / "model", f"{tmp_path}/data.zarr/X", tmp_path / "out")


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"name": 300}},
        {"status": {"1": -300}},
        {"status": [300]},
        {"status": {"1": True}},
        {"sizes": {"label": 7}},
        {"sizes": {"label": ["7"]}},
        {"tags": {"label": [None]}},
        {"read_seconds": "1"},
        {"quarantined": 1},
        {"statistics": [1]},
    ],
    ids=str,
)
def test_a_record_with_a_checksum_of_its_own_is_none(
    made: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    score(made / "model", f"{made}/data.zarr/X", tmp_path / "out")
    ledger, file = open_ledger(tmp_path / "out"), tmp_path / "out/blocks/000000.json"
    assert read_record(ledger.run, 0) is not None
    told = read_json(file) | change
    told.pop("checksum")
    write_json(file, told | {"checksum": digest_json(told)})
    assert read_record(ledger.run, 0) is None
    assert errors(tmp_path / "out", 5).n_bad == 0


def test_numbers_that_json_has_not_are_damaged_metadata(made: Path, tmp_path: Path) -> None:
    """Zarr takes them."""
    score(made / "model", f"{made}/data.zarr/X", tmp_path / "out")
    file = tmp_path / "out/scores.zarr/label/zarr.json"
    told = file.read_text()
    file.write_text(told.replace('"attributes":', '"attributes": {"a": Infinity}, "other":', 1))
    assert file.read_text() != told
    found = verify(tmp_path / "out", "full").findings
    assert {(f.kind, f.sentence.partition(";")[0]) for f in found} == {(Kind.METADATA, "it cannot be read")}


def test_half_of_a_character_is_no_text(tmp_path: Path) -> None:
    """JSON can name it, and nobody can print it."""
    assert decoded(b'{"a": "\\ud83d\\ude00"}', "whole") == {"a": "😀"}
    for text in (b'{"a": "\\ud800"}', b'{"\\uDC00": 1}'):
        with pytest.raises(ValueError, match="half"):
            decoded(text, "half of it")
    group = zarr.open_group(tmp_path / "data.zarr", mode="w", attributes={"name": "\ud800"})
    group.create_array("X", data=np.ones((4, 2)))
    result = CliRunner().invoke(main, ["inspect", str(tmp_path / "data.zarr")])
    assert result.exit_code == 0, result.output


def test_a_document_that_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "plan.json")
    with pytest.raises(Exception, match="dcpred did not write it"):
        read_own_document(open_place(tmp_path), "plan.json")
    with (tmp_path / "long").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(NoDocumentError, match="more than"):
        read_plain(tmp_path / "long")


def test_a_lock_that_is_a_link_empties_nothing(tmp_path: Path) -> None:
    """The file that it leads to would be cut to no bytes, and signed."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/lock").symlink_to(tmp_path / "precious")
    with (
        pytest.raises(ResourceError, match="Remove what is there"),
        acquire_lock(open_place(tmp_path / "out")),
    ):
        pass
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_file_of_more_bytes_than_a_machine_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zarr_arrays, "LARGEST_FILE", 10_000)
    zarr.create_array(tmp_path / "X", data=np.ones((10, 2)), chunks=(10, 2), compressors=None)
    (tmp_path / "X/c/0/0").write_bytes(bytes(20_000))
    with pytest.raises(DamagedChunkError, match="quarter of this machine's memory"):
        zarr_arrays.read_rows(open_array(tmp_path / "X"), 0, 10)


# -- work in progress ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rows-0/counts.npy", "leaves/000000.npz"])
def test_work_in_progress_that_somebody_wrote(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With the checksums that belong to it. The first call tells what it did not expect as it is."""
    training = partial(train, made / "data.zarr", tmp_path / "model", settings={"n_leaves": 4})
    with monkeypatch.context() as patch:
        patch.delattr(steps, "write_model")
        with pytest.raises(NameError):
            training()
    (path,) = (tmp_path / "model.scratch").glob(name.replace("rows-0/", "rows-0/**/000000*/"))
    if path.suffix == ".npz":
        with np.load(path) as data:
            np.savez(path, **{**data, "gamma": np.ones(77)})
    else:
        np.save(path, np.load(path) + 1)
    with pytest.raises(PlanConflictError, match=r"model\.scratch: its files do not fit together"):
        training()
    shutil.rmtree(tmp_path / "model.scratch")
    assert training().n_rows == 300


# -- addresses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("tcp://127.0.0.1:x", "tcp://127.0.0.1:99999", "tcp://[::1", "tcp://hö:1"),
        *("tcp://127..0.1:9", f"tcp://{'a' * 64}.example:9", f"tls://{'a' * 64}:9"),
    ],
)
def test_an_address_of_a_scheduler_that_is_none(text: str) -> None:
    with pytest.raises(SchedulerError, match=r"is not an address\. Write it as"):
        secured(Scheduler(text))


@pytest.mark.parametrize("scheme", ["http", "s3", "ucx"])
def test_a_scheme_that_dask_cannot_reach(scheme: str) -> None:
    """A client of Dask that could not be made waits for 20 s when its process ends."""
    with pytest.raises(SchedulerError, match=f"cannot reach {scheme}://. Write it as"):
        secured(Scheduler(f"{scheme}://127.0.0.1:9"))
