"""dcpred validate"""

from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli.options import (
    FolderType,
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
    storage_option,
)
from dcpred.cli.rendering import table
from dcpred.execution.progress import counted
from dcpred.tuning.frontier_plot import is_share, words_of


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
    data: str, assignments: tuple[str, ...], config: Path | None, as_json: bool, **options: Any
) -> None:
    """Cross-validate `dcpred train` with the same options on a Zarr data set. No model is kept.

    Holds out five folds, or those of --folds, in turn: rows at random, whole groups, or the rows after
    those that train. Each training sees no row of its fold: it chooses settings, scales, encodes and fits
    anew. Prints the quality of each fold, the mean with its standard error, and each search's prediction.
    """
    report = dcpred.validate(data, settings=read_values(config, assignments), **options, verbose=True)
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
        lines.append([str(number + 1), *rows, found, shown(one["predicted"], one["predicted_error"])])
    lines.append(["mean", "", "", shown(r["mean"], r["standard_error"]), shown(r["predicted"], None)])
    unknown = sum(one["n_unknown"] for one in r["folds"])
    left_out = f"; skipped {counted(unknown, 'row', 'rows')} without a score or of an unknown class"
    return "\n".join([f"held out: {r['held_out']}{left_out if unknown else ''}", *table(lines, left=(0,))])


def _number(value: float, name: str) -> str:
    return f"{100 * value:.2f} %" if is_share(name) else f"{value:.4g}"
