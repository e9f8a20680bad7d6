"""Exported models against the engine: labels, decision values and time for a row.

    python tests/benchmarks/exported.py [--rows 1000000] [--quick]

Five small models (support/exported.py) become ONNX graphs and C sources. onnxruntime (one thread, on the CPU)
and the compiled source (gcc -O3 -march=native) predict the same float32 rows as the engine, batch after batch
in turn. Times are processor times of this process, medians over batches. A difference of decision values is
the largest one on the scale of the leaves; in brackets as a fraction of the stated error of the engine, 1e-6
of the size of the sums of the row.
"""

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from common import Table
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from threadpoolctl import threadpool_limits

import dcpred
from dcpred_tasks.model.compact_model import summed_sizes
from dcpred_tasks.scoring.scorer import score_rows, warm_up
from support import exported

STATED = 1e-6
COLUMNS = ("ONNX: equal labels", "largest difference", "ns")


class Tally:
    """What one exported file showed so far."""

    def __init__(self) -> None:
        self.equal, self.rows, self.off, self.share = 0, 0, 0.0, 0.0
        self.ns: list[float] = []

    def cells(self, labelled: bool) -> tuple[str, str, str]:
        labels = f"{self.equal:,} of {self.rows:,}" if labelled else "–"
        return labels, f"{self.off:.1e} ({self.share:.2f})", f"{np.median(self.ns):,.0f}"


def timed(function: Any, X: NDArray[Any]) -> tuple[Any, float]:
    """What a function returns of rows, and nanoseconds for a row."""
    start = time.process_time()
    found = function(X)
    return found, (time.process_time() - start) * 1e9 / len(X)


def compare(kind: str, n_rows: int, folder: Path, table: Table) -> None:
    served = exported.make_served(kind)
    model, classes = served.model, served.classes_
    paths = [folder / f"{kind.replace(' ', '_')}.{ending}" for ending in ("onnx", "c")]
    for path in paths:
        dcpred.export_model(served, path)
    ways = [exported.run_onnx(paths[0]), exported.run_c(paths[1])]
    calls = [ways[0], lambda X: ways[1](X, probability=False)]
    tallies, engine = (Tally(), Tally()), []
    warm_up(model)
    for seed in range(-(-n_rows // exported.BATCH)):
        X = exported.encoded_rows(kind, min(n_rows, exported.BATCH), seed)
        (right, _), ns = timed(lambda rows: score_rows(model, rows), X)
        engine.append(ns)
        stated = STATED * (1 + np.sum(summed_sizes(model, X), axis=0))
        labels = served.predict(X)
        for call, tally in zip(calls, tallies, strict=True):
            found, ns = timed(call, X)
            off = exported.off(model, found["decision"], right)
            tally.ns.append(ns)
            tally.rows += len(X)
            tally.off, tally.share = max(tally.off, off.max()), max(tally.share, (off / stated).max())
            if len(classes):
                own = found["label"] if tally is tallies[0] else classes[found["label"]]
                tally.equal += int((own == labels).sum())
    cells = [cell for tally in tallies for cell in tally.cells(len(classes) > 0)]
    ratio = np.median(tallies[1].ns) / np.median(engine)
    table.add(kind, *cells, f"{np.median(engine):,.0f}", f"{ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rows")
    options = parser.parse_args()
    table = Table("model", *COLUMNS, "C: equal labels", "largest difference", "ns", "engine ns", "C / engine")
    with TemporaryDirectory() as folder, threadpool_limits(1):
        for kind in exported.KINDS:
            compare(kind, options.rows // 100 if options.quick else options.rows, Path(folder), table)
    table.show()


if __name__ == "__main__":
    main()
