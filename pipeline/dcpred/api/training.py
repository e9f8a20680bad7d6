"""Models: train, tune, cross-validate. Libraries of training are imported when a function is called."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dcpred.api.arguments import (
    Addresses,
    finished_training,
    settings_given,
    training_data,
)
from dcpred.datasets.split_rules import folds_of_data
from dcpred.execution.pools import chosen_pool
from dcpred.execution.progress import show
from dcpred.inspection import cost_of
from dcpred.public import typed
from dcpred.training.reports import TrainReport, TuneReport, ValidationReport
from dcpred.tuning.search_result import check_plot, draw_frontier, with_cost
from dcpred_tasks.artifacts.data_schema import schema_of_array
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.storage.addresses import check_writable
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.settings import BESIDE_A_SEARCH, make_settings, settings_dict

FOLDS = 5


@typed
def train(
    data: Any,
    model: str | Path,
    *,
    settings: Any = None,
    task: str | None = None,
    metric: str | None = None,
    by_time: str | None = None,
    by_group: str | None = None,
    folds: int | None = None,
    x: str = "X",
    y: Any = "y",
    id: Sequence[str] = (),
    drop: Sequence[str] = (),
    sample_weight: Any = None,
    scratch: Path | None = None,
    workers: int | None = None,
    client: Any = None,
    verbose: bool = False,
) -> TrainReport | TuneReport:
    """Train a model on a data set and write it to a new directory.

    Parameters
    ----------
    data : str, Path, zarr.Array, zarr.Group, or array-like of shape (n_rows, n_features)
        Path or address of a data set or a table (Parquet, Arrow, CSV), or rows: NumPy, pandas, Dask or
        xarray, of real numbers. Rows in memory are written to `MODEL.data.zarr` first; a table is imported
        among the temporary files, which are removed at the end.
    model : str or Path
        New directory, or an address, which needs `scratch`.
    settings : dict or Settings, optional
        Settings by name. A short search chooses the others by validation, unless one is given that the search
        varies.

    Returns
    -------
    TrainReport or TuneReport
        The trained model; after a search, also what it found. `model` is the path.

    Raises
    ------
    RefusedError
        For wrong arguments or data, before the model is written.
    RunHeldError
        If another process trains the same model.
    ResourceError
        For a full disk, or a missing permission.

    See Also
    --------
    tune : Search longer, and within a cost.

    Notes
    -----
    The same call resumes an interrupted search or training, and does nothing once the model is there.

    Examples
    --------
    >>> dcpred.train("known.zarr", "model", settings={"landmarks": 24})  # doctest: +SKIP
    >>> dcpred.train(X, "model", y=y, client=client)  # doctest: +SKIP
    """
    from dcpred.training.train import train as train_arrays
    from dcpred.training.train import trained_beside
    from dcpred.tuning import tune as tuning
    from dcpred.tuning.metrics import metric_of
    from dcpred.tuning.policy import STANDARD

    values = settings_given(settings, task)
    asked = make_settings(values)
    searches = values.keys() <= BESIDE_A_SEARCH
    if metric is not None:
        metric_of(metric, asked.task, 2)
        if not searches:
            raise SettingsError(
                f"Cannot combine metric {metric} with settings: it compares candidates of the search for"
                " settings. Omit one of them."
            )
    pool = chosen_pool(workers, client)
    check_writable(model, "a model's files")
    call = {"settings": settings_dict(asked), "searches": searches, "metric": metric}
    call |= {"by_time": by_time, "by_group": by_group, "folds": folds}
    source, done = finished_training(data, model, y, sample_weight, id, drop, scratch, call)
    if done is not None and not searches:
        return replace(done, predicted_cost=cost_of(read_model(model)))
    if done is not None and (again := tuning.finished_search(model, done)) is not None:
        return again
    more: dict[str, Any] = {"id": id, "drop": drop, "scratch": scratch}
    with training_data(data, x, y, sample_weight, client, model, **more) as at:
        held_out = _held_out(at, by_time, by_group, folds, asked.seed)
        given: dict[str, Any] = {"weight": at.weight, "folds": held_out, "source": source}
        with trained_beside(model, scratch) as here:
            if searches:
                policy = replace(STANDARD, metric=metric)
                tuned = tuning.tune(at.x, at.y, here, pool, start=asked, policy=policy, **given)
            else:
                report = train_arrays(at.x, at.y, here, asked, pool, **given)
                cost = cost_of(read_model(here))
    if searches:
        return replace(tuned, trained=tuned.trained | {"model": str(model)})
    return replace(report, model=str(model), predicted_cost=cost)


def _held_out(
    at: Addresses, by_time: str | None, by_group: str | None, folds: int | None, seed: int
) -> Folds | None:
    found = folds_of_data(at.x, by_time, by_group, folds, seed, y=at.y)
    if found is not None:
        show(f"held out: {found.words}")
        schema = schema_of_array(at.x) if found.time else None
        if schema is not None and found.time in [column.name for column in schema.sources]:
            show(
                f"{found.time!r} is a feature, beyond which new rows always lie; keep it with --id, or omit"
                " it with --drop, unless the model needs it"
            )
    return found


@typed
def tune(
    data: Any,
    model: str | Path,
    *,
    budget: str | None = None,
    settings: Any = None,
    task: str | None = None,
    metric: str | None = None,
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
    from dcpred.training.train import trained_beside
    from dcpred.tuning import tune as tuning
    from dcpred.tuning.metrics import metric_of
    from dcpred.tuning.policy import STANDARD, THOROUGH

    check_plot(plot)
    values = settings_given(settings, task)
    start = make_settings(values)
    tuning.check_beside_a_search(values)
    if metric is not None:
        metric_of(metric, start.task, 2)
    limit = tuning.parse_budget(budget) if budget is not None else None
    pool = chosen_pool(workers, client)
    check_writable(model, "a model's files")
    call = {"settings": settings_dict(start), "searches": True, "metric": metric, "budget": budget}
    call |= {"short": short, "by_time": by_time, "by_group": by_group, "folds": folds}
    source, done = finished_training(data, model, y, sample_weight, id, drop, scratch, call)
    tuned = None if done is None else tuning.finished_search(model, done)
    more: dict[str, Any] = {"id": id, "drop": drop, "scratch": scratch}
    if tuned is None:
        with training_data(data, x, y, sample_weight, client, model, **more) as at:
            held_out = _held_out(at, by_time, by_group, folds, start.seed)
            with trained_beside(model, scratch) as here:
                tuned = tuning.tune(
                    at.x,
                    at.y,
                    here,
                    pool,
                    start=start,
                    weight=at.weight,
                    budget=limit,
                    policy=replace(STANDARD if short else THOROUGH, metric=metric),
                    folds=held_out,
                    source=source,
                )
    if plot:
        points, chosen = with_cost(tuned.frontier, tuned.chosen, tuned.made["cost_ratio"])
        draw_frontier({"frontier": points, "chosen": chosen}, plot)
    return replace(tuned, trained=tuned.trained | {"model": str(model)})


@typed
def validate(
    data: Any,
    *,
    settings: Any = None,
    task: str | None = None,
    metric: str | None = None,
    by_time: str | None = None,
    by_group: str | None = None,
    folds: int | None = None,
    x: str = "X",
    y: Any = "y",
    id: Sequence[str] = (),
    drop: Sequence[str] = (),
    sample_weight: Any = None,
    scratch: Path | None = None,
    workers: int | None = None,
    client: Any = None,
    verbose: bool = False,
) -> ValidationReport:
    """Cross-validate `train` with the same arguments. No model is kept.

    Parameters
    ----------
    data : str, Path, zarr.Array, zarr.Group, or array-like of shape (n_rows, n_features)
        Path or address of a data set or a table, or rows, as for `train`. Rows that are not stored as Zarr
        are written to a temporary directory, which workers need to see.
    settings : dict or Settings, optional
        Settings by name, as for `train`.
    metric : str, optional
        Score to measure, and to optimise by a search, as for `train`.
    folds : int, optional
        Number of folds, from 2 to 20. By default 5.
    scratch : Path, optional
        Directory for temporary files that driver and workers share. By default that of the system.

    Returns
    -------
    ValidationReport
        The quality of each fold, and the mean with its standard error.

    Raises
    ------
    RefusedError
        For wrong arguments or data.
    """
    from dcpred import validation
    from dcpred.tuning.metrics import metric_of
    from dcpred.tuning.policy import STANDARD

    values = settings_given(settings, task)
    asked = make_settings(values)
    if metric is not None:
        metric_of(metric, asked.task, 2)
    pool = chosen_pool(workers, client)
    more: dict[str, Any] = {"id": id, "drop": drop, "scratch": scratch}
    with training_data(data, x, y, sample_weight, client, None, **more) as at:
        by = at.x, by_time, by_group
        outer = folds_of_data(
            *by, FOLDS if folds is None else folds, asked.seed + validation.OUTER_SEED, y=at.y
        )
        assert outer is not None
        return validation.validate(
            at.x,
            at.y,
            outer,
            lambda trains: folds_of_data(*by, None, asked.seed, trains, at.y),
            asked,
            replace(STANDARD, metric=metric) if values.keys() <= BESIDE_A_SEARCH else None,
            metric,
            pool,
            weight=at.weight,
            scratch=scratch,
        )
