"""dcpred train, dcpred tune and dcpred validate."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

import dcpred
from dcpred.cli.commands import command
from dcpred.cli.options import SettingsType, emit, read_values, setting_help
from dcpred_tasks.training.settings import BESIDE_A_SEARCH, describe_settings

F = TypeVar("F", bound=Callable[..., Any])


class _TrainCommand(click.Command):
    """Its help ends with all settings."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Settings of --set and --config"):
            formatter.write_dl(
                [
                    (f"{setting.name} = {setting.default}", setting_help(setting))
                    for setting in describe_settings()
                ]
            )


def set_option(meaning: str, only: frozenset[str] | None = None) -> Callable[[F], F]:
    """Settings by name."""
    kind = SettingsType(only)
    return click.option("--set", "assignments", multiple=True, type=kind, metavar="KEY=VALUE", help=meaning)


config_option = click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), help="A TOML file of settings."
)


@command("train", "data", "model", omit=("settings",), observed=True, kind=_TrainCommand)
@set_option("A setting, for example landmarks=24; repeatable. All settings are listed below.")
@config_option
def train_command(
    data: str,
    model: str | Path,
    assignments: tuple[str, ...],
    config: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Settings come from --config, then --set, then --task. A short search chooses the others by validation,
    unless a setting is given that the search varies (it does not vary categorical, missing, class_weight,
    seed, limits of rows). `dcpred tune` searches longer, and within a cost.

    --by-time, --by-group and --folds apply to the search, and to the rows that calibrate probabilities,
    thresholds and intervals. A feature that they name stays a feature; a column of --id is not a feature.
    """
    report = dcpred.train(data, model, settings=read_values(config, assignments), **options, verbose=True)
    emit(report, as_json)


@command("tune", "data", "model", omit=("settings",), plot={"metavar": "FILE"})
@set_option(
    f"A setting that is not searched for ({', '.join(sorted(BESIDE_A_SEARCH))}); repeatable.", BESIDE_A_SEARCH
)
def tune_command(
    data: str, model: str | Path, assignments: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Candidates differ in leaves, landmarks, pairwise products, overlap, kernel width, ridge, loss, scaling
    and feature map. Held-out rows evaluate them. Prints the Pareto front, the least error at every cost,
    and writes the model to the new directory MODEL.
    """
    report = dcpred.tune(data, model, settings=read_values(None, assignments), **options, verbose=True)
    emit(report, as_json)


@command("validate", "data", omit=("settings",))
@set_option("A setting, as for `dcpred train`; repeatable.")
@config_option
def validate_command(
    data: str, assignments: tuple[str, ...], config: Path | None, as_json: bool, **options: Any
) -> None:
    """Holds out five folds, or those of --folds, in turn: rows at random, whole groups, or the rows after
    those that train. Each training sees no row of its fold: it chooses settings, scales, encodes and fits
    anew. Prints the quality of each fold, the mean with its standard error, and each search's prediction.
    """
    report = dcpred.validate(data, settings=read_values(config, assignments), **options, verbose=True)
    emit(report, as_json)
