"""Refined landmarks: beginning with those of k-means and a least-squares fit, landmarks, the γ of each, and
output weights move downhill together.

The compact leaf f(x) = Σ_q β_q c̄_q(x) + b, with c_j = K(x, u_j; γ_j) and products c_i·c_j, is trained by
L-BFGS on

    Σ_i w_i ℓ_i(f(x_i))  +  ridge ⟨β²⟩ / ⟨|β₀|⟩²  +  pull ‖U − U₀‖² γ₀
      +  spread Σ_j log²(γ_j / γ₀) / m  +  stretch Σ_f log²(s_f) / d,   Σ w_i = 1

with s = 1, or where leaves have factors of their own (leaf_scaling) c_j = K(s ∘ x, s ∘ u_j; γ_j), and with
⟨·⟩ the mean over all output weights. ℓ is one of `losses`; of classes a share of it may be the distance to
the decision values of the local machine, which is 0 on its side of ±1. Same arrays and same cost as before,
with far fewer landmarks: 16 in 64 leaves of letter 90.9 % by Nyström, 96.0 % refined, 97.2 % where each
landmark has its γ.

Where landmarks and β are to stay near the local machine (loss=distance), the term NEARNESS E(U, β) / ‖w‖² of
`expansion` joins the squared hinge, γ is that of the local machine for all landmarks, and they begin with the
nearest ones that L-BFGS finds from those of k-means.

Factors of the leaf's own (leaf_scaling) were compared with none, both at 300 steps and the best of three
ridges, on two random splits of the training rows with settings as a search finds them, 2026-11-22. A step
takes 4 to 18 % longer. Errors (squared ones of numbers) as changes in percent ± one standard error: elec2
−6.6 ± 2.1, cpusmall −6.0 ± 1.8, house_16H −4.0 ± 1.3, protein −3.2 ± 0.6, magic −3.0 ± 1.4, connect_4 −2.8 ±
0.8, covtype −1.4 ± 1.3, cal_housing −0.8 ± 1.1, ijcnn1 −0.6 ± 3.8, 26 letters −0.2 ± 3.2, a9a 0.2 ± 0.8,
satimage 4.6 ± 3.6, letter 6.0 ± 5.8, kdd −6 ± 12. With 240 steps against 300, on three splits: house_16H −5.0
± 1.1, elec2 −4.7 ± 1.7, protein −2.7 ± 0.4. One leaf by stochastic steps, one split: satimage −3.0 ± 3.6,
magic −1.8 ± 1.5, usps 17 ± 8. With the best of five γ on either side, first split: cpusmall −9.5, elec2
−6.3, connect_4 −3.0, house_16H −2.4, protein −2.1, ± 1 to 4. So the default is
none, and a search tries them with more steps for the best point of each tree: with half of the steps, beside
other trees and more landmarks, searches left them out (cpusmall, house_16H, elec2, protein).

Two other ways to spend steps and cost were tried there, at 100 steps, one to three splits, and not kept:

- Landmarks in two or three stages, each placed where those before leave most of the loss, with as many steps
  together: letter 8.0 ± 4.5 and −1.9 ± 4.4, 26 letters 10 ± 3 and 16 ± 3, cal_housing 4.7 ± 0.7 and 4.1 ±
  0.6, elec2 4 ± 2 and 10 ± 2, cpusmall −4.2 ± 2.1 and −3.5 ± 2.0; no other set gained twice its error.
- The mean of two leaves' decisions for the 15, 30 or 50 % of rows nearest to a border (with a weight of a
  half, or one that rises to it), which costs the kernel values of so many rows again. The best of these six
  against a quarter more landmarks: letter −7.5 ± 3.4 and −10.5 ± 3.9, 26 letters −10.2 ± 2.5 and −9.5 ± 2.7,
  ijcnn1 −5.1 ± 2.6 and 0.4 ± 3.7, cpusmall −2.9 ± 0.8 and −1.8 ± 2.1, protein −2.0 ± 0.5 and −1.3 ± 0.7,
  covtype −1.3 ± 0.4 and −6.3 ± 1.5, house_16H −0.8 ± 0.4 and −1.5 ± 0.8, cal_housing −0.2 ± 0.1 and −4.3 ±
  0.7, elec2 0.0 ± 0.4 and −7.6 ± 1.8. No set was better by it beyond the error of the difference.

A leaf of thousands of rows is better served by stochastic steps (Adam) on the same function: 96 landmarks on
the 7,291 rows of usps reach in 60 passes and 3 s what takes 1,000 steps of L-BFGS and 22 s; 256 on the 60,000
of mnist 93 % after 50 steps of L-BFGS, 97 % after 15 passes in the same time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, RealArray, SingleArray
from dcpred_tasks.engine.compiler import planned_or_here, with_compiler
from dcpred_tasks.errors import ResourceError
from dcpred_tasks.model.basis import LeafBasis, Weighted
from dcpred_tasks.process import process_name
from dcpred_tasks.training.expansion import Expansion, error_and_slopes
from dcpred_tasks.training.lbfgs import minimise
from dcpred_tasks.training.losses import Loss
from dcpred_tasks.training.settings import Settings

PULL = 1e-5  # penalty on the way of landmarks
SPREAD = 1e-3  # penalty on the spread of log γ
NEARNESS = 1.0  # weight of the squared distance to the local machine, as a share of its own squared norm
STRETCH = 0.1  # penalty on the spread of the logarithms of a leaf's own factors
LOG_GAMMA = 3.0  # limit of |log γ/γ₀|: a γ moves by no more than a factor of e³
LOG_FACTOR = 3.0  # the same of a leaf's own factors
# The module in machine code, and what is done without it.
COMPILED = (
    "dcpred_tasks.training.compiled_refinement",
    "leaves are refined by NumPy, which is 2 to 20 times slower",
)
REFINED_BY = {None: "machine code", "numpy": "NumPy"}  # by `arithmetic`
WIDE = 40_000  # features × landmarks, from which on BLAS takes no longer than machine code
DONE = 1e-6  # least relative gain of a step that another one follows
RATE = 0.1  # length of a stochastic step of landmarks, in widths of the kernel
# The same of output weights, in their mean magnitude; of intercepts; of log γ; of the log of factors.
OTHER_RATES = (0.3, 0.03, 0.06, 0.03)
BATCH = 128  # rows of a stochastic step
MEAN_DECAY, SQUARE_DECAY, TINY = 0.9, 0.99, 1e-12  # β₁, β₂ and ε of Adam


@dataclass(frozen=True)
class Goal:
    """What the decision values of n rows, k outputs, are to come near.

    target   (n, k): ±1 for classes, values of mean 0 and variance 1 for a regression
    guide    (n, k): decision values of the local machine
    share    part of the loss, 0 to 1, that is the distance to `guide` (classes only)
    weight   (n,), of sum 1
    """

    target: RealArray
    guide: RealArray
    share: float
    weight: RealArray
    loss: Loss

    def take(self, rows: IntArray) -> "Goal":
        """The goal of some rows, whose weights stand for all."""
        more = self.weight.dtype.type(len(self.weight) / len(rows))
        return replace(
            self, target=self.target[rows], guide=self.guide[rows], weight=self.weight[rows] * more
        )

    def __call__(self, f: RealArray) -> tuple[float, RealArray]:
        """Σ w ℓ(f), and its derivative by f, (n, k)."""
        w = self.weight[:, None]
        loss, slope = self.loss(f, self.target)
        if self.share == 0.0:
            return float((w * loss).sum()), w * slope
        off = np.where(
            self.guide > 1,
            np.minimum(f - 1, 0),
            np.where(self.guide < -1, np.maximum(f + 1, 0), f - self.guide),
        )
        value = float((w * ((1 - self.share) * loss + self.share * off**2)).sum())
        return value, w * ((1 - self.share) * slope + 2 * self.share * off)


class Objective:
    """The function that is minimised, of one flat vector: landmarks, output weights over their scale,
    intercepts, log γ/γ₀, and where the leaf has factors of its own their logarithms.
    """

    def __init__(
        self,
        X: RealArray,
        basis: LeafBasis,
        beta: RealArray,
        intercept: RealArray,
        goal: Goal,
        ridge: float,
        own_factors: bool = False,
        machine: Expansion | None = None,
    ) -> None:
        """X (n, d) · beta (m + p, k) · intercept (k,); all of one floating dtype. `machine` is what landmarks
        and β stay near: an rbf kernel of the γ of all landmarks, without products and own factors.
        """
        self.X, self.goal, self.basis = X, goal, basis
        self.machine = machine
        self.start = basis.landmarks.astype(X.dtype)
        self.gamma = basis.gamma.astype(X.dtype)
        self.shape = beta.shape
        self.scale = max(float(np.abs(beta).mean()), 1e-3)
        m = len(self.start)
        d = X.shape[1]
        self.own_factors = own_factors
        sizes = (self.start.size, beta.size, beta.shape[1], m, d if own_factors else 0)
        self.sizes, self.at = sizes, np.cumsum([0, *sizes]).tolist()
        self.origin = np.concatenate(
            [self.start.ravel(), beta.ravel() / self.scale, intercept, np.zeros(m + sizes[4])]
        ).astype(ACC_DTYPE)
        # The terms beside the loss: stiff · (θ − rest_point)²
        pull = PULL * float(basis.kernel.gamma)
        self.stiff = np.repeat([pull, ridge / beta.size, 0.0, SPREAD / m, STRETCH / max(d, 1)], sizes)
        self.rest_point = np.where(np.arange(len(self.origin)) < self.at[1], self.origin, 0.0)

    def parts(self, theta: RealArray) -> tuple[RealArray, RealArray, RealArray, RealArray, RealArray]:
        """Landmarks (m, d), β (m + p, k), intercepts (k,), γ (m,) and factors, (d,) or (0,)."""
        theta = theta.astype(self.X.dtype)
        U, beta, b, log_gamma, log_factor = (theta[first:last] for first, last in pairwise(self.at))
        gamma = self.gamma * np.exp(log_gamma.clip(-LOG_GAMMA, LOG_GAMMA))
        factor = np.exp(log_factor.clip(-LOG_FACTOR, LOG_FACTOR))
        return U.reshape(self.start.shape), beta.reshape(self.shape) * self.scale, b, gamma, factor

    def _weighted(self, X: RealArray) -> Weighted:
        weighted = self.basis.weighted(X)
        assert weighted is not None, "Settings refuses refine with a basis that has no derivative"
        return weighted

    @cached_property
    def _values(self) -> Weighted:
        return self._weighted(self.X)

    def __call__(self, theta: RealArray) -> tuple[float, RealArray]:
        """Value and gradient."""
        return self._at(theta, self.X, self.goal)

    def some(self, theta: RealArray, rows: IntArray) -> RealArray:
        """The gradient, estimated from some of the rows."""
        return self._at(theta, self.X[rows], self.goal.take(rows))[1]

    def _at(self, theta: RealArray, X: RealArray, goal: Goal) -> tuple[float, RealArray]:
        U, beta, b, gamma, factor = self.parts(theta)
        if self.own_factors:
            U, values = U * factor, self._weighted(X * factor)
        else:
            values = self._values if X is self.X else self._weighted(X)
        sums, pull = values(U, gamma, beta)
        value, df = goal(sums + b)
        dU, d_log_gamma, d_log_factor, d_beta = pull(df)
        moved = theta - self.rest_point
        pulled = self.stiff * moved
        gradient = 2.0 * pulled
        first, second, third, last, end = self.at[1:]
        gradient[:first] += (dU * factor if self.own_factors else dU).ravel()
        gradient[first:second] += d_beta.ravel() * self.scale
        gradient[second:third] += df.sum(axis=0)
        if self.machine is None:
            gradient[third:last] += np.where(np.abs(theta[third:last]) < LOG_GAMMA, d_log_gamma, 0.0)
        else:
            share = NEARNESS / self.machine.squared_norm
            off, by_landmarks, by_beta = error_and_slopes(
                self.machine, U.astype(ACC_DTYPE), beta.astype(ACC_DTYPE)
            )
            value += share * off + NEARNESS
            gradient[:first] += share * by_landmarks.ravel()
            gradient[first:second] += share * by_beta.ravel() * self.scale
        if self.own_factors:
            gradient[last:end] += np.where(np.abs(theta[last:end]) < LOG_FACTOR, d_log_factor(), 0.0)
        return value + float(pulled @ moved), gradient


def refine(
    X: SingleArray,
    basis: LeafBasis,
    beta: RealArray,
    intercept: RealArray,
    goal: Goal,
    settings: Settings,
    seed: int = 0,
    machine: Expansion | None = None,
) -> tuple[LeafBasis, RealArray, RealArray]:
    """The basis, β (m + p, k) and intercepts (k,) after at most refine_steps steps of L-BFGS, or after
    refine_epochs passes of stochastic steps where there are any; where none helps, as they were.

    X        float32 (n, n_features), scaled
    machine  what landmarks and β are to stay near
    """
    ridge, own_factors = settings.refine_ridge, settings.leaf_scaling
    objective = Objective(X, basis, beta, intercept, goal, ridge, own_factors, machine)
    with np.errstate(over="ignore", invalid="ignore"):  # A trial step may go too far.
        if settings.refine_epochs:
            found = stochastic(objective, settings.refine_epochs, [settings.seed, seed])
        else:
            found = _lowest(objective, settings.refine_steps)
    U, beta, intercept, gamma, factor = objective.parts(found)
    factor = factor.astype(MODEL_DTYPE)
    moved = replace(
        basis,
        landmarks=(U * factor if settings.leaf_scaling else U).astype(MODEL_DTYPE),
        gamma=gamma.astype(MODEL_DTYPE),
        factor=factor,
    )
    return moved, beta.astype(ACC_DTYPE), intercept.astype(ACC_DTYPE)


def arithmetic() -> str | None:
    """What refines leaves in this process, since it changes the last bits of a model: None for machine code,
    which is then loaded, "numpy" where there is none.
    """
    return (
        "numpy" if with_compiler(*COMPILED, lambda compiled: compiled.check() or compiled) is None else None
    )


def check_arithmetic(planned: str | None) -> None:
    """Raise ResourceError where this process refines otherwise than a job states: another worker may not."""
    if (here := planned_or_here(arithmetic, planned)) != planned:
        raise ResourceError(
            f"Cannot refine leaves in {process_name()}: it uses {REFINED_BY[here]}, but the training began"
            f" with {REFINED_BY.get(planned, planned)}, which gives other last bits. Give all workers the"
            " same llvmlite and DCPRED_NO_COMPILER as the driver, or remove the model's scratch directory and"
            " train again."
        )


def _lowest(objective: Objective, steps: int) -> FloatArray:
    """θ after at most so many steps of L-BFGS: in machine code where that is faster and can be made."""
    found: FloatArray | None = None
    if objective.start.size < WIDE:
        found = with_compiler(*COMPILED, lambda compiled: compiled.minimise(objective, steps, DONE))
    return minimise(objective, objective.origin, steps, DONE) if found is None else found


def stochastic(objective: Objective, epochs: int, seed: Sequence[int]) -> FloatArray:
    """θ after so many passes over the rows in random order, by Adam (Kingma and Ba, 2015), whose steps fall
    to 0 in the second half; the start where that is no higher, since no single step is checked.
    """
    rng = np.random.default_rng(seed)
    n, d = objective.X.shape
    theta = objective.origin.copy()
    width = 1.0 / np.sqrt(float(objective.gamma.mean()) * d)  # width of the kernel, in each feature
    rates = np.repeat([RATE * width, *OTHER_RATES], objective.sizes)
    mean, square = np.zeros_like(theta), np.zeros_like(theta)
    n_batches = max(n // BATCH, 1)
    total = epochs * n_batches
    for step in range(1, total + 1):
        if step % n_batches == 1 or n_batches == 1:
            batches = iter(np.array_split(rng.permutation(n), n_batches))
        gradient = objective.some(theta, next(batches))
        mean += (1 - MEAN_DECAY) * (gradient - mean)
        square += (1 - SQUARE_DECAY) * (gradient * gradient - square)
        rate = min(1.0, 2.0 * (1.0 - step / total)) / (1 - MEAN_DECAY**step)
        theta -= rate * rates * mean / (np.sqrt(square / (1 - SQUARE_DECAY**step)) + TINY)
    # NaN compares as not lower, too.
    return theta if objective(theta)[0] < objective(objective.origin)[0] else objective.origin
