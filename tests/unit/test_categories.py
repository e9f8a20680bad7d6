"""Which features are coded: those that are named, and with "auto" those that had better be."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.coding import Coding
from dcpred_tasks.training import categories
from dcpred_tasks.training.categories import MOST_COLUMNS, as_text, choose_coding, numbered
from dcpred_tasks.training.settings import Settings, make_settings, settings_dict

AUTO = Settings(scaling="learned")
N = 4_000


def chosen(X: NDArray[Any], y: NDArray[Any], settings: Settings = AUTO) -> Coding | None:
    limits = X.min(axis=0).astype(float), X.max(axis=0).astype(float)
    return choose_coding(X, y, np.ones(len(X)), *limits, settings)


def named(X: NDArray[Any], features: str) -> Coding | None:
    return chosen(X, np.zeros(len(X)), Settings(categorical=features))


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
        ("3", ["a", "b", "c", "3"], "3"),
        ("2", ["2", "b", "c"], "0"),
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
    with pytest.raises(SettingsError, match=rf"names the feature 'soil', but the data {why}; write auto"):
        numbered(Settings(categorical="0,soil"), names)


@pytest.mark.parametrize("nothing", ["", " ", ",", " , "])
def test_no_feature_is_refused(nothing: str) -> None:
    with pytest.raises(SettingsError, match=r"categorical was set to .*must be auto, none or features"):
        Settings(categorical=nothing)


def test_numbers_as_text() -> None:
    assert as_text([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


def test_every_value_but_the_most_frequent_and_the_rare_ones_has_a_column() -> None:
    X = np.repeat([[4, 0], [2, 0], [9, 0], [5, 1]], [50, 30, 20, 9], axis=0)
    found = named(X, "0")
    assert found is not None
    assert found.codes(0) == [2, 9]
    assert found.features == [0]
    assert named(X[:50], "0,1") is None  # values that are all the same need no column


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (np.linspace(0, 1, 50), "it holds 0.0204082, which is no whole number"),
        (np.arange(300), "it has more than 256 different values"),
        (np.repeat([0, 70_000], 20), "its values reach from 0 to 70000, more than 65535 apart"),
        (np.repeat([0, -(2**25)], 20), "its values reach from -33554432 to 0"),
    ],
)
def test_a_feature_that_cannot_be_coded(column: NDArray[Any], why: str) -> None:
    with pytest.raises(SettingsError, match=f"names the feature 0, but {why}.*; number its categories"):
        named(column[:, None], "0")


def test_a_feature_that_is_not_there(codes: NDArray[Any]) -> None:
    with pytest.raises(SettingsError, match="names the feature 6, but the data have features 0 to 5; name"):
        named(codes, "2-6")


def test_settings_say_nothing_of_what_is_usual() -> None:
    """Models and trainings without the setting keep their hashes."""
    assert "categorical" not in settings_dict(Settings())
    assert settings_dict(Settings(categorical="none"))["categorical"] == "none"
    assert make_settings(settings_dict(Settings(categorical="1-3"))).categorical == "1-3"


# -- auto ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_codes_without_an_order_are_coded(codes: NDArray[Any], task: str) -> None:
    effect = np.array([0, 4, 1, 3, -8])[codes].sum(axis=1)
    found = chosen(codes, effect > 1 if task == "classification" else effect, Settings(task, "learned"))
    assert found is not None
    assert found.features == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_amounts_are_not_coded(rng: np.random.Generator, task: str) -> None:
    X = rng.integers(0, 20, (N, 4))
    total = X[:, :3].sum(axis=1)
    assert chosen(X, total > 30 if task == "classification" else total, Settings(task, "learned")) is None


def test_the_same_rows_give_the_same_coding(codes: NDArray[Any]) -> None:
    y = np.isin(codes, (0, 2)).sum(axis=1) > 2
    one, other = chosen(codes, y), chosen(codes.copy(order="F"), y)
    assert one is not None
    assert other is not None
    np.testing.assert_array_equal(one.code, other.code)


@pytest.mark.parametrize("scaling", ["none", "standard", "minmax"])
def test_a_scaling_that_does_not_look_at_targets_codes_nothing(codes: NDArray[Any], scaling: str) -> None:
    assert chosen(codes, codes[:, 0] % 2, Settings(scaling=scaling)) is None
    assert chosen(codes, codes[:, 0] % 2, Settings(scaling=scaling, categorical="0")) is not None


@pytest.mark.parametrize(
    "column",
    [
        lambda rng: rng.integers(0, 2, N),
        lambda rng: rng.integers(0, 65, N),
        lambda rng: rng.integers(0, 4, N) + 0.5,
        lambda rng: np.where(np.arange(N) == N - 1, 0.5, np.arange(N) % 4),
        lambda rng: rng.choice([0, 1_000_000, 3], N),
        lambda rng: np.where(np.arange(N) < 9, 1 + np.arange(N) // 3, 0),
    ],
    ids=["two values", "many values", "fractions", "a late fraction", "far apart", "rare values"],
)
def test_what_does_not_look_like_codes_takes_no_search(
    column: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(categories, "judge")
    X = np.column_stack([rng.normal(size=N), column(rng)])
    assert chosen(X, rng.integers(0, 2, N)) is None


def test_too_many_columns_take_no_search(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(categories, "judge")
    X = rng.integers(0, 20, (N, MOST_COLUMNS // 19 + 1))
    assert chosen(X, rng.integers(0, 2, N)) is None


def test_few_rows_and_one_class_decide_nothing(codes: NDArray[Any]) -> None:
    assert chosen(codes[:30], codes[:30, 0] % 2) is None
    assert chosen(codes, np.zeros(N)) is None


@pytest.mark.parametrize("span", ["3-1", "0-99999999999", "9999999999"])
def test_a_span_that_runs_backwards_or_too_far_is_refused(span: str) -> None:
    with pytest.raises(SettingsError, match=f"names the features {span}, but a span.*write it as"):
        numbered(make_settings({"categorical": span}), None)
