"""Losses of refinement, one class each: the formula, its derivative, and the name in the setting `loss`.

A loss is a function of decision values f and of targets: ±1 of classes, values of a regression. A new one is
a class here with a place in CHOICES, a struct of the place `native` in native/losses.h, and its formula in
tests/support/objectives.py; tests of refinement, settings and pages are drawn from CHOICES.

A regression by least squares follows each outlier. Huber's loss (1964) counts large residuals r = y − f by
their magnitude, the quantile loss (Koenker and Bassett 1978) counts those above and below by different
factors. Both are

    steep (tilt r + h(r)),   h(r) = |r| − width/2 where |r| > width, else r²/(2 width)

with a width that follows from the median of |r|. The quantile loss is smoothed by it, since L-BFGS needs a
gradient: its minimum has the level of the exact one where residuals within the width are spread evenly.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from dcpred_tasks.dtypes import MODEL_DTYPE, FloatArray, RealArray, SingleArray

T = TypeVar("T")
Solve = Callable[[FloatArray, FloatArray], tuple[T, Callable[[], FloatArray]]]
BOTH = CLASSES, NUMBERS = ("classification", "regression")
DISTANCE = "distance"  # the loss that keeps a compact model near its local SVM
# Factor of decision values in the logistic loss: 1 − p of two classes is then the surrogate loss of trials.
SHARPNESS = 2.0
EVERYTHING = float(np.float32(3e38))  # end of an interval that has none
NORMAL = 1.4826  # standard deviation of a normal distribution, in medians of its magnitude
HUBER_WIDTH = 1.345  # 95 % of the efficiency of least squares where residuals are normal (Huber 1981)
QUANTILE_WIDTH = 0.2
FARTHEST = 1e6  # largest target, in standard deviations of a normal one: its square fits single precision
ROUNDS = 4  # least-squares fits with other weights, after which refinement begins


@dataclass(frozen=True)
class Loss(ABC):
    """ℓ(f) of rows. Equal losses have equal numbers."""

    name: ClassVar[str]  # in the setting
    tasks: ClassVar[tuple[str, ...]]
    meaning: ClassVar[str]
    native: ClassVar[int]  # its place in `for_loss` of native/losses.h

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        return cls()

    @abstractmethod
    def __call__(self, f: RealArray, target: RealArray) -> tuple[RealArray, RealArray]:
        """ℓ and its derivative by f of each row and output, (n, k); outputs share a joint loss equally."""

    def curvature(self, f: RealArray, target: RealArray) -> RealArray:
        """The second derivative of each row and output (n, k), or of a parabola that touches the loss from
        above.
        """
        return np.full(f.shape, 2.0)

    @property
    def level(self) -> float | None:
        """The fraction of rows that are to lie below f, or None."""
        return None

    def numbers(self) -> tuple[float, ...]:
        """The numbers of the loss in compiled code."""
        return ()

    def intervals(self, target: RealArray) -> tuple[RealArray, RealArray]:
        """The ends of the interval of f for targets in compiled code, each (n, k)."""
        return target, target

    def standardised(self, target: FloatArray, weight: FloatArray) -> tuple[FloatArray, float, float]:
        """The targets (n,) of a regression as learned, their offset and divisor. The weights sum to 1."""
        mean = float(weight @ target)
        largest = float(np.abs(target - mean).max()) or 1.0  # Dividing by it keeps squares from overflowing.
        spread = largest * float(np.sqrt(weight @ ((target - mean) / largest) ** 2)) or 1.0
        return (target - mean) / spread, mean, spread

    def settled(self, target: FloatArray, weight: FloatArray, solve: "Solve[T]") -> tuple[Self, T]:
        """The loss for these targets (n, ...), and the solution of a least-squares problem near its minimum.
        `solve` returns the solution for targets and weights (n,), and a function that returns its values.
        """
        return self, solve(target, weight)[0]


class Squares(Loss):
    """(f − y)²."""

    name, tasks, native = "hinge", (NUMBERS,), 0
    meaning = "the squared error of numbers"

    def __call__(self, f: RealArray, target: RealArray) -> tuple[RealArray, RealArray]:
        off = f - target
        return off * off, 2 * off


class Hinge(Loss):
    """max(0, 1 − y f)²."""

    name, tasks, native = "hinge", (CLASSES,), 0
    meaning = "the squared hinge of each class against the rest"

    def __call__(self, f: RealArray, target: RealArray) -> tuple[RealArray, RealArray]:
        off = -target * np.maximum(0, 1 - target * f)
        return off * off, 2 * off

    def intervals(self, target: RealArray) -> tuple[RealArray, RealArray]:
        return beyond_one(target)


class Distance(Hinge):
    """The hinge; refinement adds the distance to the local SVM."""

    name = DISTANCE
    meaning = (
        "hinge, beside the distance to the local SVM, whose γ all landmarks have; with the rbf kernel,"
        " without products"
    )


class Logistic(Loss):
    """−log p, with p the share of the right class in exp(SHARPNESS · f) over all outputs, over f and −f where
    there is one.

    No loss is best everywhere: a search chooses (DECISIONS.md).
    """

    name, tasks, native = "logistic", (CLASSES,), 1
    meaning = "the logistic loss, over all classes of a leaf together"

    def __call__(self, f: RealArray, target: RealArray) -> tuple[RealArray, RealArray]:
        if f.shape[1] == 1:
            loss, slope = self(np.hstack([f, -f]), np.hstack([target, -target]))
            return 2 * loss[:, :1], slope[:, :1] - slope[:, 1:]
        right = target > 0
        z = SHARPNESS * (f - f.max(axis=1, keepdims=True))
        power = np.exp(z)
        total = power.sum(axis=1, keepdims=True)
        loss = np.log(total) - np.where(right, z, 0).sum(axis=1, keepdims=True)
        return np.broadcast_to(loss / f.shape[1], f.shape), SHARPNESS * (power / total - right)

    def curvature(self, f: RealArray, target: RealArray) -> RealArray:
        both = np.hstack([f, -f]) if f.shape[1] == 1 else f
        power = np.exp(SHARPNESS * (both - both.max(axis=1, keepdims=True)))
        p = (power / power.sum(axis=1, keepdims=True))[:, : f.shape[1]]
        return np.asarray(SHARPNESS**2 * (4.0 if f.shape[1] == 1 else 1.0) * p * (1 - p))

    def numbers(self) -> tuple[float, ...]:
        return (SHARPNESS,)

    def intervals(self, target: RealArray) -> tuple[RealArray, RealArray]:
        return beyond_one(target)


@dataclass(frozen=True)
class Huber(Loss):
    """Twice Huber's loss: r² up to the width, which is HUBER_WIDTH standard deviations of residuals.

    Least squares are as good without outliers, and therefore the default (DECISIONS.md).
    """

    width: float = 1.0
    steep: float = 2.0
    tilt: float = 0.0

    name, tasks, native = "huber", (NUMBERS,), 2
    meaning = "Huber's loss of numbers, which outliers move little"

    def __call__(self, f: RealArray, target: RealArray) -> tuple[RealArray, RealArray]:
        r = target - f
        size = np.abs(r)
        h = np.where(size > self.width, size - self.width / 2, r * r / (2 * self.width))
        return self.steep * (self.tilt * r + h), -self.steep * (self.tilt + (r / self.width).clip(-1, 1))

    def curvature(self, f: RealArray, target: RealArray) -> RealArray:
        return np.asarray(self.steep / np.maximum(np.abs(target - f), self.width))

    def numbers(self) -> tuple[float, ...]:
        return self.width, self.steep, self.tilt

    def standardised(self, target: FloatArray, weight: FloatArray) -> tuple[FloatArray, float, float]:
        """By medians; outliers are clipped to FARTHEST, which saves the precision of the others."""
        centre = weighted_quantile(target, weight, 0.5)
        spread = residual_size(target - centre, weight)
        return ((target - centre) / spread).clip(-FARTHEST, FARTHEST), centre, spread

    def for_size(self, size: float) -> Self:
        """The loss for residuals of this standard deviation, if they were normal."""
        return replace(self, width=HUBER_WIDTH * size, steep=2 * HUBER_WIDTH * size)

    def settled(self, target: FloatArray, weight: FloatArray, solve: "Solve[T]") -> tuple[Self, T]:
        """By iteratively reweighted least squares (Hunter and Lange 2000): h(r) lies below a parabola that
        touches it at the residuals of the previous solution, first of the median.
        """
        r = target - weighted_quantile(target.reshape(len(weight)), weight, 0.5)
        for _ in range(ROUNDS):
            loss = self.for_size(residual_size(r, weight))
            bend = np.maximum(np.abs(r), loss.width)
            factor = (loss.steep / 2) / bend.reshape(len(target))
            solution, values = solve(target + loss.tilt * bend, weight * factor)
            r = target - values()
        return self.for_size(residual_size(r, weight)), solution


@dataclass(frozen=True)
class Quantile(Huber):
    """4 s times the quantile loss of level (1 + tilt) / 2, smoothed within QUANTILE_WIDTH · s, sd s."""

    name = "quantile"
    meaning = "the loss of a quantile of numbers, whose level the setting quantile is"

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        return cls(tilt=2.0 * settings.quantile - 1.0)

    @property
    def level(self) -> float:
        return (1.0 + self.tilt) / 2.0

    def for_size(self, size: float) -> Self:
        return replace(self, width=QUANTILE_WIDTH * size, steep=2 * size)


CHOICES: tuple[type[Loss], ...] = (Hinge, Squares, Logistic, Distance, Huber, Quantile)
LOSSES = tuple(dict.fromkeys(choice.name for choice in CHOICES))


def loss_tasks(name: object) -> tuple[str, ...]:
    """The tasks that a value of the setting is for."""
    return tuple(task for choice in CHOICES if choice.name == name for task in choice.tasks)


def loss_words() -> str:
    """The meaning of each value of the setting."""
    meanings: Mapping[str, list[str]] = {name: [] for name in LOSSES}
    for choice in CHOICES:
        meanings[choice.name].append(choice.meaning)
    return " ".join(f"{name}: {', or '.join(words)}." for name, words in meanings.items())


def loss_from_settings(settings: Any) -> Loss:
    return next(
        choice.from_settings(settings)
        for choice in CHOICES
        if choice.name == settings.loss and settings.task in choice.tasks
    )


def beyond_one(values: RealArray) -> tuple[SingleArray, SingleArray]:
    """The ends of intervals that have no end beyond ±1, each (n, k)."""
    edge = values.clip(-1, 1)
    low, high = np.where(edge <= -1, -EVERYTHING, edge), np.where(edge >= 1, EVERYTHING, edge)
    return low.astype(MODEL_DTYPE), high.astype(MODEL_DTYPE)


def weighted_quantile(values: FloatArray, weight: FloatArray, level: float) -> float:
    """Of values (n,) with weights > 0."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(np.ldexp(weight[order], -np.frexp(weight.max())[1]))
    return float(values[order[np.searchsorted(share, level * share[-1])]])


def weighted_variance(values: FloatArray, weight: FloatArray) -> float:
    """Of values (n,) with weights > 0."""
    share = weight / weight.sum()
    return float(share @ (values - share @ values) ** 2)


def residual_size(residual: FloatArray, weight: FloatArray) -> float:
    """The standard deviation that normal residuals (n, ...) of this median magnitude have, > 0."""
    size = np.abs(residual).reshape(len(weight))
    mean = float(np.average(size, weights=weight / weight.max()))
    return NORMAL * weighted_quantile(size, weight, 0.5) or mean or 1.0
