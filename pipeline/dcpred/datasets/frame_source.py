"""Frames of pandas, polars and pyarrow as sources (source.py)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dcpred.datasets.arrow_files import batch_rows
from dcpred.datasets.source import Columns
from dcpred.datasets.table import check_names, no_rows
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import is_a
from dcpred_tasks.schema.frames import FRAMES, column_names, is_frame
from dcpred_tasks.schema.inference import SHOWN

NAME = "the frame"


@dataclass(frozen=True)
class FrameRows:
    """Rows of a frame that is in memory."""

    frame: Any
    types: Mapping[str, Any]
    name: str = NAME

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        rows = batch_rows(len(names))
        for start in range(0, len(self.frame), rows):
            yield {name: _column(self.frame, name, self.types[name], start, rows) for name in names}


def read_frame(frame: Any, named: Collection[str] = ()) -> FrameRows:
    """A frame whose columns are named by strings, or numbered. The index of a pandas frame is a column only
    if an option names it.
    """
    if isinstance(frame, list | tuple) and frame and all(isinstance(record, Mapping) for record in frame):
        frame = _of_records(frame)
    if is_a(frame, "polars.LazyFrame"):
        raise DataError("Cannot read a polars LazyFrame: it has to be collected first. Pass frame.collect().")
    if not is_frame(frame):
        raise DataError(
            f"Cannot import from {type(frame).__module__}.{type(frame).__name__}: it is not a table. Pass"
            " the name"
            f" of a file, a list of dicts, or a frame of"
            f" {', '.join(kind.partition('.')[0] for kind in FRAMES)}."
        )
    if is_a(frame, "pandas.DataFrame") and (index := set(frame.index.names) & set(named)):
        frame = frame.reset_index([name for name in frame.index.names if name in index])
    names = column_names(frame)
    if names == list(range(len(names))):
        names = [str(name) for name in names]
        frame = frame.set_axis(names, axis=1)
    others = [name for name in names if not isinstance(name, str)]
    if others:
        raise DataError(
            f"Cannot read the frame: the column {others[0]!r} is not named by a string. Rename it, for"
            " example by"
            " frame.columns = frame.columns.astype(str)."
        )
    check_names(NAME, names)
    if len(frame) == 0:
        raise no_rows(NAME)
    return FrameRows(frame, {name: _type(frame, name) for name in names})


def _of_records(records: Sequence[Mapping[str, Any]]) -> Any:
    """A table of records; what one of them lacks is missing."""
    names = dict.fromkeys(name for record in records for name in record)
    others = [name for name in names if not isinstance(name, str)]
    if others:
        raise DataError(f"Cannot read records: the key {others[0]!r} is not text. Rename it.")
    return pa.table({name: _of_values([r.get(name) for r in records], name, None) for name in names})


def _type(frame: Any, name: str) -> Any:
    """The Arrow type of all values of a column."""
    if is_a(frame, "pyarrow.Table"):
        return frame.schema.field(name).type
    if is_a(frame, "polars.DataFrame"):
        return frame.select(name).head(1).to_arrow().schema.field(0).type
    series = frame[name]
    # Only Python objects have to be inspected for their type.
    return _of_values(series if series.dtype == object else series.iloc[:1], name, None).type


def _column(frame: Any, name: str, kind: Any, start: int, rows: int) -> Any:
    if is_a(frame, "pandas.DataFrame"):
        return _of_values(frame[name].iloc[start : start + rows], name, kind)
    part = frame.slice(start, rows)
    table = part if is_a(frame, "pyarrow.Table") else part.select(name).to_arrow()
    return table.column(name).combine_chunks()


def _of_values(values: Any, name: str, kind: Any) -> Any:
    """A series of pandas, or a list, as an Arrow array."""
    try:
        found = pa.array(values, type=kind, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        large = next(
            ((i, v) for i, v in enumerate(values) if isinstance(v, int) and not -(2**63) <= v < 2**63), None
        )
        if large is not None:
            raise DataError(
                f"Cannot import column {name!r} of {NAME}: it holds {str(large[1])[:SHOWN]} in row"
                f" {large[0]:,} (counted from 0), which is too large for an integer of 64 bits;"
                " convert the column to text, and store it as an id, or convert it to float where"
                " rounding does not matter"
            ) from None
        raise DataError(
            f"Cannot import column {name!r} of {NAME}: it holds values of several kinds, or of a kind for"
            " which"
            f" tables have no type ({str(error).splitlines()[0]}). Make them numbers, text, dates or"
            " booleans."
        ) from None
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    if isinstance(kind, pa.BaseExtensionType) and found.type != kind:
        return pa.ExtensionArray.from_storage(kind, found)
    return found
