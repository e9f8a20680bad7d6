"""A fitted estimator as a served model: saved, and loaded again."""

from pathlib import Path
from tempfile import TemporaryDirectory

from dcpred import DCPredClassifier, DCPredRegressor, ServedModel, load_model


def serve(estimator: DCPredClassifier | DCPredRegressor) -> ServedModel:
    """Without its support vectors, which are read when they are first asked for."""
    with TemporaryDirectory() as folder:
        estimator.save(Path(folder) / "model")
        return load_model(Path(folder) / "model")
