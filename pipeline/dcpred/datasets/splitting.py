"""Split a data set into training and test rows, in bounded memory.

Copies every array of as many rows as X, with its attributes, and the attributes of the group: names,
classes, the schema, ids. Each part is written completely or not at all.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred.datasets.holdout_check import holdout_remarks
from dcpred.datasets.split_rules import Drawn, Rule, SplitSource
from dcpred.datasets.writing import Repeats, new_data_set
from dcpred.execution.progress import counted, show_step
from dcpred.public.functions import typed
from dcpred.public.remarks import add_remarks
from dcpred.public.results import PublicResult
from dcpred_tasks.artifacts.data_schema import schema_of_array
from dcpred_tasks.artifacts.trained_rows import hashes_of_rows
from dcpred_tasks.errors import DataError, PlanConflictError, SettingsError, listed
from dcpred_tasks.model.class_codes import names_of_classes
from dcpred_tasks.remarks import remark
from dcpred_tasks.result_fields import result_class, result_field
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array, open_group
from dcpred_tasks.storage.addresses import absolute, check_writable, path_on_disk
from dcpred_tasks.storage.atomic_files import PARTIAL, check_new_name, is_free
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.storage.object_arrays import portable
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.training.survey import FEW_CLASSES
from dcpred_tasks.training.training_remarks import lacking_class

SPLIT = "dcpred_split"  # attribute of both parts: their source, and how it was split
ZARR = ".zarr"
PARTS = ("train", "test")


SHARED = 0.02  # minimum fraction of test rows equal to training rows to report
MISSED = 0.1  # minimum difference from the requested test rows to report, as a fraction of them


def _how_text(r: Mapping[str, Any]) -> str:
    if r["by"] == "classes":
        return f"random, stratified by {counted(r['n_classes'], 'class', 'classes')}; seed {r['seed']}"
    if r["by"] == "rows":
        return f"random; seed {r['seed']}"
    if r["by"] == "time":
        return f"time: the last rows {'in stored order' if r['name'] is None else 'by ' + r['name']}"
    return f"groups of {r['name']}, each on one side; seed {r['seed']}"


def _test_share(r: Mapping[str, Any]) -> float:
    return float(r["n_test"] / (r["n_train"] + r["n_test"]))


@result_class
class Split(PublicResult):
    """A finished split."""

    data: str = result_field("Address of the data set.")
    train: str = result_field(
        "Address of the training rows.", line="train", text="{train}  ({n_train:,} rows)"
    )
    test: str = result_field(
        "Address of the test rows.",
        line="test",
        text=lambda r: f"{r['test']}  ({r['n_test']:,} rows, {100 * _test_share(r):.1f} %)",
    )
    n_train: int = result_field("Number of training rows.")
    n_test: int = result_field("Number of test rows.")
    by: str = result_field("The criterion: rows, classes, time or group.", line="by", text=_how_text)
    name: str | None = result_field(
        "The array or feature of the criterion; None: the order of the rows, or random numbers."
    )
    seed: int | None = result_field("Seed of the random split; None without one.")
    n_classes: int | None = result_field(
        "Classes that are in both parts as in the whole; None without stratification."
    )
    left_out: list[str] = result_field(
        "Arrays with another number of rows, which are not copied.",
        default_factory=list,
        line="left out",
        text=lambda r: [f"{', '.join(r['left_out'])}: not as many rows as X"] if r["left_out"] else [],
    )
    shared_rows: int = result_field(
        "About how many test rows are equal to training rows; counted when both parts are written.",
        default=0,
    )
    already_split: bool = result_field(
        "Whether both parts existed, and nothing was written.",
        default=False,
        line="state",
        text=lambda r: "both exist; nothing was written" if r["already_split"] else None,
    )
    fraction: float = result_field(
        "The requested fraction of test rows, which whole groups and equal times may miss.",
        default=0.0,
    )


@typed
def split(
    data: str | Path,
    *,
    test: float = 0.2,
    by_time: str | None = None,
    by_group: str | None = None,
    seed: int | None = None,
    into: tuple[str | Path, str | Path] | None = None,
    x: str = "X",
    y: str = "y",
    accept: Sequence[str] = (),
    on_alarm: str = "warn",
    verbose: bool = False,
) -> Split:
    """Split a data set into training and test rows: two new Zarr groups.

    Parameters
    ----------
    data : str or Path
        Path or address of a data set.
    test : float, default 0.2
        Fraction of rows in the test set.
    by_time : str, optional
        Test on the rows with the largest values of this array or feature; ``""``: on the last stored rows.
    by_group : str, optional
        Keep rows with the same value of this array or feature together.
    seed : int, optional
        Seed of the random split. By default 0.
    into : (str or Path, str or Path), optional
        Paths of the training rows and the test rows. By default `DATA-train.zarr` and `DATA-test.zarr`.
    x : str, default "X"
        Name of the array of features.
    y : str, default "y"
        Name of the array of targets, which is optional.

    Returns
    -------
    Split
        Paths and numbers of rows.

    Raises
    ------
    RefusedError
        For wrong arguments or data, and if other data are at one of the paths.
    ResourceError
        For a full disk, or a missing permission.

    Notes
    -----
    Rows are drawn at random, the same fraction of each class, without `by_time` and `by_group`. Arrays next
    to the features are copied. Each part is written completely or not at all. The same call again writes a
    part that is missing.
    """
    _check_asked(test, by_time, by_group, seed)
    data, names = str(data), _names(str(data)) if into is None else (str(into[0]), str(into[1]))
    places = _places(data, names)
    X = open_array(zarr_arrays.find_array(data, x))
    group = open_group(data)
    n_rows = X.shape[0]
    _check_no_means(data, zarr_arrays.address_of(X))
    if n_rows < 2:
        raise DataError(f"Cannot split {data}: X has {n_rows:,} rows. Pass two or more.")
    every = dict(zarr_arrays.arrays_of(group))
    arrays = {name: array for name, array in every.items() if array.shape[:1] == (n_rows,)}
    for stored, array in arrays.items():
        check = stored_chunks.check_labels if stored == y else stored_chunks.check_complete
        check(zarr_arrays.address_of(array), array)
    source = SplitSource(data, X, arrays)
    name = by_time if by_time is not None else by_group
    how = "time" if by_time is not None else "group" if by_group is not None else "rows"
    drawn = None if by_time is not None else seed or 0
    rule: Rule
    n_classes = None
    if how == "rows":
        classes = source.classes(y) if y in arrays else None
        rule = Drawn(source.numbers(y, classes), test, seed or 0)
        how, n_classes = ("rows", None) if classes is None else ("classes", len(classes))
    else:
        rule = source.rule(how, name or None, test, seed or 0)
    n_test = sum(int(side.sum()) for side in rule.sides())
    if not 0 < n_test < n_rows:
        raise DataError(
            f"Cannot split {data}: {n_test:,} of its {n_rows:,} rows would be test rows. Choose"
            " another fraction."
        )
    _remark_on_parts(source, y, rule, how, name, test, n_test)
    asked = {"share": test, "by": how, "name": name or None, "seed": drawn}
    contents = {name: stored_chunks.fingerprint(array) for name, array in arrays.items()}
    origin = asked | {"run": digest_json({**asked, **contents})}
    missing = [part for part, place in zip(PARTS, places, strict=True) if not _is_there(place, part, origin)]
    shared = 0
    if missing:
        shared = _write(group, source, rule, dict(zip(PARTS, places, strict=True)), missing, origin, n_test)
    return Split(
        data=data,
        train=names[0],
        test=names[1],
        n_train=n_rows - n_test,
        n_test=n_test,
        by=how,
        name=name or None,
        seed=drawn,
        n_classes=n_classes,
        left_out=sorted(set(every) - set(arrays)),
        shared_rows=shared,
        already_split=not missing,
        fraction=test,
    )


def _remark_on_parts(
    source: SplitSource, y: str, rule: Rule, how: str, name: str | None, test: float, n_test: int
) -> None:
    """Remark on parts of another size than requested, and on test rows that are no honest test."""
    if abs(n_test / source.X.shape[0] - test) > MISSED * test:
        parts = "groups" if how == "group" else "values"
        what = f"{100 * test:.1f} % was requested; the {parts} are too large for it, none is divided"
        add_remarks(remark("uneven-split", what, columns=[name] if name else (), file=source.data))
    if y not in source.arrays:
        return
    if how == "time":
        _check_order(source, y, rule)
    elif how != "group":
        target = zarr_arrays.address_of(source.arrays[y])
        add_remarks(*holdout_remarks(zarr_arrays.address_of(source.X), target))


ORDERED_ROWS = 2**20  # rows whose targets are compared with those held out, at most


def _check_order(source: SplitSource, y: str, rule: Rule) -> None:
    """Remark on test rows that are the latest and lack a class, or have targets like no others."""
    n_rows = source.X.shape[0]
    classes, names = (
        source.classes(y),
        names_of_classes(source.arrays[y].attrs, np.dtype(source.arrays[y].dtype)),
    )
    if classes is not None and names is None and len(classes) > FEW_CLASSES:
        classes = None
    step = -(-n_rows // ORDERED_ROWS)
    parts = source.numbers(y, classes)() if classes is not None else source.column(y)
    target = np.concatenate([*parts])[::step]
    is_test = np.concatenate([*rule.sides()])[::step]
    labels: Sequence[object] = ()
    if classes is not None:
        labels = [names[int(i)] for i in classes] if names is not None else classes.tolist()
    if target.dtype.kind in "biuf" and (lack := lacking_class(target, is_test, labels)) is not None:
        add_remarks(lack)


def _check_no_means(data: str, x: str) -> None:
    """Raise DataError if features encode the targets of all rows, those of the other part among them."""
    try:
        schema = schema_of_array(x)
    except DataError:  # It is copied unchanged; its reader reports what is wrong.
        return
    if schema is not None and (names := schema.with_means):
        raise DataError(
            f"Cannot split {data}: an earlier version of dcpred replaced the categories of"
            f" {listed([*map(repr, names)])} by means of the target. Each part would contain targets of the"
            " other. Import the source again, and split that."
        )


def _check_asked(test: float, by_time: str | None, by_group: str | None, seed: int | None) -> None:
    if not 0 < test < 1:
        raise SettingsError(
            f"Cannot use {test:g} of the rows as test rows: it is not a fraction. Use more than 0 and less"
            " than 1."
        )
    if by_group == "":
        raise SettingsError("Cannot split rows by the group '': it names no column. Name one, or omit it.")
    if by_time is not None and by_group is not None:
        raise SettingsError("Cannot split rows by time and by group at once. Choose one of them.")
    if seed is not None and by_time is not None:
        raise SettingsError("Cannot use a seed to split rows by time: that split is not random. Omit it.")
    if seed is not None and not 0 <= seed < 2**31:
        raise SettingsError(f"Cannot use the seed {seed}: it is not from 0 to {2**31 - 1:,}. Use another.")


def _names(data: str) -> tuple[str, str]:
    stem = data.rstrip("/").removesuffix(ZARR)
    return f"{stem}-train{ZARR}", f"{stem}-test{ZARR}"


def _places(data: str, names: tuple[str, str]) -> tuple[Place, Place]:
    """Raises SettingsError if the three are not apart."""
    where = [absolute(name).rstrip("/") for name in (data, *names)]
    for folder in where:
        if sum(other == folder or other.startswith(f"{folder}/") for other in where) > 1:
            raise SettingsError(
                f"Cannot split {data} into {names[0]} and {names[1]}: one of them is the same as"
                " another or lies in it. Choose other paths."
            )
    for name in names:
        check_writable(name, "data")
        if (path := path_on_disk(name)) is not None:
            check_new_name(path, PARTIAL)
    return open_place(names[0]), open_place(names[1])


def _is_there(place: Place, part: str, origin: Mapping[str, Any]) -> bool:
    """Whether a place holds this part. Raises PlanConflictError if it holds anything else."""
    if is_free(place.folder) if place.folder is not None else place.lists and not place.is_there():
        return False
    try:
        written = open_group(place.address).attrs.get(SPLIT)
    except DataError:
        if not place.lists:
            return False
        written = None
    if written != {**origin, "part": part}:
        raise PlanConflictError(
            f"Cannot write rows to {place.address}: it holds something else. Remove it or choose"
            " another path with --into."
        )
    return True


def _write(
    group: zarr.Group,
    source: SplitSource,
    rule: Rule,
    places: Mapping[str, Place],
    missing: list[str],
    origin: Mapping[str, Any],
    n_test: int,
) -> int:
    """Write the missing parts, each completely or not at all. Returns about how many rows are in both."""
    met = {part: Repeats() for part in PARTS}
    n_rows = source.X.shape[0]
    sizes = {"train": n_rows - n_test, "test": n_test}
    with ExitStack() as stack, show_step("splitting", n_rows, "rows") as advance:
        writers = {}
        for part in missing:
            attributes = {**dict(group.attrs), SPLIT: {**origin, "part": part}}
            new = stack.enter_context(new_data_set(places[part], attributes))
            writers[part] = [
                (array, _Writer(new, name, array, sizes[part])) for name, array in source.arrays.items()
            ]
        sides, waiting = rule.sides(), np.empty(0, bool)
        for start, stop in source.spans():
            while len(waiting) < stop - start:
                waiting = np.concatenate([waiting, next(sides)])
            is_test, waiting = waiting[: stop - start], waiting[stop - start :]
            for part, its in writers.items():
                chosen = np.flatnonzero(is_test == (part == "test"))
                for array, writer in its:
                    rows = zarr_arrays.read_rows(array, start, stop)[chosen]
                    writer.add(rows)
                    if zarr_arrays.address_of(array) == zarr_arrays.address_of(source.X):
                        met[part].add(hashes_of_rows(rows))
            advance(stop - start)
        for its in writers.values():
            for _, writer in its:
                writer.close()
        shared = met["test"].rows_also_in(met["train"])
        if shared >= SHARED * sizes["test"]:
            rows_are = counted(shared, "test row is", "test rows are")
            add_remarks(
                remark("shared-rows", f"{rows_are} equal to training rows", share=shared / sizes["test"])
            )
    return shared


def _attributes(like: zarr.Array[Any]) -> dict[str, Any]:
    """The attributes of an array, with the marker of missing values that is a fill value in Zarr format 2."""
    attributes = zarr_arrays.value_attributes(like)
    marker = attributes.get(zarr_arrays.MARKER)
    return attributes | ({zarr_arrays.MARKER: portable(marker)} if isinstance(marker, np.generic) else {})


class _Writer:
    """One array of a part, written chunk by chunk."""

    def __init__(self, group: zarr.Group, name: str, like: zarr.Array[Any], n_rows: int) -> None:
        is_text = np.dtype(like.dtype).kind in "OTU"
        self.chunk_rows = min(zarr_arrays.chunk_rows(like), n_rows)
        dimensions = getattr(like.metadata, "dimension_names", None)
        self.array = zarr_arrays.create_array(
            group,
            name,
            (n_rows, *like.shape[1:]),
            str if is_text else like.dtype,
            self.chunk_rows,
            fill_value="" if is_text else like.fill_value,
            attributes=_attributes(like),
            dimensions=dimensions,
        )
        self.held: list[NDArray[Any]] = []
        self.n_held = self.done = 0

    def add(self, rows: NDArray[Any]) -> None:
        self.held.append(rows)
        self.n_held += len(rows)
        if self.n_held >= self.chunk_rows:
            whole = self.n_held // self.chunk_rows * self.chunk_rows
            joined = np.concatenate(self.held)
            self._put(joined[:whole])
            self.held, self.n_held = [joined[whole:]], len(joined) - whole

    def close(self) -> None:
        if self.n_held:
            self._put(np.concatenate(self.held))

    def _put(self, rows: NDArray[Any]) -> None:
        self.array[self.done : self.done + len(rows)] = rows
        self.done += len(rows)
