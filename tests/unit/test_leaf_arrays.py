"""What every array of a leaf promises, whoever adds it: drawn from the table, through assembling, writing,
reading and outlining.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import pytest
import zarr

from dcpred_tasks.artifacts import model_artifact, model_layout
from dcpred_tasks.artifacts.model_artifact import read_model, write_model
from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, FloatArray
from dcpred_tasks.errors import ModelFormatError
from dcpred_tasks.model.compact_model import LeafModels, Model, Support
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.leaf_arrays import (
    LEAF,
    SIZES,
    Background,
    Line,
    check_arrays,
    join_leaves,
    model_arrays,
    outlined,
    table,
)
from dcpred_tasks.model.uncertainty import Novelty, Scale
from dcpred_tasks.scoring.self_test import SelfTest
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.digests import digest, digest_json
from dcpred_tasks.training.leaf import FittedLeaf, Kernels, fit_leaf
from dcpred_tasks.training.partition import assemble
from dcpred_tasks.training.settings import make_settings
from support.models import random_model

HOLDERS = {"": Model, "support_": Support}
LINES = {prefix + name: line for prefix, holder in HOLDERS.items() for name, line in table(holder).items()}
STORED = {
    name: array for prefix, holder in HOLDERS.items() for name, array in model_arrays(holder, prefix).items()
}
each_line = pytest.mark.parametrize("name", LINES)
each_array = pytest.mark.parametrize("name", STORED)
SETTINGS = make_settings({"keep_support_vectors": True})
N_LEAVES, COMMON = 5, {"feature": 3, "output": 3, "bound": 2, "of_product": 2}
RBF = Kernel("rbf", 0.5)


def leaf_sizes(leaf: int) -> dict[str, int]:
    """The sizes of a leaf; leaf 2 has nothing in any of them, as a constant one."""
    names = sorted({line.dimensions[0] for line in LINES.values()} - {LEAF})
    return COMMON | {name: 0 if leaf == 2 else 2 + leaf + number for number, name in enumerate(names)}


def random_leaf(leaf: int) -> FittedLeaf:
    """Every array of a leaf, by what the table says of it."""
    rng, sizes = np.random.default_rng(leaf), leaf_sizes(leaf)
    arrays: dict[str, Any] = {}
    for line in LINES.values():
        shape = tuple(sizes[d] for d in line.dimensions if d != LEAF)
        value = rng.integers(0, 2, shape) if np.dtype(line.dtype).kind == "i" else rng.normal(size=shape)
        arrays[line.in_leaf] = (
            np.sort(value, axis=-1).astype(line.dtype) if shape else value.astype(line.dtype)
        )
    return FittedLeaf(**arrays)


LEAVES = [random_leaf(leaf) for leaf in range(N_LEAVES)]


@pytest.fixture(scope="module")
def model() -> Model:
    start = random_model(0, d=3, depth=1, n_outputs=3)
    tree = replace(
        start.tree,
        starts=np.array([0, N_LEAVES]),
        children=~np.arange(N_LEAVES, dtype=np.int32),
        centres=np.random.default_rng(0).normal(size=(N_LEAVES, 3)).astype(np.float32),
    )
    rows = np.arange(1, N_LEAVES + 1)
    return assemble(LEAVES, rows, tree, start.scaling, Kernels(RBF, RBF), (0, 1, 2), SETTINGS)


@pytest.fixture(scope="module")
def written(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("leaf_arrays") / "model"
    with pytest.MonkeyPatch.context() as patch:  # sizes are at random, so that nothing can be scored
        patch.setattr(
            model_artifact,
            "make_self_test",
            lambda _: SelfTest(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0)),
        )
        write_model(path, model, {}, {})
    return path


@pytest.fixture
def copied(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copied"))


def held(model: Model, name: str) -> np.ndarray:
    """An array of a model by its name on disk."""
    is_support = name.startswith("support_")
    holder = model.support if is_support else model
    return np.asarray(getattr(holder, name.removeprefix("support_")))


def alter(path: Path, name: str, value: np.ndarray) -> None:
    """Put another array there, with declaration, digest and hash as they then are."""
    group = zarr.open_group(path / "arrays.zarr", mode="r+", use_consolidated=False)
    del group[name]
    zarr_arrays.create_array(group, name, value.shape, value.dtype, len(value))[...] = value
    declare(
        path,
        name,
        lambda told: told.update(
            shape=list(value.shape), dtype=value.dtype.name, digest=digest(np.ascontiguousarray(value))
        ),
    )


def declare(path: Path, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    value = json.loads((path / "model.json").read_text())
    change(value["model"]["arrays"][name])
    value["hash"] = digest_json(value["model"])
    (path / "model.json").write_text(json.dumps(value))


def refuses(path: Path, sentence: str) -> None:
    with pytest.raises(ModelFormatError, match=f"damaged or was altered: .*{sentence}.*Copy it again"):
        read_model(path, support=True)


def test_a_leaf_and_a_model_hold_what_the_table_says() -> None:
    others = {
        line.in_leaf for holder in (LeafModels, Novelty, Scale, Background) for line in table(holder).values()
    }
    others |= {"own_residual"}  # Intervals has sizes that all leaves make together.
    assert {line.in_leaf for line in LINES.values()} | others == {f.name for f in fields(FittedLeaf)}
    for holder in HOLDERS.values():
        assert set(model_arrays(holder)) <= {f.name for f in fields(holder)}
    assert len({line.in_leaf for line in LINES.values()}) == len(LINES)
    assert set(STORED) <= set(model_layout.ARRAYS)


@each_line
def test_the_array_of_a_model_is_that_of_its_leaves(name: str, model: Model) -> None:
    line, array = LINES[name], held(model, name)
    assert array.dtype == line.dtype
    for number, leaf in enumerate(LEAVES):
        own = getattr(leaf, line.in_leaf)
        if line.offsets:
            at = held(model, STORED[name].offsets)
            assert at.dtype == INDEX_DTYPE
            assert len(at) == N_LEAVES + 1
            found = array[at[number] : at[number + 1]]
        else:
            found = array[number]
        np.testing.assert_array_equal(found.reshape(own.shape), own)
    assert array.ndim == len(STORED[name].dimensions)


@each_array
def test_it_comes_back_from_disk(
    name: str, model: Model, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_artifact, "check_model", lambda _: None)  # the values are at random, too
    right, found = held(model, name), held(read_model(written, support=True), name)
    assert found.dtype == right.dtype == STORED[name].dtype
    assert found.tobytes() == right.tobytes()
    assert found.shape == right.shape
    stored: Any = zarr.open_group(written / "arrays.zarr", mode="r")[name]
    assert stored.metadata.dimension_names == STORED[name].dimensions


@each_array
def test_damage_is_found(name: str, copied: Path) -> None:
    chunk = next(file for file in (copied / "arrays.zarr" / name / "c").rglob("*") if file.is_file())
    data = chunk.read_bytes()
    chunk.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    refuses(copied, "cannot be read")
    chunk.unlink()
    refuses(copied, f"array {name} does not match its digest")
    shutil.rmtree(copied / "arrays.zarr" / name)
    refuses(copied, name)


@each_array
def test_another_dtype_is_refused(name: str, model: Model, copied: Path) -> None:
    value = held(model, name)
    other = np.dtype(np.float64 if value.dtype == np.float32 else np.float32)
    alter(copied, name, value.astype(other))
    refuses(copied, rf"array {name} is {other.name} .*, not {value.dtype.name}")


@each_array
def test_another_declaration_is_refused(name: str, model: Model, copied: Path) -> None:
    shape = list(held(model, name).shape)
    declare(copied, name, lambda told: told.update(shape=[1, *shape]))
    refuses(copied, rf"array {name} is .*, not {held(model, name).dtype.name} \[1, ")


@each_array
def test_another_number_of_rows_is_refused(name: str, model: Model, copied: Path) -> None:
    """Though declaration, digest and hash go with it."""
    alter(copied, name, held(model, name)[:-1])
    refuses(copied, r"array \w+ has \d+ (rows, but|in \w+, where) \w+ (ends with|has) \d+")


@each_array
def test_another_number_of_dimensions_is_refused(name: str, model: Model, copied: Path) -> None:
    alter(copied, name, held(model, name)[..., None])
    refuses(copied, rf"array {name} has shape .*, not \({', '.join(STORED[name].dimensions)}\)")


@each_line
def test_an_outline_has_its_shape(name: str) -> None:
    line = LINES[name]
    holder = HOLDERS["support_" if name.startswith("support_") else ""]
    rows = {line.dimensions[0]: 7} if line.offsets else {}
    arrays = outlined(holder, N_LEAVES, rows, COMMON)
    assert set(arrays) == set(model_arrays(holder))
    own = arrays[name.removeprefix("support_")]
    assert own.dtype == line.dtype
    assert own.ndim == len(STORED[name].dimensions)
    if line.offsets:
        assert arrays[line.offsets].tolist() == [7 * leaf for leaf in range(N_LEAVES + 1)]
        assert arrays[line.offsets].dtype == INDEX_DTYPE
        assert len(own) == 0
    else:
        assert len(own) == N_LEAVES
    if not line.flat:
        assert list(own.shape[1:]) == [COMMON[d] for d in line.dimensions[1:]]


@each_line
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_constant_leaf_has_it(name: str, task: str) -> None:
    line = LINES[name]
    settings = replace(SETTINGS, task=task, leaf_scaling=name == "leaf_factor")
    target = np.full(4, 1.5) if task == "regression" else np.zeros(4, np.int64)
    X = np.ones((4, 3), np.float32)
    leaf = fit_leaf(X, target, np.ones(4), 1, Kernels(RBF, RBF), settings, 0)
    sizes: Mapping[str, int] = SIZES | {"feature": 3, "output": 1, "bound": 2 if task == "regression" else 0}
    value = getattr(leaf, line.in_leaf)
    assert value.dtype == line.dtype
    if line.offsets:
        assert value.shape == (0, *(sizes.get(d, 0) for d in line.dimensions[1:]))
    else:
        assert value.size == np.prod([sizes[d] for d in line.dimensions[1:]], dtype=int)
    joined = join_leaves(HOLDERS["support_" if name.startswith("support_") else ""], [leaf, leaf])
    assert joined[name.removeprefix("support_")].ndim == len(STORED[name].dimensions)


class Added(Model):
    """A model with one array more."""

    extra: Annotated[Any, Line(np.float32, ("spot", "feature"), offsets="spot_at")]


def test_a_line_that_is_added_goes_all_the_way() -> None:
    """Nothing else is needed for it to be joined, declared and outlined."""
    parts = [SimpleNamespace(**vars(LEAVES[0]), extra=np.full((n, 3), n, np.float32)) for n in (1, 0, 3)]
    joined = join_leaves(Added, parts)
    assert joined["spot_at"].tolist() == [0, 1, 1, 4]
    assert joined["extra"][:, 0].tolist() == [1, 3, 3, 3]
    assert model_arrays(Added)["extra"].dimensions == ("spot", "feature")
    assert outlined(Added, 2, {"spot": 4}, COMMON)["spot_at"].tolist() == [0, 4, 8]


@dataclass
class Shares:
    share: Annotated[FloatArray, Line(ACC_DTYPE, (LEAF, "level"), values="(0, 1]", order="<")]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (0.0, r"array x_share holds a value outside \(0, 1\]"),
        (1.5, r"array x_share holds a value outside \(0, 1\]"),
        (0.7, "array x_share holds a value that is not < the next one"),
        (np.nan, "array x_share holds a value that is not finite"),
    ],
)
def test_values_are_as_declared(wrong: float, sentence: str) -> None:
    shares = np.array([[0.2, 0.7, 1.0], [5e-324, 0.5, 0.9]])
    check_arrays("x_", Shares(shares), {"leaf": 2})
    shares[0, 0] = wrong
    with pytest.raises(ValueError, match=sentence):
        check_arrays("x_", Shares(shares), {"leaf": 2})
