"""What progress shows of a training: missing values, feature maps, and estimated times of its steps.

Times are in seconds, fitted by eye to runs on five data sets (DECISIONS.md, "Forecast of times"). Only shares
of a whole are shown, and the elapsed time of a job corrects them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dcpred.execution.progress import Shares, Step, counted, reporter
from dcpred_tasks.errors import listed
from dcpred_tasks.model.feature_map import Symlog
from dcpred_tasks.model.scaling import LEARNED, Scaling
from dcpred_tasks.training.in_memory import Watch
from dcpred_tasks.training.partition import ROWS_PER_LEAF
from dcpred_tasks.training.settings import Settings
from dcpred_tasks.training.survey import Survey, sampled_rows

NAMED = 5  # maximum number of features to name
MAPPED = {
    "clip": "by smooth clipping",
    "quantile": "by quantiles",
    "symlog": "to a symmetric logarithmic scale",
}


def describe_gaps(scaling: Scaling, survey: Survey, names: Sequence[str] | None) -> dict[str, Any]:
    """Missing values in a training report: whether the model accepts them, how many features have some, the
    feature with most of them, the features with an indicator, those without any value; and the names of
    these features, if they have names.
    """
    coding, gaps = scaling.coding, survey.gaps
    if coding is None or coding.gap is None:
        return {"known": False}
    most = int(gaps.argmax())
    indicated, empty = coding.indicated.tolist(), np.flatnonzero(gaps == survey.n_used).tolist()
    summary = {most, *indicated[:NAMED], *empty[:NAMED]}
    return {
        "known": True,
        "features": int(np.count_nonzero(gaps)),
        "most": {"feature": most, "rows": int(gaps[most]), "share": float(gaps[most] / survey.n_used)},
        "indicated": indicated,
        "without_values": empty,
        "names": {} if names is None else {str(feature): str(names[feature]) for feature in sorted(summary)},
    }


def gaps_in_words(found: Mapping[str, Any]) -> str | None:
    """The same in a sentence, None for a model that does not accept missing values."""
    if not found.get("known"):
        return None
    if not found["features"]:
        return "no training row has a missing value; in a scored one it becomes the mean of its feature"
    names = found["names"]
    most, have = found["most"], counted(found["features"], "feature has", "features have")
    facts = [
        f"{have} missing values, {_listed([most['feature']], names)} in {100 * most['share']:.3g} % of rows;"
        " they become the mean of the feature, or its most frequent category",
        f"{_listed(found['indicated'], names)} {_have(found['indicated'])} a missing indicator"
        if found["indicated"]
        else "no feature has a missing indicator",
    ]
    if found["without_values"]:
        empty = found["without_values"]
        facts.append(
            f"{_listed(empty, names)} {_have(empty)} no value at all and {'is' if len(empty) == 1 else 'are'}"
            " omitted"
        )
    return "; ".join(facts)


def describe_map(scaling: Scaling) -> dict[str, Any] | None:
    """The feature map: its name, the mapped features, and for quantiles the number of knots of each; None
    without a map. A model of an earlier version may have "symlog".
    """
    found = None if scaling.coding is None else scaling.coding.amounts
    if found is None:
        return None
    if isinstance(found, Symlog):
        return {"name": "symlog", "features": found.features, "knots": None}
    knots = None if found.at is None else np.diff(found.at)[found.features].tolist()
    return {"name": found.name, "features": found.features, "knots": knots}


def map_in_words(found: Mapping[str, Any] | None) -> str | None:
    """The same in a sentence, None without a map."""
    if not found:
        return None
    return f"{counted(len(found['features']), 'feature is', 'features are')} mapped {MAPPED[found['name']]}"


def columns_in_words(scaling: Scaling, survey: Survey, names: Sequence[str] | None) -> list[str]:
    """Sentences on all changes of features, none without changes."""
    sentences = gaps_in_words(describe_gaps(scaling, survey, names)), map_in_words(describe_map(scaling))
    return [one for one in sentences if one]


def _have(features: Sequence[int]) -> str:
    return "has" if len(features) == 1 else "have"


def _listed(features: Sequence[int], names: Mapping[str, str]) -> str:
    summary = [repr(names[str(f)]) if str(f) in names else str(f) for f in features]
    return f"{'feature' if len(features) == 1 else 'features'} {listed(summary, NAMED)}"


START_SECONDS = 2.5  # until processes run and have imported what the first step needs


def row_seconds(n_features: int, leaf_rows: float, settings: Settings) -> float:
    """Seconds of one core for a row in one leaf that it trains: local model and refinement."""
    rows = leaf_rows * settings.overlap
    local = 2e-8 * min(rows, settings.local_rows) ** 2 / rows
    if not settings.refine:
        return local + 1e-4
    if settings.refine_epochs:
        return local + 2.5e-10 * settings.refine_epochs * settings.landmarks * n_features
    return local + (8e-6 + 4e-7 * n_features) * settings.refine_steps / 100 * (12 + settings.landmarks) / 28


def forecast_training(
    n_rows: int, n_features: int, settings: Settings, n_threads: int, *, surveyed: bool = False
) -> Shares:
    """Seconds by the steps of `dcpred.training.train`.

    surveyed  whether a search has read all rows before
    """
    numbers, sample = (
        n_rows * n_features,
        min(n_rows, sampled_rows(settings.sample_rows, n_features)) * n_features,
    )
    leaf_rows = n_rows / settings.n_leaves if settings.n_leaves else ROWS_PER_LEAF
    leaves = n_rows * settings.overlap * row_seconds(n_features, leaf_rows, settings)
    return Shares(
        {
            "survey": 0.0 if surveyed else START_SECONDS + 1e-7 * numbers / n_threads,
            "division": 0.1 + (4.5e-6 if settings.scaling in LEARNED else 5e-7) * sample,
            "route": 0.3 + 2e-7 * numbers / n_threads,
            "balance": 0.1,
            "overlap": 0.1 + 4e-7 * numbers / n_threads if settings.overlap > 1 else 0.0,
            "leaves": 0.5 + leaves / n_threads,
        }
    )


@contextmanager
def watched_training(settings: Settings, n_rows: int, n_features: int, verbose: int) -> Iterator[Watch]:
    """Progress of a training on rows in memory, for `dcpred_tasks.training.in_memory.train_rows`."""
    say = reporter(verbose)
    work = forecast_training(n_rows, n_features, settings, 1).work
    shares = Shares({name: work[name] for name in ("division", "leaves")})
    parts = iter([shares.of_rest(name) for name in shares.work])

    @contextmanager
    def watch(title: str, total: int | None, unit: str) -> Iterator[Step]:
        with say.part(next(parts)), say.step(title, total, unit) as advance:
            yield advance

    with say.job("training"):
        yield watch
