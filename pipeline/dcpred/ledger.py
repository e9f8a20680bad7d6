"""The state of a scoring run, all of it in the output directory.

OUTPUT/
  plan.json       what the run is; written first
  scores.zarr     label, decision, status
  blocks/*.json   commit records; a block is done if and only if its record is there and its digest matches
  manifest.json   written last, after every block was read back and verified
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dcpred.locking import hold
from dcpred_tasks.errors import PlanConflictError
from dcpred_tasks.files import read_own_json, resource_errors, write_json
from dcpred_tasks.records import BlockReceipt, ScoreRun, list_records, read_receipt

FORMAT = "dcpred-scores"
VERSION = 1


@dataclass(frozen=True)
class Ledger:
    """Commit records of one run."""

    run: ScoreRun
    n_blocks: int

    @property
    def root(self) -> Path:
        return Path(self.run.output)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Make the directory this run's, or take up what it left, and hold it. Raises PlanConflictError, RunHeldError."""
        with resource_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
        with hold(self.root):
            self.check()
            with resource_errors(self.root):
                (self.root / "blocks").mkdir(exist_ok=True)
            if not (self.root / "plan.json").exists():
                write_json(self.root / "plan.json", {"format": FORMAT, "version": VERSION, **asdict(self.run)})
            yield

    def check(self) -> None:
        """Raise PlanConflictError where the directory belongs to something else; write nothing."""
        path = self.root / "plan.json"
        if path.exists():
            self._check(read_own_json(path))
        elif self.root.exists() and (
            not self.root.is_dir() or any(not _ours(e.name) for e in self.root.iterdir())
        ):
            raise PlanConflictError(f"scores were to be written to {self.root}, but it holds other files; name a new directory")

    def _check(self, plan: dict[str, Any]) -> None:
        if plan.get("run") != self.run.run:
            told = ("model_hash", "outputs", "n_rows", "chunk_rows", "block_rows")
            differs = [k for k in told if plan.get(k) != _plain(getattr(self.run, k))]
            raise PlanConflictError(
                f"{self.root} belongs to another plan (it differs in {', '.join(differs) or 'the data'}); name a new "
                "directory, or run with the model, data and outputs that it was made with"
            )

    def pending(self) -> list[int]:
        done, _ = list_records(self.run)
        return [block for block in range(self.n_blocks) if block not in done]

    def receipts(self) -> Iterator[BlockReceipt]:
        for block in range(self.n_blocks):
            receipt = read_receipt(self.run, block)
            if receipt is not None:
                yield receipt

    def retract(self, block: int) -> None:
        """Withdraw a commit record whose block does not verify."""
        self.run.record(block).unlink(missing_ok=True)

    def manifest(self) -> dict[str, Any] | None:
        path = self.root / "manifest.json"
        return read_own_json(path) if path.exists() else None

    def finish(self, manifest: dict[str, Any]) -> None:
        write_json(self.root / "manifest.json", manifest)


def _ours(name: str) -> bool:
    """Whether a run that was cut off before its plan was written may have left this."""
    return name in ("blocks", "lock") or name.startswith("plan.json.")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
