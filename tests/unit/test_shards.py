"""What a shard is, and how it is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcpred.runs.shards import Shard, parse_shard
from dcpred_tasks.errors import SettingsError

SLURM = {
    "SLURM_ARRAY_TASK_ID": "2",
    "SLURM_ARRAY_TASK_COUNT": "4",
    "SLURM_ARRAY_TASK_MIN": "0",
    "SLURM_ARRAY_TASK_MAX": "3",
}


@given(st.integers(1, 50), st.integers(0, 200))
def test_every_block_is_of_one_shard(count: int, n_blocks: int) -> None:
    blocks = [block for index in range(count) for block in Shard(index, count).blocks(n_blocks)]
    assert sorted(blocks) == list(range(n_blocks))


@pytest.mark.parametrize(
    ("text", "environment", "shard"),
    [
        ("0/1", {}, Shard(0, 1)),
        ("3/16", SLURM, Shard(3, 16)),
        ("auto/16", SLURM, Shard(2, 16)),
        ("auto", SLURM, Shard(2, 4)),
        ("auto", {"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_COUNT": "1"}, Shard(0, 1)),
        ("auto/8", {"JOB_COMPLETION_INDEX": "7"}, Shard(7, 8)),
        # One task of an array that is run again: nothing but the whole array's n is right.
        ("auto/4", SLURM | {"SLURM_ARRAY_TASK_COUNT": "1", "SLURM_ARRAY_TASK_MIN": "2"}, Shard(2, 4)),
    ],
)
def test_shards_by_name(text: str, environment: dict[str, str], shard: Shard) -> None:
    assert parse_shard(text, environment) == shard


@pytest.mark.parametrize(
    ("text", "environment", "sentence"),
    [
        ("4/4", {}, "Cannot score shard 4 of 4: they are numbered 0 to 3. Use one of those"),
        ("0/0", {}, "Cannot divide a run into 0 shards: it has 1 to 100,000. Use another n"),
        ("0/200000", {}, "Cannot divide a run into 200,000 shards: it has 1 to 100,000"),
        ("-1/4", {}, "Cannot score shard '-1/4': a shard is i/n"),
        ("1", {}, "a shard is i/n with 0 ≤ i < n, auto/n or auto. Write one of these"),
        ("1/4 ", {}, "a shard is i/n"),
        ("١/4", {}, "a shard is i/n"),
        ("", {}, "a shard is i/n"),
        ("auto", {}, "is set, and this is no task of an array. Write i/n"),
        ("auto/4", {}, "neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set"),
        ("auto", {"JOB_COMPLETION_INDEX": "1"}, "SLURM_ARRAY_TASK_COUNT is not set, and the number"),
        (
            "auto/4",
            {"JOB_COMPLETION_INDEX": "x"},
            "Cannot use JOB_COMPLETION_INDEX 'x': it is not an integer",
        ),
        ("auto/4", {"JOB_COMPLETION_INDEX": "4"}, "Cannot score shard 4 of 4"),
        (
            "auto",
            SLURM | {"SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "4"},
            "the 4 tasks of this array are not numbered 0 to 3. Submit it with --array=0-3, or write auto/n",
        ),
        ("auto", SLURM | {"SLURM_ARRAY_TASK_MAX": "6"}, "are not numbered 0 to 3"),
    ],
)
def test_what_is_no_shard_is_refused(text: str, environment: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as raised:
        parse_shard(text, environment)
    assert sentence in str(raised.value)
