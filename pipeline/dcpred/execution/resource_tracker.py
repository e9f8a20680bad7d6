"""multiprocessing's resource tracker: a process that removes the semaphores of a killed driver.

This module does not import multiprocessing, which registers functions at exit.
"""

import atexit
import os
import sys
import time
from importlib import import_module

TRACKER = "multiprocessing.resource_tracker"
MUTE = "ignore:resource_tracker:UserWarning"
END_SECONDS = 2.0  # maximum wait for its end
LOOK_SECONDS = 0.005


def start_tracker() -> None:
    """Start it, unless it runs. It removes semaphores without a warning: a driver that ends at once, at a
    second signal or because a store is silent, leaves that to it.
    """
    sys.warnoptions.append(MUTE)  # Its command line gets the options of ours.
    try:
        import_module(TRACKER).ensure_running()
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
