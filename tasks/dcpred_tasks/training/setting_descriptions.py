"""Settings as text, for the user guide, `dcpred train -h` and estimators."""

from dataclasses import dataclass, fields

from dcpred_tasks.training.number_ranges import range_in_words
from dcpred_tasks.training.settings import Settings

# Settings that a search does not change.
BESIDE_A_SEARCH = frozenset(
    {
        "task",
        "categorical",
        *("class_weight", "threshold"),
        *("keep_support_vectors", "calibrate"),
        "max_leaf_rows",
        "missing",
        "sample_rows",
        "seed",
        "target_transform",
    }
)


@dataclass(frozen=True)
class Description:
    """A setting as text: its default, its range, its meaning with that of 0, and its named values."""

    name: str
    default: str
    allowed: str
    meaning: str
    zero: str
    values: tuple[str, ...]


def describe_settings() -> tuple[Description, ...]:
    """Every setting in the order of Settings, for the user guide, `dcpred train -h` and estimators."""
    return tuple(
        Description(
            f.name,
            _shown(f.default),
            _allowed(f.name),
            f.metadata["meaning"],
            f.metadata["zero"],
            ("true", "false") if isinstance(f.default, bool) else f.metadata["choices"],
        )
        for f in fields(Settings)
    )


def _shown(default: object) -> str:
    """The value in the form of --set."""
    return str(default).lower() if isinstance(default, bool) else str(default)


def _allowed(name: str) -> str:
    metadata = Settings.__dataclass_fields__[name].metadata
    if isinstance(getattr(Settings, name), bool):
        return "true or false"
    ways = list(metadata["choices"])
    if metadata["more"]:
        ways.append(metadata["more"])
    if metadata["range"]:
        ways.append(f"{range_in_words(*metadata['range'])} {metadata['unit']}".rstrip())
    return ", ".join(ways[:-1]) + f" or {ways[-1]}" if len(ways) > 1 else ways[0]
