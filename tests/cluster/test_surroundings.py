"""What surrounds a command: limits of processes, files in the current directory, Dask's configuration, and
warnings of libraries. Each either does not matter, or is one sentence.
"""

import json
import os
import resource
import sys
import threading
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner

from dcpred.cli import main
from dcpred.cli.options import failure, library_warnings, reports_errors
from dcpred.cli.score_command import _notify
from dcpred.execution import dask_workers
from dcpred.execution.pools import check_process_limits, connect
from dcpred.execution.terminal import Verbosity, at_verbosity
from dcpred_tasks.errors import DataError, ResourceError, SettingsError
from support import processes


def test_no_file_of_the_current_directory_runs_in_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python itself looks there first, also for a worker that replaces another."""
    monkeypatch.chdir(tmp_path)
    for name in ("signal", "types", "queue"):
        Path(f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\n")
    before = os.environ.get("PYTHONSAFEPATH")
    with connect(1) as pool:
        (path,) = pool.client.run(eval, "list(__import__('sys').path)").values()  # type: ignore[attr-defined]
        assert not {"", str(tmp_path)} & set(path)
        pool.client.run(os._exit, 1, on_error="ignore")  # type: ignore[attr-defined]
        assert dict(pool.each(abs, [(-1,)])) == {0: 1}
    assert not Path("ran").exists()
    assert os.environ.get("PYTHONSAFEPATH") == before


def test_little_address_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (10**9, 10**9))
    with pytest.raises(ResourceError, match=r"954 MiB of address space.*ulimit -v"):
        check_process_limits(1)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, -1))
    check_process_limits(1)


def test_few_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of workers are tried before the workers start; those that started end."""
    real, before = threading.Thread.start, threading.active_count()

    def start(thread: threading.Thread) -> None:
        if threading.active_count() >= before + 7:
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(ResourceError, match=r"2 local workers: only 7 of the 36 threads.*ulimit -u"):
        check_process_limits(2)
    assert threading.active_count() == before


def test_workers_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**kwargs: Any) -> Any:
        try:
            raise OSError(30, "Read-only file system")
        except OSError as error:
            raise RuntimeError("Nanny failed to start.") from error

    monkeypatch.setattr(dask_workers, "LocalCluster", fail)
    with (
        pytest.raises(ResourceError, match=r"Read-only file system\. Local workers need shared memory"),
        connect(1),
    ):
        pytest.fail("there are no workers")


def test_damaged_configuration_of_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unusable(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise ValueError("A dask config file at 'site.yaml' is malformed, original message:\n\nline 1")

    monkeypatch.setitem(sys.modules, "dcpred.execution.dask_workers", Unusable("dask_workers"))
    with pytest.raises(SettingsError, match=r"'site.yaml' is malformed.* message: line 1\)"), connect(1):
        pytest.fail("there are no workers")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_a_process_that_may_use_no_more(error: BaseException) -> None:
    assert failure(error) is not None
    assert failure(error)[1] == ResourceError.exit_code  # type: ignore[index]


def test_verbose_shows_the_cause_of_an_expected_error(tmp_path: Path) -> None:
    words = ["score", str(tmp_path / "model"), str(tmp_path / "data.zarr"), str(tmp_path / "out")]
    brief, verbose = (CliRunner().invoke(main, [*words, *more]) for more in ([], ["-v"]))
    assert (brief.exit_code, verbose.exit_code) == (3, 3)
    assert "Traceback" not in brief.stderr
    assert "Traceback (most recent call last)" in verbose.stderr
    assert verbose.stderr.splitlines()[-1] == brief.stderr.splitlines()[-1]


def test_warnings_of_libraries(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with library_warnings():
            for _ in range(3):
                warnings.warn("of a library,\n on two lines", stacklevel=1)
        with at_verbosity(Verbosity.QUIET), library_warnings():
            warnings.warn("another", stacklevel=1)
    assert capsys.readouterr().err.splitlines() == ["warning: of a library, on two lines"]


def test_a_command_that_reports_errors_shows_warnings_on_one_line() -> None:
    @click.command()
    @reports_errors
    def command() -> None:
        warnings.warn("odd", UserWarning, stacklevel=1)
        raise DataError("Cannot read it. Give another.")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = CliRunner().invoke(command, [])
    assert result.stderr.splitlines() == ["warning: odd", "dcpred: Cannot read it. Give another."]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("exit 3; : token-1234", "ended with exit code 3"),
        ("sleep 60 & sleep 60; : token-1234", "did not end within 0 s and was killed"),
    ],
)
def test_the_command_of_notify_is_not_printed(
    command: str, expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcpred.cli.score_command.NOTIFY_SECONDS", 0.2)
    _notify(command, json.dumps({}))
    assert capsys.readouterr().err == f"dcpred: the command of --notify {expected}\n"


def test_settings_are_utf8_in_any_locale(tmp_path: Path) -> None:

    (tmp_path / "job.toml").write_text('categorical = ["größe"]\n', encoding="utf-8")
    script = (
        "from pathlib import Path\nfrom dcpred.cli.options import read_values\n"
        "print(ascii(read_values(Path('job.toml'), ())))\n"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = processes.run([sys.executable, "-c", script], cwd=tmp_path, env=environment)
    assert done.stdout.strip() == ascii({"categorical": ["größe"]}), done.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DASK_DISTRIBUTED__WORKER__MEMORY__TARGET", "abc"),
        ("DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING_INTERVAL", "soon"),
    ],
)
def test_a_wrong_value_of_dask_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    """Where workers fail for another reason, nothing of a right configuration is blamed."""

    def fail(*arguments: object) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(dask_workers, "_scheduler", fail)
    monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__MEMORY__SPILL", "0.5")
    monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE", "False")
    with pytest.raises(ResourceError, match="Cannot start local workers: something else"), connect(1):
        pass
    monkeypatch.setenv(variable, value)
    name = variable.removeprefix("DASK_").lower().replace("__", ".")
    with pytest.raises(SettingsError, match=f"sets {name} to '{value}', an invalid value"), connect(1):
        pass
