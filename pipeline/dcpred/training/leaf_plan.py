"""Cut the leaves of a training job into tasks, and estimate the memory of fits: pure arithmetic."""

from collections.abc import Sequence

from dcpred.plan import BLOCKS, BlockPlan
from dcpred_tasks.model.scaling import STRIP_NUMBERS
from dcpred_tasks.scratch.leaf_shards import INDEX_ENTRIES
from dcpred_tasks.scratch.training_job import LeafWork, Source
from dcpred_tasks.training.division import first_leaves
from dcpred_tasks.training.sampling import sampled_rows
from dcpred_tasks.training.settings import Settings

GROUP_ROWS = 2**12  # maximum rows of small leaves that one task gathers and fits
ROW_COPIES = (
    4  # arrays as long as the rows, in float64: rows read, scaled, centred; kernel values or gradients
)
SAMPLE_COPIES = 4  # scaled samples: all rows, those that learn, and two for a nearest-neighbour search
STRIP_COPIES = 4  # arrays of STRIP_NUMBERS numbers in double precision
INDEX_BYTES = 100  # bytes of an entry of an index during sorting
BLOCK_BYTES = 2_000  # bytes of a block in the driver: its tasks, paths and replies
LEAF_BYTES = 6_000  # bytes of a leaf in the driver: its task, and its arrays without their numbers
GRAM_COPIES = 3  # a Gram matrix, its regularised copy, and its factor or the part that LIBSVM keeps


def leaf_bytes(n_rows: int, n_features: int, settings: Settings) -> int:
    """Maximum memory of fitting the largest leaf: Gram matrices, its rows, and their kernel values."""
    rows = min(n_rows, settings.max_leaf_rows)
    n_basis = settings.landmarks + settings.products + settings.triangle
    return 8 * (
        GRAM_COPIES * min(rows, settings.local_rows) ** 2 + ROW_COPIES * rows * (n_basis + n_features)
    )


def driver_bytes(plan: BlockPlan, n_features: int, itemsize: int, settings: Settings) -> int:
    """Maximum memory of the driver of a training: the sample with its scaled copies, or the leaves and a
    model of the size that readers accept, which is at most a quarter of its memory.
    """
    numbers = min(plan.n_rows, sampled_rows(settings.sample_rows, n_features)) * n_features
    sample = numbers * (itemsize + SAMPLE_COPIES * 4) + STRIP_COPIES * 8 * min(STRIP_NUMBERS, numbers)
    n_leaves = max(first_leaves(plan.n_rows, settings), -(-plan.n_rows // settings.own_leaf_rows))
    index = INDEX_BYTES * max(min(INDEX_ENTRIES, plan.n_rows), n_leaves)
    basis = settings.landmarks + settings.products + settings.triangle
    model = 4 * n_leaves * (settings.landmarks * (n_features + 1) + basis + 2 * n_features)
    return plan.n_blocks * BLOCK_BYTES + max(sample, index, n_leaves * LEAF_BYTES + 4 * model)


def leaf_work(
    sources: Sequence[Sequence[Source]], rows: Sequence[int], folds: Sequence[int]
) -> list[LeafWork]:
    """Leaves to fit, without overlap, from the sources, rows and folds of each final leaf."""
    of_leaves = enumerate(zip(sources, rows, folds, strict=True))
    return [LeafWork(leaf, tuple(own), n, (), k) for leaf, (own, n, k) in of_leaves]


def leaf_groups(work: Sequence[LeafWork]) -> list[tuple[LeafWork, ...]]:
    """Leaves for one task each, the largest first, because they determine the wall time; small neighbours
    together.
    """
    total = sum(w.n_rows for w in work)
    groups = _neighbours(work, min(GROUP_ROWS, -(-total // BLOCKS)))
    return sorted(groups, key=lambda group: -max(w.n_rows for w in group))


def overlap_groups(work: Sequence[LeafWork], piece_rows: int) -> list[tuple[int, tuple[LeafWork, ...]]]:
    """Neighbouring leaves whose rows one task reads once more, with the number of the first piece that it
    writes. Rows that a task may hold at once make one piece; of more rows, each two pieces hold more than
    that.
    """
    groups, first = [], 0
    for group in _neighbours(work, piece_rows):
        groups.append((first, group))
        rows = sum(w.n_rows for w in group)
        first += 1 if rows <= piece_rows else 2 * -(-rows // piece_rows)
    return groups


def _neighbours(work: Sequence[LeafWork], most: int) -> list[tuple[LeafWork, ...]]:
    """Successive leaves with at most `most` rows together, unless one alone has more."""
    groups: list[list[LeafWork]] = []
    filled = most
    for w in work:
        if filled + w.n_rows > most:
            groups.append([])
            filled = 0
        groups[-1].append(w)
        filled += w.n_rows
    return [tuple(group) for group in groups]
