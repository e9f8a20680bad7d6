"""The page of a run: scored rows and others, labels and drift over its rows, and its workers."""

from dataclasses import dataclass
from typing import Any

from dcpred.pages import Page, Section, Table, counted, number, percent, plain, size
from dcpred.reports.evaluation_page import evaluation_facts, evaluation_sections, last_name, without_places
from dcpred.reports.run_parts import Gathered, contributions, decisions, drift, gather, labels, workers
from dcpred.runs.ledger import open_ledger
from dcpred.runs.status import RunStatus, run_status
from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.artifacts.model_artifact import Artifact, open_artifact
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DcpredError
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.scoring.outputs import LABEL

NAMES = {str(int(status)): status.name.lower().replace("_", " ") for status in Status}
FAILURES_SHOWN = 20


@dataclass(frozen=True)
class Run:
    """The data of a run."""

    run: ScoreRun
    status: RunStatus
    manifest: dict[str, Any]
    """Empty if it is not finished."""
    gathered: Gathered
    model: Model | None
    """None if it was removed."""
    feature_names: tuple[str, ...] | None

    @property
    def n_bad(self) -> int:
        """Rows without a score in finished blocks."""
        return sum(rows for code, rows in self.gathered.status.items() if code != str(int(Status.OK)))


def open_run(output: str) -> Run:
    """Raises PlanConflictError if there is none."""
    ledger = open_ledger(output)
    artifact = _artifact(ledger.run)
    return Run(
        ledger.run,
        run_status(output),
        ledger.whole_manifest() or {},
        gather(ledger.records(), ledger.n_blocks),
        None if artifact is None else artifact.model(),
        None if artifact is None else artifact.feature_names,
    )


def _artifact(run: ScoreRun) -> Artifact | None:
    """The model of a run, if it still exists unchanged."""
    try:
        found = open_artifact(run.model)
        return found if found.hash == run.model_hash else None
    except DcpredError:
        return None


def run_page(run: Run, evaluated: dict[str, Any] | None, title: str = "") -> Page:
    """evaluated  the quality of the scores, if targets are given"""
    model, data = last_name(run.run.model), last_name(run.run.x)
    return Page(
        title=title or f"Scores of {data}",
        lead=f"{counted(run.run.n_rows, 'row', 'rows')} of {data}, scored by the model {model}.",
        facts=[*(evaluation_facts(evaluated)[1:] if evaluated else ()), *_facts(run)],
        sections=[
            *(evaluation_sections(evaluated) if evaluated else ()),
            _rows(run),
            labels(run.gathered, _classes(run)),
            decisions(run.gathered, run.model),
            contributions(run.run.output),
            drift(run.gathered, run.manifest.get("drift"), run.model, run.feature_names),
            workers(run.gathered),
            _failed(run),
            _made(run),
        ],
        warnings=_warnings(run),
    )


def _classes(run: Run) -> list[str]:
    if run.model is not None:
        return [str(name) for name in run.model.classes]
    summary = (run.manifest.get("statistics") or {}).get("labels") or []
    return [str(one[LABEL]) for one in summary]


def _warnings(run: Run) -> list[str]:
    words = []
    if run.status.state != "finished":
        left = run.status.n_blocks - run.status.done_blocks
        what = "goes on" if run.status.state == "scoring" else "is not finished; run the same command again"
        words.append(f"The run {what}: {counted(left, 'block is', 'blocks are')} left.")
    if (run.manifest.get("drift") or {}).get("large"):
        words.append("The rows differ much from those that the model was trained on; see Drift.")
    if run.model is None:
        words.append("The model is missing: parts that need it are omitted.")
    return words


def _facts(run: Run) -> list[tuple[str, str]]:
    status, gathered = run.status, run.gathered
    done = sum(gathered.status.values())
    rates = [worker.rate for worker in gathered.workers.values()]
    found = [
        ("rows", f"{status.n_rows:,}"),
        ("with a score", percent((done - run.n_bad) / status.n_rows, 2)),
        ("without a score", f"{run.n_bad:,}"),
        ("blocks", f"{status.done_blocks:,} of {status.n_blocks:,}"),
    ]
    if rates:
        found.append(("rows/s of a worker", f"{sum(rates) / len(rates):,.0f}"))
    drifted = run.manifest.get("drift")
    if drifted is not None:
        found.append(("drift", "large" if drifted.get("large") else "not large"))
    return found


def _rows(run: Run) -> Section:
    lines = [
        [
            NAMES.get(code, f"status {plain(code)}"),
            plain(code),
            f"{rows:,}",
            percent(rows / run.run.n_rows, 3),
        ]
        for code, rows in sorted(run.gathered.status.items())
    ]
    left = run.run.n_rows - sum(run.gathered.status.values())
    if left:
        lines.append(["not scored yet", "0", f"{left:,}", percent(left / run.run.n_rows, 3)])
    parts = [Table(["outcome", "status", "rows", "fraction"], lines, "Rows by status")]
    if run.gathered.bad_rows:
        names = run.feature_names
        bad = [
            [
                f"{row:,}",
                NAMES.get(str(code), str(code)),
                "–"
                if feature < 0
                else plain(names[feature])
                if names and feature < len(names)
                else f"{feature}",
            ]
            for row, code, feature in run.gathered.bad_rows
        ]
        more = run.n_bad - len(bad)
        title = "Rows without a score" + (f", the first {len(bad)} of {run.n_bad:,}" if more > 0 else "")
        parts.append(Table(["row", "why", "first feature to blame"], bad, title, texts=3))
    return Section("Rows", parts=parts)


def _failed(run: Run) -> Section:
    """Failed blocks, and reasons of skipped rows."""
    addresses = (run.run.x, run.run.model, run.run.output)
    lines = [
        [
            f"{one['block']:,}",
            without_places(one["error"], *addresses),
            f"{one['deaths']:,}",
        ]
        for one in run.status.failing[:FAILURES_SHOWN]
    ]
    parts = []
    if lines:
        more = len(run.status.failing) - len(lines)
        title = "Blocks that failed" + (f", and {more:,} more" if more > 0 else "")
        parts.append(Table(["block", "error", "workers lost"], lines, title, texts=2, wraps=True, wide=True))
    if run.gathered.quarantined:
        reasons = [
            [str(i + 1), without_places(one, *addresses)] for i, one in enumerate(run.gathered.quarantined)
        ]
        parts.append(Table(["", "reason"], reasons, "Skipped rows", texts=2, wraps=True, wide=True))
    retries = run.gathered.retries
    if not parts and not retries:
        return Section("Failures", "Nothing failed.")
    text = f"{counted(retries, 'read or write was', 'reads or writes were')} tried again." if retries else ""
    return Section("Failures", text, parts=parts)


def _made(run: Run) -> Section:
    """The hashes and versions of a run."""
    manifest = run.manifest
    hashes = [["run", plain(run.run.run)], ["model", plain(run.run.model_hash)]]
    facts = []
    memory = max((worker.peak_bytes for worker in run.gathered.workers.values()), default=None)
    if memory:
        facts.append(("memory of a worker, at most", size(memory)))
    if run.gathered.taken_over:
        facts.append(("blocks reused", number(run.gathered.taken_over)))
    versions = manifest.get("versions")
    folded = []
    if isinstance(versions, dict):
        lines = [[plain(name), plain(version)] for name, version in versions.items()]
        folded.append(("Versions", Table(["package", "version"], lines, texts=2)))
    parts = [Table(["of", "hash"], hashes, "Hashes", texts=2)]
    return Section("How it was made", facts=facts, parts=parts, folded=folded)
