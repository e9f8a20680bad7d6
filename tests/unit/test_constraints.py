"""Every extra installs with deploy/constraints.txt."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
LINES = (ROOT / "deploy" / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINS = {
    canonicalize_name(line.partition("==")[0]): line.partition("==")[2]
    for line in LINES
    if not line.startswith("#")
}


def applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def conflicts(wanted: list[Requirement]) -> list[str]:
    """Requirements that pins do not satisfy, of these and of what is installed of them."""
    found, seen = [], set[str]()
    while wanted:
        one = wanted.pop()
        pin = PINS.get(canonicalize_name(one.name))
        if pin is not None and not one.specifier.contains(pin, prereleases=True):
            found.append(f"{one} is pinned to {pin}")
        if str(one) in seen:
            continue
        seen.add(str(one))
        try:
            further = map(Requirement, requires(one.name) or ())
        except PackageNotFoundError:
            continue
        wanted += [each for each in further if any(applies(each, extra) for extra in ["", *one.extras])]
    return found


@pytest.mark.parametrize("extra", EXTRAS)
def test_pins_satisfy_an_extra(extra: str) -> None:
    wanted = [Requirement(line) for line in EXTRAS[extra]]
    assert [str(one) for one in wanted if canonicalize_name(one.name) not in PINS] == []
    assert conflicts(wanted) == []


def test_a_conflict_is_found() -> None:
    """Of what another package requires, too: mlflow-skinny did not install with the pin of cachetools."""
    assert conflicts([Requirement("pytest<1")]) == [f"pytest<1 is pinned to {PINS['pytest']}"]
    pins = {name: pin for name, pin in PINS.items() if name != "iniconfig"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "PINS", pins | {"iniconfig": "0.1"})
        assert re.fullmatch(r"iniconfig.* is pinned to 0\.1", *conflicts([Requirement("pytest")]))


@pytest.mark.long
@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_resolves(extra: str) -> None:
    """As pip resolves it. Needs a registry."""
    where = f"{ROOT}[{extra}]" if extra else str(ROOT)
    given = ("install", "--dry-run", "--ignore-installed", "--quiet", "-c", "deploy/constraints.txt", where)
    command = [sys.executable, "-m", "pip", *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "ConnectionError" in done.stderr or "No module named pip" in done.stderr:
        pytest.skip("no registry")
    assert done.returncode == 0, done.stderr
