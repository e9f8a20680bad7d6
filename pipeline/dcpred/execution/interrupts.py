"""Signals end a run in order."""

import atexit
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
# Not imported here: `dcpred -h` does not wait for NumPy.
BUCKETS = "dcpred_tasks.storage.bucket"
SILENT_SECONDS = 4.0  # time of a store for tasks in flight, and then for a request
SAME_SECONDS = 1.0  # two signals within that time are one

_asked = threading.Event()
_listening = 0
_first_at: float | None = None  # time.monotonic of the first signal


@contextmanager
def signals_handled() -> Iterator[None]:
    """Handle the signals of this process within a `with` statement of the main thread."""
    before = {number: signal.signal(number, _handle) for number in SIGNALS}
    forget_signal()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        forget_signal()


def forget_signal() -> None:
    global _first_at
    _asked.clear()
    _first_at = None


def leave_at_signals() -> None:
    """End at once, with the right exit code, at a signal outside of `signals_handled`, as during imports."""
    for number in SIGNALS:
        signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    _print("\ndcpred: interrupted; run the same command again\n")
    os._exit(InterruptedRunError.exit_code)


def _print(text: str) -> None:
    """Print on standard error, unbuffered: a signal handler may interrupt a write to it."""
    try:
        file = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # It is replaced by an object without a file, or closed.
        file = 2
    with suppress(OSError):
        os.write(file, text.encode())


@contextmanager
def listening() -> Iterator[threading.Event]:
    """The event that is set when an end is requested. Listeners check it from time to time."""
    global _listening
    _listening += 1
    try:
        yield _asked
    finally:
        _listening -= 1


def interrupted(done: int, total: int) -> InterruptedRunError:
    return InterruptedRunError(
        f"interrupted after {done:,} of {total:,} tasks; run the same command again to resume"
    )


def _end_where_a_store_is_silent() -> None:
    """End the process if tasks in flight wait for a store that does not answer: nothing is lost."""
    time.sleep(SILENT_SECONDS)
    buckets = sys.modules.get(BUCKETS)
    address = "" if buckets is None else buckets.silent_store(SILENT_SECONDS)
    if address:
        message = f"dcpred: {address} does not answer; ended without waiting. Run the same command again.\n"
        _print(message)
        os._exit(InterruptedRunError.exit_code)


def _handle(number: int, frame: FrameType | None) -> None:
    """Answer a signal. It interrupts whatever Python runs in the main thread.

    1. The first signal comes, and somebody listens: sets the event, which work under way checks between
       tasks. Without a listener raises KeyboardInterrupt.
    2. The same signal comes again within SAME_SECONDS, from another sender: it is ignored.
    3. A second signal comes: ends the process at once. Nothing is cleaned up, and nothing needs to be: work
       that no commit record names is done again.
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
    _print("\ndcpred: finishing tasks in flight; interrupt again to end at once\n")


TRACKER = "multiprocessing.resource_tracker"
MUTE = "ignore:resource_tracker:UserWarning"
END_SECONDS = 2.0  # maximum wait for its end
LOOK_SECONDS = 0.005


def start_tracker() -> None:
    """Start it, unless it runs: it removes the semaphores of a driver that ends at once."""
    sys.warnoptions.append(MUTE)  # Its command line gets the options of ours.
    try:
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.remove(MUTE)


def end_tracker_at_exit() -> None:
    """Make this process wait for the end of the tracker: a service manager takes a process that outlives
    the main one for a hanging one. Call it before multiprocessing is imported: functions run in the reverse
    order, and multiprocessing's own still use the tracker.
    """
    atexit.register(_end_tracker)


def _end_tracker() -> None:
    tracker = getattr(sys.modules.get(TRACKER), "_resource_tracker", None)
    file, process = getattr(tracker, "_fd", None), getattr(tracker, "_pid", None)
    if tracker is None or file is None or process is None:
        return
    os.close(file)  # It ends when no process holds this file any more.
    tracker._fd = tracker._pid = None
    deadline = time.monotonic() + END_SECONDS
    while os.waitpid(process, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
