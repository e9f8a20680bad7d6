"""Exact models, and models of version 0.1.0 with baselines, are stored, scored, verified and evaluated."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from dcpred import load_model
from dcpred.cli import main
from dcpred.evaluation.evaluate import evaluate
from dcpred.reports.inspection import inspect
from dcpred.reports.report import report
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred.verification.verify import verify
from dcpred_tasks.artifacts.model_artifact import read_model, write_model
from dcpred_tasks.errors import ModelFormatError
from dcpred_tasks.model.leaf_model import EXACT
from dcpred_tasks.result_fields import document_of
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.settings import make_settings, settings_dict
from dcpred_tasks.training.survey import survey_rows
from support.data import make_blobs, make_group
from support.leaf_models import BASES, EVERY, SIZES, with_baseline


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", 100)
        patch.setattr("dcpred.execution.block_plan.BLOCKS", 3)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = make_blobs(400, n_features=4, n_classes=3, seed=1)
    return make_group(tmp_path_factory.mktemp("machines") / "data.zarr", found.X, found.y, chunk_rows=64)


VALUES: dict[str, object] = {"leaf_model": "exact", "n_leaves": 2, "min_leaf_rows": 20}


def write_baseline(name: str, data: Path, folder: Path) -> None:
    """A model that version 0.1.0 trained with this leaf model."""
    if name == EXACT:
        train(data, folder, settings=VALUES)
        return
    X, y = (zarr.open_array(f"{data}/{part}", mode="r")[...] for part in ("X", "y"))
    survey = survey_rows(X, y, np.ones(len(X)), 0, "classification")
    settings = make_settings(VALUES | {"calibrate": False})
    model = train_rows(X, y, np.ones(len(X)), np.empty(0), survey, settings, (0, 1, 2))
    model = with_baseline(model, name, X, y, size=16 if name in SIZES else 0)
    given = {"basis" if name in BASES else "leaf_model": name, "size": 8, "tolerance": 0.1}
    write_model(folder, model, settings_dict(settings) | given, {})


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", EVERY)
def test_a_leaf_model_goes_the_whole_way(name: str, data: Path, tmp_path: Path) -> None:
    write_baseline(name, data, tmp_path / "model")
    model = read_model(tmp_path / "model")
    assert model.leaf_models is not None
    done = score(tmp_path / "model", data, tmp_path / "out")
    assert done.status == {"1": 400}
    assert verify(tmp_path / "out", "full").ok
    found = zarr.open_group(tmp_path / "out/scores.zarr", mode="r")["decision"][...]
    wanted, _ = score_rows(model, zarr.open_array(f"{data}/X", mode="r")[...])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    told = evaluate(tmp_path / "model", data, cost=False)
    assert told["accuracy"] > 0.8
    shown = document_of(inspect(tmp_path / "model"))
    assert shown["engine"] == "leaf models (not compiled: its leaves hold other models)"
    assert shown["predicted_cost"] is None, "the engine does not score it"
    constant = [leaf for leaf in range(model.n_leaves) if model.leaf_model(leaf) is None]
    assert shown["n_constant_leaves"] == len(constant) < model.n_leaves


@pytest.mark.parametrize("name", [EXACT, "fourier", "adapt_svm"])
def test_a_leaf_model_is_loaded_as_an_estimator(name: str, data: Path, tmp_path: Path) -> None:
    write_baseline(name, data, tmp_path / "model")
    again = load_model(tmp_path / "model")
    fitted = load_model(tmp_path / "model", estimator=True)
    X = zarr.open_array(f"{data}/X", mode="r")[...]
    np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))


@pytest.mark.parametrize("name", ["nothing", "fourier/../exact", "group_svm", 7])
def test_another_leaf_model_in_a_model_is_refused(name: object, data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "model", settings=VALUES)
    file = tmp_path / "model" / "model.json"
    told = json.loads(file.read_text())
    told["model"]["machine"] = name
    file.write_text(json.dumps(told))
    with pytest.raises(ModelFormatError):
        read_model(tmp_path / "model")


def test_by_the_command_line(data: Path, tmp_path: Path) -> None:
    sets = [word for name, value in VALUES.items() for word in ("--set", f"{name}={value}")]
    result = CliRunner().invoke(
        main, ["train", str(data), str(tmp_path / "model"), *sets, "--workers", "1", "--json"]
    )
    assert result.exit_code == 0, result.output
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path / "model")])
    assert "exact" in shown.output
    assert "measured by dcpred evaluate" in shown.output
    cost = CliRunner().invoke(main, ["evaluate", str(tmp_path / "model"), str(data), "--json"])
    assert json.loads(cost.stdout)["cost_ratio"] > 0
    pytest.importorskip("matplotlib", reason="matplotlib draws the pictures of a page")
    assert "measured by dcpred evaluate" in report(tmp_path / "model").html
