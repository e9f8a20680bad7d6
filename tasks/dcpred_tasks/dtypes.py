"""Every dtype with its reason, and the status codes of a scored row."""

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Fitted arrays are stored in single precision: half the bytes, and the engine reads it.
MODEL_DTYPE = np.float32
ACC_DTYPE = np.float64  # |x|² − 2x·u + |u|² cancels when x is near u
SCORE_DTYPE = np.float32  # decision values of classes
VALUE_DTYPE = np.float64  # values of a regression: single precision would round a target far from 0
STATUS_DTYPE = np.uint8
INDEX_DTYPE = np.int64  # rows, offsets
LEAF_DTYPE = np.int32
NO_LEAF = -1  # leaf number of a row that cannot be scaled

FloatArray = NDArray[np.float64]
RealArray = NDArray[Any]  # single or double precision, as given
SingleArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
LeafNumbers = NDArray[np.int32]


class Status(IntEnum):
    """The outcome of a row: 1 if it is scored, 0 if it is not processed yet."""

    NOT_SCORED = 0
    OK = 1
    NON_FINITE_FEATURE = 2
    NON_FINITE_RESULT = 4  # 3 belonged to a status that no version has used
    CHUNK_MISSING = 5
    CHUNK_CORRUPT = 6
    QUARANTINED = 7


GIVEN_UP = (Status.CHUNK_MISSING, Status.CHUNK_CORRUPT, Status.QUARANTINED)  # unreadable rows
