"""SGDRC's Figure 17 by ratio, on one core of this machine's CPU: `python -m benchmarks.seeds.sgdrc`.

Zhang et al., "SGDRC" (PPoPP '25), §9.3. A server answers requests, and a training takes what is left. The paper has
graphics cards, masks of processors and coloured memory channels. Here are two processes and quotas of control groups,
so that nothing but ratios can be compared: what the training does, of what it does with a fixed half, and the latency
of requests, of that of a server alone. **Measured** on the machine where it runs, which should have nothing else to do.
No torch is needed: work is arithmetic on an array.

Ways to share the core, on which both are kept:

- *alone*: the server has all, and nobody trains;
- *lowest claim*: the training runs when nobody else would, as a stream of lower priority might;
- *half*: 5 ms in 10 each, for good: the paper's SGDRC (Static);
- *tide*: the training's quota is all while nobody is served, and the least that Linux has, 1 ms in 10, while
  somebody is: tidal masking (§7.1), with the floor of a single thread, which is the core;
- *stops itself*: the training looks at a flag after each step of 2 ms, 4 at half speed, and waits while somebody is
  served.

Requests are Poisson, each of 4 ms alone, at loads of 0.2 (light) and 0.4 (heavy) of the core; the paper's light traffic
is half of its heavy, too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.seeds.salus import titled, with_range
from executor.cpu.gpu import find_shares, ways
from executor.cpu.shares import Shares
from executor.errors import NoGpuError

LEAST_CORES = 0.1
REQUEST_S, STEP_S = 0.004, 0.002
LOADS = {"light": 0.2, "heavy": 0.4}
"""Of what the server does alone."""

SERVER, TRAINER, BOTH = "server", "trainer", "both"

_SIZE = 20_000
"""Numbers in the array that work goes over."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to share.

    Attributes:
        quotas: By group, its cores while nobody is served.
        served: The same while somebody is, where that is another.
        trains: Whether anybody does.
        is_idle: Whether the training has the kernel's lowest claim, in the server's group.
        stops: Whether it stops itself while somebody is served.
    """

    quotas: Mapping[str, float]
    served: Mapping[str, float] | None = None
    trains: bool = True
    is_idle: bool = False
    stops: bool = False


WAYS: Mapping[str, Way] = {
    "alone": Way({SERVER: 1.0}, trains=False),
    "lowest claim": Way({BOTH: 1.0}, is_idle=True),
    "half": Way({SERVER: 0.5, TRAINER: 0.5}),
    "tide": Way({SERVER: 1.0, TRAINER: 1.0}, served={TRAINER: LEAST_CORES}),
    "stops itself": Way({SERVER: 1.0, TRAINER: 1.0}, stops=True),
}

PAPER = {"tide": "more, most in light", "lowest claim": "more, at a high P99"}
"""What the training does beside SGDRC (Static), §9.3, without figures; a lower claim is Multi-streaming there."""


def arrivals_s(load: float, seconds: float, seed: int) -> list[float]:
    """Poisson arrivals at a load of what a server alone does."""
    rng = np.random.default_rng(seed)
    n = rng.poisson(load / REQUEST_S * seconds)
    return [float(one) for one in np.sort(rng.uniform(0.0, seconds, n))]


def compute(n_passes: int) -> None:
    """So many passes over the array, on one thread."""
    values = np.linspace(1.0, 2.0, _SIZE)
    for _ in range(n_passes):
        np.sqrt(values, out=values)


def passes_in(seconds: float, n: int = 2000) -> int:
    """How many passes take so long on a core that is free: the least of five trials says."""
    took = []
    for _ in range(5):
        begun_s = time.process_time()
        compute(n)
        took.append(time.process_time() - begun_s)
    return max(1, round(n * seconds / min(took)))


@dataclass(frozen=True, slots=True)
class Tide:
    """Quotas that change as requests come and go.

    Attributes:
        shares: Where groups are.
        way: Which quotas.
    """

    shares: Shares
    way: Way

    def turn(self, *, is_served: bool) -> None:
        """Somebody is served from now on, or nobody."""
        if self.way.served is not None:
            for name, cores in (self.way.served if is_served else self.way.quotas).items():
                self.shares.limit(name, cores, 1)


def serve(times_s: Sequence[float], n_passes: int, tide: Tide, busy: Any, began: Any, latencies: Any) -> None:
    """Answer the requests one after the other; ``busy`` says while anybody is served."""
    began.wait()
    begun_s, is_served = time.monotonic(), False
    for place, at_s in enumerate(times_s):
        wait_s = begun_s + at_s - time.monotonic()
        if wait_s > 0:
            if is_served:
                busy.value, is_served = 0, False
                tide.turn(is_served=False)
            time.sleep(wait_s)
        if not is_served:
            busy.value, is_served = 1, True
            tide.turn(is_served=True)
        compute(n_passes)
        latencies[place] = time.monotonic() - begun_s - at_s
    busy.value = 0


def train(n_passes: int, way: Way, busy: Any, began: Any, steps: Any) -> None:
    """Train step by step, until ended; a training that stops itself waits while anybody is served."""
    if way.is_idle:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    began.wait()
    while True:
        while way.stops and busy.value:
            time.sleep(0.0005)
        compute(n_passes)
        steps.value += 1


@dataclass(frozen=True, slots=True)
class Measured:
    """The outcome of a round.

    Attributes:
        p50_ms: Latency of requests, from when they came.
        p99_ms: The same.
        steps_s: Steps of the training a second; 0 without one.
    """

    p50_ms: float
    p99_ms: float
    steps_s: float


def measured(shares: Shares, way: Way, times_s: Sequence[float], n_request: int, n_step: int) -> Measured:
    """One round: both processes begin when both are in their groups."""
    spawn = multiprocessing.get_context("spawn")
    busy, steps, began = spawn.Value("b", 0, lock=False), spawn.Value("L", 0, lock=False), spawn.Event()
    latencies = spawn.Array("d", len(times_s), lock=False)
    with _groups(shares, way):
        serving = spawn.Process(target=serve, args=(times_s, n_request, Tide(shares, way), busy, began, latencies))
        training = spawn.Process(target=train, args=(n_step, way, busy, began, steps))
        started = [(serving, SERVER), *([(training, TRAINER)] if way.trains else [])]
        try:
            for process, group in started:
                _start_in(shares, process, BOTH if BOTH in way.quotas else group)
            begun_s = time.monotonic()
            began.set()
            serving.join()
            took_s, done = time.monotonic() - begun_s, steps.value
        finally:
            for process, _ in started:
                process.kill()
                process.join()
    found = 1e3 * np.array(latencies[:])
    return Measured(float(np.median(found)), float(np.quantile(found, 0.99)), done / took_s)


def _start_in(shares: Shares, process: SpawnProcess, group: str) -> None:
    process.start()
    assert process.pid is not None
    os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
    shares.enter(shares.folder / group, process.pid)


@contextmanager
def _groups(shares: Shares, way: Way) -> Iterator[None]:
    """The way's groups, with the quotas while nobody is served."""
    shares.prepare()
    try:
        for name, cores in way.quotas.items():
            shares.files.make(shares.folder / name)
            shares.limit(name, cores, 1)
        yield
    finally:
        for name in way.quotas:
            _gone(shares, shares.folder / name)
        shares.forget()


def _gone(shares: Shares, folder: Path) -> None:
    for _ in range(1000):
        try:
            shares.remove(folder)
        except FileNotFoundError:
            return
        except OSError:  # a process that ended may still be in it for a moment
            time.sleep(0.001)
        else:
            return


Rounds = Mapping[tuple[str, str], Sequence[Measured]]
"""By traffic and way, one a round."""


def ratios(rounds: Rounds, traffic: str, way: str, of: str, figure: Callable[[Measured], float]) -> np.ndarray:
    """A figure of one way in that of another, round by round."""
    pairs = zip(rounds[traffic, way], rounds[traffic, of], strict=True)
    return np.array([figure(own) / figure(other) for own, other in pairs])


def ways_table(rounds: Rounds) -> Table:
    """Both sides of each way, and the two ratios."""
    heads = ("P50, ms", "P99, ms", "P99 of alone", "training of half", "the paper's training")
    table = titled("Figure 17 by ratio: median [least, most] of rounds", *heads)
    for traffic, name in rounds:
        own = rounds[traffic, name]
        trains = WAYS[name].trains and name != "half"
        table.add_row(
            f"{traffic} {name}",
            with_range(np.array([one.p50_ms for one in own]), 1),
            with_range(np.array([one.p99_ms for one in own]), 1),
            with_range(ratios(rounds, traffic, name, "alone", lambda one: one.p99_ms), 1),
            with_range(ratios(rounds, traffic, name, "half", lambda one: one.steps_s), 2) if trains else "–",
            PAPER.get(name, "–"),
        )
    return table


WHY = """Where the paper and ours differ, and why:
- Lowest claim: the kernel takes the core from a training at once, and a GPU leaves it the processors until its piece
  ends. So nothing is lost by it here, and much there.
- Tide: a quota counts each 10 ms, while masks are there with the next piece of work. A request that comes shares the
  core with the training until that has used its millisecond, so that the median suffers, and little else.
- Tide in heavy traffic: a single thread has a floor of the whole core, so that the training has only what nobody is
  served in. The paper's pieces of work leave processors that they cannot use.
- Half: what the server does not use is lost to both, as in the paper, and half a core takes twice as long."""


def main() -> None:
    """Measure every way in turn, round by round, and print both ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        try:
            exact = {way: attempt for way, attempt in ways(Path(state)).items() if "control groups" in way}
            shares, _ = find_shares(exact, f"migrator-sgdrc-{os.getpid()}")
        except NoGpuError as error:
            print(f"cannot be measured here: {error}", file=sys.stderr)
            sys.exit(2)
        n_request, n_step = passes_in(REQUEST_S), passes_in(STEP_S)
        rounds: dict[tuple[str, str], list[Measured]] = {(at, way): [] for at in LOADS for way in WAYS}
        for seed in range(options.rounds):
            for (traffic, name), found in rounds.items():
                times_s = arrivals_s(LOADS[traffic], options.seconds, seed)
                found.append(measured(shares, WAYS[name], times_s, n_request, n_step))
    console = Console(width=160, highlight=False, markup=False)
    load = statistics.fmean(os.getloadavg()[:2])
    console.print(f"Measured: one of {os.cpu_count()} cores, by {shares.way}; the machine's load was {load:.1f}.")
    console.print(f"{options.rounds} rounds of {options.seconds:g} s each.\n")
    console.print(ways_table(rounds), WHY)


if __name__ == "__main__":
    main()
