"""Models at work: score, repair, deliver, refresh, look, verify, evaluate."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import zarr

from dcpred import evaluation
from dcpred.api.arguments import (
    address_of_model,
    labelled_rows,
    pool_for,
    rows_to_score,
    tolerance,
    written_columns,
)
from dcpred.execution.pools import chosen_pool, this_process
from dcpred.parameters import as_for
from dcpred.public import checked, typed
from dcpred.refreshing import refresh as refreshing
from dcpred.refreshing.limits import Limits
from dcpred.refreshing.refresh import RefreshReport, check_published
from dcpred.runs.manifest import ScoreReport
from dcpred.runs.shards import Shard, parse_shard
from dcpred.scoring import repair as repairing
from dcpred.scoring import score as scoring
from dcpred.scoring import score_shard as sharding
from dcpred.scoring.score import check_rows_scored
from dcpred.scoring.score_shard import ShardReport
from dcpred.summary import Summary
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.model.label_rule import given_costs
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.patterns import is_pattern


@typed
def score(
    model: Any,
    data: Any,
    output: str | Path,
    *,
    outputs: Sequence[str] | None = None,
    alpha: float | None = None,
    threshold: float | str | None = None,
    costs: Any = None,
    parquet: bool = False,
    id: Sequence[str] = (),
    delta: str | Path | None = None,
    x: str = "X",
    quarantine: bool = False,
    max_failures: int = 20,
    max_bad_rows: int | None = None,
    max_bad_fraction: float | None = None,
    shard: Shard | str | None = None,
    workers: int | None = None,
    client: Any = None,
    verbose: bool = False,
) -> ScoreReport | ShardReport:
    """Score every row of a data set into a new directory.

    Parameters
    ----------
    data : str, Path, zarr.Array, zarr.Group, or array-like of shape (n_rows, n_features)
        Path or address of a data set, or its rows: NumPy, pandas, Dask or xarray. Rows that are not stored as
        Zarr are written to `OUTPUT.data.zarr` first.
    output : str or Path
        Directory or address for the scores. `output/scores.zarr` holds label, decision and status; row i
        belongs to row i of the data.
    id : sequence of str, optional
        Columns before the scores in these files: arrays next to the features, columns of a Parquet table, or
        features. By default the ids that import stored, or else row numbers.
    shard : Shard or str, optional
        Score only blocks i, i + n, i + 2n, … for ``"i/n"``; ``"auto/n"`` takes i from the environment.

    Returns
    -------
    ScoreReport or ShardReport
        The finished run; or the shard, if others have blocks left.

    Raises
    ------
    RefusedError
        For wrong arguments or data, before anything is written.
    IncompleteError
        If blocks failed or too many rows have no score. Its attribute `report` is the report of a run that
        ended.
    RunHeldError
        If another process scores into the same output.
    ResourceError
        For a full disk, or a missing permission.

    See Also
    --------
    repair : Score again what is wrong.
    refresh : Score what is new or changed.

    Notes
    -----
    The same call resumes an interrupted run; a finished run does nothing.

    Examples
    --------
    >>> report = dcpred.score("model", "new.zarr", "scores", client=client)  # doctest: +SKIP
    """
    policy = tolerance(quarantine, max_bad_rows, max_bad_fraction, max_failures)
    columns = written_columns(outputs, alpha, threshold, costs, parquet, id, delta)
    if shard is not None and client is not None:
        raise SettingsError("Cannot combine shard with client: one excludes the other. Pass one of them.")
    part = parse_shard(shard, os.environ) if isinstance(shard, str) else shard
    path = address_of_model(model)
    chosen_pool(workers, client)  # It refuses what cannot be used, before anything is written.
    with rows_to_score(data, x, path, client, output, resumes=part is not None) as X:
        pool = pool_for(X, output, workers, client)
        if part is not None:
            report = sharding.score_shard(
                path, X, output, part, pool, tolerance=policy, delta=delta, **columns
            )
            if isinstance(report, ShardReport):
                return report
        else:
            report = scoring.score(path, X, output, pool, tolerance=policy, delta=delta, **columns)
    return checked(report, partial(check_rows_scored, report, policy))


@typed
@as_for(score)
def repair(
    model: Any,
    data: Any,
    output: str | Path,
    *,
    level: str = "full",
    outputs: Sequence[str] | None = None,
    alpha: float | None = None,
    threshold: float | str | None = None,
    costs: Any = None,
    parquet: bool = False,
    id: Sequence[str] = (),
    delta: str | Path | None = None,
    x: str = "X",
    quarantine: bool = False,
    max_failures: int = 20,
    max_bad_rows: int | None = None,
    max_bad_fraction: float | None = None,
    workers: int | None = None,
    client: Any = None,
    verbose: bool = False,
) -> ScoreReport:
    """Verify an output, and score again only what is wrong or was skipped.

    Parameters
    ----------
    data : str, Path, zarr.Array, zarr.Group, or array-like of shape (n_rows, n_features)
        The data of the run.
    output : str or Path
        The output of `score`.
    level : {"full", "fast"}, default "full"
        How much is verified: full also decodes everything and compares digests.

    Returns
    -------
    ScoreReport
        The finished run.

    Raises
    ------
    PlanConflictError
        If the output is of another model, data or settings.
    DcpredError
        What `score` raises.

    See Also
    --------
    verify : Look only.

    Notes
    -----
    All arguments are those of the run.
    """
    policy = tolerance(quarantine, max_bad_rows, max_bad_fraction, max_failures)
    columns = written_columns(outputs, alpha, threshold, costs, parquet, id, delta)
    path = address_of_model(model)
    chosen_pool(workers, client)  # It refuses what cannot be used, before anything is written.
    with rows_to_score(data, x, path, client, output, resumes=True) as X:
        report = repairing.repair(
            path,
            X,
            output,
            pool_for(X, output, workers, client),
            tolerance=policy,
            level=level,
            delta=delta,
            **columns,
        )
    return checked(report, partial(check_rows_scored, report, policy))


@typed
@as_for(score)
def refresh(
    model: Any,
    data: Any,
    root: str | Path,
    *,
    outputs: Sequence[str] | None = None,
    alpha: float | None = None,
    threshold: float | str | None = None,
    costs: Any = None,
    parquet: bool = False,
    id: Sequence[str] = (),
    x: str = "X",
    full: bool = False,
    keep: int | None = None,
    max_bad_rows: int | None = None,
    max_bad_fraction: float | None = None,
    max_drift: float | None = None,
    max_shift: float | None = None,
    ignore_drift: Sequence[str] | None = None,
    quarantine: bool = False,
    workers: int | None = None,
    client: Any = None,
    verbose: bool = False,
) -> RefreshReport:
    """Score what is new or changed since the last run, and publish the complete result as `root/latest`.

    Parameters
    ----------
    model : str, Path or ServedModel
        Path or address of a model. A new model scores everything.
    data : str, Path, zarr.Array or zarr.Group
        Stored data: the path or address of a data set, or a pattern of several: ``"days/*.zarr"``.
    full : bool, default False
        Score everything, and fix data, outputs and blocks anew.
    keep : int, optional
        Number of newest finished runs to keep. By default all.
    max_bad_rows : int, optional
        Maximum number of rows without a score in a run to publish. By default no limit.
    max_bad_fraction : float, optional
        Maximum fraction of rows without a score in a run to publish, from 0 to 1. By default no limit.
    max_drift : float, optional
        Maximum population stability index of leaves, features and scores in a run to publish; 0.25 is large.
    max_shift : float, optional
        Maximum shift of a feature, in standard deviations, in a run to publish; 0.8 is large, as is a spread
        3 times as large or small.
    ignore_drift : sequence of str, optional
        Columns that `max_drift` and `max_shift` leave out, for example dates and counters, in which new rows
        always differ. A column that held out later rows is left out anyway. By default those of the last
        run.

    Returns
    -------
    RefreshReport
        The run, and whether it is the latest now.

    Raises
    ------
    IncompleteError
        If the run exceeds its limits and is not published. Its attribute `report` is the report.
    DcpredError
        What `score` raises.

    See Also
    --------
    publish : Make a run the latest by hand.
    status : List the runs.

    Notes
    -----
    ROOT/runs/NNNN-HASH are complete runs, as `score` makes them. A run reuses the blocks of an earlier one
    whose input is unchanged. Without any change, nothing is written. The first run fixes `outputs`, `alpha`,
    `threshold`, `costs`, `parquet` and `id`.
    """
    policy = tolerance(quarantine, None, None)
    columns = written_columns(outputs, alpha, threshold, costs, parquet, id)
    limits = Limits(tolerance(False, max_bad_rows, max_bad_fraction).bad_rows, max_drift, max_shift)
    path = address_of_model(model)
    X = _stored(data, x, path)
    report = refreshing.refresh(
        path,
        X,
        root,
        pool_for(X, root, workers, client),
        array=x,
        tolerance=policy,
        limits=limits,
        keep=keep,
        full=full,
        ignore_drift=ignore_drift,
        **columns,
    )
    return checked(report, partial(check_published, report))


def _stored(data: Any, x: str, model: str | Path) -> str:
    """The address of stored rows, or the pattern of several."""
    if isinstance(data, zarr.Array) and (address := zarr_arrays.array_address(data)) is not None:
        return address
    if isinstance(data, zarr.Group):
        data = zarr_arrays.address_of(data)
    if isinstance(data, str | Path):
        return str(data) if is_pattern(str(data)) else find_rows(data, x, model)
    raise DataError(
        f"Cannot refresh from a value of type {type(data).__name__}: it is not stored. Pass the path or"
        " address of Zarr data, or a Zarr array of a store."
    )


@dataclass(frozen=True, repr=False)
class Evaluation(Summary, Mapping[str, Any]):
    """Figures of a model on labelled data: a mapping, whose keys are also attributes.

    Parameters
    ----------
    figures : dict
        The figures by name, as `dcpred evaluate --json` prints them: accuracy, auc, log_loss, and so on, or
        rmse, r2, mae, and so on.
    """

    figures: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures, as the command prints them with --json.

        Returns
        -------
        dict
            Figures by name.
        """
        return dict(self.figures)

    def _shown(self) -> list[tuple[str, Any]]:
        of_model = ("model", "model_hash", "data", "engine")
        shown = [(name, value) for name, value in self.figures.items() if name not in of_model]
        return [(name, value) for name, value in shown if isinstance(value, str | int | float)]

    def __getattr__(self, name: str) -> Any:
        if name != "figures" and name in self.figures:
            return self.figures[name]
        raise AttributeError(f"This evaluation has no {name!r}. It has {', '.join(sorted(self))}.")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.figures]

    def __getitem__(self, name: str) -> Any:
        return self.figures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.figures)

    def __len__(self) -> int:
        return len(self.figures)


@typed
def evaluate(
    model: Any,
    data: Any,
    *,
    early: bool = False,
    cost: bool = True,
    drop_unlabelled: bool = False,
    threshold: float | str | None = None,
    costs: Any = None,
    metric: str | None = None,
    x: str = "X",
    y: Any = "y",
    workers: int | None = None,
    client: Any = None,
    verbose: bool = False,
) -> Evaluation:
    """Measure the quality of a model on labelled data, and its cost in linear predictions.

    Parameters
    ----------
    data : str, Path, zarr.Array, zarr.Group, or array-like of shape (n_rows, n_features)
        Path or address of a data set, or its rows. Rows that are not stored as Zarr are written to a
        temporary directory, which workers need to see.
    early : bool, default False
        Also measure the local models (early prediction).
    cost : bool, default True
        Measure the cost, which takes two or three seconds.
    metric : str, optional
        Also compute this score: the name of a scikit-learn scorer, ``"neg_mean_pinball_loss=0.9"`` or
        ``"neg_mean_cost=50"``.

    Returns
    -------
    Evaluation
        Figures by name, which are also attributes: accuracy, auc and so on, or rmse, r2 and so on.

    Raises
    ------
    RefusedError
        For wrong arguments or data.
    IncompleteError
        If workers died.

    Notes
    -----
    Classification adds recall, precision, AUC and the most frequent confusions; regression adds quantiles of
    residuals. Local processes or a Dask cluster evaluate large data, with the same result.

    Examples
    --------
    >>> dcpred.evaluate("model", X_test, y=y_test).accuracy  # doctest: +SKIP
    0.98
    """
    path, taken = address_of_model(model), given_costs(threshold, costs)
    pool = chosen_pool(workers, client)
    with labelled_rows(data, x, y, path, client) as at:
        if workers == -1 and evaluation.is_small(at.x):
            pool = this_process
        found = evaluation.evaluate(
            path,
            at.x,
            at.y,
            pool,
            early=early,
            cost=cost,
            drop_unlabelled=drop_unlabelled,
            costs=taken,
            metric=metric,
        )
    return Evaluation(found)
