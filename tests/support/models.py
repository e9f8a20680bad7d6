"""Random compact models, rows for them in any memory layout, and how near two scorers of one model
must be.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.feature_map import MOST_KNOTS, Clip, FeatureMap, Knots
from dcpred_tasks.model.kernels import BY_NAME, KERNELS, Kernel, Sum
from dcpred_tasks.model.leaf_arrays import LeafArrays, join_leaves, outlined
from dcpred_tasks.model.one_hot import Coding, coded_columns
from dcpred_tasks.model.scaling import Scaling
from dcpred_tasks.model.tree import Tree

Any2D = NDArray[Any]
SIZES = (0, 1, 7, 16, 17, 40)  # landmarks of a leaf: around whole vectors of 16
SCALINGS = (
    *("none", "standard", "far", "timestamps", "zero", "tiny", "few", "coded", "gaps", "coded gaps"),
    *("clip", "clip gaps", "quantile", "quantile coded gaps"),
    *("additive", "additive coded gaps"),
)
PATTERNS = ("first", "last", "all", "all but one", "every other", "most", "half")  # features that add nothing
DTYPES = (
    "f8",
    "f4",
    "f2",
    "i1",
    "u1",
    "i2",
    "u2",
    "i4",
    "u4",
    "i8",
    "u8",
    "?",
    ">f8",
    ">f4",
    ">f2",
    ">i2",
    ">u4",
    ">i8",
    "g",
)
LAYOUTS = ("C", "F", "rows", "columns", "up", "left", "both", "readonly", "unaligned", "wide", "transposed")


def offsets(sizes: list[int]) -> NDArray[np.int64]:
    return np.cumsum([0, *sizes]).astype(np.int64)


def random_tree(rng: np.random.Generator, d: int, depth: int, max_leaves: int = 40) -> Tree:
    """Nodes of 2 to 16 centres, whose children are nodes, new leaves, or now and then a leaf that was seen
    before.
    """
    starts, children, leaves = [0], [], 0
    centres = [np.empty((0, d))]
    nodes = [(1, np.zeros(d))] if depth else []
    for at, (level, middle) in enumerate(nodes):  # grows while it is walked
        arity = int(rng.choice([2, 2, 3, 5, 15, 16]))
        own = middle + rng.normal(size=(arity, d)) / level
        for t in range(arity):
            if level < depth and leaves + len(nodes) - at < max_leaves and (t == 0 or rng.random() < 0.3):
                nodes.append((level + 1, own[t]))
                children.append(len(nodes) - 1)
            elif leaves and rng.random() < 0.25:
                children.append(~int(rng.integers(leaves)))
            else:
                children.append(~leaves)
                leaves += 1
        centres.append(own)
        starts.append(len(children))
    return Tree(
        np.array(starts, np.int64), np.array(children, np.int32), np.concatenate(centres).astype(np.float32)
    )


def random_scaling(rng: np.random.Generator, kind: str, d: int) -> Scaling:
    shift, factor = np.zeros(d), np.ones(d)
    mapped = next((name for name in ("clip", "quantile", "additive") if name in kind), "")
    if kind in ("standard", "zero", "tiny", "few", "coded", "gaps", "coded gaps") or mapped:
        shift, factor = rng.normal(size=d), rng.uniform(0.5, 2, d)
    if kind == "far" or (kind == "gaps" and rng.random() < 0.3):
        shift, factor = np.full(d, 1.6e9) + rng.normal(size=d), np.full(d, 1e-3)
    if kind == "zero":
        factor[rng.integers(d)] = 0.0
    if kind == "tiny":  # small enough that single precision drops digits of the factor, or the factor
        factor[rng.integers(d)] = rng.choice([1e-20, 1e-32, 1e-42, 1e-60])
    if kind == "few":
        factor[skipped(rng, str(rng.choice(PATTERNS)), d)] = 0.0
    if mapped:
        if rng.random() < 0.3:
            factor[skipped(rng, str(rng.choice(PATTERNS)), d)] = 0.0
        gaps = random_gaps(rng, shift, factor, "coded" in kind) if "gaps" in kind else None
        return Scaling(shift, factor, random_map(rng, d, gaps, mapped))
    if kind == "coded":
        if rng.random() < 0.3:
            factor[skipped(rng, str(rng.choice(PATTERNS)), d)] = 0.0
        return Scaling(shift, factor, random_coding(rng, d))
    if kind in ("gaps", "coded gaps"):
        if rng.random() < 0.3:
            factor[skipped(rng, str(rng.choice(PATTERNS)), d)] = 0.0
        return Scaling(shift, factor, random_gaps(rng, shift, factor, kind == "coded gaps"))
    return Scaling(shift, factor)


def random_map(rng: np.random.Generator, d: int, coding: Coding | None, kind: str) -> Coding:
    """The same columns with a map of the features that are not coded, of any centre and rate."""
    coding = coding or Coding(np.arange(d), np.full(d, np.nan))
    n, own = coding.n_features, ~coding.is_coded
    if not own.any():
        return coding
    centre = np.where(own, rng.choice([0.0, 1.0, -300.0, 1.6e9], n) + rng.normal(size=n), 0.0)
    # A date in units of less than a second is told apart by no change of 2^-40.
    rate = np.where(own, np.where(centre > 1e6, 1e-3, rng.choice([1.0, 1.0, 1e-3, 40.0], n)), 0.0)
    knots = [rng.normal(size=rng.choice([1, 2, 9, MOST_KNOTS]) * used).astype(np.float32) for used in own]
    knots = [np.unique(knot) for knot in knots]
    values = [rng.normal(size=len(knot)).astype(np.float32) for knot in knots]
    if kind == "quantile":
        values = [np.sort(np.abs(value)) for value in values]
    elif all(value.min(initial=0) >= 0 for value in values):  # contributions have the mean 0
        values = [-value for value in values]
    at = offsets([len(knot) for knot in knots])
    found: FeatureMap = Clip(centre, rate, np.ones(n))
    if kind != "clip":
        found = Knots(centre, rate, np.ones(n), at, np.concatenate(knots), np.concatenate(values), kind)
    gap = None if coding.gap is None else np.where(own, found.raw(coding.gap[None])[0], coding.gap)
    return replace(coding, gap=gap, map=found)


def random_gaps(
    rng: np.random.Generator, shift: NDArray[np.float64], factor: NDArray[np.float64], coded: bool
) -> Coding:
    """Features that become so many columns, some of them or none with an indicator; what stands for a gap is
    near the middle of a feature that is not coded.
    """
    most = max(len(shift) // 2, 1) if len(shift) > 1 else 0
    n_indicators = int(rng.choice([0, 0, rng.integers(0, most + 1), most]))
    n_own = len(shift) - n_indicators
    known = (random_coding(rng, n_own) if coded else None) or Coding(np.arange(n_own), np.full(n_own, np.nan))
    n_indicators = min(n_indicators, known.n_features)
    spare = len(shift) - len(known.source) - n_indicators  # few features of many codes
    first = known.first
    middle = shift[first] + rng.normal(size=len(first)) / np.where(factor[first] == 0, 1.0, factor[first])
    codes = {f: np.array(known.codes(f)) for f in known.features}
    n_features = known.n_features + spare
    gap = np.append(middle, np.zeros(spare))
    for f, own in codes.items():
        gap[f] = own.max() + 1 if rng.random() < 0.5 else own.min() - 1
    indicated = np.sort(rng.permutation(known.n_features)[:n_indicators]).tolist()
    coding = coded_columns(n_features, codes, gap, indicated)
    assert coding is not None
    return coding


def random_coding(rng: np.random.Generator, n_columns: int) -> Coding | None:
    """Features that become so many columns: numbers, and codes that are near 0, far from it, or far apart."""
    codes: dict[int, NDArray[Any]] = {}
    feature = left = 0
    for feature in range(n_columns):
        own = int(min(n_columns - left, rng.choice([1, 1, 2, 3, 20])))
        if rng.random() < 0.7:
            low = int(rng.choice([0, 0, 1, -3, -(2**24), 2**24 - 2**16]))
            codes[feature] = low + rng.choice(int(rng.choice([own, 2 * own, 2**16 - 1])), own, replace=False)
        left += own if feature in codes else 1
        if left == n_columns:
            break
    return coded_columns(feature + 1, codes)


def random_codes(rng: np.random.Generator, codes: list[int], n: int) -> NDArray[np.float64]:
    """Values of a coded feature: codes for the most part, some beside them, some that are no codes at all."""
    beside = [codes[0] - 1, codes[-1] + 1, codes[0] + 0.5, -codes[0], 0, 2.0**31, -1e17, 1e30]
    return np.where(rng.random(n) < 0.8, rng.choice(codes, n), rng.choice(beside, n))


def skipped(rng: np.random.Generator, pattern: str, d: int) -> NDArray[np.bool_]:
    """Which of d features add nothing."""
    j = np.arange(d)
    if pattern in ("first", "last"):
        return j == (0 if pattern == "first" else d - 1)
    if pattern in ("all", "all but one"):
        return (j != rng.integers(d)) | (pattern == "all")
    return j % 2 == 1 if pattern == "every other" else rng.random(d) < (0.8 if pattern == "most" else 0.5)


def random_gamma(seed: int, gamma: float, n: int) -> NDArray[np.float32]:
    """γ of each landmark, around a common one, or now and then the same for all."""
    rng = np.random.default_rng([seed, 1])
    spread = rng.choice([1.0, 3.0, 3.0])
    return (gamma * spread ** rng.uniform(-1, 1, n)).astype(np.float32)


def random_leaf_factor(seed: int, n_leaves: int, d: int) -> NDArray[np.float32]:
    """Factors of features in leaves, (n_leaves, d), from 1/2 to 2; 1 in a leaf now and then."""
    rng = np.random.default_rng([seed, 2])
    return (2.0 ** (rng.uniform(-1, 1, (n_leaves, d)) * (rng.random((n_leaves, 1)) < 0.8))).astype(np.float32)


def random_model(
    seed: int,
    kernel: str = "rbf",
    *,
    d: int = 3,
    n_outputs: int = 1,
    task: str = "classification",
    depth: int = 2,
    scaling: str = "standard",
    triangle: str | None = None,
    sizes: tuple[int, ...] = SIZES,
    leaf_scaling: bool = False,
) -> Model:
    """Leaves of any size. `triangle` is the bound of pseudo-landmarks by the triangle inequality, None for
    none; with `leaf_scaling` features have other factors in each leaf.
    """
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, d, depth)
    n_leaves = tree.n_leaves
    m = [int(rng.choice(sizes)) for _ in range(n_leaves)]
    pairs = [_random_pairs(rng, n) for n in m]
    t = [int(rng.integers(0, 4)) if triangle and n else 0 for n in m]
    n_basis = [a + len(b) + c for a, b, c in zip(m, pairs, t, strict=True)]
    gamma = float(rng.uniform(0.05, 1)) / (1 if d < 4 else d)
    regression = task == "regression"
    power = 1 if BY_NAME[kernel].sum == Sum.ABSOLUTE else 2
    home = _leaf_middles(tree, d)
    landmarks = np.concatenate([home[leaf] + rng.normal(size=(n, d)) for leaf, n in enumerate(m)])
    scale, origin = (1e6, 1.6e9) if scaling == "timestamps" else (1.0, 0.0)  # features that nobody scaled
    intercept = rng.normal(size=(n_leaves, n_outputs)) + (1e6 if regression else 0.0)
    compact_kernel = Kernel(kernel, gamma / scale**power, int(rng.integers(1, 4)), float(rng.choice([0, 1])))
    scaled = random_scaling(rng, scaling, d)
    distances = (scale * rng.uniform(0, 3, sum(a * b for a, b in zip(m, t, strict=True)))).astype(np.float32)
    factor = random_leaf_factor(seed, n_leaves, d if leaf_scaling else 0)
    placed = (origin + scale * landmarks) * (np.repeat(factor, m, axis=0) if leaf_scaling else 1.0)
    arrays = {
        "landmarks": _cut(placed.astype(np.float32), m),
        "gamma": _cut(random_gamma(seed, gamma / scale**power, len(landmarks)), m),
        "pairs": [p.astype(np.int32) for p in pairs],
        "triangle": _cut(distances, [a * b for a, b in zip(m, t, strict=True)]),
        "beta": _cut(_random_beta(rng, n_basis, n_outputs), n_basis),
        "intercept": list(intercept),
        "bounds": list(
            np.sort(intercept + rng.normal(size=(n_leaves, 2)) * 4, axis=1)
            if regression
            else np.zeros((n_leaves, 0))
        ),
        "leaf_factor": list(factor),
    }
    leaves = [LeafArrays(**{name: parts[leaf] for name, parts in arrays.items()}) for leaf in range(n_leaves)]
    return Model(
        **join_leaves(Model, leaves),
        task=task,
        classes=() if regression else tuple(range(n_outputs if n_outputs > 1 else 2)),
        kernel=compact_kernel,
        triangle_bound=triangle or "lower",
        scaling=scaled,
        tree=Tree(
            tree.starts, tree.children, (origin + scale * tree.centres.astype(float)).astype(np.float32)
        ),
        leaf_rows=np.ones(n_leaves, np.int64),
        local_kernel=Kernel(kernel, gamma),
    )


def _cut(array: NDArray[Any], sizes: list[int]) -> list[NDArray[Any]]:
    """The rows of each leaf."""
    return np.split(array, offsets(sizes)[1:-1])


def _random_beta(rng: np.random.Generator, n_basis: list[int], n_outputs: int) -> NDArray[np.float32]:
    """In a third of the leaves some of several outputs have no weights, as classes have that a leaf has no
    row of.
    """
    parts = []
    for n in n_basis:
        beta = rng.normal(size=(n, n_outputs))
        if n_outputs > 1 and rng.random() < 0.4:
            beta[:, rng.random(n_outputs) < 0.7] = 0.0
        parts.append(beta)
    return np.concatenate(parts).astype(np.float32)


def _random_pairs(rng: np.random.Generator, m: int) -> NDArray[np.int64]:
    """None, some or all of the products of m landmarks, squares among them, and either factor first."""
    i, j = np.triu_indices(m)
    some = rng.permutation(len(i))[: int(rng.choice([0, 3, 64, len(i)]))]
    pairs = np.column_stack([i[some], j[some]])
    return np.where(rng.random((len(some), 1)) < 0.5, pairs, pairs[:, ::-1])


def _leaf_middles(tree: Tree, d: int) -> NDArray[np.float64]:
    home = np.zeros((tree.n_leaves, d))
    at_leaf = tree.children < 0
    home[~tree.children[at_leaf]] = tree.centres[at_leaf]
    return home


def random_rows(model: Model, n: int, seed: int, dtype: str = "f8", bad: float = 0.0) -> Any2D:
    """Raw rows near the model's centres and landmarks; a share `bad` of those of a float dtype is NaN,
    infinite or huge.
    """
    rng = np.random.default_rng(seed)
    d = model.n_columns
    points = np.concatenate(
        [model.tree.centres.reshape(-1, d), model.landmarks, np.zeros((1, d), np.float32)]
    ).astype(float)
    spread = 1.0 if points.max() < 1e6 else 1e6
    near = points[rng.integers(len(points), size=n)] + spread * rng.normal(size=(n, d)) * rng.choice(
        [0.0, 0.3, 2.0], (n, 1)
    )
    factor, coding = model.scaling.factor, model.scaling.coding
    raw = model.scaling.shift + near / np.where(factor == 0, 1.0, factor)
    if coding is not None:
        raw, d = raw[:, coding.first], coding.n_features
        raw = raw if coding.map is None else coding.map.raw(raw)
        for feature in coding.features:
            raw[:, feature] = random_codes(rng, coding.codes(feature), n)
    kind = np.dtype(dtype)
    if model.scaling.knows_gaps and kind.kind == "f":
        raw[rng.random((n, d)) < rng.choice([0.0, 0.05, 0.5, 1.0], (n, 1), p=[0.3, 0.3, 0.3, 0.1])] = np.nan
    if kind.kind == "b":
        return raw > 0
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return np.clip(np.rint(raw), float(limits.min), np.nextafter(float(limits.max), 0)).astype(kind)
    with np.errstate(over="ignore"):
        X = np.clip(raw, -6e4, 6e4).astype(kind) if kind.itemsize == 2 else raw.astype(kind)
        for i in np.flatnonzero(rng.random(n) < bad):
            values = rng.choice(
                [np.nan, np.inf, -np.inf, 1e15, 1e17, -1e19, 1e25, 1e30, -1e38, 3.4028235e38, 1e200]
            )
            X[i, rng.random(d) < rng.choice([0.01, 0.5, 1.0])] = values.astype(kind)
            X[i, rng.integers(d)] = values.astype(kind)
    return X


def constant_leaves(centres: NDArray[Any]) -> Model:
    """One node, and for each centre a leaf whose decision value is its number."""
    k, d = centres.shape
    model = random_model(0, d=d, depth=0, scaling="none", sizes=(0,))
    arrays = outlined(Model, k, {}, {"feature": d, "output": 1})
    return replace(
        model,
        **arrays | {"intercept": np.arange(k, dtype=float)[:, None]},
        tree=Tree(np.array([0, k]), ~np.arange(k, dtype=np.int32), centres.astype(np.float32)),
        leaf_rows=np.ones(k, np.int64),
    )


def fixed_cases() -> Iterator[tuple[Model, Any2D]]:
    """A few of everything, the same in every process."""
    dtypes, layouts = cycle(DTYPES), cycle(LAYOUTS)
    others = [(name, "standard") for name in KERNELS if name != "rbf"]
    kinds = [
        ("rbf", "standard"),
        ("rbf", "far"),
        ("polynomial", "zero"),
        ("rbf", "few"),
        ("rbf", "coded"),
        ("rbf", "gaps"),
        ("rbf", "coded gaps"),
        *others,
    ]
    for d, n_outputs in product((1, 3, 15, 16, 17, 54), (1, 3, 17)):
        for i, (kernel, scaling) in enumerate(kinds):
            model = random_model(
                d + 100 * i,
                kernel,
                d=d,
                n_outputs=n_outputs,
                scaling=scaling,
                depth=i % 5,
                leaf_scaling=(i + n_outputs) % 4 < 2,
            )
            yield model, lay(random_rows(model, 75, i, next(dtypes), bad=0.1), next(layouts))
        for kernel, sizes in (("rbf", (0,)), ("laplacian", (7,))):  # one leaf without work in lanes
            model = random_model(d, kernel, d=d, n_outputs=n_outputs, depth=0, sizes=sizes)
            yield model, lay(random_rows(model, 75, d, next(dtypes), bad=0.1), next(layouts))
    for depth, kernel in ((0, "rbf"), (1, "polynomial")):  # leaves that go by digits where there are tiles
        sizes = (7, 48, 64)
        model = random_model(
            depth, kernel, d=300, depth=depth, sizes=sizes, n_outputs=1 + 2 * depth, leaf_scaling=depth > 0
        )
        yield model, lay(random_rows(model, 150, depth, next(dtypes), bad=0.1), next(layouts))
    mapped = ("clip gaps", "quantile", "additive coded gaps")
    for d, scaling in product((1, 3, 16, 54), mapped):
        model = random_model(d, d=d, scaling=scaling, n_outputs=1 + d % 5)
        yield model, lay(random_rows(model, 75, d, next(dtypes), bad=0.1), next(layouts))


def lay(X: Any2D, layout: str) -> Any2D:
    """The same values, laid out in memory in another way."""
    n, d = X.shape
    if layout == "F":
        return np.asfortranarray(X)
    if layout in ("rows", "columns", "wide"):
        big = np.zeros((n, 3, d, 2) if layout == "columns" else (n, 3, d, 1), X.dtype)
        big[:, 1, :, 0] = X
        return big[:, 1, :, 0] if layout != "wide" else np.hstack([X, X[:, :1], X])[:, :d]
    if layout in ("up", "left", "both"):
        back, on = slice(None, None, -1), slice(None)
        turn = (on if layout == "left" else back, on if layout == "up" else back)
        return np.ascontiguousarray(X[turn])[turn]
    if layout == "readonly":
        X = X.copy()
        X.flags.writeable = False
        return X
    if layout == "unaligned":
        return np.frombuffer(b"\1" + X.tobytes() + b"\1", X.dtype, X.size, 1).reshape(n, d)
    if layout == "transposed":
        return np.ascontiguousarray(X.T).T
    return np.array(X, order="C")


def leaf_and_doubt(model: Model, X: Any2D) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The leaf of each row of finite features, and whether rounding in double precision decides it.

    The definition compares half squared distances after rounding them to single precision. A walk is in doubt
    where moving a distance by what double precision loses in |x|² − 2x·c + |c|² would turn a comparison.
    Everything else has one right answer, ties among them.
    """
    tree, x = model.tree, model.scaling.exact(X).astype(np.longdouble)
    node = np.full(len(x), 0 if tree.n_nodes else ~0, np.int64)
    doubt = np.zeros(len(x), bool)
    for _ in range(tree.depth):
        for at in np.unique(node[node >= 0]):
            mine = np.flatnonzero(node == at)
            own = slice(int(tree.starts[at]), int(tree.starts[at + 1]))
            c = tree.centres[own].astype(np.longdouble)
            half = np.stack([((x[mine] - c[t]) ** 2).sum(axis=1) for t in range(len(c))], axis=1) / 2
            slack = (
                4 * (x.shape[1] + 4) * 2.0**-53 * ((x[mine] ** 2).sum(axis=1)[:, None] + (c**2).sum(axis=1))
            )
            with np.errstate(over="ignore"):
                low, high = (half - slack).astype(np.float32), (half + slack).astype(np.float32)
                won = half.astype(np.float32).argmin(axis=1)
            best = high[np.arange(len(mine)), won][:, None]
            t = np.arange(len(c))
            sure = (t == won[:, None]) | (low > best) | ((low == best) & (t > won[:, None]))
            doubt[mine] |= ~sure.all(axis=1)
            node[mine] = tree.children[own][won]
    return ~node, doubt


def reach_of(model: Model, X: Any2D, leaf: NDArray[np.int64]) -> NDArray[np.float64]:
    """1 + the size of what is summed for a decision value: what errors of single precision are relative to.

    Values of stationary kernels count as 1 at least, for they are written as differences from their values at
    the mean of the leaf, and those of products as what the product sums on its way.
    """
    reach = np.ones(len(X))
    rows = model.scaling.exact(X)
    for at in np.unique(leaf):
        mine = leaf == at
        beta = np.abs(model.beta.of(at).astype(float))
        with np.errstate(over="ignore", invalid="ignore"):
            if len(beta):
                terms = model.basis(at).summed_sizes(rows[mine])
                reach[mine] += (terms @ beta).max(axis=1)
        reach[mine] += np.abs(model.intercept[at]).max() if model.task == "classification" else 1.0
    for term in model.terms:
        reach += term.sizes(X)
    return reach


def differences(
    model: Model, X: Any2D, ours: tuple[Any, Any], theirs: tuple[Any, Any], tolerance: float = 1e-6
) -> Iterator[str]:
    """Where two scorers' results differ more than rounding allows; rows in doubt between two leaves are left
    out.
    """
    (decision, status), (right, right_status) = ours, theirs
    if decision.dtype != right.dtype or decision.shape != right.shape or status.dtype != right_status.dtype:
        yield (
            f"{decision.dtype} {decision.shape} {status.dtype}, not {right.dtype} {right.shape}"
            f" {right_status.dtype}"
        )
        return
    finite = np.flatnonzero(right_status != 2)
    leaf, doubt = leaf_and_doubt(model, X[finite])
    for i in np.flatnonzero((status == 2) != (right_status == 2)):
        yield f"row {i}: status {status[i]}, not {right_status[i]}"
    if not np.isnan(decision[right_status == 2]).all():
        yield "a bad row without NaN"
    keep = finite[~doubt]
    reach = reach_of(model, X[keep], leaf[~doubt])
    for i, size in zip(keep, reach, strict=True):
        if status[i] != right_status[i]:
            yield f"row {i}: status {status[i]}, not {right_status[i]}"
        elif status[i] == 1 and not (np.abs(decision[i].astype(float) - right[i]) <= tolerance * size).all():
            yield f"row {i}: {decision[i]}, not {right[i]}, reach {size}"
        elif status[i] != 1 and not np.isnan(decision[i]).all():
            yield f"row {i}: status {status[i]} with {decision[i]}"
