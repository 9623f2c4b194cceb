"""The workloads' error tree: every message names the file or key, the value and what is allowed."""


class WorkloadError(Exception):
    """Any failure of a workload's definition or data."""


class TraceError(WorkloadError, ValueError):
    """A trace cannot be read or cut as asked."""


class ProfileTableError(WorkloadError, ValueError):
    """A service-profile table is malformed, or lacks what was asked of it."""


class UnmetSloError(WorkloadError, ValueError):
    """No profile, batch and process count of the model meets the SLO."""
