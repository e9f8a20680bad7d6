"""Temporary files of a training: its directory, created, checked and held, and the import of a table.

The import is a function of the table and of the named columns, with the times of its files: a training that
was interrupted, or is finished, recognises its data also after another import.
"""

import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import zarr

from dcpred.execution.lease import LEASE_FILES, acquire_lock
from dcpred.execution.progress import counted, show
from dcpred.public.functions import option_of
from dcpred_tasks.errors import DataError, DcpredError, PlanConflictError, RefusedError, SettingsError
from dcpred_tasks.scratch import scratch_code
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import absolute, path_on_disk
from dcpred_tasks.storage.atomic_files import is_system_file, read_own_json, resource_errors, write_json
from dcpred_tasks.storage.digests import digest, digest_json
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.tables.sources import is_table, open_source

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
    data      the digest of its data
    settings  the digest of its settings
    source    of a table that was imported for it: the digest of `source_of`
    by_time   the column by which later rows are held out
    """

    run: str
    earlier: Collection[str] = ()
    data: str = ""
    settings: str = ""
    source: str = ""
    by_time: str = ""

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


def check_scratch(scratch: Path, identity: Identity, model: Path) -> None:
    """Raise PlanConflictError unless the scratch directory is free, or of this training in any version."""
    path = scratch / MARK
    if not scratch.exists():
        return
    if path.exists():
        mark = read_own_json(path)
        if mark.get("run") in identity.runs:
            return
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
        not LEASE_FILES.fullmatch(entry.name)
        and not entry.name.startswith(f"{MARK}.")
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
        with acquire_lock(open_place(scratch)):
            drop_scratch(scratch)


def own_mark(run: str) -> dict[str, str]:
    """The owner of a scratch directory: the run, and the code that writes its files."""
    return {"run": run, "code": scratch_code()}


def clear_scratch(scratch: Path) -> None:
    """Remove all files but those that state the owner."""
    for entry in scratch.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != MARK and not LEASE_FILES.fullmatch(entry.name):
            entry.unlink()


@contextmanager
def claimed(scratch: Path, identity: Identity, model: Path) -> Iterator[None]:
    """Make or resume the scratch directory of this training, without files of other code, and hold it."""
    make_scratch(scratch, model)
    with acquire_lock(open_place(scratch)):
        check_scratch(scratch, identity, model)
        mark = scratch / MARK
        goes_on = mark.exists() and read_own_json(mark) == identity.mark()
        if mark.exists() and not goes_on:
            show(f"{scratch} holds temporary files of another version of dcpred; starting anew")
            clear_scratch(scratch)
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


# -- Imports of tables ---------------------------------------------------------------------------------------


OPTION = re.compile(r"--[a-z-]+")
IMPORT_MARK, DATA = "source.json", "data.zarr"
EARLIEST, STEP = 10**18, 1000  # nanoseconds since 1970 of the times that files of an import get


@dataclass(frozen=True)
class NamedColumns:
    """The columns of a table that are not features, by name."""

    target: str
    ids: tuple[str, ...] = ()
    """Stored next to the features."""
    drop: tuple[str, ...] = ()
    """Omitted."""
    weight: str | None = None
    """The weights of rows."""


def source_of(data: Any, columns: NamedColumns, asked: Mapping[str, Any]) -> str:
    """A digest of a training on a table, which needs no import: of its files, named columns and arguments; ""
    for other data.
    """
    if not isinstance(data, str | Path) or not isinstance(columns.target, str) or not is_table(data):
        return ""
    refined_by = {"refined by": None}  # Earlier versions had it in the digest.
    return digest_json({"rows": _identity(data, columns), **refined_by, **asked})


def drop_import(folder: Path | None) -> None:
    """Remove the import of a finished training that was killed before it did so."""
    if folder is not None and (folder / IMPORT_MARK).exists():
        with acquire_lock(open_place(folder)):
            _check_own(folder)
            shutil.rmtree(folder, ignore_errors=True)


def import_folder(model: str | Path | None, scratch: Path | None) -> Path | None:
    """The folder of the import for a new model or a comparison, or with None for a validation; None: among
    the temporary files of the system. Raises SettingsError where no folder is known that workers share.
    """
    if model is None:
        return None if scratch is None else scratch.absolute() / "validation.import"
    path = path_on_disk(model)
    if scratch is not None:
        return scratch.absolute() / f"{Path(str(model)).name}.import"
    if path is None:
        raise SettingsError(
            f"Cannot train {absolute(model)}: the temporary files of training need a directory that driver"
            " and workers share. Name one with --scratch DIR."
        )
    return path.absolute().with_name(f"{path.name}.import")


@contextmanager
def imported(data: str | Path, columns: NamedColumns, folder: Path | None) -> Iterator[str]:
    """The address of the imported rows of a table while a `with` statement runs. An import that an
    interrupted training left is used again.

    Raises DataError for a table that cannot be imported, PlanConflictError where the folder holds other
    files, RunHeldError where another training uses it.
    """
    if folder is None:
        with TemporaryDirectory(prefix="dcpred-import-") as made:
            yield _imported(data, columns, Path(made))
        return
    make_scratch(folder, folder.with_suffix(""))
    with acquire_lock(open_place(folder)):
        _check_own(folder)
        try:
            yield _imported(data, columns, folder)
        except RefusedError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


def _check_own(folder: Path) -> None:
    names = (entry.name for entry in folder.iterdir() if not entry.name.startswith(IMPORT_MARK))
    if not all(map(LEASE_FILES.fullmatch, names)) and not (folder / IMPORT_MARK).exists():
        raise PlanConflictError(
            f"Cannot use {folder} for the import of a table: it holds other files. Remove them."
        )


def _imported(data: str | Path, columns: NamedColumns, folder: Path) -> str:
    identity = _identity(data, columns)
    mark, rows = folder / IMPORT_MARK, folder / DATA
    known = read_own_json(mark) if mark.exists() else {}
    stated = {"identity": identity, "source": absolute(data)}
    name = absolute(data).rpartition("/")[2]
    if known.get("identity") == identity and known.get("complete") and rows.exists():
        show(f"using the import of {name} that an interrupted training left")
        return str(rows)
    write_json(mark, {**stated, "complete": False})  # before anything of an earlier import is removed
    if rows.exists():
        with resource_errors(rows):
            shutil.rmtree(rows)
    _import(data, columns, rows, name)
    _stamp(rows, EARLIEST + STEP * int(identity[:12], 16))
    write_json(mark, {**stated, "complete": True})
    return str(rows)


def _import(data: str | Path, columns: NamedColumns, rows: Path, name: str) -> None:
    from dcpred.datasets.importing import import_data

    weights = [] if columns.weight is None else [columns.weight]
    try:
        imported = import_data(
            str(data),
            rows,
            target=columns.target,
            id=list(dict.fromkeys([*columns.ids, *weights])),
            drop=columns.drop,
        )
        _write_weights(rows, columns.weight, name)
    except DataError as error:
        shutil.rmtree(rows, ignore_errors=True)
        raise DataError(_for_training(str(error))) from None
    show(
        f"imported {counted(imported.n_samples, 'row', 'rows')} of {name}:"
        f" {counted(imported.n_features, 'feature', 'features')}, target {columns.target}"
    )


def _write_weights(rows: Path, weight: str | None, name: str) -> None:
    """Replace the text of the weights, which lie next to X as ids do, by numbers."""
    if weight is None:
        return
    group = zarr.open_group(rows, mode="r+")
    texts = group[weight]
    assert isinstance(texts, zarr.Array)
    size = texts.chunks[0]
    try:
        numbers = np.asarray(texts[...]).astype(np.float64)
    except ValueError as error:
        raise DataError(
            f"Cannot use column {weight!r} of {name} as weights of rows: {error}. Name a column of numbers."
        ) from None
    del group[weight]
    array = zarr_arrays.create_array(group, weight, numbers.shape, numbers.dtype, size, fill_value=np.nan)
    array[...] = numbers


def _for_training(message: str) -> str:
    """A message of the import with the options of a training."""
    message = message.replace("--target", "--y")
    if message.startswith("Cannot use column") and "as target: " in message:
        message = f"{message} The target is named by {option_of('y')}."
    if set(OPTION.findall(message)) <= {"--y", "--id", "--drop"}:
        return message
    return (
        f"{message.rstrip('.')}: a training takes --y, --id and --drop; for other options run `dcpred"
        " import`, and train on what it writes."
    )


def _stamp(folder: Path, time_ns: int) -> None:
    """Give all files of a folder one time of writing."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, ns=(time_ns, time_ns))


def _identity(data: str | Path, columns: NamedColumns) -> str:
    """A digest that changes with the named columns, and with sizes and times of the files of a table."""
    source = open_source(absolute(data))
    lines = [f"{file.name} {file.size} {file.tag} {file.values or ''}" for file in source.files]
    # Columns that a log states, and that files may lack.
    stated = "" if source.schema is None else str(source.schema)
    return digest("\n".join([*lines, stated]).encode(), repr(columns).encode())
