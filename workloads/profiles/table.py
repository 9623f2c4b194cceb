"""Service profiles: what was measured of each model on each MIG profile, by batch size and process count.

A table is a CSV file with the columns of ``COLUMNS``:

* ``source``: who measured it; ``gpu``: a GPU model of the catalogue; ``model``; ``profile``: a MIG
  profile of that GPU; ``batch``: requests in a batch; ``processes``: equal processes that share the
  instance.
* ``latency_ms``: one batch on one process while its sibling processes run.
* ``throughput_rps``: requests a second of the whole instance, all its processes together.
* ``derived``, which may be left out: from what the row was computed; empty where it was measured.

A combination without a row was not measured, or did not run: nothing is placed there.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from executor.catalogue import gpu_model
from executor.errors import ExecutorError
from workloads.errors import ProfileTableError

COLUMNS = ("source", "gpu", "model", "profile", "batch", "processes", "latency_ms", "throughput_rps")
_OPTIONAL = "derived"


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """One measured combination.

    Attributes:
        source: Who measured it.
        gpu: The GPU model's name in the catalogue.
        model: The served model.
        profile: The MIG profile.
        batch: Requests in a batch, ≥ 1.
        processes: Processes in the instance, ≥ 1.
        latency_s: Seconds for one batch on one process, its siblings running, > 0.
        throughput_rps: Requests a second of the whole instance, > 0.
        derived: From what it was computed; empty where it was measured.
    """

    source: str
    gpu: str
    model: str
    profile: str
    batch: int
    processes: int
    latency_s: float
    throughput_rps: float
    derived: str = ""

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        """What a table holds at most one row of."""
        return (self.gpu, self.model, self.profile, self.batch, self.processes)


@dataclass(frozen=True)
class ServiceProfiles:
    """The rows of one table.

    Attributes:
        name: Where the table comes from, as messages name it.
        rows: In the order of the file, at least one, no key twice.
    """

    name: str
    rows: tuple[ServiceRow, ...]

    def __post_init__(self) -> None:
        if not self.rows:
            raise ProfileTableError(f"{self.name}: no rows; a table needs at least one")
        key, times = Counter(row.key for row in self.rows).most_common(1)[0]
        if times > 1:
            raise ProfileTableError(f"{self.name}: {_shown(key)} stands there {times} times; once is allowed")

    @cached_property
    def _by_gpu(self) -> dict[str, dict[str, tuple[ServiceRow, ...]]]:
        table: dict[str, dict[str, list[ServiceRow]]] = {}
        for row in self.rows:
            table.setdefault(row.gpu, {}).setdefault(row.model, []).append(row)
        return {gpu: {model: tuple(rows) for model, rows in models.items()} for gpu, models in table.items()}

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPU models measured."""
        return tuple(self._by_gpu)

    def models(self, gpu: str) -> tuple[str, ...]:
        """The models measured on ``gpu``.

        Raises:
            ProfileTableError: Nothing was measured on it; names the GPU models that were.
        """
        if gpu not in self._by_gpu:
            raise ProfileTableError(
                f"{self.name} has no service profiles for the GPU model {gpu!r}; it has {', '.join(self.gpus)}"
            )
        return tuple(self._by_gpu[gpu])

    def of(self, gpu: str, model: str) -> tuple[ServiceRow, ...]:
        """What was measured of ``model`` on ``gpu``, at least one row.

        Raises:
            ProfileTableError: Nothing was; names what is known.
        """
        known = self.models(gpu)
        if model not in known:
            nearest = get_close_matches(model, known, n=1)
            hint = f" (did you mean {nearest[0]}?)" if nearest else ""
            raise ProfileTableError(
                f"{self.name} has no service profiles for the model {model!r} on {gpu}{hint}; it has {', '.join(known)}"
            )
        return self._by_gpu[gpu][model]


def read_profiles(path: Path) -> ServiceProfiles:
    """The table in the user's own file.

    Raises:
        ProfileTableError: No such file, or a malformed row; names file, line, column, value and what is allowed.
    """
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise ProfileTableError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ProfileTableError(f"{path}: not a text file: {error.reason} at byte {error.start}") from None
    return parse_profiles(str(path), text)


def parse_profiles(name: str, text: str) -> ServiceProfiles:
    """The table that the text writes; ``name`` stands for it in messages.

    Raises:
        ProfileTableError: A malformed row; names line, column, value and what is allowed.
    """
    first_line: dict[tuple[str, str, str, int, int], int] = {}
    rows = []
    for where, cells in _cells(name, text):
        row = _row(where, cells)
        if row.key in first_line:
            raise ProfileTableError(f"{where}: {_shown(row.key)} stands in line {first_line[row.key]} already")
        first_line[row.key] = where.line
        rows.append(row)
    return ServiceProfiles(name, tuple(rows))


@dataclass(frozen=True, slots=True)
class _Where:
    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} line {self.line}"


def _cells(name: str, text: str) -> Iterator[tuple[_Where, dict[str, str]]]:
    """Each row's place and its cells by column."""
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        if tuple(header) not in (COLUMNS, (*COLUMNS, _OPTIONAL)):
            raise ProfileTableError(f"{name} line 1: the header is {','.join(header)!r}; {','.join(COLUMNS)} is needed")
        for cells in reader:
            if not cells:
                continue
            where = _Where(name, reader.line_num)
            if len(cells) != len(header):
                raise ProfileTableError(f"{where}: {len(cells)} cells; the {len(header)} of the header are needed")
            yield where, dict(zip(header, map(str.strip, cells), strict=True))
    except csv.Error as error:
        raise ProfileTableError(f"{name} line {reader.line_num}: not CSV: {error}") from None


def _row(where: _Where, cells: dict[str, str]) -> ServiceRow:
    for column in ("source", "model"):
        if not cells[column]:
            raise ProfileTableError(f"{where}: {column} is empty; a name is needed")
    _check_profile(where, cells["gpu"], cells["profile"])
    return ServiceRow(
        source=cells["source"],
        gpu=cells["gpu"],
        model=cells["model"],
        profile=cells["profile"],
        batch=_count(where, "batch", cells["batch"]),
        processes=_count(where, "processes", cells["processes"]),
        latency_s=_positive(where, "latency_ms", cells["latency_ms"]) / 1000,
        throughput_rps=_positive(where, "throughput_rps", cells["throughput_rps"]),
        derived=cells.get(_OPTIONAL, ""),
    )


def _check_profile(where: _Where, gpu: str, profile: str) -> None:
    try:
        model = gpu_model(gpu)
    except ExecutorError as error:
        raise ProfileTableError(f"{where}: gpu: {error}") from None
    try:
        model.profile(profile)
    except ExecutorError as error:
        raise ProfileTableError(f"{where}: profile: {error}") from None


def _count(where: _Where, column: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) >= 1):
        raise ProfileTableError(f"{where}: {column} is {text!r}; a whole number ≥ 1 is needed")
    return int(text)


def _positive(where: _Where, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ProfileTableError(f"{where}: {column} is {text!r}; a finite number > 0 is needed")
    return value


def _shown(key: tuple[str, str, str, int, int]) -> str:
    gpu, model, profile, batch, processes = key
    return f"{model} on {gpu} {profile} at batch {batch} with {processes} processes"
