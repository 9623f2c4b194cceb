from __future__ import annotations

import numpy as np
import pytest

from migrator.views.timescale import TimeScale

SIZES = [(n_steps, columns) for n_steps in (1, 3, 7, 68, 69, 70, 200, 400, 2000) for columns in (20, 69, 109)]


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
        step, at = int(text), f" {axis} ".index(f" {text} ")
        where = round(step / n_steps * scale.width) if step < n_steps else scale.width - len(text)
        assert at == where


def test_the_axis_of_200_steps() -> None:
    assert TimeScale(200, 40).axis() == "0         50        100       150    200"
