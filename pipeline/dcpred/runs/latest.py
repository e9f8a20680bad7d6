"""The latest run of a refresh: a symbolic link on disks, else a small file. Either is replaced in one step: a
reader always gets a complete run.
"""

import errno
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from dcpred_tasks.annotations import from_document
from dcpred_tasks.errors import PlanConflictError
from dcpred_tasks.storage.addresses import below, path_on_disk
from dcpred_tasks.storage.atomic_files import partial_name, resource_errors, sync_directory
from dcpred_tasks.storage.place import open_place, read_own_document, read_sealed_document, write_document
from dcpred_tasks.storage.place_types import Place

SETTINGS, LINK, LATEST, RUNS, PARTS = "refresh.json", "latest", "LATEST.json", "runs", "parts"  # in a root
RUN_NAME = re.compile(r"(\d{4,9})-[0-9a-f]{8}")
# Answers of a file system without symbolic links.
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}


def latest_run(place: Place) -> str:
    """The name of the latest run of a root, or "". Raises PlanConflictError for another's pointer."""
    pointed = None
    if place.links is not None:
        with suppress(FileNotFoundError):
            pointed = _target(place.links / LINK)
    if pointed is None:
        pointer = read_own_document(place, LATEST)
        if pointer is None:
            return ""
        pointed = str(pointer.get("run"))
    folder, _, name = pointed.partition("/")
    if folder != RUNS or not RUN_NAME.fullmatch(name):
        raise PlanConflictError(
            f"Cannot find the latest run of {place.address}: its pointer names {pointed!r}. Let it"
            f" point to {RUNS}/NAME again, or remove it and name a run with --publish."
        )
    return name


def run_meant(output: str | Path) -> str | Path:
    """The address of the latest run for ROOT/latest, or ROOT/latest/parts/NAME; else the same address."""
    if path_on_disk(output) is not None:
        return output
    root, _, part = str(output).rstrip("/").rpartition(f"/{LINK}/{PARTS}/")
    if not root:
        root, _, name = str(output).rstrip("/").rpartition("/")
        if name != LINK:
            return output
    run = latest_run(open_place(root))
    if not run:
        return output
    if "/" in part or not part:
        return below(root, RUNS, run)
    run_of_part = parts_in(read_own_document(open_place(root), f"{RUNS}/{run}/{MANIFEST}")).get(part)
    return below(root, PARTS, part, RUNS, run_of_part) if run_of_part else output


def point_to(place: Place, name: str) -> None:
    """Make a run the latest."""
    if place.links is not None:
        link, partial = place.links / LINK, partial_name(place.links / LINK)
        with resource_errors(link):
            try:
                partial.symlink_to(f"{RUNS}/{name}")
                os.replace(partial, link)
                sync_directory(place.links)
                return
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
            finally:
                partial.unlink(missing_ok=True)
    write_document(place, LATEST, {"run": f"{RUNS}/{name}"})


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise PlanConflictError(
            f"Cannot find the latest run of {link.parent}: {link} is not a symbolic link. Remove it, and"
            " name a run with --publish."
        ) from None


PLAN, MANIFEST, INPUTS = "plan.json", "manifest.json", "inputs.json"


def runs_of_parts(output: str | Path) -> dict[str, str]:
    """The addresses of the runs of each input, by its name, of a refresh of several inputs; none for any
    other output.
    """
    place = open_place(run_meant(output))
    try:
        parts = parts_in(read_sealed_document(place, MANIFEST))
    except NotADirectoryError:
        return {}
    root = place.address.rpartition(f"/{RUNS}/")[0] or place.address.rpartition("/")[0]
    return {part: below(root, PARTS, part, RUNS, name) for part, name in parts.items()}


def parts_in(manifest: dict[str, Any] | None) -> dict[str, str]:
    """The names of the runs of each input in a manifest, by its name; none in that of another output."""
    try:
        return from_document(dict[str, str], (manifest or {}).get("parts"))
    except ValueError:
        return {}
