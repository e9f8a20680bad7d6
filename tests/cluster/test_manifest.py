"""What a finished run says of itself, and which rows have no score."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from dcpred.cli import rendering
from dcpred.execution.pools import connect
from dcpred.reports.inspection import inspect
from dcpred.runs.bad_rows import BadRow, BadRows, errors
from dcpred.runs.manifest import ScoreReport, run_remarks
from dcpred.runs.status import RunStatus, run_status
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.artifacts.model_artifact import open_artifact, read_model
from dcpred_tasks.errors import IncompleteError, ModelFormatError, PlanConflictError
from dcpred_tasks.result_fields import document_of
from dcpred_tasks.scoring import scorer
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.task_bodies import score_block as task
from dcpred_tasks.training.settings import make_settings, settings_dict
from support.data import Classes, make_blobs, make_group
from support.runs import report_of_incomplete

SETTINGS = {"landmarks": 6, "products": 8, "n_leaves": 8}


@pytest.fixture(scope="module")
def blobs() -> Classes:
    return make_blobs(3_000, n_features=5, n_classes=3, seed=0)


@pytest.fixture(scope="module")
def model(blobs: Classes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    data = make_group(folder / "train.zarr", blobs.X, blobs.y, labels=["a", "b", "c"])
    train(data, folder / "model", settings=SETTINGS)
    return folder / "model"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few hundred rows, of two output chunks each."""
    monkeypatch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
    monkeypatch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", 100)
    monkeypatch.setattr("dcpred.execution.block_plan.BLOCKS", 10)


def run(model: Path, X: np.ndarray, place: Path, pool: Any = None, **more: Any) -> ScoreReport:
    """Score rows into place/out."""
    data = make_group(place / "data.zarr", X, chunk_rows=50)
    return score(model, data, place / "out", client=pool, **more)


def read(place: Path) -> dict[str, np.ndarray]:
    group = zarr.open_group(place / "out" / "scores.zarr", mode="r")
    return {name: array[...] for name, array in group.arrays()}


# -- the manifest --------------------------------------------------------------------------------------------


def test_the_manifest_names_what_went_in_and_who_computed(
    model: Path, blobs: Classes, tmp_path: Path
) -> None:
    manifest = run(model, blobs.X, tmp_path, partial(connect, 2, None)).manifest
    assert json.loads((tmp_path / "out" / "manifest.json").read_text()) == json.loads(json.dumps(manifest))
    assert manifest["model_hash"] == json.loads((model / "model.json").read_text())["hash"]
    assert manifest["settings_hash"] == digest_json(settings_dict(make_settings(SETTINGS)))
    assert (manifest["input"]["shape"], manifest["input"]["dtype"]) == ([3_000, 5], "float32")
    assert manifest["versions"]["numpy"] == np.__version__
    assert sum(manifest["cpus"].values()) == manifest["n_blocks"]
    assert all(manifest["cpus"])
    assert set(manifest["worker_seconds"]) == {"read", "score", "statistics", "write"}
    assert all(seconds > 0 for seconds in manifest["worker_seconds"].values())
    other = run(model, blobs.X.astype(np.float64), tmp_path / "other").manifest
    assert other["input"]["metadata_hash"] != manifest["input"]["metadata_hash"]
    assert other["settings_hash"] == manifest["settings_hash"]


def test_statistics_are_those_of_the_output(model: Path, blobs: Classes, tmp_path: Path) -> None:
    X = blobs.X.copy()
    X[[3, 700]] = np.nan
    manifest = run(model, X, tmp_path).manifest
    found, said = read(tmp_path), manifest["statistics"]
    good = found["status"] == 1
    edges = np.array([-np.inf, *said["decision"]["edges"], np.inf])
    for column, counts in enumerate(said["decision"]["counts"]):
        assert counts == np.histogram(found["decision"][good, column], edges)[0].tolist()
    assert said["labels"] == [
        {"label": c, "rows": int((found["label"] == i).sum())} for i, c in enumerate("abc")
    ]
    assert said["sampled_rows"] == 2_998  # all of so few
    np.testing.assert_allclose(said["feature_mean"], X[good].mean(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(said["feature_sd"], X[good].std(axis=0), rtol=1e-4)
    trained = read_model(model)
    leaf = trained.tree.descend(trained.scaling(X[good]))
    assert said["leaf_rows"] == np.bincount(leaf, minlength=trained.n_leaves).tolist()


def test_any_attempt_says_the_same(
    model: Path, blobs: Classes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []

    def cut_off(run: Any, block: int, quarantine: bool) -> Any:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(block)
        return task.score_block(run, block)

    with monkeypatch.context() as patched:
        patched.setattr("dcpred.scoring.blocks.score_block", cut_off)
        with pytest.raises(BaseException):  # noqa: B017, PT011
            run(model, blobs.X, tmp_path)
    manifest = score(model, str(tmp_path / "data.zarr" / "X"), tmp_path / "out").manifest
    whole = run(model, blobs.X, tmp_path / "whole").manifest
    for section in ("statistics", "drift", "settings_hash"):
        assert manifest[section] == whole[section]


def inspected(output: Path) -> str:
    facts = inspect(output)
    return rendering.shown(type(facts), document_of(facts))


def test_training_rows_are_no_drift_and_others_are(model: Path, blobs: Classes, tmp_path: Path) -> None:
    same = run(model, blobs.X, tmp_path / "same")
    drift = same.manifest["drift"]
    assert drift["large"] is False
    assert drift["leaves"]["psi"] < 0.01
    assert all(abs(f["shift"]) < 1e-4 for f in drift["features"]["top"])
    assert not run_remarks(same.manifest, "same")
    assert not inspected(tmp_path / "same" / "out").startswith("drift")
    X = blobs.X.copy()
    X[:, 3] += 4 * X[:, 3].std()
    moved = run(model, X, tmp_path / "moved")
    top = moved.manifest["drift"]["features"]["top"][0]
    assert (top["feature"], moved.manifest["drift"]["features"]["n_large"]) == (3, 1)
    assert top["shift"] == pytest.approx(4, abs=0.01)
    assert top["sd_ratio"] == pytest.approx(1, abs=0.01)
    line = next(each.what for each in run_remarks(moved.manifest, "moved") if each.code == "drift")
    assert "feature 3 (stability index" in line
    assert "feature 0" not in line
    assert line in inspected(tmp_path / "moved" / "out")
    trained = read_model(model)
    crowd = blobs.X[trained.tree.descend(trained.scaling(blobs.X)) < 2]
    one_region = run(model, crowd, tmp_path / "region")
    assert one_region.manifest["drift"]["leaves"]["psi"] > 0.25
    assert "other leaves than training rows did" in run_remarks(one_region.manifest, "region")[0].what


def test_a_model_of_an_older_format_is_scored_with(model: Path, blobs: Classes, tmp_path: Path) -> None:
    """Without reference values and self-test: leaves are compared, features are not."""
    old = Path(shutil.copytree(model, tmp_path / "old"))
    value = json.loads((old / "model.json").read_text())
    del value["self_test"]
    arrays = value["model"]["arrays"]
    for name in [name for name in arrays if name.startswith(("feature_", "bin_", "relation_"))]:
        del arrays[name]
    value["hash"] = digest_json(value["model"])
    (old / "model.json").write_text(json.dumps(value))
    assert open_artifact(old).self_test() is None
    drift = run(old, blobs.X, tmp_path).manifest["drift"]
    assert (drift["features"], drift["large"]) == (None, False)
    assert drift["leaves"]["psi"] < 0.01


def test_a_regression_says_what_it_predicts(tmp_path: Path, blobs: Classes) -> None:
    data = make_group(tmp_path / "d.zarr", blobs.X, 1e6 + blobs.X[:, 0].astype(np.float64))
    train(data, tmp_path / "m", settings={"task": "regression", "n_leaves": 4})
    said = run(tmp_path / "m", blobs.X, tmp_path).manifest["statistics"]
    assert said["labels"] is None
    counts = np.array(said["decision"]["counts"][0])
    assert counts.sum() == 3_000
    assert (counts > 0).sum() > 20  # a scale that is fixed for all models would put all of them into one bin


def test_a_run_of_bad_rows_alone(model: Path, tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match="none of the 300 rows has a score") as refused:
        run(model, np.full((300, 5), np.inf, np.float32), tmp_path)
    report = refused.value.report
    assert report.status == {"2": 300}
    assert report.manifest["drift"]["large"] is False
    assert report.manifest["statistics"]["sampled_rows"] == 0
    assert "300 non finite feature" in rendering.shown(ScoreReport, vars(report))
    state = run_status(report.output)
    assert state.without_score == 300
    assert f"300 rows: `dcpred errors {report.output}` lists them" in rendering.shown(RunStatus, vars(state))


def test_a_model_that_this_machine_takes_otherwise_is_refused(
    model: Path, blobs: Classes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = scorer.score_rows
    monkeypatch.setattr(
        "dcpred_tasks.model.compact_model.score_rows", lambda m, X: (2 * real(m, X)[0], real(m, X)[1])
    )
    with pytest.raises(ModelFormatError, match="self-test"):
        run(model, blobs.X, tmp_path)
    assert not (tmp_path / "out").exists()


# -- bad rows ------------------------------------------------------------------------------------------------


@pytest.fixture
def dirty(model: Path, blobs: Classes, tmp_path: Path) -> Path:
    """Rows 5 and 7 are bad, and so are 150 rows of the second block; rows 850 to 900 cannot be read."""
    X = blobs.X[:1_000].copy()
    X[5, 2], X[7, 4], X[250:400, 1] = np.nan, np.inf, -np.inf
    data = make_group(tmp_path / "data.zarr", X, chunk_rows=50)
    (data / "X" / "c" / "17" / "0").unlink()
    report = report_of_incomplete(score, model, data, tmp_path / "out", quarantine=True)
    assert report.status == {"1": 1_000 - 152 - 50, "2": 152, "5": 50}
    return tmp_path / "out"


def test_bad_rows_are_listed_with_what_is_wrong(dirty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = errors(dirty, 1_000)
    block = json.loads((dirty / "plan.json").read_text())["block_rows"]
    assert found.rows[:3] == [
        BadRow(0, 5, 2, "non_finite_feature", 2),
        BadRow(0, 7, 2, "non_finite_feature", 4),
        BadRow(250 // block, 250, 2, "non_finite_feature", 1),
    ]
    assert found.rows[-1] == BadRow(899 // block, 899, 5, "chunk_missing", None)
    assert (found.n_bad, found.status) == (202, {"non_finite_feature": 152, "chunk_missing": 50})
    assert len(found.rows) + found.n_more == 202
    few = errors(dirty, 2)
    assert (few.rows, few.n_more) == (found.rows[:2], 200)
    text = rendering.shown(BadRows, document_of(few))
    assert "202 of 1,000 rows have no score: 152 non finite feature, 50 chunk missing" in text
    assert "non finite feature 4" in text
    assert "and 200 more" in text


def test_rows_that_records_do_not_name_are_found_in_the_status_array(
    model: Path, blobs: Classes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "LISTED_ROWS", 3)
    X = blobs.X[:300].copy()
    X[10:90, 1] = np.nan
    run(model, X, tmp_path)
    block_rows = json.loads((tmp_path / "out" / "plan.json").read_text())["block_rows"]
    listed = errors(tmp_path / "out", 1_000)
    assert [row.row for row in listed.rows[:3]] == [10, 11, 12]
    assert all(row.feature == 1 for row in listed.rows)
    assert len(listed.rows) == 3 * len({row // block_rows for row in range(10, 90)})
    every = errors(tmp_path / "out", 1_000, every=True)
    assert [row.row for row in every.rows] == list(range(10, 90))
    assert every.n_more == 0
    noted = {row.row for row in listed.rows}
    assert [row.row for row in every.rows if row.feature == 1] == sorted(noted)
    assert errors(tmp_path / "out", 5, every=True).n_more == 75


def test_errors_of_a_run_that_is_not_done(model: Path, blobs: Classes, tmp_path: Path) -> None:
    run(model, blobs.X[:500], tmp_path)
    (tmp_path / "out" / "manifest.json").unlink()
    (tmp_path / "out" / "blocks" / "000001.json").unlink()
    found = errors(tmp_path / "out", 10)
    assert (found.n_bad, found.done_blocks) == (0, found.n_blocks - 1)
    assert "1 of" in rendering.shown(BadRows, document_of(found))
    with pytest.raises(PlanConflictError, match=r"no plan\.json"):
        errors(tmp_path, 10)
