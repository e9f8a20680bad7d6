"""Models that somebody made to do harm, with the digests that belong to them: each is refused in a sentence,
or the engine gives what the definition gives.

    python tests/benchmarks/fuzz_models.py [--cases 100000] [--seed 0] [--only CASE] [--work DIR] [--quick]

Models of every version of the format, and new ones of all kernels, maps, encodings, tasks and leaf models,
get other numbers, sizes, dtypes and JSON. What is accepted scores rows by the C++ of the engine, compiled
with sanitizers, in its quantised walk where the model has one, and by the definition. A finding is

    trace       an error of another kind than a refusal
    difference  another status or decision value than the definition gives, or NaN in what goes with one
    crash       the end of the process: a sanitizer, or more than 2 GiB
    memory      more than 512 MiB asked for at once
    slow        more than 10 seconds of the processor
    hang        no answer in two minutes
    sound       a model that nobody spoiled was refused

Without g++ the engine is the one that serves, and nothing checks its memory. Cases are numbered: --only
repeats one. DIR/cases.jsonl has all findings.
"""

import argparse
import copy
import json
import os
import pickle
import random
import resource
import shutil
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from common import Table
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from dcpred import DCPredClassifier, DCPredRegressor, Settings
from dcpred_tasks.artifacts import model_artifact, model_checks, model_layout
from dcpred_tasks.artifacts.model_artifact import MODEL_FILE, open_artifact, write_model
from dcpred_tasks.artifacts.trained_rows import TrainedRows
from dcpred_tasks.dtypes import Status
from dcpred_tasks.engine import engine
from dcpred_tasks.errors import DcpredError
from dcpred_tasks.model import compact_model, predictive_outputs
from dcpred_tasks.model.compact_model import Model, class_array, class_numbers
from dcpred_tasks.model.contributions import contributions
from dcpred_tasks.model.kernels import KERNELS
from dcpred_tasks.model.target_transform import NO_TRANSFORM
from dcpred_tasks.scoring import scorer
from dcpred_tasks.scoring.self_test import check_self_test
from dcpred_tasks.storage import addressed_arrays
from dcpred_tasks.storage.atomic_files import read_json
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.training.settings import make_settings, settings_dict
from support.hostile import recast_array, spoil_array, spoil_json, spoil_packed
from support.leaf_models import EVERY, SIZES, with_baseline
from support.models import SCALINGS, differences, random_model, random_rows
from support.native import QUICK, Native, sanitized

FORMATS = Path(__file__).parents[1] / "data/formats"
N_ROWS = 40
LARGEST = 2**28  # bytes of arrays of an accepted model, in place of a quarter of this machine
ONCE, ALL = 512, 2_048  # MiB asked for at once, and held
SLOW, HANG = 10.0, 120.0  # seconds of the processor, and of the clock
REAL = 0.002  # share of cases that are written to files and read from them
SOUND = 40  # every so many cases one is sound
DTYPES = ("f8", "f8", "f4", "f4", "f2", "i2", "u1", "i8", "?", ">f8")
FINE = ("refused", "agrees")
PROGRESS, FINDINGS, BASES = "progress", "cases.jsonl", "bases"


@dataclass(frozen=True)
class Base:
    """A sound model: its document, the arrays of the model and of its self-test, and rows for it."""

    document: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    tests: dict[str, NDArray[Any]]
    rows: NDArray[Any]


@dataclass
class Stored:
    """An array of Zarr that lies in memory."""

    value: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    chunks = shape

    def __getitem__(self, _: Any) -> NDArray[Any]:
        return self.value


# -- sound models --------------------------------------------------------------------------------------------


def make_bases(folder: Path, quick: bool) -> None:
    """Models with rows.npy beside them, each in a folder of its own."""
    for archive in sorted(FORMATS.glob("model-*.tar.xz"))[:: 3 if quick else 1]:
        shutil.unpack_archive(archive, folder / archive.name.partition(".")[0], filter="data")
    for name, model in fresh_models(quick):
        settings = settings_dict(make_settings({}))
        write_model(folder / name / "model", model, settings, {"feature_names": [f"x{f}" for f in range(3)]})
        np.save(folder / name / "rows.npy", random_rows(model, N_ROWS, 0))
    for number, estimator in enumerate([] if quick else trained()):
        path = folder / f"trained-{number}"
        rng = np.random.default_rng(number)
        X = rng.normal(size=(300, 4))
        X[:, 3] = rng.integers(0, 5, 300)
        X[::11, 0] = np.nan if number % 2 else 0.0
        y = (
            np.exp(X[:, 1] + (X[:, 3] > 2))
            if "Regressor" in type(estimator).__name__
            else (X[:, 1] > X[:, 3] - 2) * 1
        )
        estimator.fit(X, y).save(path / "model")
        np.save(path / "rows.npy", X[:N_ROWS])


def fresh_models(quick: bool) -> Iterator[tuple[str, Model]]:
    kinds = [(kernel, scaling) for scaling in SCALINGS for kernel in ("rbf",)] + [
        (k, "standard") for k in KERNELS
    ]
    for number, (kernel, scaling) in enumerate(kinds[:: 5 if quick else 1]):
        for d, n_outputs in ((3, 1), (17, 3), (40, 1)):
            task = "regression" if n_outputs == 1 and number % 3 == 0 else "classification"
            bound = ("lower", "upper", None, None)[number % 4] if kernel != "polynomial" else None
            yield (
                f"{number}-{kernel}-{scaling}-{d}".replace(" ", "_"),
                random_model(
                    number,
                    kernel,
                    d=d,
                    n_outputs=n_outputs,
                    task=task,
                    depth=3 if d == 40 and number % 3 == 1 else number % 2 + 1,
                    scaling=scaling,
                    triangle=bound if d == 3 else None,
                    sizes=(0, 1, 4, 17),
                    leaf_scaling=number % 2 == 1,
                ),
            )
    X, y = np.random.default_rng(0).normal(size=(120, 3)), np.arange(120) % 2
    for name in EVERY[:: 5 if quick else 1]:
        model = random_model(1, depth=1, sizes=(4,), scaling="none")
        yield f"leaf-{name}", with_baseline(model, name, X, y, size=8 if name in SIZES else 0)


def trained() -> list[Any]:
    """Estimators whose models have intervals, scales, calibration, bins, background rows and encodings."""
    common: dict[str, Any] = {"landmarks": 4, "random_state": 0, "missing": "indicate"}
    small = Settings(min_leaf_rows=20, keep_support_vectors=True)
    return [
        DCPredClassifier(n_leaves=3, categorical=[3], settings=small, **common),
        DCPredRegressor(n_leaves=3, settings=small, **common),
        DCPredClassifier(
            n_leaves=2, class_weight="balanced", settings=Settings(feature_map="quantile"), **common
        ),
        DCPredRegressor(n_leaves=2, categorical=[3], target_transform="sqrt", **common),
    ]


def read_bases(folder: Path) -> dict[str, Base]:
    found = {}
    for path in sorted(folder.iterdir()):
        document = read_json(path / "model" / MODEL_FILE)
        group = addressed_arrays.open_group(str(path / "model" / model_artifact.ARRAYS_GROUP))
        arrays, tests = (
            {name: np.asarray(model_artifact.zarr_arrays.member(group, name)[...]) for name in told}
            for told in (document["model"]["arrays"], document.get("self_test", {}))
        )
        found[path.name] = Base(document, arrays, tests, np.load(path / "rows.npy"))
    return found


# -- mutations -----------------------------------------------------------------------------------------------


def spoil(base: Base, bases: dict[str, Base], rng: random.Random) -> tuple[Base, str]:
    """Another model made of a sound one, and what was done to it."""
    document, arrays, tests = {**base.document}, {**base.arrays}, {**base.tests}
    document["model"], done = {**document["model"]}, []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        whole = [name for name in sorted(arrays) if arrays[name].dtype.kind == "i"]
        name = rng.choice(whole if whole and rng.random() < 0.4 else sorted(arrays))
        match rng.randrange(20):
            case 0 | 1:
                body = {
                    key: copy.deepcopy(value) for key, value in document["model"].items() if key != "arrays"
                }
                document["model"] = spoil_json(body, rng)
                done.append("model.json")
            case 2:
                document["provenance"] = spoil_json(copy.deepcopy(document["provenance"]), rng)
                done.append("provenance")
            case 3:
                arrays[name] = recast_array(arrays[name], rng)
                done.append(f"{name} recast")
            case 4:
                other = rng.choice(list(bases.values())).arrays
                name = rng.choice(sorted(other))
                arrays[name] = other[name]
                done.append(f"{name} of another model")
            case 5:
                del arrays[name]
                done.append(f"{name} gone")
                return Base(document, arrays, tests, base.rows), ", ".join(done)
            case 6 | 7 | 8 | 9 | 10:
                done.append(_spoil_dimension(arrays, rng))
            case 11 if tests:
                name = rng.choice(sorted(tests))
                tests[name] = spoil_array(tests[name], rng)
                done.append(name)
            case 12 | 13 | 14 if {"machine_at", "machine_packed"} <= arrays.keys():
                try:
                    done.append(f"leaf model: {spoil_packed(arrays, rng)}")
                except (ValueError, TypeError, IndexError, OverflowError, MemoryError):
                    done.append("offsets of leaf models are damaged already")
            case _:
                arrays[name] = spoil_array(arrays[name], rng)
                done.append(name)
    return Base(document, arrays, tests, base.rows), ", ".join(done)


def _spoil_dimension(arrays: dict[str, NDArray[Any]], rng: random.Random) -> str:
    """Rows of one dimension left out, repeated or in another order, in all arrays that share it."""
    shared: dict[str, list[tuple[str, int]]] = {}
    for name, array in arrays.items():
        if array.ndim == len(model_layout.ARRAYS[name].dimensions):
            for axis, dimension in enumerate(model_layout.dimensions_of(name, arrays)):
                shared.setdefault(dimension, []).append((name, axis))
    dimension = rng.choice(sorted(shared))
    size = arrays[shared[dimension][0][0]].shape[shared[dimension][0][1]]
    index = np.array(
        rng.choice(
            (
                sorted(rng.choices(range(size), k=max(size + rng.choice((-1, 1, 8)), 0))),
                rng.choices(range(size), k=size),
                list(range(size))[::-1],
                list(range(size)) + list(range(size)),
                [0] * rng.choice((1, 20, 70)),
            )
        )
        if size
        else [],
        np.int64,
    )
    for name, axis in shared[dimension]:
        if arrays[name].shape[axis] == size:
            arrays[name] = np.take(arrays[name], index, axis)
    return f"dimension {dimension} of {len(index)} for {size}"


def lay(base: Base, path: Path, rng: random.Random, real: bool) -> Any:
    """Write the model, with the digests and the hash that belong to it; returns the arrays in memory."""
    path.mkdir(exist_ok=True)
    both, document = base.arrays | base.tests, dict(base.document)
    body = document["model"]
    if isinstance(body, dict):
        declared = model_artifact._declared(base.arrays)
        document["model"] = body = {**body, "arrays": declared}
        try:
            document["hash"] = digest_json(body)
        except (ValueError, TypeError, RecursionError):
            document["hash"] = ""
    # Without its self-test a model is believed: compiled code gets what is left.
    document["self_test"] = model_artifact._declared(base.tests) if rng.random() < 0.5 else {}
    (path / MODEL_FILE).write_text(json.dumps(document))
    if real:
        shutil.rmtree(path / model_artifact.ARRAYS_GROUP, ignore_errors=True)
        model_artifact._write_arrays(str(path / model_artifact.ARRAYS_GROUP), both)
    return both


# -- one case ------------------------------------------------------------------------------------------------


def outcome(case: str, bases: dict[str, Base], path: Path) -> tuple[str, str, str]:
    """(outcome, what was done, what was found) of a case."""
    rng, number = random.Random(case), int(case.rpartition("/")[2])
    name = rng.choice(list(bases))
    sound = number % SOUND == 0
    base, done = (bases[name], "") if sound else spoil(bases[name], bases, rng)
    began = time.process_time()
    try:
        fits = all(a.ndim == len(model_layout.ARRAYS[one].dimensions) for one, a in base.arrays.items())
        real = fits and rng.random() < REAL
        kept = lay(base, path, rng, real)
        members = mock.Mock(open_stored_group=lambda _: kept, member=lambda group, name: Stored(group[name]))
        with mock.patch.object(
            model_artifact, "zarr_arrays", model_artifact.zarr_arrays if real else members
        ):
            artifact = open_artifact(path)
            model, test = artifact.model(support=artifact.has_support), artifact.self_test()
        _ = TrainedRows.of(artifact.provenance), artifact.schema, artifact.feature_names
        result, found = "agrees", compared(model, base.rows, rng)
        if found:
            result = "difference"
        check_self_test(model, test, "here")
    except DcpredError as error:
        result, found = ("sound" if sound else "refused"), str(error)
    except MemoryError as error:
        result, found = "memory", repr(error)
    except Exception:
        result, found = "trace", traceback.format_exc(limit=-4)
    if (seconds := time.process_time() - began) > SLOW:
        result, found = "slow", f"{seconds:.0f} s: {found}"
    return result, f"{name}: {done}", found[-900:]


def compared(model: Model, rows: NDArray[Any], rng: random.Random) -> str:
    """Where the engine and the definition differ; empty where they agree, also on outputs beside scores."""
    model = replace(model, target=NO_TRANSFORM) if model.target else model
    X = rows_for(model, rows, rng)
    leaves = np.empty(len(X), np.int32)
    ours, theirs = scorer.score_rows(model, X, leaves=leaves), compact_model.score_rows(model, X)
    if model.leaf_models is None:
        found = differing(model, X, ours, theirs)
    else:  # Leaf models that single precision suffices for are no nearer than that.
        found = "" if (ours[1] == theirs[1]).all() else f"status {ours[1]}, not {theirs[1]}"
    return found or use_outputs(model, X, ours[0], leaves, ours[1] == Status.OK, rng)


def differing(model: Model, X: NDArray[Any], ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> str:
    (decision, status), (right, right_status) = ours, theirs
    with np.errstate(all="ignore"):
        near = np.abs(decision - right) <= 1e-6 * np.maximum(np.abs(right), 1.0)
    if (status == right_status).all() and near[status == 1].all():
        return ""
    # Rounding is relative to what is summed, and the last bits of a large value are more than that.
    with np.errstate(all="ignore"):
        exact = (status == right_status) & (np.abs(decision - right) <= 4e-7 * np.abs(right)).all(axis=1)
        odd = np.flatnonzero(~exact | (status != 1))
        parts = (decision[odd], status[odd]), (right[odd], right_status[odd])
        return "; ".join([*differences(model, X[odd], *parts, tolerance=2e-6)][:3])


def rows_for(model: Model, rows: NDArray[Any], rng: random.Random) -> NDArray[Any]:
    """Some rows of the sound model where it has as many features, rows of its numbers, and odd ones."""
    numbers = np.random.default_rng(rng.randrange(2**32))
    d = model.n_features
    X = numbers.normal(size=(N_ROWS, d)) if rows.shape[1] != d else np.array(rows[:N_ROWS], float)
    for row in X[:: rng.choice((1, 3, 9))]:
        odd = rng.choice((0.0, 1.0, 0.5, 1e15, -1e25, 3.4e38, 1e200, np.nan, np.inf, 2.0**31, 65_535.0))
        row[numbers.random(d) < rng.choice((0.05, 0.5, 1.0))] = odd
    dtype = np.dtype(rng.choice(DTYPES))
    with np.errstate(all="ignore"):
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            X = np.clip(np.rint(np.nan_to_num(X)), float(limits.min), np.nextafter(float(limits.max), 0))
        return X.astype(dtype)


def use_outputs(
    model: Model, X: NDArray[Any], decision: Any, leaf: NDArray[np.int32], scored: Any, rng: random.Random
) -> str:
    """Compute all that scores serve for; returns which of it is NaN in scored rows."""
    beside: list[NDArray[Any]] = []
    if not scored.any():
        return ""
    with np.errstate(all="ignore"):
        if model.task == "classification":
            class_array(model.classes)[class_numbers(decision)]
        if model.support is not None:
            compact_model.score_rows(model, X[:4], early=True)
        if model.uncertainty is not None:
            novelty, _ = scorer.score_rows(predictive_outputs.typicality_model(model), X)
            predictive_outputs.novelty(model, novelty[:, 0], leaf)
            scale = predictive_outputs.scale_model(model)
            log_scale = np.empty(0) if scale is None else scorer.score_rows(scale, X)[0][:, 0]
            if model.uncertainty.calibration is not None:
                beside.append(predictive_outputs.probabilities(model, decision))
            if model.uncertainty.intervals is not None and len(model.uncertainty.intervals.alpha):
                beside.append(predictive_outputs.intervals(model, decision[:, 0], leaf, log_scale, 0.5))
        if model.bins is not None:
            model.bins.counts(X, decision)
        if rng.random() < 0.05 and model.leaf_models is None:
            contributions(model, X[:3], decision[:3], leaf[:3])
    return "NaN beside scores" if any(np.isnan(one[scored]).any() for one in beside) else ""


# -- processes -----------------------------------------------------------------------------------------------


def work_off(work: Path, seed: int, first: int, last: int, step: int, library: str) -> None:
    """Cases first to last in this process; what is not fine is printed, and the number of the case noted."""
    warnings.simplefilter("ignore")
    bases = pickle.loads((work / f"{BASES}.pickle").read_bytes())
    if library:
        native = Native(library)
        engine.own_code = lambda of: native  # type: ignore[assignment,return-value]
    else:
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + ALL * 2**20, resource.RLIM_INFINITY))
    model_checks.LARGEST_MODEL, model_checks.LARGEST_LAYOUT = LARGEST, 2 * LARGEST
    counts: Counter[str] = Counter()
    progress = os.open(work / f"{PROGRESS}-{first % step}", os.O_RDWR | os.O_CREAT)
    with (work / FINDINGS).open("a") as file:
        for number in range(first, last, step):
            result, done, found = outcome(f"{seed}/{number}", bases, work / f"case-{first % step}")
            counts[result] += 1
            if result not in FINE:
                file.write(json.dumps([number, result, done, found]) + "\n")
                file.flush()
            state = json.dumps([number + step, counts]).ljust(400)
            os.pwrite(progress, state.encode(), 0)


class Worker:
    """A process that works off every step-th case, and is begun again after one that ended it."""

    def __init__(self, args: argparse.Namespace, library: list[str], env: dict[str, str], first: int) -> None:
        self.args, self.library, self.env = args, library, env
        self.lane = first % args.processes
        self.counts: Counter[str] = Counter()
        self.before: Counter[str] = Counter()
        self.next = first
        self.moved = time.monotonic()
        self.process = self._begin()

    def _begin(self) -> "subprocess.Popen[bytes]":
        (self.args.work / f"{PROGRESS}-{self.lane}").unlink(missing_ok=True)
        own = [self.args.work, self.args.seed, self.next, self.args.cases, self.args.processes, *self.library]
        command = [sys.executable, "-W", "ignore", __file__, "--child", *map(str, own)]
        self.moved, self.before = time.monotonic(), self.counts
        with (self.args.work / f"errors-{self.lane}.txt").open("wb") as errors:
            return subprocess.Popen(command, env=os.environ | self.env, stderr=errors)

    def look(self) -> bool:
        """Whether it is still at work."""
        ended = self.process.poll()
        try:
            reached, counts = json.loads((self.args.work / f"{PROGRESS}-{self.lane}").read_text())
        except (OSError, ValueError):
            reached, counts = self.next, {}
        if reached > self.next:
            self.moved, self.next = time.monotonic(), reached
            self.counts = self.before + Counter(counts)
        if ended == 0:
            return False
        hangs = time.monotonic() - self.moved > HANG
        if ended is None and not hangs:
            return True
        if ended is None:
            self.process.kill()
            self.process.wait()
        errors = (self.args.work / f"errors-{self.lane}.txt").read_text(errors="replace")
        finding = [self.next, "hang" if hangs else "crash", "", errors[:1500]]
        with (self.args.work / FINDINGS).open("a") as file:
            file.write(json.dumps(finding) + "\n")
        self.counts = self.counts + Counter([finding[1]])
        self.next += self.args.processes
        self.process = self._begin()
        return True


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("benchmark-fuzz-models"))
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="one case, as a finding names it")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few cases of few models")
    args = parser.parse_args()
    args.work = args.work.resolve()
    shutil.rmtree(args.work / BASES, ignore_errors=True)
    (args.work / BASES).mkdir(parents=True)
    (args.work / FINDINGS).unlink(missing_ok=True)
    make_bases(args.work / BASES, args.quick)
    (args.work / f"{BASES}.pickle").write_bytes(pickle.dumps(read_bases(args.work / BASES)))
    library: list[str] = []
    env: dict[str, str] = {}
    if shutil.which("g++"):
        library, env = sanitized(
            "engine", args.work, QUICK if args.quick else ("-O1", *QUICK[1:]), forced=True
        )
        limits = f"max_allocation_size_mb={ONCE}:hard_rss_limit_mb={ALL}"
        del env["PYTHONMALLOC"]  # Arrays lie between bytes that must not be touched without it, too.
        env["ASAN_OPTIONS"] += f":allocator_may_return_null=1:{limits}:quarantine_size_mb=16"
    if args.quick:
        args.cases = 150
    if args.only is not None:
        args.first, args.cases, args.processes = args.only, args.only + 1, 1
    began = time.monotonic()
    workers = [Worker(args, library, env, args.first + one) for one in range(args.processes)]
    while any([worker.look() for worker in workers]):
        time.sleep(0.2)
    counts = sum((worker.counts for worker in workers), Counter())
    found = counts.total() - sum(counts[fine] for fine in FINE)
    table = Table("cases", "refused", "agree", "findings", "seconds")
    numbers = (counts.total(), *(counts[fine] for fine in FINE), found, round(time.monotonic() - began))
    table.add(*(f"{number:,}" for number in numbers))
    table.show()
    if found:
        print((args.work / FINDINGS).read_text(), file=sys.stderr)
        raise SystemExit(1)
    shutil.rmtree(args.work)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        work, *numbers = sys.argv[2:7]
        work_off(Path(work), *map(int, numbers), "".join(sys.argv[7:]))
    else:
        main()
