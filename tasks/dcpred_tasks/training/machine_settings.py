"""Which settings combine with baselines and other bases, with pseudo-landmarks by the triangle inequality,
and with compact models near the local SVMs.
"""

from collections.abc import Mapping
from typing import Any

from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.kernel_families import STATIONARY
from dcpred_tasks.model.machine import COMPACT, LANDMARKS, known
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


def check_machine(settings: Any, defaults: Mapping[str, object]) -> None:
    """Raise SettingsError for an impossible leaf model or basis."""
    name, which = settings.other_machine, "basis" if settings.machine == COMPACT else "machine"
    if not name:
        if settings.size != defaults["size"]:
            raise SettingsError(
                f"Cannot use size={settings.size}: machine is {COMPACT} and basis {LANDMARKS}, whose sizes"
                " are landmarks, products and triangle. Set those, or another machine or basis."
            )
        if settings.tolerance != defaults["tolerance"]:
            raise SettingsError(
                f"Cannot use tolerance={settings.tolerance:g}: machine is {COMPACT}, which has no tolerance."
                " Leave it out, or set another machine."
            )
        return
    if which == "machine" and settings.basis != LANDMARKS:
        raise SettingsError(
            f"Cannot use basis={settings.basis} with machine={settings.machine}: only {COMPACT} has a basis."
            " Leave out one of them."
        )
    one = known(name)
    if settings.size and not one.counted:
        raise SettingsError(f"Cannot use size={settings.size}: {which} {name} has no size. Leave out size.")
    if settings.tolerance and not one.tolerance:
        raise SettingsError(
            f"Cannot use tolerance={settings.tolerance:g}: {which} {name} has no tolerance. Leave it out."
        )
    for setting, possible in (("kernel", one.kernels), ("task", one.tasks)):
        if getattr(settings, setting) not in possible:
            raise SettingsError(
                f"Cannot use {which}={name} with {setting} {getattr(settings, setting)}: it needs"
                f" {' or '.join(possible)}. Set {setting} to that, or another {which}."
            )
    for other in OF_COMPACT:
        if getattr(settings, other) != defaults[other]:
            raise SettingsError(
                f"Cannot use {other}={getattr(settings, other)!r}: {which} is {name}, and only compact models"
                f" with landmarks use {other}. Leave out {other}, or leave out {which}."
            )


def check_compact(settings: Any) -> None:
    """Raise SettingsError for an impossible compact model."""
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
