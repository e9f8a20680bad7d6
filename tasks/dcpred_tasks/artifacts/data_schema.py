"""The schema that a data set or a model holds, and whether data are encoded as a model's were."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import zarr

from dcpred_tasks.artifacts.followed_schema import schema_of_stored, schema_to_follow
from dcpred_tasks.artifacts.model_artifact import MODEL_FILE, Artifact, open_artifact
from dcpred_tasks.errors import DataError
from dcpred_tasks.schema.schema import (
    ATTRIBUTE,
    Schema,
    first_difference,
    read_schema,
)
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_group
from dcpred_tasks.storage.addresses import Address, TableAddress, group_of, local_path
from dcpred_tasks.storage.place import GROUP_FILES, open_place
from dcpred_tasks.tables.sources import import_command, import_first, kind_of


def schema_of_array(x: Address) -> Schema | None:
    """The schema of the group that holds an array, or None. Raises DataError where it is damaged."""
    if not isinstance(x, TableAddress):
        return schema_of_stored(x)
    return read_schema(open_group(group_of(x)).attrs[ATTRIBUTE], x.data)


def schema_of_given(X: Any) -> Schema | None:
    """The schema of the group of a Zarr array on disk, in a bucket or in memory; None
    for any other data. Raises DataError where the schema is damaged.
    """
    if not isinstance(X, zarr.Array):
        return None
    address = zarr_arrays.array_address(X)
    if address is not None:
        return schema_of_array(address)
    group, _, _ = X.store_path.path.rpartition("/")
    try:
        attributes = zarr.open_group(X.store_path.store, path=group, mode="r").attrs
    except (FileNotFoundError, ValueError):  # The array has no group.
        return None
    return read_schema(attributes[ATTRIBUTE], "X") if ATTRIBUTE in attributes else None


def find_rows(address: str | Path, name: str, model: str | Path, *, with_target: bool = False) -> Address:
    """The address of array `name` of the data that a model, or a model trained on a data set, scores. Parquet
    is encoded while it is read. Raises DataError for another table, with the command that imports it as the
    model needs it.

    name         for Parquet X, y for the target, or a column
    with_target  whether the command needs a target beside the features
    """
    kind = kind_of(address)
    if kind is None:
        return zarr_arrays.find_array(address, name)
    place = open_place(model)
    if all(place.read(file) is None for file in (MODEL_FILE, *GROUP_FILES)):
        open_artifact(model)  # It raises: there is neither a model nor data like which a table is encoded.
    schema = _followed(model)
    if kind.in_place:
        if place.read(MODEL_FILE) is not None and schema is None:
            raise _without_schema(local_path(address), model)
        return _find_column(address, name, model)
    options = [] if schema is None else ["--like", shlex.quote(str(model))]
    if with_target and (schema is None or schema.target is None):
        options += ["--target", "COLUMN"]
    raise import_first(local_path(address), " ".join(options))


def _find_column(address: str | Path, name: str, model: str | Path) -> TableAddress:
    """The address of an array of a table in Parquet. Raises DataError."""
    from dcpred_tasks.tables.encoded_rows import plan_table

    table = plan_table(local_path(address), str(model))
    there = dict(zarr_arrays.arrays_of(open_group(table)))
    schema = schema_to_follow(model)
    target = schema.target
    name = "y" if name == target else name
    if name not in there:
        if name in [column.name for column in schema.sources]:
            raise DataError(
                f"Cannot use column {name!r} of {address} next to the features: it is a feature of {model}."
                f" Name another column: {', '.join(sorted(set(there) - {'X'})) or 'the table has none'}."
            )
        what = f"the target {target!r}" if name == "y" and target else f"a column {name!r}"
        raise DataError(
            f"Cannot use {address}: it lacks {what}. Its columns besides the features are"
            f" {', '.join(sorted(set(there) - {'X'})) or 'none'}. Add the column, or name another."
        )
    return replace(table, name=name)


def _without_schema(address: str, model: str | Path) -> DataError:
    """The refusal of a table with names for a model without them."""
    command, dest = import_command(address, "")
    return DataError(
        f"Cannot encode {address} like {model}: that model was trained on numbers without names, and finds"
        " no features among columns. Leave only the features in the table, in the order of training, import"
        f" it with `{command}`, then pass {dest}."
    )


def _followed(model: str | Path) -> Schema | None:
    try:
        return schema_to_follow(model)
    except DataError:
        return None


def check_same_encoding(x: Address, artifact: Artifact) -> None:
    """Raise DataError where an array and a model both have a schema and encode features differently."""
    _check_encoding(x, schema_of_array(x), artifact.schema, artifact.path)


def check_given_encoding(X: Any, schema: Schema | None, path: str | None = None) -> None:
    """Do what `check_same_encoding` does for data that a caller passes to a model.

    schema  of the model
    path    of the model, None for one that is only in memory
    """
    _check_encoding("X", schema_of_given(X) if schema is not None else None, schema, path)


def _check_encoding(x: Address, data: Schema | None, model: Schema | None, path: str | None) -> None:
    if data is None or model is None or not (data.encodes or model.encodes):
        return
    difference = first_difference(data, model)
    if difference is None:
        return
    import_again = "Import" if path is not None else "Save the model as MODEL, then import"
    raise DataError(
        f"Cannot score {x} with this model: its features are encoded differently ({difference})."
        f" {import_again} the rows again with `dcpred import SOURCE DEST --like {path or 'MODEL'}`."
    )
