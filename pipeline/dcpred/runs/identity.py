"""What a scoring run is: the hash that tells it from any other."""

from typing import Any

import zarr

from dcpred_tasks.storage import stored_chunks
from dcpred_tasks.storage.digests import digest_json


def run_hash(
    X: zarr.Array[Any],
    model_hash: str,
    outputs: tuple[str, ...],
    chunk_rows: int,
    block_rows: int,
    alpha: float | None = None,
    arithmetic: str | None = None,
) -> str:
    """What tells a run from any other: its input as it is now, its model, its outputs with the alpha that one
    of them takes, how it is cut, and what computes its scores if not the compiled engine.
    """
    identity = {
        "content": stored_chunks.fingerprint(X),
        "shape": list(X.shape),
        "dtype": str(X.dtype),
        "model_hash": model_hash,
        "outputs": list(outputs),
        "chunk_rows": chunk_rows,
        "block_rows": block_rows,
        **({} if alpha is None else {"alpha": alpha}),
        **({} if arithmetic is None else {"arithmetic": arithmetic}),
    }
    return digest_json(identity)
