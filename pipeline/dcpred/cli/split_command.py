"""dcpred split"""

from typing import Any

import click

import dcpred
from dcpred.cli.options import emit, files, json_option, reports_errors, storage_option
from dcpred.cli.rendering import rows
from dcpred.execution.progress import counted

SHARED = 0.02  # minimum fraction of test rows equal to training rows to report


@click.command("split")
@click.argument("data", shell_complete=files)
@click.option(
    "--test",
    type=float,
    default=0.2,
    show_default=True,
    metavar="SHARE",
    help="Fraction of rows in the test set.",
)
@click.option(
    "--by-time",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    help="Test on the last rows: by an array or feature, else in stored order. Write it after DATA.",
)
@click.option(
    "--by-group", metavar="NAME", help="Keep rows with the same value of an array or feature together."
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Seed of the random split [default: 0].")
@click.option(
    "--into",
    nargs=2,
    metavar="TRAIN TEST",
    shell_complete=files,
    help="The two outputs [default: DATA-train.zarr and DATA-test.zarr].",
)
@click.option("--x", "x", metavar="NAME", default="X", show_default=True, help="Array of features in DATA.")
@click.option("--y", "y", metavar="NAME", default="y", show_default=True, help="Array of targets in DATA.")
@json_option
@reports_errors
@storage_option
def split_command(data: str, as_json: bool, **options: Any) -> None:
    """Split a data set into training and test rows: two new Zarr groups.

    Rows are drawn at random, the same fraction of each class. Arrays next to X (targets, weights, ids),
    names, classes and the schema are copied. Each part is written completely or not at all. The same
    command writes a part that is missing.
    """
    emit(dcpred.split(data, **options, verbose=True).as_dict(), as_json, _written)


def _written(r: dict[str, Any]) -> str:
    n_rows = r["n_train"] + r["n_test"]
    pairs = [
        ("train", f"{r['train']}  ({r['n_train']:,} rows)"),
        ("test", f"{r['test']}  ({r['n_test']:,} rows, {100 * r['n_test'] / n_rows:.1f} %)"),
        ("by", _how(r)),
    ]
    if r["left_out"]:
        pairs.append(("left out", f"{', '.join(r['left_out'])}: not as many rows as X"))
    if r["shared_rows"] >= SHARED * r["n_test"]:
        rows_are = counted(r["shared_rows"], "test row is", "test rows are")
        pairs.append(
            ("duplicate rows", f"{rows_are} equal to training rows; remove them, or split --by-group")
        )
    if r["already_split"]:
        pairs.append(("", "both exist; nothing was written"))
    return rows(pairs)


def _how(r: dict[str, Any]) -> str:
    if r["by"] == "classes":
        classes = counted(r["n_classes"], "class", "classes")
        return f"random, stratified by {classes}; seed {r['seed']}"
    if r["by"] == "rows":
        return f"random; seed {r['seed']}"
    if r["by"] == "time":
        return f"time: the last rows {'in stored order' if r['name'] is None else 'by ' + r['name']}"
    return f"groups of {r['name']}, each on one side; seed {r['seed']}"
