"""dcpred warm"""

import os
import time
from collections.abc import Mapping
from itertools import product
from typing import Any

import click

from dcpred.cli.options import emit, json_option, reports_errors
from dcpred_tasks.engine.machine_code import pinned, warm
from dcpred_tasks.engine.native_modules import BITCODES
from dcpred_tasks.result_fields import result_class, result_field


@result_class
class WarmCode:
    target: str = result_field("Name of the processor.")
    code: str = result_field("Name of the code.")
    compiled: bool = result_field("Whether this call compiled it; it was stored before otherwise.")
    file: str = result_field("Path of the stored machine code.")


OFF = "DCPRED_NO_COMPILER is set: commands do not use this code. Unset it before you run them."


def _made_lines(r: Mapping[str, Any]) -> list[tuple[str, str]]:
    how = {True: "compiled now", False: "was there"}
    return [(f"{m['code']} for {m['target']}", f"{m['file']}  ({how[m['compiled']]})") for m in r["made"]]


@result_class
class Warmed:
    """The compiled codes."""

    made: list[WarmCode] = result_field("The compiled codes.", line="made", text=_made_lines)
    switched_off: bool = result_field(
        "Whether DCPRED_NO_COMPILER switches compiled code off.",
        line="warning",
        text=lambda r: OFF if r["switched_off"] else None,
    )
    seconds: float = result_field("Time of the call, in seconds.")


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
    """Compile the scoring engine, the refinement of landmarks and trees ahead of time, for example in an
    image, for one processor or several.

    Machine code is stored in $DCPRED_CACHE_DIR, or without that in the user's cache. Everyone who may write
    there can make you run their code.
    """
    begin, made, named = time.perf_counter(), [], pinned()
    for name, bitcode in product(targets or (named.cpu if named else "host",), BITCODES):
        code = warm(name, bitcode)
        made.append(WarmCode(name, bitcode.name, code.has_compiled, str(code.places()[0])))
    off = os.environ.get("DCPRED_NO_COMPILER", "") not in ("", "0")
    seconds = time.perf_counter() - begin
    emit(Warmed(made, off, seconds), as_json)
