"""The metadata of output arrays: what is wrong with them, and how the plan restores them."""

import json
from typing import Any

import numpy as np
import zarr

from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.scoring.outputs import OutputColumn
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array, open_group
from dcpred_tasks.storage.atomic_files import decoded
from dcpred_tasks.task_bodies.zarr_chunks import metadata_name, planned_scores


def explain_metadata(run: ScoreRun, name: str) -> str | None:
    """What is wrong with the metadata of an output array, or of the group (name ""), by the plan; or None."""
    stored = run.place.read(metadata_name(name))
    if stored is None:
        return "it is missing"
    try:
        decoded(stored.data, metadata_name(name))
    except ValueError:  # Zarr accepts numbers that JSON does not have.
        return "it cannot be read"
    try:
        if not name:
            return _wrong_group(run, open_group(run.scores), zarr_arrays.open_consolidated(run.scores))
        return _wrong_array(run, _column(run, name), open_array(run.array(name)))
    except DataError:
        return "it cannot be read"


def _wrong_group(run: ScoreRun, group: zarr.Group, copy: zarr.Group | None) -> str | None:
    if dict(group.attrs) != {"run": run.run, "model": run.model_hash}:
        return "it names another run or model"
    if copy is None:
        return None
    copies = dict(zarr_arrays.arrays_of(copy))
    if copies.keys() != {*run.arrays}:
        return "its copy of the metadata of arrays is not of those that the plan has"
    wrong = ((name, _wrong_array(run, _column(run, name), array)) for name, array in copies.items())
    return next(
        (f"its copy of the metadata of {name} is wrong: {why}" for name, why in wrong if why is not None),
        None,
    )


def _column(run: ScoreRun, name: str) -> OutputColumn:
    return next(column for column in run.columns if column.name == name)


def _wrong_array(run: ScoreRun, column: OutputColumn, array: zarr.Array[Any]) -> str | None:
    if array.shape[:1] != (run.n_rows,) or array.ndim > len(column.dimensions):
        return f"it has shape {array.shape}, but the plan has {run.n_rows:,} rows"
    if array.dtype not in [np.dtype(dtype) for dtype in column.dtypes]:
        return f"{column.name} cannot have dtype {array.dtype}"
    fill = np.asarray(array.fill_value)
    if not column.absent(fill, fill):
        return f"its fill value is {fill}, which does not mark an unscored row"
    same = _agree(column, array, _as_planned(run, column, array))
    return None if same else "chunks or codecs differ from the plan"


def _as_planned(run: ScoreRun, column: OutputColumn, array: zarr.Array[Any]) -> zarr.Array[Any]:
    """The array that is created for this column, shape and dtype."""
    return zarr_arrays.create_array(
        zarr_arrays.memory_group(),
        column.name,
        array.shape,
        array.dtype,
        run.chunk_rows,
        fill_value=array.fill_value,
        attributes=dict(array.attrs),
        dimensions=column.dimensions[: array.ndim],
    )


def _agree(column: OutputColumn, stored: zarr.Array[Any], planned: zarr.Array[Any]) -> bool:
    """Whether metadata are the same to Zarr, in any version, with or without names of dimensions."""
    a, b = (
        array.metadata.to_dict() | {"attributes": column.current_attributes(dict(array.attrs))}
        for array in (stored, planned)
    )
    if a.get("dimension_names") is None:
        a, b = (
            {key: value for key, value in metadata.items() if key != "dimension_names"} for metadata in (a, b)
        )
    return json.dumps(a, sort_keys=True, default=str) == json.dumps(b, sort_keys=True, default=str)


def restore_metadata(run: ScoreRun, model: Model, named: set[str]) -> list[str]:
    """Rewrite metadata that are in `named`, missing, or differ; chunks stay. Returns the written files."""
    written = []
    group, place = planned_scores(run, model), run.place
    for name in ("", *run.arrays):
        planned = group[name] if name else group
        file = metadata_name(name)
        if file in named or not _is_as_planned(run, name, planned):
            place.make_folder(file.removesuffix("/zarr.json"))
            place.write(file, zarr_arrays.metadata_file(planned))
            written.append(file)
    return written


def _is_as_planned(run: ScoreRun, name: str, planned: zarr.Group | zarr.Array[Any]) -> bool:
    try:
        if isinstance(planned, zarr.Array):
            return _agree(_column(run, name), open_array(run.array(name)), planned)
        copy = zarr_arrays.open_consolidated(run.scores)
        copies = [] if copy is None else zarr_arrays.arrays_of(copy)
        wanted = dict(zarr_arrays.arrays_of(planned))
        same = all(
            name in wanted and _agree(_column(run, name), array, wanted[name]) for name, array in copies
        )
        return same and dict(open_group(run.scores).attrs) == dict(planned.attrs)
    except DataError:
        return False
