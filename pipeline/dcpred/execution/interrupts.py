"""Interrupts: the first SIGINT or SIGTERM asks for an end in order, the second ends the process at once.

Between tasks nothing is half done, so that work which hears of the first signal stops submitting, waits for
what is in flight, and says how to go on. Where no such work is under way the first signal interrupts as
Ctrl-C always does.

Signals within SAME_SECONDS of the first are the same one: whoever stops a whole group of processes (a batch
system, a service manager, a terminal) and a wrapper that forwards what it gets may each send it.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from dcpred_tasks.errors import InterruptedRunError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Not imported here: what is run by `dcpred -h` waits for no NumPy.
BUCKETS = "dcpred_tasks.storage.bucket"
SILENT_SECONDS = 4.0  # time of a store for what is in flight, and then for a request
SAME_SECONDS = 1.0  # two signals within that time are one

_asked = threading.Event()
_listening = 0
_first_at: float | None = None  # time.monotonic of the first signal


@contextmanager
def signals_handled() -> Iterator[None]:
    """Handle the signals of this process as told above, within a `with` statement of the main thread."""
    before = {number: signal.signal(number, _handle) for number in SIGNALS}
    _forget()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _forget()


def _forget() -> None:
    global _first_at
    _asked.clear()
    _first_at = None


def leave_at_signals() -> None:
    """End at once, with the right exit code, at a signal outside of `signals_handled`: while modules are
    imported, nothing is begun.
    """
    for number in SIGNALS:
        signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    _print("\ndcpred: interrupted; run the same command again\n")
    os._exit(InterruptedRunError.exit_code)


def _print(text: str) -> None:
    """Print on standard error. A signal handler may interrupt a write to it, and a buffered one would raise
    RuntimeError then.
    """
    try:
        file = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # It is replaced by what is no file, or closed.
        file = 2
    with suppress(OSError):
        os.write(file, text.encode())


@contextmanager
def listening() -> Iterator[threading.Event]:
    """The event that is set when an end was asked for. Whoever listens looks at it from time to time."""
    global _listening
    _listening += 1
    try:
        yield _asked
    finally:
        _listening -= 1


def interrupted(done: int, total: int) -> InterruptedRunError:
    return InterruptedRunError(
        f"interrupted after {done:,} of {total:,} tasks; run the same command again to go on"
    )


def _end_where_a_store_is_silent() -> None:
    """End the process where what is in flight waits for a store that does not answer: nothing is lost by it,
    and a person who interrupts does not wait for time-outs.
    """
    time.sleep(SILENT_SECONDS)
    buckets = sys.modules.get(BUCKETS)
    address = "" if buckets is None else buckets.silent_store(SILENT_SECONDS)
    if address:
        told = (
            f"dcpred: {address} does not answer, so that nothing is waited for; run the same command again\n"
        )
        _print(told)
        os._exit(InterruptedRunError.exit_code)


def _handle(number: int, frame: FrameType | None) -> None:
    """Answer a signal. It interrupts whatever Python runs in the main thread.

    1. The first signal comes while somebody listens: the event is set, and work under way looks at it between
       tasks. Where nobody listens it is a KeyboardInterrupt.
    2. The same signal comes again within SAME_SECONDS, by another way: it is passed over.
    3. A second signal comes: the process ends here and now. Nothing is cleaned up, and nothing needs to be:
       what a commit record does not name is done again.
    """
    global _first_at
    now = time.monotonic()
    if _first_at is not None:
        if now - _first_at < SAME_SECONDS:
            return
        os._exit(InterruptedRunError.exit_code)
    _first_at = now
    threading.Thread(target=_end_where_a_store_is_silent, daemon=True, name="dcpred-interrupt").start()
    if not _listening:
        raise KeyboardInterrupt
    _asked.set()
    _print("\ndcpred: finishing what is in flight; interrupt again to end at once\n")
