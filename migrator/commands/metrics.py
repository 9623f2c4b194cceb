"""``migrator metrics``: what Prometheus reads of a run, over HTTP or in a file, while it runs or later."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from executor.access import is_loopback, is_loopback_header, token_in
from executor.files import write_whole
from migrator.commands.options import with_examples
from migrator.errors import LogError, MigratorError, OutputError
from migrator.extras import lacking
from migrator.log.follow import FollowedLog
from migrator.terminal.console import note, warn
from migrator.terminal.signals import interruptible

if TYPE_CHECKING:
    from migrator.views.metrics import RunMetrics

PORT = 9900
LOOK_S = 1.0
"""How often the log is looked at where nobody asks, and a file is written anew."""

TIMEOUT_S = 10.0
"""After which a client that says nothing is let go."""


@with_examples("metrics runs/quickstart", "metrics runs/quickstart --textfile /var/lib/node_exporter/migrator.prom")
def metrics_command(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where it is asked for; 0: any that is free.")] = PORT,
    host: Annotated[str, typer.Option(help="The address; one that others can reach needs --token.")] = "127.0.0.1",
    token: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the token that is asked for, of mode 0600.")
    ] = None,
    textfile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write them into this file each second, and open no port.")
    ] = None,
) -> None:
    """Serve the metrics of the run at ``/metrics``, or write them into ``textfile``, until Ctrl-C.

    Raises:
        MigratorError: The extra is not installed, the port is in use, others can reach the address and there is no
            token, or the file lies in the run's folder.
        TokenError: The token's file cannot be used.
        LogError: There is no run in the folder.
        OutputError: The file cannot be written.
    """
    if (reason := lacking("metrics")) is not None:
        raise MigratorError(f"migrator metrics {reason}")
    from migrator.views.metrics import RunMetrics as Metrics  # noqa: PLC0415 - needs an extra

    if textfile is not None and textfile.resolve().is_relative_to(run.resolve()):
        raise MigratorError(f"--textfile {textfile}: lies in the run's folder; any other place is allowed")
    if not is_loopback(host) and token is None:
        raise MigratorError(f"--host {host}: others can reach it, so that --token FILE is needed")
    digest = None if token is None else sha256(token_in(token)).digest()
    followed = FollowedLog(run)
    metrics = Metrics(followed, warn)
    with suppress(KeyboardInterrupt), interruptible():
        if textfile is not None:
            _begin(metrics, followed)
            _each_second(lambda: _write(textfile, metrics.text()))
            return
        with _listening(host, port, metrics.text, digest) as server:
            _begin(metrics, followed)
            where = f"http://{f'[{host}]' if ':' in host else host}:{server.server_address[1]}/metrics"
            note(f"metrics of {run} at {where}")
            threading.Thread(target=server.serve_forever, daemon=True).start()
            _each_second(metrics.look)


def _begin(metrics: RunMetrics, followed: FollowedLog) -> None:
    """Take all that is in the log.

    Raises:
        LogError: There is no run, or its log is damaged.
    """
    metrics.look()
    if followed.damage:
        raise LogError(followed.damage)


def _each_second(do: Callable[[], object]) -> None:
    """Do it again and again, until a signal ends that."""
    while True:
        do()
        time.sleep(LOOK_S)


def _write(path: Path, text: bytes) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise OutputError(f"--textfile {path}: cannot be written: {error.strerror or error}") from None


class _Server(ThreadingHTTPServer):
    """Answers scrapes; a port in use is refused, and IPv6 is spoken where the address is one."""

    daemon_threads = True

    def __init__(self, host: str, port: int, text: Callable[[], bytes], digest: bytes | None) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.text, self.digest = text, digest
        super().__init__((host, port), _Scrape)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is nobody's business."""


def _listening(host: str, port: int, text: Callable[[], bytes], digest: bytes | None) -> _Server:
    try:
        return _Server(host, port, text, digest)
    except OSError as error:
        raise MigratorError(f"--port {port} at {host}: {error.strerror or error}; 0 takes any that is free") from None


class _Scrape(BaseHTTPRequestHandler):
    """One connection."""

    server: _Server
    timeout = TIMEOUT_S
    server_version, sys_version = "migrator", ""

    def do_GET(self) -> None:
        """Give the metrics to whoever may have them."""
        digest = self.server.digest
        host = self.headers.get("Host", "").encode("latin-1", "replace")
        if digest is None and not is_loopback_header(host):
            self._answer(403, b"Host: allowed without a token: this machine's own, as localhost\n")
        elif digest is not None and not compare_digest(self._digest(), digest):
            self._answer(401, b"the token is missing or wrong\n", ("WWW-Authenticate", "Bearer"))
        elif self.path.partition("?")[0] != "/metrics":
            self._answer(404, b"metrics are at /metrics\n")
        else:
            self._answer(200, self.server.text(), ("Content-Type", "text/plain; version=0.0.4; charset=utf-8"))

    def _digest(self) -> bytes:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        return sha256(token.strip().encode("latin-1", "replace") if scheme.lower() == "bearer" else b"").digest()

    def _answer(self, code: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(code)
        for name, value in (*headers, ("Content-Length", str(len(body))), ("X-Content-Type-Options", "nosniff")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Nothing is told of a scrape."""
