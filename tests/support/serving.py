"""Models on disk: a fitted estimator saved and loaded again, and models that are read once by many calls."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dcpred import DCPredClassifier, DCPredRegressor, ServedModel, load_model
from dcpred_tasks.artifacts.model_artifact import Artifact
from dcpred_tasks.model.compact_model import Model


def serve(estimator: DCPredClassifier | DCPredRegressor) -> ServedModel:
    """With its support vectors, where it has any: the files are gone when they would first be asked for."""
    with TemporaryDirectory() as folder:
        estimator.save(Path(folder) / "model")
        served = load_model(Path(folder) / "model")
        served.model = served.artifact.model(support=served.artifact.has_support)
        return served


_KEPT: dict[tuple[str, bool], Model] = {}


def read_models_once(patch: pytest.MonkeyPatch) -> None:
    """For tests of outputs that score hundreds of times with one model, whose arrays nobody touches: to read
    them takes half of the time of a small run.
    """
    read = Artifact.model

    def model(artifact: Artifact, *, support: bool = False) -> Model:
        key = artifact.hash, support
        if key not in _KEPT:
            _KEPT[key] = read(artifact, support=support)
        return _KEPT[key]

    patch.setattr(Artifact, "model", model)
