"""The result of a comparison."""

from typing import Any

from dcpred.public.results import PublicResult
from dcpred_tasks.result_fields import result_class, result_field

SHARES = ("accuracy", "balanced_accuracy", "f1_macro")  # scores shown in percent


@result_class
class CompareResult:
    """The result of one setting of one system; None stands for an unknown value."""

    system: str = result_field("Name of the system, as `systems` names it.")
    what: str = result_field("The setting, in words.")
    status: str = result_field("done, time limit, not installed, or failed.")
    why: str = result_field("Why there is no result, or another remark.")
    quality: float | None = result_field("Accuracy, or RMSE, on the test rows.")
    cost_ratio: float | None = result_field("Time per row in linear predictions.")
    us_per_row: float | None = result_field("Time per row, in microseconds.")
    seconds: float | None = result_field(
        "Processor time of its own training in seconds, without the shared step."
    )
    bytes: int | None = result_field("Size of the model in bytes.")
    agreement: float | None = result_field(
        "Agreement with the exact SVM: fraction of equal test labels, or correlation of predictions."
    )
    multiplications: float | None = result_field(
        "Multiplications per row, in those of a linear prediction, where the system counts them."
    )


@result_class
class KernelError:
    """The error of kernel values by a basis."""

    basis: str = result_field("Name of the basis.")
    kernel: str = result_field("Name of the kernel.")
    functions: int = result_field("Number of functions of the basis.")
    error: float = result_field("Distance of its products from kernel values, relative to these.")


@result_class
class CompareReport(PublicResult):
    """The result of a comparison."""

    folder: str = result_field("Path of the folder of tables, plots and report.html.")
    task: str = result_field("classification or regression.")
    n_rows: int = result_field("Number of training rows.")
    n_test_rows: int = result_field("Number of test rows.")
    n_features: int = result_field("Number of features.")
    shared: dict[str, Any] = result_field("The settings that all kernel models share, by name.")
    results: list[CompareResult] = result_field("The result of each system and setting.")
    kernel_errors: list[dict[str, Any]] = result_field(
        "The error of kernel values by each basis: basis, kernel, number of functions, error.", of=KernelError
    )
    shared_seconds: float = result_field(
        "Processor time of the choice of these settings and of the ARD scaling, in seconds."
    )
    notes: list[str] = result_field("Remarks on the table: sentences.")
    metric: str | None = result_field(
        "The score in `quality`; greater is then better. None: accuracy, or RMSE.", default=None
    )

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
