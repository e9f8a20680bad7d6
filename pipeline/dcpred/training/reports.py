"""Results of trainings, searches and cross-validations."""

from typing import Annotated, Any

from dcpred.cost import CostParts
from dcpred.summary import Summary
from dcpred.training.column_report import Gaps, MapFacts
from dcpred_tasks.annotations import Count
from dcpred_tasks.result_fields import Unit, facts_of, result_class, result_field

LARGEST = 1e100  # far beyond all results of a search; sums and products with it are finite
Finite = Annotated[float, lambda value: abs(value) < LARGEST]
Cost = Annotated[float, lambda value: 0 <= value < LARGEST]


@result_class
class TrainReport(Summary):
    """The result of a training job."""

    model: str = result_field("Path or address of the model.")
    hash: str = result_field("The hash of the model.", unit=Unit.TEXT, line=True)
    n_rows: int = result_field("Number of training rows.", metric="rows")
    n_features: int = result_field("Number of features of X.")
    n_leaves: int = result_field("Number of leaves.", metric="leaves")
    n_constant_leaves: int = result_field(
        "Number of leaves without landmarks: all their rows get the same value."
    )
    n_landmarks: int = result_field("Number of landmarks of all leaves together.", metric="landmarks")
    largest_leaf_rows: int = result_field("Number of rows of the largest leaf.")
    thinned_leaves: int = result_field(
        "Number of leaves with more than `max_leaf_rows` identical rows, which were thinned because"
        " they cannot be split."
    )
    gaps: dict[str, Any] = result_field(
        "Missing values: the features that have them, and how they are filled.", default_factory=dict, of=Gaps
    )
    feature_map: dict[str, Any] | None = result_field(
        "The feature map; None without one.", default=None, of=MapFacts
    )
    threshold: float | None = result_field(
        "With two classes, the minimum probability for the label of the second one; else None.", default=None
    )
    already_trained: bool = result_field("Whether the model existed, and nothing was written.", default=False)
    seconds: dict[str, float] = result_field("Time by step, in seconds.", default_factory=dict)
    worker_peak_memory_bytes: dict[str, int] = result_field(
        "Peak memory of each worker process in bytes, by host:pid.", default_factory=dict
    )
    driver_peak_memory_bytes: int = result_field("Peak memory of this process, in bytes.", default=0)
    predicted_cost: dict[str, float] | None = result_field(
        "Predicted cost of a row, in linear predictions, and its parts; None if it was not computed.",
        default=None,
        of=CostParts,
    )
    remarks: tuple[str, ...] = result_field(
        "Sentences on settings that the training could not keep.", default=()
    )

    def stored(self) -> dict[str, Any]:
        """Return the fields that the model stores, and a search reports.

        Returns
        -------
        dict
            Values by name.
        """
        return {name: value for name, value in vars(self).items() if name != "predicted_cost"}


@result_class
class Point:
    """Settings on the Pareto front."""

    metric: str = result_field("Name of the score, or accuracy or R².", default="", kw_only=True)
    accuracy: Finite | None = result_field(
        "The score of held-out rows, named after the metric.", default=None, kw_only=True
    )
    r2: Finite | None = result_field(
        "The score of held-out rows.", when="regression", default=None, kw_only=True
    )
    standard_error: Finite | None = result_field("Its standard error; None without held-out rows.")
    most_frequent_share: Finite | None = result_field(
        "Fraction of the most frequent class.", default=None, kw_only=True
    )
    n_judged: Count = result_field("Number of held-out rows.")
    cost_ratio: Cost = result_field("Predicted cost of a row, in linear predictions.")
    ns_per_row: Cost = result_field("Predicted time of a row, in nanoseconds.")
    within_budget: bool = result_field("Whether the cost is within the budget.")
    scaling: str = result_field("Scaling of the features.")
    held_out: str = result_field(
        "How rows are held out.", when="rows held out by time or group", default="", kw_only=True
    )
    n_leaves: Count = result_field("Number of leaves.", unit=Unit.COUNT, headline="leaves")
    landmarks: Count = result_field("Number of landmarks of a leaf.", unit=Unit.COUNT, headline="landmarks")
    products: Count = result_field("Number of pairwise products.", unit=Unit.COUNT, headline="products")
    overlap: Count = result_field(
        "Number of leaves whose rows a leaf also trains on.", unit=Unit.COUNT, headline="overlap"
    )
    settings: dict[str, Any] = result_field("The settings by name.", default_factory=dict, kw_only=True)


SHAPE = tuple(name for name, facts in facts_of(Point) if facts.headline)


@result_class
class Chosen(Point):
    """The chosen settings."""

    extrapolated: bool = result_field(
        "Whether the score is extrapolated to a model of all rows.", default=False
    )
    unseen: bool = result_field("Whether no choice used the held-out rows.", when="many rows", default=False)


@result_class
class Made:
    cost_ratio: float = result_field("Predicted cost of a row, in linear predictions.")
    ns_per_row: float = result_field("Predicted time of a row, in nanoseconds.")
    n_leaves: int = result_field("Number of leaves.")
    least_landmarks: int = result_field("Landmarks of the leaf with the fewest.")
    most_landmarks: int = result_field("Landmarks of the leaf with the most.")


@result_class
class Decision:
    step: str = result_field("The step of the search.")
    candidate: str = result_field("The candidate, in words.")
    incumbent: str = result_field("The best settings so far, in words.")
    loss: Finite = result_field("Loss of the candidate.")
    incumbent_loss: Finite = result_field("Loss of the incumbent on the same rows.")
    gain: Finite = result_field("Their difference; positive for a better candidate.")
    standard_error: Finite = result_field("Standard error of the gain.")
    p: Finite | None = result_field("p-value of the gain.", default=None, kw_only=True)
    rows: int = result_field("Number of held-out rows.")
    cost_ratio: Finite = result_field("Predicted cost of the candidate, in linear predictions.")
    incumbent_cost_ratio: Finite = result_field("That of the incumbent.", default=0.0, kw_only=True)
    verdict: str = result_field("What the search did.")


@result_class
class Reference:
    name: str = result_field("Name of the reference.")
    metric: str = result_field("Name of the score.", default="", kw_only=True)
    accuracy: Finite | None = result_field("Its score, named after the metric.", default=None, kw_only=True)
    r2: Finite | None = result_field("Its score.", when="regression", default=None, kw_only=True)
    standard_error: Finite = result_field("Standard error of the score.")
    n_judged: int = result_field("Number of held-out rows.")
    chosen: Finite = result_field("Score of the chosen settings on these rows.", default=0.0, kw_only=True)
    gain: Finite = result_field("Score of the reference minus that of the chosen settings.")
    gain_error: Finite = result_field("Standard error of the gain.")
    better: bool = result_field("Whether the reference is better by more than that.")


@result_class
class TuneReport(Summary):
    """The result of a search, and of the training that followed."""

    settings: dict[str, Any] = result_field("The chosen settings by name.")
    chosen: dict[str, Any] = result_field(
        "Quality and its standard error, predicted cost of the model with them, and its shape.", of=Chosen
    )
    frontier: list[dict[str, Any]] = result_field(
        "The same of every point of the Pareto front, by cost; some may be beyond the budget.", of=Point
    )
    seconds: dict[str, Finite] = result_field("Time by step, in seconds.")
    made: dict[str, Any] = result_field(
        "Predicted cost and shape of the model itself, whose small leaves may have fewer landmarks"
        " than chosen.",
        default_factory=dict,
        of=Made,
    )
    trace: list[dict[str, Any]] = result_field(
        "Every decision of the search: candidate, incumbent, both losses, gain with its standard"
        " error, rows, verdict.",
        default_factory=list,
        of=Decision,
    )
    references: list[dict[str, Any]] = result_field(
        "The same of the default settings and of reference models, on the rows of `chosen`.",
        default_factory=list,
        of=Reference,
    )
    words: str = result_field(
        "A sentence if a reference is better by more than a standard error.", default=""
    )
    trained: dict[str, Any] = result_field(
        "The fields of `TrainReport`.", default_factory=dict, of=TrainReport
    )

    @property
    def model(self) -> str:
        """The directory or address of the model."""
        return str(self.trained["model"])

    def found(self) -> dict[str, Any]:
        """Return the result of the search alone, without the training that followed.

        Returns
        -------
        dict
            Values by name.
        """
        return {name: value for name, value in vars(self).items() if name not in ("made", "trained")}


@result_class
class FoldReport:
    """The result of one fold."""

    n_train: int = result_field("Number of rows that trained.")
    n_held_out: int = result_field("Number of rows held out.")
    quality: float = result_field("Quality on the rows held out, by the metric.")
    standard_error: float = result_field("Standard error of the quality.")
    predicted: float | None = result_field(
        "The prediction of the search; None if settings were given.", default=None
    )
    predicted_error: float | None = result_field("Standard error of that prediction.", default=None)
    n_unknown: int = result_field(
        "Number of skipped rows: their class has no training row, or they have no score.", default=0
    )


@result_class
class ValidationReport(Summary):
    """The result of a cross-validation."""

    metric: str = result_field("Name of the score.")
    mean: float = result_field("The mean quality over folds.")
    standard_error: float = result_field("Standard error of the mean, by the differences of folds.")
    predicted: float | None = result_field(
        "The mean of what the searches predicted; None if settings were given."
    )
    held_out: str = result_field("How rows are held out.")
    folds: list[FoldReport] = result_field("The result of each fold.", default_factory=list)
