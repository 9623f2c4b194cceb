"""An evaluation's tables and JSON tell the same figures, and all that is on pages is seen."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from forecaster.ewma import Ewma
from forecaster.forecast import FloatArray
from migrator.comparison.forecasts import Evaluation, Methods, Series, Terms, evaluate
from migrator.views.forecast import (
    ShownForecast,
    evaluations_to_html,
    evaluations_to_json,
    print_evaluations,
    shown_to_html,
)
from tests.migrator.views.pages import looks_of_lines, plot


def evaluation(rates_rps: FloatArray) -> Evaluation:
    methods = Methods({"short": Ewma(2), "long": Ewma(90)})
    return evaluate(Series("made", ("made",), rates_rps), methods, Terms(window_s=20, stride_s=5, n_paths=9))


@pytest.fixture(scope="module")
def drifting() -> Evaluation:
    return evaluation(np.linspace(5.0, 50.0, 300)[:, np.newaxis])


def printed(*evaluations: Evaluation, styled: bool = False) -> str:
    text = io.StringIO()
    print_evaluations(evaluations, Console(file=text, width=140, force_terminal=styled))
    return text.getvalue()


def test_the_tables_show_the_figures_of_the_json(drifting: Evaluation) -> None:
    short = evaluations_to_json([drifting])["series"][0]["methods"]["short"]
    row = next(line for line in printed(drifting).splitlines() if line.strip().startswith("short"))
    assert row.split()[1:4] == [
        f"{short['all']['mae_rps']:.3g}",
        f"{100 * short['all']['wape']:.1f}",
        f"{short['all']['pinball_over_mean_rate']:.4f}",
    ]
    assert f"{100 * short['total']['coverage']['0.8']['share']:.1f}" in row


def test_the_least_loss_is_bold(drifting: Evaluation) -> None:
    bold = [line for line in printed(drifting, styled=True).splitlines() if "\x1b[1m0." in line]
    assert len(bold) == 2  # of all steps and the total, and by lead
    assert all(line.strip().startswith("short") for line in bold)


def test_where_nothing_came_a_loss_over_it_is_a_dash() -> None:
    nothing = evaluation(np.zeros((300, 1)))
    row = next(line for line in printed(nothing).splitlines() if line.strip().startswith("short"))
    assert row.split()[2:4] == ["–", "–"]
    assert evaluations_to_json([nothing])["series"][0]["methods"]["short"]["all"]["wape"] is None


@pytest.mark.parametrize(("history_s", "told"), [(200, "200 s"), (201, "up to 201 s"), (5000, "up to 280 s")])
def test_no_more_history_is_told_than_there_is(history_s: int, told: str) -> None:
    made = Series("made", ("made",), np.ones((300, 1)))
    text = printed(evaluate(made, Methods({"ewma": Ewma(2)}), Terms(20, history_s, stride_s=20, n_paths=1)))
    assert f"from {told} before" in " ".join(text.split())


def test_several_series_have_a_table_of_all_of_them(drifting: Evaluation) -> None:
    other = evaluation(np.full((300, 1), 7.0))
    found = evaluations_to_json([drifting, other])
    each = [one["methods"]["short"]["all"]["mae_rps"] for one in found["series"]]
    assert found["pooled"]["short"]["all"]["mae_rps"] == pytest.approx(np.mean(each), abs=1e-6)
    assert "all 2 series" in printed(drifting, other)


def test_the_share_that_a_band_should_hold_and_error_bars_are_seen(drifting: Evaluation) -> None:
    text = evaluations_to_html([drifting])
    (_, losses), (_, covered), (bars, totals) = (plot(text, f"scores-0-{n}") for n in range(3))
    assert "shapes" not in losses
    assert looks_of_lines(covered) == looks_of_lines(totals) == [(1.5, 1)]
    assert [mark["marker"]["opacity"] for mark in bars] == [0.5, 0.5]


def test_pages_as_narrow_as_a_phone_do_not_scroll_sideways(drifting: Evaluation) -> None:
    text = evaluations_to_html([drifting])
    assert text.count('<div class="panels">') == 1  # where panels lie below each other if they must
    assert all("width" not in plot(text, f"scores-0-{n}")[1] for n in range(3))
    rates_rps = np.full((60, 1), 5.0)
    forecast = Ewma(2).forecast(rates_rps, 20, 9, np.random.default_rng(1))
    window = ShownForecast("made", 1, 60.0, 60.0, 1.0, ("a",), rates_rps, forecast, rates_rps[:20])
    assert "width" not in plot(shown_to_html(window), "window-0")[1]
