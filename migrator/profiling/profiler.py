"""The measurement itself: layouts are put up one after the other, filled with processes, measured, and taken away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from executor.errors import TargetNotReachedError
from executor.gpu import GpuInstance
from executor.mig import Layout
from executor.reconcile import Reconciler
from executor.zygote import Warm, Zygote
from migrator.execution.real import RealGpu
from migrator.profiling.crew import Crew, Slot, together
from migrator.profiling.record import StageLog, StageView, StartPhases, Stretch
from migrator.profiling.stages import TRAINING_BATCH, BusyLoad, Stage
from migrator.profiling.subjects import Subject


@dataclass(frozen=True)
class Profiler:
    """Measures stages on a GPU, which is ours to change.

    Attributes:
        real: The GPU, its journal, and how it is left.
        subjects: The models, by name, with that beside which they take turns.
        record: Where figures go.
        seconds: Of each stage.
        folder: For sockets and logs.
        view: Hears of it.
    """

    real: RealGpu
    subjects: Mapping[str, Subject]
    record: StageLog
    seconds: float
    folder: Path
    view: StageView

    def measure(self, stages: Sequence[Stage]) -> None:
        """Measure every stage that is not recorded yet, or of which something failed.

        At the end nothing of ours is left, whatever happened.

        Raises:
            TargetNotReachedError: A layout cannot be put up.
            GpuError: The driver does not answer.
            ZygoteError: Libraries cannot be imported.
        """
        left = [stage for stage in stages if not self.record.has(stage.key)]
        if not left:
            return
        self.view.warming()
        imports = dict.fromkeys(["workloads.live.worker", *(i for s in self.subjects.values() for i in s.imports)])
        if any(subject.lesson is not None for subject in self.subjects.values()):
            imports |= dict.fromkeys(["workloads.learning.retraining", "workloads.learning.warm"])
        try:
            with Zygote(imports) as zygote:
                while not any(isinstance(event, Warm) for event in zygote.events(1.0)):
                    pass  # what is asked for earlier would seem to start slowly
                for layout, here in groupby(left, lambda stage: stage.layout):
                    instances = self._standing(layout)
                    for model, own in groupby(here, lambda stage: stage.model):
                        self._measure(zygote, instances, self.subjects[model], list(own))
        finally:
            self.real.clear()

    def _standing(self, layout: Layout) -> list[GpuInstance]:
        self.real.journal.aim(layout)
        outcome = Reconciler(self.real.gpu, self.real.journal, self.real.clock(0.0)).apply(layout)
        if not outcome.is_complete:
            raise TargetNotReachedError("; ".join(map(str, (*outcome.undone, *outcome.blocked))))
        return [item for item in outcome.standing if item.placement in layout]

    def _measure(
        self, zygote: Zygote, instances: Sequence[GpuInstance], subject: Subject, stages: Sequence[Stage]
    ) -> None:
        """The stages of one model in one layout."""
        first = [Slot(item, 0) for item in instances]
        beside = next((self.subjects[stage.load.beside] for stage in stages if stage.load.beside is not None), None)
        with Crew(self.real.gpu, zygote, subject, self.folder, beside) as crew:
            alone = crew.start(first[:1], weighs=False)
            self._keep_starts(subject, alone)
            failed = {slot: why for slot, why in alone.items() if isinstance(why, str)}
            if len(first) > 1:
                crew.dismiss()
                at_once = crew.start(first, weighs=False)
                self._keep_starts(subject, at_once)
                failed = {slot: why for slot, why in at_once.items() if isinstance(why, str)}
            crew.dismiss()
            for stage in stages:
                self.view.measuring(stage)
                slots = [Slot(item, number) for item in instances for number in range(stage.processes)]
                others = {} if stage.load.beside is None else {slot: replace(slot, is_beside=True) for slot in slots}
                started = crew.start(slot for slot in (*slots, *others.values()) if slot not in failed)
                failed |= {slot: why for slot, why in started.items() if isinstance(why, str)}
                found: dict[Slot, tuple[Stretch, ...] | str] = {
                    slot: why for slot in slots if (why := failed.get(slot) or failed.get(others.get(slot, slot)))
                }
                found |= crew.measured([slot for slot in slots if slot not in found], stage.load, self.seconds)
                figures = dict(_by_profile(stage, instances, found))
                self.record.add_stage(stage.key, figures)
                self.view.measured(stage, figures)

    def _keep_starts(self, subject: Subject, found: Mapping[Slot, StartPhases | str]) -> None:
        starts = tuple(start for start in found.values() if isinstance(start, StartPhases))
        if len(starts) == len(found):
            self.record.add_starts(subject.model, starts)


@dataclass(frozen=True)
class ShareProfiler(Profiler):
    """Measures stages on a card that is cut in hundredths; ``subjects`` has those that train by ``BusyLoad.trainer``.

    Attributes:
        training: How a retraining goes through its samples.
    """

    training: str

    def _measure(
        self, zygote: Zygote, instances: Sequence[GpuInstance], subject: Subject, stages: Sequence[Stage]
    ) -> None:
        """The stages of one model on one share; a training goes on from its first stage to its last."""
        here, rest = (Slot(item, 0) for item in sorted(instances, key=lambda item: item.placement.start))
        for trainer, own in groupby(stages, lambda stage: stage.load.trainer):
            with Crew(self.real.gpu, zygote, subject, self.folder) as crew:
                started = crew.start([here])[here]
                training = None
                if trainer is not None:
                    training = (rest, BusyLoad(TRAINING_BATCH, self.training), self.subjects[trainer])
                for stage in own:
                    self.view.measuring(stage)
                    figures = {
                        stage.profiles[0]: started
                        if isinstance(started, str)
                        else crew.beside_training(here, stage.load.batch, self.seconds, training)
                    }
                    self.record.add_stage(stage.key, figures)
                    self.view.measured(stage, figures)


def _by_profile(
    stage: Stage, instances: Sequence[GpuInstance], found: Mapping[Slot, tuple[Stretch, ...] | str]
) -> Iterator[tuple[str, tuple[Stretch, ...] | str]]:
    """Of each profile that the stage is there for, the figures of its first instance, if all processes have one.

    Other instances that were not busy are named, too: beside them the figures are better than they should be.
    """
    for profile in stage.profiles:
        item = next(item for item in instances if item.placement.profile.name == profile)
        yield profile, together(found[Slot(item, number)] for number in range(stage.processes))
    for slot, one in found.items():
        placement = slot.instance.placement
        if isinstance(one, str) and placement.profile.name not in stage.profiles:
            yield str(placement), one
