"""A field of a result states its meaning once: docstrings and the keys of documents read it."""

import inspect
from dataclasses import field
from typing import Any

from dcpred.cli.rendering import field_lines
from dcpred.pages import headlines
from dcpred_tasks.result_fields import Key, Unit, keys_of, measured, result_class, result_field


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


def test_a_field_has_a_line_of_a_command_and_a_headline_of_a_page_in_its_unit() -> None:
    @result_class
    class Shown:
        share: float = result_field("A share.", unit=Unit.FRACTION, line=True, headline="a share")
        n: int = result_field("A number.", unit=Unit.COUNT, line=True, headline="numbers")
        size: int = result_field("A size.", unit=Unit.BYTES, headline="size")
        name: str = result_field("A name.", unit=Unit.TEXT, line=True)
        value: float | None = result_field("A value.", line=True, headline="value")
        quiet: float = result_field("Another.")

    document = {"share": 0.25, "n": 12_345, "size": 2**21, "name": "a", "value": None, "quiet": 1.0}
    assert field_lines(Shown, document) == [("share", "25.00 %"), ("n", "12,345"), ("name", "a")]
    assert headlines(Shown, document) == [("a share", "25.00 %"), ("numbers", "12,345"), ("size", "2.0 MiB")]
    assert field_lines(Shown, {"value": 1 / 3}) == [("value", "0.333333")]
