"""Missing values and feature maps in progress and reports of a training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dcpred.execution.progress import counted
from dcpred_tasks.errors import listed
from dcpred_tasks.model.feature_map import Knots
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.result_fields import result_class, result_field
from dcpred_tasks.training.survey import Survey

NAMED = 5  # maximum number of features to name
MAPPED = {
    "clip": "by smooth clipping",
    "quantile": "by quantiles",
    "additive": "to contributions to an additive model",
    "symlog": "to a symmetric logarithmic scale",
}


@result_class
class MostGaps:
    feature: int = result_field("Number of that feature, from 0.")
    rows: int = result_field("Number of rows that lack it.")
    share: float = result_field("Fraction of rows that lack it.")


@result_class
class Gaps:
    """Missing values of a training."""

    known: bool = result_field("Whether the model accepts missing values.")
    features: int = result_field("Number of features that have some.", when="missing values")
    most: MostGaps = result_field("The feature with most of them.", when="missing values")
    indicated: list[int] = result_field(
        "Numbers of the features with a missing indicator.", when="missing values"
    )
    without_values: list[int] = result_field(
        "Numbers of the features without any value.", when="missing values"
    )
    names: dict[str, str] = result_field("Names of these features by number.", when="missing values")


@result_class
class MapFacts:
    """The feature map."""

    name: str = result_field("Name of the map: clip, quantile, additive, or symlog of earlier versions.")
    features: list[int] = result_field("Numbers of the mapped features, from 0.")
    knots: list[int] | None = result_field("Number of knots of each, for quantile and additive; else None.")


def describe_gaps(scaling: Scaling, survey: Survey, names: Sequence[str] | None) -> dict[str, Any]:
    """Missing values in a training report: the document of `Gaps`."""
    coding, gaps = scaling.coding, survey.gaps
    if coding is None or coding.gap is None:
        return {"known": False}
    most = int(gaps.argmax())
    indicated, empty = coding.indicated.tolist(), np.flatnonzero(gaps == survey.n_used).tolist()
    named = {most, *indicated[:NAMED], *empty[:NAMED]}
    return {
        "known": True,
        "features": int(np.count_nonzero(gaps)),
        "most": {"feature": most, "rows": int(gaps[most]), "share": float(gaps[most] / survey.n_used)},
        "indicated": indicated,
        "without_values": empty,
        "names": {} if names is None else {str(feature): str(names[feature]) for feature in sorted(named)},
    }


def gaps_in_words(gaps: Mapping[str, Any], mapped: Mapping[str, Any] | None = None) -> str | None:
    """The same in a sentence, None for a model that does not accept missing values.

    mapped  the feature map (`describe_map`)
    """
    if not gaps.get("known"):
        return None
    if not gaps["features"]:
        return "no training row has a missing value; in a scored one it becomes the mean of its feature"
    names = gaps["names"]
    most, have = gaps["most"], counted(gaps["features"], "feature has", "features have")
    become = "the mean of the feature, or its most frequent category"
    if mapped and mapped["name"] == "additive":
        become = "a value of the feature that contributes as much, or its most frequent category"
    facts = [
        f"{have} missing values, {_listed([most['feature']], names)} in {100 * most['share']:.3g} % of rows;"
        f" they become {become}",
        f"{_listed(gaps['indicated'], names)} {_have(gaps['indicated'])} a missing indicator"
        if gaps["indicated"]
        else "no feature has a missing indicator",
    ]
    if gaps["without_values"]:
        empty = gaps["without_values"]
        facts.append(
            f"{_listed(empty, names)} {_have(empty)} no value at all and {'is' if len(empty) == 1 else 'are'}"
            " omitted"
        )
    return "; ".join(facts)


def describe_map(scaling: Scaling) -> dict[str, Any] | None:
    """The document of `MapFacts`; None without a map."""
    mapping = None if scaling.coding is None else scaling.coding.map
    if mapping is None:
        return None
    knots = np.diff(mapping.at)[mapping.features].tolist() if isinstance(mapping, Knots) else None
    return {"name": mapping.name, "features": mapping.features, "knots": knots}


def map_in_words(mapped: Mapping[str, Any] | None) -> str | None:
    """The same in a sentence, None without a map."""
    if not mapped:
        return None
    return f"{counted(len(mapped['features']), 'feature is', 'features are')} mapped {MAPPED[mapped['name']]}"


def columns_in_words(scaling: Scaling, survey: Survey, names: Sequence[str] | None) -> list[str]:
    """Sentences on all changes of features, none without changes."""
    mapped = describe_map(scaling)
    sentences = gaps_in_words(describe_gaps(scaling, survey, names), mapped), map_in_words(mapped)
    return [sentence for sentence in sentences if sentence]


def _have(features: Sequence[int]) -> str:
    return "has" if len(features) == 1 else "have"


def _listed(features: Sequence[int], names: Mapping[str, str]) -> str:
    shown = [repr(names[str(f)]) if str(f) in names else str(f) for f in features]
    return f"{'feature' if len(features) == 1 else 'features'} {listed(shown, NAMED)}"
