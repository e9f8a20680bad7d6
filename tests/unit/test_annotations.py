"""Documents and arguments are checked by the annotations of their fields and parameters."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest

from dcpred_tasks.annotations import Count, Positive, from_document, in_words, is_allowed


@dataclass(frozen=True)
class Part:
    name: Annotated[str, str.isalpha]
    rows: Positive = 1


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    status: dict[str, Count] = field(default_factory=dict)
    alpha: float | None = None
    share: Annotated[float, lambda share: share <= 1] | None = None
    spans: list[tuple[int, int]] = field(default_factory=list)
    more: Any = None


def test_a_document_becomes_the_dataclass_of_its_fields() -> None:
    document = {"parts": [{"name": "a", "other": 1}], "alpha": 1, "spans": [[1, 2]], "more": [None]}
    whole = from_document(Whole, document)
    assert whole == Whole((Part("a"),), alpha=1.0, spans=[(1, 2)], more=[None])
    assert type(whole.alpha) is float
    assert from_document(Whole, {"parts": []}, exact=True) == Whole(())


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (None, "None is not an object"),
        ({}, "parts is missing"),
        ({"parts": None}, "parts: None is not a list"),
        ({"parts": "ab"}, "parts: 'ab' is not a list"),
        ({"parts": [{"name": "1"}]}, "parts: name: '1' is not allowed"),
        ({"parts": [{"name": "a", "rows": True}]}, "rows: True is not an integer"),
        ({"parts": [{"name": "a", "rows": 0}]}, "rows: 0 is not allowed"),
        ({"parts": [], "status": {"1": -1}}, "status: -1 is not allowed"),
        ({"parts": [], "status": {"1": 1.0}}, "status: 1.0 is not an integer"),
        ({"parts": [], "alpha": "1"}, "alpha: '1' is not None"),
        ({"parts": [], "alpha": 10**400}, "alpha: "),
        ({"parts": [], "share": "1"}, "share: '1' is not None"),
        ({"parts": [], "share": 2}, "share: 2 is not None"),
        ({"parts": [], "spans": [[1]]}, "is not a list of 2"),
        ({"parts": [], "other": 1}, "it has no field other"),
    ],
)
def test_what_an_annotation_does_not_allow_is_named(document: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("[", r"\[")):
        from_document(Whole, document, exact=True)


def test_a_value_may_be_of_a_type_that_numpy_has() -> None:
    np = pytest.importorskip("numpy")
    assert is_allowed(np.int64(1), int)
    assert is_allowed(np.float32(1), float)
    assert is_allowed(np.bool_(1), bool)
    assert not is_allowed(np.bool_(1), int)
    assert not is_allowed(True, float)


def test_an_argument_is_a_dataclass_of_ours() -> None:
    assert is_allowed(Part("a"), Part | str | None)
    assert not is_allowed(1, Part | str | None)
    assert in_words(Part | str | None) == ["a Part", "a str", "None"]
