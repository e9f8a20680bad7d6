"""dcpred example"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from dcpred.cli.options import PATH, emit, json_option, reports_errors
from dcpred.cli.rendering import rows


@click.command("example")
@click.argument("folder", type=PATH, default=Path())
@json_option
@reports_errors
def example_command(folder: Path, as_json: bool) -> None:
    """Write two small tables to try the commands on into FOLDER [default: here]: known.csv is labelled,
    new.csv is not.

    Rows are 569 tumours, benign or malignant, with 30 measurements each. scikit-learn ships them.
    """
    from dcpred.datasets.example import write_example  # noqa: PLC0415 - slow to import, and not needed for help

    emit(asdict(write_example(folder)), as_json, _written)


def _written(r: dict[str, Any]) -> str:
    from dcpred.datasets.example import ID, TARGET  # noqa: PLC0415

    return rows(
        [
            (
                "known",
                f"{r['known']}  ({r['n_known']:,} rows: {ID}, {r['n_features']} measurements, {TARGET})",
            ),
            ("new", f"{r['new']}  ({r['n_new']:,} rows without {TARGET})"),
            ("next", f"dcpred import {r['known']} known.zarr --target {TARGET} --id {ID}"),
        ]
    )
