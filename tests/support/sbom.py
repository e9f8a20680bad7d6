"""The bill of materials of the distributions, as CycloneDX: what each requires; none bundles anything.

python tests/support/sbom.py         # after a change of the version or a dependency
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROJECTS = {"dcpred": ROOT / "pyproject.toml", "dcpred-serving": ROOT / "tasks" / "pyproject.toml"}


def sbom_path(name: str) -> Path:
    return ROOT / "deploy" / "sboms" / f"{name}.cdx.json"


def version() -> str:
    text = (ROOT / "pipeline/dcpred/version.py").read_text(encoding="utf-8")
    return re.findall(r'__version__ = "([^"]+)"', text)[0]


def sbom(name: str) -> dict[str, Any]:
    """The document of a distribution."""
    requirements = tomllib.loads(PROJECTS[name].read_text(encoding="utf-8"))["project"]["dependencies"]
    required = sorted(re.split(r"[\[<>=!~; ]", one)[0].lower() for one in requirements)
    own = f"pkg:pypi/{name}@{version()}"
    refs = [f"pkg:pypi/{one}" for one in required]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": name,
                "version": version(),
                "purl": own,
                "licenses": [{"license": {"id": "BSD-3-Clause"}}],
            }
        },
        "components": [
            {"type": "library", "bom-ref": ref, "name": one, "purl": ref, "scope": "required"}
            for one, ref in zip(required, refs, strict=True)
        ],
        "dependencies": [{"ref": own, "dependsOn": refs}, *({"ref": ref} for ref in refs)],
    }


def text_of(name: str) -> str:
    return json.dumps(sbom(name), indent=1) + "\n"


if __name__ == "__main__":
    for project in PROJECTS:
        sbom_path(project).parent.mkdir(exist_ok=True)
        sbom_path(project).write_text(text_of(project), encoding="utf-8")
