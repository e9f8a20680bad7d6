"""Contributions of features to a score, and importances of features."""

import math
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, NO_LEAF, FloatArray, IntArray, LeafNumbers
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.model.compact_model import Model, Scores, by_leaf, class_numbers, summed
from dcpred_tasks.model.kernels import Sum, city_block_distances, squared_distances
from dcpred_tasks.model.leaf_arrays import Parts
from dcpred_tasks.model.term import offset_of

PRODUCT_KERNELS = ("rbf", "laplacian")  # A value is a product over features.
MOST_BACKGROUND = 64  # background rows of a leaf that a row is compared with
IMPORTANCE_ROWS = 512  # rows of all leaves that importances are means of
LEAST_EXPONENT = -138.0  # e to it is 1e-60: so small a factor counts as this, and none is 0.
EXACT_FEATURES = 12  # up to which all nodes are used at once
ENOUGH = 1e-10  # largest error of a sum of contributions, relative to the sizes of its terms
PATH_NODES = 16  # nodes of integrated gradients
PRESENT = -1e29  # Intercepts of classes that a leaf has no row of are lower.
LEAF, AVERAGE = "leaf", "average"  # the two further parts of a decision value
STRIP_NUMBERS = 2**17  # factors that are worked on at once

_averages: "WeakKeyDictionary[Model, FloatArray]" = WeakKeyDictionary()
_importances: "WeakKeyDictionary[Model, dict[tuple[Parts, int], FloatArray]]" = WeakKeyDictionary()


def is_exact(model: Model) -> bool:
    """Whether contributions are Shapley values, and not integrated gradients."""
    return model.kernel.name in PRODUCT_KERNELS and not len(model.triangle)


def check_contributions(model: Model) -> None:
    """Raise DataError for a model whose leaves are not sums of kernel values."""
    if model.leaf_models is not None:
        raise DataError(
            f"Cannot compute contributions: the leaves of the model hold {model.leaf_models.name} models, and"
            " only sums of kernel values are divided by feature. Train with leaf_model=compact."
        )


def contributions(
    model: Model,
    X: NDArray[np.generic],
    decision: Scores,
    leaf: LeafNumbers,
    *,
    parts: Parts | None = None,
    output: IntArray | None = None,
) -> FloatArray:
    """float64 (n, n_parts + 2): contributions of the parts, of the leaf, and the average, which sum to the
    explained decision value of the row; NaN for rows without a score.

    X         (n, n_features), raw rows
    decision  (n, n_outputs), their decision values
    leaf      int32 (n,), their leaves
    parts     what a part is called and made of; None: the model's own
    output    int64 (n,), the decision value that is explained; None: that of the label

    Raises DataError as `check_contributions` does.
    """
    check_contributions(model)
    parts = parts or parts_of(model)
    if output is None:
        output = class_numbers(decision) if model.n_outputs > 1 else np.zeros(len(X), np.int64)
    decisions = model.target.to_decision(np.asarray(decision, ACC_DTYPE))
    explained = np.take_along_axis(decisions, output[:, None], axis=1)[:, 0]
    out = np.full((len(X), len(parts.names) + 2), np.nan)
    scored = np.flatnonzero(np.isfinite(explained) & (leaf != NO_LEAF))
    order, spans = by_leaf(leaf[scored])
    for number, span in spans:
        here = scored[order[span]]
        game = _game(model, number, parts)
        for row, inside in zip(here, game.basis.inside(model.scaling.exact(X[here])), strict=True):
            out[row, :-2] = game(inside, int(output[row]))
        encoded = X[here] if model.scaling.targets is None else model.scaling.targets(X[here])
        out[here, :-2] += _of_terms(model, number, encoded, parts, output[here])
    out[scored, -1] = average(model)[output[scored]]
    out[scored, -2] = explained[scored] - out[scored, -1] - out[scored, :-2].sum(axis=1)
    return out


def parts_of(model: Model) -> Parts:
    """The parts of a model: columns of its table if known, else its features."""
    return model.parts or Parts.of_features(None, model.n_features)


def part_names(model: Model) -> tuple[str, ...]:
    """Names of all parts of a decision value, each once: the columns, the leaf and the average."""
    names = parts_of(model).names
    return (*names, *(name if name not in names else f"{name} of the model" for name in (LEAF, AVERAGE)))


def method(model: Model) -> str:
    """How contributions are computed, in words."""
    return "Shapley values" if is_exact(model) else "integrated gradients"


def average(model: Model) -> FloatArray:
    """The mean decision value of background rows, float64 (n_outputs,), by the rows of leaves of a class."""
    if model not in _averages:
        weight = np.repeat(np.maximum(model.leaf_rows, 1e-9)[:, None], model.n_outputs, axis=1)
        weight = np.where(model.intercept > PRESENT, weight, 0.0)
        weight[:, weight.sum(axis=0) == 0] = 1.0
        rows = (_background(model, leaf) for leaf in range(model.n_leaves))
        means = np.stack([_values(model, leaf, of_leaf).mean(axis=0) for leaf, of_leaf in enumerate(rows)])
        _averages[model] = np.asarray((means * weight).sum(axis=0) / weight.sum(axis=0))
    return _averages[model]


def mean_contributions(model: Model, parts: Parts, n_rows: int = IMPORTANCE_ROWS) -> FloatArray:
    """The mean size of the contribution of each part to the decision value of the label, float64 (n_parts,),
    over about n_rows stored training rows, or else landmarks; a leaf counts by its training rows. Raises
    DataError as `check_contributions` does.
    """
    check_contributions(model)
    known = _importances.setdefault(model, {})
    if (parts, n_rows) not in known:
        total = np.zeros(len(parts.names))
        for leaf in np.flatnonzero(model.leaf_rows).tolist():
            game = _game(model, leaf, parts)
            rows = _background(model, leaf, max(n_rows // model.n_leaves, 1))
            values = _values(model, leaf, rows)
            output = class_numbers(values) if model.n_outputs > 1 else np.zeros(len(rows), np.int64)
            phi = np.array([game(row, int(k)) for row, k in zip(rows, output, strict=True)])
            phi += _of_terms(model, leaf, _encoded(model, leaf, rows), parts, output)
            total += model.leaf_rows[leaf] * np.abs(phi).mean(axis=0)
        known[parts, n_rows] = np.asarray(total / max(model.leaf_rows.sum(), 1))
    return known[parts, n_rows]


def _background(model: Model, leaf: int, most: int = MOST_BACKGROUND) -> FloatArray:
    """Background rows of a leaf in the features that its landmarks lie in, float64 (n ≥ 1, n_columns)."""
    basis = model.basis(leaf)
    if model.background is None or not len(model.background.of(leaf)):
        points = basis.landmarks[:most].astype(ACC_DTYPE)
        return points if len(points) else np.zeros((1, model.n_columns))
    return np.asarray(basis.inside(model.background.of(leaf)[:most]), ACC_DTYPE)


def _values(model: Model, leaf: int, rows: FloatArray) -> FloatArray:
    """Decision values of rows in the features that landmarks of a leaf lie in, float64 (n, n_outputs)."""
    values = np.repeat(model.intercept[leaf][None], len(rows), axis=0)
    if model.beta_at[leaf] < model.beta_at[leaf + 1]:
        values = values + _bare(model.basis(leaf))(rows) @ model.beta.of(leaf).astype(ACC_DTYPE)
    offset = offset_of([term.values for term in model.terms], _encoded(model, leaf, rows), model.n_outputs)
    return summed(model, leaf, values, offset)


def _encoded(model: Model, leaf: int, rows: FloatArray) -> FloatArray:
    """Encoded rows, which terms take, of rows in the features that landmarks of a leaf lie in; features of
    factor 0 have their mean.
    """
    if not model.terms:
        return rows
    factor = model.leaf_factor[leaf] if model.leaf_factor.shape[1] else np.ones(1)
    return model.scaling.of_encoded.raw(rows / np.where(factor == 0, np.inf, factor))


def _of_terms(model: Model, leaf: int, X: NDArray[Any], parts: Parts, output: IntArray) -> FloatArray:
    """Contributions of the terms to the outputs (n,) of encoded rows of a leaf, (n, n_parts)."""
    phi, targets = np.zeros((len(X), len(parts.names))), model.scaling.targets
    part = parts.of_feature if targets is None else parts.of_feature[targets.source]
    background = _encoded(model, leaf, _background(model, leaf))
    for term in model.terms:
        for number in np.unique(output):
            rows = np.flatnonzero(output == number)
            np.add.at(phi, (rows[:, None], part), term.contributions(X[rows], background, int(number)))
    return phi


def _bare(basis: LeafBasis) -> LeafBasis:
    """The basis of rows that are multiplied with the leaf's factors already."""
    return replace(basis, factor=basis.factor[:0])


def _game(model: Model, leaf: int, parts: Parts) -> "_Game":
    columns = parts.of_feature[model.scaling.source]
    kind = _Products if is_exact(model) else _Paths
    factor = model.factors[leaf if len(model.factors) > 1 else 0]
    rows = _background(model, leaf)
    beta = model.beta.of(leaf).astype(ACC_DTYPE)
    return kind(model.basis(leaf), beta, rows, columns, len(parts.names), factor != 0)


class _Game:
    """The contributions of one leaf: to the sum of its basis, without the intercept."""

    def __init__(
        self,
        basis: LeafBasis,
        beta: FloatArray,
        background: FloatArray,
        part: IntArray,
        n_parts: int,
        live: NDArray[np.bool_],
    ) -> None:
        """
        beta        (n_basis, n_outputs)
        background  (n, n_columns), times the factors of the leaf
        part        (n_columns,), the part of each column
        live        (n_columns,), those that are not 0 in every row
        """
        self.basis, self.beta, self.background = basis, beta, background
        self.part, self.n_parts, self.live = part, n_parts, live
        self.plain = _bare(basis)
        if len(beta):
            self.prepare()

    def prepare(self) -> None:
        """Compute what all rows share."""

    def __call__(self, row: FloatArray, output: int) -> FloatArray:
        """Contributions (n_parts,) of a row (n_columns,), times the factors of the leaf, to one output."""
        if not len(self.beta):
            return np.zeros(self.n_parts)
        return self.contributions(row, self.beta[:, output])

    def contributions(self, row: FloatArray, weights: FloatArray) -> FloatArray:
        raise NotImplementedError


class _Products(_Game):
    """Shapley values of a sum of products over features."""

    def prepare(self) -> None:
        self.used = used = np.unique(self.part[self.live])
        columns = np.flatnonzero(np.isin(self.part, used))
        self.order = columns[np.argsort(self.part[columns], kind="stable")]
        self.starts = np.flatnonzero(np.diff(self.part[self.order], prepend=-1))
        self.rest = np.flatnonzero(~np.isin(self.part, used))
        m, pairs = len(self.basis.landmarks), self.basis.pairs
        self.first = np.concatenate([np.arange(m), pairs[:, 0]])
        self.second = np.concatenate([np.full(m, -1), pairs[:, 1]])
        step = max(STRIP_NUMBERS // (len(self.first) * max(len(used), 1)), 1)
        strips = (self.background[i : i + step] for i in range(0, len(self.background), step))
        self.strips = [np.ascontiguousarray(self.factors(strip).transpose(2, 1, 0)) for strip in strips]
        self.room = np.empty((2, *self.strips[0].shape))
        self.fixed = self.factors(self.background[:1], of_rest=True)[0, :, 0]
        self.values = [strip.prod(axis=0) for strip in self.strips]  # (n_basis, n_background)

    def factors(self, rows: FloatArray, of_rest: bool = False) -> FloatArray:
        """The factor of each part in each function of the basis, (n, n_basis, n_used); of_rest: the factor
        of all parts that are not used together, (n, n_basis, 1).
        """
        columns = self.rest if of_rest else self.order
        starts = np.zeros(min(len(columns), 1), np.int64) if of_rest else self.starts
        off = np.abs(rows[:, None, columns] - self.basis.landmarks[:, columns].astype(ACC_DTYPE))
        if self.basis.kernel.family.sum == Sum.SQUARES:
            off *= off
        if not len(starts):
            return np.ones((len(rows), len(self.first), int(of_rest)))
        exponent = np.add.reduceat(off, starts, axis=-1) * -self.basis.gamma.astype(ACC_DTYPE)[:, None]
        both = exponent[:, self.first] + np.where(self.second[:, None] < 0, 0.0, exponent[:, self.second])
        return np.exp(np.maximum(both, LEAST_EXPONENT))

    def contributions(self, row: FloatArray, weights: FloatArray) -> FloatArray:
        phi = np.zeros(self.n_parts)
        d = len(self.used)
        if not d:
            return phi
        a = np.ascontiguousarray(self.factors(row[None])[0].T)[..., None]  # (n_used, n_basis, 1)
        w = (weights * self.fixed)[:, None] / len(self.background)
        here, there = w * len(self.background) * a.prod(axis=0), [w * value for value in self.values]
        target = float(here.sum() - sum(part.sum() for part in there))
        size = float(np.abs(here).sum() + sum(np.abs(part).sum() for part in there))
        most = max(math.ceil(d / 2), 1)
        nodes = min(most, EXACT_FEATURES // 2)
        while True:
            integral = self._integral(a, w, nodes)
            if nodes == most or abs(integral.sum() - target) <= ENOUGH * size:
                break
            nodes = min(2 * nodes, most)
        phi[self.used] = completed(integral, target)
        return phi

    def _integral(self, a: FloatArray, w: FloatArray, nodes: int) -> FloatArray:
        t, share = _nodes(nodes)
        phi = np.zeros(len(a))
        for c in self.strips:
            gap, mixed = self.room[0][..., : c.shape[-1]], self.room[1][..., : c.shape[-1]]
            gap = np.subtract(a, c, out=gap)
            for at, weight in zip(t, share, strict=True):
                np.multiply(gap, at, out=mixed)
                mixed += c
                others = (mixed.prod(axis=0) * (weight * w)).ravel()
                np.divide(gap, mixed, out=mixed)
                phi += mixed.reshape(len(a), -1) @ others
        return phi


class _Paths(_Game):
    """Integrated gradients."""

    def contributions(self, row: FloatArray, weights: FloatArray) -> FloatArray:
        t, share = _nodes(PATH_NODES)
        of_columns = np.zeros(len(row))
        step = max(STRIP_NUMBERS // (PATH_NODES * (len(row) + len(self.beta))), 1)
        for first in range(0, len(self.background), step):
            start = self.background[first : first + step]
            gap = row - start
            path = (start + t[:, None, None] * gap).reshape(-1, len(row))
            slope = _gradient(self.plain, weights, path).reshape(len(t), *gap.shape)
            of_columns += np.einsum("tbd,bd,t->d", slope, gap, share)
        ends = self.plain(np.concatenate([row[None], self.background])) @ weights
        phi = np.bincount(self.part, of_columns / len(self.background), self.n_parts).astype(ACC_DTYPE)
        return completed(phi, float(ends[0] - ends[1:].mean()))


def _nodes(n: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of Gauss and Legendre on (0, 1)."""
    t, share = np.polynomial.legendre.leggauss(n)
    return (t + 1.0) / 2.0, share / 2.0


def completed(phi: FloatArray, target: float) -> FloatArray:
    """Contributions whose sum is the target: what quadrature left is spread by their sizes."""
    size = np.abs(phi)
    total = float(size.sum())
    return phi if total == 0 else phi + (target - float(phi.sum())) * (size / total)


def _gradient(basis: LeafBasis, weights: FloatArray, Z: FloatArray) -> FloatArray:
    """The gradient of Σ_q weights_q c̄_q at rows Z (n, n_columns), float64 of their shape."""
    kernel, family, U = basis.kernel, basis.kernel.family, basis.landmarks.astype(ACC_DTYPE)
    gamma, m = basis.gamma.astype(ACC_DTYPE), len(U)
    if family.sum == Sum.PRODUCTS:
        sums = Z @ U.T
    else:
        sums = squared_distances(Z, U) if family.sum == Sum.SQUARES else city_block_distances(Z, U)
    K = family.value(sums * gamma, kernel)
    Q = np.zeros((m, m))
    np.add.at(Q, (basis.pairs[:, 0], basis.pairs[:, 1]), weights[m : m + len(basis.pairs)])
    slope = weights[:m] + K @ (Q + Q.T)  # derivatives of f by each kernel value
    slope *= -gamma * family.fall(sums * gamma, K, kernel)  # by each sum
    if family.sum == Sum.PRODUCTS:
        return np.asarray(slope @ U)
    squares = family.sum == Sum.SQUARES
    r = np.sqrt(sums) if squares else sums
    slope *= 2.0 if squares else 1.0
    by_distance = _triangle_slope(basis, weights[m + len(basis.pairs) :], r)
    slope += np.divide(by_distance, r, out=np.zeros_like(r), where=r > 0) if squares else by_distance
    if squares:
        return np.asarray(slope.sum(axis=1)[:, None] * Z - slope @ U)
    return np.stack([(slope * np.sign(z[:, None] - u)).sum(axis=1) for z, u in zip(Z.T, U.T, strict=True)], 1)


def _triangle_slope(basis: LeafBasis, weights: FloatArray, r: FloatArray) -> FloatArray:
    """The derivative of the triangle points by the distances r (n, m) to the landmarks that bound them."""
    out, rows, kernel = np.zeros_like(r), np.arange(len(r)), basis.kernel
    for s, weight in zip(basis.triangle.astype(ACC_DTYPE), weights, strict=True):
        off = r - s if basis.bound == "lower" else r + s
        at = np.abs(off).argmax(axis=1) if basis.bound == "lower" else off.argmin(axis=1)
        sign, far = np.sign(off[rows, at]), np.abs(off[rows, at])
        squares = kernel.family.sum == Sum.SQUARES
        t = kernel.gamma * (far * far if squares else far)
        fall = kernel.family.fall(t, kernel.of_distance(far), kernel)
        out[rows, at] -= weight * sign * kernel.gamma * fall * (2 * far if squares else 1.0)
    return out


def importances(model: Model) -> FloatArray:
    """The share of each raw feature in the expected squared distance between two training rows, as kernels
    see it: variance × factor², with factors of leaves weighted by their rows, and the columns of a one-hot
    encoded feature combined. float64 (n_features,), sum 1; all 0 where no feature varies.

    Raises AttributeError where the model lacks the variances.
    """
    sd = _deviations(model)
    if not np.isfinite(sd).all():
        raise AttributeError(
            "Cannot compute feature importances: the model was trained with calibrate=false or by an earlier"
            " version of dcpred, and lacks the frequencies of categories. Train it again."
        )
    return _shares(model, sd)


def known_importances(model: Model) -> FloatArray:
    """The importances of features whose variances the model has; 0 for others."""
    return _shares(model, np.nan_to_num(_deviations(model)))


def _shares(model: Model, sd: FloatArray) -> FloatArray:
    spread = np.abs(model.factors) * sd
    largest = float(spread.max(initial=0.0))
    if largest == 0:
        return np.zeros(model.n_features)
    weights = _weights(model) if len(spread) > 1 else np.ones(1)
    of_columns = np.average((spread / largest) ** 2, axis=0, weights=weights)
    out = np.bincount(model.scaling.source, of_columns, model.n_features)
    return np.asarray(out / out.sum())


def _weights(model: Model) -> FloatArray:
    """Of leaves, by their rows."""
    return np.asarray(np.maximum(model.leaf_rows, 1e-9))


def _deviations(model: Model) -> FloatArray:
    """Standard deviations of columns before scaling, float64 (n_columns,); NaN where unknown."""
    coding, reference, uncertainty = model.scaling.coding, model.reference, model.uncertainty
    if reference is None:
        return np.full(model.n_columns, np.nan)
    if coding is None:
        return reference.sd
    of_features = reference.sd if coding.map is None else coding.map.deviations(reference.sd)
    of_columns = of_features[coding.source]
    if uncertainty is None:
        return np.where(np.isnan(coding.code), of_columns, np.nan)
    means = uncertainty.novelty.point / uncertainty.novelty.factor
    factor = np.where(model.scaling.factor == 0, np.inf, model.scaling.factor)
    mean = model.scaling.shift + np.average(means, axis=0, weights=_weights(model)) / factor
    share = np.clip(mean, 0.0, 1.0)
    return np.where(np.isnan(coding.code), of_columns, np.sqrt(share * (1.0 - share)))
