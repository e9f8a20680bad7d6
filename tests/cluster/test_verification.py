"""`dcpred verify` and `dcpred score --repair`. A test that is called after a rule fails where that rule is
taken out.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner, Result

from benchmarks.injuries import INJURIES, Injury, conflicting_record, flip
from dcpred.cli import main
from dcpred.execution.pools import connect
from dcpred.execution.workers import Workers
from dcpred.runs.ledger import open_ledger
from dcpred.runs.manifest import ScoreReport
from dcpred.scoring.repair import repair
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred.verification.verify import VerifyReport, choose_rows, verify
from dcpred_tasks.artifacts.block_files import HARMLESS, Kind
from dcpred_tasks.errors import DataError, IncompleteError, ModelFormatError, PlanConflictError, SettingsError
from dcpred_tasks.result_fields import document_of, lines_of
from dcpred_tasks.scoring.outputs import columns
from dcpred_tasks.scoring.scorer import score_rows
from dcpred_tasks.storage import zarr_arrays
from dcpred_tasks.storage.atomic_files import encoded
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.task_bodies import score_block as task
from dcpred_tasks.task_bodies import verify_block
from support.data import make_blobs, make_group
from support.models import fixed_cases, leaf_and_doubt
from support.runs import report_of_incomplete
from support.serving import read_models_once

N_ROWS = 970
LEVELS = ("fast", "sample", "full")
VARIANTS = ("two classes", "three classes", "regression", "not finite", "labels")


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    """Blocks of two output chunks of 50 rows each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", 50)
        patch.setattr("dcpred.execution.block_plan.BLOCKS", 10)
        read_models_once(patch)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with data.zarr, model and a finished output `out`, by variant; not to be written into."""
    folders: dict[str, Path] = {}

    def make(variant: str) -> Path:
        if variant in folders:
            return folders[variant]
        folder = tmp_path_factory.mktemp("made")
        blobs = make_blobs(N_ROWS, n_features=4, n_classes=3 if variant == "three classes" else 2, seed=1)
        X, regression = blobs.X.copy(), variant == "regression"
        known = make_group(folder / "known.zarr", X[:600], X[:600, 0] if regression else blobs.y[:600])
        if variant == "not finite":
            X[[0, 17, 250, 969], [0, 1, 2, 3]] = np.nan, np.inf, -np.inf, np.nan
        make_group(folder / "data.zarr", X, chunk_rows=50)
        settings = {"landmarks": 5, "products": 4, "n_leaves": 4} | (
            {"task": "regression"} if regression else {}
        )
        train(known, folder / "model", settings=settings)
        run(folder, outputs=("label",) if variant == "labels" else None)
        folders[variant] = folder
        return folder

    return make


@pytest.fixture
def folder(made: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy to write into, of three classes."""
    shutil.copytree(made("three classes"), tmp_path / "mine", copy_function=shutil.copy2)
    return tmp_path / "mine"


def run(folder: Path, **more: Any) -> ScoreReport:
    return score(folder / "model", f"{folder}/data.zarr/X", folder / "out", **more)


def mend(folder: Path, **more: Any) -> ScoreReport:
    return repair(folder / "model", f"{folder}/data.zarr/X", folder / "out", **more)


def found(output: Path, level: str = "full", **more: Any) -> list[Kind]:
    return [finding.kind for finding in verify(output, level, **more).findings]


def refuse_workers() -> AbstractContextManager[Workers]:
    raise AssertionError("workers were asked for")


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (p for p in folder.rglob("*") if p.is_file() and p.name not in ("lock", ".lock.guard"))
    return {str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mtime_ns) for p in files}


def chunk(folder: Path, number: int, name: str = "decision") -> Path:
    return folder / "out" / "scores.zarr" / name / "c" / str(number) / ("0" if name == "decision" else "")


@pytest.fixture
def scored_again(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Blocks that are scored from now on."""
    blocks: list[int] = []
    real = task.score_block

    def noting(run: Any, block: int, quarantine: bool = False) -> Any:
        blocks.append(block)
        return real(run, block, quarantine)

    monkeypatch.setattr("dcpred.scoring.blocks.score_block", noting)
    return blocks


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_undamaged_output_gives_no_finding(made: Callable[[str], Path], variant: str, level: str) -> None:
    report = verify(made(variant) / "out", level, rows=N_ROWS)
    assert report.findings == []
    assert report.ok
    assert report.sampled_rows == (N_ROWS if level == "sample" else 0)


@pytest.mark.parametrize("injury", INJURIES, ids=lambda injury: injury.name)
def test_damage_is_found(made: Callable[[str], Path], tmp_path: Path, injury: Injury) -> None:
    rng = np.random.default_rng(0)
    out = tmp_path / "out"
    shutil.copytree(made("three classes") / "out", out)
    injury.inflict(out, rng)
    before = contents(out)
    for level in injury.levels:
        report = verify(out, level, rows=N_ROWS if injury.levels == ("sample",) else 1)
        assert set(injury.kinds) & {finding.kind for finding in report.findings}, (level, report.findings)
        assert report.ok == (injury.kinds[0] in HARMLESS)
    assert contents(out) == before


@pytest.mark.parametrize(
    "injury", [i for i in INJURIES if i.levels != ("sample",)], ids=lambda injury: injury.name
)
def test_damage_is_mended(folder: Path, injury: Injury) -> None:
    """But for files that dcpred did not write."""
    right = {name: value[0] for name, value in contents(folder / "out" / "scores.zarr").items()}
    injury.inflict(folder / "out", np.random.default_rng(1))
    if injury.kinds[0] in (Kind.FOREIGN_FILE, Kind.RECORD_OF_NO_BLOCK):
        with pytest.raises(IncompleteError, match="remove it"):
            mend(folder)
        return
    mend(folder)
    if injury.kinds == (Kind.SYSTEM_FILE,):
        run(folder)
        assert {*found(folder / "out")} == {Kind.SYSTEM_FILE}
        return
    assert found(folder / "out") == []
    assert {name: value[0] for name, value in contents(folder / "out" / "scores.zarr").items()} == right


def test_rule_a_finished_run_is_verified_before_it_is_called_finished(folder: Path) -> None:
    chunk(folder, 3).write_bytes(b"")
    before = contents(folder / "out")
    with pytest.raises(IncompleteError, match=r"decision/c/3/0: it is empty.*--repair"):
        run(folder)
    assert contents(folder / "out") == before


def test_rule_a_run_is_verified_before_its_manifest_is_written(folder: Path) -> None:
    (folder / "out" / "manifest.json").unlink()
    (folder / "out" / "scores.zarr" / "status" / "c" / "999").write_bytes(b"x")
    with pytest.raises(IncompleteError, match="the plan has no such chunk"):
        run(folder)
    assert not (folder / "out" / "manifest.json").exists()


def test_rule_every_byte_of_a_record_and_of_the_manifest_counts(folder: Path) -> None:
    """Even one that changes nothing that is read."""
    for name, kind in (("blocks/000004.json", Kind.ALTERED_RECORD), ("manifest.json", Kind.MANIFEST)):
        path = folder / "out" / name
        raw = path.read_bytes()
        path.write_bytes(raw + b" ")
        assert found(folder / "out", "fast") == [kind]
        path.write_bytes(raw)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"retries": "many"}, "retries: 'many' is not an integer"),
        ({"sizes": {"label": [-1]}}, "sizes: -1 is not allowed"),
        ({"colour": 1}, "it has no field colour"),
        ({"stop": None}, "stop: None is not an integer"),
    ],
)
def test_rule_a_record_has_the_values_that_its_fields_allow(
    folder: Path, change: dict[str, Any], sentence: str
) -> None:
    """A checksum alone does not make it one."""
    path = folder / "out/blocks/000004.json"
    value = json.loads(path.read_bytes()) | change
    del value["checksum"]
    path.write_bytes(encoded({**value, "checksum": digest_json(value)}))
    (finding,) = verify(folder / "out", "fast").findings
    assert (finding.kind, finding.block, finding.sentence) == (Kind.ALTERED_RECORD, 4, sentence)


def test_rule_fast_decodes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_rows(*_: object) -> None:
        raise AssertionError("a chunk was decoded")

    monkeypatch.setattr(zarr_arrays, "read_rows", read_rows)
    assert verify(folder / "out", "fast", client=refuse_workers).ok


@pytest.mark.parametrize("level", ["fast", "full"])
def test_rule_fast_and_full_need_neither_model_nor_input(folder: Path, level: str) -> None:
    shutil.rmtree(folder / "out")  # whose plan names the places of the original
    run(folder)
    shutil.rmtree(folder / "model")
    shutil.rmtree(folder / "data.zarr")
    shutil.move(folder / "out", folder / "elsewhere")
    assert verify(folder / "elsewhere", level).ok


def test_rule_a_sample_needs_the_model_as_it_was(folder: Path) -> None:
    shutil.rmtree(folder / "out")  # whose plan names the places of the original
    run(folder)
    shutil.rmtree(folder / "model")
    with pytest.raises(ModelFormatError, match=r"the model cannot be opened.*Use --level full"):
        verify(folder / "out", "sample")


def test_rule_a_sample_needs_the_input_as_it_was(folder: Path) -> None:
    shutil.rmtree(folder / "out")  # as above
    run(folder)
    array = zarr.open_array(folder / "data.zarr" / "X", mode="r+")
    array[:50] = array[:50] + 1
    with pytest.raises(DataError, match=r"has changed since it was scored\. Use --level full"):
        verify(folder / "out", "sample")
    shutil.rmtree(folder / "data.zarr")
    with pytest.raises(DataError, match=r"cannot be opened\. Use --level full"):
        verify(folder / "out", "sample")


def test_rule_a_seed_gives_the_same_sample(folder: Path) -> None:
    run = open_ledger(folder / "out").run
    assert (
        choose_rows(run, range(10), 99, 5)
        == choose_rows(run, range(10), 99, 5)
        != choose_rows(run, range(10), 99, 6)
    )
    spans = choose_rows(run, range(10), 99, 5)
    assert sum(len(rows) for *_, rows in spans) == 99
    assert all(start <= row < stop for _, start, stop, rows in spans for row in rows)
    assert sum(len(rows) for *_, rows in choose_rows(run, range(10), 10**6, 5)) == N_ROWS


def test_rule_rounding_is_no_wrong_score_and_more_is() -> None:
    n = n_wrong = 0
    for model, X in islice(fixed_cases(), 0, None, 7):  # of each kernel, scaling and dtype some
        decision, status = score_rows(model, X)
        finite = np.flatnonzero(status == 1)
        keep = finite[~leaf_and_doubt(model, X[finite])[1]]
        if model.task != "classification" or not len(keep):
            continue
        values = {"decision": decision[keep], "status": status[keep]}
        asked = columns(values)
        assert list(verify_block._wrong_scores(model, X[keep], asked, values)) == []
        more = (3 * verify_block.tolerance(model, X[keep])[:, None] + 1e-5 * np.abs(decision[keep])).astype(
            decision.dtype
        )
        wrong = {
            i
            for i, _ in verify_block._wrong_scores(
                model, X[keep], asked, values | {"decision": decision[keep] + more}
            )
        }
        n, n_wrong = n + len(keep), n_wrong + len(wrong)
    assert n > 1_000
    assert n_wrong == n


def test_an_unfinished_run_is_not_complete_and_not_damaged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(folder / "out")
    done: list[int] = []

    def stop_at_fifth(run: Any, block: int, quarantine: bool) -> Any:
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(block)
        return task.score_block(run, block, quarantine)

    with monkeypatch.context() as patch:
        patch.setattr("dcpred.scoring.blocks.score_block", stop_at_fifth)
        with pytest.raises(KeyboardInterrupt):
            run(folder)
    for level in LEVELS:
        report = verify(folder / "out", level)
        assert (report.findings, report.verified_blocks, report.left_blocks, report.ok) == ([], 4, 6, False)
    flip(chunk(folder, 0), np.random.default_rng(0))
    assert found(folder / "out") == [Kind.DAMAGED_CHUNK]
    mend(folder)
    assert verify(folder / "out", "full").ok


def test_rule_repair_writes_nothing_where_nothing_is_wrong(folder: Path, scored_again: list[int]) -> None:
    before = contents(folder / "out")
    report = mend(folder)
    assert contents(folder / "out") == before
    assert (report.scored_blocks, scored_again) == (0, [])


def test_rule_repair_scores_again_only_what_is_wrong(folder: Path, scored_again: list[int]) -> None:
    before = contents(folder / "out")
    flip(chunk(folder, 5), np.random.default_rng(0))
    chunk(folder, 12, "status").unlink()
    mend(folder)
    assert sorted(scored_again) == [2, 6]
    after = contents(folder / "out")
    touched = {name for name in before if before[name][1] != after[name][1]}
    pieces = [f"label/c/{n}" for n in (4, 5, 12, 13)] + [f"status/c/{n}" for n in (4, 5, 12, 13)]
    pieces += [f"decision/c/{n}/0" for n in (4, 5, 12, 13)]
    assert touched - {"manifest.json", "blocks/000002.json", "blocks/000006.json"} == {
        f"scores.zarr/{p}" for p in pieces
    }
    assert {name: value[0] for name, value in after.items() if name.startswith("scores")} == {
        name: value[0] for name, value in before.items() if name.startswith("scores")
    }


def test_rule_repair_at_level_fast_decodes_nothing_and_mends_what_sizes_tell(
    folder: Path, scored_again: list[int]
) -> None:
    chunk(folder, 5).write_bytes(b"")
    flip(chunk(folder, 18), np.random.default_rng(0))
    mend(folder, level="fast")
    assert scored_again == [2]
    assert found(folder / "out") == [Kind.DAMAGED_CHUNK]
    with pytest.raises(SettingsError, match="fast or full"):
        mend(folder, level="sample")


def test_rule_repair_removes_nothing_that_is_not_ours(folder: Path) -> None:
    out = folder / "out"
    foreign = [out / "scores.zarr" / "label" / "c" / "x", out / "blocks" / "notes.txt", out / "diary"]
    foreign += [out / "blocks" / "000099.json", out / "scores.zarr" / "mine.partial"]
    for path in foreign:
        path.write_text("precious")
    ours = [
        out / "blocks" / "000001.json.partial-0123456789ab",
        chunk(folder, 1).parent / f"0.{'ab' * 16}.partial",
    ]
    for path in ours:
        path.write_text("half")
    flip(chunk(folder, 5), np.random.default_rng(0))
    with pytest.raises(IncompleteError, match=r"record of none of them; remove it.*and 2 other findings"):
        mend(folder)
    assert all(path.read_text() == "precious" for path in foreign)
    assert not any(path.exists() for path in ours)
    for path in foreign:
        path.unlink()
    mend(folder)
    assert found(out) == []


def test_rule_repair_restores_metadata_and_keeps_chunks(folder: Path, scored_again: list[int]) -> None:
    before = contents(folder / "out" / "scores.zarr")
    (folder / "out" / "scores.zarr" / "zarr.json").unlink()
    (folder / "out" / "scores.zarr" / "status" / "zarr.json").write_text("{")
    path = folder / "out" / "scores.zarr" / "decision" / "zarr.json"
    path.write_text(path.read_text().replace('"NaN"', "0.0"))
    mend(folder)
    assert scored_again == []
    after = contents(folder / "out" / "scores.zarr")
    assert {n for n in before if before[n][1] != after[n][1]} == {
        "zarr.json",
        "status/zarr.json",
        "decision/zarr.json",
    }
    assert all(before[name][0] == after[name][0] for name in before)


def test_rule_repair_ends_a_conflict(folder: Path, scored_again: list[int]) -> None:
    conflicting_record(folder / "out", np.random.default_rng(0))
    with pytest.raises(IncompleteError, match="two attempts at this block wrote different values"):
        run(folder)
    mend(folder)
    assert len(scored_again) == 1
    assert found(folder / "out") == []


def test_rule_a_repair_that_is_cut_off_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events: 1 records withdrawn, 2 manifest withdrawn, 3 scored, 4 manifest. Cut off after 1: fast still
    finds it.
    """
    flip(chunk(folder, 5), np.random.default_rng(0))

    def cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", partial_unlink(cut))
        with pytest.raises(KeyboardInterrupt):
            mend(folder)
    assert (folder / "out" / "manifest.json").exists()
    with pytest.raises(IncompleteError, match="no commit record"):
        run(folder)
    with monkeypatch.context() as patch:
        patch.setattr("dcpred.scoring.repair.score_all_rows", cut)
        with pytest.raises(KeyboardInterrupt):
            mend(folder)
    assert run(folder).scored_blocks == 1
    assert found(folder / "out") == []


def partial_unlink(cut: Callable[..., None]) -> Callable[..., None]:
    """Path.unlink that is cut off at the manifest."""
    real = Path.unlink

    def unlink(self: Path, missing_ok: bool = False) -> None:
        cut() if self.name == "manifest.json" else real(self, missing_ok)

    return unlink


@pytest.fixture
def given_up(folder: Path) -> tuple[Path, Path, bytes]:
    """An output with rows given up for want of input chunk 7: its folder, that chunk, and what it held."""
    shutil.rmtree(folder / "out")
    lost = folder / "data.zarr" / "X" / "c" / "7" / "0"
    held = lost.read_bytes()
    lost.unlink()
    report = report_of_incomplete(run, folder, quarantine=True)
    assert report.status == {"1": N_ROWS - 50, "5": 50}
    return folder, lost, held


def test_rule_a_restored_input_chunk_is_scored_and_no_other_block(
    given_up: tuple[Path, Path, bytes],
    made: Callable[[str], Path],
    scored_again: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, lost, held = given_up
    assert found(folder / "out") == [Kind.ROWS_GIVEN_UP]
    assert not verify(folder / "out", "fast").ok
    assert "1 block with skipped rows" in str(
        list(lines_of(VerifyReport, document_of(verify(folder / "out", "fast"))))
    )
    lost.write_bytes(held)
    with pytest.raises(PlanConflictError, match="differs in the data"):
        run(folder)
    said: list[str] = []
    monkeypatch.setattr("dcpred.scoring.repair.show", said.append)
    report = mend(folder)
    assert "1 block with skipped rows; 1 block is scored again" in said
    assert scored_again == [3]
    assert report.status == {"1": N_ROWS}
    assert report.manifest["input_changed"] is True
    right = {
        n: v[0]
        for n, v in contents(made("three classes") / "out" / "scores.zarr").items()
        if n != "zarr.json"
    }
    assert {n: v[0] for n, v in contents(folder / "out" / "scores.zarr").items() if n != "zarr.json"} == right
    assert verify(folder / "out", "sample").ok
    before = contents(folder / "out")
    mend(folder)
    assert contents(folder / "out") == before


def test_rule_rows_given_up_keep_their_record_while_input_is_missing(
    given_up: tuple[Path, Path, bytes],
) -> None:
    folder, lost, _ = given_up
    before = contents(folder / "out")
    assert report_of_incomplete(mend, folder).status["5"] == 50
    assert contents(folder / "out") == before
    lost.write_bytes(b"damaged")
    assert report_of_incomplete(mend, folder).status["5"] == 50
    report = report_of_incomplete(mend, folder, quarantine=True)
    assert report.status == {"1": N_ROWS - 50, "6": 50}


def test_rule_a_repair_from_other_rows_is_refused(given_up: tuple[Path, Path, bytes]) -> None:
    folder, lost, held = given_up
    lost.write_bytes(held)
    array = zarr.open_array(folder / "data.zarr" / "X", mode="r+")
    array[400:] = array[400:][::-1].copy()
    before = contents(folder / "out")
    with pytest.raises(
        PlanConflictError, match=r"holds other rows than the scored ones \(row .*a new directory"
    ):
        mend(folder)
    assert contents(folder / "out") == before


def test_rule_a_repair_from_another_place_or_plan_is_refused(given_up: tuple[Path, Path, bytes]) -> None:
    folder, lost, held = given_up
    shutil.copytree(folder / "data.zarr", folder / "other.zarr")
    (folder / "other.zarr" / "X" / "c" / "7" / "0").write_bytes(held)
    before = contents(folder / "out")
    with pytest.raises(PlanConflictError, match="it was made from"):
        repair(folder / "model", f"{folder}/other.zarr/X", folder / "out")
    lost.write_bytes(held)
    with pytest.raises(PlanConflictError, match="differs in outputs"):
        mend(folder, outputs=("label",))
    with pytest.raises(PlanConflictError, match="holds no plan"):
        repair(folder / "model", f"{folder}/data.zarr/X", folder / "none")
    assert contents(folder / "out") == before


def test_by_worker_processes(folder: Path) -> None:
    flip(chunk(folder, 5), np.random.default_rng(0))
    pool = partial(connect, 1, None)
    assert [f.kind for f in verify(folder / "out", "full", workers=1).findings] == [Kind.DAMAGED_CHUNK]
    repair(folder / "model", f"{folder}/data.zarr/X", folder / "out", client=pool)
    assert verify(folder / "out", "sample", workers=1, rows=50, seed=1).ok


def dcpred(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def test_the_command_line_says_what_is_wrong_and_exits_with_4(folder: Path) -> None:
    out = folder / "out"
    good = dcpred("verify", out, "--level", "fast")
    assert (good.exit_code, "complete and unmodified" in good.stdout) == (0, True)
    for n in range(3, 20):
        chunk(folder, n).write_bytes(b"")
        chunk(folder, n, "label").unlink()
    bad = dcpred("verify", out, "--level", "fast")
    assert bad.exit_code == 4
    assert "17 missing chunk, 17 chunk of another size" in bad.stdout
    assert "\n          and 14 more\n" in bad.stdout
    value = json.loads(dcpred("verify", out, "--level", "fast", "--json").stdout)
    assert (value["ok"], value["found"], len(value["findings"])) == (
        False,
        {"chunk of another size": 17, "missing chunk": 17},
        34,
    )
    assert dcpred("verify", folder / "model", "--level", "fast").exit_code == 3
    (out / "plan.json").write_text("[")
    assert dcpred("verify", out, "--level", "fast").exit_code == 3
    assert dcpred("score", "m", "d", "o", "--level", "full").exit_code == 2
