"""S3, and the XML interface of Google Cloud Storage, as far as obstore speaks them, on loopback.

    python -m support.servers.small s3 [CERTIFICATE KEY]        PEM files, for TLS
    python -m support.servers.small gs [PAGE [FOLDER N]]        names of a page; a folder of N commit records

Google's objects have generations: 0 stands for one that is not there. Those of S3 go by their tags.
Everything happens under one lock. A page of a listing has few names: every listing has many.
"""

import hashlib
import re
import ssl
import sys
import threading
import time
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from email.utils import formatdate
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

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
uploads: dict[str, dict[int, bytes]] = {}  # parts of objects that come in several


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    page_names = PAGE
    disable_nagle_algorithm = True  # A reply of two parts would wait 40 ms for its second one.
    own = "x-goog-"  # what names of headers begin with

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""

    def answer(self, status: int, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        """In one piece: a second one would cost as much as the first."""
        lines = [f"{name}: {value}\r\n" for name, value in (headers or {}).items()]
        length = "" if status == 204 else f"Content-Length: {len(data)}\r\n"
        head = f"HTTP/1.1 {status} {self.responses[status][0]}\r\n{''.join(lines)}{length}\r\n"
        self.wfile.write(head.encode() + (b"" if self.command == "HEAD" else data))

    def refuse(self, status: int, code: str) -> None:
        self.answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def names(self) -> tuple[str, str]:
        """Bucket and key of the path."""
        bucket, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        return bucket, key

    def query(self) -> dict[str, str]:
        found = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: values[0] for name, values in found.items()}

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_PUT(self) -> None:
        data, (bucket, key), query = self.body(), self.names(), self.query()
        if bucket != BUCKET:
            return self.refuse(404, "NoSuchBucket")
        with lock:
            if "uploadId" in query:
                uploads[query["uploadId"]][int(query["partNumber"])] = data
                return self.answer(200, b"", {"ETag": Held(data, 0, 0).etag})
            copied = unquote(self.headers.get(f"{self.own}copy-source", "")).lstrip("/").partition("/")[2]
            if copied and copied not in objects:
                return self.refuse(404, "NoSuchKey")
            return self.put(key, objects[copied].data if copied else data)

    def put(self, key: str, data: bytes) -> None:
        """Hold it, if the conditions of the request allow that."""
        held = objects.get(key)
        if not self.allowed(held):
            return self.refuse(412, "PreconditionFailed")
        if held is None:
            insort(names, key)
        new = objects[key] = Held(data, time.time_ns(), time.time())
        text = f"<Result><ETag>{escape(new.etag)}</ETag></Result>"
        return self.answer(200, text.encode(), {"ETag": new.etag, "x-goog-generation": str(new.generation)})

    def allowed(self, held: Held | None) -> bool:
        wanted = self.headers.get("x-goog-if-generation-match")
        return wanted is None or int(wanted) == (held.generation if held else 0)

    def do_POST(self) -> None:
        """An object in several parts is begun, and ends."""
        data, (bucket, key), query = self.body(), self.names(), self.query()
        if bucket != BUCKET:
            return self.refuse(404, "NoSuchBucket")
        with lock:
            if "delete" in query:
                keys = re.findall("<Key>(.*?)</Key>", data.decode())
                for name in keys:
                    forget(unescape(name, {"&apos;": "'", "&quot;": '"'}))
                gone = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in keys)
                return self.answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode())
            if "uploads" in query:
                number = f"upload{time.time_ns()}"
                uploads[number] = {}
                text = f"<Result><UploadId>{number}</UploadId></Result>"
                return self.answer(200, text.encode())
            parts = uploads.pop(query["uploadId"], None)
            if parts is None:
                return self.refuse(404, "NoSuchUpload")
            return self.put(key, b"".join(parts[number] for number in sorted(parts)))

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
        if self.headers.get("If-Match", held.etag) != held.etag:
            return self.refuse(412, "PreconditionFailed")
        size, asked = len(held.data), self.headers.get("Range", "").removeprefix("bytes=")
        if not asked:
            return self.answer(200, held.data, headers)
        first, _, last = asked.partition("-")
        start = int(first) if first else max(size - int(last), 0)
        stop = min(int(last) + 1, size) if first and last else size
        if start >= size:
            return self.refuse(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        return self.answer(206, held.data[start:stop], headers)

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        bucket, key = self.names()
        with lock:
            there = bucket == BUCKET and (uploads.pop(self.query().get("uploadId"), None) or forget(key))
        return self.answer(204) if there or self.own == "x-amz-" else self.refuse(404, "NoSuchKey")

    def listing(self) -> None:
        """Version 2 of listing: names after a token or start, in pages, those of folders as one."""
        query = self.query()
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


class S3Handler(Handler):
    own = "x-amz-"
    page_names = 1000  # as those of S3

    def allowed(self, held: Held | None) -> bool:
        wanted = self.headers.get("If-Match")
        if held is None:
            return wanted is None
        return self.headers.get("If-None-Match") is None and wanted in (None, held.etag)


def forget(name: str) -> bool:
    """Whether there was such an object."""
    if objects.pop(name, None) is None:
        return False
    del names[bisect_left(names, name)]
    return True


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
    kind, rest = sys.argv[1], sys.argv[2:]
    if kind == "gs" and rest:
        Handler.page_names = int(rest[0])
        hold_records(rest[1], int(rest[2])) if len(rest) > 1 else None
    server = Server(("127.0.0.1", 0), S3Handler if kind == "s3" else Handler)
    if kind == "s3" and rest:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*rest)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    announce(server.server_port)
    server.serve_forever()
