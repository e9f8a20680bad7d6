"""The directory for the work in progress of a training job: made, checked and held."""

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dcpred.execution.lease import hold
from dcpred.execution.progress import SILENT, Reporter
from dcpred_tasks.engine.compiler import SWITCH
from dcpred_tasks.errors import DataError, DcpredError, PlanConflictError
from dcpred_tasks.scratch.training_job import scratch_code
from dcpred_tasks.storage.atomic_files import read_own_json, resource_errors, write_json
from dcpred_tasks.storage.plain_files import is_system_file
from dcpred_tasks.training.refinement import REFINED_BY, arithmetic


def search_folder(model: Path) -> Path:
    """The directory for the work in progress of a search for the settings of a model."""
    return model.with_name(f"{model.name}.tune")


def make_scratch(scratch: Path, model: Path) -> None:
    """Make a directory for the work in progress. Raises DataError where there can be none."""
    with resource_errors(scratch):
        try:
            scratch.mkdir(parents=True, exist_ok=True)
        except (FileNotFoundError, NotADirectoryError, FileExistsError) as error:
            raise DataError(
                f"a model was to be written to {model}, but no directory can be made beside it"
                f" ({error.strerror}); name another place"
            ) from None


class Otherwise(NamedTuple):
    """Trainings of the same data and settings that refine leaves by what this process does not."""

    runs: Collection[str] = ()

    def check(self, place: Path, run: Any) -> None:
        """Raise PlanConflictError where `place` holds one of them."""
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
    """Raise PlanConflictError unless the scratch directory is free, or was left by one of these runs."""
    path = scratch / "job.json"
    if not scratch.exists():
        return
    if path.exists():
        if (run := read_own_json(path).get("run")) not in runs:
            otherwise.check(scratch, run)
            raise PlanConflictError(
                f"{scratch} holds an unfinished training of {model} with other data or settings; finish that"
                " one, or remove the directory"
            )
        return
    if any(
        entry.name != "lock"
        and not entry.name.startswith(("job.json.", "lock."))
        and not is_system_file(entry.name)
        for entry in scratch.iterdir()
    ):
        raise PlanConflictError(
            f"{scratch} is needed for the work in progress, but it holds other files; remove them"
        )


def drop_scratch(scratch: Path) -> None:
    """Remove the directory. The file that says whose it is goes last: a removal that is cut off goes on."""
    if scratch.exists():
        for entry in sorted(scratch.iterdir(), key=lambda e: e.name == "job.json"):
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)


def drop_leftovers(scratch: Path, runs: Collection[str]) -> None:
    """Remove the directory of a training that is finished, where it was killed before it did so."""
    path = scratch / "job.json"
    if path.exists() and read_own_json(path).get("run") in runs:
        with hold(scratch):
            drop_scratch(scratch)


def own_mark(run: str) -> dict[str, str]:
    """What a scratch directory holds of its owner: the run, and the code that writes what lies there."""
    return {"run": run, "code": scratch_code()}


@contextmanager
def claimed(
    scratch: Path, run: str, model: Path, say: Reporter = SILENT, earlier: Collection[str] = ()
) -> Iterator[None]:
    """Make the scratch directory, or take up the one that this run left, and hold it. What other code left
    of the same run is removed.

    earlier  what earlier versions called the run
    """
    make_scratch(scratch, model)
    with hold(scratch):
        check_scratch(scratch, (run, *earlier), model)
        mark = scratch / "job.json"
        goes_on = mark.exists() and read_own_json(mark) == own_mark(run)
        if mark.exists() and not goes_on:
            say.say(f"{scratch} holds the work in progress of another version of dcpred; it begins anew")
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
    """Where work goes on from what a directory holds, an error that nobody expects is told of that: checksums
    tell of damage, and not of files that somebody else wrote. Raises PlanConflictError.
    """
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        if not goes_on or (isinstance(error, DcpredError) and type(error) is not DcpredError):
            raise
        raise PlanConflictError(
            f"work was to go on from what {scratch} holds, but that does not fit together ({error}); remove"
            " the directory, and run again"
        ) from error
