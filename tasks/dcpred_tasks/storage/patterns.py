"""Which files a folder holds, and what matches a pattern: one rule for every command, disk and store.

- `*` is any part of a name, `?` one letter, `[ab]` one of two, `[!ab]` another one, `**` any folders.
- A name that begins with `.` or `_` is hidden at every level, and so is what lies below it, unless it is a
  partition (`_day=1`), or the address or pattern names it.
- Links are followed. What several names lead to counts once, under its own name if that is among them, and a
  link to a folder around it leads nowhere.
- What lies below a match is not another one.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from dcpred_tasks.errors import DataError, ResourceError
from dcpred_tasks.storage.addresses import is_remote, local_path
from dcpred_tasks.storage.atomic_files import is_system_file
from dcpred_tasks.storage.place import open_place

WILD, FOLDERS = "*?[", "**"
PARTITION = "="  # in the name of a folder of a column and its value
UNFINISHED = ".partial-"  # in the names of files and folders that nobody completed


class Match(NamedTuple):
    """A file or folder that matches a pattern."""

    name: str
    """Its path below the fixed folders of the pattern."""
    wildcards: tuple[str, ...]
    """The names that wildcards match."""


def is_pattern(address: str | Path) -> bool:
    """Whether an address is a pattern: it has wildcards, and nothing on the disk has this name."""
    path = local_path(address)
    if not _is_wild(path):
        return False
    return is_remote(path) or not os.path.lexists(path)


def _is_wild(name: str) -> bool:
    return any(sign in name for sign in WILD)


def is_hidden(name: str) -> bool:
    """Whether a path, with `/` between names, has a name that readers of tables omit."""
    return is_system_file(name) or any(
        part.startswith(".") or UNFINISHED in part or (part.startswith("_") and PARTITION not in part)
        for part in name.split("/")
    )


def match_pattern(pattern: str) -> tuple[str, list[Match]]:
    """The address of the fixed folders of a pattern, and what matches below it, by name.

    Raises DataError for an invalid pattern.
    """
    parts = local_path(pattern).rstrip("/").split("/")
    n_fixed = next(
        i for i, part in enumerate(parts) if _is_wild(part) and is_pattern("/".join(parts[: i + 1]))
    )
    base = "/".join(parts[:n_fixed]) or ("/" if pattern.startswith("/") else ".")
    wanted = [part.replace("[^", "[!") for part in parts[n_fixed:]]
    if any(FOLDERS in part and part != FOLDERS for part in wanted):
        raise DataError(
            f"Cannot use the pattern {pattern}: ** stands for folders, alone between two slashes. Write"
            " **/*.parquet for the files of all folders."
        )
    if wanted[-1] == FOLDERS:
        wanted.append("*")
    tree = _Tree(base, recursive=FOLDERS in wanted)
    matches = [Match("", ())]
    for part in wanted:
        matches = [child for match in matches for child in _step(tree, match, part)]
    return base, _distinct(matches, tree.real)


def _step(tree: "_Tree", match: Match, part: str) -> Iterator[Match]:
    """What one part of a pattern matches in a folder."""
    if part == FOLDERS:
        for folder in tree.folders(match.name):
            inner = folder[len(match.name) :].strip("/")
            yield Match(folder, (*match.wildcards, *filter(None, inner.split("/"))))
        return
    names = tree.names(match.name)
    if not _is_wild(part) or ("[" in part and part in names):
        if part in names:
            yield Match(_join(match.name, part), match.wildcards)
        return
    for name in sorted(names):
        if fnmatchcase(name, part) and not is_hidden(name) and tree.leads_on(_join(match.name, name)):
            yield Match(_join(match.name, name), (*match.wildcards, name))


def _distinct(matches: Iterable[Match], real: Callable[[str], str]) -> list[Match]:
    """The matches without those that lead to, or lie below, what another one leads to."""
    distinct: dict[str, Match] = {}
    top = real("").rstrip("/")
    for match in sorted(matches):
        where = real(match.name)
        if where not in distinct or where == f"{top}/{match.name}":
            distinct[where] = match
    return sorted(match for where, match in distinct.items() if not _is_below(where, distinct))


def _is_below(path: str, others: Iterable[str]) -> bool:
    known = others if isinstance(others, dict) else set(others)
    while "/" in path:
        path = path.rpartition("/")[0]
        if path in known:
            return True
    return False


def _join(folder: str, name: str) -> str:
    return "/".join(filter(None, (folder, name)))


class _Tree:
    """Names below a folder, on a disk or a store, where `recursive` lists all of them at once."""

    def __init__(self, base: str, *, recursive: bool) -> None:
        self.base, self.on_disk = base, not is_remote(base)
        self.place = None if self.on_disk else open_place(base)
        self.held: dict[str, set[str]] | None = None
        if self.place is not None and recursive:
            self.held = {"": set()}
            for key in self.place.listing():
                folder, parts = "", key.split("/")
                for part in parts:
                    self.held.setdefault(folder, set()).add(part)
                    folder = _join(folder, part)

    def names(self, folder: str) -> set[str]:
        """All names directly in a folder; none in a file."""
        if self.held is not None:
            return self.held.get(folder, set())
        if self.place is not None:
            return self.place.names(folder)
        return {entry.name for entry in _entries(os.path.join(self.base, folder))}

    def folders(self, folder: str) -> Iterator[str]:
        """A folder, and all visible ones below it."""
        if self.held is None:
            for name, _, _ in walk(os.path.join(self.base, folder)):
                yield _join(folder, name)
            return
        for name in self.held:
            if name == folder or not folder or name.startswith(f"{folder}/"):
                inner = name[len(folder) :].strip("/")
                if not inner or not is_hidden(inner):
                    yield name

    def real(self, name: str) -> str:
        return os.path.realpath(os.path.join(self.base, name)) if self.on_disk else f"/{name}".rstrip("/")

    def leads_on(self, name: str) -> bool:
        """Whether a name is no link to a folder around it."""
        return not self.on_disk or _leads_on(os.path.join(self.base, name))


def _leads_on(path: str) -> bool:
    if not os.path.islink(path):
        return True
    here = os.path.realpath(os.path.dirname(path))
    return not f"{here}/".startswith(f"{os.path.realpath(path).rstrip('/')}/")


def _entries(path: str) -> list["os.DirEntry[str]"]:
    """The entries of a folder of a disk, by name; none of a file. Raises ResourceError."""
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):  # removed meanwhile, or no folder
        return []
    except OSError as error:
        raise ResourceError(
            f"Cannot list {path}: {error.strerror}. Get permission, then run again."
        ) from None


def walk(folder: str) -> Iterator[tuple[str, str, list["os.DirEntry[str]"]]]:
    """Name, real path and visible files of each visible folder of a disk from `folder` on. A folder that
    links lead to comes once, and by its own name if that is among them.
    """
    top = os.path.realpath(folder)
    waiting, links, seen = deque([("", top)]), list[str](), {top}
    while waiting or links:
        if waiting:
            name, real = waiting.popleft()
        else:
            links.remove(name := min(links))
            real = os.path.realpath(os.path.join(folder, name))
            if real in seen or not _leads_on(os.path.join(folder, name)):
                continue
            seen.add(real)
        files = []
        for entry in _entries(os.path.join(folder, name)):
            inner = _join(name, entry.name)
            if is_hidden(entry.name):
                continue
            if not entry.is_dir():
                files.append(entry)
            elif entry.is_symlink():
                links.append(inner)
            elif (below_it := os.path.join(real, entry.name)) not in seen:
                seen.add(below_it)
                waiting.append((inner, below_it))
        yield name, real, files


def files_of(
    base: str, names: Iterable[str], is_wanted: Callable[[str], bool], listed: Iterable[str] | None
) -> list[list[str]]:
    """The files of each of some matches below `base`: themselves, and visible ones in folders. A file that
    links lead to comes once, in the first match that has it, and by its own name if that is among them.

    is_wanted  whether the name of a file is that of rows
    listed     all names below `base` on a store; None: it is a folder of a disk
    """
    if listed is not None:
        keys = [key for key in listed if is_wanted(key)]
        return [[key for key in keys if key == name or _is_visible_below(key, name)] for name in names]
    top, addresses, where = os.path.realpath(base), dict[str, str](), list[dict[str, str]]()
    for match in names:
        held = dict(_files_on_disk(base, match, is_wanted))
        where.append(held)
        for name, real in sorted(held.items()):
            if real not in addresses or real == os.path.join(top, name):
                addresses[real] = name
    return [[name for name, real in held.items() if addresses[real] == name] for held in where]


def _is_visible_below(key: str, folder: str) -> bool:
    return key.startswith(f"{folder}/" * bool(folder)) and not is_hidden(key[len(folder) :].strip("/"))


def _files_on_disk(base: str, match: str, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Names and real paths."""
    path = os.path.join(base, match)
    if not os.path.isdir(path):
        if is_wanted(match):
            yield match, os.path.realpath(path)
        return
    for folder, real, files in walk(path):
        for entry in files:
            if is_wanted(entry.name):
                where = os.path.realpath(entry.path) if entry.is_symlink() else os.path.join(real, entry.name)
                yield _join(match, _join(folder, entry.name)), where
