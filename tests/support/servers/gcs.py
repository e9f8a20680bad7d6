"""The XML interface of Google Cloud Storage as far as obstore speaks it, on loopback.

    python -m support.servers.gcs [PAGE [FOLDER N]]     names of a page; a folder that holds N commit records

Objects have generations: 0 stands for one that is not there. Everything happens under one lock. A page of a
listing has few names, so that every listing has many.
"""

import hashlib
import sys
import threading
import time
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from email.utils import formatdate
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from support.servers import announce

BUCKET, PAGE = "bucket", 7
RECORD_BYTES = 1500  # of a commit record


@dataclass
class Held:
    data: bytes
    generation: int
    time: float

    @cached_property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'

    @cached_property
    def told(self) -> str:
        """What a listing says of it, beside its name."""
        when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(self.time))
        tag = escape(self.etag)
        return f"<LastModified>{when}</LastModified><ETag>{tag}</ETag><Size>{len(self.data)}</Size>"


lock = threading.Lock()
objects: dict[str, Held] = {}
names: list[str] = []  # those of the objects, in ascending order


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    page_names = PAGE
    disable_nagle_algorithm = True  # A reply of two parts would wait 40 ms for its second one.

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""

    def answer(self, status: int, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def refuse(self, status: int, code: str) -> None:
        self.answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def names(self) -> tuple[str, str]:
        """Bucket and key of the path."""
        bucket, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        return bucket, key

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        bucket, key = self.names()
        if bucket != BUCKET:
            return self.refuse(404, "NoSuchBucket")
        with lock:
            copied = unquote(self.headers.get("x-goog-copy-source", "")).lstrip("/").partition("/")[2]
            if copied and copied not in objects:
                return self.refuse(404, "NoSuchKey")
            data = objects[copied].data if copied else data
            held, wanted = objects.get(key), self.headers.get("x-goog-if-generation-match")
            if wanted is not None and int(wanted) != (held.generation if held else 0):
                return self.refuse(412, "PreconditionFailed")
            if held is None:
                insort(names, key)
            new = objects[key] = Held(data, time.time_ns(), time.time())
        return self.answer(200, b"", {"ETag": new.etag, "x-goog-generation": str(new.generation)})

    def do_GET(self) -> None:
        bucket, key = self.names()
        if bucket != BUCKET:
            return self.refuse(404, "NoSuchBucket")
        if not key:
            return self.listing()
        with lock:
            held = objects.get(key)
        if held is None:
            return self.refuse(404, "NoSuchKey")
        headers = {
            "ETag": held.etag,
            "x-goog-generation": str(held.generation),
            "Last-Modified": formatdate(held.time, usegmt=True),
        }
        size, asked = len(held.data), self.headers.get("Range", "").removeprefix("bytes=")
        if not asked:
            return self.answer(200, held.data, headers)
        first, _, last = asked.partition("-")
        start = int(first) if first else max(size - int(last), 0)
        stop = min(int(last) + 1, size) if first and last else size
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        return self.answer(206, held.data[start:stop], headers)

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        bucket, key = self.names()
        with lock:
            gone = objects.pop(key, None) if bucket == BUCKET else None
            if gone is not None:
                names.remove(key)
        return self.answer(204) if gone is not None else self.refuse(404, "NoSuchKey")

    def listing(self) -> None:
        """Version 2 of listing: names after a token or start, in pages, those of folders as one."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after, token = query.get("start-after", ""), query.get("continuation-token", "")
        found: dict[str, str] = {}  # what is told of each name or folder, in ascending order
        more = False
        with lock:
            at = max(bisect_left(names, prefix), bisect_right(names, max(after, token)))
            while at < len(names) and names[at].startswith(prefix) and not more:
                name, at = names[at], at + 1
                folder, inside, _ = name.removeprefix(prefix).partition(delimiter or "\n")
                shown = prefix + folder + inside if inside else name
                if shown in found or shown <= token:
                    continue
                more = len(found) == self.page_names
                if not more:
                    found[shown] = _folder(shown) if inside else _line(name, objects[name])
        end = f"<NextContinuationToken>{escape(list(found)[-1])}</NextContinuationToken>" if more else ""
        lines = "".join(found.values())
        text = (
            f'<?xml version="1.0"?><ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>'
            f"{end}{lines}</ListBucketResult>"
        )
        self.answer(200, text.encode(), {"Content-Type": "application/xml"})


def _folder(name: str) -> str:
    return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"


def _line(name: str, one: Held) -> str:
    return f"<Contents><Key>{escape(name)}</Key>{one.told}</Contents>"


def hold_records(folder: str, n: int) -> None:
    """Put n commit records there, all of which hold the same bytes."""
    one = Held(bytes(RECORD_BYTES), time.time_ns(), time.time())
    objects.update({f"{folder}/blocks/{number:06d}.json": one for number in range(n)})
    names[:] = sorted(objects)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_: object) -> None:
        """Connections that clients give up are no news."""


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Handler.page_names = int(sys.argv[1])
    if len(sys.argv) > 3:
        hold_records(sys.argv[2], int(sys.argv[3]))
    server = Server(("127.0.0.1", 0), Handler)
    announce(server.server_port)
    server.serve_forever()
