"""The drift of a manifest or an evaluation: its keys with their meanings, and in words (`scoring.drift`
computes it).
"""

from collections.abc import Mapping
from typing import Any

from dcpred_tasks.remarks import Remark, remark
from dcpred_tasks.result_fields import ABSENT, result_class, result_field


@result_class
class Bin:
    bin: str = result_field("The values of the bin, in words.")
    share: float = result_field("Fraction of the rows in the bin.")
    training_share: float = result_field("Fraction of the training rows in the bin.")


@result_class
class Compared:
    """A feature or an output, compared with training rows by its bins. Earlier models have none."""

    psi: float = result_field("Population stability index of its bins.", default=ABSENT)
    p_value: float = result_field("p-value of the test that both distributions are equal.", default=ABSENT)
    rows: int = result_field("Number of rows in the bins.", default=ABSENT)
    training_rows: int = result_field("Number of training rows in the bins.", default=ABSENT)
    differs: bool = result_field("Whether the test is significant.", default=ABSENT)
    large: bool = result_field("Whether it differs and the index exceeds its threshold.", default=ABSENT)
    name: str = result_field("Name of the feature or output.", default=ABSENT)
    bins: list[Bin] = result_field("Bins with rows.", default=ABSENT)


@result_class
class DriftThresholds:
    psi: float = result_field("Limit of a stability index.")
    shift: float = result_field("Limit of a shift, in training standard deviations.")
    sd_ratio: float = result_field("Limit of the ratio of standard deviations.")
    level: float = result_field("Significance level of all tests together.")


@result_class
class GainedLeaf:
    leaf: int = result_field("Number of the leaf, from 0.")
    share: float = result_field("Its fraction of the rows.")
    training_share: float = result_field("Its fraction of the training rows.")


@result_class
class LeafDrift:
    psi: float = result_field("Population stability index of leaves.", metric="leaf_stability_index")
    psi_by_chance: float = result_field("The index that unchanged data have on average.")
    n_bins: int = result_field("Number of leaves compared.")
    large: bool = result_field("Whether the index exceeds its threshold.")
    gained: list[GainedLeaf] = result_field("The leaves that gained the most rows.")


@result_class
class FeatureShift:
    feature: int = result_field("Number of the feature, from 0.")
    shift: float | None = result_field(
        "Shift of its mean in training standard deviations; None for a changed constant."
    )
    sd_ratio: float | None = result_field("Standard deviation over that of training; None for a constant.")
    mean: float = result_field("Mean of the rows.")
    training_mean: float = result_field("Mean of the training rows.")
    spread_shift: float | None = result_field(
        "Change of its spread, on the scale of `shift`; None for a constant."
    )
    sd: float = result_field("Standard deviation of the rows.")
    training_sd: float = result_field("Standard deviation of the training rows.")
    gap_shift: float | None = result_field(
        "Change of their share, on the scale of `shift`.", when="missing values"
    )
    gaps: float = result_field("Fraction of rows that lack the feature.", when="missing values")
    training_gaps: float = result_field("Fraction of training rows that lack it.", when="missing values")


@result_class
class FeatureDrift(Compared, FeatureShift):
    pass


@result_class
class FeatureDrifts:
    n_large: int = result_field("Number of features with large drift.", metric="features")
    top: list[FeatureDrift] = result_field("The features that differ most.")


@result_class
class Beyond:
    feature: int = result_field("Number of the feature, from 0.")
    rows: int = result_field("Number of rows compared.")
    below: int = result_field("Number of rows below all training rows.")
    above: int = result_field("Number of rows above all training rows.")
    low: float = result_field("Smallest value of the training rows.")
    high: float = result_field("Largest value of the training rows.")
    by_chance: bool = result_field("Whether unchanged data may have as many.")
    name: str = result_field("Name of the feature.")
    low_in_words: str = result_field("The smallest value, as the table writes it.")
    high_in_words: str = result_field("The largest value, as the table writes it.")


@result_class
class PairDrift:
    features: list[str] = result_field("Names of both features.")
    correlation: float = result_field("Rank correlation in these rows.")
    training_correlation: float = result_field("Rank correlation in training rows.")


@result_class
class RelationDrift:
    n_pairs: int = result_field("Number of pairs of features whose rank correlation changed.")
    features: list[str] = result_field("Names of the features that explain it, or of the first pair.")
    cause: str = result_field('What explains all: "places", "sign", "other rows", or "" if unknown.')
    top: list[PairDrift] = result_field("The pairs that changed most.")


@result_class
class Drift:
    """Differences of scored rows from training rows."""

    sampled_rows: int = result_field("Number of rows compared with training rows.")
    large: bool = result_field("Whether any comparison exceeds its threshold.", metric="large")
    thresholds: DriftThresholds = result_field("Limits of these comparisons.", default=ABSENT)
    psi: float = result_field(
        "Largest population stability index of leaves, and of features and scores that differ.",
        metric="stability_index",
        default=ABSENT,
    )
    leaves: LeafDrift | None = result_field(
        "Rows by leaf, compared with training rows; None without rows.", default=None
    )
    features: FeatureDrifts | None = result_field(
        "Comparison of features; None for models without statistics of features.", default=None
    )
    ignored_psi: float = result_field(
        "Largest index of ignored features that differ.", when="--ignore-drift", default=ABSENT
    )
    scores: list[Compared] = result_field("Comparison of decision values or predictions.", default=ABSENT)
    beyond: list[Beyond] = result_field(
        "Features with rows beyond the range of the training rows.", default=ABSENT
    )
    relations: RelationDrift = result_field(
        "How pairs of features relate otherwise than in training.", when="such pairs", default=ABSENT
    )


NAMED = 5  # maximum number of features to name
SIDES = {"below": "low_in_words", "above": "high_in_words"}


def drift_remarks(drift: Mapping[str, Any] | None, subject: str = "", file: str = "") -> list[Remark]:
    """How scored rows differ noticeably from training rows, and which features have more rows beyond these
    than by chance.

    subject  a beginning of the text, for a part of the rows
    """
    if not drift:
        return []
    beyond = [each for each in drift.get("beyond", ()) if not each["by_chance"]]
    top = [each for each in (drift.get("features") or {}).get("top", ()) if each.get("large")]
    related = drift.get("relations")
    kinds = (
        ("drift", drift_text(drift), top, None),
        ("beyond-training", _listed([*map(_beyond, beyond)], 0), beyond, _share_beyond(beyond)),
    )
    remarks = [
        remark(code, f"{subject}{text}", columns=[*map(_name, features)], file=file, share=share)
        for code, text, features, share in kinds
        if text
    ]
    if related:
        text = f"{subject}{_related(related)}"
        remarks.append(remark("relations", text, columns=related["features"], file=file))
    return remarks


CAUSES = {
    "places": "{} seem to have changed places",
    "sign": "{} seems to have the other sign",
    "other rows": "{} relates to other columns no more, as if its values belonged to other rows",
    "": "{} relate otherwise than in training",
}


def _related(drift: Mapping[str, Any]) -> str:
    """How features relate otherwise, with the pair that shows it best."""
    pair, names, cause = drift["top"][0], [*map(repr, drift["features"])], drift["cause"]
    figures = f"{pair['correlation']:.2f}, in training {pair['training_correlation']:.2f}"
    of = "" if set(names) == {*map(repr, pair["features"])} else " of {!r} and {!r}".format(*pair["features"])
    more = f"; and {drift['n_pairs'] - 1:,} more" if drift["n_pairs"] > 1 else ""
    subject = (" or " if cause in ("sign", "other rows") else " and ").join(names)
    return f"{CAUSES[cause].format(subject)} (rank correlation{of} {figures}{more})"


def _name(feature: Mapping[str, Any]) -> str:
    return str(feature.get("name", feature["feature"]))


def _share_beyond(features: list[Mapping[str, Any]]) -> float | None:
    """The largest fraction of rows beyond training rows."""
    return max(((each["below"] + each["above"]) / each["rows"] for each in features), default=None)


def drift_text(drift: Mapping[str, Any]) -> str:
    """How scored rows differ noticeably from training rows, in one line; "" if they do not."""
    if not drift["large"]:
        return ""
    if "parts" in drift and "leaves" not in drift:  # An earlier version wrote no more.
        return "large in some of the parts"
    leaves, features, limits = drift["leaves"], drift["features"], drift["thresholds"]
    facts = [f"in {', '.join(drift['parts'])}"] if drift.get("parts") else []
    if leaves["large"]:
        facts.append(
            f"rows fall into other leaves than training rows did (stability index {leaves['psi']:.2f}, large"
            f" above {limits['psi']})"
        )
    top = features["top"] if features else []
    compared = [*top, *drift.get("scores", ())]
    if compared and "psi" in compared[0]:
        texts = [_differs(each) for each in compared if each["large"]]
        unlisted = features["n_large"] - sum(each["large"] for each in top) if features else 0
        facts.append(_listed(texts, unlisted))
    elif features and features["n_large"]:  # Earlier versions compared no bins.
        moved = "1 feature has" if features["n_large"] == 1 else f"{features['n_large']:,} features have"
        far = f"moved by {limits['shift']} standard deviations or more"
        if "sd_ratio" in limits:
            far += f", or has a standard deviation {limits['sd_ratio']:g} times as large or as small"
        name = repr(top[0]["name"]) if "name" in top[0] else top[0]["feature"]
        facts.append(f"{moved} {far}, most of all feature {name} ({_moved(top[0])})")
    return "; ".join(filter(None, facts))


def _listed(texts: list[str], more: int) -> str:
    """The first of them.

    more  number of features that are not among them
    """
    more += max(len(texts) - NAMED, 0)
    return "; ".join(texts[:NAMED] + ([f"and {more:,} more features"] if more > 0 else []))


def _differs(each: Mapping[str, Any]) -> str:
    """Where the rows of a feature or output lie now, and where they lay in training."""
    name = repr(each["name"]) if "name" in each else f"feature {each['feature']}"
    bins = sorted(each["bins"], key=lambda part: -abs(part["share"] - part["training_share"]))
    now, before = (f"{100 * bins[0][key]:.3g} %" for key in ("share", "training_share"))
    return (
        f"{name} (stability index {each['psi']:.2f}; {bins[0]['bin']}: {now} of rows, in training {before})"
    )


def _beyond(each: Mapping[str, Any]) -> str:
    """The rows of a feature beyond training rows."""
    sides = [(each[side], f"{side} {each[limit]}") for side, limit in SIDES.items() if each[side]]
    where = " and ".join(f"{rows:,} {text}" for rows, text in sides)
    name = each.get("name", f"feature {each['feature']}")
    return f"{name}: {where}, of {each['rows']:,} counted rows"


def _moved(top: Mapping[str, Any]) -> str:
    """How far a feature is from that of training, by its mean, its spread or its missing values."""
    shift, of_gaps, spread = (
        abs(float("inf") if value is None else value)
        for value in (top["shift"], top.get("gap_shift", 0), top.get("spread_shift", 0))
    )
    if spread > max(shift, of_gaps):
        return f"standard deviation {top['sd']:.4g}, in training {top['training_sd']:.4g}"
    if of_gaps > shift:
        share, before = 100 * top["gaps"], 100 * top["training_gaps"]
        return f"missing in {share:.3g} % of rows, in training in {before:.3g} %"
    far = "a constant of another value" if top["shift"] is None else f"by {top['shift']:+.1f}"
    return f"{far}; mean {top['mean']:.4g}, in training {top['training_mean']:.4g}"
