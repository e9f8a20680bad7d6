"""dcpred evaluate and dcpred report."""

from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli.commands import command
from dcpred.cli.options import ADDRESS, PATH, emit
from dcpred.evaluation.figures import classes_of
from dcpred.pages.page import check_free
from dcpred_tasks.result_fields import Unit, result_class, result_field, size


@command("evaluate", "model", "data")
def evaluate_command(model: str | Path, data: str, as_json: bool, **options: Any) -> None:
    """With --json the output also holds what `dcpred report` draws: that command accepts it as a file."""
    evaluation = dcpred.evaluate(model, data, **options, verbose=True)
    emit(evaluation, as_json, owners=classes_of(evaluation))


@result_class
class WrittenReport:
    """The written page."""

    report: str = result_field(
        "Path of the page.", line="report", text=lambda r: f"{r['report']}  ({size(r['bytes'])})"
    )
    title: str = result_field("Title of the page.", unit=Unit.TEXT, line="title")
    bytes: int = result_field("Size of the page, in bytes.")


@command("report", "path", path={"type": ADDRESS}, data={"metavar": "DATA"})
@click.option(
    "--out", type=PATH, default="report.html", show_default=True, metavar="FILE", help="File to write."
)
def report_command(path: str | Path, out: Path, as_json: bool, **options: Any) -> None:
    """PATH is a model, the output of `dcpred evaluate --json`, the result of a search (MODEL.tuned.json), the
    output of a run or the root of a refresh, or the folder of a comparison. The page replaces an earlier
    report at FILE.
    """
    check_free(out)
    made = dcpred.report(path, **options, verbose=True)
    made.save(out)
    emit(WrittenReport(str(out), made.title, out.stat().st_size), as_json)
