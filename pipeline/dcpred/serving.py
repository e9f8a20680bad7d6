"""A trained model in memory, for programs that predict: NumPy, Zarr and llvmlite."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dcpred_tasks.artifacts.model_artifact import Artifact, open_artifact
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import as_matrix, check_one_table, dense_strips, is_lazy, is_sparse
from dcpred_tasks.model.compact_model import Model, Scores, check_features, class_numbers
from dcpred_tasks.model.feature_names import in_training_order
from dcpred_tasks.schema.frames import encode_frame, is_frame, is_numeric
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.storage.addresses import check_options
from dcpred_tasks.storage.addresses import storage_options as given_options
from dcpred_tasks.task_bodies.predict_block import check_scored


class ServedModel:
    """A model that predicts. X is (n_samples, n_features) of any real dtype, raw (the model scales it).

    `feature_names_in_`, object (n_features,), is there where the model was trained on named features. A
    frame, or an xarray.DataArray whose second dimension is labelled, is then put into the order of training
    by name, and refused (DataError) where names are missing or further ones are there. pandas.NA in a frame
    is taken as NaN. Dask collections are refused: nothing is computed in silence.

    Where the model was trained on a table of text, categories or dates, `feature_names_in_` are its columns:
    a frame of pandas, polars or pyarrow is encoded as the rows of training were. An array holds rows that are
    encoded already, as `dcpred import --like` writes them.
    """

    feature_names_in_: NDArray[np.object_]
    schema_: Schema

    def __init__(self, artifact: Artifact) -> None:
        """Read the model; its support vectors when they are first asked for."""
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
        """The classes, in the order of the columns of several decision values; empty for regression."""
        return np.array(self.model.classes)

    @property
    def n_features_in_(self) -> int:
        return len(self.schema_.sources) if self._encodes else self.model.n_features

    def decision_function(self, X: ArrayLike) -> Scores:
        """(n_samples,), or (n_samples, n_classes) for more than two classes; float32, float64 for regression.

        A row without a score (NaN, infinity or a value too large) gets NaN.
        """
        decision = self._decision(X, early=False)
        return decision if self.model.n_outputs > 1 else decision[:, 0]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Labels (n_samples,), or float64 values for regression.

        No class for a row without a score (NaN, infinity or a value too large): raises DataError, which names
        the row.
        """
        return self._predict(X, early=False)

    def predict_early(self, X: ArrayLike) -> NDArray[Any]:
        """The same by the local kernel machine of each leaf (early prediction of DC-SVM): slower, and what
        the compact model approximates.

        Raises DataError for a row without a score, and if the model was saved without its support vectors.
        """
        return self._predict(X, early=True)

    def _decision(self, X: ArrayLike, early: bool) -> Scores:
        """Decision values (n_samples, n_outputs)."""
        if is_lazy(X):
            raise DataError(
                f"X is a {type(X).__name__} that is not in memory, but a served model predicts rows in"
                " memory; use X.map_blocks(model.predict, ...), for a DataFrame map_partitions, or `dcpred"
                " score`, or pass X.compute()"
            )
        check_one_table(X, "X")
        if is_sparse(X):
            return np.concatenate([self._decision(strip, early) for strip in dense_strips(X)])
        if early and self.model.support is None:
            self.model = replace(self.model, support=self.artifact.support())
        if is_frame(X) and (self._encodes or (hasattr(self, "schema_") and not is_numeric(X))):
            return score_rows(self.model, encode_frame(self.schema_, X), early=early)[0]
        rows = as_matrix(in_training_order(X, self.artifact.feature_names))
        return score_rows(self.model, rows, early=early)[0]

    def _predict(self, X: ArrayLike, early: bool) -> NDArray[Any]:
        decision = self._decision(X, early)
        check_scored(decision)
        return decision[:, 0] if self.model.task == "regression" else self.classes_[class_numbers(decision)]


def load_model(
    path: str | Path, *, storage_options: Mapping[str, str | bool | float] | None = None
) -> ServedModel:
    """Open a model that `dcpred train` or an estimator's `save` wrote, on a disk or an object store.

    storage_options  as --storage-option of the command line: endpoint, region, …; credentials come from the
                     environment

    Raises ModelFormatError if it cannot be trusted.
    """
    with given_options(check_options(storage_options or {})):
        return ServedModel(open_artifact(path))
