"""Pages of HTML: their tables, their texts, their frame, and the file that holds one."""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from dcpred.public.results import plain
from dcpred.version import __version__
from dcpred_tasks.errors import DataError, optional_package
from dcpred_tasks.remarks import RANKS, Remark, Severity
from dcpred_tasks.result_fields import Unit, cells_of, columns_of, facts_of, result_class, result_field, size
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
    """Elements (dcpred.pages.charts.svg_of): one, or one for wide and one for narrow pages."""
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


def attention(remarks: Sequence[Remark]) -> list[str]:
    """Sentences of remarks for the top of a page, the most severe first."""
    ordered = sorted(remarks, key=lambda each: -RANKS[Severity(each.severity)])
    return [
        f"{each.severity.capitalize()}: {'. '.join(_sentence(part) for part in (each.what, each.do) if part)}"
        f" ({each.code})."
        for each in ordered
    ]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}".removesuffix(".")


@result_class
class Report:
    """A page of HTML. A notebook shows it."""

    title: str = result_field("Title of the page.")
    html: str = result_field("The whole page.", repr=False)

    def save(self, path: str | Path) -> None:
        """Write the page to a file, which may be an earlier page.

        Parameters
        ----------
        path : str or Path
            The file.

        Raises
        ------
        DataError
            If another file exists there.
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
    """Raise DataError or ResourceError unless a page can be written there: a free path, or a page of ours."""
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
    with optional_package(f"draw plots of {what}", extra):
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401


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
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("dcpred.pages", "templates"),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")


def number(value: float | None, digits: int = 4) -> str:
    """A number in so many digits; a dash if it is missing."""
    if value is None:
        return "–"
    whole = isinstance(value, int) or abs(value) >= 10**digits
    return f"{value:,.0f}".replace("-", "−") if whole else f"{value:.{digits}g}".replace("-", "−")


def percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def headlines(owner: type, document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The names and values at the top of a page, of the document of a result class."""
    texts: dict[Unit, Callable[[Any], str]] = {
        Unit.FRACTION: partial(percent, digits=2),
        Unit.NUMBER: number,
        Unit.COUNT: "{:,}".format,
        Unit.BYTES: size,
        Unit.TEXT: plain,
    }
    return [
        (facts.headline, texts[facts.unit](document[name]))
        for name, facts in facts_of(owner)
        if facts.headline and document.get(name) is not None
    ]


def table_of(owner: type, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Documents of a result class, whose fields state the columns. Texts are left-aligned."""
    heads, *lines = cells_of(owner, rows)
    texts = [facts.unit is Unit.TEXT for _, facts in columns_of(owner, rows)].count(True)
    return Table(heads, [[plain(cell) for cell in line] for line in lines], texts=texts)


def counted(n: int, singular: str, plural: str) -> str:
    return f"{n:,} {singular if n == 1 else plural}" if n else f"no {plural}"
