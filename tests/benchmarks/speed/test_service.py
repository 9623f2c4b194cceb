"""The clients of the service's benchmark, before a server that is none of ours, and the figure that it reports."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from benchmarks.speed.service import Client, in_time_pct
from tests.migrator.log import records


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200 if "/a/" in self.path else 503)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    request_queue_size = 64
    """All of a client's connections at once, and more."""


@pytest.fixture
def url() -> Iterator[str]:
    with Server(("127.0.0.1", 0), Handler) as server:
        serves = threading.Thread(target=server.serve_forever)
        serves.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serves.join()


def test_a_client_asks_as_often_as_there_are_moments_and_counts_what_it_hears(url: str) -> None:
    assert Client(url, "a", [0.0] * 50).wait() == {"answered": 50}
    assert Client(url, "b", [0.0] * 3).wait() == {"refused": 3}


def test_requests_that_nobody_hears_are_told() -> None:
    assert Client("http://127.0.0.1:9", "a", [0.0] * 3).wait() == {"gone": 3}


def test_the_share_in_time_is_of_all_requests_of_a_run(tmp_path: Path) -> None:
    counts = records.counts([3, 1], [0, 4], [3, 1])
    begun = [records.header(2.0, "a"), records.window_started(0, 2.0, "a")]
    records.write(tmp_path / "run", *begun, records.window_finished(0, a=counts))
    assert in_time_pct(tmp_path) == 50.0
