"""The page of a scoring run: its numbers, the distribution of its scores, rows without one, drift, and labels
where there are some.
"""

import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dcpred.pages import charts
from dcpred.pages.charts import Line
from dcpred.pages.page import Page, Picture, Section, Table, attention, counted, number, percent
from dcpred.public.results import plain
from dcpred.reports.evaluation_page import (
    compared,
    evaluation_facts,
    evaluation_sections,
    last_name,
    without_places,
)
from dcpred.results.stored_scores import open_stored
from dcpred.runs.bad_rows import without_score
from dcpred.runs.ledger import open_ledger
from dcpred.runs.manifest import run_remarks
from dcpred.runs.status import RunStatus, run_status
from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun
from dcpred_tasks.artifacts.model_artifact import Artifact, open_artifact
from dcpred_tasks.dtypes import ACC_DTYPE, FloatArray, IntArray, Status
from dcpred_tasks.errors import DcpredError
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.result_fields import size
from dcpred_tasks.row_sampling import at_most
from dcpred_tasks.scoring.drift import LARGE_PSI, LARGE_SD_RATIO, LARGE_SHIFT, LEAST_ROWS, leaf_drift
from dcpred_tasks.scoring.outputs import CONTRIBUTIONS, LABEL
from dcpred_tasks.scoring.statistics import HISTOGRAM, decision_edges, unpack
from dcpred_tasks.storage.zarr_arrays import read_rows

GROUPS = 40
PHASES = ("read", "score", "statistics", "write")
OK = str(int(Status.OK))


@dataclass
class Group:
    """Successive blocks."""

    first: int
    """Their first row."""
    stop: int = 0
    """The row after their last."""
    rows: int = 0
    good: int = 0
    """Rows with a score."""
    sums: dict[str, IntArray] = field(default_factory=dict)
    """Counts of their statistics: labels, leaf_rows (of sampled rows), decision (flat)."""

    @property
    def middle(self) -> float:
        return (self.first + self.stop) / 2


@dataclass
class Worker:
    """The work of one worker process."""

    blocks: int = 0
    rows: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    peak_bytes: int = 0

    @property
    def rate(self) -> float:
        """Rows per second of work."""
        spent = sum(self.seconds.values())
        return self.rows / spent if spent > 0 else 0.0


@dataclass
class Gathered:
    """The totals of all records."""

    groups: list[Group] = field(default_factory=list)
    workers: dict[str, Worker] = field(default_factory=dict)
    """By the name of their process."""
    status: Counter[str] = field(default_factory=Counter)
    """Rows by status code."""
    bad_rows: list[tuple[int, int, int]] = field(default_factory=list)
    """The first rows without a score: row, status code, first bad feature or −1."""
    quarantined: list[str] = field(default_factory=list)
    """A few of the reasons for skipped rows."""
    n_blocks: int = 0
    taken_over: int = 0
    """Blocks that a refresh reused from earlier runs."""
    retries: int = 0

    def total(self, name: str) -> IntArray | None:
        """A count over all groups; None if no record has it."""
        sums = [group.sums[name] for group in self.groups if name in group.sums]
        return np.sum(sums, axis=0) if sums else None


LISTED_ROWS, LISTED_REASONS = 20, 5


def gather(records: Iterable[CommitRecord], n_blocks: int) -> Gathered:
    """n_blocks  of the whole run, finished or not"""
    gathered = Gathered()
    groups: dict[int, Group] = {}
    for record in records:
        number = record.block * GROUPS // max(n_blocks, GROUPS)
        group = groups.setdefault(number, Group(record.start))
        n, good = record.stop - record.start, record.status.get(OK, 0)
        group.stop, group.rows, group.good = record.stop, group.rows + n, group.good + good
        _add_statistics(group, record.statistics)
        gathered.n_blocks += 1
        gathered.retries += record.retries
        gathered.status.update(record.status)
        gathered.bad_rows += record.bad_rows[: LISTED_ROWS - len(gathered.bad_rows)]
        if record.quarantined and len(gathered.quarantined) < LISTED_REASONS:
            gathered.quarantined.append(record.quarantined)
        if record.origin:
            gathered.taken_over += 1
        else:
            _add_work(gathered.workers.setdefault(record.process, Worker()), record, n)
    gathered.groups = [groups[number] for number in sorted(groups)]
    return gathered


def _add_work(worker: Worker, record: CommitRecord, n_rows: int) -> None:
    spent = record.statistics.get("seconds", 0.0)
    spent = float(spent) if isinstance(spent, int | float) else 0.0
    for phase, seconds in zip(
        PHASES, (record.read_seconds, record.score_seconds, spent, record.write_seconds), strict=True
    ):
        worker.seconds[phase] += seconds
    worker.blocks += 1
    worker.rows += n_rows
    worker.peak_bytes = max(worker.peak_bytes, record.peak_memory_bytes)


def _add_statistics(group: Group, statistics: dict[str, Any]) -> None:
    """Readable counts of the same length as those of other blocks."""
    for name in ("labels", "leaf_rows", HISTOGRAM):
        try:
            stored = statistics[name]
            counts = np.array(stored, np.int64) if isinstance(stored, list) else unpack(stored)
        except (KeyError, TypeError, ValueError, OverflowError, zlib.error):
            continue
        if counts.ndim != 1 or not len(counts):
            continue
        before = group.sums.get(name)
        if before is None or len(before) == len(counts):
            group.sums[name] = counts if before is None else before + counts


DRAWN_CLASSES = 6
DRAWN_WORKERS, LISTED_WORKERS = 20, 200
SHARES = np.array([0.05, 0.5, 0.95])
SAMPLED_ROWS, SAMPLED_PIECES, DRAWN_PARTS = 1_000, 8, 12  # rows and columns of contributions


def labels(gathered: Gathered, classes: list[str]) -> Section:
    """The classes that rows received, in total and over the rows."""
    total = gathered.total("labels")
    if total is None or len(total) != len(classes) or not total.sum():
        return Section("Labels")
    order = np.argsort(-total, kind="stable")
    table = Table(
        ["class", "rows", "share"],
        [[plain(classes[i]), f"{int(total[i]):,}", percent(float(total[i] / total.sum()), 2)] for i in order],
        "Labels" if len(classes) <= 2 * DRAWN_CLASSES else "",
    )
    groups = [g for g in gathered.groups if "labels" in g.sums and g.sums["labels"].sum()]
    parts: list[Picture | Table] = []
    if len(groups) > 1:
        parts.append(_labels_over_rows(groups, [int(i) for i in order[:DRAWN_CLASSES]], classes))
    if len(classes) <= 2 * DRAWN_CLASSES:
        return Section("Labels", parts=[*parts, table])
    return Section("Labels", parts=parts, folded=[(f"Rows of all {len(classes):,} classes", table)])


def _labels_over_rows(groups: list[Group], drawn: list[int], classes: list[str]) -> Picture:
    shares = np.array([g.sums["labels"] / g.sums["labels"].sum() for g in groups])
    x = [g.middle for g in groups]

    def paint(axes: Any) -> None:
        charts.lines(axes, [Line(classes[i], x, 100 * shares[:, i]) for i in drawn])
        _row_axes(axes, "fraction of labels, %")

    spread = shares.max(axis=0) - shares.min(axis=0)
    most = max(drawn, key=lambda i: float(spread[i]))
    some = f" The {len(drawn)} most frequent classes." if len(drawn) < len(classes) else ""
    text = (
        f"The fraction of each class in {len(groups)} successive parts of the rows. The fraction of"
        f" {plain(classes[most])} changes most: between {percent(float(shares[:, most].min()))} and"
        f" {percent(float(shares[:, most].max()))}.{some}"
    )
    cells = [[percent(float(row[i])) for i in drawn] for row in shares]
    table = _by_groups([plain(classes[i]) for i in drawn], groups, cells)
    return charts.picture("Labels over the rows", text, paint, table=table, size=(360, 260))


def _by_groups(heads: list[str], groups: list[Group], cells: list[list[str]]) -> Table:
    """A table with a line for each group."""
    lines = [[f"{group.first:,}", *line] for group, line in zip(groups, cells, strict=True)]
    return Table(["rows from", *heads], lines)


def _row_axes(axes: Any, y: str) -> None:
    """Names of the axes of a plot over the rows."""
    charts.thousands_x(axes)
    axes.set_xlabel("row")
    axes.set_ylabel(y)


def decisions(gathered: Gathered, model: Model | None) -> Section:
    """Decision values of two classes, or predicted numbers: in total and over the rows."""
    total = gathered.total(HISTOGRAM)
    if model is None or total is None or model.n_outputs > 1 or not total.sum():
        return Section("Decision values")
    edges = decision_edges(model)
    if len(total) != len(edges) + 1:
        return Section("Decision values")
    what = "predictions" if model.task == "regression" else "decision values"
    parts = [_histogram(what, edges, total)]
    groups = [g for g in gathered.groups if HISTOGRAM in g.sums and g.sums[HISTOGRAM].sum()]
    if len(groups) > 1:
        parts.append(_over_rows(what, edges, groups))
    text = "" if model.task == "regression" else "Below 0 a row gets the first class, above 0 the second."
    return Section(what.capitalize(), text, parts=parts)


def bin_quantiles(edges: FloatArray, counts: IntArray, shares: FloatArray) -> FloatArray:
    """Quantiles of rows of a histogram: uniform within a bin, and at the edge of an open one."""
    left = np.concatenate([edges[:1], edges])
    right = np.concatenate([edges, edges[-1:]])
    below = np.concatenate([[0], np.cumsum(counts)])
    wanted = shares * below[-1]
    at = np.clip(np.searchsorted(below, wanted, side="left") - 1, 0, len(counts) - 1)
    within = (wanted - below[at]) / np.maximum(counts[at], 1)
    return np.asarray(left[at] + np.clip(within, 0, 1) * (right[at] - left[at]))


def _histogram(what: str, edges: FloatArray, counts: IntArray) -> Picture:
    used = np.flatnonzero(counts)
    first, last = max(used[0] - 1, 0), min(used[-1] + 1, len(counts) - 1)
    inner = np.clip(np.arange(first, last + 1), 1, len(counts) - 2)
    bars = np.bincount(inner - inner[0], weights=counts[first : last + 1]).astype(int)
    ends = edges[inner[0] - 1 : inner[0] + len(bars)]
    density = bars / np.diff(ends)

    def paint(axes: Any) -> None:
        charts.histogram(axes, ends, density)
        axes.set_yticks([])
        axes.set_ylabel("density of rows")
        axes.set_xlabel(what[:-1])

    low, middle, high = bin_quantiles(edges, counts, SHARES)
    text = (
        f"The distribution of the {what}. The median is {number(float(middle), 3)}; nine of ten rows lie"
        f" between {number(float(low), 3)} and {number(float(high), 3)}."
    )
    lines = [
        [f"{number(float(a))} to {number(float(b))}", f"{n:,}"]
        for a, b, n in zip(ends[:-1], ends[1:], bars, strict=True)
        if n
    ]
    return charts.picture(what.capitalize(), text, paint, table=Table([what, "rows"], lines))


def _over_rows(what: str, edges: FloatArray, groups: list[Group]) -> Picture:
    quantiles = np.array([bin_quantiles(edges, g.sums[HISTOGRAM], SHARES) for g in groups])
    x = [g.middle for g in groups]

    def paint(axes: Any) -> None:
        charts.band(axes, x, quantiles[:, 0], quantiles[:, 1], quantiles[:, 2])
        _row_axes(axes, what[:-1])

    text = (
        f"The median (dots) in {len(groups)} successive parts of the rows, and the band with nine of ten"
        f" rows. The median goes from {number(float(quantiles[:, 1].min()), 3)} to"
        f" {number(float(quantiles[:, 1].max()), 3)}."
    )
    cells = [[number(float(v)) for v in row] for row in quantiles]
    table = _by_groups(["5 %", "median", "95 %"], groups, cells)
    return charts.picture(f"{what.capitalize()} over the rows", text, paint, table=table)


def drift(
    gathered: Gathered, drift_found: dict[str, Any] | None, model: Model | None, names: tuple[str, ...] | None
) -> Section:
    """How far rows are from those of training: over the rows by leaves, in total by features."""
    parts: list[Picture | Table] = []
    if model is not None and model.n_leaves > 1:
        groups = _judged(gathered, model.n_leaves)
        if len(groups) > 1:
            parts.append(_stability(groups, model))
    features = (drift_found or {}).get("features")
    if features and features["top"]:
        by_bins = "psi" in features["top"][0]
        parts += compared(drift_found or {}) if by_bins else [_moved(features, names)]
    if not parts:
        return Section("Drift")
    large = bool((drift_found or {}).get("large"))
    text = f"How far the rows are from those of training: {'far' if large else 'not far'}, as a whole."
    leaves = (drift_found or {}).get("leaves")
    if leaves:
        text += f" The stability index of the leaves is {number(leaves['psi'], 3)} (large above {LARGE_PSI})."
    return Section("Drift", text, parts=parts)


def contributions(output: str) -> Section:
    """Contributions of columns to decision values, of rows of the whole output; empty without them."""
    scores = open_stored(output, partial=True)
    array = scores.arrays.get(CONTRIBUTIONS)
    parts = None if array is None else array.attrs.get("parts")
    if array is None or not isinstance(parts, list) or len(parts) != array.shape[1]:
        return Section("Contributions")
    names, scale = [plain(name) for name in parts], array.attrs.get("scale")
    pieces = [(start, stop) for start, stop, done in scores.pieces() if done]
    pieces = [pieces[i] for i in at_most(len(pieces), SAMPLED_PIECES)]
    each = -(-SAMPLED_ROWS // len(pieces))
    sampled = [read_rows(array, a, b)[at_most(b - a, each)] for a, b in pieces]
    values = np.concatenate(sampled).astype(ACC_DTYPE)
    values = values[np.isfinite(values).all(axis=1)]
    mean = np.abs(values).mean(axis=0) if len(values) else np.zeros(len(names))
    shown = sorted(range(len(names) - 1), key=lambda j: -mean[j])[:DRAWN_PARTS]  # the average comes last
    if not len(values) or not mean[shown].any():
        return Section("Contributions")
    labels, height = [names[j] for j in shown], charts.bars_height(len(shown))
    drawn = labels, mean[shown], [number(v, 3) for v in mean[shown]]

    def swarm(axes: Any) -> None:
        charts.swarm(axes, labels, values[:, shown])
        axes.set_xlabel("contribution to the decision value")

    table = Table(
        ["column", "mean absolute", "lowest", "highest"],
        [
            [names[j], *(number(v, 3) for v in (mean[j], values[:, j].min(), values[:, j].max()))]
            for j in shown
        ],
    )
    where = f", on the {plain(str(scale))} scale of the model" if scale else ""
    text = f"What each column adds to the decision value{where}, in {len(values):,} rows of the whole output."
    first = f"{labels[0]} moves decision values most, by {number(mean[shown[0]], 3)} on average."
    every = "A point is a row: to the right the column raises the decision value, to the left it lowers it."
    return Section(
        "Contributions",
        text,
        parts=[
            charts.bar_picture("Which columns matter", first, *drawn, "mean absolute contribution", table),
            charts.picture("Contributions by row", every, swarm, size=(360, height + 40)),
        ],
    )


def _judged(gathered: Gathered, n_leaves: int) -> list[Group]:
    """Groups merged until each has enough sampled rows; the last one may have too few."""
    judged: list[Group] = []
    for group in gathered.groups:
        rows = group.sums.get("leaf_rows")
        if rows is None or len(rows) != n_leaves:
            continue
        if not judged or judged[-1].sums["leaf_rows"].sum() >= LEAST_ROWS:
            judged.append(Group(group.first, group.stop, sums={"leaf_rows": rows}))
        else:
            judged[-1].stop = group.stop
            judged[-1].sums["leaf_rows"] = judged[-1].sums["leaf_rows"] + rows
    return [group for group in judged if group.sums["leaf_rows"].sum() >= LEAST_ROWS]


def _stability(groups: list[Group], model: Model) -> Picture:
    psi = [leaf_drift(model.leaf_rows, g.sums["leaf_rows"]).psi for g in groups]
    x = [g.middle for g in groups]

    def paint(axes: Any) -> None:
        charts.lines(axes, [Line("", x, psi)])
        axes.set_ylim(0, max(max(psi) * 1.15, 1.3 * LARGE_PSI))
        charts.threshold(axes, LARGE_PSI, "large")
        _row_axes(axes, "stability index")

    beyond = sum(value > LARGE_PSI for value in psi)
    text = (
        f"Whether rows fall into leaves as training rows did, in {len(psi)} successive parts of the rows."
        f" {counted(beyond, 'part is', 'parts are').capitalize()} beyond the dashed line; the largest index"
        f" is {number(max(psi), 3)}. A small sample alone makes it larger than 0."
    )
    table = _by_groups(["stability index"], groups, [[number(value, 3)] for value in psi])
    return charts.picture("Drift over the rows", text, paint, table=table)


def _moved(features: dict[str, Any], names: tuple[str, ...] | None) -> Table:
    top = features["top"]
    gaps = any(line.get("gaps") or line.get("training_gaps") for line in top)
    lines = [
        [
            plain(names[line["feature"]]) if names and line["feature"] < len(names) else f"{line['feature']}",
            _moved_by(line),
            number(line["mean"]),
            number(line["training_mean"]),
            *([f"{percent(line['gaps'])} ({percent(line['training_gaps'])})"] if gaps else []),
        ]
        for line in top
    ]
    far = counted(features["n_large"], "feature has", "features have")
    what = "the means, or of the fractions of missing values," if gaps else "the means,"
    text = (
        f"By the difference of {what} in standard deviations, or by the ratio of standard deviations (sd);"
        f" {far} moved far ({LARGE_SHIFT} or more, or an sd {LARGE_SD_RATIO:g} times as large or as small)."
    )
    heads = ["feature", "moved by", "mean", "in training", *(["missing (before)"] if gaps else [])]
    return Table(heads, lines, "Features that moved most", text)


def _moved_by(line: dict[str, Any]) -> str:
    """What moved most of a feature: its mean, its spread, or its fraction of missing values."""
    shift, of_gaps, spread = line["shift"], line.get("gap_shift", 0.0), line.get("spread_shift", 0.0)
    if of_gaps is None:
        return "all missing" if line["gaps"] else "none missing"
    if shift is None:
        return "another constant"
    if spread is None or abs(spread) > max(abs(shift), abs(of_gaps)):
        return (
            "sd of 0"
            if not line["sd"]
            else f"sd × {line['sd_ratio']:.3g}"
            if line["sd_ratio"]
            else "was constant"
        )
    return f"{max(shift, of_gaps, key=abs):+.2f}".replace("-", "−")


def workers(gathered: Gathered) -> Section:
    """Rows per second of each worker. Workers have numbers here to keep names of computers private."""
    known = [worker for worker in gathered.workers.values() if worker.rows]
    if not known:
        return Section("Workers")
    rates = [worker.rate for worker in known]
    total = {phase: sum(worker.seconds[phase] for worker in known) for phase in PHASES}
    spent = sum(total.values())
    heads = ["worker", "blocks", "rows", "rows/s", *(f"{phase}, s" for phase in PHASES), "memory"]
    lines = [
        [
            f"{number_ + 1}",
            f"{worker.blocks:,}",
            f"{worker.rows:,}",
            f"{worker.rate:,.0f}",
            *(f"{worker.seconds[phase]:,.2f}" for phase in PHASES),
            size(worker.peak_bytes),
        ]
        for number_, worker in enumerate(known[:LISTED_WORKERS])
    ]
    table, drawn = Table(heads, lines), rates[:DRAWN_WORKERS]
    bars = [f"worker {i + 1}" for i in range(len(drawn))], drawn, [f"{rate:,.0f}" for rate in drawn]
    some = f" The first {DRAWN_WORKERS} are drawn." if len(known) > DRAWN_WORKERS else ""
    text = f"1 worker: {rates[0]:,.0f} rows a second while it worked."
    if len(known) > 1:
        text = (
            f"{len(known):,} workers: from {min(rates):,.0f} to {max(rates):,.0f} rows a second while they"
            f" worked.{some}"
        )
    speed = charts.bar_picture(
        "Speed of workers", text, *bars, "rows per second of work", table, thousands=True
    )
    parts = (
        ", ".join(f"{percent(seconds / spent, 0)} {phase}" for phase, seconds in total.items())
        if spent
        else "–"
    )
    facts = f"All workers together worked {number(spent, 3)} seconds: {parts}."
    return Section("Workers", facts, parts=[speed])


NAMES = {str(int(status)): status.name.lower().replace("_", " ") for status in Status}
FAILURES_SHOWN = 20


@dataclass(frozen=True)
class Run:
    """The data of a run."""

    run: ScoreRun
    status: RunStatus
    manifest: dict[str, Any]
    """Empty if it is not finished."""
    gathered: Gathered
    model: Model | None
    """None if it was removed."""
    feature_names: tuple[str, ...] | None

    @property
    def n_bad(self) -> int:
        """Rows without a score in finished blocks."""
        return without_score(self.gathered.status)


def open_run(output: str) -> Run:
    """Raises PlanConflictError if there is none."""
    ledger = open_ledger(output)
    artifact = _artifact(ledger.run)
    return Run(
        ledger.run,
        run_status(output),
        ledger.whole_manifest() or {},
        gather(ledger.records(), ledger.n_blocks),
        None if artifact is None else artifact.model(),
        None if artifact is None else artifact.feature_names,
    )


def _artifact(run: ScoreRun) -> Artifact | None:
    """The model of a run, if it still exists unchanged."""
    try:
        artifact = open_artifact(run.model)
        return artifact if artifact.hash == run.model_hash else None
    except DcpredError:
        return None


def run_page(run: Run, evaluated: dict[str, Any] | None) -> Page:
    """evaluated  the quality of the scores, if targets are given"""
    model, data = last_name(run.run.model), last_name(run.run.x)
    return Page(
        title=f"Scores of {data}",
        lead=f"{counted(run.run.n_rows, 'row', 'rows')} of {data}, scored by the model {model}.",
        facts=[*(evaluation_facts(evaluated)[1:] if evaluated else ()), *_facts(run)],
        sections=[
            *(evaluation_sections(evaluated) if evaluated else ()),
            _rows(run),
            labels(run.gathered, _classes(run)),
            decisions(run.gathered, run.model),
            contributions(run.run.output),
            drift(run.gathered, run.manifest.get("drift"), run.model, run.feature_names),
            workers(run.gathered),
            _failed(run),
            _made(run),
        ],
        warnings=_warnings(run),
    )


def _classes(run: Run) -> list[str]:
    if run.model is not None:
        return [str(name) for name in run.model.classes]
    rows_by_label = (run.manifest.get("statistics") or {}).get("labels") or []
    return [str(line[LABEL]) for line in rows_by_label]


def _warnings(run: Run) -> list[str]:
    words = []
    if run.status.state != "finished":
        left = run.status.n_blocks - run.status.done_blocks
        what = "goes on" if run.status.state == "scoring" else "is not finished; run the same command again"
        words.append(f"The run {what}: {counted(left, 'block is', 'blocks are')} left.")
    if run.manifest:
        words += attention(run_remarks(run.manifest, last_name(run.run.output)))
    if run.model is None:
        words.append("The model is missing: parts that need it are omitted.")
    return words


def _facts(run: Run) -> list[tuple[str, str]]:
    status, gathered = run.status, run.gathered
    done = sum(gathered.status.values())
    rates = [worker.rate for worker in gathered.workers.values()]
    facts = [
        ("rows", f"{status.n_rows:,}"),
        ("with a score", percent((done - run.n_bad) / status.n_rows, 2)),
        ("without a score", f"{run.n_bad:,}"),
        ("blocks", f"{status.done_blocks:,} of {status.n_blocks:,}"),
    ]
    if rates:
        facts.append(("rows/s of a worker", f"{sum(rates) / len(rates):,.0f}"))
    drifted = run.manifest.get("drift")
    if drifted is not None:
        facts.append(("drift", "large" if drifted.get("large") else "not large"))
    return facts


def _rows(run: Run) -> Section:
    lines = [
        [
            NAMES.get(code, f"status {plain(code)}"),
            plain(code),
            f"{rows:,}",
            percent(rows / run.run.n_rows, 3),
        ]
        for code, rows in sorted(run.gathered.status.items())
    ]
    left = run.run.n_rows - sum(run.gathered.status.values())
    if left:
        lines.append(["not scored yet", "0", f"{left:,}", percent(left / run.run.n_rows, 3)])
    parts = [Table(["outcome", "status", "rows", "fraction"], lines, "Rows by status")]
    if run.gathered.bad_rows:
        names = run.feature_names
        bad = [
            [
                f"{row:,}",
                NAMES.get(str(code), str(code)),
                "–"
                if feature < 0
                else plain(names[feature])
                if names and feature < len(names)
                else f"{feature}",
            ]
            for row, code, feature in run.gathered.bad_rows
        ]
        more = run.n_bad - len(bad)
        title = "Rows without a score" + (f", the first {len(bad)} of {run.n_bad:,}" if more > 0 else "")
        parts.append(Table(["row", "why", "first feature to blame"], bad, title, texts=3))
    return Section("Rows", parts=parts)


def _failed(run: Run) -> Section:
    """Failed blocks, and reasons of skipped rows."""
    addresses = (run.run.x, run.run.model, run.run.output)
    lines = [
        [f"{failure['block']:,}", without_places(failure["error"], *addresses), f"{failure['deaths']:,}"]
        for failure in run.status.failing[:FAILURES_SHOWN]
    ]
    parts = []
    if lines:
        more = len(run.status.failing) - len(lines)
        title = "Blocks that failed" + (f", and {more:,} more" if more > 0 else "")
        parts.append(Table(["block", "error", "workers lost"], lines, title, texts=2, wraps=True, wide=True))
    if run.gathered.quarantined:
        reasons = [
            [str(i + 1), without_places(reason, *addresses)]
            for i, reason in enumerate(run.gathered.quarantined)
        ]
        parts.append(Table(["", "reason"], reasons, "Skipped rows", texts=2, wraps=True, wide=True))
    retries = run.gathered.retries
    if not parts and not retries:
        return Section("Failures", "Nothing failed.")
    text = f"{counted(retries, 'read or write was', 'reads or writes were')} tried again." if retries else ""
    return Section("Failures", text, parts=parts)


def _made(run: Run) -> Section:
    """The hashes and versions of a run."""
    manifest = run.manifest
    hashes = [["run", plain(run.run.run)], ["model", plain(run.run.model_hash)]]
    facts = []
    memory = max((worker.peak_bytes for worker in run.gathered.workers.values()), default=None)
    if memory:
        facts.append(("memory of a worker, at most", size(memory)))
    if run.gathered.taken_over:
        facts.append(("blocks reused", number(run.gathered.taken_over)))
    versions = manifest.get("versions")
    folded = []
    if isinstance(versions, dict):
        lines = [[plain(name), plain(version)] for name, version in versions.items()]
        folded.append(("Versions", Table(["package", "version"], lines, texts=2)))
    parts = [Table(["of", "hash"], hashes, "Hashes", texts=2)]
    return Section("How it was made", facts=facts, parts=parts, folded=folded)
