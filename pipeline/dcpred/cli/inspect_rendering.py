"""What lies at a path, as a person reads it."""

from typing import Any

from dcpred.cli.rendering import drift_told, rows
from dcpred.cli.schema_rendering import schema_lines
from dcpred.execution.progress import counted
from dcpred.training.column_report import map_in_words

NAMED = 10  # most features with gaps that are named
UNLISTED = ("missing_chunks", "bytes_on_disk")  # None where a server lists nothing


def inspected(r: dict[str, Any]) -> str:
    pairs: list[tuple[str, str]] = []
    schema = r.get("schema")
    _flatten(
        "",
        {
            **{key: r[key] for key in r if key != "schema"},
            **_coded(r),
            **_target_encoded(r),
            **_gaps(r),
            **_feature_map(r),
            **_unpredicted(r),
        },
        pairs,
    )
    pairs += schema_lines(schema) if schema else []
    moved = drift_told(r["manifest"]) if r["kind"] == "scores" and r["manifest"] else None
    return rows([("drift", moved), *pairs] if moved else pairs)


def _coded(r: dict[str, Any]) -> dict[str, Any]:
    """In place of the codes of each coded feature, how many of them have a column."""
    if not r.get("coded_features"):
        return {}
    named = {
        _named(one): counted(len(one["codes"]), "code has a column", "codes have a column")
        for one in r["coded_features"]
    }
    return {"coded_features": named}


def _target_encoded(r: dict[str, Any]) -> dict[str, Any]:
    """Of each feature whose codes become means of the target how many categories there are."""
    if not r.get("target_encoded"):
        return {}
    told = {
        _named(one): f"means of the target of {counted(one['categories'], 'category', 'categories')}"
        + (f" for {one['means']} classes" if one["means"] > 1 else "")
        for one in r["target_encoded"]
    }
    return {"target_encoded": told}


def _gaps(r: dict[str, Any]) -> dict[str, Any]:
    """In place of all features with gaps, those with most of them, and what stands for theirs."""
    found = r.get("gaps")
    if not found:
        return {}
    most = sorted(found["features"], key=lambda one: -one["share"])[:NAMED]
    told = {
        _named(one): f"in {100 * one['share']:.3g} % of sampled rows, as {one['value']:.6g}"
        + (", with an indicator" if one["indicator"] else "")
        for one in most
    }
    more = len(found["features"]) - len(most)
    return {"gaps": told | ({"further features": more} if more else {}) or "known, and in no sampled row"}


def _feature_map(r: dict[str, Any]) -> dict[str, Any]:
    """In place of all mapped features, how many there are."""
    return {"feature_map": map_in_words(r["feature_map"])} if r.get("feature_map") else {}


def _named(one: dict[str, Any]) -> str:
    return str(one["feature"] if one["name"] is None else one["name"])


def _unpredicted(r: dict[str, Any]) -> dict[str, Any]:
    """In place of the cost of a machine that the engine does not score."""
    missing = r["kind"] == "model" and r["predicted_cost"] is None
    return {"predicted_cost": "measured by dcpred evaluate"} if missing else {}


def _flatten(prefix: str, value: Any, pairs: list[tuple[str, str]]) -> None:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            _flatten(f"{prefix}.{name}" if prefix else str(name), inner, pairs)
    else:
        text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        text = "not known" if value is None and prefix.endswith(UNLISTED) else text
        pairs.append((prefix, text if len(text) <= 200 else f"{text[:200]} …"))
