"""dcpred evaluate"""

from pathlib import Path

import click

from dcpred.cli.evaluation_rendering import evaluated
from dcpred.cli.options import ADDRESS, emit, files, json_option, reports_errors, storage_option
from dcpred.evaluation.evaluate import evaluate
from dcpred.execution.progress import reporter
from dcpred_tasks.artifacts.data_schema import find_rows


@click.command("evaluate")
@click.argument("model", type=ADDRESS)
@click.argument("data", shell_complete=files)
@click.option("--early", is_flag=True, help="Also the accuracy of the local models (early prediction).")
@click.option(
    "--no-cost", is_flag=True, help="Leave out the cost, whose measurement takes two or three seconds."
)
@click.option("--x", "x", metavar="NAME", default="X", show_default=True, help="Array of features in DATA.")
@click.option("--y", "y", metavar="NAME", default="y", show_default=True, help="Array of targets in DATA.")
@json_option
@reports_errors
@storage_option
def evaluate_command(
    model: str | Path, data: str, early: bool, no_cost: bool, x: str, y: str, as_json: bool
) -> None:
    """Accuracy (or RMSE and R²) on labelled data, what lies behind it, and the cost in linear predictions.

    Of classes recall, precision, AUC and which are taken for which, of numbers the spread of residuals. With
    --json also what is drawn of it: `dcpred report` takes that object as a file.
    """
    X, target = find_rows(data, x, model), find_rows(data, y, model)
    result = evaluate(model, X, target, early=early, cost=not no_cost, say=reporter())
    emit(result, as_json, evaluated)
