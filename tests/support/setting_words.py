"""What pages and docstrings say about settings, made from `Settings`; tests hold the two equal.

    .venv/bin/python tests/support/setting_words.py

writes the table of the user guide and the parameters of both estimators again, with those of new settings.
"""

import inspect
import re
import sys
import textwrap
from importlib import reload
from itertools import pairwise
from pathlib import Path

from dcpred import DCPredClassifier, DCPredRegressor
from dcpred_baselines import LEAF_MODELS
from dcpred_tasks.model.leaf_model import CLASSES
from dcpred_tasks.training.setting_descriptions import describe_settings
from dcpred_tasks.training.settings import DEFAULTS, SETTING_NAMES, Settings
from dcpred_tasks.training.task_settings import of_other_task

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "pipeline/README.md"
TABLE = re.compile(r"(?<=<!-- settings -->\n).*?(?=<!-- end of settings -->)", re.DOTALL)
SYSTEMS = re.compile(r"(?<=<!-- other systems -->\n).*?(?=<!-- end of other systems -->)", re.DOTALL)
ESTIMATORS = (DCPredClassifier, DCPredRegressor)
# Parameters of baselines, which the constructors do not need any more: `machine` is compact or exact.
OF_BASELINES = frozenset({"machine", "basis", "size", "tolerance"})
# Parameters that are no settings, or take more than the setting does.
OWN_WORDS = (
    frozenset({"class_weight", "random_state", "n_jobs", "budget", "metric", "cv", "directory", "verbose"})
    | OF_BASELINES
)
LONGEST_CHOICES = 70  # characters of the choices that a docstring lists
PARAMETERS = re.compile(
    r"(?<=    Parameters\n    ----------\n).*?(?=\n\n    Attributes|\n    \"\"\")", re.DOTALL
)
ENTRY = re.compile(r"^    (?P<name>\w+) : .*\n(?:        .*\n?)*", re.MULTILINE)


def settings_table() -> str:
    """The table of the user guide."""
    lines = ["| setting | default | what it may be | meaning |", "|---|---|---|---|"]
    for one in describe_settings():
        zero = f" 0: {one.zero}." if one.zero else ""
        lines.append(f"| `{one.name}` | {one.default} | {one.allowed} | {one.meaning}{zero} |")
    return "\n".join(lines) + "\n"


def systems_table() -> str:
    """The table of baselines of the user guide."""
    lines = ["| system | what it is | kernel | learns | size | tolerance |", "|---|---|---|---|---|---|"]
    for name, one in LEAF_MODELS.items():
        tasks = "classes" if one.tasks == CLASSES else "classes and numbers"
        cells = (f"`{name}`", one.words, one.kernel, tasks, one.counted or "–", one.tolerated or "–")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def entry(estimator: type, name: str) -> str:
    """The lines of one parameter in the docstring of an estimator."""
    told = {one.name: one for one in describe_settings()}[name]
    metadata = Settings.__dataclass_fields__[name].metadata
    default = inspect.signature(estimator).parameters[name].default
    choices = "{" + ", ".join(f'"{choice}"' for choice in metadata["choices"]) + "}"
    long = metadata["more"] or len(choices) > LONGEST_CHOICES
    kinds = ["str"] if long else [choices] * bool(metadata["choices"])
    standard = getattr(Settings(), name)
    if not isinstance(standard, str) or metadata["range"]:
        kind = "float" if isinstance(standard, str) else type(standard).__name__
        limits = told.allowed.removeprefix(", ".join(metadata["choices"]) + " or ")
        kinds.append(kind if kind == "bool" else f"{kind} ({limits})")
    kinds += ["None"] * (default is None)
    words = f'"{default}"' if isinstance(default, str) else str(default)
    zero = f" {'None' if default is None else '0'}: {told.zero}." if told.zero else ""
    if default is None and not zero:
        zero = f" None: {standard}."
    meaning = textwrap.fill(re.sub(r"\bfalse\b", "False", f"{told.meaning}{zero}"), 102)
    return f"    {name} : {' or '.join(kinds)}, default {words}\n{textwrap.indent(meaning, ' ' * 8)}\n"


def parameters(estimator: type, section: str) -> str:
    """The section of parameters as it has to be; what is no setting keeps the words of `section`."""
    kept = {found["name"]: found[0].rstrip() + "\n" for found in ENTRY.finditer(section)}
    taken = inspect.signature(estimator).parameters.values()
    wanted = [one.name for one in taken if one.kind is not one.VAR_KEYWORD]
    return "".join(kept[name] if name in OWN_WORDS else entry(estimator, name) for name in wanted).rstrip()


def with_parameters(text: str, task: str) -> str:
    """The source of an estimator with a parameter for each setting of its task, behind that of the setting
    before it. The default of a new one is None.
    """
    others = {"task", "seed", *of_other_task(task, Settings.loss)}
    own = [name for name in SETTING_NAMES if name not in others]
    for before, name in pairwise(own):
        if f"        self.{name} = {name}\n" not in text:
            line = f"{name}: {type(DEFAULTS[name]).__name__} | None = None,"
            text = re.sub(rf"^        {before}: .*\n", rf"\g<0>        {line}\n", text, count=1, flags=re.M)
            text = re.sub(
                rf"^        self\.{before} = {before}\n",
                rf"\g<0>        self.{name} = {name}\n",
                text,
                flags=re.M,
            )
    return text


def main() -> None:
    guide = TABLE.sub(lambda _: settings_table(), GUIDE.read_text())
    GUIDE.write_text(SYSTEMS.sub(lambda _: systems_table(), guide))
    for estimator in ESTIMATORS:
        path = Path(inspect.getfile(estimator))
        path.write_text(with_parameters(path.read_text(), estimator._task))
        estimator = getattr(reload(sys.modules[estimator.__module__]), estimator.__name__)
        text = path.read_text()
        section = PARAMETERS.search(text)
        assert section is not None
        path.write_text(text[: section.start()] + parameters(estimator, section[0]) + text[section.end() :])


if __name__ == "__main__":
    main()
