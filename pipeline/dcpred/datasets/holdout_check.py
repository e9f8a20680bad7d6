"""Whether rows of a data set may be held out at random: its ids that repeat and its dates are tried as groups
and as times (dcpred_tasks.training.holdout_probe).
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred.datasets.split_rules import SplitSource
from dcpred_tasks.artifacts.data_schema import schema_of_array
from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray
from dcpred_tasks.errors import DcpredError
from dcpred_tasks.model.class_codes import names_of_classes
from dcpred_tasks.remarks import Remark
from dcpred_tasks.schema.column import Date
from dcpred_tasks.schema.schema import IDS_ATTRIBUTE
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array, open_node
from dcpred_tasks.storage.addresses import group_of
from dcpred_tasks.training.holdout_probe import holdout_remark, probe_groups, probe_times
from dcpred_tasks.training.survey import FEW_CLASSES

READ_NUMBERS = 2**24  # numbers of X that are read, at most
TRIED = 3  # columns of each kind


def holdout_remarks(x: str, y: str) -> list[Remark]:
    """Remarks on a random hold-out of rows with targets at these addresses; none where they are unreadable,
    which their readers report.
    """
    with suppress(DcpredError), np.errstate(all="ignore"):
        return _holdout_remarks(x, y)
    return []


def _holdout_remarks(x: str, y: str) -> list[Remark]:
    node, X, schema = open_node(group_of(x)), open_array(x), schema_of_array(x)
    if not isinstance(node, zarr.Group):
        return []
    arrays, ids = dict(zarr_arrays.arrays_of(node)), node.attrs.get(IDS_ATTRIBUTE)
    of_schema = map(str, ids) if isinstance(ids, list) else ()
    names = [name for name in of_schema if name in arrays and arrays[name].ndim == 1]
    spans = [] if schema is None or len(schema.features) != X.shape[1] else schema.spans
    dates = [(column.name, span.start) for column, span in spans if isinstance(column, Date)]
    if not names and not dates:
        return []
    source = SplitSource(str(group_of(x)), X, {**arrays, "": open_array(y)})
    rows, target = _sampled(source)
    if target.dtype.kind == "f" and not np.isfinite(target).all():
        return []
    labels, numbers = np.unique(target, return_inverse=True)
    is_classes = names_of_classes(source.arrays[""].attrs, np.dtype(target.dtype)) is not None
    is_classes |= target.dtype.kind not in "iuf" or len(labels) <= FEW_CLASSES
    n_classes, y_values = (len(labels), numbers) if is_classes else (0, target)
    remarks = []
    for name in names[:TRIED]:
        keys = np.unique(np.concatenate([*_spans(source, name)]), return_inverse=True)[1]
        if len(keys) > keys.max() + 1:
            probe = probe_groups(rows, y_values, keys, n_classes)
            remarks.append(holdout_remark(probe, name, "--by-group", n_classes))
    for name, feature in dates[:TRIED]:
        time = np.nan_to_num(rows[:, feature], nan=-np.inf)
        probe = probe_times(rows, y_values, time, n_classes)
        remarks.append(holdout_remark(probe, name, "--by-time", n_classes))
    return [each for each in remarks if each is not None]


def _chosen(source: SplitSource) -> list[tuple[int, int]]:
    """The spans of rows that are read, evenly over all."""
    spans = [*source.spans()]
    most = max(READ_NUMBERS // max(source.step * source.X.shape[1], 1), 1)
    return spans[:: -(-len(spans) // most)]


def _sampled(source: SplitSource) -> tuple[FloatArray, NDArray[Any]]:
    spans = _chosen(source)
    X = np.concatenate([zarr_arrays.read_rows(source.X, *span).astype(ACC_DTYPE) for span in spans])
    X[np.isinf(X)] = np.nan
    return X, np.concatenate([*_spans(source, "")])


def _spans(source: SplitSource, name: str) -> Iterator[NDArray[Any]]:
    for start, stop in _chosen(source):
        yield zarr_arrays.plain_text(zarr_arrays.read_rows(source.arrays[name], start, stop), name or "y")
