"""Folds of rows by time, by group or by number, for training and for a splitter of scikit-learn. Columns are
read in passes; each row takes two bytes of memory.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.datasets.split_rules import MOST_GROUPS, BoolArray, Values, group_keys, without_group
from dcpred.datasets.split_source import SplitSource
from dcpred_tasks.dtypes import INDEX_DTYPE, FloatArray, IntArray
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.input_kinds import unmasked
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.training.folds import FOLDS, SPANS, UNITS, Folds, check_count, grouped_units
from dcpred_tasks.training.sampling import row_hash

LATEST = "the latest rows"
FIRST = 0.5  # fraction of the rows, the first in time, that are never held out
SPANS_OF_TIME = 3
MOST_SORTED = 2**21  # maximum number of values that define spans of time


def folds_of_data(
    x: str,
    by_time: str | None,
    by_group: str | None,
    count: int | None,
    seed: int,
    used: BoolArray | None = None,
) -> Folds | None:
    """The folds of the options; None without options.

    x         address of the features; other columns are arrays of as many rows in the same group
    by_time   a column by name: each fold is held out from the rows before it. "": the stored order
    by_group  a column by name: rows of one value are in one fold
    count     number of folds
    used      bool (n_rows,), the rows to use; None: all

    Raises SettingsError, and DataError for an unusable column.
    """
    if by_time is not None and by_group is not None:
        raise SettingsError("--by-time and --by-group exclude each other. Choose one of them.")
    if count is not None:
        check_count(count)
    if by_time is None and by_group is None:
        return None if count is None else Folds(seed, count, words=f"{count} folds of rows")
    X = zarr_arrays.open_array(x)
    if by_time == "":
        order = [np.arange(X.shape[0], dtype=np.float64)]
        return _of_used(
            lambda parts: by_spans(parts, count, f"{LATEST} as they are"), lambda: iter(order), used
        )
    data = x.rpartition("/")[0]
    beside = dict(zarr_arrays.arrays_of(zarr_arrays.open_group(data)))
    arrays = {name: array for name, array in beside.items() if array.shape[:1] == X.shape[:1]}
    source = SplitSource(data, X, arrays)
    name = by_group if by_time is None else by_time
    assert name is not None
    try:
        if by_time is not None:
            make = partial(by_spans, count=count, words=f"{LATEST} by {name!r}")
            return _of_used(make, partial(source.instants, name), used)
        make = partial(by_groups, count=count, seed=seed, words=f"whole groups of {name!r}")
        return _of_used(make, partial(source.keys, name), used)
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"Cannot hold out rows by {name!r} of {data}: {error}. Name another array or feature."
        ) from None


def _of_used(make: Callable[[Values], Folds], parts: Values, used: BoolArray | None) -> Folds:
    """Folds of the rows in use; others have the unit 0."""
    if used is None:
        return make(parts)

    def kept() -> Iterator[NDArray[Any]]:
        start = 0
        for values in parts():
            yield values[used[start : start + len(values)]]
            start += len(values)

    found = make(kept)
    unit = np.zeros(len(used), np.uint16)
    unit[used] = np.asarray(found.unit)
    return replace(found, unit=unit)


def by_spans(parts: Values, count: int | None, words: str) -> Folds:
    """The first half of the rows only trains; the others form spans of time, each of which is held out from
    all rows before it. Rows of one value are in one span. Raises ValueError if all values are equal.

    parts  float64 values, without NaN
    """
    count = SPANS_OF_TIME if count is None else count
    kept, n_rows = [], sum(len(values) for values in parts())
    start, share = 0, min(MOST_SORTED / max(n_rows, 1), 1.0)
    for values in parts():
        number = np.arange(start, start + len(values), dtype=INDEX_DTYPE)
        kept.append(values[row_hash(number, 0) <= np.uint64(share * (2.0**64 - 2**12))])
        start += len(values)
    distinct, rows = np.unique(np.concatenate(kept), return_counts=True)
    if len(distinct) < 2:
        raise ValueError("all rows have the same value")
    if len(distinct) <= count:  # The first value only trains.
        spans = "1 span" if len(distinct) == 2 else f"{len(distinct) - 1} spans"
        words += f" (in {spans} and not {count}, since there are only {len(distinct)} values)"
    before = np.cumsum(rows) - rows
    first = _begins(before, int(rows.sum()), min(count, len(distinct) - 1))
    fold = np.zeros(len(distinct), INDEX_DTYPE)
    fold[first[1:]] = 1
    fold = np.cumsum(fold)
    sizes = np.bincount(fold, rows)
    span = ((before - before[first][fold]) * SPANS // sizes[fold]).astype(INDEX_DTYPE)
    unit = (UNITS * fold + span).astype(np.uint16)
    each = [unit[np.clip(np.searchsorted(distinct, v, "right") - 1, 0, None)] for v in parts()]
    return Folds(0, len(first) - 1, np.concatenate(each), ordered=True, clustered=True, words=words)


def _begins(before: IntArray, n: int, count: int) -> IntArray:
    """The first distinct value of the rows that only train, and of each of `count` spans with at least one
    value.

    before  rows below each value
    """
    found = [0]
    for span in range(count):
        at = np.arange(found[-1] + 1, len(before) - (count - 1 - span))
        begin = n * (FIRST + (1 - FIRST) * span / count)
        found.append(int(at[np.abs(before[at] - begin).argmin()]))
    return np.array(found)


def by_groups(parts: Values, count: int | None, seed: int, words: str) -> Folds:
    """Whole groups, in folds as equal in size as possible. Raises ValueError if there is only one
    group.

    parts  keys of groups, uint64, as `group_keys` makes them
    """
    counts: dict[int, int] = {}
    for keys in parts():
        if len(counts) <= MOST_GROUPS:
            found, n = np.unique(row_hash(keys.view(np.int64), seed), return_counts=True)
            for one, more in zip(found.tolist(), n.tolist(), strict=True):
                counts[one] = counts.get(one, 0) + more
    if len(counts) < 2:
        raise ValueError("all rows are of one group")
    count = FOLDS if count is None else count
    if len(counts) < count:
        words += f" (in {len(counts)} folds and not {count}, since there are only {len(counts)} groups)"
        count = len(counts)
    known = np.array(sorted(counts), np.uint64)
    fold_of = np.zeros(len(known), INDEX_DTYPE)
    if len(counts) > MOST_GROUPS:  # Of so many, each goes to a random fold.
        known = fold_of = np.empty(0, np.uint64)
    else:
        sizes = np.array([counts[one] for one in known.tolist()])
        heap = [(0, fold) for fold in range(count)]
        for one in np.argsort(-sizes, kind="stable").tolist():
            rows, fold = heapq.heappop(heap)
            fold_of[one] = fold
            heapq.heappush(heap, (rows + int(sizes[one]), fold))
    each = []
    for keys in parts():
        key = row_hash(keys.view(np.int64), seed)
        own: NDArray[Any] = key // np.uint64(UNITS) % np.uint64(count)
        if len(known):
            own = fold_of[np.searchsorted(known, key)]
        each.append(grouped_units(own.astype(INDEX_DTYPE), key))
    return Folds(seed, count, np.concatenate(each), clustered=True, words=words)


def folds_of_estimator(cv: Any, groups: Any, y: Any, n_rows: int, seed: int) -> Folds | None:
    """The folds of `cv` and `groups` of an estimator; None where both are None.

    cv      a number of folds, a splitter of scikit-learn, or (train, test) pairs of row numbers
    groups  (n_rows,) or None: rows of one value are in one fold
    y       (n_rows,), for splitters

    Raises SettingsError for a splitter that holds out a row twice, or does not train on all other rows or all
    earlier ones; DataError for unusable groups.
    """
    keys = None if groups is None else _keys_of(groups, n_rows)
    if cv is None or (isinstance(cv, int | np.integer) and not isinstance(cv, bool)):
        count = None if cv is None else check_count(int(cv))
        if keys is None:
            return None if count is None else Folds(seed, count, words=f"{count} folds of rows")
        try:
            return by_groups(lambda: iter([keys]), count, seed, "whole groups")
        except ValueError as error:
            raise DataError(f"Cannot hold out whole groups: {error}. Pass groups that differ.") from None
    split = getattr(cv, "split", None)
    if isinstance(cv, str) or (split is None and not isinstance(cv, Iterable)):
        raise SettingsError(
            f"Cannot use cv {cv!r}: it is not a number of folds, a splitter of scikit-learn, or an iterable"
            " of (train, test) row numbers. Pass one of them."
        )
    try:
        pairs = list(cv if split is None else split(np.zeros((n_rows, 1)), y, groups))
    except ValueError as error:
        words = str(error).rstrip(".")
        remedy = "Pass groups to fit" if groups is None and "groups" in words else "Pass another splitter"
        raise SettingsError(f"cv cannot split these rows: {words}. {remedy}.") from None
    return _of_pairs([_checked_pair(pair, n_rows) for pair in pairs], n_rows, keys, seed)


def _keys_of(groups: Any, n_rows: int) -> NDArray[np.uint64]:
    """The key of the group of each row. Raises DataError for rows without a group."""
    groups = unmasked(groups)
    # NumPy makes text of NaN in a list of texts.
    values = np.asarray(groups, object) if isinstance(groups, list | tuple) else np.asarray(groups)
    if values.shape != (n_rows,):
        raise DataError(
            f"Cannot use groups of shape {values.shape}: X has {n_rows:,} rows. Pass one group for each row."
        )
    missing = without_group(values)
    if len(missing):
        raise DataError(
            f"Cannot use groups: row {missing[0]:,} has none ({len(missing):,} of {n_rows:,} rows have none)."
            " Fill it in, or omit such rows."
        )
    return group_keys(np.asarray(groups))


def _checked_pair(pair: Any, n_rows: int) -> tuple[IntArray, IntArray]:
    """The numbers of the rows that train and of those that are held out. Raises SettingsError for others."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise SettingsError(f"Cannot use cv: it holds {pair!r}. Pass pairs (train, test) of row numbers.")
    found = []
    for rows in map(np.asarray, pair):
        if rows.shape == (n_rows,) and rows.dtype.kind == "b":
            rows = np.flatnonzero(rows)
        wrong = rows.ndim != 1 or (len(rows) > 0 and rows.dtype.kind not in "iu")
        if wrong or (len(rows) and not 0 <= rows.min() <= rows.max() < n_rows):
            raise SettingsError(
                f"Cannot use cv: it holds {np.array2string(rows, threshold=5)}, but rows have numbers from 0"
                " to"
                f" {n_rows - 1:,}. Pass pairs (train, test) of row numbers."
            )
        found.append(rows.astype(INDEX_DTYPE))
    return found[0], found[1]


def _of_pairs(
    pairs: list[tuple[IntArray, IntArray]], n_rows: int, keys: NDArray[np.uint64] | None, seed: int
) -> Folds:
    fold = np.full(n_rows, -1, INDEX_DTYPE)
    masks = []
    for number, (train, test) in enumerate(pairs):
        trains = np.zeros(n_rows, bool)
        trains[train] = True
        if (fold[test] >= 0).any() or trains[test].any():
            raise SettingsError(
                "Cannot use cv: it holds out a row twice, or trains on rows that it holds out. Pass a"
                " splitter"
                " whose test rows are disjoint: KFold, GroupKFold or TimeSeriesSplit."
            )
        fold[test] = number
        masks.append(trains)
    if not pairs or len(pairs) >= UNITS:
        raise SettingsError(
            f"Cannot use cv: it makes {len(pairs):,} folds, not 1 to {UNITS - 1}. Pass another splitter."
        )
    others = all((mask == (fold != number)).all() for number, mask in enumerate(masks))
    if not others and not all((mask == (fold < number)).all() for number, mask in enumerate(masks)):
        raise SettingsError(
            "Cannot use cv: it does not train on all rows that it does not hold out, or on all earlier ones."
            " Pass"
            " KFold, GroupKFold, or TimeSeriesSplit without gap and max_train_size."
        )
    clustered = keys is not None or not others
    if keys is None:
        keys = _spans(fold) if not others else row_hash(np.arange(n_rows, dtype=INDEX_DTYPE), seed)
    words = f"{len(pairs)} folds of cv"
    return Folds(seed, len(pairs), grouped_units(fold, keys), not others, clustered, words)


def _spans(fold: IntArray) -> NDArray[np.uint64]:
    """Spans of the rows of each fold, in their order."""
    rank: FloatArray = np.zeros(len(fold))
    for one in np.unique(fold):
        own = np.flatnonzero(fold == one)
        rank[own] = np.arange(len(own)) / len(own)
    return (rank * SPANS).astype(np.uint64)
