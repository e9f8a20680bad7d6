"""Whether an output holds what its commit records speak of.

fast  every block has a whole record, and every chunk is there in the size that the record tells (nothing is decoded)
full  every chunk is decoded too, and its digest compared
"""

from dcpred.cluster import Workers, run_all
from dcpred.ledger import Ledger
from dcpred.progress import Reporter
from dcpred_tasks import store
from dcpred_tasks.records import ScoreRun, read_receipt
from dcpred_tasks.score_block import verify_block


def damaged_fast(ledger: Ledger) -> list[int]:
    """Blocks whose record or chunks are not as they were written, as far as names and sizes tell."""
    sizes = {name: store.stored_sizes(ledger.run.scores / name) for name in (*ledger.run.outputs, "status")}
    return [block for block in range(ledger.n_blocks) if not _as_recorded(ledger.run, block, sizes)]


def _as_recorded(run: ScoreRun, block: int, sizes: dict[str, dict[int, int]]) -> bool:
    receipt = read_receipt(run, block)
    if receipt is None or set(receipt.sizes) != set(sizes):
        return False
    chunks = [start // run.chunk_rows for start, _ in run.pieces(block)]
    return all(receipt.sizes[name] == [found.get(chunk, 0) for chunk in chunks] for name, found in sizes.items())


def damaged_full(ledger: Ledger, workers: Workers, say: Reporter) -> list[int]:
    """Blocks that do not read back as they were written: every chunk is decoded."""
    wrong: list[int] = []
    with say.step("verifying", ledger.run.n_rows, "rows") as advance:

        def verified(block: int, good: bool) -> None:
            start, stop = ledger.run.rows(block)
            advance(stop - start)
            if not good:
                wrong.append(block)

        run_all(workers, verify_block, [(ledger.run, block) for block in range(ledger.n_blocks)], verified)
    return sorted(wrong)
