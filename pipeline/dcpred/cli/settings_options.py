"""Settings of training, from a TOML file and from KEY=VALUE pairs."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from dcpred_tasks.errors import SettingsError
from dcpred_tasks.training.setting_descriptions import Description, describe_settings


class SettingsType(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """KEY=VALUE of --set, unchanged: shells complete names, and choices of values."""

    name = "setting"

    def __init__(self, only: frozenset[str] | None = None) -> None:
        """only  the settings that may be named; None: all"""
        self.only = only

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        name, equals, value = incomplete.partition("=")
        described = [one for one in describe_settings() if self.only is None or one.name in self.only]
        if not equals:
            named = [one for one in described if one.name.startswith(name.replace("-", "_"))]
            return [CompletionItem(f"{one.name}=", help=one.meaning) for one in named]
        values = next((one.values for one in described if one.name == name), ())
        return [CompletionItem(f"{name}={one}") for one in values if one.startswith(value)]


def read_values(
    config: Path | None, assignments: Sequence[str], task: str | None = None
) -> dict[str, object]:
    """Settings from a config file, assignments and the task; the later wins. Raises SettingsError."""
    values: dict[str, object] = {}
    if config is not None:
        values |= _read_toml(config)
    for assignment in assignments:
        key, separator, value = assignment.partition("=")
        if not separator:
            raise SettingsError(
                f"Cannot use --set {assignment!r}: it has no '='. Write KEY=VALUE, for example landmarks=24."
            )
        values[key.strip().replace("-", "_")] = value.strip()
    if task is not None:
        values["task"] = task
    return values


def setting_help(one: Description) -> str:
    """What `-h` prints of a setting after its name and default."""
    zero = f" 0: {one.zero}." if one.zero else ""
    return f"{one.meaning}{zero} [{one.allowed}]"


def _read_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"Cannot read settings from {path}: it does not exist. Check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(
            f"Cannot read settings from {path}: it is not valid TOML ({error}). Correct it."
        ) from None
