"""Labels by a threshold or by costs that are given when rows are scored or evaluated, through every door."""

import json
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from click.testing import CliRunner, Result
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV

from dcpred import DCPredClassifier, load_model
from dcpred.cli import main
from dcpred.verification.verify import verify
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.model.label_rule import LabelRule, given_costs, matrix_costs, threshold_costs
from support.data import make_blobs, make_group
from support.setting_words import classifier_with

SMALL: dict[str, Any] = {"n_leaves": 2, "landmarks": 4, "products": 0, "refine_steps": 10, "random_state": 0}
COSTS = np.array([[0, 1, 9], [1, 0, 9], [1, 1, 0.0]])
Doors = tuple[Path, DCPredClassifier, np.ndarray, np.ndarray]


@pytest.fixture(scope="module", params=[2, 3])
def doors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Doors:
    """A folder with a model and labelled rows, the same model as an estimator, and the rows."""
    folder, k = tmp_path_factory.mktemp("rule"), request.param
    rng = np.random.default_rng(0)
    blobs = make_blobs(300, n_features=3, n_classes=k, seed=0)
    X = blobs.X + rng.normal(0, 2.0, blobs.X.shape)
    model = classifier_with(**SMALL).fit(X, blobs.y)
    model.save(folder / "model")
    make_group(folder / "new.zarr", X, blobs.y)
    (folder / "costs.csv").write_text("\n".join(",".join(map(str, line)) for line in COSTS) + "\n")
    return folder, model, X, blobs.y


def shell(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


def test_every_door_gives_the_same_labels(doors: Doors, tmp_path: Path) -> None:
    folder, model, X, y = doors
    two = len(model.classes_) == 2
    given: dict[str, Any] = {"threshold": 0.2} if two else {"costs": COSTS}
    p = model.predict_proba(X)
    right = model.classes_[(p[:, 1] > 0.2).astype(int) if two else (p @ COSTS).argmin(axis=1)]
    assert (right != model.predict(X)).mean() > 0.03
    np.testing.assert_array_equal(model.predict(X, **given), right)
    np.testing.assert_array_equal(load_model(folder / "model").predict(X, **given), right)
    np.testing.assert_array_equal(model.predict(da.from_array(X, chunks=(70, 3)), **given), right)
    frame = pd.DataFrame(X, columns=list("abc"))
    lazy = classifier_with(**SMALL).fit(frame, y).predict(dd.from_pandas(frame, npartitions=2), **given)
    np.testing.assert_array_equal(lazy, right)
    option = ("--threshold", 0.2) if two else ("--costs", folder / "costs.csv")
    out, command = tmp_path / "out", ("score", folder / "model", folder / "new.zarr", tmp_path / "out")
    assert shell(*command, *option).exit_code == 0
    group = zarr.open_group(out / "scores.zarr", mode="r")
    np.testing.assert_array_equal(group["label"][...], right)
    np.testing.assert_array_equal(group["decision"][...], model.decision_function(X))
    assert not verify(out, "full").findings
    r = json.loads(
        shell("evaluate", folder / "model", folder / "new.zarr", "--json", "--no-cost", *option).stdout
    )
    assert r["accuracy"] == pytest.approx((right == y).mean())
    matrix = np.array(r["costs"]).reshape(len(p[0]), -1)
    assert r["cost_per_row"] == pytest.approx(matrix[y, np.searchsorted(model.classes_, right)].mean())
    assert r.get("threshold") == (pytest.approx(0.2) if two else None)
    if not two:
        np.testing.assert_array_equal(matrix, COSTS)


def test_a_run_keeps_its_threshold(doors: Doors, tmp_path: Path) -> None:
    folder, model, *_ = doors
    one, other = ("--threshold", "cost=4"), ("--threshold", "0.3")
    if len(model.classes_) > 2:
        (tmp_path / "other.csv").write_text("0,1,1\n1,0,1\n\n2,2,0\n")
        one, other = ("--costs", str(folder / "costs.csv")), ("--costs", str(tmp_path / "other.csv"))
    command = ("score", folder / "model", folder / "new.zarr", tmp_path / "out")
    assert shell(*command, *one).exit_code == 0
    assert "nothing was written" in shell(*command, *one).stderr
    for more in (other, ()):
        for repair in ((), ("--repair",)):
            result = shell(*command, *more, *repair)
            assert result.exit_code != 0
            assert "it differs in the threshold or costs" in result.stderr
    root = ("refresh", folder / "model", folder / "new.zarr", tmp_path / "root")
    assert shell(*root, *one).exit_code == 0
    assert shell(*root).exit_code == 0
    latest = zarr.open_group(tmp_path / "root/latest/scores.zarr", mode="r")
    stored = zarr.open_group(tmp_path / "out/scores.zarr", mode="r")
    np.testing.assert_array_equal(latest["label"][...], stored["label"][...])
    result = shell(*root, *other)
    assert result.exit_code != 0
    assert "runs with another threshold or other costs" in result.stderr


def test_verification_finds_a_label_of_another_threshold(doors: Doors, tmp_path: Path) -> None:
    _, model, X, _ = doors
    costs = threshold_costs(0.2) if len(model.classes_) == 2 else matrix_costs(COSTS.tolist())
    rule = LabelRule(model.model_.uncertainty.calibration, np.array(costs).reshape(len(model.classes_), -1))
    p, number = model.predict_proba(X), rule(model._values(X))
    assert rule.may_be(number, p, p).all()
    wrong = (number + 1) % p.shape[1]
    gain = (p @ rule.costs)[np.arange(len(p)), wrong] - (p @ rule.costs)[np.arange(len(p)), number]
    np.testing.assert_array_equal(rule.may_be(wrong, p, p), gain <= 0)
    assert rule.may_be(wrong, p - 1.01 * gain[:, None], p + 1.01 * gain[:, None]).all()


@pytest.mark.parametrize("given", [0, 1, "f1", "cost=0", "cost=-1", float("nan"), True])
def test_what_is_no_threshold_is_refused(given: Any) -> None:
    with pytest.raises(SettingsError, match="it must be a probability between 0 and 1, or cost=50"):
        threshold_costs(given)


@pytest.mark.parametrize("lines", ["0,1", "0,1\n1", "0,x\n1,0", "0,-1\n1,0", "0,nan\n1,0", ""])
def test_what_is_no_cost_matrix_is_refused(lines: str, doors: Doors, tmp_path: Path) -> None:
    (tmp_path / "costs.csv").write_text(lines)
    options = ("--costs", tmp_path / "costs.csv")
    result = shell("score", doors[0] / "model", doors[0] / "new.zarr", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert "Give a line for each class" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([[0, 0], [0, 0]], "no label costs more"),
        ([[1, 1], [2, 2]], "no label costs more"),
        ([[0, 1], [1, 5]], "line 2 of 2 has a wrong label that costs less"),
        ([[0, 1, 2], [1, 3, 2], [1, 1, 0]], "line 2 of 3 has a wrong label that costs less"),
    ],
)
def test_costs_that_reward_mistakes_are_refused(lines: list[list[float]], words: str) -> None:
    with pytest.raises(SettingsError, match=rf"Cannot use costs: {words}\. Charge more for mistakes"):
        given_costs(None, lines)
    assert given_costs(None, [[0, 1], [0, 0]]) == (0, 1, 0, 0), "one class may count for nothing"


def test_they_are_for_calibrated_probabilities_of_as_many_classes(doors: Doors, tmp_path: Path) -> None:
    folder, model, X, y = doors
    with pytest.raises(SettingsError, match="threshold together with costs"):
        model.predict(X, threshold=0.2, costs=COSTS)
    given: dict[str, Any] = {"costs": COSTS} if len(model.classes_) == 2 else {"threshold": 0.2}
    with pytest.raises(DataError, match="the model has"):
        model.predict(X, **given)
    with pytest.raises(DataError, match="Cannot compute labels by a threshold or costs"):
        classifier_with(calibrate=False, **SMALL).fit(X, y).predict(X, **given)
    result = shell(
        *("score", folder / "model", folder / "new.zarr", tmp_path / "out"),
        *("--threshold", 0.2, "--outputs", "decision"),
    )
    assert result.exit_code != 0
    assert "without the output label, which alone takes them" in result.stderr


def test_thresholds_of_scikit_learn_work_on_top() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = np.where(rng.random(600) < 1 / (1 + np.exp(3.0 - 2 * X[:, 0])), "yes", "no")
    inner = classifier_with(**SMALL)
    fixed = FixedThresholdClassifier(inner, threshold=0.2, response_method="predict_proba").fit(X, y)
    np.testing.assert_array_equal(fixed.predict(X), fixed.estimator_.predict(X, threshold=0.2))
    tuned = TunedThresholdClassifierCV(inner, scoring="balanced_accuracy", cv=3).fit(X, y)
    assert 0.02 < tuned.best_threshold_ < 0.4
    plain = balanced_accuracy_score(y, tuned.estimator_.predict(X))
    assert balanced_accuracy_score(y, tuned.predict(X)) > plain


@pytest.mark.parametrize("kind", [str, Path])
def test_costs_come_from_a_file_as_from_a_matrix(kind: type, tmp_path: Path) -> None:
    """The name of a file is no matrix of letters."""
    file = tmp_path / "costs.csv"
    file.write_text("0,1\n\n9,0\n")
    assert given_costs(None, kind(file)) == given_costs(None, [[0, 1], [9, 0]]) == (0, 1, 9, 0)
    assert given_costs(None, pd.DataFrame([[0, 1], [9, 0]])) == (0, 1, 9, 0)
    file.write_text("0,one\n9,0\n")
    with pytest.raises(
        SettingsError, match=r"Cannot use .*costs\.csv: line 1 of 2 is 0\.0, one\. Give a line"
    ):
        given_costs(None, kind(file))
    with pytest.raises(
        SettingsError, match=r"Cannot read costs from absent\.csv: No such file .*Pass a matrix"
    ):
        given_costs(None, kind("absent.csv"))
