"""Columns in which new rows always differ hold no refresh back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dcpred
from dcpred_tasks.errors import IncompleteError, SettingsError

N = 1_200
QUICK = {"n_leaves": 1, "landmarks": 8}


def orders(seed: int, start: str) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"amount": np.exp(rng.normal(size=N)), "weight": rng.normal(size=N)})
    frame["day"] = pd.Timestamp(start) + pd.to_timedelta(np.sort(rng.integers(0, 365, N)), unit="D")
    return frame.assign(late=np.where((frame.amount > 1) ^ (frame.weight > 0), "yes", "no"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("orders")
    dcpred.import_data(orders(0, "2025-01-01"), folder / "known.zarr", target="late")
    night = orders(1, "2026-01-01").drop(columns="late")
    night.to_parquet(folder / "night.parquet", index=False)
    night.assign(amount=night.amount * 20).to_parquet(folder / "wrong.parquet", index=False)
    dcpred.train(folder / "known.zarr", folder / "plain", settings=QUICK)
    dcpred.train(folder / "known.zarr", folder / "timed", settings=QUICK, by_time="day")
    return folder


def refresh(data: Path, model: str, night: str, root: Path, **more: Any) -> str:
    try:
        return str(dcpred.refresh(data / model, data / f"{night}.parquet", root, **more).state)
    except IncompleteError as error:
        return str(error)


@pytest.mark.parametrize("limit", [{"max_drift": 0.25}, {"max_shift": 0.8}])
@pytest.mark.parametrize(("model", "ignored"), [("plain", ["day"]), ("timed", None)])
def test_a_later_date_is_published_and_other_amounts_are_not(
    limit: dict[str, float], model: str, ignored: list[str] | None, data: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {**limit, "ignore_drift": ignored}
    assert "'day'" in refresh(data, "plain", "night", tmp_path / "none", **limit)
    assert refresh(data, model, "night", tmp_path / "night", **given) == "published"
    assert "'amount'" in refresh(data, model, "wrong", tmp_path / "wrong", **given)


def test_the_root_keeps_the_names(data: Path, tmp_path: Path) -> None:
    root, limit = tmp_path / "root", {"max_shift": 0.8}
    assert "'day'" in refresh(data, "plain", "night", root, **limit)
    assert refresh(data, "plain", "night", root, ignore_drift=["day"], **limit) == "published"
    assert json.loads((root / "refresh.json").read_text())["ignore_drift"] == ["day"]
    assert refresh(data, "plain", "night", root, full=True, **limit) in ("published", "unchanged")
    with pytest.raises(SettingsError, match=r"of 'dya': the model lacks this column\. Name one of 'amount'"):
        dcpred.refresh(data / "plain", data / "night.parquet", tmp_path / "new", ignore_drift=["dya"])
    assert not (tmp_path / "new").exists()


def test_training_reports_dates_beyond_which_new_rows_lie(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dcpred.train(data / "known.zarr", tmp_path / "m", settings=QUICK, by_time="day", verbose=True)
    said = capfd.readouterr().err
    assert "'day' is a feature, beyond which new rows always lie; keep it with id=" in said
    assert "'day' has dates in the order of the rows, beyond which new rows always lie" in said
