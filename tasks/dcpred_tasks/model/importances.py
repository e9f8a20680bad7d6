"""The composition of distances between rows, feature by feature."""

import numpy as np

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.model.compact_model import Model


def importances(model: Model) -> FloatArray:
    """The share of each raw feature in the expected squared distance between two training rows, as kernels
    see it: variance × factor², with factors of leaves weighted by their rows, and the columns of a one-hot
    encoded feature combined. float64 (n_features,), sum 1; all 0 where no feature varies.

    Raises AttributeError where the model lacks the variances.
    """
    sd = _deviations(model)
    if not np.isfinite(sd).all():
        raise AttributeError(
            "Cannot compute feature importances: the model was trained with calibrate=false or by an earlier"
            " version of dcpred, and lacks the frequencies of categories. Train it again."
        )
    return _shares(model, sd)


def known_importances(model: Model) -> FloatArray:
    """The importances of features whose variances the model has; 0 for others."""
    return _shares(model, np.nan_to_num(_deviations(model)))


def _shares(model: Model, sd: FloatArray) -> FloatArray:
    spread = np.abs(model.factors) * sd
    largest = float(spread.max(initial=0.0))
    if largest == 0:
        return np.zeros(model.n_features)
    weights = _weights(model) if len(spread) > 1 else np.ones(1)
    of_columns = np.average((spread / largest) ** 2, axis=0, weights=weights)
    out = np.bincount(model.scaling.source, of_columns, model.n_features)
    return np.asarray(out / out.sum())


def _weights(model: Model) -> FloatArray:
    """Of leaves, by their rows."""
    return np.asarray(np.maximum(model.leaf_rows, 1e-9))


def _deviations(model: Model) -> FloatArray:
    """Standard deviations of the columns before scaling, float64 (n_columns,); NaN where the model lacks
    them.
    """
    coding, reference, sureness = model.scaling.coding, model.reference, model.sureness
    if reference is None:
        return np.full(model.n_columns, np.nan)
    if coding is None:
        return reference.sd
    of_features = reference.sd if coding.amounts is None else coding.amounts.deviations(reference.sd)
    of_columns = of_features[coding.source]
    if sureness is None:
        return np.where(np.isnan(coding.code), of_columns, np.nan)
    means = sureness.novelty.point / sureness.novelty.factor
    factor = np.where(model.scaling.factor == 0, np.inf, model.scaling.factor)
    mean = model.scaling.shift + np.average(means, axis=0, weights=_weights(model)) / factor
    share = np.clip(mean, 0.0, 1.0)
    return np.where(np.isnan(coding.code), of_columns, np.sqrt(share * (1.0 - share)))
