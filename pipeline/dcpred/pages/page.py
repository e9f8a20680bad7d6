"""A page as what it says, and how that becomes HTML: one file without scripts that loads nothing.

A page of hostile names is a page with odd names: every text is escaped by the template, pictures are rebuilt
element by element (dcpred.pages.svg), and the page forbids its reader to load or run anything.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dcpred.version import __version__
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.storage.addresses import local_path
from dcpred_tasks.storage.atomic_files import PARTIAL, check_new_name, replace_bytes, resource_errors

GENERATOR = "dcpred report"  # who made a page, as it says itself
MARK = f'<meta name="generator" content="{GENERATOR}'.encode()
LOOKED_AT = 1_000  # bytes of a file in which the mark of ours is


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    shade: float = 0.0
    """From 0 to 1: how dark its ground is."""
    pale: bool = False
    """Whether it is of no interest."""


@dataclass(frozen=True)
class Table:
    """Lines of cells. What stands in the first column names the line."""

    heads: Sequence[str]
    lines: Sequence[Sequence[str | Cell]]
    title: str = ""
    text: str = ""
    """What there is to say of it."""
    texts: int = 1
    """Columns that are texts, from the left; the others are numbers, which are set to the right."""
    wraps: bool = False
    """Whether texts may take several lines: of sentences, and not of names."""
    dense: bool = False
    """Whether its columns stand close together."""
    wide: bool = False
    """Whether it takes the whole width of the page."""
    is_table = True


@dataclass(frozen=True)
class Picture:
    """What is drawn, and the same in words and numbers."""

    title: str
    text: str
    """What it shows, in a sentence or two."""
    svgs: Sequence[str]
    """Elements (dcpred.pages.svg.svg_of): one, or one for wide and one for narrow pages."""
    table: Table | None = None
    """Its numbers, which a reader may open."""
    wide: bool = False
    """Whether it takes the whole width of the page."""
    is_table = False


@dataclass(frozen=True)
class Section:
    """A part of a page under a heading of its own."""

    title: str
    text: str = ""
    facts: Sequence[tuple[str, str]] = ()
    parts: Sequence[Picture | Table] = ()
    """Pictures and tables, which stand side by side where there is room."""
    folded: Sequence[tuple[str, Table]] = ()
    """Tables that a reader may open, with what they are."""

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.facts or self.parts or self.folded)


@dataclass(frozen=True)
class Page:
    """All of a page. The first facts are what matters most."""

    title: str
    lead: str = ""
    facts: Sequence[tuple[str, str]] = ()
    sections: Sequence[Section] = ()
    warnings: Sequence[str] = ()
    """What a reader has to know before all else."""


@dataclass(frozen=True)
class Report:
    """A page of HTML. A notebook shows it."""

    title: str
    html: str = field(repr=False)

    def save(self, path: str | Path) -> None:
        """Write the page to a file. One that was there is replaced if it is such a page, too; else raises
        DataError.
        """
        file = Path(local_path(path))
        with resource_errors(file):
            check_free(file)
            replace_bytes(file, self.html.encode())

    def _repr_html_(self) -> str:
        """In a frame of its own, so that neither this page nor the notebook changes the other."""
        page = html.escape(self.html, quote=True)
        return (
            f'<iframe title="{html.escape(self.title, quote=True)}" sandbox="" srcdoc="{page}"'
            ' style="width: 100%; height: 40rem; border: 1px solid #d5dae0; border-radius: 6px"></iframe>'
        )


def check_free(file: Path) -> None:
    """Raise DataError or ResourceError where no page can be written, or something stands that is not ours to
    replace.
    """
    check_new_name(file, PARTIAL)
    if file.is_dir():
        raise DataError(f"a report was to be written to {file}, but that is a folder; name a file in it")
    if not file.absolute().parent.is_dir():
        raise DataError(f"a report was to be written to {file}, but its folder does not exist; make it first")
    if file.exists():
        with file.open("rb") as there:
            if MARK not in there.read(LOOKED_AT):
                raise DataError(
                    f"a report was to be written to {file}, but another file is there; remove it or name"
                    " another place"
                )


def check_packages(what: str, extra: str) -> None:
    """Raise SettingsError where pages cannot be made. Before any work.

    what   that makes pages, in words
    extra  of the package, which brings along what is missing
    """
    for package in ("jinja2", "matplotlib"):
        if find_spec(package) is None:
            raise SettingsError(
                f"{what} draws pictures, but {package} is not installed; install it (pip install"
                f' "dcpred[{extra}]")'
            )


def render(page: Page) -> Report:
    made = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    text = _template().render(page=page, version=__version__, made=made, generator=GENERATOR)
    return Report(page.title, text)


def _printable(value: Any) -> Any:
    """A text that is put into a page, without what does not print. Markup is ours."""
    if type(value) is not str or value.isprintable():
        return value
    return "".join(c if c.isprintable() else "�" for c in value)


@lru_cache(maxsize=1)
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - optional

    environment = Environment(
        loader=PackageLoader("dcpred.pages", "."),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")
