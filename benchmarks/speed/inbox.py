"""What reading a folder of labelled samples takes, as a tenant's profiler does as a window begins.

Run with ``python -m benchmarks.speed.inbox``. Target: 1,000 files of 100 samples, one of which is torn, in at most
5 CPU seconds, the torn one told.

Samples are 32×32 colour images, 300 MB together. The time is that of this process, writing the window's file included;
a later window reads that one, too, and is timed as well.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from time import process_time

import numpy as np

from workloads.learning.inbox import Inbox

N_FILES, N_SAMPLES, SHAPE, N_CLASSES = 1_000, 100, (3, 32, 32), 10
MOST_S = 5.0


def write(folder: Path, seed: int) -> None:
    """Files of others, of which one is torn."""
    rng = np.random.default_rng(seed)
    for number in range(N_FILES):
        x = rng.integers(0, 256, (N_SAMPLES, *SHAPE), np.uint8)
        np.savez(folder / f"{seed}-{number:04}.npz", x=x, y=rng.integers(0, N_CLASSES, N_SAMPLES))
    torn = folder / f"{seed}-0500.npz"
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])


def main() -> None:
    """Print what two windows take, and whether that is within the target."""
    within = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        theirs, kept = folder / "theirs", folder / "kept"
        theirs.mkdir()
        inbox = Inbox(theirs, kept, "uint8", SHAPE, N_CLASSES, seed=1)
        for window in range(2):
            write(theirs, window)
            begun_s = process_time()
            told = inbox.take_up(window)
            took_s = process_time() - begun_s
            sys.stdout.write(f"window {window}: {took_s:.2f} CPU s for {N_FILES:,} files of {N_SAMPLES}; {told}\n")
            within &= took_s <= MOST_S and len(told) == 1 and f"{window}-0500.npz" in told[0]
    sys.exit(0 if within else f"more than {MOST_S:g} CPU s, or no word of the torn file")


if __name__ == "__main__":
    main()
