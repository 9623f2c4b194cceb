"""What a run's changes took, in the four phases of the paper's Figure 5, from the log alone.

Instance destruction and instance initialisation are the driver's calls; library load and model load
happen in the worker. The run's bring-up is no change. Retraining workers count like those of inference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from migrator.log.runlog import Event

PHASES = ("destruction", "initialisation", "library_load", "model_load")
"""In the order in which a change goes through them."""


@dataclass(frozen=True, slots=True)
class Phase:
    """How often a phase was gone through, and the seconds that it took in all."""

    count: int = 0
    total_s: float = 0.0

    @property
    def mean_s(self) -> float | None:
        """Seconds of one; ``None`` where there was none."""
        return self.total_s / self.count if self.count else None

    def with_one(self, seconds: float) -> Phase:
        """This, and one more."""
        return Phase(self.count + 1, self.total_s + seconds)


StartUps = Mapping[str, Mapping[str, Phase]]
"""By tenant, and then by phase."""


def start_ups_of(changes: Iterable[Event]) -> StartUps:
    """The phases of every tenant that lost or got an instance; a log without phases gives only the driver's."""
    phases: defaultdict[str, dict[str, Phase]] = defaultdict(lambda: dict.fromkeys(PHASES, Phase()))
    for change in changes:
        if change["begin_s"] < 0:
            continue
        for tenant, phase, seconds in _taken(change):
            phases[tenant][phase] = phases[tenant][phase].with_one(seconds)
    return dict(phases)


def _taken(change: Event) -> Iterable[tuple[str, str, float]]:
    """Tenant, phase and seconds of all that a change went through."""
    owner_of: dict[tuple[str, Any], str] = {}
    for key, call in (("stopped", "destroy"), ("started", "create")):
        owner_of |= {(call, item.get("placement")): item["tenant"] for item in change[key]}
    for call in change.get("calls", ()):
        phase = "destruction" if call["call"] == "destroy" else "initialisation"
        yield owner_of[call["call"], call["placement"]], phase, call["end_s"] - call["begin_s"]
    for item in change["started"]:
        if "library_s" in item:
            yield item["tenant"], "library_load", item["library_s"]
            yield item["tenant"], "model_load", item["model_s"]
