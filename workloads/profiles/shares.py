"""How a model is served and trained on a share of a GPU's processors, as MPS cuts it: measured, or from MIG profiles.

Where shares were measured (:mod:`workloads.profiles.share_table`), latency and what a training beside costs are those.
We know of no published profiles by MPS share for these models. So else a share is taken to be as fast as a MIG instance
with that share of the compute slices (1g 1/7, 2g 2/7, … 7g all), the speed of one batch linear between and down to 0.
Where a larger instance was measured slower than a smaller one, the larger share is as fast as the smaller. A model that
lacked memory on a small instance runs on its share. MIG's smaller instances have less memory bandwidth too (1g an
eighth), which MPS would leave them; what neighbours take of it is interference.

**Interference.** MPS divides the GPU's processors, not its memory, caches and buses; MIG divides all of these. Mudi
(EuroSys '25, §2.2.1, Figures 3 and 4) measured latency beside other work over latency alone, on an A100 with MPS,
averaged over batches 16 to 256 and shares 10 to 90 %:

* ResNet-50 2.40 beside inference, 1.21 beside training; GPT-2 3.19 and 1.67.

We take ResNet-50's figures for image models and GPT-2's for text models. Two adaptations are ours: neighbours add up,
each while it is busy; and training is not slowed down, as nothing is printed of it. The figures may be too high:
they hold contention for the host's processors and PCIe too, which MIG does not take away either. STREAM on compute
instances that share a GPU instance's memory (gpuless-thesis) shows 1.7 to 1.8 for code bound by memory alone, and
nothing at the median for one slice beside two others. Hence ``strength``: 0 is no interference, 1 as printed, and
comparisons say at which strength a policy ties.

**Turns** are the way around it: a tenant with a share has the whole GPU for that part of the time, in slices much
shorter than a batch, and so disturbs no other. A batch then lasts 1 / share as long as on the whole GPU, and
:data:`TURN_COST` longer. Kind to it: contention for the host, which the figures above hold, is gone. Harsh: time that
one tenant leaves idle goes to no other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from types import MappingProxyType

import numpy as np

from executor.mig import GpuModel
from workloads.arrays import FloatArray
from workloads.profiles.knee import Knee, fitted_all
from workloads.profiles.latency import LatencyCurve
from workloads.profiles.operating_point import BATCHES_PER_SLO, Chosen
from workloads.profiles.table import ServiceProfiles, ServiceRow

TURN_COST = 0.05
"""By which part of itself work lasts longer in turns, for cold caches and a neighbour's kernels that drain.

An assumption: nobody has published it.
"""


TWENTIETHS = 20
"""Shares are whole twentieths."""


@dataclass(frozen=True, slots=True)
class SharePoint:
    """How processes with a share serve a model.

    Attributes:
        batch: Most requests in a batch.
        processes: Processes that divide the share, each with its own batches.
        rate_rps: Requests a second of all processes together within the SLO; 0 where no batch meets it.
        latency: Seconds by batch size of one process, its siblings running.
    """

    batch: int
    processes: int
    rate_rps: float
    latency: LatencyCurve


@dataclass(frozen=True, slots=True)
class _Curve:
    """What is known on some ``shares``, in order and from 0 on: linear in between, and beyond them as on the last."""

    shares: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, share: float) -> float:
        """What is known on a ``share`` > 0: that of ``np.interp`` to the bit, in a quarter of its 1.4 µs."""
        left = bisect_right(self.shares, share) - 1
        if left + 1 == len(self.shares):
            return self.values[left]
        slope = (self.values[left + 1] - self.values[left]) / (self.shares[left + 1] - self.shares[left])
        return slope * (share - self.shares[left]) + self.values[left]


@dataclass(frozen=True, slots=True)
class _Measured:
    """The same from a measured curve: ``n`` in the seconds that a batch takes on a share.

    Attributes:
        longer: What latencies are taken for, as a factor, where estimates misjudge them.
    """

    knee: Knee
    n: int
    longer: _Curve | None

    def at(self, share: float) -> float:
        """What is known on a ``share`` > 0."""
        seconds = self.knee.fastest(share)
        return self.n / seconds if self.longer is None else self.n / (seconds * self.longer.at(share))


@dataclass(frozen=True, eq=False)
class ShareProfile:
    """One model on any share of one GPU.

    Attributes:
        gpu: The GPU model.
        rows: What was measured of the model there, at least one row.
        slo_s: Seconds within which an answer counts.
        knees: Seconds of a batch of one process by share, by batch, where that was measured.
        longer: By MIG profile's name, what latencies are taken for where ``knees`` are, as a factor.
    """

    gpu: GpuModel
    rows: tuple[ServiceRow, ...]
    slo_s: float
    knees: Mapping[int, Knee] = field(default_factory=dict)
    longer: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        profiles: ServiceProfiles,
        gpu: GpuModel,
        model: str,
        slo_s: float,
        batch: Chosen = "auto",
        processes: Chosen = "auto",
        max_batch: int | None = None,
        knees: Mapping[int, Knee] = MappingProxyType({}),
    ) -> ShareProfile:
        """The profile with the chosen process count and batches up to the chosen one and to ``max_batch``.

        ``knees`` are what was measured on shares, if it was.

        Raises:
            ProfileTableError: Nothing was measured of the model on the GPU.
        """
        rows = profiles.of(gpu.name, model)
        limits = [limit for limit in (batch, max_batch) if isinstance(limit, int)]
        kept = (row for row in rows if processes in ("auto", row.processes))
        return cls(
            gpu,
            tuple(row for row in kept if all(row.batch <= limit for limit in limits)),
            slo_s,
            {size: curve for size, curve in knees.items() if all(size <= limit for limit in limits)},
        )

    def misjudged(self, factors: Mapping[str, float]) -> ShareProfile:
        """The profile if the latencies on each MIG profile were so many times as long, by name."""
        rows = tuple(row.stretched(factors[row.profile]) for row in self.rows)
        return replace(self, rows=rows, longer=factors if self.knees else {})

    @cached_property
    def _anchors(self) -> Mapping[tuple[int, int], tuple[_Curve | _Measured, _Curve | _Measured]]:
        """By (processes, batch): batches a second of one process, and requests a second, by share; from (0, 0) on."""
        if self.knees:
            longer = self._factors() if self.longer else None
            return {
                (1, batch): (_Measured(knee, 1, longer), _Measured(knee, batch, longer))
                for batch, knee in sorted(self.knees.items())
            }
        by_kind: dict[tuple[int, int], list[ServiceRow]] = {}
        for row in self.rows:
            by_kind.setdefault((row.processes, row.batch), []).append(row)
        return {kind: self._anchor(rows) for kind, rows in sorted(by_kind.items())}

    def _factors(self) -> _Curve:
        """What latencies are taken for by share: as on the MIG profiles, linear in between."""
        slices = {name: self.gpu.profile(name).compute_slices for name in self.longer}
        names = sorted(slices, key=slices.__getitem__)
        shares = tuple(slices[name] / self.gpu.compute_slices for name in names)
        return _Curve((0.0, *shares), (self.longer[names[0]], *(self.longer[name] for name in names)))

    def _anchor(self, rows: Sequence[ServiceRow]) -> tuple[_Curve, _Curve]:
        ordered = sorted(rows, key=lambda row: self.gpu.profile(row.profile).compute_slices)
        shares = (0.0, *(self.gpu.profile(row.profile).compute_slices / self.gpu.compute_slices for row in ordered))
        speed = accumulate((0.0, *(1 / row.latency_s for row in ordered)), max)
        rate = accumulate((0.0, *(row.throughput_rps for row in ordered)), max)
        return _Curve(shares, tuple(speed)), _Curve(shares, tuple(rate))

    @cached_property
    def batches(self) -> Mapping[tuple[int, int], FloatArray]:
        """By (processes, largest batch), batches a second of one process, by twentieths: ``(TWENTIETHS + 1,)`` each."""
        shares = [n / TWENTIETHS for n in range(1, TWENTIETHS + 1)]
        return {kind: np.array([0.0, *map(speed.at, shares)]) for kind, (speed, _) in self._anchors.items()}

    @cached_property
    def steepness(self) -> float:
        """Seconds that a batch takes less on a larger share, by share: the mean of both slopes and all batches.

        Slopes are those of curves with a knee, on nine shares where they were not measured.
        """
        tenths = [n / 10 for n in range(1, 10)]
        places = [TWENTIETHS * n // 10 for n in range(1, 10)]
        fewest = min(processes for processes, _ in self.batches)
        by_batch = np.array([1 / speed[places] for (n, _), speed in self.batches.items() if n == fewest])
        knees = self.knees.values() if self.knees else fitted_all(tenths, by_batch)
        return float(np.mean([(abs(knee.before) + abs(knee.after)) / 2 for knee in knees]))

    def point(self, share: float, slowdown: float = 1.0, most: tuple[int, int] | None = None) -> SharePoint:
        """The batch and process count of the highest rate within the SLO on ``share`` > 0 of the processors.

        All latencies are ``slowdown`` times as long. If nothing meets the SLO (2 × batch latency ≤ SLO), the fastest.
        With ``most`` there are so many processes, and so many requests in a batch at most.
        """
        latency_s, rate_rps = {}, {}
        for kind, (speed, rate) in self._anchors.items():
            if most is not None and (kind[0] != most[0] or kind[1] > most[1]):
                continue
            latency_s[kind] = slowdown / speed.at(share)
            rate_rps[kind] = rate.at(share) / slowdown
        meeting = [kind for kind, seconds in latency_s.items() if BATCHES_PER_SLO * seconds <= self.slo_s]
        best = max(meeting, key=lambda kind: (rate_rps[kind], -latency_s[kind], -kind[0]), default=None)
        processes, batch = best or min(latency_s, key=lambda kind: (latency_s[kind], kind))
        batches = [size for count, size in latency_s if count == processes and size <= batch]
        curve = LatencyCurve(tuple(batches), tuple(latency_s[processes, size] for size in batches))
        return SharePoint(batch, processes, rate_rps[processes, batch] if best else 0.0, curve)

    def floors(self, longer: float) -> Mapping[int, int]:
        """By batch of one process, the fewest twentieths on which it lasts at most ``longer`` times as on all."""
        found = {}
        for (processes, batch), (speed, _) in self._anchors.items():
            if processes == 1:
                enough = speed.at(1.0) / longer
                found[batch] = next(n for n in range(1, TWENTIETHS + 1) if speed.at(n / TWENTIETHS) >= enough)
        return found

    def point_in_turns(self, share: float, most: tuple[int, int] | None = None) -> SharePoint:
        """The same with the whole GPU for ``share`` > 0 of the time, in slices much shorter than a batch.

        Everything lasts :data:`TURN_COST` longer.
        """
        return self.point(1.0, (1.0 + TURN_COST) / share, most)


def training_rates(gpu: GpuModel, time_s: Mapping[str, float], shares: Sequence[float]) -> FloatArray:
    """Which part of a retraining is done in a second on each share, ``(n_shares,)``; 0 on share 0.

    ``time_s`` has the seconds of the whole retraining by MIG profile, at least one.
    """
    slices = {name: gpu.profile(name).compute_slices for name in time_s}
    names = sorted(time_s, key=slices.__getitem__)
    at = np.array([0.0, *(slices[name] / gpu.compute_slices for name in names)])
    rates: FloatArray = np.interp(shares, at, [0.0, *(1 / time_s[name] for name in names)])
    return rates


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Latency of a model's inference beside one neighbour that is always busy, over its latency alone, ≥ 1.

    Attributes:
        beside_inference: Beside the inference of another model.
        beside_retraining: Beside a retraining, whatever the model.
        by_trainer: Beside that of a model, by its name, where it was measured.
    """

    beside_inference: float
    beside_retraining: float
    by_trainer: Mapping[str, float] = field(default_factory=dict)

    def beside_trainings(self, n: float, trainers: Sequence[str] = ()) -> float:
        """What ``n`` retrainings add to latency over that alone; of which models they are counts where it is known."""
        if len(trainers) == n and all(trainer in self.by_trainer for trainer in trainers):
            return sum(self.by_trainer[trainer] - 1 for trainer in trainers)
        return (self.beside_retraining - 1) * n


IMAGE = Sensitivity(2.40, 1.21)
TEXT = Sensitivity(3.19, 1.67)


def sensitivity_of(model: str) -> Sensitivity:
    """That of text models for BERT, that of image models for all others."""
    return TEXT if model.startswith("bert") else IMAGE


def measured_for(model: str) -> str | None:
    """Of which model's the sensitivity is taken from, in words; ``None`` where it was measured of this one."""
    if model == "resnet50":
        return None
    return "Mudi's GPT-2, for a text model" if sensitivity_of(model) is TEXT else "Mudi's ResNet-50, for an image model"


def slowdown(
    own: Sensitivity,
    strength: float,
    busy_inference: Sequence[float],
    n_retraining: float,
    trainers: Sequence[str] = (),
) -> float:
    """What the model's latencies are multiplied by, ≥ 1.

    ``busy_inference`` has, for each other tenant's inference, the share of time in which it runs a batch;
    ``n_retraining`` is how many retrainings run, the tenant's own included, and ``trainers`` of which models, where
    that is known.
    """
    trainings = own.beside_trainings(n_retraining, trainers)
    beside = (own.beside_inference - 1) * sum(busy_inference) + trainings
    return 1.0 + strength * beside
