"""Reuse blocks of an earlier run whose input did not change: their output chunks get a second name, and their
commit records are rewritten.

1. Output chunks are linked or copied. A chunk without a record does not count: later scoring of its block
   writes it anew, under its own name alone, because chunks are written by renaming.
2. The record of a block is read from the earlier run, and written with the hash of the new one and the name
   of the run that scored the block. Only then is the block done.

Reused blocks are not decoded. The verification at the end of every run finds chunks that are missing or of
another size, and scores their blocks again; `dcpred verify --level full` finds other damage in both.
"""

import secrets
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from dcpred.execution.held_places import Lock
from dcpred.execution.progress import Reporter
from dcpred.refresh.root import Root, each_of
from dcpred.runs.latest import RUNS
from dcpred_tasks.artifacts.commit_records import (
    CommitRecord,
    ScoreRun,
    list_records,
    parsed_record,
    record_bytes,
)
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.storage.atomic_files import replace_bytes, resource_errors, sync_file_system
from dcpred_tasks.storage.input_chunks import InputState
from dcpred_tasks.storage.place import Entry, Folder, Place
from dcpred_tasks.storage.retry import Retrying

LOOK_BLOCKS = 256  # blocks between two checks whether another driver took over


def can_take_over(old: ScoreRun, run: ScoreRun) -> bool:
    """Whether blocks of one run may be those of another, by their plans."""
    kept = ("x", "model_hash", "outputs", "alpha", "costs", "chunk_rows", "block_rows", "stride")
    return all(getattr(old, name) == getattr(run, name) for name in kept)


def unchanged_blocks(old: ScoreRun, before: InputState, run: ScoreRun, now: InputState) -> list[int]:
    """Blocks that hold the same rows in both runs, made of the same input chunks; all others must be
    scored. The plans allow it (`can_take_over`).
    """
    n_blocks = -(-min(old.n_rows, run.n_rows) // run.block_rows)
    return [
        block
        for block in range(n_blocks)
        if old.rows(block) == run.rows(block) and now.unchanged(before, *run.rows(block))
    ]


def take_over(
    root: Root,
    source: str,
    name: str,
    run: ScoreRun,
    model: Model,
    blocks: list[int],
    lease: Lock,
    say: Reporter,
) -> int:
    """Reuse blocks of run `source` in run `name`, which is `run`; blocks that have a record there stay
    unchanged. Returns the number of reused blocks.
    """
    old = root.run(source)
    if old is None:
        return 0
    there, known = list_records(run), list_records(old)
    wanted = [block for block in blocks if block in known and block not in there]
    place, n = root.place, 0
    suffixes = {column.name: "/0" * len(column.row_shape(model)) for column in run.columns}
    with say.step("reusing", 2 * len(wanted), "blocks") as advance:
        whole = []
        link = partial(_link_chunks, place, source, name, run, suffixes)
        for block, done in each_of(place, link, wanted):
            if done:
                whole.append(block)
            _look(block, lease)
            advance(1)
        stored = place.listing(f"{RUNS}/{name}/scores.zarr") if not isinstance(place, Folder) else {}
        renew = partial(_renew_record, old, source, run, suffixes, f"{RUNS}/{name}", stored)
        for block, done in each_of(place, renew, whole):
            n += done
            _look(block, lease)
            advance(1)
        if n and isinstance(place, Folder):
            # Records were written without waiting for the disk, one by one.
            sync_file_system(place.path)
    return n


def _look(block: int, lease: Lock) -> None:
    if lease.lost or block % LOOK_BLOCKS == 0:
        lease.check()


def _chunks(run: ScoreRun, suffixes: dict[str, str], block: int) -> Iterator[tuple[str, str]]:
    """The output chunks of a block: array, and name below the run."""
    for array, suffix in suffixes.items():
        for start, _ in run.chunks(block):
            yield array, f"scores.zarr/{array}/c/{start // run.chunk_rows}{suffix}"


def _link_chunks(
    place: Place, source: str, name: str, run: ScoreRun, suffixes: dict[str, str], block: int
) -> bool:
    """Whether all chunks of a block existed."""
    retrying = Retrying()
    for _, chunk in _chunks(run, suffixes, block):
        try:
            retrying(partial(place.duplicate, f"{RUNS}/{source}/{chunk}", f"{RUNS}/{name}/{chunk}"))
        except FileNotFoundError:
            return False
    return True


def _renew_record(
    old: ScoreRun,
    source: str,
    run: ScoreRun,
    suffixes: dict[str, str],
    folder: str,
    stored: dict[str, Entry],
    block: int,
) -> bool:
    """Whether a block was reused: its record is complete, and has no skipped row."""
    retrying, name = Retrying(), run.record_name(block)
    standing = retrying(partial(old.place.read, name))
    record = None if standing is None else parsed_record(old, block, standing.data)
    if record is None or record.quarantined or (record.start, record.stop) != run.rows(block):
        return False
    tags: dict[str, list[str]] = {array: [] for array in suffixes if stored}
    for array, chunk in _chunks(run, suffixes, block):
        if stored:
            tags[array].append(stored[f"{folder}/{chunk}"].tag)
    data = record_bytes(_renewed(record, run.run, source, tags))
    place = run.place
    if isinstance(place, Folder):
        with resource_errors(place.path):
            replace_bytes(place.path / name, data)
        return True
    return retrying(partial(place.create, name, data))


def _renewed(record: CommitRecord, run: str, source: str, tags: dict[str, list[str]]) -> CommitRecord:
    """The record of a reused block. The time of its scoring belongs to the run that did it."""
    origin = record.origin or source
    return replace(
        record,
        run=run,
        read_seconds=0.0,
        score_seconds=0.0,
        write_seconds=0.0,
        process=f"run {origin}",
        peak_memory_bytes=0,
        retries=0,
        statistics={**record.statistics, "seconds": 0.0},
        tags=tags,
        attempt=secrets.token_hex(8) if tags else "",
        origin=origin,
    )
