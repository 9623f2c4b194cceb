import pytest

from executor import errors
from executor.errors import ExecutorError, GpuError, InUseError, PermanentGpuError, RetryableGpuError

ALL_ERRORS = tuple(one for one in vars(errors).values() if getattr(one, "__module__", None) == errors.__name__)
GPU_ERRORS = tuple(error for error in ALL_ERRORS if issubclass(error, GpuError) and error is not GpuError)


@pytest.mark.parametrize("error", ALL_ERRORS)
def test_every_error_is_an_executor_error(error: type[Exception]) -> None:
    assert issubclass(error, ExecutorError)


@pytest.mark.parametrize("error", GPU_ERRORS)
def test_every_gpu_error_is_either_retryable_or_permanent(error: type[GpuError]) -> None:
    assert issubclass(error, RetryableGpuError) != issubclass(error, PermanentGpuError)


def test_retryable_error_says_when_to_try_again() -> None:
    assert InUseError("held", retry_after_s=2.5).retry_after_s == 2.5


def test_retryable_error_waits_a_while_unless_told() -> None:
    assert InUseError("held").retry_after_s > 0
