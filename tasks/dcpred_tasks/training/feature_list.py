"""Features as the settings `categorical` and `missing` list them, in text: "soil,3,7-9"."""

import json
import re
from collections.abc import Iterable, Sequence
from numbers import Integral

import numpy as np

from dcpred_tasks.errors import SettingsError

PART = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^,]*?)\s*(?:,|$)')  # one between commas, in double quotes or not


def as_text(features: Sequence[int]) -> str:
    """Ascending numbers of features as text of the setting: 0-41 means all from 0 to 41."""
    breaks = np.flatnonzero(np.diff(features) != 1) + 1
    spans = np.split(np.array(features), breaks)
    return ",".join(f"{s[0]}" if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans)


def listed(value: object, setting: str) -> str:
    """The text of the value of a setting. Names of a list, or of its JSON, are in double quotes, which
    distinguishes them from numbers. Raises SettingsError.
    """
    if isinstance(value, str):
        if not value.lstrip().startswith("["):
            return value
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise SettingsError(
                f"Cannot use {setting}={str(value)[:80]}: it is not a list in JSON. Write it as"
                ' ["soil", 7], with names in double quotes, or as soil,7.'
            ) from None
    if isinstance(value, Iterable) and any(isinstance(one, bool | np.bool_) for one in value):
        raise SettingsError(
            f"Cannot use a mask of True and False in {setting}: it lists features. Name them by numbers, for"
            " example with numpy.flatnonzero(mask).tolist(), or by names."
        )
    features = [value] if isinstance(value, Integral) or not isinstance(value, Iterable) else list(value)
    parts = []
    for one in features:
        if isinstance(one, str):
            parts.append(json.dumps(one))
        elif isinstance(one, Integral) and not isinstance(one, bool) and int(one) >= 0:
            parts.append(str(one))
        else:
            raise SettingsError(
                f"Cannot use feature {one!r} in {setting}: it is neither a name nor a number from 0 on. Name"
                " features by strings or integers."
            )
    return ",".join(parts)


def parts(text: str, setting: str = "categorical") -> list[tuple[str, bool]]:
    """The parts between commas that are not empty, and whether each is a name in double quotes."""
    found = [match[1] for match in PART.finditer(text) if match[1]]
    return [(_unquoted(part, setting), True) if part.startswith('"') else (part, False) for part in found]


def numbers(text: str) -> list[int]:
    """The features in a text of numbers and spans, ascending; words are ignored."""
    spans = (part.split("-") for part, _ in parts(text) if part[:1].isdecimal())
    return sorted({f for span in spans for f in range(int(span[0]), int(span[-1]) + 1)})


def _unquoted(part: str, setting: str) -> str:
    try:
        return str(json.loads(part))
    except ValueError:
        raise SettingsError(
            f"Cannot use feature {part} in {setting}: its quotes cannot be read. Write a name in double"
            " quotes as in JSON."
        ) from None
