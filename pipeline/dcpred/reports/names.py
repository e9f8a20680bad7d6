"""What a page calls things: by the last part of their address, for a page may be read by others, whom the
folders of this machine do not concern.
"""

from pathlib import Path
from typing import Any

from dcpred.pages.text import plain

PARTS = ("X", "y", "scores.zarr")  # parts of what is meant


def last_name(address: Any) -> str:
    """The name of a model, a data set or an output; of an array that of its group."""
    parts = [part for part in str(address).split("/") if part not in ("", ".", "..")]
    while len(parts) > 1 and parts[-1] in PARTS:
        parts.pop()
    return plain(parts[-1] if parts else Path.cwd().name)


def without_places(text: Any, *addresses: Any) -> str:
    """A text in which addresses are the last parts of themselves."""
    found = str(text)
    for address in sorted((str(one) for one in addresses if one), key=len, reverse=True):
        found = found.replace(address, last_name(address))
    return plain(found, 1_000)
