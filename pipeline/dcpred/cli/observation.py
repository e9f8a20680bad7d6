"""--metrics and --events: report a run to monitoring and logs.

Metrics have the text format of Prometheus, in a file that is always complete: for the textfile collector of
node_exporter, or for a Pushgateway. Every metric has the label `job`, the name of the file without its
ending: several files in one folder do not collide. deploy/observability.md lists the metrics.
"""

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from dcpred.cli.options import PATH, failure
from dcpred.execution.events import heard_by, json_lines, lost, record_event
from dcpred.training.reports import TrainReport
from dcpred.version import __version__
from dcpred_tasks.errors import SettingsError
from dcpred_tasks.process import process_name
from dcpred_tasks.result_fields import metrics_of
from dcpred_tasks.scoring.drift_fields import Drift
from dcpred_tasks.storage.atomic_files import replace_bytes, resource_errors

EVERY_SECONDS = 30.0
MOST_BYTES = 2**20  # maximum bytes to read of an earlier file
MOST_STEPS = 50  # maximum number of different steps
SUCCESS = "dcpred_run_success_timestamp_seconds"
Samples = list[tuple[dict[str, str], float]]

# Name and meaning.
METRICS = {
    "dcpred_run_info": "Command and version of the last run, and its shard.",
    "dcpred_run_running": "1 while the run goes on, 0 once it has ended.",
    "dcpred_run_start_timestamp_seconds": "When the run began.",
    "dcpred_run_update_timestamp_seconds": "When this file was written.",
    SUCCESS: "When a run was last complete and verified.",
    "dcpred_run_seconds": "Time that the run has taken.",
    "dcpred_run_exit_code": "Exit code of the last run.",
    "dcpred_run_rows": "Rows of the run by outcome; during the run, those of this call.",
    "dcpred_run_rows_left": "Rows that this call has not yet processed.",
    "dcpred_run_bad_rows": "Rows without a score.",
    "dcpred_run_blocks": "Blocks of the run, or of its shard: done, failed, left.",
    "dcpred_run_rows_per_second": "Rows scored per second by this call.",
    "dcpred_run_workers_lost": "Workers that ended during a task.",
    "dcpred_run_remarks": "Remarks on the data and the result, by code and severity.",
    "dcpred_run_step_seconds": "Duration of each finished step.",
    **{f"dcpred_drift_{name}": meaning for name, (_, meaning) in metrics_of(Drift).items()},
    **{f"dcpred_model_{name}": meaning for name, (_, meaning) in metrics_of(TrainReport).items()},
}


class Metrics(logging.Handler):
    """The numbers in events of a run."""

    def __init__(
        self, job: str, command: str, version: str, now: float, succeeded: float | None = None
    ) -> None:
        """Begins at `now`, in seconds since 1970; `succeeded` is when an earlier run was last complete."""
        super().__init__()
        self.job = job
        self.values: dict[str, Samples] = {}
        self.info = {"command": command, "version": version}
        self._set("dcpred_run_info", 1, **self.info)
        self._set("dcpred_run_running", 1)
        self._set("dcpred_run_start_timestamp_seconds", now)
        if succeeded is not None:
            self._set(SUCCESS, succeeded)
        self.complete = False
        self.began = self.scoring_began = now
        self.ended: float | None = None
        self.rows: Counter[str] = Counter()
        self.rows_left = 0
        self.workers_lost: set[str] = set()
        self.failed: set[int] = set()
        self.steps: Counter[str] = Counter()
        self.remarks: Counter[tuple[str, str]] = Counter()
        self.left, self.done = 0, 0
        self._take: dict[str, Callable[[float, Mapping[str, Any]], None]] = {
            "scoring_started": self._scoring_started,
            "block_done": self._block_done,
            "block_failed": self._block_failed,
            "worker_lost": self._worker_lost,
            "step_ended": self._step_ended,
            "remark": self._remark,
            "scored": self._scored,
            "refreshed": self._refreshed,
            "trained": self._trained,
            "run_ended": self._run_ended,
        }

    def emit(self, record: logging.LogRecord) -> None:
        take = self._take.get(record.msg)
        if take is not None:
            take(record.created, vars(record)["facts"])

    def _set(self, name: str, value: float, **labels: str) -> None:
        samples = self.values.setdefault(name, [])
        samples[:] = [(others, old) for others, old in samples if others != labels]
        samples.append((labels, value))

    def _scoring_started(self, when: float, facts: Mapping[str, Any]) -> None:
        if facts["shard"]:
            self.values["dcpred_run_info"] = [(self.info | {"shard": facts["shard"]}, 1)]
        self.scoring_began, self.left = when, facts["pending_blocks"]
        self.done = facts["blocks"] - self.left
        self.rows_left = facts["pending_rows"]
        self._blocks()

    def _block_done(self, when: float, facts: Mapping[str, Any]) -> None:
        self.left, self.done = self.left - 1, self.done + 1
        self.failed.discard(facts["block"])
        self.rows_left -= facts["rows"]
        self.rows.update(facts["status"])
        spent = max(when - self.scoring_began, 1e-3)
        self._set("dcpred_run_rows_per_second", self.rows.total() / spent)
        self._blocks()

    def _block_failed(self, when: float, facts: Mapping[str, Any]) -> None:
        self.failed.add(facts["block"])
        self._blocks()

    def _blocks(self) -> None:
        states = {"done": self.done, "failed": len(self.failed), "left": self.left - len(self.failed)}
        for state, n in states.items():
            self._set("dcpred_run_blocks", n, state=state)
        self.values["dcpred_run_rows"] = [({"status": name}, n) for name, n in sorted(self.rows.items())]
        self._set("dcpred_run_rows_left", self.rows_left)
        self._set("dcpred_run_bad_rows", self.rows.total() - self.rows["ok"])

    def _worker_lost(self, when: float, facts: Mapping[str, Any]) -> None:
        self.workers_lost.add(str(facts["worker"]))
        self._set("dcpred_run_workers_lost", len(self.workers_lost))

    def _step_ended(self, when: float, facts: Mapping[str, Any]) -> None:
        if facts["step"] in self.steps or len(self.steps) < MOST_STEPS:
            self.steps[facts["step"]] += facts["seconds"]
            self._set("dcpred_run_step_seconds", self.steps[facts["step"]], step=facts["step"])

    def _remark(self, when: float, facts: Mapping[str, Any]) -> None:
        if "code" in facts:  # Other remarks are lines of progress.
            key = facts["code"], facts["severity"]
            self.remarks[key] += 1
            self._set("dcpred_run_remarks", self.remarks[key], code=key[0], severity=key[1])

    def _scored(self, when: float, facts: Mapping[str, Any]) -> None:
        """A complete run: its manifest counts."""
        self.rows = Counter(facts["status"])
        self.rows_left, self.left, self.done, self.failed = 0, 0, facts["blocks"], set()
        self._blocks()
        if facts["rows_per_second"] is not None:
            self._set("dcpred_run_rows_per_second", facts["rows_per_second"])
        for name, value in facts["drift"].items():
            if value is not None:
                self._set(f"dcpred_drift_{name}", float(value))
        self.complete = True

    def _refreshed(self, when: float, facts: Mapping[str, Any]) -> None:
        """All of several inputs together, also if nothing was new."""
        self._scored(when, {**facts, "rows_per_second": None})
        self.complete = facts["state"] != "kept"

    def _trained(self, when: float, facts: Mapping[str, Any]) -> None:
        for name in metrics_of(TrainReport):
            self._set(f"dcpred_model_{name}", facts[name])
        self.complete = True

    def _run_ended(self, when: float, facts: Mapping[str, Any]) -> None:
        self._set("dcpred_run_exit_code", facts["exit_code"])
        self._set("dcpred_run_running", 0)
        self.ended = when
        if facts["exit_code"] == 0 and self.complete:
            self._set(SUCCESS, when)

    def text(self, now: float) -> str:
        """The file, at a time in seconds since 1970."""
        with self.lock or nullcontext():
            self._set("dcpred_run_seconds", (self.ended or now) - self.began)
            self._set("dcpred_run_update_timestamp_seconds", now)
            lines = []
            for name, meaning in METRICS.items():
                if name in self.values:
                    lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
                    lines += [self._line(name, labels, value) for labels, value in self.values[name]]
        return "\n".join(lines) + "\n"

    def _line(self, name: str, labels: dict[str, str], value: float) -> str:
        pairs = {"dcpred_job": self.job} | labels  # Prometheus sets a label `job` of its own
        label_text = ",".join(f'{key}="{escaped(text)}"' for key, text in pairs.items())
        return f"{name}{{{label_text}}} {float(value)!r}"


def escaped(text: str) -> str:
    """The value of a label."""
    return str(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@contextmanager
def metrics_file(path: Path, command: str, version: str) -> Iterator[Metrics]:
    """Metrics of a command, written to a file from time to time and at the end. Raises SettingsError,
    ResourceError, OSError if the file is not writable at the start; later the run continues without it.
    """
    _check_file(path)
    job, path = path.stem, path.resolve()  # A link stays one.
    metrics = Metrics(job, command, version, time.time(), last_success(path))
    stopped = threading.Event()

    def write() -> None:
        replace_bytes(path, metrics.text(time.time()).encode())

    def now_and_then() -> None:
        while not stopped.wait(EVERY_SECONDS):
            with suppress(OSError):  # the next write may succeed, and the last one reports
                write()

    with resource_errors(path):
        write()
    thread = threading.Thread(target=now_and_then, name="dcpred-metrics", daemon=True)
    thread.start()
    try:
        yield metrics
    finally:
        stopped.set()
        thread.join()
        try:
            write()
        except OSError as error:
            lost(str(path), error)


def _check_file(path: Path) -> None:
    """Raise SettingsError if a file cannot be replaced atomically under this name."""
    if path.exists() and not path.is_file():
        so = "it is a folder, a device or a pipe"
    elif path.name in ("", "-"):
        so = "it does not name a file"
    elif not path.parent.is_dir():
        so = f"there is no folder {path.parent}"
    else:
        return
    raise SettingsError(f"Cannot write metrics to {str(path)!r}: {so}. Name a file in an existing folder.")


def _beginning(path: Path) -> str:
    """The first bytes of a file, up to the maximum size of metrics."""
    with path.open("rb") as file:
        return file.read(MOST_BYTES).decode()


def last_success(path: Path) -> float | None:
    """When a run was last complete, from the file of an earlier one; None if it is unknown."""
    with suppress(OSError, ValueError):
        match = re.search(rf"^{SUCCESS}{{.*}} ([-+.0-9e]+)$", _beginning(path), re.MULTILINE)
        return float(match[1]) if match else None
    return None


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
    """Write the beginning, the events and the end of a `with` statement to files, or standard error ("-")."""
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
