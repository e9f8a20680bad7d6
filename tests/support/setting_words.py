"""What pages say about settings, made from `Settings`; tests hold the two equal.

    .venv/bin/python tests/support/setting_words.py

rewrites the tables of the user guide and the fields of `dcpred.Settings`, and adds those of new settings.
"""

import inspect
import re
from pathlib import Path
from typing import Any

import dcpred
from dcpred import DCPredClassifier, DCPredRegressor
from dcpred.estimators.settings import as_parameters
from dcpred_compare.baselines import LEAF_MODELS
from dcpred_compare.baselines.leaf_model_type import CLASSES
from dcpred_tasks.evaluation.named_scores import MEAN_COST, PINBALL, SCORERS, SCORES
from dcpred_tasks.training.settings import DEFAULTS, SETTING_NAMES, describe_settings

ROOT = Path(__file__).parents[2]
SETTINGS_PAGE = ROOT / "pipeline/docs/settings.md"
SCORES_PAGE = ROOT / "pipeline/docs/training.md"
SECOND_HAND = " Written from descriptions by others, not from the paper."
SYSTEMS_PAGE = ROOT / "pipeline/docs/comparison.md"
# The tables of the page of settings: heading, what is in it, names. Each setting is in one of them.
GROUPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Your data and your question",
        "Most people need these first. They may be set beside a search.",
        (
            *("task", "class_weight", "threshold", "target_transform", "categorical", "missing"),
            *("calibrate", "seed"),
        ),
    ),
    (
        "Quality and cost",
        "A search chooses these.",
        (
            *("n_leaves", "landmarks", "products", "scaling", "feature_map", "gamma", "C", "ridge"),
            *("loss", "quantile", "overlap"),
        ),
    ),
    (
        "Trees",
        "Boosted trees beside the leaves, for thresholds of single features. A search tries them as well.",
        ("trees", "tree_depth", "tree_rate"),
    ),
    (
        "Memory and size",
        "These bound leaves, samples and models.",
        ("max_leaf_rows", "min_leaf_rows", "sample_rows", "local_rows", "keep_support_vectors"),
    ),
    (
        "Kernel and refinement",
        "Change these if the quality is still too low.",
        (
            *("kernel", "degree", "coef0", "leaf_scaling", "compact_gamma", "refine_steps", "refine_epochs"),
            *("refine_ridge", "distill_weight", "largest_weight"),
        ),
    ),
    (
        "The paper's own",
        "These reproduce the paper, or matter only with `refine=false`.",
        ("leaf_model", "refine", "landmark_floor", "nystrom_C", "triangle", "triangle_bound"),
    ),
)
TABLE = re.compile(r"(?<=<!-- settings -->\n).*?(?=<!-- end of settings -->)", re.DOTALL)
SYSTEMS = re.compile(r"(?<=<!-- baselines -->\n).*?(?=<!-- end of baselines -->)", re.DOTALL)
SCORES_TABLE = re.compile(r"(?<=<!-- scores -->\n).*?(?=<!-- end of scores -->)", re.DOTALL)
ESTIMATORS = (DCPredClassifier, DCPredRegressor)
EXAMPLE_VALUES = {PINBALL: "=0.9", MEAN_COST: "=50"}
# Parameters that are no settings, or take more than the setting does.
OWN_WORDS = frozenset(
    {"class_weight", "random_state", "n_jobs", "budget", "metric", "cv", "directory", "verbose", "settings"}
    | {"prefer", "seconds", "accept", "on_alarm"}
)
FIELDS = re.compile(r"(?:^    \w+: \w+ \| None = None\n)+", re.MULTILINE)


def classifier_with(**values: Any) -> DCPredClassifier:
    """A classifier with settings by name, whether its constructor or `dcpred.Settings` takes them."""
    return DCPredClassifier(**as_parameters(values))


def regressor_with(**values: Any) -> DCPredRegressor:
    return DCPredRegressor(**as_parameters(values))


def settings_table() -> str:
    """The tables of all settings, a heading for each group."""
    described = {one.name: one for one in describe_settings()}
    lines = []
    for heading, remark, names in GROUPS:
        lines += [
            f"## {heading}",
            "",
            remark,
            "",
            "| setting | default | values | meaning |",
            "|---|---|---|---|",
        ]
        for one in map(described.__getitem__, names):
            zero = f" 0: {one.zero}." if one.zero else ""
            lines.append(f"| `{one.name}` | {one.default} | {one.allowed} | {one.meaning}{zero} |")
        lines.append("")
    return "\n".join(lines)


def systems_table() -> str:
    """The table of baselines of the user guide."""
    lines = ["| system | what it is | kernel | learns | size | tolerance |", "|---|---|---|---|---|---|"]
    for name, one in LEAF_MODELS.items():
        tasks = "classes" if one.tasks == CLASSES else "classes and numbers"
        meaning = one.meaning + SECOND_HAND * one.second_hand
        cells = (f"`{name}`", meaning, one.kernel, tasks, one.counted or "–", one.tolerated or "–")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def scores_table() -> str:
    """The table of scores of the user guide."""
    lines = ["| task | scores of predictions | scores of probabilities |", "|---|---|---|"]
    for task in SCORERS:
        scores = [score for score in SCORES if score.task == task]
        of_labels, of_others = (
            ", ".join(
                f"`{score.name}{EXAMPLE_VALUES.get(score.name, '')}`"
                for score in scores
                if score.needs_labels_only == only
            )
            for only in (True, False)
        )
        lines.append(f"| {task} | {of_labels} | {of_others or '–'} |")
    return "\n".join(lines) + "\n"


def rare_names() -> list[str]:
    """Settings that no constructor takes: the fields of `dcpred.Settings`, in the order of the table."""
    common = {name for one in ESTIMATORS for name in inspect.signature(one).parameters}
    return [name for name in SETTING_NAMES if name not in common | {"task", "seed"}]


def with_fields(text: str) -> str:
    """The source of `dcpred.Settings` with a field for each of them, None by default."""
    lines = [f"    {name}: {type(DEFAULTS[name]).__name__} | None = None\n" for name in rare_names()]
    return FIELDS.sub("".join(lines), text, count=1)


def main() -> None:
    SETTINGS_PAGE.write_text(TABLE.sub(lambda _: settings_table(), SETTINGS_PAGE.read_text()))
    SYSTEMS_PAGE.write_text(SYSTEMS.sub(lambda _: systems_table(), SYSTEMS_PAGE.read_text()))
    SCORES_PAGE.write_text(SCORES_TABLE.sub(lambda _: scores_table(), SCORES_PAGE.read_text()))
    path = Path(inspect.getfile(dcpred.Settings))
    path.write_text(with_fields(path.read_text()))


if __name__ == "__main__":
    main()
