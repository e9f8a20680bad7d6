"""What a model says of rows beside decision values: probabilities, intervals and novelty, from decision
values and leaves.
"""

from dataclasses import replace

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, LeafNumbers, SingleArray
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.compact_model import Model, Scores, class_numbers
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.leaf_arrays import outlined
from dcpred_tasks.model.sureness import Calibration, Intervals, Novelty

# (1 + r) exp(−r) of a distance r, as the kernel that it is.
NEARNESS = Kernel("matern32", 1.0 / 6.0)


def calibration_of(model: Model) -> Calibration:
    """Raises DataError where the model has none."""
    found = None if model.sureness is None else model.sureness.calibration
    if found is None:
        raise _without("probabilities were", model, "classification")
    return found


def intervals_of(model: Model) -> Intervals:
    """Raises DataError where the model has none."""
    found = None if model.sureness is None else model.sureness.intervals
    if found is None:
        raise _without("intervals were", model, "regression")
    return found


def novelty_of(model: Model) -> Novelty:
    """Raises DataError where the model knows nothing of its training rows."""
    if model.sureness is None:
        raise _without("novelty was", model, model.task)
    return model.sureness.novelty


def _without(what: str, model: Model, task: str) -> DataError:
    if model.task != task:
        return DataError(
            f"{what} asked for, but the model is one for {model.task}, and only {task} has them; leave"
            " them out"
        )
    return DataError(
        f"{what} asked for, but the model was trained with calibrate=false, or by a version of dcpred"
        " that did not measure how sure it is; train it again"
    )


def probabilities(model: Model, decision: Scores) -> FloatArray:
    """Probabilities float64 (n, n_classes) of decision values (n, n_outputs); NaN in rows without a score.
    The largest of a row is that of its label. Raises DataError.
    """
    return calibration_of(model).probabilities(decision.astype(ACC_DTYPE), class_numbers(decision))


def nearness_model(model: Model) -> Model:
    """The model whose decision values are s(x) of Novelty: one point in each leaf, and the same tree. Raises
    DataError.
    """
    found = novelty_of(model)
    n = model.n_leaves
    sizes = {"feature": model.n_columns, "output": 1}
    arrays = outlined(Model, n, {"landmark": 1, "basis": 1}, sizes)
    return replace(
        model,
        **arrays
        | {
            "landmarks": found.point,
            "gamma": np.full(n, NEARNESS.gamma, MODEL_DTYPE),
            "beta": np.ones((n, 1), MODEL_DTYPE),
            "leaf_factor": found.factor,
        },
        task="classification",
        classes=(0, 1),
        kernel=NEARNESS,
        support=None,
        machines=None,
        sureness=None,
    )


def novelty(model: Model, nearness: SingleArray, leaf: LeafNumbers) -> FloatArray:
    """Shares float64 (n,) of the training rows of a leaf that lie nearer; see Novelty.of. Raises
    DataError.
    """
    return novelty_of(model).of(nearness, leaf)


def intervals(model: Model, value: FloatArray, leaf: LeafNumbers, alpha: float) -> FloatArray:
    """Lower and upper bounds float64 (n, 2) of values (n,); see Intervals.bounds. Raises DataError,
    SettingsError.
    """
    return intervals_of(model).bounds(value, leaf, alpha)
