"""multiprocessing's resource tracker: a process that removes the semaphores of a driver that was killed.

This module does not import multiprocessing, which has functions of its own run at exit.
"""

import atexit
import os
import sys
import time
from importlib import import_module

TRACKER = "multiprocessing.resource_tracker"
MUTE = "ignore:resource_tracker:UserWarning"
END_SECONDS = 2.0  # longest wait for its end
LOOK_SECONDS = 0.005


def start_tracker() -> None:
    """Start it, unless it runs. It does not complain of what it removes: a driver that ends at once, at a
    second signal or where a store is silent, leaves that to it.
    """
    sys.warnoptions.append(MUTE)  # Its command line has the options of ours.
    try:
        import_module(TRACKER).ensure_running()
    finally:
        sys.warnoptions.remove(MUTE)


def end_tracker_at_exit() -> None:
    """Have this process wait for the end of the tracker: a service manager takes what outlives the main
    process for something that hangs. To be called before multiprocessing is imported: functions are run in
    the reverse order, and its own still speak to the tracker.
    """
    atexit.register(_end_tracker)


def _end_tracker() -> None:
    tracker = getattr(sys.modules.get(TRACKER), "_resource_tracker", None)
    file, process = getattr(tracker, "_fd", None), getattr(tracker, "_pid", None)
    if tracker is None or file is None or process is None:
        return
    os.close(file)  # It ends when nobody holds this file any more.
    tracker._fd = tracker._pid = None
    deadline = time.monotonic() + END_SECONDS
    while os.waitpid(process, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
