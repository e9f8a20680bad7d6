"""dcpred: kernel machines that predict almost as fast as a linear model, on Dask and Zarr.

Everything is imported lazily: `load_model` needs NumPy and Zarr alone, `import_data` also pyarrow and
scikit-learn, the estimators scikit-learn and Dask.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dcpred.version import __version__

if TYPE_CHECKING:
    from dcpred.datasets.importing import Imported, import_data
    from dcpred.datasets.splitting import Split, split
    from dcpred.datasets.writing import NotFinite, NotFiniteFeature
    from dcpred.estimators import DCPredClassifier, DCPredRegressor, Settings
    from dcpred.evaluation.evaluate import Evaluation, evaluate
    from dcpred.evaluation.explanation import (
        ClassPart,
        Contribution,
        Contributions,
        Explanation,
        Explanations,
        FeaturePart,
        LandmarkPart,
        contributions,
        explain,
    )
    from dcpred.extensions import CompareReport, CompareResult, compare
    from dcpred.model_export.export import ExportedModel, export_model
    from dcpred.pages.page import Report
    from dcpred.refreshing.refresh import PublishReport, RefreshReport, publish, refresh
    from dcpred.refreshing.root import RootStatus, RunLine, status
    from dcpred.reports.inspection import DataFacts, ModelFacts, OutputFacts, TrainingFacts, inspect
    from dcpred.reports.report import report
    from dcpred.results.export import Exported, export
    from dcpred.results.stored_scores import open_scores
    from dcpred.runs.bad_rows import BadRow, BadRows, errors
    from dcpred.runs.manifest import ScoreReport
    from dcpred.runs.shards import Shard
    from dcpred.runs.status import RunStatus
    from dcpred.scoring.deliver import DeliverReport, deliver
    from dcpred.scoring.repair import repair
    from dcpred.scoring.score import score
    from dcpred.scoring.score_shard import ShardReport
    from dcpred.serving.served_model import ServedModel, load_model, storage_options
    from dcpred.training.reports import FoldReport, TrainReport, TuneReport, ValidationReport
    from dcpred.training.train import train
    from dcpred.training.tune import tune
    from dcpred.training.validation import validate
    from dcpred.verification.verify import VerifyReport, verify
    from dcpred_tasks.artifacts.block_files import Finding
    from dcpred_tasks.remarks import DataWarning, Remark

__all__ = [
    "BadRow",
    "BadRows",
    "ClassPart",
    "CompareReport",
    "CompareResult",
    "Contribution",
    "Contributions",
    "DCPredClassifier",
    "DCPredRegressor",
    "DataFacts",
    "DataWarning",
    "DeliverReport",
    "Evaluation",
    "Explanation",
    "Explanations",
    "Exported",
    "ExportedModel",
    "FeaturePart",
    "Finding",
    "FoldReport",
    "Imported",
    "LandmarkPart",
    "ModelFacts",
    "NotFinite",
    "NotFiniteFeature",
    "OutputFacts",
    "PublishReport",
    "RefreshReport",
    "Remark",
    "Report",
    "RootStatus",
    "RunLine",
    "RunStatus",
    "ScoreReport",
    "ServedModel",
    "Settings",
    "Shard",
    "ShardReport",
    "Split",
    "TrainReport",
    "TrainingFacts",
    "TuneReport",
    "ValidationReport",
    "VerifyReport",
    "__version__",
    "compare",
    "contributions",
    "deliver",
    "errors",
    "evaluate",
    "explain",
    "export",
    "export_model",
    "import_data",
    "inspect",
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
    "BadRow": "runs.bad_rows",
    "BadRows": "runs.bad_rows",
    "ClassPart": "evaluation.explanation",
    "CompareReport": "extensions",
    "CompareResult": "extensions",
    "Contribution": "evaluation.explanation",
    "Contributions": "evaluation.explanation",
    "DCPredClassifier": "estimators",
    "DCPredRegressor": "estimators",
    "DataFacts": "reports.inspection",
    "DataWarning": "public.remarks",
    "DeliverReport": "scoring.deliver",
    "Evaluation": "evaluation.evaluate",
    "Explanation": "evaluation.explanation",
    "Explanations": "evaluation.explanation",
    "Exported": "results.export",
    "ExportedModel": "model_export.export",
    "FeaturePart": "evaluation.explanation",
    "Finding": "verification.verify",
    "FoldReport": "training.reports",
    "Imported": "datasets.importing",
    "LandmarkPart": "evaluation.explanation",
    "ModelFacts": "reports.inspection",
    "NotFinite": "datasets.writing",
    "NotFiniteFeature": "datasets.writing",
    "OutputFacts": "reports.inspection",
    "PublishReport": "refreshing.refresh",
    "RefreshReport": "refreshing.refresh",
    "Remark": "public.remarks",
    "Report": "pages.page",
    "RootStatus": "refreshing.root",
    "RunLine": "refreshing.root",
    "RunStatus": "runs.status",
    "ScoreReport": "runs.manifest",
    "ServedModel": "serving.served_model",
    "Settings": "estimators",
    "Shard": "runs.shards",
    "ShardReport": "scoring.score_shard",
    "Split": "datasets.splitting",
    "TrainReport": "training.reports",
    "TrainingFacts": "reports.inspection",
    "TuneReport": "training.reports",
    "ValidationReport": "training.reports",
    "VerifyReport": "verification.verify",
    "compare": "extensions",
    "contributions": "evaluation.explanation",
    "deliver": "scoring.deliver",
    "errors": "runs.bad_rows",
    "evaluate": "evaluation.evaluate",
    "explain": "evaluation.explanation",
    "export": "results.export",
    "export_model": "model_export.export",
    "import_data": "datasets.importing",
    "inspect": "reports.inspection",
    "load_model": "serving.served_model",
    "open_scores": "results.stored_scores",
    "publish": "refreshing.refresh",
    "refresh": "refreshing.refresh",
    "repair": "scoring.repair",
    "report": "reports.report",
    "score": "scoring.score",
    "split": "datasets.splitting",
    "status": "refreshing.root",
    "storage_options": "serving.served_model",
    "train": "training.train",
    "tune": "training.tune",
    "validate": "training.validation",
    "verify": "verification.verify",
}


def __dir__() -> list[str]:
    return list(__all__)


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
