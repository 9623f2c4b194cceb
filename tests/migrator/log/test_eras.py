"""A log is cut where tenants changed: each part speaks of those that it has."""

from __future__ import annotations

from typing import Any

from migrator.log.eras import eras_of
from migrator.log.records import Finished, RolledBack
from tests.migrator.log import records


def test_what_is_said_of_models_of_those_who_left_is_in_no_later_part() -> None:
    both: Any = records.header(60.0, "a", "b")
    (alone,) = (one for one in both["tenants"] if one["name"] == "a")
    log = records.log_of(
        both,
        records.window_started(0, 60.0, "a", "b"),
        records.finished(0, None, 30.0, "b"),
        records.rolled_back(40.0, "b", -1),
        records.rolled_back(45.0, "a", -1),
        {"kind": "tenants_changed", "window": 0, "tenants": [alone]},
        records.window_started(1, 60.0, "a"),
    )
    first, second = eras_of(log)
    assert [one.tenant for one in first.of(RolledBack)] == ["b", "a"]
    assert ([one.tenant for one in second.of(RolledBack)], second.of(Finished)) == (["a"], ())
