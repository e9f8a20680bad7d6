"""Machines and bases of other systems: the contract, and what their own papers say of them."""

import numpy as np
import pytest
from sklearn.kernel_approximation import RBFSampler
from sklearn.svm import SVC

from dcpred_tasks.errors import SettingsError
from dcpred_tasks.model.kernels import Kernel
from dcpred_tasks.model.machine import BASES, HEADER_BYTES, MACHINES, packed, unpacked
from dcpred_tasks.training.settings import Settings, make_settings, settings_dict
from support.machines import check_drawn_basis, check_machine, fitted, kernel_error, rows_of, share_explained

EVERY = [
    (name, task, kernel)
    for name, one in (BASES | MACHINES).items()
    for task in one.tasks
    for kernel in one.kernels[:2] or ("rbf",)
]


@pytest.mark.parametrize(("name", "task", "kernel"), EVERY)
def test_every_machine_keeps_the_contract(name: str, task: str, kernel: str) -> None:
    check_machine(name, task, kernel)


@pytest.mark.parametrize("name", BASES | MACHINES)
def test_every_machine_tells_several_classes_apart(name: str) -> None:
    kernel = ((BASES | MACHINES)[name].kernels or ("rbf",))[0]
    check_machine(name, "classification", kernel, n_classes=3)


@pytest.mark.parametrize("name", BASES)
def test_every_basis_keeps_the_contract(name: str) -> None:
    for kernel in BASES[name].kernels:
        for size in (1, 7, 64):
            check_drawn_basis(name, Kernel(kernel, 0.3), size)


# -- each by itself ------------------------------------------------------------------------------------------


def test_the_exact_machine_is_that_of_scikit_learn() -> None:
    machine, rows = fitted("exact", "classification", "rbf", C=3.0)
    svc = SVC(C=3.0, gamma=0.3, tol=1e-6).fit(rows.X, rows.target)
    np.testing.assert_allclose(machine.decision(rows.X)[:, 0], svc.decision_function(rows.X), atol=5e-3)


def test_fourier_features_are_as_near_to_the_kernel_as_those_of_scikit_learn() -> None:
    X, gamma = rows_of("regression", n=300).X, 0.3
    K = Kernel("rbf", gamma)(X, X)
    for size in (64, 1024):
        ours = np.mean([kernel_error("fourier", Kernel("rbf", gamma), size, X, seed) for seed in range(8)])
        others = []
        for seed in range(8):
            Z = RBFSampler(gamma=gamma, n_components=size, random_state=seed).fit_transform(X)
            others.append(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))
        assert ours == pytest.approx(np.mean(others), rel=0.15)


# -- settings and storage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"size": 3}, "size=3: machine is compact and basis landmarks"),
        ({"basis": "fourier", "machine": "exact"}, "only compact has a basis"),
        ({"basis": "fourier", "kernel": "polynomial"}, "basis=fourier with kernel polynomial"),
        ({"machine": "exact", "landmarks": 3}, "only compact models with landmarks use landmarks"),
        ({"machine": "nothing"}, "machine='nothing': it is unknown"),
    ],
)
def test_settings_that_do_not_go_together(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        make_settings(values)


def test_models_without_other_machines_have_the_settings_that_they_had() -> None:
    assert not {"machine", "basis", "size"} & set(settings_dict(Settings()))
    assert settings_dict(make_settings({"machine": "exact"}))["machine"] == "exact"


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
