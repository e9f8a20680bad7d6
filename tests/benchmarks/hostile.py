"""Files that somebody made to do harm: each is refused in a sentence, or does none.

    python tests/benchmarks/hostile.py [--formats model.json,...] [--mutations 2000] [--seed 0] [--work DIR]
                                       [--only SEED] [--quick]

Of each format so many files are made from a sound one: JSON with other values, names, depths and with the
checksums that belong to it, bytes changed, arrays with numbers that lead astray, pipes, devices, links and
files with holes in the place of files. Each is given to the commands that read it, in a process whose memory
is bounded. A finding is

    trace      an error of another kind than a refusal
    crash      the end of the process
    hang       no answer in two minutes
    memory     more than 4 GiB asked for and not refused
    code       something unpickled, run, or loaded as code
    outside    a file written, moved or removed elsewhere than in the output and the caches
    sound      a file that nobody spoiled was refused: the mutations of its format would show little

What comes of each is written to DIR/SEED.jsonl at once. The same command goes on after one that was cut off:
mutations that did no harm are not tried again, and findings are.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from common import Table
from scipy.io import netcdf_file
from scipy.sparse import csr_array, save_npz

sys.path.insert(0, str(Path(__file__).parents[1]))

from dcpred.cli import main as dcpred
from dcpred.datasets.importing import find_schema, import_data
from dcpred.execution import block_plan, pools
from dcpred.execution.dask_workers import secured
from dcpred.execution.workers import Scheduler
from dcpred.refreshing.refresh import refresh
from dcpred.scoring.score import score
from dcpred.training import steps
from dcpred.training.choice import search_and_fit
from dcpred.training.fit import TrainingRequest, fit_model
from dcpred.training.policy import STANDARD
from dcpred.training.train import train
from dcpred_tasks.artifacts import model_artifact
from dcpred_tasks.artifacts.model_artifact import MODEL_FILE, open_artifact, write_model
from dcpred_tasks.errors import DcpredError
from dcpred_tasks.storage.atomic_files import read_json, write_json
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.settings import Settings, make_settings, settings_dict
from dcpred_tasks.training.survey import survey_rows
from support.certificates import make_certificates
from support.data import make_blobs, make_group
from support.hostile import spoil_array, spoil_bytes, spoil_file, spoil_packed
from support.leaf_models import EVERY, SIZES, with_baseline
from support.pools import inline
from support.tables import table, write_csv

BASE = "base"  # beside the folder of a mutation: sound files
N_ROWS, N_FEATURES = 300, 4
SETTINGS = {"landmarks": 6, "n_leaves": 8, "products": 4, "keep_support_vectors": True}
OTHER_SYSTEMS = EVERY
TRAINING = {"n_leaves": 2, "landmarks": 4, "refine": False, "overlap": 2}
TRAINING_WORDS = [word for name, value in TRAINING.items() for word in ("--set", f"{name}={value}".lower())]
TRY, SOUND, N_SOUND = "try", "sound", 8
FINE = ("refused", "harmless")
TELL_SECONDS = 30.0
HANG_SECONDS = 120.0
# once, and not by each process that works off a format
IMPORTED = ["dcpred.cli.main", "dcpred.refreshing.refresh", "dcpred.training.fit", "dcpred.training.choice"]
IMPORTED += ["h5py", "pytest", "scipy.io", "support.tables"]
MEMORY = 4 * 2**30
CODE = ("pickle.find_class", "os.system", "subprocess.Popen", "os.exec", "os.posix_spawn")
WRITES = (
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
)
Act = Callable[[Path, random.Random], str]
"""Give a folder of spoiled files to the commands that read them; raises what they raise."""


@dataclass(frozen=True)
class Format:
    """Files of one kind: where they lie in the folder, and who reads them."""

    files: str
    act: Act
    needs: tuple[str, ...] = ("model", "data.zarr")
    spoil: Callable[[Path, random.Random], str] | None = None
    """What is done to the files; None: one or two of them are spoiled."""
    lay: Callable[[Path, random.Random], None] | None = None
    """Puts one of several sound files there, beside what is needed."""


class GivenUpError(Exception):
    """In place of the last step of a training."""


def made(folder: Path, needed: set[str]) -> Path:
    """A folder with sound files of formats that need these names; a few more, which cost little."""
    blobs = make_blobs(N_ROWS, n_features=N_FEATURES, n_classes=3, seed=1)
    data = make_group(folder / "data.zarr", blobs.X, blobs.y, chunk_rows=50)
    old = zarr.open_group(folder / "old.zarr", mode="w", zarr_format=2)
    old.create_array("X", data=blobs.X, chunks=(50, N_FEATURES))
    job = (f"{data}/X", f"{data}/y")
    fit_model(TrainingRequest(*job, folder / "model", make_settings(SETTINGS), inline))
    score(folder / "model", job[0], folder / "out")
    shutil.copytree(folder / "out", folder / "half")
    for name in ("manifest.json", "blocks/000001.json"):
        (folder / "half" / name).unlink()
    for names, make in (
        ({"root", "several"}, _make_roots),
        ({"sources"}, _make_tables),
        ({"new.scratch", "begun.tune", "found.tuned.json"}, _make_scratch),
        ({"machines"}, _make_machines),
    ):
        if names & needed:
            make(folder)
    make_certificates(folder / "certificates")
    (folder / "address").write_text("tcp://127.0.0.1:9\n")
    (folder / "settings.toml").write_text(
        '# comment\nn_leaves = 2\nlandmarks = 4\nrefine = false\ngamma = 0.5\nC = 1e1\nscaling = "minmax"\n'
        'categorical = "none"\n'
    )
    return folder


def _make_roots(folder: Path) -> None:
    """Roots of one input, where a link and where a file tells the latest run, and of two."""
    refresh(folder / "model", f"{folder}/data.zarr/X", folder / "root")
    shutil.copytree(folder / "root", folder / "pointed", symlinks=True)
    run = (folder / "pointed/latest").readlink()
    (folder / "pointed/latest").unlink()
    write_json(folder / "pointed/LATEST.json", {"run": str(run)})
    for name in ("one", "two"):
        shutil.copytree(folder / "data.zarr", folder / "in" / f"{name}.zarr")
    refresh(folder / "model", f"{folder}/in/*.zarr", folder / "several")


def _make_machines(folder: Path) -> None:
    """Models of version 0.1.0 with baselines."""
    X, y = (zarr.open_array(f"{folder}/data.zarr/{name}", mode="r")[...] for name in ("X", "y"))
    classes, target = np.unique(y, return_inverse=True)
    settings = make_settings({"leaf_model": "exact", "n_leaves": 2, "min_leaf_rows": 20})
    survey, weight = survey_rows(X, target, np.ones(len(X)), 0, "classification"), np.ones(len(X))
    model = train_rows(X, target, weight, np.empty(0), survey, settings, tuple(classes.tolist()))
    for name in OTHER_SYSTEMS:
        own = with_baseline(model, name, X, target, size=8 if name in SIZES else 0)
        write_model(folder / "machines" / name, own, settings_dict(settings), {})


def _make_scratch(folder: Path) -> None:
    """What a training leaves that ended before it wrote its model; what a search leaves that ended before it
    kept its settings, and what a finished one keeps.
    """

    def give_up(*_: Any) -> None:
        raise GivenUpError

    x, y = (f"{folder}/data.zarr/{name}" for name in "Xy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "write_model", give_up)
        with pytest.raises(GivenUpError):
            fit_model(TrainingRequest(x, y, folder / "new", make_settings(TRAINING), inline))
        for name, part in (("found", "fit_model"), ("begun", "described")):
            patch.setattr(f"dcpred.training.choice.{part}", give_up)
            with pytest.raises(GivenUpError):
                search_and_fit(TrainingRequest(x, y, folder / name, Settings(), inline), STANDARD)


def _make_tables(folder: Path) -> None:
    """A table in every format, and a data set and a model whose schema has every kind of column."""
    frame = table(N_ROWS).drop(columns="seen").fillna({"age": 40.0})
    import_data(frame, folder / "table.zarr", target="label", ids=["id"])
    data = folder / "table.zarr"
    train(data, folder / "table-model", settings={"landmarks": 4})
    sources = folder / "sources"
    sources.mkdir()
    find = find_schema(frame, target="label", ids=["id"])
    write_json(sources / "schema.json", find.document())
    write_csv(frame, sources / "a.csv")
    frame.to_parquet(sources / "a.parquet")
    frame.to_feather(sources / "a.feather")
    save_npz(sources / "a.npz", csr_array(frame[["age", "amount"]].to_numpy()))
    arrays = frame[["age", "old", "amount"]]
    with h5py.File(sources / "a.h5", "w") as file:
        for name in arrays:
            file[name] = arrays[name].to_numpy()
    with netcdf_file(sources / "a.nc", "w") as file:
        file.createDimension("sample", N_ROWS)
        file.createVariable("age", "f8", ("sample",))[:] = arrays["age"].to_numpy()


def command(*words: object) -> str:
    """What `dcpred` says of it. Raises where that is no exit code of a refusal."""
    result = CliRunner().invoke(dcpred, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if "Traceback" in result.output + result.stderr:
        raise RuntimeError(f"a traceback was shown: {result.stderr[-500:]}")
    if result.exit_code not in (0, 3, 4, 5, 6):
        raise RuntimeError(f"exit code {result.exit_code}: {result.stderr[-500:]}")
    return "harmless" if result.exit_code == 0 else f"refused: {result.stderr[-300:]}"


def use_model(folder: Path, rng: random.Random) -> str:
    if rng.random() < 0.2:
        return command("inspect", folder / "model")
    if rng.random() < 0.2:
        return command("explain", folder / "model", folder / "data.zarr", "--rows", "3,50-60")
    outputs = ("--outputs", "label,decision,probability,novelty") if rng.random() < 0.7 else ()
    return command(
        "score", folder / "model", folder / "data.zarr", folder / "new-out", "--workers", 1, *outputs
    )


def use_support(folder: Path, rng: random.Random) -> str:
    open_artifact(folder / "model").support()
    return command("inspect", folder / "model")


def use_data(name: str) -> Act:
    def act(folder: Path, rng: random.Random) -> str:
        data, draw = folder / name, rng.random()
        if draw < 0.2:
            return command("inspect", data)
        if draw < 0.4 and name == "data.zarr":
            return command("train", data, folder / "new", *TRAINING_WORDS, "--workers", 1)
        return command("score", folder / "model", data, folder / "new-out", "--workers", 1)

    return act


def use_output(folder: Path, rng: random.Random) -> str:
    output = folder / rng.choice(("out", "half"))
    again = ("score", folder / "model", folder / "data.zarr", output, "--workers", 1)
    acts = [again, again, ("status", output), ("errors", output), ("inspect", output)]
    if output.name == "out":  # The other is not whole before it is scored.
        acts += [("verify", output, "--workers", 1), (*again, "--repair")]
    return command(*rng.choice(acts))


def use_root(folder: Path, rng: random.Random) -> str:
    root = folder / rng.choice([name for name in ("root", "pointed", "several") if (folder / name).is_dir()])
    data = folder / ("in/*.zarr" if root.name == "several" else "data.zarr")
    again = ("refresh", folder / "model", data, root, "--workers", 1)
    return command(*rng.choice((again, (*again, "--keep", 1), (*again, "--full"), ("status", root))))


def use_scratch(folder: Path, rng: random.Random) -> str:
    return command("train", folder / "data.zarr", folder / "new", *TRAINING_WORDS, "--workers", 1)


def use_search(name: str) -> Act:
    """A search that goes on, or whose settings are read."""
    return lambda folder, rng: command("tune", folder / "data.zarr", folder / name, "--short", "--workers", 1)


def use_settings(folder: Path, rng: random.Random) -> str:
    config = ("--config", folder / "settings.toml")
    return command("train", folder / "data.zarr", folder / "other", *config, "--workers", 1)


def use_schema(folder: Path, rng: random.Random) -> str:
    """A schema of a data set, of a model, or in a file of its own."""
    source, like = folder / "sources/a.csv", folder / rng.choice(("table.zarr", "table-model"))
    by_hand = ("import", source, folder / "new.zarr", "--schema", folder / "sources/schema.json")
    return command(
        *rng.choice(
            (
                ("import", source, folder / "new.zarr", "--like", like),
                by_hand,
                ("inspect", like),
                ("score", folder / "table-model", folder / "table.zarr", folder / "out", "--workers", 1),
            )
        )
    )


def use_source(folder: Path, rng: random.Random) -> str:
    source = rng.choice([path for path in (folder / "sources").iterdir() if path.suffix != ".json"])
    return command("import", source, folder / "new.zarr")


def use_certificates(folder: Path, rng: random.Random) -> str:
    ca, cert, key = (str(folder / "certificates" / name) for name in ("ca.pem", "client.pem", "client.key"))
    secured(Scheduler("wss://127.0.0.1:9", ca, cert, key))
    return "harmless"


def use_address(folder: Path, rng: random.Random) -> str:
    text = (folder / "address").read_bytes().decode(errors="replace").strip("\n")
    secured(Scheduler(text))
    return "harmless"


def spoil_arrays(folder: Path, rng: random.Random) -> str:
    """Arrays of a model with other values."""
    told, arrays, tests = _model_arrays(folder / "model")
    names = rng.sample(sorted(arrays), rng.choice((1, 1, 2)))
    arrays |= {name: spoil_array(arrays[name], rng) for name in names}
    if rng.random() < 0.3:
        name = rng.choice(sorted(tests))
        tests[name] = spoil_array(tests[name], rng)
        names.append(name)
    _write_model(folder / "model", told, arrays, tests, rng)
    return f"arrays {', '.join(names)}"


def lay_machine(folder: Path, rng: random.Random) -> None:
    shutil.copytree(folder.parent / BASE / "machines" / rng.choice(OTHER_SYSTEMS), folder / "model")


def spoil_machine(folder: Path, rng: random.Random) -> str:
    """A leaf model whose packed arrays, header, bytes or name are others."""
    told, arrays, tests = _model_arrays(folder / "model")
    match rng.randrange(8):
        case 0:
            done = "named as another"
            told["model"]["machine"] = rng.choice((*OTHER_SYSTEMS, "compact", ""))
        case 1:
            done, arrays["machine_at"] = "offsets", spoil_array(arrays["machine_at"], rng)
        case 2:
            done = "arrays beside it"
            other = rng.choice(sorted({*arrays} - {"machine_at", "machine_packed"}))
            arrays[other] = spoil_array(arrays[other], rng)
        case _:
            done = spoil_packed(arrays, rng)
    _write_model(folder / "model", told, arrays, tests, rng)
    return f"{told['model']['machine']}: {done}"


def _model_arrays(model: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """model.json, the arrays of the model, and those of its self-test."""
    told = read_json(model / MODEL_FILE)
    group = zarr.open_group(model / "arrays.zarr", mode="r")
    arrays = {name: np.asarray(group[name]) for name in told["model"]["arrays"]}
    return told, arrays, {name: np.asarray(group[name]) for name in told["self_test"]}


def _write_model(
    model: Path, told: dict[str, Any], arrays: dict[str, Any], tests: dict[str, Any], rng: random.Random
) -> None:
    """With the digests and the hash that belong to what it holds."""
    shutil.rmtree(model / "arrays.zarr")
    model_artifact._write_arrays(str(model / "arrays.zarr"), arrays | tests)
    told["model"]["arrays"] = model_artifact._declared(arrays)
    # Without its self-test a model is believed: compiled code gets what is left.
    told["self_test"] = model_artifact._declared(tests) if rng.random() < 0.5 else {}
    told["hash"] = digest_json(told["model"])
    write_json(model / MODEL_FILE, told)


def spoil_scratch(name: str, *later: str) -> Callable[[Path, random.Random], str]:
    """One file of a directory: bytes, or arrays of other values, whose checksums are right; what is made of
    that file is gone at times, so that it is read.
    """

    def spoil(folder: Path, rng: random.Random) -> str:
        path = rng.choice(sorted(path for path in (folder / name).rglob("*") if path.is_file()))
        told = _spoil_arrays_of(path, rng)
        for gone in (folder / name / part for part in later):
            if rng.random() < 0.3 and not path.is_relative_to(gone):
                shutil.rmtree(gone) if gone.is_dir() else gone.unlink(missing_ok=True)
        return told

    return spoil


def _spoil_arrays_of(path: Path, rng: random.Random) -> str:
    if path.suffix not in (".npz", ".npy") or rng.random() < 0.3:
        return spoil_file(path, rng)
    if path.suffix == ".npy":
        np.save(path, spoil_array(np.load(path), rng))
        return f"{path.name}: array"
    with np.load(path) as data:
        held = dict(data)
    name = rng.choice(sorted(held))
    if held[name].dtype.kind in "iufb":
        held[name] = spoil_array(held[name], rng)
    np.savez(path, **held)
    return f"{path.name}: {name}"


def spoil_text(name: str) -> Callable[[Path, random.Random], str]:
    def spoil(folder: Path, rng: random.Random) -> str:
        (folder / name).write_bytes(spoil_bytes((folder / name).read_bytes(), rng))
        return f"{name}: bytes"

    return spoil


OUTPUTS, ROOTS, OLD, TABLES = (
    ("model", "data.zarr", "out", "half"),
    ("model", "data.zarr", "in", "root", "pointed", "several"),
    ("model", "old.zarr"),
    ("table.zarr", "table-model", "sources"),
)
ONE_ROOT, SEVERAL = ("model", "data.zarr", "root"), ("model", "in", "several")

FORMATS = {
    "model.json": Format("model/model.json", use_model),
    "arrays of a model": Format("model", use_model, spoil=spoil_arrays),
    "leaf models of baselines": Format("model", use_model, ("data.zarr",), spoil_machine, lay_machine),
    "metadata of a model": Format("model/arrays.zarr/**/zarr.json", use_model),
    "chunks of a model": Format("model/arrays.zarr/*/c/**/*", use_model),
    "support vectors": Format("model/arrays.zarr/support_*/**/*", use_support),
    "metadata of a data set": Format("data.zarr/**/zarr.json", use_data("data.zarr")),
    "chunks of a data set": Format("data.zarr/*/c/**/*", use_data("data.zarr")),
    "metadata of Zarr 2": Format("old.zarr/**/.z*", use_data("old.zarr"), OLD),
    "chunks of Zarr 2": Format("old.zarr/X/[0-9]*", use_data("old.zarr"), OLD),
    "plan": Format("[oh]*/plan.json", use_output, OUTPUTS),
    "commit records": Format("[oh]*/blocks/*.json", use_output, OUTPUTS),
    "manifest": Format("out/manifest.json", use_output, OUTPUTS),
    "lock": Format("[oh]*/lock", use_output, OUTPUTS),
    "metadata of an output": Format("[oh]*/scores.zarr/**/zarr.json", use_output, OUTPUTS),
    "chunks of an output": Format("[oh]*/scores.zarr/*/c/**/*", use_output, OUTPUTS),
    "root of refresh": Format("root/*.json", use_root, ONE_ROOT),
    "runs of refresh": Format("root/runs/*/*.json", use_root, ONE_ROOT),
    "lock and pointer of refresh": Format("[rps]*/[lL]*", use_root, ROOTS),
    "parts of refresh": Format("several/**/*.json", use_root, SEVERAL),
    "schemas": Format("[st][ao]*/**/[szm]*.json", use_schema, TABLES),
    "tables to import": Format("sources/a.*", use_source, ("sources",)),
    "certificates": Format("certificates/c*.*", use_certificates, ("certificates",)),
    "address of a scheduler": Format("address", use_address, ("address",), spoil_text("address")),
    "settings": Format(
        "settings.toml", use_settings, ("data.zarr", "settings.toml"), spoil_text("settings.toml")
    ),
    "scratch of training": Format(
        "",
        use_scratch,
        ("data.zarr", "new.scratch"),
        spoil_scratch("new.scratch", "leaves", "rows-0", "tree.npz", "division.npz"),
    ),
    "scratch of a search": Format(
        "", use_search("begun"), ("data.zarr", "begun.tune"), spoil_scratch("begun.tune")
    ),
    "settings that were found": Format(
        "found.tuned.json", use_search("found"), ("data.zarr", "found.tuned.json")
    ),
}
QUICK = ("arrays of a model", "leaf models of baselines", "plan", "certificates")


def one(work: Path, form: Format, seed: str) -> tuple[str, str, str]:
    """(outcome, what was done, what was found) of one mutation; of a sound file where the seed says so."""
    rng = random.Random(seed)
    base, folder = work / BASE, work / TRY
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in form.needs:
        copy = shutil.copytree if (base / name).is_dir() else shutil.copy
        copy(base / name, folder / name, **({"symlinks": True} if copy is shutil.copytree else {}))
    if form.lay is not None:
        form.lay(folder, rng)
    done = SOUND if seed.startswith(SOUND) else _spoil(folder, form, rng)
    seen.clear()
    try:
        outcome = form.act(folder, rng)
    except DcpredError as error:
        outcome = f"refused: {error}"
    except MemoryError as error:
        return "memory", done, repr(error)[:300]
    except Exception as error:
        return "trace", done, f"{type(error).__name__}: {error}"[:400]
    if seen:
        kind = "code" if seen[0].startswith(CODE) else "outside"
        return kind, done, seen[0]
    if done == SOUND and outcome != "harmless":
        return SOUND, done, outcome
    return outcome.partition(":")[0], done, ""


def _spoil(folder: Path, form: Format, rng: random.Random) -> str:
    if form.spoil is not None:
        return form.spoil(folder, rng)
    files = sorted(path for path in folder.glob(form.files) if path.is_file() and not path.is_symlink())
    some = rng.sample(files, min(len(files), rng.choice((1, 1, 2))))
    return " + ".join(spoil_file(path, rng) for path in some)


seen: list[str] = []


def watch(allowed: Path, caches: list[str]) -> None:
    """Note what is run, and what is written elsewhere."""
    inside = (str(allowed), *caches, "/dev/null", "/dev/shm")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith("socket.") and not _own_machine(event, arguments):
            raise ConnectionRefusedError(f"{event} {arguments!r}")
        if event in CODE:
            seen.append(f"{event} {arguments[:2]!r}"[:300])
        elif event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            if writes and isinstance(path, str | bytes) and not _inside(path, inside):
                seen.append(f"open {path!r}")
        elif event in WRITES and not all(_inside(path, inside) for path in _written(event, arguments)):
            seen.append(f"{event} {arguments!r}"[:300])

    sys.addaudithook(hook)


def _written(event: str, arguments: tuple[Any, ...]) -> list[Any]:
    """Paths that an event makes, moves or removes; those that are named within an open folder with it."""
    paths = [os.fsdecode(path) for path in arguments if isinstance(path, str | bytes | os.PathLike)]
    if event in ("os.symlink", "os.link"):
        paths = paths[1:]
    handles = [handle for handle in arguments if isinstance(handle, int) and handle >= 0]
    if event in ("os.remove", "os.rmdir") and handles:
        paths = [os.path.join(os.readlink(f"/proc/self/fd/{handles[-1]}"), path) for path in paths]
    return paths


def _own_machine(event: str, arguments: tuple[Any, ...]) -> bool:
    """Nobody else is asked, whatever an address says."""
    if event == "socket.connect":
        address = arguments[1]
        return not isinstance(address, tuple) or str(address[0]).startswith(("127.", "::1"))
    return event != "socket.getaddrinfo" or str(arguments[0]).startswith(("127.", "localhost"))


def _inside(path: Any, folders: tuple[str, ...]) -> bool:
    if isinstance(path, int):
        return True
    real = os.path.realpath(os.path.dirname(os.path.abspath(os.fsdecode(path))))
    return f"{real}/".startswith(tuple(f"{folder}/" for folder in folders)) or os.fsdecode(path) in folders


def work_off(work: Path, name: str, seeds: list[str], pipe: Any) -> None:
    """Mutations of one format, one after the other, in this process."""
    warnings.simplefilter("ignore")
    small_blocks()
    pools.connect = stand_in  # type: ignore[assignment]
    sys.stderr = open(work / "errors.txt", "a")  # noqa: SIM115
    tempfile.gettempdir()  # It tries a file.
    for i in range(min(N_SOUND, len(seeds))):  # What is imported late is imported here.
        outcome, done, what = one(work, FORMATS[name], f"{SOUND}/{name}/{i}")
        if outcome != "harmless":
            pipe.send((f"{SOUND}/{name}/{i}", outcome, done, what))
            return
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, resource.RLIM_INFINITY))
    caches = [os.environ.get("DCPRED_CACHE_DIR", str(Path("~/.cache").expanduser()))]
    watch(work, [*caches, f"{tempfile.gettempdir()}/dcpred-{os.getuid()}"])
    for seed in seeds:
        pipe.send((seed, *one(work, FORMATS[name], seed)))
    pipe.close()


def small_blocks() -> None:
    block_plan.MIN_BLOCK_ROWS, block_plan.MAX_CHUNK_ROWS, block_plan.BLOCKS = 1, 50, 4


def stand_in(*args: Any, **more: Any) -> Any:
    return inline()


def outcomes(work: Path, name: str, seeds: list[str]) -> Iterator[tuple[str, str, str, str]]:
    """Of each mutation: (seed, outcome, what was done, what was found). A process that ends or hangs is
    begun anew after it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    left = list(seeds)
    while left:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work_off, args=(work, name, left, theirs))
        process.start()
        theirs.close()
        ended = "crash"
        try:
            while left:
                if not ours.poll(HANG_SECONDS):
                    ended = "hang"
                    break
                result = ours.recv()
                yield result
                if result[0] != left[0]:  # a sound file
                    return
                left.pop(0)
        except EOFError:
            pass
        process.kill() if ended == "hang" else None
        process.join()
        if left:
            yield left.pop(0), ended, "", f"exit code {process.exitcode}"


def tried(journal: Path) -> dict[str, str]:
    """What came of mutations that did no harm, by their seeds."""
    if not journal.exists():
        return {}
    whole = journal.read_text().rpartition("\n")[0].splitlines()
    return {seed: outcome for seed, outcome, *_ in map(json.loads, whole) if outcome in FINE}


def work_through(work: Path, name: str, seeds: list[str], journal: Path) -> Counter[str]:
    """How often each outcome came of the mutations of a format, with those of an earlier call."""
    known = tried(journal)
    counts = Counter(known[seed] for seed in seeds if seed in known)
    said = time.monotonic()
    with journal.open("a") as file:
        for result in outcomes(work, name, [seed for seed in seeds if seed not in known]):
            seed, outcome, done, what = result
            counts[outcome] += 1
            file.write(json.dumps(result) + "\n")
            file.flush()
            if outcome not in FINE:
                print(f"{seed}: {outcome}: {done}: {what}", file=sys.stderr, flush=True)
            if time.monotonic() - said > TELL_SECONDS:
                said = time.monotonic()
                print(f"{name}: {counts.total():,} of {len(seeds):,}", file=sys.stderr, flush=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--formats", help="names with commas; all otherwise: " + ", ".join(FORMATS))
    parser.add_argument("--mutations", type=int, default=2_000, help="of each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one mutation, as a finding names it")
    parser.add_argument("--work", type=Path, default=Path("benchmark-hostile"))
    parser.add_argument("--quick", action="store_true", help="three mutations of a few formats")
    args = parser.parse_args()
    work = args.work.resolve()
    for folder in (BASE, TRY):
        shutil.rmtree(work / folder, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    small_blocks()
    journal = work / (f"{args.seed}.jsonl" if args.only is None else "only.jsonl")
    table = Table("format", "mutations", "refused", "harmless", "findings")
    found = 0
    wanted = args.formats.split(",") if args.formats else QUICK if args.quick else list(FORMATS)
    if args.only:
        wanted = [args.only.split("/")[1]]
        journal.unlink(missing_ok=True)
    needed = {one for name in wanted for one in FORMATS[name].needs}
    needed |= {"machines" for name in wanted if FORMATS[name].lay}
    made(work / TRY, needed).rename(work / BASE)  # Plans and roots name the folder where copies will lie.
    for name in wanted:
        seeds = [f"{args.seed}/{name}/{i}" for i in range(3 if args.quick else args.mutations)]
        counts = work_through(work, name, [args.only] if args.only else seeds, journal)
        fine = [counts[outcome] for outcome in FINE]
        found += counts.total() - sum(fine)
        table.add(name, *(f"{n:,}" for n in (counts.total(), *fine, counts.total() - sum(fine))))
        print(table.lines[-1], file=sys.stderr, flush=True)
    table.show()
    if found:
        raise SystemExit(1)
    for folder in (BASE, TRY):
        shutil.rmtree(work / folder)


if __name__ == "__main__":
    main()
