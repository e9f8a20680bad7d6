"""Rules by which rows are held out: at random, by time, by group, in folds."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred.datasets.equal_rows import HELD_TOGETHER, copied_share
from dcpred_tasks.artifacts.data_schema import schema_of_given
from dcpred_tasks.artifacts.trained_rows import Hashes, hashes_of_rows
from dcpred_tasks.dtypes import INDEX_DTYPE, FloatArray, IntArray
from dcpred_tasks.errors import DataError, SettingsError, listed
from dcpred_tasks.input_kinds import is_missing, unmasked
from dcpred_tasks.model.class_codes import class_codes, names_of_classes
from dcpred_tasks.model.feature_names import feature_names
from dcpred_tasks.row_sampling import at_most, row_hash
from dcpred_tasks.schema.column import Boolean, Category
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array, open_group
from dcpred_tasks.storage.zarr_arrays import plain_text
from dcpred_tasks.training.folds import FOLDS, SPANS, UNITS, Folds, check_count, grouped_units
from dcpred_tasks.training.survey import MAX_CLASSES

BoolArray = NDArray[np.bool_]
Values = Callable[[], Iterator[NDArray[Any]]]
"""A pass over an array: its values from the first row to the last, in parts of any length."""
CLASS_BITS = 40  # low bits of a number; the bits above are the class
MOST_SAMPLED = 2**21  # values of a column that are sampled and sorted at once
LAST_GROUPS, LARGEST_SUM = 200, 2**20  # sizes of groups whose sums are compared, and their largest sum
MOST_GROUPS = 2**21  # groups that are counted one by one; of more each goes to a random side
SPAN_ROWS = 2**16
WHOLE_HASH = 2.0**64


class Rule(Protocol):
    """A rule for the test rows."""

    def sides(self) -> Iterator[BoolArray]:
        """True for each test row, from the first to the last, in parts of any length."""


@dataclass(frozen=True)
class Drawn:
    """Rows drawn at random, the same fraction of each class, to within one row.

    Rows of a class are numbered in their order and put into sets of 1 / share neighbours. One row of each set
    is drawn, by the hash of the set's number, the class and the seed.
    """

    parts: Values
    """Class numbers; all 0 without stratification."""
    share: float
    seed: int

    def sides(self) -> Iterator[BoolArray]:
        seen: dict[int, int] = {}
        for classes in self.parts():
            rank = np.empty(len(classes), np.int64)
            order = np.argsort(classes, kind="stable")
            distinct, starts = np.unique(classes[order], return_index=True)
            for value, rows in zip(distinct.tolist(), np.split(order, starts[1:]), strict=True):
                first = seen.get(value, 0)
                rank[rows] = np.arange(first, first + len(rows))
                seen[value] = first + len(rows)
            yield self._is_drawn(classes, rank)

    def _is_drawn(self, classes: IntArray, rank: IntArray) -> BoolArray:
        number = np.floor(rank * self.share).astype(np.int64)
        number -= rank < self._begin(number)  # where a product was rounded
        number += rank >= self._begin(number + 1)
        begin = self._begin(number)
        size = np.maximum(self._begin(number + 1) - begin, 1).astype(np.uint64)
        chance = row_hash(number + (classes.astype(np.int64) << CLASS_BITS), self.seed)
        return np.asarray(rank - begin == (chance % size).astype(np.int64))

    def _begin(self, number: IntArray) -> IntArray:
        """The first row of a set."""
        return np.asarray(np.ceil(number / self.share).astype(np.int64))


@dataclass(frozen=True)
class Last:
    """The rows from one on."""

    n_rows: int
    first: int

    def sides(self) -> Iterator[BoolArray]:
        for start in range(0, self.n_rows, SPAN_ROWS):
            yield np.arange(start, min(start + SPAN_ROWS, self.n_rows)) >= self.first


@dataclass(frozen=True)
class Above:
    """Rows whose value is at least, or with `below` at most, a limit."""

    parts: Values
    limit: Any
    below: bool = False

    def sides(self) -> Iterator[BoolArray]:
        for values in self.parts():
            yield np.asarray(values <= self.limit if self.below else values >= self.limit)


def latest(parts: Values, share: float) -> Above:
    """The rows with the largest values. Rows of one value go to one side: as near the share as possible.
    Raises ValueError if all values are equal.

    parts  float64, without NaN
    """
    n_rows = sum(len(values) for values in parts())
    wanted = min(max(round(share * n_rows), 1), n_rows - 1)
    limit = _nth(parts, n_rows - wanted)
    n_from = n_above = 0
    above = np.inf
    for values in parts():
        larger = values[values > limit]
        n_from, n_above = n_from + int((values >= limit).sum()), n_above + len(larger)
        above = min(above, float(larger.min())) if len(larger) else above
    if n_from == n_rows and not n_above:
        raise ValueError("all rows have the same value")
    if n_from == n_rows or (n_above and wanted - n_above < n_from - wanted):
        limit = above
    return Above(parts, limit)


def _nth(parts: Values, n: int) -> float:
    """The value at position n of all in order: bounded by a sample, then found among those in the bounds."""
    sample, n_rows = _sampled(parts)
    if len(sample) == n_rows:
        return float(np.partition(sample, n)[n])
    sample.sort()
    at, slack = len(sample) * n / n_rows, 4 * len(sample) ** 0.5
    first, last = int(at - slack), int(at + slack) + 1
    low = sample[first] if first >= 0 else -np.inf
    high = sample[last] if last < len(sample) else np.inf
    inside = []
    for values in parts():
        n -= int((values <= low).sum())  # rows of the lower bound itself may be many
        inside.append(values[(values > low) & (values < high)])
    near = np.concatenate(inside)
    return float(low if n < 0 else np.partition(near, n)[n] if n < len(near) else high)


def _sampled(parts: Values) -> tuple[FloatArray, int]:
    """About MOST_SAMPLED of the values, in their order, and the number of all."""
    sample, n_rows = [], sum(len(values) for values in parts())
    start, share = 0, min(MOST_SAMPLED / max(n_rows, 1), 1.0)
    for values in parts():
        number = np.arange(start, start + len(values), dtype=INDEX_DTYPE)
        sample.append(values[row_hash(number, 0) <= np.uint64(share * (2.0**64 - 2**12))])
        start += len(values)
    return np.concatenate(sample), n_rows


@dataclass(frozen=True)
class Among:
    """Rows whose value is one of some.

    chosen  these values, ascending
    """

    parts: Values
    chosen: NDArray[np.uint64]

    def sides(self) -> Iterator[BoolArray]:
        for values in self.parts():
            yield np.isin(values, self.chosen)


def whole_groups(parts: Values, share: float, seed: int) -> Above | Among:
    """Rows of whole groups, first in the order of their hashes, as near the share as possible.

    parts  keys of groups, uint64, as `group_keys` makes them

    Raises ValueError if there is only one group.
    """
    counts: dict[int, int] = {}
    n_rows = 0

    def chances() -> Iterator[NDArray[np.uint64]]:
        for keys in parts():
            yield row_hash(keys, seed)

    for values in chances():
        n_rows += len(values)
        if len(counts) <= MOST_GROUPS:
            keys, n = np.unique(values, return_counts=True)
            for key, more in zip(keys.tolist(), n.tolist(), strict=True):
                counts[key] = counts.get(key, 0) + more
    if len(counts) > MOST_GROUPS:
        return Above(chances, np.uint64(share * WHOLE_HASH), below=True)
    if len(counts) < 2:
        raise ValueError("all rows are of one group")
    order = sorted(counts)
    taken = _nearest_sum([counts[key] for key in order], share * n_rows)
    return Among(chances, np.array(order, np.uint64)[taken])


def _nearest_sum(sizes: Sequence[int], wanted: float) -> BoolArray:
    """Which of some sizes to take for a sum near `wanted`, neither none nor all, and early ones first. The
    last LAST_GROUPS come as near as possible, in units of a millionth of all; those before are taken in their
    order where they fit.
    """
    taken, n_first, left = np.zeros(len(sizes), bool), max(len(sizes) - LAST_GROUPS, 0), wanted
    for i, size in enumerate(sizes[:n_first]):
        if size <= left:
            taken[i], left = True, left - size
    unit = -(-sum(sizes) // LARGEST_SUM)
    last = [-(-size // unit) for size in sizes[n_first:]]
    # Bit k of an integer: the sum k can be reached with the sizes so far.
    reached = [1]
    for size in last:
        reached.append(reached[-1] | reached[-1] << size)
    sums, goal = reached[-1], max(round(left / unit), 0)
    if not taken.any():
        sums &= ~1
    if taken[:n_first].all():
        sums &= ~(1 << sum(last))
    low = (sums & ((1 << goal + 1) - 1)).bit_length() - 1
    above = sums >> goal
    high = goal + (above & -above).bit_length() - 1 if above else low
    total = high if low < 0 or high - goal < goal - low else low
    for j in range(len(last) - 1, -1, -1):
        if not reached[j] >> total & 1:
            taken[n_first + j], total = True, total - last[j]
    return taken


def without_group(values: NDArray[Any]) -> NDArray[np.intp]:
    """The rows without a group: with a missing value or an empty text."""
    if values.dtype.kind in "fmM":
        return np.flatnonzero(np.isnan(values) if values.dtype.kind == "f" else np.isnat(values))
    if values.dtype.kind in "biu":
        return np.empty(0, np.intp)
    texts = values.astype(object).tolist()
    return np.flatnonzero([is_missing(text) or text in ("", b"") for text in texts])


def group_keys(values: NDArray[Any]) -> NDArray[np.uint64]:
    """A 64-bit key of each value: equal values have equal keys."""
    if values.dtype.kind in "biu":
        return (
            values.astype(np.int64).view(np.uint64) if values.dtype.kind != "u" else values.astype(np.uint64)
        )
    if values.dtype.kind == "f":
        return (values.astype(np.float64) + 0.0).view(np.uint64)  # −0 is 0
    groups, which = np.unique(plain_text(values, "the groups"), return_inverse=True)
    digests = [
        blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest() for text in groups.tolist()
    ]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)[which]


HELD_BYTES = 32 * 2**20  # bytes of rows of all arrays that are read at once
TEXT_BYTES = 16  # approximate bytes of a text


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
            there = [*(column for column, array in self.arrays.items() if array.ndim == 1), *names]
            raise DataError(
                f"Cannot split rows by {name!r}: {self.data} has no one-dimensional array and no feature of"
                f" that name. Name one of {listed(there)}."
            )
        return names.index(name)

    def classes(self, y: str) -> NDArray[Any] | None:
        """All different values of the target; None if they are too many for classes."""
        classes: NDArray[Any] | None = None
        names, row = names_of_classes(self.arrays[y].attrs, np.dtype(self.arrays[y].dtype)), 0
        for values in self.column(y):
            if names is not None:
                class_codes(values, len(names), f"{y!r} of {self.data}", row)
                row += len(values)
            new = np.unique(zarr_arrays.plain_text(values, y))
            classes = new if classes is None else np.unique(np.concatenate([classes, new]))
            if len(classes) > MAX_CLASSES:
                return None
        return classes

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


LATEST = "the latest rows"
FIRST = 0.5  # fraction of the rows, the first in time, that are never held out
SPANS_OF_TIME = 3


def folds_of_data(
    x: str,
    by_time: str | None,
    by_group: str | None,
    count: int | None,
    seed: int,
    used: BoolArray | None = None,
    y: str | None = None,
) -> Folds | None:
    """The folds of the options, or of whole groups of equal rows; None without any of them.

    x         address of the features; other columns are arrays of as many rows in the same group
    by_time   a column by name: each fold is held out from the rows before it. "": the stored order
    by_group  a column by name: rows of one value are in one fold
    count     number of folds
    used      bool (n_rows,), the rows to use; None: all
    y         address of the targets, by which copies of rows are known; None: rows are not compared

    Raises SettingsError, and DataError for an unusable column.
    """
    if by_time is not None and by_group is not None:
        raise SettingsError("--by-time and --by-group exclude each other. Choose one of them.")
    if count is not None:
        check_count(count)
    if by_time is None and by_group is None:
        plain = None if count is None else Folds(seed, count, words=f"{count} folds of rows")
        return plain if y is None else _of_equal_rows(x, y, count, seed, used) or plain
    X = open_array(x)
    if by_time == "":
        order = [np.arange(X.shape[0], dtype=np.float64)]
        return _of_used(
            lambda parts: by_spans(parts, count, f"{LATEST} as they are"), lambda: iter(order), used
        )
    data = x.rpartition("/")[0]
    beside = dict(zarr_arrays.arrays_of(open_group(data)))
    arrays = {name: array for name, array in beside.items() if array.shape[:1] == X.shape[:1]}
    source = SplitSource(data, X, arrays)
    name = by_group if by_time is None else by_time
    assert name is not None
    try:
        if by_time is not None:
            make = partial(by_spans, count=count, words=f"{LATEST} by {name!r}")
            return replace(_of_used(make, partial(source.instants, name), used), time=name)
        make = partial(by_groups, count=count, seed=seed, words=f"whole groups of {name!r}")
        return _of_used(make, partial(source.keys, name), used)
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"Cannot hold out rows by {name!r} of {data}: {error}. Name another array or feature."
        ) from None


COMPARED_NUMBERS = 2**27  # numbers of rows that are read to find copies, at most


def _of_equal_rows(x: str, y: str, count: int | None, seed: int, used: BoolArray | None) -> Folds | None:
    """Folds of whole groups of equal rows, or of rows where fewer have copies; None where rows have none. Of
    large data some blocks show that.
    """
    X, target = open_array(x), open_array(y)
    source = SplitSource(x, X, {"X": X})
    spans = list(source.spans())
    some = [spans[i] for i in at_most(len(spans), max(COMPARED_NUMBERS // (source.step * X.shape[1]), 1))]

    def blocks() -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        for start, stop in some:
            at = slice(None) if used is None else used[start:stop]
            values = zarr_arrays.plain_text(zarr_arrays.read_target(target, start, stop), y)
            yield zarr_arrays.read_rows(X, start, stop)[at], values[at]

    share = copied_share(blocks(), len(some) / max(len(spans), 1))
    if share < HELD_TOGETHER:
        return Folds(seed, count or FOLDS, words=_words_of_copies(share)) if share else None

    def keys() -> Iterator[Hashes]:
        for start, stop in spans:
            yield hashes_of_rows(zarr_arrays.read_rows(X, start, stop))

    words = _words_of_copies(share)
    return _of_used(partial(by_groups, count=count, seed=seed, words=words), keys, used)


def _words_of_copies(share: float) -> str:
    of_rows = f"{100 * share:.0f} % of the rows, or of those of a class, have copies"
    if share >= HELD_TOGETHER:
        return f"whole groups of equal rows ({of_rows})"
    return f"rows one by one, though {of_rows} (equal rows): a model predicts rows without a copy less well"


def with_equal_rows(X: NDArray[Any], y: NDArray[Any], folds: Folds | None, seed: int) -> Folds | None:
    """Folds of whole groups of equal rows in memory; those given where they have units, or few copies."""
    if (folds is not None and folds.by_units) or (share := copied_share([(X, y)], 1.0)) < HELD_TOGETHER:
        return folds
    count = None if folds is None else folds.count
    return by_groups(lambda: iter([hashes_of_rows(X)]), count, seed, _words_of_copies(share))


def _of_used(make: Callable[[Values], Folds], parts: Values, used: BoolArray | None) -> Folds:
    """Folds of the rows in use; others have the unit 0."""
    if used is None:
        return make(parts)

    def used_parts() -> Iterator[NDArray[Any]]:
        start = 0
        for values in parts():
            yield values[used[start : start + len(values)]]
            start += len(values)

    folds = make(used_parts)
    unit = np.zeros(len(used), np.uint16)
    unit[used] = np.asarray(folds.unit)
    return replace(folds, unit=unit)


def by_spans(parts: Values, count: int | None, words: str) -> Folds:
    """The first half of the rows only trains; the others form spans of time, each of which is held out from
    all rows before it. Rows of one value are in one span. Raises ValueError if all values are equal.

    parts  float64 values, without NaN
    """
    count = SPANS_OF_TIME if count is None else count
    distinct, rows = np.unique(_sampled(parts)[0], return_counts=True)
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
    begins = [0]
    for span in range(count):
        at = np.arange(begins[-1] + 1, len(before) - (count - 1 - span))
        begin = n * (FIRST + (1 - FIRST) * span / count)
        begins.append(int(at[np.abs(before[at] - begin).argmin()]))
    return np.array(begins)


def by_groups(parts: Values, count: int | None, seed: int, words: str) -> Folds:
    """Whole groups, in folds as equal in size as possible. Raises ValueError if there is only one
    group.

    parts  keys of groups, uint64, as `group_keys` makes them
    """
    counts: dict[int, int] = {}
    for keys in parts():
        if len(counts) <= MOST_GROUPS:
            hashes, n = np.unique(row_hash(keys.view(np.int64), seed), return_counts=True)
            for key, more in zip(hashes.tolist(), n.tolist(), strict=True):
                counts[key] = counts.get(key, 0) + more
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
        sizes = np.array([counts[key] for key in known.tolist()])
        heap = [(0, fold) for fold in range(count)]
        for at in np.argsort(-sizes, kind="stable").tolist():
            rows, fold = heapq.heappop(heap)
            fold_of[at] = fold
            heapq.heappush(heap, (rows + int(sizes[at]), fold))
    each = []
    for keys in parts():
        key = row_hash(keys.view(np.int64), seed)
        folds: NDArray[Any] = key // np.uint64(UNITS) % np.uint64(count)
        if len(known):
            folds = fold_of[np.searchsorted(known, key)]
        each.append(grouped_units(folds.astype(INDEX_DTYPE), key))
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
    if isinstance(groups, str):
        raise DataError(
            f"Cannot use groups={groups!r}: it is a text. Pass the group of each row, for example the column"
            f" X[{groups!r}] of a frame."
        )
    groups = unmasked(groups)
    # NumPy makes text of NaN in a list of texts.
    values = np.asarray(groups, object) if isinstance(groups, list | tuple) else np.asarray(groups)
    if values.shape != (n_rows,):
        raise DataError(
            f"Cannot use groups: their shape is {values.shape}, and X has {n_rows:,} rows. Pass one group for"
            " each row, in one dimension."
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
    sides = []
    for rows in map(np.asarray, pair):
        if rows.shape == (n_rows,) and rows.dtype.kind == "b":
            rows = np.flatnonzero(rows)
        wrong = rows.ndim != 1 or (len(rows) > 0 and rows.dtype.kind not in "iu")
        if wrong or (len(rows) and not 0 <= rows.min() <= rows.max() < n_rows):
            raise SettingsError(
                f"Cannot use cv: it holds {np.array2string(rows, threshold=5)}, but rows have numbers from 0"
                f" to {n_rows - 1:,}. Pass pairs (train, test) of row numbers."
            )
        sides.append(rows.astype(INDEX_DTYPE))
    return sides[0], sides[1]


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
                " splitter whose test rows are disjoint: KFold, GroupKFold or TimeSeriesSplit."
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
            " Pass KFold, GroupKFold, or TimeSeriesSplit without gap and max_train_size."
        )
    clustered = keys is not None or not others
    if keys is None:
        keys = _spans(fold) if not others else row_hash(np.arange(n_rows, dtype=INDEX_DTYPE), seed)
    words = f"{len(pairs)} folds of cv"
    return Folds(seed, len(pairs), grouped_units(fold, keys), not others, clustered, words)


def _spans(fold: IntArray) -> NDArray[np.uint64]:
    """Spans of the rows of each fold, in their order."""
    rank: FloatArray = np.zeros(len(fold))
    for number in np.unique(fold):
        rows = np.flatnonzero(fold == number)
        rank[rows] = np.arange(len(rows)) / len(rows)
    return (rank * SPANS).astype(np.uint64)
