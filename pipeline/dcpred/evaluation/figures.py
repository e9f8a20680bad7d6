"""The figures of an evaluation: what `dcpred evaluate --json` prints, terminal and pages show."""

from collections.abc import Mapping
from typing import Any

from dcpred_tasks.model.uncertainty import DEFAULT_ALPHA
from dcpred_tasks.result_fields import Unit, result_class, result_field
from dcpred_tasks.scoring.drift_fields import Drift


@result_class
class LeafErrors:
    leaf: list[int] = result_field("Numbers of the leaves, from 0.")
    rows: list[int] = result_field("Number of evaluated rows of each.")
    training_rows: list[int] = result_field("Number of training rows of each.")
    error: list[float] = result_field("Error of each: fraction of wrong labels, or RMSE.")


@result_class
class Figures:
    """Figures of every evaluation."""

    model: str = result_field("Path of the model.")
    model_hash: str = result_field("Hash of the model.")
    data: str = result_field("Address of the evaluated rows.")
    task: str = result_field("classification or regression.")
    n_samples: int = result_field("Number of labelled rows.")
    n_bad: int = result_field("Number of labelled rows without a score.")
    n_unlabelled: int = result_field("Number of rows without a target.")
    trained_share: float | None = result_field(
        "Estimated fraction of rows that the model was trained on; None if unknown."
    )
    predicted_cost_ratio: float | None = result_field(
        "Predicted cost of a row, in linear predictions; None for baselines."
    )
    engine: str = result_field("The scoring engine, and its level of instructions.")
    drift: Drift = result_field("Differences from the training rows.")
    leaves: LeafErrors = result_field("Errors by leaf.")
    metric: str = result_field("Name of the score.", when="--metric")
    score: float | None = result_field("The score; greater is better.", when="--metric")
    beyond_float64: list[str] = result_field("Their names.", when="figures beyond float64")


@result_class
class ClassRow:
    name: str = result_field("The class.", key="class")
    rows: int = result_field("Number of rows of the class.")
    predicted: int = result_field("Number of rows with its label.")
    recall: float | None = result_field("Fraction of its rows with its label; None without rows.")
    precision: float | None = result_field(
        "Fraction of rows with its label that are of the class; None without such rows."
    )
    auc: float = result_field("Area under its ROC curve.")


@result_class
class Confusion:
    name: str = result_field("The class of the rows.", key="class")
    taken_for: str = result_field("Their label.")
    rows: int = result_field("Number of these rows.")


@result_class
class RocCurve:
    x: list[float] = result_field("False positive rates.")
    y: list[float] = result_field("True positive rates.")


@result_class
class PrecisionRecallCurve:
    x: list[float] = result_field("Recalls.")
    y: list[float] = result_field("Precisions.")


@result_class
class ClassCurves:
    name: str = result_field("The class.", key="class")
    auc: float = result_field("Area under its ROC curve.")
    average_precision: float = result_field("Area under its precision-recall curve.")
    roc: RocCurve = result_field("The ROC curve.")
    precision_recall: PrecisionRecallCurve = result_field("The precision-recall curve.")


@result_class
class ReliabilityBin:
    rows: int = result_field("Number of rows of the bin.")
    mean_probability: float = result_field("Their mean probability.")
    share: float = result_field("The fraction that has the class.")


@result_class
class ThresholdFigures:
    threshold: float = result_field("The minimum probability.")
    rows: int = result_field("Number of rows at or above it.")
    precision: float = result_field("Fraction of these that have the second class.")
    recall: float = result_field("Fraction of the second class that these include.")
    gain: float = result_field("Precision over that of all rows.")


@result_class
class ClassFigures(Figures):
    """Figures of an evaluation of classes."""

    accuracy: float = result_field(
        "Fraction of correct labels.", unit=Unit.FRACTION, line=True, headline="accuracy"
    )
    early_accuracy: float = result_field(
        "Accuracy of the local models.",
        when="--early",
        unit=Unit.FRACTION,
        line=True,
        headline="local models",
    )
    most_frequent_class: str = result_field("The class with the most rows.")
    most_frequent_share: float = result_field(
        "Its fraction of the rows: the accuracy of that label alone.",
        unit=Unit.FRACTION,
        headline="the most frequent class alone",
    )
    balanced_accuracy: float = result_field(
        "Mean recall of the classes.", unit=Unit.FRACTION, line=True, headline="balanced accuracy"
    )
    f1_macro: float = result_field("Mean F1 score of the classes.", unit=Unit.NUMBER, line=True)
    auc: float = result_field(
        "Area under the ROC curve; with several classes the mean, each against all others.",
        unit=Unit.NUMBER,
        line=True,
        headline="AUC",
    )
    average_precision: float = result_field(
        "Area under the precision-recall curve, likewise.",
        unit=Unit.NUMBER,
        line=True,
        headline="average precision",
    )
    auc_resolution: float = result_field(
        "Width of the bins of decision values that these areas come from; 0 if exact."
    )
    threshold: float = result_field(
        "Minimum probability for the label of the second.", when="two classes", unit=Unit.NUMBER, line=True
    )
    costs: list[float] = result_field("The costs of labels, row by row.", when="costs")
    cost_per_row: float = result_field("Mean cost of a row.", when="costs", unit=Unit.NUMBER, line=True)
    log_loss: float = result_field(
        "Mean negative log likelihood of the probabilities, in nats.",
        when="calibration",
        unit=Unit.NUMBER,
        line=True,
        headline="log-loss",
    )
    brier_score: float = result_field(
        "Mean squared error of the probabilities.", when="calibration", unit=Unit.NUMBER, line=True
    )
    calibration_error: float = result_field(
        "Mean difference between probability and frequency.",
        when="calibration",
        unit=Unit.FRACTION,
        line=True,
        headline="calibration error",
    )
    classes: list[ClassRow] = result_field("Figures of each class.")
    confusion_matrix: list[list[int]] | None = result_field(
        "Number of rows of each class (row) by label (column); None with many classes."
    )
    confusions: list[Confusion] = result_field("The most frequent wrong labels.")
    curves: list[ClassCurves] = result_field("Curves of a class against the others.")
    reliability: list[ReliabilityBin] = result_field("Frequencies by probability.", when="calibration")
    thresholds: list[ThresholdFigures] = result_field("Figures of possible thresholds.", when="two classes")


@result_class
class ResidualHistogram:
    edges: list[float] = result_field("Edges of its bins.")
    rows: list[int] = result_field("Number of rows in each.")


@result_class
class PredictionRange:
    rows: int = result_field("Number of these rows.")
    mean_prediction: float = result_field("Their mean prediction.")
    residuals: dict[str, Any] = result_field("Quantiles of their residuals, by fraction.")


@result_class
class IntervalQuarter:
    rows: int = result_field("Number of rows of the quarter.")
    least_prediction: float = result_field("Its smallest prediction.")
    largest_prediction: float = result_field("Its largest prediction.")
    coverage: float = result_field("Fraction of its rows within their interval.")


@result_class
class ValueFigures(Figures):
    """Figures of an evaluation of numbers."""

    rmse: float = result_field(
        "Root mean squared error, in units of the target.", unit=Unit.NUMBER, line=True, headline="RMSE"
    )
    r2: float | None = result_field(
        "Coefficient of determination R²; None where all targets are equal.",
        unit=Unit.NUMBER,
        line=True,
        headline="R²",
    )
    early_rmse: float = result_field(
        "RMSE of the local models.",
        when="--early",
        unit=Unit.NUMBER,
        line=True,
        headline="RMSE of local models",
    )
    early_r2: float = result_field("R² of the local models.", when="--early", unit=Unit.NUMBER, line=True)
    mae: float = result_field(
        "Mean absolute error, in units of the target.", unit=Unit.NUMBER, line=True, headline="MAE"
    )
    median_absolute_error: float = result_field("Median absolute error, in units of the target.")
    residual_quantiles: dict[str, Any] = result_field("Quantiles of target minus prediction, by fraction.")
    residual_resolution: float = result_field("Width of the bins that quantiles come from; 0 if exact.")
    residual_histogram: ResidualHistogram = result_field("Histogram of residuals.")
    residuals_by_prediction: list[PredictionRange] = result_field(
        "Residuals of rows with similar predictions."
    )
    interval_alpha: float = result_field(
        "Fraction of rows meant to lie outside of intervals.", when="calibration"
    )
    interval_coverage: float = result_field(
        "Fraction of rows within their interval.",
        when="calibration",
        unit=Unit.FRACTION,
        line=True,
        headline=f"inside {100 * (1 - DEFAULT_ALPHA):.0f} % intervals",
    )
    interval_width: float = result_field(
        "Mean width of intervals, in units of the target.",
        when="calibration",
        unit=Unit.NUMBER,
        line=True,
        headline="mean width of these",
    )
    interval_winkler: float = result_field(
        "Mean Winkler score, in units of the target; less is better.",
        when="calibration",
        unit=Unit.NUMBER,
        line=True,
    )
    interval_quarters: list[IntervalQuarter] = result_field(
        "Coverage in the four quarters of predictions.", when="calibration"
    )


def figures_of(evaluation: Mapping[str, Any]) -> type[Figures]:
    """The class of the figures of an evaluation."""
    return ClassFigures if "accuracy" in evaluation else ValueFigures
