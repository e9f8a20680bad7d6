"""The page of an evaluation, also as a part of that of a model or a run."""

from typing import Any

import numpy as np

from dcpred.evaluation.evaluate import evaluation_remarks
from dcpred.pages import charts
from dcpred.pages.page import Page, Picture, Section, Table
from dcpred.pages.svg import FIRST, INK
from dcpred.pages.text import counted, number, percent
from dcpred.reports.class_parts import class_sections
from dcpred.reports.names import last_name
from dcpred.reports.run_parts import compared
from dcpred_tasks.evaluation.measures import difference

LISTED_LEAVES = 10
LARGEST_DRAWN = 1e100
ENDS = ("0.05", "0.95")  # quantiles between which nine of ten rows lie


def evaluation_page(r: dict[str, Any]) -> Page:
    """The page of an output of `dcpred evaluate --json`."""
    model, data = last_name(r.get("model", "model")), last_name(r.get("data", "data"))
    return Page(
        title=f"{model} on {data}",
        lead=f"An evaluation on {counted(r['n_samples'], 'labelled row', 'labelled rows')}.",
        facts=evaluation_facts(r),
        sections=evaluation_sections(r),
        warnings=evaluation_warnings(r),
    )


def evaluation_warnings(r: dict[str, Any]) -> list[str]:
    remarks = evaluation_remarks({**r, "data": last_name(r.get("data", "data"))})
    found = [f"{remark[0].upper()}{remark[1:]}." for remark in remarks]
    if r["n_bad"]:
        found.append(f"{counted(r['n_bad'], 'row is', 'rows are')} not finite and skipped.")
    if r.get("n_unlabelled"):
        found.append(f"{counted(r['n_unlabelled'], 'row has', 'rows have')} no target and are skipped.")
    return found


def evaluation_facts(r: dict[str, Any]) -> list[tuple[str, str]]:
    """The most important figures first."""
    found = [("rows", f"{r['n_samples'] - r['n_bad']:,}")]
    if "accuracy" in r:
        found += [
            ("accuracy", percent(r["accuracy"], 2)),
            *(
                [("the most frequent class alone", percent(r["most_frequent_share"], 2))]
                if "most_frequent_share" in r
                else []
            ),
            ("balanced accuracy", percent(r["balanced_accuracy"], 2)),
        ]
        found += [
            (name, number(r[key], 4))
            for name, key in (
                ("AUC", "auc"),
                ("average precision", "average_precision"),
                ("log-loss", "log_loss"),
            )
            if r.get(key) is not None
        ]
        if r.get("calibration_error") is not None:
            found.append(("calibration error", percent(r["calibration_error"], 2)))
    else:
        found += [("RMSE", number(r["rmse"])), ("R²", number(r["r2"])), ("MAE", number(r["mae"]))]
        found += _intervals(r)
    found += _early(r)
    cost = r.get("predicted_cost_ratio") or r.get("cost_ratio")  # baselines have only a measured cost
    if cost is not None:
        found.append(("cost, linear predictions", number(cost, 3)))
    if r.get("us_per_row") is not None:
        found.append(("time of a row, measured", f"{number(r['us_per_row'], 3)} µs"))
    return found


def _intervals(r: dict[str, Any]) -> list[tuple[str, str]]:
    if r.get("interval_coverage") is None:
        return []
    name = f"inside {percent(1 - r['interval_alpha'], 0)} intervals"
    return [(name, percent(r["interval_coverage"])), ("mean width of these", number(r["interval_width"]))]


def _early(r: dict[str, Any]) -> list[tuple[str, str]]:
    """The quality of the local models, if requested."""
    if r.get("early_accuracy") is not None:
        return [("local models", percent(r["early_accuracy"], 2))]
    return [("RMSE of local models", number(r["early_rmse"]))] if r.get("early_rmse") is not None else []


def evaluation_sections(r: dict[str, Any]) -> list[Section]:
    found = class_sections(r) if "accuracy" in r else [_residuals(r), _quarters(r)]
    drift = r.get("drift") or {}
    if "scores" in drift:  # Earlier versions compared nothing.
        large = "far" if drift["large"] else "not far"
        text = f"How far the rows are from those of training: {large}, as a whole."
        found.append(Section("Drift", text, parts=compared(drift)))
    return [*found, _leaves(r)]


def _residuals(r: dict[str, Any]) -> Section:
    summary = r["residual_quantiles"]
    low, high = (summary[share] for share in ENDS)
    lines = [[percent(float(share), 0), number(value)] for share, value in summary.items()]
    table = Table(["fraction of rows", "have a residual up to"], lines)
    pictures = [_histogram(r, low, high, table)]
    if len(r["residuals_by_prediction"]) > 1:
        pictures.append(_by_prediction(r["residuals_by_prediction"]))
    text = (
        f"A residual is the target minus the prediction. Nine of ten lie between {number(low)} and"
        f" {number(high)}; the median is {number(summary['0.5'])}."
    )
    return Section("Residuals", text, parts=pictures)


def _quarters(r: dict[str, Any]) -> Section:
    """The coverage of intervals, by quarter of the prediction."""
    quarters = r.get("interval_quarters") or []
    if not quarters or r.get("interval_coverage") is None:
        return Section("Intervals")
    wanted = percent(1 - r["interval_alpha"], 0)
    inside = [one["coverage"] for one in quarters]
    text = (
        f"Intervals of {wanted} cover {percent(r['interval_coverage'])} of all rows, and between"
        f" {percent(min(inside))} and {percent(max(inside))} by quarter of the prediction."
    )
    lines = [
        [
            number(one["least_prediction"]),
            number(one["largest_prediction"]),
            f"{one['rows']:,}",
            percent(share),
        ]
        for one, share in zip(quarters, inside, strict=True)
    ]
    return Section("Intervals", text, parts=[Table(["prediction from", "to", "rows", "inside"], lines)])


def _unit(*values: Any) -> tuple[float, str]:
    """The divisor of numbers in a drawing, and its label: axes cannot be as long as the largest float64."""
    size = max(float(np.abs(part).max(initial=0.0)) for part in map(np.asarray, values))
    if size <= LARGEST_DRAWN:
        return 1.0, ""
    power = int(np.floor(np.log10(size)))
    return 10.0**power, f", in 1e{power}"


def _histogram(r: dict[str, Any], low: float, high: float, table: Table) -> Picture:
    bars = r["residual_histogram"]
    unit, words = _unit(bars["edges"])

    def paint(axes: Any) -> None:
        charts.histogram(axes, [edge / unit for edge in bars["edges"]], bars["rows"])
        axes.axvline(0.0, color=INK, linewidth=1.0, linestyle=charts.LOOKS[2][1])
        axes.set_xlabel(f"residual{words}")

    text = (
        "Rows by residual; the dotted line is a residual of 0. The bars at both ends hold the tails, a"
        f" hundredth of the rows. 5 % of rows are below {number(low)}, 5 % above {number(high)}."
    )
    return charts.picture("Residuals", text, paint, table=table)


def _by_prediction(ranges: list[dict[str, Any]]) -> Picture:
    x = [one["mean_prediction"] for one in ranges]
    low, middle, high = ([one["residuals"][share] for one in ranges] for share in ("0.05", "0.5", "0.95"))
    (across, x_words), (up, y_words) = _unit(x), _unit(low, high)

    def paint(axes: Any) -> None:
        charts.band(axes, np.array(x) / across, *(np.array(part) / up for part in (low, middle, high)))
        axes.axhline(0.0, color=INK, linewidth=1.0, linestyle=charts.LOOKS[2][1])
        axes.set_xlabel(f"prediction{x_words}")
        axes.set_ylabel(f"residual{y_words}")

    widths = difference(np.array(high), np.array(low))
    text = (
        "The median residual (dots) of rows by their prediction, and the band with nine of ten. It is"
        f" {number(float(widths.min()), 3)} wide at the narrowest and {number(float(widths.max()), 3)} at the"
        " widest."
    )
    table = Table(
        ["prediction", "rows", "5 %", "median", "95 %"],
        [
            [number(p), f"{one['rows']:,}", number(lo), number(m), number(hi)]
            for p, one, lo, m, hi in zip(x, ranges, low, middle, high, strict=True)
        ],
    )
    return charts.picture("Residuals by prediction", text, paint, table=table)


def _leaves(r: dict[str, Any]) -> Section:
    """The leaves with the largest errors, if the model has more than one leaf."""
    found = r.get("leaves")
    if not found or len(found["leaf"]) < 2:
        return Section("Leaves")
    rows, error = np.array(found["rows"], float), np.array(found["error"], float)
    trained = np.array(found["training_rows"], float)
    share = "accuracy" in r
    unit, words = (0.01, "") if share else _unit(error)
    shown = error / unit
    lost = error * rows if share else (error / max(error.max(), 1e-300)) ** 2 * rows
    worst = np.argsort(-lost, kind="stable")[:LISTED_LEAVES]
    worst = worst[lost[worst] > 0]

    def paint(axes: Any) -> None:
        size = np.clip(120 * rows / rows.max(), 4, 120)
        axes.scatter(trained, shown, s=size, color=FIRST, alpha=0.5, linewidths=0.8, edgecolors=FIRST)
        charts.log_x(axes)
        axes.set_xlabel("training rows of the leaf")
        axes.set_ylabel("wrong rows, %" if share else f"RMSE{words}")
        axes.set_ylim(0, 1.1 * max(shown.max(), 1e-9))  # The dot at the top is whole.

    total = lost.sum()
    most = f"{percent(float(lost[worst].sum() / total), 0)} of the error" if total else "no error"
    text = (
        f"Each dot is a leaf, the larger the more rows it got here. The {len(worst)} leaves that add most to"
        f" the error make {most}, with {percent(float(rows[worst].sum() / rows.sum()), 0)} of the rows."
    )
    table = Table(
        ["leaf", "rows", "training rows", "wrong" if share else "RMSE", "of all errors"],
        [
            [
                f"{found['leaf'][i]:,}",
                f"{int(rows[i]):,}",
                f"{int(trained[i]):,}",
                percent(float(error[i])) if share else number(float(error[i])),
                percent(float(lost[i] / total)) if total else "–",
            ]
            for i in worst
        ],
        "The leaves that add most to the error",
    )
    drawn = charts.picture("Errors of leaves", text, paint)
    return Section(
        "Errors by region",
        "A leaf is a region of the data with its own small model.",
        parts=[drawn, table] if len(worst) else [drawn],
    )
