"""Elements of plots: curves, bars, bands, points. No plot distinguishes things by colour alone: lines also
differ in their dashes and markers, and carry their names.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.pages.page import Picture, Table
from dcpred.pages.svg import FIRST, INK, MUTED, PALE, SECOND, drawing, svg_of
from dcpred.pages.text import plain

Paint = Callable[[Any], None]  # draws on the axes of a figure
Numbers = Sequence[float] | NDArray[Any]
SIZE = (360, 250)  # CSS pixels: the width of a phone, where texts of 11 pixels are readable
WIDE, NARROW = (860, 380), (360, 400)
LINE_PIXELS = 14  # height of a line of text
NAME_LETTERS = 18  # the longest name in a plot
# Colour, dashes, marker of lines in their order.
LOOKS: tuple[tuple[str, Any, str], ...] = (
    (FIRST, "-", "o"),
    (SECOND, (0, (5, 2)), "s"),
    (INK, (0, (1, 1.5)), "^"),
    (MUTED, (0, (6, 2, 1, 2)), "D"),
    (FIRST, (0, (2, 2)), "v"),
    (SECOND, (0, (8, 2, 2, 2)), "P"),
    (INK, (0, (10, 3)), "X"),
    (MUTED, (0, (1, 3)), "*"),
)


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    name: str
    x: Numbers
    y: Numbers


def picture(
    title: str,
    text: str,
    paint: Paint,
    *,
    size: tuple[int, int] = SIZE,
    table: Table | None = None,
    wide: bool = False,
) -> Picture:
    """A plot; with `wide` drawn twice: for wide pages and for narrow ones."""
    name = "p-" + re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60]
    drawn = []
    for kind, pixels in (("wide", WIDE), ("narrow", NARROW)) if wide else (("", size),):
        with drawing(*pixels) as figure:
            paint(figure.add_subplot())
            drawn.append(svg_of(figure, f"{name}-{kind}" if kind else name, title, text, kind))
    return Picture(title, text, drawn, table, wide)


def short(name: Any, letters: int = NAME_LETTERS) -> str:
    return plain(name, letters)


def label_ends(axes: Any, labels: Sequence[tuple[float, str, str]]) -> None:
    """Names at the right of the axes, (height, name, colour), at the height of their lines if there is
    space: in data of the y axis, whose limits are set.
    """
    pixels = axes.figure.get_figheight() * 72 - 60
    least = LINE_PIXELS / pixels
    height = axes.transData + axes.transAxes.inverted()
    x = axes.get_xlim()[0]
    wanted = sorted((float(height.transform((x, y))[1]), name, colour) for y, name, colour in labels)
    for (_, name, colour), at in zip(wanted, spread([y for y, _, _ in wanted], least), strict=True):
        axes.text(1.02, at, name, transform=axes.transAxes, color=colour, va="center", ha="left")


def place_labels(axes: Any, labels: Sequence[tuple[float, float, str, str]]) -> list[str]:
    """Names next to points, (x, y, name, colour), the most important first: each where there is space,
    near its point, and within the axes, whose limits are set. Returns names without space.
    """
    figure = axes.figure
    figure.draw_without_rendering()  # lays the axes out
    box = axes.get_window_extent()
    scale = 72 / figure.dpi
    points = [(axes.transData.transform((x, y)) - box.min) * scale for x, y, _, _ in labels]
    taken = [(x - 3, y - 3, x + 3, y + 3) for x, y in points]
    left = []
    for x, y, name, colour in labels:
        at = axes.transData.transform((x, y))
        if not box.contains(*at):
            continue
        found = _free_place(name, (at - box.min) * scale, (box.width * scale, box.height * scale), taken)
        if found is None:
            left.append(name)
            continue
        taken.append(found)
        middle = ((found[0] + found[2]) / 2, (found[1] + found[3]) / 2)
        share = (middle[0] / (box.width * scale), middle[1] / (box.height * scale))
        axes.text(*share, name, transform=axes.transAxes, color=colour, ha="center", va="center", fontsize=10)
    return left


LETTER_PIXELS = 6.2  # width of a letter
# Possible positions of a name, as multiples of its width and of the height of a line, from the point to its
# middle.
PLACES = [
    (side * (0.5 * w), up)
    for up in (0.0, 1.0, -1.0, 1.9, -1.9, 2.8, -2.8)
    for side in (1, -1)
    for w in ((1.0,) if up == 0.0 else (0.6, 1.0))
] + [(0.0, 1.1), (0.0, -1.1)]


def _free_place(
    name: str,
    at: Any,
    bounds: tuple[float, float],
    taken: Sequence[tuple[float, float, float, float]],
) -> tuple[float, float, float, float] | None:
    """The corners of a name near a point that overlaps no other, in pixels of the axes."""
    width, height = LETTER_PIXELS * len(name), LINE_PIXELS
    for across, up in PLACES:
        x = at[0] + across * width + (6 if across > 0 else -6 if across < 0 else 0)
        y = at[1] + up * (height - 2)
        corners = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        inside = corners[0] >= 0 and corners[1] >= 0 and corners[2] <= bounds[0] and corners[3] <= bounds[1]
        if inside and not any(
            corners[0] < o[2] and o[0] < corners[2] and corners[1] < o[3] and o[1] < corners[3] for o in taken
        ):
            return corners
    return None


def spread(places: Numbers, least: float) -> list[float]:
    """Ascending places, moved as little as possible to be at least `least` apart; within 0 and 1 if
    there is space.
    """
    found = list(places)
    for _ in range(50):
        for i in range(1, len(found)):
            gap = found[i] - found[i - 1]
            if gap < least:
                found[i - 1] -= (least - gap) / 2
                found[i] += (least - gap) / 2
        if found and (len(found) - 1) * least <= 1.0:
            found[0], found[-1] = max(found[0], 0.0), min(found[-1], 1.0)
    for i in range(1, len(found)):
        found[i] = max(found[i], found[i - 1] + least)
    return found


def lines(axes: Any, found: Sequence[Line], *, letters: int = NAME_LETTERS) -> None:
    """Lines with their names at the right."""
    for number, line in enumerate(found):
        colour, dashes, marker = LOOKS[number % len(LOOKS)]
        every = max(len(line.x) // 8, 1)
        axes.plot(line.x, line.y, color=colour, linestyle=dashes, marker=marker, markevery=every)
    if len(found) > 1:
        axes.set_ylim(axes.get_ylim())
        ends = [
            (line.y[-1], short(line.name, letters), LOOKS[number % len(LOOKS)][0])
            for number, line in enumerate(found)
        ]
        label_ends(axes, ends)


def unit_square(
    axes: Any, x: str, y: str, within: tuple[float, float, float, float] = (0.0, 1.0, 0.0, 1.0)
) -> None:
    """Axes of fractions, or the corner of them from left to right and from the bottom to the top."""
    left, right, bottom, top = within
    more = 0.01 * (right - left)
    axes.set_xlim(left - more, right + more)
    axes.set_ylim(bottom - more, top + more)
    for ticks, setting in (
        (np.linspace(left, right, 6), axes.set_xticks),
        (np.linspace(bottom, top, 6), axes.set_yticks),
    ):
        setting(ticks, [f"{t:g}" for t in ticks.round(3)])
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def bars(axes: Any, names: Sequence[str], values: Numbers, shown: Sequence[str], colour: str = FIRST) -> None:
    """Horizontal bars from the top down, with their values next to them."""
    at = np.arange(len(names))
    axes.barh(at, values, color=colour, height=0.7)
    for place, value, text in zip(at, values, shown, strict=True):
        axes.annotate(text, (value, place), (4, 0), textcoords="offset points", va="center", ha="left")
    axes.set_yticks(at, [short(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.18)
    axes.set_xlim(left=0)


def bars_height(n: int) -> int:
    """CSS pixels of a plot of so many bars."""
    return 70 + 20 * n


def histogram(axes: Any, edges: Numbers, rows: Numbers, colour: str = FIRST) -> None:
    left, right = np.asarray(edges[:-1]), np.asarray(edges[1:])
    axes.bar(left, rows, width=right - left, align="edge", color=colour, linewidth=0.4, edgecolor="none")
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("rows")
    axes.yaxis.set_major_formatter(in_thousands)


def outlines(axes: Any, names: Sequence[str], before: Numbers, now: Numbers) -> None:
    """Two distributions over the same bins: that of training filled, the current one as a line."""
    edges = np.arange(len(names) + 1) - 0.5
    axes.stairs(before, edges, fill=True, color=PALE, label="training rows")
    axes.stairs(now, edges, color=SECOND, linewidth=2, label="these rows")
    step = -(-len(names) // 6)
    axes.set_xticks(range(0, len(names), step), [short(name, 12) for name in names[::step]], fontsize=8)
    axes.tick_params(axis="x", rotation=30)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("fraction of rows, %")
    axes.set_ylim(0.0, 1.25 * max(*before, *now))
    axes.legend(loc="upper left", frameon=False, ncols=2, fontsize=9)


def swarm(axes: Any, names: Sequence[str], values: NDArray[Any]) -> None:
    """A line for each name with a point for each row (rows, names), side by side if they are many."""
    low, high = float(values.min()), float(values.max())
    for place, own in enumerate(values.T):
        _, bin_of = np.unique(np.round((own - low) / max(high - low, 1e-300) * 60), return_inverse=True)
        order = np.argsort(bin_of, kind="stable")
        starts = np.flatnonzero(np.diff(bin_of[order], prepend=-1))
        rank = np.arange(len(own)) - np.repeat(starts, np.diff(np.append(starts, len(own))))
        side = np.where(rank % 2, -1, 1) * ((rank + 1) // 2)
        widest = max(int(np.abs(side).max()), 1)
        axes.scatter(own[order], place + 0.38 * side / max(widest, 12), s=6, color=FIRST, linewidths=0)
    axes.axvline(0.0, color=MUTED, linewidth=0.8)
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")


def band(axes: Any, x: Numbers, low: Numbers, middle: Numbers, high: Numbers) -> None:
    """A line, with a band that contains most rows."""
    axes.fill_between(x, low, high, color=FIRST, alpha=0.18, linewidth=0)
    axes.plot(x, low, color=FIRST, linewidth=0.8, linestyle=LOOKS[1][1])
    axes.plot(x, high, color=FIRST, linewidth=0.8, linestyle=LOOKS[1][1])
    axes.plot(x, middle, color=FIRST, marker="o")


def log_x(axes: Any) -> None:
    """A logarithmic axis with plain numbers."""
    axes.set_xscale("log")
    plain_logs(axes.xaxis)


def plain_logs(axis: Any) -> None:
    """Plain numbers on a logarithmic axis: at 1, 2 and 5."""
    for setting in (axis.set_major_formatter, axis.set_minor_formatter):
        setting(lambda value, _: in_thousands(value) if f"{value:e}"[0] in "125" else "")


def thousands_x(axes: Any) -> None:
    """An axis of counts, with few integers."""
    axes.locator_params(axis="x", nbins=5, integer=True)
    axes.xaxis.set_major_formatter(in_thousands)


def threshold(axes: Any, y: float, text: str) -> None:
    """A horizontal line with its meaning."""
    axes.axhline(y, color=SECOND, linestyle=LOOKS[1][1], linewidth=1.2)
    axes.annotate(
        text, (0.0, y), (3, 3), xycoords=("axes fraction", "data"), textcoords="offset points", color=SECOND
    )


def frontier(
    axes: Any, points: Sequence[tuple[float, float, float]], chosen: tuple[float, float | None]
) -> None:
    """The Pareto front with errors, as steps, and the chosen point, if it was evaluated."""
    if points:
        x, y, error = zip(*sorted(points), strict=True)
        axes.step(x, y, where="post", color=FIRST, marker="o")
        axes.errorbar(x, y, yerr=error, fmt="none", ecolor=MUTED, elinewidth=1, capsize=3)
        if x[-1] - x[0] < 0.1 * x[-1]:  # These count as one cost.
            axes.set_xlim(0.9 * x[0], 1.1 * x[-1])
    if chosen[1] is None:
        return
    axes.plot(*chosen, "s", markersize=12, fillstyle="none", color=SECOND, markeredgewidth=2)
    axes.annotate("chosen", chosen, (9, -12), textcoords="offset points", color=SECOND)


def in_thousands(value: float, _: Any = None) -> str:
    """A count on an axis."""
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


def context(axes: Any, x: Numbers, y: Numbers) -> None:
    """A line for comparison only."""
    axes.plot(x, y, color=PALE, linewidth=1.0, linestyle=LOOKS[2][1])
