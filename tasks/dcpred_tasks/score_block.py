"""The task body of scoring: read a block, score it, write scores, then status, then the commit record.

Written so that any instant may be the last one: scores are in place before the status says so, both before the record says
that the block is done. A second attempt, even one that overlaps the first, writes the same bytes.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dcpred_tasks import store
from dcpred_tasks.artifact import describe_model, read_model
from dcpred_tasks.dtypes import STATUS_DTYPE, Status
from dcpred_tasks.errors import DataError, ModelFormatError
from dcpred_tasks.files import digest, read_json, resource_errors, write_json
from dcpred_tasks.labels import LabelCoding, encode_labels, label_coding
from dcpred_tasks.memory import peak_memory_bytes, process_name
from dcpred_tasks.predictor import Model
from dcpred_tasks.scorer import score_rows, warm_up

OUTPUTS = ("label", "decision")
LISTED_ROWS = 100  # bad rows named in a commit record


@dataclass(frozen=True)
class ScoreRun:
    """What every scoring task is told: addresses and small values."""

    run: str  # hash of the plan
    x: str
    model: str
    model_hash: str
    output: str
    outputs: tuple[str, ...]
    n_rows: int
    chunk_rows: int  # rows of an output chunk
    block_rows: int  # a whole number of output chunks

    @property
    def scores(self) -> Path:
        return Path(self.output) / "scores.zarr"

    def record(self, block: int) -> Path:
        return Path(self.output) / "blocks" / f"{block:06d}.json"

    def rows(self, block: int) -> tuple[int, int]:
        return block * self.block_rows, min((block + 1) * self.block_rows, self.n_rows)

    def pieces(self, block: int) -> Iterator[tuple[int, int]]:
        """The output chunks of a block, as spans of rows."""
        start, stop = self.rows(block)
        for at in range(start, stop, self.chunk_rows):
            yield at, min(at + self.chunk_rows, stop)


@dataclass(frozen=True)
class BlockReceipt:
    """A commit record. `status` counts rows by status code; `bad_rows` names the first rows that were not scored."""

    run: str
    block: int
    start: int
    stop: int
    digest: str
    status: dict[str, int]
    bad_rows: list[tuple[int, int]]
    read_seconds: float
    score_seconds: float
    write_seconds: float
    process: str
    peak_memory_bytes: int


@lru_cache(maxsize=2)
def open_model(path: str, model_hash: str) -> Model:
    """The model, once per process; refused if it is not the one that the plan was made with."""
    described = describe_model(Path(path))
    if described.hash != model_hash:
        raise ModelFormatError(
            f"the run was planned with model {model_hash}, but {path} now holds {described.hash}; put the model back, "
            "or score into a new directory"
        )
    model = read_model(Path(path))
    warm_up(model)
    return model


def create_scores(run: ScoreRun, model: Model) -> None:
    """Create the empty output arrays that are not there yet: NaN scores, status 0."""
    if not run.scores.exists():
        store.create_group(run.scores, {"run": run.run, "model": run.model_hash})
    group = store.open_group_for_writing(run.scores)
    coding = label_coding(model.classes) if "label" in run.outputs else None
    for name in (*run.outputs, "status"):
        if name in group:
            continue
        shape: tuple[int, ...] = (run.n_rows,)
        attributes: dict[str, Any] = {}
        if name == "status":
            dtype, fill = np.dtype(STATUS_DTYPE), int(Status.NOT_SCORED)
            attributes = {"meaning": {str(int(s)): s.name.lower() for s in Status}}
        elif name == "label" and coding is not None:
            dtype, fill = coding.values.dtype, coding.missing  # type: ignore[assignment]
            attributes = {} if coding.names is None else {"labels": list(coding.names)}
        else:
            dtype, fill = model.score_dtype, float("nan")  # type: ignore[assignment]
            shape = (run.n_rows, model.n_outputs) if model.n_outputs > 1 else shape
            attributes = {"classes": list(model.classes)} if model.classes else {}
        store.create_array(group, name, shape, dtype, run.chunk_rows, fill_value=fill, attributes=attributes)


def score_block(run: ScoreRun, block: int) -> BlockReceipt:
    """Score one block and commit it."""
    model = open_model(run.model, run.model_hash)
    coding = label_coding(model.classes) if "label" in run.outputs else None
    source = store.open_array(run.x)
    arrays = {name: store.open_output(run.scores / name) for name in (*run.outputs, "status")}
    seconds = {"read": 0.0, "score": 0.0, "write": 0.0}
    counts = np.zeros(len(Status), np.int64)
    bad_rows: list[tuple[int, int]] = []
    digests = []
    with resource_errors(run.scores):
        for start, stop in run.pieces(block):
            clock = time.perf_counter()
            _refuse_missing_chunks(run, source, start, stop)
            X = store.read_rows(source, start, stop)
            clock = _lap(seconds, "read", clock)
            with threadpool_limits(1):
                values = _score(model, coding, X)
            clock = _lap(seconds, "score", clock)
            for name in (*run.outputs, "status"):  # status last
                arrays[name][start:stop] = values[name]
            digests.append(_digest(values, run.outputs))
            _lap(seconds, "write", clock)
            status = values["status"]
            counts += np.bincount(status, minlength=len(counts))
            room = LISTED_ROWS - len(bad_rows)
            bad_rows += [(start + int(i), int(status[i])) for i in np.flatnonzero(status != Status.OK)[:room]]
    first, last = run.rows(block)
    receipt = BlockReceipt(
        run=run.run,
        block=block,
        start=first,
        stop=last,
        digest=digest("".join(digests).encode()),
        status={str(code): int(n) for code, n in enumerate(counts) if n},
        bad_rows=bad_rows,
        read_seconds=seconds["read"],
        score_seconds=seconds["score"],
        write_seconds=seconds["write"],
        process=process_name(),
        peak_memory_bytes=peak_memory_bytes(),
    )
    write_json(run.record(block), asdict(receipt))
    return receipt


def read_receipt(run: ScoreRun, block: int) -> BlockReceipt | None:
    """The commit record of a block, or None where there is none of this run that can be read."""
    try:
        value = read_json(run.record(block))
        receipt = BlockReceipt(**{**value, "bad_rows": [(int(r), int(s)) for r, s in value["bad_rows"]]})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    return receipt if receipt.run == run.run and receipt.block == block else None


def verify_block(run: ScoreRun, block: int) -> bool:
    """Whether the stored bytes of a block are those that its commit record speaks of."""
    receipt = read_receipt(run, block)
    if receipt is None:
        return False
    arrays = {name: store.open_array(run.scores / name) for name in (*run.outputs, "status")}
    digests = []
    try:
        for start, stop in run.pieces(block):
            values = {name: store.read_rows(array, start, stop) for name, array in arrays.items()}
            digests.append(_digest(values, run.outputs))
    except (OSError, ValueError, RuntimeError):  # a truncated or flipped chunk
        return False
    return digest("".join(digests).encode()) == receipt.digest


def _score(model: Model, coding: LabelCoding | None, X: NDArray[Any]) -> dict[str, NDArray[Any]]:
    decision, status = score_rows(model, X)
    values: dict[str, NDArray[Any]] = {
        "decision": decision if model.n_outputs > 1 else decision[:, 0],
        "status": status,
    }
    if coding is not None:
        values["label"] = encode_labels(coding, decision, status)
    return values


def _digest(values: dict[str, NDArray[Any]], outputs: tuple[str, ...]) -> str:
    return digest(*(values[name] for name in (*outputs, "status")))


def _lap(seconds: dict[str, float], phase: str, since: float) -> float:
    now = time.perf_counter()
    seconds[phase] += now - since
    return now


def _refuse_missing_chunks(run: ScoreRun, source: Any, start: int, stop: int) -> None:
    missing = next(store.missing_chunks(source, start, stop), None)
    if missing is not None:
        raise DataError(
            f"rows {start:,} to {stop:,} were to be scored, but chunk {missing} of {run.x} is missing, which would read "
            "as fill values; restore it and run again"
        )
