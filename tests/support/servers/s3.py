"""An S3 server on loopback: moto behind a lock, since it looks and writes in two steps (s3.py PORT)."""

import logging
import sys
import threading
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug import serving

lock, inner = threading.Lock(), DomainDispatcherApplication(create_backend_app)


def locked(environment: Any, start: Any) -> list[bytes]:
    with lock:
        return list(inner(environment, start))


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    serving.run_simple(
        "127.0.0.1", int(sys.argv[1]), locked, threaded=True, request_handler=MotoRequestHandler
    )
