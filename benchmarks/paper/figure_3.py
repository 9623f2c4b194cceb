"""The paper's Figure 3: which allocation of GPCs to two tenants would be best in each second.

===========  =========================================================================
a[s, m]      requests of tenant m in second s
C[k, m]      requests a second that tenant m's instances answer in allocation k
===========  =========================================================================
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.motivation_layouts import best_substitute, capability_of, one_of, shown
from benchmarks.paper.motivation_splits import W7, Row, Study
from migrator.config import Config, read_config
from migrator.run.simulated import true_problems
from migrator.setting import Setting, assemble
from migrator.traffic import RecordedTraffic
from planner.counts import joint_states, tenant_multisets

ALLOCATIONS = ((6, 1), (5, 2), (4, 3), (3, 4), (2, 5), (1, 6))
"""(GPCs of Inception, GPCs of ResNet-50), in the figure's order."""

PAPER_SECONDS = (16, 42, 55, 40, 28, 19)
"""How often each was best in the paper's window of 200 s."""

SCALINGS = ("poisson", "copies")
"""How the traces are brought to their rates: around a 10 s average as in all workloads, or second by second."""

WINDOW = 0

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

TEXT = (
    "Inception asked by the Azure trace and ResNet-50 by Alibaba (W7 with its traces exchanged, load 0.7), the true "
    "arrivals of the first window of 200 s; no retraining. For each second: which of six allocations answers most, the "
    "sum of min(arrivals, capability) over both, if changing were free and nothing waited from the second before. "
    "`6-1` is 6 GPCs for Inception and 1 for ResNet-50; two instances stand for 5 and 6 as in Figure 2. Often several "
    "allocations answer everything, and the paper does not say which then counts: here the one whose busier tenant is "
    "least busy. *Among the best* counts such ties for all of them, *alone* none. Everything hangs on how much "
    "arrivals vary from second to second, so the traces are brought to their rates in two ways: `poisson` draws around "
    "their 10 s moving average, as all workloads here do; `copies` repeats every request of the trace, so that its "
    "differences between seconds, many of them chance at its own few requests a second, are as large at any rate. "
    "The Alibaba trace is synthetic at second scale. The paper's figure does not say how its traces were scaled."
)


def figure_3() -> Study:
    """The histogram of best allocations by second, for both ways to scale the traces."""
    rows: list[Row] = []
    found = []
    for method in SCALINGS:
        own, said = histogram(*assemble(config_with(method), "figure-3"), method)
        rows += own
        found += said
    return {
        "title": "Figure 3: the best allocation of each second",
        "text": TEXT,
        "rows": rows,
        "found": found,
        "paper": [
            "seconds in which each was best, 6-1 to 1-6: 16, 42, 55, 40, 28, 19 (read in the order of their printing)",
            "the preferred allocation can vary every second",
            "the best allocation varies among all the possible ones, so static MIG partitioning will not work",
        ],
    }


def config_with(method: str) -> Config:
    """W7 with its tenants' traces exchanged, brought to their rates by ``method``."""
    config = read_config(W7, name="figure-3")
    tenants = []
    for tenant, other in zip(config.tenants, reversed(config.tenants), strict=True):
        scale = other.arrivals.scale.model_copy(update={"method": method})
        arrivals = other.arrivals.model_copy(update={"scale": scale})
        tenants.append(tenant.model_copy(update={"arrivals": arrivals}))
    return config.model_copy(update={"tenants": tenants})


def histogram(setting: Setting, traffic: RecordedTraffic, method: str) -> tuple[list[Row], list[str]]:
    """A row for each allocation, and sentences about changing from one to the other."""
    instances = [instances_of(setting, gpcs) for gpcs in ALLOCATIONS]
    rates = [tenant.capability_rps for tenant in setting.tenants]
    capability = np.array(
        [[capability_of(names, rate) for names, rate in zip(pair, rates, strict=True)] for pair in instances]
    )
    arrivals = rates_rps(setting, traffic)
    value = in_time(arrivals, capability)
    are_best = value >= value.max(axis=1, keepdims=True) - 1e-9
    best = best_by_second(arrivals, capability)
    rows: list[Row] = [
        {
            "scaling": method,
            "allocation": f"{gpcs[0]}-{gpcs[1]}",
            "inception": shown(pair[0]),
            "resnet50": shown(pair[1]),
            "best_s": int((best == k).sum()),
            "among_best_s": int(are_best[:, k].sum()),
            "alone_best_s": int((are_best[:, k] & (are_best.sum(axis=1) == 1)).sum()),
            "in_time_if_held_pct": _percent(value[:, k], arrivals),
            "paper_s": seconds,
        }
        for k, (gpcs, pair, seconds) in enumerate(zip(ALLOCATIONS, instances, PAPER_SECONDS, strict=True))
    ]
    return rows, _sentences(method, arrivals, value, best, any_in_time(setting, traffic))


def rates_rps(setting: Setting, traffic: RecordedTraffic) -> Array:
    """Requests a second that arrive in each second of the window, ``(S, M)``."""
    config = setting.config
    return traffic.hindsight.rates_rps(WINDOW * config.window_s, config.step_s, config.n_steps)


def instances_of(setting: Setting, gpcs: Sequence[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The instances of both tenants that stand for an allocation; the smaller part is always one instance."""
    gpu, rates = setting.gpu, [tenant.capability_rps for tenant in setting.tenants]
    small = min(range(2), key=gpcs.__getitem__)
    one = (one_of(gpu, gpcs[small]),)
    other = best_substitute(gpu, gpcs[1 - small], one, rates[1 - small])
    return (one, other) if small == 0 else (other, one)


def in_time(arrivals: Array, capability: Array) -> Array:
    """Requests answered in each second by each allocation, Σ_m min(a, C): ``(S, M), (K, M) → (S, K)``."""
    return np.asarray(np.minimum(arrivals[:, None, :], capability[None, :, :]).sum(axis=2), dtype=np.float64)


def best_by_second(arrivals: Array, capability: Array) -> Indices:
    """The allocation that answers most in each second; of equals, that whose busiest tenant is least busy, ``(S,)``."""
    value = in_time(arrivals, capability)
    busiest = (arrivals[:, None, :] / capability[None, :, :]).max(axis=2)
    is_best = value >= value.max(axis=1, keepdims=True) - 1e-9
    return np.asarray(np.where(is_best, busiest, np.inf).argmin(axis=1), dtype=np.int64)


def fewest_changes(are_best: NDArray[np.bool_]) -> int:
    """How often one must change at least to have one of the best in every second, ``(S, K)``, each row with some."""
    n_changes, left = 0, np.ones(are_best.shape[1], dtype=np.bool_)
    for now in are_best:
        # Staying with what is best for longest is never worse: any other choice has to change no later.
        left = left & now
        if not left.any():
            n_changes, left = n_changes + 1, now
    return n_changes


def any_in_time(setting: Setting, traffic: RecordedTraffic) -> Array:
    """Requests answered in each second by the best of all layouts, with any number of instances, ``(S,)``."""
    problem = true_problems(setting, traffic)[WINDOW]
    parts = []
    for tenant in problem.tenants:
        rates = np.array([tenant.capability_rps.get(name, 0.0) for name in problem.profile_names])
        parts.append(np.array(tenant_multisets(problem, tenant), dtype=np.float64) @ rates)
    states = joint_states(problem)
    capability = np.column_stack([part[states[:, m]] for m, part in enumerate(parts)])
    return np.asarray(in_time(rates_rps(setting, traffic), capability).max(axis=1), dtype=np.float64)


def _percent(answered: Array, arrivals: Array) -> float:
    return round(100 * float(answered.sum() / arrivals.sum()), 2)


def _sentences(method: str, arrivals: Array, value: Array, best: Indices, any_layout: Array) -> list[str]:
    are_best = value >= value.max(axis=1, keepdims=True) - 1e-9
    mean, name = arrivals.mean(axis=0), f"`{method}`"
    spread_pct = 100 * arrivals.std(axis=0) / mean
    fixed = int(value.sum(axis=0).argmax())
    label = "-".join(map(str, ALLOCATIONS[fixed]))
    rates = (
        f"{name}: Inception gets {mean[0]:.0f} requests/s on average (standard deviation {spread_pct[0]:.0f} %), "
        f"ResNet-50 {mean[1]:.0f} ({spread_pct[1]:.0f} %)."
    )
    changes = (
        f"{name}: the best allocation differs from that of the second before in {int((np.diff(best) != 0).sum())} of "
        f"{len(best) - 1} seconds; to have one of the best throughout, {fewest_changes(are_best)} changes are enough. "
        f"In {int((are_best.sum(axis=1) > 1).sum())} seconds several are equally good."
    )
    worth = (
        f"{name}: in time are {_percent(value[:, fixed], arrivals):.2f} % with {label} held, "
        f"{_percent(value.max(axis=1), arrivals):.2f} % with the best of the six in each second, "
        f"{_percent(any_layout, arrivals):.2f} % with the best of all layouts."
    )
    return [rates, changes, worth]
