"""The kinds of remarks on their page, made from the registry; a test holds the two equal.

    .venv/bin/python tests/support/remark_words.py

rewrites them.
"""

from pathlib import Path

from dcpred_tasks.remarks import KINDS, Severity

PAGE = Path(__file__).parents[2] / "pipeline/docs/remarks.md"
MARK = "<!-- remarks -->\n"
TITLES = {Severity.ALARM: "Alarms", Severity.WARNING: "Warnings", Severity.NOTE: "Notes"}


def remark_page() -> str:
    """The text of the page, whose head stays."""
    parts = [PAGE.read_text(encoding="utf-8").partition(MARK)[0], MARK]
    for severity, title in TITLES.items():
        parts.append(f"\n## {title}\n")
        for code, kind in KINDS.items():
            if kind.severity == severity:
                parts.append(
                    f'\n### {code}\n\n{kind.cause} {kind.why} Example: "{kind.example}".\n\n'
                    f"- Threshold: {kind.threshold}.\n"
                    f"- What to do: {kind.do}.\n"
                    f"- Switch it off: `--accept {code}`.\n".replace("..\n", ".\n")
                )
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(remark_page(), encoding="utf-8")
