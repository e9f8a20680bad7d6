"""The model on disk: it comes back bit for bit, or not at all."""

import copy
import errno
import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import xarray as xr
import zarr

from dcpred_tasks.artifacts import model_artifact, model_checks, model_layout
from dcpred_tasks.artifacts.model_artifact import VERSION, open_artifact, read_model, write_model
from dcpred_tasks.errors import DataError, ModelFormatError, ResourceError
from dcpred_tasks.model.compact_model import Model, score_rows
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.scoring.self_test import SelfTest, make_self_test
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.digests import digest, digest_json
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.settings import make_settings, settings_dict
from dcpred_tasks.training.survey import survey_rows, with_bins
from support.data import make_blobs
from support.models import random_model

SETTINGS = make_settings(
    {
        "n_leaves": 4,
        "landmarks": 5,
        "products": 6,
        "triangle": 3,
        "refine": False,
        "keep_support_vectors": True,
    }
)
ARRAYS = model_layout.ARRAYS
ROWS = make_blobs(300, n_features=4, n_classes=3, seed=0)


@pytest.fixture(scope="module")
def model() -> Model:
    survey = survey_rows(ROWS.X, ROWS.y, None, 0, "classification")
    model = train_rows(ROWS.X, ROWS.y, np.ones(300), np.empty(0), survey, SETTINGS, (0, 1, 2))
    return with_bins(model, ROWS.X, np.arange(300), survey, None, 0)


@pytest.fixture(scope="module")
def written(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed by a test: `copied` is."""
    path = tmp_path_factory.mktemp("artifact") / "model"
    write_model(path, model, settings_dict(SETTINGS), {"host": "here"})
    return path


@pytest.fixture
def copied(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copied"))


def check_equal(one: Any, other: Any) -> None:
    """The same values, bit for bit, of the same dtypes."""
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
    elif hasattr(one, "__dataclass_fields__"):
        for f in fields(one):
            check_equal(getattr(one, f.name), getattr(other, f.name))
    else:
        assert one == other
        assert type(one) is type(other)


def read_all(path: Path) -> Model:
    """Every array of a model."""
    open_artifact(path).self_test()
    return read_model(path, support=True)


def edit(path: Path, change: Callable[[dict[str, Any]], None], *, rehash: bool = False) -> None:
    file = path / "model.json"
    value = json.loads(file.read_text())
    change(value)
    if rehash:
        value["hash"] = digest_json(value["model"])
    file.write_text(json.dumps(value))


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]


# -- round trip ----------------------------------------------------------------------------------------------


def test_round_trip(model: Model, written: Path) -> None:
    check_equal(read_model(written, support=True), model)
    check_equal(open_artifact(written).support(), model.support)
    described = open_artifact(written)
    assert described.has_support
    assert described.provenance == {"host": "here"}
    assert described.body["settings"] == settings_dict(SETTINGS)


@pytest.mark.parametrize(
    "classes",
    [
        (0, 1, 2),
        (-1, 0, 2**62),
        (False, True, 2),
        ("a", "ü", "日本"),
        (0.1, 0.30000000000000004, 1e300),
        (0, 1.5, "x"),
    ],
    ids=str,
)
def test_classes_keep_their_values_and_types(model: Model, tmp_path: Path, classes: tuple[Any, ...]) -> None:
    write_model(tmp_path / "m", replace(model, classes=classes), {}, {})
    stored = read_model(tmp_path / "m").classes
    assert stored == classes
    assert [type(c) for c in stored] == [type(c) for c in classes]


def test_every_bit_of_a_number_is_kept(model: Model, tmp_path: Path) -> None:
    odd = np.array([0.0, -0.0, 5e-324, -1.7e308, 1 / 3])
    intercept = np.resize(odd, model.intercept.shape)
    kernel = Kernel("rbf", 0.1 + 0.2, 3, 5e-324)
    changed = replace(model, intercept=intercept, kernel=kernel)
    write_model(tmp_path / "m", changed, {}, {})
    check_equal(read_model(tmp_path / "m", support=True), changed)


def test_memory_order_does_not_matter(model: Model, written: Path, tmp_path: Path) -> None:
    changed = replace(model, landmarks=np.asfortranarray(model.landmarks))
    assert write_model(tmp_path / "m", changed, settings_dict(SETTINGS), {}) == open_artifact(written).hash
    check_equal(read_model(tmp_path / "m", support=True), model)


def test_a_model_of_constants_alone(tmp_path: Path) -> None:
    X, y = np.array([[0.0], [0.0]]), np.array([3.5, 3.5])
    settings = make_settings({"task": "regression", "keep_support_vectors": True})
    constant = train_rows(
        X, y, np.ones(2), np.empty(0), survey_rows(X, y, None, 0, "regression"), settings, ()
    )
    write_model(tmp_path / "m", constant, {}, {})
    stored = read_model(tmp_path / "m", support=True)
    check_equal(stored, constant)
    assert score_rows(stored, X)[0].tolist() == [[3.5], [3.5]]


def test_arrays_of_several_chunks(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_artifact, "CHUNK_BYTES", 64)
    write_model(tmp_path / "m", model, {}, {})
    assert len(list((tmp_path / "m" / "arrays.zarr" / "landmarks" / "c").iterdir())) > 1
    check_equal(read_model(tmp_path / "m", support=True), model)


def lacking_classes(seed: int, n_outputs: int = 12) -> Model:
    """A model whose leaves know few classes each; one of them has a weight of −0."""
    model = random_model(seed, n_outputs=n_outputs, depth=3)
    beta = np.array(model.beta)
    for leaf, (first, last) in enumerate(pairwise(model.beta_at)):
        beta[first:last, [k for k in range(n_outputs) if (k + leaf) % 4]] = 0.0
    beta[np.flatnonzero(np.diff(model.beta_at))[0] and model.beta_at[1], 1] = -0.0
    return replace(model, beta=beta)


def test_weights_of_classes_that_a_leaf_lacks_are_not_stored(tmp_path: Path) -> None:
    model = lacking_classes(1)
    write_model(tmp_path / "m", model, {}, {})
    found = read_model(tmp_path / "m")
    check_equal(found, model)
    X = np.random.default_rng(0).normal(size=(200, 3))
    for one, other in zip(score_rows(found, X), score_rows(model, X), strict=True):
        check_equal(one, other)
    document = json.loads((tmp_path / "m" / "model.json").read_text())
    stored = document["model"]["arrays"]
    assert document["version"] == 7
    assert "beta" not in stored
    assert stored["weights"]["shape"][0] < 0.4 * np.size(model.beta)
    assert found.beta.nbytes < 0.5 * np.asarray(found.beta).nbytes


def test_a_model_whose_leaves_know_all_classes_is_written_as_before(written: Path) -> None:
    document = json.loads((written / "model.json").read_text())
    assert document["version"] < 7
    assert not model_layout.PRESENT.keys() & document["model"]["arrays"].keys()


@pytest.mark.parametrize(
    ("name", "wrong", "told"),
    [
        ("outputs", lambda a: a - 1, "array outputs does not name"),
        ("outputs", lambda a: a + 12, "array outputs does not name"),
        ("outputs", lambda a: a[::-1], "array outputs does not name"),
        ("output_at", lambda a: a + 1, "array output_at does not ascend"),
        ("beta_at", lambda a: a[:-1], "array beta_at does not ascend"),
        ("beta_at", lambda a: a * 2**40, "array weights does not have one"),
        ("weights", lambda a: a[:-1], "array weights does not have one"),
    ],
)
def test_weights_that_fit_no_leaf_are_refused(name: str, wrong: Any, told: str) -> None:
    model = lacking_classes(1)
    arrays = model_layout.arrays_of(model)
    check_equal(model_layout.read_weights(arrays), model.beta)
    with pytest.raises(ValueError, match=told):
        model_layout.read_weights(arrays | {name: wrong(arrays[name])})


@pytest.mark.parametrize("make", [lacking_classes, lambda seed: random_model(seed, n_outputs=3)])
def test_what_is_written_can_be_read_and_what_cannot_be_read_is_not_written(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(1)
    size = sum(a.nbytes for a in model_layout.arrays_of(model).values())
    for module in (model_artifact, model_checks):
        monkeypatch.setattr(module, "LARGEST_MODEL", size)
    write_model(tmp_path / "fits", model, {}, {})
    check_equal(read_model(tmp_path / "fits"), replace(model, support=None))
    monkeypatch.setattr(model_artifact, "LARGEST_MODEL", size - 1)
    with pytest.raises(DataError, match="a quarter of the memory of this machine"):
        write_model(tmp_path / "too large", model, {}, {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["fits"]


def test_gamma_of_each_leaf_comes_back_for_early_prediction(tmp_path: Path) -> None:
    settings = make_settings(
        {"n_leaves": 4, "landmarks": 5, "gamma": "median", "overlap": 2, "keep_support_vectors": True}
    )
    survey = survey_rows(ROWS.X, ROWS.y, None, 0, "classification")
    model = train_rows(ROWS.X, ROWS.y, np.ones(300), np.empty(0), survey, settings, (0, 1, 2))
    assert model.support is not None
    assert len(set(model.support.gamma.tolist())) > 1
    write_model(tmp_path / "m", model, settings_dict(settings), {})
    stored = read_model(tmp_path / "m", support=True)
    check_equal(stored, model)
    for early in (False, True):
        np.testing.assert_array_equal(
            score_rows(stored, ROWS.X, early=early)[0], score_rows(model, ROWS.X, early=early)[0]
        )
    other = replace(model, support=replace(model.support, gamma=model.support.gamma * 2))
    assert not np.array_equal(
        score_rows(other, ROWS.X, early=True)[0], score_rows(model, ROWS.X, early=True)[0]
    )
    np.testing.assert_array_equal(score_rows(other, ROWS.X)[0], score_rows(model, ROWS.X)[0])


def with_leaf_factors(model: Model) -> Model:
    """The same with other factors in each leaf."""
    factor = np.random.default_rng(0).uniform(0.5, 2, (model.n_leaves, model.n_features))
    return replace(model, leaf_factor=factor.astype(np.float32))


def test_factors_of_leaves_come_back(model: Model, tmp_path: Path) -> None:
    """Only a model that has them is of version 3."""
    own = with_leaf_factors(model)
    for name, each, version in (("none", model, 2), ("own", own, 3)):
        write_model(tmp_path / name, each, {}, {})
        described = json.loads((tmp_path / name / "model.json").read_text())
        assert described["version"] == version
        assert ("leaf_factor" in described["model"]["arrays"]) == (version == 3)
        stored = read_model(tmp_path / name, support=True)
        check_equal(stored, each)
        np.testing.assert_array_equal(score_rows(stored, ROWS.X)[0], score_rows(each, ROWS.X)[0])
    assert not np.array_equal(score_rows(own, ROWS.X)[0], score_rows(model, ROWS.X)[0])


@pytest.mark.parametrize("shape", [(-1, 0), (0, -1), (0, 1)])
def test_factors_of_other_leaves_or_features_are_refused(
    model: Model, tmp_path: Path, shape: tuple[int, int]
) -> None:
    """Compiled code would read past their end."""
    rows, columns = model.n_leaves + shape[0], model.n_features + shape[1]
    other = replace(model, leaf_factor=np.ones((model.n_leaves, model.n_features), np.float32))
    write_model(tmp_path / "m", other, {}, {})
    wrong = np.ones((rows, columns), np.float32)
    group = zarr.open_group(tmp_path / "m" / "arrays.zarr", mode="r+")
    del group["leaf_factor"]
    zarr_arrays.create_array(group, "leaf_factor", wrong.shape, wrong.dtype, rows)[...] = wrong
    zarr_arrays.consolidate(group)

    def declare(value: dict[str, Any]) -> None:
        value["model"]["arrays"]["leaf_factor"] |= {"shape": list(wrong.shape), "digest": digest(wrong)}

    edit(tmp_path / "m", declare, rehash=True)
    with pytest.raises(ModelFormatError, match=r"leaf_factor has .* in|has .* where leaf_factor has"):
        read_model(tmp_path / "m")


def test_a_model_without_reference_and_self_test_is_read(copied: Path, model: Model) -> None:
    """What was written before there were any."""

    def older(value: dict[str, Any]) -> None:
        del value["self_test"]
        for name in model_artifact.REFERENCE:
            del value["model"]["arrays"][name]

    for name in model_artifact.REFERENCE | model_artifact.SELF_TEST:
        shutil.rmtree(copied / "arrays.zarr" / name)
    with pytest.raises(ModelFormatError, match="damaged or was altered"):
        read_model(copied)
    with pytest.raises(ModelFormatError, match="damaged or was altered"):
        open_artifact(copied).self_test()
    edit(copied, older, rehash=True)
    check_equal(read_model(copied, support=True), replace(model, reference=None))
    assert open_artifact(copied).self_test() is None


def test_the_self_test_comes_back(copied: Path, model: Model) -> None:
    check_equal(open_artifact(copied).self_test(), make_self_test(model))


# Arrays that the model of these tests has not.
ABSENT = (
    model_layout.CODING
    | model_layout.GAPS
    | model_layout.SYMLOG
    | model_layout.MAPS
    | model_layout.KNOTS
    | model_layout.TARGETS
    | model_layout.LEAF_MODELS
    | model_layout.INTERVALS
    | model_layout.QUANTILES
    | model_layout.SCALE
    | model_layout.PRESENT
    | {"calibration_weight": model_layout.CALIBRATION["calibration_weight"]}
)
BINNED = (*model_layout.BINS, *model_layout.RELATIONS)
SINCE_2 = tuple(name for name, array in ARRAYS.items() if array.since == 2)


def as_version_1(path: Path) -> None:
    """What the first release wrote: no γ but those of the two kernels, and settings of that time."""
    for name in SINCE_2:
        shutil.rmtree(path / "arrays.zarr" / name)

    def older(value: dict[str, Any]) -> None:
        value["version"] = 1
        for name in SINCE_2:
            del value["model"]["arrays"][name]
        for name in ("refine", "refine_steps", "refine_ridge", "distill_weight", "overlap"):
            del value["model"]["settings"][name]
        value["model"]["settings"]["gamma"] = 0.0

    edit(path, older, rehash=True)


def test_a_model_of_version_1_is_read(copied: Path, model: Model) -> None:
    """Its landmarks have γ of the kernel, and its local machines that of the local kernel."""
    assert ("gamma", "support_gamma", *BINNED) == SINCE_2
    as_version_1(copied)
    stored = read_model(copied, support=True)
    assert model.support is not None
    assert (stored.gamma == np.float32(model.kernel.gamma)).all()
    assert stored.gamma.shape == (len(model.landmarks),)
    assert stored.gamma.dtype == np.float32
    assert stored.support is not None
    assert stored.support.gamma.tolist() == [model.local_kernel.gamma] * model.n_leaves
    check_equal(
        replace(stored, gamma=model.gamma, support=None),
        replace(model, support=None, bins=None, relations=None),
    )
    for name in ("at", "vectors", "dual", "intercept"):
        check_equal(getattr(stored.support, name), getattr(model.support, name))
    for early in (False, True):  # trained by the way of the paper with one γ: the same scores
        np.testing.assert_array_equal(
            score_rows(stored, ROWS.X, early=early)[0], score_rows(model, ROWS.X, early=early)[0]
        )
    check_equal(open_artifact(copied).support(), stored.support)


@pytest.mark.parametrize("name", ["gamma", "support_gamma"])
def test_an_array_of_version_2_is_missed_there(copied: Path, name: str) -> None:
    """Only a model that never had it is read without."""
    shutil.rmtree(copied / "arrays.zarr" / name)
    with pytest.raises(ModelFormatError, match="damaged or was altered"):
        read_model(copied, support=True)


# -- the hash ------------------------------------------------------------------------------------------------


def test_equal_models_have_equal_hashes_wherever_they_come_from(
    model: Model, written: Path, tmp_path: Path
) -> None:
    returned = write_model(tmp_path / "again", model, settings_dict(SETTINGS), {"host": "there", "date": 7})
    assert returned == open_artifact(tmp_path / "again").hash == open_artifact(written).hash


@pytest.mark.parametrize(
    "name",
    [
        f.name
        for f in fields(Model)
        if f.name
        not in ("task", "classes", "support", "tree", "scaling", "triangle_bound", "reference", "leaf_models")
        and f.name
        not in ("uncertainty", "background", "parts")  # test_sure_artifact.py, test_contributions.py
        and f.name
        not in ("bins", "relations", "target", "terms")  # below, test_target_transform.py, test_terms.py
    ],
)
def test_the_hash_covers_everything(
    model: Model, written: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = SelfTest(*(np.zeros((0, n)) for n in (model.n_features, model.n_outputs)), np.zeros(0))
    # some of these changes make a model that cannot score
    monkeypatch.setattr(model_artifact, "make_self_test", lambda _: test)
    value = getattr(model, name)
    if isinstance(value, Kernel):
        changed = replace(value, gamma=float(np.nextafter(value.gamma, 9)))
    else:
        value = np.array(value)
        changed = value if value.size else np.ones((len(value), 2), value.dtype)
        changed.flat[-1] = changed.flat[-1] + 1
    other = write_model(tmp_path / "m", replace(model, **{name: changed}), settings_dict(SETTINGS), {})
    assert other != open_artifact(written).hash


def test_the_hash_covers_the_rest(model: Model, tmp_path: Path) -> None:
    assert model.support is not None
    assert model.reference is not None
    assert model.bins is not None
    variants = [
        (model, {}),
        (model, {"C": 2}),
        (replace(model, classes=(0, 1, 3)), {}),
        (replace(model, task="regression"), {}),
        (replace(model, triangle_bound="upper"), {}),
        (replace(model, support=None), {}),
        (replace(model, support=replace(model.support, dual=-model.support.dual)), {}),
        (replace(model, tree=replace(model.tree, centres=-model.tree.centres)), {}),
        (replace(model, scaling=replace(model.scaling, shift=-model.scaling.shift)), {}),
        (replace(model, bins=None), {}),
        (replace(model, bins=replace(model.bins, edge=model.bins.edge + 1)), {}),
        (replace(model, bins=replace(model.bins, rows=model.bins.rows + 1)), {}),
        (replace(model, relations=None), {}),
        (replace(model, reference=None), {}),
        (replace(model, reference=replace(model.reference, mean=-model.reference.mean)), {}),
        (replace(model, reference=replace(model.reference, sd=2 * model.reference.sd)), {}),
    ]
    hashes = {write_model(tmp_path / str(i), m, s, {}) for i, (m, s) in enumerate(variants)}
    assert len(hashes) == len(variants)


# -- support vectors -----------------------------------------------------------------------------------------


def test_support_vectors_are_read_only_when_asked_for(copied: Path, model: Model) -> None:
    for name in model_artifact.SUPPORT:
        shutil.rmtree(copied / "arrays.zarr" / name)
    check_equal(read_model(copied), replace(model, support=None))
    with pytest.raises(ModelFormatError, match="damaged or was altered"):
        read_model(copied, support=True)


def test_a_model_without_support_vectors_says_so(model: Model, tmp_path: Path) -> None:
    write_model(tmp_path / "m", replace(model, support=None), {}, {})
    assert not open_artifact(tmp_path / "m").has_support
    assert read_model(tmp_path / "m").support is None
    for read in (lambda p: read_model(p, support=True), lambda p: open_artifact(p).support()):
        with pytest.raises(DataError, match=r"without its support vectors. Train it again"):
            read(tmp_path / "m")


# -- damage --------------------------------------------------------------------------------------------------


def test_a_flipped_bit_in_any_chunk_is_found(copied: Path) -> None:
    chunks = [f for f in copied.rglob("*") if f.is_file() and f.name not in ("zarr.json", "model.json")]
    assert len(chunks) == len(ARRAYS) - len(ABSENT) - 2  # nor bounds, nor factors of leaves
    for number, file in enumerate(chunks):
        data = file.read_bytes()
        places = (0, len(data) // 2, len(data) - 5, len(data) - 1)  # in turn: a checksum covers all of them
        at = places[number % len(places)]
        for wrong in (flipped(data, at, bit=at % 8), data[: (number % 2) * (len(data) - 1)]):
            file.write_bytes(wrong)
            with pytest.raises(ModelFormatError, match="damaged or was altered"):
                read_all(copied)
        file.write_bytes(data)
    read_all(copied)


def test_a_changed_byte_in_array_metadata_is_found_or_harmless(copied: Path, model: Model) -> None:
    """Layout, attributes, the fill value that nothing reads: a change there may give the same model, never
    another.
    """
    files = sorted(copied.rglob("zarr.json"))
    # That of the group, and one for each array but factors of leaves, and what is absent.
    assert len(files) == len(ARRAYS) - len(ABSENT)
    rng, found = np.random.default_rng(0), 0
    for file in files:
        data = file.read_bytes()
        for at in rng.integers(0, len(data), 3):
            file.write_bytes(flipped(data, int(at), bit=int(rng.integers(0, 8))))
            try:
                check_equal(read_model(copied, support=True), model)
            except ModelFormatError:
                found += 1
        file.write_bytes(data)
    assert found > len(files)


@pytest.mark.parametrize("bit", [0, *(pytest.param(bit, marks=pytest.mark.long) for bit in (4, 7))])
def test_a_changed_byte_in_model_json_is_found_or_harmless(copied: Path, bit: int) -> None:
    """Every byte in turn. Harmless: white space, the provenance, and a version below the one that is read."""
    file = copied / "model.json"
    data, before = file.read_bytes(), open_artifact(copied)
    free = data.index(b'"provenance"')
    passed = []
    for at in range(len(data)):
        file.write_bytes(flipped(data, at, bit))
        try:
            described = open_artifact(copied)
        except ModelFormatError:
            continue
        assert (described.hash, described.body) == (before.hash, before.body), f"byte {at} of model.json"
        passed.append(at)
    version = data.index(b'"version": 2') + len(b'"version": ')
    assert all(data[at : at + 1].isspace() or at >= free or at == version for at in passed)


@pytest.mark.parametrize("keep", [0, 1, 0.3, 0.9, -3])
def test_truncated_json(copied: Path, keep: float) -> None:
    file = copied / "model.json"
    data = file.read_bytes()
    file.write_bytes(data[: int(keep * len(data)) if 0 < keep < 1 else int(keep)])
    with pytest.raises(ModelFormatError, match=r"model.json is not valid JSON. Copy it again"):
        read_model(copied)


@pytest.mark.parametrize("number", ["1e999", "NaN", "-Infinity"])
def test_a_number_that_is_none_is_damage(copied: Path, number: str) -> None:
    file = copied / "model.json"
    gamma = json.loads(file.read_text())["model"]["kernel"]["gamma"]
    file.write_text(file.read_text().replace(f'"gamma": {gamma}', f'"gamma": {number}'))
    with pytest.raises(ModelFormatError, match="damaged or was altered"):
        read_model(copied)


@pytest.mark.parametrize("text", ["[]", "3", "null", '"model"'])
def test_json_that_is_no_object(copied: Path, text: str) -> None:
    (copied / "model.json").write_text(text)
    with pytest.raises(ModelFormatError):
        read_model(copied)


def test_every_missing_file_is_found(copied: Path, model: Model) -> None:
    """A chunk that is gone reads as zeros, which the digest tells from the real values."""
    harmless = []
    for file in [f for f in copied.rglob("*") if f.is_file()]:
        data = file.read_bytes()
        file.unlink()
        try:
            check_equal(read_all(copied), model)
            harmless.append(file.relative_to(copied))
        except ModelFormatError:
            pass
        file.write_bytes(data)
    assert harmless == []


def test_chunks_that_were_exchanged_are_found(copied: Path) -> None:
    """Both are valid Zarr of the same shape and dtype."""
    a, b = (copied / "arrays.zarr" / name for name in ("intercept", "support_intercept"))
    a.rename(copied / "x")
    b.rename(a)
    (copied / "x").rename(b)
    with pytest.raises(ModelFormatError, match=r"array intercept does not match its digest"):
        read_model(copied)


@pytest.mark.parametrize("dtype", ["float64", "int32", ">f4"])
def test_a_wrong_dtype_is_refused_even_with_a_matching_hash(copied: Path, model: Model, dtype: str) -> None:
    group = zarr.open_group(copied / "arrays.zarr", mode="r+", use_consolidated=False)
    wrong = np.asarray(model.beta).astype(dtype)
    del group["beta"]
    zarr_arrays.create_array(group, "beta", wrong.shape, wrong.dtype, len(wrong))[...] = wrong

    def declare(value: dict[str, Any]) -> None:
        value["model"]["arrays"]["beta"] |= {
            "dtype": wrong.dtype.name,
            "digest": model_artifact.digest(wrong),
        }

    edit(copied, declare, rehash=True)
    if dtype == ">f4":  # the same values in another byte order are the same array
        check_equal(read_model(copied, support=True).beta, model.beta)
    else:
        with pytest.raises(ModelFormatError, match=rf"array beta is {dtype}"):
            read_model(copied)


def test_a_wrong_shape_is_refused_even_with_a_matching_hash(copied: Path) -> None:
    edit(copied, lambda value: value["model"]["arrays"]["beta"].update(shape=[1, 1]), rehash=True)
    with pytest.raises(ModelFormatError, match=r"array beta is float32 .*, not float32 \[1, 1\]"):
        read_model(copied)


def test_an_array_that_is_not_declared_is_missed(copied: Path) -> None:
    edit(copied, lambda value: value["model"]["arrays"].pop("beta"), rehash=True)
    with pytest.raises(ModelFormatError, match="beta is not declared"):
        read_model(copied)


# -- not a model ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [VERSION + 1, 99, "1", None, 1.5])
def test_a_newer_version_is_refused(copied: Path, version: object) -> None:
    edit(copied, lambda value: value.update(version=version))
    with pytest.raises(
        ModelFormatError,
        match=rf"format version {version}, .*reads versions up to {VERSION}. Install a newer",
    ):
        read_model(copied)


def test_another_format_is_refused(copied: Path) -> None:
    edit(copied, lambda value: value.update(format="onnx"))
    with pytest.raises(ModelFormatError, match="not of a dcpred-model"):
        read_model(copied)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name, so in (
        ("nowhere", "does not exist"),
        ("file", "holds no model.json"),
        ("empty", "holds no model.json"),
    ):
        with pytest.raises(ModelFormatError, match=rf"open a model at .*{name}: it {so}. Train one with"):
            read_model(tmp_path / name)


# -- writing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "directory", "model"])
def test_an_existing_target_is_refused_and_left_alone(
    model: Model, copied: Path, tmp_path: Path, kind: str
) -> None:
    path = copied if kind == "model" else tmp_path / "taken"
    if kind == "file":
        path.write_text("mine")
    elif kind == "directory":
        path.mkdir()
        (path / "notes").write_text("mine")
    before = {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}
    with pytest.raises(DataError, match="it already exists"):
        write_model(path, replace(model, classes=("other",)), {}, {})
    assert {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()} == before


def test_a_full_disk_leaves_nothing(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(model_artifact, "write_json", full)  # the last file of all
    with pytest.raises(ResourceError, match="No space left"):
        write_model(tmp_path / "m", model, {}, {})
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_for_values_that_json_does_not_have(model: Model, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_model(tmp_path / "m", model, {"gamma": float("nan")}, {})
    with pytest.raises(ValueError, match="JSON"):
        write_model(tmp_path / "m", model, {}, {"score": float("inf")})
    assert list(tmp_path.iterdir()) == []


def test_no_pickle_anywhere(written: Path, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading unpickles nothing, and no file is a pickle (which start with 0x80 since protocol 2)."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a pickle was read")

    for name in ("load", "loads", "Unpickler", "_Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    check_equal(read_model(written, support=True), model)
    names = {f.name for f in written.rglob("*") if f.is_file()}
    assert names <= {"model.json", "zarr.json", "0"}
    for file in written.rglob("*"):
        assert not (file.is_file() and file.read_bytes()[:1] == b"\x80")
    assert not any(
        codec in f.read_text() for f in written.rglob("zarr.json") for codec in ("pickle", "object")
    )


# -- coded features ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    rng = np.random.default_rng(0)
    X = np.column_stack([ROWS.X[:, :3], rng.integers(3, 7, len(ROWS.X))])
    survey = survey_rows(X, ROWS.y, None, 0, "classification")
    asked = replace(SETTINGS, categorical="3")
    own = train_rows(X, ROWS.y, np.ones(300), np.empty(0), survey, asked, (0, 1, 2))
    path = tmp_path_factory.mktemp("coded") / "model"
    write_model(path, own, settings_dict(asked), {})
    return path, own


def test_a_model_with_coded_features(coded: tuple[Path, Model], written: Path) -> None:
    path, own = coded
    assert (own.n_features, own.n_columns) == (4, 6)
    check_equal(read_model(path, support=True), own)
    assert len(open_artifact(path).self_test().rows) > 0  # type: ignore[union-attr]
    assert [json.loads((p / "model.json").read_text())["version"] for p in (path, written)] == [3, 2]
    shapes = {name: array.dims for name, array in xr.open_zarr(path / "arrays.zarr").items()}
    assert shapes["landmarks"] == ("landmark", "column")
    assert shapes["feature_mean"] == ("feature",)


def test_a_coding_that_is_none_is_refused(coded: tuple[Path, Model], tmp_path: Path) -> None:
    """Compiled code looks up codes in a table that the coding tells the size of."""
    wrong = tmp_path / "wrong"
    broken = copy.deepcopy(coded[1])
    assert broken.scaling.coding is not None
    broken.scaling.coding.code[3:] = [9, 8, 7]
    with mock.patch.object(model_artifact, "make_self_test", return_value=make_self_test(coded[1])):
        write_model(wrong, broken, {}, {})
    with pytest.raises(ModelFormatError, match=r"its arrays of features are damaged.*Copy it again"):
        read_model(wrong)
