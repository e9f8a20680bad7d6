"""Limits that a run must keep to become the latest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from dcpred.execution.progress import counted
from dcpred.refreshing.root import Root
from dcpred.runs.bad_rows import NO_LIMIT, BadRowLimit, no_row_scored, without_score
from dcpred.runs.ledger import Ledger, open_ledger
from dcpred.runs.manifest import describe_run
from dcpred_tasks.artifacts.model_artifact import Artifact
from dcpred_tasks.dtypes import GIVEN_UP
from dcpred_tasks.errors import SettingsError, listed
from dcpred_tasks.result_fields import document_of
from dcpred_tasks.scoring.drift import LEAST_ROWS

SHIFTS = {"shift": "shift", "shift of missing values": "gap_shift", "shift of the spread": "spread_shift"}


@dataclass(frozen=True)
class Limits:
    """Limits of a run that is to become the latest. None: no limit.

    bad_rows      rows without a score. Without a limit no row may be skipped
    max_drift     stability index, in nats, of the leaves that rows fall into, and of each feature and output
                  whose distribution differs from that of training by a test; 0.25 is large. Models of
                  earlier versions have only that of leaves
    max_shift     largest |standardised difference of means| of a feature or of its fraction of missing
                  values; 0.8 is large. The ratio of standard deviations counts, too: a factor of 3 as
                  0.8, one of 9 as 1.6

    ignored       numbers of features that are left out; while one of them exceeds max_drift, leaves and
                  outputs are left out, too, since they follow it

    Drift is checked for all rows, and for those in blocks that the latest run does not have, because a
    night's rows are few among all rows. Fewer than 100 sampled rows are not checked.
    """

    bad_rows: BadRowLimit = NO_LIMIT
    max_drift: float | None = None
    max_shift: float | None = None
    ignored: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("max_drift", "max_shift"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise SettingsError(f"Cannot set {name} to {value}: it is not a limit. Use 0 or more.")

    def exceeded(self, name: str, manifest: dict[str, Any], new: Mapping[str, dict[str, Any]]) -> list[str]:
        """The exceeded limits of run `name`, in words.

        new  `drift_by_run` of it
        """
        reasons = [*self._bad_rows(manifest), *self._drift(manifest["drift"], "all rows")]
        if manifest.get("taken_over"):
            for by in sorted(new, reverse=True):
                of = "blocks that changed" if by == name else f"blocks that {by} scored"
                reasons += self._drift(new[by], of)
        return reasons

    def _bad_rows(self, manifest: dict[str, Any]) -> list[str]:
        status, n_rows = manifest["status"], manifest["n_rows"]
        if why := no_row_scored(manifest):
            return [why]
        n_bad = without_score(status)
        if self.bad_rows == NO_LIMIT:
            given_up = sum(status.get(str(int(code)), 0) for code in GIVEN_UP)
            return [f"{counted(given_up, 'row was', 'rows were')} skipped"] if given_up else []
        exceeded = self.bad_rows.exceeded(n_bad, n_rows)
        return [exceeded] if exceeded else []

    def _drift(self, drift: dict[str, Any], of: str) -> list[str]:
        reasons: list[str] = []
        if drift["sampled_rows"] < LEAST_ROWS:
            return reasons
        leaves, features, scores = drift["leaves"], drift["features"], drift.get("scores", ())
        if self.max_drift is not None and drift.get("ignored_psi", 0.0) > self.max_drift:
            leaves, scores = None, ()  # An ignored feature that drifts moves them, too.
        if self.max_drift is not None and leaves and leaves["psi"] > self.max_drift:
            reasons.append(
                f"the stability index of leaves is {leaves['psi']:.2f} for {of} (max_drift"
                f" {self.max_drift:g})"
            )
        compared = [*(features["top"] if features else ()), *scores]
        far = [column for column in compared if column.get("differs")]  # Earlier versions have no such key.
        if (
            self.max_drift is not None
            and far
            and (top := max(far, key=partial(_size, key="psi")))["psi"] > self.max_drift
        ):
            reasons.append(
                f"the stability index of {_named(top)} is {top['psi']:.2f} for {of} (max_drift"
                f" {self.max_drift:g})"
            )
        if self.max_shift is not None and features and features["top"]:
            for name, key in SHIFTS.items():
                top = max(features["top"], key=partial(_size, key=key))
                if (size := _size(top, key)) > self.max_shift:
                    how = "infinite" if size == inf else f"{top[key]:+.2f}"
                    reasons.append(
                        f"the {name} of {_named(top)} is {how} for {of} (max_shift {self.max_shift:g})"
                    )
        return reasons


def _size(column: dict[str, Any], key: str) -> float:
    """The size of a feature's shift or index: null stands for infinity, and earlier versions wrote fewer."""
    value = column.get(key, 0.0)
    return inf if value is None else abs(float(value))


def _named(column: dict[str, Any]) -> str:
    return repr(column["name"]) if "name" in column else f"feature {column['feature']}"


def ignored_features(artifact: Artifact, given: Sequence[str], stored: Sequence[str] = ()) -> tuple[int, ...]:
    """The numbers of the features of columns that drift by themselves: those named, and the column of
    --by-time. Raises SettingsError for a given column that the model does not have.
    """
    schema, names = artifact.schema, artifact.feature_names
    columns: dict[str, list[int]] = {}
    if schema is not None:
        columns = {column.name: list(range(span.start, span.stop)) for column, span in schema.spans}
    for number, name in enumerate(names or ()):
        columns.setdefault(name, [number])
    unknown = [name for name in given if name not in columns]
    if unknown:
        has = f"Name one of {listed([*map(repr, columns)])}" if columns else "Its features have no names"
        raise SettingsError(f"Cannot ignore the drift of {unknown[0]!r}: the model lacks this column. {has}.")
    by_time = dict(artifact.provenance).get("by_time", "")
    return tuple(sorted({j for name in (*given, *stored, by_time) for j in columns.get(name, ())}))


def without_ignored(limits: Limits, root: Root, name: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a run, with the drift that limits apply to."""
    if not limits.ignored or "drift" not in manifest:
        return manifest
    return manifest | {"drift": _drift_of(open_ledger(root.address(name)), None, limits.ignored)}


def drift_by_run(
    root: Root, name: str, latest: str, manifest: dict[str, Any], ignored: tuple[int, ...] = ()
) -> dict[str, dict[str, Any]]:
    """The drift of the rows in blocks of a finished run that the latest run does not have, by the run that
    scored them: rows scored now, and rows reused from unpublished runs, each separately. A drift is then
    not hidden among more rows of a later night.

    latest  the run that readers have; "" for none
    """
    if not manifest.get("taken_over"):
        return {name: manifest["drift"]}
    ledger, published = open_ledger(root.address(name)), root.run(latest) if latest else None
    had = {} if published is None else _scored_by(open_ledger(root.address(latest)), latest)
    new = {block: by for block, by in _scored_by(ledger, name).items() if had.get(block) != by}
    blocks = {by: {block for block in new if new[block] == by} for by in set(new.values())}
    return {by: _drift_of(ledger, record, ignored) for by, record in blocks.items()}


def _scored_by(ledger: Ledger, name: str) -> dict[int, str]:
    """The run that scored each block."""
    return {record.block: record.origin or name for record in ledger.records()}


def _drift_of(ledger: Ledger, blocks: set[int] | None, ignored: tuple[int, ...]) -> dict[str, Any]:
    drift: dict[str, Any] = document_of(describe_run(ledger.run, ledger.records(blocks), ignored).drift)
    return drift
