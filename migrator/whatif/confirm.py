"""What simulated runs *keep* of a search's conditions, where its plans only *promise* them, and which value keeps last.

A value is judged by whole runs, policy ``migrator``, of all the config's windows, with the config's seed and the two
that follow it. One seed looks for the limit, all three then judge both of its ends. It is assumed, as in any bisection,
that what holds at a value holds at every easier one; where values that were simulated are uneven, more room is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from migrator.comparison.matches import simulated
from migrator.errors import ConfigSloError, InfeasibleError
from migrator.inputs.assembly import assemble
from migrator.whatif.grid import Choice, Factor
from migrator.whatif.search import METRICS, N_HALVINGS, Condition, Found, GoalSearch, Verdict, number_of, with_number
from migrator.whatif.sweep import Case
from planner.policies.ours import Migrator
from workloads.arrays import FloatArray

N_SEEDS = 3
"""The config's seed, and those that follow it."""

TOLERANCE = 0.025
"""The two ends of an answer are at most so far apart, as a share of the larger one, unless noise drives them apart."""

_Z = 1.96
"""The normal quantile of 39 in 40, from one side."""

_EPS = 1e-9

Kept = Mapping[str, FloatArray]
"""What a run came to: by tenant, ``(n_windows, 3)``: arrivals, those answered in time and right, and in time."""


def run_of(case: Case) -> Kept | None:
    """What a case's whole run keeps, simulated; ``None`` where no profile meets an SLO or there is no first plan.

    Raises:
        PlannerError: The engine cannot answer.
    """
    try:
        setting, traffic = assemble(case.config, case.origin)
        settled = simulated(setting, traffic, Migrator()).settled.values()
    except (ConfigSloError, InfeasibleError):
        return None
    return {
        tenant.name: np.array(
            [
                [sum(getattr(one.tenants[tenant.name], key)) for key in ("arrivals", "correct", "in_time")]
                for one in settled
            ],
            dtype=np.float64,
        )
        for tenant in setting.tenants
    }


@dataclass(frozen=True, slots=True)
class KeptShare:
    """A share that runs of several seeds kept, over all windows.

    Attributes:
        mean: Of the seeds; ``None`` without arrivals, without that tenant, or where a run could not begin.
        error: Its standard error, by how seeds differ window by window; ``None`` with one seed.
        room: By how much the mean of as many other seeds lies below it 39 times in 40 at most; 0 with one seed.
    """

    mean: float | None
    error: float | None = None
    room: float = 0.0


def share_kept(condition: Condition, runs: Sequence[Kept], weights: Mapping[str, float]) -> KeptShare:
    """What runs kept of a condition's metric; goodput of all tenants is weighted, as in plans."""
    weighs = condition.metric == "goodput" and condition.tenant is None
    column = 1 + METRICS.index(condition.metric)
    names = [name for name in runs[0] if condition.tenant in (None, name)]
    if not names:
        return KeptShare(None)
    factors = [weights[name] if weighs else 1.0 for name in names]
    counts = np.array([np.tensordot(factors, [run[name] for name in names], axes=1) for run in runs])
    arrivals, kept = counts[..., 0], counts[..., column]  # by seed and window
    totals = arrivals.sum(axis=1)
    if not totals.all():
        return KeptShare(None)
    mean = float((kept.sum(axis=1) / totals).mean())
    if len(runs) == 1:
        return KeptShare(mean)
    strays = (kept - mean * arrivals).var(axis=0, ddof=1).sum()
    error = float(math.sqrt(strays / len(runs)) / totals.mean())
    return KeptShare(mean, error, _quantile(arrivals.shape[1] * (len(runs) - 1)) * math.sqrt(2) * error)


def _quantile(n_free: int) -> float:
    """Student's t of 39 in 40, from one side, within 4 % from two degrees of freedom on (Cornish and Fisher)."""
    square = _Z**2
    terms = (square + 1, (5 * square**2 + 16 * square + 3) / 6, (3 * square**3 + 19 * square**2 + 17 * square - 15) / 6)
    return _Z * (1 + sum(term / (4.0 * n_free) ** power for power, term in enumerate(terms, 1)))


@dataclass(frozen=True, slots=True)
class Trial:
    """A value that was simulated.

    Attributes:
        choice: The value.
        seeds: With which seeds.
        shares: What was kept of each condition.
        verdict: ``holds``: all are kept, with room for the noise; ``fails``: the mean of one is not; ``not shown``:
            kept by less than the noise, or by too little for how uneven the values around it are.
    """

    choice: Choice
    seeds: tuple[int, ...]
    shares: tuple[KeptShare, ...]
    verdict: Verdict


def _verdict(condition: Condition, share: KeptShare) -> Verdict:
    if share.mean is None:
        return Verdict.FAILS
    spare = condition.spare(share.mean)
    if spare < -_EPS:
        return Verdict.FAILS
    return Verdict.HOLDS if spare + _EPS >= share.room else Verdict.NOT_SHOWN


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What simulations say of a search's answer.

    Attributes:
        start: The plans' answer, cut to what the tolerance justifies; the easiest value where they have none.
        trials: Everything that was simulated, from the easy end to the hard one.
        seeds: With which the ends are judged.
        holds: The answer: the last value that is kept; the easiest one also where that is by too little.
        breaks: The first value that is not kept; ``None`` where all are.
    """

    start: Choice
    trials: tuple[Trial, ...]
    seeds: tuple[int, ...]
    holds: Trial | None
    breaks: Trial | None


Simulated = Callable[[Sequence[tuple[Choice, int]]], Sequence[Kept | None]]
"""Runs with these choices and seeds; what they keep, in their order."""


def confirm(
    found: Found, seed: int, weights: Mapping[str, float], simulate: Simulated, tell: Callable[[Trial], None]
) -> Confirmed:
    """Which value simulations keep last; begins at the plans' answer. ``seed`` is the config's, ``weights`` by tenant.

    ``tell`` hears of each value as it is judged.
    """
    line, seeds = _Line(found), tuple(range(seed, seed + N_SEEDS))
    simulations = _Simulations(found.conditions, line, seeds, weights, simulate, tell)
    judge, trials = simulations.judge, simulations.trials
    tries = line.first()
    held: Choice | None = None
    broken: Choice | None = None
    while tries:
        judge(tries, seeds[:1])
        order = sorted(trials, key=line.hardness)
        n_held = next((n for n, one in enumerate(order) if trials[one].verdict is not Verdict.HOLDS), len(order))
        held, broken = (order[n] if 0 <= n < len(order) else None for n in (n_held - 1, n_held))
        tries = line.between(held, broken)
    down = up = TOLERANCE
    while True:
        judge([one for one in (held, broken) if one is not None], seeds)
        if held is not None and trials[held].verdict is not Verdict.HOLDS:
            broken = held if trials[held].verdict is Verdict.FAILS else broken
            held, down = line.away(held, -down), 2 * down
        elif broken is not None and trials[broken].verdict is not Verdict.FAILS:
            held = broken if trials[broken].verdict is Verdict.HOLDS else held
            broken, up = line.away(broken, up), 2 * up
        elif held is not None and not simulations.stands(held, broken):
            held, down = line.away(held, -down), 2 * down
        elif (middle := line.middle(held, broken)) is not None:
            judge([middle], seeds)
            if trials[middle].verdict is Verdict.NOT_SHOWN:
                break
            held, broken = (middle, broken) if trials[middle].verdict is Verdict.HOLDS else (held, middle)
        else:
            break
    every = tuple(trials[one] for one in sorted(trials, key=line.hardness))
    if held is None and every[0].verdict is Verdict.NOT_SHOWN:
        held = every[0].choice
    ends = (None if one is None else trials[one] for one in (held, broken))
    return Confirmed(line.start, every, seeds, *ends)


class _Simulations:
    """What was simulated, and what is to be said of it.

    Attributes:
        trials: Every value's, with the most seeds.
        alone: Every value's with the config's seed.
    """

    def __init__(
        self,
        conditions: Sequence[Condition],
        line: _Line,
        seeds: tuple[int, ...],
        weights: Mapping[str, float],
        simulate: Simulated,
        tell: Callable[[Trial], None],
    ) -> None:
        self._conditions, self._line, self._seeds = conditions, line, seeds
        self._weights, self._simulate, self._tell = weights, simulate, tell
        self._runs: dict[tuple[Choice, int], Kept | None] = {}
        self.trials: dict[Choice, Trial] = {}
        self.alone: dict[Choice, Trial] = {}

    def judge(self, choices: Sequence[Choice], seeds: tuple[int, ...]) -> None:
        """Simulate what is not yet, and tell of each value that had other seeds."""
        new = [(choice, one) for choice in choices for one in seeds if (choice, one) not in self._runs]
        self._runs.update(zip(new, self._simulate(new) if new else (), strict=True))
        for choice in choices:
            if choice not in self.trials or self.trials[choice].seeds != seeds:
                self.trials[choice] = self._trial(choice, seeds)
                self.alone.setdefault(choice, self._trial(choice, seeds[:1]))
                self._tell(self.trials[choice])

    def _trial(self, choice: Choice, seeds: tuple[int, ...]) -> Trial:
        began = [run for one in seeds if (run := self._runs[choice, one]) is not None]
        whole = len(began) == len(seeds)
        shares = tuple(share_kept(one, began, self._weights) if whole else KeptShare(None) for one in self._conditions)
        verdicts = [_verdict(*pair) for pair in zip(self._conditions, shares, strict=True)]
        worst = next((one for one in (Verdict.FAILS, Verdict.NOT_SHOWN) if one in verdicts), Verdict.HOLDS)
        return Trial(choice, seeds, shares, worst)

    def stands(self, held: Choice, broken: Choice | None) -> bool:
        """Whether nothing beside the last value that is kept speaks against it; if something does, it is not shown.

        Chance decides between plans of unlike worth where an easier value kept less than a harder one: the value has
        as much room then. And where what is kept falls off a cliff, seeds differ in where: the value, the next harder
        one that all seeds judged, and the one opposite to that, which may have to be simulated, keep the conditions
        on average.
        """
        if not isinstance(held.value, float | Factor) or all(
            self._is_even(number, held, broken) for number in range(len(self._conditions))
        ):
            return True
        self.trials[held] = replace(self.trials[held], verdict=Verdict.NOT_SHOWN)
        self._tell(self.trials[held])
        return False

    def _is_even(self, number: int, held: Choice, broken: Choice | None) -> bool:
        """Whether values up to ``broken`` are, by this condition alone."""
        hardness = self._line.hardness
        judged = [one for one, trial in self.trials.items() if trial.seeds == self._seeds]
        harder = min((one for one in judged if hardness(one) > hardness(held)), key=hardness, default=None)
        easier = None if harder is None else self._line.opposite(held, harder)
        if easier is not None and easier not in self.alone:
            self.judge([easier], self._seeds[:1])
        last = math.inf if broken is None else hardness(broken)
        order = [one for one in sorted(self.alone, key=hardness) if hardness(one) <= last]
        spare = [self._spare(self.alone[one], number) for one in order]
        own = self._spare(self.trials[held], number)
        if own + _EPS < (np.maximum.accumulate(spare[::-1])[::-1] - spare).max():
            return False
        # Where no run can begin, all seeds agree.
        if harder is None or easier is None or self.trials[harder].shares[number].mean is None:
            return True
        before, here = spare[order.index(easier)], spare[order.index(held)]
        return 2 * own + before - here + self._spare(self.trials[harder], number) >= -_EPS

    def _spare(self, trial: Trial, number: int) -> float:
        """By how much a condition is kept; where no run can begin it is missed by the whole."""
        mean = trial.shares[number].mean
        return -1.0 if mean is None else self._conditions[number].spare(mean)


class _Line:
    """The values of a search from the easy end to the hard one, and those between them."""

    def __init__(self, found: Found) -> None:
        self._search: GoalSearch = found.search
        self._sign = 1 if found.search.direction == "max" else -1
        values = [one for one in found.search.choices if one not in found.unmeasured]
        self._step = 0.0
        if found.search.is_of_models:
            values.reverse()
        else:
            self._step = abs(number_of(values[-1]) - number_of(values[0])) / len(values)
            inner = [self._rounded(one, number_of(one), self._step) for one in values[1:-1]]
            values = list(dict.fromkeys((values[0], *inner, values[-1])))
        self._grid = values
        self.start = self._grid[0] if found.holds is None else self._cut(found.holds)

    def hardness(self, choice: Choice) -> float:
        """Grows from the easy end to the hard one."""
        return self._grid.index(choice) if self._search.is_of_models else self._sign * number_of(choice)

    def first(self) -> list[Choice]:
        """Where to begin: at the plans' answer, and the next value of the grid beyond it."""
        return [self.start, *[one for one in self._grid if self.hardness(one) > self.hardness(self.start)][:1]]

    def between(self, held: Choice | None, broken: Choice | None) -> list[Choice]:
        """One or two values that divide what lies between into thirds; none where that is narrow enough."""
        low, high = (
            -math.inf if held is None else self.hardness(held),
            math.inf if broken is None else self.hardness(broken),
        )
        inside = [one for one in self._grid if low < self.hardness(one) < high]
        if inside:
            return list(dict.fromkeys((inside[len(inside) // 3], inside[2 * len(inside) // 3])))
        if held is None or broken is None or self._search.is_of_models:
            return []
        first, width = number_of(held), number_of(broken) - number_of(held)
        finest = max(TOLERANCE * max(first, first + width), self._step / 2**N_HALVINGS)
        if abs(width) <= finest:
            return []
        thirds = (self._rounded(held, first + part * width / 3, width / 3) for part in (1, 2))
        return [one for one in dict.fromkeys(thirds) if one not in (held, broken)]

    def opposite(self, held: Choice, harder: Choice) -> Choice | None:
        """The mirror of the harder value, to the easy side; ``None`` beyond the grid."""
        width = number_of(held) - number_of(harder)
        there = self._rounded(held, number_of(held) + width, width)
        return there if self.hardness(there) > self.hardness(self._grid[0]) else None

    def middle(self, held: Choice | None, broken: Choice | None) -> Choice | None:
        """The value half way, where the ends have moved further apart than twice the tolerance."""
        if held is None or broken is None or not isinstance(held.value, float | Factor):
            return None
        first, width = number_of(held), number_of(broken) - number_of(held)
        if abs(width) <= max(2 * TOLERANCE * max(first, first + width), self._step / 2**N_HALVINGS):
            return None
        return self._rounded(held, first + width / 2, width / 2)

    def away(self, choice: Choice, step: float) -> Choice | None:
        """The value at this distance, as a share, to the hard end (below 0: the easy one); ``None`` beyond the grid."""
        end = self._grid[-1 if step > 0 else 0]
        if choice == end:
            return None
        if self._search.is_of_models:
            return self._grid[self._grid.index(choice) + (1 if step > 0 else -1)]
        by = step * max(number_of(choice), self._step)
        if isinstance(choice.value, int):
            by = math.copysign(max(1, round(abs(by))), step)
        there = self._rounded(choice, number_of(choice) + self._sign * by, by)
        return there if (self.hardness(end) - self.hardness(there)) * step > 0 else end

    def _cut(self, choice: Choice) -> Choice:
        """The value with no more digits than the tolerance justifies, rounded to the easy side."""
        if choice in (self._grid[0], self._grid[-1]) or not isinstance(choice.value, float | Factor):
            return choice
        unit = 10.0 ** math.floor(math.log10(TOLERANCE * number_of(choice)))
        cut = self._sign * math.floor(self._sign * number_of(choice) / unit + _EPS) * unit
        return max(with_number(choice, cut), self._grid[0], key=self.hardness)

    def _rounded(self, choice: Choice, number: float, width: float) -> Choice:
        return with_number(choice, round(number, -math.floor(math.log10(abs(width)))))


def with_seed(case: Case, seed: int) -> Case:
    """The case with another seed."""
    return replace(case, config=case.config.model_copy(update={"seed": seed}))
