"""Samples depend on row numbers and the seed, and on nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcpred_tasks.training.survey import drawn, row_hash, sampled_rows, thinned

seeds = st.integers(0, 2**31 - 1)


def split_mix_64(row: int, seed: int) -> int:
    """The reference of Steele, Lea and Flood in Python's whole numbers: state = row + (seed + 1) · golden
    ratio.
    """
    mask = 2**64 - 1
    z = (row + (seed + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def test_first_value_of_the_published_generator() -> None:
    """SplitMix64 seeded with 0 starts with this number in every implementation."""
    assert int(row_hash(np.array([0]), 0)[0]) == 0xE220A8397B1DCDAF


@given(st.lists(st.integers(0, 2**53), min_size=1, max_size=20), seeds)
def test_hash_is_split_mix_64(rows: list[int], seed: int) -> None:
    assert [int(z) for z in row_hash(np.array(rows, np.int64), seed)] == [
        split_mix_64(row, seed) for row in rows
    ]


@given(
    n=st.integers(1, 2_000),
    size=st.integers(1, 2_500),
    seed=seeds,
    cuts=st.lists(st.integers(0, 2_000), max_size=5),
)
def test_drawn_rows_do_not_depend_on_blocks(n: int, size: int, seed: int, cuts: list[int]) -> None:
    rows = np.arange(n)
    blocks = np.split(rows, sorted(min(cut, n) for cut in cuts))
    whole = drawn(rows, n, size, seed)
    np.testing.assert_array_equal(np.concatenate([drawn(block, n, size, seed) for block in blocks]), whole)
    order = np.random.default_rng(seed).permutation(n)
    np.testing.assert_array_equal(drawn(rows[order], n, size, seed), whole[order])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [1, 500, 50_000, 99_999])
def test_size_is_near_the_target(size: int, seed: int) -> None:
    n = 100_000
    found = int(drawn(np.arange(n), n, size, seed).sum())
    assert abs(found - size) <= 5 * np.sqrt(size * (1 - size / n)) + 3  # five deviations of a binomial


@pytest.mark.parametrize("size", [10, 11, 10**9])
def test_all_rows_where_the_sample_is_as_large(size: int) -> None:
    assert drawn(np.arange(10), 10, size, 3).all()
    np.testing.assert_array_equal(thinned(np.arange(10) * 7, size, 3), np.arange(10))


def test_samples_are_spread_over_the_rows_and_differ_by_seed() -> None:
    n, size = 100_000, 10_000
    samples = [drawn(np.arange(n), n, size, seed) for seed in range(3)]
    for sample in samples:
        per_tenth = sample.reshape(10, -1).sum(axis=1)
        assert per_tenth.min() > 850
        assert per_tenth.max() < 1_150
    shared = int((samples[0] & samples[1]).sum())
    assert 800 < shared < 1_200  # independent: a tenth of a tenth


@given(
    st.lists(st.integers(0, 2**40), unique=True, max_size=200),
    st.integers(0, 250),
    st.integers(0, 250),
    seeds,
)
def test_thinned_is_exact_ascending_and_nested(rows: list[int], some: int, more: int, seed: int) -> None:
    numbers = np.array(rows, np.int64)
    small, large = sorted((some, more))
    few, many = thinned(numbers, small, seed), thinned(numbers, large, seed)
    assert len(few) == min(small, len(rows))
    assert (np.diff(few) > 0).all()
    assert set(few.tolist()) <= set(many.tolist())


@given(st.lists(st.integers(0, 2**40), unique=True, max_size=200), st.integers(1, 100), seeds, st.data())
def test_thinning_on_the_way_changes_nothing(
    rows: list[int], size: int, seed: int, data: st.DataObject
) -> None:
    """A worker that holds only some of the rows may thin them before the rest arrive."""
    numbers = np.array(rows, np.int64)
    cut = data.draw(st.integers(0, len(rows)))
    early = numbers[:cut][thinned(numbers[:cut], size, seed)]
    joined = np.concatenate([early, numbers[cut:]])
    assert set(joined[thinned(joined, size, seed)].tolist()) == set(
        numbers[thinned(numbers, size, seed)].tolist()
    )


def test_a_sample_of_wide_rows_is_bounded_by_its_numbers() -> None:
    assert sampled_rows(100_000, 8) == sampled_rows(100_000, 2_684) == 100_000
    assert sampled_rows(10**8, 10_000) * 10_000 * 4 <= 2**30
    assert sampled_rows(100, 10**9) == 16
