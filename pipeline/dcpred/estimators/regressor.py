"""DCPredRegressor: kernel ridge regression with scikit-learn's API."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import column_or_1d
from sklearn.utils.validation import _check_sample_weight, _num_samples, validate_data

from dcpred.estimators import out_of_core
from dcpred.estimators.base import DASK_FRAME, DCPredBase, if_calibrated
from dcpred.estimators.class_names import check_numbers, check_one_each, known_weight, plain_column
from dcpred.estimators.settings import Settings, without_rare_settings
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import is_a
from dcpred_tasks.model.answers import intervals_of, quantile_shares
from dcpred_tasks.model.sureness import DEFAULT_ALPHA, check_share
from dcpred_tasks.task_bodies.predict_block import check_scored, interval_block, quantile_block, value_block
from dcpred_tasks.training.survey import LARGEST_TARGET


class DCPredRegressor(RegressorMixin, DCPredBase):  # type: ignore[misc]
    """Kernel ridge regression that predicts at the cost of a few linear predictions (DC-Pred++).

    As DCPredClassifier, with numbers in place of classes: squared error, and kernel ridge regression in each
    leaf. Without any setting, `fit` searches for them as that does; the defaults below are of settings beside
    others that are given.

    Parameters
    ----------
    n_leaves : int (from 0 to 16,777,216 leaves) or None, default None
        Leaves to aim at, rounded down to a power of two. More leaves make training cheaper. None: one leaf
        for every 1,000 rows, at most 4,096.
    landmarks : int (from 1 to 10,000) or None, default None
        Landmarks of each leaf: exact kernel values in each prediction. None: 16.
    kernel : {"rbf", "laplacian", "polynomial", "matern32", "matern52"} or None, default None
        Kernel of the local machines and of the landmarks. None: rbf.
    gamma : {"scale", "median"} or float (more than 0 and at most 1e+30) or None, default None
        γ of the local machines, in scaled features. scale: 1 / (features × variance), or 1 with learned
        scaling (rbf, Matérn). median: in each leaf 1 / the median squared distance of its rows, or distance
        for laplacian. None: scale.
    ridge : float (more than 0) or None, default None
        Ridge λ of the local machines, for numbers. None: 0.01.
    loss : {"hinge", "logistic", "distance", "huber", "quantile"} or None, default None
        Loss of the refinement. hinge: the squared hinge of each class against the rest, or the squared error
        of numbers. logistic: the logistic loss, over all classes of a leaf together. distance: hinge, beside
        the distance to the local SVM, whose γ all landmarks have; with the rbf kernel, without products.
        huber: Huber's loss of numbers, which outliers move little. quantile: the loss of a quantile of
        numbers, whose level the setting quantile is. None: hinge.
    quantile : float (from 0.001 to 0.999) or None, default None
        Level of the quantile that is predicted, with loss=quantile: the fraction of rows whose values lie
        below. None: 0.5.
    target_transform : {"none", "log1p", "sqrt"}, default "none"
        Scale that numbers are learned on, for targets of 0 or more whose errors grow with them. log1p: the
        logarithm of 1 + the target. sqrt: its square root. Predictions and intervals are on the scale of the
        target, and predictions are means. A search tries log1p and sqrt for skewed targets.
    scaling : {"none", "standard", "minmax", "learned", "sharpened"} or None, default None
        How features are scaled, after they are mapped. learned: a factor for each feature, such that near
        rows have like targets; a feature that does not matter gets the factor 0. sharpened: the same, as long
        as it pays, so that few features may outweigh all others. standard: to variance 1. minmax: to the
        range 0 to 1. None: standard.
    categorical : str, default "auto"
        Features whose values are codes and not amounts: each becomes a column for every value but the most
        frequent one, rare ones and those that no training row has. auto: the categories of a table; a search
        may add features of 3 to 256 different whole numbers. Features that are listed are coded beside the
        categories of a table; auto may stand among them, so that a search may add others. none: no feature.
    missing : str, default "auto"
        What a missing value (NaN) is. refuse: a value that no row may have. impute: the mean of its feature,
        or the most frequent code. indicate: the same, and every feature with missing values gets a column
        that says where they are; of features that are listed, those with missing values get one, and no
        others do. auto: refuse where no training row has a missing value; else indicate. A search chooses
        between impute and indicate.
    max_leaf_rows : int (from 2 to 1,000,000 rows), default 8000
        A leaf with more rows is split again.
    budget : str or None, default None
        What a prediction may cost, as "8x" (linear predictions), "0.2us" or "200ns". Settings are then chosen
        by validation, on the workers of the current Dask client or in this process. Only
        keep_support_vectors, calibrate, max_leaf_rows, sample_rows and random_state may be given with it.
        `settings_` holds what was found. None: the settings that are given. Where none is given, a search
        chooses within 20 linear predictions or 100 ns a row, whichever is more.
    metric : str, callable or None, default None
        What the search for settings compares candidates by: the name of a scorer of scikit-learn ("r2",
        "neg_mean_squared_error", "neg_root_mean_squared_error", "neg_mean_absolute_error",
        "neg_median_absolute_error", "neg_mean_poisson_deviance" or "neg_mean_gamma_deviance"),
        "neg_mean_pinball_loss=0.9" (of a quantile), or a scorer (`make_scorer`). None: the squared error.
    cv : int, splitter of scikit-learn, iterable of (train, test) row numbers, or None, default None
        How rows are held out for the search, probabilities and intervals: so many folds, or those of a
        splitter such as GroupKFold or TimeSeriesSplit. With `groups` of `fit`, None and a number keep the
        rows of each group together. None: four folds of rows.
    random_state : int, RandomState or None, default None
        Start of every random choice. The same number gives the same model.
    n_jobs : int or None, default None
        Threads that fit leaves, for rows in memory. None: one; a search then tries a candidate on each core.
    verbose : int, default 0
        1: `fit` shows on standard error how far it is. 0: it is silent.
    directory : path or None, default None
        Where training on Dask or Zarr arrays keeps its work; every worker must see it. None: the system's
        place for temporary files. Of rows in memory nothing is written, but with a budget and a Dask client.
    settings : Settings or None, default None
        The settings that few people change, as `dcpred.Settings(overlap=3)`.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray (n_features,) of str, only where X names its features
    schema_ : Schema, what the columns of X were, only where X names its features or is of a data set
    n_leaves_ : int
    settings_ : dict, the settings that the model was trained with
    tuned_ : dict, what the search for settings found (quality, references, trace), None where there was none
    model_ : the arrays of the compact model (dcpred_tasks.model.compact_model.Model)
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
        cv: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
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
        self.cv = cv
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.directory = directory
        self.settings = settings

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """X (n_samples, n_features), y (n_samples,) numbers: in memory, or X a Dask collection or Zarr array.
        Names of features are kept, and frames and sparse matrices taken, as in DCPredClassifier,
        and rows with the same value of groups (n_samples,) are held out together.
        """
        return self._refit(X, y, sample_weight, groups)

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> None:
        check_numbers(y)
        X = self._encoded(X)
        X, y, sample_weight, names = out_of_core.training_data(X, y, sample_weight)
        if out_of_core.is_out_of_core(X):
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
        sample_weight = known_weight(sample_weight, len(X))
        weight = np.array(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
        self._fit_rows(X, target, weight, np.empty(0), (), groups)

    def predict(self, X: Any) -> Any:
        """float64 (n_samples,), a lazy Dask array where X is a Dask collection or Zarr array.

        A row without a score, one with NaN, infinity or a value too large, gets NaN lazily; in memory
        DataError names it. Names of features are compared as in DCPredClassifier.
        """
        return self._predicted(X, early=False)

    @if_calibrated
    def predict_interval(self, X: Any, alpha: float = DEFAULT_ALPHA) -> Any:
        """Lower and upper bounds, float64 (n_samples, 2), lazy where X is. A share `alpha` of rows like those
        of training lies outside, from 0.01 to 0.5. A row without a score has NaN lazily; in memory DataError
        names it. Raises SettingsError for another alpha. Needs calibrate=True.
        """
        intervals_of(self._fitted()).at(alpha)
        if is_a(X, DASK_FRAME):
            return self._framed(X, interval_block, ("lower", "upper"), self.model_, alpha)
        return self._each_row(X, interval_block, (2,), alpha)

    @if_calibrated
    def predict_quantile(self, X: Any, q: float | Sequence[float] = 0.5) -> Any:
        """The number below which a share `q` of rows like these lies, float64 (n_samples,), or (n_samples,
        len(q)) for several; lazy where X is. Shares are 0.01, 0.02 and so on to 0.99. Rows without a score
        are treated as in `predict_interval`. Raises SettingsError for another share. Needs calibrate=True.
        """
        shares = quantile_shares(self._fitted(), q)
        if is_a(X, DASK_FRAME):
            names = tuple(check_share(share) for share in shares)
            found = self._framed(X, quantile_block, names, self.model_, shares)
            return found if np.ndim(q) else found[names[0]]
        found = self._each_row(X, quantile_block, (len(shares),), shares)
        return found if np.ndim(q) else found[:, 0]

    def predict_early(self, X: Any) -> Any:
        """The same by the local machines (early prediction): slower; needs keep_support_vectors=True. A row
        without a score is treated as in `predict`.
        """
        return self._predicted(X, early=True)

    def _predicted(self, X: Any, early: bool) -> Any:
        if is_a(X, DASK_FRAME):
            return self._framed(X, value_block, None, self._fitted(), early)
        return self._scored(X, early)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R². Of lazy X only the predictions come into memory. Raises DataError, which names the first row
        without a score.
        """
        decision, y, sample_weight = out_of_core.computed(self._values(X), y, sample_weight)
        check_scored(decision)
        check_numbers(y)
        y, sample_weight = plain_column(y), known_weight(sample_weight, len(decision))
        check_one_each(np.asarray(y), len(decision))
        large = np.flatnonzero(np.abs(np.asarray(y)) > LARGEST_TARGET)
        if len(large):  # Their squares overflow.
            raise DataError(
                f"Cannot score y: it holds {np.asarray(y)[large[0]]} in row {large[0]:,}, but targets are"
                f" at most {LARGEST_TARGET:g}. Correct that row."
            )
        return float(r2_score(y, decision[:, 0], sample_weight=sample_weight))
