"""The page of a search for settings: the Pareto front, and the choice."""

from typing import Any

from dcpred.pages import charts
from dcpred.pages.page import Page, Picture, Section, Table
from dcpred.pages.text import number, percent, plain
from dcpred.reports.model_page import seconds_picture, settings_section
from dcpred.tuning.frontier_plot import (
    interval_words,
    is_share,
    judged,
    less_is_better,
    paint_frontier,
    unseen_words,
    words_of,
)
from dcpred.tuning.kept import quality_name

SHAPE = ("n_leaves", "landmarks", "products", "overlap")


def search_page(name: str, found: dict[str, Any]) -> Page:
    """found  the content of MODEL.tuned.json under that name"""
    chosen = found["chosen"]
    return Page(
        title=f"Search for {name}",
        lead="Held-out rows evaluate settings; costs are predicted, in linear predictions.",
        facts=[
            (_quality(chosen)[0], _shown(chosen)),
            ("cost", f"{number(chosen['cost_ratio'], 3)}"),
            *((name.replace("n_", ""), f"{chosen[name]:,}") for name in SHAPE),
            ("scaling", plain(chosen["scaling"])),
        ],
        sections=[*search_sections(found), settings_section(found["settings"])],
        warnings=[]
        if chosen["n_judged"]
        else ["There were too few rows to hold any out: nothing was evaluated."],
    )


def search_sections(found: dict[str, Any]) -> list[Section]:
    """Sections of the result."""
    chosen, points = found["chosen"], found["frontier"]
    parts: list[Picture | Table] = []
    if chosen["n_judged"] and judged(chosen) is not None:
        parts.append(_frontier(points, chosen))
    seconds = {plain(step): float(took) for step, took in found["seconds"].items()}
    if seconds:
        parts.append(seconds_picture("The search", seconds))
    by = f" ({plain(chosen['held_out'])})" if chosen.get("held_out") else ""
    text = (
        f"Evaluated on {chosen['n_judged']:,} rows held out{by}: {interval_words(chosen)} (two standard"
        " errors)."
        if chosen["n_judged"]
        else "Nothing was evaluated."
    )
    if words := found["words"]:
        text += f" {words[0].upper()}{words[1:]}."
    sections = [Section("Search", text, parts=parts)]
    if found["references"]:
        name = quality_name(chosen)
        lines = [
            [
                plain(one["name"]),
                _shown(one),
                _shown({**one, name: one["chosen"]}) if "chosen" in one else "",
                f"{one['n_judged']:,}",
            ]
            for one in found["references"]
        ]
        heads = ["model", _quality(chosen)[0], "the choice", "rows"]
        about = "Other models and the choice on the same held-out rows, all or some of them."
        sections.append(Section("References", about, parts=[Table(heads, lines)]))
    if found["trace"]:
        sections.append(_decisions(found["trace"]))
    return sections


def _decisions(trace: list[dict[str, Any]]) -> Section:
    text = "Every decision: a candidate replaces the incumbent if a paired test on held-out rows favours it."
    heads = ["step", "candidate", "loss", "cost", "incumbent", "its loss", "gain ± error", "rows", "verdict"]
    lines = [
        [
            *(plain(line[name]) for name in ("step", "candidate")),
            *(number(line["loss"], 4), number(line["cost_ratio"], 3), plain(line["incumbent"])),
            number(line["incumbent_loss"], 4),
            f"{line['gain']:.2g} ± {line['standard_error']:.2g}",
            f"{line['rows']:,}",
            plain(line["verdict"]),
        ]
        for line in trace
    ]
    return Section("Decisions", text, parts=[Table(heads, lines)])


def _quality(point: dict[str, Any]) -> tuple[str, str]:
    name = quality_name(point)
    return words_of(name), name


def _shown(point: dict[str, Any]) -> str:
    name = quality_name(point)
    if point[name] is None:
        return "not evaluated"
    return percent(point[name], 2) if is_share(name) else number(point[name], 5)


def _frontier(points: list[dict[str, Any]], chosen: dict[str, Any]) -> Picture:
    name, field = _quality(chosen)

    def paint(axes: Any) -> None:
        paint_frontier(points, chosen, axes)

    better = "downwards" if less_is_better(field) else "upwards"
    text = (
        f"The best {name} at every cost, with its standard error; {better} is better, to the"
        f" left is cheaper. Chosen: {_shown(chosen)} at a cost of {number(chosen['cost_ratio'], 3)}."
    )
    text = " ".join(filter(None, [text, unseen_words(chosen)]))
    lines = [
        [
            f"{number(p['cost_ratio'], 3)}{' (chosen)' if p == chosen else ''}",
            _shown(p),
            *(f"{p[key]:,}" for key in SHAPE),
            plain(p["scaling"]),
            "yes" if p["within_budget"] else "no",
        ]
        for p in (points if chosen in points else sorted([*points, chosen], key=lambda p: p["cost_ratio"]))
    ]
    heads = ["cost", name, "leaves", "landmarks", "pairs", "overlap", "scaling", "within the budget"]
    return charts.picture("Frontier", text, paint, size=(360, 280), table=Table(heads, lines))
