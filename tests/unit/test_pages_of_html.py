"""Pages: whole and safe whatever the names are, told without pictures too, and replaced only where ours."""

import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcpred.pages import charts
from dcpred.pages.charts import COLOURS, drawing, png_of, svg_of
from dcpred.pages.page import Cell, Page, Picture, Section, Table, check_packages, number, percent, render
from dcpred.public.results import plain
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.result_fields import size
from support.html_pages import check_page, seen, shown

pytest.importorskip("matplotlib", reason="matplotlib draws the pictures of pages")
pytest.importorskip("jinja2", reason="jinja2 makes the pages")
pytestmark = pytest.mark.usefixtures("drawn")

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></style></svg><h1>",
    "{{ 2311 * 4001 }}{% raw %}",
    "&amp;&lt;",
    "]]><!--",
    "a$b$ \\frac{",
    "\x00\x1b[31m\u202e\ud800",
    "漢字 🎉 é",
    "x" * 5_000,
    "",
)


def everything(name: str) -> Page:
    """A page with a name wherever a name can stand in a text."""
    table = Table([name, "rows"], [[name, "1"], [name, Cell(name, 0.5, pale=True)]], name, name)
    drawn = Picture(name, name, [], table)
    section = Section(name, name, [(name, name)], [drawn, table], [(name, table)])
    return Page(name, name, [(name, name)], [section, Section("empty")], [name])


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_but_names(name: str) -> None:
    made = render(everything(name)).html
    found = check_page(made)
    assert [tag for tag, _ in found.elements].count("h1") == 1
    assert [tag for tag, _ in found.elements].count("h2") == 1, "an empty section is left out"
    told = shown(made)
    if name.isprintable():
        assert name.strip() in told
    assert str(2311 * 4001) not in told
    assert not [c for c in told if not c.isprintable()]
    made.encode()


def test_hostile_names_in_pictures() -> None:
    def paint(axes: Any) -> None:
        charts.lines(axes, [charts.Line(name, [0, 1], [i, i + 1]) for i, name in enumerate(HOSTILE)])
        axes.set_xlabel(plain(HOSTILE[0]))
        charts.bars(axes, HOSTILE, [1.0] * len(HOSTILE), [plain(name) for name in HOSTILE])

    parts = [charts.picture(plain(name, 20), f"{name} is told in words, too", paint) for name in HOSTILE[:1]]
    parts.append(charts.picture("Wide", "told in so many words", paint, wide=True))
    found = check_page(render(Page("A", sections=[Section("B", parts=parts)])).html)
    for name in HOSTILE:
        assert not name or charts.short(name).strip() in found.texts["text"]


@given(st.text(max_size=30))
def test_any_name(name: str) -> None:
    """Of a cell, a heading and a fact; pictures take longer and are drawn of some."""
    table = Table([name, "n"], [[name, name]], name)
    made = render(Page(name, name, [(name, name)], [Section(name, name, parts=[table])])).html
    found = check_page(made)
    assert len(found.named("td")) == 1
    made.encode()


@given(st.lists(st.text(max_size=12), min_size=1, max_size=3))
def test_any_name_in_a_picture(names: list[str]) -> None:
    """As small as can be, so that it is fast."""
    with drawing(100, 60) as figure:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        for name in names:
            axes.text(0, 0, plain(name))
        drawn = svg_of(figure, "p", names[0], "told in so many words", "narrow")
    found = seen(drawn)
    assert not found.unbalanced
    assert not found.open
    assert [text for text in found.texts.get("text", [])] == [
        t for name in names if (t := plain(name).strip())
    ]


def test_pictures_take_colours_and_font_from_the_page() -> None:
    with drawing(200, 120) as figure:
        axes = figure.add_subplot()
        for colour in COLOURS:
            axes.plot([0, 1], [0, 1], "o-", color=colour)
        drawn = svg_of(figure, "p", "lines", "some lines in all colours")
        assert png_of(figure).startswith(b"\x89PNG")
    assert not re.search(r"#[0-9a-fA-F]{6}\b|font-family|<style|xmlns|metadata|DejaVu", drawn)
    assert {name for name in COLOURS.values() if f"var(--{name})" in drawn} >= {
        "ink",
        "muted",
        "grid",
        "first",
    }
    css = (Path(charts.__file__).parent / "templates" / "page.css").read_text()
    for name in COLOURS.values():
        assert css.count(f"--{name}:") == 3, "light, dark and printed"


def test_the_same_picture_has_the_same_bytes() -> None:
    one, other = (
        charts.picture("A", "told in so many words", lambda axes: axes.plot([1, 2])) for _ in range(2)
    )
    assert one == other


def test_old_shorthand_of_fonts() -> None:
    """matplotlib 3.9 writes them in one."""
    from dcpred.pages.charts import _attribute

    style = "font: 700 10px 'DejaVu Sans', 'Arial', sans-serif; text-anchor: middle"
    assert _attribute("style", style, {}) == "font-weight: 700; font-size: 10px; text-anchor: middle"
    plain_style = "font: 10px 'DejaVu Sans', sans-serif; text-anchor: start"
    assert _attribute("style", plain_style, {}) == "font-weight: 400; font-size: 10px; text-anchor: start"


# -- charts --------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0.01, 0.2))
def test_names_at_the_right_do_not_overlap(places: list[float], least: float) -> None:
    found = charts.spread(sorted(places), least)
    assert all(b - a >= least - 1e-9 for a, b in pairwise(found))
    if len(places) == 1:
        assert found == places


@given(st.integers(0, 2**32 - 1), st.integers(1, 25))
def test_names_beside_points_do_not_overlap(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    room = (400.0, 300.0)
    taken: list[tuple[float, float, float, float]] = []
    for i in range(n):
        at = rng.uniform((0, 0), room)
        found = charts._free_place("x" * int(rng.integers(1, 20)), at, room, taken)
        if found is None:
            assert i > 0 or min(at[0], room[0] - at[0]) < 150
            continue
        assert found[0] >= 0
        assert found[1] >= 0
        assert found[2] <= room[0]
        assert found[3] <= room[1]
        for other in taken:
            apart = (
                found[0] >= other[2] or other[0] >= found[2] or found[1] >= other[3] or other[1] >= found[3]
            )
            assert apart
        taken.append(found)


def test_lines_differ_without_colour() -> None:
    looks = [(str(dashes), marker) for _, dashes, marker in charts.LOOKS]
    assert len(set(looks)) == len(looks)
    assert len({marker for _, marker in looks}) == len(looks)


# -- texts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (plain("a\nb\x1bc"), "a�b�c"),
        (plain("abcdef", 4), "abc…"),
        (plain(None), "None"),
        (number(None), "–"),
        (number(-1.23456), "−1.235"),
        (number(123456.7), "123,457"),
        (number(3), "3"),
        (number(1e-7), "1e−07"),
        (percent(0.12345, 2), "12.35 %"),
        (percent(None), "–"),
        (size(512), "512 bytes"),
        (size(1536), "1.5 KiB"),
        (size(3 * 2**40), "3,072 GiB"),
        (size(None), "–"),
    ],
)
def test_texts(made: str, text: str) -> None:
    assert made == text


# -- files and notebooks -------------------------------------------------------------------------------------


def test_a_page_replaces_its_own_kind_alone(tmp_path: Path) -> None:
    made = render(Page("A"))
    made.save(tmp_path / "report.html")
    render(Page("B")).save(tmp_path / "report.html")
    assert "<title>B</title>" in (tmp_path / "report.html").read_text()
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    for place, sentence in (
        ("mine.html", "it is another file"),
        (".", "it is a folder"),
        ("none/report.html", "its folder does not exist"),
    ):
        with pytest.raises(DataError, match=sentence):
            made.save(tmp_path / place)
    assert (tmp_path / "mine.html").read_text() == "<p>mine</p>"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.html", "report.html"]


def test_a_notebook_shows_a_page_in_a_frame() -> None:
    made = render(Page('"><script>x</script>'))
    frame = made._repr_html_()
    found = seen(frame)
    assert [tag for tag, _ in found.elements] == ["iframe"]
    assert found.named("iframe")[0]["srcdoc"] == made.html
    assert found.named("iframe")[0]["sandbox"] == ""
    assert "script" not in repr(made).replace("<script>x</script>", "")


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_pages_want_packages(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(
        SettingsError, match=rf'{missing} is not installed\. Run pip install "dcpred\[report\]"'
    ):
        check_packages("a report", "report")


def test_a_picture_is_a_picture_and_a_table_a_table() -> None:
    assert not Picture("a", "b", []).is_table
    assert Table(["a"], []).is_table


def test_ticks_of_bins_are_their_lower_edges() -> None:
    names = ["below -1.5", "-1.5 to -0.750234", "-0.750234 to 49373.7", "above 49373.7", "missing"]
    assert charts.bin_ticks(names) == [
        *((-0.5, ""), (0.5, "-1.5"), (1.5, "-0.75"), (2.5, "49,374")),
        (4.0, "missing"),
    ]
    assert charts.bin_ticks(["2025-01-01 to 2025-02-03", "basic", "above 2025-02-03"]) == [
        *((-0.5, "2025-01-01"), (1.0, "basic"), (1.5, "2025-02-03")),
    ]


@pytest.mark.parametrize("low", [1e-6, 1e-4, 1e-3, 1e-2, 0.2])
def test_labels_of_a_logarithmic_axis_are_apart(low: float) -> None:
    with drawing(360, 320) as figure:
        axes = figure.add_subplot()
        axes.plot([low, 1.0], [0.0, 1.0])
        charts.log_x(axes)
        _check_apart(figure, axes)


@pytest.mark.parametrize("names", [[f"{-n / 7:.6f} to {-(n + 1) / 7:.6f}" for n in range(22)], ["a"] * 3])
def test_labels_of_bins_are_apart(names: list[str]) -> None:
    with drawing(360, 250) as figure:
        axes = figure.add_subplot()
        charts.outlines(axes, names, *np.ones((2, len(names))))
        _check_apart(figure, axes)


def _check_apart(figure: Any, axes: Any) -> None:
    figure.draw_without_rendering()
    ticks = [*axes.xaxis.get_ticklabels(minor=False), *axes.xaxis.get_ticklabels(minor=True)]
    low, high = axes.get_xlim()
    boxes = [t.get_window_extent() for t in ticks if t.get_text() and low <= t.get_position()[0] <= high]
    boxes.sort(key=lambda box: box.x0)
    assert len(boxes) >= 2
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


@pytest.mark.parametrize("cost", [0.5, 1.0, 4.4, 11.9, 40.0])
def test_the_chosen_point_and_its_name_lie_within_the_axes(cost: float) -> None:
    for points in (
        [(1.0, 0.9, 0.01), (4.4, 0.97, 0.01)],
        [(4.4, 0.97, 0.01)],
        [(4.3, 0.9, 0.1), (4.4, 0.97, 0.0)],
    ):
        with drawing(360, 250) as figure:
            axes = figure.add_subplot()
            charts.frontier(axes, points, (cost, 0.975))
            figure.draw_without_rendering()
            box = axes.get_window_extent()
            (name,) = axes.texts
            assert box.x0 < axes.transData.transform((cost, 0.975))[0] < box.x1
            assert box.x0 <= name.get_window_extent().x0 < name.get_window_extent().x1 <= box.x1
