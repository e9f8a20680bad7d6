"""The page of a search for settings: what is best at every cost, and what was chosen."""

from typing import Any

from dcpred.pages import charts
from dcpred.pages.page import Page, Picture, Section, Table
from dcpred.pages.text import number, percent, plain
from dcpred.reports.model_page import seconds_picture, settings_section
from dcpred.tuning.frontier_plot import judged, paint_frontier

SHAPE = ("n_leaves", "landmarks", "products", "overlap")


def search_page(name: str, found: dict[str, Any]) -> Page:
    """found  what MODEL.tuned.json holds under that name"""
    chosen = found["chosen"]
    return Page(
        title=f"Search for {name}",
        lead="Settings were tried on rows that were held out; costs are predicted, in linear predictions.",
        facts=[
            (_quality(chosen)[0], _shown(chosen)),
            ("cost", f"{number(chosen['cost_ratio'], 3)}"),
            *((name.replace("n_", ""), f"{chosen[name]:,}") for name in SHAPE),
            ("scaling", plain(chosen["scaling"])),
        ],
        sections=[*search_sections(found), settings_section(found["settings"])],
        warnings=[]
        if chosen["n_judged"]
        else ["There were too few rows to hold any out: nothing was judged."],
    )


def search_sections(found: dict[str, Any]) -> list[Section]:
    """Sections of what was found."""
    chosen, points = found["chosen"], found["frontier"]
    parts: list[Picture | Table] = []
    if chosen["n_judged"] and judged(chosen) is not None:
        parts.append(_frontier(points, chosen))
    seconds = {plain(step): float(took) for step, took in found["seconds"].items()}
    if seconds:
        parts.append(seconds_picture("The search", seconds))
    text = (
        f"Judged on {chosen['n_judged']:,} rows held out, give or take {_uncertain(chosen)} (two standard"
        " errors)."
        if chosen["n_judged"]
        else "Nothing was judged."
    )
    if words := found.get("floor", {}).get("words"):
        text += f" {words[0].upper()}{words[1:]}."
    return [Section("Search", text, parts=parts)]


def _quality(point: dict[str, Any]) -> tuple[str, str]:
    return ("RMSE", "rmse") if "rmse" in point else ("accuracy", "accuracy")


def _shown(point: dict[str, Any]) -> str:
    value = point[_quality(point)[1]]
    return number(value, 5) if "rmse" in point else percent(value, 2)


def _uncertain(point: dict[str, Any]) -> str:
    two = 2.0 * (point["standard_error"] or 0.0)
    return f"{two:.2g}" if "rmse" in point else f"{100 * two:.2g} points"


def _frontier(points: list[dict[str, Any]], chosen: dict[str, Any]) -> Picture:
    name = _quality(chosen)[0]

    def paint(axes: Any) -> None:
        paint_frontier(points, chosen, axes)

    better = "downwards" if name == "RMSE" else "upwards"
    text = (
        f"The best {name} that was found at every cost; {better} is better, to the left is cheaper. Chosen:"
        f" {_shown(chosen)} at a cost of {number(chosen['cost_ratio'], 3)}."
    )
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
    heads = ["cost", name, "leaves", "landmarks", "products", "overlap", "scaling", "within the budget"]
    return charts.picture("Frontier", text, paint, size=(360, 280), table=Table(heads, lines))
