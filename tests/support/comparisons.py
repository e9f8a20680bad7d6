"""Small comparisons: few points, tried in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dcpred_compare import comparison, trial
from dcpred_compare.baselines.leaf_model_type import leaf_model_types
from support.pools import inline


@contextmanager
def small_comparisons() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, sizes in (("TREES", (3,)), ("LANDMARKS", (8, 16)), ("NEAR", (8,))):
            patch.setattr(f"dcpred_compare.systems.{name}", sizes)
        for name, kind in leaf_model_types().items():
            if kind.counted:
                patch.setitem(leaf_model_types(), name, replace(kind, sizes=(8, 16)))
        for grid in ("WIDTHS", "LEARNED_WIDTHS", "OWN_PENALTIES"):
            patch.setattr(f"dcpred_compare.trial.{grid}", (1.0,))
        patch.setattr("dcpred_compare.trial.WIDTH_ROWS", 60)
        patch.setattr(trial, "COST_SECONDS", 0.01)
        patch.setattr("dcpred.execution.pools.connect", lambda *_: inline())
        patch.setattr(comparison, "run_points", run_here)
        yield


def run_here(folder: str, module: str, points: list[str], limit_seconds: float, stop: str) -> list[str]:
    for point in points:
        if not (Path(folder) / "points" / f"{point}.json").exists():
            trial.main(Path(folder), point, limit_seconds)
    return points
