"""The result of a comparison."""

from dataclasses import dataclass
from typing import Any

from dcpred.summary import Summary

SHARES = ("accuracy", "balanced_accuracy", "f1_macro")  # scores shown in percent


@dataclass(frozen=True)
class CompareResult:
    """The result of one setting of one system; None stands for an unknown value.

    Attributes
    ----------
    system : str
        Name of the system, as `systems` names it.
    what : str
        The setting, in words.
    status : str
        done, time limit, not installed, or failed.
    why : str
        Why there is no result, or another remark.
    quality : float or None
        Accuracy, or RMSE, on the test rows.
    cost_ratio : float or None
        Time per row in linear predictions.
    us_per_row : float or None
        Time per row, in microseconds.
    seconds : float or None
        Processor time of its own training in seconds, without the shared step.
    bytes : int or None
        Size of the model in bytes.
    agreement : float or None
        Agreement with the exact SVM: fraction of equal test labels, or correlation of predictions.
    multiplications : float or None
        Multiplications per row, in those of a linear prediction, where the system counts them.
    """

    system: str
    what: str
    status: str
    why: str
    quality: float | None
    cost_ratio: float | None
    us_per_row: float | None
    seconds: float | None
    bytes: int | None
    agreement: float | None
    multiplications: float | None


@dataclass(frozen=True, repr=False)
class CompareReport(Summary):
    """The result of a comparison.

    Attributes
    ----------
    folder : str
        Path of the folder of tables, plots and report.html.
    task : str
        classification or regression.
    n_rows : int
        Number of training rows.
    n_test_rows : int
        Number of test rows.
    n_features : int
        Number of features.
    shared : dict
        The settings that all kernel models share, by name.
    results : list of CompareResult
        The result of each system and setting.
    kernel_errors : list of dict
        The error of kernel values by each basis: basis, kernel, number of functions, error.
    shared_seconds : float
        Processor time of the choice of these settings and of the ARD scaling, in seconds.
    notes : list of str
        Remarks on the table: sentences.
    metric : str or None
        The score in `quality`; greater is then better. None: accuracy, or RMSE.
    """

    folder: str
    task: str
    n_rows: int
    n_test_rows: int
    n_features: int
    shared: dict[str, Any]
    results: list[CompareResult]
    kernel_errors: list[dict[str, Any]]
    shared_seconds: float
    notes: list[str]
    metric: str | None = None

    @property
    def percents(self) -> bool:
        """Whether quality is shown in percent."""
        return self.task == "classification" and self.metric in (None, *SHARES)

    @property
    def factor(self) -> float:
        """What a shown quality is multiplied by."""
        return 100.0 if self.percents else 1.0

    @property
    def done(self) -> list[CompareResult]:
        """The results that have numbers."""
        return [result for result in self.results if result.status == "done"]

    @property
    def more_is_better(self) -> bool:
        """Whether a greater quality is better."""
        return self.metric is not None or self.task == "classification"

    @property
    def quality_name(self) -> str:
        """Name of the quality in tables."""
        return self.metric or ("accuracy" if self.task == "classification" else "RMSE")
