"""Damage of every kind at random places of finished outputs: how much of it `dcpred verify` finds, and false
alarms.

    python tests/benchmarks/damage.py [--trials 100] [--store s3|gs|az] [--work DIR] [--seed 0] [--quick]

Outputs of two and three classes, of a regression, with rows that are not finite, with labels alone, with rows
given up, and with Parquet files, of 20 blocks each. In each trial an output is copied and verified (a finding
is a false alarm), then damaged and verified at every level that promises to find that damage. Level sample
scores all rows again where it alone promises something, else one. Exit code 1 if anything is missed, or any
alarm false.

With --store outputs are scored into a bucket of a server on loopback; a copy on a disk is damaged, brought
back object by object, and verified there.
"""

import argparse
import os
import shutil
from collections import Counter
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
from chaos_stores import SERVERS
from common import Table
from injuries import INJURIES, TABLE_INJURIES, Injury

from dcpred.execution import block_plan
from dcpred.execution.workers import InlineWorkers
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred.verification.verify import VerifyReport, verify
from dcpred_tasks.artifacts.block_files import HARMLESS
from dcpred_tasks.errors import IncompleteError
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.place_types import Place
from support.stores import StoreServer

KINDS = (
    ("two classes", 2),
    ("three classes", 3),
    ("regression", 0),
    ("not finite", 3),
    ("labels", 2),
    ("given up", 3),
    ("Parquet", 3),
)
N_ROWS, N_FEATURES, CHUNK_ROWS = 1_950, 5, 50
QUICK_ROWS = 950
N_KNOWN = 300  # rows that models are trained on


def inline() -> nullcontext[InlineWorkers]:
    return nullcontext(InlineWorkers())


def fetch(place: Place, folder: Path) -> Path:
    """The objects of a place as files."""
    for name in place.listing():
        standing, path = place.read(name), folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(standing.data if standing else b"")
    return folder


def bring(folder: Path, before: Path, place: Place) -> None:
    """Make the objects of a place, which are the files in `before`, those in `folder`; what is equal is not
    written again, as by a real hand.
    """
    files, standing = contents(folder), contents(before)
    for name in standing.keys() - files.keys():
        place.remove(name)
    for name, data in files.items():
        if standing.get(name) != data:
            place.write(name, data)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def make_outputs(work: Path, n_rows: int, rng: np.random.Generator, store: StoreServer | None) -> list[Path]:
    block_plan.MIN_BLOCK_ROWS, block_plan.MAX_CHUNK_ROWS, block_plan.BLOCKS = 1, CHUNK_ROWS, 20
    outputs = []
    for name, classes in KINDS:
        folder = work / name
        X = rng.normal(0, 2, (n_rows, N_FEATURES)).astype(np.float32)
        y = (
            np.sin(X[:, 0]) + X[:, 1]
            if not classes
            else (np.abs(X[:, 0]).astype(int) + (X[:, 1] > 0)) % classes
        )
        if name == "not finite":
            X[rng.choice(n_rows, 90, replace=False), rng.integers(N_FEATURES, size=90)] = np.nan
        group = zarr_arrays.create_group(folder / "data.zarr")
        for key, value in (("X", X), ("y", y)):
            zarr_arrays.create_array(group, key, value.shape, value.dtype, CHUNK_ROWS)[...] = value
        finite = np.isfinite(X).all(axis=1)
        known = zarr_arrays.create_group(folder / "known.zarr")
        for key, value in (("X", X[finite][:N_KNOWN]), ("y", y[finite][:N_KNOWN])):
            zarr_arrays.create_array(known, key, value.shape, value.dtype, CHUNK_ROWS)[...] = value
        settings = {"landmarks": 6, "products": 4, "n_leaves": 4, "refine": False} | (
            {} if classes else {"task": "regression"}
        )
        train(f"{folder}/known.zarr", folder / "model", settings=settings)
        if name == "given up":
            (folder / "data.zarr" / "X" / "c" / "7" / "0").unlink()
        wanted = ("label",) if name == "labels" else None
        output = store.address(name.replace(" ", "-")) if store else folder / "out"
        tables: dict[str, Any] = {"parquet": True, "id": ("y",)} if name == "Parquet" else {}
        with suppress(IncompleteError) if name == "given up" else nullcontext():
            score(
                folder / "model",
                folder / "data.zarr",
                output,
                outputs=wanted,
                quarantine=name == "given up",
                **tables,
            )
        outputs.append(fetch(open_place(output), folder / "out") if store else folder / "out")
    return outputs


def alarms(report: VerifyReport) -> int:
    return sum(finding.is_damage for finding in report.findings)


def is_found(injury: Injury, report: VerifyReport) -> bool:
    """Whether the damage is named as what it is, and the output not called good for it; what does no harm,
    not called bad.
    """
    named = any(finding.kind in injury.kinds for finding in report.findings)
    harmless = set(HARMLESS).issuperset(injury.kinds)
    return named and (not alarms(report) if harmless else not report.ok)


def fresh_copy(output: Path, copy: Path) -> Path:
    shutil.rmtree(copy, ignore_errors=True)
    return shutil.copytree(output, copy)


def choose(outputs: list[Path], injury: Injury, copy: Path, rng: np.random.Generator) -> Path:
    """An output that the injury can be done to."""
    for number in rng.permutation(len(outputs)):
        try:
            injury.inflict(fresh_copy(outputs[number], copy), rng)
        except LookupError:
            continue
        return outputs[number]
    raise SystemExit(f"no output has {injury.name}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("benchmark-damage"))
    parser.add_argument("--trials", type=int, default=100, help="of each kind of damage")
    parser.add_argument("--store", choices=SERVERS, help="where outputs lie [default: on a disk]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="one trial, of fewer rows")
    args = parser.parse_args()
    trials = 1 if args.quick else args.trials
    rng = np.random.default_rng(args.seed)
    shutil.rmtree(args.work, ignore_errors=True)
    with ExitStack() as stack:
        store = stack.enter_context(SERVERS[args.store]()) if args.store else None
        os.environ.update(store.environment if store else {})
        attack(args.work, QUICK_ROWS if args.quick else N_ROWS, trials, rng, store)
    shutil.rmtree(args.work)


def attack(work: Path, n_rows: int, trials: int, rng: np.random.Generator, store: StoreServer | None) -> None:
    outputs = make_outputs(work, n_rows, rng, store)
    table = Table("damage", "fast", "sample", "full", "false alarms")
    missed = n_false = n_clean = 0
    for injury in (*INJURIES, *TABLE_INJURIES):
        able = outputs if injury in INJURIES else outputs[-1:]
        found: Counter[str] = Counter()
        false, rows = 0, n_rows if injury.levels == ("sample",) else 1
        for _ in range(trials):
            chosen = choose(able, injury, work / "copy", rng)
            copy = fresh_copy(chosen, work / "copy")
            there = store.address(chosen.parent.name.replace(" ", "-")) if store else copy
            false += sum(alarms(verify(there, level, rows=rows)) > 0 for level in injury.levels)
            injury.inflict(copy, rng)
            if store:
                bring(copy, chosen, open_place(there))
            found.update(
                level for level in injury.levels if is_found(injury, verify(there, level, rows=rows))
            )
            if store:
                bring(chosen, copy, open_place(there))
        shown = [
            f"{found[level]} of {trials}" if level in injury.levels else "–"
            for level in ("fast", "sample", "full")
        ]
        table.add(injury.name, *shown, f"{false} of {trials * len(injury.levels)}")
        missed += trials * len(injury.levels) - found.total()
        n_false, n_clean = n_false + false, n_clean + trials * len(injury.levels)
    table.add("all", f"{n_clean - missed} of {n_clean}", "", "", f"{n_false} of {n_clean}")
    table.show()
    if missed or n_false:
        raise SystemExit(f"{missed} were missed, and {n_false} were false alarms")


if __name__ == "__main__":
    main()
