"""dcpred explain"""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from dcpred.cli.explain_rendering import explained
from dcpred.cli.options import ADDRESS, emit, json_option, reports_errors, storage_option
from dcpred.explanation import MOST_ROWS, explain_stored
from dcpred_tasks.artifacts.data_schema import find_rows

SPAN = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


class RowsType(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """Row numbers and ranges: 5,17,100-110."""

    name = "rows"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found: list[int] = []
        for part in str(value).split(","):
            match = SPAN.fullmatch(part.strip())
            if match is None:
                self.fail(f"{part.strip()!r} is not a row or range; write 5,17,100-110", param, ctx)
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                self.fail(f"{part.strip()} ends before it begins; write the smaller number first", param, ctx)
            if len(found) + last - first + 1 > MOST_ROWS:
                self.fail(f"more than {MOST_ROWS:,} rows are named; name fewer", param, ctx)
            found += range(first, last + 1)
        return tuple(found)


@click.command("explain")
@click.argument("model", type=ADDRESS)
@click.argument("data")
@click.option("--rows", type=RowsType(), required=True, metavar="ROWS", help="Rows to explain: 5,17,100-110.")
@click.option("--x", "x", metavar="NAME", default="X", show_default=True, help="Array of features in DATA.")
@click.option("--landmarks", is_flag=True, help="Also print landmarks, and the distance to the nearest one.")
@json_option
@reports_errors
@storage_option
def explain_command(
    model: str | Path, data: str, rows: tuple[int, ...], x: str, landmarks: bool, as_json: bool
) -> None:
    """Explain predictions: how much each column of the table and the leaf add to the decision value, and how
    unusual the row is.

    With several classes, explains the decision value of the predicted class; in Python
    contributions(…, label=) explains another class.
    """
    found = explain_stored(model, find_rows(data, x, model), rows, landmarks=landmarks)
    emit({"rows": [asdict(one) for one in found]}, as_json, lambda _: explained(found))
