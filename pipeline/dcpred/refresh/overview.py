"""The runs of a refresh, as a table: what each holds, and which is the latest."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcpred.execution.held_places import place_held_by
from dcpred.refresh.root import Root, open_root
from dcpred.runs.latest import RUNS, latest_run
from dcpred.runs.ledger import MANIFEST
from dcpred.scoring.blocks import without_score
from dcpred_tasks.artifacts.commit_records import list_records
from dcpred_tasks.storage.atomic_files import decoded
from dcpred_tasks.storage.place import open_place


@dataclass(frozen=True)
class RunLine:
    """One run of a root."""

    run: str
    state: str
    """latest, finished, or unfinished (another refresh goes on with it or removes it)."""
    ended: float | None
    """When it was finished, in seconds since 1970; None where it is not."""
    n_rows: int
    n_blocks: int
    done_blocks: int
    """Blocks that have a commit record."""
    taken_blocks: int
    """Blocks that were taken over from earlier runs."""
    n_bad: int
    """Rows without a score."""
    drift_is_large: bool
    model_hash: str


@dataclass(frozen=True)
class RootStatus:
    """The last runs of a root, the newest first."""

    root: str
    data: str
    """Address of the input."""
    latest: str
    """The latest run; "" where there is none yet."""
    driver: str
    """Who refreshes now, in words; "" where nobody does."""
    n_runs: int
    """Runs that there are."""
    runs: list[RunLine]


def root_status(root: str | Path, limit: int = 20) -> RootStatus:
    """The last `limit` runs, and the latest. Raises PlanConflictError where `root` is none of a refresh."""
    place = open_place(root)
    found = open_root(place)
    latest, names = latest_run(place), found.names()
    shown = [name for number, name in enumerate(names) if number < limit or name == latest]
    lines = [_line(found, name, latest) for name in shown]
    return RootStatus(
        root=place.address,
        data=found.settings.data,
        latest=latest,
        driver=place_held_by(place),
        n_runs=len(names),
        runs=[line for line in lines if line is not None],
    )


def _line(root: Root, name: str, latest: str) -> RunLine | None:
    """A run that has a plan, or a manifest of several parts; or None."""
    run = root.run(name)
    if run is None:
        return _line_of_parts(root, name, latest)
    standing = root.place.read(f"{RUNS}/{name}/{MANIFEST}")
    ended = None if standing is None or name in root.settings.unfinished else standing.time
    manifest = _manifest(standing.data if standing is not None and ended is not None else b"{}")
    n_blocks = -(-run.n_rows // run.block_rows)
    return RunLine(
        run=name,
        state="unfinished" if ended is None else "latest" if name == latest else "finished",
        ended=ended,
        n_rows=run.n_rows,
        n_blocks=n_blocks,
        done_blocks=len(list_records(run)) if ended is None else n_blocks,
        taken_blocks=sum(manifest.get("taken_over", {}).values()),
        n_bad=without_score(manifest.get("status", {})),
        drift_is_large=bool(manifest.get("drift", {}).get("large")),
        model_hash=run.model_hash,
    )


def _line_of_parts(root: Root, name: str, latest: str) -> RunLine | None:
    standing = root.place.read(f"{RUNS}/{name}/{MANIFEST}")
    told = _manifest(standing.data) if standing is not None else {}
    if standing is None or "parts" not in told or name in root.settings.unfinished:
        return None
    return RunLine(
        run=name,
        state="latest" if name == latest else "finished",
        ended=standing.time,
        n_rows=told["n_rows"],
        n_blocks=told["n_blocks"],
        done_blocks=told["n_blocks"],
        taken_blocks=0,
        n_bad=without_score(told["status"]),
        drift_is_large=bool(told["drift"]["large"]),
        model_hash=told["model_hash"],
    )


def _manifest(data: bytes) -> dict[str, Any]:
    try:
        return decoded(data, MANIFEST)
    except ValueError:
        return {}
