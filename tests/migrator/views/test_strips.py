from __future__ import annotations

from collections.abc import Sequence

from migrator.views.strips import Bar, gantt
from migrator.views.timescale import TimeScale


def bar(
    rows: tuple[int, int], steps: tuple[int, int, int], tenant: int = 0, label: str = "", *, retrains: bool = False
) -> Bar:
    return Bar(*rows, *steps, tenant, is_retraining=retrains, label=label)


def drawn(bars: Sequence[Bar], n_rows: int, scale: TimeScale) -> list[str]:
    return [line.plain for line in gantt(bars, n_rows, scale, ("A", "B"))]


def test_an_instance_fills_its_rows_from_its_creation_to_its_end() -> None:
    assert drawn([bar((1, 3), (2, 4, 6))], 4, TimeScale(8, 8)) == ["········", "··░░AA··", "··░░AA··", "········"]


def test_small_letters_retrain() -> None:
    assert drawn([bar((0, 1), (0, 1, 4), tenant=1, retrains=True)], 1, TimeScale(4, 4)) == ["░bbb"]


def test_an_instance_that_never_serves_warms_to_its_end() -> None:
    assert drawn([bar((0, 1), (2, 9, 4))], 1, TimeScale(4, 4)) == ["··░░"]


def test_the_label_stands_at_the_beginning_of_what_serves_in_the_first_row() -> None:
    assert drawn([bar((0, 2), (0, 2, 8), label="2g")], 2, TimeScale(8, 8)) == ["░░2gAAAA", "░░AAAAAA"]


def test_a_label_that_would_leave_no_letter_is_left_out() -> None:
    assert drawn([bar((0, 1), (0, 0, 2), label="2g")], 1, TimeScale(4, 4)) == ["AA··"]


def test_a_label_does_not_reach_into_the_next_instance() -> None:
    bars = [bar((0, 1), (0, 0, 2), label="1g"), bar((0, 1), (2, 2, 8), label="1g")]
    assert drawn(bars, 1, TimeScale(8, 8)) == ["AA1gAAAA"]


def test_a_column_shows_what_fills_most_of_it() -> None:
    bars = [bar((0, 1), (0, 0, 3)), bar((0, 1), (3, 3, 7), tenant=1)]
    assert drawn(bars, 1, TimeScale(10, 2)) == ["A·"]
    assert drawn(bars, 1, TimeScale(9, 3)) == ["AB·"]
    assert drawn(bars, 1, TimeScale(10, 10)) == ["AAABBBB···"]


def test_tenants_and_tasks_differ_in_style() -> None:
    bars = [bar((0, 1), (0, 1, 2)), bar((0, 1), (2, 2, 3), tenant=1), bar((0, 1), (3, 3, 4), retrains=True)]
    (line,) = gantt(bars, 1, TimeScale(5, 5), ("A", "B"))
    assert len({str(span.style) for span in line.spans}) == 5
