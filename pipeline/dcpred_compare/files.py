"""The files of a comparison, which its driver, its processes and its page read:

FOLDER/
  compare.json        what is compared: data, rows, seed, and every point with its settings
  rows.npz            the rows, drawn once
  points/NAME.json    the result of a point, NAME.npz its predictions of the test rows
  table.csv, table.md, score_against_cost.png, kernel_error.png, report.html
"""

import json
from pathlib import Path
from typing import Any

from dcpred_tasks.storage.atomic_files import replace_bytes

REQUEST, ROWS, POINTS, PAGE = "compare.json", "rows.npz", "points", "report.html"
SHARED, KERNELS = "shared", "kernel_errors"  # points beside those of systems


def stored_result(folder: Path, point: str) -> dict[str, Any]:
    """The result of a point."""
    result: dict[str, Any] = json.loads((folder / POINTS / f"{point}.json").read_text(encoding="utf-8"))
    return result


def store_result(folder: Path, point: str, result: dict[str, Any]) -> None:
    replace_bytes(folder / POINTS / f"{point}.json", json.dumps(result).encode())
