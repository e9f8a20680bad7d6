"""Results of a finished run: its manifest, and the report to its caller."""

import json
import platform
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred.execution.block_plan import BlockPlan
from dcpred.execution.events import by_name, is_heard, record_event
from dcpred.public.remarks import add_remarks
from dcpred.public.results import PublicResult, and_more, memory_text, plain, speed_text
from dcpred.runs.bad_rows import names_of_features, unscored_text, without_score
from dcpred.runs.latest import PLAN
from dcpred.runs.ledger import FORMAT, VERSION, Ledger
from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun
from dcpred_tasks.artifacts.repeats import HashSample
from dcpred_tasks.artifacts.trained_rows import TrainedRows
from dcpred_tasks.dtypes import Status
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.moments import raw_moments
from dcpred_tasks.process import peak_memory_bytes, versions
from dcpred_tasks.remarks import Remark, remark
from dcpred_tasks.result_fields import ABSENT, Unit, document_of, measured, result_class, result_field
from dcpred_tasks.schema.unknown_categories import UnknownCategories, joined, unknown_remark
from dcpred_tasks.scoring.drift import describe_drift
from dcpred_tasks.scoring.drift_fields import Drift, drift_remarks
from dcpred_tasks.scoring.labels import Label
from dcpred_tasks.scoring.outputs import OUTPUT_COLUMNS
from dcpred_tasks.scoring.statistics import Statistics, decision_edges
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.addresses import Address, as_arguments
from dcpred_tasks.storage.digests import digest, digest_json, sealed
from dcpred_tasks.task_bodies.score_block import IDS, LISTED_ROWS, ROWS, UNKNOWN, planned_artifact
from dcpred_tasks.task_bodies.zarr_chunks import metadata_name


@dataclass(frozen=True)
class Done:
    """Scored blocks, and the seconds of scoring."""

    blocks: int
    seconds: float


@result_class
class WorkerSeconds:
    read: float = result_field("Reading, in seconds.")
    score: float = result_field("Scoring, in seconds.")
    statistics: float = result_field("Statistics, in seconds.")
    write: float = result_field("Writing, in seconds.")


@result_class
class InputFacts:
    shape: list[int] = result_field("Its shape.")
    dtype: str = result_field("Its data type.")
    metadata_hash: str = result_field("Hash of its metadata.")


@result_class
class DecisionHistogram:
    edges: list[float] = result_field("Edges of its bins.")
    counts: list[int] = result_field("Number of rows in each bin.")


@result_class
class LabelRows:
    label: Label = result_field("The label.")
    rows: int = result_field("Number of rows with it.")


@result_class
class ScoreStatistics:
    decision: DecisionHistogram = result_field("Histogram of decision values or predictions.")
    labels: list[LabelRows] | None = result_field("Rows by label; None if labels were not written.")
    sampled_rows: int = result_field("Number of sampled rows.")
    feature_mean: list[float | None] = result_field("Mean of each feature.")
    feature_sd: list[float | None] = result_field("Standard deviation of each feature.")
    feature_gaps: list[float | None] = result_field(
        "Fraction of rows that lack each feature.", when="missing values"
    )
    leaf_rows: list[int] = result_field("Number of rows in each leaf.")


@result_class
class Totals:
    """Totals of commit records."""

    n_blocks: int = result_field("Number of blocks.")
    status: dict[str, Any] = result_field("Number of rows by status code.")
    status_names: dict[str, Any] = result_field("Names of the statuses by code.")
    bad_rows: list[tuple[int, int, int]] = result_field(
        "The first rows without a score: row, status code, first bad feature or -1."
    )
    digest: str = result_field("Digest of all scores.")
    worker_seconds: WorkerSeconds = result_field("Processor time of all workers.")
    worker_peak_memory_bytes: dict[str, Any] = result_field("Peak memory in bytes, by host:pid.")
    taken_over: dict[str, int] = result_field(
        "Their number, by the run that scored them.", when="reused blocks of a refresh"
    )


@result_class
class RunFacts:
    """What the model, the input and the commit records of a run state."""

    settings_hash: str = result_field("Hash of the settings of the model.")
    input: InputFacts = result_field("The scored array.")
    cpus: dict[str, Any] = result_field("Number of blocks by processor.")
    statistics: ScoreStatistics = result_field("Statistics of the scores, and of the sampled rows.")
    drift: Drift = result_field("Differences from the training rows.")
    unknown_categories: list[UnknownCategories] = result_field(
        "Columns of a table with categories that the model does not know."
    )
    repeated_rows: int = result_field(
        "About how many rows repeat an earlier one; 0 where chance explains them, or nothing is known."
    )
    repeated_ids: int = result_field("About how many rows have the id of an earlier one.")


@result_class
class Manifest(RunFacts, Totals):
    """The manifest of a finished run."""

    plan: str = result_field("Digest of plan.json.")
    metadata: dict[str, Any] = result_field("Digests of metadata by file.")
    input_changed: bool = result_field("Whether the input was restored since the run was planned.")
    input_run: str = result_field("The hash that a run of the current input has.")
    scored_blocks_last_call: int = result_field("Number of blocks that the last call scored.")
    versions: dict[str, Any] = result_field("Versions by package.")
    machine: str = result_field("Architecture of the processor.")
    checksum: str = result_field("Digest of this document without this key.", default=ABSENT)


def _rows_text(r: Mapping[str, Any]) -> str:
    names = r["manifest"]["status_names"]
    status = ", ".join(f"{n:,} {names[code].replace('_', ' ')}" for code, n in r["status"].items())
    return f"{r['n_rows']:,} ({status})"


def _bad_rows_text(r: Mapping[str, Any]) -> str | None:
    names = r["manifest"]["status_names"]
    columns = {int(feature): name for feature, name in r["bad_features"].items()}
    rows = [
        f"{row} ({unscored_text(names[str(code)], feature, columns.get(feature))})"
        for row, code, feature in r["bad_rows"][:5]
    ]
    return and_more(rows, without_score(r["status"])) if rows else None


@result_class
class ScoreReport(PublicResult):
    """The result of a scoring run."""

    output: str = result_field("Path or address of the output.", line="output", unit=Unit.TEXT)
    n_rows: int = result_field("Number of rows.", line="rows", text=_rows_text)
    n_blocks: int = result_field(
        "Number of blocks.",
        line="blocks",
        text="{n_blocks:,}, of which {scored_blocks:,} were scored now; all verified",
    )
    scored_blocks: int = result_field("Number of blocks that this call scored; the others were done before.")
    seconds: float = result_field("Time of the whole call, in seconds.")
    rows_per_second: float = result_field(
        "Rate of scoring in rows per second, without the start of the workers; 0 if there was nothing to do.",
        line="speed",
        text=speed_text,
    )
    status: dict[str, int] = result_field("Number of rows by status code.")
    bad_rows: list[tuple[int, int, int]] = result_field(
        "The first rows without a score: row, status code, first bad feature or -1.",
        line="not scored",
        text=_bad_rows_text,
    )
    bad_features: dict[str, str] = result_field(
        "Names of these features by number; empty if the input names none."
    )
    worker_peak_memory_bytes: dict[str, int] = result_field(
        "Peak memory of each worker process in bytes, by host:pid.", line="peak memory", text=memory_text
    )
    driver_peak_memory_bytes: int = result_field("Peak memory of this process, in bytes.")
    manifest: dict[str, Any] = result_field(
        "The manifest, as in `output/manifest.json`.",
        of=Manifest,
    )


def make_manifest(ledger: Ledger, scored: int, input_run: str | None = None) -> dict[str, Any]:
    """The manifest with its checksum.

    scored     blocks that this call scored
    input_run  the hash that a plan would have now, if input chunks were restored since the run was planned
    """
    manifest = Manifest(
        **vars(totals(ledger.records())),
        **vars(describe_run(ledger.run, ledger.records())),
        plan=plan_digest(ledger),
        metadata=metadata_digests(ledger.run),
        input_changed=input_run not in (None, ledger.run.run),
        input_run=input_run or ledger.run.run,
        scored_blocks_last_call=scored,
        versions=versions(),
        machine=platform.machine(),
    )
    return sealed({"format": FORMAT, "version": VERSION, **ledger.run.stated(), **document_of(manifest)})


def totals(records: Iterable[CommitRecord]) -> Totals:
    """Totals of the commit records. They are read once and not stored."""
    status, origins = Counter[str](), Counter[str]()
    bad: list[tuple[int, int, int]] = []
    peaks: dict[str, int] = {}
    seconds, digests = np.zeros(4), list[str]()
    for record in records:
        digests.append(record.digest)
        in_statistics = record.statistics.get("seconds", 0.0)
        seconds += record.read_seconds, record.score_seconds, in_statistics, record.write_seconds
        if record.origin:
            origins[record.origin] += 1
        else:
            peaks[record.process] = max(peaks.get(record.process, 0), record.peak_memory_bytes)
        status.update(record.status)
        bad += record.bad_rows[: LISTED_ROWS - len(bad)]
    return Totals(
        n_blocks=len(digests),
        status=dict(status),
        status_names={str(int(s)): s.name.lower() for s in Status if str(int(s)) in status},
        bad_rows=bad,
        digest=digest("".join(digests).encode()),
        worker_seconds=WorkerSeconds(*seconds.tolist()),
        worker_peak_memory_bytes=peaks,
        taken_over=dict(origins) or ABSENT,
    )


def describe_run(run: ScoreRun, records: Iterable[CommitRecord], ignored: Collection[int] = ()) -> RunFacts:
    """Its drift is without the features `ignored`. Reads the records once."""
    artifact = planned_artifact(run.model, run.model_hash)
    model = artifact.model()
    gathered = Statistics(model, run.outputs)
    cpus, unknown = Counter[str](), list[UnknownCategories]()
    samples = {ROWS: HashSample(run.n_rows), IDS: HashSample(run.n_rows)}
    for record in records:
        for name, sample in samples.items():
            if name in record.statistics:
                sample.add_packed(record.statistics[name])
        categories = record.statistics.get(UNKNOWN, ())
        unknown = joined([*unknown, *(UnknownCategories(**each) for each in categories)])
        if "sampled_rows" in record.statistics:
            gathered.add_packed(record.statistics)
        cpus[str(record.statistics.get("cpu", "unknown"))] += 1
    trained = TrainedRows.of(artifact.provenance)
    scored = raw_moments(model.scaling, gathered.moments)
    return RunFacts(
        settings_hash=digest_json(artifact.body["settings"]),
        input=describe_input(run.x),
        cpus=dict(cpus),
        statistics=ScoreStatistics(
            decision=DecisionHistogram(decision_edges(model).tolist(), gathered.histogram.tolist()),
            labels=_label_rows(model, gathered),
            sampled_rows=gathered.moments.n,
            feature_mean=_numbers(scored.mean),
            feature_sd=_numbers(scored.sd),
            feature_gaps=ABSENT if scored.gaps is None else _numbers(scored.gaps),
            leaf_rows=gathered.leaf_rows.tolist(),
        ),
        drift=describe_drift(model, gathered, artifact.feature_names, artifact.schema, ignored),
        unknown_categories=unknown,
        repeated_rows=samples[ROWS].beyond(None if trained is None else trained.repeated_share(run.n_rows)),
        repeated_ids=samples[IDS].estimate(),
    )


def describe_input(x: Address) -> InputFacts:
    """A description of X, and the hash of its metadata: shape, dtype, chunks, codecs, attributes."""
    array = open_array(x)
    # Attributes may be infinite or NaN, which our own JSON never is.
    metadata = json.dumps(array.metadata.to_dict(), sort_keys=True, separators=(",", ":"), default=str)
    return InputFacts(list(array.shape), str(array.dtype), digest(metadata.encode()))


def _label_rows(model: Model, gathered: Statistics) -> list[LabelRows] | None:
    """Rows by label; None if the run does not write them."""
    for column in OUTPUT_COLUMNS:
        if column.tally and column.name in gathered.tallies:
            counts = gathered.tallies[column.name].tolist()
            return [LabelRows(*each) for each in zip(column.tally_names(model), counts, strict=True)]
    return None


def _numbers(values: NDArray[np.float64]) -> list[float | None]:
    """Numbers for JSON, which has no infinity."""
    return [float(value) if np.isfinite(value) else None for value in values]


def plan_digest(ledger: Ledger) -> str:
    plan = ledger.place.read(PLAN)
    if plan is None:
        raise FileNotFoundError(f"{ledger.address}/{PLAN}")
    return digest(plan.data)


def metadata_digests(run: ScoreRun) -> dict[str, str]:
    """Digests of the metadata of the output group ("") and its arrays, if they exist."""
    place = run.place
    files = {name: place.read(metadata_name(name)) for name in ("", *run.arrays)}
    return {name: digest(file.data) for name, file in files.items() if file is not None}


def make_report(
    run: ScoreRun, plan: BlockPlan, done: Done, seconds: float, manifest: dict[str, Any]
) -> ScoreReport:
    """The report of a complete run, which listeners get, too."""
    rows = min(done.blocks * plan.block_rows, plan.n_rows)
    features = names_of_features(run, [feature for *_, feature in manifest["bad_rows"]])
    report = ScoreReport(
        output=run.output,
        n_rows=plan.n_rows,
        n_blocks=plan.n_blocks,
        scored_blocks=done.blocks,
        seconds=seconds,
        rows_per_second=rows / done.seconds if done.blocks else 0.0,
        status=manifest["status"],
        bad_rows=manifest["bad_rows"],
        bad_features={str(feature): name for feature, name in features.items()},
        worker_peak_memory_bytes=manifest["worker_peak_memory_bytes"],
        driver_peak_memory_bytes=peak_memory_bytes(),
        manifest=manifest,
    )
    if is_heard():
        _record_scored(report)
    return report


def record_remarks(report: ScoreReport) -> None:
    """Add the remarks on a finished run. Raises RemarkError."""
    add_remarks(*run_remarks(report.manifest, report.output), report=report)


def run_remarks(manifest: Mapping[str, Any], output: str) -> list[Remark]:
    """Remarks on the rows of a finished run."""
    status, drift, n_rows = (manifest.get(key) for key in ("status", "drift", "n_rows"))
    if not (isinstance(status, dict) and isinstance(n_rows, int) and isinstance(drift, dict | None)):
        return []  # A modified manifest: verification reports it.
    n_bad = without_score(status)
    remarks = drift_remarks(drift, file=output)
    for each in (UnknownCategories(**stored) for stored in manifest.get("unknown_categories", ())):
        if each.is_noticeable(n_rows):
            subject = f"{plain(each.column)} in {each.rows:,} of {n_rows:,} rows"
            remarks.append(unknown_remark(each, subject, n_rows, output))
    for code, key, words in (
        ("repeated-rows", "repeated_rows", "repeat an earlier row"),
        ("repeated-ids", "repeated_ids", "have the id of an earlier row"),
    ):
        if n := manifest.get(key):
            what = f"{n:,} of {n_rows:,} rows {words}"
            remarks.append(remark(code, what, file=output, share=min(n / n_rows, 1.0)))
    if n_bad:
        do = f"list them with `dcpred errors {as_arguments(output)}`, and correct the data"
        text = f"{n_bad:,} of {n_rows:,} rows have no score"
        remarks.append(remark("unscored-rows", text, do, file=output, share=n_bad / n_rows))
    return remarks


def _record_scored(report: ScoreReport) -> None:
    record_event(
        "scored",
        output=report.output,
        rows=report.n_rows,
        blocks=report.n_blocks,
        scored_blocks=report.scored_blocks,
        status=by_name(report.status),
        rows_per_second=report.rows_per_second,
        seconds=round(report.seconds, 3),
        drift=measured(Drift, report.manifest.get("drift", {})),  # Earlier versions wrote none.
    )
