"""What is measured, stage by stage: which layout is up, which model keeps all of it busy, and how."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from executor.mig import GpuModel, Layout, Placement
from migrator.errors import MigratorError
from migrator.profiling.subjects import Named

TRAINING_BATCH = 32
"""New samples in a step of a retraining, as :class:`workloads.learning.course.Option` has it."""


@dataclass(frozen=True, slots=True)
class BusyLoad:
    """What keeps a process busy.

    Attributes:
        batch: Requests in a batch; new samples in a step.
        strategy: Of a retraining; ``None``: batches are answered.
        learning_rate: Of a retraining.
        beside: With which model turns are taken, each after a batch of its own of the same size; ``None``: none.
        trainer: Which model trains on the rest of the card meanwhile; ``None``: none.
    """

    batch: int
    strategy: str | None = None
    learning_rate: float = 0.02
    beside: str | None = None
    trainer: str | None = None


@dataclass(frozen=True)
class MeasuringPlan:
    """What is to be measured of each model.

    Attributes:
        profiles: Names, in the GPU's order.
        batches: Batch sizes, ascending.
        processes: Process counts, ascending.
        seconds: How long each stage is measured.
        training: How a retraining goes through its samples: ``naive`` or ``replay``.
        is_coarse: What lies between measured profiles is not measured, and more than one process on the largest alone.
        beside: With which model each takes turns, too; ``None``: none.
    """

    profiles: tuple[str, ...]
    batches: tuple[int, ...]
    processes: tuple[int, ...]
    seconds: float
    training: str = "replay"
    is_coarse: bool = False
    beside: str | None = None


@dataclass(frozen=True)
class Stage:
    """One stretch of time in which all instances of a layout are equally busy.

    Attributes:
        layout: Our instances.
        model: Whose load it is.
        load: Batches, or steps of a retraining.
        processes: In each instance.
        profiles: Of which the figures are kept; other instances are there to be busy.
    """

    layout: Layout
    model: str
    load: BusyLoad
    processes: int
    profiles: tuple[str, ...]

    @property
    def key(self) -> str:
        """What tells it apart from the other stages, for people, too."""
        what = f"batch {self.load.batch}" if self.load.strategy is None else f"retraining ({self.load.strategy})"
        if self.load.beside is not None:
            what += f", in turns with {self.load.beside}"
        if self.load.trainer is not None:
            what += f", beside a training of {self.load.trainer}"
        processes = "1 process" if self.processes == 1 else f"{self.processes} processes"
        return f"{self.model}: {what}, {processes}, on {' '.join(map(str, self.layout))}"


@dataclass(frozen=True)
class SharePlan:
    """What is to be measured on shares.

    Attributes:
        models: Those that serve.
        trainers: Those that train on the rest, one after the other; without any, nothing is beside.
        guessed: Those that are not run, and whose cost is guessed by their modules.
        percents: Hundredths of the card, ascending.
        batches: Batch sizes, ascending.
        seconds: How long each stage is measured.
        training: How a retraining goes through its samples: ``naive`` or ``replay``.
    """

    models: tuple[Named, ...]
    trainers: tuple[Named, ...]
    percents: tuple[int, ...]
    batches: tuple[int, ...]
    seconds: float
    training: str = "replay"
    guessed: tuple[Named, ...] = ()

    def stages(self, gpu: GpuModel) -> tuple[Stage, ...]:
        """All stages in their order, by share, model, training and batch, on a card that is cut in hundredths.

        Raises:
            MigratorError: It has no such share.
        """
        least, most = gpu.profiles[0].compute_slices, gpu.profiles[-1].compute_slices
        if wrong := [percent for percent in self.percents if not least <= percent <= most]:
            raise MigratorError(f"--shares: {wrong[0]} %: {gpu.title} has shares of {least} to {most} %")
        beside = (None, *(one.text for one in self.trainers))
        return tuple(
            Stage(_parted(gpu, percent), one.model, BusyLoad(batch, trainer=trainer), 1, (f"{percent}pc",))
            for percent in self.percents
            for one in self.models
            for trainer in beside
            for batch in self.batches
        )


def _parted(gpu: GpuModel, percent: int) -> Layout:
    """The share, and all the rest beside it."""
    return Layout((gpu.placement(f"{percent}pc@0"), gpu.placement(f"{100 - percent}pc@1")))


def stages(
    gpu: GpuModel, asked: MeasuringPlan, models: Iterable[tuple[str, bool]], others: Sequence[Placement] = ()
) -> tuple[Stage, ...]:
    """All stages in their order: by layout, then model; ``models`` with whether each can be retrained.

    Raises:
        MigratorError: An asked profile has no place beside ``others``.
    """
    pairs = tuple(models)
    covering = tuple(_covering(gpu, asked.profiles, others))
    if asked.is_coarse:
        covering = tuple(_without_what_lies_between(gpu, covering))
    found = []
    for layout, profiles in covering:
        is_last = not asked.is_coarse or profiles == (_by_size(gpu, asked.profiles)[-1],)
        counts = asked.processes if is_last else asked.processes[:1]
        for model, learns in pairs:
            loads = [(BusyLoad(batch), count) for count in counts for batch in asked.batches]
            if asked.beside is not None:
                loads += [(BusyLoad(batch, beside=asked.beside), 1) for batch in asked.batches]
            loads += [(BusyLoad(TRAINING_BATCH, asked.training), 1)] * learns
            found += [Stage(layout, model, load, count, profiles) for load, count in loads]
    return tuple(found)


def _covering(
    gpu: GpuModel, profiles: Collection[str], others: Sequence[Placement]
) -> Iterator[tuple[Layout, tuple[str, ...]]]:
    """Few layouts that are as full as can be and have all profiles together, each with those that it brings."""
    usable = _full_layouts(gpu, profiles, others)
    missing = set(profiles)
    while missing:
        brings = {layout: missing & {item.profile.name for item in layout} for layout in usable}
        best = max(usable, key=lambda layout: (len(brings[layout]), _size(layout), -len(layout)), default=Layout())
        if not brings.get(best):
            held = " ".join(map(str, others)) or "nothing"
            raise MigratorError(
                f"{', '.join(sorted(missing))} cannot be measured: there is no room beside {held}; "
                "name others with --profiles"
            )
        yield best, tuple(name for name in gpu.profile_names if name in brings[best])
        missing -= brings[best]


def _full_layouts(gpu: GpuModel, profiles: Collection[str], others: Sequence[Placement]) -> tuple[Layout, ...]:
    """The layouts beside ``others`` to which nothing can be added."""
    names = [name for name in gpu.profile_names if name in gpu.standard_profile_names or name in profiles]
    free = [item for item in gpu.placements(names) if not any(item.overlaps(other) for other in others)]
    fitting = [
        layout for layout in gpu.layouts(names) if all(item in free for item in layout) and gpu.fits((*layout, *others))
    ]
    return tuple(
        layout
        for layout in fitting
        if len(layout) > 0 and not any(item not in layout and gpu.fits((*layout, *others, item)) for item in free)
    )


def _without_what_lies_between(
    gpu: GpuModel, covering: Sequence[tuple[Layout, tuple[str, ...]]]
) -> Iterator[tuple[Layout, tuple[str, ...]]]:
    """The layouts but for those whose own profiles all lie between others', which are then computed from them."""
    kept = list(covering)
    for entry in covering:
        rest = [name for other in kept if other is not entry for name in other[1]]
        sizes = [gpu.profile(name).compute_slices for name in rest]
        if sizes and all(min(sizes) < gpu.profile(name).compute_slices < max(sizes) for name in entry[1]):
            kept.remove(entry)
    yield from kept


def _by_size(gpu: GpuModel, profiles: Iterable[str]) -> list[str]:
    return sorted(profiles, key=lambda name: gpu.profile(name).compute_slices)


def _size(layout: Layout) -> int:
    return sum(item.profile.compute_slices for item in layout)
