"""Tables of a comparison in CSV and Markdown, and its Pareto front."""

import csv
import io
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dcpred_tasks.model.leaf_model import leaf_model_types
from dcpred_tasks.storage.atomic_files import replace_bytes

if TYPE_CHECKING:
    from dcpred.comparison.compare import CompareReport, Result


def write_tables(report: "CompareReport", folder: Path) -> None:
    """Write table.csv and table.md."""
    text = io.StringIO()
    names = [f.name for f in fields(report.results[0])]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(one) for one in report.results)
    replace_bytes(folder / "table.csv", text.getvalue().encode())
    replace_bytes(folder / "table.md", markdown(report).encode())


def heads(report: "CompareReport") -> list[str]:
    quality = report.quality_name + (", %" if report.percents else "")
    return [
        "system",
        "with",
        quality,
        "cost",
        "µs a row",
        "fit, s",
        "KiB",
        "agrees with exact",
        "multiplications",
    ]


def cells(report: "CompareReport", one: "Result") -> list[str]:
    """A line of the table as text."""
    if one.status != "done":
        why = f"{one.status}: {one.why}" if one.why else one.status
        return [one.system, one.what, why, *[""] * 6]
    percent = report.percents
    return [
        one.system,
        f"{one.what} ({one.why})".strip() if one.why else one.what,
        _number(one.quality, 100.0 if percent else 1.0, 4),
        _number(one.cost_ratio, 1.0, 3),
        _number(one.us_per_row, 1.0, 3),
        _number(one.seconds, 1.0, 3),
        _number(one.bytes, 1 / 1024, 3),
        _number(one.agreement, 1.0, 4),
        _number(one.multiplications, 1.0, 3),
    ]


def markdown(report: "CompareReport") -> str:
    """The table with its head."""
    lines = [" | ".join(["", *heads(report), ""]).strip(), "|" + "---|" * len(heads(report))]
    lines += [" | ".join(["", *cells(report, one), ""]).strip() for one in report.results]
    return f"{description(report)}\n\n" + "\n".join(lines) + "\n"


def frontier(report: "CompareReport") -> list["Result"]:
    """Points that no cheaper one beats, by cost: the Pareto front."""
    done = [one for one in report.results if one.status == "done"]
    return unbeaten(done, report.more_is_better)


def unbeaten(points: list["Result"], more_is_better: bool) -> list["Result"]:
    """Points that no cheaper one of them beats, by cost."""
    sign = 1.0 if more_is_better else -1.0
    best: list[Result] = []
    for one in sorted(points, key=lambda one: (one.cost_ratio or 0.0, -sign * (one.quality or 0.0))):
        if not best or sign * (one.quality or 0.0) > sign * (best[-1].quality or 0.0):
            best.append(one)
    return best


def description(report: "CompareReport") -> str:
    """What was compared, in a few sentences."""
    shared = ", ".join(f"{name} {_short(value)}" for name, value in report.shared.items())
    sentences = [
        f"{report.n_rows:,} training rows and {report.n_test_rows:,} test rows of {report.n_features:,}"
        " features.",
        f"Kernel machines share {shared}, which suit the exact SVM on held-out training rows: that took"
        f" {_short(report.shared_seconds)} s of a processor once, in addition to the fits.",
        "A fit is the processor time of a point's own training; cost is the time per row in linear"
        " predictions, one thread.",
        *report.notes,
        *_second_hand(report),
    ]
    return " ".join(sentences)


def _second_hand(report: "CompareReport") -> list[str]:
    """A sentence on systems that were not written from their papers."""
    known = {name for name, one in leaf_model_types().items() if one.second_hand}
    names = sorted(known.intersection(one.system for one in report.results))
    if not names:
        return []
    return [f"Written from descriptions by others, not from the papers: {', '.join(names)}."]


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _number(value: float | None, factor: float, digits: int) -> str:
    if value is None:
        return "–"
    scaled = value * factor
    return f"{scaled:,.0f}" if abs(scaled) >= 10 ** (digits - 1) else f"{scaled:.{digits}g}"
