"""The root of a refresh: its runs, the published one, and their state."""

import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from dcpred.execution.block_plan import BlockBoundaries
from dcpred.execution.lease import LEASE_FILES, lock_holder
from dcpred.public.functions import typed
from dcpred.public.results import PublicResult
from dcpred.runs.bad_rows import without_score
from dcpred.runs.latest import INPUTS, MANIFEST, PARTS, PLAN, RUN_NAME, RUNS, SETTINGS, latest_run
from dcpred.runs.ledger import Ledger, completed, stored_run
from dcpred.runs.manifest import plan_digest, run_remarks
from dcpred.runs.status import RunStatus, run_status
from dcpred.scoring.request import Columns
from dcpred_tasks.annotations import from_document
from dcpred_tasks.artifacts.block_files import ZARR
from dcpred_tasks.artifacts.commit_records import ScoreRun, list_records
from dcpred_tasks.errors import PlanConflictError
from dcpred_tasks.model.label_rule import Costs, is_cost
from dcpred_tasks.model.uncertainty import LARGEST_ALPHA, LEAST_ALPHA
from dcpred_tasks.result_fields import Listing, Unit, result_class, result_field
from dcpred_tasks.storage.addresses import Address, below, read_address, stored_text
from dcpred_tasks.storage.atomic_files import is_system_file
from dcpred_tasks.storage.place import (
    open_place,
    read_document,
    read_own_document,
    read_sealed,
    write_document,
)
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.storage.store_requests import each_of
from dcpred_tasks.storage.stored_chunks import InputState, read_inputs, write_inputs

FORMAT, VERSION = "dcpred-refresh", 1
# What a root may hold before its settings are written.
OURS = re.compile(rf"{LEASE_FILES.pattern}|{RUNS}|{PARTS}|.*\.partial-[0-9a-f]{{12}}")


RunName = Annotated[str, RUN_NAME.fullmatch]


@dataclass(frozen=True)
class Settings:
    """The content of refresh.json."""

    data: Address
    """Address of X, or the pattern of several."""
    outputs: tuple[str, ...] | None = None
    """Requested output columns; None for the default of the model."""
    alpha: Annotated[float, lambda alpha: LEAST_ALPHA <= alpha <= LARGEST_ALPHA] | None = None
    """Fraction of rows outside of intervals; None: the default."""
    costs: Annotated[Costs, lambda costs: all(map(is_cost, costs))] | None = None
    """Costs of labels; None: labels follow decision values."""
    cut: BlockBoundaries | None = None
    """The blocks of runs; None before the first."""
    form: str = ""
    """Digest of the form of the input that the blocks were made for (`InputState.form`)."""
    unfinished: tuple[RunName, ...] = ()
    """Runs that are being made or removed: they have no guarantee."""
    artifacts: tuple[str, ...] = (ZARR,)
    """What each block of a run leaves (dcpred_tasks.artifacts.block_files)."""
    ids: tuple[str, ...] = ()
    """Requested columns before the scores in tables; empty for the default."""
    passed_over: tuple[RunName, ...] = ()
    """Finished runs that a person replaced by an older one."""
    ignore_drift: tuple[str, ...] = ()
    """Columns that the limits of drift leave out."""

    @property
    def columns(self) -> Columns:
        return Columns(self.outputs, self.alpha, self.costs, self.artifacts, self.ids)


@dataclass(frozen=True, kw_only=True)
class RunTotals:
    """Totals of a finished run, as its manifest states them. That of several parts states nothing else."""

    parts: dict[str, Any] | None = None  # the run of each
    model_hash: str
    n_rows: int
    n_blocks: int
    status: dict[str, int]
    drift: dict[str, Any]
    taken_over: dict[str, int] = field(default_factory=dict)


class Root:
    """The root of a refresh, and its current settings."""

    def __init__(self, place: Place, settings: Settings) -> None:
        self.place, self.settings = place, settings

    def write(self, **changes: Any) -> None:
        """Change settings. Writes them only if they differ or are new."""
        settings = replace(self.settings, **changes)
        if settings != self.settings or self.place.read(SETTINGS) is None:
            value = {"format": FORMAT, "version": VERSION, **asdict(settings)}
            write_document(self.place, SETTINGS, value | {"data": stored_text(settings.data)})
        self.settings = settings

    def names(self) -> list[str]:
        """All runs, the newest first."""
        names = [name for name in self.place.names(RUNS) if RUN_NAME.fullmatch(name)]
        return sorted(names, key=run_number, reverse=True)

    def finished(self) -> list[str]:
        """Complete runs, the newest first. Does not read their manifests."""
        names = self.names()
        present = self.place.present(f"{RUNS}/{name}/{MANIFEST}" for name in names)
        return [
            name
            for name in names
            if name not in self.settings.unfinished and f"{RUNS}/{name}/{MANIFEST}" in present
        ]

    def is_finished(self, name: str) -> bool:
        manifest = f"{RUNS}/{name}/{MANIFEST}"
        return name not in self.settings.unfinished and manifest in self.place.present([manifest])

    def address(self, name: str) -> str:
        """The address of a run."""
        return below(self.place.address, RUNS, name)

    def run(self, name: str) -> ScoreRun | None:
        """A run, None if its plan is missing or damaged."""
        return stored_run(self.address(name))

    def is_whole(self, run: ScoreRun) -> bool:
        """Whether the plan of a finished run is the one in its manifest."""
        ledger = Ledger(run, -(-run.n_rows // run.block_rows))
        manifest = ledger.whole_manifest()
        return manifest is not None and manifest.get("plan") == plan_digest(ledger)

    def planned(self, names: Iterable[str]) -> Iterator[tuple[str, ScoreRun]]:
        """The runs of these names that have a plan, in the same order; reads only the plans."""
        for name, run in each_of(self.place, self.run, names):
            if run is not None:
                yield name, run

    def begin(self, name: str, state: InputState, *, full: bool, **changes: Any) -> None:
        """Make the folder of a new run, with the state of the input before anything of it is read.

        1. Settings name the run as unfinished: no reader takes it for a finished one.
        2. Its input is written, before its plan: a run without it is not resumed.
        """
        self.write(unfinished=(*self.settings.unfinished, name), **changes)
        self.place.make_folder(f"{RUNS}/{name}")
        write_inputs(self.place, f"{RUNS}/{name}/{INPUTS}", state, full=full)

    def end(self, name: str) -> None:
        """Mark a run as finished."""
        self.write(unfinished=tuple(other for other in self.settings.unfinished if other != name))

    def state(self, name: str) -> InputState | None:
        """The state of a run's input when it was read; None if it is unknown."""
        inputs = read_inputs(self.place, f"{RUNS}/{name}/{INPUTS}")
        return None if inputs is None else inputs[0]

    def is_full(self, name: str) -> bool:
        """Whether a run was begun with `full`: nothing was reused."""
        inputs = read_inputs(self.place, f"{RUNS}/{name}/{INPUTS}")
        return inputs is not None and inputs[1]

    def manifest(self, name: str) -> dict[str, Any]:
        """The manifest of a finished run. Raises PlanConflictError if it is damaged."""
        return read_own_document(self.place, f"{RUNS}/{name}/{MANIFEST}") or {}

    def remove(self, name: str) -> None:
        """Remove a run, its input first, which invalidates it. A link is removed without its target."""
        self.write(unfinished=tuple({*self.settings.unfinished, name}))
        folder = f"{RUNS}/{name}"
        if self.place.links is not None and (self.place.links / folder).is_symlink():
            self.place.remove(folder)
        for file in (INPUTS, MANIFEST, PLAN):
            self.place.remove(f"{folder}/{file}")
        if self.place.folder is not None:
            # A process may have ended before it made the folder.
            if (self.place.folder / folder).is_dir():
                shutil.rmtree(self.place.folder / folder)
        else:
            for _ in each_of(self.place, self.place.remove, self.place.listing(folder)):
                pass
        self.end(name)


def run_number(name: str) -> int:
    return int(name.partition("-")[0])


def is_root(place: Place) -> bool:
    """Whether a refresh was begun there."""
    return place.read(SETTINGS) is not None


def open_root(place: Place, new: Settings | None = None) -> Root:
    """The root that lies there, or is not begun yet if `new`. Raises PlanConflictError for something else."""
    try:
        value = read_document(place, SETTINGS)
    except (ValueError, IsADirectoryError):
        raise _damaged(place) from None
    if value is not None:
        return Root(place, _parsed(place, value))
    if new is None:
        raise PlanConflictError(
            f"Cannot find a root of `dcpred refresh` at {place.address}: it holds no {SETTINGS}. Name"
            " another."
        )
    names = place.names("") if place.is_there() else set()
    other = sorted(name for name in names if not OURS.fullmatch(name) and not is_system_file(name))
    if other:
        raise PlanConflictError(
            f"Cannot refresh into {place.address}: it holds other files ({other[0]}). Name a new directory."
        )
    return Root(place, new)


def _parsed(place: Place, document: dict[str, Any]) -> Settings:
    version = document.get("version")
    if document.get("format") == FORMAT and isinstance(version, int) and version <= VERSION:
        with suppress(ValueError):
            return from_document(Settings, completed(document) | {"data": read_address(document.get("data"))})
    raise _damaged(place)


def _damaged(place: Place) -> PlanConflictError:
    return PlanConflictError(
        f"Cannot read {place.address}/{SETTINGS}: this version of dcpred did not write it. Restore it, or"
        " refresh into a new directory."
    )


def _ended_text(r: Mapping[str, Any]) -> str:
    if r["state"] == "unfinished":
        return f"{r['done_blocks']:,} blocks done"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(r["ended"])) if r["ended"] else "–"


@result_class
class RunLine:
    """One run of a root."""

    run: str = result_field("Name of the run.", unit=Unit.TEXT, column="run")
    state: str = result_field(
        "latest, finished, unfinished (another refresh resumes or removes it), or damaged (its"
        " manifest is modified).",
        unit=Unit.TEXT,
        column="state",
    )
    ended: float | None = result_field(
        "When it was finished, in seconds since 1970; None if it is not.",
        column="finished",
        text=_ended_text,
        unit=Unit.TEXT,
    )
    n_rows: int = result_field("Number of rows.", default=0, unit=Unit.COUNT, column="rows")
    n_blocks: int = result_field("Number of blocks.", default=0, unit=Unit.COUNT, column="blocks")
    done_blocks: int = result_field("Number of blocks with a commit record.", default=0)
    taken_blocks: int = result_field(
        "Number of blocks that were reused from earlier runs.", default=0, unit=Unit.COUNT, column="reused"
    )
    n_bad: int = result_field("Number of rows without a score.", default=0, unit=Unit.COUNT, column="bad")
    drift_is_large: bool = result_field(
        "Whether the drift of the run exceeds a threshold.",
        default=False,
        column="drift",
        text=lambda r: "large" if r["drift_is_large"] else "–",
        unit=Unit.TEXT,
    )
    model_hash: str = result_field("Hash of the model of the run.", default="")
    remarks: tuple[str, ...] = result_field("Codes of the remarks on its rows.", default=())


def _runs_listing(r: Mapping[str, Any]) -> Listing:
    more = r["n_runs"] - len(r["runs"])
    return Listing(r["runs"], more=f"and {more:,} more" if more > 0 else "")


@result_class
class RootStatus(PublicResult):
    """The last runs of a root, the newest first."""

    root: str = result_field("Directory or address of the runs.", unit=Unit.TEXT, line="root")
    data: str = result_field("Address of the input.", unit=Unit.TEXT, line="data")
    latest: str = result_field(
        'Name of the latest run; "" if there is none yet.',
        line="latest",
        text=lambda r: r["latest"] or "none yet",
    )
    driver: str = result_field(
        'Host and process of the current driver; "" if there is none.',
        line="driver",
        text=lambda r: r["driver"] and f"{r['driver']} refreshes it now",
    )
    n_runs: int = result_field("Number of runs.")
    runs: list[RunLine] = result_field("The last runs, the newest first.", table=_runs_listing)


@typed
def status(output: str | Path) -> RunStatus | RootStatus:
    """Report the progress of a scoring run, or the last runs of a refresh.

    Parameters
    ----------
    output : str or Path
        The output of `score`, or the root of `refresh`.

    Returns
    -------
    RunStatus or RootStatus
        What is done, failing and left, the speed and the time left; or the runs, the newest first.

    Raises
    ------
    PlanConflictError
        If it is neither.

    Notes
    -----
    It works during scoring, and needs neither the model nor the data.
    """
    return root_status(output) if is_root(open_place(output)) else run_status(output)


def root_status(root: str | Path, limit: int = 20) -> RootStatus:
    """The last `limit` runs, and the latest. Raises PlanConflictError if `root` is not one of a refresh."""
    place = open_place(root)
    opened = open_root(place)
    latest, names = latest_run(place), opened.names()
    shown = [name for number, name in enumerate(names) if number < limit or name == latest]
    lines = [_line(opened, name, latest) for name in shown]
    return RootStatus(
        root=place.address,
        data=str(opened.settings.data),
        latest=latest,
        driver=lock_holder(place),
        n_runs=len(names),
        runs=[line for line in lines if line is not None],
    )


def _line(root: Root, name: str, latest: str) -> RunLine | None:
    """A line of a run; None for one whose plan or, with several parts, manifest is not written yet."""
    file = f"{RUNS}/{name}/{MANIFEST}"
    run, manifest = root.run(name), root.place.read(file)
    if manifest is None or name in root.settings.unfinished:
        if run is None:
            return None
        n_blocks = -(-run.n_rows // run.block_rows)
        return RunLine(
            name, "unfinished", None, run.n_rows, n_blocks, len(list_records(run)), model_hash=run.model_hash
        )
    finished = read_sealed(RunTotals, root.place, file)
    if finished is None or (run is None and finished.parts is None):
        return RunLine(name, "damaged", manifest.time)
    return RunLine(
        name,
        "latest" if name == latest else "finished",
        manifest.time,
        n_rows=finished.n_rows,
        n_blocks=finished.n_blocks,
        done_blocks=finished.n_blocks,
        taken_blocks=sum(finished.taken_over.values()),
        n_bad=without_score(finished.status),
        drift_is_large=bool(finished.drift.get("large")),
        model_hash=finished.model_hash,
        remarks=tuple(remark.code for remark in run_remarks(vars(finished), name)),
    )
