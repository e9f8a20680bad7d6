"""Object stores on loopback that tests start as processes of their own.

Each prints its port once it listens, and ends when whoever started it closes its standard input or dies.
"""

import os
import sys
import threading


def announce(port: int) -> None:
    """Tell the port to whoever started this process, and end with them."""
    print(port, flush=True)
    threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)
