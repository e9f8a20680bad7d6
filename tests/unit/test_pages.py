"""The pages: every shell and Python block is run or says why not, links lead somewhere, and the picture is up
to date.
"""

import csv
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click import Context
from click.testing import CliRunner

from dcpred.cli import main
from dcpred.scoring.planning import check_outputs
from dcpred_tasks.errors import SettingsError
from support.comparisons import small_comparisons
from support.data import make_blobs
from support.pools import inline
from support.searches import few_candidates
from support.tables import table, write_csv

pytestmark = pytest.mark.cases()  # what is enumerated may grow

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "tests/benchmarks"
GUIDE = ROOT / "pipeline/docs"
# Comments right above a block, its language, its lines.
BLOCK = re.compile(
    r"(?P<above>(?:^<!--[^\n]*-->\n)*)^```(?P<language>[\w-]*)\n(?P<lines>.*?)^```$", re.MULTILINE | re.DOTALL
)
EXCUSE = re.compile(r"<!-- not run: (?P<reason>.{10,}) -->")
PATH = re.compile(r"`((?:tests|tasks|pipeline|deploy|\.ci|\.github)/[\w./-]+)")
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
SPAN = re.compile(r"`dcpred (?P<words>[a-z][^`\n]*)`")  # a command within a sentence or a table
TAB = re.compile(r"^:{3,}\{tab-item\} (?P<name>[^\n]*)\n(?P<inside>.*?)^:{3,}$", re.MULTILINE | re.DOTALL)
RUN = ("sh", "python")
TASKS = ("classification", "regression")


@dataclass(frozen=True)
class Block:
    """One fenced block: the comments above it, its language and its text."""

    above: str
    language: str
    text: str

    @property
    def excused(self) -> bool:
        return EXCUSE.search(self.above) is not None


@cache
def pages() -> list[Path]:
    """Every tracked page, or every page where there is no git."""
    tracked = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    found = [ROOT / name for name in tracked] or list(ROOT.rglob("*.md"))
    return sorted(path for path in found if not {".venv", "data"} & set(path.relative_to(ROOT).parts))


def each_page(check: Callable[[Path], None]) -> Callable[[], None]:
    """One test that checks every page, and reports all that fail."""

    def test() -> None:
        broken = []
        for page in pages():
            try:
                check(page)
            except AssertionError as error:
                broken.append(f"{page.relative_to(ROOT)}: {error}")
        assert not broken, "\n".join(broken)

    test.__doc__ = check.__doc__
    return test


def blocks(text: str) -> list[Block]:
    return [Block(found["above"], found["language"], found["lines"]) for found in BLOCK.finditer(text)]


def commands(block: Block) -> list[list[str]]:
    """The words of every command line of a shell block; ends of lines that begin with `#` are left out."""
    joined = block.text.replace("\\\n", " ")
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with the data files that pages name; workers are this process, and searches and
    comparisons try little.
    """
    blobs = make_blobs(300, n_features=4, n_classes=3, seed=0)
    names = np.array(["ash", "oak", "yew"])[blobs.y]
    rows = [",".join(f"{value:.3f}" for value in row) for row in blobs.X]
    known = [f"{row},{name}" for row, name in zip(rows[:240], names[:240], strict=True)]
    (tmp_path / "known.csv").write_text("\n".join(["a,b,c,d,label", *known]) + "\n")
    (tmp_path / "test.csv").write_text("\n".join(["a,b,c,d,label", *known[160:]]) + "\n")
    (tmp_path / "new.csv").write_text("\n".join(["a,b,c,d", *rows[240:]]) + "\n")
    people = table(400).drop(columns=["age", "seen"]).rename(columns={"label": "answer"})
    write_csv(people, tmp_path / "people.csv")
    write_csv(people[300:].drop(columns="answer"), tmp_path / "new-people.csv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dcpred.execution.pools.connect", lambda *_: inline())
    run("import", "known.csv", "known.zarr", "--target", "label")
    run("import", "test.csv", "test.zarr", "--target", "label")
    run("import", "new.csv", "new.zarr")
    with few_candidates(), small_comparisons():
        yield tmp_path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, f"dcpred {' '.join(arguments)}: {result.output}"
    return result.output


@each_page
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    text = page.read_text()
    assert 2 * len(blocks(text)) == len(re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE)), (
        "a fence is not closed"
    )
    for block in blocks(text):
        if block.language in RUN and not block.excused:
            assert block.language == "python" or all(words[0] == "dcpred" for words in commands(block)), (
                f"{page}: only dcpred is run here; put <!-- not run: why --> above\n{block.text}"
            )
        assert block.language in (*RUN, ""), f"{page}: a block of {block.language} is neither run nor excused"


def readers() -> list[tuple[Path, str]]:
    """(page, the tab that its reader follows or "") for pages with blocks to run."""
    found = []
    for page in pages():
        text = page.read_text()
        if any(block.language in RUN and not block.excused for block in blocks(text)):
            found += [(page, tab) for tab in sorted({one["name"] for one in TAB.finditer(text)}) or [""]]
    return found


def in_tab(text: str, tab: str) -> str:
    """A page as a reader of this tab sees it."""
    return TAB.sub(lambda found: found["inside"] if found["name"] == tab else "", text)


def named(one: Path | str) -> str:
    return one if isinstance(one, str) else one.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(("page", "tab"), readers(), ids=named)
def test_blocks_run_in_their_order(
    page: Path, tab: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On small data, as a reader would who goes through one page; a page may make what another has made."""
    names: dict[str, object] = {}
    for block in blocks(in_tab(page.read_text(), tab)):
        if block.excused or block.language not in RUN:
            continue
        if block.language == "python":
            exec(compile(block.text, str(page), "exec"), names)
            assert capsys.readouterr().out, "a Python block prints what it has found"
            continue
        for _, *arguments in commands(block):
            if arguments[0] == "example":
                for name in ("known", "new"):
                    Path(f"{name}.csv").unlink()
                    shutil.rmtree(f"{name}.zarr")
            if arguments[0] == "import":
                shutil.rmtree(arguments[2], ignore_errors=True)
            assert run(*arguments)


@each_page
def test_commands_within_text_have_the_options_and_outputs_that_there_are(page: Path) -> None:
    for found in SPAN.finditer(page.read_text()):
        name, *words = shlex.split(found["words"])
        command = main.get_command(Context(main), name)
        assert command is not None, f"{page}: {found[0]}"
        options = {option for parameter in command.params for option in parameter.opts} | {"-h", "--help"}
        assert {word for word in words if re.match("-+[a-z]", word)} <= options, f"{page}: {found[0]}"
        for option, value in pairwise(words):
            if option == "--outputs":
                assert any(gives(value.split(","), task) for task in TASKS), f"{page}: {found[0]}"


def gives(outputs: list[str], task: str) -> bool:
    """Whether a model for the task gives these outputs."""
    try:
        check_outputs(tuple(outputs), task)
    except SettingsError:
        return False
    return True


def test_a_reader_follows_one_tab() -> None:
    text = (
        "a\n:::::{tab-set}\n::::{tab-item} Python\n```python\n1\n```\n::::\n"
        "::::{tab-item} Shell\n```sh\ndcpred demo\n```\n::::\n:::::\nb\n"
    )
    assert [block.language for block in blocks(in_tab(text, "Shell"))] == ["sh"]
    assert [block.language for block in blocks(in_tab(text, "Python"))] == ["python"]


def test_blocks_are_told_apart() -> None:
    """An excuse is that of the block right below it, and of no other."""
    text = (
        "<!-- not run: it needs a network -->\n<!-- a mark -->\n```sh\ncurl x  # y\n```\n\n"
        "```python\nx = 1\n```\n<!-- not run: it would take hours -->\n```sh\ndcpred \\\n  demo\n```\n"
    )
    first, second, third = blocks(text)
    assert [block.excused for block in (first, second, third)] == [True, False, True]
    assert (commands(first), commands(third)) == ([["curl", "x"]], [["dcpred", "demo"]])
    assert (second.language, second.text) == ("python", "x = 1\n")
    assert not Block("<!-- not run: -->\n", "sh", "").excused, "a reason is given"


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for found in LINK.finditer(page.read_text()):
        path, _, heading = found["target"].partition("#")
        assert "://" not in path, "pages link to pages: an address elsewhere cannot be checked here"
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), f"{page}: {found['target']} is not there"
        assert not heading or heading in anchors(target.read_text()), f"{page}: {found['target']}: no heading"


@each_page
def test_files_that_are_named_are_there(page: Path) -> None:
    """Commands of figures among them."""
    for name in PATH.findall(page.read_text()):
        assert (ROOT / name).exists(), f"{page}: {name} is not there"


def test_every_point_of_the_picture_has_its_source() -> None:
    with (BENCHMARKS / "accuracy_cost.csv").open(newline="") as file:
        points = list(csv.DictReader(file))
    assert {point["data"] for point in points} == {"letter", "covtype"}
    assert {point["who"] for point in points} == {"ours", "as in the paper", "rival"}
    for point in points:
        assert (ROOT / point["command"].split()[0]).is_file()
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", point["date"])
        assert point["machine"]


def anchors(text: str) -> set[str]:
    """What headings are called in addresses: lower case, hyphens for spaces, without other signs."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_readme_is_short_and_has_its_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 90
    for mark in ("<!-- the demo command -->", "<!-- the test command -->"):
        assert text.count(f"{mark}\n```sh\n") == 1


def test_the_overview_of_the_guide_lists_every_page_once_and_every_command() -> None:
    assert "](docs/index.md)" in (ROOT / "pipeline/README.md").read_text()
    index = (GUIDE / "index.md").read_text()
    listed = re.findall(r"^\| \[[^]]+\]\((\w+\.md)\)", index, re.MULTILINE)
    assert sorted(["index.md", *listed]) == sorted(page.name for page in GUIDE.glob("*.md"))
    listed = re.findall(r"^\| `dcpred ([\w-]+)", index, re.MULTILINE)
    assert sorted(listed) == sorted(main.list_commands(Context(main)))


def test_each_of_the_five_questions_has_short_answers() -> None:
    _, *sections = (GUIDE / "questions.md").read_text().split("\n## ")
    assert len(sections) == 5
    for section in sections:
        command, program = blocks(section)
        assert (command.language, len(commands(command))) == ("sh", 1)
        assert (program.language, len(program.text.splitlines()) <= 3) == ("python", True)


def test_pictures_are_drawn_from_what_was_measured() -> None:
    """That of other systems by its texts: matplotlib draws lines as its version will."""
    pytest.importorskip("matplotlib", reason="matplotlib draws a picture")
    code = (
        "import picture as p, side_by_side as s; print(p.picture(p.read(p.HERE / p.CSV)), end='\\0');"
        "print(s.drawn(s.read(s.HERE / s.CSV)), end='')"
    )
    both = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True, check=True
    ).stdout
    plain, drawn = both.split("\0")
    assert plain == (BENCHMARKS / "accuracy_cost.svg").read_text(), "run tests/benchmarks/picture.py"
    for name in ("DC-Pred++", "LightGBM", "exact SVM"):
        assert f">{name}</text>" in plain
    stored = (BENCHMARKS / "side_by_side.svg").read_text()
    texts = [re.findall(r">([^<>]+)</text>", one) for one in (drawn, stored)]
    assert texts[0] == texts[1], "run tests/benchmarks/side_by_side.py --picture letter"
    assert {"dcpred", "exact", "ldkl", "xgboost"} <= set(texts[0])
