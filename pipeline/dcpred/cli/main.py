"""The commands."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from dcpred.cli import show
from dcpred.cli.shared import check_cluster_options, cluster_options, emit, json_option, progress_for, reports_errors
from dcpred.cluster import connect
from dcpred.datasets import import_data
from dcpred.demo import run_demo
from dcpred.evaluation import evaluate
from dcpred.inspection import inspect_path
from dcpred.scoring import score
from dcpred.settings import read_settings
from dcpred.training import train
from dcpred.version import __version__
from dcpred_tasks.store import find_array

PATH = click.Path(path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="dcpred")
def main() -> None:
    """Kernel machines that predict almost as fast as a linear model, trained and applied at scale on Dask and Zarr.

    \b
    dcpred import  data file → Zarr
    dcpred train   Zarr → model
    dcpred score   model + Zarr → Zarr of scores
    """


@main.command("demo")
@click.option("--out", type=PATH, default=Path("dcpred-demo"), show_default=True, help="Where everything is put.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Local processes [default: one per core].")
@json_option
@reports_errors
def demo_command(out: Path, workers: int | None, as_json: bool) -> None:
    """The whole job on real digits: Zarr, training, scoring, evaluation. About a minute."""
    result = run_demo(out, workers, progress_for(as_json))
    emit(result, as_json, lambda r: r["text"])


@main.command("import")
@click.argument("source")
@click.argument("dest")
@click.option("--x", "x", metavar="NAME", help="Array of features in an .npz file [default: X].")
@click.option("--y", "y", metavar="NAME", help="Array of targets in an .npz file [default: y, if there is one].")
@click.option("--target", metavar="COLUMN", help="Column of targets in a .csv or .parquet file [default: no target].")
@click.option("--chunk-rows", type=click.IntRange(1), metavar="N", help="Rows of a chunk [default: about 8 MiB].")
@json_option
@reports_errors
def import_command(
    source: str, dest: str, x: str | None, y: str | None, target: str | None, chunk_rows: int | None, as_json: bool
) -> None:
    """Bring a data file into a Zarr group with arrays X and y.

    SOURCE is .csv(.gz), .parquet, .npy, .npz, .svm or .libsvm(.gz, .bz2). It is streamed, and may be larger than memory. The
    smallest dtype that holds every value exactly is kept.
    """
    with progress_for(as_json).step("importing", None, "rows") as advance:
        before = 0

        def note(done: int, _total: int | None) -> None:
            nonlocal before
            advance(done - before)
            before = done

        result = import_data(source, dest, x=x, y=y, target=target, chunk_rows=chunk_rows, progress=note)
    emit(asdict(result), as_json, show.imported)


@main.command("train")
@click.argument("data")
@click.argument("model", type=PATH)
@click.option("--task", type=click.Choice(["classification", "regression"]), help="[default: classification]")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A setting, as landmarks=24; may be repeated.")
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="A TOML file of settings.")
@click.option("--x", "x", metavar="NAME", default="X", show_default=True, help="Array of features in DATA.")
@click.option("--y", "y", metavar="NAME", default="y", show_default=True, help="Array of targets in DATA.")
@click.option("--sample-weight", metavar="NAME", help="Array of row weights in DATA [default: none].")
@cluster_options
@json_option
@reports_errors
def train_command(
    data: str,
    model: Path,
    task: str | None,
    assignments: tuple[str, ...],
    config: Path | None,
    x: str,
    y: str,
    sample_weight: str | None,
    workers: int | None,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Train a model on a Zarr data set and write it to the new directory MODEL.

    Settings come from --config, then --set, then --task. A job that was cut off goes on where it stopped when the same
    command is given again.
    """
    check_cluster_options(workers, scheduler)
    settings = read_settings(config, assignments, task)
    addresses = find_array(data, x), find_array(data, y)
    weight = find_array(data, sample_weight) if sample_weight else None
    pool = partial(connect, workers, scheduler)
    report = train(*addresses, model, settings, pool, weight=weight, say=progress_for(as_json))
    emit(asdict(report), as_json, show.trained)


@main.command("score")
@click.argument("model", type=PATH)
@click.argument("data")
@click.argument("output", type=PATH)
@click.option("--outputs", metavar="NAMES", help="label,decision [default: both; decision for regression].")
@click.option("--x", "x", metavar="NAME", default="X", show_default=True, help="Array of features in DATA.")
@cluster_options
@json_option
@reports_errors
def score_command(
    model: Path,
    data: str,
    output: Path,
    outputs: str | None,
    x: str,
    workers: int | None,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Score every row of DATA into the directory OUTPUT.

    OUTPUT/scores.zarr holds label, decision and status; row i of each belongs to row i of X. A run that was cut off goes on
    where it stopped when the same command is given again; a finished run does nothing.
    """
    check_cluster_options(workers, scheduler)
    wanted = tuple(name.strip() for name in outputs.split(",")) if outputs else None
    pool = partial(connect, workers, scheduler)
    report = score(model, find_array(data, x), output, pool, outputs=wanted, say=progress_for(as_json))
    emit(asdict(report), as_json, show.scored)


@main.command("evaluate")
@click.argument("model", type=PATH)
@click.argument("data")
@click.option("--early", is_flag=True, help="Also the accuracy of the local models (early prediction).")
@click.option("--x", "x", metavar="NAME", default="X", show_default=True, help="Array of features in DATA.")
@click.option("--y", "y", metavar="NAME", default="y", show_default=True, help="Array of targets in DATA.")
@json_option
@reports_errors
def evaluate_command(model: Path, data: str, early: bool, x: str, y: str, as_json: bool) -> None:
    """Accuracy (or RMSE and R²) on labelled data, and the cost in linear predictions."""
    result = evaluate(model, find_array(data, x), find_array(data, y), early=early, say=progress_for(as_json))
    emit(result, as_json, show.evaluated)


@main.command("inspect")
@click.argument("path", type=PATH)
@json_option
@reports_errors
def inspect_command(path: Path, as_json: bool) -> None:
    """Say what a data set, a model or an output holds."""
    result: dict[str, Any] = inspect_path(path)
    emit(result, as_json, show.inspected)
