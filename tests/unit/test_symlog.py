"""Models of earlier versions with features on a symmetric logarithmic scale are read as models with knots."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcpred import load_model
from dcpred.cli.main import main
from dcpred.training.search_result import found_before
from dcpred_tasks.artifacts.model_artifact import open_artifact, read_model
from dcpred_tasks.artifacts.model_checks import check_model
from dcpred_tasks.model.contributions import known_importances
from dcpred_tasks.model.feature_map import Knots
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.symlog import KNOT
from dcpred_tasks.training.settings import Settings, make_settings, settings_dict
from support import serve_formats

NAN = np.nan
ARCHIVE = Path(__file__).parents[1] / "data/formats/model-06.tar.xz"


def symlog(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """The scale, as it was defined: linear to ±1, then one more for each doubling, linear between."""
    whole = np.floor(np.log2(1 + np.abs(u)))
    return np.copysign(whole + (1 + np.abs(u)) / 2**whole - 1, u)


@pytest.fixture(name="stored")
def unpacked_model(tmp_path: Path) -> Path:
    serve_formats.served(ARCHIVE, tmp_path)
    return tmp_path / "model"


# -- the scale -----------------------------------------------------------------------------------------------


@given(
    x=st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3),
    centre=st.sampled_from([0.0, 1.0, -300.0]),
    rate=st.sampled_from([1.0, 1e-3, 40.0]),
    factor=st.sampled_from([0.5, 2.0, -1.0, 0.0]),
)
def test_knots_give_the_columns_of_the_scale(
    x: list[float], centre: float, rate: float, factor: float
) -> None:
    """Feature 0 is on the scale, feature 1 is a number beside it, and feature 2 is one-hot encoded."""
    arrays = {
        "source": [0, 1, 2],
        "code": [None, None, 4.0],
        "shift": [0.3, 7.0, 0.0],
        "factor": [1.5, factor, 1.0],
        "symlog_centre": [centre, 0.0, 0.0],
        "symlog_rate": [rate, 0.0, 0.0],
        "symlog_sd": [1.0, 0.0, 0.0],
    }
    scaling = Scaling.of({name: [NAN if v is None else v for v in own] for name, own in arrays.items()})
    row = np.array([[x[0], x[1], 4.0]])
    expected = [(symlog((row[0, 0] - centre) * rate) - 0.3) * 1.5, (row[0, 1] - 7.0) * factor, 1.0]
    np.testing.assert_allclose(scaling.exact(row)[0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(scaling.raw(scaling.exact(row))[0, 0], x[0], rtol=1e-5, atol=1e-3 / rate)


def test_beyond_the_last_knot_the_scale_ends() -> None:
    columns = {"source": [0], "code": [NAN], "shift": [0.0], "factor": [1.0]}
    scale = {"symlog_centre": [0.0], "symlog_rate": [1.0], "symlog_sd": [1.0]}
    scaling = Scaling.of(columns | scale)
    u = np.array([[KNOT[-1]], [1e30], [-1e30], [NAN], [np.inf], [1e300]])
    np.testing.assert_array_equal(scaling.exact(u)[:, 0], [31, 31, -31, NAN, np.inf, np.inf])


@pytest.mark.parametrize(
    "scale",
    [
        ([NAN], [1.0], [1.0]),
        ([0.0], [np.inf], [1.0]),
        ([0.0], [-1.0], [1.0]),
        ([0.0], [1.0], [-1.0]),
        ([0.0, 0.0], [1.0], [1.0]),
        ([0.0, 0.0], [1.0, 1.0], [1.0, 1.0]),
    ],
)
def test_what_is_no_scale(scale: Any) -> None:
    arrays: dict[str, Any] = {"source": [0], "code": [NAN], "shift": [0.0], "factor": [1.0]}
    arrays |= dict(zip(("symlog_centre", "symlog_rate", "symlog_sd"), scale, strict=True))
    with pytest.raises(ValueError, match=r"map|logarithmic scale"):
        Scaling.of(arrays)


# -- models --------------------------------------------------------------------------------------------------


def test_a_stored_model_is_read_with_knots(stored: Path) -> None:
    model = read_model(stored)
    check_model(model)
    coding = model.scaling.coding
    assert coding is not None
    assert isinstance(coding.map, Knots)
    assert open_artifact(stored).self_test() is not None
    assert np.isfinite(known_importances(model)).all()
    shown = CliRunner().invoke(main, ["inspect", str(stored)])
    assert shown.exit_code == 0, shown.output
    assert "mapped to a symmetric logarithmic scale" in " ".join(shown.output.split())
    found = json.loads(CliRunner().invoke(main, ["inspect", "--json", str(stored)]).stdout)
    assert found["feature_map"]["name"] == "symlog"


def test_a_stored_model_is_written_again(stored: Path, tmp_path: Path) -> None:
    estimator = load_model(stored, estimator=True)
    rows = np.load(stored.parent / "rows.npy")
    estimator.save(tmp_path / "again")
    again = load_model(tmp_path / "again")
    np.testing.assert_array_equal(again.decision_function(rows), estimator.decision_function(rows))


def test_settings_of_an_earlier_search_are_read(tmp_path: Path) -> None:
    settings = settings_dict(Settings()) | {"symlog": "0,2"}
    row = {"accuracy": 0.9, "standard_error": 0.01, "n_judged": 9, "cost_ratio": 4.0, "ns_per_row": 20.0}
    shape = {"within_budget": True, "scaling": "learned", "n_leaves": 2, "landmarks": 8, "products": 0}
    row |= shape | {"overlap": 1}
    found = {"settings": settings, "chosen": row, "frontier": [row], "seconds": {}}
    again = found_before({"found": found}, tmp_path / "m.tuned.json")
    assert make_settings(again["settings"]) == Settings()
