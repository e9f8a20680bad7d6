"""One leaf: constants, the exact case, the approximation, and classes that a leaf has not seen."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC

from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.model.kernels import KERNELS, STATIONARY, Kernel
from dcpred_tasks.training import leaf as leaf_module
from dcpred_tasks.training import solvers
from dcpred_tasks.training.leaf import (
    FittedLeaf,
    Kernels,
    LeafToRefine,
    fit_leaf,
    leaf_rows,
    slack_landmarks,
)
from dcpred_tasks.training.settings import Settings, make_settings
from dcpred_tasks.training.solvers import local_sample

RBF = Kernel("rbf", 0.5)
SAME = Kernels(RBF, RBF)
# the leaf of the paper
SETTINGS = Settings(keep_support_vectors=True, landmarks=8, products=10, refine=False)
REFINED = replace(SETTINGS, refine=True)
REFINEMENTS = [
    {"refine": False},
    {"refine": True},
    {"refine_epochs": 20},
    {"leaf_scaling": True},
    {"leaf_scaling": True, "refine_epochs": 20},
]
SCALED = replace(REFINED, leaf_scaling=True)
WAYS = ["Nyström", "refined", "scaled by leaf"]
every_way = pytest.mark.parametrize("settings", [SETTINGS, REFINED, SCALED], ids=WAYS)


def data(n_classes: int, n: int = 150, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    target = np.arange(n) % n_classes
    angle = 2 * np.pi * target / n_classes
    X = np.column_stack([np.cos(angle), np.sin(angle), np.zeros(n)]) * 1.5 + rng.normal(0, 0.7, (n, 3))
    return X.astype(np.float32), target


def fit(
    X: NDArray[np.float32],
    target: NDArray[np.generic],
    n_outputs: int = 1,
    kernels: Kernels = SAME,
    settings: Settings = SETTINGS,
    weight: NDArray[np.float64] | None = None,
) -> FittedLeaf:
    return fit_leaf(X, target, np.ones(len(X)) if weight is None else weight, n_outputs, kernels, settings, 0)


def compact(
    leaf: FittedLeaf, X: NDArray[np.float32], kernel: Kernel = RBF, bound: str = "lower"
) -> NDArray[np.float64]:
    if not len(leaf.beta):
        return np.repeat(leaf.intercept[None].astype(float), len(X), axis=0)
    arrays = leaf.landmarks, leaf.gamma, leaf.pairs, leaf.triangle, leaf.leaf_factor
    return LeafBasis(kernel, bound, *arrays)(X) @ leaf.beta + leaf.intercept


def local(leaf: FittedLeaf, X: NDArray[np.float32], kernel: Kernel = RBF) -> NDArray[np.float64]:
    return kernel(X, leaf.support) @ leaf.dual + leaf.early_intercept


def check_shapes(leaf: FittedLeaf, d: int, k: int) -> None:
    m, t = len(leaf.landmarks), len(leaf.triangle)
    assert leaf.landmarks.shape == (m, d)
    assert leaf.pairs.shape[1] == 2
    assert leaf.triangle.shape == (t, m)
    assert leaf.beta.shape == (m + len(leaf.pairs) + t, k)
    assert leaf.intercept.shape == leaf.early_intercept.shape == (k,)
    assert leaf.support.shape == (len(leaf.dual), d)
    assert leaf.dual.shape[1] == k
    assert leaf.bounds.shape in ((0,), (2,))
    assert leaf.gamma.shape == (m,)
    assert leaf.early_gamma.shape == (1,)
    assert leaf.packed.dtype == np.uint8
    assert leaf.packed.size == 0
    for name, a in vars(leaf).items():
        if name == "packed":
            continue
        double = ("intercept", "early_intercept", "early_gamma", "bounds", "own_residual")
        double += ("scale_intercept", "scale_bounds")
        assert a.dtype == (np.int32 if name == "pairs" else np.float64 if name in double else np.float32), (
            name
        )
        assert np.isfinite(a).all(), name


@pytest.mark.parametrize(
    ("target", "n_outputs", "task", "expected"),
    [
        (np.array([0, 0]), 1, "classification", [-1]),
        (np.array([1, 1]), 1, "classification", [1]),
        (np.array([0]), 1, "classification", [-1]),
        (np.array([2.5, 2.5, 2.5]), 1, "regression", [2.5]),
        (np.array([-0.1]), 1, "regression", [-0.1]),
    ],
)
def test_a_leaf_of_one_value_is_that_value(
    target: NDArray[np.generic], n_outputs: int, task: str, expected: list[float]
) -> None:
    X = np.random.default_rng(0).normal(size=(len(target), 3)).astype(np.float32)
    leaf = fit(X, target, n_outputs, settings=replace(SETTINGS, task=task))
    check_shapes(leaf, 3, n_outputs)
    assert len(leaf.landmarks) == len(leaf.beta) == len(leaf.support) == 0
    assert leaf.intercept.tolist() == leaf.early_intercept.tolist() == expected
    assert leaf.bounds.tolist() == (expected * 2 if task == "regression" else [])


def test_a_leaf_of_one_class_of_several() -> None:
    leaf = fit(np.zeros((4, 2), np.float32), np.full(4, 2), 5)
    check_shapes(leaf, 2, 5)
    assert leaf.intercept.argmax() == 2
    assert leaf.intercept[2] > 0 > leaf.intercept[[0, 1, 3, 4]].max()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", KERNELS)
def test_a_leaf_with_room_for_its_support_vectors_is_its_local_machine(n_classes: int, name: str) -> None:
    kernel = Kernel(name, 0.5, 2, 1.0)
    X, target = data(n_classes)
    k = 1 if n_classes == 2 else n_classes
    leaf = fit(X, target, k, Kernels(kernel, kernel), replace(SETTINGS, landmarks=200))
    check_shapes(leaf, 3, k)
    assert len(leaf.pairs) == 0
    assert len(leaf.landmarks) == len(leaf.support) < len(X)
    new = data(n_classes, seed=1)[0]
    np.testing.assert_allclose(compact(leaf, new, kernel), local(leaf, new, kernel), rtol=1e-4, atol=1e-4)
    for c in range(k):
        sign = np.where(target == (1 if k == 1 else c), 1.0, -1.0)
        theirs = (
            SVC(C=10.0, kernel="precomputed", tol=1e-9)
            .fit(kernel(X, X), sign)
            .decision_function(kernel(new, X))
        )
        np.testing.assert_allclose(compact(leaf, new, kernel)[:, c], theirs, rtol=1e-3, atol=2e-3)


def test_repeated_rows_share_a_landmark() -> None:
    X, target = data(2, n=40)
    XX, tt = np.repeat(X, 3, axis=0), np.repeat(target, 3)
    leaf = fit(XX, tt, settings=replace(SETTINGS, landmarks=40))
    assert len(leaf.landmarks) == len(np.unique(leaf.support, axis=0)) <= 40
    np.testing.assert_allclose(compact(leaf, X), local(leaf, X), rtol=1e-4, atol=1e-4)


def test_a_smaller_gamma_of_the_head_rules_the_exact_case_out() -> None:
    X, target = data(2)
    kernels = Kernels(RBF, Kernel("rbf", 0.2))
    leaf = fit(X, target, kernels=kernels, settings=replace(SETTINGS, landmarks=200))
    agreement = np.mean((compact(leaf, X, kernels.head) > 0) == (local(leaf, X) > 0))
    assert len(leaf.pairs) == 10
    assert agreement > 0.9


def test_regression_with_room_is_kernel_ridge(rng: np.random.Generator) -> None:
    X = rng.normal(size=(30, 2)).astype(np.float32)
    y, weight = np.sin(X[:, 0].astype(float)) + 10, rng.uniform(0.5, 2, 30)
    leaf = fit(X, y, settings=replace(SETTINGS, task="regression", landmarks=30, ridge=0.1), weight=weight)
    new = rng.normal(size=(20, 2)).astype(np.float32)
    mean = np.average(y, weights=weight)
    np.testing.assert_array_equal(leaf.bounds, np.array([y.min(), y.max()]))
    theirs = (
        KernelRidge(alpha=0.1, kernel="rbf", gamma=0.5).fit(X, y - mean, sample_weight=weight).predict(new)
        + mean
    )
    np.testing.assert_allclose(compact(leaf, new)[:, 0], theirs, rtol=1e-5)
    np.testing.assert_allclose(local(leaf, new)[:, 0], theirs, rtol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"products": 0},
        {"landmark_floor": 0.0},
        {"landmark_floor": 1.0},
        {"triangle": 20},
        {"triangle": 20, "triangle_bound": "upper"},
        {"kernel": "laplacian", "triangle": 5},
        {"kernel": "polynomial"},
        {"refine": True},
        {"refine": True, "distill_weight": 1.0},
        {"refine": True, "kernel": "laplacian", "products": 0},
        {"refine": True, "kernel": "polynomial"},
    ],
    ids=str,
)
def test_the_compact_model_follows_the_local_machine(changes: dict[str, object]) -> None:
    settings = replace(SETTINGS, landmarks=16, products=60)
    settings = replace(settings, **changes)  # type: ignore[arg-type]
    kernel = Kernel(settings.kernel, 0.3, 2, 1.0)
    X, target = data(2, n=400)
    leaf = fit(X, target, kernels=Kernels(kernel, kernel), settings=settings)
    check_shapes(leaf, 3, 1)
    assert len(leaf.landmarks) == 16
    assert len(leaf.pairs) == settings.products
    assert len(leaf.triangle) == settings.triangle
    new = data(2, n=400, seed=1)[0]
    exact = local(leaf, new, kernel) > 0
    assert np.mean((compact(leaf, new, kernel, settings.triangle_bound) > 0) == exact) > 0.93


def test_more_landmarks_come_nearer_to_kernel_ridge(rng: np.random.Generator) -> None:
    X = rng.uniform(-3, 3, (300, 2)).astype(np.float32)
    y = np.sin(2 * X[:, 0].astype(float)) * X[:, 1]
    errors = np.zeros(3)
    for seed in range(4):
        for number, m in enumerate((2, 12, 40)):
            settings = replace(SETTINGS, task="regression", landmarks=m, products=0, seed=seed)
            leaf = fit(X, y, settings=settings)
            errors[number] += float(np.abs(compact(leaf, X) - local(leaf, X)).mean())
    assert errors[1] < 0.7 * errors[0]
    assert errors[2] < 0.3 * errors[1]


def test_landmarks_follow_alpha_squared_with_a_floor(rng: np.random.Generator) -> None:
    """α² alone puts them on the border x = 0; uniform weight where the rows are; a floor some here, some
    there.
    """
    X = rng.uniform(-5, 5, (600, 2)).astype(np.float32)
    away = []
    for floor in (0.0, 0.3, 1.0):
        leaf = fit(
            X, (X[:, 0] > 0).astype(int), settings=replace(SETTINGS, landmark_floor=floor, landmarks=6)
        )
        away.append(np.abs(leaf.landmarks[:, 0]))
    assert away[0].max() < 0.5
    assert away[1].min() < 0.6 < 0.9 < away[1].max()
    assert np.median(away[2]) > 1.5


@every_way
def test_two_outputs_mirror_each_other_and_agree_with_one(settings: Settings) -> None:
    """A leaf with two of three classes solves the same problem twice, with the signs exchanged."""
    X, target = data(2)
    one = fit(X, target, settings=settings)
    three = fit(X, 2 * target, 3, settings=settings)  # classes 0 and 2
    f, g = compact(one, X)[:, 0], compact(three, X)
    np.testing.assert_allclose(g[:, 0], -g[:, 2], rtol=1e-3, atol=1e-3)
    assert np.mean((f > 0) == (g.argmax(axis=1) == 2)) > 0.97
    np.testing.assert_allclose(local(one, X)[:, 0], local(three, X)[:, 2], rtol=1e-3, atol=1e-3)


@every_way
@pytest.mark.parametrize("landmarks", [8, 500], ids=["approximated", "exact"])
@pytest.mark.parametrize("kernel", [Kernel(name, 0.5, 2, 1.0) for name in KERNELS], ids=lambda k: k.name)
def test_an_absent_class_never_wins(kernel: Kernel, landmarks: int, settings: Settings) -> None:
    """Not even far from all rows, where every class that is present may get a large negative decision."""
    X, target = data(3)
    leaf = fit(
        X, np.array([1, 3, 4])[target], 6, Kernels(kernel, kernel), replace(settings, landmarks=landmarks)
    )
    rng = np.random.default_rng(5)
    new = np.concatenate(
        [X, *(scale * rng.normal(size=(300, 3)).astype(np.float32) for scale in (3, 30, 300))]
    )
    for decision in (compact(leaf, new, kernel), local(leaf, new, kernel)):
        assert set(decision.argmax(axis=1).tolist()) <= {1, 3, 4}


def test_weights_count_as_repeated_rows(rng: np.random.Generator) -> None:
    X, target = data(2, n=60)
    times = rng.integers(1, 4, 60)
    weighted = fit(X, target, settings=replace(SETTINGS, landmarks=200), weight=times.astype(float))
    repeated = fit(
        np.repeat(X, times, axis=0), np.repeat(target, times), settings=replace(SETTINGS, landmarks=200)
    )
    np.testing.assert_allclose(compact(weighted, X), compact(repeated, X), atol=1e-3)


@every_way
def test_heavy_rows_pull_the_head(settings: Settings, rng: np.random.Generator) -> None:
    X, target = data(2, n=300)
    X += rng.normal(0, 1.5, X.shape).astype(np.float32)  # classes that overlap
    light, heavy = (
        fit(X, target, settings=settings, weight=np.where(target == 1, w, 1.0)) for w in (0.1, 10.0)
    )
    assert (compact(heavy, X) > 0).mean() > (compact(light, X) > 0).mean() + 0.1


def test_head_c_is_used_by_the_head_alone() -> None:
    X, target = data(2, n=300)
    plain, other = (fit(X, target, settings=s) for s in (SETTINGS, replace(SETTINGS, nystrom_C=1e-4)))
    np.testing.assert_array_equal(plain.dual, other.dual)
    assert np.abs(other.beta).max() < 0.2 * np.abs(plain.beta).max()


@every_way
def test_support_vectors_are_kept_only_when_asked_for(settings: Settings) -> None:
    X, target = data(2)
    leaf = fit(X, target, settings=replace(settings, keep_support_vectors=False))
    kept = fit(X, target, settings=settings)
    check_shapes(leaf, 3, 1)
    assert len(leaf.support) == 0 < len(kept.support)
    np.testing.assert_array_equal(leaf.landmarks, kept.landmarks)
    np.testing.assert_array_equal(leaf.beta, kept.beta)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_refined_landmarks_need_no_local_machine(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf_module, "local_machine", None)
    X, target = data(3, n=300)
    given = Settings(task=task, landmarks=8, products=0)
    fitted = fit(X, target if task == "classification" else target.astype(float), 3, settings=given)
    assert len(fitted.landmarks) == 8
    for needs_one in ({"loss": "distance"}, {"distill_weight": 0.5}, {"refine": False}):
        with pytest.raises(TypeError):
            fit(X, target, 3, settings=replace(given, task="classification", **needs_one))


def test_landmarks_come_where_classes_meet(rng: np.random.Generator) -> None:
    X = rng.uniform(-5, 5, (600, 2)).astype(np.float32)
    target, given = (X[:, 0] > 0).astype(int), Settings(landmarks=40)
    rows = leaf_rows(X, target, np.ones(600), None, 1, given)
    leaf, away = LeafToRefine(rows, np.ones(600), given), []
    for floor in (0.0, 0.3, 1.0):
        landmarks = slack_landmarks(leaf, RBF, replace(given, landmark_floor=floor), 0)
        away.append(float(np.abs(landmarks[:, 0]).mean()))
    assert away[0] < 1.0 < 2.0 < away[2]
    assert away[0] < away[1] < away[2]


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("refine", REFINEMENTS, ids=str)
def test_a_local_machine_of_some_rows_and_a_compact_model_of_all(
    task: str, refine: dict[str, object]
) -> None:
    X, y = data(2, n=900)
    given = make_settings(
        {"task": task, "local_rows": 300, "keep_support_vectors": True, "products": 0, **refine}
    )
    leaf = fit(X, y if task == "classification" else y.astype(float), settings=given)
    assert 0 < len(leaf.support) <= 300
    wanted = y == 1
    assert np.mean((compact(leaf, X)[:, 0] > (0 if task == "classification" else 0.5)) == wanted) > 0.9


def test_a_class_that_no_row_was_drawn_of_is_learned_all_the_same() -> None:
    """The local machine of the rows that were drawn knows one class; the compact model learns from the
    others.
    """
    X, _ = data(2, n=900)
    y = (X[:, 0] > np.sort(X[:, 0])[-60]).astype(np.int64)
    y[local_sample(900, Settings(local_rows=10))] = 0
    leaf = fit(X, y, settings=Settings(local_rows=10))
    rare = y == 1
    wins = compact(leaf, X)[:, 0] > 0
    assert wins[rare].mean() > 0.5 > 0.1 > wins[~rare].mean()


@every_way
def test_the_same_twice_and_another_seed_otherwise(settings: Settings) -> None:
    X, target = data(3, n=300)
    before = X.copy()
    one, two = fit(X, target, 3, settings=settings), fit(X, target, 3, settings=settings)
    for name, a in vars(one).items():
        np.testing.assert_array_equal(a, vars(two)[name], err_msg=name)
    np.testing.assert_array_equal(X, before)
    other = fit_leaf(X, target, np.ones(len(X)), 3, SAME, settings, 1)
    assert not np.array_equal(one.pairs, other.pairs)


@every_way
def test_a_leaf_far_from_its_own_scale_gives_no_nan(settings: Settings) -> None:
    """γ so large that rows see only themselves."""
    X, target = data(2, n=100)
    narrow = Kernel("rbf", 1e6)
    leaf = fit(X, target, kernels=Kernels(narrow, narrow), settings=settings)
    check_shapes(leaf, 3, 1)


# -- γ of each leaf, and rows of neighbouring leaves ---------------------------------------------------------


@every_way
def test_gamma_by_the_median_of_the_leaf(settings: Settings) -> None:
    """A leaf that is ten times as wide has a hundredth of γ, and the same decisions."""
    X, target = data(2)
    settings = replace(settings, gamma="median")
    near, far = fit(X, target, settings=settings), fit(10 * X, target, settings=settings)
    between = np.array([((a - b) ** 2).sum() for i, a in enumerate(X.astype(float)) for b in X[:i]])
    assert near.early_gamma[0] == pytest.approx(1 / np.median(between), rel=1e-5)
    assert near.early_gamma[0] == pytest.approx(100 * far.early_gamma[0], rel=1e-4)
    assert np.mean((compact(near, X) > 0) == (compact(far, 10 * X) > 0)) > 0.97
    local_machine = Kernel("rbf", float(near.early_gamma[0]))
    assert np.mean((compact(near, X) > 0) == (local(near, X, local_machine) > 0)) > 0.93


def test_head_gamma_is_a_factor_of_the_median() -> None:
    X, target = data(2)
    settings = replace(SETTINGS, gamma="median", compact_gamma=0.5)
    leaf = fit(X, target, kernels=Kernels(RBF, Kernel("rbf", 0.5)), settings=settings)
    np.testing.assert_allclose(leaf.gamma, 0.5 * leaf.early_gamma[0], rtol=1e-6)


def halo_leaf(halo_weight: float, flip: bool, settings: Settings) -> tuple[FittedLeaf, NDArray[np.float32]]:
    """Every other row is of the borrowed, and may have its class exchanged. Landmarks go by weight alone."""
    X, target = data(2, n=300)
    borrowed = np.arange(300) // 2 % 2 == 1
    told = np.where(borrowed & flip, 1 - target, target)
    settings = replace(settings, landmark_floor=1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solvers, "OVERLAP_WEIGHT", halo_weight)
        return fit_leaf(X, told, np.ones(300), 1, SAME, settings, 0, borrowed), X


@every_way
def test_rows_of_the_halo_without_weight_have_no_say_in_the_compact_model(settings: Settings) -> None:
    one, _ = halo_leaf(0.0, False, settings)
    other, _ = halo_leaf(0.0, True, settings)
    assert not np.array_equal(one.dual, other.dual)
    np.testing.assert_array_equal(one.landmarks, other.landmarks)
    np.testing.assert_array_equal(one.gamma, other.gamma)
    np.testing.assert_allclose(one.beta, other.beta, rtol=1e-6)
    np.testing.assert_allclose(one.intercept, other.intercept, rtol=1e-9)


@every_way
def test_rows_of_the_halo_count_by_their_weight(settings: Settings) -> None:
    """The more they weigh, the more of the exchanged classes are followed."""
    followed = []
    for weight in (0.0, 0.01, 1.0):
        plain, X = halo_leaf(weight, False, settings)
        flipped, _ = halo_leaf(weight, True, settings)
        followed.append(np.abs(compact(flipped, X) - compact(plain, X)).mean())
    assert followed[0] < 1e-9
    assert 0.1 < 1.1 * followed[1] < followed[2]


@every_way
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("halo_weight", [0.0, 0.3])
def test_a_leaf_that_only_its_halo_makes_varied(
    settings: Settings, task: str, halo_weight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Own rows all alike in class or value: the model says so where they are."""
    X, target = data(2, n=120)
    values = target if task == "classification" else target.astype(float)
    settings = replace(settings, task=task, landmark_floor=0.0)
    monkeypatch.setattr(solvers, "OVERLAP_WEIGHT", halo_weight)
    leaf = fit_leaf(X, values, np.ones(120), 1, SAME, settings, 0, target == 1)
    check_shapes(leaf, 3, 1)
    decision = compact(leaf, X[target == 0])[:, 0]
    assert np.mean(decision < (0 if task == "classification" else 0.5)) > 0.9


@every_way
def test_own_rows_that_are_no_support_vectors_still_find_landmarks(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All α² is in the borrowed, which has no weight."""
    rng = np.random.default_rng(0)
    left, right = (rng.normal([middle, 0], 0.1, (40, 2)) for middle in (-5, 5))
    edge = rng.normal(0, 0.3, (40, 2))
    X = np.concatenate([left, right, edge]).astype(np.float32)
    target = np.r_[np.zeros(40), np.ones(40), X[80:, 0] > 0].astype(int)
    settings = replace(settings, landmark_floor=0.0, C=100.0)
    monkeypatch.setattr(solvers, "OVERLAP_WEIGHT", 0.0)
    kernel = Kernel("polynomial", 1.0, 1, 0.0)
    leaf = fit_leaf(
        X,
        target,
        np.ones(120),
        1,
        Kernels(kernel, replace(kernel, gamma=0.9)),
        settings,
        0,
        np.arange(120) >= 80,
    )
    check_shapes(leaf, 2, 1)
    assert ((compact(leaf, X[:80], kernel)[:, 0] > 0) == (target[:80] == 1)).all()


# -- factors of the leaf's own -------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", STATIONARY)
@pytest.mark.parametrize("way", [{}, {"refine_epochs": 40}], ids=str)
def test_a_leaf_learns_which_features_matter_in_it(kernel: str, way: dict[str, object]) -> None:
    """One of four does; one more is 0 in every row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_200, 5)).astype(np.float32)
    X[:, 3] = 0.0
    y = np.sin(2.5 * X[:, 1]) + 0.05 * rng.normal(size=len(X))
    train, test = slice(0, 800), slice(800, None)
    kernels = Kernels(Kernel(kernel, 0.2), Kernel(kernel, 0.2))
    errors = []
    for leaf_scaling in (False, True):
        given = make_settings(
            {"task": "regression", "landmarks": 12, "products": 0, "leaf_scaling": leaf_scaling, **way}
        )
        leaf = fit(X[train], y[train], kernels=kernels, settings=given)
        assert leaf.leaf_factor.shape == ((5,) if leaf_scaling else (0,))
        errors.append(np.mean((compact(leaf, X[test], kernels.head)[:, 0] - y[test]) ** 2))
    assert leaf.leaf_factor.dtype == np.float32
    assert leaf.leaf_factor[3] == 1.0
    assert leaf.leaf_factor[1] > 1.3 * leaf.leaf_factor[[0, 2, 4]].max()
    assert errors[1] < 0.9 * errors[0]
