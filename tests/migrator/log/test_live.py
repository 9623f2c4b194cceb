"""What a live run's log says of its models."""

from __future__ import annotations

from migrator.log.live import known_of
from tests.migrator.log import records


def test_what_was_measured_goes_before_what_the_plan_was_told() -> None:
    models = {"a": {"accuracy_before": 0.7}}
    begun = [records.window_started(window, 30.0) for window in (0, 1)]
    log = records.log_of(
        records.header(30.0, simulated=False),
        *begun,
        {"kind": "measured", "window": 1, "measured_s": 38.0, "tenants": models},
    )
    known = known_of(log)
    assert known[1]["a"].accuracy_before == 0.7
    assert known[0]["a"].accuracy_before == begun[0]["forecast"]["tenants"]["a"]["accuracy_before"]
