"""Live arrivals as a traffic: closed seconds alone are known, and do not change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from migrator.config.reading import validate_config
from migrator.errors import ConfigError
from migrator.inputs.arrival_store import DAY_S, ArrivalStore
from migrator.inputs.arrivals import LAG_S, LIKE_S, LiveTraffic
from migrator.inputs.assembly import assemble, assemble_run
from migrator.inputs.traffic import Filled
from tests.migrator.conftest import SMALL, changed


def damage(said: str) -> None:
    raise AssertionError(said)


def store(folder: Path) -> ArrivalStore:
    return ArrivalStore(folder / "arrivals", ["a", "b"], damage)


@pytest.fixture
def traffic(tmp_path: Path) -> Callable[..., LiveTraffic]:
    """Of two tenants; each one that is made in a test goes on with what the one before has stored."""

    def made(door_s: int | None = 0, n_past: int = 20, rps: int = 3) -> LiveTraffic:
        own = LiveTraffic(["a", "b"], [], [np.full(n_past, rps), np.full(n_past, 2 * rps)])
        own.keep_in(store(tmp_path))
        if door_s is not None:
            own.has_door(door_s)
        return own

    return made


def counted(own: LiveTraffic, n_seconds: int, from_s: int = 0) -> None:
    for second in range(from_s, n_seconds):
        own.take("a", second, second)
        own.take("b", second, 100 + second)
    own.close(n_seconds)


def test_before_anybody_came_the_past_is_the_config_s(traffic) -> None:
    assert traffic().rates_before(0.0, 1.0, 4).tolist() == [[3, 6]] * 4
    assert traffic().rates_before(-5.0, 1.0).shape == (15, 2)
    assert LiveTraffic(["a"], [], [np.full(9, 7)]).rates_before(1.0, 1.0, 4).tolist() == [[7]] * 4
    assert traffic().filled_before(0.0, 12) == Filled(expected_s=12)


def test_who_comes_has_the_config_s_past_and_who_comes_again_its_own(traffic, tmp_path: Path) -> None:
    own = traffic()
    counted(own, 30)
    own.take("b", 30, 7)
    other = LiveTraffic(["b", "c"], [], [np.full(20, 9), np.arange(20)])
    own.change_tenants(other, ArrivalStore(tmp_path / "arrivals", ["b", "c"], damage))
    own.take("c", 30, 4)
    own.take("a", 30, 99)  # it has gone
    own.close(31)
    rates = own.rates_before(31.0 + LAG_S, 1.0, 12)
    assert rates[:-LAG_S, 0].tolist() == [*range(121, 130), 7]
    assert rates[:-LAG_S, 1].tolist() == [*range(11, 20), 4]
    assert {*own.sums(28, 29)} == {"b", "c"}
    again = LiveTraffic(["a", "b", "c"], [], [np.full(20, 50)] * 3)
    own.change_tenants(again, ArrivalStore(tmp_path / "arrivals", ["a", "b", "c"], damage))
    own.close(33)
    rates = own.rates_before(33.0 + LAG_S, 1.0, 12)
    assert rates[:7, 0].tolist() == [*range(23, 30)]  # as it was counted
    assert rates[-LAG_S - 1, 0] == 0  # it is here again, and nobody asked


def test_what_was_counted_is_known_but_for_the_newest_seconds(traffic) -> None:
    own = traffic()
    counted(own, 10)
    rates = own.rates_before(10.5, 1.0, 12)
    assert rates[:, 0].tolist() == [3, 3, *range(10 - LAG_S), *[5.0] * LAG_S]  # the mean of 3 to 7
    assert own.rates_before(10.0, 2.0, 2)[:, 1].tolist() == [106.5, 105.0]
    assert LIKE_S == 5
    assert own.filled_before(10.5, 12) == Filled(expected_s=2)


def test_a_closed_second_does_not_change_and_one_without_a_word_had_no_request(traffic) -> None:
    own = traffic()
    own.take("a", 0, 7)
    own.take("a", 0, 8)
    own.close(2)
    own.take("a", 0, 9)
    own.take("nobody", 3, 9)
    own.close(4)
    assert own.rates_before(6.0, 1.0, 6)[:4, 0].tolist() == [8, 0, 0, 0]


def test_what_was_told_later_is_not_seen_by_a_forecast_that_is_made_again(traffic) -> None:
    own = traffic()
    counted(own, 9)
    seen = own.rates_before(10.2, 1.0, 15).tolist()
    counted(own, 2000, 9)
    assert own.rates_before(10.2, 1.0, 15).tolist() == traffic(None).rates_before(10.2, 1.0, 15).tolist() == seen
    assert own.hindsight is None


def test_seconds_that_may_be_known_are_waited_for(traffic, tmp_path) -> None:
    own, asked = traffic(None), []
    own.keep_in(store(tmp_path), lambda second: (asked.append(second), counted(own, second)))
    assert own.rates_before(10.0, 1.0, 1).tolist() == [[3, 6]]
    assert asked == []  # there is no door
    own.has_door(4)
    for now_s in (5.9, 10.0, 10.9, 9.0):
        own.rates_before(now_s, 1.0, 1)
    assert asked == [8]
    assert own.rates_before(10.0, 1.0, 6)[:4, 0].tolist() == [4, 5, 6, 7]


def test_a_door_that_opens_late_leaves_seconds_unknown_and_they_are_as_both_sides(traffic) -> None:
    own = traffic(door_s=4)
    counted(own, 20)
    assert own.rates_before(20.0, 1.0, 20)[:6, 0].tolist() == [4.5] * 4 + [4, 5]  # 3, and 4 to 8
    assert own.filled_before(20.0, 20) == Filled(unknown_s=4)


def test_who_comes_back_knows_the_past_but_for_the_outage(traffic) -> None:
    counted(traffic(), 100)
    own = traffic(None)
    assert own.rates_before(140.0, 1.0, 50)[:, 0].tolist() == [*range(90, 100), *[97.0] * 40]
    assert own.filled_before(140.0, 50) == Filled(unknown_s=38, known_s=100)
    own.has_door(50)  # the clock stood still, or was set back: no second is counted twice
    counted(own, 105, 50)
    assert own.rates_before(107.0, 1.0, 9)[:7, 0].tolist() == [*range(98, 105)]
    assert own.rates_before(140.0, 1.0, 50).tolist() != own.up_to(100).rates_before(140.0, 1.0, 50).tolist()
    assert own.up_to(100).rates_before(140.0, 1.0, 50)[:, 0].tolist() == [*range(90, 100), *[97.0] * 40]


def test_an_outage_is_filled_with_the_day_before_where_that_was_counted(traffic) -> None:
    counted(traffic(door_s=50), 60)
    counted(traffic(door_s=DAY_S + 40), DAY_S + 55, DAY_S + 40)
    own = traffic(door_s=DAY_S + 70)
    counted(own, DAY_S + 80, DAY_S + 70)
    rates = own.rates_before(DAY_S + 80, 1.0, 40)
    known = [DAY_S + second for second in range(40, 80)]
    sides = DAY_S + (52 + 72) / 2
    assert rates[:38, 0].tolist() == [*known[:15], *range(55, 60), *[sides] * 10, *known[30:38]]
    assert own.filled_before(DAY_S + 80, 40) == Filled(unknown_s=15)
    assert own.rates_before(3 * DAY_S, 1.0, 3)[:, 0].tolist() == [DAY_S + 77] * 3  # off for more than a day


def test_a_second_that_is_unknown_of_one_tenant_is_known_of_the_other(traffic, tmp_path) -> None:
    counted(traffic(), 30)
    file = tmp_path / "arrivals" / "0-b"
    raw = bytearray(file.read_bytes())
    raw[8 * 12] ^= 1
    file.write_bytes(raw)
    told: list[str] = []
    own = traffic(None)
    own.keep_in(ArrivalStore(tmp_path / "arrivals", ["a", "b"], told.append))
    assert own.rates_before(20.0, 1.0, 10)[1:4].tolist() == [[11, 111], [12, (109 + 115) / 2], [13, 113]]
    assert own.filled_before(20.0, 10).unknown_s == 1
    assert told == [f"{file}: 1 s are damaged; what came then is taken as unknown"]


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


@pytest.mark.parametrize("zone", ["", "Z", "+09:00"])
def test_a_past_that_is_yet_to_come_is_refused(tmp_path, zone: str) -> None:
    rows = [f"2090-01-01T00:{n // 60:02}:{n % 60:02}{zone},{n % 9}" for n in range(200)]
    (tmp_path / "past.csv").write_text("\n".join(["time,requests", *rows]) + "\n")
    with pytest.raises(
        ConfigError, match=r"small: tenants.vision: arrivals.history: .*past.csv: goes on to 20\d\d-.*now$"
    ):
        assemble_run(config(history=str(tmp_path / "past.csv")), "small")
    (tmp_path / "past.csv").write_text(
        "\n".join(["time,requests", *(row.replace("2090", "2019") for row in rows)]) + "\n"
    )
    assert assemble_run(config(history=str(tmp_path / "past.csv")), "small")[1].origins


def test_the_past_before_the_run_is_stored_with_its_first_second_and_not_read_again(tmp_path) -> None:
    (tmp_path / "past.csv").write_text("second,count\n" + "".join(f"{n},{n % 9}\n" for n in range(200)))
    given = config(history=str(tmp_path / "past.csv"))
    store = ArrivalStore(tmp_path / "arrivals", ["vision", "language"], damage)
    first = assemble_run(given, "small", store=store)[1]
    assert isinstance(first, LiveTraffic)
    first.keep_in(store)
    first.has_door(1)
    (tmp_path / "past.csv").unlink()
    again = assemble_run(given, "small", store=store)[1]
    assert again.rates_before(0.0, 1.0).tolist() == first.rates_before(0.0, 1.0).tolist()
    assert (again.origins[0].source, store.end_s) == ("clients, after past.csv", 0)
    assert assemble_run(config(), "small", store=store)[1].origins[0].source == "clients"
