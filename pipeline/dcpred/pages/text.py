"""Texts of any origin, adapted to one line of a page or a plot."""

from typing import Any

LONGEST = 200  # letters of a name


def plain(value: Any, longest: int = LONGEST) -> str:
    """A value on one line, without unprintable characters, cut if it is long."""
    text = "".join(c if c.isprintable() else "�" for c in str(value)[: longest + 1])
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def number(value: float | None, digits: int = 4) -> str:
    """A number in so many digits; a dash if it is missing."""
    if value is None:
        return "–"
    whole = isinstance(value, int) or abs(value) >= 10**digits
    return f"{value:,.0f}".replace("-", "−") if whole else f"{value:.{digits}g}".replace("-", "−")


def percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def counted(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}" if n else f"no {many}"


def size(n_bytes: float | None) -> str:
    if n_bytes is None:
        return "–"
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n_bytes < 1024 or unit == "GiB":
            break
        n_bytes /= 1024
    return f"{n_bytes:,.0f} {unit}" if unit == "bytes" or n_bytes >= 10 else f"{n_bytes:.1f} {unit}"
