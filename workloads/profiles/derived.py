"""Service profiles that nobody measured, computed from those that somebody did; every row says how.

A derived row is never mixed into a source's own figures: it carries ``derived``, which logs and
reports show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from workloads.errors import ProfileTableError
from workloads.profiles.table import ServiceRow

GFLOPS = {"vit-b-16": 17.56, "convnext-base": 15.36}
"""Work of one inference at 224×224. Source: MIGRator's paper, Table 3."""

LARGE_BATCH = 8
"""From this batch size on the GPU, and not the launching CPU, sets the pace."""


def latency_ratio(rows: Sequence[ServiceRow], model: str, profile: str, to_profile: str) -> float:
    """The median of latency on ``to_profile`` over latency on ``profile``, one process, batches ≥ ``LARGE_BATCH``.

    Raises:
        ProfileTableError: No batch was measured on both.
    """
    latency_s = {
        (row.profile, row.batch): row.latency_s
        for row in rows
        if row.model == model and row.processes == 1 and row.batch >= LARGE_BATCH
    }
    ratios = [
        latency_s[to_profile, batch] / seconds
        for (name, batch), seconds in latency_s.items()
        if name == profile and (to_profile, batch) in latency_s
    ]
    if not ratios:
        raise ProfileTableError(f"{model}: no batch ≥ {LARGE_BATCH} was measured on both {profile} and {to_profile}")
    return median(ratios)


def on_missing_profile(
    rows: Sequence[ServiceRow], *, profile: str, like: str, ratio: float, faster: str, origin: str
) -> list[ServiceRow]:
    """Rows on ``profile``: the latency on ``like`` times ``ratio``, but never below that on ``faster``.

    The bound matters for small batches, which a larger instance does not make faster. ``rows`` are
    of one model; ``origin`` says where the ratio is from.
    """
    least_s = {(row.batch, row.processes): row.latency_s for row in rows if row.profile == faster}
    derived = f"latency of {like} × {ratio:.3f} ({origin}), no faster than {faster}"
    return [
        _with_latency(row, max(row.latency_s * ratio, least_s.get((row.batch, row.processes), 0.0)), derived, profile)
        for row in rows
        if row.profile == like
    ]


def of_similar_model(rows: Sequence[ServiceRow], *, model: str, like: str) -> list[ServiceRow]:
    """Rows of ``model``: the latencies of ``like`` times the ratio of their work (:data:`GFLOPS`)."""
    ratio = GFLOPS[model] / GFLOPS[like]
    derived = f"latency of {like} × {GFLOPS[model]:g}/{GFLOPS[like]:g} (GFLOPs)"
    return [
        replace(
            _with_latency(row, row.latency_s * ratio, " and ".join(filter(None, (derived, row.derived))), row.profile),
            model=model,
        )
        for row in rows
        if row.model == like
    ]


def _with_latency(row: ServiceRow, latency_s: float, derived: str, profile: str) -> ServiceRow:
    rate_rps = row.batch * row.processes / latency_s
    return replace(row, profile=profile, latency_s=latency_s, throughput_rps=rate_rps, derived=derived)
