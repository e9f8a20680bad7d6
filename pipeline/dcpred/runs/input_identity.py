"""What identifies the rows of a run: its hash, and what its plan records of the input."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import zarr

from dcpred_tasks.annotations import from_document
from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.errors import DcpredError
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array, open_node
from dcpred_tasks.storage.addresses import Address, group_of
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.storage.stored_chunks import RowsIdentity, filled, rows_identity


def run_hash(X: zarr.Array[Any], run: ScoreRun) -> str:
    """The hash of a run: of its current input, its model, its outputs with their alpha and costs, its blocks,
    and its arithmetic if that is not the compiled engine. Not of its tables: they are part of the output.
    """
    settings = run.stated()
    return digest_json(
        {
            "content": stored_chunks.fingerprint(X),
            "shape": list(X.shape),
            "dtype": str(X.dtype),
            **{name: settings[name] for name in HASHED if name in settings},
            **filled(),
        }
    )


def record_input(run: ScoreRun) -> dict[str, Any]:
    """The record of the input in a plan: the rows of X, and of each array of one dimension beside it."""
    X = open_array(run.x)
    arrays = {
        name: asdict(rows_identity(array, run.n_rows))
        for name, array in arrays_beside(run.x).items()
        if array.shape[0] >= run.n_rows
    }
    return {"X": asdict(rows_identity(X, run.n_rows)), "arrays": arrays}


def arrays_beside(x: Address) -> dict[str, zarr.Array[Any]]:
    """One-dimensional arrays in the group of X; none if it is in no group."""
    try:
        node = open_node(group_of(x))
        if not isinstance(node, zarr.Group):
            return {}
        return {name: array for name, array in zarr_arrays.arrays_of(node) if array.ndim == 1}
    except DcpredError:  # Others than X may be damaged.
        return {}


def same_rows(
    recorded: Mapping[str, Any], array: zarr.Array[Any], n_rows: int, name: str = ""
) -> bool | None:
    """Whether the first rows of an array are those that a plan recorded as its input; None if it recorded
    nothing of it.

    name  name of an array next to X; "" for X
    """
    before = recorded_identity(recorded, name)
    if before is None:
        return None
    return array.shape[0] >= n_rows and before.same(rows_identity(array, n_rows))


def recorded_identity(recorded: Mapping[str, Any], name: str = "") -> RowsIdentity | None:
    """What `record_input` wrote of an array; None if it is missing or invalid."""
    arrays = recorded.get("arrays")
    record = (arrays.get(name) if isinstance(arrays, dict) else None) if name else recorded.get("X")
    try:
        return from_document(RowsIdentity, record)
    except ValueError:
        return None


def is_same_input(run: ScoreRun, recorded: Mapping[str, Any], accepted: frozenset[str]) -> bool:
    """Whether X still holds the scored rows. Raises DataError if it cannot be opened.

    recorded  the record of the input in the plan; earlier versions wrote none
    accepted  hashes of runs whose input --repair found to hold the same rows
    """
    X = open_array(run.x)
    if X.shape[0] == run.n_rows:
        now = run_hash(X, run)
        if now == run.run or now in accepted:
            return True
    return bool(X.ndim == 2 and same_rows(recorded, X, run.n_rows))


HASHED = ("model_hash", "outputs", "chunk_rows", "block_rows", "alpha", "costs", "arithmetic")
