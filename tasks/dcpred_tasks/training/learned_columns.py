"""The columns that features become and the factors of these, learned together: whether features of long tails
are on a logarithmic scale is told by how well neighbours do with the factors that are learned of either.

The loss on held-out rows, as a share of that without such a scale, in three draws (2026-11-25), was 0.83 to
0.86 on house_16H, where models lose 8 % of their error by it; 0.88 to 0.98 on cpusmall (3 %); 0.97 to 0.99 on
magic (2 %); 0.98 to 1.00 on protein (1 %); 0.99 to 1.00 on cal_housing (nothing). On elec2, whose models have
an error that is 8 % larger by it, it was 0.88 to 1.07 after one course of steps, and 1.00 to 1.07 after all.

Of few rows, chance says more. Long tails that tell nothing, beside four features that tell a number, had 0.81
to 1.10 in 100 rows, 0.84 to 1.01 in 200, 0.88 to 1.22 in 300 and 1.01 to 1.02 in 900; tails that tell it had
0.56 to 1.04, 0.45 to 0.74, 0.47 to 0.73 and 0.42 to 0.59 (2026-11-25).
"""

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.model.coding import Coding
from dcpred_tasks.training.gaps import choose_columns
from dcpred_tasks.training.learned_scaling import Metric, learn_metric
from dcpred_tasks.training.settings import AUTO, Settings
from dcpred_tasks.training.survey import Survey
from dcpred_tasks.training.symlog_choice import likeliest_on_log_scale

# Share of the loss that a logarithmic scale must take away; of few rows, the second by their number.
# With 0.05, searches come to 2.82 on cpusmall and to 94.9 % on usps at a cost of 10.9; with 0.01 to 2.77, and
# to 95.1 % at 10.1.
WORTH_IT, BY_CHANCE = 0.01, 30.0


def learn_columns(
    sample: NDArray[np.generic],
    target: NDArray[np.generic],
    weight: FloatArray,
    survey: Survey,
    settings: Settings,
    sharpen_below: float,
) -> tuple[Coding | None, Metric]:
    """The columns that settings ask for, None for features as they are, and learned factors of them. The
    arguments are those of `choose_columns`; factors of fewer columns than `sharpen_below` are sharpened.

    Raises SettingsError for a feature that cannot be what settings ask for.
    """

    def learned(coding: Coding | None) -> Metric:
        given = sample, target, weight, survey.minimum, survey.maximum, settings.task, settings.seed
        n_columns = sample.shape[1] if coding is None else len(coding.source)
        return learn_metric(*given, n_columns < sharpen_below, coding)

    plain = choose_columns(sample, target, weight, survey, settings)
    metric = learned(plain)
    scaled = None
    if settings.symlog == AUTO:
        scaled = likeliest_on_log_scale(plain, sample, target, weight, settings)
    if scaled is None:
        return plain, metric
    found = learned(scaled)
    left = 1.0 - max(WORTH_IT, BY_CHANCE / len(sample))
    pays = _loss(found, settings.task) < left * _loss(metric, settings.task)
    return (scaled, found) if pays else (plain, metric)


def _loss(metric: Metric, task: str) -> float:
    """That of the best candidate on held-out rows, after all courses of steps: 1 − R², or the mean logarithm
    of 1 / the likelihood of the class; infinite where neighbours tell nothing.
    """
    best = max((metric.sharpened or metric).scores.values(), default=-np.inf)
    return float(1.0 - best if task == "regression" else -best)
