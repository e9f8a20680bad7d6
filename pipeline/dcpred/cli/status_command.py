"""dcpred status, errors, verify and inspect: what an output, a data set or a model holds."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli import rendering
from dcpred.cli.commands import command
from dcpred.cli.options import ADDRESS, emit, result_options
from dcpred.cli.rendering import drift_words, rows, schema_lines
from dcpred.execution.progress import counted
from dcpred.refreshing.root import RootStatus
from dcpred.reports.inspection import inspect_path
from dcpred.runs.bad_rows import list_bad_rows
from dcpred.training.column_report import map_in_words
from dcpred_tasks.errors import IncompleteError


@command("status", "output")
def status_command(output: str | Path, as_json: bool) -> None:
    state = dcpred.status(output)
    show = rendering.root_runs if isinstance(state, RootStatus) else rendering.run_state
    emit(state.as_dict(), as_json, show)


@click.command("errors")
@click.argument("output", type=ADDRESS)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="Maximum number of rows to list.",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Also search the status array [default: only the first rows that each block records].",
)
@result_options
def errors_command(output: str | Path, limit: int, every: bool, as_json: bool) -> None:
    """List the rows of OUTPUT that have no score: block, row, status, and the first feature that is not
    finite.

    Works during scoring, and needs neither the model nor the data.
    """
    emit(asdict(list_bad_rows(output, limit, every)), as_json, rendering.bad_rows)


@command("verify", "output", rows={"type": click.IntRange(1)})
def verify_command(output: str | Path, as_json: bool, **options: Any) -> None:
    """Level sample needs model and input. Exit code 4: something is wrong, or blocks are left."""
    report = dcpred.verify(output, **options, verbose=True)
    emit(report.as_dict(), as_json, rendering.verified)
    if not report.ok:
        raise SystemExit(IncompleteError.exit_code)


NAMED = 10  # maximum number of features with missing values to name
UNLISTED = ("missing_chunks", "bytes_on_disk")  # None where a server does not list objects


def inspected(r: dict[str, Any]) -> str:
    pairs: list[tuple[str, str]] = []
    schema, mapped = r.get("schema"), r.get("feature_map")
    _flatten(
        "",
        {
            **{key: r[key] for key in r if key != "schema"},
            **_coded(r),
            **_target_encoded(r),
            **_gaps(r),
            **({"feature_map": map_in_words(mapped)} if mapped else {}),
            **_unpredicted(r),
        },
        pairs,
    )
    pairs += schema_lines(schema) if schema else []
    moved = drift_words(r["manifest"]) if r["kind"] == "scores" and r["manifest"] else None
    return rows([("drift", moved or None), *pairs])


def _coded(r: dict[str, Any]) -> dict[str, Any]:
    """Replace the categories of each one-hot encoded feature by their number."""
    if not r.get("coded_features"):
        return {}
    named = {
        _named(one): counted(len(one["codes"]), "category has a column", "categories have a column")
        for one in r["coded_features"]
    }
    return {"coded_features": named}


def _target_encoded(r: dict[str, Any]) -> dict[str, Any]:
    """Replace the categories of each target-encoded feature by their number."""
    if not r.get("target_encoded"):
        return {}
    report = {
        _named(one): f"target encoding of {counted(one['categories'], 'category', 'categories')}"
        + (f" for {one['means']} classes" if one["means"] > 1 else "")
        for one in r["target_encoded"]
    }
    return {"target_encoded": report}


def _gaps(r: dict[str, Any]) -> dict[str, Any]:
    """Keep the features with the most missing values, and what replaces theirs."""
    found = r.get("gaps")
    if not found:
        return {}
    most = sorted(found["features"], key=lambda one: -one["share"])[:NAMED]
    report = {
        _named(one): f"in {100 * one['share']:.3g} % of sampled rows, as {one['value']:.6g}"
        + (", with an indicator" if one["indicator"] else "")
        for one in most
    }
    more = len(found["features"]) - len(most)
    return {"gaps": report | ({"further features": more} if more else {}) or "known, and in no sampled row"}


def _named(one: dict[str, Any]) -> str:
    return str(one["feature"] if one["name"] is None else one["name"])


def _unpredicted(r: dict[str, Any]) -> dict[str, Any]:
    """Replace the cost of a leaf model that the engine does not score."""
    missing = r["kind"] == "model" and r["predicted_cost"] is None
    return {"predicted_cost": "measured by dcpred evaluate"} if missing else {}


def _flatten(prefix: str, value: Any, pairs: list[tuple[str, str]]) -> None:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            _flatten(f"{prefix}.{name}" if prefix else str(name), inner, pairs)
    else:
        text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        text = "not known" if value is None and prefix.endswith(UNLISTED) else text
        pairs.append((prefix, text if len(text) <= 200 else f"{text[:200]} …"))


@click.command("inspect")
@click.argument("path", type=ADDRESS)
@result_options
def inspect_command(path: str | Path, as_json: bool) -> None:
    """Show what a data set, a model or an output holds."""
    result = inspect_path(path)
    emit(result, as_json, inspected)
