"""A headless Chromium, told what to do over pipes (the Chrome DevTools Protocol), with a profile of its own.

It reaches loopback at most: pages are served by the test, and every other request is one that failed.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-extensions", "--no-default-browser-check", "--disable-dev-shm-usage"),
    *("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--remote-debugging-pipe"),
)
SPOKEN = ("error", "warning", "assert")  # what a page logs beside is none of its faults
ANSWER_SECONDS = 60.0  # no test passes or fails by it unless the browser hangs


def chromium() -> str | None:
    """Where the browser is, if it is there."""
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


class Browser:
    """One tab of a browser."""

    def __init__(self, read: int, write: int) -> None:
        self.read, self.write = read, write
        self.number = 0
        self.rest = b""
        self.session = ""
        self.told: list[dict[str, Any]] = []
        """Events, in the order of their coming."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """What the browser answers. Raises AssertionError for an error."""
        self.number += 1
        asked = {"id": self.number, "method": method, "params": params}
        if self.session:
            asked["sessionId"] = self.session
        os.write(self.write, json.dumps(asked).encode() + b"\0")
        while (answer := self._next()).get("id") != self.number:
            self.told.append(answer)
        assert "error" not in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + ANSWER_SECONDS
        while b"\0" not in self.rest:
            more = os.read(self.read, 2**20)
            assert more, "the browser has ended"
            assert time.monotonic() < end, "the browser does not answer"
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def open(self, address: str, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Show a page, loaded, in a window of this size in CSS pixels."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=features)
        self.told.clear()
        self.ask("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.told):
            self.told.append(self._next())

    def value(self, code: str) -> Any:
        """What an expression of JavaScript is."""
        found = self.ask("Runtime.evaluate", expression=code, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors and warnings of the page that was opened last, and requests that failed."""
        said = []
        for event in self.told:
            params = event.get("params", {})
            if event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                said.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            elif event.get("method") in ("Runtime.exceptionThrown", "Network.loadingFailed"):
                said.append(json.dumps(params))
            elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in SPOKEN:
                said.append(json.dumps(params["args"]))
        return said

    def requests(self) -> list[str]:
        """What the page that was opened last has asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.told
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def screenshot(self, file: Path) -> None:
        """The whole page."""
        taken = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(taken["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser that ends with the `with` statement, and its profile with it."""
    path = chromium()
    assert path is not None
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(prefix="dcpred-browser-", ignore_cleanup_errors=True) as profile:
        # It reads from descriptor 3, and writes to 4.
        shell = f'exec "$0" "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}'
        process = subprocess.Popen(
            ["/bin/bash", "-c", shell, path, *OPTIONS, f"--user-data-dir={profile}"],
            pass_fds=(to_browser[0], from_browser[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            yield Browser(from_browser[0], to_browser[1])
        finally:
            os.close(to_browser[1])
            os.close(from_browser[0])
            process.terminate()
            process.wait(10)
