"""What makes a function public: it checks its arguments, shows progress, and describes what others share."""

import difflib
import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import fields
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from dcpred.execution.progress import reporter, reporting
from dcpred.public.parameters import documented
from dcpred.public.remarks import collecting, failing_from, remarks_in_errors, with_remarks
from dcpred_tasks.annotations import in_words, is_allowed
from dcpred_tasks.errors import DcpredError, SettingsError
from dcpred_tasks.storage.once import reading_once
from dcpred_tasks.training.settings import Settings

R = TypeVar("R")
P = ParamSpec("P")
OPTIONS: ContextVar[Mapping[str, str] | None] = ContextVar("OPTIONS", default=None)
"""The options of the command that calls a function, by parameter; none in Python."""
SETTING_NAMES = tuple(field.name for field in fields(Settings))


def option_of(parameter: str) -> str:
    """What the caller calls a parameter: its name, or the option of the command."""
    return (OPTIONS.get() or {}).get(parameter, parameter)


def typed(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which refuses an argument of another type than its annotation in one sentence, and lists
    each table and opens each model once. With `verbose` it shows progress. Its result gets the remarks of the
    run. Its docstring gets the texts of parameters that others share.
    """
    parameters = inspect.signature(function).parameters

    @wraps(documented(function))
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        check_keywords(function.__name__, kwargs, parameters)
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        for name, value in given.items():
            wanted = parameters[name].annotation
            if not is_allowed(value, wanted):
                raise SettingsError(
                    f"Cannot use {name}={value!r}: it is of type {type(value).__name__}."
                    f" Pass {' or '.join(in_words(wanted))}."
                )
        shown = reporting(reporter(given["verbose"])) if "verbose" in given else nullcontext()
        fails_from = failing_from(given.get("on_alarm", "warn"))
        with (
            collecting(given.get("accept", ()), fails_from) as collected,
            remarks_in_errors(collected),
            reading_once(),
            shown,
        ):
            return with_remarks(function(*args, **kwargs), collected)

    return call


def check_keywords(function: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise TypeError, with what to pass, for a keyword that a function does not have: above all settings."""
    others = [name for name in given if name not in known]
    if not others:
        return
    as_settings = {name: given[name] for name in others if name in SETTING_NAMES}
    if as_settings and "settings" in known:
        before = given.get("settings")
        settings = {**before, **as_settings} if isinstance(before, Mapping) else as_settings
        raise TypeError(f"Cannot call {function} with {', '.join(as_settings)}: pass settings={settings!r}.")
    near = difflib.get_close_matches(others[0], [*known, *(SETTING_NAMES if "settings" in known else ())], 1)
    hint = f" Did you mean {near[0]!r}?" if near else f" It has {', '.join(known)}."
    raise TypeError(f"Cannot call {function} with {others[0]!r}: it has no such parameter.{hint}")


def checked(report: R, check: Callable[[], None]) -> R:
    """The report, once `check` accepts it. What it raises holds the report as its attribute `report`."""
    try:
        check()
    except DcpredError as error:
        error.report = report
        raise
    return report
