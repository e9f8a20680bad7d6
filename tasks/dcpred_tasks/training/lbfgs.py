"""L-BFGS (Nocedal 1980) for the small smooth problems of the leaves.

SciPy's L-BFGS-B does the same, with bounds, but takes 1.5 to 4.8 times as long for so few unknowns
(DECISIONS.md).
"""

from collections import deque
from collections.abc import Callable

import numpy as np

from dcpred_tasks.dtypes import FloatArray

MEMORY = 10  # pairs of steps and changes of the gradient that are remembered
FIRST_STEP = 0.1  # length of the first step
DECREASE = 1e-4  # share of the decrease that the slope promises which a step must bring (Armijo)
SHORTER = 0.3  # factor of the length where a step does not bring it
TRIES = 20  # lengths that are tried
CURVED = 1e-10  # a pair with less curvature than this is forgotten

Function = Callable[[FloatArray], tuple[float, FloatArray]]


def minimise(function: Function, start: FloatArray, steps: int, tolerance: float) -> FloatArray:
    """The lowest point that at most `steps` steps from `start` find; start itself where none is lower.

    function   value and gradient
    tolerance  least relative gain of a step that another one follows
    """
    x = start
    value, gradient = function(x)
    pairs: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=MEMORY)
    for _ in range(steps):
        direction = _direction(gradient, pairs)
        slope = float(gradient @ direction)
        if not slope < 0:
            break
        length = 1.0
        for _ in range(TRIES):
            trial = x + length * direction
            lower, at_trial = function(trial)
            if lower <= value + DECREASE * length * slope:  # This is false for NaN.
                break
            length *= SHORTER
        else:
            break
        if not np.isfinite(at_trial).all():
            break
        step, change = trial - x, at_trial - gradient
        curvature = float(step @ change)
        if curvature > CURVED * float(change @ change):
            pairs.append((step, change, 1.0 / curvature))
        gain = value - lower
        x, value, gradient = trial, lower, at_trial
        if gain < tolerance * max(abs(value), 1e-300):
            break
    return x


def _direction(gradient: FloatArray, pairs: deque[tuple[FloatArray, FloatArray, float]]) -> FloatArray:
    """−H g by the two-loop recursion; the pairs define H, an approximate inverse Hessian."""
    q = gradient.copy()
    if not pairs:
        norm = float(np.sqrt(q @ q))
        return -q * (FIRST_STEP / norm) if norm > 0 else -q
    along = []
    for step, change, inverse in reversed(pairs):
        a = inverse * float(step @ q)
        q -= a * change
        along.append(a)
    step, change, inverse = pairs[-1]
    q /= inverse * float(change @ change)
    for (step, change, inverse), a in zip(pairs, reversed(along), strict=True):
        q += (a - inverse * float(change @ q)) * step
    return -q
