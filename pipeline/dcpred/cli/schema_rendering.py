"""Format a schema as text: what each column is, and what it becomes."""

from typing import Any

from dcpred.execution.progress import counted

SHOWN = 30  # columns that are shown one by one
NAMES = 2  # categories of a column that are shown
IGNORED_SHOWN = 5
WIDEST, LONGEST = 24, 8  # letters of the name of a column, and of a category


def schema_lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    """A heading with the kinds, and a line for each of the first SHOWN columns that are not numeric."""
    columns = document["columns"]
    kinds: dict[str, int] = {}
    for column in columns:
        kinds[column["kind"]] = kinds.get(column["kind"], 0) + 1
    report = ", ".join(_many(kind, n) for kind, n in kinds.items())
    others = [column for column in columns if column["kind"] not in ("number", "target")]
    lines = [("columns", report)]
    if not others:
        return lines
    width = min(max(len(column["name"]) for column in others[:SHOWN]), WIDEST)
    lines += [("", f"{_short(column['name']):<{width}}  {_becomes(column)}") for column in others[:SHOWN]]
    return lines + ([("", f"and {len(others) - SHOWN:,} more")] if len(others) > SHOWN else [])


def followed_lines(r: dict[str, Any]) -> list[tuple[str, str]]:
    """What the schema that was followed does not know of an imported source."""
    names = [repr(name) for name in r["ignored"][:IGNORED_SHOWN]]
    more = len(r["ignored"]) - len(names)
    report = [("ignored", f"columns not known: {', '.join(names)}" + (f" and {more:,} more" if more else ""))]
    absent = ", ".join(map(repr, r["absent"][:IGNORED_SHOWN]))
    report = (report if names else []) + ([("absent", f"values not read: {absent}")] if absent else [])
    return report + [
        ("never seen", f"categories of {_short(name)} in {counted(n, 'row', 'rows')}, encoded as others")
        for name, n in (r["unknown"] or {}).items()
    ]


def _many(kind: str, n: int) -> str:
    words = {
        "number": ("number", "numbers"),
        "boolean": ("boolean", "booleans"),
        "category": ("category", "categories"),
        "date": ("date", "dates"),
        "id": ("id", "ids"),
        "target": ("target", "targets"),
        "dropped": ("omitted", "omitted"),
    }
    return counted(n, *words[kind])


def _short(name: str, most: int = WIDEST) -> str:
    """A name on a terminal: escape sequences and other unprintable characters are replaced."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in name)
    return shown if len(shown) <= most else f"{shown[: most - 2]} …"


def _becomes(column: dict[str, Any]) -> str:
    kind = column["kind"]
    if kind == "boolean":
        return "0 and 1, a missing value NaN"
    if kind == "date":
        return f"{', '.join(column['parts'])}, a missing value NaN"
    if kind == "category":
        return _category(column)
    return {"id": "stored next to X", "dropped": "omitted"}[str(kind)]


def _category(column: dict[str, Any]) -> str:
    categories = column["categories"]
    n = counted(len(categories), "category", "categories")
    n = counted(len(categories), "category", "categories")
    if column["encoding"] == "means":
        each = f", one for each of {len(column['outputs']):,} classes" if column.get("outputs") else ""
        return f"mean targets of {n}{each}"
    if column["encoding"] == "target":
        return f"codes of {n}, target-encoded"
    shown = [f"{_short(str(name), LONGEST)} {code}" for code, name in enumerate(categories[:NAMES])]
    more = ["…"] if len(categories) > NAMES else []
    last = len(categories)
    return f"codes {', '.join([*shown, *more, f'others {last}', f'missing {last + 1}'])}"
