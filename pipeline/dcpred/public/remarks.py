"""The remarks of the running public function: collected for its result, passed to Python's warnings."""

import re
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dcpred.execution.events import record_event
from dcpred.execution.progress import show
from dcpred.public.results import PublicResult
from dcpred_tasks.errors import DcpredError, RemarkError, SettingsError
from dcpred_tasks.remarks import RANKS, DataWarning, Remark, Severity, check_codes

R = TypeVar("R")
OURS = ("dcpred", "dcpred_tasks", "dcpred_compare")
ARGUMENT = re.compile(
    r"`[^`]*`|(?<![\w-])--([a-z][a-z-]*)(?: ('[^']*'|[A-Z]+:\w+))?"
)  # a command, or an option
OTHER_NAMES = {"with": "beside"}  # arguments of functions whose option has another name
OF_FIT = {  # what advice of options is for an estimator, in the order in which it is replaced
    "leave it out with --drop": "leave it out of X",
    "omit it with --drop": "leave it out of X",
    ", or keep it with --id": "",
    "keep it with --id, or ": "",
    "import the source again with --gap": "replace it by NaN",
    "import codes as missing values with --gap": "replace codes of missing values by NaN",
    "--by-group or --by-time": "groups or cv",
    "--by-group": "groups",
    "--by-time": "cv",
}


@dataclass
class Collected:
    """Remarks within a `with` statement, those of functions within it among them."""

    accepted: frozenset[str] = frozenset()
    fails_from: Severity | None = None
    """The severity from which a remark is an error; None: no remark is."""
    is_command: bool = False
    """Whether a command prints them below its result."""
    is_fit: bool = False
    """Whether an estimator has them."""
    outer: "Collected | None" = None
    remarks: list[Remark] = field(default_factory=list)
    n_printed: int = 0

    def unprinted(self) -> list[Remark]:
        """The remarks that no call has returned yet."""
        first, self.n_printed = self.n_printed, len(self.remarks)
        return self.remarks[first:]

    def add(self, remark: Remark) -> bool:
        """Add a remark, unless it is known. Returns whether it is new to all."""
        is_new = _form(remark) not in map(_form, self.remarks)
        if is_new:
            self.remarks.append(remark)
        return is_new & (self.outer is None or self.outer.add(remark))

    def in_its_words(self, remark: Remark) -> Remark:
        """The remark, in Python with the arguments of a function or an estimator in place of options."""
        if self.is_command:
            return remark
        return replace(remark, what=self._in_python(remark.what), do=self._in_python(remark.do))

    def in_words(self) -> tuple[Remark, ...]:
        """The remarks as a result holds them."""
        return tuple(map(self.in_its_words, self.remarks))

    def _in_python(self, text: str) -> str:
        for option, words in OF_FIT.items() if self.is_fit else ():
            text = text.replace(option, words)
        return ARGUMENT.sub(_as_argument, text)

    def failing(self, remarks: Collection[Remark]) -> list[Remark]:
        """Those that are errors."""
        least = self.fails_from
        if least is None:
            return []
        return [each for each in remarks if RANKS[Severity(each.severity)] >= RANKS[least]]


def _as_argument(option: re.Match[str]) -> str:
    if option[1] is None:  # a command
        return option[0]
    value = repr(option[2].strip("'")) if option[2] else ""
    return f"{OTHER_NAMES.get(option[1], option[1].replace('-', '_'))}={value}"


def failing_from(on_alarm: str) -> Severity | None:
    """The severity from which a remark is an error. Raises SettingsError."""
    if on_alarm not in ("warn", "raise"):
        raise SettingsError(f"Cannot use on_alarm={on_alarm!r}: it is unknown. Use 'warn' or 'raise'.")
    return Severity.ALARM if on_alarm == "raise" else None


def _form(remark: Remark) -> tuple[str, str]:
    """A remark without its numbers, which differ from fold to fold."""
    return remark.code, re.sub(r"\d[\d.,]*", "#", remark.what)


_current: ContextVar[Collected | None] = ContextVar("dcpred_remarks", default=None)


@contextmanager
def collecting(
    accept: Collection[str] = (),
    fails_from: Severity | None = None,
    *,
    is_command: bool = False,
    is_fit: bool = False,
) -> Iterator[Collected]:
    """Collect remarks within a `with` statement. Raises SettingsError for an unknown code.

    accept      codes to omit
    fails_from  severity from which a remark raises RemarkError; by default that of the function around it
    """
    check_codes(accept)
    outer = _current.get()
    if outer is not None:
        accept = {*accept, *outer.accepted}
        fails_from, is_command = fails_from or outer.fails_from, is_command or outer.is_command
        is_fit = is_fit or outer.is_fit
    collected = Collected(frozenset(accept), fails_from, is_command, is_fit, outer)
    before = _current.set(collected)
    try:
        yield collected
    finally:
        _current.reset(before)


def add_remarks(*remarks: Remark, report: Any = None, fails: bool = True) -> None:
    """Add remarks to those of the running function. Warnings and alarms go to Python's warnings. Raises
    RemarkError, with a report that is complete without them, for one that has to fail.
    """
    collected = _current.get() or Collected()
    wanted = [remark for remark in remarks if remark.code not in collected.accepted]
    for remark in wanted:
        if collected.add(remark):
            _publish(remark, collected)
    if fails and (failing := collected.failing(wanted)):
        failing = [collected.in_its_words(remark) for remark in failing]
        error = RemarkError(_failing_text(failing, collected.is_command))
        error.report, error.remarks = report, tuple(failing)
        raise error


def _failing_text(remarks: Collection[Remark], is_command: bool) -> str:
    """The sentence of an error, which says what allows them."""
    texts = " | ".join(f"{remark.severity} {remark.text}" for remark in remarks)
    codes = [*dict.fromkeys(remark.code for remark in remarks)]
    how = f"--accept {','.join(codes)}" if is_command else f"accept={codes}"
    return f"Cannot go on: {texts}. Correct this, or allow it with {how}."


def take_unprinted() -> list[Remark]:
    """The remarks of the running command that are not printed yet."""
    collected = _current.get()
    return [] if collected is None else collected.unprinted()


def recorded() -> tuple[Remark, ...]:
    """The remarks of the running function up to now."""
    collected = _current.get()
    return () if collected is None else tuple(collected.remarks)


def failing(remarks: Collection[Remark]) -> list[Remark]:
    """The remarks that `add_remarks` would fail on."""
    collected = _current.get()
    if collected is None:
        return []
    return collected.failing([remark for remark in remarks if remark.code not in collected.accepted])


def _publish(remark: Remark, collected: Collected) -> None:
    remark = collected.in_its_words(remark)
    facts = {"code": remark.code, "severity": remark.severity, "text": remark.text}
    record_event("remark", "info" if remark.severity == Severity.NOTE else "warning", **facts)
    if collected.is_command:
        return
    if remark.severity == Severity.NOTE:
        show(remark.text)
    else:
        warnings.warn(remark.text, DataWarning, stacklevel=_caller_level())


def _caller_level() -> int:
    """The `stacklevel` of the first frame outside of dcpred, for the caller of this function."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in (
        *OURS,
        "contextlib",
    ):
        frame, level = frame.f_back, level + 1
    return level


def with_remarks(result: R, collected: Collected) -> R:
    """The result of a public function, with the remarks of its run."""
    if isinstance(result, PublicResult) and collected.remarks:
        return replace(result, remarks=collected.in_words())
    return result


@contextmanager
def remarks_in_errors(collected: Collected) -> Iterator[None]:
    """Add remarks to the report of an error that a `with` statement raises."""
    try:
        yield
    except DcpredError as error:
        error.report = with_remarks(error.report, collected)
        raise
