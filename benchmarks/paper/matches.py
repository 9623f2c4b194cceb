"""The matches of an experiment: its workloads' configs, with what it changes in them."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.paper.experiments import Experiment
from migrator.compare import Match
from migrator.config import Config, TenantConfig, read_config
from migrator.outputs import write_output
from migrator.setting import assemble
from workloads.profiles.table import COLUMNS, ServiceProfiles, ServiceRow, shipped_profiles
from workloads.traffic.trace_file import TraceFormat, read_trace

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "runs" / "reproduce"

WHOLE_GPU = "7g.80gb"

HALF_WEEK_S, SIX_HOURS_S, DAY_S = 302_400, 21_600, 86_400

PIECE_HISTORY_S, PIECE_MARGIN_S = 660, 60
"""Seconds of the Twitter counts before and after a run: what forecasts look back on, and what smoothing reaches to."""


def matches_of(experiment: Experiment, traces: Path | None = None) -> list[Match]:
    """Every policy on every segment of every workload of the experiment; ``traces`` are the Twitter counts.

    Raises:
        ValueError: The experiment needs ``traces``.
    """
    found = []
    for name in experiment.workloads:
        config = read_config(ROOT / "configs" / f"{name}.yaml", windows=experiment.windows, **experiment.changes)
        tenants = [tenant.model_copy(update={"batch": experiment.batch}) for tenant in config.tenants]
        config = config.model_copy(update={"tenants": tenants})
        for number, segment in enumerate(_segments(experiment, config, traces)):
            found += [
                Match(policy, segment, f"configs/{name}.yaml", number, experiment.terms)
                for policy in experiment.policies
            ]
    return found


def _segments(experiment: Experiment, config: Config, traces: Path | None) -> Iterator[Config]:
    if experiment.n_segments:
        if traces is None:
            raise ValueError(f"experiment {experiment.name} needs the Twitter counts")
        yield from (_on_twitter(config, traces, number) for number in range(experiment.n_segments))
    elif experiment.perturbation is not None:
        profiles = perturbed(shipped_profiles(), experiment.perturbation)
        yield config.model_copy(update={"profiles": str(_kept_profiles(profiles))})
    elif experiment.whole_slowdown != 1.0:
        # The resolved config has the scale factors of the profiles as they are, so that the same requests come.
        resolved = assemble(config, config.name)[0].config
        profiles = slower(shipped_profiles(), WHOLE_GPU, experiment.whole_slowdown)
        yield resolved.model_copy(update={"profiles": str(_kept_profiles(profiles))})
    else:
        yield config


def _on_twitter(config: Config, traces: Path, segment: int) -> Config:
    tenants = [
        _on_piece(tenant, _piece(traces, twitter_offset_s(segment, place), round(config.windows * config.window_s)))
        for place, tenant in enumerate(config.tenants)
    ]
    return config.model_copy(update={"tenants": tenants})


def _on_piece(tenant: TenantConfig, piece: Path) -> TenantConfig:
    update = {"trace": str(piece), "format": "counts", "offset_s": PIECE_HISTORY_S}
    return tenant.model_copy(update={"arrivals": tenant.arrivals.model_copy(update=update)})


def _piece(traces: Path, offset_s: int, duration_s: int) -> Path:
    """The counts of a run that begins at ``offset_s``, with what forecasting and smoothing need around it, as a file.

    Two weeks of counts take seconds to read, and every match would read them.
    """
    counts = _counts(traces)[offset_s - PIECE_HISTORY_S : offset_s + duration_s + PIECE_MARGIN_S]
    lines = ["second,count", *(f"{second},{count}" for second, count in enumerate(counts))]
    return _kept("counts", "\n".join(lines) + "\n")


def require_two_weeks(traces: Path) -> None:
    """Nothing, if the file has the counts of two weeks.

    Raises:
        TraceError: No such file, or it holds no counts.
        ValueError: It is shorter.
    """
    if len(_counts(traces)) < 4 * HALF_WEEK_S:
        raise ValueError(f"{traces}: has {len(_counts(traces))} seconds; two weeks, {4 * HALF_WEEK_S}, are needed")


@cache
def _counts(traces: Path) -> tuple[int, ...]:
    return tuple(read_trace(traces, TraceFormat.COUNTS).counts.tolist())


def twitter_offset_s(segment: int, place: int) -> int:
    """Where a segment begins for the tenant at ``place``: in the second week, away from the gap that ends each day."""
    week_s = 2 * HALF_WEEK_S
    return week_s + (7_200 + SIX_HOURS_S * segment + place * (HALF_WEEK_S + 10_800)) % week_s


def perturbed(profiles: ServiceProfiles, seed: int) -> ServiceProfiles:
    """The table with the latencies of each model on each profile times a factor of its own from [0.8, 1.2]."""
    curves = sorted({(row.gpu, row.model, row.profile) for row in profiles.rows})
    factors = dict(zip(curves, np.random.default_rng(seed).uniform(0.8, 1.2, len(curves)).tolist(), strict=True))
    rows = tuple(_slower_row(row, factors[row.gpu, row.model, row.profile]) for row in profiles.rows)
    return ServiceProfiles(f"{profiles.name}, perturbed", rows)


def slower(profiles: ServiceProfiles, profile: str, slowdown: float) -> ServiceProfiles:
    """The table with all latencies on ``profile`` times ``slowdown``."""
    rows = tuple(_slower_row(row, slowdown if row.profile == profile else 1.0) for row in profiles.rows)
    return ServiceProfiles(f"{profiles.name}, {profile} slower", rows)


def _slower_row(row: ServiceRow, factor: float) -> ServiceRow:
    return replace(row, latency_s=row.latency_s * factor, throughput_rps=row.throughput_rps / factor)


def _kept_profiles(profiles: ServiceProfiles) -> Path:
    """The table as a file under ``runs``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*COLUMNS, "derived"))
    for row in profiles.rows:
        cells = (row.source, row.gpu, row.model, row.profile, row.batch, row.processes)
        writer.writerow((*cells, row.latency_s * 1000, row.throughput_rps, row.derived))
    return _kept("profiles", text.getvalue())


def _kept(kind: str, text: str) -> Path:
    """The text as a CSV file under ``runs``, named by its content."""
    path = CACHE / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.csv"
    if not path.is_file():
        CACHE.mkdir(parents=True, exist_ok=True)
        write_output(kind, path, text)
    return path
