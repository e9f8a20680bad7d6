"""The whole job on tables: import, train, import like the model, score and evaluate, by the commands; and
what is refused where rows are encoded otherwise.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr
from click.testing import CliRunner

from dcpred import import_data, load_model
from dcpred.cli import main
from dcpred.datasets.importing import find_schema
from dcpred.evaluation.evaluate import evaluate
from dcpred.refreshing.refresh import refresh
from dcpred.scoring.planning import plan_run
from dcpred.scoring.request import Request
from dcpred.scoring.score import score
from dcpred.training.fit import TrainingRequest, fit_model
from dcpred.training.train import train
from dcpred_compare.rows import draw_rows
from dcpred_tasks.artifacts.model_artifact import FORMAT, open_artifact
from dcpred_tasks.errors import DataError, ModelFormatError
from dcpred_tasks.model.one_hot import Coding
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.training.settings import make_settings
from support.pools import inline
from support.tables import table, write_csv

FRAME = table(900).fillna({"age": 40.0}).drop(columns="seen")
SETTINGS = {"n_leaves": 2, "landmarks": 8, "products": 0, "min_leaf_rows": 1}


def run(*arguments: Any, code: int = 0) -> str:
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output if code else done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set, and a model that was trained on it."""
    folder = tmp_path_factory.mktemp("tables")
    import_data(
        write_csv(FRAME[:600], folder / "known.csv"), folder / "known.zarr", target="label", ids=["id"]
    )
    trained(folder / "known.zarr", folder / "model")
    return folder


def trained(data: Path, model: Path, pool: Any = inline, **more: object) -> str:
    return train(data, model, settings=SETTINGS | more, client=pool).hash


def test_from_a_csv_to_scores_by_the_commands(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcpred.execution.pools.connect", lambda *_: inline())
    new = FRAME[600:].drop(columns="label").sample(frac=1, random_state=0)
    new.loc[new.index[:2], "colour"] = ["mauve", None]
    path = write_csv(new[["day", *[c for c in new if c != "day"]]], tmp_path / "new.csv")
    known, data = folder / "known.csv", tmp_path / "known.zarr"
    run("import", known, data, "--target", "label", "--id", "id")
    settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    run("train", data, tmp_path / "model", *settings)
    shown = run("import", path, tmp_path / "new.zarr", "--like", tmp_path / "model")
    assert "warning  unknown-categories: unknown or rare categories of colour in 1 row" in shown
    run("score", tmp_path / "model", tmp_path / "new.zarr", tmp_path / "scores")
    labels = zarr.open_group(tmp_path / "scores/scores.zarr", mode="r")["label"]
    names = np.array(labels.attrs["labels"])[labels[:]]
    ids = zarr.open_group(tmp_path / "new.zarr", mode="r")["id"][:]
    assert ids.tolist() == new["id"].tolist()
    frame = new.drop(columns="id")
    np.testing.assert_array_equal(names, load_model(tmp_path / "model").predict(frame))
    right = (names == FRAME["label"][new.index]).mean()
    run(
        "import",
        write_csv(FRAME[600:], tmp_path / "test.csv"),
        tmp_path / "test.zarr",
        "--like",
        tmp_path / "model",
    )
    told = json.loads(run("evaluate", tmp_path / "model", tmp_path / "test.zarr", "--no-cost", "--json"))
    assert told["accuracy"] == pytest.approx(right, abs=2.5 / 300)
    assert open_artifact(tmp_path / "model").hash == open_artifact(folder / "model").hash


def test_a_table_with_gaps_from_a_csv_to_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcpred.execution.pools.connect", lambda *_: inline())
    frame = table(600)
    frame.loc[::9, "amount"] = np.nan
    assert frame["age"].isna().any()
    data, model = tmp_path / "d.zarr", tmp_path / "m"
    shown = run("import", write_csv(frame, tmp_path / "d.csv"), data, "--target", "label", "--id", "id")
    assert "NaN is a missing value" in shown
    settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    told = json.loads(run("train", data, model, *settings, "--set", "missing=amount", "--json"))
    names = list(open_artifact(model).feature_names or ())
    assert told["gaps"]["known"]
    assert told["gaps"]["indicated"] == [names.index("amount")]
    assert "amount" in told["gaps"]["names"].values()
    coding = coding_of(model)
    assert coding is not None
    assert coding.features == [names.index("colour")]
    run("import", tmp_path / "d.csv", tmp_path / "new.zarr", "--like", model)
    run("score", model, tmp_path / "new.zarr", tmp_path / "scores")
    scores = zarr.open_group(tmp_path / "scores/scores.zarr", mode="r")
    assert (scores["status"][:] == 1).all()
    labels = np.array(scores["label"].attrs["labels"])[scores["label"][:]]
    np.testing.assert_array_equal(labels, load_model(model).predict(frame.drop(columns=["id", "label"])))
    told = json.loads(run("inspect", tmp_path / "scores", "--json"))["manifest"]
    top = told["drift"]["features"]["top"][0]
    assert "gap_shift" in top
    assert top["name"].removesuffix(" (target-encoded)") == names[top["feature"]]


def coding_of(model: Path) -> Coding | None:
    return open_artifact(model).model().scaling.coding


def test_categories_are_coded_unless_none_is(folder: Path, tmp_path: Path) -> None:
    names = list(open_artifact(folder / "model").feature_names or ())
    colour, old = names.index("colour"), names.index("old")
    coding = coding_of(folder / "model")
    assert coding is not None
    assert coding.features == [colour], "with a scaling that does not look at targets, no other feature is"
    assert open_artifact(folder / "model").body["settings"]["categorical"] == f"auto,{colour}"
    trained(folder / "known.zarr", tmp_path / "none", categorical="none")
    assert coding_of(tmp_path / "none") is None
    trained(folder / "known.zarr", tmp_path / "both", categorical="old")
    both = coding_of(tmp_path / "both")
    assert both is not None
    assert both.features == [colour, old]


def test_the_schema_is_in_the_model_and_shown(folder: Path) -> None:
    told = json.loads((folder / "model/model.json").read_text())
    assert told["format"] == FORMAT
    assert told["version"] == 7
    artifact = open_artifact(folder / "model")
    assert artifact.schema == find_schema(folder / "known.csv", target="label", ids=["id"])
    for place in ("model", "known.zarr"):
        shown = run("inspect", folder / place)
        assert "1 id, 2 numbers, 2 categories, 1 boolean, 1 date, 1 target" in shown
        assert "codes of 90 categories, target-encoded" in shown
        assert json.loads(run("inspect", folder / place, "--json"))["schema"] == artifact.schema.document()


def test_a_model_of_numbers_is_of_the_version_and_hash_that_it_was(tmp_path: Path) -> None:
    numbers = FRAME[["age", "amount", "label"]]
    import_data(numbers, tmp_path / "a.zarr", target="label")
    own = trained(tmp_path / "a.zarr", tmp_path / "a")
    group = zarr.open_group(tmp_path / "a.zarr", mode="r+")
    del group.attrs["dcpred_schema"]
    assert trained(tmp_path / "a.zarr", tmp_path / "b") == own
    told = json.loads((tmp_path / "a/model.json").read_text())
    assert (told["version"], "schema" in told["model"], "schema" in told["provenance"]) == (2, False, True)
    assert open_artifact(tmp_path / "b").schema is None
    report = import_data(numbers.drop(columns="label")[::-1], tmp_path / "new.zarr", like=tmp_path / "a")
    assert report.n_features == 2
    by_names = import_data(numbers[["amount", "age"]], tmp_path / "other.zarr", like=tmp_path / "b")
    assert by_names.schema == {
        "version": 1,
        "columns": [{"name": n, "kind": "number"} for n in ("age", "amount")],
    }


def test_systems_are_compared_on_columns_of_0_and_1(folder: Path) -> None:
    data = folder / "known.zarr"
    rows = draw_rows((f"{data}/X", f"{data}/y"), None, "classification", 300, 100, seed=0)
    X = zarr.open_group(data, mode="r")["X"]
    codes = len(np.unique(X[:, X.attrs["feature_names"].index("colour")]))
    assert rows.X.shape[1] == rows.X_test.shape[1] == X.shape[1] - 1 + codes - 1
    first = X.attrs["feature_names"].index("colour")
    assert set(np.unique(rows.X[:, first : first + codes - 1])) == {0.0, 1.0}


# -- Refused -------------------------------------------------------------------------------------------------


def test_rows_that_are_encoded_otherwise_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = FRAME[600:].assign(colour="red")
    import_data(write_csv(other, tmp_path / "o.csv"), tmp_path / "o.zarr", target="label", ids=["id"])
    words = r"Cannot score .*o\.zarr/X with this model: .* encoded differently .*\. Import .* --like .*model"
    x = f"{tmp_path}/o.zarr/X"
    calls = [
        lambda: plan_run(Request(folder / "model", x, tmp_path / "scores")),
        lambda: score(folder / "model", x, tmp_path / "scores"),
        lambda: evaluate(folder / "model", tmp_path / "o.zarr", cost=False),
        lambda: refresh(folder / "model", x, tmp_path / "root"),
    ]
    for call in calls:
        with pytest.raises(DataError, match=words):
            call()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.csv", "o.zarr"]
    said = run("score", folder / "model", tmp_path / "o.zarr", tmp_path / "scores", code=3)
    assert "(column 'colour' has other categories ('red'))" in said
    import_data(FRAME[["age", "amount"]], tmp_path / "fewer.zarr")
    said = run("score", folder / "model", tmp_path / "fewer.zarr", tmp_path / "scores", code=3)
    assert "(column 'amount' in place of 'colour')" in said
    assert said.count("\n") == 1


def test_raw_numbers_are_taken_as_they_are(folder: Path, tmp_path: Path) -> None:
    """A data set without a schema, and a model without one."""
    X = zarr.open_group(folder / "known.zarr", mode="r")["X"][:]
    group = zarr.create_group(tmp_path / "raw.zarr")
    group.create_array("X", data=X)
    group.create_array("y", data=np.arange(600) % 2)
    assert plan_run(Request(folder / "model", f"{tmp_path}/raw.zarr/X", tmp_path / "scores"))[0].n_rows == 600
    trained(tmp_path / "raw.zarr", tmp_path / "plain")
    assert (
        plan_run(Request(tmp_path / "plain", f"{folder}/known.zarr/X", tmp_path / "scores"))[0].n_rows == 600
    )
    zarr.create_array(tmp_path / "single.zarr", data=X)
    assert plan_run(Request(folder / "model", str(tmp_path / "single.zarr"), tmp_path / "s"))[0].n_rows == 600


def test_metadata_of_a_group_that_are_damaged_do_not_count_as_none(folder: Path, tmp_path: Path) -> None:
    import_data(FRAME[["age", "colour", "label"]], tmp_path / "a.zarr", target="label")
    (tmp_path / "a.zarr/zarr.json").write_text("{")
    with pytest.raises(DataError, match="cannot interpret its metadata"):
        trained(tmp_path / "a.zarr", tmp_path / "model")
    (tmp_path / "a.zarr/zarr.json").unlink()
    arrays = f"{tmp_path}/a.zarr/X", f"{tmp_path}/a.zarr/y"
    assert fit_model(TrainingRequest(*arrays, tmp_path / "model", make_settings(SETTINGS), inline)).hash


def test_a_schema_of_other_features_is_refused_before_training(folder: Path, tmp_path: Path) -> None:
    import_data(FRAME[["age", "colour", "label"]], tmp_path / "a.zarr", target="label")
    group = zarr.open_group(tmp_path / "a.zarr", mode="r+")
    group.attrs["dcpred_schema"] = find_schema(folder / "known.csv", target="label").document()
    with pytest.raises(DataError, match=r"has 2 features, but its schema has 9. Import the data"):
        trained(tmp_path / "a.zarr", tmp_path / "model")
    group.attrs["dcpred_schema"] = {"version": 99, "columns": []}
    with pytest.raises(DataError, match=r"the schema of .*a\.zarr: its version is 99"):
        trained(tmp_path / "a.zarr", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def rewritten(folder: Path, tmp_path: Path, **body: object) -> Path:
    """A copy of the model whose schema is another, with a hash that matches."""
    copied = tmp_path / "copied"
    copied.mkdir()
    (copied / "arrays.zarr").symlink_to(folder / "model/arrays.zarr")
    told = json.loads((folder / "model/model.json").read_text())
    told["model"] |= body
    told["hash"] = digest_json(told["model"])
    (copied / "model.json").write_text(json.dumps(told))
    return copied


@pytest.mark.parametrize(
    "schema", [{}, [], "x", {"version": 1, "columns": [{"name": "a", "kind": "number"}]}]
)
def test_a_model_whose_schema_is_none_is_refused(folder: Path, tmp_path: Path, schema: object) -> None:
    copied = rewritten(folder, tmp_path, schema=schema)
    with pytest.raises((ModelFormatError, DataError)) as caught:
        load_model(copied)
    assert "\n" not in str(caught.value)
    with pytest.raises((ModelFormatError, DataError)):
        plan_run(Request(copied, f"{folder}/known.zarr/X", tmp_path / "scores"))


@pytest.mark.parametrize(
    "schema", [3, {"version": 1}, {"version": 1, "columns": [{"name": "a", "kind": "date"}]}]
)
def test_a_schema_that_no_hash_covers_counts_only_where_it_is_one(tmp_path: Path, schema: object) -> None:
    import_data(pd.DataFrame({"a": np.arange(60.0), "y": np.arange(60) % 2}), tmp_path / "a.zarr", target="y")
    trained(tmp_path / "a.zarr", tmp_path / "model")
    path = tmp_path / "model/model.json"
    told = json.loads(path.read_text())
    told["provenance"]["schema"] = schema
    path.write_text(json.dumps(told))
    assert open_artifact(tmp_path / "model").schema is None
    assert load_model(tmp_path / "model").predict(np.ones((2, 1))).shape == (2,)
