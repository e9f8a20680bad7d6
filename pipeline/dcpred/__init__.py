"""dcpred: kernel machines that predict almost as fast as a linear model, on Dask and Zarr.

Everything is imported lazily: `load_model` needs NumPy and Zarr alone, `import_data` also pyarrow and
scikit-learn, the estimators scikit-learn and Dask.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dcpred.version import __version__

if TYPE_CHECKING:
    from dcpred.api.learning import compare, train, tune, validate
    from dcpred.api.measuring import evaluate
    from dcpred.api.running import publish, refresh, repair, score, status, verify
    from dcpred.api.tables import export, split
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
    "compare",
    "contributions",
    "evaluate",
    "explain",
    "export",
    "import_data",
    "load_model",
    "open_scores",
    "publish",
    "refresh",
    "repair",
    "report",
    "score",
    "split",
    "status",
    "storage_options",
    "train",
    "tune",
    "validate",
    "verify",
]
_HOMES = {
    "DCPredClassifier": "estimators",
    "DCPredRegressor": "estimators",
    "ServedModel": "serving",
    "Settings": "estimators",
    "compare": "api.learning",
    "contributions": "explanation",
    "evaluate": "api.measuring",
    "explain": "explanation",
    "export": "api.tables",
    "import_data": "datasets.importing",
    "load_model": "serving",
    "open_scores": "results.stored_scores",
    "publish": "api.running",
    "refresh": "api.running",
    "repair": "api.running",
    "report": "reports.report",
    "score": "api.running",
    "split": "api.tables",
    "status": "api.running",
    "storage_options": "serving",
    "train": "api.learning",
    "tune": "api.learning",
    "validate": "api.learning",
    "verify": "api.running",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"dcpred.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'dcpred' has no attribute {name!r}")
