"""Arguments that the public functions share: models, data, settings, costs and workers."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import zarr

from dcpred.execution.progress import SILENT, Reporter, reporter
from dcpred.execution.workers import Pool, chosen_pool
from dcpred.runs.bad_rows import BadRowLimit
from dcpred.scoring.blocks import FailurePolicy
from dcpred.scoring.score import store_threads
from dcpred.serving import ServedModel
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.errors import DataError, DcpredError
from dcpred_tasks.model.label_rule import Costs, given_costs
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import absolute

R = TypeVar("R")
Find = Callable[[str | Path, str], str]


@dataclass(frozen=True)
class Addresses:
    """Addresses of the arrays of a data set."""

    x: str
    y: str = ""
    weight: str | None = None


def progress(verbose: bool) -> Reporter:
    """Progress on standard error, or none."""
    return reporter() if verbose else SILENT


def address_of_model(model: Any) -> str | Path:
    """The path or address of a model. Raises DataError for a model that is only in memory."""
    if isinstance(model, ServedModel):
        return model.artifact.path
    if isinstance(model, str | Path):
        return model
    raise DataError(
        f"Cannot use a {type(model).__name__} as model: it is not a path. Pass the path of a model; an"
        " estimator writes one by its method save."
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


def label_costs(threshold: float | str | None, costs: Any) -> Costs | None:
    return given_costs(threshold, costs)


def checked(report: R, check: Callable[[], None]) -> R:
    """The report, once `check` accepts it. What it raises holds the report as its attribute `report`."""
    try:
        check()
    except DcpredError as error:
        error.report = report
        raise
    return report


@contextmanager
def training_data(
    data: Any, x: str, y: Any, sample_weight: Any, client: Any, beside: str | Path | None
) -> Iterator[Addresses]:
    """Where the arrays of a training lie, while a `with` statement runs; as `_located`."""
    with _located(data, x, y, sample_weight, zarr_arrays.find_array, client, beside) as found:
        yield found


@contextmanager
def labelled_rows(data: Any, x: str, y: Any, model: str | Path, client: Any) -> Iterator[Addresses]:
    """The same of labelled rows that a model scores."""

    def find(address: str | Path, name: str) -> str:
        return find_rows(address, name, model, with_target=True)

    with _located(data, x, y, None, find, client, None, model) as found:
        yield found


@contextmanager
def rows_to_score(data: Any, x: str, model: str | Path, client: Any, beside: str | Path) -> Iterator[str]:
    """The same of rows without a target."""

    def find(address: str | Path, name: str) -> str:
        return find_rows(address, name, model)

    with _located(data, x, None, None, find, client, beside, model) as found:
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
                " Pass an array, too."
            )
    found = {name: _address(array) for name, array in arrays.items() if array is not None}
    if all(found.values()):
        yield Addresses(str(found["X"]), found.get("y") or "", found.get("sample_weight"))
        return
    from dcpred.estimators.out_of_core import write_data  # noqa: PLC0415 - it needs Dask

    names = None if model is None else open_artifact(model).feature_names
    with TemporaryDirectory(prefix="dcpred-") as folder:
        place = f"{folder}/data.zarr" if beside is None else f"{absolute(beside).rstrip('/')}.data.zarr"
        written = write_data(data, y, weight, place, names, client)
        paths = {name: f"{place}/{name}" for name in written}
        weights = paths.get("weight") or found.get("sample_weight")
        yield Addresses(paths.get("X") or str(found["X"]), paths.get("y") or found.get("y") or "", weights)


def _address(array: Any) -> str | None:
    return zarr_arrays.array_address(array) if isinstance(array, zarr.Array) else None


def _check_names(**given: Any) -> None:
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise DataError(
                f"Cannot use a {type(value).__name__} as {name}: data is stored at an address. Pass the name"
                " of the array there, or data as an array."
            )


def settings_given(settings: Any, task: str | None) -> dict[str, object]:
    """Settings by name, with the task."""
    values: dict[str, object] = {}
    if settings is not None:
        if not isinstance(settings, Mapping):
            from dcpred.estimators.settings import given_settings  # noqa: PLC0415 - it needs scikit-learn

            settings = given_settings(settings)
        values = {str(name): value for name, value in settings.items()}
    return values if task is None else values | {"task": task}
