"""Stands for ``migrator serve`` and ``migrator reload``: a front door that answers at once, for whom its config has.

A tenant is answered :data:`START_S` after it came. Told to end, it answers 503, and ends.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

START_S = 0.3


class Service(ThreadingHTTPServer):
    """A service in its folder."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, config: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.taken, self.is_draining = folder, folder / "config.yaml", False
        self.came: dict[str, float] = {}
        port = self.take((self.taken if self.taken.exists() else config).read_text())
        super().__init__(("127.0.0.1", port), Door)

    def take(self, text: str) -> int:
        """Answer for the tenants of this config from now on; its port."""
        found = yaml.safe_load(text)
        names = [one["name"] for one in found["tenants"]]
        self.came = {name: self.came.get(name, time.monotonic()) for name in names}
        self.taken.with_suffix(".new").write_text(text)
        self.taken.with_suffix(".new").replace(self.taken)
        return int(found["front_door"]["port"])

    def is_ready(self, name: str) -> bool:
        began = self.came.get(name)
        return began is not None and not self.is_draining and time.monotonic() - began >= START_S

    def end(self, *_: object) -> None:
        self.is_draining = True
        threading.Thread(target=self.shutdown).start()

    def follow(self) -> None:
        """Take what ``reload`` asks for."""
        asked = self.folder / "asked.yaml"
        while True:
            if asked.exists():
                self.take(asked.read_text())
                asked.unlink()
            time.sleep(0.02)


class Door(BaseHTTPRequestHandler):
    """A service's front door."""

    protocol_version = "HTTP/1.1"
    server: Service

    def do_GET(self) -> None:
        own = self.server
        match self.path.strip("/").split("/"):
            case ["v2", "health", "live"]:
                is_well = True
            case ["v2", "health", "ready"]:
                is_well = all(map(own.is_ready, list(own.came)))
            case ["v2", "models", name, "ready" | "infer"]:
                is_well = own.is_ready(name)
            case _:
                is_well = False
        self.send_response(200 if is_well else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def reload(folder: Path, config: Path) -> None:
    if any(one["name"] == "refused" for one in yaml.safe_load(config.read_text())["tenants"]):
        sys.exit("error: refused")
    (folder / "asked.new").write_text(config.read_text())
    (folder / "asked.new").replace(folder / "asked.yaml")
    while (folder / "asked.yaml").exists():
        time.sleep(0.02)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", own, "--out", into]:
            service = Service(Path(own), Path(into))
            signal.signal(signal.SIGTERM, service.end)
            threading.Thread(target=service.follow, daemon=True).start()
            service.serve_forever(poll_interval=0.02)
        case ["reload", into, "--config", own]:
            reload(Path(into), Path(own))
