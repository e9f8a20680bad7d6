"""A proxy that spoils requests to an object store, on loopback.

    python -m support.servers.proxy TARGET_PORT FAULTS [SEED [CERTIFICATE KEY]]     PEM files, for TLS

FAULTS is a JSON list of {"match": regex of "METHOD path key", "fault": …, "share": …, "times": …}; the first
that matches, is drawn (share, 1 where it is left out) and was not done so many times yet is done. `key` is
the name of the key that a request to S3 is signed with, so that processes can be told apart:

    drop before, drop after    the connection ends before the request went on, or after it took place
    503 before, 503 after      any status, likewise
    echo before                403, and all headers of the request in the reply, secrets among them
    half, stall                half of the reply comes, and the connection ends, or nothing else comes
    delay:0.05                 seconds
    strip                      headers of conditions are taken off, as by a store that does not heed them

A PUT to /.faults replaces the list, a GET of it tells how often each fault was done, and how many requests of
each method went through.
"""

import http.client
import json
import random
import re
import socket
import ssl
import sys
import threading
import time
import urllib.parse
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from xml.sax.saxutils import escape

from support.servers import announce

CONDITIONS = ("if-none-match", "if-match", "x-goog-if-generation-match")
HOP = ("connection", "keep-alive", "transfer-encoding", "content-length")
STALL_SECONDS = 3600
CODES = {"403": "AccessDenied", "409": "ConditionalRequestConflict", "429": "SlowDown"}

faults: list[dict[str, Any]] = []
done: Counter[str] = Counter()
lock = threading.Lock()
random_numbers = random.Random(0)
target = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # A reply of two parts would wait 40 ms for its second one.

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""

    def drawn(self) -> str:
        """The fault that is to be done to this request; "" for none."""
        key = re.search(r"Credential=([^/]*)/", self.headers.get("Authorization", ""))
        line = f"{self.command} {urllib.parse.unquote(self.path)} {key[1] if key else ''}"
        with lock:
            for one in faults:
                left = one.get("times", 1) > 0
                if left and re.search(one["match"], line) and random_numbers.random() < one.get("share", 1.0):
                    if "times" in one:
                        one["times"] -= 1
                    done[one["fault"]] += 1
                    return str(one["fault"])
            done[self.command] += 1
        return ""

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0) or 0))
        if self.path == "/.faults":
            return self.control(body)
        fault = self.drawn()
        if fault.startswith("delay:"):
            time.sleep(float(fault.partition(":")[2]))
        kind, _, when = fault.partition(" ")
        if when == "before":
            return self.spoil(kind)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        if kind == "strip":
            headers = {name: value for name, value in headers.items() if name.lower() not in CONDITIONS}
        link = http.client.HTTPConnection("127.0.0.1", target, timeout=60)
        link.request(self.command, self.path, body, headers | {"Content-Length": str(len(body))})
        reply = link.getresponse()
        data = reply.read()
        link.close()
        if when == "after":
            return self.spoil(kind)
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in HOP:
                self.send_header(name, value)
        size = reply.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", size or "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if kind in ("half", "stall") else data)
        if kind == "stall":
            time.sleep(STALL_SECONDS)
        if kind in ("half", "stall"):
            self.hang_up()
        return None

    def control(self, body: bytes) -> None:
        with lock:
            if self.command == "PUT":
                faults[:] = json.loads(body)
            data = json.dumps(done).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def spoil(self, kind: str) -> None:
        if kind == "drop":
            return self.hang_up()
        said = escape(str(self.headers)) if kind == "echo" else ""
        code = "AccessDenied" if kind == "echo" else CODES.get(kind, "ServiceUnavailable")
        data = (
            f"<Error><Code>{code}</Code><Message>{said}</Message><Token-0>{said}</Token-0></Error>".encode()
        )
        self.send_response(403 if kind == "echo" else int(kind))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        return None

    def hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = pass_on


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_: object) -> None:
        """Connections that clients give up are no news."""


if __name__ == "__main__":
    target = int(sys.argv[1])
    faults[:] = json.loads(sys.argv[2])
    random_numbers.seed(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    server = Server(("127.0.0.1", 0), Handler)
    if len(sys.argv) > 4:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*sys.argv[4:6])
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    announce(server.server_port)
    server.serve_forever()
