"""Which settings only compact models use, and which ones conflict: those of pseudo-landmarks by the triangle
inequality, and of compact models that stay near the local models.
"""

from collections.abc import Mapping
from typing import Any

from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.kernel_families import STATIONARY
from dcpred_tasks.model.leaf_model import COMPACT
from dcpred_tasks.training.losses import DISTANCE

# Settings of landmarks and pseudo-landmarks, which other leaf models do not have.
OF_COMPACT = (
    *("landmarks", "landmark_floor", "products", "triangle", "triangle_bound", "nystrom_rows", "head_gamma"),
    *("head_C", "refine", "refine_steps", "refine_epochs", "loss", "quantile", "refine_ridge", "guide"),
    *("leaf_scaling", "keep_support_vectors"),
)

# What other settings have to be with loss=distance.
OF_DISTANCE: Mapping[str, object] = {
    "kernel": "rbf",
    "products": 0,
    "triangle": 0,
    "guide": 0.0,
    "leaf_scaling": False,
    "refine_epochs": 0,
}


def check_compact(settings: Any, defaults: Mapping[str, object]) -> None:
    """Raise SettingsError where settings of compact models conflict, or are given for another leaf model."""
    if settings.machine != COMPACT:
        for name in OF_COMPACT:
            if getattr(settings, name) != defaults[name]:
                raise SettingsError(
                    f"{name} was set to {getattr(settings, name)!r}, but machine is {settings.machine}, and"
                    f" only compact models with landmarks use it; leave out {name}, or leave out machine"
                )
    if settings.loss == DISTANCE:
        _check_distance(settings)
    _check_triangle(settings)


def _check_distance(settings: Any) -> None:
    for name, needed in OF_DISTANCE.items():
        if (value := getattr(settings, name)) != needed:
            raise SettingsError(
                f"loss was set to {DISTANCE} with {name} {_told(value)}, but the distance to the local SVM"
                f" needs {name} {_told(needed)}; set {name} to that, or another loss"
            )
    same = (0.0, 1.0 if settings.gamma == "median" else settings.gamma)
    if settings.head_gamma not in same:
        raise SettingsError(
            f"loss was set to {DISTANCE} with head_gamma {settings.head_gamma:g}, but landmarks near the"
            " local SVM have its γ; leave out head_gamma, or set another loss"
        )


def _told(value: object) -> str:
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
            "triangle pseudo-landmarks were asked for together with refined landmarks, but only one of"
            " them is possible; set refine to false or triangle to 0"
        )
    if settings.triangle and settings.gamma == "median":
        raise SettingsError(
            "triangle pseudo-landmarks were asked for with gamma median, but they have one γ in all"
            " leaves; set gamma to scale or a number, or triangle to 0"
        )
    if settings.triangle and settings.kernel not in STATIONARY:
        raise SettingsError(
            f"triangle pseudo-landmarks were asked for with the {settings.kernel} kernel, but they need a"
            f" stationary kernel ({' or '.join(STATIONARY)}); set triangle to 0 or change the kernel"
        )
