"""Which settings only one task uses, and which no task uses any more."""

OF_TASK = {
    "classification": ("C", "class_weight", "guide", "head_C", "loss", "threshold"),
    "regression": ("ridge", "target_transform"),
}

RETIRED = ("symlog", "halo_weight", "head_ridge")  # settings of earlier versions


def of_other_task(task: str) -> tuple[str, ...]:
    """The names of settings that only the other task uses."""
    return next(names for other, names in OF_TASK.items() if other != task)


def in_effect(values: dict[str, object], task: str) -> dict[str, object]:
    """Values that were stored, without those that the task does not use. Earlier versions had other settings,
    and their searches of regression kept the C of SVMs.
    """
    unused = {*of_other_task(task), *RETIRED}
    return {name: value for name, value in values.items() if name not in unused}
