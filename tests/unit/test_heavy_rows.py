"""A row that outweighs all others is reported wherever weights are given; a setting refuses it."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import dcpred
from dcpred import DCPredClassifier, DCPredRegressor
from dcpred_tasks.errors import DataError

WHY = r"row 5 has 9\d\.\d+ % of the weight of all 1\d\d rows"
SMALL = {"n_leaves": 1, "landmarks": 4}


@pytest.fixture(scope="module")
def rows() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    weight = rng.uniform(0.5, 2.0, 150)
    weight[5], weight[0] = 1e4, 0.0
    return X, (X[:, 0] + rng.normal(size=150) > 0).astype(np.int64), weight


@pytest.fixture(scope="module")
def data(rows: tuple[Any, Any, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("heavy") / "d.zarr"
    group = zarr.create_group(path)
    for name, values in zip("Xyw", rows, strict=True):
        group.create_array(name, data=values)
    return str(path)


def test_stored_weights(data: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"sample_weight": "w", "verbose": True}
    limited = {"largest_weight": 0.25}
    for call in (
        lambda: dcpred.train(data, tmp_path / "m", settings=SMALL | limited, **given),
        lambda: dcpred.train(data, tmp_path / "m", settings=limited, **given),
        lambda: dcpred.tune(data, tmp_path / "m", short=True, settings=limited, **given),
        lambda: dcpred.validate(data, settings=SMALL | limited, **given),
    ):
        with pytest.raises(DataError, match=f"{WHY}, and largest_weight is 0.25"):
            call()
        assert not (tmp_path / "m").exists()
    with pytest.warns(dcpred.DataWarning, match=WHY):
        report = dcpred.train(data, tmp_path / "m", settings=SMALL, **given)
    assert [remark.code for remark in report.remarks] == ["heavy-row"]


def test_weights_in_memory(rows: tuple[Any, Any, Any]) -> None:
    X, y, weight = rows
    for kind in (DCPredClassifier, DCPredRegressor):
        limited = kind(n_leaves=1, landmarks=4, settings=dcpred.Settings(largest_weight=0.25))
        with pytest.raises(DataError, match=WHY):
            limited.fit(X, y, sample_weight=weight)
        with pytest.raises(DataError, match=WHY):
            limited.fit(X, y).score(X, y, sample_weight=weight)
        with pytest.warns(UserWarning, match=WHY):
            model = kind(n_leaves=1, landmarks=4).fit(X, y, sample_weight=weight)
        with pytest.warns(UserWarning, match=WHY):
            model.score(X, y, sample_weight=weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DCPredClassifier(n_leaves=1, landmarks=4).fit(X[:90], y[:90], weight[:90])
