"""Every number of a search for settings, in one place."""

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class SearchPolicy:
    """How much a search looks at, and when it believes what it sees. Numbers without a source were chosen on
    the development half of the tables (tests/benchmarks/halves.py), by tests/benchmarks/portfolio.py.
    """

    name: str = "standard"
    # what is believed
    level: float = 0.4
    """Level of the one-sided test by which a candidate replaces another, half for each metric. To exchange
    equals costs nothing, and to keep the worse one does: with 1,000 rows of 13 tables of the development
    half, two draws each, a level of 0.25 for each metric was better than 0.1 by 0.23 ± 0.09 points, 0.45 by
    0.31 ± 0.10 (2026-11-26).
    """
    metric: str | Callable[..., float] | None = None
    """A scorer of scikit-learn, or its name (metrics.SCORERS). None: the error rate, or log-loss where one
    class is frequent, and the squared error of regressions.
    """
    rare_share: float = 0.9
    """Share of the most frequent class from which log-loss is judged in place of the error rate."""
    worth_cost: float = 0.9
    """Share of the cost of the choice below which a candidate is worth a change that loses no more."""
    # rows
    trial_rows: int = 16_000
    """Rows of a trial: all rows up to so many, else rows of cells."""
    trial_numbers: int = 12_000_000
    """Rows × features of a trial: fewer rows where features are many."""
    broad_times: int = 8
    """Rows that scalings and references learn from, as a multiple of the rows of a trial, for what is
    foretold of the choice: those of a model have all sampled rows.
    """
    sample_cells: int = 32
    """Cells that the rows of a trial come from, where rows are many."""
    few_rows: int = 2_000
    """Rows up to which every row is held out once. Of more rows some folds are judged, and another one says
    what is foretold.
    """
    folds: int = 2
    """How many, of four, as long as trials are on all rows. With 3,500 rows of eight tables of the
    development half two folds chose as well as four (-0.01 ± 0.10 points) in three quarters of the time
    (2026-11-26).
    """
    very_few_rows: int = 600
    """Rows up to which folds are drawn several times, and a first look is at four folds in place of one. With
    1,000 rows of 14 tables of the development half this gained 0.08 ± 0.17 points in 3.4 times the time
    (2026-11-26).
    """
    repeats: int = 3
    """How often."""
    fewest_rows: int = 20
    """Rows below which a search judges nothing."""
    # the portfolio
    survivors: int = 5
    """Candidates that are judged on all folds after the first look, at most."""
    # mutations
    rounds: int = 1
    """Rounds of mutations, at most. In twelve searches on 1,500 rows of eight tables of the development half
    the first round raised quality by 0.23 points in the mean, a second one by 0.02, in a sixth of the time
    (2026-11-26).
    """
    ends_in_noise: bool = False
    """Whether a round that gains no more than a standard error is the last one."""
    codes: tuple[int, int] = (16, 256)
    """Different whole numbers of a feature that may become a column for each, at most: two choices."""
    # budget
    ratio: float = 20.0
    """Cost in linear predictions that is allowed where no budget is named."""
    ns: float = 100.0
    """The same in nanoseconds of the cost model: a model may be within either."""
    least_times: float = 2.0
    """The budget as a multiple of the cheapest model, where those allow none."""
    # shapes
    descent_rows: int = 5_000
    """Rows of a leaf from which stochastic steps refine it, which are faster there."""
    epochs: int = 40
    """Passes of them."""
    local_rows: int = 2_000
    """Rows that train a local machine: more pick no better landmarks, and take longer (cal_housing)."""
    most_leaf_bytes: int = 3 * 2**29
    """Memory that the rows of a leaf and what is computed of them may take."""
    # references
    reference_rows: int = 8_000
    """Rows that train the plain SVM or ridge pipeline of scikit-learn, at most: its time grows with their
    square."""


STANDARD = SearchPolicy()
THOROUGH = replace(STANDARD, name="thorough", survivors=8, rounds=4, trial_rows=32_000, ends_in_noise=True)
