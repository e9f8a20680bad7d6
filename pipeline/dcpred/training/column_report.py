"""What is told of gaps and logarithmic scales where a model is trained: in progress, and in reports."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dcpred.execution.progress import counted
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.training.survey import Survey

NAMED = 5  # most features that are named


def describe_gaps(scaling: Scaling, survey: Survey, names: Sequence[str] | None) -> dict[str, Any]:
    """What a training report says of gaps: whether the model knows them, how many features have some, in
    which of them most rows, the features with an indicator, and those without any value; and the names of
    those that are told of, as far as features have names.
    """
    coding, gaps = scaling.coding, survey.gaps
    if coding is None or coding.gap is None:
        return {"known": False}
    most = int(gaps.argmax())
    indicated, empty = coding.indicated.tolist(), np.flatnonzero(gaps == survey.n_used).tolist()
    told = {most, *indicated[:NAMED], *empty[:NAMED]}
    return {
        "known": True,
        "features": int(np.count_nonzero(gaps)),
        "most": {"feature": most, "rows": int(gaps[most]), "share": float(gaps[most] / survey.n_used)},
        "indicated": indicated,
        "without_values": empty,
        "names": {} if names is None else {str(feature): str(names[feature]) for feature in sorted(told)},
    }


def gaps_in_words(found: Mapping[str, Any]) -> str | None:
    """The same in a sentence, None for a model that does not know gaps."""
    if not found.get("known"):
        return None
    if not found["features"]:
        return "no training row has a gap; one that is scored is the mean of its feature"
    names = found["names"]
    most, have = found["most"], counted(found["features"], "feature has", "features have")
    said = [
        f"{have} gaps, {_listed([most['feature']], names)} in {100 * most['share']:.3g} % of rows; a gap is"
        " the mean of its feature, or its most frequent code",
        f"{_listed(found['indicated'], names)} {_have(found['indicated'])} an indicator of gaps"
        if found["indicated"]
        else "no feature has an indicator of gaps",
    ]
    if found["without_values"]:
        empty = found["without_values"]
        said.append(
            f"{_listed(empty, names)} {_have(empty)} no value at all and {'is' if len(empty) == 1 else 'are'}"
            " left out"
        )
    return "; ".join(said)


def describe_log_scale(scaling: Scaling, names: Sequence[str] | None) -> list[dict[str, Any]]:
    """The features on a symmetric logarithmic scale: its middle, and up to which distance from that it is
    linear.
    """
    if scaling.coding is None or scaling.coding.symlog is None:
        return []
    scale = scaling.coding.symlog
    return [
        {
            "feature": f,
            "name": str(names[f]) if names is not None else None,
            "centre": float(scale.centre[f]),
            "linear_to": float(1.0 / scale.rate[f]),
        }
        for f in scale.features
    ]


def log_scale_in_words(found: Sequence[Mapping[str, Any]]) -> str | None:
    """The same in a sentence, None where no feature is on such a scale."""
    if not found:
        return None
    own = [one["feature"] for one in found]
    names = {str(one["feature"]): one["name"] for one in found if one["name"] is not None}
    return f"{_listed(own, names)} {'is' if len(own) == 1 else 'are'} on a symmetric logarithmic scale"


def columns_in_words(scaling: Scaling, survey: Survey, names: Sequence[str] | None) -> list[str]:
    """Sentences on all that becomes of features, none where they are as they were."""
    gaps, scales = describe_gaps(scaling, survey, names), describe_log_scale(scaling, names)
    return [told for told in (gaps_in_words(gaps), log_scale_in_words(scales)) if told]


def _have(features: Sequence[int]) -> str:
    return "has" if len(features) == 1 else "have"


def _listed(features: Sequence[int], names: Mapping[str, str]) -> str:
    told = [repr(names[str(f)]) if str(f) in names else str(f) for f in features[:NAMED]]
    more = f" and {len(features) - NAMED:,} more" if len(features) > NAMED else ""
    return f"{'feature' if len(features) == 1 else 'features'} {', '.join(told)}{more}"
