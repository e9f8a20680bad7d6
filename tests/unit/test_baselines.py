"""Leaf models: the contract of all of them, how they are found and stored, and the exact one."""

import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.svm import SVC

from dcpred_compare.baselines import LEAF_MODELS
from dcpred_compare.baselines.leaf_model_type import leaf_model_types
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.leaf_model import read_leaf_model
from dcpred_tasks.model.packed_arrays import HEADER_BYTES, packed, unpacked
from dcpred_tasks.training.settings import Settings, in_effect, make_settings, settings_dict
from support.leaf_models import (
    BASES,
    EVERY,
    check_drawn_basis,
    check_leaf_model,
    fitted,
    kernels_of,
    share_explained,
    tasks_of,
)

CASES = [(name, task, kernel) for name in EVERY for task in tasks_of(name) for kernel in kernels_of(name)[:2]]


@pytest.mark.parametrize(("name", "task", "kernel"), CASES)
def test_every_leaf_model_keeps_the_contract(name: str, task: str, kernel: str) -> None:
    check_leaf_model(name, task, kernel)


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", EVERY)
def test_every_leaf_model_separates_several_classes(name: str) -> None:
    check_leaf_model(name, "classification", kernels_of(name)[0], n_classes=3)


@pytest.mark.parametrize("name", BASES)
def test_every_basis_keeps_the_contract(name: str) -> None:
    for kernel in kernels_of(name):
        for size in (1, 7, 64):
            check_drawn_basis(name, Kernel(kernel, 0.3), size)


# -- each by itself ------------------------------------------------------------------------------------------


def test_the_exact_model_is_that_of_scikit_learn() -> None:
    machine, rows = fitted("exact", "classification", "rbf", C=3.0)
    svc = SVC(C=3.0, gamma=0.3, tol=1e-6).fit(rows.X, rows.target)
    np.testing.assert_allclose(machine.predict(rows.X)[:, 0], svc.decision_function(rows.X), atol=5e-3)


# -- how they are found --------------------------------------------------------------------------------------


def test_baselines_are_found_by_their_entry_point() -> None:
    assert leaf_model_types() == LEAF_MODELS
    assert all(name == kind.name for name, kind in LEAF_MODELS.items())
    for kind in LEAF_MODELS.values():
        assert kind.meaning.endswith(".")
        assert bool(kind.counted) == (kind.sizes != (0,))
        assert bool(kind.tolerated) == (kind.tolerances != (0.0,))


def test_a_leaf_model_that_no_package_registers_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"no leaf model is named 'nothing'; install the package .*dcpred.leaf_models"
    ):
        read_leaf_model("nothing", packed({}), (1, 1))


def test_the_core_imports_no_baseline() -> None:
    """Neither to train nor to score compact and exact models."""
    code = (
        "import sys, numpy as np; from dcpred import DCPredClassifier, Settings; X = np.eye(40, 3);"
        " y = np.arange(40) % 2; exact = Settings(leaf_model='exact');"
        " DCPredClassifier(n_leaves=1, settings=exact).fit(X, y).predict(X);"
        " DCPredClassifier(n_leaves=1).fit(X, y).predict(X);"
        " sys.exit(any('dcpred_compare' in name for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ, check=True)


# -- settings and storage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"leaf_model": "exact", "landmarks": 3}, "only compact models with landmarks use landmarks"),
        ({"leaf_model": "nothing"}, "leaf_model='nothing': it is unknown"),
    ],
)
def test_settings_that_do_not_go_together(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        make_settings(values)


def test_settings_of_earlier_versions_are_read() -> None:
    """Those that trained baselines are left out."""
    assert "leaf_model" not in settings_dict(Settings())
    assert settings_dict(make_settings({"leaf_model": "exact"}))["leaf_model"] == "exact"
    stored = {"machine": "adapt_svm", "basis": "landmarks", "size": 16, "tolerance": 0.5, "C": 3.0}
    assert make_settings(in_effect(stored, "classification")) == make_settings({"C": 3.0})
    assert in_effect({"leaf_model": "exact"}, "classification") == {"leaf_model": "exact"}


def test_packed_arrays_are_what_they_were() -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.empty((0, 4), np.int64)}
    found = unpacked(packed(arrays))
    assert list(found) == ["a", "b"]
    for name, value in arrays.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].shape == value.shape
    data = packed(arrays)
    for wrong in (data[:-1], data[:5], np.concatenate([data, data[:1]]), np.zeros(0, np.uint8), data[::-1]):
        with pytest.raises(ValueError, match=r"packed arrays|Expecting|buffer|codec"):
            unpacked(wrong)


def test_packed_arrays_with_a_deeply_nested_header_are_refused() -> None:
    header = b"[" * 500_000
    data = np.frombuffer(len(header).to_bytes(HEADER_BYTES, "little") + header, np.uint8)
    with pytest.raises(ValueError, match="nested too deep"):
        unpacked(data)


def test_more_functions_explain_more() -> None:
    shares = [share_explained(*fitted("fourier", "regression", "rbf", size=size)) for size in (2, 300)]
    assert shares[0] < shares[1]
