"""The engine in processes of its own: other processors, no compiler, caches, guard pages, and a look at its
machine code.
"""

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from dcpred_tasks.engine import machine_code
from dcpred_tasks.engine.engine import Engine
from dcpred_tasks.engine.machine_code import MachineCode, Target
from dcpred_tasks.engine.native_modules import BITCODES, ENGINE, NATIVE
from dcpred_tasks.errors import RefusedError
from support import processes
from support.arm import check_arm
from support.caches import with_cache
from support.engines import digest
from support.models import random_model
from support.native import HERE, QUICK, check_made_anew, sanitized
from support.once import made_once

DIGEST = """
from support.engines import digest
print(digest())
"""
HAS_COMPILED = """
from dcpred_tasks.engine.machine_code import own_code
from dcpred_tasks.engine.native_modules import ENGINE
print(own_code(ENGINE).has_compiled)
"""
OTHER_CODE = """
from dcpred_tasks.engine import engine
engine.own_code = lambda of: native
"""
OUT_OF_BOUNDS = """
from dcpred_tasks.engine.engine import Engine
model, X = next(fixed_cases())
engine = Engine(model)
engine.packed = engine.packed._replace(groups=engine.packed.groups[:0], nodes=engine.packed.nodes[:0])
try:
    engine.score(X)
except IndexError:
    print("checked")
"""
FUZZED = """
import numpy as np
from dcpred_tasks.engine.engine import Engine
from support.models import random_model, random_rows

def with_one_wrong_number(values, rng):
    # Children stay: a walk in circles does not end.
    arrays = values._asdict().items()
    whole = {n: a for n, a in arrays if isinstance(a, np.ndarray) and a.dtype.kind in "iu" and a.size}
    name = rng.choice(sorted(whole.keys() - {"children"}))
    array = whole[name].copy()
    at = rng.integers(array.size)
    array.flat[at] = rng.choice([-1, 0, 1, 3, 17, 2**20, -(2**20), array.flat[at] + 1])
    return values._replace(**{name: array})

found = 0
for seed in range(100):
    rng = np.random.default_rng(seed)
    kernel = str(rng.choice(["rbf", "laplacian", "polynomial"]))
    scaling = str(rng.choice(["standard", "few", "coded", "coded gaps", "additive"]))
    shape = {"d": int(rng.choice([1, 3, 17, 40])), "n_outputs": int(rng.choice([1, 3]))}
    model = random_model(seed, kernel, scaling=scaling, depth=int(rng.integers(3)), **shape)
    scorer = Engine(model)
    part = str(rng.choice(["packed", "exact"]))
    setattr(scorer, part, with_one_wrong_number(getattr(scorer, part), rng))
    try:
        scorer.score(random_rows(model, 70, seed, "f4", bad=0.1))
    except IndexError:
        found += 1
assert found > 10, found
"""
CHECK = """
from itertools import islice
from dcpred_tasks.model import compact_model
from dcpred_tasks.scoring import scorer
from support.models import differences, fixed_cases
for model, X in islice(fixed_cases(), 0, None, EVERY):
    found = list(differences(model, X, scorer.score_rows(model, X), compact_model.score_rows(model, X)))
    assert not found, found[:5]
"""
FIRST_SCORE = """
import sys
import numpy as np
from dcpred_tasks.scoring import scorer
from support.models import random_model
scorer.score_rows(random_model(0), np.zeros((1, 3)))
loaded = {name.split(".")[0] for name in sys.modules}
assert not loaded & {"numba", "scipy", "sklearn", "dask", "distributed", "pandas", "pyarrow"}, sorted(loaded)
"""
CAP_DAC_OVERRIDE, PR_CAPBSET_DROP = 1, 24


def command(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-c", code, *arguments]


def run(code: str, *arguments: str, cache: Path, before: Callable[[], None] | None = None, **env: str) -> str:
    """What code says that runs in a process of its own, with its machine code in `cache`."""
    return said(processes.run(command(code, *arguments), preexec_fn=before, env=with_cache(cache, **env)))


def said(done: processes.Done) -> str:
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-3000:]}"
    return done.stdout.strip()


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left that began at once: a cache, the digest of results, and what each of them
    said.
    """
    return made_once(tmp_path_factory, "warm", compile_twice)


def compile_twice(folder: Path) -> None:
    (folder / "cache").mkdir()
    code = command(DIGEST + HAS_COMPILED)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with ExitStack() as stack:
        both = [
            stack.enter_context(processes.started(code, env=with_cache(folder / "cache"), **pipes))
            for _ in range(2)
        ]
        for number, process in enumerate(both):
            digest, counts = said(processes.finish(process)).split("\n")
            (folder / "digest").write_text(digest)
            (folder / f"said-{number}").write_text(f"{digest} {counts}")


# -- processors and compilers --------------------------------------------------------------------------------


def test_the_bitcode_is_of_these_sources(tmp_path: Path) -> None:
    check_made_anew(ENGINE, tmp_path)
    headers = {path.name for path in NATIVE.glob("*.h")}
    taken = {path.name for bitcode in BITCODES for path in bitcode.read_sources()}
    assert headers <= taken


@pytest.mark.long
def test_no_index_leaves_its_array(tmp_path: Path) -> None:
    """And nothing else goes wrong that sanitizers know of: in all fixed cases, and in models with a wrong
    number, where an index that leads nowhere is found.
    """
    script = HERE + OTHER_CODE + FUZZED + "EVERY = 1" + CHECK + OUT_OF_BOUNDS
    arguments, env = sanitized("engine", tmp_path)
    done = processes.run(command(script, *arguments), env=with_cache(tmp_path, **env))
    assert said(done) == "checked"


@pytest.mark.tools
def test_no_index_leaves_its_array_in_a_part_of_the_cases(tmp_path: Path) -> None:
    """With whatever compiler there is, each time."""
    script = HERE + OTHER_CODE + "EVERY = 23" + CHECK + OUT_OF_BOUNDS
    arguments, env = sanitized("engine", tmp_path, QUICK)
    done = processes.run(command(script, *arguments), env=with_cache(tmp_path, **env))
    assert said(done) == "checked"


def test_changed_sources_are_told(tmp_path: Path) -> None:
    changed = tmp_path / "layout.py"
    changed.write_text("LANES = 8\n")
    other = ENGINE._replace(sources=(changed, *ENGINE.sources[1:]))
    with pytest.raises(RefusedError, match=r"Run python -m dcpred_tasks\.native"):
        machine_code.own_code(other)


def test_other_arguments_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(random_model(0))
    engine.exact = engine.exact._replace(kernel=3.0)  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match=r"Run python -m dcpred_tasks\.native"):
        engine.score(np.zeros((1, engine.packed.n_features)))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86 processors")
def test_another_processor_gives_the_same_bits(warm: Path, tmp_path: Path) -> None:
    """The baseline of all x86 processors with fused multiply-adds: vectors of 256 bits, and code that is
    tuned for none of them. A processor by name, such as haswell, has the same vectors and another tuning.
    """
    code = MachineCode(ENGINE.code, Target("x86-64-v3"))
    assert digest(code) == (warm / "digest").read_text()


WITHOUT = """
import warnings
import numpy as np
from dcpred_tasks.model import compact_model
from dcpred_tasks.scoring import scorer
from support.models import random_model, random_rows
model = random_model(0)
X = random_rows(model, 50, 0)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(3):
        ours = scorer.score_rows(model, X)
    scorer.score_rows(random_model(1), X)
for a, b in zip(ours, compact_model.score_rows(model, X), strict=True):
    np.testing.assert_array_equal(a, b)
(warning,) = seen
assert warning.category is RuntimeWarning
print(warning.message)
"""


def test_without_a_compiler_the_definition_scores(tmp_path: Path) -> None:
    said = run(WITHOUT, cache=tmp_path, DCPRED_NO_COMPILER="1")
    assert len(said.splitlines()) == 1
    assert "DCPRED_NO_COMPILER" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error", ['ImportError("No module named llvmlite")', 'OSError("Could not load libllvmlite.so\\nhere")']
)
def test_without_llvm_the_definition_scores(tmp_path: Path, error: str) -> None:
    (tmp_path / "llvmlite.py").write_text(f"raise {error}\n")
    said = run(WITHOUT, cache=tmp_path, PYTHONPATH=str(tmp_path))
    assert len(said.splitlines()) == 1
    assert error.split('"')[1].split("\\n")[0] in said


# -- the cache -----------------------------------------------------------------------------------------------


def test_two_processes_at_once_compile_once(warm: Path) -> None:
    """And what the one compiled gives the other the same bits."""
    digest = (warm / "digest").read_text()
    both = sorted((warm / f"said-{number}").read_text() for number in range(2))
    assert both == [f"{digest} False", f"{digest} True"]


def test_the_language_of_the_system_does_not_matter(warm: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    assert run(FIRST_SCORE + HAS_COMPILED, cache=warm / "cache", **plain) == "False"


def test_the_first_score_compiles_nothing_and_imports_little(warm: Path) -> None:
    assert run(FIRST_SCORE + HAS_COMPILED, cache=warm / "cache") == "False"


def without_override() -> None:
    """The administrator may write anywhere: give that up in a child process."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


def binding_modes() -> Callable[[], None] | None:
    """What a child process has to do so that modes of files bind it."""
    if os.getuid() != 0:
        return None
    if (
        not sys.platform.startswith("linux")
        or subprocess.run(
            ["sh", "-c", "d=$(mktemp -d) && chmod 555 $d && ! touch $d/x 2>/dev/null"],
            preexec_fn=without_override,
            check=False,
        ).returncode
    ):
        pytest.skip("runs as the administrator, whom no mode keeps from writing")
    return without_override


def test_a_cache_that_cannot_be_written_serves(warm: Path, tmp_path: Path) -> None:
    """As one baked into an image."""
    before = binding_modes()
    baked, home, temporary = (tmp_path / name for name in ("baked", "home", "tmp"))
    subprocess.run(["cp", "-rp", str(warm / "cache"), str(baked)], check=True)
    home.mkdir()
    temporary.mkdir()
    places = [home, *sorted(baked.rglob("*"), reverse=True), baked]
    for place in places:
        place.chmod(0o555 if place.is_dir() else 0o444)
    env = {"HOME": str(home), "XDG_CACHE_HOME": str(home), "TMPDIR": str(temporary)}
    try:
        assert run(FIRST_SCORE + HAS_COMPILED, cache=baked, before=before, **env) == "False"
    finally:
        for place in reversed(places):
            place.chmod(0o755)


# -- memory --------------------------------------------------------------------------------------------------

GUARDED = """
import ctypes, mmap
import numpy as np
from dcpred_tasks.model import compact_model
from dcpred_tasks.engine.engine import Engine
from support.models import differences, random_model, random_rows

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)

def guarded(n_bytes):
    pages = -(-n_bytes // PAGE)
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for place in (start, start + (pages + 1) * PAGE):
        assert libc.mprotect(ctypes.c_void_p(place), ctypes.c_size_t(PAGE), 0) == 0
    return memory, PAGE, (pages + 1) * PAGE - n_bytes

for number, d in enumerate((1, 3, 15, 16, 17, 54)):
    few = [random_model(seed, d=d, scaling="few") for seed in range(3)]
    tiny = random_model(d, d=d, scaling="tiny")
    for model in (random_model(d, d=d), random_model(d, "laplacian", d=d, n_outputs=3), tiny, *few):
        engine = Engine(model)
        for dtype in ("f8", "f4", "f2", "i1", "?", "i2", "u4", "i8", ">f4")[number % 3 :: 3]:
            for n in (1, 8, 77):
                X = random_rows(model, n, d, dtype, bad=0.05)
                right = compact_model.score_rows(model, X)
                memory, *starts = guarded(X.nbytes)
                for at in starts:
                    rows = np.frombuffer(memory, X.dtype, X.size, at).reshape(n, d)
                    rows[:] = X
                    for turn in (1, -1):
                        ours = [values[::turn] for values in engine.score(rows[::turn])]
                        found = list(differences(model, X, ours, right))
                        assert not found, (d, dtype, n, at, found[:3])
print("done")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="protects pages by Linux's mprotect")
def test_nothing_is_read_outside_the_rows(warm: Path) -> None:
    """Rows between two pages that must not be touched, at the one and at the other: a byte too many ends the
    process.
    """
    assert run(GUARDED, cache=warm / "cache") == "done"


# -- other machines ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cpu", ["generic", pytest.param("neoverse-n1", marks=pytest.mark.long)])
def test_it_compiles_for_arm(cpu: str) -> None:
    check_arm(ENGINE.code, cpu, {"exp", "pow", "memset", "memcpy", "memmove"})
