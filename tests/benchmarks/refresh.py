"""What a night costs: a refresh of an input that grew, that changed in one chunk, or did not change.

    python tests/benchmarks/refresh.py [--rows 1_200_000] [--new 20_000] [--blocks 100_000]
                                       [--store-blocks 1_000] [--known 4_000] [--work DIR] [--quick]

The first table is of covtype-like rows on a disk, scored in this process: seconds of its processor, of all
rows from scratch and of what is new; blocks; bytes that were written, where a link takes none. The second is
of the same on an S3 server on loopback (moto), with requests; from scratch is to the disk. The third is of
inputs of so many blocks that did not change, each of one chunk of 16 rows, on both: seconds to say so, and
requests. Each result is held against a run from scratch.
"""

import argparse
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from common import Table

sys.path.insert(0, str(Path(__file__).parents[1]))
from dcpred.execution import block_plan
from dcpred.execution.block_plan import BlockBoundaries
from dcpred.refreshing.refresh import RefreshReport, refresh
from dcpred.runs.ledger import open_ledger
from dcpred.training.fit import publish
from dcpred.training.train import train
from dcpred_tasks.storage import stored_chunks
from dcpred_tasks.storage.place import open_place
from support.data import make_blobs, make_group
from support.runs import score_in_blocks
from support.stores import Proxy, moto_server, spoiled, used

N_FEATURES, CHUNK_ROWS = 54, 16_384
TINY_ROWS, TINY_FEATURES = 16, 3  # a chunk and block of the third table
QUICK = {"rows": 40_000, "new": 2_000, "blocks": 60, "store_blocks": 8, "known": 1_000}


def trained(folder: Path, n_features: int, n_known: int) -> Path:
    known = make_blobs(n_known, n_features=n_features, n_classes=3, seed=0)
    data = make_group(folder / f"train-{n_features}.zarr", known.X, known.y, chunk_rows=1_000)
    settings = {"n_leaves": 16, "landmarks": 16}
    train(data, folder / f"model-{n_features}", settings=settings)
    return folder / f"model-{n_features}"


def rows(n: int, n_features: int, seed: int) -> Any:
    """Rows that repeat after a while: only how many there are counts."""
    some = make_blobs(min(n, 50_000), n_features=n_features, n_classes=3, seed=seed).X
    return np.resize(some, (n, n_features))


def held(folder: Path) -> dict[int, int]:
    """Bytes on the disk by number of file, so that a link counts once."""
    return {(s := p.stat()).st_ino: s.st_blocks * 512 for p in folder.rglob("*") if p.is_file()}


def timed(call: Callable[[], RefreshReport]) -> tuple[RefreshReport, float]:
    begin = time.process_time()
    report = call()
    return report, time.process_time() - begin


def check(model: str, x: str, report: RefreshReport, scratch: Path) -> float:
    """Seconds of a run from scratch, on the disk. Raises SystemExit where it gives other bytes."""
    run = open_ledger(f"{report.root}/latest").run
    begin = time.process_time()
    score_in_blocks(model, x, scratch, BlockBoundaries(run.chunk_rows, run.block_rows, run.stride))
    seconds = time.process_time() - begin
    for name in run.arrays:
        mine, right = (contents(f"{place}/scores.zarr/{name}") for place in (run.output, scratch))
        if mine != right:
            raise SystemExit(f"{report.run} does not hold the {name} of a run from scratch")
    shutil.rmtree(scratch)
    return seconds


def contents(address: str) -> dict[str, bytes]:
    place = open_place(address)
    standing = {name: place.read(name) for name in place.listing()}
    return {name: one.data for name, one in standing.items() if one is not None}


def nights(work: Path, of: Path, n_rows: int, n_new: int, proxy: Proxy | None = None) -> Table:
    """of     the model
    proxy  of a store where model, input and root lie, else on the disk
    """
    model, root = str(of), str(work / "root")
    x = f"{make_group(work / 'data.zarr', rows(n_rows, N_FEATURES, 1), chunk_rows=CHUNK_ROWS)}/X"
    array, disk, sent = zarr.open_array(x, mode="r+"), x, {}
    if proxy is not None:
        base = proxy.address(secrets.token_hex(4))
        publish(Path(model), open_place(f"{base}/model"))
        model, x, root = f"{base}/model", f"{base}/data.zarr/X", f"{base}/root"
    cost = "MiB written" if proxy is None else "requests"
    table = Table("night", "blocks taken over", "scored", "s", "s from scratch", cost)

    def grow() -> None:
        array.append(rows(n_new, N_FEATURES, 2))

    def change() -> None:
        array[CHUNK_ROWS : CHUNK_ROWS + 1] = 0

    def touch_nothing() -> None:
        """As it was."""

    events = {
        f"first, {n_rows:,} rows": touch_nothing,
        f"{n_new:,} rows more": grow,
        "one chunk rewritten": change,
        "nothing new": touch_nothing,
    }
    for name, event in events.items():
        event()
        if proxy is not None:
            upload(disk, x, sent)
        time.sleep(stored_chunks.SETTLED_SECONDS)
        before = {} if proxy else held(Path(root))
        asked = sum(proxy.counts().values()) if proxy else 0
        report, seconds = timed(lambda: refresh(model, x, root))
        if proxy is None:
            written = sum(size for file, size in held(Path(root)).items() if file not in before)
            told = f"{written / 2**20:.1f}"
        else:
            told = f"{sum(proxy.counts().values()) - asked:,}"
        from_scratch = check(model, x, report, work / "scratch")
        table.add(
            name,
            f"{report.taken_blocks:,} of {report.n_blocks:,}",
            f"{report.scored_blocks:,}",
            f"{seconds:.2f}",
            f"{from_scratch:.2f}",
            told,
        )
    return table


def unchanged(work: Path, n_known: int, n_blocks: int, n_store_blocks: int) -> Table:
    block_plan.MIN_BLOCK_ROWS, block_plan.MAX_CHUNK_ROWS, block_plan.BLOCK_ROWS = 1, TINY_ROWS, TINY_ROWS
    model = trained(work, TINY_FEATURES, n_known)
    table = Table("unchanged blocks", "where", "s to say so", "s of one more block", "requests to say so")
    x, root = tiny(work / "tiny.zarr", n_blocks - 1), work / "tiny-root"
    refresh(model, x, root)
    zarr.open_array(x, mode="r+").append(rows(TINY_ROWS, TINY_FEATURES, 3))
    time.sleep(stored_chunks.SETTLED_SECONDS)
    report, more = timed(lambda: refresh(model, x, root))
    assert (report.taken_blocks, report.scored_blocks) == (n_blocks - 1, 1)
    _, seconds = timed(lambda: refresh(model, x, root))
    table.add(f"{n_blocks:,}", "disk", f"{seconds:.2f}", f"{more:.1f}", "")
    with moto_server() as server, spoiled(server) as proxy, used(proxy):
        base = proxy.address(secrets.token_hex(4))
        publish(model, open_place(f"{base}/model"))
        sent: dict[str, int] = {}
        x = upload(tiny(work / "few.zarr", n_store_blocks), f"{base}/data.zarr/X", sent)
        for _ in range(2):
            before = sum(proxy.counts().values())
            report, seconds = timed(lambda: refresh(f"{base}/model", x, f"{base}/root"))
        assert report.state == "unchanged"
        asked = sum(proxy.counts().values()) - before
        array = zarr.open_array(str(work / "few.zarr/X"), mode="r+")
        array.append(rows(TINY_ROWS, TINY_FEATURES, 3))
        upload(f"{work}/few.zarr/X", x, sent)
        report, more = timed(lambda: refresh(f"{base}/model", x, f"{base}/root"))
        assert report.taken_blocks == n_store_blocks
        table.add(f"{n_store_blocks:,}", "S3", f"{seconds:.2f}", f"{more:.1f}", f"{asked:,}")
    return table


def tiny(path: Path, n_blocks: int) -> str:
    """An array of so many chunks, settled."""
    make_group(path, rows(n_blocks * TINY_ROWS, TINY_FEATURES, 1), chunk_rows=TINY_ROWS)
    time.sleep(stored_chunks.SETTLED_SECONDS)
    return f"{path}/X"


def upload(folder: str, address: str, sent: dict[str, int]) -> str:
    """Put an array on a store: files that were written since they were sent, whose times `sent` holds."""
    place = open_place(address)
    for file in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
        name, written = str(file.relative_to(folder)), file.stat().st_mtime_ns
        if sent.get(name) != written:
            place.write(name, file.read_bytes())
            sent[name] = written
    return address


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_200_000)
    parser.add_argument("--new", type=int, default=20_000, help="rows that come in")
    parser.add_argument("--blocks", type=int, default=100_000, help="unchanged, on a disk")
    parser.add_argument("--store-blocks", type=int, default=1_000, help="unchanged, on a store")
    parser.add_argument("--known", type=int, default=4_000, help="rows that models are trained on")
    parser.add_argument("--work", type=Path, default=Path("benchmark-refresh"))
    parser.add_argument(
        "--quick", action="store_true", help=", ".join(f"{n:,} {k}" for k, n in QUICK.items())
    )
    args = parser.parse_args()
    if args.quick:
        vars(args).update(QUICK)
        stored_chunks.SETTLED_SECONDS = 0.1
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    work = args.work.absolute()
    model = trained(work, N_FEATURES, args.known)
    nights(work / "disk", model, args.rows, args.new).show()
    print()
    with moto_server() as server, spoiled(server) as proxy, used(proxy):
        nights(work / "store", model, args.rows, args.new, proxy).show()
    print()
    unchanged(work, args.known, args.blocks, args.store_blocks).show()
    shutil.rmtree(args.work)


if __name__ == "__main__":
    main()
