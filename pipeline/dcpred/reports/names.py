"""Names on a page: the last parts of addresses, because a page may have readers outside of this computer."""

from pathlib import Path
from typing import Any

from dcpred.pages.text import plain

PARTS = ("X", "y", "scores.zarr")  # parts of the named object


def last_name(address: Any) -> str:
    """The name of a model, a data set or an output; of an array that of its group."""
    parts = [part for part in str(address).split("/") if part not in ("", ".", "..")]
    while len(parts) > 1 and parts[-1] in PARTS:
        parts.pop()
    return plain(parts[-1] if parts else Path.cwd().name)


def without_places(text: Any, *addresses: Any) -> str:
    """A text with addresses replaced by their last parts."""
    found = str(text)
    for address in sorted((str(one) for one in addresses if one), key=len, reverse=True):
        found = found.replace(address, last_name(address))
    return plain(found, 1_000)
