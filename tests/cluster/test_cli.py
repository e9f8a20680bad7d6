"""The command line as a new user meets it: real processes, exit codes, one sentence for each mistake.

`import`, `train`, `score`, `evaluate` and `inspect` run in processes of their own, once each.
All else is asked for in this process: a process of its own would be told the same by the same function, and
takes two seconds to import what it needs.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner, Result
from distributed import LocalCluster

from dcpred.cli import main
from dcpred.execution.pools import connect
from dcpred.execution.workers import Workers
from dcpred.training.fit import TrainingRequest
from dcpred.training.train import train
from dcpred_tasks.engine.machine_code import MachineCode, host, own_code
from dcpred_tasks.engine.native_modules import REFINEMENT
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.training.settings import Settings
from support import processes
from support.data import Classes, make_blobs, make_group
from support.processes import Done
from support.searches import few_candidates

SMALL = ("--set", "n_leaves=4", "--set", "landmarks=8", "--set", "products=8")


def dcpred(*arguments: object, code: int = 0) -> Done:
    """In a process of its own."""
    command = [sys.executable, "-m", "dcpred"]
    result = processes.run([*command, *map(str, arguments)])
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result


def here(*arguments: object, code: int = 0) -> Result:
    """In this process."""
    result = CliRunner().invoke(main, [str(a) for a in arguments], prog_name="dcpred")
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def as_json(*arguments: object, code: int = 0, run: Callable[..., Done | Result] = here) -> dict[str, Any]:
    """The one JSON object on standard output."""
    value = json.loads(run(*arguments, "--json", code=code).stdout)
    assert isinstance(value, dict)
    return value


def refused(message: str, *arguments: object, code: int = 3) -> None:
    result = here(*arguments, code=code)
    assert result.stdout == ""
    line = result.stderr.strip().splitlines()[-1]
    assert line.startswith("dcpred: ")
    assert message in line


@pytest.fixture(scope="module")
def worker() -> Iterator[Workers]:
    with connect(1) as workers:
        yield workers


@pytest.fixture
def one_worker(worker: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker process for all commands in this process that would start one; those in a process of their
    own start it.
    """

    def pool(
        n_workers: int | None, scheduler: Any = None, threads: int = 1
    ) -> AbstractContextManager[Workers]:
        return nullcontext(worker) if scheduler is None else connect(n_workers, scheduler)

    for name in ("execution.pools", "cli.demo"):
        monkeypatch.setattr(f"dcpred.{name}.connect", pool)


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set with string labels, imported from CSV."""
    folder = tmp_path_factory.mktemp("cli")
    blobs = make_blobs(1_500, n_features=4, n_classes=3, seed=0)
    names = np.array(["ash", "oak", "yew"])[blobs.y]
    lines = [",".join([*(f"{v:.3f}" for v in row), name]) for row, name in zip(blobs.X, names, strict=True)]
    (folder / "trees.csv").write_text("a,b,c,d,kind\n" + "\n".join(lines) + "\n")
    here("import", folder / "trees.csv", folder / "trees.zarr", "--target", "kind", "--chunk-rows", 400)
    return folder


@pytest.fixture(scope="module")
def trained(trees: Path) -> Result:
    """What was said when a model with support vectors, `model`, was trained."""
    kept = ("--set", "keep_support_vectors=true")
    return here("train", trees / "trees.zarr", trees / "model", *SMALL, *kept, "--workers", 1)


@pytest.fixture(scope="module")
def place(trees: Path, trained: Result) -> Path:
    return trees


@pytest.fixture(scope="module")
def scored(place: Path) -> dict[str, Any]:
    """What was said when the trees were scored into `out`."""
    return as_json("score", place / "model", place / "trees.zarr", place / "out", "--workers", 1, run=dcpred)


@pytest.fixture(scope="module")
def small(place: Path) -> Path:
    """A model without support vectors."""
    settings = {"n_leaves": 4, "landmarks": 8, "products": 8}
    train(f"{place}/trees.zarr", place / "small", settings=settings)
    return place / "small"


def test_the_whole_job(place: Path, scored: dict[str, Any]) -> None:
    assert scored["status"] == {"1": 1_500}
    group = zarr.open_group(place / "out" / "scores.zarr", mode="r")
    names = group["label"].attrs["labels"]
    target = zarr.open_group(place / "trees.zarr", mode="r")["y"]
    assert names == target.attrs["labels"] == ["ash", "oak", "yew"]
    agreement = (group["label"][...] == target[...]).mean()
    quality = as_json("evaluate", place / "model", place / "trees.zarr", "--early")
    assert quality["accuracy"] == pytest.approx(agreement)
    assert quality["accuracy"] > 0.9
    assert quality["early_accuracy"] > 0.9
    assert quality["cost_ratio"] == pytest.approx(quality["us_per_row"] / quality["linear_us_per_row"])
    again = as_json("score", place / "model", place / "trees.zarr", place / "out")
    assert again["scored_blocks"] == 0


def test_evaluate_without_the_cost(place: Path) -> None:
    quality = as_json("evaluate", place / "model", place / "trees.zarr", "--no-cost")
    assert {"model", "data", "n_samples", "n_bad", "accuracy"} < set(quality)
    assert {name for name in quality if "cost" in name or "us_per_row" in name} == {"predicted_cost_ratio"}
    shown = here("evaluate", place / "model", place / "trees.zarr", "--no-cost")
    facts = shown.stdout.partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in facts[:3]] == ["rows", "accuracy", "balanced_accuracy"]
    assert "cost" not in shown.stderr
    assert quality == as_json(
        "evaluate", place / "model", place / "trees.zarr", "--no-cost", "--workers", "1"
    ), "a worker finds what this process finds"


def test_one_model_has_one_cost(place: Path) -> None:
    """Commands show the predicted one; -v adds what was measured."""
    said = here("evaluate", place / "model", place / "trees.zarr").stdout
    costs = [line.split()[1] for line in said.splitlines() if "cost" in line]
    shown = as_json("inspect", place / "model")["predicted_cost"]["cost_ratio"]
    assert costs == [f"{shown:.1f}"]
    more = here("-v", "evaluate", place / "model", place / "trees.zarr").stdout
    assert "measured_cost" in more
    assert "in cache" in more
    assert "in cache" not in said


def test_inspect(place: Path, scored: dict[str, Any]) -> None:
    data = as_json("inspect", place / "trees.zarr")
    assert (data["kind"], data["arrays"]["X"]["shape"]) == ("data", [1_500, 4])
    assert data["arrays"]["X"]["attributes"]["feature_names"] == ["a", "b", "c", "d"]
    model = as_json("inspect", place / "model")
    assert (model["kind"], model["rows_per_leaf"]["total"], model["classes"]) == (
        "model",
        1_500,
        ["ash", "oak", "yew"],
    )
    assert model["settings"]["landmarks"] == 8
    assert model["support_vectors"] > 0
    scores = as_json("inspect", place / "out")
    assert (scores["kind"], scores["finished"], scores["arrays"]["status"]["shape"]) == (
        "scores",
        True,
        [1_500],
    )
    assert "rows_per_leaf.total" in here("inspect", place / "model").stdout


def test_results_on_stdout_and_progress_on_stderr(place: Path, trained: Done) -> None:
    assert trained.stdout.startswith("model")
    cost = as_json("inspect", place / "model")["predicted_cost"]["cost_ratio"]
    assert f"predicted cost  {cost:.1f}x\n" in trained.stdout
    assert "fitting" in trained.stderr
    assert "\x1b" not in trained.stderr


def test_features_are_named_as_categories_and_the_rest_is_searched_for(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search starts from what it leaves alone; with anything else, nothing is searched for."""
    searched: list[Settings] = []

    def searching(request: TrainingRequest, *_: Any) -> None:
        searched.append(request.settings)
        raise SettingsError("enough")

    monkeypatch.setattr("dcpred.training.choice.search_and_fit", searching)
    for command in ("train", "tune"):
        refused("enough", command, place / "trees.zarr", tmp_path / "new", "--set", "categorical=a,2")
        assert searched[-1].categorical == "a,2"
    refused(
        "Cannot set landmarks: the search chooses it",
        "tune",
        place / "trees.zarr",
        tmp_path / "new",
        *SMALL[2:4],
    )
    assert len(searched) == 2


def test_config_file_and_task(place: Path, tmp_path: Path, blobs: Classes, one_worker: None) -> None:
    (tmp_path / "job.toml").write_text('task = "regression"\nlandmarks = 5\nproducts = 0\n')
    data = make_group(tmp_path / "d.zarr", blobs.X, blobs.X[:, 0])
    here(
        "train",
        data,
        tmp_path / "m",
        "--config",
        tmp_path / "job.toml",
        "--set",
        "landmarks=6",
        "--workers",
        1,
    )
    settings = as_json("inspect", tmp_path / "m")["settings"]
    assert (settings["task"], settings["landmarks"], settings["products"]) == ("regression", 6, 0)
    quality = as_json("evaluate", tmp_path / "m", data, "--no-cost")
    assert quality["r2"] > 0.8
    refused("label", "score", tmp_path / "m", data, tmp_path / "out", "--outputs", "label,decision")


def test_a_running_scheduler(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1"
    ) as cluster:
        address = cluster.scheduler_address
        here("train", place / "trees.zarr", tmp_path / "m", *SMALL, "--scheduler", address)
        here("score", tmp_path / "m", place / "trees.zarr", tmp_path / "out", "--scheduler", address)
        # The Dask operator, dask-gateway and others name their scheduler so.
        monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
        told = f"on the Dask cluster at {address} (from DASK_SCHEDULER_ADDRESS)"
        done = here("score", tmp_path / "m", place / "trees.zarr", tmp_path / "again")
        assert f"MiB per task {told}" in done.stderr
        if find_spec("bokeh"):
            assert f"Dask's dashboard is at {cluster.dashboard_link}" in done.stderr
        assert f"verifying {told}" in here("verify", tmp_path / "again").stderr
    assert (tmp_path / "out" / "manifest.json").exists()
    assert (tmp_path / "again" / "manifest.json").exists()


def test_workers_that_are_asked_for_outrank_the_scheduler_of_the_environment(
    place: Path, tmp_path: Path, one_worker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://127.0.0.1:9")
    here("score", place / "model", place / "trees.zarr", tmp_path / "out", "--workers", 1)
    monkeypatch.setattr("dcpred.execution.dask_workers.CONNECT_SECONDS", 1)
    refused("tcp://127.0.0.1:9 (from DASK_SCHEDULER_ADDRESS)", "verify", tmp_path / "out", code=75)


def test_training_without_settings_chooses_them(place: Path, tmp_path: Path, one_worker: None) -> None:
    """And `tune` with a budget prints what it found at which cost, draws it where it can, and names what it
    chose.
    """
    some = make_blobs(60, n_features=4, n_classes=2, seed=0)
    data = make_group(tmp_path / "some.zarr", some.X, some.y)
    with few_candidates():
        shown = here("train", data, tmp_path / "m", "--workers", 1).stdout
    assert "* chosen" in shown
    assert as_json("score", tmp_path / "m", data, tmp_path / "out", "--workers", 1)["status"] == {"1": 60}
    plot = ("--plot", tmp_path / "f.svg") if find_spec("matplotlib") else ()
    short = ("--budget", "40x", "--short", "--workers", 1, *plot)
    with few_candidates():
        found = as_json("tune", data, tmp_path / "t", *short)
    assert all(p["cost_ratio"] <= 40 for p in found["frontier"])
    assert found["trained"]["n_leaves"] >= 1
    assert (tmp_path / "f.svg").exists() == bool(plot)


def test_help_everywhere() -> None:
    assert "train" in dcpred("-h").stdout
    assert here("score", "-h").stdout.startswith("Usage: dcpred score")
    for command in main.list_commands(None):
        text = here(command, "-h").stdout
        assert text.startswith(f"Usage: dcpred {command}")
        assert "--json" in text


def test_usage_errors_exit_with_2(place: Path) -> None:
    here("nonsense", code=2)
    here("train", code=2)
    here("score", "m", "d", "o", "--workers", 1, "--scheduler", "tcp://127.0.0.1:1", code=2)
    here("score", "m", "d", "o", "--tls-cert", "client.pem", code=2)


def test_a_process_refuses_in_one_sentence(place: Path, tmp_path: Path) -> None:
    result = dcpred("train", tmp_path / "nothing.zarr", tmp_path / "m", code=3)
    assert result.stdout == ""
    assert result.stderr == here("train", tmp_path / "nothing.zarr", tmp_path / "m", code=3).stderr
    assert "does not exist" in result.stderr


def test_refusals(
    place: Path,
    scored: dict[str, Any],
    tmp_path: Path,
    one_worker: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dcpred.execution.dask_workers.CONNECT_SECONDS", 1)
    data, model, new = place / "trees.zarr", place / "model", tmp_path / "new"
    other = make_group(tmp_path / "other.zarr", np.zeros((9, 7)), np.zeros(9))
    words = tmp_path / "words.zarr"
    zarr.create_group(words).create_array("X", shape=(9, 4), chunks=(9, 4), dtype=str)[...] = "x"
    unseen = make_group(
        tmp_path / "unseen.zarr", np.zeros((9, 4)), np.full(9, 1, np.int8), labels=["ash", "elm"]
    )
    refused("did you mean 'landmarks'", "train", data, new, "--set", "landmark=3")
    refused("must be an integer", "train", data, new, "--set", "landmarks=many")
    refused("does not exist", "train", tmp_path / "nothing.zarr", new)
    refused("'y' as target: trees.csv has no such column", "train", place / "trees.csv", new)
    refused("only one class", "train", other, new, "--workers", 1)
    refused("Cannot find array z", "train", data, new, "--y", "z")
    refused("7 features, but the model was trained with 4", "score", model, other, new)
    refused("not numbers", "score", model, words, new)
    refused("belongs to another plan", "score", model, data, place / "out", "--outputs", "label")
    refused("the model was not trained on its label elm", "evaluate", model, unseen)
    away = ("train", data, new, "--scheduler")
    refused("does not answer within 1 s", *away, "tcp://127.0.0.1:9", code=75)
    refused("does not answer within 1 s", *away, "tcp://no-such-host.invalid:8786")
    refused("it takes no user and no password. Write it as tls://host", *away, "tls://me:secret@host:1")
    refused("Cannot open a model at", "score", tmp_path / "nothing", data, new)
    refused("other data or settings", "train", data, model, *SMALL)
    refused("is there already", "train", data, model)
    refused("Write 8x", "tune", data, new, "--budget", "cheap")
    refused("its directory does not exist", "tune", data, new, "--plot", tmp_path / "nowhere" / "f.png")
    refused("its name does not end with", "tune", data, new, "--plot", tmp_path / "f.txt")
    refused("it already exists", "import", place / "trees.csv", data)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other.zarr", "unseen.zarr", "words.zarr"]


def test_refusals_as_json(place: Path, tmp_path: Path) -> None:
    value = as_json("train", tmp_path / "nothing.zarr", tmp_path / "m", code=3)
    assert value["exit_code"] == 3
    assert "does not exist" in value["error"]


def test_a_damaged_model_is_refused(place: Path, small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path / "m")
    chunk = tmp_path / "m" / "arrays.zarr" / "beta" / "c" / "0" / "0"
    raw = bytearray(chunk.read_bytes())
    raw[len(raw) // 2] ^= 1
    chunk.write_bytes(raw)
    refused("damaged or was altered", "score", tmp_path / "m", place / "trees.zarr", tmp_path / "out")
    meta = json.loads((place / "model" / "model.json").read_text())
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "model.json").write_text(json.dumps(meta | {"version": 99}))
    refused("Install a newer dcpred", "inspect", newer)


def test_early_needs_support_vectors(place: Path, small: Path) -> None:
    refused("keep_support_vectors=true", "evaluate", small, place / "trees.zarr", "--early")


def test_warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code of the host is found in the user's cache, and put where it was asked for all the same.
    What refines landmarks is made like the engine.
    """
    monkeypatch.setenv("DCPRED_CACHE_DIR", str(tmp_path))
    made = as_json("warm")["made"]
    codes = ["engine", "refinement", "trees"]
    assert [(m["target"], m["code"]) for m in made] == [("host", code) for code in codes]
    assert all(m["compiled"] and Path(m["file"]).is_relative_to(tmp_path) for m in made)
    assert here("warm").output.count("was there") == len(codes)
    monkeypatch.setenv("DCPRED_NO_COMPILER", "1")
    assert "DCPRED_NO_COMPILER is set: commands do not use this code." in " ".join(
        here("warm").output.split()
    )
    monkeypatch.delenv("DCPRED_NO_COMPILER")
    refined = MachineCode(own_code(REFINEMENT).bitcode, host(), entry=REFINEMENT.entry)
    assert refined.places()[0] == Path(made[1]["file"])
    assert refined.is_there()
    assert "Use one of them" in here("warm", "--target", "i486", code=3).stderr


@pytest.mark.tools
def test_warm_for_a_level_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DCPRED_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NUMBA_CPU_NAME", "x86-64-v3")
    assert [m["target"] for m in as_json("warm")["made"]] == ["x86-64-v3"] * 3


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_worker: None) -> None:
    """All of its steps, with fewer rows."""
    monkeypatch.setattr("dcpred.cli.demo.N_ROWS", 6_000)
    monkeypatch.setattr("dcpred.cli.demo.BASELINE_ROWS", 1_500)
    result = as_json("demo", "--out", tmp_path / "demo", "--workers", 1)
    assert result["accuracy"] > 0.96 > result["linear_accuracy"]
    assert result["early_accuracy"] > 0.97
    rivals = {name: (result[f"{name}_accuracy"], 1.0) for name in ("linear", "svm")}
    monkeypatch.setattr(
        "dcpred.cli.demo._baselines", lambda digits: rivals
    )  # which do not go on from anything
    monkeypatch.setattr(
        "dcpred.cli.demo.connect", lambda *a: pytest.fail("there is nothing left to train or score")
    )
    again = as_json("demo", "--out", tmp_path / "demo")
    assert again["accuracy"] == result["accuracy"]
    shutil.copytree(tmp_path / "demo", tmp_path / "copy", copy_function=shutil.copyfile)  # with other times
    copied = as_json("demo", "--out", tmp_path / "copy")
    assert copied["accuracy"] == result["accuracy"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    refused("holds other files", "demo", "--out", tmp_path / "mine")


def test_a_process_with_stores_waits_for_no_thread_at_its_end() -> None:
    """What is registered for the end happens."""
    script = (
        "import atexit, sys, threading, time, obstore; from dcpred.cli import run;"
        "atexit.register(print, 'at the end'); threading.Thread(target=time.sleep, args=(3600,)).start();"
        "sys.argv = ['dcpred', *sys.argv[1:]]; run()"
    )
    for arguments, code in ((["--version"], 0), (["status", "missing"], 3), (["status"], 2)):
        done = processes.run([sys.executable, "-c", script, *arguments])
        assert (done.returncode, done.stdout.splitlines()[-1]) == (code, "at the end"), done.stderr
