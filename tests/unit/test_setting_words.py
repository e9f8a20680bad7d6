"""One description of every setting: the user guide, `dcpred train -h` and the estimators follow from it."""

import inspect
import re

import pytest
from click.testing import CliRunner

import dcpred
from dcpred import DCPredClassifier, DCPredRegressor
from dcpred.cli import main
from dcpred.public.parameters import parameters_in
from dcpred_compare.baselines import LEAF_MODELS
from dcpred_compare.page import description
from dcpred_compare.result import CompareReport, CompareResult
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.kernels import KERNELS
from dcpred_tasks.training.settings import (
    BESIDE_A_SEARCH,
    SETTING_NAMES,
    Settings,
    describe_settings,
    make_settings,
)
from support.setting_words import (
    ESTIMATORS,
    GROUPS,
    OWN_WORDS,
    SCORES_PAGE,
    SCORES_TABLE,
    SETTINGS_PAGE,
    SYSTEMS,
    SYSTEMS_PAGE,
    TABLE,
    rare_names,
    scores_table,
    settings_table,
    systems_table,
)

pytestmark = pytest.mark.cases()  # what is enumerated may grow

WRITE = "run .venv/bin/python tests/support/setting_words.py"
ONLY_CLASSES = {"C", "nystrom_C", "class_weight", "distill_weight", "threshold"}
ONLY_NUMBERS = {"quantile", "ridge", "target_transform"}


def test_every_setting_says_what_it_means_and_what_it_may_be() -> None:
    described = describe_settings()
    assert tuple(one.name for one in described) == SETTING_NAMES
    for one in described:
        assert one.meaning[0].isupper() or one.meaning.startswith("γ"), one.name
        assert one.meaning.endswith("."), one.name
        assert one.allowed, one.name
        assert "|" not in one.meaning + one.allowed, "a table would end its cell there"
    assert next(one for one in described if one.name == "kernel").allowed.count(",") == len(KERNELS) - 2


@pytest.mark.parametrize("one", describe_settings(), ids=lambda one: one.name)
def test_a_default_is_shown_as_it_can_be_set(one: object) -> None:
    assert getattr(make_settings({one.name: one.default}), one.name) == getattr(Settings(), one.name)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [n for n, f in Settings.__dataclass_fields__.items() if f.metadata["range"]])
def test_a_range_is_what_is_checked(name: str) -> None:
    low, high = Settings.__dataclass_fields__[name].metadata["range"]
    others: dict[str, object] = {"refine": False} if name == "triangle" else {}
    if name in ONLY_NUMBERS:
        others = {"task": "regression"} | ({"loss": "quantile"} if name == "quantile" else {})
    for within in (low, high) if high < float("inf") else (max(low, 1e-300),):
        try:
            make_settings({name: within, **others})
        except SettingsError as error:
            assert "it must be" not in str(error)  # noqa: PT017 - it may not fit beside others
    for beyond in (low - 1, 2 * high + 1) if high < float("inf") else (low - 1,):
        with pytest.raises(SettingsError, match=f"Cannot use {name}="):
            make_settings({name: beyond, **others})


def test_every_setting_is_in_one_group() -> None:
    grouped = [name for _, _, names in GROUPS for name in names]
    assert sorted(grouped) == sorted(SETTING_NAMES), (
        "GROUPS of tests/support/setting_words.py lists each setting"
    )


def test_the_tables_of_settings() -> None:
    found = TABLE.search(SETTINGS_PAGE.read_text())
    assert found, f"{SETTINGS_PAGE} has no tables of settings"
    assert found[0] == settings_table(), WRITE


def test_the_table_of_other_systems() -> None:
    found = SYSTEMS.search(SYSTEMS_PAGE.read_text())
    assert found, f"{SYSTEMS_PAGE} has no table of baselines"
    assert found[0] == systems_table(), WRITE
    for one in LEAF_MODELS.values():
        assert "|" not in one.meaning + one.counted


def test_the_table_of_scores() -> None:
    found = SCORES_TABLE.search(SCORES_PAGE.read_text())
    assert found, f"{SCORES_PAGE} has no table of scores"
    assert found[0] == scores_table(), WRITE


def test_systems_without_their_papers_say_so() -> None:
    """Beside their citation in the guide, and in what a comparison says."""
    ours = {"ldkl", "lmkl", "ball_tree", "support_tree", "aesvm", "reduced_set"}
    caveat = "Written from descriptions by others, not from the paper."
    lines = [line for line in systems_table().splitlines() if caveat in line]
    assert [line for line in lines if any(f"`{name}`" in line for name in ours)] == lines
    assert len(lines) == len(ours)
    results = [
        CompareResult(name, "", "done", "", None, None, None, None, None, None, None)
        for name in ("ldkl", "exact")
    ]
    report = CompareReport("folder", "classification", 9, 9, 2, {}, results, [], 1.0, [])
    assert description(report).endswith("Written from descriptions by others, not from the papers: ldkl.")
    report.results.pop(0)
    assert "Written" not in description(report)


def test_the_help_of_train() -> None:
    result = CliRunner().invoke(main, ["train", "-h"], terminal_width=100)
    assert result.exit_code == 0

    def unwrapped(words: str) -> str:
        """Without spaces, for lines end at hyphens, too."""
        return re.sub(r"\s+", "", words)

    told = unwrapped(result.output)
    for one in describe_settings():
        zero = f" 0: {one.zero}." if one.zero else ""
        assert unwrapped(f"{one.name} = {one.default} {one.meaning}{zero} [{one.allowed}]") in told


@pytest.mark.parametrize("of", [*ESTIMATORS, dcpred.Settings])
def test_the_docstring_of_an_estimator(of: type) -> None:
    """Each setting has the words of the guide, and what None stands for."""
    told = parameters_in(inspect.getdoc(of) or "")
    for one in describe_settings():
        if one.name in told and one.name not in OWN_WORDS:
            assert told[one.name].text.startswith(one.meaning.replace("false", "False")), one.name
            default = inspect.signature(of).parameters[one.name].default
            assert ("None: " in told[one.name].text) == (default is None), one.name
    assert list(told) == list(inspect.signature(of).parameters)


@pytest.mark.parametrize(
    ("estimator", "without"), [(DCPredClassifier, ONLY_NUMBERS), (DCPredRegressor, ONLY_CLASSES)]
)
def test_parameters_and_settings_together_are_the_settings_of_training(
    estimator: type, without: set[str]
) -> None:
    """Names and defaults; None stands for the default, or what a search chooses where all are None."""
    own = {name: p.default for name, p in inspect.signature(estimator).parameters.items()}
    assert len(own) <= 24
    rare = inspect.signature(dcpred.Settings).parameters
    assert list(rare) == rare_names()
    assert {one.default for one in rare.values()} == {None}
    taken = (set(own) | set(rare)) - OWN_WORDS
    assert taken | without == set(SETTING_NAMES) - {"task", "seed", "class_weight"} | without
    assert OWN_WORDS - set(own) == ({"class_weight"} & without)
    for name in set(own) - OWN_WORDS:
        default = getattr(Settings(), name)
        assert (own[name] is None) == (name not in BESIDE_A_SEARCH), name
        if own[name] is not None:
            assert own[name] == default, name
            assert type(own[name]) is type(default), name
