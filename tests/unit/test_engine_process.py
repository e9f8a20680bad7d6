"""The engine in processes of its own: other processors, no compiler, caches, guard pages, and a look at its
machine code.
"""

import ctypes
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from llvmlite import binding

from dcpred_tasks.engine import compilation
from support import processes
from support.caches import with_cache
from support.once import made_once

DIGEST = """
import hashlib
from dcpred_tasks.engine.engine import Engine
from support.models import fixed_cases
digest = hashlib.sha256()
for model, X in fixed_cases():
    for values in Engine(model).score(X):
        digest.update(values.tobytes())
print(digest.hexdigest())
"""
HITS_AND_MISSES = """
from dcpred_tasks.engine.descent_pass import score_tiles
from support.caches import hits_and_misses
print(*hits_and_misses(score_tiles))
"""
CHECK = """
from dcpred_tasks.model import compact_model
from dcpred_tasks.scoring import scorer
from support.models import differences, fixed_cases
for model, X in fixed_cases():
    found = list(differences(model, X, scorer.score_rows(model, X), compact_model.score_rows(model, X)))
    assert not found, found[:5]
"""
DUMP_IF_COMPILED = """
import sys
from dcpred_tasks.engine.descent_pass import score_tiles
if score_tiles.dispatcher.stats.cache_misses:
    (text,) = score_tiles.dispatcher.inspect_llvm().values()
    open(sys.argv[1], "w").write(text)
"""
FIRST_SCORE = """
import sys
import numpy as np
from dcpred_tasks.scoring import scorer
from support.models import random_model
scorer.score_rows(random_model(0), np.zeros((1, 3)))
loaded = {name.split(".")[0] for name in sys.modules}
assert not loaded & {"sklearn", "dask", "distributed", "pandas", "pyarrow"}, sorted(loaded)
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
    """What two processes left that began at once: a cache, what LLVM was given, the digest of results, and
    what each of them said.
    """
    return made_once(tmp_path_factory, "warm", compile_twice)


def compile_twice(folder: Path) -> None:
    (folder / "cache").mkdir()
    code = command(DIGEST + HITS_AND_MISSES + DUMP_IF_COMPILED, str(folder / "engine.ll"))
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


def test_no_index_leaves_its_array(tmp_path: Path) -> None:
    """Without optimisation, which changes no index and takes longer than everything else here."""
    run(CHECK, cache=tmp_path, NUMBA_BOUNDSCHECK="1", NUMBA_OPT="0")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86 processors")
def test_another_processor_gives_the_same_bits(warm: Path, tmp_path: Path) -> None:
    """The baseline of all x86 processors with fused multiply-adds: vectors of 256 bits, and code that is
    tuned for none of them. A processor by name, such as haswell, has the same vectors and another tuning.
    """
    digest = run(DIGEST, cache=tmp_path, NUMBA_CPU_NAME="x86-64-v3", NUMBA_CPU_FEATURES="")
    assert digest == (warm / "digest").read_text()


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
    said = run(WITHOUT, cache=tmp_path, NUMBA_DISABLE_JIT="1")
    assert len(said.splitlines()) == 1
    assert "NUMBA_DISABLE_JIT" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", ["No module named 'numba'", "Numba needs NumPy 2.3 or less.\\nGot NumPy 2.9."]
)
def test_without_numba_the_definition_scores(tmp_path: Path, words: str) -> None:
    (tmp_path / "numba.py").write_text(f'raise ImportError("{words}")\n')
    said = run(WITHOUT, cache=tmp_path, PYTHONPATH=str(tmp_path))
    assert len(said.splitlines()) == 1
    assert words.split("\\n")[0] in said


# -- the cache -----------------------------------------------------------------------------------------------


def test_two_processes_at_once_compile_once(warm: Path) -> None:
    """And what the one compiled gives the other the same bits."""
    digest = (warm / "digest").read_text()
    both = sorted((warm / f"said-{number}").read_text() for number in range(2))
    assert both == [f"{digest} 0 1", f"{digest} 1 0"]


def test_the_first_score_compiles_nothing_and_imports_little(warm: Path) -> None:
    """Of what is large, SciPy alone is there, and of that the part that numba loads."""
    assert run(FIRST_SCORE + HITS_AND_MISSES, cache=warm / "cache") == "1 0"


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
    """As one baked into an image: twice, for the second process finds the copy that the first has made."""
    before = binding_modes()
    baked, home, temporary = (tmp_path / name for name in ("baked", "home", "tmp"))
    subprocess.run(["cp", "-rp", str(warm / "cache"), str(baked)], check=True)
    home.mkdir()
    temporary.mkdir()
    places = [home, *sorted(baked.rglob("*"), reverse=True), baked]
    for place in places:
        place.chmod(0o555 if place.is_dir() else 0o444)
    env = {"HOME": str(home), "XDG_CACHE_HOME": str(home), "TMPDIR": str(temporary)}
    found, copies = [], []
    try:
        for _ in range(2):
            found.append(run(FIRST_SCORE + HITS_AND_MISSES, cache=baked, before=before, **env))
            copies.append({file: file.stat().st_mtime_ns for file in temporary.rglob("*.nb?")})
    finally:
        for place in reversed(places):
            place.chmod(0o755)
    assert found == ["1 0", "1 0"]
    assert copies[0] == copies[1]
    assert len(copies[0]) == 2


LOCKED = """
import os
from unittest import mock
os.environ.pop("HOME")
os.environ.pop("XDG_CACHE_HOME", None)
no_user = mock.patch("pwd.getpwuid", side_effect=KeyError)
no_file = mock.patch("tempfile.TemporaryFile", side_effect=PermissionError)
with no_user, no_file:
    from dcpred_tasks.engine import compilation
    assert compilation.cache_folder() is None
assert compilation.cache_folder() is not None
"""


def test_nowhere_to_keep_anything(tmp_path: Path) -> None:
    """As in a locked container: a user that has a number and no home, and nothing that can be written."""
    run(LOCKED, cache=tmp_path)


def test_the_name_of_the_cache_depends_on_every_source_that_is_compiled() -> None:
    """And on those that say what the compiled functions are handed, in which order, and on the status codes
    that they hold.
    """
    here = Path(compilation.__file__).parent
    sources = {path.relative_to(here.parent).as_posix() for path in compilation.SOURCES}
    own = {path.relative_to(here.parent).as_posix() for path in here.glob("*.py")}
    assert sources == {"dtypes.py", "model/kernel_families.py", *own}


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

for d in (1, 3, 15, 16, 17, 54):
    few = [random_model(seed, d=d, scaling="few") for seed in range(3)]
    tiny = random_model(d, d=d, scaling="tiny")
    for model in (random_model(d, d=d), random_model(d, "laplacian", d=d, n_outputs=3), tiny, *few):
        engine = Engine(model)
        for dtype in ("f8", "f4", "f2", "i1", "?", "i2", "u4", "i8", ">f4"):
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


def test_it_compiles_for_arm(warm: Path) -> None:
    """Fused multiply-adds in vector registers, and no library function for what the processor can do."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    triple = "aarch64-unknown-linux-gnu"
    try:
        target = binding.Target.from_triple(triple)
    except RuntimeError as error:
        pytest.skip(f"this LLVM does not compile for ARM: {error}")
    text = re.sub(
        r'^target (triple|datalayout) = ".*"$', "", (warm / "engine.ll").read_text(), flags=re.MULTILINE
    )
    text = re.sub(r'"(target-cpu|target-features)"="[^"]*"', "", text)
    for cpu in ("generic", "neoverse-n1"):
        machine = target.create_target_machine(cpu=cpu, opt=2)
        module = binding.parse_assembly(text)
        module.triple, module.data_layout = triple, str(machine.target_data)
        module.verify()
        assembly = machine.emit_assembly(module)
        called = set(re.findall(r"^\s+bl?\s+([A-Za-z_]\w*)$", assembly, flags=re.MULTILINE))
        called = {
            name for name in called if not re.search(rf"^{re.escape(name)}:", assembly, flags=re.MULTILINE)
        }
        assert not [
            name for name in called if re.search(r"fma|rint|exp2|extend|trunc|sqrtf|float|fix", name)
        ], called
        assert {name for name in called if not name.startswith(("NRT_", "numba_", "_ZN"))} <= {
            "exp",
            "pow",
            "memset",
            "memcpy",
            "memmove",
            "PyErr_SetString",
            "PyErr_SetNone",
        } | {name for name in called if name.startswith("Py")}, called
        assert len(re.findall(r"\bfmla\b", assembly)) > 50
