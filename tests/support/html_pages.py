"""Pages of HTML as a parser sees them, and what every page of ours must be."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

from dcpred.pages import charts

VOID = {"meta", "link", "br", "img", "input", "hr"}
# What the cleaned pictures are made of.
SVG = {"svg", "title", "desc", "defs", "g", "path", "use", "text", "clippath", "rect", "tspan", "image"}

SKETCH = {"svg": b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"/>', "png": b"\x89PNG\r\n\x1a\n"}
sketching, _drawing = True, charts.drawing


@contextmanager
def sketched(width: int, height: int) -> Iterator[Any]:
    """A figure that is painted on and then not laid out: that takes most of the time of a page."""

    def save(file: Any, format: str = "", **_: Any) -> None:
        data = SKETCH.get(format or Path(file).suffix.removeprefix("."), b"%PDF")
        file.write(data) if format else Path(file).write_bytes(data)

    with _drawing(width, height) as figure:
        if sketching:
            figure.savefig, figure.draw_without_rendering = save, lambda: None
        yield figure


@dataclass
class Seen(HTMLParser):
    """Elements in their order, each with its attributes and text."""

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    """Texts by the element that they stand in."""
    unbalanced: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            self.texts.setdefault(self.open[-1], []).append(data.strip())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def seen(page: str) -> Seen:
    parser = Seen()
    parser.feed(page)
    parser.close()
    return parser


def check_page(page: str) -> Seen:
    """What every page is: whole, of one file, without scripts, in order, and told without pictures, too."""
    found = seen(page)
    assert page.startswith("<!doctype html>")
    assert not found.unbalanced
    assert not found.open
    tags = [tag for tag, _ in found.elements]
    assert not {"script", "iframe", "object", "embed", "link", "img", "form", "base"} & set(tags)
    for tag, attributes in found.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "src", "action", "data", "xlink:href"):
                assert (value or "").startswith("#"), (tag, value)
            assert not re.search(r"url\((?!#)|javascript:|@import|https?:", value or ""), (tag, name, value)
    assert found.named("html")[0]["lang"] == "en"
    assert any(one.get("name") == "viewport" for one in found.named("meta"))
    assert any("default-src 'none'" in (one.get("content") or "") for one in found.named("meta"))
    check_headings([int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)])
    check_names(found)
    assert tags.count("table") == tags.count("thead")
    return found


def check_headings(levels: list[int]) -> None:
    """One of the first level, before all others; none is left out on the way down."""
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels)), levels


def check_names(found: Seen) -> None:
    """Every name is given once, every reference leads to one, and every picture has its text."""
    ids = [attributes["id"] for _, attributes in found.elements if attributes.get("id")]
    assert len(ids) == len(set(ids)), [one for one in ids if ids.count(one) > 1]
    for tag, attributes in found.elements:
        for name in (attributes.get("aria-labelledby") or "").split():
            assert name in ids, name
        for value in attributes.values():
            for name in re.findall(r"url\(#([^)]+)\)", value or ""):
                assert name in ids, name
        if tag == "use":
            assert (attributes["href"] or "").removeprefix("#") in ids
    pictures = found.named("svg")
    for picture in pictures:
        assert picture["role"] == "img"
        assert len((picture["aria-labelledby"] or "").split()) == 2
    assert len(found.texts.get("desc", [])) == len(pictures)
    assert all(len(text) > 20 for text in found.texts.get("desc", []))


def shown(page: str) -> str:
    """All texts of a page but style."""
    found = seen(page)
    return " ".join(text for tag, texts in found.texts.items() if tag != "style" for text in texts)
