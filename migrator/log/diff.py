"""Why one run was better than another, from their two logs: what was not the same, and where the goodput differs.

Points are hundredths of a run's own arrivals. A row is what the first run gains over the second by losing fewer
requests to a class of the account; over windows, tenants and rows they add up to the difference of the goodputs.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from msgspec import to_builtins

from migrator.errors import LogError, MigratorError
from migrator.log.account import SecondAccounts, accounts
from migrator.log.runlog import CONFIG_FILE, ReadLog
from migrator.log.timeline import HeldSpan, NewModel, TenantTrack, courses, held, n_seconds, new_models
from planner.files.strict import read_document

ROWS = ("wrong_old", "wrong_new", "capacity", "reconfiguration", "forecast", "queueing", "mix")
"""Classes of the account that are not goodput; without hindsight ``forecast`` is a part of ``capacity``.

Where other requests came, ``mix`` is what a larger part of them in a window, or of a tenant, is worth; it adds up to 0.
"""

N_CAUSES = 3

_LEAST_POINTS = 0.005
"""A smaller gain is no cause."""

_DERIVED = frozenset(
    {"schema", "name", "policy", "assumed", "planning_s", "replan_every_s", "knows", "ahead_s", "sharing", "forecaster"}
    | {"load", "dispersion_before", "dispersion_after", "windows"}
)
"""Keys of a log's header, and of its tenants, that follow from the others: config, policy, requests."""


@dataclass(frozen=True, slots=True)
class Gain:
    """What a tenant gained in a window, in points.

    Attributes:
        window: Its number.
        tenant: Its name.
        by_row: By row of :data:`ROWS`; negative where the first run loses more.
    """

    window: int
    tenant: str
    by_row: Mapping[str, float]

    @property
    def points(self) -> float:
        """All rows together: the gain in goodput."""
        return sum(self.by_row.values())


@dataclass(frozen=True, slots=True)
class GainCause:
    """A gain, and its reason in words; empty where the logs do not say."""

    window: int
    tenant: str
    row: str
    points: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class Diff:
    """Two runs side by side, over the windows that both have settled and the tenants that both have.

    Attributes:
        unlike: What is not the same, a line each: requests first, then versions, seeds, profiles and other keys.
        same_requests: Whether the same requests came, by tenant and second.
        n_requests: Of each run.
        windows: Which windows are compared.
        left_out: What is in one run alone, a line each.
        goodput_pct: Of each run.
        gains: By window, then by tenant.
        knows_forecast: Whether ``forecast`` is separate from ``capacity``.
        layouts_differ_s: The first second in which others held the GPU; ``None`` if they never did.
        causes: The largest gains and losses, the largest first.
    """

    unlike: tuple[str, ...]
    same_requests: bool
    n_requests: tuple[int, int]
    windows: tuple[int, ...]
    left_out: tuple[str, ...]
    goodput_pct: tuple[float, float]
    gains: tuple[Gain, ...]
    knows_forecast: bool
    layouts_differ_s: float | None
    causes: tuple[GainCause, ...]

    @property
    def points(self) -> float:
        """How far the first run is ahead in goodput."""
        return self.goodput_pct[0] - self.goodput_pct[1]

    @property
    def by_row(self) -> dict[str, float]:
        """The gains of all windows and tenants, by row."""
        left_out = {"forecast"} if not self.knows_forecast else set()
        left_out |= {"mix"} if self.same_requests else set()
        return {row: sum(gain.by_row[row] for gain in self.gains) for row in ROWS if row not in left_out}

    @property
    def is_empty(self) -> bool:
        """Whether the two are alike in all that is compared."""
        return (
            not self.unlike
            and not self.left_out
            and self.layouts_differ_s is None
            and not any(value for gain in self.gains for value in gain.by_row.values())
        )


def diff_of(one: ReadLog, other: ReadLog, hindsight: ReadLog | None = None) -> Diff:
    """Hold two runs side by side; ``hindsight`` is a run on their requests by a planner that knows the arrivals.

    Raises:
        MigratorError: They have no tenant, or no settled window, in common.
    """
    names = [[tenant.name for tenant in log.header.tenants] for log in (one, other)]
    common = [name for name in names[0] if name in names[1]]
    windows = tuple(sorted(set(one.settled) & set(other.settled)))
    _require_something(one, other, common, windows)
    blind = {window: one.settled[window].blind_seconds | other.settled[window].blind_seconds for window in windows}
    of_window = {window: _seconds(one, window, blind[window]) for window in windows}
    seconds = [second for own in of_window.values() for second in own]
    known = [accounts(log) for log in (one, other)]
    if hindsight is not None:
        foreseen = accounts(hindsight)
        _require_same_requests(one, known[0], foreseen, common, seconds)
        known = [_with_forecast(log, own, foreseen, common) for log, own in zip((one, other), known, strict=True)]
    arrivals = [sum(float(own[name].arrivals[seconds].sum()) for name in common) for own in known]
    goodput = [sum(float(own[name].goodput[seconds].sum()) for name in common) for own in known]
    same = all(np.array_equal(known[0][name].arrivals[seconds], known[1][name].arrivals[seconds]) for name in common)
    gains = tuple(
        Gain(window, name, _gain(known, name, of_window[window], arrivals)) for window in windows for name in common
    )
    return Diff(
        unlike=tuple(_unlike(one, other, same_requests=same)),
        same_requests=same,
        n_requests=(round(arrivals[0]), round(arrivals[1])),
        windows=windows,
        left_out=tuple(_left_out(one, other, names, sum(map(len, blind.values())))),
        goodput_pct=(_pct(goodput[0], arrivals[0]), _pct(goodput[1], arrivals[1])),
        gains=gains,
        knows_forecast=hindsight is not None,
        layouts_differ_s=_first_difference_s(held(one), held(other), min(n_seconds(one), n_seconds(other))),
        causes=_causes(gains, one, other),
    )


def _require_something(one: ReadLog, other: ReadLog, common: Sequence[str], windows: Sequence[int]) -> None:
    if not common:
        of = [", ".join(tenant.name for tenant in log.header.tenants) for log in (one, other)]
        raise MigratorError(f"{one.folder} ({of[0]}) and {other.folder} ({of[1]}) have no tenant in common")
    if one.header.window_s != other.header.window_s:
        lengths = f"{one.header.window_s:g} s in {one.folder}, {other.header.window_s:g} s in {other.folder}"
        raise MigratorError(f"windows have {lengths}: nothing can be compared by window")
    if not windows:
        raise MigratorError(f"{one.folder} and {other.folder} have no settled window in common")


def _require_same_requests(
    one: ReadLog,
    own: Mapping[str, SecondAccounts],
    known: Mapping[str, SecondAccounts],
    names: Sequence[str],
    seconds: Sequence[int],
) -> None:
    for name in names:
        came, simulated = own[name].arrivals, known[name].arrivals if name in known else np.zeros(0)
        n = max(seconds, default=-1) + 1
        if len(simulated) < n or not np.array_equal(came[seconds], simulated[seconds]):
            raise MigratorError(
                f"{one.folder}: {CONFIG_FILE} and its traces give other requests of {name} now than the run had"
            )


def _with_forecast(
    log: ReadLog, own: Mapping[str, SecondAccounts], known: Mapping[str, SecondAccounts], names: Sequence[str]
) -> dict[str, SecondAccounts]:
    if log.header.sharing != "instances":
        raise MigratorError(
            f"{log.folder}: {log.header.policy} has no instances, so that nothing tells what a forecast cost it"
        )
    found = dict(own)
    for name in names:
        in_time = np.zeros(len(own[name].arrivals))
        n = min(len(in_time), len(known[name].in_time))
        in_time[:n] = known[name].in_time[:n]
        found[name] = own[name].with_forecast(in_time)
    return found


def _pct(part: float, of: float) -> float:
    return 100 * part / of if of else 0.0


def _seconds(log: ReadLog, window: int, left_out: frozenset[int]) -> list[int]:
    window_s = round(log.header.window_s)
    return [second for second in range(window * window_s, (window + 1) * window_s) if second not in left_out]


def _gain(
    known: Sequence[Mapping[str, SecondAccounts]], name: str, seconds: Sequence[int], arrivals: Sequence[float]
) -> dict[str, float]:
    def lost_pct(index: int, row: str) -> float:
        return _pct(float(getattr(known[index][name], row)[seconds].sum()), arrivals[index])

    found = {row: lost_pct(1, row) - lost_pct(0, row) for row in ROWS[:-1]}
    return {**found, "mix": -lost_pct(1, "arrivals") + lost_pct(0, "arrivals")}


# --- what is not the same


def _unlike(one: ReadLog, other: ReadLog, *, same_requests: bool) -> Iterator[str]:
    if not same_requests:
        yield "requests: others came, so that shares alone are compared"
    versions = [log.entries[0].wall.version for log in (one, other)]
    if None not in versions and versions[0] != versions[1]:
        yield f"version: {versions[0]} against {versions[1]}"
    if one.header.policy != other.header.policy:
        yield f"policy: {one.header.policy} against {other.header.policy}"
    configs = [_flat(_config(log)) for log in (one, other)]
    for log, config in zip((one, other), configs, strict=True):
        if not config:
            yield f"config: {log.folder / CONFIG_FILE} cannot be read any more, so that its keys cannot be compared"
    told = {key: values for key, values in _differing(*configs) if key != "name"} if all(configs) else {}
    for key, values in _differing(*(_flat(to_builtins(log.header)) for log in (one, other))):
        if key.rpartition(".")[2] not in _DERIVED and key not in told:
            told[f"as run, {key}"] = values
    for key, values in told.items():
        yield f"{key}: {values[0]} against {values[1]}"


def _config(log: ReadLog) -> Mapping[str, object]:
    """The run's config file; nothing where it is gone or cannot be read."""
    try:
        return read_document(log.folder / CONFIG_FILE, LogError)
    except LogError:
        return {}


def _flat(value: Any, path: str = "") -> dict[str, object]:
    """Leaves by their dotted path; items of a list of named things by their names."""
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif (
        isinstance(value, list | tuple)
        and value
        and all(isinstance(item, Mapping) and "name" in item for item in value)
    ):
        items = [(str(item["name"]), item) for item in value]
    else:
        return {path: value}
    return {key: leaf for name, item in items for key, leaf in _flat(item, f"{path}.{name}" if path else name).items()}


def _differing(one: Mapping[str, object], other: Mapping[str, object]) -> Iterator[tuple[str, tuple[object, object]]]:
    for key in dict.fromkeys([*one, *other]):
        values = one.get(key, "nothing"), other.get(key, "nothing")
        if values[0] != values[1]:
            yield key, values


def _left_out(one: ReadLog, other: ReadLog, names: Sequence[Sequence[str]], n_blind: int) -> Iterator[str]:
    if n_blind:
        yield f"{n_blind:,} seconds in which the state of one of the GPUs is unknown"
    for log, own, others in ((one, names[0], names[1]), (other, names[1], names[0])):
        for name in own:
            if name not in others:
                yield f"{name} is in {log.folder} alone"
    for log, against in ((one, other), (other, one)):
        if windows := sorted(set(log.settled) - set(against.settled)):
            yield f"window{'s' if len(windows) > 1 else ''} {', '.join(map(str, windows))} of {log.folder} alone"


# --- layouts and causes


_Edge = tuple[float, tuple[str, str, str], int]
"""When, what (a place, whose, for what), and by how much the number of those that hold it changes."""


def _first_difference_s(one: Sequence[HeldSpan], other: Sequence[HeldSpan], end_s: float) -> float | None:
    """When, first and before ``end_s``, the two do not hold the same for the same."""

    def edges(spans: Sequence[HeldSpan], weight: int) -> Iterator[_Edge]:
        for span in spans:
            key = span.what, span.tenant or "", span.phase
            yield span.begin_s, key, weight
            yield span.end_s, key, -weight

    balance: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for at_s, together in groupby(sorted([*edges(one, 1), *edges(other, -1)]), key=lambda edge: edge[0]):
        for _, key, weight in together:
            balance[key] += weight
        if at_s >= end_s:
            return None
        if any(balance.values()):
            return float(at_s)
    return None


def _causes(gains: Sequence[Gain], one: ReadLog, other: ReadLog) -> tuple[GainCause, ...]:
    each = [
        GainCause(gain.window, gain.tenant, row, points)
        for gain in gains
        for row, points in gain.by_row.items()
        if row != "mix"
    ]
    largest = heapq.nlargest(N_CAUSES, each, key=lambda cause: abs(cause.points))
    largest = [cause for cause in largest if abs(cause.points) >= _LEAST_POINTS]
    if not largest:
        return ()
    models = [new_models(log) for log in (one, other)]
    able = [courses(log) for log in (one, other)]
    window_s = round(one.header.window_s)
    return tuple(
        replace(cause, why=_why(cause, models, [own[cause.tenant] for own in able], window_s)) for cause in largest
    )


def _why(cause: GainCause, models: Sequence[Sequence[NewModel]], able: Sequence[TenantTrack], window_s: int) -> str:
    """What the logs say that may explain a gain: of models, or of what could be answered."""
    seconds = slice(cause.window * window_s, (cause.window + 1) * window_s)
    if cause.row in ("wrong_old", "wrong_new"):
        own = [
            [one for one in found if one.tenant == cause.tenant and seconds.start <= one.at_s < seconds.stop]
            for found in models
        ]
        if own[0] and own[1]:
            later_s = own[0][0].at_s - own[1][0].at_s
            when = (
                "at the same time"
                if abs(later_s) < 0.5
                else f"{abs(later_s):.0f} s {'later' if later_s > 0 else 'earlier'}"
            )
            after = [100 * found[-1].after for found in own]
            to = f", to {after[0]:.1f} % instead of {after[1]:.1f} %" if abs(after[0] - after[1]) >= 0.05 else ""
            return f"a new model {when}{to}"
        if own[0] or own[1]:
            return "a new model, the other had none" if own[0] else "no new model, the other had one"
        begun = [100 * course.accuracy[seconds.start] for course in able]
        return f"a model {begun[0]:.1f} % right instead of {begun[1]:.1f} %" if abs(begun[0] - begun[1]) >= 0.05 else ""
    if cause.row in ("capacity", "reconfiguration", "forecast"):
        means = [np.nan_to_num(own.could[seconds]).mean() for own in able]
        if round(means[0]) != round(means[1]):
            return f"what served could answer {means[0]:,.0f} requests a second instead of {means[1]:,.0f}"
    return ""
