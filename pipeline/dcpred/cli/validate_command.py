"""dcpred validate"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from dcpred.cli.options import (
    FolderType,
    SettingsType,
    check_cluster_options,
    cluster_options,
    data_options,
    emit,
    files,
    folds_options,
    json_option,
    metric_option,
    read_values,
    reports_errors,
    storage_option,
)
from dcpred.cli.rendering import table
from dcpred.execution.progress import counted, reporter
from dcpred.execution.workers import Scheduler, connect
from dcpred.tuning.frontier_plot import is_share, words_of
from dcpred_tasks.storage.zarr_arrays import find_array
from dcpred_tasks.training.settings import BESIDE_A_SEARCH, make_settings

FOLDS = 5


@click.command("validate")
@click.argument("data", shell_complete=files)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    type=SettingsType(),
    metavar="KEY=VALUE",
    help="A setting, as for `dcpred train`; repeatable.",
)
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="A TOML file of settings.")
@click.option(
    "--scratch",
    type=FolderType(),
    metavar="DIR",
    help="Directory for temporary files that driver and workers share [default: that of the system].",
)
@metric_option
@folds_options
@data_options
@cluster_options
@json_option
@reports_errors
@storage_option
def validate_command(
    data: str,
    task: str | None,
    assignments: tuple[str, ...],
    config: Path | None,
    metric: str | None,
    by_time: str | None,
    by_group: str | None,
    folds: int | None,
    x: str,
    y: str,
    sample_weight: str | None,
    workers: int | None,
    scheduler: Scheduler | None,
    scratch: Path | None,
    as_json: bool,
) -> None:
    """Cross-validate `dcpred train` with the same options on a Zarr data set. No model is kept.

    Holds out five folds, or those of --folds, in turn: rows at random, whole groups, or the rows after
    those that train. Each training sees no row of its fold: it chooses settings, scales, encodes and fits
    anew. Prints the quality of each fold, the mean with its standard error, and each search's prediction.
    """
    from dcpred.datasets.split_rules import folds_of_data  # noqa: PLC0415
    from dcpred.tuning.metrics import metric_of  # noqa: PLC0415
    from dcpred.tuning.policy import STANDARD  # noqa: PLC0415 - slow to import, and not needed for help
    from dcpred.validation import OUTER_SEED, validate  # noqa: PLC0415

    check_cluster_options(workers, scheduler)
    values = read_values(config, assignments, task)
    settings = make_settings(values)
    if metric is not None:
        metric_of(metric, settings.task, 2)
    addresses = find_array(data, x), find_array(data, y)
    by = addresses[0], by_time, by_group
    outer = folds_of_data(*by, folds or FOLDS, settings.seed + OUTER_SEED)
    assert outer is not None
    report = validate(
        *addresses,
        outer,
        lambda trains: folds_of_data(*by, None, settings.seed, trains),
        settings,
        replace(STANDARD, metric=metric) if values.keys() <= BESIDE_A_SEARCH else None,
        metric,
        partial(connect, workers, scheduler),
        weight=find_array(data, sample_weight) if sample_weight else None,
        scratch=scratch,
        say=reporter(),
    )
    emit(report.as_dict(), as_json, _table)


def _table(r: dict[str, Any]) -> str:
    """A line for each fold, and the mean."""
    name = r["metric"]

    def shown(value: float | None, error: float | None) -> str:
        if value is None:
            return "-"
        more = "" if error is None else f" ± {_number(error, name)}"
        return _number(value, name) + more

    lines = [["fold", "trained", "held out", words_of(name), "predicted"]]
    for number, one in enumerate(r["folds"]):
        rows = [f"{one['n_train']:,}", f"{one['n_held_out']:,}"]
        found = shown(one["quality"], one["standard_error"])
        lines.append([str(number + 1), *rows, found, shown(one["foretold"], one["foretold_error"])])
    lines.append(["mean", "", "", shown(r["mean"], r["standard_error"]), shown(r["foretold"], None)])
    unknown = sum(one["n_unknown"] for one in r["folds"])
    left_out = f"; skipped {counted(unknown, 'row', 'rows')} without a score or of an unknown class"
    return "\n".join([f"held out: {r['held_out']}{left_out if unknown else ''}", *table(lines, left=(0,))])


def _number(value: float, name: str) -> str:
    return f"{100 * value:.2f} %" if is_share(name) else f"{value:.4g}"
