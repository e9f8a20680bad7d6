"""What a comparison found: a table as CSV and Markdown, plots, and one page that holds them all."""

import base64
import csv
import html
import io
from dataclasses import asdict, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dcpred.comparison.systems import OURS, RIVALS
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.storage.atomic_files import replace_bytes

if TYPE_CHECKING:
    from dcpred.comparison.compare import CompareReport, Result

SCORE_PLOT, ERROR_PLOT = "score_against_cost.png", "kernel_error.png"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; color: #222 }
table { border-collapse: collapse; font-size: 13px; width: 100% }
td, th { padding: 2px 8px; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, td:nth-child(2), th:first-child, th:nth-child(2) { text-align: left }
tr.front td { background: #eef6ee }
img { max-width: 100% }
"""


def check_plots() -> None:
    """Raise SettingsError where plots cannot be drawn. Before any work."""
    if find_spec("matplotlib") is None:
        raise SettingsError(
            "a comparison draws plots, but matplotlib is not installed; install it (pip install"
            ' "dcpred[compare]")'
        )


def write_report(report: "CompareReport", folder: Path) -> None:
    """Write table.csv, table.md, the plots and report.html."""
    text = io.StringIO()
    names = [f.name for f in fields(report.results[0])]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(one) for one in report.results)
    replace_bytes(folder / "table.csv", text.getvalue().encode())
    replace_bytes(folder / "table.md", markdown(report).encode())
    plots = {SCORE_PLOT: _score_plot(report), ERROR_PLOT: _error_plot(report)}
    for name, image in plots.items():
        if image:
            replace_bytes(folder / name, image)
    replace_bytes(folder / "report.html", _page(report, plots).encode())


def heads(report: "CompareReport") -> list[str]:
    quality = "accuracy, %" if report.task == "classification" else "RMSE"
    return [
        "system",
        "with",
        quality,
        "cost",
        "µs a row",
        "training, s",
        "KiB",
        "agrees with exact",
        "multiplications",
    ]


def cells(report: "CompareReport", one: "Result") -> list[str]:
    """A line of the table, in words."""
    if one.status != "done":
        why = f"{one.status}: {one.why}" if one.why else one.status
        return [one.system, one.what, why, *[""] * 6]
    percent = report.task == "classification"
    return [
        one.system,
        one.what,
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
    return f"{_said(report)}\n\n" + "\n".join(lines) + "\n"


def frontier(report: "CompareReport") -> list["Result"]:
    """Points that no cheaper one beats, by cost."""
    done = [one for one in report.results if one.status == "done"]
    return _unbeaten(done, report.task == "classification")


def _unbeaten(points: list["Result"], more_is_better: bool) -> list["Result"]:
    sign = 1.0 if more_is_better else -1.0
    best: list[Result] = []
    for one in sorted(points, key=lambda one: (one.cost_ratio or 0.0, -sign * (one.quality or 0.0))):
        if not best or sign * (one.quality or 0.0) > sign * (best[-1].quality or 0.0):
            best.append(one)
    return best


def _drawn(points: list["Result"], percent: bool) -> tuple[list[float], list[float]]:
    """Costs and scores of points."""
    factor = 100.0 if percent else 1.0
    return [one.cost_ratio or 0.0 for one in points], [factor * (one.quality or 0.0) for one in points]


def _said(report: "CompareReport") -> str:
    shared = ", ".join(f"{name} {_short(value)}" for name, value in report.shared.items())
    return (
        f"{report.n_rows:,} training rows and {report.n_test_rows:,} test rows of {report.n_features:,}"
        f" features. Kernel machines share {shared}, which suit the exact machine on held-out training rows."
        " Cost is the time of a row in linear predictions, one thread."
    )


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _number(value: float | None, factor: float, digits: int) -> str:
    if value is None:
        return "–"
    scaled = value * factor
    return f"{scaled:,.0f}" if abs(scaled) >= 10 ** (digits - 1) else f"{scaled:.{digits}g}"


def _score_plot(report: "CompareReport") -> bytes:
    """Score against cost: for each system a curve through what no cheaper point of it beats, and all points
    pale. Ours is drawn thick.
    """
    done = [one for one in report.results if one.status == "done"]
    if not done:
        return b""
    plt = _pyplot()
    percent = report.task == "classification"
    figure, axes = plt.subplots(figsize=(9.0, 5.6), layout="constrained")
    best = {one.system for one in frontier(report)}
    colours = plt.get_cmap("tab20")
    for number, system in enumerate(dict.fromkeys(one.system for one in done)):
        its = [one for one in done if one.system == system]
        colour = "black" if system == OURS else colours(number % 20)
        kind = "s" if system in RIVALS else "o"
        costs, values = _drawn(its, percent)
        axes.plot(costs, values, kind, markersize=4, color=colour, alpha=0.35)
        costs, values = _drawn(_unbeaten(its, percent), percent)
        axes.plot(
            costs,
            values,
            marker=kind,
            markersize=7 if system == OURS else 4,
            linewidth=3.0 if system == OURS else 1.2,
            linestyle="--" if system in RIVALS else "-",
            color=colour,
            alpha=1.0 if system in best or system == OURS else 0.7,
            label=system,
            zorder=3 if system == OURS else 2,
        )
    axes.set_xscale("log")
    axes.set_xlabel("cost of a row, in linear predictions (to the left is better)")
    axes.set_ylabel("accuracy on test rows, %" if percent else "RMSE on test rows (lower is better)")
    values = sorted(100 * (one.quality or 0.0) if percent else (one.quality or 0.0) for one in done)
    middle, best_value = values[len(values) // 2], values[-1] if percent else values[0]
    room = max(abs(best_value - middle), 1e-9)
    axes.set_ylim(
        *(
            (middle - 2 * room, best_value + 0.2 * room)
            if percent
            else (best_value - 0.2 * room, middle + 2 * room)
        )
    )
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    return _png(figure)


def _error_plot(report: "CompareReport") -> bytes:
    if not report.kernel_errors:
        return b""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(9.0, 4.6), layout="constrained")
    for name in dict.fromkeys(one["basis"] for one in report.kernel_errors):
        its = [one for one in report.kernel_errors if one["basis"] == name]
        dashed = its[0]["kernel"] != "rbf"
        axes.plot(
            [one["functions"] for one in its],
            [one["error"] for one in its],
            marker="o",
            markersize=4,
            linestyle="--" if dashed else "-",
            label=f"{name} ({its[0]['kernel']})",
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("functions of the basis")
    axes.set_ylabel("‖Z Zᵀ − K‖ / ‖K‖")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    return _png(figure)


def _pyplot() -> Any:
    import matplotlib as mpl  # noqa: PLC0415 - optional, and slow to import

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    return plt


def _png(figure: Any) -> bytes:
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=140)
    _pyplot().close(figure)
    return image.getvalue()


def _page(report: "CompareReport", plots: dict[str, bytes]) -> str:
    """One page that needs no other file."""
    front = {(one.system, one.what) for one in frontier(report)}
    body = []
    for one in report.results:
        kind = ' class="front"' if (one.system, one.what) in front else ""
        row = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells(report, one))
        body.append(f"<tr{kind}>{row}</tr>")
    images = [
        f'<h2>{title}</h2><img alt="{title}" src="data:image/png;base64,'
        f'{base64.b64encode(plots[name]).decode()}">'
        for name, title in ((SCORE_PLOT, "Score against cost"), (ERROR_PLOT, "Error of kernel functions"))
        if plots[name]
    ]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heads(report))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>dcpred compare</title>'
        f"<style>{STYLE}</style></head><body><h1>Systems side by side</h1><p>{html.escape(_said(report))}"
        " Points on a green ground are beaten by no cheaper one.</p>"
        f"{''.join(images)}<h2>All points</h2><table><thead><tr>{head}</tr></thead><tbody>"
        f"{''.join(body)}</tbody></table></body></html>\n"
    )
