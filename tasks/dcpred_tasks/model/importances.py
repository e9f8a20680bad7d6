"""What distances between rows are made of, feature by feature."""

import numpy as np

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.model.compact_model import Model


def importances(model: Model) -> FloatArray:
    """The share that each raw feature has in the expected squared distance between two training rows, as
    kernels take it: variance × factor², with factors of leaves weighed by their rows, and the columns of a
    coded feature put together. float64 (n_features,), sum 1; all 0 where no feature varies.

    Raises AttributeError where the model does not tell the variances.
    """
    spread = np.abs(model.factors) * _deviations(model)
    largest = float(spread.max(initial=0.0))
    if largest == 0:
        return np.zeros(model.n_features)
    rows = model.leaf_rows if len(spread) > 1 else np.ones(1)
    of_columns = np.average((spread / largest) ** 2, axis=0, weights=np.maximum(rows, 1e-9))
    out = np.bincount(model.scaling.source, of_columns, model.n_features)
    return np.asarray(out / out.sum())


def _deviations(model: Model) -> FloatArray:
    """Standard deviations of the columns before they are scaled, float64 (n_columns,)."""
    coding, reference, sureness = model.scaling.coding, model.reference, model.sureness
    if reference is None or (coding is not None and sureness is None):
        raise AttributeError(
            "feature importances were asked for, but the model was trained with calibrate=false or by an"
            " earlier version of dcpred, and does not tell how often codes occur; train it again"
        )
    if coding is None or sureness is None:
        return reference.sd
    means = sureness.novelty.point / sureness.novelty.factor
    factor = np.where(model.scaling.factor == 0, np.inf, model.scaling.factor)
    mean = model.scaling.shift + np.average(means, axis=0, weights=model.leaf_rows) / factor
    share = np.clip(mean, 0.0, 1.0)
    return np.where(np.isnan(coding.code), reference.sd[coding.source], np.sqrt(share * (1.0 - share)))
