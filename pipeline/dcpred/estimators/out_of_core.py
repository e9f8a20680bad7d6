"""Estimators over Dask collections and Zarr arrays: the graphs of the command line, and lazy prediction."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
from distributed import default_client
from numpy.typing import DTypeLike, NDArray

from dcpred.datasets.dask_rows import address_of_rows, in_parallel
from dcpred.datasets.split_rules import folds_of_data
from dcpred.estimators.tables import learn
from dcpred.execution.dask_workers import DaskWorkers
from dcpred.execution.workers import InlineWorkers, Workers
from dcpred.training.choice import choose_settings, search_and_fit
from dcpred.training.fit import TrainingRequest, fit_model
from dcpred.training.metrics import metric_of
from dcpred.training.policy import COST, STANDARD, SearchPolicy, parse_budget, policy_for
from dcpred_tasks.dtypes import ACC_DTYPE
from dcpred_tasks.errors import SchedulerError, SettingsError
from dcpred_tasks.input_kinds import (
    is_lazy,
)
from dcpred_tasks.model.compact_model import Model, check_features
from dcpred_tasks.model.feature_names import Names
from dcpred_tasks.model.label_rule import Rule
from dcpred_tasks.model.uncertainty import Calibration
from dcpred_tasks.schema.frames import check_frame
from dcpred_tasks.schema.schema import ATTRIBUTE as SCHEMA_ATTRIBUTE
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.task_bodies.predict_block import (
    decision_block,
    encoded_block,
    framed_block,
    label_block,
    number_block,
    probability_block,
)
from dcpred_tasks.training.categories import CodedFeatures
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.in_memory import thread_count
from dcpred_tasks.training.settings import BESIDE_A_SEARCH, Settings, make_settings

PLAIN = "plain"  # in place of a budget: no setting was given


def current_workers() -> AbstractContextManager[Workers]:
    """The workers of the current Dask client, or this process."""
    client = current_client()
    return nullcontext(InlineWorkers() if client is None else DaskWorkers(client))


def current_client() -> Any:
    """Return the current Dask client, or None. Raises SchedulerError for an asynchronous one."""
    try:
        client = default_client()
    except ValueError:
        return None
    if client.asynchronous:
        raise SchedulerError(
            "Cannot use the current Dask client: it is asynchronous, but estimators wait for results."
            " Create a client without asynchronous=True, and fit in `with client.as_current():`."
        )
    return client


def fit(
    X: Any,
    y: Any,
    sample_weight: Any,
    settings: Settings,
    folder: Path,
    budget: str | None = None,
    policy: SearchPolicy = STANDARD,
    labels: Names | None = None,
    schema: Schema | None = None,
    folds: Folds | None = None,
) -> tuple[Settings, dict[str, Any] | None]:
    """Train on Dask and Zarr arrays and write the model to folder/model. Arrays that workers could not open
    at an address of their own (Dask arrays, arrays in memory) are first written to `folder` as Zarr, block by
    block. With a budget, settings are chosen first, and with PLAIN within the usual one; returns those that
    were trained with, and what the search found. labels:
    the names of the classes where y holds their numbers. schema: what the columns of X were. folds: how rows
    are held out.
    """
    attributes = None if schema is None else {SCHEMA_ATTRIBUTE: schema.document()}
    group = zarr_arrays.create_group(folder / "data.zarr", attributes)
    x = address_of_rows(X, "X", group, folder)
    target = address_of_rows(y, "y", group, folder, None if labels is None else {"labels": list(labels)})
    weight = None if sample_weight is None else address_of_rows(sample_weight, "weight", group, folder)
    if folds is None or not folds.by_units:
        count = None if folds is None else folds.count
        folds = folds_of_data(x, None, None, count, settings.seed, y=target) or folds
    model = folder / "model"
    request = TrainingRequest(x, target, model, settings, current_workers, weight, folds)
    if budget is None:
        fit_model(request)
        return settings, None
    limit = None if budget == PLAIN else parse_budget(budget)
    report = search_and_fit(request, policy, limit)
    return make_settings(report.settings), report.found()


def choose(
    X: NDArray[Any],
    y: NDArray[Any],
    weight: NDArray[np.float64],
    settings: Settings,
    budget: str | None,
    policy: SearchPolicy,
    coded: CodedFeatures,
    n_jobs: int | None,
    folds: Folds | None,
) -> tuple[Settings, dict[str, Any]]:
    """Settings for rows in memory, and what the search found, in the memory of this process.

    n_jobs  candidates that are tried at once; None: one for each core
    """
    limit = None if budget is None else parse_budget(budget)
    # Files and messages know no numbers that are longer.
    rows, target = (a.astype(np.float64) if a.dtype == np.longdouble else a for a in (X, y))
    threads = thread_count(-1 if n_jobs is None else n_jobs)
    given = rows, target, weight, settings, coded
    return choose_settings(*given, budget=limit, policy=policy, threads=threads, folds=folds)


def names_settings(estimator: Any) -> bool:
    """Whether a budget, or a setting that a search chooses, was given."""
    return estimator.budget is not None or bool(_named(estimator))


def _named(estimator: Any) -> list[str]:
    """Settings that a search chooses and that were given."""
    return [name for name in estimator.given_settings() if name not in BESIDE_A_SEARCH]


def decision(model: Model, X: Any, early: bool) -> da.Array:
    """Decision values as a lazy Dask array (n_samples, n_outputs)."""
    return each_row(model, X, decision_block, (model.n_outputs,), early, dtype=model.score_dtype)


def each_row(
    model: Model,
    X: Any,
    block: Callable[..., NDArray[Any]],
    shape: tuple[int, ...],
    *more: Any,
    dtype: DTypeLike = np.float64,
) -> da.Array:
    """What `block` gives for raw rows and a model, (n_samples, *shape), as a Dask array; each worker gets the
    model once.
    """
    check_features(X.shape, np.dtype(X.dtype), model.n_features)
    rows = X if isinstance(X, da.Array) else da.from_array(X)
    rows = rows.rechunk({1: -1})
    return rows.map_blocks(
        block,
        dask.delayed(model, pure=False),
        *more,
        **({"chunks": (rows.chunks[0], *shape)} if shape else {"drop_axis": 1}),
        dtype=dtype,
        meta=np.empty((0,) * (1 + len(shape)), dtype),
    )


def framed(
    X: Any,
    block: Callable[..., NDArray[Any]],
    schema: Schema | None,
    names: Sequence[str] | None,
    columns: Sequence[Any] | None,
    *more: Any,
) -> Any:
    """What `block` gives for the rows of a DataFrame of Dask, with its index and divisions."""
    call = uuid4().hex
    values = partial(framed_block, block=block, schema=schema, names=names, columns=columns, call=call)
    sent = [dask.delayed(each, pure=False) if isinstance(each, Model) else each for each in more]
    return X.map_partitions(values, *sent, meta=values(X._meta, *more))


def probabilities(decision: da.Array, calibration: Calibration) -> da.Array:
    """Probabilities (n_samples, n_classes) of decision values, computed lazily, chunk by chunk."""
    chunks = (decision.chunks[0], (len(calibration.prior),))
    return decision.map_blocks(
        probability_block, calibration=calibration, chunks=chunks, dtype=np.float64, meta=np.empty((0, 0))
    )


def labels(decision: da.Array, classes: NDArray[Any], rule: Rule) -> da.Array:
    """Labels (n_samples,) of decision values, computed lazily, chunk by chunk."""
    return decision.map_blocks(
        label_block, classes=classes, rule=rule, drop_axis=1, dtype=classes.dtype, meta=classes[:0]
    )


def class_numbers(decision: Any) -> Any:
    """Class numbers (n_samples,) of decision values, lazy where these are; −1 in rows without a score."""
    if not isinstance(decision, da.Array):
        return number_block(decision)
    return decision.map_blocks(number_block, drop_axis=1, dtype=np.int64, meta=np.empty(0, np.int64))


def computed(*columns: Any) -> tuple[Any, ...]:
    """Columns, one value for each row, in memory; those that are no Dask collections as they are."""
    if any(map(is_lazy, columns)):
        current_client()
    # One by one: Dask warns where frames and arrays mix.
    return tuple(dask.compute(column, traverse=False)[0] for column in columns)


OF_SEARCH = {
    "budget": None,
    "metric": None,
    "prefer": COST,
    "seconds": None,
}  # arguments of a search with their defaults


def check_search(estimator: Any, task: str) -> None:
    """Raise SettingsError for an invalid budget or metric, and for settings that a search chooses."""
    if estimator.budget is not None:
        parse_budget(estimator.budget)
    if estimator.metric is not None:
        metric_of(estimator.metric, task, 2)
    policy_for(STANDARD, None, estimator.prefer, estimator.seconds)
    for what, usual in OF_SEARCH.items():
        given = getattr(estimator, what)
        for name in _named(estimator) if given != usual else ():
            raise SettingsError(
                f"Cannot use {name} together with {what}={given!r}: the search for settings chooses {name}."
                " Leave one of them out."
            )


# -- DataFrames of Dask with text, categories, booleans and dates --------------------------------------------
# Workers survey and encode their parts.


def learn_frame(X: Any, named: Collection[str]) -> tuple[Schema, da.Array]:
    """Return the schema of a DataFrame and its encoded rows, lazily. Every part is read once to survey it."""
    numeric = [name for name, dtype in zip(X.columns, X.dtypes, strict=True) if dtype.kind in "iuf"]
    parts = X.to_delayed()
    schema, n_rows = learn(parts, list(X.columns), numeric, named, in_parallel)
    sent = dask.delayed(schema, pure=False)
    blocks = [
        da.from_delayed(dask.delayed(encoded_block)(part, sent), (n, len(schema.features)), ACC_DTYPE)
        for part, n in zip(parts, n_rows, strict=True)
    ]
    return schema, da.concatenate([block for block in blocks if block.shape[0]] or blocks)


def encoded(X: Any, schema: Schema) -> da.Array:
    """Return the encoded rows of a DataFrame, lazily. Raises DataError for columns of another schema."""
    check_frame(schema, X)
    sent = dask.delayed(schema, pure=False)
    rows = X.map_partitions(encoded_block, sent, uuid4().hex, meta=np.empty((0, 0)))
    return da.Array(rows.dask, rows.name, (rows.chunks[0], (len(schema.features),)), ACC_DTYPE)
