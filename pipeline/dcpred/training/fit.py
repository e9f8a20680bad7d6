"""Train a model and publish it: at its path, or next to it where limits are exceeded."""

import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dcpred.execution.block_plan import MIB, BlockPlan, plan_routing
from dcpred.execution.events import record_event
from dcpred.execution.lease import check_unlocked
from dcpred.execution.progress import show, show_at_work, show_dashboard, show_detail, show_job
from dcpred.execution.workers import Pool, check_driver_memory
from dcpred.public.remarks import add_remarks
from dcpred.training.reports import TrainReport
from dcpred.training.scratch import (
    Identity,
    check_scratch,
    claimed,
    drop_import,
    drop_leftovers,
    drop_scratch,
    search_folder,
)
from dcpred.training.steps import Known, Training, driver_bytes, leaf_bytes
from dcpred.version import __version__
from dcpred_tasks.artifacts.data_schema import schema_of_array
from dcpred_tasks.artifacts.model_artifact import (
    MODEL_FILE,
    STORE_GROUP,
    Artifact,
    check_free_for_model,
    open_artifact,
)
from dcpred_tasks.engine.compiler import forget_failures
from dcpred_tasks.errors import DataError, PlanConflictError, RefusedError, RemarkError, SettingsError
from dcpred_tasks.model.class_codes import class_labels
from dcpred_tasks.model.compact_model import check_matrix
from dcpred_tasks.model.feature_names import ATTRIBUTE
from dcpred_tasks.remarks import remarks_of
from dcpred_tasks.result_fields import measured
from dcpred_tasks.schema.schema import ATTRIBUTE as SCHEMA_ATTRIBUTE
from dcpred_tasks.scratch import TrainJob, with_folds
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.addresses import absolute, check_writable, path_on_disk
from dcpred_tasks.storage.atomic_files import (
    PARTIAL,
    check_new_name,
    decoded,
    encoded,
    is_free,
    new_directory,
    resource_errors,
)
from dcpred_tasks.storage.digests import digest, digest_json
from dcpred_tasks.storage.once import MODEL, forget
from dcpred_tasks.storage.place import open_place, read_document
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.storage.probes import nonce_written
from dcpred_tasks.storage.store_requests import Retrying
from dcpred_tasks.storage.stored_chunks import filled
from dcpred_tasks.training import refinement
from dcpred_tasks.training.categories import (
    NOT_CODED,
    CodedFeatures,
    features_named,
    numbered,
    target_coded,
    with_codes,
)
from dcpred_tasks.training.folds import Folds
from dcpred_tasks.training.losses import DISTANCE
from dcpred_tasks.training.settings import Settings, settings_dict

# Versions that were part of the hash of a training. A new version does not make another training.
HASHED_VERSIONS = ("0.1.0",)


@dataclass(frozen=True)
class TrainingRequest:
    """A training on Zarr arrays at addresses that every worker sees."""

    x: str
    y: str
    model: Path
    """A new directory."""
    settings: Settings
    """All settings; those that a search chooses are ignored by it."""
    pool: Pool
    """Gives the workers, only when the input has been checked and there is work."""
    weight: str | None = None
    folds: Folds | None = None
    """How rows are held out by a search and for calibration; None: by their numbers."""
    source: str = ""
    """The digest of the table that was imported for this (`source_of`)."""
    table: str = ""
    """The same of the rows alone, whatever is asked for."""

    @property
    def arrays(self) -> tuple[str, str, str | None]:
        """The addresses of X, y and the weights."""
        return absolute(self.x), absolute(self.y), absolute(self.weight) if self.weight else None


def fit_model(request: TrainingRequest, known: Known | None = None) -> TrainReport:
    """Train with all settings given, and write the model.

    known  results of a search on these data; ignored if they have changed since

    Raises DataError (and other RefusedErrors) for input that cannot be trained on, before `model` is written.
    """
    x, y, weight = request.arrays
    model, settings, folds = request.model, request.settings, request.folds
    forget_failures()
    plan, names = check_training_data(x, y, weight, settings)
    n_features = open_array(x).shape[1]
    settings, coded = numbered_for(settings, x)
    if settings.refine:
        refinement.check()
    contents = fingerprints(x, y, weight)
    if known is not None and known.contents != contents:
        known = None
    identity = training_identity(contents, settings, plan, coded, folds)
    identity = identity._replace(source=request.source, by_time="" if folds is None else folds.time)
    check_name(model)
    scratch = model.with_name(f"{model.name}.scratch")
    done = _finished(model, identity)
    if done is not None:
        drop_leftovers(scratch, identity.runs)
        _record_trained(done)
        return done
    check_new_name(model, PARTIAL)
    check_scratch(scratch, identity, model)
    for place in (scratch, search_folder(model)):  # A search ends in its own training.
        check_unlocked(open_place(place))
    check_driver(plan, x, settings)
    largest_leaf_bytes = leaf_bytes(plan.n_rows, n_features, settings)
    job = TrainJob(x, y, weight, str(scratch.absolute()), settings, plan.n_rows, plan.block_rows, coded)
    with show_job("training"), request.pool() as workers:
        workers.check_memory(
            plan.task_bytes, "Write the input with smaller chunks, or start fewer or larger workers"
        )
        workers.check_memory(largest_leaf_bytes, "Set local_rows or max_leaf_rows lower")
        with claimed(scratch, identity, model):
            show(f"reading {plan}{workers.where}")
            if settings.task == "classification" and (lack := stored_chunks.check_labels(y, open_array(y))):
                add_remarks(lack)
            show_dashboard(workers)
            show_detail(
                f"the largest leaf that settings allow takes up to {largest_leaf_bytes / MIB:,.0f} MiB"
            )
            show_at_work(workers, scratch)
            try:
                workers.check_sees(str(scratch.absolute()))
                with features_named(named_features(x)):
                    report = Training(with_folds(job, folds), plan, workers, known).run(
                        identity, model, names
                    )
            except (RefusedError, RemarkError):
                # A second call resumes from the partition, and from nothing before.
                if not job.division_file.exists():
                    drop_scratch(scratch)
                raise
            drop_scratch(scratch)
    _record_trained(report)
    return report


def _record_trained(report: TrainReport) -> None:
    record_event(
        "trained",
        model=report.model,
        **measured(TrainReport, vars(report)),
        features=report.n_features,
        hash=report.hash,
        already_trained=report.already_trained,
    )


def check_name(model: Path) -> None:
    """Raise PlanConflictError for a place that is not a new directory, for example `.` or `/`."""
    if not model.name:
        raise PlanConflictError(
            f"Cannot write a model to {model}: it has no name of its own. Name a new directory."
        )


def check_training_data(
    x: str, y: str, weight: str | None, settings: Settings
) -> tuple[BlockPlan, tuple[str, ...] | None]:
    """The blocks, and the label names. Raises DataError for what shapes, dtypes and chunks show."""
    X, target = open_array(x), open_array(y)
    check_matrix(X.shape, np.dtype(X.dtype))
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise DataError(f"Cannot train on X at {x}: its shape is {X.shape}. Pass rows and features.")
    columns = {"y": (y, target, "biufUSOT")}
    if weight:
        columns["the sample weight"] = weight, open_array(weight), "biuf"
    for name, (_, array, kinds) in columns.items():
        if np.dtype(array.dtype).kind not in kinds:
            raise DataError(
                f"Cannot use {name}: its dtype is {array.dtype}. Convert it to real numbers first."
            )
        if array.shape != (X.shape[0],):
            raise DataError(
                f"Cannot use {name}: its shape is {array.shape}, but X needs one value for each row, shape"
                f" ({X.shape[0]},). Correct the one that is wrong."
            )
    if settings.task == "regression" and np.dtype(target.dtype).kind not in "biuf":
        raise DataError(f"Cannot train a regression: y has dtype {target.dtype}. Use --task classification.")
    for address, array in ((x, X), *((a, column) for a, column, _ in columns.values())):
        if array is target and settings.task == "classification":
            stored_chunks.check_labels(address, array)
        else:
            stored_chunks.check_complete(address, array)
    plan = plan_routing(X.shape[0], X.shape[1], np.dtype(X.dtype).itemsize, zarr_arrays.chunk_rows(X))
    labels = class_labels(target.attrs, f"y at {y}")
    if settings.task == "regression" and labels is not None:
        raise DataError(
            "Cannot train a regression: y holds class labels (its attribute `labels` names them). Train"
            " classes."
        )
    return plan, labels


def check_driver(plan: BlockPlan, x: str, settings: Settings) -> None:
    """Raise SchedulerError if this process may use less memory than its part of a training needs."""
    X = open_array(x)
    needed = driver_bytes(plan, X.shape[1], np.dtype(X.dtype).itemsize, settings)
    check_driver_memory(needed, "Set sample_rows or landmarks lower, or max_leaf_rows higher")


def numbered_for(settings: Settings, x: str) -> tuple[Settings, CodedFeatures]:
    """Settings with features of X by number, including the categorical ones of its data set; and the
    target-encoded features. Raises SettingsError for a feature that X does not have, DataError if the schema
    of the data set is damaged.
    """
    n_features, schema = open_array(x).shape[1], schema_of_array(x)
    settings = numbered(settings, named_features(x), n_features)
    if schema is None:
        return settings, NOT_CODED
    if len(schema.features) != n_features:
        raise DataError(
            f"Cannot train on X at {x}: it has {n_features:,} features, but its schema has"
            f" {len(schema.features):,}. Import the data again, or remove the attribute {SCHEMA_ATTRIBUTE}."
        )
    settings = with_codes(settings, schema.coded)
    return settings, target_coded(schema, settings)


def named_features(x: str) -> list[str] | None:
    """The names of the features of X, or None. Raises DataError unless each has one unique name."""
    X = open_array(x)
    names = X.attrs.get(ATTRIBUTE)
    if not isinstance(names, list):
        return None
    texts = [str(name) for name in names]
    if len(texts) != X.shape[1] or len(set(texts)) < len(texts):
        twice = [name for name in texts if texts.count(name) > 1]
        wrong = f"names {twice[0]!r} twice" if twice else f"has {len(texts):,} names"
        raise DataError(
            f"Cannot train on X at {x}: it has {X.shape[1]:,} features, but its attribute {ATTRIBUTE}"
            f" {wrong}. Name each feature once, or remove the attribute."
        )
    return texts


def fingerprints(x: str, y: str, weight: str | None) -> dict[str, str]:
    """Fingerprints of the current data of a training."""
    arrays = {name: address for name, address in (("x", x), ("y", y), ("weight", weight)) if address}
    return {name: stored_chunks.fingerprint(open_array(address)) for name, address in arrays.items()}


def training_hashes(
    contents: Mapping[str, str],
    settings: Settings,
    plan: BlockPlan,
    coded: CodedFeatures = NOT_CODED,
    folds: Folds | None = None,
) -> tuple[str, ...]:
    """The identity of a training: the fingerprints of its data, its settings, its blocks, target-encoded
    features, and how rows are held out if that is not by their numbers. The first is the current hash, the
    others are those of earlier versions for the same training.
    """
    given: dict[str, Any] = {} if folds is None else {"folds": folds.identity()}
    given |= {"target_coded": [list(coded.feature), list(coded.size)]} if coded else {}
    # Earlier versions refined all but these by NumPy, to other last bits.
    by_numpy = settings.kernel != "rbf" or settings.loss == DISTANCE
    given |= {"refinement": 2} if settings.refine and by_numpy else {}
    identity = {
        **contents,
        **given,
        **filled(),
        "block_rows": plan.block_rows,
        "settings": settings_dict(settings),
    }
    return digest_json(identity), *(digest_json(identity | {"version": v}) for v in HASHED_VERSIONS)


def training_identity(
    contents: Mapping[str, str],
    settings: Settings,
    plan: BlockPlan,
    coded: CodedFeatures = NOT_CODED,
    folds: Folds | None = None,
) -> Identity:
    """The hashes of a training, and the digests of its data and settings."""
    run, *earlier = training_hashes(contents, settings, plan, coded, folds)
    return Identity(
        run,
        earlier,
        digest_json(contents),
        digest_json({"settings": settings_dict(settings), "folds": folds and folds.identity()}),
    )


def _finished(model: Path, identity: Identity) -> TrainReport | None:
    if is_free(model):
        return None
    if not (model / "model.json").exists():
        raise PlanConflictError(
            f"Cannot write a model to {model}: something else is there. Choose another path."
        )
    trained = open_artifact(model)
    provenance = trained.provenance
    if provenance.get("run") not in identity.runs:
        if "run" in provenance and identity.is_same_work(provenance) is not False:
            by = provenance.get("versions", {}).get("dcpred", "another version")
            raise PlanConflictError(
                f"Cannot write a model to {model}: a model that dcpred {by} trained is there, and version"
                f" {__version__} cannot continue it. Remove the model or choose another path."
            )
        raise PlanConflictError(
            f"Cannot write a model to {model}: a model of other data or settings is there. Data count as"
            " other when their files have other times or sizes. Remove the model or choose another path."
        )
    return _report_of(trained, str(model))


def finished_on_table(model: str | Path, source: str, import_of: Path | None) -> TrainReport | None:
    """The report of a model that the same call trained on the same table; None where that is not known.

    source     the digest of the call (`source_of`)
    import_of  the folder of its import
    """
    if open_place(model).read(MODEL_FILE) is None:
        return None
    trained = open_artifact(model)
    provenance = trained.provenance
    if provenance.get("source") != source:
        return None
    drop_import(import_of)
    if (path := path_on_disk(model)) is not None:
        drop_leftovers(path.with_name(f"{path.name}.scratch"), [str(provenance.get("run"))])
    report = _report_of(trained, str(model))
    _record_trained(report)
    return report


def _report_of(trained: Artifact, model: str) -> TrainReport:
    """The report of a finished training."""
    known = {"model": model, "hash": trained.hash, "already_trained": True}
    stored = trained.provenance["report"]
    remarks = remarks_of(stored.get("remarks", ()))
    add_remarks(*remarks, fails=False)
    return TrainReport(**{**stored, **known, "remarks": tuple(remarks)})


@contextmanager
def trained_beside(model: str | Path, scratch: Path | None) -> Iterator[Path]:
    """The path to train a model for `model` at; it is copied there when the `with` statement ends without
    an error.

    scratch  a directory that driver and workers share; None: the model is trained at `model`

    Raises SettingsError if a store needs a scratch directory, PlanConflictError if another model lies at
    `model`.
    """
    check_writable(model, "a model's files")
    if scratch is None:
        if path_on_disk(model) is None:
            raise SettingsError(
                f"Cannot train {absolute(model)}: the temporary files of training need"
                " a directory that driver and workers share. Name one with --scratch DIR."
            )
        yield Path(model)
        return
    target = open_place(model)
    name = absolute(model).rstrip("/").rpartition("/")[2] or "model"
    here = scratch.absolute() / f"{name}-{digest(target.address.encode())[:8]}"
    if not here.exists() and target.read(MODEL_FILE) is not None:
        raise PlanConflictError(
            f"Cannot write a model to {target.address}: one is there that was not trained in"
            f" {scratch}. Remove it or choose another path."
        )
    if target.folder is not None:
        check_new_name(target.folder, PARTIAL)
    elif target.read(MODEL_FILE) is None:
        check_free_for_model(target)
        with nonce_written(target.address):
            """Report a missing right now, and not after training."""
    with resource_errors(scratch):
        scratch.mkdir(parents=True, exist_ok=True)
    yield here
    publish(here, target)


def publish(model: Path, target: Place) -> None:
    """Copy a model byte for byte, all of it or nothing. Raises DataError if another one exists."""
    trained = open_artifact(model)
    forget(MODEL)
    if (published := read_document(target, MODEL_FILE)) is not None:
        if published.get("hash") != trained.hash:
            raise DataError(
                f"Cannot write a model to {target.address}: another one is there. Remove it or choose"
                " another path."
            )
        return
    if target.folder is not None:
        with new_directory(target.folder) as partial:
            shutil.copytree(model, partial, dirs_exist_ok=True)
        return
    check_free_for_model(target)
    group, retrying = f"arrays-{secrets.token_hex(6)}.zarr", Retrying()
    assert STORE_GROUP.fullmatch(group)
    source = Path(trained.group)
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        name, data = f"{group}/{file.relative_to(source)}", file.read_bytes()
        retrying(lambda name=name, data=data: target.write(name, data))  # type: ignore[misc]
    document = decoded((model / MODEL_FILE).read_bytes(), model)
    if not target.create(MODEL_FILE, encoded({**document, "arrays": group})):
        for name in target.listing(group):
            target.remove(name)
        publish(model, target)  # One exists now: the same, or an error.
