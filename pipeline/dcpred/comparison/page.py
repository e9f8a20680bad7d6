"""The page of a comparison, and its plots."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dcpred.comparison.systems import BASELINES, OURS
from dcpred.comparison.tables import cells, description, frontier, heads, unbeaten
from dcpred.pages import charts
from dcpred.pages.charts import Line, Paint
from dcpred.pages.page import Page, Picture, Section, Table
from dcpred.pages.svg import FIRST, INK, MUTED, PALE, drawing, png_of
from dcpred.pages.text import number, percent, plain
from dcpred_tasks.storage.atomic_files import replace_bytes

if TYPE_CHECKING:
    from dcpred.comparison.compare import CompareReport, Result

SCORE_PLOT, ERROR_PLOT = "score_against_cost.png", "kernel_error.png"
PLOT = (720, 450)  # CSS pixels of a plot in a separate file


def comparison_page(report: "CompareReport") -> Page:
    """One page that needs no other file."""
    percents = report.percents
    done = [one for one in report.results if one.status == "done"]
    front = frontier(report)
    best = front[-1] if front else None
    facts = [
        ("systems", f"{len({one.system for one in report.results}):,}"),
        ("points", f"{len(report.results):,}"),
        ("training rows", f"{report.n_rows:,}"),
        ("test rows", f"{report.n_test_rows:,}"),
    ]
    if best is not None:
        facts.append(("best", f"{best.system}: {_quality(best, percents)}"))
    starred = {(one.system, one.what) for one in front}
    lines = [
        [
            f"{'★ ' if (one.system, one.what) in starred else ''}{plain(one.system)}",
            *map(plain, cells(report, one)[1:]),
        ]
        for one in done
    ]
    text = "★ marks systems that no cheaper one beats."
    table = Table(heads(report), lines, "Points", text, texts=2, wide=True)
    others = [
        [plain(one.system), plain(one.what), plain(cells(report, one)[2])]
        for one in report.results
        if one.status != "done"
    ]
    left = Table(["system", "with", "why"], others, texts=3, wraps=True)
    parts: list[Picture | Table] = [_score(report, front)] if done else []
    if report.kernel_errors:
        parts.append(_errors(report))
    return Page(
        title="Comparison of systems",
        lead=description(report),
        facts=facts,
        sections=[
            Section("Pictures", parts=parts),
            Section(
                "Numbers",
                parts=[table] if lines else [],
                folded=[(f"{len(others):,} points without a result", left)] if others else [],
            ),
        ],
    )


def write_plots(report: "CompareReport", folder: Path) -> None:
    """Write the plots as separate files."""
    paints: dict[str, Paint | None] = {
        SCORE_PLOT: score_paint(report) if any(one.status == "done" for one in report.results) else None,
        ERROR_PLOT: _error_paint(report) if report.kernel_errors else None,
    }
    for name, paint in paints.items():
        if paint is not None:
            with drawing(*PLOT) as figure:
                paint(figure.add_subplot())
                replace_bytes(folder / name, png_of(figure))


def _quality(one: "Result", percents: bool) -> str:
    return percent(one.quality, 2) if percents else number(one.quality)


def _score(report: "CompareReport", front: list["Result"]) -> Picture:
    percents = report.percents
    names = list(dict.fromkeys(one.system for one in front))
    name, better = report.quality_name, "upwards" if report.more_is_better else "downwards"
    best = front[-1]
    text = (
        f"{name[0].upper() + name[1:]} against the cost of a row;"
        f" {better} is better, to the left is cheaper. A line joins the"
        " points of a system that are on its Pareto front; it is dashed for baselines."
        f" The Pareto front of all systems holds {', '.join(names)}; the best is {best.system} with"
        f" {_quality(best, percents)} at a cost of {number(best.cost_ratio, 3)}."
    )
    lines = [[one.system, one.what, _quality(one, percents), number(one.cost_ratio, 3)] for one in front]
    table = Table(["system", "with", name, "cost"], lines, texts=2)
    return charts.picture("Score against cost", text, score_paint(report), table=table, wide=True)


def score_paint(report: "CompareReport") -> Paint:
    percents = report.percents
    factor = 100.0 if percents else 1.0
    done = [one for one in report.results if one.status == "done"]
    front = {one.system for one in frontier(report)}
    systems = list(dict.fromkeys(one.system for one in done))
    systems.sort(key=lambda name: (name != OURS, name not in front))

    def paint(axes: Any) -> None:
        labels = []
        for system in systems:
            its = unbeaten([one for one in done if one.system == system], report.more_is_better)
            every = [one for one in done if one.system == system]
            mine = system == OURS
            colour = FIRST if mine else INK if system in front else MUTED
            kind = "s" if system in BASELINES else "o"
            axes.plot(
                [one.cost_ratio for one in every],
                [factor * (one.quality or 0.0) for one in every],
                kind,
                color=PALE,
                markersize=3,
                zorder=1,
            )
            axes.plot(
                [one.cost_ratio for one in its],
                [factor * (one.quality or 0.0) for one in its],
                marker=kind,
                markersize=7 if mine else 4,
                linewidth=3.0 if mine else 1.2,
                linestyle="--" if system in BASELINES else "-",
                color=colour,
                zorder=3 if mine else 2,
            )
            labels.append((its[-1].cost_ratio or 0.0, factor * (its[-1].quality or 0.0), system, colour))
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(charts.in_thousands)
        axes.set_xlabel("cost of a row, in linear predictions")
        axes.set_ylabel(f"{report.quality_name} on test rows{', %' if percents else ''}")
        ours = [factor * (one.quality or 0.0) for one in done if one.system == OURS]
        axes.set_ylim(*_limits([factor * (one.quality or 0.0) for one in done], ours, report.more_is_better))
        axes.set_xlim(axes.get_xlim())
        charts.place_labels(axes, labels)

    return paint


def _limits(values: list[float], ours: list[float], more_is_better: bool) -> tuple[float, float]:
    """The range starts at twice the distance of the median from the best: the worst points do not compress
    the others. It is wider if the best of ours lies outside.
    """
    sign = 1.0 if more_is_better else -1.0
    values = sorted((sign * value for value in values), reverse=True)
    best, middle = values[0], values[len(values) // 2]
    span = max(best - middle, 1e-9)
    worst = min([middle - 2 * span, *([max(sign * value for value in ours) - 0.2 * span] if ours else [])])
    low, high = sorted((sign * worst, sign * (best + 0.2 * span)))
    return low, high


def _errors(report: "CompareReport") -> Picture:
    text = (
        "Distance of a basis' products from kernel values, ‖Z Zᵀ − K‖ / ‖K‖, by the number of its"
        " functions; lower is better. Each line has the name of its basis."
    )
    lines = [
        [plain(one["basis"]), plain(one["kernel"]), f"{one['functions']:,}", number(one["error"], 3)]
        for one in report.kernel_errors
    ]
    table = Table(["basis", "kernel", "functions", "error"], lines, texts=2)
    return charts.picture("Error of kernel functions", text, _error_paint(report), table=table, wide=True)


def _error_paint(report: "CompareReport") -> Paint:
    found = report.kernel_errors

    def paint(axes: Any) -> None:
        drawn = []
        for name in dict.fromkeys(one["basis"] for one in found):
            its = [one for one in found if one["basis"] == name]
            x, y = [float(one["functions"]) for one in its], [float(one["error"]) for one in its]
            drawn.append(Line(f"{name} ({its[0]['kernel']})", x, y))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(charts.in_thousands)
        charts.plain_logs(axes.yaxis)
        charts.lines(axes, drawn, letters=28)
        axes.set_xlabel("functions of the basis")
        axes.set_ylabel("error")

    return paint
