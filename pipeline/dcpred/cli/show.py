"""Results as a person reads them."""

from typing import Any

MIB = 2**20


def rows(pairs: list[tuple[str, str]]) -> str:
    """Two columns."""
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in pairs)


def trained(r: dict[str, Any]) -> str:
    state = "already trained; nothing was written" if r["already_trained"] else f"trained in {sum(r['seconds'].values()):.1f} s"
    constant = f", {r['n_constant_leaves']:,} of them constant" if r["n_constant_leaves"] else ""
    thinned = f"; {r['thinned_leaves']:,} of rows that are all alike were thinned to the limit" if r["thinned_leaves"] else ""
    return rows(
        [
            ("model", f"{r['model']}  ({state})"),
            ("rows", f"{r['n_rows']:,} × {r['n_features']:,}"),
            ("leaves", f"{r['n_leaves']:,}{constant}, the largest of {r['largest_leaf_rows']:,} rows{thinned}"),
            ("landmarks", f"{r['n_landmarks']:,}"),
            ("seconds", ", ".join(f"{name} {s:.1f}" for name, s in r["seconds"].items())),
            (
                "peak memory",
                f"{max(r['worker_peak_memory_bytes'].values(), default=0) / MIB:,.0f} MiB in a worker, "
                f"{r['driver_peak_memory_bytes'] / MIB:,.0f} MiB in the driver",
            ),
            ("hash", r["hash"]),
        ]
    )


def scored(r: dict[str, Any]) -> str:
    names = r["manifest"]["status_names"]
    status = ", ".join(f"{n:,} {names[code].replace('_', ' ')}" for code, n in r["status"].items())
    pairs = [
        ("output", r["output"]),
        ("rows", f"{r['n_rows']:,} ({status})"),
        ("blocks", f"{r['n_blocks']:,}, of which {r['scored_blocks']:,} were scored now; all verified"),
    ]
    if r["scored_blocks"]:
        pairs.append(("speed", f"{r['rows_per_second']:,.0f} rows/s, {r['seconds']:.1f} s in all"))
    pairs.append(
        (
            "peak memory",
            f"{max(r['worker_peak_memory_bytes'].values(), default=0) / MIB:,.0f} MiB in a worker, "
            f"{r['driver_peak_memory_bytes'] / MIB:,.0f} MiB in the driver",
        )
    )
    if r["bad_rows"]:
        listed = ", ".join(f"{row} (status {code})" for row, code in r["bad_rows"][:5])
        more = sum(n for code, n in r["status"].items() if code != "1") - min(len(r["bad_rows"]), 5)
        pairs.append(("not scored", listed + (f" and {more:,} more" if more > 0 else "")))
    return rows(pairs)


def evaluated(r: dict[str, Any]) -> str:
    pairs = [("rows", f"{r['n_samples']:,}" + (f", {r['n_bad']:,} of them not finite and left out" if r["n_bad"] else ""))]
    for name in ("accuracy", "early_accuracy", "rmse", "r2", "early_rmse", "early_r2"):
        if r.get(name) is not None:
            pairs.append((name, f"{100 * r[name]:.2f} %" if "accuracy" in name else f"{r[name]:.6g}"))
    pairs += [
        ("us_per_row", f"{r['us_per_row']:.3f}  (in cache {r['cached_us_per_row']:.3f})"),
        ("linear_us_per_row", f"{r['linear_us_per_row']:.4f}  (in cache {r['cached_linear_us_per_row']:.4f})"),
        ("cost_ratio", f"{r['cost_ratio']:.1f} linear predictions  (in cache {r['cached_cost_ratio']:.1f})"),
    ]
    return rows(pairs)


def imported(r: dict[str, Any]) -> str:
    target = (
        "no target" if not r["target"] else f"y {r['target_dtype']}" + (f", {r['n_classes']} classes" if r["n_classes"] else "")
    )
    return rows(
        [
            ("data", r["path"]),
            ("rows", f"{r['n_samples']:,} × {r['n_features']:,} {r['dtype']} in chunks of {r['chunk_rows']:,} rows"),
            ("target", target),
        ]
    )


def demonstrated(r: dict[str, Any]) -> str:
    out = r["out"]
    table = rows(
        [
            ("linear model", f"{100 * r['linear_accuracy']:.2f} %  ({r['rival_rows']:,} rows)"),
            ("exact SVM", f"{100 * r['svm_accuracy']:.2f} %  ({r['rival_rows']:,} rows; {r['svm_us_per_row']:.0f} µs a row)"),
            (
                "dcpred",
                f"{100 * r['accuracy']:.2f} %  ({r['n_rows']:,} rows; {r['us_per_row']:.2f} µs a row, "
                f"{r['cost_ratio']:.0f} linear predictions)",
            ),
            ("its local SVMs", f"{100 * r['early_accuracy']:.2f} %  (early prediction)"),
        ]
    )
    places = rows(
        [
            ("data", f"{out}/digits.zarr, {out}/held-out.zarr"),
            ("model", f"{out}/model  ({r['n_leaves']} leaves, trained in {r['train_seconds']:.1f} s)"),
            (
                "scores",
                f"{out}/scores/scores.zarr  ({r['rows_per_second']:,.0f} rows/s)"
                if r["rows_per_second"]
                else f"{out}/scores/scores.zarr",
            ),
        ]
    )
    return f"Accuracy on the originals held out\n{table}\n\nWhere everything lies\n{places}\n\nDone in {r['seconds']:.0f} s."


def inspected(r: dict[str, Any]) -> str:
    pairs: list[tuple[str, str]] = []
    _flatten("", r, pairs)
    return rows(pairs)


def _flatten(prefix: str, value: Any, pairs: list[tuple[str, str]]) -> None:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            _flatten(f"{prefix}.{name}" if prefix else str(name), inner, pairs)
    else:
        text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        pairs.append((prefix, text if len(text) <= 200 else f"{text[:200]} …"))
