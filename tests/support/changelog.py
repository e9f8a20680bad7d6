"""The changelog: files of .github/changes become a section of .github/CHANGELOG.md, and are removed.

    python tests/support/changelog.py 0.2.0 2026-11-27

A second call with the newest version adds to its section. A file may begin with its kind, as `Fixed: `.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHANGELOG = ROOT / ".github" / "CHANGELOG.md"
CHANGES = ROOT / ".github" / "changes"
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
HEAD = re.compile(r"^## \[(?P<version>[^\]]+)\] - (?P<date>\d{4}-\d\d-\d\d)$", re.MULTILINE)
KIND = re.compile(r"^### (?P<kind>\w+)$", re.MULTILINE)


def change_files() -> list[Path]:
    return sorted(path for path in CHANGES.glob("*.md") if path.name != "README.md")


def change_items(text: str) -> tuple[str, list[str]]:
    """The kind of a change and its items: paragraphs, or the points of a list."""
    kind, colon, rest = text.strip().partition(": ")
    kind, text = (kind, rest) if colon and kind in KINDS else ("Changed", text.strip())
    text = re.sub(r"^# (.*)$", r"\1.", text, flags=re.MULTILINE).replace("](../../", "](../")
    parts = re.split(r"\n\s*\n|\n(?=- )", text)
    return kind, [" ".join(part.removeprefix("- ").split()) for part in parts if part.strip()]


def section_items(text: str) -> dict[str, list[str]]:
    """The items of a section of the changelog by kind."""
    _, *parts = KIND.split(text)
    return {
        kind: [line.removeprefix("- ") for line in body.strip().splitlines()]
        for kind, body in zip(parts[::2], parts[1::2], strict=True)
    }


def section_text(version: str, date: str, items: dict[str, list[str]]) -> str:
    kinds = [
        f"### {kind}\n\n" + "".join(f"- {item}\n" for item in items[kind])
        for kind in KINDS
        if items.get(kind)
    ]
    return f"## [{version}] - {date}\n\n" + "\n".join(kinds)


def with_changes(text: str, version: str, date: str, changes: list[str]) -> str:
    """The text of the changelog with the changes in the section of a version, which is the first one."""
    first = HEAD.search(text)
    start = end = first.start() if first else len(text)
    items: dict[str, list[str]] = {}
    if first and first["version"] == version:
        following = HEAD.search(text, first.end())
        end = following.start() if following else len(text)
        items = section_items(text[first.end() : end])
    for kind, found in map(change_items, changes):
        items.setdefault(kind, []).extend(found)
    section = section_text(version, date, items)
    return text[:start] + section + ("\n" + text[end:] if text[end:] else "")


def main(version: str, date: str) -> None:
    files = change_files()
    changes = [path.read_text(encoding="utf-8") for path in files]
    CHANGELOG.write_text(with_changes(CHANGELOG.read_text(encoding="utf-8"), version, date, changes))
    for path in files:
        path.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
