"""Refinement in machine code: the value and gradient of the definition, steps that lead as low, and the same
bits whoever calls it.
"""

import platform
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcpred import DCPredClassifier, load_model
from dcpred.execution.block_plan import BlockPlan
from dcpred.training.fit import TrainingRequest, fit_model, training_hashes
from dcpred_tasks.engine import compiler, machine_code
from dcpred_tasks.engine.machine_code import MachineCode, Target
from dcpred_tasks.engine.native_modules import ENGINE, REFINEMENT
from dcpred_tasks.errors import RefusedError, ResourceError
from dcpred_tasks.model.kernels import BY_NAME, KERNELS, Sum
from dcpred_tasks.training import compiled_refinement, lbfgs
from dcpred_tasks.training.compiled_refinement import (
    TILE_STRIPS,
    Arguments,
    arguments,
    call,
    in_strips,
    minimise,
)
from dcpred_tasks.training.objective import LOG_FACTOR, LOG_GAMMA
from dcpred_tasks.training.refinement import DONE
from dcpred_tasks.training.settings import Settings
from support.objectives import LOSSES, Doubles, near, problem
from support.pairs import pairwise
from support.pools import inline
from support.refinement_definition import Definition, adam, goal_value

TILE_ROWS = 16 * TILE_STRIPS


def evaluated(objective: Definition, theta: Doubles) -> tuple[float, Doubles]:
    """Value and gradient by machine code: those of the start of a search of no step."""
    handed = arguments(objective, 0, 0.0)
    handed.room.x[: len(theta)] = theta
    room = call(handed)
    np.testing.assert_array_equal(room.x[: len(theta)], theta)
    assert not room.gradient[len(theta) :].any()
    return float(room.value[0]), room.gradient[: len(theta)]


def check(objective: Definition, theta: Doubles) -> None:
    """Machine code and the definition agree within rounding of single precision."""
    value, gradient = evaluated(objective, theta)
    right, expected = objective(theta)
    assert value == pytest.approx(right, rel=1e-5)
    # Products and sums of absolute differences cancel more than squared distances do.
    limit = 1e-5 if BY_NAME[objective.basis.kernel.name].sum == Sum.SQUARES else 3e-5
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=limit * np.abs(expected).max())


# -- value and gradient --------------------------------------------------------------------------------------


@given(st.data())
def test_any_shape_and_loss(data: st.DataObject) -> None:
    m, k = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 11))
    products = data.draw(st.integers(0, m * (m + 1) // 2))
    n, d = data.draw(st.integers(1, 3 * TILE_ROWS)), data.draw(st.integers(1, 40))
    loss, own_factors = data.draw(st.sampled_from(list(LOSSES))), data.draw(st.booleans())
    kernel = data.draw(st.sampled_from(KERNELS))
    objective = problem(kernel, products, k, loss, n=n, m=m, d=d, own_factors=own_factors)
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    far = data.draw(st.sampled_from([0.0, 0.1, 1.0]))
    check(objective, objective.origin + far * rng.normal(size=len(objective.origin)))


@pairwise(
    n=(1, 15, 16, 17, TILE_ROWS - 1, TILE_ROWS, TILE_ROWS + 1),
    products=(0, 3),
    k=(1, 2, 3),
    loss=LOSSES,
    own_factors=(False, True),
)
def test_at_borders_of_strips_and_tiles(n: int, products: int, k: int, loss: str, own_factors: bool) -> None:
    for m, kernel in zip(cycle((7, 8, 9)), KERNELS, strict=False):
        objective = problem(kernel, products, k, loss, n=n, m=m, d=m, own_factors=own_factors)
        check(objective, objective.origin + 0.1)


def test_every_row_counts() -> None:
    """Its weight alone is 1."""
    objective = problem("rbf", 2, 2, "hinge 0.5", n=TILE_ROWS + 20)
    goal = objective.goal
    for row in (0, 15, 16, TILE_ROWS - 1, TILE_ROWS, TILE_ROWS + 19):
        objective.goal = replace(goal, weight=np.eye(len(goal.weight))[row])
        check(objective, objective.origin)


def test_a_guide_that_counts_nothing_may_be_anything() -> None:
    objective = problem("rbf", 2, 2, "hinge")
    objective.goal = replace(objective.goal, distilled=np.full_like(objective.goal.distilled, np.nan))
    check(objective, objective.origin)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("n", [1, 16, 33])
def test_near_the_local_machine(n: int, k: int) -> None:
    objective = near(k, n)
    check(objective, objective.origin)
    theta = objective.origin + 0.2 * np.random.default_rng(1).normal(size=len(objective.origin))
    theta[objective.at[3] :] = objective.origin[objective.at[3] :]  # γ stays that of the machine
    check(objective, theta)
    ours, theirs = minimise(objective, 3, 0.0), lbfgs.minimise(objective, objective.origin, 3, 0.0)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-3 * np.abs(theirs - objective.origin).max())


@pairwise(n=(1, 17, TILE_ROWS + 1), products=(0, 3), k=(1, 3), loss=LOSSES, own_factors=(False, True))
def test_decision_values_begin_from_an_offset(
    n: int, products: int, k: int, loss: str, own_factors: bool
) -> None:
    objective = problem("rbf", products, k, loss, n=n, m=5, d=4, own_factors=own_factors)
    plain, _ = objective(objective.origin)
    objective.X = objective.X.astype(np.float32)
    rng = np.random.default_rng(n)
    objective.goal = replace(objective.goal, offset=rng.normal(size=(n, k)))
    assert objective(objective.origin)[0] != pytest.approx(plain, rel=1e-3)
    check(objective, objective.origin + 0.1)
    orders, rates = [rng.permutation(n) for _ in range(2)], rng.uniform(0.01, 0.1, len(objective.origin))
    steps = 2 * max(n // 100, 1)
    ours = compiled_refinement.stochastic(objective, rates, steps // 2, orders, steps)
    theirs = adam(objective, rates, steps // 2, orders, steps)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-3 * np.abs(theirs - objective.origin).max())


def test_gamma_has_limits() -> None:
    objective = problem("rbf", 0, 1, "square")
    theta = objective.origin.copy()
    theta[-4:] = [-9, 9, LOG_GAMMA, 0]
    check(objective, theta)


def test_factors_have_limits() -> None:
    objective = problem("rbf", 0, 1, "square", own_factors=True)
    theta = objective.origin.copy()
    theta[-3:] = [-9, LOG_FACTOR, 0.5]
    check(objective, theta)


@pairwise(
    n=(1, 127, 128, 257, 300),
    products=(0, 3),
    k=(1, 2, 3),
    loss=LOSSES,
    own_factors=(False, True),
)
def test_stochastic_steps_are_those_of_the_definition(
    n: int, products: int, k: int, loss: str, own_factors: bool
) -> None:
    """In batches of one size, of two sizes and of all rows; also where they lead up."""
    objective = problem("rbf", products, k, loss, n=n, m=5, d=4, own_factors=own_factors)
    objective.X = objective.X.astype(np.float32)
    rng, n_batches = np.random.default_rng(n), max(n // 100, 1)
    orders, rates = [rng.permutation(n) for _ in range(3)], rng.uniform(0.01, 0.1, len(objective.origin))
    expected = adam(objective, rates, n_batches, orders, 3 * n_batches)
    found = compiled_refinement.stochastic(objective, rates, n_batches, orders, 3 * n_batches)
    moved = np.abs(expected - objective.origin).max()
    assert moved > 0.01
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 * moved)


@pytest.mark.parametrize("far", [1e6, 1e19, 1e30, -1e37])
@pytest.mark.parametrize("k", [1, 2])
def test_landmarks_far_off_add_nothing(far: float, k: int) -> None:
    """Also where their squares overflow."""
    objective = problem("rbf", 2, k, "hinge")
    objective.X = objective.X.astype(np.float32)
    theta = objective.origin.copy()
    theta[: objective.at[1]] = far
    value, _ = evaluated(objective, theta)
    f = np.tile(theta[objective.at[2] : objective.at[3]], (len(objective.X), 1))
    off = theta - objective.rest_point
    assert value == pytest.approx(goal_value(objective.goal, f)[0] + (objective.stiff * off) @ off, rel=1e-5)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e300])
@pytest.mark.parametrize("part", [0, 1, 2])
def test_what_is_not_finite_is_never_the_value_of_a_better_point(wrong: float, part: int) -> None:
    """Landmarks, output weights and intercepts that no step should lead to."""
    for k, products in ((1, 0), (2, 3)):
        objective = problem("rbf", products, k, "square")
        theta = objective.origin.copy()
        theta[objective.at[part]] = wrong
        value, _ = evaluated(objective, theta)
        assert not value < objective(objective.origin)[0]


# -- the search ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("products", [0, 6])
@pytest.mark.parametrize("k", [1, 3])
def test_the_same_steps(loss: str, products: int, k: int) -> None:
    """As lbfgs.minimise in double precision; rounding grows with the steps."""
    objective = problem("rbf", products, k, loss, n=90)
    for steps, apart in ((1, 1e-5), (2, 1e-4), (6, 1e-2)):
        ours = minimise(objective, steps, 0.0)
        theirs = lbfgs.minimise(objective, objective.origin, steps, 0.0)
        moved = np.abs(theirs - objective.origin).max()
        assert moved > 0
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=apart * moved)


@pairwise(kernel=KERNELS, loss=LOSSES, shape=((0, 1), (6, 1), (6, 3)))
def test_as_low_in_the_end(loss: str, kernel: str, shape: tuple[int, int]) -> None:
    """More steps than L-BFGS remembers."""
    objective = problem(kernel, *shape, loss, n=400, m=12, d=6, ridge=1e-3)
    begin = objective(objective.origin)[0]
    theirs = objective(lbfgs.minimise(objective, objective.origin, 150, DONE))[0]
    values = [objective(minimise(objective, steps, DONE))[0] for steps in (0, 1, 5, 25, 150)]
    assert values[0] == begin
    assert (np.diff(values) < 1e-6 * begin).all()
    assert begin - values[-1] > 0.95 * (begin - theirs)


def test_a_gain_too_small_ends_the_search() -> None:
    objective = problem("rbf", 0, 1, "square", n=200)
    assert (minimise(objective, 50, 1.0) == minimise(objective, 1, 0.0)).all()
    assert (minimise(objective, 50, 1.0) != minimise(objective, 50, 0.0)).any()


@pytest.mark.parametrize("where", ["rows", "goal"])
def test_a_search_that_goes_astray_leaves_everything_as_it_was(where: str) -> None:
    objective = problem("rbf", 2, 2, "square")
    if where == "rows":
        objective.X[3] = np.inf
    else:
        objective.goal = replace(objective.goal, target=np.full_like(objective.goal.target, np.nan))
    with np.errstate(invalid="ignore"):
        found = minimise(objective, 40, DONE)
    np.testing.assert_array_equal(found, objective.origin)


def test_huge_goals_end_as_in_numpy() -> None:
    """Their squares overflow in single precision."""
    objective = problem("rbf", 0, 1, "square")
    objective.goal = replace(objective.goal, target=1e25 * objective.goal.target)
    assert np.isfinite(minimise(objective, 40, DONE)).all()


# -- the same bits -------------------------------------------------------------------------------------------


def searched(number: int) -> bytes:
    objective = problem(
        "rbf", number % 3, 1 + number % 2, list(LOSSES)[number % len(LOSSES)], n=300 + number, m=9, d=7
    )
    return minimise(objective, 20, 0.0).tobytes()


def test_threads_do_not_matter() -> None:
    alone = [searched(number) for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(searched, range(12))) == alone


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86 processors")
def test_another_processor_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [searched(number) for number in range(8)]
    code = MachineCode(REFINEMENT.code, Target("x86-64-v3"), entry=REFINEMENT.entry)
    monkeypatch.setattr(machine_code, "own_code", lambda of: code)
    assert [searched(number) for number in range(8)] == alone


def test_rows_in_strips() -> None:
    rows = np.arange(34.0).reshape(17, 2)
    found = in_strips(rows, 3).reshape(2, 3, 16)
    np.testing.assert_array_equal(found[0, :2], rows[:16].T)
    np.testing.assert_array_equal(found[1, :2, 0], rows[16])
    assert not found[1, :, 1:].any()
    assert not found[:, 2].any()


# -- what is refused, and what happens without a compiler ----------------------------------------------------


def test_other_arguments_are_told() -> None:
    p, room = arguments(problem("rbf", 0, 1, "square"), 1, 0.0)
    with pytest.raises(RefusedError, match=r"Run python -m dcpred_tasks\.native"):
        call(Arguments(p._replace(share=0), room))  # type: ignore[arg-type]


def test_changed_sources_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    other = REFINEMENT._replace(sources=REFINEMENT.sources[1:])
    monkeypatch.setattr(compiled_refinement, "REFINEMENT", other)
    with pytest.raises(RefusedError, match=r"refinement\.bc: it was built from other sources"):
        minimise(problem("rbf", 0, 1, "square"), 1, 0.0)


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DCPRED_NO_COMPILER", "1")
    monkeypatch.setattr(compiler, "_failures", {})


def test_without_a_compiler_leaves_are_not_refined(
    no_compiler: None, blobs: Any, blobs_zarr: Path, tmp_path: Path
) -> None:
    """One sentence says so before anything is written, and its advice works."""
    refused = r"Cannot refine landmarks: .*switched off.* unset DCPRED_NO_COMPILER, or set refine=false"
    with pytest.raises(ResourceError, match=refused):
        DCPredClassifier(n_leaves=1, landmarks=4).fit(blobs.X, blobs.y)
    address = f"{blobs_zarr}/X", f"{blobs_zarr}/y"
    with pytest.raises(ResourceError, match=refused):
        fit_model(TrainingRequest(*address, tmp_path / "model", Settings(n_leaves=1), inline))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blobs.zarr"]
    with pytest.warns(RuntimeWarning, match="clusters of rows are searched by NumPy"):
        fit_model(TrainingRequest(*address, tmp_path / "model", Settings(n_leaves=1, refine=False), inline))
    with pytest.warns(RuntimeWarning, match="NumPy"):
        labels = load_model(tmp_path / "model").predict(blobs.X)
    assert np.mean(labels == blobs.y) > 0.8


def test_machine_code_is_compiled_once_for_all_leaves() -> None:
    minimise(problem("rbf", 0, 1, "square"), 1, 0.0)
    assert machine_code.own_code(REFINEMENT) is machine_code.own_code(REFINEMENT)
    assert machine_code.own_code(REFINEMENT) is not machine_code.own_code(ENGINE)
    assert machine_code.own_code(REFINEMENT).is_there()


def test_kernels_that_earlier_versions_refined_by_numpy_have_other_hashes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those trainings have other last bits now; the hash of an rbf kernel stays."""
    hashed: list[dict[str, object]] = []
    monkeypatch.setattr("dcpred.training.fit.digest_json", lambda identity: str(hashed.append(identity)))
    several = (Settings(), Settings(kernel="laplacian"), Settings(kernel="laplacian", refine=False))
    for settings in several:
        training_hashes({}, settings, BlockPlan(100, 100, 100, 1))
    states = [identity.get("refinement") for identity in hashed if "version" not in identity]
    assert states == [None, 2, None]
