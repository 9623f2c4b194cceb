"""What the line before a run says of a trace that begins again."""

import pytest

from migrator.config.sections import ArrivalsConfig
from migrator.inputs.traffic import Origin
from migrator.views.traffic import again_text
from workloads.traffic.scaling import Recorded, Scale, ScaleMethod


def said(offset_s: int | None, n_seconds: int, *, loop: bool = True, history_s: int = 60) -> str:
    """Of a trace of 200 s."""
    scale = Scale(method=ScaleMethod.THIN, factor=1.0)
    origin = Origin("a.csv", scale, 0.5, 1.0, 1.0, 900, n_seconds, Recorded(1000, 200, 9, has_times=True))
    return again_text(ArrivalsConfig(trace="a.csv", offset_s=offset_s, loop=loop), origin, history_s)


@pytest.mark.parametrize(
    ("offset_s", "n_seconds", "words"),
    [
        (100, 100, ""),
        (100, 101, "the trace begins again once, in the run's last 1 s; "),
        (None, 180, "the trace begins again once, in the run's last 40 s; "),
        (100, 501, "the trace begins again 3 times, in the run's last 401 s; "),
        (300, 120, "the trace begins again once, in the run's last 20 s; "),
        (20, 100, "the first 40 of 60 s of history go back over its begin to its end; "),
    ],
)
def test_a_trace_that_begins_again_is_told_with_times_and_seconds(offset_s: int, n_seconds: int, words: str) -> None:
    assert said(offset_s, n_seconds) == words


def test_a_trace_that_does_not_loop_has_nothing_to_be_told() -> None:
    assert said(100, 100, loop=False) == ""
