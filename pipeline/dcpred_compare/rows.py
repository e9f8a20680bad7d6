"""The rows of a comparison: drawn once from a data set, stored in its folder."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.datasets.split_rules import folds_of_data
from dcpred_compare.files import ROWS
from dcpred_tasks.artifacts.data_schema import schema_of_array
from dcpred_tasks.dtypes import IntArray, SingleArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.class_codes import class_codes, class_labels, names_of_classes
from dcpred_tasks.model.one_hot import coded_columns
from dcpred_tasks.schema.schema import Schema, first_difference
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.addresses import Address
from dcpred_tasks.storage.atomic_files import read_arrays, write_arrays
from dcpred_tasks.training.categories import fit_to_rows, target_coded
from dcpred_tasks.training.folds import UNITS, Folds, Units
from dcpred_tasks.training.settings import make_settings
from dcpred_tasks.training.survey import survey_rows

NUMBERS = ("n_classes", "n_unseen", "n_bad", "ordered")
LOOKED_AT = 20_000  # number of targets to check for being classes
LEAST_ROWS = 50
WHOLE_ORDER = 2**24  # up to this many rows a permutation of all is drawn: earlier comparisons stay the same


@dataclass(frozen=True)
class Rows:
    """Training and test rows.

    X       float32 (n, n_features)
    target  int64 class numbers, or float64; (n,)
    n_classes  0 for regression
    n_unseen   skipped test rows, whose class no training row has
    n_bad      skipped rows of both kinds, with values that are not finite
    ordered    1 if rows are held out by time
    unit       units of training rows (training.folds) if they are held out by time or by group; or (0,)
    """

    X: SingleArray
    target: NDArray[Any]
    X_test: SingleArray
    target_test: NDArray[Any]
    n_classes: int
    n_unseen: int = 0
    n_bad: int = 0
    ordered: int = 0
    unit: Units = field(default_factory=lambda: np.zeros(0, np.uint16))

    @property
    def task(self) -> str:
        return "classification" if self.n_classes else "regression"

    def taken(self, numbers: NDArray[np.int64]) -> "Rows":
        """Only these training rows."""
        unit = self.unit[numbers] if len(self.unit) else self.unit
        return replace(self, X=self.X[numbers], target=self.target[numbers], unit=unit)

    def held_out(self) -> list[tuple[IntArray, IntArray]] | None:
        """Pairs of training and held-out rows, the latest last; None if they are drawn at random."""
        if not len(self.unit):
            return None
        count = int(self.unit.max()) // UNITS
        folds = Folds(0, count, self.unit, bool(self.ordered))
        return folds.pairs(np.arange(len(self.unit)))


def read_rows(folder: Path) -> Rows:
    arrays: dict[str, Any] = dict(read_arrays(folder / ROWS))
    counts = {name: int(arrays.get(name, 0)) for name in NUMBERS}  # earlier versions stored fewer
    return Rows(**arrays | counts)


def draw_rows(
    train: tuple[str, str],
    test: tuple[Address, Address] | None,
    task: str,
    rows: int,
    test_rows: int,
    seed: int,
    by_time: str | None = None,
    by_group: str | None = None,
) -> Rows:
    """Draws the rows of a CompareRequest, which has these names. Raises DataError."""
    n, n_test, by = rows, test_rows, (by_time, by_group)
    rng = np.random.default_rng(seed)
    total = int(open_array(train[0]).shape[0])
    held = 0 if test is not None else min(n_test, total // 5)
    order = drawn_numbers(rng, total, max(held + n, LOOKED_AT))
    numbers, test_numbers = np.sort(order[held : held + n]), np.sort(order[:held])
    inner = None
    if by != (None, None):
        numbers, test_numbers, inner = _divided(train[0], by, rng, n, held, seed)
    if test is not None:
        there = int(open_array(test[0]).shape[0])
        test_numbers = np.sort(drawn_numbers(rng, there, n_test))
    X, y, good = _read(train, numbers, task)
    X_test, y_test, _ = _read(test or train, test_numbers, task)
    if test is not None and y_test.dtype.kind in "UT" and y.dtype.kind not in "UT":
        y_test = _as_codes(y_test, train[1])
    unit, ordered = np.zeros(0, np.uint16), 0
    if inner is not None and inner.unit is not None:
        unit, ordered = inner.unit[numbers[good]], int(inner.ordered)
    bad = len(numbers) + len(test_numbers) - len(X) - len(X_test)
    if task == "classification":
        _check_classes(train[1], order)
    if len(X) < LEAST_ROWS or not len(X_test):
        raise DataError(
            f"Cannot compare systems on {train[0]}: it has {len(X):,} finite training rows and"
            f" {len(X_test):,} test rows. Use at least {LEAST_ROWS} training rows and 1 test row."
        )
    if X.shape[1] != X_test.shape[1]:
        raise DataError(
            f"Cannot compare systems: training rows have {X.shape[1]:,} features, test rows"
            f" {X_test.shape[1]:,}. Use data of the same features."
        )
    schema = _common_schema(train[0], test)
    if task == "regression":
        X, X_test = _encoded(schema, X, y, X_test, task)
        targets = y.astype(np.float64), y_test.astype(np.float64)
        return Rows(X, targets[0], X_test, targets[1], 0, 0, bad, ordered, unit)
    classes, numbers = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise DataError(
            f"Cannot train a classifier: all rows of {train[1]} are {classes[0]}. Add other classes."
        )
    X, X_test = _encoded(schema, X, numbers, X_test, task)
    known = np.isin(y_test, classes)
    at = np.searchsorted(classes, y_test[known])
    unseen = int((~known).sum())
    targets = numbers.astype(np.int64), at.astype(np.int64)
    of_test = X_test[known], targets[1]
    return Rows(X, targets[0], *of_test, len(classes), unseen, bad, ordered, unit)


def _divided(
    x: str, by: tuple[str | None, str | None], rng: np.random.Generator, n: int, n_test: int, seed: int
) -> tuple[IntArray, IntArray, Folds | None]:
    """Training and test row numbers by time or by group, at most so many, and folds of the former.

    n_test  0: all rows train
    """
    total = int(open_array(x).shape[0])
    every, used = np.arange(total), np.ones(total, bool)
    test = every[:0]
    if n_test:
        outer = folds_of_data(x, *by, 2 if by[0] is not None else 5, seed)
        assert outer is not None
        held = outer.of(every) == (outer.count - 1 if outer.ordered else 0)
        used, test = ~held, every[held]
    inner = folds_of_data(x, *by, None, seed, used)
    train = every[used]
    numbers = [np.sort(rng.permutation(rows)[:most]) for rows, most in ((train, n), (test, n_test))]
    return numbers[0], numbers[1], inner


def drawn_numbers(rng: np.random.Generator, total: int, n: int) -> NDArray[np.int64]:
    """At most n different row numbers of `total`, in random order: memory does not grow with `total`."""
    if total <= WHOLE_ORDER:
        return rng.permutation(total)[:n]
    return rng.choice(total, min(n, total), replace=False)


def _check_classes(address: str, order: NDArray[np.int64]) -> None:
    """Raise DataError if targets look continuous, as training does."""
    raw = np.asarray(open_array(address).oindex[np.sort(order[:LOOKED_AT])])
    y = zarr_arrays.plain_text(raw, address)
    survey_rows(np.zeros((len(y), 1)), y, None, 0, "classification")
    different = len(np.unique(y))
    if y.dtype.kind == "f" and different > max(len(y) // 2, 2):
        raise DataError(
            f"Cannot train a classifier: y has {different:,} different values in {len(y):,} rows. Use"
            " regression (--task regression), or give y fewer classes."
        )


def _common_schema(x: str, test: tuple[Address, Address] | None) -> Schema | None:
    """The schema of the training rows. Raises DataError if test rows are encoded in another way."""
    schema, other = schema_of_array(x), None if test is None else schema_of_array(test[0])
    if schema is not None and other is not None and (difference := first_difference(other, schema)):
        raise DataError(
            f"Cannot compare systems on {test[0] if test else x}: its features are not encoded as those of"
            f" {x} ({difference}). Import its rows again with --like and the data set of {x}."
        )
    return schema


def _encoded(
    schema: Schema | None, X: SingleArray, y: NDArray[Any], X_test: SingleArray, task: str
) -> tuple[SingleArray, SingleArray]:
    """Rows with categories as columns of 0 and 1, or target encodings if many, of the training rows."""
    settings = make_settings({"task": task})
    if coded := target_coded(schema, settings):
        weight = np.ones(len(X))
        survey = survey_rows(X, y, weight, 0, task)
        fitted = fit_to_rows(X, y, weight, coded, survey, settings, schema.features if schema else None)
        X, X_test = (
            part.astype(np.float32) for part in (fitted(X, np.arange(len(X))), fitted.encoding(X_test))
        )
    codes = {f: values for f in schema.coded if len(values := np.unique(X[:, f])[1:])} if schema else {}
    coding = coded_columns(X.shape[1], codes)
    if coding is None:
        return X, X_test
    return coding(X).astype(np.float32), coding(X_test).astype(np.float32)


def write_rows(folder: Path, rows: Rows) -> None:
    write_arrays(folder / ROWS, {**vars(rows)} | {name: np.array(getattr(rows, name)) for name in NUMBERS})


def _as_codes(names: NDArray[Any], trained: str) -> NDArray[np.int64]:
    """The classes of a table that is read where it lies, by name, as the codes of the training rows; −1 for
    others.
    """
    labels = class_labels(open_array(trained).attrs, trained) or ()
    codes = {name: code for code, name in enumerate(labels)}
    return np.array([codes.get(str(name), -1) for name in names], np.int64)


def _read(
    addresses: tuple[Address, Address], numbers: NDArray[np.int64], task: str
) -> tuple[SingleArray, NDArray[Any], NDArray[np.bool_]]:
    """Finite rows by number, and which these are."""
    X, y = (open_array(address) for address in addresses)
    if X.ndim != 2 or y.ndim != 1 or X.shape[0] != y.shape[0]:
        raise DataError(
            f"Cannot use {addresses[0]} of shape {X.shape} with {addresses[1]} of shape {y.shape}: features"
            " have to be (rows, features) and targets (rows,). Name other arrays with --x and --y."
        )
    stored_chunks.check_complete(addresses[0], X)
    if task == "classification":
        stored_chunks.check_labels(addresses[1], y)
    else:
        stored_chunks.check_complete(addresses[1], y)
    features = np.asarray(X.oindex[numbers], np.float32)
    target = zarr_arrays.plain_text(np.asarray(y.oindex[numbers]), str(addresses[1]))
    good = np.asarray(np.isfinite(features).all(axis=1))
    if target.dtype.kind == "f":
        good &= np.isfinite(target)
    names = names_of_classes(y.attrs, target.dtype)
    if names is not None:
        class_codes(target[good], len(names), str(addresses[1]), numbers[good])
    return np.ascontiguousarray(features[good]), target[good], good
