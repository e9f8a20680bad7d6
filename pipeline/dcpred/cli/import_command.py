"""dcpred import"""

from dataclasses import asdict

import click

from dcpred.cli import rendering
from dcpred.cli.options import emit, files, json_option, reports_errors, storage_option
from dcpred.datasets.importing import import_data
from dcpred.execution.progress import reporter


@click.command("import")
@click.argument("source", shell_complete=files)
@click.argument("dest", shell_complete=files)
@click.option("--x", "x", metavar="NAME", help="Array of features in an .npz file [default: X].")
@click.option(
    "--y", "y", metavar="NAME", help="Array of targets in an .npz file [default: y, if there is one]."
)
@click.option(
    "--target", metavar="COLUMN", help="Column of targets in a .csv or .parquet file [default: no target]."
)
@click.option(
    "--chunk-rows", type=click.IntRange(1), metavar="N", help="Rows of a chunk [default: about 8 MiB]."
)
@click.option(
    "--features",
    type=click.IntRange(1),
    metavar="N",
    help="Features of an .svm file that does not use the last ones.",
)
@json_option
@reports_errors
@storage_option
def import_command(
    source: str,
    dest: str,
    x: str | None,
    y: str | None,
    target: str | None,
    chunk_rows: int | None,
    features: int | None,
    as_json: bool,
) -> None:
    """Bring a data file into a Zarr group with arrays X and y.

    SOURCE is .csv(.gz), .parquet, .npy, .npz, .svm or .libsvm(.gz, .bz2). It is streamed, and may be larger
    than memory. The smallest dtype that holds every value exactly is kept.
    """
    with reporter().step("importing", None, "rows") as advance:
        before = 0

        def note(done: int, _total: int | None) -> None:
            nonlocal before
            advance(done - before)
            before = done

        result = import_data(
            source, dest, x=x, y=y, target=target, chunk_rows=chunk_rows, features=features, progress=note
        )
    emit(asdict(result), as_json, rendering.imported)
