"""A field of a result states its meaning once: docstrings and the keys of documents read it."""

import inspect
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from dcpred.cli.rendering import shown
from dcpred.execution.terminal import Verbosity, at_verbosity
from dcpred.pages.page import headlines
from dcpred_tasks.result_fields import (
    ABSENT,
    Key,
    Listing,
    Unit,
    document_of,
    keys_of,
    measured,
    result_class,
    result_field,
)


@result_class
class Part:
    name: str = result_field("Name of the part.", key="class")
    size: int = result_field("R² of the part.", metric="size")


@result_class
class Whole:
    """The whole."""

    parts: list[Part] | None = result_field("Parts of it; None without any.", when="parts")
    stored: dict[str, Any] = result_field("What is stored.", of=Part)
    best: Part = result_field("The best part.")
    secret: int = field(default=0)


def test_a_docstring_lists_the_fields_that_have_a_meaning() -> None:
    assert inspect.getdoc(Whole) == (
        "The whole.\n\nAttributes\n----------\n"
        "parts : list of Part or None\n    Parts of it; None without any.\n"
        "stored : dict\n    What is stored.\nbest : Part\n    The best part."
    )


def test_keys_of_a_document_are_those_of_its_classes_and_of_the_classes_within() -> None:
    name = Key("Name of the part.", is_optional=False, of=None)
    size = Key("R² of the part.", is_optional=False, of=None, metric="size")
    keys = keys_of(Whole)
    assert list(keys) == [
        *("parts", "parts[].class", "parts[].size"),
        *("stored", "stored.class", "stored.size", "best", "best.class", "best.size"),
    ]
    assert keys["parts"] == Key("With parts: parts of it; None without any.", is_optional=True, of=Part)
    assert keys["parts[].size"] == Key(
        "With parts: R² of the part.", is_optional=True, of=None, metric="size"
    )
    assert (keys["best.class"], keys["best.size"]) == (name, size)
    assert list(keys_of(Whole, apart=[Part])) == ["parts", "stored", "best"]


def test_a_metric_is_a_field_of_a_document_or_of_one_within() -> None:
    @result_class
    class Holder:
        n: int = result_field("Number of parts.", metric="parts")
        part: Part | None = result_field("A part; None without any.")

    assert measured(Holder, {"n": 2, "part": {"class": "a", "size": 3}}) == {"parts": 2, "size": 3}
    assert measured(Holder, {"n": 2, "part": None}) == {"parts": 2, "size": None}
    assert measured(Holder, {}) == {"parts": None, "size": None}


@result_class
class Line:
    name: str = result_field("A name.", unit=Unit.TEXT, column="name")
    share: float | None = result_field("A share.", unit=Unit.FRACTION, column="share of rows")
    rest: int = result_field("A number.", column="rest")


def lines_listing(r: Mapping[str, Any]) -> Listing:
    return Listing(r["lines"], "A table", labels=("first", "last"), more="and no more")


@result_class
class Shown:
    share: float = result_field("A share.", unit=Unit.FRACTION, line="share", headline="a share")
    n: int = result_field(
        "A number.", unit=Unit.COUNT, line="rows", text="{n:,} of {size}", headline="numbers"
    )
    size: int = result_field("A size.", unit=Unit.BYTES, line="size", headline="size")
    names: list[str] = result_field("Names.", unit=Unit.TEXT, line="names")
    seconds: dict[str, float] = result_field("Times by step.", unit=Unit.SECONDS, line="seconds")
    value: float | None = result_field("A value.", line="value", headline="value")
    lines: list[Line] = result_field("Lines.", table=lines_listing)
    parts: list[str] = result_field(
        "Parts.", line="parts", text=lambda r: [each.upper() for each in r["parts"]]
    )
    pairs: int = result_field("Pairs.", line="pairs", text=lambda r: [("a pair", "1"), ("another", "2")])
    more: int = result_field("More.", line="more", detail=True, when="-v", default=ABSENT)
    quiet: float = result_field("Another.", default=1.0)


DOCUMENT = Shown(
    0.25,
    12_345,
    2**21,
    ["a", "b"],
    {"fit": 1.25},
    None,
    [Line("a", 0.5, 1), Line("b", None, 2)],
    ["x", "y"],
    3,
)


def test_a_result_is_shown_as_its_fields_say() -> None:
    document = document_of(DOCUMENT)
    assert document["lines"][1] == {"name": "b", "share": None, "rest": 2}
    assert "more" not in document
    assert shown(Shown, document).split("\n") == [
        "share    25.00 %",
        "rows     12,345 of 2097152",
        "size     2.0 MiB",
        "names    a, b",
        "seconds  fit 1.2",
        "",
        "A table",
        "       name  share of rows  rest",
        "first  a           50.00 %     1",
        "last   b                 –     2",
        "and no more",
        "",
        "parts    X",
        "         Y",
        "a pair   1",
        "another  2",
    ]
    more = document_of(replace(DOCUMENT, more=1 / 3))
    assert not any(line.startswith("more") for line in shown(Shown, more).split("\n"))
    with at_verbosity(Verbosity.MORE):
        assert shown(Shown, more).split("\n")[-1] == "more     0.333333"
    assert headlines(Shown, document) == [("a share", "25.00 %"), ("numbers", "12,345"), ("size", "2.0 MiB")]


def test_a_class_without_lines_shows_all_values() -> None:
    document = {"parts": None, "stored": {"class": "a", "size": 12_345}, "best": {"class": "b", "size": 2}}
    assert shown(Whole, document).split("\n") == [
        "parts         None",
        "stored.class  a",
        "stored.size   12,345",
        "best.class    b",
        "best.size     2",
    ]
