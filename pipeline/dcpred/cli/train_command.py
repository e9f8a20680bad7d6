"""dcpred train"""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import click

from dcpred.cli import rendering
from dcpred.cli.observation import observation_options
from dcpred.cli.options import (
    ADDRESS,
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
    scratch_option,
    setting_help,
    storage_option,
)
from dcpred.execution.progress import reporter
from dcpred.execution.workers import Scheduler, connect
from dcpred.training.publishing import trained_beside
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.storage.zarr_arrays import find_array
from dcpred_tasks.training.settings import BESIDE_A_SEARCH, describe_settings, make_settings


class _TrainCommand(click.Command):
    """Its help ends with all settings."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Settings of --set and --config"):
            formatter.write_dl(
                [(f"{one.name} = {one.default}", setting_help(one)) for one in describe_settings()]
            )


@click.command("train", cls=_TrainCommand)
@click.argument("data", shell_complete=files)
@click.argument("model", type=ADDRESS)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    type=SettingsType(),
    metavar="KEY=VALUE",
    help="A setting, for example landmarks=24; repeatable. All settings are listed below.",
)
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="A TOML file of settings.")
@metric_option
@folds_options
@data_options
@cluster_options
@scratch_option
@json_option
@reports_errors
@observation_options
@storage_option
def train_command(
    data: str,
    model: str | Path,
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
    """Train a model on a Zarr data set and write it to the new directory MODEL.

    Settings come from --config, then --set, then --task. A short search chooses the others by validation,
    unless a setting is given that the search varies (it does not vary categorical, missing, class_weight,
    seed, limits of rows). `dcpred tune` searches longer, and within a cost. The same command resumes an
    interrupted search or training.

    --by-time, --by-group and --folds apply to the search, and to the rows that calibrate probabilities,
    thresholds and intervals. A feature that they name stays a feature; a column of --id is not a feature.
    """
    from dcpred.datasets.split_rules import folds_of_data  # noqa: PLC0415
    from dcpred.inspection import cost_of  # noqa: PLC0415
    from dcpred.training.train import train  # noqa: PLC0415 - slow to import, and not needed for help
    from dcpred.tuning.metrics import metric_of  # noqa: PLC0415
    from dcpred.tuning.policy import STANDARD  # noqa: PLC0415
    from dcpred.tuning.tune import tune  # noqa: PLC0415

    check_cluster_options(workers, scheduler)
    values = read_values(config, assignments, task)
    settings = make_settings(values)
    searches = values.keys() <= BESIDE_A_SEARCH
    if metric is not None:
        metric_of(metric, settings.task, 2)
        if not searches:
            raise SettingsError(
                f"Cannot combine --metric {metric} with settings: it compares candidates of the search for"
                " settings. Omit one of them."
            )
    addresses = find_array(data, x), find_array(data, y)
    weight = find_array(data, sample_weight) if sample_weight else None
    held_out = folds_of_data(addresses[0], by_time, by_group, folds, settings.seed)
    pool = partial(connect, workers, scheduler)
    say = reporter()
    if held_out is not None:
        say.say(f"held out: {held_out.words}")
    if searches:
        with trained_beside(model, scratch) as here:
            policy = replace(STANDARD, metric=metric)
            given = *addresses, here, pool
            tuned = tune(*given, start=settings, policy=policy, weight=weight, say=say, folds=held_out)
        outcome = asdict(tuned)
        outcome["trained"]["model"] = str(model)
        emit(outcome, as_json, rendering.tuned)
        return
    with trained_beside(model, scratch) as here:
        report = train(*addresses, here, settings, pool, weight=weight, say=say, folds=held_out)
        cost = cost_of(read_model(here))
    emit(asdict(replace(report, model=str(model))) | {"predicted_cost": cost}, as_json, rendering.trained)
