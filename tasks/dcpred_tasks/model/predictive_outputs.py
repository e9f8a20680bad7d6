"""Predictive outputs of a model beside decision values: probabilities, intervals and novelty, from decision
values and leaves.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, LeafNumbers, SingleArray
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.model.compact_model import Model, Scores, class_numbers
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.leaf_arrays import OutputWeights, model_arrays, outlined
from dcpred_tasks.model.uncertainty import Calibration, Intervals, Novelty

# (1 + r) exp(−r) of a distance r, as the kernel that it is.
NEARNESS = Kernel("matern32", 1.0 / 6.0)


def calibration_of(model: Model, what: str = "probabilities") -> Calibration:
    """The calibration of a model. Raises DataError, which names `what`, where the model lacks it."""
    calibration = None if model.uncertainty is None else model.uncertainty.calibration
    if calibration is None:
        raise _without(what, model, "classification")
    return calibration


def intervals_of(model: Model) -> Intervals:
    """Raises DataError where the model has none."""
    intervals = None if model.uncertainty is None else model.uncertainty.intervals
    if intervals is None:
        raise _without("intervals", model, "regression")
    return intervals


def novelty_of(model: Model) -> Novelty:
    """The novelty of a model. Raises DataError where the model lacks it."""
    if model.uncertainty is None:
        raise _without("novelty", model, model.task)
    return model.uncertainty.novelty


def _without(what: str, model: Model, task: str) -> DataError:
    if model.task != task:
        return DataError(
            f"Cannot compute {what}: the task of the model is {model.task}, and only {task} has them. Leave"
            " them out."
        )
    return DataError(
        f"Cannot compute {what}: the model was trained with calibrate=false, or by a version of dcpred"
        " without calibration. Train it again."
    )


def probabilities(model: Model, decision: Scores) -> FloatArray:
    """Probabilities float64 (n, n_classes) of decision values (n, n_outputs); NaN in rows without a score.
    The largest of a row is that of its label. Raises DataError.
    """
    return calibration_of(model).probabilities(decision.astype(ACC_DTYPE), class_numbers(decision))


def typicality_model(model: Model) -> Model:
    """The model whose decision values are s(x) of Novelty: a point in each leaf. Raises DataError."""
    novelty = novelty_of(model)
    n = model.n_leaves
    sizes = {"feature": model.n_columns, "output": 1}
    arrays = outlined(Model, n, {"landmark": 1, "basis": 1}, sizes)
    arrays |= {
        "landmarks": novelty.point,
        "gamma": np.full(n, NEARNESS.gamma, MODEL_DTYPE),
        "beta": np.ones((n, 1), MODEL_DTYPE),
        "leaf_factor": novelty.factor,
    }
    return _on_leaves(model, NEARNESS, arrays, task="classification", classes=(0, 1))


def _on_leaves(model: Model, kernel: Kernel, arrays: Mapping[str, Any], **of_task: Any) -> Model:
    """A model of the same leaves with other arrays of them: kernel sums alone."""
    names = "scaling", "tree", "leaf_rows", "triangle_bound", "local_kernel"
    return Model(**arrays, **of_task, kernel=kernel, **{name: getattr(model, name) for name in names})


def novelty(model: Model, typicality: SingleArray, leaf: LeafNumbers) -> FloatArray:
    """Shares float64 (n,) of training rows of a leaf that lie nearer (Novelty.of). Raises DataError."""
    return novelty_of(model).of(typicality, leaf)


def scale_model(model: Model) -> Model | None:
    """The model whose decision values are the log of σ(x) over the size of a leaf's residuals, on the same
    tree and basis; None where widths of intervals are those of leaves.
    """
    scale = None if model.uncertainty is None else model.uncertainty.scale
    if scale is None:
        return None
    arrays = {name: getattr(model, name) for name in model_arrays(Model)}
    beta = OutputWeights.from_dense(scale.beta, scale.at)
    arrays |= {"beta": beta, "intercept": scale.intercept, "bounds": scale.bounds}
    return _on_leaves(model, model.kernel, arrays, task=model.task, classes=model.classes)


def intervals(
    model: Model, value: FloatArray, leaf: LeafNumbers, log_scale: FloatArray, alpha: float
) -> FloatArray:
    """Lower and upper bounds float64 (n, 2) of predictions (n,); see Intervals.bounds. Raises DataError,
    SettingsError.

    log_scale  (n,), decision values of the scale model; (0,) for a model without
    """
    decision, sizes = model.target.to_decision(value), _sizes(model, leaf, log_scale)
    return model.target.bound(intervals_of(model).bounds(decision, sizes, alpha))


def quantile(
    model: Model, value: FloatArray, leaf: LeafNumbers, log_scale: FloatArray, share: float
) -> FloatArray:
    """The number (n,) below which a share of rows like these lies. Raises DataError, SettingsError."""
    decision, sizes = model.target.to_decision(value), _sizes(model, leaf, log_scale)
    return model.target.bound(intervals_of(model).below(decision, sizes, share))


def quantile_shares(model: Model, q: float | Sequence[float]) -> tuple[float, ...]:
    """The requested shares, one or several. Raises SettingsError, DataError where the model lacks one."""
    if np.ndim(q) > 1 or not np.size(q):
        raise SettingsError(f"Cannot use q={q!r}. Pass a share from 0.01 to 0.99, or a list of them.")
    shares = tuple(np.atleast_1d(np.asarray(q)).tolist())
    for share in shares:
        intervals_of(model).signed_at(share)
    return shares


def _sizes(model: Model, leaf: LeafNumbers, log_scale: FloatArray) -> FloatArray:
    assert model.uncertainty is not None
    assert len(log_scale) == (0 if model.uncertainty.scale is None else len(leaf))
    return intervals_of(model).sizes(leaf, log_scale)
