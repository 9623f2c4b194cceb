"""Requests a second through one dispatcher core, and what the way there and back adds to a request.

Run with ``python -m benchmarks.speed.dispatcher``. Targets: 3,000 requests a second, and at most 1 ms at the median.

Client, dispatcher and workers are processes as in a run; the workers' model answers with its input at once. Throughput:
a client that keeps a number of requests under way; beside the rate on the clock, which depends on who else uses the
machine, is the rate by the dispatcher's own CPU time, which is what one core can do. Overhead: a client that sends
one request after the other, each at its own moment, and measures from just before it is sent until its answer is there.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from executor.cpu.duty import used_s
from executor.messages import as_text
from workloads.live import dispatcher, worker
from workloads.live.messages import (
    TO_CLIENT,
    TO_CONTROLLER,
    Answer,
    Changed,
    Finish,
    Finished,
    Request,
    State,
    Watch,
)
from workloads.live.process import command
from workloads.live.wire import CLIENTS, CONTROLLER, WORKERS, Peer, private_folder

N_RUNS = 3
N_REQUESTS = 10_000
UNDER_WAY = 256
N_ALONE = 500
GAP_S = 0.003
SLO_S = 60.0
MODEL = "benchmarks.speed.dispatcher:Echo"
CURVE = ((1, 32), (0.001, 0.001))
CASES = ((1, 1, 64), (2, 1, 64), (1, 8, 64), (2, 8, 64), (2, 32, 64), (2, 32, 4096), (2, 32, 150_528))
"""Workers, requests in a batch, bytes of a payload: the last is an image of 224 × 224 × 3."""


class Echo:
    """Answers at once."""

    def answer(self, inputs: Sequence[bytes]) -> Sequence[bytes]:
        """The inputs' first eight bytes."""
        return [one[:8] for one in inputs]

    def load(self, weights: Path) -> None:
        """Take nothing."""


@contextmanager
def site(n_workers: int, batch_limit: int) -> Iterator[tuple[Peer[Answer], int, Path]]:
    """A client, the process id of a dispatcher whose workers all serve, and the folder with their sockets."""
    with tempfile.TemporaryDirectory() as named:
        folder = private_folder(Path(named))
        first = dispatcher.DispatcherSetup(folder, ("bench",), monotonic())
        others = [worker.WorkerSetup(folder, f"w{n}", "bench", MODEL, batch_limit, *CURVE) for n in range(n_workers)]
        commands = [command("workloads.live.dispatcher", as_text(first))]
        commands += [command("workloads.live.worker", as_text(other)) for other in others]
        processes = [subprocess.Popen(one) for one in commands]  # noqa: S603 - our own modules
        controller = Peer(folder, WORKERS, CONTROLLER, TO_CONTROLLER)
        client = Peer(folder, CLIENTS, b"", TO_CLIENT)
        controller.send(Watch())
        n_serving = 0
        while n_serving < n_workers:
            heard = controller.receive(60.0)
            n_serving += sum(isinstance(one, Changed) and one.state is State.SERVING for one in heard)
        yield client, processes[0].pid, folder
        controller.send(Finish())
        while not any(isinstance(one, Finished) for one in controller.receive(60.0)):
            pass
        for process in processes:
            process.wait()
        controller.close()
        client.close()


def rates(n_workers: int, batch_limit: int, n_bytes: int) -> tuple[float, float]:
    """Requests a second on the clock, and by the dispatcher's CPU time."""
    payload, n_sent, n_answered = bytes(n_bytes), 0, 0
    with site(n_workers, batch_limit) as (client, pid, _):
        before_s, begin_s = used_s(pid), monotonic()
        while n_answered < N_REQUESTS:
            while n_sent < min(n_answered + UNDER_WAY, N_REQUESTS):
                now_s = monotonic()
                client.send(Request(n_sent, "bench", now_s, now_s + SLO_S, payload, payload[:8]))
                n_sent += 1
            n_answered += len(client.receive(60.0))
        return N_REQUESTS / (monotonic() - begin_s), N_REQUESTS / (used_s(pid) - before_s)


def overheads_ms(n_bytes: int) -> list[float]:
    """What a request alone takes there and back, ascending."""
    payload, taken_ms = bytes(n_bytes), []
    with site(1, 8) as (client, _, _):
        for number in range(N_ALONE):
            begin_s = monotonic()
            client.send(Request(number, "bench", begin_s, begin_s + SLO_S, payload, payload[:8]))
            client.receive(60.0)
            taken_ms.append(1000 * (monotonic() - begin_s))
            sleep(GAP_S)
    return sorted(taken_ms)


def main() -> None:
    """Print a table for each question, with the median and the best of ``N_RUNS`` runs a case."""
    print(f"{N_REQUESTS} requests, {UNDER_WAY} under way; median (best) of {N_RUNS} runs; {os.cpu_count()} CPUs")
    print(f"{'workers':>8} {'batch':>6} {'bytes':>8} {'requests/s':>16} {'per dispatcher CPU-s':>22}")
    for n_workers, batch_limit, n_bytes in CASES:
        runs = [rates(n_workers, batch_limit, n_bytes) for _ in range(N_RUNS)]
        shown = [f"{sorted(column)[N_RUNS // 2]:,.0f} ({max(column):,.0f})" for column in zip(*runs, strict=True)]
        print(f"{n_workers:>8} {batch_limit:>6} {n_bytes:>8} {shown[0]:>16} {shown[1]:>22}")
    print(f"\none request at a time, {N_ALONE} of them, {1000 * GAP_S:g} ms apart: there and back, ms")
    print(f"{'bytes':>8} {'p50':>16} {'p99':>16}")
    for n_bytes in (64, 150_528):
        taken_ms = (overheads_ms(n_bytes) for _ in range(N_RUNS))
        columns = zip(*((taken[N_ALONE // 2], taken[N_ALONE * 99 // 100]) for taken in taken_ms), strict=True)
        shown = [f"{sorted(column)[N_RUNS // 2]:.2f} ({min(column):.2f})" for column in columns]
        print(f"{n_bytes:>8} {shown[0]:>16} {shown[1]:>16}")


if __name__ == "__main__":
    main()
