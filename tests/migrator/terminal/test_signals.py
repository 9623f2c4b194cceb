"""What signals do to the work under way. Each is raised in this process, whose handlers are the defaults."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from migrator.errors import StoppedError
from migrator.terminal import signals
from migrator.terminal.signals import SIGNALS, Interruption, exit_code, interruptible

TERM, HUP, INT = signal.SIGTERM, signal.SIGHUP, signal.SIGINT


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Fail where handlers are not put back."""
    before = [signal.getsignal(one) for one in SIGNALS]
    yield
    assert [signal.getsignal(one) for one in SIGNALS] == before


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_interrupts_and_of_later_ones_only_ctrl_c_does(number: signal.Signals) -> None:
    with interruptible() as interruption:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        signal.raise_signal(TERM)
        signal.raise_signal(HUP)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(INT)
    assert interruption.received == [number, TERM, HUP, INT]
    assert exit_code(interruption.received) == 128 + number


def test_hup_ends_no_work_that_serves() -> None:
    with interruptible() as interruption:
        interruption.let_serve()
        assert not interruption.asked_anew()
        signal.raise_signal(HUP)
        signal.raise_signal(HUP)
        interruption.check()
        assert not interruption.drains
        assert interruption.asked_anew()
        assert not interruption.asked_anew()
        signal.raise_signal(TERM)
        assert interruption.drains
        signal.raise_signal(HUP)
    assert interruption.received == [TERM]


@pytest.mark.parametrize("number", [INT, TERM])
def test_work_that_may_drain_is_told_of_the_first_signal_and_ended_by_ctrl_c_once_more(number: signal.Signals) -> None:
    with interruptible(), interruptible() as interruption:
        interruption.let_serve()
        assert not interruption.drains
        signal.raise_signal(number)
        interruption.check()
        assert interruption.drains
        signal.raise_signal(TERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(INT)
    with interruptible() as another:
        assert not another.drains


def test_the_context_around_hears_what_the_inner_one_heard() -> None:
    with interruptible() as outer, interruptible() as inner:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(HUP)
        signal.raise_signal(TERM)
    assert outer.received == inner.received == [HUP, TERM]


def test_what_is_ignored_or_handled_by_the_program_stays_so() -> None:
    heard = list[int]()
    before = [signal.signal(HUP, signal.SIG_IGN), signal.signal(TERM, lambda number, _: heard.append(number))]
    try:
        with interruptible() as interruption:
            signal.raise_signal(HUP)
            signal.raise_signal(TERM)
    finally:
        for one, handler in zip((HUP, TERM), before, strict=True):
            signal.signal(one, handler)
    assert (heard, interruption.received) == ([TERM], [])


def ended(*events: signal.Signals | str | Exception) -> list[str]:
    """What was done of the ending of some work: signals come in it, or it fails."""
    done = list[str]()

    def end() -> None:
        with interruptible() as interruption:
            interruption.put_off()
            for event in events:
                match event:
                    case signal.Signals():
                        signal.raise_signal(event)
                    case Exception():
                        raise event
                    case _:
                        done.append(event)

    fails = [type(event) for event in events if isinstance(event, Exception)]
    with pytest.raises((*fails, KeyboardInterrupt)[0]):
        end()
    return done


@pytest.mark.parametrize("number", SIGNALS)
def test_what_ends_the_work_is_not_cut_short_and_the_signal_counts_then(number: signal.Signals) -> None:
    assert ended("begun", number, TERM, HUP, "cleared") == ["begun", "cleared"]


@pytest.mark.parametrize("number", SIGNALS)
def test_ctrl_c_after_a_signal_cuts_the_ending_short(number: signal.Signals) -> None:
    assert ended("begun", number, INT, "cleared") == ["begun"]


def test_an_error_is_not_replaced_by_a_signal_that_waits() -> None:
    assert ended(TERM, "begun", OSError("disk is full")) == ["begun"]


class Finalized:
    def __del__(self) -> None:
        signal.raise_signal(TERM)


def test_an_interrupt_that_python_drops_ends_the_work_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    with interruptible() as interruption:
        Finalized()
        with pytest.raises(KeyboardInterrupt):
            interruption.check()
        with pytest.raises(KeyboardInterrupt):  # work that does not check goes by the next one
            signal.raise_signal(TERM)
        signal.raise_signal(TERM)
    assert capsys.readouterr().err == ""


def test_an_event_stops_the_work_where_it_is_checked() -> None:
    interruption = Interruption(threading.Event())
    interruption.check()
    assert interruption.stop is not None
    interruption.stop.set()
    with pytest.raises(StoppedError):
        interruption.check()


def test_a_thread_hears_no_signal_and_that_is_said_once_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    signals._tell_that_none_is_heard.cache_clear()

    def run() -> None:
        with interruptible() as interruption:
            assert signal.getsignal(TERM) == signal.SIG_DFL
            interruption.check()

    for _ in range(2):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    told = capsys.readouterr().err
    assert (told.count("\n"), told.count("stop=threading.Event()")) == (1, 1)
