"""Every dtype with its reason, and the status codes of a scored row."""

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

# what is fitted is stored in single precision: half the bytes, and what the engine reads
MODEL_DTYPE = np.float32
ACC_DTYPE = np.float64  # |x|² − 2x·u + |u|² cancels when x is near u
SCORE_DTYPE = np.float32  # of decision values
VALUE_DTYPE = np.float64  # of a regression: single precision would lose the digits of a target far from zero
STATUS_DTYPE = np.uint8
INDEX_DTYPE = np.int64  # rows, offsets
LEAF_DTYPE = np.int32
NO_LEAF = -1  # where a row has none, for it could not be scaled

FloatArray = NDArray[np.float64]
RealArray = NDArray[Any]  # of single or double precision, as it comes
SingleArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
LeafNumbers = NDArray[np.int32]


class Status(IntEnum):
    """What became of a row. A row is scored if and only if its status is not 0."""

    NOT_SCORED = 0
    OK = 1
    NON_FINITE_FEATURE = 2
    NON_FINITE_RESULT = 4  # 3 was the name of a status that no version has given
    CHUNK_MISSING = 5
    CHUNK_CORRUPT = 6
    QUARANTINED = 7


GIVEN_UP = (Status.CHUNK_MISSING, Status.CHUNK_CORRUPT, Status.QUARANTINED)  # rows that nobody could read
