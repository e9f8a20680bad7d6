"""Verify an output, at one of three levels."""

import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dcpred.execution.pools import chosen_pool
from dcpred.execution.progress import counted, show_step, show_where
from dcpred.execution.workers import Workers, run_all
from dcpred.public.functions import typed
from dcpred.public.results import PublicResult
from dcpred.runs import delta_tables
from dcpred.runs.delta_rows import delta_table
from dcpred.runs.latest import runs_of_parts
from dcpred.runs.ledger import Ledger, open_ledger
from dcpred.runs.status import LIMITED
from dcpred.verification.fast_check import FastCheck
from dcpred_tasks.artifacts.block_files import Finding, Kind
from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.errors import DataError, ModelFormatError, SettingsError
from dcpred_tasks.result_fields import Unit, result_class, result_field
from dcpred_tasks.task_bodies.verify_block import verify_block, verify_rows


def check_full(fast: FastCheck, workers: Workers) -> list[Finding]:
    """Findings of level full beyond level fast: every block with a complete record is decoded."""
    if any(finding.kind == Kind.METADATA for finding in fast.findings):
        return []  # wrong metadata would put the blame on every chunk
    wrong: list[Finding] = []
    blocks = sorted(fast.records)
    rows = [stop - start for start, stop in map(fast.run.rows, blocks)]
    reported = {finding.file for finding in fast.findings}
    with show_step("verifying", sum(rows), "rows") as advance:

        def verified(number: int, findings: list[Finding]) -> None:
            advance(rows[number])
            wrong.extend(f for f in findings if f.file not in reported)

        run_all(workers, verify_block, [(fast.run, block) for block in blocks], verified)
    return sorted(wrong, key=lambda f: (f.block or 0, f.file))


LEVELS = ("fast", "sample", "full")
SAMPLE_ROWS = 1_000
# Minimum number of output chunks in a sample. Each is read completely, with its input.
SAMPLED_CHUNKS = 32

# An output chunk as block, first row and row after the last; and sampled rows in it.
Span = tuple[int, int, int, tuple[int, ...]]


FINDINGS_SHOWN = 20
HARMLESS = {"leftover", "rows given up", "system file"}  # findings of an output that is not damaged


def _blocks_text(r: Mapping[str, Any]) -> str:
    left = f"; {r['left_blocks']:,} are left, run `dcpred score` again" if r["left_blocks"] else ""
    return f"{r['verified_blocks']:,} of {r['n_blocks']:,} have a complete record{left}"


def _level_text(r: Mapping[str, Any]) -> str:
    sampled = f": {r['sampled_rows']:,} rows scored again, seed {r['seed']}" if r["level"] == "sample" else ""
    return f"{r['level']}{sampled}"


def _manifest_text(r: Mapping[str, Any]) -> str | None:
    unwritten = not r["finished"] and not r["left_blocks"]
    return f"not written yet; run `dcpred score` again{LIMITED}" if unwritten else None


def _found_text(r: Mapping[str, Any]) -> str:
    given_up = str(Kind.ROWS_GIVEN_UP)
    texts = [
        counted(n, "block with skipped rows", "blocks with skipped rows")
        if kind == given_up
        else f"{n:,} {kind}"
        for kind, n in r["found"].items()
    ]
    return ", ".join(texts) or "nothing"


def _result_text(r: Mapping[str, Any]) -> str:
    wrong = "modified or damaged" if set(r["found"]) - HARMLESS else "not complete"
    return "complete and unmodified" if r["ok"] else wrong


def _findings_text(r: Mapping[str, Any]) -> list[str]:
    texts = [f"{f['file']}: {f['sentence']} ({f['kind']})" for f in r["findings"][:FINDINGS_SHOWN]]
    more = len(r["findings"]) - len(texts)
    return texts + ([f"and {more:,} more"] if more else [])


@result_class
class VerifyReport(PublicResult):
    """The result of a verification."""

    output: str = result_field("Path or address of the output.", unit=Unit.TEXT, line="output")
    level: str = result_field("The level: fast, sample or full.", line="level", text=_level_text)
    n_rows: int = result_field("Number of rows.", unit=Unit.COUNT, line="rows")
    n_blocks: int = result_field("Number of blocks.", line="blocks", text=_blocks_text)
    verified_blocks: int = result_field("Number of blocks with a complete record.")
    left_blocks: int = result_field("Number of blocks without a record, of a run that is not finished.")
    finished: bool = result_field("Whether there is a manifest.", line="manifest", text=_manifest_text)
    sampled_rows: int = result_field("Number of rows that were scored again (level sample).")
    seed: int | None = result_field("Seed that those rows were drawn with; None without them.")
    found: dict[str, int] = result_field("Number of findings by kind.", line="found", text=_found_text)
    findings: list[Finding] = result_field("The findings.", line="findings", text=_findings_text)
    seconds: float = result_field("Duration in seconds.")
    in_delta: bool | None = result_field(
        "Whether the Delta table of the run holds exactly its rows, each once, in files that are"
        " complete; None for a run without one.",
        line="Delta table",
        text=lambda r: {None: None, True: "holds the run", False: "does not hold the run"}[r["in_delta"]],
    )
    ok: bool = result_field(
        "Whether everything is complete and unmodified. Leftovers of interrupted attempts are"
        " allowed; skipped rows are not.",
        line="result",
        text=_result_text,
    )


@typed
def verify(
    output: str | Path,
    level: str = "full",
    *,
    rows: int = SAMPLE_ROWS,
    seed: int | None = None,
    workers: int | None = None,
    client: Any = None,
    verbose: bool = False,
) -> VerifyReport:
    """Check that an output of `score` is complete and unmodified. Writes nothing.

    Parameters
    ----------
    output : str or Path
        The output.
    level : {"full", "fast", "sample"}, default "full"
        Level fast compares records, names, sizes and counts; full also decodes everything and compares
        digests; sample is fast, and scores some rows again by a plain definition.
    rows : int, default 1000
        Number of rows that level sample scores.
    seed : int, optional
        Seed of the sample. By default random.

    Returns
    -------
    VerifyReport
        The findings; its attribute `ok` is False if something is wrong, or if blocks are left.

    Raises
    ------
    PlanConflictError
        If it is not an output of `score`.
    DcpredError
        If it cannot be read.
    """
    if level not in LEVELS:
        raise SettingsError(
            f"Cannot verify at level {level!r}: the levels are {', '.join(LEVELS)}. Use one of them."
        )
    pool, begin = chosen_pool(workers, client), time.perf_counter()
    if parts := runs_of_parts(output):
        options: dict[str, Any] = {"rows": rows, "seed": seed, "workers": workers, "client": client}
        each = {name: verify(run, level, **options) for name, run in parts.items()}
        return _verified_together(str(output), each, time.perf_counter() - begin)
    ledger = open_ledger(output)
    fast = FastCheck(ledger)
    findings = list(fast.findings)
    spans: list[Span] = []
    if level == "full":
        with pool() as at_work:
            show_where("verifying", at_work)
            findings += check_full(fast, at_work)
    elif level == "sample" and not any(f.kind in (Kind.METADATA, Kind.MANIFEST) for f in fast.findings):
        check_source(ledger)
        seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        spans = choose_rows(ledger.run, sorted(fast.records), rows, seed)
        with pool() as at_work:
            show_where("verifying", at_work)
            findings += check_sample(ledger.run, at_work, spans)
    in_delta = None
    if delta_table(ledger) is not None:
        complete = fast.finished and len(fast.records) == ledger.n_blocks
        wrong = delta_tables.find_wrong(ledger, fast.records, full=level == "full") if complete else []
        in_delta = complete and not wrong
        findings += wrong
    return VerifyReport(
        output=ledger.address,
        level=level,
        n_rows=ledger.run.n_rows,
        n_blocks=ledger.n_blocks,
        verified_blocks=len(fast.records),
        left_blocks=fast.left,
        finished=fast.finished,
        sampled_rows=sum(len(span[3]) for span in spans),
        seed=seed if spans else None,
        found=dict(Counter(str(finding.kind) for finding in findings)),
        findings=findings,
        seconds=time.perf_counter() - begin,
        in_delta=in_delta,
        ok=in_delta is not False
        and fast.finished
        and not fast.left
        and not fast.given_up
        and not any(f.is_damage for f in findings),
    )


def _verified_together(output: str, parts: Mapping[str, VerifyReport], seconds: float) -> VerifyReport:
    """The verification of the runs of several inputs, as one."""
    each = list(parts.values())
    kinds: Counter[str] = Counter()
    for report in each:
        kinds.update(report.found)
    return replace(
        each[0],
        output=output,
        n_rows=sum(report.n_rows for report in each),
        n_blocks=sum(report.n_blocks for report in each),
        verified_blocks=sum(report.verified_blocks for report in each),
        left_blocks=sum(report.left_blocks for report in each),
        finished=all(report.finished for report in each),
        sampled_rows=sum(report.sampled_rows for report in each),
        found=dict(kinds),
        findings=[
            replace(finding, file=f"{name}/{finding.file}")
            for name, report in parts.items()
            for finding in report.findings
        ],
        seconds=seconds,
        ok=all(report.ok for report in each),
    )


def check_source(ledger: Ledger) -> None:
    """Raise DataError, ModelFormatError unless model and input of a run are unchanged."""
    run = ledger.run
    asked = "Cannot score a sample again (level sample)"
    instead = "Use --level full, which needs neither model nor input."
    try:
        model_hash = open_artifact(run.model).hash
    except ModelFormatError as error:
        raise ModelFormatError(f"{asked}: the model cannot be opened ({error}). {instead}") from None
    if model_hash != run.model_hash:
        raise ModelFormatError(
            f"{asked}: {run.model} now holds another model than that of the run. {instead}"
        )
    try:
        same = ledger.has_same_input()
    except DataError:
        raise DataError(f"{asked}: the input {run.x} cannot be opened. {instead}") from None
    if not same:
        raise DataError(f"{asked}: the input {run.x} has changed since it was scored. {instead}")


def choose_rows(run: ScoreRun, blocks: Collection[int], n: int, seed: int) -> list[Span]:
    """n random rows of random output chunks of these blocks; all rows if there are no more."""
    rng = np.random.default_rng(seed)
    chunks = [(block, start, stop) for block in blocks for start, stop in run.chunks(block)]
    n_chunks = min(max(SAMPLED_CHUNKS, -(-n // run.chunk_rows) + 1), len(chunks))
    chosen = [chunks[i] for i in sorted(rng.choice(len(chunks), n_chunks, replace=False))] if chunks else []
    at = np.cumsum([0, *(stop - start for _, start, stop in chosen)])
    picked = np.sort(rng.choice(at[-1], min(n, at[-1]), replace=False)) if chosen else np.zeros(0, np.int64)
    spans = []
    for (block, start, stop), first, last in zip(chosen, at[:-1], at[1:], strict=True):
        rows = picked[(picked >= first) & (picked < last)] - first + start
        if len(rows):
            spans.append((block, start, stop, tuple(int(row) for row in rows)))
    return spans


def check_sample(run: ScoreRun, workers: Workers, spans: list[Span]) -> list[Finding]:
    """Findings from scoring these rows again."""
    wrong: list[Finding] = []
    with show_step("scoring a sample", sum(len(span[3]) for span in spans), "rows") as advance:

        def scored(number: int, findings: list[Finding]) -> None:
            advance(len(spans[number][3]))
            wrong.extend(findings)

        run_all(workers, verify_rows, [(run, *span) for span in spans], scored)
    return sorted(wrong, key=lambda finding: finding.block or 0)
