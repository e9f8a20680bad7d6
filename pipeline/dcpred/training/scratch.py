"""The directory for temporary files of a training job: created, checked and held."""

import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dcpred.execution.lease import hold
from dcpred.execution.progress import SILENT, Reporter
from dcpred_tasks.engine.compiler import SWITCH
from dcpred_tasks.errors import DataError, DcpredError, PlanConflictError
from dcpred_tasks.scratch import scratch_code
from dcpred_tasks.storage.atomic_files import is_system_file, read_own_json, resource_errors, write_json
from dcpred_tasks.training.refinement import REFINED_BY, arithmetic

MARK = "job.json"  # the owner of a scratch directory


def search_folder(model: Path) -> Path:
    """The directory for temporary files of a search for the settings of a model."""
    return model.with_name(f"{model.name}.tune")


def make_scratch(scratch: Path, model: Path) -> None:
    """Make a directory for temporary files. Raises DataError if that is impossible."""
    with resource_errors(scratch):
        try:
            scratch.mkdir(parents=True, exist_ok=True)
        except (FileNotFoundError, NotADirectoryError, FileExistsError) as error:
            raise DataError(
                f"Cannot write a model to {model}: no directory can be made next to it"
                f" ({error.strerror}). Choose another path."
            ) from None


class Identity(NamedTuple):
    """What a training is of.

    run       its hash
    earlier   its hashes by earlier versions
    by_other  hashes of the training of the same data and settings that refines leaves with other code
    data      the digest of its data
    settings  the digest of its settings
    """

    run: str
    earlier: Collection[str] = ()
    by_other: Collection[str] = ()
    data: str = ""
    settings: str = ""

    @property
    def runs(self) -> tuple[str, ...]:
        return (self.run, *self.earlier)

    def recorded(self) -> dict[str, str]:
        """The fields in the provenance of a model, and in the mark of a scratch directory."""
        return {"run": self.run, "data_digest": self.data, "settings_digest": self.settings}

    def mark(self) -> dict[str, str]:
        """The owner of a scratch directory."""
        return own_mark(self.run) | self.recorded()

    def is_same_work(self, mark: Mapping[str, Any]) -> bool | None:
        """Whether a mark with another hash is of the same data and settings, which another version of dcpred
        hashed. None if the mark does not show that: versions before 0.2.0 wrote only the hash.
        """
        digests = {name: value for name, value in self.recorded().items() if name != "run"}
        if not digests.keys() <= mark.keys():
            return None
        return all(mark[name] == value for name, value in digests.items())

    def check_refinement(self, place: Path, run: Any) -> None:
        """Raise PlanConflictError if `place` holds a training that refines leaves with other code."""
        if run not in self.by_other:
            return
        here = arithmetic()
        other = next(one for one in REFINED_BY if one != here)
        raise PlanConflictError(
            f"{place} holds a training of the same data and settings that refines leaves by"
            f" {REFINED_BY[other]}, but this process refines by {REFINED_BY[here]}, which gives other last"
            f" bits. Train with the llvmlite and the {SWITCH} of that training, remove it, or choose another"
            " path."
        )


def check_scratch(scratch: Path, identity: Identity, model: Path) -> None:
    """Raise PlanConflictError unless the scratch directory is free, or of this training in any version."""
    path = scratch / MARK
    if not scratch.exists():
        return
    if path.exists():
        mark = read_own_json(path)
        if mark.get("run") in identity.runs:
            return
        identity.check_refinement(scratch, mark.get("run"))
        same = identity.is_same_work(mark)
        if not same and (same is False or mark.get("code") == scratch_code()):
            raise PlanConflictError(
                f"Cannot train in {scratch}: it holds an unfinished training of {model} with other data or"
                " settings. Finish that one, or remove the directory."
            )
        if same is None:
            raise PlanConflictError(
                f"Cannot train in {scratch}: it holds an unfinished training of {model} by another version of"
                " dcpred, which this version does not continue. Finish it with that version, or remove the"
                " directory."
            )
        return
    if any(
        entry.name != "lock"
        and not entry.name.startswith((f"{MARK}.", "lock."))
        and not is_system_file(entry.name)
        for entry in scratch.iterdir()
    ):
        raise PlanConflictError(
            f"Cannot use {scratch} for temporary files: it holds other files. Remove them."
        )


def drop_scratch(scratch: Path) -> None:
    """Remove the directory. The file with its owner goes last: an interrupted removal can resume."""
    if scratch.exists():
        for entry in sorted(scratch.iterdir(), key=lambda e: e.name == MARK):
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)


def drop_leftovers(scratch: Path, runs: Collection[str]) -> None:
    """Remove the directory of a finished training that was killed before it did so."""
    path = scratch / MARK
    if path.exists() and read_own_json(path).get("run") in runs:
        with hold(scratch):
            drop_scratch(scratch)


def own_mark(run: str) -> dict[str, str]:
    """The owner of a scratch directory: the run, and the code that writes its files."""
    return {"run": run, "code": scratch_code()}


@contextmanager
def claimed(scratch: Path, identity: Identity, model: Path, say: Reporter = SILENT) -> Iterator[None]:
    """Make or resume the scratch directory of this training, without files of other code, and hold it."""
    make_scratch(scratch, model)
    with hold(scratch):
        check_scratch(scratch, identity, model)
        mark = scratch / MARK
        goes_on = mark.exists() and read_own_json(mark) == identity.mark()
        if mark.exists() and not goes_on:
            say.say(f"{scratch} holds temporary files of another version of dcpred; starting anew")
            for entry in scratch.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry)
                elif entry.name not in ("lock", MARK):
                    entry.unlink()
        if not goes_on:
            write_json(mark, identity.mark())
        for folder in ("survey", "leaves", "rows-0"):
            (scratch / folder).mkdir(exist_ok=True)
        with distrusted(scratch, goes_on):
            yield


@contextmanager
def distrusted(scratch: Path, goes_on: bool) -> Iterator[None]:
    """Report an unexpected error of resumed work as one of its directory: checksums detect damage, but not
    files of other origin. Raises PlanConflictError.
    """
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        if not goes_on or (isinstance(error, DcpredError) and type(error) is not DcpredError):
            raise
        raise PlanConflictError(
            f"Cannot resume from {scratch}: its files do not fit together ({error}). Remove"
            " the directory, and run again."
        ) from error
