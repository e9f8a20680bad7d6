"""One driver per output, wherever it lies: the lease of a folder, or that of an object store."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from dcpred.execution.lease import check_free, held_by, hold
from dcpred.execution.store_lease import hold_on_store, place_holder
from dcpred_tasks.errors import RunHeldError
from dcpred_tasks.storage.place import Folder, Place


class HeldPlace(Protocol):
    """What a driver holds."""

    @property
    def lost(self) -> bool:
        """Whether another driver took over, as it may after a long suspension."""

    def check(self) -> None:
        """Raise RunHeldError if another driver took over."""


@contextmanager
def hold_place(place: Place) -> Iterator[HeldPlace]:
    """Hold a place within a `with` statement. Raises RunHeldError where another driver holds it."""
    with hold(place.path) if isinstance(place, Folder) else hold_on_store(place) as lease:
        yield lease


def check_place_free(place: Place) -> None:
    """Raise RunHeldError at once where another driver holds a place."""
    if isinstance(place, Folder):
        check_free(place.path)
    elif name := place_holder(place):
        raise RunHeldError(
            f"{place.address} is in use by {name}; wait for it to end, or stop it, and run again (a minute"
            " after its last sign where it was killed)"
        )


def place_held_by(place: Place, now: float | None = None) -> str:
    """Who holds a place now, in words; "" where it is free.

    now  what the clock of a store says, where that was asked already
    """
    return held_by(place.path) if isinstance(place, Folder) else place_holder(place, now)
