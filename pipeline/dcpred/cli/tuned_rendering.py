"""A frontier of models as a person reads it: a table, a plot of characters, what more would buy."""

from typing import Any

from dcpred.cli.rendering import rows, sentences, table, trained
from dcpred.execution.progress import counted
from dcpred.tuning.frontier_plot import with_cost

CHOSEN, BEYOND = "*", "!"  # marks of lines of the table


def tuned(r: dict[str, Any]) -> str:
    """The frontier as a table and a plot of characters, then what training says."""
    points, chosen = with_cost(r["frontier"], r["chosen"], r["made"]["cost_ratio"])
    name = "rmse" if "rmse" in chosen else "accuracy"
    shown = points if chosen in points else sorted([*points, chosen], key=lambda p: p["cost_ratio"])
    heads = ["", "cost", name, "leaves", "landmarks", "products", "overlap", "scaling"]
    lines = table([heads, *(_cells(p, name, p == chosen) for p in shown)], left=(0, 7))
    marks = [f"{CHOSEN} chosen"] + [f"{BEYOND} beyond the budget"] * any(
        not p["within_budget"] for p in shown
    )
    took = ", ".join(f"{step} {s:.1f} s" for step, s in r["seconds"].items())
    judged = (
        f"on {chosen['n_judged']:,} rows held out of a sample of leaves, give or take"
        f" {_uncertain(chosen, name)}, at predicted costs:"
        if chosen["n_judged"]
        else "too few rows to hold any out, so that nothing was judged; at predicted costs:"
    )
    return "\n".join(
        [
            *sentences([judged]),
            *lines,
            ", ".join(marks),
            *sentences(_more(points, chosen, name)),
            *sentences([r["floor"]["words"]] if r["floor"] else []),
            "",
            *([*frontier_plot(points, chosen, name), ""] if len(points) > 1 and chosen["n_judged"] else []),
            rows([("made       ", _made(r["made"])), ("took", took)]),
            trained(r["trained"]),
        ]
    )


def _cells(p: dict[str, Any], name: str, is_chosen: bool) -> list[str]:
    value = "-" if p[name] is None else f"{p[name]:.5g}" if name == "rmse" else f"{100 * p[name]:.2f} %"
    return [
        CHOSEN if is_chosen else "" if p["within_budget"] else BEYOND,
        f"{p['cost_ratio']:.1f}x",
        value,
        f"{p['n_leaves']:,}",
        *(str(p[fact]) for fact in ("landmarks", "products", "overlap", "scaling")),
    ]


def _made(m: dict[str, Any]) -> str:
    """The model itself, which may have fewer landmarks than were chosen."""
    least, most = m["least_landmarks"], m["most_landmarks"]
    each = f"{most}" if least == most else f"{least} to {most}"
    return (
        f"{counted(m['n_leaves'], 'leaf', 'leaves')} of {each} landmarks, at a predicted cost of"
        f" {m['cost_ratio']:.1f}x"
    )


def _uncertain(chosen: dict[str, Any], name: str) -> str:
    """Two standard errors."""
    two = 2.0 * chosen["standard_error"]
    return f"{two:.2g}" if name == "rmse" else f"{100 * two:.2g} points"


def _more(points: list[dict[str, Any]], chosen: dict[str, Any], name: str) -> list[str]:
    """What a dearer model beyond the budget would buy."""
    dearer = [p for p in points if p["cost_ratio"] > chosen["cost_ratio"] and not p["within_budget"]]
    if not dearer or not chosen["n_judged"]:
        return []
    p = min(dearer, key=lambda p: p["cost_ratio"])
    gain = (
        f"{100 * (chosen['rmse'] - p['rmse']) / chosen['rmse']:.1f} % less error"
        if name == "rmse"
        else f"{100 * (p['accuracy'] - chosen['accuracy']):.2f} points better"
    )
    leaves = counted(p["n_leaves"], "leaf", "leaves")
    return [f"the budget binds: {p['landmarks']} landmarks and {leaves} are {gain} at {p['cost_ratio']:.1f}x"]


PLOT_COLUMNS, PLOT_ROWS = 60, 12


def frontier_plot(points: list[dict[str, Any]], chosen: dict[str, Any], name: str) -> list[str]:
    """Quality (upwards is better) against cost, in characters; X is the point that was chosen."""
    every = points if chosen in points else [*points, chosen]
    cost = [p["cost_ratio"] for p in every]
    value = [-p[name] if name == "rmse" else 100 * p[name] for p in every]
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
