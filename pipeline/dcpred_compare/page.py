"""The page and the tables of a comparison."""

import csv
import io
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from dcpred.execution.progress import counted
from dcpred.pages import charts
from dcpred.pages.charts import FIRST, INK, MUTED, PALE, Line, Paint, drawing, png_of
from dcpred.pages.page import Page, Picture, Section, Table, number, percent
from dcpred.public.results import plain
from dcpred_compare.baselines.leaf_model_type import leaf_model_types
from dcpred_compare.result import CompareReport, CompareResult
from dcpred_compare.systems import OURS, PACKAGED
from dcpred_tasks.storage.atomic_files import replace_bytes


def write_tables(report: CompareReport, folder: Path) -> None:
    """Write table.csv and table.md."""
    text = io.StringIO()
    names = [f.name for f in fields(report.results[0])]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(point) for point in report.results)
    replace_bytes(folder / "table.csv", text.getvalue().encode())
    replace_bytes(folder / "table.md", markdown(report).encode())


def heads(report: CompareReport) -> list[str]:
    quality = report.quality_name + (", %" if report.percents else "")
    names = "cost", "µs a row", "fit, s", "KiB", "agrees with exact", "multiplications"
    return ["system", "with", quality, *names]


def cells(report: CompareReport, point: CompareResult) -> list[str]:
    """A line of the table as text."""
    if point.status != "done":
        why = f"{point.status}: {point.why}" if point.why else point.status
        return [point.system, point.what, why, *[""] * 6]
    what = f"{point.what} ({point.why})".strip() if point.why else point.what
    costs = [_number(value, 1.0, 3) for value in (point.cost_ratio, point.us_per_row, point.seconds)]
    quality, kibibytes = _number(point.quality, report.factor, 4), _number(point.bytes, 1 / 1024, 3)
    agreement, multiplications = _number(point.agreement, 1.0, 4), _number(point.multiplications, 1.0, 3)
    return [point.system, what, quality, *costs, kibibytes, agreement, multiplications]


def markdown(report: CompareReport) -> str:
    """The table with its head."""
    lines = [" | ".join(["", *heads(report), ""]).strip(), "|" + "---|" * len(heads(report))]
    lines += [" | ".join(["", *cells(report, point), ""]).strip() for point in report.results]
    return f"{description(report)}\n\n" + "\n".join(lines) + "\n"


def frontier(report: CompareReport) -> list[CompareResult]:
    """Points that no cheaper one beats, by cost: the Pareto front."""
    return unbeaten(report.done, report.more_is_better)


def unbeaten(points: list[CompareResult], more_is_better: bool) -> list[CompareResult]:
    """Points that no cheaper one of them beats, by cost."""
    sign = 1.0 if more_is_better else -1.0
    best: list[CompareResult] = []
    for p in sorted(points, key=lambda p: (p.cost_ratio or 0.0, -sign * (p.quality or 0.0))):
        if not best or sign * (p.quality or 0.0) > sign * (best[-1].quality or 0.0):
            best.append(p)
    return best


def description(report: CompareReport) -> str:
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


def _second_hand(report: CompareReport) -> list[str]:
    """A sentence on systems that were not written from their papers."""
    known = {name for name, t in leaf_model_types().items() if t.second_hand}
    names = sorted(known.intersection(p.system for p in report.results))
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


SCORE_PLOT, ERROR_PLOT = "score_against_cost.png", "kernel_error.png"
PLOT = (720, 450)  # CSS pixels of a plot in a separate file


def comparison_page(report: CompareReport) -> Page:
    """One page that needs no other file."""
    front = frontier(report)
    facts = [
        ("systems", f"{len({p.system for p in report.results}):,}"),
        ("points", f"{len(report.results):,}"),
        ("training rows", f"{report.n_rows:,}"),
        ("test rows", f"{report.n_test_rows:,}"),
    ]
    if front:
        facts.append(("best", f"{front[-1].system}: {_quality(front[-1], report.percents)}"))
    lines = [["★ " * (p in front) + plain(p.system), *map(plain, cells(report, p)[1:])] for p in report.done]
    text = "★ marks systems that no cheaper one beats."
    table = Table(heads(report), lines, "Points", text, texts=2, wide=True)
    others = [[*map(plain, cells(report, p)[:3])] for p in report.results if p.status != "done"]
    left = Table(["system", "with", "why"], others, texts=3, wraps=True)
    without = f"{counted(len(others), 'point', 'points')} without a result"
    parts: list[Picture | Table] = [_score(report, front)] if front else []
    if report.kernel_errors:
        parts.append(_errors(report))
    return Page(
        title="Comparison of systems",
        lead=description(report),
        facts=facts,
        sections=[
            Section("Pictures", parts=parts),
            Section("Numbers", parts=[table] if lines else [], folded=[(without, left)] if others else []),
        ],
    )


def write_plots(report: CompareReport, folder: Path) -> None:
    """Write the plots as separate files."""
    plots = [(SCORE_PLOT, score_paint, report.done), (ERROR_PLOT, _error_paint, report.kernel_errors)]
    for name, paint, numbers in plots:
        if numbers:
            with drawing(*PLOT) as figure:
                paint(report)(figure.add_subplot())
                replace_bytes(folder / name, png_of(figure))


def _quality(point: CompareResult, percents: bool) -> str:
    return percent(point.quality, 2) if percents else number(point.quality)


def _score(report: CompareReport, front: list[CompareResult]) -> Picture:
    percents = report.percents
    names = list(dict.fromkeys(p.system for p in front))
    name, better = report.quality_name, "upwards" if report.more_is_better else "downwards"
    best = front[-1]
    text = (
        f"{name[0].upper() + name[1:]} against the cost of a row; {better} is better, to the left is cheaper."
        " A line joins the points of a system that are on its Pareto front; it is dashed for baselines. The"
        f" Pareto front of all systems holds {', '.join(names)}; the best is {best.system} with"
        f" {_quality(best, percents)} at a cost of {number(best.cost_ratio, 3)}."
    )
    lines = [[p.system, p.what, _quality(p, percents), number(p.cost_ratio, 3)] for p in front]
    table = Table(["system", "with", name, "cost"], lines, texts=2)
    return charts.picture("Score against cost", text, score_paint(report), table=table, wide=True)


def score_paint(report: CompareReport) -> Paint:
    front = {p.system for p in frontier(report)}
    systems = list(dict.fromkeys(p.system for p in report.done))
    systems.sort(key=lambda name: (name != OURS, name not in front))

    def quality(results: list[CompareResult]) -> list[float]:
        return [report.factor * (p.quality or 0.0) for p in results]

    def paint(axes: Any) -> None:
        labels = []
        for system in systems:
            its = [p for p in report.done if p.system == system]
            best = unbeaten(its, report.more_is_better)
            ours = system == OURS
            colour = FIRST if ours else INK if system in front else MUTED
            kind = "s" if system in PACKAGED else "o"
            costs = [p.cost_ratio for p in its]
            axes.plot(costs, quality(its), kind, color=PALE, markersize=3, zorder=1)
            axes.plot(
                [p.cost_ratio for p in best],
                quality(best),
                marker=kind,
                markersize=7 if ours else 4,
                linewidth=3.0 if ours else 1.2,
                linestyle="--" if system in PACKAGED else "-",
                color=colour,
                zorder=3 if ours else 2,
            )
            labels.append((best[-1].cost_ratio or 0.0, quality(best)[-1], system, colour))
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(charts.in_thousands)
        axes.set_xlabel("cost of a row, in linear predictions")
        axes.set_ylabel(f"{report.quality_name} on test rows{', %' if report.percents else ''}")
        ours_alone = [p for p in report.done if p.system == OURS]
        axes.set_ylim(*_limits(quality(report.done), quality(ours_alone), report.more_is_better))
        axes.set_xlim(axes.get_xlim())
        charts.place_labels(axes, labels)

    return paint


def _limits(values: list[float], ours: list[float], more_is_better: bool) -> tuple[float, float]:
    """From twice the distance of the median from the best: the worst points do not compress the others."""
    sign = 1.0 if more_is_better else -1.0
    values = sorted((sign * value for value in values), reverse=True)
    best, middle = values[0], values[len(values) // 2]
    span = max(best - middle, 1e-9)
    worst = min([middle - 2 * span, *([max(sign * value for value in ours) - 0.2 * span] if ours else [])])
    low, high = sorted((sign * worst, sign * (best + 0.2 * span)))
    return low, high


def _errors(report: CompareReport) -> Picture:
    text = (
        "Distance of a basis' products from kernel values, ‖Z Zᵀ − K‖ / ‖K‖, by the number of its"
        " functions; lower is better. Each line has the name of its basis."
    )
    lines = [
        [plain(e["basis"]), plain(e["kernel"]), f"{e['functions']:,}", number(e["error"], 3)]
        for e in report.kernel_errors
    ]
    table = Table(["basis", "kernel", "functions", "error"], lines, texts=2)
    return charts.picture("Error of kernel functions", text, _error_paint(report), table=table, wide=True)


def _error_paint(report: CompareReport) -> Paint:
    def paint(axes: Any) -> None:
        drawn = []
        for name in dict.fromkeys(e["basis"] for e in report.kernel_errors):
            its = [e for e in report.kernel_errors if e["basis"] == name]
            x, y = [float(e["functions"]) for e in its], [float(e["error"]) for e in its]
            drawn.append(Line(f"{name} ({its[0]['kernel']})", x, y))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(charts.in_thousands)
        charts.plain_logs(axes.yaxis)
        charts.lines(axes, drawn, letters=28)
        axes.set_xlabel("functions of the basis")
        axes.set_ylabel("error")

    return paint
