"""Results of trainings, searches and cross-validations."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from dcpred.execution.progress import counted
from dcpred.public.results import PublicResult, memory_text
from dcpred.serving.cost import CostParts
from dcpred.training.column_report import Gaps, MapFacts, gaps_in_words, map_in_words
from dcpred.training.quality import (
    compared,
    interval_words,
    number_text,
    quality_name,
    reference_words,
    shown,
    unseen_words,
    words_of,
)
from dcpred_tasks.annotations import Count
from dcpred_tasks.result_fields import (
    Listing,
    Unit,
    document_of,
    facts_of,
    lines_of,
    result_class,
    result_field,
)

LARGEST = 1e100  # far beyond all results of a search; sums and products with it are finite
Finite = Annotated[float, lambda value: abs(value) < LARGEST]
Cost = Annotated[float, lambda value: 0 <= value < LARGEST]


def _model_text(r: Mapping[str, Any]) -> str:
    if r["already_trained"]:
        return f"{r['model']}  (already trained; nothing was written)"
    return f"{r['model']}  (trained in {sum(r['seconds'].values()):.1f} s)"


def _leaves_text(r: Mapping[str, Any]) -> str:
    constant = f", {r['n_constant_leaves']:,} of them constant" if r["n_constant_leaves"] else ""
    leaves = f"{r['n_leaves']:,}{constant}, the largest of {r['largest_leaf_rows']:,} rows"
    if r["thinned_leaves"]:
        leaves += f"; {r['thinned_leaves']:,} that cannot be divided were thinned to the limit"
    return leaves


def term_texts(r: Mapping[str, Any]) -> dict[str, str]:
    """What each term beside the leaves holds, by its name."""
    return {
        term: ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in facts.items())
        for term, facts in r.get("terms", {}).items()
    }


@result_class
class TrainReport(PublicResult):
    """The result of a training job."""

    model: str = result_field("Path or address of the model.", line="model", text=_model_text)
    hash: str = result_field("The hash of the model.", unit=Unit.TEXT, line="hash")
    n_rows: int = result_field(
        "Number of training rows.", metric="rows", line="rows", text="{n_rows:,} × {n_features:,}"
    )
    n_features: int = result_field("Number of features of X.")
    n_leaves: int = result_field("Number of leaves.", metric="leaves", line="leaves", text=_leaves_text)
    n_constant_leaves: int = result_field(
        "Number of leaves without landmarks: all their rows get the same value."
    )
    n_landmarks: int = result_field(
        "Number of landmarks of all leaves together.", metric="landmarks", unit=Unit.COUNT, line="landmarks"
    )
    largest_leaf_rows: int = result_field("Number of rows of the largest leaf.")
    thinned_leaves: int = result_field(
        "Number of leaves with more than `max_leaf_rows` rows, which were thinned because they cannot be"
        " divided: their rows are equal, or a part would have fewer than `min_leaf_rows`."
    )
    terms: dict[str, dict[str, int]] = result_field(
        "Terms beside the leaves: what each holds, by its name.",
        default_factory=dict,
        line="terms",
        text=lambda r: list(term_texts(r).items()) or None,
    )
    gaps: dict[str, Any] = result_field(
        "Missing values: the features that have them, and how they are filled.",
        default_factory=dict,
        of=Gaps,
        line="gaps",
        text=lambda r: gaps_in_words(r["gaps"], r["feature_map"]),
    )
    feature_map: dict[str, Any] | None = result_field(
        "The feature map; None without one.",
        default=None,
        of=MapFacts,
        line="map",
        text=lambda r: map_in_words(r["feature_map"]),
    )
    threshold: float | None = result_field(
        "With two classes, the minimum probability for the label of the second one; else None.",
        default=None,
        line="threshold",
        text="{threshold:.4g}",
    )
    already_trained: bool = result_field("Whether the model existed, and nothing was written.", default=False)
    seconds: dict[str, float] = result_field(
        "Time by step, in seconds.", default_factory=dict, unit=Unit.SECONDS, line="seconds"
    )
    worker_peak_memory_bytes: dict[str, int] = result_field(
        "Peak memory of each worker process in bytes, by host:pid.",
        default_factory=dict,
        line="peak memory",
        text=memory_text,
    )
    driver_peak_memory_bytes: int = result_field("Peak memory of this process, in bytes.", default=0)
    predicted_cost: dict[str, float] | None = result_field(
        "Predicted cost of a row, in linear predictions, and its parts; None if it was not computed.",
        default=None,
        of=CostParts,
        line="predicted cost",
        text="{predicted_cost[cost_ratio]:.1f}x",
    )

    def stored(self) -> dict[str, Any]:
        """Return the fields that the model stores, and a search reports.

        Returns
        -------
        dict
            Values by name.
        """
        values = {name: value for name, value in vars(self).items() if name != "predicted_cost"}
        return values | {"remarks": document_of(list(self.remarks))}


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
    n_judged: Count = result_field("Number of held-out rows.", column="held out", text=shown)
    cost_ratio: Cost = result_field(
        "Predicted cost of a row, in linear predictions.", column="cost", text="{cost_ratio:.1f}x"
    )
    ns_per_row: Cost = result_field("Predicted time of a row, in nanoseconds.")
    within_budget: bool = result_field("Whether the cost is within the budget.")
    scaling: str = result_field("Scaling of the features.", unit=Unit.TEXT, column="scaling")
    held_out: str = result_field(
        "How rows are held out.", when="rows held out by time or group", default="", kw_only=True
    )
    n_leaves: Count = result_field("Number of leaves.", unit=Unit.COUNT, headline="leaves", column="leaves")
    landmarks: Count = result_field(
        "Number of landmarks of a leaf.", unit=Unit.COUNT, headline="landmarks", column="landmarks"
    )
    products: Count = result_field(
        "Number of pairwise products.", unit=Unit.COUNT, headline="products", column="products"
    )
    overlap: Count = result_field(
        "Number of leaves whose rows a leaf also trains on.",
        unit=Unit.COUNT,
        headline="overlap",
        column="overlap",
    )
    trees: Count = result_field(
        "Number of trees that the cost is of.",
        unit=Unit.COUNT,
        headline="trees",
        column="trees",
        default=0,
        kw_only=True,
    )
    settings: dict[str, Any] = result_field("The settings by name.", default_factory=dict, kw_only=True)


SHAPE = tuple(name for name, facts in facts_of(Point) if facts.headline)


def with_cost(
    points: Sequence[dict[str, Any]], chosen: dict[str, Any], cost_ratio: float
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The same with the cost of the finished model, which may have fewer landmarks than chosen. Each point
    keeps its quality: those of a front are of the same rows, and not extrapolated.
    """
    made = {"cost_ratio": cost_ratio}
    return [{**p, **made} if is_chosen(p, chosen) else p for p in points], {**chosen, **made}


def is_chosen(point: Mapping[str, Any], chosen: Mapping[str, Any]) -> bool:
    """Whether a point of the Pareto front is the choice, whose quality may be of other rows."""
    names = "cost_ratio", "ns_per_row", "scaling", *SHAPE
    return all(point.get(name) == chosen.get(name) for name in names)


def front_with(points: Sequence[dict[str, Any]], chosen: dict[str, Any]) -> list[dict[str, Any]]:
    """The Pareto front, with the choice if it lacks that."""
    if any(is_chosen(point, chosen) for point in points):
        return list(points)
    return sorted([*points, chosen], key=lambda point: float(point["cost_ratio"]))


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


def _chosen_text(r: Mapping[str, Any]) -> str:
    chosen = r["chosen"]
    if not chosen["n_judged"] and r["words"]:
        return "not evaluated"
    if not chosen["n_judged"]:
        return "too few rows to hold any out: nothing was evaluated"
    return (
        f"on {chosen['n_judged']:,} held-out rows{_how_held_out(chosen)}, the chosen model has"
        f" {interval_words(chosen)} (two standard errors)"
    )


def _how_held_out(chosen: Mapping[str, Any]) -> str:
    return f" ({chosen['held_out']})" if chosen.get("held_out") else ""


def _front_listing(r: Mapping[str, Any]) -> Listing:
    """The Pareto front, at the cost of the finished model."""
    points, chosen = with_cost(r["frontier"], r["chosen"], r["made"]["cost_ratio"])
    front = front_with(points, chosen)
    labels = ["*" if is_chosen(point, chosen) else "" for point in front]
    more = " ".join(filter(None, ("* chosen.", unseen_words(chosen))))
    return Listing(front, "at predicted costs:", labels, more)


def _made_text(r: Mapping[str, Any]) -> str:
    """The model itself, which may have fewer landmarks than chosen."""
    made = r["made"]
    least, most = made["least_landmarks"], made["most_landmarks"]
    each = f"{most}" if least == most else f"{least} to {most}"
    leaves = counted(made["n_leaves"], "leaf", "leaves")
    return f"{leaves} of {each} landmarks, at a predicted cost of {made['cost_ratio']:.1f}x"


def _references_text(r: Mapping[str, Any]) -> str:
    """The scores of other models on the same rows, or on some of them."""
    references, chosen = r["references"], r["chosen"]
    others = ", ".join(f"{line['name']} {reference_words(line, chosen)}" for line in references)
    alone = chosen.get("most_frequent_share")
    majority = f"; the most frequent class alone has an accuracy of {100 * alone:.2f} %" if alone else ""
    same = compared(references, chosen)
    not_extrapolated = chosen.get("extrapolated") != same.get("extrapolated")
    quality = shown(same) + " (not extrapolated)" * not_extrapolated
    return f"on rows held out{_how_held_out(chosen)}: this model {quality}; {others}{majority}"


def _trained_lines(r: Mapping[str, Any]) -> list[Any]:
    lines = [*lines_of(TrainReport, r["trained"])] if r["trained"] else []
    return lines


@result_class
class TuneReport(PublicResult):
    """The result of a search, and of the training that followed."""

    settings: dict[str, Any] = result_field("The chosen settings by name.")
    chosen: dict[str, Any] = result_field(
        "Quality and its standard error, predicted cost of the model with them, and its shape.",
        of=Chosen,
        line="held out",
        text=_chosen_text,
    )
    frontier: list[dict[str, Any]] = result_field(
        "The same of every point of the Pareto front, by cost; some may be beyond the budget.",
        of=Point,
        table=_front_listing,
    )
    seconds: dict[str, Finite] = result_field("Time by step, in seconds.", unit=Unit.SECONDS, line="took")
    made: dict[str, Any] = result_field(
        "Predicted cost and shape of the model itself, whose small leaves may have fewer landmarks"
        " than chosen.",
        default_factory=dict,
        of=Made,
        line="made",
        text=_made_text,
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
        line="references",
        text=lambda r: _references_text(r) if r["references"] else None,
    )
    words: str = result_field(
        "A sentence if a reference is better by more than a standard error.", default=""
    )
    trained: dict[str, Any] = result_field(
        "The fields of `TrainReport`.",
        default_factory=dict,
        of=TrainReport,
        line="trained",
        text=_trained_lines,
    )

    @property
    def model(self) -> str:
        """The directory or address of the model."""
        return str(self.trained["model"])

    def _shown(self) -> list[tuple[str, Any]]:
        """The model, its quality and its cost come first."""
        fields, chosen, name = vars(self), self.chosen, quality_name(self.chosen)
        first = {"model": self.trained.get("model"), name: chosen.get(name)}
        first |= {"standard_error": chosen.get("standard_error")}
        first |= {"cost_ratio": self.made.get("cost_ratio", chosen.get("cost_ratio"))}
        return [(key, value) for key, value in first.items() if value is not None] + [
            (key, value) for key, value in super()._shown() if key in fields and key not in first
        ]

    def found(self) -> dict[str, Any]:
        """Return the result of the search alone, without the training that followed.

        Returns
        -------
        dict
            Values by name.
        """
        apart = ("made", "trained", "remarks")
        return {name: value for name, value in vars(self).items() if name not in apart}


def _of(name: str) -> Callable[[Mapping[str, Any]], str]:
    """The text of a quality with its error."""

    def text(r: Mapping[str, Any]) -> str:
        error = r.get({"quality": "standard_error", "predicted": "predicted_error"}[name])
        more = "" if error is None or r[name] is None else f" ± {number_text(error, r['metric'])}"
        return number_text(r[name], r["metric"]) + more

    return text


@result_class
class FoldReport:
    """The result of one fold."""

    n_train: int = result_field("Number of rows that trained.", unit=Unit.COUNT, column="trained")
    n_held_out: int = result_field("Number of rows held out.", unit=Unit.COUNT, column="held out")
    quality: float = result_field(
        "Quality on the rows held out, by the metric.", column="quality", text=_of("quality")
    )
    standard_error: float = result_field("Standard error of the quality.")
    predicted: float | None = result_field(
        "The prediction of the search; None if settings were given.",
        default=None,
        column="predicted",
        text=_of("predicted"),
    )
    predicted_error: float | None = result_field("Standard error of that prediction.", default=None)
    n_unknown: int = result_field(
        "Number of skipped rows: their class has no training row, or they have no score.", default=0
    )


def _folds_listing(r: Mapping[str, Any]) -> Listing:
    """A line for each fold, and the mean."""
    mean = {"quality": r["mean"], **{name: r[name] for name in ("standard_error", "predicted")}}
    rows = [{**fold, "metric": r["metric"]} for fold in (*r["folds"], mean)]
    return Listing(rows, labels=[*(f"fold {number + 1}" for number in range(len(r["folds"]))), "mean"])


def _held_out_text(r: Mapping[str, Any]) -> str:
    unknown = sum(fold["n_unknown"] for fold in r["folds"])
    left_out = f"; skipped {counted(unknown, 'row', 'rows')} without a score or of an unknown class"
    return f"{r['held_out']}{left_out if unknown else ''}"


@result_class
class ValidationReport(PublicResult):
    """The result of a cross-validation."""

    metric: str = result_field("Name of the score.", line="metric", text=lambda r: words_of(r["metric"]))
    mean: float = result_field("The mean quality over folds.")
    standard_error: float = result_field("Standard error of the mean, by the differences of folds.")
    predicted: float | None = result_field(
        "The mean of what the searches predicted; None if settings were given."
    )
    held_out: str = result_field("How rows are held out.", line="held out", text=_held_out_text)
    folds: list[FoldReport] = result_field(
        "The result of each fold.", default_factory=list, table=_folds_listing
    )
