"""Remarks on settings of the user that a training could not keep."""

from dataclasses import fields

import numpy as np

from dcpred_tasks.dtypes import IntArray
from dcpred_tasks.remarks import Remark, remark
from dcpred_tasks.training.settings import Settings

DEFAULTS = {field.name: field.default for field in fields(Settings)}


def changed_settings(asked: Settings, landmark_at: IntArray) -> list[Remark]:
    """Remarks on `n_leaves` and `landmarks`, where the model has others.

    landmark_at  first landmark of each leaf of the model, and the end of the last one
    """
    landmarks = np.diff(landmark_at)
    return [*_leaves(asked, len(landmarks)), *_landmarks(asked, landmarks[landmarks > 0])]


def _leaves(asked: Settings, n_leaves: int) -> list[Remark]:
    if not asked.n_leaves or asked.n_leaves == n_leaves:
        return []
    code, do, rounded = "changed-settings", "", 2 ** (asked.n_leaves.bit_length() - 1)
    if n_leaves > asked.n_leaves:
        limit = f"max_leaf_rows={asked.max_leaf_rows:,}" + (" and overlap" if asked.overlap > 1 else "")
        why, code = f"a leaf of more rows than {limit} allows is split", "more-leaves"
        do = "set max_leaf_rows higher for fewer leaves"
    elif n_leaves == rounded:
        why = "the number is rounded down to a power of two"
    else:
        why = (
            f"leaves of fewer than min_leaf_rows={asked.min_leaf_rows:,} rows are merged, and equal rows are"
            " not divided"
        )
    leaves = "one leaf" if n_leaves == 1 else f"{n_leaves:,} leaves"
    return [remark(code, f"the model has {leaves} instead of n_leaves={asked.n_leaves:,}: {why}", do)]


def _landmarks(asked: Settings, landmarks: IntArray) -> list[Remark]:
    fewer = landmarks[landmarks < asked.landmarks]
    if asked.landmarks == DEFAULTS["landmarks"] or not len(fewer):
        return []
    text = (
        f"{len(fewer):,} of {len(landmarks):,} leaves have fewer landmarks than landmarks={asked.landmarks},"
        f" the smallest {fewer.min():,}: k-means finds no more groups among the rows that train them"
    )
    return [remark("changed-settings", text, "")]
