"""Models: train, tune, cross-validate. Libraries of training are imported when a function is called."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dcpred.datasets.split_rules import folds_of_data
from dcpred.execution.pools import chosen_pool
from dcpred.execution.progress import show
from dcpred.inspection import cost_of
from dcpred.located import Addresses, check_names, check_target, located
from dcpred.public import typed
from dcpred.training.reports import TrainReport, TuneReport, ValidationReport
from dcpred.tuning.search_result import check_plot, draw_frontier, with_cost
from dcpred_tasks.artifacts.data_schema import schema_of_array
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import check_writable
from dcpred_tasks.tables.sources import is_table
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.settings import BESIDE_A_SEARCH, Settings, make_settings, settings_dict

if TYPE_CHECKING:
    from dcpred.tuning.policy import SearchPolicy

FOLDS = 5


@contextmanager
def training_data(
    data: Any,
    x: str,
    y: Any,
    sample_weight: Any,
    client: Any,
    beside: str | Path | None,
    *,
    id: Sequence[str] = (),
    drop: Sequence[str] = (),
    scratch: Path | None = None,
) -> Iterator[Addresses]:
    """Where the arrays of a training lie, while a `with` statement runs; as `located`, or for a table among
    temporary files.

    id, drop  columns of a table that are not features: stored next to X, or omitted
    """
    from dcpred.training import scratch as tables

    check_target(y)
    if isinstance(data, str | Path) and is_table(data):
        check_names(y=y, sample_weight=sample_weight)
        columns = tables.NamedColumns(y, tuple(id), tuple(drop), sample_weight)
        with tables.imported(data, columns, tables.import_folder(beside, scratch)) as rows:
            weight = None if sample_weight is None else f"{rows}/{sample_weight}"
            yield Addresses(f"{rows}/X", f"{rows}/y", weight)
        return
    if id or drop:
        raise SettingsError(
            f"Cannot use {'id' if id else 'drop'}={[*id, *drop]}: the data is no table. Omit it: arrays next"
            " to X are no features."
        )
    with located(data, x, y, sample_weight, zarr_arrays.find_array, client, beside) as addresses:
        yield addresses


def _finished_training(
    model: str | Path,
    asked: Mapping[str, Any],
    *,
    data: Any,
    y: Any,
    sample_weight: Any,
    id: Sequence[str],
    drop: Sequence[str],
    scratch: Path | None,
) -> tuple[str, TrainReport | None]:
    """A digest of a training on a table, "" for other data; and the report of the model that it made.

    asked  the other arguments that decide the model
    """
    from dcpred.training import scratch as tables
    from dcpred.training.train import finished_on_table

    columns = tables.NamedColumns(y, tuple(id), tuple(drop), sample_weight)
    source = tables.source_of(data, columns, asked)
    if not source:
        return "", None
    return source, finished_on_table(model, source, tables.import_folder(model, scratch))


def _settings_given(settings: Any, task: str | None) -> dict[str, object]:
    """Settings by name, with the task."""
    values: dict[str, object] = {}
    if settings is not None:
        if not isinstance(settings, Mapping):
            from dcpred.estimators.settings import Settings

            if not isinstance(settings, Settings):
                raise SettingsError(
                    f"Cannot use settings={settings!r}: it is of type {type(settings).__name__}. Pass a dict,"
                    ' for example {"landmarks": 24}, or a dcpred.Settings.'
                )
            settings = settings.given()
        values = {str(name): value for name, value in settings.items()}
    return values if task is None else values | {"task": task}


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
    given = locals()
    from dcpred.tuning.policy import STANDARD

    values, start = _settings(settings, task, metric)
    searches = values.keys() <= BESIDE_A_SEARCH
    if metric is not None and not searches:
        raise SettingsError(
            f"Cannot combine metric {metric} with settings: it compares candidates of the search for"
            " settings. Omit one of them."
        )
    return _train(given, start, replace(STANDARD, metric=metric) if searches else None)


def _settings(settings: Any, task: str | None, metric: str | None) -> tuple[dict[str, object], Settings]:
    """The given settings by name, and all of them, which suit the metric."""
    from dcpred.tuning.metrics import metric_of

    values = _settings_given(settings, task)
    start = make_settings(values)
    if metric is not None:
        metric_of(metric, start.task, 2)
    return values, start


def _train(
    given: Mapping[str, Any], start: Settings, policy: "SearchPolicy | None", **more: Any
) -> TrainReport | TuneReport:
    """Train, or search and train, unless that is done.

    given   the arguments of `train` or `tune`
    policy  of the search; None: there is none
    more    arguments of `tune` alone
    """
    from dcpred.training.train import train as train_arrays
    from dcpred.training.train import trained_beside
    from dcpred.tuning import tune as tuning

    model, scratch = given["model"], given["scratch"]
    budget = tuning.parse_budget(more["budget"]) if more.get("budget") is not None else None
    pool = chosen_pool(given["workers"], given["client"])
    check_writable(model, "a model's files")
    rows = {name: given[name] for name in ("data", "y", "sample_weight", "id", "drop", "scratch")}
    held_out = {name: given[name] for name in ("by_time", "by_group", "folds")}
    asked = {"settings": settings_dict(start), "searches": policy is not None, "metric": given["metric"]}
    source, done = _finished_training(model, asked | more | held_out, **rows)
    if done is not None and policy is None:
        return replace(done, predicted_cost=cost_of(read_model(model)))
    if done is not None and (again := tuning.finished_search(model, done)) is not None:
        return again
    with training_data(**rows, x=given["x"], client=given["client"], beside=model) as at:
        arrays: dict[str, Any] = {"weight": at.weight, "folds": _held_out(at, **held_out, seed=start.seed)}
        with trained_beside(model, scratch) as here:
            if policy is None:
                report = train_arrays(at.x, at.y, here, start, pool, **arrays, source=source)
                cost = cost_of(read_model(here))
            else:
                arrays |= {"start": start, "policy": policy, "budget": budget}
                tuned = tuning.tune(at.x, at.y, here, pool, **arrays, source=source)
    if policy is None:
        return replace(report, model=str(model), predicted_cost=cost)
    return replace(tuned, trained=tuned.trained | {"model": str(model)})


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
    given = locals()
    from dcpred.tuning.policy import STANDARD, THOROUGH
    from dcpred.tuning.tune import check_beside_a_search

    check_plot(plot)
    values, start = _settings(settings, task, metric)
    check_beside_a_search(values)
    policy = replace(STANDARD if short else THOROUGH, metric=metric)
    report = _train(given, start, policy, budget=budget, short=short)
    assert isinstance(report, TuneReport)
    if plot:
        points, chosen = with_cost(report.frontier, report.chosen, report.made["cost_ratio"])
        draw_frontier({"frontier": points, "chosen": chosen}, plot)
    return report


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
    from dcpred.tuning import validation
    from dcpred.tuning.policy import STANDARD

    values, asked = _settings(settings, task, metric)
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
