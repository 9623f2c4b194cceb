"""Recorded traffic tells of what has arrived, and nothing of what will, unless hindsight is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from migrator.config.reading import validate_config
from migrator.inputs.assembly import assemble
from migrator.inputs.traffic import RecordedTraffic
from tests.migrator.conftest import SMALL

HISTORY_S, RUN_S = 60, 120


@pytest.fixture(scope="module")
def traffic() -> RecordedTraffic:
    return assemble(validate_config(SMALL, "small.yaml"), "small.yaml")[1]


def counts(traffic: RecordedTraffic, n_seconds: int) -> np.ndarray:
    """Requests by second of the run, ``(n_seconds, n_tenants)``."""
    edges_s = np.arange(n_seconds + 1)
    return np.stack([np.histogram(own.arrival_s, edges_s)[0] for own in traffic.requests(0, RUN_S)], axis=1)


@pytest.mark.parametrize("at_s", [0, 1, 30, 60, 119, RUN_S])
def test_requests_of_any_seconds_are_those_of_the_run(traffic: RecordedTraffic, at_s: int) -> None:
    before, after = traffic.requests(0, at_s), traffic.requests(at_s, RUN_S)
    for one, other, whole in zip(before, after, traffic.requests(0, RUN_S), strict=True):
        assert one.end == other.first
        both = one.then(other)
        assert both.arrival_s.tolist() == whole.arrival_s.tolist()
        assert both.luck.tolist() == whole.luck.tolist()
        assert (one.arrival_s < at_s).all()
        assert (other.arrival_s >= at_s).all()


def test_there_are_no_requests_after_the_run(traffic: RecordedTraffic) -> None:
    assert not traffic.is_over(RUN_S - 1)
    assert traffic.is_over(RUN_S)
    assert [len(own) for own in traffic.requests(RUN_S, RUN_S + 60)] == [0, 0]


def test_rates_are_of_the_steps_before(traffic: RecordedTraffic) -> None:
    by_second = counts(traffic, 40)
    assert traffic.rates_before(40.0, 1.0, 15).tolist() == by_second[25:].tolist()
    assert traffic.rates_before(40.0, 5.0, 3) == pytest.approx(by_second[25:].reshape(3, 5, 2).mean(axis=1))


def test_the_last_step_ends_with_the_last_full_second(traffic: RecordedTraffic) -> None:
    assert traffic.rates_before(40.9, 1.0, 15).tolist() == traffic.rates_before(40.0, 1.0, 15).tolist()


@pytest.mark.parametrize("now_s", [0.0, 17.0, RUN_S])
def test_all_that_is_known_goes_back_to_before_the_run(traffic: RecordedTraffic, now_s: float) -> None:
    known = traffic.rates_before(now_s, 1.0)
    assert known.shape == (HISTORY_S + now_s, 2)
    assert known[HISTORY_S:].tolist() == counts(traffic, int(now_s)).tolist()


def test_hindsight_has_the_rates_to_come(traffic: RecordedTraffic) -> None:
    rates_rps = traffic.hindsight.rates_rps(60.0, 2.0, 30)
    assert rates_rps == pytest.approx(counts(traffic, RUN_S)[60:].reshape(30, 2, 2).mean(axis=1))


@pytest.mark.parametrize(("start_s", "step_s"), [(0.0, 0.5), (40.0, 2.5), (17.5, 0.25), (60.0, 1.0), (100.0, 3.0)])
def test_hindsight_counts_each_request_in_the_step_of_its_time(
    traffic: RecordedTraffic, start_s: float, step_s: float
) -> None:
    edges_s = start_s + step_s * np.arange(13)
    before = [np.searchsorted(own.arrival_s, edges_s) for own in traffic.requests(0, RUN_S)]
    expected = np.diff(np.stack(before, axis=1), axis=0) / step_s
    assert traffic.hindsight.rates_rps(start_s, step_s, 12).tolist() == expected.tolist()


def test_the_load_of_a_second_is_what_arrives_in_it(traffic: RecordedTraffic) -> None:
    by_second = counts(traffic, RUN_S)
    assert traffic.rate_in(7).tolist() == by_second[7].tolist()
    assert traffic.rate_in(RUN_S + 3).tolist() == by_second[-1].tolist()


def test_origins_name_trace_and_scale_of_each_tenant(traffic: RecordedTraffic) -> None:
    vision, language = traffic.origins
    assert "azure-conv" in language.source
    assert (vision.scale.factor, language.scale.factor) == (1.0, 4.0)
