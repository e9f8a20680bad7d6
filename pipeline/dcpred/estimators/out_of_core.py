"""Estimators over Dask collections and Zarr arrays: the graphs of the command line, and lazy prediction."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
import zarr
from distributed import default_client
from numpy.typing import DTypeLike, NDArray

from dcpred.datasets.split_rules import folds_of_data
from dcpred.datasets.writing import new_data_set
from dcpred.estimators import tables
from dcpred.estimators.class_names import is_gap, plain_column
from dcpred.estimators.tables import learn
from dcpred.execution.dask_workers import DaskWorkers
from dcpred.execution.workers import InlineWorkers, Workers
from dcpred.training.choice import choose_settings, search_and_fit
from dcpred.training.fit import TrainingRequest, fit_model
from dcpred.training.metrics import Scorer, metric_of
from dcpred.training.policy import STANDARD, parse_budget
from dcpred_tasks.dtypes import ACC_DTYPE
from dcpred_tasks.errors import DataError, SchedulerError, SettingsError
from dcpred_tasks.input_kinds import (
    NUMBERS,
    WIDE,
    check_dense,
    check_exact,
    check_one_table,
    exact_block,
    exact_part,
    is_a,
    is_lazy,
    is_sparse,
    is_unread,
    plain_block,
    unmasked_list,
)
from dcpred_tasks.model.class_codes import class_values, joined_classes
from dcpred_tasks.model.compact_model import Model, check_features
from dcpred_tasks.model.feature_names import ATTRIBUTE, Names, feature_names, in_training_order
from dcpred_tasks.model.label_rule import Rule
from dcpred_tasks.model.uncertainty import Calibration
from dcpred_tasks.schema.frames import check_frame
from dcpred_tasks.schema.schema import ATTRIBUTE as SCHEMA_ATTRIBUTE
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.zarr_arrays import plain_text
from dcpred_tasks.task_bodies.evaluate_block import label_numbers, labels_of, part_values
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
COPY_BYTES = 16 * 2**20


def is_out_of_core(X: Any) -> bool:
    return isinstance(X, da.Array | zarr.Array)


def training_data(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any, Names | None]:
    """X, y and sample_weight as what estimators train on, in memory or Dask and Zarr arrays of known length,
    and the names of features. Raises DataError for what is neither, and where y or sample_weight is lazy and
    X in memory.
    """
    given = {"X": X, "y": y, "sample_weight": sample_weight}
    for name, data in given.items():
        check_kind(data, name)
        if is_lazy(data) and not (is_lazy(X) or isinstance(X, zarr.Array)):
            kind = "an xarray.DataArray that is not yet read" if is_unread(data) else "a Dask collection"
            raise DataError(
                f"Cannot use {name}: it is {kind}, but X is in memory. Pass X as a Dask collection or Zarr"
                f" array, too, or {name}.compute()."
            )
    names = feature_names(X)  # It also refuses columns in memory whose names repeat.
    taken = [_array(data, name, lengths=True) for name, data in given.items()]
    return taken[0], taken[1], taken[2], names if is_out_of_core(taken[0]) else None


def rows_to_score(X: Any, trained: Sequence[str] | None) -> Any:
    """X as what estimators predict: in memory, or a Dask or Zarr array, with features in the order of
    training. Nothing is computed. Raises DataError for other Dask collections, and for names that are not
    those of training.
    """
    check_kind(X, "X")
    return _array(in_training_order(X, trained), "X", lengths=False)


def check_kind(data: Any, name: str) -> None:
    """Raise DataError for what is not one table, and for Dask collections that are no arrays."""
    check_one_table(data, name)
    stored_chunks.check_given(data, name)
    kinds = ("xarray.DataArray", "dask.dataframe.DataFrame", "dask.dataframe.Series")
    if is_lazy(data) and not isinstance(data, da.Array) and not any(is_a(data, kind) for kind in kinds):
        raise DataError(
            f"Cannot use {name}: it is a Dask {type(data).__name__}, whose rows and columns are unknown"
            " before it is computed. Pass a Dask array or DataFrame; dask.array.from_delayed makes one."
        )


def _array(data: Any, name: str, *, lengths: bool) -> Any:
    """Dask DataFrames, Series and xarray.DataArrays as arrays, lazy ones lazily; other data as they are. With
    `lengths` the rows of frames are counted, which reads them once. Raises DataError for an integer in X that
    float64 would round, in lazy blocks when they are computed.
    """
    if is_a(data, "xarray.DataArray"):
        if is_lazy(data):
            return _array(_chunked(data).data, name, lengths=lengths)
        names = feature_names(data) if name == "X" else None
        if names is None or data.shape[1:] != (len(names),):
            data = np.asarray(data)
        else:
            data = data.to_pandas().set_axis(list(names), axis=1)
    if is_a(data, "dask.dataframe.DataFrame"):
        dtypes = [(f"column {column!r} of {name}", dtype) for column, dtype in data.dtypes.items()]
        dtype = _common_dtype(dtypes, masked=np.float64)
        data = data.map_partitions(exact_part, meta=data._meta) if name == "X" else data
    elif is_a(data, "dask.dataframe.Series"):
        dtype = _common_dtype([(name, data.dtype)], masked=getattr(data.dtype, "numpy_dtype", None))
        if lengths and not isinstance(data.dtype, np.dtype) and data.isna().any().compute():
            raise DataError(
                f"Cannot use {name}: it has missing values. Remove those rows, or fill the values in."
            )
    elif isinstance(data, da.Array):  # its blocks may be masked or sparse
        block = exact_block if name == "X" else plain_block
        return data.map_blocks(block, dtype=_unmasked_dtype(data), meta=np.empty((0,) * data.ndim))
    else:
        return _exact(data, lengths=lengths) if name == "X" else data
    return _parts(data, np.dtype(dtype)) if lengths else data.astype(dtype).to_dask_array()


def _exact(X: Any, *, lengths: bool) -> Any:
    """X in memory or a Zarr array after `check_exact`; a lazy array of blocks that are checked later."""
    if not (isinstance(X, zarr.Array) and X.dtype.kind in "iu" and X.dtype.itemsize == WIDE):
        check_exact(X)
        return X
    blocks = da.from_array(X).rechunk({1: -1} if X.ndim > 1 else {})
    checked = blocks.map_blocks(exact_block, dtype=X.dtype, meta=np.empty((0,) * X.ndim, X.dtype))
    if not lengths:
        return checked
    checked.any().compute()
    return X


def _unmasked_dtype(data: da.Array) -> np.dtype[Any]:
    """The dtype of the blocks once masked cells are NaN, which integers do not have."""
    masked = isinstance(data._meta, np.ma.MaskedArray) and data.dtype.kind in "biu"
    return np.dtype(np.float64) if masked else data.dtype


def _parts(data: Any, dtype: np.dtype[Any]) -> da.Array:
    """A frame of Dask as an array, each part read once to count its rows (dask#12411)."""
    parts = data.to_delayed()
    lengths = dask.compute(*[dask.delayed(len)(part) for part in parts])
    width = () if is_a(data, "dask.dataframe.Series") else (len(data.columns),)
    blocks = [
        da.from_delayed(dask.delayed(part_values)(part, dtype), (n, *width), dtype)
        for part, n in zip(parts, lengths, strict=True)
    ]
    return da.concatenate([block for block in blocks if block.shape[0]] or blocks)


def _chunked(data: Any) -> Any:
    """A lazy xarray.DataArray as one of Dask, in the chunks of its storage if it knows them."""
    if not is_unread(data):
        return data
    stored = data.encoding.get("preferred_chunks", {})
    other = -1 if data.dtype.hasobject else "auto"  # Dask does not know the size of objects.
    return data.chunk({dim: stored.get(dim, other) for dim in data.dims})


def _common_dtype(dtypes: list[tuple[str, Any]], masked: Any) -> np.dtype[Any]:
    """The dtype of all columns; `masked` if one may hold pandas.NA. Raises DataError otherwise."""
    for name, dtype in dtypes:
        if dtype.kind not in "biuf":
            raise DataError(
                f"Cannot use {name}: its dtype {dtype} is not one of numbers. Encode it as numbers first."
            )
    plain = all(isinstance(dtype, np.dtype) for _, dtype in dtypes)
    common: np.dtype[Any] = (
        np.result_type(np.bool_, *(dtype for _, dtype in dtypes)) if plain else np.dtype(masked)
    )
    return common


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
    metric: str | Scorer | None = None,
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
    x = _address(X, "X", group, folder)
    target = _address(y, "y", group, folder, None if labels is None else {"labels": list(labels)})
    weight = None if sample_weight is None else _address(sample_weight, "weight", group, folder)
    if folds is None or not folds.by_units:
        count = None if folds is None else folds.count
        folds = folds_of_data(x, None, None, count, settings.seed, y=target) or folds
    model = folder / "model"
    request = TrainingRequest(x, target, model, settings, current_workers, weight, folds)
    if budget is None:
        fit_model(request)
        return settings, None
    limit = None if budget == PLAIN else parse_budget(budget)
    report = search_and_fit(request, replace(STANDARD, metric=metric), limit)
    return make_settings(report.settings), report.found()


def choose(
    X: NDArray[Any],
    y: NDArray[Any],
    weight: NDArray[np.float64],
    settings: Settings,
    budget: str | None,
    metric: str | Scorer | None,
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
    given, policy = (rows, target, weight, settings, coded), replace(STANDARD, metric=metric)
    return choose_settings(*given, budget=limit, policy=policy, threads=threads, folds=folds)


def names_settings(estimator: Any) -> bool:
    """Whether a budget, or a setting that a search chooses, was given."""
    return estimator.budget is not None or bool(_named(estimator))


def _named(estimator: Any) -> list[str]:
    """Settings that a search chooses and that were given."""
    return [name for name in estimator.given_settings() if name not in BESIDE_A_SEARCH]


def _address(
    array: Any, name: str, group: zarr.Group, folder: Path, attributes: dict[str, Any] | None = None
) -> str:
    if isinstance(array, zarr.Array):
        address = zarr_arrays.array_address(array)
        if address is not None:
            return address
    _write(array, name, group, attributes)
    return f"{folder}/data.zarr/{name}"


def _write(array: Any, name: str, group: zarr.Group, attributes: dict[str, Any] | None = None) -> None:
    """Write an array as `name` of a group, block by block."""
    array = array if isinstance(array, da.Array) else _sized(array)
    if np.isnan(array.shape).any():
        raise DataError(
            f"Cannot use {name}: it is a Dask array of unknown length. Call its compute_chunk_sizes() first."
        )
    if array.ndim not in (1, 2) or array.dtype.kind in "cOSUTV":
        raise DataError(
            f"Cannot use {name}: it has shape {array.shape} and dtype {array.dtype}. Pass numbers, one row"
            " for each sample, and columns of text as a Dask DataFrame or Series."
        )
    if name == "X" and 0 in array.shape:
        raise DataError(
            f"Cannot use X: it has {array.shape[0]:,} rows and {array.shape[1]:,} features. Pass at least one"
            " of each."
        )
    source = array if isinstance(array, da.Array) else da.from_array(array)
    row_bytes = max(source.dtype.itemsize * int(np.prod(source.shape[1:])), 1)
    rows = min(max(COPY_BYTES // row_bytes, 1), max(source.shape[0], 1))
    names = zarr_arrays.DATA_DIMENSIONS[: source.ndim]
    shape, dtype = source.shape, source.dtype
    target = zarr_arrays.create_array(
        group, name, shape, dtype, rows, attributes=attributes, dimensions=names
    )
    whole_rows = source.rechunk((rows, *[-1] * (source.ndim - 1)))
    da.store(whole_rows, target, lock=False)


def write_data(
    X: Any,
    y: Any,
    weight: Any,
    address: str,
    trained: Sequence[str] | None,
    client: Any,
    *,
    unlabelled: bool = False,
) -> set[str]:
    """Write arrays as X, y and weight of the new data set at an address, but those that are stored. Where
    one is already, it has to hold the same values. Returns the names of its arrays.

    trained     names of features, in whose order those of X are stored; None: as they are
    client      a distributed.Client that computes Dask collections; None: the current one
    unlabelled  whether rows in memory may lack a target, which is then stored as NaN

    Raises DataError for what is no matrix of numbers, and where the address holds other data.
    """
    if tables.needs_schema(X) or needs_schema(X):
        raise DataError(
            "Cannot use data: a column holds text, dates or categories. Write it by dcpred.import_data, with"
            " target=NAME for rows to train on or like=MODEL for others, and pass that path."
        )
    if is_sparse(X):
        check_dense(X)
        X = X.toarray()
    with dask.config.set(scheduler=client) if client is not None else nullcontext():
        numbered = numbered_or_missing if unlabelled else numbered_labels
        y, classes = (None, None) if y is None else numbered(y)
        X = rows_to_score(X, trained)
        names = feature_names(X) or trained
        X, y, weight, more = training_data(X, y, weight)
        names = names or more
        every = {"X": X, "y": y, "weight": weight}
        given = {name: array for name, array in every.items() if not (array is None or _is_stored(array))}
        place = open_place(address)
        if not place.is_there():
            attributes = {
                "X": None if names is None else {ATTRIBUTE: list(names)},
                "y": None if classes is None else {"labels": [str(one) for one in classes]},
            }
            with new_data_set(place, {}) as group:
                for name, array in given.items():
                    _write(array, name, group, attributes.get(name))
            return set(given)
        for name, array in given.items():
            _check_same(array, open_array(zarr_arrays.find_array(address, name)), name, address)
    return set(given)


def _is_stored(array: Any) -> bool:
    return isinstance(array, zarr.Array) and zarr_arrays.array_address(array) is not None


def _check_same(array: Any, stored: zarr.Array[Any], name: str, address: str) -> None:
    """Raise DataError unless an array has the stored values."""
    rows = array if isinstance(array, da.Array) else da.from_array(_sized(array))
    before = da.from_array(stored)
    same = rows.shape == before.shape and rows.dtype == before.dtype
    if same:
        equal = rows == before
        same = bool((equal | ((rows != rows) & (before != before))).all().compute())
    if not same:
        raise DataError(
            f"Cannot use data: {address} holds another {name}, from an earlier call with this output. Remove"
            " it, or choose another output."
        )


def _sized(array: Any) -> Any:
    return array if isinstance(array, zarr.Array) else np.asarray(array)


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


def check_search(estimator: Any, task: str) -> None:
    """Raise SettingsError for an invalid budget or metric, and for settings that a search chooses."""
    if estimator.budget is not None:
        parse_budget(estimator.budget)
    if estimator.metric is not None:
        metric_of(estimator.metric, task, 2)
    for what in ("budget", "metric"):
        given = getattr(estimator, what)
        for name in _named(estimator) if given is not None else ():
            raise SettingsError(
                f"Cannot use {name} together with {what}={given!r}: the search for settings chooses {name}."
                " Leave one of them out."
            )


# -- DataFrames of Dask with text, categories, booleans and dates --------------------------------------------
# Workers survey and encode their parts.


def needs_schema(X: Any) -> bool:
    """Whether this is a DataFrame of Dask with columns of other things than numbers and booleans."""
    return is_a(X, "dask.dataframe.DataFrame") and not all(dtype.kind in NUMBERS for dtype in X.dtypes)


def learn_frame(X: Any, named: Collection[str]) -> tuple[Schema, da.Array]:
    """Return the schema of a DataFrame and its encoded rows, lazily. Every part is read once to survey it."""
    numeric = [name for name, dtype in zip(X.columns, X.dtypes, strict=True) if dtype.kind in "iuf"]
    parts = X.to_delayed()
    schema, n_rows = learn(parts, list(X.columns), numeric, named, _in_parallel)
    sent = dask.delayed(schema, pure=False)
    blocks = [
        da.from_delayed(dask.delayed(encoded_block)(part, sent), (n, len(schema.features)), ACC_DTYPE)
        for part, n in zip(parts, n_rows, strict=True)
    ]
    return schema, da.concatenate([block for block in blocks if block.shape[0]] or blocks)


def numbered_labels(y: Any) -> tuple[Any, NDArray[Any] | None]:
    """A target beside lazy rows, of text, dates or objects, as class numbers, and the classes, ascending;
    numbers as they are, and None. Every part of a lazy one is read once. Raises DataError for a label that is
    missing or no class.
    """
    column = _column_of_labels(y)
    if column is None:
        return y, None
    if isinstance(column, np.ndarray):
        classes, numbers = np.unique(class_values(column), return_inverse=True)
        return numbers, np.array(classes.tolist(), str) if classes.dtype.kind == "O" else classes
    parts = column.to_delayed().ravel().tolist() if isinstance(column, da.Array) else column.to_delayed()
    found = _in_parallel(labels_of, [(part,) for part in parts])
    classes = joined_classes([labels for labels, _ in found])
    blocks = [
        da.from_delayed(dask.delayed(label_numbers)(part, classes), (n_rows,), np.int64)
        for part, (_, n_rows) in zip(parts, found, strict=True)
    ]
    return da.concatenate(blocks), classes


def numbered_or_missing(y: Any) -> tuple[Any, NDArray[Any] | None]:
    """The same of a target that some rows in memory lack: NaN."""
    values = None if is_lazy(y) or isinstance(y, zarr.Array) else np.asarray(unmasked_list(y))
    missing = None if values is None or values.ndim != 1 else is_gap(y, values)
    if values is None or missing is None or not missing.any():
        return numbered_labels(y)
    known, classes = numbered_labels(values[~missing])
    numbers = np.full(len(values), np.nan)
    numbers[~missing] = known
    return numbers, classes


def _column_of_labels(y: Any) -> Any:
    """A target that is no number as a Series or array of Dask, or in memory; None for numbers."""
    check_one_table(y, "y")
    if is_a(y, "xarray.DataArray"):
        y = y.chunk() if is_unread(y) else y.data
    if isinstance(y, zarr.Array):
        rows = da.from_array(y, chunks=y.chunks)
        # Zarr keeps text as bytes, too.
        y = rows.map_blocks(plain_text, "y", dtype=f"U{y.dtype.itemsize}") if y.dtype.kind == "S" else rows
    if isinstance(y, da.Array) or is_a(y, "dask.dataframe.Series"):
        return None if y.dtype.kind in NUMBERS else y
    if y is None or is_lazy(y):
        return None
    values = np.asarray(plain_column(y))
    return values if values.dtype.kind not in NUMBERS and values.ndim == 1 else None


def encoded(X: Any, schema: Schema) -> da.Array:
    """Return the encoded rows of a DataFrame, lazily. Raises DataError for columns of another schema."""
    check_frame(schema, X)
    sent = dask.delayed(schema, pure=False)
    rows = X.map_partitions(encoded_block, sent, uuid4().hex, meta=np.empty((0, 0)))
    return da.Array(rows.dask, rows.name, (rows.chunks[0], (len(schema.features),)), ACC_DTYPE)


def _in_parallel(body: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> list[Any]:
    return list(dask.compute(*[dask.delayed(body)(*each) for each in arguments]))
