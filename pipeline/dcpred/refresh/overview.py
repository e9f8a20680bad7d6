"""A table of the runs of a refresh: their content, and which is the latest."""

import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcpred.execution.held_places import lock_holder
from dcpred.refresh.root import Root, open_root
from dcpred.runs.latest import RUNS, latest_run
from dcpred.runs.ledger import MANIFEST
from dcpred.scoring.blocks import without_score
from dcpred_tasks.artifacts.commit_records import ScoreRun, list_records
from dcpred_tasks.storage.place import open_place, read_sealed_document


@dataclass(frozen=True)
class RunLine:
    """One run of a root."""

    run: str
    state: str
    """latest, finished, unfinished (another refresh resumes or removes it), or damaged (its manifest is
    modified).
    """
    ended: float | None
    """When it was finished, in seconds since 1970; None if it is not."""
    n_rows: int = 0
    n_blocks: int = 0
    done_blocks: int = 0
    """Blocks with a commit record."""
    taken_blocks: int = 0
    """Blocks that were reused from earlier runs."""
    n_bad: int = 0
    """Rows without a score."""
    drift_is_large: bool = False
    model_hash: str = ""


@dataclass(frozen=True)
class RootStatus:
    """The last runs of a root, the newest first."""

    root: str
    data: str
    """Address of the input."""
    latest: str
    """The latest run; "" if there is none yet."""
    driver: str
    """The current driver; "" if there is none."""
    n_runs: int
    """Number of runs."""
    runs: list[RunLine]


def root_status(root: str | Path, limit: int = 20) -> RootStatus:
    """The last `limit` runs, and the latest. Raises PlanConflictError if `root` is not one of a refresh."""
    place = open_place(root)
    found = open_root(place)
    latest, names = latest_run(place), found.names()
    shown = [name for number, name in enumerate(names) if number < limit or name == latest]
    lines = [_line(found, name, latest) for name in shown]
    return RootStatus(
        root=place.address,
        data=found.settings.data,
        latest=latest,
        driver=lock_holder(place),
        n_runs=len(names),
        runs=[line for line in lines if line is not None],
    )


def _line(root: Root, name: str, latest: str) -> RunLine | None:
    """A line of a run; None for an unknown one: its plan or, for a run of several parts, its manifest is
    not written yet.
    """
    file = f"{RUNS}/{name}/{MANIFEST}"
    run, standing = root.run(name), root.place.read(file)
    if standing is None or name in root.settings.unfinished:
        if run is None:
            return None
        n_blocks = -(-run.n_rows // run.block_rows)
        return RunLine(
            name, "unfinished", None, run.n_rows, n_blocks, len(list_records(run)), model_hash=run.model_hash
        )
    summary = _finished_fields(read_sealed_document(root.place, file), run)
    if summary is None:
        return RunLine(name, "damaged", standing.time)
    return RunLine(name, "latest" if name == latest else "finished", standing.time, **summary)


def _finished_fields(manifest: dict[str, Any] | None, run: ScoreRun | None) -> dict[str, Any] | None:
    """The fields of a finished run. None if its manifest has another shape, because anybody can make a
    checksum; or if it has no plan and is not a run of several parts.
    """
    if manifest is None or (run is None and "parts" not in manifest):
        return None
    try:
        n_rows, n_blocks = (operator.index(manifest[key]) for key in ("n_rows", "n_blocks"))
        return {
            "n_rows": n_rows,
            "n_blocks": n_blocks,
            "done_blocks": n_blocks,
            "taken_blocks": sum(manifest.get("taken_over", {}).values()),
            "n_bad": without_score(manifest["status"]),
            "drift_is_large": bool(manifest["drift"].get("large")),
            "model_hash": str(manifest["model_hash"]),
        }
    except (AttributeError, KeyError, TypeError):
        return None
