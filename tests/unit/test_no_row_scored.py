"""A run in which no row has a score fails everywhere, and names the most frequent reason; a run that an
earlier version began is resumed with its own rule of sampled rows.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import dcpred
from dcpred import DCPredClassifier
from dcpred.cli.main import main
from dcpred_tasks.errors import IncompleteError
from dcpred_tasks.row_sampling import one_of_each

NAMES = ["age", "income", "weight"]


def data_set(path: Path, bad: bool, n: int = 60) -> Path:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = (X[:, 0] > 0).astype(np.int64)
    if bad:
        X[:, 1] = np.nan
        X[:5, 0] = np.inf
    group = zarr.create_group(path)
    group.create_array("X", data=X, chunks=(30, 3)).attrs["feature_names"] = NAMES
    group.create_array("y", data=y)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("unscored")
    data_set(path / "good.zarr", bad=False)
    data_set(path / "bad.zarr", bad=True)
    dcpred.train(str(path / "good.zarr"), path / "model", settings={"n_leaves": 1, "landmarks": 4})
    return path


WHY = r"none of the 60 rows has a score: 60 have 'non finite feature', most often in column 'income'"


def test_scoring_fails_each_time_and_keeps_its_report(folder: Path, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(IncompleteError, match=WHY) as failed:
            dcpred.score(folder / "model", str(folder / "bad.zarr"), tmp_path / "out")
        assert failed.value.report.status == {"2": 60}
    call = ["score", str(folder / "model"), str(folder / "bad.zarr"), str(tmp_path / "out2"), "--json"]
    found = CliRunner().invoke(main, call)
    assert found.exit_code == json.loads(found.stdout)["exit_code"] == 4


def test_a_refresh_publishes_none(folder: Path, tmp_path: Path) -> None:
    dcpred.refresh(folder / "model", str(folder / "good.zarr"), tmp_path / "root")
    for options in ({}, {"max_bad_fraction": 1.0}):
        with pytest.raises(IncompleteError, match=f"Cannot publish .*{WHY}") as failed:
            dcpred.refresh(
                folder / "model", str(folder / "bad.zarr"), tmp_path / f"root{len(options)}", **options
            )
        assert failed.value.report.latest == ""


def test_an_evaluation_says_why(folder: Path) -> None:
    with pytest.raises(IncompleteError, match=f"Cannot evaluate .*{WHY}"):
        dcpred.evaluate(folder / "model", str(folder / "bad.zarr"), cost=False)


def test_predictions_warn(folder: Path) -> None:
    X: Any = zarr.open_group(folder / "bad.zarr")["X"][...]
    served = dcpred.load_model(folder / "model")
    with pytest.warns(UserWarning, match="none of the 60 rows has a score: .* column 1"):
        assert np.isnan(served.decision_function(X)).all()
    good: Any = zarr.open_group(folder / "good.zarr")["X"][...]
    estimator = DCPredClassifier(n_leaves=1, landmarks=4).fit(good, good[:, 0] > 0)
    with pytest.warns(UserWarning, match="none of the 60 rows has a score: .* column 1"):
        estimator.decision_function(X)
    assert np.isfinite(estimator.decision_function(np.vstack([X, good[:1]]))[-1])


def test_columns_to_blame_are_named(folder: Path, tmp_path: Path) -> None:
    mixed = data_set(tmp_path / "mixed.zarr", bad=False)
    X: Any = zarr.open_group(mixed)["X"]
    X[7, 1], X[9, 2] = np.nan, np.inf
    given = str(folder / "model"), str(mixed)
    why = ["non finite feature 'income'", "non finite feature 'weight'"]

    def printed(*call: str) -> str:
        return CliRunner().invoke(main, list(call)).output

    score = printed("score", *given, str(tmp_path / "out"))
    assert f"7 ({why[0]}), 9 ({why[1]})" in score
    assert all(reason in printed("errors", str(tmp_path / "out")) for reason in why)
    assert f"row 7 has no score ({why[0]})" in printed("explain", *given, "--rows", "7")
    mixed.rename(tmp_path / "moved.zarr")
    assert "non finite feature 2" in printed("errors", str(tmp_path / "out"))


def test_a_run_of_an_earlier_version_is_resumed_by_its_rule(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcpred_tasks.task_bodies.score_block.sample_stride", lambda *_: 7)
    given = folder / "model", str(folder / "good.zarr")
    seen = {}
    for rule in ("hashed", None):
        out = tmp_path / str(rule)
        dcpred.score(*given, out)
        plan = json.loads((out / "plan.json").read_text())
        assert plan.pop("sampling") == "hashed"
        if rule is None:
            (out / "plan.json").write_text(json.dumps(plan))
        for file in (*out.glob("blocks/*.json"), out / "manifest.json"):
            file.unlink()
        dcpred.score(*given, out)
        records = [json.loads(file.read_text()) for file in sorted(out.glob("blocks/*.json"))]
        seen[rule] = sum(record["statistics"]["sampled_rows"] for record in records)
    assert seen == {"hashed": len(one_of_each(60, 7)), None: 9}
