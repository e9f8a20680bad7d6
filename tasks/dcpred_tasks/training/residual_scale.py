"""How residuals vary over the rows of a leaf: log σ(x) = s + β · c̄(x) + b, linear in the functions c̄ of the
leaf's predictions, where s is the log of the size of all its residuals.

β and b maximise the likelihood of residuals with |r| / σ(x) exponentially distributed, by a few steps of
Fisher scoring. Each step is a ridge regression of a working response, as for log |r|, but residuals near zero
have no more influence than others, and the estimate varies half as much. The penalty minimises generalised
cross-validation (Golub, Heath and Wahba 1979), and may exclude all functions. The residuals are of rows that
trained the leaf: each is divided by 1 − its leverage, as for a row left out. The remaining error is the same
for held-out rows, whose quantile makes intervals of σ.
"""

from dataclasses import dataclass

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, SingleArray

STEPS = 4  # steps of Fisher scoring
MOST_LEVERAGE = 0.7
FLEXIBILITY = 1.4  # A degree of freedom counts as so many: cross-validation alone takes too many.
MOST_FREEDOM = 0.9  # degrees of freedom, as a share of the rows
MOST_RESPONSE = 5.0  # A residual of more than so many σ counts as one of so many.
PENALTIES: FloatArray = np.logspace(-6, 3, 28)
ENDS = (0.01, 0.99)  # log σ stays between these quantiles of the leaf's rows.
LEAST_SHARE = 0.02  # quantile of |r| below which its log is not taken for the first step
SMALLEST = 1e-3  # size of a residual below which its log is not taken, in sizes of all


@dataclass(frozen=True)
class LeafScale:
    """log σ(x) − s of one leaf.

    beta       float32 (n_functions, 1)
    intercept  float64 (1,), b
    bounds     float64 (2,), the least and the largest value
    """

    beta: SingleArray
    intercept: FloatArray
    bounds: FloatArray

    def __call__(self, basis: FloatArray) -> FloatArray:
        """Of rows with functions (n, n_functions): float64 (n,)."""
        value = (basis @ self.beta.astype(ACC_DTYPE))[:, 0] + self.intercept[0]
        return np.asarray(np.clip(value, *self.bounds))


def constant_scale(n_functions: int) -> LeafScale:
    """σ(x) is the same for every row."""
    return LeafScale(np.zeros((n_functions, 1), MODEL_DTYPE), np.zeros(1), np.zeros(2))


def fit_scale(basis: FloatArray, residual: FloatArray, weight: FloatArray) -> LeafScale:
    """σ(x) of a leaf from the rows that trained it.

    basis     float64 (n, n_functions), c̄ of each
    residual  float64 (n,), |r| over the size of all, whose mean square is 1; or zeros
    weight    float64 (n,), > 0
    """
    if not basis.shape[1] or len(basis) < 3 or not residual.any():
        return constant_scale(basis.shape[1])
    root = np.sqrt(weight / weight.mean())
    mean = np.average(basis, axis=0, weights=weight)
    U, size, V = np.linalg.svd((basis - mean) * root[:, None], full_matrices=False)
    own = size > size[0] * 1e-3 if size[0] > 0 else np.zeros(len(size), bool)
    leverage = np.minimum((U[:, own] ** 2).sum(axis=1), MOST_LEVERAGE)
    r = residual / (1 - leverage)
    response = np.log(np.maximum(r, max(float(np.quantile(r, LEAST_SHARE)), SMALLEST)))
    for step in range(STEPS + 1):
        level = float(np.average(response, weights=weight))
        part = U.T @ ((response - level) * root)
        shrunk = _shrunk(part, size, float((weight / weight.mean()) @ (response - level) ** 2), len(r))
        log_size = level + (U @ shrunk) / root
        if step < STEPS:
            response = log_size + np.minimum(r * np.exp(-log_size), MOST_RESPONSE) - 1
    beta = V.T @ np.divide(shrunk, size, out=np.zeros_like(size), where=size > 0)
    single = beta[:, None].astype(MODEL_DTYPE)
    bounds = np.quantile(log_size, ENDS)
    return LeafScale(single, np.array([level - mean @ single[:, 0].astype(ACC_DTYPE)]), bounds)


def _shrunk(part: FloatArray, size: FloatArray, total: float, n: int) -> FloatArray:
    """Coordinates of the fitted response along singular vectors, by the best penalty; zeros where none beats
    the mean.

    part   the response along them
    total  its squared length
    """
    keep = size**2 / (size**2 + PENALTIES[:, None] * n)
    freedom = 1 + FLEXIBILITY * keep.sum(axis=1)
    left = total - part @ part + (((1 - keep) * part) ** 2).sum(axis=1)
    score = np.where(freedom < MOST_FREEDOM * n, left / (n - freedom) ** 2, np.inf)
    best = int(score.argmin())
    return keep[best] * part if score[best] < total / (n - 1) ** 2 else np.zeros_like(part)


def is_narrower(
    residual: FloatArray, sizes: FloatArray, others: FloatArray, weight: FloatArray, alpha: float
) -> bool:
    """Whether intervals of rows that were held out have a lower Winkler score with one σ than with another,
    by more than its standard error.

    residual  float64 (n,), |r|
    sizes     float64 (n,), half widths by the one, and `others` by the other
    """
    largest = float(residual.max()) or 1.0
    score, other = ((half + np.maximum(residual - half, 0.0) / alpha) / largest for half in (sizes, others))
    gain = other - score
    mean = float(np.average(gain, weights=weight))
    error = np.sqrt(weight**2 @ (gain - mean) ** 2) / weight.sum()
    return bool(mean > error)
