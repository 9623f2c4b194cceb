"""What was measured so far: a file beside the table to be, a line a stage, from which the same command goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Self

from migrator.errors import MigratorError, OutputError
from migrator.profiling.crew import StartPhases
from workloads.measuring import Stretch

Figures = Mapping[str, tuple[Stretch, ...] | str]
"""Of one stage, by profile: a stretch of each process in one instance, or why there is none."""

SCHEMA = 1


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
        header = {"schema": SCHEMA, "settings": settings}
        lines, n_bytes = self._lines()
        if lines:
            self._check(lines[0], settings)
            for number, line in enumerate(lines[1:], start=2):
                self._take(number, line)
        try:
            if lines:
                os.truncate(path, n_bytes)  # a line that was cut short
            self._file: TextIOWrapper = path.open("a", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from None
        if not lines:
            self._write(header)

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
        told = {
            profile: found if isinstance(found, str) else [asdict(stretch) for stretch in found]
            for profile, found in figures.items()
        }
        self._write({"stage": key, "figures": told})

    def add_starts(self, model: str, starts: tuple[StartPhases, ...]) -> None:
        """So many workers of the model were started at the same time, or one alone."""
        self._add_starts(model, starts)
        self._write({"starts": model, "phases": [asdict(start) for start in starts]})

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
        old = begun.get("settings")
        if begun.get("schema") != SCHEMA or not isinstance(old, dict):
            raise self._foreign(1)
        key = next((key for key, value in settings.items() if old.get(key) != value), None)
        if key is None:
            return
        how = f"{key} was {old.get(key)}, and is {settings[key]}"
        raise MigratorError(
            f"{self.path}: an earlier measurement was cut off, and this one differs: {how}; "
            "give the same options to go on with it, or remove the file"
        )

    def _take(self, number: int, line: bytes) -> None:
        found = self._parsed(number, line)
        try:
            if "stage" in found:
                self.stages[found["stage"]] = {
                    profile: told if isinstance(told, str) else tuple(Stretch(**one) for one in told)
                    for profile, told in found["figures"].items()
                }
            else:
                self._add_starts(found["starts"], tuple(StartPhases(**one) for one in found["phases"]))
        except (KeyError, TypeError, AttributeError):
            raise self._foreign(number) from None

    def _parsed(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except ValueError:
            raise self._foreign(number) from None
        if not isinstance(found, dict):
            raise self._foreign(number)
        return found

    def _foreign(self, number: int) -> MigratorError:
        return MigratorError(f"{self.path} line {number}: not a record of a measurement; remove the file to begin anew")

    def _write(self, record: Mapping[str, object]) -> None:
        try:
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written: {error.strerror or error}") from None
