"""A live service by the clock: ``python -m benchmarks.speed.service clients|memory|restart [--n N]``.

All take the models and the cut of ``configs/live-cpu.yaml``, and need the extras ``live`` and ``triton``.

``clients``: the same requests at the same moments by the generator and by outside clients (``tritonclient`` for one
model, plain HTTP for the other), three runs each by turns; a run is one window. The figure is the share in time.
Target: within 3 points at the median. ``memory``: 200 windows of 5 s with 10 requests a second; what controller and
dispatcher have in memory. Target: at most 5 KiB a window. ``restart``: from a start to the first answer, the first time
and after ``kill -9``. Target: 3 s more at most.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

import numpy as np
import yaml

from benchmarks.speed.service_memory import slope_kib
from executor.files import read_input
from migrator.api import load_config
from migrator.inputs.assembly import assemble
from migrator.log.records import WindowFinished
from migrator.log.runlog import read_log

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "live-cpu.yaml"
N_CONNECTIONS = 24
"""Of a client; a request waits for a free one, if all wait for answers."""

LOAD = 0.05
"""Clients in Python, and the door, have what the cut leaves of this machine."""

PIXELS = np.zeros((1, 1, 8, 8), np.uint8)
MOST_POINTS, MOST_KIB, MOST_LATER_S = 3.0, 5.0, 3.0


class Client:
    """Asks a model at these moments of the machine's clock, and counts the answers."""

    def __init__(self, url: str, model: str, moments_s: Sequence[float], *, is_triton: bool = False) -> None:
        self.told = Counter[str]()
        self._place, self._model, self._is_triton = url.removeprefix("http://"), model, is_triton
        self._moments_s, self._lock = iter(moments_s), Lock()
        self._threads = [Thread(target=self._ask, daemon=True) for _ in range(N_CONNECTIONS)]
        for one in self._threads:
            one.start()

    def wait(self) -> Counter[str]:
        """Wait for the last answer."""
        for one in self._threads:
            one.join()
        return self.told

    def _ask(self) -> None:
        with self._by_triton() if self._is_triton else self._by_http() as ask:
            while (moment_s := self._next()) is not None:
                Event().wait(max(0.0, moment_s - monotonic()))
                said = ask()
                with self._lock:
                    self.told[said] += 1

    def _next(self) -> float | None:
        with self._lock:
            return next(self._moments_s, None)

    @contextmanager
    def _by_http(self) -> Iterator[Callable[[], str]]:
        tensor = {"name": "input", "datatype": "UINT8", "shape": [*PIXELS.shape], "data": PIXELS.ravel().tolist()}
        body, door = json.dumps({"inputs": [tensor]}), HTTPConnection(self._place, timeout=30)

        def ask() -> str:
            for _ in range(2):  # the door closes connections on which nobody has asked for some seconds
                try:
                    door.request("POST", f"/v2/models/{self._model}/infer", body)
                    answer = door.getresponse()
                    answer.read()
                except OSError:
                    door.close()
                    continue
                return "answered" if answer.status == 200 else "refused"
            return "gone"

        with closing(door):
            yield ask

    @contextmanager
    def _by_triton(self) -> Iterator[Callable[[], str]]:
        import tritonclient.http as triton  # noqa: PLC0415 - of an extra, for this alone
        from geventhttpclient.response import HTTPConnectionClosed  # noqa: PLC0415
        from tritonclient.utils import InferenceServerException  # noqa: PLC0415

        door, tensor = triton.InferenceServerClient(self._place), triton.InferInput("input", PIXELS.shape, "UINT8")
        tensor.set_data_from_numpy(PIXELS)

        def ask() -> str:
            try:
                door.infer(self._model, [tensor])
            except InferenceServerException:
                return "refused"
            except (OSError, HTTPConnectionClosed):
                return "gone"
            return "answered"

        with door:
            yield ask


def configured(folder: Path, *, serves: bool, **changes: object) -> dict[str, Any]:
    """The config, with files where they lie; where it only ``serves``, with weights of chance."""
    config = yaml.safe_load(read_input(CONFIG)) | {"profiles": str(CONFIG.parent / "live-cpu-profiles.csv")}
    for tenant in config["tenants"] if serves else ():
        from workloads.learning.models import classifier  # noqa: PLC0415 - torch

        file = folder / f"{tenant['name']}.safetensors"
        classifier(tenant["model"], shape=[1, 8, 8], n_classes=10, weights="random").save(file, {})
        del tenant["learning"], tenant["retraining"]
        tenant |= {"input": {"dtype": "uint8", "shape": [1, 8, 8]}, "classes": 10, "accuracy": 0.5}
        tenant |= {"weights": str(file), "arrivals": {"live": True, "expect_rps": 5}}
    if serves:
        del config["windows"], config["retraining"], config["load"], config["estimates"]
        config["planner"]["planning_s"] = 1
    return {**config, **changes}


@contextmanager
def started(folder: Path, verb: str, config: dict[str, object]) -> Iterator[subprocess.Popen[str]]:
    """The program at work on this config; it is killed in the end if it still is."""
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    state = ["--out", "run", "--state", str(folder / "state")]
    command = [sys.executable, "-m", "migrator", verb, "config.yaml", *state]
    with subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:  # noqa: S603
        try:
            yield process
        finally:
            process.kill()


def door_of(process: subprocess.Popen[str]) -> str:
    """Where its front door is, once that is open; what it says later is read and left."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if "the front door is open" in line:
            Thread(target=process.stdout.read, daemon=True).start()
            return line.split()[-1].removesuffix("/v2")
    raise SystemExit("".join(said))


def dispatcher_of(process: subprocess.Popen[str]) -> tuple[int, float]:
    """The process id of its dispatcher, and the machine's clock at its second 0."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            is_ours = f"\nPPid:\t{process.pid}\n" in (entry / "status").read_text()
            if is_ours and any(b"workloads.live.dispatcher" in word for word in words):
                setup = next(json.loads(word) for word in words if word.startswith(b"{"))
                return int(entry.name), float(setup["origin_s"])
    raise SystemExit("there is no dispatcher")


def in_time_pct(folder: Path) -> float:
    """Of all requests of a run, by its log."""
    counts = [own for one in read_log(folder / "run").of(WindowFinished) for own in one.tenants.values()]
    return 100 * sum(sum(own.in_time) for own in counts) / sum(sum(own.arrivals) for own in counts)


def clients(n: int) -> bool:
    """The generator and outside clients by turns."""
    found: dict[str, list[float]] = {"generator": [], "clients": []}
    _, traffic = assemble(load_config(CONFIG, set={"windows": 1, "load": LOAD}), str(CONFIG))
    requests = traffic.requests(0, 60)
    for number in range(2 * n):
        kind = "clients" if number % 2 else "generator"
        with TemporaryDirectory() as place:
            folder = Path(place)
            config = configured(folder, serves=False, windows=1, load=LOAD)
            if kind == "clients":
                config["front_door"] = {"port": 0}
                for tenant, own in zip(config["tenants"], requests, strict=True):
                    tenant["arrivals"] = {"live": True, "expect_rps": max(1.0, len(own.arrival_s) / 60)}
                del config["load"]
            with started(folder, "run", config) as process:
                if kind == "clients":
                    url = door_of(process)
                    _, origin_s = dispatcher_of(process)
                    asking = [
                        Client(
                            url, own.tenant, [origin_s + at_s for at_s in own.arrival_s], is_triton=own is requests[0]
                        )
                        for own in requests
                    ]
                    told = sum((one.wait() for one in asking), Counter[str]())
                    process.wait()
                else:
                    told = Counter(sent=sum(len(own.arrival_s) for own in requests))
                    process.communicate()
            found[kind].append(in_time_pct(folder))
        print(f"{kind:10} {found[kind][-1]:6.2f} % in time; {dict(told)}; load {os.getloadavg()[0]:.1f}", flush=True)
    by, beside = median(found["clients"]), median(found["generator"])
    print(f"medians: clients {by:.2f} %, generator {beside:.2f} %: {by - beside:+.2f} points; target: {MOST_POINTS:g}")
    return abs(by - beside) <= MOST_POINTS


def memory(n: int) -> bool:
    """Memory of controller and dispatcher, window by window."""
    kib: dict[str, list[float]] = {"controller": [], "dispatcher": []}
    with TemporaryDirectory() as place:
        config = configured(Path(place), serves=True, window_s=5, front_door={"port": 0})
        with started(Path(place), "serve", config) as process:
            url = door_of(process)
            pid, origin_s = dispatcher_of(process)
            moments_s = [max(origin_s, monotonic()) + 0.2 * number for number in range(25 * n)]
            asking = [Client(url, name, moments_s, is_triton=name == "turned") for name in ("turned", "grown")]
            for _ in range(n):
                Event().wait(5)
                for name, one in (("controller", process.pid), ("dispatcher", pid)):
                    kib[name].append(_resident_kib(one))
            told = sum((one.wait() for one in asking), Counter[str]())
            process.send_signal(signal.SIGTERM)
            process.wait()
        counts = [own for one in read_log(Path(place) / "run").of(WindowFinished) for own in one.tenants.values()]
        print(
            f"{n} windows of 5 s; clients: {dict(told)}; the log: {sum(sum(own.arrivals) for own in counts):,} offered"
        )
    slopes = [slope_kib([*range(n - n // 2)], own[n // 2 :]) for own in kib.values()]
    for (name, own), slope in zip(kib.items(), slopes, strict=True):
        steps = " ".join(f"{own[place]:,.0f}" for place in np.linspace(0, n - 1, 9).astype(int))
        whole = slope_kib([*range(n)], own)
        print(f"{name}: {steps} KiB; {whole:.2f} KiB a window, {slope:.2f} in the second half; target: {MOST_KIB:g}")
    print(f"load {os.getloadavg()[0]:.1f}")
    return max(slopes) <= MOST_KIB


def _resident_kib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


def restart(n: int) -> bool:
    """To the first answer, at the very first start and after a kill."""
    took_s: list[list[float]] = [[], []]
    for number in range(n):
        with TemporaryDirectory() as place:
            config = configured(Path(place), serves=True, window_s=20, front_door={"port": 0})
            for own in took_s:
                began_s = monotonic()
                with started(Path(place), "serve", config) as process:
                    url = door_of(process)
                    while not Client(url, "turned", [monotonic()]).wait()["answered"]:
                        pass
                    own.append(monotonic() - began_s)
                    _, origin_s = dispatcher_of(process)
                    Event().wait(max(0.0, origin_s + 3 - monotonic()))  # it has changed its layout, and is in a window
                    process.kill()
        print(
            f"{number}: {took_s[0][-1]:.1f} s, again {took_s[1][-1]:.1f} s; load {os.getloadavg()[0]:.1f}", flush=True
        )
    first, again = map(median, took_s)
    print(f"medians: {first:.1f} s, again {again:.1f} s: {again - first:+.1f} s; target: {MOST_LATER_S:+g}")
    return again - first <= MOST_LATER_S


def main() -> int:
    """Measure; 1 where the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("clients", "memory", "restart"))
    parser.add_argument("--n", type=int, help="runs of each kind, or windows")
    asked = parser.parse_args()
    measure, n = {"clients": (clients, 3), "memory": (memory, 200), "restart": (restart, 3)}[asked.what]
    return int(not measure(asked.n or n))


if __name__ == "__main__":
    sys.exit(main())
