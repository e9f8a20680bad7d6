"""What commands print for a person: lines and tables."""

import shlex
import sys
import time
from collections.abc import Iterable
from typing import Any

from dcpred.execution.progress import counted, duration
from dcpred.execution.terminal import columns, is_terminal, wrapped
from dcpred.pages import headlines
from dcpred.runs.bad_rows import without_score
from dcpred.runs.manifest import ScoreReport
from dcpred.runs.status import RunStatus
from dcpred.training.column_report import gaps_in_words, map_in_words
from dcpred.training.reports import Point, TrainReport
from dcpred.training.search_result import (
    compared,
    interval_words,
    is_share,
    quality_name,
    reference_words,
    shown,
    unseen_words,
    with_cost,
    words_of,
)
from dcpred.verification.verify import VerifyReport
from dcpred_tasks.result_fields import facts_of

SHOWN = 30  # columns that are shown one by one
NAMES = 2  # categories of a column that are shown
IGNORED_SHOWN = 5
WIDEST, LONGEST = 24, 8  # letters of the name of a column, and of a category


def schema_lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    """A heading with the kinds, and a line for each of the first SHOWN columns that are not numeric."""
    columns = document["columns"]
    kinds: dict[str, int] = {}
    for column in columns:
        kinds[column["kind"]] = kinds.get(column["kind"], 0) + 1
    report = ", ".join(_many(kind, n) for kind, n in kinds.items())
    others = [column for column in columns if column["kind"] not in ("number", "target")]
    lines = [("columns", report)]
    if not others:
        return lines
    width = min(max(len(column["name"]) for column in others[:SHOWN]), WIDEST)
    lines += [("", f"{_short(column['name']):<{width}}  {_becomes(column)}") for column in others[:SHOWN]]
    return lines + ([("", f"and {len(others) - SHOWN:,} more")] if len(others) > SHOWN else [])


def followed_lines(r: dict[str, Any]) -> list[tuple[str, str]]:
    """What the schema that was followed does not know of an imported source."""
    names = [repr(name) for name in r["ignored"][:IGNORED_SHOWN]]
    more = len(r["ignored"]) - len(names)
    report = [("ignored", f"columns not known: {', '.join(names)}" + (f" and {more:,} more" if more else ""))]
    absent = ", ".join(map(repr, r["absent"][:IGNORED_SHOWN]))
    report = (report if names else []) + ([("absent", f"values not read: {absent}")] if absent else [])
    return report + [
        ("never seen", f"categories of {_short(name)} in {counted(n, 'row', 'rows')}, encoded as others")
        for name, n in (r["unknown"] or {}).items()
    ]


def _many(kind: str, n: int) -> str:
    words = {
        "number": ("number", "numbers"),
        "boolean": ("boolean", "booleans"),
        "category": ("category", "categories"),
        "date": ("date", "dates"),
        "id": ("id", "ids"),
        "target": ("target", "targets"),
        "dropped": ("omitted", "omitted"),
    }
    return counted(n, *words[kind])


def _short(name: str, most: int = WIDEST) -> str:
    """A name on a terminal: escape sequences and other unprintable characters are replaced."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in name)
    return shown if len(shown) <= most else f"{shown[: most - 2]} …"


def _becomes(column: dict[str, Any]) -> str:
    kind = column["kind"]
    if kind == "boolean":
        return "0 and 1, a missing value NaN"
    if kind == "date":
        return f"{', '.join(column['parts'])}, a missing value NaN"
    if kind == "category":
        return _category(column)
    return {"id": "stored next to X", "dropped": "omitted"}[str(kind)]


def _category(column: dict[str, Any]) -> str:
    categories = column["categories"]
    n = counted(len(categories), "category", "categories")
    if column["encoding"] == "means":
        each = f", one for each of {len(column['outputs']):,} classes" if column.get("outputs") else ""
        return f"mean targets of {n}{each}"
    if column["encoding"] == "target":
        return f"codes of {n}, target-encoded"
    shown = [f"{_short(str(name), LONGEST)} {code}" for code, name in enumerate(categories[:NAMES])]
    more = ["…"] if len(categories) > NAMES else []
    last = len(categories)
    return f"codes {', '.join([*shown, *more, f'others {last}', f'missing {last + 1}'])}"


MIB = 2**20
SHARDS_SHOWN = 8
NAMED = 5  # maximum number of rows, and of features, to name
SIDES = {"below": "low_in_words", "above": "high_in_words"}

LIMITED = ", with a higher limit if it ended at --max-bad-rows or --max-bad-fraction"


def rows(pairs: Iterable[tuple[str, str | None]]) -> str:
    """Two columns, without lines that have no value. On a terminal values are wrapped, and long paths lose
    their middle. In a file or a pipe each value is one unabridged line.
    """
    lines = [(name, value) for name, value in pairs if value is not None]
    width = max(len(name) for name, _ in lines)
    if not is_terminal(sys.stdout):
        return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)
    most, begin = columns(sys.stdout), width + 2
    return "\n".join(
        f"{name:<{width}}  {wrapped(value, most, begin=begin, indent=begin, shorten=True)}"
        for name, value in lines
    )


def field_lines(owner: type, r: dict[str, Any]) -> list[tuple[str, str]]:
    """The fields of a result that its class shows as lines of their own."""
    lines = [(name, facts.unit) for name, facts in facts_of(owner) if facts.line]
    return [(name, unit.text(r[name])) for name, unit in lines if r.get(name) is not None]


def table(lines: list[list[str]], left: tuple[int, ...] = ()) -> list[str]:
    """Lines of cells, each column as wide as necessary; numbers are right-aligned.

    left  left-aligned columns
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def sentences(lines: list[str]) -> list[str]:
    """Lines of prose, wrapped on a terminal."""
    if not is_terminal(sys.stdout):
        return lines
    return [wrapped(line, columns(sys.stdout), indent=2, shorten=True) for line in lines]


def trained(r: dict[str, Any]) -> str:
    state = (
        "already trained; nothing was written"
        if r["already_trained"]
        else f"trained in {sum(r['seconds'].values()):.1f} s"
    )
    constant = f", {r['n_constant_leaves']:,} of them constant" if r["n_constant_leaves"] else ""
    leaves = f"{r['n_leaves']:,}{constant}, the largest of {r['largest_leaf_rows']:,} rows"
    if r["thinned_leaves"]:
        leaves += f"; {r['thinned_leaves']:,} of identical rows were thinned to the limit"
    cost, threshold = r.get("predicted_cost"), r.get("threshold")
    return rows(
        [
            ("model", f"{r['model']}  ({state})"),
            ("rows", f"{r['n_rows']:,} × {r['n_features']:,}"),
            ("leaves", leaves),
            ("landmarks", f"{r['n_landmarks']:,}"),
            ("predicted cost", f"{cost['cost_ratio']:.1f}x" if cost else None),
            ("threshold", None if threshold is None else f"{threshold:.4g}"),
            ("gaps", gaps_in_words(r["gaps"], r["feature_map"])),
            ("map", map_in_words(r["feature_map"])),
            ("seconds", ", ".join(f"{name} {s:.1f}" for name, s in r["seconds"].items())),
            _peak_memory(r),
            *field_lines(TrainReport, r),
        ]
    )


def _speed(r: dict[str, Any]) -> str | None:
    if not r["scored_blocks"]:
        return None
    return f"{r['rows_per_second']:,.0f} rows/s, {r['seconds']:.1f} s in all"


def _peak_memory(r: dict[str, Any]) -> tuple[str, str]:
    worker = max(r["worker_peak_memory_bytes"].values(), default=0)
    driver = r["driver_peak_memory_bytes"]
    return "peak memory", f"{worker / MIB:,.0f} MiB in a worker, {driver / MIB:,.0f} MiB in the driver"


def scored(r: dict[str, Any]) -> str:
    names, listed = r["manifest"]["status_names"], None
    status = ", ".join(f"{n:,} {names[code].replace('_', ' ')}" for code, n in r["status"].items())
    if r["bad_rows"]:
        some = [f"{row} ({_why(names[str(code)], feature)})" for row, code, feature in r["bad_rows"][:5]]
        listed = _and_more(some, without_score(r["status"]))
    return rows(
        [
            ("output", r["output"]),
            ("rows", f"{r['n_rows']:,} ({status})"),
            ("blocks", f"{r['n_blocks']:,}, of which {r['scored_blocks']:,} were scored now; all verified"),
            ("speed", _speed(r)),
            _peak_memory(r),
            ("not scored", listed),
            ("drift", drift_words(r["manifest"]) or None),
            *beyond_training(r["manifest"]),
            *field_lines(ScoreReport, r),
        ]
    )


def scored_shard(r: dict[str, Any]) -> str:
    return rows(
        [
            ("output", r["output"]),
            ("shard", f"{r['shard']}: {r['shard_blocks']:,} of {r['n_blocks']:,} blocks, all of them done"),
            ("blocks", f"{r['scored_blocks']:,} scored now; {r['left_blocks']:,} remain for other shards"),
            ("speed", _speed(r)),
        ]
    )


def drift_words(manifest: dict[str, Any]) -> str | None:
    """How scored rows differ noticeably from training rows, in one line; None if they do not."""
    found = manifest.get("drift", {"large": False})
    if not found["large"]:
        return None
    if "parts" in found and "leaves" not in found:  # An earlier version wrote no more.
        return "large in some of the parts"
    leaves, features, large = found["leaves"], found["features"], found["thresholds"]
    facts = [f"in {', '.join(found['parts'])}"] if found.get("parts") else []
    if leaves["large"]:
        facts.append(
            f"rows fall into other leaves than training rows did (stability index {leaves['psi']:.2f}, large"
            f" above {large['psi']})"
        )
    compared = [*(features["top"] if features else ()), *found.get("scores", ())]
    if compared and "psi" in compared[0]:
        far = [_differs(one) for one in compared if one["large"]]
        n_more = len(far) - NAMED + features["n_large"] - sum(one["large"] for one in features["top"])
        facts += far[:NAMED] + ([f"and {n_more:,} more features"] if n_more > 0 else [])
    elif features and features["n_large"]:
        top = features["top"][0]
        moved = "1 feature has" if features["n_large"] == 1 else f"{features['n_large']:,} features have"
        name = repr(top["name"]) if "name" in top else top["feature"]  # Earlier versions wrote no name.
        most = f"moved by {large['shift']} standard deviations or more"
        if "standard deviation" in _moved(top):
            most += f", or has a standard deviation {large['sd_ratio']:g} times as large or as small"
            facts.append(f"{moved} {most}, most of all feature {name} ({_moved(top)})")
    return "; ".join(facts)


def _differs(one: dict[str, Any]) -> str:
    """Where the rows of a feature or output lie now, and where they lay in training."""
    name = repr(one["name"]) if "name" in one else f"feature {one['feature']}"
    bins = sorted(one["bins"], key=lambda part: -abs(part["share"] - part["training_share"]))
    now, before = (f"{100 * bins[0][key]:.3g} %" for key in ("share", "training_share"))
    return f"{name} (stability index {one['psi']:.2f}; {bins[0]['bin']}: {now} of rows, in training {before})"


def beyond_training(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Features of a manifest or an evaluation with more rows beyond training rows than by chance."""
    facts = []
    for one in (found.get("drift") or {}).get("beyond", ()):
        if one["by_chance"]:
            continue
        name = one.get("name", f"feature {one['feature']}")
        sides = [(one[side], f"{side} {one[limit]}") for side, limit in SIDES.items() if one[side]]
        where = " and ".join(f"{rows:,} {words}" for rows, words in sides)
        facts.append(f"{name}: {where}, of {one['rows']:,} counted rows")
    n_more = len(facts) - NAMED
    facts = facts[:NAMED] + ([f"and {n_more:,} more features"] if n_more > 0 else [])
    return [("beyond training", "; ".join(facts))] if facts else []


def _moved(top: dict[str, Any]) -> str:
    """How far a feature is from that of training, by its mean, its spread or its missing values."""
    shift, of_gaps, spread = (
        abs(float("inf") if one is None else one)
        for one in (top["shift"], top.get("gap_shift", 0), top.get("spread_shift", 0))
    )
    if spread > max(shift, of_gaps):
        return f"standard deviation {top['sd']:.4g}, in training {top['training_sd']:.4g}"
    if of_gaps > shift:
        share, before = 100 * top["gaps"], 100 * top["training_gaps"]
        return f"missing in {share:.3g} % of rows, in training in {before:.3g} %"
    far = "a constant of another value" if top["shift"] is None else f"by {top['shift']:+.1f}"
    return f"{far}; mean {top['mean']:.4g}, in training {top['training_mean']:.4g}"


def _why(status: str, feature: int | None) -> str:
    return status.replace("_", " ") + (f" {feature}" if feature is not None and feature >= 0 else "")


def bad_rows(r: dict[str, Any]) -> str:
    left = r["n_blocks"] - r["done_blocks"]
    undone = f"; {left:,} of {r['n_blocks']:,} blocks are not done yet" if left else ""
    if not r["n_bad"]:
        return f"every row of the finished blocks has a score{undone}"
    kinds = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in r["status"].items())
    lines = [f"{r['n_bad']:,} of {r['n_rows']:,} rows have no score: {kinds}{undone}"]
    if r["rows"]:
        lines += ["", f"{'block':>7}  {'row':>13}  {'code':>4}  status"]
        lines += [
            f"{e['block']:>7}  {e['row']:>13,}  {e['code']:>4}  {_why(e['status'], e['feature'])}"
            for e in r["rows"]
        ]
    if r["n_more"]:
        lines.append(f"and {r['n_more']:,} more; use a larger --limit, and --all where a block has many")
    return "\n".join(lines)


def run_state(r: dict[str, Any]) -> str:
    left = r["seconds_left"]
    state = {
        "finished": "finished",
        "scoring": f"scoring, driven by {r['driver']}",
        "stopped": f"stopped; run the same `dcpred score` again to resume{LIMITED}",
    }[r["state"]]
    done, n_blocks, lately, silent = (
        r[key] for key in ("done_blocks", "n_blocks", "rows_per_second", "seconds_since_commit")
    )
    is_silent = silent is not None and r["state"] != "finished"
    return rows(
        [
            ("output", r["output"]),
            ("state", state),
            ("blocks", f"{done:,} of {n_blocks:,} done, {n_blocks - done:,} left"),
            ("rows", f"{r['done_rows']:,} of {r['n_rows']:,} ({100 * r['done_rows'] / r['n_rows']:.1f} %)"),
            (
                "speed",
                f"{lately:,.0f} rows/s lately; {duration(left)} left at that speed" if lately else None,
            ),
            ("last commit", f"{duration(silent)} ago" if is_silent else None),
            ("Delta table", r["delta"]),
            *_shards_of(r),
            *(
                ("failing" if i == 0 else "", f"block {f['block']}: {f['error']}")
                for i, f in enumerate(r["failing"][:5])
            ),
            *field_lines(RunStatus, r),
        ]
    )


def _shards_of(r: dict[str, Any]) -> list[tuple[str, str]]:
    """Shards that are at work or have blocks left, the first few by name."""
    if r["state"] == "finished" or not r["shards"]:
        return []
    busy = [s for s in r["shards"] if s["driver"] or s["done_blocks"] < s["n_blocks"]]
    at_work = sum(bool(s["driver"]) for s in busy)
    pairs = [("shards", f"{len(r['shards']):,} have begun, {at_work:,} at work")]
    pairs += [
        (
            "",
            f"{s['shard']}: {s['done_blocks']:,} of {s['n_blocks']:,} blocks, "
            + (s["driver"] or "stopped; run it again to resume"),
        )
        for s in busy[:SHARDS_SHOWN]
    ]
    return pairs + ([("", f"and {len(busy) - SHARDS_SHOWN:,} more")] if len(busy) > SHARDS_SHOWN else [])


FINDINGS_SHOWN = 20


def verified(r: dict[str, Any]) -> str:
    """A short table, then the findings."""
    found = ", ".join(f"{n:,} {kind}" for kind, n in r["found"].items())
    wrong = set(r["found"]) - {"leftover", "rows given up", "system file"}
    sampled = f": {r['sampled_rows']:,} rows scored again, seed {r['seed']}" if r["level"] == "sample" else ""
    left = f"; {r['left_blocks']:,} are left, run `dcpred score` again" if r["left_blocks"] else ""
    in_delta = {None: None, True: "holds the run", False: "does not hold the run"}[r["in_delta"]]
    unwritten = not r["finished"] and not r["left_blocks"]
    pairs = [
        ("output", r["output"]),
        ("rows", f"{r['n_rows']:,}"),
        ("blocks", f"{r['verified_blocks']:,} of {r['n_blocks']:,} have a complete record{left}"),
        ("level", r["level"] + sampled),
        ("found", found or "nothing"),
        (
            "result",
            "complete and unmodified" if r["ok"] else "modified or damaged" if wrong else "not complete",
        ),
        ("Delta table", in_delta),
        ("manifest", f"not written yet; run `dcpred score` again{LIMITED}" if unwritten else None),
        *field_lines(VerifyReport, r),
    ]
    lines = sentences([f"{f['file']}: {f['sentence']} ({f['kind']})" for f in r["findings"][:FINDINGS_SHOWN]])
    more = len(r["findings"]) - len(lines)
    return "\n".join(
        [rows(pairs), *([""] if lines else []), *lines, *([f"and {more:,} more"] if more else [])]
    )


def imported(r: dict[str, Any]) -> str:
    from dcpred.datasets.importing import Imported

    target = f"y {r['target_dtype']}" if r["target"] else "no target"
    if r["target"] and r["n_classes"]:
        target += f", {r['n_classes']} classes"
    shape, base = f"{r['n_samples']:,} × {r['n_features']:,} {r['dtype']}", r["index_base"]
    return rows(
        [
            ("data", r["path"]),
            ("rows", f"{shape} in chunks of {r['chunk_rows']:,} rows"),
            ("target", target),
            ("unlabelled", _unlabelled(r) if r["unlabelled"] else None),
            ("features", None if base is None else f"counted from {base}"),
            *_not_finite(r["not_finite"]),
            *(schema_lines(r["schema"]) if r["schema"] else []),
            *followed_lines(r),
            *_repeated_ids(r["repeated_ids"]),
            *field_lines(Imported, r),
        ]
    )


def _repeated_ids(found: dict[str, int]) -> list[tuple[str, str]]:
    """The column of ids with the fewest repeats: several may be unique only together."""
    if not found or not (least := min(found.values())):
        return []
    name = next(name for name, rows in found.items() if rows == least)
    rows_have = counted(least, "row has", "rows have")
    return [("duplicate ids", f"{rows_have} a value of {name!r} that an earlier row has; correct the source")]


def _unlabelled(r: dict[str, Any]) -> str:
    left_out = f"skipped {counted(r['unlabelled'], 'row', 'rows')} without a target"
    text = r["unlabelled_text"]
    if not text:
        return left_out
    option = f"--not-missing {shlex.quote(text)}"
    return f"{left_out}, also where the target is {text!r}: pass {option} if it is a class"


def _not_finite(found: dict[str, Any]) -> list[tuple[str, str]]:
    """What is not finite in imported data, where it is, and the consequence; nothing if all is finite."""
    facts = []
    if found["n_rows"]:
        named = [
            (f["feature"] if f["name"] is None else f["name"], f["n_rows"]) for f in found["features"][:NAMED]
        ]
        features = [f"feature {name} ({counted(n, 'row', 'rows')})" for name, n in named]
        facts.append(
            f"{counted(found['n_rows'], 'row of X holds', 'rows of X hold')} NaN or infinity "
            f"({_first(found['rows'], found['n_rows'])}) in {_and_more(features, found['n_features'])}; "
            "NaN is a missing value, which a model may accept (setting missing); training refuses infinity,"
            " and scoring gives it status 2"
        )
    if found["n_targets"]:
        facts.append(
            f"{counted(found['n_targets'], 'value of y is', 'values of y are')} infinite "
            f"({_first(found['target_rows'], found['n_targets'])}); training refuses such rows"
        )
    return [("" if i else "not finite", sentence) for i, sentence in enumerate(facts)]


def _first(numbers: list[int], n: int) -> str:
    """The first of n rows, in words."""
    return (
        f"{'row' if n == 1 else 'rows'} {_and_more([f'{number:,}' for number in numbers[:NAMED]], n)},"
        " counted from 0"
    )


def _and_more(items: list[str], n: int) -> str:
    return ", ".join(items) + (f" and {n - len(items):,} more" if n > len(items) else "")


def demonstrated(r: dict[str, Any]) -> str:
    out, rivals = r["out"], f"{r['rival_rows']:,} rows"
    ours = f"{r['n_rows']:,} rows; {r['us_per_row']:.2f} µs a row, {r['cost_ratio']:.0f} linear predictions"
    table = rows(
        [
            ("linear model", f"{100 * r['linear_accuracy']:.2f} %  ({rivals})"),
            ("exact SVM", f"{100 * r['svm_accuracy']:.2f} %  ({rivals}; {r['svm_us_per_row']:.0f} µs a row)"),
            ("dcpred", f"{100 * r['accuracy']:.2f} %  ({ours})"),
            ("its local SVMs", f"{100 * r['early_accuracy']:.2f} %  (early prediction)"),
        ]
    )
    speed = f"  ({r['rows_per_second']:,.0f} rows/s)" if r["rows_per_second"] else ""
    places = rows(
        [
            ("data", f"{out}/digits.zarr, {out}/held-out.zarr"),
            ("model", f"{out}/model  ({r['n_leaves']} leaves, trained in {r['train_seconds']:.1f} s)"),
            ("scores", f"{out}/scores/scores.zarr{speed}"),
        ]
    )
    return (
        f"Accuracy on the originals held out\n{table}\n\nWhere everything lies\n{places}\n\nDone in"
        f" {r['seconds']:.0f} s."
    )


def warmed(r: dict[str, Any]) -> str:
    how = {True: "compiled now", False: "was there"}
    off = "DCPRED_NO_COMPILER is set: commands do not use this code. Unset it before you run them."
    lines = [(f"{m['code']} for {m['target']}", f"{m['file']}  ({how[m['compiled']]})") for m in r["made"]]
    return rows([*lines, ("warning", off if r["switched_off"] else None)])


CHOSEN = "*"  # marks a line of the table


def tuned(r: dict[str, Any]) -> str:
    """The Pareto front as a table, references, then the report of training."""
    points, chosen = with_cost(r["frontier"], r["chosen"], r["made"]["cost_ratio"])
    name = quality_name(chosen)
    every = points if chosen in points else sorted([*points, chosen], key=lambda p: p["cost_ratio"])
    heads = ["", "cost", words_of(name), *dict(headlines(Point, chosen)), "scaling"]
    lines = table([heads, *(_cells(p, name, p == chosen) for p in every)], left=(0, 7))
    took = ", ".join(f"{step} {s:.1f} s" for step, s in r["seconds"].items())
    rows_are = f"on {chosen['n_judged']:,} held-out rows{_which(chosen)}"
    judged = (
        f"{rows_are}, the chosen model has {interval_words(chosen)} (two standard errors); at predicted"
        " costs:"
        if chosen["n_judged"]
        else "too few rows to hold any out: nothing was evaluated; at predicted costs:"
    )
    return "\n".join(
        [
            *sentences([judged]),
            *lines,
            f"{CHOSEN} chosen",
            *sentences([remark] if (remark := unseen_words(chosen)) else []),
            *sentences(_references(r["references"], chosen)),
            "",
            rows([("made       ", _made(r["made"])), ("took", took)]),
            trained(r["trained"]),
            *sentences([r["words"]] if r["words"] else []),
        ]
    )


def _which(chosen: dict[str, Any]) -> str:
    return f" ({chosen['held_out']})" if "held_out" in chosen else ""


def _references(references: list[dict[str, Any]], chosen: dict[str, Any]) -> list[str]:
    """The scores of other models on the same rows, or on some of them."""
    if not references:
        return []
    others = ", ".join(f"{one['name']} {reference_words(one, chosen)}" for one in references)
    alone = chosen.get("most_frequent_share")
    majority = f"; the most frequent class alone has an accuracy of {100 * alone:.2f} %" if alone else ""
    same = compared(references, chosen)
    own = shown(same) + " (not extrapolated)" * (chosen.get("extrapolated") != same.get("extrapolated"))
    return [f"on rows held out{_which(chosen)}: this model {own}; {others}{majority}"]


def _cells(p: dict[str, Any], name: str, is_chosen: bool) -> list[str]:
    value = "-" if p[name] is None else f"{100 * p[name]:.2f} %" if is_share(name) else f"{p[name]:.5g}"
    return [
        CHOSEN if is_chosen else "",
        f"{p['cost_ratio']:.1f}x",
        value,
        *dict(headlines(Point, p)).values(),
        p["scaling"],
    ]


def _made(m: dict[str, Any]) -> str:
    """The model itself, which may have fewer landmarks than chosen."""
    least, most = m["least_landmarks"], m["most_landmarks"]
    each = f"{most}" if least == most else f"{least} to {most}"
    return (
        f"{counted(m['n_leaves'], 'leaf', 'leaves')} of {each} landmarks, at a predicted cost of"
        f" {m['cost_ratio']:.1f}x"
    )


NAME_COLUMNS = 24  # longer names of classes are cut


def short(name: object) -> str:
    """The name of a class on one line, cut where it is long."""
    text = "".join(c if c.isprintable() else "�" for c in str(name))
    return text if len(text) <= NAME_COLUMNS else f"{text[: NAME_COLUMNS - 1]}…"


def root_runs(r: dict[str, Any]) -> str:
    """A short head, then one line per run."""
    driver = f"{r['driver']} refreshes it now" if r["driver"] else None
    latest = r["latest"] or "none yet"
    pairs = [("root", r["root"]), ("data", r["data"]), ("latest", latest), ("driver", driver)]
    lines = table(
        [["run", "state", "finished", "rows", "blocks", "taken", "bad", ""], *map(_run_cells, r["runs"])],
        left=(0, 1, 2, 7),
    )
    more = r["n_runs"] - len(r["runs"])
    return "\n".join([rows(pairs), "", *lines, *([f"and {more:,} more"] if more > 0 else [])])


def _run_cells(one: dict[str, Any]) -> list[str]:
    ended = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["ended"])) if one["ended"] else ""
    if one["state"] == "unfinished":
        ended = f"{one['done_blocks']:,} blocks done"
    numbers = [f"{one[name]:,}" for name in ("n_rows", "n_blocks", "taken_blocks", "n_bad")]
    return [one["run"], one["state"], ended, *numbers, "drift" if one["drift_is_large"] else ""]
