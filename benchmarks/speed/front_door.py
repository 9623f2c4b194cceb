"""HTTP requests a second through the front door, and what it adds to a request that goes to the dispatcher anyway.

Run with ``python -m benchmarks.speed.front_door``; with ``--url``, it only prints where a door with an echoing model
is open, for other clients (as ``wrk``), and closes it when a line is read.

Clients are threads that send prepared bytes over connections that they keep. Beside the rate on the clock, which
depends on who else uses the machine, is the rate by the door's own CPU time. Overhead: one request after the other,
each measured from just before it is sent until its answer is there, beside the same for a client of the dispatcher.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from time import monotonic, sleep

from benchmarks.speed.dispatcher import GAP_S, N_ALONE, SLO_S, site
from executor.cpu.duty import used_s
from executor.messages import as_text
from workloads.live import front_door
from workloads.live.messages import Answer, Request
from workloads.live.open_inference import Tensor
from workloads.live.process import command
from workloads.live.wire import Peer

N_RUNS = 3
N_REQUESTS = 4000
N_CLIENTS = 8
CASES = ((64, False), (64, True), (150_528, True))
"""Bytes of a sample, and whether it comes as bytes or in JSON: the last is an image of 224 × 224 × 3."""


@contextmanager
def door(n_bytes: int) -> Iterator[tuple[Peer[Answer], str, int]]:
    """A client of a dispatcher with a worker, and address and process id of the front door beside it."""
    tensors = Tensor("input", "UINT8", (n_bytes,)), Tensor("output", "UINT8", (8,))
    with site(1, 32) as (client, _, folder):
        setup = as_text(front_door.DoorSetup(folder, (front_door.ServedModel("bench", 25.0, *tensors),)))
        started = command("workloads.live.front_door", setup)
        with subprocess.Popen(started, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own module
            assert process.stdout is not None
            try:
                yield client, json.loads(process.stdout.readline())["url"], process.pid
            finally:
                process.terminate()


def prepared(n_bytes: int, *, is_binary: bool) -> bytes:
    """An HTTP request with one sample."""
    tensor: dict[str, object] = {"name": "input", "datatype": "UINT8", "shape": [1, n_bytes]}
    tensor |= {"parameters": {"binary_data_size": n_bytes}} if is_binary else {"data": [0] * n_bytes}
    text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": is_binary}}).encode()
    body = text + bytes(n_bytes if is_binary else 0)
    head = "POST /v2/models/bench/infer HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Inference-Header-Content-Length: {len(text)}\r\n" if is_binary else ""
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def asked(url: str) -> socket.socket:
    """A connection to the door."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def answer(connection: socket.socket, request: bytes) -> None:
    """Ask and wait; the whole answer is there once its last bytes are: it is of one known form."""
    connection.sendall(request)
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"the door said {received.decode(errors='replace')}")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)


def rates(n_bytes: int, *, is_binary: bool) -> tuple[float, float]:
    """Requests a second on the clock, and by the door's CPU time."""
    request = prepared(n_bytes, is_binary=is_binary)

    def ask() -> None:
        with asked(url) as connection:
            for _ in range(N_REQUESTS // N_CLIENTS):
                answer(connection, request)

    with door(n_bytes) as (_, url, pid):
        clients = [Thread(target=ask) for _ in range(N_CLIENTS)]
        before_s, begin_s = used_s(pid), monotonic()
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        return N_REQUESTS / (monotonic() - begin_s), N_REQUESTS / (used_s(pid) - before_s)


def overheads_ms(n_bytes: int, *, is_binary: bool) -> tuple[float, float]:
    """What a request alone takes, in the median: by the door, and by the dispatcher alone."""
    by_door, by_dispatcher, request = [], [], prepared(n_bytes, is_binary=is_binary)
    with door(n_bytes) as (client, url, _), asked(url) as connection:
        for number in range(N_ALONE):
            begin_s = monotonic()
            answer(connection, request)
            by_door.append(monotonic() - begin_s)
            sleep(GAP_S)
            begin_s = monotonic()
            client.send(Request(number, "bench", begin_s, begin_s + SLO_S, bytes(n_bytes)))
            client.receive(60.0)
            by_dispatcher.append(monotonic() - begin_s)
            sleep(GAP_S)
    return 1000 * sorted(by_door)[N_ALONE // 2], 1000 * sorted(by_dispatcher)[N_ALONE // 2]


def main() -> None:
    """Print a table: the median and the best of ``N_RUNS`` runs a case."""
    if sys.argv[1:] == ["--url"]:
        with door(64) as (_, url, _):
            print(url, flush=True)
            sys.stdin.readline()
        return
    print(f"{N_REQUESTS} requests, {N_CLIENTS} connections; median (best) of {N_RUNS} runs; overheads in ms")
    print(f"{'bytes':>8} {'as':>6} {'requests/s':>16} {'per door CPU-s':>16} {'by the door':>14} {'without it':>14}")
    for n_bytes, is_binary in CASES:
        speeds = zip(*(rates(n_bytes, is_binary=is_binary) for _ in range(N_RUNS)), strict=True)
        times = zip(*(overheads_ms(n_bytes, is_binary=is_binary) for _ in range(N_RUNS)), strict=True)
        shown = [f"{sorted(column)[N_RUNS // 2]:,.0f} ({max(column):,.0f})" for column in speeds]
        shown += [f"{sorted(column)[N_RUNS // 2]:.2f} ({min(column):.2f})" for column in times]
        kind = "bytes" if is_binary else "JSON"
        print(f"{n_bytes:>8} {kind:>6} {shown[0]:>16} {shown[1]:>16} {shown[2]:>14} {shown[3]:>14}")


if __name__ == "__main__":
    main()
