"""Files that anybody may have made: read where they are ordinary files of a bearable size.

A pipe would be waited for without end, a device read without end, and a file with holes has any size and
takes no room. Links are followed: people put large data elsewhere; what is written never goes through one.
"""

import errno
import os
import re
import stat
from pathlib import Path

# Plans, records and metadata; a manifest of 100,000 blocks has 20 MB.
LARGEST_DOCUMENT = 2**28


# What file systems, file managers, servers of files and editors leave in folders, by the names of files and
# folders.
SYSTEM_FILES = re.compile(
    r"\._.*|\.DS_Store|\.AppleDouble|\.apdisk|\.Spotlight-V100|\.fseventsd|\.Trashes|\.TemporaryItems"
    r"|\.nfs[0-9a-f]{16,}|\.fuse_hidden[0-9a-f]+|\.Trash-\d+|\.directory|\.snapshots?|~snapshot|lost\+found"
    r"|@eaDir|#recycle|#snapshot|Thumbs\.db|ehthumbs\.db|desktop\.ini|\$RECYCLE\.BIN"
    r"|System Volume Information|\..*\.sw[a-p]|.*~|#.*#|\.#.*",
    re.IGNORECASE,
)


def is_system_file(name: str) -> bool:
    """Whether a name, with `/` between its parts, is of a file that the operating system or an editor
    made, or lies in such a folder. Nobody who works with dcpred made it, and removing it does not keep it
    away.
    """
    return any(SYSTEM_FILES.fullmatch(part) for part in name.split("/"))


class NoDocumentError(IsADirectoryError):
    """What stands under a name is no file that can be read."""

    def __init__(self, why: str, path: str | Path) -> None:
        super().__init__(errno.EISDIR, why, str(path))


def plain(path: str | Path, flags: int) -> int:
    """What `open` takes as its opener: a descriptor of an ordinary file. Raises NoDocumentError for
    anything else, and never waits.
    """
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)  # less what the umask takes
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NoDocumentError("is no ordinary file", path)
    return handle


def read_plain(path: str | Path, most: int = LARGEST_DOCUMENT) -> tuple[bytes, os.stat_result]:
    """The bytes of an ordinary file, and its state. Raises NoDocumentError for more than `most` of them, and
    OSErrors as `open` does.
    """
    with open(path, "rb", opener=plain) as file:
        state = os.fstat(file.fileno())
        if state.st_size > most:
            raise NoDocumentError(f"has {state.st_size:,} bytes, which is more than {most:,}", path)
        return file.read(), state
