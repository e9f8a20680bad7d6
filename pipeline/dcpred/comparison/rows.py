"""The rows of a comparison: drawn from a data set once, kept in its folder."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.artifacts.data_schema import schema_of_array
from dcpred_tasks.dtypes import SingleArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.class_codes import class_codes, names_of_classes
from dcpred_tasks.model.coding import coded_columns
from dcpred_tasks.schema.schema import Schema, first_difference
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.atomic_files import read_arrays, write_arrays
from dcpred_tasks.training.settings import make_settings
from dcpred_tasks.training.survey import survey_rows
from dcpred_tasks.training.target_means import fit_to_rows, target_coded

ROWS = "rows.npz"
NUMBERS = ("n_classes", "n_unseen", "n_bad")
LOOKED_AT = 20_000  # targets that are looked at for whether they are classes
LEAST_ROWS = 50
WHOLE_ORDER = 2**24  # rows whose numbers are put in order as a whole, as comparisons always did


@dataclass(frozen=True)
class Rows:
    """Training and test rows.

    X       float32 (n, n_features)
    target  int64 class numbers, or float64; (n,)
    n_classes  0 for regression
    n_unseen   test rows that were left out, for no training row has their class
    n_bad      rows of both kinds that were left out, for not all of their values are finite
    """

    X: SingleArray
    target: NDArray[Any]
    X_test: SingleArray
    target_test: NDArray[Any]
    n_classes: int
    n_unseen: int = 0
    n_bad: int = 0

    @property
    def task(self) -> str:
        return "classification" if self.n_classes else "regression"

    def taken(self, numbers: NDArray[np.int64]) -> "Rows":
        """These training rows alone."""
        return replace(self, X=self.X[numbers], target=self.target[numbers])


def read_rows(folder: Path) -> Rows:
    found: dict[str, Any] = dict(read_arrays(folder / ROWS))
    counts = {name: int(found.get(name, 0)) for name in NUMBERS}  # earlier versions kept fewer
    return Rows(**found | counts)


def draw_rows(
    train: tuple[str, str], test: tuple[str, str] | None, task: str, n: int, n_test: int, seed: int
) -> Rows:
    """At most n rows to train on and n_test to judge by.

    train, test  addresses of (features, targets); without `test` a fifth of the rows is held out, n_test at
                 most
    Raises DataError.
    """
    rng = np.random.default_rng(seed)
    total = int(zarr_arrays.open_array(train[0]).shape[0])
    held = 0 if test is not None else min(n_test, total // 5)
    order = drawn_numbers(rng, total, max(held + n, LOOKED_AT))
    numbers, test_numbers = np.sort(order[held : held + n]), np.sort(order[:held])
    if test is not None:
        there = int(zarr_arrays.open_array(test[0]).shape[0])
        test_numbers = np.sort(drawn_numbers(rng, there, n_test))
    X, y = _read(train, numbers, task)
    X_test, y_test = _read(test or train, test_numbers, task)
    bad = len(numbers) + len(test_numbers) - len(X) - len(X_test)
    if task == "classification":
        _check_classes(train[1], order)
    if len(X) < LEAST_ROWS or not len(X_test):
        raise DataError(
            f"systems were to be compared on {train[0]}, but {len(X):,} finite rows are left to train on and"
            f" {len(X_test):,} to judge by; use {LEAST_ROWS} or more"
        )
    if X.shape[1] != X_test.shape[1]:
        raise DataError(
            f"training rows have {X.shape[1]:,} features and test rows {X_test.shape[1]:,}; use data of the"
            " same features"
        )
    schema = _common_schema(train[0], test)
    if task == "regression":
        X, X_test = _encoded(schema, X, y, X_test, task)
        return Rows(X, y.astype(np.float64), X_test, y_test.astype(np.float64), 0, n_bad=bad)
    classes, numbers = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise DataError(f"classes were to be told apart, but all rows of {train[1]} are {classes[0]}")
    X, X_test = _encoded(schema, X, numbers, X_test, task)
    known = np.isin(y_test, classes)
    at = np.searchsorted(classes, y_test[known])
    unseen = int((~known).sum())
    return Rows(X, numbers.astype(np.int64), X_test[known], at.astype(np.int64), len(classes), unseen, bad)


def drawn_numbers(rng: np.random.Generator, total: int, n: int) -> NDArray[np.int64]:
    """At most n different row numbers of `total`, in random order: the memory is that of those alone."""
    if total <= WHOLE_ORDER:
        return rng.permutation(total)[:n]
    return rng.choice(total, min(n, total), replace=False)


def _check_classes(address: str, order: NDArray[np.int64]) -> None:
    """Raise DataError where targets look like numbers, as training does."""
    raw = np.asarray(zarr_arrays.open_array(address).oindex[np.sort(order[:LOOKED_AT])])
    y = zarr_arrays.plain_text(raw, address)
    survey_rows(np.zeros((len(y), 1)), y, None, 0, "classification")
    different = len(np.unique(y))
    if y.dtype.kind == "f" and different > max(len(y) // 2, 2):
        raise DataError(
            f"classification was asked for, but y has {different:,} different values in {len(y):,} rows; use"
            " regression (--task regression), or give y fewer classes"
        )


def _common_schema(x: str, test: tuple[str, str] | None) -> Schema | None:
    """The schema of the training rows. Raises DataError where test rows are encoded otherwise."""
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
    """Rows in which features that the schema of the data says are codes became columns of 0 and 1, or of many
    categories means of the target, fitted to the training rows: to no system are codes amounts.
    """
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


def _read(
    addresses: tuple[str, str], numbers: NDArray[np.int64], task: str
) -> tuple[SingleArray, NDArray[Any]]:
    """Rows by number, those that are finite."""
    X, y = (zarr_arrays.open_array(address) for address in addresses)
    if X.ndim != 2 or y.ndim != 1 or X.shape[0] != y.shape[0]:
        raise DataError(
            f"features (rows, features) and a target for each row were asked for, but {addresses[0]} is"
            f" {X.shape} and {addresses[1]} {y.shape}; name others with --x and --y"
        )
    stored_chunks.check_complete(addresses[0], X)
    if task == "classification":
        stored_chunks.check_labels(addresses[1], y)
    else:
        stored_chunks.check_complete(addresses[1], y)
    found = np.asarray(X.oindex[numbers], np.float32)
    target = zarr_arrays.plain_text(np.asarray(y.oindex[numbers]), addresses[1])
    good = np.isfinite(found).all(axis=1)
    if target.dtype.kind == "f":
        good &= np.isfinite(target)
    names = names_of_classes(y.attrs, target.dtype)
    if names is not None:
        class_codes(target[good], len(names), addresses[1], numbers[good])
    return np.ascontiguousarray(found[good]), target[good]
