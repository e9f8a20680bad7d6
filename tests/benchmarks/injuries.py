"""Kinds of damage to a finished output, at random places, with the levels of `dcpred verify` that promise to
find each.

Used by damage.py and by tests/cluster/test_verification.py.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from dcpred.runs.ledger import Ledger, open_ledger
from dcpred.runs.manifest import make_manifest
from dcpred_tasks.artifacts import commit_records
from dcpred_tasks.artifacts.block_files import Kind
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.atomic_files import write_json
from dcpred_tasks.storage.digests import digest, digest_json
from dcpred_tasks.task_bodies.zarr_chunks import digest_values

EVERY = ("fast", "sample", "full")
Random = np.random.Generator


@dataclass(frozen=True)
class Injury:
    """`inflict` damages an output; verification must then give a finding of one of `kinds`."""

    name: str
    levels: tuple[str, ...]
    kinds: tuple[Kind, ...]
    inflict: Callable[[Path, Random], None]


def pick(files: Iterable[Path], rng: Random) -> Path:
    chosen = sorted(files)
    return chosen[rng.integers(len(chosen))]


def chunks(output: Path) -> list[Path]:
    return [
        path for path in (output / "scores.zarr").rglob("*") if path.is_file() and path.name != "zarr.json"
    ]


def block_records(output: Path) -> list[Path]:
    return list((output / "blocks").glob("*.json"))


def metadata(output: Path) -> list[Path]:
    return list((output / "scores.zarr").rglob("zarr.json"))


def tables(output: Path) -> list[Path]:
    return list((output / "scores.parquet").glob("*.parquet"))


def flip(path: Path, rng: Random) -> None:
    raw = bytearray(path.read_bytes())
    raw[rng.integers(len(raw))] ^= 1 << int(rng.integers(8))
    path.write_bytes(raw)


def truncate(path: Path, rng: Random) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: rng.integers(1, len(raw))])


def swap(output: Path, rng: Random, same_size: bool) -> None:
    """Two chunks that differ: of one array where they have the same size, of any where they have not.

    LookupError where an output has no such chunks.
    """
    files = [(path, path.read_bytes()) for path in sorted(chunks(output))]
    array = {path: path.relative_to(output / "scores.zarr").parts[0] for path, _ in files}
    pairs = [
        (a, b)
        for a, b in combinations(files, 2)
        if (len(a[1]) == len(b[1])) == same_size
        and a[1] != b[1]
        and (not same_size or array[a[0]] == array[b[0]])
    ]
    if not pairs:
        raise LookupError(f"{output} has no two chunks to swap")
    (one, first), (two, second) = pairs[rng.integers(len(pairs))]
    one.write_bytes(second)
    two.write_bytes(first)


def write_one_value(output: Path, rng: Random) -> None:
    name = pick([p.parent for p in metadata(output) if p.parent.name in ("decision", "label")], rng)
    array = zarr_arrays.open_output(name)
    row = int(rng.integers(array.shape[0]))
    array[row] = array[row] + 1 if np.isfinite(np.asarray(array[row], float)).all() else 0


def fill_chunk(output: Path, rng: Random) -> None:
    """A chunk that holds nothing but fill values, as where it was written and lost."""
    name = pick([p.parent for p in metadata(output) if p.parent.name != "scores.zarr"], rng)
    array = zarr_arrays.open_output(name)
    size = array.chunks[0]
    full = [c for c in range(0, array.shape[0], size) if not _is_fill(array[c : c + size], array.fill_value)]
    start = full[rng.integers(len(full))]
    array[start : start + size] = array.fill_value


def _is_fill(values: Any, fill: Any) -> bool:
    return bool((np.isnan(values) if np.isnan(fill) else values == fill).all())


def copy_record(output: Path, rng: Random, beyond: bool) -> None:
    """The record of one block under the number of another."""
    names = sorted(block_records(output))
    one, two = rng.choice(len(names), 2, replace=False)
    target = output / "blocks" / f"{len(names) + int(rng.integers(5)):06d}.json" if beyond else names[two]
    target.write_bytes(names[one].read_bytes())


def record_of_another_run(output: Path, rng: Random) -> None:
    def alter(value: dict[str, Any]) -> None:
        value["run"] = digest(value["run"].encode())

    reseal(pick(block_records(output), rng), alter)


def conflicting_record(output: Path, rng: Random) -> None:
    path = pick(block_records(output), rng)
    path.with_suffix(f".conflict-{rng.bytes(4).hex()}.json").write_bytes(path.read_bytes())


def alter_json(path: Path, alter: Callable[[dict[str, Any]], None]) -> None:
    value = json.loads(path.read_text())
    alter(value)
    path.write_text(json.dumps(value, indent=2))


def reseal(path: Path, alter: Callable[[dict[str, Any]], None]) -> None:
    """Alter a record with its checksum, as a mistake of dcpred would."""
    value = json.loads(path.read_text())
    del value["checksum"]
    alter(value)
    write_json(path, {**value, "checksum": digest_json(value)})


def other_metadata(output: Path, rng: Random) -> None:
    """Still Zarr, but of another shape, fill value or meaning."""
    path = pick([p for p in metadata(output) if p.parent.name != "scores.zarr"], rng)

    def alter(value: dict[str, Any]) -> None:
        what = rng.choice(["shape", "chunks", "fill", "attributes"])
        if what == "shape":
            value["shape"][0] += int(rng.integers(1, 9))
        elif what == "chunks":
            value["chunk_grid"]["configuration"]["chunk_shape"][0] += 1
        elif what == "fill":
            value["fill_value"] = 3
        else:
            value["attributes"] = {"labels": ["b", "a", "c"]}

    alter_json(path, alter)


def other_manifest(output: Path, rng: Random) -> None:
    """A manifest that is whole, and not of these records."""

    def alter(value: dict[str, Any]) -> None:
        code = rng.choice(sorted(value["status"]))
        value["status"][code] += int(rng.integers(1, 9))

    reseal(output / "manifest.json", alter)


def other_plan(output: Path, rng: Random) -> None:
    name = rng.choice(["block_rows", "n_rows", "chunk_rows"])
    alter_json(
        output / "plan.json", lambda value: value.update({str(name): value[name] + int(rng.integers(1, 50))})
    )


def leave_partial(output: Path, rng: Random) -> None:
    where = pick([*chunks(output), *block_records(output), output / "manifest.json"], rng)
    other = rng.bytes(6).hex()
    name = (
        f"{where.name}.partial-{other}"
        if rng.random() < 0.5
        else f"{where.stem}.{rng.bytes(16).hex()}.partial"
    )
    (where.parent / name).write_bytes(rng.bytes(9))


def foreign_file(output: Path, rng: Random) -> None:
    folder = pick([p.parent for p in chunks(output)], rng)
    root = output / "scores.zarr"
    place = folder if rng.random() < 0.6 else root if rng.random() < 0.5 else output / "blocks"
    (place / str(rng.choice(["999", "1.bak", "chunk", ".hidden", "007"]))).write_bytes(rng.bytes(9))


def system_file(output: Path, rng: Random) -> None:
    place = pick([output / "blocks", output / "scores.zarr", *(p.parent for p in chunks(output))], rng)
    for name in (
        ".DS_Store",
        ".nfs00000000003868fa",
        "._0",
        "Thumbs.db",
        ".0.swp",
        "zarr.json~",
        "@eaDir/0@SynoEAStream",
    ):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(rng.bytes(9))


def rewrite_block(output: Path, rng: Random, alter: Callable[[dict[str, Any]], None]) -> None:
    """Other values in a block, with a record and a manifest that agree with them: what only values themselves
    can tell.
    """
    ledger = open_ledger(output)
    run = ledger.run
    record = commit_records.read_record(run, int(rng.integers(ledger.n_blocks)))
    assert record is not None
    arrays = {name: zarr_arrays.open_output(run.array(name)) for name in run.arrays}
    digests, sizes, counts = [], {name: [] for name in arrays}, np.zeros(9, int)
    for start, stop in run.chunks(record.block):
        values = {name: array[start:stop] for name, array in arrays.items()}
        alter(values)
        for name, array in arrays.items():
            array[start:stop] = values[name]
            sizes[name].append(stored_chunks.stored_size(array, start))
        digests.append(digest_values(run, values))
        counts += np.bincount(values["status"], minlength=9)
    status = {str(code): int(n) for code, n in enumerate(counts) if n}
    new = replace(record, digest=digest("".join(digests).encode()), sizes=sizes, status=status)
    Path(run.output, run.record_name(record.block)).unlink()
    commit_records.commit(run, new)
    ledger.withdraw_manifest()
    ledger.finish(make_manifest(Ledger(run, ledger.n_blocks), 0))


def wrong_scores(values: dict[str, Any]) -> None:
    """As another model would give them."""
    if "decision" in values:
        values["decision"] = values["decision"] * 1.5 + 0.25
    if "label" in values:
        scored = values["status"] == 1
        values["label"] = values["label"].copy()
        values["label"][scored] = (values["label"][scored] + 1) % 2


def scores_without_status(values: dict[str, Any]) -> None:
    values["status"] = values["status"].copy()
    values["status"][:3] = 2


def unscored(values: dict[str, Any]) -> None:
    values["status"] = values["status"].copy()
    values["status"][-1] = 0


def append(path: Path, rng: Random) -> None:
    path.write_bytes(path.read_bytes() + rng.bytes(1))


def on_chunk(harm: Callable[[Path, Random], None]) -> Callable[[Path, Random], None]:
    return lambda output, rng: harm(pick(chunks(output), rng), rng)


def on_table(harm: Callable[[Path, Random], None]) -> Callable[[Path, Random], None]:
    return lambda output, rng: harm(pick(tables(output), rng), rng)


def swap_tables(output: Path, rng: Random) -> None:
    """The Parquet files of two blocks."""
    names = sorted(tables(output))
    one, two = (names[i] for i in rng.choice(len(names), 2, replace=False))
    first = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(first)


def foreign_table(output: Path, rng: Random) -> None:
    copied = pick(tables(output), rng)
    copied.with_name(f"{int(rng.integers(900, 999)):06d}.parquet").write_bytes(copied.read_bytes())


def on_record(harm: Callable[[Path, Random], None]) -> Callable[[Path, Random], None]:
    return lambda output, rng: harm(pick(block_records(output), rng), rng)


def committed(alter: Callable[[dict[str, Any]], None]) -> Callable[[Path, Random], None]:
    return lambda output, rng: rewrite_block(output, rng, alter)


def delete(path: Path, rng: Random) -> None:
    path.unlink()


SIZES = (Kind.CHUNK_SIZE,)
RECORD = (Kind.ALTERED_RECORD,)
VALUES = (Kind.WRONG_VALUES, Kind.CHUNK_SIZE)
INJURIES = (
    Injury("a flipped bit in a chunk", ("full",), (Kind.DAMAGED_CHUNK,), on_chunk(flip)),
    Injury("a truncated chunk", EVERY, SIZES, on_chunk(truncate)),
    Injury("a chunk with a byte more", EVERY, SIZES, on_chunk(append)),
    Injury("an emptied chunk", EVERY, SIZES, on_chunk(lambda path, rng: path.write_bytes(b"") and None)),
    Injury("a deleted chunk", EVERY, (Kind.MISSING_CHUNK,), on_chunk(delete)),
    Injury(
        "swapped chunks of equal size", ("full",), (Kind.WRONG_VALUES,), lambda o, rng: swap(o, rng, True)
    ),
    Injury("swapped chunks of other sizes", EVERY, SIZES, lambda o, rng: swap(o, rng, False)),
    Injury("one value written again", ("full",), VALUES, write_one_value),
    Injury("a chunk of fill values", ("full",), VALUES, fill_chunk),
    Injury("a foreign file", EVERY, (Kind.FOREIGN_FILE,), foreign_file),
    Injury("a file of the system", EVERY, (Kind.SYSTEM_FILE,), system_file),
    Injury("a .partial (named, harmless)", EVERY, (Kind.LEFTOVER,), leave_partial),
    Injury("a deleted record", EVERY, (Kind.MISSING_RECORD,), on_record(delete)),
    Injury("a flipped bit in a record", EVERY, RECORD, on_record(flip)),
    Injury("a truncated record", EVERY, RECORD, on_record(truncate)),
    Injury(
        "a record copied over another",
        EVERY,
        (Kind.FOREIGN_RECORD,),
        lambda o, rng: copy_record(o, rng, False),
    ),
    Injury(
        "a record copied beyond the last",
        EVERY,
        (Kind.RECORD_OF_NO_BLOCK,),
        lambda o, rng: copy_record(o, rng, True),
    ),
    Injury("a record of another run", EVERY, (Kind.FOREIGN_RECORD,), record_of_another_run),
    Injury("a conflicting record", EVERY, (Kind.CONFLICT,), conflicting_record),
    Injury(
        "a flipped bit in zarr.json",
        EVERY,
        (Kind.METADATA,),
        lambda o, rng: flip(pick(metadata(o), rng), rng),
    ),
    Injury("a deleted zarr.json", EVERY, (Kind.METADATA,), lambda o, rng: pick(metadata(o), rng).unlink()),
    Injury("other metadata of an array", EVERY, (Kind.METADATA,), other_metadata),
    Injury(
        "a flipped bit in the manifest",
        EVERY,
        (Kind.MANIFEST,),
        lambda o, rng: flip(o / "manifest.json", rng),
    ),
    Injury("a manifest of other counts", EVERY, (Kind.MANIFEST,), other_manifest),
    Injury("a plan of other blocks", EVERY, (Kind.MANIFEST,), other_plan),
    Injury("a row of status 0, committed", EVERY, (Kind.STATUS,), committed(unscored)),
    Injury("a score where status is bad", ("full",), (Kind.STATUS,), committed(scores_without_status)),
    Injury("a block of wrong scores, committed", ("sample",), (Kind.WRONG_SCORE,), committed(wrong_scores)),
)
# Of outputs with Parquet files.
TABLE_INJURIES = (
    Injury("a flipped bit in a Parquet file", ("full",), (Kind.DAMAGED_TABLE,), on_table(flip)),
    Injury("a truncated Parquet file", EVERY, (Kind.TABLE_SIZE,), on_table(truncate)),
    Injury("a Parquet file with a byte more", EVERY, (Kind.TABLE_SIZE,), on_table(append)),
    Injury("a deleted Parquet file", EVERY, (Kind.MISSING_TABLE,), on_table(delete)),
    Injury("swapped Parquet files", ("full",), (Kind.DAMAGED_TABLE, Kind.TABLE_SIZE), swap_tables),
    Injury("a Parquet file of no block", EVERY, (Kind.FOREIGN_FILE,), foreign_table),
)
