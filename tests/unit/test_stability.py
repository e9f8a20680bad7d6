"""What the page on stability promises is there, and what earlier versions wrote gives the same bits."""

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import dcpred
from dcpred.cli import main
from dcpred.datasets import importing
from dcpred.refreshing import root
from dcpred.runs import ledger
from dcpred.verification.verify import verify
from dcpred_tasks import errors
from dcpred_tasks.artifacts import model_artifact
from dcpred_tasks.schema import schema
from support import changelog, serve_formats
from support.pools import inline

pytestmark = pytest.mark.cases()  # what is enumerated may grow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "pipeline/docs/stability.md").read_text(encoding="utf-8")
CHANGELOG = changelog.CHANGELOG.read_text(encoding="utf-8")


def rows(heading: str) -> list[tuple[str, ...]]:
    """The cells of the table below a heading."""
    text = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = [
        tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in text.splitlines() if "|" in line
    ]
    return found[2:]


def names(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_public_names() -> None:
    listed = {name.removeprefix("dcpred.") for row in rows("Python") for name in names(row[0])}
    assert listed <= {*dcpred.__all__}
    assert all(getattr(dcpred, name) is not None for name in listed)


def test_exit_codes_of_errors() -> None:
    listed = {name: int(code) for code, classes in rows("Exit codes") for name in names(classes)}
    found = {
        name: one.exit_code
        for name, one in vars(errors).items()
        if isinstance(one, type) and issubclass(one, errors.DcpredError)
    }
    assert listed == found


def test_exit_codes_of_operations() -> None:
    page = (ROOT / "deploy/README.md").read_text(encoding="utf-8")
    table = page.partition("| exit code | meaning |")[2].partition("\n\n")[0]
    stated = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    assert stated == {0, 2} | {int(code) for code, _ in rows("Exit codes")}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The keys that each command prints."""
    folder = tmp_path_factory.mktemp("keys")
    keys: dict[str, set[str]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("dcpred.execution.pools.connect", lambda *_: inline())
        for line in (
            "example",
            "import known.csv known.zarr --target label --id id --json",
            "split known.zarr --json",
            "train known-train.zarr model --set n_leaves=1 --set landmarks=4 --json",
            "evaluate model known-test.zarr --json",
            "import new.csv new.zarr --like model --json",
            "score model new.zarr scores --json",
            "status scores --json",
            "errors scores --json",
            "verify scores --json",
            "export scores scores.csv --json",
            "explain model new.zarr --rows 1 --json",
            "refresh model new.zarr root --json",
        ):
            result = CliRunner().invoke(main, line.split())
            assert result.exit_code == 0, f"{line}: {result.output}"
            if "--json" in line:
                keys[line.split()[0]] = set(json.loads(result.stdout))
    return keys


def test_keys_of_json(printed: dict[str, set[str]]) -> None:
    listed = {name: set(names(keys)) for command, keys in rows("Keys of `--json`") for name in names(command)}
    assert listed.keys() == printed.keys()
    missing = {name: keys - printed[name] for name, keys in listed.items() if keys - printed[name]}
    assert not missing


def test_file_formats() -> None:
    assert [row[1:] for row in rows("Files")] == [
        (f"`{model_artifact.FORMAT}`", str(model_artifact.VERSION)),
        (f"`{ledger.FORMAT}`", str(ledger.VERSION)),
        (f"`{root.FORMAT}`", str(root.VERSION)),
        ("", str(importing.DATASET_VERSION)),
        ("", str(schema.VERSION)),
    ]


MODELS = sorted((ROOT / "tests/data/formats").glob("model-*.tar.xz"))


def test_every_version_of_the_model_format_has_its_model() -> None:
    assert [path.name for path in MODELS] == [
        f"model-{version:02}.tar.xz" for version in range(2, model_artifact.VERSION + 1)
    ]


@pytest.mark.parametrize("archive", MODELS, ids=lambda path: path.name.partition(".")[0])
def test_a_model_of_every_format_gives_the_same_bits(archive: Path, tmp_path: Path) -> None:
    found, expected = serve_formats.served(archive, tmp_path)
    version = json.loads((tmp_path / "model" / "model.json").read_text())["version"]
    assert archive.name == f"model-{version:02}.tar.xz"
    assert found.dtype == expected.dtype
    is_baseline = archive.name.startswith(serve_formats.BASELINES)  # BLAS: last bits depend on the processor
    np.testing.assert_allclose(found, expected, rtol=1e-6 if is_baseline else 0)


def test_a_run_of_an_earlier_version_has_the_same_bits(tmp_path: Path) -> None:
    shutil.unpack_archive(ROOT / "tests/data/formats/run-01.tar.xz", tmp_path, filter="data")
    report = verify(tmp_path / "scores", "full")
    assert report.ok
    assert report.findings == []
    scores = zarr.open_group(tmp_path / "scores" / "scores.zarr", mode="r")
    X = zarr.open_group(tmp_path / "new.zarr", mode="r")["X"][...]
    model = dcpred.load_model(tmp_path / "model")
    np.testing.assert_array_equal(model.decision_function(X), scores["decision"][...].squeeze())
    assert [column.name for column in model.schema_.sources] == ["size", "town"]


def test_the_changelog_has_the_standard_form() -> None:
    heads = list(changelog.HEAD.finditer(CHANGELOG))
    assert len(heads) == CHANGELOG.count("\n## ")
    assert heads[0]["version"] == dcpred.__version__
    dates = [head["date"] for head in heads]
    assert dates == sorted(dates, reverse=True)
    for head, following in pairwise([*heads, None]):
        section = CHANGELOG[head.end() : following.start() if following else None] if head else ""
        kinds = changelog.KIND.findall(section)
        assert kinds
        assert kinds == [kind for kind in changelog.KINDS if kind in kinds]


def test_files_of_changes_become_a_section_of_the_changelog() -> None:
    before = "# Changelog\n\n## [0.1.0] - 2026-01-01\n\n### Added\n\n- One.\n"
    once = changelog.with_changes(
        before, "0.2.0", "2026-02-02", ["Fixed: A\nthing.\n", "- Two.\n- Three:\n  3.\n"]
    )
    assert once == (
        "# Changelog\n\n## [0.2.0] - 2026-02-02\n\n### Changed\n\n- Two.\n- Three: 3.\n\n### Fixed\n\n"
        "- A thing.\n\n## [0.1.0] - 2026-01-01\n\n### Added\n\n- One.\n"
    )
    twice = changelog.with_changes(once, "0.2.0", "2026-02-02", ["Fixed: [B](../../b.md).\n"])
    assert twice == once.replace("- A thing.\n", "- A thing.\n- [B](../b.md).\n")
