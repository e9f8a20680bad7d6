"""Choose settings by a search, and train with them."""

import os
import shutil
import time
import warnings
from ast import literal_eval
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from dcpred.execution.block_plan import plan_routing
from dcpred.execution.interrupts import forget_signal
from dcpred.execution.lease import LEASE_FILES, acquire_lock, check_unlocked
from dcpred.execution.pools import started_once
from dcpred.execution.progress import counted, show, show_detail, show_job, show_step, show_where
from dcpred.execution.workers import InlineWorkers
from dcpred.public.remarks import add_remarks
from dcpred.serving.cost import measured_linear_ns, predict_cost
from dcpred.training.fit import (
    TrainingRequest,
    check_driver,
    check_name,
    check_training_data,
    fingerprints,
    fit_model,
    named_features,
    numbered_for,
    training_hashes,
)
from dcpred.training.metrics import compare, standard_error
from dcpred.training.policy import ACCURACY, DEFAULT, STANDARD, THOROUGH, Budget, SearchPolicy, rounded_up
from dcpred.training.quality import quality_name, shown
from dcpred.training.reports import SHAPE, Point, TrainReport, TuneReport
from dcpred.training.scratch import clear_scratch, distrusted, make_scratch, own_mark, search_folder
from dcpred.training.search import Search, SearchOutcome
from dcpred.training.search_result import found_before
from dcpred.training.steps import Known, Training
from dcpred.training.trials import Candidate, TrialResult, Trials
from dcpred_tasks.annotations import from_document
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.dtypes import FloatArray, IntArray
from dcpred_tasks.engine.compiler import forget_failures
from dcpred_tasks.errors import InterruptedRunError, PlanConflictError, RefusedError, SettingsError
from dcpred_tasks.process import one_thread
from dcpred_tasks.remarks import remark
from dcpred_tasks.scratch import MemoryJob, TrainJob, with_folds
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.addresses import path_on_disk
from dcpred_tasks.storage.atomic_files import (
    PARTIAL,
    check_new_name,
    is_free,
    is_system_file,
    read_own_json,
    resource_errors,
    write_json,
)
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.zarr_arrays import chunk_rows, read_rows
from dcpred_tasks.training import refinement
from dcpred_tasks.training.categories import NOT_CODED, CodedFeatures, features_named
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.in_memory import BOOSTING, KERNEL
from dcpred_tasks.training.losses import DISTANCE
from dcpred_tasks.training.settings import Settings, make_settings, settings_dict

DEARER = 1.15  # Cost of a model, as a multiple of the foreseen one, from which a remark is due
MORE = 5  # A larger budget, as a multiple of the given one
MEMORY_CHUNK_BYTES = 16 * 2**20  # rows in memory are read as if they lay in chunks of this size
NOT_JUDGED = (
    "too few rows to hold any out: nothing was evaluated; settings are those that a search begins with"
)
OTHER_ROWS = "settings are those of a search on other rows, which does not show the quality on these"
# What a search for these data shares with one for others, in words.
OF_DATA = {
    "task": "the task",
    "n_features": "the number of features",
    "columns": "the names of features",
    "n_classes": "the number of classes",
}
SMALLER = "Write the input with smaller chunks, or start fewer or larger workers"
ASKED = {  # what decides a choice (`_asked`), where its name does not say it
    "seconds": "time limit",
    "search": "search",
    "folds": "way to hold out rows",
    "references": "choice of reference models",
}
MARK = "tune.json"


def described(outcome: SearchOutcome, trials: Trials) -> dict[str, Any]:
    """The fields of a report. The choice, and the default settings and reference models if they are asked
    for, are evaluated on the same rows: with many rows, on some that no choice used.
    """
    chosen, references, settings = outcome.chosen, [], outcome.chosen.settings
    points = [_row(result, result, trials) for result in _frontier(outcome.judged)]
    if trials.n_judged and not outcome.complete:
        final = copy(trials)
        final.hold_out(
            [fold for fold in trials.folds if not np.isnan(chosen.losses[trials.held[fold]]).any()]
        )
        [evaluated] = final.evaluate([chosen.candidate], final.folds)
        line = _row(chosen, evaluated or chosen, final)
        points, line = points or [line], line | {"extrapolated": False}
    elif trials.n_judged:
        final = trials.unseen()
        chosen = final.again(chosen)
        if trials.policy.references:
            references = _references(outcome.chosen, chosen, final)
        settings = replace(settings, landmarks=chosen.settings.landmarks, trees=chosen.settings.trees)
        made = replace(chosen, settings=settings)
        points = _front_rows(outcome, made, trials)
        foretold = final.foretold(chosen)
        line = _row(made, foretold, final, _apart(outcome.chosen, trials, chosen, final))
        line["extrapolated"] = foretold is not chosen  # to a model of all rows
        if final is not trials:
            line["unseen"] = True  # No choice used these rows.
    else:
        line = _row(chosen, chosen, trials) | {"extrapolated": False}
    return {
        "settings": settings_dict(settings),
        "chosen": line,
        "frontier": points,
        "trace": outcome.trace,
        "references": references,
        "words": _in_words(references, trials),
    }


def chosen_in_words(s: Settings) -> str:
    """The choice, in a sentence."""
    leaves = counted(s.n_leaves or 1, "leaf", "leaves")
    landmarks = counted(s.landmarks, "landmark", "landmarks")
    landmarks += " near the local SVMs" if s.loss == DISTANCE else ""
    gamma = s.compact_gamma or s.gamma
    width = gamma if isinstance(gamma, str) else f"{gamma:.3g}"
    trees = f"at most {counted(s.trees, 'tree', 'trees')} of depth {s.tree_depth}"
    if not s.landmarks:
        return f"chosen: {trees}, without leaves"
    landmarks += f", {trees}" if s.trees else ""
    return f"chosen: {leaves}, {landmarks}, overlap {s.overlap}, {s.scaling} scaling, γ {width}"


def _frontier(judged: Sequence[TrialResult]) -> list[TrialResult]:
    """Candidates that no cheaper one equals, by cost: the Pareto front."""
    best: list[TrialResult] = []
    for result in sorted(judged, key=lambda result: (result.cost.cost_ratio, result.loss)):
        if not best or result.loss < best[-1].loss:
            best.append(result)
    return best


def _front_rows(outcome: SearchOutcome, made: TrialResult, trials: Trials) -> list[dict[str, Any]]:
    """The Pareto front with the choice, at the cost of its model and with the quality of its trial."""
    front = _frontier(outcome.judged)
    if not any(result is outcome.chosen for result in front):
        front.append(outcome.chosen)
    rows = [_row(made if result is outcome.chosen else result, result, trials) for result in front]
    return sorted(rows, key=lambda row: float(row["cost_ratio"]))


def _trees_of_cost(result: TrialResult) -> int:
    """The trees that the cost is of: held-out rows of a training may choose more, up to the setting."""
    most = int(np.ceil(result.n_trees)) if len(result.losses) else result.settings.trees
    return min(result.settings.trees, most)


def _apart(first: TrialResult, trials: Trials, last: TrialResult, final: Trials) -> float:
    """The standard deviation of the mean losses of folds by time: future rows are another fold."""
    if not trials.rule.ordered:
        return 0.0
    means = {}
    for result, its_trials in ((first, trials), (last, final)):
        for fold, at in its_trials.held.items():
            means[fold] = np.average(result.losses[at], weights=result.weight[at])
    return float(np.std(list(means.values()), ddof=1)) if len(means) > 1 else 0.0


def _row(result: TrialResult, shown: TrialResult, trials: Trials, apart: float = 0.0) -> dict[str, Any]:
    """A line of the Pareto front, with the quality of `shown`; it is None without an evaluation.

    apart  addition to the standard error of the mean loss, in squares
    """
    s, n = result.settings, trials.n_judged
    quality = quality_of(shown.losses if n else np.zeros(0), shown.weight, trials, trials.clusters, apart)
    if trials.rule.words:
        quality["held_out"] = trials.rule.words
    shape = {name: getattr(s, name) for name in ("scaling", *SHAPE)} | {"trees": _trees_of_cost(result)}
    cost = {"cost_ratio": result.cost.cost_ratio, "ns_per_row": result.cost.ns_per_row}
    if n and trials.n_classes:
        counts = np.bincount(trials.target.astype(np.int64), weights=trials.weight)
        quality["most_frequent_share"] = float(counts.max() / counts.sum())
    within = {"within_budget": True, "settings": settings_dict(s)}
    return {**quality, "n_judged": n, **cost, **within, **shape}


def quality_of(
    losses: FloatArray, weight: FloatArray, trials: Trials, clusters: IntArray, apart: float = 0.0
) -> dict[str, Any]:
    """The mean of a metric in the form for users, with its name and standard error."""
    metric = trials.metric
    if not len(losses):
        return {"metric": metric.name, metric.name: None, "standard_error": None}
    quality = metric.score(float(weight / weight.sum() @ losses))
    error = standard_error(losses, weight, metric, clusters, apart)
    return {"metric": metric.name, metric.name: quality, "standard_error": error}


def _references(searched: TrialResult, chosen: TrialResult, final: Trials) -> list[dict[str, Any]]:
    """Default settings, where the search found others, and reference models beside the choice."""
    losses = final.reference((BOOSTING, KERNEL))
    [default] = final.evaluate([Candidate(DEFAULT, {})], final.folds)
    if default is not None and searched.candidate.name != DEFAULT:
        losses = {DEFAULT + " settings": default.losses, **losses}
    return [_reference(name, other, chosen, final) for name, other in losses.items()]


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
    better = [r for r in references if r["better"] and r["name"] in (BOOSTING, KERNEL)]
    if not better:
        return ""
    best = max(better, key=lambda reference: reference["gain"])
    of_choice = shown(best | {quality_name(best): best["chosen"]})
    return (
        f"{best['name']} with default settings is better on the same held-out rows ({shown(best)}; the choice"
        f" has {of_choice}): {_advice(best['name'], trials)}"
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
        f" {line['verdict']} {line['incumbent']} ({line['incumbent_loss']:.4g}, cost"
        f" {line['incumbent_cost_ratio']:.1f}x); gain {line['gain']:.2g} ±"
        f" {line['standard_error']:.2g} on {line['rows']:,} rows"
    )


def on_this_machine(budget: Budget, n_features: int) -> Budget:
    """A budget in nanoseconds with the time of a linear prediction here: costs are ratios."""
    linear = measured_linear_ns(n_features)
    show(
        f"a linear prediction of {counted(n_features, 'feature', 'features')} takes {linear:.1f} ns on this"
        f" computer: {budget.ns:g} ns are {budget.ns / linear:.1f} of them"
    )
    return replace(budget, linear_ns=linear)


def search_and_fit(
    request: TrainingRequest,
    policy: SearchPolicy = THOROUGH,
    budget: Budget | None = None,
    search: str | Path | None = None,
) -> TuneReport:
    """Choose settings for a data set, and train with them.

    request  with the task, and settings that are not searched for (BESIDE_A_SEARCH, min_leaf_rows)
    policy   the size of the search
    budget   the maximum cost of a row; None: 20 linear predictions or 100 ns, whichever is more, or twice the
             cost of the cheapest model if that is more
    search   a model whose search is used in place of a new one

    Raises what `fit_model` raises, and SettingsError if no model is within the budget.
    """
    check_name(request.model)
    with show_job("choosing settings and training"), started_once(request.pool) as pool:
        request = replace(request, settings=_start(request.settings), pool=pool)
        earlier = None if search is None else point_of(search, budget, policy)
        choice, known = _choice(request, policy, budget, earlier)
        begin = time.perf_counter()
        report = fit_model(replace(request, settings=make_settings(choice["settings"])), known)
    choice["seconds"]["train"] = time.perf_counter() - begin
    made = _made(request.model)
    tell_if_dearer(choice["chosen"], made["cost_ratio"])
    return TuneReport(**choice, made=made, trained=report.stored())


def tell_if_dearer(chosen: Mapping[str, Any], cost_ratio: float) -> None:
    """Add a remark if a model costs much more than its search foresaw: all rows may need a slower walk."""
    foreseen = chosen["cost_ratio"]
    if cost_ratio > DEARER * foreseen:
        words = f"a row costs {cost_ratio:.1f} linear predictions, {foreseen:.1f} were foreseen"
        add_remarks(remark("dearer-model", words))


def finished_search(model: str | Path, report: TrainReport) -> TuneReport | None:
    """The report of a search that ended in a finished model; None where its choice was removed."""
    path = path_on_disk(model)
    if path is None or not (tuned := path.with_name(f"{path.name}.tuned.json")).exists():
        return None
    fields = found_before(read_own_json(tuned), tuned)
    return TuneReport(**fields, made=_made(path), trained=report.stored())


@dataclass(frozen=True)
class Earlier:
    """The search of another model, for use with new rows."""

    model: str
    fields: dict[str, Any]
    """The fields of its report, with the chosen point."""
    data: Mapping[str, Any]
    """Its data (`_data_of`)."""

    def on(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a report on these data; without a quality if rows differ. Raises SettingsError."""
        for name, words in OF_DATA.items():
            earlier, new = self.data[name], data[name]
            if earlier != new:
                differs = "" if name == "columns" else f": {earlier} against {new}"
                raise SettingsError(
                    f"Cannot use the search of {self.model}: it is of other data ({words}{differs}). Search"
                    " without it."
                )
        if self.data["rows"] == data["rows"]:
            return self.fields
        points = [_without_quality(point) for point in self.fields["frontier"]]
        chosen = _without_quality(self.fields["chosen"]) | {"extrapolated": False, "unseen": False}
        other = {"frontier": points, "chosen": chosen, "trace": [], "references": [], "words": OTHER_ROWS}
        return self.fields | other


def _without_quality(point: dict[str, Any]) -> dict[str, Any]:
    name = quality_name(point)
    shared = {key: value for key, value in point.items() if key not in ("held_out", "most_frequent_share")}
    return shared | {"metric": name, name: None, "standard_error": None, "n_judged": 0}


def _data_of(request: TrainingRequest, contents: Mapping[str, str], n_classes: int) -> dict[str, Any]:
    """What a later call compares with its own data."""
    x = open_array(request.arrays[0])
    names = named_features(request.arrays[0])
    return {
        "rows": request.table or digest_json(contents),
        "task": request.settings.task,
        "n_features": int(x.shape[1]),
        "n_classes": n_classes,
        "columns": digest_json({"names": names}) if names else "",
    }


def _n_classes(y: str, task: str) -> int:
    """The number of classes of a stored target, read chunk by chunk."""
    array, classes = open_array(y), np.zeros(0)
    if task == "regression":
        return 0
    for begin in range(0, array.shape[0], chunk_rows(array)):
        values = read_rows(array, begin, min(begin + chunk_rows(array), array.shape[0]))
        classes = np.unique(values if not begin else np.concatenate([classes, values]))
    return len(classes) if classes.dtype.kind != "f" else int(np.count_nonzero(~np.isnan(classes)))


def point_of(model: str | Path, budget: Budget | None, policy: SearchPolicy) -> Earlier:
    """The search of a model, with another point of its Pareto front as the choice: the best one within a
    budget. Raises SettingsError.
    """
    path = path_on_disk(model)
    tuned = path and path.with_name(f"{path.name}.tuned.json")
    if tuned is None or not tuned.exists():
        raise SettingsError(f"Cannot use the search of {model}: there is no {tuned}. Search without it.")
    stored = read_own_json(tuned)
    fields, data = found_before(stored, tuned) | {"seconds": {}}, stored.get("data")
    if not isinstance(data, dict) or not {*OF_DATA, "rows"} <= data.keys():
        raise SettingsError(
            f"Cannot use the search of {model}: it is of an earlier version. Search without it."
        )
    if budget is None and policy.prefer != ACCURACY:
        return Earlier(str(model), fields, data)
    points = [p for p in fields["frontier"] if budget is None or budget.allows(from_document(Point, p))]
    if not points:
        assert budget is not None
        least = rounded_up(min(point["cost_ratio"] for point in fields["frontier"]))
        raise SettingsError(
            f"Cannot use the search of {model}: no point of its Pareto front is within the budget of"
            f" {budget.words}; the cheapest one takes {least}. Allow at least that, or search without it."
        )
    chosen = points[-1] | {"extrapolated": False, "unseen": False}
    settings = dict(chosen.pop("settings"))
    if budget is not None and settings.get("trees"):
        settings["trees"] = min(settings["trees"], chosen["trees"])
    point = {"settings": settings, "chosen": chosen, "references": [], "words": ""}
    return Earlier(str(model), fields | point, data)


def choose_settings(
    X: NDArray[Any],
    y: NDArray[Any],
    weight: NDArray[np.float64],
    start: Settings,
    coded: CodedFeatures = NOT_CODED,
    *,
    budget: Budget | None = None,
    policy: SearchPolicy = STANDARD,
    threads: int = 1,
    folds: Folds | None = None,
) -> tuple[Settings, dict[str, Any]]:
    """The settings with which `tune` would train rows in memory, and the fields of a report. Everything is
    done in the memory of this process.

    coded    target-encoded features
    threads  number of candidates to evaluate at once
    folds    how rows are held out; None: by their numbers
    """
    training = memory_training(X, y, weight, start, coded, threads, folds)
    # Tasks in threads limit the threads of BLAS, and the warnings of k-means, one by one: none may lift the
    # limit of another.
    with show_job("choosing settings"), one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fields, _ = _looked(training, None, policy, budget)
    _print_choice(fields)
    return make_settings(fields["settings"]), fields


def memory_training(
    X: NDArray[Any],
    y: NDArray[Any],
    weight: NDArray[np.float64],
    start: Settings,
    coded: CodedFeatures,
    threads: int,
    folds: Folds | None = None,
) -> Training:
    """The steps of a search before its first trial, on rows in memory."""
    chunk_rows = min(max(MEMORY_CHUNK_BYTES // max(X[:1].nbytes, 1), 1), len(X))
    plan = plan_routing(len(X), X.shape[1], X.dtype.itemsize, chunk_rows)
    arrays = {"x": X, "y": y, "weight": weight}
    job = MemoryJob(
        "", "", "", "", _start(start), plan.n_rows, plan.block_rows, coded, folds=folds, arrays=arrays
    )
    return Training(job, plan, InlineWorkers(threads))


def _looked(
    training: Training, names: tuple[str, ...] | None, policy: SearchPolicy, budget: Budget | None
) -> tuple[dict[str, Any], Trials]:
    """The fields of a report by a search over all rows, and its trials."""
    begin = time.perf_counter()
    survey = training.survey(names)
    training.stored_sample(survey)
    seconds = {"survey": time.perf_counter() - begin}
    trials = Trials(training, survey, training.workers, policy, budget)
    return _report_fields(trials, seconds), trials


def _print_choice(fields: dict[str, Any]) -> None:
    for line in fields["trace"]:
        show_detail(decision_in_words(line))
    show(chosen_in_words(make_settings(fields["settings"])))
    if fields["words"]:
        add_remarks(remark("better-reference" if fields["references"] else "not-evaluated", fields["words"]))
    elif not fields["chosen"]["n_judged"]:
        add_remarks(remark("not-evaluated", NOT_JUDGED))


def _write_choice(path: Path, run: str, data: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    _print_choice(fields)
    write_json(path, {"run": run, "data": data, "found": fields})
    return fields


def _start(start: Settings) -> Settings:
    return replace(start, kernel="rbf", triangle=0, refine=True)


def _choice(
    request: TrainingRequest, policy: SearchPolicy, budget: Budget | None, earlier: Earlier | None
) -> tuple[dict[str, Any], Known | None]:
    """The fields of a report, and facts on all rows if they were computed now."""
    (x, y, weight), model, folds = request.arrays, request.model, request.folds
    forget_failures()
    plan, names = check_training_data(x, y, weight, request.settings)
    start, coded = numbered_for(request.settings, x)
    refinement.check()  # Every candidate refines.
    contents = fingerprints(x, y, weight)
    hashes = training_hashes(contents, start, plan, coded=coded)
    # Trials are the same whatever the time limit; the choice is not.
    runs, trial_runs = (
        [training_hash + _asked(asked, budget, earlier, folds) for training_hash in hashes]
        for asked in (policy, replace(policy, deadline=None))
    )
    tuned, scratch = model.with_name(f"{model.name}.tuned.json"), search_folder(model)
    before = read_own_json(tuned) if tuned.exists() else {}
    if before.get("run") in runs:
        show(f"settings were chosen before; reading them from {tuned}")
        if any(_is_of(scratch, run) for run in trial_runs):  # The search was interrupted at its very end.
            shutil.rmtree(scratch, ignore_errors=True)
        return found_before(before, tuned), None
    _check_no_other(model, str(before.get("run")), runs[0], hashes)
    check_new_name(model, f".tuned.json{PARTIAL}")
    if earlier is not None:
        data = _data_of(request, contents, _n_classes(y, start.task))
        return _write_choice(tuned, runs[0], data, earlier.on(data)), None
    _check_own(scratch)
    check_unlocked(open_place(scratch))
    if budget is not None and budget.ns < float("inf"):
        budget = on_this_machine(budget, open_array(x).shape[1])
    job = TrainJob(x, y, weight, str(scratch.absolute()), start, plan.n_rows, plan.block_rows, coded)
    check_driver(plan, x, start)
    with request.pool() as workers, resource_errors(scratch):
        show_where("searching", workers, scratch)
        workers.check_memory(plan.task_bytes, SMALLER)
        make_scratch(scratch, model)
        with acquire_lock(open_place(scratch)):
            if goes_on := _prepared(scratch, trial_runs[0]):
                show("resuming an interrupted search")
            try:
                workers.check_sees(str(scratch.absolute()))
                with distrusted(scratch, goes_on):
                    training = Training(with_folds(job, folds), plan, workers)
                    fields, trials = _looked(training, names, policy, budget)
                    sample = training.stored_sample(trials.survey)
            except InterruptedRunError:
                raise InterruptedRunError(
                    "interrupted during the search for settings; run the same command again to resume it"
                ) from None
            except RefusedError as error:
                # After the first evaluation, a second call resumes: a chunk or a cluster may be repaired,
                # but a budget stays too small.
                if isinstance(error, SettingsError) or not has_judged(scratch):
                    shutil.rmtree(scratch, ignore_errors=True)
                raise
            _write_choice(tuned, runs[0], _data_of(request, contents, len(trials.survey.classes)), fields)
            shutil.rmtree(scratch, ignore_errors=True)
    return fields, Known(contents, trials.survey, sample, training.targets)


def _asked(policy: SearchPolicy, budget: Budget | None, earlier: Earlier | None, folds: Folds | None) -> str:
    """What decides a choice besides the data and the settings that a search begins with."""
    asked = policy.asked | {"budget": None if budget is None else str(budget)}
    asked |= {"search": digest_json(earlier.fields)} if earlier else {}
    asked |= {"folds": str(folds.identity())} if folds else {}
    return str(sorted(asked.items()))


def _check_no_other(model: Path, earlier: str, run: str, data: Sequence[str]) -> None:
    """Raises PlanConflictError if a model, or work at one, exists already.

    earlier, run  the text that identifies the finished search of this model, and that of this search
    data          the hashes of data and settings with which such a text may begin
    """
    unfinished = model.with_name(f"{model.name}.scratch")
    check_unlocked(open_place(unfinished))
    for there in (model, unfinished):
        if not is_free(there):
            raise PlanConflictError(
                f"Cannot write a model to {model}: {there} is there already, and this search did not choose"
                f" its settings: {_differs(earlier, run, data)} Remove it or choose another path."
            )


def _differs(earlier: str, run: str, data: Sequence[str]) -> str:
    of_these = [start for start in data if earlier.startswith(start)]
    if not of_these:
        return (
            "data, settings or version of dcpred differ. Data in files differ when these have other times or"
            " sizes."
        )
    before, now = (
        dict(literal_eval(text.removeprefix(start)))
        for text, start in ((earlier, of_these[0]), (run, data[0]))
    )
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return f"it was asked for another {' and another '.join(ASKED.get(name, name) for name in names)}."


def _report_fields(trials: Trials, seconds: dict[str, float]) -> dict[str, Any]:
    """The fields of a report. Raises SettingsError if the budget allows no model."""
    begin = time.perf_counter()
    with features_named(named_features(trials.job.x)) if trials.job.x else nullcontext():
        with show_step("choosing held-out rows", None, ""):
            trials.prepare()
        seconds["rows"] = time.perf_counter() - begin
        begin = time.perf_counter()
        with show_step("evaluating settings", 1.0, "") as trials.advance:
            outcome = Search(trials).run()
            if outcome is None and not trials.named:
                trials.widen()
                outcome = Search(trials).run()
    seconds["search"] = time.perf_counter() - begin
    if outcome is None:
        raise SettingsError(
            f"Cannot find a model within a budget of {trials.budget.words}: the cheapest one of these rows"
            f" takes {trials.least()}. Allow at least that."
        )
    return described_in_time(outcome, trials) | {"seconds": seconds}


def described_in_time(outcome: SearchOutcome, trials: Trials) -> dict[str, Any]:
    """The fields of a report; with a time limit, an interruption leaves out what no trial has shown."""
    try:
        return described(outcome, trials)
    except (InterruptedRunError, KeyboardInterrupt):
        if trials.policy.deadline is None:
            raise
        forget_signal()
        return described(replace(outcome, complete=False), trials)


def _check_own(scratch: Path) -> None:
    """Raise PlanConflictError if the directory for temporary files is somebody else's."""
    if (
        scratch.exists()
        and not (scratch / MARK).exists()
        and any(not (LEASE_FILES.fullmatch(name) or is_system_file(name)) for name in os.listdir(scratch))
    ):
        raise PlanConflictError(
            f"Cannot use {scratch} for temporary files: it holds other files. Remove them."
        )


def _prepared(scratch: Path, run: str) -> bool:
    """Make the directory ready for a run: True if it resumes the same one; other files are removed."""
    _check_own(scratch)
    if _is_of(scratch, run) and read_own_json(scratch / MARK) == own_mark(run):
        return True
    if has_judged(scratch):
        is_own_code = read_own_json(scratch / MARK).get("code") == own_mark(run)["code"]
        by = "of other data, settings or budget" if is_own_code else "by another version of dcpred"
        show(f"removing files of a search {by} in {scratch}")
    write_json(scratch / MARK, {})  # The directory is ours, and of no run until all else is removed.
    clear_scratch(scratch)
    (scratch / "survey").mkdir()
    write_json(scratch / MARK, own_mark(run))
    return False


def _is_of(scratch: Path, run: str) -> bool:
    """Whether the directory for temporary files is that of a run."""
    return (scratch / MARK).exists() and read_own_json(scratch / MARK).get("run") == run


def _made(path: Path) -> dict[str, Any]:
    model = open_artifact(path).model()
    cost, landmarks = predict_cost(model), np.diff(model.landmark_at)
    working = landmarks[landmarks > 0]
    return {
        "cost_ratio": cost.cost_ratio,
        "ns_per_row": cost.ns_per_row,
        "n_leaves": model.n_leaves,
        "least_landmarks": int(working.min()) if len(working) else 0,
        "most_landmarks": int(landmarks.max()),
    }


def has_judged(scratch: Path) -> bool:
    """Whether a search has evaluated anything there."""
    return any(scratch.glob("tried-*.npz"))
