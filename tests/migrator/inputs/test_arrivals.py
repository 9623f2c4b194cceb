"""Live arrivals as a traffic: closed seconds alone are known, and do not change."""

from __future__ import annotations

import numpy as np
import pytest

from migrator.config.reading import validate_config
from migrator.errors import ConfigError
from migrator.inputs.arrivals import LAG_S, LIKE_S, LiveTraffic
from migrator.inputs.assembly import assemble, assemble_run
from tests.migrator.conftest import SMALL, changed


def traffic(n_past: int = 20, rps: int = 3) -> LiveTraffic:
    return LiveTraffic(["a", "b"], [], [np.full(n_past, rps), np.full(n_past, 2 * rps)])


def counted(own: LiveTraffic, n_seconds: int) -> None:
    for second in range(n_seconds):
        own.take("a", second, second)
        own.take("b", second, 100 + second)
    own.close(n_seconds)


def test_before_anybody_came_the_past_is_the_config_s() -> None:
    assert traffic().rates_before(0.0, 1.0, 4).tolist() == [[3, 6]] * 4
    assert traffic().rates_before(-5.0, 1.0).shape == (15, 2)


def test_what_was_counted_is_known_but_for_the_newest_seconds() -> None:
    own = traffic()
    counted(own, 10)
    rates = own.rates_before(10.5, 1.0, 12)
    assert rates[:, 0].tolist() == [3, 3, *range(10 - LAG_S), *[5.0] * LAG_S]  # the mean of 3 to 7
    assert own.rates_before(10.0, 2.0, 2)[:, 1].tolist() == [106.5, 105.0]
    assert LIKE_S == 5


def test_a_closed_second_does_not_change_and_one_without_a_word_had_no_request() -> None:
    own = traffic()
    own.take("a", 0, 7)
    own.take("a", 0, 8)
    own.close(2)
    own.take("a", 0, 9)
    own.take("nobody", 3, 9)
    own.close(4)
    assert own.rates_before(6.0, 1.0, 6)[:4, 0].tolist() == [8, 0, 0, 0]


def test_what_was_told_later_is_not_seen_by_a_forecast_that_is_made_again() -> None:
    own, whole = traffic(), traffic()
    counted(own, 9)
    counted(whole, 2000)
    assert own.rates_before(10.2, 1.0, 15).tolist() == whole.rates_before(10.2, 1.0, 15).tolist()
    assert whole.hindsight is None


def test_a_run_that_is_joined_again_knows_of_no_request_before() -> None:
    own = traffic()
    own.begin(1000)
    own.take("a", 999, 50)
    own.take("a", 1000, 7)
    own.close(1004)
    assert own.rates_before(1000.0, 1.0, 3).tolist() == [[3, 6]] * 3
    assert own.rates_before(1005.0, 1.0, 7)[:5, 0].tolist() == [3, 3, 7, 0, 0]


LIVE = {"input": {"dtype": "uint8", "shape": [4]}, "classes": 3, "accuracy": 0.8}


def config(**arrivals: object):
    changes = {"gpu.backend": "nvml", "front_door": {}, "tenants.0.retraining": None}
    for place in (0, 1):
        changes |= {f"tenants.{place}.{key}": one for key, one in LIVE.items()}
        changes |= {f"tenants.{place}.arrivals": {"live": True, **arrivals}}
    return validate_config(changed(SMALL, changes), "small")


def test_a_rate_or_a_trace_is_the_past_of_clients_to_come(tmp_path) -> None:
    (tmp_path / "past.csv").write_text("second,count\n" + "".join(f"{n},{n % 9}\n" for n in range(200)))
    history_s = round(SMALL["forecast"]["history_s"])
    _, expected = assemble_run(config(expect_rps=2.5), "small")
    assert expected.rates_before(0.0, 1.0)[:, 0].sum() == pytest.approx(2.5 * history_s, abs=1)
    setting, recorded = assemble_run(config(history=str(tmp_path / "past.csv")), "small")
    assert recorded.rates_before(0.0, 1.0)[-3:, 0].tolist() == [8, 0, 1]
    assert (recorded.origins[0].source, setting.forecaster is None) == ("clients, after past.csv", False)


def test_a_past_that_is_not_there_or_too_short_is_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"small: tenants.vision: arrivals: nothing is known of the past; history or"):
        assemble_run(config(), "small")
    (tmp_path / "past.csv").write_text("second,count\n0,1\n1,2\n")
    with pytest.raises(ConfigError, match=r"arrivals.history: .*past.csv: has 2 s; forecast.history_s = \d+ s are"):
        assemble_run(config(history=str(tmp_path / "past.csv")), "small")
    with pytest.raises(ConfigError, match=r"tenants.vision.arrivals.live: nothing arrives before clients come"):
        assemble(config(expect_rps=1), "small")
