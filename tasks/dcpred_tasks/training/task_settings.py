"""Settings of only one task, and retired settings."""

from collections.abc import Mapping
from typing import TypeVar

from dcpred_tasks.model.leaf_model import COMPACT, EXACT
from dcpred_tasks.training.losses import loss_tasks

T = TypeVar("T")

OF_TASK = {
    "classification": ("C", "class_weight", "guide", "head_C", "threshold"),
    "regression": ("quantile", "ridge", "target_transform"),
}

RETIRED = (  # settings of earlier versions
    *("symlog", "halo_weight", "head_ridge", "nystrom_rows", "basis", "size", "tolerance"),
)


def of_other_task(task: str, loss: object) -> tuple[str, ...]:
    """The names of settings of only the other task, with `loss` where it has this value."""
    names = next(names for other, names in OF_TASK.items() if other != task)
    return names if task in loss_tasks(loss) else (*names, "loss")


def in_effect(values: Mapping[str, T], task: str) -> dict[str, T]:
    """Stored values, without those that the task does not use. Earlier versions had other settings, trained
    baselines, which were names of `machine`, and their searches of regression stored the C of SVMs.
    """
    unused = {*of_other_task(task, values.get("loss", "hinge")), *RETIRED}
    if values.get("machine", COMPACT) not in (COMPACT, EXACT):
        unused.add("machine")
    return {name: value for name, value in values.items() if name not in unused}
