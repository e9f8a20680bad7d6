"""Statistics of scored rows: each equals a plain count of the same rows, however they are cut; and what
counts as drift.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from dcpred_tasks.dtypes import Status
from dcpred_tasks.model.bins import fit_bins
from dcpred_tasks.model.compact_model import Model, Reference, score_rows
from dcpred_tasks.model.moments import feature_reference, raw_moments
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.result_fields import ABSENT
from dcpred_tasks.row_sampling import at_most, one_of_each
from dcpred_tasks.scoring.drift import describe_drift, drift, feature_shifts, leaf_drift
from dcpred_tasks.scoring.labels import score_with_leaves
from dcpred_tasks.scoring.outputs import columns, default_outputs, encode_outputs
from dcpred_tasks.scoring.statistics import (
    HASHED_ROWS,
    ScoredRows,
    Statistics,
    bad_features,
    decision_counts,
    decision_edges,
    sample_stride,
    sampled_positions,
    value_counts,
)
from support.models import SCALINGS, leaf_and_doubt, random_model, random_rows

VALUES = [0.0, -0.0, 2.0**-6, -(2.0**-6), 1.0, -1.0, 1.1, 1.25, 63.9, 64.0, -64.0, 1e30, -3e38, 1e-40]


def observed(model: Model, X: Any, stride: int = 1, cuts: tuple[int, ...] = ()) -> Statistics:
    """Statistics of rows in pieces, each packed and put together as the driver does."""
    outputs = default_outputs(model.task)
    total = Statistics(model, outputs)
    edges = [0, *cuts, len(X)]
    for start, stop in pairwise(edges):
        part = Statistics(model, outputs)
        rows = score_with_leaves(model, X[start:stop], score=score_rows)
        values = encode_outputs(model, columns(outputs), rows)
        done = ScoredRows(X[start:stop], rows.decision, rows.status, rows.leaf, values)
        part.observe(done, one_of_each(stop - start, stride, start))
        total.add_packed(part.packed())
    return total


@given(st.integers(0, 10**6), st.sampled_from([1, 3]), st.integers(1, 300))
def test_decision_histogram_is_a_plain_count(seed: int, n_outputs: int, n: int) -> None:
    model = random_model(1, n_outputs=n_outputs)
    rng = np.random.default_rng(seed)
    values = np.where(
        rng.random((n, n_outputs)) < 0.3, rng.choice(VALUES, (n, n_outputs)), rng.normal(0, 3, (n, n_outputs))
    )
    decision = values.astype(np.float32)
    edges = decision_edges(model)
    # an edge belongs to the bin outside
    away = np.nextafter(np.abs(edges), np.where(edges < 0, np.inf, 0)) * np.sign(edges)
    for column, counts in enumerate(decision_counts(model, decision)):
        expected = np.zeros(len(edges) + 1, int)
        for value in decision[:, column].astype(float):
            expected[int((value > np.where(edges < 0, edges, away)).sum())] += 1
        assert_array_equal(counts, expected)
    assert (np.diff(edges) > 0).all()
    assert_array_equal(edges, -edges[::-1])


def test_histogram_of_a_regression_covers_what_the_model_can_give() -> None:
    model = random_model(2, task="regression")
    low, high = model.bounds.min(), model.bounds.max()
    decision = np.array([low, (low + high) / 2, high, high])[:, None]
    counts = decision_counts(model, decision)
    assert counts.shape == (1, 64)
    assert (counts[0, 0], counts[0, 32], counts[0, 63]) == (1, 1, 2)
    assert len(decision_edges(model)) == 63
    same = replace(model, bounds=np.ones_like(model.bounds))
    assert decision_counts(same, decision).sum() == 4
    assert decision_counts(same, decision).shape[1] == len(decision_edges(same)) + 1


def test_many_rows_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(1, n_outputs=3)
    decision = np.random.default_rng(0).normal(size=(1_000, 3)).astype(np.float32)
    labels = decision.argmax(axis=1).astype(np.int8)
    whole = decision_counts(model, decision), value_counts(labels, np.arange(3, dtype=np.int8))
    monkeypatch.setattr("dcpred_tasks.scoring.statistics.COUNTED_ROWS", 7)
    monkeypatch.setattr("dcpred_tasks.scoring.statistics.FEW_VALUES", 2)
    assert_array_equal(decision_counts(model, decision), whole[0])
    assert_array_equal(value_counts(labels, np.arange(3, dtype=np.int8)), whole[1])
    assert whole[0].sum() == 3_000
    assert_array_equal(whole[1], np.bincount(labels))


@pytest.mark.parametrize(
    "values",
    [
        np.array([0, 1, 2], np.int8),
        np.array([-128, 127, -5], np.int8),
        np.array([300, -300, 7], np.int16),
        np.array([-(2**62), 0, 2**62]),
        np.array([0.5, -1.5, 1e300]),
    ],
    ids=lambda v: str(v.tolist()),
)
@pytest.mark.parametrize("few", [0, 16])
def test_value_counts(monkeypatch: pytest.MonkeyPatch, values: np.ndarray, few: int) -> None:
    monkeypatch.setattr("dcpred_tasks.scoring.statistics.FEW_VALUES", few)
    labels = values[[0, 2, 2, 1, 2]]
    assert value_counts(labels, values).tolist() == [1, 1, 3]
    assert value_counts(labels[:1], values).tolist() == [1, 0, 0]
    assert value_counts(labels[:0], values).tolist() == [0, 0, 0]


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("stride", [1, 3])
def test_sampled_rows_are_counted_in_the_leaf_that_scored_them(stride: int, scaling: str) -> None:
    model = random_model(stride, d=4, depth=3, scaling=scaling)
    X = random_rows(model, 200, 1, bad=0.1)
    total = observed(model, X, stride, (7, 100))
    X = X[one_of_each(len(X), stride)]
    X = X[score_rows(model, X)[1] == Status.OK]
    leaf, doubt = leaf_and_doubt(model, X)
    expected = np.bincount(leaf, minlength=model.n_leaves)
    assert np.abs(total.leaf_rows - expected).sum() <= 2 * doubt.sum()
    assert total.leaf_rows.sum() == len(X)


@pytest.mark.parametrize("scaling", ["none", "standard", "far"])
def test_moments_are_those_of_raw_rows(scaling: str) -> None:
    model = random_model(3, d=5, scaling=scaling)
    X = random_rows(model, 400, 1)
    total = observed(model, X, cuts=(1, 130, 131))
    found = raw_moments(model.scaling, total.moments)
    assert total.moments.n == 400
    sd = X.std(axis=0)
    assert np.abs((found.mean - X.mean(axis=0)) / sd).max() < 1e-5
    assert_allclose(found.sd, sd, rtol=1e-5)
    reference = feature_reference(model.scaling, X)
    assert np.abs((reference.mean - X.mean(axis=0)) / sd).max() < 1e-9
    assert_allclose(reference.sd, sd, rtol=1e-9)


def test_reference_of_many_rows_far_from_zero() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(1.6e9, 2.0, (10_000, 2))
    found = feature_reference(Scaling(np.full(2, 1.6e9), np.ones(2)), X)
    assert_allclose(found.sd, X.std(axis=0), rtol=1e-9)
    left_out = feature_reference(Scaling(np.array([1.6e9, 0.0]), np.array([0.0, 1.0])), X)
    assert_allclose(left_out.mean[0], X[:, 0].mean(), rtol=1e-12)
    assert_allclose(left_out.sd[0], X[:, 0].std(), rtol=1e-9)
    X[0, 0] = 1e300
    assert np.isfinite(feature_reference(Scaling(np.array([1.6e9, 0.0]), np.array([0.0, 1.0])), X).sd[0])


@pytest.mark.parametrize("earlier", [False, True])
def test_a_shift_of_a_feature_that_the_scaling_leaves_out_is_found(earlier: bool) -> None:
    X = np.random.default_rng(0).normal([1.0, 5.0, 2.0], [1.0, 2.0, 0.0], (900, 3))
    model = random_model(3, d=3)
    scaling = Scaling(X.mean(axis=0), np.array([1.0, 0.0, 0.0]))
    bins = fit_bins(X, X.min(axis=0), X.max(axis=0), np.zeros((9, model.n_outputs)), {})
    reference = feature_reference(scaling, X)
    if earlier:
        reference = replace(
            reference, sd=reference.sd * [1, 0, 0], mean=reference.mean + np.array([0, 0.1, 0])
        )
    model = replace(model, scaling=scaling, bins=bins, reference=reference, uncertainty=None)
    for by, expected in ((0.0, 0.0), (200.0, 100.0)):
        moved = X + np.array([0, by, 0])
        gathered = observed(model, moved, cuts=(100,))
        features = describe_drift(model, gathered, None, None).features
        assert features is not ABSENT
        shift = next(top.shift for top in features.top if top.feature == 1)
        assert shift == pytest.approx(expected, rel=0.1, abs=0.1)
        assert all(top.spread_shift == pytest.approx(0, abs=0.2) for top in features.top)
    gathered.moments.mean[1] = gathered.moments.squares[1] = 0.0  # as in records of earlier versions
    features = describe_drift(model, gathered, None, None).features
    assert all((top.shift, top.spread_shift) == (0, 0) for top in features.top if top.feature == 1)


@pytest.mark.parametrize("stride", [1, 3, 64])
def test_cuts_do_not_matter(stride: int) -> None:
    model = random_model(5, n_outputs=3, d=4)
    X = random_rows(model, 300, 2, bad=0.1)
    whole, cut = observed(model, X, stride), observed(model, X, stride, (10, 11, 200))
    assert_array_equal(whole.histogram, cut.histogram)
    assert_array_equal(whole.tallies["label"], cut.tallies["label"])
    assert_array_equal(whole.leaf_rows, cut.leaf_rows)
    assert_allclose(whole.moments.mean, cut.moments.mean, rtol=1e-5, atol=1e-6)
    assert_allclose(whole.moments.sd, cut.moments.sd, rtol=1e-5)
    decision, status = score_rows(model, X)
    good = status == Status.OK
    assert 0 < good.sum() < 300
    assert whole.histogram.sum(axis=1).tolist() == [good.sum()] * 3
    assert_array_equal(whole.tallies["label"], np.bincount(decision[good].argmax(axis=1), minlength=3))
    sampled = np.count_nonzero(good[one_of_each(300, stride)])
    assert whole.moments.n == whole.leaf_rows.sum() == sampled


def test_no_rows_at_all() -> None:
    model = random_model(5, n_outputs=3, d=4)
    total = observed(model, random_rows(model, 2, 0) * np.nan)
    assert (total.moments.n, total.histogram.sum(), total.tallies["label"].sum()) == (0, 0, 0)
    assert not drift(None, Reference(np.zeros(4), np.zeros(4)), model.leaf_rows, total.leaf_rows).large


@pytest.mark.parametrize(
    ("n_rows", "block_rows", "stride"),
    [(1, 1, 1), (2_000, 100, 1), (10**6, 2**14, 488), (10**9, 2**20, 1_024), (10**11, 2**22, 2_048)],
)
def test_how_many_rows_are_looked_at(n_rows: int, block_rows: int, stride: int) -> None:
    assert sample_stride(n_rows, block_rows) == stride


@given(st.integers(1, 5_000), st.integers(1, 60), st.lists(st.integers(0, 5_000), max_size=4))
def test_sampled_rows_do_not_depend_on_blocks(n_rows: int, stride: int, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, n_rows) for cut in cuts), n_rows]
    for rule in (None, HASHED_ROWS):
        parts = [a + sampled_positions(b - a, a, stride, rule) for a, b in pairwise(edges)]
        assert_array_equal(np.concatenate(parts), sampled_positions(n_rows, 0, stride, rule))
    found = one_of_each(n_rows, stride)
    assert len(np.unique(found // stride)) == len(found) >= n_rows // stride
    assert 0 < len(at_most(n_rows, 7)) <= 7


@pytest.mark.parametrize("period", [2, 7, 12, 24, 60])
def test_samples_do_not_beat_with_a_period_of_the_rows(period: int) -> None:
    for n_rows in range(4_096, 200_000, 7_919):
        stride = sample_stride(n_rows, 2**14)
        counts = np.bincount(one_of_each(n_rows, stride) % period, minlength=period)
        expected = counts.sum() / period
        assert np.abs(counts - expected).max() < 6 * np.sqrt(expected), n_rows


def test_the_first_bad_feature() -> None:
    X = np.array([[1, np.nan, np.inf], [1, 2, 3], [1, 1e200, 2], [np.inf, 1, np.nan]])
    assert bad_features(Scaling(np.zeros(3), np.ones(3)), X).tolist() == [1, -1, 1, 0]
    assert bad_features(Scaling(np.zeros(3), np.ones(3)), X[:0]).tolist() == []


# -- drift ---------------------------------------------------------------------------------------------------


def test_shift_by_hand() -> None:
    training = Reference(np.array([0.0, 1.0, 5.0, 5.0]), np.array([3.0, 1.0, 0.0, 0.0]))
    scored = Reference(np.array([5.0, 0.0, 5.0, 6.0]), np.array([4.0, 1.0, 0.0, 0.0]))
    assert_allclose(feature_shifts(training, scored), [5 / np.sqrt((9 + 16) / 2), -1.0, 0.0, np.inf])


def reference(*features: Any) -> Reference:
    rows = np.stack(features, axis=1)
    return Reference(rows.mean(axis=0), rows.std(axis=0))


@pytest.mark.parametrize("seed", range(20))
def test_another_unit_and_a_sensor_that_stands_still_are_drift(seed: int) -> None:
    """Their means are where they were. A rare flag that few rows have, or none now, is no drift."""
    rng = np.random.default_rng(seed)
    n, rows = 4_000, np.full(4, 1_000)
    middle = np.array([[0], [0], [0], [5]])
    known = rng.normal(size=(4, n)) + middle
    training = reference(*known, rng.random(n) < 5e-3)
    flags = rng.random(400) < 5e-3
    same = reference(*(rng.normal(size=(4, 400)) + middle), flags)
    assert drift(training, same, rows, rows // 10).large is False
    none = Reference(same.mean * [1, 1, 1, 1, 0], same.sd * [1, 1, 1, 1, 0])
    assert drift(training, none, rows, rows // 10).large is False
    new = rng.normal(size=(3, n))
    far = drift(
        training,
        reference(1000 * new[0], new[1] / 1000, new[2], np.full(n, 5.3), rng.random(n) < 5e-3),
        rows,
        rows,
    )
    assert far.features.n_large == 3
    top = {one.feature: one for one in far.features.top}
    assert [top[j].spread_shift is None for j in (0, 1, 3)] == [False, False, True]
    assert top[0].spread_shift > 5
    assert top[1].spread_shift < -5
    assert abs(top[0].shift) < 0.2
    assert abs(top[2].spread_shift) < 0.1


def test_a_factor_of_three_is_as_large_as_a_shift_that_is() -> None:
    training, rows = Reference(np.zeros(1), np.ones(1)), np.full(4, 1_000)
    for sd, large in ((3.01, True), (2.99, False), (1 / 2.99, False), (1 / 3.01, True)):
        assert drift(training, Reference(np.zeros(1), np.full(1, sd)), rows, rows).large is large
    constant = Reference(np.ones(1), np.zeros(1))
    assert drift(constant, constant, rows, rows).large is False
    told = drift(constant, Reference(np.array([1.5]), np.ones(1)), rows, rows).features.top[0]
    assert (told.spread_shift, told.sd_ratio) == (None, None)


def test_psi_by_hand() -> None:
    found = leaf_drift(np.array([5_000, 5_000]), np.array([7_500, 2_500]))
    assert found.psi == pytest.approx(0.25 * np.log(1.5) + 0.25 * np.log(2), rel=1e-3)
    assert found.n_bins == 2
    assert leaf_drift(np.array([7]), np.array([9])).psi == 0


@pytest.mark.parametrize("n", [150, 2_000, 100_000])
def test_the_same_rows_in_many_leaves_are_no_drift(n: int) -> None:
    """With 4,096 bins the index would be 2 by chance for 2,000 rows."""
    rng = np.random.default_rng(0)
    share = rng.dirichlet(np.ones(4_096))
    training, scored = rng.multinomial(500_000, share), rng.multinomial(n, share)
    found = leaf_drift(training, scored)
    assert found.psi_by_chance < 0.02
    assert found.psi < 0.05
    gone = np.where(np.arange(4_096) < 2_048, scored, 0)
    assert leaf_drift(training, gone).psi > 0.25


def test_large_drift_is_told_and_little_is_not() -> None:
    rows = np.full(4, 1_000)
    training = Reference(np.zeros(3), np.ones(3))
    near = drift(training, Reference(np.array([0.1, 0.0, -0.3]), np.ones(3)), rows, rows)
    assert (near.large, near.features.n_large) == (False, 0)
    assert [f.feature for f in near.features.top] == [2, 0, 1]
    far = drift(training, Reference(np.array([0.1, 2.0, -0.9]), np.array([1.0, 2.0, 1.0])), rows, rows)
    assert (far.large, far.features.n_large, far.leaves.large) == (True, 2, False)
    assert far.features.top[0].sd_ratio == 2.0
    moved = drift(training, training, rows, np.array([3_900, 30, 30, 40]))
    assert (moved.large, moved.leaves.large) == (True, True)
    assert moved.leaves.gained[0].leaf == 0
    few = drift(training, Reference(np.full(3, 9.0), np.ones(3)), rows, np.array([50, 0, 0, 0]))
    assert few.large is False  # too few to judge
    assert drift(None, training, rows, rows).features is None
