"""The columns of a table, in words."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from dcpred.execution.progress import counted
from dcpred.public.results import plain

SHOWN = 30  # columns that are shown one by one
NAMES = 2  # categories of a column that are shown
WIDEST, LONGEST = 24, 8  # letters of the name of a column, and of a category
KINDS = {  # for one column, and for several
    "number": ("number", "numbers"),
    "boolean": ("boolean", "booleans"),
    "category": ("category", "categories"),
    "date": ("date", "dates"),
    "id": ("id", "ids"),
    "target": ("target", "targets"),
    "dropped": ("omitted", "omitted"),
}


def schema_texts(document: Mapping[str, Any] | None) -> list[str]:
    """The kinds, and a line for each of the first SHOWN columns that are not numeric."""
    if document is None:
        return []
    kinds = Counter(column["kind"] for column in document["columns"])
    heading = ", ".join(counted(n, *KINDS[kind]) for kind, n in kinds.items())
    columns = [column for column in document["columns"] if column["kind"] not in ("number", "target")]
    width = min(max((len(column["name"]) for column in columns[:SHOWN]), default=0), WIDEST)
    texts = [f"{plain(column['name'], WIDEST):<{width}}  {_becomes(column)}" for column in columns[:SHOWN]]
    more = len(columns) - SHOWN
    return [heading, *texts, *([f"and {more:,} more"] if more > 0 else [])]


def _becomes(column: Mapping[str, Any]) -> str:
    kind = column["kind"]
    if kind == "boolean":
        return "0 and 1, a missing value NaN"
    if kind == "date":
        return f"{', '.join(column['parts'])}, a missing value NaN"
    if kind == "category":
        return _category(column)
    return {"id": "stored next to X", "dropped": "omitted"}[str(kind)]


def _category(column: Mapping[str, Any]) -> str:
    categories = column["categories"]
    n = counted(len(categories), "category", "categories")
    if column["encoding"] == "means":
        each = f", one for each of {len(column['outputs']):,} classes" if column.get("outputs") else ""
        return f"mean targets of {n}{each}"
    if column["encoding"] == "target":
        return f"codes of {n}, target-encoded"
    shown = [f"{plain(name, LONGEST)} {code}" for code, name in enumerate(categories[:NAMES])]
    more = ["…"] if len(categories) > NAMES else []
    last = len(categories)
    return f"codes {', '.join([*shown, *more, f'others {last}', f'missing {last + 1}'])}"
