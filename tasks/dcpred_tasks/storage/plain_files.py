"""Files of unknown origin: only regular files of limited size are read.

A pipe would block forever, a device has no end, and a sparse file may claim any size. Reads follow links,
which users set to large data elsewhere; writes never follow one."""

import errno
import os
import re
import stat
from pathlib import Path

from dcpred_tasks.process import CLOSED_ON_EXEC, NON_BLOCKING

# Plans, records and metadata; a manifest of 100,000 blocks has 20 MB.
LARGEST_DOCUMENT = 2**28


# What file systems, file managers, servers of files and editors leave in folders, by names of files and
# folders.
SYSTEM_FILES = re.compile(
    r"\._.*|\.DS_Store|\.AppleDouble|\.apdisk|\.Spotlight-V100|\.fseventsd|\.Trashes|\.TemporaryItems"
    r"|\.nfs[0-9a-f]{16,}|\.fuse_hidden[0-9a-f]+|\.Trash-\d+|\.directory|\.snapshots?|~snapshot|lost\+found"
    r"|@eaDir|#recycle|#snapshot|Thumbs\.db|ehthumbs\.db|desktop\.ini|\$RECYCLE\.BIN"
    r"|System Volume Information|\..*\.sw[a-p]|.*~|#.*#|\.#.*",
    re.IGNORECASE,
)


def is_system_file(name: str) -> bool:
    """Whether a path, with `/` between names, is a file of the operating system or an editor, or lies in such
    a folder. No user of dcpred made it, and it returns after removal.
    """
    return any(SYSTEM_FILES.fullmatch(part) for part in name.split("/"))


class NoDocumentError(IsADirectoryError):
    """The name is not a readable regular file."""

    def __init__(self, why: str, path: str | Path) -> None:
        super().__init__(errno.EISDIR, why, str(path))


def plain(path: str | Path, flags: int) -> int:
    """Open a regular file, as the opener of `open`, without blocking. Raises NoDocumentError for others."""
    handle = os.open(path, flags | NON_BLOCKING | CLOSED_ON_EXEC, 0o666)  # minus the umask
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NoDocumentError("is not a regular file", path)
    return handle


def read_plain(path: str | Path, most: int = LARGEST_DOCUMENT) -> tuple[bytes, os.stat_result]:
    """The bytes of a regular file, and its state. Raises NoDocumentError beyond `most` bytes, OSErrors."""
    with open(path, "rb", opener=plain) as file:
        state = os.fstat(file.fileno())
        if state.st_size > most:
            raise NoDocumentError(f"has {state.st_size:,} bytes, which is more than {most:,}", path)
        return file.read(), state
