"""A trained model in memory, for programs that predict: NumPy, Zarr and numba, no scikit-learn, no Dask."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dcpred_tasks.artifact import describe_model, read_model, read_support
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError
from dcpred_tasks.predictor import Model, Scores, class_numbers
from dcpred_tasks.scorer import score_rows


class ServedModel:
    """A model that predicts. X is (n_samples, n_features) of any real dtype, raw (the model scales it)."""

    def __init__(self, model: Model, path: Path | None = None) -> None:
        self.model = model
        self.path = path

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in the order of the columns of several decision values; empty for regression."""
        return np.array(self.model.classes)

    @property
    def n_features_in_(self) -> int:
        return self.model.n_features

    def decision_function(self, X: ArrayLike) -> Scores:
        """(n_samples,), or (n_samples, n_classes) for more than two classes; float32, float64 for regression.

        A row with NaN or infinity gets NaN."""
        return self._decision(X, early=False)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Labels, or values for regression. Raises DataError for a row with NaN or infinity."""
        return self._predict(X, early=False)

    def predict_early(self, X: ArrayLike) -> NDArray[Any]:
        """The same by the local kernel machine of each leaf (early prediction of DC-SVM): slower, and what the compact
        model approximates. Raises DataError if the model was saved without its support vectors."""
        return self._predict(X, early=True)

    def _decision(self, X: ArrayLike, early: bool) -> Scores:
        if early and self.model.support is None and self.path is not None:
            self.model = replace(self.model, support=read_support(self.path))
        decision, _ = score_rows(self.model, np.asarray(X), early=early)
        return decision if self.model.n_outputs > 1 else decision[:, 0]

    def _predict(self, X: ArrayLike, early: bool) -> NDArray[Any]:
        rows = np.asarray(X)
        decision = self._decision(rows, early)
        two_dimensional = decision[:, None] if decision.ndim == 1 else decision
        bad = ~np.isfinite(two_dimensional).all(axis=1)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise DataError(
                f"row {row} of X cannot be predicted, because it holds NaN, infinity or a value too large; remove it, or "
                f"use decision_function, which gives NaN there (status {int(Status.NON_FINITE_FEATURE)} in scored arrays)"
            )
        if self.model.task == "regression":
            return decision
        return self.classes_[class_numbers(two_dimensional)]


def load_model(path: str | Path) -> ServedModel:
    """Open a model that `dcpred train` or an estimator's `save` wrote. Raises ModelFormatError if it cannot be trusted."""
    where = Path(path)
    describe_model(where)
    return ServedModel(read_model(where), where)
