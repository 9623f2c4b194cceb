"""A dispatcher and workers as real processes, seen from their controller and from a client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from executor.messages import as_text
from workloads.live import dispatcher, worker
from workloads.live.messages import (
    TO_CLIENT,
    TO_CONTROLLER,
    Answer,
    Beat,
    Changed,
    Counts,
    DrainAll,
    Finish,
    Finished,
    Lend,
    Message,
    Order,
    Request,
    Return,
    State,
    Watch,
    Worth,
)
from workloads.live.process import command
from workloads.live.wire import CLIENTS, CONTROLLER, WORKERS, Peer, private_folder

MODELS = "live_models"
SURROUNDINGS = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
"""Of child processes, so that they find the models of the tests, and what is under test."""

PATIENCE_S = 30.0
"""Nothing takes so long; a test that waits for it has failed."""

Kind = TypeVar("Kind", bound=Message)


class Site:
    """A folder of sockets with those around it; what it starts ends with it."""

    def __init__(self, folder: Path, origin_s: float) -> None:
        self.folder, self.origin_s = private_folder(folder), origin_s
        self.processes: list[subprocess.Popen[str]] = []
        self.controller = Peer(folder, WORKERS, CONTROLLER, TO_CONTROLLER)
        self.client = Peer(folder, CLIENTS, b"", TO_CLIENT)
        self.told: list[Message] = []
        self.answered: dict[int, list[Answer]] = {}
        self.n_asked = 0
        self.controller.send(Watch())

    def start(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        """A process of a module, whose output can be read."""
        process = subprocess.Popen(
            command(module, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=SURROUNDINGS
        )
        self.processes.append(process)
        return process

    def dispatcher(self, *tenants: str, **changes: Any) -> subprocess.Popen[str]:
        setup = dispatcher.DispatcherSetup(
            self.folder, tenants or ("vision",), self.origin_s, **{"silence_s": 30.0, **changes}
        )
        process = self.start("workloads.live.dispatcher", as_text(setup))
        self.heard(Beat)
        return process

    def worker(self, name: str, model: str = "Echo", **changes: Any) -> subprocess.Popen[str]:
        return self.start("workloads.live.worker", as_text(self.worker_setup(name, model, **changes)))

    def worker_setup(self, name: str, model: str, **changes: Any) -> worker.WorkerSetup:
        usual = {
            "tenant": "vision",
            "batch_limit": 4,
            "batches": (1, 4),
            "latency_s": (0.001, 0.001),
            "silence_s": 30.0,
        }
        usual |= {"heartbeat_s": 0.1, "sample_bytes": 0, "is_shared": bool(changes.get("lane"))}
        return worker.WorkerSetup(self.folder, name, model=f"{MODELS}:{model}", **{**usual, **changes})

    # --- as the controller

    def order(self, order: Order | DrainAll | Finish | Lend | Return | Worth) -> None:
        self.controller.send(order)

    def heard(self, kind: type[Kind], is_it: Callable[[Kind], bool] = lambda _: True) -> Kind:
        """The first message of the kind that the controller was told, and that is the one."""
        until_s, seen = monotonic() + PATIENCE_S, 0
        while monotonic() < until_s:
            for message in self.told[seen:]:
                if isinstance(message, kind) and is_it(message):
                    return message
            seen = len(self.told)
            self.told += self.controller.receive(1.0)
        complaints = [process.stderr.read() for process in self.processes if process.poll() and process.stderr]
        raise AssertionError(f"no {kind.__name__} of the kind among {self.told}; {complaints}")

    def finish(self) -> dict[str, int]:
        """End the run; the sums of the last counts."""
        self.order(Finish())
        self.heard(Finished)
        latest = {(one.tenant, one.second): one for one in self.told if isinstance(one, Counts)}
        names = ("arrived", "in_time", "late", "dropped", "refused", "failed", "correct", "goodput")
        return {name: sum(getattr(one, name) for one in latest.values()) for name in names}

    # --- as a client

    def ask(self, *payloads: bytes, tenant: str = "vision", slo_s: float = PATIENCE_S) -> None:
        """Send requests that arrive now; the right answer to each is its payload."""
        for payload in payloads:
            now_s = monotonic()
            self.client.send(Request(self.n_asked, tenant, now_s, now_s + slo_s, payload, payload))
            self.n_asked += 1

    def answers(self) -> list[Answer]:
        """An answer to each request so far, and no second one."""
        until_s = monotonic() + PATIENCE_S
        while len(self.answered) < self.n_asked and monotonic() < until_s:
            for answer in self.client.receive(1.0):
                assert isinstance(answer, Answer)
                self.answered.setdefault(answer.id, []).append(answer)
        assert sorted(self.answered) == list(range(self.n_asked))
        assert all(len(all_of_one) == 1 for all_of_one in self.answered.values())
        return [self.answered[number][0] for number in range(self.n_asked)]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        self.controller.close()
        self.client.close()


@contextmanager
def site_in(folder: Path) -> Iterator[Site]:
    site = Site(folder, monotonic())
    try:
        yield site
    finally:
        site.close()


def becomes_serving(site: Site, name: str) -> None:
    """Wait until a worker takes batches."""
    site.heard(Changed, lambda changed: (changed.worker, changed.state) == (name, State.SERVING))
