"""What docstrings say about parameters. A text that several public functions need stands here, once."""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from dcpred_tasks.model.uncertainty import DEFAULT_ALPHA
from dcpred_tasks.scoring.outputs import OUTPUT_COLUMNS, OUTPUTS, QUANTILES

F = TypeVar("F", bound=Callable[..., Any])
HEADING = "Parameters\n----------\n"
ENTRY = re.compile(r"^(?P<name>\w+) : (?P<kind>.+)\n(?P<lines>(?:    .+(?:\n|\Z))*)", re.MULTILINE)
SECTION = re.compile(r"^(?=[A-Z][A-Za-z ]+\n---)", re.MULTILINE)
ON_REQUEST = ", ".join(column.name for column in OUTPUT_COLUMNS if not column.standard)


class Parameter(NamedTuple):
    """An entry of a numpydoc docstring."""

    kind: str
    lines: str

    @property
    def text(self) -> str:
        """The description on one line."""
        return " ".join(self.lines.split())


def parameters_in(text: str) -> dict[str, Parameter]:
    """The entries of a docstring without indentation, or of its section of parameters."""
    section = text.partition(HEADING)[2].partition("\n\n")[0] if HEADING in text else text
    return {entry["name"]: Parameter(entry["kind"], entry["lines"]) for entry in ENTRY.finditer(section)}


SHARED = parameters_in(f"""
accept : sequence of str, optional
    Codes of remarks to omit, for example id-feature.
alpha : float, optional
    Fraction of rows outside of intervals, 0.01 to 0.5. By default {DEFAULT_ALPHA}.
by_group : str, optional
    Hold out whole groups: rows with the same value of this array or feature.
by_time : str, optional
    Hold out the rows after those that train, by this array or feature; ``""``: as stored.
client : distributed.Client or str, optional
    A running Dask cluster, or the address of its scheduler. The client is neither configured nor closed.
costs : array-like of shape (n_classes, n_classes), str or Path, optional
    CSV file of the cost of each mistake, a line for each class and a column for each label, in the order of
    the model's classes: rows get the label with the least expected cost. In Python also an array.
delta : str or Path, optional
    Path or address of a Delta table, which gets all Parquet files in one transaction once the run is
    finished.
drop : sequence of str, optional
    Columns of a table to omit.
drop_unlabelled : bool, default False
    Skip rows without a target.
folds : int, optional
    Number of folds, from 2 to 20. By default 4; with `by_time` 3.
id : sequence of str, optional
    Columns of a table that name its rows: no features.
max_bad_fraction : float, optional
    Maximum fraction of rows without a score, from 0 to 1. By default no limit.
max_bad_rows : int, optional
    Maximum number of rows without a score: the run stops beyond it. By default no limit.
max_failures : int, default 20
    Maximum number of failed blocks.
prefer : {{"cost", "accuracy"}}, default "cost"
    Of the candidates of a search that are as good as the best, take the cheapest; or take the best one.
references : bool, default False
    Compare the choice of a search with reference models of scikit-learn on the same held-out rows.
seconds : float, optional
    Time limit of the search and the training. The default settings are evaluated first, and others while
    time lasts; an interruption ends the search, too. Results then depend on the speed of the computer.
metric : str, optional
    Score that the search optimises: the name of a scikit-learn scorer (roc_auc, average_precision,
    balanced_accuracy, neg_log_loss, neg_mean_absolute_error, …), ``"neg_mean_pinball_loss=0.9"`` or
    ``"neg_mean_cost=50"``. By default accuracy, log-loss if one class has at least 90 % of the rows, or
    squared error.
model : str, Path or ServedModel
    Path or address of a model.
on_alarm : {{"warn", "raise"}}, default "warn"
    Whether an alarm among the remarks is a Python warning, or an error before anything is published.
outputs : sequence of str, optional
    Columns to write: {", ".join(OUTPUTS)}; regression also has
    quantiles, {QUANTILES[0]} to {QUANTILES[-1]}. By default all but {ON_REQUEST} and quantiles.
parquet : bool, default False
    Write a Parquet file for each block, too: `OUTPUT/scores.parquet`.
quarantine : bool, default False
    Skip rows whose input chunks are damaged or missing, and go on. By default they are refused.
root : str or Path
    Directory or address of the runs.
sample_weight : str or array-like of shape (n_rows,), optional
    Array of row weights in stored data, or its column in a table. In Python also the weights, as `y`.
scratch : Path, optional
    Directory for temporary files that driver and workers share. By default next to the model.
storage_options : dict, optional
    Options of the object store, as for `load_model`.
task : {{"classification", "regression"}}, optional
    What is learnt. By default classification.
threshold : float or str, optional
    Minimum probability for the label of the second of two classes; or ``"cost=50"``: a missed row costs 50
    times a false alarm. By default that of the model.
verbose : bool, default False
    Print progress on standard error.
workers : int, optional
    Number of local processes; -1 starts one per core, unless there is little to do. By default this process
    does the work.
x : str, default "X"
    Array of features in stored data.
y : str or array-like of shape (n_rows,), default "y"
    Array of targets in stored data, or its column in a table. In Python also the targets, if data is an
    array.
""")


def documented(function: F, known: Mapping[str, Parameter] = SHARED) -> F:
    """Describe in the docstring of a function the parameters that it does not, by their texts in `known`."""
    text = inspect.getdoc(function)
    if text is None:  # Python was started with -OO.
        return function
    described, begin = parameters_in(text) if HEADING in text else {}, HEADING
    section = "".join(
        f"{name} : {kind}\n{lines.rstrip()}\n"
        for name in inspect.signature(function).parameters
        for kind, lines in (described.get(name) or known[name],)
    )
    if HEADING in text:
        head, begin, rest = text.partition(HEADING)
        _, blank, tail = rest.partition("\n\n")
    else:
        cut = heading.start() if (heading := SECTION.search(text)) else len(text)
        head, blank, tail = f"{text[:cut].rstrip()}\n\n", "\n\n", text[cut:]
    function.__doc__ = f"{head}{begin}{section.rstrip()}{blank}{tail.rstrip()}\n"
    return function


def as_for(other: Callable[..., Any]) -> Callable[[F], F]:
    """The same by the texts of another function, and then of SHARED."""
    return partial(documented, known=SHARED | parameters_in(inspect.getdoc(other) or ""))
