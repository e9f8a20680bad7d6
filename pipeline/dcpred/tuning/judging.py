"""Tries judged by workers, each but once: what is known of a try in a leaf is kept, in memory and in a
journal, so that rounds share what they look at and a search that was cut off goes on.
"""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dcpred.execution.workers import Workers, run_all
from dcpred.tuning.forecast import Headway, relative_effort
from dcpred.tuning.tree_search import Ask
from dcpred.tuning.trial_plan import LEAVES, GrownTree
from dcpred_tasks.dtypes import FloatArray
from dcpred_tasks.scratch.training_job import TrainJob
from dcpred_tasks.scratch.trial_files import Gathered
from dcpred_tasks.storage.atomic_files import ArraysPath, MemoryPath
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.task_bodies.train_model import Receipt
from dcpred_tasks.task_bodies.try_settings import try_settings
from dcpred_tasks.training.settings import Settings, settings_dict
from dcpred_tasks.training.trial import Verdict

JOURNAL = "verdicts.jsonl"  # in the scratch directory of a search
Numbers = tuple[float, float, float]  # the fields of a Verdict
Place = tuple[int, int, int, float]  # tree, leaf, fold, share of the rows that train


@dataclass(frozen=True)
class _Task:
    """Tries to be judged in one leaf, on one choice of held-out rows, with a share of the others."""

    place: Place
    tries: list[Settings]
    effort: float
    """Relative to the other tasks."""


class Journal:
    """Every try that was judged: (soft, hard, variance), by tree, leaf, fold and settings."""

    def __init__(self, path: ArraysPath) -> None:
        self.path = path
        self.known: dict[tuple[Place, str], Numbers] = {}
        if isinstance(path, MemoryPath):
            return
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        sound = 0
        with suppress(
            ValueError, TypeError, AttributeError, KeyError, RecursionError
        ):  # What follows damage is judged anew.
            for line in whole.split(b"\n"):
                place, found = json.loads(line)
                self._keep(tuple(place), found)
                sound += len(line) + 1
        if path.exists():
            os.truncate(path, sound)

    def add(self, place: Place, found: dict[str, Numbers]) -> None:
        self._keep(place, found)
        if isinstance(self.path, MemoryPath):
            return
        with self.path.open("a") as file:
            file.write(json.dumps([place, found]) + "\n")

    def _keep(self, place: Place, found: dict[str, Numbers]) -> None:
        self.known.update({(place, key): (soft, hard, var) for key, (soft, hard, var) in found.items()})


class Judge:
    """Judges asks in trees whose rows are gathered."""

    def __init__(self, job: TrainJob, workers: Workers, n_outputs: int, headway: Headway) -> None:
        self.job, self.workers, self.n_outputs, self.headway = job, workers, n_outputs, headway
        self.journal = Journal(job.root / JOURNAL)

    def __call__(
        self,
        asks: Sequence[Ask],
        trees: Sequence[GrownTree],
        gathered: Sequence[Gathered],
        note: Callable[[Receipt, float], None],
    ) -> list[list[Verdict]]:
        """Means over leaves, each for the rows that it stands for, and over folds of held-out rows.

        note  called after each task with the share of the search that it was
        """
        effort = sum(
            ask.share * len(ask.folds) * sum(relative_effort(s, trees[ask.tree].start) for s in ask.tries)
            for ask in asks
        )
        amount = self.headway.take(effort)
        # The longest go first, so that all processors are busy to the end.
        tasks = sorted(self._tasks(asks, trees, gathered), key=lambda task: -task.effort)
        total = sum(task.effort for task in tasks)

        def done(number: int, result: tuple[Receipt, list[Verdict]]) -> None:
            task, (receipt, verdicts) = tasks[number], result
            keys = map(digest_of, task.tries)
            self.journal.add(task.place, {key: astuple(v) for key, v in zip(keys, verdicts, strict=True)})
            note(receipt, amount * task.effort / total)

        bodies = [(self.job, *task.place[:2], task.tries, self.n_outputs, *task.place[2:]) for task in tasks]
        run_all(self.workers, try_settings, bodies, done)
        return [self._means(ask, trees[ask.tree], gathered[ask.tree]) for ask in asks]

    def _tasks(
        self, asks: Sequence[Ask], trees: Sequence[GrownTree], gathered: Sequence[Gathered]
    ) -> list[_Task]:
        """What is not known yet."""
        tasks = []
        for ask in asks:
            tree = trees[ask.tree]
            # Settings of a large leaf are tried side by side; those of a small one share local machines.
            together = 1 if tree.start.refine_epochs else len(ask.tries)
            for i in range(_some(ask, tree)):
                rows = float(gathered[ask.tree].rows[i])
                for fold in ask.folds:
                    place = ask.tree, int(tree.leaves[i]), fold, _rows_share(ask, tree)
                    todo = [
                        s for s in dict.fromkeys(ask.tries) if (place, digest_of(s)) not in self.journal.known
                    ]
                    for at in range(0, len(todo), together):
                        part = todo[at : at + together]
                        work = sum(relative_effort(s, tree.start) * s.overlap for s in part)
                        tasks.append(_Task(place, part, (rows * place[3] + 1.0) * work))
        return tasks

    def _means(self, ask: Ask, tree: GrownTree, gathered: Gathered) -> list[Verdict]:
        n, share = _some(ask, tree), _rows_share(ask, tree)
        known, keys = self.journal.known, [digest_of(s) for s in ask.tries]
        found: FloatArray = np.array(
            [
                [[known[(ask.tree, int(leaf), fold, share), key] for key in keys] for fold in ask.folds]
                for leaf in tree.leaves[:n]
            ]
        )
        weight = tree.sampling_weights(n) * gathered.weight[:n]
        means = mean_verdicts(found, weight, drawn=n < int(np.count_nonzero(tree.counts)))
        factor = tree.error_factor
        return [Verdict(factor * soft, factor * hard, factor**2 * var) for soft, hard, var in means.tolist()]


def mean_verdicts(found: FloatArray, weight: FloatArray, *, drawn: bool) -> FloatArray:
    """Weighted means over leaves and folds of what tries came to, and their variances: (n_tries, 3). Leaves
    where no try has a result do not count; a try without a result where others have one is infinitely bad.

    found   (n_leaves, n_folds, n_tries, 3) fields of verdicts, NaN where there is no result
    weight  (n_leaves,)
    drawn   whether there are other leaves, so that errors vary with those that were drawn, too
    """
    errors, variance = found[..., :2], found[..., 2]
    done: NDArray[np.bool_] = np.asarray(np.isfinite(errors).all(axis=3))
    judged: NDArray[np.bool_] = np.asarray(done.any(axis=2))
    share = weight[:, None] * judged
    share /= max(share.sum(), 1e-300)
    means = np.tensordot(share, np.where(done[..., None], errors, 0.0), axes=2)
    if drawn:
        variance = variance + (errors[..., 1] - means[:, 1]) ** 2
    variances = np.tensordot(share**2, np.where(done, variance, 0.0), axes=2)
    failed = (judged[:, :, None] & ~done).any(axis=(0, 1))
    means[failed] = variances[failed] = np.inf
    return np.column_stack([means, variances])


def _some(ask: Ask, tree: GrownTree) -> int:
    """The number of leaves that an ask is about."""
    return max(int(np.ceil(ask.share * len(tree.leaves))), min(len(tree.leaves), LEAVES[0]))


def _rows_share(ask: Ask, tree: GrownTree) -> float:
    """The share of the rows that train: the one leaf of a tree without others is looked at in part, too."""
    return ask.share if tree.start.n_leaves == 1 else 1.0


@lru_cache(maxsize=1024)
def digest_of(settings: Settings) -> str:
    """What tells settings from others, in the names of files and in the journal."""
    return digest_json(settings_dict(settings))[:20]
