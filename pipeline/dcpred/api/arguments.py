"""Arguments that the public functions share: models, data, settings, costs and workers."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import zarr

from dcpred.execution.pools import chosen_pool, store_threads
from dcpred.execution.workers import Pool
from dcpred.runs.bad_rows import BadRowLimit
from dcpred.runs.ledger import planned_version
from dcpred.scoring.blocks import FailurePolicy
from dcpred.scoring.planning import Columns
from dcpred.serving import ServedModel
from dcpred.training.reports import TrainReport
from dcpred_tasks.artifacts.block_files import PARQUET, ZARR
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.errors import DataError, RefusedError, SettingsError
from dcpred_tasks.model.label_rule import given_costs
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import absolute
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.tables.sources import is_table

Find = Callable[[str | Path, str], str]


@dataclass(frozen=True)
class Addresses:
    """Addresses of the arrays of a data set."""

    x: str
    y: str = ""
    weight: str | None = None


def address_of_model(model: Any) -> str | Path:
    """The path or address of a model. Raises DataError for a model that is only in memory."""
    if isinstance(model, ServedModel):
        return model.artifact.path
    if isinstance(model, str | Path):
        return model
    raise DataError(
        f"Cannot use a value of type {type(model).__name__} as model: it is not a path. Pass the path of a"
        " model; an estimator writes one by its method save."
    )


def pool_for(x: str, output: str | Path, workers: int | None, client: Any) -> Pool | None:
    """The workers that score X into an output; None: one process per core, if there are several blocks."""
    return (
        None if workers == -1 and client is None else chosen_pool(workers, client, **store_threads(x, output))
    )


def tolerance(
    quarantine: bool,
    max_bad_rows: int | None,
    max_bad_fraction: float | None,
    max_failures: int = FailurePolicy.max_failures,
) -> FailurePolicy:
    return FailurePolicy(quarantine, max_failures, BadRowLimit(max_bad_rows, max_bad_fraction))


@contextmanager
def training_data(
    data: Any,
    x: str,
    y: Any,
    sample_weight: Any,
    client: Any,
    beside: str | Path | None,
    *,
    id: Sequence[str] = (),
    drop: Sequence[str] = (),
    scratch: Path | None = None,
) -> Iterator[Addresses]:
    """Where the arrays of a training lie, while a `with` statement runs; as `_located`, or for a table among
    temporary files.

    id, drop  columns of a table that are not features: stored next to X, or omitted
    """
    from dcpred.training import scratch as tables

    _check_target(y)
    if isinstance(data, str | Path) and is_table(data):
        _check_names(y=y, sample_weight=sample_weight)
        columns = tables.NamedColumns(y, tuple(id), tuple(drop), sample_weight)
        with tables.imported(data, columns, tables.import_folder(beside, scratch)) as rows:
            weight = None if sample_weight is None else f"{rows}/{sample_weight}"
            yield Addresses(f"{rows}/X", f"{rows}/y", weight)
        return
    if id or drop:
        raise SettingsError(
            f"Cannot use {'id' if id else 'drop'}={[*id, *drop]}: the data is no table. Omit it: arrays next"
            " to X are no features."
        )
    with _located(data, x, y, sample_weight, zarr_arrays.find_array, client, beside) as found:
        yield found


def finished_training(
    data: Any,
    model: str | Path,
    y: Any,
    sample_weight: Any,
    id: Sequence[str],
    drop: Sequence[str],
    scratch: Path | None,
    asked: Mapping[str, Any],
) -> tuple[str, TrainReport | None]:
    """A digest of a training on a table, "" for other data; and the report of the model that it made.

    asked  the other arguments that decide the model
    """
    from dcpred.training import scratch as tables
    from dcpred.training.train import finished_on_table

    columns = tables.NamedColumns(y, tuple(id), tuple(drop), sample_weight)
    source = tables.source_of(data, columns, asked)
    if not source:
        return "", None
    return source, finished_on_table(model, source, tables.import_folder(model, scratch))


@contextmanager
def labelled_rows(data: Any, x: str, y: Any, model: str | Path, client: Any) -> Iterator[Addresses]:
    """The same of labelled rows that a model scores. Some may have no target."""
    _check_target(y)

    def find(address: str | Path, name: str) -> str:
        return find_rows(address, name, model, with_target=True)

    with _located(data, x, y, None, find, client, None, model) as found:
        yield found


@contextmanager
def rows_to_score(
    data: Any, x: str, model: str | Path, client: Any, output: str | Path, *, resumes: bool = False
) -> Iterator[str]:
    """The same of rows without a target. A run of a Delta table keeps the version that it began with."""

    def find(address: str | Path, name: str) -> str:
        return find_rows(planned_version(address, output, resumes=resumes), name, model)

    with _located(data, x, None, None, find, client, output, model) as found:
        yield found.x


@contextmanager
def _located(
    data: Any,
    x: str,
    y: Any,
    weight: Any,
    find: Find,
    client: Any,
    beside: str | Path | None,
    model: str | Path | None = None,
) -> Iterator[Addresses]:
    """Where arrays lie. Those that no worker could open are written as Zarr first: to BESIDE.data.zarr, where
    a later call finds them, or to a temporary directory.

    y, weight  names of arrays in stored data, or arrays; None: there is none
    model      the features of rows are brought into its order
    """
    if data is None:
        raise DataError("Cannot use None as data. Pass a path, an address or an array.")
    if isinstance(data, zarr.Group) and zarr_arrays.array_address(data) is not None:
        data = zarr_arrays.address_of(data)
    if isinstance(data, str | Path):
        _check_names(y=y, sample_weight=weight)
        target = "" if y is None else find(data, y)
        yield Addresses(find(data, x), target, None if weight is None else find(data, weight))
        return
    if isinstance(data, zarr.Group):
        held = {name: name if isinstance(name, str) else None for name in (x, y, weight)}
        data, y, weight = (None if held[name] is None else data[name] for name in (x, y, weight))
    arrays = {"X": data, "y": y, "sample_weight": weight}
    for name, array in arrays.items():
        if isinstance(array, str):
            raise DataError(
                f"Cannot use {name}={array!r}: it is the name of an array, but data is an array itself."
                " Pass an array, too; of a frame its column, and the frame without it."
            )
    _check_lengths(arrays)
    found = {name: _address(array) for name, array in arrays.items() if array is not None}
    if all(found.values()):
        yield Addresses(str(found["X"]), found.get("y") or "", found.get("sample_weight"))
        return
    from dcpred.estimators.out_of_core import write_data

    names = None if model is None else open_artifact(model).feature_names
    with TemporaryDirectory(prefix="dcpred-") as folder:
        place = f"{folder}/data.zarr" if beside is None else f"{absolute(beside).rstrip('/')}.data.zarr"
        was_there = open_place(place).is_there()
        written = write_data(data, y, weight, place, names, client, unlabelled=model is not None)
        paths = {name: f"{place}/{name}" for name in written}
        weights = paths.get("weight") or found.get("sample_weight")
        try:
            yield Addresses(
                paths.get("X") or str(found["X"]), paths.get("y") or found.get("y") or "", weights
            )
        except RefusedError:
            if not was_there:
                _remove(place)
            raise


def _remove(address: str) -> None:
    """Remove a data set that this call wrote."""
    place = open_place(address)
    if place.folder is not None:
        shutil.rmtree(place.folder, ignore_errors=True)
        return
    for name in place.listing():
        place.remove(name)


def _check_lengths(arrays: Mapping[str, Any]) -> None:
    """Raise DataError for arrays that do not belong together, before any is written."""
    shapes = {name: getattr(array, "shape", None) or np.shape(array) for name, array in arrays.items()}
    rows = shapes["X"][0] if shapes["X"] else None
    for name, shape in shapes.items():
        if not shape and isinstance(arrays[name], Real):
            raise DataError(f"Cannot use {name}={arrays[name]!r}: it is one number. Pass an array.")
        if shape and isinstance(rows, int) and isinstance(shape[0], int) and shape[0] != rows:
            raise DataError(
                f"Cannot use {name} with X: it has {shape[0]:,} rows, X has {rows:,}. Pass arrays of the same"
                " rows."
            )


def _check_target(y: Any) -> None:
    if y is None or (isinstance(y, str) and not y):
        raise DataError(f"Cannot use y={y!r}: it names no targets. Pass an array, or the name of one.")


def _address(array: Any) -> str | None:
    return zarr_arrays.array_address(array) if isinstance(array, zarr.Array) else None


def _check_names(**given: Any) -> None:
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise DataError(
                f"Cannot use a value of type {type(value).__name__} as {name}: data is stored at an address."
                " Pass the name of the array there, or data as an array."
            )


def settings_given(settings: Any, task: str | None) -> dict[str, object]:
    """Settings by name, with the task."""
    values: dict[str, object] = {}
    if settings is not None:
        if not isinstance(settings, Mapping):
            from dcpred.estimators.settings import Settings

            if not isinstance(settings, Settings):
                raise SettingsError(
                    f"Cannot use settings={settings!r}: it is of type {type(settings).__name__}. Pass a dict,"
                    ' for example {"landmarks": 24}, or a dcpred.Settings.'
                )
            settings = settings.given()
        values = {str(name): value for name, value in settings.items()}
    return values if task is None else values | {"task": task}


def written_columns(
    outputs: Sequence[str] | None,
    alpha: float | None,
    threshold: float | str | None,
    costs: Any,
    parquet: bool,
    names: Sequence[str],
    delta: str | Path | None = None,
) -> Columns:
    """The columns of a run; `names` are those before the scores in Parquet files. Raises SettingsError."""
    if names and not parquet and delta is None:
        raise SettingsError(
            "Cannot name ids: no Parquet files are written. Add --parquet or --delta (in Python parquet=True"
            " or delta=TABLE), or omit them."
        )
    return {
        "outputs": None if outputs is None else tuple(outputs),
        "alpha": alpha,
        "costs": given_costs(threshold, costs),
        "artifacts": (ZARR, PARQUET) if parquet or delta is not None else (ZARR,),
        "ids": tuple(names),
    }
