"""Models of every format, served with what dcpred-serving needs.

python tests/support/serve_formats.py tests/data/formats
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dcpred

BASELINES = "model-04"  # The package of baselines is not in dcpred-serving, and BLAS computes them.


def served(archive: Path, folder: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Decision values of an archived model: those of today, and the stored ones."""
    shutil.unpack_archive(archive, folder, filter="data")
    rows, expected = np.load(folder / "rows.npy"), np.load(folder / "decision.npy")
    return dcpred.load_model(folder / "model").decision_function(rows), expected


def main(formats: Path) -> None:
    for archive in sorted(formats.glob("model-*.tar.xz")):
        if archive.name.startswith(BASELINES):
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            found, expected = served(archive, Path(folder))
        largest = np.abs(found - expected).max()
        print(f"{archive.name}: largest difference {largest:g} of {np.abs(expected).max():g}")
        if not np.allclose(found, expected, rtol=1e-5, atol=1e-5):
            sys.exit(f"{archive.name} is scored otherwise")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
