"""A linear term: the simplest of those that a model may have beside its kernels; and what each must hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray
from dcpred_tasks.model import terms
from dcpred_tasks.model.leaf_arrays import Line
from dcpred_tasks.model.term import ExportedTerm, Operations, RowValues, Term
from dcpred_tasks.training import term_fits
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey

RIDGE = 1e-6


@dataclass(frozen=True, eq=False)
class Linear(ExportedTerm):
    """weightᵀ (x − centre), where a missing value is the centre; weights are those of a ridge regression."""

    weight: Annotated[FloatArray, Line(ACC_DTYPE, ("feature", "output"))]
    centre: Annotated[FloatArray, Line(ACC_DTYPE, ("feature",))]

    name = "linear"
    since = 11

    def _moved(self, X: NDArray[Any]) -> FloatArray:
        return np.nan_to_num(X.astype(ACC_DTYPE) - self.centre, posinf=np.inf, neginf=-np.inf)

    def values(self, X: NDArray[Any]) -> FloatArray:
        return sum(
            np.multiply.outer(column, own) for column, own in zip(self._moved(X).T, self.weight, strict=True)
        )

    @property
    def engine(self) -> RowValues:
        # Other last bits than those of the definition, so that tests see which one was called.
        return lambda X: self._moved(X) @ self.weight

    def sizes(self, X: NDArray[Any]) -> FloatArray:
        return (np.abs(self._moved(X)) @ np.abs(self.weight)).max(axis=1)

    @property
    def cost(self) -> float:
        return 0.1 * self.weight.size

    def contributions(self, X: NDArray[Any], background: NDArray[Any], output: int) -> FloatArray:
        return (self._moved(X) - self._moved(background).mean(axis=0)) * self.weight[:, output]

    def onnx_values(self, graph: Operations, X: str) -> str:
        moved = graph.op("Sub", X, self.centre)
        return graph.op("MatMul", graph.op("Where", graph.op("IsNaN", moved), 0.0, moved), self.weight)

    @property
    def c_source(self) -> str:
        return """
    for (int j = 0; j < N_ENCODED; j++) {
        const double moved = x[j] == x[j] ? x[j] - linear_centre[j] : 0;
        for (int k = 0; k < N_OUTPUTS; k++) out[k] += moved * linear_weight[j * N_OUTPUTS + k];
    }"""

    def check(self, n_features: int, n_outputs: int) -> None:
        if self.weight.shape != (n_features, n_outputs) or self.centre.shape != (n_features,):
            raise ValueError(f"a linear term has other shapes than {n_features} features")
        if not (np.isfinite(self.weight).all() and np.isfinite(self.centre).all()):
            raise ValueError("a linear term holds a value that is not finite")


def fit_linear(
    X: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    settings: Settings,
    like: Sequence[Term] = (),
) -> Linear:
    """By ridge regression to values, or to ±1 of classes."""
    if settings.task == "regression":
        y = target.astype(ACC_DTYPE)[:, None]
    else:
        y = 2.0 * (target[:, None] == np.arange(len(survey.classes))) - 1.0
        y = y if y.shape[1] > 2 else y[:, 1:]
    centre = np.nanmean(X.astype(ACC_DTYPE), axis=0)
    Z = np.nan_to_num(X - centre)
    own = weight / weight.sum()
    gram = (Z * own[:, None]).T @ Z + RIDGE * np.eye(Z.shape[1])
    return Linear(np.linalg.solve(gram, Z.T @ (own[:, None] * y)), centre)


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let models have a linear term, and trainings fit one."""
    monkeypatch.setattr(terms, "TERMS", (Linear,))
    monkeypatch.setattr(term_fits, "FITS", (term_fits.TermFit(lambda settings: True, fit_linear),))


def random_linear(seed: int, n_features: int, n_outputs: int, scale: float = 1.0) -> Linear:
    rng = np.random.default_rng(seed)
    return Linear(scale * rng.normal(size=(n_features, n_outputs)), rng.normal(size=n_features))


def check_term(term: Term, X: NDArray[Any], n_outputs: int) -> None:
    """What every term holds, at encoded rows of which some are finite."""
    finite = X[np.isfinite(X).all(axis=1)]
    values = term.values(finite)
    assert values.shape == (len(finite), n_outputs)
    assert values.dtype == ACC_DTYPE
    assert term.cost > 0
    sizes = term.sizes(finite)
    assert (np.abs(values).max(axis=1) <= sizes * (1 + 1e-9)).all()
    with np.errstate(all="ignore"):
        rows = slice(1, None, 2)
        np.testing.assert_array_equal(term.values(X)[rows], term.values(X[rows]))
        assert (np.abs(term.engine(finite) - values) <= 1e-9 * (1 + sizes[:, None])).all()
    term.check(X.shape[1], n_outputs)
    again = type(term).from_arrays({"other": np.empty(0), **term.arrays()})
    np.testing.assert_array_equal(again.values(finite), values)
    for name, array in term.arrays().items():
        own = name.removeprefix(f"{term.name}_")
        for wrong in (array[:-1], np.where(np.arange(array.size).reshape(array.shape) == 0, np.nan, array)):
            try:
                replace(term, **{own: wrong}).check(X.shape[1], n_outputs)  # type: ignore[type-var]
            except ValueError:
                continue
            raise AssertionError(f"{name} is not checked")
    for output in range(n_outputs):
        parts = term.contributions(finite, finite[:5], output)
        assert parts.shape == finite.shape
        expected = values[:, output] - term.values(finite[:5])[:, output].mean()
        np.testing.assert_allclose(parts.sum(axis=1), expected, atol=1e-9 * (1 + sizes.max()))
