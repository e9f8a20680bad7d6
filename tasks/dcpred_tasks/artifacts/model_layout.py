"""The arrays of a model on disk: their names, dtypes and dimensions, and whether their sizes agree."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from dcpred_tasks.dtypes import ACC_DTYPE, INDEX_DTYPE, LEAF_DTYPE, MODEL_DTYPE
from dcpred_tasks.model.compact_model import Machines, Model, Support
from dcpred_tasks.model.leaf_arrays import ModelArray, model_arrays

# Arrays by their names on disk, with the names of dimensions by which xarray opens them.
COMPACT = {
    "shift": ModelArray(ACC_DTYPE, ("feature",)),
    "factor": ModelArray(ACC_DTYPE, ("feature",)),
    "tree_starts": ModelArray(INDEX_DTYPE, ("node_edge",)),
    "tree_children": ModelArray(LEAF_DTYPE, ("child",)),
    "tree_centres": ModelArray(MODEL_DTYPE, ("child", "feature")),
    **model_arrays(Model),
    "leaf_rows": ModelArray(INDEX_DTYPE, ("leaf",)),
}
SUPPORT = model_arrays(Support, "support_")
# Machines of another system; only in models that have them.
MACHINES = model_arrays(Machines, "machine_")
# Optional arrays: older readers ignore them, so that adding one needs no new version.
REFERENCE = {
    "feature_mean": ModelArray(ACC_DTYPE, ("feature",)),
    "feature_sd": ModelArray(ACC_DTYPE, ("feature",)),
}
# What says how features become columns; only in models where some are coded, or that know gaps. What a model
# without them has for each feature it then has for each column, but for what is told of raw features.
CODING = {
    "source": ModelArray(INDEX_DTYPE, ("column",), since=3),
    "code": ModelArray(ACC_DTYPE, ("column",), since=3),
}
# Only in models that know gaps: what stands for them, and the share of training rows that have one.
GAPS = {
    "gap": ModelArray(ACC_DTYPE, ("feature",), since=5),
    "feature_gaps": ModelArray(ACC_DTYPE, ("feature",), since=5),
}
SELF_TEST = {
    "self_test_rows": ModelArray(ACC_DTYPE, ("self_test_row", "feature")),
    "self_test_decision": ModelArray(ACC_DTYPE, ("self_test_row", "output")),
    "self_test_tolerance": ModelArray(ACC_DTYPE, ("self_test_row",)),
}
ARRAYS = COMPACT | SUPPORT | MACHINES | REFERENCE | CODING | GAPS | SELF_TEST
OF_RAW_FEATURES = {*REFERENCE, *GAPS, *SELF_TEST}


def named_dimensions(name: str, a: NDArray[Any], coded: bool) -> tuple[str, ...]:
    """Names of the dimensions of an array on disk. One without values, as the centres of a single leaf,
    shares none of them with other arrays.
    """
    return dimensions_of(name, coded) if a.size else tuple(f"{name}_{axis}" for axis in range(a.ndim))


def dimensions_of(name: str, coded: bool) -> tuple[str, ...]:
    """Names of the dimensions of an array; `coded` in a model that has columns in place of features."""
    own = ARRAYS[name].dimensions
    if not coded or name in OF_RAW_FEATURES:
        return own
    return tuple("column" if dimension == "feature" else dimension for dimension in own)


def check_sizes(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise ValueError where arrays that share a dimension have other sizes in it, or where offsets do
    not end with what they are of: compiled code would read past the end.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for name, value in arrays.items():
        dimensions = dimensions_of(name, "source" in arrays)
        if value.ndim != len(dimensions):
            raise ValueError(f"array {name} has shape {list(value.shape)} and not ({', '.join(dimensions)})")
        for dimension, size in zip(dimensions, value.shape, strict=True) if value.size else ():
            first, other = sizes.setdefault(dimension, (size, name))
            if size != first:
                raise ValueError(f"array {name} has {size} in {dimension}, where {other} has {first}")
        at = ARRAYS[name].offsets
        if at and not len(arrays[at]):
            raise ValueError(f"array {at} is empty")
        if at and (end := int(arrays[at][-1])) != len(value):
            raise ValueError(f"array {name} has {len(value)} rows, but {at} ends with {end}")
