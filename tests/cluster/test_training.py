"""Training over Zarr: the same model whoever does the work, resume, and refusals before anything is
written.
"""

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr

from dcpred.execution.pools import connect
from dcpred.execution.progress import Silent, reporting
from dcpred.execution.workers import InlineWorkers, Pool
from dcpred.training.column_report import describe_map
from dcpred.training.fit import TrainingRequest, check_training_data, fingerprints, fit_model, training_hashes
from dcpred.training.reports import TrainReport
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.errors import DataError, DcpredError, PlanConflictError, RunHeldError, SchedulerError
from dcpred_tasks.model.compact_model import Model, class_numbers, score_rows
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.task_bodies import train_model
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.settings import Settings, make_settings
from dcpred_tasks.training.survey import survey_rows
from support.data import Classes, make_blobs, make_group
from support.pools import inline

SETTINGS = make_settings(
    {"n_leaves": 8, "max_leaf_rows": 75, "landmarks": 8, "products": 16, "keep_support_vectors": True}
)


def run(data: Path, model: Path, pool=inline, settings: Settings = SETTINGS, **more) -> TrainReport:
    return fit_model(TrainingRequest(f"{data}/X", f"{data}/y", model, settings, pool, **more))


@pytest.fixture(scope="module")
def many() -> Classes:
    return make_blobs(600, n_features=6, n_classes=3, seed=1)


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> Pool:
    """This process, or worker processes."""
    workers: Pool = inline if request.param == "inline" else request.getfixturevalue("two_workers")
    return workers


def test_same_model_for_any_workers_and_chunks(tmp_path: Path, many: Classes, two_workers: Pool) -> None:
    """The hash covers every array, so that equal hashes are equal bits."""
    hashes = []
    for i, (chunk_rows, shard_rows, pool) in enumerate(
        [
            (250, None, two_workers),
            (167, None, inline),
            (125, 500, inline),
            (1_200, None, inline),
        ]
    ):
        data = make_group(
            tmp_path / f"{i}.zarr", many.X, many.y, chunk_rows=chunk_rows, shard_rows=shard_rows
        )
        hashes.append(run(data, tmp_path / f"model-{i}", pool).hash)
    assert len(set(hashes)) == 1


def test_blocks_do_not_matter(tmp_path: Path, many: Classes, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_group(tmp_path / "d.zarr", many.X, many.y, chunk_rows=100)
    whole = run(data, tmp_path / "whole").hash
    monkeypatch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)  # 64 blocks instead of one
    assert run(data, tmp_path / "cut").hash == whole


def test_same_model_as_in_memory(tmp_path: Path, many: Classes) -> None:
    data = make_group(tmp_path / "d.zarr", many.X, many.y, chunk_rows=350)
    run(data, tmp_path / "model")
    survey = survey_rows(many.X, many.y, None, 0, "classification")
    own = train_rows(many.X, many.y, np.ones(len(many.X)), np.empty(0), survey, SETTINGS, (0, 1, 2))
    stored = read_model(tmp_path / "model", support=True)
    for name in ("landmarks", "beta", "intercept", "pairs", "leaf_rows"):
        np.testing.assert_array_equal(getattr(stored, name), getattr(own, name), err_msg=name)


# -- overlap, learned scaling, γ of each leaf ----------------------------------------------------------------

NEW = make_settings(
    {
        "n_leaves": 8,
        "min_leaf_rows": 20,
        "max_leaf_rows": 225,  # leaves are divided beyond 75 rows, and halos thinned
        "landmarks": 6,
        "products": 8,
        "refine_steps": 20,
        "overlap": 3,
        "scaling": "learned",
        "gamma": "median",
        "keep_support_vectors": True,
    }
)
PLAIN = replace(NEW, scaling="standard", gamma="scale", refine=False)
QUICK = replace(PLAIN, calibrate=False)
UNCALIBRATED = replace(NEW, calibrate=False)


def in_memory(data: Classes, settings: Settings, weight: np.ndarray | None = None) -> Model:
    """As the estimators do it: rows of weight 0 are left out before anything else."""
    used = np.ones(len(data.X), bool) if weight is None else weight > 0
    X, y, w = (
        data.X[used],
        data.y[used],
        np.ones(used.sum()) if weight is None else weight[used].astype(float),
    )
    survey = survey_rows(X, y, None if weight is None else w, 0, settings.task)
    return train_rows(X, y, w, np.empty(0), survey, settings, tuple(survey.classes.tolist()))


def arrays_of(model: Model) -> dict[str, np.ndarray]:
    u = model.uncertainty
    sure = () if u is None else (u.novelty, u.calibration, u.intervals)
    parts = (model, model.tree, model.scaling, model.support, *sure)
    return {
        f"{type(p).__name__}.{k}": v
        for p in parts
        if p is not None
        for k, v in vars(p).items()
        if isinstance(v, np.ndarray)
    }


def test_a_rare_class_gives_the_same_model_as_in_memory(tmp_path: Path, many: Classes) -> None:
    """Leaves go by a prior that the driver fits."""
    rare = replace(many, y=(np.arange(len(many.X)) % 15 == 0).astype(int))
    settings = make_settings({"n_leaves": 4, "landmarks": 6, "refine_steps": 20})
    run(make_group(tmp_path / "d.zarr", rare.X, rare.y), tmp_path / "model", settings=settings)
    own = in_memory(rare, settings)
    check_same_bits(read_model(tmp_path / "model"), own)
    assert np.unique(score_rows(own, rare.X)[0]).size > 0.9 * len(rare.X)


def check_same_bits(one: Model, other: Model) -> None:
    a, b = arrays_of(one), arrays_of(other)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.parametrize(
    "settings",
    [NEW, PLAIN, pytest.param(replace(NEW, leaf_scaling=True), marks=pytest.mark.long)],
    ids=["new", "plain", "scaled by leaf"],
)
def test_overlap_gives_the_same_model_for_any_workers_and_chunks(
    tmp_path: Path,
    many: Classes,
    settings: Settings,
    two_workers: Pool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)  # blocks of one chunk
    hashes = []
    pools = [inline, two_workers] if settings is NEW else [inline]
    cuts = [(1_200, inline), (125, pools[-1]), (167, pools[0])]
    for i, (chunk_rows, pool) in enumerate(cuts if settings is NEW else cuts[:2]):
        data = make_group(tmp_path / f"{i}.zarr", many.X, many.y, chunk_rows=chunk_rows)
        hashes.append(run(data, tmp_path / f"model-{i}", pool, settings).hash)
    assert len(set(hashes)) == 1
    stored = read_model(tmp_path / "model-0", support=True)
    check_same_bits(stored, in_memory(many, settings))
    assert stored.leaf_rows.sum() == len(many.X)
    assert stored.leaf_rows.max() <= 75
    assert stored.uncertainty is not None
    if settings is NEW:
        assert len(set(stored.support.gamma.tolist())) > 1
        alone = run(
            tmp_path / "0.zarr",
            tmp_path / "alone",
            settings=replace(settings, overlap=1, max_leaf_rows=75, calibrate=False),
        )
        assert alone.n_leaves == stored.n_leaves  # the tree is the same, the leaves are not
        assert not np.array_equal(read_model(tmp_path / "alone").intercept, stored.intercept)


def test_coded_features_by_name_give_the_same_model_as_in_memory(tmp_path: Path, many: Classes) -> None:
    codes = np.random.default_rng(0).choice([3, 7, 8, 20], len(many.X))
    data = Classes(np.column_stack([many.X, codes]).astype(np.float32), many.y)
    last = data.X.shape[1] - 1
    group = make_group(tmp_path / "d.zarr", data.X, data.y, chunk_rows=350)
    zarr.open_array(group / "X").attrs["feature_names"] = [*(f"x{i}" for i in range(last)), "kind"]
    report = run(group, tmp_path / "model", settings=replace(UNCALIBRATED, categorical="kind"))
    stored, memory = (
        read_model(tmp_path / "model", support=True),
        in_memory(data, replace(UNCALIBRATED, categorical=f"{last}")),
    )
    check_same_bits(stored, memory)
    assert stored.scaling.coding is not None
    assert stored.scaling.coding.features == [last]
    np.testing.assert_array_equal(stored.scaling.coding.arrays()["source"], memory.scaling.source)
    assert report.n_features == last + 1
    assert run(
        group, tmp_path / "model", settings=replace(UNCALIBRATED, categorical=f"{last}")
    ).already_trained


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["additive", "clip", "quantile"])
def test_maps_give_the_same_model_as_in_memory(tmp_path: Path, many: Classes, name: str) -> None:
    data = Classes((many.X**5).astype(np.float32), many.y)
    group = make_group(tmp_path / "d.zarr", data.X, data.y, chunk_rows=350)
    settings = replace(UNCALIBRATED, feature_map=name)
    report = run(group, tmp_path / "model", settings=settings)
    stored = read_model(tmp_path / "model", support=True)
    check_same_bits(stored, in_memory(data, settings))
    assert stored.scaling.coding is not None
    assert stored.scaling.coding.map is not None
    assert report.feature_map == describe_map(stored.scaling)
    assert run(group, tmp_path / "model", settings=settings).already_trained


def test_gaps_give_the_same_model_as_in_memory(tmp_path: Path, many: Classes) -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([many.X, np.full(len(many.X), 3)]).astype(np.float32)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[(many.y == 1) & (rng.random(len(X)) < 0.9), 2] = np.nan
    X[350:700, 4] = np.nan  # A block without any value
    X[:, 5] = np.nan
    data = Classes(X, many.y)
    group = make_group(tmp_path / "d.zarr", data.X, data.y, chunk_rows=350)
    report = run(group, tmp_path / "model", settings=NEW)
    stored = read_model(tmp_path / "model", support=True)
    check_same_bits(stored, in_memory(data, NEW))
    assert report.gaps["known"]
    assert report.gaps["without_values"] == [5]
    assert 2 in report.gaps["indicated"]
    decision, status = score_rows(stored, X)
    assert (status == 1).all()
    assert (class_numbers(decision) == many.y).mean() > 0.8


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_overlap_with_rows_of_weight_zero(tmp_path: Path, many: Classes, task: str) -> None:
    rng = np.random.default_rng(0)
    weight = np.where(rng.random(len(many.X)) < 0.4, 0.0, rng.uniform(0.5, 2, len(many.X)))
    data = many if task == "classification" else Classes(many.X, many.X[:, 0].astype(float) ** 2)
    # no leaf is thinned: rows have other numbers where some are left out
    settings = replace(NEW, task=task, max_leaf_rows=8_000)
    group = make_group(tmp_path / "d.zarr", data.X, data.y, w=weight, chunk_rows=350)
    report = run(group, tmp_path / "model", settings=settings, weight=f"{group}/w")
    check_same_bits(read_model(tmp_path / "model", support=True), in_memory(data, settings, weight))
    assert report.thinned_leaves == 0


@pytest.mark.parametrize("n", [2, 5, 12, 60])
def test_overlap_of_tiny_data_and_of_more_than_all_leaves(tmp_path: Path, n: int) -> None:
    rng = np.random.default_rng(n)
    data = Classes(rng.normal(size=(n, 2)).astype(np.float32), np.arange(n) % 2)
    settings = replace(UNCALIBRATED, n_leaves=4, min_leaf_rows=1, max_leaf_rows=2_000, overlap=64)
    group = make_group(tmp_path / "d.zarr", data.X, data.y, chunk_rows=7)
    report = run(group, tmp_path / "model", settings=settings)
    assert report.n_leaves <= 4
    model = read_model(tmp_path / "model", support=True)
    check_same_bits(model, in_memory(data, settings))
    if n == 60:
        assert report.n_leaves > 1
        alone = in_memory(data, replace(settings, overlap=1))
        assert not np.array_equal(model.intercept, alone.intercept)


def test_overlap_where_rows_are_all_alike(tmp_path: Path) -> None:
    """A leaf that cannot be divided fills max_leaf_rows by itself, and has no room for a borrowed."""
    X = np.zeros((2_000, 3), np.int16)
    X[:200] = np.random.default_rng(0).integers(50, 99, (200, 3))
    data = Classes(X, (np.arange(2_000) % 3 == 0).astype(np.int8))
    settings = replace(UNCALIBRATED, max_leaf_rows=300)
    group = make_group(tmp_path / "d.zarr", data.X, data.y, chunk_rows=300)
    report = run(group, tmp_path / "model", settings=settings)
    assert report.thinned_leaves == 1
    check_same_bits(read_model(tmp_path / "model", support=True), in_memory(data, settings))


@pytest.mark.filterwarnings("ignore:The data type")  # Zarr has no specification of strings of fixed width
@pytest.mark.parametrize("labels", ["strings", "far"])
def test_a_learned_scaling_of_labels_of_any_kind(tmp_path: Path, blobs: Classes, labels: str) -> None:
    y = (
        np.array(["ash", "oak", "yew"])[blobs.y]
        if labels == "strings"
        else (blobs.y * 1000 - 7).astype(np.int16)
    )
    settings = replace(UNCALIBRATED, overlap=1, max_leaf_rows=8_000)
    group = make_group(tmp_path / "d.zarr", blobs.X, y, chunk_rows=128)
    run(group, tmp_path / "model", settings=settings)
    model = read_model(tmp_path / "model", support=True)
    assert model.classes == tuple(np.unique(y).tolist())
    check_same_bits(model, replace(in_memory(blobs, settings), classes=model.classes))


def test_a_learned_scaling_leaves_noise_out(tmp_path: Path, blobs: Classes) -> None:
    noise = np.random.default_rng(0).normal(0, 1e6, (600, 20))
    group = make_group(tmp_path / "d.zarr", np.column_stack([blobs.X, noise]), blobs.y, chunk_rows=128)
    run(group, tmp_path / "model", settings=make_settings({"scaling": "learned"}))
    model = read_model(tmp_path / "model")
    assert np.count_nonzero(model.scaling.factor[:5]) >= 2
    parts = (model.scaling.factor * np.append(blobs.X.std(axis=0), np.full(20, 1e6))) ** 2
    assert parts[5:].sum() < 0.2 * parts.sum(), "of 80 % where all features weigh the same"
    X = np.column_stack([blobs.X, noise[::-1]])
    assert (class_numbers(score_rows(model, X)[0]) == blobs.y).mean() > 0.85


@pytest.fixture(scope="module")
def some() -> Classes:
    return make_blobs(900, n_features=6, n_classes=3, seed=1)


@pytest.mark.parametrize("where", ["between tasks", "within a task"])
def test_resume_in_the_midst_of_finding_neighbours(
    tmp_path: Path, some: Classes, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
    data = make_group(tmp_path / "d.zarr", some.X, some.y, chunk_rows=150)
    expected = run(data, tmp_path / "expected", settings=QUICK).hash
    halo_leaves, write_piece = train_model.halo_leaves, train_model.write_piece
    done: list[int] = []
    written: list[Path] = []

    def first_generation_only(path, *rest):
        if written:
            raise KeyboardInterrupt
        written.append(path)
        return write_piece(path, *rest)

    def stop_at_third(job, first, group, generations):
        if len(done) == 2:
            if where == "between tasks":
                raise KeyboardInterrupt
            monkeypatch.setattr(train_model, "write_piece", first_generation_only)
        receipt = halo_leaves(job, first, group, generations)
        done.append(first)
        return receipt

    with monkeypatch.context() as patch:
        patch.setattr("dcpred.training.steps.halo_leaves", stop_at_third)
        with pytest.raises(KeyboardInterrupt):
            run(data, tmp_path / "model", settings=QUICK)
    monkeypatch.setattr(train_model, "write_piece", write_piece)
    assert len(done) == 2
    assert len(written) == (where == "within a task")
    assert not (tmp_path / "model").exists()
    again: list[int] = []
    monkeypatch.setattr(
        "dcpred.training.steps.halo_leaves",
        lambda job, first, *rest: (again.append(first), halo_leaves(job, first, *rest))[1],
    )
    monkeypatch.setattr("dcpred.training.steps.route_block", None)  # would fail if it were called
    assert run(data, tmp_path / "model", settings=QUICK).hash == expected
    assert done + again == sorted({*done, *again}), "each once, in the order of leaves"
    assert len(again) > 2


def test_a_finished_halo_is_not_looked_for_again(
    tmp_path: Path, some: Classes, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_group(tmp_path / "d.zarr", some.X, some.y, chunk_rows=400)
    expected = run(data, tmp_path / "expected", settings=QUICK).hash

    def stop(job, group):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dcpred.training.steps.fit_leaves", stop)
        with pytest.raises(KeyboardInterrupt):
            run(data, tmp_path / "model", settings=QUICK)
    monkeypatch.setattr("dcpred.training.steps.halo_leaves", None)  # would fail if it were called
    assert run(data, tmp_path / "model", settings=QUICK).hash == expected


@pytest.mark.parametrize("overlap", [1, 3])
def test_other_data_at_the_same_place_are_trained_on_in_the_same_process(
    tmp_path: Path, blobs: Classes, overlap: int
) -> None:
    """Trees and pieces are kept by a process, and another training gives the same names to its own."""
    settings = replace(QUICK, overlap=overlap, max_leaf_rows=400)
    other = make_blobs(600, n_features=5, n_classes=3, seed=9)
    expected = run(
        make_group(tmp_path / "o.zarr", other.X, other.y, chunk_rows=128),
        tmp_path / "other",
        settings=settings,
    ).hash
    data = make_group(tmp_path / "d.zarr", blobs.X, blobs.y, chunk_rows=128)
    assert run(data, tmp_path / "model", settings=settings).hash != expected
    shutil.rmtree(tmp_path / "model")
    shutil.rmtree(data)
    make_group(data, other.X, other.y, chunk_rows=128)
    assert run(data, tmp_path / "model", settings=settings).hash == expected


def test_limits_and_conservation(tmp_path: Path, many: Classes) -> None:
    data = make_group(tmp_path / "d.zarr", many.X, many.y, chunk_rows=350)
    report = run(data, tmp_path / "model")
    rows = read_model(tmp_path / "model").leaf_rows
    assert rows.sum() == len(many.X) == report.n_rows
    assert rows.max() <= SETTINGS.max_leaf_rows
    assert rows.min() >= SETTINGS.min_leaf_rows
    assert not (tmp_path / "model.scratch").exists()


def test_a_row_in_place_of_another_is_noticed(
    tmp_path: Path, blobs_zarr: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts alone would not tell."""
    real = train_model.block_rows

    def exchanged(*args):
        rows = real(*args)
        index = np.arange(len(rows.number))
        index[3] = 4
        return rows.take(index)

    monkeypatch.setattr(train_model, "block_rows", exchanged)
    with pytest.raises(DcpredError, match="are not the surveyed ones"):
        run(blobs_zarr, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_rows_that_are_all_alike(tmp_path: Path) -> None:
    """A leaf that cannot be divided is thinned when it is fitted, and its rows still count."""
    X = np.zeros((2_000, 3), np.int16)
    X[:60] = np.random.default_rng(0).integers(50, 99, (60, 3))
    y = (np.arange(2_000) % 3 == 0).astype(np.int8)
    data = make_group(tmp_path / "d.zarr", X, y, chunk_rows=300)
    report = run(data, tmp_path / "model")
    assert report.thinned_leaves == 1
    assert read_model(tmp_path / "model").leaf_rows.sum() == 2_000


def test_resume_does_only_what_is_missing(
    tmp_path: Path, many: Classes, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_group(tmp_path / "d.zarr", many.X, many.y, chunk_rows=350)
    expected = run(data, tmp_path / "expected").hash
    fitted: list[int] = []
    fit_leaves = train_model.fit_leaves

    def stop_at_fifth(job, group):
        if len(fitted) >= 5:
            raise KeyboardInterrupt
        fitted.extend(work.leaf for work in group)
        return fit_leaves(job, group)

    monkeypatch.setattr("dcpred.training.steps.fit_leaves", stop_at_fifth)
    with pytest.raises(KeyboardInterrupt):
        run(data, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    again: list[int] = []
    monkeypatch.setattr(
        "dcpred.training.steps.fit_leaves",
        lambda job, group: (again.extend(work.leaf for work in group), fit_leaves(job, group))[1],
    )
    monkeypatch.setattr("dcpred.training.steps.route_block", None)  # would fail if it were called
    assert run(data, tmp_path / "model").hash == expected
    assert again
    assert not set(again) & set(fitted)


def test_finished_is_finished(tmp_path: Path, blobs_zarr: Path) -> None:
    first = run(blobs_zarr, tmp_path / "model")
    again = run(blobs_zarr, tmp_path / "model", pool=None)  # no workers are asked for
    assert again.already_trained
    assert again.hash == first.hash
    with pytest.raises(PlanConflictError, match="other data or settings"):
        run(blobs_zarr, tmp_path / "model", settings=make_settings({"landmarks": 3}))


def edited(path: Path, **changes: object) -> None:
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | changes))


def test_a_new_version_is_no_other_training(
    tmp_path: Path, blobs_zarr: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that an earlier version trained, whose hash of the training the version was part of."""
    first = run(blobs_zarr, tmp_path / "model")
    document = json.loads((tmp_path / "model" / "model.json").read_text())
    X, y = f"{blobs_zarr}/X", f"{blobs_zarr}/y"
    plan, _ = check_training_data(X, y, None, SETTINGS)
    today, *earlier = training_hashes(fingerprints(X, y, None), SETTINGS, plan)
    assert document["provenance"]["run"] == today
    monkeypatch.setattr("dcpred.version.__version__", "99.0")
    assert run(blobs_zarr, tmp_path / "model", pool=None).already_trained
    edited(tmp_path / "model" / "model.json", provenance=document["provenance"] | {"run": earlier[0]})
    again = run(blobs_zarr, tmp_path / "model", pool=None)
    assert again.already_trained
    assert again.hash == first.hash


@pytest.mark.parametrize("mark", ["of an earlier version", "of other code"])
def test_work_in_progress_of_other_code_is_not_gone_on_with(
    tmp_path: Path, blobs_zarr: Path, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    """Its files would be taken for whole: here one that only this code could have written."""
    expected = run(blobs_zarr, tmp_path / "expected").hash
    with monkeypatch.context() as patch:
        patch.setattr("dcpred.training.steps.fit_leaves", None)
        with pytest.raises(TypeError):
            run(blobs_zarr, tmp_path / "model")
    scratch = tmp_path / "model.scratch"
    X, y = f"{blobs_zarr}/X", f"{blobs_zarr}/y"
    plan, _ = check_training_data(X, y, None, SETTINGS)
    today, *earlier = training_hashes(fingerprints(X, y, None), SETTINGS, plan)
    marks = {"of an earlier version": {"run": earlier[0]}, "of other code": {"run": today, "code": "another"}}
    (scratch / "job.json").write_text(json.dumps(marks[mark]))
    (scratch / "leaves" / "000000.npz").write_bytes((scratch / "division.npz").read_bytes())
    said: list[str] = []
    say = Silent()
    monkeypatch.setattr(say, "remark", said.append)
    with reporting(say):
        assert run(blobs_zarr, tmp_path / "model").hash == expected
    assert any("another version of dcpred; starting anew" in line for line in said)
    assert not scratch.exists()


def unknown_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings get hashes that other versions do not know."""
    known = training_hashes

    def hashes(*given: object) -> tuple[str, ...]:
        return tuple(f"new-{one}" for one in known(*given))  # type: ignore[arg-type]

    monkeypatch.setattr("dcpred.training.fit.training_hashes", hashes)
    monkeypatch.setattr("dcpred.training.scratch.scratch_code", lambda: "new code")


def test_another_version_with_other_hashes_starts_anew(
    tmp_path: Path, blobs_zarr: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a version hashes, the same data and settings are not "other data or settings"."""
    expected = run(blobs_zarr, tmp_path / "expected").hash
    with monkeypatch.context() as patch:
        patch.setattr("dcpred.training.steps.fit_leaves", None)
        with pytest.raises(TypeError):
            run(blobs_zarr, tmp_path / "model")
    lines: list[str] = []
    say = Silent()
    monkeypatch.setattr(say, "remark", lines.append)
    unknown_hash(monkeypatch)
    with pytest.raises(PlanConflictError, match="other data or settings"):
        run(blobs_zarr, tmp_path / "model", settings=make_settings({"landmarks": 3}))
    with reporting(say):
        assert run(blobs_zarr, tmp_path / "model").hash == expected
    assert any("another version of dcpred; starting anew" in line for line in lines)


@pytest.mark.parametrize("dropped", [(), ("data_digest", "settings_digest")], ids=["today", "before 0.2.0"])
def test_a_model_of_another_version_is_named_as_such(
    tmp_path: Path, blobs_zarr: Path, monkeypatch: pytest.MonkeyPatch, dropped: tuple[str, ...]
) -> None:
    run(blobs_zarr, tmp_path / "model")
    document = json.loads((tmp_path / "model" / "model.json").read_text())
    kept = {key: value for key, value in document["provenance"].items() if key not in dropped}
    edited(tmp_path / "model" / "model.json", provenance=kept | {"versions": {"dcpred": "0.1.7"}})
    unknown_hash(monkeypatch)
    with pytest.raises(PlanConflictError, match=r"a model that dcpred 0\.1\.7 trained is there, and version"):
        run(blobs_zarr, tmp_path / "model", pool=None)


def test_scratch_of_a_version_that_recorded_only_a_hash_is_kept(tmp_path: Path, blobs_zarr: Path) -> None:
    (tmp_path / "model.scratch").mkdir()
    mark = tmp_path / "model.scratch" / "job.json"
    mark.write_text('{"run": "another", "code": "old"}')
    with pytest.raises(PlanConflictError, match="by another version of dcpred"):
        run(blobs_zarr, tmp_path / "model")
    assert mark.read_text() == '{"run": "another", "code": "old"}'


def test_a_driver_with_too_little_memory_writes_nothing(
    tmp_path: Path, blobs_zarr: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcpred.execution.workers.memory_bytes", lambda: 2**20)
    with pytest.raises(
        SchedulerError, match=r"Cannot start the driver: it needs about .* MiB of memory, but may use 1 MiB"
    ):
        run(blobs_zarr, tmp_path / "model", pool=None)
    assert not list(tmp_path.glob("model*"))


def test_scratch_of_another_plan_is_refused(tmp_path: Path, blobs_zarr: Path) -> None:
    (tmp_path / "model.scratch").mkdir()
    (tmp_path / "model.scratch" / "precious").write_text("x")
    with pytest.raises(PlanConflictError, match="other files"):
        run(blobs_zarr, tmp_path / "model")
    (tmp_path / "model.scratch" / "precious").unlink()
    (tmp_path / "model.scratch" / "job.json").write_text('{"run": "another"}')
    with pytest.raises(PlanConflictError, match="unfinished training"):
        run(blobs_zarr, tmp_path / "model")


def test_one_driver_at_a_time(tmp_path: Path, blobs_zarr: Path) -> None:
    class Second(InlineWorkers):
        def check_sees(self, address: str) -> None:
            run(blobs_zarr, tmp_path / "model")

    with pytest.raises(RunHeldError, match="in use by process"):
        run(blobs_zarr, tmp_path / "model", pool=lambda: nullcontext(Second()))


def test_sample_weights_and_class_weights(tmp_path: Path, blobs: Classes) -> None:
    """Rows of weight zero are as if they were not there."""
    keep = np.arange(len(blobs.X)) % 3 != 0
    data = make_group(tmp_path / "w.zarr", blobs.X, blobs.y, w=keep.astype(np.float32))
    report = run(
        data, tmp_path / "model", weight=f"{data}/w", settings=make_settings({"class_weight": "balanced"})
    )
    assert read_model(tmp_path / "model").leaf_rows.sum() == keep.sum() < report.n_rows
    heavy = make_group(tmp_path / "h.zarr", blobs.X, blobs.y, w=np.where(blobs.y == 0, 100.0, 0.01))
    run(heavy, tmp_path / "heavy", weight=f"{heavy}/w", settings=make_settings({"gamma": 0.01, "C": 0.1}))
    decision, _ = score_rows(read_model(tmp_path / "heavy"), blobs.X)
    assert (class_numbers(decision) == 0).mean() > 1.5 * (blobs.y == 0).mean()


def test_string_and_named_labels(tmp_path: Path, blobs: Classes) -> None:
    names = ["ash", "oak", "yew"]
    coded = make_group(tmp_path / "c.zarr", blobs.X, blobs.y.astype(np.uint8), labels=names)
    run(coded, tmp_path / "coded")
    assert read_model(tmp_path / "coded").classes == ("ash", "oak", "yew")


def test_regression(tmp_path: Path, blobs: Classes) -> None:
    y = np.sin(blobs.X[:, 0]) + blobs.X[:, 1]
    data = make_group(tmp_path / "d.zarr", blobs.X, y)
    run(
        data,
        tmp_path / "model",
        settings=make_settings({"task": "regression", "n_leaves": 4, "landmarks": 24}),
    )
    decision, _ = score_rows(read_model(tmp_path / "model"), blobs.X)
    assert np.sqrt(((decision[:, 0] - y) ** 2).mean()) < 0.3 * y.std()


def _nan(X: np.ndarray, y: np.ndarray) -> None:
    X[417, 3] = np.nan


def _inf(X: np.ndarray, y: np.ndarray) -> None:
    X[2, 0] = np.inf


def _one_class(X: np.ndarray, y: np.ndarray) -> None:
    y[:] = 1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [(_nan, "row 417, column 3"), (_inf, "row 2, column 0"), (_one_class, "only one class, 1")],
)
@pytest.mark.parametrize("pool", ["inline", "dask"], indirect=True)
def test_bad_values(tmp_path: Path, blobs: Classes, spoil, message: str, pool) -> None:
    X, y = blobs.X.copy(), blobs.y.copy()
    spoil(X, y)
    data = make_group(tmp_path / "d.zarr", X, y)
    with pytest.raises(DataError, match=message):
        run(data, tmp_path / "model", pool, replace(SETTINGS, missing="refuse"))
    assert [p.name for p in tmp_path.iterdir()] == ["d.zarr"]


def test_bad_shapes(tmp_path: Path, blobs: Classes) -> None:
    def refused(X: np.ndarray, y: np.ndarray, message: str) -> None:
        data = make_group(tmp_path / "d.zarr", X, y)
        with pytest.raises(DataError, match=message):
            run(data, tmp_path / "model", pool=None)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["d.zarr"]
        shutil.rmtree(data)

    refused(
        blobs.X, blobs.y[:-1], r"its shape is \(599,\), but X needs one value for each row, shape \(600,\)"
    )
    refused(blobs.X[:, 0], blobs.y, "1 dimension,")
    refused(blobs.X.astype(complex), blobs.y, "complex numbers")
    refused(blobs.X[:0], blobs.y[:0], r"its shape is \(0, .*\. Pass rows and features")
    refused(blobs.X, blobs.X[:, :2], r"its shape is \(600, 2\)")


def test_missing_chunk(tmp_path: Path, blobs_zarr: Path) -> None:
    (blobs_zarr / "X" / "c" / "2" / "0").unlink()
    with pytest.raises(DataError, match=r"chunk c/2/0 is missing"):
        run(blobs_zarr, tmp_path / "model", pool=None)


def test_not_a_zarr(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        zarr_arrays.find_array(tmp_path / "nothing", "X")


def test_workers_that_do_not_see_the_scratch(tmp_path: Path, two_workers: Pool) -> None:
    with two_workers() as workers, pytest.raises(Exception, match="does not see"):
        workers.check_sees(str(tmp_path / "not there"))


def test_a_task_larger_than_a_worker_is_refused(two_workers: Pool) -> None:
    with two_workers() as workers:
        with pytest.raises(
            SchedulerError, match=r"Cannot run a task of about 99,999,999 MiB .* a worker may use .* do this"
        ):
            workers.check_memory(99_999_999 * 2**20, "do this")
        workers.check_memory(2**20, "nothing")


def test_data_written_again_are_other_data(tmp_path: Path, blobs: Classes) -> None:
    data = make_group(tmp_path / "d.zarr", blobs.X, blobs.y)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/Thumbs.db").touch()
    run(data, tmp_path / "model")
    shutil.copytree(data, tmp_path / "copy.zarr")
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "copy.zarr", data)
    assert run(data, tmp_path / "model").already_trained
    shutil.rmtree(data)
    make_group(data, blobs.X[::-1].copy(), blobs.y)
    with pytest.raises(PlanConflictError, match="other data or settings"):
        run(data, tmp_path / "model")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/notes.txt").touch()
    with pytest.raises(PlanConflictError, match="something else is there"):
        run(data, tmp_path / "folder")


def test_a_missing_chunk_of_weights_is_no_weight_of_zero(tmp_path: Path, blobs: Classes) -> None:
    data = make_group(tmp_path / "d.zarr", blobs.X, blobs.y, w=np.ones(600))
    (data / "w" / "c" / "2").unlink()
    with pytest.raises(DataError, match=r"w: chunk c/2 is missing"):
        run(data, tmp_path / "model", pool=None, weight=f"{data}/w")


@pytest.mark.parametrize("pool", ["inline", "dask"], indirect=True)
def test_a_damaged_chunk_is_named(tmp_path: Path, blobs_zarr: Path, pool) -> None:
    chunk = blobs_zarr / "X" / "c" / "2" / "0"
    raw = bytearray(chunk.read_bytes())
    raw[len(raw) // 2] ^= 1
    chunk.write_bytes(raw)
    with pytest.raises(DataError, match=r"Cannot read rows 256 to 384 of .*X: their chunk is damaged"):
        run(blobs_zarr, tmp_path / "model", pool)
    assert [p.name for p in tmp_path.iterdir()] == ["blobs.zarr"]


def test_targets_and_weights_that_are_no_numbers(tmp_path: Path, blobs: Classes) -> None:
    data = make_group(tmp_path / "d.zarr", blobs.X, blobs.y.astype(complex), w=np.ones(600, complex))
    with pytest.raises(DataError, match="y: its dtype is complex128"):
        run(data, tmp_path / "model", pool=None)
    good = make_group(tmp_path / "g.zarr", blobs.X, blobs.y)
    with pytest.raises(DataError, match="the sample weight: its dtype is complex128"):
        run(good, tmp_path / "model", pool=None, weight=f"{data}/w")


def test_one_class_is_named(tmp_path: Path, blobs: Classes) -> None:
    data = make_group(tmp_path / "d.zarr", blobs.X, np.ones(600, np.int8), labels=["ash", "oak"])
    with pytest.raises(DataError, match="only one class, oak"):
        run(data, tmp_path / "model")


def test_a_refusal_is_not_tried_again(tmp_path: Path, two_workers: Pool) -> None:
    with two_workers() as workers:
        ((_, failure),) = list(workers.each(_refuse_and_count, [(str(tmp_path),)]))
    assert isinstance(failure.error, DataError)
    assert len(list(tmp_path.iterdir())) == 1


def _refuse_and_count(folder: str) -> None:
    (Path(folder) / str(len(list(Path(folder).iterdir())))).touch()
    raise DataError("no")


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1", "tcp://somewhere"])
def test_a_scheduler_without_a_port(address: str) -> None:
    with pytest.raises(SchedulerError, match="Write it as tcp://host:8786"), connect(None, address):
        pytest.fail("connected")


class Blind(InlineWorkers):
    """Workers that do not share the driver's storage."""

    def check_sees(self, address: str) -> None:
        raise SchedulerError(f"no worker sees {address}")


def test_workers_elsewhere_leave_nothing_behind(tmp_path: Path, blobs_zarr: Path) -> None:
    with pytest.raises(SchedulerError):
        run(blobs_zarr, tmp_path / "model", pool=lambda: nullcontext(Blind()))
    assert [p.name for p in tmp_path.iterdir()] == ["blobs.zarr"]


def test_work_that_was_done_outlives_a_refusal(
    tmp_path: Path, blobs_zarr: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(blobs_zarr, tmp_path / "expected").hash

    def refuse(job, group):
        raise DataError("a chunk went bad")

    with monkeypatch.context() as patch:
        patch.setattr("dcpred.training.steps.fit_leaves", refuse)
        with pytest.raises(DataError):
            run(blobs_zarr, tmp_path / "model")
    assert (tmp_path / "model.scratch" / "rows-0").exists()
    with pytest.raises(SchedulerError):
        run(blobs_zarr, tmp_path / "model", pool=lambda: nullcontext(Blind()))
    monkeypatch.setattr("dcpred.training.steps.route_block", None)  # would fail if it were called
    assert run(blobs_zarr, tmp_path / "model").hash == expected


@pytest.mark.parametrize("pattern", ["survey/*.npz", "division.npz", "leaves/*.npz"])
def test_damaged_files_of_a_training_that_was_cut_off_are_made_anew(
    tmp_path: Path, blobs_zarr: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    expected = run(blobs_zarr, tmp_path / "expected").hash

    def cut_off(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dcpred.training.steps.assemble", cut_off)
        with pytest.raises(KeyboardInterrupt):
            run(blobs_zarr, tmp_path / "model")
    damaged = list((tmp_path / "model.scratch").glob(pattern))
    assert damaged
    for number, file in enumerate(damaged):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2] if number % 2 else b"")
    assert run(blobs_zarr, tmp_path / "model").hash == expected


@pytest.mark.parametrize(
    ("names", "why"), [(["a", "a", "b", "c", "d"], "names 'a' twice"), (["a", "b"], "has 2 names")]
)
def test_names_of_features_are_those_of_its_columns(tmp_path: Path, names: list[str], why: str) -> None:
    group = zarr.create_group(tmp_path / "d.zarr")
    group.create_array("X", data=np.ones((40, 5))).attrs["feature_names"] = names
    group.create_array("y", data=np.arange(40) % 2)
    with pytest.raises(DataError, match=f"has 5 features, but its attribute feature_names {why}. Name each"):
        fit_model(
            TrainingRequest(
                f"{tmp_path}/d.zarr/X", f"{tmp_path}/d.zarr/y", tmp_path / "m", Settings(), InlineWorkers
            )
        )
    assert [p.name for p in tmp_path.iterdir()] == ["d.zarr"]


def test_label_names_are_checked_before_anything_is_trained(tmp_path: Path, blobs: Classes) -> None:
    data = make_group(tmp_path / "d.zarr", blobs.X, blobs.y, labels=["ash", "oak"])
    with pytest.raises(DataError, match="names only the classes 0 to 1"):
        run(data, tmp_path / "model")
    assert [p.name for p in tmp_path.iterdir()] == ["d.zarr"]
