"""The S3 server of other people on loopback: moto behind a lock, since it looks and writes in two steps."""

import logging
import threading
from functools import lru_cache
from typing import Any

from moto.core import serialize
from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from werkzeug import serving

from support.servers import announce

# S3 alone: moto's dispatcher looks through the folders of all its services at each request.
lock, inner = threading.Lock(), create_backend_app("s3")
# A listing reads a time from its text for each object, again and again the same.
serialize.parse_to_aware_datetime = lru_cache(2**16)(serialize.parse_to_aware_datetime)


def locked(environment: Any, start: Any) -> list[bytes]:
    with lock:
        return list(inner(environment, start))


class Handler(MotoRequestHandler):
    disable_nagle_algorithm = True  # A reply of two parts would wait 40 ms for its second one.


class Server(serving.ThreadedWSGIServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_: object) -> None:
        """Connections that clients give up are no news."""


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = Server("127.0.0.1", 0, locked, Handler)
    announce(server.port)
    server.serve_forever()
