"""Remarks: what a person has to know about data and results. Every kind is declared here, once: commands,
Python's warnings, pages of reports and the page of all codes (pipeline/docs/remarks.md) read it.
"""

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dcpred_tasks.errors import SettingsError
from dcpred_tasks.result_fields import result_class, result_field


class Severity(StrEnum):
    NOTE = "note"
    WARNING = "warning"
    ALARM = "alarm"


RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class DataWarning(UserWarning):
    """A remark of severity warning or alarm, as Python's `warnings` get it. It begins with its code."""


@dataclass(frozen=True)
class Kind:
    """What all remarks of a code share."""

    severity: Severity
    cause: str
    threshold: str
    why: str
    """Why it matters."""
    do: str
    """What to do, where the remark does not state it."""
    example: str
    """What a remark of this kind says."""


NOTE, WARNING, ALARM = Severity
NO_THRESHOLD = "none"
KINDS: dict[str, Kind] = {
    "leak": Kind(
        ALARM,
        "A feature predicts the target nearly perfectly alone.",
        "Neighbours in the order of the feature differ in class in fewer than 6 % of the pairs that chance"
        " gives; of a regression, 0.5 % of the variance of ranks is left.",
        "A feature that is known only after the target gives a model that fails on new rows.",
        "leave it out with --drop unless it is known when rows are scored",
        "feature 'closed' predicts the target nearly perfectly alone and may be a leak",
    ),
    "constant-feature": Kind(
        NOTE,
        "A feature has the same value in every training row.",
        NO_THRESHOLD,
        "It adds cost and no information.",
        "leave it out with --drop",
        "feature 'country' has the same value in every training row",
    ),
    "id-feature": Kind(
        WARNING,
        "A feature identifies rows: its integers ascend from row to row, or are all different.",
        "at least 20 sampled rows, all ascending; or n ≥ 50 different integers of a range R, n² / 2R > 7: by"
        " chance they are different with a probability below 0.001",
        "The model learns the order of the rows, which new rows do not have.",
        "leave it out with --drop, or keep it with --id",
        "feature 'id' has ascending integers, as ids have",
    ),
    "value-apart": Kind(
        WARNING,
        "A repeated value of a feature lies apart from all others, as codes for missing values do.",
        "at least 3 copies and 0.05 % of the sampled rows, at most 25 %, beyond a gap of an interquartile"
        " range and more frequent than the values next to it, or of 5 such ranges; or a usual code (−999,"
        " 9999, 1e30, 9999-12-31) that is the only negative value, or 20 times as frequent as others",
        "The model reads a missing value as a number.",
        "if it stands for a missing value, import the source again with --gap",
        "feature 'weight_kg' has the value -999 in 5 % of the rows, apart from all others",
    ),
    "rising-dates": Kind(
        NOTE,
        "A date never falls from row to row.",
        "at least 20 sampled rows",
        "New rows always lie beyond the dates of training.",
        "keep it with --id, or omit it from the limits of `dcpred refresh` with --ignore-drift",
        "feature 'day' has dates in the order of the rows, beyond which new rows always lie",
    ),
    "time-feature": Kind(
        NOTE,
        "The column of --by-time is a feature, too.",
        NO_THRESHOLD,
        "New rows always lie beyond the times of training.",
        "keep it with --id, or omit it with --drop, unless the model needs it",
        "'when' is a feature, beyond which new rows always lie",
    ),
    "sorted-by-target": Kind(
        ALARM,
        "Rows that are held out in their order lack a class, or their targets lie beyond all others.",
        "a class of share π that none of n held-out rows has, (1 − π)ⁿ < 10⁻⁶; of a regression 90 % of at"
        " least 20 rows",
        "Quality, probabilities and labels follow held-out rows that are like no others.",
        "shuffle the table, or omit --by-time or name a column of times",
        "held-out rows are all of class yes; the table seems sorted by its target",
    ),
    "random-holdout": Kind(
        ALARM,
        "Rows that are held out at random are an easier test than whole groups, or later rows.",
        "five nearest neighbours on up to 2,000 rows: of groups a gain of more than 3 standard errors, 2"
        " points, and 5 % of the range above chance; of times 5 standard errors, and 25 % of that range",
        "The quality that is measured does not hold for new groups, or for later rows.",
        "hold rows out with --by-group or --by-time",
        "nearest neighbours give 99 % right of rows held out at random, and 51 % right of whole groups of"
        " 'patient'",
    ),
    "wrong-targets": Kind(
        ALARM,
        "Targets agree with predictions much less than the model expects of itself.",
        "at least 50 rows, 6 standard errors, and 10 points of agreement of labels or 20 points of the"
        " coverage of intervals",
        "The targets probably do not belong to these rows, or their meaning changed.",
        "check how targets were joined with rows, and their unit and coding",
        "18 % of the targets are the predicted label, the model expects 81 %: the two classes look swapped",
    ),
    "perfect-fit": Kind(
        NOTE,
        "Every evaluated row has the right label, would have it with another threshold, or has nearly the"
        " right value.",
        "at least 100 rows, and an accuracy of 100 %, an AUC of 1 or an R² above 0.9999",
        "Features that together hold the target are a leak.",
        "check that all features are known when rows are scored",
        "all 600 rows have the right label, which is too good for most tasks",
    ),
    "few-rows": Kind(
        NOTE,
        "Few rows are evaluated.",
        "fewer than 50 rows",
        "Other rows may give quite other figures.",
        "evaluate more rows",
        "only 20 rows are evaluated",
    ),
    "heavy-row": Kind(
        ALARM,
        "One row has much of all sample weight.",
        "more than 25 % of the weight of at least 100 rows",
        "The model learns little but this row.",
        "correct its sample weight",
        "row 5 has 99.7 % of the weight of all 3,000 rows, and the model learns little else",
    ),
    "rare-class": Kind(
        WARNING,
        "A class has few training rows.",
        "fewer than 10 rows",
        "The model hardly learns such a class, and its quality cannot be measured.",
        "collect more, or join classes",
        "classes with fewer than 10 training rows: ye (2)",
    ),
    "missing-chunks": Kind(
        WARNING,
        "Chunks of class labels are not stored, and read as the fill value.",
        NO_THRESHOLD,
        "If they were lost, their rows have a wrong class.",
        "write the target again if it has rows of other classes there",
        "2 chunks of y are not stored",
    ),
    "changed-settings": Kind(
        NOTE,
        "The model has another number of leaves or landmarks than the settings.",
        NO_THRESHOLD,
        "Its cost differs from what the settings suggest.",
        "see the settings that it names",
        "the model has 2 leaves instead of n_leaves=8: leaves of fewer than min_leaf_rows rows are merged",
    ),
    "more-leaves": Kind(
        WARNING,
        "The model has more leaves than n_leaves.",
        NO_THRESHOLD,
        "A row costs more than asked for.",
        "set max_leaf_rows higher for fewer leaves",
        "the model has 8 leaves instead of n_leaves=4: a leaf of more rows than max_leaf_rows is split",
    ),
    "better-reference": Kind(
        NOTE,
        "A reference model is better than the chosen one.",
        "more than a standard error of the difference",
        "The search may have missed good settings.",
        "search longer with `dcpred tune`, or use that model",
        "the reference gradient boosting is better by 2.1 points",
    ),
    "dearer-model": Kind(
        NOTE,
        "A model costs more than its search foresaw.",
        "at least 15 % more",
        "Trials see a part of the rows, and all rows may need a slower walk down the tree. The budget may be"
        " exceeded.",
        "search with a smaller budget if the time of a row matters",
        "a row costs 41.2 linear predictions, 29.5 were foreseen",
    ),
    "not-evaluated": Kind(
        NOTE,
        "No rows evaluated the choice of settings.",
        NO_THRESHOLD,
        "The quality of the model is unknown.",
        "evaluate it on labelled rows with `dcpred evaluate`",
        "too few rows to hold any out: nothing was evaluated",
    ),
    "trained-rows": Kind(
        WARNING,
        "Evaluated rows are equal to rows that the model was trained on.",
        "at least 2 % of the rows, and 5 standard errors more than by chance, which equal training rows give",
        "The model does worse on new rows.",
        "evaluate it on rows that `dcpred split` set aside",
        "about 40 % of the rows of known.zarr are equal to rows that the model was trained on",
    ),
    "one-class": Kind(
        WARNING,
        "All evaluated rows have one class.",
        NO_THRESHOLD,
        "Accuracy is the recall of that class, and there is no AUC.",
        "evaluate rows of all classes",
        "all rows of known.zarr have the class yes",
    ),
    "infinite-figure": Kind(
        WARNING,
        "A figure of an evaluation is beyond the range of float64.",
        NO_THRESHOLD,
        "It has no value in the result.",
        "check the targets for values that are far too large",
        "rmse of known.zarr is larger in size than any float64",
    ),
    "drift": Kind(
        WARNING,
        "Rows are distributed differently from the training rows.",
        "a population stability index above 0.25, and a Kolmogorov–Smirnov test at 0.005 for all features"
        " and outputs together, of at least 100 rows",
        "The quality that was measured in training may not hold for these rows.",
        "check the source of the columns, or train again on recent rows",
        "'hour' (stability index 8.18; 0 to 1: 100 % of rows, in training 4.17 %)",
    ),
    "beyond-training": Kind(
        WARNING,
        "Values lie beyond all training rows.",
        "more rows than chance explains at 0.001 for all features together",
        "The model extrapolates. A changed unit and codes for missing values look like this.",
        "correct the values, or import codes as missing values with --gap",
        "weight_kg: 50 below 36.9, of 1,500 counted rows",
    ),
    "relations": Kind(
        WARNING,
        "Pairs of columns relate to each other otherwise than in training.",
        "of at least 100 rows: Fisher's z of a rank correlation changes in a test at 0.005 for all pairs"
        " together, by 0.25, and by 1.5 times what quarters of the training rows differ by; the correlation"
        " changes by 0.04",
        "Columns that changed places, a reversed sign, or a column that was joined from other rows give wrong"
        " scores, though each column alone looks as in training.",
        "check how the columns were named, joined and computed",
        "'t_in' and 't_out' seem to have changed places (rank correlation of 't_in' and 'load' 0.02, in"
        " training 0.70)",
    ),
    "unscored-rows": Kind(
        WARNING,
        "Rows have no score.",
        "any",
        "Their labels and values are placeholders.",
        "list them with `dcpred errors`, and correct the data",
        "12 of 1,500 rows have no score",
    ),
    "repeated-ids": Kind(
        WARNING,
        "A value of an id column occurs in several rows.",
        "any",
        "Rows may be duplicates, and scores cannot be joined by this id.",
        "correct the source if ids should be unique; if rows belong together, use --by-group",
        "about 2,700 rows have a value of 'patient' that an earlier row has",
    ),
    "repeated-rows": Kind(
        WARNING,
        "Scored rows are equal to earlier ones.",
        "of a sample of at least 100 rows 2 points and 5 standard errors more than by chance, which equal"
        " training rows give",
        "A part of the source may have come twice, and its rows count twice in sums.",
        "check whether a file or a join of the source repeats rows",
        "about 2,000 of 10,000 rows repeat an earlier row",
    ),
    "unknown-columns": Kind(
        NOTE,
        "Columns are not in the schema to follow.",
        NO_THRESHOLD,
        "They are not imported.",
        "omit them from the source, or train a model with them",
        "columns not known: 'colour'",
    ),
    "unknown-categories": Kind(
        WARNING,
        "Categories did not occur in the data to follow, or in too few rows to learn them.",
        "of an import any row; else a category that is a known one in other case, width or spaces, or more"
        " than 10 % of the rows",
        "They are encoded as others: a misspelt category loses its meaning.",
        "correct the spelling, or train again with such rows",
        "unknown or rare categories of city in 450 rows, encoded as others: 'hamburg' (known is 'Hamburg')",
    ),
    "text-for-missing": Kind(
        NOTE,
        "A text that often stands for missing values was a target.",
        NO_THRESHOLD,
        "Rows of a class with this name were skipped.",
        "pass it with --not-missing if it is a class",
        "skipped 20 rows without a target, also where the target is 'NA'",
    ),
    "shared-rows": Kind(
        WARNING,
        "Test rows are equal to training rows.",
        "any",
        "The test is too easy.",
        "remove them, or split --by-group",
        "40 test rows are equal to training rows",
    ),
    "uneven-split": Kind(
        NOTE,
        "The parts of a split have other sizes than requested.",
        "10 % of the requested fraction",
        "Few or many test rows change the error of the test.",
        "choose another fraction or column",
        "20.0 % was requested; the groups are too large for it",
    ),
    "passed-over-files": Kind(
        WARNING,
        "Files beside those of a table are ignored, though their names look like rows.",
        "any hidden, unfinished or temporary file of rows, or one of another format; `_SUCCESS`, `_metadata`,"
        " `.crc` and `_delta_log` are expected",
        "A writer that was interrupted leaves a table incomplete.",
        "finish or remove them, or name the files to read by a pattern",
        "part-2.parquet.tmp in days is ignored",
    ),
    "lost-ids": Kind(
        WARNING,
        "The ids of scored rows were removed, or cannot be found.",
        NO_THRESHOLD,
        "Rows of the table cannot be joined with the source.",
        "restore the data, or name it with --with DATA:NAME",
        "the table has no ids of its rows",
    ),
    "system-files": Kind(
        NOTE,
        "A folder holds files of the operating system.",
        NO_THRESHOLD,
        "They do no harm.",
        "remove them if you like",
        "1 file of the operating system is left alone: .DS_Store",
    ),
}


@result_class
class Remark:
    """Something that a person has to know, with what to do. Its text begins with its code."""

    code: str = result_field("Its kind: a stable code, for `accept`.")
    severity: str = result_field("note, warning or alarm.")
    what: str = result_field("What is the case.")
    why: str = result_field("Why it matters.")
    do: str = result_field("What to do.")
    columns: tuple[str, ...] = result_field("The columns that it is about.", default=())
    file: str = result_field('The file or data set that it is about; "" if unknown.', default="")
    share: float | None = result_field(
        "Fraction of the rows that it is about; None if unknown.", default=None
    )

    @property
    def text(self) -> str:
        """What it is and what to do, in a line."""
        return f"{self.code}: {self.what}" + (f"; {self.do}" if self.do else "")

    def __str__(self) -> str:
        return f"{self.severity} {self.text}"


def remark(
    code: str,
    what: str,
    do: str | None = None,
    *,
    columns: Sequence[object] = (),
    file: object = "",
    share: float | None = None,
) -> Remark:
    """A remark of a declared kind."""
    kind = KINDS[code]
    remedy = kind.do if do is None else do
    of_rows = tuple(map(str, columns)), str(file), share
    return Remark(code, kind.severity.value, what, kind.why, remedy, *of_rows)


def remarks_of(documents: Sequence[Any]) -> list[Remark]:
    """Remarks from documents. Earlier versions stored sentences on settings."""
    return [
        remark("changed-settings", document, "")
        if isinstance(document, str)
        else Remark(**{**document, "columns": tuple(document.get("columns", ()))})
        for document in documents
    ]


def check_codes(codes: Collection[str]) -> None:
    """Raise SettingsError for a code that no remark has, and for what is no list of codes."""
    if isinstance(codes, str) or not isinstance(codes, Collection):
        wanted = [codes] if isinstance(codes, str) else []
        raise SettingsError(
            f"Cannot use accept={codes!r}: it is of type {type(codes).__name__}. Pass a list, as"
            f" accept={wanted}."
        )
    for code in codes:
        if code not in KINDS:
            near = difflib.get_close_matches(code, KINDS, 1)
            hint = f"Did you mean {near[0]!r}" if near else f"Codes are {', '.join(KINDS)}"
            raise SettingsError(
                f"Cannot accept {code!r}: no remark has this code. {hint}{'?' if near else '.'}"
            )
