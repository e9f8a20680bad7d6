"""Tables and data sets: split labelled data, export scores."""

from collections.abc import Sequence
from pathlib import Path

from dcpred.api.arguments import typed
from dcpred.datasets.splitting import Split, split_data
from dcpred.execution.progress import shares_of, show_step
from dcpred.results import export as exporting
from dcpred.results.export import Exported


@typed
def split(
    data: str | Path,
    *,
    test: float = 0.2,
    by_time: str | None = None,
    by_group: str | None = None,
    seed: int | None = None,
    into: tuple[str | Path, str | Path] | None = None,
    x: str = "X",
    y: str = "y",
    verbose: bool = False,
) -> Split:
    """Split a data set into training and test rows: two new Zarr groups.

    Parameters
    ----------
    data : str or Path
        Path or address of a data set.
    test : float, default 0.2
        Fraction of rows in the test set.
    by_time : str, optional
        Test on the rows with the largest values of this array or feature; ``""``: on the last stored rows.
    by_group : str, optional
        Keep rows with the same value of this array or feature together.
    seed : int, optional
        Seed of the random split. By default 0.
    into : (str or Path, str or Path), optional
        Paths of the training rows and the test rows. By default `DATA-train.zarr` and `DATA-test.zarr`.
    x : str, default "X"
        Name of the array of features.
    y : str, default "y"
        Name of the array of targets, which is optional.

    Returns
    -------
    Split
        Paths and numbers of rows.

    Raises
    ------
    RefusedError
        For wrong arguments or data, and if other data are at one of the paths.
    ResourceError
        For a full disk, or a missing permission.

    Notes
    -----
    Rows are drawn at random, the same fraction of each class, without `by_time` and `by_group`. Arrays next
    to the features are copied. Each part is written completely or not at all. The same call again writes a
    part that is missing.
    """
    with show_step("splitting", 1.0, "") as advance:
        return split_data(
            str(data),
            test=test,
            by_time=by_time,
            by_group=by_group,
            seed=seed,
            into=None if into is None else (str(into[0]), str(into[1])),
            x=x,
            y=y,
            progress=shares_of(advance),
        )


@typed
def export(
    scores: str | Path,
    out: str | Path,
    *,
    beside: Sequence[str] = (),
    status: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    partial: bool = False,
    verbose: bool = False,
) -> Exported:
    """Write the scores of a run as a table.

    Parameters
    ----------
    scores : str or Path
        The output of `score`.
    out : str or Path
        The new table: .parquet, .csv, .feather or .arrow.
    beside : sequence of str, optional
        Columns to write before the scores, each ``"NAME"`` or ``"DATA:NAME,NAME"``: one-dimensional arrays of
        the scored data set or of DATA, or features by name. By default the ids in the Parquet files
        of the run, else those that import stored, else row numbers.
    status : sequence of str, optional
        Statuses of the rows to keep: ok, non_finite_feature, … By default all rows.
    columns : sequence of str, optional
        Columns of the scores. By default all but row and status_name.
    partial : bool, default False
        Export an unfinished run, too: rows not yet scored have status 0.

    Returns
    -------
    Exported
        The table, its rows and columns.

    Raises
    ------
    RefusedError
        For wrong arguments, before anything is written.
    ResourceError
        For a full disk, or a missing permission.

    See Also
    --------
    open_scores : Open the scores as arrays.

    Notes
    -----
    Rows keep their order. Classes appear by name, several outputs become a column each (decision_CLASS), and
    a row without a score has a status and no values. The table is written completely or not at all.
    """
    return exporting.export(
        scores,
        out,
        beside=beside,
        status=status,
        columns=columns,
        partial=partial,
    )
