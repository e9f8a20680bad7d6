"""What every column of an output promises, whoever adds it: drawn from the list, and models of each task."""

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.artifacts.model_artifact import write_model
from dcpred_tasks.dtypes import Status
from dcpred_tasks.model.compact_model import Model, score_rows
from dcpred_tasks.scoring.labels import RawScores, score_with_leaves
from dcpred_tasks.scoring.outputs import (
    OUTPUT_COLUMNS,
    OUTPUTS,
    STATUS,
    OutputColumn,
    Stored,
    Values,
    columns,
    default_outputs,
    encode_outputs,
    possible_outputs,
)
from dcpred_tasks.scoring.scorer import arithmetic
from dcpred_tasks.scoring.statistics import ScoredRows, Statistics, value_counts
from dcpred_tasks.task_bodies.score_block import score_block
from dcpred_tasks.task_bodies.verify_block import tolerance, verify_block, verify_rows
from dcpred_tasks.task_bodies.zarr_chunks import create_scores
from support.data import make_group
from support.models import random_model, random_rows
from support.sureness import sure

N_ROWS = 120
ROOT = Path(__file__).parents[2]
ONE_SIDED = columns(("q05", "q95"))[:-1]
PLAIN = {
    "two classes": replace(random_model(1), classes=(0, 1)),
    "signs": replace(random_model(2), classes=(-1, 1)),
    "names": replace(random_model(3), classes=("no", "yes")),
    "halves": replace(random_model(4), classes=(0.5, 1.5)),
    "three classes": random_model(5, n_outputs=3),
    "many classes": random_model(6, n_outputs=200),
    "regression": random_model(7, task="regression"),
}
MODELS = {name: sure(model) for name, model in PLAIN.items()}
CASES = [
    pytest.param(column, model, id=f"{column.name}, {name}")
    for name, model in MODELS.items()
    for column in (*OUTPUT_COLUMNS, *ONE_SIDED, STATUS)
    if model.task in column.tasks
]
each = pytest.mark.parametrize(("column", "model"), CASES)


@dataclass(frozen=True)
class Scored(ScoredRows):
    """Rows of a model, some of them bad, and what their columns hold."""

    rows: RawScores

    @property
    def good(self) -> np.ndarray:
        return np.flatnonzero(self.status == Status.OK)

    @property
    def bad(self) -> np.ndarray:
        return np.flatnonzero(self.status != Status.OK)


def asked(model: Model) -> tuple[str, ...]:
    return (*possible_outputs(model.task), *(c.name for c in ONE_SIDED if model.task in c.tasks))


def scored(model: Model) -> Scored:
    """The same for every test of a model; no test changes it."""
    if id(model) not in KNOWN:
        KNOWN[id(model)] = model, _scored(model)
    return KNOWN[id(model)][1]


KNOWN: dict[int, tuple[Model, Scored]] = {}


def _scored(model: Model) -> Scored:
    X = random_rows(model, N_ROWS, seed=3)
    X[5::10] = np.nan
    rows = score_with_leaves(model, X, typicality=True, scale=True, reasons=True, score=score_rows)
    values = encode_outputs(model, columns(asked(model)), rows)
    done = Scored(X, rows.decision, rows.status, rows.leaf, values, rows)
    assert len(done.good) > 50
    assert len(done.bad) >= 12
    for array in (X, done.decision, done.status, done.leaf, *values.values()):
        array.setflags(write=False)
    return done


def complaints(column: OutputColumn, model: Model, values: Values) -> dict[str, list[int]]:
    found = column.check(values[column.name], column.fill(model), values[STATUS.name])
    return {sentence: np.flatnonzero(rows).tolist() for sentence, rows in found if rows.any()}


def test_names_are_told_apart_and_the_status_comes_last() -> None:
    assert len({*OUTPUTS, STATUS.name}) == len(OUTPUTS) + 1
    assert [column.name for column in columns(OUTPUTS)] == [*OUTPUTS, STATUS.name]
    assert columns(OUTPUTS[::-1]) == columns(OUTPUTS)
    assert columns(()) == (STATUS,)
    for task in ("classification", "regression"):
        assert possible_outputs(task) == tuple(c.name for c in OUTPUT_COLUMNS if task in c.tasks) != ()
        assert set(default_outputs(task)) < set(possible_outputs(task))
    assert default_outputs("classification") == ("label", "decision")
    assert default_outputs("regression") == ("decision",)


@each
def test_values_have_the_dtype_and_shape_that_are_said(column: OutputColumn, model: Model) -> None:
    done = scored(model)
    value = done.values[column.name]
    assert value.dtype == column.dtype(model)
    assert value.shape == (N_ROWS, *column.row_shape(model))
    assert column.dtype(model).type in column.dtypes
    assert len(column.row_shape(model)) < len(column.dimensions)
    none = column.encode(model, done.rows.take(slice(0, 0)))
    assert (none.dtype, none.shape) == (value.dtype, (0, *value.shape[1:]))


@each
def test_what_stands_for_no_value_stands_for_nothing_else(column: OutputColumn, model: Model) -> None:
    done, fill = scored(model), column.fill(model)
    array = np.full(3, fill, column.dtype(model))  # the array can hold it
    assert column.absent(array, fill).all()
    absent = column.absent(done.values[column.name], fill).reshape(N_ROWS, -1)
    assert not absent[done.good].any()
    if column is not STATUS:
        assert absent[done.bad].all()


@each
def test_check_accepts_what_was_encoded_and_finds_each_damage(column: OutputColumn, model: Model) -> None:
    done = scored(model)
    assert complaints(column, model, done.values) == {}
    assert complaints(column, model, {name: value[:0] for name, value in done.values.items()}) == {}
    for row, other in ((done.good[3], done.bad[0]), (done.bad[2], done.good[0])):
        if column is STATUS:
            continue
        value = done.values[column.name].copy()
        value[row] = value[other]  # a scored row without a value; a value of a row that has none
        found = complaints(column, model, done.values | {column.name: value})
        assert list(found.values()) == [[row]]
        assert column.name in next(iter(found))


@pytest.mark.parametrize("code", [Status.NOT_SCORED, 3, max(Status) + 1, 255])
def test_a_status_that_no_row_can_have_is_found(code: int) -> None:
    model = MODELS["three classes"]
    done = scored(model)
    status = done.status.copy()
    status[7] = code
    assert list(complaints(STATUS, model, {STATUS.name: status}).values()) == [[7]]


@pytest.mark.parametrize("code", [s for s in Status if s not in (Status.NOT_SCORED, Status.OK)])
@each
def test_a_status_that_was_altered_is_found_by_every_other_column(
    column: OutputColumn, model: Model, code: Status
) -> None:
    if column is STATUS:
        return
    done = scored(model)
    for row, other in ((done.good[0], code), (done.bad[0], Status.OK)):
        status = done.status.copy()
        status[row] = other
        assert list(complaints(column, model, done.values | {STATUS.name: status}).values()) == [[row]]


@each
def test_rounding_is_no_difference_and_another_value_is(column: OutputColumn, model: Model) -> None:
    done = scored(model)
    index = np.arange(N_ROWS) if column is STATUS else done.good
    rows, right = done.rows.take(index), done.values[column.name][index]
    decision, off = rows.decision, tolerance(model, done.X)[index]
    nudged = decision + 0.4 * off.reshape(-1, 1) * np.where(np.arange(decision.shape[1]) % 2, 1, -1)
    typicality = (rows.typicality + 1e-6 * np.where(index % 2, 1, -1)).astype(np.float32)
    stored = column.encode(
        model, replace(rows, decision=nudged.astype(decision.dtype), typicality=typicality)
    )
    assert column.differing(model, Stored(right, right, rows, off)).tolist() == []
    assert (
        column.differing(model, Stored(stored, right, rows, off + 1e-6 * np.abs(decision).max())).tolist()
        == []
    )
    none = rows.take(slice(0, 0))
    assert column.differing(model, Stored(right[:0], right[:0], none, off[:0])).tolist() == []
    wrong = right.copy()
    wrong[4] = {"b": 1, "i": 1, "u": 7}.get(right.dtype.kind, 1e9)
    if column.name in OUTPUTS and column.tally:  # the class that is the least likely
        classes = column.tally_values(model)
        least = decision[4].argmin() if decision.shape[1] > 1 else int(decision[4, 0] < 0)
        wrong[4] = classes[least]
    assert column.differing(model, Stored(wrong, right, rows, np.minimum(off, 1e-9))).tolist() == [4]
    assert column.show(wrong[4]) != column.show(right[4])


@each
def test_tallies_are_plain_counts(column: OutputColumn, model: Model) -> None:
    values, names = column.tally_values(model), column.tally_names(model)
    assert len(values) == len(names) == len(np.unique(values))
    done = scored(model)
    found = Statistics(model, (column.name,))
    found.observe(done, np.arange(len(done.status)))
    assert set(found.tallies) == ({column.name} if column.tally and column is not STATUS else set())
    if column.tally:
        stored = done.values[column.name][done.good]
        assert found.packed()[column.tally] == [int((stored == value).sum()) for value in values]
        assert value_counts(stored, values).sum() == len(done.good)
        again = Statistics(model, (column.name,))
        again.add_packed(found.packed())
        assert again.tallies[column.name].tolist() == found.tallies[column.name].tolist()


@pytest.fixture(scope="module", params=MODELS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[ScoreRun, Model]:
    """A run of two blocks, its arrays created and no block scored."""
    folder, model = tmp_path_factory.mktemp("outputs"), MODELS[request.param]
    data = make_group(folder / "data.zarr", scored(model).X, chunk_rows=30)
    model_hash = write_model(folder / "model", model, {}, {})
    run = ScoreRun(
        "0" * 64,
        f"{data}/X",
        str(folder / "model"),
        model_hash,
        str(folder / "out"),
        asked(model),
        N_ROWS,
        chunk_rows=30,
        block_rows=60,
        alpha=0.2 if model.task == "regression" else None,
        arithmetic=arithmetic(),
    )
    create_scores(run, model)
    (folder / "out" / "blocks").mkdir()
    return run, model


def test_what_is_stored_is_what_is_said(run: tuple[ScoreRun, Model]) -> None:
    plan, model = run
    group = zarr.open_group(plan.scores, mode="r")
    assert set(group.array_keys()) == set(plan.arrays)
    score_block(plan, 0)
    done = scored(model)
    decided = {
        start: score_with_leaves(model, done.X[start : start + 30], typicality=True, scale=True, reasons=True)
        for start in (0, 30)
    }
    for column in plan.columns:
        array: Any = group[column.name]
        assert array.shape == (N_ROWS, *column.row_shape(model))
        assert array.dtype == column.dtype(model)
        np.testing.assert_equal(array.fill_value, column.fill(model))
        assert dict(array.attrs) == column.attributes(model)
        assert array.metadata.dimension_names == column.dimensions[: array.ndim]
        assert column.absent(array[60:], array.fill_value).all()  # a row that is not scored
        for start, rows in decided.items():
            right = column.encode(model, rows)
            if right.dtype.kind == "f":
                np.testing.assert_allclose(array[start : start + 30], right, rtol=1e-3, atol=1e-3)
            else:
                assert (array[start : start + 30] == right).mean() > 0.9  # but for a tie
    assert verify_block(plan, 0) == []
    assert verify_rows(plan, 0, 0, 30, tuple(range(30))) == []


def test_no_other_module_names_a_column() -> None:
    """So that another column is no change of theirs. The histogram of decision values, which every run has,
    has its own name in records, a part of a model is called novelty, a table to try commands on has a column
    of that name of its own, and the package exports a function `contributions`.
    """
    for path in (*ROOT.glob("tasks/**/*.py"), *ROOT.glob("pipeline/dcpred/**/*.py")):
        if path.name not in (
            "outputs.py",
            "predictive_outputs.py",
            "statistics.py",
            "model_layout.py",
            "model_checks.py",
            "demo.py",
            "__init__.py",
        ):
            text = path.read_text()
            if any(f'"{name}"' in text for name in OUTPUTS):
                nodes = ast.walk(ast.parse(text))
                constants = {node.value for node in nodes if isinstance(node, ast.Constant)}
                assert not constants & set(OUTPUTS), path


def test_damage_of_several_columns_is_told_one_after_the_other() -> None:
    model = MODELS["three classes"]
    done = scored(model)
    damage: dict[str, Callable[[np.ndarray], None]] = {
        name: lambda value: value.__setitem__(done.good[0], value[done.bad[0]]) for name in OUTPUTS[:2]
    }
    values = {name: value.copy() for name, value in done.values.items()}
    for name, harm in damage.items():
        harm(values[name])
    told = [s for c in reversed(columns(values)) for s in complaints(c, model, values)]
    assert told == ["has no decision, but its status is 1", "has no label, but its status is 1"]
