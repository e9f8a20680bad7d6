"""Small data sets, a model and a finished output, as the installed version of dcpred writes them. Later
versions must read them.

    python tests/data/make.py /tmp/dcpred-0.1.0

An output holds the paths of its input and its model, so that the folder is made below a neutral place and
then copied here.

    known.zarr   120 rows of 3 features with names, and a target of strings
    model        trained on it: four leaves, three classes, local machines kept
    new.zarr     290 rows without a target, in chunks of 50; the rows of BAD are not finite
    scores       the finished output of `dcpred score`: three blocks of two output chunks
"""

import os
import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from unittest import mock

import numpy as np

from dcpred.datasets.importing import import_data
from dcpred.execution.workers import InlineWorkers
from dcpred.scoring.score import score
from dcpred.training.train import train

BAD = {3: "nan", 140: "inf", 289: "-inf"}
NAMES = ("ash", "oak", "yew")
CHUNKS = {"MIN_BLOCK_ROWS": 1, "MAX_CHUNK_ROWS": 50, "BLOCKS": 3}
# when the files of new.zarr/X were written: a run knows its input by such times
WRITTEN_NS = 1_700_000_000 * 10**9


def main(folder: Path) -> None:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 410)
    X = np.round(2 * kind[:, None] * [1, -1, 0] + rng.normal(size=(410, 3)), 2)
    rows = [",".join(map(str, row)) for row in X.tolist()]
    new = [f"{row.rpartition(',')[0]},{BAD[i]}" if i in BAD else row for i, row in enumerate(rows[120:])]
    folder.mkdir(parents=True)
    (folder / "new.csv").write_text("\n".join(["height,age,girth", *new]) + "\n")
    known = [f"{row},{NAMES[k]}" for row, k in zip(rows[:120], kind, strict=False)]
    (folder / "known.csv").write_text("\n".join(["height,age,girth,kind", *known]) + "\n")
    import_data(f"{folder}/known.csv", f"{folder}/known.zarr", target="kind")
    import_data(f"{folder}/new.csv", f"{folder}/new.zarr", chunk_rows=50)
    for path in (folder / "new.zarr").rglob("*"):
        os.utime(path, ns=(WRITTEN_NS, WRITTEN_NS))
    settings = {
        "n_leaves": 4,
        "min_leaf_rows": 10,
        "landmarks": 3,
        "products": 2,
        "keep_support_vectors": True,
    }
    with ExitStack() as stack:
        stack.enter_context(mock.patch("socket.gethostname", return_value="host"))
        for name, value in CHUNKS.items():
            stack.enter_context(mock.patch(f"dcpred.execution.block_plan.{name}", value))
        train(f"{folder}/known.zarr", folder / "model", settings=settings)
        score(folder / "model", f"{folder}/new.zarr/X", folder / "scores")
    for name in ("known.csv", "new.csv", "scores/lock"):
        (folder / name).unlink()


def inline() -> AbstractContextManager[InlineWorkers]:
    return nullcontext(InlineWorkers())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
