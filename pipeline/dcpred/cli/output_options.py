"""Options of commands that write an output: what is written of each row."""

from functools import wraps
from typing import Any

import click

from dcpred.cli.options import F
from dcpred_tasks.model.sureness import DEFAULT_ALPHA
from dcpred_tasks.scoring.outputs import OUTPUT_COLUMNS, OUTPUTS


def outputs_options(command: F) -> F:
    """What is written of each row. `outputs` comes to the command as a tuple of names, or None."""
    asked = (column.name for column in OUTPUT_COLUMNS if not column.standard)

    @click.option(
        "--outputs",
        metavar="NAMES",
        help=f"Of {', '.join(OUTPUTS)} [default: all but {', '.join(asked)}].",
    )
    @click.option(
        "--alpha",
        metavar="SHARE",
        type=float,
        help=f"Share of rows outside of intervals [default: {DEFAULT_ALPHA}].",
    )
    @wraps(command)
    def run(*args: Any, outputs: str | None, **kwargs: Any) -> None:
        names = (
            None if outputs is None else tuple(name.strip() for name in outputs.split(",") if name.strip())
        )
        command(*args, outputs=names, **kwargs)

    return run  # type: ignore[return-value]
