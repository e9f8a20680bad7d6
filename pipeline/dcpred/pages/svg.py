"""Plots of matplotlib, adapted to a page: with its colours and its font, without name clashes, and with
text alternatives.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

from dcpred.pages.text import plain

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
    from matplotlib import rc_context  # noqa: PLC0415 - optional, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

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
    summary = {
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-text",
        "class": f"picture {kind}".strip(),
    }
    root.attrib = {"viewBox": root.attrib["viewBox"], **summary}
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
    found = [one for value in element.attrib.values() for one in REFERENCE.findall(value)]
    links = [value for key, value in element.attrib.items() if key.endswith("href")]
    return found + [link.removeprefix("#") for link in links]


def _attribute(key: str, value: str, names: dict[str, str]) -> str:
    if key == "id":
        return names[value]
    if key == "href":
        return f"#{names[value.removeprefix('#')]}"
    if key == "style":
        for colour, called in COLOURS.items():
            value = value.replace(colour, f"var(--{called})")
        value = FONT.sub(_font, FAMILY.sub("", value))
    value = REFERENCE.sub(lambda found: f"url(#{names[found[1]]})", value)
    return LONG_NUMBER.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value)


def _font(found: re.Match[str]) -> str:
    return f"font-weight:{found['weight'] or ' 400'}; font-size: {found['size']}; "
