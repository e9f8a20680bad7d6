"""Format a Pareto front of models as text: a table, a plot of characters, and references."""

from typing import Any

from dcpred.cli.rendering import rows, sentences, table, trained
from dcpred.execution.progress import counted
from dcpred.tuning.frontier_plot import (
    interval_words,
    is_share,
    less_is_better,
    reference_words,
    shown,
    unseen_words,
    with_cost,
    words_of,
)
from dcpred.tuning.kept import quality_name

CHOSEN = "*"  # marks a line of the table


def tuned(r: dict[str, Any]) -> str:
    """The Pareto front as a table and a plot of characters, references, then the report of training."""
    points, chosen = with_cost(r["frontier"], r["chosen"], r["made"]["cost_ratio"])
    name = quality_name(chosen)
    every = points if chosen in points else sorted([*points, chosen], key=lambda p: p["cost_ratio"])
    heads = ["", "cost", words_of(name), "leaves", "landmarks", "products", "overlap", "scaling"]
    lines = table([heads, *(_cells(p, name, p == chosen) for p in every)], left=(0, 7))
    took = ", ".join(f"{step} {s:.1f} s" for step, s in r["seconds"].items())
    rows_are = f"on {chosen['n_judged']:,} held-out rows{_which(chosen)}"
    judged = (
        f"{rows_are}, the chosen model has {interval_words(chosen)} (two standard errors); at predicted"
        " costs:"
        if chosen["n_judged"]
        else "too few rows to hold any out: nothing was evaluated; at predicted costs:"
    )
    return "\n".join(
        [
            *sentences([judged]),
            *lines,
            f"{CHOSEN} chosen",
            *sentences([remark] if (remark := unseen_words(chosen)) else []),
            *sentences(_references(r["references"], chosen)),
            "",
            *([*frontier_plot(points, chosen, name), ""] if len(points) > 1 and chosen["n_judged"] else []),
            rows([("made       ", _made(r["made"])), ("took", took)]),
            trained(r["trained"]),
            *sentences([r["words"]] if r["words"] else []),
        ]
    )


def _which(chosen: dict[str, Any]) -> str:
    return f" ({chosen['held_out']})" if "held_out" in chosen else ""


def _references(references: list[dict[str, Any]], chosen: dict[str, Any]) -> list[str]:
    """The scores of other models on the same rows, or on some of them."""
    if not references:
        return []
    others = ", ".join(f"{one['name']} {reference_words(one, chosen)}" for one in references)
    alone = chosen.get("most_frequent_share")
    majority = f"; the most frequent class alone has an accuracy of {100 * alone:.2f} %" if alone else ""
    return [f"on rows held out{_which(chosen)}: this model {shown(chosen)}; {others}{majority}"]


def _cells(p: dict[str, Any], name: str, is_chosen: bool) -> list[str]:
    value = "-" if p[name] is None else f"{100 * p[name]:.2f} %" if is_share(name) else f"{p[name]:.5g}"
    return [
        CHOSEN if is_chosen else "",
        f"{p['cost_ratio']:.1f}x",
        value,
        f"{p['n_leaves']:,}",
        *(str(p[fact]) for fact in ("landmarks", "products", "overlap", "scaling")),
    ]


def _made(m: dict[str, Any]) -> str:
    """The model itself, which may have fewer landmarks than chosen."""
    least, most = m["least_landmarks"], m["most_landmarks"]
    each = f"{most}" if least == most else f"{least} to {most}"
    return (
        f"{counted(m['n_leaves'], 'leaf', 'leaves')} of {each} landmarks, at a predicted cost of"
        f" {m['cost_ratio']:.1f}x"
    )


PLOT_COLUMNS, PLOT_ROWS = 60, 12


def frontier_plot(points: list[dict[str, Any]], chosen: dict[str, Any], name: str) -> list[str]:
    """Quality (upwards is better) against cost, in characters; X marks the chosen point."""
    every = points if chosen in points else [*points, chosen]
    cost = [p["cost_ratio"] for p in every]
    sign = -1.0 if less_is_better(name) else 1.0
    value = [sign * p[name] * (100 if is_share(name) else 1) for p in every]
    left, bottom = min(cost), min(value)
    width, height = max(max(cost) - left, 1e-9), max(max(value) - bottom, 1e-9)
    canvas = [[" "] * PLOT_COLUMNS for _ in range(PLOT_ROWS)]
    for p, c, v in zip(every, cost, value, strict=True):
        column = round((c - left) / width * (PLOT_COLUMNS - 1))
        row = PLOT_ROWS - 1 - round((v - bottom) / height * (PLOT_ROWS - 1))
        canvas[row][column] = "X" if p == chosen else "o"
    labels = [f"{abs(max(value)):.4g}", *[""] * (PLOT_ROWS - 2), f"{abs(bottom):.4g}"]
    lines = [f"{label:>8} |{''.join(line).rstrip()}" for label, line in zip(labels, canvas, strict=True)]
    ends = f"{left:.1f}x", f"{max(cost):.1f}x"
    return [
        *lines,
        f"{'':>8} +{'-' * PLOT_COLUMNS}",
        f"{'':>10}{ends[0]}{ends[1]:>{PLOT_COLUMNS - len(ends[0])}}",
    ]
