"""Train a model. Libraries of training are imported when a function is called."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dcpred.datasets.holdout_check import holdout_remarks
from dcpred.datasets.located import Addresses, check_names, check_target, located
from dcpred.datasets.split_rules import folds_of_data
from dcpred.execution.pools import chosen_pool
from dcpred.execution.progress import show
from dcpred.public.functions import option_of, typed
from dcpred.public.remarks import add_remarks
from dcpred.serving.cost import cost_parts
from dcpred.training.policy import STANDARD, SearchPolicy, parse_budget, policy_for
from dcpred.training.reports import TrainReport, TuneReport
from dcpred_tasks.artifacts.data_schema import schema_of_array
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.remarks import remark
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import check_writable
from dcpred_tasks.tables.sources import is_table
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.settings import BESIDE_A_SEARCH, Settings, make_settings, settings_dict

USUAL = (None, False, "cost")  # values of options of a search that change nothing


@typed
def train(
    data: Any,
    model: str | Path,
    *,
    settings: Any = None,
    task: str | None = None,
    metric: str | None = None,
    prefer: str = "cost",
    seconds: float | None = None,
    references: bool = False,
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
    accept: Sequence[str] = (),
    on_alarm: str = "warn",
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
    values, start = chosen_settings(settings, task, metric)
    of_search: dict[str, Any] = {
        "metric": metric,
        "prefer": prefer,
        "seconds": seconds,
        "references": references,
    }
    policy = policy_for(STANDARD, **of_search)
    searches = values.keys() <= BESIDE_A_SEARCH
    for name, value in of_search.items():
        if value not in USUAL and not searches:
            raise SettingsError(
                f"Cannot combine {option_of(name)} with settings: it is for the search for settings. Omit one"
                " of them."
            )
    return run_training(given, start, policy if searches else None)


def run_training(
    given: Mapping[str, Any], start: Settings, policy: "SearchPolicy | None", **more: Any
) -> TrainReport | TuneReport:
    """Train, or search and train, unless that is done.

    given   the arguments of `train` or `tune`
    policy  of the search; None: there is none
    more    arguments of `tune` alone
    """
    from dcpred.training.choice import finished_search, search_and_fit
    from dcpred.training.fit import TrainingRequest, finished_on_table, fit_model, trained_beside
    from dcpred.training.scratch import NamedColumns, import_folder, source_of

    model, scratch = given["model"], given["scratch"]
    budget = parse_budget(more["budget"]) if more.get("budget") is not None else None
    pool = chosen_pool(given["workers"], given["client"])
    check_writable(model, "a model's files")
    rows = {name: given[name] for name in ("data", "y", "sample_weight", "id", "drop", "scratch")}
    held_out = {name: given[name] for name in ("by_time", "by_group", "folds")}
    asked = {"settings": settings_dict(start), "searches": policy is not None, "metric": given["metric"]}
    asked |= {name: given[name] for name in ("prefer", "seconds", "references") if given[name] not in USUAL}
    columns = NamedColumns(given["y"], tuple(given["id"]), tuple(given["drop"]), given["sample_weight"])
    source = source_of(given["data"], columns, asked | more | held_out)
    done = finished_on_table(model, source, import_folder(model, scratch)) if source else None
    if done is not None and policy is None:
        return replace(done, predicted_cost=cost_parts(read_model(model)))
    if done is not None and (again := finished_search(model, done)) is not None:
        return again
    with training_data(**rows, x=given["x"], client=given["client"], beside=model) as at:
        folds = _held_out(at, **held_out, seed=start.seed)
        with trained_beside(model, scratch) as here:
            table = source_of(given["data"], columns, {}) if policy is not None else ""
            request = TrainingRequest(at.x, at.y, here, start, pool, at.weight, folds, source, table)
            if policy is None:
                report = fit_model(request)
                return replace(report, model=str(model), predicted_cost=cost_parts(read_model(here)))
            tuned = search_and_fit(request, policy, budget, more.get("search"))
            return replace(tuned, trained=tuned.trained | {"model": str(model)})


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
) -> Iterator[Addresses[str]]:
    """Where the arrays of a training lie, while a `with` statement runs; as `located`, or for a table among
    temporary files.

    id, drop  columns of a table that are not features: stored next to X, or omitted
    """
    from dcpred.training.scratch import NamedColumns, import_folder, imported

    check_target(y)
    if isinstance(data, str | Path) and is_table(data):
        check_names(y=y, sample_weight=sample_weight)
        columns = NamedColumns(y, tuple(id), tuple(drop), sample_weight)
        with imported(data, columns, import_folder(beside, scratch)) as rows:
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


def _held_out(
    at: Addresses[str], by_time: str | None, by_group: str | None, folds: int | None, seed: int
) -> Folds | None:
    rule = folds_of_data(at.x, by_time, by_group, folds, seed, y=at.y)
    if by_time is None and by_group is None:
        add_remarks(*holdout_remarks(at.x, at.y))
    if rule is not None:
        show(f"held out: {rule.words}")
        schema = schema_of_array(at.x) if rule.time else None
        if schema is not None and rule.time in [column.name for column in schema.sources]:
            what = f"{rule.time!r} is a feature, beyond which new rows always lie"
            add_remarks(remark("time-feature", what, columns=[rule.time]))
    return rule


def chosen_settings(
    settings: Any, task: str | None, metric: str | None
) -> tuple[dict[str, object], Settings]:
    """The given settings and the task by name, and all settings. Both suit the metric."""
    from dcpred.training.metrics import metric_of

    if hasattr(settings, "given"):  # a dcpred.Settings
        settings = settings.given()
    if not isinstance(settings, Mapping | None):
        raise SettingsError(
            f"Cannot use settings={settings!r}: it is of type {type(settings).__name__}. Pass a dict, for"
            ' example {"landmarks": 24}, or a dcpred.Settings.'
        )
    values: dict[str, object] = {str(name): value for name, value in (settings or {}).items()}
    values |= {} if task is None else {"task": task}
    start = make_settings(values)
    if metric is not None:
        metric_of(metric, start.task, 2)
    return values, start
