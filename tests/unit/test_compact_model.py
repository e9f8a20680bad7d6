"""The backbone: decision values against a plain definition, row by row and number by number."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC

from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.compact_model import Model, Support, check_rows, score_rows, tile_rows
from dcpred_tasks.model.kernels import KERNELS, STATIONARY, Kernel
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.settings import make_settings
from dcpred_tasks.training.survey import survey_rows
from support.kernel_formulas import distance, kernel_value, of_distance

Any2D = NDArray[np.generic]


# -- the definition ------------------------------------------------------------------------------------------


def plain_leaf(model: Model, x: list[float]) -> int:
    """Walk to the nearest centre, level by level."""
    node, tree = 0, model.tree
    while tree.n_nodes:
        first, last = int(tree.starts[node]), int(tree.starts[node + 1])
        near = [
            sum((a - float(b)) ** 2 for a, b in zip(x, tree.centres[t], strict=True))
            for t in range(first, last)
        ]
        node = int(tree.children[first + near.index(min(near))])
        if node < 0:
            return ~node
    return 0


def plain_row(model: Model, row: NDArray[np.generic], early: bool) -> tuple[list[float], float, int]:
    """Decision values of one raw row, the size of the terms that were summed, and the status."""
    x = [
        float((float(v) - m) * s)
        for v, m, s in zip(row, model.scaling.shift, model.scaling.factor, strict=True)
    ]
    if not all(math.isfinite(np.float32(v)) for v in x):
        return [math.nan] * model.n_outputs, 0.0, 2
    leaf = plain_leaf(model, x)
    if early:
        assert model.support is not None
        own = range(int(model.support.at[leaf]), int(model.support.at[leaf + 1]))
        kernel = replace(model.local_kernel, gamma=float(model.support.gamma[leaf]))
        c_bar = [kernel_value(kernel, x, model.support.vectors[i].tolist()) for i in own]
        beta, intercept = [model.support.dual[i] for i in own], model.support.intercept[leaf]
    else:
        own_landmarks = slice(int(model.landmark_at[leaf]), int(model.landmark_at[leaf + 1]))
        if model.leaf_factor.shape[1]:
            x = [v * float(f) for v, f in zip(x, model.leaf_factor[leaf], strict=True)]
        landmarks, gammas = model.landmarks[own_landmarks].tolist(), model.gamma[own_landmarks].tolist()
        c_bar = c = [
            kernel_value(replace(model.kernel, gamma=g), x, u) for u, g in zip(landmarks, gammas, strict=True)
        ]
        pairs = model.pairs[model.pair_at[leaf] : model.pair_at[leaf + 1]]
        c_bar = c + [c[i] * c[j] for i, j in pairs]
        stored = model.triangle[model.triangle_at[leaf] : model.triangle_at[leaf + 1]].tolist()
        m = len(landmarks)
        for t in range(len(stored) // m if m else 0):
            r = [distance(model.kernel.name, x, u) for u in landmarks]
            s = stored[t * m : (t + 1) * m]
            if model.triangle_bound == "lower":
                estimate = max(abs(a - b) for a, b in zip(r, s, strict=True))
            else:
                estimate = min(a + b for a, b in zip(r, s, strict=True))
            c_bar.append(of_distance(model.kernel, estimate))
        beta, intercept = (
            list(model.beta.of(leaf)),
            model.intercept[leaf],
        )
    low, high = (
        model.bounds[leaf].tolist()
        if model.bounds.shape[1] and c_bar and not early
        else (-math.inf, math.inf)
    )
    terms = [[c * float(b[k]) for c, b in zip(c_bar, beta, strict=True)] for k in range(model.n_outputs)]
    values = [min(max(sum(terms[k]) + float(intercept[k]), low), high) for k in range(model.n_outputs)]
    reach = 1 + max(sum(abs(t) for t in terms[k]) + abs(float(intercept[k])) for k in range(model.n_outputs))
    return values, reach, 1


def check_against_definition(model: Model, X: Any2D, early: bool) -> None:
    decision, status = score_rows(model, X, early=early)
    assert decision.shape == (len(X), model.n_outputs)
    assert decision.dtype == (np.float64 if model.task == "regression" else np.float32)
    assert status.shape == (len(X),)
    assert status.dtype == np.uint8
    for row, ours, code in zip(X, decision, status, strict=True):
        values, reach, expected = plain_row(model, row, early)
        assert code == expected
        np.testing.assert_allclose(ours, values, rtol=0, atol=2e-6 * reach)


# -- models made of random arrays ----------------------------------------------------------------------------


def random_tree(rng: np.random.Generator, n_leaves: int, d: int) -> Tree:
    """A chain: each node leads to a leaf, now and then to one that was seen before, and to the next node."""
    starts, children, centres = [0], [], []
    for node in range(n_leaves - 1):
        below = [~node, node + 1 if node < n_leaves - 2 else ~(n_leaves - 1)]
        if rng.random() < 0.4:
            below.append(~int(rng.integers(0, node + 1)))
        order = rng.permutation(len(below))
        children += [below[t] for t in order]
        centres += list(rng.normal(size=(len(below), d)))
        starts.append(len(children))
    return Tree(
        np.array(starts, np.int64), np.array(children, np.int32), np.array(centres, np.float32).reshape(-1, d)
    )


def offsets(sizes: list[int]) -> NDArray[np.int64]:
    return np.cumsum([0, *sizes]).astype(np.int64)


def random_model(
    seed: int, kernel: Kernel, bound: str = "lower", d: int = 3, n_leaves: int = 4, n_classes: int = 2
) -> Model:
    """Leaves of any shape, constants among them; every other seed with factors of their own. n_classes 0 is
    regression.
    """
    rng = np.random.default_rng(seed)
    leaf_scaling = seed % 2 == 1
    k = n_classes if n_classes > 2 else 1
    m = [int(n) for n in rng.integers(0, 5, n_leaves)]
    p = [int(rng.integers(0, 4)) if n else 0 for n in m]
    t = [int(rng.integers(0, 3)) if n and kernel.stationary else 0 for n in m]
    s = [int(n) for n in rng.integers(0, 6, n_leaves)]

    def single(*shape: int) -> NDArray[np.float32]:
        return rng.normal(size=shape).astype(np.float32)

    return Model(
        task="classification" if n_classes else "regression",
        classes=tuple(range(n_classes)),
        kernel=kernel,
        triangle_bound=bound,
        scaling=Scaling(rng.normal(size=d), rng.uniform(0.5, 2, d)),
        tree=random_tree(rng, n_leaves, d),
        landmark_at=offsets(m),
        landmarks=single(sum(m), d),
        gamma=(kernel.gamma * rng.uniform(0.3, 3.0, sum(m))).astype(np.float32),
        pair_at=offsets(p),
        pairs=np.concatenate([rng.integers(0, max(n, 1), (q, 2)) for n, q in zip(m, p, strict=True)]).astype(
            np.int32
        ),
        triangle_at=offsets([a * b for a, b in zip(m, t, strict=True)]),
        triangle=np.abs(single(sum(a * b for a, b in zip(m, t, strict=True)))),
        beta_at=offsets([a + b + c for a, b, c in zip(m, p, t, strict=True)]),
        beta=single(sum(m) + sum(p) + sum(t), k),
        intercept=single(n_leaves, k),
        bounds=np.sort(single(n_leaves, 0 if n_classes else 2), axis=1),
        leaf_factor=np.exp(0.3 * single(n_leaves, d if leaf_scaling else 0)).astype(np.float32),
        leaf_rows=np.ones(n_leaves, np.int64),
        local_kernel=replace(kernel, gamma=kernel.gamma * 1.5),
        support=Support(
            at=offsets(s),
            vectors=single(sum(s), d),
            dual=single(sum(s), k),
            intercept=single(n_leaves, k),
            gamma=kernel.gamma * rng.uniform(0.3, 3.0, n_leaves),
        ),
    )


kernels = st.builds(
    Kernel,
    st.sampled_from(KERNELS),
    st.floats(0.05, 1.0),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.5, 1.0]),
)
models = st.builds(
    random_model,
    seed=st.integers(0, 10**6),
    kernel=kernels,
    bound=st.sampled_from(["lower", "upper"]),
    d=st.integers(1, 6),
    n_leaves=st.integers(1, 7),
    n_classes=st.sampled_from([0, 2, 3, 5]),
)
DTYPES = ["f8", "f4", "f2", ">f8", "i1", "i4", "i8", ">i2", "u1", "u8", "?"]


def make_rows(seed: int, n: int, d: int, dtype: str, order: str) -> Any2D:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2 * n, 2 * d)) * 2
    X = (X > 0 if dtype == "?" else np.abs(X) if dtype.startswith("u") else X).astype(dtype)
    X = X[1::2, ::-2] if order == "strided" else np.array(X[:n, :d], order=order)  # type: ignore[call-overload]
    X.flags.writeable = False
    return X


# -- the tests -----------------------------------------------------------------------------------------------


@given(
    model=models,
    n=st.integers(0, 12),
    dtype=st.sampled_from(DTYPES),
    order=st.sampled_from(["C", "F", "strided"]),
    early=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_score_rows_is_the_definition(
    model: Model, n: int, dtype: str, order: str, early: bool, seed: int
) -> None:
    check_against_definition(model, make_rows(seed, n, model.n_features, dtype, order), early)


@given(
    model=models,
    n=st.integers(1, 15),
    dtype=st.sampled_from(["f8", "f4", "f2"]),
    early=st.booleans(),
    seed=st.integers(0, 10**6),
    data=st.data(),
)
def test_bad_rows_get_status_2_and_nan_and_change_no_other_row(
    model: Model, n: int, dtype: str, early: bool, seed: int, data: st.DataObject
) -> None:
    X = np.array(make_rows(seed, n, model.n_features, dtype, "C"))
    cells = st.tuples(st.integers(0, n - 1), st.integers(0, model.n_features - 1))
    bad = data.draw(st.dictionaries(cells, st.sampled_from([np.nan, np.inf, -np.inf]), max_size=n))
    for cell, value in bad.items():
        X[cell] = value
    check_against_definition(model, X, early)
    decision, status = score_rows(model, X, early=early)
    wrong = np.isin(np.arange(n), [row for row, _ in bad])
    np.testing.assert_array_equal(status, np.where(wrong, 2, 1))
    assert np.isnan(decision[wrong]).all()
    # Bit for bit: what stands in a bad row makes no difference, and neither does how bad it is.
    other = X.copy()
    other[wrong] = np.nan
    np.testing.assert_array_equal(score_rows(model, other, early=early)[0], decision)
    # In single precision: neither do the bad rows themselves (BLAS may sum in another order for fewer rows).
    alone = score_rows(model, X[~wrong], early=early)[0]
    np.testing.assert_allclose(decision[~wrong], alone, rtol=1e-5, atol=1e-5)


@given(model=models, n=st.integers(2, 40), seed=st.integers(0, 10**6), early=st.booleans())
def test_a_row_alone_is_a_row_in_company(model: Model, n: int, seed: int, early: bool) -> None:
    X = make_rows(seed, n, model.n_features, "f8", "C")
    decision, _ = score_rows(model, X, early=early)
    order = np.random.default_rng(seed).permutation(n)
    np.testing.assert_allclose(
        score_rows(model, X[order], early=early)[0], decision[order], rtol=1e-5, atol=1e-5
    )
    for i in range(0, n, 5):
        np.testing.assert_allclose(
            score_rows(model, X[i : i + 1], early=early)[0][0], decision[i], rtol=1e-5, atol=1e-5
        )
    # the same rows again: the same bits
    np.testing.assert_array_equal(score_rows(model, X, early=early)[0], decision)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 511, 512, 513, 700])
def test_tile_boundaries(n: int, early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(3, Kernel("rbf", 0.3), n_leaves=5, n_classes=3)
    X = np.array(make_rows(1, n, 3, "f8", "C"))
    X[7::50, 1] = np.nan
    whole, status = score_rows(model, X, early=early)
    monkeypatch.setattr(compact_model, "TILE_BYTES", 1)
    assert tile_rows(3) == 256
    tiled, tiled_status = score_rows(model, X, early=early)
    np.testing.assert_array_equal(tiled_status, status)
    np.testing.assert_allclose(tiled, whole, rtol=1e-5, atol=1e-5)
    for start in range(0, n, 256):  # each tile is scored as if it were all
        tile = X[start : start + 256]
        np.testing.assert_array_equal(score_rows(model, tile, early=early)[0], tiled[start : start + 256])
        check_against_definition(model, tile[[0, -1]], early)


@given(st.integers(1, 100_000))
def test_tiles_are_powers_of_two_that_fit(n_features: int) -> None:
    rows = tile_rows(n_features)
    assert rows & (rows - 1) == 0
    assert 256 <= rows <= 65_536
    assert rows == 256 or rows * n_features * 8 <= 64 * 2**20
    assert rows == 65_536 or 2 * rows * n_features * 8 > 64 * 2**20 or rows == 256


def test_every_leaf_a_constant() -> None:
    model = random_model(0, Kernel("rbf", 1.0), n_leaves=3)
    none = np.zeros(4, np.int64)
    model = replace(
        model,
        landmark_at=none,
        pair_at=none,
        triangle_at=none,
        beta_at=none,
        landmarks=model.landmarks[:0],
        beta=np.asarray(model.beta)[:0],
    )
    X = make_rows(0, 30, 3, "f8", "C")
    decision, _ = score_rows(model, X)
    leaf = model.tree.descend(model.scaling(X))
    np.testing.assert_array_equal(decision, model.intercept[leaf])
    check_against_definition(model, X, early=False)


@pytest.mark.parametrize("name", STATIONARY)
@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_triangle_pseudo_landmarks_only(name: str, bound: str) -> None:
    """A fixed case beside the random ones: 2 landmarks, 3 points, one leaf."""
    model = random_model(0, Kernel(name, 0.4), bound, n_leaves=1)
    rng = np.random.default_rng(9)
    model = replace(
        model,
        landmark_at=offsets([2]),
        landmarks=rng.normal(size=(2, 3)).astype(np.float32),
        pair_at=offsets([0]),
        pairs=model.pairs[:0],
        triangle_at=offsets([6]),
        triangle=rng.uniform(0, 3, 6).astype(np.float32),
        beta_at=offsets([5]),
        beta=np.array([0, 0, 1, 10, 100], np.float32)[:, None],
    )
    check_against_definition(model, make_rows(0, 20, 3, "f8", "C"), early=False)


def test_a_value_too_large_for_single_precision_is_a_bad_feature() -> None:
    model = random_model(0, Kernel("rbf", 1.0))
    X = np.zeros((3, 3))
    X[1, 0] = 1e300
    decision, status = score_rows(model, X)
    assert status.tolist() == [Status.OK, Status.NON_FINITE_FEATURE, Status.OK]
    assert np.isnan(decision[1]).all()


def test_a_result_too_large_for_single_precision_has_its_own_status() -> None:
    kernel = Kernel("polynomial", 1.0, 10, 1.0)
    model = replace(random_model(1, kernel, n_leaves=1), scaling=Scaling(np.zeros(3), np.ones(3)))
    assert len(model.landmarks)
    decision, status = score_rows(model, np.array([[0.1, 0, 0], [1e10, 1e10, 1e10], [0.1, 0, 0]]))
    assert status.tolist() == [Status.OK, Status.NON_FINITE_RESULT, Status.OK]
    assert np.isnan(decision[1]).all()
    assert np.isfinite(decision[[0, 2]]).all()


def test_regression_stays_within_the_targets_of_the_leaf() -> None:
    model = one_leaf(*moons(100, 2)[:1], np.arange(100.0), 0, kernel="polynomial", degree=3)
    far = np.random.default_rng(0).normal(100, 1000, (50, 4))
    decision, status = score_rows(model, far)
    assert (status == 1).all()
    assert decision.min() == 0
    assert decision.max() == 99


def test_input_is_not_written() -> None:
    model = random_model(2, Kernel("rbf", 1.0))
    X = np.random.default_rng(0).normal(size=(5, 3))
    X[2, 1] = np.nan
    before = X.copy()
    score_rows(model, X)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.zeros((4, 7)), ["7 features", "3 features"]),
        (np.zeros((4, 0)), ["0 features", "3 features"]),
        (np.zeros(3), ["1 dimension,", "(3,)", "Reshape"]),
        (np.zeros((2, 3, 4)), ["3 dimensions", "(2, 3, 4)"]),
        (np.array([["a", "b", "c"]]), ["<U1", "not numbers"]),
        (np.array([[b"a", b"b", b"c"]]), ["|S1", "not numbers"]),
        (np.zeros((2, 3), complex), ["complex128", "complex numbers"]),
        (np.zeros((2, 3), object), ["object", "not numbers"]),
        (np.zeros((2, 3), "M8[s]"), ["datetime64[s]", "not numbers"]),
    ],
    ids=lambda v: f"{v.dtype}-{v.ndim}" if isinstance(v, np.ndarray) else "",
)
def test_refusals(X: Any2D, words: list[str]) -> None:
    model = random_model(0, Kernel("rbf", 1.0))
    for check in (lambda: check_rows(X, 3), lambda: score_rows(model, X)):
        with pytest.raises(DataError) as caught:
            check()
        assert all(word in str(caught.value) for word in words), str(caught.value)


def test_early_prediction_without_support_vectors_is_refused() -> None:
    model = replace(random_model(0, Kernel("rbf", 1.0)), support=None)
    with pytest.raises(
        DataError, match=r"without its support vectors. Train it again with keep_support_vectors=true"
    ):
        score_rows(model, np.zeros((1, 3)), early=True)
    score_rows(model, np.zeros((1, 3)))


def one_leaf(X: NDArray[np.float64], y: NDArray[np.generic], n_classes: int, **values: object) -> Model:
    task = "classification" if n_classes else "regression"
    settings = make_settings(
        {"task": task, "n_leaves": 1, "keep_support_vectors": True, "landmarks": 4, **values}
    )
    survey = survey_rows(X, y, None, 0, task)
    return train_rows(X, y, np.ones(len(X)), np.empty(0), survey, settings, tuple(range(n_classes)))


def moons(n: int, n_classes: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    y = np.arange(n) % n_classes
    return rng.normal(size=(n, 4)) * [1, 10, 0.1, 1] + y[:, None] * [1, 0, 0.1, -1] + 100, y


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernel", ["rbf", "polynomial"])
def test_early_prediction_of_one_leaf_is_a_support_vector_machine(n_classes: int, kernel: str) -> None:
    X, y = moons(190, n_classes)
    model = one_leaf(X, y, n_classes, kernel=kernel, C=2.0, degree=3, coef0=0.5)
    assert model.n_leaves == 1
    scaled = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32).astype(float)
    new = scaled + 0.1
    decision, status = score_rows(model, (new * X.std(axis=0)) + X.mean(axis=0), early=True)
    assert (status == 1).all()
    for c in range(model.n_outputs):
        sign = np.where(y == (1 if n_classes == 2 else c), 1, -1)
        name = {"rbf": "rbf", "polynomial": "poly"}[kernel]
        theirs = SVC(C=2.0, kernel=name, gamma="scale", degree=3, coef0=0.5, tol=1e-9).fit(scaled, sign)
        np.testing.assert_allclose(decision[:, c], theirs.decision_function(new), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("kernel", KERNELS)
def test_early_prediction_of_one_leaf_is_kernel_ridge(kernel: str) -> None:
    X, _ = moons(150, 2)
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
    model = one_leaf(X, y, 0, kernel=kernel, ridge=0.5, degree=2)
    scaled = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32).astype(float)
    K = Kernel(kernel, gamma=1 / 4, degree=2, coef0=1.0)(scaled, scaled)
    theirs = KernelRidge(alpha=0.5, kernel="precomputed").fit(K, y - y.mean())
    decision, _ = score_rows(model, X, early=True)
    np.testing.assert_allclose(decision[:, 0], theirs.predict(K) + y.mean(), rtol=1e-4, atol=1e-4)


def test_nbytes_counts_every_array_but_the_support_vectors() -> None:
    model = random_model(5, Kernel("rbf", 1.0), n_leaves=6)
    arrays = [
        model.landmark_at,
        model.landmarks,
        model.gamma,
        model.pair_at,
        model.pairs,
        model.triangle_at,
        model.triangle,
        model.beta_at,
        model.beta,
        model.intercept,
        model.bounds,
        model.leaf_factor,
        model.leaf_rows,
        model.scaling.shift,
        model.scaling.factor,
        model.tree.starts,
        model.tree.children,
        model.tree.centres,
    ]
    assert model.nbytes == sum(a.nbytes for a in arrays) == replace(model, support=None).nbytes
