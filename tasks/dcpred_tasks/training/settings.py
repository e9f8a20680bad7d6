"""The settings of a training: names, ranges, defaults, descriptions."""

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral
from typing import Any, TypeVar

import numpy as np

from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.basis import BOUNDS
from dcpred_tasks.model.kernels import KERNELS, STATIONARY
from dcpred_tasks.model.label_rule import HALF, NAMED, check_threshold
from dcpred_tasks.model.leaf_model import COMPACT, EXACT
from dcpred_tasks.model.scaling import SCALINGS
from dcpred_tasks.model.target_transform import PLAIN, TRANSFORMS
from dcpred_tasks.training.losses import DISTANCE, LOSSES, Quantile, loss_tasks, loss_words

# Settings of landmarks and pseudo-landmarks, which baselines lack.
OF_COMPACT = (
    *("landmarks", "landmark_floor", "products", "triangle", "triangle_bound", "compact_gamma"),
    *(
        "nystrom_C",
        "refine",
        "refine_steps",
        "refine_epochs",
        "loss",
        "quantile",
        "refine_ridge",
        "distill_weight",
    ),
    *("leaf_scaling", "keep_support_vectors"),
)

# Required values of other settings with loss=distance.
OF_DISTANCE: Mapping[str, object] = {
    "kernel": "rbf",
    "products": 0,
    "triangle": 0,
    "distill_weight": 0.0,
    "leaf_scaling": False,
    "refine_epochs": 0,
}


def check_compact(settings: Any, defaults: Mapping[str, object]) -> None:
    """Raise SettingsError for an impossible compact model, and where its settings are set for another."""
    if settings.leaf_model != COMPACT:
        for name in OF_COMPACT:
            if getattr(settings, name) != defaults[name]:
                raise SettingsError(
                    f"Cannot use {name}={getattr(settings, name)!r}: leaf_model is {settings.leaf_model}, and"
                    f" only compact models with landmarks use {name}. Leave out {name}, or leave out"
                    " leaf_model."
                )
    if not settings.landmarks and not settings.trees:
        raise SettingsError(
            "Cannot use landmarks=0 without trees: nothing is left to predict with. Set landmarks or trees."
        )
    if settings.loss == DISTANCE:
        _check_distance(settings)
    _check_triangle(settings)


def _check_distance(settings: Any) -> None:
    for name, needed in OF_DISTANCE.items():
        if (value := getattr(settings, name)) != needed:
            raise SettingsError(
                f"Cannot use loss={DISTANCE} with {name} {_shown(value)}: the distance to the local SVM needs"
                f" {name} {_shown(needed)}. Set {name} to that, or another loss."
            )
    same = (0.0, 1.0 if settings.gamma == "median" else settings.gamma)
    if settings.compact_gamma not in same:
        raise SettingsError(
            f"Cannot use loss={DISTANCE} with compact_gamma {settings.compact_gamma:g}: landmarks near the"
            " local SVM have its γ. Leave out compact_gamma, or set another loss."
        )


def _shown(value: object) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else str(value)
        if isinstance(value, str)
        else f"{value:g}"
    )


def _check_triangle(settings: Any) -> None:
    if settings.triangle and settings.refine:
        raise SettingsError(
            "Cannot use triangle pseudo-landmarks together with refined landmarks. Set refine to false or"
            " triangle to 0."
        )
    if settings.triangle and settings.gamma == "median":
        raise SettingsError(
            "Cannot use triangle pseudo-landmarks with gamma median: they have one γ in all leaves. Set gamma"
            " to scale or a number, or triangle to 0."
        )
    if settings.triangle and settings.kernel not in STATIONARY:
        raise SettingsError(
            f"Cannot use triangle pseudo-landmarks with the {settings.kernel} kernel: they need a stationary"
            f" kernel ({' or '.join(STATIONARY)}). Set triangle to 0 or change the kernel."
        )


T = TypeVar("T")


def setting(
    default: T,
    meaning: str,
    *,
    choices: Sequence[str] = (),
    low: float | None = None,
    high: float = math.inf,
    unit: str = "",
    zero: str = "",
    more: str = "",
) -> T:
    """A field with its description and checks: its choices, or its range from `low` to `high` in `unit`, or
    both; `zero` is the meaning of 0, and `more` what it may be beside its choices.
    """
    metadata = {
        "meaning": meaning,
        "choices": tuple(choices),
        "range": None if low is None else (low, high),
        "unit": unit,
        "zero": zero,
        "more": more,
    }
    return field(default=default, metadata=metadata)


OF_TASK = {
    "classification": ("C", "class_weight", "distill_weight", "nystrom_C", "threshold"),
    "regression": ("quantile", "ridge", "target_transform"),
}

EARLIER_NAMES = {  # names in models of 0.1.0, and those of today
    "head_gamma": "compact_gamma",
    "head_C": "nystrom_C",
    "guide": "distill_weight",
    "machine": "leaf_model",
}

RETIRED = (  # settings of earlier versions
    *("symlog", "halo_weight", "head_ridge", "nystrom_rows", "basis", "size", "tolerance"),
)


def renamed(name: str) -> str:
    """What became of an earlier name."""
    return f"its name is {EARLIER_NAMES[name]}. Write {EARLIER_NAMES[name]} in its place."


def of_other_task(task: str, loss: object) -> tuple[str, ...]:
    """The names of settings of only the other task, with `loss` where it has this value."""
    names = next(names for other, names in OF_TASK.items() if other != task)
    return names if task in loss_tasks(loss) else (*names, "loss")


def in_effect(values: Mapping[str, T], task: str) -> dict[str, T]:
    """Stored values, without those that the task does not use. Earlier versions had other settings, trained
    baselines, which were names of `leaf_model`, and their searches of regression stored the C of SVMs.
    """
    values = {EARLIER_NAMES.get(name, name): value for name, value in values.items()}
    unused = {*of_other_task(task, values.get("loss", "hinge")), *RETIRED}
    if values.get("leaf_model", COMPACT) not in (COMPACT, EXACT):
        unused.add("leaf_model")
    return {name: value for name, value in values.items() if name not in unused}


PART = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^,]*?)\s*(?:,|$)')  # one between commas, in double quotes or not


def as_text(features: Sequence[int]) -> str:
    """Ascending numbers of features as text of the setting: 0-41 means all from 0 to 41."""
    breaks = np.flatnonzero(np.diff(features) != 1) + 1
    spans = np.split(np.array(features), breaks)
    return ",".join(f"{s[0]}" if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans)


def listed(value: object, setting: str) -> str:
    """The text of a value; names in a list are in double quotes, unlike numbers. Raises SettingsError."""
    if isinstance(value, str):
        if not value.lstrip().startswith("["):
            return value
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise SettingsError(
                f"Cannot use {setting}={str(value)[:80]}: it is not a list in JSON. Write it as"
                ' ["soil", 7], with names in double quotes, or as soil,7.'
            ) from None
    if isinstance(value, Iterable) and any(isinstance(item, bool | np.bool_) for item in value):
        raise SettingsError(
            f"Cannot use a mask of True and False in {setting}: it lists features. Name them by numbers, for"
            " example with numpy.flatnonzero(mask).tolist(), or by names."
        )
    features = [value] if isinstance(value, Integral) or not isinstance(value, Iterable) else list(value)
    parts = []
    for feature in features:
        if isinstance(feature, str):
            parts.append(json.dumps(feature))
        elif isinstance(feature, Integral) and not isinstance(feature, bool) and int(feature) >= 0:
            parts.append(str(feature))
        else:
            raise SettingsError(
                f"Cannot use feature {feature!r} in {setting}: it is neither a name nor a number from 0 on."
                " Name features by strings or integers."
            )
    return ",".join(parts)


def parts(text: str, setting: str = "categorical") -> list[tuple[str, bool]]:
    """The parts between commas that are not empty, and whether each is a name in double quotes."""
    texts = [match[1] for match in PART.finditer(text) if match[1]]
    return [(_unquoted(part, setting), True) if part.startswith('"') else (part, False) for part in texts]


def numbers(text: str) -> list[int]:
    """The features in a text of numbers and spans, ascending; words are ignored."""
    spans = (part.split("-") for part, _ in parts(text) if part[:1].isdecimal())
    return sorted({f for span in spans for f in range(int(span[0]), int(span[-1]) + 1)})


def _unquoted(part: str, setting: str) -> str:
    try:
        return str(json.loads(part))
    except ValueError:
        raise SettingsError(
            f"Cannot use feature {part} in {setting}: its quotes cannot be read. Write a name in double"
            " quotes as in JSON."
        ) from None


TINY = 5e-324  # the smallest positive number: "more than 0"


def range_in_words(low: float, high: float) -> str:
    """The text of the range from `low` to `high`, both included."""
    if high == math.inf:
        return "more than 0" if low == TINY else f"{low:g} or more"
    if low == TINY:
        return f"more than 0 and at most {high:g}"
    return f"from {_in_words(low)} to {_in_words(high)}"


def _in_words(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) and number < 1e15 else f"{number:g}"


TASKS = ("classification", "regression")
GAMMAS = ("scale", "median")
CATEGORICAL = AUTO, NONE = "auto", "none"
ADDITIVE = "additive"
FEATURE_MAPS = (NONE, "clip", "quantile", ADDITIVE)
INDICATE = "indicate"
MISSING = (AUTO, "refuse", "impute", INDICATE)
# Settings that list features, and what else they may be.
OF_FEATURES = {"categorical": CATEGORICAL, "missing": MISSING}
# Omitted from a model's settings at their defaults: models of earlier versions keep their hashes.
LATER = (
    *("categorical", "missing", "feature_map"),
    *("leaf_model", "calibrate", "threshold", "quantile", "target_transform", "largest_weight"),
    *("trees", "tree_depth", "tree_rate"),
)
_LARGEST_GAMMA = 1e30  # Single precision holds kernel values of no larger one.


@dataclass(frozen=True)
class Settings:
    """How a model is trained. `describe_settings` lists meaning, range and default of every setting."""

    task: str = setting("classification", "What is learned: classes or numbers.", choices=TASKS)
    # features and tree
    scaling: str = setting(
        "standard",
        "How features are scaled, after they are mapped. learned: an ARD scale for each feature, by which"
        " near rows have like targets; a feature that does not matter gets 0. sharpened: the same, as long as"
        " it pays: few features may then outweigh all others. standard: to variance 1. minmax: to"
        " the range 0 to 1.",
        choices=SCALINGS,
    )
    categorical: str = setting(
        "auto",
        "Features whose values are codes and not amounts: each becomes a column for every value but the most"
        " frequent one, rare ones and those that no training row has. auto: the categories of a table; a"
        " search may add features of 3 to 256 different integers. Listed features are one-hot encoded in"
        " addition to the categories of a table; with auto among them a search may add others."
        " none: no feature.",
        choices=CATEGORICAL,
        more="features as 3,7 or 0-41, or their names",
    )
    missing: str = setting(
        "auto",
        "What a missing value (NaN) is. refuse: a value that no row may have. impute: the mean of its"
        " feature, or the most frequent code. indicate: the same, and every feature with missing values gets"
        " a column that says where they are; of features that are listed, those with missing values get one,"
        " and no others do. auto: refuse where no training row has a missing value; else indicate. A search"
        " chooses between impute and indicate.",
        choices=MISSING,
        more="features as 3,7 or 0-41, or their names",
    )
    feature_map: str = setting(
        "none",
        "How amounts are mapped before they are scaled: a few extreme values then do not outweigh all"
        " others. clip: linear about the median, and flat beyond three interquartile ranges. quantile: their"
        " share of smaller values in training rows, linear between at most 63 quantiles. additive: what they"
        " contribute to an additive model of the target, which gradient boosting fits to sampled rows.",
        choices=FEATURE_MAPS,
    )
    n_leaves: int = setting(
        0,
        "Leaves to aim at, rounded down to a power of two. More leaves make training cheaper.",
        low=0,
        high=2**24,
        unit="leaves",
        zero="one leaf for every 1,000 rows, at most 4,096",
    )
    max_leaf_rows: int = setting(
        8_000, "A leaf with more rows is split again.", low=2, high=10**6, unit="rows"
    )
    min_leaf_rows: int = setting(30, "A leaf with fewer rows is merged.", low=1, high=10**6, unit="rows")
    sample_rows: int = setting(
        100_000,
        "Rows that the scaling and the tree are learned from; fewer of more than 2,684 features: they"
        " take at most 1 GiB as float32.",
        low=16,
        high=10**8,
        unit="rows",
    )
    # local SVMs
    local_rows: int = setting(
        8_000,
        "Rows of a leaf that landmarks are drawn from, and that train its local SVM or the exact model of the"
        " leaf, at most. They bound the memory of these: 8 bytes times the square of this number.",
        low=2,
        high=100_000,
        unit="rows",
    )
    kernel: str = setting("rbf", "Kernel of the local SVMs and of the landmarks.", choices=KERNELS)
    gamma: float | str = setting(
        "scale",
        "γ of the local SVMs, in scaled features. scale: 1 / (features × variance), or 1 with"
        " learned scaling (rbf, Matérn). median: in each leaf 1 / the median squared distance of its rows, or"
        " distance for laplacian.",
        choices=GAMMAS,
        low=TINY,
        high=_LARGEST_GAMMA,
    )
    degree: int = setting(2, "Degree of the polynomial kernel (γ x·u + coef0)^degree.", low=1, high=10)
    coef0: float = setting(1.0, "Constant term of the polynomial kernel.", low=0)
    C: float = setting(
        10.0,
        "Penalty on errors of the local SVMs, for classes. Landmarks depend on these with refine=false,"
        " loss=distance or distill_weight.",
        low=TINY,
    )
    ridge: float = setting(
        1e-2, "Ridge λ of the local kernel ridge regressions, for numbers, with refine=false.", low=TINY
    )
    target_transform: str = setting(
        PLAIN,
        "Scale that numbers are learned on, for targets of 0 or more whose errors grow with them. log1p: the"
        " logarithm of 1 + the target. sqrt: its square root. Predictions and intervals are on the scale of"
        " the target, and predictions are means. A search tries log1p and sqrt for skewed targets.",
        choices=TRANSFORMS,
    )
    class_weight: str = setting(
        "none",
        "Weight of the classes. balanced: all classes weigh the same. The label is the class with the largest"
        " weight × probability; probabilities stay those of the data's own rates.",
        choices=("none", "balanced"),
    )
    threshold: str = setting(
        HALF,
        "Probability from which on a row gets the label of the second of two classes. none: one half, or what"
        " class_weight makes of it. Those that follow are chosen on rows that are held out. f1: the largest"
        " F1. balanced: the largest balanced accuracy. precision>=0.9: the largest recall of those with so"
        " much precision, and recall>=0.9 the other way round. cost=50: to miss a row costs 50 times what it"
        " costs to flag a wrong one.",
        choices=NAMED,
        more="a probability as 0.2, cost=50, precision>=0.9, recall>=0.9",
    )
    keep_support_vectors: bool = setting(
        False, "Keep the local SVMs in the model. Early prediction needs them."
    )
    calibrate: bool = setting(
        True,
        "Measure on rows that are held out of a second fit of some leaves how uncertain predictions are:"
        " probabilities, intervals and novelty need it.",
    )
    leaf_model: str = setting(
        COMPACT,
        "The model of a leaf. compact: landmarks and pseudo-landmarks. exact: the local SVM or kernel ridge"
        " regression itself, which predicts more slowly; in several leaves this is DC-SVM.",
        choices=(COMPACT, EXACT),
    )
    # trees beside leaves
    trees: int = setting(
        0,
        "Boosted trees that the model adds to its leaves, at most: held-out rows choose their number. A row"
        " takes about 0.2 ns for each.",
        low=0,
        high=10_000,
        zero="none",
    )
    tree_depth: int = setting(
        6, "Questions of each tree: all of its nodes on a level ask the same one.", low=1, high=8
    )
    tree_rate: float = setting(
        0.1,
        "Share of its best step that each tree takes. A smaller one needs more trees.",
        low=0.001,
        high=1,
    )
    # overlap
    overlap: int = setting(
        1,
        "Leaves that a row helps to train: its own, and the nearest after it. 2 to 4 help at borders of"
        " leaves.",
        low=1,
        high=64,
        unit="leaves",
    )
    # compact models
    landmarks: int = setting(
        16,
        "Landmarks of each leaf: exact kernel values in each prediction.",
        low=0,
        high=10_000,
        zero="trees alone",
    )
    landmark_floor: float = setting(
        0.3,
        "Share of uniform weight where k-means finds landmarks; the rest of the weight is α². 0 is the"
        " paper's way.",
        low=0,
        high=1,
    )
    products: int = setting(
        64,
        "Pseudo-landmarks of each leaf that are products of two kernel values; none with loss=distance.",
        low=0,
        high=10**6,
    )
    triangle: int = setting(
        0,
        "Pseudo-landmarks of each leaf by the triangle inequality. They need a stationary kernel, and"
        " refine=false.",
        low=0,
        high=10**6,
    )
    triangle_bound: str = setting(
        "lower", "Bound on the distance that the triangle inequality gives.", choices=BOUNDS
    )
    compact_gamma: float = setting(
        0.0,
        "γ that landmarks start with. Few landmarks like a smaller one. With gamma=median it is a factor"
        " of γ.",
        low=0,
        high=_LARGEST_GAMMA,
        zero="that of the local SVMs",
    )
    nystrom_C: float = setting(
        0.0, "C of the Nyström model, with refine=false.", low=0, zero="that of the local SVMs"
    )
    refine: bool = setting(
        True,
        "Move landmarks, their γ and the output weights together until the loss is small. false: the paper's"
        " Nyström model.",
    )
    refine_steps: int = setting(
        100, "L-BFGS steps of the refinement, at most.", low=1, high=100_000, unit="steps"
    )
    refine_epochs: int = setting(
        0,
        "Passes of stochastic steps over the rows of a leaf, instead of refine_steps. They are better and"
        " faster in leaves of many thousand rows.",
        low=0,
        high=100_000,
        unit="passes",
        zero="none",
    )
    loss: str = setting("hinge", f"Loss of the refinement. {loss_words()}", choices=LOSSES)
    quantile: float = setting(
        0.5,
        "Level of the quantile that is predicted, with loss=quantile: the fraction of rows whose values lie"
        " below.",
        low=0.001,
        high=0.999,
    )
    refine_ridge: float = setting(1e-3, "Penalty on the output weights in the refinement.", low=0)
    leaf_scaling: bool = setting(
        False,
        "Features get other factors in each leaf, which refinement learns with the landmarks. They help where"
        " leaves are of different nature and have rows enough, numbers more than classes.",
    )
    distill_weight: float = setting(
        0.0,
        "Share of the loss of the refinement that is the distance to the local SVM, for classes.",
        low=0,
        high=1,
    )
    largest_weight: float = setting(
        1.0,
        "Largest share of all sample weights that one row of 100 or more may have: training is refused beyond"
        " it. A row with more than a quarter is reported in any case: the model learns little else.",
        low=0.01,
        high=1,
    )
    seed: int = setting(
        0, "Start of every random choice. The same seed gives the same model.", low=0, high=2**31 - 1
    )

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise SettingsError(
                    f"Cannot use {name}={value!r}: it is unknown{_nearest(str(value), choices)}. Use one of"
                    f" {', '.join(choices)}."
                )
        for name, words in OF_FEATURES.items():
            if not getattr(self, name).strip(" ,"):
                raise SettingsError(
                    f"Cannot use {name}={getattr(self, name)!r}: it lists no feature. Set it to"
                    f" {', to '.join(reversed(words))}, or to features as 3,7 or 0-41."
                )
        if self.gamma not in GAMMAS and not (
            isinstance(self.gamma, int | float) and 0 < self.gamma <= _LARGEST_GAMMA
        ):
            raise SettingsError(
                f"Cannot use gamma={self.gamma!r}: it must be {range_in_words(TINY, _LARGEST_GAMMA)}, or one"
                f" of {', '.join(GAMMAS)}."
            )
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not (isinstance(value, int | float) and low <= value <= high and math.isfinite(value)):
                raise SettingsError(f"Cannot use {name}={value!r}: it must be {range_in_words(low, high)}.")
        for name in ("distill_weight", "loss", "refine_epochs", "leaf_scaling"):
            if getattr(self, name) != DEFAULTS[name] and not self.refine:
                raise SettingsError(
                    f"Cannot use {name}={getattr(self, name)!r}: refine is false, and only refinement uses"
                    f" {name}. Leave out {name}, or set refine to true."
                )
        if self.quantile != DEFAULTS["quantile"] and self.loss != Quantile.name:
            raise SettingsError(
                f"Cannot use quantile={self.quantile:g}: loss is {self.loss}, which has no quantile. Leave"
                f" out quantile, or set loss to {Quantile.name}."
            )
        check_threshold(self.threshold)
        if self.threshold != HALF and (not self.calibrate or self.leaf_model != COMPACT):
            what = (
                "calibrate is false"
                if not self.calibrate
                else f"leaf_model is {self.leaf_model}, which has none"
            )
            raise SettingsError(
                f"Cannot use threshold={self.threshold!r}: {what}, and a threshold needs calibrated"
                " probabilities. Leave out one of them."
            )
        for name in of_other_task(self.task, self.loss):
            if getattr(self, name) != DEFAULTS[name]:
                other = TASKS[1 - TASKS.index(self.task)]
                raise SettingsError(
                    f"Cannot use {name}={getattr(self, name)!r}: the task is {self.task}, and only {other}"
                    f" uses it. Leave out {name}, or set task to {other}."
                )
        check_compact(self, DEFAULTS)
        if self.min_leaf_rows > self.max_leaf_rows:
            raise SettingsError(
                f"Cannot use min_leaf_rows={self.min_leaf_rows}: max_leaf_rows is {self.max_leaf_rows}. Set"
                " min_leaf_rows to at most max_leaf_rows."
            )

    @property
    def own_leaf_rows(self) -> int:
        """Rows beyond which a leaf is divided: with its overlap rows it then has about max_leaf_rows."""
        return max(self.max_leaf_rows // self.overlap, self.min_leaf_rows, 2)


_CHOICES: dict[str, tuple[str, ...]] = {
    f.name: f.metadata["choices"]
    for f in fields(Settings)
    if f.metadata["choices"] and f.name != "gamma" and not f.metadata["more"]
}
_RANGES: dict[str, tuple[float, float]] = {
    f.name: f.metadata["range"] for f in fields(Settings) if f.metadata["range"] and f.name != "gamma"
}
SETTING_NAMES = tuple(f.name for f in fields(Settings))
DEFAULTS: dict[str, object] = {f.name: f.default for f in fields(Settings)}
_TYPES: dict[str, type] = {f.name: type(f.default) for f in fields(Settings)}


def make_settings(values: dict[str, object]) -> Settings:
    """Settings from names and values, which may be text (of the command line) or typed (of TOML or Python).
    With loss=distance there are no products unless they are named, which raises.

    Raises SettingsError for an unknown name, with the nearest known one, and for a value of the wrong type.
    """
    for name in values:
        if name in EARLIER_NAMES:
            raise SettingsError(f"Cannot use the setting {name!r}: {renamed(name)}")
        if name not in _TYPES:
            raise SettingsError(
                f"Cannot use the setting {name!r}: it is unknown{_nearest(name, SETTING_NAMES)}. The settings"
                f" are {', '.join(SETTING_NAMES)}."
            )
    typed = {name: _typed(name, value) for name, value in values.items()}
    if typed.get("loss") == DISTANCE:
        typed.setdefault("products", 0)
    return Settings(**typed)  # type: ignore[arg-type]


def settings_dict(settings: Settings) -> dict[str, object]:
    """Names and values. Those of LATER are omitted at their defaults: earlier hashes stay."""
    return {n: v for n, v in asdict(settings).items() if n not in LATER or v != DEFAULTS[n]}


def _typed(name: str, value: object) -> object:
    wanted = _TYPES[name]
    if name in OF_FEATURES:
        return listed(value, name)
    try:
        if wanted is bool:
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[
                str(value).lower()
            ]
        if wanted is int:
            number = float(str(value).replace("_", ""))
            if number != int(number):
                raise ValueError
            return int(number)
        if name == "gamma" and value in GAMMAS:
            return str(value)
        if wanted is float or name == "gamma":
            return float(str(value))
    except (KeyError, ValueError, OverflowError):
        kinds = {
            bool: "true or false",
            int: "an integer",
            float: "a number",
            str: f"a number, {' or '.join(GAMMAS)}",
        }
        raise SettingsError(f"Cannot use {name}={value!r}: it must be {kinds[wanted]}.") from None
    return str(value)


def _nearest(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    return f" (did you mean {close[0]!r}?)" if close else ""


# Settings that a search does not change.
BESIDE_A_SEARCH = frozenset(
    {
        "task",
        "categorical",
        *("class_weight", "threshold"),
        *("keep_support_vectors", "calibrate"),
        "largest_weight",
        "max_leaf_rows",
        "missing",
        "sample_rows",
        "seed",
        "target_transform",
    }
)


@dataclass(frozen=True)
class Description:
    """A setting as text: its default, its range, its meaning with that of 0, and its named values."""

    name: str
    default: str
    allowed: str
    meaning: str
    zero: str
    values: tuple[str, ...]


def describe_settings() -> tuple[Description, ...]:
    """Every setting in the order of Settings, for the user guide, `dcpred train -h` and estimators."""
    return tuple(
        Description(
            f.name,
            _as_value(f.default),
            _allowed(f.name),
            f.metadata["meaning"],
            f.metadata["zero"],
            ("true", "false") if isinstance(f.default, bool) else f.metadata["choices"],
        )
        for f in fields(Settings)
    )


def _as_value(default: object) -> str:
    """The value in the form of --set."""
    return str(default).lower() if isinstance(default, bool) else str(default)


def _allowed(name: str) -> str:
    metadata = Settings.__dataclass_fields__[name].metadata
    if isinstance(getattr(Settings, name), bool):
        return "true or false"
    ways = list(metadata["choices"])
    if metadata["more"]:
        ways.append(metadata["more"])
    if metadata["range"]:
        ways.append(f"{range_in_words(*metadata['range'])} {metadata['unit']}".rstrip())
    return ", ".join(ways[:-1]) + f" or {ways[-1]}" if len(ways) > 1 else ways[0]
