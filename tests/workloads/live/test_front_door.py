"""The front door as a real process, before a real dispatcher and workers: whatever clients do, they get an answer.

As with the other processes, each step waits for what shows it, never for time.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import resource
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from random import Random
from threading import Event
from time import monotonic
from typing import Any

import pytest
from live_site import PATIENCE_S, SURROUNDINGS, Site, becomes_serving, site_in

from benchmarks.speed import front_door as bench
from executor.messages import as_text
from tests.ending import ends
from workloads.live.front_door import (
    LIGHT_BYTES,
    DoorSetup,
    FrontDoorError,
    ServedModel,
    is_loopback,
    is_origin,
    tokens_of,
)
from workloads.live.messages import Counts, Drain, DrainAll, Drained, Draining, Labelled, Load, Loaded
from workloads.live.open_inference import Tensor
from workloads.live.process import DOOR_SETUP

PATCH, SAME = Tensor("patch", "UINT8", (2, 2)), Tensor("same", "UINT8", (2, 2))
"""What Echo takes and gives."""

VISION, TEXT = ServedModel("vision", 25.0, PATCH, SAME), ServedModel("text", 25.0, PATCH, SAME)
EVERYWHERE = "0.0.0.0"  # noqa: S104
ENDS = frozenset(
    ["dropped: the run has ended", "the run has ended", "the dispatcher is gone", "the dispatcher is not there"]
)
"""A dispatcher's last answers may not outrun the end of its connection."""
HEADER = "Inference-Header-Content-Length"
PAGE = "https://app.example"
ALIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = "POST /v2/models/vision/infer HTTP/1.1\r\nHost: localhost\r\n"
"""How a request for inference begins."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_in(tmp_path / "s") as site:
        yield site


@dataclass
class Told:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        size = self.headers.get(HEADER.lower())
        return json.loads(self.body[: int(size)] if size else self.body)

    @property
    def error(self) -> str:
        assert self.status >= 400
        (text,) = self.json.values()
        assert isinstance(text, str)
        assert "\n" not in text
        return text


class Client:
    """A client; each question has a connection of its own."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self.place = (host, int(port))

    @contextmanager
    def connection(self) -> Iterator[HTTPConnection]:
        with closing(HTTPConnection(*self.place, timeout=PATIENCE_S)) as connection:
            yield connection

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Told:
        with self.connection() as connection:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            return told(connection.getresponse())

    def infer(self, request: object, behind: bytes = b"", model: str = "vision", **headers: str) -> Told:
        head = json.dumps(request).encode()
        if behind:
            headers[HEADER] = str(len(head))
        return self.ask("POST", f"/v2/models/{model}/infer", head + behind, **headers)

    def becomes_ready(self, path: str = "/v2/health/ready", status: int = 200) -> None:
        until_s = monotonic() + PATIENCE_S
        while self.ask("GET", path).status != status:
            assert monotonic() < until_s


def told(response: HTTPResponse) -> Told:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Told(response.status, headers, response.read())


def answer_on(connection: socket.socket, request: bytes = b"") -> Told:
    connection.sendall(request)
    response = HTTPResponse(connection)
    response.begin()
    return told(response)


def one(*pixels: int, **changes: object) -> dict[str, Any]:
    told = {"name": "patch", "datatype": "UINT8", "shape": [len(pixels) // 4, 2, 2], "data": list(pixels)}
    return {"inputs": [told]} | changes


HOPELESS = one(1, 2, 3, 4, parameters={"timeout": 1})
"""A request that nobody can answer in time."""


def door(site: Site, *tenants: ServedModel, **changes: Any) -> tuple[Client, subprocess.Popen[str]]:
    setup = DoorSetup(site.folder, tenants or (VISION,), **{"request_s": PATIENCE_S, "idle_s": PATIENCE_S, **changes})
    process = site.start("workloads.live.front_door", as_text(setup))
    assert process.stdout is not None
    return Client(json.loads(process.stdout.readline())["url"]), process


def served(site: Site) -> None:
    """A dispatcher and a worker that serves."""
    site.dispatcher()
    site.worker("a")
    becomes_serving(site, "a")


@contextmanager
def served_by_a_door(folder: Path, *tenants: ServedModel, **changes: Any) -> Iterator[Client]:
    """A door that has nothing to complain of at its end."""
    with site_in(folder / "s") as site:
        served(site)
        client, process = door(site, *tenants, **changes)
        yield client
        process.terminate()
        assert (process.communicate(timeout=PATIENCE_S)[1], process.returncode) == ("", 0)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """For tests that leave the door, and the worker behind it, as they are."""
    with served_by_a_door(tmp_path_factory.mktemp("s")) as client:
        yield client


@pytest.fixture(scope="module")
def brisk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The same before a door that soon loses patience, maybe also with a client that a busy machine holds up."""
    with served_by_a_door(
        tmp_path_factory.mktemp("s"), replace(VISION, slo_s=0.1), idle_s=0.3, request_s=0.5
    ) as client:
        yield client


# --- what should happen


def test_a_request_in_json_is_answered(client: Client) -> None:
    told = client.infer(one(1, 2, 3, 4, id="q7"))
    assert (told.status, told.json) == (
        200,
        {
            "model_name": "vision",
            "model_version": "0",
            "id": "q7",
            "parameters": {"in_time": True},
            "outputs": [{"name": "same", "datatype": "UINT8", "shape": [1, 2, 2], "data": [1, 2, 3, 4]}],
        },
    )


def test_a_request_in_bytes_is_answered(client: Client) -> None:
    binary = {"name": "patch", "datatype": "UINT8", "shape": [2, 2, 2], "parameters": {"binary_data_size": 8}}
    told = client.infer({"inputs": [binary], "parameters": {"binary_data_output": True}}, b"abcdefgh")
    assert told.json["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert told.body.endswith(b"}abcdefgh")


def test_each_sample_is_a_request_to_the_dispatcher(site: Site) -> None:
    served(site)
    client, _ = door(site)
    assert client.infer(one(*range(40))).json["outputs"][0]["data"] == list(range(40))
    assert site.finish()["in_time"] == 10


def test_packed_bodies_are_unpacked(client: Client) -> None:
    body = gzip.compress(json.dumps(one(1, 2, 3, 4)).encode())
    assert client.ask("POST", "/v2/models/vision/infer", body, Content_Encoding="gzip").status == 200


def test_a_body_of_unknown_length_is_read(client: Client) -> None:
    chunks = (bytes([byte]) for byte in json.dumps(one(1, 2, 3, 4)).encode())
    assert client.ask("POST", "/v2/models/vision/infer", chunks).status == 200


def test_what_there_is_is_told(client: Client) -> None:
    client.becomes_ready()
    assert client.ask("GET", "/v2").json["extensions"] == ["binary_tensor_data"]
    assert client.ask("GET", "/v2/health/live").status == 200
    assert client.ask("GET", "/v2/models/vision").json == {
        "name": "vision",
        "versions": ["0"],
        "platform": "migrator",
        "inputs": [{"name": "patch", "datatype": "UINT8", "shape": [-1, 2, 2]}],
        "outputs": [{"name": "same", "datatype": "UINT8", "shape": [-1, 2, 2]}],
    }


def test_versions_follow_the_weights(site: Site, tmp_path: Path) -> None:
    served(site)
    client, _ = door(site)
    client.becomes_ready("/v2/models/vision/versions/0/ready")
    (tmp_path / "weights").write_bytes(b"")
    site.order(Load("a", str(tmp_path / "weights"), "v2"))
    site.heard(Loaded)
    client.becomes_ready("/v2/models/vision/versions/v2/ready")
    assert client.infer(one(1, 2, 3, 4), model="vision/versions/v2").json["model_version"] == "v2"
    assert "no version '0' of model vision; served now: v2" in client.infer(one(1), model="vision/versions/0").error


def test_a_model_is_ready_while_a_worker_serves(site: Site) -> None:
    site.dispatcher("vision", "text")
    client, _ = door(site, VISION, TEXT)
    assert client.ask("GET", "/v2/models/vision/ready").status == 503
    site.worker("a")
    client.becomes_ready("/v2/models/vision/ready")
    assert client.ask("GET", "/v2/health/ready").status == 503
    site.worker("b", tenant="text")
    client.becomes_ready()
    site.order(Drain("a"))
    client.becomes_ready("/v2/models/vision/ready", 503)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_what_the_page_says_to_type_works() -> None:
    page = (Path(__file__).parents[3] / "docs" / "front-door.md").read_text("utf-8")
    (typed,) = re.findall(r"```sh\nurl=\S+\n(.*?)```", page, re.DOTALL)
    with bench.door(64) as (_, url, _):
        ran = subprocess.run(["bash", "-c", f"url={url}\n{typed}"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith('{"name":"bench"')
    (shown,) = re.findall(r"The last prints\s+`(.*)`", page)
    assert ran.stdout.endswith(shown)


# --- what is refused


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/v2/models/nobody", 404, "no model 'nobody'; there is: vision"),
        ("POST", "/v2/models/nobody/infer", 404, "no model 'nobody'; there is: vision"),
        ("GET", "/v2/models/vision/versions/7", 404, "no version '7' of model vision"),
        ("GET", "/elsewhere", 404, "GET /elsewhere: Not Found"),
        ("GET", "/v2/models/vision/infer", 405, "Method Not Allowed"),
        ("POST", "/v2/models/vision/infer", 400, "0 bytes of JSON"),
    ],
)
def test_what_there_is_not_is_told(client: Client, method: str, path: str, status: int, said: str) -> None:
    told = client.ask(method, path)
    assert (told.status, said in told.error) == (status, True)


def test_a_wrong_tensor_is_refused(client: Client) -> None:
    told = client.infer(one(1, 2, 3, 4, 5, 6, 7, 8, 9))
    assert (told.status, told.error) == (400, "inputs[0].data: 9 numbers; shape [2, 2, 2] has 8")
    assert client.infer(one(1, 2, 3, 4), **{HEADER: "x"}).error.startswith(f"{HEADER}: 'x'")
    assert client.infer(one(1, 2, 3, 4)).status == 200


def test_a_gigabyte_is_refused_before_it_comes(client: Client) -> None:
    with client.connection() as connection:
        connection.putrequest("POST", "/v2/models/vision/infer")
        connection.putheader("Content-Length", str(10**9))
        connection.endheaders()
        answer = told(connection.getresponse())
    assert (answer.status, answer.error) == (413, f"a body of {10**9} bytes; allowed: at most {2**24}")


@pytest.mark.parametrize(("model", "status"), [("vision", 413), ("nobody", 404)])
def test_a_client_hears_of_a_refusal_after_it_has_sent_all(client: Client, model: str, status: int) -> None:
    answer = client.ask("POST", f"/v2/models/{model}/infer", bytes(2**26))
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert client.infer(one(1, 2, 3, 4)).status == 200


def test_a_client_that_asks_before_it_sends_is_told_at_once(client: Client) -> None:
    answer = client.ask("POST", "/v2/models/nobody/infer", Expect="100-continue", Content_Length="5")
    assert answer.status == 404


@pytest.mark.parametrize("body", [bytes(5000), gzip.compress(bytes(5000))], ids=["chunked", "packed"])
def test_a_body_is_measured_as_it_comes(site: Site, body: bytes) -> None:
    site.dispatcher()
    client, _ = door(site, body_bytes=4096)
    packing = {} if len(body) == 5000 else {"Content_Encoding": "gzip"}
    told = client.ask("POST", "/v2/models/vision/infer", iter([body]), **packing)
    assert (told.status, told.error) == (413, "a body of more than 4096 bytes; that is the most allowed")


def test_requests_that_cannot_be_in_time_are_refused(site: Site) -> None:
    site.dispatcher()
    client, _ = door(site)
    told = client.infer(HOPELESS)
    assert (told.status, told.error) == (503, "dropped: it could not be answered in time")
    assert told.headers["retry-after"] == "1"


def test_a_model_that_raises_is_told_and_the_service_goes_on(site: Site) -> None:
    site.dispatcher()
    site.worker("a", "Raises")
    word = Tensor("word", "UINT8", (5,))
    client, _ = door(site, ServedModel("vision", 25.0, word, word))

    def ask(*words: bytes) -> Told:
        data = [list(one) for one in words]
        return client.infer({"inputs": [{"name": "word", "datatype": "UINT8", "shape": [len(words), 5], "data": data}]})

    answer = ask(b"right", b"raise")
    assert answer.status == 500
    assert answer.error.startswith("1 of 2 samples, the first: 1: failed: the model raised RuntimeError: asked to")
    assert ask(b"right").status == 200


def test_a_model_that_answers_otherwise_is_told(site: Site) -> None:
    site.dispatcher()
    site.worker("a", options={"prefix": "x"})
    client, _ = door(site)
    answer = client.infer(one(1, 2, 3, 4))
    assert (answer.status, "the model's answer has 5 bytes; 4 are needed" in answer.error) == (500, True)


def test_a_request_that_finds_no_room_counts_as_many_as_its_tenant_s_last_one_unless_more_is_known(site: Site) -> None:
    served(site)
    client, _ = door(site, held_bytes=300)
    assert client.infer(one(*range(8))).status == 200  # 94 bytes of JSON, and two samples
    assert client.ask("POST", "/v2/models/vision/infer", bytes(400)).status == 429
    assert site.heard(Counts, lambda counts: counts.turned_away > 0).turned_away == 2
    assert client.ask("POST", "/v2/models/vision/infer", b"{}").status == 400
    assert client.ask("POST", "/v2/models/nobody/infer", b"{}").status == 404
    assert site.finish()["arrived"] == 2


LABELS = replace(VISION, input=Tensor("patch", "UINT8", (2,)), output=Tensor("label", "UINT16", (1,)))
"""Asked with two bytes, a model that answers what it was asked answers with a label."""


def test_what_clients_say_of_answers_is_counted_once(site: Site) -> None:
    served(site)
    client, _ = door(site, LABELS)

    def ask(*pixels: int, **more: object) -> None:
        told = {"name": "patch", "datatype": "UINT8", "shape": [len(pixels) // 2, 2], "data": list(pixels)}
        assert client.infer({"inputs": [told], **more}).status == 200

    def say(**said: object) -> Told:
        return client.ask("POST", "/v2/models/vision/feedback", json.dumps(said).encode())

    ask(3, 0, id="one")
    ask(1, 0, 2, 0, 0, 1, id="three")
    ask(4, 0)
    assert say(id="three", labels=[1, 7]).error == "labels: 2 of them; id 'three' has 3 answers"
    assert say(id="three", labels=[1, 7, 256]).json == {"id": "three", "labels": 3, "right": 2}
    assert site.heard(Labelled) == Labelled("vision", "0", 3, 2)
    assert say(id="one", label=3).json == {"id": "one", "labels": 1, "right": 1}
    assert say(id="one", label=3).error == "id 'one': no answer to it within 3600 s waits for a label"
    assert say(id="one", label=3).status == 404
    assert site.finish()["arrived"] == 5


def test_answers_that_are_no_labels_wait_for_none_and_a_large_body_is_refused(site: Site) -> None:
    served(site)
    client, _ = door(site)
    assert client.ask("POST", "/v2/models/vision/feedback", b"{}").error == "model vision: its answers are no labels"
    client, _ = door(site, LABELS)
    assert client.ask("POST", "/v2/models/vision/feedback", bytes(2**16 + 1)).status == 413
    assert client.ask("GET", "/v2/models/vision/feedback").status == 405


def test_a_full_queue_is_told(site: Site) -> None:
    site.dispatcher(queue_bytes=100)
    client, _ = door(site)
    told = client.infer(one(1, 2, 3, 4))
    assert (told.status, told.error) == (429, "refused: the queue of vision is full")
    assert told.headers["retry-after"] == "1"


def test_one_tenants_many_requests_leave_room_for_others(site: Site) -> None:
    site.dispatcher("vision", "text")
    client, _ = door(site, VISION, TEXT, requests=1)
    site.worker("b", tenant="text")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(client.infer, one(1, 2, 3, 4))
        site.heard(Counts, lambda counts: (counts.tenant, counts.waiting) == ("vision", 1))
        answer = client.infer(HOPELESS)
        assert (answer.status, answer.error) == (429, "model vision: 1 requests are under way already")
        assert answer.headers["retry-after"] == "1"
        assert site.heard(Counts, lambda counts: counts.turned_away == 1).tenant == "vision"
        assert client.infer(one(1, 2, 3, 4), model="text").status == 200
        site.worker("a")
        assert asking.result(PATIENCE_S).status == 200
    assert client.infer(one(1, 2, 3, 4)).status == 200


@contextmanager
def coming(client: Client, n_bytes: int) -> Iterator[socket.socket]:
    """A connection on which a body of so many bytes is to come, and the door waits for it."""
    with socket.create_connection(client.place, timeout=PATIENCE_S) as connection:
        connection.sendall(f"{POST}Expect: 100-continue\r\nContent-Length: {n_bytes}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        yield connection


def test_a_request_counts_once_it_is_whole(site: Site) -> None:
    served(site)
    client, _ = door(site, requests=1)
    with coming(client, 10) as held:
        held.sendall(b"{")
        assert client.infer(one(1, 2, 3, 4)).status == 200


def test_of_too_much_that_still_comes_the_oldest_is_given_up(site: Site) -> None:
    served(site)
    client, _ = door(site, held_bytes=8192)
    with coming(client, 6000) as older, coming(client, 6000) as newer:
        older.sendall(bytes(5000))
        newer.sendall(bytes(5000))
        answer = answer_on(older)
        said = "more than 8192 bytes of requests still come, and this one has come for longest"
        assert (answer.status, answer.error, answer.headers["connection"]) == (429, said, "close")
        assert answer_on(newer, bytes(1000)).status == 400
    assert client.infer(one(1, 2, 3, 4)).status == 200


def test_what_a_packed_body_holds_counts_as_well(site: Site) -> None:
    served(site)
    client, _ = door(site, held_bytes=600)
    for n_samples, status in ((256, 429), (2, 200)):
        body = gzip.compress(json.dumps(one(*[7] * 4 * n_samples)).encode())
        assert len(body) < 300
        assert client.ask("POST", "/v2/models/vision/infer", body, Content_Encoding="gzip").status == status


# --- pages in a browser


def test_pages_of_others_are_not_let_in_by_a_browser(client: Client) -> None:
    for path in ("/v2/models/vision", "/v2/health/live"):
        told = client.ask("GET", path, Host="evil.example:80")
        assert (told.status, "Host: 'evil.example:80'; allowed without tokens" in told.error) == (403, True)
        assert client.ask("GET", path, Host="localhost:1").status == 200


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"Origin": "http://evil.example"}, "Origin: 'http://evil.example'; allowed: those in front_door.origins"),
        ({"Origin": "null"}, "Origin: 'null'; allowed"),
        ({"Origin": ""}, "Origin: ''; allowed"),
        ({"Origin": "http://localhost", "Sec_Fetch_Site": "same-site"}, "Origin: 'http://localhost'; allowed"),
        ({"Sec_Fetch_Site": "cross-site"}, "Sec-Fetch-Site: cross-site; allowed: with an Origin in front_door.origins"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET", "OPTIONS"])
def test_no_page_may_ask_unless_its_origin_is_listed(
    client: Client, method: str, headers: dict[str, str], said: str
) -> None:
    path = "/v2/models/vision/infer" if method == "POST" else "/v2/models/vision"
    told = client.ask(method, path, json.dumps(one(1, 2, 3, 4)) if method == "POST" else None, **headers)
    assert (told.status, said in told.error) == (403, True)
    assert "access-control-allow-origin" not in told.headers


def test_a_page_is_refused_before_its_body_comes(client: Client) -> None:
    with socket.create_connection(client.place, timeout=PATIENCE_S) as connection:
        answer = answer_on(connection, f"{POST}Origin: null\r\nContent-Length: 9999\r\n\r\n".encode())
    assert (answer.status, answer.headers["connection"]) == (403, "close")


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_what_is_no_page_of_another_site_may_ask(client: Client, site: str) -> None:
    assert client.infer(one(1, 2, 3, 4), Sec_Fetch_Site=site).status == 200


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Before a door that a page may use, and one without an origin of its own."""
    with served_by_a_door(tmp_path_factory.mktemp("s"), origins=(PAGE, "null")) as client:
        yield client


@pytest.mark.parametrize("origin", [PAGE, "null"])
def test_a_listed_page_may_ask_and_read_the_answer(public: Client, origin: str) -> None:
    told = public.infer(one(1, 2, 3, 4), Origin=origin, Sec_Fetch_Site="cross-site")
    assert (told.status, told.headers["access-control-allow-origin"]) == (200, origin)
    assert (told.headers["access-control-expose-headers"], told.headers["vary"]) == (f"{HEADER}, Retry-After", "Origin")
    wrong = public.infer(one(1), Origin=origin)
    assert (wrong.status, wrong.headers["access-control-allow-origin"]) == (400, origin)


def test_a_listed_page_may_ask_whether_it_may(public: Client) -> None:
    wanted = {
        "Access_Control_Request_Method": "POST",
        "Access_Control_Request_Headers": f"content-type,{HEADER.lower()}",
    }
    told = public.ask("OPTIONS", "/v2/models/vision/infer", Origin=PAGE, **wanted)
    assert (told.status, told.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "access-control-allow-credentials" not in told.headers
    assert public.ask("OPTIONS", "/v2/models/vision/infer", Origin="https://evil.example", **wanted).status == 403


def test_where_a_page_is_listed_others_are_not(public: Client) -> None:
    for origin in (f"{PAGE}:8080", f"{PAGE}.evil.example", "http://app.example"):
        assert public.infer(one(1, 2, 3, 4), Origin=origin).status == 403
    assert public.infer(one(1, 2, 3, 4), Sec_Fetch_Site="cross-site").status == 403


# --- what takes long


@contextmanager
def halted(door: subprocess.Popen[str]) -> Iterator[None]:
    """Meanwhile the process beside the door does nothing."""
    (pid,) = map(int, Path(f"/proc/{door.pid}/task/{door.pid}/children").read_text().split())
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


LARGE = json.dumps(one(1, 2, 3, 4)).encode() + b" " * LIGHT_BYTES


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("body", [LARGE, gzip.compress(LARGE)], ids=["large", "packed"])
def test_what_takes_long_holds_nobody_up(site: Site, body: bytes) -> None:
    site.dispatcher("vision", "text")
    site.worker("a")
    client, process = door(site, VISION, TEXT, requests=1)
    packing = {} if body is LARGE else {"Content_Encoding": "gzip"}

    def insist() -> Told:
        while (answer := client.ask("POST", "/v2/models/vision/infer", body, **packing)).status == 429:
            pass
        return answer

    with ThreadPoolExecutor(1) as pool:
        with halted(process):
            asking = pool.submit(insist)
            until_s = monotonic() + PATIENCE_S
            while client.infer(HOPELESS).status != 429:  # so the large one is whole
                assert monotonic() < until_s
            assert client.infer(HOPELESS, model="text").status == 503
            assert not asking.done()
        assert asking.result(PATIENCE_S).status == 200


def test_large_answers_are_written_beside_the_door(site: Site) -> None:
    served(site)
    large = Tensor("patch", "UINT8", (LIGHT_BYTES + 1,))
    client, _ = door(site, replace(VISION, input=large, output=large))
    data = [number % 251 for number in range(*large.shape)]
    asked = {"inputs": [{"name": "patch", "datatype": "UINT8", "shape": [1, *large.shape], "data": data}]}
    assert client.infer(asked).json["outputs"][0]["data"] == data


# --- clients that behave otherwise


def closed(client: Client, first: bytes, drip: bytes = b"") -> bytes:
    """What comes back until the connection is closed, while bytes drip into it."""
    received = bytearray()
    until_s = monotonic() + PATIENCE_S
    with socket.create_connection(client.place, timeout=0.02) as one_end, suppress(ConnectionError):
        one_end.sendall(first)
        while monotonic() < until_s:
            with suppress(TimeoutError):
                piece = one_end.recv(65536)
                if not piece:
                    return bytes(received)
                received += piece
                continue
            one_end.sendall(drip)
    assert monotonic() < until_s
    return bytes(received)


def comes_back(client: Client, wanted: bytes, first: bytes, drip: bytes = b"") -> None:
    """Wait until this comes back, from a door that closes connections of late clients."""
    until_s = monotonic() + PATIENCE_S
    while wanted not in closed(client, first, drip):
        assert monotonic() < until_s


@pytest.mark.parametrize("first", [b"", b"GET /v2 HT", b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_request_that_drips_is_cut(brisk: Client, first: bytes) -> None:
    assert closed(brisk, first, b"x" if first else b"") == b""


def test_a_connection_that_drips_after_its_first_request_is_cut(brisk: Client) -> None:
    comes_back(brisk, b'{"live":true}', ALIVE, b"G")


def test_a_body_that_drips_is_refused(brisk: Client) -> None:
    head = b"POST /v2/models/vision/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n"
    allowed = "at least 16384 bytes a second after the first 0.3 s, and at most 0.5 s"
    comes_back(brisk, f" s; allowed: {allowed}".encode(), head, b"x")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"POST /v2/models/vision/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 2**17 + b"\r\n\r\n",
        b"POST /v2/models/vision/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v2/models/nobody/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n\r\n",
    ],
)
def test_garbage_costs_its_connection_alone(brisk: Client, garbage: bytes) -> None:
    assert b" 500 " not in closed(brisk, garbage)
    comes_back(brisk, b'{"live":true}', ALIVE)


def test_connections_are_kept(client: Client) -> None:
    with client.connection() as connection:
        for _ in range(3):
            connection.request("GET", "/v2")
            assert connection.sock is not None
            first = connection.sock.getsockname()
            assert told(connection.getresponse()).status == 200
            assert connection.sock.getsockname() == first


@contextmanager
def connected(client: Client) -> Iterator[socket.socket]:
    """A connection that the door knows, as it has answered one request."""
    with socket.create_connection(client.place, timeout=PATIENCE_S) as connection:
        assert answer_on(connection, ALIVE).status == 200
        yield connection


def test_one_connection_too_many_takes_the_place_of_the_one_that_is_silent_longest(site: Site) -> None:
    site.dispatcher()
    client, _ = door(site, connections=3)
    with connected(client) as first, connected(client) as second, coming(client, 10):
        assert answer_on(first, ALIVE).status == 200
        with connected(client) as third:
            assert second.recv(1) == b""
            for one_end in (first, third):
                assert answer_on(one_end, ALIVE).status == 200


@pytest.mark.parametrize("begun", [b"GET /v2 HT", POST.encode() + b"Content-Length: 9\r\n\r\n{"], ids=["head", "body"])
def test_where_none_is_silent_a_request_that_still_comes_is_cut(site: Site, begun: bytes) -> None:
    site.dispatcher()
    client, _ = door(site, connections=1)
    with connected(client) as connection:
        connection.sendall(begun)
        with connected(client) as other:
            with suppress(ConnectionResetError):
                while connection.recv(1):
                    pass
            assert answer_on(other, ALIVE).status == 200


def test_requests_under_way_are_not_cut_for_others(site: Site) -> None:
    site.dispatcher()
    client, _ = door(site, connections=1)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(client.infer, one(1, 2, 3, 4))
        site.heard(Counts, lambda counts: counts.waiting == 1)
        assert closed(client, b"") == b""
        site.worker("a")
        assert asking.result(PATIENCE_S).status == 200


def test_a_body_in_very_many_chunks_is_refused(client: Client) -> None:
    chunks = (
        f"{POST}Transfer-Encoding: chunked\r\n\r\n".encode() + b"1\r\n \r\n" * 16_400
    )  # so that none of it is left unread at the end
    with socket.create_connection(client.place, timeout=PATIENCE_S) as connection:
        answer = answer_on(connection, chunks)
    assert (answer.status, answer.body) == (400, b"Chunks with 65536 bytes around them; send larger ones.")


def test_a_client_that_leaves_costs_its_request_alone(site: Site) -> None:
    served(site)
    client, process = door(site)
    body = json.dumps(one(*range(8))).encode()
    head = f"POST /v2/models/vision/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for sent in (head + body, head + body[:5], head, head[:9]):
        with socket.create_connection(client.place) as one_end:
            one_end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # no word of farewell
            one_end.sendall(sent)
    assert client.infer(one(1, 2, 3, 4)).status == 200
    site.heard(Counts, lambda counts: counts.waiting == 0)
    process.terminate()
    assert process.communicate(timeout=PATIENCE_S)[1] == ""


# --- attacks


@contextmanager
def many_files() -> Iterator[None]:
    """Room for a few thousand connections in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Attack:
    """Connections that are replaced when the door closes them, until there were ``n_most``; none sends a whole request.

    Attributes:
        n_closed: How many the door has closed.
    """

    def __init__(self, client: Client, n_at_once: int, n_most: int, begins: Sequence[bytes], drip: bytes) -> None:
        self.n_closed = 0
        self._place, self._begins, self._drip = client.place, begins, drip
        self._random, self._left, self._is_over = Random(7), n_most, Event()
        self._selector = selectors.DefaultSelector()
        for _ in range(n_at_once):
            self._open()

    def _open(self) -> None:
        if self._left:
            self._left -= 1
            connection = socket.create_connection(self._place, timeout=PATIENCE_S)
            connection.sendall(self._random.choice(self._begins))
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ)

    def look(self) -> None:
        """Replace what was closed, and send some of the others a little."""
        for key, _ in self._selector.select(0.05):
            assert isinstance(key.fileobj, socket.socket)
            try:
                is_closed = not key.fileobj.recv(65536)
            except ConnectionError:
                is_closed = True
            if is_closed:
                self._selector.unregister(key.fileobj)
                key.fileobj.close()
                self.n_closed += 1
                self._open()
        for key in self._random.sample(list(self._selector.get_map().values()), len(self._selector.get_map()) // 8):
            assert isinstance(key.fileobj, socket.socket)
            with suppress(OSError):
                key.fileobj.send(self._drip)

    def goes_on(self) -> None:
        while not self._is_over.is_set():
            self.look()

    def ends(self) -> None:
        self._is_over.set()

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()


def share_answered(client: Client, attack: Attack, n_requests: int = 120) -> float:
    """Of honest requests, four at a time, beside an attack; each has a connection of its own."""

    def is_answered(number: int) -> bool:
        try:
            return client.infer(one(*[number % 256] * 4)).status == 200
        except (OSError, HTTPException):
            return False

    with ThreadPoolExecutor(5) as pool:
        attacking = pool.submit(attack.goes_on)
        try:
            return sum(pool.map(is_answered, range(n_requests))) / n_requests
        finally:
            attack.ends()
            attacking.result()


@pytest.mark.long
def test_a_thousand_silent_connections_shut_nobody_out(site: Site) -> None:
    served(site)
    client, _ = door(site)
    begins = [b"", b"G", b"POST /v2/models/vision/infer HTTP/1.1\r\nHost: localhost\r\n", ALIVE]
    with many_files(), closing(Attack(client, 1000, 4000, begins, b"")) as attack:
        while attack.n_closed < 1000 - DoorSetup(Path("s"), (VISION,)).connections:
            attack.look()  # until the door is full
        assert share_answered(client, attack) >= 0.95


@pytest.mark.long
def test_dripping_bodies_keep_nobody_waiting(site: Site) -> None:
    served(site)
    client, _ = door(site, idle_s=2.0)
    begins = [f"{POST}Content-Length: {size}\r\n\r\n{{".encode() for size in (10**3, 10**5, 10**7)]
    begins.append(f"{POST}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n".encode())
    with many_files(), closing(Attack(client, 256, 384, begins, b" ")) as attack:
        assert share_answered(client, attack) >= 0.95
        until_s = monotonic() + PATIENCE_S
        while attack.n_closed < 384:  # all are refused in the end
            attack.look()
            assert monotonic() < until_s


# --- tokens


@pytest.fixture
def secrets(tmp_path: Path) -> dict[str, Path]:
    paths = {name: tmp_path / name for name in ("vision", "text")}
    for name, path in paths.items():
        path.write_text(f"{name}-0123456789abcdef\n", "utf-8")
        path.chmod(0o600)
    return paths


@pytest.fixture
def guarded(site: Site, secrets: dict[str, Path]) -> Client:
    site.dispatcher("vision", "text")
    site.worker("a")
    return door(site, *(replace(one, token_file=secrets[one.name]) for one in (VISION, TEXT)))[0]


def test_without_a_token_nothing_is_told(guarded: Client) -> None:
    for given in (None, "", "Bearer", "Bearer wrong", "Basic vision-0123456789abcdef", "Bearer é"):
        headers = {} if given is None else {"Authorization": given}
        for model in ("vision", "nobody"):
            answer = guarded.infer(one(1, 2, 3, 4), model=model, **headers)
            assert (given, answer.status, answer.headers["www-authenticate"]) == (given, 401, "Bearer")
            assert answer.error == "a token is needed: Authorization: Bearer TOKEN"


def test_a_token_opens_its_own_model_alone(guarded: Client) -> None:
    token = {"Authorization": "Bearer vision-0123456789abcdef"}
    assert guarded.infer(one(1, 2, 3, 4), **token).status == 200
    for model in ("text", "nobody"):
        answer = guarded.infer(one(1, 2, 3, 4), model=model, **token)
        assert (answer.status, answer.error) == (404, f"no model {model!r} for this token")


def test_with_tokens_others_may_be_let_in(site: Site, secrets: dict[str, Path]) -> None:
    site.dispatcher()
    client, _ = door(site, replace(VISION, token_file=secrets["vision"]), host=EVERYWHERE)
    told = client.ask("GET", "/v2/models/vision", Authorization="Bearer vision-0123456789abcdef", Host="gpu.example")
    assert told.status == 200


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (None, 0o600, "No such file"),
        (b"short", 0o600, "16 to 1000 printable ASCII characters are needed"),
        (b"0123456789 abcdef", 0o600, "16 to 1000 printable ASCII characters are needed"),
        (b"0123456789abcdef", 0o640, "has mode 0640, so that others may read it; 0600 is needed"),
        (b"text-0123456789abcdef", 0o600, "has the token of text as well"),
    ],
)
def test_a_file_that_is_no_secret_is_refused(
    secrets: dict[str, Path], content: bytes | None, mode: int, said: str
) -> None:
    path = secrets["vision"]
    path.unlink()
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    tenants = (replace(TEXT, token_file=secrets["text"]), replace(VISION, token_file=path))
    with pytest.raises(FrontDoorError, match=said) as caught:
        tokens_of(DoorSetup(Path("s"), tenants))
    assert str(path) in str(caught.value)


def test_at_hup_it_goes_on_by_another_setup_unless_that_is_wrong(site: Site, secrets: dict[str, Path]) -> None:
    served(site)
    client, process = door(site, replace(VISION, token_file=secrets["vision"]))
    client.becomes_ready("/v2/models/vision", 401)
    own, other = ({"Authorization": f"Bearer {name}-0123456789abcdef"} for name in ("vision", "text"))
    assert client.ask("GET", "/v2/models/vision", **own).status == 200
    tenants = [replace(VISION, token_file=secrets["text"])]
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(client.infer, one(1, 2, 3, 4), **own)
        under_way.result(PATIENCE_S)
        (site.folder / DOOR_SETUP).write_text(as_text(DoorSetup(site.folder, tuple(tenants), origins=(PAGE,))))
        process.send_signal(signal.SIGHUP)
        until_s = monotonic() + PATIENCE_S
        while client.ask("GET", "/v2/models/vision", **other).status != 200:
            assert monotonic() < until_s
    assert client.ask("GET", "/v2/models/vision", **own).status == 401
    assert client.ask("GET", "/v2/models/vision", **other, Origin=PAGE).status == 200
    for wrong in ("half a set", as_text(DoorSetup(site.folder, (replace(VISION, token_file=Path("no")),)))):
        (site.folder / DOOR_SETUP).write_text(wrong)
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("front door: ")
    assert client.infer(one(1, 2, 3, 4), **other).status == 200


def test_who_comes_later_keeps_the_others_ready_and_counts_once_it_was_served(site: Site) -> None:
    site.dispatcher("vision", "text")
    site.worker("a")
    client, process = door(site)
    client.becomes_ready()
    (site.folder / DOOR_SETUP).write_text(as_text(DoorSetup(site.folder, (VISION, TEXT))))
    process.send_signal(signal.SIGHUP)
    client.becomes_ready("/v2/models/text/ready", 503)  # it is known, and not served
    assert client.ask("GET", "/v2/health/ready").status == 200
    worker = site.worker("b", tenant="text")
    client.becomes_ready("/v2/models/text/ready")
    assert client.ask("GET", "/v2/health/ready").status == 200
    worker.kill()
    client.becomes_ready("/v2/health/ready", 503)


# --- the end of others


def test_without_its_dispatcher_it_says_so(site: Site) -> None:
    served(site)
    client, _ = door(site)
    client.becomes_ready()
    dispatcher = site.processes[0]
    dispatcher.kill()
    dispatcher.wait()
    client.becomes_ready(status=503)
    answer = client.infer(one(1, 2, 3, 4))
    assert (answer.status, answer.error) == (503, "the dispatcher is not there")


def test_requests_under_way_hear_of_the_dispatchers_end(site: Site) -> None:
    dispatcher = site.dispatcher()
    client, _ = door(site)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(client.infer, one(1, 2, 3, 4))
        site.heard(Counts, lambda counts: counts.waiting == 1)
        dispatcher.kill()
        answer = asking.result(PATIENCE_S)
    assert (answer.status, answer.error) == (503, "the dispatcher is gone")


def test_a_dispatcher_that_comes_back_is_found(site: Site) -> None:
    served(site)
    client, _ = door(site)
    site.processes[0].kill()
    site.processes[0].wait()
    client.becomes_ready(status=503)
    site.dispatcher()
    site.worker("b")
    client.becomes_ready()
    assert client.infer(one(1, 2, 3, 4)).status == 200


def test_when_the_run_has_ended_it_says_so(site: Site) -> None:
    site.dispatcher()
    client, process = door(site)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(client.infer, one(1, 2, 3, 4))
        site.heard(Counts, lambda counts: counts.waiting == 1)
        site.finish()
        answer = asking.result(PATIENCE_S)
    assert (answer.status, answer.error in ENDS) == (503, True)
    client.becomes_ready(status=503)
    answer = client.infer(one(1, 2, 3, 4))
    assert (answer.status, answer.error in ENDS) == (503, True)
    process.terminate()
    assert (process.wait(PATIENCE_S), process.communicate()[1]) == (0, "")


def test_while_the_service_drains_what_waits_is_answered_and_the_rest_is_to_come_again(site: Site) -> None:
    site.dispatcher()
    client, _ = door(site)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(client.infer, one(1, 2, 3, 4))
        site.heard(Counts, lambda counts: counts.waiting == 1)
        site.order(DrainAll(7.5))
        site.heard(Draining)
        until_s = monotonic() + PATIENCE_S
        while (answer := client.infer(HOPELESS)).error != "no further request is taken":
            assert monotonic() < until_s
        assert (answer.status, answer.headers["retry-after"]) == (503, "8")
        assert client.infer(HOPELESS).status == 503  # by the door alone: it has heard of it by now
        site.heard(Counts, lambda counts: counts.turned_away > 0)
        site.worker("a")
        assert asking.result(PATIENCE_S).status == 200
    site.heard(Drained)
    assert client.ask("GET", "/v2/health/ready").status == 503
    assert client.ask("GET", "/v2/health/live").status == 200


def test_what_is_under_way_at_its_end_is_answered(site: Site) -> None:
    site.dispatcher()
    client, process = door(site)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(client.infer, one(1, 2, 3, 4))
        site.heard(Counts, lambda counts: counts.waiting == 1)
        process.send_signal(signal.SIGTERM)
        site.worker("a")
        assert asking.result(PATIENCE_S).status in (200, 503)  # 503 where the worker took too long to start
    assert (process.wait(PATIENCE_S), process.communicate()[1]) == (0, "")


def test_interrupts_are_left_to_its_parent(site: Site) -> None:
    served(site)
    client, process = door(site)
    process.send_signal(signal.SIGINT)
    assert client.infer(one(1, 2, 3, 4)).status == 200


def test_it_ends_with_its_parent(site: Site) -> None:
    site.dispatcher()
    setup = as_text(DoorSetup(site.folder, (VISION,)))
    script = (
        "import subprocess, sys, time; from workloads.live.process import command\n"
        "door = subprocess.Popen(command('workloads.live.front_door', sys.argv[1]), stdout=subprocess.PIPE)\n"
        "door.stdout.readline(); print(door.pid, flush=True); time.sleep(100)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, setup], stdout=subprocess.PIPE, text=True, env=SURROUNDINGS
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    assert ends(pid)


def test_it_does_not_wait_for_ever_to_open(site: Site) -> None:
    process = site.start("workloads.live.front_door", as_text(DoorSetup(site.folder, (VISION,))))
    process.terminate()
    assert process.communicate(timeout=PATIENCE_S)[0] == ""


# --- what it is told


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"host": EVERYWHERE}, "host: 0.0.0.0: others can reach it, so every tenant needs a token_file; without one: "),
        ({"port": 70000}, "port: 70000; allowed: 0 to 65535"),
        ({"tenants": ()}, "at least one, each once, is needed"),
        ({"tenants": (VISION, VISION)}, "at least one, each once, is needed"),
        ({"tenants": (VISION, replace(TEXT, token_file=Path("t")))}, "all or none need a token_file; without one: vis"),
        ({"request_s": 20.0}, "request_s: 20.0; must be above slo_s of vision, 25.0"),
        ({"body_bytes": 0}, "body_bytes: 0; must be finite and above 0"),
        ({"body_bytes_per_s": 0}, "body_bytes_per_s: 0; must be finite and above 0"),
        (
            {"origins": ("https://a", "a.example")},
            "origins: 'a.example'; allowed: scheme://host or scheme://host:port as",
        ),
    ],
)
def test_a_setup_without_sense_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        DoorSetup(**{"folder": Path("s"), "tenants": (VISION,)} | changes)


def test_samples_that_no_message_holds_are_refused() -> None:
    with pytest.raises(ValueError, match="vision: input: a sample has 16777216 bytes; allowed: at most 16773120"):
        replace(VISION, input=replace(PATCH, shape=(2**24,)))


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        (EVERYWHERE, False),
        ("10.0.0.1", False),
        ("::", False),
        ("gpu.example", False),
        ("", False),
    ],
)
def test_only_this_machine_reaches_loopback(host: str, is_ours: bool) -> None:
    assert is_loopback(host) is is_ours


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("http://localhost", True),
        ("http://localhost:3000", True),
        ("https://app.example", True),
        ("http://[::1]:8080", True),
        ("http://10.0.0.7:81", True),
        ("null", True),
        ("", False),
        ("*", False),
        ("app.example", False),
        ("https://app.example/", False),
        ("https://app.example/page", False),
        ("https://App.example", False),
        ("https://app.example:443", False),
        ("http://app.example:80", False),
        ("https://app.example:80", True),
        ("https://*.example", False),
        ("https://user@app.example", False),
        ("https://app.example\n", False),
        ("ftp://app.example", False),
    ],
)
def test_origins_are_spelled_as_browsers_do(text: str, is_one: bool) -> None:
    assert is_origin(text) is is_one


def test_an_address_that_is_taken_is_told(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = site.start("workloads.live.front_door", as_text(DoorSetup(site.folder, (VISION,), port=port)))
        said = process.communicate(timeout=PATIENCE_S)[1]
    assert (process.returncode, said) == (2, f"front door: 127.0.0.1, port {port}: Address already in use\n")


def test_arguments_that_are_none_are_refused_in_one_line(site: Site) -> None:
    process = site.start("workloads.live.front_door", "{}")
    assert "front door: DoorSetup: Object missing required field `folder`" in process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 2
