"""The page of JSON keys: what commands print with `--json` and what they store, each key with its type and
its meaning. Types come from documents that the commands below print, meanings from the fields of result
classes. `check` compares both: a printed key without a meaning is an error, and so is a meaning of a key that
nothing prints.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints
from unittest.mock import patch

from click.testing import CliRunner

import dcpred
from dcpred.cli import main
from dcpred.cli.demo import Demonstration, Example
from dcpred.cli.evaluate_command import WrittenReport
from dcpred.cli.warm_command import Warmed
from dcpred.evaluation.explanation import ExplainedRows
from dcpred.evaluation.figures import ClassFigures, EvaluationFacts, ValueFigures
from dcpred.execution.workers import InlineWorkers
from dcpred.reports.inspection import DataFacts, ModelFacts, OutputFacts
from dcpred.runs.bad_rows import BadRows
from dcpred.runs.ledger import PlanFile
from dcpred.runs.manifest import Manifest
from dcpred.serving.cost import Cost, CostParts
from dcpred.training.column_report import Gaps, MapFacts
from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun
from dcpred_tasks.remarks import Remark
from dcpred_tasks.result_fields import Key, keys_of
from dcpred_tasks.schema.schema import SchemaDocument
from dcpred_tasks.scoring.drift_fields import Drift

KEY = re.compile("[a-z]+[a-z0-9]*(_[a-z0-9]+)*")
TYPES = {dict: "object", list: "list", str: "text", bool: "true or false", int: "integer", float: "number"}
TYPES |= {type(None): "null", tuple: "list"}
DAMAGE = 4  # exit code of damaged data
BY = " by "  # The keys of an object come from the data: its meaning names what they are.
# Several blocks of few rows, and a short demonstration.
FEW = {"execution.block_plan.MIN_BLOCK_ROWS": 16, "cli.demo.N_ROWS": 3000, "cli.demo.BASELINE_ROWS": 500}
CHECKSUM = {"checksum": Key("Digest of this document without this key.", is_optional=False, of=None)}
# The classes of documents that others hold: the titles of their sections.
APART = {
    Drift: "Drift",
    Manifest: "Manifest",
    CostParts: "Predicted cost",
    Gaps: "Missing values of a training",
    MapFacts: "Feature map",
    SchemaDocument: "Schema",
    ScoreRun: "Plan of a run",
    dcpred.TrainReport: "dcpred train",
    Remark: "Remark",
}


@dataclass(frozen=True)
class Section:
    """One kind of document.

    owners    the result classes of its keys
    examples  command lines, or paths of stored documents (PATH.json)
    more      further keys
    """

    title: str
    owners: tuple[type, ...]
    examples: tuple[str, ...] = ()
    text: str = ""
    more: dict[str, Key] = field(default_factory=dict)

    def known(self) -> dict[str, Key]:
        """The keys that the result classes declare."""
        apart = {owner for owner in APART if APART[owner] != self.title}
        return {name: key for owner in self.owners for name, key in keys_of(owner, apart).items()} | self.more


SECTIONS = (
    Section("dcpred example", (Example,), ("example",)),
    Section(
        "dcpred import",
        (dcpred.Imported,),
        (
            "import known.csv known.zarr --target label --id id",
            "import mixed.csv mixed.zarr --target mean_area --id id",
            "import new.csv new.zarr --like known.zarr",
        ),
    ),
    Section("dcpred split", (dcpred.Split,), ("split known.zarr",)),
    Section(
        "dcpred train",
        (dcpred.TrainReport,),
        (
            "train known-train.zarr model --set n_leaves=2",
            "train mixed.zarr prices --task regression --set n_leaves=1",
        ),
        text="Without settings it prints the keys of [dcpred tune](#dcpred-tune).",
    ),
    Section(
        "dcpred tune",
        (dcpred.TuneReport,),
        ("tune few-train.zarr tuned --short --references",),
        "The file tuned.json of a search holds the same, without `made` and `trained`.",
    ),
    Section(
        "dcpred evaluate, classification",
        (ClassFigures, EvaluationFacts, Cost),
        ("evaluate model known-test.zarr --no-cost",),
    ),
    Section(
        "dcpred evaluate, regression",
        (ValueFigures, EvaluationFacts, Cost),
        ("evaluate prices mixed.zarr --no-cost",),
    ),
    Section(
        "dcpred validate", (dcpred.ValidationReport,), ("validate known.zarr --folds 2 --set n_leaves=1",)
    ),
    Section(
        "dcpred compare",
        (dcpred.CompareReport,),
        (),  # It takes minutes: its tests check these keys.
    ),
    Section("dcpred score", (dcpred.ScoreReport,), ("score model new.zarr scores",)),
    Section("dcpred score --shard", (dcpred.ShardReport,), ("score model pieces.zarr shards --shard 0/2",)),
    Section("dcpred deliver", (dcpred.DeliverReport,), ("deliver files table",)),
    Section(
        "dcpred status of an output",
        (dcpred.RunStatus,),
        ("status scores", "status shards", "status stopped"),
    ),
    Section("dcpred errors", (BadRows,), ("errors holes",)),
    Section("dcpred verify", (dcpred.VerifyReport,), ("verify scores", "verify damaged")),
    Section("dcpred export", (dcpred.Exported,), ("export scores scored.csv",)),
    Section("dcpred export-model", (dcpred.ExportedModel,), ("export-model model model.c",)),
    Section(
        "dcpred explain",
        (ExplainedRows,),
        ("explain model new.zarr --rows 5 --landmarks", "explain prices mixed.zarr --rows 5"),
    ),
    Section("dcpred refresh", (dcpred.RefreshReport,), ("refresh model new.zarr nightly",)),
    Section("dcpred status of a refresh", (dcpred.RootStatus,), ("status nightly",)),
    Section("dcpred refresh --publish", (dcpred.PublishReport,), ("refresh nightly --publish RUN",)),
    Section("dcpred inspect of a model", (ModelFacts,), ("inspect model", "inspect prices")),
    Section("dcpred inspect of a data set", (DataFacts,), ("inspect known.zarr",)),
    Section("dcpred inspect of an output", (OutputFacts,), ("inspect scores",)),
    Section("dcpred report", (WrittenReport,), ("report scores --out page.html",)),
    Section("dcpred demo", (Demonstration,), ("demo",)),
    Section("dcpred warm", (Warmed,), ("warm",)),
    Section(
        "Plan of a run", (ScoreRun, PlanFile), ("scores/plan.json",), text="The file plan.json of an output."
    ),
    Section(
        "Commit record of a block",
        (CommitRecord,),
        ("scores/blocks/000000.json",),
        text="The files blocks/NNNNNN.json of an output, one for each scored block.",
        more=CHECKSUM,
    ),
    Section("Manifest", (ScoreRun, PlanFile, Manifest), text="The file manifest.json of an output."),
    *(
        Section(title, (owner,))
        for owner, title in APART.items()
        if owner in (Drift, CostParts, Gaps, MapFacts, SchemaDocument, Remark)
    ),
)


@dataclass
class Keys:
    """The keys of documents of one kind, with their types.

    known   the declared ones
    shared  the same of all documents, by their titles
    """

    known: dict[str, Key]
    shared: "dict[str, Keys]"

    def __post_init__(self) -> None:
        self.types: dict[str, list[str]] = {}

    def add(self, value: dict[str, Any], path: str = "") -> None:
        for key, inner in value.items():
            self._add(f"{path}.{key}" if path else key, inner)

    def _add(self, path: str, value: Any) -> None:
        kind = TYPES[type(value)]
        if kind not in self.types.setdefault(path, []):
            self.types[path].append(kind)
        if isinstance(value, dict | list) and (title := self.title(path)):
            if not any(section.title == title and section.examples for section in SECTIONS):
                for document in value if isinstance(value, list) else [value]:
                    self.shared[title].add(document)
        elif isinstance(value, dict) and self._has(path):
            self.add(value, path)
        elif isinstance(value, list):
            for element in value:
                if isinstance(element, dict):
                    self.add(element, f"{path}[]")

    def title(self, path: str) -> str | None:
        """The section that describes the document there, if another one does."""
        key = self.known.get(path)
        return None if key is None or self._has(path) else APART.get(key.of)

    def _has(self, path: str) -> bool:
        return any(name.startswith(f"{path}.") for name in self.known)

    def check(self, title: str) -> Iterator[str]:
        """Sentences on keys without a meaning, and on meanings without a key."""
        for path, kinds in self.types.items():
            if path not in self.known:
                yield f"{title} prints {path}: describe it as a field of its result class"
            elif "object" in kinds and not (
                self.title(path) or self._has(path) or BY in self.known[path].meaning
            ):
                yield f"{title}: describe the keys of {path}, or by what it lists"
        for path, key in self.known.items():
            if self.types and path not in self.types and not key.is_optional:
                yield f"{title} does not print {path}: remove its meaning"

    def rows(self) -> Iterator[str]:
        """Lines of a table."""
        order = {name: number for number, name in enumerate(self.known)}
        for path in sorted({*self.known, *self.types}, key=lambda name: order.get(name, 0)):
            kinds, title = " or ".join(self.types.get(path, [])), self.title(path)
            text = self.known[path].meaning.replace("|", "\\|").replace("None", "null")
            if title and self.shared[title].types:
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
    for section in (one for one in SECTIONS if found[one.title].types):
        lines = "".join(f"dcpred {one}\n" for one in section.examples if not one.endswith(".json"))
        text += f"\n## {section.title}\n\n" + (f"```text\n{lines}```\n\n" if lines else "")
        text += f"{section.text}\n\n" if section.text else ""
        if (name := section.owners[0].__name__) in dcpred.__all__:
            text += f"[{name}](api/{name}.md) has the same keys, by `as_dict()` or its fields.\n\n"
        text += table(found[section.title])
    return text


def table(keys: Keys) -> str:
    return "| key | type | meaning |\n|---|---|---|\n" + "".join(keys.rows())


def known_keys() -> dict[str, Keys]:
    """The keys of all sections by titles, before anything is printed."""
    found: dict[str, Keys] = {}
    found |= {section.title: Keys(section.known(), found) for section in SECTIONS}
    return found


@contextmanager
def small(folder: str | Path) -> Iterator[None]:
    """Run commands in a folder and in this process, on few rows, within a `with` statement."""
    with chdir(folder), ExitStack() as stack:
        pool = patch("dcpred.execution.dask_workers.connected", lambda *_: nullcontext(InlineWorkers()))
        stack.enter_context(pool)
        for name, number in FEW.items():
            stack.enter_context(patch(f"dcpred.{name}", number))
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
            if section.owners == (dcpred.CompareReport,):
                found[section.title].types = declared(dcpred.CompareReport)
    return found


def declared(owner: type) -> dict[str, list[str]]:
    """Types of the fields of a result class, by their annotations."""
    hints, classes = get_type_hints(owner), {}
    for name, key in keys_of(owner).items():
        if "[]." not in name:
            hint = hints[name]
            parts = get_args(hint) if get_origin(hint) is UnionType else (hint,)
            classes[name] = [TYPES[get_origin(part) or part] for part in parts]
            if key.of and key.of not in APART:
                classes |= {f"{name}[].{inner}": kinds for inner, kinds in declared(key.of).items()}
    return classes


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
