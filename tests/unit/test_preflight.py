"""Preflight of an output: whether it is apart from the input, and what a store must heed."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from dcpred.scoring.place_checks import check_apart, check_conditions
from dcpred_tasks.errors import DataError
from dcpred_tasks.storage import bucket, store_requests
from dcpred_tasks.storage.addresses import absolute
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.storage.store_requests import StoreError


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(store_requests, "FIRST_WAIT_SECONDS", 0.001)
    with monkeypatch.context() as patch:
        patch.setitem(bucket.IN_MEMORY, "preflight", MemoryStore())
        yield open_place("memory://preflight/out")


def failing(n: int, real: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    """What fails n times, and then does what it should."""

    def call(*args: Any) -> Any:
        calls.append(args[-1])
        if len(calls) <= n:
            raise StoreError("the store does not answer")
        return real(*args)

    return call


def test_a_probe_that_is_not_removed_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(bucket.Bucket, "remove", failing(3, bucket.Bucket.remove, calls))
    check_conditions(place)
    assert len(calls) == 4
    assert place.listing() == {}


def test_a_store_that_keeps_what_is_removed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket.Bucket, "remove", lambda *_: None)
    with pytest.raises(DataError, match="removed objects stay there"):
        check_conditions(place)


def test_a_store_that_does_not_remove_for_long(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """No refusal: the same command may do a minute later."""
    monkeypatch.setattr(bucket.Bucket, "remove", failing(99, bucket.Bucket.remove, []))
    with pytest.raises(StoreError):
        check_conditions(place)


INSIDE = (
    ("az://c/d.zarr/X", "abfs://c/d.zarr/X/out"),
    ("abfs://c/d.zarr/X", "az://c/d.zarr/X/out/"),
    ("abfs://c/d.zarr/X/", "abfs://c/d.zarr/X"),
    ("s3://c", "s3://c/d.zarr/out"),
    ("{here}/x.zarr", "file://{here}/x.zarr/out"),
    ("file://{here}/x.zarr/", "x.zarr/out"),
    ("file://localhost{here}/x.zarr", "{here}/other/../x.zarr//out/"),
    ("link", "{here}/x.zarr/out"),
    ("x.zarr", "file://{here}/link"),
)
APART = (
    ("az://c/d.zarr/X", "abfs://c/d.zarr/X2"),
    ("az://c/d.zarr/X", "az://c/d.zarr/x/out"),
    ("az://c/d.zarr/X", "s3://c/d.zarr/X/out"),
    ("s3://c/d.zarr/X", "s3://c2/d.zarr/X/out"),
    ("s3://c/d.zarr/X", "s3://C/d.zarr/X/out"),
    ("x.zarr", "{here}/x.zarr2"),
    ("x.zarr", "X.zarr/out"),
)


@pytest.mark.parametrize(("asked", "refused"), [*((a, True) for a in INSIDE), *((a, False) for a in APART)])
def test_an_output_within_the_input(
    asked: tuple[str, str], refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whatever address either is named. Names of stores, and of folders here, differ in the case of their
    letters.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("x.zarr", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("x.zarr")
    x, output = (text.format(here=tmp_path) for text in asked)
    with pytest.raises(DataError, match="inside the input") if refused else nullcontext():
        check_apart(x, output)


def test_one_place_has_one_address(tmp_path: Path) -> None:
    """A scheme in other letters is none; the host of a server is the same in all of them."""
    assert absolute("abfs://c/d.zarr/") == absolute("az://c/d.zarr") == "az://c/d.zarr"
    assert absolute("https://Host:1/D.zarr") == "https://host:1/D.zarr"
    for text in ("AZ://c/d.zarr", "FILE:///d.zarr"):
        with pytest.raises(DataError, match="its scheme is unknown"):
            absolute(text)
    for text, plain in {"delta:///t": "/t", "delta://a/t": "a/t", "delta+s3://b/t": "s3://b/t"}.items():
        with pytest.raises(DataError, match=f"write {plain}\\."):
            absolute(text)
