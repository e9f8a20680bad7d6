"""Score the pending blocks, and handle failures.

A failure of one block does not stop the others, unless the first ones all fail, or too many do. The ledger
stores the errors of failed blocks. A full disk, a quota or a missing permission ends the run at once.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from dcpred.execution.events import by_name, record_event
from dcpred.execution.lease import Lease
from dcpred.execution.progress import COMPILING, counted, show_step
from dcpred.execution.workers import Workers
from dcpred.runs.bad_rows import NO_LIMIT, BadRowLimit, without_score
from dcpred.runs.ledger import Ledger
from dcpred.runs.manifest import Done
from dcpred_tasks.artifacts.commit_records import CommitRecord
from dcpred_tasks.errors import (
    DcpredError,
    Failure,
    IncompleteError,
    RefusedError,
    ResourceError,
    SettingsError,
)
from dcpred_tasks.scoring.scorer import is_compiled
from dcpred_tasks.task_bodies.score_block import give_up_block, load_engine, score_block

FIRST_FAILURES = 5  # if the first 5 blocks all fail, the run itself is broken, and stops


@dataclass(frozen=True)
class FailurePolicy:
    """What a run tolerates.

    quarantine    whether to skip rows of damaged or missing input chunks, and blocks that no worker
                  survives, and go on
    max_failures  maximum number of failed blocks
    bad_rows      limit of rows without a score
    """

    quarantine: bool = False
    max_failures: int = 20
    bad_rows: BadRowLimit = NO_LIMIT

    def __post_init__(self) -> None:
        if self.max_failures < 0:
            raise SettingsError(
                f"Cannot set max_failures to {self.max_failures}: it is a number of blocks. Use 0 or more."
            )

    def check_bad_rows(self, n_bad: int, n_rows: int) -> None:
        """Raise IncompleteError if too many rows have no score."""
        if exceeded := self.bad_rows.exceeded(n_bad, n_rows):
            raise IncompleteError(
                f"{exceeded}; list them with `dcpred errors`, or run again with a higher limit to resume"
            )


class BlockRun:
    """One pass over pending blocks."""

    def __init__(
        self, ledger: Ledger, lease: Lease, workers: Workers, tolerance: FailurePolicy, n_bad: int
    ) -> None:
        self.lease = lease
        self.ledger, self.workers, self.tolerance = ledger, workers, tolerance
        self.n_bad = n_bad  # rows without a score, also in blocks that were done before
        self.failed: dict[int, Failure] = {}
        self.n_done = 0

    def prepare(self) -> None:
        """Compile the engine before the first block if there is no machine code: no rate includes that time.

        A worker that fails here raises no error: its blocks will.
        """
        if all(self.workers.on_each(is_compiled)):
            return
        with show_step(COMPILING, None, ""):
            for _ in self.workers.on_each(load_engine, self.ledger.run):
                self.lease.check()

    def run(self, pending: Sequence[int]) -> Done:
        """Score them. Raises IncompleteError if some failed, ResourceError, InterruptedRunError."""
        run = self.ledger.run
        total = sum(stop - start for start, stop in map(run.rows, pending))
        known = {int(failure["block"]) for failure in self.ledger.failures()}.intersection(
            self.ledger.shard_blocks
        )
        # A killed driver may have scored these blocks without removing its notes.
        for block in known.difference(pending):
            self.ledger.forget_failure(block)
        self.tolerance.check_bad_rows(self.n_bad, run.n_rows)
        record_event(
            "scoring_started",
            output=run.output,
            run_hash=run.run,
            shard=str(self.ledger.shard or ""),
            rows=run.n_rows,
            blocks=len(self.ledger.shard_blocks),
            pending_blocks=len(pending),
            pending_rows=total,
        )
        if not pending:
            return Done(0, 0.0)
        self.prepare()
        begin = time.perf_counter()
        tasks = [(run, block, self.tolerance.quarantine) for block in pending]
        with show_step("scoring", total, "rows") as advance:
            for number, result in self.workers.each(score_block, tasks):
                if self.lease.lost:  # another driver took over during a long suspension
                    self.lease.check()
                block = pending[number]
                if isinstance(result, Failure):
                    self._note(block, result, len(pending))
                    continue
                self.n_done += 1
                self.ledger.cache.add(result)
                if block in known:
                    self.ledger.forget_failure(block)
                self.n_bad += without_score(result.status)
                advance(result.stop - result.start)
                _record_done(result)
                self.tolerance.check_bad_rows(self.n_bad, run.n_rows)
        self._give_up_deadly()
        if self.failed:
            others = " (the others are done)" if self.n_done else ""
            raise self._incomplete(len(pending), others)
        return Done(len(pending), time.perf_counter() - begin)

    def _note(self, block: int, failure: Failure, n_pending: int) -> None:
        """Store a failure; raise if the run must stop."""
        if isinstance(failure.error, ResourceError):
            raise failure.error
        self.failed[block] = failure
        self.ledger.note_failure(block, _sentence(failure), failure.deaths)
        record_event("block_failed", "error", block=block, error=_sentence(failure), deaths=failure.deaths)
        if not self.n_done and len(self.failed) >= FIRST_FAILURES and n_pending > FIRST_FAILURES:
            raise self._incomplete(n_pending, " (stopped because the first ones all failed)")
        if len(self.failed) > self.tolerance.max_failures:
            raise self._incomplete(
                n_pending, f" (stopped because max_failures is {self.tolerance.max_failures:,})"
            )

    def _give_up_deadly(self) -> None:
        """Skip the rows of blocks that no worker survived, if the policy allows it."""
        deadly = [block for block, failure in self.failed.items() if failure.deaths]
        if not deadly or not self.tolerance.quarantine:
            return
        tasks = [(self.ledger.run, block, _sentence(self.failed[block])) for block in deadly]
        for number, result in self.workers.each(give_up_block, tasks):
            if isinstance(result, Failure):
                raise result.error
            _record_done(result)
            del self.failed[deadly[number]]
            self.ledger.forget_failure(deadly[number])

    def _incomplete(self, n_pending: int, ending: str) -> IncompleteError:
        block, failure = min(self.failed.items())
        start, stop = self.ledger.run.rows(block)
        # An error of dcpred has a remedy; the death of workers and a bug do not.
        advised = isinstance(failure.error, DcpredError) and not failure.deaths
        return IncompleteError(
            f"Cannot score {len(self.failed):,} of {counted(n_pending, 'block', 'blocks')}{ending}: the first"
            f" is block {block} (rows {start:,} to {stop:,}):"
            f" {_sentence(failure)}{'' if advised else '; run again to try once more'}"
        )


def _record_done(record: CommitRecord) -> None:
    record_event(
        "block_done",
        "warning" if record.quarantined else "info",
        block=record.block,
        rows=record.stop - record.start,
        status=by_name(record.status),
        worker=record.process,
        seconds=round(record.read_seconds + record.score_seconds + record.write_seconds, 3),
        retries=record.retries,
    )


def _sentence(failure: Failure) -> str:
    error = failure.error
    if failure.deaths:
        return f"{counted(failure.deaths, 'worker', 'workers')} died with it, {type(error).__name__}"
    return str(error) if isinstance(error, RefusedError) else f"{type(error).__name__}: {error}"
