"""The planner's error tree. An infeasible or timed-out solve is no error: it is a plan's status."""

from executor.errors import Refusal


class PlannerError(Refusal):
    """Any failure of the planner; the message names the value, where it came from and what is allowed."""


class ProblemError(PlannerError, ValueError):
    """A problem, or the file that it came from, breaks the format; names file, key, value and what is allowed."""


class PlanFileError(PlannerError, ValueError):
    """A plan file cannot be read as a plan."""


class EngineError(PlannerError):
    """An engine cannot take this problem, or its solver is missing or failed."""


class PolicyError(PlannerError):
    """There is no such policy, its file cannot be used, or what it answers cannot; names file, line and window."""
