"""The executor's error tree. The type says whether a driver call may be tried again."""

import re

LONGEST_LINE = 2000
"""Characters of a message that are shown."""

_LONGEST_VALUE = 300
"""Characters of one value in it: longer than most paths."""

_KEPT = 120, 40
"""Characters of a longer value's beginning and end that are shown."""

_LONG_VALUE = re.compile(
    r"""(?<!\w)'[^']{N,}'(?!\w)|(?<!\w)"[^"]{N,}"(?!\w)|\[[^\[\]]{N,}\]|\S{N,}""".replace("N", str(_LONGEST_VALUE))
)


class Refusal(Exception):  # noqa: N818 (the error trees begin above it)
    """The base of all errors of ours: the text is :func:`brief`, whatever the message quotes."""

    def __str__(self) -> str:
        return brief(super().__str__())


def brief(message: str) -> str:
    """The message with every long word, quoted text and list cut in its middle, in :data:`LONGEST_LINE` characters.

    Its beginning says where the value is, and its end what is allowed: both are kept.
    """
    first, last = _KEPT
    short = _LONG_VALUE.sub(lambda value: f"{value[0][:first]}…{value[0][-last:]}", message)
    half = LONGEST_LINE // 2
    return short if len(short) <= LONGEST_LINE else f"{short[:half]} … {short[-half:]}"


class ExecutorError(Refusal):
    """Any failure of the executor; the message names the value, where it came from and what is allowed."""


class UnknownGpuModelError(ExecutorError):
    """The catalogue holds no GPU model of this name."""


class InvalidGpuModelError(UnknownGpuModelError):
    """A file describes no GPU model that there can be."""


class UnknownProfileError(ExecutorError):
    """The GPU model has no MIG profile of this name."""


class InvalidCutError(ExecutorError):
    """A CPU or GPU cannot be cut so; the message says what is allowed."""


class InvalidPlacementError(ExecutorError):
    """The profile cannot start at this memory slice, or the text is no ``profile@start``."""


class GpuError(ExecutorError):
    """A GPU or its driver refused a call. Every one below is either retryable or permanent.

    Attributes:
        retry_after_s: Seconds to wait before the next attempt; ``None`` where no wait helps.
    """

    retry_after_s: float | None = None


class RetryableGpuError(GpuError):
    """The same call may succeed later, with nothing changed by the caller.

    Attributes:
        RETRY_AFTER_S: Seconds to wait before the next attempt, if the call says nothing else.
    """

    retry_after_s: float
    RETRY_AFTER_S = 1.0  # destroying an instance on a loaded node takes about as long

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = self.RETRY_AFTER_S if retry_after_s is None else retry_after_s


class InUseError(RetryableGpuError):
    """A client still holds the GPU instance, or the driver says so.

    Real drivers also say it while only a *neighbour* is busy, which is why it is retryable.
    ``nvidia-smi``: ``In use by another client``; NVML: ``NVML_ERROR_IN_USE`` (19).
    """


class PermanentGpuError(GpuError):
    """The same call fails again until the caller asks for something else, or changes the GPU first."""


class InsufficientResourcesError(PermanentGpuError):
    """There is no room: a memory slice of the placement is taken, or the GPU has nothing of that kind left.

    ``nvidia-smi``: ``Insufficient Resources``; NVML: ``NVML_ERROR_INSUFFICIENT_RESOURCES`` (23), also
    when an instance of the same profile already sits there.
    """


class InstanceNotFoundError(PermanentGpuError):
    """The GPU has no GPU instance of this id. ``nvidia-smi``: ``Not Found``; NVML: ``NVML_ERROR_NOT_FOUND`` (6)."""


class InvalidArgumentError(PermanentGpuError):
    """The GPU knows no such profile, start or client.

    ``nvidia-smi``: ``Invalid Argument``; NVML: ``NVML_ERROR_INVALID_ARGUMENT`` (2).
    """


class NotSupportedError(PermanentGpuError):
    """This GPU, its driver or its mode has no such call; waiting does not change that.

    ``nvidia-smi``: ``Not Supported``; NVML: ``NVML_ERROR_NOT_SUPPORTED`` (3).
    """


class NoPermissionError(PermanentGpuError):
    """The driver does not let this user change or list instances.

    ``nvidia-smi``: ``Insufficient Permissions``; NVML: ``NVML_ERROR_NO_PERMISSION`` (4).
    """

    def __str__(self) -> str:
        return f"{super().__str__()}; run as root, or get read access to /proc/driver/nvidia/capabilities/mig/config"


class NoGpuError(PermanentGpuError):
    """There is no driver, no such GPU, or it is in the wrong mode; the message says which, and what to do."""


class MigModeOffError(NoGpuError):
    """The GPU is not in MIG mode, so it has no GPU instances; the message says how to turn it on."""


class GpuLostError(PermanentGpuError):
    """The GPU does not answer any more. NVML: ``NVML_ERROR_GPU_IS_LOST`` (15), ``NVML_ERROR_RESET_REQUIRED`` (16)."""

    def __str__(self) -> str:
        return f"{super().__str__()}; as root: nvidia-smi --gpu-reset, or reboot"


class OtherControllerError(PermanentGpuError):
    """Another controller has the GPU, or another manager of this node would undo what we do; the message names it."""


class DriverError(RetryableGpuError):
    """The driver failed for a reason that it does not name; another attempt may succeed. NVML: 999 and others."""

    RETRY_AFTER_S = 0.2  # nothing is known to be waited for; about as long as a call takes


class UnrecordedError(PermanentGpuError):
    """An instance of ours exists that could not be recorded, so no later process knows it; the message names it."""


class TargetNotReachedError(PermanentGpuError):
    """The GPU is only in part as it was asked to be; the message names what is missing, and why."""
