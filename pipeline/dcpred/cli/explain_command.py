"""dcpred explain: the command, and what it prints."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli.commands import command
from dcpred.cli.options import emit
from dcpred.evaluation.explanation import MOST_ROWS, ClassPart, ExplainedRows, Explanation, shown
from dcpred.execution.progress import counted
from dcpred.runs.bad_rows import unscored_text

WIDTH = 80
LONGEST_NAME, LONGEST_VALUE = 18, 12  # letters that are shown
BAR = 20  # letters of the longest bar
ABSENT = -1e29  # Decision values of classes without rows in a leaf are lower.


def explained(explanations: Sequence[Explanation]) -> str:
    """One paragraph for each row."""
    return "\n\n".join("\n".join(_lines(row)) for row in explanations)


def _lines(row: Explanation) -> list[str]:
    if row.status != "ok":
        why = unscored_text(row.status, row.bad_feature, row.bad_feature_name)
        return [f"row {row.row:,} has no score ({why})"]
    lines = [_line(f"row {row.row:,}", _predicted(row))]
    lines += [_line("", _class(part)) for part in row.classes[1:]]
    rows = counted(row.leaf_rows or 0, "training row", "training rows")
    lines.append(_line("leaf", f"{row.leaf:,}, of {rows}"))
    if row.novelty is not None:
        lines.append(_line("", f"novelty {row.novelty:.3f}: that fraction of them lies nearer to their mean"))
    lines += _contributions(row)
    lines += _sum(row)
    lines += _distance(row)
    for remark in row.remarks:
        lines += textwrap.wrap(remark, WIDTH - 2, initial_indent="  ", subsequent_indent="  ")
    return lines


def _line(name: str, text: str) -> str:
    return f"{name:<14}  {text}"


def _predicted(row: Explanation) -> str:
    return _class(row.classes[0]) if row.classes else f"{row.predicted:.6g}"


def _class(part: ClassPart) -> str:
    facts = [] if part.probability is None else [f"probability {part.probability:.3f}"]
    if part.decision is not None:
        facts.append("not in this leaf" if part.decision < ABSENT else f"decision value {part.decision:.6g}")
    return _cut(str(part.name)) + (f"  ({', '.join(facts)})" if facts else "")


def _contributions(row: Explanation) -> list[str]:
    """What each column adds, with bars."""
    if row.average is None or row.leaf_part is None:
        return []
    named, others = row.largest()
    rows = [
        (_cut(part.name), _cut(part.value if isinstance(part.value, str) else shown(part.value)), part.part)
        for part in named
    ]
    if n := len(row.contributions) - len(named):
        rows.append((counted(n, "other column", "other columns"), "", others))
    rows += [("leaf", f"{row.leaf:,}", row.leaf_part)] if row.leaf_part else []
    most = max([abs(part) for _, _, part in rows], default=0.0) or 1.0
    lines = [
        f"  {name:<{LONGEST_NAME}}  {value:>{LONGEST_NAME}}  {part:>+12.6g}  {_bar(part / most)}".rstrip()
        for name, value, part in rows
    ]
    head = f"  {'column':<{LONGEST_NAME}}  {'value':>{LONGEST_NAME}}  {'adds':>12}"
    cut = row if row.direction is None else replace(row, direction=_cut(str(row.direction)))
    total = f"decision value{cut.toward}"
    rest = [("average", row.average), (total, row.decision)]
    return ["", head, *lines, *(f"  {name:<{2 * LONGEST_NAME + 2}}  {part:>+12.6g}" for name, part in rest)]


def _bar(share: float) -> str:
    return ("+" if share > 0 else "-") * round(abs(share) * BAR)


def _sum(row: Explanation) -> list[str]:
    """The decision value as a sum."""
    if not row.landmarks:
        return []
    others = row.n_landmarks - len(row.landmarks)
    lines = ["", f"  {'landmark':<32}  {'kernel value':>12}  {'part':>12}"]
    lines += [
        f"  {part.landmark:<32}  {part.kernel:>12.6g}  {part.part:>+12.6g}"
        + ("  nearest" if part.landmark == row.nearest else "")
        for part in row.landmarks
    ]
    rest = [(counted(others, "other", "others"), row.other_landmarks)] if others else []
    rest += [("pairwise products and triangle points", row.pseudo_landmarks)] if row.pseudo_landmarks else []
    rest.append(("intercept", row.intercept))
    rest += [("clipped to bounds of the leaf", row.clipped)] if row.clipped else []
    lines += [f"  {name:<32}  {'':>12}  {part:>+12.6g}" for name, part in rest]
    return [*lines, f"  {'sum':<32}  {'':>12}  {row.decision:>+12.6g}"]


def _distance(row: Explanation) -> list[str]:
    """The distance to the nearest landmark, feature by feature."""
    if not row.features:
        return []
    title = f"distance to landmark {row.nearest}"
    return [
        "",
        f"  {title:<32}  {'share':>6}  {'row':>12}  {'landmark':>12}",
        *(
            f"  {_feature(part.feature, part.name):<32}  {part.share:>6.1%}"
            f"  {_number(part.value, 'missing', part.said):>12}"
            f"  {_number(part.of_landmark, 'other', part.said_of_landmark):>12}"
            for part in row.features
        ),
    ]


def _number(value: float | None, otherwise: str, text: str | None) -> str:
    """A value as the table has it, or else the number."""
    if text is not None:
        return _cut(text, LONGEST_VALUE)
    return otherwise if value is None else f"{value:.6g}"


def _feature(number: int, name: str | None) -> str:
    return f"feature {number}" + ("" if name is None else f" {_cut(name)}")


def _cut(name: str, longest: int = LONGEST_NAME) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


SPAN = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


class RowsType(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """Row numbers and ranges: 5,17,100-110."""

    name = "rows"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        numbers: list[int] = []
        for part in str(value).split(","):
            match = SPAN.fullmatch(part.strip())
            if match is None:
                self.fail(f"{part.strip()!r} is not a row or range; write 5,17,100-110", param, ctx)
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                self.fail(f"{part.strip()} ends before it begins; write the smaller number first", param, ctx)
            if len(numbers) + last - first + 1 > MOST_ROWS:
                self.fail(f"more than {MOST_ROWS:,} rows are named; name fewer", param, ctx)
            numbers += range(first, last + 1)
        return tuple(numbers)


ROWS = {"type": RowsType(), "required": True, "metavar": "ROWS", "help": "Rows to explain: 5,17,100-110."}


@command("explain", "model", "X", rows=ROWS)
def explain_command(model: str | Path, data: str, as_json: bool, **options: Any) -> None:
    """With several classes, explains the decision value of the predicted class; in Python
    contributions(…, label=) explains another class.
    """
    rows = dcpred.explain(model, data, **options)
    emit(ExplainedRows(rows), as_json, draw=lambda _: explained(rows))
