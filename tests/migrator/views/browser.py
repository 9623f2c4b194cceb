"""Pages in a real browser: Chromium without a window, spoken to over its debugging pipe, so that nothing is installed.

The protocol is https://chromedevtools.github.io/devtools-protocol: JSON, each message ended by a zero byte.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")

needs_chromium = pytest.mark.skipif(
    not CHROMIUM.is_file(), reason=f"NOT TESTED: pages in a browser: there is no {CHROMIUM}"
)

_OPTIONS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
)

_PATIENCE_S = 60.0


class Browser:
    """A running Chromium."""

    def __init__(self, pid: int, to_it: int, from_it: int) -> None:
        self._pid, self._to_it, self._from_it = pid, to_it, from_it
        self._n_calls, self._unread = 0, b""
        self.tabs: dict[str, Tab] = {}

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """What the browser answers; events that come first go to their tabs."""
        self._n_calls += 1
        message = {"id": self._n_calls, "method": method, "params": params}
        message |= {"sessionId": session} if session else {}
        os.write(self._to_it, json.dumps(message).encode() + b"\0")
        while (answer := self.next()).get("id") != self._n_calls:
            pass
        assert "error" not in answer, answer["error"]
        found: dict[str, Any] = answer["result"]
        return found

    def next(self) -> dict[str, Any]:
        """The next message; one of a tab is written down there."""
        while b"\0" not in self._unread:
            assert select.select([self._from_it], [], [], _PATIENCE_S)[0], "the browser says nothing"
            piece = os.read(self._from_it, 1 << 20)
            assert piece, "the browser has ended"
            self._unread += piece
        message, _, self._unread = self._unread.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        if tab := self.tabs.get(parsed.get("sessionId", "")):
            tab.take(parsed)
        return parsed

    def end(self) -> None:
        os.close(self._to_it)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._from_it)


@dataclass
class Tab:
    """An open page.

    Attributes:
        asked: Addresses that it asked for.
        said: What it wrote to its console, errors included.
    """

    browser: Browser
    session: str
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    is_loaded: bool = False

    def take(self, message: dict[str, Any]) -> None:
        """Write down what happened."""
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.asked.append(params["request"]["url"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                self.said.append(json.dumps(params))
            case "Page.loadEventFired":
                self.is_loaded = True
            case _:
                pass

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript; of a promise, once it is kept."""
        found = self.browser.call(
            "Runtime.evaluate", self.session, expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        found = self.browser.call("Page.captureScreenshot", self.session, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def started() -> Iterator[Browser]:
    """A browser that ends with the block."""
    (theirs, to_it), (from_it, ours) = os.pipe(), os.pipe()
    above = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs, ours)]  # 3 and 4 may be taken
    actions = [(os.POSIX_SPAWN_DUP2, end, number) for end, number in zip(above, (3, 4), strict=True)]
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        arguments = [str(CHROMIUM), *_OPTIONS, f"--user-data-dir={profile}"]
        pid = os.posix_spawn(CHROMIUM, arguments, {**os.environ, "HOME": profile}, file_actions=[*quiet, *actions])
        for end in (theirs, ours, *above):
            os.close(end)
        browser = Browser(pid, to_it, from_it)
        try:
            yield browser
        finally:
            browser.end()


@contextmanager
def opened(browser: Browser, page: Path, width: int, scheme: str, script: str = "") -> Iterator[Tab]:
    """A page so wide, in the ``light`` or ``dark``, once its figures are drawn; ``script`` runs before its own."""
    target = browser.call("Target.createTarget", url="about:blank")["targetId"]
    session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    tab = browser.tabs[session] = Tab(browser, session)
    for domain in ("Page", "Network", "Runtime", "Log"):
        browser.call(f"{domain}.enable", session)
    browser.call(
        "Emulation.setDeviceMetricsOverride", session, width=width, height=900, deviceScaleFactor=1, mobile=False
    )
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.call("Emulation.setEmulatedMedia", session, features=features)
    browser.call("Page.addScriptToEvaluateOnNewDocument", session, source=script)
    browser.call("Page.navigate", session, url=page.as_uri())
    while not tab.is_loaded:
        browser.next()
    tab.evaluate("drawn")
    yield tab
    browser.call("Target.closeTarget", targetId=target)
    del browser.tabs[session]
