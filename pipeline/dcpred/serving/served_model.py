"""A trained model in memory, for programs that predict: NumPy, Zarr and llvmlite."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dcpred_tasks.artifacts.data_schema import check_given_encoding
from dcpred_tasks.artifacts.model_artifact import Artifact, open_artifact
from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.engine.compiler import forget_failures
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import as_matrix, as_table, check_one_table, dense_strips, is_lazy, is_sparse
from dcpred_tasks.model.compact_model import Model, Scores, check_features, class_array, class_numbers
from dcpred_tasks.model.feature_names import in_training_order
from dcpred_tasks.model.label_rule import Rule, given_costs, label_rule, threshold_of_two
from dcpred_tasks.model.predictive_outputs import calibration_of, intervals_of, quantile_shares
from dcpred_tasks.model.uncertainty import DEFAULT_ALPHA
from dcpred_tasks.schema.frames import encode_frame, is_frame, is_numeric
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.storage.addresses import check_options
from dcpred_tasks.storage.addresses import storage_options as given_options
from dcpred_tasks.storage.stored_chunks import check_given
from dcpred_tasks.task_bodies.predict_block import (
    check_scored,
    decision_block,
    interval_block,
    novelty_block,
    probability_block,
    quantile_block,
    wrong_in_row,
)


@contextmanager
def storage_options(**options: str | bool | float) -> Iterator[None]:
    """Set options of object stores within a `with` statement.

    Parameters
    ----------
    **options : str, bool or float
        Endpoint, region and so on, as --storage-option of the command line. Credentials come from the
        environment.

    Yields
    ------
    None
        Every public function and estimator uses the options.

    Raises
    ------
    SettingsError
        For an unknown option.
    """
    with given_options(check_options(options)):
        yield


class ServedModel:
    """A model in memory that predicts rows of any real dtype, raw: the model scales them.

    Parameters
    ----------
    artifact : Artifact
        The opened model; `load_model` opens it.

    Notes
    -----
    `feature_names_in_`, object (n_features,), exists if the model was trained on named features. A
    frame, or an xarray.DataArray whose second dimension is labelled, is then reordered
    by name, and refused (DataError) if names are missing or additional. pandas.NA in a frame
    counts as NaN. Dask collections are refused: nothing is computed implicitly.

    If the model was trained on a table of text, categories or dates, `feature_names_in_` are its columns:
    a frame of pandas, polars or pyarrow is encoded as the training rows. An array holds encoded rows, as
    `dcpred import --like` writes them.
    """

    feature_names_in_: NDArray[np.object_]
    schema_: Schema

    def __init__(self, artifact: Artifact) -> None:
        """Read the model; its support vectors are read lazily."""
        self.artifact = artifact
        self.model: Model = artifact.model()
        if artifact.feature_names is not None:
            self.feature_names_in_ = np.array(artifact.feature_names, dtype=object)
        schema = artifact.schema
        self._encodes = schema is not None and not schema.plain
        if schema is not None:
            check_features((0, len(schema.features)), np.dtype(np.float64), self.model.n_features)
            self.schema_ = schema
        if schema is not None and self._encodes:
            self.feature_names_in_ = np.array([column.name for column in schema.sources], dtype=object)

    @property
    def classes_(self) -> NDArray[Any]:
        """Classes (n_classes,), in the order of columns of decision values; empty for regression."""
        return class_array(self.model.classes)

    @property
    def threshold_(self) -> float:
        """Minimum probability for the label of the second of two classes."""
        return threshold_of_two(self.model)

    @property
    def n_features_in_(self) -> int:
        """Number of features, or of columns of a table."""
        return len(self.schema_.sources) if self._encodes else self.model.n_features

    def decision_function(self, X: ArrayLike) -> Scores:
        """Return decision values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Raw rows, in memory.

        Returns
        -------
        numpy.ndarray of shape (n_samples,) or (n_samples, n_classes)
            float32, or float64 for regression; several columns for more than two classes. A row without a
            score (NaN, infinity or a value too large) gets NaN.
        """
        decision = self._decision(X, early=False)
        return decision if self.model.n_outputs > 1 else decision[:, 0]

    def predict(
        self, X: ArrayLike, *, threshold: float | str | None = None, costs: Any = None
    ) -> NDArray[Any]:
        """Return labels, or numbers for regression.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Raw rows, in memory.
        threshold : float or str, optional
            In place of that of the model: rows get the second of two classes if its probability is larger;
            or ``"cost=50"``, if a missed row costs 50 times a false alarm.
        costs : array-like of shape (n_classes, n_classes), str or Path, optional
            Cost of each label (column) for rows of each class, or the path of a CSV file of them: rows get
            the label with the least expected cost.

        Returns
        -------
        numpy.ndarray of shape (n_samples,)
            Labels, or float64 values for regression.

        Raises
        ------
        DataError
            For a row without a score (NaN, infinity or a value too large), which it names.
        """
        return self._predict(X, False, label_rule(self.model, given_costs(threshold, costs)))

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities of the classes. That of the label is the largest.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Raw rows, in memory.

        Returns
        -------
        numpy.ndarray of shape (n_samples, n_classes)
            float64.

        Raises
        ------
        DataError
            For a row without a score, which it names, and for a regression or a model that was trained
            without calibration.
        """
        calibration = calibration_of(self.model)
        decision = self._decision(X, early=False)
        check_scored(decision, self._why_unscored(X))
        return probability_block(decision, calibration)

    def predict_interval(self, X: ArrayLike, alpha: float = DEFAULT_ALPHA) -> FloatArray:
        """Return lower and upper bounds, with a fraction `alpha` of rows outside.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Raw rows, in memory.
        alpha : float, default 0.1
            Fraction of rows outside, from 0.01 to 0.5.

        Returns
        -------
        numpy.ndarray of shape (n_samples, 2)
            float64, in units of the target.

        Raises
        ------
        SettingsError
            For another alpha.
        DataError
            For a row without a score, a classification, or a model without calibration.
        """
        intervals_of(self.model).at(alpha)
        bounds = self._each_row(X, interval_block, alpha)
        check_scored(bounds, self._why_unscored(X))
        return bounds

    def predict_quantile(self, X: ArrayLike, q: float | Sequence[float] = 0.5) -> FloatArray:
        """Return quantiles of the targets of similar rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Raw rows, in memory.
        q : float or sequence of float, default 0.5
            Quantiles: 0.01, 0.02 and so on to 0.99.

        Returns
        -------
        numpy.ndarray of shape (n_samples,) or (n_samples, len(q))
            float64, in units of the target.

        Raises
        ------
        SettingsError
            For another quantile.
        DataError
            What `predict_interval` raises.
        """
        quantiles = self._each_row(X, quantile_block, quantile_shares(self.model, q))
        check_scored(quantiles, self._why_unscored(X))
        return quantiles if np.ndim(q) else quantiles[:, 0]

    def novelty(self, X: ArrayLike) -> FloatArray:
        """Return the novelty score of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Raw rows, in memory.

        Returns
        -------
        numpy.ndarray of shape (n_samples,)
            float64: the fraction of the training rows of a row's leaf that lie nearer to their mean than the
            row does, in the model's scaling; 1 beyond all of them.

        Raises
        ------
        DataError
            For a row without a score, and for a model that was trained without calibration.
        """
        novelty = self._each_row(X, novelty_block)
        check_scored(novelty[:, None], self._why_unscored(X))
        return novelty

    def predict_early(self, X: ArrayLike) -> NDArray[Any]:
        """Predict by the local model of each leaf (early prediction of DC-SVM), which is slower.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Raw rows, in memory.

        Returns
        -------
        numpy.ndarray of shape (n_samples,)
            Labels, or float64 values for regression: those that the compact model approximates.

        Raises
        ------
        DataError
            For a row without a score, and if the model was saved without its support vectors.
        """
        return self._predict(X, True, class_numbers)

    def _rows_to_explain(
        self, X: ArrayLike
    ) -> tuple[Model, NDArray[Any], Sequence[str] | None, Schema | None]:
        """What `dcpred.explain` needs: the model, rows in memory, names of features, and the schema."""
        return self.model, self._rows(X), self.artifact.feature_names, self.artifact.schema

    def _rows(self, X: ArrayLike) -> NDArray[Any]:
        """Raw rows with their features in the order of training."""
        if is_lazy(X):
            raise DataError(
                f"Cannot predict X: it is not in memory ({type(X).__name__}), and a served model predicts"
                " rows in memory. Use X.map_blocks(model.predict, ...), for a DataFrame map_partitions, or"
                " `dcpred score`, or pass X.compute()."
            )
        columns = list(self.feature_names_in_) if self._encodes else None
        check_one_table(X, "X", columns)
        check_given(X, "X")
        check_given_encoding(X, self.artifact.schema, self.artifact.path)
        X = as_table(X)
        if is_frame(X) and (self._encodes or (hasattr(self, "schema_") and not is_numeric(X))):
            return encode_frame(self.schema_, X, warns=True)
        return as_matrix(in_training_order(X, self.artifact.feature_names))

    def _why_unscored(self, X: ArrayLike) -> Callable[[int], str]:
        """What is wrong with a row of X, by its number."""

        def why(number: int) -> str:
            if is_sparse(X):
                row = self._rows(next(dense_strips(X.tocsr()[number])))[0]  # type: ignore[union-attr]
            else:
                row = self._rows(X)[number]
            return wrong_in_row(row, self.artifact.feature_names, self.artifact.schema)

        return why

    def _each_row(self, X: ArrayLike, block: Callable[..., NDArray[Any]], *more: Any) -> NDArray[Any]:
        """The results of `block` for raw rows and the model; sparse rows are made dense in strips."""
        if is_sparse(X):
            return np.concatenate([self._each_row(strip, block, *more) for strip in dense_strips(X)])
        return np.asarray(block(self._rows(X), self.model, *more))

    def _decision(self, X: ArrayLike, early: bool) -> Scores:
        """Decision values (n_samples, n_outputs)."""
        if early and self.model.support is None:
            self.model = replace(self.model, support=self.artifact.support())
        return self._each_row(X, decision_block, early)

    def _predict(self, X: ArrayLike, early: bool, rule: Rule) -> NDArray[Any]:
        decision = self._decision(X, early)
        check_scored(decision, self._why_unscored(X))
        return decision[:, 0] if self.model.task == "regression" else self.classes_[rule(decision)]


@overload
def load_model(
    path: str | Path,
    *,
    estimator: Literal[False] = False,
    storage_options: Mapping[str, str | bool | float] | None = None,
) -> ServedModel: ...


@overload
def load_model(
    path: str | Path,
    *,
    estimator: Literal[True],
    storage_options: Mapping[str, str | bool | float] | None = None,
) -> Any: ...


def load_model(
    path: str | Path,
    *,
    estimator: bool = False,
    storage_options: Mapping[str, str | bool | float] | None = None,
) -> Any:
    """Open a model that `dcpred.train` or the method `save` of an estimator wrote.

    Parameters
    ----------
    path : str or Path
        Directory or address of the model.
    estimator : bool, default False
        Return a fitted estimator, which needs scikit-learn and Dask. Its parameters are the settings of the
        training.
    storage_options : dict, optional
        Options of the object store: endpoint, region and so on. Credentials come from the environment.

    Returns
    -------
    ServedModel, DCPredClassifier or DCPredRegressor
        The model.

    Raises
    ------
    ModelFormatError
        If it cannot be trusted.
    """
    with given_options(check_options(storage_options or {})):
        forget_failures()
        artifact = open_artifact(path)
        if estimator:
            from dcpred.estimators.loading import fitted_estimator

            return fitted_estimator(artifact)
        return ServedModel(artifact)
