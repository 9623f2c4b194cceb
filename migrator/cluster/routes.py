"""Where clients find each tenant: ``routes.json``, and the same by HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from msgspec import MsgspecError, Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from executor.files import read_input
from migrator.cluster.assigned import Assigned, GpuReport


class Route(Struct, frozen=True, kw_only=True):
    """A front door that answers for a tenant, or for its part of it.

    Attributes:
        url: Of the door.
        model: What the tenant is called there: ``name.1`` for a replica.
        share: Of the tenant's requests that go there.
        gpu: Which GPU that is.
    """

    url: str
    model: str
    share: float
    gpu: str


class Routes(Struct, frozen=True, kw_only=True):
    """By tenant its doors; a tenant that nobody answers for has none."""

    number: int
    tenants: dict[str, tuple[Route, ...]]

    @property
    def gpu_of(self) -> dict[str, str]:
        """By model, as doors call it, the GPU that it is routed to."""
        return {one.model: one.gpu for doors in self.tenants.values() for one in doors}


def routes_of(assigned: Assigned, gpus: Mapping[str, GpuReport], before: Routes | None) -> Routes:
    """Every tenant where it is ready: on the GPU that is to have it, else on one that still has it.

    One that is ready nowhere stays routed as it was. Its worker may be on its way back; and of a node that is lost
    nobody knows whether its services are.
    """
    last = {} if before is None else {one.model: one for doors in before.tenants.values() for one in doors}
    tenants: dict[str, tuple[Route, ...]] = {}
    for asked in assigned.cluster.asked:
        found = []
        for name in asked.names:
            having = [gpu for part in (assigned.sets, assigned.leaving) for gpu, own in part.items() if name in own]
            ready = [gpu for gpu in having if gpu in gpus and name in gpus[gpu].ready]
            if ready:
                found.append(Route(url=gpus[ready[0]].url, model=name, share=1.0, gpu=ready[0]))
            elif name in last and not assigned.is_closed:
                found.append(last[name])
        tenants[asked.name] = tuple(replace(one, share=1 / len(found)) for one in found)
    return Routes(number=assigned.number, tenants=tenants)


def routes_in(path: Path) -> Routes | None:
    """What was published last, if it can be read."""
    with suppress(OSError, MsgspecError):
        return decode(read_input(path), type=Routes)
    return None


class RoutesDoor:
    """Answers ``GET /routes`` with the newest routes, in a thread.

    Attributes:
        routes: What is answered; 503 before there are any.
        port: Where it listens.
    """

    def __init__(self, host: str, port: int) -> None:
        """Raises ``OSError`` where the port is taken."""
        self.routes: Routes | None = None
        door = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_known = self.path.partition("?")[0] == "/routes"
                body = encode(door.routes) if is_known and door.routes is not None else b""
                self.send_response(404 if not is_known else 200 if body else 503)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((host, port), Handler)
        self.port = self._server.server_address[1]
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
