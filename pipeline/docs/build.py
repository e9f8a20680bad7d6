"""Build the documentation site, with warnings as errors, and run the examples of its gallery.

    python pipeline/docs/build.py [FOLDER]

writes the site into FOLDER (build/site). Its pages are the Markdown pages of the repository, which stay where
they are: this program lays them out by subject, turns links between files into links between pages, and adds
what is generated: the API, the commands and the keys of `--json`. DCPRED_GALLERY=quick runs
the examples on little data.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import reference
from sphinx.cmd.build import main as sphinx

ROOT = Path(__file__).parents[2]
DOCS = Path(__file__).parent
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^## (?P<title>.*)$", re.MULTILINE)


class Section(NamedTuple):
    """A part of the site: its title, a sentence, and its pages by their names. A page is a file of the
    repository, or one section of a file as `file#heading`. A page of `reference.PAGES` is generated.
    """

    title: str
    sentence: str
    pages: dict[str, str]


SITE = {
    "start": Section(
        "Get started",
        "Install dcpred, and go through the whole job once.",
        {
            "install": "pipeline/docs/site/install.md",
            "tutorial": "pipeline/docs/site/tutorial.md",
            "overview": "README.md",
        },
    ),
    "howto": Section(
        "How-to guides",
        "One task on each page. Commands and Python code of these pages run in the tests.",
        {
            "tables": "pipeline/docs/data.md",
            "training": "pipeline/docs/training.md",
            "prediction": "pipeline/docs/prediction.md",
            "questions": "pipeline/docs/questions.md",
            "functions": "pipeline/docs/functions.md",
            "estimators": "pipeline/docs/estimators.md",
            "notebooks": "pipeline/docs/site/notebooks.md",
            "cluster": "pipeline/docs/site/cluster.md",
            "refresh": "deploy/refresh.md",
            "orchestrators": "pipeline/docs/site/orchestrators.md",
            "stores": "deploy/stores.md",
            "slurm": "pipeline/docs/site/slurm.md",
            "kubernetes": "pipeline/docs/site/kubernetes.md",
            "half_an_hour": "deploy/half_an_hour.md",
            "operations": "deploy/README.md",
            "observability": "deploy/observability.md",
            "tls": "deploy/tls.md",
            "trials": "deploy/trials.md",
            "serving": "tasks/SERVING.md",
        },
    ),
    "concepts": Section(
        "Concepts",
        "What dcpred computes, what it costs, and what you can rely on.",
        {
            "method": "pipeline/docs/site/method.md",
            "cost": "pipeline/docs/comparison.md",
            "architecture": "pipeline/docs/architecture.md",
            "how_it_works": "tasks/README.md",
            "engine": "tasks/dcpred_tasks/native/DESIGN.md",
        },
    ),
    "reference": Section(
        "Reference",
        "Every public name, command, setting, exit code, key and file.",
        {
            "api": "",
            "guide": "pipeline/docs/index.md",
            "commands": "",
            "settings": "pipeline/docs/settings.md",
            "remarks": "pipeline/docs/remarks.md",
            "exit_codes": "deploy/README.md#status-and-exit-codes",
            "json": "",
            "stability": "pipeline/docs/stability.md",
            "files": "tasks/README.md#files",
            "glossary": "tasks/README.md#glossary",
        },
    ),
    "project": Section(
        "Project",
        "How dcpred is measured, decided, changed and tested.",
        {
            "benchmarks": "tests/benchmarks/README.md",
            "decisions": "tasks/DECISIONS.md",
            "changelog": ".github/CHANGELOG.md",
            "contributing": ".github/CONTRIBUTING.md",
            "tests": "tests/README.md",
            "security": ".github/SECURITY.md",
            "conduct": ".github/CODE_OF_CONDUCT.md",
        },
    ),
}
# Entries of tables of contents that are not the page under its own title.
TITLES = {"api": "api/index", "overview": "Overview <overview>"}
HOME = "pipeline/docs/site/home.md"
# Pages of the repository that have no page of their own here, and the page that says the same.
SAME = {"pipeline/README.md": "reference/guide", ".github/changes/README.md": "project/changelog"}


def slug(title: str) -> str:
    """What a heading is called in addresses."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def places() -> dict[str, str]:
    """The page of the site for each source."""
    found = {HOME: "index", **SAME}
    for name, section in SITE.items():
        found |= {source: f"{name}/{page}" for page, source in section.pages.items() if source}
    return found


def parts(text: str) -> Iterator[tuple[str, str]]:
    """(address of the heading, text) of what comes before the first section, and of each section."""
    starts = [0, *(found.start() for found in HEADING.finditer(text)), len(text)]
    for start, end in pairwise(starts):
        found = HEADING.match(text, start)
        yield slug(found["title"]) if found else "", text[start:end]


def content(source: str, at: dict[str, str]) -> str:
    """A page: a file without the sections that are pages of their own, or one such section."""
    file, _, wanted = source.partition("#")
    found = parts((ROOT / file).read_text(encoding="utf-8"))
    if wanted:
        (text,) = (text for heading, text in found if heading == wanted)
        return re.sub("^##", "#", text, flags=re.MULTILINE)
    kept = []
    for heading, text in found:
        own = f"{file}#{heading}" in at
        title = text.partition("\n")[0]
        kept.append(f"{title}\n\nSee [{title.strip('# ')}](#{heading}).\n\n" if own else text)
    return "".join(kept)


class Stage:
    """The folder that Sphinx reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.at = places()

    def write(self, page: str, text: str) -> None:
        path = self.folder / f"{page}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def linked(self, text: str, source: str, page: str) -> str:
        """The text of a page with the links of the site. A file that is no page is copied, and downloaded."""

        def moved(found: re.Match[str]) -> str:
            path, _, heading = found["target"].partition("#")
            if "://" in path:
                return found[0]
            own = source.partition("#")[0]
            file = os.path.normpath(PurePosixPath(own).parent / path) if path else own
            target = self.at.get(f"{file}#{heading}")
            if target is None and file in self.at:
                target, heading = self.at[file], heading and f"#{heading}"
            else:
                heading = ""
            if target is None:
                self.copy(file)
                target = f"files/{file}"
            else:
                target += ".md"
            return f"]({os.path.relpath(target, PurePosixPath(page).parent)}{heading})"

        return LINK.sub(moved, text)

    def copy(self, file: str) -> None:
        target = self.folder / "files" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, target)

    def fill(self) -> None:
        self.write(
            "index",
            self.linked(content(HOME, self.at), HOME, "index")
            + contents(["start", "howto", "gallery", "concepts", "reference", "project"]),
        )
        for name, section in SITE.items():
            for page, source in section.pages.items():
                if source:
                    text = content(source, self.at)
                    self.write(f"{name}/{page}", self.linked(text, source, f"{name}/{page}"))
            overview = f"# {section.title}\n\n{section.sentence}\n"
            self.write(f"{name}/index", overview + contents(section.pages, hidden=False))
        for page, source, text in reference.pages():
            self.write(page, self.linked(text, source, page) if source else text)
        shutil.copytree(DOCS / "gallery", self.folder / "gallery_scripts")


def contents(pages: Iterator[str] | list[str] | dict[str, str], *, hidden: bool = True) -> str:
    """A table of contents of pages beside this one."""
    names = [f"{page}/index" if page in (*SITE, "gallery") else page for page in pages]
    names = [TITLES.get(name, name) for name in names]
    options = ":hidden:\n" if hidden else ":maxdepth: 1\n"
    return "\n:::{toctree}\n" + options + "\n".join(["", *names]) + "\n:::\n"


def main(folder: Path) -> int:
    stage = folder.with_name(f"{folder.name}-pages")
    for old in (folder, stage):
        shutil.rmtree(old, ignore_errors=True)
    Stage(stage).fill()
    options = ["-q", "-W", "--keep-going", "-E", "-d", f"{stage}-read", "-c", str(DOCS)]
    return sphinx([*options, str(stage), str(folder)])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/site").absolute()))
