"""Seconds until every agent of a cluster has taken an assignment: ``python -m benchmarks.speed.agents [--n 64]``.

One Ray on this machine has all agents, each a process, and the coordinator is this one; needs the extra ``ray``. A
GPU's service does nothing, and takes up any set at once. *Taken* is an assignment that an agent has written to its disk
and answered for; *taken up* is a set once the GPU's service has accepted it. Target: 10 s at most until it is taken.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from unittest.mock import patch

from msgspec.json import encode
from msgspec.structs import replace

from executor.files import read_input
from migrator.cluster import engine
from migrator.cluster.assigned import Assigned
from migrator.cluster.coordinator import Coordinator, Sets
from migrator.cluster.engine import NAMESPACE, ClusterSetup, RayAgents, RayNode
from migrator.config.cluster import ClusterConfig

N_RUNS = 5
TENANTS_PER_GPU = 2.5
MOST_S = 10.0

SERVICE = ("sh", "-c", 'case "$0" in serve) exec sleep 1000000 ;; esac')
"""Serves nobody for ever; ``reload`` ends at once, and well."""


def rotated(n: int, by: int) -> Assigned:
    """Tenants on ``n`` nodes of one GPU each, everybody so many GPUs further than at first."""
    names = [f"t{number}" for number in range(int(TENANTS_PER_GPU * n))]
    gpus = [{"name": f"g{k}", "model": "a100-80gb", "node": f"n{k}", "backend": "nvml"} for k in range(n)]
    tenant = {"model": "resnet50", "slo_ms": 150, "accuracy": 0.8, "arrivals": {"live": True, "expect_rps": 10}}
    shape = {"input": {"dtype": "float32", "shape": [3, 224, 224]}, "classes": 1000}
    document = {
        "name": "many",
        "cluster": {"gpus": gpus},
        "front_door": {"port": 8000},
        "tenants": [{"name": name, **tenant, **shape} for name in names],
    }
    sets = {f"g{(k + by) % n}.0": tuple(names[k::n]) for k in range(n)}
    nodes = tuple(f"n{k}" for k in range(n))
    return Assigned(number=0, author="", path="/many.yaml", document=document, sets=sets, nodes=nodes)


def _stays(_: ClusterConfig, here: Sets) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    return {gpu: tuple(own) for gpu, own in here.items()}, {}


def measure(n: int, folder: Path) -> float:
    """Median of the seconds until all agents have taken an assignment; each is printed."""
    (own,) = {one.life: one for one in engine.nodes_of_ray().values()}.values()
    nodes = {f"n{k}": RayNode(own.life, own.address, 0) for k in range(n)}
    agents = RayAgents(ClusterSetup("many", str(folder), dict.fromkeys(nodes, 0), ("127.0.0.1", 0), SERVICE))
    with patch.object(engine, "nodes_of_ray", lambda: nodes):
        coordinator = Coordinator("bench", nodes, agents, _stays, lambda _: None, time.time)
        begin_s = time.perf_counter()
        while len(agents.held(agents.alive(nodes))) < n:
            pass  # each call waits for answers
        print(f"{n} agents began in {time.perf_counter() - begin_s:.0f} s")
        coordinator.step()
        took_s = []
        for run in range(N_RUNS + 1):
            wanted = replace(coordinator.begin(rotated(n, run)), leaving={})  # no door says that it is ready
            coordinator.newest, begin_s = wanted, time.perf_counter()
            coordinator.step()
            while [one.stamp for one in coordinator.reports.values()] != [wanted.stamp] * n:
                coordinator.step()
            taken_s = time.perf_counter() - begin_s
            while any(gpu.serves != wanted.sets[name] or gpu.pid is None for name, gpu in coordinator.gpus.items()):
                coordinator.step()
            took_s += [taken_s] if run else []  # at first services begin
            up_s, size = time.perf_counter() - begin_s, f"{len(encode(wanted)) / 1024:.0f} KiB"
            print(f"assignment {wanted.number}, {size}: taken after {taken_s:.2f} s, taken up after {up_s:.2f} s")
    return median(took_s)


def main() -> None:
    """Print each figure, and whether the target is kept."""
    import ray  # noqa: PLC0415 - the extra

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=64, help="agents, of one GPU each")
    n = parser.parse_args().n
    with TemporaryDirectory() as kept:
        folder = Path(kept)
        try:
            alone = {"address": "local", "include_dashboard": False, "log_to_driver": False}
            ray.init(num_cpus=os.cpu_count(), namespace=NAMESPACE, logging_level="ERROR", **alone)
            took_s = measure(n, folder)
        finally:
            ray.shutdown()
            for file in folder.glob("*/*/pid"):
                with suppress(ProcessLookupError):
                    os.kill(int(read_input(file).split()[0]), signal.SIGKILL)
    is_kept = "kept" if took_s <= MOST_S else "MISSED"
    print(f"{n} agents have taken an assignment after {took_s:.2f} s at the median; target {MOST_S:g} s: {is_kept}")


if __name__ == "__main__":
    main()
