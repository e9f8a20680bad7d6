"""A model in a file or folder: writing, and checked reading."""

import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.artifacts.model_checks import (
    LARGEST_LAYOUT,
    LARGEST_MODEL,
    check_body,
    check_declared,
    check_model,
    check_stored,
    check_support,
)
from dcpred_tasks.artifacts.model_layout import (
    BACKGROUND,
    BINS,
    COMPACT,
    LEAF_MODELS,
    OF_ROWS,
    PRESENT,
    REFERENCE,
    RELATIONS,
    SELF_TEST,
    SUPPORT,
    arrays_of,
    check_sizes,
    declared_array,
    named_dimensions,
    of_terms,
    part_of,
    parts_of_table,
    read_model_schema,
    read_weights,
    schema_documents,
    uncertainty_of,
    wanted_of_uncertainty,
)
from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE
from dcpred_tasks.engine.layout import laid_out_bytes
from dcpred_tasks.errors import DataError, ModelFormatError, ResourceError
from dcpred_tasks.model.bins import Bins
from dcpred_tasks.model.compact_model import LeafModels, Model, Reference, Support
from dcpred_tasks.model.feature_map import Knots
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.leaf_arrays import (
    Background,
    ModelArray,
    Parts,
    from_held,
    held_arrays,
    model_arrays,
)
from dcpred_tasks.model.relations import Relations
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.target_transform import NO_TRANSFORM, TargetTransform
from dcpred_tasks.model.terms import read_terms
from dcpred_tasks.model.tree import read_router
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.scoring.self_test import SelfTest, make_self_test
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import below, current_options, path_on_disk
from dcpred_tasks.storage.atomic_files import encoded, is_free, new_directory, write_json
from dcpred_tasks.storage.digests import digest, digest_json
from dcpred_tasks.storage.once import MODEL, forget, once
from dcpred_tasks.storage.place import open_place, read_document, read_own_document
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.storage.probes import PROBE
from dcpred_tasks.storage.store_requests import StoreError, at_once


def read_arrays(
    path: str, address: str, declared: Mapping[str, Any], wanted: Mapping[str, ModelArray]
) -> dict[str, NDArray[Any]]:
    """The wanted arrays at `address`, of the model at `path`. Raises ModelFormatError."""
    try:
        group, names = zarr_arrays.open_stored_group(address), _in(declared, wanted)
        calls = [
            partial(_read_array, path, group, name, declared[name], np.dtype(wanted[name].dtype))
            for name in names
        ]
        values = at_once(calls, address) if path_on_disk(address) is None else [call() for call in calls]
        arrays = dict(zip(names, values, strict=True))
    except (ModelFormatError, ResourceError, StoreError):
        raise
    except Exception as error:  # a damaged chunk can raise anything from the codec pipeline
        raise altered(path, f"its arrays cannot be read ({type(error).__name__}: {error})") from None
    with checked(path):
        check_sizes(arrays)
    return arrays


def _in(declared: Mapping[str, Any], wanted: Iterable[str]) -> list[str]:
    names = list(wanted)
    absent = [name for name in names if name not in declared]
    if absent:
        raise KeyError(f"array {absent[0]} is not declared")
    return names


def _read_array(
    path: str, group: Any, name: str, declared: Mapping[str, Any], dtype: np.dtype[Any]
) -> NDArray[Any]:
    stored = zarr_arrays.member(group, name)
    check_stored(name, stored.shape, stored.chunks)
    shape, of = list(stored.shape), np.dtype(stored.dtype).name
    if shape != declared["shape"] or of != declared["dtype"] or of != dtype.name:
        raise altered(path, f"array {name} is {of} {shape}, not {dtype.name} {declared['shape']}")
    value = np.asarray(stored[...])
    if digest(value) != declared["digest"]:
        raise altered(path, f"array {name} does not match its digest")
    return value


@contextmanager
def checked(path: str) -> Iterator[None]:
    """A ValueError inside becomes the ModelFormatError of the model at `path`."""
    try:
        yield
    except ValueError as error:
        raise altered(path, str(error)) from None


def altered(path: str, how: str) -> ModelFormatError:
    return ModelFormatError(
        f"Cannot use the model at {path}: it is damaged or was altered: {how}. Copy it again from its source"
        " or train it again."
    )


FORMAT = "dcpred-model"
# Version 1 has no γ of each landmark: all have that of the kernel. Version 3 adds ARD scales of leaves or
# one-hot encoded features, 4 baselines, 5 missing values or a schema that encodes features, 6 features on a
# logarithmic scale, 7 leaves without output weights of classes that they lack, or target encoding, 8 mapped
# features, 9 intervals whose widths follow the prediction, or class weights, 10 a transform of the target, 11
# additive maps, 12 trees. A model is written in the first version that has all its features, at least in 2.
VERSION = 12
CHUNK_BYTES = 8 * 2**20
MODEL_FILE, ARRAYS_GROUP = "model.json", "arrays.zarr"
# The group of a model on an object store.
STORE_GROUP = re.compile(r"arrays-[0-9a-f]{12}\.zarr")


IfTaken = Literal["refuse", "keep", "replace"]


@dataclass(frozen=True)
class Artifact:
    """An opened model on disk: its model.json, read and checked once. Arrays are read and checked on request.

    hash        covers `body`, and so every array that it declares
    body        what the model is: task, classes, kernels, settings, arrays
    provenance  where it came from
    declared    arrays of the self-test, in the form of body["arrays"]; empty for a model without
    path        its address
    group       address of the Zarr group named in model.json
    """

    path: str
    hash: str
    body: Mapping[str, Any]
    provenance: Mapping[str, Any]
    declared: Mapping[str, Any]
    group: str

    @property
    def has_support(self) -> bool:
        return "support_at" in self.body["arrays"]

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the features that the model was trained on, None where the data had none."""
        # No hash covers the provenance: it may hold anything.
        names = self.provenance.get("feature_names") if isinstance(self.provenance, dict) else None
        return tuple(str(name) for name in names) if isinstance(names, list) else None

    @property
    def schema(self) -> Schema | None:
        """The schema of the training data, None where the data had none."""
        return read_model_schema(self.body, self.provenance, self.path)

    def model(self, *, support: bool = False) -> Model:
        """The model; its support vectors only on request. Raises ModelFormatError, DataError."""
        kernel = Kernel(**self.body["kernel"])
        name = self.body.get("machine")
        wanted = _stored(COMPACT | REFERENCE | BINS | RELATIONS | OF_ROWS, self.body["arrays"])
        if PRESENT.keys() <= self.body["arrays"].keys():
            wanted = {name: array for name, array in wanted.items() if name != "beta"} | PRESENT
        wanted |= {
            name: array
            for name, array in BACKGROUND.items()
            if BACKGROUND.keys() <= self.body["arrays"].keys()
        }
        wanted |= (LEAF_MODELS if name else {}) | wanted_of_uncertainty(
            self.body["task"], self.body["arrays"]
        )
        terms = self.body.get("terms", [])
        a = read_arrays(self.path, self.group, self.body["arrays"], wanted | of_terms(terms))
        with checked(self.path):
            weights = read_weights(a)
        a.setdefault("gamma", np.full(len(a["landmarks"]), kernel.gamma, MODEL_DTYPE))
        a.setdefault("leaf_factor", np.empty((len(a["intercept"]), 0), MODEL_DTYPE))
        leaf_arrays: dict[str, Any] = {name: a[name] for name in model_arrays(Model) if name != "beta"}
        scaling = self._scaling(a)
        model = Model(
            **leaf_arrays,
            beta=weights,
            task=self.body["task"],
            classes=tuple(self.body["classes"]),
            kernel=kernel,
            triangle_bound=self.body["triangle_bound"],
            scaling=scaling,
            tree=read_router(a),
            leaf_rows=a["leaf_rows"],
            local_kernel=Kernel(**self.body["local_kernel"]),
            support=self.support() if support else None,
            reference=part_of(a, Reference, "feature_"),
            leaf_models=LeafModels(name, a["machine_at"], a["machine_packed"]) if name else None,
            uncertainty=uncertainty_of(a),
            background=part_of(a, Background, "background_"),
            parts=self._parts(scaling.n_features),
            bins=part_of(a, Bins, "bin_"),
            relations=part_of(a, Relations, "relation_"),
            target=TargetTransform.of_document(self.body.get("target", NO_TRANSFORM.document())),
            terms=read_terms(terms, a),
        )
        with checked(self.path):
            check_model(model)
        return model

    def _parts(self, n_features: int) -> Parts | None:
        """The columns of the table; None where they are unknown."""
        schema, names = self.schema, self.feature_names
        return None if schema is None and names is None else parts_of_table(schema, names, n_features)

    def _scaling(self, arrays: Mapping[str, NDArray[Any]]) -> Scaling:
        try:
            return Scaling.of(arrays)
        except ValueError as error:
            raise altered(self.path, f"its arrays of features are damaged: {error}") from None

    def support(self) -> Support:
        """The local SVMs, for early prediction. Raises ModelFormatError, DataError if the model has none."""
        if not self.has_support:
            raise DataError(
                f"Cannot predict early with the model at {self.path}: it was saved without its support"
                " vectors. Train it again with --set keep_support_vectors=true."
            )
        a = read_arrays(self.path, self.group, self.body["arrays"], _stored(SUPPORT, self.body["arrays"]))
        n_leaves, gamma = len(a["support_intercept"]), self.body["local_kernel"]["gamma"]
        a.setdefault("support_gamma", np.full(n_leaves, gamma, ACC_DTYPE))
        support = from_held(Support, a, "support_")
        with checked(self.path):
            check_support(support)
        return support

    def self_test(self) -> SelfTest | None:
        """The stored self-test; None in an older format. Raises ModelFormatError where damaged."""
        if not self.declared:
            return None
        a = read_arrays(self.path, self.group, self.declared, SELF_TEST)
        return from_held(SelfTest, a, "self_test_")


def write_model(
    path: str | Path,
    model: Model,
    settings: Mapping[str, Any],
    provenance: Mapping[str, Any],
    schema: Schema | None = None,
    *,
    if_taken: IfTaken = "refuse",
) -> str:
    """Write a model to a new directory, or below a new prefix of a store, and return its hash.

    A store cannot rename a directory: arrays are written under a name that is unique to this attempt, then
    model.json, which names them, is created last.

    if_taken  what to do where the address is taken: refuse; keep an equal model and refuse others; or replace
              a model
    Raises DataError where it refuses, and for a model too large to be read here again.
    """
    arrays = arrays_of(model)
    total, laid_out = sum(a.nbytes for a in arrays.values()), laid_out_bytes(model)
    for size, what, limit, part in (
        (total, "has", LARGEST_MODEL, "a quarter"),
        (laid_out, "needs", LARGEST_LAYOUT, "half"),
    ):
        if size > limit:
            raise DataError(
                f"Cannot save the model: it {what} {size:,} bytes, more than {part} of the memory of this"
                f" machine ({limit:,} bytes). Set landmarks or products lower, or max_leaf_rows higher."
            )
    encoding, naming = schema_documents(schema)
    body = {
        "task": model.task,
        "classes": list(model.classes),
        "kernel": model.kernel.as_dict(),
        "local_kernel": model.local_kernel.as_dict(),
        "triangle_bound": model.triangle_bound,
        # Without calibration a model equals that of earlier versions, with the same hash.
        "settings": {k: v for k, v in settings.items() if (k, v) != ("calibrate", False)},
        "arrays": _declared(arrays),
        **({} if model.leaf_models is None else {"machine": model.leaf_models.name}),
        **({"target": model.target.document()} if model.target else {}),
        **({"terms": [term.name for term in model.terms]} if model.terms else {}),
        **encoding,
    }
    model_hash = digest_json(body)
    test = make_self_test(model)
    tests = held_arrays(test, "self_test_")
    document = {
        "format": FORMAT,
        "version": max(*_versions(model, encoding), *(declared_array(name).since for name in arrays)),
        "hash": model_hash,
        "model": body,
        "provenance": {**provenance, **naming},
        "self_test": _declared(tests),
    }
    place = open_place(path)
    if if_taken != "refuse" and _is_same(place, document):
        return model_hash
    is_model = if_taken != "refuse" and place.read(MODEL_FILE) is not None
    if if_taken == "replace" and is_model:
        _replace(place, arrays | tests, document)
    elif is_model or (if_taken != "refuse" and place.folder is not None and not is_free(place.folder)):
        raise _stands(place, is_model)
    elif place.folder is None:
        _write_to_store(place, arrays | tests, document)
    elif not is_free(Path(place.address)):
        raise _exists(place)
    else:
        with new_directory(Path(place.address)) as partial:
            _write_arrays(str(partial / ARRAYS_GROUP), arrays | tests)
            write_json(partial / MODEL_FILE, document)
    return model_hash


def _versions(model: Model, encoding: Mapping[str, Any]) -> tuple[int, ...]:
    """The first versions of the format that can hold what is not an array."""
    coding = model.scaling.coding
    is_additive = coding is not None and isinstance(coding.map, Knots) and bool((coding.map.value < 0).any())
    return 5 if encoding else 2, 10 if model.target else 2, 11 if is_additive else 2


def _is_same(place: Place, document: Mapping[str, Any]) -> bool:
    """Whether the place holds the same complete model, with the same names of features."""
    try:
        artifact = open_artifact(place.address)
        artifact.model(support=artifact.has_support)
        artifact.self_test()
    except (DataError, ModelFormatError):
        return False
    names = "feature_names"
    same = (
        artifact.hash == document["hash"],
        artifact.provenance.get(names) == document["provenance"].get(names),
    )
    return all(same)


def _stands(place: Place, is_model: bool) -> DataError:
    if is_model:
        return DataError(
            f"Cannot save the model to {place.address}: another model is there. Save with overwrite=True to"
            " replace it, or choose another path."
        )
    return DataError(
        f"Cannot save the model to {place.address}: it already exists and is not a model. Remove it or choose"
        " another path."
    )


def _replace(place: Place, arrays: Mapping[str, NDArray[Any]], document: Mapping[str, Any]) -> None:
    """Write a model over another: its arrays under a unique name, then model.json, which names them, then
    remove the old arrays. A reader finds the one or the other complete model.
    """
    forget(MODEL)
    group = f"arrays-{secrets.token_hex(6)}.zarr"
    _write_arrays(below(place.address, group), arrays)
    place.write(MODEL_FILE, encoded({**document, "arrays": group}))
    for old in place.names(""):
        if old != group and (old == ARRAYS_GROUP or STORE_GROUP.fullmatch(old)):
            for name in place.listing(old):
                place.remove(name)
            if place.folder is not None:
                shutil.rmtree(Path(place.address) / old, ignore_errors=True)


def _exists(place: Place) -> DataError:
    return DataError(
        f"Cannot write a model to {place.address}: it already exists. Remove it or choose another path."
    )


def check_free_for_model(place: Place) -> None:
    """Raise DataError where a store holds anything but remains of an interrupted attempt: arrays, and the
    probe of a process that checked for permission to write.
    """
    if any(not STORE_GROUP.fullmatch(name) and not name.startswith(PROBE) for name in place.names("")):
        raise _exists(place)


def _write_to_store(place: Place, arrays: Mapping[str, NDArray[Any]], document: Mapping[str, Any]) -> None:
    forget(MODEL)
    check_free_for_model(place)
    group = f"arrays-{secrets.token_hex(6)}.zarr"
    _write_arrays(below(place.address, group), arrays)
    if not place.create(MODEL_FILE, encoded({**document, "arrays": group})):
        for name in place.listing(group):
            place.remove(name)
        present = read_own_document(place, MODEL_FILE) or {}
        if present.get("hash") != document["hash"]:
            raise _exists(place)


def _write_arrays(address: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    group = zarr_arrays.create_group(address)
    for name, a in arrays.items():
        row_bytes = max(a.nbytes // max(len(a), 1), 1)
        chunk_rows = min(max(CHUNK_BYTES // row_bytes, 1), max(len(a), 1))
        zarr_arrays.create_array(
            group, name, a.shape, a.dtype, chunk_rows, dimensions=named_dimensions(name, a, arrays)
        )[...] = a
    zarr_arrays.consolidate(group)


def _declared(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    return {
        name: {"shape": list(a.shape), "dtype": a.dtype.name, "digest": digest(a)}
        for name, a in arrays.items()
    }


def open_artifact(path: str | Path) -> Artifact:
    """Read and check model.json, once in a call as long as it is the same file. Raises ModelFormatError."""
    place = open_place(path)
    state = ""  # On a store, whoever writes a model says so (`forget`).
    if place.folder is not None:
        with suppress(OSError):
            stat = os.stat(place.folder / MODEL_FILE)
            state = f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"
    path = place.address if place.folder is None else str(path)
    artifact = once(MODEL, (place.address, state, current_options()), lambda: _read_artifact(path, place))
    return replace(artifact, path=path, group=below(path, artifact.group.rpartition("/")[2]))


def _read_artifact(path: str, place: Place) -> Artifact:
    try:
        value = read_document(place, MODEL_FILE)
    except ValueError:
        raise altered(path, f"{MODEL_FILE} is not valid JSON") from None
    if value is None:
        so = f"holds no {MODEL_FILE}" if place.folder is None or Path(path).exists() else "does not exist"
        raise ModelFormatError(
            f"Cannot open a model at {path}: it {so}. Train one with `dcpred train DATA.zarr MODEL`."
        )
    if value.get("format") != FORMAT:
        raise ModelFormatError(f"Cannot open a model at {path}: its model.json is not of a {FORMAT}.")
    if not isinstance(value.get("version"), int) or value["version"] > VERSION:
        raise ModelFormatError(
            f"Cannot open the model at {path}: it has format version {value.get('version')}, and this dcpred"
            f" reads versions up to {VERSION}. Install a newer dcpred."
        )
    body = value.get("model")
    if not isinstance(body, dict) or not _matches(body, value.get("hash")):
        raise altered(path, "model.json does not match its hash")
    provenance, test = value.get("provenance", {}), value.get("self_test", {})
    with checked(path):
        check_body(body)
        check_declared(test)
    group = value.get("arrays", ARRAYS_GROUP)
    if group != ARRAYS_GROUP and not (isinstance(group, str) and STORE_GROUP.fullmatch(group)):
        raise altered(path, f"{MODEL_FILE} names no group of arrays")
    return Artifact(path, value["hash"], body, provenance, test, below(path, group))


def _matches(body: dict[str, Any], expected: object) -> bool:
    try:
        return digest_json(body) == expected
    except ValueError:  # NaN or infinity, which Python reads, but which is not JSON
        return False


def read_model(path: str | Path, *, support: bool = False) -> Model:
    """The model at a path. Raises ModelFormatError, DataError."""
    return open_artifact(path).model(support=support)


def _stored(wanted: Mapping[str, ModelArray], declared: Mapping[str, Any]) -> dict[str, ModelArray]:
    """The arrays that the model declares, by its format and features; the hash covers the declaration."""
    unless = () if REFERENCE.keys() & declared.keys() else REFERENCE
    return {
        name: array
        for name, array in wanted.items()
        if name in declared or (array.since == 1 and name not in unless)
    }
