"""Pages in a real browser: nothing to complain of, nothing loaded, nothing wider than a phone, and pictures
that have a text to whoever does not see them. One browser for all.
"""

import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from dcpred.pages.page import Page, Report, render
from dcpred.reports.evaluation_page import evaluation_page
from dcpred.reports.report import report
from dcpred.scoring.score import score
from dcpred_compare.page import comparison_page
from dcpred_compare.result import CompareReport, CompareResult
from dcpred_compare.systems import every_system
from dcpred_tasks.artifacts.model_artifact import write_model
from dcpred_tasks.evaluation.measures import Measures
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.compact_model import Reference, class_numbers
from dcpred_tasks.scoring.labels import score_with_leaves
from support import html_pages
from support.browser import Browser, browser, chromium
from support.data import make_group
from support.models import random_model, random_rows

pytest.importorskip("matplotlib", reason="matplotlib draws the pictures of pages")
pytest.importorskip("jinja2", reason="jinja2 makes the pages")
pytestmark = [
    pytest.mark.tools,
    pytest.mark.skipif(chromium() is None, reason="Chromium is not there: apt-get install chromium"),
]

WIDTHS = (390, 1280)
LONG = "a_name_without_any_blank_that_is_longer_than_a_telephone_is_wide_" * 2
NAMES = ("<b onclick='x()'>", "</style><script>alert(1)</script>", LONG, "漢字 🎉", "{{ 7 * 7 }}")


def pages(folder: Path) -> dict[str, Report]:
    """One of each kind, with names that are long and hostile."""
    model = random_model(7, n_outputs=5, d=5)
    model = replace(model, classes=NAMES, reference=Reference(np.zeros(5), np.arange(1.0, 6.0)))
    settings = {"task": "classification", "n_leaves": 4, "landmarks": 16, LONG: LONG}
    write_model(folder / "model", model, settings, {"feature_names": [*NAMES], "versions": {LONG: LONG}})
    X = random_rows(model, 300, seed=1).astype(np.float64)
    X[5, 2] = np.inf
    make_group(folder / f"{LONG[:80]}.zarr", X, chunk_rows=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", 20)
        score(folder / "model", f"{folder}/{LONG[:80]}.zarr/X", folder / "out")
    rng = np.random.default_rng(0)
    many = replace(random_model(3, n_outputs=40, d=3), classes=tuple(f"{LONG[:60]} {i}" for i in range(40)))
    numbers = random_model(3, task="regression", d=3)
    return {
        "model": report(folder / "model"),
        "run": report(folder / "out"),
        "classes": render(evaluation_page(evaluated(model, rng))),
        "many-classes": render(evaluation_page(evaluated(many, rng))),
        "numbers": render(evaluation_page(evaluated(numbers, rng))),
        "comparison": render(comparison()),
    }


def evaluated(model: compact_model.Model, rng: np.random.Generator) -> dict[str, object]:
    X = random_rows(model, 500, seed=2)
    rows = score_with_leaves(model, X, scale=True, score=compact_model.score_rows)
    decision = rows.decision
    if model.task == "regression":
        target = decision[:, 0] + rng.normal(size=500)
    else:
        target = np.where(
            rng.random(500) < 0.8, class_numbers(decision), rng.integers(0, len(model.classes), 500)
        )
    found = Measures(model)
    found.add(model, decision, target, rows)
    return {"model": LONG, "data": "X", "n_samples": 500, "n_bad": 0, "task": model.task, **found.as_dict()}


def comparison() -> Page:
    rng = np.random.default_rng(0)
    results = []
    for name in every_system():
        for n in (8, 64):
            quality, cost = 0.6 + 0.3 * rng.random(), 10.0 ** rng.uniform(0, 4)
            given = name, f"{n} {LONG}", "done", "", quality, cost, 1.0, 2.0, 3, 0.9, None
            results.append(CompareResult(*given))
    lost = replace(results[0], status="failed", why=LONG, quality=None, cost_ratio=None)
    errors = [
        {"basis": name, "kernel": "rbf", "functions": n, "error": rng.random()}
        for name in ("fourier", "nystrom", LONG[:50])
        for n in (16, 64, 256)
    ]
    return comparison_page(
        CompareReport(
            "folder",
            "classification",
            100,
            50,
            3,
            {"gamma": 1.0},
            [*results, lost],
            errors,
            2.5,
            [f"{LONG}."],
        )
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """An address on loopback that serves the pages by their names, which follow."""
    with mock.patch.object(html_pages, "sketching", False):
        made = pages(tmp_path_factory.mktemp("pages"))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = made.get(self.path.strip("/"))
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(b"" if found is None else found.html.encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", list(made)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as found:
        yield found


BOX = "e.getBoundingClientRect()"
EDGE = "document.documentElement.clientWidth"
# Elements that stick out to the right of the page, but for those in a part that scrolls by itself.
STICKING_OUT = f"""
[...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll, svg, .unseen"))
  .filter(e => {BOX}.right > {EDGE} + 1).map(e => e.outerHTML.slice(0, 200))
"""
# Texts of pictures that are shown and are cut off at an edge of the page.
CUT_OFF = f"""
[...document.querySelectorAll("svg text")].filter(e => {BOX}.width > 0)
  .filter(e => {BOX}.right > {EDGE} + 1 || {BOX}.left < -1).map(e => e.textContent)
"""
PICTURES_SHOWN = f"[...document.querySelectorAll('svg')].filter(e => {BOX}.width > 0).length"
# Sections with pictures or tables that leave the right half of a wide page empty.
HALF_EMPTY = f"""
[...document.querySelectorAll("section")].filter(e => e.querySelector(".parts"))
  .filter(e => Math.max(...[...e.querySelectorAll("svg, table")].map(e => {BOX}.right)) < {EDGE} / 2)
  .map(e => e.querySelector("h2").textContent)
"""
LEAST_TEXT = f"""
Math.min(...[...document.querySelectorAll("svg text")].map(e => {BOX}.height).filter(h => h > 0))
"""
LEAST_PIXELS = 8  # height of a text that can be read


def test_pages_in_a_browser(served: tuple[str, list[str]], tab: Browser) -> None:
    address, names = served
    for name in names:
        for width in WIDTHS:
            check(tab, f"{address}/{name}", width)


def check(tab: Browser, address: str, width: int) -> None:
    tab.open(address, width)
    where = f"{address} on {width} pixels"
    assert tab.complaints() == [], where
    assert tab.requests() == [address], where
    wide, own = tab.value(f"[document.documentElement.scrollWidth, {EDGE}]")
    assert wide <= own <= width, where
    assert tab.value(STICKING_OUT) == [], where
    assert tab.value(CUT_OFF) == [], where
    assert width < max(WIDTHS) or tab.value(HALF_EMPTY) == [], where
    assert tab.value(LEAST_TEXT) >= LEAST_PIXELS, where
    assert tab.value("document.querySelectorAll('script, b').length") == 0, where
    pictures = [node for node in tree(tab) if node["role"] in ("image", "img", "graphics-document")]
    assert len(pictures) == tab.value(PICTURES_SHOWN) >= 2, where
    for picture in pictures:
        assert len(picture["name"]) > 40, where


def tree(tab: Browser) -> list[dict[str, str]]:
    """What a screen reader is told: role and name of each element."""
    nodes = tab.ask("Accessibility.getFullAXTree")["nodes"]
    return [
        {"role": node.get("role", {}).get("value", ""), "name": node.get("name", {}).get("value", "")}
        for node in nodes
        if not node.get("ignored")
    ]


def test_a_page_that_loads_something_is_found_out(tab: Browser, tmp_path: Path) -> None:
    """The checks themselves: each of these faults is one that they find."""
    html = render(Page("A page")).html
    faults = {
        "script": "<script>document.title = 'x'</script>",
        "picture": '<img src="http://127.0.0.1:9/x.png" alt="">',
        "width": '<div style="width: 500px">wide</div>',
    }
    for name, fault in faults.items():
        file = tmp_path / f"{name}.html"
        file.write_text(html.replace("</body>", f"{fault}</body>"))
        tab.open(file.as_uri(), 390)
        assert bool(tab.complaints()) == (name != "width"), name
        assert bool(tab.value(STICKING_OUT)) == (name == "width"), name
