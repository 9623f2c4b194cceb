import pytest

from executor import errors
from executor.errors import (
    LONGEST_LINE,
    ExecutorError,
    GpuError,
    InUseError,
    PermanentGpuError,
    RetryableGpuError,
    brief,
)
from migrator.errors import ConfigError
from planner.errors import ProblemError
from workloads.errors import TraceError

CLASSES = tuple(one for one in vars(errors).values() if getattr(one, "__module__", None) == errors.__name__)
ALL_ERRORS = tuple(one for one in CLASSES if isinstance(one, type) and one is not errors.Refusal)
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


LONG = 100_000
VALUES = ("x" * LONG, repr("many words " * LONG), repr("it's long " * LONG), str(list(range(LONG))), "9" * LONG)


@pytest.mark.parametrize("value", VALUES, ids=["a word", "words", "words with an apostrophe", "a list", "a number"])
@pytest.mark.parametrize("error", [ExecutorError, ProblemError, TraceError, ConfigError])
def test_a_long_value_is_cut_and_what_stands_around_it_is_not(error: type[Exception], value: str) -> None:
    found = error(f"a.json: tenants[0].gpu is {value}; the problem's and the tenant's profiles are needed: 1g, 2g")
    assert len(str(found)) < 350
    assert str(found).startswith(f"a.json: tenants[0].gpu is {value[:50]}")
    assert str(found).endswith("; the problem's and the tenant's profiles are needed: 1g, 2g")


@pytest.mark.parametrize("unmarked", ["many words " * LONG, "a\nb\n" * LONG, "'" * LONG, "[" * LONG, "a, " * LONG])
def test_a_message_is_never_longer_than_a_line(unmarked: str) -> None:
    shown = brief(f"a.json: {unmarked}; 1g is needed")
    assert len(shown) <= LONGEST_LINE + 3
    assert (shown[:7], shown[-14:]) == ("a.json:", "; 1g is needed")


@pytest.mark.parametrize("message", ["", "a: 'b' is none of [1, 2]", f"/{'folder/' * 30}a.yaml: is missing"])
def test_a_usual_message_stays(message: str) -> None:
    assert brief(message) == str(ExecutorError(message)) == message
