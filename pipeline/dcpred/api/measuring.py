"""The quality of a model on labelled data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dcpred import evaluation
from dcpred.api.arguments import address_of_model, labelled_rows, progress, typed
from dcpred.execution.workers import chosen_pool, this_process
from dcpred.summary import Summary
from dcpred_tasks.model.label_rule import given_costs


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
    model : str, Path or ServedModel
        Path or address of a model.
    data : str, Path, zarr.Array, zarr.Group, or array-like of shape (n_rows, n_features)
        Path or address of a data set, or its rows. Rows that are not stored as Zarr are written to a
        temporary directory, which workers need to see.
    early : bool, default False
        Also measure the local models (early prediction).
    cost : bool, default True
        Measure the cost, which takes two or three seconds.
    drop_unlabelled : bool, default False
        Skip rows without a target.
    threshold : float or str, optional
        Minimum probability for the label of the second of two classes, or ``"cost=50"``.
    costs : array-like of shape (n_classes, n_classes), optional
        Cost of each label (column) for rows of each class.
    metric : str, optional
        Also compute this score: the name of a scikit-learn scorer, ``"neg_mean_pinball_loss=0.9"`` or
        ``"neg_mean_cost=50"``.
    x : str, default "X"
        Name of the array of features in stored data.
    y : str or array-like of shape (n_rows,), default "y"
        Targets: the name of an array in stored data, or an array where data is one.
    workers : int, optional
        Number of local processes; -1 starts one per core unless there are few rows. By default this process
        evaluates.
    client : distributed.Client or str, optional
        A running Dask cluster, or the address of its scheduler. The client is neither configured nor closed.
    verbose : bool, default False
        Print progress on standard error.

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
            say=progress(verbose),
        )
    return Evaluation(found)
