"""All that is said of how good decision values are."""

from typing import Any

from numpy.typing import NDArray

from dcpred.evaluation.class_measures import ClassMeasures
from dcpred.evaluation.interval_measures import IntervalMeasures
from dcpred.evaluation.leaf_measures import LeafMeasures
from dcpred.evaluation.probabilities import ProbabilityMeasures, class_probabilities
from dcpred.evaluation.value_measures import ValueMeasures
from dcpred_tasks.dtypes import LeafNumbers
from dcpred_tasks.model.compact_model import Model, Scores


class Measures:
    """All that is said of how good decision values are, gathered from rows piece by piece."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.n = 0
        """Rows that have a score."""
        self.quality = ClassMeasures(model) if model.task == "classification" else ValueMeasures(model)
        self.leaves = LeafMeasures(model)
        self.probabilities = ProbabilityMeasures()
        self.intervals = IntervalMeasures(model)

    def add(self, decision: Scores, target: NDArray[Any], leaves: LeafNumbers | None = None) -> None:
        """decision (n, n_outputs), finite; target (n,) class numbers or values; leaves (n,), where they are
        known.
        """
        self.n += len(target)
        self.quality.add(decision, target)
        if leaves is not None:
            self.leaves.add(decision, target, leaves)
            self.intervals.add(decision, target, leaves)
        if self.model.task == "classification":
            stated = class_probabilities(self.model, decision)
            if stated is not None:
                self.probabilities.add(stated, target)

    def as_dict(self) -> dict[str, Any]:
        """The fields of what was given."""
        told = self.quality.as_dict()
        told |= self.probabilities.as_dict() if self.probabilities.n else {}
        told |= self.intervals.as_dict()
        return told | (self.leaves.as_dict() if self.leaves.rows.any() else {})
