"""The kind of data that a caller passes, and frames as matrices, without an import of the library that they
come from.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.errors import DataError
from dcpred_tasks.process import memory_bytes

GIB = 2**30
STRIP_BYTES = 64 * 2**20  # bytes of sparse rows made dense at once
LABELS = "labels"  # attribute of a target: the names of the classes 0, 1, …
WIDE = 8  # bytes of integers that float64 may not hold
EXACT_LIMIT = 2**53  # float64 holds every integer up to it
OF_ROUNDED = "Subtract a constant from the column, or leave it out."
OF_MODEL = ", columns=model.feature_names_in_"
NUMBERS = "biuf"  # kinds of the dtypes of real numbers and booleans


def is_a(data: Any, name: str) -> bool:
    """Whether `data` is of a class of another library, named as in "xarray.DataArray"."""
    library, _, class_name = name.rpartition(".")
    # Such data cannot exist before the import of the library.
    kind = getattr(sys.modules.get(library), class_name, None)
    return kind is not None and isinstance(data, kind)


def is_lazy(data: Any) -> bool:
    """Whether this is a Dask collection, or an xarray object with one or opened and not yet read."""
    if isinstance(data, type) or not hasattr(data, "__dask_graph__"):
        return False
    if is_a(data, "xarray.DataArray") or is_a(data, "xarray.Dataset"):
        return data.__dask_graph__() is not None or is_unread(data)
    return True


def is_unread(data: Any) -> bool:
    """Whether this is an xarray object, without Dask, that reads some values from a file on request."""
    if is_a(data, "xarray.Dataset"):
        return any(is_unread(array) for array in data.data_vars.values())
    # An index is always in memory.
    if not is_a(data, "xarray.DataArray") or is_a(data.variable, "xarray.IndexVariable"):
        return False
    # No public name exists for this.
    return data.__dask_graph__() is None and not getattr(data.variable, "_in_memory", True)


def is_sparse(data: Any) -> bool:
    """Whether this is a sparse matrix or array of SciPy."""
    return is_a(data, "scipy.sparse.spmatrix") or is_a(data, "scipy.sparse.sparray")


def dense_strips(X: Any) -> Iterator[NDArray[Any]]:
    """The rows of a sparse matrix as dense ones, STRIP_BYTES at a time; without rows one empty strip."""
    rows = X.tocsr()
    step = max(STRIP_BYTES // max(X.shape[1] * X.dtype.itemsize, 1), 1)
    for start in range(0, max(X.shape[0], 1), step):
        yield rows[start : start + step].toarray()


def check_dense(X: Any) -> None:
    """Raise DataError where a sparse matrix takes more than a quarter of the memory when dense."""
    size = X.shape[0] * X.shape[1] * max(X.dtype.itemsize, 8)
    most = memory_bytes() // 4
    if size > most:
        raise DataError(
            f"Cannot make X dense: its {X.shape[0]:,} rows of {X.shape[1]:,} features take {size / GIB:,.1f}"
            f" GiB, more than a quarter of this machine's memory ({most / GIB:,.1f} GiB). Choose or project"
            " features first, for example with sklearn.decomposition.TruncatedSVD."
        )


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, masked, or pandas.NA, which is neither true nor false."""
    try:
        return value is None or value is np.ma.masked or bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def unmasked(data: Any) -> Any:
    """A masked array as a plain one with NaN, as float64 where its dtype has none; others unchanged."""
    if not isinstance(data, np.ma.MaskedArray):
        return data
    if not np.ma.is_masked(data):
        return np.asarray(data)
    return np.ma.filled(data if data.dtype.kind in "fcO" else data.astype(np.float64), np.nan)


def unmasked_list(values: Any) -> Any:
    """A list with NaN for its masked cells; anything else unchanged."""
    if isinstance(values, list | tuple) and any(value is np.ma.masked for value in values):
        return [np.nan if value is np.ma.masked else value for value in values]
    return values


def refuse_rounded(values: Any, column: Any, remedy: str = "Make it text, or leave it out.") -> None:
    """Raise DataError where float64 cannot hold an integer of a column, or makes different decimals equal."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        values = values[(values > EXACT_LIMIT) | (values < -EXACT_LIMIT)].tolist()
    decimals: dict[float, Decimal] = {}
    for value in values:
        if value != value:
            continue
        if isinstance(value, Decimal) and decimals.setdefault(float(value), value) != value:
            raise DataError(
                f"Cannot use column {column!r}: it holds {decimals[float(value)]} and {value}, which float64"
                f" makes equal. {remedy}"
            )
        if abs(value) > EXACT_LIMIT and value == (whole := int(value)) and int(float(whole)) != whole:
            raise DataError(
                f"Cannot use column {column!r}: it holds the integer {whole}, which float64 would round."
                f" {remedy}"
            )


def check_exact(X: Any) -> None:
    """Raise DataError for an integer of a matrix or frame, of 64 bits or an object, that float64 rounds."""
    if is_a(X, "pandas.DataFrame"):
        _check_pandas(X)
    elif is_a(X, "polars.DataFrame"):
        for series in X:
            if series.dtype.is_integer():
                refuse_rounded(series.drop_nulls().to_numpy(), series.name)
            elif type(series.dtype).__name__ == "Decimal":
                refuse_rounded(series.drop_nulls().to_list(), series.name)
    elif is_a(X, "pyarrow.Table"):
        for name, column in zip(X.column_names, X.columns, strict=True):
            if str(column.type) in ("int64", "uint64"):
                refuse_rounded(column.drop_null().to_numpy(), name)
    elif isinstance(X, np.ndarray) and X.ndim == 2:
        _check_matrix(X, range(X.shape[1]), OF_ROUNDED)


def check_exact_rows(rows: NDArray[Any], names: Sequence[str] | None) -> None:
    """Do what `check_exact` does for stored rows whose features have these names."""
    if rows.ndim == 2:
        _check_matrix(rows, names or range(rows.shape[1]), OF_ROUNDED)


def _check_pandas(X: Any) -> None:
    places: dict[Any, list[int]] = {}
    for at, dtype in enumerate(X.dtypes):
        if _is_wide(dtype):
            places.setdefault(dtype, []).append(at)
    for dtype, same in places.items():
        if isinstance(dtype, np.dtype):
            some = X if len(same) == X.shape[1] else X.iloc[:, same]
            _check_matrix(some.to_numpy(), some.columns.tolist())
            continue
        for at in same:
            refuse_rounded(X.iloc[:, at].dropna().to_numpy(), X.columns[at])


def _check_matrix(rows: NDArray[Any], names: Sequence[Any], *remedy: str) -> None:
    if rows.dtype.kind == "O":
        for values, name in zip(rows.T, names, strict=True):
            refuse_rounded([v for v in values if isinstance(v, Integral | Decimal)], name, *remedy)
    elif _is_wide(rows.dtype) and rows.size and (rows.max() > EXACT_LIMIT or rows.min() < -EXACT_LIMIT):
        for values, name in zip(rows.T, names, strict=True):
            refuse_rounded(values, name, *remedy)


def _is_wide(dtype: Any) -> bool:
    """Whether a dtype is of integers that float64 may not hold."""
    return getattr(dtype, "kind", "O") in "iu" and getattr(dtype, "itemsize", WIDE) == WIDE


def exact_block(block: Any) -> NDArray[Any]:
    """A block of rows as `plain_block` gives it. Raises DataError as `check_exact` does."""
    rows = plain_block(block)
    check_exact(rows)
    return rows


def exact_part(part: Any) -> Any:
    """One of the frames that make a table, unchanged. Raises DataError as `check_exact` does."""
    check_exact(part)
    return part


def plain_block(block: Any) -> NDArray[Any]:
    """A block of a Dask array as a plain array: blocks may be masked or sparse."""
    return block.toarray() if is_sparse(block) else np.asarray(unmasked(block))


def plain_numbers(X: Any) -> Any:
    """Lists and arrays with missing values (None, pandas.NA, masked cells) as numbers with NaN, and frames of
    pandas with only sparse columns as dense ones, which scikit-learn does not convert; anything else
    unchanged. Raises DataError for text, and as `check_dense` does.
    """
    X = as_table(X)
    if isinstance(X, list | tuple):
        X = [unmasked_list(unmasked(row)) for row in X]
        try:
            array = np.asarray(X)
        except ValueError:
            raise DataError(
                "Cannot use X: its rows have different lengths. Pass as many values in each."
            ) from None
        if array.dtype.kind == "f" and array.ndim == 2 and (np.abs(array) >= EXACT_LIMIT).any():
            check_exact(np.array(X, object))  # NumPy would round them.
        if array.ndim != 2:
            check_is_matrix(array.shape, for_rows(X))
        check_one_table(array, "X")
        check_exact(array)
        return X if array.dtype.kind in NUMBERS else _as_floats(array)
    if isinstance(X, np.ndarray):
        return _as_floats(unmasked(X))
    if is_a(X, "pandas.DataFrame") and X.shape[1] and all(hasattr(dtype, "fill_value") for dtype in X.dtypes):
        check_dense(X.sparse.to_coo())
        return X.sparse.to_dense()
    return X


def as_table(X: Any) -> Any:
    """A record batch of Arrow, and a list of dicts, as a table; anything else unchanged. Raises DataError for
    a column of dicts that holds values of several kinds.
    """
    if is_a(X, "pyarrow.RecordBatch"):
        return sys.modules["pyarrow"].Table.from_batches([X])
    return _of_records(X) if is_records(X) else X


def is_records(X: Any) -> bool:
    """Whether this is a list of rows that are dicts."""
    return isinstance(X, list | tuple) and len(X) > 0 and all(isinstance(row, Mapping) for row in X)


def _of_records(records: Sequence[Mapping[Any, Any]]) -> Any:
    """A table of records; what one of them lacks is missing."""
    try:
        import pyarrow as arrow
    except ImportError:  # only dcpred-serving is installed
        raise DataError("Cannot use X: it is a list of dicts. Pass pandas.DataFrame(X).") from None
    names = list(dict.fromkeys(str(name) for record in records for name in record))
    if not names:
        raise DataError("Cannot use X: its dicts are empty. Pass a value for each column.")
    columns = {}
    for name in names:
        try:
            columns[name] = arrow.array([record.get(name) for record in records], from_pandas=True)
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, arrow.ArrowNotImplementedError, OverflowError):
            raise DataError(
                f"Cannot use column {name!r} of X: its dicts hold values of several kinds. Make them numbers,"
                " text, dates or booleans."
            ) from None
    return arrow.table(columns)


def _as_floats(array: NDArray[Any]) -> NDArray[Any]:
    """Objects as float64, NaN for missing; others unchanged. Raises DataError for text and dates."""
    if array.dtype.kind not in "OUSTMm" or array.ndim != 2:  # check_is_matrix refuses other shapes
        return array
    for at, value in np.ndenumerate(array):
        if isinstance(value, str | bytes | date | np.datetime64 | np.timedelta64) and not is_missing(value):
            raise DataError(
                f"Cannot use X: it holds {'text' if isinstance(value, str | bytes) else 'dates or times'}"
                f" ({str(value)[:60]!r}) in row {at[0]:,}, column {at[1]}. Pass numbers, or a frame, whose"
                " columns of text and dates are encoded."
            )
    check_exact(array)
    missing = np.array([is_missing(value) for value in array.flat], bool).reshape(array.shape)
    return np.where(missing, np.nan, array).astype(np.float64)


def check_is_matrix(shape: tuple[Any, ...], advice: str = "") -> None:
    """Raise DataError unless this is the shape of a matrix, with the words that scikit-learn requires, and
    what to do.
    """
    if len(shape) != 2:
        sizes = f", shape {tuple(shape)}" if all(isinstance(n, int) for n in shape) else ""
        raise DataError(
            f"X must be a matrix (n_samples, n_features), but it has {len(shape)}"
            f" dimension{'s' * (len(shape) != 1)}{sizes}. Reshape your data to one row per sample."
            + (advice and f" {advice}.")
        )


def check_one_table(data: Any, name: str, columns: Sequence[str] | None = None) -> None:
    """Raise DataError unless this is one array or frame of real values: for a dict, a Dataset of xarray, an
    uncollected polars query, complex numbers, and X that is not two-dimensional.

    columns  those of a model that encodes a frame
    """
    if is_a(data, "xarray.Dataset"):
        raise DataError(
            f"Cannot use {name}: it is an xarray.Dataset, which holds several arrays."
            f" {_for_dataset(data, name)}"
        )
    kind = getattr(getattr(data, "dtype", None), "kind", "")  # lazy where data are Delayed
    if isinstance(kind, str) and kind == "c":  # scikit-learn requires these words
        raise DataError(
            f"Cannot use {name}: it has dtype {data.dtype} (Complex data not supported). Pass real numbers,"
            f" for example {name}.real and {name}.imag."
        )
    if isinstance(data, str | bytes | os.PathLike):
        raise DataError(
            f"Cannot use {name}: {str(data)[:60]!r} is a path, not rows. Read it, for example with"
            " pandas.read_csv, or use `dcpred import`."
        )
    if isinstance(data, Mapping) and not is_sparse(data):  # a DOK array is also a dict
        raise DataError(f"Cannot use {name}: {_for_mapping(data, name)}")
    if is_a(data, "polars.LazyFrame"):
        raise DataError(
            f"Cannot use {name}: it is a polars LazyFrame, which holds no rows yet. Pass {name}.collect()."
        )
    if name == "X" and not _may_hold_rows(data):
        raise DataError(
            f"Cannot use X: a value of type {type(data).__name__} does not hold rows."
            f" {for_rows(data, columns)}."
        )
    shape = getattr(data, "shape", None)
    if name == "X" and isinstance(shape, tuple) and len(shape) != 2:
        check_is_matrix(shape, for_rows(data, columns))


def _may_hold_rows(data: Any) -> bool:
    """Whether data are a list, a tuple, an array of any library, or a frame."""
    if is_a(data, "pyarrow.Array") or is_a(data, "pyarrow.ChunkedArray") or isinstance(data, type):
        return False
    signs = ("shape", "__array__", "__dask_graph__", "__dataframe__")
    return isinstance(data, list | tuple) or any(hasattr(data, sign) for sign in signs)


def _for_mapping(data: Mapping[Any, Any], name: str) -> str:
    """What a dict is, and what to pass for it."""
    if not len(data):
        return "it is an empty dict. Pass rows, for example as a frame."
    if hasattr(data, "as_py"):  # a scalar of Arrow
        return f"it is one row as a scalar of Arrow. Pass [{name}.as_py()]."
    sizes = {key: None if _is_cell(value) else len(value) for key, value in data.items()}
    lengths = {size for size in sizes.values() if size is not None}
    if not lengths:
        return f"it is a dict of one row. Pass pandas.DataFrame([{name}])."
    if len(lengths) > 1:
        first, second = list(dict((size, key) for key, size in sizes.items() if size is not None).items())[:2]
        return (
            f"it is a dict of columns of different lengths ({first[1]!r} has {first[0]:,} values,"
            f" {second[1]!r} has {second[0]:,}). Give each column as many values."
        )
    if any(getattr(value, "ndim", 1) > 1 for value in data.values()):
        return f"it is a dict of arrays. Pass one of them: {name}[{next(iter(data))!r}]."
    return f"it is a dict of columns. Pass pandas.DataFrame({name})."


def for_rows(X: Any, columns: Sequence[str] | None = None) -> str:
    """What to pass in place of X, which is neither a matrix nor, for a model of `columns`, a frame."""
    named = OF_MODEL if columns is not None else ""
    if is_a(X, "pandas.Series"):
        return "For one row pass X.to_frame().T, for one column X.to_frame()"
    if is_a(X, "polars.Series") and hasattr(X.dtype, "fields"):
        return "Pass X.struct.unnest()"
    if is_a(X, "pyarrow.StructArray") or (
        is_a(X, "pyarrow.ChunkedArray") and is_a(X.type, "pyarrow.StructType")
    ):
        return "Pass X.to_pylist()"
    if is_a(X, "polars.Series") or is_a(X, "pyarrow.Array") or is_a(X, "pyarrow.ChunkedArray"):
        row = "X.to_list()" if is_a(X, "polars.Series") else "X.to_pylist()"
        return f"For one row pass {_row(row, named)}"
    if is_a(X, "xarray.DataArray"):
        return f"For one row pass {_row('X.values', named)}"
    if isinstance(X, np.ndarray | np.void) and X.dtype.names:
        return "Pass pandas.DataFrame(numpy.atleast_1d(X))"
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1 and is_records(X.tolist()):
        return "Pass X.tolist()"
    if isinstance(X, np.ndarray) and X.ndim == 1:
        if named:
            return f"For one row pass {_row('X', named)}"
        return "For one row pass X.reshape(1, -1), for one feature X.reshape(-1, 1)"
    if isinstance(X, Iterator):
        return "Pass list(X)"
    if is_a(X, "zarr.Group") and (arrays := [name for name, array in X.arrays() if array.ndim == 2]):
        return f"Pass one of its arrays: X[{arrays[0]!r}]"
    if isinstance(X, list | tuple) and len(X):
        return _of_list(X, columns, named)
    if isinstance(X, np.ndarray) and X.ndim == 2 and columns is not None and X.shape[1] == len(columns):
        return f"Pass pandas.DataFrame(X{named})"
    return "Pass a frame with the columns of model.feature_names_in_" if named else "Pass rows of numbers"


def _of_list(X: Sequence[Any], columns: Sequence[str] | None, named: str) -> str:
    if all(is_a(row, "pandas.Series") for row in X):
        return "Pass pandas.DataFrame(X)"
    if all(isinstance(name, str) for name in X) and columns is not None and set(X) <= set(columns):
        return "These are names of columns: pass rows, a frame with these columns"
    numbers = all(isinstance(value, Real) or is_missing(value) for value in X)
    if all(_is_cell(value) for value in X) and (numbers or named):
        fits = columns is None or len(X) == len(columns)
        return f"For one row pass {_row('X', named)}" if fits else _counts(X, columns)
    if columns is not None and all(isinstance(row, list | tuple | np.ndarray) for row in X):
        if {len(row) for row in X} == {len(columns)} and all(_is_cell(v) for row in X for v in row):
            return f"Pass pandas.DataFrame(X{named})"
        return _counts(X[0], columns)
    return "Pass a frame with the columns of model.feature_names_in_" if named else "Pass rows of numbers"


def _counts(row: Sequence[Any], columns: Sequence[str] | None) -> str:
    return (
        f"A row has {len(row):,} values, and the model {len(columns or ()):,} columns: pass a frame with the"
        " columns of model.feature_names_in_"
    )


def _row(row: str, named: str) -> str:
    return f"pandas.DataFrame([{row}]{named})" if named else f"[{row}]"


def _is_cell(value: Any) -> bool:
    """Whether a value is one of a row, not a column."""
    return isinstance(value, str | bytes) or not hasattr(value, "__len__") or getattr(value, "ndim", 1) == 0


def _for_dataset(data: Any, name: str) -> str:
    """What to pass for a Dataset of xarray."""
    arrays = data.data_vars
    n_dims = 2 if name == "X" else 1
    fitting = [name_of_array for name_of_array, array in arrays.items() if array.ndim == n_dims]
    if fitting:
        return f"Pass one of them: {name}[{fitting[0]!r}]."
    if (
        name == "X"
        and len(arrays)
        and all(array.ndim == 1 for array in arrays.values())
        and len(data.dims) == 1
    ):
        return "Pass X.to_dataframe()."
    return "None of them has rows and columns: pass a matrix or a frame."


def as_matrix(X: Any) -> NDArray[Any]:
    """X as a NumPy array. A frame whose columns are numbers of several kinds, or hold pandas.NA, becomes
    float64 with NaN.

    Raises DataError for a column of such a frame that does not hold numbers, and as `plain_numbers` does.
    """
    X = plain_numbers(X)
    columns = list(zip(getattr(X, "columns", ()), getattr(X, "dtypes", ()), strict=False))
    # Only frames made as those of pandas have columns of NumPy's kinds.
    of_pandas = bool(columns) and all(hasattr(dtype, "kind") for _, dtype in columns)
    for column, dtype in columns if of_pandas else ():
        if dtype.kind not in NUMBERS and not (dtype == np.dtype(object) and _holds_numbers(X[column])):
            raise DataError(
                f"Cannot use column {column!r} of X: its dtype {dtype} is not numeric. Encode it as numbers"
                " first."
            )
    check_exact(X)
    array = np.asarray(X)
    check_exact(array)
    if array.dtype.kind in NUMBERS or array.ndim != 2 or not of_pandas:
        return _as_floats(array)
    return np.asarray(X.to_numpy(dtype=np.float64, na_value=np.nan))


def _holds_numbers(column: Any) -> bool:
    """Whether a column of objects holds only numbers and missing values."""
    return all(isinstance(value, Real) or is_missing(value) for value in column)
