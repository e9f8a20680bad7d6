"""Which features are coded: those that are named; and which ones a search may add."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.one_hot import Coding, coded_columns
from dcpred_tasks.training.categories import (
    MOST_COLUMNS,
    choose_codes,
    code_candidates,
    features_named,
    numbered,
    with_codes,
)
from dcpred_tasks.training.settings import Settings, as_text, make_settings, settings_dict

N, MANY = 1_200, 4_000  # rows; many where codes are many


def named(X: NDArray[Any], features: str) -> Coding | None:
    return coded_columns(X.shape[1], choose_codes(X, Settings(categorical=features), np.ones(len(X))))


@pytest.fixture(name="codes")
def codes_without_order(rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.integers(0, 5, (N, 6))


# -- named features ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "names", "wanted"),
    [
        ("3,7", None, "3,7"),
        (" 7, 3 ,3", None, "3,7"),
        ("0-2,3,5", None, "0-3,5"),
        ("soil,2", ["area", "soil", "slope"], "1-2"),
        ("0", ["a", "0"], "0"),
        ('"0",0', ["a", "0"], "0-1"),
        ('"soil, wet", " a"', ["soil, wet", "b", " a"], "0,2"),
        ("soil type , 2", ["a", "soil type", "b"], "1-2"),
        ("3-4", ["3-4", "b"], "0"),
        ("auto", ["auto"], "auto"),
        ("none", None, "none"),
    ],
)
def test_features_are_named_by_numbers_ranges_and_names(
    given: str, names: list[str] | None, wanted: str
) -> None:
    found = numbered(Settings(categorical=given), names)
    assert found.categorical == wanted
    assert numbered(found, None) == found


@pytest.mark.parametrize(
    ("names", "why"), [(None, "do not name their features"), (["a"], "have no feature of that name")]
)
def test_a_name_that_is_not_there(names: list[str] | None, why: str) -> None:
    with pytest.raises(SettingsError, match=rf"feature 'soil' in .*: the data {why}.*Write auto"):
        numbered(Settings(categorical="0,soil"), names)


@pytest.mark.parametrize("nothing", ["", " ", ",", " , "])
def test_no_feature_is_refused(nothing: str) -> None:
    with pytest.raises(SettingsError, match=r"use categorical=.*: it lists no feature\. Set it to none"):
        Settings(categorical=nothing)


def test_auto_may_stand_beside_features_and_none_may_not() -> None:
    assert (
        numbered(make_settings({"categorical": "b, auto,soil"}), ["soil", "a", "b"]).categorical == "auto,0,2"
    )
    assert numbered(make_settings({"categorical": "auto,"}), ["soil"]).categorical == "auto"
    assert numbered(make_settings({"categorical": 'auto,"auto"'}), ["a", "auto"]).categorical == "auto,1"
    assert numbered(make_settings({"categorical": "auto,1"}), ["a", "auto"]).categorical == "auto,1"
    assert numbered(make_settings({"categorical": ["auto", "b"]}), ["a", "b"]).categorical == "auto,1"
    with pytest.raises(SettingsError, match=r"none concerns all features\. Write it alone"):
        numbered(make_settings({"categorical": "none,soil"}), ["soil", "b"])


@pytest.mark.parametrize(
    ("set_to", "coded", "found"),
    [
        ("auto", [], "auto"),
        ("auto", [3, 1], "auto,1,3"),
        ("auto,2", [1, 3], "auto,1-3"),
        ("5", [1], "1,5"),
        ("1-4", [2], "1-4"),
        ("none", [1], "none"),
    ],
)
def test_codes_of_a_schema_are_coded_beside_what_was_set(set_to: str, coded: list[int], found: str) -> None:
    assert with_codes(make_settings({"categorical": set_to}), coded).categorical == found


def test_numbers_as_text() -> None:
    assert as_text([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


def test_every_value_but_the_most_frequent_and_the_rare_ones_has_a_column() -> None:
    X = np.repeat([[4, 0], [2, 0], [9, 0], [5, 1]], [50, 30, 20, 9], axis=0)
    found = named(X, "0")
    assert found is not None
    assert found.codes(0) == [2, 9]
    assert found.features == [0]


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (np.linspace(0, 1, 50), "it holds 0.0204082, which is not an integer"),
        (np.arange(300), "it has more than 256 different values"),
        (np.repeat([0, 70_000], 20), "its values reach from 0 to 70,000, more than 65,535 apart"),
        (np.repeat([0, -(2**25)], 20), "its values reach from -33,554,432 to 0, more than 65,535 apart"),
        (
            np.repeat([20_000_000, 20_000_001], 20),
            "its values reach from 20,000,000 to 20,000,001, and codes lie from -16,777,216 to 16,777,216",
        ),
        (
            np.repeat([-(2**63), 2**63 - 1], 20),
            "its values reach from -9,223,372,036,854,775,808 to 9",
        ),
        (
            np.repeat(np.array([1, 2**64 - 1], np.uint64), 20),
            "its values reach from 1 to 18,446,744,073,709",
        ),
        (np.repeat([0.0, 2.0**63], 20), r"its values reach from 0 to 9.22337e\+18, more than 65,535 apart"),
        (np.full(50, 7), "it is 7 in 50 sampled rows, so it has a single category"),
        (np.repeat([7, 8], [50, 9]), "it is 7 in 50 sampled rows, and only 9 in which it is another"),
    ],
)
def test_a_feature_that_cannot_be_coded(column: NDArray[Any], why: str) -> None:
    with pytest.raises(SettingsError, match=f"feature 0 in .*: {why}.*Number its categories"):
        named(column[:, None], "0")


def test_a_feature_that_is_not_there(codes: NDArray[Any]) -> None:
    with pytest.raises(SettingsError, match=r"feature 6 in .*: the data have features 0 to 5. Choose"):
        named(codes, "2-6")


def test_settings_say_nothing_of_what_is_usual() -> None:
    """Models and trainings without the setting keep their hashes."""
    assert "categorical" not in settings_dict(Settings())
    assert settings_dict(Settings(categorical="none"))["categorical"] == "none"
    assert make_settings(settings_dict(Settings(categorical="1-3"))).categorical == "1-3"


# -- what a search may add -----------------------------------------------------------------------------------


def test_auto_codes_nothing_but_what_is_named(codes: NDArray[Any]) -> None:
    assert named(codes, "auto") is None
    assert named(codes, "none") is None
    beside = named(codes, "auto,0,2")
    assert beside is not None
    assert beside.features == [0, 2]


def test_features_of_whole_numbers_are_candidates_unless_they_are_named(
    codes: NDArray[Any], rng: np.random.Generator
) -> None:
    X = np.column_stack([codes, rng.normal(size=N), rng.integers(0, 20, N)])
    assert code_candidates(X, set(), 256) == [0, 1, 2, 3, 4, 5, 7]
    assert code_candidates(X, {1, 2}, 16) == [0, 3, 4, 5]
    assert code_candidates(X.copy(order="F"), {1, 2}, 16) == [0, 3, 4, 5]


@pytest.mark.parametrize(
    "column",
    [
        lambda rng: rng.integers(0, 2, N),
        lambda rng: np.arange(N) % 257,
        lambda rng: rng.integers(0, 4, N) + 0.5,
        lambda rng: np.where(np.arange(N) == N - 1, 0.5, np.arange(N) % 4),
        lambda rng: rng.choice([0, 1_000_000, 3], N),
        lambda rng: np.where(np.arange(N) < 9, 1 + np.arange(N) // 3, 0),
    ],
    ids=["two values", "many values", "fractions", "a late fraction", "far apart", "rare values"],
)
def test_what_does_not_look_like_codes_is_no_candidate(column: Any, rng: np.random.Generator) -> None:
    X = np.column_stack([rng.normal(size=N), column(rng)])
    assert code_candidates(X, set(), 256) == []


def test_candidates_of_few_codes_come_first_where_columns_are_too_many(rng: np.random.Generator) -> None:
    X = np.column_stack([rng.integers(0, n, MANY) for n in (200, 100, 4, 150, 201, 50)])
    assert code_candidates(X, set(), 256) == [0, 1, 2, 3, 5]
    assert MOST_COLUMNS == 512


@pytest.mark.parametrize("span", ["3-1", "0-99999999999", "9999999999"])
def test_a_span_that_runs_backwards_or_too_far_is_refused(span: str) -> None:
    with pytest.raises(SettingsError, match=f"features {span} in .*: a span.*Write it as"):
        numbered(make_settings({"categorical": span}), None)


@pytest.mark.parametrize(
    ("given", "names", "meant"),
    [("AUTO", None, "auto"), ("Soil", ["slope", "soil"], "soil"), ("nome", ["a"], "none")],
)
def test_the_nearest_name_is_told(given: str, names: list[str] | None, meant: str) -> None:
    with pytest.raises(SettingsError, match=rf"\(did you mean '{meant}'\?\)"):
        numbered(make_settings({"categorical": given}), names)


@pytest.mark.parametrize("given", [["soil, wet", 2], '["soil, wet", 2]', ("soil, wet", np.int64(2))])
def test_a_list_tells_names_from_numbers(given: object) -> None:
    settings = make_settings({"categorical": given})
    assert numbered(settings, ["2", "soil, wet", "c"]).categorical == "1-2"
    assert make_settings(settings_dict(settings)) == settings


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([1.5], "feature 1.5 in .*: it is neither a name nor a number from 0 on"),
        ([False, True], "a mask of True and False in .*: it lists features. Name them by numbers"),
        ([-1], "feature -1 in .*: it is neither"),
        ('["soil"', "not a list in JSON. Write it as"),
        ('"so\\il"', "its quotes cannot be read"),
    ],
)
def test_a_list_that_names_no_features(given: object, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        numbered(make_settings({"categorical": given}), None)


def test_names_are_told_where_the_data_have_them(codes: NDArray[Any]) -> None:
    with pytest.raises(SettingsError, match=r"feature 3 in .*: the data have features 0 to 2. Choose some"):
        numbered(Settings(categorical="3"), ["a", "b", "c"], 3)
    with (
        pytest.raises(SettingsError, match=r"feature 'soil' in .*: it holds 0\.5"),
        features_named(["area", "soil"]),
    ):
        named(codes[:, :2] + 0.5 * np.array([0, 1]), "1")
