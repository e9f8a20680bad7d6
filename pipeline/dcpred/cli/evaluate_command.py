"""dcpred evaluate"""

from functools import partial
from pathlib import Path

import click

from dcpred.cli.evaluation_rendering import evaluated
from dcpred.cli.options import (
    ADDRESS,
    check_cluster_options,
    cluster_options,
    emit,
    files,
    json_option,
    reports_errors,
    storage_option,
)
from dcpred.cli.output_options import costs_options
from dcpred.evaluation.evaluate import evaluate, is_small
from dcpred.execution.progress import reporter
from dcpred.execution.workers import Pool, Scheduler, connect, this_process
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.model.label_rule import Costs


@click.command("evaluate")
@click.argument("model", type=ADDRESS)
@click.argument("data", shell_complete=files)
@click.option(
    "--early", is_flag=True, help="Also report the accuracy of the local models (early prediction)."
)
@click.option("--no-cost", is_flag=True, help="Do not measure the cost, which takes two or three seconds.")
@click.option("--drop-unlabelled", is_flag=True, help="Skip rows without a target [default: refuse them].")
@click.option("--x", "x", metavar="NAME", default="X", show_default=True, help="Array of features in DATA.")
@click.option("--y", "y", metavar="NAME", default="y", show_default=True, help="Array of targets in DATA.")
@costs_options
@click.option(
    "--metric",
    metavar="NAME",
    help="Also compute this score: the name of a scikit-learn scorer, neg_mean_pinball_loss=0.9 or"
    " neg_mean_cost=50.",
)
@cluster_options
@json_option
@reports_errors
@storage_option
def evaluate_command(
    model: str | Path,
    data: str,
    early: bool,
    no_cost: bool,
    drop_unlabelled: bool,
    costs: Costs | None,
    metric: str | None,
    x: str,
    y: str,
    workers: int | None,
    scheduler: Scheduler | None,
    as_json: bool,
) -> None:
    """Report accuracy (or RMSE and R²) on labelled data, error details, and the cost in linear predictions.

    Classification adds recall, precision, AUC and the most frequent confusions; regression adds quantiles of
    residuals. Local processes or a Dask cluster evaluate large data, with the same result. With --json the
    output also holds what `dcpred report` draws: that command accepts it as a file.
    """
    check_cluster_options(workers, scheduler)
    X, target = (find_rows(data, name, model, with_target=True) for name in (x, y))
    pool: Pool = partial(connect, workers, scheduler)
    if workers is None and scheduler is None and is_small(X):
        pool = this_process
    result = evaluate(
        model,
        X,
        target,
        pool,
        early=early,
        cost=not no_cost,
        drop_unlabelled=drop_unlabelled,
        costs=costs,
        metric=metric,
        say=reporter(),
    )
    emit(result, as_json, evaluated)
