"""What questions to a driver and its answers add up to."""

from __future__ import annotations

from math import inf

import pytest

from executor.errors import DriverError, GpuLostError, MigModeOffError
from executor.gpu import BELIEVE_FOR_S
from migrator.execution.watch import DriverWatch, NoAnswerError
from migrator.log.trouble import BlindSpan

LOST = GpuLostError("GPU is lost")


def quiet(watch: DriverWatch, at_s: float) -> None:
    watch.answered(at_s)


def test_a_driver_that_always_answers_needs_no_watch() -> None:
    watch = DriverWatch(None, 0.0)
    assert watch.known_s == inf
    assert watch.refused(1.0, 1.0, LOST) is None
    assert watch.waited(1.0, 1000.0) is None
    assert watch.read(2.0, 2.0, "all gone") is None


def test_only_a_reading_says_what_stood_and_only_up_to_when_it_was_asked_for() -> None:
    watch = DriverWatch(30.0, 0.0)
    quiet(watch, 5.0)
    assert watch.known_s == 0.0
    assert watch.read(6.0, 6.5, None) is None
    assert watch.known_s == 6.0


def test_what_is_gone_may_have_gone_since_the_last_reading() -> None:
    watch = DriverWatch(30.0, 0.0)
    watch.read(1.0, 1.0, None)
    quiet(watch, 5.0)
    assert watch.read(6.0, 6.1, "1g gone") == BlindSpan(1.0, 6.1, "1g gone")
    assert watch.known_s == 6.1


def test_what_is_gone_after_a_silence_may_have_gone_since_the_last_reading() -> None:
    watch = DriverWatch(30.0, 0.0)
    watch.read(1.0, 1.0, None)
    quiet(watch, 5.0)
    watch.refused(6.0, 6.0, LOST)
    assert watch.read(8.0, 8.0, "1g gone") == BlindSpan(1.0, 8.0, f"{LOST}; 1g gone")


def test_a_silence_begins_with_the_last_answer_is_told_once_and_ends_with_a_reading() -> None:
    watch = DriverWatch(30.0, 0.0)
    quiet(watch, 5.0)
    assert watch.refused(6.0, 6.2, LOST) == BlindSpan(5.0, None, str(LOST))
    assert watch.refused(7.0, 7.0, DriverError("what?")) is None
    assert (watch.is_blind, watch.was_lost) == (True, True)
    watch.answered(8.0)
    assert watch.is_blind
    assert watch.read(9.0, 9.5, None) == BlindSpan(5.0, 9.5, str(LOST))
    assert (watch.is_blind, watch.was_lost, watch.known_s) == (False, False, 9.5)


def test_no_answer_for_a_while_is_a_silence_and_for_too_long_the_end() -> None:
    watch = DriverWatch(30.0, 0.0)
    assert watch.waited(2.0, 2.0 + BELIEVE_FOR_S) is None
    blind = watch.waited(2.0, 2.1 + BELIEVE_FOR_S)
    assert blind is not None
    assert (blind.from_s, blind.to_s) == (0.0, None)
    assert watch.waited(2.0, 31.9) is None
    with pytest.raises(NoAnswerError, match=r"has not answered for 32 s \(gpu.silent_s is 30\)") as caught:
        watch.waited(2.0, 32.0)
    assert (caught.value.blind.from_s, caught.value.blind.to_s) == (0.0, 32.0)


def test_an_answer_in_between_begins_the_wait_anew() -> None:
    watch = DriverWatch(30.0, 0.0)
    watch.refused(1.0, 1.0, LOST)
    watch.answered(29.0)
    assert watch.refused(32.0, 32.0, LOST) is None
    with pytest.raises(NoAnswerError):
        watch.refused(62.0, 62.0, LOST)


def test_mig_mode_that_is_off_is_the_end_at_once() -> None:
    watch = DriverWatch(30.0, 0.0)
    quiet(watch, 5.0)
    with pytest.raises(NoAnswerError, match="off") as caught:
        watch.refused(6.0, 6.0, MigModeOffError("off"))
    assert caught.value.blind == BlindSpan(0.0, 6.0, "off")  # nothing was read since


def test_a_doubt_reaches_back_to_the_last_reading() -> None:
    watch = DriverWatch(30.0, 0.0)
    watch.read(3.0, 3.0, None)
    quiet(watch, 8.0)
    watch.doubt("1g gone")
    assert watch.read(9.0, 9.0, None) == BlindSpan(3.0, 9.0, "1g gone")
    assert watch.read(10.0, 10.0, None) is None
