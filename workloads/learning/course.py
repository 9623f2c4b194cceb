"""What a retraining is asked (:class:`Option`), and what it tells on its way, line by line.

Free of torch: the controller reads these lines and never loads what writes them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import MsgspecError, Struct, json

from executor.files import open_input
from workloads.errors import LearningError

STRATEGIES = {"plain": ("naive", "replay"), "avalanche": ("naive", "replay", "ewc", "lwf")}
"""The strategies that each trainer knows, by name."""


class Option(Struct, frozen=True, forbid_unknown_fields=True):
    """One way to retrain.

    Attributes:
        name: What the planner calls it.
        strategy: One of :data:`STRATEGIES` of the trainer.
        trainer: ``plain`` (torch alone) or ``avalanche``.
        n_samples: Samples of the experience's training set, drawn by seed; ``None`` for all.
        n_epochs: Passes over them, ≥ 1.
        batch: New samples in a step, ≥ 1; a replaying step has as many of the memory beside them.
        learning_rate: Of stochastic gradient descent with momentum 0.9, > 0.
        memory: Samples of earlier experiences that the strategies beside ``naive`` may look at, ≥ 0.
        checkpoints: Shares of the steps, rising, inside (0, 1), after which the weights are kept and measured.

    Raises:
        LearningError: Naming the option, the key, the value and what is allowed.
    """

    name: str
    strategy: str = "naive"
    trainer: str = "plain"
    n_samples: int | None = None
    n_epochs: int = 4
    batch: int = 32
    learning_rate: float = 0.02
    memory: int = 200
    checkpoints: tuple[float, ...] = (0.25, 0.5, 0.75)

    def __post_init__(self) -> None:
        where = f"retraining option {self.name!r}"
        if self.trainer not in STRATEGIES:
            raise LearningError(f"{where}: trainer is {self.trainer!r}; one of {', '.join(STRATEGIES)} is allowed")
        if self.strategy not in STRATEGIES[self.trainer]:
            known = ", ".join(STRATEGIES[self.trainer])
            raise LearningError(f"{where}: strategy is {self.strategy!r}; trainer {self.trainer} knows {known}")
        least = {"n_samples": 1, "n_epochs": 1, "batch": 1, "memory": 0}
        for key, allowed in least.items():
            value = getattr(self, key)
            if value is not None and (not isinstance(value, int) or value < allowed):
                raise LearningError(f"{where}: {key} is {value}; a whole number ≥ {allowed} is needed")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise LearningError(f"{where}: learning_rate is {self.learning_rate}; a finite number > 0 is needed")
        edges = (0.0, *self.checkpoints, 1.0)
        if any(not low < high for low, high in itertools.pairwise(edges)):
            raise LearningError(
                f"{where}: checkpoints are {list(self.checkpoints)}; rising shares inside 0 to 1 are needed"
            )


class _Line(Struct, frozen=True, tag_field="kind", tag=str.lower, forbid_unknown_fields=True):
    @property
    def kind(self) -> str:
        """What the line begins with."""
        return type(self).__name__.lower()


class Started(_Line, frozen=True):
    """Training begins. ``accuracy`` is the old model's on what is asked now; ``weights`` says what they were."""

    accuracy: float
    weights: str
    done_s: float


class Progress(_Line, frozen=True):
    """About every second: the share of the steps that are done, and when the rest will be at this pace.

    ``loss`` is ``None`` where it is no number, and so is ``left_s`` after the first step, whose pace says nothing yet.
    """

    done_s: float
    share: float
    loss: float | None
    steps_per_s: float
    left_s: float | None


class Stepped(_Line, frozen=True):
    """What each step took since the last such line, where the job asks for it."""

    took_s: tuple[float, ...]
    done_s: float


class Checkpoint(_Line, frozen=True):
    """Weights after ``share`` of the steps lie in ``file``, whole, and answer ``accuracy`` of the test set right."""

    share: float
    accuracy: float
    file: str
    done_s: float


class Finished(_Line, frozen=True):
    """All steps are done; the last weights lie in ``file``."""

    accuracy: float
    file: str
    done_s: float


class Failed(_Line, frozen=True):
    """It ended before all its steps were done. Earlier checkpoints stay as they are.

    ``cause``: ``deadline`` (its time was up), ``stopped`` (it was asked to leave), ``parent`` (the process that
    started it is gone), ``input`` (what was asked cannot be done), ``error``.
    """

    cause: str
    reason: str
    done_s: float


Told = Started | Progress | Stepped | Checkpoint | Finished | Failed

_DECODER: json.Decoder[Told] = json.Decoder(Told)


def line_of(told: Told) -> bytes:
    """One line of JSON. Numbers that are none are ``null``."""
    return json.encode(told) + b"\n"


def message_in(line: bytes) -> Told:
    """What :func:`line_of` wrote.

    Raises:
        LearningError: It is no such line.
    """
    try:
        return _DECODER.decode(line)
    except (MsgspecError, ValueError) as error:
        raise LearningError(f"a retraining said {line[:80]!r}; a line of JSON of a known kind is needed") from error


class CourseFile:
    """The file to which a retraining appends its lines, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._n_read = 0

    def news(self) -> Iterator[Told]:
        """What the whole lines say that were appended since; others than ours are passed over."""
        with suppress(FileNotFoundError), open_input(self.path) as file:
            file.seek(self._n_read)
            for line in file.read().splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    return
                self._n_read += len(line)
                with suppress(LearningError):
                    yield message_in(line)
