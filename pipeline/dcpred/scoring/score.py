"""Score every row of a data set."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dcpred.datasets.located import address_of_model
from dcpred.public.functions import checked, typed
from dcpred.runs.bad_rows import BadRowLimit
from dcpred.runs.manifest import ScoreReport, record_remarks
from dcpred.runs.shards import Shard, parse_shard
from dcpred.scoring.blocks import FailurePolicy
from dcpred.scoring.request import Request, requested_columns, rows_to_score
from dcpred.scoring.score_shard import ShardReport, score_shard
from dcpred.scoring.whole_run import check_rows_scored, score_all_rows
from dcpred_tasks.errors import SettingsError


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
    accept: Sequence[str] = (),
    on_alarm: str = "warn",
    verbose: bool = False,
) -> ScoreReport | ShardReport:
    """Score every row of a data set into a new directory.

    Parameters
    ----------
    data : str, Path, zarr.Array, zarr.Group, or array-like of shape (n_rows, n_features)
        Path or address of a data set or of a table (Parquet, Arrow or Delta), or rows: NumPy, pandas, Dask or
        xarray. Rows in memory are written to `OUTPUT.data.zarr` first. Import other tables, as CSV.
    output : str or Path
        Directory or address for the scores. `output/scores.zarr` holds label, decision and status; row i
        belongs to row i of the data.
    id : sequence of str, optional
        Columns before the scores in these files: arrays next to the features, columns of a Parquet table, or
        features. By default the ids that import stored, or else row numbers.
    shard : Shard or str, optional
        Score only blocks i, i + n, i + 2n, … for ``"i/n"``, i from 0 to n - 1; ``"auto/n"`` takes i
        from the environment.

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
    tolerance = FailurePolicy(quarantine, max_failures, BadRowLimit(max_bad_rows, max_bad_fraction))
    columns = requested_columns(outputs, alpha, threshold, costs, parquet, id, delta)
    if shard is not None and client is not None:
        raise SettingsError("Cannot combine shard with client: one excludes the other. Pass one of them.")
    part = parse_shard(shard, os.environ) if isinstance(shard, str) else shard
    path = address_of_model(model)
    with rows_to_score(data, x, path, output, workers, client, resumes=part is not None) as (X, pool):
        request = Request(path, X, output, columns, tolerance, pool, delta)
        report = score_all_rows(request) if part is None else score_shard(request, part)
    if isinstance(report, ShardReport):
        return report
    record_remarks(report)
    return checked(report, partial(check_rows_scored, report, tolerance))
