"""The page of an evaluation."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dcpred.evaluation.evaluate import evaluation_remarks
from dcpred.evaluation.figures import (
    ClassCurves,
    ClassRow,
    IntervalQuarter,
    ReliabilityBin,
    ThresholdFigures,
    figures_of,
)
from dcpred.pages import charts
from dcpred.pages.charts import FIRST, INK, MUTED, SECOND
from dcpred.pages.page import (
    Cell,
    Page,
    Picture,
    Section,
    Table,
    attention,
    counted,
    headlines,
    number,
    percent,
    table_of,
)
from dcpred.public.results import plain
from dcpred_tasks.evaluation.measures import difference
from dcpred_tasks.remarks import remarks_of
from dcpred_tasks.scoring.drift import LARGE_PSI

OUTLINES = 6  # number of features whose drift is drawn

MATRIX_CLASSES = 12  # maximum number of classes whose matrix is a table; of more it is drawn
DRAWN_CLASSES = 24  # maximum number of classes in the plot of recalls: those with the least
LISTED_PAIRS = 10
CURVES = 3  # curves with a name; others of several classes stay pale
# If all curves have a larger area than the first, their corner is shown from the second on.
NEARLY_ALL, NEAR = 0.98, 0.8


def class_sections(r: dict[str, Any]) -> list[Section]:
    """Sections of an evaluation of classes."""
    matrix = r.get("confusion_matrix")
    names = [plain(line["class"]) for line in r["classes"]]
    parts: list[Picture | Table] = []
    if matrix is not None and len(names) <= MATRIX_CLASSES:
        parts.append(_matrix_table(names, matrix))
    elif matrix is not None:
        parts.append(_matrix_picture(names, np.array(matrix)))
    pairs = (r.get("confusions") or [])[:LISTED_PAIRS]
    if pairs and len(names) > 2:
        parts.append(_pairs_table(pairs, {line["class"]: line["rows"] for line in r["classes"]}))
    parts.append(_recall(r["classes"]))
    text = (
        "Recall is the fraction of a class's rows that are predicted as it; precision is the fraction of"
        " the rows predicted as a class that are of it."
    )
    return [Section("Classes", text, parts=parts), _ranking(r), _reliability(r)]


def _pairs_table(pairs: list[dict[str, Any]], of: dict[Any, int]) -> Table:
    lines = [
        [
            plain(pair["class"]),
            plain(pair["taken_for"]),
            f"{pair['rows']:,}",
            percent(pair["rows"] / of[pair["class"]], 2),
        ]
        for pair in pairs
    ]
    heads = ["class", "predicted as", "rows", "of its rows"]
    return Table(heads, lines, "Most frequent confusions", texts=2)


def _matrix_table(names: list[str], matrix: list[list[int]]) -> Table:
    """Lines are true classes, columns predicted ones; the shade of errors shows the fraction of the line."""
    lines: list[list[str | Cell]] = []
    for at, (name, row) in enumerate(zip(names, matrix, strict=True)):
        total = max(sum(row), 1)
        wrong = [0.0 if other == at else n / total for other, n in enumerate(row)]
        lines.append([name, *(Cell(f"{n:,}", w, pale=n == 0) for n, w in zip(row, wrong, strict=True))])
    text = (
        "A line for each true class, a column for each predicted one. Correct rows are on the diagonal; the"
        " darker another cell, the larger its fraction of the class."
    )
    return Table(["true class", *names], lines, "Confusion matrix", text, dense=True)


def _matrix_picture(names: list[str], matrix: Any) -> Picture:
    """Correct rows are omitted to make errors visible."""
    total = matrix.sum(axis=1)
    share = 100 * matrix / np.maximum(total, 1)[:, None]
    np.fill_diagonal(share, 0.0)
    n = len(names)
    right = float(np.trace(matrix) / max(matrix.sum(), 1))

    def paint(axes: Any) -> None:
        at, of = np.nonzero(share > 0)
        axes.scatter(of, at, s=np.clip(8 * share[at, of], 3, 120), color=SECOND, marker="s", linewidths=0)
        axes.plot([-0.5, n - 0.5], [-0.5, n - 0.5], color=MUTED, linewidth=0.8)
        axes.set_xlim(-0.5, n - 0.5)
        axes.set_ylim(n - 0.5, -0.5)
        step = -(-n // 30)
        ticks = range(0, n, step)
        letters = 3 if n > 15 else 6
        axes.set_xticks(ticks, [charts.short(names[i], letters) for i in ticks], fontsize=8)
        axes.set_yticks(ticks, [charts.short(names[i], 10) for i in ticks], fontsize=8)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")
        axes.set_aspect("equal")

    worst = np.unravel_index(share.argmax(), share.shape)
    text = (
        "Each square is a class (downwards) predicted as another (to the right); the larger, the greater the"
        f" fraction of the class. {percent(right)} of all rows are correct and lie on the line. The largest"
        f" is {names[worst[0]]} predicted as {names[worst[1]]}: {share.max():.1f} % of its rows."
    )
    table = Table(
        ["class", "rows", "correct", "most often predicted as", "rows"],
        [
            [
                names[i],
                f"{int(total[i]):,}",
                percent(float(matrix[i, i] / max(total[i], 1)), 2),
                names[int(share[i].argmax())] if share[i].any() else "–",
                f"{int(matrix[i, share[i].argmax()]):,}" if share[i].any() else "–",
            ]
            for i in range(n)
        ],
    )
    return charts.picture("Confusions", text, paint, size=(400, 380), table=table)


def _recall(classes: list[dict[str, Any]]) -> Picture:
    """Dots, because fractions near 1 differ too little as bars."""
    known = [line for line in classes if line["recall"] is not None]
    shown = known
    if len(known) > DRAWN_CLASSES:
        shown = sorted(known, key=lambda line: line["recall"])[:DRAWN_CLASSES]
    least = min(shown, key=lambda line: line["recall"])
    best = max(shown, key=lambda line: line["recall"])

    def paint(axes: Any) -> None:
        at = np.arange(len(shown))
        recall = [100 * line["recall"] for line in shown]
        precision = [np.nan if line["precision"] is None else 100 * line["precision"] for line in shown]
        axes.plot(precision, at, "o", fillstyle="none", color=SECOND, markersize=7, label="precision")
        axes.plot(recall, at, "o", color=FIRST, markersize=5, label="recall")
        axes.set_yticks(at, [charts.short(line["class"], 14) for line in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlabel("%")
        axes.figure.legend(
            loc="outside upper left", ncols=2, frameon=False, borderpad=0, handletextpad=0.2, labelcolor=INK
        )

    some = "" if shown is known else f" The {DRAWN_CLASSES} of {len(known):,} classes with the least recall."
    text = (
        "Recall (filled) and precision (open) of each class. The least recall is"
        f" {percent(least['recall'])}, of {plain(least['class'])}; the greatest {percent(best['recall'])},"
        f" of {plain(best['class'])}.{some}"
    )
    table = table_of(ClassRow, classes)
    size = (360, min(charts.bars_height(len(shown)), 560))
    return charts.picture("Recall and precision", text, paint, size=size, table=table)


def _ranking(r: dict[str, Any]) -> Section:
    """The curves: with two classes one, with several the worst classes by name."""
    curves = r.get("curves") or []
    if not curves:
        return Section("Ranking")
    which = f"Class {plain(curves[0]['class'])} against the other."
    if len(r["classes"]) > 2:
        more = f", {len(curves) - CURVES} more pale." if len(curves) > CURVES else "."
        which = f"Each class against all others; the worst by name{more}"
    table = table_of(ClassCurves, curves)
    mean = " on average" if len(r["classes"]) > 2 else ""
    parts = []
    for title, curve, corner, area, value in (
        ("ROC", "roc", "upper left", "AUC", r["auc"]),
        (
            "Precision against recall",
            "precision_recall",
            "upper right",
            "average precision",
            r["average_precision"],
        ),
    ):
        areas = (line["auc"] if curve == "roc" else line["average_precision"] for line in curves)
        near = min(areas) > NEARLY_ALL
        shown = f" Only that corner is shown, from {NEAR} on." if near else ""
        text = f"{which} The nearer to the {corner} corner, the better; {area} {number(value)}{mean}.{shown}"
        paint = partial(_paint_curves, curves, curve, near, len(r["classes"]) > 2)
        parts.append(charts.picture(title, text, paint, size=(360, 320), table=table))
    text = "How well decision values rank rows of a class before others, for every threshold."
    return Section("Ranking", text, parts=parts)


def _paint_curves(curves: list[dict[str, Any]], curve: str, near: bool, several: bool, axes: Any) -> None:
    """near  whether all is in the best corner, and only that is drawn"""
    is_roc = curve == "roc"
    for line in curves[CURVES:]:
        charts.context(axes, line[curve]["x"], line[curve]["y"])
    for line, (colour, dashes, _) in zip(curves[:CURVES], charts.LOOKS, strict=False):
        x, y = line[curve]["x"], line[curve]["y"]
        axes.plot(x, y, color=colour, linestyle=dashes, label=charts.short(line["class"]))
    within = (0.0, 1.0, 0.0, 1.0)
    if near:
        within = (0.0, round(1 - NEAR, 3), NEAR, 1.0) if is_roc else (NEAR, 1.0, NEAR, 1.0)
    names = ("false positive rate", "true positive rate (recall)") if is_roc else ("recall", "precision")
    charts.unit_square(axes, *names, within)
    if is_roc:
        charts.context(axes, [0, 1], [0, 1])
    if several:
        axes.legend(loc="lower right" if is_roc else "lower left", frameon=False)


def _reliability(r: dict[str, Any]) -> Section:
    bins = r.get("reliability")
    if not bins:
        return Section("Probabilities")
    stated, so = [line["mean_probability"] for line in bins], [line["share"] for line in bins]
    of = "the second class" if len(r["classes"]) == 2 else "the class that is predicted"
    least, most = min(*stated, *so), max(*stated, *so)
    low, high = (0.0 if least < 0.5 else np.floor(10 * least) / 10), max(np.ceil(20 * most) / 20, 0.05)

    def paint(axes: Any) -> None:
        """Within the range of the rows."""
        charts.context(axes, [low, high], [low, high])
        axes.plot(stated, so, color=FIRST, marker="o")
        charts.unit_square(axes, "stated probability", "observed fraction", (low, high, low, high))

    text = (
        f"Rows in {len(bins)} bins by the probability of {of}. On the dotted line the probability is exact;"
        f" the mean deviation is {percent(r['calibration_error'], 2)}. Log-loss {number(r['log_loss'])}."
    )
    table = table_of(ReliabilityBin, bins)
    drawn = charts.picture("Reliability", text, paint, size=(360, 320), table=table)
    parts = [drawn, *([_thresholds(r)] if r.get("thresholds") else [])]
    return Section("Probabilities", "Whether probabilities are calibrated.", parts=parts)


def _thresholds(r: dict[str, Any]) -> Picture:
    thresholds = r["thresholds"]
    share = [line["rows"] / (r["n_samples"] - r["n_bad"]) for line in thresholds]

    def paint(axes: Any) -> None:
        for (colour, dashes, _), name in zip(charts.LOOKS, ("precision", "recall"), strict=False):
            values = [line[name] for line in thresholds]
            axes.plot(share, values, color=colour, linestyle=dashes, marker="o", label=name)
        charts.log_x(axes)
        axes.set_ylim(0.0, 1.0)
        axes.set_xlabel("fraction of flagged rows")
        axes.set_ylabel("precision, recall")
        axes.legend(loc="best", frameon=False)

    text = (
        f"Rows are flagged as {charts.short(r['classes'][1]['class'])} if its probability is at least a"
        " threshold. Gain is precision as a multiple of the fraction of the class in all rows."
    )
    if r.get("threshold") is not None:
        text += f" Here labels follow a threshold of {number(r['threshold'], 4)}."
    table = table_of(ThresholdFigures, thresholds)
    return charts.picture("Thresholds", text, paint, size=(360, 320), table=table)


PARTS = ("X", "y", "scores.zarr")  # parts of the named object


def last_name(address: Any) -> str:
    """The name of a model, a data set or an output; of an array that of its group."""
    parts = [part for part in str(address).split("/") if part not in ("", ".", "..")]
    while len(parts) > 1 and parts[-1] in PARTS:
        parts.pop()
    return plain(parts[-1] if parts else Path.cwd().name)


def without_places(text: Any, *addresses: Any) -> str:
    """A text with addresses replaced by their last parts."""
    without, texts = str(text), (str(address) for address in addresses if address)
    for address in sorted(texts, key=len, reverse=True):
        without = without.replace(address, last_name(address))
    return plain(without, 1_000)


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
    data = r.get("data", "data")
    remarks = remarks_of(r["remarks"]) if "remarks" in r else evaluation_remarks(r)
    warnings = attention([replace(each, what=each.what.replace(data, last_name(data))) for each in remarks])
    if r.get("n_unlabelled"):
        warnings.append(f"{counted(r['n_unlabelled'], 'row has', 'rows have')} no target and are skipped.")
    return warnings


def evaluation_facts(r: dict[str, Any]) -> list[tuple[str, str]]:
    """The most important figures first."""
    facts = [("rows", f"{r['n_samples'] - r['n_bad']:,}"), *headlines(figures_of(r), r)]
    cost = r.get("predicted_cost_ratio") or r.get("cost_ratio")  # baselines have only a measured cost
    if cost is not None:
        facts.append(("cost, linear predictions", number(cost, 3)))
    if r.get("us_per_row") is not None:
        facts.append(("time of a row, measured", f"{number(r['us_per_row'], 3)} µs"))
    return facts


def evaluation_sections(r: dict[str, Any]) -> list[Section]:
    sections = class_sections(r) if "accuracy" in r else [_residuals(r), _quarters(r)]
    drift = r.get("drift") or {}
    if "scores" in drift:  # Earlier versions compared nothing.
        large = "far" if drift["large"] else "not far"
        text = f"How far the rows are from those of training: {large}, as a whole."
        sections.append(Section("Drift", text, parts=compared(drift)))
    return [*sections, _leaves(r)]


def _residuals(r: dict[str, Any]) -> Section:
    quantiles = r["residual_quantiles"]
    low, high = (quantiles[share] for share in ENDS)
    lines = [[percent(float(share), 0), number(value)] for share, value in quantiles.items()]
    table = Table(["fraction of rows", "have a residual up to"], lines)
    pictures = [_histogram(r, low, high, table)]
    if len(r["residuals_by_prediction"]) > 1:
        pictures.append(_by_prediction(r["residuals_by_prediction"]))
    text = (
        f"A residual is the target minus the prediction. Nine of ten lie between {number(low)} and"
        f" {number(high)}; the median is {number(quantiles['0.5'])}."
    )
    return Section("Residuals", text, parts=pictures)


def _quarters(r: dict[str, Any]) -> Section:
    """The coverage of intervals, by quarter of the prediction."""
    quarters = r.get("interval_quarters") or []
    if not quarters or r.get("interval_coverage") is None:
        return Section("Intervals")
    wanted = percent(1 - r["interval_alpha"], 0)
    inside = [quarter["coverage"] for quarter in quarters]
    text = (
        f"Intervals of {wanted} cover {percent(r['interval_coverage'])} of all rows, and between"
        f" {percent(min(inside))} and {percent(max(inside))} by quarter of the prediction."
    )
    return Section("Intervals", text, parts=[table_of(IntervalQuarter, quarters)])


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
    x = [line["mean_prediction"] for line in ranges]
    low, middle, high = ([line["residuals"][share] for line in ranges] for share in ("0.05", "0.5", "0.95"))
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
            [number(p), f"{line['rows']:,}", number(lo), number(m), number(hi)]
            for p, line, lo, m, hi in zip(x, ranges, low, middle, high, strict=True)
        ],
    )
    return charts.picture("Residuals by prediction", text, paint, table=table)


def _leaves(r: dict[str, Any]) -> Section:
    """The leaves with the largest errors, if the model has more than one leaf."""
    leaves = r.get("leaves")
    if not leaves or len(leaves["leaf"]) < 2:
        return Section("Leaves")
    rows, error = np.array(leaves["rows"], float), np.array(leaves["error"], float)
    trained = np.array(leaves["training_rows"], float)
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
                f"{leaves['leaf'][i]:,}",
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


def compared(drift: dict[str, Any]) -> list[Picture | Table]:
    """Features and outputs compared with training rows, by their bins; then rows beyond all training rows."""
    lines = [_compared(line) for line in (*drift["features"]["top"], *drift.get("scores", ()))]
    text = (
        "The stability index compares fractions of rows by bins of each feature. A feature differs if a"
        f" two-sample test finds it, and it has drifted if also the index is above {LARGE_PSI}. The last"
        " three columns are of the bin whose fraction of rows differs most."
    )
    heads = ["feature", "drift", "index", "p", "rows now", "in training", "bin"]
    drawn = [line for line in (*drift["features"]["top"], *drift.get("scores", ())) if line["differs"]]
    parts: list[Picture | Table] = [_outlines(line) for line in drawn[:OUTLINES]]
    parts += [Table(heads, lines, "Drift by feature", text, texts=2, wide=True)]
    if beyond := drift.get("beyond"):
        rows = [
            [
                plain(line.get("name", line["feature"])),
                plain(f"{line['low_in_words']} to {line['high_in_words']}"),
                f"{line['below']:,}",
                f"{line['above']:,}",
                f"{line['rows']:,}",
            ]
            for line in beyond
        ]
        heads = ["feature", "training rows", "rows below", "rows above", "of rows counted"]
        parts.append(Table(heads, rows, "Beyond the range of training", texts=2, wide=True))
    return parts


def _outlines(line: dict[str, Any]) -> Picture:
    """A feature or an output of these rows compared with the training rows, by its bins."""
    name, bins = plain(line.get("name", line.get("feature"))), line["bins"]
    names = [plain(part["bin"]) for part in bins]
    shares = [[100 * part[key] for part in bins] for key in ("training_share", "share")]

    def paint(axes: Any) -> None:
        charts.outlines(axes, names, *shares)

    text = f"Fractions of rows by bin. The stability index of {name} is {number(line['psi'], 3)}."
    lines = [[n, f"{a:.2f} %", f"{b:.2f} %"] for n, a, b in zip(names, *shares, strict=True)]
    table = Table(["bin", "in training", "rows now"], lines)
    return charts.picture(f"{name} now and in training", text, paint, table=table)


def _compared(line: dict[str, Any]) -> list[str]:
    most = max(line["bins"], key=lambda part: abs(part["share"] - part["training_share"]))
    return [
        plain(line.get("name", line.get("feature"))),
        "large" if line["large"] else "small" if line["differs"] else "none",
        number(line["psi"], 3),
        number(line["p_value"], 2),
        percent(most["share"]),
        percent(most["training_share"]),
        plain(most["bin"]),
    ]
