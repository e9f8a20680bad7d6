"""The metadata of output arrays: whether they are what the plan says, and how they are restored."""

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import zarr

from dcpred_tasks import store
from dcpred_tasks.dtypes import SCORE_DTYPE, STATUS_DTYPE, VALUE_DTYPE, Status
from dcpred_tasks.errors import DataError
from dcpred_tasks.files import write_bytes
from dcpred_tasks.predictor import Model
from dcpred_tasks.records import ScoreRun
from dcpred_tasks.score_block import create_scores

LABEL_DTYPES = (np.int8, np.int16, np.int32, np.int64, np.float64)


def explain_metadata(run: ScoreRun, name: str) -> str | None:
    """What is wrong with the metadata of an output array, or of the group (name ""), as far as the plan tells."""
    if not (run.scores / name / "zarr.json").is_file():
        return "it is missing"
    try:
        if not name:
            attributes = dict(store.open_group(run.scores).attrs)
            same = attributes == {"run": run.run, "model": run.model_hash}
            return None if same else "it names another run or model"
        array = store.open_array(run.scores / name)
    except DataError:
        return "it cannot be read"
    wrong = _wrong_array(run, name, array)
    if wrong is not None:
        return wrong
    return None if _parsed(array) == _parsed(_as_planned(run, name, array)) else "chunks or codecs are not what the plan says"


def _wrong_array(run: ScoreRun, name: str, array: zarr.Array[Any]) -> str | None:
    dtypes = {"status": (STATUS_DTYPE,), "label": LABEL_DTYPES, "decision": (SCORE_DTYPE, VALUE_DTYPE)}[name]
    if array.shape[:1] != (run.n_rows,) or array.ndim > (2 if name == "decision" else 1):
        return f"it has shape {array.shape}, but the plan has {run.n_rows:,} rows"
    if array.dtype not in [np.dtype(dtype) for dtype in dtypes]:
        return f"{name} cannot have dtype {array.dtype}"
    fill = array.fill_value
    if (name == "decision" and not np.isnan(fill)) or (name == "status" and fill != Status.NOT_SCORED):
        return f"its fill value is {fill}, which does not stand for a row that was not scored"
    return None


def _as_planned(run: ScoreRun, name: str, array: zarr.Array[Any]) -> zarr.Array[Any]:
    """The array that is created for this name, shape and dtype."""
    group = zarr.create_group(zarr.storage.MemoryStore())
    return store.create_array(
        group,
        name,
        array.shape,
        array.dtype,
        run.chunk_rows,
        fill_value=array.fill_value,
        attributes=dict(array.attrs),
    )


def _parsed(array: zarr.Array[Any]) -> str:
    """Metadata as Zarr understands them, so that another version's way of writing them makes no difference."""
    return json.dumps(array.metadata.to_dict(), sort_keys=True, default=str)


def restore_metadata(run: ScoreRun, model: Model, named: set[str]) -> list[str]:
    """Write anew the metadata that are in `named`, missing, or not what the model and the plan say; chunks stay. Returns the
    files that were written."""
    written = []
    with TemporaryDirectory() as folder:
        there = replace(run, output=folder)
        create_scores(there, model)
        for name in ("", *run.outputs, "status"):
            file = run.scores / name / "zarr.json"
            shown = str(file.relative_to(Path(run.output)))
            if shown in named or _read(run, name) != _read(there, name):
                file.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(file, (there.scores / name / "zarr.json").read_bytes())
                written.append(shown)
    return written


def _read(run: ScoreRun, name: str) -> str:
    try:
        if name:
            return _parsed(store.open_array(run.scores / name))
        return json.dumps(dict(store.open_group(run.scores).attrs), sort_keys=True)
    except DataError:
        return ""
