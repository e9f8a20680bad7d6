"""The rivals of paper.py, each with its settings chosen on a validation part of the training rows, and its
cost.

Every rival predicts raw float32 rows, scaling included. Cost is that of engine.measure. Kernel machines and
random features do float32 matrix products on blocks of rows that stay in cache, which is far faster than
scikit-learn's own `predict`.
"""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from baselines import Problem, lightgbm
from engine import MIB, Budget, measure, optional, repeated, say
from machines import Blocked, Rows, gaussian, kernel, pair_weights, same, scaled, solve, unit_gamma, votes
from numpy.typing import NDArray
from sets import Split
from sklearn.cluster import KMeans
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import threadpool_limits

from dcpred_tasks.model.scaling import Scaling

SCALINGS = ("standard", "minmax")
WIDTHS = (0.25, 1.0, 4.0, 16.0, 64.0)  # of γ, in 1 / (n_features × variance)
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
LINEAR_C = (0.01, 0.1, 1.0, 10.0)
FIRST_ROWS, NEXT_ROWS, VALIDATION_ROWS = 3_000, 10_000, 5_000
KMEANS_ROWS = 20_000
Predict = Callable[[Rows], NDArray[Any]]


@dataclass(frozen=True)
class Rival:
    """Accuracy in percent or RMSE, cost in linear predictions, seconds of training with the settings that
    were chosen.
    """

    name: str
    quality: float
    cost: float
    seconds: float
    note: str


class Cache:
    """Results by key in a JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def rival(self, key: str, make: Callable[[], Rival | None]) -> Rival | None:
        """None is what cannot be had here, and not kept."""
        held = self.value(key, lambda: asdict(made) if (made := make()) else {})
        return Rival(**held) if held else None

    def value(self, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if not self.held.get(key):
            self.held[key] = make()
            fresh = self.path.with_suffix(".new")
            fresh.write_text(json.dumps(self.held, indent=1))
            fresh.replace(self.path)
        return self.held[key]


@dataclass(frozen=True)
class Part:
    """Rows to fit on and rows to judge by."""

    X: Rows
    y: NDArray[Any]
    X_held: Rows
    y_held: NDArray[Any]

    def first(self, n: int) -> "Part":
        return Part(self.X[:n], self.y[:n], self.X_held, self.y_held)


@dataclass(frozen=True)
class Job:
    """One split and how rivals are tried on it."""

    split: Split
    regression: bool
    exact_rows: int
    seed: int
    workers: int
    quick: bool

    @cached_property
    def whole(self) -> Part:
        """Training rows in random order, and the test rows."""
        order = np.random.default_rng(self.seed).permutation(len(self.split.y))
        rows = np.asarray(self.split.X, np.float32)[order], self.split.y[order]
        return Part(*rows, np.asarray(self.split.X_test, np.float32), self.split.y_test)

    def validation(self, n_rows: int) -> Part:
        """At most n_rows of the training rows, and some of the others to judge by."""
        whole = self.whole
        held = min(VALIDATION_ROWS, len(whole.y) // 5)
        rows = slice(held, held + (min(n_rows, 1_000) if self.quick else n_rows))
        return Part(whole.X[rows], whole.y[rows], whole.X[:held], whole.y[:held])

    def rows(self, n: int) -> str:
        return f"{n:,} rows" if n == len(self.split.y) else f"{n:,} of {len(self.split.y):,} rows"

    def quality(self, predicted: NDArray[Any], wanted: NDArray[Any]) -> float:
        if self.regression:
            return float(np.sqrt(np.mean((predicted.ravel().astype(np.float64) - wanted) ** 2)))
        return 100 * float(np.mean(predicted == wanted))

    def best(self, tries: Iterable[tuple[Any, ...]], quality: Callable[..., float]) -> tuple[Any, ...]:
        scored = [(quality(*one), one) for one in list(tries)[:: 7 if self.quick else 1]]
        return (min if self.regression else max)(scored, key=lambda pair: pair[0])[1]

    def cost(self, predict: Predict, seconds: float = 5.0) -> float:
        with threadpool_limits(1):
            budget = Budget(MIB, 0.05) if self.quick else Budget(256 * MIB, seconds)
            X = self.whole.X_held
            rows = repeated(X, -(-budget.stream_bytes // X[:1].nbytes))
            return measure(predict, rows, rows, budget).stream.cost

    def finish(
        self, name: str, begin: float, predict: Predict, note: str, labels: Predict | None = None
    ) -> Rival:
        """Judge on the test rows. labels  what makes predictions of what `predict` returns"""
        seconds = time.perf_counter() - begin
        whole = self.whole
        quality = self.quality(
            labels(predict(whole.X_held)) if labels else predict(whole.X_held), whole.y_held
        )
        rival = Rival(name, quality, self.cost(predict), seconds, note)
        say(
            f"  {rival.name}: {rival.quality:.4g}, cost {rival.cost:.4g}, {rival.seconds:.1f} s; {rival.note}"
        )
        return rival


# -- linear --------------------------------------------------------------------------------------------------


def linear(job: Job) -> Rival:
    """LinearSVC, or ridge regression; scaling folded into the weights."""

    def fit(part: Part, scaling: str, C: float) -> tuple[NDArray[Any], NDArray[Any]]:
        scale = scaled(scaling, part.X)
        Z = scale(part.X)
        if job.regression:
            centre = Z.mean(axis=0)
            G = (Z - centre).T.astype(np.float64) @ (Z - centre)
            W = solve(G + np.eye(len(G)) / C, (Z - centre).T.astype(np.float64) @ (part.y - part.y.mean()))
            b = part.y.mean() - centre @ W
        else:
            machine = LinearSVC(C=C, dual=False, tol=1e-3, max_iter=3_000).fit(Z, part.y)
            W, b = np.squeeze(machine.coef_.T), np.squeeze(machine.intercept_)
        W = (scale.factor * W.T).T
        return W.astype(np.float32), np.asarray(b - scale.shift @ W, np.float32)

    def labels(part: Part) -> Predict:
        classes = np.unique(part.y)
        return lambda out: (
            out if job.regression else classes[(out > 0).astype(int) if out.ndim == 1 else out.argmax(axis=1)]
        )

    part = job.validation(NEXT_ROWS)

    def quality(scaling: str, C: float) -> float:
        W, b = fit(part, scaling, C)
        return job.quality(labels(part)(part.X_held @ W + b), part.y_held)

    scaling, C = job.best(product(SCALINGS, LINEAR_C), quality)
    begin = time.perf_counter()
    W, b = fit(job.whole, scaling, C)
    return job.finish("linear", begin, lambda X: X @ W + b, f"{scaling}, C = {C:g}", labels(job.whole))


# -- exact kernel machines -----------------------------------------------------------------------------------


def exact(job: Job) -> Rival:
    """Kernel ridge regression, or an SVM; on all rows, or as many as are worth the time."""
    if not job.regression:
        return _exact_svm(job)

    def fit(part: Part, scaling: str, width: float, ridge: float) -> Blocked:
        scale = scaled(scaling, part.X)
        Z = scale(part.X)
        gamma, mean = width * unit_gamma(Z), float(part.y.mean())
        G = kernel(Z, Z, gamma)
        G[np.diag_indices_from(G)] += ridge
        return gaussian(scale, Z, solve(G, part.y - mean), mean, gamma)

    def search(n_rows: int, tries: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
        part = job.validation(n_rows)
        return job.best(tries, lambda *one: job.quality(fit(part, *one)(part.X_held), part.y_held))

    scaling, width, ridge = search(FIRST_ROWS, product((*SCALINGS, "none"), (1 / 16, *WIDTHS), RIDGES))
    scaling, width, ridge = search(
        6_000, product([scaling], [width / 2, width, 2 * width], [ridge / 3, ridge, 3 * ridge])
    )
    n = min(job.exact_rows, len(job.whole.y))
    begin = time.perf_counter()
    predict = fit(job.whole.first(n), scaling, width, ridge)
    return job.finish(
        "exact kernel ridge",
        begin,
        predict,
        f"{scaling}, γ = {width:.3g} × scale, λ = {ridge:.2g}, {job.rows(n)}",
    )


def _exact_svm(job: Job) -> Rival:
    # Of several classes oneDAL predicts others than its own machine has (3 % of rows of satimage, 2026.2).
    two = len(np.unique(job.split.y)) == 2
    svc = SVC if job.quick or not two or optional("sklearnex.svm") is None else optional("sklearnex.svm").SVC

    def fit(part: Part, scaling: str, width: float, C: float) -> tuple[Any, Scaling, float]:
        scale = scaled(scaling, part.X)
        Z = scale(part.X).astype(np.float64)
        gamma = width * unit_gamma(Z)
        return svc(C=C, gamma=gamma, cache_size=1_000).fit(Z, part.y), scale, gamma

    def search(n_rows: int, tries: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
        part = job.validation(n_rows)

        def quality(*one: Any) -> float:
            machine, scale, _ = fit(part, *one)
            return job.quality(machine.predict(scale(part.X_held).astype(np.float64)), part.y_held)

        return job.best(tries, quality)

    scaling, width, C = search(FIRST_ROWS, product((*SCALINGS, "none"), (*WIDTHS, 256.0), [10.0]))
    if not job.quick:
        scaling, width, C = search(
            NEXT_ROWS, product([scaling], [width / 2, width, 2 * width, 4 * width], [1.0, 10.0, 100.0])
        )
    n = min(job.exact_rows, len(job.whole.y))
    begin = time.perf_counter()
    machine, scale, gamma = fit(job.whole.first(n), scaling, width, C)
    predict = gaussian(
        scale, machine.support_vectors_.astype(np.float32), pair_weights(machine), machine.intercept_, gamma
    )
    few = job.whole.X_held[:300]
    if np.mean(votes(machine, predict(few)) == machine.predict(scale(few).astype(np.float64))) < 0.99:
        raise SystemExit(
            "the blocked exact machine does not predict what the machine that it stands for does"
        )
    note = (
        f"{scaling}, γ = {width:.3g} × scale, C = {C:g}, {job.rows(n)}: {len(machine.support_):,} support"
        " vectors"
    )
    return job.finish("exact SVM", begin, predict, note, lambda out: votes(machine, out))


# -- trees ---------------------------------------------------------------------------------------------------


def boosted(job: Job) -> Rival | None:
    """LightGBM with early stopping, fitted to all rows (baselines.py)."""
    if job.quick or optional("lightgbm") is None:
        return None
    begin, whole = time.perf_counter(), job.whole
    fitted = lightgbm(Problem(whole.X, whole.y, job.regression, job.seed, job.workers))
    return job.finish(
        "LightGBM", begin, lambda X: fitted.scores(X, num_threads=1), fitted.note, fitted.labels
    )


# -- approximations at a cost, for regression ----------------------------------------------------------------


def fourier(job: Job, cost: float) -> Rival:
    """Random Fourier features √2 cos(ω·z + φ), ω of variance 2γ, and ridge regression: as many as the cost
    allows.
    """
    d = job.whole.X.shape[1]
    n = affordable(job, lambda m: Blocked(same(d), np.zeros((d + 1, m), np.float32), np.ones(m), 0.0), cost)

    def features(Z: Rows, gamma: float) -> tuple[Rows, NDArray[np.float64], Callable[..., Blocked]]:
        rng = np.random.default_rng(job.seed)
        turn = np.vstack(
            [np.sqrt(2 * gamma) * rng.standard_normal((d, n)), rng.uniform(0, 2 * np.pi, (1, n))]
        ).astype(np.float32)
        return np.cos(Z @ turn[:-1] + turn[-1]), np.eye(n), lambda scale, W, b: Blocked(scale, turn, W, b)

    return _approximation(job, "random Fourier features", n, features)


def nystroem(job: Job, cost: float) -> Rival:
    """Nyström with k-means centres and ridge regression: as many as the cost allows."""
    d = job.whole.X.shape[1]
    n = affordable(
        job, lambda m: gaussian(same(d), np.zeros((m, d), np.float32), np.ones(m), 0.0, 1e-30), cost
    )
    known: dict[tuple[float, int], Rows] = {}  # centres do not depend on γ

    def features(
        Z: Rows, gamma: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], Callable[..., Blocked]]:
        key = float(Z.sum()), len(Z)
        if key not in known:
            few = Z[:KMEANS_ROWS]
            known[key] = (
                KMeans(min(n, len(few)), n_init=1, random_state=job.seed)
                .fit(few)
                .cluster_centers_.astype(np.float32)
            )
        U = known[key]
        return kernel(Z, U, gamma), kernel(U, U, gamma), lambda scale, W, b: gaussian(scale, U, W, b, gamma)

    return _approximation(job, "k-means Nyström", n, features)


def _approximation(
    job: Job, name: str, n: int, features: Callable[..., tuple[Any, Any, Callable[..., Blocked]]]
) -> Rival:
    """β = (ΦᵀΦ + λ M)⁻¹ Φᵀ(y − ȳ): M is the identity for random features, the kernel of the centres for
    Nyström.
    """

    def fit(part: Part, scaling: str, width: float, ridge: float) -> Blocked:
        scale = scaled(scaling, part.X)
        Z = scale(part.X)
        F, M, make = features(Z, width * unit_gamma(Z))
        mean, F = float(part.y.mean()), F.astype(np.float64)
        return make(scale, solve(F.T @ F + ridge * M, F.T @ (part.y - mean)), mean)

    part = job.validation(NEXT_ROWS)
    grid = product((*SCALINGS, "none"), (1 / 64, 1 / 16, *WIDTHS), (1e-6, 1e-5, *RIDGES))
    best = job.best(grid, lambda *one: job.quality(fit(part, *one)(part.X_held), part.y_held))
    begin = time.perf_counter()
    note = f"{n} features, {best[0]}, γ = {best[1]:.3g} × scale, λ = {best[2]:g}"
    return job.finish(name, begin, fit(job.whole, *best), note)


def affordable(job: Job, make: Callable[[int], Predict], cost: float) -> int:
    """Features that cost as much, from the costs of 16 and 128."""
    if job.quick:
        return 16
    low, high = (job.cost(make(m), 1.0) for m in (16, 128))
    return int(np.clip(round(16 + (cost - low) * 112 / max(high - low, 1e-9)), 1, 4_096))
