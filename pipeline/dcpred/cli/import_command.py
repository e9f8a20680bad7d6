"""dcpred import"""

import csv
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from dcpred.cli import rendering
from dcpred.cli.options import emit, files, json_option, reports_errors, storage_option
from dcpred.execution.progress import reporter

GIB = 2**30


class NamesType(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """Names between commas; one that holds a comma stands in double quotes."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        if isinstance(value, list):
            return value
        rows = list(csv.reader([str(value)], skipinitialspace=True))
        return [name.strip() for row in rows for name in row if name.strip()]


NAMES = NamesType()


@click.command("import")
@click.argument("source", shell_complete=files)
@click.argument("dest", required=False, shell_complete=files)
@click.option("--target", metavar="COLUMN", help="Column of targets, which becomes y [default: no target].")
@click.option(
    "--categorical", type=NAMES, metavar="A,B", help="Columns whose values are names: each gets a code."
)
@click.option("--drop", type=NAMES, metavar="A,B", help="Columns to leave out.")
@click.option("--id", type=NAMES, metavar="A,B", help="Columns to keep beside X, as arrays of their names.")
@click.option(
    "--gap", multiple=True, metavar="TEXT", help="Text that stands for a missing value, too; repeatable."
)
@click.option(
    "--not-missing",
    multiple=True,
    metavar="TEXT",
    help="Text of a CSV that is a value, such as NA; repeatable.",
)
@click.option(
    "--absent", type=NAMES, metavar="A,B", help="Columns of --like or --schema that are missing in every row."
)
@click.option("--drop-unlabelled", is_flag=True, help="Leave out rows without a target.")
@click.option(
    "--like",
    metavar="MODEL|DATA",
    help="Encode columns as those of a model or data set were: no new category, no new mean.",
)
@click.option(
    "--schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What columns are, in JSON as --show-schema prints it; columns it does not name are found.",
)
@click.option("--show-schema", is_flag=True, help="Print the schema as JSON, and write nothing.")
@click.option(
    "--separator", metavar="CHAR", help="What separates fields of a CSV [default: found in the first line]."
)
@click.option(
    "--quotes/--no-quotes",
    default=None,
    help="Whether quotation marks enclose fields of a CSV [default: yes, unless that joins rows].",
)
@click.option(
    "--decimal", metavar="CHAR", help="Decimal mark of a CSV, a point or a comma [default: a point]."
)
@click.option("--thousands", metavar="CHAR", help="Mark between groups of three digits [default: none].")
@click.option("--x", "x", metavar="NAME", help="Array of features in .npz, .zarr, .h5, .nc [default: X].")
@click.option("--y", "y", metavar="NAME", help="Array of targets there [default: y, if there is one].")
@click.option(
    "--chunk-rows", type=click.IntRange(1), metavar="N", help="Rows of a chunk [default: about 8 MiB]."
)
@click.option(
    "--features",
    type=click.IntRange(1),
    metavar="N",
    help="Features of an .svm file that does not use the last ones.",
)
@click.option(
    "--zero-based/--one-based",
    "zero_based",
    default=None,
    help="Whether an .svm file counts features from 0 or 1 [default: from 0 where the index 0 occurs].",
)
@click.option(
    "--dense-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="GIB",
    help="GiB that a sparse source (.svm, .npz of SciPy) may take when it is written dense [default: 1].",
)
@json_option
@reports_errors
@storage_option
def import_command(
    source: str,
    dest: str | None,
    categorical: list[str] | None,
    drop: list[str] | None,
    id: list[str] | None,
    absent: list[str] | None,
    zero_based: bool | None,
    show_schema: bool,
    dense_limit: float | None,
    chunk_rows: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Bring a table or a matrix into a Zarr group with arrays X and y.

    SOURCE is .csv or .tsv(.gz, .bz2), .parquet or a directory of such files (also below folders
    COLUMN=VALUE), .feather, .arrow, .npy, .npz, .svm or .libsvm(.gz, .bz2), .zarr, .h5 or .nc. It is
    streamed, and may be larger than memory. Numbers stay what they are, and the smallest dtype that holds
    every value exactly is kept. Categories, dates and booleans become numbers as the schema says, which is
    found, shown, and kept with the data set and in models that are trained on it.
    """
    from dcpred.datasets.importing import find_schema, import_data  # noqa: PLC0415 - slow to import, and not needed for help

    options: dict[str, Any] = given | {
        "categorical": categorical or (),
        "drop": drop or (),
        "id": id or (),
        "absent": absent or (),
        "index_base": None if zero_based is None else int(not zero_based),
        "dense_limit": None if dense_limit is None else int(dense_limit * GIB),
    }
    if show_schema:
        click.echo(json.dumps(find_schema(source, **options).document(), indent=1, ensure_ascii=False))
        return
    if dest is None:
        raise click.UsageError(
            "a source was given without a place to write to; name one, as DEST.zarr, or give --show-schema"
        )
    with reporter().step("importing", None, "rows") as advance:
        before = 0

        def note(done: int, _total: int | None) -> None:
            nonlocal before
            advance(done - before)
            before = done

        result = import_data(source, dest, chunk_rows=chunk_rows, progress=note, **options)
    emit(asdict(result), as_json, rendering.imported)
