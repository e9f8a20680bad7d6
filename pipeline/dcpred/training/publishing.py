"""Publish a model: at its path, or next to it where limits are exceeded."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dcpred_tasks.artifacts.model_artifact import MODEL_FILE, STORE_GROUP, check_free_for_model, open_artifact
from dcpred_tasks.errors import DataError, PlanConflictError, SettingsError
from dcpred_tasks.storage.addresses import absolute, check_writable, path_on_disk
from dcpred_tasks.storage.atomic_files import (
    PARTIAL,
    check_new_name,
    decoded,
    encoded,
    new_directory,
    resource_errors,
)
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.storage.place import Place, open_place, read_document
from dcpred_tasks.storage.store_requests import Retrying, nonce_written


@contextmanager
def trained_beside(model: str | Path, scratch: Path | None) -> Iterator[Path]:
    """The path to train a model for `model` at; it is copied there when the `with` statement ends without
    an error.

    scratch  a directory that driver and workers share; None: the model is trained at `model`

    Raises SettingsError if a store needs a scratch directory, PlanConflictError if another model lies at
    `model`.
    """
    check_writable(model, "a model's files")
    if scratch is None:
        if path_on_disk(model) is None:
            raise SettingsError(
                f"Cannot train {absolute(model)}: the temporary files of training need"
                " a directory that driver and workers share. Name one with --scratch DIR."
            )
        yield Path(model)
        return
    target = open_place(model)
    name = absolute(model).rstrip("/").rpartition("/")[2] or "model"
    here = scratch.absolute() / f"{name}-{digest(target.address.encode())[:8]}"
    if not here.exists() and target.read(MODEL_FILE) is not None:
        raise PlanConflictError(
            f"Cannot write a model to {target.address}: one is there that was not trained in"
            f" {scratch}. Remove it or choose another path."
        )
    if target.folder is not None:
        check_new_name(target.folder, PARTIAL)
    elif target.read(MODEL_FILE) is None:
        check_free_for_model(target)
        with nonce_written(target.address):
            """Report a missing right now, and not after training."""
    with resource_errors(scratch):
        scratch.mkdir(parents=True, exist_ok=True)
    yield here
    publish(here, target)


def publish(model: Path, target: Place) -> None:
    """Copy a model, byte for byte: readers see all of it or nothing. Raises DataError if another one
    exists.
    """
    trained = open_artifact(model)
    if (standing := read_document(target, MODEL_FILE)) is not None:
        if standing.get("hash") != trained.hash:
            raise DataError(
                f"Cannot write a model to {target.address}: another one is there. Remove it or choose"
                " another path."
            )
        return
    if target.folder is not None:
        with new_directory(target.folder) as partial:
            shutil.copytree(model, partial, dirs_exist_ok=True)
        return
    check_free_for_model(target)
    group, retrying = f"arrays-{secrets.token_hex(6)}.zarr", Retrying()
    assert STORE_GROUP.fullmatch(group)
    source = Path(trained.group)
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        name, data = f"{group}/{file.relative_to(source)}", file.read_bytes()
        retrying(lambda name=name, data=data: target.write(name, data))  # type: ignore[misc]
    summary = decoded((model / MODEL_FILE).read_bytes(), model)
    if not target.create(MODEL_FILE, encoded({**summary, "arrays": group})):
        for name in target.listing(group):
            target.remove(name)
        publish(model, target)  # One exists now: the same, or an error.
