"""Checks that take a minute and come out the same for the same sources: made again where anything of them
changed. tests/support/settled.json holds digests of what they passed with.

    DCPRED_SETTLED=again python -m pytest …     makes them all
    DCPRED_SETTLED=write python -m pytest …     makes them, and writes down what they passed with
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FILE = Path(__file__).with_suffix(".json")


@contextmanager
def settled(name: str, *inputs: str | bytes) -> Iterator[None]:
    """A check by its name, and everything that it depends on. The test is skipped where it passed before."""
    digest = hashlib.sha256()
    for one in inputs:
        data = one if isinstance(one, bytes) else one.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    asked, known = os.environ.get("DCPRED_SETTLED"), json.loads(FILE.read_text())
    if asked is None and known.get(name) == digest.hexdigest():
        pytest.skip("it passed with these very sources and versions; DCPRED_SETTLED=again makes it again")
    yield
    if asked == "write":
        FILE.write_text(json.dumps({**known, name: digest.hexdigest()}, indent=2, sort_keys=True) + "\n")
