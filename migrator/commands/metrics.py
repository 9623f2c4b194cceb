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
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from executor.access import is_loopback, is_loopback_header, token_in
from executor.files import write_whole
from migrator.commands.options import with_examples
from migrator.errors import LogError, MigratorError, OutputError
from migrator.execution.loop import View
from migrator.extras import lacking
from migrator.log.follow import FollowedLog
from migrator.terminal.console import note, warn
from migrator.terminal.parallel import start_beside
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
    _require_extra("migrator metrics")
    if textfile is not None and textfile.resolve().is_relative_to(run.resolve()):
        raise MigratorError(f"--textfile {textfile}: lies in the run's folder; any other place is allowed")
    if not is_loopback(host) and token is None:
        raise MigratorError(f"--host {host}: others can reach it, so that --token FILE is needed")
    digest = None if token is None else sha256(token_in(token)).digest()
    with suppress(KeyboardInterrupt), interruptible():
        if textfile is not None:
            metrics = _metrics_of(run)
            _each_second(lambda: _write(textfile, metrics.text()))
            return
        with _bound(host, port, "--port") as listening:
            metrics = _metrics_of(run)
            note(f"metrics of {run} at {_address(listening)}")
            _serve(listening, metrics, digest)


class MetricsBeside(View):
    """The metrics of the run that it watches, served on loopback by a process of its own; that ends when it is closed.

    It is a process that reads the run's folder, so that nothing of it costs the run, or ends it.
    """

    def __init__(self, port: int) -> None:
        """Take the port, any that is free if it is 0, and say which.

        Raises:
            MigratorError: The extra is not installed, or the port is in use.
        """
        _require_extra("--metrics")
        self._listening = _bound("127.0.0.1", port, "--metrics")
        self._process: BaseProcess | None = None
        note(f"metrics at {_address(self._listening)}")

    def begun(self, folder: Path) -> None:
        """Start to follow the run."""
        self._process = start_beside(_beside, self._listening, folder)
        self._listening.close()

    def close(self) -> None:
        """End the process, and let go of the port."""
        self._listening.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()


def _beside(listening: socket.socket, folder: Path) -> None:
    _serve(listening, _metrics_of(folder), None)


def _require_extra(what: str) -> None:
    if (reason := lacking("metrics")) is not None:
        raise MigratorError(f"{what} {reason}")


def _metrics_of(run: Path) -> RunMetrics:
    """The metrics of the run in the folder, with all that is in its log.

    Raises:
        LogError: There is no run, or its log is damaged.
    """
    from migrator.views.metrics import RunMetrics as Metrics  # noqa: PLC0415 - needs an extra

    followed = FollowedLog(run)
    metrics = Metrics(followed, warn)
    metrics.look()
    if followed.damage:
        raise LogError(followed.damage)
    return metrics


def _serve(listening: socket.socket, metrics: RunMetrics, digest: bytes | None) -> None:
    """Answer scrapes, until a signal ends that."""
    with _Server(listening, metrics.text, digest) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _each_second(metrics.look)


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
    """Answers scrapes."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, text: Callable[[], bytes], digest: bytes | None) -> None:
        super().__init__(listening.getsockname()[:2], _Scrape, bind_and_activate=False)
        self.socket.close()
        self.socket, self.text, self.digest = listening, text, digest

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is nobody's business."""


def _bound(host: str, port: int, option: str) -> socket.socket:
    """Where scrapes come; IPv6 is spoken where the address is one.

    Raises:
        MigratorError: The port is in use, or the address is not this machine's.
    """
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        where = f"{option} {port} at {host}"
        raise MigratorError(f"{where}: {error.strerror or error}; 0 takes any that is free") from None
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"


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
        """Log nothing of a scrape."""
