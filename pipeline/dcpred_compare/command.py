"""dcpred compare"""

from functools import partial
from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli.commands import command
from dcpred.cli.options import PATH, emit
from dcpred_compare.page import cells, frontier, heads
from dcpred_compare.result import CompareReport
from dcpred_compare.systems import every_system


@command(
    "compare",
    "data",
    out={"type": PATH, "metavar": "DIR"},
    systems={"metavar": "NAMES", "note": f"Known are {', '.join(every_system())}."},
    budgets={"flags": ("--budget",), "type": click.STRING, "metavar": "COST", "note": "Repeatable."},
    test={"metavar": "DATA"},
    rows={"type": click.IntRange(50, 100_000), "metavar": None},
    test_rows={"type": click.IntRange(10), "metavar": None},
    time_limit={"metavar": "SECONDS"},
    seed={"metavar": None},
)
def compare_command(data: str, out: Path, as_json: bool, **options: Any) -> None:
    """Kernel machines share the scaling, γ and C that suit the exact SVM on held-out rows. Each system
    searches its own grid in a separate process. Writes table.csv, table.md, two plots and report.html.
    --by-time and --by-group apply to the test rows and to the rows that settings are chosen on.
    """
    report = dcpred.compare(data, out, **options, verbose=True)
    emit(report, as_json, draw=partial(_table, report))


compare_command.epilog = "Example: dcpred compare known.zarr --out side-by-side"


def _table(report: CompareReport, _: dict[str, Any]) -> str:
    """The lines as text; a star marks those that no cheaper line beats."""
    front = frontier(report)
    lines = [["", *heads(report)]]
    lines += [["*" if result in front else "", *cells(report, result)] for result in report.results]
    widths = [max(len(line[i]) for line in lines if i != 3 or line[4] or line is lines[0]) for i in range(10)]
    shown = [
        "  ".join(
            cell.ljust(w) if i < 3 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    shown = [line.rstrip() for line in shown]
    return "\n".join([*shown, "", f"* no cheaper system is better; plots in {report.folder}/report.html"])
