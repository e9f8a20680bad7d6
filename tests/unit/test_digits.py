"""Landmarks as digits: what they lose is bounded, rows keep their bits, and other leaves stay as they are."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from llvmlite import binding
from numpy.typing import NDArray

from dcpred_tasks.engine import machine_code, packing, tiles
from dcpred_tasks.engine.engine import Engine
from dcpred_tasks.engine.layout import PARTS, STEP
from dcpred_tasks.engine.machine_code import MachineCode, Target, host, own_code
from dcpred_tasks.engine.native_modules import ENGINE
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.compact_model import Model
from support import processes
from support.caches import with_cache
from support.models import differences, random_model, random_rows

WITHOUT_TILES = {("avx512f",): machine_code.NATIVE_OPS["avx512f",]}
needs_tiles = pytest.mark.skipif(not tiles.allowed(), reason="the processor has no tiles, or lends none")


@pytest.fixture(autouse=True)
def packed_for_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "allowed", lambda: True)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> MachineCode:
    """Sums of digits by plain operations, for processors without tiles too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine_code, "NATIVE_OPS", WITHOUT_TILES)
        code = MachineCode(own_code(ENGINE).bitcode, Target(host().cpu, host().features))
        code.folders = [tmp_path_factory.mktemp("cache")]  # Others may hold this machine's own code.
        code.entry()
    assert code.has_compiled
    return code


def cases() -> Iterator[tuple[Model, Any]]:
    """One leaf, several, and such that go by digits beside such that do not; features in whole and in
    broken steps.
    """
    for seed, (d, depth, sizes) in enumerate(
        [(300, 0, (48,)), (320, 1, (40, 64)), (301, 2, (0, 7, 33, 100)), (384, 1, (130,))]
    ):
        kernel = ("rbf", "polynomial", "rbf", "matern52")[seed]
        n_outputs = (1, 3, 10, 1)[seed]
        task = "regression" if seed == 3 else "classification"
        model = random_model(seed, kernel, d=d, depth=depth, sizes=sizes, n_outputs=n_outputs, task=task)
        yield model, random_rows(model, 300, seed, ("f4", "f8", "f4", "f8")[seed], bad=0.03)


def by_digits(engine: Engine) -> int:
    return int((engine.packed.digits.group_at >= 0).sum())


# -- numbers -------------------------------------------------------------------------------------------------


def landmarks_of(packed: packing.Digits, d: int) -> NDArray[np.float64]:
    """What digits say, (n_landmarks, d)."""
    W = cut(packed)[..., :d]
    whole = 2.0**16 * W[0] + 2.0**8 * W[1] + W[2]
    return whole * (packed.unit.astype(float) / 2**16)[:, None]


def cut(packed: packing.Digits) -> NDArray[np.float64]:
    """The digits of landmarks, (PARTS, n_landmarks, features)."""
    tiled = packed.numbers.reshape(-1, packed.steps, PARTS, 16, 16, 4).astype(float)
    return tiled.transpose(2, 0, 4, 1, 5, 3).reshape(PARTS, -1, packed.steps * STEP)


@pytest.mark.parametrize("d", [256, 300, 784, 2_000])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_what_is_lost_is_what_is_said(d: int, size: float) -> None:
    """Of rows like landmarks, rows of few features, and rows that rounding moves as far as it can."""
    rng = np.random.default_rng(d)
    w = (size * rng.uniform(-1, 1, (48, d)) * rng.choice([1.0, 1.0, 1e-3], (48, d))).astype(np.float32)
    groups = w.reshape(3, 16, d).transpose(0, 2, 1).copy()
    packed = packing.digits_of(groups, np.array([0, 3]), np.array([48]), np.array([True]))
    assert len(packed.unit) == 48
    parts = cut(packed)[..., :d]
    assert np.abs(landmarks_of(packed, d) - w).max() <= 0.51 * packed.unit.max() / 2**16
    z = rng.normal(size=(200, d))
    z[:40] *= rng.random((40, d)) < 0.05
    q = rng.integers(-(2**21), 2**21, (40, d))
    q[:, 0] = 2**22
    z[40:80] = q + 0.49 * np.sign(w[:40])
    z[80:120] = w[:40]
    most = np.abs(z).max(axis=1, keepdims=True)
    Z = np.rint(z * (2**22 / most)).astype(np.int64) + 0x808080
    rows = [((Z >> shift) & 255) - 128.0 for shift in (16, 8, 0)]
    sums = sum(
        2.0 ** (32 - 8 * (i + j)) * (rows[i] @ parts[j].T) for i in range(PARTS) for j in range(PARTS - i)
    )
    ours = sums * most / 2**22 * (packed.unit.astype(float) / 2**16)
    lost = np.abs(ours - z @ w.T.astype(float))
    length = np.sqrt((z**2).sum(axis=1))[:, None] * np.sqrt((w.astype(float) ** 2).sum(axis=1))
    assert (lost <= (d + 8) * 2.0**-24 * length).all()
    assert lost.max() > 0


def test_sums_stay_in_32_bits() -> None:
    assert 3 * 2**14 * packing.MOST_FEATURES <= 2**31


# -- the definition ------------------------------------------------------------------------------------------


def test_it_is_the_definition(plain: MachineCode) -> None:
    counts = set()
    for model, X in cases():
        leaves, right = np.full((2, len(X)), -9, np.int32)
        expected = compact_model.score_rows(model, X, leaves=right)
        for code in (None, plain) if tiles.allowed() else (plain,):
            engine = Engine(model, code)
            counts.add((by_digits(engine) > 0, by_digits(engine) < engine.packed.n_by_products))
            assert not list(differences(model, X, engine.score(X, leaves), expected, 2e-6))
    assert (True, True) in counts
    assert (True, False) in counts


@needs_tiles
def test_tiles_and_plain_operations_give_the_same_bits(plain: MachineCode) -> None:
    """And so does machine code for a level: it has the same function."""
    level = MachineCode(own_code(ENGINE).bitcode, Target("x86-64-v3"))
    for model, X in cases():
        right = Engine(model).score(X)
        for code in (plain, level):
            for a, b in zip(Engine(model, code).score(X), right, strict=True):
                assert a.tobytes() == b.tobytes()


def test_a_row_alone_has_the_same_bits(plain: MachineCode) -> None:
    for model, X in cases():
        engine = Engine(model, None if tiles.allowed() else plain)
        assert by_digits(engine) > 0
        together = engine.score(X)[0]
        for rows in (slice(0, 1), slice(17, 18), slice(3, 20), slice(100, 165), slice(299, None, -1)):
            assert engine.score(X[rows])[0].tobytes() == together[rows].tobytes()


def test_rows_at_the_mean_far_out_and_near_to_it(plain: MachineCode) -> None:
    """The row of a leaf's mean is 0 in every feature; others come as near to it as numbers allow, or
    overflow.
    """
    model = random_model(0, d=300, depth=0, sizes=(48,), scaling="none")
    mean = model.landmarks.astype(float).mean(axis=0)
    X = np.repeat(mean[None], 60, axis=0)
    X[1:40] += 10.0 ** np.arange(-39, 39, 2)[:, None] * np.random.default_rng(0).normal(size=300)
    X[40, 3], X[41, 0], X[42, 299] = np.nan, np.inf, 1e200
    for code in (None, plain) if tiles.allowed() else (plain,):
        engine = Engine(model, code)
        assert by_digits(engine) == 1
        ours, right = engine.score(X), compact_model.score_rows(model, X)
        np.testing.assert_array_equal(ours[1], right[1])
        assert not list(differences(model, X, ours, right))


# -- leaves that stay as they are ----------------------------------------------------------------------------


def test_where_it_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few landmarks, a feature of one landmark that stands out, wide leaves, sums of |x − u|."""
    model = random_model(0, d=300, depth=0, sizes=(48,))
    assert by_digits(Engine(model)) == 1
    assert by_digits(Engine(random_model(0, d=300, depth=0, sizes=(32,)))) == 0
    assert by_digits(Engine(random_model(0, d=126, depth=0, sizes=(48,)))) == 0
    assert by_digits(Engine(random_model(0, "laplacian", d=300, depth=0, sizes=(48,)))) == 0
    landmarks = model.landmarks.copy()
    landmarks[5, 7] += 60
    assert by_digits(Engine(replace(model, landmarks=landmarks, gamma=model.gamma / 100))) == 0
    assert by_digits(Engine(replace(model, gamma=model.gamma * 30))) == 0
    monkeypatch.setattr(packing, "allowed", lambda: False)
    assert by_digits(Engine(model)) == 0


@pytest.mark.parametrize("value", ["", "0", "1"])
def test_it_has_to_be_asked_for(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = tiles.allowed() and value == "1"
    monkeypatch.setattr(packing, "allowed", tiles.allowed)
    monkeypatch.setenv("DCPRED_TILES", value)
    made = Engine(random_model(0, d=300, depth=0, sizes=(48,)))
    assert (tiles.allowed(), made.packed.n_by_digits) == (allowed, int(allowed))


def test_a_process_that_gets_no_tiles_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def syscall(self, *_: Any) -> int:
            return -1

    monkeypatch.setattr(tiles.ctypes, "CDLL", lambda _: Refusing())
    assert tiles.why_not.__wrapped__() is not None


GUARDED = """
import ctypes, mmap
import numpy as np
from dcpred_tasks.engine import engine, layout
from dcpred_tasks.model import compact_model
from support.models import differences, random_model, random_rows

PAGE, kept = mmap.PAGESIZE, []
libc = ctypes.CDLL(None, use_errno=True)

def guarded(length, dtype):
    n_bytes = length * np.dtype(dtype).itemsize
    pages = -(-n_bytes // PAGE)
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for place in (start, start + (pages + 1) * PAGE):
        assert libc.mprotect(ctypes.c_void_p(place), ctypes.c_size_t(PAGE), 0) == 0
    kept.append(memory)
    return np.frombuffer(memory, dtype, length, (pages + 1) * PAGE - n_bytes)

for module in (layout, engine):
    module.aligned_empty = guarded
for d, sizes, depth in ((300, (48,), 0), (320, (40, 64), 1), (384, (33, 100), 1)):
    model = random_model(d, d=d, sizes=sizes, depth=depth)
    made = engine.Engine(model)
    assert made.packed.n_by_digits > 0
    for n in (1, 15, 64, 200):
        X = random_rows(model, n, n, "f4", bad=0.05)
        assert not list(differences(model, X, made.score(X), compact_model.score_rows(model, X), 2e-6))
print("done")
"""


@needs_tiles
def test_nothing_is_read_outside_of_arrays(tmp_path: Any) -> None:
    """Landmarks, digits and sums end where a page begins that must not be touched."""
    done = processes.run([sys.executable, "-c", GUARDED], env=with_cache(tmp_path))
    assert done.stdout.strip() == "done", done.stderr[-3000:]


@pytest.mark.parametrize(("target", "there"), [(Target("x86-64-v3"), True), (Target("generic"), False)])
def test_every_x86_processor_has_the_function(target: Target, there: bool) -> None:
    module = binding.parse_bitcode(own_code(ENGINE).bitcode)
    machine_code.link_native(module, target.has)
    module.verify()
    text = {each.name: str(each) for each in module.functions if each.name in machine_code.NAMES}
    assert ("tdpbssd" in text[machine_code.DIGIT_SUMS]) == there
    assert ("ret i1 true" in text[machine_code.HAS_DIGIT_SUMS]) == there
