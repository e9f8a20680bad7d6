"""Which settings only one task uses."""

OF_TASK = {
    "classification": ("C", "class_weight", "guide", "head_C", "loss"),
    "regression": ("head_ridge", "ridge"),
}


def of_other_task(task: str) -> tuple[str, ...]:
    """The names of settings that only the other task uses."""
    return next(names for other, names in OF_TASK.items() if other != task)


def in_effect(values: dict[str, object], task: str) -> dict[str, object]:
    """Values without those that the task does not use. Searches of regression once kept the C of SVMs."""
    return {name: value for name, value in values.items() if name not in of_other_task(task)}
