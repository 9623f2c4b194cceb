from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from executor.catalogue import gpu_model
from executor.mig import OwnedLayout
from migrator.views.strips import Bar, TimeScale, gantt, layout_strip, sparkline, tenant_letters
from planner.problem import Owner, Task

SIZES = [(n_steps, columns) for n_steps in (1, 3, 7, 68, 69, 70, 200, 400, 2000) for columns in (20, 69, 109)]


@pytest.mark.parametrize(
    ("names", "letters"),
    [
        (("vision", "language"), ("V", "L")),
        (("resnet", "roberta"), ("A", "B")),
        (("1st", "second"), ("A", "B")),
        (("one",), ("O",)),
    ],
)
def test_first_letters_where_they_differ_else_in_order(names: tuple[str, ...], letters: tuple[str, ...]) -> None:
    assert tenant_letters(names) == letters


@pytest.mark.parametrize(("n_steps", "columns"), SIZES)
def test_the_width_stays_within_the_columns_and_steps_have_whole_ones_if_they_can(n_steps: int, columns: int) -> None:
    scale = TimeScale.within(n_steps, columns)
    assert 1 <= scale.width <= columns
    assert n_steps > columns or scale.width % n_steps == 0


@pytest.mark.parametrize(("n_steps", "columns"), SIZES)
def test_columns_share_out_every_step_once(n_steps: int, columns: int) -> None:
    scale = TimeScale.within(n_steps, columns)
    assert scale.overlaps(0, n_steps).sum() == pytest.approx(n_steps)
    assert scale.overlaps(0, 1).sum() == pytest.approx(1)


@pytest.mark.parametrize(("n_steps", "columns"), SIZES)
def test_means_keep_the_mean(n_steps: int, columns: int) -> None:
    values = np.random.default_rng(0).uniform(0, 9, n_steps)
    assert TimeScale.within(n_steps, columns).means(values).mean() == pytest.approx(values.mean())


def test_means_are_the_values_where_every_step_has_its_columns() -> None:
    assert TimeScale(3, 6).means(np.array([1.0, 5.0, 2.0])).tolist() == pytest.approx([1, 1, 5, 5, 2, 2])


@pytest.mark.parametrize(("n_steps", "columns"), SIZES)
def test_every_number_of_the_axis_stands_where_its_step_begins(n_steps: int, columns: int) -> None:
    scale = TimeScale.within(n_steps, columns)
    axis = scale.axis()
    assert len(axis) <= max(scale.width, len(axis.split()[0]))
    for text in axis.split():
        step, at = int(text.replace(",", "")), f" {axis} ".index(f" {text} ")
        where = round(step / n_steps * scale.width) if step < n_steps else scale.width - len(text)
        assert at == where


def test_the_axis_of_200_steps() -> None:
    assert TimeScale(200, 40).axis() == "0         50        100       150    200"


def test_blocks_rise_to_the_top() -> None:
    assert sparkline(np.array([0.0, 1.0, 4.0, 8.0]), 8.0) == " ▁▄█"


def test_whatever_is_above_zero_shows() -> None:
    assert sparkline(np.array([1e-9, 0.0]), 100.0) == "▁ "


def test_nothing_above_zero_is_blank() -> None:
    assert sparkline(np.zeros(3), 0.0) == "   "


def bar(
    rows: tuple[int, int], steps: tuple[int, int, int], tenant: int = 0, label: str = "", *, retrains: bool = False
) -> Bar:
    return Bar(*rows, *steps, tenant, is_retraining=retrains, label=label)


def drawn(bars: Sequence[Bar], n_rows: int, scale: TimeScale) -> list[str]:
    return [line.plain for line in gantt(bars, n_rows, scale, ("A", "B"))]


def test_an_instance_fills_its_rows_from_its_creation_to_its_end() -> None:
    assert drawn([bar((1, 3), (2, 4, 6))], 4, TimeScale(8, 8)) == ["········", "··░░AA··", "··░░AA··", "········"]


def test_what_is_not_ours_is_crossed_out() -> None:
    others = Bar(1, 2, 1, 1, 3, None, is_retraining=False, label="")
    assert drawn([others], 2, TimeScale(4, 4)) == ["····", "·××·"]


def test_a_layout_crosses_out_what_is_not_ours() -> None:
    gpu = gpu_model("a30-24gb")
    layout = OwnedLayout.of([(gpu.placement("1g.6gb@1"), Owner("a", Task.INFERENCE))])
    assert layout_strip(layout, ["a"], 4, 0b1001).plain == "×│A│·×"


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


def test_a_pool_s_instance_without_room_for_its_letters_is_marked_as_shared() -> None:
    gpu = gpu_model("a100-80gb")
    pool = Owner("vision", Task.INFERENCE, ("language",))
    held = OwnedLayout.of([(gpu.placement("1g.10gb@0"), pool), (gpu.placement("2g.20gb@2"), pool)])
    assert layout_strip(held, ["vision", "language"], 4).plain == "│+·│VL│"
