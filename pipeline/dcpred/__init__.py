"""dcpred: kernel machines that predict almost as fast as a linear model, on Dask and Zarr.

Everything is imported lazily: `load_model` needs NumPy and Zarr alone, `import_data` also pyarrow and
scikit-learn, the estimators scikit-learn and Dask.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dcpred.version import __version__

if TYPE_CHECKING:
    from dcpred.datasets.importing import import_data
    from dcpred.estimators import DCPredClassifier, DCPredRegressor, Settings
    from dcpred.explanation import contributions, explain
    from dcpred.reports.report import report
    from dcpred.results.stored_scores import open_scores
    from dcpred.serving import ServedModel, load_model, storage_options

__all__ = [
    "DCPredClassifier",
    "DCPredRegressor",
    "ServedModel",
    "Settings",
    "__version__",
    "contributions",
    "explain",
    "import_data",
    "load_model",
    "open_scores",
    "report",
    "storage_options",
]
_HOMES = {
    "DCPredClassifier": "estimators",
    "DCPredRegressor": "estimators",
    "ServedModel": "serving",
    "Settings": "estimators",
    "contributions": "explanation",
    "explain": "explanation",
    "import_data": "datasets.importing",
    "load_model": "serving",
    "open_scores": "results.stored_scores",
    "report": "reports.report",
    "storage_options": "serving",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dcpred' has no attribute {name!r}")
    home = f"dcpred.{_HOMES[name]}"
    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name is None or not home.startswith(error.name):
            raise
        raise ImportError(
            f"Cannot import dcpred.{name}: the distribution dcpred-serving only serves models. Install dcpred"
            " in its place."
        ) from None
