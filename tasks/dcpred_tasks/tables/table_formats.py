"""Formats of tables whose log states which files hold rows. Read as a plain folder, such a table would have
deleted rows, too.
"""

import os
import re
from collections.abc import Iterable

from dcpred_tasks.errors import DataError
from dcpred_tasks.storage.addresses import DELTA_LOG, below, is_remote
from dcpred_tasks.storage.place import open_place

DELTA = "Delta"
# The folder of the log of a format, and the start of a path in it that no other folder has.
SIGNS = {
    DELTA: (DELTA_LOG, re.compile("")),
    "Hudi": (".hoodie", re.compile("")),
    "Iceberg": ("metadata", re.compile(r"version-hint\.text$|[^/]*(\.metadata\.json|\.avro$)")),
}
WITHIN = re.compile(r"/(?:[^/]+=[^/]*|data)$")  # a folder of rows within such a table


def has_format(address: str, name: str) -> bool:
    """Whether the folder at an address is a table of a format of SIGNS."""
    log, sign = SIGNS[name]
    if is_remote(address):
        place = open_place(address)
        return place.lists and any(map(sign.match, place.names(log)))
    folder = os.path.join(address, log)
    return os.path.isdir(folder) and any(map(sign.match, ["", *os.listdir(folder)]))


def refuse_logged_tables(base: str, names: Iterable[str], listed: Iterable[str] | None) -> None:
    """Raise DataError for files that belong to a table with a log.

    base    a folder
    names   paths of the files below it
    listed  all paths below it in a store; None on a disk
    """
    parts = [name.split("/")[:-1] for name in names]
    folders = {"/".join(part[:n]) for part in parts for n in range(len(part) + 1)}
    outer = [base if is_remote(base) else os.path.abspath(base)]
    while within := WITHIN.search(outer[-1]):
        outer.append(outer[-1][: within.start()])
    for name in SIGNS:
        if listed is None:
            tables = [folder for folder in folders if has_format(os.path.join(base, folder), name)]
        else:
            tables = list(_logged(listed, name) & folders)
        refused = sorted(below(base, table) if table else base for table in tables)
        refused += [folder for folder in outer[1:] if has_format(folder, name)]
        if refused:
            do = "Name that folder" if name == DELTA else "Write its rows as Parquet, and name those"
            raise DataError(
                f"Cannot read the files of {refused[0]} as rows: it is a table of {name}, whose log states"
                f" which of them hold rows. {do}."
            )


def _logged(paths: Iterable[str], name: str) -> set[str]:
    """The folders of tables of a format among the paths below a folder."""
    log, sign = SIGNS[name]
    split = (f"/{path}".partition(f"/{log}/") for path in paths)
    return {folder[1:] for folder, there, rest in split if there and sign.match(rest)}
