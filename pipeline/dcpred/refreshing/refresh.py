"""`dcpred refresh`: a complete run of all rows that scores only what is new or changed.

Guarantees:

1. A block of an earlier finished run is reused if and only if model, outputs, blocks and arithmetic are the
   same, every input chunk below it has the same name, size and times of writing and change (tag) as when it
   was read, and rows of a table come from the same places of the same row groups, with the same types.
2. All other blocks are scored, and the run is verified and finished, as by `dcpred score`: status, verify,
   errors, --repair and resuming are the same.
3. Without a change, nothing is written.
4. A new run becomes the latest only if it is finished, its input did not change meanwhile, and it is within
   its limits. A run beyond them is not published; `publish` makes it the latest by hand.
5. Only finished runs beyond `keep` are removed, and never the latest.
6. One driver at a time has a root.
7. An input that shrank, or has another number of features or, unless it is a table, another dtype, is refused
   unless everything is scored (`full`).

The pointer to the latest run is replaced in one step, after everything else of the run was written: a process
that ends at any moment leaves readers a complete run.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import zarr

from dcpred.datasets.located import address_of_model
from dcpred.execution.events import by_name, is_heard, record_event
from dcpred.execution.lease import Lease, acquire_lock, lock_holder
from dcpred.execution.pools import started_once
from dcpred.public.functions import checked, typed
from dcpred.public.parameters import as_for
from dcpred.public.remarks import add_remarks, failing
from dcpred.public.results import PublicResult
from dcpred.refreshing.incremental_run import IncrementalRun, Job
from dcpred.refreshing.limits import Limits, drift_by_run, ignored_features, without_ignored
from dcpred.refreshing.parts import Parts, check_parts, check_run, find_parts
from dcpred.refreshing.root import Root, Settings, is_root, open_root
from dcpred.runs.bad_rows import BadRowLimit, without_score
from dcpred.runs.latest import latest_run, point_to
from dcpred.runs.manifest import run_remarks
from dcpred.scoring.blocks import FailurePolicy
from dcpred.scoring.planning import check_outputs, plan_run
from dcpred.scoring.request import Request, requested_columns, requested_pool
from dcpred.scoring.score import score
from dcpred_tasks.artifacts.block_files import ZARR
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.artifacts.model_artifact import Artifact, open_artifact
from dcpred_tasks.errors import DataError, IncompleteError, PlanConflictError, SettingsError
from dcpred_tasks.model.uncertainty import DEFAULT_ALPHA
from dcpred_tasks.result_fields import Unit, measured, result_class, result_field
from dcpred_tasks.scoring.drift_fields import Drift, drift_remarks
from dcpred_tasks.scoring.outputs import columns as columns_of
from dcpred_tasks.scoring.scorer import arithmetic
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import Address, absolute, as_arguments, lasting
from dcpred_tasks.storage.patterns import is_pattern
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.tables.table_files import passed_over
from dcpred_tasks.task_bodies.score_block import models_that_score


@result_class
class PublishReport(PublicResult):
    """The runs that a publication by hand exchanged."""

    latest: str = result_field("Name of the run that is the latest now.", unit=Unit.TEXT, line="latest")
    before: str = result_field(
        'Name of the run that was the latest before; "" if there was none.',
        line="before",
        text=lambda r: r["before"] or "none",
    )


def _run_text(r: Mapping[str, Any]) -> str:
    state = {
        "published": "it is the latest now",
        "unchanged": "nothing changed; nothing was written",
        "kept": f"not published, limits exceeded: {r['why_kept']}",
        "left": f"left alone: {r['why_kept']}",
    }[str(r["state"])]
    if r["state"] == "unchanged" and r["taken_blocks"] + r["scored_blocks"]:
        state = "made again: it was missing or modified"
    return f"{r['run']}  ({state})"


def _rows_text(r: Mapping[str, Any]) -> str:
    n_bad = without_score(r["status"])
    return f"{r['n_rows']:,}" + (f", {n_bad:,} of them without a score" if n_bad else "")


@result_class
class RefreshReport(PublicResult):
    """The result of a refresh."""

    root: str = result_field("Directory or address of the runs.", unit=Unit.TEXT, line="root")
    run: str = result_field(
        "Name of the run with the scores of the current input, in `root/runs`.", line="run", text=_run_text
    )
    state: str = result_field(
        "published; unchanged: it was the latest already; kept: it is beyond its limits; left: a"
        " person replaced it by another one."
    )
    latest: str = result_field(
        'Name of the current latest run; "" if there is none.',
        line="latest",
        text=lambda r: r["latest"] or "none yet",
    )
    n_rows: int = result_field("Number of rows of the run.", line="rows", text=_rows_text)
    n_blocks: int = result_field(
        "Number of blocks of the run.",
        line="blocks",
        text="{n_blocks:,}; now {taken_blocks:,} reused and {scored_blocks:,} scored",
    )
    taken_blocks: int = result_field("Number of blocks that this call reused from an earlier run.")
    scored_blocks: int = result_field("Number of blocks that this call scored.")
    status: dict[str, int] = result_field("Number of rows by status code.")
    drift: dict[str, Any] = result_field(
        "Drift of all rows, as in the manifest.",
        of=Drift,
    )
    new_drift: dict[str, Any] | None = result_field(
        "Drift of the rows in blocks of this run that were not reused; None for a run that was the"
        " latest already.",
        of=Drift,
    )
    why_kept: str = result_field('Why another run is the latest; "" if none is.')
    removed: list[str] = result_field(
        "Names of the removed runs, which exceeded `keep`.", unit=Unit.TEXT, line="removed"
    )
    seconds: float = result_field("Time of the whole call, in seconds.", unit=Unit.SECONDS, line="seconds")
    gone: tuple[str, ...] = result_field(
        "Addresses of removed inputs, where there are several; their scores are kept.",
        default=(),
        line="gone",
        text=lambda r: [f"{', '.join(r['gone'])} (their scores stay)"] if r["gone"] else [],
    )


@typed
@as_for(score)
def refresh(
    model: Any,
    data: Any,
    root: str | Path,
    *,
    outputs: Sequence[str] | None = None,
    alpha: float | None = None,
    threshold: float | str | None = None,
    costs: Any = None,
    parquet: bool = False,
    id: Sequence[str] = (),
    x: str = "X",
    full: bool = False,
    keep: int | None = None,
    max_bad_rows: int | None = None,
    max_bad_fraction: float | None = None,
    max_drift: float | None = None,
    max_shift: float | None = None,
    ignore_drift: Sequence[str] | None = None,
    quarantine: bool = False,
    workers: int | None = None,
    client: Any = None,
    accept: Sequence[str] = (),
    on_alarm: str = "warn",
    verbose: bool = False,
) -> RefreshReport:
    """Score what is new or changed since the last run, and publish the complete result as `root/latest`.

    Parameters
    ----------
    model : str, Path or ServedModel
        Path or address of a model. A new model scores everything.
    data : str, Path, zarr.Array or zarr.Group
        Stored data: the path or address of a data set, or a pattern of several: ``"days/*.zarr"``.
    full : bool, default False
        Score everything, and fix data, outputs and blocks anew.
    keep : int, optional
        Number of newest finished runs to keep. By default all.
    max_bad_rows : int, optional
        Maximum number of rows without a score in a run to publish. By default no limit.
    max_bad_fraction : float, optional
        Maximum fraction of rows without a score in a run to publish, from 0 to 1. By default no limit.
    max_drift : float, optional
        Maximum population stability index of leaves, features and scores in a run to publish; 0.25 is large.
    max_shift : float, optional
        Maximum shift of a feature, in standard deviations, in a run to publish; 0.8 is large, as is a spread
        3 times as large or small.
    ignore_drift : sequence of str, optional
        Columns that `max_drift` and `max_shift` leave out, for example dates and counters, in which new rows
        always differ. A column that held out later rows is left out anyway. By default those of the last
        run.

    Returns
    -------
    RefreshReport
        The run, and whether it is the latest now.

    Raises
    ------
    IncompleteError
        If the run exceeds its limits and is not published. Its attribute `report` is the report.
    DcpredError
        What `score` raises.

    See Also
    --------
    publish : Make a run the latest by hand.
    status : List the runs.

    Notes
    -----
    ROOT/runs/NNNN-HASH are complete runs, as `score` makes them. A run reuses the blocks of an earlier one
    whose input is unchanged. Without any change, nothing is written. The first run fixes `outputs`, `alpha`,
    `threshold`, `costs`, `parquet` and `id`.
    """
    begin = time.perf_counter()
    columns = requested_columns(outputs, alpha, threshold, costs, parquet, id)
    limits = Limits(BadRowLimit(max_bad_rows, max_bad_fraction), max_drift, max_shift)
    path = address_of_model(model)
    X = _stored(data, x, path)
    pool = requested_pool(X, root, workers, client)
    request = Request(path, X, root, columns, FailurePolicy(quarantine), pool)
    if keep is not None and keep < 1:
        raise SettingsError(f"Cannot keep {keep} runs: the latest run always stays. Use 1 or more.")
    artifact, place = open_artifact(path), open_place(root)
    inputs = find_parts(X, x, path) if isinstance(X, str) and is_pattern(X) else []
    ignored_features(artifact, ignore_drift or ())
    given = Settings(absolute(X), ignore_drift=tuple(ignore_drift or ()), **vars(columns))
    if not is_root(place):
        open_root(place, given)
        for each in [part.x for part in inputs] or [X]:
            plan_run(replace(request, x=each))
    place.make_folder("")
    with acquire_lock(place) as lease:
        opened = open_root(place, given)
        if full:
            opened.settings = replace(opened.settings, data=given.data, **vars(columns))
        check_given(opened.settings, given, place.address)
        if ignore_drift is not None:
            opened.write(ignore_drift=given.ignore_drift)
        limits = replace(limits, ignored=ignored_features(artifact, (), opened.settings.ignore_drift))
        before = latest_run(place)
        with started_once(pool) if pool is not None else nullcontext() as same:
            job = _job(replace(request, columns=opened.settings.columns, pool=same), artifact, full=full)
            work: IncrementalRun | Parts
            if inputs:
                work = Parts(job, opened, inputs, before)
                name = work.run(limits)
            else:
                work = IncrementalRun(job, opened, given.data, before)
                name = work.run()
            report = _published(work, name, limits, keep, lease, begin)
    return checked(report, partial(check_published, report))


def _stored(data: Any, x: str, model: str | Path) -> Address:
    """The address of stored rows, or the pattern of several."""
    if (address := zarr_arrays.stored_address(data)) is not None:
        return address
    if isinstance(data, zarr.Group):
        data = zarr_arrays.address_of(data)
    if isinstance(data, str | Path):
        add_remarks(*passed_over(data))
        return str(data) if is_pattern(str(data)) else find_rows(data, x, model)
    raise DataError(
        f"Cannot refresh from a value of type {type(data).__name__}: it is not stored. Pass the path or"
        " address of Zarr data, or a Zarr array of a store."
    )


def _job(request: Request, artifact: Artifact, *, full: bool) -> Job:
    """The request, with the output columns that the model gives."""
    columns = request.columns
    outputs, alpha = check_outputs(columns.outputs, str(artifact.body.get("task")), columns.alpha)
    given = columns_of(outputs, alpha)
    return Job(
        request=replace(request, columns=replace(columns, outputs=outputs, alpha=alpha)),
        model_hash=artifact.hash,
        arithmetic=cache(lambda: arithmetic(*models_that_score(artifact.model(), given))),
        full=full,
    )


def check_given(settled: Settings, given: Settings, address: str) -> None:
    """Raise PlanConflictError if the request differs from what the first run fixed."""
    if lasting(settled.data) != lasting(given.data):
        so = f"runs of {lasting(settled.data)}, not of {lasting(given.data)}"
    elif given.outputs is not None and set(given.outputs) != set(settled.outputs or ()):
        fixed, asked = ",".join(settled.outputs or ("all",)), ",".join(given.outputs)
        so = f"runs with {fixed} as outputs, not {asked}"
    elif given.alpha is not None and given.alpha != (settled.alpha or DEFAULT_ALPHA):
        so = f"runs with alpha {settled.alpha or DEFAULT_ALPHA:g}, not {given.alpha:g}"
    elif given.costs is not None and given.costs != settled.costs:
        so = "runs with another threshold or other costs"
    elif given.artifacts not in ((ZARR,), settled.artifacts):
        so = "runs without Parquet files"
    elif given.artifacts != (ZARR,) and given.ids != settled.ids:
        so = "runs with other ids in Parquet files"
    else:
        return
    raise PlanConflictError(
        f"Cannot refresh {address}: it holds {so}. Choose another root, use the same, or score everything"
        " with --full."
    )


def _published(
    work: IncrementalRun | Parts, name: str, limits: Limits, keep: int | None, lease: Lease, begin: float
) -> RefreshReport:
    """Make a run the latest if allowed, and report."""
    root, before = work.root, work.latest
    manifest, why, state, new = root.manifest(name), "", "unchanged", None
    remarks = run_remarks(manifest, root.address(name))
    if name != before:
        state = "published"
        if isinstance(work, Parts):
            why = work.beyond
        else:
            limited = without_ignored(limits, root, name, manifest)
            drifts = drift_by_run(root, name, before, limited, limits.ignored)
            why, new = "; ".join(limits.exceeded(name, limited, drifts)), drifts.get(name)
            remarks += drift_remarks(new, "of the new rows ", root.address(name)) if before else []
        why = why or "; ".join(each.text for each in failing(remarks))
        if name in root.settings.passed_over:
            why, state = f"a person replaced it by {before}", "left"
        elif why:
            state = "kept"
        else:
            lease.check()
            point_to(root.place, name)
            root.write(passed_over=())
    latest = before if why else name
    removed = []
    if keep is not None:
        removed = prune(root, keep, latest, name)
        removed += work.remove_unused() if isinstance(work, Parts) else []
    report = RefreshReport(
        root=root.place.address,
        run=name,
        state=state,
        latest=latest,
        n_rows=manifest["n_rows"],
        n_blocks=manifest["n_blocks"],
        taken_blocks=work.reused,
        scored_blocks=work.scored,
        status=manifest["status"],
        drift=manifest["drift"],
        new_drift=new,
        why_kept=why,
        removed=removed,
        seconds=time.perf_counter() - begin,
        gone=work.gone if isinstance(work, Parts) else (),
    )
    if is_heard():
        _tell_refreshed(report)
    add_remarks(*remarks, report=report, fails=state == "kept")
    return report


def _tell_refreshed(report: RefreshReport) -> None:
    record_event(
        "refreshed",
        "warning" if report.state == "kept" else "info",
        root=report.root,
        state=report.state,
        refreshed_run=report.run,
        latest=report.latest,
        rows=report.n_rows,
        blocks=report.n_blocks,
        taken_blocks=report.taken_blocks,
        scored_blocks=report.scored_blocks,
        status=by_name(report.status),
        drift=measured(Drift, report.drift),
        why_kept=report.why_kept,
    )


def prune(root: Root, keep: int, latest: str, newest: str = "") -> list[str]:
    """Remove finished runs but the latest and the newest: `keep` stay, and `newest` in any case. Returns
    the names of removed runs. A run under repair stays.
    """
    others = [name for name in root.finished() if name != latest]
    beyond = [name for name in others[keep - 1 :] if name != newest]
    gone = [name for name in beyond if not lock_holder(open_place(root.address(name)))]
    for name in gone:
        root.remove(name)
    return gone


@typed
def publish(root: str | Path, run: str) -> PublishReport:
    """Make a finished run of a refresh the latest, also an older one.

    Parameters
    ----------
    run : str
        Name of the run, as `status` lists it.

    Returns
    -------
    PublishReport
        The latest run now, and the one before.

    Raises
    ------
    PlanConflictError
        If there is no such finished run.
    IncompleteError
        If it is modified or damaged.
    RunHeldError
        If a refresh is at work.
    """
    place = open_place(root)
    open_root(place)
    with acquire_lock(place) as lease:
        opened = open_root(place)
        finished = opened.finished()
        if run not in finished:
            raise PlanConflictError(
                f"Cannot make run {run} the latest of {place.address}: its finished runs are"
                f" {', '.join(finished) or 'none'}. Name one of them."
            )
        manifest = opened.manifest(run)
        if "parts" in manifest:
            check_parts(opened, manifest)
        else:
            check_run(opened.address(run))
        before = ""
        with suppress(PlanConflictError):  # A damaged pointer is rewritten.
            before = latest_run(place)
        newer = finished[: finished.index(run)]
        lease.check()
        opened.write(passed_over=tuple(newer))
        point_to(place, run)
    return PublishReport(run, before)


def check_published(report: RefreshReport) -> None:
    """Raise IncompleteError if a run is beyond its limits."""
    if report.state == "kept":
        latest = f"{report.latest} stays the latest" if report.latest else "there is no latest run"
        raise IncompleteError(
            f"Cannot publish {report.run}: it is beyond its limits ({report.why_kept}), and {latest}. Look at"
            f" it in {report.root}/runs, and publish it with `dcpred refresh {as_arguments(report.root)}"
            f" --publish {report.run}` if it is right."
        )
