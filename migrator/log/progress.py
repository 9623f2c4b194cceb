"""What is counted of windows that are not settled: ``progress.json`` in a run's folder, beside the log.

The log has outcomes of requests once their window is settled. Until then these counts may fall, as where a worker
dies over its answers. They are for whoever watches the run; no report reads them, and no run is resumed from them.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import DecodeError
from msgspec.json import Decoder, encode

from executor.files import read_input
from migrator.log.records import Amount, Count, Holder, Number, Part, Task
from migrator.log.runlog import PROGRESS_FILE

_MOST_BYTES = 2**20


class OpenCounts(Part, frozen=True, kw_only=True):
    """A tenant's requests of windows that are not settled."""

    in_time: Count
    late: Count
    dropped: Count
    """The next two aside."""
    refused: Count = 0
    """They found no room; told of live arrivals alone."""
    failed: Count = 0
    """Workers could not answer them; likewise."""
    right: Count | None = None
    """Answered in time and right; none where nobody knows what is right."""
    waiting: Count
    """In its queue."""

    @property
    def resolved(self) -> int:
        """All but those that wait."""
        return self.in_time + self.late + self.unanswered

    @property
    def unanswered(self) -> int:
        """Dropped, refused or failed."""
        return self.dropped + self.refused + self.failed


class Progress(Part, frozen=True, kw_only=True):
    """How far a run is."""

    log: str
    """The identity of its log."""
    record: Count
    """The number of the log's last record."""
    wall_s: Amount
    """When this was written: the time of the day, in seconds."""
    served_s: Number
    """Requests are served up to this second of the run."""
    tenants: dict[str, OpenCounts]
    layout: tuple[tuple[str, Holder, Task], ...] = ()
    """Which instance each holder has: `[placement, tenant, task]`."""

    @property
    def as_json(self) -> bytes:
        """What the file holds."""
        return encode(self)


_PROGRESS = Decoder(Progress)


def progress_in(folder: Path) -> Progress | None:
    """What the run in the folder says of its open windows; ``None`` where it says nothing, or half of it."""
    try:
        return _PROGRESS.decode(read_input(folder / PROGRESS_FILE, _MOST_BYTES))
    except (OSError, DecodeError, RecursionError):
        return None
