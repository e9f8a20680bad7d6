"""Retired words: what messages, docstrings, comments and pages no longer use, and their replacements."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.cases()  # what is enumerated may grow

ROOT = Path(__file__).parents[2]
RETIRED = {
    r"\b(?:was|were) to be\b": "Cannot VERB X: reason. Remedy.",
    r"\btold\b|\btells?\b(?! apart)": "report, print, record, show",
    r"(?<!there )\b(?-i:is none)\b": "is invalid; is missing; returns None",
    r"\bin silence\b": "silently; name the effect",
    r"\bso that\b": "two sentences, or a colon",
    r"\bsuch as\b": "for example",
    r"\bsureness\b|\bhow sure\b|\bhow nearly sure\b": "uncertainty; calibration",
    r"\bnearness\b": "typicality; mimic weight",
    r"\bmachine_training\b": "baselines/fit",
    r"\brivals?\b|\bother systems?\b|\bmachines? of other\b": "baselines",
    r"\bwhole and as it was written\b|\bas it was written\b": "complete and unmodified",
    r"\bkept beside\b": "not published; stored next to",
    r"\b(?:put|puts) up with\b": "tolerates",
    r"\bgiven up, since\b|\brows given up\b": "skipped rows",
    r"\bnobody'?s\b|\bis nobody\b": "name the subject, or use the passive",
    r"\bquick look\b": "quick search",
    r"\btak(?:e|es|en|ing) over blocks\b|\bblocks (?:are|were) taken over\b": "reuse blocks",
    r"\bthe frontier\b|\ba frontier\b": "Pareto front",
    r"\b(?:is|are|was|were) looked at\b": "check, read, evaluate",
    r"\bforetold\b|\bforetells?\b": "predicted",
    r"\bhalo\b": "overlap",
    r"\bhead_gamma\b|\bhead_C\b": "compact_gamma; nystrom_C",
    r"`guide`|\bguide=": "distill_weight; distillation target",
    r"\bmachine=|\blocal machines?\b|\bNyström machine\b": "leaf_model; local SVM; Nyström model",
    r"\bwhole numbers?\b": "integers",
    r"\bwhat came of\b|\bwhat becomes? of\b": "the result of",
    r"\bof which few\b|\bnot unlike\b": "state it positively",
}
PATTERN = re.compile("|".join(f"({pattern})" for pattern in RETIRED), re.IGNORECASE)
# Fixed by a format, a setting or a test: a value in files of earlier versions, or the name of a file.
KEPT = re.compile(r"#foretold-by-time|rows given up|taken_over|frontier_plot|without-halo")
PAGES = [
    ROOT / "README.md",
    *(ROOT / "pipeline").rglob("*.md"),
    *(ROOT / "tasks").glob("*.md"),
    *(ROOT / "deploy").rglob("*.md"),
]
SOURCES = [path for part in ("pipeline", "tasks") for path in (ROOT / part).rglob("*.py")]


def passages(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) that a person reads: literals with a space, docstrings, comments; lines of a page."""
    if path.suffix == ".md":
        yield from enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        return
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, " ".join(node.value.split())
    for number, line in enumerate(text.splitlines(), 1):
        if "#" in line:  # tokenize takes twice the time of all else here
            yield number, line[line.index("#") :]


def retired(text: str) -> list[tuple[str, str]]:
    """(word, what to use) of a text."""
    found = PATTERN.finditer(KEPT.sub("", text))
    uses = list(RETIRED.values())
    return [(match[0], uses[match.lastindex - 1]) for match in found if match.lastindex]


def test_no_retired_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word!r}: use {use}"
        for path in (*PAGES, *SOURCES)
        for line, text in passages(path)
        for word, use in retired(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data were to be imported into P", ["were to be"]),
        ("Told twice, which tells nothing.", ["Told", "tells"]),
        ("rows given up", []),
        ("Cannot import into P: it already exists.", []),
    ],
)
def test_a_retired_word_is_found(text: str, words: list[str]) -> None:
    assert [word for word, _ in retired(text)] == words


def test_passages_are_what_a_person_reads(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""One doc."""\ntold = "a word"  # a remark\nkey = "told"\nf = f"{told} in words"\n')
    assert sorted(text for _, text in passages(path)) == ["# a remark", "One doc.", "a word", "in words"]


def test_no_retired_name() -> None:
    """Of classes and functions, whose names no passage holds."""
    names = re.compile(r"\b(?:Sureness|sureness|Decided|Asked)\b")
    found = [path.name for path in SOURCES if names.search(path.read_text(encoding="utf-8"))]
    assert not found
