"""What a comparison has to know of a kind of leaf model that another method fits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dcpred_tasks.model.leaf_model import LeafModel, registered_leaf_models

LOCAL = 10**9  # rows of a leaf model that local_rows alone limits
BOTH, CLASSES = ("classification", "regression"), ("classification",)


@dataclass(frozen=True)
class LeafModelType:
    """A kind of leaf model.

    name         as systems of a comparison and stored models have it
    meaning      a sentence with its source
    fit          gives the model of (kind, rows, kernel, settings, seed): kind is this one with its size and
                 tolerance, rows are dcpred_tasks.training.solvers.LeafRows
    from_arrays  gives the model of its arrays; raises ValueError where they do not fit together
    fit_basis    of a linear model on the functions of a basis: gives these of (name, X, kernel, size, rng)
    kernel       the kernel that it approximates
    tasks        what it learns
    counted      what `size` counts; empty where it has no size
    sizes        grid of sizes, the cheapest first
    size         the size to fit
    tolerated    what `tolerance` bounds; empty where it has none
    tolerances   grid of tolerances
    tolerance    the tolerance to fit
    most_rows    largest number of rows it is fitted to, beside local_rows; LOCAL: no other limit; 0: all rows
    own_penalty  whether it needs a penalty C of its own
    wide         whether a comparison also tries it with γ = 1 / features
    caveat       where the method fails, in sentences
    fallback     what a line of a table states where the exact model is smaller and takes its place
    second_hand  whether it was written from descriptions by others, without the paper
    """

    name: str
    meaning: str
    fit: Callable[..., LeafModel]
    from_arrays: Callable[..., LeafModel]
    fit_basis: Callable[..., Any] | None = None
    kernel: str = "rbf"
    tasks: tuple[str, ...] = BOTH
    counted: str = ""
    sizes: tuple[int, ...] = (0,)
    size: int = 0
    tolerated: str = ""
    tolerances: tuple[float, ...] = (0.0,)
    tolerance: float = 0.0
    most_rows: int = 0
    own_penalty: bool = False
    wide: bool = False
    caveat: str = ""
    fallback: str = ""
    second_hand: bool = False

    def most_trained_on(self, n_rows: int, local_rows: int) -> int:
        """How many of the rows of a leaf it is fitted to."""
        return min(n_rows, local_rows, self.most_rows) if self.most_rows else n_rows


def leaf_model_types() -> dict[str, LeafModelType]:
    """All baselines that installed packages register, by name."""
    return registered_leaf_models()
