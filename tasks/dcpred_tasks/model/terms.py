"""The terms that a model may have beside its kernels (term.py)."""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from dcpred_tasks.model.oblivious_trees import ObliviousTrees
from dcpred_tasks.model.term import Term

TERMS: tuple[type[Term], ...] = (ObliviousTrees,)


def read_terms(names: Sequence[str], arrays: Mapping[str, NDArray[Any]]) -> tuple[Term, ...]:
    """The terms of these names, which are in TERMS, among arrays."""
    by_name = {term.name: term for term in TERMS}
    return tuple(by_name[name].from_arrays(arrays) for name in names)
