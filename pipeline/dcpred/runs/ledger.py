"""The state of a scoring run, all of it in the output directory.

OUTPUT/
  plan.json        what the run is; written first
  scores.zarr      label, decision, status
  blocks/*.json    commit records; a block is done if and only if its record is there and its digest matches
  failures/*.json  what became of blocks that could not be done; withdrawn once they are
  lock             who drives the run now
  manifest.json    written last, after a fast verification: names, sizes and counts of every block agree
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from dcpred.execution.lease import Lease, hold
from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun, list_records, read_record
from dcpred_tasks.errors import PlanConflictError
from dcpred_tasks.scoring.outputs import OUTPUTS
from dcpred_tasks.storage.atomic_files import read_json, read_own_json, resource_errors, write_json
from dcpred_tasks.storage.digests import digest_json

FORMAT = "dcpred-scores"
VERSION = 1
MOST_BLOCKS = 10**7  # no plan has more blocks


@dataclass(frozen=True)
class Ledger:
    """Commit records of one run."""

    run: ScoreRun
    n_blocks: int

    @property
    def root(self) -> Path:
        return Path(self.run.output)

    @contextmanager
    def claimed(self) -> Iterator[Lease]:
        """Make the directory this run's, or take up what it left, and hold it within a `with` statement.

        Raises PlanConflictError, RunHeldError, ResourceError.
        """
        with resource_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
        with hold(self.root) as lease:
            self.check()
            with resource_errors(self.root):
                (self.root / "blocks").mkdir(exist_ok=True)
                (self.root / "failures").mkdir(exist_ok=True)
            if not (self.root / "plan.json").exists():
                write_json(
                    self.root / "plan.json", {"format": FORMAT, "version": VERSION, **asdict(self.run)}
                )
            yield lease

    def check(self) -> None:
        """Raise PlanConflictError where the directory belongs to something else; write nothing."""
        path = self.root / "plan.json"
        if path.exists():
            self._check(read_own_json(path))
        elif self.root.exists() and (
            not self.root.is_dir() or any(not _ours(e.name) for e in self.root.iterdir())
        ):
            raise PlanConflictError(
                f"scores were to be written to {self.root}, but it holds other files; name a new directory"
            )

    def _check(self, plan: dict[str, Any]) -> None:
        if plan.get("run") != self.run.run:
            told = ("model_hash", "outputs", "n_rows", "chunk_rows", "block_rows")
            differs = [k for k in told if plan.get(k) != _plain(getattr(self.run, k))]
            raise PlanConflictError(
                f"{self.root} belongs to another plan (it differs in {', '.join(differs) or 'the data'});"
                " name a new directory, or run with the model, data and outputs that it was made with"
            )

    def pending(self) -> list[int]:
        done, _ = list_records(self.run)
        return [block for block in range(self.n_blocks) if block not in done]

    def records(self) -> Iterator[CommitRecord]:
        done, _ = list_records(self.run)
        for block in sorted(done):
            record = read_record(self.run, block)
            if record is not None:
                yield record

    def retract(self, block: int) -> None:
        """Withdraw a commit record whose block does not verify."""
        path = self.run.record_file(block)
        with resource_errors(path):
            path.unlink(missing_ok=True)

    def note_failure(self, block: int, sentence: str, deaths: int) -> None:
        """Keep why a block could not be done, for whoever asks for the state of the run."""
        start, stop = self.run.rows(block)
        write_json(
            self._failure(block),
            {"block": block, "rows": [start, stop], "error": sentence, "deaths": deaths, "time": time.time()},
        )

    def forget_failure(self, block: int) -> None:
        self._failure(block).unlink(missing_ok=True)

    def failures(self) -> list[dict[str, Any]]:
        """Notes on blocks that failed, by block. One that cannot be read is passed over."""
        return [
            note
            for path in sorted((self.root / "failures").glob("*.json"))
            if (note := _note(path)) is not None
        ]

    def _failure(self, block: int) -> Path:
        return self.root / "failures" / self.run.record_file(block).name

    def manifest(self) -> dict[str, Any] | None:
        path = self.root / "manifest.json"
        return read_own_json(path) if path.exists() else None

    def whole_manifest(self) -> dict[str, Any] | None:
        """The manifest where it holds what was written."""
        try:
            manifest = read_json(self.root / "manifest.json")
        except (ValueError, OSError):
            return None
        seal = manifest.get("checksum")
        return (
            manifest if seal == digest_json({k: v for k, v in manifest.items() if k != "checksum"}) else None
        )

    def finish(self, manifest: dict[str, Any]) -> None:
        write_json(self.root / "manifest.json", manifest)


def open_ledger(output: Path) -> Ledger:
    """The ledger of an output that is there. Raises PlanConflictError where there is none."""
    path = output / "plan.json"
    if not path.exists():
        raise PlanConflictError(
            f"an output of `dcpred score` was asked for at {output}, but it holds no plan.json; name another"
        )
    plan = read_own_json(path)
    try:
        values = {f.name: plan[f.name] for f in fields(ScoreRun)}
        run = ScoreRun(**{**values, "outputs": tuple(values["outputs"]), "output": str(output.absolute())})
        if not _possible(run):
            raise ValueError
        return Ledger(run, -(-run.n_rows // run.block_rows))
    except (KeyError, TypeError, ValueError):
        raise PlanConflictError(
            f"{path} is not what dcpred writes there; score into a new directory, or put back the plan that"
            " was there"
        ) from None


def _possible(run: ScoreRun) -> bool:
    """Whether a plan can be one that was written."""
    texts = (run.run, run.x, run.model, run.model_hash)
    numbers = (run.n_rows, run.chunk_rows, run.block_rows)
    if not all(type(t) is str for t in texts) or not all(type(n) is int and n > 0 for n in numbers):
        return False
    return (
        run.n_rows <= MOST_BLOCKS * run.block_rows
        and bool(run.outputs)
        and all(name in OUTPUTS for name in run.outputs)
    )


def _note(path: Path) -> dict[str, Any] | None:
    try:
        note = read_json(path)
    except (ValueError, OSError):
        return None
    types = {"block": int, "error": str, "deaths": int}
    return note if all(type(note.get(name)) is kind for name, kind in types.items()) else None


def _ours(name: str) -> bool:
    """Whether a run that was cut off before its plan was written may have left this."""
    return name in ("blocks", "failures", "lock") or name.startswith(("plan.json.", "lock."))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
