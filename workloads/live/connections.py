"""HTTP connections for clients that nobody knows: uvicorn's, with limits of number, size and time that it has not.

Uvicorn leaves open a connection whose request never comes to an end, and cuts one whose request it answers too early.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import ceil

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

_MOST_HEAD_BYTES = 2**14


class Server(uvicorn.Server):
    """Uvicorn's, which prints where it is to be found once it is open, and leaves signals to others.

    Args:
        app: What answers.
        url: Where, as clients write it.
        connections: Most of them at a time.
        idle_s: A connection without a request under way is closed after it, whatever bytes have come.
        linger_s: So long a body that is refused may still come.
    """

    def __init__(self, app: ASGIApp, url: str, connections: int, idle_s: float, linger_s: float) -> None:
        self._url = url
        config = uvicorn.Config(
            _Lingering(app, linger_s),
            http=type("Limited", (Connection,), {"most": connections, "idle_s": idle_s}),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=ceil(idle_s),
            h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open, and say so."""
        await super().startup(sockets)
        sys.stdout.write(json.dumps({"url": self._url}) + "\n")
        sys.stdout.flush()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    def cut(self) -> None:
        """Close all connections, whatever is under way."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()


class Connection(H11Protocol):
    """A client's. ``most`` and ``idle_s`` as for :class:`Server`."""

    most: int
    idle_s: float
    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it in, or cut it where there are too many."""
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > self.most:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        super().connection_lost(exc)
        if self._closing is not None:
            self._closing.cancel()

    def data_received(self, data: bytes) -> None:
        """Take what has come; throw away what belongs to a body that has its answer already."""
        if not (getattr(self.cycle, "response_started", False) and self.conn.their_state is h11.SEND_BODY):
            super().data_received(data)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._await_request()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()  # in the midst of an answer

    def _await_request(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
        self._closing = self.loop.call_later(self.idle_s, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if getattr(self.cycle, "response_complete", True):  # there is no cycle before the first request
            self.transport.abort()


class _Lingering:
    """Where a request is answered before it is all there, the connection is kept for a while, and then closed.

    A client that is still sending would see a connection that is cut, and no answer. What it sends meanwhile is thrown
    away (:class:`Connection`). Clients that wait to be asked for the body (``Expect``) send none.
    """

    def __init__(self, app: ASGIApp, linger_s: float) -> None:
        self._app, self._linger_s = app, linger_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        names = {name for name, _ in scope["headers"]}
        is_unread = not names.isdisjoint((b"content-length", b"transfer-encoding")) and b"expect" not in names

        async def heard() -> Message:
            nonlocal is_unread
            message = await receive()
            is_unread = is_unread and bool(message.get("more_body"))
            return message

        async def read_for(seconds: float) -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while is_unread:
                        await heard()

        async def said(message: Message) -> None:
            if is_unread and message["type"] == "http.response.start":
                await read_for(0.0)  # it may be there after all
                if is_unread:
                    message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            elif is_unread and not message.get("more_body"):
                await send({**message, "more_body": True})
                await read_for(self._linger_s)
                message = {"type": "http.response.body"}
            await send(message)

        await self._app(scope, heard, said)
