"""The compiled engine against the plain definition, and against itself bit by bit."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcpred import DCPredClassifier, DCPredRegressor, Settings
from dcpred_tasks.dtypes import Status
from dcpred_tasks.engine import layout
from dcpred_tasks.engine.engine import Engine
from dcpred_tasks.errors import DataError
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.kernels import KERNELS, STATIONARY, Kernel
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.scoring import scorer
from support.models import (
    DTYPES,
    LAYOUTS,
    PATTERNS,
    SCALINGS,
    SIZES,
    Any2D,
    constant_leaves,
    differences,
    fixed_cases,
    lay,
    leaf_and_doubt,
    random_model,
    random_rows,
    skipped,
)
from support.pairs import pairwise
from support.setting_words import classifier_with

THIRDS = (DTYPES[::3], DTYPES[1::3], DTYPES[2::3])
FEATURES = (1, 2, 3, 15, 16, 17, 33, 40, 54)
OUTPUTS = (1, 1, 2, 3, 15, 16, 17, 26)
ROWS = (0, 1, 2, 7, 8, 9, 63, 64, 65, 130)
LETTER = {
    "scaling": "minmax",
    "n_leaves": 128,
    "landmarks": 24,
    "gamma": 4.0,
    "C": 4.0,
    "compact_gamma": 3.0,
    "nystrom_C": 32.0,
}


@st.composite
def models(draw: st.DrawFn, kernels: tuple[str, ...] = ("rbf", *KERNELS)) -> Model:
    kernel = draw(st.sampled_from(kernels))
    n_outputs = draw(st.sampled_from(OUTPUTS))
    return random_model(
        draw(st.integers(0, 10**6)),
        kernel,
        d=draw(st.sampled_from(FEATURES)),
        n_outputs=n_outputs,
        task=draw(st.sampled_from(["classification", "regression"])) if n_outputs == 1 else "classification",
        depth=draw(st.integers(0, 4)),
        scaling=draw(st.sampled_from(SCALINGS)),
        sizes=draw(st.sampled_from([SIZES, SIZES, (0,), (16,), (17, 40)])),
        leaf_scaling=draw(st.booleans()),
    )


seeds = st.integers(0, 10**6)


def check(model: Model, X: Any2D, score: Callable[..., Any] | None = None) -> None:
    leaves, right = np.full((2, len(X)), -9, np.int32)
    ours = (score or (lambda X: Engine(model).score(X, leaves)))(X)
    found = list(differences(model, X, ours, compact_model.score_rows(model, X, leaves=right)))
    assert not found, found[:5]
    if score is None:
        sure = right >= 0
        sure[sure] = ~leaf_and_doubt(model, X[sure])[1]
        np.testing.assert_array_equal(leaves[sure], right[sure])
        np.testing.assert_array_equal(leaves < 0, right < 0)


def assert_bits(ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> None:
    """The same bits, of NaN too."""
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


# -- the definition ------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    model=models(),
    n=st.sampled_from(ROWS),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(LAYOUTS),
    bad=st.sampled_from([0.0, 0.1, 0.6]),
    seed=seeds,
)
def test_the_engine_is_the_definition(
    model: Model, n: int, dtype: str, layout: str, bad: float, seed: int
) -> None:
    X = lay(random_rows(model, n, seed, dtype, bad), layout)
    before = X.copy()
    check(model, X)
    np.testing.assert_array_equal(X, before)


@pytest.fixture(params=[False, True], ids=["products", "distances"])
def apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Either way down the tree, whatever the model."""
    monkeypatch.setattr(layout, "BORDER_ROWS", -1.0 if request.param else 2.0)
    return bool(request.param)


@pytest.mark.parametrize("every", [15, pytest.param(1, marks=pytest.mark.long)])
def test_fixed_cases(apart: bool, every: int) -> None:
    """What other processes, processors and checks of array bounds are held to as well."""
    for model, X in islice(fixed_cases(), 0, None, every):
        check(model, X)
        if not apart:  # which way down the tree is taken is the engine's own affair
            if scorer.uses_tiles():
                check(model, X, lambda rows, model=model: scorer.score_rows(model, rows))
            else:
                assert_bits(scorer.score_rows(model, X), Engine(model).score(X))


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("n_outputs", [1, 26])
def test_thousands_of_rows(n_outputs: int) -> None:
    """More than a tile of descent, and more than one of leaves."""
    model = random_model(4, n_outputs=n_outputs, d=40, depth=3)
    engine = Engine(model)
    check(
        model,
        random_rows(model, max(engine.descent_rows, engine.leaf_rows) + 77, 0, "f4", 0.01),
        engine.score,
    )


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("d", [1, 2, 3, 17])
def test_rows_on_the_borders_of_the_tree(d: int) -> None:
    """Between two centres, off the middle by no more than single precision can tell: the leaf is still the
    definition's.

    Many small models, for a bound that is a little too narrow shows in one row of some thousands.
    """
    rng = np.random.default_rng(d)
    wrong = used = 0
    for _ in range(20):
        size, origin, k = (
            rng.choice([1e-3, 1.0, 1e3]),
            rng.choice([0.0, 1.0, 100.0]),
            rng.choice([2, 2, 3, 15, 16]),
        )
        model = constant_leaves((origin + size * rng.normal(size=(k, d))).astype(np.float32))
        centres = model.tree.centres.astype(float)
        i, j = rng.integers(k, size=(2, 800))
        off = rng.normal(size=(800, 1)) * 10 ** rng.uniform(-9, -5, (800, 1))
        X = ((centres[i] + centres[j]) / 2 + off * (centres[j] - centres[i])).astype(
            rng.choice(["f4", "f8", "f8"])
        )
        leaf, doubt = leaf_and_doubt(model, X)
        np.testing.assert_array_equal(compact_model.score_rows(model, X)[0][~doubt, 0], leaf[~doubt])
        wrong += np.count_nonzero(Engine(model).score(X)[0][~doubt, 0] != leaf[~doubt])
        used += np.count_nonzero(~doubt)
    assert used > 10_000
    assert wrong == 0, f"{wrong} of {used} rows in another leaf"


@pytest.mark.parametrize("size", [1e3, 1e4, 1e6])
def test_groups_far_apart(size: float) -> None:
    """As counts without a bound give them, standardised. Products cannot tell neighbours in a far group;
    distances can, and leave few rows to double precision.
    """
    rng = np.random.default_rng(0)
    centres = (size * rng.normal(size=(4, 1, 3)) + rng.normal(size=(1, 4, 3))).reshape(16, 3)
    model = constant_leaves(centres.astype(np.float32))
    engine = Engine(model)
    assert engine.packed.by_distances
    X = model.tree.centres[rng.integers(16, size=5_000)] + rng.normal(size=(5_000, 3)).astype(np.float32)
    leaf, doubt = leaf_and_doubt(model, X)
    assert doubt.mean() < 0.01
    np.testing.assert_array_equal(engine.score(X)[0][~doubt, 0], leaf[~doubt])


def test_groups_side_by_side_are_told_by_products() -> None:
    assert not Engine(constant_leaves(np.random.default_rng(0).normal(size=(16, 54)))).packed.by_distances


@pytest.mark.usefixtures("apart")
def test_ties_go_to_the_lower_number() -> None:
    grid = np.stack(np.meshgrid(*[np.arange(-1.0, 2.0)] * 2), axis=-1).reshape(-1, 2)
    model = constant_leaves(grid)
    X = np.stack(np.meshgrid(*[np.arange(-2.0, 2.5, 0.5)] * 2), axis=-1).reshape(-1, 2)
    for dtype in ("f8", "f4", "f2"):
        assert_bits(Engine(model).score(X.astype(dtype)), compact_model.score_rows(model, X.astype(dtype)))


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("size", [1e15, 1e19, 1e25, 1e38])
def test_centres_far_out(size: float) -> None:
    """Squares overflow single precision; a model of unscaled features may well hold such centres. Nothing is
    warned of.
    """
    rng = np.random.default_rng(0)
    model = constant_leaves((rng.normal(size=(16, 3)) * size / 4).astype(np.float32))
    X = rng.normal(size=(100, 3)) * size / 4
    leaf, doubt = leaf_and_doubt(model, X)
    np.testing.assert_array_equal(Engine(model).score(X)[0][~doubt, 0], leaf[~doubt])


def test_values_too_large() -> None:
    X = {"f8": np.zeros((40, 3)), "f4": np.zeros((40, 3), "f4")}
    for i, value in enumerate([1e14, 1e15, 1e16, 1e19, 1e20, 1e30, 3.3e38, 1e39, 1e200]):
        for rows in X.values():
            with np.errstate(over="ignore"):
                rows[i * 4 % 40, i % 3] = value
    for (i, kernel), (j, scaling) in product(enumerate(KERNELS), enumerate(SCALINGS)):
        model, rows = random_model(2, kernel, scaling=scaling), X[("f8", "f4")[(i + j) % 2]]
        check(model, rows[:, : model.n_features])


def test_a_long_double_beyond_double_precision_is_a_bad_feature() -> None:
    X = np.zeros((3, 3), np.longdouble)
    with np.errstate(over="ignore"):
        X[1, 0] = np.longdouble(2.0) ** 5000
    decision, status = Engine(random_model(0)).score(X)
    assert status.tolist() == [Status.OK, Status.NON_FINITE_FEATURE, Status.OK]
    assert np.isnan(decision[1]).all()


def test_a_boolean_is_0_or_1_whatever_its_byte_holds() -> None:
    model = random_model(3, depth=0, sizes=(7,))
    check(model, np.frombuffer(bytes([2, 0, 1, 255, 0, 1]), bool).reshape(2, 3))


@pytest.mark.parametrize("spread", [1e6, 1.0, 0.1, 0.01])
def test_features_far_from_zero(spread: float) -> None:
    """Timestamps to fractions of a second, which double precision holds to 2e-7. Limit: 1e-4 of a standard
    deviation.
    """
    model = random_model(1, depth=0, sizes=(16,))
    object.__setattr__(model, "scaling", Scaling(np.full(3, 1.6e9 + 0.1234567), np.full(3, 1 / spread)))
    X = model.scaling.shift + spread * np.random.default_rng(1).normal(size=(300, 3))
    assert_near(model, X)


@pytest.mark.parametrize("kernel", STATIONARY)
@pytest.mark.parametrize("spread", [1.0, 3.0, 10.0, 30.0, 100.0])
def test_leaves_wider_than_the_kernel(kernel: str, spread: float) -> None:
    """Rows beside landmarks that are far from the mean of their leaf, as one leaf and a large γ give them."""
    model = random_model(1, depth=0, sizes=(40,), scaling="none")
    object.__setattr__(model, "kernel", Kernel(kernel, 1.0))
    object.__setattr__(model, "landmarks", model.landmarks * np.float32(spread))
    X = model.landmarks + np.random.default_rng(1).normal(size=(5, *model.landmarks.shape)) * 0.1
    assert_near(model, X.reshape(-1, 3))


def assert_near(model: Model, X: Any2D, labels: bool = False) -> None:
    """What is promised of trained models: 1e-4 of the standard deviation of decision values; other labels at
    ties only.
    """
    (ours, status), (theirs, right) = Engine(model).score(X), compact_model.score_rows(model, X)
    np.testing.assert_array_equal(status, right)
    ok = status == Status.OK
    limit = 1e-4 * float(theirs[ok][theirs[ok] > -1e29].std())  # a class that a leaf has not seen has −1e30
    np.testing.assert_allclose(ours[ok], theirs[ok], rtol=0, atol=limit)
    if labels:
        other = compact_model.class_numbers(ours[ok]) != compact_model.class_numbers(theirs[ok])
        best = np.sort(np.hstack([theirs[ok], -theirs[ok]]) if theirs.shape[1] == 1 else theirs[ok], axis=1)
        assert ((best[other, -1] - best[other, -2]) <= 2 * limit).all()


# -- landmarks with a γ of their own -------------------------------------------------------------------------


@pairwise(kernel=KERNELS, n_outputs=(1, 7, 26), dtypes=THIRDS)
def test_every_landmark_has_its_gamma(kernel: str, n_outputs: int, dtypes: tuple[str, ...]) -> None:
    """Those of one leaf from a tenth to ten times the kernel's, so that some are wide and others narrow."""
    model = random_model(
        n_outputs,
        kernel,
        d=5,
        n_outputs=n_outputs,
    )
    rng = np.random.default_rng(0)
    gamma = (model.kernel.gamma * 10 ** rng.uniform(-1, 1, len(model.gamma))).astype(np.float32)
    own = replace(model, gamma=gamma)
    for dtype in dtypes:
        check(own, random_rows(own, 60, 1, dtype, 0.05))
    X = random_rows(own, 300, 2, "f4")
    assert not np.allclose(Engine(own).score(X)[0], Engine(model).score(X)[0], atol=1e-3)


@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0])
def test_rows_anywhere_with_any_gamma(spread: float) -> None:
    """Nothing overflows, and nothing becomes NaN, in narrow leaves, in wide ones, and in those that go in
    double precision.
    """
    for seed in range(20):
        model = random_model(seed, depth=0, sizes=(16, 40), scaling="none")
        rng = np.random.default_rng(seed)
        size, most = rng.choice([0, 3, 12, 29, 37], 2)
        gamma = np.float32(10.0) ** rng.uniform(-size, most, len(model.gamma)).astype(np.float32)
        gamma[rng.integers(len(gamma))] = 0.0
        model = replace(model, gamma=gamma, landmarks=model.landmarks * np.float32(spread))
        X = np.concatenate(
            [model.landmarks, rng.normal(size=(40, 3)) * 10 ** rng.uniform(-3, 38, (40, 1))]
        ).astype("f4")
        decision, status = Engine(model).score(X)
        right, reach = by_differences(model, X)
        assert (status == Status.OK).all()
        np.testing.assert_array_less(np.abs(decision[:, 0] - right), 1e-6 * reach)


def test_a_landmark_with_the_largest_gamma_that_there_is() -> None:
    model = random_model(0, depth=0, sizes=(1,), scaling="none")
    model = replace(model, gamma=np.full_like(model.gamma, 3e38))
    X = np.concatenate([model.landmarks, model.landmarks + 1])
    np.testing.assert_allclose(
        Engine(model).score(X)[0][:, 0], by_differences(model, X)[0].astype(float), rtol=1e-6
    )


def by_differences(model: Model, X: Any2D) -> tuple[NDArray[np.longdouble], NDArray[np.longdouble]]:
    """Decision values of a model of one leaf, and the size of what is summed: the definition's own cancel
    where γ is large.
    """
    apart = X.astype(np.longdouble)[:, None, :] - model.landmarks
    c = np.exp(-model.gamma * (apart**2).sum(axis=2))
    basis = np.hstack([c, c[:, model.pairs[:, 0]] * c[:, model.pairs[:, 1]]])
    size = 1 + np.abs(np.asarray(model.beta)).sum() + np.abs(model.intercept[0, 0])
    return basis @ np.asarray(model.beta)[:, 0] + model.intercept[0, 0], np.full(len(X), size)


# -- features that the scaling gives the factor 0 ------------------------------------------------------------


def with_skipped(d: int, pattern: str, **more: Any) -> Model:
    model = random_model(d, d=d, **more)
    factor = np.where(skipped(np.random.default_rng(d), pattern, d), 0.0, model.scaling.factor)
    return replace(model, scaling=Scaling(model.scaling.shift, factor))


@pytest.fixture
def skipping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features are skipped however few there are."""
    monkeypatch.setattr(layout, "SKIP_FEATURES", 0)


@pytest.mark.usefixtures("skipping")
@pairwise(
    d=(1, 3, 15, 16, 17, 31, 54, 200),
    pattern=PATTERNS,
    kernel=KERNELS,
    n_outputs=(3, 1),
    dtypes=THIRDS,
)
def test_features_that_add_nothing(
    d: int, pattern: str, kernel: str, n_outputs: int, dtypes: tuple[str, ...]
) -> None:
    model = with_skipped(d, pattern, kernel=kernel, n_outputs=n_outputs, sizes=(16, 20))
    engine = Engine(model)
    for dtype in dtypes:
        X = random_rows(model, 20, 1, dtype, 0.2)
        found = list(differences(model, X, engine.score(X), compact_model.score_rows(model, X), 3e-6))
        assert not found, (dtype, found[:5])


@pairwise(d=(1, 3, 15, 16, 17), pattern=PATTERNS, dtypes=THIRDS)
def test_few_features_that_add_nothing(d: int, pattern: str, dtypes: tuple[str, ...]) -> None:
    model = with_skipped(d, pattern, n_outputs=3, sizes=(16, 20))
    assert len(Engine(model).packed.picks) == 0
    for dtype in dtypes:
        check(model, random_rows(model, 40, 1, dtype, 0.2))


@pytest.mark.usefixtures("skipping")
@pytest.mark.parametrize("d", [1, 3, 16, 17, 54, 200])
@pytest.mark.parametrize(
    ("dtype", "huge"), [("f2", 65504), ("f4", 3.4e38), ("f8", 1e308), ("i1", 127), ("u8", 2**63)]
)
def test_what_is_in_skipped_features(d: int, dtype: str, huge: float) -> None:
    """A NaN or an infinity in any of them spoils its row; any other number changes no bit."""
    model = with_skipped(d, "most" if d > 1 else "all", scaling="standard", sizes=(16, 20))
    none = np.flatnonzero(model.scaling.factor == 0)
    assert len(Engine(model).packed.picks) > 0
    engine = Engine(model)
    X = np.repeat(random_rows(model, 1, 0, dtype), len(none) + 1, axis=0)
    decision, status = engine.score(X)
    assert (status == Status.OK).all()
    Y = X.copy()
    Y[np.arange(len(none)), none] = huge
    assert_bits(engine.score(Y), (decision, status))
    for value in (np.nan, np.inf, -np.inf) if np.dtype(dtype).kind == "f" else ():
        Y = X.copy()
        Y[np.arange(len(none)), none] = value
        ours, codes = engine.score(Y)
        assert codes.tolist() == [Status.NON_FINITE_FEATURE] * len(none) + [Status.OK]
        assert_bits((ours[-1:], codes[-1:]), (decision[-1:], status[-1:]))
        assert np.isnan(ours[:-1]).all()


def test_a_shift_that_overflows_in_a_skipped_feature() -> None:
    for shift in (1e307, -1.7e308):
        model = with_skipped(3, "all but one", sizes=(16,))
        model = replace(
            model, scaling=Scaling(np.where(model.scaling.factor == 0, shift, 0.0), model.scaling.factor)
        )
        X = np.zeros((5, 3))
        X[1:] = np.outer([1.7e308, -1.7e308, 8e307, -8e307], model.scaling.factor == 0)
        check(model, X)


@pytest.mark.parametrize("n_outputs", [1, 7])
def test_a_model_without_its_skipped_features_gives_the_same_bits(n_outputs: int) -> None:
    """Where centres and landmarks have 0 there, as training makes them; and its buffers are as short."""
    small = random_model(1, d=32, n_outputs=n_outputs, depth=3)
    d = 54
    held = np.sort(np.random.default_rng(0).permutation(d)[:32])

    def spread(values: NDArray[Any]) -> NDArray[Any]:
        out = np.zeros((*values.shape[:-1], d), values.dtype)
        out[..., held] = values
        return out

    scaling = Scaling(spread(small.scaling.shift), spread(small.scaling.factor))
    tree = replace(small.tree, centres=spread(small.tree.centres))
    large = Engine(replace(small, scaling=scaling, tree=tree, landmarks=spread(small.landmarks)))
    for dtype in ("f4", "f8", "i2"):
        X = random_rows(small, 300, 0, dtype, bad=0.05)
        assert_bits(large.score(spread(X)), Engine(small).score(X))
    assert large.packed.nodes.shape == Engine(small).packed.nodes.shape
    assert large.packed.groups.shape == Engine(small).packed.groups.shape


# -- the same bits -------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(
    model=models(),
    n=st.sampled_from([1, 9, 64, 130, 300]),
    dtype=st.sampled_from(["f8", "f4", "f2", "i2"]),
    seed=seeds,
)
def test_a_row_keeps_its_bits_wherever_it_stands(model: Model, n: int, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = random_rows(model, n, seed, dtype, bad=0.1)
    engine = Engine(model)
    decision, status = engine.score(X)
    assert_bits(engine.score(X), (decision, status))
    order = rng.permutation(n)
    assert_bits(engine.score(X[order]), (decision[order], status[order]))
    often = rng.integers(n, size=500)
    assert_bits(engine.score(X[often]), (decision[often], status[often]))
    for i in rng.integers(n, size=3):
        assert_bits(engine.score(X[i : i + 1]), (decision[i : i + 1], status[i : i + 1]))
        assert_bits(engine.score(X[i : i + 9]), (decision[i : i + 9], status[i : i + 9]))
    assert_bits(
        engine.score(np.repeat(X[:1], 70, axis=0)),
        (np.repeat(decision[:1], 70, axis=0), np.repeat(status[:1], 70)),
    )
    assert_bits(
        engine.score(np.broadcast_to(X[0], (70, X.shape[1]))), engine.score(np.repeat(X[:1], 70, axis=0))
    )


@settings(max_examples=15)
@given(
    model=models(),
    n=st.sampled_from([1, 65, 300, 700]),
    tiles=st.sampled_from(
        [(64, 4096), (1, 1), (3, 7), (7, 3), (64, 64), (100, 50), (8, 1000), (4096, 65), (65, 129)]
    ),
    layout=st.sampled_from(["C", "F"]),
    seed=seeds,
)
def test_tiles_change_no_bit(model: Model, n: int, tiles: tuple[int, int], layout: str, seed: int) -> None:
    X = lay(random_rows(model, n, seed, "f4", bad=0.05), layout)
    engine, other = Engine(model), Engine(model)
    other.descent_rows, other.leaf_rows = tiles
    assert_bits(other.score(X), engine.score(X))
    engine.descent_rows, engine.leaf_rows = tiles  # of an engine that has scored rows before
    assert_bits(engine.score(X), other.score(X))


@settings(max_examples=20)
@given(model=models(), n=st.sampled_from(ROWS), dtype=st.sampled_from(DTYPES), seed=seeds)
def test_memory_layout_changes_no_bit(model: Model, n: int, dtype: str, seed: int) -> None:
    X = random_rows(model, n, seed, dtype, bad=0.1)
    engine = Engine(model)
    plain = engine.score(X)
    for order in LAYOUTS:
        assert_bits(engine.score(lay(X, order)), plain)


@settings(max_examples=15)
@given(model=models(), seed=seeds)
def test_dtype_changes_no_bit_of_small_whole_numbers(model: Model, seed: int) -> None:
    """Double precision and integers of 32 bits or more go another way, the same for all of them."""
    X = np.random.default_rng(seed).integers(0, 100, size=(70, model.n_features))
    engine = Engine(model)
    for group in (
        ["f4", "f2", "i1", "u1", "i2", "u2", ">i2", ">f4"],
        ["f8", "i4", "u4", "i8", "u8", ">f8", ">u8", "g"],
    ):
        first = engine.score(X.astype(group[0]))
        for dtype in group[1:]:
            assert_bits(engine.score(X.astype(dtype)), first)
    assert_bits(engine.score(X > 50), engine.score((X > 50).astype("u1")))


def test_every_half_precision_number() -> None:
    """All 65,536 of them, subnormal and infinite ones too."""
    X = np.arange(2**16, dtype=np.uint16).view(np.float16)
    shapes = ((1, "standard"), (16, "standard"), (16, "gaps"), (24, "coded gaps"))
    for model in (random_model(5, d=d, depth=1, scaling=scaling) for d, scaling in shapes):
        X = X[: len(X) // model.n_features * model.n_features]
        rows = X.reshape(-1, model.n_features)
        assert_bits(Engine(model).score(rows), Engine(model).score(rows.astype(np.float32)))


@settings(max_examples=20)
@given(
    model=models(),
    n=st.sampled_from([1, 8, 65, 200]),
    dtype=st.sampled_from(["f8", "f4", "f2", ">f4"]),
    seed=seeds,
)
def test_bad_rows_change_no_bit_of_others(model: Model, n: int, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = random_rows(model, n, seed, dtype)
    engine = Engine(model)
    decision, status = engine.score(X)
    for share, value in ((0.05, np.nan), (0.5, np.inf), (0.9, -np.inf), (0.5, np.nan)):
        if np.isnan(value) and model.scaling.knows_gaps:
            continue
        bad = rng.random(n) < share
        Y = X.copy()
        Y[bad, rng.integers(model.n_features)] = value
        ours, codes = engine.score(Y)
        assert_bits((ours[~bad], codes[~bad]), (decision[~bad], status[~bad]))
        assert (codes[bad] == Status.NON_FINITE_FEATURE).all()
        assert np.isnan(ours[bad]).all()


def test_four_threads_share_an_engine() -> None:
    for seed, (n_outputs, kernel) in enumerate([(26, "rbf"), *((1, name) for name in KERNELS)]):
        shape = {"d": 17, "n_outputs": n_outputs, "depth": 3, "leaf_scaling": seed % 2 == 0}
        model = random_model(seed, kernel, **shape)
        parts = [random_rows(model, 3000 + i, i, "f4", bad=0.01) for i in range(8)]
        engine = Engine(model)
        alone = [engine.score(part) for part in parts]
        with ThreadPoolExecutor(4) as pool:
            for ours, theirs in zip(pool.map(engine.score, parts * 3), alone * 3, strict=True):
                assert_bits(ours, theirs)
            fresh = random_model(seed, kernel, **shape)
            for ours, theirs in zip(
                pool.map(lambda X, m=fresh: scorer.score_rows(m, X), parts), alone, strict=True
            ):
                assert_bits(ours, theirs)


# -- the surface ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((4, 7), "f4"), ((4, 0), "f4"), ((3,), "f4"), ((2, 3, 4), "f4"), ((2, 3), "c16"), ((2, 3), "M8[s]")],
)
def test_what_the_definition_refuses_is_refused(shape: tuple[int, ...], dtype: str) -> None:
    model, X = random_model(0), np.zeros(shape, dtype)
    with pytest.raises(DataError) as theirs:
        compact_model.score_rows(model, X)
    for score in (Engine(model).score, lambda X: scorer.score_rows(model, X)):
        with pytest.raises(DataError) as ours:
            score(X)
        assert str(ours.value) == str(theirs.value)


def test_an_engine_is_made_once_and_goes_with_its_model() -> None:
    model = random_model(0)
    scorer.warm_up(model)
    assert scorer._engine(model) is scorer._engine(model)
    assert scorer._engine(random_model(0)) is not scorer._engine(model)
    before = len(scorer._engines)
    del model
    assert len(scorer._engines) < before


# -- trained models ------------------------------------------------------------------------------------------


def letter(folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    with np.load(folder / "letter.npz") as data:
        return data["X"], data["y"].astype(np.int64)


@pytest.mark.parametrize("products", [0, 300])
def test_letter(real_data: Path, products: int) -> None:
    X, y = letter(real_data)
    fitted = classifier_with(**LETTER, products=products, landmark_floor=0.1, random_state=0).fit(
        X[:15_000], y[:15_000] < 13
    )
    for dtype in ("u1", "f4", "f8"):
        assert_near(fitted.model_, X[15_000:].astype(dtype), labels=True)


def test_letter_with_all_classes(real_data: Path) -> None:
    X, y = letter(real_data)
    fitted = DCPredClassifier(n_leaves=16, landmarks=32, random_state=0).fit(X[:8_000], y[:8_000])
    assert fitted.model_.n_outputs == 26
    assert_near(fitted.model_, X[15_000:], labels=True)


def test_cpusmall(real_data: Path) -> None:
    with np.load(real_data / "cpusmall.npz") as data:
        X, y = data["X"].astype(float), data["y"].astype(float)
    fitted = DCPredRegressor(
        scaling="minmax",
        gamma=1.0,
        ridge=0.01,
        n_leaves=8,
        landmarks=32,
        random_state=0,
        settings=Settings(products=300),
    )
    assert_near(fitted.fit(X[:4_000], y[:4_000]).model_, X[4_000:])


# -- wider than a slab ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [256, 257, 300, 784])
def test_rows_of_several_slabs_keep_their_bits(d: int) -> None:
    """Blocks that are not full are filled up; what fills them must not be added to twice, slab after slab."""
    model = random_model(d, d=d, depth=2, sizes=(5, 16, 20), scaling="standard")
    X = random_rows(model, 75, 1, "f4")
    engine = Engine(model)
    whole = engine.score(X)
    for size in (1, 2, 3, 4, 5, 7, 9, 12, 20):
        parts = np.concatenate([engine.score(X[i : i + size])[0] for i in range(0, len(X), size)])
        np.testing.assert_array_equal(parts, whole[0])
    assert not list(differences(model, X, whole, compact_model.score_rows(model, X), 3e-6))


@pytest.mark.parametrize(("start", "spread"), [(1.7e18, 1e6), (1e12, 1e-3), (1.6e9, 1e-3)])
def test_features_that_single_precision_cannot_tell_apart(start: float, spread: float) -> None:
    """Time stamps in nanoseconds and the like, whose spread is far below the last place of two singles."""
    model = random_model(3, d=2, depth=2, sizes=(16,), scaling="none")
    factor = np.full(2, 1 / spread)
    model = replace(model, scaling=Scaling(np.full(2, start), factor))
    rng = np.random.default_rng(0)
    X = start + spread * rng.normal(size=(200, 2))
    X = X.astype(np.uint64) if spread > 1 else X
    assert not list(differences(model, X, Engine(model).score(X), compact_model.score_rows(model, X)))


def test_a_row_far_from_all_landmarks_gets_the_intercept() -> None:
    """Nothing of the output weights is left there, be they as large as single precision holds: they are not
    summed and taken away again in single precision.
    """
    model = random_model(4, d=3, depth=0, sizes=(16,), scaling="none")
    model = replace(model, beta=np.full_like(np.asarray(model.beta), 1e37), kernel=Kernel("rbf", 1.0))
    decision, status = Engine(model).score(np.full((1, 3), 100.0))
    assert status.tolist() == [Status.OK]
    np.testing.assert_allclose(decision[0], model.intercept[0], rtol=1e-6)


def test_large_terms_that_cancel_go_in_double_precision() -> None:
    """Output weights of 1e6 leave sums that single precision would miss by more than their last places."""
    model = random_model(5, d=3, depth=1, sizes=(16,), scaling="none")
    model = replace(model, beta=np.asarray(model.beta) * np.float32(1e6))
    X = random_rows(model, 300, 1, "f4")
    (ours, status), (theirs, right) = Engine(model).score(X), compact_model.score_rows(model, X)
    np.testing.assert_array_equal(status, right)
    np.testing.assert_allclose(ours, theirs, rtol=1.3e-7)


@pytest.mark.parametrize("leaves", [np.empty(4, np.int32), np.empty(10, np.int32)[::2]])
def test_room_for_leaf_numbers_is_looked_at(leaves: NDArray[np.int32]) -> None:
    """Compiled code writes wherever it is told to."""
    model = random_model(0)
    with pytest.raises(DataError, match="Cannot write 5 leaf numbers"):
        Engine(model).score(random_rows(model, 5, 0), leaves)
