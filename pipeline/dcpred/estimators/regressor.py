"""DCPredRegressor: kernel ridge regression with scikit-learn's API."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import column_or_1d
from sklearn.utils.validation import _check_sample_weight, _num_samples, validate_data

from dcpred.datasets import dask_rows
from dcpred.datasets.class_names import check_numbers, check_one_each, known_weight, plain_column
from dcpred.estimators import out_of_core
from dcpred.estimators.base import DASK_FRAME, DCPredBase, if_calibrated
from dcpred.estimators.settings import Settings, with_parameters, without_rare_settings
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import is_a
from dcpred_tasks.model.predictive_outputs import intervals_of, quantile_shares
from dcpred_tasks.model.uncertainty import DEFAULT_ALPHA, check_share
from dcpred_tasks.task_bodies.predict_block import check_scored, interval_block, quantile_block, value_block
from dcpred_tasks.training.survey import LARGEST_TARGET


@with_parameters
class DCPredRegressor(RegressorMixin, DCPredBase):  # type: ignore[misc]
    """Kernel ridge regression that predicts at about ten times the cost of a linear model.

    It works as `DCPredClassifier` does, with squared error and a kernel ridge regression in each leaf.
    Without any setting, `fit` searches for settings. The defaults below apply if at least one is given.

    Parameters
    ----------
    budget : str or None, default None
        Largest cost of a prediction: "8x" (linear predictions), "0.2us" or "200ns". A search then chooses the
        settings by validation, on the workers of the current Dask client or in this process. It leaves alone
        target_transform, categorical, missing, max_leaf_rows and, of `settings`, keep_support_vectors,
        calibrate, sample_rows and largest_weight; no other setting may be given with it. None: without any
        setting the search keeps to 20 linear predictions or 100 ns a row, whichever is more; with settings
        there is no search.

    Attributes
    ----------
    n_features_in_ : int
        Number of features of X.
    feature_names_in_ : ndarray (n_features,) of str
        Names of the features, if X has names.
    schema_ : Schema
        Kinds of the columns of X, if X has names or belongs to a data set.
    n_leaves_ : int
        Number of leaves.
    feature_importances_ : ndarray (n_features,)
        Mean absolute contribution of each feature to the decision value.
    distance_shares_ : ndarray (n_features,)
        Fraction of each feature in the squared distance of rows.
    settings_ : dict
        Settings that the model was trained with.
    tuned_ : dict or None
        Result of the search for settings: quality, references, trace. None without a search.
    model_ : Model
        Arrays of the compact model (`dcpred_tasks.model.compact_model`).
    """

    _task = "regression"

    @without_rare_settings
    def __init__(
        self,
        *,
        n_leaves: int | None = None,
        landmarks: int | None = None,
        kernel: str | None = None,
        gamma: float | str | None = None,
        ridge: float | None = None,
        loss: str | None = None,
        quantile: float | None = None,
        target_transform: str = "none",
        scaling: str | None = None,
        categorical: str | Sequence[int | str] = "auto",
        missing: str | Sequence[int | str] = "auto",
        max_leaf_rows: int = 8_000,
        budget: str | None = None,
        metric: Any = None,
        prefer: str = "cost",
        seconds: float | None = None,
        cv: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        accept: Sequence[str] = (),
        on_alarm: str = "warn",
        directory: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.n_leaves = n_leaves
        self.landmarks = landmarks
        self.kernel = kernel
        self.gamma = gamma
        self.ridge = ridge
        self.loss = loss
        self.quantile = quantile
        self.target_transform = target_transform
        self.scaling = scaling
        self.categorical = categorical
        self.missing = missing
        self.max_leaf_rows = max_leaf_rows
        self.budget = budget
        self.metric = metric
        self.prefer = prefer
        self.seconds = seconds
        self.cv = cv
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.accept = accept
        self.on_alarm = on_alarm
        self.directory = directory
        self.settings = settings

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit the regressor.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, Dask collection or Zarr array (n_samples, n_features)
            Rows to train on, as `DCPredClassifier.fit` takes them.
        y : array-like, Dask collection or Zarr array (n_samples,)
            Target numbers.
        sample_weight : array-like (n_samples,) or None, default None
            Weights of rows, 0 or more.
        groups : array-like (n_samples,) or None, default None
            Rows with the same value are held out together.

        Returns
        -------
        DCPredRegressor
            The fitted estimator.

        Raises
        ------
        DataError
            If the data cannot be used. The estimator then keeps its former state.
        SettingsError
            If a parameter is invalid.
        """
        return self._refit(X, y, sample_weight, groups)

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> None:
        check_numbers(y)
        X = self._encoded(X)
        X, y, sample_weight, names = dask_rows.training_data(X, y, sample_weight)
        if dask_rows.is_out_of_core(X):
            settings = self._settings(X.shape[1], names or ())
            folds = self._folds(groups, y, X.shape[0], settings)
            self._fit_on_workers(X, y, sample_weight, settings, folds)
            self._keep_names(names)
            return
        y = plain_column(y)
        if y is not None:
            check_one_each(np.asarray(y), _num_samples(X))
        X, y = validate_data(self, X, y, dtype="numeric", y_numeric=True, ensure_all_finite=False)
        self._keep_columns()
        target = np.asarray(column_or_1d(y, warn=True), np.float64)
        sample_weight = known_weight(sample_weight, len(X), self._largest_weight())
        weight = np.array(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
        self._fit_rows(X, target, weight, np.empty(0), (), groups)

    def predict(self, X: Any) -> Any:
        """Return the predictions of rows.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, Dask collection or Zarr array (n_samples, n_features)
            Rows to score. Columns in another order are put in order by name.

        Returns
        -------
        array or Dask collection (n_samples,)
            float64, lazy if X is. NaN in lazy rows without a score.

        Raises
        ------
        DataError
            If a row in memory has no score, or if the columns are not those of training.
        """
        return self._predicted(X, early=False)

    @if_calibrated
    def predict_interval(self, X: Any, alpha: float = DEFAULT_ALPHA) -> Any:
        """Return prediction intervals. Requires the setting `calibrate`.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, Dask collection or Zarr array (n_samples, n_features)
            Rows to score. Columns in another order are put in order by name.
        alpha : float (from 0.01 to 0.5), default 0.1
            Fraction of rows like those of training that lie outside.

        Returns
        -------
        array or Dask collection (n_samples, 2)
            float64 lower and upper bounds, lazy if X is. NaN in lazy rows without a score.

        Raises
        ------
        DataError
            If a row in memory has no score, or if the columns are not those of training.
        SettingsError
            If alpha is out of range.
        """
        intervals_of(self._fitted()).at(alpha)
        if is_a(X, DASK_FRAME):
            return self._framed(X, interval_block, ("lower", "upper"), self.model_, alpha)
        return self._each_row(X, interval_block, (2,), alpha)

    @if_calibrated
    def predict_quantile(self, X: Any, q: float | Sequence[float] = 0.5) -> Any:
        """Return conditional quantiles. Requires the setting `calibrate`.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, Dask collection or Zarr array (n_samples, n_features)
            Rows to score. Columns in another order are put in order by name.
        q : float or sequence of float (0.01, 0.02, … 0.99), default 0.5
            Levels of the quantiles: fractions of rows like these that lie below.

        Returns
        -------
        array or Dask collection (n_samples,), or (n_samples, len(q)) for several levels
            float64, lazy if X is. NaN in lazy rows without a score.

        Raises
        ------
        DataError
            If a row in memory has no score, or if the columns are not those of training.
        SettingsError
            If a level is out of range.
        """
        shares = quantile_shares(self._fitted(), q)
        if is_a(X, DASK_FRAME):
            names = tuple(check_share(share) for share in shares)
            quantiles = self._framed(X, quantile_block, names, self.model_, shares)
            return quantiles if np.ndim(q) else quantiles[names[0]]
        quantiles = self._each_row(X, quantile_block, (len(shares),), shares)
        return quantiles if np.ndim(q) else quantiles[:, 0]

    def predict_early(self, X: Any) -> Any:
        """Return predictions by the local models (early prediction).

        It is slower than `predict`, and requires the setting `keep_support_vectors`.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, Dask collection or Zarr array (n_samples, n_features)
            Rows to score. Columns in another order are put in order by name.

        Returns
        -------
        array or Dask collection (n_samples,)
            Predictions as `predict` returns them.
        """
        return self._predicted(X, early=True)

    def _predicted(self, X: Any, early: bool) -> Any:
        if is_a(X, DASK_FRAME):
            return self._framed(X, value_block, None, self._fitted(), early)
        return self._scored(X, early)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R².

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, Dask collection or Zarr array (n_samples, n_features)
            Rows to score. Columns in another order are put in order by name.
        y : array-like, Dask collection or Zarr array (n_samples,)
            True values.
        sample_weight : array-like (n_samples,) or None, default None
            Weights of rows.

        Returns
        -------
        float
            R². Of lazy rows only the predictions come into memory.

        Raises
        ------
        DataError
            If a row has no score; it names the first one.
        """
        decision, y, sample_weight = out_of_core.computed(self._values(X), y, sample_weight)
        check_scored(decision)
        check_numbers(y)
        sample_weight = known_weight(sample_weight, len(decision), self._largest_weight())
        y = plain_column(y)
        check_one_each(np.asarray(y), len(decision))
        large = np.flatnonzero(np.abs(np.asarray(y)) > LARGEST_TARGET)
        if len(large):  # Their squares overflow.
            raise DataError(
                f"Cannot score y: it holds {np.asarray(y)[large[0]]} in row {large[0]:,}, but targets are"
                f" at most {LARGEST_TARGET:g}. Correct that row."
            )
        return float(r2_score(y, decision[:, 0], sample_weight=sample_weight))
