"""Parts of a page on the classification quality, from an evaluation."""

from functools import partial
from typing import Any

import numpy as np

from dcpred.pages import charts
from dcpred.pages.page import Cell, Picture, Section, Table
from dcpred.pages.svg import FIRST, INK, MUTED, SECOND
from dcpred.pages.text import number, percent, plain

MATRIX_CLASSES = 12  # maximum number of classes whose matrix is a table; of more it is drawn
DRAWN_CLASSES = 24  # maximum number of classes in the plot of recalls: those with the least
LISTED_PAIRS = 10
CURVES = 3  # curves with a name; others of several classes stay pale
# If all curves have a larger area than the first, their corner is shown from the second on.
NEARLY_ALL, NEAR = 0.98, 0.8


def class_sections(r: dict[str, Any]) -> list[Section]:
    """Sections of an evaluation of classes."""
    matrix = r.get("confusion_matrix")
    names = [plain(one["class"]) for one in r["classes"]]
    parts: list[Picture | Table] = []
    if matrix is not None and len(names) <= MATRIX_CLASSES:
        parts.append(_matrix_table(names, matrix))
    elif matrix is not None:
        parts.append(_matrix_picture(names, np.array(matrix)))
    pairs = (r.get("confusions") or [])[:LISTED_PAIRS]
    if pairs and len(names) > 2:
        parts.append(_pairs_table(pairs, {one["class"]: one["rows"] for one in r["classes"]}))
    parts.append(_recall(r["classes"]))
    text = (
        "Recall is the fraction of a class's rows that are predicted as it; precision is the fraction of"
        " the rows predicted as a class that are of it."
    )
    return [Section("Classes", text, parts=parts), _ranking(r), _reliability(r)]


def _pairs_table(pairs: list[dict[str, Any]], of: dict[Any, int]) -> Table:
    lines = [
        [
            plain(one["class"]),
            plain(one["taken_for"]),
            f"{one['rows']:,}",
            percent(one["rows"] / of[one["class"]], 2),
        ]
        for one in pairs
    ]
    heads = ["class", "predicted as", "rows", "of its rows"]
    return Table(heads, lines, "Most frequent confusions", texts=2)


def _matrix_table(names: list[str], matrix: list[list[int]]) -> Table:
    """Lines are true classes, columns predicted ones; the shade of errors shows the fraction of the line."""
    lines: list[list[str | Cell]] = []
    for own, (name, row) in enumerate(zip(names, matrix, strict=True)):
        total = max(sum(row), 1)
        wrong = [0.0 if other == own else n / total for other, n in enumerate(row)]
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
        " is"
        f" {names[worst[0]]} predicted as {names[worst[1]]}: {share.max():.1f} % of its rows."
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
    known = [one for one in classes if one["recall"] is not None]
    shown = known
    if len(known) > DRAWN_CLASSES:
        shown = sorted(known, key=lambda one: one["recall"])[:DRAWN_CLASSES]
    least = min(shown, key=lambda one: one["recall"])
    best = max(shown, key=lambda one: one["recall"])

    def paint(axes: Any) -> None:
        at = np.arange(len(shown))
        recall = [100 * one["recall"] for one in shown]
        precision = [np.nan if one["precision"] is None else 100 * one["precision"] for one in shown]
        axes.plot(precision, at, "o", fillstyle="none", color=SECOND, markersize=7, label="precision")
        axes.plot(recall, at, "o", color=FIRST, markersize=5, label="recall")
        axes.set_yticks(at, [charts.short(one["class"], 14) for one in shown])
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
    table = Table(
        ["class", "rows", "recall", "precision", "AUC"],
        [
            [
                plain(one["class"]),
                f"{one['rows']:,}",
                percent(one["recall"], 2),
                percent(one["precision"], 2),
                number(one.get("auc")),
            ]
            for one in classes
        ],
    )
    size = (360, min(charts.bars_height(len(shown)), 560))
    return charts.picture("Recall and precision", text, paint, size=size, table=table)


def _ranking(r: dict[str, Any]) -> Section:
    """The curves: with two classes one, with several the worst classes by name."""
    found = r.get("curves") or []
    if not found:
        return Section("Ranking")
    which = f"Class {plain(found[0]['class'])} against the other."
    if len(r["classes"]) > 2:
        more = f", {len(found) - CURVES} more pale." if len(found) > CURVES else "."
        which = f"Each class against all others; the worst by name{more}"
    table = Table(
        ["class", "AUC", "average precision"],
        [[plain(one["class"]), number(one["auc"], 5), number(one["average_precision"], 5)] for one in found],
    )
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
        near = min(one["auc"] if curve == "roc" else one["average_precision"] for one in found) > NEARLY_ALL
        shown = f" Only that corner is shown, from {NEAR} on." if near else ""
        text = f"{which} The nearer to the {corner} corner, the better; {area} {number(value)}{mean}.{shown}"
        paint = partial(_paint_curves, found, curve, near, len(r["classes"]) > 2)
        parts.append(charts.picture(title, text, paint, size=(360, 320), table=table))
    text = "How well decision values rank rows of a class before others, for every threshold."
    return Section("Ranking", text, parts=parts)


def _paint_curves(found: list[dict[str, Any]], curve: str, near: bool, several: bool, axes: Any) -> None:
    """near  whether all is in the best corner, and only that is drawn"""
    is_roc = curve == "roc"
    for one in found[CURVES:]:
        charts.context(axes, one[curve]["x"], one[curve]["y"])
    for one, (colour, dashes, _) in zip(found[:CURVES], charts.LOOKS, strict=False):
        x, y = one[curve]["x"], one[curve]["y"]
        axes.plot(x, y, color=colour, linestyle=dashes, label=charts.short(one["class"]))
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
    stated, so = [one["mean_probability"] for one in bins], [one["share"] for one in bins]
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
        " the"
        f" mean deviation is {percent(r['calibration_error'], 2)}. Log-loss {number(r['log_loss'])}."
    )
    table = Table(
        ["stated", "observed", "rows"],
        [
            [percent(s, 2), percent(o, 2), f"{one['rows']:,}"]
            for s, o, one in zip(stated, so, bins, strict=True)
        ],
    )
    drawn = charts.picture("Reliability", text, paint, size=(360, 320), table=table)
    parts = [drawn, *([_thresholds(r)] if r.get("thresholds") else [])]
    return Section("Probabilities", "Whether probabilities are calibrated.", parts=parts)


def _thresholds(r: dict[str, Any]) -> Picture:
    found = r["thresholds"]
    share = [one["rows"] / (r["n_samples"] - r["n_bad"]) for one in found]

    def paint(axes: Any) -> None:
        for (colour, dashes, _), name in zip(charts.LOOKS, ("precision", "recall"), strict=False):
            values = [one[name] for one in found]
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
    table = Table(
        ["threshold", "rows", "precision", "recall", "gain"],
        [
            [
                *(number(one["threshold"], 4), f"{one['rows']:,}", percent(one["precision"], 2)),
                *(percent(one["recall"], 2), number(one["gain"], 3)),
            ]
            for one in found
        ],
    )
    return charts.picture("Thresholds", text, paint, size=(360, 320), table=table)
