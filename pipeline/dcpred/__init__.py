"""dcpred: kernel machines that predict almost as fast as a linear model, on Dask and Zarr.

`load_model` needs NumPy and Zarr alone; the estimators, which need scikit-learn and Dask, are imported when first named.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dcpred.serving import ServedModel, load_model
from dcpred.version import __version__

if TYPE_CHECKING:
    from dcpred.estimators import DCPredClassifier, DCPredRegressor

__all__ = ["DCPredClassifier", "DCPredRegressor", "ServedModel", "__version__", "load_model"]


def __getattr__(name: str) -> Any:
    if name in ("DCPredClassifier", "DCPredRegressor"):
        return getattr(import_module("dcpred.estimators"), name)
    raise AttributeError(f"module 'dcpred' has no attribute {name!r}")
