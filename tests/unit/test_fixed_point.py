"""The walk down by 16-bit whole numbers: what it loses is bounded, and no leaf tells that it was used."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from llvmlite import binding

from dcpred_tasks.dtypes import ACC_DTYPE
from dcpred_tasks.engine import layout, machine_code, packing
from dcpred_tasks.engine.engine import Engine
from dcpred_tasks.engine.machine_code import (
    HAS_PAIR_PRODUCTS,
    HAS_WIDE_VECTORS,
    LEVELS,
    PAIR_PRODUCTS,
    MachineCode,
    Target,
    host,
    own_code,
)
from dcpred_tasks.engine.native_modules import ENGINE
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.scaling import Scaling
from support.models import (
    constant_leaves,
    differences,
    fixed_cases,
    leaf_and_doubt,
    random_model,
    random_rows,
)

# The walk by whole numbers for processors without an instruction for it, too; they run the plain version.
EVERYWHERE = {("avx2",): f"define i1 @{HAS_PAIR_PRODUCTS}() {{ ret i1 true }}"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> MachineCode:
    """The walk by whole numbers, by plain operations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine_code, "NATIVE_OPS", EVERYWHERE)
        code = MachineCode(own_code(ENGINE).bitcode, Target(host().cpu, host().features))
        code.folders = [tmp_path_factory.mktemp("cache")]  # Others may hold this machine's own code.
        code.entry()
    assert code.has_compiled
    return code


def gaussian(d: int, k: int, seed: int = 0, size: float = 1.0, origin: float = 0.0) -> Model:
    """One node of k normal centres."""
    rng = np.random.default_rng(seed)
    return constant_leaves((origin + size * rng.normal(size=(k, d))).astype(np.float32))


@pytest.mark.parametrize("d", [33, 54, 300, 784])
@pytest.mark.parametrize("skewed", [False, True])
def test_the_bound_holds(d: int, skewed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole numbers fit, sums stay in 32 bits, and no two scores of a node are off by more than is said."""
    rng = np.random.default_rng(d)
    model = random_model(d, d=d, depth=3, scaling="none")
    if skewed:  # One feature holds nearly all of a norm.
        tree = replace(model.tree, centres=model.tree.centres * (1 + 1e3 * (np.arange(d) == 1)).astype("f4"))
        model = replace(model, tree=tree)
    monkeypatch.setattr(packing, "UNDECIDED_ROWS", 2.0)
    middle = layout.origin(model)
    fixed = packing.fixed_nodes(model, np.arange(d), middle)
    assert len(fixed.unit) == model.tree.n_nodes
    numbers = fixed.numbers.reshape(len(fixed.unit), -1, 16, 2).transpose(0, 2, 1, 3).astype(float)
    numbers = numbers.reshape(len(fixed.unit), 16, -1)[:, :, :d]
    assert np.abs(numbers).max() <= 32_767
    assert np.sqrt((numbers**2).sum(axis=2)).max() * (layout.FIXED_NORM + np.sqrt(d)) < 2**31
    for node, (first, last) in enumerate(pairwise(model.tree.starts)):
        centres = model.tree.centres[first:last].astype(ACC_DTYPE) - middle
        own = numbers[node, : len(centres)]
        x = rng.normal(size=(50, d)) + centres[rng.integers(len(centres), size=50)]
        x[:10] = centres[rng.integers(len(centres), size=10)]
        norm = np.sqrt((x**2).sum(axis=1, keepdims=True))
        X = np.rint(x * (layout.FIXED_NORM / norm))
        assert np.abs(X).max() <= 32_767
        off = X @ own.T * (norm * float(fixed.unit[node])) - x @ centres.T
        spread = np.ptp(off, axis=1)  # What all centres share does not matter.
        limit = float(fixed.error[node]) * norm[:, 0] * float(np.sqrt((centres**2).sum(axis=1)).max())
        np.testing.assert_array_less(spread, limit)


@pytest.mark.parametrize("d", [33, pytest.param(54, marks=pytest.mark.long), 200])
def test_rows_on_the_borders_of_the_tree(d: int, plain: MachineCode) -> None:
    """Off the middle of two centres by what whole numbers can tell, by what single precision can, and by
    less: the leaf is the definition's.
    """
    rng = np.random.default_rng(d)
    used = by_numbers = 0
    for seed in range(20):
        size, origin, k = (
            rng.choice([1e-3, 1.0, 1e3]),
            rng.choice([0.0, 1.0, 100.0]),
            rng.choice([2, 3, 15, 16]),
        )
        model = gaussian(d, k, seed, size, origin)
        centres = model.tree.centres.astype(float)
        i, j = rng.integers(k, size=(2, 400))
        off = rng.normal(size=(400, 1)) * 10 ** rng.uniform(-9, -1, (400, 1))
        X = ((centres[i] + centres[j]) / 2 + off * (centres[j] - centres[i])).astype(rng.choice(["f4", "f8"]))
        leaf, doubt = leaf_and_doubt(model, X)
        for code in (None, plain):
            engine = Engine(model, code)
            np.testing.assert_array_equal(engine.score(X)[0][~doubt, 0], leaf[~doubt])
        by_numbers += len(engine.packed.fixed.unit) > 0
        used += np.count_nonzero(~doubt)
    assert by_numbers > 5
    assert used > 5_000


def worst_case(d: int, rng: np.random.Generator, n: int) -> tuple[Model, Any]:
    """A node, and rows near the middle of its centres 0 and 1, of whose features each is rounded so that the
    same one gains.

    The two centres differ by as much in every feature, and the third is as far from them. A row x has the
    whole numbers q where FIXED_NORM x / ‖x‖ = q ± 0.49 s, s being the signs of that difference. For that
    ‖q ± 0.49 s‖ is made FIXED_NORM, by the largest number of q.
    """
    signs, away = rng.choice([-1.0, 1.0], d), rng.normal(size=d)
    away -= (away @ signs) / d * signs
    away *= 1.7 * np.sqrt(d / (away @ away))
    model = constant_leaves(np.array([signs, -signs, away]))
    middle, rows = layout.origin(model), []
    for _ in range(n):
        x = rng.uniform(-1, 1) * 1e-5 * np.sqrt(d) * signs - middle
        size = np.sqrt(x @ x) / layout.FIXED_NORM
        q = np.rint(x / size) + rng.choice([-0.49, 0.49]) * signs
        largest = np.abs(q).argmax()
        for _ in range(3):
            q[largest] += np.rint((layout.FIXED_NORM**2 - q @ q) / 2 / q[largest])
        rows.append(q * size + middle)
    return model, np.array(rows)


@pytest.mark.parametrize("d", [33, 54, 300])
def test_rows_that_rounding_moves_most(d: int, plain: MachineCode) -> None:
    """Without a margin some of them would go to the other centre, and with half of it, too."""
    rng = np.random.default_rng(d)
    moved = 0
    for _ in range(10):
        model, X = worst_case(d, rng, 200)
        leaf, doubt = leaf_and_doubt(model, X)
        engine = Engine(model, plain)
        assert len(engine.packed.fixed.unit) == 1
        np.testing.assert_array_equal(engine.score(X)[0][~doubt, 0], leaf[~doubt])
        x, centres = X - layout.origin(model), model.tree.centres - layout.origin(model)
        size = np.sqrt((x**2).sum(axis=1, keepdims=True)) / layout.FIXED_NORM
        scores = np.rint(x / size) * size @ centres.T - (centres**2).sum(axis=1) / 2
        moved += np.count_nonzero(scores.argmax(axis=1) != leaf)
    assert moved > 100, moved


def test_most_rows_are_decided_by_whole_numbers(plain: MachineCode) -> None:
    model = gaussian(54, 16)
    X = np.random.default_rng(1).normal(size=(200, 54)).astype("f4")
    engine = Engine(model, plain)
    leaf, doubt = leaf_and_doubt(model, X)
    np.testing.assert_array_equal(engine.score(X)[0][~doubt, 0], leaf[~doubt])
    going, undecided = engine._of_thread.arguments.room.state[:2]
    assert going == 0
    assert 0 <= undecided < 10


def test_rows_without_length_and_rows_far_out(plain: MachineCode) -> None:
    """A row at the origin has no direction; the norm of a row far out overflows."""
    model = gaussian(40, 16)
    centre = layout.origin(model)
    X = np.repeat(centre[None], 60, axis=0)
    X[1:30] += 10.0 ** np.arange(-26, 32, 2)[:, None] * np.random.default_rng(0).normal(size=40)
    X[40, 3], X[41, 0] = np.nan, np.inf
    engine = Engine(model, plain)
    assert len(engine.packed.fixed.unit) == 1
    ours, right = engine.score(X), compact_model.score_rows(model, X)
    np.testing.assert_array_equal(ours[1], right[1])
    assert not list(differences(model, X, ours, right))


def test_it_is_left_out_where_it_decides_little() -> None:
    """Few features, centres too near to each other, factors or centres that single precision cannot hold."""
    assert len(Engine(gaussian(32, 16)).packed.fixed.unit) == 0
    assert len(Engine(gaussian(33, 16)).packed.fixed.unit) == 1
    centres = np.ones((1, 40)) + 1e-4 * np.random.default_rng(0).normal(size=(16, 40))
    near = constant_leaves(np.concatenate([centres, -centres])[[0, 1, 2, 16, 17, 18]])
    assert len(Engine(near).packed.fixed.unit) == 0
    assert len(Engine(gaussian(40, 16, size=1e20)).packed.fixed.unit) == 0
    model = gaussian(40, 16)
    tiny = replace(model, scaling=Scaling(model.scaling.shift, np.full(40, 1e-31)))
    assert len(Engine(tiny).packed.fixed.unit) == 0


def test_equal_centres_are_left_to_double_precision(plain: MachineCode) -> None:
    """A tie goes to the lower number."""
    model = constant_leaves(np.ones((5, 40)) * np.array([1, 1, -1, -1, 3.0])[:, None])
    X = np.random.default_rng(0).normal(size=(50, 40)).astype("f4")
    ours, right = Engine(model, plain).score(X), compact_model.score_rows(model, X)
    for a, b in zip(ours, right, strict=True):
        np.testing.assert_array_equal(a, b)


# -- the same bits -------------------------------------------------------------------------------------------


def wide_cases() -> list[tuple[Model, Any]]:
    """Trees of several levels and leaves of several groups, more rows than a tile holds."""
    cases = [
        (d, depth, sizes) for d in (33, 54, 300) for depth in (1, 3) for sizes in ((5, 40), (33,), (64,))
    ]
    models = [random_model(d + depth, d=d, depth=depth, sizes=sizes) for d, depth, sizes in cases]
    return [(model, random_rows(model, 400, 1, "f4", bad=0.02)) for model in models]


def test_plain_operations_give_the_same_bits(plain: MachineCode) -> None:
    """And so does a walk without whole numbers, a group of landmarks at a time."""
    without = MachineCode(own_code(ENGINE).bitcode, Target("x86-64-v3"))
    assert not {"avx512f", "avx512vnni"} & without.target.has
    for model, X in [*wide_cases(), *list(fixed_cases())[-20::3]]:
        right = Engine(model).score(X)
        for code in (plain, without):
            for a, b in zip(Engine(model, code).score(X), right, strict=True):
                assert a.tobytes() == b.tobytes()


def test_wide_cases_are_the_definition() -> None:
    for model, X in wide_cases():
        ours, right = Engine(model).score(X), compact_model.score_rows(model, X)
        assert not list(differences(model, X, ours, right, 3e-6))


# -- instructions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "pairs", "wide"),
    [
        (Target("x86-64-v3"), False, False),
        (Target("x86-64-v4"), False, True),
        (Target("x", "+avx512f,+avx512bw,+avx512vnni"), True, True),
        (Target("x", "+avx512f,-avx512bw,-avx512vnni"), False, True),
        (Target("generic"), False, False),
    ],
)
def test_processors_get_their_own(target: Target, pairs: bool, wide: bool) -> None:
    module = binding.parse_bitcode(own_code(ENGINE).bitcode)
    machine_code.link_native(module, target.has)
    module.verify()
    text = {each.name: str(each) for each in module.functions if each.name in machine_code.NAMES}
    assert ("ret i1 true" in text[HAS_PAIR_PRODUCTS], "vpdpwssd" in text[PAIR_PRODUCTS]) == (pairs, pairs)
    assert ("ret i1 true" in text[HAS_WIDE_VECTORS]) == wide


def test_a_level_has_what_is_below_it() -> None:
    assert Target("x86-64-v3").has == LEVELS["x86-64-v3"]
    assert Target("x86-64-v4").has == LEVELS["x86-64-v3"] | LEVELS["x86-64-v4"]
    assert Target("haswell", "+a,-b").has == {"a"}
