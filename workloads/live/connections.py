"""HTTP connections for unknown clients: uvicorn's, with limits of number, size and time that it has not.

Uvicorn leaves open a connection whose request never comes to an end, and cuts one whose request it answers too early.
Where there are too many connections, it turns away the new ones, so that clients who say nothing shut out all others.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from math import ceil

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

_MOST_HEAD_BYTES = 2**14
_MOST_FRAMING_BYTES = 2**16
"""What is around the chunks of a body: at least 5 bytes and 5 µs of CPU each."""

_READ_BYTES, _READ_BODY_BYTES = 2**14, 2**18
"""Taken from a connection in one go: little, as it may be many chunks, unless it is of a body of known length."""

_UNACCEPTED = 2048
_LAST_WORDS_S = 1.0


class DoorServer(uvicorn.Server):
    """Uvicorn's, which prints where it is to be found once it is open, and leaves signals to others.

    Args:
        app: What answers.
        url: Where, as clients write it.
        connections: Most of them at a time. Another one takes the place of the one that has been silent longest; where
            at most a quarter are silent, of the one whose request began to come first: the silent ones may just have
            come. If all have answers under way, it is cut itself.
        idle_s: A connection without a request under way is closed after it, whatever bytes have come.
        linger_s: So long a body that is refused may still come.
    """

    def __init__(self, app: ASGIApp, url: str, connections: int, idle_s: float, linger_s: float) -> None:
        self._url = url
        config = uvicorn.Config(
            _Lingering(app, linger_s),
            http=type("Limited", (Connection,), {"most": connections, "idle_s": idle_s, "silent": {}, "coming": {}}),
            backlog=max(1, connections // 16),  # taken in at once: they are received before a quarter is younger
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
        for listener in sockets or ():
            listener.listen(_UNACCEPTED)  # so many may wait to be taken in
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
    """A client's. ``most`` and ``idle_s`` as for :class:`DoorServer`.

    Two queues hold those that may be cut for another one: the ``silent``, of whose next request nothing has come, and
    those whose request is ``coming``.
    """

    most: int
    idle_s: float
    silent: dict[Connection, None]
    coming: dict[Connection, None]
    _queue: dict[Connection, None] | None = None
    _closing: asyncio.TimerHandle | None = None
    _n_framing = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it in; where there are too many, cut the first that may be, or else this one."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            are_many_silent = len(self.silent) > self.most // 4
            queues = (self.silent, self.coming) if are_many_silent else (self.coming, self.silent)
            first = next(chain(*queues), self)
            self.connections.discard(first)
            first.stand_in(None)
            first.transport.abort()
        if not transport.is_closing():
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        super().connection_lost(exc)
        self.stand_in(None)
        if self._closing is not None:
            self._closing.cancel()

    def data_received(self, data: bytes) -> None:
        """Take what has come; throw away what belongs to a body that has its answer already."""
        if getattr(self.cycle, "response_started", False) and self.conn.their_state is h11.SEND_BODY:
            return
        cycle, n_before = self.cycle, len(getattr(self.cycle, "body", b""))
        super().data_received(data)
        if self.conn.their_state is h11.SEND_BODY:
            if self.cycle is not cycle:
                self._n_framing = n_before = 0
            self._mind_chunks(len(data) - len(self.cycle.body) + n_before)
        self._find_queue(self.coming)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        if not self.transport.is_closing():
            self._await_request()
        super().on_response_complete()
        self._find_queue(self.silent)

    def stand_in(self, queue: dict[Connection, None] | None) -> None:
        """Join the end of this queue, unless it is in it already, and leave any other."""
        if queue is not self._queue:
            if self._queue is not None:
                del self._queue[self]
            if queue is not None:
                queue[self] = None
            self._queue = queue

    def _find_queue(self, between_requests: dict[Connection, None]) -> None:
        state = self.conn.their_state
        if self.transport.is_closing() or state not in (h11.IDLE, h11.SEND_BODY):
            self.stand_in(None)
        else:
            self.stand_in(self.coming if state is h11.SEND_BODY else between_requests)

    def _mind_chunks(self, n_framing: int) -> None:
        """Refuse a body in many small chunks; of other bodies, more may be read at once."""
        if not any(name == b"transfer-encoding" for name, _ in self.headers):
            self._read_at_once(_READ_BODY_BYTES)
            return
        self._n_framing += n_framing
        if self._n_framing > _MOST_HEAD_BYTES + _MOST_FRAMING_BYTES:
            self.send_400_response(f"Chunks with {_MOST_FRAMING_BYTES} bytes around them; send larger ones.")

    def _read_at_once(self, n_bytes: int) -> None:
        self.transport.max_size = n_bytes  # type: ignore[attr-defined] # asyncio's own transports have it

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()  # in the midst of an answer

    def _await_request(self) -> None:
        self.stand_in(self.silent)
        self._read_at_once(_READ_BYTES)
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
        linger_s, has_more = self._linger_s, not names.isdisjoint((b"content-length", b"transfer-encoding"))
        is_unread = has_more and b"expect" not in names

        async def received() -> Message:
            nonlocal has_more, is_unread
            is_unread = has_more  # a client that waited is asked for the body now
            message = await receive()
            is_unread = has_more = has_more and bool(message.get("more_body"))
            return message

        async def read_for(seconds: float) -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while is_unread:
                        await received()

        async def said(message: Message) -> None:
            nonlocal linger_s
            if is_unread and message["type"] == "http.response.start":
                linger_s = min(linger_s, _LAST_WORDS_S) if message["status"] == 408 else linger_s  # it came too slowly
                await read_for(0.0)  # it may be there after all
                if is_unread:
                    message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            elif is_unread and not message.get("more_body"):
                await send({**message, "more_body": True})
                await read_for(linger_s)
                message = {"type": "http.response.body"}
            await send(message)

        await self._app(scope, received, said)
