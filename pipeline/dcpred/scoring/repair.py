"""`dcpred score --repair`: score again only what is wrong.

Verifies an output, withdraws records of modified blocks and the manifest, and resumes the run like any
interrupted one. Guarantees:

- If nothing is wrong and the input is unchanged, nothing is written.
- Files that dcpred did not write are never removed. They are reported, and the run is not finished while they
  exist.
- Metadata of output arrays are rewritten from model and plan, and a plan that its manifest does not know
  from model and input; chunks stay, and are verified with these.
- Blocks with skipped rows are scored again if their input is readable now, or if rows may be skipped again.
- A restored input chunk makes the input another one (its files are newer), which is another plan to `dcpred
  score`. --repair accepts it at the same place, with the same blocks, if rows that are not scored again are
  the same: by the digests in commit records, and where these have none, by the scores of a sample. All other
  blocks keep their scores. The manifest then states
  `"input_changed": true` and, as `input_run`, the last input; the plan lists it as accepted for later calls.
- Rows that others removed from the Delta table of the run are added again, and blocks that changed are
  replaced there: a person who repairs asks for what `dcpred verify` misses.
- An interrupted repair leaves missing records or no manifest; --repair resumes from there.
"""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dcpred.datasets.located import address_of_model
from dcpred.execution.progress import counted, show
from dcpred.execution.workers import Workers, run_all
from dcpred.public.functions import checked, typed
from dcpred.public.parameters import as_for
from dcpred.runs.bad_rows import BadRowLimit
from dcpred.runs.latest import INPUTS
from dcpred.runs.ledger import Ledger, open_ledger, same_settings
from dcpred.runs.manifest import ScoreReport, record_remarks
from dcpred.scoring.blocks import FailurePolicy
from dcpred.scoring.planning import plan_run
from dcpred.scoring.request import Request, requested_columns, rows_to_score
from dcpred.scoring.score import score
from dcpred.scoring.whole_run import check_delta, check_rows_scored, score_all_rows
from dcpred.verification.fast_check import FastCheck, damaged_blocks, leftovers
from dcpred.verification.metadata import restore_metadata
from dcpred.verification.verify import SAMPLE_ROWS, check_full, check_sample, choose_rows
from dcpred_tasks.artifacts.block_files import Finding, Kind
from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun
from dcpred_tasks.errors import PlanConflictError, SettingsError
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.storage.stored_chunks import open_input, read_inputs, write_inputs
from dcpred_tasks.task_bodies.score_block import input_digest
from dcpred_tasks.task_bodies.verify_block import input_is_readable

LEVELS = ("fast", "full")


@typed
@as_for(score)
def repair(
    model: Any,
    data: Any,
    output: str | Path,
    *,
    level: str = "full",
    outputs: Sequence[str] | None = None,
    alpha: float | None = None,
    threshold: float | str | None = None,
    costs: Any = None,
    parquet: bool = False,
    id: Sequence[str] = (),
    delta: str | Path | None = None,
    x: str = "X",
    quarantine: bool = False,
    max_failures: int = 20,
    max_bad_rows: int | None = None,
    max_bad_fraction: float | None = None,
    workers: int | None = None,
    client: Any = None,
    accept: Sequence[str] = (),
    on_alarm: str = "warn",
    verbose: bool = False,
) -> ScoreReport:
    """Verify an output, and score again only what is wrong or was skipped.

    Parameters
    ----------
    data : str, Path, zarr.Array, zarr.Group, or array-like of shape (n_rows, n_features)
        The data of the run.
    output : str or Path
        The output of `score`.
    level : {"full", "fast"}, default "full"
        How much is verified: full also decodes everything and compares digests.

    Returns
    -------
    ScoreReport
        The finished run.

    Raises
    ------
    PlanConflictError
        If the output is of another model, data or settings.
    DcpredError
        What `score` raises.

    See Also
    --------
    verify : Look only.

    Notes
    -----
    All arguments are those of the run.
    """
    tolerance = FailurePolicy(quarantine, max_failures, BadRowLimit(max_bad_rows, max_bad_fraction))
    columns = requested_columns(outputs, alpha, threshold, costs, parquet, id, delta)
    path = address_of_model(model)
    with rows_to_score(data, x, path, output, workers, client, resumes=True) as (X, pool):
        report = _repaired(Request(path, X, output, columns, tolerance, pool, delta), level)
    record_remarks(report)
    return checked(report, partial(check_rows_scored, report, tolerance))


def _repaired(request: Request, level: str) -> ScoreReport:
    if level not in LEVELS:
        raise SettingsError(
            f"Cannot repair at level {level!r}: a repair has {' or '.join(LEVELS)}. Use one of them."
        )
    ledger = open_ledger(request.output)
    check_delta(request)
    planned, plan, model = plan_run(request, repairs=True)
    _check_same_run(ledger.run, planned, plan.n_blocks)
    adopted = Ledger(planned, plan.n_blocks).adopted()
    changed = adopted.run.run != ledger.run.run or (planned.run == ledger.run.run and adopted.changed_ids())
    ledger = Ledger(replace(planned, run=ledger.run.run), plan.n_blocks)
    with request.pool_for(plan.n_blocks)() as workers:
        with ledger.claimed():
            now = planned.run if changed else ""
            _withdraw_what_is_wrong(ledger, model, workers, level, request.tolerance, now)
        return score_all_rows(
            replace(request, pool=lambda: nullcontext(workers)),
            (planned if changed else ledger.run, plan, model),
            repaired=ledger.run.run,
            restores=level,
        )


def _check_same_run(was: ScoreRun, planned: ScoreRun, n_blocks: int) -> None:
    """Raise PlanConflictError unless the run is the same, except for the content of input chunks."""
    if planned.run == was.run:
        return
    if not same_settings(was, planned):
        Ledger(planned, n_blocks).check()
    if planned.x != was.x:
        raise PlanConflictError(
            f"Cannot repair {planned.output} from {planned.x}: it was made from"
            f" {was.x}. Restore chunks in that place, or score into a new directory."
        )


def _withdraw_what_is_wrong(
    ledger: Ledger, model: Model, workers: Workers, level: str, tolerance: FailurePolicy, changed: str
) -> None:
    """Reset a run with wrong blocks to the state before they were scored.

    changed  if the input was rewritten since, the hash of the run that it would make now
    """
    fast = FastCheck(ledger)
    named = {finding.file for finding in fast.findings if finding.kind == Kind.METADATA}
    restored = restore_metadata(ledger.run, model, named) if fast.records or named else []
    if restored:
        show(f"rewrote {', '.join(restored)}")
        fast = FastCheck(ledger)
    findings = [*fast.findings, *(check_full(fast, workers) if level == "full" else [])]
    conflicts = [finding for finding in findings if finding.kind == Kind.CONFLICT]
    again = {*damaged_blocks(findings), *(f.block for f in conflicts if f.block is not None)}
    again |= set(
        _worth_another_try(ledger.run, workers, [b for b in fast.given_up if b not in again], tolerance)
    )
    if changed:
        _check_same_rows(
            ledger.run,
            workers,
            [record for b, record in fast.records.items() if b not in again and b not in fast.given_up],
        )
    # Manifest and plan disagree, and either may be modified: the plan is rewritten, the manifest follows.
    if changed or any(finding.kind == Kind.MANIFEST for finding in findings):
        ledger.write_plan(changed)
    for name in leftovers(findings):
        ledger.place.remove(name)
    if changed:
        _forget_input(ledger, sorted({*again, *ledger.pending()}))
    for block in sorted(again):
        ledger.retract(block)
    for finding in conflicts:
        ledger.place.remove(finding.file)
    wrong = any(finding.kind in (Kind.MANIFEST, Kind.METADATA) for finding in findings)
    if again or restored or changed or wrong:
        # The manifest goes last: without it the run counts as interrupted.
        ledger.withdraw_manifest()
    _show_findings(findings, len(again))


def _forget_input(ledger: Ledger, blocks: list[int]) -> None:
    """For a run of a refresh: forget the state of input chunks that changed and are scored now."""
    known = read_inputs(ledger.place, INPUTS)
    if known is None:
        return
    state, full = known
    now = open_input(ledger.run.x, time.time(), ledger.run.ids)
    rows = [ledger.run.rows(block) for block in blocks]
    other = [span for span in rows if not now.unchanged(state, *span)]
    if other:
        write_inputs(ledger.place, INPUTS, state.without_rows(other), full=full)


def _worth_another_try(
    run: ScoreRun, workers: Workers, given_up: list[int], tolerance: FailurePolicy
) -> list[int]:
    """Blocks with skipped rows that can be scored now."""
    if tolerance.quarantine:
        return given_up
    readable: list[int] = []

    def read(number: int, good: bool) -> None:
        if good:
            readable.append(given_up[number])

    run_all(workers, input_is_readable, [(run, block) for block in given_up], read)
    return readable


def _check_same_rows(run: ScoreRun, workers: Workers, records: list[CommitRecord]) -> None:
    """Raise PlanConflictError if the input holds other rows than the scored ones: by the digests in records,
    and by a sample of the blocks without one.
    """
    known = [record for record in records if record.input]
    wrong: list[str] = []

    def compared(number: int, now: str) -> None:
        record = known[number]
        if now != record.input:
            wrong.append(f"rows {record.start:,} to {record.stop:,} differ")

    run_all(workers, input_digest, [(run, record) for record in known], compared)
    rows = choose_rows(run, [record.block for record in records if not record.input], SAMPLE_ROWS, seed=0)
    wrong += [finding.sentence for finding in check_sample(run, workers, rows)]
    if wrong:
        raise PlanConflictError(
            f"Cannot repair {run.output}: {run.x} holds other rows than the scored ones"
            f" ({wrong[0]}). Score into a new directory."
        )


def _show_findings(findings: list[Finding], n_blocks: int) -> None:
    damage = [finding for finding in findings if finding.is_damage]
    if not damage and not n_blocks:
        show("nothing is wrong; nothing is repaired")
        return
    given_up = sum(finding.kind == Kind.ROWS_GIVEN_UP for finding in findings)
    counts = [counted(len(damage), "finding", "findings")] if damage or not given_up else []
    if given_up:
        counts.append(counted(given_up, "block with skipped rows", "blocks with skipped rows"))
    show(f"{', '.join(counts)}; {counted(n_blocks, 'block is', 'blocks are')} scored again")
