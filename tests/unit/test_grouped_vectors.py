"""AdaptSVM and GroupSVM: mean and variance of a group, and what they lose beside the exact machine."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dcpred_compare.baselines import LEAF_MODELS
from dcpred_compare.baselines.adapt_svm import AdaptSVM, Moments, group_moments, grouped
from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.model import exact
from dcpred_tasks.model.exact import OF_KERNEL, Exact
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.leaf_model import read_leaf_model
from dcpred_tasks.model.packed_arrays import packed
from dcpred_tasks.training.solvers import ABSENT, LeafRows
from support.leaf_models import check_leaf_model, fit_model, rows_of

NAMES = ("adapt_svm", "group_svm")
GAMMA, R, SIGMA2 = 0.05, 1.5, 0.04  # of one group


def leaf_rows(X: NDArray[np.floating], target: NDArray[np.generic], n_outputs: int = 1) -> LeafRows:
    X = np.ascontiguousarray(X, np.float32)
    return LeafRows(X, target, np.ones(len(X)), np.zeros(len(X), bool), n_outputs, "classification")


def machine_for(name: str, rows: LeafRows, gamma: float = 0.3, **more: Any) -> AdaptSVM | Exact:
    found: AdaptSVM | Exact = fit_model(name, rows, Kernel("rbf", gamma), **more)
    return found


def adapted(rows: LeafRows, gamma: float = 0.3, **more: Any) -> AdaptSVM:
    found = machine_for("adapt_svm", rows, gamma, **{"tolerance": 0.5, **more})
    assert isinstance(found, AdaptSVM)
    return found


def squared_loss(machine: AdaptSVM | Exact, whole: AdaptSVM | Exact, X: NDArray[np.float32]) -> float:
    return float(((machine.predict(X.astype(float)) - whole.predict(X.astype(float))) ** 2).mean())


def accuracy(machine: AdaptSVM | Exact, rows: LeafRows) -> float:
    return float(((machine.predict(rows.X.astype(float))[:, 0] > 0) == rows.target).mean())


# -- mean and variance ---------------------------------------------------------------------------------------


def one_group(sigma2: float = SIGMA2) -> Moments:
    return Moments(np.array([R**2]), np.array([sigma2 * R**2]))


@pytest.mark.parametrize("d", [0.0, 1.0, 3.0])
def test_mean_and_variance_are_those_of_draws_from_the_model(d: float) -> None:
    y = R * np.random.default_rng(0).normal(scale=np.sqrt(SIGMA2), size=400_000)
    f = np.exp(-GAMMA * (d**2 + R**2 + 2 * d * y))
    d2 = np.array([[d**2]])
    assert one_group().mean(GAMMA, d2)[0, 0] == pytest.approx(f.mean(), rel=2e-3)
    ratio = f.var() / f.mean() ** 2
    assert (d2[0] >= one_group().farthest(GAMMA, 0.97 * ratio))[0] == (ratio == 0 or d > 0)
    assert d2[0] < one_group().farthest(GAMMA, 1.03 * ratio + 1e-12)


def test_mean_and_variance_are_those_of_a_normal_cluster_of_many_features() -> None:
    n_features, v, gamma = 300, 0.01, 0.05
    rng = np.random.default_rng(1)
    x = rng.normal(scale=np.sqrt(v), size=(4_000, n_features))
    z = rng.normal(scale=0.3, size=(50, n_features))
    radius, along = group_moments(x, np.ones(len(x)), np.zeros(n_features), z)
    assert radius == pytest.approx(v * n_features, rel=0.02)
    assert along == pytest.approx(v, rel=0.05)
    d2 = (z**2).sum(axis=1)[:, None]
    stretch = 1 + 2 * gamma * v
    integral = stretch ** (-n_features / 2) * np.exp(-gamma * d2 / stretch)
    own = Moments(np.array([radius]), np.array([along]))
    np.testing.assert_allclose(own.mean(gamma, d2), integral, rtol=0.01)
    f = Kernel("rbf", gamma)(z, x)
    ratio = f.var(axis=1) / f.mean(axis=1) ** 2
    shares = np.array(
        [
            [d2[i, 0] >= own.farthest(gamma, float(t))[0] for t in (0.8 * r, 1.25 * r)]
            for i, r in enumerate(ratio)
        ]
    )
    # The radii of a cluster of 300 features differ a little, which assumption 1 leaves out of the variance.
    assert shares[:, 0].mean() > 0.9
    assert not shares[:, 1].any()


def series(d: float, last: float, n: int = 4_000) -> float:
    """Theorem 1 with the factors that it lacks; `last` is the first number of A_n3."""
    rho, beta = GAMMA, np.arange(n) / n
    t = rho * (R * beta) ** 2
    A = (
        1 - 2 * t,
        rho * (-4 * t**2 + 10 * t - 2),
        rho**2 * (-4 * t**3 + 18 * t**2 - 12 * t),
        rho**3 * (last * t**4 + 52 / 3 * t**3 - 20 * t**2),
    )
    step = 2 * rho * (1 - beta) * R**2 * np.exp(-t)
    sums = sum((SIGMA2 * d**2) ** i * (step * part).mean() for i, part in enumerate(A))
    return float(np.exp(-rho * d**2) * (1 - sums))


def test_the_theorem_as_derived_is_a_series_of_the_mean() -> None:
    for d in (0.0, 1.0, 4.0):
        assert one_group().mean(GAMMA, np.array([[d**2]]))[0, 0] == pytest.approx(series(d, -8 / 3), rel=1e-4)


def test_the_number_that_is_printed_in_the_third_order_is_not_that_of_the_integral() -> None:
    beta = (np.arange(100_000) + 0.5) / 100_000
    for whole in (0.5, 1.0, 2.0):  # ρ r²
        t = whole * beta**2
        weight = 2 * whole * (1 - beta) * np.exp(-t)
        rest = 52 / 3 * t**3 - 20 * t**2
        derived, printed = (-(weight * (first * t**4 + rest)).mean() for first in (-8 / 3, -4 / 3))
        wanted = np.exp(-whole) * (2 * whole) ** 3 / 6  # the third term of exp(u), u = 2 ρ² r² σ² d²
        assert derived == pytest.approx(wanted, rel=1e-6)
        assert abs(printed - wanted) > 1e-3 * wanted


def test_the_bound_of_the_theorem_is_not_below_the_first_order_of_the_variance() -> None:
    beta = np.arange(4_000) / 4_000
    for rho in (0.01, 0.05, 0.5, 2.0):
        t = rho * (R * beta) ** 2
        V = SIGMA2 * R**2 * ((2 * rho * np.exp(-t) * (1 - 2 * t)) ** 2).mean()
        assert 4 * rho**2 * SIGMA2 * R**2 * np.exp(-2 * rho * R**2) <= V


def test_a_mean_is_never_above_what_the_kernel_can_be() -> None:
    wide = Moments(np.array([4.0]), np.array([1e6]))
    assert wide.mean(1.0, np.array([[0.0, 1.0, 100.0]]).T).max() <= 1.0


# -- groups --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 5, 64])
def test_groups_share_the_support_vectors_of_each_sign_and_output(size: int) -> None:
    rows = rows_of("classification", n_classes=3)
    whole = fit_model("exact", rows, Kernel("rbf", 0.3))
    groups = grouped(whole, size, np.random.default_rng(0))
    held = np.zeros(whole.dual.shape, int)
    for group, output in enumerate(groups.output):
        alpha = whole.dual[groups.vectors_of(group), output]
        held[groups.vectors_of(group), output] += 1
        assert (alpha > 0).all() or (alpha < 0).all()
        mean = alpha @ whole.support[groups.vectors_of(group)] / alpha.sum()
        np.testing.assert_allclose(groups.mean[group], mean, rtol=1e-4, atol=1e-5)
        assert groups.weight[group] == pytest.approx(float(alpha.sum()), rel=1e-5)
    np.testing.assert_array_equal(held, whole.dual != 0)
    assert (np.bincount(groups.output) <= 2 * max(size // 2, 1)).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_tolerance_or_with_groups_of_one_it_is_the_exact_machine(n_classes: int) -> None:
    rows = rows_of("classification", n_classes)
    whole = machine_for("exact", rows)
    few = replace(adapted(rows, size=6), tolerance=np.zeros(1))
    np.testing.assert_allclose(
        few.predict(rows.X.astype(float)), whole.predict(rows.X.astype(float)), atol=1e-6
    )
    for name in NAMES:
        many = machine_for(name, rows, size=10_000)
        np.testing.assert_allclose(
            many.predict(rows.X.astype(float)), whole.predict(rows.X.astype(float)), atol=1e-5
        )


def test_multiplications_count_the_groups_that_are_computed_exactly() -> None:
    rows = rows_of("classification")
    machine = adapted(rows, size=8)
    d, g = rows.X.shape[1], len(machine.groups.output)
    none, every = (replace(machine, tolerance=np.array([t])) for t in (1e300, 0.0))
    assert none.count(rows.X) == 0
    assert every.count(rows.X) == pytest.approx((d + OF_KERNEL + 1) * len(machine.whole.support))
    off = machine.predict(rows.X.astype(float)) - none.predict(rows.X.astype(float))
    some = machine.exact_share(rows.X)
    assert (off.any()) == (some.max() > 0)
    assert 0 < machine.count(rows.X) < every.count(rows.X)
    assert machine.counted[0] == machine.count(rows.X)
    assert machine.cost == pytest.approx(g * (d + OF_KERNEL + 5) + machine.counted[0])


def test_blocks_of_rows_do_not_change_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of("classification")
    machine = adapted(rows, size=8)
    whole = machine.predict(rows.X.astype(float))
    monkeypatch.setattr(exact, "BLOCK_VALUES", 1_000)
    monkeypatch.setattr(exact, "FEWEST_ROWS", 7)
    np.testing.assert_allclose(machine.predict(rows.X.astype(float)), whole, rtol=1e-9, atol=1e-9)


# -- small and hostile ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size"), [("adapt_svm", 4), ("adapt_svm", 1000), ("group_svm", 100), ("group_svm", 1000)]
)
def test_the_contract_is_kept_with_groups_of_any_number(name: str, size: int) -> None:
    check_leaf_model(name, "classification", "rbf", n_classes=3, size=size)


@pytest.mark.parametrize("name", NAMES)
def test_small_leaves_have_a_machine(name: str) -> None:
    X = np.random.default_rng(0).normal(size=(6, 3))
    X[:, 1] = 2.0
    equal = np.ones((6, 3))
    both = np.array([0, 1, 0, 1, 1, 0])
    for rows in (
        leaf_rows(X[:1], both[:1]),
        leaf_rows(X[:2], both[:2]),
        leaf_rows(X, both),
        leaf_rows(equal, both),
        leaf_rows(X, np.ones(6, int)),
    ):
        machine = machine_for(name, rows, size=4)
        decision = machine.predict(rows.X.astype(float))
        assert decision.shape == (len(rows.X), 1)
        assert np.isfinite(decision).all()
        again = read_leaf_model(name, packed(machine.arrays()), machine.shape)
        np.testing.assert_array_equal(again.predict(rows.X.astype(float)), decision)
    three = machine_for(name, leaf_rows(X, 2 * both, 3), size=4).predict(X.astype(np.float32))
    assert (three[:, 1] == ABSENT).all()
    assert (three[:, [0, 2]] > -100).all()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ends", np.array([2**62, -(2**62), 5])),
        ("ends", np.array([0, 1, 2])),
        ("members", np.array([-1, 0, 1])),
        ("members", np.array([0, 1, 999])),
        ("output", np.array([0, 0, 1])),
        ("output", np.array([0])),
        ("tolerance", np.array([-0.1])),
        ("tolerance", np.zeros(0)),
        ("counted", np.array([-1.0])),
        ("radius", np.array([-1.0, 0, 0])),
        ("along", np.zeros(2)),
        ("weight", np.array([np.nan, 0, 0])),
        ("mean", np.zeros((3, 1), np.float32)),
        ("alpha", np.zeros((3, 2), np.float32)),
    ],
)
def test_arrays_of_no_model_are_refused(key: str, value: FloatArray) -> None:
    rows = leaf_rows(np.array([[0.0, 0], [1, 0], [0, 3]]), np.array([0, 1, 1]))
    arrays = adapted(rows, size=10).arrays()
    assert arrays["ends"].tolist() == [1, 2, 3]
    read_leaf_model("adapt_svm", packed(arrays), (2, 1))
    with pytest.raises(ValueError, match=r"groups?\b|leaf model"):
        read_leaf_model("adapt_svm", packed(arrays | {key: value}), (2, 1))


# -- what the paper says: figures 3, 4 and 6 -----------------------------------------------------------------


def made(n: int, seed: int) -> LeafRows:
    """Two classes of 40 features, each of six clusters."""
    rng = np.random.default_rng(seed)
    centre = np.random.default_rng(5).normal(scale=0.5, size=(12, 40))
    group = rng.integers(12, size=n)
    return leaf_rows(centre[group] + rng.normal(scale=0.6, size=(n, 40)), group % 2)


def check_figures(
    train: LeafRows,
    test: LeafRows,
    gamma: float,
    C: float,
    share: float,
    sizes: tuple[int, ...] = (2, 16, 64),
) -> None:
    """The squared error is a fifth of GroupSVM's or less; with 16 groups, less than half a point is lost, and
    a row costs less than this share of what it costs in the exact machine.
    """
    whole = machine_for("exact", train, gamma, C=C)
    for size in sizes:
        adapt = adapted(train, gamma, C=C, size=size)
        group = machine_for("group_svm", train, gamma, C=C, size=size)
        assert squared_loss(adapt, whole, test.X) < squared_loss(group, whole, test.X) / 5
        if size == 16:
            assert accuracy(adapt, test) > accuracy(whole, test) - 0.005
            assert adapt.cost < share * whole.cost


def test_adapt_svm_is_nearer_than_group_svm_to_the_exact_machine_on_made_rows() -> None:
    check_figures(made(1_000, 0), made(1_000, 1), 1 / 40, 1.0, 0.1, sizes=(16, 64))


def test_adapt_svm_is_nearer_than_group_svm_to_the_exact_machine_on_a9a(real_data: Path) -> None:
    with np.load(real_data / "a9a.npz") as data:
        train = leaf_rows(data["X_train"][:1500], (data["y_train"][:1500] > 0).astype(int))
        test = leaf_rows(data["X_test"][:2000], (data["y_test"][:2000] > 0).astype(int))
    check_figures(train, test, 1 / 123, 1.0, 0.05)


def test_adapt_svm_is_nearer_than_group_svm_to_the_exact_machine_on_mnist(real_data: Path) -> None:
    """Digit 0 against all others, with ρ = 1/K, as in the paper."""
    with np.load(real_data / "mnist.npz") as data:
        train = leaf_rows(data["X_train"][:1500] / 255, (data["y_train"][:1500] == 0).astype(int))
        test = leaf_rows(data["X_test"][:1000] / 255, (data["y_test"][:1000] == 0).astype(int))
    check_figures(train, test, 1 / 780, 10.0, 0.2)


def test_a_smaller_tolerance_costs_more_and_errs_less() -> None:
    train, test = made(1_000, 0), made(500, 1)
    whole = machine_for("exact", train, 0.1)
    machine = adapted(train, 0.1, size=16)
    found = []
    for tolerance in (0.0, 0.5, 1e300):
        own = replace(machine, tolerance=np.array([tolerance]))
        found.append((own.count(test.X), squared_loss(own, whole, test.X)))
    cost, loss = zip(*found, strict=True)
    assert cost[0] > cost[1] > cost[2] == 0
    assert loss[0] < 1e-10 < loss[1] < loss[2]


def overlapping(n: int, seed: int) -> LeafRows:
    """Two classes of ten features that overlap: the sums of both signs nearly cancel."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 10))
    return leaf_rows(X, (X[:, 0] + X[:, 1] ** 2 - 1 + 2 * rng.normal(size=n) > 0).astype(int))


@pytest.mark.parametrize("size", [2, 16])
@pytest.mark.parametrize("given", [{}, {"tolerance": min(LEAF_MODELS["adapt_svm"].tolerances)}])
def test_a_small_tolerance_keeps_the_decisions_of_the_exact_machine(
    size: int, given: dict[str, float]
) -> None:
    """The tolerance of no setting, and the smallest one of a comparison: 0.5 lost a third of them."""
    train, test = overlapping(600, 0), overlapping(500, 1)
    whole = machine_for("exact", train, 0.1, C=10.0)
    machine = machine_for("adapt_svm", train, 0.1, C=10.0, size=size, **given)
    own, exact_ones = (one.predict(test.X.astype(float))[:, 0] for one in (machine, whole))
    assert (np.sign(own) == np.sign(exact_ones)).mean() > 0.99
    assert np.median(np.abs(own - exact_ones)) < 0.01 * np.median(np.abs(exact_ones))
    loose = replace(machine, tolerance=np.array([0.5]))
    assert (np.sign(loose.predict(test.X.astype(float))[:, 0]) == np.sign(exact_ones)).mean() < 0.9
