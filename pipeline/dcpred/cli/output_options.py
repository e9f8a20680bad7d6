"""Options of commands that write an output: its columns, and the limit of rows without a score."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from dcpred.cli.options import F
from dcpred.runs.bad_rows import BadRowLimit
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.label_rule import given_costs
from dcpred_tasks.model.sureness import DEFAULT_ALPHA
from dcpred_tasks.scoring.outputs import OUTPUT_COLUMNS, OUTPUTS, QUANTILES


def outputs_options(command: F) -> F:
    """What to write for each row. `outputs` reaches the command as a tuple of names, or None."""
    asked = (column.name for column in OUTPUT_COLUMNS if not column.standard)

    @click.option(
        "--outputs",
        metavar="NAMES",
        help=f"Columns: {', '.join(OUTPUTS)} [default: all but {', '.join(asked)}]; regression also has"
        f" quantiles, {QUANTILES[0]} to {QUANTILES[-1]}.",
    )
    @click.option(
        "--alpha",
        metavar="SHARE",
        type=float,
        help=f"Fraction of rows outside of intervals [default: {DEFAULT_ALPHA}].",
    )
    @wraps(command)
    def run(*args: Any, outputs: str | None, **kwargs: Any) -> None:
        names = (
            None if outputs is None else tuple(name.strip() for name in outputs.split(",") if name.strip())
        )
        command(*args, outputs=names, **kwargs)

    return run  # type: ignore[return-value]


def costs_options(command: F) -> F:
    """How to label rows. `costs` reaches the command in the form of dcpred_tasks.model.label_rule."""

    @click.option(
        "--threshold",
        metavar="P",
        help="Minimum probability for the label of the second of two classes; or cost=50: a"
        " missed row costs 50 times a false alarm [default: that of the model].",
    )
    @click.option(
        "--costs",
        "file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="CSV of the cost of each mistake, a line for each class and a column for each label, in the"
        " order of the model's classes: rows get the label with the least expected cost.",
    )
    @wraps(command)
    def run(*args: Any, threshold: str | None, file: Path | None, **kwargs: Any) -> None:
        try:
            costs = given_costs(threshold, None if file is None else _lines(file), str(file))
        except SettingsError as error:
            raise click.UsageError(str(error)) from None
        command(*args, costs=costs, **kwargs)

    return run  # type: ignore[return-value]


def _lines(file: Path) -> list[list[Any]]:
    """The numbers of each line; other cells stay text."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return [[_number(cell) for cell in line.split(",")] for line in lines if line.strip()]


def _number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell.strip()


class RowCount(click.IntRange):
    """A number of rows. Another option takes a fraction."""

    name = "rows"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(
                f"{value} is not a number of rows; use an integer of 0 or more, or --max-bad-fraction for a"
                " fraction of all rows",
                param,
                ctx,
            )


def bad_row_options(effect: str) -> Callable[[F], F]:
    """Limits of rows without a score, which reach the command as `bad_rows`.

    effect  what the command does when a limit is exceeded
    """

    def options(command: F) -> F:
        @click.option(
            "--max-bad-rows",
            metavar="N",
            type=RowCount(0),
            help=f"Maximum number of rows without a score; {effect} [default: no limit].",
        )
        @click.option(
            "--max-bad-fraction",
            metavar="F",
            type=click.FloatRange(0, 1),
            help="Maximum fraction of rows without a score, from 0 to 1 [default: no limit].",
        )
        @wraps(command)
        def run(*args: Any, max_bad_rows: int | None, max_bad_fraction: float | None, **kwargs: Any) -> None:
            try:
                limit = BadRowLimit(max_bad_rows, max_bad_fraction)
            except SettingsError as error:  # NaN is in every range of click
                raise click.UsageError(str(error)) from None
            command(*args, bad_rows=limit, **kwargs)

        return run  # type: ignore[return-value]

    return options
