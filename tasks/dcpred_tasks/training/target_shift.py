"""What makes a mean of a prediction that is taken back from another scale, measured on held-out rows.

With residuals r on the scale of the model the mean of a target is that of back(v + r): exp(v) times the mean
of exp(r) for log1p, and v² plus the mean of r² for the square root (Duan, Smearing Estimate: A Nonparametric
Retransformation Method, 1983).
"""

import os

import numpy as np

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.model.target_transform import LOG, TargetTransform

VARIANT = os.environ.get("VARIANT", "duan")


def fitted_transform(name: str, value: FloatArray, target: FloatArray, weight: FloatArray) -> TargetTransform:
    """The transform of that name with the shift that held-out rows show; with none where it does not lower
    their squared error by more than its standard error.

    value   float64 (n,), predictions of leaves
    target  float64 (n,), on the same scale
    weight  float64 (n,), > 0
    """
    plain = TargetTransform(name)
    if not plain or not len(value) or VARIANT == "none":
        return plain
    with np.errstate(over="ignore", invalid="ignore"):
        share = weight / weight.sum()
        if name == LOG:
            if VARIANT == "duan":
                s = np.log(share @ np.exp(target - value))
            elif VARIANT == "ratio":
                s = np.log(share @ np.exp(target)) - np.log(share @ np.exp(value))
            else:
                s = np.log(share @ np.exp(target + value)) - np.log(share @ np.exp(2 * value))
        else:
            s = share @ (plain.back(target) - plain.back(value))
        other = TargetTransform(name, float(s))
        y = plain.back(target)
        gain = (plain.back(value) - y) ** 2 - (other.predicted(value) - y) ** 2
        mean = share @ gain
        error = np.sqrt(share**2 @ (gain - mean) ** 2)
    if os.environ.get("GUARD", "error") == "none":
        return other
    return other if mean > (error if os.environ.get("GUARD", "error") == "error" else 0) else plain
