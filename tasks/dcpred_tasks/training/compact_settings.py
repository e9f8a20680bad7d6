"""Which settings only compact models use, and which ones conflict: those of pseudo-landmarks by the triangle
inequality, and of compact models that stay near the local models.
"""

from collections.abc import Mapping
from typing import Any

from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.kernel_families import STATIONARY
from dcpred_tasks.model.leaf_model import COMPACT
from dcpred_tasks.training.losses import DISTANCE

# Settings of landmarks and pseudo-landmarks, which baselines lack.
OF_COMPACT = (
    *("landmarks", "landmark_floor", "products", "triangle", "triangle_bound", "head_gamma"),
    *("head_C", "refine", "refine_steps", "refine_epochs", "loss", "quantile", "refine_ridge", "guide"),
    *("leaf_scaling", "keep_support_vectors"),
)

# Required values of other settings with loss=distance.
OF_DISTANCE: Mapping[str, object] = {
    "kernel": "rbf",
    "products": 0,
    "triangle": 0,
    "guide": 0.0,
    "leaf_scaling": False,
    "refine_epochs": 0,
}


def check_compact(settings: Any, defaults: Mapping[str, object]) -> None:
    """Raise SettingsError for an impossible compact model, and where its settings are set for another."""
    if settings.machine != COMPACT:
        for name in OF_COMPACT:
            if getattr(settings, name) != defaults[name]:
                raise SettingsError(
                    f"Cannot use {name}={getattr(settings, name)!r}: machine is {settings.machine}, and only"
                    f" compact models with landmarks use {name}. Leave out {name}, or leave out machine."
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
    if settings.head_gamma not in same:
        raise SettingsError(
            f"Cannot use loss={DISTANCE} with head_gamma {settings.head_gamma:g}: landmarks near the local"
            " SVM have its γ. Leave out head_gamma, or set another loss."
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
