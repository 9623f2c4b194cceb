"""The process at which clients from outside ask: the Open Inference Protocol over HTTP, a client of the dispatcher.

Run with ``python -m workloads.live.front_door PARENT SETUP`` (a process id; JSON of a :class:`DoorSetup`), once the
dispatcher runs. It prints one line when it is open, ``{"url": "http://127.0.0.1:40123"}``, and ends by SIGTERM or with
its parent: what is under way then is still answered. At SIGHUP it reads another setup from :data:`DOOR_SETUP` in the
folder of the first one.

Each sample of an HTTP request is one request to the dispatcher, whose answers it waits for. All of this is one thread;
what is asked and answered is read and written in :mod:`workloads.live.open_inference`, and where that takes long, by
the process of :mod:`workloads.live.reader`.
"""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from hmac import compare_digest
from math import ceil, inf
from pathlib import Path
from time import monotonic
from typing import TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from executor.access import TokenError, is_loopback, is_loopback_header, token_in
from executor.files import read_input
from executor.messages import value_in
from workloads.errors import WorkloadError
from workloads.live.connections import DoorServer
from workloads.live.feedback import LABEL_BYTES, Answered, judgement
from workloads.live.feedback import MOST_BYTES as MOST_FEEDBACK_BYTES
from workloads.live.messages import (
    MOST_BYTES,
    TO_CLIENT,
    TO_CONTROLLER,
    Answer,
    Beat,
    Changed,
    Draining,
    Finished,
    Labelled,
    Loaded,
    Request,
    State,
    Status,
    TurnedAway,
    Watch,
)
from workloads.live.open_inference import (
    InferenceAsked,
    ProtocolError,
    Tensor,
    answered,
    asked,
    asked_packed,
    check_packing,
    too_large,
)
from workloads.live.process import DOOR_SETUP, Parent, begun
from workloads.live.reader import Reader
from workloads.live.wire import CLIENTS, CONTROLLER, WORKERS, Peer, WireError

LIGHT_BYTES = 2**14
"""JSON of a request, or numbers of an answer in JSON, that the door sees to itself; it takes 1 ms at worst."""

RETRY_S = 1
"""When a client may ask again that found no room: no queue is longer than an SLO, and HTTP has whole seconds alone."""

_HEADER = "Inference-Header-Content-Length"
_ORIGIN = re.compile(r"null|https?://(\[[0-9a-f:.]+\]|[0-9a-z_-]+(\.[0-9a-z_-]+)*)(:[1-9][0-9]{0,4})?")
_TICK_S = 0.25
_GRACE_S = 5.0
_LAST_WORDS_S = 1.0
_STATUSES = {Status.FAILED: 500, Status.REFUSED: 429, Status.DROPPED: 503}


Result = TypeVar("Result")


class FrontDoorError(WorkloadError):
    """The door cannot be opened so; the message says what is allowed."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that clients may ask.

    Attributes:
        name: Of the tenant, and of the model for clients.
        slo_s: An answer is in time if it is there so long after the whole request is.
        input: What workers are given: one sample's bytes.
        output: What they answer with.
        token_file: Holds the secret that clients have to show for this model; ``None``: they need none.
    """

    name: str
    slo_s: float
    input: Tensor
    output: Tensor
    token_file: Path | None = None

    def __post_init__(self) -> None:
        if not 0 < self.slo_s < inf:
            raise ValueError(f"{self.name}: slo_s: {self.slo_s}; must be finite and above 0")
        if self.input.sample_bytes > MOST_BYTES - 4096:
            most = f"allowed: at most {MOST_BYTES - 4096}"
            raise ValueError(f"{self.name}: input: a sample has {self.input.sample_bytes} bytes; {most}")


@dataclass(frozen=True, slots=True)
class DoorSetup:
    """What a front door needs to know.

    Attributes:
        folder: Where the dispatcher's sockets are.
        tenants: Whose models can be asked; either all or none need a token.
        host: The address to listen at. Another one than the machine's own (loopback) needs tokens.
        port: 0: one that is free.
        origins: Of pages whose scripts may ask from a browser, as browsers spell them: ``https://host:port``.
        body_bytes: Most bytes of one request's body, also decompressed.
        body_bytes_per_s: Least of them that have to come, once ``idle_s`` are over.
        held_bytes: Most bytes of all requests of one tenant that are under way, so whole; and of all its bodies that
            still come. Beyond that, the body that began to come first is given up.
        requests: Most requests of one tenant that are under way; none whose body still comes is one of them.
        samples: Most samples in one request.
        connections: Most connections of all clients. One more takes the place of one without an answer under way.
        request_s: Longest time for a request to come, for its answers after it, and for the rest of a refused one.
        idle_s: A connection without a request under way is closed after it, whatever bytes have come.
        feedback_s: How long an answer waits for clients to say which label was right.
    """

    folder: Path
    tenants: tuple[ServedModel, ...]
    host: str = "127.0.0.1"
    port: int = 0
    origins: tuple[str, ...] = ()
    body_bytes: int = 2**24
    body_bytes_per_s: int = 2**14
    held_bytes: int = 2**28
    requests: int = 256
    samples: int = 256
    connections: int = 512
    request_s: float = 30.0
    idle_s: float = 10.0
    feedback_s: float = 3600.0

    def __post_init__(self) -> None:
        sizes = "body_bytes", "body_bytes_per_s", "held_bytes", "requests", "samples", "connections"
        for name in (*sizes, "request_s", "idle_s", "feedback_s"):
            if not 0 < getattr(self, name) < inf:
                raise ValueError(f"{name}: {getattr(self, name)}; must be finite and above 0")
        if not 0 <= self.port < 2**16:
            raise ValueError(f"port: {self.port}; allowed: 0 to {2**16 - 1}")
        if not self.tenants or len({one.name for one in self.tenants}) < len(self.tenants):
            raise ValueError(f"tenants: {[one.name for one in self.tenants]}; at least one, each once, is needed")
        _check_tokens_are_asked(self)
        for origin in self.origins:
            if not is_origin(origin):
                allowed = "scheme://host or scheme://host:port as browsers spell it, in small letters; or null"
                raise ValueError(f"origins: {origin[:100]!r}; allowed: {allowed}")
        for one in self.tenants:
            if one.slo_s >= self.request_s:
                raise ValueError(f"request_s: {self.request_s}; must be above slo_s of {one.name}, {one.slo_s}")


def _check_tokens_are_asked(setup: DoorSetup) -> None:
    open_to_all = [one.name for one in setup.tenants if one.token_file is None]
    if open_to_all and not is_loopback(setup.host):
        raise ValueError(
            f"host: {setup.host}: others can reach it, so every tenant needs a token_file; "
            f"without one: {' '.join(open_to_all)}"
        )
    if open_to_all and len(open_to_all) < len(setup.tenants):
        raise ValueError(f"tenants: all or none need a token_file; without one: {' '.join(open_to_all)}")


def is_origin(text: str) -> bool:
    """Whether browsers spell an origin so; they leave out the port that is the scheme's own."""
    return _ORIGIN.fullmatch(text) is not None and not re.search(r"^http:.*:80$|^https:.*:443$", text)


def tokens_of(setup: DoorSetup) -> dict[bytes, str]:
    """Whose model each token opens: digests and names of tenants; empty where none are needed.

    Raises:
        FrontDoorError: A file cannot be read, others may read it, or it holds no token of this tenant's own.
    """
    tokens: dict[bytes, str] = {}
    for tenant in setup.tenants:
        if tenant.token_file is None:
            continue
        digest, path = sha256(_token(tenant.token_file)).digest(), tenant.token_file
        if digest in tokens:
            raise FrontDoorError(f"token file {path} of {tenant.name}: has the token of {tokens[digest]} as well")
        tokens[digest] = tenant.name
    return tokens


def _token(path: Path) -> bytes:
    try:
        return token_in(path)
    except TokenError as error:
        raise FrontDoorError(str(error)) from error


class _Asking:
    """The requests of one client, until each has its answer."""

    def __init__(self, n_requests: int) -> None:
        self.answers: dict[int, Answer] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._n_requests = n_requests

    def take(self, answer: Answer) -> None:
        self.answers[answer.id] = answer
        if len(self.answers) == self._n_requests and not self.done.done():
            self.done.set_result(None)

    def fail(self, reason: str) -> None:
        if not self.done.done():
            self.done.set_exception(WireError(reason))


class _Line:
    """The connections to the dispatcher: requests that are under way, and which workers serve.

    Attributes:
        is_there: Whether the dispatcher has been heard.
        drains: Whether it takes no further request, and when clients may ask again.
    """

    def __init__(self, folder: Path) -> None:
        self.is_there = False
        self.drains: Draining | None = None
        self._peer = Peer(folder, CLIENTS, b"", TO_CLIENT, waits=False)
        self._watch = Peer(folder, WORKERS, CONTROLLER + b"front door", TO_CONTROLLER)
        self._asking: dict[int, _Asking] = {}
        self._n_asked = 0
        self._is_connected = False
        self._end = ""
        self._serving: dict[str, tuple[str, str]] = {}  # the tenant and version of each worker that serves
        for peer in (self._peer, self._watch):
            asyncio.get_running_loop().add_reader(peer.fileno(), self._receive)

    def close(self) -> None:
        for peer in (self._peer, self._watch):
            asyncio.get_running_loop().remove_reader(peer.fileno())
            peer.close()

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._is_connected and not self._end

    def versions(self, tenant: str) -> list[str]:
        """Of the tenant's model, as it is served now; empty while no worker serves."""
        return sorted({version for of, version in self._serving.values() if of == tenant and self.is_open})

    async def ask(self, tenant: str, samples: Sequence[bytes], arrival_s: float, deadline_s: float) -> list[Answer]:
        """The answers, one a sample.

        Raises:
            WireError: The dispatcher is not there, or ends.
        """
        if self._end:
            raise WireError(self._end)
        asking, ids = _Asking(len(samples)), range(self._n_asked, self._n_asked + len(samples))
        self._n_asked = ids.stop
        self._asking.update(dict.fromkeys(ids, asking))
        try:
            for number, sample in zip(ids, samples, strict=True):
                self._peer.send(Request(number, tenant, arrival_s, deadline_s, sample))
            self._receive()
            await asking.done
            return [asking.answers[number] for number in ids]
        finally:
            for number in ids:
                self._asking.pop(number, None)

    def turn_away(self, tenant: str, n_requests: int) -> None:
        """Tell the dispatcher, if it is there, that so many requests found no room here."""
        if self.is_open:
            self._peer.send(TurnedAway(tenant, monotonic(), n_requests))

    def judged(self, tenant: str, by_version: Mapping[str, tuple[int, int]]) -> None:
        """Tell the dispatcher, if it is there, what clients say of answers: how many, and how many right."""
        for version, counts in by_version.items() if self.is_open else ():
            self._peer.send(Labelled(tenant, version, *counts))

    def fail(self, reason: str) -> None:
        """Give up all that is under way."""
        for asking in set(self._asking.values()):
            asking.fail(reason)

    def look(self) -> None:
        """See whether the dispatcher is there. When it goes, what is under way is given up, maybe with last answers."""
        is_connected = self._peer.is_connected
        if is_connected and not self._is_connected:
            self._end, self.drains = "", None
            self._serving.clear()
            self._watch.send(Watch())
        self._is_connected = is_connected
        self._receive()
        if not is_connected:
            self.fail(self._end or "the dispatcher is gone")

    def _receive(self) -> None:
        for answer in self._peer.receive(0.0):
            if answer.id in self._asking:
                self._asking[answer.id].take(answer)
        for message in self._watch.receive(0.0):
            match message:
                case Beat():
                    self.is_there = True
                case Draining():
                    self.drains = message
                case Changed(state=State.SERVING):
                    self._serving[message.worker] = (message.tenant, message.version)
                case Changed():
                    self._serving.pop(message.worker, None)
                case Loaded():
                    if message.worker in self._serving:
                        self._serving[message.worker] = (self._serving[message.worker][0], message.version)
                case Finished():
                    self._end = "the run has ended"


@dataclass(slots=True)
class _UnderWay:
    """What one tenant's clients have under way: whole requests, and bodies that still come, the oldest first.

    Attributes:
        n_samples: Of the last request whose body was read; so many are taken for one whose body was not.
    """

    n_requests: int = 0
    n_samples: int = 1
    n_bytes: int = 0
    coming: dict[asyncio.Timeout, int] = field(default_factory=dict)
    is_reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """A whole request is under way meanwhile."""
        self.n_requests += 1
        try:
            yield
        finally:
            self.n_requests -= 1

    def hold(self, n_bytes: int, most_bytes: int) -> int:
        """Count so many more bytes of whole requests, and return how many.

        Raises:
            ProtocolError: They would be more than the most.
        """
        if self.n_bytes + n_bytes > most_bytes:
            raise ProtocolError(f"more than {most_bytes} bytes of requests are under way", 429, RETRY_S)
        self.n_bytes += n_bytes
        return n_bytes

    def give_up_beyond(self, most_bytes: int) -> None:
        """Let the time of the oldest bodies be over until the others have no more bytes than that."""
        while sum(self.coming.values()) > most_bytes:
            oldest = next(iter(self.coming))
            del self.coming[oldest]
            if not oldest.expired():
                oldest.reschedule(asyncio.get_running_loop().time())


class _Pages:
    """Refuses what a browser asks for the page of an origin that is not listed, before it reads anything of a body.

    A browser tells the origin, or at least that the page is of another site, unless the page calls this machine by a
    name of its own (DNS rebinding): then its ``Host`` tells. Where tokens are asked for, no such page has one.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str], *, asks_for_tokens: bool) -> None:
        self._app, self._asks_for_tokens = app, asks_for_tokens
        self._origins = frozenset(origin.encode() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        reason, has_listed, is_cross_site = "", False, False
        for name, value in scope["headers"]:
            match name:
                case b"host" if not (self._asks_for_tokens or is_loopback_header(value)):
                    reason = f"Host: {_shown(value)}; allowed without tokens: this machine's own, as localhost"
                case b"origin" if value in self._origins:
                    has_listed = True
                case b"origin":
                    reason = f"Origin: {_shown(value)}; allowed: those in front_door.origins"
                case b"sec-fetch-site":
                    is_cross_site = value == b"cross-site"
        if is_cross_site and not (has_listed or reason):
            reason = "Sec-Fetch-Site: cross-site; allowed: with an Origin in front_door.origins"
        await (_refused(reason, 403) if reason else self._app)(scope, receive, send)


class _Door:
    """What is answered to whom."""

    def __init__(self, setup: DoorSetup, tokens: Mapping[bytes, str], line: _Line, reader: Reader) -> None:
        self._line, self._reader = line, reader
        self._under_way: dict[str, _UnderWay] = {}
        self._remembered: dict[str, Answered] = {}
        self._awaited = {tenant.name for tenant in setup.tenants}  # and who came later, once it was served
        self.change(setup, tokens)

    def change(self, setup: DoorSetup, tokens: Mapping[bytes, str]) -> None:
        """Answer by this setup from now on; its address is the one before, and what is under way goes on."""
        self._setup, self._tokens = setup, tokens
        self._tenants = {tenant.name: tenant for tenant in setup.tenants}
        for one in setup.tenants:
            self._under_way.setdefault(one.name, _UnderWay())
            if one.output.sample_bytes == LABEL_BYTES:
                self._remembered.setdefault(one.name, Answered(setup.feedback_s))
        self._app = self._built()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._app(scope, receive, send)

    def _built(self) -> ASGIApp:
        model = "/v2/models/{model}"
        routes = [
            Route("/v2", self._server),
            Route("/v2/health/live", self._live),
            Route("/v2/health/ready", self._all_ready),
            Route(f"{model}/feedback", self._feedback, methods=["POST"]),
        ]
        for path in (model, f"{model}/versions/{{version}}"):
            routes += [
                Route(path, self._metadata),
                Route(f"{path}/ready", self._ready),
                Route(f"{path}/infer", self._infer, methods=["POST"]),
            ]
        handlers = {
            ProtocolError: _http_error,
            HTTPException: _starlette_error,
            ClientDisconnect: _no_response,
            Exception: _fault_response,
        }
        app: ASGIApp = Starlette(routes=routes, exception_handlers=handlers)
        if self._setup.origins:
            app = CORSMiddleware(
                app,
                self._setup.origins,
                allow_methods=("GET", "POST"),
                allow_headers=("Authorization", "Content-Encoding", "Content-Type", _HEADER),
                allow_private_network=True,
                expose_headers=(_HEADER, "Retry-After"),
            )
        return _Pages(app, self._setup.origins, asks_for_tokens=bool(self._tokens))

    # --- who asks for what

    def _tenant(self, request: HttpRequest) -> ServedModel:
        """The tenant whose model is asked for; only if the client may know of it.

        Raises:
            ProtocolError: There is none for this client, or no such version of it.
        """
        name = request.path_params["model"]
        if self._tokens:
            owner = self._owner(request.headers.get("authorization", ""))
            if name != owner:
                raise ProtocolError(f"no model {name[:100]!r} for this token", 404)
        tenant = self._tenants.get(name)
        if tenant is None:
            raise ProtocolError(f"no model {name[:100]!r}; there is: {' '.join(self._tenants)}", 404)
        version = request.path_params.get("version")
        if version is not None and version not in self._line.versions(name):
            served = " ".join(self._line.versions(name)) or "none"
            raise ProtocolError(f"no version {version[:100]!r} of model {name}; served now: {served}", 404)
        return tenant

    def _owner(self, authorization: str) -> str:
        """Whose token it is; all are compared, so that the time taken tells nothing."""
        scheme, _, token = authorization.partition(" ")
        digest = sha256(token.strip().encode("latin-1")).digest()
        owners = [owner for known, owner in self._tokens.items() if compare_digest(known, digest)]
        if scheme.lower() != "bearer" or not owners:
            raise ProtocolError("a token is needed: Authorization: Bearer TOKEN", 401)
        return owners[0]

    # --- what there is

    async def _server(self, _: HttpRequest) -> Response:
        return JSONResponse({"name": "migrator", "version": "2", "extensions": ["binary_tensor_data"]})

    async def _live(self, _: HttpRequest) -> Response:
        return JSONResponse({"live": True})

    async def _all_ready(self, _: HttpRequest) -> Response:
        self._awaited |= {name for name in self._tenants if self._line.versions(name)}
        return self._ready_response([name for name in self._tenants if name in self._awaited])

    async def _ready(self, request: HttpRequest) -> Response:
        return self._ready_response([self._tenant(request).name])

    def _ready_response(self, names: Sequence[str]) -> Response:
        is_ready = self._line.drains is None and all(self._line.versions(name) for name in names)
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)

    async def _metadata(self, request: HttpRequest) -> Response:
        tenant = self._tenant(request)
        told = {"name": tenant.name, "versions": self._line.versions(tenant.name), "platform": "migrator"}
        return JSONResponse({**told, "inputs": [tenant.input.metadata], "outputs": [tenant.output.metadata]})

    # --- inference

    async def _infer(self, request: HttpRequest) -> Response:
        tenant = self._tenant(request)
        under_way, n_held, is_asked = self._under_way[tenant.name], 0, False
        n_samples: int | None = None
        try:
            self._check_room(tenant)  # before the body comes, too
            body = await self._body(request, under_way)
            arrival_s = monotonic()
            self._check_room(tenant)
            with under_way.one_more():
                n_held += under_way.hold(len(body), self._setup.held_bytes)
                what = await self._asked(request, tenant, body)
                del body
                n_samples = under_way.n_samples = len(what.samples)
                n_held += under_way.hold(sum(map(len, what.samples)) - n_held, self._setup.held_bytes)
                is_asked = True
                answers = await self._answers(tenant, what.samples, arrival_s, what.timeout_s)
                if what.id is not None and tenant.name in self._remembered:
                    labels = b"".join(answer.payload or b"" for answer in answers)
                    versions = [answer.version for answer in answers]
                    self._remembered[tenant.name].keep(what.id, labels, versions, monotonic())
                return await self._answers_response(request, tenant, what, answers)
        except ProtocolError as error:
            if not is_asked and error.status in (429, 503):
                self._line.turn_away(tenant.name, n_samples or under_way.n_samples)
            raise
        finally:
            under_way.n_bytes -= n_held

    async def _feedback(self, request: HttpRequest) -> Response:
        """Which label was right: counted, and told how many of the answers had it."""
        tenant = self._tenant(request)
        if tenant.name not in self._remembered:
            raise ProtocolError(f"model {tenant.name}: its answers are no labels", 404)
        if int(request.headers.get("content-length", MOST_FEEDBACK_BYTES + 1)) > MOST_FEEDBACK_BYTES:
            raise ProtocolError(
                f"a body of at most {MOST_FEEDBACK_BYTES} bytes, its Content-Length told, is needed", 413
            )
        name, labels = judgement(await self._body(request, self._under_way[tenant.name]))
        judged = self._remembered[tenant.name].judge(name, labels, monotonic())
        self._line.judged(tenant.name, judged)
        n_right = sum(right for _, right in judged.values())
        return JSONResponse({"id": name, "labels": len(labels), "right": n_right})

    async def _answers_response(
        self, request: HttpRequest, tenant: ServedModel, what: InferenceAsked, answers: Sequence[Answer]
    ) -> Response:
        in_time = all(answer.status is Status.IN_TIME for answer in answers)
        payloads, versions = [answer.payload or b"" for answer in answers], [answer.version for answer in answers]
        version = request.path_params.get("version")
        if version is not None and set(versions) != {version}:
            raise ProtocolError(f"version {version} of model {tenant.name} was replaced meanwhile", 404)
        write = partial(answered, what, tenant.name, tenant.output, payloads, versions, in_time=in_time)
        is_light = what.is_binary or len(payloads) * tenant.output.sample_bytes <= LIGHT_BYTES
        raw, n_json = write() if is_light else await self._beside(tenant, write)
        if n_json is None:
            return Response(raw, media_type="application/json")
        return Response(raw, headers={_HEADER: str(n_json)}, media_type="application/octet-stream")

    def _check_room(self, tenant: ServedModel) -> None:
        n_requests = self._under_way[tenant.name].n_requests
        if self._line.drains is not None:
            raise self._no_more(self._line.drains)
        if n_requests >= self._setup.requests:
            raise ProtocolError(f"model {tenant.name}: {n_requests} requests are under way already", 429, RETRY_S)

    def _no_more(self, drains: Draining) -> ProtocolError:
        return ProtocolError("no further request is taken", 503, max(RETRY_S, ceil(drains.retry_after_s)))

    async def _body(self, request: HttpRequest, under_way: _UnderWay) -> bytearray:
        """The body, as it comes; none of it where its length is too large.

        Raises:
            ProtocolError: It is too large or too slow, or its packing is unknown.
        """
        setup, body, loop = self._setup, bytearray(), asyncio.get_running_loop()
        if int(request.headers.get("content-length", 0)) > setup.body_bytes:
            size = request.headers["content-length"]
            raise ProtocolError(f"a body of {size} bytes; allowed: at most {setup.body_bytes}", 413)
        check_packing(_packing(request))
        begin_s = loop.time()
        try:
            async with asyncio.timeout(setup.idle_s) as limit:
                under_way.coming[limit] = 0
                while (piece := await request.receive())["type"] == "http.request":
                    body += piece["body"]
                    if len(body) > setup.body_bytes:
                        raise too_large(setup.body_bytes)
                    if not piece["more_body"]:
                        return body
                    if limit in under_way.coming:
                        under_way.coming[limit] = len(body)
                        most_s = min(setup.request_s, setup.idle_s + len(body) / setup.body_bytes_per_s)
                        limit.reschedule(begin_s + most_s)
                        under_way.give_up_beyond(setup.held_bytes)
                raise ClientDisconnect
        except TimeoutError:
            if limit not in under_way.coming:
                message = (
                    f"more than {setup.held_bytes} bytes of requests still come, and this one has come for longest"
                )
                raise ProtocolError(message, 429, RETRY_S) from None
            needed = f"at least {setup.body_bytes_per_s} bytes a second after the first {setup.idle_s:g} s"
            message = f"a body of {len(body)} bytes in {loop.time() - begin_s:.1f} s; allowed: {needed}"
            raise ProtocolError(f"{message}, and at most {setup.request_s:g} s", 408) from None
        finally:
            under_way.coming.pop(limit, None)

    async def _asked(self, request: HttpRequest, tenant: ServedModel, body: bytearray) -> InferenceAsked:
        """What the body asks for.

        Raises:
            ProtocolError: It is no request that fits the model.
        """
        packing, n_json = _packing(request), _json_bytes(request)
        rest = n_json, tenant.input, tenant.output, self._setup.samples
        if not packing and (len(body) if n_json is None else n_json) <= LIGHT_BYTES:
            return asked(body, *rest)
        return await self._beside(tenant, partial(asked_packed, body, packing, self._setup.body_bytes, *rest))

    async def _beside(self, tenant: ServedModel, call: Callable[[], Result]) -> Result:
        """What the call returns that the process beside makes, for each tenant one at a time.

        Raises:
            ProtocolError: It does not come to it in time, or the call raises it.
        """
        try:
            async with asyncio.timeout(self._setup.request_s), self._under_way[tenant.name].is_reading:
                return await self._reader.call(call)
        except TimeoutError:
            message = f"large JSON and packed bodies of others took {self._setup.request_s:g} s"
            raise ProtocolError(message, 503, RETRY_S) from None

    async def _answers(
        self, tenant: ServedModel, samples: Sequence[bytes], arrival_s: float, timeout_s: float | None
    ) -> list[Answer]:
        """An answer for each sample.

        Raises:
            ProtocolError: A sample has none.
        """
        deadline_s = arrival_s + min(tenant.slo_s, timeout_s or inf)
        try:
            async with asyncio.timeout(self._setup.request_s):
                answers = await self._line.ask(tenant.name, samples, arrival_s, deadline_s)
        except TimeoutError:
            raise ProtocolError(f"no answer within {self._setup.request_s:g} s", 504) from None
        except WireError as error:
            raise ProtocolError(str(error), 503) from None
        lacking = [(place, answer) for place, answer in enumerate(answers) if answer.payload is None]
        if lacking:
            place, first = lacking[0]
            which = "" if len(answers) == 1 else f"{len(lacking)} of {len(answers)} samples, the first: {place}: "
            status = _STATUSES.get(first.status, 500)
            if first.status is Status.REFUSED and self._line.drains is not None:
                raise self._no_more(self._line.drains)
            raise ProtocolError(f"{which}{first.status}: {first.reason}", status, None if status == 500 else RETRY_S)
        return answers


def _json_bytes(request: HttpRequest) -> int | None:
    text = request.headers.get(_HEADER)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise ProtocolError(f"{_HEADER}: {text[:60]!r}; allowed: how many bytes of the body are JSON")
    return int(text)


def _packing(request: HttpRequest) -> str:
    packing = request.headers.get("content-encoding", "").lower()
    return "" if packing == "identity" else packing


def _shown(value: bytes) -> str:
    return repr(value[:100].decode("latin-1"))


def _refused(message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status, headers)


async def _http_error(_: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ProtocolError)
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    return _refused(str(error), error.status, headers)


async def _starlette_error(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refused(f"{request.method} {request.url.path[:100]}: {error.detail}", error.status_code, error.headers)


async def _no_response(_: HttpRequest, __: Exception) -> Response:
    return Response(status_code=400)


async def _fault_response(_: HttpRequest, __: Exception) -> Response:
    return _refused("a fault of the front door itself; its log says more", 500)


def keep_door(setup: DoorSetup, parent: Parent) -> None:
    """Answer clients until SIGTERM comes, or the parent is gone.

    Raises:
        FrontDoorError: There is no listening at that address, or a token file is wrong.
    """
    tokens = tokens_of(setup)
    try:
        family = socket.AF_INET6 if ":" in setup.host else socket.AF_INET
        listener = socket.create_server((setup.host, setup.port), family=family)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections have it from their listener
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]  # Python adds the address
        raise FrontDoorError(f"{setup.host}, port {setup.port}: {reason}") from error
    asyncio.run(_serve_http(setup, parent, tokens, listener))


def _change(door: _Door, path: Path) -> None:
    """Have the door answer by the setup in a file, unless that is wrong: then all stays as it is."""
    try:
        setup = value_in(read_input(path).decode(), DoorSetup)
        door.change(setup, tokens_of(setup))
    except (WorkloadError, ValueError, OSError) as error:
        sys.stderr.write(f"front door: {error}\n")


async def _serve_http(setup: DoorSetup, parent: Parent, tokens: Mapping[bytes, str], listener: socket.socket) -> None:
    line, reader = _Line(setup.folder), Reader()
    host = f"[{setup.host}]" if ":" in setup.host else setup.host
    url = f"http://{host}:{listener.getsockname()[1]}"
    door = _Door(setup, tokens, line, reader)
    server = DoorServer(door, url, setup.connections, setup.idle_s, setup.request_s)
    leaving = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leaving.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _change, door, setup.folder / DOOR_SETUP)

    async def look() -> None:
        while True:
            line.look()
            if parent.is_gone:
                leaving.set()
            await asyncio.sleep(_TICK_S)

    async def leave() -> None:
        await leaving.wait()
        server.should_exit = True
        await asyncio.sleep(_GRACE_S)
        line.fail("the front door closes")
        await asyncio.sleep(_LAST_WORDS_S)
        server.cut()

    try:
        async with asyncio.TaskGroup() as group:
            keepers = [group.create_task(look()), group.create_task(leave())]
            while not (line.is_there or leaving.is_set()):
                await asyncio.sleep(_TICK_S / 10)
            if not leaving.is_set():
                await reader.start()
                await server.serve(sockets=[listener])
            for keeper in keepers:
                keeper.cancel()
    finally:
        await reader.close()
        line.close()
        listener.close()


def main(arguments: Sequence[str]) -> int:
    """Keep the door as the arguments say; 0, or 2 where it cannot be done."""
    try:
        parent, (text,) = begun(arguments, 1, signal.SIGTERM)
        keep_door(value_in(text, DoorSetup), parent)
    except (WorkloadError, ValueError) as error:
        sys.stderr.write(f"front door: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
