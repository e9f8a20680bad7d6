"""Models at work: score, repair, refresh."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import zarr

from dcpred.datasets.located import address_of_model, located
from dcpred.execution.pools import chosen_pool, store_threads
from dcpred.execution.workers import Pool
from dcpred.parameters import as_for
from dcpred.public import checked, typed
from dcpred.refreshing import refresh as refreshing
from dcpred.refreshing.limits import Limits
from dcpred.refreshing.refresh import RefreshReport, check_published
from dcpred.runs.bad_rows import BadRowLimit
from dcpred.runs.ledger import planned_version
from dcpred.runs.manifest import ScoreReport
from dcpred.runs.shards import Shard, parse_shard
from dcpred.scoring import repair as repairing
from dcpred.scoring import score as scoring
from dcpred.scoring import score_shard as sharding
from dcpred.scoring.blocks import FailurePolicy
from dcpred.scoring.planning import Columns
from dcpred.scoring.score import check_rows_scored
from dcpred.scoring.score_shard import ShardReport
from dcpred_tasks.artifacts.block_files import PARQUET, ZARR
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.model.label_rule import given_costs
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.patterns import is_pattern


def _pool_for(x: str, output: str | Path, workers: int | None, client: Any) -> Pool | None:
    """The workers that score X into an output; None: one process per core, if there are several blocks."""
    return (
        None if workers == -1 and client is None else chosen_pool(workers, client, **store_threads(x, output))
    )


def _tolerance(
    quarantine: bool,
    max_bad_rows: int | None,
    max_bad_fraction: float | None,
    max_failures: int = FailurePolicy.max_failures,
) -> FailurePolicy:
    return FailurePolicy(quarantine, max_failures, BadRowLimit(max_bad_rows, max_bad_fraction))


@contextmanager
def _rows_to_score(
    data: Any, x: str, model: str | Path, client: Any, output: str | Path, *, resumes: bool = False
) -> Iterator[str]:
    """As `located`, of rows without a target. A run of a Delta table keeps the version that it began with."""

    def find(address: str | Path, name: str) -> str:
        return find_rows(planned_version(address, output, resumes=resumes), name, model)

    with located(data, x, None, None, find, client, output, model) as addresses:
        yield addresses.x


def _written_columns(
    outputs: Sequence[str] | None,
    alpha: float | None,
    threshold: float | str | None,
    costs: Any,
    parquet: bool,
    names: Sequence[str],
    delta: str | Path | None = None,
) -> Columns:
    """The columns of a run; `names` are those before the scores in Parquet files. Raises SettingsError."""
    if names and not parquet and delta is None:
        raise SettingsError(
            "Cannot name ids: no Parquet files are written. Add --parquet or --delta (in Python parquet=True"
            " or delta=TABLE), or omit them."
        )
    return {
        "outputs": None if outputs is None else tuple(outputs),
        "alpha": alpha,
        "costs": given_costs(threshold, costs),
        "artifacts": (ZARR, PARQUET) if parquet or delta is not None else (ZARR,),
        "ids": tuple(names),
    }


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
    policy = _tolerance(quarantine, max_bad_rows, max_bad_fraction, max_failures)
    columns = _written_columns(outputs, alpha, threshold, costs, parquet, id, delta)
    if shard is not None and client is not None:
        raise SettingsError("Cannot combine shard with client: one excludes the other. Pass one of them.")
    part = parse_shard(shard, os.environ) if isinstance(shard, str) else shard
    path = address_of_model(model)
    chosen_pool(workers, client)  # It refuses what cannot be used, before anything is written.
    with _rows_to_score(data, x, path, client, output, resumes=part is not None) as X:
        pool = _pool_for(X, output, workers, client)
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
    policy = _tolerance(quarantine, max_bad_rows, max_bad_fraction, max_failures)
    columns = _written_columns(outputs, alpha, threshold, costs, parquet, id, delta)
    path = address_of_model(model)
    chosen_pool(workers, client)  # It refuses what cannot be used, before anything is written.
    with _rows_to_score(data, x, path, client, output, resumes=True) as X:
        report = repairing.repair(
            path,
            X,
            output,
            _pool_for(X, output, workers, client),
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
    policy = _tolerance(quarantine, None, None)
    columns = _written_columns(outputs, alpha, threshold, costs, parquet, id)
    limits = Limits(_tolerance(False, max_bad_rows, max_bad_fraction).bad_rows, max_drift, max_shift)
    path = address_of_model(model)
    X = _stored(data, x, path)
    report = refreshing.refresh(
        path,
        X,
        root,
        _pool_for(X, root, workers, client),
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
