"""Labelled samples that others write into a folder, taken up window by window; no torch.

A file is an ``.npz`` of ``x (n, *shape)`` and ``y (n,)``. Who writes it does so under a name that begins with a dot,
and renames it once it is whole. What was taken up is moved into ``taken/``, what cannot be into ``rejected/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from executor.files import read_arrays, write_whole
from workloads.errors import LearningError
from workloads.learning.experiences import Asked, Benchmark, Experience, Samples, held_out, joined
from workloads.training import FOLDER

LEAST_SAMPLES = 20
"""Fewer wait in the folder for more to come."""

HELD_OUT = 0.1
"""The share of what comes that is only measured with."""

N_REMEMBERED = 5000
"""Earlier samples that a later retraining may replay, classes as even as they allow."""

TAKEN, REJECTED = "taken", "rejected"

_MOST_BYTES = 2**30

_Arrays = Mapping[str, NDArray[Any]]
"""What a file has, by name."""


class Inbox(Struct, frozen=True, forbid_unknown_fields=True):
    """Where samples come from, what they must be, and where those of a window are kept.

    Attributes:
        folder: Others write there.
        kept: Ours; a file a window in which something came, of which the last two stay.
        dtype: ``uint8`` or ``uint16``, of the numbers of an input.
        shape: Of an input.
        n_classes: Labels are below it.
        seed: Decides what is held out.
    """

    folder: Path
    kept: Path
    dtype: str
    shape: tuple[int, ...]
    n_classes: int
    seed: int

    @property
    def newest(self) -> tuple[int, Path] | None:
        """The last window in which something came, and its file."""
        found = sorted((int(path.stem.removeprefix("window-")), path) for path in self.kept.glob("window-*.npz"))
        return found[-1] if found else None

    def take_up(self, window: int) -> list[str]:
        """Take what has come since as the window's; a line for each file or kind of label that cannot be taken.

        Raises:
            LearningError: The folder, or ours, cannot be read or written.
        """
        try:
            return self._taken(window)
        except OSError as error:
            raise LearningError(f"{error.filename or self.folder}: {error.strerror}") from error

    # --- inside

    def _taken(self, window: int) -> list[str]:
        before = None if self.newest is None else _arrays_in(self.newest[1])
        known = set[str]() if before is None else set(before["names"].tolist())
        told, files, parts, n_outside = list[str](), list[Path](), list[Samples](), 0
        for path in sorted(path for path in self.folder.iterdir() if path.is_file() and path.name[0] != "."):
            if _mark(path) in known:  # taken up before the process was killed
                _move(path, TAKEN)
                continue
            try:
                samples, n_wrong = self._samples_in(path)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                told.append(f"{path.name}: {reason}; it lies in {REJECTED}/")
                _move(path, REJECTED)
                continue
            n_outside += n_wrong
            files.append(path)
            parts.append(samples)
        if sum(len(part) for part in parts) < LEAST_SAMPLES:
            return told
        if n_outside:
            told.append(f"{n_outside:,} samples are set aside, whose labels are not from 0 to {self.n_classes - 1}")
        self._keep(window, joined(parts), [_mark(path) for path in files], before)
        for path in files:
            _move(path, TAKEN)
        return told

    def _samples_in(self, path: Path) -> tuple[Samples, int]:
        """Those of a file whose labels are possible, and how many others it has."""
        if path.suffix != ".npz":
            raise ValueError("its name does not end in .npz")
        arrays = _arrays_in(path)
        if lacks := [key for key in ("x", "y") if key not in arrays]:
            raise ValueError(f"it has no array {lacks[0]}")
        x, y = arrays["x"], arrays["y"]
        if x.dtype != self.dtype or x.shape[1:] != self.shape:
            raise ValueError(f"x is {x.dtype} of shape {x.shape}; {self.dtype} of (n, {_shown(self.shape)}) is needed")
        if y.shape != (len(x),) or y.dtype.kind not in "iu":
            raise ValueError(f"y is {y.dtype} of shape {y.shape}; a whole number for each of {len(x):,} is needed")
        possible = (y >= 0) & (y < self.n_classes)
        return Samples(x[possible], y[possible].astype(np.int64)), int((~possible).sum())

    def _keep(self, window: int, new: Samples, names: list[str], before: _Arrays | None) -> None:
        """Write the window's file: its samples, those held out, and what is remembered of the windows before."""
        train, test = held_out(new, HELD_OUT, np.random.default_rng((self.seed, window, 6)))
        arrays: dict[str, Any] = {"names": np.array(names), "n_classes": np.array(self.n_classes)}
        arrays |= _named("", train) | _named("test_", test)
        if before is not None:
            rng = np.random.default_rng((self.seed, window, 7))
            for prefix in ("", "test_"):
                parts = [_samples(before, prefix), _samples(before, f"old_{prefix}")]
                drawn = joined([part for part in parts if len(part)]).drawn(N_REMEMBERED, rng)
                arrays |= _named(f"old_{prefix}", drawn)
        else:
            arrays |= _named("old_", new.take(np.arange(0))) | _named("old_test_", new.take(np.arange(0)))
        self.kept.mkdir(parents=True, exist_ok=True)
        raw = BytesIO()
        np.savez(raw, **arrays)
        write_whole(self.kept / f"window-{window}.npz", raw.getvalue())
        for path in sorted(self.kept.glob("window-*.npz"), key=lambda path: int(path.stem.removeprefix("window-")))[
            :-2
        ]:
            path.unlink()


def benchmark_in(path: Path, asked: Asked) -> Benchmark:
    """What a window's file holds: what is remembered from before as one experience, where there is any, and its own.

    Raises:
        LearningError: It is no such file.
    """
    try:
        arrays = _arrays_in(path)
        pairs = [(_samples(arrays, prefix), _samples(arrays, f"{prefix}test_")) for prefix in ("old_", "")]
        experiences = tuple(
            Experience(train, test, tuple(sorted({*train.labels.tolist(), *test.labels.tolist()})))
            for train, test in pairs
            if len(train)
        )
        return Benchmark(FOLDER, experiences, int(arrays["n_classes"]), asked)
    except (OSError, KeyError, ValueError) as error:
        raise LearningError(f"{path}: {error}") from error


def _arrays_in(path: Path) -> _Arrays:
    return read_arrays(path, _MOST_BYTES)


def _samples(arrays: _Arrays, prefix: str) -> Samples:
    return Samples(arrays[f"{prefix}x"], arrays[f"{prefix}y"])


def _named(prefix: str, samples: Samples) -> dict[str, NDArray[Any]]:
    return {f"{prefix}x": samples.inputs, f"{prefix}y": samples.labels}


def _shown(shape: tuple[int, ...]) -> str:
    return ", ".join(str(n) for n in shape)


def _mark(path: Path) -> str:
    """What tells a file from a later one of the same name."""
    status = path.stat()
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"


def _move(path: Path, where: str) -> None:
    """Move a file into a folder beside it, under another name where that is taken."""
    folder = path.parent / where
    folder.mkdir(exist_ok=True)
    to = folder / path.name
    if to.exists():
        to = folder / f"{path.stem}-{path.stat().st_mtime_ns}{path.suffix}"
    path.rename(to)
