"""Shards of a scoring run: shard i of n does the blocks i, i + n, i + 2n, … of one common plan. All of them
share one ledger without a scheduler.

    OUTPUT/shards/I-of-N/lock     the driver of that shard: a lease as that of a whole run
    OUTPUT/shards/finish/lock     the shard that verifies everything and writes the manifest
    OUTPUT/shards/withdrawn.json  blocks that it found damaged and scores again, of any shard

Correctness depends on commit records alone, not on shards. Shards of different n may run at the same time; at
worst a block is scored twice.
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from dcpred.execution.lease import (
    INSTANT_SECONDS,
    Lease,
    acquire_lock,
    check_unlocked,
    expiry_seconds,
    lock_holder,
)
from dcpred_tasks.errors import RunHeldError, SettingsError
from dcpred_tasks.storage.addresses import below
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.place_types import Entry, Place

FOLDER = "shards"
MOST_SHARDS = 100_000  # no run has more blocks
LOCK_NAME = re.compile(rf"{FOLDER}/([0-9]{{1,6}})-of-([0-9]{{1,6}})/lock")
WRITTEN = re.compile(r"([0-9]{1,6}|auto)/([0-9]{1,6})|auto")
# Variables with the number of a task of an array, in order of precedence.
TASK_NUMBERS = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX")


@dataclass(frozen=True)
class Shard:
    """One of several parts of a run, which processes score side by side.

    Parameters
    ----------
    index : int
        Number of the part, from 0.
    count : int
        Number of parts.

    Raises
    ------
    SettingsError
        Unless 0 ≤ index < count.
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 < self.count <= MOST_SHARDS:
            raise SettingsError(
                f"Cannot divide a run into {self.count:,} shards: it has 1 to {MOST_SHARDS:,}. Use another n."
            )
        if not 0 <= self.index < self.count:
            raise SettingsError(
                f"Cannot score shard {self.index} of {self.count}: they are numbered 0 to"
                f" {self.count - 1}. Use one of those (of a Slurm array: --array=0-{self.count - 1})."
            )

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.index}-of-{self.count}"

    def blocks(self, n_blocks: int) -> range:
        """Return the numbers of its blocks.

        Parameters
        ----------
        n_blocks : int
            Number of blocks of the run.

        Returns
        -------
        range
            Every `count`-th block from `index`.
        """
        return range(self.index, n_blocks, self.count)


def parse_shard(text: str, environment: Mapping[str, str]) -> Shard:
    """The shard that `i/n`, `auto/n` or `auto` names. auto takes i from the array of this process, and
    without n also n, which only Slurm provides. Raises SettingsError.
    """
    match = WRITTEN.fullmatch(text)
    if match is None:
        raise SettingsError(
            f"Cannot score shard {text!r}: a shard is i/n with 0 ≤ i < n, auto/n or auto. Write one of these."
        )
    if match[1] not in (None, "auto"):
        return Shard(int(match[1]), int(match[2]))
    name = next((name for name in TASK_NUMBERS if environment.get(name)), "")
    if not name:
        raise SettingsError(
            f"Cannot score shard {text}: neither {' nor '.join(TASK_NUMBERS)} is set, and this is no"
            " task of an array. Write i/n."
        )
    index = _number(name, environment)
    if match[2]:
        return Shard(index, int(match[2]))
    if name != "SLURM_ARRAY_TASK_ID" or not environment.get("SLURM_ARRAY_TASK_COUNT"):
        raise SettingsError(
            "Cannot score shard auto: SLURM_ARRAY_TASK_COUNT is not set, and the number of shards is unknown."
            " Write auto/n."
        )
    count = _number("SLURM_ARRAY_TASK_COUNT", environment)
    if not _runs_from_zero(count, environment):
        raise SettingsError(
            f"Cannot score shard auto: the {count} tasks of this array are not numbered 0 to"
            f" {count - 1}. Submit it with --array=0-{count - 1}, or write auto/n with the n of the whole"
        )
    return Shard(index, count)


def _runs_from_zero(count: int, environment: Mapping[str, str]) -> bool:
    ends = {"SLURM_ARRAY_TASK_MIN": 0, "SLURM_ARRAY_TASK_MAX": count - 1}
    return all(_number(name, environment) == end for name, end in ends.items() if environment.get(name))


def _number(name: str, environment: Mapping[str, str]) -> int:
    value = environment[name]
    if not (value.isascii() and value.isdecimal() and len(value) <= 9):
        raise SettingsError(f"Cannot use {name} {value!r}: it is not an integer. Write the shard as i/n.")
    return int(value)


@contextmanager
def hold_shard(place: Place, shard: Shard) -> Iterator[Lease]:
    """Hold one shard of an output within a `with` statement. Raises RunHeldError if another process has
    it, or if a driver has the whole run.

    Guards against a driver D of the whole run (Ledger.claimed):

    1. D takes the lease of the output, then checks those of shards (`check_no_shards`).
    2. This takes the lease of the shard, then checks that of the output.
    3. The second one sees the first. If both check after both have taken, D leaves, and this one checks
       for a while, and stays.
    """
    folder = open_place(below(place.address, FOLDER, shard.name))
    folder.make_folder("")
    with ExitStack() as stack:
        lease = stack.enter_context(acquire_lock(folder))
        deadline = time.monotonic() + INSTANT_SECONDS
        while name := lock_holder(place):
            if time.monotonic() > deadline:
                raise RunHeldError(
                    f"Cannot score shard {shard} of {place.address}: {name} scores the whole run. Wait"
                    " for it to end, or stop it, and run again."
                )
            time.sleep(INSTANT_SECONDS / 10)
        yield lease


def known_shards(place: Place) -> dict[Shard, Entry]:
    """All shards that began, in their order, with their locks' entries in a listing."""
    entries: dict[Shard, Entry] = {}
    for name, entry in place.listing(FOLDER).items():
        match = LOCK_NAME.fullmatch(name)
        if match and int(match[1]) < int(match[2]) <= MOST_SHARDS:
            entries[Shard(int(match[1]), int(match[2]))] = entry
    return {shard: entries[shard] for shard in sorted(entries, key=lambda shard: (shard.count, shard.index))}


def shards_at_work(place: Place, shards: Mapping[Shard, Entry]) -> Iterator[tuple[Shard, str]]:
    """Those of these shards with a driver, and the drivers."""
    if not shards:
        return
    now = place.clock() if place.folder is None else None
    for shard, entry in shards.items():
        # On a store only signs that can count are read.
        if now is None or now - entry.time < expiry_seconds():
            name = lock_holder(open_place(below(place.address, FOLDER, shard.name)), now)
            if name:
                yield shard, name


def check_shard_free(place: Place, shard: Shard) -> None:
    """Raise RunHeldError at once if this shard has a driver."""
    check_unlocked(open_place(below(place.address, FOLDER, shard.name)))


def check_no_shards(place: Place) -> None:
    """Raise RunHeldError if any shard of an output has a driver."""
    for shard, name in shards_at_work(place, known_shards(place)):
        raise RunHeldError(
            f"Cannot score {place.address}: shard {shard} is in use by {name}. Wait for all shards to end, or"
            " stop them, and run again."
        )
