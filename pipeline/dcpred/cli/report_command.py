"""dcpred report"""

from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli.options import ADDRESS, PATH, emit, json_option, reports_errors, storage_option
from dcpred.cli.rendering import rows
from dcpred.pages import check_free, size


@click.command("report")
@click.argument("path", type=ADDRESS)
@click.option(
    "--data",
    metavar="DATA",
    help="Labelled data set to evaluate a model on, or the scores of a run on its rows.",
)
@click.option("--x", "x", metavar="NAME", default="X", show_default=True, help="Array of features in DATA.")
@click.option("--y", "y", metavar="NAME", default="y", show_default=True, help="Array of targets in DATA.")
@click.option(
    "--out", type=PATH, default="report.html", show_default=True, metavar="FILE", help="File to write."
)
@json_option
@reports_errors
@storage_option
def report_command(path: str | Path, data: str | None, x: str, y: str, out: Path, as_json: bool) -> None:
    """Write one page of HTML, with plots, of what lies at PATH.

    PATH is a model, the output of `dcpred evaluate --json`, the result of a search (MODEL.tuned.json), the
    output of a run or the root of a refresh, or the folder of a comparison. The page needs no other file and
    no network. It replaces an earlier report at FILE.
    """
    check_free(out)
    made = dcpred.report(path, data=data, x=x, y=y, verbose=True)
    made.save(out)
    emit({"report": str(out), "title": made.title, "bytes": out.stat().st_size}, as_json, _written)


def _written(r: dict[str, Any]) -> str:
    return rows([("report", f"{r['report']}  ({size(r['bytes'])})"), ("title", r["title"])])
