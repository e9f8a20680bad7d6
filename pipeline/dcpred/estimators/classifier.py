"""scikit-learn estimators. Thin: they check their input, delegate, and keep the fitted `Model`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import zarr
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d, compute_class_weight
from sklearn.utils.validation import _check_sample_weight, _num_samples, validate_data

from dcpred.estimators import lazy_tables, out_of_core
from dcpred.estimators.base import DASK_FRAME, DCPredBase, if_calibrated
from dcpred.estimators.class_names import (
    check_are_classes,
    check_class_weight,
    check_one_each,
    class_names,
    known_weight,
    named,
    plain_column,
)
from dcpred.estimators.settings import Settings, without_rare_settings
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import is_a, is_lazy
from dcpred_tasks.model.answers import calibration_of
from dcpred_tasks.model.class_codes import class_positions, class_values
from dcpred_tasks.model.compact_model import class_array, class_numbers
from dcpred_tasks.model.label_rule import Rule, given_costs, label_rule, threshold_of_two
from dcpred_tasks.task_bodies.predict_block import (
    check_numbered,
    decision_block,
    label_rows,
    probability_block,
    probability_rows,
    value_block,
)
from dcpred_tasks.training.settings import make_settings, settings_dict


class DCPredClassifier(ClassifierMixin, DCPredBase):  # type: ignore[misc]
    """Kernel SVM that predicts at the cost of a few linear predictions (DC-Pred++: Hsieh, Si and Dhillon,
    NIPS 2014).

    A k-means tree divides the rows; in each leaf a kernel SVM is trained, its landmarks are found by k-means
    weighted with α², pseudo-landmarks are added, and landmarks and output weights are moved downhill together
    until they are the compact model of the leaf.

    Without any setting, `fit` searches for them as `dcpred train` does: models of candidate settings predict
    held-out rows, and one replaces the default settings where a paired test says so. `tuned_` holds every
    decision. Fewer than 20 rows are not judged: the default settings train. The defaults below are of
    settings beside others that are given.

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
    C : float (more than 0) or None, default None
        Penalty on errors of the local SVMs, for classes. None: 10.0.
    loss : {"hinge", "logistic", "distance", "huber", "quantile"} or None, default None
        Loss of the refinement. hinge: the squared hinge of each class against the rest, or the squared error
        of numbers. logistic: the logistic loss, over all classes of a leaf together. distance: hinge, beside
        the distance to the local SVM, whose γ all landmarks have; with the rbf kernel, without products.
        huber: Huber's loss of numbers, which outliers move little. quantile: the loss of a quantile of
        numbers, whose level the setting quantile is. None: hinge.
    class_weight : "balanced", dict or None, default None
        Weight of the classes. "balanced": all classes weigh the same. A dict gives the weight of each class,
        and needs rows in memory. None: every row weighs the same. The label is the class with the largest
        weight × probability; probabilities stay those of the data's own rates.
    threshold : str, default "none"
        Probability from which on a row gets the label of the second of two classes. none: one half, or what
        class_weight makes of it. Those that follow are chosen on rows that are held out. f1: the largest F1.
        balanced: the largest balanced accuracy. precision>=0.9: the largest recall of those with so much
        precision, and recall>=0.9 the other way round. cost=50: to miss a row costs 50 times what it costs to
        flag a wrong one.
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
        by validation, on the workers of the current Dask client or in this process. Only class_weight,
        keep_support_vectors, calibrate, max_leaf_rows, sample_rows and random_state may be given with it.
        `settings_` holds what was found. None: the settings that are given. Where none is given, a search
        chooses within 20 linear predictions or 100 ns a row, whichever is more.
    metric : str, callable or None, default None
        What the search for settings compares candidates by: the name of a scorer of scikit-learn
        ("accuracy", "balanced_accuracy", "neg_log_loss", "neg_brier_score", "roc_auc", "average_precision",
        "f1_macro" or "matthews_corrcoef"), "neg_mean_cost=50" (a missed row of the second class costs 50
        times a false alarm; or a matrix, as "neg_mean_cost=0,1,9;1,0,9;1,1,0"), or a scorer (`make_scorer`),
        which sees the numbers of classes as targets. None: accuracy; log-loss where one class has at least
        90 % of the rows.
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
    classes_ : ndarray (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray (n_features,) of str, only where X names its features
    schema_ : Schema, what the columns of X were, only where X names its features or is of a data set
    n_leaves_ : int
    threshold_ : float, the probability from which on rows get the label of the second of two classes; only
        where there are two, and with calibrate=True
    settings_ : dict, the settings that the model was trained with
    tuned_ : dict, what the search for settings found (quality, references, trace), None where there was none
    model_ : the arrays of the compact model (dcpred_tasks.model.compact_model.Model)
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
        self.cv = cv
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.directory = directory
        self.settings = settings

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """X (n_samples, n_features), y (n_samples,) labels of any kind: in memory, or X a Dask collection or
        Zarr array.

        A frame may hold text, categories, booleans and dates: what its columns are is learned, and kept as
        schema_. A sparse matrix is made dense where memory allows it.

        Names of features are kept as feature_names_in_: of the columns of a frame, of the labels of the
        second dimension of an xarray.DataArray, or those that an attribute `feature_names` lists. Classes
        have the names that an attribute `labels` of a Zarr or xarray y lists.

        C of the local SVMs is multiplied by sample_weight (n_samples,), as that of scikit-learn's SVC is.
        Rows with the same value of groups (n_samples,) are held out together.
        """
        return self._refit(X, y, sample_weight, groups)

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> None:
        labels, given = class_names(y), None
        if is_lazy(X) or isinstance(X, zarr.Array):
            y, given = lazy_tables.numbered_labels(y)
            labels = labels if given is None else tuple(str(one) for one in given)
        X = self._encoded(X)
        X, y, sample_weight, names = out_of_core.training_data(X, y, sample_weight)
        if out_of_core.is_out_of_core(X):
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
                self.classes_ = given[np.isin([str(one) for one in given], self.classes_)]
                self.model_ = replace(self.model_, classes=tuple(self.classes_.tolist()))
            return
        if y is not None:
            y = class_values(np.asarray(plain_column(named(y, labels))))
            check_one_each(y, _num_samples(X))
        X, y = validate_data(self, X, y, dtype="numeric", ensure_all_finite=False)
        self._keep_columns()
        check_are_classes(y)
        self.classes_, target = np.unique(y, return_inverse=True)
        sample_weight = known_weight(sample_weight, len(X))
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
        """float32 (n_samples,) for two classes, else (n_samples, n_classes); NaN in rows without a score."""
        one = self._fitted().n_outputs == 1
        if is_a(X, DASK_FRAME):
            block = value_block if one else decision_block
            return self._framed(X, block, None if one else self.classes_, self.model_, False)
        decision = self._values(X)
        return decision[:, 0] if one else decision

    def predict(self, X: Any, *, threshold: float | str | None = None, costs: Any = None) -> Any:
        """Labels (n_samples,), a lazy Dask array where X is a Dask collection or Zarr array.

        threshold  in place of that of the model: rows get the second of two classes where its probability is
                   larger; or "cost=50", where a missed row costs 50 times a false alarm
        costs      (n_classes, n_classes), the cost of each label (column) for rows of each class: rows get
                   the label with the least expected cost

        No class for a row without a score, one with NaN, infinity or a value too large. In memory: raises
        DataError, which names the row. Lazily: a missing label where their dtype has one (NaN, None, NaT),
        else DataError when it is computed. A frame with other columns, or an array that names other features,
        is refused (DataError); columns in another order are put in order.
        """
        rule = label_rule(self._fitted(), given_costs(threshold, costs))
        return self._predicted(X, False, rule)

    @property
    def threshold_(self) -> float:
        """The probability from which on rows get the label of the second of two classes."""
        return threshold_of_two(self._fitted())

    @if_calibrated
    def predict_proba(self, X: Any) -> Any:
        """Probabilities of classes_, float64 (n_samples, n_classes), lazy where X is: measured on rows that
        were held out, of rows weighed as those of training. That of the label is the largest. A row without
        a score has NaN lazily; in memory DataError names it. Needs calibrate=True.
        """
        calibration = calibration_of(self._fitted())
        if is_a(X, DASK_FRAME):
            return self._framed(X, probability_rows, self.classes_, self.model_, calibration)
        decision = self._scored(X)
        if out_of_core.is_out_of_core(decision):
            return out_of_core.probabilities(decision, calibration)
        return probability_block(decision, calibration)

    @if_calibrated
    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of `predict_proba`."""
        p = self.predict_proba(X)
        return p.map_partitions(np.log) if is_a(p, DASK_FRAME) else np.log(p)

    def predict_early(self, X: Any) -> Any:
        """Labels by the local SVMs (early prediction): slower; needs keep_support_vectors=True.

        A row without a score gets no class, as in `predict`."""
        return self._predicted(X, True, class_numbers)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of labels that are right; y holds names, or numbers with an attribute `labels`. Of lazy X
        only class numbers come into memory. Raises DataError, which names the first row without a score.
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
        return float(np.average(right, weights=known_weight(sample_weight, len(numbers))))

    def _predicted(self, X: Any, early: bool, rule: Rule) -> Any:
        if is_a(X, DASK_FRAME):
            return self._framed(X, label_rows, None, self._fitted(), early, self.classes_, rule)
        decision = self._scored(X, early)
        if out_of_core.is_out_of_core(decision):
            return out_of_core.labels(decision, self.classes_, rule)
        return self.classes_[rule(decision)]
