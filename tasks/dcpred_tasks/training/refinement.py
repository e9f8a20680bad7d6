"""Refined landmarks: beginning with those of k-means and a least-squares fit, landmarks, the γ of each, and
output weights move downhill together, in machine code.

A leaf of thousands of rows is better served by stochastic steps (Adam) on the same function. DECISIONS.md has
figures for ARD scales, stochastic steps, and alternatives that did not help.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dcpred_tasks.dtypes import ACC_DTYPE, MODEL_DTYPE, FloatArray, RealArray, SingleArray
from dcpred_tasks.engine.compiler import compiled
from dcpred_tasks.model.basis import LeafBasis
from dcpred_tasks.training.objective import Expansion, Goal, Objective
from dcpred_tasks.training.settings import Settings

DONE = 1e-6  # least relative gain of a step that another one follows
RATE = 0.1  # length of a stochastic step of landmarks, in widths of the kernel
# The same of output weights, in their mean magnitude; of intercepts; of log γ; of the log of factors.
OTHER_RATES = (0.3, 0.03, 0.06, 0.03)
BATCH = 128  # rows of a stochastic step
MEAN_DECAY, SQUARE_DECAY, TINY = 0.9, 0.99, 1e-12  # β₁, β₂ and ε of Adam


def check() -> Any:
    """Load the module that refines in machine code, and compile it if necessary. Raises ResourceError where
    machine code is not available.
    """
    return compiled(machine_code, "refine landmarks", "or set refine=false, which trains without it")


def machine_code() -> Any:
    """The module that refines, and searches nearest rows, in machine code."""
    from dcpred_tasks.training import compiled_refinement

    return compiled_refinement


def refine(
    X: SingleArray,
    basis: LeafBasis,
    beta: RealArray,
    intercept: RealArray,
    goal: Goal,
    settings: Settings,
    seed: int = 0,
    machine: Expansion | None = None,
    known: Any = None,
) -> tuple[LeafBasis, RealArray, RealArray]:
    """The basis, β (m + p, k) and intercepts (k,) after at most refine_steps steps of L-BFGS, or after
    refine_epochs passes of stochastic steps if set; unchanged where no step helps. Raises ResourceError
    without machine code.

    X        float32 (n, n_features), scaled
    machine  the local SVM that landmarks and β stay near
    known    the `arguments` of compiled_start.Start for the same rows, targets and basis, or None
    """
    ridge, own_factors = settings.refine_ridge, settings.leaf_scaling
    compiled = check()
    objective = Objective(X, basis, beta, intercept, goal, ridge, own_factors, machine)
    if settings.refine_epochs:
        lowest = stochastic(compiled, objective, settings.refine_epochs, [settings.seed, seed])
    else:
        lowest = compiled.minimise(objective, settings.refine_steps, DONE, known)
    U, beta, intercept, gamma, factor = objective.parts(lowest)
    factor = factor.astype(MODEL_DTYPE)
    moved = replace(
        basis,
        landmarks=(U * factor if settings.leaf_scaling else U).astype(MODEL_DTYPE),
        gamma=gamma.astype(MODEL_DTYPE),
        factor=factor,
    )
    return moved, beta.astype(ACC_DTYPE), intercept.astype(ACC_DTYPE)


def stochastic(compiled: Any, objective: Objective, epochs: int, seed: Sequence[int]) -> FloatArray:
    """θ after so many passes over the rows in random order, by Adam (Kingma and Ba, 2015), whose steps fall
    to 0 in the second half. Returns the start where that is no worse, because single steps are not checked.
    """
    rng = np.random.default_rng(seed)
    n, d = objective.X.shape
    width = 1.0 / np.sqrt(float(objective.gamma.mean()) * d)  # width of the kernel, in each feature
    rates = np.repeat([RATE * width, *OTHER_RATES], objective.sizes)
    n_batches = max(n // BATCH, 1)
    orders = (rng.permutation(n) for _ in range(epochs))
    theta = compiled.stochastic(objective, rates, n_batches, orders, epochs * n_batches)
    # NaN compares as not lower, too.
    lower = compiled.value(objective, theta) < compiled.value(objective, objective.origin)
    return theta if lower else objective.origin
