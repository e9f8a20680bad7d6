"""The content of a page, and its HTML: one file without scripts that loads nothing.

Hostile names are harmless: the template escapes every text, plots are rebuilt element by element
(dcpred.pages.svg), and the page forbids its reader to load or run anything.
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

GENERATOR = "dcpred report"  # the generator that a page names
MARK = f'<meta name="generator" content="{GENERATOR}'.encode()
LOOKED_AT = 1_000  # first bytes of a file, which hold our mark


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    shade: float = 0.0
    """From 0 to 1: how dark its background is."""
    pale: bool = False
    """Whether it is unimportant."""


@dataclass(frozen=True)
class Table:
    """Lines of cells. The first column names the line."""

    heads: Sequence[str]
    lines: Sequence[Sequence[str | Cell]]
    title: str = ""
    text: str = ""
    """A remark."""
    texts: int = 1
    """Number of text columns, from the left; the others are numbers, which are right-aligned."""
    wraps: bool = False
    """Whether texts may take several lines: sentences, not names."""
    dense: bool = False
    """Whether its columns are close together."""
    wide: bool = False
    """Whether it takes the whole width of the page."""
    is_table = True


@dataclass(frozen=True)
class Picture:
    """A plot, and the same in words and numbers."""

    title: str
    text: str
    """Its meaning, in a sentence or two."""
    svgs: Sequence[str]
    """Elements (dcpred.pages.svg.svg_of): one, or one for wide and one for narrow pages."""
    table: Table | None = None
    """Its numbers, which a reader may open."""
    wide: bool = False
    """Whether it takes the whole width of the page."""
    is_table = False


@dataclass(frozen=True)
class Section:
    """A part of a page with its own heading."""

    title: str
    text: str = ""
    facts: Sequence[tuple[str, str]] = ()
    parts: Sequence[Picture | Table] = ()
    """Plots and tables, side by side if there is space."""
    folded: Sequence[tuple[str, Table]] = ()
    """Tables that a reader may open, with their titles."""

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.facts or self.parts or self.folded)


@dataclass(frozen=True)
class Page:
    """A whole page. The first facts are the most important."""

    title: str
    lead: str = ""
    facts: Sequence[tuple[str, str]] = ()
    sections: Sequence[Section] = ()
    warnings: Sequence[str] = ()
    """What a reader has to know first."""


@dataclass(frozen=True)
class Report:
    """A page of HTML. A notebook shows it."""

    title: str
    html: str = field(repr=False)

    def save(self, path: str | Path) -> None:
        """Write the page to a file. Replaces an existing one if it is such a page, too; else raises
        DataError.
        """
        file = Path(local_path(path))
        with resource_errors(file):
            check_free(file)
            replace_bytes(file, self.html.encode())

    def _repr_html_(self) -> str:
        """In a separate frame: neither this page nor the notebook changes the other."""
        page = html.escape(self.html, quote=True)
        return (
            f'<iframe title="{html.escape(self.title, quote=True)}" sandbox="" srcdoc="{page}"'
            ' style="width: 100%; height: 40rem; border: 1px solid #d5dae0; border-radius: 6px"></iframe>'
        )


def check_free(file: Path) -> None:
    """Raise DataError or ResourceError if no page can be written, or a file exists that is not a page of
    ours.
    """
    check_new_name(file, PARTIAL)
    if file.is_dir():
        raise DataError(f"Cannot write a report to {file}: it is a folder. Name a file in it.")
    if not file.absolute().parent.is_dir():
        raise DataError(f"Cannot write a report to {file}: its folder does not exist. Make it first.")
    if file.exists():
        with file.open("rb") as there:
            if MARK not in there.read(LOOKED_AT):
                raise DataError(
                    f"Cannot write a report to {file}: it is another file. Remove it or choose another path."
                )


def check_packages(what: str, extra: str) -> None:
    """Raise SettingsError if pages cannot be made. Before any work.

    what   what makes pages, in words
    extra  of the package, which installs what is missing
    """
    for package in ("jinja2", "matplotlib"):
        if find_spec(package) is None:
            raise SettingsError(
                f"Cannot draw plots of {what}: {package} is not installed. Install it (pip install"
                f' "dcpred[{extra}]").'
            )


def render(page: Page) -> Report:
    made = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    text = _template().render(page=page, version=__version__, made=made, generator=GENERATOR)
    return Report(page.title, text)


def _printable(value: Any) -> Any:
    """A text of a page, without unprintable characters. Markup is ours."""
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
