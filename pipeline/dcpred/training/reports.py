"""Results of trainings, searches and cross-validations."""

from dataclasses import dataclass, field
from typing import Any

from dcpred.summary import Summary


@dataclass(frozen=True, repr=False)
class TrainReport(Summary):
    """The result of a training job.

    Attributes
    ----------
    model : str
        Path or address of the model.
    hash : str
        The hash of the model.
    n_rows : int
        Number of rows of X.
    n_features : int
        Number of features of X.
    n_leaves : int
        Number of leaves.
    n_constant_leaves : int
        Number of leaves without landmarks: all their rows get the same value.
    n_landmarks : int
        Number of landmarks of all leaves together.
    largest_leaf_rows : int
        Number of rows of the largest leaf.
    thinned_leaves : int
        Number of leaves with more than `max_leaf_rows` identical rows, which were thinned because they cannot
        be split.
    gaps : dict
        Missing values: the features that have them, and how they are filled.
    feature_map : dict or None
        The feature map; None without one.
    threshold : float or None
        With two classes, the minimum probability for the label of the second one; else None.
    already_trained : bool
        Whether the model existed, and nothing was written.
    seconds : dict of str to float
        Time by step, in seconds.
    worker_peak_memory_bytes : dict of str to int
        Peak memory of each worker process in bytes, by host:pid.
    driver_peak_memory_bytes : int
        Peak memory of this process, in bytes.
    predicted_cost : dict of str to float or None
        Predicted cost of a row, in linear predictions, and its parts; None if it was not computed.
    remarks : tuple of str
        Sentences on settings that the training could not keep.
    """

    model: str
    hash: str
    n_rows: int
    n_features: int
    n_leaves: int
    n_constant_leaves: int
    n_landmarks: int
    largest_leaf_rows: int
    thinned_leaves: int
    gaps: dict[str, Any] = field(default_factory=dict)
    feature_map: dict[str, Any] | None = None
    threshold: float | None = None
    already_trained: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    worker_peak_memory_bytes: dict[str, int] = field(default_factory=dict)
    driver_peak_memory_bytes: int = 0
    predicted_cost: dict[str, float] | None = None
    remarks: tuple[str, ...] = ()

    def stored(self) -> dict[str, Any]:
        """Return the fields that the model stores, and a search reports.

        Returns
        -------
        dict
            Values by name.
        """
        return {name: value for name, value in vars(self).items() if name != "predicted_cost"}


@dataclass(frozen=True, repr=False)
class TuneReport(Summary):
    """The result of a search, and of the training that followed.

    Attributes
    ----------
    settings : dict
        The chosen settings by name.
    chosen : dict of str to float
        Quality and its standard error, predicted cost of the model with them, and its shape.
    frontier : list of dict
        The same of every point of the Pareto front, by cost; some may be beyond the budget.
    seconds : dict of str to float
        Time by step, in seconds.
    made : dict
        Predicted cost and shape of the model itself, whose small leaves may have fewer landmarks than chosen.
    trace : list of dict
        Every decision of the search: candidate, incumbent, both losses, gain with its standard error, rows,
        verdict.
    references : list of dict
        The same of the default settings and of reference models, on the rows of `chosen`.
    words : str
        A sentence if a reference is better by more than a standard error.
    trained : dict
        The fields of `TrainReport`.
    """

    settings: dict[str, Any]
    chosen: dict[str, float]
    frontier: list[dict[str, Any]]
    seconds: dict[str, float]
    made: dict[str, Any] = field(default_factory=dict)
    trace: list[dict[str, Any]] = field(default_factory=list)
    references: list[dict[str, Any]] = field(default_factory=list)
    words: str = ""
    trained: dict[str, Any] = field(default_factory=dict)

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


@dataclass(frozen=True)
class FoldReport:
    """The result of one fold.

    Attributes
    ----------
    n_train : int
        Number of rows that trained.
    n_held_out : int
        Number of rows held out.
    quality : float
        Quality on the rows held out, by the metric.
    standard_error : float
        Standard error of the quality.
    predicted : float or None
        The prediction of the search; None if settings were given.
    predicted_error : float or None
        Standard error of that prediction.
    n_unknown : int
        Number of skipped rows: their class has no training row, or they have no score.
    """

    n_train: int
    n_held_out: int
    quality: float
    standard_error: float
    predicted: float | None = None
    predicted_error: float | None = None
    n_unknown: int = 0


@dataclass(frozen=True, repr=False)
class ValidationReport(Summary):
    """The result of a cross-validation.

    Attributes
    ----------
    metric : str
        Name of the score.
    mean : float
        The mean quality over folds.
    standard_error : float
        Standard error of the mean, by the differences of folds.
    predicted : float or None
        The mean of what the searches predicted; None if settings were given.
    held_out : str
        How rows are held out.
    folds : list of FoldReport
        The result of each fold.
    """

    metric: str
    mean: float
    standard_error: float
    predicted: float | None
    held_out: str
    folds: list[FoldReport] = field(default_factory=list)
