"""The probability from which on a row gets the label of the second class."""

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.metrics import balanced_accuracy_score, f1_score, precision_score, recall_score

from dcpred import DCPredClassifier, Settings, load_model
from dcpred.cli import main
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.model.label_rule import chosen_threshold, threshold_of
from dcpred_tasks.training.settings import make_settings
from support.data import make_group
from support.pools import inline
from support.searches import few_candidates

ONE_LEAF = {"n_leaves": 1, "landmarks": 16, "loss": "logistic", "random_state": 0}


def rare(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two features and a class of about 10 %."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (rng.random(n) < 1 / (1 + np.exp(3.5 - 2 * X[:, 0] - X[:, 1]))).astype(int)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def stated(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = np.round(rng.beta(1, 5, n), 2)  # many rows of one probability
    return p, (rng.random(n) < p).astype(int)


@pytest.mark.parametrize(("given", "score"), [("f1", f1_score), ("balanced", balanced_accuracy_score)])
def test_the_best_threshold_is_found(given: str, score: object) -> None:
    p, y = stated(400)
    t = chosen_threshold(given, p, y, np.ones(400))
    every = [score(y, p > other) for other in np.unique(p)[:-1]]  # type: ignore[operator]
    assert score(y, p > t) == max(every)  # type: ignore[operator]


@pytest.mark.parametrize(("bound", "kept", "other"), [("precision", precision_score, recall_score)])
def test_a_bound_is_kept_with_the_most_of_the_other(bound: str, kept: object, other: object) -> None:
    p, y = stated(2_000)
    t = chosen_threshold(f"{bound}>=0.4", p, y, np.ones(2_000))
    assert precision_score(y, p > t) >= 0.4
    fits = [u for u in np.unique(p)[:-1] if precision_score(y, p > u) >= 0.4]
    assert recall_score(y, p > t) == max(recall_score(y, p > u) for u in fits)
    t = chosen_threshold("recall>=0.8", p, y, np.ones(2_000))
    assert recall_score(y, p > t) >= 0.8


def test_weights_of_rows_count() -> None:
    p, y = stated(300)
    weight = np.where(y == 1, 3.0, 1.0)
    several = np.repeat(np.arange(300), weight.astype(int))
    alone = chosen_threshold("f1", p[several], y[several], np.ones(len(several)))
    assert chosen_threshold("f1", p, y, weight) == alone


def test_a_cost_is_a_probability() -> None:
    none = np.empty(0)
    assert chosen_threshold("cost=50", none, none.astype(int), none) == pytest.approx(1 / 51)
    assert chosen_threshold("0.2", none, none.astype(int), none) == 0.2
    assert chosen_threshold("f1", none, none.astype(int), none) == 0.5, "no row was held out"
    p, y = np.array([0.1, 0.9]), np.array([0, 0])
    assert chosen_threshold("f1", p, y, np.ones(2)) == 0.5


@pytest.mark.parametrize("given", ["0", "1", "1.5", "f2", "precision>0.9", "recall>=2", "cost=0", "cost=-1"])
def test_what_is_no_threshold_is_refused(given: str) -> None:
    with pytest.raises(SettingsError, match="it must be a probability between 0 and 1, none, f1, balanced"):
        make_settings({"threshold": given})


def test_it_is_for_calibrated_probabilities_of_two_classes() -> None:
    with pytest.raises(SettingsError, match="calibrate is false"):
        make_settings({"threshold": "f1", "calibrate": False})
    with pytest.raises(SettingsError, match="only classification uses it"):
        make_settings({"threshold": "f1", "task": "regression"})
    X, _ = rare(300)
    with pytest.raises(DataError, match="the target has 3 classes, and a threshold needs two"):
        DCPredClassifier(threshold="f1", **ONE_LEAF).fit(X, np.arange(300) % 3)


@pytest.mark.parametrize("given", [0.1, "f1", "cost=9"])
def test_labels_follow_the_threshold_and_probabilities_stay(given: float | str, tmp_path: Path) -> None:
    X, y = rare(1_500)
    new, true = rare(2_000, 1)
    plain = DCPredClassifier(**ONE_LEAF).fit(X, y)
    model = DCPredClassifier(threshold=given, **ONE_LEAF).fit(X, y)
    p, labels = model.predict_proba(new)[:, 1], model.predict(new)
    calibration = model.model_.uncertainty.calibration
    t = calibration.weight[0] / calibration.weight.sum()
    assert t == pytest.approx(0.1) if given != "f1" else 0.1 < t < 0.5
    # Between probabilities that are as good as equal, rounding decides.
    assert (labels == (p > t))[np.abs(p - t) > 1e-3].all()
    assert p.mean() == pytest.approx(plain.predict_proba(new)[:, 1].mean(), rel=0.1)
    assert recall_score(true, labels) > recall_score(true, plain.predict(new))
    if given == "f1":
        assert f1_score(true, labels) > f1_score(true, plain.predict(new))
    model.save(tmp_path / "m")
    served = load_model(tmp_path / "m")
    assert (served.predict(new) == labels).all()
    assert (served.predict_proba(new)[:, 1] == p).all()
    assert model.threshold_ == served.threshold_ == t
    assert plain.threshold_ == 0.5
    assert re.search(rf"^threshold +{t}$", run("inspect", str(tmp_path / "m")), re.MULTILINE)


def test_train_and_evaluate_print_the_threshold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the model, or of costs; of other models there is none."""
    monkeypatch.setattr("dcpred.execution.pools.connect", lambda *_: inline())
    X, y = rare(300)
    data = str(make_group(tmp_path / "d.zarr", X, y))
    given = ["--set", "n_leaves=1", "--set", "landmarks=4", "--set", "threshold=f1"]
    words = run("train", data, str(tmp_path / "m"), *given)
    t = load_model(tmp_path / "m").threshold_
    assert re.search(rf"^threshold +{t:.4g}$", words, re.MULTILINE)
    for option, found in (([], t), (["--threshold", "0.25"], 0.25), (["--threshold", "cost=3"], 0.25)):
        words = run("evaluate", str(tmp_path / "m"), data, "--no-cost", *option)
        assert re.search(
            rf"^threshold +{found:.6g}  \(minimum probability of class 1 for its label", words, re.MULTILINE
        )


def test_models_without_a_threshold_have_no_such_attribute() -> None:
    X, y = rare(300)
    three = DCPredClassifier(**ONE_LEAF).fit(X, np.arange(300) % 3)
    for model in (
        DCPredClassifier(),
        three,
        DCPredClassifier(**ONE_LEAF, settings=Settings(calibrate=False)).fit(X, y),
    ):
        assert not hasattr(model, "threshold_")


def test_costs_that_no_probability_divides_have_no_threshold() -> None:
    model = DCPredClassifier(**ONE_LEAF).fit(*rare(300)).model_
    assert threshold_of(model, (0.0, 1.0, 3.0, 0.0)) == 0.25
    assert threshold_of(model, (1.0, 2.0, 5.0, 2.0)) == 0.25, "of what each mistake costs beside the label"
    assert threshold_of(model, (2.0, 1.0, 1.0, 0.0)) is None


def test_a_search_leaves_it_alone() -> None:
    X, y = rare(200)
    with few_candidates():
        model = DCPredClassifier(threshold=0.1, random_state=0).fit(X, y)
    assert model.tuned_["settings"]["threshold"] == "0.1"
    calibration = model.model_.uncertainty.calibration
    assert calibration.weight[0] / calibration.weight.sum() == pytest.approx(0.1)
