"""What models on disk hold of how sure they are: whole, checked, and not there where nobody asked for it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcpred_tasks.artifacts import model_artifact
from dcpred_tasks.artifacts.model_artifact import open_artifact, read_model, write_model
from dcpred_tasks.errors import ModelFormatError
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.scoring.self_test import SelfTest
from dcpred_tasks.training.settings import make_settings, settings_dict
from support.models import random_model
from support.sureness import sure

PLAIN = {
    "two classes": random_model(1),
    "three classes": random_model(2, n_outputs=3),
    "numbers": random_model(3, task="regression"),
    "coded": random_model(4, d=6, scaling="coded"),
}
SURE = {name: sure(model) for name, model in PLAIN.items()}
SURE["class weights"] = sure(random_model(1), class_weight=np.array([1.0, 9.0]))
PARTS = ("novelty", "calibration", "intervals", "scale")


@pytest.fixture(autouse=True)
def untested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models without a self-test, of which nothing is asked here."""

    def none(model: Model) -> SelfTest:
        return SelfTest(*(np.zeros((0, n)) for n in (model.n_features, model.n_outputs)), np.zeros(0))

    monkeypatch.setattr(model_artifact, "make_self_test", none)


def values(model: Model) -> dict[str, np.ndarray]:
    assert model.uncertainty is not None
    parts = {name: getattr(model.uncertainty, name) for name in PARTS}
    found = {f"{name}.{k}": v for name, p in parts.items() if p is not None for k, v in vars(p).items()}
    return {name: array for name, array in found.items() if array.size}


@pytest.mark.parametrize("name", SURE)
def test_it_comes_back_bit_by_bit(tmp_path: Path, name: str) -> None:
    write_model(tmp_path / "m", SURE[name], {}, {})
    back = values(read_model(tmp_path / "m"))
    assert back.keys() == values(SURE[name]).keys()
    for key, right in values(SURE[name]).items():
        assert back[key].dtype == right.dtype
        np.testing.assert_array_equal(back[key], right)


@pytest.mark.parametrize("name", ["two classes", "numbers"])
def test_without_it_a_model_is_what_earlier_versions_wrote(tmp_path: Path, name: str) -> None:
    """Hash, version and arrays."""
    settings = settings_dict(make_settings({"calibrate": False}))
    earlier = {k: v for k, v in settings.items() if k != "calibrate"}
    one = write_model(tmp_path / "one", PLAIN[name], settings, {})
    assert write_model(tmp_path / "other", PLAIN[name], earlier, {}) == one
    body = open_artifact(tmp_path / "one").body
    assert "calibrate" not in body["settings"]
    assert not [k for k in body["arrays"] if k.startswith(("novelty", "calibration", "interval"))]
    assert read_model(tmp_path / "one").uncertainty is None


@pytest.mark.parametrize("name", ["three classes", "numbers"])
def test_the_hash_covers_each_of_its_arrays(tmp_path: Path, name: str) -> None:
    model = SURE[name]
    hashes = {write_model(tmp_path / "m", model, {}, {})}
    for i, key in enumerate(values(model)):
        part, field = key.split(".")
        holder = getattr(model.uncertainty, part)
        changed = getattr(holder, field).copy()
        changed.flat[-1] = np.nextafter(changed.flat[-1], changed.dtype.type(0))
        assert model.uncertainty is not None
        sureness = replace(model.uncertainty, **{part: replace(holder, **{field: changed})})
        hashes.add(write_model(tmp_path / f"{i}", replace(model, uncertainty=sureness), {}, {}))
    assert len(hashes) == 1 + len(values(model))


def _last(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array.flat[-1] = value
        return array

    return change


HARM: dict[str, tuple[str, str, Callable[[np.ndarray], Any]]] = {
    "knots that descend": ("calibration", "knot", lambda a: a[::-1]),
    "two knots at one place": ("calibration", "knot", lambda a: np.zeros_like(a)),
    "values that descend": ("calibration", "value", lambda a: a[::-1]),
    "a value that is none": ("calibration", "value", _last(np.nan)),
    "no knot": ("calibration", "knot", lambda a: a[:0]),
    "shares beyond 1": ("calibration", "prior", lambda a: a * 2),
    "a share below 0": ("calibration", "prior", lambda a: np.append(a[:-1] + a[-1], -a[-1])[: len(a)]),
    "classes that there are not": ("calibration", "prior", lambda a: np.append(a, 0.0)),
    "a share of more than all": ("calibration", "share", _last(1.5)),
    "no width": ("intervals", "spread", _last(0.0)),
    "a leaf too few": ("intervals", "spread", lambda a: a[:-1]),
    "quantiles that descend": ("intervals", "quantile", lambda a: a[::-1]),
    "a quantile below 0": ("intervals", "quantile", lambda a: a - a.max() - 1),
    "an infinite quantile": ("intervals", "quantile", _last(np.inf)),
    "alphas that ascend": ("intervals", "alpha", lambda a: a[::-1]),
    "an alpha of 0": ("intervals", "alpha", _last(0.0)),
    "shares that descend": ("intervals", "share", lambda a: a[::-1]),
    "a share of all": ("intervals", "share", _last(1.0)),
    "signed quantiles that descend": ("intervals", "signed", lambda a: a[::-1]),
    "a signed quantile too few": ("intervals", "signed", lambda a: a[:-1]),
    "weights of other leaves": ("scale", "at", lambda a: np.append(a[:-1] - (a[:-1] > 0), a[-1])),
    "a weight that is none": ("scale", "beta", _last(np.nan)),
    "a level too few": ("scale", "intercept", lambda a: a[:-1]),
    "ranges that are exchanged": ("scale", "bounds", lambda a: a[:, ::-1]),
    "an endless range": ("scale", "bounds", _last(1e3)),
    "a point that is none": ("novelty", "point", _last(np.nan)),
    "a factor of 0": ("novelty", "factor", _last(0.0)),
    "an edge too few": ("novelty", "edge", lambda a: a[:, :-1]),
    "edges that ascend": ("novelty", "edge", lambda a: a[:, ::-1]),
}


@pytest.mark.parametrize("name", HARM)
def test_what_cannot_be_so_is_refused(tmp_path: Path, name: str) -> None:
    """By whoever made hash and digests fit."""
    part, field, change = HARM[name]
    model = SURE["numbers" if part in ("intervals", "scale") else "three classes"]
    assert model.uncertainty is not None
    holder = getattr(model.uncertainty, part)
    harmed = np.ascontiguousarray(change(getattr(holder, field)))
    sureness = replace(model.uncertainty, **{part: replace(holder, **{field: harmed})})
    write_model(tmp_path / "m", replace(model, uncertainty=sureness), {}, {})
    with pytest.raises(ModelFormatError, match=r"is damaged or was altered"):
        read_model(tmp_path / "m")


@pytest.mark.parametrize("name", ["two classes", "numbers"])
def test_a_part_that_is_missing_is_told(tmp_path: Path, name: str) -> None:
    model = SURE[name]
    assert model.uncertainty is not None
    part = "calibration" if name == "two classes" else "intervals"
    write_model(
        tmp_path / "m", replace(model, uncertainty=replace(model.uncertainty, **{part: None})), {}, {}
    )
    with pytest.raises(ModelFormatError, match=r"is damaged or was altered"):
        read_model(tmp_path / "m")
