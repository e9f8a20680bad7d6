"""Rows that a model was trained on are told from new ones, whoever trained it, and however the rows are kept;
and a model on disk becomes an estimator again.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.base import clone

from dcpred import DCPredClassifier, DCPredRegressor, load_model
from dcpred.cli import main
from dcpred.evaluation.evaluate import evaluate
from dcpred.training.train import train
from dcpred_tasks.artifacts import trained_rows
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.artifacts.trained_rows import FIELD, MOST_HASHES, TrainedRows, hashes_of_rows, sketch
from dcpred_tasks.errors import DataError
from dcpred_tasks.schema.frames import encode_frame
from dcpred_tasks.training.settings import Settings
from support.data import make_blobs, make_group
from support.setting_words import classifier_with, regressor_with

BLOBS = make_blobs(900, n_features=3, n_classes=2, seed=0)
QUICK = {"n_leaves": 2, "landmarks": 4, "refine": False}
RNG = np.random.default_rng(0)
LONG = sketch(np.arange(MOST_HASHES + 9.0)[:, None])


def share(of: dict[str, Any], *blocks: np.ndarray[Any, Any]) -> float | None:
    found = TrainedRows.of({FIELD: json.loads(json.dumps(of))})
    assert found is not None
    for block in blocks:
        found.add(block)
    return found.known_share()


@given(
    arrays.arrays(np.float32, (6, 3), elements=st.floats(-1e6, 1e6, width=32) | st.just(float("nan"))),
    st.permutations(range(6)),
)
def test_a_hash_is_of_the_values_of_a_row(X: Any, order: list[int]) -> None:
    """Not of its place, its dtype, the sign of a zero or the bits of a NaN; other values have another one."""
    rows = list(order)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(hashes_of_rows(X)[rows], hashes_of_rows(X[rows].astype(np.float64)))
    np.testing.assert_array_equal(
        hashes_of_rows(X), hashes_of_rows(np.asfortranarray(np.where(X == 0, -0.0, X)))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trained_rows, "STRIP_VALUES", 7)  # two rows
        np.testing.assert_array_equal(hashes_of_rows(X), hashes_of_rows(X[::-1])[::-1])
    plain = {tuple(None if v != v else float(v) + 0.0 for v in row) for row in X}
    assert len(np.unique(hashes_of_rows(X))) == len(plain)


def test_hashes_of_whole_numbers_are_spread() -> None:
    """Whose bits as float64 differ in few places: all pairs, and each pair in both orders."""
    a, b = np.divmod(np.arange(2**14), 2**7)
    found = hashes_of_rows(np.column_stack([a, b]))
    assert len(np.unique(found)) == 2**14
    assert abs((found < 2**60).mean() - 1 / 16) < 0.01


@pytest.mark.parametrize("n", [200, 20_000])
def test_the_share_is_told_for_data_of_every_size(n: int) -> None:
    X, new = RNG.normal(size=(n, 4)), RNG.normal(size=(n, 4))
    of = sketch(X)
    assert len(json.dumps(of)) < 25_000
    assert share(of, X) == 1.0
    assert share(of, new) == 0.0
    half = share(of, X[: n // 2], new[: n // 2])
    assert half == pytest.approx(0.5, abs=0.05)
    sampled = sketch(X[::4], 0.25)
    assert share(sampled, X, new) == pytest.approx(0.5, abs=0.1)
    assert share(of, X[:1]) is None, "too few to tell"


@pytest.mark.parametrize(
    "told",
    [
        None,
        {},
        [1],
        {FIELD: 3},
        {FIELD: {"share": 0, "hashes": "AAAAAAAAAAA="}},
        {FIELD: {"share": "1", "hashes": "AAAAAAAAAAA="}},
        {FIELD: {"share": 1.0, "hashes": "no base64"}},
        {FIELD: {"share": 1.0, "hashes": "AAAA"}},
        {FIELD: {"share": 1.0, "hashes": ""}},
        {FIELD: {"share": 1.0, "hashes": "AAAAAAAAAAA=" * 2}},
        {FIELD: {"share": float("nan"), "hashes": "AAAAAAAAAAA="}},
        {
            FIELD: {
                "share": 1.0,
                "hashes": sketch(np.arange(MOST_HASHES + 9.0)[:, None])["hashes"][:-12] + "A" * 44,
            }
        },
    ],
)
def test_what_nobody_vouches_for_is_passed_over(told: Any) -> None:
    assert TrainedRows.of(told) is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model by the command's driver and one by an estimator, of the same rows."""
    place = tmp_path_factory.mktemp("trained")
    data = make_group(place / "known.zarr", BLOBS.X[:600], BLOBS.y[:600], labels=["ash", "oak"])
    make_group(place / "new.zarr", BLOBS.X[600:], BLOBS.y[600:], labels=["ash", "oak"], chunk_rows=70)
    make_group(
        place / "part.zarr", BLOBS.X[500:700].astype(np.float64), BLOBS.y[500:700], labels=["ash", "oak"]
    )
    more = {"sample_rows": 300, "keep_support_vectors": True, "class_weight": "balanced"}
    train(data, place / "by-driver", settings=QUICK | more)
    names = np.array(["ash", "oak"])[BLOBS.y[:600]]
    estimator = classifier_with(**QUICK, random_state=0).fit(BLOBS.X[:600], names)
    estimator.save(place / "by-estimator")
    return place


@pytest.mark.parametrize("model", ["by-driver", "by-estimator"])
def test_an_evaluation_remarks_on_rows_that_were_trained_on(folder: Path, model: str) -> None:
    """All, none, and half of them under another name and dtype."""
    for data, told, within in (("known", 1.0, 0.2), ("new", 0.0, 0.0), ("part", 0.5, 0.2)):
        group = folder / f"{data}.zarr"
        found = evaluate(folder / model, group, cost=False)
        assert found["trained_share"] == pytest.approx(told, abs=within)
        remarks = [each for each in found.remarks if each.code == "trained-rows"]
        assert len(remarks) == (told > 0)


def test_models_without_hashes_are_evaluated_all_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trained_rows, "FIELD", "another")  # as models of before have it
    group = folder / "known.zarr"
    found = evaluate(folder / "by-driver", group, cost=False)
    assert found["trained_share"] is None


def test_the_remark_is_in_the_result_and_not_on_standard_error(folder: Path) -> None:
    asked = ["evaluate", str(folder / "by-driver"), str(folder / "known.zarr"), "--no-cost"]
    assert "trained on" in CliRunner().invoke(main, asked).stdout
    quiet = CliRunner().invoke(main, [*asked, "-q", "--json"])
    assert quiet.stderr == ""
    assert json.loads(quiet.stdout)["trained_share"] > 0.8
    assert "trained-rows" in {each["code"] for each in json.loads(quiet.stdout)["remarks"]}


# -- a model as an estimator ---------------------------------------------------------------------------------


def test_a_model_becomes_an_estimator(folder: Path, tmp_path: Path) -> None:
    served = load_model(folder / "by-driver")
    estimator = load_model(folder / "by-driver", estimator=True)
    assert isinstance(estimator, DCPredClassifier)
    X = BLOBS.X[600:]
    np.testing.assert_array_equal(estimator.predict(X), served.predict(X))
    np.testing.assert_array_equal(estimator.predict_early(X), served.predict_early(X))
    assert (estimator.classes_.tolist(), estimator.n_features_in_, estimator.n_leaves_) == (
        ["ash", "oak"],
        3,
        2,
    )
    assert estimator.settings_ == dict(open_artifact(folder / "by-driver").body["settings"])
    given = estimator.get_params() | estimator.given_settings()
    assert {name: given[name] for name in (*QUICK, "sample_rows")} == QUICK | {"sample_rows": 300}
    assert given["class_weight"] == "balanced"
    assert given.get("calibrate", True) is Settings().calibrate is hasattr(estimator, "predict_proba")
    assert estimator.save(tmp_path / "again") == open_artifact(folder / "by-driver").hash
    again = open_artifact(tmp_path / "again").provenance[FIELD]
    assert again == open_artifact(folder / "by-driver").provenance[FIELD]
    fresh = clone(estimator).fit(X, BLOBS.y[600:])
    assert fresh.settings_["landmarks"] == 4


def test_an_estimator_comes_back_as_it_was(tmp_path: Path) -> None:
    """A regressor of named columns, and a frame that was encoded."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(BLOBS.X, columns=["a", "b", "c"])
    numbers = regressor_with(**QUICK, ridge=0.5, random_state=3).fit(frame, BLOBS.X[:, 0])
    numbers.save(tmp_path / "numbers")
    back = load_model(tmp_path / "numbers", estimator=True)
    assert isinstance(back, DCPredRegressor)
    np.testing.assert_array_equal(back.predict(frame), numbers.predict(frame))
    assert back.feature_names_in_.tolist() == ["a", "b", "c"]
    assert back.get_params()["ridge"] == 0.5
    colours = frame.assign(colour=np.array(["red", "green"])[BLOBS.y])
    colours["day"] = pd.date_range("2020-01-01", periods=len(frame))
    coded = classifier_with(**QUICK, random_state=0).fit(colours, BLOBS.y > 0)
    coded.save(tmp_path / "coded")
    back = load_model(tmp_path / "coded", estimator=True)
    np.testing.assert_array_equal(back.predict(colours), coded.predict(colours))
    assert back.schema_ == coded.schema_
    assert back.n_features_in_ == coded.n_features_in_ == 5, "a date is one column"
    assert back.feature_names_in_.tolist() == coded.feature_names_in_.tolist()
    np.testing.assert_array_equal(back.feature_importances_, coded.feature_importances_)
    np.testing.assert_array_equal(back.distance_shares_, coded.distance_shares_)
    encoded = encode_frame(back.schema_, colours)
    np.testing.assert_array_equal(back.predict(encoded), coded.predict(colours))
    with pytest.raises(DataError, match=f"X has 5 features, but .* with {encoded.shape[1]} features"):
        back.predict(encoded[:, :5])
