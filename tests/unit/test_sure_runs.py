"""Runs that say how sure they are: scored, verified, mended, and told as tables and arrays."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr
from click.testing import CliRunner

import dcpred
from dcpred.cli import main
from dcpred.results.export import export
from dcpred.scoring.repair import repair
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred.verification.verify import verify
from dcpred_tasks.errors import DataError, PlanConflictError, SettingsError
from dcpred_tasks.scoring.outputs import possible_outputs
from support.data import make_blobs, make_group

N_ROWS, BAD = 230, 41
SETTINGS: dict[str, object] = {"n_leaves": 2, "landmarks": 4, "products": 0, "refine_steps": 10}


@dataclass(frozen=True)
class Job:
    """A model, rows and, in `out`, all that can be said of them."""

    folder: Path
    X: np.ndarray
    task: str

    @property
    def x(self) -> str:
        return f"{self.folder}/new.zarr/X"

    def arrays(self) -> dict[str, Any]:
        group = zarr.open_group(self.folder / "out/scores.zarr", mode="r")
        return {name: array[...] for name, array in group.arrays()}


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", 50)
        patch.setattr("dcpred.execution.block_plan.BLOCKS", 3)
        yield


@pytest.fixture(scope="module", params=[2, 3, "numbers"])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, small: None) -> Job:
    folder, k = tmp_path_factory.mktemp("sure"), request.param
    data = make_blobs(N_ROWS, n_features=3, n_classes=3 if k == "numbers" else k, seed=0)
    y = data.X[:, 0] * data.X[:, 1] if k == "numbers" else data.y
    make_group(folder / "known.zarr", data.X, y, labels=None if k == "numbers" else ["ash", "oak", "yew"][:k])
    X = data.X.copy()
    X[BAD, 1] = np.nan
    make_group(folder / "new.zarr", X, chunk_rows=50)
    task = "regression" if k == "numbers" else "classification"
    settings = SETTINGS | {"task": task}
    train(f"{folder}/known.zarr", folder / "model", settings=settings)
    done = Job(folder, X, task)
    alpha = 0.2 if k == "numbers" else None
    score(folder / "model", done.x, folder / "out", outputs=possible_outputs(task), alpha=alpha)
    return done


def test_it_holds_what_a_served_model_says(job: Job) -> None:
    model, stored = dcpred.load_model(job.folder / "model"), job.arrays()
    good = np.arange(N_ROWS) != BAD
    assert set(stored) == {*possible_outputs(job.task), "status"}
    right: dict[str, np.ndarray] = {"novelty": model.novelty(job.X[good])}
    if job.task == "regression":
        right["interval"] = model.predict_interval(job.X[good], alpha=0.2)
    else:
        p = model.predict_proba(job.X[good])
        right["probability"] = p if p.shape[1] > 2 else p[:, 1]
    added = dcpred.contributions(model, job.X[good])
    right["contributions"] = np.column_stack([added.values, added.base_values])
    for name, values in right.items():
        np.testing.assert_array_equal(stored[name][good], values.astype(stored[name].dtype))
        assert np.isnan(stored[name][BAD]).all()


@pytest.mark.parametrize("level", ["full", "sample"])
def test_it_is_verified(job: Job, level: str) -> None:
    report = verify(job.folder / "out", level, rows=40, seed=0)
    assert report.findings == []


def test_each_damage_is_found_and_mended(job: Job, tmp_path: Path) -> None:
    out, outputs = tmp_path / "out", possible_outputs(job.task)
    alpha = 0.2 if job.task == "regression" else None
    score(job.folder / "model", job.x, out, outputs=outputs, alpha=alpha)
    group = zarr.open_group(out / "scores.zarr", mode="r+")
    for name in outputs:
        array: Any = group[name]
        array[60:63] = array[63:66]
    assert {finding.block for finding in verify(out, "full").findings} == {0}
    repair(job.folder / "model", job.x, out, outputs=outputs, alpha=alpha)
    for name, right in job.arrays().items():
        np.testing.assert_array_equal(zarr.open_group(out / "scores.zarr", mode="r")[name][...], right)


def test_as_a_table_each_number_has_a_column(job: Job, tmp_path: Path) -> None:
    export(job.folder / "out", tmp_path / "t.parquet", columns=[*possible_outputs(job.task)])
    table, stored = pq.read_table(tmp_path / "t.parquet"), job.arrays()
    if job.task == "regression":
        names = {"interval_low": stored["interval"][:, 0], "interval_high": stored["interval"][:, 1]}
    elif stored["probability"].ndim == 1:
        names = {"probability": stored["probability"]}
    else:
        names = {f"probability_{k}": stored["probability"][:, i] for i, k in enumerate(("ash", "oak", "yew"))}
    parts = ("feature 0", "feature 1", "feature 2", "leaf", "average")
    names |= {f"contributions_{part}": stored["contributions"][:, i] for i, part in enumerate(parts)}
    for name, values in ({"novelty": stored["novelty"]} | names).items():
        assert table[name][BAD].as_py() is None
        np.testing.assert_array_equal(table[name].to_numpy(), values)


def test_as_arrays_the_numbers_of_a_row_are_named(job: Job) -> None:
    pytest.importorskip("xarray")
    data = dcpred.open_scores(job.folder / "out")
    assert data["novelty"].dims == ("sample",)
    if job.task == "regression":
        assert data["interval"].sel(bound="low").shape == (N_ROWS,)
        assert data["interval"].attrs["alpha"] == 0.2
    elif data["probability"].ndim > 1:
        ash = data["probability"].sel({"class": "ash"})
        np.testing.assert_array_equal(ash, job.arrays()["probability"][:, 0])


def test_alpha_is_a_part_of_the_plan(job: Job, tmp_path: Path) -> None:
    model, out, outputs = job.folder / "model", job.folder / "out", possible_outputs(job.task)
    if job.task == "classification":
        with pytest.raises(SettingsError, match=r"Cannot use alpha 0.2: .*\. Add that output"):
            score(model, job.x, tmp_path / "o", alpha=0.2)
    else:
        with pytest.raises(PlanConflictError, match=r"alpha"):
            score(model, job.x, out, outputs=outputs, alpha=0.3)
        with pytest.raises(SettingsError, match=r"alpha 0.9"):
            score(model, job.x, tmp_path / "o", outputs=outputs, alpha=0.9)
    assert not (tmp_path / "o").exists()


def test_without_being_asked_for_there_is_nothing_of_it(job: Job, tmp_path: Path) -> None:
    score(job.folder / "model", job.x, tmp_path / "out")
    names = set(zarr.open_group(tmp_path / "out/scores.zarr", mode="r").array_keys())
    assert names == {"decision", "status"} | ({"label"} if job.task == "classification" else set())


def test_a_model_that_cannot_say_it_is_refused_before_anything_is_written(job: Job, tmp_path: Path) -> None:
    settings = SETTINGS | {"task": job.task, "calibrate": False}
    known = f"{job.folder}/known.zarr"
    train(known, tmp_path / "model", settings=settings)
    for name in {"probability", "interval", "novelty"} & {*possible_outputs(job.task)}:
        with pytest.raises(DataError, match=r"trained with calibrate=false, or by a version"):
            score(tmp_path / "model", job.x, tmp_path / "out", outputs=(name,))
    assert not (tmp_path / "out").exists()


def test_the_command_and_what_evaluate_says(job: Job, tmp_path: Path) -> None:
    asked = ",".join(possible_outputs(job.task))
    alpha = ["--alpha", "0.2"] if job.task == "regression" else []
    paths = [f"{job.folder}/{name}" for name in ("model", "new.zarr", "out")]
    ran = CliRunner().invoke(main, ["score", *paths, "--outputs", asked, *alpha])
    assert ran.exit_code == 0, ran.output
    told = CliRunner().invoke(
        main, ["evaluate", f"{job.folder}/model", f"{job.folder}/known.zarr", "--no-cost"]
    )
    assert told.exit_code == 0, told.output
    if job.task == "regression":
        assert "inside intervals of alpha 0.1" in told.output
    else:
        assert "log_loss" in told.output
    wrong = CliRunner().invoke(
        main, ["score", f"{job.folder}/model", job.x, f"{tmp_path}/o", "--outputs", "weather"]
    )
    assert wrong.exit_code == 3
    assert "novelty" in wrong.output
