"""The schema of a model or a data set, which an import or a table follows."""

from pathlib import Path
from typing import Any

from dcpred_tasks.artifacts.model_artifact import MODEL_FILE, open_artifact
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.feature_names import feature_names
from dcpred_tasks.schema.schema import ATTRIBUTE, INDEX_BASE, Schema, numbers_schema, read_schema
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import local_path
from dcpred_tasks.storage.place import GROUP_FILES, open_place


def schema_of_stored(x: str) -> Schema | None:
    """The schema of the group that holds an array of Zarr, or None. Raises DataError where it is damaged."""
    group, _, name = local_path(x).rstrip("/").rpartition("/")
    if not group or not name:
        return None
    try:
        attributes: dict[str, Any] = dict(zarr_arrays.open_stored_group(group).attrs)
    except DataError:
        place = open_place(group)
        if any(place.read(file) is not None for file in GROUP_FILES):
            raise
        return None  # the array lies in no group
    document = attributes.get(ATTRIBUTE)
    return None if document is None else read_schema(document, group)


def schema_to_follow(address: str | Path) -> Schema:
    """The schema of the model or data at an address, of numbers without one. Raises DataError."""
    place = open_place(address)
    if place.read(MODEL_FILE) is not None:
        artifact = open_artifact(address)
        schema, names, kind = artifact.schema, artifact.feature_names, "model"
    else:
        x = zarr_arrays.find_array(address, "X")
        schema, names, kind = schema_of_stored(x), feature_names(zarr_arrays.open_stored_array(x)), "data set"
    if schema is None and names:
        return numbers_schema(names)
    if schema is None:
        raise DataError(
            f"Cannot encode data like {address}: this {kind} has neither a schema nor names of features."
            " Import without --like: rows are then numbers in their order."
        )
    return schema


def counted_features(address: str | Path) -> dict[str, int]:
    """`n_features` of the model or data at an address, and its `index_base` where data state it."""
    if open_place(address).read(MODEL_FILE) is not None:
        return {"n_features": open_artifact(address).model().n_features}
    x = zarr_arrays.find_array(address, "X")
    group = local_path(x).rstrip("/").rpartition("/")[0]
    try:
        base = dict(zarr_arrays.open_stored_group(group).attrs).get(INDEX_BASE)
    except DataError:  # The array has no group.
        base = None
    counts = {"n_features": int(zarr_arrays.open_stored_array(x).shape[1])}
    return counts | ({"index_base": int(base)} if base in (0, 1) else {})
