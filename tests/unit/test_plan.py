"""Plans: arithmetic that holds for any data."""

import math
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcpred.cli import rendering
from dcpred.evaluation.figures import classes_of
from dcpred.execution import workers
from dcpred.execution.block_plan import HELD_BYTES, MAX_BLOCKS, growing_boundaries, plan_routing, plan_scoring
from dcpred.execution.terminal import Verbosity
from dcpred.serving import cost
from dcpred.training.steps import GROUP_ROWS, driver_bytes, leaf_groups, overlap_groups
from dcpred_tasks.errors import SchedulerError
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.scratch import LeafWork, Source
from dcpred_tasks.training.settings import make_settings
from support.models import random_model

rows = st.integers(1, 10**11)
chunks = st.integers(1, 10**7)


@pytest.fixture(autouse=True)
def timed_as_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """By clocks of the tests, which take no time."""
    monkeypatch.setattr(cost, "BUDGET_SECONDS", 1.5)
    monkeypatch.setattr(cost, "LOOP_SECONDS", 0.02)


@given(rows, st.integers(1, 5_000), st.sampled_from([1, 2, 4, 8]), chunks, st.integers(1, 30))
def test_scoring(n_rows: int, n_features: int, itemsize: int, input_rows: int, n_outputs: int) -> None:
    plan = plan_scoring(n_rows, n_features, itemsize, input_rows, n_outputs)
    assert plan.n_blocks <= MAX_BLOCKS
    assert plan.block_rows % plan.chunk_rows == 0 or plan.n_blocks == 1  # an output chunk has one writer
    assert plan.chunk_rows % input_rows == 0 or plan.chunk_rows == n_rows  # an input chunk is read once
    assert plan.chunk_rows * n_features * itemsize <= HELD_BYTES or plan.chunk_rows <= input_rows
    assert plan.n_blocks * plan.block_rows >= n_rows > (plan.n_blocks - 1) * plan.block_rows
    assert f"{n_rows:,} rows" in str(plan)


@given(st.integers(1, 10**6), st.integers(1, 100), st.integers(1, 10**5))
def test_spans_cover_every_row_once(n_rows: int, n_features: int, input_rows: int) -> None:
    plan = plan_routing(n_rows, n_features, 4, input_rows)
    spans = list(plan.spans())
    assert [block for block, _, _ in spans] == list(range(plan.n_blocks))
    edges = [0, *(stop for _, _, stop in spans)]
    assert edges[-1] == n_rows
    assert [start for _, start, _ in spans] == edges[:-1]


@given(st.lists(st.integers(1, 9_000), min_size=1, max_size=300))
def test_every_leaf_is_in_one_group(sizes: list[int]) -> None:
    work = [LeafWork(leaf, (Source(0, leaf),), n) for leaf, n in enumerate(sizes)]
    groups = leaf_groups(work)
    assert sorted(w.leaf for group in groups for w in group) == list(range(len(sizes)))
    assert all(len(group) == 1 or sum(w.n_rows for w in group) <= GROUP_ROWS for group in groups)
    assert max(sizes) in [w.n_rows for w in groups[0]]


def test_small_data_keep_several_workers_busy() -> None:
    assert plan_scoring(100_000, 64, 1, 8_192, 1).n_blocks >= 4


def test_cost_is_that_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of its own, on which a linear prediction takes 20 ns a row, and a model 1 ns a row for each
    landmark.
    """
    clock = SimpleNamespace(now=0.0)

    class Linear(np.ndarray):
        """Rows whose product with the weights takes time on that clock."""

        def __matmul__(self, w: Any) -> Any:
            clock.now += 20e-9 * len(self)
            return np.asarray(self) @ w

    def predict(model: Model, X: np.ndarray) -> None:
        clock.now += 1e-9 * len(model.landmarks) * len(X)

    monkeypatch.setattr(cost, "time", SimpleNamespace(thread_time=lambda: clock.now))
    monkeypatch.setattr(cost, "score_rows", predict)
    monkeypatch.setattr(cost, "padded_rows", lambda X: X.view(Linear))
    X = np.ones((1_000, 20), np.float32)
    for landmarks in (40, 200):
        model = random_model(0, d=20, depth=0, sizes=(landmarks,))
        assert len(model.landmarks) == landmarks
        found = cost.measure_cost(model, X, stream_bytes=2**20)
        for us_per_row in (found.us_per_row, found.cached_us_per_row):
            assert us_per_row == pytest.approx(landmarks / 1_000)
        for linear_us_per_row in (found.linear_us_per_row, found.cached_linear_us_per_row):
            assert linear_us_per_row == pytest.approx(0.02)
        for ratio in (found.cost_ratio, found.cached_cost_ratio):
            assert ratio == pytest.approx(landmarks / 20)


def test_the_unit_of_this_machine_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of its own, on which a look takes a millisecond: the least of all rounds, per row."""
    clock = SimpleNamespace(now=0.0, looks=0)

    def thread_time() -> float:
        clock.looks += 1
        clock.now += 1e-3 * (3 if clock.looks % 5 == 0 else 1)
        return clock.now

    monkeypatch.setattr(cost, "time", SimpleNamespace(thread_time=thread_time))
    cost.measured_linear_ns.cache_clear()
    loops = 20  # what LOOP_SECONDS have room for
    assert cost.measured_linear_ns(7, stream_bytes=32 * 1_000) == pytest.approx(1e6 / loops / 1_000)
    looks = clock.looks
    cost.measured_linear_ns(7, stream_bytes=32 * 1_000)
    assert clock.looks == looks
    cost.measured_linear_ns.cache_clear()


def test_a_linear_prediction_reads_rows_that_start_on_16_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of features; the model reads the rows as they are, and the filling changes no
    prediction.
    """
    rows = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    padded = cost.padded_rows(rows)
    assert (padded.shape, padded.strides) == ((50, 8), (32, 4))
    np.testing.assert_array_equal(padded, np.pad(rows, ((0, 0), (0, 1))))
    whole = np.ones((50, 8), np.float32)
    assert cost.padded_rows(whole) is whole

    model, read = random_model(0, d=7, depth=0, sizes=(4,)), []
    monkeypatch.setattr(cost, "score_rows", lambda _, X: read.append(X.shape[1]))
    monkeypatch.setattr(cost, "padded_rows", lambda X: read.append(-1) or padded)
    cost.measure_cost(model, rows, stream_bytes=2**12)
    assert set(read) == {7, -1}


def test_rows_of_one_feature_take_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of a stream are those of rows that are filled up."""
    seen: list[int] = []

    def padded_rows(X: np.ndarray) -> np.ndarray:
        seen.append(4 * cost.padded_features(X.shape[1]) * len(X))
        return np.zeros((len(X), 4), np.float32)

    monkeypatch.setattr(cost, "score_rows", lambda *_: None)
    monkeypatch.setattr(cost, "padded_rows", padded_rows)
    cost.measure_cost(random_model(0, d=1), np.ones((100, 1), np.float32), stream_bytes=2**20)
    assert seen[0] == pytest.approx(2**20, rel=0.01)


@pytest.mark.parametrize(("other", "told"), [(1.0, False), (2.0, True)])
def test_a_measurement_beside_other_work_says_between_what(
    monkeypatch: pytest.MonkeyPatch, other: float, told: bool
) -> None:
    """By a clock of its own, on which a row of the model takes `other` times as long in every second call."""
    clock = SimpleNamespace(now=0.0, calls=0)

    def thread_time() -> float:
        clock.now += 1e-4  # so that linear predictions are not looped over long
        return clock.now

    def score_rows(_: object, X: np.ndarray) -> None:
        clock.calls += 1
        clock.now += 1e-5 * len(X) * (other if clock.calls % 2 else 1.0)

    monkeypatch.setattr(cost, "time", SimpleNamespace(thread_time=thread_time))
    monkeypatch.setattr(cost, "score_rows", score_rows)
    found = cost.measure_cost(None, np.ones((1_000, 4), np.float32), stream_bytes=2**20)  # type: ignore[arg-type]
    assert found.beside_other_work == told
    assert found.most_cost_ratio == pytest.approx(other * found.least_cost_ratio, rel=0.05)
    quality = {"n_samples": 10, "n_bad": 0, "accuracy": 1.0}
    monkeypatch.setattr(rendering, "verbosity", lambda: Verbosity.MORE)
    said = rendering.shown(classes_of(quality), quality | asdict(found))
    between = f"{found.least_cost_ratio:.1f} to {found.most_cost_ratio:.1f}, beside other work"
    assert (between in said) == told


@pytest.mark.parametrize(
    ("more", "seconds"), [({}, 3.0), ({"budget_seconds": 8.0}, 16.0), ({"repeats": 3}, 3.0)]
)
def test_measuring_the_cost_keeps_to_its_budget(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], seconds: float
) -> None:
    """By a clock of its own, on which a row takes a tenth of a millisecond: streaming, and once more in
    cache.
    """
    clock = SimpleNamespace(now=0.0, scoring=0.0)

    def thread_time() -> float:
        clock.now += 1e-3
        return clock.now

    def score_rows(_: object, X: np.ndarray) -> None:
        clock.now += 1e-4 * len(X)
        clock.scoring += 1e-4 * len(X)

    monkeypatch.setattr(cost, "time", SimpleNamespace(thread_time=thread_time))
    monkeypatch.setattr(cost, "score_rows", score_rows)
    found = cost.measure_cost(None, np.ones((1_000, 4), np.float32), stream_bytes=2**20, **more)  # type: ignore[arg-type]
    assert clock.scoring == pytest.approx(seconds, rel=0.15)
    assert found.us_per_row == pytest.approx(100, rel=0.02)


@given(st.lists(st.integers(1, 9_000), min_size=1, max_size=300), st.integers(1, 5_000))
def test_pieces_of_a_halo_have_numbers_of_their_own(sizes: list[int], piece_rows: int) -> None:
    work = [LeafWork(leaf, (Source(0, leaf),), n) for leaf, n in enumerate(sizes)]
    groups = overlap_groups(work, piece_rows)
    assert [w for _, group in groups for w in group] == work
    numbers = [first for first, _ in groups]
    for (first, group), after in zip(groups, [*numbers[1:], math.inf], strict=True):
        rows = sum(w.n_rows for w in group)
        most = 1 if rows <= piece_rows else 2 * rows // piece_rows + (2 * rows % piece_rows > 0)
        assert first + most <= after, "of n pieces each two in a row hold more than piece_rows"


def test_memory_of_a_driver_does_not_grow_with_blocks_times_leaves() -> None:
    """A table of blocks × leaves would take 34 GiB at 10⁹ rows, and a terabyte at ten times as many."""
    for n_rows, most in ((10**7, 1.0), (10**9, 4.0), (10**10, 40.0)):
        plan = plan_routing(n_rows, 50, 4, 1)
        for overlap in (1, 3):
            settings = make_settings({"overlap": overlap})
            assert driver_bytes(plan, 50, 4, settings) < most * overlap * 2**30
    assert driver_bytes(plan_routing(10**6, 10_000, 4, 1), 10_000, 4, make_settings({})) < 6 * 2**30


def test_a_driver_with_too_little_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "memory_bytes", lambda: 2**30)
    workers.check_driver_memory(2**20, "nothing")
    with pytest.raises(
        SchedulerError,
        match=r"^Cannot start the driver: it needs about 2,348 MiB .* may use 1,024 MiB. do it, or",
    ):
        workers.check_driver_memory(2**31, "do it")


@pytest.mark.parametrize(
    ("n_rows", "sampled"), [(700, 700), (4_000, 4_000), (300_000, 2_000), (10**9, 100_000)]
)
def test_a_growing_input_has_rows_enough_to_sample(n_rows: int, sampled: int) -> None:
    """Limits of drift saw 23 of 700 rows, too few to differ."""
    assert n_rows // growing_boundaries(n_rows, 40, 1_000).stride >= sampled
