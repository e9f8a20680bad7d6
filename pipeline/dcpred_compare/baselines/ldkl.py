"""Local deep kernel learning (Jose, Goyal, Aggrwal and Varma, ICML 2013): linear models at the nodes of a
complete binary tree, which is learned with them. With a 1 appended to x,

    f(x) = Σ_k I_k(x) tanh(v_k·x) w_k·x,   I_k(x) = Π ½ (1 ± sign(θ_l·x)) over the ancestors l of node k,

+ for the left child and − for the right one: a row sees the nodes of one path alone, log₂ M + 1 of
them, M leaves.

The paper was not at hand, but its equations, in Singal and Maneriker's study of it (IIT Kanpur). It writes
the factors of I as ½ (sign + (−1)^C), whose sign is −1 at a right child: its w_k have the other sign after an
odd number of turns to the right. σ of its tanh(σ v·x) is a part of v.

It is learned by minimising

    λ/2 (‖W‖² + ‖V‖² + ‖Θ‖²) + Σ_i weight_i max(0, 1 − y_i f(x_i)) / Σ_i weight_i,   λ = 1 / (C Σ_i weight_i),

where C means what it does in an SVM, with t = tanh(s·) in place of the sign in f. s grows until t is nearly
the sign; the last passes have the sign itself, and learn V and W of the paths that are.

What differs from Jose et al., as Singal and Maneriker describe it: one λ stands for its three, and
steps are Adam's (Kingma and Ba, ICLR 2015), in mini-batches, where its steps have one length for all
parameters. A single leaf is a linear SVM with the squared hinge.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dcpred_compare.baselines.leaf_model_type import LeafModelType
from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, IntArray, RealArray, SingleArray
from dcpred_tasks.model.exact import is_single
from dcpred_tasks.model.kernels import Kernel, RowArray
from dcpred_tasks.model.packed_arrays import taken

if TYPE_CHECKING:
    from dcpred_tasks.training.settings import Settings
    from dcpred_tasks.training.solvers import LeafRows

OF_TANH = 10  # multiplications
ROWS_AT_ONCE = 8_192  # in a prediction
LEVELS = 4  # most levels of the tree that rows of single precision are multiplied with together
UNSURE = 2e-6  # |θ·x| / (‖θ‖ ‖x‖) in single precision, up to which the sign is not sure
# those of the fit
SATURATED = 20.0  # tanh of it is 1 in double precision
MOST_LEAVES = 4_096  # All nodes are computed for a batch of rows.
ROW_VISITS = 1_500_000  # passes are as many as make so many visits, within the two limits
FEWEST_PASSES, MOST_PASSES = 20, 150
BATCH = 128
RATE = 0.05  # step of Adam where rows have length 1
BETA_1, BETA_2, TINY = 0.9, 0.999, 1e-8  # those of Adam
SOFT, SHARP = 1.0, 30.0  # s at the start, and at the end of the relaxed passes
RELAXED = 0.7  # share of the passes before t is the sign


@dataclass(frozen=True)
class Ldkl:
    """Nodes in the order of a heap: the children of node k are 2k + 1 and 2k + 2. The constant is the last
    column.

    theta      float32 (n_outputs, M − 1, n_features + 1), of the inner nodes
    v, w       float32 (n_outputs, 2M − 1, n_features + 1)
    intercept  float64 (n_outputs,), 0 but where a class has no row, or the only one has all
    """

    theta: SingleArray
    v: SingleArray
    w: SingleArray
    intercept: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.v.shape[2] - 1, len(self.intercept)

    @property
    def depth(self) -> int:
        return int(self.theta.shape[1]).bit_length()

    def predict(self, X: RowArray) -> FloatArray:
        out = np.tile(self.intercept, (len(X), 1))
        walk = self._walk_single if is_single(X) else self._walk
        for at in range(0, len(X), ROWS_AT_ONCE):
            block = slice(at, at + ROWS_AT_ONCE)
            x = with_constant(X[block], X.dtype)
            for output in range(len(self.intercept)):
                out[block, output] += walk(x, output)
        return out

    def sizes(self, X: RowArray) -> FloatArray:
        """Σ ‖w‖ ‖x‖ (1 + ‖v‖ ‖x‖ / 4) over the nodes of the path, of the output where it is largest."""
        x = with_constant(X, ACC_DTYPE)
        length = np.sqrt(np.einsum("ij,ij->i", x, x))
        out = np.zeros(len(x))
        for output in range(len(self.intercept)):
            w, v = (np.linalg.norm(a[output].astype(ACC_DTYPE), axis=1) for a in (self.w, self.v))
            of_path = [length * w[node] * (1 + length * v[node] / 4) for node in self._path(x, output)]
            np.maximum(out, np.sum(of_path, axis=0), out=out)
        return out

    def _walk(self, x: FloatArray, output: int) -> FloatArray:
        """f of rows with a constant, level by level."""
        f = np.zeros(len(x))
        for node in self._path(x, output):
            f += np.tanh(_products(x, self.v[output], node)) * _products(x, self.w[output], node)
        return f

    def _path(self, x: FloatArray, output: int) -> Iterator[IntArray]:
        """The node of each row, level by level."""
        node = np.zeros(len(x), np.int64)
        for level in range(self.depth + 1):
            yield node
            if level < self.depth:
                node = 2 * node + 1 + (_products(x, self.theta[output], node) < 0)

    def _walk_single(self, x: SingleArray, output: int) -> FloatArray:
        """The same in single precision; NaN where a sign is not sure. Rows at the same node are multiplied
        with all nodes of a few levels below it, and walk down them.
        """
        f = np.zeros(len(x))
        unsure = UNSURE * np.sqrt(np.einsum("ij,ij->i", x, x))
        pending = [(0, 0, np.arange(len(x)))]
        while pending:
            root, level, rows = pending.pop()
            below, many = self._below(output, root, level), self._together(level)
            t = (x if len(rows) == len(x) else x[rows]) @ below
            size = 2**many - 1
            at = np.arange(0, t.size, t.shape[1])
            node, sums = np.zeros(len(rows), np.int64), np.zeros(len(rows), MODEL_DTYPE)
            flat = t.ravel()
            for step in range(many):
                sums += np.tanh(flat[at + node]) * flat[at + size + node]
                if level + step < self.depth:
                    ahead = flat[at + 2 * size + node]
                    sums[np.abs(ahead) <= unsure[rows]] = np.nan
                    node = 2 * node + 1 + (ahead < 0)
            f[rows] += sums
            if level + many <= self.depth:
                pending += self._parted(root, level, many, rows, node - size)
        return f

    def _parted(
        self, root: int, level: int, many: int, rows: IntArray, place: IntArray
    ) -> list[tuple[int, int, IntArray]]:
        """Rows by the node that they have come to, whose place in its level is known."""
        first = (root + 1 - 2**level) * 2**many + 2 ** (level + many) - 1
        order = np.argsort(place.astype(np.int8), kind="stable")
        ends = np.cumsum(np.bincount(place, minlength=2**many))
        parts = np.split(rows[order], ends[:-1])
        return [(first + i, level + many, part) for i, part in enumerate(parts) if len(part)]

    def _together(self, level: int) -> int:
        """Levels that are taken together from there on: as few parts as may be, and equal ones."""
        levels = self.depth + 1
        each = -(-levels // -(-levels // LEVELS))
        return min(each, levels - level)

    def _below(self, output: int, root: int, level: int) -> SingleArray:
        """v, w and θ / ‖θ‖ of the nodes of a few levels from `root` down, as columns; no θ of leaves."""
        key = output, root
        if key not in self._columns:
            nodes, many = [root], self._together(level)
            for node in nodes:  # It grows: a heap of so many levels.
                nodes += [2 * node + 1, 2 * node + 2] if len(nodes) < 2**many - 1 else []
            inner = [node for node in nodes if node < self.theta.shape[1]]
            theta = self.theta[output, inner].astype(ACC_DTYPE)
            length = np.linalg.norm(theta, axis=1, keepdims=True)
            theta /= np.where(length > 0, length, 1.0)
            parts = self.v[output, nodes], self.w[output, nodes], theta.astype(MODEL_DTYPE)
            self._columns[key] = np.ascontiguousarray(np.concatenate(parts).T)
        return self._columns[key]

    @cached_property
    def _columns(self) -> dict[tuple[int, int], SingleArray]:
        return {}

    @property
    def cost(self) -> float:
        n_features, n_outputs = self.shape
        nodes = self.depth + 1
        return float(n_outputs * ((3 * nodes - 1) * n_features + nodes * (OF_TANH + 1)))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"theta": self.theta, "v": self.v, "w": self.w, "intercept": self.intercept}


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Ldkl:
    theta, v, w = taken(arrays, theta=("float32", 3), v=("float32", 3), w=("float32", 3))
    (intercept,) = taken(arrays, intercept=("float64", 1))
    n_outputs, inner, width = theta.shape
    if inner & (inner + 1) or width < 1 or v.shape != (n_outputs, 2 * inner + 1, width):
        raise ValueError("the trees of local deep kernels are not complete")
    if w.shape != v.shape or intercept.shape != (n_outputs,):
        raise ValueError("local deep kernels have other weights than nodes")
    return Ldkl(theta, v, w, intercept)


def with_constant(X: RowArray, dtype: Any) -> RealArray:
    out = np.ones((len(X), X.shape[1] + 1), dtype)
    out[:, :-1] = X
    return out


def _products(x: FloatArray, parameters: SingleArray, node: NDArray[np.int64]) -> FloatArray:
    """The product of each row with the parameters of its node."""
    products: FloatArray = np.einsum("ij,ij->i", x, parameters[node])
    return products


def fit(kind: LeafModelType, rows: "LeafRows", kernel: Kernel, settings: "Settings", seed: int) -> Ldkl:
    """A tree for each class against the rest, of kind.size leaves or fewer, a power of two up to 4,096."""
    from dcpred_tasks.training.solvers import ABSENT, constant_decision, labellings, linear_svm

    leaves = 1 << (min(kind.size, len(rows.X), MOST_LEAVES).bit_length() - 1)
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
            batch = order[at : at + BATCH]
            part = done / last
            s = SOFT * (SHARP / SOFT) ** (part / RELAXED) if part < RELAXED else np.inf
            gradient = slope(x[batch], y[batch], share[batch], parameters, s)[1]
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
            nodes = slice(2**level - 1, 2 ** (level + 1) - 1)
            left, right = D[:, 0::2], D[:, 1::2]
            by_ahead[:, nodes] = (left - right) * seen[:, nodes] / 2
            D = value[:, nodes] + ((left + right) + t[:, nodes] * (left - right)) / 2
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
