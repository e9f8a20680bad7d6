"""What is refused before a store is asked: by what is told, and without what may be a secret. The package for
stores leaves no trace where everything is local.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dcpred.cli import main
from dcpred_tasks.artifacts.model_artifact import write_model
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.storage import store_requests
from dcpred_tasks.storage.place import open_place
from support.data import make_group
from support.models import random_model, random_rows

SAYS = "obstore is not installed. Run pip install"
ALL_LOCAL = """
import sys
import numpy as np
sys.modules["obstore"] = None  # an import of it is an ImportError
from dcpred.cli import main
from dcpred.reports.inspection import inspect
from dcpred.runs.bad_rows import errors
from dcpred.runs.status import run_status
from dcpred.scoring.repair import repair
from dcpred.scoring.score import score
from dcpred.serving.served_model import load_model
from dcpred.verification.verify import verify
from dcpred_tasks.artifacts.model_artifact import write_model
from dcpred_tasks.storage import zarr_arrays
from support.models import random_model, random_rows
from support.pools import inline

folder, model = sys.argv[1], random_model(5)
X = random_rows(model, 40, seed=1)
write_model(f"{folder}/model", model, {}, {})
group = zarr_arrays.create_group(f"file://{folder}/data.zarr")
zarr_arrays.create_array(group, "X", X.shape, X.dtype, 10)[...] = X
job = f"{folder}/model", f"{folder}/data.zarr", f"{folder}/out"
score(*job, client=inline)
repair(*job, client=inline)
assert not [f for level in ("fast", "sample", "full") for f in verify(job[2], level).findings]
for look in (run_status, inspect, load_model, lambda path: errors(path, 10)):
    look(job[0] if look is load_model else job[2])
assert not [name for name in sys.modules if name.startswith("obstore") and sys.modules[name]]
"""


def test_local_runs_do_without(tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    code = f"import sys; sys.path.insert(0, {str(tests)!r})\n{ALL_LOCAL}"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def without_obstore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    store_requests.open_store.cache_clear()


@pytest.mark.usefixtures("without_obstore")
@pytest.mark.parametrize("scheme", ["s3", "gs", "az", "abfs", "https"])
def test_an_address_that_needs_it_names_it(scheme: str) -> None:
    with pytest.raises(SettingsError, match=SAYS):
        open_place(f"{scheme}://without-obstore/out").read("plan.json")


@pytest.mark.usefixtures("without_obstore")
@pytest.mark.parametrize(
    "command",
    [
        ("status", "s3://without-extra/out"),
        ("inspect", "gs://without-extra/data.zarr"),
        ("score", "az://without-extra/model", "az://without-extra/data.zarr", "az://without-extra/out"),
    ],
)
def test_so_does_the_command_line(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, command)
    assert result.exit_code == SettingsError.exit_code
    assert SAYS in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


REFUSED = {
    "a user or password": "https://user:sesame@127.0.0.1/data.zarr",
    "nothing may follow": "s3://bucket/data.zarr?token=sesame",
    "nothing may follow ": "az://bucket/data.zarr#sesame",
    "has no empty names": "s3://bucket//data.zarr",
    "has no empty names,": "s3://bucket/data.zarr//",
    "no empty names, . or ..": "gs://bucket/../data.zarr",
    "names no bucket": "s3:///data.zarr",
    "its scheme is unknown": "ftp://user:sesame@bucket/data.zarr",
}
ASKED = {
    "score": ["model", "ADDRESS", "out"],
    "score into": ["model", "data.zarr", "ADDRESS"],
    "score by": ["ADDRESS", "data.zarr", "out"],
    "train": ["ADDRESS", "model"],
    "tune": ["ADDRESS", "model"],
    "evaluate": ["model", "ADDRESS"],
    "inspect": ["ADDRESS"],
    "status": ["ADDRESS"],
    "errors": ["ADDRESS"],
    "verify": ["ADDRESS"],
}


@pytest.mark.parametrize("command", ASKED)
@pytest.mark.parametrize("why", REFUSED)
def test_an_address_that_cannot_be(
    why: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, X = random_model(5), np.ones((4, 3))
    model_folder = tmp_path / "model"
    if command == "score into":
        write_model(model_folder, model, {}, {})
        make_group(tmp_path / "data.zarr", random_rows(model, 4, seed=1))
    elif command == "score by":
        make_group(tmp_path / "data.zarr", X)
    before = sorted(tmp_path.rglob("*"))
    arguments = [REFUSED[why] if text == "ADDRESS" else text for text in ASKED[command]]
    result = CliRunner().invoke(main, [command.split()[0], *arguments])
    assert result.exit_code == DataError.exit_code, result.stderr
    assert why.strip() in result.stderr
    assert "sesame" not in result.output
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before
