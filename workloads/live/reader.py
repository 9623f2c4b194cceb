"""The process beside the front door that does what takes long: large JSON, read and written, and packed bodies.

Most of that are single calls that hold Python's interpreter lock, so that a thread of the door's own would not help.
:class:`Reader` starts it, writes pickled calls to its input, and reads from its output what they return or refuse.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from workloads.live.open_inference import ProtocolError
from workloads.live.process import begun, command

MOST_CPU_S = 0.5
"""Of one call; what takes longer is given up. The worst body that is JSON, of 2 MiB, takes a quarter of it."""

_LENGTH_BYTES = 8

Result = TypeVar("Result")


class Reader:
    """The process, as the front door sees it; it is started anew when it is gone."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._is_free = asyncio.Lock()

    async def start(self) -> Process:
        """Start it, if it does not run; it answers as soon as it can."""
        if self._process is None:
            line = command("workloads.live.reader")
            self._process = await asyncio.create_subprocess_exec(*line, stdin=PIPE, stdout=PIPE)
        return self._process

    async def close(self) -> None:
        """End it, whatever it does."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            self._process = None

    async def call(self, call: Callable[[], Result]) -> Result:
        """What the call returns, which can be pickled; calls follow one after the other.

        Raises:
            ProtocolError: The call raises it, needs more than :data:`MOST_CPU_S`, or ends the process.
        """
        async with self._is_free:
            try:
                process = await self.start()
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(pickle.dumps(call))
                await process.stdin.drain()
                length = int.from_bytes(await process.stdout.readexactly(_LENGTH_BYTES), "big")
                result = pickle.loads(await process.stdout.readexactly(length))  # noqa: S301 - of our own process
            except (asyncio.IncompleteReadError, ConnectionError):
                raise await self._end() from None
            except asyncio.CancelledError:
                await self.close()  # or its answer would be taken for that to the next call
                raise
        if isinstance(result, ProtocolError):
            raise result
        assert not isinstance(result, BaseException)
        return result  # type: ignore[no-any-return]

    async def _end(self) -> ProtocolError:
        """What a call in which the process ended returns."""
        assert self._process is not None
        code = await self._process.wait()
        self._process = None
        if code == -signal.SIGPROF:
            too_much = f"it takes more than {MOST_CPU_S:g} s of CPU"
            return ProtocolError(f"{too_much}; send and ask for binary data, not compressed", 413)
        return ProtocolError(f"the process that reads large bodies ended with code {code}; its log may say more", 500)


def main(arguments: Sequence[str]) -> int:
    """Do what is asked for until the input ends."""
    begun(arguments, 0)
    gc.disable()  # nothing here refers to itself, and looking for it takes longer than all else
    while True:
        try:
            call = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the front door
        except (EOFError, pickle.UnpicklingError):
            return 0
        signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)  # SIGPROF ends this process, even amid a long call
        try:
            result = call()
        except ProtocolError as error:
            result = error
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        told = pickle.dumps(result)
        sys.stdout.buffer.write(len(told).to_bytes(_LENGTH_BYTES, "big") + told)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
