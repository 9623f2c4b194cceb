"""The one table of exit codes, and the one place that says which error ends with which."""

from __future__ import annotations

from enum import IntEnum

from executor.errors import ExecutorError, GpuError
from migrator.errors import InfeasibleError, MigratorError
from planner.errors import PlannerError
from workloads.errors import WorkloadError


class ExitCode(IntEnum):
    """What a finished command says to its caller."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    INFEASIBLE = 3
    DEVICE_ERROR = 4
    INTERRUPTED = 130


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code for an error that reached the command line.

    Errors of our own trees are bad input unless they are about devices or feasibility. A full disk or a
    missing permission is ``FAILED``, and so is anything unforeseen.
    """
    match error:
        case KeyboardInterrupt():
            return ExitCode.INTERRUPTED
        case InfeasibleError():
            return ExitCode.INFEASIBLE
        case GpuError():
            return ExitCode.DEVICE_ERROR
        case MigratorError() | PlannerError() | WorkloadError() | ExecutorError():
            return ExitCode.BAD_INPUT
        case _:
            return ExitCode.FAILED
