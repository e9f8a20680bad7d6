"""The result of a search for storage and display: settings, quality, Pareto front, trace, references."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from dcpred.execution.progress import counted
from dcpred.tuning.frontier_plot import shown
from dcpred.tuning.metrics import SQUARED, Metric, compare
from dcpred.tuning.policy import THOROUGH
from dcpred.tuning.portfolio import DEFAULT
from dcpred.tuning.search import Found
from dcpred.tuning.trials import Candidate, TrialResult, Trials
from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.training.losses import DISTANCE
from dcpred_tasks.training.reference_models import BOOSTING, KERNEL
from dcpred_tasks.training.settings import Settings, settings_dict

MORE = 5  # A larger budget, as a multiple of the given one
SHAPE = ("scaling", "n_leaves", "landmarks", "products", "overlap")


def described(found: Found, trials: Trials) -> dict[str, Any]:
    """The fields of a report. The choice, the default settings and the references are evaluated on the same
    rows: with many rows, on some that no choice used.
    """
    chosen, references, settings = found.chosen, [], found.chosen.settings
    points = [_row(one, one, trials) for one in _frontier(found.judged)]
    if trials.n_judged:
        final = trials.unseen()
        [default] = final.evaluate([Candidate(DEFAULT, {})], final.folds)
        chosen = final.again(chosen)
        losses = final.reference((BOOSTING, KERNEL))
        if default is not None and found.chosen.candidate.name != DEFAULT:
            losses = {DEFAULT + " settings": default.losses, **losses}
        references = [_reference(name, other, chosen, final) for name, other in losses.items()]
        settings = replace(settings, landmarks=chosen.settings.landmarks)
        made = replace(chosen, settings=settings)
        line = _row(made, chosen, final, _apart(found.chosen, trials, chosen, final))
        if final is not trials:
            line["unseen"] = True  # No choice used these rows.
    else:
        line = _row(chosen, chosen, trials)
    return {
        "settings": settings_dict(settings),
        "chosen": line,
        "frontier": points,
        "trace": found.trace,
        "references": references,
        "words": _in_words(references, trials),
    }


def chosen_in_words(s: Settings) -> str:
    """The choice, in a sentence."""
    leaves = counted(s.n_leaves or 1, "leaf", "leaves")
    landmarks = counted(s.landmarks, "landmark", "landmarks")
    landmarks += " near the local SVMs" if s.loss == DISTANCE else ""
    gamma = s.head_gamma or s.gamma
    width = gamma if isinstance(gamma, str) else f"{gamma:.3g}"
    return f"chosen: {leaves}, {landmarks}, overlap {s.overlap}, {s.scaling} scaling, γ {width}"


def _frontier(judged: Sequence[TrialResult]) -> list[TrialResult]:
    """Candidates that no cheaper one equals, by cost: the Pareto front."""
    best: list[TrialResult] = []
    for one in sorted(judged, key=lambda one: (one.cost.cost_ratio, one.loss)):
        if not best or one.loss < best[-1].loss:
            best.append(one)
    return best


def _apart(first: TrialResult, trials: Trials, last: TrialResult, final: Trials) -> float:
    """The standard deviation of the mean losses of folds by time: future rows are another fold."""
    if not trials.rule.ordered:
        return 0.0
    means = {}
    for one, own in ((first, trials), (last, final)):
        for fold, at in own.held.items():
            means[fold] = np.average(one.losses[at], weights=one.weight[at])
    return float(np.std(list(means.values()), ddof=1)) if len(means) > 1 else 0.0


def _row(one: TrialResult, shown: TrialResult, trials: Trials, apart: float = 0.0) -> dict[str, Any]:
    """A line of the Pareto front, with the quality of `shown`; it is None without an evaluation.

    apart  addition to the standard error of the mean loss, in squares
    """
    s, n = one.settings, trials.n_judged
    quality = quality_of(shown.losses if n else np.zeros(0), shown.weight, trials, trials.clusters, apart)
    if trials.rule.words:
        quality["held_out"] = trials.rule.words
    shape = {name: getattr(s, name) for name in SHAPE}
    cost = {"cost_ratio": one.cost.cost_ratio, "ns_per_row": one.cost.ns_per_row}
    if n and trials.n_classes:
        counts = np.bincount(trials.target.astype(np.int64), weights=trials.weight)
        quality["most_frequent_share"] = float(counts.max() / counts.sum())
    return {**quality, "n_judged": n, **cost, "within_budget": True, **shape}


def quality_of(
    losses: FloatArray, weight: FloatArray, trials: Trials, clusters: IntArray, apart: float = 0.0
) -> dict[str, Any]:
    """The mean of a metric in the form for users, with its name and standard error."""
    metric = trials.metric
    if not len(losses):
        return {"metric": metric.name, metric.name: None, "standard_error": None}
    found = metric.score(float(weight / weight.sum() @ losses))
    error = standard_error(losses, weight, metric, clusters, apart)
    return {"metric": metric.name, metric.name: found, "standard_error": error}


def standard_error(
    losses: FloatArray,
    weight: FloatArray,
    metric: Metric,
    clusters: IntArray,
    apart: float = 0.0,
) -> float:
    """The standard error of a metric.

    clusters   (n,), the same number for rows that vary together
    apart      addition to that of the mean loss, in squares
    """
    share = weight / weight.sum()
    mean = float(share @ losses)
    sums, n_clusters = np.bincount(clusters, share * (losses - mean)), len(np.unique(clusters))
    error = float(np.sqrt(sums @ sums * n_clusters / max(n_clusters - 1, 1)))
    if metric.counted:
        # As if two more rows were right and two more wrong (Agresti and Coull, 1998).
        n = len(losses)
        wrong = (n * mean + 2.0) / (n + 4.0)
        error = max(error, float(np.sqrt(wrong * (1 - wrong) / (n + 4.0))))
    error = float(np.hypot(error, apart))
    return error / max(2.0 * metric.score(mean), 1e-300) if metric is SQUARED else error


def _reference(name: str, losses: FloatArray, chosen: TrialResult, final: Trials) -> dict[str, Any]:
    comparison = compare(chosen.losses, losses, chosen.weight, counted=final.metric.counted)
    seen = ~np.isnan(losses)
    share = chosen.weight[seen] / chosen.weight[seen].sum()
    return {
        "name": name,
        **quality_of(losses[seen], chosen.weight[seen], final, final.clusters[seen]),
        "n_judged": int(seen.sum()),
        "chosen": final.metric.score(float(share @ chosen.losses[seen])),
        "gain": comparison.gain,
        "gain_error": comparison.standard_error,
        "better": comparison.gain > comparison.standard_error,
    }


def _in_words(references: Sequence[dict[str, Any]], trials: Trials) -> str:
    """A sentence if a reference is better by more than a standard error; else empty."""
    better = [one for one in references if one["better"] and one["name"] in (BOOSTING, KERNEL)]
    if not better:
        return ""
    best = max(better, key=lambda one: one["gain"])
    return (
        f"{best['name']} with default settings is better on the same held-out rows ({shown(best)}):"
        f" {_advice(best['name'], trials)}"
    )


def _advice(name: str, trials: Trials) -> str:
    """Advice in the form of the search's call. An SVM costs more than a budget allows."""
    on_disk, ratio = bool(trials.job.x), trials.budget.ratio
    limit = f"{MORE * ratio:.0f}x"
    command = f"`dcpred tune --budget {limit}`" if on_disk else f'budget="{limit}"'
    budget = f" ({command})" if ratio < inf else ""
    if name == KERNEL or not on_disk or trials.policy.name == THOROUGH.name:
        return f"try a larger budget{budget}"
    return f"try `dcpred tune` for a longer search, or a larger budget{budget}"


def decision_in_words(line: dict[str, Any]) -> str:
    """A line of the trace."""
    return (
        f"{line['step']}: {line['candidate']} ({line['loss']:.4g}, cost {line['cost_ratio']:.1f}x)"
        f" {line['verdict']} {line['incumbent']} ({line['incumbent_loss']:.4g}); gain {line['gain']:.2g} ±"
        f" {line['standard_error']:.2g} on {line['rows']:,} rows"
    )
