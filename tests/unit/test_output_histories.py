"""`verify` says ok of an output exactly where its tables, read by other libraries, hold its rows once."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from deltalake import DeltaTable

import dcpred
from dcpred.runs import delta_tables
from dcpred.runs.ledger import Ledger
from dcpred.scoring import blocks, deliver
from dcpred_tasks.errors import IncompleteError
from support.data import make_blobs, make_group
from support.delta_histories import N_ROWS, Killed, small_blocks
from support.pools import inline

STEPS = 10
# Where a process dies, of a delivery and of any other call.
DELIVERY = ((deliver, "add_tables"), (delta_tables, "_added"))
DEATHS = ((blocks, "score_block"), (Ledger, "finish"), *DELIVERY)
ID = {"id": ["id"]}


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Three blocks, which this process scores."""
    here = mock.patch("dcpred.execution.pools.connect", side_effect=lambda *_, **__: inline())
    with small_blocks(), here:
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    blobs = make_blobs(2 * N_ROWS, n_features=3, n_classes=2, seed=0)
    known = make_group(folder / "known.zarr", blobs.X, blobs.y)
    dcpred.train(known, folder / "model", settings={"n_leaves": 1, "landmarks": 4})
    data = make_group(folder / "new.zarr", blobs.X[:N_ROWS], chunk_rows=10)
    zarr.open_group(data, mode="r+").create_array("id", data=1_000 + np.arange(N_ROWS), chunks=(20,))
    return folder


class History:
    """One output and one root of a refresh, each with a Delta table."""

    def __init__(self, made: Path, folder: Path, chance: random.Random) -> None:
        self.model, self.folder, self.chance = made / "model", folder, chance
        self.done: list[str] = []
        for name in ("out", "root"):
            shutil.copytree(made / "new.zarr", folder / f"{name}.zarr")
        dcpred.refresh(self.model, self.data("root"), folder / "root")
        if chance.random() < 0.5:
            dcpred.score(self.model, self.data("out"), folder / "out")

    def outputs(self) -> dict[str, Path]:
        there = {"out": self.folder / "out", "root": self.folder / "root/latest"}
        return {name: path for name, path in there.items() if (path / "plan.json").exists()}

    def data(self, name: str) -> Path:
        return self.folder / f"{name}.zarr"

    def table(self, name: str) -> Path:
        """The table of an output: each run of a refresh has its own, because each holds all rows."""
        run = self.folder / "root/latest"
        return self.folder / (f"table of {run.resolve().name}" if name == "root" else "table")

    # -- What is right ---------------------------------------------------------------------------------------

    def check(self) -> None:
        for name, output in self.outputs().items():
            report = dcpred.verify(output, "full")
            right = self.is_right(name, output)
            assert report.ok is right, (self.done, name, report.findings)

    def is_right(self, name: str, output: Path) -> bool:
        """Whether an output is finished, and its tables hold what its arrays hold."""
        if not (output / "manifest.json").exists() or len(list(output.glob("blocks/*.json"))) < 3:
            return False
        stated = json.loads((output / "plan.json").read_text())
        if (output / "tables.json").exists():
            stated |= json.loads((output / "tables.json").read_text())
        scores = zarr.open_group(output / "scores.zarr", mode="r")
        X, decision = (np.asarray(array[:]) for array in (scores["status"], scores["decision"]))
        rows = pa.table(
            {
                "id": np.asarray(zarr.open_array(self.data(name) / "id", mode="r")[:]),
                "decision": decision.reshape(-1),
                "status": X,
            }
        )
        if (X != 1).any():
            return False
        if "parquet" not in stated["artifacts"]:
            return not (output / "delivery.json").exists()
        files = sorted(output.glob("scores.parquet/*.parquet"))
        return (
            len(files) == 3
            and self.same(pq.read_table(output / "scores.parquet"), rows)
            and (not self.is_delivered(output, stated) or self.in_delta(name, rows))
        )

    def is_delivered(self, output: Path, stated: dict[str, Any]) -> bool:
        return stated.get("delta") is not None or (output / "delivery.json").exists()

    def in_delta(self, name: str, rows: pa.Table) -> bool:
        table = self.table(name)
        there = DeltaTable.is_deltatable(str(table))
        return there and self.same(DeltaTable(table).to_pyarrow_table().sort_by("id"), rows)

    def same(self, stored: pa.Table, rows: pa.Table) -> bool:
        return bool(stored.select(rows.column_names).cast(rows.schema).replace_schema_metadata().equals(rows))

    # -- What happens ----------------------------------------------------------------------------------------

    def step(self) -> None:
        chance = self.chance
        name = chance.choice(["out", "root"])
        output = self.outputs().get(name, self.folder / name)
        tables = chance.choice([{}, {"parquet": True, **ID}, {"delta": self.table(name), **ID}])
        data, model = self.data(name), self.model
        events: dict[str, Callable[[], Any]] = {}
        if name == "out":
            events["score"] = lambda: dcpred.score(model, data, output, **tables)
        else:
            events["refresh"] = lambda: dcpred.refresh(model, data, self.folder / "root")
        if (output / "plan.json").exists():
            events["repair"] = lambda: dcpred.repair(model, data, output, **tables)
            events["deliver"] = lambda: dcpred.deliver(output, **ID)
            events["deliver to Delta"] = lambda: dcpred.deliver(output, self.table(name), **ID)
            events["damage"] = lambda: self.damage(output)
            if name == "root":
                events["change"] = self.change
            if (output / "scores.parquet").exists():
                events["deliver again"] = lambda: dcpred.deliver(output)
        event = chance.choice(sorted(events))
        self.done.append(f"{event} {name} {sorted(tables)}")
        where, call = chance.choice(DELIVERY if "deliver" in event else DEATHS)
        death = mock.patch.object(where, call, dying(getattr(where, call), chance))
        with suppress(Killed, IncompleteError), death if chance.random() < 0.5 else nullcontext():
            events[event]()

    def damage(self, output: Path) -> None:
        files = sorted([*output.glob("blocks/*.json"), *output.glob("scores.parquet/*.parquet")])
        if files:
            self.chance.choice(files).unlink()
            self.done.append("lost a file")

    def change(self) -> None:
        """Other rows of one block, and a refresh."""
        X = zarr.open_array(self.data("root") / "X", mode="r+")
        first = 10 * self.chance.randrange(N_ROWS // 10)
        X[first : first + 10] = X[first : first + 10] * -1.5
        dcpred.refresh(self.model, self.data("root"), self.folder / "root")

    def settle(self) -> None:
        for name, output in self.outputs().items():
            dcpred.repair(self.model, self.data(name), output)
            assert dcpred.deliver(output, self.table(name), **ID).n_rows == N_ROWS
            assert self.is_right(name, output), self.done
            assert dcpred.verify(output, "full").in_delta, self.done


def dying(real: Callable[..., Any], chance: random.Random) -> Callable[..., Any]:
    """A function whose process dies at one of its calls, before it or after it."""
    left, after = chance.randrange(1, 4), chance.random() < 0.5

    def dies(*args: Any) -> Any:
        nonlocal left
        left -= 1
        result = real(*args) if left or after else None
        if not left:
            raise Killed
        return result

    return dies


def live(made: Path, folder: Path, seed: int) -> None:
    history = History(made, folder, random.Random(seed))
    for _ in range(STEPS):
        history.step()
        history.check()
    history.settle()
    history.check()


@pytest.mark.parametrize("seed", range(2))
def test_verify_says_what_tables_hold(made: Path, tmp_path: Path, seed: int) -> None:
    live(made, tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 106))
def test_verify_says_what_tables_hold_in_many_histories(made: Path, tmp_path: Path, seed: int) -> None:
    live(made, tmp_path, seed)
