"""The classifier with scikit-learn's API. It checks its input, delegates, and keeps the fitted `Model`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import zarr
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d, compute_class_weight
from sklearn.utils.validation import _check_sample_weight, _num_samples, validate_data

from dcpred.datasets import dask_rows
from dcpred.datasets.class_names import (
    check_are_classes,
    check_class_weight,
    check_one_each,
    class_names,
    known_weight,
    named,
    plain_column,
)
from dcpred.estimators import out_of_core
from dcpred.estimators.base import DASK_FRAME, DCPredBase, if_calibrated
from dcpred.estimators.settings import Settings, with_parameters, without_rare_settings
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import is_a, is_lazy
from dcpred_tasks.model.class_codes import class_positions, class_values
from dcpred_tasks.model.compact_model import class_array, class_numbers
from dcpred_tasks.model.label_rule import Rule, given_costs, label_rule, threshold_of_two
from dcpred_tasks.model.predictive_outputs import calibration_of
from dcpred_tasks.task_bodies.predict_block import (
    check_numbered,
    decision_block,
    label_rows,
    probability_block,
    probability_rows,
    value_block,
)
from dcpred_tasks.training.settings import make_settings, settings_dict


@with_parameters
class DCPredClassifier(ClassifierMixin, DCPredBase):  # type: ignore[misc]
    """Kernel SVM that predicts at about ten times the cost of a linear model.

    The method is DC-Pred++ (Hsieh, Si and Dhillon, NIPS 2014). A k-means tree partitions the rows. Each leaf
    trains a kernel SVM, whose landmarks k-means finds with weights α². Pseudo-landmarks are added. Gradient
    steps then move landmarks and output weights together; they are the compact model of the leaf.

    Without any setting, `fit` searches for settings as `dcpred train` does. Models of candidate settings
    predict held-out rows, and a candidate replaces the default settings if a paired test finds it better.
    `tuned_` records every decision. With fewer than 20 rows the default settings train. The defaults below
    apply if at least one setting is given.

    Parameters
    ----------
    class_weight : "balanced", dict or None, default None
        Weights of classes. "balanced": all classes have the same total weight. A dict gives the weight of
        each class, and requires rows in memory. None: all rows have the same weight. The label is the class
        with the largest weight × probability; probabilities keep the class rates of the data.
    budget : str or None, default None
        Largest cost of a prediction: "8x" (linear predictions), "0.2us" or "200ns". A search then chooses the
        settings by validation, on the workers of the current Dask client or in this process. It leaves alone
        class_weight, threshold, categorical, missing, max_leaf_rows and, of `settings`, keep_support_vectors,
        calibrate, sample_rows and largest_weight; no other setting may be given with it. None: without any
        setting the search keeps to 20 linear predictions or 100 ns a row, whichever is more; with settings
        there is no search.

    Attributes
    ----------
    classes_ : ndarray (n_classes,)
        Class labels, ascending.
    n_features_in_ : int
        Number of features of X.
    feature_names_in_ : ndarray (n_features,) of str
        Names of the features, if X has names.
    schema_ : Schema
        Kinds of the columns of X, if X has names or belongs to a data set.
    n_leaves_ : int
        Number of leaves.
    threshold_ : float
        Probability above which a row gets the second of two classes. Requires the setting `calibrate`.
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

    _task = "classification"

    @without_rare_settings
    def __init__(
        self,
        *,
        n_leaves: int | None = None,
        landmarks: int | None = None,
        kernel: str | None = None,
        gamma: float | str | None = None,
        C: float | None = None,
        loss: str | None = None,
        class_weight: str | dict[Any, float] | None = None,
        threshold: str | float = "none",
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
        self.C = C
        self.loss = loss
        self.class_weight = class_weight
        self.threshold = threshold
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
        """Fit the classifier.

        Rows in memory are trained on in this process, Dask collections and Zarr arrays on the workers of the
        current Dask client.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, Dask collection or Zarr array (n_samples, n_features)
            Rows to train on. The columns of a frame may hold text, categories, booleans and dates; `schema_`
            keeps what they are. A sparse matrix is made dense if memory allows it. Names of features are kept
            as `feature_names_in_`: column names, the labels of the second dimension of an xarray.DataArray,
            or the attribute `feature_names`.
        y : array-like, Dask collection or Zarr array (n_samples,)
            Class labels of any kind. The attribute `labels` of a Zarr or xarray y names its classes.
        sample_weight : array-like (n_samples,) or None, default None
            Weights of rows, 0 or more. They multiply C of the local SVMs, as in scikit-learn's SVC.
        groups : array-like (n_samples,) or None, default None
            Rows with the same value are held out together.

        Returns
        -------
        DCPredClassifier
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
        labels, given = class_names(y), None
        if is_lazy(X) or isinstance(X, zarr.Array):
            y, given = dask_rows.numbered_labels(y)
            labels = labels if given is None else tuple(str(label) for label in given)
        X = self._encoded(X)
        X, y, sample_weight, names = dask_rows.training_data(X, y, sample_weight)
        if dask_rows.is_out_of_core(X):
            if isinstance(self.class_weight, dict):
                raise DataError(
                    "Cannot use class_weight: it is a dict, and X is a Dask or Zarr array. Pass 'balanced',"
                    " or put the weights into sample_weight."
                )
            settings = self._settings(X.shape[1], names or ())
            if self.class_weight is not None:
                settings = make_settings(settings_dict(settings) | {"class_weight": self.class_weight})
            folds = self._folds(groups, y, X.shape[0], settings)
            self._fit_on_workers(X, y, sample_weight, settings, folds, labels)
            self._keep_names(names)
            self.classes_ = class_array(self.model_.classes)
            if given is not None and given.dtype.kind != "U":  # The model has their names.
                self.classes_ = given[np.isin([str(label) for label in given], self.classes_)]
                self.model_ = replace(self.model_, classes=tuple(self.classes_.tolist()))
            return
        if y is not None:
            y = class_values(np.asarray(plain_column(named(y, labels))))
            check_one_each(y, _num_samples(X))
        X, y = validate_data(self, X, y, dtype="numeric", ensure_all_finite=False)
        self._keep_columns()
        check_are_classes(y)
        self.classes_, target = np.unique(y, return_inverse=True)
        sample_weight = known_weight(sample_weight, len(X), self._largest_weight())
        weight = np.array(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
        factors = np.ones(len(self.classes_))
        if self.class_weight is not None:
            check_class_weight(self.class_weight)
            used = weight > 0
            present = np.unique(target[used])
            factors[present] = compute_class_weight(
                self.class_weight,
                classes=self.classes_[present],
                y=self.classes_[target[used]],
                sample_weight=weight[used],
            )
        self._fit_rows(X, target, weight, factors, tuple(self.classes_.tolist()), groups)
        self.classes_ = self.classes_[np.isin(self.classes_, class_array(self.model_.classes))]

    def decision_function(self, X: Any) -> Any:
        """Return the decision values of rows.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, Dask collection or Zarr array (n_samples, n_features)
            Rows to score. Columns in another order are put in order by name.

        Returns
        -------
        array or Dask collection (n_samples,) or (n_samples, n_classes)
            float32: one value for each row of two classes, else one for each class. NaN in rows without a
            score.
        """
        binary = self._fitted().n_outputs == 1
        if is_a(X, DASK_FRAME):
            block = value_block if binary else decision_block
            return self._framed(X, block, None if binary else self.classes_, self.model_, False)
        decision = self._values(X)
        return decision[:, 0] if binary else decision

    def predict(self, X: Any, *, threshold: float | str | None = None, costs: Any = None) -> Any:
        """Return the labels of rows.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, Dask collection or Zarr array (n_samples, n_features)
            Rows to score. Columns in another order are put in order by name.
        threshold : float or str or None, default None
            Replaces the threshold of the model: rows whose probability of the second of two classes is larger
            get that class. "cost=50" makes a missed row cost 50 times a false alarm.
        costs : array-like (n_classes, n_classes), str, Path or None, default None
            Cost of each label (column) for rows of each class, or the path of a CSV file of them. Rows get
            the label with the least expected cost.

        Returns
        -------
        array or Dask collection (n_samples,)
            Labels, lazy if X is. A lazy row without a score gets a missing label (NaN, None, NaT) if the
            dtype of the labels has one.

        Raises
        ------
        DataError
            If a row in memory has no score, or if the columns are not those of training.
            For lazy rows it is raised when they are computed, if the dtype of the labels has no missing
            value.
        SettingsError
            If threshold or costs is invalid, or the model has no calibrated probabilities.
        """
        rule = label_rule(self._fitted(), given_costs(threshold, costs))
        return self._predicted(X, False, rule)

    @property
    def threshold_(self) -> float:
        """The probability from which on rows get the label of the second of two classes."""
        return threshold_of_two(self._fitted())

    @if_calibrated
    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of classes.

        They are measured on held-out rows, weighted as the rows of training. The label has the largest one.
        Requires the setting `calibrate`.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, Dask collection or Zarr array (n_samples, n_features)
            Rows to score. Columns in another order are put in order by name.

        Returns
        -------
        array or Dask collection (n_samples, n_classes)
            float64 in the order of `classes_`, lazy if X is. NaN in lazy rows without a score.

        Raises
        ------
        DataError
            If a row in memory has no score, or if the columns are not those of training.
        """
        calibration = calibration_of(self._fitted())
        if is_a(X, DASK_FRAME):
            return self._framed(X, probability_rows, self.classes_, self.model_, calibration)
        decision = self._scored(X)
        if dask_rows.is_out_of_core(decision):
            return out_of_core.probabilities(decision, calibration)
        return probability_block(decision, calibration)

    @if_calibrated
    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithms of `predict_proba`.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, Dask collection or Zarr array (n_samples, n_features)
            Rows to score. Columns in another order are put in order by name.

        Returns
        -------
        array or Dask collection (n_samples, n_classes)
        """
        p = self.predict_proba(X)
        return p.map_partitions(np.log) if is_a(p, DASK_FRAME) else np.log(p)

    def predict_early(self, X: Any) -> Any:
        """Return labels by the local SVMs (early prediction).

        It is slower than `predict`, and requires the setting `keep_support_vectors`.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, Dask collection or Zarr array (n_samples, n_features)
            Rows to score. Columns in another order are put in order by name.

        Returns
        -------
        array or Dask collection (n_samples,)
            Labels as `predict` returns them.
        """
        return self._predicted(X, True, class_numbers)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, Dask collection or Zarr array (n_samples, n_features)
            Rows to score. Columns in another order are put in order by name.
        y : array-like, Dask collection or Zarr array (n_samples,)
            True labels: names, or numbers with an attribute `labels`.
        sample_weight : array-like (n_samples,) or None, default None
            Weights of rows.

        Returns
        -------
        float
            Weighted fraction of correct labels. Of lazy rows only the class numbers come into memory.

        Raises
        ------
        DataError
            If a row has no score; it names the first one.
        """
        labels = class_names(y) if self.classes_.dtype.kind not in "biuf" else None
        numbers, y, sample_weight = out_of_core.computed(
            out_of_core.class_numbers(self._values(X)), y, sample_weight
        )
        check_numbered(numbers)
        y = class_values(np.asarray(plain_column(named(y, labels))))
        y = column_or_1d(y.astype(self.classes_.dtype) if y.dtype.kind in "mM" else y)
        check_one_each(y, len(numbers))
        right = class_positions(y, list(self.classes_)) == numbers
        weight = known_weight(sample_weight, len(numbers), self._largest_weight())
        return float(np.average(right, weights=weight))

    def _predicted(self, X: Any, early: bool, rule: Rule) -> Any:
        if is_a(X, DASK_FRAME):
            return self._framed(X, label_rows, None, self._fitted(), early, self.classes_, rule)
        decision = self._scored(X, early)
        if dask_rows.is_out_of_core(decision):
            return out_of_core.labels(decision, self.classes_, rule)
        return self.classes_[rule(decision)]
