"""What a message advises for input that is no table works when it is followed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr

import dcpred
from dcpred import DCPredClassifier, Settings
from dcpred_tasks.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore:X has feature names")
N = 3
EXPRESSION = re.compile(
    r"(?:[Pp]ass|column|feature) ((?:pandas|numpy|list|X\b|\[).*?)(?=, for |\.$|\. |\.\s*$|$)"
)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.normal(size=80), "b": np.arange(80) % 2, "c": np.tile(["u", "v"], 40)})


@pytest.fixture(scope="module")
def of_frame(frame: pd.DataFrame) -> DCPredClassifier:
    """A model of a frame with text."""
    return _model().fit(frame[["a", "c"]], frame["a"] > 0)


@pytest.fixture(scope="module")
def of_array(frame: pd.DataFrame) -> DCPredClassifier:
    return _model().fit(frame[["a", "b"]].to_numpy(), frame["a"] > 0)


def _model() -> DCPredClassifier:
    return DCPredClassifier(n_leaves=1, landmarks=2, settings=Settings(refine=False))


ROW: dict[str, Callable[[pd.DataFrame], Any]] = {
    "dict": lambda f: f.iloc[0].to_dict(),
    "dict of NumPy's scalars": lambda f: {name: np.asarray(f[name])[0] for name in f},
    "dict of lists": lambda f: f[:1].to_dict("list"),
    "Series": lambda f: f.iloc[0],
    "tuple": lambda f: tuple(f.iloc[0]),
    "list": lambda f: f.iloc[0].tolist(),
    "row of polars": lambda f: pl.from_pandas(f).row(0),
    "named row of polars": lambda f: pl.from_pandas(f).row(0, named=True),
    "struct of polars": lambda f: pl.from_pandas(f[:1]).to_struct("s"),
    "scalar of Arrow": lambda f: pa.array(f[:1].to_dict("records"))[0],
    "struct of Arrow": lambda f: pa.array(f[:1].to_dict("records")),
    "chunks of Arrow": lambda f: pa.chunked_array([pa.array(f[:1].to_dict("records"))]),
    "record of NumPy": lambda f: f[:1].to_records(index=False)[0],
}
ROWS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "list of dicts": lambda f: f[:N].to_dict("records"),
    "tuple of dicts": lambda f: tuple(f[:N].to_dict("records")),
    "array of dicts": lambda f: np.array(f[:N].to_dict("records"), object),
    "dict of lists": lambda f: f[:N].to_dict("list"),
    "dict of Series": lambda f: {name: f[name][:N] for name in f},
    "dict of a scalar and lists": lambda f: {**f[:N].to_dict("list"), f.columns[1]: f.iloc[0, 1]},
    "nested lists": lambda f: [list(row) for row in f[:N].itertuples(index=False)],
    "tuples": lambda f: tuple(f[:N].itertuples(index=False, name=None)),
    "iterator": lambda f: f[:N].itertuples(index=False, name=None),
    "list of Series": lambda f: [f.iloc[number] for number in range(N)],
    "array of objects": lambda f: f[:N].to_numpy(object),
    "records of NumPy": lambda f: f[:N].to_records(index=False),
    "Dataset of xarray": lambda f: f[:N].to_xarray(),
    "pylist of Arrow": lambda f: pa.Table.from_pandas(f[:N], preserve_index=False).to_pylist(),
}
FLAT: dict[str, Callable[[list[float]], Any]] = {
    "array": np.array,
    "Series of polars": pl.Series,
    "array of Arrow": pa.array,
    "DataArray": lambda row: xr.DataArray(row),
}


def followed(model: Any, X: Any, steps: int = 2) -> Any:
    """Labels of X, or of what messages advise in its place."""
    try:
        return model.predict(X)
    except DataError as error:
        advised = EXPRESSION.findall(str(error)) if steps else []
        if not advised:
            raise
    given = {"X": X, "model": model, "pandas": pd, "numpy": np}
    results = []
    for expression in advised:
        try:
            results.append(followed(model, eval(expression, dict(given)), steps - 1))
        except ValueError as error:
            failure = error
    assert results, failure
    return results[0]


@pytest.mark.parametrize("name", list(ROW))
def test_advice_for_a_row(of_frame: Any, of_array: Any, frame: pd.DataFrame, name: str) -> None:
    for model, columns in ((of_frame, ["a", "c"]), (of_array, ["a", "b"])):
        expected = model.predict(frame[columns][:1] if model is of_frame else frame[columns][:1].to_numpy())
        assert followed(model, ROW[name](frame[columns])).tolist() == expected.tolist()


@pytest.mark.parametrize("name", list(ROWS))
def test_advice_for_rows(of_frame: Any, of_array: Any, frame: pd.DataFrame, name: str) -> None:
    for model, columns in ((of_frame, ["a", "c"]), (of_array, ["a", "b"])):
        some = frame[columns][:N].copy()
        if name == "dict of a scalar and lists":
            some.iloc[:, 1] = some.iloc[0, 1]
        expected = model.predict(some if model is of_frame else some.to_numpy())
        assert followed(model, ROWS[name](frame[columns])).tolist() == expected.tolist()


@pytest.mark.parametrize("name", list(FLAT))
def test_advice_for_numbers_in_one_dimension(of_array: Any, name: str) -> None:
    row = [0.5, 1.0]
    assert followed(of_array, FLAT[name](row)).tolist() == of_array.predict([row]).tolist()


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ({"a": [1.0, 2.0], "c": ["u"]}, r"different lengths \('a' has 2 values, 'c' has 1\)"),
        ({}, "it is an empty dict"),
        ([{}], "its dicts are empty"),
        (
            [{"a": 1, "c": "u"}, {"a": "x", "c": "v"}],
            "column 'a' of X: its dicts hold values of several kinds",
        ),
        (["a", "c"], "names of columns"),
        ([0.5], "A row has 1 values, and the model 2 columns|does not hold|frame with the columns"),
        (3.0, "a value of type float does not hold rows"),
        (None, "a value of type NoneType does not hold rows"),
        ({0.5}, "a value of type set does not hold rows"),
        (dict, "a value of type type does not hold rows"),
    ],
)
def test_what_cannot_be_rows_gets_a_reason(of_frame: Any, of_array: Any, X: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        of_frame.predict(X)
    with pytest.raises(DataError):
        of_array.predict(X)


def test_records_are_rows_wherever_frames_are(tmp_path: Path, frame: pd.DataFrame, of_frame: Any) -> None:
    """To fit, to predict, and to import."""
    records = frame[["a", "c"]].to_dict("records")
    again = _model().fit(records, frame["a"] > 0)
    assert again.feature_names_in_.tolist() == ["a", "c"]
    assert again.predict(records).tolist() == again.predict(frame[["a", "c"]]).tolist()
    of_frame.save(tmp_path / "model")
    served = dcpred.load_model(tmp_path / "model")
    assert served.predict(records).tolist() == of_frame.predict(frame[["a", "c"]]).tolist()
    assert dcpred.import_data(records, tmp_path / "data.zarr").n_samples == len(records)
    with pytest.raises(DataError, match=r"it is a dict of one row. Pass pandas.DataFrame\(\[X\]\)"):
        served.predict(records[0])
