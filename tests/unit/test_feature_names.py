"""Names of features are kept with the model, and compared with those of the data wherever rows are
predicted.
"""

from itertools import cycle
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr
import zarr
from click.testing import CliRunner

from dcpred import DCPredClassifier, DCPredRegressor, ServedModel, load_model
from dcpred.cli.main import main
from dcpred.datasets import dask_rows
from dcpred.evaluation.evaluate import evaluate
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.feature_names import feature_names, in_training_order
from support.data import Classes, make_blobs, make_group
from support.serving import serve
from support.setting_words import classifier_with

NAMES = ["width", "height", "age", "mass"]
OTHER = ["age", "mass", "height", "width"]


@pytest.fixture(scope="module")
def data() -> Classes:
    return make_blobs(300, n_features=4, n_classes=3, seed=1)


def small(**more: Any) -> DCPredClassifier:
    """What takes time and knows no names is left out: learned scaling, refinement, calibration."""
    few = {"n_leaves": 2, "landmarks": 6, "products": 4, "scaling": "standard", "refine": False}
    few |= {"calibrate": False, "random_state": 0, "keep_support_vectors": True}
    return classifier_with(**(few | more))


def frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=NAMES)


def named_zarr(path: Path, data: Classes, names: list[str]) -> Path:
    group = make_group(path, data.X, data.y)
    zarr.open_group(group, mode="r+")["X"].attrs["feature_names"] = names
    return group


@pytest.fixture(scope="module")
def model(data: Classes) -> DCPredClassifier:
    return small().fit(frame(data.X), data.y)


@pytest.fixture(scope="module")
def served(model: DCPredClassifier, tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    path = tmp_path_factory.mktemp("served") / "model"
    model.save(path)
    return load_model(path)


KINDS: dict[str, Any] = {
    "pandas": lambda X, names: pd.DataFrame(X, columns=names),
    "pyarrow": lambda X, names: pa.table(dict(zip(names, X.T, strict=True))),
    "xarray": lambda X, names: xr.DataArray(X, dims=("row", "feature"), coords={"feature": names}),
    "dask": lambda X, names: dd.from_pandas(pd.DataFrame(X, columns=names), npartitions=3),
    "xarray of dask": lambda X, names: xr.DataArray(
        da.from_array(X, chunks=(100, 3)), dims=("row", "feature"), coords={"feature": names}
    ),
}
METHODS = ["predict", "predict_early", "decision_function"]


@pytest.mark.parametrize("kind", KINDS)
def test_fit_keeps_them(data: Classes, kind: str) -> None:
    fitted = small().fit(KINDS[kind](data.X, NAMES), data.y)
    assert fitted.feature_names_in_.dtype == object
    assert list(fitted.feature_names_in_) == NAMES
    assert list(serve(fitted).feature_names_in_) == NAMES


def test_a_model_of_features_without_names_has_none(data: Classes) -> None:
    fitted = DCPredRegressor(n_leaves=2, random_state=0).fit(frame(data.X), data.X[:, 0])
    assert list(fitted.feature_names_in_) == NAMES
    for X in (data.X, da.from_array(data.X, chunks=(100, 4))):
        fitted.feature_names_in_ = np.array(NAMES, object)
        assert not hasattr(fitted.fit(X, data.X[:, 0]), "feature_names_in_")
    assert not hasattr(serve(fitted), "feature_names_in_")


def test_save_writes_them_and_load_reads_them(tmp_path: Path, model: DCPredClassifier, data: Classes) -> None:
    plain = small().fit(data.X, data.y)
    assert model.save(tmp_path / "named") == plain.save(tmp_path / "plain")  # the hash does not cover names
    assert open_artifact(tmp_path / "named").provenance["feature_names"] == NAMES
    assert "feature_names" not in open_artifact(tmp_path / "plain").provenance
    assert list(load_model(tmp_path / "named").feature_names_in_) == NAMES
    assert not hasattr(load_model(tmp_path / "plain"), "feature_names_in_")


def test_a_zarr_array_names_them(tmp_path: Path, data: Classes) -> None:
    group = zarr.open_group(named_zarr(tmp_path / "d.zarr", data, NAMES), mode="r")
    fitted = small().fit(group["X"], group["y"])
    assert list(fitted.feature_names_in_) == NAMES
    other = zarr.open_group(named_zarr(tmp_path / "other.zarr", data, OTHER), mode="r")["X"]
    for predictor in (fitted, serve(fitted)):
        np.testing.assert_array_equal(
            predictor.predict(group["X"]), fitted.predict(da.from_array(data.X)).compute()
        )
        with pytest.raises(DataError, match=r"0 'age' for 'width', 1 'mass' for 'height'.*order of training"):
            predictor.predict(other)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("error")
def test_columns_are_put_in_order(
    model: DCPredClassifier, served: ServedModel, data: Classes, kind: str, method: str
) -> None:
    expected = getattr(model, method)(frame(data.X))
    given = KINDS[kind](data.X[:, [NAMES.index(name) for name in OTHER]], OTHER)
    for X in (given, KINDS[kind](data.X, NAMES)):
        found = getattr(model, method)(X)
        np.testing.assert_array_equal(found.compute(scheduler="sync") if "dask" in kind else found, expected)
        if "dask" not in kind:
            np.testing.assert_array_equal(getattr(served, method)(X), expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_other_columns_are_refused(
    model: DCPredClassifier, served: ServedModel, data: Classes, kind: str, method: str
) -> None:
    refused = {
        r"X: it lacks the features 'height', 'mass', which the model was trained with": (
            data.X[:, :2],
            ["width", "age"],
        ),
        r"X: it lacks the feature 'mass'": (data.X, [*NAMES[:3], "Mass"]),
        r"X: it has the feature 'id' beside.*X\[model.feature_names_in_\]": (
            data.X[:, [0, 0, 1, 2, 3]],
            ["id", *NAMES],
        ),
    }
    for words, (X, names) in refused.items():
        for predictor in (model,) if "dask" in kind else (model, served):
            with pytest.raises(DataError, match=words):
                getattr(predictor, method)(KINDS[kind](X, names))


def test_the_advice_of_the_refusal_works(model: DCPredClassifier, served: ServedModel, data: Classes) -> None:
    more = frame(data.X).assign(id=0)[["id", *OTHER]]
    for predictor in (model, served):
        np.testing.assert_array_equal(
            predictor.predict(more[predictor.feature_names_in_]), model.predict(frame(data.X))
        )


def test_arrays_are_taken_as_they_are(model: DCPredClassifier, served: ServedModel, data: Classes) -> None:
    """With scikit-learn's warning in memory, where it would warn."""
    expected = served.predict(data.X)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(model.predict(data.X), expected)
    np.testing.assert_array_equal(
        model.predict(da.from_array(data.X, chunks=(100, 4))).compute(scheduler="sync"), expected
    )
    for X in (xr.DataArray(data.X), data.X.tolist()):
        np.testing.assert_array_equal(served.predict(X), expected)
    nameless = small().fit(data.X, data.y)
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        np.testing.assert_array_equal(nameless.predict(frame(data.X)), expected)


def test_names_that_do_not_tell_an_order_are_refused(served: ServedModel, data: Classes) -> None:
    with pytest.raises(DataError, match="X: two columns are named 'age'"):
        served.predict(pd.DataFrame(data.X, columns=["age", "age", "width", "mass"]))
    mixed = pd.DataFrame(data.X, columns=["width", "height", "age", 3])
    with pytest.raises(DataError, match=r"strings and others are not \('width', 3\)"):
        served.predict(mixed)
    with pytest.raises(DataError, match="strings and others are not"):
        small().fit(dd.from_pandas(mixed, npartitions=2), data.y)
    with pytest.raises(DataError, match=r"strings and others are not.*astype\(str\)\.$"):
        small().fit(mixed, data.y)
    mixed.columns = mixed.columns.astype(str)
    assert list(small().fit(mixed, data.y).feature_names_in_) == ["width", "height", "age", "3"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pyarrow"])
def test_repeated_names_are_refused(model: DCPredClassifier, data: Classes, kind: str) -> None:
    """A column of fractions is not cut to the whole numbers of another one of the same name."""
    plain = small().fit(data.X, data.y)
    repeated = ["a", "a", "b", "c"]
    X = KINDS[kind](data.X, repeated)
    if kind == "dask":
        X = dd.from_pandas(
            pd.concat([frame(data.X).astype({"mass": int}).set_axis(repeated, axis=1)], axis=1), npartitions=2
        )
    served = () if "dask" in kind else (serve(model).predict, serve(plain).predict)
    for call in (lambda X: small().fit(X, data.y), model.predict, plain.decision_function, *served):
        with pytest.raises(
            DataError,
            match=r"^Cannot use X: two columns are named 'a', .*Rename one of them, or pass an array\.$",
        ):
            call(X)
    with pytest.raises(DataError, match="X: two columns"):
        in_training_order(X, repeated)


def test_columns_of_one_name_keep_their_dtypes(data: Classes) -> None:
    y = pd.DataFrame({"a": data.X[:, 0], "b": data.y}).set_axis(["a", "a"], axis=1)
    array = dask_rows.training_data(da.from_array(data.X), dd.from_pandas(y, npartitions=2), None)[1]
    np.testing.assert_array_equal(array.compute(scheduler="sync")[:, 0], data.X[:, 0])


@pytest.mark.parametrize(
    ("kind", "labels"),
    list(
        zip(
            [kind for kind in KINDS if kind != "pyarrow"],
            cycle(([10, 20, 30, 40], [3, 2, 1, 0], [0.5, 1.5, 2.5, 3.5])),
            strict=False,
        )
    ),
)
def test_names_that_are_no_strings_are_refused(
    model: DCPredClassifier, data: Classes, kind: str, labels: list[Any]
) -> None:
    plain = small().fit(data.X, data.y)
    X = KINDS[kind](data.X, labels)
    served = () if "dask" in kind else (serve(model).predict, serve(plain).predict)
    words = (
        rf"^Cannot use X: the names of its columns are not strings \({labels[0]}, .*Make them"
        r" strings with X.*$"
    )
    for call in (lambda X: small().fit(X, data.y), model.predict, plain.predict, *served):
        with pytest.raises(DataError, match=words) as refusal:
            call(X)
    space = {"X": X}
    exec(str(refusal.value).split("strings with ")[1].removesuffix(", or pass an array."), space)
    fitted = small().fit(space["X"], data.y)
    assert list(fitted.feature_names_in_) == [str(label) for label in labels]


@pytest.mark.filterwarnings("error")
def test_names_of_several_levels_are_refused(data: Classes) -> None:
    X = pd.DataFrame(data.X, columns=pd.MultiIndex.from_product([["a", "b"], [1, 2]]))
    with pytest.raises(DataError, match=r"not strings \(\('a', 1\), .*'_'\.join") as refusal:
        small().fit(X, data.y)
    exec(str(refusal.value).split("strings with ")[1].removesuffix(", or pass an array."), {"X": X})
    assert list(small().fit(X, data.y).feature_names_in_) == ["a_1", "a_2", "b_1", "b_2"]
    levels = xr.Coordinates.from_pandas_multiindex(
        pd.MultiIndex.from_product([["a", "b"], [1, 2]]), "feature"
    )
    space = {"X": xr.DataArray(data.X, dims=("row", "feature")).assign_coords(levels)}
    with pytest.raises(DataError, match=r"not strings \(\('a', 1\), ") as refusal:
        feature_names(space["X"])
    exec(str(refusal.value).split("strings with ")[1].removesuffix(", or pass an array."), space)
    assert feature_names(space["X"]) == ("('a', 1)", "('a', 2)", "('b', 1)", "('b', 2)")
    bools = pd.DataFrame(data.X[:, :2], columns=[False, True])
    with pytest.raises(DataError, match="are not strings"):
        small().fit(bools, data.y)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pyarrow"])
def test_columns_that_are_only_numbered(model: DCPredClassifier, data: Classes, kind: str) -> None:
    X = KINDS[kind](data.X, list(range(4)))
    fitted = small().fit(X, data.y)
    assert not hasattr(fitted, "feature_names_in_")
    fitted.predict(X)
    for call in (model.predict,) if "dask" in kind else (model.predict, serve(model).predict):
        with pytest.raises(
            DataError,
            match=r"only numbered, but the model was trained on the features 'width', .* and 1 more\.",
        ):
            call(X)


def test_names_of_an_attribute(data: Classes) -> None:
    X = xr.DataArray(data.X, dims=("row", "feature"), attrs={"feature_names": NAMES})
    assert feature_names(X) == tuple(NAMES)
    assert list(small().fit(X, data.y).feature_names_in_) == NAMES
    with pytest.raises(DataError, match="0 'width' for 'age'"):
        in_training_order(X, OTHER)
    assert feature_names(data.X) is feature_names([[1.0]]) is feature_names(pd.DataFrame(data.X)) is None


class Frame:
    """As little as polars and others offer."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.held, self.columns = columns, list(columns)

    def __getitem__(self, names: list[str]) -> "Frame":
        return Frame({name: self.held[name] for name in names})

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.stack(list(self.held.values()), axis=1).astype(dtype or np.float32)


def test_any_frame_with_columns(served: ServedModel, data: Classes) -> None:
    X = Frame({name: data.X[:, NAMES.index(name)] for name in OTHER})
    np.testing.assert_array_equal(served.predict(X), served.predict(data.X))
    with pytest.raises(DataError, match="lacks the feature 'width'"):
        served.predict(X[OTHER[:3]])


def test_evaluate_compares_them(tmp_path: Path, model: DCPredClassifier, data: Classes) -> None:
    model.save(tmp_path / "m")
    good, wrong = (
        named_zarr(tmp_path / "d.zarr", data, NAMES),
        named_zarr(tmp_path / "w.zarr", data, NAMES[::-1]),
    )
    assert evaluate(tmp_path / "m", good, cost=False)["n_bad"] == 0
    with pytest.raises(
        DataError, match=r"w.zarr/X: its features are not those that the model was trained on"
    ):
        evaluate(tmp_path / "m", wrong)
    result = CliRunner().invoke(main, ["evaluate", str(tmp_path / "m"), str(wrong)])
    assert result.exit_code == 3
