"""What was measured so far: a file beside the table to be, a line a stage, from which the same command goes on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import BufferedWriter
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from msgspec import Meta, MsgspecError, Struct, json

from executor.messages import Seconds
from migrator.errors import MigratorError, OutputError
from migrator.profiling.stages import Stage


class Stretch(Struct, frozen=True, forbid_unknown_fields=True):
    """What one process did from one batch's begin to a later one's end, without a pause.

    Attributes:
        n_passes: Batches answered, or steps made.
        n_samples: Requests in them, or new samples.
        span_s: Seconds that they took together.
        median_s: Of one.
        p95_s: Of 95 in 100, no longer than this.
        cpu_s: CPU time of the process meanwhile.
    """

    n_passes: Annotated[int, Meta(ge=1)]
    n_samples: Annotated[float, Meta(gt=0)]
    span_s: Annotated[float, Meta(gt=0)]
    median_s: Seconds
    p95_s: Seconds
    cpu_s: Seconds


class StartPhases(Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds of one start, from being asked for until it could serve in its instance.

    Attributes:
        fork_s: Until the process ran.
        library_s: Until its libraries were loaded.
        model_s: Until the model was made.
        warm_up_s: Until it had answered a first batch.
        enter_s: Until it was in its instance, where its environment does not say that from the beginning.
    """

    fork_s: Seconds
    library_s: Seconds
    model_s: Seconds
    warm_up_s: Seconds
    enter_s: Seconds

    @property
    def total_s(self) -> float:
        """All of them."""
        return self.fork_s + self.library_s + self.model_s + self.warm_up_s + self.enter_s


Figures = Mapping[str, tuple[Stretch, ...] | str]
"""Of one stage, by profile: a stretch of each process in one instance, or why there is none."""


class _Line(Struct, frozen=True, tag_field="record", tag=str.lower, forbid_unknown_fields=True):
    """A line of the file."""


class Begun(_Line, frozen=True):
    """The first line: by what the measurement was begun, as JSON has it."""

    settings: dict[str, Any]
    schema: Literal[2] = 2


class Measured(_Line, frozen=True):
    """A stage is done."""

    stage: str
    figures: dict[str, tuple[Stretch, ...] | str]


class Started(_Line, frozen=True):
    """So many workers of the model were started at the same time, or one alone."""

    model: str
    phases: tuple[StartPhases, ...]


_LINE: json.Decoder[Begun | Measured | Started] = json.Decoder(Begun | Measured | Started)


class Record:
    """The stages that are done and the starts that were seen. A context that closes the file.

    Attributes:
        path: The file.
        stages: The figures of each stage that is done, by its key.
        alone: Starts of one worker, by model.
        at_once: Starts of several workers at the same time, by model: how many, and each one's.
    """

    def __init__(self, path: Path, settings: Mapping[str, object]) -> None:
        """Begin the file, or take up what is in it; ``settings`` as JSON has them.

        Raises:
            MigratorError: It is of other settings, or none of ours.
            OutputError: It cannot be written.
        """
        self.path = path
        self.stages: dict[str, Figures] = {}
        self.alone: dict[str, list[StartPhases]] = {}
        self.at_once: dict[str, list[tuple[StartPhases, ...]]] = {}
        lines, n_bytes = self._lines()
        if lines:
            self._check(lines[0], settings)
            for number, line in enumerate(lines[1:], start=2):
                self._take(number, line)
        try:
            if lines:
                os.truncate(path, n_bytes)  # a line that was cut short
            self._file: BufferedWriter = path.open("ab")
        except OSError as error:
            raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from None
        if not lines:
            self._write(Begun(dict(settings)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def finish(self) -> None:
        """The file is gone: the table stands."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def has(self, key: str) -> bool:
        """Whether the stage is done; one of which something failed is to be tried again."""
        return key in self.stages and not any(isinstance(found, str) for found in self.stages[key].values())

    def add_stage(self, key: str, figures: Figures) -> None:
        """A stage is done."""
        self.stages[key] = figures
        self._write(Measured(key, dict(figures)))

    def add_starts(self, model: str, starts: tuple[StartPhases, ...]) -> None:
        """So many workers of the model were started at the same time, or one alone."""
        self._add_starts(model, starts)
        self._write(Started(model, starts))

    def _add_starts(self, model: str, starts: tuple[StartPhases, ...]) -> None:
        if len(starts) == 1:
            self.alone.setdefault(model, []).append(starts[0])
        else:
            self.at_once.setdefault(model, []).append(starts)

    def _lines(self) -> tuple[list[bytes], int]:
        """The whole lines, and their bytes."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return [], 0
        except OSError as error:
            raise MigratorError(f"{self.path}: cannot be read: {error.strerror or error}") from None
        whole = raw[: raw.rfind(b"\n") + 1]
        return whole.splitlines(), len(whole)

    def _check(self, line: bytes, settings: Mapping[str, object]) -> None:
        """That the file was begun by the same command.

        Raises:
            MigratorError: It was not; names the first setting that differs.
        """
        begun = self._parsed(1, line)
        if not isinstance(begun, Begun):
            raise self._foreign(1)
        old = begun.settings
        key = next((key for key, value in settings.items() if old.get(key) != value), None)
        if key is None:
            return
        how = f"{key} was {old.get(key)}, and is {settings[key]}"
        raise MigratorError(
            f"{self.path}: an earlier measurement was cut off, and this one differs: {how}; "
            "give the same options to go on with it, or remove the file"
        )

    def _take(self, number: int, line: bytes) -> None:
        match self._parsed(number, line):
            case Measured(stage=stage, figures=figures):
                self.stages[stage] = figures
            case Started(model=model, phases=phases):
                self._add_starts(model, phases)
            case Begun():
                raise self._foreign(number)

    def _parsed(self, number: int, line: bytes) -> Begun | Measured | Started:
        try:
            return _LINE.decode(line)
        except (MsgspecError, ValueError):
            raise self._foreign(number) from None

    def _foreign(self, number: int) -> MigratorError:
        return MigratorError(f"{self.path} line {number}: not a record of a measurement; remove the file to begin anew")

    def _write(self, line: Begun | Measured | Started) -> None:
        try:
            self._file.write(json.encode(line) + b"\n")
            self._file.flush()
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written: {error.strerror or error}") from None


class View:
    """Is told how far the measurement is; these methods do nothing."""

    def warming(self) -> None:
        """Libraries are being loaded."""

    def measuring(self, stage: Stage) -> None:
        """A stage begins."""

    def measured(self, stage: Stage, figures: Figures) -> None:
        """A stage is done."""
