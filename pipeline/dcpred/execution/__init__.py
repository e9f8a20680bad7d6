"""Runs of task bodies: blocks, workers, tasks in flight, interrupts, one driver per directory, progress.

May import: dcpred.version, and dcpred_tasks.
"""

from importlib.util import find_spec

if find_spec("fcntl") is None or find_spec("resource") is None:
    raise ImportError(
        "Cannot import this part of dcpred: training, scoring and the command line need locks of files, which"
        " Linux and macOS have. Use WSL on Windows. dcpred.load_model serves models here."
    )
