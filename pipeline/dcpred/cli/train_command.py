"""dcpred train"""

from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli import rendering
from dcpred.cli.observation import observation_options
from dcpred.cli.options import (
    ADDRESS,
    SettingsType,
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
from dcpred_tasks.training.settings import describe_settings


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
    as_json: bool,
    **options: Any,
) -> None:
    """Train a model on a Zarr data set and write it to the new directory MODEL.

    Settings come from --config, then --set, then --task. A short search chooses the others by validation,
    unless a setting is given that the search varies (it does not vary categorical, missing, class_weight,
    seed, limits of rows). `dcpred tune` searches longer, and within a cost. The same command resumes an
    interrupted search or training.

    --by-time, --by-group and --folds apply to the search, and to the rows that calibrate probabilities,
    thresholds and intervals. A feature that they name stays a feature; a column of --id is not a feature.
    """
    report = dcpred.train(
        data, model, settings=read_values(config, assignments), task=task, **options, verbose=True
    )
    emit(report.as_dict(), as_json, rendering.trained if "settings" not in vars(report) else rendering.tuned)
