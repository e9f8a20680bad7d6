"""dcpred evaluate and dcpred report."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import dcpred
from dcpred.cli.commands import command
from dcpred.cli.options import ADDRESS, PATH, emit
from dcpred.cli.rendering import beyond_training, drift_words, field_lines, rows, short
from dcpred.evaluation.figures import figures_of
from dcpred.execution.terminal import Verbosity, verbosity, wrapped
from dcpred.pages import check_free, size
from dcpred_tasks.result_fields import result_class, result_field

CLASSES_SHOWN = 12  # the classes with the least recall, where there are more
PAIRS_SHOWN = 5
COLUMNS = 80
SHOWN_QUANTILES = ("0.05", "0.25", "0.5", "0.75", "0.95")  # some of the stored quantiles of residuals


def evaluated(r: dict[str, Any]) -> str:
    """Facts in two columns, then classes or residuals."""
    left_out = f", {r['n_bad']:,} of them not finite and skipped" if r["n_bad"] else ""
    if r.get("n_unlabelled"):
        left_out += f"; {r['n_unlabelled']:,} more without a target"
    pairs = [("rows", f"{r['n_samples']:,}{left_out}")]
    pairs += [(name, text + _means(r, name)) for name, text in field_lines(figures_of(r), r)]
    if r.get("metric"):
        score = "not defined for these rows by this model" if r["score"] is None else f"{r['score']:.6g}"
        pairs.append((r["metric"].partition("=")[0], score))
    moved = drift_words(r)
    beside = [*([("drift", moved)] if moved else []), *beyond_training(r)]
    if " (" in r.get("engine", ""):  # with the reasons against other engines
        beside.append(("engine", r["engine"]))
    compared = [wrapped(f"{name}: {text}", COLUMNS, indent=2) for name, text in beside]
    blocks = [rows(pairs + _cost(r)), *compared, *_classes(r), *_thresholds(r), *_confusions(r)]
    blocks += [*_residuals(r), *_quarters(r)]
    return "\n\n".join(blocks)


def _means(r: dict[str, Any], name: str) -> str:
    """What a number means, where its name does not state it."""
    if name == "interval_coverage":
        return f"  (fraction of rows inside intervals of alpha {r['interval_alpha']:g})"
    if name == "accuracy" and "most_frequent_share" in r:
        return f"  (class {short(r['most_frequent_class'])} alone {100 * r['most_frequent_share']:.2f} %)"
    if name == "threshold":
        return f"  (minimum probability of class {short(r['classes'][1]['class'])} for its label)"
    if name == "interval_winkler":
        return "  (width, plus a penalty for rows outside; less is better)"
    if name not in ("auc", "average_precision"):
        return ""
    if len(r["classes"]) > 2:
        return "  (one class against the rest, averaged)"
    return f"  (class {short(r['classes'][1]['class'])})" if name == "average_precision" else ""


def _cost(r: dict[str, Any]) -> list[tuple[str, str]]:
    """The cost of a model, as every page shows it, and the time per row; -v shows the measurements."""
    found = []
    cost = r.get("predicted_cost_ratio") or r.get("cost_ratio")  # baselines have only a measured cost
    if cost is not None:
        found.append(("cost", f"{cost:.1f} linear predictions"))
    if "engine" in r:
        found.append(("engine", r["engine"].partition(" (")[0]))
    if "cost_ratio" not in r:
        return found
    found.append(("us_per_row", f"{r['us_per_row']:.3f}  (measured on this machine)"))
    return found + (_measured(r) if verbosity() >= Verbosity.MORE else [])


def _measured(r: dict[str, Any]) -> list[tuple[str, str]]:
    ratio = f"{r['cost_ratio']:.1f}"
    if r["beside_other_work"]:
        ratio = f"{r['least_cost_ratio']:.1f} to {r['most_cost_ratio']:.1f}, beside other work"
    return [
        ("measured_cost", f"{ratio}  (in cache {r['cached_cost_ratio']:.1f})"),
        (
            "linear_us_per_row",
            f"{r['linear_us_per_row']:.4f}  (in cache {r['cached_linear_us_per_row']:.4f})",
        ),
        ("cached_us_per_row", f"{r['cached_us_per_row']:.3f}"),
    ]


def _classes(r: dict[str, Any]) -> list[str]:
    """A table of classes in their order, or of those with the least recall."""
    classes = [one for one in r.get("classes", ()) if one["rows"] or one["predicted"]]
    if not classes:
        return []
    shown, head = classes, ""
    if len(classes) > CLASSES_SHOWN:
        shown = sorted(classes, key=lambda one: (one["recall"] is None, one["recall"]))[:CLASSES_SHOWN]
        head = f"the {CLASSES_SHOWN} of {len(classes):,} classes with the least recall\n"
    names = [short(one["class"]) for one in shown]
    width = max(len("class"), *map(len, names))
    lines = [f"{'class':<{width}}  {'rows':>11}  {'recall':>8}  {'precision':>9}"]
    lines += [
        f"{name:<{width}}  {one['rows']:>11,}  {_percent(one['recall']):>8}  {_percent(one['precision']):>9}"
        for name, one in zip(names, shown, strict=True)
    ]
    return [head + "\n".join(lines)]


def _thresholds(r: dict[str, Any]) -> list[str]:
    """The effect of a threshold on the probability of the second of two classes."""
    found = r.get("thresholds")
    if not found:
        return []
    lines = [f"rows that are class {short(r['classes'][1]['class'])} with a probability of"]
    lines.append(f"{'at least':>9}  {'rows':>11}  {'precision':>9}  {'recall':>8}  {'gain':>6}")
    lines += [
        f"{one['threshold']:>9.4g}  {one['rows']:>11,}  {_percent(one['precision']):>9}"
        f"  {_percent(one['recall']):>8}  {one['gain']:>6.1f}"
        for one in found
    ]
    return ["\n".join(lines)]


def _confusions(r: dict[str, Any]) -> list[str]:
    pairs = (r.get("confusions") or [])[:PAIRS_SHOWN]
    if not pairs or len(r["classes"]) == 2:
        return []
    lines = [
        f"  {one['rows']:>9,}  {short(one['class'])} predicted as {short(one['taken_for'])}" for one in pairs
    ]
    return ["\n".join(["most frequent errors, in rows", *lines])]


def _residuals(r: dict[str, Any]) -> list[str]:
    found = r.get("residual_quantiles")
    if found is None:
        return []
    cells = [f"{found[share]:.4g}" for share in SHOWN_QUANTILES]
    heads = [f"{100 * float(share):g} %" for share in SHOWN_QUANTILES]
    width = max(map(len, [*cells, *heads]))
    lines = ["  ".join(f"{cell:>{width}}" for cell in line) for line in (heads, cells)]
    return ["\n".join(["residuals (target minus prediction), by fraction of rows below", *lines])]


def _quarters(r: dict[str, Any]) -> list[str]:
    quarters = r.get("interval_quarters")
    if not quarters:
        return []
    lines = [f"{'predictions':>25}  {'rows':>11}  {'inside':>8}"]
    lines += [f"{_range(one):>25}  {one['rows']:>11,}  {_percent(one['coverage']):>8}" for one in quarters]
    return ["\n".join(["intervals by quarter of the prediction", *lines])]


def _range(quarter: dict[str, Any]) -> str:
    return f"{quarter['least_prediction']:.4g} to {quarter['largest_prediction']:.4g}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"


@command("evaluate", "model", "data")
def evaluate_command(model: str | Path, data: str, as_json: bool, **options: Any) -> None:
    """With --json the output also holds what `dcpred report` draws: that command accepts it as a file."""
    emit(dcpred.evaluate(model, data, **options, verbose=True).as_dict(), as_json, evaluated)


@result_class
class WrittenReport:
    """The written page."""

    report: str = result_field("Path of the page.")
    title: str = result_field("Title of the page.")
    bytes: int = result_field("Size of the page, in bytes.")


@command("report", "path", path={"type": ADDRESS}, data={"metavar": "DATA"})
@click.option(
    "--out", type=PATH, default="report.html", show_default=True, metavar="FILE", help="File to write."
)
def report_command(path: str | Path, out: Path, as_json: bool, **options: Any) -> None:
    """PATH is a model, the output of `dcpred evaluate --json`, the result of a search (MODEL.tuned.json), the
    output of a run or the root of a refresh, or the folder of a comparison. The page replaces an earlier
    report at FILE.
    """
    check_free(out)
    made = dcpred.report(path, **options, verbose=True)
    made.save(out)
    emit(asdict(WrittenReport(str(out), made.title, out.stat().st_size)), as_json, _written)


def _written(r: dict[str, Any]) -> str:
    return rows([("report", f"{r['report']}  ({size(r['bytes'])})"), ("title", r["title"])])
