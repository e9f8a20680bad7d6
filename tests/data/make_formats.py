"""One model for each version of the format of models, and a data set with a run, as small archives. They are
made once and never again: later versions must give the same bits.

    python tests/data/make_formats.py tests/data/formats

    model-NN.tar.xz   the model, rows.npy and decision.npy: rows of every kind that it knows, and their scores
    run-01.tar.xz      known.zarr and new.zarr with a schema of columns, a model, and scores of new.zarr
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from dcpred import DCPredClassifier, DCPredRegressor, Settings, load_model
from dcpred.datasets.importing import import_data
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.artifacts.model_artifact import write_model
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.training.settings import make_settings, settings_dict
from support.leaf_models import with_baseline

N_ROWS, N_SCORED = 150, 40
COMMON: dict[str, Any] = {"landmarks": 4, "random_state": 0}


def classifier(n_classes: int = 2, **more: Any) -> Callable[[Path], Any]:
    """Writes a classifier of rows whose classes lie apart, and returns rows."""
    settings = {"min_leaf_rows": 10, **more.pop("settings", {})}
    return lambda path: _saved(
        DCPredClassifier(**{"n_leaves": 2, **COMMON, **more}, settings=Settings(**settings)), path, n_classes
    )


def _saved(estimator: Any, path: Path, n_classes: int, missing: bool = False) -> Any:
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, N_ROWS)
    X = rng.normal(size=(N_ROWS, 3)) + np.column_stack([4.0 * y, -y, 0 * y])
    X[:, 2] = rng.integers(0, 4, N_ROWS)
    if missing:
        X[::7, 0] = np.nan
    target = np.exp(X[:, 0] / 4) if isinstance(estimator, DCPredRegressor) else y
    estimator.fit(X, target).save(path)
    return X


def regression(path: Path) -> Any:
    return _saved(DCPredRegressor(n_leaves=1, **COMMON, target_transform="log1p"), path, 3)


def missing_values(path: Path) -> Any:
    return _saved(DCPredClassifier(n_leaves=1, **COMMON, missing="indicate"), path, 2, missing=True)


def constructed(make: Callable[[], Model], **values: Any) -> Callable[[Path], Any]:
    """Writes a model that no training of today makes."""

    def write(path: Path) -> Any:
        model = make()
        write_model(path, model, settings_dict(make_settings({})) | values, {})
        return 2 * np.random.default_rng(1).normal(size=(N_ROWS, model.n_features))

    return write


def baseline() -> Model:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 3))
    y = (X[:, 0] > 0).astype(np.int64)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(machine="exact", calibrate=False)
        DCPredClassifier(n_leaves=1, random_state=0, settings=settings).fit(X, y).save(f"{folder}/model")
        exact = load_model(f"{folder}/model").model
        return with_baseline(exact, "nystrom", X, y, size=8)


# A model of version 6 is written by version 0.1.0 to 0.2.0 alone.
MODELS = {
    2: classifier(settings={"calibrate": False}),
    3: classifier(categorical=[2]),
    4: constructed(baseline, machine="nystrom"),
    5: missing_values,
    7: classifier(3, n_leaves=4, settings={"calibrate": False}),
    8: classifier(settings={"feature_map": "clip"}),
    9: classifier(class_weight="balanced"),
    10: regression,
    11: classifier(settings={"feature_map": "additive"}),
    12: classifier(3, settings={"trees": 20, "tree_depth": 3}),
}


def write_models(folder: Path) -> None:
    for version, write in MODELS.items():
        with tempfile.TemporaryDirectory() as made:
            X = write(Path(made) / "model")
            written = json.loads((Path(made) / "model" / "model.json").read_text())["version"]
            assert written == version, f"the model for version {version} has version {written}"
            rows = X[:N_SCORED]
            model = load_model(f"{made}/model")
            np.save(f"{made}/rows.npy", rows)
            np.save(f"{made}/decision.npy", model.decision_function(rows))
            shutil.make_archive(str(folder / f"model-{version:02}"), "xztar", made)


def write_run(folder: Path) -> None:
    rng = np.random.default_rng(2)
    size, town = rng.normal(size=N_ROWS).round(3), rng.choice(["Bonn", "Trier", ""], N_ROWS)
    label = np.where(size + (town == "Bonn") > 0.3, "yes", "no")
    lines = [f"{a},{b},{c}" for a, b, c in zip(size, town, label, strict=True)]
    with tempfile.TemporaryDirectory() as made:
        path = Path(made)
        (path / "known.csv").write_text("\n".join(["size,town,label", *lines]) + "\n")
        (path / "new.csv").write_text("\n".join(["size,town", *(x.rpartition(",")[0] for x in lines)]) + "\n")
        import_data(path / "known.csv", path / "known.zarr", target="label")
        settings = {"n_leaves": 1, "landmarks": 4}
        with mock.patch("socket.gethostname", return_value="host"):
            train(f"{made}/known.zarr", path / "model", settings=settings)
            import_data(path / "new.csv", path / "new.zarr", like=path / "model")
            score(path / "model", f"{made}/new.zarr/X", path / "scores")
        for name in ("known.csv", "new.csv", "scores/lock"):
            (path / name).unlink(missing_ok=True)
        shutil.make_archive(str(folder / "run-01"), "xztar", made)


if __name__ == "__main__":
    target_folder = Path(sys.argv[1])
    target_folder.mkdir(parents=True, exist_ok=True)
    write_models(target_folder)
    write_run(target_folder)
