"""Which rows a model was trained on: the smallest hashes of such rows, by which an evaluation recognizes rows
that it has seen.

They are stored in the provenance of a model, which its hash does not cover and earlier readers ignore. A row
is hashed by its values as float64: dtype, chunks and the name of a data set do not matter.
"""

import base64
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.annotations import Count, from_document

FIELD = "trained_rows"  # in the provenance
MOST_HASHES = 2_048  # hashes: 22 KiB of text
LARGEST = 2**64 - 1
STRIP_VALUES = 2**18  # values copied at once
FEWEST = 3  # known rows needed for an estimate
ERRORS = 5.0  # standard errors above chance

Hashes = NDArray[np.uint64]


def sketch(X: NDArray[Any], share: float = 1.0) -> dict[str, Any]:
    """The smallest hashes of distinct training rows (n, n_features), how many rows have them, how many of
    these are equal to no other, and the share that X is of all rows.
    """
    distinct, counts = np.unique(hashes_of_rows(X), return_counts=True)
    smallest, counts = distinct[:MOST_HASHES], counts[:MOST_HASHES]
    hashes = base64.b64encode(smallest.astype("<u8").tobytes()).decode()
    rows, single = int(counts.sum()), int((counts == 1).sum())
    return {"share": share, "hashes": hashes, "rows": rows, "single": single}


def hashes_of_rows(X: NDArray[Any]) -> Hashes:
    """A 64-bit hash of each row (n,): a sum of its values' bits, each times a number of its column, mixed."""
    factors = mixed(np.arange(1, X.shape[1] + 1, dtype=np.uint64)) | np.uint64(1)
    sums, step = np.empty(len(X), np.uint64), max(STRIP_VALUES // X.shape[1], 1)
    for start in range(0, len(X), step):
        values = X[start : start + step].astype(np.float64)
        values += 0.0  # −0 is 0
        values[np.isnan(values)] = np.nan  # NaN has many bit patterns
        bits = values.view(np.uint64)
        bits ^= bits >> np.uint64(32)  # the lower bits of integers are 0
        sums[start : start + step] = bits @ factors
    return mixed(sums)


def mixed(z: Hashes) -> Hashes:
    """SplitMix64 of Steele, Lea and Flood (2014)."""
    with np.errstate(over="ignore"):
        z = z * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


@dataclass(frozen=True)
class _Sketch:
    share: Annotated[float, lambda share: 0 < share <= 1]
    hashes: str
    rows: Count = 0
    single: Count = 0


@dataclass
class TrainedRows:
    """Estimates how many given rows were trained on, by rows whose hash is in the sketch."""

    hashes: Hashes
    """Ascending, without repeats."""
    share: float
    rows: int = 0
    """Training rows with these hashes; 0 in models of earlier versions."""
    single: int = 0
    """Those of them that are equal to no other."""
    n_compared: int = field(default=0, init=False)
    n_met: int = field(default=0, init=False)

    @classmethod
    def of(cls, provenance: object) -> "TrainedRows | None":
        """From the provenance of a model, which is not verified; None where it is unusable."""
        try:
            stored = from_document(_Sketch, provenance.get(FIELD) if isinstance(provenance, dict) else None)
            hashes = np.frombuffer(base64.b64decode(stored.hashes, validate=True), "<u8").astype(np.uint64)
        except ValueError:  # binascii.Error among them
            return None
        is_so = 0 < len(hashes) <= MOST_HASHES and bool((hashes[1:] > hashes[:-1]).all())
        is_so &= stored.rows == 0 or stored.single <= len(hashes) <= stored.rows
        return cls(hashes, stored.share, stored.rows, stored.single) if is_so else None

    @property
    def limit(self) -> np.uint64:
        """The largest hash that the sketch would have."""
        return np.uint64(self.hashes[-1] if len(self.hashes) == MOST_HASHES else LARGEST)

    def add(self, X: NDArray[Any]) -> None:
        """Rows (n, n_features), raw."""
        hashes = hashes_of_rows(X)
        hashes = hashes[hashes <= self.limit]
        place = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        self.n_compared += len(hashes)
        self.n_met += int((self.hashes[place] == hashes).sum())

    def known_share(self) -> float | None:
        """The estimated share of rows that were trained on, without those that are equal to one by chance;
        None where too few can be compared, or all training rows are equal to others.
        """
        chance = 1 - self.single / self.rows if self.rows else 0.0
        if self.n_compared < FEWEST or chance == 1:
            return None
        met = self.n_met / self.n_compared
        error = np.sqrt(chance * (1 - chance) * (1 / self.n_compared + 1 / self.rows)) if chance else 0.0
        if self.n_met < FEWEST or met - chance <= ERRORS * error:
            return 0.0
        return min((met - chance) / (1 - chance) / self.share, 1.0)

    def repeated_share(self, n_rows: int) -> float | None:
        """The share of n_rows that repeat an earlier row by chance, at most; None if it is unknown."""
        if not self.rows:
            return None
        n_training = self.rows * LARGEST / int(self.limit)
        return min((1 - len(self.hashes) / self.rows) * max(1.0, n_rows / n_training), 1.0)
