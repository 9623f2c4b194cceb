"""The models that are measured, each with an input to answer and samples to learn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from executor.files import read_input, write_whole
from executor.names import spelled_as
from migrator.errors import MigratorError
from migrator.extras import lacking
from workloads.live.model import CATALOGUE

DEFAULT_BENCHMARK = "digits"
"""What models of the catalogue are measured with, if nothing else is said."""


@dataclass(frozen=True)
class Named:
    """A model as it is asked for: ``MODEL[:BENCHMARK]``.

    Attributes:
        model: A name of the catalogue, with hyphens where it was asked for so, as shipped tables have it; or
            ``module:callable``.
        benchmark: Whose samples it takes; ``None``: inputs of its own, from a file.
    """

    model: str
    benchmark: str | None

    @property
    def text(self) -> str:
        """As it is asked for."""
        return self.model if self.benchmark is None else f"{self.model}:{self.benchmark}"


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a model learns from while it is measured.

    Attributes:
        benchmark: By name.
        experience: Its number.
        folder: Where the data set lies; ``None``: the usual place.
        n_samples: New samples in it.
    """

    benchmark: str
    experience: int
    folder: Path | None
    n_samples: int

    def samples_per_step(self, batch: int) -> float:
        """New samples in a step of up to ``batch``, on average: trainers make steps of even size."""
        return self.n_samples / -(-self.n_samples // batch)


@dataclass(frozen=True)
class Subject:
    """A model that can be measured.

    Attributes:
        model: As in :class:`Named`, and in the table.
        options: What it is made with.
        imports: Its libraries.
        sample: The file of one input.
        lesson: What it learns from; ``None``: it is not retrained.
    """

    model: str
    options: Mapping[str, Any]
    imports: tuple[str, ...]
    sample: Path
    lesson: Lesson | None = None


def named(text: str) -> Named:
    """The model, and the benchmark of whose samples it is measured.

    Raises:
        MigratorError: It is neither a name of the catalogue nor ``module:callable``.
    """
    first, *rest = text.split(":")
    known = spelled_as(first.replace("-", "_"), CATALOGUE)
    if known in CATALOGUE and len(rest) <= 1:
        model = known.replace("_", "-") if "-" in first else known
        return Named(model, rest[0] if rest else DEFAULT_BENCHMARK)
    if known not in CATALOGUE and 1 <= len(rest) <= 2 and all((first, *rest)):
        return Named(f"{first}:{rest[0]}", rest[1] if len(rest) == 2 else None)
    raise MigratorError(
        f"model {text!r}: unknown; {', '.join(CATALOGUE)}, or module:callable, are allowed, "
        "each with :BENCHMARK behind it"
    )


def require_live(asked: Sequence[Named]) -> None:
    """Refuse what needs libraries that are absent.

    Raises:
        MigratorError: Says what to install.
    """
    needed = {"zmq"}
    if any(item.benchmark is not None for item in asked):
        from workloads.learning.models import libraries  # noqa: PLC0415 - of models that learn

        needed |= {"torch", "sklearn"}
        needed |= {name.partition(".")[0] for item in asked for name in libraries(item.model)}
    if lacks := lacking("live", needed):
        raise MigratorError(f"profile {lacks}")


def subject(asked: Named, sample: Path | None, data: Path | None, folder: Path) -> Subject:
    """The model with its files in ``folder``; ``data`` is where benchmarks lie.

    Raises:
        WorkloadError: There is no such benchmark, or its data is absent.
        MigratorError: A model of one's own without a benchmark has no ``sample``, or it cannot be read.
    """
    if asked.benchmark is None:
        if sample is None:
            raise MigratorError(f"model {asked.model}: no input; give --sample FILE, or {asked.model}:BENCHMARK")
        try:
            read_input(sample)
        except OSError as error:
            raise MigratorError(f"--sample {sample}: cannot be read: {error.strerror}") from None
        return Subject(asked.model, {}, (), sample.absolute())
    from workloads.learning.datasets import benchmark  # noqa: PLC0415 - of models that learn
    from workloads.learning.models import libraries  # noqa: PLC0415

    found = benchmark(asked.benchmark, folder=data)
    number = min(1, len(found.experiences) - 1)
    stem = asked.text.replace("/", "_")
    payload = folder / f"{stem}.input"
    write_whole(payload, found.test(0).inputs[0].tobytes())
    lesson = Lesson(asked.benchmark, number, data, len(found.train(number, None, 0)))
    return Subject(asked.model, found.model_options, libraries(asked.model), payload, lesson)
