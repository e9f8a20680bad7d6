"""--metrics and --events: report a run to monitoring and logs."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from dcpred.cli.options import PATH, failure
from dcpred.execution.events import heard_by, json_lines, record_event
from dcpred.execution.metrics import metrics_file
from dcpred.version import __version__
from dcpred_tasks.process import process_name

F = TypeVar("F", bound=Callable[..., Any])
USAGE = 2
BUG = 1


def observation_options(command: F) -> F:
    """Options of monitoring. They stand right below `reports_errors` to see how a run ends."""

    @click.option(
        "--metrics",
        type=PATH,
        metavar="FILE.prom",
        help="Metrics for Prometheus, rewritten every 30 s and at the end.",
    )
    @click.option("--events", metavar="FILE.jsonl", help="Events as lines of JSON; - for standard error.")
    @wraps(command)
    def run(*args: Any, metrics: Path | None, events: str | None, **kwargs: Any) -> None:
        with observed(str(click.get_current_context().info_name), metrics, events):
            command(*args, **kwargs)

    return run  # type: ignore[return-value]


@contextmanager
def observed(command: str, metrics: Path | None, events: str | None) -> Iterator[None]:
    """Write the beginning, the events and the end of a `with` statement to a file of metrics, a file of
    events or standard error ("-").
    """
    with ExitStack() as stack:
        if events is not None:
            stack.enter_context(heard_by(stack.enter_context(json_lines(events))))
        if metrics is not None:
            stack.enter_context(heard_by(stack.enter_context(metrics_file(metrics, command, __version__))))
        begin, code, error = time.monotonic(), 0, ""
        record_event("run_started", command=command, version=__version__, process=process_name())
        try:
            yield
        except BaseException as raised:
            error, code = _end(raised)
            raise
        finally:
            seconds = time.monotonic() - begin
            record_event(
                "run_ended",
                "error" if code else "info",
                exit_code=code,
                error=error,
                seconds=round(seconds, 3),
            )


def _end(raised: BaseException) -> tuple[str, int]:
    """The sentence and the exit code of an end."""
    if isinstance(raised, SystemExit):
        return str(raised.__cause__ or ""), raised.code if isinstance(raised.code, int) else BUG
    if isinstance(raised, click.UsageError):
        return raised.format_message(), USAGE
    return failure(raised) or (f"{type(raised).__name__}: {raised}", BUG)
