"""The process beside the door: each call has its own answer, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import pytest

from workloads.live.open_inference import ProtocolError, check_packing
from workloads.live.reader import Reader

Result = TypeVar("Result")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs CPU timers of processes")


def with_reader(work: Callable[[Reader], Awaitable[Result]]) -> Result:
    async def run() -> Result:
        reader = Reader()
        try:
            return await work(reader)
        finally:
            await reader.close()

    return asyncio.run(run())


@pytest.mark.parametrize("n_bytes", [0, 2**24], ids=["little", "much"])
def test_calls_return_what_they_would_here(n_bytes: int) -> None:
    assert with_reader(lambda reader: reader.call(partial(bytes.upper, b"a" * n_bytes))) == b"A" * n_bytes


def test_a_refusal_is_raised_here() -> None:
    with pytest.raises(ProtocolError, match="Content-Encoding: 'br'") as caught:
        with_reader(lambda reader: reader.call(partial(check_packing, "br")))
    assert caught.value.status == 415


def test_calls_at_once_have_their_own_answers() -> None:
    async def many(reader: Reader) -> list[int]:
        return await asyncio.gather(*(reader.call(partial(abs, -number)) for number in range(20)))

    assert with_reader(many) == list(range(20))


async def goes_on(reader: Reader) -> None:
    assert await reader.call(partial(abs, -7)) == 7


def test_what_takes_too_long_is_given_up_even_amid_one_call() -> None:
    async def work(reader: Reader) -> None:
        with pytest.raises(ProtocolError, match=r"it takes more than 0.5 s of CPU") as caught:
            await reader.call(partial(pow, 3, 2**40))
        assert caught.value.status == 413
        await goes_on(reader)

    with_reader(work)


def test_each_call_has_time_of_its_own() -> None:
    async def work(reader: Reader) -> None:
        for _ in range(10):
            await reader.call(partial(sum, range(3 * 10**6)))
        await goes_on(reader)

    with_reader(work)


def test_a_process_that_is_gone_is_told_and_replaced(capfd: pytest.CaptureFixture[str]) -> None:
    async def work(reader: Reader) -> None:
        with pytest.raises(ProtocolError, match="ended with code -9; its log may say more") as caught:
            await reader.call(partial(signal.raise_signal, signal.SIGKILL))
        assert caught.value.status == 500
        await goes_on(reader)
        with pytest.raises(ProtocolError, match="ended with code 1"):
            await reader.call(partial(int, "x"))
        await goes_on(reader)

    with_reader(work)
    assert "ValueError: invalid literal" in capfd.readouterr().err


def test_a_call_that_is_not_waited_for_leaves_no_answer_behind() -> None:
    async def work(reader: Reader) -> None:
        process = await reader.start()
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await reader.call(partial(abs, -1))
        await goes_on(reader)

    with_reader(work)


def test_it_ends_without_having_begun() -> None:
    async def nothing(_: Reader) -> None:
        pass

    with_reader(nothing)
