"""The blocks of the page on orchestrators run: with a stand-in for the decorators, and with the orchestrators
themselves where they are installed.
"""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import dcpred
from support.data import make_blobs, make_group

PAGE = Path(__file__).parents[2] / "pipeline/docs/site/orchestrators.md"
MODULES = ("airflow.sdk", "dagster", "prefect")


def blocks() -> dict[str, str]:
    """The Python blocks of the page by what they import."""
    found = [part.partition("\n```")[0] for part in PAGE.read_text().split("```python\n")[1:]]
    return {text.split()[1]: text for text in found}


def passed_on(calls: list[dict[str, Any]]) -> Callable[..., Any]:
    """A decorator, with or without arguments, that notes these and changes no function."""

    def decorator(*functions: Callable[..., Any], **given: Any) -> Any:
        calls.append(given)
        return functions[0] if functions else lambda function: function

    return decorator


def stand_in(name: str, calls: list[dict[str, Any]]) -> ModuleType:
    """A module with the names that the page imports."""
    found = ModuleType(name)
    for decorator in ("dag", "task", "asset", "flow"):
        setattr(found, decorator, passed_on(calls))
    vars(found)["RetryPolicy"] = SimpleNamespace
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the data of the page."""
    monkeypatch.chdir(tmp_path)
    blobs = make_blobs(300, n_features=4, n_classes=2, seed=0)
    make_group(tmp_path / "known.zarr", blobs.X, blobs.y)
    make_group(tmp_path / "new.zarr", blobs.X, blobs.y)
    return tmp_path


def scored_twice(own: dict[str, Any], folder: Path) -> None:
    """The task has found the run of the first block; the same again, a retry, writes nothing."""
    (run,) = (folder / "nightly/runs").iterdir()
    found = own["nightly"]("nightly-model", "new.zarr", "nightly")
    assert found == {"run": run.name, "state": "unchanged", "ok": True}
    assert dcpred.status("nightly").latest == run.name  # type: ignore[union-attr]


def names_of(page: dict[str, str]) -> dict[str, Any]:
    """What the first block defines, once it has run."""
    own: dict[str, Any] = {}
    exec(page["dcpred"], own)
    return own


@pytest.mark.parametrize("module", MODULES)
def test_a_block_calls_its_function(module: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    for name in {module, module.split(".")[0]}:
        monkeypatch.setitem(sys.modules, name, stand_in(name, calls))
    page = blocks()
    own = names_of(page)
    exec(page[module], own)
    own["scores"]()
    scored_twice(own, folder)
    assert any({"retries", "retry_policy"} & given.keys() for given in calls), "a task is tried again"


@pytest.mark.skipif(find_spec("dagster") is None, reason="Dagster is not installed")
def test_dagster_runs_its_block(folder: Path) -> None:
    own = names_of(blocks())
    exec(blocks()["dagster"], own)
    assert sys.modules["dagster"].materialize([own["scores"]]).success
    scored_twice(own, folder)


@pytest.mark.skipif(find_spec("prefect") is None, reason="Prefect is not installed")
def test_prefect_runs_its_block(folder: Path) -> None:
    from prefect.testing.utilities import prefect_test_harness

    own = names_of(blocks())
    exec(blocks()["prefect"], own)
    with prefect_test_harness():
        own["scores"]()
    scored_twice(own, folder)
