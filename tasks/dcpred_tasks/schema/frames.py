"""Columns of frames (pandas, polars, pyarrow) as cells, and frames as rows of features.

No library of frames is imported: a caller with a frame has imported it. Frames with only numbers take another
path.
"""

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray
from dcpred_tasks.errors import DataError, doubled, listed
from dcpred_tasks.input_kinds import NUMBERS, is_a, refuse_rounded
from dcpred_tasks.remarks import DataWarning, Remark
from dcpred_tasks.schema.column import (
    CATEGORY,
    DATE,
    IN_WORDS,
    NUMBER,
    TEXT,
    Category,
    Cells,
    booleans,
    dates,
    levelled,
    numbers,
    without,
)
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.schema.unknown_categories import unknown_in, unknown_remark

FRAMES = ("pandas.DataFrame", "polars.DataFrame", "pyarrow.Table")
ARROW_NUMBERS = ("int", "uint", "float", "double", "halffloat")  # prefixes of names of types
_calls: dict[str, Any] = {}  # calls that warned in this process, with their object on the scheduler
WRITTEN_COLUMNS, WRITTEN_ROWS = 16, 2**11  # columns and rows that are written to rows at once
MISSING = ("NAType", "NaTType", "NoneType")  # types of missing values of pandas and Python


def is_frame(X: Any) -> bool:
    return any(is_a(X, kind) for kind in FRAMES)


def column_names(X: Any) -> list[Any]:
    """The names of the columns of a frame, unchanged."""
    return list(X.column_names if is_a(X, "pyarrow.Table") else X.columns)


def number_columns(X: Any, *, booleans: bool = False) -> list[Any]:
    """The columns of a frame that hold numbers, as columns of a matrix; with booleans on request."""
    wanted = NUMBERS if booleans else NUMBERS.replace("b", "")
    if is_a(X, "pandas.DataFrame"):
        kinds = [getattr(dtype, "kind", "O") in wanted for dtype in X.dtypes]
    elif is_a(X, "polars.DataFrame"):
        kinds = [dtype.is_numeric() or (booleans and _polars_kind(dtype) == "Boolean") for dtype in X.dtypes]
    else:
        arrow = ARROW_NUMBERS + (("bool",) if booleans else ())
        kinds = [str(kind).startswith(arrow) for kind in X.schema.types]
    return [name for name, is_number in zip(column_names(X), kinds, strict=True) if is_number]


def is_numeric(X: Any) -> bool:
    """Whether every column of a frame holds numbers or booleans: the frame is a matrix."""
    return len(number_columns(X, booleans=True)) == len(column_names(X))


def frame_cells(X: Any, name: str) -> Cells:
    """The values of the column `name` of a frame. Raises DataError for a value that a table cannot hold."""
    if is_a(X, "pandas.DataFrame"):
        return series_cells(X[name], name)
    if is_a(X, "polars.DataFrame"):
        return _polars_cells(X[name], name)
    return _arrow_cells(X.column(name), name)


# -- pyarrow -------------------------------------------------------------------------------------------------


def _arrow_cells(column: Any, name: str) -> Cells:
    """The values of an array of Arrow, one by one where its type is not one of tables."""
    # Only a caller with such an array has pyarrow.
    from dcpred_tasks.tables.arrow_columns import arrow_cells, is_common, whole_array

    plain = whole_array(column)
    if not is_common(plain.type):
        return object_cells(plain.to_pylist(), name)
    cells = arrow_cells(plain, name, "X")
    if cells.kind == NUMBER and plain.type.byte_width == 8:
        refuse_rounded(plain.drop_null().to_numpy(), name)
    return cells


# -- pandas --------------------------------------------------------------------------------------------------


def series_cells(series: Any, name: str) -> Cells:
    """The values of a Series of pandas."""
    dtype = series.dtype
    if hasattr(dtype, "categories") and hasattr(dtype, "ordered"):
        return _declared(series.cat.codes.to_numpy(), list(dtype.categories), name)
    kind, of_numpy = getattr(dtype, "kind", "O"), isinstance(dtype, np.dtype)
    if kind in NUMBERS and of_numpy:
        values = series.to_numpy()
        return booleans(values) if kind == "b" else numbers(values)
    if kind in NUMBERS:
        gap = series.isna().to_numpy(dtype=bool)
        if kind == "b":
            return booleans(series.to_numpy(dtype=bool, na_value=False), gap)
        if kind != "f":
            refuse_rounded(series.dropna().to_numpy(), name)
        return numbers(series.to_numpy(dtype=ACC_DTYPE, na_value=np.nan), gap)
    if kind == "M" and of_numpy:
        return dates(series.to_numpy(), False)
    if kind == "M" and hasattr(dtype, "tz"):
        return dates(series.dt.tz_convert(None).to_numpy(), True)
    try:
        positions, levels = series.factorize()
    except TypeError:  # it holds lists or other unhashable values
        return object_cells(series.tolist(), name)
    return _of_levels(np.asarray(positions), levels.tolist(), name)


# -- polars --------------------------------------------------------------------------------------------------


def _polars_kind(dtype: Any) -> str:
    return type(dtype).__name__ if not isinstance(dtype, type) else dtype.__name__


def _polars_cells(series: Any, name: str) -> Cells:
    kind = _polars_kind(series.dtype)
    if kind in ("Categorical", "Enum"):
        return _with_levels(series.cast(str).to_list(), partial(levelled, declared=True))
    if kind == "Boolean":
        gap = series.is_null().to_numpy()
        return booleans(series.fill_null(False).to_numpy(), gap)
    if kind == "Decimal":
        refuse_rounded(series.drop_nulls().to_list(), name)
        return numbers(series.cast(float).to_numpy())
    if series.dtype.is_numeric():
        return numbers(np.asarray(series.to_numpy()))
    if kind == "Datetime":
        zoned = getattr(series.dtype, "time_zone", None) is not None
        if zoned:
            series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return dates(series.to_numpy(), zoned)
    if kind == "Date":
        return dates(series.to_numpy(), False)
    return object_cells(series.to_list(), name)


# -- Python's objects ----------------------------------------------------------------------------------------


def object_cells(values: Sequence[Any], name: str) -> Cells:
    """Cells of a column of Python's objects, one by one."""
    return _with_levels(
        [None if _is_missing(value) else _hashable(value, name) for value in values],
        lambda positions, levels: _of_levels(positions, levels, name),
    )


def _with_levels(values: Sequence[Any], cells: Callable[[NDArray[Any], list[Any]], Cells]) -> Cells:
    codes: dict[Any, int] = {}
    # 1, 1.0 and True are the same key but different values.
    at = [-1 if value is None else codes.setdefault((type(value), value), len(codes)) for value in values]
    return cells(np.array(at, np.int64), [value for _, value in codes])


def _is_missing(value: Any) -> bool:
    return type(value).__name__ in MISSING or (isinstance(value, float) and value != value)


def _hashable(value: Any, name: str) -> Any:
    if not isinstance(value, Hashable):
        _level_kind(value, name)
    return value


def _declared(codes: NDArray[Any], levels: list[Any], name: str) -> Cells:
    """Cells of a categorical column: text, numbers or booleans."""
    if all(isinstance(level, str | Real) for level in levels):
        return levelled(codes, levels, declared=True)
    cells = _of_levels(codes, levels, name)
    if cells.kind == CATEGORY:
        return cells
    raise DataError(
        f"Cannot use column {name!r} of X: its categories are {IN_WORDS[cells.kind]}. Make them text or"
        " numbers."
    )


def _of_levels(positions: NDArray[Any], levels: list[Any], name: str) -> Cells:
    """Cells from the distinct values of a column, all of one kind."""
    gap = positions < 0
    kinds = Counter(_level_kind(level, name) for level in levels)
    if len(kinds) > 1:
        (a, x), (b, y) = sorted({_level_kind(level, name): level for level in levels}.items())[:2]
        raise DataError(
            f"Cannot use column {name!r} of X: it holds {IN_WORDS[a]} ({str(x)!r}) and {IN_WORDS[b]}"
            f" ({str(y)!r}). Make it one of them."
        )
    kind = next(iter(kinds), NUMBER)
    if kind == TEXT:
        return levelled(positions, levels)
    if kind == DATE:
        table = np.array([_instant(level) for level in levels] + [np.datetime64("NaT")], "datetime64[us]")
        return dates(table[positions], *{getattr(level, "tzinfo", None) is not None for level in levels})
    if kind == NUMBER:
        refuse_rounded((level for level in levels if isinstance(level, int | Decimal)), name)
        return numbers(np.array([*map(float, levels), np.nan], ACC_DTYPE)[positions], gap)
    return booleans(np.array([*map(bool, levels), False])[positions], gap)


def _level_kind(level: Any, name: str) -> str:
    if isinstance(level, str):
        return TEXT
    if isinstance(level, bool | np.bool_):
        return "boolean"
    if isinstance(level, Real | Decimal):
        return NUMBER
    if isinstance(level, date | np.datetime64):
        return DATE
    if type(level).__name__ == "Period":
        raise DataError(
            f"Cannot use column {name!r} of X: it holds periods ({str(level)!r}). Convert it with"
            " .dt.to_timestamp(), or leave it out."
        )
    raise DataError(
        f"Cannot use column {name!r} of X: it holds {type(level).__name__} ({str(level)[:60]!r}), which is"
        " neither number, text, date nor boolean. Convert it or leave it out."
    )


def _instant(level: Any) -> np.datetime64:
    if isinstance(level, datetime) and level.tzinfo is not None:
        level = level.astimezone(UTC).replace(tzinfo=None)
    return np.datetime64(level, "us")


# -- Frames --------------------------------------------------------------------------------------------------


def check_frame(schema: Schema, X: Any) -> None:
    """Raise DataError unless a frame has the columns of all features, and no unknown others."""
    given = column_names(X)
    wanted = [column.name for column in schema.sources]
    if (twice := doubled(name for name in given if name in {*wanted})) is not None:
        raise DataError(f"Cannot use X: two columns are named {twice!r}. Rename one.")
    missing = [name for name in wanted if name not in set(given)]
    if missing:
        raise DataError(
            f"Cannot use X: it lacks {_listed(missing)}, which the model was trained with. Add the columns of"
            " model.feature_names_in_."
        )
    known = {column.name for column in schema.columns}
    further = [name for name in given if name not in known]
    if further:
        raise DataError(
            f"Cannot use X: it has {_listed(further)} beside the columns that the model was trained with."
            " Select X[model.feature_names_in_]."
        )


def encode_frame(schema: Schema, X: Any, *, warns: bool | str = False) -> FloatArray:
    """Rows of features, float64 (n, n_features), of a frame whose columns may be in any order. Raises
    DataError for a missing or further column, or for values that the schema does not accept.

    warns  whether to warn of columns with many unknown categories, or misspelt ones; for one part of many the
           name of the call, which warns once
    """
    check_frame(schema, X)
    out = np.empty((len(X), len(schema.features)), ACC_DTYPE)
    unknown: list[Remark] = []
    waiting: list[tuple[slice, FloatArray]] = []
    for column, span in schema.spans:
        cells = without(frame_cells(X, column.name), schema.gap_texts)
        if isinstance(column, Category):
            positions = column.positions(cells)
            waiting.append((span, column.at(positions)))
            n = int(np.count_nonzero(positions != column.gap))
            if warns and (its := unknown_in(column, cells, positions)) and its.is_noticeable(n):
                subject = f"{column.name} in {its.rows / n:.0%} of its values"
                unknown.append(unknown_remark(its, subject, n))
        else:
            waiting.append((span, column.encode(cells)))
        if len(waiting) == WRITTEN_COLUMNS:
            _write(out, waiting)
            waiting = []
    _write(out, waiting)
    if unknown and (not isinstance(warns, str) or _is_first(warns)):
        _warn(" | ".join(each.text for each in unknown))
    return out


def _write(out: FloatArray, columns: list[tuple[slice, FloatArray]]) -> None:
    """Write columns of features to rows, some rows at a time, which stay in cache."""
    for start in range(0, len(out), WRITTEN_ROWS):
        rows = slice(start, start + WRITTEN_ROWS)
        for span, values in columns:
            out[rows, span] = values[rows]


def _is_first(call: str) -> bool:
    """Whether this part of a call is the first to warn, on all workers of Dask."""
    mine = object()
    if _calls.setdefault(call, mine) is not mine:
        return False
    distributed = sys.modules.get("distributed")
    try:
        if distributed is None or distributed.get_worker() is None:
            return True
    except ValueError:  # not on a worker
        return True
    _calls[call] = lock = distributed.Lock(f"dcpred-{call}")
    return bool(lock.acquire(blocking=False))


def _warn(message: str) -> None:
    """Warn the caller; on a worker of Dask its client, too."""
    warn = getattr(sys.modules.get("distributed.worker"), "warn", warnings.warn)
    warn(message, DataWarning, stacklevel=4)


def _listed(names: Sequence[Any]) -> str:
    return f"the column{'s' if len(names) > 1 else ''} {listed([*map(repr, names)], 3)}"
