"""The settings that few people change, as one argument of the estimators."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import Any, TypeVar

from dcpred_tasks.errors import SettingsError
from dcpred_tasks.training.settings import EARLIER_NAMES, renamed

F = TypeVar("F", bound=Callable[..., None])
T = TypeVar("T")
PREFIX = "settings__"  # prefix of their nested parameters in an estimator


def check_names(given: Iterable[str]) -> None:
    """Raise TypeError for an earlier name of a setting."""
    for name in given:
        if name in EARLIER_NAMES:
            raise TypeError(f"Cannot use the setting {name!r}: {renamed(name)}")


def checked_names(kind: type[T]) -> type[T]:
    """Make a constructor refuse earlier names of settings."""
    init = kind.__init__

    @wraps(init)
    def checked(self: T, *args: Any, **given: Any) -> None:
        check_names(given)
        init(self, *args, **given)

    kind.__init__ = checked  # type: ignore[method-assign,assignment]
    return kind


@checked_names
@dataclass(frozen=True, kw_only=True, repr=False)
class Settings:
    """Settings of training that few people change, for the parameter `settings` of both estimators.

    `DCPredClassifier(settings=dcpred.Settings(overlap=3))` sets one, `set_params(settings__overlap=3)`
    changes it, and a grid search takes `settings__overlap` as the name of a parameter.

    Parameters
    ----------
    feature_map : {"none", "clip", "quantile", "additive"} or None, default None
        How amounts are mapped before they are scaled: a few extreme values then do not outweigh all others.
        clip: linear about the median, and flat beyond three interquartile ranges. quantile: their share of
        smaller values in training rows, linear between at most 63 quantiles. additive: what they contribute
        to an additive model of the target, which gradient boosting fits to sampled rows. None: none.
    min_leaf_rows : int (from 1 to 1,000,000 rows) or None, default None
        A leaf with fewer rows is merged. None: 30.
    sample_rows : int (from 16 to 100,000,000 rows) or None, default None
        Rows that the scaling and the tree are learned from; fewer of more than 2,684 features: they take at
        most 1 GiB as float32. None: 100000.
    local_rows : int (from 2 to 100,000 rows) or None, default None
        Rows of a leaf that train its local SVM, or the exact model of the leaf, at most. They bound the
        memory of a task: 8 bytes times the square of this number. None: 8000.
    degree : int (from 1 to 10) or None, default None
        Degree of the polynomial kernel (γ x·u + coef0)^degree. None: 2.
    coef0 : float (0 or more) or None, default None
        Constant term of the polynomial kernel. None: 1.0.
    keep_support_vectors : bool or None, default None
        Keep the local SVMs in the model. Early prediction needs them. None: False.
    calibrate : bool or None, default None
        Measure on rows that are held out of a second fit of some leaves how uncertain predictions are:
        probabilities, intervals and novelty need it. None: True.
    leaf_model : {"compact", "exact"} or None, default None
        The model of a leaf. compact: landmarks and pseudo-landmarks. exact: the local SVM or kernel ridge
        regression itself, which predicts more slowly; in several leaves this is DC-SVM. None: compact.
    overlap : int (from 1 to 64 leaves) or None, default None
        Leaves that a row helps to train: its own, and the nearest after it. 2 to 4 help at borders of leaves.
        None: 1.
    landmark_floor : float (from 0 to 1) or None, default None
        Share of uniform weight where k-means finds landmarks; the rest of the weight is α². 0 is the paper's
        way. None: 0.3.
    products : int (from 0 to 1,000,000) or None, default None
        Pseudo-landmarks of each leaf that are products of two kernel values; none with loss=distance. None:
        64.
    triangle : int (from 0 to 1,000,000) or None, default None
        Pseudo-landmarks of each leaf by the triangle inequality. They need a stationary kernel, and
        refine=False. None: 0.
    triangle_bound : {"lower", "upper"} or None, default None
        Bound on the distance that the triangle inequality gives. None: lower.
    compact_gamma : float (from 0 to 1e+30) or None, default None
        γ that landmarks start with. Few landmarks like a smaller one. With gamma=median it is a factor of γ.
        None: that of the local SVMs.
    nystrom_C : float (0 or more) or None, default None
        C of the Nyström model, with refine=False. None: that of the local SVMs.
    refine : bool or None, default None
        Move landmarks, their γ and the output weights together until the loss is small. False: the paper's
        Nyström model. None: True.
    refine_steps : int (from 1 to 100,000 steps) or None, default None
        L-BFGS steps of the refinement, at most. None: 100.
    refine_epochs : int (from 0 to 100,000 passes) or None, default None
        Passes of stochastic steps over the rows of a leaf, instead of refine_steps. They are better and
        faster in leaves of many thousand rows. None: none.
    refine_ridge : float (0 or more) or None, default None
        Penalty on the output weights in the refinement. None: 0.001.
    leaf_scaling : bool or None, default None
        Features get other factors in each leaf, which refinement learns with the landmarks. They help where
        leaves are of different nature and have rows enough, numbers more than classes. None: False.
    distill_weight : float (from 0 to 1) or None, default None
        Share of the loss of the refinement that is the distance to the local SVM, for classes. None: 0.0.
    largest_weight : float (from 0.01 to 1) or None, default None
        Largest share of all sample weights that one row of 100 or more may have: training is refused beyond
        it. A row with more than a quarter is reported in any case: the model learns little else. None: 1.0.

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
        init(self, *args, **given)

    return checked  # type: ignore[return-value]


def _arguments(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())
