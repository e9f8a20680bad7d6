"""A table to train on: imported among the temporary files of the training, and removed with them.

The import is a function of the table and of the named columns, with the times of its files: a training that
was interrupted, or is finished, recognises its data also after another import.
"""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import zarr

from dcpred.execution.lease import hold
from dcpred.execution.progress import Reporter, counted, rows_of
from dcpred.training.scratch import make_scratch
from dcpred_tasks.errors import DataError, PlanConflictError, RefusedError, SettingsError
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.addresses import absolute, local_path, path_on_disk
from dcpred_tasks.storage.atomic_files import read_own_json, write_json
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.storage.place import open_place

OPTION = re.compile(r"--[a-z-]+")
MARK, DATA = "source.json", "data.zarr"
ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")
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


def is_table(data: str | Path) -> bool:
    """Whether an address is that of a table with named columns, which `dcpred import` reads."""
    path = local_path(data)
    folder = open_place(path).folder
    if folder is not None and any(os.path.exists(folder / name) for name in ZARR_FILES):
        return False
    return zarr_arrays.table_ending(path) in zarr_arrays.TABLES


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
def imported(data: str | Path, columns: NamedColumns, folder: Path | None, say: Reporter) -> Iterator[str]:
    """The address of the imported rows of a table while a `with` statement runs. An import that an
    interrupted training left is used again.

    Raises DataError for a table that cannot be imported, PlanConflictError where the folder holds other
    files, RunHeldError where another training uses it.
    """
    if folder is None:
        with TemporaryDirectory(prefix="dcpred-import-") as made:
            yield _imported(data, columns, Path(made), say)
        return
    make_scratch(folder, folder.with_suffix(""))
    with hold(folder):
        _check_own(folder)
        try:
            yield _imported(data, columns, folder, say)
        except RefusedError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


def _check_own(folder: Path) -> None:
    names = {entry.name for entry in folder.iterdir() if not entry.name.startswith(("lock", MARK))}
    if names and not (folder / MARK).exists():
        raise PlanConflictError(
            f"Cannot use {folder} for the import of a table: it holds other files. Remove them."
        )


def _imported(data: str | Path, columns: NamedColumns, folder: Path, say: Reporter) -> str:
    identity = _identity(data, columns)
    mark, rows = folder / MARK, folder / DATA
    known = read_own_json(mark) if mark.exists() else {}
    if known.get("identity") != identity or not known.get("complete"):
        shutil.rmtree(rows, ignore_errors=True)
    stated = {"identity": identity, "source": absolute(data)}
    write_json(mark, {**stated, "complete": rows.exists()})
    name = absolute(data).rpartition("/")[2]
    if rows.exists():
        say.say(f"using the import of {name} that an interrupted training left")
    else:
        _import(data, columns, rows, name, say)
        _stamp(rows, EARLIEST + STEP * int(identity[:12], 16))
        write_json(mark, {**stated, "complete": True})
    return str(rows)


def _import(data: str | Path, columns: NamedColumns, rows: Path, name: str, say: Reporter) -> None:
    import_data = import_module("dcpred.datasets.importing").import_data  # slow to import
    with say.step("importing", None, "rows") as advance:
        try:
            found = import_data(
                str(data),
                rows,
                target=columns.target,
                id=[*columns.ids, *({columns.weight} - {None, *columns.ids})],
                drop=columns.drop,
                progress=rows_of(advance),
            )
            _write_weights(rows, columns.weight, name)
        except DataError as error:
            shutil.rmtree(rows, ignore_errors=True)
            raise DataError(_for_training(str(error))) from None
    say.say(
        f"imported {counted(found.n_samples, 'row', 'rows')} of {name}:"
        f" {counted(found.n_features, 'feature', 'features')}, target {columns.target}"
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
    if set(OPTION.findall(message)) <= {"--y", "--id", "--drop"}:
        return message
    return f"{message.rstrip('.')}: run `dcpred import` with that option, and train on what it writes."


def _stamp(folder: Path, time_ns: int) -> None:
    """Give all files of a folder one time of writing."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, ns=(time_ns, time_ns))


def _identity(data: str | Path, columns: NamedColumns) -> str:
    """A digest that changes with the named columns, and with sizes and times of the files of a table."""
    path = local_path(data).rstrip("/")
    lines: list[str] = []
    folder, _, name = absolute(path).rpartition("/")
    place = open_place(folder)
    if place.folder is None:
        entry = place.listing().get(name)
        lines = [f"{name} {entry.size} {entry.tag}" if entry else name]
    else:
        files: Sequence[Path] = (
            sorted(p for p in Path(path).rglob("*") if p.is_file()) if os.path.isdir(path) else [Path(path)]
        )
        for file in files:
            state = file.stat()
            lines.append(f"{os.path.relpath(file, path)} {state.st_size} {state.st_mtime_ns}")
    return digest("\n".join(lines).encode(), repr(columns).encode())
