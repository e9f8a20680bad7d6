"""A person at a terminal: lines that fit it, mistakes in a command line, -v and -q, what shells complete,
and `dask dcpred`.
"""

import io
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from dcpred.cli import main, rendering
from dcpred.cli.errors import EXAMPLES, print_error
from dcpred.execution import terminal
from dcpred.execution.terminal import (
    MOST_COLUMNS,
    Verbosity,
    columns,
    has_colours,
    rewrites,
    shortened,
    verbosity,
    wrapped,
)
from support.data import make_blobs, make_group
from support.pools import inline
from support.processes import run

ROOT = Path(__file__).parents[2]


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


# -- lines that fit ------------------------------------------------------------------------------------------

TEXT = st.text(st.sampled_from("ab /…é"), max_size=120)


@given(TEXT, st.integers(20, 80), st.integers(0, 10))
def test_lines_fit_and_lose_no_word(text: str, width: int, indent: int) -> None:
    lines = wrapped(text, width, begin=indent, indent=indent, shorten=True).split("\n")
    assert all(len(line) <= width for line in lines[1:])
    assert len(lines[0]) <= width - indent
    whole = wrapped(text, width, begin=indent, indent=indent).split("\n")
    assert " ".join(line.strip() for line in whole).split() == text.split()


@given(TEXT, st.integers(1, 80))
def test_the_middle_of_a_path_is_left_out(path: str, width: int) -> None:
    short = shortened(path, width)
    assert len(short) == min(len(path), width)
    if len(path) > width > 3:
        head, tail = short.split("…", 1) if path.count("…") == 0 else (short[:1], short[-1:])
        assert path.startswith(head)
        assert path.endswith(tail)


def test_results_fit_a_terminal_and_are_whole_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [("model", f"/home/{'x' * 90}/model"), ("rows", "twenty " * 20)]
    assert all(pair[1] in rendering.rows(pairs) for pair in pairs)
    monkeypatch.setattr(rendering, "is_terminal", lambda _: True)
    monkeypatch.setattr(rendering, "columns", lambda _: 50)
    lines = rendering.rows(pairs).split("\n")
    assert all(len(line) <= 50 for line in lines)
    assert lines[0].startswith("model  /home/x")
    assert lines[0].endswith("x/model")
    assert all(line.startswith("       twenty") for line in lines[2:])


def test_colours_and_lines_written_anew_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen()
    assert (rewrites(screen), has_colours(screen)) == (True, True)
    assert not rewrites(io.StringIO())
    for name, value, anew in (("NO_COLOR", "1", True), ("TERM", "dumb", False), ("CI", "true", False)):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert (rewrites(screen), has_colours(screen)) == (anew, False)
    for given_columns, told in (("132", MOST_COLUMNS), ("50", 50), ("3", 20)):
        monkeypatch.setenv("COLUMNS", given_columns)
        assert columns(screen) == told
        assert columns(io.StringIO()) == MOST_COLUMNS
    closed = io.StringIO()
    closed.close()
    assert not any(terminal.is_terminal(stream) for stream in (None, closed))


def test_an_error_fits_a_terminal_and_is_one_line_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "a model was asked for, " * 8
    print_error(sentence)
    assert capsys.readouterr().err == f"dcpred: {sentence}\n"
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "50")
    print_error(sentence)
    lines = screen.getvalue().splitlines()
    assert lines[0].startswith("dcpred: a model")
    assert all(line.startswith(" " * 8) for line in lines[1:])
    assert max(map(len, lines)) <= 50


# -- mistakes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("zzz", "No such command 'zzz'. See `dcpred -h`."),
        ("score model", "Missing argument 'DATA'. Write for example `dcpred score model new.zarr scores`."),
        ("train d m --workers x", "Invalid value for '--workers': 'x' is not a valid integer range. See"),
        ("status a b", "Got unexpected extra argument (b). See `dcpred status -h`."),
        ("compare d", "Missing option '--out'. Write for example `dcpred compare"),
        ("train d m -v -q", "Cannot combine --verbose with --quiet: one excludes the other"),
    ],
)
def test_a_mistake_in_a_command_line_is_one_sentence_with_what_to_do(arguments: str, told: str) -> None:
    result = CliRunner().invoke(main, arguments.split(), prog_name="dcpred")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"dcpred: {told}")
    assert len(result.stderr.splitlines()) == 1


def test_every_command_has_an_example_that_its_usage_allows() -> None:
    for name in main.list_commands(click.Context(main)):
        shown = CliRunner().invoke(main, [name, "-h"], prog_name="dcpred").stdout
        assert max(map(len, shown.splitlines())) <= 110
        assert "-q, --quiet" in shown
        if name in EXAMPLES:
            assert re.sub(r"\s+", " ", EXAMPLES[name]) in re.sub(r"\s+", " ", shown)
    with pytest.MonkeyPatch.context() as patch:
        for name, example in EXAMPLES.items():
            words = example.replace("'", "").split()
            command = main.get_command(click.Context(main), name)
            assert command is not None
            patch.setattr(command, "callback", lambda **_: None)
            assert words[:2] == ["dcpred", name]
            assert CliRunner().invoke(command, words[2:]).exit_code == 0, example


def test_help_waits_for_no_library_of_training() -> None:
    """In one new process, the help of every command."""
    script = (
        "import sys; from dcpred.cli.main import main;"
        "[main([name, '-h'], standalone_mode=False) for name in main.list_commands(None)];"
        "heavy = {'sklearn', 'scipy', 'dask', 'distributed', 'matplotlib'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = run([sys.executable, "-c", script], env=dict(os.environ))
    assert done.returncode == 0, done.stderr


# -- -v and -q -----------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    blobs = make_blobs(60, n_features=3, n_classes=2, seed=0)
    return make_group(tmp_path / "some.zarr", blobs.X, blobs.y)


def test_v_tells_more_and_q_nothing_but_errors(data: Path) -> None:
    def said(*more: str) -> tuple[str, str]:
        train = ["train", str(data), str(data.with_name(f"m{len(more)}{more}")), "--set", "n_leaves=1", *more]
        result = CliRunner().invoke(main, [*train, "--workers", "1", "--json"])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["n_leaves"] == 1
        return result.stdout, result.stderr

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.pools.connect", lambda *_: inline())
        assert said("-q")[1] == ""
        plain, more = said()[1].splitlines(), said("-v")[1].splitlines()
    assert any(line.startswith("dcpred ") and "numpy" in line.lower() for line in more)
    assert any("work in progress is in" in line for line in more)
    assert len(more) >= len(plain) + 5
    assert verbosity() == Verbosity.NORMAL, "it holds for the command alone"
    refused = CliRunner().invoke(main, ["-q", "train", str(data), str(data), "--set", "n_leaves=1"])
    assert refused.stderr.startswith("dcpred: ")
    assert len(refused.stderr.splitlines()) == 1


# -- shells --------------------------------------------------------------------------------------------------


def test_click_completes_commands_without_importing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_WORDS", "dcpred tr")
    monkeypatch.setenv("COMP_CWORD", "1")
    done = CliRunner().invoke(main, [], prog_name="dcpred", env={"_DCPRED_COMPLETE": "bash_complete"})
    assert done.stdout.split() == ["plain,train"]


@pytest.mark.parametrize(
    ("of", "incomplete", "found"),
    [
        ("train", "landm", ["landmarks=", "landmark_floor="]),
        ("train", "keep_support_vectors=", ["keep_support_vectors=true", "keep_support_vectors=false"]),
        ("train", "nothing=", []),
        ("tune", "lan", []),
        ("tune", "max-leaf", ["max_leaf_rows="]),
    ],
)
def test_settings_are_completed(of: str, incomplete: str, found: list[str]) -> None:
    """By their names, and by what they may be; `tune` takes those that its search leaves as they are."""
    command = main.get_command(click.Context(main), of)
    assert command is not None
    option = next(p for p in command.params if "--set" in p.opts)
    completed = option.shell_complete(click.Context(command), incomplete)
    assert [item.value for item in completed] == found


# -- dask ----------------------------------------------------------------------------------------------------


def test_dask_runs_dcpred_and_imports_nothing_for_it(tmp_path: Path) -> None:
    """By the entry point that pyproject.toml declares, also where it was installed before there was one; its
    list of commands takes no NumPy.
    """
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["dask_cli"]
    (tmp_path / "plugin-1.dist-info").mkdir()
    (tmp_path / "plugin-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: plugin\nVersion: 1\n"
    )
    lacking = {name: place for name, place in told.items() if not entry_points(group="dask_cli", name=name)}
    (tmp_path / "plugin-1.dist-info" / "entry_points.txt").write_text(
        "[dask_cli]\n" + "".join(f"{name} = {place}\n" for name, place in lacking.items())
    )
    script = (
        "import sys; before = set(sys.modules); import dcpred.cli.main;"
        "heavy = {'numpy', 'zarr', 'sklearn', 'distributed', 'llvmlite'} & (set(sys.modules) - before);"
        "assert not heavy, heavy; from dask.__main__ import main;"
        "sys.argv[0] = 'dask'; main()"
    )
    inherited = os.environ.get("PYTHONPATH", "")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{inherited}"}

    def dask(*arguments: str, code: int) -> subprocess.CompletedProcess[str]:
        done = run([sys.executable, "-c", script, *arguments], env=env)
        assert done.returncode == code, done.stderr
        return done

    done = dask("dcpred", "inspect", str(tmp_path / "nothing.zarr"), code=3)
    assert done.stderr.startswith("dcpred: ")
    assert "No such command 'trian'" in dask("dcpred", "trian", code=2).stderr
