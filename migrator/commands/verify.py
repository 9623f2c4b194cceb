"""``migrator verify``: an independent check of a plan file against its problem file, or of the plans of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from migrator.config import read_config
from migrator.console import escape, output, print_json, progress
from migrator.errors import MigratorError
from migrator.log.runlog import CONFIG_FILE, read_log
from migrator.run.reposing import RunCheck
from migrator.setting import assemble
from migrator.views.as_json import checked_window_to_json, verification_to_json
from planner.files.plan_file import read_plan
from planner.files.problem_file import read_problem
from planner.verify import verify
from planner.verify.verification import Verification


@dataclass(frozen=True, slots=True)
class Demands:
    """What a valid plan has to be beside valid.

    Attributes:
        trust_bound: Whether the bound that a plan claims counts without a proof.
        max_gap: The largest gap, a share of the bound: the proven one or, with ``trust_bound``, the claimed one.
        may_miss_floors: Whether a plan may miss floors of in-time answers, as those of a run may, which tells it.
    """

    trust_bound: bool = False
    max_gap: float | None = None
    may_miss_floors: bool = False

    def shortfall(self, found: Verification) -> str | None:
        """Why the plan is not what was asked for, as what comes after its name; ``None`` if it is."""
        if broken := found.broken_rules if self.may_miss_floors else found.violations:
            n = len(broken)
            return f"the plan breaks {n} rule{'s' if n != 1 else ''}"
        if not self.trust_bound and found.proven_gap is not None and not found.is_claim_proven:
            claimed, proven = _percent(found.claimed_gap), _percent(found.proven_gap)
            return f"the plan claims a gap of {claimed}; its certificate proves {proven}; --trust-bound takes its word"
        trusts = self.trust_bound and found.claimed_gap is not None
        word, gap = ("claimed", found.claimed_gap) if trusts else ("proven", found.proven_gap)
        if self.max_gap is not None and not (gap is not None and gap <= self.max_gap):
            return f"the {word} gap is {_percent(gap)}; --max-gap allows {_percent(self.max_gap)}"
        return None


def verify_command(plan_path: Path, problem_path: Path, *, demands: Demands, as_json: bool) -> None:
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


def verify_run_command(folder: Path, *, window: int | None, demands: Demands, as_json: bool) -> None:
    """Pose the windows of a run anew from its folder, and check the plans in its log against them.

    Raises:
        LogError: No run, or a damaged log.
        ConfigError: The run's config cannot be used any more: a trace file is gone, for example.
        MigratorError: No such window, a plan that is invalid or not what was demanded, or a window that cannot be
            posed anew; ends with exit code 2.
    """
    demands = replace(demands, may_miss_floors=True)
    log = read_log(folder)
    windows = [record["window"] for record in log.of_kind("window_started")]
    if window is not None and window not in windows:
        raise MigratorError(f"--window is {window}; the log of {folder} has {_numbers(windows)}")
    config_path = folder / CONFIG_FILE
    with progress().status("posing the run's windows anew"):
        setting, traffic = assemble(read_config(config_path), str(config_path))
        checked = list(RunCheck(log, setting, traffic).windows(window))
    if as_json:
        print_json({"run": str(folder), "windows": [checked_window_to_json(item) for item in checked]})
    for item in () if as_json else checked:
        name = f"window {item.window} of {folder}"
        if item.verification is None:
            output().print(f"{escape(name)} was not checked: {escape(item.reason)}", soft_wrap=True)
        else:
            print_verification(name, item.verification, may_miss_floors=True)
    if not any(item.is_planned for item in checked):
        raise MigratorError(f"{folder}: holds no plan to check; {checked[0].reason if checked else 'no window began'}")
    for item in checked:
        shortfall = item.reason if item.verification is None else demands.shortfall(item.verification)
        if item.is_planned and shortfall:
            raise MigratorError(f"{folder}: window {item.window}: {shortfall}")


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
    beyond = f", and {salvage:.10g} of salvage" if salvage else ""
    console.print(f"{escape(name)} is valid: goodput {objective - salvage:.10g} requests{beyond}")
    if found.proven_bound is None:
        console.print("  proven gap   none: it has no certificate that proves a bound")
    else:
        console.print(
            f"  proven gap   {_percent(found.proven_gap)}: by its certificate no plan exceeds {found.proven_bound:.10g}"
        )
    if found.claimed_bound is None:
        console.print("  claimed gap  none: the plan states no bound")
    else:
        proof = "" if found.is_claim_proven else "; only its engine's word stands for that"
        console.print(
            f"  claimed gap  {_percent(found.claimed_gap)}: it says that none exceeds {found.claimed_bound:.10g}{proof}"
        )


def _percent(gap: float | None) -> str:
    return "none" if gap is None else f"{100 * gap:.4g} %"
