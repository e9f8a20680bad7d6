"""One row at a time in double precision, compiled: the rows that single precision cannot decide.

These are rows so near to a border of the tree that single precision cannot tell which side they are on; rows
so far out that their squares overflow; rows of leaves whose terms are too large for single precision; and all
rows of models with triangle pseudo-landmarks. The operations are those of model/compact_model.py, one by one.
`finish_constant` and `finish_plain` write the results of such rows, and of rows in constant leaves.

q is Exact; p is Packed (packing.py), room is Room, source is Source, out is Out (engine.py).
"""

import math

import numpy as np

from dcpred_tasks.dtypes import Status
from dcpred_tasks.engine.layout import NOWHERE
from dcpred_tasks.engine_source.compilation import called, compiled, inlined
from dcpred_tasks.engine_source.row_conversion import read_row
from dcpred_tasks.engine_source.row_logarithms import read_logarithms
from dcpred_tasks.model.kernel_families import FAMILIES, Sum

SQUARES, ABSOLUTE = int(Sum.SQUARES), int(Sum.ABSOLUTE)
NON_FINITE_FEATURE, NON_FINITE_RESULT = int(Status.NON_FINITE_FEATURE), int(Status.NON_FINITE_RESULT)


def _value_of(number):
    """A compiled function from (place of a family, t, degree, coef0) to κ(t), for places from `number` on."""
    own = compiled(FAMILIES[number].scalar)
    if number + 1 == len(FAMILIES):
        return own
    others = _value_of(number + 1)
    last = number + 2 == len(FAMILIES)

    @compiled
    def value(kernel, t, degree, coef0):
        if kernel == number:
            return own(t, degree, coef0)
        return others(t, degree, coef0) if last else others(kernel, t, degree, coef0)

    return value


kernel_value = _value_of(0)


@called
def read_columns(q, source, i, room):
    """The columns of raw row i into room.x: the raw features themselves, or their logarithms, where none is
    coded, and none has an indicator.
    """
    n, last_own = len(q.columns.first), len(room.x) - len(q.columns.indicated)
    raw = room.raw if n > 0 else room.x
    address = source.address + i * source.stride
    if len(q.log_scale.rate) > 0:
        read_logarithms(source.code, address, len(raw), q.log_scale.centre, q.log_scale.rate, raw)
    else:
        read_row(source.code, address, len(raw), raw)
    for k in range(len(q.columns.indicated)):
        room.x[last_own + k] = 1.0 if np.isnan(raw[q.columns.indicated[k]]) else 0.0
    for f in range(len(q.gap)):
        if np.isnan(raw[f]):
            raw[f] = q.gap[f]
    for f in range(n):
        value, first, extent = room.raw[f], q.columns.first[f], q.columns.extent[f]
        if extent == 0:
            room.x[first] = value
            continue
        last = q.columns.first[f + 1] if f + 1 < n else last_own
        room.x[first:last] = 0.0 if np.isfinite(value) else np.nan
        above = value - q.columns.lowest[f]
        if above >= 0 and above < extent and value == q.columns.lowest[f] + np.int64(above):
            column = q.columns.place[q.columns.place_at[f] + np.int64(above)]
            if column < len(room.x):  # The spare column is none.
                room.x[column] = 1.0


@compiled
def exact_row(q, x):
    """Scale a row in double precision, in place. Returns whether it can be scored: whether every feature is
    finite in single precision, too.
    """
    finite = True
    for j in range(len(q.shift)):
        x[j] = (x[j] - q.shift[j]) * q.factor[j]
        # From half a unit above the largest single on, a number rounds to infinity.
        finite = finite and abs(x[j]) < 3.4028235677973366e38
    return finite


@compiled
def exact_leaf(q, x, node):
    """The leaf of a scaled row that stands at a node: the least squared distance, compared in single
    precision; the first centre of several at the same distance.
    """
    d = len(q.shift)
    while len(q.starts) > 1 and node >= 0:
        best, child = np.float32(np.inf), q.children[q.starts[node]]
        for t in range(q.starts[node], q.starts[node + 1]):
            half = np.float32(_squared_distance(q, x, t * d, d) / 2)
            if half < best:
                best, child = half, q.children[t]
        node = child
    return ~node if node < 0 else 0


@inlined
def _squared_distance(q, x, at, d):
    """‖x − c‖² of the centre at element `at`, in four chains of sums, for one would wait for itself."""
    a = b = c = e = 0.0
    whole = d & -4
    for j in range(0, whole, 4):
        a += (x[j] - np.float64(q.centres[at + j])) ** 2
        b += (x[j + 1] - np.float64(q.centres[at + j + 1])) ** 2
        c += (x[j + 2] - np.float64(q.centres[at + j + 2])) ** 2
        e += (x[j + 3] - np.float64(q.centres[at + j + 3])) ** 2
    for j in range(whole, d):
        a += (x[j] - np.float64(q.centres[at + j])) ** 2
    return (a + b) + (c + e)


@compiled
def exact_values(q, leaf, x, c, r, out):
    """Decision values of a scaled row in its leaf into out (n_outputs,), without the bounds of a regression.
    c and r are buffers of most_landmarks numbers: kernel values and distances.
    """
    n_outputs = q.intercept.shape[1]
    for k in range(n_outputs):
        out[k] = q.intercept[leaf, k]
    b = q.beta_at[leaf]
    if b == q.beta_at[leaf + 1]:
        return
    m = q.landmark_at[leaf + 1] - q.landmark_at[leaf]
    _kernel_row(q, leaf, m, x, c, r)
    for i in range(m):
        for k in range(n_outputs):
            out[k] += c[i] * q.beta[b * n_outputs + k]
        b += 1
    for pair in range(q.pair_at[leaf], q.pair_at[leaf + 1]):
        product = c[q.pairs[2 * pair]] * c[q.pairs[2 * pair + 1]]
        for k in range(n_outputs):
            out[k] += product * q.beta[b * n_outputs + k]
        b += 1
    for first in range(q.triangle_at[leaf], q.triangle_at[leaf + 1], m):
        value = _of_distance(q, q.triangle_gamma, _bound(q, first, m, r))
        for k in range(n_outputs):
            out[k] += value * q.beta[b * n_outputs + k]
        b += 1


@compiled
def _kernel_row(q, leaf, m, x, c, r):
    """c[i] = K(x, u_i) for the m landmarks of the leaf, and for stationary kernels their distances r[i]."""
    d = len(x)
    first = q.landmark_at[leaf] * d
    r[:m] = 0.0
    for j in range(d):
        xj = x[j]
        if len(q.leaf_factor) > 0:
            xj *= np.float64(q.leaf_factor[leaf * d + j])
        if q.sum == SQUARES:
            for i in range(m):
                difference = xj - np.float64(q.landmarks[first + j * m + i])
                r[i] += difference * difference
        elif q.sum == ABSOLUTE:
            for i in range(m):
                r[i] += abs(xj - np.float64(q.landmarks[first + j * m + i]))
        else:
            for i in range(m):
                r[i] += xj * np.float64(q.landmarks[first + j * m + i])
    for i in range(m):
        c[i] = kernel_value(q.kernel, q.gamma[q.landmark_at[leaf] + i] * r[i], q.degree, q.coef0)
        if q.sum == SQUARES:
            r[i] = math.sqrt(r[i])


@compiled
def _of_distance(q, gamma, r):
    """The kernel value at the distance r."""
    return kernel_value(q.kernel, gamma * (r * r if q.sum == SQUARES else r), q.degree, q.coef0)


@compiled
def _bound(q, first, m, r):
    """The estimate of ‖x − v‖ from r and the distances of v to the landmarks: max |r − s| or min (r + s)."""
    best = abs(r[0] - q.triangle[first]) if q.lower_bound else r[0] + q.triangle[first]
    for i in range(1, m):
        best = (
            max(best, abs(r[i] - q.triangle[first + i]))
            if q.lower_bound
            else min(best, r[i] + q.triangle[first + i])
        )
    return best


@inlined
def finish_constant(p, q, leaf, i, out):
    """Write the constant of a row's leaf, and return True; False where the leaf is no constant, or not
    finite.
    """
    if leaf == NOWHERE or q.beta_at[leaf] < q.beta_at[leaf + 1]:
        return False
    finite = True
    for k in range(p.n_outputs):
        value = q.intercept[leaf, k]
        if p.regression:
            out.doubles[i, k] = value
        else:
            out.singles[i, k] = np.float32(value)
            value = np.float64(out.singles[i, k])
        finite &= np.isfinite(value)
    return finite


@compiled
def finish_plain(p, q, source, leaf, i, out, room):
    """Write row i in double precision: NaN where its leaf is NOWHERE, else the value of a constant leaf, or
    of all terms of the leaf.
    """
    if leaf == NOWHERE:
        _spoil(p, i, out, out.status[i])
        return
    if q.beta_at[leaf] < q.beta_at[leaf + 1]:
        read_columns(q, source, i, room)
        if not exact_row(q, room.x):  # Only where there is no tree: a walk finds such rows.
            _spoil(p, i, out, NON_FINITE_FEATURE)
            return
    exact_values(q, leaf, room.x, room.c, room.r, room.outputs)
    _finish(p, leaf, i, out, room)


@compiled
def _finish(p, leaf, i, out, room):
    """Write the decision values of row i; NaN and NON_FINITE_RESULT where one of them is not finite."""
    finite = True
    for k in range(p.n_outputs):
        value = room.outputs[k]
        if p.regression:
            if p.bounded[leaf]:
                value = min(max(value, p.bounds[leaf, 0]), p.bounds[leaf, 1])
            out.doubles[i, k] = value
            finite = finite and np.isfinite(value)
        else:
            out.singles[i, k] = np.float32(value)
            finite = finite and np.isfinite(out.singles[i, k])
    if not finite:
        _spoil(p, i, out, NON_FINITE_RESULT)


@inlined
def _spoil(p, i, out, status):
    """NaN for row i, and its status."""
    out.status[i] = status
    for k in range(p.n_outputs):
        if p.regression:
            out.doubles[i, k] = np.nan
        else:
            out.singles[i, k] = np.nan
