"""`dcpred refresh` under attack: night after night an input changes, and whoever brings the latest run up to
date is killed, stopped, doubled and given a spoiled store, until it has come to its end.

    python tests/benchmarks/chaos_refresh.py [--store s3|gs|az] [--nights 100] [--share 0.08] [--seed 0]
                                             [--inputs zarr,parquet,delta] [--work DIR] [--quick]

A root lives for ten nights; one after the other is of an array of Zarr, a folder of Parquet (on a store one
file) and a Delta table. Before each night rows are appended or rewritten, files get other names, row groups
or rows in between, a table is compacted or restored, another model is trained, or nothing is done; then
refresh is called until it ends well, attacked up to three times:

    kill, term   SIGKILL or SIGTERM to the driver
    stop         SIGSTOP, while a second driver tries; then SIGCONT
    two          a second driver
    peace        nothing but what the store does

At every end, good or bad, a reader looks at the latest run, which must be whole and hold what a run from
scratch gives, of the input as it is or as it was the night before; after a good end, as it is. Without
--store, everything lies on a disk; with it, in a bucket of a server on loopback, behind a proxy that spoils
so many of all requests (see chaos_stores.py).
"""

import argparse
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import chaos
import chaos_stores
import pyarrow as pa
import pyarrow.parquet as pq
from chaos import LEASE_SECONDS, Arena, Tally, show, small_plan

sys.path.insert(0, str(Path(__file__).parents[1]))
import dcpred
from dcpred.refreshing.refresh import refresh
from dcpred.runs.latest import MANIFEST, latest_run
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.errors import RunHeldError
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_group
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.tables import encoded_rows
from support.changing_inputs import INPUTS, N_FEATURES, ParquetInput, bring, table
from support.data import make_blobs, make_group
from support.stores import spoiled

ATTACKS = ("kill", "term", "stop", "two", "peace")
CHANGES = ("append", "append", "rewrite", "change", "model", "nothing")
FIRST_ROWS, CHUNK_ROWS = 4_000, 250
INPUT_KINDS = ("zarr", "parquet", "delta")
MOST_NEW = 700  # rows of a night
NIGHTS_OF_A_ROOT, MOST_CALLS = 10, 25
Pieces = dict[str, bytes]


def trained(folder: Path, seed: int) -> dict[str, Path]:
    """A model of arrays, and one of tables."""
    known = make_blobs(500, N_FEATURES, 3, seed)
    data = make_group(folder / f"train-{seed}.zarr", known.X, known.y)
    few = {"n_leaves": 4, "landmarks": 8, "refine_steps": 5}
    train(data, folder / f"model-{seed}", settings=few)
    pq.write_table(table(500, seed), folder / f"train-{seed}.parquet")
    of_tables, columns = folder / f"model-of-tables-{seed}", ["order", "code"]
    dcpred.train(str(folder / f"train-{seed}.parquet"), of_tables, y="y", id=columns, settings=few)
    return {kind: of_tables for kind in INPUT_KINDS} | {"zarr": folder / f"model-{seed}"}


def refresh_input(model: str, data: str, root: str) -> None:
    """One call, as the command makes it."""
    refresh(model, data, root, keep=3)


class FileInput(ParquetInput):
    """One file of Parquet: on a store a folder would be several inputs."""

    name = "m5"

    def at(self, at: float) -> str:
        return self.name

    @property
    def n_rows(self) -> int:
        return len(self.rows[self.name])

    def append(self, n: int, seed: int) -> None:
        self.put(self.name, pa.concat_tables([self.rows[self.name], table(n, seed)]))

    def change(self, kind: int, at: float, n: int, seed: int) -> None:
        super().change(1 + kind % 2, at, n, seed)


def pieces(scores: str) -> Pieces:
    """The stored values, some rows at a time."""
    found: Pieces = {}
    for name, array in open_group(scores).arrays():
        for start in range(0, array.shape[0], CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, array.shape[0])
            found[f"{name}/{start}"] = zarr_arrays.read_rows(array, start, stop).tobytes()
    return found


@dataclass
class World:
    """One root and what it is made from: here in folders, there where refresh finds it.

    truths    the values that a run from scratch gives, of the input the night before and now
    """

    folder: Path
    address: str
    kind: str
    models: list[Path]
    arena: Arena
    number: int = 0
    truths: list[Pieces] = field(default_factory=list)

    @cached_property
    def input(self) -> Any:
        self.folder.mkdir(parents=True)
        one = self.kind == "parquet" and self.arena.environment
        return (FileInput if one else INPUTS[self.kind])(self.folder, FIRST_ROWS, CHUNK_ROWS, self.seed())

    @property
    def there(self) -> str:
        """The input, below the folder or address of all."""
        one = f"/{self.input.name}.parquet" if isinstance(self.input, FileInput) else ""
        return f"{Path(self.input.data).name}{one}"

    @property
    def root(self) -> str:
        return f"{self.address}/root"

    @property
    def model(self) -> str:
        return f"{self.address}/{self.models[self.number].name}"

    def begin(self) -> None:
        """The first night, in peace."""
        self.bring()
        if code := strike(self, "peace", chaos.Toll()):
            chaos.give_up(f"the first refresh ended with {code}")
        self.truths = [self.truth()]

    def seed(self) -> int:
        return self.arena.chance.randrange(2**20)

    def change(self) -> str:
        chance, kind, rows = self.arena.chance, self.arena.chance.choice(CHANGES), self.input.n_rows
        if kind == "append":
            self.input.append(chance.randint(1, MOST_NEW), self.seed())
        elif kind == "rewrite":
            self.input.rewrite(chance.random() * 0.999, self.seed())
        elif kind == "change":
            self.input.change(chance.randrange(20), chance.random() * 0.999, MOST_NEW, self.seed())
        elif kind == "model":
            self.number = 1 - self.number
        if (n := rows - self.input.n_rows) > 0:  # fewer rows than before are refused
            self.input.append(n, self.seed())
        self.bring()
        return kind

    def bring(self) -> None:
        """Take what is new to where refresh finds it; nothing else is written again."""
        for source in (Path(self.input.data), *self.models):
            bring(source, f"{self.address}/{source.name}")

    def driver(self) -> Any:
        data = f"{self.address}/{self.there}"
        return chaos.start_driver(self.arena, partial(refresh_input, self.model, data, self.root), self.root)

    def truth(self) -> Pieces:
        """What a run from scratch gives, on the disk."""
        output, model = self.folder / "scratch", self.models[self.number]
        score(model, f"{self.folder}/{self.there}", output)
        found = pieces(f"{output}/scores.zarr")
        shutil.rmtree(output)
        return found

    def latest(self) -> Pieces:
        """What a reader finds; nothing where the latest run is not whole."""
        run = f"{self.root}/runs/{latest_run(open_place(self.root))}"
        return pieces(f"{run}/scores.zarr") if open_place(run).read(MANIFEST) is not None else {}


def look(world: World, tally: Tally, ended: bool) -> None:
    """Count pieces of the latest run that are missing, wrong, or too many."""
    chunks, (old, new) = world.latest(), world.truths
    right = new if ended or chunks != old else old
    tally.lost += len(right.keys() - chunks.keys())
    tally.wrong += sum(chunks[name] != data for name, data in right.items() if name in chunks)
    tally.twice += len(chunks.keys() - right.keys())


def strike(world: World, attack: str, toll: chaos.Toll) -> int:
    """One call of refresh under an attack; its exit code, or the worse one of two."""
    chance, arena, begin = world.arena.chance, world.arena, time.monotonic()
    first = world.driver()
    if attack == "peace":
        code = chaos._end(first)
        arena.seconds = time.monotonic() - begin
        return code
    time.sleep(chance.uniform(0, arena.seconds))
    if attack in ("kill", "term"):
        toll.hits += chaos._signalled(first, signal.SIGKILL if attack == "kill" else signal.SIGTERM)
        return chaos._end(first)
    toll.hits += 1
    if attack == "stop":
        chaos._signalled(first, signal.SIGSTOP)
        if arena.environment:
            time.sleep(chance.uniform(0, 2 * LEASE_SECONDS))
    second = world.driver()
    codes = [chaos._end(second)] if attack == "stop" else []
    chaos._signalled(first, signal.SIGCONT)
    codes += [chaos._end(first)] + ([] if codes else [chaos._end(second)])
    return max(codes, key=lambda code: code != 0)


def night(world: World, attack: str, quiet: Any, tally: Tally) -> None:
    """One change of the input, and calls until one has ended well without an attack."""
    begin, toll, code = time.monotonic(), chaos.Toll(), 1
    with quiet():
        world.change()
        world.truths = [world.truths[-1], world.truth()]
    hits = world.arena.chance.randint(1, world.arena.most_hits) if attack != "peace" else 0
    for number in range(MOST_CALLS):
        code = strike(world, attack if number < hits else "peace", toll)
        with quiet():
            look(world, tally, ended=code == 0)
        if code == 0 and number >= hits:
            break
        toll.resumes += 1
        if code == RunHeldError.exit_code and world.arena.environment:
            time.sleep(LEASE_SECONDS)
    else:
        chaos.give_up(f"a refresh did not come to its end: exit code {code}, {world.root}")
    tally.runs, tally.hits = tally.runs + 1, tally.hits + toll.hits
    tally.resumes += toll.resumes
    tally.seconds.append(time.monotonic() - begin)


@contextmanager
def arena_of(args: argparse.Namespace) -> Iterator[tuple[Arena, Any, Any]]:
    """The arena, what gives an address, and what keeps faults away for a while."""
    arena = Arena("", "", random.Random(args.seed), most_hits=1 if args.quick else chaos.MOST_HITS)
    if args.store is None:
        yield arena, lambda name: str(args.work.resolve() / "there" / name), ExitStack
        return
    with ExitStack() as stack:
        server = stack.enter_context(chaos_stores.SERVERS[args.store]())
        proxy = stack.enter_context(spoiled(server, seed=args.seed))
        os.environ.update(proxy.environment)
        arena.environment = proxy.environment
        chaos.short_lease()

        @contextmanager
        def quiet() -> Iterator[None]:
            proxy.set_faults()
            yield
            proxy.set_faults(*chaos_stores.faults(args.share))

        yield arena, proxy.address, quiet


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=chaos_stores.SERVERS)
    parser.add_argument("--nights", type=int, default=100)
    parser.add_argument("--share", type=float, default=0.08, help="of a store's requests that are spoiled")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("benchmark-chaos-refresh"))
    parser.add_argument("--inputs", default=",".join(INPUT_KINDS), help="kinds of inputs, one for each root")
    parser.add_argument("--quick", action="store_true", help="six nights of three roots, of one hit each")
    args = parser.parse_args()
    small_plan()
    encoded_rows.MOST_ROWS = CHUNK_ROWS  # a large row group has several blocks
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    models = [trained(args.work, seed) for seed in (0, 1)]
    tallies = {name: Tally() for name in ATTACKS}
    with arena_of(args) as (arena, address, quiet):
        order = [ATTACKS[i % len(ATTACKS)] for i in range(6 if args.quick else args.nights)]
        kinds, nights = args.inputs.split(","), 2 if args.quick else NIGHTS_OF_A_ROOT
        for number, attack in enumerate(order):
            if number % nights == 0:
                kind = kinds[number // nights % len(kinds)]
                here, there = args.work / f"here-{number}", address(f"there-{number}")
                world = World(here, there, kind, [model[kind] for model in models], arena)
                with quiet():
                    world.begin()
            night(world, attack, quiet, tallies[attack])
            if number % 20 == 19:
                print(f"{number + 1} nights of {len(order)}", file=sys.stderr, flush=True)
    show(tallies)
    if any(t.lost or t.wrong or t.twice for t in tallies.values()):
        raise SystemExit(1)
    shutil.rmtree(args.work)


if __name__ == "__main__":
    main()
