"""What earlier versions of dcpred wrote is read, verified, gone on with and repaired, without a finding
(tests/data/make.py).
"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

from data.make import BAD, CHUNKS, WRITTEN_NS
from dcpred import load_model
from dcpred.reports.inspection import inspect
from dcpred.runs.bad_rows import errors
from dcpred.runs.manifest import ScoreReport
from dcpred.runs.status import run_status
from dcpred.scoring.repair import repair
from dcpred.scoring.score import score
from dcpred.verification.verify import verify
from dcpred_tasks.dtypes import Status
from dcpred_tasks.result_fields import document_of

DATA = Path(__file__).parents[1] / "data"
VERSIONS = sorted(path.name for path in DATA.iterdir() if (path / "scores").is_dir())
N_ROWS = 290


@pytest.fixture(params=VERSIONS)
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to write into, with the times of files that make the input the one that was scored."""
    copy = tmp_path / "earlier"
    monkeypatch.setenv("DCPRED_TILES", "0")  # Their runs name no other arithmetic.
    shutil.copytree(DATA / request.param, copy)
    for path in (copy / "new.zarr").rglob("*"):
        os.utime(path, ns=(WRITTEN_NS, WRITTEN_NS))
    for name, value in CHUNKS.items():
        monkeypatch.setattr(f"dcpred.execution.block_plan.{name}", value)
    return copy


def go_on(folder: Path) -> ScoreReport:
    return score(folder / "model", f"{folder}/new.zarr/X", folder / "scores")


def values(folder: Path) -> dict[str, np.ndarray]:
    return {
        name: array[...]
        for name, array in zarr.open_group(folder / "scores" / "scores.zarr", mode="r").arrays()
    }


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    found = [
        path for path in folder.rglob("*") if path.is_file() and path.name not in ("lock", ".lock.guard")
    ]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def check_sound(folder: Path) -> None:
    for level in ("fast", "full"):
        report = verify(folder / "scores", level)
        assert report.findings == []
        assert report.ok


def cut_off(folder: Path) -> None:
    """As a driver leaves an output that dies within the second block."""
    for name in (
        "manifest.json",
        "blocks/000001.json",
        "scores.zarr/status/c/2",
        "scores.zarr/decision/c/3/0",
    ):
        (folder / "scores" / name).unlink()


def test_there_is_such_data() -> None:
    assert "0.1.0" in VERSIONS
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file()) < 250_000


def test_the_output_is_read_and_finished(folder: Path) -> None:
    before = files(folder)
    check_sound(folder)
    report = go_on(folder)
    assert (report.scored_blocks, report.status) == (0, {"1": N_ROWS - len(BAD), "2": len(BAD)})
    assert [bad.row for bad in errors(folder / "scores", 10).rows] == sorted(BAD)
    assert run_status(folder / "scores").state == "finished"
    shown = document_of(inspect(folder / "scores"))
    assert (shown["finished"], shown["arrays"]["decision"]["shape"]) == (True, [N_ROWS, 3])
    assert inspect(folder / "new.zarr").arrays["X"]["attributes"]["feature_names"] == [
        "height",
        "age",
        "girth",
    ]
    assert files(folder) == before


def test_the_model_predicts_what_it_did(folder: Path) -> None:
    X, stored = zarr.open_array(folder / "new.zarr" / "X", mode="r")[...], values(folder)
    model = load_model(folder / "model")
    np.testing.assert_allclose(model.decision_function(X), stored["decision"], rtol=1e-4, atol=1e-4)
    good = stored["status"] == 1
    assert list(model.predict(X[good])) == [model.classes_[number] for number in stored["label"][good]]
    assert len(model.predict_early(X[good])) == N_ROWS - len(BAD)


def test_an_output_that_was_cut_off_is_gone_on_with(folder: Path) -> None:
    was = values(folder)
    cut_off(folder)
    assert verify(folder / "scores", "full").left_blocks == 1
    assert go_on(folder).scored_blocks == 1
    check_sound(folder)
    for name, array in values(folder).items():
        np.testing.assert_allclose(array, was[name], rtol=1e-4, atol=1e-4)


def test_a_status_that_no_version_gave_is_named_by_them_and_harmless(folder: Path) -> None:
    """0.1.0 named a status 3, out of range, that no row had. No other name may stand there."""
    path = folder / "scores" / "scores.zarr" / "status" / "zarr.json"
    text = path.read_text()
    assert '"3": "out_of_range"' in text
    assert "out_of_range" not in {status.name.lower() for status in Status}
    (folder / "scores" / "manifest.json").unlink()  # its digest would tell any change
    repair(folder / "model", f"{folder}/new.zarr/X", folder / "scores")
    assert path.read_text() == text
    path.write_text(text.replace("out_of_range", "of_another_kind"))
    (folder / "scores" / "manifest.json").unlink()
    repair(folder / "model", f"{folder}/new.zarr/X", folder / "scores")
    assert "of_another_kind" not in path.read_text()
    check_sound(folder)


def test_a_repair_writes_nothing_where_nothing_is_wrong(folder: Path) -> None:
    before = files(folder)
    repair(folder / "model", f"{folder}/new.zarr/X", folder / "scores")
    assert files(folder) == before


@pytest.mark.parametrize("name", ["", "status", "decision"])
def test_metadata_are_repaired(folder: Path, name: str) -> None:
    was = values(folder)
    path = folder / "scores" / "scores.zarr" / name / "zarr.json"
    value = json.loads(path.read_text())
    path.write_text(json.dumps(value | ({"fill_value": 1} if name else {"attributes": {}})))
    assert not verify(folder / "scores", "fast").ok
    repair(folder / "model", f"{folder}/new.zarr/X", folder / "scores")
    check_sound(folder)
    for array, found in values(folder).items():
        np.testing.assert_array_equal(found, was[array])
