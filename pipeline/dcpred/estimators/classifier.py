"""scikit-learn estimators. Thin: they check their input, delegate, and keep the fitted `Model`."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from dcpred.estimators import out_of_core
from dcpred.estimators.base import DCPredBase
from dcpred.estimators.class_names import class_names, named
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.compact_model import class_numbers
from dcpred_tasks.task_bodies.predict_block import check_numbered
from dcpred_tasks.training.settings import make_settings, settings_dict


class DCPredClassifier(ClassifierMixin, DCPredBase):  # type: ignore[misc]
    """Kernel SVM that predicts at the cost of a few linear predictions (DC-Pred++: Hsieh, Si and Dhillon,
    NIPS 2014).

    A k-means tree divides the rows; in each leaf a kernel SVM is trained, its landmarks are found by k-means
    weighted with α², pseudo-landmarks are added, and landmarks and output weights are moved downhill together
    until they are the compact model of the leaf.

    Parameters
    ----------
    n_leaves : int or None
        Target number of leaves, rounded down to a power of two. None: one for every 1,000 rows.
    kernel : {"rbf", "laplacian", "polynomial"}
    gamma : "scale", "median" or float > 0
        γ in scaled features. "scale": 1 / (n_features × variance), or 1 for rbf where the scaling is learned;
        "median": in each leaf 1 / the median squared distance of its rows.
    degree, coef0 : int, float
        Of the polynomial kernel (γ x·u + coef0)^degree.
    C : float
        Penalty of the local SVMs.
    head_gamma, head_C : float or None
        γ and C of the compact models. None: those of the local SVMs. Few landmarks like a smaller γ. With
        gamma="median" head_gamma is a factor of γ; head_C is for refine=False.
    class_weight : None, "balanced" or dict
    scaling : {"standard", "minmax", "none", "learned"}
        "learned": a factor for each feature under which neighbours agree on y, 0 where a feature does not
        matter.
    overlap : int
        Leaves that each row helps to train: its own, and those nearest after it.
    halo_weight : float in [0, 1]
        Weight of a row in the compact models of leaves that are not its own.
    landmarks : int
        Landmarks per leaf: exact kernel values in each prediction.
    landmark_floor : float in [0, 1]
        Share of uniform weight in the k-means that finds landmarks; the rest goes by α².
    products : int
        Products of two landmark values per leaf, as pseudo-landmarks.
    triangle, triangle_bound : int, {"lower", "upper"}
        Pseudo-landmarks by the triangle inequality, for stationary kernels; they need refine=False.
    refine : bool
        Move landmarks, γ of each and output weights together by L-BFGS. False: a linear SVM on the Nyström
        approximation.
    refine_steps, refine_epochs, refine_ridge : int, int, float
        Steps at most; passes of stochastic steps (Adam) instead, which large leaves like better, or 0;
        penalty on output weights.
    guide : float in [0, 1]
        Share of the loss of refinement that is the distance to the local SVM.
    max_leaf_rows, min_leaf_rows, local_rows : int
        Larger leaves are split again, smaller ones merged; rows of a leaf that train its local machine, at
        most.
    sample_rows, nystrom_rows : int
        Rows that the tree is learned from, and rows of each leaf that W̄ is computed from (eq. 5).
    keep_support_vectors : bool
        Keep the local SVMs, for `predict_early`.
    random_state : int, RandomState or None
    n_jobs : int or None
        Threads that fit leaves, for rows in memory.
    budget : str or None
        What a prediction may cost, as "8x" (linear predictions), "0.2us" or "200ns". Settings are then chosen
        by validation, on the workers of the current Dask client or in this process; only class_weight,
        keep_support_vectors, max_leaf_rows, sample_rows and random_state may be given with it, and
        `settings_` holds what was found. None: no search.
    directory : path or None
        Where training on Dask or Zarr arrays keeps its work; every worker must see it. None: the system's
        place for temporary files.
    verbose : int
        1: `fit` shows on standard error how far it is. 0: it is silent.

    Attributes
    ----------
    classes_ : ndarray (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray (n_features,) of str, only where X names its features
    n_leaves_ : int
    model_ : the arrays of the compact model (dcpred_tasks.model.compact_model.Model)
    """

    _task = "classification"

    def __init__(
        self,
        *,
        n_leaves: int | None = None,
        kernel: str = "rbf",
        gamma: float | str = "scale",
        degree: int = 2,
        coef0: float = 1.0,
        C: float = 10.0,
        head_gamma: float | None = None,
        head_C: float | None = None,
        class_weight: str | dict[Any, float] | None = None,
        scaling: str = "standard",
        overlap: int = 1,
        halo_weight: float = 0.3,
        landmarks: int = 16,
        landmark_floor: float = 0.3,
        products: int = 64,
        triangle: int = 0,
        triangle_bound: str = "lower",
        refine: bool = True,
        refine_steps: int = 100,
        refine_epochs: int = 0,
        refine_ridge: float = 1e-3,
        guide: float = 0.0,
        max_leaf_rows: int = 8_000,
        local_rows: int = 8_000,
        min_leaf_rows: int = 30,
        sample_rows: int = 100_000,
        nystrom_rows: int = 500,
        keep_support_vectors: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        budget: str | None = None,
        directory: str | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_leaves = n_leaves
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.C = C
        self.head_gamma = head_gamma
        self.head_C = head_C
        self.class_weight = class_weight
        self.scaling = scaling
        self.overlap = overlap
        self.halo_weight = halo_weight
        self.landmarks = landmarks
        self.landmark_floor = landmark_floor
        self.products = products
        self.triangle = triangle
        self.triangle_bound = triangle_bound
        self.refine = refine
        self.refine_steps = refine_steps
        self.refine_epochs = refine_epochs
        self.refine_ridge = refine_ridge
        self.guide = guide
        self.max_leaf_rows = max_leaf_rows
        self.local_rows = local_rows
        self.min_leaf_rows = min_leaf_rows
        self.sample_rows = sample_rows
        self.nystrom_rows = nystrom_rows
        self.keep_support_vectors = keep_support_vectors
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.budget = budget
        self.directory = directory
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """X (n_samples, n_features), y (n_samples,) labels of any kind: in memory, or X a Dask collection or
        Zarr array.

        Names of features are kept as feature_names_in_: of the columns of a frame, of the labels of the
        second dimension of an xarray.DataArray, or those that an attribute `feature_names` lists. Classes
        have the names that an attribute `labels` of a Zarr or xarray y lists.
        """
        labels = class_names(y)
        X, y, sample_weight, names = out_of_core.training_data(X, y, sample_weight)
        if out_of_core.is_out_of_core(X):
            if isinstance(self.class_weight, dict):
                raise DataError(
                    "class_weight was given as a dict with a Dask or Zarr array; pass 'balanced', or put the"
                    " weights into sample_weight"
                )
            settings = self._settings()
            if self.class_weight is not None:
                settings = make_settings(settings_dict(settings) | {"class_weight": self.class_weight})
            self._fit_on_workers(X, y, sample_weight, settings, labels)
            self._keep_names(names)
            self.classes_ = np.array(self.model_.classes)
            return self
        X, y = validate_data(self, X, named(y, labels), dtype="numeric")
        check_classification_targets(y)
        self.classes_, target = np.unique(y, return_inverse=True)
        weight = np.array(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
        factors = np.ones(len(self.classes_))
        if self.class_weight is not None:
            used = weight > 0
            present = np.unique(target[used])
            factors[present] = compute_class_weight(
                self.class_weight,
                classes=self.classes_[present],
                y=self.classes_[target[used]],
                sample_weight=weight[used],
            )
        self._fit_rows(X, target, weight, factors, tuple(self.classes_.tolist()))
        if self.budget is not None:  # class numbers, those with rows of some weight
            self.classes_ = self.classes_[np.array(self.model_.classes, np.int64)]
            self.model_ = replace(self.model_, classes=tuple(self.classes_.tolist()))
        return self

    def decision_function(self, X: Any) -> Any:
        """float32 (n_samples,) for two classes, (n_samples, n_classes) for more; a row without a score gets
        NaN.
        """
        decision = self._values(X)
        return decision[:, 0] if self.model_.n_outputs == 1 else decision

    def predict(self, X: Any) -> Any:
        """Labels (n_samples,), a lazy Dask array where X is a Dask collection or Zarr array.

        No class for a row without a score, one with NaN, infinity or a value too large. In memory: raises
        DataError, which names the row. Lazily: a missing label where their dtype has one (NaN, None, NaT),
        else DataError when it is computed. A frame with other columns, or an array that names other features,
        is refused (DataError); columns in another order are put in order.
        """
        return self._labels(self._scored(X))

    def predict_early(self, X: Any) -> Any:
        """Labels by the local SVMs (early prediction): slower; needs keep_support_vectors=True.

        A row without a score gets no class, as in `predict`."""
        return self._labels(self._scored(X, early=True))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of labels that are right; y holds names, or numbers with an attribute `labels`. Of lazy X
        only class numbers come into memory. Raises DataError, which names the first row without a score.
        """
        labels = class_names(y) if self.classes_.dtype.kind not in "biuf" else None
        numbers, y, sample_weight = out_of_core.computed(
            out_of_core.class_numbers(self._values(X)), y, sample_weight
        )
        check_numbered(numbers)
        return float(accuracy_score(named(y, labels), self.classes_[numbers], sample_weight=sample_weight))

    def _labels(self, decision: Any) -> Any:
        if out_of_core.is_out_of_core(decision):
            return out_of_core.labels(decision, self.classes_)
        return self.classes_[class_numbers(decision)]
