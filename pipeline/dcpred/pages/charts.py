"""Charts of pages as SVG, with a sentence and a table that say the same."""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from dcpred.pages.page import Picture, Table
from dcpred.public.results import plain

# Colours of drawings, by the page's names for them: a page is light or dark, and so are its plots.
COLOURS = {
    "#1b1f24": "ink",
    "#5b6570": "muted",
    "#d5dae0": "grid",
    "#0a5ea8": "first",
    "#ad4400": "second",
    "#9aa3ad": "pale",
    "#ffffff": "paper",
}
INK, MUTED, GRID, FIRST, SECOND, PALE, PAPER = COLOURS
STYLE: dict[str, Any] = {
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 11,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "font.family": "DejaVu Sans",  # part of matplotlib: texts of a page are narrower
    "font.size": 11,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",  # texts stay texts
    "svg.hashsalt": "dcpred",  # the same plot has the same names
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}
NAMESPACE = re.compile(r"\{[^}]*\}")
REFERENCE = re.compile(r"url\(#([^)]+)\)")
LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
FAMILY = re.compile(r"font-family:[^;]*;? ?")
# The form of matplotlib 3.9: weight, size and families.
FONT = re.compile(r"font:(?P<weight> \d+)? (?P<size>[\d.]+px)[^;]*;? ?")
UNSEEN = ("metadata", "style")


@contextmanager
def drawing(width: int, height: int) -> Iterator[Any]:
    """A figure of matplotlib to draw on, of so many CSS pixels, within a `with` statement."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It warns of letters that the measuring font lacks.
        yield Figure(figsize=(width / 72, height / 72), layout="constrained")


def svg_of(figure: Any, name: str, title: str, text: str, kind: str = "") -> str:
    """A figure, within the `with` statement that made it, as an element of a page.

    name   of the plot in its page
    title  its title
    text   its text alternative
    kind   classes of the element
    """
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    _clean(root, name)
    kept_attributes = {
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-text",
        "class": f"picture {kind}".strip(),
    }
    root.attrib = {"viewBox": root.attrib["viewBox"], **kept_attributes}
    for number, (tag, content) in enumerate((("title", title), ("desc", text))):
        element = ElementTree.Element(tag, {"id": f"{name}-{'title' if tag == 'title' else 'text'}"})
        element.text = plain(content)
        root.insert(number, element)
    return ElementTree.tostring(root, encoding="unicode")


def png_of(figure: Any) -> bytes:
    """The same as a separate file, on white."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=160, facecolor=PAPER)
    return file.getvalue()


def _clean(root: Any, name: str) -> None:
    """Plain elements, without unused names, and with the colours of the page."""
    used = {reference for element in root.iter() for reference in _references(element)}
    names = {old: f"{name}-{number}" for number, old in enumerate(sorted(used))}
    for parent in list(root.iter()):
        for child in list(parent):
            if NAMESPACE.sub("", child.tag) in UNSEEN:
                parent.remove(child)
    for element in root.iter():
        element.tag = NAMESPACE.sub("", element.tag)
        element.tail = None
        if element.tag != "text":
            element.text = None
        element.attrib = {
            NAMESPACE.sub("", key): _attribute(NAMESPACE.sub("", key), value, names)
            for key, value in element.attrib.items()
            if key != "id" or value in used
        }


def _references(element: Any) -> list[str]:
    names = [name for value in element.attrib.values() for name in REFERENCE.findall(value)]
    links = [value for key, value in element.attrib.items() if key.endswith("href")]
    return names + [link.removeprefix("#") for link in links]


def _attribute(key: str, value: str, names: dict[str, str]) -> str:
    if key == "id":
        return names[value]
    if key == "href":
        return f"#{names[value.removeprefix('#')]}"
    if key == "style":
        for colour, called in COLOURS.items():
            value = value.replace(colour, f"var(--{called})")
        value = FONT.sub(_font, FAMILY.sub("", value))
    value = REFERENCE.sub(lambda match: f"url(#{names[match[1]]})", value)
    return LONG_NUMBER.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), value)


def _font(match: re.Match[str]) -> str:
    return f"font-weight:{match['weight'] or ' 400'}; font-size: {match['size']}; "


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
    """Names at the right of the axes, (height, name, colour), near their lines, within set limits."""
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
        free = _free_place(name, (at - box.min) * scale, (box.width * scale, box.height * scale), taken)
        if free is None:
            left.append(name)
            continue
        taken.append(free)
        middle = ((free[0] + free[2]) / 2, (free[1] + free[3]) / 2)
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
    name: str, at: Any, bounds: tuple[float, float], taken: Sequence[tuple[float, float, float, float]]
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
    """Ascending places, moved as little as possible to be `least` apart; within 0 and 1 if there is space."""
    spaced = list(places)
    for _ in range(50):
        for i in range(1, len(spaced)):
            gap = spaced[i] - spaced[i - 1]
            if gap < least:
                spaced[i - 1] -= (least - gap) / 2
                spaced[i] += (least - gap) / 2
        if spaced and (len(spaced) - 1) * least <= 1.0:
            spaced[0], spaced[-1] = max(spaced[0], 0.0), min(spaced[-1], 1.0)
    for i in range(1, len(spaced)):
        spaced[i] = max(spaced[i], spaced[i - 1] + least)
    return spaced


def lines(axes: Any, shown: Sequence[Line], *, letters: int = NAME_LETTERS) -> None:
    """Lines with their names at the right."""
    for number, line in enumerate(shown):
        colour, dashes, marker = LOOKS[number % len(LOOKS)]
        every = max(len(line.x) // 8, 1)
        axes.plot(line.x, line.y, color=colour, linestyle=dashes, marker=marker, markevery=every)
    if len(shown) > 1:
        axes.set_ylim(axes.get_ylim())
        ends = [
            (line.y[-1], short(line.name, letters), LOOKS[number % len(LOOKS)][0])
            for number, line in enumerate(shown)
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


def bars(axes: Any, names: Sequence[str], values: Numbers, shown: Sequence[str]) -> None:
    """Horizontal bars from the top down, with their values next to them."""
    at = np.arange(len(names))
    axes.barh(at, values, color=FIRST, height=0.7)
    for place, value, text in zip(at, values, shown, strict=True):
        axes.annotate(text, (value, place), (4, 0), textcoords="offset points", va="center", ha="left")
    axes.set_yticks(at, [short(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.18)
    axes.set_xlim(left=0)


def bar_picture(
    title: str,
    text: str,
    names: Sequence[str],
    values: Numbers,
    shown: Sequence[str],
    axis: str,
    table: Table | None = None,
    *,
    thousands: bool = False,
) -> Picture:
    """A plot of bars, high enough for them.

    axis       name of the axis of the values
    thousands  whether these are counts, see `thousands_x`
    """

    def paint(axes: Any) -> None:
        bars(axes, names, values, shown)
        axes.set_xlabel(axis)
        if thousands:
            thousands_x(axes)

    return picture(title, text, paint, size=(360, bars_height(len(names))), table=table)


def bars_height(n: int) -> int:
    """CSS pixels of a plot of so many bars."""
    return 70 + 20 * n


def histogram(axes: Any, edges: Numbers, rows: Numbers) -> None:
    left, right = np.asarray(edges[:-1]), np.asarray(edges[1:])
    axes.bar(left, rows, width=right - left, align="edge", color=FIRST, linewidth=0.4, edgecolor="none")
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("rows")
    axes.yaxis.set_major_formatter(in_thousands)


MOST_TICKS = 5
TICK_LETTERS = 8  # Five longer labels do not fit side by side.


def bin_ticks(names: Sequence[str]) -> list[tuple[float, str]]:
    """The place and the label of each bin, (place, ""): of a range its lower edge, of others the middle."""
    ticks = []
    for place, name in enumerate(names):
        low = name.removeprefix("above ") if name.startswith("above ") else name.partition(" to ")[0]
        if name.startswith("below "):
            ticks.append((place - 0.5, ""))
        elif low != name:
            ticks.append((place - 0.5, edge(low)))
        else:
            ticks.append((float(place), short(name, 12)))
    return ticks


def edge(text: str) -> str:
    """An edge of a bin with three digits, if it is a number."""
    try:
        value = float(text)
    except ValueError:  # a date
        return short(text, 12)
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def outlines(axes: Any, names: Sequence[str], before: Numbers, now: Numbers) -> None:
    """Two distributions over the same bins: that of training filled, the current one as a line."""
    edges = np.arange(len(names) + 1) - 0.5
    axes.stairs(before, edges, fill=True, color=PALE, label="training rows")
    axes.stairs(now, edges, color=SECOND, linewidth=2, label="these rows")
    ticks = [(place, text) for place, text in bin_ticks(names) if text]
    ticks = ticks[:: -(-len(ticks) // MOST_TICKS)]
    axes.set_xticks([place for place, _ in ticks], [text for _, text in ticks], fontsize=9)
    if max((len(text) for _, text in ticks), default=0) > TICK_LETTERS:
        axes.tick_params(axis="x", rotation=20)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("fraction of rows, %")
    axes.set_ylim(0.0, 1.25 * max(*before, *now))
    axes.legend(loc="upper left", frameon=False, ncols=2, fontsize=9)


def swarm(axes: Any, names: Sequence[str], values: NDArray[Any]) -> None:
    """A line for each name with a point for each row (rows, names), side by side if they are many."""
    low, high = float(values.min()), float(values.max())
    for place, column in enumerate(values.T):
        _, bin_of = np.unique(np.round((column - low) / max(high - low, 1e-300) * 60), return_inverse=True)
        order = np.argsort(bin_of, kind="stable")
        starts = np.flatnonzero(np.diff(bin_of[order], prepend=-1))
        rank = np.arange(len(column)) - np.repeat(starts, np.diff(np.append(starts, len(column))))
        side = np.where(rank % 2, -1, 1) * ((rank + 1) // 2)
        widest = max(int(np.abs(side).max()), 1)
        axes.scatter(column[order], place + 0.38 * side / max(widest, 12), s=6, color=FIRST, linewidths=0)
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
    """Plain numbers on a logarithmic axis: at 1, 2 and 5, or fewer of them on a longer one."""

    def shown(value: float, _: Any) -> str:
        low, high = axis.get_view_interval()
        decades = np.log10(high / low) if 0 < low < high else 0.0
        digits = "125" if decades <= 1.5 else "13" if decades <= 3 else "1"
        return in_thousands(value) if f"{value:e}"[0] in digits else ""

    for setting in (axis.set_major_formatter, axis.set_minor_formatter):
        setting(shown)


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
    low, high = axes.get_xlim()
    low, high = min(low, 0.95 * chosen[0]), max(high, 1.05 * chosen[0])
    axes.set_xlim(low, high)
    right = chosen[0] > (low + high) / 2  # The name is on the other side.
    axes.annotate(
        "chosen",
        chosen,
        (-9 if right else 9, -12),
        textcoords="offset points",
        color=SECOND,
        ha="right" if right else "left",
    )


def in_thousands(value: float, _: Any = None) -> str:
    """A count on an axis."""
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


def context(axes: Any, x: Numbers, y: Numbers) -> None:
    """A line for comparison only."""
    axes.plot(x, y, color=PALE, linewidth=1.0, linestyle=LOOKS[2][1])
