"""The cost that is predicted from a model's arrays."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dcpred.serving.cost import linear_ns, predict_cost
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.kernels import KERNELS
from dcpred_tasks.model.scaling import Scaling
from support.models import random_model


def total(model: Model) -> float:
    return predict_cost(model).ns_per_row


def test_parts_add_up() -> None:
    cost = predict_cost(random_model(1, d=54, depth=2, sizes=(16,)))
    assert cost.ns_per_row == pytest.approx(cost.convert + cost.descend + cost.landmarks + cost.outputs)
    assert cost.cost_ratio == pytest.approx(cost.ns_per_row / linear_ns(54))


def test_the_unit_does_not_jump_with_the_number_of_features() -> None:
    """A model of one kind cost 1.4 linear predictions at 7 features, 5.0 at 8 and 1.5 at 9."""
    ratios = [predict_cost(random_model(1, d=d, depth=0, sizes=(8,))).cost_ratio for d in range(7, 130)]
    assert max(max(a / b, b / a) for a, b in pairwise(ratios)) < 1.3
    units = [linear_ns(d) for d in range(1, 1000)]
    assert units == sorted(units), "more features never cost a linear prediction less"
    assert linear_ns(5) == linear_ns(6) == linear_ns(7) == linear_ns(8) < linear_ns(9), (
        "rows are filled up to 16 bytes"
    )


def test_more_work_costs_more() -> None:
    plain = random_model(1, d=54, depth=2, sizes=(16,))
    assert total(random_model(1, d=54, depth=4, sizes=(16,))) > total(plain)
    assert total(random_model(1, d=54, depth=2, sizes=(40,))) > total(plain)
    assert total(random_model(1, d=200, depth=2, sizes=(16,))) > total(plain)
    for kernel in KERNELS[1:]:
        assert total(random_model(1, kernel, d=54, depth=2, sizes=(16,))) >= total(plain)
    assert total(random_model(1, d=54, depth=2, sizes=(16,), triangle="lower")) > 3 * total(plain)


def test_features_of_factor_0_cost_little() -> None:
    model = random_model(1, d=54, depth=2, sizes=(16,))

    def held(n: int) -> Model:
        return replace(
            model,
            scaling=Scaling(model.scaling.shift, np.where(np.arange(54) < n, model.scaling.factor, 0.0)),
        )

    costs = [total(held(n)) for n in (12, 24, 32, 54)]
    assert costs == sorted(costs)
    assert len(set(costs)) == 4
    assert total(held(12)) < 0.9 * total(model)
    assert total(held(53)) == total(model)


def test_rows_in_constant_leaves_cost_the_descent_only() -> None:
    model = random_model(1, d=54, depth=2, sizes=(16,))
    none = np.zeros(model.n_leaves + 1, np.int64)
    constant = replace(
        model, landmark_at=none, pair_at=none, triangle_at=none, triangle=model.triangle[:0], beta_at=none
    )
    cost = predict_cost(constant)
    assert cost.landmarks == cost.outputs == 0
    assert cost.descend == pytest.approx(predict_cost(model).descend, rel=0.5)
