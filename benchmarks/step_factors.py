"""Makes ``workloads/data/step_factors.csv``: how much measured steps of training vary around their mean.

The source is MISO's step times (``mps/models/logs/mig`` of boringlee24/socc22-miso), gathered in one ``.npz`` file: an
array of seconds for each ``<profile>__<model>__b<batch>``, a run's epochs one after the other. Training on each MIG
profile of an A100-40GB, with Keras; a callback reads the clock around each step, to 0.1 ms. ::

    python -m benchmarks.step_factors miso_step_seconds.npz > workloads/data/step_factors.csv

``workloads/data/README.md`` says what is left out, and why.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

SAMPLES = {"bert": 1000, "resnet50": 50_000, "mobilenet-v2": 50_000, "cyclegan": 1067}
"""Samples of an epoch, by model. Source: the training scripts of the repository, and their data sets."""

STEPS = {"transformer-timeseries": 25}
"""Steps of an epoch at any batch, by model. Source: as above."""

LONGEST_S = 0.120
"""Mean of a step, at most: the longest batch that the shipped workloads serve."""

N_WARM_UP, N_BEGIN, N_END, N_LEAST = 20, 3, 1, 50
"""Steps left out of a run's only epoch; at the begin and the end of another; and how many must remain."""

GRID = 0.005
"""Factors are rounded to multiples of this."""


def steps_of_epoch(model: str, batch: int) -> int | None:
    """How many steps an epoch has; ``None`` where inputs are not all of one size, or pauses stand between them."""
    return math.ceil(SAMPLES[model] / batch) if model in SAMPLES else STEPS.get(model)


def steady_s(seconds: FloatArray, n_epoch: int) -> FloatArray:
    """The steps of one run in which nothing else happens than a step.

    The first epoch compiles and fills caches. An epoch begins by filling the shuffle buffer, and its last batch
    is smaller than the others. A run that was cut short in its first epoch loses its first steps only.
    """
    if seconds.size <= n_epoch:
        return seconds[N_WARM_UP:]
    later = [seconds[begin : begin + n_epoch] for begin in range(n_epoch, seconds.size, n_epoch)]
    return np.concatenate([epoch[N_BEGIN:-N_END] for epoch in later])


def factors_of(runs: Mapping[str, FloatArray]) -> Iterator[FloatArray]:
    """For each run that is taken, its steady steps over their mean."""
    for key in sorted(runs):
        _, model, batch = key.split("__")
        n_epoch = steps_of_epoch(model, int(batch.removeprefix("b")))
        if n_epoch is None:
            continue
        seconds = steady_s(np.asarray(runs[key], dtype=np.float64), n_epoch)
        if seconds.size >= N_LEAST and seconds.mean() <= LONGEST_S:
            yield seconds / seconds.mean()


def table(runs: Mapping[str, FloatArray]) -> str:
    """The CSV file: rounded factors, ascending, and the share of steps with each; every run has the same weight."""
    shares: Counter[int] = Counter()
    taken = list(factors_of(runs))
    for factors in taken:
        places, n_steps = np.unique(np.rint(factors / GRID).astype(int), return_counts=True)
        for place, n in zip(places.tolist(), n_steps.tolist(), strict=True):
            shares[place] += n / factors.size / len(taken)
    rows = [f"{place * GRID:.3f},{shares[place]:.8f}" for place in sorted(shares)]
    return "\n".join(["factor,share", *rows]) + "\n"


def main() -> None:
    """Print the table of the file that is named."""
    with np.load(Path(sys.argv[1])) as runs:
        print(table(runs), end="")


if __name__ == "__main__":
    main()
