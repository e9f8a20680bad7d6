"""Checks that take a minute and come out the same for the same sources and packages: made again where any of
those changed. tests/support/settled.json holds what they passed with.

    DCPRED_SETTLED=again python -m pytest …     makes them all
    DCPRED_SETTLED=write python -m pytest …     makes them, and writes down what they passed with

Where sources changed and nobody wrote that down, the test fails at once: else every run of all tests would
make the check.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest

FILE = Path(__file__).with_suffix(".json")


@contextmanager
def settled(
    name: str, sources: Iterable[str | bytes], packages: Iterable[str], tools: Mapping[str, str]
) -> Iterator[None]:
    """A check by its name, and everything that it depends on, with versions and options of other programs by
    their names. The test is skipped where it passed before.
    """
    digest = hashlib.sha256()
    for one in sources:
        data = one if isinstance(one, bytes) else one.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    versions = {**{package: version(package) for package in packages}, **tools}
    found = {"sources": digest.hexdigest(), "versions": versions}
    asked, known = os.environ.get("DCPRED_SETTLED"), json.loads(FILE.read_text()).get(name, {})
    if asked is None and known == found:
        pytest.skip("it passed with these very sources and versions; DCPRED_SETTLED=again makes it again")
    if asked is None and known.get("sources") != found["sources"]:
        pytest.fail(
            f"{FILE.name} knows other sources of this check: run this test with DCPRED_SETTLED=write, and"
            " commit what it writes down",
            pytrace=False,
        )
    yield
    if asked == "write":
        written = {**json.loads(FILE.read_text()), name: found}
        FILE.write_text(json.dumps(written, indent=2, sort_keys=True) + "\n")
