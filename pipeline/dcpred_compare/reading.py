"""A comparison that is read from its folder, finished or not."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dcpred.pages.page import Page
from dcpred_compare.baselines.leaf_model_type import leaf_model_types
from dcpred_compare.files import KERNELS, POINTS, REQUEST, ROWS, SHARED, stored_result
from dcpred_compare.page import comparison_page
from dcpred_compare.result import CompareReport, CompareResult, KernelError
from dcpred_compare.rows import Rows, read_rows
from dcpred_compare.systems import Point, every_system
from dcpred_tasks.annotations import from_document
from dcpred_tasks.errors import DataError, DcpredError
from dcpred_tasks.model.leaf_model import EXACT
from dcpred_tasks.storage.atomic_files import read_arrays

FIGURES = ("quality", "us_per_row", "seconds", "bytes", "multiplications")  # copied from a result


def page_of_folder(folder: Path) -> Page:
    """The page of a comparison, whose files anybody may have changed."""
    try:
        report = read_comparison(folder)
    except (AttributeError, LookupError, TypeError, ValueError, FileNotFoundError) as error:
        if isinstance(error, DcpredError):
            raise
        raise DataError(
            f"Cannot make a report of {folder}: it is not an output of dcpred compare. Make it again."
        ) from error
    return comparison_page(report)


def read_comparison(folder: Path) -> CompareReport:
    """The comparison in a folder, finished or not, by system. Raises DataError without a point."""
    request = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
    points = [from_document(Point, document) for document in request["points"].values()]
    points = [point for point in points if (folder / POINTS / f"{point.name}.json").exists()]
    if not points or not (folder / ROWS).exists():
        raise DataError(f"Cannot read a comparison at {folder}: it has no result yet. Run it again.")
    order = {name: number for number, name in enumerate(every_system())}
    points.sort(key=lambda point: order.get(point.system, len(order)))
    return _report(folder, request, read_rows(folder), stored_result(folder, SHARED), points)


def _report(
    folder: Path, request: dict[str, Any], rows: Rows, shared: dict[str, Any], points: list[Point]
) -> CompareReport:
    from dcpred.training.metrics import label_score

    task, metric = request["task"], request.get("metric")
    exact = _predicted(folder, f"{EXACT}-0")
    results, every = [], {point.name: stored_result(folder, point.name) for point in points}
    linear = _linear_us(every.values())
    for point in points:
        result = every[point.name]
        predicted = _predicted(folder, point.name) if result["status"] == "done" else None
        figures = {name: result.get(name) for name in FIGURES}
        if metric is not None and predicted is not None:
            figures["quality"] = label_score(metric, rows.target_test, predicted)
        line = {
            "system": point.system,
            "what": point.what,
            "status": result["status"],
            "why": result.get("why") or _limit(result),
            "cost_ratio": _cost(result, linear),
            "agreement": _agreement(predicted, exact, task),
        }
        results.append(from_document(CompareResult, line | figures))
    there = (folder / POINTS / f"{KERNELS}.json").exists()
    errors: dict[str, Any] = stored_result(folder, KERNELS) if there else {"status": "done"}
    return CompareReport(
        folder=str(folder),
        task=task,
        n_rows=len(rows.X),
        n_test_rows=len(rows.X_test),
        n_features=rows.X.shape[1],
        shared=shared["settings"],
        results=results,
        kernel_errors=[asdict(from_document(KernelError, error)) for error in errors.get("errors", [])],
        shared_seconds=shared.get("seconds", 0.0),
        notes=[
            *_units(linear),
            *_cut(results),
            *_without_errors(errors),
            *_left_out(rows),
            *_caveats(results),
        ],
        metric=metric,
    )


def _caveats(results: Sequence[CompareResult]) -> list[str]:
    """Where baselines of the table fail, each sentence once."""

    kinds = (leaf_model_types().get(result.system) for result in results)
    return list(dict.fromkeys(kind.caveat for kind in kinds if kind and kind.caveat))


def _linear_us(results: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Microseconds of a linear prediction by computer: the median of all points, which vary by half."""
    measured: dict[str, list[float]] = {}
    for result in results:
        if "linear_us" in result:
            measured.setdefault(result["host"], []).append(result["linear_us"])
    return {host: float(np.median(times)) for host, times in measured.items()}


def _cost(result: dict[str, Any], linear: dict[str, float]) -> float | None:
    """The cost of a row in linear predictions; older files without a common unit keep theirs."""
    if "linear_us" not in result:
        return result.get("cost_ratio")
    return float(result["us_per_row"] / linear[result["host"]])


def _cut(results: list[CompareResult]) -> list[str]:
    """A sentence on the systems whose grids the time limit cut."""
    cut = dict.fromkeys(result.system for result in results if result.status == "time limit")
    words = []
    for system in cut:
        its = [result for result in results if result.system == system]
        words.append(f"{system} ({sum(result.status == 'done' for result in its)} of {len(its)} points)")
    return [f"The time limit ended {', '.join(words)} early."] if words else []


def _units(linear: dict[str, float]) -> list[str]:
    """A sentence on the unit of costs on each computer."""
    units = [f"{1e3 * us:.3g} ns{f' on {host}' if len(linear) > 1 else ''}" for host, us in linear.items()]
    return [f"A linear prediction takes {', '.join(units)}, the median of all points."] if units else []


def _without_errors(result: dict[str, Any]) -> list[str]:
    if result["status"] == "done":
        return []
    why = result.get("why") or _limit(result)
    return [f"Errors of kernel functions are missing: {result['status']}{f', {why}' if why else ''}."]


def _left_out(rows: Rows) -> list[str]:
    sentences = []
    if rows.n_bad:
        sentences.append(f"{rows.n_bad:,} rows are skipped: some of their values are not finite.")
    if rows.n_unseen:
        sentences.append(f"{rows.n_unseen:,} test rows are skipped: no training row has their class.")
    return sentences


def _limit(result: dict[str, Any]) -> str:
    return f"{result['limit_seconds']:g} s for this system" if result["status"] == "time limit" else ""


def _predicted(folder: Path, name: str) -> Any:
    file = folder / POINTS / f"{name}.npz"
    return read_arrays(file)["predicted"] if file.exists() else None


def _agreement(predicted: Any, exact: Any, task: str) -> float | None:
    if predicted is None or exact is None:
        return None
    if task == "classification":
        return float((predicted == exact).mean())
    return float(np.corrcoef(predicted, exact)[0, 1]) if predicted.std() > 0 and exact.std() > 0 else None
