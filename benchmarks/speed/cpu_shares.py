"""What CPU time busy processes really get in shares of a CPU, and how long workers take to start: on this machine, now.

One process that does nothing but compute is put into a ``1c``, a ``2c`` and a ``4c`` instance: alone, then all three at
once, so that all slices are busy. Shares are right if each gets what its slices say, and the three are as 1 : 2 : 4.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from executor.cpu.duty import used_s
from executor.cpu.gpu import CpuGpu, ways
from executor.cuts import CpuCut
from executor.errors import NoGpuError
from executor.zygote import Event, Exited, Forked, Reached, Reporter, Warm, Zygote

PLACEMENTS = ("1c@6", "2c@4", "4c@0")
SETTLE_S = 0.5
N_STARTS = 20


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=float, default=1.6)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cut = CpuCut(options.cores)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {options.cores:g} cores in 7 slices")
    with tempfile.TemporaryDirectory() as state:
        for way, attempt in ways(Path(state)).items():
            try:
                gpu = CpuGpu(cut, Path(state), {way: attempt})
            except NoGpuError as error:
                print(f"\n{way}: not here: {error}")
                continue
            with gpu:
                _print_shares(gpu, options.seconds, options.rounds)
    _print_starts([module for module in ("numpy", "torch") if find_spec(module)])


def _print_shares(gpu: CpuGpu, seconds: float, n_rounds: int) -> None:
    """Measure each instance alone and all together, and print what each got of what it should have."""
    cores = [gpu.cut.cores_of(gpu.model.placement(text).profile) for text in PLACEMENTS]
    print(f"\n{gpu.label}; median of {n_rounds} × {seconds:g} s (least–most)")
    print(f"{'':<16}{'':>14}" + "".join(f"{text:>24}" for text in PLACEMENTS))
    print(f"{'should have':<16}{'1 : 2 : 4':>14}" + "".join(f"{share:>24.3f}" for share in cores))
    alone = [_medians([_measured(gpu, [text], seconds) for _ in range(n_rounds)])[0] for text in PLACEMENTS]
    together = _medians([_measured(gpu, PLACEMENTS, seconds) for _ in range(n_rounds)])
    for label, figures in (("alone", alone), ("all slices busy", together)):
        middles = [middle for middle, _, _ in figures]
        ratio = " : ".join(f"{middle / middles[0]:.2f}" for middle in middles)
        cells = (f"{middle:.3f} ({low:.3f}–{high:.3f})" for middle, low, high in figures)
        print(f"{label:<16}{ratio:>14}" + "".join(f"{cell:>24}" for cell in cells))


def _medians(rounds: Sequence[Sequence[float]]) -> list[tuple[float, float, float]]:
    return [(statistics.median(column), min(column), max(column)) for column in zip(*rounds, strict=True)]


def _measured(gpu: CpuGpu, placements: Sequence[str], seconds: float) -> list[float]:
    """CPU seconds a second that a busy process gets in each of these instances, all at once."""
    with ExitStack() as stack:
        pids = [stack.enter_context(_busy(gpu, text)) for text in placements]
        time.sleep(SETTLE_S)
        before, begin_s = [used_s(pid) for pid in pids], time.monotonic()
        time.sleep(seconds)
        after, end_s = [used_s(pid) for pid in pids], time.monotonic()
    return [(later - earlier) / (end_s - begin_s) for earlier, later in zip(before, after, strict=True)]


@contextmanager
def _busy(gpu: CpuGpu, placement: str) -> Iterator[int]:
    made = gpu.create(gpu.model.placement(placement))
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        gpu.enter(made.uuid, process.pid)
        yield process.pid
        process.kill()
    while gpu.processes().get(made.gi_id):
        time.sleep(0.001)
    gpu.destroy(made.gi_id)


def worker(reporter: Reporter, module: str | None) -> None:
    """A worker as a model's is: it uses what it has imported once, and is ready."""
    if module is not None:
        __import__(module).ones(1000).sum()
    reporter.reached("ready")


def _print_starts(modules: Sequence[str]) -> None:
    print(f"\nstarts of workers from a warm process, ms: median of {N_STARTS} one by one (least–most)")
    for imports in ([], *([module] for module in modules)):
        begin_s = time.monotonic()
        with Zygote(imports) as zygote:
            events: list[Event] = []
            while not events:
                events += zygote.events(60.0)
            (warm,) = (event for event in events if isinstance(event, Warm))
            spans = [_started(zygote, imports) for _ in range(N_STARTS)]
        columns = list(zip(*spans, strict=True))
        text = ", ".join(
            f"{label} {statistics.median(ms):.1f} ({min(ms):.1f}–{max(ms):.1f})"
            for label, ms in zip(("to fork", "to ready", "in all"), columns, strict=True)
        )
        print(f"{imports[0] if imports else 'nothing':<8} warm after {warm.at_s - begin_s:.2f} s; {text}")


def _started(zygote: Zygote, imports: Sequence[str]) -> tuple[float, float, float]:
    """Milliseconds from the request to the worker's first step, from there to ready, and both."""
    zygote.start(f"{__spec__.name}:worker", {"module": imports[0] if imports else None})
    forked = ready = None
    while True:
        for event in zygote.events(60.0):
            if isinstance(event, Forked):
                forked = event
            elif isinstance(event, Reached):
                ready = event
            elif isinstance(event, Exited):
                assert forked is not None, event
                assert ready is not None, event
                to_fork, to_ready = forked.at_s - forked.asked_s, ready.at_s - forked.at_s
                return to_fork * 1000, to_ready * 1000, (to_fork + to_ready) * 1000


if __name__ == "__main__":
    main()
