"""Service profiles: what was measured of each model on each MIG profile, by batch size and process count.

A table is a CSV file with the columns of ``COLUMNS``:

* ``source``: who measured it; ``gpu``: a GPU model of the catalogue; ``model``; ``profile``: a MIG
  profile of that GPU; ``batch``: requests in a batch; ``processes``: equal processes that share the
  instance.
* ``latency_ms``: one batch on one process while its sibling processes run.
* ``throughput_rps``: requests a second of the whole instance, all its processes together.

Columns of ``OPTIONAL``, which may be left out, and whose cells may be empty:

* ``derived``: from what the row was computed; empty where it was measured.
* ``training_rps``: new samples a second of one retraining that has an instance of the profile to itself, of whatever
  batch; in one row of a model and profile.
* ``library_s``, ``model_s``, ``slowdown_per_other``: how long a worker takes from being asked for until it could
  serve, alone: loading libraries, then all else; and the share of both that each other start at the same time adds.
  All three in one row of a model.
* ``weights_mib``, ``training_mib``: memory of a model's weights in one process, and of its training state beyond a
  worker that serves; each in one row of a model. ``context_mib``: what a process takes beside weights and batches
  (CUDA's context, libraries); in one row of a model and profile.
* ``batch_mib``: what the row's batches take at work, one in each of its processes, all together.
* ``turn_cost``: the share by which a batch lasts longer that follows another model's in the same instance; in one row
  of a model and profile.

A combination without a row was not measured, or did not run: nothing is placed there.

No instance answers more than processes × batch / latency: each process has one batch under way. A row of a file is held
to that. Beyond a rounding (``WARNED_ABOVE``) it is warned of, and refused above ``REFUSED_ABOVE``, because capability
would be planned that no simulation, and no GPU, then shows. One far below it says that latency and throughput are not
of the same thing: of which ones is guessed from the ratio (``_reading``). The shipped rows keep it to 0.002 %: one of
their two figures was computed from the other.

The shipped table has what ParvaGPU and MIGPerf measured on an A100-80GB. Each model has one source: ParvaGPU the four
models that it has, MIGPerf ViT-B/16 and BERT-base. Rows that were not measured are computed from measured ones, and say
how in ``derived``, which logs and reports show. MIGPerf has no 4g; its ratio to 3g is that of ParvaGPU's BERT-large,
the only transformer that was measured on both profiles of this card. ConvNeXt-base was measured by neither and follows
ViT-B/16 by GFLOPs.

The launch-free variant leaves out the time that small batches wait for the CPU that launches them. With one eager
framework process, some models take as long for batch 1 on the whole GPU as on a seventh of it: the CPU cannot launch
kernels faster. A server that records its kernels once (CUDA graphs, TensorRT) does not pay this. Its latencies are read
off the larger batches, where the GPU sets the pace: ``latency = a + b · batch``, fitted for each profile and process
count.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from statistics import median

import numpy as np

from executor.catalogue import gpu_model, gpu_model_names, is_cut
from executor.described import SUFFIX
from executor.errors import ExecutorError
from executor.files import alike_to, read_input, read_shipped
from executor.mig import GpuModel, Profile
from executor.names import chip_of, did_you_mean, spelled_as
from workloads.errors import ProfileTableError

COLUMNS = ("source", "gpu", "model", "profile", "batch", "processes", "latency_ms", "throughput_rps")
_START = ("library_s", "model_s", "slowdown_per_other")
_LAST = ("weights_mib", "context_mib", "batch_mib", "training_mib", "turn_cost")
OPTIONAL = ("derived", "training_rps", *_START, *_LAST)

GFLOPS = {"vit-b-16": 17.56, "convnext-base": 15.36}
"""Work of one inference at 224×224. Source: MIGRator's paper, Table 3."""

WEIGHTS_MIB = {"convnext-base": 337.9}
"""Of models without rows of their own. Source: torchvision's number of parameters, 88,591,464, in FP32."""

MOST_BYTES = 64 * 2**20
"""Size of the largest file that is read as a table."""

MOST_DIGITS = 9
"""Digits of the largest batch and process count."""

LARGE_BATCH = 8
"""From this batch size on the GPU, and not the launching CPU, sets the pace."""

_FOUR, _THREE, _WHOLE = "4g.40gb", "3g.40gb", "7g.80gb"

LAUNCH_BOUND_SPEED_UP = 2.0
"""A model whose batch 1 gains less than this from the smallest to the largest profile is bound by launching."""

LEAST_FIGURE, MOST_FIGURE = 1e-6, 1e9
"""Milliseconds, and requests a second, beyond which a figure is a slip of the pen; the least divides safely."""

WARNED_ABOVE, REFUSED_ABOVE = 1.02, 1.10
"""Throughput over processes × batch / latency. What rounds to whole milliseconds may be a little above 1."""

WARNED_BELOW, REFUSED_BELOW = 0.6, 0.1
"""The same, where instances would have idled while they were measured: for two fifths of the time, and for nine tenths.

A batch of two counted as one request is at a half.
"""

_NEAR = 0.1
"""How near to a misreading's ratio, relative to it, a row's must be for a warning."""

LAUNCH_FREE = f"launch-free: fit on batches ≥ {LARGE_BATCH}"


@dataclass(frozen=True, slots=True)
class MeasuredStart:
    """How long a worker of a model takes to start.

    Attributes:
        library_s: Seconds until libraries are loaded, ≥ 0.
        model_s: Seconds from then on until it could serve, ≥ 0.
        slowdown_per_other: Share of both that each other start at the same time adds, ≥ 0.
    """

    library_s: float
    model_s: float
    slowdown_per_other: float


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
        training_rps: New samples a second of a retraining on the profile, > 0; ``None`` where another row has it.
        start: Of the model's workers; ``None`` where another row has it.
        weights_mib: The model's weights in one process, > 0; ``None`` where another row has it, or it is not known.
        context_mib: What else a process on the profile takes before it serves, ≥ 0; likewise.
        batch_mib: The row's batches at work, one a process, ≥ 0; ``None`` where it is not known.
        training_mib: What training takes beyond a worker that serves, ≥ 0; as ``weights_mib``.
        turn_cost: By which share a batch lasts longer after another model's, ≥ 0; as ``context_mib``.
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
    training_rps: float | None = None
    start: MeasuredStart | None = None
    weights_mib: float | None = None
    context_mib: float | None = None
    batch_mib: float | None = None
    training_mib: float | None = None
    turn_cost: float | None = None

    def stretched(self, factor: float) -> ServiceRow:
        """The row if every batch took ``factor`` > 0 times as long."""
        return replace(self, latency_s=self.latency_s * factor, throughput_rps=self.throughput_rps / factor)

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
        warnings: What is doubtful of them, a sentence each, which every user of the table should hear.
        card: A GPU model that rows may be of, though the catalogue does not have it so.
    """

    name: str
    rows: tuple[ServiceRow, ...]
    warnings: tuple[str, ...] = ()
    card: GpuModel | None = None

    def __post_init__(self) -> None:
        if not self.rows:
            raise ProfileTableError(f"{self.name}: no rows; a table needs at least one")
        key, times = Counter(row.key for row in self.rows).most_common(1)[0]
        if times > 1:
            raise ProfileTableError(f"{self.name}: {_key_as_text(key)} is there {times} times; once is allowed")

    @cached_property
    def _by_gpu(self) -> dict[str, dict[str, tuple[ServiceRow, ...]]]:
        table: dict[str, dict[str, list[ServiceRow]]] = {}
        for row in self.rows:
            table.setdefault(row.gpu, {}).setdefault(row.model, []).append(row)
        return {gpu: {model: tuple(rows) for model, rows in models.items()} for gpu, models in table.items()}

    def on(self, gpu: GpuModel) -> ServiceProfiles:
        """The table with the rows of this GPU under the names that its own profiles have.

        Without rows of its own, those of a variant are its: of a card of the same chip with like profiles. What it has
        no profile for is left out. Both are in ``warnings``, and so do SMs that differ.

        Raises:
            ProfileTableError: There are rows of the GPU, and it has none of their profiles.
        """
        names = [gpu.name] if gpu.name in self.gpus else [name for name in self.gpus if self._is_variant(name, gpu)]
        for name in names:
            rows = [row for row in self.rows if row.gpu == name]
            own = {one: self._own(name, one, gpu) for one in dict.fromkeys(row.profile for row in rows)}
            doubts = tuple(_of_variant(self.name, self.model(name), gpu, own))
            if not doubts and all(one is not None and one.name == given for given, one in own.items()):
                return self
            kept = [replace(row, gpu=gpu.name, profile=one.name) for row in rows if (one := own[row.profile])]
            if kept:
                others = tuple(row for row in self.rows if row.gpu != name)
                return replace(self, rows=(*others, *kept), warnings=(*self.warnings, *doubts), card=gpu)
            if name == gpu.name:
                told = f"{self.name} has {', '.join(own)} of {name}"
                raise ProfileTableError(f"{told}; this {gpu.title} has no such profile")
        return self

    def _own(self, name: str, profile: str, gpu: GpuModel) -> Profile | None:
        """The GPU's profile that rows of the card ``name`` mean by ``profile``."""
        if name == gpu.name and profile in gpu.profile_names:
            return gpu.profile(profile)
        return gpu.like(self.model(name).profile(profile))

    def _is_variant(self, name: str, gpu: GpuModel) -> bool:
        return not (is_cut(name) or is_cut(gpu.name)) and chip_of(self.model(name).title) == chip_of(gpu.title)

    def model(self, gpu: str) -> GpuModel:
        """The GPU model that rows call ``gpu``: the catalogue's, unless the card alone has the name."""
        is_card = self.card is not None and self.card.name == gpu and gpu not in gpu_model_names()
        return self.card if is_card and self.card is not None else gpu_model(gpu)

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
            hint = did_you_mean(model, known)
            raise ProfileTableError(
                f"{self.name} has no service profiles for the model {model!r} on {gpu}{hint}; it has {', '.join(known)}"
            )
        return self._by_gpu[gpu][model]

    def training_rps(self, gpu: str, model: str) -> Mapping[str, float]:
        """New samples a second of one retraining, by profile name, where that was measured.

        Raises:
            ProfileTableError: As :meth:`of`.
        """
        return {row.profile: row.training_rps for row in self.of(gpu, model) if row.training_rps is not None}

    def with_memory(
        self, gpu: str, model: str, chosen: Container[tuple[str, str, str, int, int]] | None = None
    ) -> tuple[ServiceRow, ...]:
        """The rows of :meth:`of`, or those with a ``chosen`` key, with what any row says of memory and turns there.

        Raises:
            ProfileTableError: As :meth:`of`.
        """
        rows = self.of(gpu, model)
        weights_mib = next((row.weights_mib for row in rows if row.weights_mib is not None), None)
        training_mib = next((row.training_mib for row in rows if row.training_mib is not None), None)
        contexts_mib = {row.profile: row.context_mib for row in rows if row.context_mib is not None}
        turn_costs = {row.profile: row.turn_cost for row in rows if row.turn_cost is not None}
        return tuple(
            replace(
                row,
                weights_mib=weights_mib,
                context_mib=contexts_mib.get(row.profile),
                training_mib=training_mib,
                turn_cost=turn_costs.get(row.profile),
            )
            for row in rows
            if chosen is None or row.key in chosen
        )

    def start(self, gpu: str, model: str) -> tuple[MeasuredStart, str] | None:
        """How long workers of the model take to start, and who measured it; ``None`` where nobody did.

        Raises:
            ProfileTableError: As :meth:`of`.
        """
        return next(((row.start, row.source) for row in self.of(gpu, model) if row.start is not None), None)


def read_profiles(path: Path, card: GpuModel | None = None) -> ServiceProfiles:
    """The table in the user's own file; rows may be of the ``card``, under its name or title.

    Raises:
        ProfileTableError: No such file, or a malformed row; names file, line, column, value and what is allowed.
    """
    return parse_profiles(str(path), text_in(path), card)


def text_in(path: Path) -> str:
    """What is in a table's file.

    Raises:
        ProfileTableError: No such file, or no text.
    """
    try:
        return read_input(path, MOST_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise ProfileTableError(f"{path}: cannot be read: {error.strerror or error}{alike_to(path)}") from None
    except UnicodeDecodeError as error:
        raise ProfileTableError(f"{path}: not a text file: {error.reason} at byte {error.start}") from None


def parse_profiles(name: str, text: str, card: GpuModel | None = None) -> ServiceProfiles:
    """The table that the text writes; ``name`` stands for it in messages. Rows may be of the ``card``.

    Raises:
        ProfileTableError: A malformed row; names line, column, value and what is allowed.
    """
    first_line: dict[tuple[object, ...], int] = {}
    rows: list[ServiceRow] = []
    doubts: list[tuple[float, str]] = []
    for where, cells in cells_of(name, text):
        row = _row(where, cells, card)
        for key, told in _once(row):
            if key in first_line:
                raise ProfileTableError(f"{where}: {told} is in line {first_line[key]} already")
            first_line[key] = where.line
        rows.append(row)
        doubts += _doubts(where, row, cells)
    warnings = _folded([told for _, told in sorted(doubts, key=lambda doubt: -doubt[0])])
    return ServiceProfiles(name, tuple(rows), warnings, card)


def text_of(rows: Sequence[ServiceRow]) -> str:
    """The rows as a file that :func:`parse_profiles` reads; figures with seven digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*COLUMNS, *OPTIONAL))
    for row in rows:
        start = ("", "", "") if row.start is None else map(_digits, astuple(row.start))
        training = "" if row.training_rps is None else _digits(row.training_rps)
        figures = (_digits(row.latency_s * 1000), _digits(row.throughput_rps))
        last = ["" if one is None else _digits(one) for one in (getattr(row, column) for column in _LAST)]
        key = (row.source, row.gpu, row.model, row.profile, row.batch, row.processes)
        writer.writerow((*key, *figures, row.derived, training, *start, *last))
    return text.getvalue()


def _digits(value: float) -> str:
    return f"{value:.7g}"


@dataclass(frozen=True, slots=True)
class Where:
    """A line of a table, as messages name it."""

    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} line {self.line}"


def cells_of(
    name: str, text: str, columns: Sequence[str] = COLUMNS, optional: Sequence[str] = OPTIONAL
) -> Iterator[tuple[Where, dict[str, str]]]:
    """Each row's place and its cells by column; ``name`` stands for the table in messages.

    Raises:
        ProfileTableError: Another header, too few or too many cells, or no CSV; names the line.
    """
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        extra = header[len(columns) :]
        if header[: len(columns)] != [*columns] or not set(extra) <= set(optional) or len(set(extra)) < len(extra):
            follows = f"; after that, {', '.join(optional)} may follow" if optional else ""
            raise ProfileTableError(
                f"{name} line 1: the header is {','.join(header)!r}; {','.join(columns)} is needed{follows}"
            )
        for cells in reader:
            if not cells:
                continue
            where = Where(name, reader.line_num)
            if len(cells) != len(header):
                raise ProfileTableError(f"{where}: {len(cells)} cells; the {len(header)} of the header are needed")
            yield where, dict(zip(header, map(str.strip, cells), strict=True))
    except csv.Error as error:
        raise ProfileTableError(f"{name} line {reader.line_num}: not CSV: {error}") from None


def _row(where: Where, cells: dict[str, str], card: GpuModel | None) -> ServiceRow:
    for column in ("source", "model"):
        if not cells[column]:
            raise ProfileTableError(f"{where}: {column} is empty; a name is needed")
    gpu, profile = _gpu_and_profile(where, cells["gpu"], cells["profile"], card)
    return ServiceRow(
        source=cells["source"],
        gpu=gpu,
        model=cells["model"],
        profile=profile,
        batch=count_of(where, "batch", cells["batch"]),
        processes=count_of(where, "processes", cells["processes"]),
        latency_s=_positive(where, "latency_ms", cells["latency_ms"]) / 1000,
        throughput_rps=_positive(where, "throughput_rps", cells["throughput_rps"]),
        derived=cells.get("derived", ""),
        training_rps=_positive(where, "training_rps", cells["training_rps"]) if cells.get("training_rps") else None,
        start=_start(where, cells),
        weights_mib=_positive(where, "weights_mib", cells["weights_mib"]) if cells.get("weights_mib") else None,
        **{column: figure_of(where, column, cells[column], 0.0) for column in _LAST[1:] if cells.get(column)},
    )


def _start(where: Where, cells: Mapping[str, str]) -> MeasuredStart | None:
    given = [column for column in _START if cells.get(column)]
    if not given:
        return None
    if len(given) < len(_START):
        raise ProfileTableError(f"{where}: {', '.join(given)} without the rest; {', '.join(_START)} go together")
    return MeasuredStart(*(figure_of(where, column, cells[column], 0.0) for column in _START))


def _once(row: ServiceRow) -> Iterator[tuple[tuple[object, ...], str]]:
    """What of the row may be in one row alone, and how messages call it."""
    yield row.key, _key_as_text(row.key)
    if row.training_rps is not None:
        yield ("training", *row.key[:3]), f"training_rps of {row.model} on {row.gpu} {row.profile}"
    if row.start is not None:
        yield ("start", *row.key[:2]), f"{_START[0]} of {row.model} on {row.gpu}"
    if row.weights_mib is not None:
        yield ("weights", *row.key[:2]), f"weights_mib of {row.model} on {row.gpu}"
    if row.context_mib is not None:
        yield ("context", *row.key[:3]), f"context_mib of {row.model} on {row.gpu} {row.profile}"
    if row.training_mib is not None:
        yield ("memory of training", *row.key[:2]), f"training_mib of {row.model} on {row.gpu}"
    if row.turn_cost is not None:
        yield ("turns", *row.key[:3]), f"turn_cost of {row.model} on {row.gpu} {row.profile}"


def _doubts(where: Where, row: ServiceRow, cells: Mapping[str, str]) -> Iterator[tuple[float, str]]:
    """How far throughput and latency are apart, as a logarithm, and what is doubtful of the row.

    Raises:
        ProfileTableError: They contradict each other.
    """
    most_rps = row.processes * row.batch / row.latency_s
    ratio = row.throughput_rps / most_rps
    if WARNED_BELOW <= ratio <= WARNED_ABOVE:
        return
    processes = "1 process" if row.processes == 1 else f"{row.processes} processes"
    told = (
        f"{where}: throughput_rps is {cells['throughput_rps']}, {_times(ratio)} the {most_rps:,.6g} a second that "
        f"{processes} × batch {row.batch} / {cells['latency_ms']} ms allow; {_reading(row, ratio)}"
    )
    if ratio > REFUSED_ABOVE or ratio < REFUSED_BELOW:
        raise ProfileTableError(told)
    yield abs(math.log(ratio)), told


def _times(ratio: float) -> str:
    return f"{ratio:,.4g} times" if ratio >= 0.01 else f"1/{1 / ratio:,.4g} of"


def _reading(row: ServiceRow, ratio: float) -> str:
    """What the figures may have been, from the ratio of throughput to what latency allows."""
    misreadings = (
        (1e-3, "is latency_ms in seconds?"),
        (1e3, "is latency_ms in microseconds?"),
        (1 / row.batch, "is throughput_rps in batches a second, or latency_ms that of one request?"),
        (1 / row.processes, "is throughput_rps that of one process? That of the whole instance is needed"),
        (1 / (row.batch * row.processes), "is throughput_rps in batches a second of one process?"),
        (60.0, "is throughput_rps in requests a minute?"),
        (float(row.batch), "is throughput_rps multiplied by the batch twice?"),
    )
    for of_it, question in misreadings:
        if of_it != 1 and abs(ratio / of_it - 1) <= _NEAR:
            return question
    if ratio > 1:
        return "latency_ms has to be the mean time of a batch at work, no percentile and no waiting"
    return "both have to be measured with all processes at work, without a pause"


def _folded(doubts: Sequence[str]) -> tuple[str, ...]:
    """The gravest doubt, which comes first, and how many more there are."""
    if len(doubts) < 2:
        return tuple(doubts)
    rows = "another row is" if len(doubts) == 2 else f"{len(doubts) - 1} more rows are"
    return (f"{doubts[0]} ({rows} doubtful, too)",)


def _of_variant(name: str, measured: GpuModel, gpu: GpuModel, own: Mapping[str, Profile | None]) -> Iterator[str]:
    """What is doubtful of rows that were measured on ``measured``, for the profiles that they are of on ``gpu``."""
    if lacking := [given for given, one in own.items() if one is None]:
        yield f"{name}: {gpu.title} has no profile like {', '.join(lacking)} of {measured.name}; no row of it is used"
    then = {profile.name: profile.sm_count for profile in measured.profiles}
    counts = [(one, then.get(given), one.sm_count) for given, one in own.items() if one is not None]
    told = [f"{one} {n} there, {now} here" for one, n, now in counts if None not in (n, now) and n != now]
    if told:
        yield f"{name}: measured on another variant of the card, {measured.title}, with other SMs: {', '.join(told)}"
    elif measured.name != gpu.name and counts:
        yield f"{name}: measured on another card, {measured.title}, that is cut as this {gpu.title}"


def _gpu_and_profile(where: Where, gpu: str, profile: str, card: GpuModel | None) -> tuple[str, str]:
    """Both names as the catalogue, or the driver of the card, spells them.

    A row of a card that the catalogue has, too, may have been measured with another driver, which names it otherwise.
    """
    if card is not None and gpu.casefold() in (card.name, card.title.casefold()):
        spelled = spelled_as(profile, card.profile_names)
        is_own = spelled in card.profile_names or card.name not in gpu_model_names()
        model = card if is_own else gpu_model(card.name)
    else:
        model = _catalogued(where, gpu)
    try:
        return model.name, model.profile(spelled_as(profile, model.profile_names)).name
    except ExecutorError as error:
        raise ProfileTableError(f"{where}: profile: {error}") from None


def _catalogued(where: Where, gpu: str) -> GpuModel:
    if gpu.endswith(SUFFIX):
        raise ProfileTableError(f"{where}: gpu is {gpu!r:.60}, a file; the name in it is needed")
    try:
        return gpu_model(gpu)
    except ExecutorError as error:
        raise ProfileTableError(f"{where}: gpu: {error}") from None


def count_of(where: Where, column: str, text: str) -> int:
    """The cell's whole number ≥ 1.

    Raises:
        ProfileTableError: It is none.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS and int(text) >= 1):
        raise ProfileTableError(f"{where}: {column} is {text!r:.60}; a whole number ≥ 1 is needed")
    return int(text)


def _positive(where: Where, column: str, text: str) -> float:
    return figure_of(where, column, text, LEAST_FIGURE)


def figure_of(where: Where, column: str, text: str, least: float) -> float:
    """The cell's number from ``least`` to :data:`MOST_FIGURE`.

    Raises:
        ProfileTableError: It is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= MOST_FIGURE:
        raise ProfileTableError(
            f"{where}: {column} is {text!r:.60}; a number from {least:g} to {MOST_FIGURE:g} is needed"
        )
    return value


def _key_as_text(key: tuple[str, str, str, int, int]) -> str:
    gpu, model, profile, batch, processes = key
    return f"{model} on {gpu} {profile} at batch {batch} with {processes} processes"


@cache
def shipped_profiles() -> ServiceProfiles:
    """The measured rows of both sources, and those that are derived from them."""
    parvagpu, migperf = (_read(name) for name in ("parvagpu.csv", "migperf.csv"))
    ratio = latency_ratio(parvagpu.rows, "bert-large", _THREE, _FOUR)
    rows: list[ServiceRow] = []
    for model in migperf.models("a100-80gb"):
        own = migperf.of("a100-80gb", model)
        origin = "ParvaGPU's BERT-large"
        four = on_missing_profile(own, profile=_FOUR, like=_THREE, ratio=ratio, faster=_WHOLE, origin=origin)
        rows += [row for row in own if row.profile != _WHOLE]
        rows += four
        rows += [row for row in own if row.profile == _WHOLE]
    rows += of_similar_model(rows, model="convnext-base", like="vit-b-16")
    return ServiceProfiles("the shipped table", (*parvagpu.rows, *rows))


def _read(name: str) -> ServiceProfiles:
    return parse_profiles(name, read_shipped("workloads.data", name).decode())


def latency_ratio(rows: Sequence[ServiceRow], model: str, profile: str, to_profile: str) -> float:
    """The median of latency on ``to_profile`` over latency on ``profile``, one process, batches ≥ ``LARGE_BATCH``.

    Raises:
        ProfileTableError: No batch was measured on both.
    """
    latency_s = {
        (row.profile, row.batch): row.latency_s
        for row in rows
        if row.model == model and row.processes == 1 and row.batch >= LARGE_BATCH
    }
    ratios = [
        latency_s[to_profile, batch] / seconds
        for (name, batch), seconds in latency_s.items()
        if name == profile and (to_profile, batch) in latency_s
    ]
    if not ratios:
        raise ProfileTableError(f"{model}: no batch ≥ {LARGE_BATCH} was measured on both {profile} and {to_profile}")
    return median(ratios)


def on_missing_profile(
    rows: Sequence[ServiceRow], *, profile: str, like: str, ratio: float, faster: str, origin: str
) -> list[ServiceRow]:
    """Rows on ``profile``: the latency on ``like`` times ``ratio``, but never below that on ``faster``.

    The bound matters for small batches, which a larger instance does not make faster. ``rows`` are
    of one model; ``origin`` says where the ratio is from.
    """
    least_s = {(row.batch, row.processes): row.latency_s for row in rows if row.profile == faster}
    derived = f"latency of {like} × {ratio:.3f} ({origin}), no faster than {faster}"
    return [
        _with_latency(row, max(row.latency_s * ratio, least_s.get((row.batch, row.processes), 0.0)), derived, profile)
        for row in rows
        if row.profile == like
    ]


def of_similar_model(rows: Sequence[ServiceRow], *, model: str, like: str) -> list[ServiceRow]:
    """Rows of ``model``: the latencies of ``like`` times the ratio of their work (:data:`GFLOPS`).

    Of memory the weights are known, in the first row.
    """
    ratio = GFLOPS[model] / GFLOPS[like]
    derived = f"latency of {like} × {GFLOPS[model]:g}/{GFLOPS[like]:g} (GFLOPs)"
    return [
        replace(
            _with_latency(row, row.latency_s * ratio, " and ".join(filter(None, (derived, row.derived))), row.profile),
            model=model,
            weights_mib=None if row.weights_mib is None else WEIGHTS_MIB[model],
            context_mib=None,
            batch_mib=None,
            training_mib=None,
        )
        for row in rows
        if row.model == like
    ]


def _with_latency(row: ServiceRow, latency_s: float, derived: str, profile: str) -> ServiceRow:
    rate_rps = row.batch * row.processes / latency_s
    return replace(row, profile=profile, latency_s=latency_s, throughput_rps=rate_rps, derived=derived)


def launch_free(profiles: ServiceProfiles) -> ServiceProfiles:
    """The table with the small batches of launch-bound models as the fit says, where that is faster.

    Batches from ``LARGE_BATCH`` on and models that are not launch-bound stay as recorded, and so do profiles
    and process counts of which the large batches say too little: fewer than two of them, or a fit that
    crosses zero above batch 0. Changed rows say so in ``derived``.
    """
    rows: list[ServiceRow] = []
    for gpu in profiles.gpus:
        for model in profiles.models(gpu):
            own = profiles.of(gpu, model)
            rows += _freed(own) if is_launch_bound(own, profiles.model(gpu)) else own
    return replace(profiles, name=f"{profiles.name}, launch-free", rows=tuple(rows))


def is_launch_bound(rows: Sequence[ServiceRow], gpu: GpuModel) -> bool:
    """Whether one process at batch 1 hardly gains from a larger profile. ``rows`` are of one model and GPU."""
    rate_rps = {row.profile: row.throughput_rps for row in rows if (row.batch, row.processes) == (1, 1)}
    if not rate_rps:
        return False
    ascending = sorted(rate_rps, key=lambda name: gpu.profile(name).compute_slices)
    spread = gpu.profile(ascending[-1]).compute_slices / gpu.profile(ascending[0]).compute_slices
    return spread > LAUNCH_BOUND_SPEED_UP > rate_rps[ascending[-1]] / rate_rps[ascending[0]]


def linear_fit(batches: Sequence[int], latency_s: Sequence[float]) -> tuple[float, float]:
    """``(a, b)`` of ``a + b · batch`` with the least sum of squared relative errors.

    Relative, because the sizes span a factor of 30: else the largest batch alone would set ``a``.
    """
    batch, seconds = np.asarray(batches, dtype=np.float64), np.asarray(latency_s, dtype=np.float64)
    slope, intercept = np.polyfit(batch, seconds, 1, w=1 / seconds)
    return float(intercept), float(slope)


def _freed(rows: Sequence[ServiceRow]) -> list[ServiceRow]:
    groups: dict[tuple[str, int], list[ServiceRow]] = {}
    for row in rows:
        groups.setdefault((row.profile, row.processes), []).append(row)
    fits = {key: fit for key, group in groups.items() if (fit := _fit(group)) is not None}
    return [_without_launching(row, fits.get((row.profile, row.processes))) for row in rows]


def _fit(group: Sequence[ServiceRow]) -> tuple[float, float] | None:
    large = [row for row in group if row.batch >= LARGE_BATCH]
    if len(large) < 2:
        return None
    intercept_s, slope_s = linear_fit([row.batch for row in large], [row.latency_s for row in large])
    return None if intercept_s < 0 else (intercept_s, slope_s)


def _without_launching(row: ServiceRow, fit: tuple[float, float] | None) -> ServiceRow:
    if fit is None or row.batch >= LARGE_BATCH:
        return row
    latency_s = fit[0] + fit[1] * row.batch
    if not 0 < latency_s < row.latency_s:
        return row
    rate_rps = row.batch * row.processes / latency_s
    derived = " and ".join(filter(None, (row.derived, LAUNCH_FREE)))
    return replace(row, latency_s=latency_s, throughput_rps=rate_rps, derived=derived)
