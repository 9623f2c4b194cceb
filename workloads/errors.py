"""The workloads' error tree: every message names the file or key, the value and what is allowed."""

from executor.errors import Refusal


class WorkloadError(Refusal):
    """Any failure of a workload's definition or data."""


class TraceError(WorkloadError, ValueError):
    """A trace cannot be read or cut as asked."""


class ProfileTableError(WorkloadError, ValueError):
    """A service-profile table is malformed, or lacks what was asked of it."""


class UnmetSloError(WorkloadError, ValueError):
    """No profile, batch and process count of the model meets the SLO."""


class LearningError(WorkloadError, ValueError):
    """What was asked of a benchmark, a model or a retraining cannot be done."""


class DataAbsentError(LearningError):
    """A data set is not there and cannot be downloaded; the message says what to put where."""
