"""The study of what salvage wins back: its courses are plans' own, and the best of them is one."""

from __future__ import annotations

from functools import cache

import pytest

from benchmarks import salvage
from benchmarks.salvage import IN_USE, N_WINDOWS, TRIED, Found, Instance, best_course, followed


@cache
def instance() -> Instance:
    return Instance.drawn(3)


def test_what_runs_do_is_one_of_what_is_tried() -> None:
    assert IN_USE in TRIED


def test_windows_differ_in_their_arrivals_alone() -> None:
    first, *others = instance().windows
    assert len(others) == N_WINDOWS - 1
    for other in others:
        for one, tenant in zip(first.tenants, other.tenants, strict=True):
            assert (one.options, one.capability_rps) == (tenant.options, tenant.capability_rps)
            assert one.arrivals_rps.tolist() != tenant.arrivals_rps.tolist()


def test_a_model_falls_by_its_drift_from_what_it_ended_with() -> None:
    one = instance()
    first, second = (tenant.options[0].accuracy_after for tenant in one.windows[0].tenants)
    expected = (first * one.drift[0], 0.5 * one.drift[1])
    assert one.after(0, (0.4, 0.5), (True, False)) == pytest.approx(expected)
    assert second > 0


def test_no_course_is_better_than_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage, "N_WINDOWS", 2)
    best = best_course(instance())
    for how in (None, IN_USE):
        assert followed(instance(), how) <= best * (1 + 1e-9)


def test_what_is_won_back_is_told_of_what_is_lost() -> None:
    found = Found(90.0, tuple(range(90, 90 + len(TRIED))), 110.0)
    assert (found.recovered(0), found.recovered(10)) == (0.0, 0.5)
