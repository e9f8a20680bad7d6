"""What the benchmarks share: data, and a table that prints itself as Markdown."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.storage import zarr_arrays

LONG = {"repeats": 9, "budget_seconds": 8.0}  # of measure_cost, for figures of the pages
# of measure_cost, for the quick forms, which show that a cost is measured and not which
BRIEF = {"stream_bytes": 2**22, "repeats": 3, "budget_seconds": 0.1}
CHUNK_ROWS = 65_536


def data_folder() -> Path:
    """Where the real data sets lie: $DCPRED_DATA, else ../shared/data beside the project."""
    folder = Path(os.environ.get("DCPRED_DATA", Path(__file__).parents[2] / "../shared/data"))
    if not (folder / "letter.npz").exists():
        raise SystemExit(f"real data sets are not at {folder}; set DCPRED_DATA to their folder")
    return folder


def letter(folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.int8], NDArray[np.uint8], NDArray[np.int8]]:
    """A–M against N–Z: the first 15,000 rows to train on, the last 5,000 to test on."""
    with np.load(folder / "letter.npz") as data:
        X, y = data["X"], (data["y"] < 13).astype(np.int8)
    return X[:15_000], y[:15_000], X[15_000:], y[15_000:]


def covtype(folder: Path, seed: int = 0) -> tuple[NDArray[np.int16], NDArray[np.int8]]:
    """Class 2 against the rest in random order: the first 522,910 rows to train on, the other 58,102 to test
    on.
    """
    with np.load(folder / "covtype.npz") as data:
        order = np.random.default_rng(seed).permutation(len(data["y"]))
        return np.ascontiguousarray(data["X"])[order], (data["y"] == 2).astype(np.int8)[order]


def write_group(path: Path, X: NDArray[Any], y: NDArray[Any], chunk_rows: int = CHUNK_ROWS) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    group = zarr_arrays.create_group(path)
    zarr_arrays.create_array(group, "X", X.shape, X.dtype, chunk_rows)[...] = X
    zarr_arrays.create_array(group, "y", y.shape, y.dtype, chunk_rows)[...] = y
    return path


class Table:
    """Rows of text."""

    def __init__(self, *columns: str) -> None:
        self.lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]

    def add(self, *cells: str) -> None:
        self.lines.append(f"| {' | '.join(cells)} |")

    def show(self) -> None:
        print("\n".join(self.lines), flush=True)
