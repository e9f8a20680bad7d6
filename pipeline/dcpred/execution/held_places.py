"""One driver per output: the lock of a folder, or that of an object store."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from dcpred.execution.lease import check_free, held_by, hold
from dcpred.execution.store_lease import hold_on_store, place_holder
from dcpred_tasks.errors import RunHeldError
from dcpred_tasks.storage.place import Folder, Place


class Lock(Protocol):
    """The lock of a driver."""

    @property
    def lost(self) -> bool:
        """Whether another driver took over, which is possible after a long suspension."""

    def check(self) -> None:
        """Raise RunHeldError if another driver took over."""


@contextmanager
def acquire_lock(place: Place) -> Iterator[Lock]:
    """Lock a place within a `with` statement. Raises RunHeldError if another driver holds it."""
    with hold(place.path) if isinstance(place, Folder) else hold_on_store(place) as lease:
        yield lease


def check_unlocked(place: Place) -> None:
    """Raise RunHeldError at once if another driver holds a place."""
    if isinstance(place, Folder):
        check_free(place.path)
    elif name := place_holder(place):
        raise RunHeldError(
            f"Cannot use {place.address}: it is in use by {name}. Wait for it to end, or stop it, and run"
            " again (a"
            " minute"
            " after its last sign if it was killed)."
        )


def lock_holder(place: Place, now: float | None = None) -> str:
    """The holder of a place; "" if it is free.

    now  the time of a store's clock, if it is known
    """
    return held_by(place.path) if isinstance(place, Folder) else place_holder(place, now)
