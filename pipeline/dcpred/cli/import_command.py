"""dcpred import and dcpred split; dcpred demo and dcpred example, the first steps."""

import json
from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli.commands import command
from dcpred.cli.options import PATH, emit, files, json_option, reports_errors
from dcpred.datasets.importing import find_schema
from dcpred.execution.progress import reporter, reporting
from dcpred.public.remarks import collecting

GIB = 2**30


def _repeatable(word: str) -> dict[str, Any]:
    """The shape of an option whose values may hold commas."""
    return {"type": click.STRING, "metavar": word, "note": "Repeatable."}


@command(
    "import",
    "source",
    "dest",
    of="import_data",
    omit=("progress", "ids", "gaps"),
    source={"type": click.STRING, "shell_complete": files},
    dest={"type": click.STRING, "shell_complete": files, "required": False},
    target={"type": click.STRING, "metavar": "COLUMN"},
    gap=_repeatable("TEXT"),
    not_missing=_repeatable("TEXT"),
    like={"type": click.STRING, "metavar": "MODEL|DATA"},
    schema={"type": PATH, "metavar": "FILE"},
    separator={"metavar": "CHAR"},
    decimal={"metavar": "CHAR"},
    thousands={"metavar": "CHAR"},
    chunk_rows={"type": click.IntRange(1)},
    features={"type": click.IntRange(1)},
    index_base={"flags": ("--zero-based/--one-based",), "type": click.BOOL, "metavar": None},
    dense_limit={"type": click.FloatRange(0, min_open=True), "metavar": "GIB"},
)
@click.option("--show-schema", is_flag=True, help="Print the schema as JSON, and write nothing.")
def import_command(
    source: str,
    dest: str | None,
    show_schema: bool,
    index_base: bool | None,
    dense_limit: float | None,
    chunk_rows: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """SOURCE is .csv or .tsv(.gz, .bz2), .parquet or a directory of these files (also below folders
    COLUMN=VALUE), .feather, .arrow, .npy, .npz, .svm or .libsvm(.gz, .bz2), .zarr, .h5 or .nc. Import streams
    it: it may be larger than memory. Numbers keep their values, in the smallest dtype that holds all of them
    exactly. The schema states how categories, dates and booleans become numbers. Import infers it, shows it,
    and stores it with the data set and with models trained on it.
    """
    options["index_base"] = None if index_base is None else int(not index_base)
    options["dense_limit"] = None if dense_limit is None else int(dense_limit * GIB)
    if show_schema:
        with collecting(options.pop("accept")):
            document = find_schema(source, **options).document()
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
        return
    if dest is None:
        raise click.UsageError(
            "Cannot import: no destination is given. Name one, for example DEST.zarr, or pass --show-schema."
        )
    emit(dcpred.import_data(source, dest, chunk_rows=chunk_rows, **options, verbose=True), as_json)


@command(
    "split",
    "data",
    test={"metavar": "SHARE"},
    into={"nargs": 2, "metavar": "TRAIN TEST", "shell_complete": files},
)
def split_command(data: str, as_json: bool, **options: Any) -> None:
    emit(dcpred.split(data, **options, verbose=True), as_json)


@click.command("demo")
@click.option(
    "--out", type=PATH, default=Path("dcpred-demo"), show_default=True, help="Folder of all results."
)
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Local processes [default: one per core]."
)
@json_option
@reports_errors
def demo_command(out: Path, workers: int | None, as_json: bool) -> None:
    """Run the whole job on real digits: Zarr, training, scoring, evaluation. Takes about half a minute."""
    from dcpred.cli.demo import run_demo

    with reporting(reporter()):
        result = run_demo(out, workers)
    emit(result, as_json)


@click.command("example")
@click.argument("folder", type=PATH, default=Path())
@json_option
@reports_errors
def example_command(folder: Path, as_json: bool) -> None:
    """Write two small tables to try the commands on into FOLDER [default: here]: known.csv is labelled,
    new.csv is not.

    Rows are 569 tumours, benign or malignant, with 30 measurements each. scikit-learn ships them.
    """
    from dcpred.cli.demo import write_example

    emit(write_example(folder), as_json)
