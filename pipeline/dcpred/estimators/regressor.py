"""DCPredRegressor: kernel ridge regression with scikit-learn's API."""

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import column_or_1d
from sklearn.utils.validation import _check_sample_weight, validate_data

from dcpred.estimators import out_of_core
from dcpred.estimators.base import DCPredBase
from dcpred.estimators.class_names import check_numbers
from dcpred_tasks.task_bodies.predict_block import check_scored


class DCPredRegressor(RegressorMixin, DCPredBase):  # type: ignore[misc]
    """Kernel ridge regression that predicts at the cost of a few linear predictions (DC-Pred++).

    As DCPredClassifier, with squared error. Parameters that differ:

    Parameters
    ----------
    ridge : float
        λ of the local machines, α = (G + λI)⁻¹ (y − ȳ).
    head_ridge : float or None
        λ of the compact models, for refine=False. None: the same.
    """

    _task = "regression"

    def __init__(
        self,
        *,
        n_leaves: int | None = None,
        kernel: str = "rbf",
        gamma: float | str = "scale",
        degree: int = 2,
        coef0: float = 1.0,
        ridge: float = 1e-2,
        head_gamma: float | None = None,
        head_ridge: float | None = None,
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
        self.ridge = ridge
        self.head_gamma = head_gamma
        self.head_ridge = head_ridge
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
        """X (n_samples, n_features), y (n_samples,) numbers: in memory, or X a Dask collection or Zarr array.
        Names of features are kept as in DCPredClassifier.
        """
        check_numbers(y)
        X, y, sample_weight, names = out_of_core.training_data(X, y, sample_weight)
        if out_of_core.is_out_of_core(X):
            self._fit_on_workers(X, y, sample_weight, self._settings())
            self._keep_names(names)
            return self
        X, y = validate_data(self, X, y, dtype="numeric", y_numeric=True)
        target = np.asarray(column_or_1d(y, warn=True), np.float64)
        weight = np.array(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
        self._fit_rows(X, target, weight, np.empty(0), ())
        return self

    def predict(self, X: Any) -> Any:
        """float64 (n_samples,), a lazy Dask array where X is a Dask collection or Zarr array.

        A row without a score, one with NaN, infinity or a value too large, gets NaN lazily; in memory
        DataError names it. Names of features are compared as in DCPredClassifier.
        """
        return self._scored(X)[:, 0]

    def predict_early(self, X: Any) -> Any:
        """The same by the local machines (early prediction): slower; needs keep_support_vectors=True. A row
        without a score is treated as in `predict`.
        """
        return self._scored(X, early=True)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R². Of lazy X only the predictions come into memory. Raises DataError, which names the first row
        without a score.
        """
        decision, y, sample_weight = out_of_core.computed(self._values(X), y, sample_weight)
        check_scored(decision)
        return float(r2_score(y, decision[:, 0], sample_weight=sample_weight))
