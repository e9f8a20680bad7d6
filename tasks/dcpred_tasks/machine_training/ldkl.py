"""How local deep kernels are learned. Minimised is

    λ/2 (‖W‖² + ‖V‖² + ‖Θ‖²) + Σ_i weight_i max(0, 1 − y_i f(x_i)) / Σ_i weight_i,   λ = 1 / (C Σ_i weight_i),

so that C means what it does in an SVM; f is that of dcpred_tasks.machines.ldkl, with t = tanh(s·) in the
place of the sign. s grows until t is nearly the sign; the last passes have the sign itself, and learn V and W
of the paths that are.

What differs from Jose et al. (ICML 2013), as Singal and Maneriker tell it: one λ stands for its three, and
steps are Adam's (Kingma and Ba, ICLR 2015), in mini-batches, where its steps have one length for all
parameters. A single leaf is a linear SVM with the squared hinge.
"""

import numpy as np

from dcpred_tasks.dtypes import MODEL_DTYPE, FloatArray, RealArray, SingleArray
from dcpred_tasks.machines.ldkl import Ldkl, with_constant
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.training.local_machine import ABSENT, LeafRows, constant_decision, labellings
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.solvers import linear_svm

SATURATED = 20.0  # tanh of it is 1 in double precision
MOST_LEAVES = 4_096  # All nodes are computed for a batch of rows.
ROW_VISITS = 1_500_000  # passes are as many as make so many visits, within the two limits
FEWEST_PASSES, MOST_PASSES = 20, 150
BATCH = 128
RATE = 0.05  # step of Adam where rows have length 1
BETA_1, BETA_2, TINY = 0.9, 0.999, 1e-8  # those of Adam
SOFT, SHARP = 1.0, 30.0  # s at the start, and at the end of the relaxed passes
RELAXED = 0.7  # share of the passes before t is the sign


def fit(rows: LeafRows, kernel: Kernel, settings: Settings, seed: int) -> Ldkl:
    """A tree for each class against the rest, of machine_size leaves, but no more than there are rows, or
    4,096: rounded down to a power of two.
    """
    leaves = 1 << (min(settings.machine_size, len(rows.X), MOST_LEAVES).bit_length() - 1)
    width, k = rows.X.shape[1] + 1, rows.n_outputs
    theta = np.zeros((k, leaves - 1, width), MODEL_DTYPE)
    v, w = (np.zeros((k, 2 * leaves - 1, width), MODEL_DTYPE) for _ in range(2))
    constant = constant_decision(rows.target, k, rows.task)
    if constant is not None:
        return Ldkl(theta, v, w, constant)
    intercept = np.full(k, ABSENT)
    weight = rows.compact_weight()
    rng = np.random.default_rng([settings.seed, seed])
    for output, sign in labellings(rows):
        intercept[output] = 0.0
        if leaves == 1:
            of_svm = linear_svm(rows.X.astype(np.float64), sign, weight, settings.C)
            v[output, 0, -1], w[output, 0] = SATURATED, np.append(*of_svm)
        else:
            parameters = trained(rows.X, sign, weight, leaves, settings.C, rng)
            theta[output], v[output], w[output] = np.split(parameters, [leaves - 1, 3 * leaves - 2])
    return Ldkl(theta, v, w, intercept)


def trained(
    X: SingleArray, sign: FloatArray, weight: FloatArray, leaves: int, C: float, rng: np.random.Generator
) -> SingleArray:
    """Θ (M − 1 rows), V and W (2M − 1 each), one below the other, for labels of ±1."""
    x = with_constant(X, np.float32)
    y, share = sign.astype(np.float32), (weight / weight.mean()).astype(np.float32)
    length = float(np.sqrt((x.astype(np.float64) ** 2).sum(axis=1).mean()))
    parameters = (rng.normal(size=(5 * leaves - 3, x.shape[1])) / length).astype(np.float32)
    parameters[3 * leaves - 2 :] *= 0.1  # W begins near 0, where no row is beyond its margin.
    decay = np.float32(1.0 / (C * weight.sum()))
    first, second = np.zeros_like(parameters), np.zeros_like(parameters)
    passes = min(max(ROW_VISITS // len(x), FEWEST_PASSES), MOST_PASSES)
    last, done = passes * -(-len(x) // BATCH), 0
    for _ in range(passes):
        order = rng.permutation(len(x))
        for at in range(0, len(x), BATCH):
            own = order[at : at + BATCH]
            part = done / last
            s = SOFT * (SHARP / SOFT) ** (part / RELAXED) if part < RELAXED else np.inf
            gradient = slope(x[own], y[own], share[own], parameters, s)[1]
            gradient += decay * parameters
            first += (1 - BETA_1) * (gradient - first)
            second += (1 - BETA_2) * (gradient * gradient - second)
            done += 1
            rate = RATE / length * (1 - part) / (1 - BETA_1**done)
            step = rate * first / (np.sqrt(second / (1 - BETA_2**done)) + TINY)
            fixed = 0 if np.isfinite(s) else leaves - 1  # Paths do not move after the relaxed passes.
            parameters[fixed:] -= step[fixed:].astype(np.float32)
    return parameters


def slope(
    x: RealArray, y: RealArray, share: RealArray, parameters: RealArray, s: float
) -> tuple[float, RealArray]:
    """The mean of weighted hinges over rows with a constant, and its derivative by the parameters; without
    the penalty.

    With D_k = tanh(v_k·x) w_k·x + Σ_children ½ (1 ± t_k) D, from the leaves upwards, the derivative of f by
    t_k is ½ I_k (D_left − D_right). Where s is infinite, t is the sign, and its derivative is 0.
    """
    leaves = (len(parameters) + 3) // 5
    ahead, gate, local = np.split(x @ parameters.T, [leaves - 1, 3 * leaves - 2], axis=1)
    hard = not np.isfinite(s)
    t = np.where(ahead < 0, x.dtype.type(-1), x.dtype.type(1)) if hard else np.tanh(x.dtype.type(s) * ahead)
    seen = indicators(t)
    np.tanh(gate, out=gate)
    value = gate * local
    hinge = 1 - y * np.einsum("ij,ij->i", seen, value)
    along = np.where(hinge > 0, -y * share / len(x), x.dtype.type(0)).astype(x.dtype)[:, None]
    by_ahead = np.zeros_like(ahead)
    if not hard:
        D = value[:, leaves - 1 :]
        for level in reversed(range(leaves.bit_length() - 1)):
            own = slice(2**level - 1, 2 ** (level + 1) - 1)
            left, right = D[:, 0::2], D[:, 1::2]
            by_ahead[:, own] = (left - right) * seen[:, own] / 2
            D = value[:, own] + ((left + right) + t[:, own] * (left - right)) / 2
        by_ahead *= along * x.dtype.type(s) * (1 - t * t)
    seen *= along
    by_values = [by_ahead, seen * local * (1 - gate * gate), seen * gate]
    loss = float((share * np.maximum(hinge, 0)).mean())
    return loss, np.concatenate(by_values, axis=1).T @ x


def indicators(t: RealArray) -> RealArray:
    """I_k of all 2M − 1 nodes, of t at the M − 1 inner nodes: (n, M − 1)."""
    levels = [np.ones((len(t), 1), t.dtype)]
    for level in range(int(t.shape[1]).bit_length()):
        half = levels[-1] / 2
        swing = half * t[:, 2**level - 1 : 2 ** (level + 1) - 1]
        levels.append(np.stack([half + swing, half - swing], axis=2).reshape(len(t), 2 ** (level + 1)))
    return np.concatenate(levels, axis=1)
