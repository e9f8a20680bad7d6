"""The self-test of a model: every sound scorer passes, a scorer that is wrong does not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcpred_tasks.artifacts.model_artifact import open_artifact, write_model
from dcpred_tasks.errors import ModelFormatError
from dcpred_tasks.model.compact_model import Model, score_rows
from dcpred_tasks.model.kernels import KERNELS
from dcpred_tasks.scoring import scorer
from dcpred_tasks.scoring.self_test import ROWS, check_self_test, make_self_test
from dcpred_tasks.task_bodies.score_block import open_model
from support.models import SCALINGS, constant_leaves, random_model


@pytest.mark.parametrize(("number", "scaling"), list(enumerate(SCALINGS)))
def test_the_engine_and_the_definition_pass(number: int, scaling: str) -> None:
    for seed, (task, n_outputs) in enumerate(
        [("classification", 1), ("classification", 3), ("regression", 1), ("classification", 2)]
    ):
        kernel = KERNELS[(number + seed) % len(KERNELS)]
        model = random_model(seed, kernel, d=5, task=task, n_outputs=n_outputs, scaling=scaling, depth=seed)
        test = make_self_test(model)
        assert 0 < len(test.rows) <= ROWS
        assert np.isnan(test.rows).any() == model.scaling.knows_gaps
        assert not np.isinf(test.rows).any()
        assert np.isfinite(test.decision).all()
        check_self_test(model, test, "here")
        check_self_test(model, test, "here", plain=True)


@pytest.fixture
def model() -> Model:
    return random_model(3, d=5, n_outputs=3, sizes=(7,))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("wrong", ["value", "nan", "status", "one row"])
def test_another_result_is_refused(
    model: Model, monkeypatch: pytest.MonkeyPatch, wrong: str, plain: bool
) -> None:
    def otherwise(model: Model, X: Any, **more: Any) -> Any:
        decision, status = score_rows(model, X, **more)
        if wrong == "value":
            decision = decision * np.float32(1.001)
        elif wrong == "nan":
            decision[:] = np.nan
        elif wrong == "status":
            status[0] = 4
        else:
            decision[2, 1] += 0.01
        return decision, status

    test = make_self_test(model)
    assert len(test.rows) == ROWS
    monkeypatch.setattr(
        "dcpred_tasks.model.compact_model.score_rows" if plain else "dcpred_tasks.scoring.scorer.score_rows",
        otherwise,
    )
    with pytest.raises(
        ModelFormatError, match=r"model at /m: for .* of the 16 rows of its self-test .* Compare"
    ) as caught:
        check_self_test(model, test, "/m", plain=plain)
    assert ("DCPRED_NO_COMPILER" in str(caught.value)) is not plain


def test_a_model_that_is_taken_otherwise_is_refused(model: Model) -> None:
    test = make_self_test(model)
    changed = replace(model, beta=np.asarray(model.beta) * np.float32(1.01))
    with pytest.raises(ModelFormatError, match="self-test"):
        check_self_test(changed, test, "/m")


def test_rows_lie_in_many_leaves() -> None:
    centres = np.random.default_rng(0).normal(size=(40, 3))
    decision = make_self_test(constant_leaves(centres)).decision
    assert len(np.unique(decision)) == ROWS


def test_a_row_on_a_border_is_no_test() -> None:
    """Two leaves of different values whose centres are one: rounding decides."""
    centres = np.array([[1.0, 0.0], [1.0, 2.0**-23], [-5.0, 0.0]])
    near = replace(constant_leaves(centres), intercept=np.array([[0.0], [100.0], [1.0]]))
    test = make_self_test(near)
    check_self_test(near, test, "here")
    assert len(test.rows) >= 1


def test_models_without_any(model: Model) -> None:
    check_self_test(model, None, "here")
    overflowing = replace(model, intercept=np.full_like(model.intercept, 1e300))
    test = make_self_test(overflowing)  # no row has a finite score
    assert test.rows.shape == (0, 5)
    check_self_test(overflowing, test, "here")
    empty = constant_leaves(np.zeros((1, 2)))
    check_self_test(empty, make_self_test(empty), "here")


def test_each_process_checks_when_it_opens_a_model(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_hash = write_model(tmp_path / "m", model, {}, {})
    assert open_artifact(tmp_path / "m").self_test() is not None
    open_model(str(tmp_path / "m"), model_hash)
    open_model.cache_clear()
    real = scorer.score_rows
    monkeypatch.setattr(
        scorer, "score_rows", lambda m, X: (real(m, X)[0] + np.float32(0.1), np.ones(len(X), np.uint8))
    )
    with pytest.raises(ModelFormatError, match="computes other decision values"):
        open_model(str(tmp_path / "m"), model_hash)
    open_model.cache_clear()


def test_a_model_kept_with_the_tolerance_of_double_precision_is_taken() -> None:
    """Models of polynomial kernels were, before the engine computed them in single precision."""
    model = random_model(4, "polynomial", d=5, sizes=(40,))
    test = make_self_test(model)
    check_self_test(model, replace(test, tolerance=1e-12 * test.tolerance), "here")
    with pytest.raises(ModelFormatError):
        check_self_test(model, replace(test, decision=1.001 * test.decision + 1e-3), "here")
