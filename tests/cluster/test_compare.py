"""dcpred compare: systems side by side, cut off and gone on with, with a time limit that is told."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from dcpred.cli import main
from dcpred.reports.report import report
from dcpred_compare import comparison, files, reading, trial
from dcpred_compare.baselines.leaf_model_type import leaf_model_types
from dcpred_compare.processes import run_points
from dcpred_compare.rows import Rows, draw_rows, drawn_numbers, read_rows
from dcpred_compare.systems import PACKAGED, every_system, points_of
from dcpred_compare.trial import packaged, scaling_of
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.scaling import Scaling
from support.comparisons import small_comparisons
from support.data import make_blobs, make_group
from support.html_pages import check_page

pytest.importorskip("matplotlib", reason="matplotlib draws the plots of a comparison")
SYSTEMS = "exact,fourier,kmeans_nystrom,random_forest"


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_comparisons():
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = make_blobs(600, n_features=4, n_classes=3, seed=3)
    return make_group(tmp_path_factory.mktemp("compare") / "data.zarr", found.X, found.y + 5, chunk_rows=100)


def call(data: Path, out: Path, *more: object, systems: str = SYSTEMS) -> Result:
    words = ("compare", data, "--out", out, "--systems", systems, "--rows", 300, *more)
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.usefixtures("drawn")
def test_what_it_writes(data: Path, tmp_path: Path) -> None:
    result = call(data, tmp_path / "out")
    assert result.exit_code == 0, result.output
    with (tmp_path / "out/table.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [line["system"] for line in table] == [
        *("kmeans_nystrom", "kmeans_nystrom", "fourier", "fourier", "exact", "random_forest"),
    ]
    assert {line["status"] for line in table} == {"done"}
    assert float(table[4]["quality"]) > 0.9
    assert float(table[4]["agreement"]) == 1.0
    assert all(float(line["cost_ratio"]) > 0 and int(line["bytes"]) > 0 for line in table)
    units = [float(line["us_per_row"]) / float(line["cost_ratio"]) for line in table]
    told = [json.loads(file.read_text()) for file in (tmp_path / "out/points").glob("*.json")]
    unit = np.median([one["linear_us"] for one in told if "linear_us" in one])
    assert units == pytest.approx([unit] * len(units)), "all costs have one unit"
    assert float(table[3]["multiplications"]) == 2 * float(table[2]["multiplications"])
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
    assert "no cheaper system is better" in result.stdout


def test_each_machine_has_a_unit_of_its_own_and_older_points_keep_their_costs() -> None:
    timed = [("a", 2.0), ("a", 4.0), ("a", 90.0), ("b", 1.0)]
    told = [{"host": host, "linear_us": us, "us_per_row": 8.0} for host, us in timed]
    linear = reading._linear_us([*told, {"cost_ratio": 3.0, "us_per_row": 8.0}])
    assert linear == {"a": 4.0, "b": 1.0}
    assert [reading._cost(one, linear) for one in told] == [2.0, 2.0, 2.0, 8.0]
    assert reading._cost({"cost_ratio": 3.0, "us_per_row": 8.0}, linear) == 3.0
    assert reading._cost({"status": "time limit"}, linear) is None
    assert reading._units(linear)[0].count(" on ") == 2


@pytest.mark.parametrize(("system", "stated"), [("group_svm", 1), ("adapt_svm", 1), ("exact", 0)])
def test_the_table_states_where_groups_of_support_vectors_fail(system: str, stated: int) -> None:
    told = reading._caveats([SimpleNamespace(system=system)])  # type: ignore[list-item]
    assert [text.startswith("AdaptSVM and GroupSVM approximate") for text in told] == [True] * stated


def test_a_metric_is_what_the_table_shows(data: Path, tmp_path: Path) -> None:
    """Of the same predictions, whatever the metric; searches of ours compare settings by it."""
    found = {}
    for metric in ("balanced_accuracy", "neg_mean_cost=1,5,5;1,1,1;1,1,1"):
        result = call(data, tmp_path / "out", "--metric", metric, "--json", systems="exact")
        assert result.exit_code == 0, result.output
        found[metric] = json.loads(result.stdout)
        assert found[metric]["metric"] == metric
        assert metric in (tmp_path / "out/table.md").read_text(encoding="utf-8")
        check_page((tmp_path / "out/report.html").read_text(encoding="utf-8"))
    share, cost = (one["results"][0]["quality"] for one in found.values())
    assert cost < 0 < share
    plain = json.loads(call(data, tmp_path / "out", "--json", systems="exact").stdout)
    assert plain["metric"] is None
    assert 0 < plain["results"][0]["quality"] <= 1
    result = call(data, tmp_path / "out", "--metric", "roc_auc", systems="exact")
    assert result.exit_code != 0
    assert "roc_auc needs probabilities, which not every system gives" in result.stderr
    ours = points_of("dcpred", ["20x"], "classification", "f1_macro")
    assert [point.settings.get("metric") for point in ours[-2:]] == ["f1_macro", "f1_macro"]


def test_it_goes_on_and_takes_more_systems(data: Path, tmp_path: Path) -> None:
    assert call(data, tmp_path / "out", systems="exact").exit_code == 0
    file = tmp_path / "out/points/exact-0.json"
    before = file.stat().st_mtime_ns
    (tmp_path / "out/points/kernel_errors.json").unlink()
    result = call(data, tmp_path / "out", "--json", systems="exact,fourier")
    assert result.exit_code == 0, result.output
    assert file.stat().st_mtime_ns == before
    every = [one["system"] for one in json.loads(result.stdout)["results"]]
    assert every == ["fourier", "fourier", "exact"], "in the order of systems"
    result = call(data, tmp_path / "out", "--json", systems="random_forest")
    more = [one["system"] for one in json.loads(result.stdout)["results"]]
    assert more == [*every, "random_forest"], "what earlier calls found stays"
    assert (tmp_path / "out/table.md").read_text().count("| fourier |") == 2
    assert "fourier" in (tmp_path / "out/report.html").read_text()
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
    assert min(one["quality"] for one in told["results"]) < 0.2
    assert all(one["agreement"] > 0.5 for one in told["results"])


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--systems", "fourier,nothing"], 3, "Cannot compare system 'nothing': no system has this name"),
        (["--systems", "ldkl", "--task", "regression"], 3, "it learns classification. Omit it"),
        (["--systems", ","], 3, "no system is named"),
        (["--time-limit", 0], 3, "Cannot compare within 0 s"),
        (["--time-limit", -3], 3, "Cannot compare within -3 s"),
        (["--time-limit", "nan"], 3, "Cannot compare within nan s"),
        (["--time-limit", "inf"], 3, "Cannot compare within inf s"),
        (["--time-limit", 0.5], 3, "Use another"),
        (["--budget", "cheap"], 3, "cheap"),
        (["--budget", "8x"], 3, "the systems are exact, fourier, kmeans_nystrom, random_forest. Add dcpred,"),
    ],
)
def test_what_is_refused(words: list[object], code: int, sentence: str, data: Path, tmp_path: Path) -> None:
    result = call(data, tmp_path / "out", *words)
    assert result.exit_code == code, result.output
    assert sentence in result.stderr
    assert not (tmp_path / "out").exists()


def test_numbers_are_no_classes(tmp_path: Path) -> None:
    """Refused before anything is written, as `dcpred train` does."""
    rng = np.random.default_rng(0)
    for n, sentence in (
        (1_500, "y has more than 1,000 different values. Use regression (--task"),
        (200, "200"),
    ):
        X = rng.normal(size=(n, 3)).astype(np.float32)
        rows = make_group(tmp_path / f"{n}.zarr", X, X[:, 0].astype(float), chunk_rows=100)
        result = call(rows, tmp_path / "out")
        assert result.exit_code == 3
        assert sentence in result.stderr
        assert "Use regression (--task regression), or give y fewer classes" in result.stderr
        assert not (tmp_path / "out").exists()


def test_rows_that_are_left_out_are_told(data: Path, tmp_path: Path) -> None:
    found = make_blobs(100, n_features=4, n_classes=5, seed=3)
    found.X[found.y == 4] = np.nan
    test = make_group(tmp_path / "test.zarr", found.X, found.y + 5, chunk_rows=100)
    result = call(data, tmp_path / "out", "--test", test, "--json", systems="exact")
    bad, n = int((found.y == 4).sum()), int((found.y == 3).sum())
    assert json.loads(result.stdout)["n_test_rows"] == 100 - n - bad
    sentences = [
        f"{bad} rows are skipped: some of their values are not finite.",
        f"{n} test rows are skipped: no training row has their class.",
    ]
    unit, *told = json.loads(result.stdout)["notes"]
    assert unit.startswith("A linear prediction takes ")
    assert told == sentences
    for file in ("table.md", "report.html"):
        assert " ".join(sentences) in (tmp_path / "out" / file).read_text()


def test_rows_that_a_model_is_not_fitted_to_are_stated(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcpred_compare.systems.LOCAL_ROWS", 120)
    systems = "exact,fourier,ball_tree"
    result = call(data, tmp_path / "out", "--json", systems=systems)
    whys = {one["system"]: one["why"] for one in json.loads(result.stdout)["results"]}
    assert whys["fourier"] == ""
    assert whys["exact"] == "trained on 120 of 300 rows"
    assert whys["ball_tree"].startswith("trained on 120 of 300 rows")
    assert "(trained on 120 of 300 rows)" in (tmp_path / "out/table.md").read_text()


def limited(folder: str, module: str, points: list[str], limit_seconds: float, stop: str) -> list[str]:
    """The shared settings are found; of everything else the first point alone, or none."""
    for number, point in enumerate(points):
        keep = point == files.SHARED or (number == 0 and point.startswith("fourier"))
        if keep:
            trial.main(Path(folder), point, 60.0)
        else:
            told = {"status": "time limit", "limit_seconds": limit_seconds}
            (Path(folder) / "points" / f"{point}.json").write_text(json.dumps(told))
    return points


def test_grids_that_the_time_limit_cut_are_told(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "run_points", limited)
    result = call(data, tmp_path / "out", "--time-limit", 7, systems="fourier,exact")
    assert result.exit_code == 0, result.output
    table = (tmp_path / "out/table.md").read_text()
    assert "The time limit ended fourier (1 of 2 points), exact (0 of 1 points) early." in table
    assert "Errors of kernel functions are missing: time limit, 7 s for this system." in table
    assert "| exact |  | time limit: 7 s for this system |" in table
    none = call(data, tmp_path / "none", "--time-limit", 7, systems="exact,lmkl")
    assert none.exit_code == 4
    assert "No point of 2 has a result (the first one: time limit: 7 s for this" in none.stderr
    assert (tmp_path / "none/table.md").exists()


def test_kernel_models_share_one_scaling(data: Path, tmp_path: Path) -> None:
    """It is learned once; what it took stands apart from the fits."""
    assert call(data, tmp_path / "out", systems="exact,fourier").exit_code == 0
    shared = json.loads((tmp_path / "out/points/shared.json").read_text())
    assert shared["settings"]["scaling"] in shared["scalings"]
    assert "standard" in shared["scalings"]
    said = (tmp_path / "out/table.md").read_text()
    assert f"that took {shared['seconds']:.3g} s of a processor once, in addition to the fits" in said
    rows = read_rows(tmp_path / "out")
    for name in shared["scalings"]:
        again = Scaling.of(shared["scalings"][name])
        np.testing.assert_array_equal(again.factor, scaling_of(rows, name).factor)


def test_support_vector_regression_of_the_extension_has_scaled_targets(tmp_path: Path) -> None:
    """Its C and its tube have the unit of the targets."""
    pytest.importorskip("sklearnex", reason="scikit-learn-intelex is not there")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)).astype(np.float32)
    y = 1e5 * (np.sin(X[:, 0]) + X[:, 1])
    rows = Rows(X[:300], y[:300].astype(float), X[300:], y[300:].astype(float), 0)
    predict, told = packaged("sklearnex_svc", 0, rows, {"standard": {"gamma": 0.3}})()
    assert trial.quality(predict(rows.X_test), rows) < 0.15 * y.std()
    assert told["bytes"] > 0


def test_a_folder_with_other_files_is_left_alone(data: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    result = call(data, tmp_path)
    assert result.exit_code == 3
    assert "it holds other files" in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_pages_want_packages(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert 'Run pip install "dcpred[compare]"' in call(data, tmp_path / "out").stderr
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
        whole = file.read_text()
        for name in ("quality", "bytes", "status", "seconds"):
            file.write_text(json.dumps(json.loads(whole) | {name: ["damaged"]}))
            with pytest.raises(DataError, match="is not an output of dcpred compare"):
                report(tmp_path / "out")
        file.unlink()
    with pytest.raises(DataError, match="it has no result yet"):
        report(tmp_path / "out")
    (tmp_path / "out/compare.json").write_text('{"points": [1]}')
    with pytest.raises(DataError, match="is not an output of dcpred compare"):
        report(tmp_path / "out")


def test_some_rows_of_many_are_drawn_without_an_order_of_all() -> None:
    """An order of 10¹⁰ rows would have 80 GB."""
    found = drawn_numbers(np.random.default_rng(0), 10**10, 1_000)
    assert len(np.unique(found)) == 1_000
    assert 0 <= found.min() < 10**9 < 9 * 10**9 < found.max() < 10**10
    some = drawn_numbers(np.random.default_rng(0), 100, 30)
    np.testing.assert_array_equal(some, np.random.default_rng(0).permutation(100)[:30])
    assert len(drawn_numbers(np.random.default_rng(0), 20, 30)) == 20


def test_rows_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    found = make_blobs(300, n_features=3, n_classes=2, seed=0)
    found.X[::10, 1] = np.nan
    path = make_group(tmp_path / "data.zarr", found.X, found.y)
    rows = draw_rows((f"{path}/X", f"{path}/y"), None, "classification", 200, 50, 0)
    assert np.isfinite(rows.X).all()
    assert rows.n_bad == 250 - len(rows.X) - len(rows.X_test) > 0
    with pytest.raises(DataError, match="finite training rows"):
        draw_rows((f"{path}/X", f"{path}/y"), None, "classification", 20, 50, 0)
    other = make_group(tmp_path / "one.zarr", found.X, np.zeros(300, int))
    with pytest.raises(DataError, match=r"all rows of .* are"):
        draw_rows((f"{other}/X", f"{other}/y"), None, "classification", 200, 50, 0)


def test_every_baseline_is_compared() -> None:
    assert {*leaf_model_types(), *PACKAGED} <= set(every_system())
    names = [
        point.name
        for system in every_system()
        for point in points_of(system, ["20x", "100ns"], "classification")
    ]
    assert len(names) == len(set(names))


# -- points in processes of their own ------------------------------------------------------------------------

PROGRAM = """
import json, pathlib, resource, sys, time
folder, name, seconds = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
if name == "busy":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (1, -1))
    while True: pass
if name.startswith(("asleep", "exact", "lmkl", "kernel")): time.sleep(600)
if name == "missing": import no_such_package.inside
if name == "wrong": raise RuntimeError("it is wrong")
if name == "refused":
    from dcpred_tasks.errors import SettingsError
    raise SettingsError("it was asked for: leave it out")
took = 4.0 if name == "long" else 0.5
(folder / "points" / f"{name}.json").write_text(json.dumps({"status": "done", "seconds": took, "left": seconds}))
"""  # noqa: E501 - as a process runs it


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "points").mkdir()
    (tmp_path / "a_program.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    return tmp_path


def _result_of(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "points" / f"{name}.json").read_text())
    return found


def test_a_point_that_gives_no_result_is_told(program: Path) -> None:
    names = ["good", "missing", "wrong", "refused", "busy", "late"]
    assert run_points(str(program), "a_program", names, 15.0) == names
    assert _result_of(program, "good") == {"status": "done", "seconds": 0.5, "left": 15.0}
    assert _result_of(program, "missing")["why"] == "pip install no_such_package"
    assert _result_of(program, "wrong")["why"] == "RuntimeError: it is wrong"
    assert _result_of(program, "refused")["why"] == "it was asked for: leave it out"
    assert [_result_of(program, name)["status"] for name in ("busy", "late")] == ["time limit"] * 2
    run_points(str(program), "a_program", ["late"], 15.0)
    assert _result_of(program, "late")["status"] == "time limit"
    run_points(str(program), "a_program", ["late"], 60.0)  # more time than before
    assert _result_of(program, "late")["status"] == "done"


def test_the_time_of_a_system_is_that_of_its_fits_also_of_earlier_calls(program: Path) -> None:
    """What a process takes beside its fit is not counted; how often a comparison was cut off makes no
    difference.
    """
    run_points(str(program), "a_program", ["long", "next"], 10.0)
    assert _result_of(program, "next")["left"] == 6.0
    (program / "points/next.json").unlink()
    run_points(str(program), "a_program", ["long", "next", "last"], 10.0)
    assert _result_of(program, "next")["left"] == 6.0
    assert _result_of(program, "last")["left"] == 5.5


def test_a_process_that_waits_for_nothing_is_ended_by_the_clock(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcpred_compare.processes.CLOCK_FACTOR", 0.1)
    monkeypatch.setattr("dcpred_compare.processes.CLOCK_SECONDS", 0.5)
    run_points(str(program), "a_program", ["asleep"], 5.0)
    assert _result_of(program, "asleep") == {
        "status": "time limit",
        "why": "1 s by the clock",
        "limit_seconds": 5.0,
    }


def test_a_file_stops_what_is_under_way(program: Path) -> None:
    """Nothing is written of it, so that it is tried again."""
    (program / "stop").touch()
    assert run_points(str(program), "a_program", ["asleep", "good"], 60.0, "stop") == []
    assert not list((program / "points").iterdir())


def test_a_fit_that_takes_too_long_is_ended_by_the_system(tmp_path: Path) -> None:
    """Only the fit counts, not what is done before and after it."""
    code = """
import time
from dcpred_compare.trial import counted

def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass

work(0.7)
with counted(1.0) as spent: work(0.3)
work(0.7)
print(0.2 < spent.seconds < 1.0, flush=True)
with counted(1.0): work(9)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr
    assert done.returncode == -signal.SIGXCPU


DRIVER = """
from dcpred.cli import run
from dcpred_compare import comparison

if __name__ == "__main__":
    comparison.MODULE = "a_program"
    run()
"""


def test_an_end_in_order_takes_seconds(data: Path, program: Path) -> None:
    """Ctrl-C ends the processes under way, and leaves no file of theirs."""
    out = program / "out"
    (program / "driver.py").write_text(DRIVER)
    words = [sys.executable, program / "driver.py", "compare", data, "--out", out, "--systems", "lmkl,exact"]
    words += ["--rows", 300, "--workers", 2]
    with subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True) as driver:
        try:
            wait_for(lambda: trials_of(out), driver)
            driver.send_signal(signal.SIGINT)
            _, said = driver.communicate(timeout=40)
        finally:
            driver.kill()
    assert driver.returncode == 75, said
    assert not trials_of(out)
    assert [file.name for file in out.iterdir() if file.name.startswith("stop")] == []
    assert [file.name for file in (out / "points").iterdir()] == ["shared.json"]


def trials_of(folder: Path) -> list[str]:
    """Processes of trials in a folder."""
    lines = [Path(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdigit()]
    found = []
    for line in lines:
        with suppress(OSError):
            words = line.read_bytes().split(b"\0")
            if b"a_program" in words and str(folder).encode() in words and b"shared" not in words:
                found.append(line.parent.name)
    return found


def wait_for(what: Callable[[], object], driver: "subprocess.Popen[str]") -> None:
    while not what():
        assert driver.poll() is None, driver.stderr and driver.stderr.read()
        time.sleep(0.05)


def test_a_point_ends_with_who_waits_for_it(data: Path, tmp_path: Path) -> None:
    assert call(data, tmp_path / "out", systems="exact").exit_code == 0
    assert read_rows(tmp_path / "out").n_classes == 3
    (tmp_path / "out/points/exact-0.json").unlink()
    words = [sys.executable, "-m", "dcpred_compare.trial", str(tmp_path / "out"), "exact-0", "60"]
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, timeout=60, check=False)
    assert ended.returncode == 1
    assert not (tmp_path / "out/points/exact-0.json").exists()
