"""dcpred warm"""

import os
import time
from itertools import product

import click

from dcpred.cli import rendering
from dcpred.cli.options import emit, json_option, reports_errors
from dcpred_tasks.engine.machine_code import ENGINE, pinned, warm
from dcpred_tasks.training.compiled_refinement import REFINEMENT


@click.command("warm")
@click.option(
    "--target",
    "targets",
    metavar="NAME",
    multiple=True,
    help="A processor: host, x86-64-v3 or x86-64-v4; repeatable [default: what NUMBA_CPU_NAME"
    " names of these, else host].",
)
@json_option
@reports_errors
def warm_command(targets: tuple[str, ...], as_json: bool) -> None:
    """Compile the scoring engine and the refinement of landmarks ahead of time, for example in an image, for
    one processor or several.

    Machine code is stored in $DCPRED_CACHE_DIR, or without that in the user's cache. Everyone who may write
    there can make you run their code.
    """
    begin, made, named = time.perf_counter(), [], pinned()
    for name, bitcode in product(targets or (named.cpu if named else "host",), (ENGINE, REFINEMENT)):
        code = warm(name, bitcode)
        done = {"compiled": code.has_compiled, "file": code.places()[0]}
        made.append({"target": name, "code": bitcode.name, **done})
    off = os.environ.get("DCPRED_NO_COMPILER", "") not in ("", "0")
    seconds = time.perf_counter() - begin
    emit({"made": made, "switched_off": off, "seconds": seconds}, as_json, rendering.warmed)
