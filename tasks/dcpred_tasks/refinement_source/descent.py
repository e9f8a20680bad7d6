"""L-BFGS around the objective: dcpred_tasks.training.lbfgs.minimise, step by step."""

import math

from dcpred_tasks.engine_source.compilation import CHECKED, compiled, inlined
from dcpred_tasks.refinement_source.doubles import add_scaled, dot
from dcpred_tasks.refinement_source.objective import touch, value_and_gradient
from dcpred_tasks.training.lbfgs import CURVED, DECREASE, FIRST_STEP, MEMORY, SHORTER, TRIES

PLACES = MEMORY + 1  # room for the pairs that are remembered, and for one that may be


@inlined
def set_direction(room, n, n_pairs, newest):
    """room.direction = −H g by the two-loop recursion, with the last n_pairs pairs."""
    q = room.direction
    factor = -1.0
    if n_pairs == 0:
        norm = math.sqrt(dot(room.gradient, 0, room.gradient, 0, n))
        factor = -FIRST_STEP / norm if norm > 0.0 else -1.0
    for i in range(n):
        q[i] = factor * room.gradient[i]
    if n_pairs == 0:
        return
    for back in range(n_pairs):
        pair = (newest - back) % PLACES
        a = room.inverse[pair] * dot(room.moves, pair * n, q, 0, n)
        add_scaled(q, -a, room.changes, pair * n, n)
        room.along[pair] = a
    factor = 1.0 / (room.inverse[newest] * dot(room.changes, newest * n, room.changes, newest * n, n))
    for i in range(n):
        q[i] *= factor
    for back in range(n_pairs - 1, -1, -1):
        pair = (newest - back) % PLACES
        b = room.inverse[pair] * dot(room.changes, pair * n, q, 0, n)
        add_scaled(q, room.along[pair] - b, room.moves, pair * n, n)


@inlined
def step_to_trial(room, n, pair):
    """Make the trial the point. Whether the step is curved: then it is the pair with this number."""
    at = pair * n
    for i in range(n):
        room.moves[at + i] = room.trial[i] - room.x[i]
        room.changes[at + i] = room.at_trial[i] - room.gradient[i]
        room.x[i] = room.trial[i]
        room.gradient[i] = room.at_trial[i]
    curvature = dot(room.moves, at, room.changes, at, n)
    if curvature > CURVED * dot(room.changes, at, room.changes, at, n):
        room.inverse[pair] = 1.0 / curvature
        return True
    return False


@inlined
def all_finite(vector):
    found = True
    for i in range(len(vector)):
        found &= math.isfinite(vector[i])
    return found


@compiled
def refine_leaf(p, room):
    """room.x becomes the lowest point that at most p.steps steps from it find."""
    n = len(room.x)
    if CHECKED:
        for vector in (room.gradient, room.trial, room.at_trial, room.direction):
            touch(vector, 0, n)
        touch(room.moves, 0, PLACES * n)
        touch(room.changes, 0, PLACES * n)
    n_pairs, newest = 0, MEMORY
    value = value_and_gradient(p, room, room.x, room.gradient)
    room.value[0] = value
    for _ in range(p.steps):
        set_direction(room, n, n_pairs, newest)
        slope = dot(room.gradient, 0, room.direction, 0, n)
        if not slope < 0.0:
            break
        length, lower, fell = 1.0, value, False
        for _ in range(TRIES):
            for i in range(n):
                room.trial[i] = room.x[i] + length * room.direction[i]
            lower = value_and_gradient(p, room, room.trial, room.at_trial)
            if lower <= value + DECREASE * length * slope:  # This is false for NaN.
                fell = True
                break
            length *= SHORTER
        if not fell or not all_finite(room.at_trial):
            break
        following = (newest + 1) % PLACES
        if step_to_trial(room, n, following):
            newest, n_pairs = following, min(n_pairs + 1, MEMORY)
        gain = value - lower
        room.value[0] = value = lower
        if gain < p.tolerance * max(abs(value), 1e-300):
            break
