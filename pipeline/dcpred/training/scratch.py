"""The directory for temporary files of a training job: created, checked and held."""

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dcpred.execution.lease import hold
from dcpred.execution.progress import SILENT, Reporter
from dcpred_tasks.engine.compiler import SWITCH
from dcpred_tasks.errors import DataError, DcpredError, PlanConflictError
from dcpred_tasks.scratch import scratch_code
from dcpred_tasks.storage.atomic_files import read_own_json, resource_errors, write_json
from dcpred_tasks.storage.plain_files import is_system_file
from dcpred_tasks.training.refinement import REFINED_BY, arithmetic


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


class Otherwise(NamedTuple):
    """Trainings of the same data and settings that refine leaves with other code than this process."""

    runs: Collection[str] = ()

    def check(self, place: Path, run: Any) -> None:
        """Raise PlanConflictError if `place` holds one of them."""
        if run not in self.runs:
            return
        here = arithmetic()
        other = next(one for one in REFINED_BY if one != here)
        raise PlanConflictError(
            f"{place} holds a training of the same data and settings that refines leaves by"
            f" {REFINED_BY[other]}, but this process refines by {REFINED_BY[here]}, which gives other last"
            f" bits. Train with the llvmlite and the {SWITCH} of that training, remove it, or choose another"
            " path."
        )


NO_OTHERS = Otherwise()


def check_scratch(
    scratch: Path, runs: Collection[str], model: Path, otherwise: Otherwise = NO_OTHERS
) -> None:
    """Raise PlanConflictError unless the scratch directory is free, or is of one of these runs."""
    path = scratch / "job.json"
    if not scratch.exists():
        return
    if path.exists():
        if (run := read_own_json(path).get("run")) not in runs:
            otherwise.check(scratch, run)
            raise PlanConflictError(
                f"Cannot train in {scratch}: it holds an unfinished training of {model} with other data or"
                " settings. Finish that one, or remove the directory."
            )
        return
    if any(
        entry.name != "lock"
        and not entry.name.startswith(("job.json.", "lock."))
        and not is_system_file(entry.name)
        for entry in scratch.iterdir()
    ):
        raise PlanConflictError(
            f"Cannot use {scratch} for temporary files: it holds other files. Remove them."
        )


def drop_scratch(scratch: Path) -> None:
    """Remove the directory. The file with its owner goes last: an interrupted removal can resume."""
    if scratch.exists():
        for entry in sorted(scratch.iterdir(), key=lambda e: e.name == "job.json"):
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)


def drop_leftovers(scratch: Path, runs: Collection[str]) -> None:
    """Remove the directory of a finished training that was killed before it did so."""
    path = scratch / "job.json"
    if path.exists() and read_own_json(path).get("run") in runs:
        with hold(scratch):
            drop_scratch(scratch)


def own_mark(run: str) -> dict[str, str]:
    """The owner of a scratch directory: the run, and the code that writes its files."""
    return {"run": run, "code": scratch_code()}


@contextmanager
def claimed(
    scratch: Path, run: str, model: Path, say: Reporter = SILENT, earlier: Collection[str] = ()
) -> Iterator[None]:
    """Make the scratch directory, or resume in that of this run, and hold it. Files of the same run by other
    code are removed.

    earlier  hashes of the run by earlier versions
    """
    make_scratch(scratch, model)
    with hold(scratch):
        check_scratch(scratch, (run, *earlier), model)
        mark = scratch / "job.json"
        goes_on = mark.exists() and read_own_json(mark) == own_mark(run)
        if mark.exists() and not goes_on:
            say.say(f"{scratch} holds temporary files of another version of dcpred; starting anew")
            for entry in scratch.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry)
                elif entry.name not in ("lock", "job.json"):
                    entry.unlink()
        if not goes_on:
            write_json(mark, own_mark(run))
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
