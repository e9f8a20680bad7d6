"""Statistics of a run in its manifest: its input, its computers, its outputs, drift."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun
from dcpred_tasks.artifacts.drift_words import describe_drift
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.moments import raw_moments
from dcpred_tasks.scoring.output_column import OutputColumn
from dcpred_tasks.scoring.outputs import OUTPUT_COLUMNS
from dcpred_tasks.scoring.statistics import HISTOGRAM, Statistics, decision_edges
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.digests import digest, digest_json
from dcpred_tasks.task_bodies.score_block import planned_artifact


def describe_run(run: ScoreRun, records: Iterable[CommitRecord]) -> dict[str, Any]:
    """`settings_hash` of the model's settings, `input` with the hash of its metadata, `cpus` by blocks,
    `statistics`, `drift`. Reads the records once and does not store them.
    """
    artifact = planned_artifact(run.model, run.model_hash)
    model = artifact.model()
    gathered = Statistics(model, run.outputs)
    cpus: dict[str, int] = {}
    for record in records:
        if "sampled_rows" in record.statistics:
            gathered.add_packed(record.statistics)
        cpu = str(record.statistics.get("cpu", "unknown"))
        cpus[cpu] = cpus.get(cpu, 0) + 1
    scored = raw_moments(model.scaling, gathered.moments)
    return {
        "settings_hash": digest_json(artifact.body["settings"]),
        "input": describe_input(run.x),
        "cpus": cpus,
        "statistics": {
            HISTOGRAM: {"edges": decision_edges(model).tolist(), "counts": gathered.histogram.tolist()},
            **{c.tally: _tally(c, model, gathered) for c in OUTPUT_COLUMNS if c.tally},
            "sampled_rows": gathered.moments.n,
            "feature_mean": _numbers(scored.mean),
            "feature_sd": _numbers(scored.sd),
            **({} if scored.gaps is None else {"feature_gaps": _numbers(scored.gaps)}),
            "leaf_rows": gathered.leaf_rows.tolist(),
        },
        "drift": describe_drift(artifact, model, gathered),
    }


def describe_input(x: str) -> dict[str, Any]:
    """A description of X, and the hash of its metadata: shape, dtype, chunks, codecs, attributes."""
    array = zarr_arrays.open_array(x)
    # Attributes may be infinite or NaN, which our own JSON never is.
    metadata = json.dumps(array.metadata.to_dict(), sort_keys=True, separators=(",", ":"), default=str)
    hashed = digest(metadata.encode())
    return {"shape": list(array.shape), "dtype": str(array.dtype), "metadata_hash": hashed}


def _tally(column: OutputColumn, model: Model, gathered: Statistics) -> list[dict[str, Any]] | None:
    """Rows by the value of an output column; None if the run does not have it."""
    counts = gathered.tallies.get(column.name)
    if counts is None:
        return None
    names = column.tally_names(model)
    return [{column.name: name, "rows": n} for name, n in zip(names, counts.tolist(), strict=True)]


def _numbers(values: NDArray[np.float64]) -> list[float | None]:
    """Numbers for JSON, which has no infinity."""
    return [float(value) if np.isfinite(value) else None for value in values]
