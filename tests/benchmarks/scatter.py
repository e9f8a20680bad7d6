"""Accuracy against cost as an SVG document, written without a library: small, and everywhere the same bytes.

The card is opaque, so that it reads on light pages and on dark ones.
"""

from dataclasses import dataclass
from math import log10
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 460, 400  # of a panel, in pixels
LEFT, RIGHT, TOP, BOTTOM = 54, 16, 44, 46  # margins of a panel
LEGEND = 4 * 22  # height of the lines under the panels
COSTS = (1, 10, 100, 1_000, 10_000)
MOST_COST = 40_000
ACCURACIES = (60, 70, 80, 90, 95, 97, 98, 99)
LOWEST, HIGHEST = 60.0, 99.2
STYLE = {  # colour, words of the legend
    "ours": ("#0b6bcb", "dcpred"),
    "as in the paper": ("#0b6bcb", "dcpred, only what the paper has"),
    "paper": ("#444444", "printed in the paper (2014)"),
    "rival": ("#c2410c", "rivals, measured"),
}
CHARACTER = 7.9  # mean width of a character, in pixels
Box = tuple[float, float, float, float]  # left, top, right, bottom
LABELLED = ("paper", "rival")


@dataclass(frozen=True)
class Point:
    """who  a key of STYLE; cost in linear predictions; accuracy in percent."""

    who: str
    name: str
    cost: float
    accuracy: float


@dataclass(frozen=True)
class Panel:
    """One data set."""

    title: str
    points: list[Point]


def across(cost: float) -> float:
    """Pixels from the left of a panel: logarithmic."""
    return LEFT + (WIDTH - LEFT - RIGHT) * log10(max(cost, 0.7) / 0.7) / log10(MOST_COST / 0.7)


def down(accuracy: float) -> float:
    """Pixels from the top of a panel: logarithmic in the errors, so that from 98 to 99 % is as far as from
    80 to 90.
    """
    most, least = log10(100 - LOWEST), log10(100 - HIGHEST)
    return TOP + (HEIGHT - TOP - BOTTOM) * (log10(100 - accuracy) - least) / (most - least)


def draw(panels: list[Panel]) -> str:
    """The document. Points of "ours" are joined in the order of their cost."""
    width, height = WIDTH, HEIGHT * len(panels) + LEGEND  # one above the other: readable on a telephone
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" font-family="Helvetica, Arial, sans-serif" font-size="14" role="img">',
        "<title>Accuracy against the cost of a prediction</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="#d0d7de"/>',
    ]
    for place, panel in enumerate(panels):
        parts += [f'<g transform="translate(0 {place * HEIGHT})">', *_panel(panel), "</g>"]
    return "\n".join([*parts, *_legend(HEIGHT * len(panels)), "</svg>", ""])


def _panel(panel: Panel) -> list[str]:
    left, right, top, bottom = LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM
    parts = [
        _text((left + right) / 2, 24, panel.title, "#111111", "middle", 'font-size="16" font-weight="bold"')
    ]
    parts.append(_text(8, top - 10, "accuracy on test rows", "#444444", "start"))
    for accuracy in ACCURACIES:
        y = down(accuracy)
        parts.append(f'<path d="M{left} {y:.1f}H{right}" stroke="#e5e7eb"/>')
        parts.append(_text(left - 6, y + 4, f"{accuracy} %", "#444444", "end"))
    for cost in COSTS:
        x = across(cost)
        parts.append(f'<path d="M{x:.1f} {top}V{bottom}" stroke="#e5e7eb"/>')
        parts.append(_text(x, bottom + 16, f"{cost:,}", "#444444", "middle"))
    parts.append(
        _text((left + right) / 2, bottom + 34, "cost of a row, in linear predictions", "#444444", "middle")
    )
    ours = sorted((p for p in panel.points if p.who == "ours"), key=lambda p: (p.cost, p.accuracy))
    corners = " ".join(f"{across(p.cost):.1f},{down(p.accuracy):.1f}" for p in ours)
    parts.append(f'<polyline points="{corners}" fill="none" stroke="{STYLE["ours"][0]}" stroke-width="2"/>')
    spots = [(across(p.cost), down(p.accuracy)) for p in panel.points]
    parts += [_mark(p.who, *spot) for p, spot in zip(panel.points, spots, strict=True)]
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in spots]
    # The longest names first: they fit in the fewest places.
    for point in sorted(panel.points, key=lambda p: -len(p.name)):
        if point.who in LABELLED:
            x, y = across(point.cost), down(point.accuracy)
            box, anchor, at = _place(x, y, CHARACTER * len(point.name), taken)
            taken.append(box)
            parts.append(_text(at, box[3] - 3, point.name, STYLE[point.who][0], anchor))
    return parts


def _place(x: float, y: float, width: float, taken: list[Box]) -> tuple[Box, str, float]:
    """The first place beside a mark that is free: right of it, left, above, below; right where none is.
    The box, and where text is anchored to it.
    """
    places = (
        ((x + 8, y - 7, x + 8 + width, y + 7), "start", x + 8),
        ((x - 8 - width, y - 7, x - 8, y + 7), "end", x - 8),
        ((x - width / 2, y - 21, x + width / 2, y - 7), "middle", x),
        ((x - width / 2, y + 7, x + width / 2, y + 21), "middle", x),
    )
    free = [one for one in places if one[0][2] < WIDTH and not any(_overlap(one[0], t) for t in taken)]
    return (free or places)[0]


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _legend(top: float) -> list[str]:
    parts = []
    for line, (who, (colour, words)) in enumerate(STYLE.items()):
        parts.append(_mark(who, LEFT, top + 10 + 20 * line))
        parts.append(_text(LEFT + 12, top + 15 + 20 * line, words, colour, "start"))
    return parts


def _mark(who: str, x: float, y: float) -> str:
    """A disc, a ring, a cross or a square."""
    colour = STYLE[who][0]
    if who in ("ours", "as in the paper"):
        inside = colour if who == "ours" else "#ffffff"
        return (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{inside}" stroke="{colour}" stroke-width="2"/>'
        )
    if who == "paper":
        corners = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"
        return f'<path d="{corners}" stroke="{colour}" stroke-width="2"/>'
    return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}"/>'


def _text(x: float, y: float, words: str, colour: str, anchor: str, more: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" {more}>{escape(words)}</text>'
    )
