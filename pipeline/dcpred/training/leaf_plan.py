"""How leaves of a training job are cut into tasks, and the memory that fitting one takes: pure arithmetic."""

from collections.abc import Sequence

from dcpred.plan import BLOCKS
from dcpred_tasks.scratch.training_job import LeafWork
from dcpred_tasks.training.settings import Settings

GROUP_ROWS = 2**12  # most rows of small leaves that one task gathers and fits
ROW_COPIES = (
    4  # arrays as long as the rows, in float64: rows read, scaled, centred; kernel values or gradients
)
GRAM_COPIES = 3  # a Gram matrix, its regularised copy, and its factor or the part that LIBSVM keeps


def leaf_bytes(n_rows: int, n_features: int, settings: Settings) -> int:
    """Memory that fitting the largest leaf may take: Gram matrices, its rows, and their kernel values."""
    rows = min(n_rows, settings.max_leaf_rows)
    n_basis = settings.landmarks + settings.products + settings.triangle
    return 8 * (
        GRAM_COPIES * min(rows, settings.local_rows) ** 2 + ROW_COPIES * rows * (n_basis + n_features)
    )


def leaf_groups(work: Sequence[LeafWork]) -> list[tuple[LeafWork, ...]]:
    """Leaves for one task each, the largest first, for they set the wall time; small neighbours together."""
    total = sum(w.n_rows for w in work)
    room = min(GROUP_ROWS, -(-total // BLOCKS))
    groups: list[list[LeafWork]] = []
    filled = room
    for w in work:
        if filled + w.n_rows > room:
            groups.append([])
            filled = 0
        groups[-1].append(w)
        filled += w.n_rows
    return sorted((tuple(group) for group in groups), key=lambda group: -max(w.n_rows for w in group))
