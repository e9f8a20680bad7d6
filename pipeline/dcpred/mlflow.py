"""The MLflow flavour: save, log and load models with the names of their columns.

    import dcpred.mlflow

    dcpred.mlflow.log_model("model", name="credit")           # in a run of MLflow
    mlflow.pyfunc.load_model("models:/credit/1").predict(frame)

MLflow is imported lazily: it comes with `pip install "dcpred[mlflow]"`.
"""

import platform
import sys
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np

from dcpred.serving.served_model import ServedModel
from dcpred.serving.served_model import load_model as open_model
from dcpred.version import __version__
from dcpred_tasks.errors import DataError, optional_package
from dcpred_tasks.schema.schema import numbers_schema
from dcpred_tasks.storage.addresses import path_on_disk

FLAVOR = "dcpred"
MODEL = "model"  # folder of the model within that of MLflow
REQUIREMENTS, PYTHON = "requirements.txt", "python_env.yaml"


def save_model(
    model: str | Path | ServedModel, path: str | Path, *, mlflow_model: Any = None, **metadata: Any
) -> None:
    """Save a model as a new folder that MLflow loads, with its signature.

    Parameters
    ----------
    model : str, Path or ServedModel
        A model on a disk, or its path.
    path : str or Path
        A folder that does not exist yet.
    mlflow_model : mlflow.models.Model, optional
        What MLflow knows of the model so far.
    **metadata
        Attributes of the ``mlflow.models.Model``, for example ``signature`` in place of the model's own.

    Raises
    ------
    DataError
        If the folder exists, or the model lies in an object store.
    SettingsError
        If MLflow is not installed.
    """
    mlflow = _mlflow()
    target = Path(path)
    if target.exists():
        raise DataError(f"Cannot save to {target}: it already exists. Remove it or choose another path.")
    served = model if isinstance(model, ServedModel) else open_model(model)
    if path_on_disk(served.artifact.path) is None:
        raise DataError(
            f"Cannot save {served.artifact.path} for MLflow: it lies in an object store. Copy it to a disk"
            " first."
        )
    known = {"signature": signature(served), **metadata}
    target.mkdir(parents=True)
    copytree(served.artifact.path, target / MODEL)
    (target / REQUIREMENTS).write_text(f"dcpred=={__version__}\n", encoding="utf-8")
    python = f'python: "{platform.python_version()}"\ndependencies:\n- -r {REQUIREMENTS}\n'
    (target / PYTHON).write_text(python, encoding="utf-8")
    about = mlflow.models.Model() if mlflow_model is None else mlflow_model
    for name, value in known.items():
        setattr(about, name, value)
    about.add_flavor(FLAVOR, data=MODEL, dcpred_version=__version__, hash=served.artifact.hash)
    mlflow.pyfunc.add_to_model(about, loader_module=__name__, data=MODEL, python_env=PYTHON)
    about.save(str(target / "MLmodel"))


def log_model(model: str | Path | ServedModel, name: str = MODEL, **options: Any) -> Any:
    """Log a model to the active run of MLflow, or to a new one.

    Parameters
    ----------
    model : str, Path or ServedModel
        A model on a disk, or its path.
    name : str, default "model"
        Its name in MLflow.
    **options
        Of ``mlflow.models.Model.log``, for example ``registered_model_name``.

    Returns
    -------
    mlflow.models.model.ModelInfo
        Where MLflow keeps it.
    """
    return _mlflow().models.Model.log(None, sys.modules[__name__], name=name, model=model, **options)


def load_model(model_uri: str) -> ServedModel:
    """Open a model that MLflow keeps, by its address there (``models:/credit/1``, ``runs:/…``) or its folder.

    Returns
    -------
    ServedModel
        The model, as `dcpred.load_model` opens it.
    """
    return open_model(Path(_mlflow().artifacts.download_artifacts(artifact_uri=str(model_uri))) / MODEL)


class _Pyfunc:
    """What ``mlflow.pyfunc.load_model`` returns: labels, or values of a regression."""

    def __init__(self, served: ServedModel) -> None:
        self.served = served

    def predict(self, model_input: Any, params: Any = None) -> Any:
        return self.served.predict(model_input)

    def get_raw_model(self) -> ServedModel:
        return self.served


def _load_pyfunc(data_path: str) -> _Pyfunc:
    """Called by MLflow."""
    return _Pyfunc(open_model(data_path))


def signature(model: ServedModel) -> Any:
    """The ``mlflow.models.ModelSignature`` of a model: the names of its columns, and the type of its label.
    The model itself checks values and missing columns.

    A model without names takes a matrix.
    """
    mlflow = _mlflow()
    types, any_type = mlflow.types, mlflow.types.schema.AnyType()
    names = model.artifact.feature_names
    schema = model.artifact.schema or (None if names is None else numbers_schema(names))
    if schema is None:
        inputs = [types.TensorSpec(np.dtype(np.float64), (-1, model.n_features_in_))]
    else:
        # MLflow casts no value of type Any. By any other type it refuses what the model accepts: integers as
        # double, missing ones as long, categories of pandas as string, years after 2262 as datetime.
        inputs = [types.ColSpec(any_type, column.name, required=False) for column in schema.sources]
    classes = model.classes_
    label = (
        np.dtype(float) if not len(classes) else np.dtype(str) if classes.dtype.kind == "U" else classes.dtype
    )
    outputs = [types.TensorSpec(label, (-1,))]
    return mlflow.models.ModelSignature(inputs=types.Schema(inputs), outputs=types.Schema(outputs))


def _mlflow() -> Any:
    """The package. Raises SettingsError where it is not installed."""
    with optional_package("use MLflow", "mlflow"):
        import mlflow.artifacts
        import mlflow.models
        import mlflow.pyfunc
        import mlflow.types.schema

    return mlflow
