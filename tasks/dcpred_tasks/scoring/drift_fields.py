"""The drift of a manifest or an evaluation: its keys with their meanings (`scoring.drift` computes it)."""

from dcpred_tasks.result_fields import result_class, result_field


@result_class
class Bin:
    bin: str = result_field("The values of the bin, in words.")
    share: float = result_field("Fraction of the rows in the bin.")
    training_share: float = result_field("Fraction of the training rows in the bin.")


@result_class
class Compared:
    """A feature or an output, compared with training rows by its bins."""

    psi: float = result_field("Population stability index of its bins.")
    p_value: float = result_field("p-value of the test that both distributions are equal.")
    rows: int = result_field("Number of rows in the bins.")
    training_rows: int = result_field("Number of training rows in the bins.")
    differs: bool = result_field("Whether the test is significant.")
    large: bool = result_field("Whether it differs and the index exceeds its threshold.")
    bins: list[Bin] = result_field("Bins with rows.")


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
class FeatureDrift(Compared):
    feature: int = result_field("Number of the feature, from 0.")
    name: str = result_field("Name of the feature.")
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
class FeatureDrifts:
    n_large: int = result_field("Number of features with large drift.", metric="features")
    top: list[FeatureDrift] = result_field("The features that differ most.")


@result_class
class ScoreDrift(Compared):
    name: str = result_field("Name of the output.")


@result_class
class Beyond:
    feature: int = result_field("Number of the feature, from 0.")
    name: str = result_field("Name of the feature.")
    rows: int = result_field("Number of rows compared.")
    below: int = result_field("Number of rows below all training rows.")
    above: int = result_field("Number of rows above all training rows.")
    low: float = result_field("Smallest value of the training rows.")
    high: float = result_field("Largest value of the training rows.")
    by_chance: bool = result_field("Whether unchanged data may have as many.")
    low_in_words: str = result_field("The smallest value, as the table writes it.")
    high_in_words: str = result_field("The largest value, as the table writes it.")


@result_class
class Drift:
    """Differences of scored rows from training rows."""

    sampled_rows: int = result_field("Number of rows compared with training rows.")
    large: bool = result_field("Whether any comparison exceeds its threshold.", metric="large")
    thresholds: DriftThresholds = result_field("Limits of these comparisons.")
    psi: float = result_field(
        "Largest population stability index of leaves, and of features and scores that differ.",
        metric="stability_index",
    )
    leaves: LeafDrift | None = result_field("Rows by leaf, compared with training rows; None without rows.")
    features: FeatureDrifts | None = result_field(
        "Comparison of features; None for models without statistics of features."
    )
    scores: list[ScoreDrift] = result_field("Comparison of decision values or predictions.")
    beyond: list[Beyond] = result_field("Features with rows beyond the range of the training rows.")
