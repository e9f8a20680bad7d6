"""Whether a worker sees a folder and may write to it."""

import os
from pathlib import Path

from dcpred_tasks.storage.atomic_files import partial_name


def can_write(folder: str) -> str:
    """An empty string where this process can create files in a folder, else why not."""
    if not os.path.isdir(folder):
        return "does not see"
    probe = partial_name(Path(folder) / "probe")
    try:
        probe.write_bytes(b"dcpred")
        probe.unlink()
    except OSError as error:
        return f"cannot write ({error.strerror}) to"
    return ""
