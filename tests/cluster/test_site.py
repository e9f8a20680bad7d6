"""The documentation site: built with warnings as errors, complete, self-contained, and read in a browser."""

import http.server
import re
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from click import Context

import dcpred
from dcpred.cli import main
from support.browser import Browser, browser, chromium
from support.once import made_once

for name in ("sphinx", "pydata_sphinx_theme", "myst_parser", "numpydoc", "sphinx_design", "sphinx_gallery"):
    pytest.importorskip(name, reason='the site needs the extra "docs"')

pytestmark = pytest.mark.tools
ROOT = Path(__file__).parents[2]
OBJECT = re.compile(r"^(?P<name>\S+) py:(?P<kind>\w+) 1 ", re.MULTILINE)
SHOWN = (  # of each kind of page one
    *("index", "start/tutorial", "reference/settings", "reference/api/DCPredClassifier"),
    *("reference/commands", "reference/json", "reference/api/index", "reference/api/ScoreReport"),
    *("gallery/index", "gallery/plot_5_comparison", "howto/orchestrators", "project/benchmarks"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, with examples on little data."""
    return made_once(tmp_path_factory, "site", build) / "html"


def build(folder: Path) -> None:
    done = subprocess.run(
        ["env", "DCPRED_GALLERY=quick", sys.executable, ROOT / "pipeline/docs/build.py", folder / "html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class Links(HTMLParser):
    """What a page links to and loads, and the names within it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif tag in ("img", "script", "source", "iframe") and "src" in given:
            self.loaded.add(given["src"])
        elif tag == "link" and given.get("rel") not in ("canonical",):
            self.loaded.add(given.get("href", ""))


@pytest.fixture(scope="module")
def read(site: Path) -> dict[Path, Links]:
    """Every page of the site."""
    return {path: Links(path.read_text()) for path in site.rglob("*.html") if "_static" not in path.parts}


def broken(read: dict[Path, Links]) -> list[str]:
    """Links within the site that lead to no file, or to no place in a page."""
    found = []
    for page, links in read.items():
        for link in links.links | links.loaded:
            address, name = urldefrag(link)
            if urlsplit(address).scheme:
                continue
            target = (page.parent / unquote(urlsplit(address).path)).resolve() if address else page
            inside = name in read[target].names if name and target in read else True
            if not target.is_file() or not inside:
                found.append(f"{page.name}: {link}")
    return found


def test_no_link_of_the_site_is_broken(read: dict[Path, Links]) -> None:
    assert len(read) > 60
    assert broken(read) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    pages = {
        "a.html": '<p id="top"><a href="b.html#here">b</a> <a href="#top">a</a>',
        "b.html": '<h1 id="here"></h1><a href="c.html">c</a><a href="a.html#x">x</a><img src="d.png">',
    }
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    read = {tmp_path / name: Links(text) for name, text in pages.items()}
    assert sorted(broken(read)) == ["b.html: a.html#x", "b.html: c.html", "b.html: d.png"]


def test_the_site_loads_nothing_from_elsewhere_and_names_no_path(read: dict[Path, Links], site: Path) -> None:
    for page, found in read.items():
        assert str(ROOT) not in page.read_text(), "a page names no path of the machine that built it"
        assert [one for one in found.loaded if urlsplit(one).scheme not in ("", "data")] == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"""(url\(|@import)\s*["']?(https?:)?//""", style.read_text()), style


def test_the_reference_has_every_public_name_and_nothing_private(site: Path) -> None:
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    documented = {found["name"] for found in OBJECT.finditer(zlib.decompress(inventory).decode())}
    top = {".".join(name.split(".")[:2]) for name in documented}
    assert top == {f"dcpred.{name}" for name in dcpred.__all__}
    private = {name for name in documented if re.search(r"\._(?!_version__$)", name)}
    assert private == set()
    for name in dcpred.__all__:
        thing = getattr(dcpred, name)
        if isinstance(thing, type):
            members = {
                one
                for base in thing.__mro__
                if base.__module__.startswith("dcpred")
                for one, value in vars(base).items()
                if not one.startswith("_") and (callable(value) or isinstance(value, property))
            }
            assert {one for one in members if f"dcpred.{name}.{one}" not in documented} == set()


def test_the_reference_has_every_command_and_option(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "reference/commands.html").read_text())
    for name in main.list_commands(Context(main)):
        command = main.get_command(Context(main), name)
        assert command is not None
        section = text.partition(f"dcpred {name} [")[2] or text.partition(f"dcpred {name}\n")[2]
        for parameter in command.params:
            if not getattr(parameter, "hidden", False) and parameter.param_type_name == "option":
                assert parameter.opts[0] in section, f"dcpred {name} {parameter.opts[0]}"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """An address on loopback that serves the site."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("Chromium is not there: apt-get install chromium")
    with browser() as found:
        yield found


# Contrast of the text of the page with what is behind it, by the relative luminance of WCAG 2.
CONTRAST = """
(() => {
  const light = text => {
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const text = light(getComputedStyle(document.querySelector("article p, article li")).color);
  const page = light(getComputedStyle(document.body).backgroundColor);
  return [(Math.max(text, page) + 0.05) / (Math.min(text, page) + 0.05), page];
})()
"""
WIDTH = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
TABLES = (
    "[...document.querySelectorAll('article table')].map(t => [t.offsetWidth, t.parentElement.clientWidth])"
)
TEXT_SIZE = "parseFloat(getComputedStyle(document.querySelector('article p, article li')).fontSize)"


@pytest.mark.parametrize("page", SHOWN)
def test_a_page_of_the_site_in_a_browser(address: str, tab: Browser, page: str) -> None:
    """At the width of a telephone and of a desk, in the light and in the dark."""
    for width, dark in ((400, False), (400, True), (1200, False), (1200, True)):
        where = f"{page} on {width} pixels, dark: {dark}"
        tab.open(f"{address}/{page}.html", width, dark=dark)
        assert tab.complaints() == [], where
        assert [one for one in tab.requests() if not one.startswith((address, "data:"))] == [], where
        wide, own = tab.value(WIDTH)
        assert wide <= own <= width, where
        assert tab.value(TEXT_SIZE) >= 14, where
        contrast, background = tab.value(CONTRAST)
        assert contrast >= 7, where
        assert (background < 0.1) == dark, where


@pytest.mark.parametrize("page", ["reference/json", "reference/settings"])
def test_long_tables_fit_a_telephone(address: str, tab: Browser, page: str) -> None:
    tab.open(f"{address}/{page}.html", 400)
    tables = tab.value(TABLES)
    assert len(tables) > 4
    assert [wide for wide, room in tables if wide > room] == []
