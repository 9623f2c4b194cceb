"""What clients offered, second by second, on the disk: the past of a service, beyond its process.

A file holds one day of one tenant, in seconds of the run: 86,400 places of eight bytes, each the second's count + 1 and
a check of tenant, second and count. A place of zeros is a second that nobody counted. A place is written once, in one
call, so that a process that is killed at any moment leaves each second whole or uncounted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from executor.files import open_input, open_updated, write_all
from workloads.arrays import IntArray

ARRIVALS = "arrivals"
"""The store's folder in a run's."""

DAY_S = 86_400

UNKNOWN = -1
"""The count of a second that nobody counted."""

_PLACE = np.dtype([("more", "<u4"), ("check", "<u4")])


class ArrivalStore:
    """A folder of arrivals; it is made with the first second that is written."""

    def __init__(self, folder: Path, tenants: Sequence[str], tell: Callable[[str], object]) -> None:
        """``tell`` hears of each damaged file, once: what is damaged counts as unknown."""
        self._folder, self._tenants, self._tell = folder, tuple(tenants), tell
        self._wrong: tuple[tuple[int, int, int], ...] = ()  # not as it was summed: place of the tenant, first, end
        self._told: set[Path] = set()

    def of(self, *tenants: str) -> ArrivalStore:
        """The same folder's, of these tenants; what was damaged of them is unknown there, too."""
        other = ArrivalStore(self._folder, tenants, self._tell)
        named = ((self._tenants[place], first_s, end_s) for place, first_s, end_s in self._wrong)
        other._wrong = tuple((tenants.index(name), first_s, end_s) for name, first_s, end_s in named if name in tenants)
        other._told = self._told
        return other

    def path(self, tenant: str, day: int) -> Path:
        """The file of the tenant's seconds of a day: 0 is that of the run's first second, −1 the one before."""
        return self._folder / f"{day if day >= 0 else f'before{-day}'}-{tenant}"

    @property
    def end_s(self) -> int:
        """Every second that was counted comes before this one."""
        names = (path.name.partition("-")[0] for path in self._folder.glob("*-*"))
        for day in sorted({int(name) for name in names if name.isdecimal()}, reverse=True):
            known = np.flatnonzero((self.read(day * DAY_S, (day + 1) * DAY_S) != UNKNOWN).any(axis=1))
            if known.size:
                return day * DAY_S + int(known[-1]) + 1
        return 0

    def write(self, first_s: int, counts: IntArray) -> None:
        """Keep what was offered in the seconds from ``first_s`` on, ``(n_seconds, n_tenants)``.

        Raises:
            OSError: The disk is full or gone.
        """
        for day, begin_s, end_s in _by_day(first_s, first_s + len(counts)):
            for place, tenant in enumerate(self._tenants):
                kept = np.zeros(end_s - begin_s, _PLACE)
                kept["more"] = counts[begin_s - first_s : end_s - first_s, place] + 1
                kept["check"] = _checks(tenant, begin_s, kept)
                self._folder.mkdir(exist_ok=True)
                with open_updated(self.path(tenant, day)) as file:
                    file.seek((begin_s - day * DAY_S) * _PLACE.itemsize)
                    write_all(file, kept.tobytes())

    def read(self, first_s: int, end_s: int) -> IntArray:
        """What was offered in these seconds, ``(n_seconds, n_tenants)``; :data:`UNKNOWN` where nobody counted."""
        counts = np.full((max(0, end_s - first_s), len(self._tenants)), UNKNOWN, np.int64)
        for day, begin_s, stop_s in _by_day(first_s, end_s):
            for place, tenant in enumerate(self._tenants):
                kept = self._kept(tenant, day, begin_s, stop_s)
                is_whole = (kept["more"] > 0) & (kept["check"] == _checks(tenant, begin_s, kept))
                if n_damaged := int(((kept != np.zeros(1, _PLACE)) & ~is_whole).sum()):
                    self._say(self.path(tenant, day), f"{n_damaged:,} s are damaged")
                own = np.where(is_whole, kept["more"].astype(np.int64) - 1, UNKNOWN)
                counts[begin_s - first_s : stop_s - first_s, place] = own
        for place, begin_s, stop_s in self._wrong:
            counts[max(0, begin_s - first_s) : max(0, stop_s - first_s), place] = UNKNOWN
        return counts

    def sums(self, first_s: int, end_s: int) -> dict[str, str]:
        """By tenant, the CRC-32 of what is kept of these seconds, in 8 hex digits."""
        return {tenant: self._sum(tenant, first_s, end_s) for tenant in self._tenants}

    def hold_against(self, sums: Iterable[tuple[int, int, str, str]]) -> None:
        """Take as unknown what is not as it was summed: first second, end, tenant and sum each."""
        wrong = []
        for first_s, end_s, tenant, told in sums:
            if tenant in self._tenants and self._sum(tenant, first_s, end_s) != told:
                wrong.append((self._tenants.index(tenant), first_s, end_s))
                self._say(
                    self.path(tenant, first_s // DAY_S), f"seconds {first_s} to {end_s} are not as they were counted"
                )
        self._wrong = tuple(wrong)

    def sync(self, first_s: int, end_s: int) -> None:
        """Wait until what was written of these seconds is on the disk.

        Raises:
            OSError: The disk is full or gone.
        """
        for day, _, _ in _by_day(first_s, end_s):
            for tenant in self._tenants:
                with suppress(FileNotFoundError), open_input(self.path(tenant, day)) as file:
                    os.fsync(file.fileno())

    # --- inside

    def _kept(self, tenant: str, day: int, first_s: int, end_s: int) -> NDArray[np.void]:
        """The places of these seconds, all of the day; zeros where there is nothing."""
        kept = np.zeros(end_s - first_s, _PLACE)
        path = self.path(tenant, day)
        try:
            with open_input(path) as file:
                file.seek((first_s - day * DAY_S) * _PLACE.itemsize)
                raw = file.read(kept.nbytes)
        except FileNotFoundError:
            raw = b""
        except OSError as error:
            self._say(path, error.strerror or str(error))
            raw = b""
        n_whole = len(raw) // _PLACE.itemsize
        kept[:n_whole] = np.frombuffer(raw, _PLACE, n_whole)
        return kept

    def _sum(self, tenant: str, first_s: int, end_s: int) -> str:
        found = 0
        for day, begin_s, stop_s in _by_day(first_s, end_s):
            found = crc32(self._kept(tenant, day, begin_s, stop_s).tobytes(), found)
        return f"{found:08x}"

    def _say(self, path: Path, what: str) -> None:
        if path not in self._told:
            self._told.add(path)
            self._tell(f"{path}: {what}; what came then is taken as unknown")


def _by_day(first_s: int, end_s: int) -> Iterator[tuple[int, int, int]]:
    """The days of these seconds, each with the first of them and the end."""
    while first_s < end_s:
        day = first_s // DAY_S
        stop_s = min(end_s, (day + 1) * DAY_S)
        yield day, first_s, stop_s
        first_s = stop_s


def _checks(tenant: str, first_s: int, kept: NDArray[np.void]) -> NDArray[np.uint32]:
    """Of the places from this second on: every bit of tenant, second and count turns about half of a check's.

    Source: the finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
    """
    seconds = np.arange(first_s, first_s + len(kept), dtype=np.int64).astype(np.uint64)
    mixed = (seconds << np.uint64(32)) + kept["more"] + np.uint64(crc32(tenant.encode()) * 0x9E3779B97F4A7C15 % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    checks: NDArray[np.uint32] = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(32)).astype(np.uint32)
    return checks
