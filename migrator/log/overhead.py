"""From a run's log to the overhead of changes that the paper feeds back into its planner (Ψ).

A change begins when its workers stop taking batches; its new instances serve when their workers
are ready. The seconds between hold all that the paper's Figure 5 counts: destruction and creation
of instances, loading of libraries and model. The run's bring-up is no change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from migrator.errors import LogError
from migrator.log.changes import INFERENCE, changes_in
from migrator.log.runlog import ReadLog, read_log
from planner.problem import Problem, with_measured_overhead


@dataclass(frozen=True)
class MeasuredOverhead:
    """What the changes of a run took.

    Attributes:
        by_window: By window and tenant, the mean seconds from the beginning of a change until a new
            inference instance was ready; windows and tenants without any are left out.
        is_simulated: Whether they come from a simulated GPU.
    """

    by_window: Mapping[int, Mapping[str, float]]
    is_simulated: bool

    @property
    def last_s(self) -> dict[str, float]:
        """By tenant, the value of the last window that has one."""
        return {name: value for window in sorted(self.by_window) for name, value in self.by_window[window].items()}


def measured_overhead(log: ReadLog) -> MeasuredOverhead:
    """What the changes of a run took, whole or torn."""
    seconds: defaultdict[int, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for change in changes_in(log):
        for item in change.started:
            if not change.is_bring_up and item.task == INFERENCE and item.ready is not None:
                seconds[change.window][item.tenant].append(item.ready.ready_s - change.begin_s)
    by_window = {window: {name: fmean(taken) for name, taken in own.items()} for window, own in sorted(seconds.items())}
    return MeasuredOverhead(by_window, log.header.simulated)


def with_overhead_of_run(problem: Problem, folder: Path) -> tuple[Problem, MeasuredOverhead]:
    """``problem`` with what the run in ``folder`` measured last of its tenants, and all that it measured.

    Tenants that the run does not know, or never gave a new instance, keep their own overhead.

    Raises:
        LogError: The folder holds no run, or one that measured nothing of the problem's tenants.
        ProblemError: The problem is not ``paper``.
    """
    measured = measured_overhead(read_log(folder))
    own = {name: value for name, value in measured.last_s.items() if name in problem.tenant_names}
    if not own:
        known = ", ".join(measured.last_s) or "nobody"
        names = ", ".join(problem.tenant_names)
        raise LogError(f"{folder}: no change gave a new instance to {names}; the run's changes gave some to {known}")
    return with_measured_overhead(problem, own), measured
