"""The figures of an evaluation: what `dcpred evaluate --json` prints, terminal and pages show."""

from collections.abc import Callable, Mapping
from typing import Any

from dcpred.public.results import plain
from dcpred.serving.cost import Cost
from dcpred_tasks.model.uncertainty import DEFAULT_ALPHA
from dcpred_tasks.remarks import Remark
from dcpred_tasks.result_fields import Listing, Unit, result_class, result_field
from dcpred_tasks.scoring.drift_fields import Drift


def _rows_text(r: Mapping[str, Any]) -> str:
    left_out = f", {r['n_bad']:,} of them not finite and skipped" if r["n_bad"] else ""
    if r.get("n_unlabelled"):
        left_out += f"; {r['n_unlabelled']:,} more without a target"
    return f"{r['n_samples']:,}{left_out}"


NAME_LETTERS = 24  # letters of the name of a class


def short(name: object) -> str:
    """The name of a class on one line."""
    return plain(name, NAME_LETTERS)


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
    n_samples: int = result_field("Number of labelled rows.", line="rows", text=_rows_text)
    n_bad: int = result_field("Number of labelled rows without a score.")
    n_unlabelled: int = result_field("Number of rows without a target.")


def _cost_text(r: Mapping[str, Any]) -> str | None:
    """The cost of a model, as every page shows it. Baselines have only a measured one."""
    cost = r["predicted_cost_ratio"] or r.get("cost_ratio")
    return None if cost is None else f"{cost:.1f} linear predictions"


def _score_lines(r: Mapping[str, Any]) -> list[tuple[str, str]]:
    score = "not defined for these rows by this model" if r["score"] is None else f"{r['score']:.6g}"
    return [(r["metric"].partition("=")[0], score)]


@result_class
class EvaluationFacts:
    """What an evaluation holds besides its figures."""

    trained_share: float | None = result_field(
        "Estimated fraction of rows that the model was trained on; None if unknown."
    )
    metric: str = result_field("Name of the score.", when="--metric")
    score: float | None = result_field(
        "The score; greater is better.", when="--metric", line="score", text=_score_lines
    )
    predicted_cost_ratio: float | None = result_field(
        "Predicted cost of a row, in linear predictions; None for baselines.", line="cost", text=_cost_text
    )
    engine: str = result_field(
        "The scoring engine, and its level of instructions.", line="engine", unit=Unit.TEXT
    )
    drift: Drift = result_field("Differences from the training rows.")
    remarks: list[Remark] = result_field("What a person has to know about the rows and the figures.")
    leaves: LeafErrors = result_field("Errors by leaf.")
    beyond_float64: list[str] = result_field("Their names.", when="figures beyond float64")


@result_class
class ClassRow:
    name: str = result_field("The class.", key="class", unit=Unit.TEXT, column="class")
    rows: int = result_field("Number of rows of the class.", unit=Unit.COUNT, column="rows")
    predicted: int = result_field("Number of rows with its label.")
    recall: float | None = result_field(
        "Fraction of its rows with its label; None without rows.", unit=Unit.FRACTION, column="recall"
    )
    precision: float | None = result_field(
        "Fraction of rows with its label that are of the class; None without such rows.",
        unit=Unit.FRACTION,
        column="precision",
    )
    auc: float = result_field("Area under its ROC curve.", column="AUC")


@result_class
class Confusion:
    name: str = result_field(
        "The class of the rows.",
        key="class",
        column="class",
        unit=Unit.TEXT,
    )
    taken_for: str = result_field("Their label.", column="predicted as", unit=Unit.TEXT)
    rows: int = result_field("Number of these rows.", unit=Unit.COUNT, column="rows")


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
    name: str = result_field("The class.", key="class", column="class", unit=Unit.TEXT)
    auc: float = result_field("Area under its ROC curve.", column="AUC")
    average_precision: float = result_field(
        "Area under its precision-recall curve.", column="average precision"
    )
    roc: RocCurve = result_field("The ROC curve.")
    precision_recall: PrecisionRecallCurve = result_field("The precision-recall curve.")


@result_class
class ReliabilityBin:
    rows: int = result_field("Number of rows of the bin.", unit=Unit.COUNT, column="rows")
    mean_probability: float = result_field("Their mean probability.", unit=Unit.FRACTION, column="stated")
    share: float = result_field("The fraction that has the class.", unit=Unit.FRACTION, column="observed")


@result_class
class ThresholdFigures:
    threshold: float = result_field("The minimum probability.", text="{threshold:.4g}", column="at least")
    rows: int = result_field("Number of rows at or above it.", unit=Unit.COUNT, column="rows")
    precision: float = result_field(
        "Fraction of these that have the second class.", unit=Unit.FRACTION, column="precision"
    )
    recall: float = result_field(
        "Fraction of the second class that these include.", unit=Unit.FRACTION, column="recall"
    )
    gain: float = result_field("Precision over that of all rows.", text="{gain:.2f}", column="gain")


CLASSES_SHOWN = 12  # the classes with the least recall, where there are more
PAIRS_SHOWN = 5
SHOWN_QUANTILES = ("0.05", "0.25", "0.5", "0.75", "0.95")  # some of the stored quantiles of residuals


FEW_ROWS = 1_000  # rows below which an accuracy has two standard errors beside it


def _accuracy_text(r: Mapping[str, Any]) -> str:
    accuracy = Unit.FRACTION.text(r["accuracy"])
    if (n := r["n_samples"] - r["n_bad"]) < FEW_ROWS:
        share = (r["accuracy"] * n + 2) / (n + 4)  # Agresti and Coull 1998
        accuracy += f" ± {200 * (share * (1 - share) / (n + 4)) ** 0.5:.1f} %"
    if "most_frequent_share" not in r:
        return accuracy
    alone = Unit.FRACTION.text(r["most_frequent_share"])
    return f"{accuracy}  (class {short(r['most_frequent_class'])} alone {alone})"


def _area_text(name: str) -> Callable[[Mapping[str, Any]], str]:
    """The text of an area, and of which classes it is."""

    def text(r: Mapping[str, Any]) -> str:
        of_classes = f"  (class {_second(r)})" if name == "average_precision" else ""
        if len(r["classes"]) > 2:
            of_classes = "  (one class against the rest, averaged)"
        return Unit.NUMBER.text(r[name]) + of_classes

    return text


def _second(r: Mapping[str, Any]) -> str:
    return short(r["classes"][1]["class"])


def _threshold_text(r: Mapping[str, Any]) -> str:
    return f"{r['threshold']:.6g}  (minimum probability of class {_second(r)} for its label)"


def _classes_listing(r: Mapping[str, Any]) -> Listing:
    """Classes in their order, or those with the least recall."""
    classes = [line for line in r.get("classes", ()) if line["rows"] or line["predicted"]]
    if len(classes) <= CLASSES_SHOWN:
        return Listing(classes)
    worst = sorted(classes, key=lambda line: (line["recall"] is None, line["recall"]))[:CLASSES_SHOWN]
    return Listing(worst, f"the {CLASSES_SHOWN} of {len(classes):,} classes with the least recall")


def _confusions_listing(r: Mapping[str, Any]) -> Listing:
    pairs = (r.get("confusions") or [])[:PAIRS_SHOWN]
    return Listing(pairs if len(r.get("classes", ())) > 2 else [], "most frequent errors, in rows")


def _thresholds_listing(r: Mapping[str, Any]) -> Listing:
    """The effect of a threshold on the probability of the second of two classes."""
    if not r.get("thresholds"):
        return Listing([])
    return Listing(r["thresholds"], f"rows that are class {_second(r)} with a probability of")


@result_class
class ClassFigures(Figures):
    """Figures of an evaluation of classes."""

    accuracy: float = result_field(
        "Fraction of correct labels.",
        unit=Unit.FRACTION,
        line="accuracy",
        text=_accuracy_text,
        headline="accuracy",
    )
    early_accuracy: float = result_field(
        "Accuracy of the local models.",
        when="--early",
        unit=Unit.FRACTION,
        line="early_accuracy",
        headline="local models",
    )
    most_frequent_class: str = result_field("The class with the most rows.")
    most_frequent_share: float = result_field(
        "Its fraction of the rows: the accuracy of that label alone.",
        unit=Unit.FRACTION,
        headline="the most frequent class alone",
    )
    balanced_accuracy: float = result_field(
        "Mean recall of the classes.",
        unit=Unit.FRACTION,
        line="balanced_accuracy",
        headline="balanced accuracy",
    )
    f1_macro: float = result_field("Mean F1 score of the classes.", unit=Unit.NUMBER, line="f1_macro")
    auc: float = result_field(
        "Area under the ROC curve; with several classes the mean, each against all others.",
        unit=Unit.NUMBER,
        line="auc",
        text=_area_text("auc"),
        headline="AUC",
    )
    average_precision: float = result_field(
        "Area under the precision-recall curve, likewise.",
        unit=Unit.NUMBER,
        line="average_precision",
        text=_area_text("average_precision"),
        headline="average precision",
    )
    auc_resolution: float = result_field(
        "Width of the bins of decision values that these areas come from; 0 if exact."
    )
    threshold: float = result_field(
        "Minimum probability for the label of the second.",
        when="two classes",
        unit=Unit.NUMBER,
        line="threshold",
        text=_threshold_text,
    )
    costs: list[float] = result_field("The costs of labels, row by row.", when="costs")
    cost_per_row: float = result_field(
        "Mean cost of a row.", when="costs", unit=Unit.NUMBER, line="cost_per_row"
    )
    log_loss: float = result_field(
        "Mean negative log likelihood of the probabilities, in nats.",
        when="calibration",
        unit=Unit.NUMBER,
        line="log_loss",
        headline="log-loss",
    )
    brier_score: float = result_field(
        "Mean squared error of the probabilities.", when="calibration", unit=Unit.NUMBER, line="brier_score"
    )
    calibration_error: float = result_field(
        "Mean difference between probability and frequency.",
        when="calibration",
        unit=Unit.FRACTION,
        line="calibration_error",
        headline="calibration error",
    )
    classes: list[ClassRow] = result_field("Figures of each class.", table=_classes_listing)
    confusion_matrix: list[list[int]] | None = result_field(
        "Number of rows of each class (row) by label (column); None with many classes."
    )
    confusions: list[Confusion] = result_field("The most frequent wrong labels.", table=_confusions_listing)
    curves: list[ClassCurves] = result_field("Curves of a class against the others.")
    reliability: list[ReliabilityBin] = result_field("Frequencies by probability.", when="calibration")
    thresholds: list[ThresholdFigures] = result_field(
        "Figures of possible thresholds.", when="two classes", table=_thresholds_listing
    )


@result_class
class ResidualHistogram:
    edges: list[float] = result_field("Edges of its bins.")
    rows: list[int] = result_field("Number of rows in each.")


@result_class
class PredictionRange:
    rows: int = result_field("Number of these rows.", unit=Unit.COUNT, column="rows")
    mean_prediction: float = result_field("Their mean prediction.", column="mean prediction")
    residuals: dict[str, Any] = result_field("Quantiles of their residuals, by fraction.")


@result_class
class IntervalQuarter:
    rows: int = result_field("Number of rows of the quarter.", unit=Unit.COUNT, column="rows")
    least_prediction: float = result_field(
        "Its smallest prediction.",
        column="predictions",
        text="{least_prediction:.4g} to {largest_prediction:.4g}",
    )
    largest_prediction: float = result_field("Its largest prediction.")
    coverage: float = result_field(
        "Fraction of its rows within their interval.", unit=Unit.FRACTION, column="inside"
    )


def _coverage_text(r: Mapping[str, Any]) -> str:
    coverage = Unit.FRACTION.text(r["interval_coverage"])
    return f"{coverage}  (fraction of rows inside intervals of alpha {r['interval_alpha']:g})"


def _quarters_listing(r: Mapping[str, Any]) -> Listing:
    return Listing(r.get("interval_quarters") or [], "intervals by quarter of the prediction")


def _residuals_text(r: Mapping[str, Any]) -> str:
    quantiles = r["residual_quantiles"]
    return ", ".join(f"{100 * float(share):g} % {quantiles[share]:.4g}" for share in SHOWN_QUANTILES)


@result_class
class ValueFigures(Figures):
    """Figures of an evaluation of numbers."""

    rmse: float = result_field(
        "Root mean squared error, in units of the target.", unit=Unit.NUMBER, line="rmse", headline="RMSE"
    )
    r2: float | None = result_field(
        "Coefficient of determination R²; None where all targets are equal.",
        unit=Unit.NUMBER,
        line="r2",
        headline="R²",
    )
    early_rmse: float = result_field(
        "RMSE of the local models.",
        when="--early",
        unit=Unit.NUMBER,
        line="early_rmse",
        headline="RMSE of local models",
    )
    early_r2: float = result_field(
        "R² of the local models.", when="--early", unit=Unit.NUMBER, line="early_r2"
    )
    mae: float = result_field(
        "Mean absolute error, in units of the target.", unit=Unit.NUMBER, line="mae", headline="MAE"
    )
    median_absolute_error: float = result_field("Median absolute error, in units of the target.")
    residual_quantiles: dict[str, Any] = result_field(
        "Quantiles of target minus prediction, by fraction.", line="residuals", text=_residuals_text
    )
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
        line="interval_coverage",
        text=_coverage_text,
        headline=f"inside {100 * (1 - DEFAULT_ALPHA):.0f} % intervals",
    )
    interval_width: float = result_field(
        "Mean width of intervals, in units of the target.",
        when="calibration",
        unit=Unit.NUMBER,
        line="interval_width",
        headline="mean width of these",
    )
    interval_winkler: float = result_field(
        "Mean Winkler score, in units of the target; less is better.",
        when="calibration",
        unit=Unit.NUMBER,
        line="interval_winkler",
        text="{interval_winkler:.6g}  (width, plus a penalty for rows outside; less is better)",
    )
    interval_quarters: list[IntervalQuarter] = result_field(
        "Coverage in the four quarters of predictions.", when="calibration", table=_quarters_listing
    )


def figures_of(evaluation: Mapping[str, Any]) -> type[Figures]:
    """The class of the figures of an evaluation."""
    return ClassFigures if "accuracy" in evaluation else ValueFigures


def classes_of(evaluation: Mapping[str, Any]) -> tuple[type, ...]:
    """The classes of all keys of an evaluation."""
    return figures_of(evaluation), EvaluationFacts, Cost
