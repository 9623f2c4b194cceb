"""Runs of ``mudi``: shares that can be in each second, batches as told, and changes where something has happened."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from migrator.config.reading import read_config
from migrator.inputs.assembly import assemble
from migrator.log import records as recorded
from planner.policies.mudi import Mudi
from planner.policies.shares import QUANTA, Answer, Moment
from tests.migrator.execution.simulation import Assembled, Run, run_of
from tests.workloads.profiles.share_rows import share_text

WINDOW_S = 30
SHORT = {"window_s": WINDOW_S, "tenants.0.retraining.samples": 500, "tenants.0.arrivals.rate_rps": 30}


class Watched(Mudi):
    """The policy, which keeps the moments at which it decides."""

    decided: list[Moment]

    def answer(self, moment: Moment) -> Answer:
        self.decided.append(moment)
        return super().answer(moment)


def watched() -> Watched:
    policy = Watched()
    object.__setattr__(policy, "decided", [])
    return policy


@pytest.fixture
def assembled(write_config) -> Callable[..., Assembled]:
    def make(**changes: object) -> Assembled:
        path = write_config({**SHORT, **{key.replace("__", "."): value for key, value in changes.items()}})
        return assemble(read_config(path), str(path))

    return make


def shares_of(run: Run) -> list[recorded.Shares]:
    return [entry.record for entry in run.log.entries_of(recorded.Shares)]


def test_shares_never_exceed_the_gpu_and_at_most_three_train(assembled):
    found = shares_of(run_of(assembled(), Mudi()))
    assert found
    for entry in found:
        assert sum(quanta for _, _, quanta in entry.shares) <= QUANTA
        assert sum(task == "retraining" for _, task, _ in entry.shares) <= 3
        assert {task for _, task, _ in entry.shares} >= {"inference"}


def test_it_decides_as_windows_begin_trainings_end_and_rates_change_by_half(assembled):
    policy = watched()
    run_of(assembled(tenants__1__arrivals__scale__factor=1.0), policy)
    starts = [moment for moment in policy.decided if moment.left_s == WINDOW_S]
    assert len(starts) == 2
    for moment in policy.decided:
        before = moment.decided
        if moment in starts:
            continue
        assert before is not None
        rates = (np.array(one.past_rps[-10:]).mean(axis=0) for one in (before, moment))
        then, now = rates
        trained = [[one.is_to_retrain for one in seen.tenants] for seen in (before, moment)]
        assert (abs(now - then) > 0.5 * then).any() or trained[0] != trained[1]


def test_steady_arrivals_are_decided_for_once_a_window_and_once_a_retraining(assembled):
    policy = watched()
    steady = {"tenants__1__arrivals": {"rate_rps": 40}, "tenants__0__arrivals__rate_rps": 200}
    run_of(assembled(**steady), policy)
    assert len(policy.decided) <= 4


def test_batches_are_those_that_it_says(assembled):
    for entry in shares_of(run_of(assembled(), Mudi())):
        sizes = dict(entry.batches)
        assert set(sizes) == {"vision", "language"}
        assert set(sizes.values()) <= {1, 2, 4, 8, 16, 32, 64, 128}


def test_a_retraining_ends_in_what_inference_leaves(assembled):
    run = run_of(assembled(simulation__interference=0.25), Mudi())
    assert list(run.log.entries_of(recorded.Finished))


def test_it_goes_by_measured_shares(assembled, tmp_path):
    (tmp_path / "shares.csv").write_text(share_text())
    policy = watched()
    run_of(assembled(share_profiles=str(tmp_path / "shares.csv")), policy)
    vision = policy.decided[0].tenants[0]
    assert [own.most for own in vision.batches] == [1, 8]
    assert 1000 / vision.batches[0].speed[QUANTA // 2] == pytest.approx(4.0)
    assert vision.slo_s == 0.15
