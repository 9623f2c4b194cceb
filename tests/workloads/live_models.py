"""Models without torch, for the tests: on the path of the processes that they start."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from workloads.live.model import WeightsError


class Echo:
    """Answers with the input behind its weights' text."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix.encode()

    def answer(self, inputs: Sequence[bytes]) -> Sequence[bytes]:
        return [self._prefix + one for one in inputs]

    def load(self, weights: Path) -> None:
        text = weights.read_bytes()
        if text.startswith(b"corrupt"):
            raise WeightsError(f"{weights}: no weights")
        self._prefix = text


class Label(Echo):
    """Answers each input with the label 7."""

    def answer(self, inputs: Sequence[bytes]) -> Sequence[bytes]:
        return [b"\x07\x00" for _ in inputs]


class Busy(Echo):
    """Answers after a set time of computing."""

    def __init__(self, batch_s: float) -> None:
        super().__init__()
        self._batch_s = batch_s

    def answer(self, inputs: Sequence[bytes]) -> Sequence[bytes]:
        until_s = time.perf_counter() + self._batch_s
        while time.perf_counter() < until_s:
            pass
        return super().answer(inputs)


class Turns(Busy):
    """Answers with "clash" while another tenant's model computes in the same folder."""

    def __init__(self, folder: str, tenant: str, batch_s: float) -> None:
        super().__init__(batch_s)
        self._folder, self._tenant = Path(folder), tenant

    def answer(self, inputs: Sequence[bytes]) -> Sequence[bytes]:
        own = self._folder / f"{self._tenant}-{os.getpid()}"
        own.touch()
        clashes = [other for other in self._folder.iterdir() if not other.name.startswith(f"{self._tenant}-")]
        answers = super().answer(inputs)
        own.unlink()
        return [b"clash"] * len(inputs) if clashes else answers

    def load(self, weights: Path) -> None:
        if any(self._folder.iterdir()):
            raise WeightsError("somebody computes")
        super().load(weights)


class Noted(Busy):
    """Notes the begin of each batch as a capital in the file that ``NOTES`` names, and its end as a small letter."""

    letter = "a"

    def __init__(self) -> None:
        super().__init__(0.001)

    def answer(self, inputs: Sequence[bytes]) -> Sequence[bytes]:
        with open(os.environ["NOTES"], "a", buffering=1) as notes:  # noqa: PTH123 - faster
            notes.write(self.letter.upper())
            answers = super().answer(inputs)
            notes.write(self.letter)
        return answers


class AlsoNoted(Noted):
    """Another one."""

    letter = "b"


class Heavy(Echo):
    """Has weights of 32 MiB, and takes 4 MiB more for each input while it answers."""

    def __init__(self) -> None:
        super().__init__()
        self._weights = b"w" * 2**25

    def answer(self, inputs: Sequence[bytes]) -> Sequence[bytes]:
        taken = [b"i" * 2**22 for _ in inputs]
        return super().answer(inputs)[: len(taken)]


class InMig(Echo):
    """Can be made only where the process was given a MIG device."""

    def __init__(self) -> None:
        if not os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith("MIG-"):
            raise RuntimeError("no MIG device")
        super().__init__()


class Raises(Echo):
    """Raises if an input asks for it; gives one answer too few, no bytes, or dies where asked."""

    def answer(self, inputs: Sequence[bytes]) -> Sequence[bytes]:
        for one in inputs:
            match one:
                case b"raise":
                    raise RuntimeError("asked to")
                case b"short":
                    return []
                case b"text":
                    return ["text"]  # type: ignore[list-item]
                case b"die":
                    os._exit(9)
        return super().answer(inputs)


class Small(Echo):
    """Has room for one input at a time."""

    def answer(self, inputs: Sequence[bytes]) -> Sequence[bytes]:
        if len(inputs) > 1:
            raise RuntimeError("out of memory")
        return super().answer(inputs)


class Hangs(Echo):
    """Never answers an input that asks for it; never takes weights."""

    def answer(self, inputs: Sequence[bytes]) -> Sequence[bytes]:
        if b"hang" in inputs:
            stuck()
        return super().answer(inputs)

    def load(self, weights: Path) -> None:
        if weights.name == "hang":
            stuck()
        super().load(weights)


def stuck() -> None:
    """Wait for ever."""
    reader, _ = os.pipe()
    os.read(reader, 1)


def never_made() -> Echo:
    """A model that is never loaded."""
    stuck()
    return Echo()


def none() -> None:
    """No model at all."""


NOT_CALLABLE = 3
