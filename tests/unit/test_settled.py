"""Checks that are made where their sources changed."""

import json
import os
from pathlib import Path

import pytest

from support import native, settled

KNOWN = "a check"


@pytest.fixture
def passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that knows that KNOWN passed with the sources "a" and "b"."""
    monkeypatch.setattr(settled, "FILE", tmp_path / "settled.json")
    settled.FILE.write_text("{}\n")
    monkeypatch.setenv("DCPRED_SETTLED", "write")
    assert made("ab")
    monkeypatch.delenv("DCPRED_SETTLED")
    return settled.FILE


def made(sources: str, compiler: str = "g++ 12") -> bool:
    """Whether the check is made; an exception of pytest otherwise."""
    with settled.settled(KNOWN, sources, ("pytest",), {"compiler": compiler}):
        return True


def test_what_passed_with_these_sources_is_skipped(passed: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="DCPRED_SETTLED=again"):
        made("ab")


@pytest.mark.parametrize("sources", ["ac", "a", "abc", ["ab"]])
def test_other_sources_that_nobody_settled_fail_at_once(passed: Path, sources: str) -> None:
    with pytest.raises(pytest.fail.Exception, match="run this test with DCPRED_SETTLED=write, and commit"):
        made(sources)


def test_other_versions_make_the_check(passed: Path) -> None:
    known = json.loads(passed.read_text())
    known[KNOWN]["versions"]["pytest"] = "0.1"
    passed.write_text(json.dumps(known))
    assert made("ab")
    assert json.loads(passed.read_text()) == known


def test_another_compiler_makes_the_check(passed: Path) -> None:
    assert made("ab", "g++ 13")


def test_what_compiles_with_sanitizers_is_known_by_version_and_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\necho g++ 99\necho Copyright\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    before = native.sanitizer()
    assert before["g++"] == "g++ 99"
    monkeypatch.setattr(native, "COMPILE", (*native.COMPILE, "-fwrapv"))
    after = native.sanitizer()
    assert {name for name in before if after[name] != before[name]} == {"g++ options"}


def test_it_is_made_where_that_is_asked_for(passed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DCPRED_SETTLED", "again")
    assert made("ab")
    assert made("ac")


def test_a_check_that_fails_is_not_written_down(passed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = passed.read_text()
    monkeypatch.setenv("DCPRED_SETTLED", "write")
    with pytest.raises(AssertionError), settled.settled(KNOWN, "ac", ("pytest",), {}):
        raise AssertionError
    assert passed.read_text() == before
