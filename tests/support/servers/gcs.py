"""The XML interface of Google Cloud Storage as far as obstore speaks it, on loopback (python gcs.py PORT).

Objects have generations: 0 stands for one that is not there. Everything happens under one lock.
"""

import hashlib
import sys
import threading
import time
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

lock = threading.Lock()


@dataclass
class Held:
    data: bytes
    generation: int
    time: float

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'


objects: dict[str, Held] = {}
BUCKET = "bucket"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]

    def missing_bucket(self) -> bool:
        if unquote(urlsplit(self.path).path).lstrip("/").partition("/")[0] == BUCKET:
            return False
        self.answer(404, b"<Error><Code>NoSuchBucket</Code><Message>bucket does not exist</Message></Error>")
        return True

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.missing_bucket():
            return
        with lock:
            held, wanted = objects.get(self.key()), self.headers.get("x-goog-if-generation-match")
            if wanted is not None and int(wanted) != (held.generation if held else 0):
                return self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            new = Held(data, time.time_ns(), time.time())
            objects[self.key()] = new
        return self.answer(200, b"", {"ETag": new.etag, "x-goog-generation": str(new.generation)})

    def do_GET(self) -> None:
        if self.missing_bucket():
            return None
        if not self.key():
            return self.listing()
        with lock:
            held = objects.get(self.key())
        if held is None:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        headers = {
            "ETag": held.etag,
            "x-goog-generation": str(held.generation),
            "Last-Modified": formatdate(held.time, usegmt=True),
        }
        span = self.headers.get("Range", "").removeprefix("bytes=")
        if not span:
            return self.answer(200, held.data, headers)
        first, _, last = span.partition("-")
        size = len(held.data)
        start, stop = (
            (int(first), min(int(last or size - 1) + 1, size)) if first else (max(size - int(last), 0), size)
        )
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        return self.answer(206, held.data[start:stop], headers)

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        with lock:
            gone = objects.pop(self.key(), None)
        self.answer(404 if gone is None else 204)

    def listing(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token", query.get("start-after", ""))
        most = int(query.get("max-keys", 1000))
        with lock:
            found = sorted(name for name in objects if name.startswith(prefix) and name > after)
            held = {name: objects[name] for name in found}
        folders: dict[str, None] = {}
        lines: list[str] = []
        for name in found:
            rest = name.removeprefix(prefix)
            if delimiter and delimiter in rest:
                folders[prefix + rest.partition(delimiter)[0] + delimiter] = None
                continue
            when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(held[name].time))
            lines.append(
                f"<Contents><Key>{escape(name)}</Key><LastModified>{when}</LastModified>"
                f"<ETag>{escape(held[name].etag)}</ETag><Size>{len(held[name].data)}</Size></Contents>"
            )
            if len(lines) == most:
                break
        truncated = len(lines) == most and name != found[-1]
        more = f"<NextContinuationToken>{escape(name)}</NextContinuationToken>" if truncated else ""
        common = "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in folders)
        text = (
            '<?xml version="1.0"?><ListBucketResult>'
            f"<IsTruncated>{str(truncated).lower()}</IsTruncated>{more}{''.join(lines)}{common}"
            "</ListBucketResult>"
        )
        self.answer(200, text.encode(), {"Content-Type": "application/xml"})


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
