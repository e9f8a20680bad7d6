"""Models that somebody made to do harm: compiled code follows their numbers, and their size in memory is not
that of their file.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcpred_tasks.artifacts import model_checks, model_layout
from dcpred_tasks.artifacts.model_checks import check_body, check_model, check_stored
from dcpred_tasks.engine.engine import Engine
from dcpred_tasks.engine.layout import laid_out_bytes
from dcpred_tasks.engine.packing import pack
from dcpred_tasks.errors import ModelFormatError, SettingsError
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.bins import Bins
from dcpred_tasks.model.compact_model import Model, Support
from dcpred_tasks.model.feature_map import Knots
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.leaf_arrays import LeafArrays, OutputWeights, are_offsets, join_leaves
from dcpred_tasks.model.one_hot import LARGEST_TABLE, WIDEST_RANGE, coded_columns
from dcpred_tasks.model.target_encoding import TargetEncoding
from dcpred_tasks.model.tree import Tree
from dcpred_tasks.model.uncertainty import LEVELS, Calibration, Intervals, Novelty, Scale, Uncertainty
from dcpred_tasks.process import memory_bytes
from dcpred_tasks.scoring.self_test import check_self_test, make_self_test
from dcpred_tasks.training import categories
from dcpred_tasks.training.categories import choose_codes
from dcpred_tasks.training.settings import make_settings
from support.models import random_model, random_rows, random_tree

# Ascending where differences of int64 wrap around, and no offsets at all.
WRAPPED = np.array([0, 2**62, 2**63 - 1, -(2**63), -(2**62), 3])


def chains(*starts: int, n: int) -> Tree:
    """A root whose children begin chains of nodes with one child, side by side: the last node of each leads
    to a leaf of its own.
    """
    ends = [*starts[1:], n]
    own = [
        [*range(start + 1, end), ~leaf] for leaf, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    children = [*starts, *(child for chain in own for child in chain)]
    at = [0, *range(len(starts), len(children) + 1)]
    return Tree(np.array(at), np.array(children, np.int32), np.zeros((len(children), 1), np.float32))


# -- trees ---------------------------------------------------------------------------------------------------


def test_a_node_with_two_parents_is_refused() -> None:
    """It has two levels: the quantised walk counts the nodes of one."""
    tree = chains(1, 4, n=6)
    tree.check(2, 1)
    joined = tree.children.copy()
    joined[0] = 5  # no node leads to node 1
    for children in (joined, np.where(tree.children == 2, 5, tree.children).astype(np.int32)):
        with pytest.raises(ValueError, match="name every node but the root once"):
            replace(tree, children=children).check(2, 1)


def test_a_long_chain_is_a_tree_and_many_levels_of_scattered_nodes_are_none() -> None:
    long = chains(1, n=50_000)
    long.check(1, 1)
    assert long.depth == 50_000
    np.testing.assert_array_equal(long.spans, np.arange(50_000)[:, None] + [0, 1])
    assert (long.rows_below(np.array([7])) == 7).all()
    with pytest.raises(ValueError, match="scatters the nodes of many levels"):
        chains(1, 3_000, n=6_000).check(2, 1)


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_rows_below_a_centre_and_spans_of_levels(seed: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 2, depth)
    tree.check(tree.n_leaves, 2)
    rows = rng.integers(0, 100, tree.n_leaves)
    ways = np.bincount(~tree.children[tree.children < 0])

    def below(child: int) -> float:
        if child < 0:
            return float(rows[~child] / ways[~child])
        return sum(below(int(one)) for one in tree.children[tree.starts[child] : tree.starts[child + 1]])

    np.testing.assert_allclose(tree.rows_below(rows), [below(int(child)) for child in tree.children])
    levels = tree.levels[tree.starts[:-1]]
    nodes = [np.flatnonzero(levels == level + 1) for level in range(tree.depth)]
    assert tree.spans.tolist() == [[own.min(), own.max() + 1] for own in nodes]


# -- offsets and sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [[0, 0, 3, 3], [0, 1, 2, 3]])
def test_offsets_that_ascend(at: list[int]) -> None:
    assert are_offsets(np.array(at), 3)


@pytest.mark.parametrize("at", [[], [0, 1], [1, 2, 3, 4], [0, 2, 1, 3], [0, -1, 2, 3], [[0, 1, 2, 3]]])
def test_what_are_no_offsets(at: Any) -> None:
    assert not are_offsets(np.array(at, np.int64), 3)


def five_leaves() -> Model:
    return replace(
        random_model(1, d=2, depth=0, sizes=(0,)),
        tree=Tree(np.array([0, 5]), ~np.arange(5, dtype=np.int32), np.zeros((5, 2), np.float32)),
        **join_leaves(Model, [_constant() for _ in range(5)]),
        leaf_rows=np.ones(5, np.int64),
    )


def _constant() -> LeafArrays:
    none, two = np.empty(0, np.float32), np.empty((0, 2), np.float32)
    return LeafArrays(two, none, np.empty((0, 2), np.int32), none, none[:, None], np.zeros(1), none, none)


@pytest.mark.parametrize("name", ["landmark_at", "pair_at", "triangle_at"])
def test_offsets_whose_differences_overflow_are_refused(name: str) -> None:
    model = five_leaves()
    check_model(model)
    with pytest.raises(ValueError, match=f"{name} does not ascend"):
        check_model(replace(model, **{name: WRAPPED}))


def test_offsets_of_weights_and_bins_whose_differences_overflow_are_refused() -> None:
    model = five_leaves()
    for name in ("at", "output_at"):
        with pytest.raises(ValueError, match="does not ascend"):
            replace(model.beta, **{name: WRAPPED}).check(5)
    bins = Bins(np.zeros(4, np.int64), np.empty(0), np.zeros(6, np.int64))
    model = random_model(0, d=2, depth=0, sizes=(0,))
    check_model(replace(model, bins=bins))
    with pytest.raises(ValueError, match="bin_at does not ascend"):
        check_model(replace(model, bins=replace(bins, at=np.array([0, 2**63 - 1, -(2**63), 0]))))


def test_features_of_a_target_encoding_whose_differences_overflow_are_refused() -> None:
    n = len(WRAPPED)
    with pytest.raises(ValueError, match="names a feature that a row does not have"):
        TargetEncoding(9, WRAPPED, 2 * np.arange(n + 1), np.zeros((2 * n, 1)))


def test_tables_of_categories_are_bounded_together() -> None:
    """Two codes are a table of 65,536 entries."""
    n = LARGEST_TABLE // (WIDEST_RANGE - 1)
    codes = {f: np.array([0, WIDEST_RANGE - 1]) for f in range(n + 1)}
    assert coded_columns(n, {f: codes[f] for f in range(n)}) is not None
    with pytest.raises(ValueError, match="columns are not those of features"):
        coded_columns(n + 1, codes)


def test_such_tables_are_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(categories, "LARGEST_TABLE", 1_000)
    sample = np.repeat([[0.0, 5.0], [600.0, 505.0], [1.0, 6.0]], 20, axis=0)
    sample = np.vstack([sample, sample[20:]])
    assert len(choose_codes(sample, make_settings({"categorical": "0"}), np.ones(len(sample)))) == 1
    with pytest.raises(SettingsError, match=r"reach over 1,100 integers.*Number the categories"):
        choose_codes(sample, make_settings({"categorical": "0,1"}), np.ones(len(sample)))


@pytest.mark.parametrize("scaling", ["standard", "coded", "additive", "quantile coded gaps"])
@pytest.mark.parametrize("d", [1, 40])
def test_the_size_of_a_laid_out_model_is_foreseen(scaling: str, d: int) -> None:
    for seed in range(5):
        model = random_model(seed, d=d, scaling=scaling, n_outputs=1 + 2 * (seed % 2), depth=3)
        columns = pack(model).columns
        taken = sum(one.nbytes for one in _arrays(pack(model))) - sum(one.nbytes for one in _arrays(columns))
        assert taken < 1.5 * laid_out_bytes(model) + 20_000


def _arrays(value: Any) -> list[np.ndarray[Any, Any]]:
    if isinstance(value, tuple):
        return [array for part in value for array in _arrays(part)]
    return [value] if isinstance(value, np.ndarray) else []


def test_a_model_too_large_for_the_engine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(0)
    size = laid_out_bytes(model)
    monkeypatch.setattr(model_checks, "LARGEST_LAYOUT", size)
    check_model(model)
    monkeypatch.setattr(model_checks, "LARGEST_LAYOUT", size - 1)
    with pytest.raises(ValueError, match=f"it takes {size:,} bytes to score, more than half"):
        check_model(model)


# -- what belongs together -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["source", "code", "map_centre", "map_sd", "map_at", "map_knot"])
def test_arrays_of_an_encoding_are_all_there(name: str) -> None:
    arrays = model_layout.arrays_of(random_model(0, d=12, scaling="quantile"))
    model_layout.check_sizes(arrays)
    del arrays[name]
    with pytest.raises(ValueError, match="is missing"):
        model_layout.check_sizes(arrays)


def test_intervals_have_all_arrays_of_their_scale() -> None:
    model = random_model(0, task="regression")
    arrays = model_layout.arrays_of(model)
    scale = Scale(model.beta_at, np.asarray(model.beta), model.intercept, model.bounds)
    whole = arrays | {f"scale_{name}": value for name, value in vars(scale).items()}
    model_layout.check_sizes(whole)
    for name in vars(scale):
        with pytest.raises(ValueError, match=f"array scale_{name} is missing"):
            model_layout.check_sizes({key: value for key, value in whole.items() if key != f"scale_{name}"})


def test_intervals_are_finite() -> None:
    model = random_model(0, task="regression")
    n = model.n_leaves
    zeros = np.zeros((n, model.n_columns), np.float32)
    novelty = Novelty(zeros, zeros + 1, np.zeros((n, len(LEVELS)), np.float32))
    scale = Scale(model.beta_at, np.asarray(model.beta), model.intercept, np.tile([0.0, 600.0], (n, 1)))
    plain = Intervals(np.full(n, 1e100), np.array([0.5]), np.array([3.0]))
    for intervals, own, fits in (
        (plain, None, True),
        (plain, scale, False),
        (replace(plain, spread=np.full(n, 1.0)), scale, True),
        (replace(plain, spread=np.full(n, 1e308)), None, False),
        (replace(plain, share=np.array([0.5]), signed=np.array([-1e250])), None, False),
    ):
        own_model = replace(model, uncertainty=Uncertainty(novelty, None, intervals, own))
        if fits:
            check_model(own_model)
        else:
            with pytest.raises(ValueError, match="intervals that are not finite"):
                check_model(own_model)


@pytest.mark.parametrize("weight", [0.0, -1.0, 1e-308, 1e305])
def test_weights_of_classes_leave_probabilities_numbers(weight: float) -> None:
    model = random_model(0)
    zeros = np.zeros((model.n_leaves, model.n_columns), np.float32)
    novelty = Novelty(zeros, zeros + 1, np.zeros((model.n_leaves, len(LEVELS)), np.float32))
    half = np.array([0.5, 0.5])
    own = Calibration(np.zeros(1), np.zeros(1), half, np.zeros(1), np.array([1.0, 1e-3]))
    check_model(replace(model, uncertainty=Uncertainty(novelty, own)))
    wrong = replace(own, weight=np.array([1.0, weight]))
    with pytest.raises(ValueError, match="calibration_weight holds a value outside"):
        check_model(replace(model, uncertainty=Uncertainty(novelty, wrong)))


@pytest.mark.parametrize("early", [False, True])
def test_kernel_values_of_many_rows_are_computed_in_parts(
    early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(5, d=3, n_outputs=3)
    n = model.n_leaves
    at, vectors = np.arange(n + 1), np.ones((n, 3), np.float32)
    support = Support(at, vectors, np.ones((n, 3), np.float32), np.zeros((n, 3)), np.ones(n))
    model, X = replace(model, support=support), random_rows(model, 300, 0)
    whole = compact_model.score_rows(model, X, early=early)
    monkeypatch.setattr(compact_model, "MOST_VALUES", 100)
    for one, other in zip(compact_model.score_rows(model, X, early=early), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("kept", ["gap", "map_centre"])
def test_an_encoding_without_columns_is_refused(kept: str) -> None:
    arrays = model_layout.arrays_of(random_model(0, d=12, scaling="quantile coded gaps"))
    held = {name: array for name, array in arrays.items() if name not in model_layout.CODING}
    with pytest.raises(ValueError, match="array source is missing"):
        model_layout.check_sizes(held)


def test_support_vectors_of_another_model_are_refused() -> None:
    model = random_model(2, d=3, n_outputs=3)
    n = model.n_leaves
    at, vectors = np.arange(n + 1), np.zeros((n, 3), np.float32)
    support = Support(at, vectors, np.zeros((n, 3), np.float32), np.zeros((n, 3)), np.ones(n))
    check_model(replace(model, support=support))
    for name in ("vectors", "dual", "intercept", "gamma"):
        wrong = getattr(support, name)
        wrong = np.concatenate([wrong, wrong[:, :1]], axis=1) if wrong.ndim > 1 else wrong[1:]
        with pytest.raises(ValueError, match=f"support_{name} has shape"):
            check_model(replace(model, support=replace(support, **{name: wrong})))


def test_a_regression_has_bounds_for_each_leaf() -> None:
    """An array without values has the size of no dimension."""
    for n in (1, 5):
        model = random_model(n, task="regression", depth=n // 5)
        check_model(model)
        with pytest.raises(ValueError, match="array bounds has shape"):
            check_model(replace(model, bounds=model.bounds[:0]))


def test_a_self_test_has_a_value_and_a_tolerance_for_each_row() -> None:
    model = random_model(0)
    test = make_self_test(model)
    check_self_test(model, test, "here")
    for name in ("decision", "tolerance"):
        with pytest.raises(ModelFormatError, match="its self-test has other features or outputs"):
            check_self_test(model, replace(test, **{name: getattr(test, name)[:0]}), "here")


def body(**changes: Any) -> dict[str, Any]:
    kernel = Kernel("rbf", 1.0).as_dict()
    own = {"classes": [0, 1], "kernel": kernel, "local_kernel": kernel, "triangle_bound": "lower"}
    return {"task": "classification", **own, "settings": {}, "arrays": {}} | changes


@pytest.mark.parametrize("classes", [["a", "b"], [False, True], [0, 2**64], [-1, 0.5, 1e300], [0, 1.5, "x"]])
def test_classes_that_are_told_apart(classes: Any) -> None:
    check_body(body(classes=classes))


@pytest.mark.parametrize(
    "classes", [["a"], ["a", "a"], [1, 1.0], [1, True], [1, "1"], [0, 10**400], [None, 1], [[0], [1]]]
)
def test_classes_that_are_not_are_refused(classes: Any) -> None:
    with pytest.raises(ValueError, match="class"):
        check_body(body(classes=classes))


def test_names_of_classes_are_bounded_together() -> None:
    check_body(body(classes=["a" * 2**20, *map(str, range(63))]))
    with pytest.raises(ValueError, match="a name that is too long"):
        check_body(body(classes=["a" * 2**20, *map(str, range(64))]))


def test_a_leaf_of_very_many_landmarks_is_refused() -> None:
    """The size of its terms at its landmarks is the square of their number."""
    model = random_model(1, d=2, depth=0, sizes=(1,))
    n = 2**20
    many = replace(
        model,
        landmarks=np.zeros((n, 2), np.float32),
        gamma=np.ones(n, np.float32),
        landmark_at=np.array([0, n]),
        pairs=np.empty((0, 2), np.int32),
        pair_at=np.zeros(2, np.int64),
        beta=OutputWeights.from_dense(np.ones((n, 1), np.float32), np.array([0, n])),
        beta_at=np.array([0, n]),
    )
    assert laid_out_bytes(many) > 2**44
    if memory_bytes() < 2**44:
        with pytest.raises(ValueError, match="more than half of this machine's memory"):
            check_model(many)


@pytest.mark.parametrize("name", ["gamma", "coef0"])
def test_a_number_that_no_float_holds_is_refused(name: str) -> None:
    kernel = Kernel("rbf", 1.0).as_dict() | {name: 10**400}
    for of in ("kernel", "local_kernel"):
        with pytest.raises(ValueError, match=f"gamma or coef0 of its {of}"):
            check_body(body(**{of: kernel}))


def test_an_array_of_very_many_chunks_is_refused() -> None:
    """A chunk that is absent is looked for, too."""
    for shape, chunks in (((2**14,), (1,)), ((2**34, 1), (2**17, 1)), ((3, 2**30), (1, 2**30)), ((0,), (1,))):
        check_stored("x", shape, chunks)
    for shape, chunks in (((2**20,), (1,)), ((2**34,), (2**10,)), ((2**15, 4), (1, 4))):
        with pytest.raises(ValueError, match="has chunks of only"):
            check_stored("x", shape, chunks)


# -- the engine and the definition ---------------------------------------------------------------------------


@pytest.mark.parametrize("scaling", ["clip", "quantile", "additive coded gaps"])
def test_a_number_that_a_map_leaves_out_has_the_factor_0(scaling: str) -> None:
    model = random_model(4, d=12, scaling=scaling)
    check_model(model)
    coding = model.scaling.coding
    assert coding is not None
    assert coding.map is not None
    number = int(np.flatnonzero(np.isnan(coding.code))[0])
    rate = coding.map.rate.copy()
    rate[coding.source[number]] = 0.0
    knots: dict[str, Any] = {}
    if isinstance(coding.map, Knots):
        first, last = coding.map.at[coding.source[number] :][:2]
        at = coding.map.at - np.where(np.arange(len(rate) + 1) > coding.source[number], last - first, 0)
        kept = np.r_[:first, last : len(coding.map.knot)]
        value = coding.map.value[kept]
        knots = {"at": at, "knot": coding.map.knot[kept], "value": value}
    rate[0 if coding.source[number] else -1] += not rate.any()
    lacking = replace(coding, map=replace(coding.map, rate=rate, **knots))
    factor = model.scaling.factor.copy()
    factor[number] = 0.0
    check_model(replace(model, scaling=replace(model.scaling, coding=lacking, factor=factor)))
    factor[number] = 0.5
    with pytest.raises(ValueError, match="factor is not 0 for a number that the map"):
        check_model(replace(model, scaling=replace(model.scaling, coding=lacking, factor=factor)))


@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
def test_a_landmark_of_a_huge_gamma_is_met_by_its_own_row_alone(kernel: str) -> None:
    """1e19 times the error of a product with it is no small number."""
    for seed in range(4):
        model = random_model(seed, kernel, d=17, scaling="none", depth=1, sizes=(7, 17))
        gamma = model.gamma.copy()
        gamma[::3] = 1e19
        model = replace(model, gamma=gamma)
        check_model(model)
        (decision, _), (right, _) = (
            score(model.landmarks)
            for score in (Engine(model).score, partial(compact_model.score_rows, model))
        )
        np.testing.assert_allclose(decision, right, atol=1e-3)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("weight", [0.0, -0.0, 1e-30])
def test_outputs_without_weights_are_constants_where_a_kernel_value_overflows(
    n_outputs: int, weight: float
) -> None:
    for seed in range(4):
        model = random_model(seed, "polynomial", n_outputs=n_outputs, sizes=(7, 17), depth=1)
        beta = np.asarray(model.beta).copy()
        beta[:, -1] = weight
        model = replace(
            model,
            beta=beta,
            kernel=replace(model.kernel, degree=10),
            gamma=np.full_like(model.gamma, 1e38),
        )
        check_model(model)
        X = random_rows(model, 60, seed) * 10.0 ** np.arange(-30, 30)[:, None]
        (decision, status), (right, right_status) = Engine(model).score(X), compact_model.score_rows(model, X)
        np.testing.assert_array_equal(status, right_status)
        assert (status != 1).any() or not np.any(beta)
        np.testing.assert_allclose(decision, right, rtol=1e-4)
