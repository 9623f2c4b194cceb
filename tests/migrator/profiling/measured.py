"""Figures as a measurement would give them."""

from __future__ import annotations

from executor.catalogue import gpu_model
from migrator.profiling.record import StartPhases, Stretch
from migrator.profiling.stages import MeasuringPlan, stages

CPU = gpu_model("cpu-1.6-in-7")
ASKED = MeasuringPlan(CPU.profile_names, (1, 8), (1, 2), 1.0, is_coarse=True)
STAGES = stages(CPU, ASKED, [("m", True)])


def stretch(mean_s: float, batch: float, n_passes: int = 100, memory: tuple[float, ...] = ()) -> Stretch:
    """``memory`` is of the weights, the context and the batch, in MiB; unknown without it."""
    return Stretch(n_passes, n_passes * batch, n_passes * mean_s, mean_s / 2, 3 * mean_s, 0.1, *memory)


def rounds(*costs: float) -> tuple[Stretch, ...]:
    """Of two models, of which the other one's batches take three times as long, on a machine that slows down."""
    found = []
    for number, cost in enumerate(costs, start=1):
        # what is lost is lost by one of them alone
        found += [stretch(number * mean_s, 8) for mean_s in (0.1, 0.3, 0.1 + 0.4 * cost, 0.3)]
    return tuple(found)


def start(factor: float) -> StartPhases:
    return StartPhases(0.1 * factor, 0.2 * factor, 0.3 * factor, 0.3 * factor, 0.1 * factor)
