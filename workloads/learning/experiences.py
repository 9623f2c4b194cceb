"""A benchmark: a sequence of experiences, each with samples to train on and samples to be asked about.

Inputs are ``uint8`` (pixels, or the weights of words; a model divides them by 255) or ``uint16`` (numbers of words).
A request's payload is one input's bytes in C order, an answer is the label as two bytes, little-endian.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workloads.errors import LearningError

LABEL_BYTES = 2
"""Bytes of an answer."""

Asked = Literal["new", "seen"]
"""What requests replay: test samples of the current experience alone, or of all experiences up to it."""

Pool = tuple["Samples", "Samples"]
"""All samples of a data set: to train on, and to test with."""


@dataclass(frozen=True)
class Samples:
    """Labelled inputs. Shapes: ``inputs (n, *shape)`` of uint8 or uint16, ``labels (n,)`` of int64, both read-only.

    Raises:
        LearningError: Numbers differ, or the inputs are of another type.
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.inputs.dtype not in (np.uint8, np.uint16):
            raise LearningError(f"inputs are {self.inputs.dtype}; uint8 or uint16 is needed")
        if self.labels.ndim != 1 or len(self.inputs) != len(self.labels):
            raise LearningError(
                f"{len(self.inputs)} inputs have labels of shape {self.labels.shape}; one each is needed"
            )
        for name, dtype in (("inputs", self.inputs.dtype), ("labels", np.dtype(np.int64))):
            array = np.ascontiguousarray(getattr(self, name), dtype).view()
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.int64]) -> Samples:
        """The samples at these indices, in this order."""
        return Samples(self.inputs[indices], self.labels[indices])

    def of(self, classes: tuple[int, ...]) -> Samples:
        """Those of these classes, in the order that they have here."""
        return self.take(np.flatnonzero(np.isin(self.labels, classes)))

    def drawn(self, n: int, rng: np.random.Generator) -> Samples:
        """``n`` of them without repeats, classes as even as they allow; all of them, shuffled, where ``n`` is more."""
        order = rng.permutation(len(self))
        labels = self.labels[order]
        # The i-th sample of its class has rank i: taking low ranks first takes the same number of every class.
        rank = np.empty(len(self), np.int64)
        for label in np.unique(labels):
            at = np.flatnonzero(labels == label)
            rank[at] = np.arange(len(at))
        chosen = np.sort(np.argsort(rank, kind="stable")[:n])
        return self.take(order[chosen])


def joined(parts: list[Samples]) -> Samples:
    """All samples of one or more parts, in order."""
    return Samples(np.concatenate([part.inputs for part in parts]), np.concatenate([part.labels for part in parts]))


@dataclass(frozen=True)
class Experience:
    """What is new from one window on. ``classes`` are those of its own samples."""

    train: Samples
    test: Samples
    classes: tuple[int, ...]


@dataclass(frozen=True)
class Benchmark:
    """Experiences in their order; the last one holds for all later windows.

    Attributes:
        name: As in the catalogue of data sets.
        experiences: At least one.
        n_classes: Of all experiences together; labels are below it.
        asked: Whether requests are about the current experience alone.
    """

    name: str
    experiences: tuple[Experience, ...]
    n_classes: int
    asked: Asked = "new"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return self.experiences[0].test.inputs.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of an input's numbers: uint8 or uint16."""
        return self.experiences[0].test.inputs.dtype

    @property
    def model_options(self) -> dict[str, Any]:
        """What a model of the catalogue needs to answer this benchmark's requests."""
        return {"shape": list(self.shape), "n_classes": self.n_classes, "dtype": self.dtype.name}

    def number_in(self, window: int) -> int:
        """The number of the experience that is current in ``window`` ≥ 0."""
        return min(window, len(self.experiences) - 1)

    def current(self, number: int) -> Experience:
        """Experience ``number``.

        Raises:
            LearningError: There is no such experience.
        """
        if not 0 <= number < len(self.experiences):
            raise LearningError(f"{self.name}: experience {number}; 0 to {len(self.experiences) - 1} are there")
        return self.experiences[number]

    def seen(self, number: int) -> tuple[int, ...]:
        """The classes of all experiences up to ``number``, ascending."""
        self.current(number)
        return tuple(sorted({label for experience in self.experiences[: number + 1] for label in experience.classes}))

    def test(self, number: int) -> Samples:
        """What is asked while experience ``number`` is current: its own test set, or those of all up to it."""
        current = self.current(number)
        if self.asked == "new":
            return current.test
        return joined([experience.test for experience in self.experiences[: number + 1]])

    def train(self, number: int, n_samples: int | None, seed: int) -> Samples:
        """``n_samples`` of the experience's training set by seed, classes as even as they allow; ``None`` for all."""
        train = self.current(number).train
        return train.drawn(len(train) if n_samples is None else n_samples, np.random.default_rng((seed, number, 0)))

    def memory(self, number: int, n_samples: int, seed: int) -> Samples:
        """``n_samples`` of the training sets before ``number``, as even over these experiences as they allow."""
        earlier = [experience.train for experience in self.experiences[:number]]
        self.current(number)
        rng = np.random.default_rng((seed, number, 1))
        shares = np.diff(np.linspace(0, n_samples, number + 1).astype(int))
        parts = [samples.drawn(int(n), rng) for samples, n in zip(earlier, shares, strict=True)]
        return joined(parts) if parts else self.current(number).train.take(np.arange(0))


@dataclass(frozen=True)
class Question:
    """One test sample that is asked about, and what is true of it."""

    payload: bytes
    label: int

    def judge(self, answer: bytes) -> bool:
        """Whether the answer is right. Bytes that are no label are wrong."""
        return answer == encoded(self.label)


def encoded(label: int) -> bytes:
    """A label as an answer."""
    return label.to_bytes(LABEL_BYTES, "little")


@dataclass
class Replay:
    """The requests of one experience, by their index: test samples in an order by seed, shuffled anew each round.

    Any index may be asked for at any time, so a run that is taken up again meets the same requests.
    """

    benchmark: Benchmark
    number: int
    seed: int
    _round: int = field(default=-1, init=False)
    _order: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64), init=False)

    def __post_init__(self) -> None:
        self._samples = self.benchmark.test(self.number)

    def request(self, index: int) -> Question:
        """The request with this index, counted from 0."""
        turn, at = divmod(index, len(self._samples))
        if turn != self._round:
            rng = np.random.default_rng((self.seed, self.number, 2, turn))
            self._round, self._order = turn, rng.permutation(len(self._samples))
        sample = self._order[at]
        return Question(self._samples.inputs[sample].tobytes(), int(self._samples.labels[sample]))


def class_incremental(name: str, pool: Pool, groups: list[tuple[int, ...]], asked: Asked) -> Benchmark:
    """One experience for each group of classes.

    Raises:
        LearningError: A group lacks samples to train on or to test with.
    """
    train, test = pool
    experiences = tuple(Experience(train.of(group), test.of(group), group) for group in groups)
    for number, experience in enumerate(experiences):
        for what, samples in (("training", experience.train), ("test", experience.test)):
            lacking = sorted(set(experience.classes) - set(samples.labels.tolist()))
            if lacking:
                raise LearningError(f"{name}: experience {number} has no {what} samples of the classes {lacking}")
    return Benchmark(name, experiences, 1 + max(max(group) for group in groups), asked)


def even_groups(n_classes: int, n_groups: int, seed: int) -> list[tuple[int, ...]]:
    """All classes in an order by seed, cut into ``n_groups`` that differ by one class at most; ascending inside."""
    order = np.random.default_rng((seed, n_classes)).permutation(n_classes)
    return [tuple(sorted(int(label) for label in part)) for part in np.array_split(order, n_groups)]


def held_out(samples: Samples, share: float, rng: np.random.Generator) -> tuple[Samples, Samples]:
    """The samples in two parts, ``share`` of every class in the second, both shuffled."""
    order = rng.permutation(len(samples))
    labels = samples.labels[order]
    out = np.zeros(len(samples), bool)
    for label in np.unique(labels):
        at = np.flatnonzero(labels == label)
        out[at[: max(1, round(share * len(at)))]] = True
    return samples.take(order[~out]), samples.take(order[out])
