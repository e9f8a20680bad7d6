"""The page of JSON keys: what commands print with `--json` and what they store, each key with its type and
its meaning. Types come from documents that the commands below print, meanings from the docstrings of result
classes and from `meanings`. `check` compares both: a printed key without a meaning is an error, and so is a
meaning of a key that nothing prints.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints
from unittest.mock import patch

import meanings
from click.testing import CliRunner

import dcpred
from dcpred.cli import main
from dcpred.demo import Example
from dcpred.execution.workers import InlineWorkers
from dcpred.runs.bad_rows import BadRows

KEY = re.compile("[a-z]+[a-z0-9]*(_[a-z0-9]+)*")
TYPES = {dict: "object", list: "list", str: "text", bool: "true or false", int: "integer", float: "number"}
TYPES[type(None)] = "null"
DAMAGE = 4  # exit code of damaged data
BY = " by "  # The keys of an object come from the data: its meaning names what they are.
OPTIONAL = "With "  # A meaning of a key that is not always there begins with it.
# Documents that several others hold, by the last name of the key there: their titles and meanings.
SHARED = {
    "drift": ("Drift", meanings.DRIFT),
    "new_drift": ("Drift", meanings.DRIFT),
    "manifest": ("Manifest", meanings.MANIFEST),
    "predicted_cost": ("Predicted cost", meanings.COST),
    "gaps": ("Missing values of a training", meanings.GAPS),
    "feature_map": ("Feature map", meanings.FEATURE_MAP),
    "schema": ("Schema", meanings.SCHEMA),
    "plan": ("Plan of a run", meanings.PLAN),
    "trained": ("dcpred train", {}),
    "report": ("dcpred train", {}),
}
# Several blocks of few rows, and a short demonstration.
FEW = {"dcpred.plan.MIN_BLOCK_ROWS": 16, "dcpred.demo.N_ROWS": 3000, "dcpred.demo.BASELINE_ROWS": 500}
Owner = type | dict[str, str]


@dataclass(frozen=True)
class Section:
    """One kind of document.

    owner     the result class, or the meanings
    more      meanings of keys within the fields of the class
    examples  command lines, or paths of stored documents (PATH.json)
    """

    title: str
    owner: Owner
    examples: tuple[str, ...]
    more: dict[str, str] | None = None
    text: str = ""

    def meanings(self) -> dict[str, str]:
        found = described(self.owner) if isinstance(self.owner, type) else dict(self.owner)
        return found | (self.more or {})


def described(owner: type) -> dict[str, str]:
    """Meanings of the fields of a result class, and of the classes within it."""
    hints, found = get_type_hints(owner), {}
    for entry in fields(owner):
        found[entry.name] = entry.metadata["meaning"]
        for inner in (hints[entry.name], *get_args(hints[entry.name])):
            if isinstance(inner, type) and is_dataclass(inner):
                listed = "" if inner is hints[entry.name] else "[]"
                found |= {f"{entry.name}{listed}.{name}": text for name, text in described(inner).items()}
    return found


def explanations() -> dict[str, str]:
    own = described(dcpred.Explanation)
    return meanings.EXPLANATIONS | {f"rows[].{name}": text for name, text in own.items()}


SECTIONS = (
    Section("dcpred example", Example, ("example",)),
    Section(
        "dcpred import",
        dcpred.Imported,
        (
            "import known.csv known.zarr --target label --id id",
            "import mixed.csv mixed.zarr --target mean_area --id id",
            "import new.csv new.zarr --like known.zarr",
        ),
    ),
    Section("dcpred split", dcpred.Split, ("split known.zarr",)),
    Section(
        "dcpred train",
        dcpred.TrainReport,
        (
            "train known-train.zarr model --set n_leaves=2",
            "train mixed.zarr prices --task regression --set n_leaves=1",
        ),
        text="Without settings it prints the keys of [dcpred tune](#dcpred-tune).",
    ),
    Section(
        "dcpred tune",
        dcpred.TuneReport,
        ("tune few-train.zarr tuned --short",),
        meanings.SEARCH,
        "The file tuned.json of a search holds the same, without `made` and `trained`.",
    ),
    Section(
        "dcpred evaluate, classification",
        meanings.CLASSIFICATION,
        ("evaluate model known-test.zarr --no-cost",),
    ),
    Section("dcpred evaluate, regression", meanings.REGRESSION, ("evaluate prices mixed.zarr --no-cost",)),
    Section("dcpred validate", dcpred.ValidationReport, ("validate known.zarr --folds 2 --set n_leaves=1",)),
    Section(
        "dcpred compare",
        dcpred.CompareReport,
        (),  # It takes minutes: its tests check these keys.
        meanings.COMPARISON,
    ),
    Section("dcpred score", dcpred.ScoreReport, ("score model new.zarr scores",)),
    Section("dcpred score --shard", dcpred.ShardReport, ("score model pieces.zarr shards --shard 0/2",)),
    Section("dcpred deliver", dcpred.DeliverReport, ("deliver files table",)),
    Section(
        "dcpred status of an output",
        dcpred.RunStatus,
        ("status scores", "status shards", "status stopped"),
        meanings.RUN_STATUS,
    ),
    Section("dcpred errors", BadRows, ("errors holes",)),
    Section("dcpred verify", dcpred.VerifyReport, ("verify scores", "verify damaged")),
    Section("dcpred export", dcpred.Exported, ("export scores scored.csv",)),
    Section("dcpred export-model", dcpred.ExportedModel, ("export-model model model.c",)),
    Section(
        "dcpred explain",
        explanations(),
        ("explain model new.zarr --rows 5 --landmarks", "explain prices mixed.zarr --rows 5"),
    ),
    Section("dcpred refresh", dcpred.RefreshReport, ("refresh model new.zarr nightly",)),
    Section("dcpred status of a refresh", dcpred.RootStatus, ("status nightly",)),
    Section("dcpred refresh --publish", dcpred.PublishReport, ("refresh nightly --publish RUN",)),
    Section("dcpred inspect of a model", meanings.MODEL, ("inspect model", "inspect prices")),
    Section("dcpred inspect of a data set", meanings.DATA, ("inspect known.zarr",)),
    Section("dcpred inspect of an output", meanings.OUTPUT, ("inspect scores",)),
    Section("dcpred report", meanings.REPORT, ("report scores --out page.html",)),
    Section("dcpred demo", meanings.DEMO, ("demo",)),
    Section("dcpred warm", meanings.WARM, ("warm",)),
    Section("Plan of a run", meanings.PLAN, ("scores/plan.json",), text="The file plan.json of an output."),
    Section(
        "Commit record of a block",
        meanings.RECORD,
        ("scores/blocks/000000.json",),
        text="The files blocks/NNNNNN.json of an output, one for each scored block.",
    ),
)


@dataclass
class Keys:
    """The keys of documents of one kind, with their types.

    known   their meanings
    shared  the same of documents within them, by their titles
    """

    known: dict[str, str]
    shared: "dict[str, Keys]"

    def __post_init__(self) -> None:
        self.types: dict[str, list[str]] = {}
        self.links: dict[str, str] = {}

    def add(self, value: dict[str, Any], path: str = "") -> None:
        for key, inner in value.items():
            self._add(f"{path}.{key}" if path else key, inner)

    def _add(self, path: str, value: Any) -> None:
        kind = TYPES[type(value)]
        if kind not in self.types.setdefault(path, []):
            self.types[path].append(kind)
        name = path.rpartition(".")[2]
        if isinstance(value, dict) and self._has(path):
            self.add(value, path)
        elif isinstance(value, dict) and name in SHARED:
            title, known = SHARED[name]
            self.links[path] = title
            if known:
                self.shared.setdefault(title, Keys(known, self.shared)).add(value)
        elif isinstance(value, list):
            for element in value:
                if isinstance(element, dict):
                    self.add(element, f"{path}[]")

    def _has(self, path: str) -> bool:
        return any(name.startswith(f"{path}.") for name in self.known)

    def check(self, title: str) -> Iterator[str]:
        """Sentences on keys without a meaning, and on meanings without a key."""
        for path, kinds in self.types.items():
            if path not in self.known:
                yield f"{title} prints {path}: describe it in its class or in pipeline/docs/meanings.py"
            elif "object" in kinds and not (path in self.links or self._has(path) or BY in self.known[path]):
                yield f"{title}: describe the keys of {path}, or by what it lists"
        for path, text in self.known.items():
            if path not in self.types and not text.startswith(OPTIONAL):
                yield f"{title} does not print {path}: remove its meaning"

    def rows(self) -> Iterator[str]:
        """Lines of a table."""
        order = {name: number for number, name in enumerate(self.known)}
        for path in sorted({*self.known, *self.types}, key=lambda name: order.get(name, 0)):
            kinds, title = " or ".join(self.types.get(path, [])), self.links.get(path)
            text = self.known.get(path, "").replace("|", "\\|").replace("None", "null")
            if title:
                text += f" See [{title}](#{title.lower().replace(' ', '-')})."
            yield f"| `{path}` | {kinds} | {text} |\n"


def page() -> str:
    """The page. Raises RuntimeError if printed keys and meanings differ."""
    text = (
        "# JSON keys\n\n`--json` prints one object on standard output. An error has the keys `error` and"
        " `exit_code`. A key within another follows a dot; `[]` stands for each element of a list. Times are"
        " in seconds and sizes in bytes, unless the key names another unit.\n"
    )
    found = collect()
    wrong = [line for title, keys in found.items() for line in keys.check(title)]
    if wrong:
        raise RuntimeError("\n".join(wrong))
    for section in SECTIONS:
        lines = "".join(f"dcpred {one}\n" for one in section.examples if not one.endswith(".json"))
        text += f"\n## {section.title}\n\n" + (f"```text\n{lines}```\n\n" if lines else "")
        text += f"{section.text}\n\n" if section.text else ""
        if isinstance(section.owner, type) and (name := section.owner.__name__) in dcpred.__all__:
            text += f"[{name}](api/{name}.md) has the same keys, by `as_dict()` or its fields.\n\n"
        text += table(found.pop(section.title))
    return text + "".join(f"\n## {title}\n\n{table(found[title])}" for title in sorted(found))


def table(keys: Keys) -> str:
    return "| key | type | meaning |\n|---|---|---|\n" + "".join(keys.rows())


def known_keys() -> dict[str, Keys]:
    """The meanings of all sections by titles, before anything is printed."""
    found: dict[str, Keys] = {}
    found |= {section.title: Keys(section.meanings(), found) for section in SECTIONS}
    return found


@contextmanager
def small(folder: str | Path) -> Iterator[None]:
    """Run commands in a folder and in this process, on few rows, within a `with` statement."""
    with chdir(folder), ExitStack() as stack:
        pool = patch("dcpred.execution.dask_workers.connected", lambda *_: nullcontext(InlineWorkers()))
        stack.enter_context(pool)
        for name, number in FEW.items():
            stack.enter_context(patch(name, number))
        yield


def collect() -> dict[str, Keys]:
    """The keys of all sections and of the documents that they share, by titles. Runs all examples."""
    found = known_keys()
    with TemporaryDirectory() as folder, small(folder):
        for section in SECTIONS:
            for example in section.examples:
                for prepare in (step for start, step in PREPARED.items() if example.startswith(start)):
                    prepare()
                found[section.title].add(document(example))
            if not section.examples:
                known = {name: list[str]() for name in section.meanings()}
                found[section.title].types = known | declared(section.owner)
    return found


def declared(owner: Owner) -> dict[str, list[str]]:
    """Types of the fields of a result class, by their annotations."""
    found: dict[str, list[str]] = {}
    hints = get_type_hints(owner) if isinstance(owner, type) else {}
    for name, hint in hints.items():
        parts = get_args(hint) if get_origin(hint) is UnionType else (hint,)
        found[name] = [TYPES[get_origin(part) or part] for part in parts]
        for inner in filter(is_dataclass, get_args(hint)):
            found |= {f"{name}[].{key}": kinds for key, kinds in declared(inner).items()}
    return found


def document(example: str) -> Any:
    """What a command prints, or a file stores. An exit code may report damage."""
    if example.endswith(".json"):
        return json.loads(Path(example).read_text(encoding="utf-8"))
    words = [latest() if word == "RUN" else word for word in example.split()]
    done = CliRunner().invoke(main, [*words, "--json", "--quiet"])
    found = json.loads(done.stdout or "{}")
    if not found or ("error" in found and found["exit_code"] != DAMAGE):
        raise RuntimeError(f"dcpred {example}: {done.output}")
    return found


def latest() -> str:
    """The name of the run that a refresh has made."""
    return str(document("status nightly")["latest"])


def mix() -> None:
    """Write a table with categories, and without some values."""
    lines = [line.split(",") for line in Path("known.csv").read_text(encoding="utf-8").splitlines()]
    for number, line in enumerate(lines[1:]):
        line[1:3] = [line[1], ""] if number % 9 == 0 else line[1:3]
    Path("mixed.csv").write_text("\n".join(map(",".join, lines)) + "\n", encoding="utf-8")


def halve() -> None:
    document("split known.zarr --test 0.8 --into few-train.zarr few-test.zarr")


def cut() -> None:
    document("import new.csv pieces.zarr --like model --chunk-rows 8")


def write_files() -> None:
    document("score model new.zarr files --parquet")


def stop() -> None:
    """Score rows of which a chunk is damaged, without its replacement."""
    shutil.copytree("pieces.zarr", "torn.zarr")
    Path("torn.zarr/X/c/1/0").write_bytes(b"torn")
    document("score model torn.zarr stopped")


def leave_holes() -> None:
    lines = Path("new.csv").read_text(encoding="utf-8").splitlines()
    lines[3] = ",".join([lines[3].split(",")[0], "", *lines[3].split(",")[2:]])
    Path("holes.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    document("import holes.csv holes.zarr --like model")
    document("score model holes.zarr holes")


def damage() -> None:
    shutil.copytree("scores", "damaged")
    shutil.rmtree("damaged/scores.zarr/label/c")


# What examples that start with these words need.
PREPARED: dict[str, Callable[[], None]] = {
    "import mixed.csv": mix,
    "tune": halve,
    "score model pieces.zarr": cut,
    "deliver": write_files,
    "status stopped": stop,
    "errors": leave_holes,
    "verify damaged": damage,
}
