"""What is kept of training rows to compare scored rows with, and remarks on training rows."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import IntArray
from dcpred_tasks.model.bins import SAMPLE, fit_bins
from dcpred_tasks.model.compact_model import Model, score_rows
from dcpred_tasks.process import one_thread
from dcpred_tasks.schema.column import Codes, TargetCodes
from dcpred_tasks.schema.schema import Schema
from dcpred_tasks.training.sampling import thinned
from dcpred_tasks.training.survey import Survey

SCORED = 2**11  # rows whose scores are kept in bins


def with_bins(
    model: Model, X: NDArray[np.generic], number: IntArray, survey: Survey, schema: Schema | None, seed: int
) -> Model:
    """The model with the bins of its features and scores.

    X, number  sampled raw rows, and the numbers of these rows
    """
    columns = () if schema is None else schema.spans
    codes = {span.start: c.gap + 1 for c, span in columns if isinstance(c, Codes | TargetCodes)}
    with one_thread():
        decision, _ = score_rows(model, X[thinned(number, SCORED, seed)])
    n = model.n_features
    rows = X[thinned(number, SAMPLE, seed)]
    return replace(model, bins=fit_bins(rows, survey.minimum[:n], survey.maximum[:n], decision, codes))
