"""Write one page of HTML, with plots, of a model, an evaluation, a search, a run or a comparison; and the
parts of the page of a model.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dcpred.evaluation.evaluate import evaluate, without_infinite
from dcpred.execution.progress import reporter, reporting, show_step
from dcpred.execution.workers import one_line
from dcpred.extensions import REPORTS, registered
from dcpred.pages import charts
from dcpred.pages.page import (
    Page,
    Picture,
    Report,
    Section,
    Table,
    attention,
    check_packages,
    counted,
    headlines,
    number,
    percent,
    render,
)
from dcpred.public.parameters import documented
from dcpred.public.remarks import add_remarks
from dcpred.public.results import plain
from dcpred.refreshing.root import RootStatus, RunLine, root_status
from dcpred.reports.evaluation_page import (
    evaluation_facts,
    evaluation_page,
    evaluation_sections,
    evaluation_warnings,
    last_name,
    without_places,
)
from dcpred.reports.inspection import ModelFacts, inspect
from dcpred.reports.run_page import Run, open_run, run_page
from dcpred.results.stored_scores import open_stored
from dcpred.runs.latest import PLAN, RUNS, SETTINGS, run_meant
from dcpred.runs.ledger import open_ledger
from dcpred.serving.cost import predict_cost
from dcpred.serving.served_model import ServedModel
from dcpred.training.column_report import describe_map, map_in_words
from dcpred.training.quality import (
    interval_words,
    is_share,
    judged,
    less_is_better,
    quality_name,
    unseen_words,
    words_of,
)
from dcpred.training.reports import Point, front_with, is_chosen, with_cost
from dcpred.training.search_result import checked_search, paint_frontier
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.artifacts.model_artifact import MODEL_FILE, Artifact, open_artifact
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError
from dcpred_tasks.evaluation.counts import known_targets
from dcpred_tasks.evaluation.measures import Measures
from dcpred_tasks.model.compact_model import Model, Scores, score_rows
from dcpred_tasks.model.contributions import known_importances, mean_contributions, method, parts_of
from dcpred_tasks.model.moments import known_reference
from dcpred_tasks.model.target_transform import NO_TRANSFORM
from dcpred_tasks.remarks import Remark, remarks_of
from dcpred_tasks.result_fields import document_of
from dcpred_tasks.scoring.outputs import DECISION
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.addresses import Address, absolute, below, check_options, local_path, path_on_disk
from dcpred_tasks.storage.addresses import storage_options as given_options
from dcpred_tasks.storage.atomic_files import read_json
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.tables.sources import is_importable
from dcpred_tasks.training.settings import Settings, in_effect

DRAWN_FEATURES = 15
IMPORTANCE_ROWS = 64  # rows that importances are means of: a contribution takes milliseconds
LISTED_FEATURES = 500
LEAF_BARS = 20
LEAST_SHARE = 0.0005  # the smallest fraction of squared distances to draw
# Parts of the cost of a row.
PARTS = {
    "convert": "scaling the row",
    "descend": "walk down the tree",
    "landmarks": "landmarks",
    "outputs": "outputs",
    "terms": "trees beside the leaves",
}


def model_page(address: str, evaluated: dict[str, Any] | None, search: list[Section]) -> Page:
    """address    of a model
    evaluated  its evaluation by `evaluate`, if data were given
    search     sections of the search for its settings, if it is known
    """
    held = document_of(inspect(address))
    artifact = open_artifact(address)
    model = artifact.model()
    names = artifact.feature_names
    facts = [*(evaluation_facts(evaluated) if evaluated else ()), *_facts(held)]
    facts = list(dict(facts).items())  # the cost is the same in both
    return Page(
        title=f"Model {last_name(address)}",
        lead=_lead(held, evaluated),
        facts=facts,
        sections=[
            *(evaluation_sections(evaluated) if evaluated else ()),
            _made_of(held, model, names),
            *search,
            settings_section(held["settings"]),
            _history(held, address),
        ],
        warnings=[
            *attention(_stored_remarks(artifact.provenance.get("report"))),
            *([] if evaluated is None else evaluation_warnings(evaluated)),
        ],
    )


def _stored_remarks(report: object) -> list[Remark]:
    """The remarks of a training, from its report in a model."""
    return remarks_of(report.get("remarks") or ()) if isinstance(report, dict) else []


def _lead(held: dict[str, Any], evaluated: dict[str, Any] | None) -> str:
    n = held["rows_per_leaf"]["total"]
    classes = held["classes"]
    what = "predicts numbers"
    if classes:
        named = ", ".join(plain(name, 40) for name in classes[:5])
        what = f"distinguishes {len(classes):,} classes: {named}" + (
            " and others" if len(classes) > 5 else ""
        )
    quality = ""
    if evaluated is not None:
        bad = f", without {evaluated['n_bad']:,} that are not finite" if evaluated["n_bad"] else ""
        rows = counted(evaluated["n_samples"], "row", "rows")
        quality = f" Its quality is measured on {rows} of {last_name(evaluated['data'])}{bad}."
    return f"It {what}, and was trained on {counted(n, 'row', 'rows')}.{quality}"


def _facts(held: dict[str, Any]) -> list[tuple[str, str]]:
    cost = held["predicted_cost"]
    shown = number(cost["cost_ratio"], 3) if cost else "measured by dcpred evaluate"
    *shape, size = headlines(ModelFacts, held)
    return [*shape, ("cost, linear predictions", shown), size]


def _made_of(held: dict[str, Any], model: Model, names: tuple[str, ...] | None) -> Section:
    """Leaves, the composition of distances, the cost of a row."""
    facts = [
        ("kernel", plain(held["kernel"]["name"])),
        ("landmarks of a leaf", _range(held["landmarks_per_leaf"])),
        ("products", f"{held['n_products']:,}"),
        ("constant leaves", f"{held['n_constant_leaves']:,}"),
        ("depth of the tree", f"{held['tree_depth']:,}"),
    ]
    text = f"A tree sends each row to one of {model.n_leaves:,} leaves, which have their own small models."
    if model.n_leaves < 2:
        text = "All rows are in one leaf."
    text = " ".join([text, *(f"{plain(remark).capitalize()}." for remark in held["shrunk"])])
    parts = [_sizes(held["rows_per_leaf"], np.sort(model.leaf_rows))] if model.n_leaves > 1 else []
    pictures = _importances(model), _features(model, names), _cost(held)
    parts += [part for part in pictures if part is not None]
    return Section("Composition", text, facts, parts)


def _range(counts: dict[str, Any]) -> str:
    least, most = counts["min"], counts["max"]
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def _sizes(rows: dict[str, Any], sizes: Any) -> Picture:
    edges = np.geomspace(max(sizes[0], 1), max(sizes[-1], sizes[0] + 1) + 1, min(LEAF_BARS, len(sizes)) + 1)
    counts = np.histogram(np.maximum(sizes, 1), edges)[0]

    def paint(axes: Any) -> None:
        charts.histogram(axes, edges, counts)
        charts.log_x(axes)
        axes.set_xlabel("training rows of a leaf")
        axes.set_ylabel("leaves")

    text = (
        f"Training rows of the leaves: {rows['min']:,} in the smallest, {rows['max']:,} in the largest,"
        f" {number(rows['median'])} in the median."
    )
    shares = np.array([0, 0.1, 0.25, 0.5, 0.75, 0.9, 1])
    quantiles = [sizes[min(int(share * len(sizes)), len(sizes) - 1)] for share in shares]
    table = Table(
        ["share of leaves", "have rows up to"],
        [[percent(float(s), 0), f"{int(n):,}"] for s, n in zip(shares, quantiles, strict=True)],
    )
    return charts.picture("Sizes of leaves", text, paint, table=table)


def _importances(model: Model) -> Picture | None:
    """The columns by how much they move a prediction; None for leaves of other models, and for very many."""
    if model.leaf_models is not None or model.n_leaves > IMPORTANCE_ROWS:
        return None
    parts = parts_of(model)
    sizes = mean_contributions(model, parts, IMPORTANCE_ROWS)
    order = [int(j) for j in np.argsort(-sizes, kind="stable")[:LISTED_FEATURES] if sizes[j] > 0]
    if not order:
        return None
    is_number = model.task == "regression" and model.target == NO_TRANSFORM
    unit = "the target's unit" if is_number else "units of the decision value"
    text = (
        f"Mean size of what each column adds to the prediction of a training row ({method(model)} of up to"
        f" {IMPORTANCE_ROWS} rows), in {unit}. {plain(parts.names[order[0]])} moves predictions most."
        " `dcpred explain` shows the direction, row by row."
    )
    lines = [[plain(parts.names[j]), number(float(sizes[j]))] for j in order]
    drawn = lines[:DRAWN_FEATURES]
    values = [float(sizes[j]) for j in order[:DRAWN_FEATURES]]
    table = Table(["column", "mean size"], lines)
    names, texts = [name for name, _ in drawn], [text for _, text in drawn]
    return charts.bar_picture("Importance of columns", text, names, values, texts, unit, table)


def _features(model: Model, names: tuple[str, ...] | None) -> Picture | None:
    shares = known_importances(model)
    order = np.argsort(-shares, kind="stable")
    shown = [int(j) for j in order[:DRAWN_FEATURES] if shares[j] >= LEAST_SHARE]
    if not shown:
        return None

    labels = model.scaling.labels(names)

    def called(feature: int) -> str:
        return plain(labels[feature]) if labels else f"feature {feature}"

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
    if map_text := map_in_words(describe_map(model.scaling)):
        text += f" {plain(map_text[0].upper() + map_text[1:], 500)}; means and deviations are raw."
    reference = known_reference(model)
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
    values, axis = [100 * float(shares[j]) for j in shown], "fraction of squared distances, %"
    drawn = [called(j) for j in shown], values, [f"{v:.1f}" for v in values]
    return charts.bar_picture("Composition of distances", text, *drawn, axis, table)


def _cost(held: dict[str, Any]) -> Picture | None:
    cost = held["predicted_cost"]
    if cost is None:
        return None
    there = {name: float(cost[part]) for part, name in PARTS.items() if part in cost}
    names, values = list(there), list(there.values())
    shown = [f"{v:.1f}" for v in values]
    most = names[int(np.argmax(values))]
    text = (
        f"Predicted from the arrays of the model: {number(cost['cost_ratio'], 3)} times as long as a"
        f" linear prediction x @ w of the same row. The largest part is: {most}."
    )
    table = Table(["part", "linear predictions"], [[*line] for line in zip(names, shown, strict=True)])
    return charts.bar_picture("Cost of a row", text, names, values, shown, "linear predictions", table)


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


def _history(held: dict[str, Any], address: str) -> Section:
    """When and how it was trained, from its provenance, which is not authenticated."""
    provenance = _object(held["provenance"])
    took = _object(_object(provenance.get("report")).get("seconds"))
    seconds = {plain(step): float(s) for step, s in took.items() if isinstance(s, int | float)}
    parts: list[Picture | Table] = []
    if seconds:
        parts.append(seconds_picture("Training", seconds))
    versions = provenance.get("versions")
    if isinstance(versions, dict):
        lines = [[plain(name), without_places(version, address)] for name, version in versions.items()]
        parts.append(Table(["package", "version"], lines, "Trained with", texts=2))
    parts.append(Table(["of", "hash"], [["model", plain(held["hash"])]], "Hash", texts=2))
    return Section("History", parts=parts)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def seconds_picture(what: str, seconds: dict[str, float]) -> Picture:
    """The duration of the steps of something."""
    total = sum(seconds.values())
    longest = max(seconds, key=lambda step: seconds[step])
    text = f"{what} took {number(total)} seconds, {number(seconds[longest])} of them for {longest}."
    table = Table(["step", "seconds"], [[step, f"{took:,.2f}"] for step, took in seconds.items()])
    values = list(seconds.values())
    drawn = list(seconds), values, [f"{v:,.1f}" for v in values]
    return charts.bar_picture(f"Time of {what.lower()}", text, *drawn, "seconds", table)


def search_page(name: str, search: dict[str, Any]) -> Page:
    """search  the content of MODEL.tuned.json under that name"""
    chosen = search["chosen"]
    return Page(
        title=f"Search for {name}",
        lead="Held-out rows evaluate settings; costs are predicted, in linear predictions.",
        facts=[
            (_quality(chosen)[0], _point(chosen)),
            ("cost", f"{number(chosen['cost_ratio'], 3)}"),
            *headlines(Point, chosen),
            ("scaling", plain(chosen["scaling"])),
        ],
        sections=[*search_sections(search), settings_section(search["settings"])],
        warnings=[]
        if chosen["n_judged"] or search["words"]
        else ["There were too few rows to hold any out: nothing was evaluated."],
    )


def search_sections(search: dict[str, Any]) -> list[Section]:
    """Sections of the result."""
    chosen, points = search["chosen"], search["frontier"]
    parts: list[Picture | Table] = []
    if chosen["n_judged"] and judged(chosen) is not None:
        parts.append(_frontier(points, chosen))
    seconds = {plain(step): float(took) for step, took in search["seconds"].items()}
    if seconds:
        parts.append(seconds_picture("The search", seconds))
    by = f" ({plain(chosen['held_out'])})" if chosen.get("held_out") else ""
    text = (
        f"Evaluated on {chosen['n_judged']:,} rows held out{by}: {interval_words(chosen)} (two standard"
        " errors)."
        if chosen["n_judged"]
        else "Nothing was evaluated."
    )
    if words := search["words"]:
        text += f" {words[0].upper()}{words[1:]}."
    sections = [Section("Search", text, parts=parts)]
    if search["references"]:
        name = quality_name(chosen)
        lines = [
            [
                plain(line["name"]),
                _point(line),
                _point({**line, name: line["chosen"]}) if "chosen" in line else "",
                f"{line['n_judged']:,}",
            ]
            for line in search["references"]
        ]
        heads = ["model", _quality(chosen)[0], "the choice", "rows"]
        about = "Other models and the choice on the same held-out rows, all or some of them."
        sections.append(Section("References", about, parts=[Table(heads, lines)]))
    if search["trace"]:
        sections.append(_decisions(search["trace"]))
    return sections


def _decisions(trace: list[dict[str, Any]]) -> Section:
    text = (
        "Every decision: a candidate replaces the incumbent if a paired test on held-out rows favours it."
        " Between losses that differ by no more than a standard error, the metric that breaks ties decides."
    )
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
            f"{number(p['cost_ratio'], 3)}{' (chosen)' if is_chosen(p, chosen) else ''}",
            _point(p),
            *(text for _, text in headlines(Point, p)),
            plain(p["scaling"]),
            "yes" if p["within_budget"] else "no",
        ]
        for p in front_with(points, chosen)
    ]
    shape = [head for head, _ in headlines(Point, chosen)]
    heads = ["cost", name, *shape, "scaling", "within the budget"]
    return charts.picture("Frontier", text, paint, size=(360, 280), table=Table(heads, lines))


RUNS_SHOWN = 50


def root_page(status: RootStatus, latest: Page | None) -> Page:
    """latest  the page of the latest run, if it has its own scores"""
    lines = [_line(run, run.run == status.latest) for run in status.runs]
    heads = ["run", "state", "ended (UTC)", "rows", "without a score", "blocks reused", "drift"]
    table = Table(heads, lines, "Runs, the newest first", texts=3, wide=True)
    lead = f"{counted(status.n_runs, 'run', 'runs')} over {last_name(status.data)}"
    lead += f"; the latest is {status.latest}." if status.latest else "; none is finished yet."
    warnings = [
        f"Run {run.run} is damaged: its manifest is modified."
        for run in status.runs
        if run.state == "damaged"
    ]
    if status.driver:
        warnings.append("A refresh is at work.")
    runs = Section("Runs", parts=[table])
    if latest is None:
        return Page(f"Refresh of {last_name(status.data)}", lead, sections=[runs], warnings=warnings)
    return replace(
        latest,
        title=f"Refresh of {last_name(status.data)}",
        lead=f"{lead} What follows is of that run.",
        sections=[runs, *latest.sections],
        warnings=[*warnings, *latest.warnings],
    )


def _line(run: RunLine, is_latest: bool) -> list[str]:
    ended = "–" if run.ended is None else datetime.fromtimestamp(run.ended, UTC).strftime("%Y-%m-%d %H:%M")
    known = run.state in ("latest", "finished")
    return [
        plain(run.run),
        "latest" if is_latest else run.state,
        ended,
        f"{run.n_rows:,}" if run.n_rows else "–",
        f"{run.n_bad:,} ({percent(run.n_bad / run.n_rows, 2)})" if known and run.n_rows else "–",
        f"{run.taken_blocks:,} of {run.n_blocks:,}" if run.n_blocks else "–",
        ("large" if run.drift_is_large else "not large") if known else "–",
    ]


COMPARED = 16  # first rows of each piece that are scored again to detect other rows
TOLERANCE = 0.01  # fraction of the deviation of decision values by which equal rows may differ


def evaluate_run(run: Run, x: Address, y: Address) -> dict[str, Any]:
    """The fields of an evaluation, of the scored rows.

    x  address of the scored rows, or of the same rows elsewhere
    y  address of their targets

    Raises DataError, also if rows of x do not have the scores of the run.
    """
    if run.model is None or DECISION not in run.run.outputs:
        lacking = "its model was removed" if run.model is None else "it holds no decision values"
        raise DataError(f"Cannot evaluate the scores of {run.run.output} on {y}: {lacking}. Score again.")
    target = open_array(y)
    if target.shape != (run.run.n_rows,):
        raise DataError(
            f"Cannot evaluate the scores of {run.run.output} on {y}: it has shape {target.shape}"
            f" and the run {run.run.n_rows:,} rows. Name the scored data."
        )
    if run.model.task != "classification":
        stored_chunks.check_complete(y, target)
    elif lack := stored_chunks.check_labels(y, target):
        add_remarks(lack)
    if absolute(x) == absolute(run.run.x) and not open_ledger(run.run.output).has_same_input():
        raise DataError(
            f"Cannot compare the scores of {run.run.output} with {y}: {x} changed since its rows were scored."
            " Score it again."
        )
    scores = open_stored(run.run.output, partial=True)
    measures, n = Measures(run.model, run.run.costs), 0
    with show_step("evaluating", run.run.n_rows, "rows") as advance:
        for start, stop, done in scores.pieces():
            if done:
                values, status = scores.read([DECISION], start, stop, done)
                good = status == Status.OK
                decision = values[DECISION].reshape(stop - start, -1)
                _check_rows(run, run.model, x, start, decision)
                wanted, _ = known_targets(run.model, target, start, stop)
                measures.add(run.model, decision[good], wanted[good])
                n += stop - start
            advance(stop - start)
    if not measures.n:
        raise DataError(
            f"Cannot evaluate the scores of {run.run.output} on {y}: no row has one. Clean the data."
        )
    result = {
        "task": run.model.task,
        "n_samples": n,
        "n_bad": n - measures.n,
        "data": str(y),
        "model": run.run.model,
    }
    return without_infinite(result | measures.as_dict())


def _check_rows(run: Run, model: Model, x: Address, start: int, stored: Scores) -> None:
    """Raise DataError if the first rows of a piece have other decision values than stored: other rows."""
    if absolute(x) == absolute(run.run.x):
        return
    X = open_array(x)
    scores, _ = score_rows(model, zarr_arrays.read_rows(X, start, start + COMPARED))
    spread = np.nanmedian(np.abs(stored - np.nanmedian(stored, axis=0)), axis=0)
    rounding = 8 * np.finfo(stored.dtype).eps * np.abs(scores)
    wrong = np.abs(scores - stored[: len(scores)]) > TOLERANCE * spread + rounding
    if wrong.any(axis=1).mean() > 0.5 or not len(scores):
        raise DataError(
            f"Cannot evaluate the scores of {run.run.output} on {x}: its rows from {start:,} on are not the"
            f" scored ones, which lie at {run.run.x}. Name the scored data."
        )


TUNED = ".tuned.json"  # the end of a search's file name, which begins with that of its model
MOST_BYTES = 256 * 2**20  # maximum size of a JSON file


@documented
def report(
    path: Any,
    *,
    data: str | Path | None = None,
    x: str = "X",
    y: str = "y",
    storage_options: Mapping[str, str | bool | float] | None = None,
    verbose: bool = False,
) -> Report:
    """Make one page of HTML, with plots, that needs no other file and no network.

    Parameters
    ----------
    path : str, Path, ServedModel or fitted estimator
        A model; the output of `dcpred evaluate --json`; the result of a search (`MODEL.tuned.json`); the
        output of `score` or the root of `refresh`; or the folder of a comparison.
    data : str or Path, optional
        Labelled data set to evaluate a model on, or the scores of a run on its rows.
    y : str, default "y"
        Name of the array of targets in the data.

    Returns
    -------
    Report
        The page, which a notebook shows and the method `save` writes.

    Raises
    ------
    DataError
        If nothing of these exists, or it is damaged.
    SettingsError
        If jinja2 or matplotlib are missing.
    """
    check_packages("a report", "report")
    with (
        given_options(check_options(storage_options or {})),
        reporting(reporter(verbose)),
        _stored(path) as place,
    ):
        return render(_page(place, None if data is None else local_path(data), x, y))


@contextmanager
def _stored(given: Any) -> Iterator[str | Path]:
    """The address of the argument; a fitted estimator is saved temporarily."""
    if isinstance(given, ServedModel):
        yield given.artifact.path
    elif isinstance(given, str | Path):
        yield given
    elif hasattr(given, "save") and hasattr(given, "predict"):
        with TemporaryDirectory(prefix="dcpred-") as folder:
            path = Path(folder) / type(given).__name__
            given.save(path)
            yield path
    else:
        raise DataError(
            f"Cannot make a report of a value of type {type(given).__name__}: it is not a model. Pass a"
            " path, a fitted estimator or a served model."
        )


def _page(path: str | Path, data: str | None, x: str, y: str) -> Page:
    file = path_on_disk(path)
    if file is not None and file.is_file():
        if data is not None:
            raise DataError(
                f"Cannot use data for a report of {path}: it is one file with finished numbers. Omit the"
                " data."
            )
        return _of_file(file)
    place = open_place(run_meant(path))
    if place.read(MODEL_FILE) is not None:
        return _of_model(place.address, data, x, y)
    if place.read(PLAN) is not None:
        return _of_run(place.address, data, x, y)
    if place.read(SETTINGS) is not None:
        return _of_root(place.address, data, x, y)
    if data is None and file is not None:
        for name, page_of_folder in registered(REPORTS).items():
            if place.read(name) is not None:
                page: Page = page_of_folder.load()(Path(place.address))
                return page
    so = "is no source of a report" if place.is_there() else "does not exist"
    raise DataError(
        f"Cannot make a report of {path}: it {so}. Name a model, an evaluation (--json), a search, a run"
        " or a comparison."
    )


def _of_file(path: Path) -> Page:
    """Of an evaluation or a search."""
    if is_importable(path):
        raise DataError(
            f"Cannot make a report of {path}: it is a table. Name a model or an output of `dcpred score`"
        )
    if path.stat().st_size > MOST_BYTES:
        raise DataError(
            f"Cannot make a report of {path}: it has {path.stat().st_size:,} bytes. Check the path."
        )
    try:
        document = read_json(path)
    except ValueError as error:
        raise DataError(
            f"Cannot make a report of {path}: it is not readable ({error}). Check the path."
        ) from None
    if "n_samples" in document:
        return _of_evaluation(document, path)
    if "found" in document:
        search = checked_search(document["found"])
        if search is None:
            raise DataError(
                f"Cannot make a report of {path}: it is not an output of a search. Make it again."
            )
        name = path.name.removesuffix(TUNED)
        model = path.with_name(name)
        if (model / MODEL_FILE).exists():
            search = _of_this_model(search, open_artifact(model))
        return search_page(name, search)
    raise DataError(
        f"Cannot make a report of {path}: it is neither an output of `dcpred evaluate --json` nor of"
        " a search. Name one of these."
    )


def _of_evaluation(document: dict[str, Any], path: Path) -> Page:
    """Anybody may have changed the file."""
    try:
        return evaluation_page(document)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"Cannot draw the evaluation in {path} ({type(error).__name__}: {one_line(str(error))}). Make it"
            " again with `dcpred evaluate --json`; if that one fails too, report a bug with the traceback"
            " (-v)."
        ) from error


def _of_model(address: str, data: str | None, x: str, y: str) -> Page:
    evaluated = None
    if data is not None:
        evaluated = evaluate(address, data, x=x, y=y).as_dict()
    return model_page(address, evaluated, _search_of(address))


def _search_of(address: str) -> list[Section]:
    """The search for a model, if its file is readable and another model did not replace this one."""
    model = path_on_disk(address)
    if model is None:
        return []
    path = model.with_name(f"{last_name(address)}{TUNED}")
    try:
        search = checked_search(read_json(path).get("found"))
    except (OSError, ValueError):
        return []
    artifact = open_artifact(address)
    if search is None or not _is_of_this_model(search, artifact):
        return []
    return search_sections(_of_this_model(search, artifact))


def _is_of_this_model(search: dict[str, Any], artifact: Artifact) -> bool:
    """Whether a model has the settings that a search found."""
    task = artifact.body["task"]
    return in_effect(search["settings"], task) == in_effect(artifact.body["settings"], task)


def _of_this_model(search: dict[str, Any], artifact: Artifact) -> dict[str, Any]:
    """The search with the cost of its model, if that still exists."""
    if not _is_of_this_model(search, artifact):
        return search
    cost = predict_cost(artifact.model()).cost_ratio
    points, chosen = with_cost(search["frontier"], search["chosen"], cost)
    return search | {"frontier": points, "chosen": chosen}


def _of_run(address: str, data: str | None, x: str, y: str) -> Page:
    run = open_run(address)
    evaluated = None
    if data is not None:
        X, target = (find_rows(data, name, run.run.model, with_target=True) for name in (x, y))
        evaluated = evaluate_run(run, X, target)
    return run_page(run, evaluated)


def _of_root(address: str, data: str | None, x: str, y: str) -> Page:
    status = root_status(address, RUNS_SHOWN)
    latest = None
    if status.latest:
        place = open_place(below(address, RUNS, status.latest))
        if place.read(PLAN) is not None:
            latest = _of_run(place.address, data, x, y)
    return root_page(status, latest)
