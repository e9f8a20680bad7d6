"""dcpred compare: systems side by side, cut off and gone on with, with a time limit that is told."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from dcpred.cli import main
from dcpred.comparison import compare as comparing
from dcpred.comparison import trial
from dcpred.comparison.rows import draw_rows, read_rows
from dcpred.comparison.systems import RIVALS, SIZES, every_system, points_of
from dcpred.reports.report import report
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.machine import BASES, MACHINES
from dcpred_tasks.task_bodies.try_system import try_system
from support.data import make_blobs, make_group
from support.html_pages import check_page
from support.pools import inline

pytest.importorskip("matplotlib", reason="matplotlib draws the plots of a comparison")
SYSTEMS = "exact,fourier,kmeans_nystrom,random_forest"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few points, tried in this process."""
    monkeypatch.setattr("dcpred.comparison.systems.TREES", (3,))
    for name in SIZES:
        monkeypatch.setitem(SIZES, name, (8, 16))
    monkeypatch.setattr("dcpred.comparison.kernel_errors.MOST_ROWS", 60)
    monkeypatch.setattr(trial, "COST_SECONDS", 0.01)
    monkeypatch.setattr("dcpred.cost.measured.STREAM_BYTES", 2**16)
    monkeypatch.setattr("dcpred.cli.compare_command.connect", lambda *_, **__: inline())
    monkeypatch.setattr(comparing, "try_system", try_here)


def try_here(folder: str, module: str, points: list[str], limit_seconds: float) -> list[str]:
    for point in points:
        if not (Path(folder) / "points" / f"{point}.json").exists():
            trial.main(Path(folder), point)
    return points


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = make_blobs(600, n_features=4, n_classes=3, seed=3)
    return make_group(tmp_path_factory.mktemp("compare") / "data.zarr", found.X, found.y + 5, chunk_rows=100)


def call(data: Path, out: Path, *more: object, systems: str = SYSTEMS) -> Result:
    words = ("compare", data, "--out", out, "--systems", systems, "--rows", 300, *more)
    return CliRunner().invoke(main, [str(word) for word in words])


def test_what_it_writes(data: Path, tmp_path: Path) -> None:
    result = call(data, tmp_path / "out")
    assert result.exit_code == 0, result.output
    with (tmp_path / "out/table.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [line["system"] for line in table] == [
        *("exact", "fourier", "fourier", "kmeans_nystrom", "kmeans_nystrom", "random_forest"),
    ]
    assert {line["status"] for line in table} == {"done"}
    assert float(table[0]["quality"]) > 0.9
    assert float(table[0]["agreement"]) == 1.0
    assert all(float(line["cost_ratio"]) > 0 and int(line["bytes"]) > 0 for line in table)
    assert float(table[2]["multiplications"]) == 2 * float(table[1]["multiplications"])
    page = (tmp_path / "out/report.html").read_text()
    found = check_page(page)
    assert found.texts["h3"] == ["Score against cost", "Error of kernel functions", "Points"]
    assert len(found.named("svg")) == 4, "each for wide pages and for narrow ones"
    assert len([one for one in found.texts["th"] if one.startswith("★")]) == result.stdout.count("\n*") - 1
    without_time = report(tmp_path / "out").html.rpartition("<footer>")[0]
    assert without_time == page.rpartition("<footer>")[0], "dcpred report makes the same page of the folder"
    for name in ("score_against_cost.png", "kernel_error.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
    lines = (tmp_path / "out/table.md").read_text().splitlines()
    assert len([line for line in lines if line.startswith("|")]) == 2 + len(table)
    assert "beaten by no cheaper one" in result.stdout


def test_it_goes_on_and_takes_more_systems(data: Path, tmp_path: Path) -> None:
    assert call(data, tmp_path / "out", systems="exact").exit_code == 0
    file = tmp_path / "out/points/exact-0.json"
    before = file.stat().st_mtime_ns
    (tmp_path / "out/points/kernel_errors.json").unlink()
    result = call(data, tmp_path / "out", "--json", systems="exact,fourier")
    assert result.exit_code == 0, result.output
    assert file.stat().st_mtime_ns == before
    assert [one["system"] for one in json.loads(result.stdout)["results"]] == ["exact", "fourier", "fourier"]
    other = call(data, tmp_path / "out", "--seed", 1)
    assert other.exit_code == 3
    assert "holds a comparison of other data, rows or seed" in other.stderr


def test_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)).astype(np.float32)
    rows = make_group(tmp_path / "data.zarr", X, np.sin(X[:, 0]) + X[:, 1], chunk_rows=100)
    test = make_group(tmp_path / "test.zarr", X[:80], np.sin(X[:80, 0]) + X[:80, 1], chunk_rows=100)
    result = call(rows, tmp_path / "out", "--task", "regression", "--test", test, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["n_test_rows"] == 80
    assert told["results"][0]["quality"] < 0.2
    assert all(one["agreement"] > 0.5 for one in told["results"])


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--systems", "fourier,nothing"], 3, "system 'nothing' was asked for, but it is none"),
        (["--systems", "ldkl", "--task", "regression"], 3, "but it learns classification; leave it out"),
        (["--systems", ","], 3, "no system was named"),
        (["--time-limit", 0], 3, "the time limit was set to 0 s"),
        (["--budget", "cheap"], 3, "cheap"),
    ],
)
def test_what_is_refused(words: list[object], code: int, sentence: str, data: Path, tmp_path: Path) -> None:
    result = call(data, tmp_path / "out", *words)
    assert result.exit_code == code, result.output
    assert sentence in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_files_is_left_alone(data: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    result = call(data, tmp_path)
    assert result.exit_code == 3
    assert "it holds other files" in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_pages_want_packages(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dcpred.pages.page.find_spec", lambda name: None if name == "matplotlib" else object()
    )
    assert 'install it (pip install "dcpred[compare]")' in call(data, tmp_path / "out").stderr
    assert not (tmp_path / "out").exists()


def test_a_comparison_that_has_not_come_far(data: Path, tmp_path: Path) -> None:
    """Its page holds what there is."""
    assert call(data, tmp_path / "out", systems="exact,fourier").exit_code == 0
    for name in ("kernel_errors", "fourier-8"):
        (tmp_path / f"out/points/{name}.json").unlink()
    found = check_page(report(tmp_path / "out").html)
    assert found.texts["h3"] == ["Score against cost", "Points"]
    assert "16 features" in found.texts["td"]
    assert "8 features" not in found.texts["td"]
    for file in (tmp_path / "out/points").glob("*-*.json"):
        file.unlink()
    with pytest.raises(DataError, match="nothing of it is done"):
        report(tmp_path / "out")
    (tmp_path / "out/compare.json").write_text('{"points": [1]}')
    with pytest.raises(DataError, match="does not hold what dcpred compare writes"):
        report(tmp_path / "out")


def test_rows_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    found = make_blobs(300, n_features=3, n_classes=2, seed=0)
    found.X[::10, 1] = np.nan
    path = make_group(tmp_path / "data.zarr", found.X, found.y)
    rows = draw_rows((f"{path}/X", f"{path}/y"), None, "classification", 200, 50, 0)
    assert np.isfinite(rows.X).all()
    assert len(rows.X) < 200
    with pytest.raises(DataError, match="finite rows are left to train on"):
        draw_rows((f"{path}/X", f"{path}/y"), None, "classification", 20, 50, 0)
    other = make_group(tmp_path / "one.zarr", found.X, np.zeros(300, int))
    with pytest.raises(DataError, match=r"but all rows of .* are"):
        draw_rows((f"{other}/X", f"{other}/y"), None, "classification", 200, 50, 0)


def test_every_machine_and_basis_is_compared() -> None:
    assert {*BASES, *MACHINES, *RIVALS} <= set(every_system())
    names = [point.name for system in every_system() for point in points_of(system, ["20x", "100ns"])]
    assert len(names) == len(set(names))


# -- points in processes of their own ------------------------------------------------------------------------

PROGRAM = """
import json, pathlib, sys, time
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
if name == "slow": time.sleep(600)
if name == "missing": import no_such_package.inside
if name == "wrong": raise RuntimeError("it is wrong")
(folder / "points" / f"{name}.json").write_text(json.dumps({"status": "done"}))
"""


def told_of(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "points" / f"{name}.json").read_text())
    return found


def test_a_point_that_gives_no_result_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "points").mkdir()
    (tmp_path / "a_program.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    names = ["good", "missing", "wrong", "slow", "late"]
    assert try_system(str(tmp_path), "a_program", names, 15.0) == names
    assert told_of(tmp_path, "good") == {"status": "done"}
    assert told_of(tmp_path, "missing")["why"] == "pip install no_such_package"
    assert told_of(tmp_path, "wrong")["why"] == "RuntimeError: it is wrong"
    assert [told_of(tmp_path, name)["status"] for name in ("slow", "late")] == ["time limit"] * 2
    try_system(str(tmp_path), "a_program", ["late"], 15.0)
    assert told_of(tmp_path, "late")["status"] == "time limit"
    try_system(str(tmp_path), "a_program", ["late"], 60.0)  # more time than before
    assert told_of(tmp_path, "late")["status"] == "done"


def test_a_point_ends_with_who_waits_for_it(data: Path, tmp_path: Path) -> None:
    assert call(data, tmp_path / "out", systems="exact").exit_code == 0
    assert read_rows(tmp_path / "out").n_classes == 3
    (tmp_path / "out/points/exact-0.json").unlink()
    words = [sys.executable, "-m", "dcpred.comparison.trial", str(tmp_path / "out"), "exact-0"]
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, timeout=60, check=False)
    assert ended.returncode == 1
    assert not (tmp_path / "out/points/exact-0.json").exists()
