"""What every kind of place must do: a folder, and prefixes of stores by servers of other people.

The conditional operations are tried under faults of requests, too. Of each rule that they rest on, a test
takes it out of the source, and finds the contract broken.
"""

import re
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import zarr

import dcpred
from dcpred.runs.record_cache import CachedRecords, read_records
from dcpred_tasks.artifacts.commit_records import ScoreRun, list_records
from dcpred_tasks.errors import ResourceError
from dcpred_tasks.storage.addressed_arrays import open_group
from dcpred_tasks.storage.atomic_files import write_bytes
from dcpred_tasks.storage.bucket import IN_MEMORY, Bucket, same_tag
from dcpred_tasks.storage.object_arrays import arrays_store
from dcpred_tasks.storage.place import Folder, open_place
from dcpred_tasks.storage.place_types import Place
from dcpred_tasks.storage.store_requests import THREADS as THREADS_OF_REQUESTS
from dcpred_tasks.storage.store_requests import StoreError
from support.mutations import mutated
from support.stores import Proxy, StoreServer, secure_spoiled, used

ODD = ("a b", "ä", "100%", "a%20b", "a+b", "a=b&c", "x'y", "(1)", "~", "a.b-c_d", "c/0/0", ".hidden")
THREADS, TIMES = 8, 3
# What may happen to a request that takes place in the end, or did already.
FAULTS = (
    "drop before",
    "drop after",
    "503 before",
    "503 after",
    "500 after",
    "429 before",
    "409 before",
    "409 after",
    "half",
    "delay:0.05",
)


def on(server: StoreServer) -> Iterator[Place]:
    """A place of its own on a server."""
    with used(server):
        yield open_place(server.address(secrets.token_hex(4), "run"))


class PlaceContract:
    """Fixture `place`: a place where nothing is yet, whose address ends with /run. Folders are made before
    something is written to them, as where they are needed.
    """

    def test_what_is_created_stands(self, place: Place) -> None:
        place.make_folder("")
        assert place.read("a.json") is None
        assert place.create("a.json", b"one")
        standing = place.read("a.json")
        assert standing is not None
        assert standing.data == b"one"
        assert same_tag(place.written_tag("a.json") or standing.tag, standing.tag)

    def test_names_are_looked_up_without_their_bytes(self, place: Place) -> None:
        place.make_folder("blocks")
        for name in ("a", "blocks/0"):
            place.write(name, b"one")
        assert place.present(["a", "b", "blocks/0", "none/0"]) == {"a", "blocks/0"}

    def test_a_file_is_sent_and_fetched(self, place: Place, tmp_path: Path) -> None:
        place.make_folder("")
        file = tmp_path / "file"
        for content in (b"one", b"another"):
            file.write_bytes(content)
            place.send("a", file)
            with file.open("wb") as back:
                place.fetch("a", back)
            assert file.read_bytes() == data(place, "a") == content
        with pytest.raises(FileNotFoundError), file.open("wb") as back:
            place.fetch("missing", back)

    def test_capabilities_are_those_it_has(self, place: Place) -> None:
        place.make_folder("")
        assert place.create("a", b"one")
        assert place.has_tags == bool(place.written_tag("a"))
        for folder in {place.folder, place.links} - {None}:
            assert folder is not None
            assert (folder / "a").read_bytes() == b"one"

    def test_who_guards_a_name_is_alone_until_it_ends(self, place: Place) -> None:
        """Where the system has locks. Elsewhere it says so, and keeps nobody out."""
        place.make_folder("")
        place.write("a", b"one")
        another, locks = open_place(place.address), place.folder is not None
        with another.guarded("a", shared=True) as seen:
            assert seen is False, "it was never guarded"
        with place.guarded("a") as guarded:
            assert guarded is locks
            for shared in (False, True):
                with another.guarded("a", shared=shared) as seen:
                    assert seen is (None if locks else False)
            assert place.replace("a", b"two", tag_of(place, "a")) is not None
        with another.guarded("a", shared=True) as seen, place.guarded("a", shared=True) as seen_too:
            assert seen is seen_too is locks
            with place.guarded("a") as guarded:
                assert guarded is (None if locks else False)
        assert place.replace("a", b"three", tag_of(place, "a")) is not None

    def test_a_name_is_created_once(self, place: Place) -> None:
        place.make_folder("blocks")
        assert place.create("blocks/0.json", b"one")
        assert not place.create("blocks/0.json", b"other")
        assert data(place, "blocks/0.json") == b"one"

    def test_a_name_is_free_once_it_is_removed(self, place: Place) -> None:
        place.make_folder("")
        assert place.create("a", b"one")
        place.remove("a")
        assert place.read("a") is None
        assert place.create("a", b"other")

    def test_what_has_the_tag_is_replaced(self, place: Place) -> None:
        place.make_folder("")
        place.write("a", b"one")
        tag = tag_of(place, "a")
        new = place.replace("a", b"other", tag)
        assert new is not None
        assert not same_tag(new, tag)
        assert tag_of(place, "a") == new
        assert data(place, "a") == b"other"

    def test_what_has_another_tag_is_not(self, place: Place) -> None:
        place.make_folder("")
        place.write("a", b"one")
        old = tag_of(place, "a")
        place.write("a", b"two")
        assert place.replace("a", b"three", old) is None
        assert data(place, "a") == b"two"

    def test_equal_bytes_that_were_put_again(self, place: Place) -> None:
        """Whether that is another object is the store's to say; nobody waits for what never comes."""
        place.make_folder("")
        place.write("a", b"one")
        old = tag_of(place, "a")
        place.write("a", b"one")
        new = place.replace("a", b"two", old)
        assert data(place, "a") == (b"one" if new is None else b"two")

    def test_what_is_gone_is_not_replaced(self, place: Place) -> None:
        place.make_folder("")
        place.write("a", b"one")
        old = tag_of(place, "a")
        place.remove("a")
        assert place.replace("a", b"three", old) is None
        assert place.read("a") is None

    def test_writing_needs_no_condition(self, place: Place) -> None:
        place.make_folder("")
        for one in (b"one", b"", b"\0" * 100_000):
            place.write("a", one)
            assert data(place, "a") == one

    def test_removing_what_is_not_there_is_fine(self, place: Place) -> None:
        place.make_folder("")
        place.write("a", b"one")
        for _ in range(2):
            place.remove("a")
        assert place.read("a") is None

    def test_a_second_name(self, place: Place) -> None:
        """It holds the same, and writing over one of the names leaves the other."""
        place.make_folder("a/c")
        place.write("a/c/0", b"one")
        place.duplicate("a/c/0", "b/c/0")
        found = place.read("b/c/0")
        assert found is not None
        assert found.data == b"one"
        place.write("b/c/0", b"other")
        assert [one.data for one in map(place.read, ("a/c/0", "b/c/0")) if one] == [b"one", b"other"]
        place.remove("a/c/0")
        assert place.read("b/c/0") is not None
        with pytest.raises(FileNotFoundError):
            place.duplicate("a/c/0", "b/c/1")
        assert place.read("b/c/1") is None

    def test_listing(self, place: Place) -> None:
        place.make_folder("blocks")
        place.make_folder("blocks2")
        names = sorted(f"blocks/{i:03d}.json" for i in range(25))
        for name in [*names, "blocks2/0", "plan.json"]:
            place.write(name, name.encode())
        whole = place.listing("blocks")
        assert sorted(whole) == names
        assert {entry.size for entry in whole.values()} == {len(names[0])}
        assert all(same_tag(entry.tag, tag_of(place, name)) for name, entry in whole.items())
        assert place.listing("nothing") == {}
        assert sorted(place.listing()) == sorted([*names, "blocks2/0", "plan.json"])

    def test_a_listing_in_parts_is_the_same(self, place: Place) -> None:
        place.make_folder("blocks")
        names = sorted(f"blocks/{i:03d}.json" for i in range(20))
        for name in names:
            place.write(name, b"x")
        whole = place.listing("blocks")
        for splits in ([names[7]], names[::5], ["blocks/0", names[3], "blocks/0035", "blocks/z"], names):
            assert place.listing("blocks", splits) == whole

    def test_names_in_a_folder(self, place: Place) -> None:
        for i in range(9):
            place.make_folder(f"scores.zarr/{i}")
            place.write(f"scores.zarr/{i}/c", b"")
            place.write(f"{i}.json", b"")
        assert place.names("") == {"scores.zarr", *(f"{i}.json" for i in range(9))}
        assert place.names("scores.zarr") == {str(i) for i in range(9)}
        assert place.names("nothing") == set()

    def test_whether_anything_is_there(self, place: Place) -> None:
        assert not place.is_there()
        beside = open_place(f"{place.address}2")
        beside.make_folder("")
        beside.write("a", b"")
        assert not place.is_there()
        place.make_folder("b")
        place.write("b/c", b"")
        assert place.is_there()

    def test_the_clock_is_that_of_times(self, place: Place) -> None:
        place.make_folder("")
        place.write("a", b"")
        before = place.read("a")
        assert before is not None
        now = place.clock()
        place.write("b", b"")
        after = place.read("b")
        assert after is not None
        assert before.time <= now <= after.time
        assert place.names("") == {"a", "b"}

    def test_odd_names(self, place: Place) -> None:
        place.make_folder("c/0")
        for name in ODD:
            assert place.create(name, name.encode())
        assert {name: data(place, name) for name in ODD} == {name: name.encode() for name in ODD}
        assert set(place.listing()) == {*ODD}
        for name in ODD:
            assert place.replace(name, b"other", tag_of(place, name)) is not None
            place.remove(name)
        assert all(name.endswith(".guard") for name in place.listing())  # a folder's locks last

    def test_one_of_many_creates(self, place: Place) -> None:
        place.make_folder("")
        bodies = [secrets.token_bytes(8) for _ in range(THREADS)]
        for i in range(TIMES):
            won = at_once([partial(place.create, f"{i}", body) for body in bodies])
            assert sum(won) == 1
            assert data(place, f"{i}") == bodies[won.index(True)]

    def test_no_update_is_lost(self, place: Place) -> None:
        place.make_folder("")
        place.write("counter", b"0 ")

        def count() -> None:
            for _ in range(TIMES):
                while True:
                    standing = place.read("counter")
                    assert standing is not None
                    number = int(standing.data.split()[0]) + 1
                    if place.replace(
                        "counter", b"%d %s" % (number, secrets.token_bytes(8).hex().encode()), standing.tag
                    ):
                        break

        at_once([count] * 4)
        assert int(data(place, "counter").split()[0]) == 4 * TIMES


def test_threads_of_a_folder_replace_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for the lock of another is not let through because this process has it."""
    place = Folder(tmp_path)
    place.write("counter", b"0")
    stored = place.read("counter")
    assert stored is not None
    second: list[str | None] = []
    thread = Thread(target=lambda: second.append(place.replace("counter", b"2", stored.tag)))

    def while_another_replaces(path: Path, data: bytes) -> None:
        if thread.ident is None:
            thread.start()
            thread.join(0.5)
        write_bytes(path, data)

    monkeypatch.setattr("dcpred_tasks.storage.place.write_bytes", while_another_replaces)
    assert place.replace("counter", b"1", stored.tag) is not None
    thread.join()
    assert second == [None]
    assert data(place, "counter") == b"1"


class StoreContract(PlaceContract):
    """Besides of stores on servers; fixture `server`."""

    @pytest.fixture
    def place(self, server: StoreServer) -> Iterator[Place]:
        yield from on(server)

    @pytest.mark.parametrize(
        "operation",
        [
            lambda place: place.read("a"),
            lambda place: place.create("a", b""),
            lambda place: place.replace("a", b"", "0" * 32 + "/1"),
            lambda place: place.write("a", b""),
            lambda place: place.remove("a"),
            lambda place: place.listing(),
            lambda place: place.names(""),
            lambda place: place.is_there(),
            lambda place: place.clock(),
        ],
    )
    def test_a_missing_bucket_is_no_missing_name(
        self, server: StoreServer, operation: Callable[[Place], object]
    ) -> None:
        missing = f"{server.scheme}://missing"
        with (
            used(server),
            pytest.raises(ResourceError, match=rf"the bucket {missing} does not exist"),
        ):
            operation(open_place(f"{missing}/run"))


FIRST_PUT = {"match": "^PUT .*/run/a", "times": 1}


class SpoiledContract:
    """The conditional operations where one request is spoiled: they say what stands.

    Fixture `proxy`: a server behind the proxy. `place` is on it. An ordinary run spoils all requests to one
    server, and some to the others: the client does the same.
    """

    @pytest.fixture
    def place(self, proxy: Proxy) -> Iterator[Place]:
        proxy.set_faults()
        yield from on(proxy)
        proxy.set_faults()

    @pytest.mark.parametrize("fault", FAULTS)
    def test_operations(self, proxy: Proxy, place: Place, fault: str) -> None:
        check_create(proxy, place, fault)
        check_replace(proxy, place, fault)

        proxy.set_faults({**FIRST_PUT, "fault": fault})
        place.write("a", b"four")
        assert data(place, "a") == b"four"
        proxy.set_faults({"match": "^GET .*run(/|%2F)?", "fault": fault, "times": 1})
        if not fault.startswith("409"):  # no server answers so to what changes nothing
            assert data(place, "a") == b"four"
            proxy.set_faults({"match": "^GET .*prefix", "fault": fault, "times": 1})
            assert set(place.listing()) == {"a"}
        proxy.set_faults({"match": "^(DELETE|POST) ", "fault": fault, "times": 1})
        if not fault.startswith("409 before"):
            place.remove("a")
            assert place.read("a") is None

    @pytest.mark.parametrize(
        "operation",
        [
            lambda place: place.read("missing") is None,
            lambda place: place.listing().keys() == {"a", "b/0"},
            lambda place: place.names("") == {"a", "b"},
            lambda place: place.is_there(),
        ],
        ids=["nothing there", "listing", "names", "is_there"],
    )
    def test_replies_that_break_off_are_asked_for_again(
        self, proxy: Proxy, place: Place, operation: Callable[[Place], bool]
    ) -> None:
        """obstore does not ask again: of a hundred requests one that breaks off would end a run."""
        for name in ("a", "b/0"):
            place.write(name, b"one")
        before = proxy.counts().get("half", 0)
        proxy.set_faults({"match": "^GET ", "fault": "half", "times": 3})
        assert operation(place)
        assert proxy.counts()["half"] - before == 3

    def test_replies_about_arrays_that_break_off(self, proxy: Proxy, place: Place) -> None:
        address = f"{place.address}/group.zarr"
        store, path = arrays_store(address, read_only=False)
        zarr.create_group(store, path=path).create_array("X", data=np.arange(4.0))
        before = proxy.counts().get("half", 0)
        proxy.set_faults({"match": "^GET ", "fault": "half", "times": 3})
        assert [name for name, _ in open_group(address).arrays()] == ["X"], "looked for by several names"
        assert proxy.counts()["half"] - before == 3

    @pytest.mark.parametrize("fault", ["drop before", "503 before", "409 before", "drop after", "503 after"])
    @pytest.mark.usefixtures("impatient")
    def test_what_stands_where_no_answer_comes(self, proxy: Proxy, place: Place, fault: str) -> None:
        """An error for a while where nothing stands, and where it does, a success."""
        proxy.set_faults({"match": "^PUT ", "fault": fault})
        for name, create in (
            ("a", lambda: place.create("a", b"one")),
            ("b", lambda: place.write("b", b"one")),
        ):
            try:
                told: object = create()
            except StoreError:
                told = "failed"
            proxy.set_faults()
            standing = place.read(name)
            if fault.endswith("before"):
                assert (told, standing) == ("failed", None)
            elif name == "a":
                assert told is True
                assert standing is not None
            proxy.set_faults({"match": "^PUT ", "fault": fault})

    @pytest.mark.parametrize("method", ["PUT", "GET", "DELETE|POST"])
    def test_a_missing_right_is_told_as_that(self, proxy: Proxy, place: Place, method: str) -> None:
        place.write("a", b"one")
        proxy.set_faults({"match": f"^({method}) ", "fault": "403 before"})
        operations = {
            "PUT": [lambda: place.create("a", b""), lambda: place.write("a", b""), place.clock],
            "GET": [lambda: place.read("a"), lambda: place.read("b"), place.listing, place.is_there],
            "DELETE|POST": [lambda: place.remove("a")],
        }
        for operation in operations[method]:
            with pytest.raises(ResourceError, match="the store refuses it"):
                operation()


@pytest.mark.cases
class TestSpoiledS3(SpoiledContract):
    @pytest.fixture
    def proxy(self, s3_proxy: Proxy) -> Proxy:
        return s3_proxy


@pytest.mark.cases(2)
class TestSpoiledMoto(SpoiledContract):
    @pytest.fixture
    def proxy(self, moto_proxy: Proxy) -> Proxy:
        return moto_proxy


@pytest.mark.cases(2)
class TestSpoiledGoogle(SpoiledContract):
    @pytest.fixture
    def proxy(self, gcs_proxy: Proxy) -> Proxy:
        return gcs_proxy


@pytest.mark.cases(2)
class TestSpoiledAzure(SpoiledContract):
    @pytest.fixture
    def proxy(self, azure_proxy: Proxy) -> Proxy:
        return azure_proxy


@pytest.mark.parametrize("fault", ["drop before", "drop after", "half", "503 after"])
def test_spoiled_requests_over_tls(s3: StoreServer, tmp_path: Path, fault: str) -> None:
    with secure_spoiled(s3, tmp_path) as proxy:
        for place in on(proxy):
            check_create(proxy, place, fault)
            check_replace(proxy, place, fault)
            proxy.set_faults({"match": "^GET .*run/a", "fault": fault, "times": 1})
            assert data(place, "a") == b"two"
            assert proxy.counts()[fault] == 5


def check_create(proxy: Proxy, place: Place, fault: str) -> None:
    """One who gets a free name is told so, and nobody else, whatever became of the reply."""
    proxy.set_faults({**FIRST_PUT, "fault": fault})
    assert place.create("a", b"one")
    proxy.set_faults({**FIRST_PUT, "fault": fault})
    assert not place.create("a", b"other")
    assert data(place, "a") == b"one"


def check_replace(proxy: Proxy, place: Place, fault: str) -> None:
    old = tag_of(place, "a")
    proxy.set_faults({**FIRST_PUT, "fault": fault})
    new = place.replace("a", b"two", old)
    assert new is not None
    assert new == tag_of(place, "a")
    proxy.set_faults({**FIRST_PUT, "fault": fault})
    assert place.replace("a", b"three", old) is None
    assert data(place, "a") == b"two"


class TestFolder(PlaceContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Folder(tmp_path / "run")


class TestMemory(PlaceContract):
    @pytest.fixture
    def place(self) -> Iterator[Place]:
        name = secrets.token_hex(4)
        IN_MEMORY[name] = import_module("obstore.store").MemoryStore()
        yield open_place(f"memory://{name}/run")
        del IN_MEMORY[name]


class TestS3(StoreContract):
    @pytest.fixture
    def server(self, s3: StoreServer) -> StoreServer:
        return s3


class TestMoto(StoreContract):
    @pytest.fixture
    def server(self, moto: StoreServer) -> StoreServer:
        return moto


class TestGoogle(StoreContract):
    @pytest.fixture
    def server(self, gcs: StoreServer) -> StoreServer:
        return gcs


class TestAzure(StoreContract):
    @pytest.fixture
    def server(self, azure: StoreServer) -> StoreServer:
        return azure


class TestOverTLS(StoreContract):
    @pytest.fixture
    def server(self, s3_secure: StoreServer) -> StoreServer:
        return s3_secure


def test_clients_ask_for_capabilities_not_for_kinds() -> None:
    """Another kind of place then needs no change of a client."""
    client = Path(dcpred.__file__).parent
    kinds = re.compile(r"\bis_remote\b|import [^\n]*\b(?:Folder|Bucket)\b")
    found = [path.name for path in client.rglob("*.py") if kinds.search(path.read_text(encoding="utf-8"))]
    assert not found


def test_many_records_are_read_at_once() -> None:
    """By requests of their own, whose threads are fewer than these."""
    name = secrets.token_hex(4)
    IN_MEMORY[name] = import_module("obstore.store").MemoryStore()
    n_blocks = 3 * THREADS_OF_REQUESTS
    run = ScoreRun("", "", "", "", f"memory://{name}/out", ("label",), n_blocks, 1, 1)
    for block in range(n_blocks):
        run.place.write(run.record_name(block), b"%d" % block)
    found = read_records(run, list_records(run), CachedRecords())
    assert dict(found) == {block: b"%d" % block for block in range(n_blocks)}
    del IN_MEMORY[name]


@pytest.fixture
def s3_place(s3: StoreServer) -> Iterator[Place]:
    yield from on(s3)


def test_without_reading_back_a_creator_is_not_told(s3_proxy: Proxy) -> None:
    for place in on(s3_proxy):
        with (
            mutated(Bucket, "create", "doubt = error", "return False"),
            pytest.raises(AssertionError),
        ):
            check_create(s3_proxy, place, "drop after")
    s3_proxy.set_faults()


def test_without_reading_back_a_replacement_is_not_told(s3_proxy: Proxy) -> None:
    for place in on(s3_proxy):
        check_create(s3_proxy, place, "drop after")
        with (
            mutated(Bucket, "replace", "doubt = error", "return None"),
            pytest.raises(AssertionError),
        ):
            check_replace(s3_proxy, place, "drop after")
    s3_proxy.set_faults()


def test_believing_what_stands_many_creators_win(s3_place: Place) -> None:
    with mutated(Bucket, "create", "stored.data == data", "True"), pytest.raises(AssertionError):
        PlaceContract().test_one_of_many_creates(s3_place)


@pytest.mark.parametrize(
    "test",
    [
        PlaceContract.test_a_name_is_created_once,
        PlaceContract.test_what_has_another_tag_is_not,
        PlaceContract.test_one_of_many_creates,
        PlaceContract.test_no_update_is_lost,
    ],
)
def test_without_conditions_names_are_written_over(
    s3_place: Place, test: Callable[[PlaceContract, Place], None]
) -> None:
    with mutated(Bucket, "_put", "mode=condition", 'mode="overwrite"'), pytest.raises(AssertionError):
        test(PlaceContract(), s3_place)


def test_without_a_look_a_missing_bucket_is_a_missing_name(s3: StoreServer) -> None:
    with (
        used(s3),
        mutated(Bucket, "check_there", "if self.seen", "if True"),
    ):
        assert open_place("s3://missing/run").read("a") is None


def data(place: Place, name: str) -> bytes:
    standing = place.read(name)
    assert standing is not None
    return standing.data


def tag_of(place: Place, name: str) -> str:
    standing = place.read(name)
    assert standing is not None
    return standing.tag


def at_once(bodies: list[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(len(bodies)) as pool:
        return [future.result() for future in [pool.submit(body) for body in bodies]]
