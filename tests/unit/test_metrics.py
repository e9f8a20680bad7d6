"""What candidates are judged by, and the one test by which one replaces another."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import norm
from sklearn import metrics as sklearn_metrics

from dcpred.training.metrics import (
    ERROR,
    LOG_LOSS,
    SQUARED,
    compare,
    label_score,
    metric_of,
    standard_error,
)
from dcpred.training.policy import STANDARD
from dcpred.training.quality import interval_words
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.evaluation.named_scores import SCORERS, check_label_score


def wrong_rows(n: int, only_incumbent: int, only_candidate: int, both: int = 0) -> tuple[np.ndarray, ...]:
    """Losses of rows of which so many are wrong by one model only, or by both."""
    incumbent, candidate = np.zeros((2, n))
    incumbent[: only_incumbent + both] = 1.0
    candidate[only_incumbent : only_incumbent + both + only_candidate] = 1.0
    return incumbent, candidate


@pytest.mark.parametrize(("b", "c"), [(8, 2), (2, 8), (1, 0), (2, 0), (5, 5), (40, 25)])
def test_of_classes_the_test_is_that_of_mcnemar_with_continuity(b: int, c: int) -> None:
    """Rows that both have wrong, and the number of rows, say nothing."""
    for n, both in ((100, 0), (1_000, 90)):
        found = compare(*wrong_rows(n, b, c, both), np.ones(n), counted=True)
        assert found.gain == pytest.approx((b - c) / n)
        assert found.standard_error == pytest.approx(np.sqrt(b + c) / n)
        assert found.p == pytest.approx(norm.sf((b - c - 1) / np.sqrt(b + c)))


@pytest.mark.parametrize(("b", "c", "surely"), [(1, 0, False), (2, 0, False), (4, 0, True), (8, 5, False)])
def test_a_single_row_does_not_tell_two_models_apart(b: int, c: int, surely: bool) -> None:
    found = compare(*wrong_rows(500, b, c), np.ones(500), counted=True)
    assert (found.p <= STANDARD.level / 2) is surely


def test_of_numbers_the_test_is_a_paired_one() -> None:
    rng = np.random.default_rng(0)
    incumbent = rng.exponential(size=200)
    candidate = incumbent - rng.normal(0.02, 0.1, 200)
    found, difference = compare(incumbent, candidate, np.ones(200), counted=False), incumbent - candidate
    error = difference.std() / np.sqrt(200)
    assert found.gain == pytest.approx(difference.mean())
    assert found.standard_error == pytest.approx(error)
    assert found.p == pytest.approx(norm.sf(difference.mean() / error))
    assert error < 0.2 * incumbent.std() / np.sqrt(200), "what both find hard does not count"


@pytest.mark.parametrize("counted", [True, False])
def test_equal_models_are_no_reason_to_change(counted: bool) -> None:
    losses = wrong_rows(50, 10, 0)[0]
    found = compare(losses, losses, np.ones(50), counted=counted)
    assert (found.gain, found.standard_error, found.p) == (0.0, 0.0, 0.5)


@pytest.mark.parametrize("counted", [True, False])
def test_rows_that_one_has_no_loss_of_do_not_count(counted: bool) -> None:
    incumbent, candidate = wrong_rows(100, 20, 4)
    whole = compare(incumbent, candidate, np.ones(100), counted=counted)
    more = [np.append(losses, [1.0, np.nan, np.nan]) for losses in (incumbent, candidate)]
    more[1][-3:] = [np.nan, 1.0, np.nan]
    assert compare(*more, np.append(np.ones(100), [9.0, 9.0, 9.0]), counted=counted) == whole


@pytest.mark.parametrize("counted", [True, False])
def test_weights_of_rows_have_no_unit_and_count(counted: bool) -> None:
    incumbent, candidate = wrong_rows(100, 20, 8)
    equal = compare(incumbent, candidate, np.ones(100), counted=counted)
    scaled = compare(incumbent, candidate, np.full(100, 7.0), counted=counted)
    assert vars(scaled) == pytest.approx(vars(equal))
    heavy = np.where(candidate > incumbent, 5.0, 1.0)
    other = compare(incumbent, candidate, heavy, counted=counted)
    assert other.gain == pytest.approx((20 - 5 * 8) / heavy.sum())
    assert other.p > 0.5 > equal.p


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("n", [60, 2_000])
def test_chance_passes_the_test_as_often_as_the_level_says(counted: bool, n: int) -> None:
    """Two models that are equally good, each right by chance in other rows."""
    rng, passed, times = np.random.default_rng(n), 0, 2_000
    for _ in range(times):
        losses = (rng.random((2, n)) < 0.2).astype(float) if counted else rng.chisquare(1, (2, n))
        found = compare(*losses, np.ones(n), counted=counted)
        passed += found.gain > 0 and found.p <= STANDARD.level
    assert passed / times < STANDARD.level + 3 * np.sqrt(STANDARD.level / times)
    assert passed / times > 0.3 * STANDARD.level, "and not never"


def test_a_better_model_passes_the_test() -> None:
    rng = np.random.default_rng(0)
    wrong = [(rng.random(2_000) < share).astype(float) for share in (0.25, 0.2)]
    assert compare(*wrong, np.ones(2_000), counted=True).p < 0.01


def test_losses_of_rows() -> None:
    decision = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [np.nan, 1.0, 0.0]])
    assert ERROR.losses(decision, np.array([0.0, 1.0, 1.0]), np.ones(3), 3).tolist() == [0.0, 1.0, 1.0]
    two = np.array([[1.0], [-1.0], [-1.0]])
    assert ERROR.losses(two, np.array([1.0, 1.0, 0.0]), np.ones(3), 2).tolist() == [0.0, 1.0, 0.0]
    assert SQUARED.losses(two, np.array([3.0, -1.0, 0.0]), np.ones(3), 0).tolist() == [4.0, 0.0, 1.0]
    assert ERROR.counted
    assert not LOG_LOSS.counted
    assert not SQUARED.counted


@pytest.mark.parametrize("n_classes", [2, 4])
def test_log_loss_is_that_of_calibrated_probabilities(n_classes: int) -> None:
    """Scale and centre of decision values do not matter, their order does."""
    rng = np.random.default_rng(0)
    target = rng.integers(n_classes, size=2_000).astype(float)
    sure = np.eye(n_classes)[target.astype(int)] + 0.5 * rng.normal(size=(2_000, n_classes))
    sure = sure if n_classes > 2 else sure[:, 1:] - sure[:, :1]
    losses = LOG_LOSS.losses(sure, target, np.ones(2_000), n_classes)
    other = LOG_LOSS.losses(5.0 * sure + 0.3, target, np.ones(2_000), n_classes)
    vague = LOG_LOSS.losses(sure + rng.normal(size=sure.shape), target, np.ones(2_000), n_classes)
    none = LOG_LOSS.losses(np.zeros_like(sure), target, np.ones(2_000), n_classes)
    assert losses.min() > 0
    assert other.mean() == pytest.approx(losses.mean(), abs=5e-3)
    assert losses.mean() < vague.mean() < none.mean()
    assert none.mean() == pytest.approx(np.log(n_classes), abs=0.01)


def test_log_loss_of_rows_without_a_score_is_finite() -> None:
    decision = np.array([[1.0], [np.nan], [-1.0], [2.0]])
    assert np.isfinite(LOG_LOSS.losses(decision, np.array([1.0, 0.0, 0.0, 1.0]), np.ones(4), 2)).all()


# -- scorers of scikit-learn ---------------------------------------------------------------------------------


def rare_classes(n: int, seed: int = 0, n_classes: int = 2) -> tuple[np.ndarray, ...]:
    """Decision values (n, n_outputs), class numbers and weights."""
    rng = np.random.default_rng(seed)
    y = rng.choice(n_classes, n, p=[0.8, *[0.2 / (n_classes - 1)] * (n_classes - 1)])
    decision = np.eye(n_classes)[y] + 0.7 * rng.normal(size=(n, n_classes))
    decision = decision[:, 1:] - decision[:, :1] if n_classes == 2 else decision
    return decision, y.astype(float), rng.uniform(0.5, 2.0, n)


@pytest.mark.parametrize("name", ["balanced_accuracy", "roc_auc", "average_precision", "f1_macro"])
def test_the_score_of_a_metric_is_that_of_scikit_learn(name: str) -> None:
    decision, y, weight = rare_classes(500)
    metric = metric_of(name, "classification", 2)
    found = metric.score(float(np.average(metric.losses(decision, y, weight, 2), weights=weight)))
    by_rank = name in ("roc_auc", "average_precision")
    function = getattr(sklearn_metrics, name.replace("_macro", "") + "_score")
    given = decision[:, 0] if by_rank else (decision[:, 0] > 0).astype(int)
    more = {"average": "macro"} if name == "f1_macro" else {}
    assert found == pytest.approx(function(y, given, sample_weight=weight, **more))


@pytest.mark.parametrize("task", SCORERS)
def test_every_metric_is_best_for_the_better_model(task: str) -> None:
    rng = np.random.default_rng(0)
    for n_classes in (2, 3) if task == "classification" else (0,):
        if n_classes:
            better, y, weight = rare_classes(400, n_classes=n_classes)
            worse = better + rng.normal(size=better.shape)
        else:
            y, weight = rng.gamma(2.0, size=400), np.ones(400)
            better, worse = (np.maximum(y + s * rng.normal(size=400), 0.01)[:, None] for s in (0.1, 0.5))
        for plain in SCORERS[task]:
            matrix = {2: "=1", 3: "=0,1,1;1,0,2;1,2,0"}.get(n_classes, "")
            name = plain + (matrix if plain == "neg_mean_cost" else "")
            metric = metric_of(name, task, n_classes)
            losses = [metric.losses(one, y, weight, n_classes) for one in (worse, better)]
            found = compare(*losses, weight, counted=metric.counted)
            assert found.gain > 2 * found.standard_error, name


def test_pseudo_values_have_the_error_of_an_area() -> None:
    """Paired: the areas of two models of the same rows differ by less than each by itself."""
    metric, gains, errors = metric_of("roc_auc", "classification", 2), [], []
    for seed in range(15):
        decision, y, _ = rare_classes(500, seed)
        other = decision + 0.5 * np.random.default_rng(seed).normal(size=decision.shape)
        losses = [metric.losses(one, y, np.ones(500), 2) for one in (other, decision)]
        found = compare(*losses, np.ones(500), counted=metric.counted)
        gains.append(found.gain)
        errors.append(found.standard_error)
    assert np.mean(errors) == pytest.approx(np.std(gains), rel=0.4)


def test_a_scorer_sees_probabilities_and_labels() -> None:
    decision, y, weight = rare_classes(300)
    scorer = sklearn_metrics.make_scorer(
        sklearn_metrics.brier_score_loss, greater_is_better=False, response_method="predict_proba"
    )
    metric, named = (metric_of(one, "classification", 2) for one in (scorer, "neg_brier_score"))
    losses = [one.losses(decision, y, weight, 2) for one in (metric, named)]
    assert losses[0] == pytest.approx(losses[1])
    assert metric.name == "neg_brier_score_loss"


def rmse(y: np.ndarray, p: np.ndarray, sample_weight: np.ndarray) -> float:
    return float(np.sqrt(np.average((y - p) ** 2, weights=sample_weight)))


@pytest.mark.parametrize("less", [True, False])
def test_a_scorer_is_shown_as_scikit_learn_shows_it(less: bool) -> None:
    """Greater is better, and its standard error is its own, whatever the function is called."""
    y = np.random.default_rng(0).normal(size=400)
    scorer = sklearn_metrics.make_scorer(rmse, greater_is_better=not less)
    metric, ones = metric_of(scorer, "regression", 0), np.ones(400)
    losses = metric.losses(np.zeros((400, 1)), y, ones, 0)
    found = metric.score(float(losses.mean()))
    error = standard_error(losses, ones, metric, np.arange(400))
    assert found == pytest.approx(-rmse(y, 0 * y, ones) if less else rmse(y, 0 * y, ones))
    assert error == pytest.approx(np.sqrt(0.5 / 400), rel=0.4)
    words = interval_words({"metric": metric.name, metric.name: found, "standard_error": error})
    assert words.endswith(f"between {found - 2 * error:.4g} and {found + 2 * error:.4g}")


@pytest.mark.parametrize("name", ["roc_auc", "average_precision", "neg_brier_score"])
@pytest.mark.parametrize("rows_of_last", [0, 1])
def test_a_class_without_held_out_rows_has_no_part_in_a_score(name: str, rows_of_last: int) -> None:
    """Also where one of the groups that the jackknife leaves out holds its only row."""
    decision, y, weight = rare_classes(200, n_classes=3)
    y[y == 2] = 0.0
    y[:rows_of_last] = 2.0
    assert np.isfinite(metric_of(name, "classification", 3).losses(decision, y, weight, 3)).all()


def test_the_only_row_of_a_class_leaves_an_area_finite() -> None:
    decision, y = np.random.default_rng(0).normal(size=(100, 1)), (np.arange(100) == 3).astype(float)
    assert np.isfinite(metric_of("roc_auc", "classification", 2).losses(decision, y, np.ones(100), 2)).all()


def test_a_metric_without_a_value_is_refused() -> None:
    area = metric_of("roc_auc", "classification", 2)
    with pytest.raises(
        SettingsError, match=r"nan on 40 held-out rows.*\. Choose another one, for example acc"
    ):
        area.losses(np.zeros((40, 1)), np.zeros(40), np.ones(40), 2)
    plain = metric_of(sklearn_metrics.mean_squared_error, "regression", 0)
    with pytest.raises(SettingsError, match=r"Cannot compute the metric on held-out rows: .*make_scorer"):
        plain.losses(np.zeros((40, 1)), np.arange(40.0), np.ones(40), 0)


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"'auc' for classification \(did you mean 'roc_auc'\?\)\. Use one of accuracy, "
    ):
        metric_of("auc", "classification", 2)
    with pytest.raises(SettingsError, match=r"'roc_auc' for regression\. Use one of r2, "):
        metric_of("roc_auc", "regression", 0)
    for name in (
        "roc_auc=2",
        "neg_mean_pinball_loss=1",
        "neg_mean_cost",
        "neg_mean_cost=0,1;1",
        "neg_mean_cost=x",
    ):
        with pytest.raises(SettingsError, match="Cannot use metric"):
            metric_of(name, "regression" if "pinball" in name else "classification", 2)
    deviance = metric_of("neg_mean_poisson_deviance", "regression", 0)
    with pytest.raises(DataError, match=r"a target that is not 0 or more\. Choose another metric"):
        deviance.losses(np.ones((40, 1)), np.full(40, -1.0), np.ones(40), 0)
    with pytest.raises(SettingsError, match="costs of 3 classes, but the target has 2"):
        metric_of("neg_mean_cost=0,1,1;1,0,1;1,1,0", "classification", 2).losses(*rare_classes(40), 2)
    with pytest.raises(SettingsError, match="roc_auc needs probabilities, which not every system gives"):
        check_label_score("roc_auc", "classification")


VALUE_SCORES = {
    "neg_mean_absolute_error": sklearn_metrics.mean_absolute_error,
    "neg_mean_pinball_loss": sklearn_metrics.mean_pinball_loss,
    "neg_mean_pinball_loss=0.9": partial(sklearn_metrics.mean_pinball_loss, alpha=0.9),
    "neg_mean_poisson_deviance": sklearn_metrics.mean_poisson_deviance,
    "neg_mean_gamma_deviance": sklearn_metrics.mean_gamma_deviance,
}


@pytest.mark.parametrize("name", VALUE_SCORES)
def test_a_score_of_numbers_is_that_of_scikit_learn(name: str) -> None:
    rng = np.random.default_rng(0)
    y, weight = rng.gamma(2.0, size=300), rng.uniform(0.5, 2.0, 300)
    predicted = y * rng.uniform(0.5, 1.5, 300)
    metric, theirs = metric_of(name, "regression", 0), VALUE_SCORES[name]
    losses = metric.losses(predicted[:, None], y, weight, 0)
    assert metric.score(np.average(losses, weights=weight)) == pytest.approx(
        theirs(y, predicted, sample_weight=weight)
    )
    assert label_score(name, y, predicted) == pytest.approx(-theirs(y, predicted))
    predicted[:5] = -1.0
    assert np.isfinite(metric.losses(predicted[:, None], y, weight, 0)).all()


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "f1_macro", "matthews_corrcoef"])
def test_a_score_of_labels_is_that_of_scikit_learn(name: str) -> None:
    y, predicted = np.random.default_rng(0).integers(3, size=(2, 200))
    found = sklearn_metrics.get_scorer(name)._score_func
    more = {"average": "macro"} if name == "f1_macro" else {}
    assert label_score(name, y, predicted) == pytest.approx(found(y, predicted, **more))


def test_a_cost_is_that_of_the_cheapest_labels() -> None:
    decision, y, weight = rare_classes(600)
    metric = metric_of("neg_mean_cost=20", "classification", 2)
    losses = metric.losses(decision, y, weight, 2)
    assert set(losses) == {0.0, 1.0, 20.0}
    f = decision[:, 0]
    every = [20 * ((y == 1) & (f <= t)) + ((y == 0) & (f > t)) for t in np.linspace(-3, 3, 121)]
    assert np.average(losses, weights=weight) < 1.15 * min(np.average(one, weights=weight) for one in every)
    right = label_score("neg_mean_cost=20", y.astype(int), (f > 0).astype(int))
    assert right == -np.mean(every[60])
