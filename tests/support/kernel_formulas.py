"""Kernel values of two points, written out in plain Python."""

import math
from collections.abc import Callable, Sequence

from dcpred_tasks.model.kernels import BY_NAME, Kernel, Sum


def squares(x: Sequence[float], u: Sequence[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(x, u, strict=True))


def absolute(x: Sequence[float], u: Sequence[float]) -> float:
    return sum(abs(a - b) for a, b in zip(x, u, strict=True))


def matern32(gamma: float, s: float) -> float:
    a = math.sqrt(3 * s) * math.sqrt(2 * gamma)
    return (1 + a) * math.exp(-a)


def matern52(gamma: float, s: float) -> float:
    a = math.sqrt(5 * s) * math.sqrt(2 * gamma)
    return (1 + a + a * a / 3) * math.exp(-a)


FORMULAS: dict[str, Callable[[Kernel, Sequence[float], Sequence[float]], float]] = {
    "rbf": lambda k, x, u: math.exp(-k.gamma * squares(x, u)),
    "laplacian": lambda k, x, u: math.exp(-k.gamma * absolute(x, u)),
    "polynomial": lambda k, x, u: (
        (k.gamma * sum(a * b for a, b in zip(x, u, strict=True)) + k.coef0) ** k.degree
    ),
    "matern32": lambda k, x, u: matern32(k.gamma, squares(x, u)),
    "matern52": lambda k, x, u: matern52(k.gamma, squares(x, u)),
}


def kernel_value(kernel: Kernel, x: Sequence[float], u: Sequence[float]) -> float:
    return FORMULAS[kernel.name](kernel, [float(a) for a in x], [float(a) for a in u])


def distance(name: str, x: Sequence[float], u: Sequence[float]) -> float:
    """The distance of a stationary kernel."""
    points = [float(a) for a in x], [float(a) for a in u]
    return absolute(*points) if BY_NAME[name].sum == Sum.ABSOLUTE else math.sqrt(squares(*points))


def of_distance(kernel: Kernel, r: float) -> float:
    """The value of a stationary kernel at a distance: of two points so far apart on a line."""
    return FORMULAS[kernel.name](kernel, [0.0], [r])
