"""Whether a service's memory grows: what its dispatcher and controller keep of requests, over 5,000 windows.

Run with ``python -m benchmarks.speed.service_memory``. Target: at most 5 KiB a window.

Two tenants' queues, the accounts of their counts and the traffic that forecasts read are in one process, each second
of virtual time told as the dispatcher tells it. Nothing else of a service is here: no process, socket or plan. Every
answer is there in the second of its request; a forecast is made from the past once a window, of 5 s. The queues keep
the counts of the last 7,200 s, so that they grow for the first 1,440 windows; the second slope leaves these out.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import numpy as np

from migrator.config.reading import validate_config
from migrator.execution.live.accounts import CountAccounts
from migrator.inputs.arrival_store import ARRIVALS, ArrivalStore
from migrator.inputs.arrivals import LiveTraffic
from migrator.inputs.assembly import assemble_run
from workloads.live.messages import Closed
from workloads.live.queues import MOST_SECONDS, TenantQueue
from workloads.profiles.latency import LatencyCurve

N_WINDOWS, WINDOW_S, RPS = 5_000, 5, 10
EVERY = 50
"""Windows from one reading of the memory to the next."""

MOST_KIB = 5.0
SLO_S = 0.5

_SERVED = {
    "slo_ms": 1000 * SLO_S,
    "arrivals": {"live": True, "expect_rps": RPS},
    "accuracy": 0.8,
    "input": {"dtype": "uint8", "shape": [8]},
    "classes": 3,
}
CONFIG = {
    "gpu": {"model": "a100-80gb", "backend": "nvml"},
    "window_s": WINDOW_S,
    "windows": N_WINDOWS,
    "front_door": {},
    "forecast": {"history_s": 600},
    "planner": {"planning_s": 1},
    "tenants": [{"name": "a", "model": "resnet50", **_SERVED}, {"name": "b", "model": "bert-large", **_SERVED}],
}


def resident_kib() -> float:
    """What the process has in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


class Service:
    """What of a service keeps something of each request, or of each second."""

    def __init__(self, folder: Path) -> None:
        setting, traffic = assemble_run(validate_config(CONFIG, "service"), "service")
        assert isinstance(traffic, LiveTraffic)
        names = [tenant.name for tenant in setting.tenants]
        self.traffic = traffic
        self.traffic.keep_in(ArrivalStore(folder / ARRIVALS, names, print))
        self.traffic.has_door(0)
        self.accounts = CountAccounts(setting.tenants, WINDOW_S, N_WINDOWS * WINDOW_S, lambda: None)
        self._queues = [TenantQueue(name, closes_s=1.0) for name in names]
        for queue in self._queues:
            queue.join("worker", LatencyCurve((1, 32), (0.001, 0.002)), 32)
        self.n_settled = 0

    def second(self, second: int) -> None:
        """Requests come, are answered and told of; the second before is closed."""
        for queue in self._queues:
            for number in range(RPS + second % 3):
                at_s = second + number / (RPS + 3)
                queue.arrive(b"client", number, at_s, at_s + SLO_S, b"8 bytes.", at_s)
                queue.credit("worker", 32)
                for _, batch in queue.hand_out(at_s):
                    numbers = [one.number for one in batch]
                    queue.answer("worker", numbers, [b"1"] * len(batch), "first", at_s + 0.004)
            queue.resolved()
            for word in queue.changed_counts():
                self.accounts.hear(word)
                self.traffic.take(word.tenant, word.second, word.offered)
        closed = min(queue.closed_before(second + 1.0) for queue in self._queues)
        self.accounts.hear(Closed(closed))
        self.traffic.close(closed)

    def window(self, window: int) -> None:
        """Its seconds, one forecast's past, and what is settled by its end."""
        for second in range(window * WINDOW_S, (window + 1) * WINDOW_S):
            self.second(second)
        self.accounts.serve({}, {}, (window + 1) * WINDOW_S)
        self.traffic.rates_before((window + 1) * WINDOW_S, 1.0, 600)
        for settled in self.accounts.settled(window):
            self.traffic.sums(settled.window * WINDOW_S, (settled.window + 1) * WINDOW_S)
            self.n_settled += 1


def slope_kib(windows: Sequence[int], kib: Sequence[float]) -> float:
    """KiB a window, by least squares."""
    return float(np.polyfit(windows, kib, 1)[0])


def main() -> int:
    """Measure; 1 where the target is missed."""
    begun_s, windows, kib = monotonic(), list[int](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder))
        for window in range(N_WINDOWS):
            service.window(window)
            if window % EVERY == EVERY - 1:
                windows.append(window + 1)
                kib.append(resident_kib())
        on_disk_kib = sum(path.stat().st_size for path in Path(folder).rglob("*-*")) / 1024
    late = [place for place, window in enumerate(windows) if window * WINDOW_S > MOST_SECONDS]
    steady = slope_kib([windows[place] for place in late], [kib[place] for place in late])
    whole = slope_kib(windows, kib)
    requests = service.accounts.totals.arrivals
    print(
        f"{service.n_settled:,} windows of {WINDOW_S} s settled, {requests:,} requests, {monotonic() - begun_s:.0f} s"
    )
    print(f"memory   {kib[0] / 1024:.1f} MiB at first, {kib[-1] / 1024:.1f} MiB in the end")
    print(f"slope    {whole:.2f} KiB a window, {steady:.2f} after {MOST_SECONDS:,} s; target: {MOST_KIB:g}")
    print(f"on disk  {on_disk_kib / 1024:.2f} MiB of arrivals, {on_disk_kib / N_WINDOWS:.2f} KiB a window")
    return int(whole > MOST_KIB)


if __name__ == "__main__":
    sys.exit(main())
