"""Partitioned input: for example one array for every day, each updated separately, all published at once.

ROOT/
  refresh.json           as for one input; the data are a pattern
  parts/NAME/            a separate root: what is fixed for that input, and its runs
  runs/NNNN-HASH/        which run of each part belongs to it: manifest.json, and, on disks, a link to each:
                         ROOT/latest/parts/NAME/scores.zarr are the scores of one part

A removed input keeps its scores, unless everything is scored anew.
"""

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dcpred.refreshing.incremental_run import IncrementalRun, Job
from dcpred.refreshing.limits import Limits, drift_by_run, without_ignored
from dcpred.refreshing.root import Root, RunTotals, Settings, open_root, run_number
from dcpred.runs.latest import MANIFEST, NO_LINKS, PARTS, RUNS, parts_in
from dcpred.runs.ledger import open_ledger
from dcpred.verification.fast_check import FastCheck, check_as_written
from dcpred_tasks.annotations import from_document
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.errors import DataError, IncompleteError, PlanConflictError
from dcpred_tasks.storage.addresses import Address, absolute, below, lasting, path_on_disk
from dcpred_tasks.storage.digests import digest_json, sealed
from dcpred_tasks.storage.patterns import match_pattern
from dcpred_tasks.storage.place import is_zarr, open_place, write_document
from dcpred_tasks.tables.sources import is_read_in_place, open_source

FORMAT, VERSION = "dcpred-parts", 1


@dataclass(frozen=True)
class Part:
    """One input of several."""

    name: str
    """The values of the wildcards of the pattern."""
    x: Address
    """Address of the array."""


def find_parts(pattern: str, x: str, model: str | Path) -> list[Part]:
    """The inputs that match a pattern (`dcpred_tasks.storage.patterns`), by name. Matches without rows, and
    files that are no table, are none.

    x  name of the array in each of them

    Raises DataError if there are none, or two have one name or a file in common.
    """
    base, matches = match_pattern(pattern)
    addresses = {}
    for match in matches:
        name = "-".join(text.removesuffix(".zarr") for text in match.wildcards)
        if name in addresses:
            raise DataError(
                f"Cannot distinguish inputs by {pattern}: two of them are {name} by their names. Use a"
                " pattern with different names for them."
            )
        address = below(base, match.name)
        if is_read_in_place(address) or address.lower().endswith(".zarr") or is_zarr(address):
            addresses[name] = address
    if not addresses:
        raise DataError(
            f"Cannot find inputs by {pattern}: none match. Choose another pattern."
            if not matches
            else f"Cannot find inputs by {pattern}: none of the {len(matches):,} matches is a Zarr group or a"
            " table that is read where it lies. Choose another pattern, or run `dcpred import` first."
        )
    _check_apart(pattern, addresses)
    return [Part(name, absolute(find_rows(address, x, model))) for name, address in sorted(addresses.items())]


def _check_apart(pattern: str, inputs: Mapping[str, str]) -> None:
    """Raise DataError where a link within one input leads into another one: rows would be scored twice."""
    owners: dict[str, str] = {}
    for name, address in inputs.items():
        if path_on_disk(address) is None or not is_read_in_place(address):
            continue
        for file in open_source(address).files:
            owner = owners.setdefault(os.path.realpath(file.address), name)
            if owner != name:
                raise DataError(
                    f"Cannot refresh the inputs of {pattern} apart: a link leads to {file.address} from both"
                    f" {owner} and {name}. Remove the link."
                )


@dataclass
class Parts:
    """The parts of a root, updated by a job.

    release  the run of the root with all parts, once it exists
    gone     parts whose input was removed
    """

    job: Job
    root: Root
    inputs: list[Part]
    latest: str
    reused: int = 0
    scored: int = 0
    beyond: str = ""
    release: str = ""
    gone: tuple[str, ...] = ()

    def run(self, limits: Limits) -> str:
        """The name of the run of the root with the current runs of all parts."""
        published = parts_in(self.root.manifest(self.latest)) if self.latest and not self.job.full else {}
        now: dict[str, str] = {}
        for part in self.inputs:
            now[part.name] = self._renewed(part, published.get(part.name, ""), limits)
        self.gone = tuple(name for name in published if name not in now)
        now |= {name: published[name] for name in self.gone}
        if now == published:
            return self.latest
        # The name of a run of all parts ends with the digest of its content.
        ending = f"-{_digest(now)}"
        likely = [name for name in self.root.finished() if name.endswith(ending)]
        same = (name for name in likely if parts_in(self.root.manifest(name)) == now)
        return next(same, "") or self._released(now, published)

    def part_root(self, name: str, x: Address = "") -> Root:
        """The root of a part. Raises PlanConflictError if it belongs to another input."""
        place = open_place(below(self.root.place.address, PARTS, name))
        new = Settings(x, **vars(self.root.settings.columns)) if x else None
        root = open_root(place, new)
        if x and lasting(root.settings.data) != lasting(x) and not self.job.full:
            raise PlanConflictError(
                f"Cannot refresh {place.address} with {x}: it holds runs of {root.settings.data}. Choose"
                " another root, use the same data, or score everything with --full."
            )
        return root

    def remove_unused(self) -> list[str]:
        """Remove runs of parts that no run of the root uses any more. Returns their names."""
        used = {pair for name in self.root.finished() for pair in parts_in(self.root.manifest(name)).items()}
        removed = []
        for part in sorted(self.root.place.names(PARTS)):
            with suppress(PlanConflictError):
                root = self.part_root(part)
                for name in root.finished():
                    if (part, name) not in used:
                        root.remove(name)
                        removed.append(f"{part}/{name}")
        return removed

    def _renewed(self, part: Part, published: str, limits: Limits) -> str:
        """The current run of a part."""
        root = self.part_root(part.name, part.x)
        root.place.make_folder("")
        if self.job.full:
            root.settings = replace(root.settings, data=part.x)
        work = IncrementalRun(self.job, root, part.x, published)
        name = work.run()
        self.reused, self.scored = self.reused + work.reused, self.scored + work.scored
        if name != published:
            manifest = root.manifest(name)
            manifest = without_ignored(limits, root, name, manifest)
            new = drift_by_run(root, name, published, manifest, limits.ignored)
            beyond = limits.exceeded(name, manifest, new)
            self.beyond = "; ".join(filter(None, (self.beyond, *(f"{part.name}: {so}" for so in beyond))))
        return name

    def _released(self, parts: dict[str, str], published: dict[str, str]) -> str:
        """A new run of the root with these: named as unfinished, then links, then the manifest.

        standing  the runs of parts of the latest run
        """
        root = self.root
        for name in root.settings.unfinished:
            root.remove(name)
        number = max((run_number(name) for name in root.names()), default=0) + 1
        name = f"{number:04d}-{_digest(parts)}"
        root.write(unfinished=(*root.settings.unfinished, name))
        folder = f"{RUNS}/{name}"
        root.place.make_folder(folder)
        if root.place.links is not None:
            _link_parts(root.place.links / folder / PARTS, parts)
        write_document(root.place, f"{folder}/{MANIFEST}", self._manifest(parts, published))
        root.end(name)
        return name

    def _manifest(self, parts: dict[str, str], published: dict[str, str]) -> dict[str, Any]:
        """The manifest of all parts together. Its drift is that of the part that is farthest off."""
        runs = {
            name: from_document(RunTotals, self.part_root(name).manifest(run)) for name, run in parts.items()
        }
        status = Counter[str]()
        for run in runs.values():
            status.update(run.status)
        reused = {
            name: run.n_blocks if published.get(name) == parts[name] else sum(run.taken_over.values())
            for name, run in runs.items()
        }
        farthest = max((run.drift for run in runs.values()), key=_distance)
        totals = RunTotals(
            parts=parts,
            model_hash=self.job.model_hash,
            n_rows=sum(run.n_rows for run in runs.values()),
            n_blocks=sum(run.n_blocks for run in runs.values()),
            status=dict(status),
            drift={**farthest, "parts": [name for name, run in runs.items() if run.drift["large"]]},
            taken_over={name: n for name, n in reused.items() if n},
        )
        return sealed({"format": FORMAT, "version": VERSION, **asdict(totals)})


def _digest(parts: dict[str, str]) -> str:
    return digest_json(parts)[:8]


def _distance(drift: Mapping[str, Any]) -> tuple[bool, float]:
    """Whether drift is large, and its stability index; earlier versions wrote that of leaves alone."""
    of_leaves = drift["leaves"] or {"psi": 0.0}
    return bool(drift["large"]), float(drift.get("psi", of_leaves["psi"]))


def check_parts(root: Root, manifest: dict[str, Any]) -> None:
    """Raise IncompleteError if a run of a part was removed, is modified or damaged."""
    for part, name in manifest["parts"].items():
        part_root = open_root(open_place(below(root.place.address, PARTS, part)))
        if not part_root.is_finished(name):
            raise IncompleteError(
                f"Cannot publish all parts: run {name} of {part} is not complete. Choose another"
                " run, or score everything with --full."
            )
        check_run(part_root.address(name))


def check_run(address: str) -> None:
    """Raise IncompleteError if a finished run is modified or damaged, as its files show without reading."""
    ledger = open_ledger(address)
    check_as_written(FastCheck(ledger).findings, ledger.address)


def _link_parts(folder: Path, parts: dict[str, str]) -> None:
    """Links to the runs of parts, if the file system has links."""
    folder.mkdir()
    try:
        for part, name in parts.items():
            os.symlink(f"../../../{PARTS}/{part}/{RUNS}/{name}", folder / part)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
