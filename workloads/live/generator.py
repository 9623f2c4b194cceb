"""The process that sends requests at given times, answered or not: an open loop.

Run with ``python -m workloads.live.generator PARENT FOLDER STREAMS ORIGIN_S OUTCOMES``, which prints a
:class:`Exchange` as JSON, or call :func:`replay` in a child.

A request is counted from the moment at which it was to arrive. A generator that is late itself sends it at once and
with that moment, so that no delay, be it here or at the dispatcher, is left out (no coordinated omission). How late it
was is beside the answers. The outcome of each request is appended to the file of outcomes as soon as it is known,
so that the process that reads it never holds up what is still to be sent.
"""

from __future__ import annotations

import struct
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite
from pathlib import Path
from time import monotonic
from typing import BinaryIO

import msgspec

from executor.files import open_appended, read_input, write_whole
from workloads.errors import WorkloadError
from workloads.live.messages import TO_CLIENT, Request, Status
from workloads.live.process import Parent, begun
from workloads.live.wire import CLIENTS, Peer

_MOST_FILE_BYTES = 2**32
_LONGEST_WAIT_S = 0.25

OUTCOME = struct.Struct("<HIBBd")
"""One record of the file of outcomes: stream, place, place of the status in :data:`STATUSES`, right (1) or not, second.

The second is when the dispatcher had it, from the run's origin.
"""

STATUSES = tuple(Status)
"""The statuses in the order in which records number them."""


class StreamError(WorkloadError, ValueError):
    """The requests to send are not well described."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One tenant's requests.

    Attributes:
        slo_s: A request is in time if it is answered so long after its arrival.
        arrival_s: From the run's origin, ascending, one a request.
        samples: Which payload each request has, one a request.
        payloads: What may be sent.
        expected: The right answer to each payload; empty: not known.
    """

    tenant: str
    slo_s: float
    arrival_s: tuple[float, ...]
    samples: tuple[int, ...]
    payloads: tuple[bytes, ...]
    expected: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        where = f"stream of {self.tenant}"
        if not 0 < self.slo_s < inf:
            raise StreamError(f"{where}: slo_s: {self.slo_s}; must be finite and above 0")
        if len(self.samples) != len(self.arrival_s):
            raise StreamError(f"{where}: {len(self.samples)} samples for {len(self.arrival_s)} arrivals")
        if not all(map(isfinite, self.arrival_s)) or sorted(self.arrival_s) != list(self.arrival_s):
            raise StreamError(f"{where}: arrival_s: must be finite and ascending")
        if not all(0 <= sample < len(self.payloads) for sample in self.samples):
            raise StreamError(f"{where}: samples: must be places in the {len(self.payloads)} payloads")
        if self.expected and len(self.expected) != len(self.payloads):
            raise StreamError(f"{where}: {len(self.expected)} expected answers for {len(self.payloads)} payloads")

    def request(self, place: int, request_id: int, origin_s: float) -> Request:
        """The request of this place."""
        sample, arrival_s = self.samples[place], origin_s + self.arrival_s[place]
        expected = self.expected[sample] if self.expected else None
        return Request(request_id, self.tenant, arrival_s, arrival_s + self.slo_s, self.payloads[sample], expected)

    def is_right(self, place: int, answer: bytes | None) -> bool:
        """Whether this is the right answer to the request of this place; never where that is not known."""
        return bool(self.expected) and answer == self.expected[self.samples[place]]


@dataclass(frozen=True, slots=True)
class Exchange:
    """What was sent, and what came back.

    Attributes:
        sent: Requests by tenant.
        answers: By tenant and status; what has none was not answered when the generator left.
        late_s: How late the generator itself sent a request: the median, the 99th percentile and the worst.
    """

    sent: Mapping[str, int]
    answers: Mapping[str, Mapping[str, int]]
    late_s: tuple[float, float, float]


def replay(
    folder: Path,
    streams: Sequence[Stream],
    origin_s: float,
    parent: Parent,
    grace_s: float = 30.0,
    outcomes: BinaryIO | None = None,
) -> Exchange:
    """Send every request when it is due, then wait for the answers that are missing.

    Args:
        folder: Where the dispatcher's sockets are.
        streams: What to send.
        origin_s: The streams' second 0 on the machine's monotonic clock.
        parent: Without it, the rest is not sent.
        grace_s: Longest wait for answers after the last deadline.
        outcomes: Where an :data:`OUTCOME` is written for each answer, without a buffer.

    Raises:
        OSError: The outcomes cannot be written.
    """
    order = sorted(
        (arrival_s, number, place)
        for number, stream in enumerate(streams)
        for place, arrival_s in enumerate(stream.arrival_s)
    )
    last_s = max((origin_s + one.arrival_s[-1] + one.slo_s for one in streams if one.arrival_s), default=origin_s)
    peer = Peer(folder, CLIENTS, b"", TO_CLIENT)
    answers: dict[str, Counter[str]] = {stream.tenant: Counter() for stream in streams}
    late_s: list[float] = []
    n_answers = 0
    try:
        while not parent.is_gone and n_answers < len(order) and monotonic() < last_s + grace_s:
            now_s = monotonic()
            while len(late_s) < len(order) and origin_s + order[len(late_s)][0] <= now_s:
                arrival_s, number, place = order[len(late_s)]
                peer.send(streams[number].request(place, len(late_s), origin_s))
                late_s.append(monotonic() - origin_s - arrival_s)
            due_s = origin_s + order[len(late_s)][0] if len(late_s) < len(order) else inf
            records = bytearray()
            for answer in peer.receive(min(max(due_s - monotonic(), 0.0), _LONGEST_WAIT_S)):
                _, number, place = order[answer.id]
                answers[streams[number].tenant][answer.status.value] += 1
                n_answers += 1
                is_right = streams[number].is_right(place, answer.payload)
                status = STATUSES.index(answer.status)
                records += OUTCOME.pack(number, place, status, is_right, answer.at_s - origin_s)
            if outcomes is not None and records:
                outcomes.write(records)
    finally:
        peer.close()
    sent = Counter(streams[number].tenant for _, number, _ in order[: len(late_s)])
    return Exchange(dict(sent), {tenant: dict(counts) for tenant, counts in answers.items()}, _spread(late_s))


def _spread(values_s: Sequence[float]) -> tuple[float, float, float]:
    ordered = sorted(values_s) or [0.0]
    return ordered[(len(ordered) - 1) // 2], ordered[ceil(0.99 * len(ordered)) - 1], ordered[-1]


def write_streams(path: Path, streams: Sequence[Stream]) -> None:
    """Write the streams to a file, for the generator's process."""
    write_whole(path, msgspec.msgpack.encode(streams))


def read_streams(path: Path) -> list[Stream]:
    """The streams of the file.

    Raises:
        StreamError: It cannot be read, or describes none.
    """
    try:
        return msgspec.msgpack.decode(read_input(path, _MOST_FILE_BYTES), type=list[Stream])
    except OSError as error:
        raise StreamError(f"streams {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise StreamError(f"streams {path}: not a file of streams: {error}") from error


def main(arguments: Sequence[str]) -> int:
    """Replay as the arguments say and print the outcomes; 2 where they are wrong."""
    try:
        parent, (folder, path, origin_s, outcomes) = begun(arguments, 4)
        with open_appended(Path(outcomes)) as file:
            replayed = replay(Path(folder), read_streams(Path(path)), float(origin_s), parent, outcomes=file)
    except OSError as error:
        sys.stderr.write(f"generator: {error.filename}: {error.strerror}\n")
        return 2
    except (WorkloadError, ValueError) as error:
        sys.stderr.write(f"generator: {error}\n")
        return 2
    sys.stdout.write(msgspec.json.encode(replayed).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
