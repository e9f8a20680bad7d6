"""What the papers of baselines show, in shape, on data at hand: errors of bases against their number of
functions, and what leaf models lose and gain beside the exact one.

    python tests/benchmarks/systems.py [--quick]

Times are of processors, each the median of several calls. Real data sets are needed.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import Table, data_folder
from engine import number
from numpy.typing import NDArray
from sklearn.kernel_approximation import RBFSampler

sys.path.insert(0, str(Path(__file__).parents[1]))
from dcpred_compare.baselines.linear import fit_basis
from dcpred_tasks.model.kernels import Kernel, median_gamma
from dcpred_tasks.model.leaf_model import LeafModel
from dcpred_tasks.training.solvers import LeafRows
from support.leaf_models import fit_model

Rows = NDArray[np.float32]
Line = tuple[str, str, str, str]  # system, where, what, figure
TIMES = 7


def loaded(name: str) -> Any:
    return np.load(data_folder() / f"{name}.npz")


def leaf(X: NDArray[Any], y: NDArray[Any]) -> LeafRows:
    X = np.ascontiguousarray(X, np.float32)
    return LeafRows(X, y.astype(int), np.ones(len(X)), np.zeros(len(X), bool), 1, "classification")


def fitted(name: str, rows: LeafRows, gamma: float, **more: Any) -> LeafModel:
    found: LeafModel = fit_model(name, rows, Kernel("rbf", gamma), local_rows=20_000, **more)
    return found


def right(machine: LeafModel, rows: LeafRows) -> float:
    """Percent of two classes."""
    return 100 * float(((machine.predict(rows.X)[:, 0] > 0) == rows.target).mean())


def seconds(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(TIMES):
        begin = time.process_time()
        call()
        taken.append(time.process_time() - begin)
    return median(taken)


def error(Z: NDArray[np.float64], K: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))


def errors(name: str, kernel: Kernel, X: Rows, sizes: tuple[int, ...], seeds: int) -> str:
    """Mean relative errors of K at these sizes."""
    K, rows = kernel(X, X), X.astype(np.float64)
    found = []
    for size in sizes:
        bases = [fit_basis(name, X, kernel, size, np.random.default_rng(seed)) for seed in range(seeds)]
        found.append(np.mean([error(basis(rows), K) for basis in bases]))
    return ", ".join(f"{one:.3f}" for one in found)


# -- bases ---------------------------------------------------------------------------------------------------


def sketches(quick: bool) -> Iterator[Line]:
    """Pham and Pagh (2013), figure 1; Kar and Karnick (2012)."""
    with loaded("a9a") as data:
        X = data["X_train"][: 100 if quick else 500].astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    sizes, seeds = ((64, 256), 3) if quick else ((100, 500, 1_000), 5)
    where = f"a9a, {len(X):,} rows of length 1"
    for degree in (2, 4):
        for coef0, words in ((0.0, "x·u"), (1.0, "x·u + 1")):
            kernel = Kernel("polynomial", 1.0, degree, coef0)
            what = f"error of ({words})^{degree} with {', '.join(map(str, sizes))} features"
            names = ("tensor_sketch", "maclaurin", *(("maclaurin_h01",) if coef0 else ()))
            for name in names:
                yield name, where, what, errors(name, kernel, X, sizes, seeds)
            if not coef0:  # as its paper draws orders: a homogeneous kernel uses one of them
                share = 1 / (2 ** (degree + 1) - 1)
                few = tuple(max(round(share * size), 1) for size in sizes)
                told = f"the same, of orders as its paper draws them: a share of {share:.3f} is used"
                yield "maclaurin", where, told, errors("maclaurin", kernel, X, few, seeds)


def fast(quick: bool) -> Iterator[Line]:
    """Le, Sarlós and Smola (2013)."""
    with loaded("usps") as data:
        X = data["X_train"][: 100 if quick else 500].astype(np.float32)
    kernel = Kernel("rbf", median_gamma(Kernel("rbf", 1.0), X))
    sizes, seeds = ((256,), 2) if quick else ((256, 1_024, 4_096), 5)
    what = f"error of the kernel with {', '.join(map(str, sizes))} features"
    where = f"usps, {len(X):,} rows"
    yield "fastfood", where, what, errors("fastfood", kernel, X, sizes, seeds)
    K, found = kernel(X, X), []
    for size in sizes:
        makers = [RBFSampler(gamma=kernel.gamma, n_components=size, random_state=s) for s in range(seeds)]
        found.append(np.mean([error(one.fit_transform(X.astype(np.float64)), K) for one in makers]))
    yield "RBFSampler of scikit-learn", where, what, ", ".join(f"{one:.3f}" for one in found)
    widths, n = ((64, 256), 500) if quick else ((64, 256, 1_024, 4_096), 2_000)
    for name in ("fastfood", "fourier"):
        times = []
        for d in widths:
            Z = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
            basis = fit_basis(name, Z, Kernel("rbf", 1 / d), 4_096, np.random.default_rng(0))
            sums = basis.sums(np.ones((4_096, 1)))
            times.append(seconds(lambda sums=sums, Z=Z: sums(Z)) / n * 1e6)  # type: ignore[misc]
        what = f"µs a row for 4,096 features of {', '.join(f'{d:,}' for d in widths)}"
        yield name, f"{n:,} random rows", what, ", ".join(map(number, times))


def centres(quick: bool) -> Iterator[Line]:
    """Zhang, Tsang and Kwok (2008)."""
    with loaded("satimage") as data:
        X = data["X"][: 200 if quick else 1_500].astype(np.float32)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    kernel = Kernel("rbf", median_gamma(Kernel("rbf", 1.0), X))
    sizes = (8, 16) if quick else (8, 16, 32, 64, 128)
    for name in ("nystrom", "kmeans_nystrom"):
        what = f"error of the kernel with {', '.join(map(str, sizes))} landmarks"
        yield name, f"satimage, {len(X):,} rows", what, errors(name, kernel, X, sizes, 2 if quick else 10)


# -- machines ------------------------------------------------------------------------------------------------


def groups(quick: bool) -> Iterator[Line]:
    """Cossalter, Yan and Zheng (2011): ρ = 1 / features."""
    n, n_test = (500, 500) if quick else (5_000, 3_000)
    for name, chosen, unit in (("a9a", lambda y: y > 0, 1.0), ("mnist", lambda y: y == 0, 255.0)):
        with loaded(name) as data:
            parts = [
                (data[f"X_{part}"][:m] / unit, chosen(data[f"y_{part}"][:m]))
                for part, m in (("train", n), ("test", n_test))
            ]
        rows, test = (leaf(*part) for part in parts)
        used = int((rows.X.std(axis=0) > 0).sum())
        gamma, title = 1 / used, name if name == "a9a" else f"{name}, 0 / rest"
        where = f"{title}, {n:,} rows, ρ = 1/{used}"
        whole = fitted("exact", rows, gamma, C=1.0)
        true, exact_seconds = whole.predict(test.X), seconds(lambda w=whole, t=test: w.predict(t.X))  # type: ignore[misc]
        of_exact = right(whole, test)
        yield "exact", where, "accuracy, %", f"{of_exact:.2f}"
        for size in (2, 16):
            for system, tolerances in (("group_svm", (0.0,)), ("adapt_svm", (0.001, 1_000.0))):
                for tolerance in tolerances:
                    own = {"tolerance": tolerance} if tolerance else {}
                    machine = fitted(system, rows, gamma, C=1.0, size=size, **own)
                    off = float(((machine.predict(test.X.astype(np.float64)) - true) ** 2).mean())
                    taken = seconds(lambda m=machine, t=test: m.predict(t.X))  # type: ignore[misc]
                    tau = f", τ = {tolerance:g}" if tolerance else ""
                    yield (
                        system,
                        where,
                        f"{size} groups{tau}: squared error; speed-up in time, multiplications; accuracy, %",
                        f"{off:.2g}; {number(exact_seconds / taken)} ×,"
                        f" {number(whole.cost / machine.cost)} ×;"
                        f" {right(machine, test):.2f}",
                    )


def trees(quick: bool) -> Iterator[Line]:
    """Jose et al. (2013): letter, where it and Hsieh et al. print 95.78 %."""
    with loaded("letter") as data:
        X, y = data["X"].astype(np.float32), data["y"] < 13
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    n, sizes = (800, (1, 8)) if quick else (12_000, (1, 4, 16, 64))
    order = np.random.default_rng(0).permutation(len(X))
    rows, test = leaf(X[order[:n]], y[order[:n]]), leaf(X[order[14_000:]], y[order[14_000:]])
    for size in sizes:
        begin = time.process_time()
        machine = fitted("ldkl", rows, 0.1, size=size, C=0.3)
        taken = time.process_time() - begin
        what = f"{size} leaves of its tree: accuracy, %; multiplications in linear predictions; training, s"
        figure = f"{right(machine, test):.2f}; {machine.cost / X.shape[1]:.1f}; {number(taken)}"
        yield "ldkl", f"letter A–M / N–Z, {n:,} rows", what, figure


def reduced(quick: bool) -> Iterator[Line]:
    """Schölkopf et al. (1998), beside as many support vectors drawn at random with the best weights."""
    with loaded("usps") as data:
        n = 300 if quick else 3_000
        rows = leaf(data["X_train"][:n], data["y_train"][:n] == data["y_train"][0])
        test = leaf(data["X_test"], data["y_test"] == data["y_train"][0])
    gamma = 1 / (rows.X.shape[1] * float(rows.X.var()))
    whole: Any = fitted("exact", rows, gamma)
    true = whole.predict(test.X)
    where = f"usps, a digit / rest, {n:,} rows, {len(whole.support):,} support vectors"
    K = whole.kernel(whole.support, whole.support)
    for size in (8,) if quick else (8, 32, 128):
        some = np.random.default_rng(0).permutation(len(whole.support))[:size]
        weight = np.linalg.lstsq(K[np.ix_(some, some)], K[some] @ whole.dual, rcond=None)[0]
        subset = replace(whole, support=whole.support[some], dual=weight.astype(np.float32))
        for name, machine in (
            ("reduced_set", fitted("reduced_set", rows, gamma, size=size)),
            ("subset", subset),
        ):
            off = float(((machine.predict(test.X) - true) ** 2).mean())
            what = f"{size} vectors: squared error; accuracy, % (exact {right(whole, test):.2f})"
            yield name, where, what, f"{off:.2g}; {right(machine, test):.2f}"


def extremes(quick: bool) -> Iterator[Line]:
    """Nandan, Khargonekar and Talathi (2014)."""
    n = 500 if quick else 6_000
    with loaded("ijcnn1") as data:
        order = np.random.default_rng(0).permutation(len(data["y_train"]))[:n]
        rows = leaf(data["X_train"][order], data["y_train"][order] > 0)
        test = leaf(data["X_test"][:10_000], data["y_test"][:10_000] > 0)
    gamma = 1 / (rows.X.shape[1] * float(rows.X.var()))
    for name, size in (("exact", 0), ("aesvm", 20), ("aesvm", 50)):
        machine: Any = fitted(name, rows, gamma, **({"size": size} if size else {}))
        what = f"{f'{size} of 100 rows: ' if size else ''}vectors; accuracy, %"
        yield name, f"ijcnn1, {n:,} rows", what, f"{len(machine.support):,}; {right(machine, test):.2f}"


STUDIES = (extremes, reduced, centres, trees, groups, sketches, fast)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=[one.__name__ for one in STUDIES], help="one of them")
    parser.add_argument("--quick", action="store_true", help="few rows")
    args = parser.parse_args()
    Table("system", "where", "what", "figure").show()
    for study in STUDIES:
        if args.only in (None, study.__name__):
            for line in study(args.quick):
                print(f"| {' | '.join(line)} |", flush=True)  # as soon as it is there: a study takes minutes


if __name__ == "__main__":
    main()
