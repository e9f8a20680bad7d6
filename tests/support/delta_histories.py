"""Random histories of a Delta table that gets scores: what is done to it, and what it holds then."""

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import zarr
from deltalake import DeltaTable, write_deltalake

import dcpred
from dcpred.runs import delta_tables
from dcpred_tasks.errors import PlanConflictError
from support.data import make_blobs, make_group

N_ROWS = 60
OTHER_IDS = 10_000  # of rows that other writers append
NIGHTS = {"a": 0, "a again": 0, "b": 1}  # outputs, and the night whose rows they hold


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def small_blocks() -> Iterator[None]:
    """Three blocks of an output, and two chunks of each."""
    with ExitStack() as stack:
        for name, value in (("MIN_BLOCK_ROWS", 1), ("MAX_CHUNK_ROWS", 10), ("BLOCKS", 3)):
            stack.enter_context(mock.patch(f"dcpred.execution.block_plan.{name}", value))
        yield


def make_outputs(folder: Path) -> None:
    """Outputs of two nights, and that of the first one after a correction of its second block."""
    blobs = make_blobs(3 * N_ROWS, n_features=3, n_classes=2, seed=0)
    known = make_group(folder / "known.zarr", blobs.X, blobs.y)
    dcpred.train(known, folder / "model", settings={"n_leaves": 1, "landmarks": 4})
    for name, night in (("a", 0), ("a changed", 0), ("b", 1)):
        X = blobs.X[night * N_ROWS : (night + 1) * N_ROWS].copy()
        if "changed" in name:
            X[N_ROWS // 3 : N_ROWS // 2] *= -2
        data = make_group(folder / f"{name}.zarr", X, chunk_rows=10)
        zarr.open_group(data, mode="r+").create_array("id", data=night * N_ROWS + np.arange(N_ROWS))
        dcpred.score(folder / "model", data, folder / name, parquet=True, id=["id"])


def rows_there(table: Path, night: int) -> pa.Table:
    """The rows of a night, read by another library."""
    rows = DeltaTable(table).to_pyarrow_table()
    first = night * N_ROWS
    mine = pc.and_(pc.greater_equal(rows["id"], first), pc.less(rows["id"], first + N_ROWS))
    return rows.filter(mine).combine_chunks()


@dataclass
class History:
    """One table, and copies of the prepared outputs."""

    made: Path
    folder: Path
    chance: random.Random
    done: list[str] = field(default_factory=list)
    harm: list[tuple[str, str]] = field(default_factory=list)
    """What went wrong: lost, twice or wrong, and after which events."""

    def __post_init__(self) -> None:
        for name in NIGHTS:
            shutil.copytree(self.made / name[0], self.folder / name)

    @property
    def table(self) -> Path:
        return self.folder / "table"

    @property
    def exists(self) -> bool:
        return DeltaTable.is_deltatable(str(self.table))

    @property
    def delta(self) -> DeltaTable:
        return DeltaTable(self.table)

    # -- What is right ---------------------------------------------------------------------------------------

    def wanted(self, name: str) -> pa.Table:
        return pq.read_table(self.folder / name / "scores.parquet")

    def holds(self, name: str) -> bool:
        """Whether the table, read by another library, holds exactly the rows of an output."""
        if not self.exists:
            return False
        wanted = self.wanted(name).sort_by("id")
        found = rows_there(self.table, NIGHTS[name]).sort_by("id").cast(wanted.schema)
        return bool(found.equals(wanted))

    @property
    def begun(self) -> list[str]:
        """Outputs with a record of a delivery: others have no table, whatever that holds."""
        return [name for name in NIGHTS if (self.folder / name / "delivery.json").exists()]

    def check(self) -> None:
        """Compare what `verify` says with what is right."""
        for name in self.begun:
            found = dcpred.verify(self.folder / name, "fast")
            if found.in_delta is not self.holds(name):
                self.note("wrong", f"verify of {name} says {found.in_delta}: {found.findings}")

    def check_delivered(self, name: str) -> None:
        if not self.holds(name):
            more = len(rows_there(self.table, NIGHTS[name])) > N_ROWS
            self.note("twice" if more else "lost", name)

    def note(self, kind: str, what: str) -> None:
        self.harm.append((kind, f"{what}, after {', '.join(self.done)}"))

    def settle(self) -> None:
        """Deliver all, as advised where only some rows are left."""
        for name in self.begun:
            self.deliver(name)
            if not self.holds(name):
                first = NIGHTS[name] * N_ROWS
                self.delta.delete(f"id >= {first} and id < {first + N_ROWS}")
                self.done.append(f"advised {name}")
                self.deliver(name)
                self.check_delivered(name)
            self.check()

    # -- What dcpred does ------------------------------------------------------------------------------------

    def deliver(self, name: str) -> None:
        """Afterwards the table holds the rows; or it holds some of them, which is refused."""
        version = self.delta.version() if self.exists else None
        try:
            dcpred.deliver(self.folder / name, self.table)
        except PlanConflictError:
            if version is not None and self.delta.version() != version:
                self.note("wrong", f"a refused delivery of {name} was committed")
            return
        self.check_delivered(name)

    def deliver_and_die(self, name: str, *, after: bool) -> None:
        real = delta_tables._added

        def dying(*args: Any) -> bool:
            if after:
                real(*args)
            raise Killed

        with mock.patch.object(delta_tables, "_added", dying), suppress(Killed, PlanConflictError):
            dcpred.deliver(self.folder / name, self.table)

    def deliver_twice_at_once(self) -> None:
        failed: list[BaseException] = []

        def drive(name: str) -> None:
            try:
                dcpred.deliver(self.folder / name, self.table)
            except PlanConflictError:
                pass
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=drive, args=(name,)) for name in NIGHTS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []

    def repair(self, name: str) -> None:
        """What a repair leaves after the input of a block was corrected, or put back."""
        output = self.folder / name
        record = output / "delivery.json"
        if not record.exists():
            return
        kept, now = record.read_bytes(), self.wanted(name)
        others = (self.made / "a", self.made / "a changed")
        other = next(one for one in others if not pq.read_table(one / "scores.parquet").equals(now))
        shutil.rmtree(output)
        shutil.copytree(other, output)
        record.write_bytes(kept)
        self.deliver(name)

    # -- What others do --------------------------------------------------------------------------------------

    def others(self, n: int = 20) -> pa.Table:
        rows = self.wanted("b").slice(0, n)
        ids = pa.array(OTHER_IDS + np.arange(n) + self.chance.randrange(10**6))
        rows = rows.set_column(0, "id", ids)
        return rows.cast(pa.schema(self.delta.schema().to_arrow()))

    def some(self) -> str:
        first = self.chance.randrange(2 * N_ROWS)
        return f"id >= {first} and id < {first + self.chance.randrange(1, N_ROWS)}"

    def step(self) -> None:
        """One random event."""
        chance = self.chance
        name = chance.choice(list(NIGHTS))
        events: dict[str, Callable[[], Any]] = {
            "deliver": lambda: self.deliver(name),
            "killed before": lambda: self.deliver_and_die(name, after=False),
            "killed after": lambda: self.deliver_and_die(name, after=True),
            "at once": self.deliver_twice_at_once,
            "repair": lambda: self.repair(chance.choice(["a", "a again"])),
        }
        if self.exists:
            events |= self._of_others()
        event = chance.choice([*events, "deliver"])
        self.done.append(f"{event} {name}")
        events[event]()

    def _of_others(self) -> dict[str, Callable[[], Any]]:
        table = self.delta
        return {
            "append": lambda: write_deltalake(self.table, self.others(), mode="append"),
            "overwrite": lambda: write_deltalake(self.table, self.others(), mode="overwrite"),
            "rewrite": lambda: write_deltalake(self.table, table.to_pyarrow_table(), mode="overwrite"),
            "restore": self.restore,
            "delete": lambda: table.delete(self.some()),
            "delete others": lambda: table.delete(f"id >= {OTHER_IDS} and id % 2 = 0"),
            "delete all": lambda: table.delete(),
            "update": lambda: table.update({"status": "7"}, predicate=self.some()),
            "update others": lambda: table.update({"status": "7"}, predicate=f"id >= {OTHER_IDS}"),
            "optimize": lambda: table.optimize.compact(),
            "small files": lambda: table.optimize.compact(target_size=4_000),
            "z-order": lambda: table.optimize.z_order(["id"]),
            "vacuum": lambda: table.vacuum(0, dry_run=False, enforce_retention_duration=False),
            "clean": self.clean,
        }

    def restore(self) -> None:
        """Some version, as far as its files are still there."""
        with suppress(Exception):
            self.delta.restore(self.chance.randrange(self.delta.version() + 1))

    def clean(self) -> None:
        """A checkpoint, and the log before it is removed."""
        table = self.delta
        table.create_checkpoint()
        for file in (self.table / "_delta_log").glob("*.json"):
            if file.stem.isdecimal() and int(file.stem) < table.version():
                file.unlink()
