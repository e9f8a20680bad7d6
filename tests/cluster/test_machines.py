"""Machines of other systems go the whole way: trained from Zarr, stored, scored, verified, evaluated."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from dcpred import load_model
from dcpred.cli import main
from dcpred.evaluation.evaluate import evaluate
from dcpred.inspection import inspect_path
from dcpred.reports.report import report
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred.verification.verify import verify
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.errors import ModelFormatError
from dcpred_tasks.model.machine import BASES, MACHINES
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.training.settings import make_settings
from support.data import make_blobs, make_group
from support.pools import inline
from support.setting_words import classifier_with

EVERY = (*BASES, *MACHINES)


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.plan.MAX_CHUNK_ROWS", 100)
        patch.setattr("dcpred.plan.BLOCKS", 3)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = make_blobs(400, n_features=4, n_classes=3, seed=1)
    return make_group(tmp_path_factory.mktemp("machines") / "data.zarr", found.X, found.y, chunk_rows=64)


def values_of(name: str, **more: object) -> dict[str, object]:
    which, one = ("basis" if name in BASES else "machine"), (BASES | MACHINES)[name]
    size = {"size": 8} if one.counted else {}
    return {which: name, "kernel": one.kernels[0], "n_leaves": 2, "min_leaf_rows": 20, **size, **more}


@pytest.mark.parametrize("name", EVERY)
def test_a_machine_goes_the_whole_way(name: str, data: Path, tmp_path: Path) -> None:
    train(f"{data}/X", f"{data}/y", tmp_path / "model", make_settings(values_of(name)), inline)
    model = read_model(tmp_path / "model")
    assert model.machines is not None
    done = score(tmp_path / "model", f"{data}/X", tmp_path / "out", inline)
    assert done.status == {"1": 400}
    assert verify(tmp_path / "out", "full", inline).ok
    found = zarr.open_group(tmp_path / "out/scores.zarr", mode="r")["decision"][...]
    wanted, _ = score_rows(model, zarr.open_array(f"{data}/X", mode="r")[...])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    told = evaluate(tmp_path / "model", f"{data}/X", f"{data}/y", cost=False)
    assert told["accuracy"] > 0.8
    which = "basis" if name in BASES else "machine"
    shown = inspect_path(tmp_path / "model")
    assert shown["engine"] == "baselines (not compiled: its leaves hold baselines)"
    assert shown["settings"][which] == name
    assert shown["predicted_cost"] is None, "the engine does not score it"
    constant = [leaf for leaf in range(model.n_leaves) if model.machine(leaf) is None]
    assert shown["n_constant_leaves"] == len(constant) < model.n_leaves


def test_an_estimator_with_a_machine_is_saved_and_loaded(data: Path, tmp_path: Path) -> None:
    X, y = (zarr.open_array(f"{data}/{name}", mode="r")[...] for name in ("X", "y"))
    given: dict[str, Any] = values_of("fourier")
    made = classifier_with(random_state=0, **given).fit(X, y)
    assert made.score(X, y) > 0.8
    made.save(tmp_path / "saved")
    again = load_model(tmp_path / "saved")
    np.testing.assert_array_equal(again.decision_function(X), made.decision_function(X))


@pytest.mark.parametrize("name", ["nothing", "fourier/../exact", "group_svm", 7])
def test_another_machine_in_a_model_is_refused(name: object, data: Path, tmp_path: Path) -> None:
    train(f"{data}/X", f"{data}/y", tmp_path / "model", make_settings(values_of("exact")), inline)
    file = tmp_path / "model" / "model.json"
    told = json.loads(file.read_text())
    told["model"]["machine"] = name
    file.write_text(json.dumps(told))
    with pytest.raises(ModelFormatError):
        read_model(tmp_path / "model")


def test_by_the_command_line(data: Path, tmp_path: Path) -> None:
    sets = [word for name, value in values_of("ldkl").items() for word in ("--set", f"{name}={value}")]
    result = CliRunner().invoke(
        main, ["train", str(data), str(tmp_path / "model"), *sets, "--workers", "1", "--json"]
    )
    assert result.exit_code == 0, result.output
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path / "model")])
    assert "ldkl" in shown.output
    assert "measured by dcpred evaluate" in shown.output
    cost = CliRunner().invoke(main, ["evaluate", str(tmp_path / "model"), str(data), "--json"])
    assert json.loads(cost.stdout)["cost_ratio"] > 0
    pytest.importorskip("matplotlib", reason="matplotlib draws the pictures of a page")
    assert "measured by dcpred evaluate" in report(tmp_path / "model").html
