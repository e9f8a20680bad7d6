"""`dcpred score` in a process of its own, whose blocks are held: a test decides how far it gets.

The blocks before number `free` are scored; every later one waits until the driver is released. So what a test
finds while the driver runs does not depend on how fast anything is.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support import processes
from support.processes import Process

SCRIPT = """
import time
from pathlib import Path
from dcpred.execution import block_plan
from dcpred.cli import main
from dcpred.execution import interrupts, task_window
from dcpred.scoring import blocks

block_plan.MIN_BLOCK_ROWS, block_plan.MAX_CHUNK_ROWS, block_plan.BLOCKS = 1, 100, 10
task_window.GRACE_SECONDS = task_window.SLOW_SECONDS = 36_000.0
interrupts.SAME_SECONDS = {same_seconds}
folder, free = Path({folder!r}), {free}

def held(run, block, quarantine):
    from dcpred_tasks.task_bodies.score_block import score_block
    if block >= free:
        (folder / "held").touch()
        while not (folder / "released").exists():
            time.sleep(0.02)
    return score_block(run, block, quarantine)

if __name__ == "__main__":
    blocks.score_block = held
    main()
"""


@dataclass(frozen=True)
class HeldDriver:
    process: Process
    folder: Path

    def wait_until_held(self) -> None:
        processes.wait_until((self.folder / "held").exists, self.process)

    def release(self) -> None:
        (self.folder / "released").touch()


@contextmanager
def held_driver(
    folder: Path, arguments: list[str | Path], *, free: int, same_seconds: float = 0.0
) -> Iterator[HeldDriver]:
    """Run `dcpred score` with these arguments on 2,000 rows or fewer, in ten blocks of 200. The script, and
    what a test tells it, are put in `folder`. Signals within `same_seconds` are one.
    """
    script = folder / "held_driver.py"
    script.write_text(SCRIPT.format(folder=str(folder), free=free, same_seconds=same_seconds))
    command = [sys.executable, script, "score", *arguments]
    with processes.started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        yield HeldDriver(process, folder)
