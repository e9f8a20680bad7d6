"""What a scoring run is: the hash that tells it from any other."""

from typing import Any

import zarr

from dcpred_tasks.storage import stored_chunks
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.storage.input_chunks import filled


def run_hash(
    X: zarr.Array[Any],
    model_hash: str,
    outputs: tuple[str, ...],
    chunk_rows: int,
    block_rows: int,
    alpha: float | None = None,
) -> str:
    """What tells a run from any other: its input as it is now, its model, its outputs with the alpha that one
    of them takes, and how it is cut.
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
        **filled(),
    }
    return digest_json(identity)
