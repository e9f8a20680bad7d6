"""Wrong inputs and environments: each is refused with one sentence before anything is written. Prints the
list.

python tests/benchmarks/refusals.py [--quick]
"""

import argparse
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import zarr
from click.testing import CliRunner
from common import Table
from numpy.typing import NDArray

from dcpred.cli import main as command
from dcpred.execution.lease import acquire_lock
from dcpred.execution.pools import connect
from dcpred.execution.workers import Scheduler, Workers
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.place import open_place

N_ROWS, N_FEATURES, CHUNK_ROWS = 300, 4, 50


@dataclass(frozen=True)
class Bench:
    """A folder with a model, data and a finished output, all good; each case spoils a copy."""

    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def data(self) -> Path:
        return self.folder / "data.zarr"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def done(self) -> Path:
        return self.folder / "done"

    def score(self, *more: str) -> list[str]:
        return ["score", str(self.model), str(self.data), str(self.out), "--workers", "1", *more]

    def train(self, *more: str) -> list[str]:
        return [
            "train",
            str(self.data),
            str(self.folder / "new"),
            "--workers",
            "1",
            "--set",
            "n_leaves=4",
            *more,
        ]

    def write(self, name: str, values: NDArray[np.generic]) -> None:
        """Another array in place of one of the data."""
        shutil.rmtree(self.data / name, ignore_errors=True)
        group = zarr.open_group(self.data, mode="r+")
        zarr_arrays.create_array(group, name, values.shape, values.dtype, CHUNK_ROWS)[...] = values


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 4
    path.write_bytes(raw)


def edit(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def largest(folder: Path) -> Path:
    return max((p for p in (folder / "c").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def rows(n_rows: int = N_ROWS, n_features: int = N_FEATURES) -> NDArray[np.float64]:
    return np.random.default_rng(0).normal(size=(n_rows, n_features))


def named(bench: Bench, names: list[str]) -> None:
    zarr.open_array(bench.data / "X", mode="r+").attrs["feature_names"] = names


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


Case = Callable[[Bench], list[str]]


def case(spoil: Callable[[Bench], object], *more: str, do: str = "score") -> Case:
    def prepare(bench: Bench) -> list[str]:
        spoil(bench)
        return getattr(bench, do)(*more)  # type: ignore[no-any-return]

    return prepare


def table(content: str, *more: str) -> Case:
    """The import of a CSV file; DATA stands for the data set."""

    def prepare(bench: Bench) -> list[str]:
        source = bench.folder / "a.csv"
        source.write_text(content)
        options = [str(bench.data) if word == "DATA" else word for word in more]
        return ["import", str(source), str(bench.folder / "new.zarr"), *options]

    return prepare


def nothing(bench: Bench) -> None:
    """The arguments are wrong, not the data."""


def instead(kind: str, path: str) -> Callable[[Bench], list[str]]:
    """Ask for a path of another kind."""
    return lambda b: [str(b.folder / path) if a == str(getattr(b, kind)) else a for a in b.score()]


def with_target(values: NDArray[np.generic]) -> Callable[[Bench], None]:
    return lambda b: b.write("y", values)


def spoilt(values: Callable[[NDArray[np.float64]], object]) -> Callable[[Bench], None]:
    def spoil(b: Bench) -> None:
        X = rows()
        values(X)
        b.write("X", X)

    return spoil


CASES: dict[str, tuple[Case, int, str]] = {
    # what is wrong: (command, exit code, words of the sentence)
    "no model there": (instead("model", "none"), 3, "does not exist"),
    "a folder that is no model": (instead("model", "data.zarr"), 3, "holds no model.json"),
    "model.json altered": (case(lambda b: edit(b.model / "model.json", model={})), 3, "altered"),
    "model.json is no JSON": (case(lambda b: (b.model / "model.json").write_text("{")), 3, "not valid JSON"),
    "model of a newer format": (
        case(lambda b: edit(b.model / "model.json", version=99)),
        3,
        "Install a newer dcpred",
    ),
    "flipped bit in the model": (
        case(lambda b: flip(largest(b.model / "arrays.zarr" / "landmarks"))),
        3,
        "altered",
    ),
    "data that do not exist": (instead("data", "nowhere.zarr"), 3, "does not exist"),
    "data that are a file": (instead("data", "model/model.json"), 3, "is a file"),
    "an array that is not there": (case(nothing, "--x", "Z"), 3, "Cannot find array Z"),
    "too many features": (
        case(lambda b: b.write("X", rows(9, 7))),
        3,
        "7 features, but the model was trained with 4",
    ),
    "one dimension": (case(lambda b: b.write("X", np.zeros(9))), 3, "it has 1 dimension, shape (9,)"),
    "complex numbers": (case(lambda b: b.write("X", np.zeros((9, 4), complex))), 3, "complex numbers"),
    "no rows": (case(lambda b: b.write("X", np.zeros((0, 4)))), 3, "has no rows"),
    "other feature names": (
        case(lambda b: named(b, ["a", "b", "d", "c"])),
        3,
        "2 'd' for 'c', 3 'c' for 'd'",
    ),
    "a missing chunk": (case(lambda b: (b.data / "X" / "c" / "3" / "0").unlink()), 3, "is missing"),
    "an unknown output": (case(nothing, "--outputs", "labels"), 3, "Cannot write output 'labels'"),
    "no output": (case(nothing, "--outputs", ","), 3, "Cannot score without outputs"),
    "a folder of other files": (
        case(lambda b: (b.out.mkdir(), (b.out / "mine").touch())),
        3,
        "holds other files",
    ),
    "the output of another plan": (
        case(lambda b: shutil.copytree(b.done, b.out), "--outputs", "label"),
        3,
        "another plan",
    ),
    "a file where the output is to be": (case(lambda b: b.out.touch()), 3, "other files"),
    "an output inside the input": (
        lambda b: ["score", str(b.model), str(b.data), str(b.data / "X" / "out"), "--workers", "1"],
        3,
        "inside the input",
    ),
    "a scheduler that does not answer": (
        lambda b: [
            "score",
            str(b.model),
            str(b.data),
            str(b.out),
            "--scheduler",
            f"tcp://127.0.0.1:{free_port()}",
        ],
        75,
        "does not answer",
    ),
    "a scheduler without a port": (
        lambda b: ["score", str(b.model), str(b.data), str(b.out), "--scheduler", "here"],
        3,
        "it is not an address",
    ),
    "workers and a scheduler": (
        case(nothing, "--scheduler", "tcp://127.0.0.1:1"),
        2,
        "one excludes the other",
    ),
    "a negative limit": (case(nothing, "--max-bad-rows", "-1"), 2, "use an integer of 0 or more"),
    "training: no target": (case(nothing, "--y", "target", do="train"), 3, "Cannot find array target"),
    "training: NaN in X": (
        case(spoilt(lambda X: X.__setitem__((7, 2), np.nan)), "--set", "missing=refuse", do="train"),
        3,
        "row 7, column 2",
    ),
    "training: infinity in X": (
        case(spoilt(lambda X: X.__setitem__((9, 0), np.inf)), do="train"),
        3,
        "has inf in row 9",
    ),
    "training: one class": (case(with_target(np.ones(N_ROWS, int)), do="train"), 3, "only one class"),
    "training: targets of other length": (
        case(with_target(np.ones(9, int)), do="train"),
        3,
        "one value for each row",
    ),
    "training: complex targets": (
        case(with_target(np.ones(N_ROWS, complex)), do="train"),
        3,
        "dtype is complex128",
    ),
    "training: an unknown setting": (case(nothing, "--set", "leaves=4", do="train"), 3, "leaves"),
    "training: a setting out of range": (case(nothing, "--set", "landmarks=-1", do="train"), 3, "landmarks"),
    "training: weights that are not there": (
        case(nothing, "--sample-weight", "w", do="train"),
        3,
        "Cannot find array w",
    ),
    "importing: a word among numbers": (table("a,b\n1,2\n2,?\n3,4\n"), 3, "--gap '?'"),
    "importing: text that is another in every row": (
        table("a,b\n" + "".join(f"{i},note {i}\n" for i in range(99))),
        3,
        "--drop b",
    ),
    "importing: dates that may be read in two ways": (
        table("a,b\n" + "".join(f"1,{i % 12 + 1}/{i % 28 + 1}/2020\n" for i in range(700))),
        3,
        "ISO 8601",
    ),
    "importing: other columns than the model's": (
        table("a\n1\n", "--like", "DATA"),
        3,
        "lacks the columns",
    ),
    "status of something else": (lambda b: ["status", str(b.data)], 3, "holds no plan.json"),
    "verification of something else": (lambda b: ["verify", str(b.model)], 3, "plan.json"),
}


def held(bench: Bench) -> tuple[int, str]:
    """A second driver."""
    shutil.copytree(bench.done, bench.out)
    (bench.out / "manifest.json").unlink()
    with acquire_lock(open_place(bench.out)):
        return ask(bench.score())


def full(bench: Bench) -> tuple[int, str]:
    """A disk with too little room."""
    usage = shutil.disk_usage(bench.folder)
    with mock.patch("shutil.disk_usage", return_value=usage._replace(free=100)):
        return ask(bench.score())


def read_only(bench: Bench) -> tuple[int, str]:
    """A place where nothing can be created."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with mock.patch.object(Path, "write_bytes", refuse):
        return ask(bench.score())


ENVIRONMENTS = {
    "another driver at work": (held, 6, "in use by process"),
    "too little room": (full, 5, "Free some space"),
    "no permission to write": (read_only, 5, "Permission denied"),
}


def ask(args: list[str]) -> tuple[int, str]:
    """Exit code and what is said."""
    result = CliRunner().invoke(command, args)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    said = [line for line in result.output.splitlines() if line.startswith(("dcpred: ", "Error: "))]
    return result.exit_code, said[-1].partition(": ")[2] if said else result.output.strip()


@contextmanager
def one_pool() -> Iterator[None]:
    """The same worker process for all commands that would start one, and little patience with schedulers."""
    with connect(1) as workers:

        def pool(
            n_workers: int | None, scheduler: Scheduler | None, threads: int
        ) -> AbstractContextManager[Workers]:
            return connect(n_workers, scheduler) if scheduler else nullcontext(workers)

        with (
            mock.patch("dcpred.execution.dask_workers.CONNECT_SECONDS", 1),
            mock.patch("dcpred.execution.pools.connect", pool),
        ):
            yield


def contents(folder: Path) -> set[tuple[str, int]]:
    return {
        (str(p.relative_to(folder)), p.stat().st_mtime_ns)
        for p in folder.rglob("*")
        if p.is_file() and p.name not in ("lock", ".lock.guard")
    }


def prepare(folder: Path) -> Bench:
    bench = Bench(folder)
    X = rows()
    zarr_arrays.create_group(bench.data)
    bench.write("X", X)
    bench.write("y", (X[:, 0] > 0).astype(int))
    named(bench, ["a", "b", "c", "d"])
    settings = {"n_leaves": 4, "landmarks": 4}
    train(bench.data, bench.model, settings=settings)
    score(bench.model, bench.data, bench.done)
    return bench


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the same: it takes seconds")
    parser.parse_args()
    table, wrong = Table("what is wrong", "exit code", "what is said"), []
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"COLUMNS": "500"}),
        one_pool(),
    ):
        good = prepare(Path(folder) / "good")
        for number, (name, (way, code, words)) in enumerate({**CASES, **ENVIRONMENTS}.items()):
            place = Path(folder) / str(number)
            shutil.copytree(good.folder, place)
            bench = Bench(place)
            if name in ENVIRONMENTS:
                found, said = way(bench)  # type: ignore[misc]
                written = []
            else:
                args = way(bench)
                before = contents(place)
                found, said = ask(args)  # type: ignore[arg-type]
                written = sorted(contents(place) - before)
            if found != code or words not in said or written:
                wrong.append(f"{name}: exit {found}, wrote {written}, said {said!r}")
            table.add(name, str(found), said.replace(str(place), "…").replace("|", "/"))
    table.show()
    print(f"\n{len(table.lines) - 2} refused, {len(wrong)} not as they should be")
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
