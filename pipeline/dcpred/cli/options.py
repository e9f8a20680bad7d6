"""Options that commands share, what -v prints first, and how errors end a command."""

import csv
import errno
import json
import os
import sys
import tempfile
import tomllib
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from dcpred.cli.errors import print_error
from dcpred.cli.rendering import rows, shown
from dcpred.execution.events import takes_standard_error
from dcpred.execution.interrupts import signals_handled
from dcpred.execution.pools import pages_opened
from dcpred.execution.progress import reporter
from dcpred.execution.terminal import Verbosity, verbosity
from dcpred.execution.workers import Scheduler, one_line
from dcpred.public.remarks import Collected, collecting, take_unprinted
from dcpred.public.results import PublicResult
from dcpred_tasks.engine.native_modules import ENGINE
from dcpred_tasks.errors import (
    DcpredError,
    InterruptedRunError,
    RefusedError,
    ResourceError,
    SettingsError,
)
from dcpred_tasks.process import cpu_name, memory_bytes, process_name, versions
from dcpred_tasks.remarks import Remark, Severity
from dcpred_tasks.result_fields import document_of
from dcpred_tasks.storage.addresses import OPTIONS, check_options, path_on_disk, storage_options
from dcpred_tasks.storage.atomic_files import OBSTACLES, reason
from dcpred_tasks.storage.once import reading_once
from dcpred_tasks.training.settings import Description, describe_settings

GIB = 2**30


def surroundings() -> list[str]:
    """The lines."""
    numbers = versions()
    packages = ", ".join(f"{name} {number}" for name, number in numbers.items() if name != "dcpred")
    facts = [
        f"dcpred {numbers.get('dcpred', '(not installed)')} with {packages}",
        f"{process_name()}: {_cores()} of {cpu_name()}, {_memory()}",
        f"temporary files lie in {tempfile.gettempdir()}",
    ]
    with suppress(ImportError, RefusedError):  # Machine code needs LLVM and a complete installation.
        from dcpred_tasks.engine.machine_code import own_code

        if places := own_code(ENGINE).places():
            facts.append(f"machine code of the engine lies in {places[0]}")
    return facts


def _cores() -> str:
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{n} core{'' if n == 1 else 's'}"


def _memory() -> str:
    try:
        total = memory_bytes()
    except (ValueError, OSError):
        return "memory unknown"
    return f"{total / GIB:.0f} GiB of memory"


class SettingsType(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """KEY=VALUE of --set, unchanged: shells complete names, and choices of values."""

    name = "setting"

    def __init__(self, only: frozenset[str] | None = None) -> None:
        """only  the settings that may be named; None: all"""
        self.only = only

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem[Any]]":
        name, equals, value = incomplete.partition("=")
        described = [each for each in describe_settings() if self.only is None or each.name in self.only]
        if not equals:
            named = [setting for setting in described if setting.name.startswith(name.replace("-", "_"))]
            return [CompletionItem(f"{setting.name}=", help=setting.meaning) for setting in named]
        values = next((setting.values for setting in described if setting.name == name), ())
        return [CompletionItem(f"{name}={each}") for each in values if each.startswith(value)]


def read_values(config: Path | None, assignments: Sequence[str]) -> dict[str, object]:
    """Settings from a config file and assignments; the later wins. Raises SettingsError."""
    values: dict[str, object] = {} if config is None else _read_toml(config)
    for assignment in assignments:
        key, separator, value = assignment.partition("=")
        if not separator:
            raise SettingsError(
                f"Cannot use --set {assignment!r}: it has no '='. Write KEY=VALUE, for example landmarks=24."
            )
        values[key.strip().replace("-", "_")] = value.strip()
    return values


def setting_help(setting: Description) -> str:
    """What `-h` prints of a setting after its name and default."""
    zero = f" 0: {setting.zero}." if setting.zero else ""
    return f"{setting.meaning}{zero} [{setting.allowed}]"


def _read_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"Cannot read settings from {path}: it does not exist. Check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(
            f"Cannot read settings from {path}: it is not valid TOML ({error}). Correct it."
        ) from None


F = TypeVar("F", bound=Callable[..., Any])
NO_THREAD = "can't start new thread"  # the message of Python's RuntimeError
RESOURCE, INTERRUPTED = ResourceError.exit_code, InterruptedRunError.exit_code
PATH = click.Path(path_type=Path)


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem[Any]]":
    """Make a shell complete names of files: of paths and addresses."""
    return [CompletionItem(incomplete, type="file")]


class AddressType(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """A path, or the unchanged address of an object store: click.Path drops one of its slashes."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return path_on_disk(str(value)) or str(value)
        except DcpredError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem[Any]]":
        return files(ctx, param, incomplete)


class FolderType(AddressType):
    """A path on a disk; object stores are refused."""

    name = "folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = super().convert(value, param, ctx)
        if not isinstance(path, Path):
            self.fail(f"{path} is not a folder on a disk; name one", param, ctx)
        return path


ADDRESS = AddressType()

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on standard output."
)


SCHEDULER_VARIABLE = "DASK_SCHEDULER_ADDRESS"


def cluster_options(command: F) -> F:
    """Options of workers: a command gets `workers` (-1: one per core) or `client`; the other is None."""

    @click.option(
        "--workers",
        type=click.IntRange(1),
        metavar="N",
        help="Local processes of one thread each [default: one per core; none for a single block].",
    )
    @click.option(
        "--scheduler",
        metavar="ADDRESS",
        envvar=SCHEDULER_VARIABLE,
        help="A running Dask cluster: tcp://host:8786 or tls://host:8786"
        f" [default: ${SCHEDULER_VARIABLE}, if set and --workers is not given].",
    )
    @click.option(
        "--dashboard",
        is_flag=True,
        help="Let local processes serve Dask's dashboard on loopback, where every user of this computer sees"
        " their work.",
    )
    @click.option("--tls-ca-file", metavar="FILE", help=_of_tls("Certificate of the CA of that cluster"))
    @click.option("--tls-cert", metavar="FILE", help=_of_tls("Certificate of this process"))
    @click.option("--tls-key", metavar="FILE", help=_of_tls("Its private key"))
    @wraps(command)
    def run(
        *args: Any,
        workers: int | None,
        scheduler: str | None,
        dashboard: bool,
        tls_ca_file: str | None,
        tls_cert: str | None,
        tls_key: str | None,
        **kwargs: Any,
    ) -> None:
        named_by, source = "", click.get_current_context().get_parameter_source("scheduler")
        if scheduler is not None and source is ParameterSource.ENVIRONMENT:
            scheduler, named_by = (None, "") if workers is not None else (scheduler, SCHEDULER_VARIABLE)
        if scheduler is None and (tls_ca_file or tls_cert or tls_key):
            raise click.UsageError(
                "Cannot use certificates: no Dask scheduler is given. Add --scheduler tls://host:8786, or"
                " omit the --tls options."
            )
        address = (
            Scheduler(scheduler, tls_ca_file, tls_cert, tls_key, named_by) if scheduler is not None else None
        )
        if dashboard and address is not None:
            raise click.UsageError(
                "Cannot combine --dashboard with a running Dask cluster: the cluster serves its own pages."
                " Omit --dashboard: the command prints their address."
            )
        if workers is not None and address is not None:
            raise click.UsageError(
                "Cannot combine --workers with --scheduler: one excludes the other. Give one of them."
            )
        if workers is None and address is None:
            workers = -1
        with pages_opened() if dashboard else nullcontext():
            command(*args, workers=workers, client=address, **kwargs)

    return run  # type: ignore[return-value]


def _of_tls(meaning: str) -> str:
    return f"{meaning}, a PEM file [default: as Dask is configured]."


def fail_option(command: F) -> F:
    """An option that makes remarks errors."""

    @click.option(
        "--fail-on",
        type=click.Choice([Severity.ALARM.value, Severity.WARNING.value]),
        help="End with exit code 7 at a remark of this severity, before anything is published.",
    )
    @wraps(command)
    def run(*args: Any, fail_on: str | None, **kwargs: Any) -> None:
        with collecting(fails_from=None if fail_on is None else Severity(fail_on), is_command=True):
            command(*args, **kwargs)

    return run  # type: ignore[return-value]


def storage_option(command: F) -> F:
    """Options of object stores, which apply to all addresses of a command."""

    @click.option(
        "--storage-option",
        "storage_option",
        multiple=True,
        metavar="NAME=VALUE",
        help=f"Option of object stores ({', '.join(OPTIONS)}); put secrets into the environment.",
    )
    @wraps(command)
    def run(*args: Any, storage_option: tuple[str, ...], **kwargs: Any) -> None:
        given: dict[str, str] = {}
        for text in storage_option:
            name, equals, value = text.partition("=")
            if not equals:
                raise click.UsageError("Cannot use --storage-option: it has no value. Write NAME=VALUE.")
            given[name] = value
        with storage_options(check_options(given)), reading_once():
            command(*args, **kwargs)

    return run  # type: ignore[return-value]


class DurationType(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """A time with its unit, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number, unit = str(value)[:-1], str(value)[-1:]
        try:
            seconds = float(number) * {"s": 1.0, "m": 60.0, "h": 3600.0}[unit]
        except (KeyError, ValueError):
            seconds = 0.0
        if not 0 < seconds < float("inf"):
            self.fail(f"{value!r} is not a time above 0. Write 30s, 10m or 1h.", param, ctx)
        return seconds


class NamesType(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """Names between commas; double quotes enclose a name that holds a comma."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        if isinstance(value, list | tuple):
            return list(value)
        rows = list(csv.reader([str(value)], skipinitialspace=True))
        return [name.strip() for row in rows for name in row if name.strip()]


def emit(
    result: Any,
    as_json: bool,
    error: DcpredError | None = None,
    *,
    owners: Sequence[type] = (),
    draw: Callable[[dict[str, Any]], str] | None = None,
) -> None:
    """Print the result of a command, with the error that it ended with, as text or one object in JSON.

    owners  the result classes of its document, if it is of several
    draw    the text of the document, if that is no list of lines and tables
    """
    document = result.as_dict() if isinstance(result, PublicResult) else document_of(result)
    remarks = take_unprinted()
    text = "" if as_json else draw(document) if draw else shown(owners or type(result), document)
    text = f"{text}\n\n{_remarks_text(remarks)}" if remarks else text
    outcome = {} if error is None else {"error": str(error), "exit_code": error.exit_code}
    _print(json.dumps({**document, **outcome}, default=_plain) if as_json else text)
    if error is not None:
        print_error(str(error))
        raise SystemExit(error.exit_code) from error


def _remarks_text(remarks: Sequence[Remark]) -> str:
    return rows((remark.severity, remark.text) for remark in remarks)


def outcome_of(call: Callable[[], Any]) -> tuple[Any, DcpredError | None]:
    """The report of a call, and the error that it ended with. Raises an error without a report."""
    try:
        return call(), None
    except DcpredError as error:
        if error.report is None:
            raise
        return error.report, error


def _print(text: str) -> None:
    """Print a result on standard output. A closed output does not undo the work."""
    try:
        click.echo(text.encode(errors="backslashreplace").decode())  # a name may be invalid text
    except OSError as error:
        with open(os.devnull, "w") as nowhere:
            # The buffer is flushed at exit: what remains in it has to go somewhere.
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if error.errno != errno.EPIPE:
            raise ResourceError(
                f"Cannot print the result: standard output is not writable ({error.strerror})."
                " The work itself is done. Run the command again to print it."
            ) from None


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def reports_errors(command: F) -> F:
    """Print an error as one sentence on standard error and exit with a code of deploy/README.md."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        as_json, collected = bool(kwargs.get("as_json")), Collected()
        try:
            with signals_handled(), library_warnings(), collecting(is_command=True) as collected:
                if verbosity() >= Verbosity.MORE:
                    for line in surroundings():
                        reporter().detail(line)
                command(*args, **kwargs)
        except BaseException as error:
            _print_unprinted(collected, str(error))
            outcome = failure(error)
            if outcome is None:
                raise
            if verbosity() >= Verbosity.MORE:
                traceback.print_exception(error)
            _fail(*outcome, as_json)

    return run  # type: ignore[return-value]


def _print_unprinted(collected: Collected, error: str) -> None:
    """Print the remarks of a command that failed before its result, but for those that the error states."""
    remarks = [remark for remark in collected.unprinted() if remark.text not in error]
    if remarks and verbosity() > Verbosity.QUIET and not takes_standard_error():
        click.echo(_remarks_text(remarks), err=True)


@contextmanager
def library_warnings() -> Iterator[None]:
    """Print each warning of a library once, on one line; none with -q. With -v Python prints them."""
    if verbosity() >= Verbosity.MORE:
        yield
        return
    printed = set()

    def show(message: Warning | str, *where: object, **more: object) -> None:
        text = one_line(str(message))
        if text not in printed:
            printed.add(text)
            reporter().remark(f"warning: {text}")

    with warnings.catch_warnings():
        if verbosity() == Verbosity.QUIET:
            warnings.simplefilter("ignore")
        warnings.showwarning = show
        yield


def failure(error: BaseException) -> tuple[str, int] | None:
    """The sentence and the exit code of an error; None for an unexpected one."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; run the same command again to resume", INTERRUPTED
    if isinstance(error, DcpredError):
        return str(error), error.exit_code
    if isinstance(error, MemoryError) or NO_THREAD in str(error):
        why = "threads" if NO_THREAD in str(error) else "memory"
        return (
            f"Cannot go on: this process may use no more {why}. Raise its limits (ulimit -v and -u, or those"
            " of its container or job), then run the same command again."
        ), RESOURCE
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename and error.errno not in OBSTACLES else ""
        return f"{place}{reason(error)}", RESOURCE
    return None


def _fail(sentence: str, code: int, as_json: bool) -> None:
    if as_json:
        with suppress(ResourceError):
            _print(json.dumps({"error": sentence, "exit_code": code}))
    print_error(sentence)
    sys.exit(code)


class RowCount(click.IntRange):
    """A number of rows. Another option takes a fraction."""

    name = "rows"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(
                f"{value} is not a number of rows; use an integer of 0 or more, or --max-bad-fraction for a"
                " fraction of all rows",
                param,
                ctx,
            )
