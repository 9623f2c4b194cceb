"""What was measured of models on shares of one card, alone and beside a training: the table of ``share_profiles``.

A table is a CSV file with the columns of ``COLUMNS``:

* ``gpu``: whose shares they are (``mps-a100-80gb-in-7``, ``cpu-1.6-in-7``); ``model``; ``batch``: requests in a batch;
  ``share``: hundredths of the card.
* ``beside``: the model that trains on the rest; empty where nothing does. ``step_ms``: a step of that training.
* ``mean_ms``, ``p99_ms``: of a batch, on one process.
* ``derived``, which may be left out: from what the row was computed; empty where it was measured.

Latency by share is a curve of :mod:`workloads.profiles.knee` for each batch. A larger share is not slower: a row that
is, by more than its own spread (``p99_ms`` − ``mean_ms``), is left out with a warning. What a training beside costs is
one factor for each pair of models, as Mudi prints it: latency beside it over that alone, the mean over shares and
batches.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from executor.cuts import MpsCut
from executor.mig import GpuModel
from executor.names import did_you_mean
from workloads.errors import ProfileTableError
from workloads.profiles.knee import LEAST_SAMPLES, Knee, fitted
from workloads.profiles.shares import Sensitivity
from workloads.profiles.table import (
    LEAST_FIGURE,
    ServiceProfiles,
    ServiceRow,
    Where,
    cells_of,
    count_of,
    figure_of,
    text_in,
)
from workloads.profiles.unseen import Guess

_ONCE = ("training_rps", "start", "weights_mib", "context_mib", "training_mib", "turn_cost")
"""What of a service profile is in one row of several."""

OPTIONAL = ("derived",)
"""Columns that may follow: from what a row was computed; empty where it was measured."""

COLUMNS = ("gpu", "model", "batch", "share", "beside", "mean_ms", "p99_ms", "step_ms")


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One measured combination.

    Attributes:
        gpu: Whose shares they are.
        model: The served model.
        batch: Requests in a batch, ≥ 1.
        share: Of the card, in (0, 1).
        beside: The model that trains on the rest; empty where nothing does.
        mean_s: Seconds for one batch, > 0.
        p99_s: The 99th percentile of that, ≥ ``mean_s``.
        step_s: Seconds of a step of the training beside; ``None`` where there is none.
        derived: From what it was computed; empty where it was measured.
    """

    gpu: str
    model: str
    batch: int
    share: float
    beside: str
    mean_s: float
    p99_s: float
    step_s: float | None = None
    derived: str = ""

    @property
    def key(self) -> tuple[str, int, str, float]:
        """What a table holds at most one row of."""
        return (self.model, self.batch, self.beside, self.share)


@dataclass(frozen=True, eq=False)
class ShareTable:
    """The rows of one table, all of one card.

    Attributes:
        name: Where the table comes from, as messages name it.
        rows: Those that are used, by model, batch, training beside and share.
        warnings: What was left out, a sentence each.
    """

    name: str
    rows: tuple[ShareRow, ...]
    warnings: tuple[str, ...] = ()

    @cached_property
    def _knees(self) -> Mapping[str, Mapping[int, Knee]]:
        """By model and batch, where nothing trains beside."""
        found: dict[str, dict[int, Knee]] = {}
        for (model, batch, beside), rows in _curves(self.rows):
            if not beside:
                curve = fitted([row.share for row in rows], [row.mean_s for row in rows])
                found.setdefault(model, {})[batch] = curve
        return found

    @property
    def models(self) -> tuple[str, ...]:
        """Those that have a curve."""
        return tuple(self._knees)

    def knees(self, model: str) -> Mapping[int, Knee]:
        """Seconds of a batch by share, by batch, while nothing trains beside.

        Raises:
            ProfileTableError: There is no row of the model.
        """
        if model not in self._knees:
            hint = did_you_mean(model, self._knees)
            raise ProfileTableError(
                f"{self.name} has no rows of the model {model!r}{hint}; it has {', '.join(self._knees)}"
            )
        return self._knees[model]

    def beside(self, model: str) -> Mapping[str, float]:
        """By model that trains beside it, the mean of latency over that alone, ≥ 1; as :meth:`knees`."""
        knees, found = self.knees(model), dict[str, list[float]]()
        for row in self.rows:
            if row.model == model and row.beside and row.batch in knees:
                found.setdefault(row.beside, []).append(row.mean_s / knees[row.batch].at(row.share))
        return {trainer: max(1.0, fmean(ratios)) for trainer, ratios in found.items()}

    def derived(self, model: str) -> Mapping[str, str]:
        """By model that trains beside it, from what its rows were computed; only those that were."""
        return {row.beside: row.derived for row in self.rows if row.model == model and row.beside and row.derived}

    def sensitivity(self, model: str, printed: Sensitivity, trainers: Sequence[str]) -> Sensitivity:
        """What neighbours cost the model: that of each training as measured, of one never seen their mean.

        What was not measured at all is as ``printed``: other inference beside it, and trainings without rows.
        ``trainers`` are the models that may train, whose mean counts where it is not said which one does.
        """
        measured = self.beside(model)
        if not measured:
            return printed
        unseen = fmean(measured.values())
        by_trainer = {trainer: measured.get(trainer, unseen) for trainer in trainers}
        expected = fmean(by_trainer.values()) if by_trainer else unseen
        return Sensitivity(printed.beside_inference, expected, by_trainer)


def read_share_table(path: Path, gpu: GpuModel) -> ShareTable:
    """The table in the user's own file, whose rows are of the GPU or of its shares by MPS.

    Raises:
        ProfileTableError: No such file, a malformed row, one of another GPU, or no curve that can be used.
    """
    return parse_share_table(str(path), text_in(path), gpu)


def share_text(rows: Sequence[ShareRow]) -> str:
    """The rows as a file that :func:`parse_share_table` reads; figures with seven digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    extra = OPTIONAL if any(row.derived for row in rows) else ()
    writer.writerow((*COLUMNS, *extra))
    for row in rows:
        times = [row.mean_s, row.p99_s, *([] if row.step_s is None else [row.step_s])]
        cells = [f"{1000 * seconds:.7g}" for seconds in times]
        key = (row.gpu, row.model, row.batch, f"{100 * row.share:.7g}", row.beside)
        writer.writerow((*key, *cells, *[""] * (3 - len(cells)), *[row.derived for _ in extra]))
    return text.getvalue()


def beside_unseen(rows: Sequence[ShareRow], trainer: str, guesses: Mapping[str, Guess]) -> list[ShareRow]:
    """Rows beside a training that was not measured: those alone, as many times as long as is guessed by model."""
    return [
        replace(row, beside=trainer, mean_s=factor * row.mean_s, p99_s=factor * row.p99_s, derived=guess.told)
        for row in rows
        if not row.beside and (guess := guesses.get(row.model)) is not None and (factor := guess.factor)
    ]


def parse_share_table(name: str, text: str, gpu: GpuModel) -> ShareTable:
    """The table that the text writes; ``name`` stands for it in messages.

    Raises:
        ProfileTableError: As :func:`read_share_table`; names line, column, value and what is allowed.
    """
    lines: dict[ShareRow, int] = {}
    first_line: dict[tuple[str, int, str, float], int] = {}
    for where, cells in cells_of(name, text, COLUMNS, OPTIONAL):
        row = _row(where, cells, gpu)
        if row.key in first_line:
            told = f"{row.model} at batch {row.batch} on {100 * row.share:g} %{_beside(row)}"
            raise ProfileTableError(f"{where}: {told} is in line {first_line[row.key]} already")
        first_line[row.key] = lines[row] = where.line
    kept, warnings = _usable(name, lines)
    if not any(not row.beside for row in kept):
        told = f": {warnings[0]}" if warnings else ""
        needed = f"{LEAST_SAMPLES} shares or more of a model at one batch, with nothing beside, are needed"
        raise ProfileTableError(f"{name}: no curve can be used; {needed}{told}")
    return ShareTable(name, kept, warnings)


def _row(where: Where, cells: Mapping[str, str], gpu: GpuModel) -> ShareRow:
    if not is_of(cells["gpu"], gpu):
        raise ProfileTableError(f"{where}: gpu is {cells['gpu']!r:.60}; the config's is {gpu.name}: measure that one")
    if not cells["model"]:
        raise ProfileTableError(f"{where}: model is empty; a name is needed")
    mean_s, p99_s = (figure_of(where, one, cells[one], LEAST_FIGURE) / 1000 for one in ("mean_ms", "p99_ms"))
    if p99_s < mean_s:
        raise ProfileTableError(f"{where}: p99_ms is {cells['p99_ms']}, less than mean_ms, {cells['mean_ms']}")
    if bool(cells["step_ms"]) and not cells["beside"]:
        raise ProfileTableError(f"{where}: step_ms is {cells['step_ms']}, and nothing trains beside; leave it empty")
    return ShareRow(
        gpu=cells["gpu"],
        model=cells["model"],
        batch=count_of(where, "batch", cells["batch"]),
        share=_share(where, cells["share"]),
        beside=cells["beside"],
        mean_s=mean_s,
        p99_s=p99_s,
        step_s=figure_of(where, "step_ms", cells["step_ms"], LEAST_FIGURE) / 1000 if cells["step_ms"] else None,
        derived=cells.get("derived", ""),
    )


def _share(where: Where, text: str) -> float:
    percent = figure_of(where, "share", text, LEAST_FIGURE)
    if percent >= 100:
        raise ProfileTableError(f"{where}: share is {text!r:.60}; hundredths of the card, more than 0, less than 100")
    return percent / 100


def rows_on(
    rows: Sequence[ServiceRow], share: float, knees: Mapping[int, Knee], longer: float, told: str
) -> list[ServiceRow]:
    """Rows of one process on a share of the card, ``longer`` times the curves; ``rows`` are those that they replace.

    What these say of training, starts and memory goes on, in the first row. ``told`` says what they are derived from.
    """
    first, found = rows[0], list[ServiceRow]()
    once: dict[str, Any] = {
        key: next((v for row in rows if (v := getattr(row, key)) is not None), None) for key in _ONCE
    }
    batch_mib = {row.batch: row.batch_mib for row in rows if row.processes == 1}
    for batch, knee in sorted(knees.items()):
        seconds = longer * knee.fastest(share)
        own = replace(first, batch=batch, processes=1, latency_s=seconds, throughput_rps=batch / seconds, derived=told)
        others = dict.fromkeys(_ONCE) if found else once
        found.append(replace(own, batch_mib=batch_mib.get(batch), **others))
    return found


def on_shares(
    profiles: ServiceProfiles, gpu: GpuModel, table: ShareTable, trainers: Mapping[str, float]
) -> ServiceProfiles:
    """The table of a card that is cut in shares with the curves' rows in place of its own, for these models.

    ``trainers`` has by model how much longer a batch takes on an instance beside which others train.
    """
    kept = [row for row in profiles.rows if row.gpu != gpu.name or row.model not in trainers]
    for model, longer in trainers.items():
        by_profile: dict[str, list[ServiceRow]] = {}
        for row in profiles.of(gpu.name, model):
            by_profile.setdefault(row.profile, []).append(row)
        for name, rows in by_profile.items():
            slices = gpu.profile(name).compute_slices
            beside = longer if slices < gpu.compute_slices else 1.0
            told = f"share curve of {Path(table.name).name}"
            told += f", × {beside:.3f} beside a training" if beside > 1 else ""
            kept += rows_on(rows, slices / gpu.compute_slices, table.knees(model), beside, told)
    return replace(profiles, rows=tuple(kept))


def is_of(name: str, gpu: GpuModel) -> bool:
    """Whether rows of the GPU so called are of this one: they have its name, or are of its shares by MPS."""
    cut = MpsCut.named(name)
    return name.casefold() == gpu.name or (cut is not None and cut.card == gpu.name)


def _curves(rows: Sequence[ShareRow]) -> Iterator[tuple[tuple[str, int, str], list[ShareRow]]]:
    """The rows of each model, batch and training beside, by share."""
    ordered = sorted(rows, key=lambda row: row.key)
    for key, own in groupby(ordered, key=lambda row: row.key[:3]):
        yield key, list(own)


def _usable(name: str, lines: Mapping[ShareRow, int]) -> tuple[tuple[ShareRow, ...], tuple[str, ...]]:
    """The rows without those that are slower on a larger share, and warnings that name what was left out."""
    kept: list[ShareRow] = []
    warnings: list[str] = []
    for (model, batch, beside), rows in _curves(list(lines)):
        falling: list[ShareRow] = []
        for row in rows:
            least = min(falling, key=lambda other: other.mean_s, default=row)
            if row.mean_s - least.mean_s > row.p99_s - row.mean_s:
                told = f"{row.mean_s * 1000:g} ms on {100 * row.share:g} %, {least.mean_s * 1000:g} ms on "
                warnings.append(
                    f"{name} line {lines[row]}: {told}{100 * least.share:g} %: left out, more than its spread"
                )
            else:
                falling.append(row)
        if not beside and len(falling) < LEAST_SAMPLES:
            few = f"{len(falling)} shares; {LEAST_SAMPLES} are needed: left out"
            warnings.append(f"{name}: {model} at batch {batch} has {few}")
        elif not beside and not _is_positive(falling):
            warnings.append(f"{name}: {model} at batch {batch} fits no curve: left out")
        else:
            kept += falling
    return tuple(kept), tuple(warnings)


def _is_positive(rows: Sequence[ShareRow]) -> bool:
    curve = fitted([row.share for row in rows], [row.mean_s for row in rows])
    return min(curve.at(share) for share in (curve.least, curve.share, curve.most)) > 0


def _beside(row: ShareRow) -> str:
    return f" beside {row.beside}" if row.beside else ""
