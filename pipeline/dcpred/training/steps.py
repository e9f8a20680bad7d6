"""The steps of a training."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dcpred.execution.block_plan import BLOCKS, BlockPlan
from dcpred.execution.progress import Step, counted, show, show_step
from dcpred.execution.workers import Workers, run_all
from dcpred.public.remarks import add_remarks, recorded
from dcpred.training.column_report import columns_in_words, describe_gaps, describe_map
from dcpred.training.reports import TrainReport
from dcpred.training.scratch import Identity
from dcpred_tasks.artifacts.data_schema import schema_of_array
from dcpred_tasks.artifacts.model_artifact import write_model
from dcpred_tasks.artifacts.trained_rows import FIELD as TRAINED_ROWS
from dcpred_tasks.artifacts.trained_rows import sketch
from dcpred_tasks.dtypes import IntArray
from dcpred_tasks.errors import DcpredError
from dcpred_tasks.model.class_codes import class_codes
from dcpred_tasks.model.label_rule import threshold_of
from dcpred_tasks.model.scaling import STRIP_NUMBERS, Scaling
from dcpred_tasks.model.target_transform import TargetTransform
from dcpred_tasks.model.tree import Router
from dcpred_tasks.model.uncertainty import Uncertainty
from dcpred_tasks.process import one_thread, peak_memory_bytes, versions
from dcpred_tasks.scoring.labels import Label
from dcpred_tasks.scratch import (
    INDEX_ENTRIES,
    LeafWork,
    Sample,
    Source,
    StoredDivision,
    TrainJob,
    is_done,
    join_samples,
    read_division,
    read_fitted_leaf,
    read_folds,
    read_split,
    read_sums,
    read_survey,
    write_division,
    write_index,
    write_known,
    write_targets,
    write_tree,
)
from dcpred_tasks.storage.atomic_files import read_arrays
from dcpred_tasks.task_bodies.train_model import (
    Receipt,
    fit_leaves,
    halo_leaves,
    route_block,
    split_leaf,
    survey_block,
)
from dcpred_tasks.training.categories import CrossFitted, fit_target_means
from dcpred_tasks.training.changed_settings import changed_settings
from dcpred_tasks.training.fitted_to_targets import FittedToTargets, TargetSample, whole_models
from dcpred_tasks.training.held_out import HeldOut, folds_of_leaves, joined, measured, measured_transform
from dcpred_tasks.training.in_memory import LabelledSample, held_by_models
from dcpred_tasks.training.leaf import FittedLeaf
from dcpred_tasks.training.partition import (
    Division,
    assemble,
    class_factors,
    first_leaves,
    n_outputs,
)
from dcpred_tasks.training.settings import Settings, settings_dict
from dcpred_tasks.training.survey import Survey, check_survey, merge_surveys, sampled_rows, with_bins
from dcpred_tasks.training.training_remarks import lacking_class, training_remarks
from dcpred_tasks.training.tree_fitting import Balanced, Split, balance, flatten

GROUP_ROWS = 2**12  # maximum rows of small leaves that one task gathers and fits
ROW_COPIES = (
    4  # arrays as long as the rows, in float64: rows read, scaled, centred; kernel values or gradients
)
SAMPLE_COPIES = 4  # scaled samples: all rows, those that learn, and two for a nearest-neighbour search
STRIP_COPIES = 4  # arrays of STRIP_NUMBERS numbers in double precision
INDEX_BYTES = 100  # bytes of an entry of an index during sorting
BLOCK_BYTES = 2_000  # bytes of a block in the driver: its tasks, paths and replies
LEAF_BYTES = 6_000  # bytes of a leaf in the driver: its task, and its arrays without their numbers
GRAM_COPIES = 3  # a Gram matrix, its regularised copy, and its factor or the part that LIBSVM keeps


def leaf_bytes(n_rows: int, n_features: int, settings: Settings) -> int:
    """Maximum memory of fitting the largest leaf: Gram matrices, its rows, and their kernel values."""
    rows = min(n_rows, settings.max_leaf_rows)
    n_basis = settings.landmarks + settings.products + settings.triangle
    return 8 * (
        GRAM_COPIES * min(rows, settings.local_rows) ** 2 + ROW_COPIES * rows * (n_basis + n_features)
    )


def driver_bytes(plan: BlockPlan, n_features: int, itemsize: int, settings: Settings) -> int:
    """Maximum memory of the driver of a training: the sample with its scaled copies, or the leaves and a
    model of the size that readers accept, which is at most a quarter of its memory.
    """
    numbers = min(plan.n_rows, sampled_rows(settings.sample_rows, n_features)) * n_features
    sample = numbers * (itemsize + SAMPLE_COPIES * 4) + STRIP_COPIES * 8 * min(STRIP_NUMBERS, numbers)
    n_leaves = max(first_leaves(plan.n_rows, settings), -(-plan.n_rows // settings.own_leaf_rows))
    index = INDEX_BYTES * max(min(INDEX_ENTRIES, plan.n_rows), n_leaves)
    basis = settings.landmarks + settings.products + settings.triangle
    model = 4 * n_leaves * (settings.landmarks * (n_features + 1) + basis + 2 * n_features)
    return plan.n_blocks * BLOCK_BYTES + max(sample, index, n_leaves * LEAF_BYTES + 4 * model)


def leaf_work(
    sources: Sequence[Sequence[Source]], rows: Sequence[int], folds: Sequence[int]
) -> list[LeafWork]:
    """Leaves to fit, without overlap, from the sources, rows and folds of each final leaf."""
    of_leaves = enumerate(zip(sources, rows, folds, strict=True))
    return [LeafWork(leaf, tuple(its_sources), n, (), k) for leaf, (its_sources, n, k) in of_leaves]


def leaf_groups(work: Sequence[LeafWork]) -> list[tuple[LeafWork, ...]]:
    """Leaves for one task each, the largest first, which determine the time; small neighbours together."""
    total = sum(w.n_rows for w in work)
    groups = _neighbours(work, min(GROUP_ROWS, -(-total // BLOCKS)))
    return sorted(groups, key=lambda group: -max(w.n_rows for w in group))


def overlap_groups(work: Sequence[LeafWork], piece_rows: int) -> list[tuple[int, tuple[LeafWork, ...]]]:
    """Neighbouring leaves whose rows one task reads once more, with the number of the first piece that it
    writes. Rows that a task may hold at once make one piece; of more rows, each two pieces hold more than
    that.
    """
    groups, first = [], 0
    for group in _neighbours(work, piece_rows):
        groups.append((first, group))
        rows = sum(w.n_rows for w in group)
        first += 1 if rows <= piece_rows else 2 * -(-rows // piece_rows)
    return groups


def _neighbours(work: Sequence[LeafWork], most: int) -> list[tuple[LeafWork, ...]]:
    """Successive leaves with at most `most` rows together, unless one alone has more."""
    groups: list[list[LeafWork]] = []
    filled = most
    for w in work:
        if filled + w.n_rows > most:
            groups.append([])
            filled = 0
        groups[-1].append(w)
        filled += w.n_rows
    return [tuple(group) for group in groups]


@dataclass(frozen=True)
class Known:
    """Results of a search over all rows that a training would compute again."""

    contents: Mapping[str, str]
    """Fingerprints of its data, by x, y and weight."""
    survey: Survey
    """Survey of all rows, after encoding."""
    sample: Sample
    """Sampled rows, as `Training.stored_sample` gives them."""
    targets: CrossFitted | None = None
    """Target encodings."""


class Training:
    """The steps of one job, and its records."""

    def __init__(self, job: TrainJob, plan: BlockPlan, workers: Workers, known: Known | None = None) -> None:
        self.job, self.plan, self.workers, self.known = job, plan, workers, known
        self.seconds: dict[str, float] = {}
        self.worker_peaks: dict[str, int] = {}
        self.n_generations = 1
        self.sample_rows = sampled_rows(job.settings.sample_rows, job.array("x").shape[1])
        self.n_sampled = 0
        self.targets: CrossFitted | None = None
        if known is not None and known.targets is not None:
            self.targets = replace(known.targets, folds=read_folds(job))

    def run(self, identity: Identity, path: Path, names: tuple[str, ...] | None) -> TrainReport:
        survey = self._timed("survey", lambda: self.survey(names))
        classes = _labels(survey, names)
        division = self._timed("division", lambda: self._division(survey))
        counts = self._timed("route", lambda: self._route(division, survey))
        balanced, sources, rows = self._timed("balance", lambda: self._balance(division, counts))
        outputs, stored = n_outputs(len(classes)), self.job.settings
        whole = self._whole(len(rows), survey)
        times = np.zeros(len(rows), np.int64) if whole else self._times_held_out(rows, outputs, survey)
        work = leaf_work(sources, rows.tolist(), times.tolist())
        borrowed = self._timed("overlap", lambda: self._halo(flatten(balanced.root), work))
        work = [replace(fit, borrowed=borrowed) for fit in work]
        self._timed("leaves", lambda: self._leaves(work, survey))
        begin = time.perf_counter()
        leaves, held, folded = zip(
            *(read_fitted_leaf(self.job, leaf) for leaf in range(len(sources))), strict=True
        )
        if sum(folded) % 2**64 != survey.rows:
            raise DcpredError("the rows of the leaves are not the surveyed ones; please report this bug")
        with one_thread():
            fitted, uncertainty, transform = self._measured(whole, leaves, rows, held, survey)
        scaling = replace(division.scaling, targets=self.targets.encoding if self.targets else None)
        of_leaves = rows, flatten(balanced.root), scaling, division.kernels, classes, stored
        of_model = division.reference, uncertainty, transform
        model = assemble(fitted, *of_leaves, *of_model, terms=read_division(self.job).known.terms)
        schema, seen = schema_of_array(self.job.x), self.stored_sample(survey)
        model = with_bins(model, seen.X, seen.number, survey, schema, stored.seed)
        self.seconds["model"] = time.perf_counter() - begin
        add_remarks(*changed_settings(self.job.settings, model.landmark_at))
        report = TrainReport(
            model=str(path),
            hash="",
            n_rows=self.plan.n_rows,
            n_features=model.n_features,
            n_leaves=model.n_leaves,
            n_constant_leaves=int((np.diff(model.landmark_at) == 0).sum()),
            n_landmarks=len(model.landmarks),
            terms={term.name: term.facts for term in model.terms},
            largest_leaf_rows=int(rows.max()),
            thinned_leaves=int((rows > stored.max_leaf_rows).sum()),
            gaps=describe_gaps(model.scaling, survey, self.names()),
            feature_map=describe_map(model.scaling),
            threshold=threshold_of(model),
            seconds=self.seconds,
            worker_peak_memory_bytes=self.worker_peaks,
            driver_peak_memory_bytes=peak_memory_bytes(),
            remarks=recorded(),
        )
        provenance = {**identity.recorded(), "versions": versions()}
        optional = {"source": identity.source, "by_time": identity.by_time}
        provenance |= {key: value for key, value in optional.items() if value}
        provenance["report"] = {**report.stored(), "model": path.name}
        provenance[TRAINED_ROWS] = sketch(seen.X, min(len(seen.X) / survey.n_used, 1.0))
        if (features := self._stored_names()) is not None:
            provenance["feature_names"] = features
        return replace(report, hash=write_model(path, model, settings_dict(stored), provenance, schema))

    def _measured(
        self,
        whole: bool,
        leaves: Sequence[FittedLeaf],
        rows: IntArray,
        of_leaves: Sequence[HeldOut],
        survey: Survey,
    ) -> tuple[Sequence[FittedLeaf], Uncertainty | None, TargetTransform]:
        """Leaves, the uncertainty and the transform of the target, by held-out rows."""
        settings = self.job.settings
        held = self._held_by_models(survey) if whole else joined(of_leaves)
        judged = None if whole else np.array([len(rows.target) for rows in of_leaves])
        of_classes = len(survey.classes), settings, survey.class_weights, class_factors(survey, settings)
        return *measured(leaves, rows, held, judged, *of_classes), measured_transform(held, settings)

    def _whole(self, n_leaves: int, survey: Survey) -> bool:
        """Whether held-out rows need whole models."""
        complete = len(self.stored_sample(survey).number) >= survey.n_used
        return whole_models(read_folds(self.job), self.job.settings, bool(self.job.coded), n_leaves, complete)

    def _times_held_out(self, rows: IntArray, outputs: int, survey: Survey) -> IntArray:
        """How often rows are held out of each leaf."""
        count = read_folds(self.job).count
        return folds_of_leaves(rows, outputs, self.job.settings, survey.class_weights, count)

    def _without_folds(self, survey: Survey, count: int) -> None:
        """Store what is fitted to targets without each of the first so many folds."""
        if all(is_done(self.job.known_file(fold)) for fold in range(count)):
            return
        fitted = FittedToTargets(read_division(self.job).known, read_folds(self.job), self.targets)
        with show_step("learning without held-out rows", None, ""), one_thread():
            fitted = self._target_sample(survey).without_folds(fitted, count)
        for fold, known in enumerate(fitted.held):
            write_known(self.job, fold, known)

    def _held_by_models(self, survey: Survey) -> HeldOut:
        """Sampled rows that were held out, by whole models of others."""
        sample, settings = self.stored_sample(survey), self.job.settings
        rows = LabelledSample(sample.X, sample.target, sample.weight, class_factors(survey, settings))
        given = rows, self._plain_survey(survey, sample), settings, len(survey.classes), self.job.coded
        with show_step("training without held-out rows", None, ""):
            folds = read_folds(self.job).take(sample.number)
            return held_by_models(*given, folds, read_division(self.job).known.scaling)

    def _plain_survey(self, survey: Survey, sample: Sample) -> Survey:
        """A survey of all rows, with the limits of categories in place of those of their means."""
        if self.targets is None:
            return survey
        n = sample.X.shape[1]
        gaps = np.zeros(n, np.int64)
        np.maximum.at(gaps, self.targets.encoding.source, survey.gaps)
        return replace(survey, minimum=np.zeros(n), maximum=np.zeros(n), gaps=gaps, means=())

    def _timed(self, name: str, step: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        result = step()
        self.seconds[name] = time.perf_counter() - begin
        return result

    def work(
        self,
        title: str,
        body: Callable[..., Receipt],
        tasks: Sequence[tuple[Any, ...]],
        total: int,
        outputs: Sequence[Path],
    ) -> None:
        """Run the tasks whose output is missing or damaged."""
        todo = [task for task, output in zip(tasks, outputs, strict=True) if not is_done(output)]
        with show_step(title, total, "rows") as advance:
            run_all(self.workers, body, todo, lambda _, receipt: self.note(receipt, advance))

    def note(self, receipt: Receipt, advance: Step) -> None:
        self.worker_peaks[receipt.process] = max(
            self.worker_peaks.get(receipt.process, 0), receipt.peak_memory_bytes
        )
        advance(receipt.n_rows)

    def survey(self, names: tuple[str, ...] | None) -> Survey:
        """Facts on all encoded rows; a sample and the target encodings are then in the scratch directory."""
        if self.known is None:
            survey = self._surveyed(names)
            if self.job.x:  # Estimators have more information on rows in memory, and make their own remarks.
                self._remark(survey, names)
        else:
            survey = self.known.survey
        if self.targets is not None:
            write_targets(self.job, self.targets)
        return survey

    def _remark(self, survey: Survey, names: tuple[str, ...] | None) -> None:
        seen, schema = self.stored_sample(survey), schema_of_array(self.job.x)
        given = seen.X, seen.target, seen.number, survey, self._stored_names(), schema
        labels, folds = _labels(survey, names), read_folds(self.job)
        add_remarks(*training_remarks(*given, labels))
        if folds is not None and folds.ordered:
            held = folds.of(seen.number) == folds.count - 1
            if (lack := lacking_class(seen.target, held, labels)) is not None:
                add_remarks(lack)

    def _surveyed(self, names: tuple[str, ...] | None) -> Survey:
        survey = self._survey_with(self.sample_rows)
        settings = self.job.settings  # Estimators have checked weights in memory without those of classes.
        check_survey(survey, settings.task, names, settings.largest_weight if self.job.x else 1.0)
        if (
            survey.n_used < self.plan.n_rows // 2
        ):  # most rows have weight 0, and the sample holds too few others
            self.sample_rows = -(-self.sample_rows * self.plan.n_rows // survey.n_used)
            survey = self._survey_with(self.sample_rows)
        if not self.job.coded:
            return survey
        sums = [read_sums(self.job, block, self.sample_rows) for block, _, _ in self.plan.spans()]
        given = sums, self.job.coded, survey, read_folds(self.job), self._stored_names()
        self.targets = fit_target_means(*given)
        return self.targets.survey(survey)

    def _survey_with(self, sample_rows: int) -> Survey:
        spans = list(self.plan.spans())
        tasks = [(self.job, *span, sample_rows) for span in spans]
        outputs = [self.job.survey_file(block, sample_rows) for block, _, _ in spans]
        self.work("reading rows", survey_block, tasks, self.plan.n_rows, outputs)
        self.n_sampled = 0

        def surveys() -> Iterator[Survey]:
            for block, _, _ in spans:
                survey, sample = read_survey(self.job, block, sample_rows)
                self.n_sampled += len(sample.number)
                yield survey

        return merge_surveys(surveys())

    def stored_sample(self, survey: Survey) -> Sample:
        """Sampled rows as stored; their targets are class numbers or values."""
        if self.known is not None:
            return self.known.sample
        parts = (read_survey(self.job, block, self.sample_rows)[1] for block, _, _ in self.plan.spans())
        sample = join_samples(parts, self.n_sampled)
        if len(survey.classes):
            return replace(sample, target=np.searchsorted(survey.classes, sample.target))
        return sample

    def sample(self, survey: Survey, held: int | None = None) -> Sample:
        """The same after encoding, by means without rows of the fold `held` if one is held out."""
        sample = self.stored_sample(survey)
        if self.targets is None:
            return sample
        return replace(sample, X=self.targets(sample.X, sample.number, held))

    def _target_sample(self, survey: Survey) -> TargetSample:
        sample, settings = self.stored_sample(survey), self.job.settings
        target = TargetTransform(settings.target_transform).forward(sample.target)
        of_rows = sample.X, target, sample.weight, sample.number
        factors, folds = class_factors(survey, settings), read_folds(self.job)
        return TargetSample(*of_rows, self.targets, survey, settings, factors, folds)

    def _division(self, survey: Survey) -> Division:
        sample = self._target_sample(survey)
        # BLAS and k-means sum in another order with more threads.
        with show_step("learning the scaling and the tree", None, ""), one_thread():
            division, fitted = sample.fit()
        if self.known is None:  # A search has printed it before.
            self.report_columns(division.scaling, survey)
        stored = StoredDivision(flatten(division.root), fitted.every, survey.classes, sample.factors)
        if not is_done(self.job.division_file):
            write_division(self.job, stored)
        return division

    def report_columns(self, scaling: Scaling, survey: Survey) -> None:
        """Print the changes of features."""
        for sentence in columns_in_words(scaling, survey, self.names()):
            show(sentence)

    def names(self) -> list[str] | None:
        """The names of features, encoded ones among them, if they have names."""
        names = self._stored_names()
        return names if self.targets is None else self.targets.encoding.names(names)

    def _stored_names(self) -> list[str] | None:
        names = getattr(self.job.array("x"), "attrs", {}).get("feature_names")
        return names if isinstance(names, list) else None

    def _route(self, division: Division, survey: Survey) -> IntArray:
        spans = list(self.plan.spans())
        pieces = [self.job.piece(0, block) for block, _, _ in spans]
        self.work(
            "sorting rows by leaf", route_block, [(self.job, *s) for s in spans], self.plan.n_rows, pieces
        )
        counts = write_index(self.job, 0, range(len(spans)), flatten(division.root).n_leaves)
        self._conserved("routing", int(counts.sum()), survey.n_used)
        return counts

    def _balance(self, division: Division, counts: IntArray) -> tuple[Balanced, list[list[Source]], IntArray]:
        settings = self.job.settings
        where: dict[int, Source] = {leaf: Source(0, leaf) for leaf in range(len(counts))}
        totals: dict[int, int] = dict(enumerate(int(n) for n in counts))

        def split(requests: Sequence[tuple[int, int]]) -> list[Split]:
            generations = range(self.n_generations, self.n_generations + len(requests))
            self.n_generations += len(requests)
            tasks = [
                (self.job, where[leaf], totals[leaf], g)
                for (leaf, _), g in zip(requests, generations, strict=True)
            ]
            for g in generations:
                self.job.rows(g).mkdir(exist_ok=True)
            total = sum(totals[leaf] for leaf, _ in requests)
            outputs = [self.job.split_file(g) for g in generations]
            self.work(
                f"splitting {counted(len(requests), 'large leaf', 'large leaves')}",
                split_leaf,
                tasks,
                total,
                outputs,
            )
            results = [read_split(self.job, g) for g in generations]
            for (_, first), g, result in zip(requests, generations, results, strict=True):
                for child, n in enumerate(result.counts):
                    where[first + child], totals[first + child] = Source(g, child), int(n)
            return results

        balanced = balance(division.root, counts, settings.min_leaf_rows, settings.own_leaf_rows, split)
        n_leaves = flatten(balanced.root).n_leaves
        sources: list[list[Source]] = [[] for _ in range(n_leaves)]
        rows = np.zeros(n_leaves, np.int64)
        for routed, final in enumerate(balanced.final):
            if final >= 0 and totals.get(routed):
                sources[final].append(where[routed])
                rows[final] += totals[routed]
        self._conserved("balancing", int(rows.sum()), int(counts.sum()))
        return balanced, sources, rows

    def _halo(self, tree: Router, work: Sequence[LeafWork]) -> tuple[int, ...]:
        """The generations with rows by their nearest leaves after their own."""
        generations = tuple(range(self.n_generations, self.n_generations + self.job.settings.overlap - 1))
        if generations:
            write_tree(self.job, tree)
            for generation in generations:
                self.job.rows(generation).mkdir(exist_ok=True)
            groups = overlap_groups(work, self.job.piece_rows)
            outputs = [self.job.halo_file(generations[0], first) for first, _ in groups]
            tasks = [(self.job, first, group, generations) for first, group in groups]
            self.work("finding neighbouring leaves", halo_leaves, tasks, self.plan.n_rows, outputs)
            pieces = [
                piece
                for (first, _), output in zip(groups, outputs, strict=True)
                for piece in range(first, first + int(read_arrays(output)["pieces"]))
            ]
            for generation in generations:
                write_index(self.job, generation, pieces, tree.n_leaves)
        return generations

    def _leaves(self, work: Sequence[LeafWork], survey: Survey) -> None:
        self._without_folds(survey, max((fit.folds for fit in work), default=0))
        missing = [w for w in work if not is_done(self.job.leaf_file(w.leaf))]
        with show_step(
            f"fitting {counted(len(work), 'leaf', 'leaves')}", sum(w.n_rows for w in missing), "rows"
        ) as advance:
            groups = [(self.job, group) for group in leaf_groups(missing)]
            run_all(self.workers, fit_leaves, groups, lambda _, receipt: self.note(receipt, advance))

    @staticmethod
    def _conserved(step: str, n_rows: int, expected: int) -> None:
        if n_rows != expected:
            raise DcpredError(f"{step} kept {n_rows:,} of {expected:,} rows; this is a bug, please report it")


def _labels(survey: Survey, names: tuple[str, ...] | None) -> tuple[Label, ...]:
    if names is None or survey.classes.dtype.kind not in "biuf":
        return tuple(survey.classes.tolist())
    return tuple(names[code] for code in class_codes(survey.classes, len(names), "y"))
