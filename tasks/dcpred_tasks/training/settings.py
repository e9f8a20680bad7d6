"""Every setting of training, with its default and what it may be. Frozen, and checked when it is made."""

import difflib
import math
from dataclasses import asdict, dataclass, fields

from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.kernel_families import KERNELS, STATIONARY
from dcpred_tasks.model.scaling import SCALINGS

TASKS = ("classification", "regression")
BOUNDS = ("lower", "upper")
GAMMAS = ("scale", "median")


@dataclass(frozen=True)
class Settings:
    """How a model is trained. γ, C and λ of the head default to those of the local models."""

    task: str = "classification"
    # features and tree
    scaling: str = "standard"
    n_leaves: int = (
        0  # a target, rounded down to a power of two; 0: one leaf for every 1,000 rows, at most 4,096
    )
    max_leaf_rows: int = 8_000  # a larger leaf is split again
    min_leaf_rows: int = 30  # a smaller leaf is merged
    sample_rows: int = 100_000  # rows that scaling and tree are learned from
    # local kernel machines
    local_rows: int = (
        8_000  # of a leaf that its local machine is trained on, at most; a Gram matrix takes 8 B × its square
    )
    kernel: str = "rbf"
    gamma: float | str = (
        "scale"  # in scaled features; "scale", "median" (per leaf) or a number: see division._kernels
    )
    degree: int = 2
    coef0: float = 1.0
    C: float = 10.0
    ridge: float = 1e-2
    class_weight: str = "none"
    keep_support_vectors: bool = False  # needed by early prediction
    # overlap
    overlap: int = 1  # leaves that a row helps to train, its own among them
    halo_weight: float = 0.3  # of a row in the compact models of leaves that are not its own
    # compact models
    landmarks: int = 16
    landmark_floor: float = 0.3  # share of uniform weight in their k-means; 0: α² alone (theorem 3), 1: no α²
    products: int = 64  # degree-2 products of kernel values
    triangle: int = 0  # pseudo-landmarks by the triangle inequality
    triangle_bound: str = "lower"
    nystrom_rows: int = 500  # |I| of eq. 5
    head_gamma: float = 0.0
    head_C: float = 0.0
    head_ridge: float = 0.0
    refine: bool = True  # move landmarks, their γ and output weights together
    refine_steps: int = 100
    refine_epochs: int = (
        0  # passes over the rows of a leaf by stochastic steps, instead of refine_steps; 0: none
    )
    refine_ridge: float = 1e-3
    guide: float = (
        0.0  # share of the loss of refinement that is the distance to the local machine, for classes
    )
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise SettingsError(
                    f"{name} was set to {value!r}, but it is one of"
                    f" {', '.join(choices)}{_nearest(str(value), choices)}"
                )
        if self.gamma not in GAMMAS and not (
            isinstance(self.gamma, int | float) and 0 < self.gamma < math.inf
        ):
            raise SettingsError(
                f"gamma was set to {self.gamma!r}, but it must be more than 0, or one of {', '.join(GAMMAS)}"
            )
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not (isinstance(value, int | float) and low <= value <= high and math.isfinite(value)):
                raise SettingsError(f"{name} was set to {value!r}, but it must be {_range(low, high)}")
        if self.triangle and self.refine:
            raise SettingsError(
                "triangle pseudo-landmarks were asked for together with refined landmarks, but only one of"
                " them is possible; set refine to false or triangle to 0"
            )
        for name in ("guide", "refine_epochs"):
            if getattr(self, name) and not self.refine:
                raise SettingsError(
                    f"{name} was set to {getattr(self, name)!r}, but refine is false, and nothing else uses"
                    f" it; leave out {name}, or set refine to true"
                )
        if self.triangle and self.gamma == "median":
            raise SettingsError(
                "triangle pseudo-landmarks were asked for with gamma median, but they have one γ in all"
                " leaves; set gamma to scale or a number, or triangle to 0"
            )
        if self.triangle and self.kernel not in STATIONARY:
            raise SettingsError(
                f"triangle pseudo-landmarks were asked for with the {self.kernel} kernel, but they need a"
                f" stationary kernel ({' or '.join(STATIONARY)}); set triangle to 0 or change the kernel"
            )
        if self.min_leaf_rows > self.max_leaf_rows:
            raise SettingsError(
                f"min_leaf_rows is {self.min_leaf_rows:,}, but max_leaf_rows is {self.max_leaf_rows:,}; "
                "set min_leaf_rows to no more than max_leaf_rows"
            )

    @property
    def own_leaf_rows(self) -> int:
        """Rows beyond which a leaf is divided: with its halo it then is about within max_leaf_rows."""
        return max(self.max_leaf_rows // self.overlap, self.min_leaf_rows, 2)


_CHOICES: dict[str, tuple[str, ...]] = {
    "task": TASKS,
    "scaling": SCALINGS,
    "kernel": KERNELS,
    "class_weight": ("none", "balanced"),
    "triangle_bound": BOUNDS,
}
_TINY = 5e-324  # the smallest positive number: "more than 0"
_RANGES: dict[str, tuple[float, float]] = {
    "n_leaves": (0, 2**24),
    "max_leaf_rows": (2, 10**6),
    "min_leaf_rows": (1, 10**6),
    "local_rows": (2, 100_000),
    "sample_rows": (16, 10**8),
    "degree": (1, 10),
    "coef0": (0, math.inf),
    "C": (_TINY, math.inf),
    "ridge": (_TINY, math.inf),
    "overlap": (1, 64),
    "halo_weight": (0, 1),
    "landmarks": (1, 10_000),
    "landmark_floor": (0, 1),
    "products": (0, 10**6),
    "triangle": (0, 10**6),
    "nystrom_rows": (2, 100_000),
    "head_gamma": (0, math.inf),
    "head_C": (0, math.inf),
    "head_ridge": (0, math.inf),
    "refine_steps": (1, 100_000),
    "refine_epochs": (0, 100_000),
    "refine_ridge": (0, math.inf),
    "guide": (0, 1),
    "seed": (0, 2**31 - 1),
}
SETTING_NAMES = tuple(f.name for f in fields(Settings))
_TYPES: dict[str, type] = {f.name: type(f.default) for f in fields(Settings)}


def make_settings(values: dict[str, object]) -> Settings:
    """Settings from names and values, which may be text (of the command line) or typed (of TOML or Python).

    Raises SettingsError for an unknown name, with the nearest known one, and for a value of the wrong type.
    """
    for name in values:
        if name not in _TYPES:
            raise SettingsError(
                f"there is no setting {name!r}{_nearest(name, SETTING_NAMES)}; the settings are"
                f" {', '.join(SETTING_NAMES)}"
            )
    return Settings(**{name: _typed(name, value) for name, value in values.items()})  # type: ignore[arg-type]


def settings_dict(settings: Settings) -> dict[str, object]:
    return asdict(settings)


def _typed(name: str, value: object) -> object:
    wanted = _TYPES[name]
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
            int: "a whole number",
            float: "a number",
            str: f"a number, {' or '.join(GAMMAS)}",
        }
        raise SettingsError(f"{name} was set to {value!r}, but it must be {kinds[wanted]}") from None
    return str(value)


def _nearest(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _range(low: float, high: float) -> str:
    if high == math.inf:
        return "more than 0" if low == _TINY else f"{low:g} or more"
    return f"from {low:,.0f} to {high:,.0f}"
