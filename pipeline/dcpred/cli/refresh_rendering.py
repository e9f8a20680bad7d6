"""Format results of `dcpred refresh`, and the runs of its root, as text."""

import time
from typing import Any

from dcpred.cli.rendering import drift_words, rows, table


def refreshed(r: dict[str, Any]) -> str:
    state = {
        "published": "it is the latest now",
        "unchanged": "nothing changed; nothing was written",
        "kept": f"not published, limits exceeded: {r['why_kept']}",
        "left": f"left alone: {r['why_kept']}",
    }[r["state"]]
    if r["state"] == "unchanged" and r["taken_blocks"] + r["scored_blocks"]:
        state = "made again: it was missing or modified"
    n_bad = sum(n for code, n in r["status"].items() if code != "1")
    pairs = [
        ("root", r["root"]),
        ("run", f"{r['run']}  ({state})"),
        ("latest", r["latest"] or "none yet"),
        ("rows", f"{r['n_rows']:,}" + (f", {n_bad:,} of them without a score" if n_bad else "")),
        (
            "blocks",
            f"{r['n_blocks']:,}; now {r['taken_blocks']:,} reused and {r['scored_blocks']:,} scored",
        ),
        ("seconds", f"{r['seconds']:.1f}"),
    ]
    if r["gone"]:
        pairs.append(("gone", f"{', '.join(r['gone'])} (their scores stay)"))
    if r["removed"]:
        pairs.append(("removed", ", ".join(r["removed"])))
    for name, drift in (("drift", r["drift"]), ("drift of new", r["new_drift"])):
        if drift and (moved := drift_words({"drift": drift})):
            pairs.append((name, moved))
    return rows(pairs)


def published(r: dict[str, Any]) -> str:
    return rows([("latest", r["latest"]), ("before", r["before"] or "none")])


def root_runs(r: dict[str, Any]) -> str:
    """A short head, then one line per run."""
    pairs = [("root", r["root"]), ("data", r["data"]), ("latest", r["latest"] or "none yet")]
    if r["driver"]:
        pairs.append(("driver", f"{r['driver']} refreshes it now"))
    lines = table(
        [["run", "state", "finished", "rows", "blocks", "taken", "bad", ""], *map(_cells, r["runs"])],
        left=(0, 1, 2, 7),
    )
    more = r["n_runs"] - len(r["runs"])
    return "\n".join([rows(pairs), "", *lines, *([f"and {more:,} more"] if more > 0 else [])])


def _cells(one: dict[str, Any]) -> list[str]:
    ended = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["ended"])) if one["ended"] else ""
    if one["state"] == "unfinished":
        ended = f"{one['done_blocks']:,} blocks done"
    numbers = [f"{one[name]:,}" for name in ("n_rows", "n_blocks", "taken_blocks", "n_bad")]
    return [one["run"], one["state"], ended, *numbers, "drift" if one["drift_is_large"] else ""]
