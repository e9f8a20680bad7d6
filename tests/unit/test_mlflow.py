"""The MLflow flavour keeps a model, and the names and types of its columns."""

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import dcpred
import dcpred.mlflow
from dcpred_tasks.errors import DataError, SettingsError
from support.exported import QUICK
from support.tables import table

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow warns of its own future.


@pytest.fixture
def of_table(tmp_path: Path) -> Path:
    """A model of columns of every kind."""
    frame = table(300)
    known = frame.drop(columns=["id", "label", "city"])
    model = dcpred.DCPredClassifier(n_leaves=2, landmarks=4, settings=QUICK, random_state=0)
    model.fit(known, frame["label"]).save(tmp_path / "model")
    return tmp_path / "model"


def test_without_mlflow_one_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    for call in (
        lambda: dcpred.mlflow.save_model("model", tmp_path / "saved"),
        lambda: dcpred.mlflow.log_model("model"),
        lambda: dcpred.mlflow.load_model("models:/model/1"),
    ):
        with pytest.raises(SettingsError, match=r'Run pip install "dcpred\[mlflow\]"'):
            call()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
def test_saved_models_predict_every_table_that_the_model_accepts(of_table: Path, tmp_path: Path) -> None:
    import mlflow

    dcpred.mlflow.save_model(of_table, tmp_path / "saved")
    frame = table(50, seed=1).drop(columns=["id", "label", "city"])
    right = dcpred.load_model(of_table).predict(frame)
    generic = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    assert generic.metadata.signature.inputs.input_names() == [
        "age",
        "colour",
        "old",
        "day",
        "seen",
        "amount",
    ]
    assert (generic.predict(frame) == right).all()
    assert (dcpred.mlflow.load_model(str(tmp_path / "saved")).predict(frame) == right).all()
    with pytest.raises(Exception, match="amount"):
        generic.predict(frame.drop(columns="amount"))
    gap = np.arange(50) % 10 == 0
    for other in (
        frame.astype({"age": "Int64"}).assign(age=lambda f: f["age"].mask(gap)),
        frame.astype({"old": "boolean"}).assign(old=lambda f: f["old"].mask(gap)),
        frame.astype({"colour": "category"}),
        frame.assign(age=np.arange(50), day=frame["day"].astype(str), colour=None),
        frame.assign(day=np.datetime64("9999-12-31", "us")),
    ):
        right = dcpred.load_model(of_table).predict(other)
        assert (generic.predict(other) == right).all()
    with pytest.raises(DataError, match=r"Cannot save to .*saved: it already exists"):
        dcpred.mlflow.save_model(of_table, tmp_path / "saved")


@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
def test_logged_models_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = dcpred.DCPredRegressor(n_leaves=1, landmarks=4, settings=QUICK, random_state=0)
    model.fit(X, X[:, 0]).save(tmp_path / "model")
    with mlflow.start_run():
        info = dcpred.mlflow.log_model(dcpred.load_model(tmp_path / "model"), name="numbers")
    assert info.signature.inputs.inputs[0].shape == (-1, 3)
    assert np.array_equal(mlflow.pyfunc.load_model(info.model_uri).predict(X), model.predict(X))
