"""Mudi's Table 2, Figures 11 and 18, and the time of a placement: `python -m benchmarks.seeds.mudi [--curves N]`.

Wenyan Chen et al., "Mudi" (EuroSys '25). **Almost all is drawn**: latencies are two lines with a knee (equation 1),
times 2 % of noise, which is what Mudi takes latency to be. So the fits are compared where the third one can be exact.

What is assumed, none of it fitted to a row of the paper:

- *Curves*: the knee is at a sampled share from 20 to 70 %, and the first line four to twenty times as steep as the
  second, which falls by 2 to 25 % of the latency at the knee for all of the GPU.
- *Samples*: 5 to 9 of the tenths from 10 to 90 %, evenly spread (§4.1.1). The error is the mean over 41 shares between.
- *Fits*: a polynomial of the third degree; an MLP of eight tanh units, by Adam. The paper names neither.
- *Tuning*: six sizes of batches, whose mean iterations are 0 to 60 % longer than the best one's, a valley with ripples;
  a trial has 5 % of noise. The Gaussian process is that of §5.3.1, on the logarithm of the size. Printed is β_n = 2
  log(|R| / n²), which is negative from the third trial on with six sizes. It has the β_n of GP-UCB in its place.
- *Trainings never seen*: not drawn, but the shipped set (docs/profile.md): four models of a CPU beside three
  trainings, each left out in turn, by one factor a pair. The paper's figure is of the curves' four parameters.
- *Placement*: 1,000 services on a GPU each, curves of six sizes each; a training goes where the mean slope is least.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.seeds.salus import titled
from executor.catalogue import gpu_model
from planner.cluster.rivals import least_steep
from planner.policies.mudi import best_tried
from workloads.arrays import FloatArray
from workloads.profiles.knee import Knee, fitted_all
from workloads.profiles.share_table import read_share_table
from workloads.profiles.unseen import MEAN, guessed

SHARES = [n / 10 for n in range(1, 10)]
BETWEEN = np.linspace(0.1, 0.9, 41)
NOISE = 0.02
SIZES = (5, 6, 7, 8, 9)
PAPER = {
    "polynomial": (9.81, 8.31, 7.25, 6.71, 5.53),
    "MLP": (7.32, 7.36, 7.24, 7.15, 6.99),
    "two lines, the printed knee": (10.03, 6.41, 4.27, 3.91, 3.78),
}
"""Table 2, per cent."""

Latencies = FloatArray
Fit = Callable[[Sequence[float], Latencies], Latencies]
"""From samples ``(n_curves, n_shares)`` to latencies at ``BETWEEN``, ``(n_curves, 41)``."""


def drawn_curves(n: int, seed: int = 1) -> Iterator[Knee]:
    """As many curves."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        knee, level = float(rng.choice(SHARES[1:-2])), rng.uniform(20, 100)
        after = -rng.uniform(0.02, 0.25) * level
        yield Knee(knee, level, after * rng.uniform(4, 20), after, SHARES[0], SHARES[-1])


def by_polynomial(shares: Sequence[float], samples: Latencies) -> Latencies:
    """Least squares of the third degree."""
    coefficients = np.polynomial.polynomial.polyfit(shares, samples.T, 3)
    answered: Latencies = np.polynomial.polynomial.polyval(BETWEEN, coefficients).astype(np.float64)
    return answered


def by_mlp(shares: Sequence[float], samples: Latencies, n_units: int = 8, n_steps: int = 1500) -> Latencies:
    """A network with one layer for each curve, all at once."""
    rng, n = np.random.default_rng(0), len(samples)
    mean, spread = samples.mean(axis=1, keepdims=True), samples.std(axis=1, keepdims=True)
    x, y = (np.array(shares)[:, None] - 0.5) * 4, (samples - mean) / spread
    weights = [rng.normal(0, 1, (n, 1, n_units)), rng.normal(0, 1, (n, 1, n_units)), rng.normal(0, 0.3, (n, n_units))]
    moments = [(np.zeros_like(own), np.zeros_like(own)) for own in weights]
    for step in range(1, n_steps + 1):
        hidden = np.tanh(x * weights[0] + weights[1])
        left = np.einsum("csu,cu->cs", hidden, weights[2]) - y
        back = left[:, :, None] * weights[2][:, None] * (1 - hidden**2)
        slopes = [
            (back * x).sum(axis=1, keepdims=True),
            back.sum(axis=1, keepdims=True),
            np.einsum("cs,csu->cu", left, hidden),
        ]
        for place, slope in enumerate(slopes):
            first, second = moments[place]
            moments[place] = (0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2)
            first, second = moments[place][0] / (1 - 0.9**step), moments[place][1] / (1 - 0.999**step)
            weights[place] = weights[place] - 0.02 * first / (np.sqrt(second) + 1e-8)
    hidden = np.tanh((BETWEEN[:, None] - 0.5) * 4 * weights[0] + weights[1])
    answered: Latencies = np.einsum("csu,cu->cs", hidden, weights[2]) * spread + mean
    return answered


def by_printed_knee(shares: Sequence[float], samples: Latencies) -> Latencies:
    """Two lines with the knee at the inner sample of the lowest curvature, as §4.1.1 has it."""
    return np.stack([_lines(shares, own, 1 + int(_curvature(shares, own).argmin())) for own in samples])


def by_least_squares(shares: Sequence[float], samples: Latencies) -> Latencies:
    """Ours: two lines with the knee of the least squares."""
    return np.array([[curve.at(share) for share in BETWEEN.tolist()] for curve in fitted_all(shares, samples)])


FITS = {
    "polynomial": by_polynomial,
    "MLP": by_mlp,
    "two lines, the printed knee": by_printed_knee,
    "two lines, least squares (ours)": by_least_squares,
}


def _curvature(shares: Sequence[float], samples: Latencies) -> Latencies:
    """Of each inner sample: one over the radius of the circle through it and its neighbours, both axes from 0 to 1."""
    x = (np.array(shares) - shares[0]) / (shares[-1] - shares[0])
    y = (samples - samples.min()) / (np.ptp(samples) or 1.0)
    a, b = np.hypot(np.diff(x)[:-1], np.diff(y)[:-1]), np.hypot(np.diff(x)[1:], np.diff(y)[1:])
    c = np.hypot(x[2:] - x[:-2], y[2:] - y[:-2])
    doubled = (x[1:-1] - x[:-2]) * (y[2:] - y[:-2]) - (x[2:] - x[:-2]) * (y[1:-1] - y[:-2])
    curvature: Latencies = 2 * np.abs(doubled) / (a * b * c)
    return curvature


def _lines(shares: Sequence[float], samples: Latencies, place: int) -> Latencies:
    def design(at: Latencies) -> Latencies:
        beyond = at - shares[place]
        return np.stack([np.ones_like(beyond), np.minimum(beyond, 0), np.maximum(beyond, 0)], axis=1)

    found, *_ = np.linalg.lstsq(design(np.array(shares)), samples, rcond=None)
    answered: Latencies = design(BETWEEN) @ found
    return answered


def fit_errors(n_curves: int) -> dict[str, list[float]]:
    """Table 2: by fit, the mean error in per cent with 5 to 9 samples."""
    curves, rng = list(drawn_curves(n_curves)), np.random.default_rng(2)
    true = np.array([[curve.at(share) for share in BETWEEN.tolist()] for curve in curves])
    noisy = np.array([[curve.at(share) for share in SHARES] for curve in curves])
    noisy *= rng.lognormal(0, NOISE, noisy.shape)
    found: dict[str, list[float]] = {}
    for name, fit in FITS.items():
        for n in SIZES:
            places = np.linspace(0, len(SHARES) - 1, n).round().astype(int)
            guessed = fit([SHARES[place] for place in places], noisy[:, places])
            found.setdefault(name, []).append(100 * float(np.mean(np.abs(guessed / true - 1))))
    return found


# --- tuning

BATCHES = np.log2([16, 32, 64, 128, 256, 512])
TRIALS = (6, 12, 18, 24)
TRIAL_NOISE = 0.05
N_TUNED = 400


def by_gaussian_process(trial: Callable[[int], float], n_trials: int) -> int:
    """The size with the least mean of a Gaussian process that chose the trials by its lower confidence bound."""
    places, found = [2], [trial(2)]
    while True:
        mean, spread = _posterior(np.array(places), np.array(found))
        if len(places) == n_trials:
            return int(np.argmin(mean))
        beta = 2 * np.log(len(BATCHES) * len(places) ** 2 * np.pi**2 / 0.6)
        places.append(int(np.argmin(mean - np.sqrt(beta) * spread)))
        found.append(trial(places[-1]))


def _posterior(places: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, spread = found.mean(), found.std() or 1.0
    kernel = np.exp(-0.5 * ((BATCHES[:, None] - BATCHES) / 1.5) ** 2)
    own = kernel[np.ix_(places, places)] + ((TRIAL_NOISE * mean / spread) ** 2 + 1e-9) * np.eye(len(places))
    beside = kernel[:, places]
    solved = np.linalg.solve(own, np.column_stack([(found - mean) / spread, beside.T]))
    variance = np.maximum(1 - np.einsum("bp,pb->b", beside, solved[:, 1:]), 1e-12)
    return beside @ solved[:, 0] * spread + mean, np.sqrt(variance) * spread


def by_means(trial: Callable[[int], float], n_trials: int) -> int:
    """Ours: each size equally often, the best mean."""
    return best_tried(range(len(BATCHES)), trial, n_trials // len(BATCHES))


def _trial(true: Latencies, rng: np.random.Generator, place: int) -> float:
    return float(true[place] * rng.lognormal(0, TRIAL_NOISE))


def tuning_losses(n_tuned: int = N_TUNED) -> dict[str, list[float]]:
    """Figure 18(a): by tuner, the mean loss in per cent of the best size's iteration after so many trials."""
    tuners = {"Gaussian process": by_gaussian_process, "each equally often (ours)": by_means}
    found: dict[str, list[float]] = {}
    for name, tuner in tuners.items():
        for n_trials in TRIALS:
            losses = []
            for seed in range(n_tuned):
                rng = np.random.default_rng(1000 + seed)
                steps = (np.arange(len(BATCHES)) - rng.integers(0, len(BATCHES))) ** 2
                true = 100 * (1 + rng.uniform(0.02, 0.1) * steps / 4 + rng.normal(0, 0.015, len(BATCHES)))
                place = tuner(partial(_trial, true, rng), n_trials)
                losses.append(true[place] / true.min() - 1)
            found.setdefault(name, []).append(100 * float(np.mean(losses)))
    return found


# --- trainings never seen

SHARED_CPU = Path(__file__).parents[2] / "configs" / "live-cpu-shares.csv"
COUNTS = {"mlp": (0, 1, 1, 0, 0, 0, 1, 0, 1, 0, 0), "cnn": (2, 1, 3, 0, 0, 0, 1, 0, 1, 2, 0)}
"""Modules of Mudi's kinds, as :func:`workloads.learning.modules.module_counts` has them."""

FIGURE_11 = "0.23, 0.16, 0.05, 0.06"
"""The paper's: errors of both slopes, and of the knee's place and latency; means of its six services."""


def unseen_errors() -> dict[str, dict[str, float]]:
    """Figure 11: by way to guess, then by served model, the mean relative error with one training left out."""
    table = read_share_table(SHARED_CPU, gpu_model("cpu-1.6-in-7"))
    counts = {**COUNTS, "cnn_wide": COUNTS["cnn"]}
    found: dict[str, dict[str, float]] = {}
    for model in table.models:
        for way, error in guessed(counts, table.beside(model), COUNTS["cnn"]).errors.items():
            found.setdefault(way, {})[model] = error
    return found


# --- placement


@dataclass(frozen=True, slots=True)
class Placement:
    """Milliseconds of one core.

    Attributes:
        fit_ms: For the curves of all services at all sizes, once.
        place_ms: For one training: the mean slopes, and the GPU of the least one. The mean of 20, and the most.
    """

    fit_ms: float
    place_ms: tuple[float, float]


def placed(n_gpus: int = 1000) -> Placement:
    """What placing trainings takes, each beside the services and those that were placed before."""
    curves = list(drawn_curves(n_gpus * len(BATCHES), seed=3))
    samples = np.array([[curve.at(share) for share in SHARES] for curve in curves])
    begin = time.process_time()
    knees = fitted_all(SHARES, samples)
    fit_ms = 1000 * (time.process_time() - begin)
    n_training, loaded, taken = np.zeros(n_gpus, dtype=np.int32), np.zeros(n_gpus), []
    for factor in np.random.default_rng(4).uniform(1.1, 1.7, 20):
        begin = time.process_time()
        slopes = factor * np.array([(abs(knee.before) + abs(knee.after)) / 2 for knee in knees])
        gpu = least_steep(slopes.reshape(n_gpus, -1).mean(axis=1), n_training, loaded, range(n_gpus))
        taken.append(1000 * (time.process_time() - begin))
        n_training[gpu] += 1
    return Placement(fit_ms, (float(np.mean(taken)), max(taken)))


# --- what is printed


def fits_table(errors: dict[str, list[float]]) -> Table:
    """Table 2: the paper's and ours."""
    table = titled("Table 2, mean error in %: the paper / ours, drawn", *(f"{n} samples" for n in SIZES))
    for name, own in errors.items():
        printed = PAPER.get(name)
        table.add_row(name, *(f"{printed[k] if printed else '–'} / {error:.2f}" for k, error in enumerate(own)))
    return table


def tuning_table(losses: dict[str, list[float]]) -> Table:
    """Figure 18(a): loss after trials; the paper says how many its process takes, not what they lose."""
    table = titled("Figure 18(a), ours: mean loss in %", *(f"{n} trials" for n in TRIALS))
    for name, own in losses.items():
        table.add_row(name, *(f"{loss:.2f}" for loss in own))
    return table


def unseen_table(errors: dict[str, dict[str, float]]) -> Table:
    """Figure 11: how far off the factor of a training is that was left out."""
    models = list(next(iter(errors.values())))
    table = titled("Figure 11, ours: mean relative error, by served model", *models, "mean")
    for way, own in errors.items():
        table.add_row(way, *(f"{own[model]:.2f}" for model in models), f"{np.mean(list(own.values())):.2f}")
    return table


def why_table(
    errors: dict[str, list[float]],
    losses: dict[str, list[float]],
    unseen: dict[str, dict[str, float]],
    placement: Placement,
) -> Table:
    """What the paper says, what comes out here, and why they differ."""
    table = titled("Where the paper and ours differ", "paper", "ours", "why")
    table.columns[-1].justify = "left"
    printed, ours = (errors[name] for name in ("two lines, the printed knee", "two lines, least squares (ours)"))
    process, means = losses.values()
    mean_ms, most_ms = placement.place_ms
    rows = (
        ("error, two lines, 9 samples", "3.78", f"{ours[-1]:.2f}", "Ours are drawn as two lines, theirs measured."),
        ("the same, the printed knee", "3.78", f"{printed[-1]:.2f}", "The lowest curvature is where nothing bends."),
        ("two lines best from", "6 samples", _best_from(errors), "Five samples are one more than the parameters."),
        ("error, never seen", FIGURE_11, _of_unseen(unseen), "Of three trainings two have the same modules."),
        ("trials until it converges", "17 to 25", "24", "Each of six sizes four times, whatever is found."),
        ("loss after 24 trials, %", "–", f"{means[-1]:.2f}", f"A Gaussian process loses {process[-1]:.2f}."),
        (
            "a placement, 1,000 GPUs, ms",
            "≤ 31, mean 19",
            f"≤ {most_ms:.1f}, mean {mean_ms:.1f}",
            f"One core; all curves are fitted before, in {placement.fit_ms:.0f} ms. Theirs asks a cluster's plugin.",
        ),
    )  # fmt: skip
    for row in rows:
        table.add_row(*row)
    return table


def _of_unseen(unseen: dict[str, dict[str, float]]) -> str:
    """The mean of the others' error, and the least of what learns."""
    means = {way: float(np.mean(list(own.values()))) for way, own in unseen.items()}
    learned = min(error for way, error in means.items() if way != MEAN)
    return f"{learned:.2f}, mean {means[MEAN]:.2f}"


def _best_from(errors: dict[str, list[float]]) -> str:
    """The fewest samples from which on our fit has the least error."""
    *others, ours = errors.values()
    best = [own < min(other[k] for other in others) for k, own in enumerate(ours)]
    first = next((n for k, n in enumerate(SIZES) if all(best[k:])), None)
    return "never" if first is None else f"{first} samples"


def main() -> None:
    """Draw the curves and print what the paper says, what comes out, and why they differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=int, default=500, help="how many are fitted")
    errors, losses = fit_errors(parser.parse_args().curves), tuning_losses()
    unseen, placement = unseen_errors(), placed()
    console = Console(width=160, highlight=False, markup=False)
    console.print("Mudi's fits, tuner and selector on drawn curves, and its guesses on measured ones, without a GPU.\n")
    console.print(fits_table(errors), unseen_table(unseen), tuning_table(losses))
    console.print(why_table(errors, losses, unseen, placement))


if __name__ == "__main__":
    main()
