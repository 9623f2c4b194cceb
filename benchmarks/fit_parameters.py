"""Which parameters of the policies are best on the first halves of the traces; the configs measure on the second.

Usage: python -m benchmarks.fit_parameters [reactive] [astraea] [migrator] [pace]

Simulates the sixteen workloads of the paper's Table 4, moved into the first halves, under every setting of each policy
named (all without a name), two windows each, and prints one Markdown table a policy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from benchmarks.paper.experiments import AT_ONCE
from benchmarks.paper.workloads import ALIBABA, CIFAR, CONFIGS, CORE, OFFSETS_S, Workload, workloads
from migrator.compare import Match, over_each_segment, score_of
from migrator.config import REPLAN_EVERY_S, Config, ForecastConfig, read_config
from migrator.parallel import Processes, n_cores
from planner.policies.astraea import Astraea
from planner.policies.reactive import Reactive
from planner.policies.registry import policy_of

N_WINDOWS = 2
"""As in most tables of the results."""

WEEK_S = 604_800
"""Half of the Alibaba trace."""

AZURE_OFFSETS_S = {CIFAR: 600, CORE: 1_200}
"""Where window 0 begins in the Azure trace: from where there is history, and as much later."""

FIRST_OFFSETS_S = {
    (trace, images): offset_s - WEEK_S if trace == ALIBABA else AZURE_OFFSETS_S[images]
    for (trace, images), offset_s in OFFSETS_S.items()
}
"""The same by trace; for Alibaba a week before the config's, so at the same hour, and as far from the changes of
ServeGen's rates."""

LEAST_GAIN = 0.05
"""Points of goodput % by which another setting has to be better than the one in use to be taken instead."""

Each = Callable[[Callable[[Match], float], Sequence[Match]], Iterable[tuple[int, float]]]
"""Calls a function on every item: (place of the item, its result), in any order."""


@dataclass(frozen=True)
class Setting:
    """A policy with values for its parameters.

    Attributes:
        policy: Its name.
        parameters: Of its class.
        forecast: Keys of the config's ``forecast``,
        planner: and of its ``planner``.
    """

    policy: str
    parameters: Mapping[str, float]
    forecast: Mapping[str, object]
    planner: Mapping[str, object] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, object]:
        """All that it sets."""
        return {**self.forecast, **self.planner, **self.parameters}


@dataclass(frozen=True)
class Grid:
    """Settings of one policy that are tried.

    Attributes:
        settings: In the order of the table.
        in_use: The one of them that the product has now.
        interferences: Values of ``simulation.interference`` to simulate with; the mean decides.
    """

    settings: tuple[Setting, ...]
    in_use: Setting
    interferences: tuple[float, ...] = (1.0,)


@dataclass(frozen=True)
class Measured:
    """What came of a setting.

    Attributes:
        setting: Which.
        goodput_pct: By interference, then by workload.
    """

    setting: Setting
    goodput_pct: tuple[tuple[float, ...], ...]

    @property
    def mean_pct(self) -> float:
        """Every workload and every interference counts the same."""
        return fmean(map(fmean, self.goodput_pct))


def _over(policy: str, in_use: Mapping[str, float], values: Sequence[Sequence[float]]) -> Grid:
    """All combinations of values of the parameters that ``in_use`` names."""
    settings = (Setting(policy, dict(zip(in_use, chosen, strict=True)), {}) for chosen in product(*values))
    return Grid(tuple(settings), Setting(policy, in_use, {}))


def _reactive() -> Grid:
    now = Reactive()
    in_use = {"n_seen": now.n_seen, "threshold": now.threshold}
    return _over("reactive", in_use, ((10, 20, 40, 80, 160), (0.01, 0.02, 0.05, 0.1)))


def _astraea() -> Grid:
    now = Astraea()
    in_use = {"n_seen": now.n_seen, "headroom": now.headroom, "floor": now.floor}
    grid = _over("astraea", in_use, ((1, 3), (1.0, 2.0, 3.0), (1, 6, 7, 8)))
    return replace(grid, interferences=(1.0, 0.25))


def _forecast() -> Grid:
    half_lives_s = (15.0, 30.0, 60.0, 120.0, 240.0)
    keys: list[dict[str, object]] = [{"method": "ewma", "half_life_s": seconds} for seconds in half_lives_s]
    keys.append({"method": "seasonal-naive"})
    now = ForecastConfig()
    in_use = Setting("migrator", {}, {"method": "ewma", "half_life_s": now.half_life_s})
    return Grid(tuple(Setting("migrator", {}, own) for own in keys), in_use)


def _pace() -> Grid:
    paces: tuple[float | str, ...] = ("never", 1.0, 5.0, 10.0, 20.0, 50.0)
    settings = tuple(Setting("migrator", {}, {}, {"replan_every_s": pace}) for pace in paces)
    in_use = next(own for own in settings if own.planner["replan_every_s"] == REPLAN_EVERY_S)
    return Grid(settings, in_use)


GRIDS = {"reactive": _reactive(), "astraea": _astraea(), "migrator": _forecast(), "pace": _pace()}
"""By policy; that of ``migrator`` is over the forecaster, which others that forecast have as well, and ``pace`` over
how often ``migrator`` plans the rest of a window anew."""


def config_of(workload: Workload, setting: Setting, interference: float = 1.0, n_windows: int = N_WINDOWS) -> Config:
    """The workload's config, moved into the first halves, with the setting's forecaster."""
    planner = {"planner": {**AT_ONCE["planner"], **setting.planner}}
    changes = {"simulation": {"interference": interference}, "forecast": dict(setting.forecast), **planner}
    config = over_each_segment(read_config(CONFIGS / f"w{workload.number}.yaml", windows=n_windows, **changes))
    tenants = []
    for tenant in config.tenants:
        assert tenant.arrivals.trace is not None  # the workloads have traces throughout
        offset_s = FIRST_OFFSETS_S[tenant.arrivals.trace, workload.images]
        arrivals = tenant.arrivals.model_copy(update={"offset_s": offset_s})
        tenants.append(tenant.model_copy(update={"arrivals": arrivals}))
    return config.model_copy(update={"tenants": tenants})


def policy_in(folder: Path, setting: Setting) -> str:
    """What a match takes for the setting's policy: its name, or a file, written to the folder, that sets parameters."""
    if not setting.parameters:
        return setting.policy
    known = type(policy_of(setting.policy))
    path = folder / f"{'-'.join(map(str, (setting.policy, *setting.parameters.values())))}.py"
    path.write_text(
        f"from functools import partial\n\nfrom {known.__module__} import {known.__name__}\n\n"
        f"POLICY = partial({known.__name__}, **{dict(setting.parameters)!r})\n",
        "utf-8",
    )
    return str(path)


def goodput_pct(match: Match) -> float:
    """Simulated: in time and right, of all arrivals.

    Raises:
        ValueError: Nothing arrived.
    """
    found = score_of(match).total.goodput_pct
    if found is None:
        raise ValueError(f"{match.origin}: no arrivals")
    return found


def measured(grid: Grid, chosen: Sequence[Workload], each: Each, n_windows: int = N_WINDOWS) -> list[Measured]:
    """Every setting of the grid on the workloads, in order."""
    with TemporaryDirectory() as folder:
        matches = [
            Match(policy, config_of(workload, setting, strength, n_windows), f"w{workload.number}", 0)
            for setting in grid.settings
            for policy in [policy_in(Path(folder), setting)]
            for strength in grid.interferences
            for workload in chosen
        ]
        found = dict(each(goodput_pct, matches))
    results = iter([found[place] for place in range(len(matches))])
    return [
        Measured(setting, tuple(tuple(next(results) for _ in chosen) for _ in grid.interferences))
        for setting in grid.settings
    ]


def best_of(grid: Grid, found: Sequence[Measured]) -> Setting:
    """The setting with the highest mean; the one in use if that is less than ``LEAST_GAIN`` behind."""
    best = max(found, key=lambda one: one.mean_pct)
    return grid.in_use if best.mean_pct - _in_use(grid, found).mean_pct < LEAST_GAIN else best.setting


def _in_use(grid: Grid, found: Sequence[Measured]) -> Measured:
    return next(one for one in found if one.setting == grid.in_use)


def table(grid: Grid, found: Sequence[Measured]) -> str:
    """Goodput % as the mean of workloads, by setting, and by how many points that is above the setting in use."""
    names = list(dict.fromkeys(name for setting in grid.settings for name in setting.values))
    strengths = [f"interference {strength:g}" for strength in grid.interferences if len(grid.interferences) > 1]
    heads = [*names, *strengths, "goodput %, mean of workloads", "over the one in use", "better on", ""]
    now, best = _in_use(grid, found), best_of(grid, found)
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for one in found:
        ahead = [own - other for own, other in zip(_by_workload(one), _by_workload(now), strict=True)]
        cells = [str(one.setting.values.get(name, "")) for name in names]
        cells += [f"{fmean(values):.2f}" for values in one.goodput_pct if strengths]
        cells += [f"{one.mean_pct:.2f}", f"{fmean(ahead):+.2f}", f"{sum(gain > 0 for gain in ahead)} of {len(ahead)}"]
        marks = [mark for mark, which in (("in use", grid.in_use), ("best", best)) if one.setting == which]
        lines.append("| " + " | ".join([*cells, ", ".join(marks)]) + " |")
    return "\n".join(lines)


def _by_workload(one: Measured) -> list[float]:
    return [fmean(values) for values in zip(*one.goodput_pct, strict=True)]


def _shown(each: Each) -> Each:
    """The same, with its progress on standard error."""

    def counted(function: Callable[[Match], float], items: Sequence[Match]) -> Iterator[tuple[int, float]]:
        for n_done, result in enumerate(each(function, items), 1):
            print(f"\r  {n_done} of {len(items)} simulated", end="", file=sys.stderr, flush=True)
            yield result
        print(file=sys.stderr)

    return counted


def main(policies: Sequence[str]) -> None:
    """Print the tables of these policies, all without a name."""
    unknown = [policy for policy in policies if policy not in GRIDS]
    if unknown:
        sys.exit(f"policy {unknown[0]!r}: known are {', '.join(GRIDS)}")
    with Processes(n_cores()) as processes:
        for policy in policies or GRIDS:
            grid = GRIDS[policy]
            found = measured(grid, workloads(), _shown(processes.each))
            print(f"## {policy}\n\n{table(grid, found)}\n\nBest: {best_of(grid, found).values}\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
