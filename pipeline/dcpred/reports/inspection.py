"""Describe what lies at a path: a data set, a model, or the output of a scoring run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from dcpred.datasets.schema_text import schema_texts
from dcpred.execution.progress import counted
from dcpred.public.functions import typed
from dcpred.public.results import PublicResult
from dcpred.runs.latest import LINK, MANIFEST, PLAN, SETTINGS, run_meant
from dcpred.runs.ledger import open_ledger
from dcpred.runs.manifest import Manifest
from dcpred.serving.cost import CostParts, cost_parts
from dcpred.training.column_report import MapFacts, describe_map, map_in_words
from dcpred.training.reports import TrainReport, term_texts
from dcpred_tasks.artifacts.commit_records import ScoreRun, list_records
from dcpred_tasks.artifacts.model_artifact import MODEL_FILE, open_artifact
from dcpred_tasks.artifacts.model_layout import KEY
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.label_rule import threshold_of
from dcpred_tasks.model.target_encoding import FEWEST_POSITIONS
from dcpred_tasks.result_fields import ABSENT, Lines, Unit, document_of, result_class, result_field
from dcpred_tasks.schema.schema import ATTRIBUTE, SchemaDocument, read_schema
from dcpred_tasks.scoring.drift_fields import drift_remarks
from dcpred_tasks.scoring.scorer import described
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_group, open_node
from dcpred_tasks.storage.addresses import below, read_address
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.storage.object_arrays import lists_nothing
from dcpred_tasks.storage.place import open_place, read_own_document
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.tables.sources import is_importable, refuse_table
from dcpred_tasks.training.settings import Settings


@result_class
class CodedFeature:
    feature: int = result_field("Number of the feature, from 0.", when="categories")
    name: str | None = result_field("Its name.", when="categories")
    codes: list[int] = result_field("The codes that have a column.", when="categories")


@result_class
class TargetEncoded:
    feature: int = result_field("Number of the feature, from 0.", when="target encoding")
    name: str | None = result_field("Its name.", when="target encoding")
    categories: int = result_field("Number of its categories.", when="target encoding")
    means: int = result_field("Number of means of each.", when="target encoding")


@result_class
class GapFeature:
    feature: int = result_field("Number of the feature, from 0.")
    name: str | None = result_field("Its name.")
    share: float = result_field("Fraction of training rows that lack it.")
    value: float = result_field("The value that replaces a missing one.")
    indicator: bool = result_field("Whether it has a missing indicator.")


@result_class
class ModelGaps:
    features: list[dict[str, Any]] = result_field(
        "The features that have some.", of=GapFeature, when="missing values"
    )


@result_class
class KernelFacts:
    name: str = result_field("Its name.")
    gamma: float = result_field("Its inverse scale γ.")
    degree: int = result_field("Its degree, of polynomials.")
    coef0: float = result_field("Its constant, of polynomials.")


@result_class
class RowsPerLeaf:
    total: int = result_field("All of them.")
    min: int = result_field("Those of the smallest leaf.")
    median: float = result_field("Their median.")
    max: int = result_field("Those of the largest leaf.")


@result_class
class LandmarksPerLeaf:
    min: int = result_field("The fewest.")
    max: int = result_field("The most.")


@result_class
class TrainedSample:
    share: float = result_field("Fraction of training rows that was hashed.")
    hashes: str = result_field("The hashes: base64 of little-endian uint64.")
    rows: int = result_field("Number of rows with these hashes.")
    single: int = result_field("Number of those that are equal to no other row.")


@result_class
class Provenance:
    run: str = result_field("Hash of the training.")
    data_digest: str = result_field("Digest of the training data.")
    settings_digest: str = result_field("Digest of the settings.")
    versions: dict[str, Any] = result_field("Versions by package.")
    report: dict[str, Any] = result_field("The result of the training.", of=TrainReport)
    arithmetic: str = result_field("numpy.", when="refinement by NumPy, in models of earlier versions")
    trained_rows: TrainedSample = result_field("A sample of training rows, as hashes.")
    feature_names: list[str] = result_field("Names of the features.")


ORIGIN = ("run", "data_digest", "settings_digest", "arithmetic")
NAMED = 10  # maximum number of features with missing values to name


def _coded_text(r: Mapping[str, Any]) -> dict[str, str] | Any:
    """The number of categories of each one-hot encoded feature."""
    return {
        _named(line): counted(len(line["codes"]), "category has a column", "categories have a column")
        for line in r["coded_features"]
    } or ABSENT


def _encoded_text(r: Mapping[str, Any]) -> dict[str, str] | Any:
    return {
        _named(line): f"target encoding of {counted(line['categories'], 'category', 'categories')}"
        + (f" for {line['means']} classes" if line["means"] > 1 else "")
        for line in r.get("target_encoded", ())
    } or ABSENT


def _gaps_text(r: Mapping[str, Any]) -> Any:
    """The features with the most missing values, and what replaces theirs."""
    if r["gaps"] is None:
        return None
    features = r["gaps"]["features"]
    texts: dict[str, Any] = {
        _named(line): f"in {100 * line['share']:.3g} % of sampled rows, as {line['value']:.6g}"
        + (", with an indicator" if line["indicator"] else "")
        for line in sorted(features, key=lambda line: -line["share"])[:NAMED]
    }
    more = {"further features": len(features) - NAMED} if len(features) > NAMED else {}
    return texts | more or "known, and in no sampled row"


def _named(line: Mapping[str, Any]) -> str:
    return str(line["feature"] if line["name"] is None else line["name"])


def _terms_text(r: Mapping[str, Any]) -> dict[str, str] | Any:
    return term_texts(r) or ABSENT


def _provenance_text(r: Mapping[str, Any]) -> dict[str, Any]:
    """What a person looks for. The document has the names of features, and the result of the training."""
    provenance = r["provenance"]
    texts = {name: provenance[name] for name in ORIGIN if name in provenance}
    if versions := provenance.get("versions"):
        texts["versions"] = ", ".join(f"{name} {version}" for name, version in versions.items())
    if report := provenance.get("report"):
        texts["seconds"] = f"{sum(report['seconds'].values()):.1f}"
    return texts


def _cost_text(r: Mapping[str, Any]) -> Any:
    return r["predicted_cost"] or "measured by dcpred evaluate"


def _schema_lines(r: Mapping[str, Any]) -> Any:
    return Lines(schema_texts(r["schema"])) or ABSENT


def _size_text(r: Mapping[str, Any]) -> Any:
    """The size, which is None where a server does not list objects."""
    return "not known" if r["bytes_on_disk"] is None else r["bytes_on_disk"]


def _arrays_text(r: Mapping[str, Any]) -> dict[str, Any]:
    unlisted = {"missing_chunks": "not known"}
    return {n: a | (unlisted if a["missing_chunks"] is None else {}) for n, a in r["arrays"].items()}


def _drift_lines(r: Mapping[str, Any]) -> Lines:
    remarks = drift_remarks((r["manifest"] or {}).get("drift"))
    return Lines([*((each.code, each.what) for each in remarks), ("kind", r["kind"])])


@result_class
class ModelFacts(PublicResult):
    """What a model holds."""

    kind: str = result_field("model.")
    path: str = result_field("Path of the model.")
    hash: str = result_field("Hash of the model.")
    task: str = result_field("classification or regression.")
    classes: list[Any] = result_field("The classes, in the order of their numbers.")
    threshold: float = result_field("Minimum probability for the label of the second.", when="two classes")
    n_features: int = result_field("Number of features.", unit=Unit.COUNT, headline="features")
    n_columns: int = result_field("Number of columns that kernels read, after encoding.")
    coded_features: list[dict[str, Any]] = result_field(
        "The one-hot encoded features.", of=CodedFeature, text=_coded_text
    )
    target_encoded: list[dict[str, Any]] = result_field(
        "The target-encoded features.", of=TargetEncoded, when="target encoding", text=_encoded_text
    )
    gaps: dict[str, Any] | None = result_field(
        "Missing values; None if the model refuses them.", of=ModelGaps, text=_gaps_text
    )
    feature_map: dict[str, Any] | None = result_field(
        "The feature map; None without one.", of=MapFacts, text=lambda r: map_in_words(r["feature_map"])
    )
    schema: dict[str, Any] | None = result_field(
        "The columns of the training table; None for a matrix.", of=SchemaDocument, text=_schema_lines
    )
    n_outputs: int = result_field("Number of decision values of a row.")
    kernel: dict[str, Any] = result_field("The kernel.", of=KernelFacts)
    n_leaves: int = result_field("Number of leaves.", unit=Unit.COUNT, headline="leaves")
    n_constant_leaves: int = result_field("Number of leaves without landmarks.")
    tree_depth: int = result_field("Depth of the tree.")
    rows_per_leaf: dict[str, Any] = result_field("Training rows of leaves.", of=RowsPerLeaf)
    n_landmarks: int = result_field(
        "Number of landmarks of all leaves together.", unit=Unit.COUNT, headline="landmarks"
    )
    landmarks_per_leaf: dict[str, int] = result_field("Landmarks of leaves.", of=LandmarksPerLeaf)
    n_products: int = result_field("Number of pairwise products.")
    n_triangle: int = result_field("Number of triangle points.")
    terms: dict[str, dict[str, int]] = result_field(
        "Terms beside the leaves: what each holds, by its name.",
        when="trees",
        text=_terms_text,
    )
    support_vectors: int | None = result_field("Number of stored support vectors; None without them.")
    predicted_cost: dict[str, float] | None = result_field(
        "Predicted cost of a row; None for baselines.", of=CostParts, text=_cost_text
    )
    engine: str = result_field("The scoring engine, and its level of instructions.")
    compact_bytes: int = result_field(
        "Size of the model in memory, in bytes.", unit=Unit.BYTES, headline="size"
    )
    bytes_on_disk: int | None = result_field("Size of the model on disk, in bytes.", text=_size_text)
    settings: dict[str, Any] = result_field("Settings by name.")
    shrunk: list[str] = result_field("Sentences on settings that the data limited.")
    provenance: dict[str, Any] = result_field(
        "Where the model comes from.", of=Provenance, text=_provenance_text
    )


@result_class
class DataFacts(PublicResult):
    """What a data set holds."""

    kind: str = result_field("data.")
    path: str = result_field("Path of the data set.")
    arrays: dict[str, Any] = result_field(
        "The arrays by name: shape, dtype, chunks, shards, missing_chunks and attributes.", text=_arrays_text
    )
    schema: dict[str, Any] | None = result_field(
        "The columns of the table; None for a matrix.", of=SchemaDocument, text=_schema_lines
    )
    bytes_on_disk: int | None = result_field("Size on disk, in bytes.", text=_size_text)
    hash: str = result_field("Digest of the shapes and types of all arrays.")


@result_class
class TrainingFacts(PublicResult):
    """What an unfinished training holds."""

    kind: str = result_field("training.")
    path: str = result_field("Path of the training.")
    run: str | None = result_field("Hash of the training; None if it is unknown.")
    fitted_leaves: int = result_field("Number of fitted leaves.")


def _run_text(document: dict[str, Any] | None) -> dict[str, Any] | None:
    """A plan or a manifest whose rows lie at the path of their table."""
    return document and document | {"x": str(read_address(document["x"]))}


@result_class
class OutputFacts(PublicResult):
    """What an output holds."""

    kind: str = result_field("scores.", text=_drift_lines)
    path: str = result_field("Path of the output.")
    finished: bool = result_field("Whether there is a manifest.")
    blocks_done: int = result_field("Number of blocks with a commit record.")
    n_blocks: int = result_field("Number of blocks.")
    arrays: dict[str, Any] = result_field(
        "The arrays by name: shape, dtype, chunks, shards, missing_chunks and attributes.", text=_arrays_text
    )
    bytes_on_disk: int | None = result_field("Size on disk, in bytes.", text=_size_text)
    plan: dict[str, Any] | None = result_field(
        "The plan of the run.", of=ScoreRun, text=lambda r: _run_text(r["plan"])
    )
    manifest: dict[str, Any] | None = result_field(
        "The manifest; None before the end of the run.", of=Manifest, text=lambda r: _run_text(r["manifest"])
    )


@typed
def inspect(path: str | Path) -> ModelFacts | DataFacts | OutputFacts | TrainingFacts:
    """Describe what a data set, a model or an output holds.

    Parameters
    ----------
    path : str or Path
        Path or address of it.

    Returns
    -------
    ModelFacts, DataFacts, OutputFacts or TrainingFacts
        The description.

    Raises
    ------
    DataError
        If nothing is there, or nothing that dcpred knows.
    DcpredError
        If it cannot be read.
    """
    place = open_place(run_meant(path))
    if place.read(MODEL_FILE) is not None:
        return _model(place)
    if place.read(PLAN) is not None:
        return _scores(place)
    if place.read("job.json") is not None:
        leaves = len([name for name in place.names("leaves") if name.endswith(".npz")])
        run = (read_own_document(place, "job.json") or {}).get("run")
        return TrainingFacts("training", place.address, run, leaves)
    if place.lists and not place.is_there():
        raise DataError(f"Cannot inspect {path}: it does not exist. Check the path.")
    return _data(place, path)


def _model(place: Place) -> ModelFacts:
    artifact = open_artifact(place.address)
    model = artifact.model(support=artifact.has_support)  # support vectors are read to check every byte
    rows, threshold = model.leaf_rows, threshold_of(model)
    landmarks, names = np.diff(model.landmark_at), model.scaling.names(artifact.feature_names)
    body = artifact.body
    n_triangle = (t // max(m, 1) for t, m in zip(np.diff(model.triangle_at), landmarks, strict=True))
    return ModelFacts(
        kind="model",
        path=place.address,
        hash=artifact.hash,
        task=model.task,
        classes=list(model.classes),
        threshold=ABSENT if threshold is None else threshold,
        n_features=model.n_features,
        n_columns=model.n_columns,
        coded_features=document_of(_coded(model, artifact.feature_names)),
        target_encoded=document_of(_target_encoded(model, artifact.feature_names)) or ABSENT,
        gaps=document_of(_gaps(model, names)),
        feature_map=describe_map(model.scaling),
        schema=artifact.schema.document() if artifact.schema else None,
        n_outputs=model.n_outputs,
        kernel=body["kernel"],
        n_leaves=model.n_leaves,
        n_constant_leaves=_constant(model, landmarks),
        tree_depth=model.tree.depth,
        rows_per_leaf=document_of(
            RowsPerLeaf(int(rows.sum()), int(rows.min()), float(np.median(rows)), int(rows.max()))
        ),
        n_landmarks=len(model.landmarks),
        landmarks_per_leaf=document_of(LandmarksPerLeaf(int(landmarks.min()), int(landmarks.max()))),
        n_products=len(model.pairs),
        n_triangle=int(sum(n_triangle)),
        terms={term.name: term.facts for term in model.terms} or ABSENT,
        support_vectors=body["arrays"]["support_vectors"]["shape"][0] if artifact.has_support else None,
        predicted_cost=cost_parts(model),
        engine=described(model),
        compact_bytes=model.nbytes,
        bytes_on_disk=_size(place),
        settings={
            "categorical": Settings.categorical,
            "missing": Settings.missing,
            "feature_map": Settings.feature_map,
            **body["settings"],
        },
        shrunk=_shrunk(body["settings"], landmarks, model.n_leaves),
        provenance={k: v for k, v in artifact.provenance.items() if k != KEY},
    )


def _coded(model: Model, names: tuple[str, ...] | None) -> list[CodedFeature]:
    """The one-hot encoded features, and the categories of each that have a column."""
    coding = model.scaling.coding
    if coding is None:
        return []
    return [CodedFeature(f, names[f] if names else None, coding.codes(f)) for f in coding.features]


def _target_encoded(model: Model, names: tuple[str, ...] | None) -> list[TargetEncoded]:
    """The target-encoded features, and how many categories and means each has."""
    targets = model.scaling.targets
    if targets is None:
        return []
    sizes = np.diff(targets.at) - FEWEST_POSITIONS
    return [
        TargetEncoded(int(f), names[f] if names else None, int(n), targets.n_means)
        for f, n in zip(targets.feature, sizes, strict=True)
    ]


def _constant(model: Model, landmarks: Any) -> int:
    if model.leaf_models is None:
        return int((landmarks == 0).sum())
    return sum(model.leaf_model(leaf) is None for leaf in range(model.n_leaves))


def _gaps(model: Model, names: Sequence[str] | None) -> ModelGaps | None:
    """Features with missing values in sampled rows, their replacements, indicators; None if NaN is bad."""
    coding = model.scaling.coding
    if coding is None or coding.gap is None:
        return None
    shares = np.zeros(model.scaling.n_encoded)
    if model.reference is not None and model.reference.gaps is not None:
        shares = model.reference.gaps
    indicated = set(coding.indicated.tolist())
    features = sorted(set(np.flatnonzero(shares).tolist()) | indicated)
    return ModelGaps(
        [
            document_of(
                GapFeature(
                    f, names[f] if names else None, float(shares[f]), float(coding.gap[f]), f in indicated
                )
            )
            for f in features
        ]
    )


def _shrunk(settings: dict[str, Any], landmarks: Any, n_leaves: int) -> list[str]:
    """Limits of the data on the requested settings."""
    remarks = []
    if settings["n_leaves"] and n_leaves < 1 << (settings["n_leaves"].bit_length() - 1):
        remarks.append(f"{n_leaves} leaves instead of {settings['n_leaves']}: more would hold too few rows")
    fewer = int(((landmarks > 0) & (landmarks < settings["landmarks"])).sum())
    if fewer:
        remarks.append(
            f"{fewer} leaves have fewer than {settings['landmarks']} landmarks: they have no more distinct"
            " rows"
        )
    return remarks


def _scores(place: Place) -> OutputFacts:
    ledger = open_ledger(place.address)
    group = ledger.run.scores if "zarr.json" in place.names("scores.zarr") else None
    return OutputFacts(
        kind="scores",
        path=place.address,
        finished=MANIFEST in place.names(""),
        blocks_done=len(list_records(ledger.run)),
        n_blocks=ledger.n_blocks,
        arrays=_arrays(open_group(group)) if group else {},
        bytes_on_disk=_size(place),
        plan=read_own_document(place, PLAN),
        manifest=ledger.whole_manifest(),
    )


def _data(place: Place, path: str | Path) -> DataFacts:
    try:
        node = open_node(place.address)
    except DataError:
        if is_importable(place.address):
            refuse_table(str(path))
        what = "Check the path."
        if place.read(SETTINGS) is not None:
            what = f"A refresh keeps its runs there, of which {below(place.address, LINK)} is the latest."
        raise DataError(
            f"Cannot inspect {place.address}: it holds no data set, model or output. {what}"
        ) from None
    arrays = {"X": _array(node)} if isinstance(node, zarr.Array) else _arrays(node)
    document = None if isinstance(node, zarr.Array) else node.attrs.get(ATTRIBUTE)
    schema = None if document is None else read_schema(document, place.address)
    return DataFacts(
        kind="data",
        path=place.address,
        arrays=arrays,
        schema=None if schema is None else schema.document(),
        bytes_on_disk=_size(place),
        hash=digest_json(arrays),
    )


def _arrays(group: zarr.Group) -> dict[str, Any]:
    return {name: _array(array) for name, array in zarr_arrays.arrays_of(group)}


def _array(array: Any) -> dict[str, Any]:
    missing = None if lists_nothing(array) else stored_chunks.count_missing(array)
    described: dict[str, Any] = {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "chunks": list(array.chunks),
        "shards": list(array.shards) if array.shards else None,
        "missing_chunks": missing,
    }
    # None for infinity and NaN, which JSON does not have.
    attributes = json.loads(json.dumps(dict(array.attrs)), parse_constant=lambda _: None)
    return described | ({"attributes": attributes} if attributes else {})


def _size(place: Place) -> int | None:
    """None if nothing can be listed."""
    if not place.lists:
        return None
    return sum(entry.size for entry in place.listing().values())
