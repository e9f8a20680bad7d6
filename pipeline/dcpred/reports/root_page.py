"""The page of the runs of a refresh: a line for each, and all of the latest."""

from dataclasses import replace
from datetime import UTC, datetime

from dcpred.pages.page import Page, Section, Table
from dcpred.pages.text import counted, percent, plain
from dcpred.refresh.overview import RootStatus, RunLine
from dcpred.reports.names import last_name

RUNS_SHOWN = 50


def root_page(status: RootStatus, latest: Page | None) -> Page:
    """latest  the page of the latest run, if it has its own scores"""
    lines = [_line(run, run.run == status.latest) for run in status.runs]
    heads = ["run", "state", "ended (UTC)", "rows", "without a score", "blocks reused", "drift"]
    table = Table(heads, lines, "Runs, the newest first", texts=3, wide=True)
    lead = f"{counted(status.n_runs, 'run', 'runs')} over {last_name(status.data)}"
    lead += f"; the latest is {status.latest}." if status.latest else "; none is finished yet."
    warnings = [
        f"Run {run.run} is damaged: its manifest is modified."
        for run in status.runs
        if run.state == "damaged"
    ]
    if status.driver:
        warnings.append("A refresh is at work.")
    runs = Section("Runs", parts=[table])
    if latest is None:
        return Page(f"Refresh of {last_name(status.data)}", lead, sections=[runs], warnings=warnings)
    return replace(
        latest,
        title=f"Refresh of {last_name(status.data)}",
        lead=f"{lead} What follows is of that run.",
        sections=[runs, *latest.sections],
        warnings=[*warnings, *latest.warnings],
    )


def _line(run: RunLine, is_latest: bool) -> list[str]:
    ended = "–" if run.ended is None else datetime.fromtimestamp(run.ended, UTC).strftime("%Y-%m-%d %H:%M")
    known = run.state in ("latest", "finished")
    return [
        plain(run.run),
        "latest" if is_latest else run.state,
        ended,
        f"{run.n_rows:,}" if run.n_rows else "–",
        f"{run.n_bad:,} ({percent(run.n_bad / run.n_rows, 2)})" if known and run.n_rows else "–",
        f"{run.taken_blocks:,} of {run.n_blocks:,}" if run.n_blocks else "–",
        ("large" if run.drift_is_large else "not large") if known else "–",
    ]
