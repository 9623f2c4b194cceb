"""The application's error tree, and the one table of exit codes, for every package's tree."""

from __future__ import annotations

import errno
from enum import IntEnum

from executor.errors import ExecutorError, GpuError, Refusal
from executor.zygote import ZygoteError
from planner.errors import PlannerError
from workloads.errors import WorkloadError


class MigratorError(Refusal):
    """Any failure of the application that a user can act on; its message is one line."""


class ConfigError(MigratorError):
    """A config cannot be used; names the file, the key, the value and what is allowed."""


class ConfigSloError(ConfigError):
    """A config asks for an SLO that its model meets on no profile; names the smallest that would do."""


class GridError(MigratorError):
    """What to vary, to find or to keep cannot be used; names the key, the value and what is allowed."""


class RunFolderError(MigratorError):
    """A run folder exists already, is missing, or cannot be written."""


class OutputError(MigratorError):
    """A file cannot be written, although nothing is wrong with what was asked: the disk is full, or gone."""


class LiveError(MigratorError):
    """A live run cannot begin or go on: a process that it needs is gone, or does not do its work."""


class AgentError(MigratorError):
    """A cluster's agent or coordinator cannot be begun, or does not answer."""


class StoppedError(MigratorError):
    """The program that asked for the work has stopped it, by its event."""


class LogError(MigratorError):
    """A log cannot be read as one of ours."""


class InfeasibleError(MigratorError):
    """No plan exists; names the tenant and the rule."""


class MissedGoalError(MigratorError):
    """A goal of ``--keep`` was missed; everything that was asked for is written."""


class ExitCode(IntEnum):
    """What a finished command says to its caller."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    INFEASIBLE = 3
    DEVICE_ERROR = 4
    GOAL_MISSED = 5
    INTERRUPTED = 130


_CODES = (
    (KeyboardInterrupt, ExitCode.INTERRUPTED),
    (InfeasibleError, ExitCode.INFEASIBLE),
    (MissedGoalError, ExitCode.GOAL_MISSED),
    (OutputError | LiveError | ZygoteError, ExitCode.FAILED),
    (GpuError | AgentError, ExitCode.DEVICE_ERROR),
    (MigratorError | PlannerError | WorkloadError | ExecutorError, ExitCode.BAD_INPUT),
)
"""By kind of error; the first that fits."""


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code for an error that reached the command line.

    Errors of our own trees are bad input unless they are about devices, feasibility, goals or output. A full disk or a
    missing permission is ``FAILED``, and so is anything unforeseen; a file's name that is too long is bad input.
    """
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return ExitCode.BAD_INPUT
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED)
