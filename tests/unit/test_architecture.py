"""The page of architecture: its rules have their tests, its files are there, and it stays short."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "pipeline/docs/architecture.md").read_text(encoding="utf-8")
PACKAGES = [ROOT / "pipeline/dcpred", ROOT / "tasks/dcpred_tasks"]


def test_every_rule_has_its_test() -> None:
    rows = re.findall(r"^\| (R\d+) .*?`(tests/\S+?)::(\w+)`", PAGE, re.MULTILINE)
    assert [name for name, _, _ in rows] == [f"R{number}" for number in range(1, len(rows) + 1)]
    assert len(rows) == len(re.findall(r"^\| R\d+ ", PAGE, re.MULTILINE)) >= 10
    for _, file, test in rows:
        assert re.search(rf"^def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), test


def test_every_file_of_the_page_is_there() -> None:
    """Also folders, by their names in a package."""
    for name in re.findall(r"`([\w/]+(?:\.(?:py|md|cpp)|/))`", PAGE):
        places = [ROOT / name, *(package / name for package in PACKAGES)]
        places += [path for package in PACKAGES for path in package.glob(f"*/{name}")]
        assert any(path.exists() for path in places), name


def test_the_page_is_short_and_the_list_has_ten_files() -> None:
    assert PAGE.count("\n") <= 150
    assert len(re.findall(r"^\d+\. `", PAGE, re.MULTILINE)) == 10
