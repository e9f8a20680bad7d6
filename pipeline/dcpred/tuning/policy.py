"""Every number of a search for settings, in one place."""

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class SearchPolicy:
    """The size of a search, and its statistical levels. Numbers without a source were chosen on the
    development half of the tables (tests/benchmarks/halves.py), by tests/benchmarks/portfolio.py; see
    DECISIONS.md, "Search policy".
    """

    name: str = "standard"
    # statistics
    level: float = 0.4
    """Level of the one-sided test by which a candidate replaces another, half for each metric. An exchange
    of equals costs nothing, but keeping the worse one does.
    """
    metric: str | Callable[..., float] | None = None
    """A scorer of scikit-learn, or its name (metrics.SCORERS). None: the error rate, or log-loss if one
    class is frequent, and the squared error of regressions.
    """
    rare_share: float = 0.9
    """Fraction of the most frequent class from which on log-loss replaces the error rate."""
    worth_cost: float = 0.9
    """Fraction of the cost of the choice below which a candidate replaces it if it loses no more."""
    # rows
    trial_rows: int = 16_000
    """Rows of a trial: all rows up to so many, else rows of cells."""
    trial_numbers: int = 12_000_000
    """Rows × features of a trial: fewer rows if features are many."""
    broad_times: int = 8
    """Rows that scalings and references learn from, as a multiple of the rows of a trial, to predict the
    quality of the choice: those of a model have all sampled rows.
    """
    sample_cells: int = 32
    """Cells that the rows of a trial come from, if rows are many."""
    few_rows: int = 2_000
    """Rows up to which every row is held out once. Of more rows some folds evaluate candidates, and another
    one predicts the quality of the choice.
    """
    folds: int = 2
    """How many, of four, as long as trials use all rows: two folds choose as well as four."""
    very_few_rows: int = 600
    """Rows up to which folds are drawn several times, and a first look uses four folds instead of one."""
    repeats: int = 3
    """How often."""
    fewest_rows: int = 20
    """Rows below which a search evaluates nothing."""
    # the portfolio
    survivors: int = 5
    """Maximum number of candidates to evaluate on all folds after the first look."""
    # mutations
    rounds: int = 1
    """Maximum number of rounds of mutations: later rounds gain little."""
    ends_in_noise: bool = False
    """Whether a round that gains no more than a standard error is the last one."""
    codes: tuple[int, int] = (16, 256)
    """Maximum number of different integers of a feature for one-hot encoding: two choices."""
    # budget
    ratio: float = 20.0
    """Maximum cost in linear predictions without a given budget."""
    ns: float = 100.0
    """The same in nanoseconds of the cost model: a model may be within either."""
    least_times: float = 2.0
    """The budget as a multiple of the cheapest model, if those limits allow none."""
    # shapes
    descent_rows: int = 5_000
    """Rows of a leaf from which stochastic steps refine it, which are faster there."""
    epochs: int = 40
    """Passes of them."""
    local_rows: int = 2_000
    """Rows that train a local SVM: more pick no better landmarks, and take longer."""
    most_leaf_bytes: int = 3 * 2**29
    """Maximum memory of the rows of a leaf and of arrays computed from them."""
    # references
    reference_rows: int = 8_000
    """Maximum rows that train the plain SVM or ridge pipeline of scikit-learn: its time grows with their
    square."""


STANDARD = SearchPolicy()
THOROUGH = replace(STANDARD, name="thorough", survivors=8, rounds=4, trial_rows=32_000, ends_in_noise=True)
