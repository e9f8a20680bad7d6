"""dcpred split"""

from dataclasses import asdict
from typing import Any

import click

from dcpred.cli.options import emit, files, json_option, reports_errors, storage_option
from dcpred.cli.rendering import rows
from dcpred.datasets.splitting import split_data
from dcpred.execution.progress import counted, reporter, shares_of

SHARED = 0.02  # share of test rows that are equal to train rows from which on this is stated


@click.command("split")
@click.argument("data", shell_complete=files)
@click.option(
    "--test",
    type=float,
    default=0.2,
    show_default=True,
    metavar="SHARE",
    help="Share of the rows that are to test on.",
)
@click.option(
    "--by-time",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    help="Test on the last rows: of an array or feature by name, else as they are. Write it after DATA.",
)
@click.option("--by-group", metavar="NAME", help="Keep rows with one value of an array or feature together.")
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", help="Which rows or groups are drawn [default: 0]."
)
@click.option(
    "--into",
    nargs=2,
    metavar="TRAIN TEST",
    shell_complete=files,
    help="Where the two go [default: DATA-train.zarr and DATA-test.zarr].",
)
@click.option("--x", "x", metavar="NAME", default="X", show_default=True, help="Array of features in DATA.")
@click.option("--y", "y", metavar="NAME", default="y", show_default=True, help="Array of targets in DATA.")
@json_option
@reports_errors
@storage_option
def split_command(
    data: str,
    test: float,
    by_time: str | None,
    by_group: str | None,
    seed: int | None,
    into: tuple[str, str] | None,
    x: str,
    y: str,
    as_json: bool,
) -> None:
    """Divide a data set into one to train on and one to test on: two new Zarr groups.

    Rows are drawn at random, as many of each class as the share says. Arrays beside X (targets, weights, ids)
    go along, and so do names, classes and the schema. Each part appears whole or not at all; the same command
    again writes what is not there yet.
    """
    with reporter().step("splitting", 1.0, "") as advance:
        result = split_data(
            data,
            test=test,
            by_time=by_time,
            by_group=by_group,
            seed=seed,
            into=into,
            x=x,
            y=y,
            progress=shares_of(advance),
        )
    emit(asdict(result), as_json, _written)


def _written(r: dict[str, Any]) -> str:
    n_rows = r["n_train"] + r["n_test"]
    pairs = [
        ("train", f"{r['train']}  ({r['n_train']:,} rows)"),
        ("test", f"{r['test']}  ({r['n_test']:,} rows, {100 * r['n_test'] / n_rows:.1f} %)"),
        ("by", _how(r)),
    ]
    if r["left_out"]:
        pairs.append(("left out", f"{', '.join(r['left_out'])}: of another number of rows than X"))
    if r["shared_rows"] >= SHARED * r["n_test"]:
        rows_are = counted(r["shared_rows"], "test row is", "test rows are")
        pairs.append(("duplicate rows", f"{rows_are} equal to train rows; remove them, or split --by-group"))
    if r["already_split"]:
        pairs.append(("", "both were there; nothing was written"))
    return rows(pairs)


def _how(r: dict[str, Any]) -> str:
    if r["by"] == "classes":
        classes = counted(r["n_classes"], "class", "classes")
        return f"chance, each of {classes} with its share; seed {r['seed']}"
    if r["by"] == "rows":
        return f"chance; seed {r['seed']}"
    if r["by"] == "time":
        return f"time: the last rows {'as they are' if r['name'] is None else 'by ' + r['name']}"
    return f"groups of {r['name']}, each on one side; seed {r['seed']}"
