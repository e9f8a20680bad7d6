"""The settings that few people change, as one argument of the estimators, and what docstrings say of all."""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import Any, TypeVar

from sklearn.base import ClassifierMixin

from dcpred.public.functions import check_keywords
from dcpred.public.parameters import Parameter, documented, parameters_in
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.evaluation.named_scores import CLASSES, NUMBERS, SCORES
from dcpred_tasks.training.settings import (
    EARLIER_NAMES,
    SETTING_NAMES,
    Description,
    describe_settings,
    renamed,
)
from dcpred_tasks.training.settings import Settings as TrainingSettings

F = TypeVar("F", bound=Callable[..., None])
T = TypeVar("T")
C = TypeVar("C", bound=type)
PREFIX = "settings__"  # prefix of their nested parameters in an estimator
LONGEST_CHOICES = 70  # characters of the choices that a docstring lists
OF_ESTIMATORS = parameters_in("""
cv : int, splitter of scikit-learn, iterable of (train, test) row numbers, or None, default None
    How rows are held out for the search, probabilities and intervals: the number of folds, or a splitter
    (GroupKFold, TimeSeriesSplit). With `groups` of `fit`, None and a number keep the rows of each group
    together. None: four folds of rows.
directory : path or None, default None
    Where training on Dask or Zarr arrays keeps intermediate files. Every worker must have access. None: the
    temporary folder of the system. Rows in memory need none, unless a search runs on a Dask client.
n_jobs : int or None, default None
    Threads that fit leaves, for rows in memory; -1 is one for each core. None: one. A search evaluates one
    candidate on each core if it is None.
prefer : {"cost", "accuracy"}, default "cost"
    Of the candidates of the search that are as good as the best, take the cheapest; or take the best one.
random_state : int, RandomState or None, default None
    Seed of all random choices. The same number gives the same model.
seconds : float or None, default None
    Time limit of the search and the training: the default settings are evaluated first, and others while time
    lasts. Results then depend on the speed of the computer. None: the search ends by itself.
settings : Settings or None, default None
    Settings that few people change: `dcpred.Settings(overlap=3)`. None: their defaults.
verbose : int, default 0
    1: `fit` shows its progress on standard error. 0: it shows nothing.
accept : sequence of str, default ()
    Codes of remarks to omit, for example id-feature.
on_alarm : {"warn", "raise"}, default "warn"
    Whether an alarm among the remarks of `fit` is a Python warning, or an error that changes nothing.
""")


OTHER_METRICS = {
    CLASSES: '"neg_mean_cost=50" (a missed row of the second class costs 50 times a false alarm; or a matrix,'
    ' as "neg_mean_cost=0,1,9;1,0,9;1,1,0"), or a scorer (`make_scorer`), which sees the numbers of classes'
    " as targets. None: accuracy; log-loss where one class has at least 90 % of the rows.",
    NUMBERS: '"neg_mean_pinball_loss=0.9" (of a quantile), or a scorer (`make_scorer`). None: the squared'
    " error.",
}


def _metric(task: str) -> Parameter:
    names = ", ".join(f'"{score.name}"' for score in SCORES if score.task == task and not score.takes_value)
    text = f"Metric of the search for settings: the name of a scorer of scikit-learn ({names}), "
    lines = textwrap.fill(text + OTHER_METRICS[task], 102)
    return Parameter("str, callable or None, default None", textwrap.indent(lines, "    "))


def with_parameters(kind: C) -> C:
    """Describe in the docstring of a class the parameters that are settings, or those of all estimators."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()}
    settings = {
        setting.name: _described(setting, defaults[setting.name])
        for setting in describe_settings()
        if setting.name in defaults
    }
    metric = _metric(CLASSES if issubclass(kind, ClassifierMixin) else NUMBERS)
    return documented(kind, OF_ESTIMATORS | settings | {"metric": metric})


def _described(setting: Description, default: object) -> Parameter:
    """A setting as a parameter whose default may be None: that of the setting, or what a search chooses."""
    metadata = TrainingSettings.__dataclass_fields__[setting.name].metadata
    choices = "{" + ", ".join(f'"{choice}"' for choice in metadata["choices"]) + "}"
    long = metadata["more"] or len(choices) > LONGEST_CHOICES
    kinds = ["str"] if long else [choices] * bool(metadata["choices"])
    standard = getattr(TrainingSettings, setting.name)
    if not isinstance(standard, str) or metadata["range"]:
        kind = "float" if isinstance(standard, str) else type(standard).__name__
        limits = setting.allowed.removeprefix(", ".join(metadata["choices"]) + " or ")
        kinds.append(kind if kind == "bool" else f"{kind} ({limits})")
    kinds += ["None"] * (default is None)
    words = f'"{default}"' if isinstance(default, str) else str(default)
    zero = f" {'None' if default is None else '0'}: {setting.zero}." if setting.zero else ""
    if default is None and not zero:
        zero = f" None: {standard}."
    meaning = textwrap.fill(re.sub(r"\bfalse\b", "False", f"{setting.meaning}{zero}"), 102)
    return Parameter(f"{' or '.join(kinds)}, default {words}", textwrap.indent(meaning, "    "))


def check_names(given: Iterable[str]) -> None:
    """Raise TypeError for an earlier name of a setting."""
    for name in given:
        if name in EARLIER_NAMES:
            raise TypeError(f"Cannot use the setting {name!r}: {renamed(name)}")


def checked_names(kind: type[T]) -> type[T]:
    """Make the constructor of `Settings` refuse earlier names of settings, and those of an estimator."""
    init, known = kind.__init__, list(inspect.signature(kind).parameters)

    @wraps(init)
    def checked(self: T, *args: Any, **given: Any) -> None:
        check_names(given)
        common = {name: given[name] for name in given if name not in known and name in SETTING_NAMES}
        if common:
            raise TypeError(
                f"Settings has no parameter{'s' * (len(common) > 1)} {', '.join(map(repr, common))}. Pass to"
                f" the estimator {_arguments(common)}."
            )
        check_keywords(kind.__name__, given, known)
        init(self, *args, **given)

    kind.__init__ = checked  # type: ignore[method-assign,assignment]
    return kind


@with_parameters
@checked_names
@dataclass(frozen=True, kw_only=True, repr=False)
class Settings:
    """Settings of training that few people change, for the parameter `settings` of both estimators.

    `DCPredClassifier(settings=dcpred.Settings(overlap=3))` sets one, `set_params(settings__overlap=3)`
    changes it, and a grid search takes `settings__overlap` as the name of a parameter.

    Examples
    --------
    >>> Settings(refine_steps=50, overlap=3)
    Settings(overlap=3, refine_steps=50)
    """

    feature_map: str | None = None
    min_leaf_rows: int | None = None
    sample_rows: int | None = None
    local_rows: int | None = None
    degree: int | None = None
    coef0: float | None = None
    keep_support_vectors: bool | None = None
    calibrate: bool | None = None
    leaf_model: str | None = None
    trees: int | None = None
    tree_depth: int | None = None
    tree_rate: float | None = None
    overlap: int | None = None
    landmark_floor: float | None = None
    products: int | None = None
    triangle: int | None = None
    triangle_bound: str | None = None
    compact_gamma: float | None = None
    nystrom_C: float | None = None
    refine: bool | None = None
    refine_steps: int | None = None
    refine_epochs: int | None = None
    refine_ridge: float | None = None
    leaf_scaling: bool | None = None
    distill_weight: float | None = None
    largest_weight: float | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return every setting by name.

        Parameters
        ----------
        deep : bool, default True
            Ignored: no setting has parameters of its own.

        Returns
        -------
        dict of str to value
            None for a setting that is not set.
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def given(self) -> dict[str, Any]:
        """Return the settings that are set.

        Returns
        -------
        dict
            Values by name.
        """
        return {name: value for name, value in self.get_params().items() if value is not None}

    def __repr__(self) -> str:
        return f"Settings({_arguments(self.given())})"


NAMES = frozenset(field.name for field in fields(Settings))


def given_settings(settings: Any) -> dict[str, Any]:
    """The settings that the parameter `settings` of an estimator sets. Raises SettingsError."""
    if settings is None:
        return {}
    if not isinstance(settings, Settings):
        raise SettingsError(
            f"Cannot use settings={settings!r}: it is not a dcpred.Settings. Pass dcpred.Settings(overlap=3),"
            " or leave it out."
        )
    return settings.given()


def changed_settings(settings: Any, nested: Mapping[str, Any]) -> Settings:
    """The settings of an estimator with other values of some. Raises ValueError as `set_params` does."""
    given = Settings(**given_settings(settings))
    for name in nested:
        if name not in NAMES:
            raise ValueError(
                f"Invalid parameter {name!r} for dcpred.Settings. Valid parameters are: {sorted(NAMES)!r}."
            )
    return replace(given, **nested)


def as_parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by name as constructor parameters of an estimator: those of `Settings` in one."""
    rare = {name: value for name, value in values.items() if name in NAMES}
    common = {name: value for name, value in values.items() if name not in NAMES}
    return common | ({"settings": Settings(**rare)} if rare else {})


def without_rare_settings(init: F) -> F:
    """Make the constructor of an estimator name the place of settings that it does not take itself."""

    @wraps(init)
    def checked(self: Any, *args: Any, **given: Any) -> None:
        check_names(given)
        rare = {name: value for name, value in given.items() if name in NAMES}
        if rare:
            names = ", ".join(map(repr, rare))
            raise TypeError(
                f"{type(self).__name__} has no parameter{'s' * (len(rare) > 1)} {names}. Pass"
                f" settings=dcpred.Settings({_arguments(rare)})."
            )
        check_keywords(type(self).__name__, given, list(inspect.signature(init).parameters)[1:])
        init(self, *args, **given)

    return checked  # type: ignore[return-value]


def _arguments(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())
