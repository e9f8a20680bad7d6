"""Files that somebody made to do harm: each is refused in a sentence, or does none.

    python tests/benchmarks/hostile.py [--formats model.json,...] [--mutations 2000] [--seed 0] [--work DIR]
                                       [--quick]

Of each format so many files are made from a sound one: JSON with other values, names, depths and with the
checksums that belong to it, bytes changed, arrays of a model with numbers that lead astray, pipes, devices,
links and files with holes in the place of files. Each is given to the commands that read it, in a process
whose memory is bounded. A finding is

    trace      an error of another kind than a refusal
    crash      the end of the process
    hang       no answer in two minutes
    memory     more than 4 GiB asked for and not refused
    code       something unpickled, run, or loaded as code
    outside    a file written, moved or removed elsewhere than in the output and the caches
"""

import argparse
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr
from click.testing import CliRunner
from common import Table
from scipy.io import netcdf_file
from scipy.sparse import csr_array, save_npz

sys.path.insert(0, str(Path(__file__).parents[1]))
from dcpred import plan
from dcpred.cli import main as dcpred
from dcpred.datasets.importing import find_schema, import_data
from dcpred.execution.secure_connection import secured
from dcpred.execution.workers import Scheduler
from dcpred.refresh.refresh import refresh
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.artifacts import model_artifact
from dcpred_tasks.artifacts.model_artifact import MODEL_FILE, open_artifact
from dcpred_tasks.errors import DcpredError
from dcpred_tasks.storage.atomic_files import read_json, write_json
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.training.settings import make_settings
from support.certificates import make_certificates
from support.data import make_blobs, make_group
from support.hostile import spoil_array, spoil_bytes, spoil_file
from support.pools import inline
from support.tables import table, write_csv

N_ROWS, N_FEATURES = 300, 4
HANG_SECONDS = 120.0
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


def made(folder: Path) -> Path:
    """A folder with a sound file of every format."""
    blobs = make_blobs(N_ROWS, n_features=N_FEATURES, n_classes=3, seed=1)
    data = make_group(folder / "data.zarr", blobs.X, blobs.y, chunk_rows=50)
    old = zarr.open_group(folder / "old.zarr", mode="w", zarr_format=2)
    old.create_array("X", data=blobs.X, chunks=(50, N_FEATURES))
    settings = make_settings({"landmarks": 6, "n_leaves": 8, "products": 4, "keep_support_vectors": True})
    train(f"{data}/X", f"{data}/y", folder / "model", settings, inline)
    score(folder / "model", f"{data}/X", folder / "out", inline)
    shutil.copytree(folder / "out", folder / "half")
    for name in ("manifest.json", "blocks/000001.json"):
        (folder / "half" / name).unlink()
    refresh(folder / "model", f"{data}/X", folder / "root", inline)
    make_certificates(folder / "certificates")
    return folder


def make_tables(folder: Path) -> None:
    """A table in every format, and a data set and a model whose schema has every kind of column."""
    frame = table(N_ROWS).drop(columns="seen").fillna({"age": 40.0})
    import_data(frame, folder / "table.zarr", target="label", ids=["id"])
    data = folder / "table.zarr"
    train(f"{data}/X", f"{data}/y", folder / "table-model", make_settings({"landmarks": 4}), inline)
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
    return "harmless" if result.exit_code == 0 else "refused"


def use_model(folder: Path, rng: random.Random) -> str:
    if rng.random() < 0.2:
        return command("inspect", folder / "model")
    return command("score", folder / "model", folder / "data.zarr", folder / "out", "--workers", 1)


def use_support(folder: Path, rng: random.Random) -> str:
    open_artifact(folder / "model").support()
    return command("inspect", folder / "model")


def use_data(name: str) -> Act:
    def act(folder: Path, rng: random.Random) -> str:
        data, draw = folder / name, rng.random()
        if draw < 0.2:
            return command("inspect", data)
        if draw < 0.4 and name == "data.zarr":
            settings = ("--set", "n_leaves=2", "--set", "landmarks=4", "--set", "refine=false")
            return command("train", data, folder / "new", *settings, "--workers", 1)
        return command("score", folder / "model", data, folder / "out", "--workers", 1)

    return act


def use_output(folder: Path, rng: random.Random) -> str:
    output = folder / rng.choice(("out", "half"))
    again = ("score", folder / "model", folder / "data.zarr", output, "--workers", 1)
    return command(
        *rng.choice(
            (
                ("status", output),
                ("errors", output),
                ("inspect", output),
                ("verify", output, "--workers", 1),
                again,
                (*again, "--repair"),
            )
        )
    )


def use_root(folder: Path, rng: random.Random) -> str:
    again = ("refresh", folder / "model", folder / "data.zarr", folder / "root", "--workers", 1)
    return command(
        *rng.choice((again, (*again, "--keep", 1), (*again, "--full"), ("status", folder / "root")))
    )


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
    """Arrays of a model with other values, and the digests and the hash that belong to them."""
    model = folder / "model"
    told = read_json(model / MODEL_FILE)
    group = zarr.open_group(model / "arrays.zarr", mode="r")
    arrays = {name: np.asarray(group[name]) for name in told["model"]["arrays"]}
    names = rng.sample(sorted(arrays), rng.choice((1, 1, 2)))
    arrays |= {name: spoil_array(arrays[name], rng) for name in names}
    tests = {name: np.asarray(group[name]) for name in told["self_test"]}
    if rng.random() < 0.3:
        name = rng.choice(sorted(tests))
        tests[name] = spoil_array(tests[name], rng)
        names.append(name)
    shutil.rmtree(model / "arrays.zarr")
    model_artifact._write_arrays(str(model / "arrays.zarr"), arrays | tests)
    told["model"]["arrays"] = model_artifact._declared(arrays)
    # Without its self-test a model is believed: compiled code gets what is left.
    told["self_test"] = model_artifact._declared(tests) if rng.random() < 0.5 else {}
    told["hash"] = digest_json(told["model"])
    write_json(model / MODEL_FILE, told)
    return f"arrays {', '.join(names)}"


OUTPUTS, ROOT, OLD, TABLES = (
    ("model", "data.zarr", "out", "half"),
    ("model", "data.zarr", "root"),
    ("model", "old.zarr"),
    ("table.zarr", "table-model", "sources"),
)


def spoil_text(folder: Path, rng: random.Random) -> str:
    (folder / "address").write_bytes(spoil_bytes((folder / "address").read_bytes(), rng))
    return "bytes"


FORMATS = {
    "model.json": Format("model/model.json", use_model),
    "arrays of a model": Format("model", use_model, spoil=spoil_arrays),
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
    "root of refresh": Format("root/*.json", use_root, ROOT),
    "runs of refresh": Format("root/runs/*/*.json", use_root, ROOT),
    "lock and pointer of refresh": Format("root/l*", use_root, ROOT),
    "schemas": Format("[st][ao]*/**/[szm]*.json", use_schema, TABLES),
    "tables to import": Format("sources/a.*", use_source, ("sources",)),
    "certificates": Format("certificates/c*.*", use_certificates, ("certificates",)),
    "address of a scheduler": Format("address", use_address, ("address",), spoil_text),
}


QUICK = ("arrays of a model", "metadata of a data set", "plan", "certificates")


def one(base: Path, work: Path, form: Format, seed: str) -> tuple[str, str, str]:
    """(outcome, what was done, what was found) of one mutation."""
    rng = random.Random(seed)
    folder = work / "try"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in form.needs:
        copy = shutil.copytree if (base / name).is_dir() else shutil.copy
        copy(base / name, folder / name, **({"symlinks": True} if copy is shutil.copytree else {}))
    if form.spoil is not None:
        done = form.spoil(folder, rng)
    else:
        files = sorted(path for path in folder.glob(form.files) if path.is_file() and not path.is_symlink())
        done = " + ".join(
            spoil_file(path, rng) for path in rng.sample(files, min(len(files), rng.choice((1, 1, 2))))
        )
    seen.clear()
    try:
        outcome = form.act(folder, rng)
    except DcpredError:
        outcome = "refused"
    except MemoryError as error:
        return "memory", done, repr(error)[:300]
    except Exception as error:
        return "trace", done, f"{type(error).__name__}: {error}"[:400]
    if seen:
        kind = "code" if seen[0].startswith(CODE) else "outside"
        return kind, done, seen[0]
    return outcome, done, ""


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


def work_off(base: Path, work: Path, name: str, seeds: list[str], pipe: Any) -> None:
    """Mutations of one format, one after the other, in this process."""
    warnings.simplefilter("ignore")
    plan.MIN_BLOCK_ROWS, plan.MAX_CHUNK_ROWS, plan.BLOCKS = 1, 50, 4
    for module in ("score", "verify", "refresh", "train"):
        import_module(f"dcpred.cli.{module}_command").connect = stand_in  # type: ignore[attr-defined]
    sys.stderr = open(work / "errors.txt", "a")  # noqa: SIM115
    tempfile.gettempdir()  # It tries a file.
    one(base, work, FORMATS[name], seeds[0])  # What is imported late is imported here.
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, resource.RLIM_INFINITY))
    caches = [os.environ.get("DCPRED_CACHE_DIR", str(Path("~/.cache").expanduser()))]
    watch(work, [*caches, f"{tempfile.gettempdir()}/dcpred-{os.getuid()}"])
    for seed in seeds:
        pipe.send((seed, *one(base, work, FORMATS[name], seed)))
    pipe.close()


def stand_in(*args: Any, **more: Any) -> Any:
    return inline()


def outcomes(base: Path, work: Path, name: str, seeds: list[str]) -> Iterator[tuple[str, str, str, str]]:
    """Of each mutation: (seed, outcome, what was done, what was found). A process that ends or hangs is
    begun anew after it.
    """
    context = multiprocessing.get_context("spawn")
    left = list(seeds)
    while left:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work_off, args=(base, work, name, left, theirs))
        process.start()
        theirs.close()
        ended = "crash"
        try:
            while left:
                if not ours.poll(HANG_SECONDS):
                    ended = "hang"
                    break
                yield ours.recv()
                left.pop(0)
        except EOFError:
            pass
        process.kill() if ended == "hang" else None
        process.join()
        if left:
            yield left.pop(0), ended, "", f"exit code {process.exitcode}"


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
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    plan.MIN_BLOCK_ROWS, plan.MAX_CHUNK_ROWS, plan.BLOCKS = 1, 50, 4
    base = made(work / "base")
    (base / "address").write_text("tcp://127.0.0.1:9\n")
    table = Table("format", "mutations", "refused", "harmless", "findings")
    found = 0
    wanted = args.formats.split(",") if args.formats else QUICK if args.quick else FORMATS
    if any(FORMATS[name].needs[-1] == "sources" for name in wanted):
        make_tables(base)
    for name in wanted:
        seeds = [f"{args.seed}/{name}/{i}" for i in range(3 if args.quick else args.mutations)]
        counts: Counter[str] = Counter()
        for seed, outcome, done, what in outcomes(base, work, name, [args.only] if args.only else seeds):
            counts[outcome] += 1
            if outcome not in ("refused", "harmless"):
                print(f"{seed}: {outcome}: {done}: {what}", file=sys.stderr, flush=True)
        others = sum(counts.values()) - counts["refused"] - counts["harmless"]
        found += others
        table.add(
            name,
            f"{sum(counts.values()):,}",
            f"{counts['refused']:,}",
            f"{counts['harmless']:,}",
            f"{others:,}",
        )
    table.show()
    if found:
        raise SystemExit(1)
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
