"""Random models that know how sure they are."""

from dataclasses import replace

import numpy as np

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.uncertainty import LEVELS, SHARES, Calibration, Intervals, Novelty, Scale, Uncertainty
from dcpred_tasks.training.calibration import NO_FACTORS
from dcpred_tasks.training.held_out import ALPHAS, nearness_of
from support.models import random_rows


def sure(model: Model, seed: int = 0, class_weight: FloatArray = NO_FACTORS) -> Model:
    """The model with a random calibration, or random intervals, and with leaves whose rows lie around random
    points near its own.
    """
    return replace(model, uncertainty=random_sureness(model, seed, class_weight))


def random_sureness(model: Model, seed: int, class_weight: FloatArray = NO_FACTORS) -> Uncertainty:
    rng = np.random.default_rng([seed, 7])
    novelty = _novelty(model, rng)
    if model.task == "regression":
        spread = 10.0 ** rng.uniform(-1, 1, model.n_leaves)
        quantile, signed = np.sort(rng.exponential(size=len(ALPHAS))), np.sort(rng.normal(size=len(SHARES)))
        bounds = np.sort(rng.normal(size=(model.n_leaves, 2)), axis=1)
        beta, intercept = (
            rng.normal(size=model.beta.shape).astype(np.float32),
            rng.normal(size=model.intercept.shape),
        )
        return Uncertainty(
            novelty,
            intervals=Intervals(spread, ALPHAS, quantile, SHARES, signed),
            scale=None if seed % 2 else Scale(model.beta_at, beta, intercept, bounds),
        )
    knot = np.sort(rng.normal(size=int(rng.integers(2, 9))) * 2)
    prior = rng.dirichlet(np.ones(len(model.classes)))
    value = np.cumsum(rng.exponential(size=len(knot))) - rng.exponential() * 3
    return Uncertainty(novelty, Calibration(knot, value, prior, rng.uniform(0, 0.1, 1), class_weight))


def _novelty(model: Model, rng: np.random.Generator) -> Novelty:
    """Distances of rows of the model, taken as those of each leaf."""
    X = model.scaling(random_rows(model, 4 * model.n_leaves, 1))
    point = X[rng.permutation(len(X))[: model.n_leaves]]
    factor = (2.0 ** rng.uniform(-2, 0, point.shape)).astype(np.float32)
    r = np.sort(rng.uniform(0, 6, (model.n_leaves, len(LEVELS))), axis=1)
    return Novelty((point * factor).astype(np.float32), factor, nearness_of(r).astype(np.float32))
