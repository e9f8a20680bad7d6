"""Compact models of any shape, without training, and rows that find their way through all of them."""

from collections import deque
from dataclasses import dataclass
from math import comb, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import IntArray, SingleArray
from dcpred_tasks.model.basis import sample_pairs
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.scaling import fit_scaling
from dcpred_tasks.model.tree import Tree

LATENT = 8  # dimensions of the cloud
NOISE = 0.3
ARITIES: dict[int, tuple[int, ...]] = {
    1: (),
    64: (4, 16),
    256: (16, 16),
    1024: (4, 16, 16),
    4096: (16, 16, 16),
}


@dataclass(frozen=True)
class Shape:
    """What the cost of a compact model depends on."""

    n_features: int = 54
    n_leaves: int = 1024
    landmarks: int = 16
    products: int = 0
    outputs: int = 1
    dtype: str = "float32"
    used: int = 0  # features whose factor in the scaling is not 0; 0 for all

    def __post_init__(self) -> None:
        assert prod(ARITIES[self.n_leaves]) == self.n_leaves

    @property
    def pairs(self) -> int:
        """Products that there are: at most one of every pair of landmarks."""
        return min(self.products, comb(self.landmarks + 1, 2))

    @property
    def features(self) -> str:
        return f"{self.used} of {self.n_features}" if self.used else str(self.n_features)

    @property
    def nbytes(self) -> int:
        """Bytes of the model, about: landmarks and output weights."""
        return (
            4
            * self.n_leaves
            * (self.landmarks * self.n_features + (self.landmarks + self.pairs) * self.outputs)
        )


class Cloud:
    """Normal rows of a few dimensions through a random linear map, with noise; each feature has its own shift
    and width. Integers fill their range.
    """

    def __init__(self, n_features: int, dtype: str = "float32", seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((min(LATENT, n_features), n_features), np.float32)
        self.map = A / np.linalg.norm(A, axis=0) * np.float32(np.sqrt(1 - NOISE**2))
        self.dtype = np.dtype(dtype)
        if self.dtype.kind in "iu":
            limits = np.iinfo(self.dtype)
            self.low, self.high = float(limits.min), float(limits.max)
            self.shift = np.full(n_features, (self.low + self.high) / 2, np.float32)
            self.width = np.full(n_features, (self.high - self.low) / 8, np.float32)
        else:
            self.low, self.high = -np.inf, np.inf
            self.shift = rng.standard_normal(n_features, np.float32)
            self.width = np.exp(rng.standard_normal(n_features, np.float32))

    def rows(self, n: int, seed: int) -> NDArray[Any]:
        """Raw rows, (n, n_features) of the cloud's dtype."""
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, self.map.shape[1]), np.float32)
        X *= np.float32(NOISE)
        X += rng.standard_normal((n, len(self.map)), np.float32) @ self.map
        X *= self.width
        X += self.shift
        return (np.rint(X).clip(self.low, self.high) if self.dtype.kind in "iu" else X).astype(
            self.dtype, copy=False
        )


def make_model(shape: Shape, cloud: Cloud, seed: int = 1) -> Model:
    """A model for rows of the cloud: the tree, landmarks and γ from a sample of them, the output weights at
    random.
    """
    rng = np.random.default_rng(seed)
    raw = cloud.rows(max(20_000, 8 * shape.n_leaves), seed)
    scaling = fit_scaling("standard", raw, np.ones(len(raw)), raw.min(axis=0), raw.max(axis=0))
    if shape.used:
        scaling.factor[rng.permutation(shape.n_features)[shape.used :]] = 0.0
    X = scaling(raw)
    tree, leaves = grow_tree(X, ARITIES[shape.n_leaves], rng)
    n, m, p, k = len(leaves), shape.landmarks, shape.pairs, shape.outputs
    kernel = Kernel("rbf", 1.0 / typical_squared_distance(X, leaves, rng))
    empty = np.zeros(0, np.float32)
    return Model(
        task="classification",
        classes=tuple(range(max(k, 2))),
        kernel=kernel,
        triangle_bound="lower",
        scaling=scaling,
        tree=tree,
        landmark_at=np.arange(n + 1) * m,
        gamma=np.full(n * m, kernel.gamma, np.float32),
        landmarks=X[np.concatenate([rng.choice(own, m, replace=len(own) < m) for own in leaves])],
        pair_at=np.arange(n + 1) * p,
        pairs=np.concatenate([sample_pairs(m, p, rng) for _ in range(n)]),
        triangle_at=np.zeros(n + 1, np.int64),
        triangle=empty,
        beta_at=np.arange(n + 1) * (m + p),
        beta=rng.standard_normal((n * (m + p), k), np.float32),
        intercept=rng.standard_normal((n, k)),
        bounds=np.zeros((n, 0)),
        leaf_factor=np.zeros((n, 0), np.float32),
        leaf_rows=np.array([len(own) for own in leaves]),
        local_kernel=kernel,
    )


def grow_tree(
    X: SingleArray, arities: tuple[int, ...], rng: np.random.Generator
) -> tuple[Tree, list[IntArray]]:
    """A tree whose centres are rows of their node, and the rows of each leaf, those of the node above for a
    leaf without any.
    """
    starts, children, leaves = [0], [], []
    centres = [np.zeros((0, X.shape[1]), np.float32)]
    pending = deque([(np.arange(len(X)), arities)])  # breadth first: it gives nodes and leaves their numbers
    n_nodes = n_leaves = 0
    while pending:
        rows, below = pending.popleft()
        if not below:
            leaves.append(rows)
            continue
        short = len(rows) < below[0]
        C = X[rng.choice(rows, below[0], replace=short)]
        if short:  # no two centres alike
            C += 0.1 * rng.standard_normal(C.shape, np.float32)
        nearest = (X[rows] @ C.T - np.einsum("ij,ij->i", C, C) / 2).argmax(axis=1)
        for child in range(below[0]):
            own = rows[nearest == child]
            pending.append((own if len(own) else rows, below[1:]))
            if len(below) > 1:
                n_nodes += 1
                children.append(n_nodes)
            else:
                children.append(~n_leaves)
                n_leaves += 1
        centres.append(C)
        starts.append(len(children))
    return Tree(np.array(starts), np.array(children, np.int32), np.concatenate(centres)), leaves


def typical_squared_distance(X: SingleArray, leaves: list[IntArray], rng: np.random.Generator) -> float:
    """The mean ‖x − x'‖² of two rows of one leaf."""
    pairs = np.array(
        [
            rng.choice(own, 2, replace=False)
            for own in leaves
            for _ in range(-(-256 // len(leaves)))
            if len(own) > 1
        ]
    )
    return float(((X[pairs[:, 0]] - X[pairs[:, 1]]) ** 2).sum(axis=1).mean())
