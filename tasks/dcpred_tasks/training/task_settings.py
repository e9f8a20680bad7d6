"""Settings of only one task, and retired settings."""

from collections.abc import Mapping
from typing import TypeVar

from dcpred_tasks.training.losses import loss_tasks

T = TypeVar("T")

OF_TASK = {
    "classification": ("C", "class_weight", "guide", "head_C", "threshold"),
    "regression": ("quantile", "ridge", "target_transform"),
}

RETIRED = ("symlog", "halo_weight", "head_ridge", "nystrom_rows")  # settings of earlier versions


def of_other_task(task: str, loss: object) -> tuple[str, ...]:
    """The names of settings of only the other task, with `loss` where it has this value."""
    names = next(names for other, names in OF_TASK.items() if other != task)
    return names if task in loss_tasks(loss) else (*names, "loss")


def in_effect(values: Mapping[str, T], task: str) -> dict[str, T]:
    """Stored values, without those that the task does not use. Earlier versions had other settings, and their
    searches of regression stored the C of SVMs.
    """
    unused = {*of_other_task(task, values.get("loss", "hinge")), *RETIRED}
    return {name: value for name, value in values.items() if name not in unused}
