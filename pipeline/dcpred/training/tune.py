"""Choose settings, and train with them. Libraries of training are imported when the function is called."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dcpred.public.functions import option_of, typed
from dcpred.training.policy import STANDARD, THOROUGH, policy_for
from dcpred.training.reports import TuneReport, with_cost
from dcpred.training.search_result import check_plot, draw_frontier
from dcpred.training.train import chosen_settings, run_training
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.training.settings import BESIDE_A_SEARCH


@typed
def tune(
    data: Any,
    model: str | Path,
    *,
    budget: str | None = None,
    settings: Any = None,
    task: str | None = None,
    metric: str | None = None,
    prefer: str = "cost",
    seconds: float | None = None,
    references: bool = False,
    search: str | Path | None = None,
    by_time: str | None = None,
    by_group: str | None = None,
    folds: int | None = None,
    short: bool = False,
    plot: Path | None = None,
    x: str = "X",
    y: Any = "y",
    id: Sequence[str] = (),
    drop: Sequence[str] = (),
    sample_weight: Any = None,
    scratch: Path | None = None,
    workers: int | None = None,
    client: Any = None,
    accept: Sequence[str] = (),
    on_alarm: str = "warn",
    verbose: bool = False,
) -> TuneReport:
    """Choose settings by validation, within a cost, and train with them.

    Parameters
    ----------
    data : str, Path, zarr.Array, zarr.Group, or array-like of shape (n_rows, n_features)
        Path or address of a data set, or its rows, as for `train`.
    budget : str, optional
        Maximum predicted cost of a row: ``"8x"`` (linear predictions), or ``"0.2us"``, ``"200ns"``, compared
        with the time of a linear prediction on this computer. By default 20x or 100ns, whichever is more.
    settings : dict or Settings, optional
        Settings that are not searched for.
    search : str or Path, optional
        A model whose search is used in place of a new one: the best point of its Pareto front within `budget`
        is trained, by default its choice.
    short : bool, default False
        Search less, as `train` without settings does.
    plot : Path, optional
        File for a plot of the Pareto front (.png, .svg or .pdf; it needs matplotlib).

    Returns
    -------
    TuneReport
        The chosen settings, the Pareto front, every decision, and the trained model.

    Raises
    ------
    DcpredError
        What `train` raises.
    """
    given = locals()
    check_plot(plot)
    values, start = chosen_settings(settings, task, metric)
    for name in sorted(values.keys() - BESIDE_A_SEARCH):
        raise SettingsError(
            f"Cannot set {name}: the search chooses it. Omit it, or train with it by `dcpred"
            f" train --set {name}=…`."
        )
    _check_alone(search, {"seconds": seconds, "metric": metric, "references": references, "short": short})
    policy = policy_for(STANDARD if short else THOROUGH, metric, prefer, seconds, references)
    more = {} if search is None else {"search": str(search)}
    report = run_training(given, start, policy, budget=budget, short=short, **more)
    assert isinstance(report, TuneReport)
    if plot:
        points, chosen = with_cost(report.frontier, report.chosen, report.made["cost_ratio"])
        draw_frontier({"frontier": points, "chosen": chosen}, plot)
    return report


def _check_alone(search: object, options: Mapping[str, object]) -> None:
    """Raise SettingsError for an option of a new search beside the search of another model."""
    asked = [option_of(name) for name, value in options.items() if value not in (None, False)]
    if search is not None and asked:
        raise SettingsError(
            f"Cannot combine {asked[0]} with {option_of('search')}: it is for a new search. Omit one of them."
        )
