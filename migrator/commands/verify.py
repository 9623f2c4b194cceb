"""``migrator verify``: an independent check of a plan file against its problem file, or of the plans of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from migrator.commands.options import Json, with_examples
from migrator.errors import LogError, MigratorError
from migrator.execution.reposing import CheckedPlan, RunCheck
from migrator.inputs.arrival_store import ARRIVALS, ArrivalStore
from migrator.inputs.arrivals import LiveTraffic
from migrator.inputs.assembly import assemble_run
from migrator.inputs.in_force import config_in_force
from migrator.log.eras import eras_of
from migrator.log.records import PlanRevised, WindowStarted
from migrator.log.runlog import CONFIG_FILE, ReadLog, arrival_sums, whole_log
from migrator.terminal.console import counted, escape, note, output, print_json, progress, warn
from migrator.views.as_json import checked_plan_to_json, verification_to_json
from planner.files.plan_file import read_plan
from planner.files.problem_file import read_problem
from planner.verify import verify
from planner.verify.verification import Verification

STRICT = 1e-5
"""By how much the proven gap may exceed the claimed one under ``--strict``."""


@dataclass(frozen=True, slots=True)
class Demands:
    """What a valid plan has to be beside valid.

    Attributes:
        strict: Whether the certificate has to prove the gap that the plan claims, to within :data:`STRICT`.
        max_gap: The largest proven gap, a share of the bound.
        may_miss_floors: Whether a plan may miss floors of in-time answers, as those of a run may, which tells it.
    """

    strict: bool = False
    max_gap: float | None = None
    may_miss_floors: bool = False

    def shortfall(self, found: Verification) -> str | None:
        """Why the plan is not what was asked for, as what comes after its name; ``None`` if it is."""
        if broken := found.broken_rules if self.may_miss_floors else found.violations:
            return f"the plan breaks {counted(len(broken), 'rule')}"
        proven, claimed = found.gap, found.claimed_gap
        if self.strict and proven is None:
            return "the proven gap is none; --strict asks for one"
        if self.strict and proven is not None and claimed is not None and proven > claimed + STRICT:
            return f"the plan claims a gap of {_percent(claimed)}; its certificate proves {_percent(proven)}"
        if self.max_gap is not None and not (proven is not None and proven <= self.max_gap):
            return f"the proven gap is {_percent(proven)}; --max-gap allows {_percent(self.max_gap)}"
        return None


@with_examples("verify plan.json problem.json --max-gap 0.01", "verify runs/quickstart")
def verify_command(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN|RUN", help="A plan, as written by plan --json or --out; or a run's folder.")
    ],
    problem: Annotated[
        Path | None, typer.Argument(help="The problem file that the plan answers; plan --problem-out writes one.")
    ] = None,
    *,
    window: Annotated[int | None, typer.Option(min=0, help="Of a run: only this window's plan.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail where a plan's certificate does not prove the gap that it claims.")
    ] = False,
    max_gap: Annotated[
        float | None, typer.Option(min=0.0, metavar="G", help="Fail beyond this proven gap; 0.01 is 1 %.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print whether a plan, or those of a run, keep every rule, and are as near the best as is demanded.

    Raises:
        MigratorError: A plan is invalid or not what was demanded, or there is none to check; ends with exit code 2.
        PlannerError: A file cannot be read.
        LogError: The folder holds no run, or a damaged log.
        ConfigError: The run's config cannot be used any more: a trace file is gone, for example.
    """
    if (problem is None) is not plan.is_dir():
        raise typer.BadParameter("give a PLAN and the PROBLEM that it answers, or a RUN's folder alone")
    demands = Demands(strict, max_gap)
    if problem is None:
        _verify_run(plan, window=window, demands=demands, as_json=as_json)
    elif window is not None:
        raise typer.BadParameter("--window goes with a RUN; a plan file holds one window")
    else:
        _verify_plan(plan, problem, demands=demands, as_json=as_json)


def _verify_plan(plan_path: Path, problem_path: Path, *, demands: Demands, as_json: bool) -> None:
    """Print every broken rule, the recomputed goodput, and the gaps that certificate and claimed bound leave.

    Raises:
        ProblemError: No problem file.
        PlanFileError: No plan file for this problem.
        MigratorError: The plan is invalid or not what was demanded, or there is none to check; ends with exit code 2.
    """
    problem = read_problem(problem_path)
    plan = read_plan(plan_path, problem)
    if not plan.status.has_plan:
        raise MigratorError(f"{plan_path}: holds no plan to check; its status is {plan.status}")
    found = verify(problem, plan)
    if as_json:
        print_json(verification_to_json(found))
    else:
        print_verification(str(plan_path), found)
    shortfall = demands.shortfall(found)
    if shortfall is not None:
        raise MigratorError(f"{plan_path}: {shortfall}")


def _verify_run(folder: Path, *, window: int | None, demands: Demands, as_json: bool) -> None:
    """Pose the windows of a run anew from its folder, and what was left of them; check the plans in its log.

    Raises:
        LogError: No run, or a damaged log.
        ConfigError: The run's config cannot be used any more: a trace file is gone, for example.
        MigratorError: No such window, a plan that is invalid or not what was demanded, or a window that cannot be
            posed anew; ends with exit code 2.
    """
    log = whole_log(folder)
    windows = [started.window for started in log.of(WindowStarted)]
    if window is not None and window not in windows:
        raise MigratorError(f"--window is {window}; the log of {folder} has {_numbers(windows)}")
    eras = [*eras_of(log)]
    with progress().status("posing the run's windows anew"):
        checked = [item for era in eras for item in _checked(era, window)]
    n_revised = sum(len(one.of(PlanRevised)) for one in eras)
    if window is None and (n_left_out := len(log.of(PlanRevised)) - n_revised):
        plans = counted(n_left_out, "plan")
        note(f"not checked: {plans} of the rests of windows in which tenants, or what is asked for them, changed")
    anew = [item for item in checked if item.anew_from_step is not None]
    n_posed = sum(item.verification is not None for item in anew)
    if as_json:
        first = [checked_plan_to_json(item) for item in checked if item.anew_from_step is None]
        replans = {"in_log": len(anew), "posed_anew": n_posed, "plans": [checked_plan_to_json(item) for item in anew]}
        print_json({"run": str(folder), "windows": first, "replans": replans})
    for item in () if as_json else checked:
        name = f"{item.name} of {folder}"
        if item.verification is None:
            output().print(f"{escape(name)} was not checked: {escape(item.reason)}", soft_wrap=True)
        else:
            print_verification(name, item.verification, may_miss_floors=item.tells_floors)
    if anew and not as_json:
        output().print(f"of {counted(len(anew), 'plan')} of windows' rests, {n_posed:,} posed anew and checked")
    if not any(item.is_planned for item in checked):
        raise MigratorError(f"{folder}: holds no plan to check; {checked[0].reason if checked else 'no window began'}")
    for item in checked:
        asked = replace(demands, may_miss_floors=item.tells_floors)
        shortfall = item.reason if item.verification is None else asked.shortfall(item.verification)
        if item.is_planned and shortfall:
            raise MigratorError(f"{folder}: {item.name}: {shortfall}")


def _checked(log: ReadLog, window: int | None) -> list[CheckedPlan]:
    """The plans of one set of tenants.

    Raises:
        ConfigError: The config with which they were made cannot be used any more.
        LogError: Arrivals are missing.
    """
    config = config_in_force(log)
    store = _stored(log) if config.has_live_arrivals else None
    setting, traffic = assemble_run(config, str(log.folder / CONFIG_FILE), store=store)
    if store is not None and isinstance(traffic, LiveTraffic):
        traffic.keep_in(store)
    return list(RunCheck(log, setting, traffic).plans(window))


def _stored(log: ReadLog) -> ArrivalStore:
    """What the run has kept of its clients' arrivals; what differs from the log is named.

    Raises:
        LogError: There is nothing.
    """
    folder = log.folder / ARRIVALS
    if not folder.is_dir():
        raise LogError(f"{folder} is missing: what the run's forecasts knew of its clients")
    store = ArrivalStore(folder, [tenant.name for tenant in log.header.tenants], warn)
    store.hold_against(arrival_sums(log))
    return store


def _numbers(windows: Sequence[int]) -> str:
    return f"windows {windows[0]} to {windows[-1]}" if windows else "no window"


def print_verification(name: str, found: Verification, *, may_miss_floors: bool = False) -> None:
    """Print what was found of the plan that goes by ``name``."""
    console = output()
    if not found.is_valid:
        is_carried_out = may_miss_floors and not found.broken_rules
        word = "keeps all rules, but misses floors, as its run told" if is_carried_out else "is not valid"
        console.print(f"{escape(name)} {word}:")
        for item in found.violations:
            console.print(f"  {escape(str(item))}")
        return
    objective, salvage = found.objective or 0.0, found.salvage
    beyond = f", and {salvage:,.10g} of salvage" if salvage else ""
    console.print(f"{escape(name)} is valid: goodput {objective - salvage:,.10g} requests{beyond}")
    if found.bound is None:
        console.print("  gap          –: it has no certificate that proves a bound")
    else:
        console.print(f"  gap          {_percent(found.gap)}: by its certificate no plan exceeds {found.bound:,.10g}")
    if found.claimed_bound is None:
        console.print("  claimed gap  –: the plan states no bound")
    else:
        proof = "" if found.is_claim_proven else "; only its engine's word stands for that"
        says = f"it says that none exceeds {found.claimed_bound:,.10g}{proof}"
        console.print(f"  claimed gap  {_percent(found.claimed_gap)}: {says}")


def _percent(gap: float | None) -> str:
    return "none" if gap is None else f"{100 * gap:.4g} %"
