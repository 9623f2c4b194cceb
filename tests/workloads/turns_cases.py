"""Turns of a whole GPU as the kernel for one lane took them, before pools: ``serving/turns_as_was.jsonl``.

``python tests/workloads/turns_cases.py`` compares the file with the code and exits with 1 where they differ;
``--write`` writes it. A line is a seed's: a digest of everything to the last bit, and some numbers that tell what has
changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "workloads")]

from serving_cases import COLUMNS, INF, random_curve  # noqa: E402

from workloads.profiles.latency import LatencyCurve  # noqa: E402
from workloads.serving.pool import Lane, Piece, PoolState, TrainingJob, advance  # noqa: E402
from workloads.serving.requests import AccuracyTimeline, Requests, Server, requests_of  # noqa: E402
from workloads.traffic.luck import ServiceJitter  # noqa: E402

AS_WAS = Path(__file__).parent / "serving" / "turns_as_was.jsonl"
SEEDS = range(180)


@dataclass(frozen=True)
class Case:
    """One GPU's tenants, trainings and rules, and where time is cut into pieces."""

    requests: Sequence[Requests]
    curves: Sequence[LatencyCurve]
    limits: Sequence[int]
    worths: Sequence[float]
    accuracies: Sequence[AccuracyTimeline]
    jobs: Sequence[TrainingJob]
    jitter: ServiceJitter | None
    trains_in_slack: bool
    turn_cost: float
    edges_s: Sequence[float]


def turns_case(seed: int) -> Case:
    """Every third case has moments on a grid, so that many are equal; a few have more batches than a jitter's block."""
    rng = np.random.default_rng((20_271, seed))
    is_coarse, n_tenants = seed % 3 == 0, int(rng.integers(1, 5))
    lasts_s, step_s = float(rng.uniform(2, 12)), 1 / 64

    def rounded(values: Any) -> Any:
        return np.maximum(np.round(np.asarray(values) / step_s), 1.0) * step_s if is_coarse else np.asarray(values)

    requests, curves, accuracies = [], [], []
    for number in range(n_tenants):
        n_requests = int(rng.integers(0, 1200 if seed % 20 == 1 else 260))
        times_s = np.sort(rounded(rng.uniform(0, lasts_s, n_requests)))
        requests.append(requests_of(f"t{number}", float(rounded(rng.uniform(0.03, 0.6))), times_s, seed))
        curve = random_curve(rng)
        curves.append(LatencyCurve(curve.batches, tuple(rounded(curve.latency_s).tolist())))
        moments_s = [0.0, *np.cumsum(rng.uniform(0.3, lasts_s / 2, int(rng.integers(0, 4)))).tolist()]
        accuracies.append(AccuracyTimeline(tuple(moments_s), tuple(rng.uniform(0, 1, len(moments_s)).tolist())))
    jobs = [
        TrainingJob(
            tenant_index=int(rng.integers(n_tenants)),
            window=int(rng.integers(3)),
            left_s=float(rounded(rng.uniform(0.1, 3.0))),
            piece_s=float(rounded(rng.uniform(0.01, 0.2))),
            ready_s=float(rounded(rng.uniform(0.0, lasts_s))) if rng.random() < 0.6 else 0.0,
            pace=float(rng.choice([0.0, 0.25, 0.6, 1.0])),
            due_s=float(rng.choice([INF, rng.uniform(1.0, 1.3 * lasts_s)])),
            worth=float(rng.choice([0.0, 0.5, 1.5])),
        )
        for _ in range(int(rng.integers(0, 5)))
    ]
    spread = [None, 0.0, 0.3, "measured"][int(rng.integers(4))]
    return Case(
        requests=requests,
        curves=curves,
        limits=[int(rng.choice([1, 2, 3, 8, 32])) for _ in range(n_tenants)],
        worths=[float(rng.integers(0, 3)) if seed % 4 else 0.0 for _ in range(n_tenants)],
        accuracies=accuracies,
        jobs=jobs,
        jitter=None if spread is None else ServiceJitter(seed, spread),  # type: ignore[arg-type]
        trains_in_slack=bool(rng.random() < 0.5),
        turn_cost=float(rng.choice([0.0, 0.05, 0.125, 0.5])),
        edges_s=sorted(rng.uniform(0, 1.2 * lasts_s, int(rng.integers(0, 9))).tolist()),
    )


def pieces_of(case: Case) -> list[tuple[PoolState, Piece]]:
    """All pieces; where a retraining ends, the next piece begins."""
    served = zip(case.requests, case.curves, case.limits, strict=True)
    gpu = Lane("gpu", tuple(Server(own.tenant, "gpu", 0.0, INF, curve, limit) for own, curve, limit in served))
    state, found = replace(PoolState.at_start(len(case.requests), others=["gpu"]), jobs=tuple(case.jobs)), []
    for until_s in (*case.edges_s, INF):
        while state.now_s < until_s:
            state, piece = advance(
                case.requests,
                state,
                [gpu],
                case.accuracies,
                until_s,
                case.jitter,
                worths=case.worths,
                trains_in_slack=case.trains_in_slack,
                turn_cost=case.turn_cost,
            )
            found.append((state, piece))
    return found


def _hand_over(state: PoolState) -> Sequence[Any]:
    """What the next piece is told."""
    busy_until_s = state.busy_until.get("gpu", state.now_s)
    jobs = [(job.tenant_index, job.window, job.left_s, job.has_begun) for job in state.jobs]
    heads, n_batches = (tuple(getattr(own, name) for own in state.queues) for name in ("head", "n_batches"))
    return [heads, n_batches, jobs, state.now_s, busy_until_s, state.holders["gpu"]]


def figures(seed: int) -> Mapping[str, Any]:
    """What becomes of the case."""
    pieces = pieces_of(turns_case(seed))
    digest = hashlib.sha256()
    for state, piece in pieces:
        columns = [getattr(own, name) for own in piece.outcomes for name in COLUMNS]
        columns += [getattr(piece.batches, name) for name in ("tenant_index", "begin_s", "end_s")]
        for column in columns:
            digest.update(column.tobytes())
        finished = None if piece.finished is None else (piece.finished.tenant_index, piece.finished.window)
        digest.update(repr([*_hand_over(state), finished]).encode())
    by_tenant = list(zip(*(piece.outcomes for _, piece in pieces), strict=True))
    return {
        "seed": seed,
        "digest": digest.hexdigest()[:24],
        "in_time": [int(sum(one.in_time.sum() for one in own)) for own in by_tenant],
        "correct": [int(sum(one.correct.sum() for one in own)) for own in by_tenant],
        "batches": [
            int(sum((piece.batches.tenant_index == i).sum() for _, piece in pieces)) for i in range(len(by_tenant))
        ],
        "trained_s": [round(piece.finished_s, 6) for _, piece in pieces if piece.finished is not None],
    }


def as_was() -> list[Mapping[str, Any]]:
    """The file's lines."""
    return [json.loads(line) for line in AS_WAS.read_text("utf-8").splitlines()]


def main() -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    found = [figures(seed) for seed in SEEDS]
    if parser.parse_args().write:
        AS_WAS.write_text("".join(f"{json.dumps(one, separators=(',', ':'))}\n" for one in found), "utf-8")
        return 0
    differ = [now["seed"] for now, then in zip(found, as_was(), strict=True) if now != then]
    print(f"{len(found)} cases; these differ: {differ}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
