"""Which settings go together with machines and bases of other systems, with pseudo-landmarks by the triangle
inequality, and with compact models that stay near the local machines.
"""

from collections.abc import Mapping
from typing import Any

from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.kernel_families import STATIONARY
from dcpred_tasks.model.machine import COMPACT, LANDMARKS, known
from dcpred_tasks.training.losses import DISTANCE

# Settings of landmarks and pseudo-landmarks, which other machines have not.
OF_COMPACT = (
    *("landmarks", "landmark_floor", "products", "triangle", "triangle_bound", "head_gamma"),
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


def check_machine(settings: Any, defaults: Mapping[str, object]) -> None:
    """Raise SettingsError where a machine or basis cannot be what is asked for."""
    name, which = settings.other_machine, "basis" if settings.machine == COMPACT else "machine"
    if not name:
        if settings.size != defaults["size"]:
            raise SettingsError(
                f"size was set to {settings.size}, but machine is {COMPACT} and basis {LANDMARKS}, whose"
                " sizes are landmarks, products and triangle; set those, or another machine or basis"
            )
        if settings.tolerance != defaults["tolerance"]:
            raise SettingsError(
                f"tolerance was set to {settings.tolerance:g}, but machine is {COMPACT}, which has none;"
                " leave it out, or set another machine"
            )
        return
    if which == "machine" and settings.basis != LANDMARKS:
        raise SettingsError(
            f"basis was set to {settings.basis} and machine to {settings.machine}, but only the machine"
            f" {COMPACT} has a basis; leave out one of them"
        )
    one = known(name)
    if settings.size and not one.counted:
        raise SettingsError(f"size was set to {settings.size}, but {which} {name} has none; leave out size")
    if settings.tolerance and not one.tolerance:
        raise SettingsError(
            f"tolerance was set to {settings.tolerance:g}, but {which} {name} has none; leave out tolerance"
        )
    for setting, possible in (("kernel", one.kernels), ("task", one.tasks)):
        if getattr(settings, setting) not in possible:
            raise SettingsError(
                f"{which} was set to {name} with {setting} {getattr(settings, setting)}, but it is made for"
                f" {' or '.join(possible)}; set {setting} to that, or another {which}"
            )
    for other in OF_COMPACT:
        if getattr(settings, other) != defaults[other]:
            raise SettingsError(
                f"{other} was set to {getattr(settings, other)!r}, but {which} is {name}, and only compact"
                f" models with landmarks use it; leave out {other}, or leave out {which}"
            )


def check_compact(settings: Any) -> None:
    """Raise SettingsError where a compact model cannot be what is asked for."""
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
