"""Sirius's Figure 10 in virtual time: `python -m benchmarks.seeds.sirius [--traces N]`.

Jiali Wang et al., "Sirius" (USENIX ATC '25), §6.1. Requests for 56 instances of six models and one training share a
V100 for 300 s. Five ways to share its memory are compared by the requests that keep their SLO, four times what the
model takes alone, and by the samples that are trained. **Everything is simulated.**

What is the paper's: models, sizes and times (Table 3), the four generated workloads (Table 2, §6), a handover of 5 ms
(§4.1), T_idle of 5 s and W of 1 GB (§6.1), 250 ms to load by hand as in 11.9 GB/s of PCIe (Figure 1(b): 317 MB in
26.6 ms), loading overlapped with execution in Sirius and task switching, which the paper built on it (§4.3, §6), and
that requests are served one after the other, as in its own queueing model (§4.3).

What is assumed, none of it fitted to a row:

- *Memory*: 15 GB are there, and a training with a batch of 80 takes all of it, 91 % of that for what grows with the
  batch (Figure 2, of which only the 91 % are printed). The largest batch is 72 (Table 3).
- *Training*: a batch of 72 takes 318 ms (Table 3), 30 ms of that whatever the batch.
- *Processors*: a request leaves the training half of them, under every system but task switching.
- *Static*: Triton takes 1 s to start a model ("as high as 2 seconds", §6.1), any number at once; the model unused for
  longest makes room.
- *Unified memory*: pages come by PCIe when they are touched; what came first makes room, and is written back before.

Algorithm 1 is simulated as it must be. Line 10 releases the coldest models until W is left, but models are indivisible:
they go whole, and what they free beyond that stays reserved. Lines 15 to 17 take (size - M_rsu) + W from the
training, which may not have as much: taken is what it has, and if that is too little for the model, it is swapped.
"""

from __future__ import annotations

import argparse
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.seeds.salus import titled, with_range

KINDS = {
    "ResNet-152": (319.0, 9.4e-3),
    "DenseNet-169": (84.0, 12.6e-3),
    "EfficientNetV2-s": (86.0, 5.3e-3),
    "EfficientViT-b2": (109.0, 3.7e-3),
    "DistilBERT": (254.0, 8.0e-3),
    "DistilGPT2": (317.0, 5.0e-3),
}
"""MB and seconds of a request (Table 3)."""

N_MODELS = 56
MODELS = [list(KINDS.values())[number % len(KINDS)] for number in range(N_MODELS)]
SLO = 4.0
SECONDS, INTERVAL_S = 300.0, 20.0

CAPACITY_MB = 15_000.0
STATES_MB = 0.09 * CAPACITY_MB
SAMPLE_MB = 0.91 * CAPACITY_MB / 80
MOST_SAMPLES = 72
FIXED_S = 0.030
SAMPLE_S = (0.318 - FIXED_S) / MOST_SAMPLES

PCIE_MB_S = 317 / 26.6e-3
HANDOVER_S = 5e-3
LEFT_TO_TRAINING = 0.5
TRITON_S = 1.0
T_IDLE_S = 5.0
WATERMARK_MB = 1000.0


@dataclass(frozen=True, slots=True)
class Request:
    """A request for one of :data:`MODELS`, by number."""

    arrival_s: float
    model: int


def low(rng: np.random.Generator) -> float:
    """Requests a second in an interval of little traffic."""
    return float(rng.lognormal(1.0, 1.0))


def high(rng: np.random.Generator) -> float:
    """The same of much."""
    return float(rng.lognormal(4.5, 0.3))


def either(rng: np.random.Generator) -> float:
    """Much in 30 % of the intervals."""
    return high(rng) if rng.random() < 0.3 else low(rng)


UNIFORM = np.full(N_MODELS, 1 / N_MODELS)
ZIPF = np.arange(1, N_MODELS + 1) ** -1.05 / (np.arange(1, N_MODELS + 1) ** -1.05).sum()

WORKLOADS: Mapping[str, tuple[Callable[[np.random.Generator], float], np.ndarray]] = {
    "LIGHT": (low, UNIFORM),
    "HEAVY": (high, UNIFORM),
    "BURST": (either, UNIFORM),
    "SKEWED": (either, ZIPF),
}
"""How many requests a second an interval has, and how likely each model is (Table 2)."""


def trace(workload: str, seed: int) -> list[Request]:
    """The requests of 300 s, Poisson within each interval."""
    rate, shares = WORKLOADS[workload]
    rng = np.random.default_rng([seed, [*WORKLOADS].index(workload)])
    found = list[Request]()
    for begin_s in np.arange(0.0, SECONDS, INTERVAL_S):
        times = begin_s + INTERVAL_S * np.sort(rng.random(rng.poisson(rate(rng) * INTERVAL_S)))
        models = rng.choice(N_MODELS, size=len(times), p=shares)
        found += [Request(*one) for one in zip(times.tolist(), models.tolist(), strict=True)]
    return found


@dataclass
class Training:
    """The training: batches one after the other.

    Attributes:
        memory_mb: What it has.
        samples: What was trained.
        lost_s: Seconds of work that were discarded.
    """

    memory_mb: float
    samples: int = 0
    lost_s: float = 0.0
    _batch: int = 0
    _done_s: float = 0.0

    @property
    def largest(self) -> int:
        """The largest batch that its memory has room for; 0: it stands still."""
        return max(0, min(MOST_SAMPLES, int((self.memory_mb - STATES_MB) / SAMPLE_MB)))

    def work(self, seconds: float) -> None:
        """So many seconds of work, as if alone; a batch has the size that is the largest as it begins."""
        while seconds > 0:
            self._batch = self._batch or self.largest
            if not self._batch:
                return
            left_s = FIXED_S + SAMPLE_S * self._batch - self._done_s
            if left_s > seconds:
                self._done_s += seconds
                return
            seconds -= left_s
            self.samples += self._batch
            self._batch, self._done_s = 0, 0.0

    def discard(self) -> None:
        """Lose the batch that runs."""
        self.lost_s += self._done_s
        self._batch, self._done_s = 0, 0.0


class System:
    """Serves requests one after the other; a training has what is left.

    Attributes:
        training: Its training.
        n_cold: Requests that found no model.
    """

    def __init__(self, training_mb: float) -> None:
        self.training = Training(training_mb)
        self.n_cold = 0

    def ready(self, requests: Sequence[Request]) -> list[tuple[float, Request]]:
        """When each can be served, in that order."""
        return [(one.arrival_s, one) for one in requests]

    def rest(self, _now_s: float, seconds: float) -> None:
        """Nobody is served for so long."""
        self.training.work(seconds)

    def serve(self, now_s: float, model: int) -> float:
        """Serve a request; returns the seconds that it takes."""
        took_s = self.opened_s(now_s, model)
        self.training.work(LEFT_TO_TRAINING * took_s)
        return took_s

    def opened_s(self, _now_s: float, model: int) -> float:
        """Seconds of the request, with what its model takes to come."""
        return MODELS[model][1]


def loading_s(model: int) -> float:
    """Seconds of a request whose model is loaded meanwhile, layer by layer."""
    size_mb, seconds = MODELS[model]
    return max(seconds, size_mb / PCIE_MB_S)


class Sirius(System):
    """Memory changes hands by Algorithm 1, as it must be.

    Attributes:
        ours_mb: Memory that serving has.
        active: Models that were requested within T_idle, with when, the oldest first.
        reserved: Models that were not, the coldest first.
    """

    def __init__(self, t_idle_s: float = T_IDLE_S, watermark_mb: float = WATERMARK_MB) -> None:
        super().__init__(CAPACITY_MB)
        self.t_idle_s, self.watermark_mb = t_idle_s, watermark_mb
        self.ours_mb = 0.0
        self.active: OrderedDict[int, float] = OrderedDict()
        self.reserved: OrderedDict[int, None] = OrderedDict()

    @property
    def reserve_mb(self) -> float:
        """M_rsu: what serving has beyond its active models."""
        return self.ours_mb - _size_mb(self.active)

    @property
    def free_mb(self) -> float:
        """Of that, what holds no model."""
        return self.reserve_mb - _size_mb(self.reserved)

    def rest(self, now_s: float, seconds: float) -> None:
        """Models that nobody asks for are released as their time is over."""
        end_s = now_s + seconds
        while self.active and (idle_s := next(iter(self.active.values())) + self.t_idle_s) <= end_s:
            self.training.work(max(0.0, idle_s - now_s))
            now_s = max(now_s, idle_s)
            self.release()
        self.training.work(end_s - now_s)

    def release(self) -> None:
        """InferRelease of the model that was idle for longest."""
        self.reserved[self.active.popitem(last=False)[0]] = None
        if self.reserve_mb >= 2 * self.watermark_mb:
            given_mb = self.reserve_mb - self.watermark_mb
            while self.free_mb < given_mb and self.reserved:
                self.reserved.popitem(last=False)
            self._own(self.ours_mb - min(given_mb, self.free_mb))

    def opened_s(self, now_s: float, model: int) -> float:
        """InferRequire."""
        if model in self.active or model in self.reserved:
            self.active.pop(model, None)
            self.reserved.pop(model, None)
            self.active[model] = now_s
            return MODELS[model][1]
        self.n_cold += 1
        waited_s, size_mb = 0.0, MODELS[model][0]
        if self.reserve_mb < size_mb:
            taken_mb = min(size_mb - self.reserve_mb + self.watermark_mb, CAPACITY_MB - STATES_MB - self.ours_mb)
            if taken_mb > 0:
                self.training.discard()
                self._own(self.ours_mb + taken_mb)
                waited_s = HANDOVER_S
        while self.free_mb < size_mb:  # the coldest makes room, and where none is reserved, an active one is swapped
            (self.reserved or self.active).popitem(last=False)
        self.active[model] = now_s
        return waited_s + loading_s(model)

    def _own(self, ours_mb: float) -> None:
        self.ours_mb = ours_mb
        self.training.memory_mb = CAPACITY_MB - ours_mb


def _size_mb(models: Mapping[int, object]) -> float:
    return sum(MODELS[model][0] for model in models)


class TaskSwitching(System):
    """Requests have the GPU while any is there, and the training while none is."""

    def __init__(self) -> None:
        super().__init__(CAPACITY_MB)
        self.there = set[int]()

    def rest(self, now_s: float, seconds: float) -> None:
        """The training has all memory, so that no model stays."""
        if seconds > 0:
            self.there.clear()
        super().rest(now_s, seconds)

    def serve(self, _now_s: float, model: int) -> float:
        """The first request ends the batch that runs; no training goes on beside."""
        waited_s = 0.0 if self.there else HANDOVER_S
        self.training.discard()
        if model in self.there:
            return waited_s + MODELS[model][1]
        self.n_cold += 1
        self.there.add(model)
        return waited_s + loading_s(model)


class Static(System):
    """Serving has a part of the memory, for good."""

    def __init__(self, share: float) -> None:
        super().__init__((1 - share) * CAPACITY_MB)
        self.ours_mb = share * CAPACITY_MB

    def ready(self, requests: Sequence[Request]) -> list[tuple[float, Request]]:
        """A request whose model has to start waits for that, and others do not wait for it."""
        there: OrderedDict[int, float] = OrderedDict()  # when it can serve, the one unused for longest first
        found = list[tuple[float, Request]]()
        for one in requests:
            started_s = there.pop(one.model, None)
            if started_s is None:
                self.n_cold += 1
                started_s = one.arrival_s + TRITON_S + MODELS[one.model][0] / PCIE_MB_S
                while _size_mb(there) + MODELS[one.model][0] > self.ours_mb:
                    there.popitem(last=False)
            there[one.model] = started_s
            found.append((max(one.arrival_s, started_s), one))
        return sorted(found, key=lambda pair: pair[0])


class UnifiedMemory(System):
    """Both have all the memory that they want, and what does not fit is on the host."""

    def __init__(self) -> None:
        super().__init__(CAPACITY_MB)
        self.there_mb = np.zeros(N_MODELS + 1)
        self._late_s = 0.0

    def rest(self, _now_s: float, seconds: float) -> None:
        """The training works on."""
        self._train(seconds)

    def serve(self, _now_s: float, model: int) -> float:
        """The pages of the model come first, then those of the training beside."""
        size_mb, seconds = MODELS[model]
        came_s = self._come(model, size_mb)
        self.n_cold += came_s > 0
        self._train(LEFT_TO_TRAINING * (took_s := came_s + seconds))
        return took_s

    def _train(self, seconds: float) -> None:
        self._late_s += self._come(N_MODELS, STATES_MB + MOST_SAMPLES * SAMPLE_MB)
        late_s = min(seconds, self._late_s)
        self._late_s -= late_s
        self.training.work(seconds - late_s)

    def _come(self, owner: int, size_mb: float) -> float:
        """Bring in what is missing; returns the seconds that it, and what makes room for it, is on the bus."""
        missing_mb = size_mb - float(self.there_mb[owner])
        if missing_mb < 1e-6:
            return 0.0
        others_mb = float(self.there_mb.sum()) - float(self.there_mb[owner])
        left_mb = max(0.0, others_mb + size_mb - CAPACITY_MB)
        self.there_mb *= 1 - left_mb / others_mb if left_mb else 1.0
        self.there_mb[owner] = size_mb
        return (missing_mb + left_mb) / PCIE_MB_S


SYSTEMS: Mapping[str, Callable[[], System]] = {
    "sirius": Sirius,
    "task switching": TaskSwitching,
    "static 50 %": lambda: Static(0.5),
    "static 75 %": lambda: Static(0.75),
    "unified memory": UnifiedMemory,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a trace.

    Attributes:
        latencies_s: By request, in the order in which they were served.
        slo_pct: Requests within their SLO.
        samples_s: Samples trained a second.
        cold_pct: Requests that found their model gone.
        lost_pct: Time whose work was discarded.
    """

    latencies_s: np.ndarray
    slo_pct: float
    samples_s: float
    cold_pct: float
    lost_pct: float


def simulate(requests: Sequence[Request], system: System) -> Outcome:
    """The requests, and the training until the last is answered."""
    now_s, latencies, kept = 0.0, list[float](), 0
    for ready_s, one in system.ready(requests):
        if ready_s > now_s:
            system.rest(now_s, ready_s - now_s)
            now_s = ready_s
        now_s += system.serve(now_s, one.model)
        latencies.append(now_s - one.arrival_s)
        kept += latencies[-1] <= SLO * MODELS[one.model][1]
    if now_s < SECONDS:
        system.rest(now_s, SECONDS - now_s)
    n, lasted_s, training = max(1, len(requests)), max(now_s, SECONDS), system.training
    return Outcome(
        np.array(latencies),
        100 * kept / n,
        training.samples / lasted_s,
        100 * system.n_cold / n,
        100 * training.lost_s / lasted_s,
    )


Outcomes = Mapping[tuple[str, str], Sequence[Outcome]]
"""By workload and system, one a trace."""


def outcomes_of(n_traces: int) -> dict[tuple[str, str], list[Outcome]]:
    """Every workload by every system, with so many traces from seed 0 on."""
    return {
        (workload, name): [simulate(trace(workload, seed), make()) for seed in range(n_traces)]
        for workload in WORKLOADS
        for name, make in SYSTEMS.items()
    }


SLO_ORDER: Sequence[tuple[str, str, str]] = (
    ("sirius", "static 75 %", "8.2"),
    ("sirius", "static 50 %", "54.6"),
    ("sirius", "task switching", "72.6"),
    ("sirius", "unified memory", "92.6"),
    ("static 75 %", "static 50 %", "–"),
    ("static 75 %", "unified memory", "–"),
)
"""Pairs of which the first keeps the SLO of more requests in the paper (§6.1), and by how many points on average."""

TRAINING_ORDER: Sequence[tuple[str, str, str]] = (
    ("sirius", "task switching", "4.6"),
    ("sirius", "static 75 %", "3.0, LIGHT"),
    ("sirius", "unified memory", "2.2"),
    ("static 50 %", "static 75 %", "–"),
)
"""Pairs of which the first trains more samples a second in the paper (§6.1), and how many times as many on average."""

OTHERWISE: Mapping[tuple[str, str], tuple[frozenset[str], str]] = {
    ("SLO", "sirius over static 75 %"): (
        frozenset({"LIGHT", "BURST", "SKEWED"}),
        "The 56 models are 10.9 GB (Table 3) and here stay in the 11.3 GB: each starts once. Theirs kept starting.",
    ),
    ("training", "sirius over static 75 %"): (
        frozenset({"HEAVY"}),
        "With every model active and W beside, serving has more memory under Sirius than the 75 %.",
    ),
}
"""Pairs that come out the other way here, in which workloads, and why."""


def differences(outcomes: Outcomes, what: str, first: str, second: str) -> dict[str, np.ndarray]:
    """By workload and trace how far the first is ahead: in points of ``SLO``, or in samples a second."""
    name = "slo_pct" if what == "SLO" else "samples_s"
    return {
        workload: np.array([getattr(one, name) for one in outcomes[workload, first]])
        - np.array([getattr(one, name) for one in outcomes[workload, second]])
        for workload in WORKLOADS
    }


def found_otherwise(outcomes: Outcomes) -> dict[tuple[str, str], frozenset[str]]:
    """By pair the workloads in which the second is ahead, mean of traces; those in which none is are left out."""
    found = {
        (what, f"{first} over {second}"): frozenset(
            workload for workload, ahead in differences(outcomes, what, first, second).items() if ahead.mean() <= 0
        )
        for what, order in (("SLO", SLO_ORDER), ("training", TRAINING_ORDER))
        for first, second, _ in order
    }
    return {pair: workloads for pair, workloads in found.items() if workloads}


def systems_table(outcomes: Outcomes) -> Table:
    """Figure 10: what ours comes to; the paper prints bars only."""
    heads = ("in SLO, %", "P99, ms", "samples/s", "cold, %", "discarded, %")
    table = titled("Figure 10, ours, simulated", *heads)
    for (workload, name), own in outcomes.items():
        rows = [
            (one.slo_pct, 1e3 * np.quantile(one.latencies_s, 0.99), one.samples_s, one.cold_pct, one.lost_pct)
            for one in own
        ]
        cells = [with_range(values, 1) for values in np.array(rows).T]
        table.add_row(f"{workload} {name}", *cells, end_section=name == [*SYSTEMS][-1])
    return table


def order_table(outcomes: Outcomes) -> Table:
    """Each pair of the paper's order, by how much the first is ahead, and where it is not."""
    table = titled("The paper's order: how far the first is ahead", "paper", "ours, mean", "otherwise in")
    for what, order in (("SLO", SLO_ORDER), ("training", TRAINING_ORDER)):
        for first, second, paper in order:
            ahead = differences(outcomes, what, first, second)
            points = float(np.mean([own.mean() for own in ahead.values()]))
            times = _samples(outcomes, first, WORKLOADS) / _samples(outcomes, second, WORKLOADS)
            label, ours = (
                ("points of SLO", f"{points:+.1f}") if what == "SLO" else ("times the samples", f"{times:.1f}")
            )
            lost = [workload for workload, own in ahead.items() if own.mean() <= 0]
            table.add_row(f"{label}, {first} over {second}", paper, ours, ", ".join(lost) or "–")
    return table


def _samples(outcomes: Outcomes, system: str, workloads: Iterable[str]) -> float:
    return sum(one.samples_s for workload in workloads for one in outcomes[workload, system])


WHY = (
    ("Sirius, cold under BURST, %", "9.1", ("BURST", "sirius", "cold_pct"), "Nothing was fitted to it."),
    ("Sirius, discarded, %", "1.4", ("BURST", "sirius", "lost_pct"), "The same."),
    (
        "task switching, cold under BURST, %",
        "47.1",
        ("BURST", "task switching", "cold_pct"),
        "Models go as soon as nobody waits; while requests queue, they stay.",
    ),
    (
        "static 50 %, in SLO under HEAVY, %",
        "25",
        ("HEAVY", "static 50 %", "slo_pct"),
        "Requests queue one after the other, and some intervals bring more than can be served.",
    ),
    (
        "unified memory, in SLO under LIGHT, %",
        "7",
        ("LIGHT", "unified memory", "slo_pct"),
        "Faults take no time of their own here, and the bus has one user at a time.",
    ),
    (
        "Sirius, in SLO, mean, %",
        "90",
        (None, "sirius", "slo_pct"),
        "HEAVY takes 72 % of one server, which no system here parts among requests.",
    ),
)
"""What the paper prints, ours, and why that is another figure."""


def why_table(outcomes: Outcomes) -> Table:
    """What the paper prints, what comes out here, and why they differ; then the pairs that come out otherwise."""
    table = titled("Where the paper and ours differ", "paper", "ours", "why")
    table.columns[-1].justify = "left"
    for label, paper, (workload, system, name), why in WHY:
        own = [outcomes[at, system] for at in ([workload] if workload else WORKLOADS)]
        values = np.mean([[getattr(one, name) for one in traces] for traces in own], axis=0)
        table.add_row(label, paper, with_range(values, 1), why)
    times = _samples(outcomes, "sirius", ["LIGHT"]) / _samples(outcomes, "static 75 %", ["LIGHT"])
    assumed = f"A batch of {Static(0.75).training.largest} is slower by 30 ms a batch alone here, which is assumed."
    table.add_row("times the samples of static 75 % under LIGHT", "3.0", f"{times:.1f}", assumed)
    for (what, pair), (workloads, why) in OTHERWISE.items():
        table.add_row(f"{what}, {pair}", "ahead", f"behind: {', '.join(sorted(workloads))}", why)
    return table


def main() -> None:
    """Simulate the traces and print what comes out, the paper's order, and why they differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=10, help="drawn from seeds 0, 1, …")
    n_traces = parser.parse_args().traces
    outcomes = outcomes_of(n_traces)
    console = Console(width=200, highlight=False, markup=False)
    console.print(f"Sirius, simulated in virtual time, without a GPU: {n_traces} traces of {SECONDS:.0f} s a workload.")
    console.print("Ours is the median [least, most] over traces.\n")
    console.print(systems_table(outcomes), order_table(outcomes), why_table(outcomes))


if __name__ == "__main__":
    main()
