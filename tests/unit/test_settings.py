"""Settings: types from text, ranges, names that are nearly right."""

import json
import math
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dcpred
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.kernels import STATIONARY
from dcpred_tasks.training.settings import (
    DEFAULTS,
    EARLIER_NAMES,
    LATER,
    OF_TASK,
    RETIRED,
    SETTING_NAMES,
    TASKS,
    Settings,
    in_effect,
    make_settings,
    settings_dict,
)

pytestmark = pytest.mark.cases()  # what is enumerated may grow

NUMBERS = {name: value for name, value in settings_dict(Settings()).items() if type(value) in (int, float)}


def test_defaults_are_valid_and_survive_a_round_trip_as_values_and_as_text() -> None:
    settings = make_settings({})
    assert settings == Settings()
    assert make_settings(settings_dict(settings)) == settings
    assert make_settings({name: str(value) for name, value in settings_dict(settings).items()}) == settings
    assert set(settings_dict(settings)) == set(SETTING_NAMES) - set(LATER)


def test_settings_are_frozen_and_can_be_a_key() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().C = 3.0  # type: ignore[misc]
    assert len({Settings(), Settings(), Settings(C=2.0)}) == 2


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("gama", "gamma"),
        ("n_leafs", "n_leaves"),
        ("landmark", "landmarks"),
        ("nystrom_c", "nystrom_C"),
        ("Seed", "seed"),
    ],
)
def test_an_unknown_name_offers_the_nearest(name: str, near: str) -> None:
    with pytest.raises(
        SettingsError, match=rf"setting '{name}': it is unknown \(did you mean '{near}'\?\).*max_leaf_rows"
    ):
        make_settings({name: 1})


@pytest.mark.parametrize(("earlier", "name"), EARLIER_NAMES.items())
def test_an_earlier_name_is_read_from_models_and_refused_elsewhere(earlier: str, name: str) -> None:
    assert in_effect({earlier: DEFAULTS[name]}, "classification") == {name: DEFAULTS[name]}
    with pytest.raises(SettingsError, match=f"setting '{earlier}': its name is {name}. Write {name}"):
        make_settings({earlier: DEFAULTS[name]})
    for takes in (dcpred.Settings, dcpred.DCPredClassifier, dcpred.DCPredRegressor):
        with pytest.raises(TypeError, match=f"setting '{earlier}': its name is {name}. Write {name}"):
            takes(**{earlier: DEFAULTS[name]})


def test_a_name_like_no_other_offers_none() -> None:
    with pytest.raises(SettingsError) as caught:
        make_settings({"zzzz": 1})
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("C", "1e3", 1000.0),
        ("C", 3, 3.0),
        ("gamma", "scale", "scale"),
        ("gamma", "median", "median"),
        ("gamma", "0.5", 0.5),
        ("gamma", 2, 2.0),
        ("refine", "no", False),
        ("landmarks", "32", 32),
        ("max_leaf_rows", "1_000", 1000),
        ("max_leaf_rows", "1e3", 1000),
        ("landmarks", 8.0, 8),
        ("keep_support_vectors", "true", True),
        ("keep_support_vectors", "Yes", True),
        ("keep_support_vectors", 1, True),
        ("keep_support_vectors", "false", False),
        ("keep_support_vectors", False, False),
        ("keep_support_vectors", "0", False),
        ("kernel", "laplacian", "laplacian"),
        ("task", "regression", "regression"),
        ("seed", 2**31 - 1, 2**31 - 1),
    ],
)
def test_values_from_text_and_other_types(name: str, text: object, value: object) -> None:
    got = getattr(make_settings({name: text}), name)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("C", "much", "a number"),
        ("C", None, "a number"),
        ("C", "scale", "a number"),
        ("gamma", "auto", "a number, scale or median"),
        ("gamma", None, "a number, scale or median"),
        ("gamma", True, "a number, scale or median"),
        ("landmarks", "8.5", "an integer"),
        ("landmarks", "many", "an integer"),
        ("landmarks", "inf", "an integer"),
        ("landmarks", "nan", "an integer"),
        ("landmarks", True, "an integer"),
        ("keep_support_vectors", "maybe", "true or false"),
        ("keep_support_vectors", 2, "true or false"),
    ],
)
def test_a_value_of_the_wrong_type(name: str, value: object, kind: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}=.* must be {kind}"):
        make_settings({name: value})


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("n_leaves", 0, 2**24),
        ("max_leaf_rows", 30, 10**6),
        ("min_leaf_rows", 1, 8_000),
        ("sample_rows", 16, 10**8),
        ("degree", 1, 10),
        ("landmarks", 0, 10_000),
        ("products", 0, 10**6),
        ("triangle", 0, 10**6),
        ("seed", 0, 2**31 - 1),
        ("overlap", 1, 64),
        ("refine_steps", 1, 100_000),
        ("local_rows", 2, 100_000),
        ("refine_epochs", 0, 100_000),
    ],
)
def test_whole_numbers_have_limits(name: str, low: int, high: int) -> None:
    others = {"triangle": {"refine": False}, "landmarks": {"trees": 1}}.get(name, {})
    for value in (low, high):
        assert getattr(make_settings({name: value, **others}), name) == value
    for value in (low - 1, high + 1):
        with pytest.raises(SettingsError, match=f"Cannot use {name}=|max_leaf_rows is"):
            make_settings({name: value, **others})


@pytest.mark.parametrize("name", [name for name, value in NUMBERS.items() if type(value) is float])
def test_numbers_are_finite_and_not_negative(name: str) -> None:
    """γ or C of infinity passes no solver, and cannot be written as JSON."""
    for value in (-1.0, -1e-300, math.nan, math.inf, "nan", "inf", "-inf"):
        with pytest.raises(SettingsError, match=name):
            make_settings({name: value})
    task = "regression" if name in OF_TASK["regression"] else "classification"
    assert getattr(make_settings({name: 1e-300, "task": task}), name) == 1e-300


OTHER = {"C": 2.0, "class_weight": "balanced", "distill_weight": 0.5, "nystrom_C": 1.0, "ridge": 0.1}


@pytest.mark.parametrize("name", OTHER)
def test_a_setting_of_the_other_task_is_refused(name: str) -> None:
    """It would change the hash of a training, and nothing else."""
    own, other = TASKS if name in OF_TASK["classification"] else reversed(TASKS)
    assert getattr(make_settings({"task": own, name: OTHER[name]}), name) == OTHER[name]
    with pytest.raises(SettingsError, match=f"{name}=.*: the task is {other}, and only {own} uses it. Leave"):
        make_settings({"task": other, name: OTHER[name]})
    assert make_settings({"task": other, name: getattr(Settings, name)}).task == other
    assert in_effect({"task": other, name: OTHER[name], "products": 3}, other) == {
        "task": other,
        "products": 3,
    }
    assert in_effect({name: OTHER[name]}, own) == {name: OTHER[name]}


def test_settings_of_earlier_versions_are_left_out() -> None:
    assert in_effect(dict.fromkeys(RETIRED, 1) | {"landmarks": 3}, "classification") == {"landmarks": 3}
    stored = json.loads((Path(__file__).parents[1] / "data/0.1.0/model/model.json").read_text())["model"][
        "settings"
    ]
    assert "nystrom_rows" in stored
    assert make_settings(in_effect(stored, stored["task"])).landmarks == stored["landmarks"]


@pytest.mark.parametrize(
    ("task", "loss"), [("regression", "logistic"), ("regression", "distance"), ("classification", "huber")]
)
def test_a_loss_of_the_other_task_is_refused(task: str, loss: str) -> None:
    other = TASKS[1 - TASKS.index(task)]
    with pytest.raises(
        SettingsError,
        match=f"loss='{loss}': the task is {task}, and only {other} uses it. Leave out loss",
    ):
        make_settings({"task": task, "loss": loss})
    assert make_settings({"task": other, "loss": loss}).loss == loss
    stored: dict[str, object] = {"loss": loss, "landmarks": 3}
    assert in_effect(stored, task) == {"landmarks": 3}
    assert in_effect(stored, other) == stored


def test_the_level_of_a_quantile() -> None:
    given: dict[str, object] = {"task": "regression", "loss": "quantile"}
    assert make_settings(given).quantile == 0.5
    assert make_settings(given | {"quantile": "0.9"}).quantile == 0.9
    for wrong in (0, 1, 90, -0.5, "nan"):
        with pytest.raises(SettingsError, match=r"quantile=.* it must be from 0\.001 to 0\.999"):
            make_settings(given | {"quantile": wrong})
    for loss in ("hinge", "huber"):
        with pytest.raises(SettingsError, match=f"quantile=0.9: loss is {loss}, .* set loss"):
            make_settings(given | {"loss": loss, "quantile": 0.9})
    with pytest.raises(SettingsError, match="loss='quantile': refine is false"):
        make_settings(given | {"refine": False})
    with pytest.raises(SettingsError, match="loss='quantile': leaf_model is exact"):
        make_settings(given | {"leaf_model": "exact"})


@pytest.mark.parametrize("name", ["landmark_floor", "distill_weight"])
@pytest.mark.parametrize("value", [-0.01, 1.01, "nan"])
def test_a_share_is_between_0_and_1(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=f"Cannot use {name}="):
        make_settings({name: value})
    assert [getattr(make_settings({name: v}), name) for v in (0, 0.5, 1)] == [0, 0.5, 1]


@pytest.mark.parametrize("name", ["C", "ridge", "gamma"])
def test_more_than_0(name: str) -> None:
    with pytest.raises(SettingsError, match="it must be more than 0"):
        make_settings({name: 0})


@pytest.mark.parametrize("value", [0.0, -1.0, 1e39, math.nan, math.inf, "auto", None])
def test_gamma_is_checked_when_settings_are_made_directly(value: object) -> None:
    with pytest.raises(SettingsError, match=r"gamma=.* more than 0 and at most 1e\+30, or one of"):
        Settings(gamma=value)  # type: ignore[arg-type]
    for gamma in ("scale", "median", 3, 0.5):
        assert Settings(gamma=gamma).gamma == gamma


def test_a_leaf_and_its_halo_are_within_max_leaf_rows() -> None:
    assert Settings(max_leaf_rows=900).own_leaf_rows == 900
    assert Settings(max_leaf_rows=900, overlap=3).own_leaf_rows == 300
    assert Settings(max_leaf_rows=900, overlap=64, min_leaf_rows=100).own_leaf_rows == 100
    assert Settings(max_leaf_rows=2, overlap=64, min_leaf_rows=1).own_leaf_rows == 2


@pytest.mark.parametrize(
    ("name", "value", "near"),
    [
        ("kernel", "rfb", "rbf"),
        ("kernel", "poly", "polynomial"),
        ("task", "classify", "classification"),
        ("scaling", "minmaxx", "minmax"),
        ("triangle_bound", "up", "upper"),
        ("class_weight", "balance", "balanced"),
    ],
)
def test_a_choice_that_is_nearly_right(name: str, value: str, near: str) -> None:
    with pytest.raises(SettingsError, match=rf"{name}='{value}': it is unknown .*did you mean '{near}'"):
        make_settings({name: value})


def test_triangle_needs_a_stationary_kernel() -> None:
    with pytest.raises(SettingsError, match="polynomial kernel: they need a stationary kernel"):
        make_settings({"triangle": 1, "kernel": "polynomial", "refine": False})
    for kernel in STATIONARY:
        make_settings({"triangle": 1, "kernel": kernel, "refine": False})


@pytest.mark.parametrize(
    ("name", "value"),
    [("distill_weight", 0.5), ("refine_epochs", 3), ("loss", "logistic"), ("leaf_scaling", True)],
)
def test_what_only_refinement_uses_is_refused_without_it(name: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"{name}=.* refine is false.*Leave out {name}"):
        make_settings({name: value, "refine": False})
    make_settings({name: value})


def test_triangle_goes_neither_with_refined_landmarks_nor_with_a_gamma_of_each_leaf() -> None:
    with pytest.raises(SettingsError, match="Set refine to false or triangle to 0"):
        make_settings({"triangle": 1})
    with pytest.raises(SettingsError, match="with gamma median: they have one γ in all leaves"):
        make_settings({"triangle": 1, "refine": False, "gamma": "median"})


NEAR: dict[str, object] = {"loss": "distance"}


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("products", 32, "products 32: the distance to the local SVM needs products 0"),
        ("triangle", 5, "triangle 5: the distance to the local SVM needs triangle 0"),
        ("kernel", "laplacian", "kernel laplacian: the distance to the local SVM needs kernel rbf"),
        ("distill_weight", 0.5, "distill_weight 0.5: the distance to the local SVM needs distill_weight 0"),
        (
            "leaf_scaling",
            True,
            "leaf_scaling true: the distance to the local SVM needs leaf_scaling false",
        ),
        ("refine_epochs", 3, "refine_epochs 3: the distance to the local SVM needs refine_epochs 0"),
        (
            "compact_gamma",
            2.0,
            "compact_gamma 2: landmarks near the local SVM have its γ. Leave out compact_gamma",
        ),
        ("task", "regression", "the task is regression, and only classification uses it"),
        ("refine", False, "refine is false, and only refinement uses loss"),
    ],
)
def test_what_does_not_go_with_the_distance_to_the_local_machine(name: str, value: object, told: str) -> None:
    with pytest.raises(SettingsError, match=f"^Cannot use loss='?distance'?.*{told}"):
        make_settings(NEAR | {name: value})


def test_there_are_no_products_near_the_local_machine() -> None:
    assert make_settings(NEAR) == make_settings(NEAR | {"products": 0})
    assert make_settings(NEAR).products == 0
    assert make_settings({"loss": "hinge"}).products == 64
    for products in (64, "64", 63):  # the default is as wrong as any other number, where it is named
        with pytest.raises(SettingsError, match=r"needs products 0\. Set products to that"):
            make_settings(NEAR | {"products": products})


def test_a_check_changes_no_setting() -> None:
    """Settings(…) and `replace` keep what they are given, or raise."""
    with pytest.raises(SettingsError, match="needs products 0"):
        Settings(loss="distance", products=64)
    with pytest.raises(SettingsError, match="needs products 0"):
        replace(Settings(), loss="distance")


def test_landmarks_near_the_local_machine_have_its_gamma() -> None:
    for own in (
        {"gamma": 0.5, "compact_gamma": 0.5},
        {"gamma": "median", "compact_gamma": 1.0},
        {"gamma": "median"},
    ):
        assert make_settings(NEAR | own).loss == "distance"
    with pytest.raises(SettingsError, match="have its γ"):
        make_settings(NEAR | {"gamma": "median", "compact_gamma": 0.5})


def test_min_leaf_rows_is_not_above_max_leaf_rows() -> None:
    with pytest.raises(SettingsError, match=r"min_leaf_rows=2000: max_leaf_rows is 1000"):
        make_settings({"min_leaf_rows": 2_000, "max_leaf_rows": 1_000})
    make_settings({"min_leaf_rows": 1_000, "max_leaf_rows": 1_000})


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "C": st.floats(1e-300, 1e300),
            "gamma": st.floats(1e-300, 1e30) | st.sampled_from(["scale", "median"]),
            "seed": st.integers(0, 2**31 - 1),
            "n_leaves": st.integers(0, 2**24),
            "keep_support_vectors": st.booleans(),
            "scaling": st.sampled_from(["none", "standard", "minmax", "learned"]),
        },
    )
)
def test_text_loses_nothing(values: dict[str, object]) -> None:
    typed = make_settings(values)
    assert {name: getattr(typed, name) for name in values} == values
    assert make_settings({name: str(value) for name, value in values.items()}) == typed
