"""The pages of a model and of a search."""

from dataclasses import fields
from typing import Any

import numpy as np

from dcpred import pages
from dcpred.inspection import inspect_path
from dcpred.pages import FIRST, Page, Picture, Section, Table, counted, number, percent, plain, size
from dcpred.reports.evaluation_page import (
    evaluation_facts,
    evaluation_sections,
    evaluation_warnings,
    last_name,
    without_places,
)
from dcpred.training.column_report import describe_map, map_in_words
from dcpred.tuning.search_result import (
    interval_words,
    is_share,
    judged,
    less_is_better,
    paint_frontier,
    quality_name,
    unseen_words,
    words_of,
)
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.contributions import known_importances
from dcpred_tasks.training.settings import Settings

DRAWN_FEATURES = 15
LISTED_FEATURES = 500
LEAF_BARS = 20
LEAST_SHARE = 0.0005  # the smallest fraction of squared distances to draw
# Parts of the cost of a row.
PARTS = {
    "convert": "scaling the row",
    "descend": "walk down the tree",
    "landmarks": "landmarks",
    "outputs": "outputs",
}


def model_page(address: str, evaluated: dict[str, Any] | None, search: list[Section]) -> Page:
    """address    of a model
    evaluated  its evaluation by `evaluate`, if data were given
    search     sections of the search for its settings, if it is known
    """
    summary = inspect_path(address)
    artifact = open_artifact(address)
    model = artifact.model()
    names = artifact.feature_names
    facts = [*(evaluation_facts(evaluated) if evaluated else ()), *_facts(summary)]
    facts = list(dict(facts).items())  # the cost is the same in both
    return Page(
        title=f"Model {last_name(address)}",
        lead=_lead(summary, evaluated),
        facts=facts,
        sections=[
            *(evaluation_sections(evaluated) if evaluated else ()),
            _made_of(summary, model, names),
            *search,
            settings_section(summary["settings"]),
            _history(summary, address),
        ],
        warnings=[] if evaluated is None else evaluation_warnings(evaluated | {"n_bad": 0}),  # stated above
    )


def _lead(summary: dict[str, Any], evaluated: dict[str, Any] | None) -> str:
    n = summary["rows_per_leaf"]["total"]
    classes = summary["classes"]
    what = "predicts numbers"
    if classes:
        named = ", ".join(plain(one, 40) for one in classes[:5])
        what = f"distinguishes {len(classes):,} classes: {named}" + (
            " and others" if len(classes) > 5 else ""
        )
    quality = ""
    if evaluated is not None:
        bad = f", without {evaluated['n_bad']:,} that are not finite" if evaluated["n_bad"] else ""
        rows = counted(evaluated["n_samples"], "row", "rows")
        quality = f" Its quality is measured on {rows} of {last_name(evaluated['data'])}{bad}."
    return f"It {what}, and was trained on {counted(n, 'row', 'rows')}.{quality}"


def _facts(summary: dict[str, Any]) -> list[tuple[str, str]]:
    cost = summary["predicted_cost"]
    shown = number(cost["cost_ratio"], 3) if cost else "measured by dcpred evaluate"
    return [
        ("features", f"{summary['n_features']:,}"),
        ("leaves", f"{summary['n_leaves']:,}"),
        ("landmarks", f"{summary['n_landmarks']:,}"),
        ("cost, linear predictions", shown),
        ("size", size(summary["compact_bytes"])),
    ]


def _made_of(summary: dict[str, Any], model: Model, names: tuple[str, ...] | None) -> Section:
    """Leaves, the composition of distances, the cost of a row."""
    facts = [
        ("kernel", plain(summary["kernel"]["name"])),
        ("landmarks of a leaf", _range(summary["landmarks_per_leaf"])),
        ("products", f"{summary['n_products']:,}"),
        ("constant leaves", f"{summary['n_constant_leaves']:,}"),
        ("depth of the tree", f"{summary['tree_depth']:,}"),
    ]
    text = f"A tree sends each row to one of {model.n_leaves:,} leaves, which have their own small models."
    if model.n_leaves < 2:
        text = "All rows are in one leaf."
    text = " ".join([text, *(f"{plain(remark).capitalize()}." for remark in summary["shrunk"])])
    parts = [_sizes(summary["rows_per_leaf"], np.sort(model.leaf_rows))] if model.n_leaves > 1 else []
    parts += [part for part in (_features(model, names), _cost(summary)) if part is not None]
    return Section("Composition", text, facts, parts)


def _range(summary: dict[str, Any]) -> str:
    least, most = summary["min"], summary["max"]
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def _sizes(rows: dict[str, Any], sizes: Any) -> Picture:
    edges = np.geomspace(max(sizes[0], 1), max(sizes[-1], sizes[0] + 1) + 1, min(LEAF_BARS, len(sizes)) + 1)
    counts = np.histogram(np.maximum(sizes, 1), edges)[0]

    def paint(axes: Any) -> None:
        pages.histogram(axes, edges, counts)
        pages.log_x(axes)
        axes.set_xlabel("training rows of a leaf")
        axes.set_ylabel("leaves")

    text = (
        f"Training rows of the leaves: {rows['min']:,} in the smallest, {rows['max']:,} in the largest,"
        f" {number(rows['median'])} in the median."
    )
    shares = np.array([0, 0.1, 0.25, 0.5, 0.75, 0.9, 1])
    summary = [sizes[min(int(share * len(sizes)), len(sizes) - 1)] for share in shares]
    table = Table(
        ["share of leaves", "have rows up to"],
        [[percent(float(s), 0), f"{int(n):,}"] for s, n in zip(shares, summary, strict=True)],
    )
    return pages.picture("Sizes of leaves", text, paint, table=table)


def _features(model: Model, names: tuple[str, ...] | None) -> Picture | None:
    shares = known_importances(model)
    order = np.argsort(-shares, kind="stable")
    shown = [int(j) for j in order[:DRAWN_FEATURES] if shares[j] >= LEAST_SHARE]
    if not shown:
        return None

    labels = model.scaling.labels(names)

    def called(feature: int) -> str:
        return plain(labels[feature]) if labels else f"feature {feature}"

    def paint(axes: Any) -> None:
        values = [100 * float(shares[j]) for j in shown]
        pages.bars(axes, [called(j) for j in shown], values, [f"{v:.1f}" for v in values])
        axes.set_xlabel("fraction of squared distances, %")

    coding = model.scaling.coding
    coded = coding.features if coding is not None and model.uncertainty is None else []
    unused = int((shares == 0).sum()) - len(coded)
    text = (
        f"The model compares rows by their distance in scaled features. {called(shown[0])} contributes"
        f" {percent(float(shares[shown[0]]))} of its square on average: it has the most influence on which"
        " rows are near. This does not show in which direction a prediction moves."
    )
    if unused:
        text += f" {counted(unused, 'feature does', 'features do')} not contribute."
    if coded:
        text += f" {counted(len(coded), 'encoded feature is', 'encoded features are')} omitted."
    if summary := map_in_words(describe_map(model.scaling)):
        text += f" {plain(summary[0].upper() + summary[1:], 500)}; means and deviations are raw."
    reference = model.reference
    assert reference is not None
    lines = [
        [
            called(j),
            percent(float(shares[j]), 2),
            number(float(reference.mean[j])),
            number(float(reference.sd[j])),
        ]
        for j in map(int, order[:LISTED_FEATURES])
    ]
    table = Table(["feature", "share", "mean", "standard deviation"], lines)
    height = pages.bars_height(len(shown))
    return pages.picture("Composition of distances", text, paint, size=(360, height), table=table)


def _cost(summary: dict[str, Any]) -> Picture | None:
    cost = summary["predicted_cost"]
    if cost is None:
        return None
    values = [float(cost[part]) for part in PARTS]

    def paint(axes: Any) -> None:
        pages.bars(axes, list(PARTS.values()), values, [f"{v:.1f}" for v in values])
        axes.set_xlabel("linear predictions")

    most = list(PARTS.values())[int(np.argmax(values))]
    text = (
        f"Predicted from the arrays of the model: {number(cost['cost_ratio'], 3)} times as long as a"
        f" linear prediction x @ w of the same row. The largest part is: {most}."
    )
    lines = [[name, f"{v:.1f}"] for name, v in zip(PARTS.values(), values, strict=True)]
    table = Table(["part", "linear predictions"], lines)
    return pages.picture("Cost of a row", text, paint, size=(360, pages.bars_height(4)), table=table)


def settings_section(settings: dict[str, Any]) -> Section:
    """Settings with another value than the default; a reader may open all others."""
    defaults = {f.name: f.default for f in fields(Settings)}
    lines = [
        [plain(name), plain(_shown(value)), plain(_shown(defaults.get(name, "–")))]
        for name, value in settings.items()
    ]
    other = [line for line in lines if line[1] != line[2]]
    heads = ["setting", "value", "default"]
    tables = [Table(heads, other, "Other values than the default", texts=3, wraps=True)] if other else []
    text = "" if other else "All settings have their defaults."
    folded = [("All settings", Table(heads, lines, texts=3, wraps=True))]
    return Section("Settings", text, parts=tables, folded=folded)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _history(summary: dict[str, Any], address: str) -> Section:
    """When and how it was trained, from its provenance, which is not authenticated."""
    provenance = _object(summary["provenance"])
    took = _object(_object(provenance.get("report")).get("seconds"))
    seconds = {plain(step): float(s) for step, s in took.items() if isinstance(s, int | float)}
    parts: list[Picture | Table] = []
    if seconds:
        parts.append(seconds_picture("Training", seconds))
    versions = provenance.get("versions")
    if isinstance(versions, dict):
        lines = [[plain(name), without_places(version, address)] for name, version in versions.items()]
        parts.append(Table(["package", "version"], lines, "Trained with", texts=2))
    parts.append(Table(["of", "hash"], [["model", plain(summary["hash"])]], "Hash", texts=2))
    return Section("History", parts=parts)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def seconds_picture(what: str, seconds: dict[str, float]) -> Picture:
    """The duration of the steps of something."""
    total = sum(seconds.values())
    longest = max(seconds, key=lambda step: seconds[step])

    def paint(axes: Any) -> None:
        values = list(seconds.values())
        pages.bars(axes, list(seconds), values, [f"{v:,.1f}" for v in values], FIRST)
        axes.set_xlabel("seconds")

    text = f"{what} took {number(total)} seconds, {number(seconds[longest])} of them for {longest}."
    table = Table(["step", "seconds"], [[step, f"{took:,.2f}"] for step, took in seconds.items()])
    size_ = (360, pages.bars_height(len(seconds)))
    return pages.picture(f"Time of {what.lower()}", text, paint, size=size_, table=table)


SHAPE = ("n_leaves", "landmarks", "products", "overlap")


def search_page(name: str, found: dict[str, Any]) -> Page:
    """found  the content of MODEL.tuned.json under that name"""
    chosen = found["chosen"]
    return Page(
        title=f"Search for {name}",
        lead="Held-out rows evaluate settings; costs are predicted, in linear predictions.",
        facts=[
            (_quality(chosen)[0], _point(chosen)),
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
                _point(one),
                _point({**one, name: one["chosen"]}) if "chosen" in one else "",
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
    texts = ("step", "candidate", "verdict", "incumbent")
    lines = [
        [
            *(plain(line[name]) for name in texts),
            f"{line['gain']:.2g} ± {line['standard_error']:.2g}",
            *(number(line["loss"], 4), number(line["cost_ratio"], 3), f"{line['rows']:,}"),
        ]
        for line in trace
    ]
    heads = [*texts, "gain ± error", "loss", "cost", "rows"]
    return Section("Decisions", text, parts=[Table(heads, lines, texts=4, dense=True, wide=True)])


def _quality(point: dict[str, Any]) -> tuple[str, str]:
    name = quality_name(point)
    return words_of(name), name


def _point(point: dict[str, Any]) -> str:
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
        f" left is cheaper. Chosen: {_point(chosen)} at a cost of {number(chosen['cost_ratio'], 3)}."
    )
    text = " ".join(filter(None, [text, unseen_words(chosen)]))
    lines = [
        [
            f"{number(p['cost_ratio'], 3)}{' (chosen)' if p == chosen else ''}",
            _point(p),
            *(f"{p[key]:,}" for key in SHAPE),
            plain(p["scaling"]),
            "yes" if p["within_budget"] else "no",
        ]
        for p in (points if chosen in points else sorted([*points, chosen], key=lambda p: p["cost_ratio"]))
    ]
    heads = ["cost", name, "leaves", "landmarks", "pairs", "overlap", "scaling", "within the budget"]
    return pages.picture("Frontier", text, paint, size=(360, 280), table=Table(heads, lines))
