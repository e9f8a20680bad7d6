"""The input of a split: the columns of a data set, pass by pass, and the rule from them."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred.datasets.split_rules import Last, Rule, group_keys, latest, whole_groups, without_group
from dcpred_tasks.artifacts.data_schema import schema_of_given
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.class_codes import class_codes, names_of_classes
from dcpred_tasks.model.feature_names import feature_names
from dcpred_tasks.schema.column import Boolean, Category
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.training.survey import MAX_CLASSES

HELD_BYTES = 32 * 2**20  # bytes of rows of all arrays that are read at once
TEXT_BYTES = 16  # approximate bytes of a text
LISTED = 10  # maximum number of names in a message


class SplitSource:
    """Columns of the data set to split."""

    def __init__(self, data: str, X: zarr.Array[Any], arrays: Mapping[str, zarr.Array[Any]]) -> None:
        self.data, self.X, self.arrays = data, X, arrays
        row_bytes = sum(
            max(np.dtype(array.dtype).itemsize, TEXT_BYTES) * int(np.prod(array.shape[1:]))
            for array in arrays.values()
        )
        chunk_rows = zarr_arrays.chunk_rows(X)
        self.step = max(HELD_BYTES // max(row_bytes, 1) // chunk_rows, 1) * chunk_rows

    def spans(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self.X.shape[0], self.step):
            yield start, min(start + self.step, self.X.shape[0])

    def column(self, name: str) -> Iterator[NDArray[Any]]:
        """The values of an array next to X, or of a feature."""
        feature = None if name in self.arrays else self._feature(name)
        if feature is None:
            zarr_arrays.check_plain(self.arrays[name])
        for start, stop in self.spans():
            if feature is None:
                yield zarr_arrays.read_rows(self.arrays[name], start, stop)
            else:
                yield zarr_arrays.read_rows(self.X, start, stop)[:, feature]

    def _feature(self, name: str) -> int:
        names = feature_names(self.X) or ()
        if name not in names:
            there = [*(one for one, array in self.arrays.items() if array.ndim == 1), *names]
            more = f" and {len(there) - LISTED:,} more" if len(there) > LISTED else ""
            raise DataError(
                f"Cannot split rows by {name!r}: {self.data} has no one-dimensional array and no feature of"
                f" that name. Name one of {', '.join(there[:LISTED])}{more}."
            )
        return names.index(name)

    def classes(self, y: str) -> NDArray[Any] | None:
        """All different values of the target; None if they are too many for classes."""
        found: NDArray[Any] | None = None
        names, row = names_of_classes(self.arrays[y].attrs, np.dtype(self.arrays[y].dtype)), 0
        for values in self.column(y):
            if names is not None:
                class_codes(values, len(names), f"{y!r} of {self.data}", row)
                row += len(values)
            own = np.unique(zarr_arrays.plain_text(values, y))
            found = own if found is None else np.unique(np.concatenate([found, own]))
            if len(found) > MAX_CLASSES:
                return None
        return found

    def numbers(self, y: str, classes: NDArray[Any] | None) -> Callable[[], Iterator[NDArray[Any]]]:
        """Passes over class numbers."""

        def parts() -> Iterator[NDArray[Any]]:
            if classes is None:
                for start, stop in self.spans():
                    yield np.zeros(stop - start, np.int64)
                return
            for values in self.column(y):
                yield np.searchsorted(classes, zarr_arrays.plain_text(values, y))

        return parts

    def keys(self, name: str) -> Iterator[NDArray[np.uint64]]:
        """The key of the group of each row."""
        self._check_single(name)
        row = 0
        for values in self.column(name):
            _check_known(without_group(values), row, name)
            row += len(values)
            yield group_keys(values)

    def _check_single(self, name: str) -> None:
        if name in self.arrays and self.arrays[name].ndim != 1:
            raise DataError(
                f"Cannot split rows by {name!r}: it has several values a row. Name an array with one."
            )

    def rule(self, how: str, name: str | None, share: float, seed: int) -> Rule:
        """By time or by group."""
        if name is None:
            n_rows = self.X.shape[0]
            return Last(n_rows, n_rows - min(max(round(share * n_rows), 1), n_rows - 1))
        try:
            if how == "time":
                return latest(partial(self.instants, name), share)
            return whole_groups(partial(self.keys, name), share, seed)
        except ValueError as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"Cannot split rows by {name!r}: {error}. Name another array or feature."
            ) from None

    def _check_in_order(self, name: str) -> None:
        """Raise DataError for a categorical feature: its codes have no order in time."""
        schema = None if name in self.arrays else schema_of_given(self.X)
        if schema is None:
            return
        feature = self._feature(name)
        column = next(column for column, span in schema.spans if span.start <= feature < span.stop)
        if isinstance(column, Category | Boolean):
            what = "categories" if isinstance(column, Category) else "true and false"
            raise DataError(
                f"Cannot split rows by the time {name!r}: it holds {what}, which have no order in time. Name"
                " dates or numbers."
            )

    def instants(self, name: str) -> Iterator[NDArray[np.float64]]:
        """Numbers in the order of the values of an array or feature."""
        self._check_single(name)
        self._check_in_order(name)
        row = 0
        for values in self.column(name):
            instants = _as_instants(values, name)
            _check_known(np.flatnonzero(np.isnan(instants)), row, name)
            row += len(values)
            yield instants


def _check_known(missing: NDArray[np.intp], first_row: int, name: str) -> None:
    """Raise DataError if rows of a block have no value to split by."""
    if len(missing):
        raise DataError(
            f"Cannot split rows by {name!r}: row {first_row + int(missing[0]):,} has no value. Fill it in or"
            " remove such rows."
        )


def _as_instants(values: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Numbers in the order of values: numbers, dates, and text with dates in ISO 8601."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    try:
        text = (
            np.char.rstrip(zarr_arrays.plain_text(values, name), "Z")
            if values.dtype.kind in "OTSU"
            else values
        )
        dates = text.astype("datetime64[us]")
    except ValueError:
        raise DataError(
            f"Cannot split rows by the time {name!r}: it holds text that is not a date, for example"
            f" {str(values[0])!r}. Write dates as 2026-11-24 or 2026-11-24T18:00:00, or name numbers."
        ) from None
    return np.where(np.isnat(dates), np.nan, dates.astype(np.int64).astype(np.float64))
