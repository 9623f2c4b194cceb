"""What is to be kept, ``goodput>=0.8`` or ``slo_attainment:vision>=0.99``, and which value of a search keeps it last.

Everything here is *planned*: what plans promise, not what a simulation answers. A plan that keeps a condition shows
that it can be kept. One that does not is the last word only where nothing better can be had: where the bound on goodput
that its certificate proves lies below what is asked, or where that proves it best (of goodput of all: without salvage).
Else nothing is shown, whatever the engine claims.

``--find max:load`` looks for the last value that keeps what is asked, and the first that does not.
A grid of twelve values from the easy end to the hard one, then the interval in which the conditions are first broken is
halved again and again. For ``min:gpu`` the catalogue is the grid, in order of size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from executor.catalogue import gpu_model, gpu_model_names
from executor.mig import GpuModel
from executor.names import did_you_mean
from migrator.config.sections import Config
from migrator.errors import GridError
from migrator.whatif.grid import Choice, Factor, choice_of, shown
from migrator.whatif.sweep import PointOutcome
from planner.plan import OPTIMAL_GAP, Status

METRICS = ("goodput", "slo_attainment")
"""Shares of the expected arrivals: in time and right, and in time."""

_TEXT = re.compile(r"\s*(\w+)\s*(?::\s*([^<>=\s]+)\s*)?(>=|<=)\s*([0-9.eE+-]+)\s*(%?)\s*")

_EPS = 1e-9


class Verdict(StrEnum):
    """Whether a condition is kept at a point."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True, slots=True)
class Condition:
    """A share that is to be kept.

    Attributes:
        metric: One of ``METRICS``.
        tenant: Whose; ``None`` for all together.
        sign: In which direction.
        share: From 0 to 1.
    """

    metric: str
    tenant: str | None
    sign: Literal[">=", "<="]
    share: float

    def __str__(self) -> str:
        return f"{self.metric}{'' if self.tenant is None else f':{self.tenant}'}{self.sign}{self.share:g}"

    def spare(self, share: float) -> float:
        """By how much the share keeps it; below 0 where it does not."""
        return share - self.share if self.sign == ">=" else self.share - share

    def value(self, outcome: PointOutcome) -> float | None:
        """What the plan of a point promises, as a share; ``None`` where that is unknown."""
        found: float | None
        if self.tenant is None:
            found = outcome.goodput_pct if self.metric == "goodput" else outcome.slo_attainment_pct
        else:
            own = next((item for item in outcome.tenants if item.name == self.tenant), None)
            shares = (None, None) if own is None else (own.goodput_pct, own.slo_attainment_pct)
            found = shares[METRICS.index(self.metric)]
        return None if found is None else found / 100

    def verdict(self, outcome: PointOutcome) -> Verdict:
        """Whether the plan of a point promises to keep it."""
        if outcome.status == Status.INFEASIBLE:
            return Verdict.FAILS
        value = self.value(outcome)
        if value is None:
            return Verdict.NOT_SHOWN
        is_of_all = self.metric == "goodput" and self.tenant is None
        bound = outcome.goodput_bound
        most = bound / outcome.arrivals if is_of_all and bound is not None and outcome.arrivals else None
        if self.sign == "<=" and is_of_all:
            # A better plan would have more, so the bound has to keep it.
            return _first(most is not None and most <= self.share + _EPS, value > self.share + _EPS)
        holds = self.spare(value) >= -_EPS
        # The best plan with salvage may have less goodput than another.
        is_best = outcome.gap is not None and outcome.gap <= OPTIMAL_GAP
        is_last_word = is_best and not (is_of_all and outcome.salvage is not None)
        return _first(holds, is_last_word or (most is not None and most < self.share - _EPS))


def _first(holds: bool, fails: bool) -> Verdict:
    return Verdict.HOLDS if holds else Verdict.FAILS if fails else Verdict.NOT_SHOWN


def verdict_of(conditions: Sequence[Condition], outcome: PointOutcome) -> Verdict:
    """Whether all of them are kept: fails if one does, else not shown if one is not."""
    found = [condition.verdict(outcome) for condition in conditions]
    return next((one for one in (Verdict.FAILS, Verdict.NOT_SHOWN) if one in found), Verdict.HOLDS)


def read_conditions(texts: Sequence[str], tenant_names: Sequence[str]) -> tuple[Condition, ...]:
    """The conditions of ``--keep`` arguments.

    Raises:
        GridError: None is given, or one that is no condition, or of an unknown metric or tenant, or of no share.
    """
    if not texts:
        raise GridError("--find needs at least one --keep, such as --keep 'goodput>=0.8'")
    return tuple(_read(text, tenant_names) for text in texts)


def _read(text: str, tenant_names: Sequence[str]) -> Condition:
    option = f"--keep {shown(text)}"
    parts = _TEXT.fullmatch(text)
    if parts is None:
        raise GridError(f"{option}: METRIC>=SHARE or METRIC<=SHARE is needed, such as 'goodput:NAME>=0.8'")
    metric, tenant, sign, number, percent = parts.groups()
    if metric not in METRICS:
        raise GridError(f"{option}: {metric} is no metric; those are {', '.join(METRICS)}")
    if tenant is not None and tenant not in tenant_names:
        raise GridError(f"{option}: {tenant} is no tenant; those are {', '.join(tenant_names)}")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise GridError(f"{option}: a share from 0 to 1 is needed, such as 0.8 or 80%")
    return Condition(metric, tenant, ">=" if sign == ">=" else "<=", share)


N_VALUES = 12
"""Of the grid."""

N_HALVINGS = 6
"""The interval is then a sixty-fourth of the grid's."""

UNMEASURED = "unmeasured"
"""The status of a GPU model without service profiles, or that the config does not fit: nothing is said of it."""

Planned = Callable[[Sequence[Choice]], Sequence[PointOutcome]]
"""Plans the window with each of these choices; outcomes in their order."""


@dataclass(frozen=True, slots=True)
class _Findable:
    """A key that can be looked for.

    Attributes:
        direction: Which end is the hard one.
        low: The least value of the grid by default, as typed.
        high: The greatest; of ``tenants`` as many as the config has.
    """

    direction: Literal["max", "min"]
    low: str
    high: str


_FINDABLE = {
    "load": _Findable("max", "x0.25", "x3"),
    "slo_ms": _Findable("min", "x0.1", "x1.2"),
    "overhead_s": _Findable("max", "x0.25", "x3"),
    "tenants": _Findable("max", "1", ""),
}

_NAMES = (*(f"{entry.direction}:{key}" for key, entry in _FINDABLE.items()), "min:gpu")

_LOADS = ("0.1", "1.2")
"""The grid's ends where the config has a load: at 1 the tenants, one after the other, would fill the GPU."""

_ALLOWED = (
    "max:load, min:slo_ms, max:overhead_s, each also of one tenant (max:NAME.load) or in a range (=LOW..HIGH), "
    "min:gpu and max:tenants"
)


@dataclass(frozen=True, slots=True)
class GoalSearch:
    """What is looked for.

    Attributes:
        direction: ``max`` or ``min``: of the values that keep the conditions.
        choices: The grid, from the easy end to the hard one; GPU models from the smallest to the largest.
    """

    direction: Literal["max", "min"]
    choices: tuple[Choice, ...]

    @property
    def name(self) -> str:
        """The key, after the tenant's name if it has one."""
        return self.choices[0].name

    @property
    def is_of_models(self) -> bool:
        """Whether GPU models are tried, between which there is nothing."""
        return self.choices[0].key == "gpu"


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search.

    Attributes:
        search: What was looked for.
        conditions: What was to be kept.
        outcomes: Of everything that was planned, in the order of the search.
        verdicts: Of each.
    """

    search: GoalSearch
    conditions: tuple[Condition, ...]
    outcomes: tuple[PointOutcome, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What was planned with, in the order of the search."""
        return tuple(_choice_in(outcome, self.search.name) for outcome in self.outcomes)

    @property
    def holds(self) -> Choice | None:
        """The answer: the last value before the first that does not hold; of GPU models the smallest that holds."""
        if self.search.is_of_models:
            return next((one for one, verdict in self._judged if verdict is Verdict.HOLDS), None)
        return self.choices[self._n_held - 1] if self._n_held else None

    @property
    def breaks(self) -> Choice | None:
        """The first value that does not hold, or is not shown to; ``None`` where all hold."""
        return self.choices[self._n_held] if self._n_held < len(self.choices) else None

    @property
    def fails(self) -> Choice | None:
        """The first value that fails."""
        return next((choice for choice, verdict in self._judged if verdict is Verdict.FAILS), None)

    @property
    def again(self) -> tuple[Choice, ...]:
        """Values behind the first that does not hold which hold all the same."""
        rest = self._judged[self._n_held :]
        return tuple(choice for choice, verdict in rest if verdict is Verdict.HOLDS and choice != self.holds)

    @property
    def not_shown(self) -> tuple[Choice, ...]:
        """Values of which nothing is shown, those apart that were not measured."""
        judged = zip(self._judged, self.outcomes, strict=True)
        return tuple(
            choice
            for (choice, verdict), outcome in judged
            if verdict is Verdict.NOT_SHOWN and outcome.status != UNMEASURED
        )

    @property
    def unmeasured(self) -> tuple[Choice, ...]:
        """GPU models without service profiles."""
        judged = zip(self.choices, self.outcomes, strict=True)
        return tuple(choice for choice, outcome in judged if outcome.status == UNMEASURED)

    @property
    def _judged(self) -> tuple[tuple[Choice, Verdict], ...]:
        return tuple(zip(self.choices, self.verdicts, strict=True))

    @property
    def _n_held(self) -> int:
        """How many hold before the first that does not."""
        return next((n for n, one in enumerate(self.verdicts) if one is not Verdict.HOLDS), len(self.verdicts))


def _choice_in(outcome: PointOutcome, name: str) -> Choice:
    return next(choice for choice in outcome.point if choice.name == name)


def read_search(text: str, config: Config) -> GoalSearch:
    """What ``--find`` asks for.

    Raises:
        GridError: It is nothing that can be found, or its range is none.
    """
    direction, colon, rest = text.partition(":")
    name, has_range, ends = rest.partition("=")
    tenant, _, key = name.rpartition(".")
    if key == "gpu" and not tenant and direction == "min" and not has_range:
        return GoalSearch("min", tuple(Choice("gpu", None, model.name) for model in by_size()))
    findable = _FINDABLE.get(key)
    is_plain = not tenant and not has_range
    if not colon or findable is None or direction != findable.direction or (key == "tenants" and not is_plain):
        hint = did_you_mean(f"{direction}:{key}", _NAMES)
        raise GridError(f"--find {shown(text)}{hint}: {_ALLOWED} can be found")
    if tenant and tenant not in (names := [entry.name for entry in config.tenants]):
        raise GridError(f"--find {shown(text)}: {shown(tenant)} is no tenant; those are {', '.join(names)}")
    default = (findable.low, findable.high or str(len(config.tenants)))
    moves = config.load is not None and any(entry.arrivals.scale.factor is None for entry in config.tenants)
    if key == "load" and moves and not tenant:
        default = _LOADS
    low_text, dots, high_text = ends.partition("..") if has_range else (default[0], "..", default[1])
    if not dots:
        raise GridError(f"--find {shown(text)}: a range LOW..HIGH is needed behind =")
    low, high = (choice_of("--find", key, tenant or None, end.strip()) for end in (low_text, high_text))
    if type(low.value) is not type(high.value) or not number_of(low) < number_of(high):
        raise GridError(f"--find {shown(text)}: LOW has to be below HIGH, both values or both factors")
    if key == "load" and not isinstance(low.value, Factor) and not (moves and not tenant):
        raise GridError(f"--find {shown(text)}: no tenant's traffic follows a load here; factors such as x0.5..x2 do")
    width = (number_of(high) - number_of(low)) / (N_VALUES - 1)
    grid = list(dict.fromkeys(with_number(low, number_of(low) + place * width) for place in range(N_VALUES)))
    return GoalSearch(findable.direction, tuple(grid if findable.direction == "max" else reversed(grid)))


def by_size() -> tuple[GpuModel, ...]:
    """The catalogued GPU models from the smallest to the largest: by compute slices, then by memory.

    The memory is the nominal one, which every model's name ends with; usable memory is not known of all.
    """

    def size(model: GpuModel) -> tuple[int, int, str]:
        return model.compute_slices, int(model.name.rpartition("-")[2].removesuffix("gb")), model.name

    return tuple(sorted(map(gpu_model, gpu_model_names()), key=size))


def find(search: GoalSearch, conditions: Sequence[Condition], planned: Planned) -> Found:
    """The result of the search; ``planned`` is asked for the grid at once, then for one value after the other."""
    outcomes = dict(zip(search.choices, planned(search.choices), strict=True))
    order = list(search.choices)
    verdicts = [verdict_of(conditions, outcomes[choice]) for choice in order]
    first = next((place for place, one in enumerate(verdicts) if one is not Verdict.HOLDS), 0)
    if first > 0 and not search.is_of_models:
        held, broken = order[first - 1], order[first]
        for _ in range(N_HALVINGS):
            middle = with_number(held, (number_of(held) + number_of(broken)) / 2)
            if middle in (held, broken):
                break
            (outcomes[middle],) = planned([middle])
            if verdict_of(conditions, outcomes[middle]) is Verdict.HOLDS:
                held = middle
            else:
                broken = middle
        order = sorted(outcomes, key=number_of, reverse=search.direction == "min")
    found = tuple(outcomes[choice] for choice in order)
    return Found(search, tuple(conditions), found, tuple(verdict_of(conditions, outcome) for outcome in found))


def number_of(choice: Choice) -> float:
    """The value of a choice that is no GPU model, factor or not."""
    value = choice.value
    if isinstance(value, Factor):
        return value.by
    assert isinstance(value, (int, float))
    return value


def with_number(choice: Choice, number: float) -> Choice:
    """The choice with another number, to four digits, or the next whole one."""
    if isinstance(choice.value, int):
        return replace(choice, value=round(number))
    rounded = float(f"{number:.4g}")
    return replace(choice, value=Factor(rounded) if isinstance(choice.value, Factor) else rounded)
